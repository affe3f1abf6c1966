"""A role: the process that carries out a program, op by op.

A role keeps a cursor, the cycle up to which its warps are accounted for. What an op takes moves the cursor, and not the
clock: the role may run ahead of it. Before it asks for what others ask for, too, it lets the clock catch up, but for 48
cycles, or 16 before a load from shared memory, whose latency is short. Who asks for something first within these may not be
who asks for the earlier cycle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from gpusim.errors import HazardError, LaunchError
from gpusim.reference.cta import Cta, Mbarrier, Stage
from gpusim.reference.facts import Fact, Group, Wait
from gpusim.reference.pipes import GapPipe
from gpusim.reference.residency import Request
from gpusim.units import WARPGROUP_THREADS
from gpusim.workload import ops
from gpusim.workload.launch import WarpRole

if TYPE_CHECKING:
    from gpusim.reference.kernel import Kernel

Item = TypeVar("Item")

AHEAD_CYCLES = 48.0
"""How far a cursor may be ahead of the clock when an op asks for something that is shared."""

AHEAD_OF_LOAD_CYCLES = 16.0
"""The same before a load from shared memory."""

LAZY = (
    ops.WgmmaCommitGroup, ops.WgmmaWaitGroup, ops.MbarrierWait, ops.MbarrierArrive, ops.CpAsyncWaitGroup,
    ops.BulkCommitGroup, ops.BulkWaitGroup, ops.Use, ops.RangeStart, ops.RangeEnd,
)
"""Ops that ask for nothing shared, or say from when on what they do counts: the clock need not catch up."""

LOADS = (ops.SharedLoad, ops.SharedAtomic, ops.Ldmatrix)
"""From shared memory."""


class Loaded(Fact):
    """Registers that a load fills; a program calls it a token. Known as soon as it is sure when they are full."""

    is_long = False
    """Whether it comes from global memory."""


class Role:
    """The warps of one role of one CTA, in lockstep; to its program it is the ``RoleContext``."""

    def __init__(self, kernel: Kernel, cta: Cta, spec: WarpRole, *, created_at: float, starts_at: float) -> None:
        """It exists since ``created_at``."""
        self.kernel, self.env, self.cta, self.sm, self.spec = kernel, kernel.env, cta, cta.sm, spec
        self.num_warps, self.num_threads = spec.num_warps, spec.num_threads
        self.num_warpgroups = max(1, spec.num_threads // WARPGROUP_THREADS)
        self.registers = kernel.launch.registers_per_thread
        self.wave = cta.idx // kernel.num_at_once
        """How many-th work tile of its slot it works on."""
        self.t = created_at
        """The cursor."""
        self.is_done = False
        self.blocked_on: str | tuple[Mbarrier, int] = ""
        """What it waits for: words, or an mbarrier and a parity."""
        self.blocked_since = 0.0
        self.last_store: Fact | None = None
        """To global memory: when it is in L2."""
        self.stored_at = self.delivered_at = 0.0
        """When the last of its stores to shared memory is in; when that one's registers had been read."""
        self.fenced_at = 0.0
        """When copies see all that was stored before its last proxy fence."""
        self.arrives_far_at = 0.0
        """When what it sent last to another CTA counts there."""
        self.at_cluster: Fact | None = None
        """Its arrival at the cluster's barrier: when all go on."""
        self.mma_done_at = self.wgmma_end = 0.0
        """When its last mma.sync, and the last of its wgmma, have given their sums."""
        self.wgmma_groups: deque[float] = deque()
        """When those that it has not waited for end."""
        self.copies, self.copy_groups = Group(self.env), deque[Group]()
        """By cp.async: those that are not committed, and groups that it has not waited for."""
        self.bulk = Group(self.env), Group(self.env)
        """Stores by TMA that are not committed: what has been read, and what is there."""
        self.bulk_groups: deque[tuple[Group, Group]] = deque()
        self.sections: list[str] = []
        self.spend("start", starts_at)
        self.env.process(self._run())

    # ------------------------------------------------------------------------------------------ RoleContext

    @property
    def cta_idx(self) -> int:
        """Linear index of the CTA in the grid."""
        return self.cta.idx

    @property
    def num_ctas(self) -> int:
        """Number of CTAs in the grid."""
        return self.kernel.num_ctas

    @property
    def cta_rank(self) -> int:
        """Rank of the CTA in its cluster."""
        return self.cta.rank

    def loop(self, num_iterations: int) -> Iterator[int]:
        """Each iteration is carried out."""
        return iter(range(num_iterations))

    def tiles(self, num_tiles: int, *, first: int = 0, step: int = 1) -> Iterator[tuple[int, int]]:
        """The turns of a persistent CTA, and their work tiles."""
        for turn in count(first, step):
            tile = self.cta.idx + turn * self.kernel.num_ctas
            if tile >= num_tiles:
                return
            self.wave = turn
            yield turn, tile

    # ------------------------------------------------------------------------------------------ the process

    def _run(self) -> Wait:
        """From the start of its warps to the end of its program."""
        yield self.kernel.until(self.t)
        program: Any = self.spec.program(self)
        answer: object = None
        try:
            while True:
                op = program.send(answer)
                ahead, is_lazy, is_load = self.t - self.env.now, isinstance(op, LAZY), isinstance(op, LOADS)
                if (ahead > AHEAD_CYCLES and not is_lazy) or (ahead > AHEAD_OF_LOAD_CYCLES and is_load):
                    yield self.env.timeout(ahead)
                answer = self.kernel.carry_out(self, op)
                if isinstance(answer, Generator):
                    answer = yield from answer
        except StopIteration:
            pass
        except (HazardError, LaunchError) as error:
            if self.spec.name in str(error):
                raise
            raise type(error)(f"{self.who()}: {error}") from None
        self.is_done = True
        self.cta.role_ended()

    def who(self) -> str:
        """For errors."""
        return f"{self.kernel.launch.kernel}: role {self.spec.name!r} of CTA {self.cta.idx}"

    # ------------------------------------------------------------------------------------------ words for ops

    def spend(self, state: str, until: float) -> None:
        """Be in ``state`` from the cursor to a cycle, if that lies ahead of it."""
        if until > self.t:
            self.kernel.states[self.spec.name][state] += until - self.t
            self.t = until

    def wait(self, fact: Fact, state: str, what: str) -> Wait:
        """Until what is known, or will be, counts. The clock is waited for only where it is not known yet."""
        if fact.cycle is None:
            self.blocked_on, self.blocked_since = what, self.t
            cycle = yield fact
            yield self.kernel.until(max(cycle, self.t))
            self.blocked_on = ""
            self.spend(state, self.env.now)
        else:
            self.spend(state, fact.cycle)

    def issue(self, num_each: float) -> None:
        """Issue so many instructions of each warp."""
        if num_each:
            self.kernel.count["warp_scheduler.instructions"] += num_each * self.num_warps
            self.spend("issue", self.sm.schedulers.issue(num_each, self.num_warps, self.t))

    def execute(self, pipe: GapPipe, num_each: float, *, turns_each: float = 1.0, num_warps: int = 0) -> float:
        """Issue so many instructions of each warp to a pipe; returns when it has taken the last."""
        num_warps = num_warps or self.num_warps
        self.kernel.count["warp_scheduler.instructions"] += num_each * num_warps
        return self.sm.schedulers.execute(pipe, num_each, num_warps, self.t, turns_each=turns_each)

    def request(self, tensor: str, tile: ops.Tile, num_bytes: float, *, at: float | None = None) -> Request:
        """What is asked of memory, from the cursor on, or from a cycle that is not past."""
        issued_at = self.t if at is None else max(at, self.env.now)
        return Request(self.sm.idx, tensor, tile, num_bytes, self.wave, issued_at)

    def stage(self, buffer: str, stage: int) -> Stage | None:
        """The slot that an op names; none for scratch."""
        return self.cta.stage(buffer, stage) if buffer else None

    def latest_of(self, groups: deque[Item], num_pending: int) -> Item | None:
        """The latest of its groups that must be complete where so many may be under way; forgets it, and all before."""
        if num_pending < 0:
            raise LaunchError(f"{self.who()} waits until {num_pending} groups are in flight, wants 0 or more")
        latest = None
        while len(groups) > num_pending:
            latest = groups.popleft()
        return latest

    def part(self, name: str) -> Any:
        """What a part costs that not all GPUs have."""
        spec = self.kernel.gpu.component(name)
        if spec is None:
            raise LaunchError(f"{self.who()} needs {name}, which {self.kernel.gpu.name} lacks")
        return spec

    def peer(self, rank: int) -> Cta:
        """The CTA of that rank in its cluster."""
        ctas = self.cta.cluster.ctas
        if not 0 <= rank < len(ctas):
            raise LaunchError(f"{self.who()} names cluster rank {rank}, the cluster has ranks 0 to {len(ctas) - 1}")
        return ctas[rank]
