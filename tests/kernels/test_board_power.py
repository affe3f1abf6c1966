"""Watts beside megahertz: every kind of work by itself, the same kernel as power_clock's, and an answer of the simulator."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from gpusim.evidence.cases.case import Config, load_case
from gpusim.evidence.validate.calibrate import parameter
from gpusim.machine.clock import PowerLimiter
from gpusim.machine.config import GpuSpec, load_gpu

CASE = load_case("board_power")
GPU = load_gpu("h200_sxm")
assert CASE.predict_row is not None
case = sys.modules[CASE.predict_row.__module__]
CONFIGS = CASE.configs("mixes", 1)


def test_each_kind_of_work_is_there_alone_and_by_duty_and_so_is_none() -> None:
    alone = {(c["stream"], c["tensor_duty"] != "0") for c in CONFIGS if c["stream"] == "none" or c["tensor_duty"] == "0"}
    assert alone == {("none", False), ("none", True), ("hbm", False), ("l2", False)}
    for stream in ("hbm", "l2"):
        duties = {c["stream_duty"] for c in CONFIGS if c["stream"] == stream and c["tensor_duty"] == "0"}
        assert duties == {"25", "50", "75", "100"}


def test_power_is_taken_by_the_stopwatch_and_judged() -> None:
    assert set(CASE.tiers) <= CASE.names and "sustained_power_w" in CASE.tiers
    assert CASE.groups["mixes"].times == ("sustained",) and not CASE.groups["mixes"].metrics


def test_the_kernel_is_power_clocks() -> None:
    assert 'extern "C" __global__' in CASE.includes()["work.inc"]
    launch = CASE.launch(CONFIGS[0], False)
    assert (launch.kernel, launch.grid) == ("work", (132, 1, 1))


def test_power_is_what_the_energies_say_of_the_work_that_was_done() -> None:
    """4 TB/s out of memory for 1 ms at the highest clock, where voltage is what energies are given at."""
    gpu = load_gpu("h200_sxm")
    clock = gpu.clock
    row = {
        "stream": "hbm", "tensor_duty": "0", "gb_per_s": "4000", "mhz": "1980", "sustained_clock_mhz": "1980",
        "sustained_power_w": "600",
    }  # fmt: skip
    config = CONFIGS[4]
    assert (config["stream"], config["stream_duty"], config["tensor_duty"], config["data"]) == ("hbm", "100", "0", "random")
    (answer,) = CASE.answers(config, row, gpu, {"sustained_power_w"}).values()
    moved = 4.0 * (clock.l2_pj_per_byte + clock.hbm_pj_per_byte)
    assert answer.value == pytest.approx(clock.idle_power_w + clock.sm_busy_w + moved)
    idle = CASE.answers({**config, "stream": "none"}, {**row, "stream": "none", "gb_per_s": ""}, gpu, {"sustained_power_w"})
    assert idle["sustained_power_w"].value == clock.idle_power_w
    assert CASE.answers(config, {**row, "sustained_power_w": ""}, gpu, {"sustained_power_w"}) == {}


def test_arithmetic_follows_the_clock() -> None:
    gpu = load_gpu("h200_sxm")
    config = next(config for config in CONFIGS if config["tensor_duty"] == "100")
    row = {"stream": "none", "tensor_duty": "100", "tflops": "800", "mhz": "1600", "sustained_power_w": "700"}
    power = [
        CASE.answers(config, {**row, "sustained_clock_mhz": mhz}, gpu, {"sustained_power_w"})["sustained_power_w"].value
        for mhz in ("1600", "1200")
    ]
    assert power[1] < power[0] * 0.8


OTHER = replace(GPU, clock=replace(
    GPU.clock, voltage_slope=0.6, idle_power_w=100.0, sm_busy_w=60.0, l2_pj_per_byte=50.0, l2_zeros_fraction=0.8,
    hbm_pj_per_byte=50.0, hbm_zeros_fraction=0.4, tensor_zeros_fraction=0.4,
))  # fmt: skip


def row_of(config: Config, gpu: GpuSpec) -> dict[str, str]:
    """1000 TFLOP/s, 10 and 4 TB/s at full duty; the clock falls by a tenth with all tensor cores busy."""
    tensor, stream = int(config["tensor_duty"]) / 100, int(config["stream_duty"]) / 100
    row = {**config, "mhz": str(gpu.clock.max_mhz * (1.0 - 0.1 * tensor))}
    row |= {"tflops": str(1e3 * tensor)} if tensor else {}
    row |= {"gb_per_s": str(stream * (4e3 if config["stream"] == "hbm" else 1e4))} if stream else {}
    row["sustained_clock_mhz"] = row["mhz"]
    power_w = PowerLimiter(gpu.clock).power_w(case.work_of(row), mhz=float(row["mhz"]), data=config["data"])
    return {**row, "sustained_power_w": str(power_w)}


@pytest.mark.parametrize("gpu", [GPU, OTHER], ids=["h200", "other"])
def test_rows_of_a_board_that_is_known_give_its_energies_back(gpu: GpuSpec) -> None:
    """What ran where a limit binds may draw anything."""
    rows = [row_of(config, gpu) for config in CONFIGS[::2]]
    limited = {**rows[-1], "sustained_clock_mhz": str(0.8 * float(rows[-1]["mhz"]))}
    fitted = {item.parameter: item.value for item in CASE.fit([*rows, limited])}
    assert fitted.keys() == {f"clock.{name}" for name in case.BEGIN if name not in case.OF_OTHERS}
    for name, value in fitted.items():
        assert value == pytest.approx(parameter(gpu, name), rel=0.01), name


def test_rows_without_power_fit_nothing() -> None:
    assert CASE.fit([]) == []
    assert CASE.fit([{**row_of(config, GPU), "sustained_power_w": ""} for config in CONFIGS]) == []
