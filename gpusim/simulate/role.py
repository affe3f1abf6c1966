"""A role while it runs: drives its program, op by op, and keeps the account of its time.

A role keeps a cursor, the cycle up to which its warps are accounted for. It may run ahead of the simulation's clock by
a few issue cycles; before it queues work on a shared pipe it lets the clock catch up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from types import GeneratorType
from typing import TYPE_CHECKING, Any, TypeAlias

from gpusim.errors import HazardError, LaunchError
from gpusim.machine.component import MemoryRequest
from gpusim.simulate.cta import Cta, Stage
from gpusim.simulate.laggard import Laggard
from gpusim.simulate.loops import Loop, TileLoop
from gpusim.simulate.timeline import ReadSpan, RoleTimeline, WarpState
from gpusim.simulate.turns import CopyPass
from gpusim.units import SECTOR_BYTES, WARPGROUP_THREADS, WAVEFRONT_BYTES
from gpusim.workload import ops
from gpusim.workload.access import AccessPattern
from gpusim.workload.fetches import Fetches
from gpusim.workload.launch import Launch, WarpRole
from gpusim.workload.token import Token

if TYPE_CHECKING:
    from gpusim.simulate.engine import Engine

SYNC_CYCLES = 48.0
"""How far a role's cursor may run ahead of the clock before it queues work on something shared."""

SHARED_SYNC_CYCLES = 16.0
"""The same before it loads from shared memory, whose latency is short."""

Pause: TypeAlias = "Role | Token | None"
"""What an op leaves: wait until the role is woken, hand a token to the program, or go on."""

Handler = Callable[[Any, Any], Pause]
"""Carries out an op for a role: ``handler(role, op)``."""

LAZY: frozenset[type[ops.Op]] = frozenset(
    {
        ops.WgmmaCommitGroup, ops.WgmmaWaitGroup, ops.MbarrierWait, ops.MbarrierArrive, ops.CpAsyncWaitGroup,
        ops.BulkCommitGroup, ops.BulkWaitGroup, ops.Use, ops.RangeStart, ops.RangeEnd,
    }
)
"""Ops that touch nothing shared, or say when what they do counts, so that the clock need not catch up first."""

QUICK: frozenset[type[ops.Op]] = frozenset({ops.SharedLoad, ops.SharedAtomic, ops.Ldmatrix})
"""Ops that give a token back within some twenty cycles."""

NUM_STATES = len(WarpState)

NEVER_STORED = -1e9
"""A cycle long before any."""

OVER = object()
"""Behind the last op of a program."""

START, ISSUE, TENSOR = WarpState.START, WarpState.ISSUE, WarpState.TENSOR


class AsyncGroup:
    """Copies that were committed together: complete when the last of them is, and not before the group ``ahead``."""

    __slots__ = ("is_around_l1", "num_pending", "on_complete", "ready_at")

    def __init__(self, ahead: AsyncGroup | None = None) -> None:
        """An empty group is complete when the one ahead of it is."""
        self.num_pending = 0
        self.ready_at = 0.0
        self.is_around_l1 = False
        """Whether it has copies around L1."""
        self.on_complete: list[Callable[[float], None]] = []
        if ahead is not None:
            if ahead.num_pending:
                self.num_pending = 1
                ahead.on_complete.append(self.finish)
            else:
                self.ready_at = ahead.ready_at

    def add(self) -> None:
        """One more copy."""
        self.num_pending += 1

    def finish(self, cycle: float) -> None:
        """One copy will be complete at ``cycle``."""
        self.num_pending -= 1
        if cycle > self.ready_at:
            self.ready_at = cycle
        if not self.num_pending and self.on_complete:
            waiting, self.on_complete = self.on_complete, []
            for resume in waiting:
                resume(self.ready_at)


class RoleShape:
    """What a role of a launch is, looked up once for all CTAs."""

    __slots__ = ("num_threads", "num_warpgroups", "num_warps", "program", "registers", "spec")

    def __init__(self, launch: Launch, spec: WarpRole) -> None:
        self.spec = spec
        self.num_warps = spec.num_warps
        self.num_threads = spec.num_threads
        self.num_warpgroups = max(1, self.num_threads // WARPGROUP_THREADS)
        self.registers = launch.registers_per_thread
        self.program = spec.program


class Groups:
    """What a role has committed, or not yet, of what goes on by itself."""

    __slots__ = ("bulk", "bulk_open", "cp", "cp_open", "wgmma")

    def __init__(self) -> None:
        self.cp: deque[AsyncGroup] = deque()
        self.cp_open = AsyncGroup()
        self.bulk: deque[tuple[AsyncGroup, AsyncGroup]] = deque()
        """Stores by TMA: what has been read, and what is there."""
        self.bulk_open = (AsyncGroup(), AsyncGroup())
        self.wgmma: deque[float] = deque()


class Role:
    """The warps of one role of one CTA, in lockstep but for the last one. Implements ``workload.launch.RoleContext``."""

    __slots__ = (
        "_groups", "agenda", "all_fenced_at", "arrives_far_at", "async_cp", "blocked_on", "blocked_since", "copies_until",
        "copy_pass", "count", "cta", "delivered_at", "engine", "handlers", "has_entered", "is_done", "iteration_weight",
        "laggard", "last_store", "loads_since", "loops", "mma_done", "must_retry", "num_threads", "num_warpgroups",
        "num_warps", "op", "partly", "passed_bytes", "program", "queued_stores", "record", "registers", "sections", "send",
        "sm", "spec", "steps", "stored_at", "stored_out_at", "t", "tile_loop", "totals", "turn_weight", "wait_state", "wave",
        "wgmma_open", "wgmma_through",
    )

    def __init__(self, engine: Engine, cta: Cta, shape: RoleShape, start_cycle: float, created_cycle: float) -> None:
        """A role that starts at ``start_cycle``; it has existed since ``created_cycle``."""
        self.engine, self.agenda = engine, engine.agenda
        self.cta, self.sm, self.spec = cta, cta.sm, shape.spec
        self.num_threads, self.num_warps, self.num_warpgroups = shape.num_threads, shape.num_warps, shape.num_warpgroups
        self.wave = cta.wave
        self.iteration_weight = self.turn_weight = 1.0
        self.count = cta.weight
        self.t = created_cycle
        self.totals = [0.0] * NUM_STATES
        self.loops: list[Loop] = []
        self.tile_loop: TileLoop | None = None
        self._groups: Groups | None = None
        self.copies_until = 0.0
        self.loads_since = 0.0
        """Cycle of the first load since what was loaded before has been used."""
        self.wgmma_open = self.wgmma_through = self.mma_done = self.arrives_far_at = 0.0
        self.last_store: AsyncGroup | None = None
        self.queued_stores: deque[tuple[float, AsyncGroup]] = deque()
        """Stores to memory that may not have left the SM, oldest first, in bytes of the port's time."""
        self.passed_bytes = 0.0
        """Of these, what an instruction behind them overtakes no more, but need not wait for."""
        self.stored_at = 0.0
        """When the last of its stores to shared memory goes in."""
        self.stored_out_at = NEVER_STORED
        """When the last of its stores to memory is past the data stage's line: its CTA is not out at once behind it."""
        self.delivered_at = 0.0
        """When a middle warp's registers of that one have been read; conflicts may be served yet."""
        self.laggard = Laggard()
        self.all_fenced_at = 0.0
        """When the last of its warps has a proxy fence behind it; the cursor is the first's."""
        self.registers = shape.registers
        self.program = shape.program
        self.blocked_on: str | ops.MbarrierWait | None = None
        self.blocked_since = 0.0
        self.must_retry = self.is_done = self.has_entered = False  # a place before the data stage that it has waited for
        self.copy_pass = CopyPass.NONE
        self.partly: tuple[float, float] | None = None
        """Of an op that waits for the rest of its turn beside wgmma: since when, wavefronts, lines or instructions left."""
        self.wait_state = WarpState.ISSUE
        self.handlers = engine.handlers
        self.op: Any = None
        """The op that waits."""
        self.send: Callable[[Token | None], Any]
        self.steps: Iterator[Any]
        self.sections: list[tuple[str, float]] = []
        self.record: RoleTimeline | None = None
        if cta.sm.idx in engine.recorded_sms:
            self.record = RoleTimeline(shape.spec.name, cta.idx, cta.sm.idx, shape.num_warps)
            engine.timeline.roles.append(self.record)
        self.spend(START, start_cycle)

    # ------------------------------------------------------------------------------------------ RoleContext

    @property
    def cta_idx(self) -> int:
        """Linear index of the CTA in the grid."""
        return self.cta.idx

    @property
    def num_ctas(self) -> int:
        """Number of CTAs in the grid."""
        return self.engine.num_ctas

    @property
    def groups(self) -> Groups:
        """Made at their first use: CTAs of streams come and go, and have none."""
        groups = self._groups
        if groups is None:
            groups = self._groups = Groups()
        return groups

    @property
    def cta_rank(self) -> int:
        """Rank of the CTA in its cluster."""
        return self.cta.rank

    def loop(self, num_iterations: int) -> Loop:
        """A loop that the engine may move ahead."""
        loop = Loop(self, num_iterations)
        self.loops.append(loop)
        self.engine.steady.watch(loop)
        return loop

    def tiles(self, num_tiles: int, *, first: int = 0, step: int = 1) -> TileLoop:
        """The turns of a persistent CTA."""
        self.tile_loop = loop = TileLoop(self, num_tiles, first, step)
        self.engine.steady.watch_tiles(loop)
        return loop

    # ------------------------------------------------------------------------------------------ bookkeeping

    def update_count(self) -> None:
        """How many times an op counts, after a weight has changed."""
        self.laggard.worked_until, self.laggard.counted_until = self.worked(), self.shared_cycles()
        self.count = self.cta.weight * self.turn_weight * self.iteration_weight

    def record_read(self, buffer: str, stage: int, start: float, end: float) -> None:
        """Note for the timeline that this role reads a stage of shared memory."""
        offset = self.engine.offset_cycles
        self.engine.timeline.reads.append(
            ReadSpan(self.cta.idx, self.sm.idx, self.spec.name, buffer, stage, start + offset, end + offset)
        )

    def spend(self, state: WarpState, until: float) -> None:
        """Be in ``state`` from the cursor to ``until``."""
        since = self.t
        if until > since:
            self.totals[state] += (until - since) * self.count
            if self.record is not None:
                offset = self.engine.offset_cycles
                self.record.states.append((state, since + offset, until + offset))
            self.t = until

    def step(self, num_cycles: float) -> None:
        """Issue for ``num_cycles``."""
        if self.record is None:
            self.totals[1] += num_cycles * self.count  # ISSUE
            self.t += num_cycles
        else:
            self.spend(ISSUE, self.t + num_cycles)

    def meet(self) -> None:
        """All its warps are waited for, the last of them, too."""
        late = self.laggard.meet(self.worked()) if self.laggard.cycles else 0.0
        if late:
            self.spend(WarpState.LONG_SCOREBOARD, self.t + late)

    def worked(self) -> float:
        """Cycles so far in which its warps took turns at what they share, each once, however often an op counts."""
        laggard = self.laggard
        return laggard.worked_until + (self.shared_cycles() - laggard.counted_until) / self.count

    def shared_cycles(self) -> float:
        """The same, as often as ops count."""
        totals = self.totals
        return totals[WarpState.ISSUE] + totals[WarpState.LSU] + totals[WarpState.MATH_PIPE]

    def block(self, state: WarpState, what: str | ops.MbarrierWait) -> Role:
        """Give up the processor until somebody calls :meth:`fire`, once."""
        self.wait_state = state
        self.blocked_on = what
        self.blocked_since = self.t
        return self

    def fire(self, delay_cycles: float) -> None:
        """Go on ``delay_cycles`` from now: what the role waits for will have happened."""
        self.agenda.later(delay_cycles, self._woken)

    def start(self) -> None:
        """Run the program from the cursor on."""
        program = self.program(self)
        if type(program) is not GeneratorType and not isinstance(program, Generator):  # the first is soon asked
            raise LaunchError(f"{self.who()} has a program that gives {program!r}, wants a function that yields ops")
        self.send, self.steps = program.send, program
        self.agenda.later(max(0.0, self.t - self.agenda.cycle), self._begin)

    def _begin(self) -> None:
        self._go_on(None)

    def _caught_up(self) -> None:
        """The clock has caught up with the cursor: carry out the op that waited for that."""
        self._go_on(self.op)

    def _woken(self) -> None:
        """What an op waited for has happened: go on, or try the op again."""
        self.blocked_on = None
        self.spend(self.wait_state, self.agenda.cycle)
        must_retry, self.must_retry = self.must_retry, False
        self._go_on(self.op if must_retry else None)

    def _go_on(self, op: Any) -> None:
        """Carry out ``op``, if there is one, and those that follow, until one must wait."""
        agenda, send, token = self.agenda, self.send, Token
        steps, take, over, lazy, quick = self.steps, next, OVER, LAZY, QUICK  # each looked up by name else, op by op
        pause: Any = None
        try:
            while True:
                if op is None:
                    op = take(steps, over) if pause is None else send(pause)  # which ends with an exception
                    if op is over:
                        break
                    kind = type(op)
                    ahead = self.t - agenda.cycle
                    if ahead > SHARED_SYNC_CYCLES and ((ahead > SYNC_CYCLES and kind not in lazy) or kind in quick):
                        self.op = op
                        agenda.later(ahead, self._caught_up)
                        return
                else:
                    kind = type(op)
                pause = self.handlers[kind](self, op)  # which a section that is free replaces
                if pause is not None and type(pause) is not token:
                    self.op = op
                    return
                op = None
        except StopIteration:
            pass
        except (HazardError, LaunchError) as error:
            if self.spec.name in str(error):
                raise
            raise type(error)(f"{self.who()}: {error}") from None
        except TypeError as error:
            if "numpy" not in str(error):
                raise
            raise LaunchError(f"{self.who()}: {error}: an op's numbers are Python's own, int(...) or float(...)") from error
        self.meet()
        self.is_done = True
        self.engine.role_ended(self)

    def who(self) -> str:
        """For errors: kernel, role and CTA."""
        return f"{self.engine.launch.kernel}: role {self.spec.name!r} of CTA {self.cta.idx}"

    # ------------------------------------------------------------------------------------------ helpers of handlers

    def issue(self, num_instructions: float) -> float:
        """Issue instructions of every warp; returns the cursor afterwards."""
        if num_instructions:
            end = self.sm.warp_scheduler.issue(
                num_instructions, num_warps=self.num_warps, at_cycle=self.t, weight=self.count
            )
            self.spend(ISSUE, end)
        return self.t

    def request(
        self, tensor: str, tile: ops.Tile, num_bytes: float, *, at: float | None = None, num_rows: float = 1.0,
        come_along: tuple[ops.Tile, ...] = (), fetches: Fetches | None = None,
    ) -> MemoryRequest:
        """What is asked of the memory below L1, from the cursor on, or from ``at`` if the clock is not past it."""
        issued_at = self.t if at is None else max(at, self.agenda.cycle)
        if fetches is None:
            return MemoryRequest(
                self.sm.idx, tensor, tile, num_bytes, self.wave, issued_at, self.count, num_rows=num_rows,
                come_along=come_along,
            )
        less = 1.0 - self.engine.gpu.xbar.torn_merge_fraction
        return MemoryRequest(
            self.sm.idx, tensor, tile, num_bytes, self.wave, issued_at, self.count, num_rows=num_rows, come_along=come_along,
            crossings=fetches.num_crossing * SECTOR_BYTES / fetches.num_bytes,
            reads=fetches.num_reads / fetches.num_crossing,
            sharing=(fetches.num_shared - less * fetches.num_torn) / fetches.num_reads,
            num_line_requests=fetches.num_requests,
            request_sharing=(fetches.num_shared_requests - less * fetches.num_torn_requests) / fetches.num_requests,
        )

    def wavefronts(self, access: AccessPattern) -> float:
        """Wavefronts of ``access``; the fewest possible where bank conflicts are idealized."""
        if self.engine.is_ideal("bank_conflicts"):
            return min(access.num_wavefronts, -(-access.num_bytes // WAVEFRONT_BYTES))
        return access.num_wavefronts

    def stage(self, buffer: str, stage: int) -> Stage | None:
        """The declared slot, or None for scratch."""
        return self.cta.stage(buffer, stage) if buffer else None

    def wait_group(self, group: AsyncGroup, state: WarpState, what: str) -> Pause:
        """Wait until ``group`` is complete."""
        if group.num_pending:
            wake = self.block(state, what)
            group.on_complete.append(Resume(self, wake))
            return wake
        self.spend(state, group.ready_at)
        return None


class Resume:
    """Wakes a role at a cycle."""

    __slots__ = ("_role", "_wake")

    def __init__(self, role: Role, wake: Role) -> None:
        self._role = role
        self._wake = wake

    def __call__(self, cycle: float) -> None:
        """Wake at the cycle given, or where the role is already."""
        role = self._role
        now = role.agenda.cycle
        until = cycle if cycle > role.t else role.t
        self._wake.fire(until - now if until > now else 0.0)


def lacks(role: Role, what: str, capability: str) -> LaunchError:
    """The refusal of an instruction that this GPU does not have."""
    gpu = role.engine.gpu
    return LaunchError(
        f"{role.engine.launch.kernel}: {gpu.name} (compute capability {gpu.compute_capability}) has no {what}, "
        f"which needs {capability}"
    )


def peer(role: Role, rank: int) -> Cta:
    """The CTA of rank ``rank`` in the role's cluster."""
    ctas = role.cta.cluster.ctas
    if not 0 <= rank < len(ctas):
        raise LaunchError(f"{role.who()} names cluster rank {rank}, the cluster has ranks 0 to {len(ctas) - 1}")
    return ctas[rank]


def is_pair(role: Role) -> bool:
    """Whether the role's cluster is one of two CTAs."""
    return len(role.cta.cluster.ctas) == 2
