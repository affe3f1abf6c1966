"""shared_turns: sums and stores are checked, and the twin answers."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gpusim.evidence.cases.case import Config, load_case
from gpusim.machine.config import load_gpu

from .conftest import Sass

CASE = load_case("shared_turns")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of


def outputs_of(config: Config) -> dict[str, np.ndarray]:
    """What the kernel must leave, round by round."""
    loads, _, stores, _, ways = case.parts(typed(config))
    lines, times = case.lines(), np.zeros(1, dtype=case.TIMES)
    stored = np.zeros_like(lines)
    lane = np.arange(32, dtype=np.uint32)
    sums = np.zeros((case.WARPS, 32), dtype=np.uint32)
    for num in range(case.NUM_ROUNDS):
        for i in range(case.EACH):
            at = (num * case.EACH + i) % case.LINES
            near = lane * np.uint32(ways) + np.uint32(i)
            sums += near
            if loads != "noload":
                sums += lines[:, at]
            if stores:
                stored[:, at] = near
    num_warps = int(config["warps"])
    stored[num_warps:] = sums[num_warps:] = 0
    times["sum"] = sums.reshape(-1)
    times["begin"][:, :num_warps], times["end"][:, :num_warps] = 100, 100 + 5 * case.NUM_ROUNDS
    return {"lines": lines, "stored": stored, "times": times}


def test_rounds_have_the_accesses_that_their_names_say(sass: Sass) -> None:
    for name, kernel in sass("shared_turns", "sm_90a").items():
        loads, writes, stores, meets, _ = case.parts(typed({"kernel": name, "ways": "1", "warps": "32"}))
        loop = kernel.main_loop
        assert loop is not None
        has = {"LDG": loads != "noload", "STS": writes, "LDS": True, "STG": stores}
        for opcode, is_there in has.items():
            assert len(loop.select(opcode)) == (case.EACH if is_there else 0), (name, opcode)
        assert len(loop.select("BAR")) == meets
        assert kernel.num_spills == 0


def test_conflicts_cost_the_twin_a_cycle_a_wavefront() -> None:
    gpu = load_gpu("h200_sxm")
    config = {"kernel": "noload_nowrite_nostore_apart", "warps": "32"}
    few, many = (CASE.predict({**config, "ways": ways}, gpu)["cycles_per_round"] for ways in ("16", "32"))
    assert many - few == pytest.approx(case.EACH * 16 * case.WARPS, rel=0.05)
