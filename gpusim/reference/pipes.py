"""Three kinds of pipes: all that takes time because others want it, too.

======================  ==========================================================================================
:class:`Pipe`           one thing after the other, in the order in which they were asked for
:class:`GapPipe`        the same, in the order in which they are ready
:class:`SharedPipe`     all at once, each with an equal share
======================  ==========================================================================================
"""

from __future__ import annotations

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

    def __init__(self, env: simpy.Environment, num_bytes: float, weight: float) -> None:
        """All of it is left."""
        super().__init__(env)
        self.left_bytes = num_bytes
        self.weight = weight


class SharedPipe:
    """What many transfers share at the same time: each gets as much as the others, and no more than a cap.

    A transfer of weight 0 rides along with another one's bytes: it moves as the others do, and takes nothing from them.
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
        self._since = 0.0
        self._timer: simpy.Event | None = None

    @property
    def rate(self) -> float:
        """Bytes a cycle of each transfer."""
        weight = sum(move.weight for move in self._moves)
        return self._cap if weight * self._cap <= self._total else self._total / weight

    def move(self, num_bytes: float, weight: float = 1.0) -> Move:
        """Begin a transfer; what it returns is known when the last byte has passed."""
        self._settle()
        move = Move(self._env, num_bytes, weight)
        self._moves.append(move)
        self._set_timer()
        return move

    def extend(self, move: Move, num_bytes: float) -> None:
        """Let a transfer carry ``num_bytes`` more."""
        self._settle()
        move.left_bytes += num_bytes
        self._set_timer()

    def _settle(self) -> None:
        """What has passed since the shares were other than now."""
        passed = (self._env.now - self._since) * self.rate
        self._since = self._env.now
        for move in self._moves:
            move.left_bytes -= passed

    def _set_timer(self) -> None:
        """Look again when the first transfer ends, before all else that is queued for that cycle."""
        self._timer = None
        if self._moves:
            first = max(0.0, min(move.left_bytes for move in self._moves))
            self._timer = Fact(self._env)
            self._timer._ok, self._timer._value = True, None
            self._timer.callbacks.append(self._look)
            self._env.schedule(self._timer, priority=self._rank, delay=first / self.rate)  # type: ignore[arg-type]  # a number

    def _look(self, timer: simpy.Event) -> None:
        """Transfers that have ended leave; then those whom it concerns are told, the one with least left first."""
        if timer is not self._timer:
            return  # shares have changed since it was set
        self._settle()
        none = EPSILON_BYTES + EPSILON_OF_CLOCK * self._env.now * self.rate
        over = [move for move in self._moves if move.left_bytes <= none]
        self._moves = [move for move in self._moves if move.left_bytes > none]
        self._set_timer()
        for move in sorted(over, key=lambda move: move.left_bytes):
            move.tell(self._env.now)


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
