"""Grid of work tiles: the tile of each CTA, the panels of A and B that it reads, and the parts inside of the matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gpusim.kernel_models.gemm.config import GemmConfig, has_sums
from gpusim.kernel_models.mainloop.loader import block_bytes
from gpusim.kernel_models.mainloop.output import SUM_BYTES
from gpusim.kernel_models.mainloop.shape import Coordinates, MainloopShape
from gpusim.kernel_models.mainloop.tensor_maps import POINTER_BYTES
from gpusim.kernel_models.streaming import ceil_div
from gpusim.layout import Layout
from gpusim.units import LINE_BYTES
from gpusim.workload.dtypes import FP32, INT32, DType, accumulator_of
from gpusim.workload.gmem.line_fetches import CHUNK_BYTES, unasked_fraction
from gpusim.workload.launch import Footprint
from gpusim.workload.tensor import MemRef

IntArray = NDArray[np.int64]

BLOCK_TILES = 128

MOST_PIECES = 64
"""Maximum pieces of a row that are examined for additional bytes: more than there are offsets in a line."""
TABLE_WAVES = 2
"""Number of waves of clusters whose positions come from ``raster_order``."""


@dataclass(frozen=True)
class TilePlan:
    """The grid of tiles of one GEMM, in the order in which CTAs process them."""

    config: GemmConfig

    @cached_property
    def shape(self) -> MainloopShape:
        """Tiles of A and B in shared memory."""
        return self.config.mainloop

    @property
    def tile(self) -> tuple[int, int, int]:
        """CTA tile M, N, K."""
        return self.config.tile

    @cached_property
    def num_m(self) -> int:
        """Tiles along M, rounded up to full clusters, and to bands with ``raster_order`` full_bands."""
        return self._rounded_up(0)

    @cached_property
    def num_n(self) -> int:
        """Tiles along N, rounded up as :attr:`num_m`."""
        return self._rounded_up(1)

    def _rounded_up(self, which: int) -> int:
        config = self.config
        is_across = which == (config.raster == "along_m")
        unit = config.cluster[which] * (config.swizzle_size if config.raster_order == "full_bands" and is_across else 1)
        return ceil_div(ceil_div(self.extents[which], self.tile[which]), unit) * unit

    @cached_property
    def num_tiles(self) -> int:
        """Number of work tiles: tiles of D, times batch, times parts of K."""
        return self.num_m * self.num_n * self.config.batch * self.config.split_k

    @property
    def is_serial(self) -> bool:
        """Whether parts of K add to D one behind the other."""
        return self.config.split_k > 1 and not has_sums(self.config)

    # -------------------------------------------------------------------------------------- k-steps
    @cached_property
    def total_k_steps(self) -> int:
        """Number of k-steps of all parts together. Parts of a serial split-K begin at multiples of 16 bytes (CUTLASS)."""
        parts, unit = (self.config.split_k, CHUNK_BYTES // self.config.element.num_bytes) if self.is_serial else (1, 1)
        return parts * ceil_div(ceil_div(ceil_div(self.config.k, parts), unit) * unit, self.tile[2])

    def first_k_step(self, part: int) -> int:
        """First k-step of a part of K. Parts differ by at most one k-step.

        ``first_k_step(split_k)`` is the end.
        """
        return part * self.total_k_steps // self.config.split_k

    def num_k_steps(self, part: int) -> int:
        """Number of k-steps of a part."""
        return self.first_k_step(part + 1) - self.first_k_step(part)

    # -------------------------------------------------------------------------------------- order of tiles
    def coordinates(self, tile_idx: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """(m, n, batch, part of K) of work tiles, each int64[n].

        A cluster's tiles are consecutive. Bands are ``swizzle_size`` clusters wide and extend in the raster's direction.
        Within a band, tiles are ordered across it first; with ``raster_boustrophedon`` every second band runs backwards.
        Parts of K and batches are the slowest dimensions. With ``raster_order``, it gives the positions of clusters in the
        first two waves.
        """
        config = self.config
        ranks_m, ranks_n = config.cluster
        cluster, rank = np.divmod(tile_idx, ranks_m * ranks_n)
        cluster = self._by_table(cluster)
        clusters_m, clusters_n = self.num_m // ranks_m, self.num_n // ranks_n
        plane, cluster = np.divmod(cluster, clusters_m * clusters_n)
        batch, part = np.divmod(plane, config.split_k)
        walk = partial(_walk, swizzle_size=config.swizzle_size, is_boustrophedon=config.raster_boustrophedon)
        if config.raster == "along_n":
            cluster_m, cluster_n = walk(cluster, clusters_m, clusters_n)
        else:
            cluster_n, cluster_m = walk(cluster, clusters_n, clusters_m)
        rank_n, rank_m = np.divmod(rank, ranks_m)
        return cluster_m * ranks_m + rank_m, cluster_n * ranks_n + rank_n, batch, part

    @cached_property
    def _table(self) -> list[int]:
        """Positions of the first clusters in the order; empty if they are in numerical order."""
        text = self.config.raster_order
        return [int(part) for part in text.split(",")] if text[0].isdigit() else []

    def _by_table(self, cluster: IntArray) -> IntArray:
        """Positions of clusters in the order."""
        positions, size = cluster, len(self._table)
        total = self.num_tiles // math.prod(self.config.cluster)
        for start in range(0, min(TABLE_WAVES * size, total), size) if size else ():
            places = np.argsort(np.argsort(self._table[: total - start]))  # ranks within a wave that is not full
            is_inside = (cluster >= start) & (cluster < start + len(places))
            positions = np.where(is_inside, start + places[np.where(is_inside, cluster - start, 0)], positions)
        return positions

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
    @property
    def extents(self) -> tuple[int, int, int]:
        """M, N, K."""
        return self.config.m, self.config.n, self.config.k

    def rows_inside(self, which: int, idx: int) -> int:
        """Rows inside of the matrix of the ``idx``-th tile along M (0) or N (1)."""
        return max(0, min(self.tile[which], self.extents[which] - idx * self.tile[which]))

    def is_inside(self, at: Coordinates) -> bool:
        """Whether any element of a work tile is inside of D. Tiles that only complete a cluster or a band are not."""
        return self.rows_inside(0, at.m) > 0 and self.rows_inside(1, at.n) > 0

    def panel(self, which: int, at: Coordinates) -> int:
        """Panel of A (0) or B (1) that a work tile reads."""
        plane = at.batch * self.config.split_k + at.part
        return plane * (self.num_m, self.num_n)[which] + at[which]

    def panel_of_part(self, at: Coordinates) -> int:
        """Tile of partial sums that a work tile stores for a second kernel."""
        return ((at.batch * self.config.split_k + at.part) * self.num_m + at.m) * self.num_n + at.n

    def panel_of_d(self, at: Coordinates) -> int:
        """Tile of D that a work tile contributes to."""
        return (at.batch * self.num_m + at.m) * self.num_n + at.n

    # -------------------------------------------------------------------------------------- memory
    @property
    def pitch_of_d(self) -> int:
        """Elements from row to row of C and D."""
        return ceil_div(self.config.n, max(1, self.config.alignment)) * max(1, self.config.alignment)

    @property
    def num_sum_planes(self) -> int:
        """Planes of the workspace for each batch."""
        return self.config.split_k if self.config.split_k_mode == "second_kernel" else 1

    def tensors(self, num_math_roles: int) -> tuple[MemRef, ...]:
        """Tensors in memory: A (m, k), B (k, n), C and D (m, n), the bias (n or m); with batches, each (batch, ...)."""
        config, (m, n, k) = self.config, self.extents
        refs = []
        is_a_k_major, is_b_k_major = config.are_k_major
        for name, rows, columns, is_row_major in (("A", m, k, is_a_k_major), ("B", k, n, not is_b_k_major)):
            pitch = self.shape.pitch_bytes(columns if is_row_major else rows) // config.element.num_bytes
            strides = (pitch, 1) if is_row_major else (1, pitch)
            refs.append(self._ref(name, (rows, columns), strides, config.element))
        refs += [self._ref(name, (m, n), (self.pitch_of_d, 1), config.out_element) for name in "CD"]
        sums = accumulator_of(config.element)
        refs.append(MemRef.row_major("bias", (m if config.bias_along == "m" else n,), FP32))
        refs.append(MemRef.row_major("workspace", (self.num_sum_planes, config.batch, m, n), sums))
        refs.append(MemRef.row_major("counters", (self.num_m * self.num_n * config.batch * num_math_roles,), INT32))
        return tuple(refs)

    def _ref(self, name: str, shape: tuple[int, int], strides: tuple[int, int], element: DType) -> MemRef:
        plane = max(extent * stride for extent, stride in zip(shape, strides, strict=True))
        if self.config.batch == 1:
            return MemRef(name=name, layout=Layout(shape, strides), dtype=element)
        return MemRef(name=name, layout=Layout((self.config.batch, *shape), (plane, *strides)), dtype=element)

    # -------------------------------------------------------------------------------------- footprints
    def footprints(self, num_math_roles: int) -> tuple[Footprint, ...]:
        """Footprints of the work tiles. ``num_math_roles`` roles increment counters in an in-kernel split-K."""
        config = self.config
        num_steps = ceil_div(self.total_k_steps, config.split_k)
        footprints = [
            Footprint(
                tensor=tensor, access="read", panel_of=partial(self._panels, which),
                panel_bytes=partial(self._bytes, which), num_steps=num_steps, unasked=partial(self.unasked, which),
            )
            for which, tensor in enumerate("AB")
        ]
        if config.split_k > 1:
            if not self.is_serial:
                footprints.append(self._of_d("workspace", "write", SUM_BYTES, of_all_parts=True))
            if config.split_k_mode == "second_kernel":
                return tuple(footprints)
            footprints.append(
                Footprint(
                    tensor="counters", access="write", panel_of=self._panels_of_sums,
                    panel_bytes=lambda tiles: SUM_BYTES * num_math_roles * (self._areas(tiles) > 0),
                )
            )
        width = config.out_element.num_bytes
        footprints.append(self._of_d("D", "write", width))
        if config.output.reads_c:
            footprints.append(self._of_d("C", "read", width))
        if config.bias:
            panels, num_bytes = self._panels_of_bias, self._bytes_of_bias
            footprints.append(Footprint(tensor="bias", access="read", panel_of=panels, panel_bytes=num_bytes))
        if config.batch_mode == "array":
            footprints.append(
                Footprint(
                    tensor="pointers", access="read", panel_of=self._batches,
                    panel_bytes=lambda tiles: np.full(len(tiles), 3 * POINTER_BYTES, dtype=np.int64),
                )
            )
        return tuple(footprints)

    def _batches(self, tiles: IntArray) -> IntArray:
        return self.coordinates(tiles)[2]

    def unasked(self, which: int, block_bytes: int) -> float:
        """Fraction of the missed bytes of A or B that no request asked for: see ``Footprint.unasked``.

        TMA's tensor maps promote to full lines, and to neighbouring lines, which are requested.
        """
        config = self.config
        if self.shape.is_through_l1(which):
            return 0.0
        is_k_major, width = config.are_k_major[which], config.element.num_bytes
        extent = self.extents[2 if is_k_major else which]
        pitch = self.shape.pitch_bytes(extent)
        along = min(self.tile[2] if is_k_major else self.tile[which], extent) * width
        piece = along
        fetched = config.l2_promotion
        if self.shape.by_tma:
            piece, fetched = min(along, self.shape.operands[which].panel_bytes), fetched or LINE_BYTES
        row_bytes = min(extent * width, MOST_PIECES * piece)
        edges = np.arange(0, row_bytes + along, along)[:, None] + np.arange(0, along, piece)
        begins = np.arange(LINE_BYTES) * pitch
        edges = np.unique(np.minimum(edges, row_bytes), return_index=True)[0]  # without indices it imports numpy.ma
        return unasked_fraction(begins, edges, min(LINE_BYTES, max(block_bytes, fetched)))

    def _panels(self, which: int, tiles: IntArray) -> IntArray:
        """Panels of A or B, see :meth:`panel`."""
        at = self.coordinates(tiles)
        return (at[2] * self.config.split_k + at[3]) * (self.num_m, self.num_n)[which] + at[which]

    def _inside(self, which: int, idx: IntArray) -> IntArray:
        """Rows inside of the matrix, see :meth:`rows_inside`."""
        return np.clip(self.extents[which] - idx * self.tile[which], 0, self.tile[which])

    def _bytes(self, which: int, tiles: IntArray) -> IntArray:
        """Bytes of panels of A or B inside of the matrix."""
        at = self.coordinates(tiles)
        rows = self._inside(which, at[which]) * (self.config.raster_order != "full_bands" or self._areas(tiles) > 0)
        return np.asarray(rows * self._depths(at[3]) * self.config.element.num_bytes)

    def _panels_of_sums(self, tiles: IntArray) -> IntArray:
        m, n, batch, part = self.coordinates(tiles)
        of_parts = self.config.split_k_mode == "second_kernel"
        plane = batch * self.config.split_k + part if of_parts else batch
        return (plane * self.num_m + m) * self.num_n + n

    def _depths(self, part: IntArray) -> IntArray:
        """Elements of K in parts, int64[n]."""
        steps = [self.first_k_step(idx) for idx in range(self.config.split_k + 1)]
        starts = [min(self.config.k, step * self.tile[2]) for step in steps]
        depths: IntArray = np.diff(np.array(starts, dtype=np.int64)).astype(np.int64)
        return depths[part]

    def _areas(self, tiles: IntArray) -> IntArray:
        """Elements of D inside of the matrix, int64[n]."""
        m, n, _, _ = self.coordinates(tiles)
        return np.asarray(self._inside(0, m) * self._inside(1, n))

    def _writes_d(self, tiles: IntArray) -> NDArray[np.bool_]:
        """Whether tiles write D, bool[n]: those of the last part of K, or of all parts of a serial split-K."""
        return np.asarray(self.coordinates(tiles)[3] == self.config.split_k - 1) | self.is_serial

    def _of_d(self, tensor: str, access: Literal["read", "write"], width: int, *, of_all_parts: bool = False) -> Footprint:
        """Footprint of a tensor with the layout of D."""

        def sizes(tiles: IntArray) -> IntArray:
            num_bytes = self._areas(tiles) * width
            return num_bytes if of_all_parts else np.where(self._writes_d(tiles), num_bytes, 0)

        def panels(tiles: IntArray) -> IntArray:
            if of_all_parts:
                return self._panels_of_sums(tiles)
            m, n, batch, _ = self.coordinates(tiles)
            nobody = self.config.batch * self.num_m * self.num_n  # panel of parts that do not access D
            return np.where(self._writes_d(tiles), (batch * self.num_m + m) * self.num_n + n, nobody)

        return Footprint(tensor=tensor, access=access, panel_of=panels, panel_bytes=sizes)

    def _panels_of_bias(self, tiles: IntArray) -> IntArray:
        which = 0 if self.config.bias_along == "m" else 1
        has_bias = self._writes_d(tiles) & (self._areas(tiles) > 0)
        return np.where(has_bias, self.coordinates(tiles)[which], (self.num_m, self.num_n)[which])

    def _bytes_of_bias(self, tiles: IntArray) -> IntArray:
        which = 0 if self.config.bias_along == "m" else 1
        has_bias = self._panels_of_bias(tiles) < (self.num_m, self.num_n)[which]
        return np.where(has_bias, self._inside(which, self.coordinates(tiles)[which]) * SUM_BYTES, 0)

    # -------------------------------------------------------------------------------------- programs of tiles
    @property
    def has_uniform_programs(self) -> bool:
        """Whether programs of tiles with the same bytes in their footprints differ in nothing but panels.

        A copy depends on the offsets of its rows in lines, and in the blocks that L2 fetches. Parts of K (split-K) may begin
        at other offsets in a line, too. Tiles that only complete a cluster read nothing of one operand, so their footprints
        do not show their extent in K.
        """
        is_cluster_full = self.rows_inside(0, self.num_m - 1) > 0 and self.rows_inside(1, self.num_n - 1) > 0
        return (self.config.split_k == 1 or is_cluster_full) and all(self._has_one_offset(which) for which in (0, 1))

    def _has_one_offset(self, which: int) -> bool:
        """Whether all panels of A (0) or B (1) begin at one offset in a line, and in a block of L2's fetch size."""
        tile_k, width, is_k_major = self.tile[2], self.config.element.num_bytes, self.config.are_k_major[which]
        pitch = self.shape.pitch_bytes(self.extents[2 if is_k_major else which])
        row_pitch, k_pitch = (pitch, width) if is_k_major else (width, pitch)
        step_bytes, panel_bytes = tile_k * k_pitch, self.tile[which] * row_pitch
        at_once = block_bytes(self.shape, which)
        block = math.lcm(LINE_BYTES, at_once or 1)
        if (self.num_m, self.num_n)[which] > 1 and panel_bytes % block:
            return False
        steps = math.lcm(max(1, at_once // step_bytes), max(1, ceil_div(at_once, step_bytes))) if is_k_major else 1
        firsts = [self.first_k_step(part) for part in range(self.config.split_k)]
        return all(first * step_bytes % block == 0 and first % steps == 0 for first in firsts)


def _walk(
    idx: IntArray, num_across: int, num_along: int, swizzle_size: int, *, is_boustrophedon: bool = False
) -> tuple[IntArray, IntArray]:
    """(across, along) of each index in bands that are ``swizzle_size`` wide.

    >>> across, along = _walk(np.arange(8), 4, 2, 3)
    >>> list(zip(across.tolist(), along.tolist()))
    [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (3, 0), (3, 1)]
    >>> _walk(np.arange(8), 4, 2, 3, is_boustrophedon=True)[1].tolist()
    [0, 0, 0, 1, 1, 1, 1, 0]
    """
    group = min(swizzle_size, num_across)
    band, within = np.divmod(idx, group * num_along)
    width = np.minimum(group, num_across - band * group)
    along, across = np.divmod(within, width)
    if is_boustrophedon:
        along = np.where(band % 2 == 1, num_along - 1 - along, along)
    return band * group + across, along
