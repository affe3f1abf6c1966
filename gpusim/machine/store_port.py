"""An SM's stores on their way to L2, one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from gpusim.machine.timing import Done, RingingEnvironment, SharedPipe


class _Store:
    """One store: where it begins and ends, what it waits for, whom to tell."""

    __slots__ = ("arrived", "begin", "cross", "end", "leaves_at", "left", "through_at")

    def __init__(
        self, begin: float, end: float, leaves_at: float, through_at: float, cross: Callable[[float], float], left: Done,
        arrived: Done,
    ) -> None:
        self.begin = begin
        self.end = end
        self.leaves_at = leaves_at
        """Position that has passed when it has left."""
        self.through_at = through_at
        """Cycle before which nobody is told."""
        self.cross = cross
        self.left = left
        self.arrived = arrived


class StorePort:
    """One SM's stores on their way to L2: one after the other, so that SMs share what L2 takes, not transfers.

    Positions are bytes since the beginning. A store has left the SM when all of it but what the way holds has passed.
    """

    __slots__ = (
        "_agenda", "_alike", "_arriving", "_begins", "_crossed_at", "_current_end", "_ends", "_held_bytes", "_is_busy",
        "_leaving", "_passed", "_pipe", "_sent",
    )

    def __init__(self, env: RingingEnvironment, pipe: SharedPipe, held_bytes: float, num_alike: float = 1.0) -> None:
        """On ``pipe``, which SMs share; ``held_bytes`` of what has left the SM may wait for their turn.

        ``num_alike``: SMs that this one stands for.
        """
        self._agenda = env.agenda
        self._alike = num_alike
        self._pipe = pipe
        self._crossed_at = self._current_end = 0.0
        self._held_bytes = held_bytes
        self._is_busy = False
        self._sent = 0.0
        self._passed = 0.0
        self._ends: deque[float] = deque()
        self._begins: deque[_Store] = deque()
        self._leaving: deque[_Store] = deque()
        self._arriving: deque[_Store] = deque()

    def send(
        self, num_bytes: float, *, now: float, through_at: float, cross: Callable[[float], float], left: Done, arrived: Done
    ) -> None:
        """Move ``num_bytes``, whose turn at the SM's own port is over at ``through_at``, behind those before them.

        ``cross(cycle)`` is asked when their turn comes: when will they have passed the links that SMs share?
        """
        begin = self._sent
        self._sent = end = begin + num_bytes
        leaves_at = end - self._held_bytes
        if begin < leaves_at < end:
            self._ends.append(leaves_at)
        self._ends.append(end)
        store = _Store(begin, end, leaves_at, through_at, cross, left, arrived)
        self._begins.append(store)
        self._leaving.append(store)
        self._arriving.append(store)
        if not self._is_busy:
            self._start(now)
        self._tell_left(now)

    def _start(self, cycle: float) -> None:
        self._is_busy = bool(self._ends)
        begins = self._begins
        while begins and begins[0].begin <= self._passed:
            store = begins.popleft()
            self._current_end = store.end
            self._crossed_at = crossed_at = store.cross(cycle)
            if crossed_at > store.through_at:
                store.through_at = crossed_at
        if self._ends:
            self._pipe.transfer(self._ends[0] - self._passed, self, self._alike)

    def __call__(self, cycle: float) -> None:
        """Bytes have passed up to the next end; the next store's turn comes when this one has crossed."""
        wait_cycles = self._crossed_at - self._agenda.cycle
        if self._ends[0] == self._current_end and wait_cycles > 0.0:
            self._agenda.later(wait_cycles, self._go_on)
        else:
            self._advance(cycle)

    def _go_on(self) -> None:
        self._advance(self._agenda.cycle)

    def _advance(self, cycle: float) -> None:
        self._passed = self._ends.popleft()
        self._start(cycle)
        self._tell_left(cycle)
        arriving = self._arriving
        while arriving and arriving[0].end <= self._passed:
            store = arriving.popleft()
            store.arrived(cycle if cycle > store.through_at else store.through_at)

    def _tell_left(self, cycle: float) -> None:
        leaving = self._leaving
        while leaving and leaving[0].leaves_at <= self._passed:
            store = leaving.popleft()
            store.left(cycle if cycle > store.through_at else store.through_at)
