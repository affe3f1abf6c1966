"""The pace at which CTAs that have nothing in common come and go: once it stays, whole waves are left out."""

from __future__ import annotations

from itertools import accumulate, pairwise
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpusim.simulate.engine import Engine

PARTS = 4
"""How often in a wave it is looked how many CTAs have ended."""

FEWEST_LOOKS = 3
"""Looks of a stretch at least. The pace is that from the mean of one stretch to that of the next: what swings about a mean
then cancels, however many CTAs end together."""

STRETCHES = 4
"""Stretches in a row between which the pace is the same."""

SAME_PACE = 3e-3
"""How far the paces between them may lie apart."""

PATIENT_WAVES = 20.0
"""Waves after which they may lie twice as far apart, and so on: grids without a pace must end, too."""


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

    def look(self, num_ended: int) -> int:
        """So many CTAs have ended; returns how many waves to leave out now."""
        engine = self._engine
        self.next_at = num_ended + self._step
        self._cycles.append(engine.reported_cycle)
        self._ended.append(num_ended)
        self._backlogs.append(engine.machine.l2.backlog_bytes)
        at_once = engine.slots_to_run
        num_waves = (engine.num_to_run - engine.next_cta) // at_once - 1
        if num_waves < 1:
            return 0
        pace = settled_pace(self._ended, self._cycles, max(1.0, num_ended / at_once / PATIENT_WAVES))
        first = engine.next_cta // at_once
        if pace is None or self._fills_up(num_waves) or not engine.are_waves_alike(first, first + num_waves, inf):
            return 0
        engine.skip(num_waves * at_once * pace, f"{num_waves} waves", is_of_waves=True)
        self._cycles.clear()
        self._ended.clear()
        self._backlogs.clear()
        return num_waves

    def _fills_up(self, num_waves: int) -> bool:
        """Whether what waits to be written to memory grows, and would hold up stores before the waves are over."""
        now, limit = self._backlogs[-1], self._engine.machine.l2.spec.write_back_queue_bytes
        grown = now - self._backlogs[0]
        waves = len(self._backlogs) / PARTS
        return grown > 0.0 and now <= limit < now + grown / waves * num_waves


def settled_pace(ended: list[int], cycles: list[float], leniency: float) -> float | None:
    """Cycles a CTA, from how many had ended at which cycles, if stretch by stretch it stays; else None.

    >>> settled_pace(list(range(12)), [10.0 * idx + idx % 2 for idx in range(12)], 1.0)
    >>> settled_pace(list(range(16)), [10.0 * idx + idx % 2 for idx in range(16)], 1.0)
    10.0
    """
    num_looks = len(cycles) // STRETCHES
    if num_looks < FEWEST_LOOKS:
        return None
    begin = len(cycles) - STRETCHES * num_looks
    sums = [
        [later - earlier for earlier, later in pairwise(list(accumulate(of_look[begin:], initial=0.0))[::num_looks])]
        for of_look in (ended, cycles)
    ]
    paces = [
        (later - earlier) / (num_later - num_earlier)
        for (num_earlier, num_later), (earlier, later) in zip(pairwise(sums[0]), pairwise(sums[1]), strict=True)
    ]
    mean = (sums[1][-1] - sums[1][0]) / (sums[0][-1] - sums[0][0])
    return mean if max(paces) - min(paces) <= leniency * SAME_PACE * mean else None
