"""One launch while it runs: dispatch of CTAs, the end of roles and CTAs, what roles ask of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import DeadlockError, HazardError
from gpusim.machine.build import Machine
from gpusim.machine.clock import PowerLimiter
from gpusim.machine.config import GpuSpec
from gpusim.machine.dispatcher import Dispatcher, DispatcherSpec
from gpusim.machine.memory.dsmem import DsmemCounters
from gpusim.machine.memory.panels import PanelTraffic
from gpusim.machine.memory.residency import LruResidency, PlannedResidency
from gpusim.machine.memory.tma import TmaCounters
from gpusim.machine.numeric import sum_in_order
from gpusim.machine.sm.occupancy import Occupancy
from gpusim.machine.timing import RingingEnvironment
from gpusim.simulate.cta import Cluster, Cta, ThreadBarrier
from gpusim.simulate.door import check, count_slots, grid_of_persistent, plan_traffic
from gpusim.simulate.flow import Flow
from gpusim.simulate.load_line import LoadLine
from gpusim.simulate.op_costs import OpCosts
from gpusim.simulate.ran import BusyCycles, OpsRun, PartCounters, SharedRates
from gpusim.simulate.representatives import Draw, are_strangers, representatives
from gpusim.simulate.role import Role, RoleShape
from gpusim.simulate.sampling import sample_sms
from gpusim.simulate.steady import WORK_TOLERANCE, WRITE_BACK_TOLERANCE, SteadyState
from gpusim.simulate.timeline import Skip, Timeline, WarpState
from gpusim.simulate.turns import turns_of_sms
from gpusim.simulate.uses import Uses
from gpusim.simulate.warp import FREE_HANDLERS, HANDLERS
from gpusim.units import Clock
from gpusim.workload.launch import Launch
from gpusim.workload.ops import MbarrierWait


class Engine:
    """One launch while it runs."""

    __deletable__ = ("flow", "steady")

    def __init__(
        self,
        launch: Launch,
        gpu: GpuSpec,
        *,
        clock: Clock,
        is_warm: bool = False,
        is_flushed: bool = False,
        skips: bool = True,
        is_quick: bool = False,
        ideals: frozenset[str] = frozenset(),
        recorded_sms: frozenset[int] | Literal["first"] = frozenset(),
        held: Occupancy | None = None,
        num_sampled_sms: int | None = None,
        traffic: dict[str, PanelTraffic] | None = None,
        uses: Uses | None = None,
    ) -> None:
        """Ready to :meth:`run`; raises LaunchError where the GPU cannot hold the launch.

        ``is_flushed``: caches of code were flushed, too (``ops.FarCode``); ``traffic``, ``uses``: worked out before.
        """
        self.launch = launch
        self.ideals, self.is_warm, self.is_flushed, self.met = ideals, is_warm, is_flushed, set[str]()
        """The last: of what can be idealized, what the launch was found to have."""
        env = RingingEnvironment()
        self.agenda = env.agenda
        self.occupancy = held or check(launch, gpu)
        self.num_slots = count_slots(launch, gpu, self.occupancy)
        self.num_ctas = launch.num_ctas or grid_of_persistent(launch, self.num_slots)
        self._num_at_once = min(self.num_slots, self.num_ctas)
        self.uses = uses = uses or Uses.of(launch, gpu)
        self.traffic = traffic or plan_traffic(launch, gpu, uses, num_slots=self._num_at_once, is_warm=is_warm)
        self.sample = sample = sample_sms(
            launch, gpu, self.occupancy, num_sms=num_sampled_sms, num_slots=self.num_slots, num_ctas=self.num_ctas
        )
        self.gpu = gpu = sample.gpu
        self.alike: Mapping[int, int] = {}
        """Of SMs that stand for others for how many; empty where all are simulated, or a sample of whole GPCs."""
        if num_sampled_sms is None and (recorded_sms == "first" or not recorded_sms):
            self.alike = representatives(
                launch, gpu, self.occupancy, uses, num_slots=self.num_slots, num_ctas=self.num_ctas
            )
        self.draw = Draw(uses.kinds()) if self.alike and not uses.are_even() else None
        """Which CTA is run of those that one stands for, where they differ."""
        self._order = None if sample.order is None else sample.order.tolist()
        self.num_to_run = self.num_ctas if self._order is None else len(self._order)
        residency = (
            PlannedResidency(
                self.traffic, num_sides=gpu.l2.num_partitions, others_fetch=sample.order is not None
            )
            if self.traffic
            else LruResidency(side_bytes=gpu.l2_sides.side_bytes, num_sides=gpu.l2.num_partitions, is_warm=is_warm)
        )
        self.machine = Machine(
            env, gpu, clock, residency, cluster_size=launch.cluster_size,
            ctas_per_sm=self.occupancy.ctas_per_sm, smem_bytes_per_sm=launch.smem_bytes * self.occupancy.ctas_per_sm,
            num_ctas=self.num_to_run, fill_scales=sample.fill_scales, fetch_scales=uses.fetch_scales, alike=self.alike,
            piece_bytes={item.tensor: item.piece_bytes for item in launch.footprints if item.piece_bytes},
            piece_strides={item.tensor: item.piece_stride_bytes for item in launch.footprints if item.piece_stride_bytes},
            tensor_maps=launch.tensor_maps, is_warm=is_warm,
        )
        self.recorded_sms = (
            recorded_sms if isinstance(recorded_sms, frozenset) else frozenset(self.machine.dispatcher.slots[0][:1])
        )
        self.slots_to_run = len(self.machine.dispatcher.slots) * launch.cluster_size
        self.handlers, self.free_handlers, self.mbarrier_spec = HANDLERS, FREE_HANDLERS, gpu.mbarrier
        self.wgmma_latency_cycles, self.copy_cycles = gpu.tensor_core.wgmma_latency_cycles, 0.0
        self.timeline, self.offset_cycles = Timeline(), 0.0
        planned, none = self.traffic.values(), np.zeros(1)
        self.miss_bytes_by_wave = sum((item.miss_bytes_by_wave for item in planned), none)
        self.written_back_by_wave = sum((item.written_back_by_wave for item in planned), none)
        self.touched_bytes_by_wave = sum((item.touched_bytes_by_wave for item in planned), none)
        self._work_by_wave = uses.by_wave(self._num_at_once)
        self.steps_per_turn = max((item.num_steps for item in launch.footprints if item.access == "read"), default=0)
        self.steady = SteadyState(self, enabled=skips and bool(self.traffic), is_quick=is_quick)
        is_flow = skips and launch.num_ctas is not None and are_strangers(launch, gpu, self.occupancy, uses)
        self.flow = Flow(self) if is_flow else None
        self.next_cta = self._num_exits = self._num_refills = self._num_waves_to_leave_out = self.num_copies = 0
        self._num_ragged, self._is_over = int(uses.has_ragged_end()), False  # the last CTA, for which nobody stands
        self._wave_weight, self._weighted_left = 1.0, 0
        self._live: dict[int, Cta] = {}
        self._num_stores_pending, self._last_store_at, self.has_stored, self.has_own_paces = 0, 0.0, False, False
        self.tensor_turns, self.fma_turns = turns_of_sms()
        self.load_lines = [LoadLine(sm.smem, self.agenda) for sm in self.machine.sms]
        self.op_costs, self.of_cta = OpCosts(launch, gpu, self.machine), OfCta(launch, gpu)
        self.role_totals: dict[str, list[float]] = {role.name: [0.0] * len(WarpState) for role in launch.roles}
        self.epilogue_cycles: dict[str, float] = {}
        """Cycles of each role in sections called epilogue."""
        self.end_cycle = self.last_exit = self.first_start = self._cold_start_cycles = self.exit_cycles = 0.0

    # ------------------------------------------------------------------------------------------ run

    def run(self) -> None:
        """Simulate to the end.

        Raises:
            DeadlockError: roles wait for what never comes.
            HazardError: a stage is overwritten while read, or read before it is full.
        """
        self._start_first_wave()
        agenda = self.agenda  # where no Event is ever queued
        while not self._is_over:
            if not agenda.advance():
                raise DeadlockError(self._who_waits())
        self.op_costs.settle()
        self.steady.settle_requests()
        self.machine.xbar.settle()

    @property
    def has_elders(self) -> bool:
        """Whether CTAs of an SM have waited for others at its shared memory, or to copy beside their FFMA."""
        has_held = any(turns.has_held for turns in self.fma_turns.values())
        return has_held or any(line.has_elders for line in self.load_lines)

    def forget(self) -> None:
        """Nobody asks any more: circles are broken, so that all is freed at once and nobody has to look for garbage."""
        self.agenda.pipes.clear()
        self.agenda.queue.clear()
        self._live.clear()
        self.tensor_turns.clear()
        self.fma_turns.clear()
        self.load_lines.clear()
        del self.steady
        del self.flow

    def _start_first_wave(self) -> None:
        spec = self.gpu.dispatcher
        dispatcher = self.machine.dispatcher
        self._cold_start_cycles = self.cold_start_cycles
        self._fill_slots(spec, dispatcher)
        self._cold_start_cycles = 0.0  # later CTAs find what the first ones have fetched

    def _fill_slots(self, spec: DispatcherSpec, dispatcher: Dispatcher) -> None:
        dispatcher.next_free_at = spec.launch_cycles
        self.first_start = spec.launch_cycles
        if self.alike:
            places, num_passed = dispatcher.slots[: self.num_to_run], 0
            for place, sms in enumerate(places):
                if sms[0] in self.alike:
                    self.next_cta = place if self.draw is None else num_passed
                    num_passed += self.alike[sms[0]]
                    dispatcher.next_free_at = spec.launch_cycles + place * spec.dispatch_cycles_per_cta
                    self._start_cluster(sms, at_cycle=0.0, is_first=True)
            self.next_cta = len(places)
            dispatcher.next_free_at = spec.launch_cycles + self.next_cta * spec.dispatch_cycles_per_cta
            return
        for sms in dispatcher.slots:
            if self.next_cta >= self.num_to_run:
                break
            self._start_cluster(sms, at_cycle=0.0)

    def _start_cluster(
        self, sms: tuple[int, ...], *, at_cycle: float, is_first: bool = False, has_waited: bool = False
    ) -> None:
        """Start a cluster or, where an SM stands for others, one CTA for each of them; the first ones have a place each.

        ``has_waited``: the round has come to its SMs.
        """
        launch, dispatcher = self.launch, self.machine.dispatcher
        size = launch.cluster_size
        spec = dispatcher.spec
        num_alike = self.alike.get(sms[0], 1) if self.alike else 1
        if is_first or num_alike == 1:
            dispatched = dispatcher.dispatch(at_cycle=at_cycle, num_ctas=size)
        else:
            num_alike = max(1, min(num_alike, self.num_to_run - self.next_cta - self._num_ragged))
            dispatched = dispatcher.dispatch_alike(at_cycle=at_cycle, num_ctas=num_alike)
        if not has_waited:
            dispatched += spec.wait_cycles(self.next_cta)
        start = dispatched + spec.cta_start_cycles + self._cold_start_cycles
        start += spec.cluster_start_cycles if size > 1 else 0.0
        cluster = Cluster(ThreadBarrier("cluster", self.of_cta.num_threads * size, self.of_cta.cluster_latency_cycles))
        weight = 1.0
        if self._weighted_left > 0:
            weight += (self._wave_weight - 1.0) * min(1.0, self._weighted_left / (size * num_alike))
            self._weighted_left -= size * num_alike
        created: list[Role] = []
        for rank in range(size):
            idx = self.next_cta if self._order is None else self._order[self.next_cta]
            if self.draw is not None:
                idx = self.draw.draw(idx, num_alike, weight * num_alike)
            self.next_cta += num_alike
            cta = Cta(
                launch, idx=idx, rank=rank, wave=idx // self._num_at_once, weight=weight * num_alike, num_alike=num_alike,
                sm=self.machine.sms[sms[rank]], cluster=cluster, num_threads=self.of_cta.num_threads,
            )
            cluster.ctas.append(cta)
            self._live[idx] = cta
            cta.sm.cta_enters(dispatched + self.offset_cycles)
        if self._num_waves_to_leave_out:
            self._leave_waves_out()
        for cta in cluster.ctas:
            for shape in self.of_cta.roles:
                role = Role(self, cta, shape, start, dispatched)
                cta.roles.append(role)
                created.append(role)
            cta.num_roles_running = len(cta.roles)
        cluster.num_running = size
        for role in created:
            role.start()

    def role_ended(self, role: Role) -> None:
        """A role's program is over; when it was the CTA's last, the CTA exits."""
        totals = self.role_totals[role.spec.name]
        for state, cycles in enumerate(role.totals):
            if cycles:
                totals[state] += cycles
        cta = role.cta
        cta.num_roles_running -= 1
        if cta.num_roles_running:
            return
        ends = role.t
        for of_cta in cta.roles:
            if of_cta.t > ends:
                ends = of_cta.t
        stored = self.gpu.dispatcher.store_exit_cycles
        for of_cta in cta.roles:
            if of_cta.stored_out_at + stored > ends:
                ends = of_cta.stored_out_at + stored
        self.at(ends, lambda: self._cta_exits(cta))

    def _cta_exits(self, cta: Cta) -> None:
        now = self.agenda.cycle
        for ring in cta.mbarriers.values():
            for barrier in ring:
                if barrier.tx_bytes:
                    raise HazardError(
                        f"{self.launch.kernel}: CTA {cta.idx} exits while mbarrier {barrier.name}[{barrier.stage}] has "
                        f"{barrier.announced_bytes} bytes announced and {barrier.delivered_bytes} delivered"
                    )
        del self._live[cta.idx]
        cta.roles.clear()  # nothing refers in a circle, so that no garbage is left to collect
        self._num_exits += cta.num_alike
        self.exit_cycles += self.reported_cycle * cta.num_alike
        retired, all_retired = self.machine.dispatcher.retire_alike(at_cycle=now, num_ctas=cta.num_alike)
        self.last_exit = max(self.last_exit, all_retired)
        # the kernel's end asks for stores once it has left, whenever they were, and for atomics that are on their way
        if self.has_stored or self._num_stores_pending or self._last_store_at > now:
            self._last_store_at = max(self._last_store_at, all_retired + self.gpu.dispatcher.store_end_cycles)
        cluster = cta.cluster
        cluster.num_running -= 1
        if not cluster.num_running:
            cluster.ctas.clear()  # as roles
        if self.flow is not None:
            if self._num_exits >= self.flow.next_at:
                self._num_waves_to_leave_out += self.flow.look(self._num_exits)
                self._leave_waves_out()
        elif self._num_exits % self.slots_to_run == 0:
            self._num_waves_to_leave_out += self.steady.wave_ended()
            self._leave_waves_out()
        cta.sm.cta_leaves(self.reported_cycle)
        if self.next_cta < self.num_to_run:
            sms = self.machine.dispatcher.freed(cta.sm.idx)
            if sms is not None:
                self._refill_in_its_turn(sms, free_at=retired + self.gpu.dispatcher.cta_exit_cycles)
        self._finish_if_over()

    def _refill_in_its_turn(self, sms: tuple[int, ...], *, free_at: float) -> None:
        """A free slot takes the next CTA when the round comes to it: who falls free first may come later."""
        self._num_refills += 1
        wait = 0.0 if self.alike else self.machine.dispatcher.spec.wait_cycles(self._num_refills)
        if not wait:
            self._start_cluster(sms, at_cycle=free_at)
            return

        def take() -> None:
            if self.next_cta < self.num_to_run:
                self._start_cluster(sms, at_cycle=free_at + wait, has_waited=True)
            self._finish_if_over()

        self.at(free_at + wait, take)

    def _leave_waves_out(self) -> None:
        """Leave out what is to be left out once the present wave has all its CTAs; the next counts for it."""
        num_waves = self._num_waves_to_leave_out
        if num_waves and (self.flow is not None or self.next_cta % self.slots_to_run == 0):
            if self.draw is not None:
                self.draw.pass_over(self.next_cta, num_waves * self.slots_to_run)
            self.next_cta += num_waves * self.slots_to_run
            self._wave_weight = 1.0 + num_waves
            self._weighted_left = self.slots_to_run
            self._num_waves_to_leave_out = 0

    def _finish_if_over(self) -> None:
        if self._live or self.next_cta < self.num_to_run or self._num_stores_pending or self._is_over:
            return
        ends = max(self.agenda.cycle, self.last_exit, self._last_store_at)
        self.end_cycle = ends + self.offset_cycles + self.gpu.dispatcher.drain_cycles
        self._is_over = True

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
        self.agenda.later(max(0.0, cycle - self.agenda.cycle), action)

    def is_ideal(self, what: str) -> bool:
        """Whether a counterfactual makes ``what`` free; that the launch has it is kept."""
        self.met.add(what)
        return what in self.ideals

    def store_began(self) -> None:
        """A store is on its way; the kernel does not end before it has arrived."""
        self._num_stores_pending += 1

    def store_ended(self, cycle: float) -> None:
        """A store has left its SM, and has arrived; the kernel's end asks for it then, or once it has left itself."""
        self._num_stores_pending -= 1
        arrived = cycle + self.gpu.dispatcher.store_end_cycles
        if arrived > self._last_store_at:
            self._last_store_at = arrived
        if not self._num_stores_pending:
            self._finish_if_over()

    def section_ended(self, role: Role, name: str, num_cycles: float) -> None:
        """A role has spent ``num_cycles`` in a named part of its program."""
        if name == "epilogue":
            spent = self.epilogue_cycles.get(role.spec.name, 0.0)
            self.epilogue_cycles[role.spec.name] = spent + num_cycles * role.count

    @property
    def cold_start_cycles(self) -> float:
        """What the launch's first CTAs wait more where caches were flushed."""
        return 0.0 if self.is_warm else self.gpu.dispatcher.cold_start_cycles

    @property
    def code_latency_cycles(self) -> float:
        """Of instructions that no SM has run yet: like data, a warm L2 has them and a cold one has not."""
        if self.is_warm:
            return self.gpu.l2.near_latency_cycles
        return self.machine.clock.cycles(ns=self.gpu.hbm.latency_ns)

    @property
    def num_events(self) -> int:
        """Events so far, and timers that rang."""
        return self.agenda.num_calls + self.agenda.num_rings

    @property
    def scale(self) -> float:
        """Work tiles of the launch over those of the sampled CTAs: what sums are multiplied by."""
        order = self.sample.order
        if order is None:
            return 1.0
        turns = -(-(self.launch.num_tiles - order) // self.num_ctas)  # more than one where the grid is persistent
        return float(self.launch.num_tiles / turns.clip(min=0).sum())

    # ------------------------------------------------------------------------------------------ what a summary reads

    @property
    def sampled_fraction(self) -> float:
        """SMs that were simulated, of all."""
        return self.sample.fraction

    @property
    def counted(self) -> PartCounters:
        """Counters of each part."""
        machine = self.machine
        sm = machine.sms[0]
        return PartCounters(
            hbm=machine.hbm.counters, l2=machine.l2.counters, xbar=machine.xbar.counters, l1=sm.l1.counters,
            smem=sm.smem.counters, tma=TmaCounters() if sm.tma is None else sm.tma.counters,
            dsmem=DsmemCounters() if sm.dsmem is None else sm.dsmem.counters,
            warp_scheduler=sm.warp_scheduler.counters, tensor_core=machine.tensor_counters,
        )  # fmt: skip

    @property
    def busy(self) -> BusyCycles:
        """How long parts were busy."""
        sms = self.machine.sms
        return BusyCycles(
            fma=sum_in_order(sm.warp_scheduler.fma_pipe.busy_cycles for sm in sms),
            issue=sum_in_order(sm.warp_scheduler.issue_slots.busy_cycles for sm in sms),
            smem=sum_in_order(sm.smem.data.busy_cycles for sm in sms),
            lsu=sum_in_order(sm.l1.unit.busy_cycles for sm in sms),
            tma=sum_in_order(sm.tma.engine.busy_cycles for sm in sms if sm.tma is not None),
            l2_link=self.machine.l2.link_busy_cycles,
        )

    @property
    def active_cycles(self) -> float:
        """Cycles in which SMs held a CTA, summed over the SMs, those that others stand for among them."""
        return sum_in_order(sm.active_cycles * self.alike.get(sm.idx, 1) for sm in self.machine.sms)

    @property
    def ops_run(self) -> OpsRun:
        """Which kinds of instructions ran."""
        costs = self.op_costs
        return OpsRun(
            has_tma=bool(costs.tma), has_mma_sync=bool(costs.mma_sync), has_wgmma=bool(costs.wgmma),
            wgmma_types=frozenset([cost.op.atom.a_dtype.name for cost in costs.wgmma.values()]),
        )

    @property
    def rates(self) -> SharedRates:
        """What shared parts can do."""
        machine = self.machine
        return SharedRates(
            slices_bytes_per_cycle=machine.xbar.slices_bytes_per_cycle, stores_bytes_per_cycle=machine.xbar.stores.total,
            links_bytes_per_cycle=machine.l2.links_bytes_per_cycle, hbm_latency_cycles=machine.hbm.latency_cycles,
        )

    @property
    def power_limiter(self) -> PowerLimiter:
        """Of the GPU."""
        return self.machine.power_limiter

    def hbm_share(self, cycles: float, read_bytes: float, write_bytes: float) -> float:
        """Part of ``cycles`` in which memory moves so many bytes."""
        return self.machine.hbm.busy_share(cycles, read_bytes, write_bytes)

    # ------------------------------------------------------------------------------------------ steady state

    @property
    def reported_cycle(self) -> float:
        """The present, what was skipped included."""
        return self.agenda.cycle + self.offset_cycles

    @property
    def is_last_wave(self) -> bool:
        """Whether no CTA is left to start, and none has more than one tile."""
        return self.next_cta >= self.num_to_run and self.launch.num_ctas is not None

    @property
    def has_waves_to_come(self) -> bool:
        """Whether as many CTAs as run at once are left to start, in a grid whose CTAs have one tile each."""
        return self.launch.num_ctas is not None and self.num_to_run - self.next_cta >= self.slots_to_run

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

    def fewest_iterations_left(self, *, wants_all: bool = False) -> int | None:
        """Iterations that every loop has left at least; None where loops cannot move together.

        They can where each CTA's roles are in the loop of the same turn, or blocked outside of one; not where a loader is
        ahead in a tile that nobody computes yet. ``wants_all``: where all roles are in it, none of them outside.
        """
        fewest: int | None = None
        for cta in reversed(self._live.values()):  # the last is the first to be outside
            turn, num_looping, num_running = -1, 0, 0
            for role in cta.roles:
                if role.is_done:
                    continue
                num_running += 1
                if len(role.loops) != 1:
                    if role.loops or role.blocked_on is None:
                        return None
                    continue
                if num_looping and role.wave != turn:
                    return None
                turn = role.wave
                num_looping += 1
                left = role.loops[0].num_left
                if fewest is None or left < fewest:
                    fewest = left
            if wants_all and num_looping < num_running:
                return None
            if num_looping == 1 and num_running > 1 and len(cta.roles[0].loops) == 1:
                return None
        return fewest

    def dram_bytes(self) -> tuple[float, float]:
        """(read, written) by the whole launch: as planned from its footprints; as counted for tensors that have none.

        What a plan knows does not depend on which iterations stood for others.
        """
        counted = self.machine.hbm.counters
        if not self.traffic:
            return counted.read_bytes * self.scale, counted.write_bytes * self.scale
        read = sum_in_order(item.read_miss_bytes for item in self.traffic.values())
        written = sum_in_order(item.written_back_bytes for item in self.traffic.values())
        return read + self.machine.l2.counters.unplanned_miss_bytes * self.scale, written

    @property
    def written_back_bytes_of_wave(self) -> float:
        """Of what a wave stores, what leaves L2 before the end: of the mean wave, as planned."""
        return sum_in_order(item.written_back_bytes for item in self.traffic.values()) / len(self.miss_bytes_by_wave)

    def hbm_share_at_most(self, first: int, last: int, cycles: float) -> float:
        """The greatest part of its time that HBM is busy in any of waves ``first`` to ``last``, if each takes ``cycles``."""
        written = self.written_back_bytes_of_wave
        read = float(self.miss_bytes_by_wave[first : last + 1].max(initial=0.0))
        return self.machine.hbm.busy_share(cycles, read * self.sample.fraction, written * self.sample.fraction)

    def are_waves_alike(self, first: int, last: int, traffic_tolerance: float) -> bool:
        """Whether waves ``first`` to ``last`` do the same work.

        As many bytes of each tensor, read and written, by as many tiles, and as many from memory, within
        ``traffic_tolerance`` of what a wave touches (infinite: whatever they fetch from there); and as many back to it.
        """
        for table in self._work_by_wave:
            part = table[:, first : last + 1]
            if part.size and (np.ptp(part, axis=1) > WORK_TOLERANCE * part.max(axis=1)).any():
                return False
        misses = self.miss_bytes_by_wave[first : last + 1]
        if not misses.size or not self.are_write_backs_alike(first, last):
            return False
        if traffic_tolerance == np.inf:
            return True
        return float(np.ptp(misses)) <= traffic_tolerance * float(self.touched_bytes_by_wave[first])

    def are_means_alike(self, first: int, middle: int, last: int, tolerance: float = WORK_TOLERANCE) -> bool:
        """Whether waves from ``first`` up to ``middle`` do on average what those from there up to ``last`` do.

        As many bytes of each tensor by as many tiles within ``tolerance`` and, of what a wave touches, about as much back
        to memory.
        """
        if any((_apart(of_tensor, first, middle, last) > tolerance).any() for of_tensor in self._work_by_wave):
            return False
        left = self.written_back_by_wave
        most = max(tolerance, WRITE_BACK_TOLERANCE) * float(self.touched_bytes_by_wave[first:middle].mean())
        return float(_apart(left, first, middle, last)) * max(1.0, float(left[first:middle].mean())) <= most

    def is_traffic_alike(self, first: int, middle: int, last: int, tolerance: float) -> bool:
        """Whether waves up to ``middle`` fetch from memory on average what those up to ``last`` do.

        Within ``tolerance`` of what a wave touches.
        """
        misses = self.miss_bytes_by_wave
        apart = abs(float(misses[first:middle].mean()) - float(misses[middle:last].mean())) if len(misses) > middle else 0.0
        return apart <= tolerance * float(self.touched_bytes_by_wave[first:middle].mean())

    def are_write_backs_alike(self, first: int, last: int) -> bool:
        """Whether as much leaves L2 while each of waves ``first`` to ``last`` runs, but for a part of what one touches."""
        written = self.written_back_by_wave[first : last + 1]
        most = WRITE_BACK_TOLERANCE * float(self.touched_bytes_by_wave[first])
        return not written.size or float(np.ptp(written)) <= most

    def is_write_back_usual(self, wave: int, last: int, tolerance: float) -> bool:
        """Whether as much leaves L2 in ``wave`` as in the mean up to ``last``, but for ``tolerance`` of what it touches."""
        written = self.written_back_by_wave[wave : last + 1]
        most = tolerance * float(self.touched_bytes_by_wave[wave])
        return not written.size or abs(float(written[0]) - float(written.mean())) <= most

    def miss_bytes_of_wave(self, wave: int) -> float:
        """Bytes that a wave fetches from memory, as planned."""
        return float(self.miss_bytes_by_wave[min(wave, len(self.miss_bytes_by_wave) - 1)])

    def skip(self, num_cycles: float, what: str, *, is_of_waves: bool = False) -> None:
        """Time moves ahead for all; whole waves that are left out held the SMs that are empty just now, too."""
        if is_of_waves:
            for sm in {sm for slot in self.machine.dispatcher.slots for sm in slot}:
                if not self.machine.sms[sm].num_ctas:
                    self.machine.sms[sm].active_cycles += num_cycles
        self.timeline.skips.append(Skip(self.reported_cycle, num_cycles, what))
        self.offset_cycles += num_cycles


class OfCta:
    """What each CTA of a launch is asked for, worked out once."""

    __slots__ = ("cluster_latency_cycles", "num_threads", "roles")

    def __init__(self, launch: Launch, gpu: GpuSpec) -> None:
        self.num_threads = launch.num_threads
        self.roles = [RoleShape(launch, spec) for spec in launch.roles]
        dsmem, latency = gpu.dsmem, 0.0
        if dsmem is not None:
            latency = dsmem.cluster_barrier_cycles + launch.cluster_size * dsmem.cluster_barrier_cta_cycles
            latency += launch.num_warps * gpu.warp_scheduler.barrier_warp_cycles
        self.cluster_latency_cycles = latency
        """What a cluster's barrier takes from the last arrival on."""


def _apart(of_wave: NDArray[np.float64], first: int, middle: int, last: int) -> NDArray[np.float64]:
    """How far the mean of some waves is from that of those behind them, as a part of it: float64[..., num_waves] to [...].

    >>> float(_apart(np.array([1.0, 3.0, 2.0, 3.0]), 0, 2, 4)), float(_apart(np.zeros(4), 0, 2, 4))
    (0.25, 0.0)
    """
    mean, other = of_wave[..., first:middle].mean(axis=-1), of_wave[..., middle:last].mean(axis=-1)
    found: NDArray[np.float64] = np.abs(other - mean) / np.maximum(mean, 1.0)
    return found


def _what(cta: Cta, blocked_on: str | MbarrierWait | None) -> str:
    """What a role waits for, and what of it never arrived."""
    if not isinstance(blocked_on, MbarrierWait):
        return str(blocked_on)
    barrier = cta.mbarrier(blocked_on.barrier, blocked_on.stage)
    missing = [f"{barrier.pending} of {barrier.num_arrivals} arrivals missing"] if barrier.pending else []
    if barrier.tx_bytes:
        missing.append(f"{barrier.announced_bytes} bytes announced, {barrier.delivered_bytes} delivered")
    return f"mbarrier {blocked_on.barrier}[{blocked_on.stage}] parity {blocked_on.parity} ({', '.join(missing)})"
