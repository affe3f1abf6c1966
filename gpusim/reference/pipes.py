"""Three kinds of pipes: all that takes time because others want it, too.

======================  ==========================================================================================
:class:`Pipe`           one thing after the other, in the order in which they were asked for
:class:`GapPipe`        the same, in the order in which they are ready
:class:`SharedPipe`     all at once, each with an equal share
======================  ==========================================================================================
"""

from __future__ import annotations

from bisect import insort
from math import inf

import simpy

from gpusim.reference.facts import Fact

EPSILON_BYTES = 1e-6
"""What rounding may leave of a transfer."""

EPSILON_OF_CLOCK = 4e-16
"""Rounding of the clock, as a fraction of it."""


class Pipe:
    """A unit that works on one thing after the other, in the order in which it was asked."""

    def __init__(self, units_per_cycle: float) -> None:
        """Idle."""
        self.rate = units_per_cycle
        self.free_at = 0.0

    def reserve(self, units: float, at: float) -> float:
        """Queue work that is ready at cycle ``at``; returns when it is done."""
        self.free_at = max(at, self.free_at) + units / self.rate
        return self.free_at


class GapPipe:
    """A unit that works on what is ready first.

    Roles run ahead of the clock, so that work may be queued for later than what another role asks for next. That one takes
    the gap before it, and if need be is split.
    """

    def __init__(self, env: simpy.Environment, units_per_cycle: float) -> None:
        """Idle for ever."""
        self._env = env
        self.rate = units_per_cycle
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

    def copy(self) -> GapPipe:
        """Another one, as busy as this."""
        found = GapPipe(self._env, self.rate)
        found._gaps = list(self._gaps)
        return found


class Move(Fact):
    """One transfer in a SharedPipe: known when its last byte has passed."""

    def __init__(self, env: simpy.Environment, ends_at: float, weight: float) -> None:
        """It ends when so much has passed of each transfer."""
        super().__init__(env)
        self.ends_at, self.weight = ends_at, weight


class SharedPipe:
    """What many transfers share at the same time: each gets as much as the others, and no more than a cap.

    The pipe counts what has passed of a transfer that began when the pipe was empty. One that begins later ends when its
    bytes more have passed. A transfer of weight 0 rides along with another one's bytes: it takes nothing from the others.
    """

    def __init__(
        self, env: simpy.Environment, bytes_per_cycle: float, cap_bytes_per_cycle: float, *, rank: int
    ) -> None:
        """Empty. Of pipes that have something to tell in the same cycle, the one of lower ``rank`` does so first."""
        self._env = env
        self._total, self._cap, self._rank = bytes_per_cycle, cap_bytes_per_cycle, rank
        self.alone = min(bytes_per_cycle, cap_bytes_per_cycle)
        """What a transfer gets that has the pipe to itself."""
        self._moves: list[Move] = []
        """The one that ends first at the front."""
        self._passed, self._since = 0.0, 0.0
        """Bytes of each, up to which cycle."""
        self._timer: simpy.Event | None = None

    @property
    def rate(self) -> float:
        """Bytes a cycle of each transfer."""
        weight = sum(move.weight for move in self._moves)
        return self._cap if weight * self._cap <= self._total else self._total / weight

    def move(self, num_bytes: float, weight: float = 1.0) -> Move:
        """Begin a transfer; what it returns is known when the last byte has passed."""
        self._pass()
        move = Move(self._env, self._passed + num_bytes, weight)
        self._insert(move)
        if self._moves[0] is move:
            self._set_timer()  # else it rings in time: others end no sooner for it
        return move

    def extend(self, move: Move, num_bytes: float) -> None:
        """Let a transfer carry ``num_bytes`` more."""
        self._pass()
        self._moves.remove(move)
        move.ends_at += num_bytes
        self._insert(move)

    def _insert(self, move: Move) -> None:
        insort(self._moves, move, key=lambda other: other.ends_at)

    def _pass(self) -> None:
        """What has passed since the rate was another one."""
        self._passed += (self._env.now - self._since) * self.rate
        self._since = self._env.now

    def _set_timer(self) -> None:
        """Look when the first transfer ends at the present rate, before all else that is queued for that cycle."""
        self._timer = Fact(self._env)
        self._timer._ok, self._timer._value = True, None
        self._timer.callbacks.append(self._look)
        left = max(0.0, self._moves[0].ends_at - self._passed)
        self._env.schedule(self._timer, priority=self._rank, delay=left / self.rate)  # type: ignore[arg-type]  # a number

    def _look(self, timer: simpy.Event) -> None:
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


class Line:
    """Who does something one after the other: each has its turn when the one before it leaves."""

    def __init__(self, env: simpy.Environment) -> None:
        """Nobody is in it."""
        self._env = env
        self._turns: list[Fact] = []

    def turn(self) -> Fact:
        """Stand in line; known when the turn has come."""
        self._turns.append(Fact(self._env))
        if len(self._turns) == 1:
            self._turns[0].tell(self._env.now)
        return self._turns[-1]

    def leave(self) -> None:
        """The first is done."""
        self._turns.pop(0)
        if self._turns:
            self._turns[0].tell(self._env.now)


class Door:
    """One SM's way into a SharedPipe: its transfers go one after the other, and share the pipe with other SMs'."""

    def __init__(self, env: simpy.Environment, pipe: SharedPipe) -> None:
        """Nobody waits."""
        self._env, self._pipe = env, pipe
        self._queue: list[Passage] = []

    def carry(self, num_bytes: float, *, group: object = None, weight: float = 1.0) -> Fact:
        """Queue a transfer; what it returns is known when the last byte has passed.

        One that follows another of the same ``group`` (copies that complete one phase of one mbarrier) joins it: both have
        passed when the last byte of both has.
        """
        last = self._queue[-1] if self._queue else None
        if last is not None and group is not None and last.group is group:
            last.num_bytes += num_bytes
            if last.move is not None:
                self._pipe.extend(last.move, num_bytes)
            return last.over
        passage = Passage(self._env, num_bytes, weight, group)
        self._queue.append(passage)
        if last is None:
            self._begin()
        return passage.over

    def _begin(self) -> None:
        first = self._queue[0]
        first.move = self._pipe.move(first.num_bytes, first.weight)
        first.move.then(self._end)

    def _end(self, cycle: float) -> None:
        over = self._queue.pop(0).over
        if self._queue:
            self._begin()
        over.tell(cycle)


class Passage:
    """Bytes that pass a Door together."""

    def __init__(self, env: simpy.Environment, num_bytes: float, weight: float, group: object) -> None:
        """They wait for their turn."""
        self.num_bytes, self.weight, self.group = num_bytes, weight, group
        self.move: Move | None = None
        self.over = Fact(env)
