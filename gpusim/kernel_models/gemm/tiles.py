"""Which tile a CTA works on, what it reads of A and B, and what of it lies inside of the matrices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gpusim.kernel_models.gemm.params import GemmParams
from gpusim.workload.access import OperandTile
from gpusim.workload.launch import Footprint

IntArray = NDArray[np.int64]

BLOCK_TILES = 1024


@dataclass(frozen=True)
class TilePlan:
    """The grid of tiles of one GEMM, in the order in which CTAs take them."""

    params: GemmParams

    @property
    def tile(self) -> tuple[int, int, int]:
        """CTA tile M, N, K."""
        assert self.params.tile is not None  # resolved
        return self.params.tile

    @cached_property
    def num_m(self) -> int:
        """Tiles along M, rounded up to whole clusters."""
        ranks = self.params.cluster[0]
        return -(-(-(-self.params.m // self.tile[0])) // ranks) * ranks

    @cached_property
    def num_n(self) -> int:
        """Tiles along N, rounded up to whole clusters."""
        ranks = self.params.cluster[1]
        return -(-(-(-self.params.n // self.tile[1])) // ranks) * ranks

    @cached_property
    def num_k_steps(self) -> int:
        """k-steps of one CTA (the longest, where split-K does not divide)."""
        return -(-(-(-self.params.k // self.tile[2])) // self.params.split_k)

    @cached_property
    def num_tiles(self) -> int:
        """Work tiles: tiles of D, times batch, times parts of K."""
        return self.num_m * self.num_n * self.params.batch * self.params.split_k

    def coordinates(self, tile_idx: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """(m, n, batch, part of K) of work tiles, each int64[n].

        A cluster's tiles are neighbours in the order. Bands of ``raster_group`` clusters are walked in the raster's
        direction, across the band first; parts of K and batches come last.
        """
        params = self.params
        ranks_m, ranks_n = params.cluster
        cluster, rank = np.divmod(tile_idx, ranks_m * ranks_n)
        clusters_m, clusters_n = self.num_m // ranks_m, self.num_n // ranks_n
        plane, cluster = np.divmod(cluster, clusters_m * clusters_n)
        batch, part = np.divmod(plane, params.split_k)
        if params.raster == "along_n":
            across, along = _walk(cluster, clusters_m, clusters_n, params.raster_group)
            cluster_m, cluster_n = across, along
        else:
            across, along = _walk(cluster, clusters_n, clusters_m, params.raster_group)
            cluster_m, cluster_n = along, across
        rank_n, rank_m = np.divmod(rank, ranks_m)
        return cluster_m * ranks_m + rank_m, cluster_n * ranks_n + rank_n, batch, part

    @cached_property
    def _blocks(self) -> dict[int, list[tuple[int, int, int, int]]]:
        """Coordinates of tiles that were asked for one by one, by the thousand."""
        return {}

    def coordinates_of(self, tile: int) -> tuple[int, int, int, int]:
        """(m, n, batch, part of K) of one work tile."""
        block, within = divmod(tile, BLOCK_TILES)
        known = self._blocks.get(block)
        if known is None:
            tiles = np.arange(block * BLOCK_TILES, (block + 1) * BLOCK_TILES, dtype=np.int64)
            m, n, batch, part = (values.tolist() for values in self.coordinates(tiles))
            known = self._blocks[block] = list(zip(m, n, batch, part, strict=True))
        return known[within]

    def panels(self, tile_idx: IntArray) -> tuple[IntArray, IntArray]:
        """Panels of A and B that work tiles walk: int64[n] each."""
        m, n, batch, part = self.coordinates(tile_idx)
        plane = batch * self.params.split_k + part
        return plane * self.num_m + m, plane * self.num_n + n

    def rows_of_a(self, m: int) -> int:
        """Rows of A's panel that lie inside of the matrix."""
        return max(0, min(self.tile[0], self.params.m - m * self.tile[0]))

    def rows_of_b(self, n: int) -> int:
        """Columns of B's panel that lie inside of the matrix."""
        return max(0, min(self.tile[1], self.params.n - n * self.tile[1]))

    def k_extent(self, part: int, step: int) -> int:
        """Elements of K that step ``step`` of part ``part`` finds inside of the matrices."""
        tile_k = self.tile[2]
        begin = (part * self.num_k_steps + step) * tile_k
        return max(0, min(tile_k, self.params.k - begin))

    @cached_property
    def operand_a(self) -> OperandTile:
        """One stage of A."""
        return self._operand(self.tile[0], self.params.is_a_k_major)

    @cached_property
    def operand_b(self) -> OperandTile:
        """One stage of B."""
        return self._operand(self.tile[1], self.params.is_b_k_major)

    def _operand(self, rows: int, is_k_major: bool) -> OperandTile:
        params = self.params
        assert params.swizzle is not None  # resolved
        return OperandTile(
            rows=rows, k=self.tile[2], dtype=params.element, is_k_major=is_k_major, swizzle=params.swizzle,
            is_interleaved=params.swizzle == "none" and params.math == "wgmma",
        )

    def footprints(self) -> tuple[Footprint, ...]:
        """What the tiles touch of A, B, C and D."""
        params = self.params
        part_k = min(params.k, self.num_k_steps * self.tile[2])
        element_bytes = params.element.num_bytes

        def bytes_of_a(tiles: IntArray) -> IntArray:
            m, _, _, _ = self.coordinates(tiles)
            rows = np.clip(params.m - m * self.tile[0], 0, self.tile[0])
            return np.asarray(rows * part_k * element_bytes)

        def bytes_of_b(tiles: IntArray) -> IntArray:
            _, n, _, _ = self.coordinates(tiles)
            columns = np.clip(params.n - n * self.tile[1], 0, self.tile[1])
            return np.asarray(columns * part_k * element_bytes)

        def bytes_of_d(tiles: IntArray) -> IntArray:
            m, n, _, _ = self.coordinates(tiles)
            rows = np.clip(params.m - m * self.tile[0], 0, self.tile[0])
            columns = np.clip(params.n - n * self.tile[1], 0, self.tile[1])
            width = 4 if params.split_k > 1 else params.out_element.num_bytes
            return np.asarray(rows * columns * width)

        def panel_of_d(tiles: IntArray) -> IntArray:
            m, n, batch, part = self.coordinates(tiles)
            plane = batch * params.split_k + part if params.split_k_mode == "second_kernel" else batch
            return np.asarray((plane * self.num_m + m) * self.num_n + n)

        found = [
            Footprint(
                tensor="A", access="read", panel_of=lambda tiles: self.panels(tiles)[0], panel_bytes=bytes_of_a,
                num_steps=self.num_k_steps,
            ),
            Footprint(
                tensor="B", access="read", panel_of=lambda tiles: self.panels(tiles)[1], panel_bytes=bytes_of_b,
                num_steps=self.num_k_steps,
            ),
            Footprint(tensor="D", access="write", panel_of=panel_of_d, panel_bytes=bytes_of_d),
        ]
        if params.split_k > 1 and params.split_k_mode == "in_kernel":
            found.append(Footprint(tensor="workspace", access="write", panel_of=panel_of_d, panel_bytes=bytes_of_d))
        if params.beta != 0.0:
            found.append(Footprint(tensor="C", access="read", panel_of=panel_of_d, panel_bytes=bytes_of_d))
        return tuple(found)


def _walk(idx: IntArray, num_across: int, num_along: int, group: int) -> tuple[IntArray, IntArray]:
    """Bands of ``group`` across, walked along: (across, along) of each index.

    >>> across, along = _walk(np.arange(6), 4, 2, 3)
    >>> list(zip(across.tolist(), along.tolist()))
    [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    """
    group = min(group, num_across)
    band, within = np.divmod(idx, group * num_along)
    width = np.minimum(group, num_across - band * group)
    along, across = np.divmod(within, width)
    return band * group + across, along
