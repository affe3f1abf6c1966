"""cold_launch: every launch has its like in the other state, a wrong word is refused, and the twin knows the difference."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gpusim.evidence.cases.case import WrongAnswer, load_case
from gpusim.machine.config import load_gpu

CASE = load_case("cold_launch")
case = sys.modules[CASE.launch.__module__]


def test_cold_and_warm_are_alike() -> None:
    cold, warm = ([{**config, "state": ""} for config in CASE.configs(group, 1)] for group in ("cold", "warm"))
    assert cold == warm and len(cold) == 36
    assert CASE.groups["cold"].is_cold and not CASE.groups["warm"].is_cold


@pytest.mark.parametrize("kernel", case.KERNELS)
def test_right_answers_pass_and_one_wrong_word_does_not(kernel: str) -> None:
    config = case.Config(kernel, "cold", num_ctas=2, turn=0)
    words = case.given(config)
    to = np.zeros_like(words)
    for thread in range(0, 512, 32):
        to[thread] = {"empty": 0, "store_one": thread + 7, "load_one": int(words[thread]) + 7}[kernel]
    assert CASE.check(config, {"to": to}) == {}
    to[33] = 1
    with pytest.raises(WrongAnswer, match="word 33 is 1"):
        CASE.check(config, {"to": to})


def test_a_cold_load_takes_longer_than_a_warm_one() -> None:
    gpu = load_gpu("h200_sxm")
    cycles = {
        state: CASE.predict({"kernel": "load_one", "state": state, "num_ctas": "8", "turn": "0"}, gpu)[case.CYCLES]
        for state in ("cold", "warm")
    }
    assert cycles["cold"] > cycles["warm"]


def test_the_fit_takes_cold_less_warm_of_the_kernel_that_reads_its_parameters() -> None:
    rows = [
        {"kernel": kernel, "state": state, "num_ctas": grid, case.CYCLES: str(cycles)}
        for kernel, state, grid, cycles in (
            ("store_one", "cold", "1", 3300), ("store_one", "warm", "1", 3000), ("store_one", "warm", "1", 3020),
            ("store_one", "cold", "132", 3500), ("store_one", "warm", "132", 3400), ("empty", "cold", "1", 9000),
        )
    ]  # fmt: skip
    (line,) = case.fit(rows)
    assert (line.parameter, line.value) == ("dispatcher.cold_start_cycles", ((3300 - 3010) + (3500 - 3400)) / 2)
