"""Estimated cycles of one GEMM configuration from short simulations, or from rates alone.

In: a config, a GPU. Out: cycles at one SM clock. :mod:`gpusim.analysis.choose` describes the method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, inf, sqrt
from typing import Any

from gpusim.kernel_models.gemm import GemmConfig, gemm_launch
from gpusim.kernel_models.gemm.tile_grid import TilePlan
from gpusim.machine.config import GpuSpec
from gpusim.simulate.bottleneck import busy_shares
from gpusim.simulate.engine_run import Ran
from gpusim.simulate.lower_bound import Bound, lower_bound
from gpusim.simulate.native_run import native_runs
from gpusim.simulate.plan import LaunchPlan, check, count_slots, plan_launch
from gpusim.simulate.run import estimate_clock
from gpusim.simulate.settings import L2State, Settings
from gpusim.units import Clock
from gpusim.workload.launch import Launch

WORK = {"wgmma": 1.0, "mma_sync": 2.5, "fma": 5.0}
"""Work units of simulating one k-step of one tile, by math instruction. A unit takes about 3 us of one core."""
TILE_WORK, RUN_WORK, TRACE_WORK = 12.0, 5_000.0, 1.5
"""Work units of a tile's epilogue, of a run's traffic plan and packing, and of a k-step's trace if each tile is traced."""

MOST_EXACT = 18_000.0
"""Work units up to which a problem is simulated as it is."""
NUM_WAVES = 2
"""Waves of a reduced problem."""
MORE_STEPS = {"wgmma": 10, "mma_sync": 6, "fma": 4}
"""K-steps that the longer run of a reduced problem has in addition, by math instruction. The shorter run fills the ring."""

OVERLAP_LOSS = 0.25
"""Part of the shorter of work and memory traffic that the closed estimate adds, so that no two tiles tie."""
SMS_OF_A_GPC = 18.0
"""SMs that share a GPC's link in the closed estimate. Source: the largest GPCs of ``device.gpcs``, h100_sxm and h200_sxm."""
SM_READ_RATE, SM_STORE_RATE = 64.0, 24.0
"""Bytes per cycle of an SM: from L2 if no GPC link is described, and of epilogues to L2. Source: guess, half of the ports'
128, and three quarters of their 32. They order the configs that are simulated, and are in no prediction."""
STEP_LATENCY_CYCLES, CTA_CYCLES = 1_000.0, 1_500.0
"""Cycles from a copy's issue to its data, shared by the stages; and of a CTA's start, fill and drain. Source: guess, a load
from busy HBM, and that with a start and an exit. They order configs, as above."""
EXPOSED_STORE = 0.3
"""Part of a persistent kernel's TMA stores that no main loop hides. Source: guess; it orders configs, as above."""


def work_of(config: GemmConfig) -> float:
    """Work units of simulating a config as it is, without the constant part."""
    plan = TilePlan(config)
    step = WORK[config.math] + (0.0 if plan.has_uniform_programs else TRACE_WORK)
    return plan.num_tiles * (TILE_WORK + step * plan.total_k_steps / config.split_k)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A configuration, and how it is simulated."""

    config: GemmConfig
    launch: Launch
    gpu: GpuSpec
    bound: Bound
    num_slots: int
    is_warm: bool
    is_exact: bool

    @classmethod
    def of(cls, config: GemmConfig, gpu: GpuSpec, *, is_warm: bool) -> Trial:
        """The trial of a config. Raises LaunchError: the GPU cannot run it."""
        launch = gemm_launch(config, gpu)
        return cls(
            config=config, launch=launch, gpu=gpu, bound=lower_bound(launch, gpu, is_cold=not is_warm),
            num_slots=count_slots(launch, gpu, check(launch, gpu)), is_warm=is_warm, is_exact=work_of(config) <= MOST_EXACT,
        )

    @property
    def waves(self) -> int:
        """Waves of tiles, rounded up."""
        return ceil(self.launch.num_tiles / self.num_slots)

    @property
    def num_steps(self) -> int:
        """K-steps of a tile."""
        return ceil(TilePlan(self.config).total_k_steps / self.config.split_k)

    @property
    def steps(self) -> tuple[int, ...]:
        """K-steps of a tile in each run."""
        fewest, most = self.config.stages + 2, self.config.stages + 2 + MORE_STEPS[self.config.math]
        return (self.num_steps,) if self.is_exact or self.num_steps <= most else (fewest, most)

    @property
    def work(self) -> float:
        """Work units of all runs."""
        if self.is_exact:
            return RUN_WORK + work_of(self.config)
        return sum(RUN_WORK + work_of(self.reduced(steps)) for steps in self.steps)

    def clock_mhz(self) -> float:
        """SM clock that the launch would have, in MHz."""
        return estimate_clock(plan_launch(self.launch, self.gpu, is_warm=self.is_warm), mode="single", data="random")

    def cycles(self, mhz: float) -> tuple[float, Mapping[str, float]]:
        """Estimated cycles at an SM clock of ``mhz``, and how busy the parts were in the last run."""
        following = sum(
            _run(plan_launch(each, self.gpu, is_warm=True), mhz, l2="stored").end_cycle for each in self.launch.following
        )
        if self.is_exact:
            ran = _run(plan_launch(self.launch, self.gpu, is_warm=self.is_warm), mhz)
            return ran.end_cycle + following, busy_shares(ran)
        has_all_tiles = self.waves <= NUM_WAVES
        plans = [
            plan_launch(gemm_launch(self.reduced(steps), self.gpu), self.gpu, is_warm=self.is_warm or not has_all_tiles)
            for steps in self.steps
        ]
        runs = [_run(plan, mhz) for plan in plans]
        first, last = runs[0].end_cycle, runs[-1].end_cycle
        step = (last - first) / (self.steps[-1] - self.steps[0]) if len(runs) > 1 else 0.0
        found = last + step * (self.num_steps - self.steps[-1])
        if not has_all_tiles:
            found = self._of_all_waves(found, ceil(plans[-1].launch.num_tiles / self.num_slots), mhz)
        return max(found, self.bound.cycles(mhz)) + following, busy_shares(runs[-1])

    def _of_all_waves(self, cycles: float, num_waves: int, mhz: float) -> float:
        """Cycles of all waves, from those of ``num_waves``. A wave also waits for its bytes from memory."""
        work = self.launch.work
        assert work is not None  # GEMMs have it
        math = ceil(self.launch.num_tiles / self.bound.num_sms) * work.num_steps * self.bound.math_cycles / work.all_steps
        once = max(0.0, self.bound.paths["math"].at(mhz) - math)
        wave = max(0.0, cycles - once) / num_waves
        if self.is_warm:
            return once + self.waves * wave
        plan = plan_launch(self.launch, self.gpu, is_warm=False)
        rate = Clock(sm_mhz=mhz).bytes_per_cycle(gb_per_s=self.gpu.hbm.sustained_read_gb_per_s)
        misses = plan.miss_bytes_by_wave / rate
        return once + float(sum(max(wave, miss) for miss in misses.tolist())) + (self.waves - len(misses)) * wave

    def reduced(self, steps: int) -> GemmConfig:
        """The config of a problem with that many k-steps a tile, and at most ``NUM_WAVES`` waves."""
        config, grid = self.config, TilePlan(self.config)
        fewer = (grid.total_k_steps - steps * config.split_k) * config.tile[2]  # rows are aligned as before
        extents: dict[str, Any] = {"k": max(1, config.k - fewer)}
        per_plane, wanted = grid.num_m * grid.num_n * config.split_k, NUM_WAVES * self.num_slots
        if self.waves <= NUM_WAVES:
            return replace(config, **extents)
        if per_plane <= wanted:
            return replace(config, **extents, batch=min(config.batch, wanted // per_plane))
        rows, columns = _grid(grid.num_m, grid.num_n, wanted // config.split_k, config.cluster)
        m, n = (max(1, length - (num - few) * extent) for length, num, few, extent in (
            (config.m, ceil(config.m / config.tile[0]), rows, config.tile[0]),
            (config.n, ceil(config.n / config.tile[1]), columns, config.tile[1]),
        ))
        return replace(config, **extents, batch=1, m=m, n=n)


def _grid(num_m: int, num_n: int, num_tiles: int, cluster: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of tiles, as near to a square as the grid admits: ``num_tiles`` of them, or a few less.

    >>> _grid(32, 32, 264, (2, 1)), _grid(1, 1000, 264, (1, 1))
    ((12, 22), (1, 264))
    """
    best, least = (cluster[0], cluster[1]), inf
    for rows in range(cluster[0], min(num_m, num_tiles) + 1, cluster[0]):
        columns = min(num_n, num_tiles // rows) // cluster[1] * cluster[1]
        if columns:
            badness = 100.0 * (1.0 - rows * columns / num_tiles) + abs(rows - columns) / sqrt(num_tiles)
            best, least = min(((best), least), ((rows, columns), badness), key=lambda item: item[1])
    return best


def _run(plan: LaunchPlan, mhz: float, *, l2: L2State = "cold") -> Ran:
    """One run at an SM clock. The plan has what is in L2, but for copies of what was stored."""
    return native_runs(plan, Settings(clock=mhz, l2=l2))(Clock(sm_mhz=mhz), None)


# ---------------------------------------------------------------------------------------------- closed estimate
def quick_cycles(config: GemmConfig, gpu: GpuSpec) -> float:
    """Estimated cycles of a config from rates alone, for the order in which configs are simulated."""
    plan, (rows, columns, depth) = TilePlan(config), config.tile
    num_bytes, clock = config.element.num_bytes, Clock(sm_mhz=gpu.clock.max_mhz)
    slots = gpu.num_sms // config.num_cluster_ctas * config.num_cluster_ctas
    waves = ceil(plan.num_tiles / slots) if config.math == "wgmma" else max(1.0, plan.num_tiles / slots)
    steps = ceil(plan.total_k_steps / config.split_k)
    math = 2.0 * rows * columns * depth / _flops_per_cycle(config, gpu)
    shared = (rows / 64 * (64 + columns) if config.math == "wgmma" else 0.0) * depth * num_bytes / 128.0
    fetched = (rows / config.mainloop.num_sharing(0) + columns / config.mainloop.num_sharing(1)) * depth * num_bytes
    copied = fetched / (gpu.xbar.gpc_read_bytes_per_cycle / SMS_OF_A_GPC or SM_READ_RATE)
    latency = STEP_LATENCY_CYCLES / config.stages
    stored = rows * columns * (4 if config.split_k > 1 else config.out_element.num_bytes) / SM_STORE_RATE
    stored *= EXPOSED_STORE if config.persistent and config.epilogue == "tma_store" else 1.0
    wave = steps * max(math, shared, copied, latency) + stored + (0.0 if config.persistent else CTA_CYCLES)
    parts = (config.m + config.n) * config.k * num_bytes + config.m * config.n * config.out_element.num_bytes
    parts += 8 * config.split_k * config.m * config.n if config.split_k > 1 else 0
    memory = config.batch * parts / clock.bytes_per_cycle(gb_per_s=gpu.hbm.sustained_read_gb_per_s)
    spec = gpu.dispatcher
    behind = spec.launch_cycles + spec.drain_cycles if config.split_k_mode == "second_kernel" and config.split_k > 1 else 0.0
    longer, shorter = max(waves * wave, memory), min(waves * wave, memory)
    return longer + OVERLAP_LOSS * shorter + behind


def _flops_per_cycle(config: GemmConfig, gpu: GpuSpec) -> float:
    """Peak FLOP per cycle of one SM for the config's math."""
    core = gpu.tensor_core
    if config.math == "fma":
        return 2.0 * gpu.warp_scheduler.fp32_lanes
    rates: Mapping[str, Any] = core.mma_sync_flops_per_cycle if config.math == "mma_sync" else core.wgmma_flops_per_cycle
    return float(rates.get("16bit" if config.element.bits == 16 else config.dtype, 1.0))
