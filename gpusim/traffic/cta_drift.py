"""CTA drift: CTAs of a wave run at growing distances in time, so panels are fetched from memory again. Nothing is timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapreplace
from itertools import pairwise

import numpy as np

from gpusim.machine.exact_math import COARSE
from gpusim.machine.memory.l2_capacity import L2Partitions
from gpusim.traffic.panels import FloatArray, FootprintRow, IntArray, PanelTraffic

MOST_CLUSTERS = 1 << 16
"""Clusters of a launch up to which drift is computed; larger launches take too long."""
LEAST_LIFE = 0.1
"""Lower bound of a CTA's lifetime, as a share of the mean."""
SEED = 20261128
"""Seed of the random lifetimes; it is fixed, so that a launch always has the same ones."""
NEVER = 1e9
"""Gap to a touch that does not exist, in mean CTA lifetimes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CtaLifetimes:
    """Order in which CTAs follow one another on their slots, and how much their lifetimes vary."""

    num_slots: int
    """CTAs that run at once."""
    cluster_size: int
    deviation: float
    """Coefficient of variation of CTA lifetimes: standard deviation over the mean."""
    is_persistent: bool
    """Whether each CTA keeps its slot and walks its tiles in order. Otherwise the next CTA takes the slot that frees first.
    """

    def begins(self, num_tiles: int) -> FloatArray:
        """Start of each tile in mean lifetimes since the launch began, float64[num_tiles].

        >>> lifetimes = CtaLifetimes(num_slots=2, cluster_size=1, deviation=0.0, is_persistent=False)
        >>> lifetimes.begins(5).tolist()
        [0.0, 0.0, 1.0, 1.0, 2.0]
        """
        size = self.cluster_size
        num = -(-num_tiles // size)
        num_slots = max(1, self.num_slots // size)
        draws = np.rint(np.random.default_rng(SEED).standard_normal(num) * COARSE) / COARSE  # as numeric.coarse
        took: FloatArray = np.maximum(LEAST_LIFE, 1.0 + self.deviation * draws)
        if self.is_persistent:
            rows = np.zeros((-(-num // num_slots) + 1) * num_slots)
            rows[num_slots : num_slots + num] = took
            found = np.cumsum(rows.reshape(-1, num_slots), axis=0).ravel()[:num]
        else:
            found = np.array(_one_after_the_other(took.tolist(), num_slots))
        return np.asarray(np.repeat(found, size)[:num_tiles])


def _one_after_the_other(took: Sequence[float], num_slots: int) -> list[float]:
    """Start of each cluster: in launch order, on the slot that frees first."""
    free = [0.0] * min(num_slots, len(took))  # a heap
    begins: list[float] = []
    for life in took:
        at = free[0]
        begins.append(at)
        heapreplace(free, at + life)
    return begins


def add_drift_misses(
    traffic: Mapping[str, PanelTraffic], footprints: Sequence[FootprintRow], wave_of_tile: IntArray, *,
    l2: L2Partitions, lifetimes: CtaLifetimes,
) -> dict[str, PanelTraffic]:
    """Add the misses of CTA drift: late readers of a wave fetch again what early ones brought into L2.

    CTA lifetimes vary, so the CTAs of a wave run at growing distances in time from wave to wave. A late reader finds only
    the lines that L2 still holds since the previous reader. The lines touched in between follow from the start of each tile,
    which touches its panel evenly over one lifetime. Misses with these starts, less the misses of tiles in step, are added
    to the wave's traffic. They are not attributed to single readers.

    Models:

    * CTA lifetimes, drawn independently.

    Ignores:

    * CTAs that are always faster, by GPC or by L2 partition.
    * The L2 partition of a reader: every partition holds all lines.
    * Cache hints and gathered tables: such launches stay in step.
    * Launches of more than ``MOST_CLUSTERS`` clusters.
    * Launches of which two waves fit into one L2 partition: few lines are lost.
    * Waves that miss nothing in step.

    Source: validation/studies/cta_waves_h100_sxm.csv and tile_gemm_h100_sxm.csv, 2026-11-28;
    validation/deviations/18_library_gemms.md.

    Args:
        traffic: traffic in step, one entry for each of ``footprints``.
        footprints: panels of each tensor; arrays int64[num_tiles].
        wave_of_tile: int64[num_tiles], in ascending order.
        l2: capacity of the L2 partitions.
        lifetimes: lifetimes of the CTAs.
    """
    found = dict(traffic)
    num_tiles, num_waves = len(wave_of_tile), int(wave_of_tile.max()) + 1
    if num_waves < 2 or not lifetimes.deviation or num_tiles > MOST_CLUSTERS * lifetimes.cluster_size:
        return found
    if any(row.table_bytes or row.cache_hint != "evict_normal" for row in footprints):
        return found
    touched = sum((item.touched_bytes_by_wave for item in traffic.values()), np.zeros(num_waves))
    if float((touched[1:] + touched[:-1]).max()) < l2.partition_bytes:
        return found  # few lines are lost, however far CTAs drift
    readers = [row for row in footprints if not row.is_write]
    in_step = _missed(footprints, readers, wave_of_tile, wave_of_tile.astype(np.float64), l2)
    drifted = _missed(footprints, readers, wave_of_tile, lifetimes.begins(num_tiles), l2)
    for row, before, after in zip(readers, in_step, drifted, strict=True):
        item = traffic[row.tensor]
        missed = item.miss_bytes_by_wave
        again = np.where(missed > 0.0, np.maximum(0.0, after - before), 0.0)
        if not again.any():
            continue
        times = 1.0 + again / np.where(missed > 0.0, missed, 1.0)
        share = float(again.sum()) / item.read_miss_bytes
        found[row.tensor] = replace(
            item, miss_bytes_by_wave=missed + again, read_miss_bytes=item.read_miss_bytes + float(again.sum()),
            times_fetched_by_wave=times, lookup_miss_bytes=item.lookup_miss_bytes * (1.0 + share),
            crossing_bytes=item.crossing_bytes * (1.0 + share), crossing_miss_bytes=item.crossing_miss_bytes * (1.0 + share),
        )
    return found


def _missed(
    rows: Sequence[FootprintRow], readers: Sequence[FootprintRow], wave_of_tile: IntArray, begins: FloatArray,
    l2: L2Partitions,
) -> list[FloatArray]:
    """Bytes of each tensor in ``readers`` that its tiles miss in L2, by wave: float64[num_waves] each.

    All lines touched between two readers of a panel separate them. If a panel is touched again later, only the bytes touched
    until then count.
    """
    num_waves = int(wave_of_tile.max()) + 1
    gaps = {row.tensor: _gaps(row, begins) for row in rows}
    waves = np.concatenate([wave_of_tile] * len(rows))
    until = np.concatenate([until_next for _, until_next in gaps.values()])
    num_bytes = np.concatenate([row.bytes_of_tile for row in rows])
    order = np.lexsort((until, waves))
    bounds = np.searchsorted(waves[order], np.arange(num_waves + 1))
    tiles_of_wave = [slice(*pair) for pair in pairwise(np.searchsorted(wave_of_tile, np.arange(num_waves + 1)))]
    between = [np.empty(len(begins)) for _ in readers]  # bytes touched between a tile's readers
    for tiles, (first, last) in zip(tiles_of_wave, pairwise(bounds), strict=True):
        sorted_tiles = order[first:last]
        ends, of_row = until[sorted_tiles], num_bytes[sorted_tiles].astype(np.float64)
        ended = np.concatenate(([0.0], np.cumsum(ends * of_row)))
        going = float(of_row.sum()) - np.concatenate(([0.0], np.cumsum(of_row)))
        for found, row in zip(between, readers, strict=True):
            since = gaps[row.tensor][0][tiles]
            idx = np.searchsorted(ends, since)
            found[tiles] = ended[idx] + since * going[idx]
    missed = [l2.lost_share(found) * row.bytes_of_tile for found, row in zip(between, readers, strict=True)]
    return [np.array([of_tile[tiles].sum() for tiles in tiles_of_wave]) for of_tile in missed]


def _gaps(row: FootprintRow, begins: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean lifetimes from a tile to the previous and to the next one of the same panel, float64[num_tiles] each."""
    none = -1 - np.arange(len(begins))  # a tile that touches nothing gets a unique panel
    touched = np.where(row.bytes_of_tile > 0, row.panel_of_tile, none)
    order = np.lexsort((begins, touched))
    panels, at = touched[order], begins[order]
    gaps = np.where(panels[1:] == panels[:-1], np.diff(at), NEVER)
    since, until = np.full(len(at), NEVER), np.full(len(at), NEVER)
    since[order[1:]] = gaps
    until[order[:-1]] = gaps
    return since, until
