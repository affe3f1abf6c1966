"""row_rereads: every vector is read twice, a wrong sum is refused, the model re-reads what L1 holds."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim import load_gpu
from gpusim.evidence.cases.case import Repeated, WrongAnswer, load_case

from .conftest import Sass

CASE = load_case("row_rereads")
case = sys.modules[CASE.launch.__module__]
CONFIGS = [case.Config.of(config) for group in CASE.groups for config in CASE.configs(group, 1)]
SMALL = [case.Config(kernel, row_kib=8, ctas_per_sm=1) for kernel in ("reread_alone", "reread_stores")]


def answer(config: Any) -> NDArray[np.uint32]:
    """Sums that a right kernel leaves, of the launch's own input."""
    config = case.Config.of(config)
    given = CASE.launch(config, False).arguments[0]
    assert isinstance(given, Repeated)
    words = given.window(0, given.num_bytes).view("<u4").reshape(config.num_ctas, -1, case.THREADS, 4)
    return (4 * words.sum(axis=(1, 3), dtype=np.uint32)).reshape(-1)


def test_a_right_answer_passes_and_one_wrong_sum_does_not() -> None:
    right = answer(SMALL[0])
    assert CASE.check(SMALL[0], {"sums": right}) == {}
    wrong = right.copy()
    wrong[-1] += 1
    with pytest.raises(WrongAnswer):
        CASE.check(SMALL[0], {"sums": wrong})


def test_rows_that_fit_are_fetched_once_and_others_twice() -> None:
    gpu = load_gpu("h200_sxm")
    for row_kib, times in ((16, 1.0), (288, 2.0)):
        config = case.Config("reread_alone", row_kib=row_kib, ctas_per_sm=1)
        found = CASE.predict(config, gpu)
        sectors = config.num_ctas * case.ROWS * config.row_bytes / 32
        assert found[case.OF_L1] == 2 * sectors and found[case.READ] == pytest.approx(times * sectors, rel=0.01)
        row = {**config, case.READ: str(found[case.READ])}
        assert case.derive(row)["hit_share"] == pytest.approx(2.0 - times, abs=0.01)


def test_both_readings_are_loads_of_sixteen_bytes(sass: Sass) -> None:
    for name, kernel in sass("row_rereads", "sm_90a").items():
        loops = [loop for loop in kernel.loops if len(loop.select("LDG")) == 4 and not loop.select("BAR")]
        assert len(loops) == 2, name
        assert all(item.opcode.startswith("LDG.E.128") for item in kernel.select("LDG")), name
        has_stores = any("128" in item.opcode for item in kernel.select("STG"))
        assert has_stores == (name == "reread_stores")
