"""What a measuring kernel is given and launched with, as data: arrays, tensors, room on the GPU, the launch itself.

In: numbers and arrays of a case. Out: records that :mod:`gpusim.evidence.bench.gpu` and :mod:`.frameworks` launch.
Knows no GPU and no case.
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
    """An array that the kernel gets a pointer to. One that cannot be written to is copied to the GPU once."""

    array: NDArray[Any]


@dataclass(frozen=True, slots=True)
class Output:
    """An array that the kernel gets a pointer to, with what is in it beforehand; its content comes back as ``name``."""

    name: str
    array: NDArray[Any]


@dataclass(frozen=True, slots=True)
class MappedTensor:
    """A tensor that the kernel gets a pointer to the tensor map of; the map's own address is not looked at."""

    array: NDArray[Any] | Repeated | Windows
    tensor_map: TensorMap


@dataclass(frozen=True, slots=True)
class Scratch:
    """Room on the GPU that the kernel gets a pointer to: ``num_bytes``, zero before the first launch, then left as it is.

    Launches of one process that ask for the same ``name`` share it.
    """

    name: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Repeated:
    """A read-only buffer of ``num_bytes`` that repeats the bytes of ``array`` from its start on.

    What is not on the host needs no room there: an ``array`` that cannot be written to is copied to the GPU once and spread
    there. Two of them never share memory, even with the same ``array``.
    """

    array: NDArray[Any]
    num_bytes: int

    def window(self, offset: int, num_bytes: int) -> NDArray[np.uint8]:
        """What lies at ``offset``, uint8[num_bytes].

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
    """An output of ``num_bytes``, all 0xFF before a launch that is checked, of which only windows come back.

    ``windows`` are (offset, bytes); ``outputs[name]`` is uint8[their bytes], one window after the other.
    """

    name: str
    num_bytes: int
    windows: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        """Windows lie in the buffer.

        Raises:
            ConfigError: one does not.
        """
        for offset, num_bytes in self.windows:
            if offset < 0 or num_bytes <= 0 or offset + num_bytes > self.num_bytes:
                raise ConfigError(
                    f"output {self.name!r}: a window of {num_bytes} bytes at {offset} is outside of its {self.num_bytes}: "
                    "use windows inside"
                )

    def split(self, came: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        """The windows in what came back.

        >>> came = np.arange(5, dtype=np.uint8)
        >>> [part.tolist() for part in Windows("out", 9, ((0, 2), (6, 3))).split(came)]
        [[0, 1], [2, 3, 4]]
        """
        ends = np.cumsum([num_bytes for _, num_bytes in self.windows])
        return np.split(came, ends[:-1])


Argument = Input | Output | MappedTensor | Scratch | Repeated | Windows | np.generic
"""An argument of a kernel: pointers, or a number or structure by value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLaunch:
    """One launch, as data: an entry point of ``kernel.cu``, its arguments in order, and its shape."""

    kernel: str
    arguments: tuple[Argument, ...]
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int]
    smem_bytes: int = 0
    """Dynamic shared memory; what goes beyond 48 KiB with the static part is opted in to."""
    carveout_pct: int | None = None
    """Share of L1 that becomes shared memory, as a wish; None leaves it to the driver."""
    has_large_cluster: bool = False
    """Whether its clusters have more than eight CTAs, which is opted in to."""
    set_aside_bytes: int = 0
    """Room of L2 for lines that persist, as a wish."""
    window: tuple[int, int] | None = None
    """(argument, bytes): lines of that buffer's first bytes persist, in the room that is set aside."""
    following: tuple[KernelLaunch, ...] = ()
    """Launched behind it on the same stream; counts and times are of all together, under the first one's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Elements of a product's D that an entry point of the case's own ``kernel.cu`` looks at while the product runs.

    Outputs are those of :func:`gpusim.evidence.bench.store_probe.watched`, beside the product's own.
    """

    kernel: str
    row_step: int
    column_step: int
    """Of rows and columns of D one in so many."""
    num_runs: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """D[m, n] = A[m, k] B[k, n], launched by a framework (:mod:`gpusim.evidence.bench.frameworks`), as data.

    ``outputs``: ``d`` and ``reference``, float32 of the same sampled rows and columns, with at least one element of every
    64 x 64 of D; the reference is the product of fp32 copies.
    """

    m: int
    n: int
    k: int
    dtype: Literal["bf16", "fp16"] = "bf16"
    layout: Literal["tn", "tt"] = "tn"
    """As of a GEMM's parameters: tn has A and B contiguous along K, tt both row-major."""
    seed: int = 0
    kernel: str | None = None
    """A Triton kernel of the case's ``kernel.py``; None leaves the choice to torch's library."""
    tile: tuple[int, int, int] = (0, 0, 0)
    num_stages: int = 0
    num_warps: int = 0
    raster_group: int = 1
    watch: Watch | None = None


def by_value(array: NDArray[Any]) -> np.void:
    """A structure argument: the bytes of ``array``.

    >>> by_value(np.array([1, 256], dtype="<u4")).tobytes().hex()
    '0100000000010000'
    """
    return np.void(array.tobytes())
