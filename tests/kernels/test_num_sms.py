"""Kernels whose grids follow the SMs: on an A100 all CTAs that wait for one another fit, on 132 SMs nothing has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusim import load_gpu
from gpusim.errors import ConfigError
from gpusim.evidence.cases.case import KernelLaunch, key_of, load_case
from gpusim.evidence.cases.measured_gpu import MeasuredGpu, measured_gpu
from gpusim.evidence.cases.rows import Table
from gpusim.machine.sm.occupancy import occupancy

GPU = load_gpu("a100_sxm_80gb")
A100 = MeasuredGpu.of(GPU)
MEASURED = Path(__file__).resolve().parents[2] / "validation/measured/h200_sxm"
WAIT = {
    "cache_hints", "cold_code", "l2_residency", "line_sharing", "memory_bursts", "memory_channels", "part_sums",
    "pointer_chase", "reads_beside_writes", "side_bursts", "tile_arrival", "tile_pitch",
}  # fmt: skip
"""Kernels whose CTAs wait for all of the grid."""
NO_WAIT = ("copy", "fill", "touch")
"""Entry points of theirs that do not: cache_hints."""
RUN = sorted(WAIT | {
    "clock_probe", "cold_launch", "conflicting_copies", "copy_grains", "counted_code", "cta_turnover", "fma_loops",
    "fragment_stores", "grid_counter", "half_stores", "kernel_end", "launch_behind", "launch_order", "load_loops",
    "load_turns", "loop_code", "occupancy", "promoted_lookups", "row_rereads", "scattered_reads", "store_end",
})  # fmt: skip
"""Kernels that an A100 runs."""
NO_A100 = (
    "loads_beside_stores", "map_sources", "memory_bandwidth", "own_copies", "pipe_beside_wgmma", "power_clock", "power_mma",
    "ring_math", "specialized_steps", "tensor_map_grid", "tma_edges",
)  # fmt: skip
"""Kernels of Hopper whose grids follow the SMs, too."""
PENDING = {"counted_code", "fma_loops", "pipe_beside_wgmma", "tma_edges"}
"""Kernels with configs that nobody has measured yet."""


@pytest.mark.parametrize("name", RUN)
def test_on_an_a100_every_cta_that_is_waited_for_finds_room(name: str) -> None:
    case = load_case(name, gpu=A100)
    for group, rules in case.groups.items():
        assert not rules.lacks(A100) or (name, group) in {
            ("half_stores", "reductions"), ("line_sharing", "multicast"), ("tile_pitch", "shared"),
        }  # fmt: skip
        configs = [] if rules.lacks(A100) else case.configs(group, 1)
        for config in configs[:1] + configs[-1:]:
            launch = case.launch(config, False)
            assert isinstance(launch, KernelLaunch)
            num_threads = launch.block[0] * launch.block[1] * launch.block[2]
            fit = occupancy(
                GPU, kernel=name, num_threads=num_threads, registers_per_thread=32, smem_bytes=launch.smem_bytes
            )  # fmt: skip
            waits = name in WAIT and config["kernel"] not in NO_WAIT
            assert not waits or launch.grid[0] <= fit.ctas_per_sm * GPU.num_sms


@pytest.mark.parametrize("name", RUN)
def test_on_an_a100_every_sm_that_is_named_is_there(name: str) -> None:
    case = load_case(name, gpu=A100)
    for group, rules in case.groups.items():
        for config in case.configs(group, 1) if not rules.lacks(A100) else ():
            named = f"{config.get('sm', '')} {config.get('sms', '')}".split()
            assert all(int(sm) < GPU.num_sms or name in ("cold_code", "counted_code") for sm in named if sm.isdigit())


@pytest.mark.parametrize("name", [*RUN, *NO_A100])
def test_on_132_sms_the_plan_is_what_was_measured(name: str) -> None:
    case = load_case(name)
    measured = Table.read(MEASURED / f"{name}.csv").keys(case.columns, 1, has_aside=True)
    planned = {(group, key_of(config)) for group in case.groups for config in case.configs(group, 1)}
    assert measured <= planned if name in PENDING else measured == planned


def test_the_grid_of_one_cta_an_sm_has_as_many_ctas_as_the_gpu_has_sms() -> None:
    for num_sms in (108, 114, 132):
        case = load_case("memory_channels", gpu=MeasuredGpu(num_sms=num_sms))
        assert case.launch(case.configs("rows", 1)[0], False).grid == (num_sms, 1, 1)


def test_cases_of_two_gpus_share_nothing() -> None:
    assert load_case("cold_code") is load_case("cold_code", gpu=MeasuredGpu()) is not load_case("cold_code", gpu=A100)
    configs = load_case("counted_code", gpu=A100).configs("flushed", 1)  # loads cold_code, for the same GPU
    assert {config["sms"] for config in configs} == {"1", "108"}


def test_a_function_of_a_case_cannot_ask_for_the_gpu() -> None:
    with pytest.raises(ConfigError, match="wants a constant of case"):
        measured_gpu()
