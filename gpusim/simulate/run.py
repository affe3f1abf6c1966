"""Run a Launch on a GPU: first who touches what, then when."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import simpy
from simpy.events import NORMAL, Event

from gpusim.errors import DeadlockError, LaunchError
from gpusim.machine.build import Machine
from gpusim.machine.clock import Activity, PowerLimiter
from gpusim.machine.config import GpuSpec
from gpusim.machine.memory.residency import (
    LruResidency,
    PanelTraffic,
    PanelUse,
    PlannedResidency,
    panel_traffic,
)
from gpusim.machine.memory.tma import Tma
from gpusim.machine.sm.mbarrier import MbarrierSpec
from gpusim.machine.sm.occupancy import Occupancy, occupancy
from gpusim.simulate.cta import Cluster, Cta, ThreadBarrier
from gpusim.simulate.ideal import IDEALS, idealize
from gpusim.simulate.result import Result
from gpusim.simulate.steady import WARM_WAVE, SteadyState
from gpusim.simulate.timeline import Skip, Timeline, WarpState
from gpusim.simulate.verdict import bound_by, busy_shares, sources_used
from gpusim.simulate.warp import Role
from gpusim.units import SECTOR_BYTES, Clock
from gpusim.workload.access import wgmma_wavefronts
from gpusim.workload.atoms import MmaAtom
from gpusim.workload.launch import Launch
from gpusim.workload.ops import MbarrierWait, TmaLoad, Wgmma

ClockMode = Literal["max", "single", "sustained"]

CLOCK_TOLERANCE = 5e-3
"""The clock has settled when another round would move it by less."""


class WgmmaCost:
    """What one Wgmma op costs, and how often it ran."""

    __slots__ = ("cycles", "num_warp_instructions", "op", "queue_cycles", "times", "wavefronts")

    def __init__(self, op: Wgmma) -> None:
        """``op`` is kept, so that its identity stays its own."""
        self.op = op
        self.cycles = 0.0
        self.queue_cycles = 0.0
        self.wavefronts = 0.0
        self.num_warp_instructions = 0
        self.times = 0.0


class TmaCost:
    """What one TmaLoad op costs its engine, and how often it ran."""

    __slots__ = ("cycles", "latency_cycles", "op", "times")

    def __init__(self, op: TmaLoad, cycles: float, latency_cycles: float) -> None:
        """``op`` is kept, so that its identity stays its own."""
        self.op = op
        self.cycles = cycles
        self.latency_cycles = latency_cycles
        self.times = 0.0


class Engine:
    """One launch while it runs."""

    def __init__(
        self,
        launch: Launch,
        gpu: GpuSpec,
        *,
        clock: Clock,
        is_warm: bool = False,
        skips: bool = True,
        ideals: frozenset[str] = frozenset(),
        recorded_sms: frozenset[int] = frozenset(),
        held: Occupancy | None = None,
    ) -> None:
        """Ready to :meth:`run`; raises LaunchError where the GPU cannot hold the launch."""
        self.launch = launch
        self.gpu = gpu
        self.ideals = ideals
        self.recorded_sms = recorded_sms
        self.env = simpy.Environment()
        self.occupancy = held or check(launch, gpu)
        self.num_slots = count_slots(launch, gpu, self.occupancy)
        self.num_ctas = launch.num_ctas or grid_of_persistent(launch, self.num_slots)
        self.traffic = plan_traffic(launch, gpu, num_slots=min(self.num_slots, self.num_ctas), is_warm=is_warm)
        residency = (
            PlannedResidency(self.traffic)
            if self.traffic
            else LruResidency(capacity_bytes=gpu.l2.capacity_bytes, is_warm=is_warm)
        )
        self.machine = Machine(
            self.env, gpu, clock, residency, cluster_size=launch.cluster_size,
            ctas_per_sm=self.occupancy.ctas_per_sm, smem_bytes_per_sm=launch.smem_bytes * self.occupancy.ctas_per_sm,
        )
        self.mbarrier_spec: MbarrierSpec | None = gpu.mbarrier
        self.wgmma_latency_cycles = gpu.tensor_core.wgmma_latency_cycles
        self.timeline = Timeline()
        self.offset_cycles = 0.0
        self.miss_bytes_by_wave = sum((item.miss_bytes_by_wave for item in self.traffic.values()), np.zeros(1))
        self.touched_bytes_by_wave = sum((item.touched_bytes_by_wave for item in self.traffic.values()), np.zeros(1))
        self.steps_per_turn = max((item.num_steps for item in launch.footprints if item.access == "read"), default=0)
        self.steady = SteadyState(self, enabled=skips and bool(self.traffic))
        self.next_cta = 0
        self._warm_begin = WARM_WAVE * self.num_slots
        self._wave_weight = 1.0
        self._weighted_left = 0
        self.num_waves_stood_for = 0
        self._num_exits = 0
        self._live: dict[int, Cta] = {}
        self._num_stores_pending = 0
        self._last_store_at = 0.0
        self._finished = self.env.event()
        self.wgmma_costs: dict[int, WgmmaCost] = {}
        self.tma_costs: dict[int, TmaCost] = {}
        self._mma_intervals: dict[int, float] = {}
        self.role_totals: dict[str, list[float]] = {role.name: [0.0] * len(WarpState) for role in launch.roles}
        self.section_cycles: dict[str, float] = {}
        self.end_cycle = 0.0
        self.last_exit = 0.0
        self.live_sm_cycles = 0.0
        self.first_start = 0.0
        self.copy_cycles = 0.0
        self.num_copies = 0

    # ------------------------------------------------------------------------------------------ run

    def run(self) -> None:
        """Simulate to the end.

        Raises:
            DeadlockError: roles wait for what never comes.
            HazardError: a stage is overwritten while read, or read before it is full.
        """
        try:
            self._start_first_wave()
            self.env.run(until=self._finished)
            self._settle_costs()
            self.machine.xbar.settle()
        except RuntimeError as error:
            if "No scheduled events left" not in str(error):
                raise
            raise DeadlockError(self._who_waits()) from None

    def _start_first_wave(self) -> None:
        spec = self.gpu.dispatcher
        self.machine.dispatcher.next_free_at = spec.launch_cycles
        for slot_idx in range(len(self.machine.dispatcher.slots)):
            if self.next_cta >= self.num_ctas:
                break
            self._start_cluster(slot_idx, at_cycle=0.0)
        self.first_start = spec.launch_cycles

    def _start_cluster(self, slot_idx: int, *, at_cycle: float) -> None:
        launch, dispatcher = self.launch, self.machine.dispatcher
        size = launch.cluster_size
        spec = dispatcher.spec
        dispatched = dispatcher.dispatch(at_cycle=at_cycle, num_ctas=size)
        start = dispatched + spec.cta_start_cycles
        latency = self.gpu.dsmem.cluster_barrier_cycles if self.gpu.dsmem is not None else 0.0
        cluster = Cluster(slot_idx, ThreadBarrier("cluster", launch.num_threads * size, latency))
        if self.next_cta == self._warm_begin and not self.num_waves_stood_for:
            self.num_waves_stood_for = self.steady.warm_waves_alike()
            if self.num_waves_stood_for:
                self._wave_weight = 1.0 + self.num_waves_stood_for
                self._weighted_left = self.num_slots
        weight = 1.0
        if self._weighted_left > 0:
            weight = self._wave_weight
            self._weighted_left -= size
        num_at_once = min(self.num_slots, self.num_ctas)
        created: list[Role] = []
        for rank in range(size):
            idx = self.next_cta
            self.next_cta += 1
            cta = Cta(
                launch, idx=idx, rank=rank, wave=idx // num_at_once, weight=weight,
                sm=self.machine.sms[dispatcher.slots[slot_idx][rank]], cluster=cluster,
            )
            cluster.ctas.append(cta)
            self._live[idx] = cta
        if self.num_waves_stood_for and self.next_cta == self._warm_begin + self.num_slots:
            self.next_cta += self.num_waves_stood_for * self.num_slots
        for cta in cluster.ctas:
            for role_spec in launch.roles:
                role = Role(self, cta, role_spec, start, dispatched)
                cta.roles.append(role)
                created.append(role)
            cta.num_roles_running = len(cta.roles)
        cluster.num_running = size
        for role in created:
            self.env.process(role.run())

    def role_ended(self, role: Role) -> None:
        """A role's program is over; when it was the CTA's last, the CTA exits."""
        totals = self.role_totals[role.spec.name]
        for state, cycles in enumerate(role.totals):
            totals[state] += cycles
        cta = role.cta
        cta.num_roles_running -= 1
        if cta.num_roles_running:
            return
        ends = max(of_cta.t for of_cta in cta.roles)
        self.at(ends, lambda: self._cta_exits(cta))

    def _cta_exits(self, cta: Cta) -> None:
        now = self.env.now
        del self._live[cta.idx]
        cta.roles.clear()  # nothing refers in a circle, so that no garbage is left to collect
        self._num_exits += 1
        self.last_exit = max(self.last_exit, now)
        cluster = cta.cluster
        cluster.num_running -= 1
        if self._num_exits % self.num_slots == 0:
            num_waves = self.steady.wave_ended()
            if num_waves:
                self.next_cta += num_waves * self.num_slots
                self._wave_weight = 1.0 + num_waves
                self._weighted_left = self.num_slots
        if not cluster.num_running and self.next_cta < self.num_ctas:
            self._start_cluster(cluster.slot_idx, at_cycle=now + self.gpu.dispatcher.cta_exit_cycles)
        self._finish_if_over()

    def _finish_if_over(self) -> None:
        if self._live or self.next_cta < self.num_ctas or self._num_stores_pending or self._finished.triggered:
            return
        self.end_cycle = (
            max(self.env.now, self.last_exit, self._last_store_at) + self.offset_cycles + self.gpu.dispatcher.drain_cycles
        )
        self._finished.succeed()

    def _who_waits(self) -> str:
        lines: list[str] = []
        num_blocked = 0
        for cta in self._live.values():
            for role in cta.roles:
                if role.is_done:
                    continue
                num_blocked += 1
                if len(lines) < 4:
                    lines.append(
                        f"role {role.spec.name!r} of CTA {cta.idx} waits for {_what(cta, role.blocked_on)} since cycle "
                        f"{role.blocked_since + self.offset_cycles:.0f}"
                    )
        more = f"; and {num_blocked - len(lines)} more" if num_blocked > len(lines) else ""
        return f"{self.launch.kernel}: deadlock: {'; '.join(lines)}{more}"

    # ------------------------------------------------------------------------------------------ what roles ask

    def at(self, cycle: float, action: Callable[[], None]) -> None:
        """Do something at a cycle that is not in the past."""
        event = Event(self.env)
        event._ok = True
        event._value = None
        assert event.callbacks is not None  # a new event has not been processed
        event.callbacks.append(lambda _: action())
        self.env.schedule(event, NORMAL, max(0.0, cycle - self.env.now))

    def is_ideal(self, what: str) -> bool:
        """Whether a counterfactual makes ``what`` free."""
        return what in self.ideals

    def cost_of_wgmma(self, op: Wgmma, num_warpgroups: int, num_warps: int) -> WgmmaCost:
        """Cost of one op, worked out at its first use."""
        atom, rates = op.atom, self.gpu.tensor_core.wgmma_flops_per_cycle
        if not rates:
            raise LaunchError(
                f"{self.launch.kernel}: {self.gpu.name} (compute capability {self.gpu.compute_capability}) has no "
                f"wgmma, which needs 9.0a"
            )
        if atom.rate_class not in rates:
            raise LaunchError(
                f"{self.launch.kernel}: {self.gpu.name} states no wgmma rate for {atom.rate_class}, it has "
                f"{', '.join(rates)}"
            )
        wavefronts = float(wgmma_wavefronts(atom))
        core = self.machine.sms[0].tensor_core
        each = core.wgmma_cycles(rate_class=atom.rate_class, num_flops=atom.num_flops, num_wavefronts=wavefronts)
        num_issues = op.num_issues * num_warpgroups
        cost = WgmmaCost(op)
        cost.cycles = num_issues * each
        cost.queue_cycles = core.queue_cycles(op.num_issues, each * num_warpgroups)
        cost.wavefronts = num_issues * wavefronts
        cost.num_warp_instructions = op.num_issues * num_warps
        self.wgmma_costs[id(op)] = cost
        return cost

    def cost_of_tma(self, op: TmaLoad, tma: Tma) -> TmaCost:
        """Cost of one op, worked out at its first use."""
        cycles, extra = tma.walk_cycles(op.num_bytes, num_boxes=op.num_boxes, num_rows=op.num_rows)
        cost = self.tma_costs[id(op)] = TmaCost(op, cycles, tma.spec.latency_cycles + extra)
        return cost

    def _settle_costs(self) -> None:
        """Counters of wgmma and TMA loads, from how often each op ran."""
        sm = self.machine.sms[0]
        tensor, scheduler = sm.tensor_core.counters, sm.warp_scheduler.counters
        for cost in self.wgmma_costs.values():
            tensor.gmma_instructions += cost.num_warp_instructions * cost.times
            tensor.busy_cycles += cost.cycles * cost.times
            scheduler.instructions += cost.num_warp_instructions * cost.times
            sm.smem.count_gmma(cost.wavefronts * cost.times)
        if sm.tma is not None:
            for copy in self.tma_costs.values():
                sm.tma.counters.load_instructions += copy.op.num_boxes * copy.times
                num_receivers = max(1, len(copy.op.multicast))
                sm.tma.counters.load_bytes += copy.op.num_fetched_bytes * num_receivers * copy.times

    def mma_sync_interval(self, atom: MmaAtom) -> float:
        """Cycles between two mma.sync of a sub-core."""
        interval = self._mma_intervals.get(id(atom))
        if interval is None:
            rates = self.gpu.tensor_core.mma_sync_flops_per_cycle
            if atom.rate_class not in rates:
                raise LaunchError(
                    f"{self.launch.kernel}: {self.gpu.name} has no mma.sync for {atom.rate_class}, it has "
                    f"{', '.join(rates)}"
                )
            core = self.machine.sms[0].tensor_core
            interval = core.mma_sync_interval_cycles(rate_class=atom.rate_class, num_flops=atom.num_flops)
            self._mma_intervals[id(atom)] = interval
        return interval

    def store_began(self) -> None:
        """A store is on its way; the kernel does not end before it has arrived."""
        self._num_stores_pending += 1

    def store_ended(self, cycle: float) -> None:
        """A store has left its SM; it arrives one L2 latency later."""
        self._num_stores_pending -= 1
        arrived = cycle + self.machine.l2.hit_latency_cycles
        if arrived > self._last_store_at:
            self._last_store_at = arrived
        if not self._num_stores_pending:
            self._finish_if_over()

    def section_ended(self, role: Role, name: str, num_cycles: float) -> None:
        """A role has spent ``num_cycles`` in a named part of its program."""
        self.section_cycles[name] = self.section_cycles.get(name, 0.0) + num_cycles * role.count

    # ------------------------------------------------------------------------------------------ steady state

    @property
    def reported_cycle(self) -> float:
        """The present, what was skipped included."""
        return self.env.now + self.offset_cycles

    @property
    def num_live_ctas(self) -> int:
        """CTAs that have started and not exited."""
        return len(self._live)

    def live_roles(self) -> Iterator[Role]:
        """Roles of live CTAs that have not ended."""
        for cta in self._live.values():
            for role in cta.roles:
                if not role.is_done:
                    yield role

    def fewest_iterations_left(self) -> int | None:
        """Iterations that every loop has left at least; None while some role is neither in a loop nor blocked."""
        fewest: int | None = None
        for role in self.live_roles():
            if len(role.loops) == 1:
                left = role.loops[0].num_left
                if fewest is None or left < fewest:
                    fewest = left
            elif role.loops or role.blocked_on is None:
                return None
        return fewest

    def miss_bytes_of_wave(self, wave: int) -> float:
        """Bytes that a wave fetches from memory, as planned."""
        return float(self.miss_bytes_by_wave[min(wave, len(self.miss_bytes_by_wave) - 1)])

    def skip(self, num_cycles: float, what: str) -> None:
        """Time moves ahead for all."""
        self.timeline.skips.append(Skip(self.reported_cycle, num_cycles, what))
        self.offset_cycles += num_cycles


def _what(cta: Cta, blocked_on: str | MbarrierWait | None) -> str:
    """What a role waits for, and what of it never arrived."""
    if not isinstance(blocked_on, MbarrierWait):
        return str(blocked_on)
    barrier = cta.mbarrier(blocked_on.barrier, blocked_on.stage)
    missing = [f"{barrier.pending} of {barrier.num_arrivals} arrivals missing"] if barrier.pending else []
    if barrier.tx_bytes:
        missing.append(f"{barrier.announced_bytes} bytes announced, {barrier.delivered_bytes} delivered")
    return f"mbarrier {blocked_on.barrier}[{blocked_on.stage}] parity {blocked_on.parity} ({', '.join(missing)})"


def check(launch: Launch, gpu: GpuSpec) -> Occupancy:
    """What the door checks: features, shared memory, registers, barriers, cluster size.

    Raises:
        LaunchError: this GPU cannot run this launch.
    """
    needs = {"tma": 9.0, "wgmma": 9.0, "cluster": 9.0, "setmaxnreg": 9.0, "stmatrix": 9.0, "mbarrier": 8.0,
             "cp_async": 8.0, "mma_sync": 8.0}
    for feature in sorted(launch.features):
        if gpu.compute_capability < needs[feature]:
            raise LaunchError(
                f"{launch.kernel}: {feature} needs compute capability {needs[feature]}, {gpu.name} has "
                f"{gpu.compute_capability}"
            )
    size = launch.cluster_size
    if size > 1 and gpu.device.max_cluster_size < size:
        most = gpu.device.max_cluster_size
        raise LaunchError(
            f"{launch.kernel}: a cluster of {size} CTAs, {gpu.name} "
            + (f"takes at most {most}" if most > 1 else "has no clusters; use 1x1")
        )
    if launch.num_ctas is not None and launch.num_ctas % size:
        raise LaunchError(f"{launch.kernel}: {launch.num_ctas} CTAs do not make whole clusters of {size}")
    return occupancy(
        kernel=launch.kernel, num_threads=launch.num_threads, registers_per_thread=launch.registers_per_thread,
        smem_bytes=launch.smem_bytes, limits=gpu.sm_limits, registers=gpu.register_file,
    )


def count_slots(launch: Launch, gpu: GpuSpec, held: Occupancy) -> int:
    """CTAs that run at once on the whole device."""
    size = launch.cluster_size
    num_clusters = gpu.num_sms // size
    if size > 1:
        num_clusters = min(num_clusters, gpu.dispatcher.max_clusters.get(str(size), num_clusters))
    return num_clusters * size * held.ctas_per_sm


def grid_of_persistent(launch: Launch, num_slots: int) -> int:
    """CTAs of a persistent grid: all slots, or as many whole clusters as there are tiles."""
    size = launch.cluster_size
    return min(num_slots, -(-launch.num_tiles // size) * size)


def plan_traffic(launch: Launch, gpu: GpuSpec, *, num_slots: int, is_warm: bool) -> dict[str, PanelTraffic]:
    """First pass: which first touches go to memory. Order is enough for that; nothing is timed.

    Empty for a launch without footprints.
    """
    if not launch.footprints:
        return {}
    tiles = np.arange(launch.num_tiles, dtype=np.int64)
    uses = [
        PanelUse(
            tensor=item.tensor, is_write=item.access == "write", panel_of_tile=item.panel_of(tiles),
            bytes_of_tile=item.panel_bytes(tiles),
        )
        for item in launch.footprints
    ]
    l2 = gpu.l2
    return panel_traffic(
        uses, tiles // num_slots, capacity_bytes=l2.capacity_bytes,
        shared_capacity_bytes=l2.capacity_bytes * l2.shared_capacity_fraction, is_warm=is_warm,
    )


def simulate(
    launch: Launch,
    gpu: GpuSpec,
    *,
    clock: ClockMode | float = "single",
    l2: Literal["cold", "warm"] = "cold",
    data: Literal["random", "zeros"] = "random",
    skips: bool = True,
    ideals: Collection[str] = (),
    recorded_sms: Collection[int] = (),
) -> Result:
    """Predict ``launch`` on ``gpu``.

    Args:
        launch: what a kernel model gives, or your own.
        gpu: from :func:`gpusim.load_gpu`.
        clock: ``max``, ``single``, ``sustained``, or a number of MHz.
        l2: ``cold`` (flushed before the launch) or ``warm``.
        data: ``random`` or ``zeros``, for the power that arithmetic draws.
        skips: false simulates every iteration and wave.
        ideals: names of :data:`gpusim.simulate.ideal.IDEALS` that cost nothing.
        recorded_sms: SMs whose timeline is kept.

    Raises:
        LaunchError: the GPU cannot run it.
        DeadlockError, HazardError: it goes wrong while it runs.
    """
    for name in ideals:
        if name not in IDEALS:
            raise LaunchError(f"{name!r} is nothing that can be idealized, wants one of {', '.join(sorted(IDEALS))}")
    settings = Settings(
        clock=clock, is_warm=l2 == "warm", data=data, skips=skips, ideals=frozenset(ideals),
        recorded_sms=frozenset(recorded_sms),
    )
    gpu = idealize(gpu, settings.ideals)
    was_enabled = gc.isenabled()
    gc.disable()  # what a run makes is freed as it goes; looking for circles in it costs a fifth of the run
    try:
        result = _simulate(launch, gpu, settings)
        if not launch.following:
            return result
        others = [_simulate(other, gpu, replace(settings, is_warm=True)) for other in launch.following]
        return one_after_the_other(result, others)
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to simulate. See :func:`simulate`."""

    clock: ClockMode | float
    is_warm: bool
    data: str
    skips: bool
    ideals: frozenset[str]
    recorded_sms: frozenset[int]


def _simulate(launch: Launch, gpu: GpuSpec, settings: Settings) -> Result:
    """One launch, at a clock that its activity sustains."""
    began = time.perf_counter()
    held = check(launch, gpu)
    limiter = PowerLimiter(gpu.clock)
    data, clock = settings.data, settings.clock
    mode = clock if isinstance(clock, str) else "fixed"
    mhz = float(clock) if not isinstance(clock, str) else estimate_clock(
        launch, gpu, held, limiter, mode=mode, data=data
    )
    num_events = 0
    for _ in range(4):
        engine = Engine(
            launch, gpu, clock=Clock(sm_mhz=mhz), is_warm=settings.is_warm, skips=settings.skips,
            ideals=settings.ideals, recorded_sms=settings.recorded_sms, held=held,
        )
        engine.run()
        num_events += next(engine.env._eid)
        activity = activity_of(engine)
        if mode in ("fixed", "max"):
            break
        settled = limiter.clock_mhz(activity, mode=mode, data=data)
        change = abs(settled - mhz) / mhz
        mhz = settled
        if change <= CLOCK_TOLERANCE or busy_shares(engine)["hbm"] * change <= CLOCK_TOLERANCE:
            break  # settled, or the cycles hardly depend on the clock
    return result_of(
        engine, activity, mhz=mhz, mode=mode, data=data, num_events=num_events, wall_s=time.perf_counter() - began
    )


def one_after_the_other(first: Result, others: list[Result]) -> Result:
    """The result of several kernels that one call launches: times and sums add up, the rest is the first's."""
    every = [first, *others]
    counters = dict(first.counters)
    for other in others:
        for name, value in other.counters.items():
            if name.endswith(".sum"):
                counters[name] = counters.get(name, 0.0) + value
    cycles, time_us = sum(item.cycles for item in every), sum(item.time_us for item in every)
    counters["sm__cycles_elapsed.max"] = cycles
    shares = ", ".join(f"{item.kernel} {item.cycles:.0f}" for item in every)
    return replace(
        first, cycles=cycles, time_us=time_us, tflops=first.tflops * first.time_us / time_us, counters=counters,
        num_events=sum(item.num_events for item in every), wall_s=sum(item.wall_s for item in every),
        remarks=(*first.remarks, f"cycles of {len(every)} kernels, one after the other: {shares}"),
    )


def estimate_clock(launch: Launch, gpu: GpuSpec, held: Occupancy, limiter: PowerLimiter, *, mode: str, data: str) -> float:
    """A first guess of the clock: whole waves of arithmetic near its peak, and the traffic that is planned.

    Good enough that most launches need no second simulation; the first one corrects it.
    """
    if mode == "max":
        return gpu.clock.max_mhz
    num_slots = count_slots(launch, gpu, held)
    waves = launch.num_tiles / num_slots
    peak = peak_flops_per_cycle(launch, gpu)
    work = launch.num_flops / peak * -(-launch.num_tiles // num_slots) / waves if peak else 0.0
    overhead = gpu.dispatcher.launch_cycles + gpu.dispatcher.drain_cycles + 2000.0 * max(1.0, waves)
    traffic = plan_traffic(launch, gpu, num_slots=num_slots, is_warm=False)
    hbm_bytes = sum(item.read_miss_bytes for item in traffic.values())
    tiles = np.arange(launch.num_tiles, dtype=np.int64)
    l2_bytes = sum(float(item.panel_bytes(tiles).sum()) for item in launch.footprints)
    clock = Clock(sm_mhz=gpu.clock.max_mhz)
    moved = hbm_bytes / clock.bytes_per_cycle(gb_per_s=gpu.hbm.sustained_read_gb_per_s)
    guess = Activity(
        cycles=max(work, moved) + overhead, num_flops=float(launch.num_flops), rate_class=launch.math_class,
        l2_bytes=l2_bytes * 0.6, hbm_bytes=hbm_bytes, busy_fraction=1.0,
    )
    return limiter.clock_mhz(guess, mode=mode, data=data)


def peak_flops_per_cycle(launch: Launch, gpu: GpuSpec) -> float:
    """FLOP a cycle of the whole device, by the fastest unit for the launch's class of type."""
    core = gpu.tensor_core
    if launch.math_class == "fp32":
        return 2.0 * gpu.warp_scheduler.fp32_lanes * gpu.num_sms
    rates = core.wgmma_flops_per_cycle or core.mma_sync_flops_per_cycle
    return rates.get(launch.math_class, 0.0) * gpu.num_sms


def activity_of(engine: Engine) -> Activity:
    """What the launch did, for its power."""
    machine = engine.machine
    hbm, l2 = machine.hbm.counters, machine.l2.counters
    return Activity(
        cycles=engine.end_cycle, num_flops=float(engine.launch.num_flops), rate_class=engine.launch.math_class,
        l2_bytes=(l2.read_sectors + l2.write_sectors) * SECTOR_BYTES, hbm_bytes=hbm.read_bytes + hbm.write_bytes,
        busy_fraction=min(1.0, engine.num_slots / engine.occupancy.ctas_per_sm / engine.gpu.num_sms),
    )


def result_of(
    engine: Engine, activity: Activity, *, mhz: float, mode: str, data: str, num_events: int, wall_s: float
) -> Result:
    """Everything that a run has to say."""
    launch, gpu, machine = engine.launch, engine.gpu, engine.machine
    clock = Clock(sm_mhz=mhz)
    cycles = engine.end_cycle
    time_us = clock.time_us(cycles=cycles)
    at_once = min(engine.num_slots, engine.num_ctas)
    busy = busy_shares(engine)
    kind, reason = bound_by(engine, busy)
    states = {
        role: {
            state.label: total / sum(totals) for state, total in zip(WarpState, totals, strict=True) if total > 0.0
        }
        for role, totals in engine.role_totals.items()
    }
    sources, guesses = sources_used(engine)
    return Result(
        kernel=launch.kernel, gpu=gpu.name, params=dict(launch.params), cycles=cycles, sm_clock_mhz=mhz,
        clock_mode=mode, time_us=time_us, tflops=launch.num_flops / time_us / 1e6,
        peak_tflops_at_clock=peak_flops_per_cycle(launch, gpu) * mhz / 1e6,
        peak_tflops_datasheet=gpu.device.peak_tflops.get(launch.math_class, 0.0),
        bound_by=kind, reason=reason, occupancy=engine.occupancy, num_ctas=engine.num_ctas,
        num_tiles=launch.num_tiles, ctas_at_once=at_once, waves=launch.num_tiles / engine.num_slots,
        registers_per_thread=launch.registers_per_thread, registers_source=launch.registers_source,
        smem_bytes=launch.smem_bytes,
        power_w=machine.power_limiter.power_w(activity, mhz=mhz, data=data), activity=activity,
        counters=counters_of(engine, mhz), busy=busy, states=states, sources=sources, guesses=guesses,
        num_events=num_events, wall_s=wall_s, num_skipped_cycles=engine.offset_cycles, remarks=launch.remarks,
        timeline=engine.timeline,
    )


def counters_of(engine: Engine, mhz: float) -> dict[str, float]:
    """Counters under their Nsight Compute names."""
    launch, gpu, machine = engine.launch, engine.gpu, engine.machine
    cycles = engine.end_cycle
    counters: dict[str, float] = {
        "sm__cycles_elapsed.max": cycles,
        "gpu__time_duration.sum": cycles / mhz * 1e3,
        "sm__cycles_active.avg": min(cycles, sm_active_cycles(engine)),
    }
    for part in machine.counters:
        counters.update(part.named())
    if engine.traffic:
        counters["dram__bytes_read.sum"] = sum(item.read_miss_bytes for item in engine.traffic.values())
    reads = counters["lts__t_sectors_srcunit_tex_op_read.sum"]
    writes = counters["lts__t_sectors_srcunit_tex_op_write.sum"]
    misses = counters["dram__bytes_read.sum"] / SECTOR_BYTES
    counters["lts__t_sectors_srcunit_tex_lookup_miss.sum"] = misses
    counters["lts__t_sectors_srcunit_tex.sum"] = reads + writes
    counters["lts__t_sector_hit_rate.pct"] = 100.0 * (1.0 - misses / (reads + writes)) if reads + writes else 0.0
    moved = (counters["dram__bytes_read.sum"] + counters["dram__bytes_write.sum"]) / (cycles / mhz * 1e3)  # GB/s
    counters["dram__throughput.avg.pct_of_peak_sustained_elapsed"] = 100.0 * moved / gpu.hbm.peak_gb_per_s
    busy = machine.tensor_counters.busy_cycles
    name = "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active"
    counters[f"{name}.avg.pct_of_peak_sustained_elapsed"] = 100.0 * busy / gpu.num_sms / cycles
    counters["launch__registers_per_thread"] = launch.registers_per_thread
    counters["launch__waves_per_multiprocessor"] = engine.num_ctas / engine.num_slots
    counters["launch__grid_size"] = engine.num_ctas
    counters["launch__block_size"] = launch.num_threads
    counters["launch__cluster_size"] = launch.cluster_size
    for limit, entry in (("registers", "registers"), ("shared_mem", "smem"), ("warps", "warps"), ("blocks", "ctas")):
        counters[f"launch__occupancy_limit_{limit}"] = engine.occupancy.limits[entry]
    return counters


def sm_active_cycles(engine: Engine) -> float:
    """Cycles in which an SM held a CTA, on average over the SMs."""
    totals = [sum(of_role) for of_role in engine.role_totals.values()]
    per_cta = max(totals) if totals else 0.0
    return per_cta / engine.occupancy.ctas_per_sm / engine.gpu.num_sms
