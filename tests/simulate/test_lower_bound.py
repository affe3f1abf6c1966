"""What a launch cannot end before is never above its simulation, and is what a hand works out."""

from __future__ import annotations

import os
import sys
from random import Random
from typing import Any

import numpy as np
import pytest

from gpusim import KERNEL_MODELS, GemmParams, load_gpu, simulate
from gpusim.analysis.sweep import LeastTime
from gpusim.errors import GpusimError, SimulationError
from gpusim.kernel_models.streaming import ceil_div
from gpusim.machine.clock import Activity, PowerLimiter
from gpusim.machine.config import GpuSpec
from gpusim.program.records import SM_TOTALS
from gpusim.simulate.lower_bound import FMA_BUSY, TENSOR_BUSY, lower_bound
from gpusim.simulate.pack import pack, trace_plan
from gpusim.simulate.plan import check, plan_launch
from gpusim.simulate.settings import Settings
from gpusim.simulate.wasm_module import EngineRun
from gpusim.units import Clock
from gpusim.workload.compiled_code import NO_CODE
from gpusim.workload.launch import Launch

TOY, H200 = load_gpu("toy"), load_gpu("h200_sxm")
GPUS = [TOY, H200, *(load_gpu(name) for name in ("h100_sxm", "h100_pcie", "a100_sxm_80gb"))]
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("elementwise", {"op": "copy", "elements": 1 << 20}), ("transpose", {"m": 1000, "n": 1024}),
    ("softmax", {"rows": 512, "columns": 1024}), ("layer_norm", {"rows": 512, "columns": 1024}),
    ("reduction", {"rows": 512, "columns": 4096}), ("smem_copy", {"m": 512, "n": 1024}),
]
SEEDS, DRAWS = 20, int(os.environ.get("GPUSIM_BOUND_DRAWS", "10"))
"""Two hundred launches; with 50 draws they are a thousand."""

CODE = NO_CODE.replaced(mainloop={"chain_cycles": 80.0})
SOMETIMES: list[tuple[str, tuple[Any, ...], float]] = [
    ("cluster", ("2x1", "1x2", "2x2", "4x1", "3x1", "1x8"), 0.5), ("split_k", (2, 3, 4), 0.25),
    ("split_k_mode", ("in_kernel", "second_kernel"), 0.5), ("persistent", (True, False), 0.5),
    ("copy", ("tma", "cp_async"), 0.6), ("math", ("wgmma", "mma_sync", "fma"), 0.6),
    ("epilogue", ("direct", "smem", "tma_store"), 0.8), ("dtype", ("bf16", "fp16", "tf32", "fp8", "int8", "fp32"), 0.4),
    ("layout", ("nn", "nt", "tt"), 0.25), ("swizzle_size", (2, 4, 8), 0.3), ("batch", (2, 3), 0.1),
    ("wgmma_depth", (0, 1, 2), 0.3), ("prefetch", ("before_mma", "after_mma", "after_wait"), 0.3),
    ("consumer_warpgroups", (1, 2, 3), 0.2), ("mbarrier_arrive", ("warpgroup", "thread"), 0.1),
    ("prefetch_tensormap", (False,), 0.15),
    ("register_stages", (1,), 0.15), ("beta", (1.0,), 0.1), ("compiled_code", (CODE,), 0.1),
    ("cluster_sync", ("relaxed",), 0.15), ("out_dtype", ("fp32",), 0.2), ("swizzle", ("none", "64B"), 0.1),
    ("schedule", ("multistage", "warp_specialized", "cooperative", "pingpong"), 0.8),
]


def drawn(rnd: Random, gpu: GpuSpec) -> Launch:
    """A GEMM of a few tiles that the GPU can launch."""
    while True:
        m, n, k = (rnd.choice((64, 128, 256, 512, 1024, rnd.randint(1, 1000))) for _ in "mnk")
        tile = f"{rnd.choice((64, 128, 192, 256))}x{rnd.choice((16, 32, 64, 128, 192, 256))}x{rnd.choice((16, 32, 64, 128))}"
        options = {name: rnd.choice(values) for name, values, share in SOMETIMES if rnd.random() < share}
        try:
            launch = GemmParams(m=m, n=n, k=k, tile=tile, stages=rnd.randint(1, 6), **options).launch(gpu)
            check(launch, gpu)
            return launch
        except GpusimError:
            continue


def some_mhz(rnd: Random, gpu: GpuSpec) -> float:
    """A clock, often the lowest or the highest."""
    low, high = gpu.clock.min_mhz, gpu.clock.max_mhz
    return rnd.choice((low, high, rnd.uniform(low, high)))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_gemm_ends_before_its_bound(seed: int) -> None:
    rnd = Random(seed)
    for _ in range(DRAWS):
        gpu = rnd.choice(GPUS)
        launch, mhz, l2 = drawn(rnd, gpu), some_mhz(rnd, gpu), rnd.choice(("cold", "warm", "flushed"))
        least = lower_bound(launch, gpu, is_cold=l2 != "warm").cycles(mhz)
        try:
            cycles = simulate(launch, gpu, clock=mhz, l2=l2).cycles
        except SimulationError:  # a kernel that is wrong has no time
            continue
        assert 0.0 < least <= cycles, (gpu.name, mhz, l2, launch.params)


@pytest.mark.parametrize("seed", range(4))
def test_nor_before_its_bound_while_it_runs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("WATCHED_SLICE_S", 0.0005), ("FIRST_EVENTS", 500), ("LEAST_EVENTS", 200)):
        monkeypatch.setattr(sys.modules["gpusim.simulate.wasm_module"], name, value)
    rnd = Random(1000 + seed)
    for _ in range(15):
        gpu = rnd.choice(GPUS)
        launch, mhz = drawn(rnd, gpu), some_mhz(rnd, gpu)
        bound, seen = lower_bound(launch, gpu), [0.0]
        try:
            result = simulate(launch, gpu, clock=mhz, watch=lambda run, of=bound, to=seen: to.append(of.cycles_of(run)[0]))
        except SimulationError:
            continue
        assert max(seen) <= result.cycles, (gpu.name, mhz, launch.params)


@pytest.mark.parametrize("seed", range(4))
def test_the_math_of_a_bound_is_what_its_programs_multiply(seed: int) -> None:
    rnd = Random(2000 + seed)
    for _ in range(15):
        gpu = rnd.choice(GPUS)
        launch = drawn(rnd, gpu)
        bound, plan = lower_bound(launch, gpu), plan_launch(launch, gpu, is_warm=False)
        packed = pack(plan, trace_plan(plan), Clock(sm_mhz=gpu.clock.max_mhz), Settings())
        results = EngineRun(packed, kernel="gemm", num_ctas=plan.num_ctas).run()
        if results["failure"][0]:
            continue
        fma = results["sm_totals"].reshape(-1, len(SM_TOTALS))[:, FMA_BUSY].sum()
        done = fma if bound.is_ffma else results["counters"][TENSOR_BUSY]
        assert done == pytest.approx(bound.math_cycles), launch.params


def test_what_is_stored_of_a_bound_is_what_leaves() -> None:
    for epilogue, schedule in (("direct", "cooperative"), ("smem", "pingpong"), ("tma_store", "warp_specialized")):
        params = GemmParams(m=512, n=512, k=64, tile=(128, 128, 64), schedule=schedule, epilogue=epilogue)
        launch = params.launch(H200)
        assert launch.work is not None
        stored = launch.work.stored.num_sectors * launch.work.num_math_roles * launch.num_tiles
        assert simulate(launch, H200).counters["lts__t_sectors_srcunit_tex_op_write.sum"] == stored


@pytest.mark.parametrize(("name", "options"), OTHERS, ids=[name for name, _ in OTHERS])
@pytest.mark.parametrize("gpu", [TOY, H200], ids=lambda gpu: gpu.name)
def test_no_other_kernel_ends_before_its_bound(name: str, options: dict[str, Any], gpu: GpuSpec) -> None:
    launch = KERNEL_MODELS[name].params(**options).launch(gpu)
    for l2 in ("cold", "warm"):
        result = simulate(launch, gpu, l2=l2, clock="max")
        assert lower_bound(launch, gpu, is_cold=l2 == "cold").cycles(gpu.clock.max_mhz) <= result.cycles


@pytest.mark.parametrize(("options", "share"), [
    ({"tile": (128, 256, 64), "schedule": "cooperative", "epilogue": "smem"}, 0.88),
    ({"tile": (128, 128, 64), "schedule": "pingpong", "epilogue": "smem", "stages": 6}, 0.88),
    ({"tile": (192, 128, 64), "schedule": "pingpong", "epilogue": "smem", "stages": 5}, 0.85),
])
def test_it_is_near_the_time_of_a_kernel_that_is_bound_by_math(options: dict[str, Any], share: float) -> None:
    launch = GemmParams(m=2048, n=2048, k=2048, compiled_code=NO_CODE, **options).launch(H200)
    assert lower_bound(launch, H200).cycles(1740.0) > share * simulate(launch, H200, clock=1740.0).cycles


def test_the_sm_with_most_tiles_multiplies_them_all() -> None:
    """One tile more than SMs: twice the time of one tile, at the peak of one SM, behind the launch and before the end."""
    num_sms, k = TOY.num_sms, 640
    rate = TOY.tensor_core.wgmma_flops_per_cycle["16bit"]
    params = GemmParams(m=64 * (num_sms + 1), n=64, k=k, tile=(64, 64, 64), schedule="warp_specialized")
    found = lower_bound(params.launch(TOY), TOY, is_cold=False)
    spec = TOY.dispatcher
    more = found.paths["math"].cycles - 2 * (2 * 64 * 64 * k / rate)
    assert more >= spec.launch_cycles + spec.cta_start_cycles + spec.drain_cycles + TOY.tensor_core.wgmma_latency_cycles
    assert found.paths["ctas"].cycles - found.paths["math"].cycles < more


def test_what_is_read_once_comes_from_a_cold_memory_alone() -> None:
    launch = KERNEL_MODELS["elementwise"].params(op="copy", elements=1 << 22).launch(H200)
    cold, warm = lower_bound(launch, H200), lower_bound(launch, H200, is_cold=False)
    num_bytes = sum(int(item.panel_bytes(np.arange(launch.num_tiles)).sum())
                    for item in launch.footprints if item.access == "read")
    assert cold.paths["hbm"].us == pytest.approx(num_bytes / H200.hbm.peak_gb_per_s * 1e-3)
    assert set(warm.paths) == {"launch"}


@pytest.mark.parametrize("clock", ["single", "sustained", "max", 1500.0])
def test_more_cycles_and_more_work_take_no_less_time(clock: str | float) -> None:
    limiter = PowerLimiter(H200.clock)
    for num_flops in (0.0, 1e9, 2e10, 1e12):
        least = LeastTime(limiter=limiter, clock=clock, data="random", num_flops=num_flops, rate_class="16bit")
        cycles = np.geomspace(max(1e3, num_flops / 5.4e5), 1e7, 40).tolist()
        times = [least.us(each) for each in cycles]
        assert times == sorted(times)
        for each, time_us in zip(cycles, times, strict=True):
            assert least.cycles(time_us) == pytest.approx(each, rel=1e-5)
            if isinstance(clock, str):
                busy = Activity(
                    cycles=each, num_flops=num_flops, rate_class="16bit", l2_bytes=1e3 * each, hbm_bytes=1e3 * each,
                    busy_fraction=1.0, smem_bytes=1e3 * each,
                )  # fmt: skip
                assert each / limiter.clock_mhz(busy, mode=clock, data="random") >= time_us * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("clock", ["single", "sustained"])
def test_no_launch_takes_less_time_at_its_own_clock_than_its_bound(seed: int, clock: Any) -> None:
    rnd = Random(3000 + seed)
    for _ in range(10):
        gpu = rnd.choice(GPUS)
        launch, mhz = drawn(rnd, gpu), some_mhz(rnd, gpu)
        bound = lower_bound(launch, gpu)
        least = LeastTime(
            limiter=PowerLimiter(gpu.clock), clock=clock, data="random", num_flops=bound.num_flops,
            rate_class=bound.rate_class, simulated_mhz=mhz,
        )  # fmt: skip
        try:
            result = simulate(launch, gpu, clock=clock, simulated_mhz=mhz)
        except SimulationError:
            continue
        assert least.us(bound.cycles(mhz)) <= result.time_us, (gpu.name, mhz, launch.params)
        assert result.time_us == pytest.approx(result.cycles / result.sm_clock_mhz) or launch.following


def test_steps_of_all_tiles_are_told_where_parts_of_k_differ() -> None:
    launch = GemmParams(m=128, n=128, k=640, tile=(64, 64, 64), split_k=3, schedule="warp_specialized").launch(H200)
    assert launch.work is not None
    assert (launch.work.num_steps, launch.work.all_steps) == (3, 4 * ceil_div(640, 64))
