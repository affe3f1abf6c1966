"""How far apart the CTAs of a wave come, and what of their panels goes to memory again for that. Nothing is timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapreplace
from itertools import pairwise

import numpy as np

from gpusim.machine.exact_math import COARSE
from gpusim.machine.memory.l2_capacity import Sides
from gpusim.traffic.panels import FloatArray, IntArray, PanelTraffic, PanelUse

MOST_CLUSTERS = 1 << 16
"""Of launches that are looked at: more take too long."""
LEAST_LIFE = 0.1
"""Of the mean: no CTA's is shorter."""
SEED = 20261128
"""Of the lives' draws, so that a launch always has the same."""
NEVER = 1e9
"""Lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """How CTAs follow one another on their slots."""

    num_slots: int
    """Of CTAs."""
    cluster_size: int
    deviation: float
    """Standard deviation of a CTA's life, over its mean."""
    is_persistent: bool
    """Whether each CTA keeps its slot, and walks its tiles in order; else a free slot takes the next one."""

    def begins(self, num_tiles: int) -> FloatArray:
        """When each tile begins, in mean lives since the launch did: float64[num_tiles].

        >>> lives = Lives(num_slots=2, cluster_size=1, deviation=0.0, is_persistent=False)
        >>> lives.begins(5).tolist()
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
    """When each begins: in order, on the slot that falls free first."""
    free = [0.0] * min(num_slots, len(took))  # a heap
    begins: list[float] = []
    for life in took:
        at = free[0]
        begins.append(at)
        heapreplace(free, at + life)
    return begins


def come_apart(
    traffic: Mapping[str, PanelTraffic], uses: Sequence[PanelUse], wave_of_tile: IntArray, *, sides: Sides, lives: Lives
) -> dict[str, PanelTraffic]:
    """The traffic, with what later readers of a wave fetch again because they are too far behind the first.

    CTAs are served unalike, so that those of a wave come further apart with each wave. Who reads a panel a time behind its
    last reader finds what L2 still has: what all have touched since then is known by when they touch what they share, each
    panel evenly for a life. What is lost by these begins, less what is lost by tiles in step, is added to each wave's
    traffic; which reader pays is not said.

    Models: lives drawn each by itself. Ignores: who is quicker for good (parts of GPCs, sides of L2); on which side a
    reader is (all lines are on both); hints, tables and repeated walks (such launches stay in step); launches of many
    CTAs, or of which two waves fit (little is lost); waves that miss nothing in step.
    Source: validation/studies/cta_waves_h100_sxm.csv and tile_gemm_h100_sxm.csv, 2026-11-28:
    validation/deviations/18_library_gemms.md.

    Args:
        traffic: in step, one entry for each of ``uses``.
        uses: arrays int64[num_tiles].
        wave_of_tile: int64[num_tiles], in order.
        sides: what L2 holds.
        lives: of CTAs.
    """
    found = dict(traffic)
    num_tiles, num_waves = len(wave_of_tile), int(wave_of_tile.max()) + 1
    if num_waves < 2 or not lives.deviation or num_tiles > MOST_CLUSTERS * lives.cluster_size:
        return found
    if any(use.num_passes > 1 or use.table_bytes or use.cache_hint != "evict_normal" for use in uses):
        return found
    touched = sum((item.touched_bytes_by_wave for item in traffic.values()), np.zeros(num_waves))
    if float((touched[1:] + touched[:-1]).max()) < sides.side_bytes:
        return found  # little is lost however far apart they are
    readers = [use for use in uses if not use.is_write]
    in_step = _missed(uses, readers, wave_of_tile, wave_of_tile.astype(np.float64), sides)
    apart = _missed(uses, readers, wave_of_tile, lives.begins(num_tiles), sides)
    for use, before, after in zip(readers, in_step, apart, strict=True):
        item = traffic[use.tensor]
        missed = item.miss_bytes_by_wave
        again = np.where(missed > 0.0, np.maximum(0.0, after - before), 0.0)
        if not again.any():
            continue
        times = 1.0 + again / np.where(missed > 0.0, missed, 1.0)
        share = float(again.sum()) / item.read_miss_bytes
        found[use.tensor] = replace(
            item, miss_bytes_by_wave=missed + again, read_miss_bytes=item.read_miss_bytes + float(again.sum()),
            times_fetched_by_wave=times, lookup_miss_bytes=item.lookup_miss_bytes * (1.0 + share),
            crossing_bytes=item.crossing_bytes * (1.0 + share), crossing_miss_bytes=item.crossing_miss_bytes * (1.0 + share),
        )
    return found


def _missed(
    uses: Sequence[PanelUse], readers: Sequence[PanelUse], wave_of_tile: IntArray, begins: FloatArray, sides: Sides
) -> list[FloatArray]:
    """Bytes of each of ``readers`` that its tiles do not find in L2, by wave: float64[num_waves].

    Between two readers of a panel lie all lines that were touched meanwhile: of a panel that is touched again later, what
    was touched until then.
    """
    num_waves = int(wave_of_tile.max()) + 1
    gaps = {use.tensor: _gaps(use, begins) for use in uses}
    waves = np.concatenate([wave_of_tile] * len(uses))
    until = np.concatenate([until_next for _, until_next in gaps.values()])
    num_bytes = np.concatenate([use.bytes_of_tile for use in uses])
    order = np.lexsort((until, waves))
    bounds = np.searchsorted(waves[order], np.arange(num_waves + 1))
    tiles_of_wave = [slice(*pair) for pair in pairwise(np.searchsorted(wave_of_tile, np.arange(num_waves + 1)))]
    between = [np.empty(len(begins)) for _ in readers]  # bytes touched between a tile's readers
    for tiles, (first, last) in zip(tiles_of_wave, pairwise(bounds), strict=True):
        rows = order[first:last]
        ends, of_row = until[rows], num_bytes[rows].astype(np.float64)
        ended = np.concatenate(([0.0], np.cumsum(ends * of_row)))
        going = float(of_row.sum()) - np.concatenate(([0.0], np.cumsum(of_row)))
        for found, use in zip(between, readers, strict=True):
            since = gaps[use.tensor][0][tiles]
            idx = np.searchsorted(ends, since)
            found[tiles] = ended[idx] + since * going[idx]
    missed = [sides.lost_share(found) * use.bytes_of_tile for found, use in zip(between, readers, strict=True)]
    return [np.array([of_tile[tiles].sum() for tiles in tiles_of_wave]) for of_tile in missed]


def _gaps(use: PanelUse, begins: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Lives between a tile and the one that touches its panel before it, and after it: float64[num_tiles] each."""
    none = -1 - np.arange(len(begins))  # who touches nothing has a panel of his own
    touched = np.where(use.bytes_of_tile > 0, use.panel_of_tile, none)
    order = np.lexsort((begins, touched))
    panels, at = touched[order], begins[order]
    gaps = np.where(panels[1:] == panels[:-1], np.diff(at), NEVER)
    since, until = np.full(len(at), NEVER), np.full(len(at), NEVER)
    since[order[1:]] = gaps
    until[order[:-1]] = gaps
    return since, until
