"""Launches behind launches: streams, CTAs that leave early, and what the launch before has left dirty."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gpusim.evidence.cases.case import KernelLaunch, WrongAnswer, load_case
from gpusim.machine.config import load_gpu

CASE = load_case("launch_behind")
case = sys.modules[CASE.launch.__module__]
CONFIGS = CASE.configs("behind", 1)
GPU = load_gpu("h200_sxm")


def test_as_many_configs_as_the_readme_says() -> None:
    assert len(CONFIGS) == 18 and not CASE.groups["behind"].is_cold


def test_grids_are_as_many_ctas_as_an_array_has_shares() -> None:
    launch = CASE.launch(CONFIGS[0], False)
    assert isinstance(launch, KernelLaunch)
    assert (launch.kernel, launch.grid) == ("stream_r1_w0_u4", (8 * 2**20 // (256 * 4 * 16), 1, 1))


def test_a_cta_that_leaves_early_is_refused() -> None:
    config = next(config for config in CONFIGS if config["kernel"] == "spin" and config["num_ctas"] == "132")
    seen = np.full(132, 10_001, dtype=np.uint32)
    assert CASE.check(config, {"seen": seen}) == {}
    seen[7] = 9_000
    with pytest.raises(WrongAnswer, match="9000"):
        CASE.check(config, {"seen": seen})
    assert CASE.answers(config, {}, GPU, {"sustained_us"}) == {}


def test_a_stream_behind_another_writes_all_that_it_stores() -> None:
    """64 MiB stored, of which 21 MiB stay dirty: a launch after a flush writes the rest, one behind another all."""
    config = next(config for config in CONFIGS if config["writes"] == "1" and config["array_bytes"] == str(64 * 2**20))
    row = {case.CYCLES: "30000", "sm__cycles_elapsed.avg.per_second": "1.9e9"}
    found = CASE.answers(config, row, GPU, {case.WRITTEN})
    assert found[case.WRITTEN].value == pytest.approx(64 * 2**20)
