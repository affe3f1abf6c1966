"""Bursts of tensor work: every kind in both halves, bursts divide the steps, a wait that was given up is no answer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from gpusim.evidence.cases.case import Config, load_case
from gpusim.evidence.toolchain.sass import KernelSass
from gpusim.evidence.validate.calibrate import parameter
from gpusim.machine.clock import PowerLimiter
from gpusim.machine.config import GpuSpec, load_gpu

CASE = load_case("power_bursts")
case = sys.modules[CASE.launch.__module__]
CONFIGS = CASE.configs("bursts", 1)
GPU = load_gpu("h200_sxm")
Sass = Callable[[str, str], dict[str, KernelSass]]


def test_as_many_configs_as_the_readme_says_and_each_half_has_every_kind() -> None:
    assert len(CONFIGS) == 81
    halves = [{(config["kernel"], config["data"]) for config in CONFIGS[half::2]} for half in (0, 1)]
    assert halves[0] == halves[1]


def test_bursts_divide_the_steps() -> None:
    for config in CONFIGS:
        whole = case.steps.WGMMA_STEPS if config["kernel"] == "wgmma_bf16" else case.steps.STEPS
        assert whole % int(config["grain"]) == 0


def test_warps_meet_at_an_mbarrier_alone(sass: Sass) -> None:
    kernels = sass("power_bursts", "sm_90a")
    assert set(kernels) == {config["kernel"] for config in CONFIGS}
    for name, kernel in kernels.items():
        assert len(kernel.select("SYNCS")) >= 2 and len(kernel.select("BAR")) == 1, name


def row_of(config: Config, gpu: GpuSpec) -> dict[str, str]:
    """500 TFLOP/s at full duty, at the clock that the machine gives."""
    row = {**config, "mhz": "1800"}
    for _ in range(20):
        row["tflops"] = str(500.0 * int(config["duty"]) / 100 * float(row["mhz"]) / 1800)
        row["mhz"] = str(PowerLimiter(gpu.clock).clock_mhz(case.work_of(row), mode="single", data=config["data"]))
    return row


def test_rows_of_a_machine_that_is_known_give_its_rests_back() -> None:
    gpu = replace(GPU, clock=replace(GPU.clock, tensor_rest_us=1.0, tensor_min_mhz=1700.0))
    found = {item.parameter: item.value for item in CASE.fit([row_of(config, gpu) for config in CONFIGS[::2]])}
    assert found["clock.tensor_rest_us"] == pytest.approx(1.0, abs=0.26)
    assert found["clock.tensor_min_mhz"] == pytest.approx(1700.0, abs=10.0)
    assert CASE.fit([]) == []


def test_the_search_takes_the_rest_as_the_h200_is_described() -> None:
    for name, value in case.OF_OTHERS.items():
        assert value == pytest.approx(parameter(GPU, f"clock.{name}"), rel=0.01), name
    assert case.TENSOR_PJ_PER_FLOP["tensor_pj_per_flop.16bit"] == GPU.clock.tensor_pj_per_flop["16bit"]
