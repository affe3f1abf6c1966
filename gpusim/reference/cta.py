"""CTAs and their roles: the process that carries out a program, and what roles of a CTA share.

A role keeps a cursor, the cycle up to which its warps are accounted for. What an op takes moves the cursor, and not the
clock: the role may run ahead of it. Before it asks for what others ask for, too, it lets the clock catch up, but for 48
cycles, or 16 before a load from shared memory, whose latency is short. Who asks for something first within these may not be
who asks for the earlier cycle.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterator
from itertools import count
from math import inf
from typing import Any

from simpy import Environment, Event

from gpusim.errors import HazardError, LaunchError
from gpusim.machine.config import GpuSpec
from gpusim.reference.events import EPSILON_CYCLES, Fact, GapPipe, Wait
from gpusim.reference.memory import Memory, Request, Sums
from gpusim.reference.sm import Sm
from gpusim.units import WARPGROUP_THREADS
from gpusim.workload import ops
from gpusim.workload.launch import Launch, WarpRole

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


class Stage:
    """One slot of a buffer. It takes no time; it refuses what would be a race on a GPU.

    Who writes or reads says from when on, and until when, as far as that is known.
    """

    def __init__(self, name: str) -> None:
        """Nothing was written yet."""
        self._name, self._was_written = name, False
        self._num_writes = self._num_reads = 0
        """Under way; when they end is not known."""
        self._full_at = self._read_until = 0.0

    def begin_write(self, at: float, who: str) -> None:
        """A write begins."""
        until = inf if self._num_reads else self._read_until
        if until > at + EPSILON_CYCLES:
            raise HazardError(
                f"{who}: {self._name} is refilled at cycle {at:.0f} while it is read until {until:.0f}; "
                f"wait for its readers first"
            )
        self._num_writes, self._was_written = self._num_writes + 1, True

    def end_write(self, at: float) -> None:
        """A write ends at a cycle that is known now."""
        self._num_writes, self._full_at = self._num_writes - 1, max(self._full_at, at)

    def read(self, at: float, until: float, who: str) -> None:
        """A read that lasts until a cycle that is known."""
        if not self._was_written:
            raise HazardError(f"{who}: {self._name} is read at cycle {at:.0f} and was never written")
        if self._num_writes or self._full_at > at + EPSILON_CYCLES:
            raise HazardError(f"{who}: {self._name} is read at cycle {at:.0f} before it is full; wait for its barrier first")
        self._read_until = max(self._read_until, until)

    def begin_read(self, at: float, who: str) -> None:
        """A read that goes on by itself."""
        self.read(at, at, who)
        self._num_reads += 1

    def end_read(self, at: float) -> None:
        """It ends at a cycle that is known now."""
        self._num_reads, self._read_until = self._num_reads - 1, max(self._read_until, at)


class Mbarrier:
    """One mbarrier: a phase is over when its arrivals are there and its bytes, those that were announced."""

    def __init__(self, env: Environment, name: str, num_arrivals: int) -> None:
        """In its first phase, whose parity is 0."""
        self._env, self.name, self._num_arrivals = env, name, num_arrivals
        self._num_pending, self.parity = num_arrivals, 0
        self.num_announced = self.num_delivered = self.num_open_bytes = 0
        self._latest = self.completed_at = 0.0
        self.phase = Fact(env)
        """The end of the present one."""

    def arrive(self, count: int, at: float, who: str) -> None:
        """So many arrivals, which count at cycle ``at``; ``who`` for errors."""
        self._num_pending -= count
        if self._num_pending < 0:
            raise HazardError(
                f"{who}: mbarrier {self.name} got {self._num_arrivals - self._num_pending} arrivals in a phase that expects "
                f"{self._num_arrivals}, at cycle {self._env.now:.0f}"
            )
        self._counts(at)

    def announce(self, num_bytes: int) -> None:
        """``expect_tx``."""
        self.num_open_bytes, self.num_announced = self.num_open_bytes + num_bytes, self.num_announced + num_bytes

    def deliver(self, num_bytes: int, at: float) -> None:
        """``complete_tx``: they are there at cycle ``at``."""
        self.num_open_bytes, self.num_delivered = self.num_open_bytes - num_bytes, self.num_delivered + num_bytes
        self._counts(at)

    def _counts(self, at: float) -> None:
        self._latest = max(self._latest, at)
        if not self._num_pending and not self.num_open_bytes:
            self.parity, self.completed_at = self.parity ^ 1, self._latest
            self._num_pending, self.num_announced, self.num_delivered = self._num_arrivals, 0, 0
            over, self.phase = self.phase, Fact(self._env)
            over.tell(self.completed_at)

    def words(self, parity: int) -> str:
        """Who waits for the phase of a parity, for what of it?"""
        arrivals = f"{self._num_pending} of {self._num_arrivals} arrivals missing" if self._num_pending else ""
        announced = f"{self.num_announced} bytes announced, {self.num_delivered} delivered" if self.num_open_bytes else ""
        return f"mbarrier {self.name} parity {parity} ({', '.join(part for part in (arrivals, announced) if part)})"


class ThreadBarrier:
    """``bar.sync`` or ``barrier.cluster``: all its threads go on together, some cycles behind the last that arrives."""

    def __init__(self, env: Environment, name: str, num_threads: int, latency_cycles: float) -> None:
        """Nobody has arrived."""
        self._env, self.name, self._num_threads, self._latency = env, name, num_threads, latency_cycles
        self._num_arrived, self._latest, self._release = 0, 0.0, Fact(env)

    def arrive(self, num_threads: int, at: float) -> Fact:
        """So many threads arrive at cycle ``at``; known is, in time, when they may go on."""
        self._num_arrived, self._latest = self._num_arrived + num_threads, max(self._latest, at)
        if self._num_arrived > self._num_threads:
            raise HazardError(
                f"barrier {self.name!r}: {self._num_arrived} threads arrived by cycle {self._env.now:.0f}, it was declared "
                f"for {self._num_threads}"
            )
        release, latest = self._release, self._latest
        if self._num_arrived == self._num_threads:
            self._num_arrived, self._latest, self._release = 0, 0.0, Fact(self._env)
            release.tell(latest + self._latency)
        return release


class Declared(dict[Any, Any]):
    """What a launch declares, by its name."""

    def __missing__(self, name: object) -> None:
        raise LaunchError(f"uses {name!r}, which the launch does not declare: it has {', '.join(map(repr, self))}")


class Grid:
    """CTAs of one launch: the clock, memory and sums that they share."""

    num_ctas = num_at_once = ctas_per_sm = 0
    memory: Memory
    cta_exits: Callable[[Cta], None]
    watch: Callable[[tuple[Fact, Fact]], tuple[Fact, Fact]]
    """Of the kernel, which deals out CTAs and does not end before a store is over."""

    def __init__(self, launch: Launch, gpu: GpuSpec, carry_out: Callable[[Role, object], Any]) -> None:
        """Nothing has run. ``carry_out`` carries out an op of a role."""
        self.launch, self.gpu, self.env, self.carry_out, self.has_stored = launch, gpu, Environment(), carry_out, False
        self.counters, self.states = Sums(float), defaultdict[str, Sums](lambda: Sums(float))

    def until(self, cycle: float) -> Event:
        """What a process waits for that has nothing to do before ``cycle``."""
        return self.env.timeout(max(0.0, cycle - self.env.now))


class Cta:
    """A thread block on an SM. Its process waits for its roles, and then leaves."""

    def __init__(self, kernel: Grid, sm: Sm, cluster: list[Cta], at_cluster: ThreadBarrier, *, idx: int) -> None:
        """CTA ``idx`` of the grid, the next one of a cluster, all of whose CTAs meet ``at_cluster``."""
        env, launch, latency = kernel.env, kernel.launch, kernel.gpu.warp_scheduler.barrier_base_cycles
        self.kernel, self.sm, self.cluster, self.at_cluster = kernel, sm, cluster, at_cluster
        self.idx, self.rank = idx, len(cluster)
        cluster.append(self)
        self.mbarriers: dict[tuple[str, int], Mbarrier] = Declared({
            (ring.name, stage): Mbarrier(env, f"{ring.name}[{stage}]", ring.num_arrivals)
            for ring in launch.mbarriers for stage in range(ring.num_stages)
        })  # fmt: skip
        self.stages: dict[tuple[str, int], Stage] = Declared({
            (ring.name, stage): Stage(f"{ring.name}[{stage}]") for ring in launch.buffers for stage in range(ring.num_stages)
        })  # fmt: skip
        named = [(barrier.name, barrier.num_threads) for barrier in launch.named_barriers]
        self.barriers: dict[str, ThreadBarrier] = Declared({
            name: ThreadBarrier(env, name, num, latency) for name, num in (*named, ("__syncthreads", launch.num_threads))
        })  # fmt: skip
        self.roles: list[Role] = []
        self.num_free_registers, self.waits_for_registers = 0, list[tuple[int, Fact]]()
        """Of its pool; and who waits for how many, in order."""
        self.ended = Fact(env)
        env.process(self._life())

    def role_ended(self) -> None:
        """When it was the last, all its roles have ended by the latest of their cursors."""
        if all(role.is_done for role in self.roles):
            self.ended.tell(max(role.t for role in self.roles))

    def _life(self) -> Wait:
        """Until all roles have ended; bytes that an mbarrier still waits for would be written over somebody else's."""
        ended_at = yield self.ended
        yield self.kernel.until(ended_at)
        for barrier in self.mbarriers.values():
            if barrier.num_open_bytes:
                raise HazardError(
                    f"{self.kernel.launch.kernel}: CTA {self.idx} exits at cycle {self.kernel.env.now:.0f} while mbarrier "
                    f"{barrier.name} has {barrier.num_announced} bytes announced and {barrier.num_delivered} delivered"
                )
        self.kernel.cta_exits(self)

    def hand_out_registers(self, at: float) -> None:
        """Give what is free to those who wait for it."""
        while self.waits_for_registers and self.waits_for_registers[0][0] <= self.num_free_registers:
            needed, fact = self.waits_for_registers.pop(0)
            self.num_free_registers -= needed
            fact.tell(at)


class Role:
    """The warps of one role of one CTA, in lockstep; to its program it is the ``RoleContext``."""

    def __init__(self, kernel: Grid, cta: Cta, spec: WarpRole, created_at: float, starts_at: float) -> None:
        """It exists since ``created_at``, which is where its cursor begins."""
        self.kernel, self.env, self.cta, self.sm, self.spec = kernel, kernel.env, cta, cta.sm, spec
        self.cta_idx, self.num_ctas, self.cta_rank = cta.idx, kernel.num_ctas, cta.rank
        self.name = f"role {spec.name!r} of CTA {cta.idx}"
        self.who = f"{kernel.launch.kernel}: {self.name}"
        """For errors."""
        self.num_warps, self.num_threads = spec.num_warps, spec.num_threads
        self.num_warpgroups = max(1, spec.num_threads // WARPGROUP_THREADS)
        self.registers, self.wave = kernel.launch.registers_per_thread, cta.idx // kernel.num_at_once
        """Of each thread; and how many-th work tile of its slot it works on."""
        self.t, self.is_done = created_at, False
        """The cursor."""
        self.blocked_on: Callable[[], str] = str
        self.blocked_since = 0.0
        """What it waits for, in words, and since when."""
        self.last_store: Fact | None = None
        """To global memory: when it is in L2."""
        self.stored_at = self.delivered_at = self.fenced_at = 0.0
        """When the last of its stores to shared memory is in; when that one's registers had been read; and when copies see
        all that was stored before its last proxy fence."""
        self.at_cluster = Fact(self.env)
        """Its arrival at the cluster's barrier: when all go on."""
        self.arrives_far_at = self.mma_done_at = self.wgmma_end = 0.0
        """When what it sent last to another CTA counts there; when its last mma.sync, and the last of its wgmma, have given
        their sums."""
        self.wgmma_groups: deque[float] = deque()
        """When those end that it has not waited for."""
        self.copies, self.copy_groups = list[Fact](), deque[Fact]()
        """By cp.async: those that are not committed, and groups that it has not waited for."""
        self.bulk, self.bulk_groups = list[Fact](), deque[Fact]()
        """The same of stores by TMA, each known when it has read its source and left the SM."""
        self.spend("start", starts_at)
        self.env.process(self._run())

    # ------------------------------------------------------------------------------------------ RoleContext

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
                ahead = self.t - self.env.now
                if ahead > (AHEAD_OF_LOAD_CYCLES if isinstance(op, LOADS) else AHEAD_CYCLES) and not isinstance(op, LAZY):
                    yield self.env.timeout(ahead)
                answer = self.kernel.carry_out(self, op)
                if isinstance(answer, Generator):
                    answer = yield from answer
        except StopIteration:
            pass
        except (HazardError, LaunchError) as error:
            said = str(error).removeprefix(f"{self.kernel.launch.kernel}: ")
            raise type(error)(str(error) if self.name in said else f"{self.who}: {said}") from None
        self.is_done = True
        self.cta.role_ended()

    # ------------------------------------------------------------------------------------------ words for ops

    def spend(self, state: str, until: float) -> None:
        """Be in ``state`` from the cursor to a cycle, if that lies ahead of it."""
        if until > self.t:
            self.kernel.states[self.spec.name][state] += until - self.t
            self.t = until

    def wait(self, fact: Fact, state: str, what: str) -> Wait:
        """Until what is known, or will be, counts. The clock is waited for only where it is not known yet."""
        if fact.cycle is None:
            self.blocked_on, self.blocked_since = lambda: what, self.t
            cycle = yield fact
            yield self.kernel.until(max(cycle, self.t))
            self.spend(state, self.env.now)
        else:
            self.spend(state, fact.cycle)

    def count(self, part: str, **numbers: float) -> None:
        """Add to counters of a part."""
        for name, number in numbers.items():
            self.kernel.counters[f"{part}.{name}"] += number

    def issue(self, num_each: float) -> None:
        """Issue so many instructions of each warp."""
        if num_each:
            self.count("warp_scheduler", instructions=num_each * self.num_warps)
            self.spend("issue", self.sm.issue(num_each, self.num_warps, self.t))

    def execute(self, pipe: GapPipe, num_each: float, *, turns_each: float = 1.0, num_warps: int = 0) -> float:
        """Issue so many instructions of each warp to a pipe; returns when it has taken the last."""
        num_warps = num_warps or self.num_warps
        self.count("warp_scheduler", instructions=num_each * num_warps)
        return self.sm.execute(pipe, num_each, num_warps, self.t, turns_each=turns_each)

    def request(self, op: Any, num_bytes: float, *, at: float | None = None) -> Request:
        """What an op asks of memory, from the cursor on, or from a cycle that is not past."""
        issued_at, come_along = self.t if at is None else max(at, self.env.now), getattr(op, "come_along", ())
        return Request(self.sm.idx, op.tensor, op.tile, num_bytes, self.wave, issued_at, come_along)

    def part(self, name: str) -> Any:
        """What a part costs that not all GPUs have."""
        spec = self.kernel.gpu.component(name)
        if spec is None:
            raise LaunchError(f"{self.who} needs {name}, which {self.kernel.gpu.name} lacks")
        return spec
