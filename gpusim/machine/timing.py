"""What time costs: Pipe (first come, first served), SharedPipe (all in flight share), Wake (an event with a delay)."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

import simpy
from simpy.events import NORMAL, Event

Done = Callable[[float], None]
"""Called with the cycle at which something is complete; that cycle is never in the past."""

EPSILON = 1e-9


class Wake(Event):
    """An event that is fired once, with a delay, by whoever knows when."""

    def fire(self, delay_cycles: float) -> None:
        """Resume the waiting process ``delay_cycles`` from now."""
        self._ok = True
        self._value = None
        self.env.schedule(self, NORMAL, delay_cycles)


class Pipe:
    """A unit that serves one thing after the other, with a rate and a busy-until.

    Models: rate, queueing in order of arrival, work conserved.
    Ignores: gaps: work reserved ahead of time is never overtaken.
    Source: rates come from the Spec of the part that owns it.
    """

    __slots__ = ("busy_cycles", "free_at", "rate")

    def __init__(self, *, units_per_cycle: float) -> None:
        """``units_per_cycle``: bytes, wavefronts or instructions a cycle."""
        self.rate = units_per_cycle
        self.free_at = 0.0
        self.busy_cycles = 0.0

    def reserve(self, units: float, *, at_cycle: float, weight: float = 1.0) -> float:
        """Queue ``units`` of work that is ready at ``at_cycle``; returns the cycle at which it is done.

        ``weight`` counts the work that many times in ``busy_cycles`` (iterations that were skipped).
        """
        cycles = units / self.rate
        start = self.free_at
        if start < at_cycle:
            start = at_cycle
        self.busy_cycles += cycles * weight
        self.free_at = end = start + cycles
        return end


class SharedPipe:
    """A part that many share: transfers in flight split its rate equally, each capped by its own port.

    Models: processor sharing with equal shares and one cap, in virtual time: an arrival costs a heap push, a
    departure one timer. A transfer of weight 0 rides on another (a merged request): it takes nothing of the rate.
    Ignores: unequal caps; distance.
    Source: fluid model of generalized processor sharing (Parekh and Gallager, 1993).
    """

    __slots__ = (
        "_env",
        "_heap",
        "_last",
        "_rate",
        "_seq",
        "_timer",
        "_virtual",
        "_weight",
        "cap",
        "served_bytes",
        "total",
    )

    def __init__(self, env: simpy.Environment, *, bytes_per_cycle: float, cap_bytes_per_cycle: float) -> None:
        """``bytes_per_cycle`` is the rate of all together, ``cap_bytes_per_cycle`` of one transfer."""
        self._env = env
        self.total = bytes_per_cycle
        self.cap = cap_bytes_per_cycle
        self._heap: list[tuple[float, int, float, Done]] = []
        self._virtual = 0.0
        self._last = 0.0
        self._rate = cap_bytes_per_cycle
        self._weight = 0.0
        self._seq = 0
        self._timer: Event | None = None
        self.served_bytes = 0.0

    def transfer(self, num_bytes: float, done: Done, *, weight: float = 1.0, count: float = 1.0) -> None:
        """Start to move ``num_bytes``; ``done(cycle)`` is called when the last byte has passed."""
        now = self._env.now
        self._virtual += (now - self._last) * self._rate
        self._last = now
        self._seq = seq = self._seq + 1
        entry = (self._virtual + num_bytes, seq, weight, done)
        heappush(self._heap, entry)
        self.served_bytes += num_bytes * weight * count
        if weight:
            self._weight += weight
            self._share()
        if self._heap[0] is entry or self._timer is None:
            self._arm()

    @property
    def num_in_flight(self) -> int:
        """Transfers that have not finished."""
        return len(self._heap)

    def _share(self) -> None:
        weight = self._weight
        self._rate = self.cap if weight * self.cap <= self.total else self.total / weight

    def _arm(self) -> None:
        timer = Event(self._env)
        timer._ok = True
        timer._value = None
        callbacks = timer.callbacks
        assert callbacks is not None  # a new event has not been processed
        callbacks.append(self._on_timer)
        self._timer = timer
        left = (self._heap[0][0] - self._virtual) / self._rate
        self._env.schedule(timer, NORMAL, left if left > 0.0 else 0.0)

    def _on_timer(self, timer: Event) -> None:
        if timer is not self._timer:  # a shorter transfer came in between and set its own
            return
        now = self._env.now
        self._virtual += (now - self._last) * self._rate
        self._last = now
        self._timer = None
        heap = self._heap
        reached = self._virtual + 1e-6
        finished: list[Done] = []
        while heap and heap[0][0] <= reached:
            _, _, weight, done = heappop(heap)
            self._weight -= weight
            finished.append(done)
        if not heap:
            self._weight = 0.0
            self._virtual = 0.0
        self._share()
        for done in finished:
            done(now)
        if heap and self._timer is None:
            self._arm()
