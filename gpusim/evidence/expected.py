"""How far predicted cycles of a family were off where whole kernels judged them: ``validation/held_out.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass

from gpusim.evidence.case import kernels_dir

CYCLES = "sm__cycles_elapsed.max"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What nine in ten held-out predictions of a family's cycles kept."""

    p90_pct: float
    gpu: str
    """Whose rows judged: another GPU's, where the one that is asked about has none."""


def expected_error(kernel: str, gpu: str) -> Expected | None:
    """Of the family of ``kernel`` on ``gpu``, else on the first GPU that has rows; None where nothing judged it."""
    path = kernels_dir().parent / "validation" / "held_out.toml"
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    for name in (gpu, *table):
        found = table.get(name, {}).get(kernel, {}).get(CYCLES)
        if found is not None:
            return Expected(p90_pct=float(found), gpu=name)
    return None
