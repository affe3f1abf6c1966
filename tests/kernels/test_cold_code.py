"""Straight-line code of the sizes that are asked, run cold and warm."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim import GpuSpec, load_gpu
from gpusim.evidence.cases.case import Config, load_case
from gpusim.evidence.toolchain.sass import KernelSass
from gpusim.evidence.validate.calibrate import parameter

CASE = load_case("cold_code")
GPU = load_gpu("h200_sxm")
case = sys.modules[CASE.launch.__module__]
CONFIGS = CASE.configs("sizes", 1)
Sass = Callable[[str, str], dict[str, KernelSass]]


def answers(config: Config) -> dict[str, NDArray[np.generic]]:
    """The first run twice as long as the others."""
    times = np.full((case.NUM_SMS, case.NUM_ROUNDS), -1, dtype="<i8")
    times[: int(config["sms"])] = [2000, 1100, 1000, 1000]
    return {
        "times": times, "sums": np.full((case.NUM_SMS, case.NUM_ROUNDS), 28 + case.num_instructions(config), dtype="<f4"),
    }  # fmt: skip


def test_every_size_is_asked_in_every_state_on_one_sm_and_on_all() -> None:
    assert len(CONFIGS) == 288 and CASE.configs("sizes", 2) == CONFIGS
    seen = {(int(config["kib"]), config["state"], config["sms"]) for config in CONFIGS}
    assert seen == {(kib, state, sms) for kib in case.SIZES_KIB for state in case.STATES for sms in ("1", "132")}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_each_size_is_so_many_instructions_between_two_readings_and_nothing_else(sass: Sass, arch: str) -> None:
    lengths, num, others = [], 0, 0
    is_inside = False
    for item in sass("cold_code", arch)["straight"].instructions:
        if "SR_CLOCK" in item.operands:
            assert item.opcode == "CS2R"
            if is_inside:
                lengths.append(num)
                assert others == 0
            is_inside, num, others = not is_inside, 0, 0
        elif item.name == "FFMA":
            num += 1
        else:
            others += 1
    assert sorted(lengths) == [kib * 1024 // case.INSTRUCTION_BYTES for kib in case.SIZES_KIB]


def test_the_others_push_every_size_out_of_128_kib() -> None:
    assert all(sum(case.SIZES_KIB) - kib > 2 * 128 for kib in case.SIZES_KIB)


def test_only_a_flush_reads_the_large_buffer() -> None:
    for config in CONFIGS[::7]:
        launch = CASE.launch(config, False)
        assert (launch.arguments[1].array.nbytes > 60 * 2**20) == (config["state"] == "flushed")  # type: ignore[union-attr]  # an Input


def test_what_is_cold_is_told_for_each_kib() -> None:
    row = {**CONFIGS[0], "kib": "8", "first_cycles": "1312", "warm_cycles": "512"}
    assert CASE.derive(row) == {"cold_cycles_per_kib": 100.0}


@pytest.mark.parametrize("warps", [1, 4, 16])
def test_warm_code_runs_at_the_rate_of_the_fma_pipe_whoever_else_has_a_warp(warps: int) -> None:
    """Thread 0's scheduler serves its warp first."""
    config = find(kib=16, warps=warps, state="launched")
    lanes = GPU.warp_scheduler.fp32_lanes / GPU.warp_scheduler.num_schedulers
    assert CASE.predict(config, GPU) == {"warm_cycles": pytest.approx(1024 * 32 / lanes)}
    narrow = replace(GPU, warp_scheduler=replace(GPU.warp_scheduler, fp32_lanes=64))
    assert CASE.predict(config, narrow) == {"warm_cycles": pytest.approx(2048)}


def find(**fields: object) -> Config:
    return next(config for config in CONFIGS if all(config[name] == str(value) for name, value in fields.items()))


def test_the_first_run_takes_the_latency_of_where_the_code_lies() -> None:
    """Nothing of L2 was fitted to memory's rows: the same bytes on the way meet both."""
    spec = GPU.instruction_cache
    evicted, flushed = (CASE.predict(find(kib=16, state=state), GPU)["first_cycles"] for state in ("evicted", "flushed"))
    assert evicted == pytest.approx(16384 / spec.prefetched_bytes * GPU.l2.near_latency_cycles)
    assert flushed == pytest.approx(16384 / spec.prefetched_bytes * GPU.hbm.latency_ns * GPU.clock.max_mhz / 1e3)


# ---------------------------------------------------------------------------------------------- parameters

OTHER = replace(GPU, instruction_cache=replace(
    GPU.instruction_cache, l0_bytes=20000.0, l1_bytes=100000.0, l1_latency_cycles=90.0, prefetched_bytes=512.0,
))  # fmt: skip


@pytest.mark.parametrize("gpu", [GPU, OTHER], ids=["h200", "other"])
def test_rows_of_a_machine_that_is_known_give_its_numbers_back(gpu: GpuSpec) -> None:
    rows = [
        {**config, "group": "sizes", **{name: str(number) for name, number in CASE.predict(config, gpu).items()}}
        for config in CONFIGS[::2]
    ]  # fmt: skip
    rows[5]["warm_cycles"] = "1e9"
    fitted = {item.parameter: item.value for item in CASE.fit(rows)}
    assert fitted.keys() == {
        f"instruction_cache.{name}" for name in ("l0_bytes", "l1_bytes", "l1_latency_cycles", "prefetched_bytes")
    }
    for name, value in fitted.items():
        assert value == pytest.approx(parameter(gpu, name), rel=1e-6), name
    assert CASE.fit([]) == []
