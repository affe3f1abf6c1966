"""Watts beside megahertz: every kind of work by itself, the same kernel as power_clock's, and an answer of the simulator."""

from __future__ import annotations

import pytest

from gpusim.evidence.case import load_case
from gpusim.machine.config import load_gpu

CASE = load_case("board_power")
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
    row = {"stream": "hbm", "gb_per_s": "4000", "mhz": "1980", "sustained_clock_mhz": "1980", "sustained_power_w": "600"}
    config = CONFIGS[4]
    assert (config["stream"], config["stream_duty"], config["tensor_duty"], config["data"]) == ("hbm", "100", "0", "random")
    (answer,) = CASE.answers(config, row, gpu, {"sustained_power_w"}).values()
    moved = 4.0 * (clock.l2_pj_per_byte + clock.hbm_pj_per_byte)
    assert answer.value == pytest.approx(clock.idle_power_w + clock.sm_busy_w + moved)
    idle = CASE.answers({**config, "stream": "none"}, {**row, "stream": "none"}, gpu, {"sustained_power_w"})
    assert idle["sustained_power_w"].value == clock.idle_power_w
    assert CASE.answers(config, {**row, "sustained_power_w": ""}, gpu, {"sustained_power_w"}) == {}


def test_arithmetic_follows_the_clock() -> None:
    gpu = load_gpu("h200_sxm")
    config = next(config for config in CONFIGS if config["tensor_duty"] == "100")
    row = {"stream": "none", "tflops": "800", "mhz": "1600", "sustained_power_w": "700"}
    power = [
        CASE.answers(config, {**row, "sustained_clock_mhz": mhz}, gpu, {"sustained_power_w"})["sustained_power_w"].value
        for mhz in ("1600", "1200")
    ]
    assert power[1] < power[0] * 0.8
