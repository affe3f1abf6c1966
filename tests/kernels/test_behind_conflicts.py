"""behind_conflicts: right sums pass, wrong ones do not; kernels hold what their names say; the twin's loads wait in line."""

from __future__ import annotations

import sys
from itertools import pairwise

import numpy as np
import pytest

from gpusim.evidence.cases.case import Config, load_case
from gpusim.machine.config import load_gpu

from .conftest import Sass

CASE = load_case("behind_conflicts")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
ALL = CASE.configs("probes", 1)
INSTRUCTIONS = {
    "load": "LDG", "hit": "LDG", "store": "STG", "shared_load": "LDS", "shared_store": "STS", "copy": "LDGSTS",
    "copy_through": "LDGSTS",
}  # fmt: skip


def config(**options: str) -> Config:
    """The one that has these options."""
    wanted = {"probe": "load", "ways": "32", "ahead": "each", "delay": "40"} | options
    (found,) = [item for item in ALL if wanted.items() <= item.items()]
    return found


def outputs_of(config: Config) -> dict[str, np.ndarray]:
    """What a launch leaves in which warps ahead take 30 and 90 cycles, and the prober, 45 later, 10 and 70."""
    clocks = np.zeros((case.ROUNDS, case.WARPS, 3), dtype="<u4")
    clocks[:, :, 0], clocks[:, :, 1], clocks[:, :, 2] = 400, 430, 490
    clocks[:, case.PROBER] = 445, 455, 515
    stored = np.full(32, case.ROUNDS - 1 if config["probe"] == "store" else 0, dtype="<u4")
    return {"clocks": clocks, "sums": case.sums(typed(config)).astype("<u4"), "stored": stored}


def test_kernels_hold_what_their_names_say_between_their_clocks(sass: Sass) -> None:
    kernels = sass("behind_conflicts", "sm_90a")
    for probe, num in {(config["probe"], config["num"]) for config in ALL}:
        kernel = kernels[case.entry(probe, int(num))]
        assert kernel.num_spills == 0
        clocks = [idx for idx, item in enumerate(kernel.instructions) if "SR_CLOCKLO" in item.operands]
        between = [
            [item.name for item in kernel.instructions[since:until] if item.name in {"LDS", *INSTRUCTIONS.values()}]
            for since, until in pairwise(clocks)
        ]
        if num != "0":
            assert ["LDS"] * int(num) in between, (probe, num)
        if probe != "none":
            assert [INSTRUCTIONS[probe]] in [items[-1:] for items in between], (probe, num)


def test_a_load_of_the_twin_waits_for_what_is_ahead_whoever_asked_but_for_what_replays() -> None:
    gpu = load_gpu("h200_sxm")
    replayed = gpu.smem.overtakable_wavefronts
    alone = CASE.predict(config(num="0", ahead="same", ways="2"), gpu)["probe_cycles"]
    few = CASE.predict(config(num="8", ways="2", delay="160"), gpu)["probe_cycles"]
    assert few == pytest.approx(alone, abs=1.0)  # all is served by then
    waits = {
        (ahead, num): CASE.predict(config(num=num, ahead=ahead), gpu)["probe_cycles"] - alone
        for ahead in ("each", "same_two", "other_two") for num in ("4", "8")
    }  # fmt: skip
    for (ahead, num), waited in waits.items():
        wavefronts = 32 * int(num) * len(case.AHEAD[ahead])
        assert waited == pytest.approx(wavefronts - replayed - 40, abs=0.05 * wavefronts), (ahead, num)
    assert waits["same_two", "8"] == pytest.approx(waits["other_two", "8"], abs=2.0)
