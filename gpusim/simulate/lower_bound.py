"""Lower bound of a launch's cycles from the minimal work of its tiles, before it runs and while it runs.

In: a launch (its :class:`~gpusim.workload.tile_work.TileWork`), a GPU. Out: cycles that no simulation of it can beat.

Each path is a chain of steps that follow one another in the model. It takes at least the sum of its steps. The longest path
is the bound. A test draws launches, simulates them and compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple

import numpy as np

from gpusim.machine.config import GpuSpec
from gpusim.machine.counters import COUNTERS
from gpusim.machine.exact_math import sum_in_order
from gpusim.program.records import SM_TOTALS
from gpusim.simulate.constants import l2_latency_ns
from gpusim.simulate.op_tables import mma_sync_row, wgmma_row
from gpusim.simulate.plan import check, grid_of_persistent
from gpusim.simulate.wasm_module import EngineRun
from gpusim.traffic.footprints import FootprintTable
from gpusim.units import SECTOR_BYTES, WARP_SIZE
from gpusim.workload.launch import Launch
from gpusim.workload.ops import Wgmma
from gpusim.workload.tile_work import TileWork

AHEAD_CYCLES = 48.0
"""Cycles by which a role's cursor may run ahead of the clock. A copy may begin that much before it is requested."""

ROUNDING = 1e-9
"""Relative rounding error of sums."""


class Path(NamedTuple):
    """Minimal time of a chain: SM cycles, and microseconds of parts with a separate clock."""

    cycles: float
    us: float = 0.0

    def at(self, mhz: float) -> float:
        """Length in SM cycles at an SM clock of ``mhz``."""
        return self.cycles + self.us * mhz

    def then(self, cycles: float, us: float = 0.0) -> Path:
        """This path followed by more cycles and microseconds."""
        return Path(self.cycles + cycles, self.us + us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Lower bound of a launch's cycles, and its remaining math while it runs."""

    paths: Mapping[str, Path]
    """Chains by name: ``launch``, ``hbm``, ``math`` and ``tma`` of the busiest SM, and ``ctas`` that follow on one slot."""
    num_flops: float
    rate_class: str
    """Class of data type with the least energy that the arithmetic may take."""
    num_sms: int
    """SMs that may run CTAs."""
    math_cycles: float = 0.0
    """Cycles of all tiles in the SMs' math pipes; 0: unknown."""
    behind_cycles: float = 0.0
    """Cycles from the end of an SM's last math to the end of the kernel."""
    is_ffma: bool = False

    @property
    def arithmetic(self) -> tuple[float, str]:
        """Amount (FLOP) and class of the arithmetic, for its minimal energy."""
        return self.num_flops, self.rate_class

    def cycles(self, mhz: float) -> float:
        """Lower bound in SM cycles before the launch runs, at an SM clock of ``mhz``."""
        return max(path.at(mhz) for path in self.paths.values()) * (1.0 - ROUNDING)

    def cycles_of(self, run: EngineRun) -> tuple[float, float]:
        """Lower bound of a running launch, and its end if it continued at the present rate, in SM cycles.

        The bound is the present cycle plus the remaining math, spread evenly over all SMs. Math that SMs have begun counts
        as done. The rest begins no sooner than now. Some SM has at least the mean of it. The steps after an SM's last math
        follow.
        """
        if not self.math_cycles:
            return run.cycle, run.cycle
        done = self.done(run)
        left = self.math_cycles * (1.0 - ROUNDING - done) / self.num_sms
        return run.cycle + left + self.behind_cycles if left > 0.0 else run.cycle, run.cycle / done if done else inf

    def done(self, run: EngineRun) -> float:
        """Fraction of its math that a run has begun."""
        if self.is_ffma:
            found = sum_in_order(run.section("sm_totals").reshape(-1, len(SM_TOTALS))[:, FMA_BUSY].tolist())
        else:
            found = float(run.section("counters")[TENSOR_BUSY])
        return found / self.math_cycles


FMA_BUSY = SM_TOTALS.index("fma_busy_cycles")
TENSOR_BUSY = [(part, name) for part, names in COUNTERS.items() for name in names].index(("tensor_core", "busy_cycles"))
"""Index of the tensor cores' busy cycles among the counters of a result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Steps of the chains of one launch, in cycles. Zero where a kernel has no such step."""

    ask: float
    """Cycles from a CTA's start to its first TMA copy: a barrier, a producer's test of its slot, and ``expect_tx``."""
    tensor_map: float
    """Cycles from the start of an SM's first CTA until it has a tensor map that is in L2."""
    arrival: float
    """Cycles from the request of a TMA copy until its data can be multiplied.

    Its bytes pass the SM's port, except for what a request gains that is coalesced with an earlier one. They come from the
    near L2 partition. Then the waiters of the mbarrier wake up. Copies by threads take nothing: they may hit in L1."""
    copies: float
    """Cycles between the copies of two k-steps: a producer tests a slot and issues two copies; TMA walks rows and bytes."""
    walk: float
    """Cycles that the copies of a k-step occupy the SM's TMA engine, which serves all its CTAs in turn."""
    step: float
    """Cycles of one k-step's math, in an SM's pipe that serves one instruction after the other."""
    wait: float
    """Cycles that a role adds which waits for each k-step's math: the mbarrier or barrier before, and the latency after."""
    latency: float
    """Cycles from the end of the last math until its sums can be read."""
    stores: float
    """Cycles of the SM's port for the stores of the role that multiplies last."""
    left: float
    """Cycles of the stores that a role waits for before it goes on: all stores where it fences them."""
    part: float
    """Cycles of a cluster's final barrier, and of the fence of its stores before it. The first barrier takes the same time.
    """

    @classmethod
    def of(cls, launch: Launch, work: TileWork, gpu: GpuSpec, *, math_cycles: float) -> Links:
        """Links of ``launch``. ``math_cycles``: SM cycles of one math instruction."""
        xbar, scheduler, size = gpu.xbar, gpu.warp_scheduler, launch.cluster_size
        latency = gpu.tensor_core.wgmma_latency_cycles if work.atom is not None and work.atom.kind == "wgmma" else 0.0
        packets = max(work.stored.num_lines * xbar.store_packet_bytes, work.stored.num_sectors * SECTOR_BYTES)
        stores = packets / xbar.sm_write_bytes_per_cycle
        meet, part, before = scheduler.barrier_base_cycles, 0.0, scheduler.barrier_base_cycles
        if size > 1 and gpu.dsmem is not None:
            part = gpu.dsmem.cluster_barrier_cycles + size * gpu.dsmem.cluster_barrier_cta_cycles
            meet = part = part + (scheduler.gpu_fence_cycles if work.is_fenced else 0.0)
        ask = tensor_map = arrival = copies = walk = 0.0
        if gpu.mbarrier is not None and "mbarrier" in launch.features:
            before = gpu.mbarrier.try_wait_cycles
        if gpu.mbarrier is not None and gpu.tma is not None and work.box_bytes:
            tma, look = gpu.tma, 0.0
            if work.has_producer:
                look = gpu.mbarrier.one_lane_try_wait_cycles + gpu.mbarrier.arrive_cycles
            passed = max(work.box_bytes / xbar.sm_read_bytes_per_cycle - xbar.coalesce_window_cycles, -AHEAD_CYCLES)
            way = passed + gpu.l2.near_latency_cycles - xbar.sm_distance_cycles / 2 + tma.latency_cycles
            arrival = max(0.0, way) + min(gpu.mbarrier.wake_cycles, gpu.mbarrier.try_wait_cycles)
            ask, tensor_map = meet + look + tma.issue_cycles, min(tma.tensormap_miss_cycles, tma.tensormap_prefetch_cycles)
            walk = max(work.copied_rows * tma.row_cycles, work.copied_bytes / tma.bytes_per_cycle)
            copies = max(walk, look + 2.0 * tma.issue_cycles if work.has_producer else 0.0)
        return cls(
            ask=ask, tensor_map=tensor_map, arrival=arrival, copies=copies, walk=walk,
            step=work.step_instructions * math_cycles, wait=before + latency if work.waits_each_step else 0.0,
            latency=latency, stores=stores, left=stores * (1.0 if work.is_fenced else work.left_fraction), part=part,
        )  # fmt: skip

    def math(self, work: TileWork, num_tiles: int) -> float:
        """Cycles from the begin of a CTA's first math to the end of its last, for ``num_tiles`` tiles one after the other.

        The longest of these chains:

        * All its math in the SM's pipe.
        * A role's share of it, with a wait for each k-step. Stores must have left before the next tile. Roles that take
          turns begin a tile when the last math of the previous one is issued: that k-step may be multiplied later.
        * Its copies, and the math of the last k-step.
        * The uses of one slot of the ring, each of which waits for its copies and its math.
        """
        num_steps = num_tiles * work.num_steps
        of_role = work.num_steps * (self.step / work.num_math_roles + self.wait) - self.wait
        between = -self.step if work.takes_turns else work.left_fraction * self.stores
        uses = ceil(num_steps / work.num_stages)
        return max(
            num_steps * self.step, num_tiles * of_role + (num_tiles - 1) * between,
            (num_steps - 1) * self.copies + self.step, uses * self.step + (uses - 1) * self.arrival,
        )


def lower_bound(launch: Launch, gpu: GpuSpec, *, is_cold: bool = True) -> Bound:
    """Lower bound of ``launch`` on ``gpu``, as chains. ``is_cold``: L2 is empty when the launch begins.

    * ``launch``: a CTA is dispatched, starts, and leaves; the kernel drains.
    * ``hbm``: a cold launch reads each byte once, at the peak of memory, after the start of a CTA.
    * ``math``: some SM multiplies at least the mean number of tiles, rounded up. The first copy comes before that. In a cold
      launch the first copy also waits for a tensor map from memory. The steps after the last math follow.
    * ``tma``: that SM's TMA engine walks the copies of as many tiles; the math of the last k-step follows.
    * ``ctas``: some slot runs at least the mean number of CTAs, rounded up, each with its start, math and end.

    Raises:
        LaunchError: the GPU cannot run it.
    """
    held, spec, work = check(launch, gpu), gpu.dispatcher, launch.work
    size = launch.cluster_size
    # a later cluster may lie on SMs that no cluster of the first wave used
    num_sms = gpu.num_sms if launch.num_ctas is not None else gpu.floorplan.num_clusters(size) * size
    start = size * spec.dispatch_cycles_per_cta + spec.cta_start_cycles
    start += spec.cluster_start_cycles if size > 1 else 0.0
    leave = spec.retire_cycles(size)
    begin = Path(spec.launch_cycles + start + (spec.cold_start_cycles if is_cold else 0.0))
    paths = {"launch": begin.then(leave + spec.drain_cycles)}
    if is_cold:
        num_bytes = _bytes_once(FootprintTable.of(launch, gpu)) if work is None else float(work.read_bytes)
        peak = max(gpu.hbm.peak_gb_per_s, gpu.hbm.sustained_read_gb_per_s)
        paths["hbm"] = begin.then(spec.drain_cycles, num_bytes / peak * 1e-3)
    if work is None:
        return Bound(paths=paths, num_flops=float(launch.num_flops), rate_class=launch.math_class, num_sms=num_sms)
    links = Links.of(launch, work, gpu, math_cycles=_math_cycles(launch, work, gpu))
    num_slots = num_sms * held.ctas_per_sm
    num_ctas = launch.num_ctas or grid_of_persistent(launch, num_slots)
    over = links.latency + links.left + links.part + leave
    stored = links.latency + links.stores + spec.store_end_cycles if links.stores else 0.0
    behind = max(over, stored) + spec.drain_cycles
    first = begin.then(max(links.ask, links.tensor_map) + links.arrival)
    if is_cold and links.tensor_map > links.ask:
        first = first.then(0.0, max(0.0, gpu.hbm.latency_ns - l2_latency_ns(gpu)) * 1e-3)
    most_steps = ceil(launch.num_tiles / num_sms) * work.num_steps
    paths["math"] = first.then(most_steps * links.step + behind)
    paths["tma"] = first.then((most_steps - 1) * links.walk + links.step + behind)
    in_turn = 1 if launch.num_ctas is None else ceil(num_ctas / num_slots)
    own = links.math(work, ceil(launch.num_tiles / num_ctas))
    between = over + spec.cta_exit_cycles + start + links.ask + links.arrival
    paths["ctas"] = first.then(in_turn * own + (in_turn - 1) * between + behind)
    return Bound(
        paths=paths, num_flops=float(launch.num_flops), rate_class=_rate_class(launch, work, gpu), num_sms=num_sms,
        math_cycles=work.all_steps * links.step, behind_cycles=behind, is_ffma=work.atom is None,
    )


def _math_cycles(launch: Launch, work: TileWork, gpu: GpuSpec) -> float:
    """SM cycles of one instruction in an SM's math pipe, as packed for the engine."""
    atom = work.atom
    if atom is None:
        return WARP_SIZE / gpu.warp_scheduler.fp32_lanes
    if atom.kind == "wgmma":
        return wgmma_row(launch, gpu, Wgmma(atom, 1, ()), 1, 4)[0]
    return mma_sync_row(launch, gpu, atom)[0] / gpu.warp_scheduler.num_schedulers


def _rate_class(launch: Launch, work: TileWork, gpu: GpuSpec) -> str:
    """Math class of a launch, or its data type where that takes less energy."""
    energies = gpu.clock.tensor_pj_per_flop
    names = [launch.math_class] if work.atom is None else [launch.math_class, work.atom.a_dtype.name]
    return min((name for name in names if name in energies), key=energies.__getitem__, default=launch.math_class)


def _bytes_once(footprints: FootprintTable) -> float:
    """Bytes of all panels that are read, each counted once. Gathered tables do not count: their rows are unknown."""
    total = 0.0
    for row in footprints.of_tensors:
        if not row.is_write and not row.table_bytes:
            _, first = np.unique(row.panel_of_tile, return_index=True)
            total += float(row.bytes_of_tile[first].sum())
    return total
