"""load_loops: sums are checked, loops are what their names say, and the twin answers."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from gpusim.evidence.cases.case import Config, WrongAnswer, load_case
from gpusim.machine.config import load_gpu

from .conftest import Sass

GPU = load_gpu("h200_sxm")
CASE = load_case("load_loops")
case = sys.modules[CASE.launch.__module__]
WALKS = CASE.configs("walks", 1)


def outputs_of(config: Config) -> dict[str, np.ndarray]:
    """What the kernel must leave where CTA i of an SM takes 5 + i cycles a turn."""
    warps, ctas = int(config["warps"]), int(config["ctas"])
    num_ctas = case.NUM_SMS * ctas if case.is_walk(config) else 1
    times = np.zeros((num_ctas, warps), dtype=case.TIMES)
    turns = case.WALK_TURNS if case.is_walk(config) else case.BETWEEN_TURNS
    cta = np.arange(num_ctas)[:, None]
    times["sm"] = cta % case.NUM_SMS
    times["begin"] = 2**32 - 100  # a clock that begins anew
    times["end"] = (2**32 - 100 + turns * (5 + cta // case.NUM_SMS)) % 2**32
    sums = np.zeros((num_ctas, warps, 32), dtype="<f4")
    for each in {int(each) for each in np.linspace(0, num_ctas - 1, case.NUM_CHECKED)}:
        sums[each] = case.expected(config, each)
    return {"times": times.reshape(-1), "sums": sums.reshape(-1)}


def test_zeros_stay_zeros_and_all_sms_have_their_ctas() -> None:
    config = WALKS[3]
    outputs = outputs_of(config)
    outputs["times"]["left"][5] = 1
    with pytest.raises(WrongAnswer, match="zeros"):
        CASE.check(config, outputs)
    outputs = outputs_of(config)
    outputs["times"]["sm"][:32] = 7
    with pytest.raises(WrongAnswer, match="had"):
        CASE.check(config, outputs)


def test_a_sum_is_that_of_a_thread_that_walks() -> None:
    """Thread by thread, as ``kernel.cu`` has it."""
    config = next(config for config in WALKS if config["kernel"] == "walk_8_1" and config["a_walks"] == "1")
    at, cta, warp, lane = case.steps(config), 17, 3, 11
    total = 0.0
    for turn in range(case.WALK_TURNS):
        a = cta * at["a_cta"] + warp * at["a_warp"] + turn * at["a_step"]
        b = cta * at["b_cta"] + turn * at["b_step"]
        line = float(case.DATA[(b // 4 + lane) % case.WORDS_PERIOD])
        total += sum(float(case.DATA[(a // 4 + i) % case.WORDS_PERIOD]) * line for i in range(8))
    assert case.expected(config, cta)[warp, lane] == total


def test_turns_have_the_instructions_that_their_names_say(sass: Sass) -> None:
    for name, kernel in sass("load_loops", "sm_90a").items():
        loop = kernel.main_loop
        assert loop is not None, name
        num_wide = sum(item.opcode.startswith("IMAD.WIDE") for item in loop.instructions)
        first, op, num = name.split("_")
        if first in ("walk", "wide"):
            assert len(loop.select("LDG")) == int(op) + int(num), name
            assert bool(num_wide) == (first == "wide"), name
            continue
        for load, opcode in (("global", "LDG"), ("shared", "LDS")):
            assert len(loop.select(opcode)) == case.LOADS_OF_TURN * (first == load), name
        wide = {"wide": int(num), "chain": int(num) * 7 // 8}.get(op, 0)  # what comes last in a chain is not used
        assert num_wide == wide, name


def test_the_twin_waits_for_loads_that_walk() -> None:
    gpu = GPU
    stays, walks = (
        next(
            config
            for config in WALKS
            if config["kernel"] == "walk_8_8" and config["warps"] == "8" and config["b_walks"] == on
        )
        for on in "01"
    )
    assert CASE.predict(walks, gpu)["cycles_per_turn"] > CASE.predict(stays, gpu)["cycles_per_turn"] + 100


def test_a_twin_s_walks_give_what_a_line_on_its_way_costs_back() -> None:
    gpu, some = GPU, 0.5
    tuned = replace(gpu, l1=replace(gpu.l1, hit_on_miss_cycles=some))
    one = next(each for each in WALKS if (each["kernel"], each["warps"], each["a_walks"]) == ("walk_8_8", "32", "1"))
    took = CASE.predict(one, tuned)["cycles_per_turn"]
    (fitted,) = CASE.fitted([{**one, "cycles_per_turn": str(took)}], GPU)
    assert fitted.parameter == "l1.hit_on_miss_cycles" and fitted.value == pytest.approx(some)
    assert CASE.fitted([{**WALKS[0], "cycles_per_turn": "9.0"}], GPU) == []  # eight warps leave the unit idle
