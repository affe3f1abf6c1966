"""CTA scheduling in the reference engine: CTAs are dispatched to SMs, exit, and others take their slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from simpy.core import EmptySchedule

from gpusim.errors import DeadlockError, LaunchError
from gpusim.machine.config import GpuSpec
from gpusim.machine.sm.occupancy import l1_bytes, occupancy
from gpusim.reference.core import beyond_core
from gpusim.reference.cta import Cta, Grid, Role, ThreadBarrier
from gpusim.reference.events import Fact, all_of
from gpusim.reference.instructions import carry_out
from gpusim.reference.memory import LeastRecentlyUsed, Memory, Planned, Residency, Sums
from gpusim.reference.sm import Sm
from gpusim.units import Clock
from gpusim.workload.launch import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Cycles, counters and warp states of a run."""

    cycles: float
    num_events: int
    """Number of events that simpy has scheduled."""
    counters: Sums
    """Counters by part and name, for example ``l2.read_sectors``: those of the machine that the core has."""
    states: Mapping[str, Mapping[str, float]]
    """Cycles of each role in each state, over all its CTAs."""


def simulate(launch: Launch, gpu: GpuSpec, *, sm_mhz: float | None = None, is_warm: bool = False) -> Answer:
    """Run ``launch`` on ``gpu``, event by event.

    Args:
        launch: from a kernel model, or your own; launches that follow it are ignored.
        gpu: a GPU without mechanisms beyond the core, as :func:`gpusim.reference.core_only` returns it.
        sm_mhz: SM clock in MHz; the highest by default.
        is_warm: whether L2 holds the lines that an earlier launch left.

    Raises:
        LaunchError: the GPU cannot run it, or it needs more than the core.
        DeadlockError, HazardError: the kernel deadlocks, or reads and writes shared memory in a race.
    """
    if others := beyond_core(gpu):
        raise LaunchError(f"{gpu.name} has {len(others)} mechanisms beyond the core, for example {others[0]}: use core_only")
    kernel = Kernel(launch, gpu, Clock(sm_mhz=sm_mhz or gpu.clock.max_mhz), is_warm=is_warm)
    kernel.run()
    return Answer(cycles=kernel.end_cycle, num_events=next(kernel.env._eid), counters=kernel.counters, states=kernel.states)


class Kernel(Grid):
    """One launch on one GPU."""

    def __init__(self, launch: Launch, gpu: GpuSpec, clock: Clock, *, is_warm: bool) -> None:
        """Prepare a launch for :meth:`run`."""
        super().__init__(launch, gpu, carry_out)
        size, self.ctas_per_sm = launch.cluster_size, occupancy(
            gpu, kernel=launch.kernel, num_threads=launch.num_threads, registers_per_thread=launch.registers_per_thread,
            smem_bytes=launch.smem_bytes,
        ).ctas_per_sm  # fmt: skip
        num_slots = gpu.floorplan.num_clusters(size) * size * self.ctas_per_sm
        self.num_ctas = launch.num_ctas or min(num_slots, -(-launch.num_tiles // size) * size)
        """CTAs of the grid. A persistent grid has the number that runs at once, or fewer where there are fewer tiles."""
        self.num_at_once = min(num_slots, self.num_ctas)
        l2 = gpu.l2_partitions
        held: Residency = LeastRecentlyUsed(gpu.l2.capacity_bytes / gpu.l2.num_partitions, l2.dirty_bytes, is_warm=is_warm)
        if launch.has_planned_traffic:
            held = Planned(launch, gpu, num_at_once=self.num_at_once, is_warm=is_warm)
        self.memory = Memory(self.env, gpu, clock, held, self.counters)
        kept = l1_bytes(gpu, smem_bytes=launch.smem_bytes, ctas_per_sm=self.ctas_per_sm)
        self._sms = [Sm(self.env, gpu, self.memory, idx, l1_bytes=kept) for idx in range(gpu.num_sms)]
        of_one = gpu.floorplan.clusters(size) if size > 1 else [(sm.idx,) for sm in self._sms]
        self._places = of_one * self.ctas_per_sm
        """SMs of the clusters that start first: one cluster on each group of SMs, then a second one, and so on."""
        self._free_smem = Counter({sm.idx: self.ctas_per_sm for sm in self._sms})
        """CTAs that still fit on each SM, in addition to running CTAs and those of the first wave."""
        self._free_smem.subtract(sm_idx for sms in self._places for sm_idx in sms)
        self._next_cta, self._live = 0, dict[int, Cta]()
        self._dispatched_at, self._retired_at = gpu.dispatcher.launch_cycles, 0.0
        self._num_stores, self._stored_at = 0, 0.0
        """Stores in flight; and the cycle at which the kernel's end has confirmed all finished ones."""
        self.end_cycle = -1.0

    def run(self) -> None:
        """Run until all CTAs have exited, and all their stores are in L2.

        Raises:
            DeadlockError: roles wait, and no event is left.
            HazardError, LaunchError: an op goes wrong.
        """
        for sms in self._places:
            if self._next_cta < self.num_ctas:
                self._start_cluster(sms, ready_at=0.0)
        while self.end_cycle < 0.0:
            try:
                self.env.step()
            except EmptySchedule:
                raise DeadlockError(self._who_waits()) from None

    def _start_cluster(self, sms: tuple[int, ...], *, ready_at: float) -> None:
        """Dispatch the next CTAs of the grid to these SMs, after those before them."""
        spec, launch, size, dsmem = self.gpu.dispatcher, self.launch, len(sms), self.gpu.dsmem
        self._dispatched_at = max(ready_at, self._dispatched_at) + size * spec.dispatch_cycles_per_cta
        starts_at = self._dispatched_at + spec.cta_start_cycles + (spec.cluster_start_cycles if size > 1 else 0.0)
        latency = dsmem.cluster_barrier_cycles + size * dsmem.cluster_barrier_cta_cycles if dsmem else 0.0
        at_cluster = ThreadBarrier(self.env, "cluster", launch.num_threads * size, latency)
        cluster: list[Cta] = []
        for sm_idx in sms:
            cta = Cta(self, self._sms[sm_idx], cluster, at_cluster, idx=self._next_cta)
            self._live[cta.idx] = cta
            self._next_cta += 1
        for cta in cluster:
            cta.roles = [Role(self, cta, role, self._dispatched_at, starts_at) for role in launch.roles]

    def cta_exits(self, cta: Cta) -> None:
        """Retire a CTA, one after the other for the full grid, and free its slot."""
        spec, now, size = self.gpu.dispatcher, self.env.now, self.launch.cluster_size
        del self._live[cta.idx]
        each = spec.retire_cycles_per_cta if size == 1 else spec.cluster_retire_cycles_per_cta
        self._retired_at = max(now, self._retired_at) + each
        if self.has_stored or self._num_stores or self._stored_at > now:
            self._stored_at = max(self._stored_at, self._retired_at + spec.store_end_cycles)
        self._free_smem[cta.sm.idx] += 1
        with_free_smem = [idx for idx in sorted(self._free_smem) if self._free_smem[idx] > 0]
        if self._next_cta < self.num_ctas and len(with_free_smem) >= size:
            self._free_smem.subtract(with_free_smem[:size])
            self._start_cluster(tuple(with_free_smem[:size]), ready_at=self._retired_at + spec.cta_exit_cycles)
        self._end_if_over()

    def watch(self, store: tuple[Fact, Fact]) -> tuple[Fact, Fact]:
        """Keep the kernel from ending before a store has left its SM and is in L2."""
        self._num_stores += 1
        all_of(self.env, store).then(self._stored)
        return store

    def _stored(self, at: float) -> None:
        self._num_stores -= 1
        self._stored_at = max(self._stored_at, at + self.gpu.dispatcher.store_end_cycles)
        self._end_if_over()

    def _end_if_over(self) -> None:
        """End the kernel if no CTA is left and no store is in flight."""
        if not self._live and self._next_cta >= self.num_ctas and not self._num_stores and self.end_cycle < 0.0:
            self.end_cycle = max(self.env.now, self._retired_at, self._stored_at) + self.gpu.dispatcher.drain_cycles

    def _who_waits(self) -> str:
        """Message of a deadlock."""
        waiting = [role for cta in self._live.values() for role in cta.roles if not role.is_done]
        named = [role for role in waiting[:4] if role.cta is waiting[0].cta]
        lines = [f"{role.name} waits for {role.blocked_on()} since cycle {role.blocked_since:.0f}" for role in named]
        more = f"; and {len(waiting) - len(lines)} more" if len(waiting) > len(lines) else ""
        return f"{self.launch.kernel}: deadlock: {'; '.join(lines)}{more}"
