"""An SM's stores on their way to L2, one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import simpy

from gpusim.machine.timing import Done, SharedPipe


class StorePort:
    """One SM's stores on their way to L2: one after the other, so that SMs share what L2 takes, not transfers.

    Positions are bytes since the beginning. A store has left the SM when all of it but what the way holds has passed.
    """

    __slots__ = (
        "_alike", "_arriving", "_begins", "_crossed_at", "_current_end", "_ends", "_env", "_held_bytes", "_is_busy",
        "_leaving", "_passed", "_pipe", "_sent",
    )

    def __init__(self, env: simpy.Environment, pipe: SharedPipe, held_bytes: float, num_alike: float = 1.0) -> None:
        """On ``pipe``, which SMs share; ``held_bytes`` of what has left the SM may wait for their turn.

        ``num_alike``: SMs that this one stands for.
        """
        self._env = env
        self._alike = num_alike
        self._pipe = pipe
        self._crossed_at = self._current_end = 0.0
        self._held_bytes = held_bytes
        self._is_busy = False
        self._sent = 0.0
        self._passed = 0.0
        self._ends: deque[float] = deque()
        self._begins: deque[tuple[float, float, list[float], Callable[[float], float]]] = deque()
        self._leaving: deque[tuple[float, list[float], Done]] = deque()
        self._arriving: deque[tuple[float, list[float], Done]] = deque()

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
        through = [through_at]
        self._begins.append((begin, end, through, cross))
        self._leaving.append((leaves_at, through, left))
        self._arriving.append((end, through, arrived))
        if not self._is_busy:
            self._start(now)
        self._tell(self._leaving, now)

    def _start(self, cycle: float) -> None:
        self._is_busy = bool(self._ends)
        begins = self._begins
        while begins and begins[0][0] <= self._passed:
            _, self._current_end, through, cross = begins.popleft()
            self._crossed_at = cross(cycle)
            if self._crossed_at > through[0]:
                through[0] = self._crossed_at
        if self._ends:
            self._pipe.transfer(self._ends[0] - self._passed, self, self._alike)

    def __call__(self, cycle: float) -> None:
        """Bytes have passed up to the next end; the next store's turn comes when this one has crossed."""
        wait_cycles = self._crossed_at - self._env._now
        if self._ends[0] == self._current_end and wait_cycles > 0.0:
            event = self._env.timeout(wait_cycles)
            assert event.callbacks is not None  # a new event has not been processed
            event.callbacks.append(lambda _: self._advance(self._env.now))
        else:
            self._advance(cycle)

    def _advance(self, cycle: float) -> None:
        self._passed = self._ends.popleft()
        self._start(cycle)
        self._tell(self._leaving, cycle)
        self._tell(self._arriving, cycle)

    def _tell(self, waiting: deque[tuple[float, list[float], Done]], cycle: float) -> None:
        while waiting and waiting[0][0] <= self._passed:
            _, (through_at,), done = waiting.popleft()
            done(cycle if cycle > through_at else through_at)
