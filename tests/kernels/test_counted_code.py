"""Code of counted launches: what is launched, what a flush costs, what the twin answers."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from gpusim.evidence.cases.case import load_case
from gpusim.evidence.toolchain.cuda_toolkit import Cubin
from gpusim.evidence.toolchain.sass import read_sass
from gpusim.machine.config import load_gpu

CASE = load_case("counted_code")
case = sys.modules[CASE.launch.__module__]


def test_both_groups_ask_the_same_and_one_flushes() -> None:
    flushed, kept = ([{**config, "caches": ""} for config in CASE.configs(group, 1)] for group in ("flushed", "kept"))
    assert flushed == kept and len(flushed) == 36
    assert CASE.groups["flushed"].is_cold and not CASE.groups["kept"].is_cold
    for config in flushed:
        launch = CASE.launch(config, True)
        assert launch.grid == (132, 1, 1) and launch.block[0] == 32 * int(config["warps"])


def test_each_size_is_in_both_halves() -> None:
    configs = CASE.configs("flushed", 1)
    halves = [{config["kib"] for config in configs[at::2]} for at in (0, 1)]
    assert halves[0] == halves[1] == {str(kib) for kib in case.SIZES_KIB}


def test_the_twin_waits_for_memory_where_caches_are_flushed() -> None:
    gpu = load_gpu("h200_sxm")
    kept, flushed = (
        CASE.predict(case.Config("straight", caches, 8, 1, 4), gpu)[case.CYCLES] for caches in ("kept", "flushed")
    )
    waited = gpu.hbm.latency_ns * gpu.clock.max_mhz / 1000
    assert flushed - kept > 8 * 1024 / gpu.instruction_cache.prefetched_bytes * waited / 2


def test_code_from_the_first_instruction_on_is_as_long_as_it_says(built: Callable[[str, str], Cubin]) -> None:
    kernels = read_sass(built("counted_code", "sm_90a").path)
    for kib in case.ONCE_KIB:
        added = kernels[f"once_{kib}"].select("FFMA")
        assert len(added) == kib * 64 and not kernels[f"once_{kib}"].loops[:-1]
        assert added[0].address < 1024 and added[-1].address - added[0].address < (kib + 1) * 1024


def test_what_a_launch_brings_along_is_found_again() -> None:
    """Of rows that take 150 cycles a KiB up to 66 KiB, and 900 beyond."""
    rows = [
        {**config, case.CYCLES: str(5000 + 150 * kib + 750 * max(0, kib - 66))}
        for config in CASE.configs("once_flushed", 1) for kib in (int(config["kib"]),)
    ]  # fmt: skip
    for half in (rows[::2], rows[1::2], rows):
        (found,) = CASE.fit(half)
        assert found.parameter == "instruction_cache.launch_fetched_bytes" and found.value == pytest.approx(66 * 1024)
    assert not CASE.fit([row for row in rows if int(row["kib"]) <= 64])


def test_the_twin_waits_for_what_its_launch_does_not_bring_along() -> None:
    gpu = load_gpu("h200_sxm")
    cycles = {
        (caches, kib): CASE.predict({**config, "caches": caches}, gpu)[case.CYCLES]
        for caches in ("kept", "flushed") for config in CASE.configs("once_flushed", 1) if (kib := int(config["kib"])) >= 48
    }  # fmt: skip
    cold = cycles["flushed", 48] - cycles["kept", 48]
    assert cycles["flushed", 64] - cycles["kept", 64] == pytest.approx(cold)
    assert 700 < (cycles["flushed", 128] - cycles["flushed", 96]) / 32 < 1100
