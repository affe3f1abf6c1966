"""grid_counter: counters have every CTA, exactly one is the last, fences and atomics are those of the SASS."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim import load_gpu
from gpusim.evidence.cases.case import WrongAnswer, load_case
from gpusim.kernel_models.grid_reduction import COUNT

from .conftest import Sass

CASE = load_case("grid_counter")
case = sys.modules[CASE.launch.__module__]
CONFIGS = [case.Config.of(config) for group in CASE.groups for config in CASE.configs(group, 1)]
SMALL = [case.Config("fence_atomic", num_ctas=5, num_counters=2, num_stored=1)]


def outputs_of(config: Any) -> dict[str, NDArray[np.uint32]]:
    """What a right launch leaves."""
    config = case.Config.of(config)
    told = np.tile(np.array([20, 700, 500, 300], dtype="<u4"), case.ROUNDS * config.num_ctas)
    last = np.zeros(config.num_ctas, dtype="<u4")
    if config.kernel != "fence":
        last[: min(config.num_ctas, config.num_counters)] = case.ROUNDS
    flags = np.zeros(case.FLAG_WORDS, dtype="<u4")
    return {"counters": case.wanted_counters(config), "flags": flags, "told": np.concatenate([told, last])}


@pytest.mark.parametrize("config", [*SMALL, *CONFIGS[-8:]], ids=str)
def test_a_right_answer_gives_the_cycles_of_each_part(config: Any) -> None:
    found = CASE.check(config, outputs_of(config))
    assert (found["stores_cycles"], found["first_fence_cycles"], found["atomic_most_cycles"]) == (20.0, 700.0, 500.0)


@pytest.mark.parametrize(("name", "place", "says"), [
    ("counters", 32, "a counter does not have every CTA"), ("flags", 1, "a wait was given up"),
    ("told", -1, "CTAs were the last of their counter"),
])  # fmt: skip
def test_a_wrong_answer_is_refused(name: str, place: int, says: str) -> None:
    outputs = outputs_of(SMALL[0])
    outputs[name][place] += 1
    with pytest.raises(WrongAnswer, match=says):
        CASE.check(SMALL[0], outputs)


def test_the_model_waits_for_stores_at_the_fence_and_for_the_answer_of_the_atomic() -> None:
    gpu = load_gpu("h200_sxm")
    none, one = (
        CASE.predict(case.Config("fence_atomic", num_ctas=132, num_counters=1, num_stored=num), gpu) for num in (0, 1)
    )
    assert none["first_fence_cycles"] < one["first_fence_cycles"] and one["atomic_cycles"] > 300.0


def test_fences_and_atomics_are_those_of_the_names(sass: Sass) -> None:
    for name, kernel in sass("grid_counter", "sm_90a").items():
        fences = [item for item in kernel.instructions if item.opcode.startswith("MEMBAR")]
        plain = [item for item in kernel.select("ATOMG") if "ADD" in item.opcode]
        assert len(fences) >= 2 and plain, name  # CTAs meet by fences and atomics, too
    counts = {
        name: sum(item.opcode.startswith("MEMBAR") for item in kernel.instructions)
        for name, kernel in sass("grid_counter", "sm_90a").items()
    }
    assert counts["fence"] == counts["fence_atomic"] == counts["atomic"] + 2


def test_what_sums_add_to_a_counter_is_what_this_kernel_takes_beyond_the_model() -> None:
    gpu = load_gpu("h200_sxm")
    assert CASE.predict is not None
    found = CASE.predict(case.Config("fence_atomic", num_ctas=132, num_counters=8, num_stored=1), gpu)
    simulated = sum(found.values()) + gpu.warp_scheduler.gpu_fence_cycles
    assert pytest.approx(616.5 + 714 + 470.5 - simulated, abs=4) == 4 * COUNT
