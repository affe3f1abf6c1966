"""What processes wait for: facts, and the three kinds of pipes that everybody stands in.

simpy knows two kinds of waiting. ``env.timeout(cycles)`` ends at a cycle that is known when it begins. An event ends when
somebody says so, and simpy then queues it behind what is queued for that cycle already. Hardware that knows something
passes it on in the same cycle, so that here a third kind is used: a :class:`Fact`.

======================  ==========================================================================================
:class:`Pipe`           works on one thing after the other, in the order in which it was asked
:class:`GapPipe`        the same, in the order in which things are ready
:class:`SharedPipe`     works on all at once, each with an equal share
======================  ==========================================================================================
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Generator, Sequence
from math import inf
from typing import Any

from simpy import Environment, Event

Wait = Generator[Event, Any, None]
"""A process, or a part of one: it yields what it waits for."""

EPSILON_BYTES = EPSILON_CYCLES = 1e-6
"""What rounding may leave of a transfer, and of a wait."""

EPSILON_OF_CLOCK = 4e-16
"""Rounding of the clock, as a fraction of it."""


class Fact(Event):
    """Something that becomes known; its value is the cycle at which it counts, the present or one to come.

    A memory that has sent the last byte of a tile knows when the mbarrier far up will count it. So it is known at once, to
    all who wait, in the order in which they came; they wait for the cycle themselves.
    """

    def tell(self, cycle: float) -> None:
        """It is known from now on."""
        self._ok, self._value = True, cycle
        waiting, self.callbacks = self.callbacks, None  # type: ignore[assignment]  # simpy marks processed events so
        for go_on in waiting:
            go_on(self)

    @property
    def cycle(self) -> float | None:
        """When it counts; None while that is not known."""
        return self._value if self.callbacks is None else None

    def then(self, call: Callable[[float], None]) -> None:
        """Call ``call(cycle)`` as soon as it is known: at once, where it is."""
        if self.callbacks is None:
            call(self._value)
        else:
            self.callbacks.append(lambda fact: call(fact.value))


def all_of(env: Environment, facts: Sequence[Fact]) -> Fact:
    """Known when all of them are, and counts when the last does."""
    whole = Fact(env)

    def look(_: float = 0.0) -> None:
        if whole.cycle is None and all(fact.cycle is not None for fact in facts):
            whole.tell(max((fact.cycle or 0.0 for fact in facts), default=0.0))

    for fact in facts:
        fact.then(look)
    look()
    return whole


class Pipe:
    """A unit that works on one thing after the other, in the order in which it was asked."""

    def __init__(self, units_per_cycle: float) -> None:
        """Idle."""
        self.rate, self.free_at = units_per_cycle, 0.0

    def reserve(self, units: float, at: float) -> float:
        """Queue work that is ready at cycle ``at``; returns when it is done."""
        self.free_at = max(at, self.free_at) + units / self.rate
        return self.free_at


class GapPipe:
    """A unit that works on what is ready first.

    Roles run ahead of the clock, so that work may be queued for later than what another role asks for next. That one takes
    the gap before it, and if need be is split.
    """

    def __init__(self, env: Environment, units_per_cycle: float) -> None:
        """Idle for ever."""
        self._env, self.rate = env, units_per_cycle
        self._gaps = [(0.0, inf)]

    @property
    def free_at(self) -> float:
        """When all that is queued is done."""
        return self._gaps[-1][0]

    def reserve(self, units: float, at: float) -> float:
        """Queue work that is ready at cycle ``at``; returns when the last of it is done."""
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
    """One transfer in a SharedPipe: known when its last byte has passed."""

    def __init__(self, env: Environment, ends_at: float, weight: float) -> None:
        """It ends when so much has passed of each transfer."""
        super().__init__(env)
        self.ends_at, self.weight = ends_at, weight


class SharedPipe:
    """What many transfers share at the same time: each gets as much as the others, and no more than a cap.

    The pipe counts what has passed of a transfer that began when the pipe was empty. One that begins later ends when its
    bytes more have passed. A transfer of weight 0 rides along with another one's bytes: it takes nothing from the others.
    """

    def __init__(self, env: Environment, bytes_per_cycle: float, cap_bytes_per_cycle: float, *, rank: int) -> None:
        """Empty. Of pipes that have something to tell in the same cycle, the one of lower ``rank`` does so first."""
        self._env, self._total, self._cap, self._rank = env, bytes_per_cycle, cap_bytes_per_cycle, rank
        self.alone = min(bytes_per_cycle, cap_bytes_per_cycle)
        """What a transfer gets that has the pipe to itself."""
        self._moves: list[Move] = []
        """The one that ends first at the front."""
        self._passed, self._since = 0.0, 0.0
        """Bytes of each, up to which cycle."""
        self._timer: Event | None = None

    @property
    def rate(self) -> float:
        """Bytes a cycle of each transfer."""
        weight = sum(move.weight for move in self._moves)
        return self._cap if weight * self._cap <= self._total else self._total / weight

    def move(self, num_bytes: float, weight: float = 1.0) -> Move:
        """Begin a transfer; what it returns is known when the last byte has passed."""
        self._pass()
        move = Move(self._env, self._passed + num_bytes, weight)
        insort(self._moves, move, key=lambda other: other.ends_at)
        if self._moves[0] is move:
            self._set_timer()  # else it rings in time: others end no sooner for it
        return move

    def extend(self, move: Move, num_bytes: float) -> None:
        """Let a transfer carry ``num_bytes`` more."""
        self._pass()
        self._moves.remove(move)
        move.ends_at += num_bytes
        insort(self._moves, move, key=lambda other: other.ends_at)

    def _pass(self) -> None:
        """What has passed since the rate was another one."""
        self._passed += (self._env.now - self._since) * self.rate
        self._since = self._env.now

    def _set_timer(self) -> None:
        """Look when the first transfer ends at the present rate, before all else that is queued for that cycle."""
        self._timer = timer = Fact(self._env)
        timer._ok, timer._value = True, None
        timer.callbacks.append(self._look)
        left = max(0.0, self._moves[0].ends_at - self._passed)
        self._env.schedule(timer, priority=self._rank, delay=left / self.rate)  # type: ignore[arg-type]  # any number is one

    def _look(self, timer: Event) -> None:
        """Transfers that have ended leave, and those whom it concerns are told. If it was too early, look again."""
        if timer is not self._timer:
            return  # another one has been set since
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
    """Bytes that pass a Door together, in one turn or several: known when they have."""

    def __init__(self, env: Environment, num_bytes: float, num_turns: int, weight: float, group: object) -> None:
        """They wait for their turn."""
        super().__init__(env)
        self.left_bytes, self.turn_bytes, self.weight, self.group = num_bytes, num_bytes / num_turns, weight, group
        self.is_behind, self.move = False, Move(env, 0.0, 0.0)
        """Whether it takes turns with the one before it; and its transfer."""


class Door:
    """One SM's way into a SharedPipe: its transfers go one after the other, and share the pipe with other SMs'."""

    def __init__(self, env: Environment, pipe: SharedPipe) -> None:
        """Nobody waits."""
        self._env, self._pipe, self.asked_until = env, pipe, -inf
        """The last: when the last load was issued that may take turns."""
        self._queue: deque[Passage] = deque()

    def carry(
        self, num_bytes: float, *, group: object = None, weight: float = 1.0, num_turns: int = 1, is_behind: bool = False
    ) -> Fact:
        """Queue a transfer; what it returns is known when the last byte has passed.

        One that follows another of the same ``group`` (copies that complete one phase of one mbarrier) joins it: both have
        passed when the last byte of both has. One of several turns takes them in turn with those that are ``is_behind`` it.
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
        """A turn of the first in the queue."""
        first = self._queue[0]
        first.move = self._pipe.move(min(first.turn_bytes, first.left_bytes), first.weight)
        first.move.then(self._end)

    def _end(self, cycle: float) -> None:
        """It is over: the next turn is of another one of those that take turns, of the same one, or of who stands behind."""
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
