"""mbarriers: phases, arrivals, transaction bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpusim.errors import HazardError
from gpusim.machine.component import Component

MOST_ENDS = 12
"""Arrivals that an MbarrierUnit remembers; more than roles that are ahead of the clock issue meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MbarrierSpec:
    """What synchronizing on an mbarrier costs."""

    arrive_cycles: float
    """What an arrival takes of the issuing warp while the queue has room."""
    arrive_interval_cycles: float
    """Between two arrivals that count, on one SM, and from the issue of one until it counts."""
    max_queued_arrivals: int
    """Arrivals that are issued before one waits for those ahead of it."""
    try_wait_cycles: float
    """A try_wait that finds its phase complete; one that does not puts the warp to sleep after as long."""
    wake_cycles: float
    """From a phase's completion until a warp that sleeps goes on."""
    lone_try_wait_cycles: float
    """A try_wait of one lane, while the others of its warp stand elsewhere, that finds its phase complete."""
    lone_retry_cycles: float
    """What each try that fails adds to that."""


class MbarrierUnit(Component):
    """What takes the arrivals of one SM's warps.

    Models: one arrival after the other, an interval apart, and a queue before it, so that the first ones cost no more than
    their issue.
    Ignores: waits in the same queue; a queue for each sub-core; lanes of a warp, which arrive together.
    Source: the GPU's description.
    """

    kind = "mbarrier"
    __slots__ = ("_ends", "_forgotten_until", "_interval_cycles", "_lag_cycles", "spec")

    def __init__(self, spec: MbarrierSpec) -> None:
        """An empty queue."""
        self.spec = spec
        self._interval_cycles = spec.arrive_interval_cycles
        self._forgotten_until = 0.0
        self._ends: list[float] = []
        """When the last few arrivals were taken, in order: each has had the unit for an interval before."""
        self._lag_cycles = max(0.0, spec.max_queued_arrivals * (spec.arrive_interval_cycles - spec.arrive_cycles))

    def arrive(self, at_cycle: float) -> tuple[float, float]:
        """(cycle at which the warp goes on, cycle at which the arrival counts) of one that is issued at ``at_cycle``."""
        ends = self._ends
        if not ends or at_cycle >= ends[-1]:
            end = at_cycle + self._interval_cycles
            ends.append(end)
        else:
            end = self._take_turn(at_cycle)
        if len(ends) > MOST_ENDS:
            self._forgotten_until = ends.pop(0)
        issued = at_cycle + self.spec.arrive_cycles
        goes_on = max(issued, end - self._lag_cycles)
        return goes_on, max(issued, end)

    def _take_turn(self, at_cycle: float) -> float:
        """Behind those that are there at ``at_cycle``, before those that roles ahead of the clock have issued for later."""
        ends, interval = self._ends, self._interval_cycles
        begin = max(at_cycle, self._forgotten_until)
        place = 0
        for end in ends:
            if begin + interval <= end - interval:
                break
            place += 1
            if end > begin:
                begin = end
        ends.insert(place, begin + interval)
        return begin + interval


class Mbarrier(Component):
    """One mbarrier object in shared memory.

    Models: arrival count, transaction count, phase and parity; a phase completes when both counts are zero, at the
    latest of its arrivals' cycles; a waiter that has gone to sleep by then goes on ``wake_cycles`` later, a lone lane
    when it looks next.
    Ignores: the issue slots that a failing try_wait loop takes.
    Source: PTX ISA, mbarrier; the GPU's description.
    """

    kind = "mbarrier"
    __slots__ = (
        "announced_bytes", "completed_at", "delivered_bytes", "name", "num_arrivals", "num_phases", "parity",
        "pending", "stage", "stamp", "tx_bytes", "waiters",
    )

    def __init__(self, name: str, stage: int, num_arrivals: int) -> None:
        """Stage ``stage`` of ring ``name``; a phase needs ``num_arrivals`` arrivals."""
        self.name = name
        self.stage = stage
        self.num_arrivals = num_arrivals
        self.pending = num_arrivals
        self.tx_bytes = 0
        self.announced_bytes = 0
        self.delivered_bytes = 0
        self.parity = 0
        self.num_phases = 0
        self.stamp = 0.0
        self.completed_at = 0.0
        self.waiters: list[Callable[[float], None]] = []

    def arrive(self, count: int, at_cycle: float) -> None:
        """``count`` arrivals that become visible at ``at_cycle``."""
        self.pending -= count
        if self.pending < 0:
            raise HazardError(
                f"mbarrier {self.name}[{self.stage}] got {self.num_arrivals - self.pending} arrivals in a phase that "
                f"expects {self.num_arrivals}"
            )
        if at_cycle > self.stamp:
            self.stamp = at_cycle
        if not self.pending and not self.tx_bytes:
            self._complete()

    def expect_tx(self, num_bytes: int) -> None:
        """Announce ``num_bytes`` for the current phase."""
        self.tx_bytes += num_bytes
        self.announced_bytes += num_bytes

    def complete_tx(self, num_bytes: int, at_cycle: float) -> None:
        """``num_bytes`` are there at ``at_cycle``."""
        self.tx_bytes -= num_bytes
        self.delivered_bytes += num_bytes
        if at_cycle > self.stamp:
            self.stamp = at_cycle
        if not self.pending and not self.tx_bytes:
            self._complete()

    def has_completed(self, parity: int) -> bool:
        """Whether the phase of parity ``parity`` lies behind (``try_wait.parity`` would return true)."""
        return self.parity != parity

    def _complete(self) -> None:
        self.parity ^= 1
        self.num_phases += 1
        self.completed_at = self.stamp
        self.pending = self.num_arrivals
        self.announced_bytes = self.delivered_bytes = 0
        if self.waiters:
            waiters, self.waiters = self.waiters, []
            for wake in waiters:
                wake(self.completed_at)
