"""CTA turnover: the check refuses a wrong byte, what stores add is read off slopes, code is the same whoever stores."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import Config, load_case
from gpusim.evidence.toolchain.sass import KernelSass

CASE = load_case("cta_turnover")
case = sys.modules[CASE.launch.__module__]
SPINS, LOADS = CASE.configs("spins", 1), CASE.configs("loads", 1)
GPU = load_gpu("h200_sxm")
Sass = Callable[[str, str], dict[str, KernelSass]]


def config_of(kernel: str, *, threads: int = 256, ctas: int = 1, spin: int = 1000, turns: int = 200) -> Config:
    made: Config = case.Config(kernel, threads, ctas, spin, turns)
    return made


def right(config: Config) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """What a right kernel leaves in the windows."""
    return np.concatenate([case.expected(config, *window) for window in case._out(config).windows])


def test_every_store_meets_every_place_spin_and_number_of_turns_and_what_calibrates_is_even() -> None:
    assert len(SPINS) == 5 * 3 * 2 * 2 * 2
    assert len(LOADS) == 2 * 3 * 2 * 2
    alone = {idx for idx, config in enumerate(SPINS) if config["threads"] == "256" and config["ctas_per_sm"] == "1"}
    assert len(alone) == 5 * 2 * 2 and all(idx % 2 == 0 for idx in alone)
    for config in (*SPINS, *LOADS):
        launched = CASE.launch(config, False)
        turns = 1 if config["kernel"] == "load_loop" else int(config["turns"])
        assert launched.grid == (132 * int(config["ctas_per_sm"]) * turns, 1, 1)


def test_as_many_threads_store_as_their_kernel_s_name_says() -> None:
    of_slot = {
        kernel: int((case.expected(config_of(kernel), 4096, 4096).view(np.uint32) != case.NO_WORD).sum())
        for kernel in case.SPINS + case.LOADS
    }
    assert of_slot == {
        "nothing": 0, "word": 1, "words": 8, "vector": 4 * 256, "early": 4 * 256, "load": 0, "load_loop": 0,
    }  # fmt: skip
    first = case.expected(config_of("word"), 4096, 16).view(np.uint32)
    assert [int(word) for word in first] == [256, *[case.NO_WORD] * 3]


def rows(more: dict[str, float]) -> list[dict[str, str]]:
    """CTAs of 256 threads, one an SM, take 1,400 cycles and what they store; others far more; a launch 5,000 beside."""
    return [
        {
            **config, "group": "spins",
            case.CYCLES: str(
                5000 + int(config["turns"]) * (
                    int(config["spin_cycles"]) + 400 + more[config["kernel"]]
                    + (0 if (config["threads"], config["ctas_per_sm"]) == ("256", "1") else 900)
                )
            ),
        }
        for config in SPINS if config["kernel"] in more
    ]  # fmt: skip


def test_what_stores_at_the_end_add_is_read_off_rows_that_hold_it() -> None:
    whole = rows({"nothing": 0.0, "word": 60.0, "words": 500.0, "vector": 80.0, "early": -700.0})
    for given in (whole, [row for row in whole if row["threads"] == "256"]):
        assert [(item.parameter, item.value) for item in CASE.fit(given)] == [("dispatcher.store_exit_cycles", 70.0)]


def test_nothing_is_fitted_without_what_stores_nothing_or_with_one_number_of_turns() -> None:
    whole = rows({"nothing": 0.0, "word": 60.0, "vector": 80.0})
    assert CASE.fit([row for row in whole if row["kernel"] != "nothing"]) == []
    assert CASE.fit([row for row in whole if row["turns"] == "200"]) == []
    assert CASE.fit(SPINS) == []


def cycles(kernel: str, *, store_exit_cycles: float, **shape: int) -> float:
    """Of a launch of few turns."""
    gpu = replace(GPU, dispatcher=replace(GPU.dispatcher, store_exit_cycles=store_exit_cycles))
    return float(CASE.predict(config_of(kernel, **shape), gpu)[case.CYCLES])


def test_a_cta_that_stores_at_its_end_is_out_later_and_its_spin_is_as_long_as_it_says() -> None:
    nothing, longer = (cycles("nothing", store_exit_cycles=300.0, spin=spin, turns=4) for spin in (1000, 3000))
    assert longer - nothing == pytest.approx(4 * 2000, rel=0.01)
    of = {
        kernel: cycles(kernel, store_exit_cycles=300.0, turns=4) - cycles(kernel, store_exit_cycles=0.0, turns=4)
        for kernel in ("nothing", "word", "early")
    }
    assert of["nothing"] == of["early"] == 0.0
    assert 3 * 250.0 < of["word"] <= 4 * 300.0


def test_a_cta_that_loads_and_leaves_takes_longer_than_a_turn_that_loads() -> None:
    leaves, stays = (cycles(kernel, store_exit_cycles=0.0, threads=32, spin=0, turns=8) for kernel in ("load", "load_loop"))
    assert leaves > stays + 7 * GPU.dispatcher.cta_start_cycles


def test_a_gpu_of_another_number_of_sms_has_no_answer() -> None:
    assert CASE.predict(config_of("load", spin=0), load_gpu("h100_pcie")) == {}


def test_registers_are_the_compiler_s_and_code_is_the_same_whoever_stores(sass: Sass) -> None:
    kernels = sass("cta_turnover", "sm_90a")
    assert {config["kernel"] for config in (*SPINS, *LOADS)} == set(kernels)
    for name, kernel in kernels.items():
        assert kernel.num_registers == case.REGISTERS[name] and kernel.num_spills == 0
    code = {name: [(item.opcode, item.operands) for item in kernel.instructions] for name, kernel in kernels.items()}
    assert code["nothing"] == code["word"] == code["words"]
    for name in case.SPINS:
        loop = kernels[name].main_loop
        assert loop is not None
        behind = [item for item in kernels[name].instructions if item.address > loop.instructions[-1].address]
        assert not {"IMAD", "LDC", "S2R"} & {item.name for item in behind}, name  # addresses are made before the spin
        assert "STG" in {item.name for item in behind}
