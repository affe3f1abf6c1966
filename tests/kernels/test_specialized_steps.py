"""Loops with a producer on their own SMs: what is launched, what is refused, what the twin answers."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gpusim.evidence.cases.case import WrongAnswer, load_case
from gpusim.machine.config import load_gpu

from .conftest import Sass
from .test_hopper_gemm import code_in

CASE = load_case("specialized_steps")
case = sys.modules[CASE.launch.__module__]
ALL = [config for group in CASE.groups for config in CASE.configs(group, 1)]


def test_every_cta_has_its_tiles_and_all_fit_on_the_machine_at_once() -> None:
    assert len(ALL) == 222
    for config in ALL:
        entry, ctas = case.gemms.entry_of(config), int(config["ctas"])
        launch = CASE.launch(config, False)
        assert launch.grid == (ctas, 1, 1) and ctas <= 132 and launch.smem_bytes <= 227 << 10
        tiles = np.prod(case.gemms.tiles_of(config)) * int(config["split_k"])
        assert tiles % ctas == 0 and (entry.schedule == "pingpong" or tiles == ctas)
        assert int(config["k"]) % (case.STEP * int(config["split_k"])) == 0


def test_no_loop_that_cooperates_is_among_them() -> None:
    assert not [name for name in case.ENTRIES if name.startswith("co")]


def test_each_depth_is_in_both_halves_of_the_loops() -> None:
    for group in ("pingpong", "alone"):
        configs = CASE.configs(group, 1)
        halves = [{config["k"] for config in configs[at::2]} for at in (0, 1)]
        assert halves[0] == halves[1]


def test_ctas_that_did_not_meet_give_no_number() -> None:
    config = case.config_of(case.SPECIALIZED[1], ctas=1, steps=8, stages=2, epilogue="direct")
    told, flags = np.full((1, case.NUM_ROUNDS), 100), np.zeros(case.FLAG_WORDS)
    with pytest.raises(WrongAnswer, match="meet"):
        CASE.check(config, {"told": np.full_like(told, -1), "flags": flags})
    with pytest.raises(WrongAnswer, match="stood still"):
        CASE.check(config, {"told": told * 0, "flags": flags})
    flags[1] = 1
    with pytest.raises(WrongAnswer, match="meet"):
        CASE.check(config, {"told": told, "flags": flags})


def test_a_step_takes_its_math_at_least() -> None:
    gpu = load_gpu("h200_sxm")
    few, many = (
        CASE.predict(case.config_of(case.PINGPONG[1], ctas=1, steps=steps, stages=4, epilogue="direct"), gpu)["cycles"]
        for steps in (8, 40)
    )
    assert (many - few) / 32 >= 4 * 128 - 1e-6


def test_the_code_of_the_loops_is_that_of_the_sass(sass: Sass) -> None:
    kernels = sass("specialized_steps", "sm_90a")
    found = {name: code_in(kernels[name], case.gemms.ENTRIES[name].schedule) for name in case.ENTRIES}
    assert found == {name: tuple(code.values()) for name, code in case.CODE.items()}
