"""Probes of synchronization: chains that stay chains, answers that are counted, costs that are as many as the steps."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim import GpuSpec, load_gpu
from gpusim.evidence.cases.case import Config, WrongAnswer, load_case
from gpusim.evidence.toolchain.sass import Instruction, KernelSass
from gpusim.evidence.validate.calibrate import parameter

from .known import remembering

CASE = remembering(load_case("barriers"))
GPU = load_gpu("h200_sxm")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]
Sass = Callable[[str, str], dict[str, KernelSass]]


def between_readings(kernel: KernelSass) -> list[Counter[str]]:
    """Opcodes between each reading of the clock and the next, in order."""
    found: list[Counter[str]] = []
    seen: Counter[str] | None = None
    for item in kernel.instructions:
        if is_reading(item):
            if seen is not None:
                found.append(seen)
            seen = Counter()
        elif seen is not None:
            seen[item.name] += 1
    return found


def is_reading(item: Instruction) -> bool:
    return "SR_CLOCK" in item.operands


def answers(config: Config, cycles: int = 300) -> dict[str, NDArray[np.generic]]:
    """What a launch must leave, every round ``cycles`` long."""
    launch = CASE.launch(config, False)
    samples = np.full_like(launch.arguments[1].array, cycles)  # type: ignore[union-attr]  # an Output
    result = np.zeros(case.NUM_RESULTS, dtype="<u4")
    wanted = case.expected(typed(config))
    result[: len(wanted)] = np.where(wanted < 0, 0, wanted)
    return {"samples": samples, "result": result}


def test_even_and_odd_positions_both_have_a_slope() -> None:
    """Of each probe with several counts, two are at even positions and two at odd ones."""
    for group in ("mbarrier", "bar", "cluster", "fences", "fences_90", "warp"):
        counts: dict[tuple[str, ...], list[list[int]]] = {}
        for idx, config in enumerate(CASE.configs(group, 1)):
            others = tuple(config[name] for name in CASE.columns if name != "count")
            counts.setdefault((case.stem(config), *others), [[], []])[idx % 2].append(int(config["count"]))
        for halves in counts.values():
            assert halves in ([[1, 8], [4, 16]], [[1], []], [[], [1]])


def test_blocks_and_clusters_are_legal() -> None:
    for config in CONFIGS:
        launch = CASE.launch(config, False)
        assert launch.block[0] <= 1024 and launch.grid[0] <= 132
        assert launch.grid[0] % int(config["cluster"]) == 0
        assert int(config["partner"]) < max(int(config["cluster"]), int(config["warps"]))


def test_the_clock_is_read_in_order_and_nothing_spills(sass: Sass) -> None:
    for arch in ("sm_80", "sm_90a"):
        for name, kernel in sass("barriers", arch).items():
            readings = [item.opcode for item in kernel.instructions if is_reading(item)]
            assert readings and set(readings) == {"CS2R"}, name
            assert kernel.num_spills == 0, name


@pytest.mark.parametrize("count", [1, 4, 8, 16])
def test_as_many_steps_lie_between_two_readings_as_the_name_says(sass: Sass, count: int) -> None:
    kernels = sass("barriers", "sm_90a")
    for stem, opcode in {
        "shfl_idx": "SHFL", "shfl_bfly": "SHFL", "vote_ballot": "VOTE", "redux_max": "REDUX", "bar_sync": "BAR",
        "fence_gpu": "MEMBAR", "fence_proxy_async_shared": "FENCE", "mbarrier_arrive": "SYNCS",
        "mbarrier_try_wait_done": "SYNCS", "mbarrier_test_wait_pending": "SYNCS",
    }.items():  # fmt: skip
        assert between_readings(kernels[f"{stem}_{count}"])[0][opcode] == count, stem
    assert between_readings(kernels[f"dsmem_chain_{count}_c4"])[0]["LD"] == count


def test_a_shuffle_waits_for_the_one_before(sass: Sass) -> None:
    shuffles = sass("barriers", "sm_90a")["shfl_idx_16"].select("SHFL")[:16]
    results = [item.operands.split(", ")[1] for item in shuffles]
    sources = [item.operands.split(", ")[2] for item in shuffles]
    assert sources[1:] == results[:-1]


def test_a_load_from_another_sm_waits_for_the_one_before(sass: Sass) -> None:
    loads = sass("barriers", "sm_90a")["dsmem_chain_16_c2"].select("LD")[:16]
    results = [item.operands.split(", ")[0] for item in loads]
    assert all(f"[{result}" in after.operands for result, after in zip(results, loads[1:], strict=False))


def test_the_nops_of_a_fence_hide_behind_a_comparison(sass: Sass) -> None:
    """One to sixteen NOPs: a round's scheduled cycles are the rest and the longer of the two."""
    kernels = sass("barriers", "sm_90a")
    for count in case.COUNTS:
        items = kernels[f"fence_mbarrier_init_{count}"].instructions
        first, second = (idx for idx, item in enumerate(items) if item.name == "CS2R" and "CLOCK" in item.operands)
        cycles = sum(item.stall_cycles for item in items[first:second])
        assert cycles == case.HIDDEN_FRAME_CYCLES + max(case.HIDDEN_CYCLES, count)


def test_registers_are_given_and_taken_between_readings(sass: Sass) -> None:
    alone = between_readings(sass("barriers", "sm_90a")["setmaxnreg_alone"])
    assert [pieces["USETMAXREG"] for pieces in alone] == [1, 1]
    assert sass("barriers", "sm_90a")["setmaxnreg_hand_over"].num_registers == 168


def test_a_clock_that_stands_still_is_no_answer() -> None:
    with pytest.raises(WrongAnswer, match="clock"):
        CASE.check(CONFIGS[0], answers(CONFIGS[0], cycles=0))


def test_only_rounds_after_the_first_ones_count() -> None:
    config = next(config for config in CONFIGS if config["kernel"] == "bar_sync_16")
    outputs = answers(config)
    outputs["samples"][: case.NUM_WARM_UP] = 9999
    outputs["samples"][case.NUM_WARM_UP] = 310
    values = CASE.check(config, outputs)
    assert (values["cycles"], values["least_cycles"], values["most_cycles"]) == (300.0, 300.0, 310.0)


def test_chains_of_votes_end_where_worked_out() -> None:
    lanes = np.arange(32)
    of = {config["kernel"]: case.expected(typed(config)) for config in CASE.configs("warp", 1)}
    assert (of["shfl_idx_1"] == 5).all()  # everybody has lane 5's
    assert (of["shfl_bfly_4"] == lanes).all()  # an even number of swaps
    assert (of["shfl_down_1"] == 31).all()  # 48 steps down, and the last lane keeps its own
    assert (of["vote_ballot_16"] == 2**32 - 1).all()
    assert (of["redux_max_4"] == 31).all()


def test_bytes_of_a_stream_are_counted() -> None:
    config = next(config for config in CASE.configs("dsmem", 1) if config["warps"] == "8" and config["loads"] == "16")
    assert CASE.derive({**config, "cycles": "4096"}) == {"bytes_per_cycle": 16 * 16 * 256 / 4096}
    assert CASE.derive({**CONFIGS[0], "count": "4", "cycles": "100"}) == {"cycles_per_step": 25.0}


def test_the_simulators_barrier_costs_base_and_warps() -> None:
    spec = GPU.warp_scheduler
    for config in CASE.configs("bar", 1):
        if config["kernel"].startswith("bar_sync"):
            each = spec.barrier_base_cycles + int(config["warps"]) * spec.barrier_warp_cycles
            wanted = case.FRAME_CYCLES["bar_sync"] + int(config["count"]) * each
            assert CASE.predict(config, GPU)["cycles"] == pytest.approx(wanted)


def test_the_simulators_costs_are_as_many_as_the_steps() -> None:
    """But for arrivals, whose first ones cost little, and for the first answer of a ping-pong."""
    by_stem: dict[str, dict[int, float]] = {}
    for config in CASE.configs("mbarrier", 1):
        predicted, name = CASE.predict(config, GPU), case.stem(config)
        if predicted and not name.startswith("mbarrier_arrive"):
            steps = predicted["cycles"] - case.FRAME_CYCLES.get(name, 0.0)
            by_stem.setdefault(name + config["partner"], {})[int(config["count"])] = steps
    assert len(by_stem) > 4
    for cycles in by_stem.values():
        assert cycles[16] - cycles[8] == pytest.approx(2 * (cycles[8] - cycles[4]))


def test_arrivals_cost_a_cycle_each_until_the_queue_is_full_and_then_the_interval() -> None:
    spec = GPU.mbarrier
    for config in CASE.configs("mbarrier", 1):
        if case.stem(config) == "mbarrier_arrive":
            count = int(config["count"])
            wanted = min(count, case.ARRIVE_QUEUE) * spec.arrive_cycles
            wanted += max(0, count - case.ARRIVE_QUEUE) * spec.arrive_interval_cycles
            wanted += case.FRAME_CYCLES["mbarrier_arrive"]
            assert CASE.predict(config, GPU)["cycles"] == pytest.approx(wanted)
    assert spec.max_queued_arrivals == case.ARRIVE_QUEUE


def test_where_the_simulator_has_no_word_it_says_nothing() -> None:
    silent = {case.stem(config) for config in CONFIGS if not CASE.predict(config, GPU)}
    assert {
        "setmaxnreg_alone", "fence_sys", "vote_any", "mbarrier_try_wait_pending", "dsmem_store", "mbarrier_ping_pong_test",
    } <= silent  # fmt: skip
    spoken = {case.stem(config) for config in CONFIGS if CASE.predict(config, GPU)}
    assert {"bar_sync", "mbarrier_ping_pong", "st_async", "ping_pong", "cluster_barrier", "dsmem_load"} <= spoken
    assert "fence_gpu" in spoken


def test_a_gpu_without_clusters_or_mbarriers_of_its_own_is_asked_for_neither() -> None:
    ampere = load_gpu("a100_sxm_80gb")
    spoken = {case.stem(config) for config in CONFIGS if CASE.predict(config, ampere)}
    assert "bar_sync" in spoken and not any(name.startswith(("cluster", "dsmem", "st_async")) for name in spoken)


OTHER = replace(
    GPU, mbarrier=replace(GPU.mbarrier, arrive_interval_cycles=11.0, try_wait_cycles=21.0, wake_cycles=99.0),
    dsmem=replace(
        GPU.dsmem, latency_cycles=250.0, bytes_per_cycle=30.0, cluster_barrier_cycles=555.0, one_way_cycles=120.0,
        same_tpc_saving_cycles=20.0, serve_fraction=0.5, cluster_barrier_cta_cycles=7.0,
    ),
    warp_scheduler=replace(
        GPU.warp_scheduler, barrier_base_cycles=9.0, barrier_warp_cycles=2.0, fence_cycles=5.0, bar_arrive_cycles=20.0,
        gpu_fence_cycles=333.0, gpu_fence_warp_cycles=3.0,
    ),
)  # fmt: skip
FITTED = {
    "mbarrier.arrive_interval_cycles", "mbarrier.try_wait_cycles", "mbarrier.wake_cycles", "dsmem.latency_cycles",
    "dsmem.one_way_cycles", "dsmem.same_tpc_saving_cycles", "dsmem.bytes_per_cycle", "dsmem.serve_fraction",
    "dsmem.cluster_barrier_cycles", "dsmem.cluster_barrier_cta_cycles", "warp_scheduler.barrier_base_cycles",
    "warp_scheduler.barrier_warp_cycles", "warp_scheduler.bar_arrive_cycles", "warp_scheduler.fence_cycles",
    "warp_scheduler.gpu_fence_cycles", "warp_scheduler.gpu_fence_warp_cycles", "warp_scheduler.shuffle_cycles",
}  # fmt: skip


def rows_of(gpu: GpuSpec, half: int, reading_cycles: float) -> list[dict[str, str]]:
    """The simulator's answers to every second config, each with two readings of the clock."""
    found = []
    for group in CASE.groups:
        for config in CASE.configs(group, 1)[half::2]:
            numbers = {name: str(number + reading_cycles) for name, number in CASE.predict(config, gpu).items()}
            found.append({**config, "group": group, **numbers})
    return found


@pytest.mark.parametrize(("gpu", "half"), [(GPU, 0), (OTHER, 1)], ids=["h200-even", "other-odd"])
def test_rows_of_a_machine_that_is_known_give_its_costs_back_whatever_a_reading_takes(gpu: GpuSpec, half: int) -> None:
    fitted = {item.parameter: item.value for item in CASE.fit(rows_of(gpu, half, 23.0))}
    assert fitted.keys() == FITTED
    for name, value in fitted.items():
        assert value == pytest.approx(parameter(gpu, name), rel=0.02), name


def test_one_bad_row_moves_no_parameter_much() -> None:
    rows = rows_of(GPU, 0, 23.0)
    bad = next(row for row in rows if row["kernel"] == "bar_sync_8" and row["warps"] == "12")
    bad["cycles"] = str(10 * float(bad["cycles"]))
    fitted = {item.parameter: item.value for item in CASE.fit(rows)}
    for name, value in fitted.items():
        assert value == pytest.approx(parameter(GPU, name), rel=0.05), name


def test_rows_that_tell_nothing_fit_nothing() -> None:
    assert CASE.fit([]) == []
    assert CASE.fit([{**config, "group": "mbarrier"} for config in CONFIGS]) == []
    assert CASE.fit([{**config, "cycles": "9", "group": "warp"} for config in CASE.configs("warp", 1)]) == []


def test_only_the_longest_of_a_sweep_is_judged() -> None:
    for config in CONFIGS[::11]:
        values = CASE.check(config, answers(config))
        assert ("long_cycles" in values) == (config["count"] == "16" or case.num_bytes(config) > 0)
