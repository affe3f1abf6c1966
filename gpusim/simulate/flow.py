"""The pace at which CTAs that have nothing in common come and go: once it stays, whole waves are left out."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt
from typing import TYPE_CHECKING

import numpy as np

from gpusim.machine.numeric import sum_in_order

if TYPE_CHECKING:
    from gpusim.simulate.engine import Engine

PARTS = 4
"""How often in a wave it is looked how many CTAs have ended."""

FEWEST_LOOKS = 3
"""Looks of a stretch at least. The pace is that from the mean of one stretch to that of the next: what swings about a mean
then cancels, however many CTAs end together."""

STRETCHES = 4
"""Stretches in a row between which the pace is the same."""

SAME_PACE, NEAR_PACE = 1e-3, 3e-3
"""How far the paces between them may lie apart: between stretches of few looks, and of many."""

CERTAINTY = 2e-3
"""Error of the pace, by how far the looks lie from it."""

MANY_LOOKS = 5
"""Looks of a stretch that are many."""

LIKE_THOSE_BEFORE = 8
"""Waves with edge tiles whose mean work must be that of those to come."""

WIRE_LOOKS = 3 * PARTS
"""Looks over which what waits for memory's wire must stay, for what it was given to set the pace."""

IDLE_WIRE = 1e-3
"""Part of the later half of the time so far, these looks at least, in which it may have been idle."""

LEAST_WAIT = 1.5
"""Looks' worth of bytes that wait for memory where it bounds CTAs for good: with fewer its wire may fall idle later on, as
with reads of 4 KiB a CTA (one look's worth; a tenth slower later). A choice.
"""
EVEN_WAIT = 0.4
"""How far what waits for it may swing meanwhile, of its mean: where it comes in surges, the wire falls idle in between."""

FEW_WAVES = 30
"""Waves of a grid below which that is not asked: how far CTAs have drifted apart shows in a grid's end, by a tenth of a
wave."""

FORGOTTEN = (0.0, 0.25, 0.5)
"""Parts of the looks, from the first on, without which the pace is looked for."""

PATIENT_WAVES = 12.0
"""Waves after which they may lie twice as far apart, and so on: grids without a pace must end, too."""


WRITTEN_TOLERANCE = 5e-3
"""How much less a wave may write back than those to come on average, of what it touches: at 2 % waves of before L2 was full
were looked at, and copies of 256 MiB were 0.5 % too quick."""


class Flow:
    """Watches CTAs end, and says how many waves may be left out.

    CTAs of such grids drift apart and run into one another's waves, so that a wave has no end; and yet so many end a cycle.
    """

    def __init__(self, engine: Engine) -> None:
        """Nothing has ended."""
        self._engine = engine
        self.next_at = engine.slots_to_run
        """CTAs that have ended when it is to be looked again."""
        self._step = max(1, engine.slots_to_run // PARTS)
        self._cycles: list[float] = []
        self._ended: list[int] = []
        self._backlogs: list[float] = []
        self._moved: list[float] = []
        self._wire: list[tuple[float, float, float, float, float]] = []
        """What memory's wire has moved; reads and write-backs that it was given, in bytes and in what they take of it."""

    def look(self, num_ended: int) -> int:
        """So many CTAs have ended; returns how many waves to leave out now."""
        engine = self._engine
        self.next_at = num_ended + self._step
        self._cycles.append(engine.reported_cycle)
        self._ended.append(num_ended)
        hbm = engine.machine.hbm
        self._backlogs.append(hbm.pending_bytes)
        self._moved.append(hbm.counters.read_bytes + hbm.counters.write_bytes)
        reads, writes = hbm.read_work, hbm.write_work
        self._wire.append((hbm.wire.served(), reads.num_bytes, reads.taken_bytes, writes.num_bytes, writes.taken_bytes))
        at_once = engine.slots_to_run
        num_waves = (engine.num_to_run - engine.next_cta) // at_once - 1
        if num_waves < 1:
            return 0
        first = engine.next_cta // at_once
        self._forget_unlike(first + num_waves, at_once)
        pace = self._pace_of_wire(first, first + num_waves)
        if pace is None:
            pace = settled_pace(self._ended, self._cycles, max(1.0, num_ended / at_once / PATIENT_WAVES))
            if pace is None or self._fills_up(num_waves):
                return 0
        if engine.draw is None:
            num_waves = num_waves if engine.are_waves_alike(first, first + num_waves, inf) else 0
        else:  # edges lie in some waves and not in others
            num_waves = (num_waves + 1) // 2  # those behind pay for kinds that were drawn too often or too seldom
            earlier = max(0, first - LIKE_THOSE_BEFORE)
            while num_waves and not engine.are_means_alike(earlier, first, first + num_waves):
                num_waves //= 2
        if not num_waves:
            return 0
        engine.skip(num_waves * at_once * pace, f"{num_waves} waves", is_of_waves=True)
        self._cycles.clear()
        self._ended.clear()
        self._backlogs.clear()
        self._moved.clear()
        self._wire.clear()
        return num_waves

    def _forget_unlike(self, last: int, at_once: int) -> None:
        """Forget looks at waves while which less left L2, or more, than while those to come run."""
        while self._ended and not self._is_like_those_to_come(self._ended[0] // at_once, last):
            for looks in (self._cycles, self._ended, self._backlogs, self._moved, self._wire):
                del looks[0]

    def _is_like_those_to_come(self, wave: int, last: int) -> bool:
        """Whether as much leaves L2 while ``wave`` runs as in each up to ``last``; with edge tiles, as in their mean."""
        engine = self._engine
        if engine.draw is None:
            return engine.are_write_backs_alike(wave, last) and engine.is_write_back_usual(wave, last, WRITTEN_TOLERANCE)
        return engine.are_means_alike(wave, wave + 1, last)

    def _pace_of_wire(self, first: int, last: int) -> float | None:
        """Cycles a CTA of waves from ``first`` up to ``last``, where memory bounds them; else None.

        Its wire was never idle of late, and what waits for it neither grows nor shrinks: CTAs then end as fast as it moves
        what they give it, which is known by plan, long before as many have ended that their own pace is certain.
        """
        engine, wire = self._engine, self._wire
        if engine.draw is not None or engine.sample.fraction < 1.0 or len(wire) < WIRE_LOOKS:
            return None
        at_once = engine.slots_to_run
        if engine.num_to_run < FEW_WAVES * at_once:
            return None
        num_looks = max(WIRE_LOOKS, self._ended[-1] // self._step // 2)
        if len(wire) < num_looks:
            return None
        since, until = wire[-num_looks], wire[-1]
        moved, reads, taken_by_reads, writes, taken_by_writes = (
            later - earlier for earlier, later in zip(since, until, strict=True)
        )
        pipe = engine.machine.hbm.wire
        if moved < (1.0 - IDLE_WIRE) * pipe.total * (self._cycles[-1] - self._cycles[-num_looks]):
            return None
        waiting, half = self._backlogs[-WIRE_LOOKS:], WIRE_LOOKS // 2
        if max(waiting) - min(waiting) > EVEN_WAIT * sum_in_order(waiting) / WIRE_LOOKS:
            return None
        if min(waiting) < LEAST_WAIT * moved / (num_looks - 1):
            return None
        earlier, later = (sum_in_order(part) / half for part in (waiting[:half], waiting[half:]))
        if abs(later - earlier) > NEAR_PACE * moved * half / (num_looks - 1):
            return None
        per_wave = 0.0
        for planned, num_bytes, taken in (
            (engine.miss_bytes_by_wave, reads, taken_by_reads), (engine.written_back_by_wave, writes, taken_by_writes),
        ):  # fmt: skip
            of_waves = float(planned[first:last].mean())
            if of_waves and not num_bytes:
                return None
            per_wave += of_waves * taken / num_bytes if num_bytes else 0.0
        return per_wave / pipe.total / at_once

    def _fills_up(self, num_waves: int) -> bool:
        """Whether what waits for memory grows in a grid that stores: the pace is that of a queue which has not filled yet.

        Where the link between L2's sides is little faster than memory, what is under way moves from one queue to the
        other, wave by wave.
        """
        num_looks = len(self._backlogs) // 4
        if not num_looks:
            return True
        if not self._engine.written_back_bytes_of_wave:
            return False
        earlier = sum_in_order(self._backlogs[-2 * num_looks : -num_looks]) / num_looks
        later = sum_in_order(self._backlogs[-num_looks:]) / num_looks
        grown = (later - earlier) / num_looks  # from look to look, of late
        moved = (self._moved[-1] - self._moved[0]) / (len(self._moved) - 1)
        most = self._engine.machine.l2.spec.write_back_queue_bytes
        return grown > NEAR_PACE * moved and grown * PARTS * num_waves > most


def settled_pace(ended: Sequence[int], cycles: Sequence[float], leniency: float) -> float | None:
    """Cycles a CTA, from how many had ended at which cycles, if stretch by stretch it stays; else None.

    The first looks are forgotten where the last ones alone agree.

    >>> settled_pace(range(20), [10.0 * idx + idx % 2 for idx in range(20)], 1.0)
    >>> settled_pace(range(24), [10.0 * idx + idx % 2 for idx in range(24)], 1.0)
    10.0
    """
    for part in FORGOTTEN:
        num_looks = (len(cycles) - int(len(cycles) * part)) // STRETCHES
        if num_looks < FEWEST_LOOKS:
            return None
        begin = len(cycles) - STRETCHES * num_looks
        num, at = (np.asarray(looks[begin:], dtype=np.float64) for looks in (ended, cycles))
        of_stretch = [looks.reshape(STRETCHES, num_looks).mean(axis=1) for looks in (num, at)]
        paces = np.diff(of_stretch[1]) / np.diff(of_stretch[0])
        mean = float((of_stretch[1][-1] - of_stretch[1][0]) / (of_stretch[0][-1] - of_stretch[0][0]))
        apart = SAME_PACE if num_looks < MANY_LOOKS else NEAR_PACE
        swing = float(np.std(at - mean * num)) / (mean * (num[-1] - num[0]))
        is_sure = swing * sqrt(12.0 / len(num)) <= leniency * CERTAINTY  # of a line through as many points
        if is_sure and float(np.ptp(paces)) <= leniency * apart * mean:
            return mean
    return None
