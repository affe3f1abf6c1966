"""fragment_stores: tiles are stored whole, a wrong word is refused, and the twin stores each part of a sector."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from gpusim.evidence.cases.case import Config, load_case
from gpusim.machine.config import load_gpu

CASE = load_case("fragment_stores")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
ALL = [config for group in CASE.groups for config in CASE.configs(group, 1)]


@pytest.mark.parametrize("config", ALL, ids=str)
def test_tiles_are_whole_and_so_many_bytes_are_stored(config: Config) -> None:
    assert int(config["rows"]) % case.TILE_ROWS == 0
    assert int(config["pitch_bytes"]) % case.TILE_BYTES == 0
    stored = int(config["rows"]) * int(config["pitch_bytes"]) * int(config["num_rounds"])
    assert abs(stored / case.STORED_BYTES - 1) < 0.13


@pytest.mark.parametrize("lane_bytes", [4, 8, 16])
def test_stores_of_a_tile_are_its_bytes_once(lane_bytes: int) -> None:
    config = case.config_of(lane_bytes=lane_bytes, pitch=4096, span=case.SPANS[0])
    first = case.addresses(typed(config)).reshape(-1, 1) + np.arange(lane_bytes)
    rows, columns = np.arange(case.TILE_ROWS)[:, None] * 4096, np.arange(case.TILE_BYTES)
    assert np.sort(first.reshape(-1)).tolist() == np.sort((rows + columns).reshape(-1)).tolist()


def test_the_twin_stores_each_half_of_a_sector_by_itself() -> None:
    gpu = load_gpu("h200_sxm")
    half, whole = (
        CASE.predict(
            replace(case.config_of(lane_bytes=lane_bytes, pitch=4096, span=1 << 20, num_ctas=8), num_rounds=1), gpu
        )
        for lane_bytes in (4, 8)
    )  # fmt: skip
    assert half[case.WRITTEN] == 2 * whole[case.WRITTEN] == 2 * (1 << 20) / 32
