"""busy_sharing: who loads, what is refused, and what the table says of how long a line can be joined while L2 is busy."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pytest

from gpusim.evidence.cases.case import Outputs, load_case
from gpusim.evidence.cases.paths import kernels_dir
from gpusim.evidence.cases.rows import Table
from gpusim.evidence.validate.calibrate import halves
from gpusim.machine.config import load_gpu

CASE = load_case("busy_sharing")
case = sys.modules[CASE.launch.__module__]
TABLE = kernels_dir().parent / "validation" / "measured" / "h100_sxm" / "busy_sharing.csv"


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_configs_are_the_same_every_time_and_fit_into_an_sm() -> None:
    assert {group: len(CASE.configs(group, 1)) for group in CASE.groups} == {
        "loaded": 128, "whose": 24, "ahead": 48, "sizes": 48, "readers": 27,
    }  # fmt: skip
    for group in CASE.groups:
        configs = CASE.configs(group, 1)
        assert CASE.configs(group, 7) == configs
        for config in configs:
            assert int(config["num_slots"]) * case.SLOT_BYTES <= case.SMEM_BYTES
            assert int(config["shot_bytes"]) + int(config["ahead_bytes"]) <= case.SMEM_BYTES


def test_readers_do_not_load_and_sides_are_told_apart() -> None:
    of_gpc, others = (case.loading_sms(case.config_of((0, 16), 0, who_loads=who, num_slots=1)) for who in ("gpc", "others"))
    assert not set(of_gpc) & set(others) and not {0, 16} & set(of_gpc + others)
    assert {*of_gpc, 0, 16} == {sm for sm in range(case.EVEN_SMS) if sm % 16 < 2}
    assert case.loading_sms(case.config_of((0, 1), 0)) == []


def outputs(config: dict[str, str]) -> Outputs:
    wanted = case.sum_of_words(case.NUM_SHOTS * int(config["shot_bytes"]))
    shots = np.zeros((2, case.NUM_SHOTS, 2), dtype="<i4")
    shots[0, :, 1], shots[1, :, 1] = 500, 450
    return {
        "flags": np.zeros(case.FLAG_WORDS, dtype="<u4"), "shots": shots,
        "told": np.array([[0, wanted, 0, 0], [16, wanted, 3, 7]], dtype="<i8"),
        "loaded": np.full((case.NUM_CTAS, 2), (100, 100 * case.SLOT_BYTES // 32), dtype="<u4"),
    }  # fmt: skip


def test_lines_can_be_joined_for_a_small_part_of_what_shots_wait_and_both_halves_agree() -> None:
    calibrating, judging = halves(CASE, Table.read(TABLE))
    found, told = (CASE.fit(rows)[0].value for rows in (calibrating, judging))
    assert found == pytest.approx(told, abs=0.02)
    assert found == pytest.approx(load_gpu("h100_sxm").xbar.coalesce_wait_fraction, abs=0.001)
    assert found < 0.25


def test_the_second_reader_has_its_lines_with_the_first_though_it_reads_most_of_them_again() -> None:
    """Two slots of 32 KiB an SM: 400 cycles late, nine lines in ten are read twice, and the last ones come together."""
    rows = [
        row for row in read(TABLE)
        if row["group"] == "loaded" and row["num_slots"] == "2" and row["gap_cycles"] == "0" and row["sms"] == "0 16"
    ]
    at = {row["skew_cycles"]: row for row in rows}
    none = case.merged_share(at["3200"])
    assert case.merged_share(at["0"]) - none > 0.9
    assert case.merged_share(at["400"]) - none < 0.2
    assert abs(float(at["400"]["apart_p50_cycles"])) < 50 < float(at["3200"]["apart_p50_cycles"])
