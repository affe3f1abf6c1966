"""A kernel while it runs: CTAs are dealt out to SMs, exit, and others take their place."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import simpy
from simpy.core import EmptySchedule

from gpusim.errors import DeadlockError, LaunchError
from gpusim.machine.config import GpuSpec
from gpusim.machine.sm.occupancy import occupancy
from gpusim.reference.core import beyond_core
from gpusim.reference.cta import Cluster, Cta, ThreadBarrier
from gpusim.reference.facts import Fact, Sums
from gpusim.reference.memory import Memory
from gpusim.reference.residency import Request, residency
from gpusim.reference.role import Role
from gpusim.reference.sm import Sm
from gpusim.reference.vocabulary import carry_out
from gpusim.units import Clock
from gpusim.workload.launch import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a run says."""

    cycles: float
    num_events: int
    """That simpy has scheduled."""
    counters: dict[str, float]
    """By part and name, such as ``l2.read_sectors``: those of the machine's counters that the core has."""
    states: dict[str, dict[str, float]]
    """For each role the cycles that it was in each state, over all its CTAs."""


def simulate(launch: Launch, gpu: GpuSpec, *, sm_mhz: float | None = None, is_warm: bool = False) -> Answer:
    """Run ``launch`` on ``gpu``, event by event.

    Args:
        launch: what a kernel model gives, or your own; without launches that follow it.
        gpu: with all that is beyond the core switched off, as :func:`gpusim.reference.core_only` gives it.
        sm_mhz: the SMs' clock; the highest if not told.
        is_warm: whether L2 holds what an earlier launch has left.

    Raises:
        LaunchError: the GPU cannot run it, or it needs more than the core.
        DeadlockError, HazardError: it goes wrong while it runs.
    """
    others = beyond_core(gpu)
    if others:
        raise LaunchError(f"{gpu.name} has {len(others)} mechanisms beyond the core, such as {others[0]}: use core_only")
    kernel = Kernel(launch, gpu, Clock(sm_mhz=gpu.clock.max_mhz if sm_mhz is None else sm_mhz), is_warm=is_warm)
    kernel.run()
    return Answer(
        cycles=kernel.end_cycle, num_events=next(kernel.env._eid), counters=dict(kernel.count),
        states={role: dict(of) for role, of in kernel.states.items()},
    )


def first_places(gpu: GpuSpec, cluster_size: int, ctas_per_sm: int, num_ctas: int) -> list[tuple[int, ...]]:
    """The SMs of each cluster of the first wave, in the order in which clusters start: all SMs once, then all again.

    A grid that leaves SMs free is spread over pairs of SMs where the GPU deals out GPC by GPC.
    """
    plan, order = gpu.floorplan, list(range(gpu.num_sms))
    if cluster_size > 1:
        return plan.clusters(cluster_size) * ctas_per_sm
    if gpu.dispatcher.order == "tpc_first":
        order = order[0::2] + order[1::2]
    turns = [order] * ctas_per_sm
    num_whole, num_more = divmod(num_ctas, gpu.num_sms)
    if gpu.dispatcher.order == "gpc_first" and num_whole < ctas_per_sm:
        some = plan.some(num_more)
        turns[num_whole] = some + [sm_idx for sm_idx in order if sm_idx not in some]
    return [(sm_idx,) for turn in turns for sm_idx in turn]


class Kernel:
    """One launch on one GPU."""

    def __init__(self, launch: Launch, gpu: GpuSpec, clock: Clock, *, is_warm: bool) -> None:
        """Ready to :meth:`run`."""
        self.launch, self.gpu, self.env = launch, gpu, simpy.Environment()
        held = occupancy(
            kernel=launch.kernel, num_threads=launch.num_threads, registers_per_thread=launch.registers_per_thread,
            smem_bytes=launch.smem_bytes, limits=gpu.sm_limits, registers=gpu.register_file,
        )
        size, self.ctas_per_sm = launch.cluster_size, held.ctas_per_sm
        num_slots = gpu.floorplan.num_clusters(size) * size * self.ctas_per_sm
        self.num_ctas = launch.num_ctas or min(num_slots, -(-launch.num_tiles // size) * size)
        """A persistent grid has as many as run at once, or as there are tiles."""
        self.num_at_once = min(num_slots, self.num_ctas)
        self.count: Sums = defaultdict(float)
        self.states: dict[str, Sums] = defaultdict(lambda: defaultdict(float))
        self.memory = Memory(
            self.env, gpu, clock, residency(launch, gpu, num_at_once=self.num_at_once, is_warm=is_warm), self.count
        )
        l1_bytes = max(0, gpu.l1.unified_bytes - launch.smem_bytes * self.ctas_per_sm)
        self.sms = [Sm(self.env, gpu, self.memory, idx, l1_bytes=l1_bytes) for idx in range(gpu.num_sms)]
        self.spec, self.carry_out = gpu.dispatcher, carry_out
        self._slots = first_places(gpu, size, self.ctas_per_sm, self.num_ctas)
        self._room = Counter({sm.idx: self.ctas_per_sm for sm in self.sms})
        """CTAs that each SM has room for, beside those that run there or shall at first."""
        self._room.subtract(sm_idx for sms in self._slots for sm_idx in sms)
        self._next_cta = 0
        self._dispatched_at, self._retired_at = self.spec.launch_cycles, 0.0
        self._live: dict[int, Cta] = {}
        self.has_stored = False
        self._num_stores, self._stored_at = 0, 0.0
        """Under way; and when the kernel's end has made sure of those that are not."""
        self.end_cycle = -1.0

    def run(self) -> None:
        """Until all CTAs have exited, and what they have stored is in L2."""
        for sms in self._slots:
            if self._next_cta < self.num_ctas:
                self._start_cluster(sms, ready_at=0.0)
        while self.end_cycle < 0.0:
            try:
                self.env.step()
            except EmptySchedule:
                raise DeadlockError(self._who_waits()) from None

    def until(self, cycle: float) -> simpy.Event:
        """What a process waits for that has nothing to do before ``cycle``."""
        return self.env.timeout(max(0.0, cycle - self.env.now))

    # ------------------------------------------------------------------------------------------ CTAs

    def _start_cluster(self, sms: tuple[int, ...], *, ready_at: float) -> None:
        """The next CTAs of the grid go to these SMs, as soon as those before them have been dealt out."""
        spec, launch, size = self.spec, self.launch, self.launch.cluster_size
        self._dispatched_at = max(ready_at, self._dispatched_at) + size * spec.dispatch_cycles_per_cta
        starts_at = self._dispatched_at + spec.cta_start_cycles + (spec.cluster_start_cycles if size > 1 else 0.0)
        dsmem, latency = self.gpu.dsmem, 0.0
        if dsmem is not None:
            latency = dsmem.cluster_barrier_cycles + size * dsmem.cluster_barrier_cta_cycles
        cluster = Cluster(ThreadBarrier(self.env, "cluster", launch.num_threads * size, latency))
        for rank, sm_idx in enumerate(sms):
            cta = Cta(self, self.sms[sm_idx], cluster, idx=self._next_cta, rank=rank)
            cluster.ctas.append(cta)
            self._live[cta.idx] = cta
            self._next_cta += 1
        for cta in cluster.ctas:
            cta.roles = [
                Role(self, cta, role, created_at=self._dispatched_at, starts_at=starts_at) for role in launch.roles
            ]

    def cta_exits(self, cta: Cta) -> None:
        """Its exit is noted, one after the other of the whole grid; then its slot is free."""
        spec, now = self.spec, self.env.now
        del self._live[cta.idx]
        each = spec.retire_cycles_per_cta if self.launch.cluster_size == 1 else spec.cluster_retire_cycles_per_cta
        self._retired_at = max(now, self._retired_at) + each
        if self.has_stored or self._num_stores or self._stored_at > now:
            self._stored_at = max(self._stored_at, self._retired_at + spec.store_end_cycles)
        if self._next_cta < self.num_ctas:
            sms = self._freed(cta.sm.idx)
            if sms:
                self._start_cluster(sms, ready_at=self._retired_at + spec.cta_exit_cycles)
        self._end_if_over()

    def _freed(self, sm_idx: int) -> tuple[int, ...]:
        """SMs for the next cluster, now that a CTA of one has left: the first that have room; none if these are too few."""
        self._room[sm_idx] += 1
        with_room = [idx for idx in sorted(self._room) if self._room[idx] > 0]
        found = tuple(with_room[: self.launch.cluster_size])
        if len(found) < self.launch.cluster_size:
            return ()
        self._room.subtract(found)
        return found

    # ------------------------------------------------------------------------------------------ stores, and the end

    def store(
        self, request: Request, *, num_distinct_bytes: float, kind: str, num_more_bytes: float = 0.0
    ) -> tuple[Fact, Fact]:
        """Store a tile, before whose arrival the kernel does not end. See :meth:`Memory.store`."""
        self._num_stores += 1
        left, arrived = self.memory.store(
            request, num_distinct_bytes=num_distinct_bytes, kind=kind, num_more_bytes=num_more_bytes
        )
        arrived.then(lambda at: left.then(lambda left_at: self._stored(max(at, left_at))))
        return left, arrived

    def _stored(self, at: float) -> None:
        self._num_stores -= 1
        self._stored_at = max(self._stored_at, at + self.spec.store_end_cycles)
        self._end_if_over()

    def _end_if_over(self) -> None:
        """Nobody is left, and nothing is under way."""
        if not self._live and self._next_cta >= self.num_ctas and not self._num_stores and self.end_cycle < 0.0:
            self.end_cycle = max(self.env.now, self._retired_at, self._stored_at) + self.spec.drain_cycles

    # ------------------------------------------------------------------------------------------ deadlocks

    def _who_waits(self) -> str:
        """The sentence of a deadlock."""
        waiting = [role for cta in self._live.values() for role in cta.roles if not role.is_done]
        lines = [
            f"role {role.spec.name!r} of CTA {role.cta.idx} waits for {_words(role)} since cycle {role.blocked_since:.0f}"
            for role in waiting[:4]
        ]
        more = f"; and {len(waiting) - len(lines)} more" if len(waiting) > len(lines) else ""
        return f"{self.launch.kernel}: deadlock: {'; '.join(lines)}{more}"


def _words(role: Role) -> str:
    """What a role waits for, and what of it has not come."""
    if isinstance(role.blocked_on, str):
        return role.blocked_on
    barrier, parity = role.blocked_on
    return f"mbarrier {barrier.name}[{barrier.stage}] parity {parity} ({barrier.missing()})"
