"""What time costs: pipes that serve in order (Pipe, GapPipe) or share (SharedPipe), and the queue of what is to come."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import simpy
from simpy.core import EmptySchedule
from simpy.events import Event

Done = Callable[[float], None]
"""Called with the cycle at which something is complete; that cycle is never in the past."""

Action = Callable[[], None]
"""What is called at its time."""

NEVER = float("inf")

IN_TURN = 1
"""Priority of all that is queued: simpy's NORMAL."""

MOST_GAPS = 64
"""Of a GapPipe; more than cursors leave within what they run ahead."""

EPSILON_BYTES = 1e-6
"""What rounding may leave of a transfer."""

EPSILON_OF_CLOCK = 4e-16
"""Rounding of the clock, as a fraction of it: at a very high rate that is many bytes."""


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

    def reserve_alike(self, units: float, num: float, *, at_cycle: float, weight: float = 1.0) -> float:
        """Queue the same work ``num`` times at once; returns when it is done on average: one after the other.

        ``weight``: as of :meth:`reserve`.
        """
        if num == 1.0:
            return self.reserve(units, at_cycle=at_cycle, weight=weight)
        return self.reserve(units * num, at_cycle=at_cycle, weight=weight) - (num - 1.0) / 2 * units / self.rate


class GapPipe(Pipe):
    """A pipe that is asked out of order, by roles whose cursors run ahead of the clock.

    Models: a gap that work reserved ahead of time has left is filled by work that is ready earlier; it may be split.
    Ignores: gaps but the last few, which is as far as cursors run ahead.
    Source: order of arrival, as of any queue.
    """

    __slots__ = ("_gaps",)

    def __init__(self, *, units_per_cycle: float) -> None:
        super().__init__(units_per_cycle=units_per_cycle)
        self._gaps: list[tuple[float, float]] = []

    def become(self, other: GapPipe) -> None:
        """Be as busy as another one is."""
        self.free_at, self._gaps = other.free_at, list(other._gaps)

    def reserve(self, units: float, *, at_cycle: float, weight: float = 1.0) -> float:
        """As :meth:`Pipe.reserve`, from the first cycle at which the pipe is free on."""
        cycles = units / self.rate
        self.busy_cycles += cycles * weight
        gaps = self._gaps
        free_at = self.free_at
        if free_at < at_cycle:
            gaps.append((free_at, at_cycle))
            if len(gaps) > 2 * MOST_GAPS:
                del gaps[:-MOST_GAPS]  # many at once: each costs a walk over the others
            self.free_at = end = at_cycle + cycles
            return end
        if gaps and gaps[-1][1] > at_cycle:
            return self._fill(cycles, at_cycle)
        self.free_at = end = free_at + cycles
        return end

    def _fill(self, cycles: float, at_cycle: float) -> float:
        """Take what gaps have room for from ``at_cycle`` on, and the rest behind everything."""
        gaps = self._gaps[-MOST_GAPS:]
        first = len(gaps) - 1  # all before the first that ends later are left as they are
        while first > 0 and gaps[first - 1][1] > at_cycle:
            first -= 1
        left = gaps[:first]
        end = at_cycle
        for gap in gaps[first:]:
            since, until = gap
            start = since if since > at_cycle else at_cycle
            if cycles <= 0.0 or start >= until:
                left.append(gap)
                continue
            end = start + cycles
            if end > until:
                end = until
                cycles -= end - start
            else:
                cycles = 0.0  # and not what rounding leaves
            if since < start:
                left.append((since, start))
            if end < until:
                left.append((end, until))
        self._gaps = left[-MOST_GAPS:]
        if cycles > 0.0:
            self.free_at = end = self.free_at + cycles
        return end


class Agenda:
    """What is to come, and the present: a queue of whom to call, and beside it the timers of SharedPipes.

    Each pipe has one, which is set again and again. Parts and roles ask here: simpy's clock is looked up by name each time.
    """

    __slots__ = ("cycle", "num_calls", "num_rings", "pipes", "queue", "rings_at")

    def __init__(self, queue: list[Any]) -> None:
        """``queue`` is simpy's: whom to call is queued as Events are, which cost three times as much."""
        self.cycle = 0.0
        """The present."""
        self.queue: list[tuple[Any, ...]] = queue
        self.rings_at = NEVER
        """Cycle before which no pipe rings."""
        self.num_rings = 0
        self.num_calls = 0
        self.pipes: list[SharedPipe] = []

    def number(self) -> int:
        """That of the next entry of the queue."""
        num = self.num_calls
        self.num_calls = num + 1
        return num

    def later(self, num_cycles: float, action: Action) -> None:
        """Call ``action()`` after ``num_cycles``, 0 or more, behind what is queued for then already."""
        num = self.num_calls
        self.num_calls = num + 1
        heappush(self.queue, (self.cycle + num_cycles, IN_TURN, num, action))

    def advance(self) -> bool:
        """Let ring or call who is next; false where nobody is."""
        queue = self.queue
        if queue:
            at: float = queue[0][0]
            if self.rings_at > at:
                action: Action = heappop(queue)[3]
                self.cycle = at
                action()
                return True
        elif self.rings_at == NEVER:
            return False
        self.ring()
        return True

    def ring(self) -> None:
        """Let the pipe ring that is the first to, unless what is queued comes before it."""
        first, at = None, NEVER
        for pipe in self.pipes:
            if pipe.rings_at < at:
                first, at = pipe, pipe.rings_at
        queue = self.queue
        if first is None or (queue and queue[0][0] < at):
            self.rings_at = at
            return
        self.num_rings += 1
        self.cycle = at
        first.ring()
        at = NEVER
        for pipe in self.pipes:
            if pipe.rings_at < at:
                at = pipe.rings_at
        self.rings_at = at


class RingingEnvironment(simpy.Environment):
    """simpy's environment, with an Agenda: it steps through both, and through Events where somebody waits for one."""

    def __init__(self) -> None:
        queue: list[Any] = []
        self.agenda = Agenda(queue)
        super().__init__()
        self._queue = queue
        self._eid = iter(self.agenda.number, -1)  # type: ignore[assignment]  # one count for Events and calls

    @property
    def _now(self) -> float:  # simpy's own steps set it as well
        return self.agenda.cycle

    @_now.setter
    def _now(self, cycle: float) -> None:
        self.agenda.cycle = cycle

    def step(self) -> None:
        """Let ring, call or process what is next.

        Raises:
            EmptySchedule: there is nothing.
        """
        agenda = self.agenda
        if agenda.queue and agenda.queue[0][0] < agenda.rings_at and isinstance(agenda.queue[0][3], Event):
            super().step()
        elif not agenda.advance():
            raise EmptySchedule


class Ticket:
    """One transfer in a SharedPipe."""

    __slots__ = ("done", "finish", "is_void", "seq", "share", "weight")

    def __init__(self, finish: float, seq: int, weight: float, share: float, done: Done) -> None:
        self.finish = finish
        self.seq = seq
        self.weight = weight
        """What it takes of the pipe while others take 1."""
        self.share = share
        """How fast it moves while others move at 1."""
        self.done = done
        self.is_void = False


class SharedPipe:
    """A part that many share: transfers in flight split its rate equally, each capped by its own port.

    Models: processor sharing with equal shares and one cap, in virtual time: an arrival costs a heap push, a
    departure one timer. A transfer of weight 0 rides on another (a merged request): it takes nothing of the rate. Shares
    may be unequal among transfers that begin while the rate is short.
    Ignores: unequal caps; distance; that the shares of those in flight change when it is no longer short, and the cap of
    a larger share where the rate is near it.
    Source: fluid model of generalized processor sharing (Parekh and Gallager, 1993).
    """

    __slots__ = (
        "_agenda", "_base", "_heap", "_last", "_rate", "_seq", "_served", "_virtual", "_weight", "alone", "cap", "rings_at",
        "total",
    )

    def __init__(self, env: RingingEnvironment, *, bytes_per_cycle: float, cap_bytes_per_cycle: float) -> None:
        """``bytes_per_cycle`` is the rate of all together, ``cap_bytes_per_cycle`` of one transfer."""
        self._agenda = env.agenda
        self.total = bytes_per_cycle
        self.cap = cap_bytes_per_cycle
        self.alone = min(bytes_per_cycle, cap_bytes_per_cycle)
        """Rate of a transfer that has the pipe to itself."""
        self._heap: list[tuple[Any, ...]] = []
        """(where it ends in virtual time, number, Ticket) of each."""
        self._base = 0.0
        self._virtual = 0.0
        self._served = 0.0
        self._last = 0.0
        self._rate = cap_bytes_per_cycle
        self._weight = 0.0
        self._seq = 0
        self.rings_at = NEVER
        """Cycle at which the timer rings."""
        env.agenda.pipes.append(self)

    def moved(self) -> tuple[float, float]:
        """(bytes that a transfer which never ended would have moved up to now, bytes a cycle that each moves now)."""
        now = self._agenda.cycle
        moved = (now - self._last) * self._rate
        self._virtual = virtual = self._virtual + moved
        self._served += moved * self._weight
        self._last = now
        return self._base + virtual, self._rate

    @property
    def rate(self) -> float:
        """Bytes a cycle that each transfer moves now, or would."""
        return self._rate

    def served(self) -> float:
        """Bytes of all transfers up to now, each by its weight."""
        return self._served + (self._agenda.cycle - self._last) * self._rate * self._weight

    def left(self, ticket: Ticket) -> float:
        """Bytes that a transfer in flight has to move."""
        return (ticket.finish - self._virtual - (self._agenda.cycle - self._last) * self._rate) * ticket.share

    def cycles_of(self, num_bytes: float, share: float) -> float:
        """What a transfer with ``share`` takes for so many bytes, at the present rate."""
        return num_bytes / (share * self._rate)

    def share_now(self, share: float) -> float:
        """How fast a transfer moves, beside others at 1, that would have ``share`` while the rate is short."""
        return share if self._rate < self.cap else 1.0

    def transfer(self, num_bytes: float, done: Done, weight: float = 1.0, share: float = 1.0) -> Ticket:
        """Start to move ``num_bytes``; ``done(cycle)`` is called when the last byte has passed.

        ``share``: how much it gets while the rate is short, where others get 1.
        """
        now = self._agenda.cycle
        gone = (now - self._last) * self._rate
        self._virtual = virtual = self._virtual + gone
        self._served += gone * self._weight
        self._last = now
        self._seq = seq = self._seq + 1
        heap = self._heap
        if share != 1.0:
            share = self.share_now(share)
            weight *= share
        ticket = Ticket(virtual + num_bytes / share, seq, weight, share, done)
        heappush(heap, (ticket.finish, seq, ticket))
        if weight:
            self._weight = total = self._weight + weight
            if total * self.cap > self.total:
                self._rate = self.total / total
        if heap[0][2] is ticket:
            self._arm()
        return ticket

    def extend(self, ticket: Ticket, num_bytes: float, weight: float) -> Ticket:
        """Let a transfer in flight carry ``num_bytes`` more, at ``weight`` from now on; returns its new ticket."""
        now = self._agenda.cycle
        moved = (now - self._last) * self._rate
        self._virtual += moved
        self._served += moved * self._weight
        self._last = now
        ticket.is_void = True
        self._seq = seq = self._seq + 1
        share = ticket.share
        weight *= share
        longer = Ticket(ticket.finish + num_bytes / share, seq, weight, share, ticket.done)
        heap = self._heap
        heappush(heap, (longer.finish, seq, longer))
        self._weight = total = self._weight + weight - ticket.weight
        rate = self.cap if total * self.cap <= self.total else self.total / total
        is_faster = rate > self._rate
        self._rate = rate
        if is_faster:
            self._arm()
        return longer  # a timer that rings too early now is set anew then

    @property
    def num_in_flight(self) -> int:
        """Transfers that have not finished."""
        return sum(not ticket.is_void for _, _, ticket in self._heap)

    def _arm(self) -> None:
        """See to it that the timer rings no later than when the first transfer may end; it may ring too early."""
        agenda, heap = self._agenda, self._heap
        first: Ticket = heap[0][2]
        while first.is_void:
            heappop(heap)
            first = heap[0][2]
        left = (first.finish - self._virtual) / self._rate
        if left < 0.0:
            left = 0.0
        self.rings_at = rings_at = agenda.cycle + left
        if rings_at < agenda.rings_at:
            agenda.rings_at = rings_at

    def ring(self) -> None:
        """Transfers that have ended by now leave, and those whom it concerns are told."""
        now = self._agenda.cycle
        moved = (now - self._last) * self._rate
        self._virtual += moved
        self._served += moved * self._weight
        self._last = now
        self.rings_at = NEVER
        heap = self._heap
        reached = self._virtual + EPSILON_BYTES + EPSILON_OF_CLOCK * now * self._rate
        finished: Ticket | None = None
        others: list[Ticket] | None = None
        while heap:
            ticket: Ticket = heap[0][2]
            if ticket.finish > reached and not ticket.is_void:
                break
            heappop(heap)
            if ticket.is_void:
                continue
            self._weight -= ticket.weight
            if finished is None:
                finished = ticket
            elif others is None:
                others = [ticket]
            else:
                others.append(ticket)
        if not heap:
            self._weight = 0.0
            self._base += self._virtual
            self._virtual = 0.0
        total = self._weight
        self._rate = self.cap if total * self.cap <= self.total else self.total / total
        if finished is not None:
            finished.done(now)
            if others is not None:
                for ticket in others:
                    ticket.done(now)
        if heap:
            self._arm()
