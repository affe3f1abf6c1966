"""How far predicted cycles of a family were off where whole kernels judged them: ``validation/expected.csv``."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpusim.evidence.case import kernels_dir


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Mean error of a family's cycles, and over how many rows."""

    mean_pct: float
    num_rows: int
    source: str


def expected_error(kernel: str, options: Mapping[str, Any]) -> Expected | None:
    """Of the family that ``kernel`` with these options belongs to; None where nothing judged it."""
    path = kernels_dir().parent / "validation" / "expected.csv"
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            if row["kernel"] == kernel and row["copy"] in ("", options.get("copy")):
                return Expected(mean_pct=float(row["mean_pct"]), num_rows=int(row["num_rows"]), source=row["source"])
    return None
