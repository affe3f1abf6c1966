"""The default clock: a launch is run whole once, at a clock that its first waves have told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpusim import GemmParams, load_gpu, simulate
from gpusim.analysis.explain import explain_launch
from gpusim.machine.config import GpuSpec
from gpusim.workload.compiled_code import NO_CODE

H200 = load_gpu("h200_sxm")
SLOW_MEMORY = replace(
    H200, hbm=replace(H200.hbm, sustained_read_gb_per_s=1500.0), clock=replace(H200.clock, power_limit_w=400.0)
)
BY_CP_ASYNC = GemmParams(
    m=4096, n=4096, k=256, tile="64x64x32", stages=3, schedule="multistage", copy="cp_async", math="mma_sync",
    compiled_code=NO_CODE,
)
BY_TMA = GemmParams(m=4096, n=4096, k=4096, tile="128x128x64", stages=4, compiled_code=NO_CODE)


@pytest.mark.parametrize(("params", "gpu"), [(BY_CP_ASYNC, H200), (BY_TMA, SLOW_MEMORY)], ids=["by L2", "by memory"])
def test_a_long_launch_is_run_whole_once_at_the_clock_that_it_leaves(params: GemmParams, gpu: GpuSpec) -> None:
    launch = params.launch(gpu)
    result = simulate(launch, gpu, clock="sustained")
    there = simulate(launch, gpu, clock=result.sm_clock_mhz)
    assert result.num_events < 1.4 * there.num_events
    assert result.time_us == pytest.approx(there.time_us, rel=5e-3)
    assert result.counters["sm__cycles_elapsed.max"] == result.cycles == pytest.approx(result.time_us * result.sm_clock_mhz)
    limit = gpu.clock.power_limit_w
    assert result.power_w <= 1.003 * limit or result.sm_clock_mhz == gpu.clock.min_mhz
    recorded = simulate(launch, gpu, clock="sustained", recorded_sms={0})
    assert (recorded.cycles, recorded.sm_clock_mhz) == (result.cycles, result.sm_clock_mhz)
    assert recorded.timeline.roles and max(role.states[-1][2] for role in recorded.timeline.roles) <= recorded.cycles


def test_what_a_launch_has_not_saves_nothing_where_its_cycles_are_moved_to_the_clock() -> None:
    result = simulate(BY_TMA.launch(SLOW_MEMORY), SLOW_MEMORY, clock="sustained")
    there = simulate(BY_TMA.launch(SLOW_MEMORY), SLOW_MEMORY, clock=result.simulated_mhz)
    assert result.cycles != there.cycles
    found = explain_launch(BY_TMA.launch(SLOW_MEMORY), SLOW_MEMORY, clock="sustained")
    assert {item.name: item.saved_cycles for item in found.counterfactuals}["bank_conflicts"] == 0.0


def test_nor_where_a_second_kernel_follows_at_a_clock_of_its_own() -> None:
    params = GemmParams(m=256, n=256, k=4096, tile="128x128x64", stages=4, split_k=4, split_k_mode="second_kernel")

    assert params.launch(SLOW_MEMORY).following
    found = explain_launch(params.launch(SLOW_MEMORY), SLOW_MEMORY, clock="sustained")
    assert {item.name: item.saved_cycles for item in found.counterfactuals}["bank_conflicts"] == 0.0
