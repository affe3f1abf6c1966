"""tensor_map_grid: every CTA's maps bring bytes of their own, and wrong bytes or a stopped clock are refused."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from gpusim.evidence.cases.case import WrongAnswer, load_case

CASE = load_case("tensor_map_grid")
case = sys.modules[CASE.launch.__module__]
CONFIGS = CASE.configs("grid", 1)
SMALL = [config for config in CONFIGS if config.num_ctas == 66]


def outputs_of(config: Any) -> dict[str, np.ndarray]:
    """Times of 700 cycles a map, 600 of a first use and 350 of a second one."""
    times = np.zeros((config.num_ctas, case.WORDS), dtype="<u4")
    num = config.num_maps
    times[:, 2 : 3 + num] = 1000 + 700 * np.arange(num + 1)
    times[:, 7 : 7 + 2 * num] = 9000
    times[:, 15 : 15 + num], times[:, 15 + num : 15 + 2 * num] = 9600, 9350
    return {"times": times.reshape(-1), "sums": case.expected_sums(config)}


@pytest.mark.parametrize("config", SMALL, ids=str)
def test_values_are_differences_of_the_clock(config: Any) -> None:
    values = CASE.check(config, outputs_of(config))
    assert values["build_cycles"] == 700 and values["all_cycles"] == 700 * config.num_maps
    assert (values["first_cycles"], values["p90_second_cycles"]) == (600, 350)


def test_sums_of_ctas_differ_and_a_wrong_one_is_refused() -> None:
    outputs = outputs_of(SMALL[2])
    assert len(set(outputs["sums"].tolist())) == case.NUM_SLICES
    outputs["sums"] = np.roll(outputs["sums"], 1)
    with pytest.raises(WrongAnswer, match="received other bytes"):
        CASE.check(SMALL[2], outputs)
