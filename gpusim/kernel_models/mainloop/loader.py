"""Copies of operands to shared memory in each k-step: TMA, with multicast in a cluster, cp.async, or LDG and STS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusim.kernel_models.mainloop.l1_copies import copy_access, row_bytes_of, row_parts, store_access
from gpusim.kernel_models.mainloop.operand_data import OperandCopies
from gpusim.kernel_models.mainloop.shape import MAX_STAGES, Coordinates, MainloopShape, OperandGrid, cached_method
from gpusim.kernel_models.streaming import ceil_div
from gpusim.units import LINE_BYTES, SECTOR_BYTES, WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.gmem.line_fetches import CHUNK_BYTES, Fetches, fetches, num_passes, row_fetches
from gpusim.workload.operands import cp_async_fill
from gpusim.workload.ops import Op
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.tma.boxes import TmaBox, outside_rows

OPERANDS = (("A", "a"), ("B", "b"))
"""Names of each operand: (tensor, buffer)."""

def slot(step: int, stage: int) -> int:
    """Key in a panel of the copy of k-step ``step`` to ``stage``."""
    return step * MAX_STAGES + stage


NARROW_FETCH_BYTES = 64
"""Bytes that L2 fetches from memory at once for copies of less than 16 bytes, whose rows may be shorter. The toy GPU's L2
fetches fewer. Source: ``l2.fetch_bytes`` of an H200 (kernels/cache_hints)."""


def block_bytes(shape: MainloopShape, which: int) -> int:
    """Minimum bytes that L2 fetches from memory on a miss of a copy of A (0) or B (1); 0: the bytes that are requested."""
    return shape.l2_promotion or (NARROW_FETCH_BYTES if shape.is_through_l1(which) else 0)


class TmaShape(NamedTuple):
    """Common fields of TMA loads with the same rows and the same extent in K that begin at the same offset in a line."""

    num_bytes: int
    num_fetched_bytes: int
    num_rows: int
    num_boxes: int
    num_zero_rows: int
    num_outside_rows: int
    fetches: Fetches | None


class Panel(dict[int, Op]):
    """Copies of one operand's panel, by :func:`slot`. They are created at their first use and shared by all CTAs."""

    def __init__(self, loader: Loader, which: int, at: Coordinates, rank: int) -> None:
        """Copies by the CTA of cluster rank ``rank``, of operand ``which`` (A is 0, B is 1), for the work tile ``at``."""
        super().__init__()
        self._loader = loader
        self._which = which
        self._at = at
        self._by_tma = loader.tma_loads(which, at, rank) if loader.by_tma else None
        self._by_threads = partial(loader.global_load if loader.shape.copy == "ldg" else loader.cp_async, which, at)

    def __missing__(self, key: int) -> Op:
        """Create the copy."""
        step, stage = divmod(key, MAX_STAGES)
        make = self._by_tma
        if make is None:
            make = self._by_threads
        op = self[key] = make(step, stage)
        return op


class Loader:
    """Copies of one kernel. ``num_threads`` threads issue cp.async; one thread issues TMA."""

    def __init__(
        self, shape: MainloopShape, grid: OperandGrid, *, num_threads: int, wide_per_copy: float = 0.0,
        num_between: float = 0.0,
    ) -> None:
        """Copies of the operands of ``grid``'s tiles.

        Args:
            shape: tiles in shared memory.
            grid: tiles in the matrices.
            num_threads: threads that issue cp.async.
            wide_per_copy: IMAD.WIDE for the address of a cp.async.
            num_between: other address instructions for each cp.async.
        """
        self.shape, self.grid = shape, grid
        self.by_tma = shape.by_tma
        self._data = OperandCopies(shape, grid, num_threads)
        self._num_threads, self._wide_per_copy, self._num_between = num_threads, wide_per_copy, num_between
        self._panels: dict[tuple[int, int, int], Panel] = {}
        self._shapes: dict[tuple[int, int, int, int], TmaShape] = {}
        self._width, self._tile, self._k_major = shape.element.num_bytes, shape.tile, shape.are_k_major
        self._blocks = block_bytes(shape, 0), block_bytes(shape, 1)
        self._pitches = tuple(
            shape.pitch_bytes(grid.extents[2 if is_k_major else which]) for which, is_k_major in enumerate(self._k_major)
        )
        """Bytes from row to row of A and of B in global memory."""

    @cached_property
    def stage_bytes(self) -> int:
        """Bytes of A and B in one stage: the transaction count of its mbarrier."""
        return sum(operand.num_bytes for operand in self.shape.operands)

    def panels(self, at: Coordinates, rank: int) -> tuple[Panel, Panel]:
        """Panels of A and B that the CTA of cluster rank ``rank`` loads for the work tile ``at``."""
        return self._panel(0, at, rank), self._panel(1, at, rank)

    def _panel(self, which: int, at: Coordinates, rank: int) -> Panel:
        key = (which, self.grid.panel(which, at), rank)
        panel = self._panels.get(key)
        if panel is None:
            panel = self._panels[key] = Panel(self, which, at, rank)
        return panel

    def k_extent(self, part: int, step: int) -> int:
        """Elements of K inside of the matrices in k-step ``step`` of part ``part``, at least one."""
        begin = (self.grid.first_k_step(part) + step) * self._tile[2]
        return max(1, min(self._tile[2], self.grid.extents[2] - begin))

    # -------------------------------------------------------------------------------------- clusters
    @cached_property
    def _peers(self) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]:
        """For each rank, the ranks that share its A (same rows) and its B (same columns); itself where nothing is shared."""
        ranks_m, ranks_n = self.shape.cluster
        ranks = range(ranks_m * ranks_n)
        same_a = {rank: tuple(ranks[rank % ranks_m :: ranks_m]) for rank in ranks}
        same_b = {rank: tuple(ranks[rank // ranks_m * ranks_m :][:ranks_m]) for rank in ranks}
        alone: dict[int, tuple[int, ...]] = {rank: (rank,) for rank in ranks}
        is_shared = [self.shape.num_sharing(which) == self.shape.cluster[1 - which] for which in (0, 1)]
        return same_a if is_shared[0] else alone, same_b if is_shared[1] else alone

    def feeders(self, rank: int) -> tuple[int, ...]:
        """Ranks whose producers write to the CTA of ``rank``, and therefore wait for its stages."""
        same_a, same_b = self._peers
        return tuple(sorted(set(same_a[rank]) | set(same_b[rank])))

    # -------------------------------------------------------------------------------------- copies
    @cached_property
    def _boxes(self) -> tuple[tuple[TmaBox, ...], tuple[TmaBox, ...]]:
        """TMA boxes of A and of B that one CTA loads."""
        return self.shape.boxes(0, self.shape.num_sharing(0)), self.shape.boxes(1, self.shape.num_sharing(1))

    def tma_loads(self, which: int, at: Coordinates, rank: int) -> Callable[[int, int], Op]:
        """Function from (k-step, stage) to the TMA load of a panel. Parts that all loads share are computed once."""
        grid, (tensor, buffer) = self.grid, OPERANDS[which]
        receivers = self._peers[which][rank]
        num_ctas, part = len(receivers), receivers.index(rank)
        multicast, panel = receivers if num_ctas > 1 else (), grid.panel(which, at)
        rows = grid.rows_inside(which, at[which])
        parts_k = num_ctas > 1 and self.shape.slices_k(which, num_ctas)
        if num_ctas > 1 and not parts_k:
            rows = _within(rows, self._tile[which] // num_ctas, part)
        comes_alone = parts_k or not self._k_major[which] or self._blocks[which] < self._tile[2] * self._width
        begin, tile_k, k = grid.first_k_step(at.part) * self._tile[2], self._tile[2], grid.extents[2]
        stride = tile_k * (self._width if self._k_major[which] else self._pitches[which])
        shapes: dict[tuple[int, int], TmaShape] = {}
        data = partial(self._data.boxes, which, at, part, num_ctas)

        def make(step: int, stage: int) -> Op:
            depth = max(0, min(tile_k, k - begin - step * tile_k))
            if parts_k:
                depth = _within(depth, tile_k // num_ctas, part)
            like = depth, step * stride % LINE_BYTES
            shape = shapes.get(like)
            if shape is None:
                shape = shapes[like] = self._shape(which, at, step, rows, depth)
            new = 1.0 if comes_alone else self._new_fraction(which, at, step, rows)
            along = () if comes_alone or new < 1.0 else self._promoted_tiles(which, at, step)
            return ops.TmaLoad(
                tensor, (panel, step * num_ctas + part), shape.num_bytes, shape.num_fetched_bytes, shape.num_rows, buffer,
                stage, "full", multicast, shape.num_boxes, "evict_normal",
                tuple([(other, each * num_ctas + part) for other, each in along]) if along else (), shape.fetches,
                shape.num_zero_rows, shape.num_outside_rows, new, data=data,
            )

        return make

    def _shape(self, which: int, at: Coordinates, step: int, rows: int, depth: int) -> TmaShape:
        """Common fields of loads with the same rows and the same extent in K."""
        key = which, rows, depth, self._lie(which, at, step, rows, depth)[0]
        shape = self._shapes.get(key)
        if shape is None:
            boxes = self._boxes[which]
            num_zero_rows, num_outside_rows = self._zero_rows(which, boxes, rows, depth)
            shape = self._shapes[key] = TmaShape(
                sum(box.num_bytes for box in boxes), rows * depth * self._width, sum(box.num_rows for box in boxes),
                len(boxes), num_zero_rows, num_outside_rows, self._fetches(which, at, step, rows, depth),
            )
        return shape

    def _zero_rows(self, which: int, boxes: tuple[TmaBox, ...], rows: int, depth: int) -> tuple[int, int]:
        """Rows of ``boxes`` outside of the tensor, and those in boxes that are completely outside.

        ``rows`` rows and ``depth`` elements of K are inside.
        """
        along, across = (depth, rows) if self._k_major[which] else (rows, depth)
        return outside_rows(boxes, across, along)

    def _promoted_tiles(self, which: int, at: Coordinates, step: int) -> tuple[tuple[int, int], ...]:
        """Tiles of the k-steps that L2 fetches from memory together with this one (L2 promotion).

        If L2's fetch covers one k-step only, it is this tile itself, provided that its boxes are narrower than the fetch.
        """
        grid = self.grid
        num = self._blocks[which] // (self._tile[2] * self._width)
        if not num or not self._k_major[which]:
            return ()
        if num < 2:  # a single k-step, of one box or more
            is_several = num == 1 and self.by_tma and self.shape.operands[which].panel_bytes < self.shape.l2_promotion
            return ((grid.panel(which, at), step),) if is_several else ()
        first = grid.first_k_step(at.part)
        begin = (first + step) // num * num - first
        steps = range(max(0, begin), min(begin + num, grid.num_k_steps(at.part)))
        return tuple((grid.panel(which, at), each) for each in steps if each != step)

    def _new_fraction(self, which: int, at: Coordinates, step: int, rows: int) -> float:
        """Fraction of a k-step's ``rows`` that begin a new block of L2's fetch size, if each k-step has such rows.

        The fraction is 1 for the first k-step, which fetches the adjacent bytes. It is also 1 if any k-step has no such
        rows: then all rows begin their blocks together, at every second or fourth k-step, and fetch their neighbours. A last
        k-step with fewer columns, and tiles whose rows begin at another offset, are not modelled.
        """
        grid, block, row_bytes, pitch = self.grid, self._blocks[which], self._tile[2] * self._width, self._pitches[which]
        if not (step and rows and self._k_major[which] and block >= 2 * row_bytes and pitch % block):
            return 1.0
        fractions = self._new_fractions(which, at[which] * self._tile[which], rows)
        return fractions[(grid.first_k_step(at.part) + step) % len(fractions)]

    @cached_method
    def _new_fractions(self, which: int, first: int, rows: int) -> list[float]:
        """Results of :meth:`_new_fraction` for the k-steps of a block, with rows from ``first`` on."""
        block, row_bytes = self._blocks[which], self._tile[2] * self._width
        begins = (first + np.arange(rows)) * self._pitches[which] + np.arange(0, block, row_bytes)[:, None]
        fractions: list[float] = ((begins + row_bytes - 1) // block * block >= begins).mean(axis=1).tolist()
        return fractions if min(fractions) else [1.0] * len(fractions)

    # -------------------------------------------------------------------------------------- rows off a line
    def _fetches(self, which: int, at: Coordinates, step: int, rows: int, depth: int) -> Fetches | None:
        """Fetches of a copy of ``rows`` rows and ``depth`` elements of K; None: only full sectors of full lines."""
        start, pitch, num_rows, row_bytes = self._lie(which, at, step, rows, depth)
        is_shifted = not self.by_tma and self.shape.operands[which].pad_bytes % SECTOR_BYTES
        if self.shape.is_through_l1(which):
            return row_parts(start, pitch, num_rows, row_bytes) if (start | pitch) % SECTOR_BYTES and row_bytes else None
        if not (rows and depth and (start or pitch % LINE_BYTES or is_shifted)):
            return None
        return self._fetched_of(which, start, pitch, num_rows, row_bytes)

    def _lie(self, which: int, at: Coordinates, step: int, rows: int, depth: int) -> tuple[int, int, int, int]:
        """Addresses of a copy's rows: (offset of the first row in its line in bytes, pitch, rows, bytes of a row)."""
        width, pitch, tile = self._width, self._pitches[which], self._tile
        first, k = at[which] * tile[which], (self.grid.first_k_step(at.part) + step) * tile[2]
        along, across = ((k, depth), (first, rows)) if self._k_major[which] else ((first, rows), (k, depth))
        return (across[0] * pitch + along[0] * width) % LINE_BYTES, pitch, across[1], along[1] * width

    @cached_method
    def _fetched_of(self, which: int, start: int, pitch: int, num_rows: int, row_bytes: int) -> Fetches | None:
        """Fetches of rows of ``row_bytes`` with a pitch of ``pitch`` bytes. The first begins ``start`` bytes into a line."""
        operand = self.shape.operands[which]
        if row_bytes % CHUNK_BYTES or (pitch | start) % CHUNK_BYTES:
            return None  # a last row or column that is no multiple of 16 bytes
        row, byte = np.meshgrid(np.arange(num_rows), np.arange(0, row_bytes, CHUNK_BYTES), indexing="ij")
        sources, destinations = start + row * pitch + byte, operand.byte_offsets(row, byte)
        if self.by_tma:  # a box for each panel, whose rows are requested one by one
            width = operand.panel_bytes
            parts = [
                row_fetches(sources[:, at // CHUNK_BYTES], min(width, row_bytes - at)) for at in range(0, row_bytes, width)
            ]
            return sum(parts, Fetches())
        return fetches(*_by_lanes(sources, destinations))

    def _num_passes(self, which: int, at: Coordinates, step: int, rows: int, depth: int) -> int:
        """Passes of a copy's rows through the copy stage that bypasses L1; 0 if the copy does not bypass L1."""
        start, pitch, num_rows, row_bytes = self._lie(which, at, step, rows, depth)
        is_around_l1 = not (row_bytes % CHUNK_BYTES or (pitch | start) % CHUNK_BYTES or self.shape.is_through_l1(which))
        if not (rows and depth and is_around_l1):
            return 0
        return self._passes_of(which, start, pitch, num_rows, row_bytes)

    @cached_method
    def _passes_of(self, which: int, start: int, pitch: int, num_rows: int, row_bytes: int) -> int:
        """Passes of rows, see :meth:`_fetched_of`."""
        row, byte = np.meshgrid(np.arange(num_rows), np.arange(0, row_bytes, CHUNK_BYTES), indexing="ij")
        destinations = self.shape.operands[which].byte_offsets(row, byte)
        return num_passes(*_by_lanes(start + row * pitch + byte, destinations))

    @cached_property
    def _fills(self) -> tuple[AccessPattern, AccessPattern]:
        """Access patterns of the cp.async that fill a stage of A and of B."""
        return self._fill(0), self._fill(1)

    @property
    def copies_per_warp(self) -> float:
        """Number of ``cp.async`` of a warp in a k-step."""
        return sum(fill.num_requests for fill in self._fills) / (self._num_threads / WARP_SIZE)

    @cached_property
    def addresses(self) -> tuple[Op | None, Op | None]:
        """IMAD.WIDE for the addresses of a k-step's cp.async of A and of B; None if there are none."""
        each, num_warps = self._wide_per_copy, self._num_threads / WARP_SIZE
        if not each:
            return None, None
        of_a, of_b = (
            ops.ImadWide(each * fill.num_requests / num_warps, is_interleaved=True, sets_pace=True) for fill in self._fills
        )
        return of_a, of_b

    def _fill(self, which: int) -> AccessPattern:
        operand = self.shape.operands[which]
        if not self.shape.is_through_l1(which):
            return cp_async_fill(operand, self._num_threads)
        return self._through_l1(which, 0, ceil_div(row_bytes_of(self.shape, which), LINE_BYTES) * LINE_BYTES)

    def _through_l1(self, which: int, start: int, pitch: int) -> AccessPattern:
        """Access pattern of copies through L1. Rows have ``pitch`` bytes; the first begins ``start`` bytes into a line."""
        # from this pitch on rows share no line
        unshared = ceil_div(row_bytes_of(self.shape, which) + LINE_BYTES, LINE_BYTES) * LINE_BYTES
        return self._copy_access(which, start % LINE_BYTES, min(pitch, unshared + pitch % LINE_BYTES))

    @cached_method
    def _copy_access(self, which: int, start: int, pitch: int) -> AccessPattern:
        return copy_access(self.shape, which, start, pitch)

    @cached_method
    def shared_store(self, which: int, stage: int) -> Op:
        """STS of what LDG loaded of an operand."""
        data = partial(self._data.store, which)
        return ops.SharedStore(store_access(self.shape, which), OPERANDS[which][1], stage, data=data)

    def cp_async(self, which: int, at: Coordinates, step: int, stage: int) -> Op:
        """The cp.async of a k-step of an operand to a stage."""
        grid, (tensor, buffer) = self.grid, OPERANDS[which]
        rows, depth, across, fill = self._inside(which, at, step)
        new = self._new_fraction(which, at, step, rows)
        return ops.CpAsync(
            tensor, (grid.panel(which, at), step), fill, buffer, stage, allocates_in_l1=self.shape.is_through_l1(which),
            num_rows=across, num_between=self._num_between,
            promoted_tiles=() if new < 1.0 else self._promoted_tiles(which, at, step),
            new_fraction=new, fetches=self._fetches(which, at, step, rows, depth),
            num_passes=self._num_passes(which, at, step, rows, depth), data=partial(self._data.copy, which, at, step),
        )

    def global_load(self, which: int, at: Coordinates, step: int, stage: int) -> Op:
        """The LDG of a k-step of an operand, whose data :meth:`shared_store` writes to any stage."""
        del stage
        access, data = self._inside(which, at, step)[3], partial(self._data.load, which, at, step)
        return ops.GlobalLoad(OPERANDS[which][0], (self.grid.panel(which, at), step), access, data=data)

    def _inside(self, which: int, at: Coordinates, step: int) -> tuple[int, int, int, AccessPattern]:
        """(rows, elements of K, rows in global memory) of a k-step inside of the matrix, and the access pattern."""
        rows, depth, fill = self.grid.rows_inside(which, at[which]), self.k_extent(at.part, step), self._fills[which]
        if self.shape.is_through_l1(which) and rows and depth:
            start, pitch, *_ = self._lie(which, at, step, rows, depth)
            fill = self._through_l1(which, start, pitch)
        is_k_major = self._k_major[which]
        along, across = (depth, rows) if is_k_major else (rows, depth)
        if rows < self._tile[which] or depth < self._tile[2]:  # predicated: elements outside of the matrix are zeroed
            row_bytes = along * self._width
            share = rows * depth / (self._tile[which] * self._tile[2])
            fill = replace(
                fill, num_sectors=across * ceil_div(row_bytes, SECTOR_BYTES),
                num_lines=round(fill.num_lines * share), num_bytes=across * row_bytes,
            )
        return rows, depth, across, fill


def _by_lanes(
    sources: NDArray[np.int64], destinations: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Consecutive chunks by lane, int[warps, 32], and the active lanes."""
    chunk = np.arange(ceil_div(sources.size, WARP_SIZE) * WARP_SIZE).reshape(-1, WARP_SIZE)
    active = chunk < sources.size
    chunk = np.where(active, chunk, 0)
    return sources.reshape(-1)[chunk], destinations.reshape(-1)[chunk], active


def _within(extent: int, slice_extent: int, part: int) -> int:
    """Elements of ``extent`` that are in slice ``part``."""
    return max(0, min(slice_extent, extent - part * slice_extent))
