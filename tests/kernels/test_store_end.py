"""store_end: what is stored is checked word by word, and kernels store what their names say."""

from __future__ import annotations

import sys

import pytest

from gpusim.evidence.cases.case import WrongAnswer, load_case
from gpusim.machine.config import load_gpu

from .conftest import Sass

CASE = load_case("store_end")
case = sys.modules[CASE.launch.__module__]


@pytest.mark.parametrize("num", case.VECTORS)
def test_right_answers_pass_and_one_wrong_word_does_not(num: int) -> None:
    config = case.Config(f"store_{num}", "cold", num_ctas=2, again=0)
    left = case.expected(config)
    assert left.size == max(4, 2 * num * case.THREADS * 4)
    if num:  # the first vector of the second CTA
        assert list(left[num * case.THREADS * 4 :][:4]) == [case.THREADS + case.MORE, 0, case.THREADS + case.MORE, 0]
    assert CASE.check(config, {"to": left}) == {}
    left[3] += 1
    with pytest.raises(WrongAnswer, match="word 3 is"):
        CASE.check(config, {"to": left})


def test_kernels_store_as_often_as_their_names_say(sass: Sass) -> None:
    for name, kernel in sass("store_end", "sm_90a").items():
        stores = kernel.select("STG")
        assert len(stores) == int(name.removeprefix("store_"))
        assert all(".128" in item.opcode for item in stores)


def test_more_is_stored_more_slowly_and_a_cold_launch_takes_longer() -> None:
    gpu = load_gpu("h200_sxm")

    def cycles(num: int, state: str) -> float:
        config = {"kernel": f"store_{num}", "state": state, "num_ctas": "132", "again": "0"}
        return CASE.predict(config, gpu)[case.CYCLES]

    assert cycles(0, "warm") < cycles(1, "warm") < cycles(4, "warm") < cycles(16, "warm")
    assert cycles(4, "cold") - cycles(4, "warm") == pytest.approx(gpu.dispatcher.cold_start_cycles, rel=0.5)
