"""shared_data_stage: sums and stores are checked, and the twin answers."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gpusim.evidence.cases.case import Config, load_case
from gpusim.machine.config import load_gpu

from .conftest import Sass

CASE = load_case("shared_data_stage")
case = sys.modules[CASE.launch.__module__]


def outputs_of(config: Config) -> dict[str, np.ndarray]:
    """What the kernel must leave, round by round."""
    kind, many, ways = case.parts(config)
    lines, times = case.lines(), np.zeros(1, dtype=case.TIMES)
    sums = np.zeros((case.WARPS, 32), dtype=np.uint32)
    for num in range(-1 if kind == "load_hit" else 0, case.NUM_ROUNDS):
        for i in range(many):
            at = i if kind == "load_hit" else (num * many + i) % case.LINES
            if kind == "store":
                lines[:, at] = np.arange(32)
            else:
                sums += lines[:, at]
        if num >= 0:
            sums += np.uint32(2) * np.arange(32, dtype=np.uint32) * np.uint32(ways)
    times["sum"] = sums.reshape(-1)
    times["begin"], times["end"] = 100, 100 + 5 * case.NUM_ROUNDS
    return {"lines": lines, "times": times}


def test_rounds_have_the_accesses_that_their_names_say(sass: Sass) -> None:
    for name, kernel in sass("shared_data_stage", "sm_90a").items():
        kind, many, _ = case.parts({"kernel": name, "ways": "1"})
        loop = kernel.main_loop
        assert loop is not None
        assert len(loop.select("STG" if kind == "store" else "LDG")) == many
        assert len(loop.select("LDS")) == 2


def test_conflicts_cost_the_twin_a_cycle_a_wavefront() -> None:
    gpu = load_gpu("h200_sxm")
    few, many = (CASE.predict({"kernel": "load_hit_0", "ways": ways}, gpu)["cycles_per_round"] for ways in ("16", "32"))
    assert many - few == pytest.approx(2 * 16 * case.WARPS, rel=0.05)
