"""half_stores: every word is stored once a round, a wrong one is refused, the twin answers."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import Config, load_case

CASE = load_case("half_stores")
case = sys.modules[CASE.launch.__module__]
ALL = [config for group in CASE.groups for config in CASE.configs(group, 1)]


@pytest.mark.parametrize("config", ALL, ids=str)
def test_the_walk_of_the_kernel_meets_every_word_once_and_stays_inside(config: Config) -> None:
    launch = CASE.launch(config, False)
    pitch, shift, pieces, groups, apart, _ = np.frombuffer(launch.arguments[1].tobytes(), dtype="<u4").tolist()
    size, lane = case.lane_bytes(config), np.arange(32)
    corner = shift + np.arange(int(config["num_warps"]))[:, None] * pieces * 4 * size + lane // 4 * pitch + lane % 4 * size
    met = [
        corner + (first + group) * 8 * pitch + half * 4 * size
        for first in range(0, groups, apart) for half in range(pieces) for group in range(apart)
    ]
    words = (np.concatenate(met).reshape(-1, 1) + np.arange(0, size, 4)).reshape(-1) // 4
    held = case.wanted(replace(config, num_ctas=1))
    assert len(np.unique(words)) == words.size == case.asked_bytes(replace(config, num_ctas=1)) // case.NUM_ROUNDS // 4
    assert words.max() < len(held)
    assert words.size - 1 <= np.count_nonzero(held[words]) == np.count_nonzero(held)


def test_the_twin_counts_sectors_that_are_written() -> None:
    config = case.Config("store_1_0", num_warps=1, num_ctas=1)
    found = CASE.predict(config, load_gpu("h200_sxm"))["lts__t_sectors_srcunit_tex_op_write.sum"]
    assert case.asked_bytes(config) <= 32 * found <= 2 * case.asked_bytes(config)
