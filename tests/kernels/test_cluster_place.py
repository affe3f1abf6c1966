"""cluster_place: CTAs that were nowhere, or two on one SM, are refused."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gpusim.evidence.case import WrongAnswer, load_case

CASE = load_case("cluster_place")
case = sys.modules[CASE.launch.__module__]
CONFIG = {"kernel": "place_2", "size": "2", "policy": "spread", "num_clusters": "3", "again": "0"}


def test_every_cta_has_its_own_sm() -> None:
    assert CASE.check(CONFIG, {"sm_of_cta": np.array([4, 5, 0, 1, 2, 3])})["sm_of_cta_2"] == 0.0
    with pytest.raises(WrongAnswer, match="CTA 1 wrote down no SM"):
        CASE.check(CONFIG, {"sm_of_cta": np.array([4, -1, 0, 1, 2, 3])})
    with pytest.raises(WrongAnswer, match="did not fit at once"):
        CASE.check(CONFIG, {"sm_of_cta": np.array([4, 5, 0, 1, 4, 5])})


def test_policies_are_the_drivers_and_grids_fit() -> None:
    configs = CASE.configs("places", 1)
    assert {CASE.launch(config, False).cluster_policy for config in configs} == {0, 1, 2}
    assert all(int(config["size"]) * int(config["num_clusters"]) <= case.MOST_CTAS for config in configs)
    assert CASE.launch(configs[0], False).grid == (2, 66, 1)
