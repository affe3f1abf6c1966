"""What kernels that are bound by memory share: a grid of equal CTAs, the vectors that their threads take, what each touches.

Tensors begin at multiples of 256 bytes, as ``cudaMalloc`` places them, so that offsets from their start are addresses. A
tensor is cut into *shares*, one a CTA and one behind the other: share c is panel c of it. Accesses are worked out once for
each kind (all full CTAs have the same) and then looked up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import add
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from gpusim.errors import KernelError
from gpusim.kernel_models.options import KernelParams
from gpusim.units import LINE_BYTES, WARP_SIZE
from gpusim.workload.dtypes import DType, dtype
from gpusim.workload.gmem.global_access import global_access
from gpusim.workload.launch import Footprint
from gpusim.workload.smem.access import AccessPattern, data_wavefronts
from gpusim.workload.smem.smem_ops import smem_op

IntArray = NDArray[np.int64]

MAX_ELEMENTS = 1 << 40
MAX_GRID_X, MAX_GRID_Y = (1 << 31) - 1, 65535
"""CTAs of a grid along its axes. Source: CUDA C++ Programming Guide, technical specifications."""
MAX_VECTOR_BYTES = 16
"""What a thread loads or stores with one instruction at most. Source: PTX ISA, ``ld`` and ``st`` of 128 bits."""

Elements = Annotated[int, Field(ge=1, le=MAX_ELEMENTS)]
MAX_THREADS = 1024
"""Of a CTA."""
Threads = Annotated[int, Field(ge=WARP_SIZE, le=MAX_THREADS, multiple_of=WARP_SIZE)]
VectorBytes = Literal[2, 4, 8, 16]


class StreamParams(KernelParams):
    """What all of them have: a type of elements and threads of a CTA."""

    dtype: Literal["fp32", "bf16", "fp16"] = Field("fp32", description="Element type")
    threads: Threads = Field(256, description="Threads per CTA, a multiple of 32")

    @property
    def element(self) -> DType:
        """Type of the elements."""
        return dtype(self.dtype)


def ceil_div(value: int, by: int) -> int:
    """``value / by``, rounded up."""
    return -(-value // by)


def check_vector(kernel: str, vector_bytes: int, element_bytes: int) -> None:
    """Refuse a vector that holds no element.

    Raises:
        KernelError: it is narrower than one.
    """
    if vector_bytes < element_bytes:
        raise KernelError(
            f"{kernel}: vectors of {vector_bytes} bytes hold no element of {element_bytes}: use --vector-bytes "
            f"{element_bytes} or more"
        )


def check_grid(kernel: str, num_x: int, num_y: int = 1, *, use: str) -> None:
    """Refuse a grid that CUDA cannot launch; ``use`` says what would do.

    Raises:
        KernelError: too many CTAs along an axis.
    """
    for axis, num, most in (("x", num_x, MAX_GRID_X), ("y", num_y, MAX_GRID_Y)):
        if num > most:
            raise KernelError(f"{kernel}: the grid would have {num} CTAs along {axis}, CUDA takes {most}: {use}")


# ---------------------------------------------------------------------------------------------- accesses


@lru_cache(maxsize=4096)
def lanes_access(first_byte: int, num_threads: int, access_bytes: int, stride_bytes: int) -> AccessPattern:
    """One load or store of each of ``num_threads`` neighbouring threads, thread i at ``first_byte + i * stride_bytes``.

    >>> lanes_access(0, 256, 16, 16)
    AccessPattern(num_requests=8, num_sectors=128, num_lines=32, num_wavefronts=32, num_bytes=4096)
    >>> lanes_access(0, 40, 4, 8).num_sectors
    10
    """
    if not num_threads:
        return AccessPattern()
    num_warps = ceil_div(num_threads, WARP_SIZE)
    lanes = np.arange(num_warps * WARP_SIZE, dtype=np.int64).reshape(num_warps, WARP_SIZE)
    first = first_byte % LINE_BYTES  # sectors, lines and banks repeat with lines
    return global_access(first + np.where(lanes < num_threads, lanes, 0) * stride_bytes, access_bytes, lanes < num_threads)


def dense_access(first_byte: int, num_threads: int, access_bytes: int) -> AccessPattern:
    """The same where each thread's bytes follow those of the one before it."""
    return lanes_access(first_byte % LINE_BYTES, num_threads, access_bytes, access_bytes)


@lru_cache(maxsize=1024)
def passes(
    first_byte: int, num_accesses: int, threads: int, access_bytes: int, stride_bytes: int = 0
) -> tuple[AccessPattern, ...]:
    """``num_accesses`` side by side, taken by the threads of a CTA: thread t takes t, t + threads, ..., one a pass.

    ``stride_bytes`` lie between the beginnings of neighbours (0: none is left out). Passes in which nobody takes any are
    left out.

    >>> [item.num_bytes for item in passes(0, 600, 256, 4)]
    [1024, 1024, 352]
    """
    stride = stride_bytes or access_bytes
    return tuple(
        lanes_access((first_byte + begin * stride) % LINE_BYTES, min(threads, num_accesses - begin), access_bytes, stride)
        for begin in range(0, num_accesses, threads)
    )


def total(accesses: Iterable[AccessPattern]) -> AccessPattern:
    """All of them as one: what instructions that follow one another ask for together."""
    return reduce(add, accesses, AccessPattern())


@lru_cache(maxsize=1024)
def all_passes(
    first_byte: int, num_accesses: int, threads: int, access_bytes: int, stride_bytes: int = 0
) -> AccessPattern:
    """What :func:`passes` ask for together."""
    return total(passes(first_byte, num_accesses, threads, access_bytes, stride_bytes))


# ---------------------------------------------------------------------------------------------- tiles of a matrix


@lru_cache(maxsize=64)
def tile_lanes(num_rows: int, row_accesses: int, threads: int) -> tuple[IntArray, IntArray]:
    """Which access of a tile each thread takes, row by row: thread t takes t, t + threads, ..., one a pass.

    Rows of the tile, and accesses of a row, each int64[passes, warps, 32]; rows from ``num_rows`` on are no accesses.

    >>> rows, columns = tile_lanes(32, 32, 256)
    >>> rows.shape, int(rows[1, 0, 5]), int(columns[1, 0, 5])
    ((4, 8, 32), 8, 5)
    """
    num_passes = ceil_div(num_rows * row_accesses, threads)
    taken = np.arange(num_passes * threads, dtype=np.int64).reshape(num_passes, threads // WARP_SIZE, WARP_SIZE)
    rows, columns = np.divmod(taken, row_accesses)
    return np.asarray(rows), np.asarray(columns)


def global_passes(addresses: IntArray, access_bytes: int, active: NDArray[np.bool_]) -> tuple[AccessPattern, ...]:
    """What each pass asks of global memory: ``addresses`` and ``active`` are of shape [passes, warps, 32]."""
    return tuple(
        global_access(np.where(mask, of_pass, 0), access_bytes, mask)
        for of_pass, mask in zip(addresses, active, strict=True)
    )


def shared_passes(op: str, offsets: IntArray, active: NDArray[np.bool_]) -> tuple[AccessPattern, ...]:
    """What each pass asks of shared memory by ``op``, a name of ``SMEM_OPS``, bank conflicts and all."""
    access_bytes = smem_op(op).access_bytes
    return tuple(
        AccessPattern(
            num_requests=int(mask.any(axis=-1).sum()),
            num_wavefronts=int(data_wavefronts(op, np.where(mask, of_pass, 0), mask).sum()),
            num_bytes=access_bytes * int(mask.sum()),
        )
        for of_pass, mask in zip(offsets, active, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TileGrid:
    """A matrix cut into tiles, one a CTA: along its rows first, as blockIdx.x goes; those at the edges hang over."""

    num_rows: int
    num_columns: int
    tile_rows: int
    tile_columns: int

    @property
    def num_x(self) -> int:
        """Tiles side by side."""
        return ceil_div(self.num_columns, self.tile_columns)

    @property
    def num_y(self) -> int:
        """Rows of tiles."""
        return ceil_div(self.num_rows, self.tile_rows)

    @property
    def num_tiles(self) -> int:
        """All of them."""
        return self.num_x * self.num_y

    def origin(self, tile: int) -> tuple[int, int]:
        """(row, column) of the matrix where a tile begins."""
        y, x = divmod(tile, self.num_x)
        return y * self.tile_rows, x * self.tile_columns

    def extent(self, tile: int) -> tuple[int, int]:
        """(rows, columns) of it that lie inside."""
        row, column = self.origin(tile)
        return min(self.tile_rows, self.num_rows - row), min(self.tile_columns, self.num_columns - column)

    def tells_extents(self) -> bool:
        """Whether tiles of as many elements have the same rows and columns: those at the two edges may differ.

        >>> [TileGrid(num_rows=72, num_columns=num, tile_rows=32, tile_columns=32).tells_extents() for num in (72, 80, 64)]
        [False, True, True]
        """
        rows, columns = self.extent(self.num_tiles - 1)
        has_two_edges = rows < self.tile_rows and columns < self.tile_columns
        is_alone = self.num_x == 1 or self.num_y == 1
        return is_alone or not has_two_edges or rows * self.tile_columns != self.tile_rows * columns

    def footprint(
        self, tensor: str, access: Literal["read", "write"], *, element_bytes: int, num_steps: int = 1
    ) -> Footprint:
        """Each CTA touches its tile, as far as it lies inside."""

        def panel_bytes(tiles: IntArray) -> IntArray:
            y, x = np.divmod(tiles, self.num_x)
            rows = np.minimum(self.tile_rows, self.num_rows - y * self.tile_rows)
            columns = np.minimum(self.tile_columns, self.num_columns - x * self.tile_columns)
            return np.asarray(rows * columns * element_bytes)

        return Footprint(tensor=tensor, access=access, panel_of=same, panel_bytes=panel_bytes, num_steps=num_steps)


# ---------------------------------------------------------------------------------------------- footprints


def same(tiles: IntArray) -> IntArray:
    """Each CTA has a panel of its own."""
    return tiles


def share_footprint(
    tensor: str, access: Literal["read", "write"], *, num_bytes: int, share_bytes: int, num_steps: int = 1
) -> Footprint:
    """CTA c touches share c of a tensor of ``num_bytes``: ``share_bytes`` from ``c * share_bytes`` on, the last one less."""

    def panel_bytes(tiles: IntArray) -> IntArray:
        found = np.full(tiles.shape, share_bytes, dtype=np.int64)
        is_cut = np.flatnonzero(tiles >= num_bytes // share_bytes)
        found[is_cut] = np.clip(num_bytes - tiles[is_cut] * share_bytes, 0, share_bytes)
        return found

    return Footprint(tensor=tensor, access=access, panel_of=same, panel_bytes=panel_bytes, num_steps=num_steps)


def whole_footprint(tensor: str, *, num_bytes: int, num_steps: int = 1) -> Footprint:
    """Every CTA reads all of a small tensor (a vector of weights): its one panel, number 0."""
    return Footprint(
        tensor=tensor, access="read", panel_of=np.zeros_like, panel_bytes=lambda tiles: np.full_like(tiles, num_bytes),
        num_steps=num_steps,
    )
