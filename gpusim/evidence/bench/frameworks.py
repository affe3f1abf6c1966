"""Launches by frameworks: GEMMs of torch's library or of Triton, and tensor operations of torch.

In: a :class:`gpusim.evidence.cases.case.Product` or ``Operation``. Out: a launch to enqueue, a sample of its output with a
reference, and facts that the framework reports about the kernel. No other module imports torch or Triton. They are imported
only when a GPU is used.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

from numpy.typing import NDArray

from gpusim.errors import ConfigError
from gpusim.evidence.bench import framework_operations as operations
from gpusim.evidence.bench import library_gemms
from gpusim.evidence.bench.store_probe import OnGpu
from gpusim.evidence.cases.case import Case, Operation, Product, WrongAnswer, kernel_folder
from gpusim.evidence.toolchain.cuda_toolkit import Cubin, build
from gpusim.evidence.toolchain.sass import KernelSass, read_sass

PACKAGES = {"torch": ("torch",), "triton": ("torch", "triton")}
"""Python packages that a case's ``framework`` requires."""

VERSIONED_PACKAGES = ("torch", "triton", "nvidia-cublas", "nvidia-cublas-cu12")
"""Packages whose versions decide which kernel is launched."""

MARK = "FillFunctor"
"""Part of the name of torch's fill kernel, which runs before each launch under the profiler. No measured kernel has it."""

SIGNATURES = {"by_descriptors": True}
"""Triton kernels that take tensor descriptors of tiles, which the host makes. Others take pointers."""


def built(case: Case, arch: str | None = None, build_dir: Path | None = None) -> Cubin:
    """Stand-in for a cubin: the case's folder, a hash of the source and the frameworks' versions, and these versions.

    If ``arch`` is given and the case has a ``kernel.cu`` as well, the cubin of that file is built and named.

    Raises:
        ConfigError: a framework is not installed.
    """
    if missing := lacking(case):
        raise ConfigError(f"measure: {missing}")
    versions = ", ".join(f"{name} {number}" for name, number in _versions().items())
    folder = kernel_folder(case.name)
    source = folder / "kernel.py"
    digest = hashlib.sha256(source.read_bytes() if source.exists() else b"")
    digest.update(f"\0{versions}".encode())
    if arch is None or not has_source(case):
        return Cubin(folder, digest.hexdigest()[:12], versions)
    own = build(case, arch, build_dir)
    digest.update(f"\0{own.source_hash}".encode())
    return Cubin(own.path, digest.hexdigest()[:12], f"{own.compiler}, {versions}")


def has_source(case: Case) -> bool:
    """Whether the case has a ``kernel.cu``."""
    return (kernel_folder(case.name) / "kernel.cu").exists()


def lacking(case: Case) -> str | None:
    """Sentence with the package that is missing to launch ``case``; None where none is."""
    for name in PACKAGES[case.framework] if case.framework else ():
        if importlib.util.find_spec(name) is None:
            return f"{case.name} is launched by {case.framework}, and {name} is missing here: wants pip install {name}"
    return None


def _versions() -> dict[str, str]:
    versions = {}
    for name in VERSIONED_PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """A GEMM or an operation whose operands are on the GPU."""

    enqueue: Callable[[], None]
    """Function that launches it once on the default stream without waiting."""
    enqueue_counted: Callable[[], None]
    """Function that launches it once between the profiler's start and stop, after torch's fill, and waits."""
    fetch: Callable[[], dict[str, NDArray[Any]]]
    """Function that returns samples: ``d`` (of an operation ``out``) and ``reference``, of the same shape."""
    facts: Mapping[str, str]
    """Facts about the kernel that the framework reports."""
    on_gpu: OnGpu | None = None


class Frameworks:
    """Torch, and Triton if the case needs it, on the first GPU: its primary context and the default stream."""

    def __init__(self, case: Case, *, device: str = "cuda") -> None:
        """Import torch for the GEMMs of ``case``.

        Raises:
            ConfigError: torch is missing or finds no GPU.
        """
        try:
            import torch
        except ImportError as error:
            raise ConfigError(f"measure: {case.name} is launched by torch, which cannot be imported ({error})") from None
        if device == "cuda" and not torch.cuda.is_available():
            raise ConfigError(f"measure: {case.name} is launched by torch, which finds no GPU: wants a build with CUDA")
        torch.set_float32_matmul_precision("highest")
        self._torch = torch
        self._device = device
        self._folder = kernel_folder(case.name)
        self._operands: tuple[tuple[Any, ...], Any, Any] | None = None
        self._mark = torch.zeros(32, device=device)
        self.errors: tuple[type[Exception], ...] = (RuntimeError,)

    def about(self) -> dict[str, str]:
        """Versions of the packages that decide which kernel is launched."""
        return {**_versions(), "torch_cuda": str(self._torch.version.cuda)}

    def prepare(self, product: Product | Operation) -> PreparedLaunch:
        """GEMM or operation with operands on the GPU, whose kernel is chosen or compiled and has run once.

        Raises:
            ConfigError: there is no such operation.
            WrongAnswer: the framework cannot build the kernel, or has none.
        """
        if isinstance(product, Operation):
            return self._operation(product)
        a, right = self._random(product)
        found = library_gemms.prepared(self._torch, product, a, right)
        enqueue, facts = found.enqueue, dict[str, str]()
        if product.kernel is None:
            try:
                enqueue()
            except RuntimeError as error:
                if "CUDA" in str(error):  # the GPU's, not torch's
                    raise
                raise WrongAnswer(f"torch refuses it: {' '.join(str(error).split())[:200]}") from None
        else:
            try:
                enqueue, compiled = self._triton(product, a, right, found.d)
            except RuntimeError:
                raise
            except Exception as error:  # noqa: BLE001 - any error of the compiler, so that other configs continue
                reason = " ".join(str(error).split())[:200]
                raise WrongAnswer(f"Triton makes no kernel of it: {type(error).__name__} {reason}") from None
            facts = compiled_facts(compiled)

        def clear() -> None:
            found.clear()
            self._wait()

        self._wait()
        clear()
        on_gpu = OnGpu(enqueue, found.d.data_ptr(), clear)
        return PreparedLaunch(enqueue, self._counted(enqueue), found.sample, facts, on_gpu)

    def _operation(self, operation: Operation) -> PreparedLaunch:
        """Operation that has run once. Its output is cleared, or made anew by each launch."""
        self._operands = None  # frees memory
        found = operations.prepared(self._torch, operation, self._device)
        outputs = [found.run()]
        self._wait()
        outputs[0].fill_(float("nan"))

        def enqueue() -> None:
            outputs[0] = found.run()

        return PreparedLaunch(enqueue, self._counted(enqueue), lambda: operations.fetched(found, outputs[0]), {})

    def _counted(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        """Function that launches once between the profiler's start and stop, after torch's fill, and waits."""
        cuda = self._torch.cuda

        def enqueue_counted() -> None:
            self._wait()
            cuda.cudart().cudaProfilerStart()
            self._mark.fill_(1.0)
            enqueue()
            self._wait()
            cuda.cudart().cudaProfilerStop()

        return enqueue_counted

    def _wait(self) -> None:
        if self._device == "cuda":
            self._torch.cuda.synchronize()

    def _random(self, product: Product) -> tuple[Any, Any]:
        """A and B with normal random numbers, equal for all launches of the same shapes; B has the GEMM's layout."""
        key = (product.m, product.n, product.k, product.batch, product.dtype, product.layout)
        if self._operands is None or self._operands[0] != key:
            self._operands = None  # frees memory for the next operands
            self._operands = (key, *library_gemms.operands(self._torch, product, self._device))
        return self._operands[1], self._operands[2]

    # ------------------------------------------------------------------------------------------ Triton
    def _triton(self, product: Product, a: Any, right: Any, d: Any) -> tuple[Callable[[], None], Any]:
        """(launch function, compiled kernel); the kernel has run once."""
        import triton

        module = self._module()
        torch, device = self._torch, self._device
        triton.set_allocator(lambda size, _align, _stream: torch.empty(size, dtype=torch.int8, device=device))
        kernel, tile = getattr(module, str(product.kernel)), product.tile
        operands = (a, right.t(), d)
        if SIGNATURES.get(str(product.kernel), False):
            from triton.tools.tensor_descriptor import TensorDescriptor

            boxes = ((tile[0], tile[2]), (tile[1], tile[2]), (tile[0], tile[1]))
            operands = tuple(
                TensorDescriptor.from_tensor(operand, list(box)) for operand, box in zip(operands, boxes, strict=True)
            )
        arguments = (*operands, product.m, product.n, product.k)
        constants = {"TILE_M": tile[0], "TILE_N": tile[1], "TILE_K": tile[2], "GROUP_M": product.raster_group}
        num_tiles = product.m // tile[0] * (product.n // tile[1])
        if product.kernel in getattr(module, "PERSISTENT", ()):
            num_tiles = min(num_tiles, self._torch.cuda.get_device_properties(self._device).multi_processor_count)
        grid = (num_tiles,)

        def enqueue() -> Any:
            return kernel[grid](*arguments, **constants, num_stages=product.num_stages, num_warps=product.num_warps)

        return enqueue, enqueue()

    def _module(self) -> ModuleType:
        """Module ``kernel.py`` of the case."""
        name = f"gpusim_triton_{self._folder.name}"
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(name, self._folder / "kernel.py")
            if spec is None or spec.loader is None:
                raise ConfigError(f"{self._folder}/kernel.py: cannot be imported, wants a Python file")
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
        return sys.modules[name]


def compiled_facts(compiled: Any) -> dict[str, str]:
    """Shared memory and SASS facts of Triton's compiled kernel, as far as they are known. SASS requires cuobjdump."""
    asm = getattr(compiled, "asm", {})
    cubin = asm.get("cubin") if hasattr(asm, "get") else None
    facts: dict[str, str] = {}
    smem = getattr(getattr(compiled, "metadata", None), "shared", None)
    if smem is not None:
        facts["smem_bytes"] = str(smem)
    if not cubin:
        return facts
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            kernels = list(read_sass(Path(file.name)).values())
        except (ConfigError, OSError):  # no cuobjdump, or one that cannot read this cubin: the row stays valid
            return facts
    return {**facts, **sass_facts(kernels[0])}


def sass_facts(kernel: KernelSass) -> dict[str, str]:
    """Properties of SASS that decide a GEMM's speed, as text."""
    opcodes = kernel.opcodes
    return {
        "registers": str(kernel.num_registers),
        "spills": str(kernel.num_spills),
        "wgmma": " ".join(f"{shape.split()[1]}*{count}" for shape, count in kernel.tensor_shapes.items()),
        "wgmma_waits": " ".join(map(str, kernel.wgmma_wait_depths)),
        "cp_async_waits": " ".join(map(str, kernel.cp_async_wait_depths)),
        "opcodes": " ".join(
            f"{name}*{opcodes[name]}" for name in ("LDGSTS", "UTMALDG", "UTMASTG", "STSM", "STS", "STG") if opcodes[name]
        ),
    }
