"""Stores that set CTAs apart: what is launched, what is refused, what the numbers mean, what the twin answers."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gpusim.evidence.cases.case import Outputs, WrongAnswer, load_case
from gpusim.evidence.cases.tile_walk import num_reads
from gpusim.machine.config import load_gpu

CASE = load_case("store_drift")
case = sys.modules[CASE.launch.__module__]
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]


def told(config: dict[str, str]) -> Outputs:
    """What a grid says of which each wave takes 1000 cycles on SMs 0, 1, ..., whose clocks are all different."""
    rows = []
    size = case.NUM_SMS * int(config["ctas_per_sm"])
    for cta in range(int(config["ctas"])):
        sm, zero = cta % case.NUM_SMS, 10**6 * (cta % case.NUM_SMS + 1)
        at = zero + 1000 * (cta // size)
        m, n = case.tile_of(config, cta)
        total = 0
        if int(config["steps"]):
            total = case.sum_of_last_stage(config, "a", m) + case.sum_of_last_stage(config, "b", n)
        of = {
            "sm": sm, "is_well": 1, "checksum": total % 2**32, "zero": zero if cta < size else -1, "start": at,
            "full": at + 10, "middle": at + 20, "walked": at + 30, "begin": at + 40, "issued": at + 50, "read": at + 60 + sm,
            "done": at + 300, "exit": at + 400, "ns": 0,
        }  # fmt: skip
        rows.append([of[name] for name in case.FIELDS])
    return {"told": np.array(rows, dtype=np.int64), "flags": np.zeros(case.FLAG_WORDS, dtype="<u4")}


def test_everything_fits() -> None:
    for config in CONFIGS:
        launch = CASE.launch(config, False)
        per_sm = int(config["ctas_per_sm"])
        assert launch.smem_bytes * per_sm + 4096 < 228 << 10 < (launch.smem_bytes + 1024) * (per_sm + 1)
        assert case.store_bytes(config) * int(config["ctas"]) <= case.MATRIX_BYTES
        assert case.store_bytes(config) % (case.TILE_ROWS * case.ROW_BYTES) == 0
        if int(config["steps"]):
            assert int(config["ctas"]) == int(config["m_tiles"]) * int(config["n_tiles"])
        assert bool(launch.following) == (config["way"] != "none" and config["live"] == "all")
        assert not CASE.launch(config, True).following


def test_times_are_from_the_first_waves_begin() -> None:
    values = CASE.check(case.Config(way="wide", store_kib=16, work_cycles=8000, ctas=264, place="sm"), told(
        case.Config(ctas=264)
    ))  # fmt: skip
    assert values["first_issued_p50_cycles"] == 10.0 and values["later_done_p50_cycles"] == 260.0
    assert values["first_read_p0_cycles"] == 20.0 and values["first_read_p100_cycles"] == 20.0 + 131
    assert values["wave_1_start_spread_cycles"] == 0.0 and values["gap_p50_cycles"] == 600.0


def test_who_is_wrong_is_refused() -> None:
    config = case.Config(m_tiles=33, n_tiles=4, steps=8, wrap=8)
    assert CASE.check(config, told(config))["asked_bytes"] == 132 * 8 * case.stage_bytes(config)
    for column, value, said in (("checksum", 7, "words"), ("is_well", 0, "given up"), ("zero", -1, "first CTAs")):
        wrong = told(config)
        wrong["told"][5, case.FIELDS.index(column)] = value
        with pytest.raises(WrongAnswer, match=said):
            CASE.check(config, wrong)
    with pytest.raises(WrongAnswer, match="matrix"):
        CASE.check(config, {**told(config), "wrong": np.ones(1, dtype="<u4")})


@pytest.mark.parametrize("way", ["bulk", "box", "wide", "fragment", "pair"])
def test_a_tiles_stores_are_its_bytes(way: str) -> None:
    config = case.Config(way=way, store_kib=32, work_cycles=2000, waits=1)
    if way not in case.BULK:
        assert case.accesses(config).num_bytes == 32 << 10
    alone = CASE.predict(config, load_gpu("h200_sxm"))
    assert alone["first_read_p50_cycles"] > 32768 / 64  # no SM stores more than its port carries


def test_those_who_share_merge_four_at_most() -> None:
    assert num_reads([[0.0] * 5, [0.0, 60.0]], 50.0) == 4
