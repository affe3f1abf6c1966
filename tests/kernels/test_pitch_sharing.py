"""Tiles of any pitch that CTAs share: what is launched, what is refused, what the twin answers."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from gpusim.evidence.cases.case import MappedTensor, Repeated, WrongAnswer, load_case
from gpusim.machine.config import load_gpu

CASE = load_case("pitch_sharing")
case = sys.modules[CASE.launch.__module__]
waves = case.waves
CONFIGS = {group: CASE.configs(group, 1) for group in CASE.groups}
ALL = [config for configs in CONFIGS.values() for config in configs]


def told(config: dict[str, str]) -> np.ndarray[Any, Any]:
    """What a grid says whose CTAs took 100 cycles a step."""
    rows = []
    for cta in range(waves.num_ctas(config)):
        m, n = waves.tile_of(config, cta, 0)
        total = case.sum_of_last_stages(config, "a", m) + case.sum_of_last_stages(config, "b", n)
        rows.append([cta % 132, total % 2**32, 100 * (int(config["steps"]) - 1), 0, 10, 20, 30, 1])
    return np.array(rows, dtype=np.int64)


def test_every_pitch_is_in_both_halves_and_all_else_twice_or_more() -> None:
    assert {group: len(configs) for group, configs in CONFIGS.items()} == {"wave": 56, "several": 28, "few": 21}
    for configs in CONFIGS.values():
        halves = [{config["beyond_bytes"] for config in configs[at::2]} for at in (0, 1)]
        assert halves[0] == halves[1] == {str(beyond) for beyond in case.BEYOND}


def test_boxes_are_the_tiles_and_panels_begin_on_lines() -> None:
    for config in ALL:
        launch = CASE.launch(config, False)
        assert len(launch.arguments[0].tobytes()) == 12 * 4
        per_sm = int(config["ctas_per_sm"])
        assert launch.smem_bytes * per_sm + per_sm * 1024 < 228 << 10 < (launch.smem_bytes + 1024) * (per_sm + 1)
        assert launch.grid[0] <= waves.MOST_CTAS_TOLD
        operands = [item for item in launch.arguments if isinstance(item, MappedTensor)]
        for item, name in zip(operands, "ab", strict=True):
            assert isinstance(item.array, Repeated)
            rows, pitch = int(config[f"{name}_rows"]), case.pitch_bytes(config)
            assert item.tensor_map.box_dim == (64, rows) and rows * pitch % case.LINE_BYTES == 0
            assert item.array.num_bytes == item.tensor_map.global_dim[1] * pitch
            assert int(config["wrap"]) * case.ROW_BYTES <= pitch


def test_only_the_tiles_own_words_count() -> None:
    config = case.Config(m_tiles=2, n_tiles=3, steps=8, wrap=16, beyond_bytes=48)
    right = told(config)
    assert CASE.check(config, {"told": right})["cycles_per_step"] == 100.0
    for column, value, said in ((1, 7, "words"), (7, 0, "given up"), (2, 0, "stood still")):
        wrong = right.copy()
        wrong[5, column] = value
        with pytest.raises(WrongAnswer, match=said):
            CASE.check(config, {"told": wrong})
    other = case.Config(m_tiles=2, n_tiles=3, steps=8, wrap=16, beyond_bytes=32)
    with pytest.raises(WrongAnswer, match="words"):
        CASE.check(other, {"told": right})


def test_halves_of_sectors_are_read_beside_all_the_rest() -> None:
    gpu = load_gpu("h200_sxm")
    shape = {"m_tiles": 2, "n_tiles": 3, "steps": 8, "wrap": 16, "stages": 2}
    on, off = (CASE.predict(case.Config(**shape, beyond_bytes=beyond), gpu)[case.READ] for beyond in (0, 16))
    asked = 6 * 8 * 256 * 4
    assert asked / 4 <= on <= asked
    assert off == pytest.approx(asked * 1.125, rel=0.01)  # nothing merges


def test_what_merges_of_torn_rows_is_read_off_grids_alike() -> None:
    def row(beyond: int, fraction: float) -> dict[str, str]:
        return {**case.Config(beyond_bytes=beyond), "group": "wave", case.READ: str(fraction), "asked_bytes": "32"}

    # half of what is asked for of rows on lines, 0.9 of it of rows on two lines
    assert case.fit is not None
    (found,) = case.fit([row(0, 0.5), row(32, 0.25 * 0.5 + 0.75 * 0.9), row(64, 0.5 * 0.5 + 0.5 * 0.9)])
    assert found.parameter == "xbar.misaligned_coalesce_fraction" and found.value == pytest.approx(0.2)
    assert case.fit([row(0, 0.5)]) == []
