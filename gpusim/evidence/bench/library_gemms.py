"""GEMMs that torch's library launches: types, layouts, batches, pointer arrays, alpha, beta, bias and activations.

In: a :class:`gpusim.evidence.cases.case.Product` without a Triton kernel, and torch. Out: operands, a function that launches
it, and samples of its output with a reference in float64.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import ConfigError
from gpusim.evidence.cases.case import Product

SAMPLE_STEP = 64
"""Rows or columns of D per sampled one, so that every tile has at least one sampled element."""

INTEGER_SCALE = 32.0
"""Standard deviation of int8 operands."""

CUDA_TYPES = {"fp32": 0, "tf32": 0, "fp16": 2, "bf16": 14}
"""``cudaDataType_t`` by type."""
COMPUTE_TYPES = {"tf32": 77}
"""``cublasComputeType_t`` by type: CUBLAS_COMPUTE_32F_FAST_TF32. Others: CUBLAS_COMPUTE_32F."""
COMPUTE_32F, ANY_ALGORITHM, OP_N, OP_T = 68, -1, 0, 1


@dataclass(frozen=True, slots=True)
class PreparedProduct:
    """A GEMM whose operands are on the GPU."""

    enqueue: Callable[[], Any]
    """Function that launches it once on the current stream without waiting."""
    clear: Callable[[], Any]
    """Function that fills D: with C where the GEMM reads it, else with a value that no GEMM gives."""
    sample: Callable[[], dict[str, NDArray[Any]]]
    """Function that returns sampled elements: ``d`` and ``reference``, float64 of the same shape."""
    d: Any
    """Tensor that the GEMM writes."""


def element_type(torch: Any, name: str) -> Any:
    """The type of torch for a type's name."""
    return {
        "bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32, "int8": torch.int8,
        "fp8": torch.float8_e4m3fn,
    }[name]


def operands(torch: Any, product: Product, device: str) -> tuple[Any, Any]:
    """A [m, k] and B [k, n] with normal random numbers, in the GEMM's layout; batches come first."""
    numbers = torch.Generator(device=device).manual_seed(product.seed)
    batch = (product.batch,) if product.batch > 1 else ()

    def normal(rows: int, columns: int) -> Any:
        drawn = torch.randn(*batch, rows, columns, generator=numbers, device=device, dtype=torch.float32)
        if product.dtype == "int8":
            drawn = (drawn * INTEGER_SCALE).round().clamp(-127, 127)
        return drawn.to(element_type(torch, product.dtype))

    (m, n, k), (letter_a, letter_b) = (product.m, product.n, product.k), product.layout
    a = normal(m, k) if letter_a == "t" else normal(k, m).transpose(-1, -2)
    return a, normal(n, k).transpose(-1, -2) if letter_b == "n" else normal(k, n)


def prepared(torch: Any, product: Product, a: Any, right: Any) -> PreparedProduct:
    """The GEMM of ``a`` and ``right``.

    Raises:
        ConfigError: the library has no function for these options together.
    """
    device, batch = a.device, (product.batch,) if product.batch > 1 else ()
    out = {"int8": torch.int32, "fp8": torch.bfloat16}.get(product.dtype, element_type(torch, product.dtype))
    torch.set_float32_matmul_precision("high" if product.dtype == "tf32" else "highest")
    d = torch.empty(*batch, product.m, product.n, dtype=out, device=device)
    numbers = torch.Generator(device=device).manual_seed(product.seed + 1)
    c = bias = None
    if product.beta:
        c = torch.randn(d.shape, generator=numbers, device=device, dtype=torch.float32).to(out)
    if product.bias:
        bias = torch.randn(product.n, generator=numbers, device=device, dtype=torch.float32).to(out)

    def clear() -> None:
        if c is not None:
            d.copy_(c)
        else:
            d.fill_(float("nan") if out.is_floating_point else -1)

    clear()
    return PreparedProduct(
        _launcher(torch, product, a, right, d, bias), clear, lambda: sample(torch, product, a, right, d, (c, bias)), d
    )


def _launcher(torch: Any, product: Product, a: Any, right: Any, d: Any, bias: Any) -> Callable[[], Any]:
    alpha, beta = product.alpha, product.beta
    is_scaled = alpha != 1.0 or beta != 0.0
    has_more = is_scaled or bias is not None
    if product.batch_mode == "array" and not has_more:
        return gemm_batched(torch, product, a, right, d)
    if product.batch > 1 and not has_more:
        return lambda: torch.bmm(a, right, out=d)
    if product.batch == 1 and product.dtype == "int8" and not has_more:
        return lambda: torch._int_mm(a, right, out=d)
    if product.batch == 1 and product.dtype == "fp8" and not has_more:
        one = torch.ones((), device=a.device, dtype=torch.float32)
        scaled = torch.ops.aten._scaled_mm.out
        return lambda: scaled(a, right, one, one, None, None, torch.bfloat16, True, out=d)
    if product.batch == 1 and bias is not None and not is_scaled:
        if product.activation == "none":
            return lambda: torch.addmm(bias, a, right, out=d)
        fused = torch._addmm_activation
        return lambda: fused(bias, a, right, use_gelu=product.activation == "gelu", out=d)
    if product.batch == 1 and is_scaled and bias is None:
        return lambda: d.addmm_(a, right, beta=beta, alpha=alpha)
    if product.batch == 1 and not has_more:
        return lambda: torch.mm(a, right, out=d)
    raise ConfigError(f"torch has no function for {product}; wants a batch, or alpha and beta, or a bias, but one of them")


def gemm_batched(torch: Any, product: Product, a: Any, right: Any, d: Any) -> Callable[[], None]:
    """``cublasGemmBatchedEx`` of D^T = B^T A^T, which reads addresses of all matrices from arrays.

    Raises:
        ConfigError: cuBLAS is not loaded.
    """
    call = _cublas().cublasGemmBatchedEx
    arrays = [
        torch.tensor([each.data_ptr() for each in tensor], dtype=torch.int64, device=a.device) for tensor in (right, a, d)
    ]
    (m, n, k), (letter_a, letter_b), kind = (product.m, product.n, product.k), product.layout, CUDA_TYPES[product.dtype]
    op_b, ld_b = (OP_T, k) if letter_b == "n" else (OP_N, n)
    op_a, ld_a = (OP_N, k) if letter_a == "t" else (OP_T, m)
    one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
    compute = COMPUTE_TYPES.get(product.dtype, COMPUTE_32F)

    def enqueue() -> None:
        status = call(
            ctypes.c_void_p(torch.cuda.current_blas_handle()), op_b, op_a, n, m, k, ctypes.byref(one),
            ctypes.c_void_p(arrays[0].data_ptr()), kind, ld_b, ctypes.c_void_p(arrays[1].data_ptr()), kind, ld_a,
            ctypes.byref(zero), ctypes.c_void_p(arrays[2].data_ptr()), kind, n, product.batch, compute, ANY_ALGORITHM,
        )  # fmt: skip
        if status:
            raise RuntimeError(f"cublasGemmBatchedEx: status {status}")

    return enqueue


def _cublas() -> Any:
    """The cuBLAS that torch has loaded.

    Raises:
        ConfigError: there is none.
    """
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = line.split(maxsplit=5)[-1]
        if "/libcublas.so" in path:
            return ctypes.CDLL(path)
    raise ConfigError("measure: torch has loaded no libcublas.so, wants a build with CUDA")


def sampled(extent: int, numbers: np.random.Generator) -> NDArray[np.int64]:
    """int64 indices: one of every ``SAMPLE_STEP``, with the first and the last.

    >>> sampled(200, np.random.default_rng(0))[[0, -1]].tolist()
    [0, 199]
    """
    starts = np.arange(0, extent, SAMPLE_STEP)
    indices = starts + numbers.integers(0, np.minimum(SAMPLE_STEP, extent - starts))
    return np.unique(np.concatenate([[0], indices, [extent - 1]])).astype(np.int64)


def sample(torch: Any, product: Product, a: Any, right: Any, d: Any, more: tuple[Any, Any]) -> dict[str, NDArray[Any]]:
    """Sampled rows and columns of D and of the reference; of a batch, of the first and the last matrix.

    ``more``: C and the bias, or None.
    """
    numbers = np.random.default_rng(product.seed)
    rows, columns = (torch.from_numpy(sampled(extent, numbers)).to(a.device) for extent in (product.m, product.n))
    found, expected = [], []
    for idx in sorted({0, product.batch - 1}):
        of_a, of_b, of_d, of_c = (
            each if each is None or each.dim() == 2 else each[idx] for each in (a, right, d, more[0])
        )
        found.append(of_d[rows][:, columns].double())
        exact = product.alpha * (_numbers(of_a)[rows].double() @ _numbers(of_b)[:, columns].double())
        if of_c is not None:
            exact = exact + product.beta * of_c[rows][:, columns].double()
        if more[1] is not None:
            exact = exact + more[1][columns].double()
        if product.activation != "none":
            functions = {"relu": torch.relu, "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh")}
            exact = functions[product.activation](exact)
        expected.append(exact)
    return {"d": torch.stack(found).cpu().numpy(), "reference": torch.stack(expected).cpu().numpy()}


def _numbers(tensor: Any) -> Any:
    """The tensor, of a type that can be indexed."""
    return tensor if tensor.element_size() > 1 else tensor.float()
