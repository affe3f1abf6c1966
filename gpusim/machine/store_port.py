"""An SM's stores on their way to L2, one after the other, and the requests of its copies that stand behind them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from gpusim.machine.numeric import log
from gpusim.machine.timing import Done, RingingEnvironment, SharedPipe
from gpusim.units import LINE_BYTES

Cross = Callable[[float], tuple[float, float]]
"""Given the cycle at which a store's turn comes, those at which it has crossed, and its last line."""


class _Store:
    """One store: where it begins and ends, what it waits for, whom to tell."""

    __slots__ = ("arrived", "arrives_at", "begin", "cross", "end", "leaves_at", "left", "packet_bytes", "through_at")

    def __init__(
        self, begin: float, end: float, leaves_at: float, through_at: float, cross: Cross, left: Done, arrived: Done,
        packet_bytes: float,
    ) -> None:
        self.begin = begin
        self.end = end
        self.leaves_at = leaves_at
        """Position that has passed when it has left."""
        self.through_at = self.arrives_at = through_at
        """Cycles before which nobody is told that it has left, and that it has arrived."""
        self.cross = cross
        self.left = left
        self.arrived = arrived
        self.packet_bytes = packet_bytes


class StorePort:
    """One SM's stores on their way to L2: one after the other, so that SMs share what L2 takes, not transfers.

    Positions are bytes since the beginning. A store has left the SM when all of it but what the way holds has passed.
    """

    __slots__ = (
        "_agenda", "_alike", "_arriving", "_began_at", "_begins", "_crossed_at", "_current_begin", "_current_end",
        "_cycles_per_byte", "_ends", "_held_bytes", "_leaving", "_packet_bytes", "_passed", "_pipe", "_requests_end_at",
        "_sent", "is_busy",
    )

    def __init__(self, env: RingingEnvironment, pipe: SharedPipe, held_bytes: float, num_alike: float = 1.0) -> None:
        """On ``pipe``, which SMs share; ``held_bytes`` of what has left the SM may wait for their turn.

        ``num_alike``: SMs that this one stands for.
        """
        self._agenda = env.agenda
        self._alike = num_alike
        self._pipe = pipe
        self._crossed_at = self._current_end = 0.0
        self._began_at = self._current_begin = 0.0
        """When, and where, what is on its way has begun."""
        self._cycles_per_byte = 1.0 / pipe.rate
        """What stores took lately."""
        self._packet_bytes = float(LINE_BYTES)
        """Of what is on its way."""
        self._requests_end_at = 0.0
        self._held_bytes = held_bytes
        self.is_busy = False
        """Whether stores are on their way."""
        self._sent = 0.0
        self._passed = 0.0
        self._ends: deque[float] = deque()
        self._begins: deque[_Store] = deque()
        self._leaving: deque[_Store] = deque()
        self._arriving: deque[_Store] = deque()

    def send(
        self, num_bytes: float, *, now: float, through_at: float, cross: Cross, left: Done, arrived: Done,
        packet_bytes: float,
    ) -> None:
        """Move ``num_bytes``, whose turn at the SM's own port is over at ``through_at``, behind those before them.

        ``cross(cycle)`` is asked when their turn comes: when will they have passed the links that SMs share, so that the
        next can follow, and when the last line of them?
        ``packet_bytes``: of these, what one packet is.
        """
        begin = self._sent
        self._sent = end = begin + num_bytes
        leaves_at = end - self._held_bytes
        if begin < leaves_at < end:
            self._ends.append(leaves_at)
        self._ends.append(end)
        store = _Store(begin, end, leaves_at, through_at, cross, left, arrived, packet_bytes)
        self._begins.append(store)
        self._leaving.append(store)
        self._arriving.append(store)
        if not self.is_busy:
            self._start(now)
        self._tell_left(now)

    def behind(
        self, num_lines: float, *, at_cycle: float, request_turn_packets: float, last_request_fraction: float,
        port_bytes_per_cycle: float,
    ) -> float:
        """The cycle at which a copy may be taken to ask for its ``num_lines`` that comes at ``at_cycle``.

        For stores that are on their way: ``request_turn_packets`` of them pass between two requests, and each waits for
        those that are in the way before it, the last of e times as many by ``last_request_fraction`` longer. Without them
        lines come at ``port_bytes_per_cycle``.
        """
        now, begin, end, held = self._agenda.cycle, self._current_begin, self._current_end, self._held_bytes
        each = max(self._pace(end - begin, self._crossed_at - self._began_at), 1.0 / self._pipe.rate)  # cycles a byte
        passed = min(end, begin + (now - self._began_at) / each)
        if at_cycle > now:
            passed += (at_cycle - now) / each
        since = at_cycle if at_cycle > self._requests_end_at else self._requests_end_at
        queued = self._sent - passed
        if queued <= 0.0:
            return since
        num = num_lines if num_lines > 1.0 else 1.0
        turn = self._packet_bytes * request_turn_packets
        turns = min(num, queued / turn) if turn and queued < held else num  # more stores come while the way is full
        self._requests_end_at = since + turns * turn * each
        apart = turn * each - LINE_BYTES / port_bytes_per_cycle
        if apart > 0.0:
            since += apart * turns
        return since + min(queued, held) * each * (1.0 + last_request_fraction * log(num))

    def _pace(self, num_bytes: float, cycles: float) -> float:
        """Cycles a byte of so many that take so long and of those before them, as many as the way holds."""
        all_bytes = self._held_bytes + num_bytes
        return (self._cycles_per_byte * self._held_bytes + cycles) / all_bytes if all_bytes else self._cycles_per_byte

    def _start(self, cycle: float) -> None:
        was_busy = self.is_busy
        self.is_busy = bool(self._ends)
        begins = self._begins
        while begins and begins[0].begin <= self._passed:
            store = begins.popleft()
            num_bytes = self._current_end - self._current_begin
            self._cycles_per_byte = self._pace(num_bytes, cycle - self._began_at) if was_busy else 1.0 / self._pipe.rate
            self._current_begin, self._current_end, self._began_at = store.begin, store.end, cycle
            self._packet_bytes = store.packet_bytes
            self._crossed_at, last_at = store.cross(cycle)
            store.through_at = max(store.through_at, self._crossed_at)
            store.arrives_at = max(store.arrives_at, last_at)
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
            store.arrived(cycle if cycle > store.arrives_at else store.arrives_at)

    def _tell_left(self, cycle: float) -> None:
        leaving = self._leaving
        while leaving and leaving[0].leaves_at <= self._passed:
            store = leaving.popleft()
            store.left(cycle if cycle > store.through_at else store.through_at)
