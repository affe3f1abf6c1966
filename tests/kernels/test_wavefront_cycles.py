"""Wide loads whose cycles are measured: drawn alike every time, checked, and many on which two counters differ."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gpusim.evidence.cases.case import WrongAnswer, load_case
from gpusim.machine.config import load_gpu

CASE = load_case("wavefront_cycles")
TOY = load_gpu("toy")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]


def outputs_of(config: dict[str, str], cycles: int) -> dict[str, np.ndarray]:
    """What the kernel leaves: eight times the lane's words, folded, and two looks at the clock."""
    addresses, active = case.lanes_of(typed(config))
    folds = np.full(case.NUM_LANES, 0xA5A5A5A5, dtype=np.uint32)
    times = np.zeros((case.NUM_LANES, 2), dtype=np.int64)
    for thread in range(case.NUM_LANES):
        lane = thread % 32
        if active[lane]:
            word = 0
            for place in range(addresses[lane] // 4, (addresses[lane] + case.BYTES[config["kernel"]]) // 4):
                word ^= (int(place) * 0x9E3779B1 + 0x7F4A7C15) % 2**32
            folds[thread] = 8 * word % 2**32
            times[thread] = 1000 + thread % 3, 1000 + cycles - (thread // 32 != 2)
    return {"folds": folds, "times": times}


def test_loads_are_aligned_and_inside_the_buffer() -> None:
    for config in CONFIGS:
        addresses, active = case.lanes_of(typed(config))
        size = case.BYTES[config["kernel"]]
        assert active.any() and (addresses % size == 0).all() and addresses.min() >= 0
        assert addresses.max() + size <= case.SMEM_BYTES


def test_the_counters_differ_on_a_hundred_of_them_and_agree_on_most() -> None:
    derived = [CASE.derive(config) for config in CONFIGS]
    differing = sum(one["num_wavefronts"] != one["num_data_wavefronts"] for one in derived)
    assert 100 <= differing < len(CONFIGS) // 2
    assert CASE.predict(CONFIGS[0], TOY)["cycles_per_access"] == derived[0]["num_data_wavefronts"]


def test_cycles_are_from_the_first_warps_begin_to_the_last_ones_end() -> None:
    for config in CONFIGS[::37]:
        active = case.lanes_of(typed(config))[1]
        outputs = outputs_of(config, 9000)
        begins = [1000 + thread % 3 for thread in range(case.NUM_LANES) if active[thread % 32]]
        found = CASE.check(config, outputs)
        assert found["cycles_per_access"] == (10000 - min(begins)) / (256 * 8 * 4)
        of_warp_2 = [1000 + thread % 3 for thread in range(64, 96) if active[thread % 32]]
        assert found["warp_2_cycles_per_access"] == (10000 - min(of_warp_2)) / (256 * 8)
        outputs["folds"][int(np.flatnonzero(active)[0]) + 32] ^= 1
        with pytest.raises(WrongAnswer, match="of warp 1 loaded other words"):
            CASE.check(config, outputs)


def test_a_clock_that_does_not_run_is_refused() -> None:
    with pytest.raises(WrongAnswer, match="the clock says"):
        CASE.check(CONFIGS[0], outputs_of(CONFIGS[0], -5))
