"""Stores of several warps and a fence: what is launched, what is checked, what the clock looks are put between."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import load_case
from gpusim.evidence.toolchain.sass import KernelSass
from gpusim.workload.smem.access import wavefronts

CASE = load_case("store_fence")
GPU = load_gpu("h200_sxm")
case = sys.modules[CASE.launch.__module__]
CONFIGS = CASE.configs("stores", 1)
Sass = Callable[[str, str], dict[str, KernelSass]]
OPCODES = {"b32": "STS", "b64": "STS", "b128": "STS", "stmatrix": "STSM"}


def outputs_of(op: str, num_warps: int) -> dict[str, np.ndarray]:
    dump = np.zeros((case.MOST_WARPS, case.REGION_BYTES // 4), dtype=np.uint32)
    dump[:num_warps] = case.wanted_region(op)
    times = np.zeros((case.MOST_WARPS, case.NUM_LOOKS), dtype=np.int64)
    for warp in range(num_warps):
        times[warp] = 1000 + 2 * warp + np.array([0, 10, 40 + warp, 100])
    return {"dump": dump.reshape(-1), "times": times}


def test_the_wavefronts_that_are_said_are_those_of_the_addresses() -> None:
    for op, (_, num, _) in case.OPS.items():
        rule = "stmatrix_x4" if op == "stmatrix" else f"st_shared_{op}"
        assert int(wavefronts(rule, case.offsets(op)[None, :])[0]) == num


def test_between_the_looks_are_the_stores_and_nothing_else(sass: Sass) -> None:
    kernels = sass("store_fence", "sm_90a")
    for config in CONFIGS:
        instructions = kernels[config["kernel"]].instructions
        names = [item.name for item in instructions]
        clocks = [idx for idx, name in enumerate(names) if name == "CS2R"][-4:]
        op, count = OPCODES[config["op"]], int(config["count"])
        assert names[clocks[0] + 1 : clocks[1]] == count * [op]
        assert {item.stall_cycles for item in instructions[clocks[0] + 1 : clocks[1] - 1]} == {case.STORE_CYCLES}
        fence = ["MEMBAR", "FENCE"] if config["end"] == "fence" else []
        assert [name for name in names[clocks[1] + 1 : clocks[2]] if name != "NOP"] == fence
        assert names[clocks[2] + 1] == "BAR"


def test_rows_of_a_machine_that_is_known_give_its_numbers_back() -> None:
    """Rows written down by the rule: wavefronts, a way, a fence, conflicts ahead of it, and what a barrier waits for."""
    latency, replay, view, each = 12.0, 40.0, 15.0, 3.5
    rows = []
    for config in CONFIGS:
        served, warps = case.served_cycles(config), int(config["warps"])
        fenced = served + latency + case.FENCE_CYCLES
        met = fenced + view + each * (warps - 1) + case.BARRIER_CYCLES[0] + case.BARRIER_CYCLES[1] * warps
        ahead = replay if config["op"] == "b64" else 0.0
        rows.append({**config, "fenced_last_cycles": str(fenced - ahead), "met_cycles": str(met)})
    for half in (rows[::2], rows[1::2]):
        assert {item.parameter: item.value for item in CASE.fit(half)} == {
            "smem.store_latency_cycles": pytest.approx(latency), "smem.overtakable_wavefronts": pytest.approx(replay),
            "warp_scheduler.proxy_fence_visible_cycles": pytest.approx(view),
            "warp_scheduler.fence_warp_cycles": pytest.approx(each),
        }  # fmt: skip


def test_what_other_kernels_gave_is_what_the_gpu_has() -> None:
    spec = GPU.warp_scheduler
    assert spec.fence_cycles == case.FENCE_CYCLES
    assert (spec.barrier_base_cycles, spec.barrier_warp_cycles) == case.BARRIER_CYCLES


def test_the_simulator_says_when_all_have_met() -> None:
    for config in CONFIGS[::7]:
        found = CASE.predict(config, GPU)
        assert 0.0 < found["issued_last_cycles"] < found["met_cycles"]
    assert CASE.predict(CONFIGS[0], load_gpu("a100_sxm_80gb")) == {}
