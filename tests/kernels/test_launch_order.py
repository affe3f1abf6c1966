"""Marks of CTAs: clocks of SMs laid side by side, order and gaps read off them; the dispatcher by the same rule."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gpusim import GpuSpec, load_gpu
from gpusim.evidence.cases.case import Config, WrongAnswer, load_case
from gpusim.evidence.cases.rows import Table
from gpusim.evidence.toolchain.sass import KernelSass
from gpusim.evidence.validate.calibrate import halves
from gpusim.machine.dispatcher import first_sms

CASE = load_case("launch_order")
GPU = load_gpu("h200_sxm")
MEASURED = Path(__file__).resolve().parents[2] / "validation/measured/h200_sxm/launch_order.csv"
case = sys.modules[CASE.launch.__module__]
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]
Sass = Callable[[str, str], dict[str, KernelSass]]

GHZ = 1.9
STEP_NS = 32


def marks_of(
    sms: NDArray[np.int64], starts: NDArray[np.float64], stays: NDArray[np.int64], num_aligned: int, seed: int = 0
) -> dict[str, NDArray[np.generic]]:
    """What CTAs would write that start at ``starts`` (cycles that all share), on SMs whose clocks are far apart."""
    rng = np.random.default_rng(seed)
    ahead = rng.integers(0, 2**40, case.NUM_SMS)

    def ns(cycles: NDArray[np.float64]) -> NDArray[np.int64]:
        return 10**12 + np.floor(cycles / GHZ / STEP_NS).astype(np.int64) * STEP_NS

    ends = starts + stays + 10.0
    pairs = np.zeros((num_aligned, case.NUM_PAIRS, 2), dtype=np.int64)
    for cta in range(num_aligned):
        at = starts[cta] + np.where(np.arange(case.NUM_PAIRS) < case.NUM_PAIRS / 2, 0.0, 200_000 * GHZ)
        change = (np.floor(at / GHZ / STEP_NS) + 1 + np.arange(case.NUM_PAIRS) % 4) * STEP_NS * GHZ
        pairs[cta, :, 0] = change + rng.uniform(5, 30, case.NUM_PAIRS) + ahead[sms[cta]]  # seen some cycles later
        pairs[cta, :, 1] = ns(change + 1e-3)
    begins = (starts + ahead[sms]).astype(np.int64)
    marks = np.stack([sms, begins, (ends + ahead[sms]).astype(np.int64), ns(starts), ns(ends)], axis=1)
    return {"marks": marks, "pairs": pairs}


def find(group: str, **fields: int) -> Config:
    return next(
        config for config in CASE.configs(group, 1)
        if all(config[name] == str(number) for name, number in fields.items())
    )  # fmt: skip


def test_grids_are_whole_clusters_and_ctas_fit() -> None:
    for config in CONFIGS:
        assert int(config["grid"]) % int(config["cluster"]) == 0
        assert int(config["threads"]) * int(config["registers"]) <= 65536
        assert int(config["smem_bytes"]) <= 232_448
        assert int(config["first"]) < int(config["grid"])


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 8, 16, 32])
def test_shared_memory_admits_the_slots_and_no_more(slots: int) -> None:
    each = case.smem_of(slots) + 1024
    assert 233_472 // each == slots


def test_both_clocks_are_read_before_anything_else(sass: Sass) -> None:
    for name, kernel in sass("launch_order", "sm_90a").items():
        if name != "empty":
            first = [item.operands for item in kernel.instructions if item.name == "CS2R"][:2]
            assert "SR_CLOCKLO" in first[0] and "SR_GLOBALTIMERLO" in first[1]
            before = kernel.instructions[: [item.operands for item in kernel.instructions].index(first[0])]
            assert not any(item.name in ("LDG", "BAR", "S2R", "BRA") for item in before), name
            assert kernel.num_spills == 0


def test_kernels_have_the_registers_of_their_names(sass: Sass) -> None:
    kernels = sass("launch_order", "sm_90a")
    assert {name: kernels[f"mark_{name}"].num_registers for name in ("r32", "r64", "r128", "r255")} == {
        "r32": 32, "r64": 64, "r128": 128, "r255": 255
    }  # fmt: skip
    assert all(kernels[f"mark_c{size}"].num_registers <= case.CLUSTER_REGISTERS for size in (2, 4, 8))


def test_an_empty_kernel_is_empty(sass: Sass) -> None:
    assert set(sass("launch_order", "sm_90a")["empty"].opcodes) <= {"LDC", "EXIT", "BRA"}


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_clocks_that_are_far_apart_are_laid_side_by_side(seed: int) -> None:
    """Starts are found again within some tens of cycles, which is how late a change of the nanoseconds is seen."""
    config = find("start", slots=1, threads=32, cluster=1)
    rng = np.random.default_rng(seed)
    sms = rng.permutation(case.NUM_SMS)
    starts = np.cumsum(rng.uniform(0.5, 3.0, case.NUM_SMS))
    values = CASE.check(config, marks_of(sms, starts, case.stays(config), case.NUM_SMS, seed))
    assert values["sm_mhz"] == pytest.approx(1e3 * GHZ, rel=2e-4)
    assert abs(values["ramp_cycles"] - (starts[-1] - starts[0])) < 40
    assert [values[f"sm_of_cta_{idx}"] for idx in range(case.NUM_SMS)] == list(sms)


def test_a_slot_is_refilled_so_long_after_it_was_left() -> None:
    config = find("refill", slots=1, stay_cycles=2000, spread_cycles=0, threads=32)
    grid = int(config["grid"])
    turn, sms = np.divmod(np.arange(grid), case.NUM_SMS)
    starts = sms * 1.5 + turn * (2010.0 + 640.0) + np.where(turn > 0, 400_000.0, 0.0)
    outputs = marks_of(sms, starts, case.stays(config), case.NUM_SMS)
    values = CASE.check(config, outputs)
    assert values["num_refills"] == grid - case.NUM_SMS
    assert values["least_gap_cycles"] == pytest.approx(640.0, abs=2)
    assert values["most_at_once"] == 1.0


def test_freed_slots_that_are_taken_in_order_are_recognized() -> None:
    sms = np.array([0, 1, 2, 2, 1, 0])
    starts = np.array([0.0, 0, 0, 150, 250, 350])
    ends = np.array([300.0, 200, 100, 400, 500, 600])
    found = case.facts(sms, starts, ends, first=3)
    assert (found["fifo_pct"], found["gap_cycles"], found["most_at_once"]) == (100.0, 50.0, 1.0)
    assert [found[f"sm_of_cta_{idx}"] for idx in range(3)] == [2.0, 1.0, 0.0]
    other = case.facts(np.array([0, 1, 2, 0, 1, 2]), starts + np.array([0, 0, 0, 250, 50, 0]), ends + 400.0, first=0)
    assert other["most_at_once"] == 2.0


def test_a_cta_without_a_mark_or_gone_too_soon_is_no_answer() -> None:
    config = find("tail", slots=2, grid=133)
    sms = np.arange(133) % case.NUM_SMS
    starts = np.arange(133) * 1.5
    outputs = marks_of(sms, starts, case.stays(config), 0)
    assert CASE.check(config, outputs)["most_ctas"] == 2.0
    outputs["marks"][7] = -1
    with pytest.raises(WrongAnswer, match="CTA 7 left no mark"):
        CASE.check(config, outputs)
    outputs = marks_of(sms, starts, case.stays(config) - 100, 0)
    with pytest.raises(WrongAnswer, match="stayed too short"):
        CASE.check(config, outputs)


def test_more_ctas_at_once_than_fit_are_no_answer() -> None:
    config = find("tail", slots=2, grid=133)
    outputs = marks_of(np.arange(133) % 44, np.arange(133) * 1.5, case.stays(config), 0)
    with pytest.raises(WrongAnswer, match="at once"):
        CASE.check(config, outputs)


def test_the_simulators_grid_fills_every_sm_in_its_order_and_is_seen_there_at_once() -> None:
    found = CASE.predict(find("start", slots=4, repeat=0), GPU)
    order = first_sms(GPU.dispatcher, GPU.floorplan)
    assert [found[f"sm_of_cta_{cta}"] for cta in range(132)] == order
    assert found["most_ctas"] == found["least_ctas"] == found["most_at_once"] == 4.0


def test_where_slots_fall_free_fast_the_grids_rate_is_that_of_noted_exits() -> None:
    """But for the first wave, the last starts, and what lies between the first exit and the first refill."""
    spec = GPU.dispatcher
    found = CASE.predict(find("rate", slots=16, threads=32, cluster=1), GPU)
    refills = 8448 - 132 * 16
    begin = case.MARK_CYCLES + spec.cta_exit_cycles + spec.cta_start_cycles
    assert found["ramp_cycles"] == pytest.approx(begin + refills * spec.retire_cycles_per_cta, abs=2 * spec.round_cycles)


def test_ctas_go_to_the_sms_that_calibrating_rows_have_seen() -> None:
    """One wave, and what is left of a grid beyond whole waves; lone pairs, of which all four come first, in any order."""
    rows, _ = halves(CASE, Table.read(MEASURED))
    num_compared = 0
    for row in rows:
        if row["group"] == "start" and row["cluster"] != "2" and int(row["grid"]) <= 132:
            first = 8 if row["cluster"] == "1" else 0
        elif row["group"] == "tail" and row["slots"] == "3" and int(row["grid"]) - int(row["first"]) > 1:
            first = 0
        else:
            continue
        config = {name: row[name] for name in ("kernel", *CASE.columns)}
        found = CASE.predict(config, GPU)
        seen = [name for name in found if name.startswith("sm_of_cta_")]
        assert [found[name] for name in seen[first:]] == [float(row[name]) for name in seen[first:]]
        num_compared += 1
    assert num_compared > 8


def test_what_marks_do_not_tell_is_not_said() -> None:
    """Ramps of a few steps of the nanoseconds, clocks that drift, gaps after CTAs that leave at once."""
    for group, config in (("start", find("start", slots=4, repeat=0)), ("tail", find("tail", slots=2, grid=133))):
        found = CASE.predict(config, GPU)
        assert not {"ramp_cycles", "cycles_per_cta"} & set(found), group
        assert "most_at_once" in found
    found = CASE.predict(find("rate", slots=2, threads=32, cluster=1), GPU)
    assert "cycles_per_cta" in found and not {"least_gap_cycles", "most_at_once"} & set(found)


def test_the_simulators_slot_is_refilled_after_exit_dispatch_and_start() -> None:
    spec = GPU.dispatcher
    found = CASE.predict(find("refill", slots=2, stay_cycles=8000, spread_cycles=6000), GPU)
    behind = case.behind_mark(GPU) + spec.store_exit_cycles
    least = behind + spec.retire_cycles_per_cta + spec.cta_exit_cycles + spec.dispatch_cycles_per_cta + spec.cta_start_cycles
    assert found["least_gap_cycles"] == pytest.approx(least, abs=1.0)
    assert found["gap_cycles"] == pytest.approx(least + spec.round_cycles / 2, abs=0.2 * spec.round_cycles)
    assert found["most_at_once"] == 2.0


def test_an_empty_grid_takes_launch_dispatch_start_and_drain() -> None:
    """At most a round more, and the exits, which are noted one after the other."""
    spec = GPU.dispatcher
    for grid in (1, 132, 1056):
        found = CASE.predict(find("ramp", grid=grid, slots=32), GPU)
        fixed = spec.launch_cycles + spec.cta_start_cycles + spec.drain_cycles
        least = fixed + grid * spec.dispatch_cycles_per_cta + spec.retire_cycles_per_cta
        most = fixed + spec.round_cycles + grid * (spec.dispatch_cycles_per_cta + spec.retire_cycles_per_cta)
        assert least <= found["sm__cycles_elapsed.max"] <= most
        assert "ramp_cycles" not in found  # an empty kernel leaves no marks


def test_nothing_is_said_of_a_gpu_with_other_sms() -> None:
    fewer = replace(GPU, device=replace(GPU.device, num_sms=114))
    assert CASE.predict(find("start", slots=1, repeat=0), fewer) == {}


OTHER = replace(
    GPU, dispatcher=replace(
        GPU.dispatcher, launch_cycles=1700.0, drain_cycles=400.0, cta_start_cycles=500.0, cta_exit_cycles=200.0,
        dispatch_cycles_per_cta=0.5, retire_cycles_per_cta=2.5, cluster_retire_cycles_per_cta=3.5, round_cycles=60.0,
        cluster_start_cycles=80.0,
    ),
)  # fmt: skip


@pytest.mark.parametrize(("gpu", "half"), [(GPU, 0), (OTHER, 1)], ids=["h200-even", "other-odd"])
def test_rows_of_a_machine_that_is_known_give_its_rates_and_its_sums_back(
    gpu: GpuSpec, half: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of exit and start, and of launch and drain, a measurement shows the sums. Here marks tell all."""
    monkeypatch.setattr(case, "untold", lambda config, found, gpu: set())
    rows = []
    for group, most in (("refill", 1200), ("ramp", 10**6), ("tail", 700)):
        for config in CASE.configs(group, 1)[half::2]:
            if int(config["grid"]) <= most:
                numbers = {name: str(number) for name, number in CASE.predict(config, gpu).items()}
                rows.append({**config, "group": group, **numbers})
    for config in CASE.configs("rate", 1)[half::2]:
        if config["cluster"] != "1" and config["slots"] == "4":
            numbers = {name: str(number) for name, number in CASE.predict(config, gpu).items()}
            rows.append({**config, "group": "rate", **numbers})
    found = {item.parameter.removeprefix("dispatcher."): item.value for item in CASE.fitted(rows, GPU)}
    spec = gpu.dispatcher
    assert found["dispatch_cycles_per_cta"] == pytest.approx(spec.dispatch_cycles_per_cta, rel=0.1)
    assert found["retire_cycles_per_cta"] == pytest.approx(spec.retire_cycles_per_cta, rel=0.05)
    assert found["cluster_retire_cycles_per_cta"] == pytest.approx(spec.cluster_retire_cycles_per_cta, rel=0.05)
    assert found["round_cycles"] == pytest.approx(spec.round_cycles, rel=0.2)
    assert found["cluster_start_cycles"] == pytest.approx(spec.cluster_start_cycles, abs=15.0)
    assert found["cta_exit_cycles"] + found["cta_start_cycles"] == pytest.approx(
        spec.cta_exit_cycles + spec.cta_start_cycles, rel=0.02
    )
    whole = spec.launch_cycles + spec.cta_start_cycles + spec.drain_cycles
    assert found["launch_cycles"] + found["cta_start_cycles"] + found["drain_cycles"] == pytest.approx(whole, rel=0.03)
