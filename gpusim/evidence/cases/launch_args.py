"""Kernel launches as data: arrays, tensors and buffers of the arguments, and the launch parameters.

In: numbers and arrays of a case. Out: records that :mod:`gpusim.evidence.bench.gpu` and :mod:`.frameworks` launch. Needs no
GPU and no case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import ConfigError
from gpusim.workload.tma.boxes import TensorMap


@dataclass(frozen=True, slots=True)
class Input:
    """Array to which the kernel gets a pointer. A read-only array is copied to the GPU once."""

    array: NDArray[Any]


@dataclass(frozen=True, slots=True)
class Output:
    """Array to which the kernel gets a pointer, with its initial contents; the contents afterwards come back as ``name``."""

    name: str
    array: NDArray[Any]


@dataclass(frozen=True, slots=True)
class MappedTensor:
    """Tensor to whose tensor map the kernel gets a pointer; the address in ``tensor_map`` is ignored."""

    array: NDArray[Any] | Repeated | Windows
    tensor_map: TensorMap


@dataclass(frozen=True, slots=True)
class Scratch:
    """Scratch buffer on the GPU: ``num_bytes``, zero before the first launch and unchanged between launches.

    Launches of one process with an equal ``name`` share it.
    """

    name: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Repeated:
    """Read-only buffer of ``num_bytes`` that repeats the bytes of ``array`` from its start on.

    The full buffer exists on the GPU only. A read-only ``array`` is copied to the GPU once and repeated there. Two buffers
    never share memory, even with the same ``array``.
    """

    array: NDArray[Any]
    num_bytes: int

    def window(self, offset: int, num_bytes: int) -> NDArray[np.uint8]:
        """Bytes at ``offset``, uint8[num_bytes].

        >>> Repeated(np.arange(4, dtype=np.uint8), 100).window(6, 5).tolist()
        [2, 3, 0, 1, 2]
        """
        own = self.array.reshape(-1).view(np.uint8)
        start = offset % len(own)
        if start + num_bytes <= len(own):
            return own[start : start + num_bytes]
        return own[np.arange(start, start + num_bytes) % len(own)]


@dataclass(frozen=True, slots=True)
class Windows:
    """Output of ``num_bytes``, filled with 0xFF before a checked launch, of which only windows come back.

    ``windows`` are (offset, bytes). ``outputs[name]`` is uint8[sum of their bytes], the windows in order.
    """

    name: str
    num_bytes: int
    windows: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        """Check that all windows lie in the buffer.

        Raises:
            ConfigError: a window does not.
        """
        for offset, num_bytes in self.windows:
            if offset < 0 or num_bytes <= 0 or offset + num_bytes > self.num_bytes:
                raise ConfigError(
                    f"output {self.name!r}: a window of {num_bytes} bytes at {offset} is outside of its {self.num_bytes}: "
                    "use windows inside"
                )

    def split(self, came: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        """Windows in the returned bytes.

        >>> came = np.arange(5, dtype=np.uint8)
        >>> [part.tolist() for part in Windows("out", 9, ((0, 2), (6, 3))).split(came)]
        [[0, 1], [2, 3, 4]]
        """
        ends = np.cumsum([num_bytes for _, num_bytes in self.windows])
        return np.split(came, ends[:-1])


Argument = Input | Output | MappedTensor | Scratch | Repeated | Windows | np.generic
"""Argument of a kernel: a pointer, or a number or structure by value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLaunch:
    """One launch as data: an entry point of ``kernel.cu``, its arguments in order, and its shape."""

    kernel: str
    arguments: tuple[Argument, ...]
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int]
    smem_bytes: int = 0
    """Dynamic shared memory in bytes; more than 48 KiB, with the static part, needs an opt-in."""
    carveout_pct: int | None = None
    """Preferred shared-memory carveout in percent of L1; None leaves it to the driver."""
    has_large_cluster: bool = False
    """Whether clusters have more than eight CTAs, which needs an opt-in."""
    set_aside_bytes: int = 0
    """Bytes of L2 to set aside for persisting lines, as a preference."""
    window: tuple[int, int] | None = None
    """(argument, bytes): the first bytes of that buffer persist in the L2 part that is set aside."""
    following: tuple[KernelLaunch, ...] = ()
    """Launches that follow on the same stream. Counts and times cover all together, under the first one's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Elements of a GEMM's D that an entry point of the case's ``kernel.cu`` reads while the GEMM runs.

    Its outputs are those of :func:`gpusim.evidence.bench.store_probe.watched`, in addition to the GEMM's.
    """

    kernel: str
    row_step: int
    column_step: int
    """Step of the sampled rows and columns of D: one in so many."""
    num_runs: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """GEMM D[m, n] = A[m, k] B[k, n] as data, launched by a framework (:mod:`gpusim.evidence.bench.frameworks`).

    ``outputs`` are ``d`` and ``reference``, float32 of the same sampled rows and columns. They have at least one element of
    every 64 x 64 of D. The reference is the GEMM of fp32 copies.
    """

    m: int
    n: int
    k: int
    dtype: Literal["bf16", "fp16", "fp32", "tf32", "fp8", "int8"] = "bf16"
    layout: Literal["nn", "nt", "tn", "tt"] = "tn"
    """Layout of A and B in a GEMM's parameters: tn has both contiguous along K, tt both row-major."""
    batch: int = 1
    batch_mode: Literal["strided", "array"] = "strided"
    """Matrices of a batch at a stride, or at addresses in arrays."""
    alpha: float = 1.0
    beta: float = 0.0
    """Factor of C, which D replaces."""
    bias: bool = False
    activation: Literal["none", "relu", "gelu"] = "none"
    seed: int = 0
    kernel: str | None = None
    """Triton kernel of the case's ``kernel.py``; None leaves the choice to torch's library."""
    tile: tuple[int, int, int] = (0, 0, 0)
    num_stages: int = 0
    num_warps: int = 0
    raster_group: int = 1
    watch: Watch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Tensor operation as data, launched by torch (:mod:`gpusim.evidence.bench.framework_operations`).

    ``outputs`` are ``out`` and ``reference``, float64 of the same sampled elements. The reference is of higher precision.
    """

    name: str
    """Key of ``OPERATIONS``."""
    shape: tuple[int, ...]
    """Extents of the input."""
    dtype: Literal["fp32", "bf16", "fp16"]
    seed: int = 0


def by_value(array: NDArray[Any]) -> np.void:
    """Structure argument with the bytes of ``array``.

    >>> by_value(np.array([1, 256], dtype="<u4")).tobytes().hex()
    '0100000000010000'
    """
    return np.void(array.tobytes())
