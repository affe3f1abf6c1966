"""Tensor operations that torch launches: softmax, norms, sums, element-wise operations, transposes, embeddings.

In: an :class:`gpusim.evidence.cases.case.Operation`, and torch. Out: a function that launches it, and samples of its output
with a reference. To add an operation, write one function and its row in ``OPERATIONS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import ConfigError, nearest
from gpusim.evidence.cases.case import Operation

SAMPLED = 64
"""Rows or columns of the output that are checked, with the first and the last."""

Sample = tuple[Any, Any]
"""Tensors of sampled elements: of the output, and of the reference."""


@dataclass(frozen=True, slots=True)
class PreparedOperation:
    """An operation whose input is on the GPU."""

    run: Callable[[], Any]
    """Function that launches it once on the current stream without waiting, and returns the output tensor."""
    sample: Callable[[Any], Sample]
    """Function from the output tensor to sampled elements of it and of the reference."""


Operate = Callable[[Any, Any, Operation], PreparedOperation]
"""Function of torch, the input tensor, and the operation."""


def sampled_indices(extent: int, seed: int) -> NDArray[np.int64]:
    """int64 indices below ``extent``, in ascending order: the first, the last, and random ones.

    >>> sampled_indices(3, 0).tolist()
    [0, 1, 2]
    """
    drawn = np.random.default_rng(seed).integers(0, extent, SAMPLED - 2)
    return np.unique(np.concatenate([[0], drawn, [extent - 1]])).astype(np.int64)


def _rows(torch: Any, x: Any, operation: Operation) -> Any:
    """Sampled rows, as an index tensor on the device of ``x``."""
    return torch.from_numpy(sampled_indices(operation.shape[0], operation.seed)).to(x.device)


def _vector(torch: Any, x: Any, operation: Operation, seed: int) -> Any:
    """Random weights, one a column."""
    numbers = torch.Generator(device=x.device).manual_seed(operation.seed + seed)
    return torch.randn(operation.shape[1], generator=numbers, device=x.device, dtype=torch.float32).to(x.dtype)


def softmax(torch: Any, x: Any, operation: Operation) -> PreparedOperation:
    """``torch.softmax`` of each row."""
    out, rows = torch.empty_like(x), _rows(torch, x, operation)
    return PreparedOperation(
        lambda: torch.softmax(x, -1, out=out), lambda found: (found[rows], torch.softmax(x[rows].double(), -1))
    )


def layer_norm(torch: Any, x: Any, operation: Operation) -> PreparedOperation:
    """``torch.nn.functional.layer_norm`` of each row, with weight and bias."""
    rows, (weight, bias) = _rows(torch, x, operation), (_vector(torch, x, operation, seed) for seed in (1, 2))
    norm, shape = torch.nn.functional.layer_norm, (operation.shape[1],)
    return PreparedOperation(
        lambda: norm(x, shape, weight, bias),
        lambda found: (found[rows], norm(x[rows].double(), shape, weight.double(), bias.double())),
    )


def rms_norm(torch: Any, x: Any, operation: Operation) -> PreparedOperation:
    """``torch.nn.functional.rms_norm`` of each row, with weight."""
    rows, weight, eps = _rows(torch, x, operation), _vector(torch, x, operation, 1), 1e-5

    def reference(of: Any) -> Any:
        return of * torch.rsqrt((of * of).mean(-1, keepdim=True) + eps) * weight.double()

    return PreparedOperation(
        lambda: torch.nn.functional.rms_norm(x, (operation.shape[1],), weight, eps),
        lambda found: (found[rows], reference(x[rows].double())),
    )


def sum_rows(torch: Any, x: Any, operation: Operation) -> PreparedOperation:
    """``torch.sum`` of each row."""
    out, rows = torch.empty(operation.shape[0], dtype=x.dtype, device=x.device), _rows(torch, x, operation)
    return PreparedOperation(lambda: torch.sum(x, 1, out=out), lambda found: (found[rows], x[rows].double().sum(1)))


def sum_columns(torch: Any, x: Any, operation: Operation) -> PreparedOperation:
    """``torch.sum`` of each column."""
    out = torch.empty(operation.shape[1], dtype=x.dtype, device=x.device)
    columns = torch.from_numpy(sampled_indices(operation.shape[1], operation.seed)).to(x.device)
    return PreparedOperation(
        lambda: torch.sum(x, 0, out=out), lambda found: (found[columns], x[:, columns].double().sum(0))
    )


def sum_all(torch: Any, x: Any, operation: Operation) -> PreparedOperation:
    """``torch.sum`` of all elements."""
    del operation
    return PreparedOperation(lambda: torch.sum(x), lambda found: (found.reshape(1), x.double().sum().reshape(1)))


def _map(function: Callable[[Any, Any], Any]) -> Operate:
    """Operation on each element: ``function`` of torch and a tensor."""

    def operate(torch: Any, x: Any, operation: Operation) -> PreparedOperation:
        rows = _rows(torch, x, operation)
        return PreparedOperation(
            lambda: function(torch, x), lambda found: (found[rows].double(), function(torch, x[rows].double()))
        )

    return operate


def add(torch: Any, x: Any, operation: Operation) -> PreparedOperation:
    """Sum of two tensors."""
    rows, other = _rows(torch, x, operation), x.flip(0).contiguous()
    return PreparedOperation(lambda: x + other, lambda found: (found[rows], x[rows].double() + other[rows].double()))


def add_bias(torch: Any, x: Any, operation: Operation) -> PreparedOperation:
    """Sum of each row and one vector."""
    rows, bias = _rows(torch, x, operation), _vector(torch, x, operation, 1)
    return PreparedOperation(lambda: x + bias, lambda found: (found[rows], x[rows].double() + bias.double()))


def cast(torch: Any, x: Any, operation: Operation) -> PreparedOperation:
    """Cast of fp32 to bf16, and of other types to fp32."""
    rows, to = _rows(torch, x, operation), torch.bfloat16 if operation.dtype == "fp32" else torch.float32
    return PreparedOperation(lambda: x.to(to), lambda found: (found[rows], x[rows].to(to).double()))


def transpose(torch: Any, x: Any, operation: Operation) -> PreparedOperation:
    """Contiguous copy of the transposed matrix."""
    rows = _rows(torch, x, operation)
    return PreparedOperation(lambda: x.t().contiguous(), lambda found: (found[:, rows], x[rows].double().t()))


def embedding(torch: Any, x: Any, operation: Operation) -> PreparedOperation:
    """``NUM_INDICES`` random rows of a table."""
    drawn = np.random.default_rng(operation.seed).integers(0, operation.shape[0], NUM_INDICES)
    index = torch.from_numpy(drawn).to(x.device)
    some = torch.from_numpy(sampled_indices(NUM_INDICES, operation.seed)).to(x.device)
    return PreparedOperation(
        lambda: torch.nn.functional.embedding(index, x), lambda found: (found[some], x[index[some]].double())
    )


NUM_INDICES = 16384
"""Rows that an embedding gathers."""

NAMED = (softmax, layer_norm, rms_norm, sum_rows, sum_columns, sum_all, add, add_bias, cast, transpose, embedding)
OPERATIONS: Mapping[str, Operate] = {
    **{each.__name__: each for each in NAMED},
    "mul": _map(lambda _torch, x: x * 1.5), "relu": _map(lambda torch, x: torch.relu(x)),
    "gelu": _map(lambda torch, x: torch.nn.functional.gelu(x)), "silu": _map(lambda torch, x: torch.nn.functional.silu(x)),
}  # fmt: skip
"""Operations by name."""


def prepared(torch: Any, operation: Operation, device: str) -> PreparedOperation:
    """``operation`` of normal random numbers.

    Raises:
        ConfigError: there is no such operation.
    """
    if operation.name not in OPERATIONS:
        raise ConfigError(f"{operation.name!r} is no operation of a framework; {nearest(operation.name, OPERATIONS)}")
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[operation.dtype]
    numbers = torch.Generator(device=device).manual_seed(operation.seed)
    x = torch.randn(*operation.shape, generator=numbers, device=device, dtype=torch.float32).to(dtype)
    return OPERATIONS[operation.name](torch, x, operation)


def fetched(found: PreparedOperation, out: Any) -> dict[str, NDArray[Any]]:
    """Samples of the output and of the reference as float64 arrays."""
    return {
        name: tensor.double().cpu().numpy() for name, tensor in zip(("out", "reference"), found.sample(out), strict=True)
    }
