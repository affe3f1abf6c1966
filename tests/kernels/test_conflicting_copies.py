"""Copies around L1 into rows that lie off lines: the rule of their passes against what an H200 took."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import load_case
from gpusim.workload.gmem.line_fetches import num_passes

CASE = load_case("conflicting_copies")
ROWS = pd.read_csv(Path(__file__).parents[2] / "validation" / "measured" / "h200_sxm" / "conflicting_copies.csv")
COPIES, BYTES, PITCH_BYTES = 8, 512, 1024


def passes(row: pd.Series) -> float:
    """Of a copy, as its rows lie on average."""
    lane, per_row = np.arange(COPIES * 32).reshape(-1, 32), int(row["row_bytes"]) // 16
    to = int(row["offset_bytes"]) + lane // per_row * int(row["row_bytes"] + row["pad_bytes"]) + lane % per_row * 16
    return num_passes(lane // per_row * PITCH_BYTES + lane % per_row * 16, to) / COPIES


def test_a_copy_takes_a_cycle_for_each_pass() -> None:
    """Of sixteen warps, which keep the stage busy; two kinds are 7 and 2 % off, one between 1 and 2 (its README)."""
    streams = ROWS[(ROWS["group"] == "streams") & (ROWS["readers"] == 0) & (ROWS["copiers"] == 16)]
    apart = [abs(1.0 / (row["copies_per_cycle"] * passes(row)) - 1.0) for _, row in streams.iterrows()]
    assert len(apart) == 39
    assert sum(each <= 0.01 for each in apart) == 36
    assert max(apart) < 0.08


def test_banks_of_rows_say_something_else() -> None:
    """Rows of 64 bytes 96 apart lie on the same banks two by two, and yet take 1.25 cycles each."""
    of = ROWS[(ROWS["group"] == "streams") & (ROWS["readers"] == 0) & (ROWS["copiers"] == 16)]
    ((_, row),) = of[(of["row_bytes"] == 64) & (of["pad_bytes"] == 32)].iterrows()
    assert passes(row) == 10.0
    assert 1.0 / row["copies_per_cycle"] == pytest.approx(10.0, rel=0.01)


@pytest.mark.parametrize("pad", ["0", "16"])
def test_what_is_read_behind_copies_waits_for_all_their_passes(pad: str) -> None:
    config = next(
        each for each in CASE.configs("bursts", 1)
        if each["kernel"] == "bursts_8" and each["copiers"] == "8" and each["row_bytes"] == "64" and each["pad_bytes"] == pad
    )  # fmt: skip
    measured = {"0": 642.0, "16": 1127.0}[pad]
    assert CASE.predict(config, load_gpu("h200_sxm"))["read_cycles"] == pytest.approx(measured, rel=0.15)
