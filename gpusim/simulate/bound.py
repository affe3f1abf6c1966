"""What a launch cannot end before: from what its tiles need at least, before it runs and while it runs.

In: a launch (its :class:`~gpusim.workload.tile_work.TileWork`), a GPU. Out: cycles that no simulation of it can beat.

Each path is a chain of things that follow one another in the model; a chain takes no less than the sum of its links.
The largest path holds. A test simulates random launches and compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf
from typing import NamedTuple

import numpy as np

from gpusim.machine.clock import Activity, PowerLimiter
from gpusim.machine.config import GpuSpec
from gpusim.machine.numeric import sum_in_order
from gpusim.program.records import COUNTERS, SM_TOTALS
from gpusim.simulate.constants import Geometry, l2_latency_ns
from gpusim.simulate.door import check, grid_of_persistent
from gpusim.simulate.module import EngineRun
from gpusim.simulate.op_tables import mma_sync_row, wgmma_row
from gpusim.simulate.uses import Uses
from gpusim.units import SECTOR_BYTES, WARP_SIZE
from gpusim.workload.launch import Launch
from gpusim.workload.ops import Wgmma
from gpusim.workload.tile_work import TileWork

AHEAD_CYCLES = 48.0
"""How far a role's cursor may run ahead of the clock: a copy may be under way by so much before it is asked for."""

ROUNDING = 1e-9
"""Relative error of sums that is allowed for."""


class Path(NamedTuple):
    """A least time: SM cycles, and microseconds of parts that have a clock of their own."""

    cycles: float
    us: float = 0.0

    def at(self, mhz: float) -> float:
        """SM cycles at a clock."""
        return self.cycles + self.us * mhz

    def then(self, cycles: float, us: float = 0.0) -> Path:
        """With something behind it."""
        return Path(self.cycles + cycles, self.us + us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What a launch cannot end before, and what of its math is left while it runs."""

    paths: Mapping[str, Path]
    """By what is on them: ``launch``, ``math`` of the busiest SM, ``ctas`` of a slot one after the other, ``hbm``."""
    math_cycles: float
    """What all tiles take of the SMs' math pipes."""
    num_sms: int
    """SMs that may run CTAs."""
    behind_cycles: float
    """From the end of an SM's last math to the end of the kernel."""
    by_ffma: bool
    num_flops: float
    rate_class: str
    """Class of type whose energy its arithmetic takes at least."""

    def cycles(self, mhz: float) -> float:
        """Before it runs, at an SM clock."""
        return max(path.at(mhz) for path in self.paths.values()) * (1.0 - ROUNDING)

    def cycles_of(self, run: EngineRun) -> float:
        """While it runs: the present, and what is left of the math, if it were dealt evenly to all SMs.

        What SMs have begun to multiply counts as done. The rest begins no sooner than now; some SM has no less than the mean
        of it, and behind it what follows an SM's last math.
        """
        if not self.math_cycles:
            return run.cycle
        results = run.results()
        done = (
            sum_in_order(results["sm_totals"].reshape(-1, len(SM_TOTALS))[:, _FMA].tolist()) if self.by_ffma
            else float(results["counters"][_TENSOR])
        )
        left = (self.math_cycles * (1.0 - ROUNDING) - done) / self.num_sms
        return run.cycle + left + self.behind_cycles if left > 0.0 else run.cycle


_FMA = SM_TOTALS.index("fma_busy_cycles")
_TENSOR = [(part, name) for part, names in COUNTERS.items() for name in names].index(("tensor_core", "busy_cycles"))


class Bounds:
    """Bounds of launches on one GPU."""

    def __init__(self, gpu: GpuSpec, *, is_cold: bool = True) -> None:
        """``is_cold``: nothing is in L2 when a launch begins."""
        self._gpu, self._is_cold = gpu, is_cold
        self._geometry = Geometry.of(gpu)
        self._each: dict[object, float] = {}

    def of(self, launch: Launch) -> Bound:
        """What ``launch`` cannot end before.

        ``launch``: the first CTA has been dispatched, has started, and its exit is noted; the kernel drains.
        ``hbm``: a cold launch reads each byte once, at the peak of memory, after the first CTA has started.

        Raises:
            LaunchError: the GPU cannot run it.
        """
        held = check(launch, self._gpu)
        gpu, work, size = self._gpu, launch.work, launch.cluster_size
        spec, num_sms = gpu.dispatcher, _num_sms(self._geometry, size)
        start = size * spec.dispatch_cycles_per_cta + spec.cta_start_cycles + (spec.cluster_start_cycles if size > 1 else 0.0)
        begin = Path(spec.launch_cycles + start + (spec.cold_start_cycles if self._is_cold else 0.0))
        exit_cycles = spec.retire_cycles_per_cta if size == 1 else spec.cluster_retire_cycles_per_cta
        paths = {"launch": begin.then(exit_cycles + spec.drain_cycles)}
        if self._is_cold:
            num_bytes = _bytes_once(Uses.of(launch, gpu)) if work is None else float(work.read_bytes)
            peak = max(gpu.hbm.peak_gb_per_s, gpu.hbm.sustained_read_gb_per_s)
            paths["hbm"] = begin.then(spec.drain_cycles, num_bytes / peak * 1e-3)
        if work is None:
            return Bound(
                paths=paths, math_cycles=0.0, num_sms=num_sms, behind_cycles=0.0, by_ffma=False,
                num_flops=float(launch.num_flops), rate_class=launch.math_class,
            )
        step = work.step_instructions * self._cycles_each(launch, work)
        num_slots = num_sms * held.ctas_per_sm
        num_ctas = launch.num_ctas or grid_of_persistent(launch, num_slots)
        tile = _TilePath.of(launch, work, gpu)
        behind = tile.latency_cycles + tile.store_cycles + spec.drain_cycles
        behind += spec.store_end_cycles if tile.store_cycles else exit_cycles
        first = begin.then(tile.arrival_cycles + max(tile.ask_cycles, tile.map_cycles))
        if self._is_cold and tile.map_cycles > tile.ask_cycles:
            first = first.then(0.0, max(0.0, gpu.hbm.latency_ns - l2_latency_ns(gpu)) * 1e-3)
        most = ceil(launch.num_tiles / num_sms) * work.num_steps * step
        paths["math"] = first.then(most + behind)
        in_turn = 1 if launch.num_ctas is None else ceil(num_ctas / num_slots)
        own = tile.math_cycles(work, ceil(launch.num_tiles / num_ctas), step)
        again = tile.latency_cycles + work.left_fraction * tile.store_cycles + exit_cycles + spec.cta_exit_cycles
        again += start + tile.ask_cycles + tile.arrival_cycles
        paths["ctas"] = first.then(in_turn * own + (in_turn - 1) * again + behind)
        return Bound(
            paths=paths, math_cycles=work.all_steps * step, num_sms=num_sms, behind_cycles=behind, by_ffma=work.atom is None,
            num_flops=float(launch.num_flops), rate_class=self._rate_class(launch, work),
        )

    def _rate_class(self, launch: Launch, work: TileWork) -> str:
        """The class of type of a launch, or its type where that takes less."""
        energies = self._gpu.clock.tensor_pj_per_flop
        names = [launch.math_class] if work.atom is None else [launch.math_class, work.atom.a_dtype.name]
        return min((name for name in names if name in energies), key=energies.__getitem__, default=launch.math_class)

    def _cycles_each(self, launch: Launch, work: TileWork) -> float:
        """What an instruction takes of an SM's math pipe, which serves one after the other: as it is packed."""
        atom, gpu = work.atom, self._gpu
        found = self._each.get(atom)
        if found is None:
            if atom is None:
                found = WARP_SIZE / gpu.warp_scheduler.fp32_lanes
            elif atom.kind == "wgmma":
                found = wgmma_row(launch, gpu, Wgmma(atom, 1, ()), 1, 4)[0]
            else:
                found = mma_sync_row(launch, gpu, atom)[0] / gpu.tensor_core.num_sub_cores
            self._each[atom] = found
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _TilePath:
    """The links of a CTA's life."""

    ask_cycles: float
    """From its start until it asks for its first copy.

    By TMA all warps meet before, a producer looks at its slot, announces the bytes and issues the copy."""
    map_cycles: float
    """From the start of an SM's first CTA until it has a tensor map that L2 has."""
    arrival_cycles: float
    """From asking for a copy until it can be multiplied.

    Its bytes pass the SM's port, but for what a request gains that merges with an earlier one; they come the nearest
    way from L2; who waits for the mbarrier wakes up. Nothing of copies by threads, which may hit in L1."""
    copies_cycles: float
    """Between the copies of two k-steps, of a producer: it looks at a slot, announces bytes, issues two copies."""
    slot_cycles: float
    """From asking for a slot's copies until it can be asked for anew, but for its math."""
    wait_cycles: float
    """What a role that waits for each k-step's math adds to it."""
    latency_cycles: float
    """From the end of the last math until its sums can be read."""
    store_cycles: float
    """What the SM's port takes for the stores of the role that multiplies last: at least its own."""

    @classmethod
    def of(cls, launch: Launch, work: TileWork, gpu: GpuSpec) -> _TilePath:
        """Of a CTA of ``launch``."""
        xbar, by_wgmma = gpu.xbar, work.atom is not None and work.atom.kind == "wgmma"
        stored = max(work.stored.num_lines * xbar.store_packet_bytes, work.stored.num_sectors * SECTOR_BYTES)
        latency = gpu.tensor_core.wgmma_latency_cycles if by_wgmma else 0.0
        found = dict.fromkeys(("ask_cycles", "map_cycles", "arrival_cycles", "copies_cycles", "slot_cycles"), 0.0)
        wait = gpu.warp_scheduler.barrier_base_cycles
        if gpu.mbarrier is not None and "mbarrier" in launch.features:
            wait = gpu.mbarrier.try_wait_cycles
        if work.box_bytes and gpu.tma is not None and gpu.mbarrier is not None:
            mbarrier, tma = gpu.mbarrier, gpu.tma
            look = mbarrier.lone_try_wait_cycles + mbarrier.arrive_cycles if work.has_producer else 0.0
            meet = gpu.warp_scheduler.barrier_base_cycles
            if launch.cluster_size > 1 and gpu.dsmem is not None:
                meet = gpu.dsmem.cluster_barrier_cycles + launch.cluster_size * gpu.dsmem.cluster_barrier_cta_cycles
            passed = max(work.box_bytes / xbar.sm_read_bytes_per_cycle - xbar.merge_window_cycles, -AHEAD_CYCLES)
            way = passed + gpu.l2.near_latency_cycles - xbar.sm_distance_cycles / 2 + tma.latency_cycles
            arrival = max(0.0, way) + min(mbarrier.wake_cycles, mbarrier.try_wait_cycles)
            found = {
                "ask_cycles": meet + look + tma.issue_cycles, "map_cycles": min(tma.map_miss_cycles, tma.map_prefetch_cycles),
                "arrival_cycles": arrival, "copies_cycles": look + 2.0 * tma.issue_cycles if work.has_producer else 0.0,
                "slot_cycles": arrival + tma.issue_cycles,
            }
        return cls(
            **found, wait_cycles=wait + latency if work.waits_each_step else 0.0, latency_cycles=latency,
            store_cycles=stored / xbar.sm_write_bytes_per_cycle,
        )

    def math_cycles(self, work: TileWork, num_tiles: int, step: float) -> float:
        """From the begin of a CTA's first math to the end of its last, of so many tiles one after the other.

        The largest of: its own math in the SM's pipe; a role's share of it, with a wait for each k-step, and with the stores
        that must have left before its next tile; a producer's copies, and the last k-step's math; the uses of one slot of the
        ring, each of which waits for its copies and its math. Roles that take turns at tiles begin one when the last
        instructions of the one before are issued: its last k-step may be multiplied behind that.
        """
        num_steps = num_tiles * work.num_steps
        role = work.num_steps * (step / work.num_math_roles + self.wait_cycles) - self.wait_cycles
        between = -step if work.takes_turns else work.left_fraction * self.store_cycles
        uses = ceil(num_steps / work.num_stages)
        return max(
            num_steps * step, num_tiles * role + (num_tiles - 1) * between, (num_steps - 1) * self.copies_cycles + step,
            (uses - 1) * (self.slot_cycles + step) + step,
        )


def lower_bound(launch: Launch, gpu: GpuSpec, *, is_cold: bool = True) -> Bound:
    """What ``launch`` cannot end before on ``gpu``.

    Raises:
        LaunchError: the GPU cannot run it.
    """
    return Bounds(gpu, is_cold=is_cold).of(launch)


@lru_cache(maxsize=64)
def _num_sms(geometry: Geometry, cluster_size: int) -> int:
    """SMs that clusters of a size may run on."""
    return geometry.floorplan.num_clusters(cluster_size) * cluster_size


def _bytes_once(uses: Uses) -> float:
    """Bytes of all panels that are read, each taken once; of tables nobody knows which rows."""
    total = 0.0
    for use in uses.of_tensors:
        if not use.is_write and not use.table_bytes:
            _, first = np.unique(use.panel_of_tile, return_index=True)
            total += float(use.bytes_of_tile[first].sum())
    return total


# ---------------------------------------------------------------------------------------------- cycles and time


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastTime:
    """The time of launches that take so many cycles, at the highest clock that a mode leaves them.

    Models: the limiter's clock for a launch that does nothing but its arithmetic; whatever else it does takes power, and
    makes the clock no higher. More cycles take no less time.
    """

    limiter: PowerLimiter
    clock: str | float
    """A mode of the limiter, or MHz."""
    data: str
    num_flops: float
    rate_class: str

    def mhz(self, cycles: float) -> float:
        """The clock of a launch of so many cycles."""
        if not isinstance(self.clock, str):
            return float(self.clock)
        activity = Activity(
            cycles=cycles, num_flops=self.num_flops, rate_class=self.rate_class, l2_bytes=0.0, hbm_bytes=0.0,
            busy_fraction=0.0,
        )  # fmt: skip
        return self.limiter.clock_mhz(activity, mode=self.clock, data=self.data)

    def us(self, cycles: float) -> float:
        """Microseconds of so many cycles."""
        return cycles / self.mhz(cycles)

    def cycles(self, time_us: float) -> float:
        """The most cycles that take no longer than ``time_us``, and a rounding error; infinite for an infinite time."""
        if time_us == inf:
            return inf
        low, high = time_us * self.limiter.spec.min_mhz, time_us * self.limiter.spec.max_mhz
        while high - low > ROUNDING * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self.us(middle) > time_us else (middle, high)
        return high
