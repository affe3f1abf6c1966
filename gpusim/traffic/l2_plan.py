"""L2 traffic plan: the share of each panel that L2 holds when a wave requests it. Nothing is timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gpusim.machine.exact_array_math import along
from gpusim.machine.exact_math import sum_in_order
from gpusim.machine.memory.l2_capacity import CERTAIN, L2Partitions
from gpusim.traffic.gather_plan import table_added_bytes, table_traffic
from gpusim.traffic.panels import (
    FloatArray,
    FootprintRow,
    IntArray,
    Order,
    PanelTraffic,
    Touches,
    added_bytes,
    distinct,
    previous_rows,
    read_traffic,
)

MOST_EDGES = 400
"""Points of a launch between which write-backs are taken to be spread evenly."""
MOST_PASSES = 64
"""Upper bound of launches before a warm one. The loop ends earlier, when one more launch would change nothing."""
LONG_AGO = -1e30


def panel_traffic(
    footprints: Sequence[FootprintRow], wave_of_tile: IntArray, *, l2: L2Partitions,
    partition_of_tile: IntArray | None = None, is_warm: bool,
) -> dict[str, PanelTraffic]:
    """Classify the first request of each wave for each panel: near L2 partition, far L2 partition, or memory.

    A wave is the set of tiles that run at once. Its tiles walk their panels slice by slice together. All bytes that are
    touched in an L2 partition between two waves' touches of a slice count against it. These are reads and stores of the
    partition's SMs, and home lines that the other partition reads. A store occupies the home line and, if the home is far, a
    copy in the storing SM's partition.

    A home line that is read only through copies ages slowly. Within a launch it keeps its place. Earlier launches
    (``is_warm``) have evicted it; only readers that have lost their copy renew it. Lines that an earlier launch left dirty
    are written back as the next launch touches and stores more. A line that the next launch stores first is not. Cache hints
    of earlier launches are ignored.

    Args:
        footprints: one entry for each tensor; arrays int64[num_tiles].
        wave_of_tile: int64[num_tiles], in ascending order.
        l2: capacity of the L2 partitions.
        partition_of_tile: int64[num_tiles], L2 partition of the SM that runs a tile; needed with two partitions.
        is_warm: whether earlier launches did the same, until one more changes nothing. All bytes of one launch are touched
            between two launches' touches of a line.
    """
    order = Order.of(wave_of_tile, partition_of_tile, num_partitions=l2.num)
    tables = [Touches.of(row, order) for row in footprints]
    by_table = [(table_added_bytes if table.footprint.table_bytes else added_bytes)(table, order) for table in tables]
    ages = Ages.of(tables, by_table, l2)
    now = ages.every
    writes = [table for table in tables if table.footprint.is_write]
    found = {table.footprint.tensor: _stored(table, order, l2, ages, is_warm=is_warm) for table in writes}
    for table, added in zip(tables, by_table, strict=True):
        if table.footprint.table_bytes:
            others = now - np.concatenate((np.zeros((1, l2.num)), np.cumsum(added, axis=0)))
            found[table.footprint.tensor] = table_traffic(table, order, l2, others, is_warm=is_warm)
    if is_warm:
        nothing = np.zeros_like(by_table[0])
        of_tables = sum((each for table, each in zip(tables, by_table, strict=True) if table.footprint.table_bytes), nothing)
        found |= _after_launches([table for table in tables if not table.footprint.table_bytes], order, l2, of_tables)
    else:
        read = [table for table in tables if table.footprint.tensor not in found]
        found |= {table.footprint.tensor: _after_a_flush(table, order, l2, ages) for table in read}
    return {row.tensor: found[row.tensor] for row in footprints}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ages:
    """Bytes touched before each step and at the end, by their effect on other lines: float64[num_steps + 1, num_partitions].

    Lines read with evict_first take no space from others. Lines stored with evict_first take at most the dirty capacity.
    Home lines with evict_last have reserved space, which other lines lack.
    """

    l2: L2Partitions
    every: FloatArray
    stored: FloatArray
    """Bytes stored, at their home partition."""
    plain: FloatArray
    stored_first: FloatArray
    last: FloatArray
    """Bytes touched with evict_last, at their home partition."""
    again: FloatArray | None
    """Bytes touched before each step whose previous touch was before another step: float64[num_partitions, step, other].

    None where there are too many steps; then a line touched in several steps counts each time."""

    @classmethod
    def of(cls, tables: Sequence[Touches], added: Sequence[FloatArray], l2: L2Partitions) -> Ages:
        """Sum ``added``, the bytes that each table touches in each step, float64[num_steps, num_partitions]."""

        def so_far(is_chosen: Callable[[FootprintRow], bool], *, is_home: bool = False) -> FloatArray:
            found = np.zeros((len(added[0]) + 1, l2.num))
            for table, of_table in zip(tables, added, strict=True):
                if is_chosen(table.footprint):
                    found[1:] += _at_home(table, len(of_table), l2.num) if is_home else of_table
            return np.cumsum(found, axis=0)

        return cls(
            l2=l2, every=so_far(lambda row: not row.is_in_place), stored=so_far(lambda row: row.is_write, is_home=True),
            plain=so_far(lambda row: row.cache_hint != "evict_first" and not row.is_in_place),
            stored_first=so_far(lambda row: row.is_write and row.cache_hint == "evict_first", is_home=True),
            last=so_far(lambda row: row.cache_hint == "evict_last", is_home=True),
            again=_touched_again(tables, len(added[0]), l2.num),
        )

    def between(self, begin: IntArray, end: IntArray, partition: int) -> FloatArray:
        """Bytes of distinct lines touched from steps ``begin`` until steps ``end``, without hints."""
        touched = self.plain[end, partition] - self.plain[begin, partition]
        if self.again is None:
            return np.asarray(touched)
        again = self.again[partition]
        before = again[end, begin] - again[begin, begin]  # last touched before the interval, and touched again in it
        return np.asarray(touched - (again[end, -1] - again[begin, -1] - before))

    def between_launches(self, begin: IntArray, end: IntArray, partition: int) -> FloatArray:
        """Bytes of distinct lines between two steps, as :meth:`between`, where ``end`` may lie in the next launch.

        Steps of the next launch count on from the number of steps. Its part is at most the bytes of one launch.
        """
        last = np.full_like(begin, len(self.plain) - 1)
        begins, ends = np.minimum(begin, last), np.minimum(end, last)
        found = self.between(begins, ends, partition)
        beyond, none = np.maximum(end - last, 0), np.zeros_like(last)
        after = self.between(np.maximum(begin - last, 0), beyond, partition)
        return np.where(beyond > 0, np.minimum(found + after, self.between(none, last, partition)), found)

    def lost_share(self, begin: IntArray, end: IntArray, partition: int, hint: str, *, is_home: bool) -> FloatArray:
        """Share of the lines lost that were touched in steps ``begin`` and are requested in steps ``end``."""
        l2 = self.l2
        if hint == "evict_first":
            since = self.every[end, partition] - self.every[begin, partition]
            is_full = l2.lost_share(self.every[end, partition])
            return np.asarray(np.minimum(is_full, replace(l2, partition_bytes=l2.first_bytes).lost_share(since)))
        since = self.between(begin, end, partition)
        since = since + np.minimum(self.stored_first[end, partition] - self.stored_first[begin, partition], l2.dirty_bytes)
        if hint != "evict_last":
            return np.asarray(l2.lost_share(since + np.minimum(self.last[begin, partition], l2.last_bytes)))
        lost = l2.lost_share(since)
        if is_home and l2.last_bytes:
            since_last = self.last[end, partition] - self.last[begin, partition]
            lost = np.where(since_last <= l2.last_bytes * (1.0 + CERTAIN), 0.0, lost)
        return np.asarray(lost)


MOST_STEPS = 512
"""Steps up to which the previous touch of each byte is tracked."""


def _touched_again(tables: Sequence[Touches], num_steps: int, num_partitions: int) -> FloatArray | None:
    """Sums for :attr:`Ages.again`, over steps and over the steps of the previous touch."""
    if num_steps > MOST_STEPS:
        return None
    found = np.zeros((num_partitions, num_steps + 1, num_steps + 1))
    for table in tables:
        if table.has_own_panels or table.footprint.cache_hint == "evict_first":
            continue
        home = previous_rows(table)
        for partition in range(num_partitions):
            parts = [(home, table.num_bytes / num_partitions)]
            if num_partitions > 1:
                copied = np.where(table.by_partition[partition], table.num_bytes * (1.0 - 1.0 / num_partitions), 0.0)
                parts.append((previous_rows(table, partition=partition), copied))
            for previous, num_bytes in parts:
                rows = np.flatnonzero(previous >= 0)
                np.add.at(found[partition], (table.step[rows] + 1, table.step[previous[rows]] + 1), num_bytes[rows])
    if not found.any():
        return None
    return np.asarray(found.cumsum(axis=1).cumsum(axis=2))


def _at_home(table: Touches, num_steps: int, num_partitions: int) -> FloatArray:
    """Bytes of home lines that each step touches in each L2 partition, float64[num_steps, 1]."""
    found = np.bincount(table.step, weights=table.num_bytes, minlength=num_steps) / num_partitions
    return np.asarray(found[:, None])


# ---------------------------------------------------------------------------------------------- a cold launch
def _after_a_flush(table: Touches, order: Order, l2: L2Partitions, ages: Ages) -> PanelTraffic:
    """Traffic of one tensor that is read, where L2 was empty before the launch."""
    hint = table.footprint.cache_hint
    num, step, by_partition = l2.num, table.step, table.by_partition

    def lost_since(last_row: IntArray, partition: int, *, is_home: bool) -> FloatArray:
        found = ages.lost_share(step[np.maximum(last_row, 0)], step, partition, hint, is_home=is_home)
        lost: FloatArray = np.where(last_row >= 0, found, 1.0)
        return lost

    copy_lost = [lost_since(previous_rows(table, partition=partition), partition, is_home=False) for partition in range(num)]
    last_row = previous_rows(table)
    memory, crossing = np.zeros((num, len(step))), np.zeros((num, len(step)))
    for home in range(num):
        lost = lost_since(last_row, home, is_home=True)
        missing = np.where(by_partition[home], lost, 0.0)
        for other in range(num):
            if other != home:
                across = np.where(by_partition[other], copy_lost[other], 0.0)
                crossing[other] += np.where(by_partition[other], across, 1.0) / num
                missing = np.where(by_partition[home], missing, np.maximum(missing, np.minimum(lost, across)))
        memory[home] = missing / num
    return read_traffic(table, order, memory, crossing)


def _stored(table: Touches, order: Order, l2: L2Partitions, ages: Ages, *, is_warm: bool) -> PanelTraffic:
    """Traffic of a tensor that is stored: lines that leave L2 before they are stored again, or before the launch ends.

    A stored line is evicted as any line. Or it is written back, and L2 keeps a clean copy, when more bytes have been stored
    since than may wait dirty. With ``is_warm``, lines still dirty at the end of a launch leave during the next. As many of
    the previous launch leave during this one.
    """
    num, step, dirty = l2.num, table.step, replace(l2, partition_bytes=l2.dirty_bytes)
    until = np.full(len(step), order.num_waves)
    has_next = table.panel[1:] == table.panel[:-1]
    until[:-1][has_next] = step[1:][has_next]
    if is_warm and len(step):
        first = np.flatnonzero(np.concatenate(([True], ~has_next)))
        is_last = np.concatenate((~has_next, [True]))
        until[is_last] = order.num_waves + step[first]
    is_again = until >= order.num_waves if is_warm else np.zeros(len(step), dtype=bool)
    after = np.where(is_again, step, step + 1)  # a launch that follows stores at the same place of its step
    stored_by, touched_by = (_again(now) if is_warm else now for now in (ages.stored, ages.every))
    leaving = np.zeros(len(step))
    for home in range(num):
        end, now = stored_by[until, home], stored_by
        waiting = dirty.mean_lost_share(np.maximum(0.0, end - now[after, home]), end - now[step, home])
        next_step = np.minimum(after, until)
        lost = l2.mean_lost_share(ages.between_launches(next_step, until, home), ages.between_launches(step, until, home))
        leaving += np.maximum(lost, waiting) / num
    of_step = np.bincount(step, weights=leaving * table.num_bytes, minlength=order.num_waves).astype(np.float64)
    stored, left = float(table.num_bytes.sum()), float(of_step.sum())
    kinds = ((touched_by, l2), (stored_by, dirty))
    return PanelTraffic(
        losses={}, read_miss_bytes=0.0, written_back_fraction=left / stored if stored else 0.0, written_back_bytes=left,
        written_back_by_wave=_by_wave(of_step, order, kinds), miss_bytes_by_wave=np.zeros(order.num_waves),
        touched_bytes_by_wave=table.touched_bytes(order),
    )


def _again(now: FloatArray) -> FloatArray:
    """Sums before each step and at the end, continued through a second launch of the same kind."""
    return np.concatenate((now, now[1:] + now[-1]))


def _by_wave(leaving: FloatArray, order: Order, kinds: Sequence[tuple[FloatArray, L2Partitions]]) -> FloatArray:
    """Bytes that leave L2 while each wave runs, float64[num_waves], from those of each step: ``leaving`` float64[num_steps].

    ``kinds``: pairs of bytes touched or stored so far, and the capacity that they fill. Lines leave as lines of their age
    are lost, the last of them before the end. Where ``kinds`` go on through a second launch (:func:`_again`), the last leave
    before its end. What leaves during the second launch also leaves this one, as lines of the previous launch. Launches of
    many steps are divided into intervals.
    """
    num_steps, is_followed = order.num_waves, len(kinds[0][0]) > order.num_waves + 1
    edges = distinct(np.linspace(0, num_steps, min(num_steps, MOST_EDGES) + 1).astype(np.int64))
    of_stretch = np.add.reduceat(leaving, edges[:-1])
    ends = np.concatenate((edges, num_steps + edges[1:])) if is_followed else edges
    is_later = np.arange(len(ends)) > np.arange(len(edges) - 1)[:, None]
    begin, end = np.nonzero(is_later)
    of_later = np.zeros(len(begin))  # share of an interval's stores that is lost by a later edge
    for now, held in kinds:
        at, num_partitions = now[ends], now.shape[1]
        shares = [
            held.mean_lost_share(
                np.maximum(0.0, at[end, home] - at[begin + 1, home]), np.maximum(0.0, at[end, home] - at[begin, home])
            )
            for home in range(num_partitions)
        ]
        of_later = np.maximum(of_later, np.mean(shares, axis=0))
    lost = np.zeros(is_later.shape)  # (interval, edge)
    lost[is_later] = of_later
    lost = np.maximum.accumulate(lost, axis=1)
    final = lost[:, -1:]
    lost = np.where(final > 0.0, lost / np.where(final > 0.0, final, 1.0), is_later)
    by_edge = np.concatenate(([0.0], np.cumsum(np.diff((of_stretch[:, None] * lost).sum(axis=0)))))
    by_step = along(np.arange(ends[-1] + 1), ends, by_edge)
    by_wave = np.diff(by_step)
    return np.asarray(by_wave.reshape(-1, order.num_waves).sum(axis=0))


def shares_of_stores(written_back: FloatArray, stored: FloatArray) -> list[float]:
    """Bytes that leave L2 while each wave runs, as a share of the bytes that it stores; both float64[num_waves].

    Bytes that leave while a wave stores nothing count for the next wave that stores.

    >>> shares_of_stores(np.array([0.0, 2.0, 8.0, 6.0]), np.array([4.0, 4.0, 0.0, 8.0]))
    [0.0, 0.5, 0.0, 1.75]
    """
    waves = np.flatnonzero(stored > 0.0)
    shares = np.zeros(len(stored))
    if len(waves):
        until = np.cumsum(written_back)[waves]
        until[-1] = written_back.sum()
        shares[waves] = np.diff(until, prepend=0.0) / stored[waves]
    return [float(share) for share in shares]


# ---------------------------------------------------------------------------------------------- a warm launch
def _after_launches(
    tables: Sequence[Touches], order: Order, l2: L2Partitions, of_tables: FloatArray
) -> dict[str, PanelTraffic]:
    """Traffic of every tensor that is read, where earlier launches did the same.

    ``of_tables``: bytes that each step gathers from tables in addition, float64[num_steps, num_partitions].
    """
    is_even = all(table.has_own_panels for table in tables)
    num_steps = 1 if is_even else order.num_waves  # all panels were touched equally long ago: one step suffices
    more = of_tables.sum(axis=0, keepdims=True) if is_even else of_tables
    recencies = [_Recency.of(table, l2, num_steps) for table in tables]
    now = np.zeros(l2.num)
    before = -1.0
    for _ in range(MOST_PASSES):
        begun = now
        now = _walk(recencies, l2, now, more)
        missed = sum_in_order(recency.missed_bytes() for recency in recencies) + float((now - begun).sum())
        if abs(missed - before) <= CERTAIN * missed:
            break
        before = missed
    _walk(recencies, l2, now, more)
    return {
        recency.table.footprint.tensor: read_traffic(recency.table, order, recency.memory, recency.crossing)
        for recency in recencies if not recency.table.footprint.is_write
    }  # fmt: skip


@dataclass(slots=True, kw_only=True)
class _Recency:
    """Last touch of the lines of one tensor, and the missing shares of a launch by row."""

    table: Touches
    rows_of_step: list[IntArray]
    places: IntArray
    """Index into :attr:`touched_at` of the panel of each row."""
    touched_at: list[list[FloatArray]]
    """Bytes touched in a partition before the lines were last touched there: by home partition, by partition, by panel."""
    memory: FloatArray
    crossing: FloatArray
    """Missing shares of the last simulated launch, float64[num_partitions, rows]."""

    @classmethod
    def of(cls, table: Touches, l2: L2Partitions, num_steps: int) -> _Recency:
        """Start with a tensor of which no line has been touched."""
        found, places = np.unique(table.panel, return_inverse=True)
        step = table.step if num_steps > 1 else np.zeros_like(table.step)
        by_step = np.argsort(step, kind="stable")
        bounds = np.searchsorted(step[by_step], np.arange(num_steps + 1)).tolist()
        return cls(
            table=table, rows_of_step=[by_step[begin:end] for begin, end in pairwise(bounds)], places=places,
            touched_at=[[np.full(len(found), LONG_AGO) for _ in range(l2.num)] for _ in range(l2.num)],
            memory=np.zeros((l2.num, len(step))), crossing=np.zeros((l2.num, len(step))),
        )

    def touch(self, step: int, began: FloatArray, now: FloatArray, l2: L2Partitions) -> FloatArray:
        """Record the lines that are lost in a step, touch all its lines, and return the bytes touched in each L2 partition.

        ``began``: bytes touched before the launch. Readers of copies do not renew the home line.
        """
        rows = self.rows_of_step[step]
        panels, by_partition, is_write = self.places[rows], self.table.by_partition[:, rows], self.table.footprint.is_write
        of_home = self.table.num_bytes[rows] / l2.num
        added = np.zeros(l2.num)
        crossing = np.zeros((l2.num, len(rows)))
        for home in range(l2.num):
            at_home, here = self.touched_at[home][home], by_partition[home]
            lost = l2.lost_share(_between(at_home[panels], began[home], now[home]))
            fetched = here.astype(np.float64)  # share of the home lines that is touched
            missing = np.where(here, lost, 0.0)
            for other in range(l2.num):
                if other == home:
                    continue
                there, copies = by_partition[other], self.touched_at[home][other]
                if is_write:
                    across = there.astype(np.float64)
                else:
                    across = l2.lost_share(_between(copies[panels], began[other], now[other]))
                    crossing[other] += np.where(there, across, 1.0) / l2.num
                    across = np.where(there, across, 0.0)
                    missing = np.where(here, missing, np.maximum(missing, np.minimum(lost, across)))
                fetched = np.maximum(fetched, across)
                copies[panels[there]] = now[other]
                added[other] += float(of_home[there].sum())
            self.memory[home, rows] = 0.0 if is_write else missing / l2.num
            at_home[panels] = fetched * now[home] + (1.0 - fetched) * at_home[panels]
            added[home] += float((of_home * fetched).sum())
        self.crossing[:, rows] = crossing
        return added

    def end(self, began: FloatArray) -> None:
        """End a launch: for the next one, every line was last touched by an earlier launch."""
        for of_home in self.touched_at:
            for of_partition, at in zip(of_home, began.tolist(), strict=True):
                np.minimum(of_partition, at, out=of_partition)

    def missed_bytes(self) -> float:
        """Bytes from memory of the last simulated launch."""
        return float((self.memory.sum(axis=0) * self.table.num_bytes).sum())


def _walk(recencies: Sequence[_Recency], l2: L2Partitions, now: FloatArray, more: FloatArray) -> FloatArray:
    """Walk one launch that begins after ``now`` bytes touched in each partition; return the bytes at its end."""
    began = now
    for step, others in enumerate(more):
        now = now + sum((recency.touch(step, began, now, l2) for recency in recencies), others)
    for recency in recencies:
        recency.end(began)
    return now


def _between(touched_at: FloatArray, began: float, now: float) -> NDArray[np.float64]:
    """Bytes since lines were last touched, counted up to the launch's begin if the touch was before it."""
    return np.where(touched_at < began, began, now) - touched_at
