"""Watts beside megahertz: every kind of work by itself, the same kernel as power_clock's, and an answer of the simulator."""

from __future__ import annotations

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


def test_more_work_draws_more_and_idle_sms_are_not_predicted() -> None:
    gpu = load_gpu("h200_sxm")
    power = {c["stream_duty"]: CASE.predict(c, gpu)["sustained_power_w"] for c in CONFIGS[1:5]}
    assert gpu.clock.idle_power_w < power["25"] < power["50"] < power["100"] <= gpu.clock.power_limit_w * 1.005
    assert CASE.predict(CONFIGS[0], gpu) == {}
