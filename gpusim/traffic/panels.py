"""Panels of a tensor that each wave of CTAs touches, and the records of the L2 traffic plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


def distinct(values: IntArray) -> IntArray:
    """Distinct values of int64[n], in ascending order.

    ``np.unique`` without ``return_index`` imports masked arrays, which takes 10 ms.

    >>> distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    found: IntArray = np.unique(values, return_index=True)[0]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class FootprintRow:
    """Panel of one tensor that each tile touches.

    ``panel_of_tile`` int64[num_tiles]: index of the tile's panel. ``bytes_of_tile`` int64[num_tiles]: bytes of that panel.
    """

    tensor: str
    is_write: bool
    panel_of_tile: IntArray
    bytes_of_tile: IntArray
    is_in_place: bool = False
    """Whether the tile writes over lines that it has read as another tensor's, which counts them already."""
    cache_hint: str = "evict_normal"
    """L2 eviction priority of all accesses: ``evict_normal``, ``evict_first`` or ``evict_last``.

    Accesses to a persisting window count as ``evict_last``."""
    table_bytes: int = 0
    """Bytes of a table from which a tile gathers rows at random; its panel is the rows that it gathers. 0: no gather."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Lines of a panel that a wave misses in L2, by L2 partition, as shares of all lines of the panel."""

    memory: tuple[float, ...]
    """Share of lines with their home on each partition that L2 does not hold."""
    crossing: tuple[float, ...]
    """Share of lines, for readers of each partition, whose home is the other partition and that the readers' partition
    lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelTraffic:
    """Bytes that one tensor moves between L2 and memory, and between the L2 partitions."""

    losses: Mapping[int, Mapping[int, Loss]]
    """Lost shares by panel and wave: the waves whose first request for the panel misses lines."""
    read_miss_bytes: float
    written_back_fraction: float
    written_back_bytes: float
    """Distinct stored bytes that leave L2 before the kernel ends."""
    written_back_by_wave: FloatArray
    """Bytes that leave L2 while each wave runs, float64[num_waves]. Most were stored by earlier waves."""
    miss_bytes_by_wave: FloatArray
    """Bytes from memory, float64[num_waves]."""
    touched_bytes_by_wave: FloatArray
    """Bytes of distinct panels that each wave touches, float64[num_waves]."""
    lookup_miss_bytes: float = 0.0
    """Requested bytes that the first lookup, in the SM's own L2 partition, does not find."""
    crossing_bytes: float = 0.0
    """Bytes that miss in the SM's own L2 partition and have their home in the other one, where a second lookup follows."""
    crossing_miss_bytes: float = 0.0
    """Bytes that the second lookup, in the home partition, misses too."""
    times_fetched_by_wave: FloatArray | None = None
    """Fetches from memory of a line that L2 lacks, while each wave runs, float64[num_waves]. None: one.

    More than one where its readers run at very different times (:func:`gpusim.traffic.cta_drift.add_drift_misses`)."""


class PanelLosses(Mapping[int, Mapping[int, Loss]]):
    """Lost shares by panel and wave, computed on lookup: there may be millions of panels.

    Rows are sorted by panel. Panels that a single tile touches share one row per wave and L2 partition.
    """

    def __init__(self, touches: Touches, rows: IntArray, memory: FloatArray, crossing: FloatArray) -> None:
        """Keep the rows of ``touches`` that lose lines.

        Args:
            touches: panels that each step touches.
            rows: int64[n], indices of the rows that lose lines.
            memory: float64[num_partitions, n], as :attr:`Loss.memory`.
            crossing: float64[num_partitions, n], as :attr:`Loss.crossing`.
        """
        self.touches = touches
        self.panels, self.waves = touches.panel[rows], touches.step[rows]
        self.memory, self.crossing = memory.T, crossing.T

    def __getitem__(self, panel: int) -> Mapping[int, Loss]:
        """Lost shares of one panel, by wave. Raises KeyError: the panel loses nothing."""
        group = self.touches.group_of(panel)
        rows = slice(*np.searchsorted(self.panels, (group, group + 1)).tolist())
        if rows.start == rows.stop:
            raise KeyError(panel)
        of_rows = (each[rows].tolist() for each in (self.waves, self.memory, self.crossing))
        return {wave: Loss(tuple(memory), tuple(crossing)) for wave, memory, crossing in zip(*of_rows, strict=True)}

    def __iter__(self) -> Iterator[int]:
        """Panels that lose lines."""
        return iter(self.touches.panels_in(distinct(self.panels)).tolist())

    def __len__(self) -> int:
        """Number of panels that lose lines."""
        return len(self.touches.panels_in(distinct(self.panels)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Wave and L2 partition of each tile. A wave is the set of tiles that run at once.

    A step is the walk of a wave's tiles over their panels. ``wave_of_tile`` int64[num_tiles] is in ascending order.
    ``partition_of_tile`` int64[num_tiles] is the L2 partition of the SM that runs the tile.
    """

    wave_of_tile: IntArray
    partition_of_tile: IntArray
    num_waves: int
    num_partitions: int
    slot_of_tile: IntArray
    """Wave times number of L2 partitions, plus the partition, int64[num_tiles]."""

    @classmethod
    def of(cls, wave_of_tile: IntArray, partition_of_tile: IntArray | None, *, num_partitions: int) -> Order:
        """Build the order from waves and partitions, both int64[num_tiles].

        ``partition_of_tile`` None: partition 0 for all tiles.
        """
        num_waves = int(wave_of_tile.max()) + 1
        partitions = np.zeros_like(wave_of_tile) if partition_of_tile is None else partition_of_tile
        slots = wave_of_tile if num_partitions == 1 else wave_of_tile * num_partitions + partitions
        return cls(
            wave_of_tile=wave_of_tile, partition_of_tile=partitions, num_waves=num_waves, num_partitions=num_partitions,
            slot_of_tile=slots,
        )


@dataclass(kw_only=True)
class Touches:
    """Panels of one tensor that each step touches: rows sorted by panel, then by step.

    Panels that a single tile touches are grouped by wave and L2 partition, because all members of a group behave the same.
    In the row of a group, ``panel`` is the group's number.
    """

    footprint: FootprintRow
    panel: IntArray
    step: IntArray
    num_bytes: FloatArray
    by_partition: NDArray[np.bool_]
    """Flags bool[num_partitions, rows]: SMs of an L2 partition touch the row's panel."""
    slot_of_tile: IntArray | None
    """Wave and L2 partition of each tile that touches anything, where panels are grouped; else None."""
    tiles: IntArray | slice
    """Tiles that touch anything."""

    @classmethod
    def of(cls, row: FootprintRow, order: Order) -> Touches:
        """Build the rows from all tiles, which are sorted only where needed."""
        panels, num_bytes = row.panel_of_tile, row.bytes_of_tile
        tiles: IntArray | slice = slice(None)
        waves, partitions, slots = order.wave_of_tile, order.partition_of_tile, order.slot_of_tile
        if len(num_bytes) and not num_bytes.min():
            tiles = np.flatnonzero(num_bytes)
            panels, num_bytes, waves, partitions, slots = (
                each[tiles] for each in (panels, num_bytes, waves, partitions, slots)
            )
        rows = _own_panels if len(panels) and are_distinct(panels) else _shared_panels
        panel, wave, row_bytes, by_partition = rows(panels, num_bytes, waves, partitions, slots, order)
        return cls(
            footprint=row, panel=panel, step=wave, num_bytes=row_bytes, by_partition=by_partition, tiles=tiles,
            slot_of_tile=slots if rows is _own_panels else None,
        )

    @property
    def has_own_panels(self) -> bool:
        """Whether each panel is touched by a single tile."""
        return self.slot_of_tile is not None

    def touched_bytes(self, order: Order) -> FloatArray:
        """Bytes of distinct panels that each wave touches, float64[num_waves]."""
        return np.bincount(self.step, weights=self.num_bytes, minlength=order.num_waves).astype(np.float64)

    @cached_property
    def slot_of_panel(self) -> IntArray | None:
        """Wave and L2 partition of each panel, -1 where no tile touches it. None where panels are not grouped."""
        if self.slot_of_tile is None:
            return None
        panels = self.footprint.panel_of_tile[self.tiles]
        if _are_in_order(panels):
            return self.slot_of_tile
        found = np.full(int(panels.max(initial=-1)) + 1, -1, dtype=np.int64)
        found[panels] = self.slot_of_tile
        return found

    def group_of(self, panel: int) -> int:
        """Value of ``panel`` in the rows of a panel: itself or its group. -1 where no tile touches it."""
        slots = self.slot_of_panel
        if slots is None:
            return panel
        return slots.item(panel) if 0 <= panel < len(slots) else -1

    def panels_in(self, groups: IntArray) -> IntArray:
        """Panels of the given groups; the inverse of :meth:`group_of`."""
        if self.slot_of_tile is None:
            return groups
        return np.asarray(self.footprint.panel_of_tile[self.tiles][np.isin(self.slot_of_tile, groups)])


Rows = tuple[IntArray, IntArray, FloatArray, NDArray[np.bool_]]


def _are_in_order(panels: IntArray) -> bool:
    """Whether the panels are 0, 1, 2 and so on.

    >>> _are_in_order(np.array([0, 1, 2])), _are_in_order(np.array([0, 2, 1])), _are_in_order(np.array([1, 2, 3]))
    (True, False, False)
    """
    last = len(panels) - 1
    return last >= 0 and bool(panels[0] == 0 and panels[last] == last and (panels[1:] > panels[:-1]).all())


def are_distinct(panels: IntArray) -> bool:
    """Whether no panel occurs twice.

    >>> [are_distinct(np.array(panels)) for panels in ([0, 1, 2], [2, 0, 1], [0, 1, 0])]
    [True, True, False]
    """
    if (panels[1:] > panels[:-1]).all():
        return True
    return len(distinct(panels)) == len(panels)


def _own_panels(
    panels: IntArray, num_bytes: IntArray, waves: IntArray, partitions: IntArray, slots: IntArray, order: Order
) -> Rows:
    """Rows of panels that a single tile touches: one for each wave and L2 partition."""
    del panels, partitions
    num_slots = order.num_waves * order.num_partitions
    by_slot = np.bincount(slots, weights=num_bytes, minlength=num_slots).astype(np.float64)
    groups = np.flatnonzero(by_slot)
    of_partition = groups % order.num_partitions
    return groups, groups // order.num_partitions, by_slot[groups], of_partition == np.arange(order.num_partitions)[:, None]


def _shared_panels(
    panels: IntArray, num_bytes: IntArray, waves: IntArray, partitions: IntArray, slots: IntArray, order: Order
) -> Rows:
    """Rows of panels that tiles share: one for each panel and each wave that touches it."""
    del slots
    num_waves = order.num_waves
    if not len(panels):
        return panels, panels, np.zeros(0), np.zeros((order.num_partitions, 0), dtype=np.bool_)
    found, inverse = np.unique(panels * num_waves + waves, return_inverse=True)
    by_partition = np.zeros((order.num_partitions, len(found)), dtype=np.bool_)
    by_partition[partitions, inverse] = True
    of_row = np.zeros(len(found))
    of_row[inverse] = num_bytes
    return found // num_waves, found % num_waves, of_row, by_partition


def read_traffic(table: Touches, order: Order, memory: FloatArray, crossing: FloatArray) -> PanelTraffic:
    """Traffic of a tensor that is read, from its missing shares by row.

    A line that both L2 partitions read and that only memory holds is missed 1.5 times. The partition that asks first misses
    it. The other one misses it half of the time, because a fill requested by the far partition also fills the line's home.
    Source: kernels/l2_residency, h200_sxm, 2026-11-20.

    Args:
        table: rows of the tensor.
        order: wave and partition of each tile.
        memory: float64[num_partitions, rows], as :attr:`Loss.memory`.
        crossing: float64[num_partitions, rows], as :attr:`Loss.crossing`.
    """
    share = memory.sum(axis=0)
    missed = np.bincount(table.step, weights=share * table.num_bytes, minlength=order.num_waves).astype(np.float64)
    is_lost = np.max([share, *np.where(table.by_partition, crossing, 0.0)], axis=0) > 0.0
    kept = np.flatnonzero(is_lost)
    reading = table.by_partition.sum(axis=0)
    own = np.where(table.by_partition, 1.0 / np.maximum(reading, 1), 0.0)  # share of a missing line's lookups at its home
    crossing_bytes = float((np.where(table.by_partition, crossing, 0.0) * table.num_bytes).sum())
    return PanelTraffic(
        losses=PanelLosses(table, kept, memory[:, kept], crossing[:, kept]), read_miss_bytes=float(missed.sum()),
        written_back_fraction=0.0, written_back_bytes=0.0, written_back_by_wave=np.zeros(order.num_waves),
        miss_bytes_by_wave=missed, touched_bytes_by_wave=table.touched_bytes(order),
        lookup_miss_bytes=crossing_bytes + float((memory * own * table.num_bytes).sum()), crossing_bytes=crossing_bytes,
        crossing_miss_bytes=float((memory * (1.0 - own) * table.num_bytes).sum()),
    )


def previous_rows(table: Touches, *, partition: int | None = None) -> IntArray:
    """Previous row of the same panel for each row, int64[rows]; -1 for none.

    Args:
        table: rows of one tensor.
        partition: an L2 partition, to count only the rows that its SMs touch as previous. None: all rows.
    """
    rows = np.arange(len(table.step))
    is_first = np.ones(len(rows), dtype=np.bool_)
    is_first[1:] = table.panel[1:] != table.panel[:-1]
    begin = np.maximum.accumulate(np.where(is_first, rows, 0))
    last = rows if partition is None else np.maximum.accumulate(np.where(table.by_partition[partition], rows, -1))
    previous = np.concatenate(([-1], last[:-1])) if len(rows) else rows
    return np.asarray(np.where(previous >= begin, previous, -1))


def added_bytes(table: Touches, order: Order) -> FloatArray:
    """Bytes that each step touches in each L2 partition, float64[num_waves, num_partitions].

    Each line has one home. A read or store from the other partition adds a copy there.
    """
    added = np.zeros((order.num_waves, order.num_partitions))
    added += np.bincount(table.step, weights=table.num_bytes, minlength=order.num_waves)[:, None] / order.num_partitions
    if order.num_partitions > 1:
        for partition in range(order.num_partitions):
            copies = table.num_bytes * table.by_partition[partition] * (1.0 - 1.0 / order.num_partitions)
            added[:, partition] += np.bincount(table.step, weights=copies, minlength=order.num_waves)
    return added
