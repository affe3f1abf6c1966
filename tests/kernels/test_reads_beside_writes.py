"""Reads beside writes: the check refuses wrong words and crowded SMs, values are worked out, waits give parameters back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim import load_gpu
from gpusim.evidence.cases.case import Config, WrongAnswer, load_case
from gpusim.evidence.toolchain.sass import KernelSass

CASE = load_case("reads_beside_writes")
case = sys.modules[CASE.launch.__module__]
CONFIGS = CASE.configs("mixes", 1)
Sass = Callable[[str, str], dict[str, KernelSass]]
TURNS = 40
MIXED_NS, TURN_NS = 440.0, 30.0
CLOCK_MHZ = 1800.0


def _one(kernel: str, write_pause: str) -> Config:
    return next(item for item in CONFIGS if item["kernel"] == kernel and item["write_pause_cycles"] == write_pause)


def _outputs(config: Config) -> dict[str, NDArray[Any]]:
    """What a right launch leaves: warps with 40 turns and 41 by turns, of which 10 count, loads of 500 and of 700 cycles."""
    records = np.zeros(2 * case.NUM_WARPS, dtype=case.RECORD)
    cta, warp = np.divmod(np.arange(len(records)), 8)
    reads, is_writing = cta % 2 == 1, config["write_pause_cycles"] != "0"
    records["sm"] = cta % 132
    records["num_turns"] = np.where(reads | is_writing, TURNS + warp % 2, 0)
    records["num_counted"] = np.where(reads | is_writing, 10, 0)
    records["run_cycles"], records["run_ns"] = 720_000, 400_000
    records["load_cycles"] = np.where(reads, 6000, 0)
    records["load_cycles_squared"] = np.where(reads, 5 * 500**2 + 5 * 700**2, 0)
    if config["kernel"].endswith("meet"):
        records["met_cycles"] = np.where(reads & (warp == 0), 9000, 0)
    size = case.PIECE_BYTES[config["kernel"]] // 4
    given, num_pieces = case.words(), len(case.words()) // size
    for idx in np.flatnonzero(reads):
        pieces = (np.arange(records["num_turns"][idx]) * 132 + cta[idx] // 2) * 8 + warp[idx]
        told = given.reshape(-1, size)[pieces % num_pieces]
        records["words_sum"][idx] = told.sum(dtype=np.uint32)
    out = np.full(32 * case.MIB // 4, 0xFFFFFFFF, dtype=np.uint32).reshape(-1, 8, 32, 4)  # CTAs in a row, warps, lanes
    out = np.concatenate([out, np.full((-len(out) % 132, 8, 32, 4), 0xFFFFFFFF, dtype=np.uint32)])
    at = np.arange(out.size // 4, dtype=np.uint32).reshape(out.shape[:3])
    numbers = np.stack([at, ~at, np.full_like(at, 7), np.full_like(at, 9)], axis=-1)
    for of_warp in range(8 if is_writing else 0):
        rows = slice(0, 132 * (TURNS + of_warp % 2))
        out[rows, of_warp] = numbers[rows, of_warp]
    flat, windows = out.reshape(-1).view(np.uint8), case.output()
    parts = [
        flat[offset : offset + num] if offset < 32 * case.MIB else np.full(num, 0xFF, dtype=np.uint8)
        for offset, num in windows.windows
    ]
    return {"records": records, "out": np.concatenate(parts), "state": np.array([264, 0], dtype=np.uint32)}


@pytest.mark.parametrize("kernel", case.PIECE_BYTES)
@pytest.mark.parametrize("write_pause", ["0", "700"])
def test_a_right_launch_passes_and_a_wrong_word_does_not(kernel: str, write_pause: str) -> None:
    config = _one(kernel, write_pause)
    right = _outputs(config)
    values = CASE.check(config, right)
    assert set(values) == set(CASE.values) - (set() if kernel.endswith("meet") else {"met_mean_cycles"})
    assert values["load_mean_cycles"] == 600.0 and values["load_deviation_cycles"] == pytest.approx(100.0)
    assert values.get("met_mean_cycles", 900.0) == 900.0 and values["sm_clock_mhz"] == pytest.approx(CLOCK_MHZ)
    loads_per_ns = 132 * 8 * 10 / 380_000
    assert values["read_gb_per_s"] == pytest.approx(loads_per_ns * case.PIECE_BYTES[kernel])
    assert values["write_gb_per_s"] == pytest.approx(loads_per_ns * 512 if write_pause != "0" else 0.0)
    wrong = {**right, "records": right["records"].copy()}
    wrong["records"]["words_sum"][8 + 3] ^= 1
    with pytest.raises(WrongAnswer, match="warp 3 "):
        CASE.check(config, wrong)
    for place in (0, -1):
        wrong = {**right, "out": right["out"].copy()}
        wrong["out"][place] ^= 1
        with pytest.raises(WrongAnswer, match="byte"):
            CASE.check(config, wrong)


def test_a_launch_whose_ctas_were_not_there_at_once_or_crowd_or_write_unasked_is_refused() -> None:
    config = _one("line", "700")
    right = _outputs(config)
    crowded = {**right, "records": right["records"].copy()}
    crowded["records"]["sm"][:8] = 1
    with pytest.raises(WrongAnswer, match="2 on each"):
        CASE.check(config, crowded)
    with pytest.raises(WrongAnswer, match="at once"):
        CASE.check(config, {**right, "state": np.array([264, 1], dtype=np.uint32)})
    with pytest.raises(WrongAnswer, match="nobody"):
        CASE.check(_one("line", "0"), right)


def test_configs_are_all_mixes_and_every_second_pause_of_readers_calibrates() -> None:
    assert len(CONFIGS) == 112 == len({tuple(config.values()) for config in CONFIGS})
    assert {config["read_pause_cycles"] for config in CONFIGS[::2]} == {"4000", "500"}
    assert {config["read_pause_cycles"] for config in CONFIGS[1::2]} == {"1500", "0"}


def test_a_load_is_timed_when_it_has_come_and_nothing_spills(sass: Sass) -> None:
    """The walk has the last load; what came is compared before the clock is read again, and the barrier lies behind that."""
    kernels = sass("reads_beside_writes", "sm_90a")
    assert set(kernels) == set(case.PIECE_BYTES)
    for name, kernel in kernels.items():
        assert kernel.num_spills == 0
        loads = [idx for idx, item in enumerate(kernel.instructions) if item.name == "LDG"]
        last = kernel.instructions[loads[-1]]
        assert (".128" in last.opcode) == name.startswith("vector")
        behind = kernel.instructions[loads[-1] + 1 :]
        clocks = [idx for idx, item in enumerate(behind) if "SR_CLOCKLO" in item.operands]
        came = last.operands.split(",")[0]
        looked = [idx for idx, item in enumerate(behind) if item.name == "ISETP" and f" {came}," in item.operands]
        assert looked[0] < clocks[0]
        barriers = [idx for idx, item in enumerate(behind) if item.name == "BAR"]
        assert clocks[0] < barriers[0] < clocks[1] if name.endswith("meet") else not barriers


def _rows() -> list[dict[str, str]]:
    """Rows that the law makes, where reads and writes take what they take; above the limit they wait without bounds."""
    peak = load_gpu("h200_sxm").hbm.peak_gb_per_s
    rows = []
    for config in CONFIGS:
        pauses = case.READ_PAUSES.index(int(config["read_pause_cycles"])), int(config["write_pause_cycles"])
        read = (0.03, 0.07, 0.12, 0.2)[pauses[0]] * (4.0 if "vector" in config["kernel"] else 1.0) / 4.0
        write = 120.0 / pauses[1] if pauses[1] else 0.0
        alone = load_gpu("h200_sxm").hbm.read_behind_write_wait_ns * write
        wait = (MIXED_NS * (read * write) ** 0.5 + alone) / (1.0 - write) + (1e4 if read + write >= 0.7 else 0.0)
        rows.append({
            "group": "mixes", **config, "read_gb_per_s": str(read * peak), "write_gb_per_s": str(write * peak),
            "load_mean_cycles": str(850.0 + wait * CLOCK_MHZ / 1e3),
            "load_deviation_cycles": str((100.0**2 + wait * TURN_NS * (CLOCK_MHZ / 1e3) ** 2) ** 0.5),
            "sm_clock_mhz": str(CLOCK_MHZ),
        })  # fmt: skip
    return rows


@pytest.mark.parametrize("half", [0, 1])
def test_rows_that_the_law_makes_give_its_parameters_back(half: int) -> None:
    found = {item.parameter: item.value for item in CASE.fitted(_rows()[half::2], load_gpu("h200_sxm"))}
    assert found == pytest.approx(
        {"hbm.read_write_turnaround_wait_ns": MIXED_NS, "hbm.write_burst_ns": TURN_NS}, rel=1e-6
    )


def test_nothing_is_fitted_where_nobody_wrote_or_nothing_was_measured() -> None:
    assert CASE.fitted([], load_gpu("h200_sxm")) == []
    assert CASE.fitted([row for row in _rows() if row["write_pause_cycles"] == "0"], load_gpu("h200_sxm")) == []
