"""kernel_end: what is stored is checked word by word, and chains hold what they say."""

from __future__ import annotations

import sys

import pytest

from gpusim.evidence.cases.case import WrongAnswer, load_case
from gpusim.machine.config import load_gpu

from .conftest import Sass

CASE = load_case("kernel_end")
case = sys.modules[CASE.launch.__module__]


@pytest.mark.parametrize("kernel", case.KERNELS)
def test_right_answers_pass_and_one_wrong_word_does_not(kernel: str) -> None:
    config = case.Config(kernel, turns=8, num_ctas=2, again=0)
    left = case.expected(config)
    first = {"nothing": 0, "store_wide": 32}.get(kernel, 32 + case.MORE)
    assert left[4 * 32 + 1 if kernel == "store_wide" else 32] == first  # of thread 32, which leads a warp
    assert CASE.check(config, {"to": left}) == {}
    left[5] += 1
    with pytest.raises(WrongAnswer, match="word 5 is"):
        CASE.check(config, {"to": left})


def test_kernels_store_where_their_names_say(sass: Sass) -> None:
    for name, kernel in sass("kernel_end", "sm_90a").items():
        loop = kernel.main_loop
        assert loop is not None and len(loop.select("IMAD")) >= 4
        first_store = min(item.address for item in kernel.select("STG"))
        assert (first_store < loop.instructions[0].address) == (name == "store_first")


def test_what_an_end_takes_more_is_read_off_rows_that_hold_it() -> None:
    rows = [
        {"kernel": kernel, "turns": turns, "num_ctas": num_ctas, case.ACTIVE: "900", case.CYCLES: str(3600 + later)}
        for turns, num_ctas, more in (("0", "1", 100), ("8", "1", 200), ("8", "132", 600))
        for kernel, later in (("nothing", 0), *((kernel, more) for kernel in case.SMALL), ("store_wide", 9000))
    ]  # fmt: skip
    fitted = CASE.fit(rows)
    assert [(item.parameter, item.value) for item in fitted] == [("dispatcher.store_end_cycles", 200.0)]
    assert CASE.fit([row for row in rows if row["kernel"] != "nothing"]) == []


def test_a_longer_chain_takes_longer() -> None:
    gpu = load_gpu("h200_sxm")
    short, long = (
        CASE.predict({"kernel": "store_last", "turns": turns, "num_ctas": "1", "again": "0"}, gpu)[case.CYCLES]
        for turns in ("8", "64")
    )
    assert long - short == pytest.approx(56 * case.ALU_OF_TURN * gpu.warp_scheduler.dependent_cycles)
