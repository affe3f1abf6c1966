"""Frozen predictions of judged rows: the quick ones are simulated again, and a row that has moved is told of."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from gpusim.machine.config import load_gpu

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "freeze_rows.py"))
moved, read_frozen, sentence = SCRIPT["moved"], SCRIPT["read_frozen"], SCRIPT["sentence"]

GPU = "h200_sxm"
FEW_CYCLES = 60_000.0
"""Rows up to which are simulated here; ``scripts/freeze_rows.py --check`` does all."""
MOST_ROWS = 20
"""Rows of a kernel that are simulated here, spread evenly over its table."""


def test_every_row_is_frozen_once() -> None:
    rows = read_frozen(GPU)
    assert len({(row.kernel, row.group, row.config) for row in rows}) == len(rows) == 1048


@pytest.mark.parametrize("kernel", sorted({row.kernel for row in read_frozen(GPU)}))
def test_no_quick_row_has_moved(kernel: str) -> None:
    rows = [row for row in read_frozen(GPU) if row.kernel == kernel and row.predicted <= FEW_CYCLES]
    some = rows[:: max(1, len(rows) // MOST_ROWS)]
    found = [sentence(row, now) for row, now in moved(some, load_gpu(GPU))]
    assert not found, "\n".join([
        "rows have moved by more than 1 %: say so in CHANGELOG.md, judge them all, then run scripts/freeze_rows.py", *found,
    ])  # fmt: skip
