"""Waiting in the reference engine: facts whose cycle is known in advance, and three kinds of pipes.

simpy has two kinds of waiting. ``env.timeout(cycles)`` ends at a cycle that is known when it begins. An event ends when a
process triggers it, and simpy then queues it behind the events already queued for that cycle. Hardware passes on what it
knows in the same cycle. Therefore a third kind is used here: a :class:`Fact`.

* :class:`Pipe`: serves one request after the other, in the order of the calls.
* :class:`GapPipe`: serves one request after the other, in the order in which they are ready.
* :class:`SharedPipe`: serves all requests at once, each with an equal share.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Generator, Sequence
from math import inf
from typing import Any

from simpy import Environment, Event

Wait = Generator[Event, Any, None]
"""A process, or a part of one: it yields the events that it waits for."""

EPSILON_BYTES = EPSILON_CYCLES = 1e-6
"""Rounding errors of a transfer in bytes, and of a wait in cycles."""

EPSILON_OF_CLOCK = 4e-16
"""Rounding of the clock, as a fraction of it."""


class Fact(Event):
    """Something that becomes known. Its value is the cycle at which it counts: the present cycle, or a later one.

    A memory that has sent the last byte of a tile knows when the mbarrier of an SM will count it. All waiting processes
    learn it at once, in the order in which they began to wait. They wait for the cycle themselves.
    """

    def tell(self, cycle: float) -> None:
        """Make the fact known; it counts at ``cycle``."""
        self._ok, self._value = True, cycle
        waiting, self.callbacks = self.callbacks, None  # type: ignore[assignment]  # simpy marks processed events so
        for go_on in waiting:
            go_on(self)

    @property
    def cycle(self) -> float | None:
        """Cycle at which the fact counts; None while it is unknown."""
        return self._value if self.callbacks is None else None

    def then(self, call: Callable[[float], None]) -> None:
        """Call ``call(cycle)`` as soon as the fact is known: at once, if it is known already."""
        if self.callbacks is None:
            call(self._value)
        else:
            self.callbacks.append(lambda fact: call(fact.value))


def all_of(env: Environment, facts: Sequence[Fact]) -> Fact:
    """A fact that is known when all ``facts`` are, and counts when the last of them does."""
    last = Fact(env)

    def look(_: float = 0.0) -> None:
        if last.cycle is None and all(fact.cycle is not None for fact in facts):
            last.tell(max((fact.cycle or 0.0 for fact in facts), default=0.0))

    for fact in facts:
        fact.then(look)
    look()
    return last


class Pipe:
    """A unit that serves one request after the other, in the order of the calls."""

    def __init__(self, units_per_cycle: float) -> None:
        """Begin idle, with a rate in units per cycle."""
        self.rate, self.free_at = units_per_cycle, 0.0

    def reserve(self, units: float, at: float) -> float:
        """Queue work that is ready at cycle ``at``; returns the cycle at which it is done."""
        self.free_at = max(at, self.free_at) + units / self.rate
        return self.free_at


class GapPipe:
    """A unit that serves the request that is ready first.

    Roles run ahead of the clock, so work may be queued for a later cycle than another role's next request. That request
    takes the gap before the queued work, and is split if needed.
    """

    def __init__(self, env: Environment, units_per_cycle: float) -> None:
        """Begin idle, with a rate in units per cycle."""
        self._env, self.rate = env, units_per_cycle
        self._gaps = [(0.0, inf)]

    @property
    def free_at(self) -> float:
        """Cycle at which all queued work is done."""
        return self._gaps[-1][0]

    def reserve(self, units: float, at: float) -> float:
        """Queue work that is ready at cycle ``at``; returns the cycle at which the last of it is done."""
        cycles, end = units / self.rate, at
        left: list[tuple[float, float]] = []
        for since, until in self._gaps:
            begin = max(since, at)
            if begin >= until or not cycles:
                left.append((since, until))
                continue
            if begin + cycles <= until:
                end, cycles = begin + cycles, 0.0
            else:
                end, cycles = until, cycles - (until - begin)
            left += [gap for gap in ((since, begin), (end, until)) if gap[0] < gap[1]]
        self._gaps = [gap for gap in left if gap[1] > self._env.now]
        return end


class Move(Fact):
    """One transfer in a SharedPipe, known when its last byte has passed."""

    def __init__(self, env: Environment, ends_at: float, weight: float) -> None:
        """Begin a transfer that ends when ``ends_at`` bytes have passed of each transfer."""
        super().__init__(env)
        self.ends_at, self.weight = ends_at, weight


class SharedPipe:
    """A link or unit that many transfers share at the same time. Each gets an equal share, up to a cap.

    The pipe counts the bytes that have passed of a transfer which began when the pipe was empty. A transfer that begins
    later ends when its bytes have passed in addition. A transfer of weight 0 shares the bytes of another one and takes no
    bandwidth.
    """

    def __init__(self, env: Environment, bytes_per_cycle: float, cap_bytes_per_cycle: float, *, rank: int) -> None:
        """Begin empty. Among pipes that end transfers in the same cycle, the one of lower ``rank`` comes first."""
        self._env, self._total, self._cap, self._rank = env, bytes_per_cycle, cap_bytes_per_cycle, rank
        self.alone = min(bytes_per_cycle, cap_bytes_per_cycle)
        """Bytes per cycle of a transfer that has the pipe to itself."""
        self._moves: list[Move] = []
        """Transfers, the one that ends first at the front."""
        self._passed, self._since = 0.0, 0.0
        """Bytes passed of each transfer, and the cycle up to which they are counted."""
        self._timer: Event | None = None

    @property
    def rate(self) -> float:
        """Bytes per cycle of each transfer."""
        weight = sum(move.weight for move in self._moves)
        return self._cap if weight * self._cap <= self._total else self._total / weight

    def move(self, num_bytes: float, weight: float = 1.0) -> Move:
        """Begin a transfer. The returned fact is known when the last byte has passed."""
        self._pass()
        move = Move(self._env, self._passed + num_bytes, weight)
        insort(self._moves, move, key=lambda other: other.ends_at)
        if self._moves[0] is move:
            self._set_timer()  # otherwise the present timer is early enough
        return move

    def extend(self, move: Move, num_bytes: float) -> None:
        """Add ``num_bytes`` to a transfer."""
        self._pass()
        self._moves.remove(move)
        move.ends_at += num_bytes
        insort(self._moves, move, key=lambda other: other.ends_at)

    def _pass(self) -> None:
        """Add the bytes that have passed since the last change of the rate."""
        self._passed += (self._env.now - self._since) * self.rate
        self._since = self._env.now

    def _set_timer(self) -> None:
        """Schedule :meth:`_look` for the end of the first transfer, before other events of that cycle."""
        self._timer = timer = Fact(self._env)
        timer._ok, timer._value = True, None
        timer.callbacks.append(self._look)
        left = max(0.0, self._moves[0].ends_at - self._passed)
        self._env.schedule(timer, priority=self._rank, delay=left / self.rate)  # type: ignore[arg-type]  # any number is one

    def _look(self, timer: Event) -> None:
        """End the transfers whose last byte has passed, and make that known. If none has ended yet, set the timer again."""
        if timer is not self._timer:
            return  # a newer timer has replaced it
        self._pass()
        passed = self._passed + EPSILON_BYTES + EPSILON_OF_CLOCK * self._env.now * self.rate
        over = [move for move in self._moves if move.ends_at <= passed]
        self._moves = self._moves[len(over) :]
        if not self._moves:
            self._passed = 0.0
        for move in over:
            move.tell(self._env.now)
        if self._moves:
            self._set_timer()


class Passage(Fact):
    """Bytes that pass a SmPort together, in one turn or several. Known when they have passed."""

    def __init__(self, env: Environment, num_bytes: float, num_turns: int, weight: float, group: object) -> None:
        """Queue the bytes for ``num_turns`` turns."""
        super().__init__(env)
        self.left_bytes, self.turn_bytes, self.weight, self.group = num_bytes, num_bytes / num_turns, weight, group
        self.is_behind, self.move = False, Move(env, 0.0, 0.0)
        """Whether it takes turns with the previous passage; and its transfer."""


class SmPort:
    """One SM's port to a SharedPipe. Its transfers follow one another, and share the pipe with those of other SMs."""

    def __init__(self, env: Environment, pipe: SharedPipe) -> None:
        """Begin with an empty queue."""
        self._env, self._pipe, self.asked_until = env, pipe, -inf
        """Environment, pipe, and the cycle at which the last load that may take turns was issued."""
        self._queue: deque[Passage] = deque()

    def carry(
        self, num_bytes: float, *, group: object = None, weight: float = 1.0, num_turns: int = 1, is_behind: bool = False
    ) -> Fact:
        """Queue a transfer. The returned fact is known when the last byte has passed.

        A transfer that follows another one of the same ``group`` joins it. A group is the copies that complete one phase of
        one mbarrier. Both have passed when the last byte of both has. A transfer of several turns alternates with those
        behind it that have ``is_behind``.
        """
        if self._queue and group is not None and self._queue[-1].group is group:
            last = self._queue[-1]
            last.left_bytes, last.turn_bytes = last.left_bytes + num_bytes, last.turn_bytes + num_bytes
            if len(self._queue) == 1:
                self._pipe.extend(last.move, num_bytes)
            return last
        passage = Passage(self._env, num_bytes, num_turns, weight, group)
        passage.is_behind = is_behind
        self._queue.append(passage)
        if len(self._queue) == 1:
            self._begin()
        return passage

    def _begin(self) -> None:
        """Begin a turn of the first passage in the queue."""
        first = self._queue[0]
        first.move = self._pipe.move(min(first.turn_bytes, first.left_bytes), first.weight)
        first.move.then(self._end)

    def _end(self, cycle: float) -> None:
        """End a turn, and begin the next one.

        It belongs to another passage that takes turns, to the same passage, or to the next in the queue.
        """
        passage = self._queue.popleft()
        passage.left_bytes -= passage.turn_bytes
        if not (is_over := passage.left_bytes <= EPSILON_BYTES):
            num_behind = next((place for place, other in enumerate(self._queue) if not other.is_behind), len(self._queue))
            passage.is_behind = passage.is_behind or num_behind > 0
            self._queue.insert(num_behind, passage)
        if self._queue:
            self._begin()
        if is_over:
            passage.tell(cycle)
