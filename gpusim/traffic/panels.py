"""Who touches what of a tensor: the records of the traffic pass, and the panels that each step of it touches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


def distinct(values: IntArray) -> IntArray:
    """Different values of int64[n], in order: ``np.unique``, which alone imports masked arrays for it (10 ms).

    >>> distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    found: IntArray = np.unique(values, return_index=True)[0]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelUse:
    """Who touches what of one tensor: panel_of_tile int64[num_tiles], bytes_of_tile int64[num_tiles] (its panel's)."""

    tensor: str
    is_write: bool
    panel_of_tile: IntArray
    bytes_of_tile: IntArray
    num_passes: int = 1
    """How often a tile walks its panel from end to end, all tiles of a wave together."""
    cache_hint: str = "evict_normal"
    """Of all its accesses: ``evict_first``, ``evict_last`` (or a window of addresses that persist)."""
    table_bytes: int = 0
    """Of a table out of which a tile reads rows at random: its panel is what it reads. 0: panels are what they are."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What of a tile's lines is not where it would be near, by side; shares of all its lines."""

    memory: tuple[float, ...]
    """Of the lines at home on each side: L2 has them nowhere."""
    crossing: tuple[float, ...]
    """For readers of each side: lines at home on the other one of which theirs has no copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelTraffic:
    """What one tensor costs below L2."""

    losses: Mapping[int, Mapping[int, Loss]]
    """For each panel the waves whose first request for it finds lines missing, and which."""
    read_miss_bytes: float
    written_back_fraction: float
    written_back_bytes: float
    """Of distinct bytes stored, those that leave L2 before the end."""
    written_back_by_wave: FloatArray
    """Bytes that leave L2 while each wave runs, float64[num_waves]: stored by waves before it, mostly."""
    miss_bytes_by_wave: FloatArray
    """Bytes from memory, float64[num_waves]."""
    touched_bytes_by_wave: FloatArray
    """Bytes of distinct panels that each wave touches, float64[num_waves]."""
    losses_again: tuple[Mapping[int, Mapping[int, Loss]], ...] = ()
    """The same for second and later walks over a panel."""
    lookup_miss_bytes: float = 0.0
    """Of what SMs ask for, looked up on their own side first and not found there."""
    crossing_bytes: float = 0.0
    """Of these, what is at home on the other side and looked up there, too."""
    crossing_miss_bytes: float = 0.0
    """Of these, what is in memory only."""
    times_fetched_by_wave: FloatArray | None = None
    """How often a line that is in memory only comes from there while each wave runs, float64[num_waves]: more than once
    where its readers are far apart (:func:`come_apart`). None: once."""


class PanelLosses(Mapping[int, Mapping[int, Loss]]):
    """What is missing of which panel in which wave, looked up when it is asked for: there may be millions.

    Rows are sorted by panel; a panel that only its own tile touches shares its row with all such of its wave and side.
    """

    def __init__(
        self, touches: Touches, rows: IntArray, memory: FloatArray, crossing: FloatArray, *, num_passes: int
    ) -> None:
        """``rows``: those of ``touches`` that lose anything; memory and crossing float64[num_sides, rows]."""
        self.touches = touches
        self.panels, self.waves = touches.panel[rows], touches.step[rows] // num_passes
        self.memory, self.crossing = memory.T, crossing.T

    def __getitem__(self, panel: int) -> Mapping[int, Loss]:
        """Waves of one panel."""
        group = self.touches.group_of(panel)
        rows = slice(*np.searchsorted(self.panels, (group, group + 1)).tolist())
        if rows.start == rows.stop:
            raise KeyError(panel)
        of_rows = (each[rows].tolist() for each in (self.waves, self.memory, self.crossing))
        return {wave: Loss(tuple(memory), tuple(crossing)) for wave, memory, crossing in zip(*of_rows, strict=True)}

    def __iter__(self) -> Iterator[int]:
        """Panels that lose anything."""
        return iter(self.touches.panels_in(distinct(self.panels)).tolist())

    def __len__(self) -> int:
        """How many panels lose anything."""
        return len(self.touches.panels_in(distinct(self.panels)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """When and where tiles run: a wave is what runs at once; a step is one of the walks of its tiles.

    ``wave_of_tile``, ``side_of_tile`` int64[num_tiles], the waves in order.
    """

    wave_of_tile: IntArray
    side_of_tile: IntArray
    num_waves: int
    num_sides: int
    num_passes: int
    slot_of_tile: IntArray
    """Wave times sides, and the side."""

    @classmethod
    def of(cls, wave_of_tile: IntArray, side_of_tile: IntArray | None, *, num_sides: int, num_passes: int) -> Order:
        """One side for all where ``side_of_tile`` is None."""
        num_waves = int(wave_of_tile.max()) + 1
        sides = np.zeros_like(wave_of_tile) if side_of_tile is None else side_of_tile
        slots = wave_of_tile if num_sides == 1 else wave_of_tile * num_sides + sides
        return cls(
            wave_of_tile=wave_of_tile, side_of_tile=sides, num_waves=num_waves, num_sides=num_sides, num_passes=num_passes,
            slot_of_tile=slots,
        )

    @property
    def num_steps(self) -> int:
        """Walks of all waves."""
        return self.num_waves * self.num_passes

    def passes_of(self, use: PanelUse) -> range:
        """Of a wave's walks, those that touch a tensor: reads come first, writes last."""
        return range(self.num_passes - use.num_passes, self.num_passes) if use.is_write else range(use.num_passes)


@dataclass(kw_only=True)
class Touches:
    """Which panels of one tensor each step touches: rows sorted by panel, and then by step.

    Panels that one tile alone touches are taken together where their wave and side are the same, as all that can be said
    of them is: then a row's ``panel`` is the number of that group.
    """

    use: PanelUse
    panel: IntArray
    step: IntArray
    num_bytes: FloatArray
    by_side: NDArray[np.bool_]
    """bool[num_sides, rows]: whether SMs of a side touch it."""
    slot_of_tile: IntArray | None
    """Where panels are taken together: wave and side of each tile that touches anything, else None."""
    tiles: IntArray | slice
    """Of all tiles those that touch anything."""

    @classmethod
    def of(cls, use: PanelUse, order: Order) -> Touches:
        """Look through all tiles, once or a few times, without sorting them where that can be helped."""
        panels, num_bytes = use.panel_of_tile, use.bytes_of_tile
        tiles: IntArray | slice = slice(None)
        waves, sides, slots = order.wave_of_tile, order.side_of_tile, order.slot_of_tile
        if len(num_bytes) and not num_bytes.min():
            tiles = np.flatnonzero(num_bytes)
            panels, num_bytes, waves, sides, slots = (
                each[tiles] for each in (panels, num_bytes, waves, sides, slots)
            )
        rows = _own_panels if len(panels) and are_distinct(panels) else _shared_panels
        panel, wave, row_bytes, by_side = rows(panels, num_bytes, waves, sides, slots, order)
        passes = order.passes_of(use)
        if order.num_passes > 1:
            wave = wave * order.num_passes + passes.start
            if len(passes) > 1:
                wave = (wave[:, None] + np.arange(len(passes))).ravel()
                panel, row_bytes = np.repeat(panel, len(passes)), np.repeat(row_bytes, len(passes))
                by_side = np.repeat(by_side, len(passes), axis=1)
        return cls(
            use=use, panel=panel, step=wave, num_bytes=row_bytes, by_side=by_side, tiles=tiles,
            slot_of_tile=slots if rows is _own_panels else None,
        )

    @property
    def has_own_panels(self) -> bool:
        """Whether no panel is touched by two tiles."""
        return self.slot_of_tile is not None

    def touched_bytes(self, order: Order) -> FloatArray:
        """Of distinct panels, by wave, float64[num_waves]."""
        first = self.step % order.num_passes == order.passes_of(self.use).start
        return np.bincount(
            self.step[first] // order.num_passes, weights=self.num_bytes[first], minlength=order.num_waves
        ).astype(np.float64)

    @cached_property
    def slot_of_panel(self) -> IntArray | None:
        """Wave and side of each panel where they are taken together, -1 where nobody touches it; else None."""
        if self.slot_of_tile is None:
            return None
        panels = self.use.panel_of_tile[self.tiles]
        if _are_in_order(panels):
            return self.slot_of_tile
        found = np.full(int(panels.max(initial=-1)) + 1, -1, dtype=np.int64)
        found[panels] = self.slot_of_tile
        return found

    def group_of(self, panel: int) -> int:
        """What stands in a row for a panel; -1 where nobody touches it."""
        slots = self.slot_of_panel
        if slots is None:
            return panel
        return slots.item(panel) if 0 <= panel < len(slots) else -1

    def panels_in(self, groups: IntArray) -> IntArray:
        """All panels that stand behind what is in rows."""
        if self.slot_of_tile is None:
            return groups
        return np.asarray(self.use.panel_of_tile[self.tiles][np.isin(self.slot_of_tile, groups)])


Rows = tuple[IntArray, IntArray, FloatArray, NDArray[np.bool_]]


def _are_in_order(panels: IntArray) -> bool:
    """Whether they are 0, 1, 2 and so on.

    >>> _are_in_order(np.array([0, 1, 2])), _are_in_order(np.array([0, 2, 1])), _are_in_order(np.array([1, 2, 3]))
    (True, False, False)
    """
    last = len(panels) - 1
    return last >= 0 and bool(panels[0] == 0 and panels[last] == last and (panels[1:] > panels[:-1]).all())


def are_distinct(panels: IntArray) -> bool:
    """Whether no panel is there twice.

    >>> [are_distinct(np.array(panels)) for panels in ([0, 1, 2], [2, 0, 1], [0, 1, 0])]
    [True, True, False]
    """
    if (panels[1:] > panels[:-1]).all():
        return True
    return len(distinct(panels)) == len(panels)


def _own_panels(
    panels: IntArray, num_bytes: IntArray, waves: IntArray, sides: IntArray, slots: IntArray, order: Order
) -> Rows:
    """Panels of a wave and side together, of which each has one tile."""
    del panels, sides
    num_slots = order.num_waves * order.num_sides
    by_slot = np.bincount(slots, weights=num_bytes, minlength=num_slots).astype(np.float64)
    groups = np.flatnonzero(by_slot)
    of_side = groups % order.num_sides
    return groups, groups // order.num_sides, by_slot[groups], of_side == np.arange(order.num_sides)[:, None]


def _shared_panels(
    panels: IntArray, num_bytes: IntArray, waves: IntArray, sides: IntArray, slots: IntArray, order: Order
) -> Rows:
    """A row for each panel and each wave that touches it."""
    del slots
    num_waves = order.num_waves
    if not len(panels):
        return panels, panels, np.zeros(0), np.zeros((order.num_sides, 0), dtype=np.bool_)
    found, inverse = np.unique(panels * num_waves + waves, return_inverse=True)
    by_side = np.zeros((order.num_sides, len(found)), dtype=np.bool_)
    by_side[sides, inverse] = True
    of_row = np.zeros(len(found))
    of_row[inverse] = num_bytes
    return found // num_waves, found % num_waves, of_row, by_side


def read_traffic(table: Touches, order: Order, memory: FloatArray, crossing: FloatArray) -> PanelTraffic:
    """A tensor's traffic, of what is missing row by row, float64[num_sides, rows].

    A line that both sides read and that is in memory alone is missed once and a half: by the side that asks first, and by
    the other one half of the time, as the fill of a line that was asked for across passes its home.
    Source: kernels/l2_residency, h200_sxm, 2026-11-20.
    """
    share = memory.sum(axis=0)
    missed = np.bincount(
        table.step // order.num_passes, weights=share * table.num_bytes, minlength=order.num_waves
    ).astype(np.float64)
    is_lost = np.max([share, *np.where(table.by_side, crossing, 0.0)], axis=0) > 0.0
    of_pass = table.step % order.num_passes
    losses = [
        PanelLosses(table, kept, memory[:, kept], crossing[:, kept], num_passes=order.num_passes)
        for kept in (np.flatnonzero(is_lost & (of_pass == each)) for each in order.passes_of(table.use))
    ]
    reading = table.by_side.sum(axis=0)
    own = np.where(table.by_side, 1.0 / np.maximum(reading, 1), 0.0)  # lookups of a missing line that its home's side makes
    crossing_bytes = float((np.where(table.by_side, crossing, 0.0) * table.num_bytes).sum())
    return PanelTraffic(
        losses=losses[0], losses_again=tuple(losses[1:]), read_miss_bytes=float(missed.sum()), written_back_fraction=0.0,
        written_back_bytes=0.0, written_back_by_wave=np.zeros(order.num_waves), miss_bytes_by_wave=missed,
        touched_bytes_by_wave=table.touched_bytes(order),
        lookup_miss_bytes=crossing_bytes + float((memory * own * table.num_bytes).sum()), crossing_bytes=crossing_bytes,
        crossing_miss_bytes=float((memory * (1.0 - own) * table.num_bytes).sum()),
    )


def previous_rows(table: Touches, *, side: int | None = None) -> IntArray:
    """For each row of ``table`` the one before of the same panel, of those that ``side`` touches; -1 where there is none."""
    rows = np.arange(len(table.step))
    is_first = np.ones(len(rows), dtype=np.bool_)
    is_first[1:] = table.panel[1:] != table.panel[:-1]
    begin = np.maximum.accumulate(np.where(is_first, rows, 0))
    last = rows if side is None else np.maximum.accumulate(np.where(table.by_side[side], rows, -1))
    previous = np.concatenate(([-1], last[:-1])) if len(rows) else rows
    return np.asarray(np.where(previous >= begin, previous, -1))


def added_bytes(table: Touches, order: Order) -> FloatArray:
    """What each step touches on each side, float64[num_steps, num_sides].

    A home place for each line, and a copy on the side of who reads it, or stores it, from across.
    """
    added = np.zeros((order.num_steps, order.num_sides))
    added += np.bincount(table.step, weights=table.num_bytes, minlength=order.num_steps)[:, None] / order.num_sides
    if order.num_sides > 1:
        for side in range(order.num_sides):
            copies = table.num_bytes * table.by_side[side] * (1.0 - 1.0 / order.num_sides)
            added[:, side] += np.bincount(table.step, weights=copies, minlength=order.num_steps)
    return added
