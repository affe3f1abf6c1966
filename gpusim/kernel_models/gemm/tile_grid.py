"""Grid of work tiles: the tile of each CTA, the panels of A and B that it reads, and the parts inside of the matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LayoutError
from gpusim.kernel_models.gemm.options import GemmOptions
from gpusim.kernel_models.gemm.smem_budget import FMA_PAD, is_transposed
from gpusim.units import LINE_BYTES
from gpusim.workload.gmem.line_fetches import unasked_fraction
from gpusim.workload.launch import Footprint
from gpusim.workload.operands import OperandTile, tma_boxes
from gpusim.workload.smem.smem_ops import MATRIX_ROWS
from gpusim.workload.tma.boxes import MAX_BOX_ELEMENTS, TmaBox

IntArray = NDArray[np.int64]

BLOCK_TILES = 128

MOST_PIECES = 64
"""Maximum pieces of a row that are examined for additional bytes: more than there are offsets in a line."""
TABLE_WAVES = 2
"""Number of waves of clusters whose positions come from ``raster_order``."""

SUM_BYTES = 4
"""Bytes of an fp32 (or int32) partial sum of split-K, and of an element of the bias."""


class Coordinates(NamedTuple):
    """A work tile: its row and column in the grid of tiles, its batch, its part of K."""

    m: int
    n: int
    batch: int
    part: int


def ceil_div(value: int, by: int) -> int:
    """``value / by``, rounded up."""
    return (value + by - 1) // by


@dataclass(frozen=True)
class TilePlan:
    """The grid of tiles of one GEMM, in the order in which CTAs process them."""

    params: GemmOptions

    @property
    def tile(self) -> tuple[int, int, int]:
        """CTA tile M, N, K."""
        assert self.params.tile is not None  # resolved
        return self.params.tile

    @cached_property
    def num_m(self) -> int:
        """Tiles along M, rounded up to full clusters."""
        ranks = self.params.cluster[0]
        return ceil_div(ceil_div(self.params.m, self.tile[0]), ranks) * ranks

    @cached_property
    def num_n(self) -> int:
        """Tiles along N, rounded up to full clusters."""
        ranks = self.params.cluster[1]
        return ceil_div(ceil_div(self.params.n, self.tile[1]), ranks) * ranks

    @cached_property
    def num_tiles(self) -> int:
        """Number of work tiles: tiles of D, times batch, times parts of K."""
        return self.num_m * self.num_n * self.params.batch * self.params.split_k

    # -------------------------------------------------------------------------------------- k-steps

    @cached_property
    def total_k_steps(self) -> int:
        """Number of k-steps of all parts together."""
        return ceil_div(self.params.k, self.tile[2])

    def first_k_step(self, part: int) -> int:
        """First k-step of a part of K. Parts differ by at most one k-step.

        ``first_k_step(split_k)`` is the end.
        """
        return part * self.total_k_steps // self.params.split_k

    def num_k_steps(self, part: int) -> int:
        """Number of k-steps of a part."""
        return self.first_k_step(part + 1) - self.first_k_step(part)

    def k_extent(self, part: int, step: int) -> int:
        """Elements of K inside of the matrices in k-step ``step`` of part ``part``."""
        begin = (self.first_k_step(part) + step) * self.tile[2]
        return max(0, min(self.tile[2], self.params.k - begin))

    # -------------------------------------------------------------------------------------- order of tiles

    def coordinates(self, tile_idx: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """(m, n, batch, part of K) of work tiles, each int64[n].

        A cluster's tiles are consecutive. Bands are ``swizzle_size`` clusters wide and extend in the raster's direction.
        Within a band, tiles are ordered across it first; with ``raster_boustrophedon`` every second band runs backwards.
        Parts of K and batches are the slowest dimensions. With ``raster_order``, it gives the positions of clusters in the
        first two waves.
        """
        params = self.params
        ranks_m, ranks_n = params.cluster
        cluster, rank = np.divmod(tile_idx, ranks_m * ranks_n)
        cluster = self._by_table(cluster)
        clusters_m, clusters_n = self.num_m // ranks_m, self.num_n // ranks_n
        plane, cluster = np.divmod(cluster, clusters_m * clusters_n)
        batch, part = np.divmod(plane, params.split_k)
        if params.raster == "along_n":
            cluster_m, cluster_n = _walk(cluster, clusters_m, clusters_n, params)
        else:
            cluster_n, cluster_m = _walk(cluster, clusters_n, clusters_m, params)
        rank_n, rank_m = np.divmod(rank, ranks_m)
        return cluster_m * ranks_m + rank_m, cluster_n * ranks_n + rank_n, batch, part

    @cached_property
    def _table(self) -> list[int]:
        """Positions of the first clusters in the order; empty if they are in numerical order."""
        text = self.params.raster_order
        return [int(part) for part in text.split(",")] if text != "none" else []

    def _by_table(self, cluster: IntArray) -> IntArray:
        """Positions of clusters in the order."""
        found, size = cluster, len(self._table)
        total = self.num_tiles // math.prod(self.params.cluster)
        for start in range(0, min(TABLE_WAVES * size, total), size) if size else ():
            places = np.argsort(np.argsort(self._table[: total - start]))  # ranks within a wave that is not full
            is_inside = (cluster >= start) & (cluster < start + len(places))
            found = np.where(is_inside, start + places[np.where(is_inside, cluster - start, 0)], found)
        return found

    @cached_property
    def _blocks(self) -> dict[int, list[Coordinates]]:
        """Cache of the coordinates of single tiles, in blocks of ``BLOCK_TILES``."""
        return {}

    def coordinates_of(self, tile: int) -> Coordinates:
        """Coordinates of one work tile."""
        block, within = divmod(tile, BLOCK_TILES)
        known = self._blocks.get(block)
        if known is None:
            tiles = np.arange(block * BLOCK_TILES, (block + 1) * BLOCK_TILES, dtype=np.int64)
            columns = (values.tolist() for values in self.coordinates(tiles))
            known = self._blocks[block] = [Coordinates(*row) for row in zip(*columns, strict=True)]
        return known[within]

    # -------------------------------------------------------------------------------------- operands

    def rows_of_a(self, m: int) -> int:
        """Rows of A's panel inside of the matrix."""
        return max(0, min(self.tile[0], self.params.m - m * self.tile[0]))

    def rows_of_b(self, n: int) -> int:
        """Columns of B's panel inside of the matrix."""
        return max(0, min(self.tile[1], self.params.n - n * self.tile[1]))

    def is_inside(self, at: Coordinates) -> bool:
        """Whether any element of a work tile is inside of D. Tiles that only complete a cluster are not."""
        return self.rows_of_a(at.m) > 0 and self.rows_of_b(at.n) > 0

    def panel(self, which: int, at: Coordinates) -> int:
        """Panel of A (0) or B (1) that a work tile reads."""
        plane = at.batch * self.params.split_k + at.part
        return plane * self.num_m + at.m if which == 0 else plane * self.num_n + at.n

    def panel_of_d(self, at: Coordinates) -> int:
        """Tile of D that a work tile contributes to."""
        return (at.batch * self.num_m + at.m) * self.num_n + at.n

    @cached_property
    def operands(self) -> tuple[OperandTile, OperandTile]:
        """One stage of A, and one of B."""
        return self._operand(0, self.params.is_a_k_major), self._operand(1, self.params.is_b_k_major)

    def _operand(self, which: int, is_k_major: bool) -> OperandTile:
        params = self.params
        assert params.swizzle is not None  # resolved
        if params.math == "fma":  # M and N are contiguous for each k, with any layout in global memory
            pad = FMA_PAD if is_transposed(params, which) else 0
            return OperandTile(
                rows=self.tile[which] + pad, k=self.tile[2], dtype=params.element, is_k_major=False,
                swizzle="none",
            )
        return OperandTile(
            rows=self.tile[which], k=self.tile[2], dtype=params.element, is_k_major=is_k_major,
            swizzle=params.swizzle, is_interleaved=params.swizzle == "none" and params.math == "wgmma", pad=params.pad,
        )

    def can_slice(self, which: int, ways: int) -> bool:
        """Whether :meth:`sliced` can divide an operand."""
        try:
            self.boxes(which, ways)
        except LayoutError:
            return False
        return True

    def boxes(self, which: int, ways: int) -> tuple[TmaBox, ...]:
        """TMA boxes that one of ``ways`` CTAs loads of A or B.

        Parts of a K-major tile may begin within a swizzle's period, because TMA swizzles by address. Source: cuBLAS divides
        tiles of 152, 168 and 248 rows among pairs, with one multicast of each CTA a k-step (SASS).

        Raises:
            LayoutError: the tile cannot be divided into boxes.
        """
        tile = self.operands[which]
        rows = tile.rows // ways
        is_amid = rows % MATRIX_ROWS != 0 and tile.rows % ways == 0 and MATRIX_ROWS < rows <= MAX_BOX_ELEMENTS
        if tile.is_k_major and tile.is_in_panels and is_amid:
            width = tile.panel_bytes // tile.dtype.num_bytes
            box = TmaBox(inner_elements=width, outer=(rows,), dtype=tile.dtype, swizzle=tile.swizzle)
            return (box,) * (tile.contiguous_bytes // tile.panel_bytes)
        return tma_boxes(self.sliced(which, ways))

    def sliced(self, which: int, ways: int) -> OperandTile:
        """Part of A or B that one of ``ways`` CTAs of a cluster loads and multicasts.

        A slice of the rows. If rows are contiguous and a slice of them would be narrower than a panel: a slice of K.

        Raises:
            LayoutError: the tile cannot be divided into boxes.
        """
        tile = self.operands[which]
        if self.slices_k(which, ways):
            return replace(tile, k=_parted(tile.k, ways))
        return replace(tile, rows=_parted(tile.rows, ways))

    def slices_k(self, which: int, ways: int) -> bool:
        """Whether :meth:`sliced` divides K."""
        tile = self.operands[which]
        return not tile.is_k_major and (tile.contiguous_bytes // ways) % tile.panel_bytes != 0

    # -------------------------------------------------------------------------------------- footprints

    def footprints(self, num_math_roles: int) -> tuple[Footprint, ...]:
        """Footprints of the work tiles. ``num_math_roles`` roles increment counters in an in-kernel split-K."""
        params = self.params
        num_steps = ceil_div(self.total_k_steps, params.split_k)
        found = [
            Footprint(
                tensor="A", access="read", panel_of=self._panels_of_a, panel_bytes=self._bytes_of_a,
                num_steps=num_steps, unasked=partial(self.unasked, 0),
            ),
            Footprint(
                tensor="B", access="read", panel_of=self._panels_of_b, panel_bytes=self._bytes_of_b,
                num_steps=num_steps, unasked=partial(self.unasked, 1),
            ),
        ]
        if params.split_k > 1:
            found.append(self._of_d("workspace", "write", SUM_BYTES, of_all_parts=True))
            if params.split_k_mode == "second_kernel":
                return tuple(found)
            found.append(
                Footprint(
                    tensor="counters", access="write", panel_of=self._panels_of_sums,
                    panel_bytes=lambda tiles: SUM_BYTES * num_math_roles * (self._areas(tiles) > 0),
                )
            )
        width = params.out_element.num_bytes
        found.append(self._of_d("D", "write", width))
        if params.beta != 0.0:
            found.append(self._of_d("C", "read", width))
        if params.bias:
            panels, num_bytes = self._panels_of_bias, self._bytes_of_bias
            found.append(Footprint(tensor="bias", access="read", panel_of=panels, panel_bytes=num_bytes))
        return tuple(found)

    def unasked(self, which: int, block_bytes: int) -> float:
        """Fraction of the missed bytes of A or B that no request asked for: see ``Footprint.unasked``.

        TMA's tensor maps promote to full lines, and to neighbouring lines, which are requested.
        """
        params = self.params
        if is_transposed(params, which):
            return 0.0  # through L1
        is_k_major, width = (params.is_a_k_major, params.is_b_k_major)[which], params.element.num_bytes
        extent = params.k if is_k_major else (params.m, params.n)[which]
        along = min(self.tile[2] if is_k_major else self.tile[which], extent) * width
        piece = along
        fetched: int = params.l2_promotion or 0
        if params.copy_ == "tma":
            piece, fetched = min(along, self.operands[which].panel_bytes), fetched or LINE_BYTES
        row_bytes = min(extent * width, MOST_PIECES * piece)
        edges = np.arange(0, row_bytes + along, along)[:, None] + np.arange(0, along, piece)
        begins = np.arange(LINE_BYTES) * extent * width
        edges = np.unique(np.minimum(edges, row_bytes), return_index=True)[0]  # without indices it imports numpy.ma
        return unasked_fraction(begins, edges, min(LINE_BYTES, max(block_bytes, fetched)))

    def _panels_of_a(self, tiles: IntArray) -> IntArray:
        m, _, batch, part = self.coordinates(tiles)
        return (batch * self.params.split_k + part) * self.num_m + m

    def _panels_of_b(self, tiles: IntArray) -> IntArray:
        _, n, batch, part = self.coordinates(tiles)
        return (batch * self.params.split_k + part) * self.num_n + n

    def _panels_of_sums(self, tiles: IntArray) -> IntArray:
        m, n, batch, part = self.coordinates(tiles)
        of_parts = self.params.split_k_mode == "second_kernel"
        plane = batch * self.params.split_k + part if of_parts else batch
        return (plane * self.num_m + m) * self.num_n + n

    def _depths(self, part: IntArray) -> IntArray:
        """Elements of K in parts, int64[n]."""
        steps = [self.first_k_step(idx) for idx in range(self.params.split_k + 1)]
        starts = [min(self.params.k, step * self.tile[2]) for step in steps]
        found: IntArray = np.diff(np.array(starts, dtype=np.int64)).astype(np.int64)
        return found[part]

    def _bytes_of_a(self, tiles: IntArray) -> IntArray:
        m, _, _, part = self.coordinates(tiles)
        rows = np.clip(self.params.m - m * self.tile[0], 0, self.tile[0])
        return np.asarray(rows * self._depths(part) * self.params.element.num_bytes)

    def _bytes_of_b(self, tiles: IntArray) -> IntArray:
        _, n, _, part = self.coordinates(tiles)
        columns = np.clip(self.params.n - n * self.tile[1], 0, self.tile[1])
        return np.asarray(columns * self._depths(part) * self.params.element.num_bytes)

    def _areas(self, tiles: IntArray) -> IntArray:
        """Elements of D inside of the matrix, int64[n]."""
        m, n, _, _ = self.coordinates(tiles)
        rows = np.clip(self.params.m - m * self.tile[0], 0, self.tile[0])
        return np.asarray(rows * np.clip(self.params.n - n * self.tile[1], 0, self.tile[1]))

    def _writes_d(self, tiles: IntArray) -> NDArray[np.bool_]:
        """Whether tiles write D, bool[n]: those of the last part of K."""
        return np.asarray(self.coordinates(tiles)[3] == self.params.split_k - 1)

    def _of_d(
        self, tensor: str, access: Literal["read", "write"], width: int, *, of_all_parts: bool = False
    ) -> Footprint:
        """Footprint of a tensor with the layout of D."""

        def num_bytes(tiles: IntArray) -> IntArray:
            found = self._areas(tiles) * width
            return found if of_all_parts else np.where(self._writes_d(tiles), found, 0)

        def panels(tiles: IntArray) -> IntArray:
            if of_all_parts:
                return self._panels_of_sums(tiles)
            m, n, batch, _ = self.coordinates(tiles)
            nobody = self.params.batch * self.num_m * self.num_n  # panel of parts that do not access D
            return np.where(self._writes_d(tiles), (batch * self.num_m + m) * self.num_n + n, nobody)

        return Footprint(tensor=tensor, access=access, panel_of=panels, panel_bytes=num_bytes)

    def _panels_of_bias(self, tiles: IntArray) -> IntArray:
        _, n, _, _ = self.coordinates(tiles)
        return np.where(self._writes_d(tiles) & (self._areas(tiles) > 0), n, self.num_n)

    def _bytes_of_bias(self, tiles: IntArray) -> IntArray:
        _, n, _, _ = self.coordinates(tiles)
        columns = np.clip(self.params.n - n * self.tile[1], 0, self.tile[1])
        return np.where(self._panels_of_bias(tiles) < self.num_n, columns * SUM_BYTES, 0)


def _parted(extent: int, ways: int) -> int:
    if extent % ways:
        raise LayoutError(
            f"operand tile: {extent} do not part into {ways}: use {max(1, extent // ways) * ways}"
        )
    return extent // ways


def _walk(idx: IntArray, num_across: int, num_along: int, params: GemmOptions) -> tuple[IntArray, IntArray]:
    """(across, along) of each index in bands that are ``swizzle_size`` wide.

    >>> from gpusim import GemmParams
    >>> across, along = _walk(np.arange(8), 4, 2, GemmParams(m=1, n=1, k=1, swizzle_size=3))
    >>> list(zip(across.tolist(), along.tolist()))
    [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (3, 0), (3, 1)]
    >>> _walk(np.arange(8), 4, 2, GemmParams(m=1, n=1, k=1, swizzle_size=3, raster_boustrophedon=True))[1].tolist()
    [0, 0, 0, 1, 1, 1, 1, 0]
    """
    group = min(params.swizzle_size, num_across)
    band, within = np.divmod(idx, group * num_along)
    width = np.minimum(group, num_across - band * group)
    along, across = np.divmod(within, width)
    if params.raster_boustrophedon:
        along = np.where(band % 2 == 1, num_along - 1 - along, along)
    return band * group + across, along
