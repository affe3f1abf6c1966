"""CTAs and their roles in the reference engine: the process of a program, and the stages and barriers of a CTA.

A role keeps a cursor, the cycle up to which its warps are accounted for. The time of an op moves the cursor, and not the
clock: the role may run ahead of the clock. Before it requests a shared resource, it lets the clock catch up to within 48
cycles. Before a load from shared memory, whose latency is short, it is 16 cycles. Within these cycles requests may come out
of order.
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
"""Cycles by which a cursor may be ahead of the clock when an op requests something shared."""

AHEAD_OF_LOAD_CYCLES = 16.0
"""Cycles by which a cursor may be ahead of the clock before a load from shared memory."""

LAZY = (
    ops.WgmmaCommitGroup, ops.WgmmaWaitGroup, ops.MbarrierWait, ops.MbarrierArrive, ops.CpAsyncWaitGroup,
    ops.BulkCommitGroup, ops.BulkWaitGroup, ops.Use, ops.RangeStart, ops.RangeEnd,
)
"""Ops that request nothing shared, or pass on the cycle from which on they count. The clock need not catch up."""

LOADS = (ops.SharedLoad, ops.SharedAtomic, ops.Ldmatrix)
"""Ops that load from shared memory."""


class Stage:
    """One stage of a buffer. It takes no time; it refuses accesses that would be a race on a GPU.

    Reads and writes pass their begin and, as far as it is known, their end.
    """

    def __init__(self, name: str) -> None:
        """Begin without data."""
        self._name, self._was_written = name, False
        self._num_writes = self._num_reads = 0
        """Accesses in flight, whose end is not known."""
        self._full_at = self._read_until = 0.0

    def begin_write(self, at: float, who: str) -> None:
        """Begin a write at cycle ``at``. Raises HazardError: the stage is still read."""
        until = inf if self._num_reads else self._read_until
        if until > at + EPSILON_CYCLES:
            raise HazardError(
                f"{who}: {self._name} is refilled at cycle {at:.0f} while it is read until {until:.0f}; "
                f"wait for its readers first"
            )
        self._num_writes, self._was_written = self._num_writes + 1, True

    def end_write(self, at: float) -> None:
        """End a write at cycle ``at``, which is known now."""
        self._num_writes, self._full_at = self._num_writes - 1, max(self._full_at, at)

    def read(self, at: float, until: float, who: str) -> None:
        """Read from cycle ``at`` until a cycle that is known.

        Raises:
            HazardError: the stage was never written, or is not full yet.
        """
        if not self._was_written:
            raise HazardError(f"{who}: {self._name} is read at cycle {at:.0f} and was never written")
        if self._num_writes or self._full_at > at + EPSILON_CYCLES:
            raise HazardError(f"{who}: {self._name} is read at cycle {at:.0f} before it is full; wait for its barrier first")
        self._read_until = max(self._read_until, until)

    def begin_read(self, at: float, who: str) -> None:
        """Begin an asynchronous read at cycle ``at``."""
        self.read(at, at, who)
        self._num_reads += 1

    def end_read(self, at: float) -> None:
        """End an asynchronous read at cycle ``at``, which is known now."""
        self._num_reads, self._read_until = self._num_reads - 1, max(self._read_until, at)


class Mbarrier:
    """One mbarrier. A phase completes when all arrivals and all announced bytes are there."""

    def __init__(self, env: Environment, name: str, num_arrivals: int) -> None:
        """Begin in the first phase, whose parity is 0."""
        self._env, self.name, self._num_arrivals = env, name, num_arrivals
        self._num_pending, self.parity = num_arrivals, 0
        self.num_announced = self.num_delivered = self.num_open_bytes = 0
        self._latest = self.completed_at = 0.0
        self.phase = Fact(env)
        """End of the present phase."""

    def arrive(self, count: int, at: float, who: str) -> None:
        """Count ``count`` arrivals at cycle ``at``. ``who`` is the role in errors.

        Raises:
            HazardError: more arrivals than the phase expects.
        """
        self._num_pending -= count
        if self._num_pending < 0:
            raise HazardError(
                f"{who}: mbarrier {self.name} got {self._num_arrivals - self._num_pending} arrivals in a phase that expects "
                f"{self._num_arrivals}, at cycle {self._env.now:.0f}"
            )
        self._counts(at)

    def announce(self, num_bytes: int) -> None:
        """Announce bytes: ``expect_tx``."""
        self.num_open_bytes, self.num_announced = self.num_open_bytes + num_bytes, self.num_announced + num_bytes

    def deliver(self, num_bytes: int, at: float) -> None:
        """Deliver bytes at cycle ``at``: ``complete_tx``."""
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
        """Description of a wait for the phase of a parity: missing arrivals and bytes."""
        arrivals = f"{self._num_pending} of {self._num_arrivals} arrivals missing" if self._num_pending else ""
        announced = f"{self.num_announced} bytes announced, {self.num_delivered} delivered" if self.num_open_bytes else ""
        return f"mbarrier {self.name} parity {parity} ({', '.join(part for part in (arrivals, announced) if part)})"


class ThreadBarrier:
    """``bar.sync`` or ``barrier.cluster``: all threads go on together, some cycles after the last arrival."""

    def __init__(self, env: Environment, name: str, num_threads: int, latency_cycles: float) -> None:
        """Begin without arrivals."""
        self._env, self.name, self._num_threads, self._latency = env, name, num_threads, latency_cycles
        self._num_arrived, self._latest, self._release = 0, 0.0, Fact(env)

    def arrive(self, num_threads: int, at: float) -> Fact:
        """``num_threads`` threads arrive at cycle ``at``. The returned fact counts when they may go on.

        Raises:
            HazardError: more threads than the barrier was declared for.
        """
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
    """Objects that a launch declares, by name. An unknown name is refused."""

    def __missing__(self, name: object) -> None:
        raise LaunchError(f"uses {name!r}, which the launch does not declare: it has {', '.join(map(repr, self))}")


class Grid:
    """Clock, memory and counters that the CTAs of one launch share."""

    num_ctas = num_at_once = ctas_per_sm = 0
    memory: Memory
    cta_exits: Callable[[Cta], None]
    watch: Callable[[tuple[Fact, Fact]], tuple[Fact, Fact]]
    """Function of the kernel, which keeps it from ending before a store is over."""

    def __init__(self, launch: Launch, gpu: GpuSpec, carry_out: Callable[[Role, object], Any]) -> None:
        """Begin at cycle 0. ``carry_out`` carries out an op of a role."""
        self.launch, self.gpu, self.env, self.carry_out, self.has_stored = launch, gpu, Environment(), carry_out, False
        self.counters, self.states = Sums(float), defaultdict[str, Sums](lambda: Sums(float))

    def until(self, cycle: float) -> Event:
        """Event at ``cycle``, for a process that has nothing to do before."""
        return self.env.timeout(max(0.0, cycle - self.env.now))


class Cta:
    """A thread block on an SM. Its process waits for its roles, and then exits."""

    def __init__(self, kernel: Grid, sm: Sm, cluster: list[Cta], at_cluster: ThreadBarrier, *, idx: int) -> None:
        """Start CTA ``idx`` of the grid, the next of a cluster whose CTAs share the barrier ``at_cluster``."""
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
        self.stored: dict[tuple[str, str], tuple[tuple[Any, int] | None, int]] = {}
        """Tile, with the index of the work tile, and part of the last store, by role and tensor."""
        self.num_free_registers, self.waits_for_registers = 0, list[tuple[int, Fact]]()
        """Free registers of the CTA's pool; and the waiting requests in order."""
        self.ended = Fact(env)
        env.process(self._life())

    def role_ended(self) -> None:
        """End the CTA at the latest cursor of its roles, if all of them have ended."""
        if all(role.is_done for role in self.roles):
            self.ended.tell(max(role.t for role in self.roles))

    def _life(self) -> Wait:
        """Wait for all roles, check that no announced bytes are missing, and exit.

        Missing bytes would be written over another CTA's data.
        """
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
        """Give free registers to waiting requests, in order."""
        while self.waits_for_registers and self.waits_for_registers[0][0] <= self.num_free_registers:
            needed, fact = self.waits_for_registers.pop(0)
            self.num_free_registers -= needed
            fact.tell(at)


class Role:
    """The warps of one role of one CTA, in lockstep. Its program sees it as the ``RoleContext``."""

    def __init__(self, kernel: Grid, cta: Cta, spec: WarpRole, created_at: float, starts_at: float) -> None:
        """Create the role at cycle ``created_at``, where its cursor begins; its warps start at ``starts_at``."""
        self.kernel, self.env, self.cta, self.sm, self.spec = kernel, kernel.env, cta, cta.sm, spec
        self.cta_idx, self.num_ctas, self.cta_rank = cta.idx, kernel.num_ctas, cta.rank
        self.name = f"role {spec.name!r} of CTA {cta.idx}"
        self.who = f"{kernel.launch.kernel}: {self.name}"
        """Kernel and role for errors."""
        self.num_warps, self.num_threads = spec.num_warps, spec.num_threads
        self.num_warpgroups = max(1, spec.num_threads // WARPGROUP_THREADS)
        self.registers, self.wave = kernel.launch.registers_per_thread, cta.idx // kernel.num_at_once
        """Registers of each thread; and the index of the role's work tile on its slot."""
        self.t, self.is_done = created_at, False
        """Cursor in SM cycles; and whether the program has ended."""
        self.blocked_on: Callable[[], str] = str
        self.blocked_since = 0.0
        """Cycle since which the role waits for ``blocked_on``."""
        self.last_store: Fact | None = None
        """Last store to global memory: known when it is in L2."""
        self.stored_at = self.delivered_at = self.fenced_at = 0.0
        """Cycles of three events of its stores to shared memory.

        The last store is in. The registers of that store have been read. The async proxy sees all stores before the last
        proxy fence."""
        self.at_cluster = Fact(self.env)
        """Arrival at the cluster barrier: counts when all may go on."""
        self.arrives_far_at = self.mma_done_at = self.wgmma_end = 0.0
        """Cycles at which three of its ops take effect.

        Its last store or arrival counts at another CTA. Its last mma.sync has results. Its last wgmma ends."""
        self.wgmma_groups: deque[float] = deque()
        """Ends of the wgmma groups that it has not waited for."""
        self.copies, self.copy_groups = list[Fact](), deque[Fact]()
        """Copies by cp.async that are not committed, and groups that it has not waited for."""
        self.bulk, self.bulk_groups = list[Fact](), deque[Fact]()
        """TMA stores that are not committed, and groups that it has not waited for.

        A store is known when it has read its source and left the SM."""
        self.spend("start", starts_at)
        self.env.process(self._run())

    def loop(self, num_iterations: int) -> Iterator[int]:
        """Iterations 0 to ``num_iterations`` - 1. Each of them is carried out."""
        return iter(range(num_iterations))

    def tiles(self, num_tiles: int, *, first: int = 0, step: int = 1) -> Iterator[tuple[int, int]]:
        """Turns of a persistent CTA, and their work tiles."""
        for turn in count(first, step):
            tile = self.cta.idx + turn * self.kernel.num_ctas
            if tile >= num_tiles:
                return
            self.wave = turn
            yield turn, tile

    def _run(self) -> Wait:
        """Run the program from the start of its warps to its end."""
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
            sentence = str(error).removeprefix(f"{self.kernel.launch.kernel}: ")
            raise type(error)(str(error) if self.name in sentence else f"{self.who}: {sentence}") from None
        self.is_done = True
        self.cta.role_ended()

    def spend(self, state: str, until: float) -> None:
        """Be in ``state`` from the cursor to the cycle ``until``, if that lies ahead of the cursor."""
        if until > self.t:
            self.kernel.states[self.spec.name][state] += until - self.t
            self.t = until

    def wait(self, fact: Fact, state: str, what: str) -> Wait:
        """Wait until a fact counts. The process waits for the clock only where the fact is not known yet."""
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
        """Issue ``num_each`` instructions of each warp."""
        if num_each:
            self.count("warp_scheduler", instructions=num_each * self.num_warps)
            self.spend("issue", self.sm.issue(num_each, self.num_warps, self.t))

    def execute(self, pipe: GapPipe, num_each: float, *, turns_each: float = 1.0, num_warps: int = 0) -> float:
        """Issue ``num_each`` instructions of each warp to a pipe; returns the cycle at which it has taken the last."""
        num_warps = num_warps or self.num_warps
        self.count("warp_scheduler", instructions=num_each * num_warps)
        return self.sm.execute(pipe, num_each, num_warps, self.t, turns_each=turns_each)

    def request(self, op: Any, num_bytes: float, *, at: float | None = None) -> Request:
        """Memory request of an op, issued at the cursor, or at a cycle that is not past."""
        issued_at, promoted_tiles = self.t if at is None else max(at, self.env.now), getattr(op, "promoted_tiles", ())
        return Request(self.sm.idx, op.tensor, op.tile, num_bytes, self.wave, issued_at, promoted_tiles)

    def store_request(self, op: Any, num_bytes: float) -> Request:
        """Memory request of a store. Stores in a row to one tile store different parts of it, and so do roles."""
        request, tile, key = self.request(op, num_bytes), (op.tile, self.wave), (self.spec.name, op.tensor)
        last, part = self.cta.stored.get(key, (None, 0))
        part = part + 1 if last == tile else 0
        self.cta.stored[key], request.part = (tile, part), (self.spec.name, part)
        return request

    def part(self, name: str) -> Any:
        """Spec of a part that not all GPUs have. Raises LaunchError: the GPU lacks it."""
        spec = self.kernel.gpu.component(name)
        if spec is None:
            raise LaunchError(f"{self.who} needs {name}, which {self.kernel.gpu.name} lacks")
        return spec
