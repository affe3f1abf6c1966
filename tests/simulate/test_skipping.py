"""What repeats is skipped, and the answer is that of simulating all: cycles to 0.5 %, counts to 0.1 %."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpusim import GemmParams, GpuSpec, Launch, Result, load_gpu, simulate

from .kernels import TOY, changed

H200 = load_gpu("h200_sxm")

TIMELESS = (
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "l1tex__m_xbar2l1tex_read_bytes.sum",
    "l1tex__m_l1tex2xbar_write_bytes.sum",
    "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "lts__t_sectors_srcunit_tex_op_write.sum",


    "sm__inst_executed_pipe_tensor_op_gmma.sum",
    "sm__inst_executed_pipe_tensor_op_hmma.sum",
    "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active.sum",
    "smsp__sass_inst_executed_op_tma_ld.sum",
    "smsp__sass_inst_executed_op_tma_st.sum",
    "launch__grid_size",
)
"""Counters that do not depend on when things happen."""


def both_ways(launch: Launch, gpu: GpuSpec, **fields: Any) -> tuple[Result, Result]:
    """(with skipping, without), at one clock."""
    fields.setdefault("clock", 1000.0 if gpu.name == "toy" else 1700.0)
    skipped, whole = (simulate(launch, gpu, skips=skips, **fields) for skips in (True, False))
    assert whole.num_skipped_cycles == 0
    return skipped, whole


def hold_together(launch: Launch, gpu: GpuSpec, **fields: Any) -> Result:
    """Both ways agree; returns that with skipping."""
    skipped, whole = both_ways(launch, gpu, **fields)
    assert skipped.cycles == pytest.approx(whole.cycles, rel=5e-3)
    for name in TIMELESS:
        assert skipped.counters.get(name) == pytest.approx(whole.counters.get(name), rel=1e-3), name
    return skipped


# ---------------------------------------------------------------------- iterations


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("load", [0.5, 0.8, 1.0, 1.25, 1.5])
def test_iterations_are_skipped_rightly_from_half_load_to_overload(load: float, stages: int) -> None:
    """A tile of 64x64x64 multiplies for 512 cycles a k-step; the slices serve its 16 KiB to four SMs."""
    gpu = changed(
        l2={"slice_bytes_per_cycle": 4 * 16384 / 512 / load},
        xbar={"sm_read_bytes_per_cycle": 64.0},
        hbm={
            "sustained_read_gb_per_s": 256.0,
            "sustained_write_gb_per_s": 256.0,
            "peak_gb_per_s": 256.0,
            "sm_gb_per_s": 256.0,
        },
    )
    params = GemmParams(
        m=128,
        n=128,
        k=64 * 120,
        tile=(64, 64, 64),
        stages=stages,
        schedule="warp_specialized",
        persistent=False,
    )
    skipped = hold_together(params.launch(gpu), gpu)
    assert skipped.num_skipped_cycles > 0.3 * skipped.cycles




@pytest.mark.parametrize("l2", ["cold", "warm"])
@pytest.mark.parametrize(
    ("load", "stages"),
    [(load, stages) for load in (0.5, 1.0, 1.5) for stages in (1, 2, 4)],
)
def test_iterations_are_skipped_rightly_where_memory_is_the_load(load: float, stages: int, l2: str) -> None:
    """Per k-step of 512 cycles the four CTAs fetch two slices of A and two of B, 8 KiB each."""
    rate = 4 * 8192 / 512 / load
    gpu = changed(
        l2={"slice_bytes_per_cycle": 512.0},
        xbar={"sm_read_bytes_per_cycle": 128.0},
        hbm={
            "sustained_read_gb_per_s": rate,
            "sustained_write_gb_per_s": rate,
            "peak_gb_per_s": rate,
            "sm_gb_per_s": rate,
        },
    )
    params = GemmParams(
        m=128,
        n=128,
        k=64 * (300 if load == 1.5 else 120),  # the pace swings by about a step: half a percent of a long loop
        tile=(64, 64, 64),
        stages=stages,
        schedule="warp_specialized",
        persistent=False,
    )
    hold_together(params.launch(gpu), gpu, l2=l2)


SCHEDULES: dict[str, dict[str, Any]] = {
    "cp.async, mma.sync": {
        "copy": "cp_async",
        "math": "mma_sync",
        "schedule": "multistage",
        "tile": (128, 128, 32),
    },
    "TMA, wgmma, one role": {"schedule": "multistage", "tile": (128, 128, 64)},
    "cooperative": {"schedule": "cooperative", "tile": (128, 256, 64)},
    "cooperative, cluster": {"schedule": "cooperative", "tile": (128, 256, 64), "cluster": (2, 1)},
    "pingpong": {"schedule": "pingpong", "tile": (64, 256, 64)},
}


@pytest.mark.parametrize(
    ("schedule", "stages"),
    [
        (schedule, stages)
        for schedule in SCHEDULES
        for stages in ((2, 3, 4) if schedule == "pingpong" else (1, 2, 4))
    ],
)
def test_an_h200_skips_iterations_rightly(schedule: str, stages: int) -> None:
    """One wave of 132 tiles or less, 64 k-steps of 64 (of 32 for cp.async)."""
    params = GemmParams(
        m=1408, n=1536, k=2048 if "cp.async" in schedule else 4096, stages=stages, **SCHEDULES[schedule]
    )
    hold_together(params.launch(H200), H200)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_toy_skips_iterations_rightly(schedule: str) -> None:
    params = GemmParams(m=512, n=512, k=8192, stages=3, **SCHEDULES[schedule])
    hold_together(params.launch(TOY), TOY)


# ---------------------------------------------------------------------- waves


def few_sms(gpu: GpuSpec, num_sms: int) -> GpuSpec:
    """``gpu`` with so many SMs; what they share shrinks with their number."""
    part = num_sms / gpu.num_sms
    return replace(
        gpu,
        device=replace(gpu.device, num_sms=num_sms, gpcs={str(num_sms): 1}, lone_sms=0, gpc_sides=(0,)),
        l2=replace(
            gpu.l2,
            slice_bytes_per_cycle=gpu.l2.slice_bytes_per_cycle * part,
            link_bytes_per_cycle=gpu.l2.link_bytes_per_cycle * part,
            capacity_bytes=int(gpu.l2.capacity_bytes * part),
        ),
        xbar=replace(gpu.xbar, write_bytes_per_cycle=gpu.xbar.write_bytes_per_cycle * part),
        hbm=replace(
            gpu.hbm,
            peak_gb_per_s=gpu.hbm.peak_gb_per_s * part,
            sustained_read_gb_per_s=gpu.hbm.sustained_read_gb_per_s * part,
            sustained_write_gb_per_s=gpu.hbm.sustained_write_gb_per_s * part,
        ),
    )


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("schedule", ["cp.async, mma.sync", "TMA, wgmma, one role", "cooperative"])
def test_eight_waves_of_ctas_are_skipped_rightly(schedule: str, stages: int) -> None:
    """8 SMs, tiles of 128 rows and 128 or 256 columns; 8 waves with one CTA an SM."""
    gpu = few_sms(TOY, 8)
    columns = SCHEDULES[schedule]["tile"][1]
    options = {
        **SCHEDULES[schedule],
        "stages": stages,
        "persistent": None if schedule != "cooperative" else False,
    }
    params = GemmParams(m=128 * 8, n=columns * 8, k=512, **options)
    skipped = hold_together(params.launch(gpu), gpu)
    assert skipped.num_ctas == 64


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("schedule", ["cooperative", "cooperative, cluster", "pingpong"])
def test_eight_turns_of_persistent_ctas_are_skipped_rightly(schedule: str, stages: int) -> None:
    gpu = few_sms(TOY, 8)
    tile_m, tile_n, _ = SCHEDULES[schedule]["tile"]
    params = GemmParams(
        m=tile_m * 8, n=tile_n * 8, k=512, persistent=True, stages=stages, **SCHEDULES[schedule]
    )
    skipped = hold_together(params.launch(gpu), gpu)
    assert skipped.num_ctas == 8


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_part_of_an_h200_skips_waves_rightly(schedule: str, stages: int) -> None:
    gpu = few_sms(H200, 12)
    tile_m, tile_n, _ = SCHEDULES[schedule]["tile"]
    params = GemmParams(m=tile_m * 8, n=tile_n * 12, k=1024, stages=stages, **SCHEDULES[schedule])
    hold_together(params.launch(gpu), gpu)


def test_a_last_wave_that_is_not_full_is_simulated() -> None:
    gpu = few_sms(TOY, 8)
    options = {**SCHEDULES["cooperative"], "stages": 2, "persistent": False}
    full = GemmParams(m=128 * 8, n=256 * 8, k=512, **options)
    more = GemmParams(m=128 * 8, n=256 * 8 + 256, k=512, **options)
    hold_together(more.launch(gpu), gpu)
    assert (
        simulate(more.launch(gpu), gpu, clock=1000.0).cycles
        > simulate(full.launch(gpu), gpu, clock=1000.0).cycles
    )


# ---------------------------------------------------------------------- what it is for


def test_events_hardly_grow_with_k() -> None:
    def events(k: int) -> int:
        return simulate(GemmParams(m=1408, n=1536, k=k).launch(H200), H200, clock=1700.0).num_events

    assert events(65536) < 1.5 * events(8192)


def test_skips_are_in_the_timeline_and_close_its_gaps() -> None:
    gpu = TOY
    launch = GemmParams(m=256, n=512, k=16384, stages=3, schedule="cooperative").launch(gpu)
    result = simulate(launch, gpu, clock=1000.0, recorded_sms=frozenset({0}))
    assert result.num_skipped_cycles > 0
    assert sum(skip.num_cycles for skip in result.timeline.skips) == pytest.approx(result.num_skipped_cycles)
    for of_role in result.timeline.roles:
        simulated = sum(end - start for _, start, end in of_role.states)
        life = of_role.states[-1][2] - of_role.states[0][1]
        inside = sum(
            skip.num_cycles
            for skip in result.timeline.skips
            if of_role.states[0][1] <= skip.at_cycle <= of_role.states[-1][2]
        )
        assert simulated + inside == pytest.approx(life, rel=1e-6)


def test_few_ctas_that_happen_to_agree_once_do_not_settle() -> None:
    """Two CTAs of a cluster whose pace changes from round to round, and that agree to the cycle in some of them."""
    params = GemmParams(m=100, n=100, k=8192, tile=(128, 128, 32), stages=4, copy="tma", cluster=(1, 2), swizzle="64B")
    gpu = load_gpu("h100_sxm")
    hold_together(params.launch(gpu), gpu, clock=gpu.clock.max_mhz)


def test_turns_of_edge_tiles_do_not_stand_for_whole_ones() -> None:
    """The last column of tiles is narrow: its turns store less, however long they are."""
    params = GemmParams(m=1024, n=777, k=2048, tile=(64, 8, 64), dtype="fp8", schedule="pingpong", copy="cp_async")
    hold_together(params.launch(H200), H200, clock=H200.clock.max_mhz)


@pytest.mark.parametrize(
    "options",
    [
        {"m": 4096, "n": 128, "k": 64, "tile": (64, 64, 64)},
        {"m": 16384, "n": 8, "k": 256, "tile": (64, 64, 64)},  # CTAs that share next to nothing
        {"m": 4096, "n": 8, "k": 32, "tile": (64, 64, 64), "schedule": "cooperative", "cluster": (2, 1)},
    ],
)
def test_waves_left_out_keep_their_sms_active(options: dict[str, Any]) -> None:
    """SMs that are empty when waves are left out would have held CTAs of those."""
    gpu = load_gpu("toy")
    skipped, whole = both_ways(GemmParams(**options).launch(gpu), gpu)
    assert any("waves" in item.what for item in skipped.timeline.skips)
    name = "sm__cycles_active.avg"
    assert skipped.counters[name] == pytest.approx(whole.counters[name], rel=5e-3)


@pytest.mark.parametrize("fragments", ["single", "double"])
@pytest.mark.parametrize("stages", [3, 4])
def test_teams_that_load_ahead_of_their_own_math_lose_no_copy(fragments: str, stages: int) -> None:
    """Two roles, each of which copies and multiplies: the iteration that stands for others is one that still copies."""
    gpu = load_gpu("h200_sxm")
    params = GemmParams(
        m=128, n=512, k=16384, tile=(128, 128, 64), stages=stages, schedule="multistage", copy="cp_async", math="mma_sync",
        warps=(2, 4), fragments=fragments, refill="before_math",
    )  # fmt: skip
    launch = params.launch(gpu)
    assert len(launch.roles) == 2
    skipped, whole = both_ways(launch, gpu, clock=1700.0)
    assert skipped.timeline.skips
    for counter in ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "sm__inst_executed_pipe_tensor.sum"):
        assert skipped.counters[counter] == pytest.approx(whole.counters[counter]), counter


def test_the_few_sms_that_have_more_of_a_last_wave_end_the_kernel() -> None:
    """400 tiles on 132 SMs, two at a time: some SM has four, and takes four times what FFMA take of one at least."""
    tile, k, bank_reads = 128, 640, 1.18
    params = GemmParams(
        m=2560, n=2560, k=k, tile=(tile, tile, 8), warps=(2, 2), stages=2, layout="nt", dtype="fp32", copy="cp_async",
        math="fma", schedule="multistage", refill="before_math", epilogue="direct", registers=199, fma_bank_reads=bank_reads,
        step_code=40, step_instructions=69, tile_code=185, store_code=67, raster="along_n", raster_group=16,
    )  # fmt: skip
    gpu = load_gpu("h100_sxm")
    found = simulate(params.launch(gpu), gpu, clock=1755.0)
    assert found.num_skipped_cycles > 0
    assert found.cycles > 4 * tile * tile * k * bank_reads / gpu.warp_scheduler.fp32_lanes
