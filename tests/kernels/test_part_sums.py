"""part_sums: tiles lie inside of their room and apart, wrong sums are refused, the twin adds as often as the kernel."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gpusim.evidence.cases.case import Config, WrongAnswer, load_case
from gpusim.machine.config import load_gpu

from .conftest import Sass

CASE = load_case("part_sums")
case = sys.modules[CASE.launch.__module__]
ALL = [config for group in CASE.groups for config in CASE.configs(group, 1)]


@pytest.mark.parametrize("config", ALL, ids=str)
def test_tiles_lie_side_by_side_in_their_room(config: Config) -> None:
    assert int(config["num_ctas"]) % int(config["num_parts"]) == 0 and int(config["num_ctas"]) <= case.NUM_SMS
    assert int(config["num_warps"]) <= 8 and case.tiles_across(config) >= 1
    assert case.tiles_across(config) * case.row_bytes(config) <= int(config["pitch_bytes"])
    bands = case.num_bands(config)
    assert bands * case.tiles_across(config) >= case.num_tiles(config) > (bands - 1) * case.tiles_across(config)


@pytest.mark.parametrize("kernel", case.KINDS)
def test_accesses_of_a_turn_are_the_words_of_a_tile_once(kernel: str) -> None:
    config = case.Config(kernel, num_warps=4)
    found = case.accesses(config, case.lane_bytes(config), 4096)
    assert len(found) == case.NUM_PIECES
    assert sum(piece.num_requests for piece in found) == 4 * 2 * case.NUM_COLUMNS
    assert sum(piece.num_bytes for piece in found) == case.tile_rows(config) * case.row_bytes(config)
    assert sum(piece.num_lines for piece in found) == 8 * sum(piece.num_requests for piece in found)


def told(config: Config) -> dict[str, np.ndarray]:
    """What a right kernel leaves, each CTA later than the one before."""
    ctas = int(config["num_ctas"])
    cycles = np.arange(1, ctas + 1)[:, None, None] * 100 + np.array([0, 50])
    out = np.where(case.wanted(config).reshape(-1, 2)[:, 0], 2.0 * (case.NUM_ROUNDS - 1), 0.0)
    return {
        "room": case.wanted(config).reshape(-1), "flags": np.zeros(case.FLAG_WORDS), "sums": np.zeros(ctas * case.NUM_SUMS),
        "told": np.broadcast_to(cycles, (ctas, case.NUM_ROUNDS, 2)).astype("<i8"),
        "out": out.astype("<f4") if case.is_finish(config) else np.zeros(1, dtype="<f4"),
    }  # fmt: skip


@pytest.mark.parametrize("kernel", case.KINDS)
def test_right_answers_pass_and_wrong_ones_do_not(kernel: str) -> None:
    config = case.Config(kernel, num_warps=4, num_ctas=2)
    right = told(config)
    assert CASE.check(config, right) == {
        "issued_cycles": 150.0, "done_cycles": 200.0, "slowest_cycles": 250.0, "first_cycles": 200.0
    }  # fmt: skip
    with pytest.raises(WrongAnswer, match="word 3 "):
        CASE.check(config, {**right, "room": np.where(np.arange(right["room"].size) == 3, 7.0, right["room"])})
    with pytest.raises(WrongAnswer, match="meet"):
        CASE.check(config, {**right, "told": right["told"] * 0 - 1})
    with pytest.raises(WrongAnswer, match="stood still"):
        CASE.check(config, {**right, "told": right["told"] * 0})
    if case.is_finish(config):
        with pytest.raises(WrongAnswer, match="leave"):
            CASE.check(config, {**right, "out": right["out"] + 1})


def test_parts_of_one_tile_add_to_it_each() -> None:
    config = case.Config("red_8", num_warps=4, num_ctas=8, num_parts=4)
    assert case.wanted(config).max() == 4 * case.NUM_ROUNDS
    assert np.count_nonzero(case.wanted(config)) == 2 * 64 * 128


def test_the_twin_takes_the_port_for_each_line_that_it_adds_to() -> None:
    gpu = load_gpu("h200_sxm")
    one, two = (
        CASE.predict(case.Config("red_8", num_warps=8, num_turns=turns), gpu)["done_cycles"] for turns in (1, 2)
    )
    lines = 8 * 8 * 2 * case.NUM_COLUMNS
    assert (two - one) / lines == pytest.approx((32 + 128 * gpu.xbar.red_header_fraction) / 32, rel=0.02)


def test_all_that_is_read_is_under_way_before_it_is_used(sass: Sass) -> None:
    kernels = sass("part_sums", "sm_90a")
    assert {name: kernels[name].num_spills for name in case.KINDS} == dict.fromkeys(case.KINDS, 0)
    for name in ("load_4", "load_8", "load_16", "take_8", "finish_8"):
        found = [item for item in kernels[name].instructions if item.name in ("LDG", "FADD", "STG")]
        loads = [idx for idx, item in enumerate(found) if item.name == "LDG"]
        used = [idx for idx, item in enumerate(found) if item.name == "FADD" and idx > loads[0]]
        assert len(loads) == 2 * case.NUM_COLUMNS and max(loads) < min(used)
        if name in ("take_8", "finish_8"):
            zeros = [idx for idx, item in enumerate(found) if item.opcode == "STG.E.64"][: 2 * case.NUM_COLUMNS]
            assert max(loads) < min(zeros) and max(zeros) < min(used)
