"""A warp's access to a tile in shared memory: the instruction, the coordinates of its lanes, and their byte addresses.

In: a tile (layout, swizzle, element type), an instruction of ``smem_ops.SMEM_OPS``, coordinates of lanes. Out: addresses.
The module ``banks`` counts their wavefronts.

Source: PTX ISA, ``ldmatrix``: the fragments of A.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LayoutError
from gpusim.layout import ByteLayout, ComposedLayout, Layout, Swizzle, make_layout, product_each
from gpusim.layout.int_tuple import product, show
from gpusim.units import WARP_SIZE
from gpusim.workload.dtypes import DType
from gpusim.workload.smem.smem_ops import MATRIX_ROWS, SmemOp, smem_op

MAX_TILE_BYTES: Final = 256 * 1024
"""Bytes of the largest tile: more than the shared memory of any SM (228 KiB on compute capability 9.0 and 10.0)."""
MAX_THREADS: Final = 1024
"""Maximum number of lanes in ``threads``: the threads of the largest CTA."""
MAX_COUNTED: Final = 16384
"""Maximum number of instructions that a census counts. If there are more, it counts those at the nearest positions."""

Place = tuple[int, int]
"""Coordinate in a tile: (mode 0, mode 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TileAccess:
    """A warp instruction at one position of a tile in shared memory.

    * ``op``: name of the instruction in ``SMEM_OPS``.
    * ``tile``: a layout with two modes. Its byte addresses are relative to a start that is aligned to the swizzle's period.
    * ``threads``: layout from lanes to their first elements, relative to ``at``; None: the default of ``lane_places``.
      Values are colexicographical indices in the tile. If the strides are bases, values are coordinates. A nested basis, for
      example 1@1@0, counts along that part of a mode. Indices from 32 on are lanes of further instructions or warps: (lane,
      instruction) is a layout of shape (32, n).
    * ``at``: coordinate at which the access starts.
    * ``sources``: for cp.async, layout from the same lanes to the elements of global memory that they read; None: adjacent.

    >>> from gpusim.workload.dtypes import BF16
    >>> access = TileAccess(op="ldmatrix_x4", tile=smem_tile(Layout((64, 64), (64, 1)), BF16))
    >>> access.vector_elements, access.contiguous_mode, access.num_tiles
    (8, 1, 16)

    Raises:
        LayoutError: an unknown instruction, one that does not fit the elements and the layout, or a coordinate outside of
            the tile.
    """

    op: str
    tile: ByteLayout
    threads: Layout | None = None
    at: Place = (0, 0)
    sources: Layout | None = None
    command: ClassVar[str] = "banks"
    """First word of its errors."""

    def __post_init__(self) -> None:
        rule = self.rule
        object.__setattr__(self, "op", rule.name)
        if rule.access_bytes < self.element_bytes:
            moved = f"{rule.access_bytes} byte{'s' if rule.access_bytes > 1 else ''}"
            raise LayoutError(
                f"{self.command}: {self.op} moves {moved}, less than an element of {self.element_bytes} bytes: "
                f"use an access of at least {8 * self.element_bytes} bits"
            )
        if self.at[0] < 0 or self.at[1] < 0 or any(a >= n for a, n in zip(self.at, self.extents, strict=True)):
            raise LayoutError(
                f"{self.command}: the start {show(self.at)} lies outside of a tile of {show(self.extents)}: move it"
            )
        places, active = self.lane_places()
        self._check(places, active)
        if self.sources is not None:
            self._check_sources(self.sources, int(active.sum()))
        low = self.rule.access_bytes - 1
        if (self.tile.swizzle.source_mask | self.tile.swizzle.target_mask) & low:  # it may split vectors at other positions
            self._check_vectors(places + self.tile_origins()[:, None, None, :], active)

    @property
    def rule(self) -> SmemOp:
        """Rule of the instruction."""
        return smem_op(self.op)

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return self.tile.element_bits // 8

    @property
    def vector_elements(self) -> int:
        """Elements that a lane accesses at each address."""
        return self.rule.access_bytes // self.element_bytes

    @property
    def extents(self) -> Place:
        """Number of coordinates in each mode."""
        first, second = product_each(self.tile.shape)
        return first, second

    @property
    def contiguous_mode(self) -> int:
        """Index of the mode that vectors extend along: the one with stride 1, else with the smallest positive stride."""
        steps = [min((d for s, d in self.tile.inner[i].modes if s > 1 and d > 0), default=1 << 62) for i in (0, 1)]
        return 0 if steps[0] < steps[1] else 1

    @property
    def row_pitch(self) -> int | None:
        """Elements from one row to the next, where a row is the full contiguous mode; None if rows interleave."""
        inner, along = self.tile.inner, self.contiguous_mode
        across = [d for s, d in inner[1 - along].modes if s > 1]
        pitch = min(across, default=self.extents[along])
        within = 1 + sum((s - 1) * d for s, d in inner.modes if 0 < d < pitch)
        return pitch if pitch >= within and all(d % pitch == 0 for _, d in inner.modes if d >= pitch) else None

    def lane_places(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Coordinates of each lane's first element, int64[num_instructions, 32, 2], and the active lanes.

        Defaults without ``threads``:

        * ldmatrix, stmatrix: lanes 8i to 8i + 7 give the rows of matrix i. A row extends along the contiguous mode. Matrices
          are ordered like the fragments a0 to a3 of A, along mode 0 first. For 16-bit elements: (0, 0), (8, 0), (0, 8), (8,
          8).
        * all others: lane i accesses the i-th vector along the contiguous mode, row after row.

        Raises:
            LayoutError: ``threads`` is no such layout, leaves the tile, or lacks lanes.
        """
        if self.threads is not None:
            places, active = self._places_of_threads(self.threads)
        else:
            places, active = self._usual_places()[None], np.ones((1, WARP_SIZE), dtype=np.bool_)
        active[:, self.rule.num_lanes :] = False
        return places + np.asarray(self.at), active

    def _usual_places(self) -> NDArray[np.int64]:
        lane, vector, along = np.arange(WARP_SIZE), self.vector_elements, self.contiguous_mode
        places = np.zeros((WARP_SIZE, 2), dtype=np.int64)
        if self.rule.is_collective:
            matrix = lane % self.rule.num_lanes // MATRIX_ROWS
            extents = (vector, MATRIX_ROWS) if along == 0 else (MATRIX_ROWS, vector)
            places[:, 0], places[:, 1] = extents[0] * (matrix % 2), extents[1] * (matrix // 2)
            places[:, 1 - along] += lane % MATRIX_ROWS
            return places
        vectors_per_row = max(1, self.extents[along] // vector)
        if vectors_per_row * self.extents[1 - along] < WARP_SIZE:
            raise LayoutError(
                f"{self.command}: a tile of {show(self.extents)} has fewer than {WARP_SIZE} vectors of {vector} elements "
                f"for {self.op}: use a larger layout, or say with threads which lanes take part"
            )
        places[:, 1 - along], places[:, along] = lane // vectors_per_row, lane % vectors_per_row * vector
        return places

    def _places_of_threads(self, threads: Layout) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        num_threads = threads.size
        if num_threads > MAX_THREADS:
            raise LayoutError(f"{self.command}: threads {threads} has {num_threads} lanes: use at most {MAX_THREADS}")
        if self.rule.is_collective and num_threads % WARP_SIZE and num_threads != self.rule.num_lanes:
            raise LayoutError(
                f"{self.command}: {self.op} reads the addresses of {self.rule.num_lanes} lanes, threads {threads} has "
                f"{num_threads}: use a layout of {' or '.join(map(str, sorted({self.rule.num_lanes, WARP_SIZE})))} lanes"
            )
        num_warps = -(-num_threads // WARP_SIZE)
        places = np.zeros((num_warps * WARP_SIZE, 2), dtype=np.int64)
        if threads.has_basis:
            places[:num_threads] = [self._place(threads(thread), threads) for thread in range(num_threads)]
        else:
            places[:num_threads] = self._places_of_indices(np.asarray(threads(np.arange(num_threads))), threads)
        active = np.arange(num_warps * WARP_SIZE) < num_threads
        return places.reshape(-1, WARP_SIZE, 2), active.reshape(-1, WARP_SIZE)

    def _places_of_indices(self, indices: NDArray[np.int64], threads: Layout) -> NDArray[np.int64]:
        outside = indices[(indices < 0) | (indices >= self.tile.size)]
        if len(outside):
            raise LayoutError(
                f"{self.command}: threads {threads} reaches index {outside[0]} of a tile of {self.tile.size} elements: "
                "use a layout that stays inside"
            )
        return np.stack([indices % self.extents[0], indices // self.extents[0]], axis=-1)

    def _place(self, where: Any, threads: Layout) -> Place:
        where = where if isinstance(where, tuple) else (where,)
        if len(where) > 2:
            raise LayoutError(
                f"{self.command}: threads {threads} gives coordinates like {show(where)}: use those of two modes"
            )
        try:
            first, second = (_index_in(part, self.tile.inner[i].shape) for i, part in enumerate((*where, 0)[:2]))
        except LayoutError as error:
            raise LayoutError(f"{self.command}: threads {threads} gives {show(where)}, which {error}") from None
        return first, second

    def _check(self, places: NDArray[np.int64], active: NDArray[np.bool_]) -> None:
        """Refuse coordinates outside of the tile, vectors that are not contiguous, and misaligned addresses."""
        last = places.copy()
        last[..., self.contiguous_mode] += self.vector_elements - 1
        outside = active & ((places < 0) | (last >= np.asarray(self.extents))).any(axis=-1)
        if outside.any():
            instruction, lane = (int(i) for i in np.argwhere(outside)[0])
            first = tuple(int(c) for c in places[instruction, lane])
            raise LayoutError(
                f"{self.command}: lane {lane} of {self.op} wants {self.vector_elements} elements from {show(first)} on, "
                f"outside of a tile of {show(self.extents)}: use a larger layout or another start"
            )
        self._check_vectors(places, active)

    def _check_sources(self, sources: Layout, num_lanes: int) -> None:
        """Refuse sources of other instructions than cp.async, of other lanes, or that are no elements."""
        if not self.op.startswith("cp_async"):
            raise LayoutError(f"{self.command}: {self.op} is given sources, which only cp.async has: leave them out")
        if sources.size != num_lanes or sources.has_basis:
            raise LayoutError(f"{self.command}: sources {sources} are no elements of {num_lanes} lanes: use one for each")

    def source_addresses(self) -> NDArray[np.int64] | None:
        """Byte addresses in global memory that cp.async reads, int64[num_instructions, 32]; None without ``sources``."""
        if self.sources is None:
            return None
        found = np.asarray(self.sources(np.arange(self.sources.size)), dtype=np.int64) * self.element_bytes
        return np.pad(found, (0, -len(found) % WARP_SIZE)).reshape(-1, WARP_SIZE)

    def _check_vectors(self, places: NDArray[np.int64], active: NDArray[np.bool_]) -> None:
        """Refuse vectors that are not contiguous, and misaligned addresses."""
        first_bytes = self.addresses_at(places)
        torn = np.zeros(first_bytes.shape, dtype=np.bool_)
        for i in range(1, self.vector_elements):
            following = places.copy()
            following[..., self.contiguous_mode] += i
            torn |= self.addresses_at(following) != first_bytes + i * self.element_bytes
        plain = replace(self.tile, swizzle=Swizzle(0, 4, 3))
        plain_bytes = np.asarray(plain((places[..., 0], places[..., 1])), dtype=np.int64)
        bad = active & (torn | (first_bytes % self.rule.access_bytes != 0) | (plain_bytes % self.rule.access_bytes != 0))
        if bad.any():
            where = tuple(np.argwhere(bad)[0])
            is_torn = bool(torn[where])
            self._refuse_vector(places[where], int(where[-1]), int(plain_bytes[where]), is_torn=is_torn)

    def _refuse_vector(self, place: NDArray[np.int64], lane: int, address: int, *, is_torn: bool) -> None:
        what = f"lane {lane} of {self.op} wants {self.vector_elements} elements from {show(tuple(map(int, place)))} on"
        num_bytes = self.rule.access_bytes
        if not is_torn:
            why, fix = f"at byte {address}, which is no multiple of {num_bytes}", "an aligned row pitch and start"
        elif self.tile.swizzle.num_bits:
            elements = in_elements(self.tile)
            is_given_twice = elements is None or self.element_bytes == 1
            why = f"which {'' if is_given_twice else f'{elements} in elements, '}{self.tile.swizzle} in bytes tears apart"
            least = f"M >= {log2(num_bytes)} in bytes"
            if self.element_bytes > 1:
                least = f"M >= {log2(self.vector_elements)} in elements, that is {least}"
            fix = f"a swizzle that keeps {num_bytes} bytes whole: {least}"
        else:
            why, fix = "which do not follow one another", "a layout with a mode of stride 1, or a narrower access"
        raise LayoutError(f"{self.command}: {what}, {why}: use {fix}")

    def addresses_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Byte addresses of coordinates: int64[...] for int64[..., 2]."""
        return np.asarray(self.tile((places[..., 0], places[..., 1])), dtype=np.int64)

    def addresses(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Byte addresses of the access, int64[num_instructions, 32], and the active lanes."""
        places, active = self.lane_places()
        return np.where(active, self.addresses_at(places), 0), active

    def tile_origins(self) -> NDArray[np.int64]:
        """Shifts of the access to adjacent positions in the tile, int64[num_tiles, 2], the nearest first.

        Positions are spaced by the bounding box of the access. Positions are omitted where
        the plain layout has vectors that are not contiguous or not aligned. So are the farthest beyond ``MAX_COUNTED``
        instructions.
        """
        shifts, is_aligned = self._shifts()
        return shifts[is_aligned]

    def _shifts(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Shifts to adjacent positions, the nearest first, and whether the vectors of each are contiguous and aligned."""
        places, active = self.lane_places()
        shifts = self._box_shifts(places[active])
        shifts = shifts[np.argsort(np.abs(shifts).sum(axis=-1), kind="stable")][: max(1, MAX_COUNTED // len(places))]
        where = np.where(active[..., None], places, places[active][0]) + shifts[:, None, None, :]
        return shifts, np.all(self._vector_starts()[where[..., 0], where[..., 1]].reshape(len(shifts), -1), axis=-1)

    def _box_shifts(self, taken: NDArray[np.int64]) -> NDArray[np.int64]:
        low, high = taken.min(axis=0), taken.max(axis=0) + 1
        high[self.contiguous_mode] += self.vector_elements - 1
        box = high - low
        steps = [np.arange(-(low[i] // box[i]), (self.extents[i] - high[i]) // box[i] + 1) * box[i] for i in (0, 1)]
        return np.stack(np.meshgrid(*steps, indexing="ij"), axis=-1).reshape(-1, 2)

    def _vector_starts(self) -> NDArray[np.bool_]:
        """bool[extents]: whether a contiguous, aligned vector of the plain layout starts at a coordinate."""
        rows, columns = np.meshgrid(*map(np.arange, self.extents), indexing="ij")
        offsets = np.asarray(self.tile.inner((rows, columns)), dtype=np.int64)
        starts: NDArray[np.bool_] = (offsets + self.tile.offset) * self.element_bytes % self.rule.access_bytes == 0
        along = np.moveaxis(offsets, self.contiguous_mode, 0)
        is_start = np.moveaxis(starts, self.contiguous_mode, 0)
        for i in range(1, self.vector_elements):
            is_start[:-i] &= along[i:] == along[:-i] + i
        is_start[max(0, len(is_start) - self.vector_elements + 1) :] = False
        return starts

    @property
    def num_tiles(self) -> int:
        """Number of positions in the tile at which the access is counted."""
        return len(self.tile_origins())

    @property
    def num_tiles_unaligned(self) -> int:
        """Number of positions that are omitted because vectors there are not contiguous or not aligned."""
        return int((~self._shifts()[1]).sum())

    @property
    def num_tiles_beyond(self) -> int:
        """Number of positions that are omitted because there are more than ``MAX_COUNTED`` instructions."""
        places, active = self.lane_places()
        return len(self._box_shifts(places[active])) - len(self._shifts()[0])


def _index_in(part: Any, shape: Any, *, is_mode: bool = True) -> int:
    """Colexicographical index of a coordinate within a mode's shape. Missing parts of the coordinate count as 0."""
    if isinstance(part, int):
        if not is_mode and not 0 <= part < product(shape):
            raise LayoutError(f"reaches {part} in a part of {product(shape)}: use a layout that stays inside")
        return part
    if not isinstance(shape, tuple) or len(part) > len(shape):
        raise LayoutError(f"has no such part in {show(shape)}: use a coordinate of the tile")
    index, step = 0, 1
    for i, inside in enumerate(shape):
        index += step * (_index_in(part[i], inside, is_mode=False) if i < len(part) else 0)
        step *= product(inside)
    return index


def smem_tile(layout: Layout | ComposedLayout | ByteLayout, dtype: DType, swizzle: Swizzle | None = None) -> ByteLayout:
    """A tile in shared memory as a layout of byte addresses. ``swizzle`` is **in bytes**; only a plain layout may have one.

    >>> from gpusim.workload.dtypes import BF16
    >>> print(smem_tile(ComposedLayout(Swizzle(3, 3, 3), 0, Layout((8, 64), (64, 1))), BF16))
    Sw<3,4,3>_smem_ptr[16b] o (8,64):(64,1)

    Raises:
        LayoutError: two swizzles, other elements, strides that are bases or negative, more modes than two, or a tile that
            no shared memory holds.
    """
    if isinstance(layout, ByteLayout) and layout.element_bits != dtype.bits:
        raise LayoutError(f"banks: {layout} has elements of {layout.element_bits} bits, {dtype.name} {dtype.bits}: use one")
    if not isinstance(layout, Layout) and swizzle is not None:
        raise LayoutError(f"banks: {layout} has a swizzle already, and {swizzle} is given: use one of the two")
    tile = layout.to_bytes(dtype.bits) if isinstance(layout, ComposedLayout) else layout
    if isinstance(tile, Layout):
        tile = ByteLayout(swizzle or Swizzle(0, 4, 3), tile, element_bits=dtype.bits)
    inner = tile.inner
    if inner.has_basis or any(step < 0 for _, step in inner.modes):
        raise LayoutError(f"banks: {inner} has strides that are no offsets in memory: use integers, 0 or more")
    if inner.rank > 2:
        raise LayoutError(f"banks: {inner} has {inner.rank} modes: use two, for example ((8,2),64) for (8,2,64)")
    _refuse_large(tile, dtype)
    return tile if inner.rank == 2 else tile.with_inner(make_layout(Layout(1, 0), inner))


def _refuse_large(tile: ByteLayout, dtype: DType) -> None:
    inner, num_bytes = tile.inner, (tile.offset + tile.inner.cosize) * dtype.num_bytes
    if tile.offset < 0:
        raise LayoutError(f"banks: the tile starts {-tile.offset} elements before its start: use an offset from 0 on")
    if num_bytes > MAX_TILE_BYTES:
        offset = f" from element {tile.offset} on" if tile.offset else ""
        raise LayoutError(
            f"banks: {inner} of {dtype.name}{offset} takes {num_bytes} bytes, more than any SM has: "
            "use the tile of one stage"
        )
    if inner.size > MAX_TILE_BYTES:
        raise LayoutError(
            f"banks: {inner} has {inner.size} coordinates, many to an element: use a tile of at most {MAX_TILE_BYTES}"
        )


def in_elements(tile: ByteLayout) -> Swizzle | None:
    """The tile's swizzle in elements; None if it moves parts of an element.

    >>> print(in_elements(ByteLayout(Swizzle(3, 4, 3), Layout(64), element_bits=16)))
    Sw<3,3,3>
    """
    try:
        return tile.swizzle.to_units(tile.element_bits // 8)
    except LayoutError:  # it moves parts of an element
        return None


def log2(power: int) -> int:
    """Logarithm of a power of two."""
    return power.bit_length() - 1
