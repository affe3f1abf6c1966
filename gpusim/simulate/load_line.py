"""What stands before an SM's data stage of shared memory: a line of instructions, and warps that wait for a place in it.

In: long loads of roles from shared memory, and roles that want to ask global memory for something. Out: turns at the data
stage, tokens that are ready, and roles that go on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from gpusim.errors import LaunchError
from gpusim.machine.memory.smem import EPSILON_WAVEFRONTS, Smem
from gpusim.machine.timing import Agenda
from gpusim.simulate.costs.memory import TokenReady
from gpusim.simulate.timeline import WarpState
from gpusim.units import WAVEFRONT_BYTES
from gpusim.workload import ops
from gpusim.workload.access import AccessPattern
from gpusim.workload.token import Token

if TYPE_CHECKING:
    from gpusim.simulate.role import Pause, Role

LINE_PLACES = 60.0
"""Instructions that the line before the data stage holds.
Source: kernels/behind_conflicts, h100_sxm, 2026-11-27: 59 where all four sub-cores issue."""

LEAST_TURN_WAVEFRONTS = 32.0
"""Fewer than these of a role's loads are no turn of their own.
Source: choice, what one load of 32 ways takes; less would cost more events than it tells."""


class Waiter(ABC):
    """Who waits for a place in the line: a load's next turn, or a role that wants to go on."""

    __slots__ = ("age", "left", "num_places")

    def __init__(self, age: int, num_wavefronts: float, num_places: float) -> None:
        """Of a CTA of that age (its index), with so many wavefronts left, so many instructions a turn."""
        self.age = age
        self.left = num_wavefronts
        self.num_places = num_places

    @abstractmethod
    def take(self, at_cycle: float) -> float:
        """Have a turn; returns when it ends."""


class LoadLine:
    """One SM's.

    Models: a line of so many instructions, served in the order in which they came; whoever waits for a place in it gets
    one when somebody leaves: CTAs in the order of their age, warps of one CTA in turns, each with all its loads. Loads
    of global memory and copies by cp.async wait for a place as well. So the CTA that came first goes first, and eights
    of warps that meet keep step.
    Ignores: what short loads, stores, copies and global accesses take of its places (they go behind what stands in it);
    that stores wait for a place, too; that each scheduler has half of it at most; an SM that has run wgmma, whose
    operand reads make turns of their own (nothing takes these turns there any more); that other GPUs may have another
    line than an H100.
    Source: places: kernels/behind_conflicts; whose turn it is: kernels/load_turns; both h100_sxm, 2026-11-27.
    """

    __slots__ = ("_agenda", "_in_line", "_is_watched", "_num_asked", "_num_places", "_smem", "_waiting", "has_elders")

    def __init__(self, smem: Smem, agenda: Agenda) -> None:
        """An empty one."""
        self._smem, self._agenda = smem, agenda
        self._in_line: deque[tuple[float, float]] = deque()
        """Until when, and how many instructions."""
        self._num_places = 0.0
        """Taken."""
        self._waiting: list[tuple[int, int, Waiter]] = []
        """By age of their CTAs, and whose turn it is."""
        self._num_asked = 0
        self._is_watched = False
        self.has_elders = False
        """Whether CTAs have ever waited for older ones: they do not go at one pace then."""

    def ask(self, load: LongLoad, at_cycle: float) -> None:
        """Wait for a place, and go on from there."""
        self._wait(load)
        self._fill(at_cycle)

    def wait_for_place(self, role: Role) -> Pause:
        """Until there is a place for a role, where others go before it: those of older CTAs, or its own.

        A role of one warp waits for none of its own CTA, whose warps it takes turns with.
        """
        if not self._waiting or not self._smem.spec.replay_wavefronts:
            role.has_entered = False
            return None
        age = self._waiting[0][0]
        if role.has_entered or age > role.cta.idx or (age == role.cta.idx and role.num_warps == 1):
            role.has_entered = False
            return None
        role.must_retry = True
        wake = role.block(WarpState.LSU, "a place before the data stage of shared memory")
        self._wait(Entrant(role, wake))
        return wake

    def num_ahead(self, role: Role) -> float:
        """Wavefronts that wait for a place: of older CTAs, and of a role's own, for its last warp is behind their turns."""
        ahead, age, is_alone = 0.0, role.cta.idx, role.num_warps == 1
        for its_age, _, waiter in self._waiting:
            if its_age < age or (its_age == age and not is_alone):
                ahead += waiter.left
        return ahead

    def _wait(self, waiter: Waiter) -> None:
        self._num_asked += 1
        if self._waiting and self._waiting[0][0] != waiter.age:
            self.has_elders = True
        heappush(self._waiting, (waiter.age, self._num_asked, waiter))

    def _fill(self, at_cycle: float) -> None:
        """Let in who waits while there is room."""
        line, waiting = self._in_line, self._waiting
        while line and line[0][0] <= at_cycle:
            self._num_places -= line.popleft()[1]
        if not line:
            self._num_places = 0.0  # and not what rounding leaves
        while waiting:
            waiter = waiting[0][2]
            if line and self._num_places + waiter.num_places > LINE_PLACES:
                break
            heappop(waiting)
            end = waiter.take(at_cycle)
            if not waiter.num_places:
                continue
            line.append((end, waiter.num_places))
            self._num_places += waiter.num_places
            if waiter.left:
                self._wait(waiter)
        if waiting and not self._is_watched:
            self._is_watched = True
            now, leaves = self._agenda.cycle, line[0][0]
            self._agenda.later(leaves - now if leaves > now else 0.0, self._look)

    def _look(self) -> None:
        """The first in line leaves it."""
        self._is_watched = False
        self._fill(self._agenda.cycle)


class Entrant(Waiter):
    """A role that waits for a place in the line for what it asks of global memory."""

    __slots__ = ("_role", "_wake")

    def __init__(self, role: Role, wake: Role) -> None:
        super().__init__(role.cta.idx, 0.0, 0.0)
        self._role, self._wake = role, wake

    def take(self, at_cycle: float) -> float:
        """Go on."""
        role, now = self._role, self._role.agenda.cycle
        role.has_entered = True
        until = at_cycle if at_cycle > role.t else role.t
        self._wake.fire(until - now if until > now else 0.0)
        return at_cycle


class LongLoad(Waiter):
    """A role's loads from shared memory that take turns at the data stage, a warp's share at a time."""

    __slots__ = (
        "_asked_at", "_first_left", "_num_parts", "_on_way", "_op", "_registers", "_role", "_stage", "_token", "_turn",
        "_wavefronts", "_weight", "_words",
    )

    def __init__(self, role: Role, op: ops.SharedLoad | ops.Ldmatrix, wavefronts: float, *, is_matrix: bool) -> None:
        """All has been issued at the role's cursor."""
        access = op.access
        self._turn = max(LEAST_TURN_WAVEFRONTS, wavefronts / role.num_warps)
        super().__init__(role.cta.idx, wavefronts, max(1.0, access.num_requests * self._turn / wavefronts))
        self._role, self._op, self._wavefronts, self._weight = role, op, wavefronts, role.count
        self._asked_at = role.t
        self._registers = access.num_bytes / WAVEFRONT_BYTES / wavefronts
        self._on_way = way_wavefronts(access, wavefronts)
        self._words = words_per_lane(access, is_matrix=is_matrix)
        self._num_parts = parts_of(role, op)
        self._first_left = wavefronts / self._num_parts
        self._stage = role.stage(op.buffer, op.stage)
        self._token = Token(is_long=False)

    def begin(self, at_cycle: float) -> Token:
        """Stand in line from when the first has been issued; returns the token of what is loaded."""
        role, stage = self._role, self._stage
        if stage is not None:
            stage.begin_read(role.t, "" if stage.is_full(role.t) else role.who())
        role.sm.smem.count_wavefronts(self._wavefronts * self._weight)
        role.engine.load_lines[role.sm.idx].ask(self, at_cycle)
        return self._token

    def take(self, at_cycle: float) -> float:
        """Have a turn at the data stage; returns when it ends."""
        smem = self._role.sm.smem
        turn = self.left if self.left < self._turn else self._turn
        end, missed = smem.load(
            turn, registers_per_wavefront=self._registers, at_cycle=at_cycle, weight=self._weight,
            way_wavefronts=self._on_way, is_counted=True,
        )
        self._on_way = 0.0
        served = turn - missed
        self.left -= served
        if self._first_left > 0.0:
            self._first_left -= served
            if self._first_left <= EPSILON_WAVEFRONTS:
                self._tell(end + self._first_left / smem.wavefronts_per_cycle)
        if self.left <= EPSILON_WAVEFRONTS:
            self.left = 0.0
            self._end(end)
        return end

    def _ready(self, end_cycle: float, num_parts: int) -> float:
        """When the registers of one of so many parts are there, served by ``end_cycle``."""
        role = self._role
        return role.sm.smem.ready(
            end_cycle, wavefronts_per_warp=self._wavefronts / role.num_warps / num_parts, words_per_lane=self._words,
            at_cycle=self._asked_at,
        )

    def _tell(self, end_cycle: float) -> None:
        """The first part has been served by ``end_cycle``."""
        TokenReady(self._token)(self._ready(end_cycle, self._num_parts))

    def _end(self, end_cycle: float) -> None:
        """All has been served by ``end_cycle``."""
        if self._stage is None:
            return
        role = self._role
        until = self._ready(end_cycle, 1) - role.sm.smem.load_latency_cycles
        self._stage.end_read(until)
        if role.record is not None:
            role.record_read(self._op.buffer, self._op.stage, self._asked_at, until)


def takes_turns(role: Role, num_wavefronts: float) -> bool:
    """Whether loads of a role take turns: long ones, but where operands of wgmma are read."""
    return num_wavefronts > LEAST_TURN_WAVEFRONTS and role.sm.smem.takes_turns


def way_wavefronts(access: AccessPattern, num_wavefronts: float) -> float:
    """What a load takes of the way to the data stage: its wavefronts, but for conflicts."""
    return min(num_wavefronts, max(access.num_requests, access.num_bytes / WAVEFRONT_BYTES))


def words_per_lane(access: AccessPattern, *, is_matrix: bool) -> float:
    """32-bit words of a lane of a load that return one after the other."""
    return 1.0 if is_matrix or not access.num_requests else access.num_bytes / (WAVEFRONT_BYTES * access.num_requests)


def parts_of(role: Role, op: ops.SharedLoad | ops.Ldmatrix) -> int:
    """Of how many parts a load is, the first of which is waited for."""
    if type(op) is not ops.SharedLoad:
        return 1
    if op.num_parts < 1:
        raise LaunchError(f"{role.who()} reads {op.num_parts} parts, wants 1 or more")
    return op.num_parts
