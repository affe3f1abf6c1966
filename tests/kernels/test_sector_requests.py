"""sector_requests: no two CTAs read the same line, and wrong words are refused."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from gpusim.evidence.cases.case import WrongAnswer, load_case

CASE = load_case("sector_requests")
case = sys.modules[CASE.launch.__module__]
CONFIGS = CASE.configs("rates", 1)


def outputs_of(config: Any) -> dict[str, np.ndarray]:
    """Two cycles a request."""
    return {"sums": case.expected_sums(config), "cycles": np.full(config.num_ctas, 2 * config.num_requests, dtype="<u4")}


@pytest.mark.parametrize("config", CONFIGS[::5], ids=str)
def test_values_are_cycles_of_a_request(config: Any) -> None:
    assert CASE.check(config, outputs_of(config)) == {"request_cycles": 2.0, "max_request_cycles": 2.0}


def test_a_warp_requests_one_line_for_each_group_of_its_lanes() -> None:
    of_one = [config.num_requests for config in CONFIGS if config.num_ctas == 1]
    assert of_one == [65536, 262144, 32768, 131072, 16384, 65536]


def test_words_of_another_cta_are_refused() -> None:
    config = next(config for config in CONFIGS if config.num_ctas == 16)
    outputs = outputs_of(config)
    outputs["sums"] = np.roll(outputs["sums"], 1)
    with pytest.raises(WrongAnswer, match="read other words"):
        CASE.check(config, outputs)
