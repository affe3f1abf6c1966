"""Common parts of memory-bound kernels: a grid of equal CTAs, the vectors of their threads, and footprints.

Tensors begin at multiples of 256 bytes, like those of ``cudaMalloc``, so offsets from their start are equivalent to
addresses. A tensor is divided into contiguous *shares*, one for each CTA. Share c is panel c of the tensor. Accesses are
computed once for each kind of CTA (all full CTAs have the same) and then looked up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import add
from typing import Annotated, Any, Literal

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
"""Maximum CTAs of a grid along y; ``MAX_GRID_X``: along x. Source: CUDA C++ Programming Guide, technical specifications."""

Elements = Annotated[int, Field(ge=1, le=MAX_ELEMENTS)]
MAX_THREADS = 1024
"""Maximum threads of a CTA."""
Threads = Annotated[int, Field(ge=WARP_SIZE, le=MAX_THREADS, multiple_of=WARP_SIZE)]
VectorBytes = Literal[2, 4, 8, 16]


class StreamParams(KernelParams):
    """Common parameters: the element type, and the threads of a CTA."""

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
    """Refuse a vector that is narrower than an element.

    Raises:
        KernelError: it is narrower than an element.
    """
    if vector_bytes < element_bytes:
        raise KernelError(
            f"{kernel}: vectors of {vector_bytes} bytes hold no element of {element_bytes}: use --vector-bytes "
            f"{element_bytes} or more"
        )


def check_grid(kernel: str, num_x: int, num_y: int = 1, *, use: str) -> None:
    """Refuse a grid that CUDA cannot launch. ``use``: advice for the error.

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
    """One load or store of each of ``num_threads`` threads, whose bytes are contiguous."""
    return lanes_access(first_byte % LINE_BYTES, num_threads, access_bytes, access_bytes)


@lru_cache(maxsize=1024)
def passes(
    first_byte: int, num_accesses: int, threads: int, access_bytes: int, stride_bytes: int = 0
) -> tuple[AccessPattern, ...]:
    """Access patterns of ``num_accesses`` accesses by the threads of a CTA: thread t has t, t + threads, ..., one a pass.

    ``stride_bytes``: bytes from one access to the next; 0: they are contiguous. Passes without any access are omitted.

    >>> [item.num_bytes for item in passes(0, 600, 256, 4)]
    [1024, 1024, 352]
    """
    stride = stride_bytes or access_bytes
    return tuple(
        lanes_access((first_byte + begin * stride) % LINE_BYTES, min(threads, num_accesses - begin), access_bytes, stride)
        for begin in range(0, num_accesses, threads)
    )


def total(accesses: Iterable[AccessPattern]) -> AccessPattern:
    """The sum of access patterns: consecutive instructions as one op."""
    return reduce(add, accesses, AccessPattern())


@lru_cache(maxsize=1024)
def all_passes(first_byte: int, num_accesses: int, threads: int, access_bytes: int, stride_bytes: int = 0) -> AccessPattern:
    """The sum of :func:`passes`."""
    return total(passes(first_byte, num_accesses, threads, access_bytes, stride_bytes))


# ---------------------------------------------------------------------------------------------- tiles of a matrix
@lru_cache(maxsize=64)
def tile_lanes(num_rows: int, row_accesses: int, threads: int) -> tuple[IntArray, IntArray]:
    """Accesses of a tile by thread, row by row: thread t has t, t + threads, ..., one a pass.

    Rows of the tile, and accesses of a row, each int64[passes, warps, 32]. Rows from ``num_rows`` on are no accesses.

    >>> rows, columns = tile_lanes(32, 32, 256)
    >>> rows.shape, int(rows[1, 0, 5]), int(columns[1, 0, 5])
    ((4, 8, 32), 8, 5)
    """
    num_passes = ceil_div(num_rows * row_accesses, threads)
    taken = np.arange(num_passes * threads, dtype=np.int64).reshape(num_passes, threads // WARP_SIZE, WARP_SIZE)
    rows, columns = np.divmod(taken, row_accesses)
    return np.asarray(rows), np.asarray(columns)


def global_passes(addresses: IntArray, access_bytes: int, active: NDArray[np.bool_]) -> tuple[AccessPattern, ...]:
    """Access patterns of each pass in global memory. ``addresses`` and ``active`` have the shape [passes, warps, 32]."""
    return tuple(
        global_access(np.where(mask, of_pass, 0), access_bytes, mask)
        for of_pass, mask in zip(addresses, active, strict=True)
    )


def shared_passes(op: str, offsets: IntArray, active: NDArray[np.bool_]) -> tuple[AccessPattern, ...]:
    """Access patterns of each pass in shared memory by ``op``, a name of ``SMEM_OPS``, with bank conflicts."""
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
    """A matrix divided into tiles, one a CTA, in the order of CTAs: tiles of a row first, or of a column (``is_along_m``).

    Edge tiles extend beyond the matrix.
    """

    num_rows: int
    num_columns: int
    tile_rows: int
    tile_columns: int
    is_along_m: bool = False

    @property
    def num_x(self) -> int:
        """Number of tiles in a row of tiles."""
        return ceil_div(self.num_columns, self.tile_columns)

    @property
    def num_y(self) -> int:
        """Number of rows of tiles."""
        return ceil_div(self.num_rows, self.tile_rows)

    @property
    def num_tiles(self) -> int:
        """Number of tiles."""
        return self.num_x * self.num_y

    def origin(self, tile: int) -> tuple[int, int]:
        """(row, column) of a tile's first element in the matrix."""
        y, x = self._place(tile)
        return y * self.tile_rows, x * self.tile_columns

    def extent(self, tile: int) -> tuple[int, int]:
        """(rows, columns) of a tile inside of the matrix."""
        row, column = self.origin(tile)
        return min(self.tile_rows, self.num_rows - row), min(self.tile_columns, self.num_columns - column)

    def tells_extents(self) -> bool:
        """Whether tiles with the same number of elements have the same rows and columns. Tiles at the two edges may differ.

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
        """Footprint of a tensor in which each CTA accesses its tile, as far as it is inside of the matrix."""

        def panel_bytes(tiles: IntArray) -> IntArray:
            y, x = self._place(tiles)
            rows = np.minimum(self.tile_rows, self.num_rows - y * self.tile_rows)
            columns = np.minimum(self.tile_columns, self.num_columns - x * self.tile_columns)
            return np.asarray(rows * columns * element_bytes)

        piece_bytes = self.tile_columns * element_bytes if self.is_along_m and self.num_x > 1 and self.num_y > 1 else 0
        return Footprint(
            tensor=tensor, access=access, panel_of=same, panel_bytes=panel_bytes, num_steps=num_steps,
            piece_bytes=piece_bytes,
        )  # fmt: skip

    def _place(self, tile: Any) -> tuple[Any, Any]:
        """Row and column of a tile, or of each of an array."""
        if self.is_along_m:
            x, y = divmod(tile, self.num_y)
            return y, x
        y, x = divmod(tile, self.num_x)
        return y, x


# ---------------------------------------------------------------------------------------------- footprints
def same(tiles: IntArray) -> IntArray:
    """The panel of each CTA is its index."""
    return tiles


def share_footprint(
    tensor: str, access: Literal["read", "write"], *, num_bytes: int, share_bytes: int, num_steps: int = 1
) -> Footprint:
    """Footprint in which CTA c accesses share c of a tensor of ``num_bytes``.

    A share has ``share_bytes`` bytes from ``c * share_bytes`` on; the last one may have fewer.
    """

    def panel_bytes(tiles: IntArray) -> IntArray:
        sizes = np.full(tiles.shape, share_bytes, dtype=np.int64)
        is_cut = np.flatnonzero(tiles >= num_bytes // share_bytes)
        sizes[is_cut] = np.clip(num_bytes - tiles[is_cut] * share_bytes, 0, share_bytes)
        return sizes

    return Footprint(tensor=tensor, access=access, panel_of=same, panel_bytes=panel_bytes, num_steps=num_steps)


def whole_footprint(tensor: str, *, num_bytes: int, num_steps: int = 1) -> Footprint:
    """Footprint of a small tensor (a vector of weights) that each CTA reads completely: its single panel 0."""
    return Footprint(
        tensor=tensor, access="read", panel_of=np.zeros_like, panel_bytes=lambda tiles: np.full_like(tiles, num_bytes),
        num_steps=num_steps,
    )
