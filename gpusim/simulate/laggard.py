"""The last warp of a role: by how much it is behind the others, which go on without it until they meet."""

from __future__ import annotations

from math import sqrt

from gpusim.workload.token import Token


class Laggard:
    """How far behind the warps that are simulated the last one is.

    Models: each load makes another warp the last, so that delays of loads that follow one another add up as in a random
    walk; who is late finds free what the others took turns at meanwhile (issue slots, the load/store unit, math pipes).
    Ignores: which warp it is; that what it stores comes later, too.
    Source: kernels/memory_bursts (rounds of loads), kernels/memory_bandwidth (loops), h200_sxm, 2026-11-22.
    """

    __slots__ = (
        "asked_bytes", "counted_until", "cycles", "num_alike", "num_meetings", "worked_before", "worked_until",
    )

    def __init__(self) -> None:
        """All warps are there."""
        self.cycles = 0.0
        self.worked_before = 0.0
        """Cycles of shared work when it fell behind."""
        self.worked_until = self.counted_until = 0.0
        """Cycles of shared work when ops began to count as often as they do, and what these counted."""
        self.num_meetings = 0
        self.num_alike = 1.0
        """Loads that one stands for, one behind the other, without a meeting in between."""
        self.asked_bytes = 0.0
        """Of loads since the role last used one."""

    def asks(self, token: Token, num_bytes: float) -> float:
        """A load begins; returns the bytes that are waited for together, its own among them, over its own."""
        token.late_before, token.num_meetings = self.cycles, self.num_meetings
        self.asked_bytes += num_bytes
        return self.asked_bytes / num_bytes if num_bytes else 1.0

    def fall_behind(self, token: Token, late_cycles: float, worked: float) -> None:
        """Most warps use a load now, whose last part comes ``late_cycles`` later.

        ``worked``: cycles of shared work so far.
        """
        if late_cycles <= 0.0:
            return
        still = max(0.0, self.cycles - (worked - self.worked_before))
        before = min(token.late_before, still) if token.num_meetings == self.num_meetings else 0.0
        late = sqrt(before * before + late_cycles * late_cycles * self.num_alike)
        self.cycles, self.worked_before = max(late, still), worked

    def meet(self, worked: float) -> float:
        """All warps are waited for; returns how long."""
        self.num_meetings += 1
        late, self.cycles = self.cycles - (worked - self.worked_before), 0.0
        return max(0.0, late)
