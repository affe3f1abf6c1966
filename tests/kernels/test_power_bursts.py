"""Bursts of tensor work: every kind in both halves, bursts divide the steps, a wait that was given up is no answer."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from gpusim.evidence.case import WrongAnswer, load_case
from gpusim.evidence.sass import KernelSass

CASE = load_case("power_bursts")
case = sys.modules[CASE.launch.__module__]
CONFIGS = CASE.configs("bursts", 1)
Sass = Callable[[str, str], dict[str, KernelSass]]


def test_as_many_configs_as_the_readme_says_and_each_half_has_every_kind() -> None:
    assert len(CONFIGS) == 81
    halves = [{(config["kernel"], config["data"]) for config in CONFIGS[half::2]} for half in (0, 1)]
    assert halves[0] == halves[1]


def test_bursts_divide_the_steps() -> None:
    for config in CONFIGS:
        whole = case.steps.WGMMA_STEPS if config["kernel"] == "wgmma_bf16" else case.steps.STEPS
        assert whole % int(config["grain"]) == 0


def test_a_wait_that_was_given_up_is_refused() -> None:
    config = next(config for config in CONFIGS if config["kernel"] == "feed_bf16")
    samples = np.zeros((132, case.loads.num_samples(config), 2), dtype=np.uint64)
    samples[:, :, 0] = 1000 + np.arange(samples.shape[1]) * 5000
    samples[:, :, 1] = samples[:, :, 0] * np.uint64(3) // np.uint64(2)
    done = np.zeros((132, 18), dtype=np.uint64)
    done[:, :16] = 5
    outputs = {"samples": samples, "done": done, "d": case.steps.product("feed_bf16", "random").astype(np.float32)}
    assert CASE.check(config, outputs)["mhz"] == pytest.approx(1500.0)
    done[9, 16] = 1
    with pytest.raises(WrongAnswer, match="too long"):
        CASE.check(config, outputs)


def test_warps_meet_at_an_mbarrier_alone(sass: Sass) -> None:
    kernels = sass("power_bursts", "sm_90a")
    assert set(kernels) == {config["kernel"] for config in CONFIGS}
    for name, kernel in kernels.items():
        assert len(kernel.select("SYNCS")) >= 2 and len(kernel.select("BAR")) == 1, name
