from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from gpusim.analysis.explain import (
    NOTHING,
    Counterfactual,
    Explanation,
    disagreement,
    explain,
    render_explanation,
    wave_tail,
)
from gpusim.errors import LaunchError
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import load_gpu
from gpusim.simulate.idealize import EVERY_LAUNCH_HAS, IDEALS
from gpusim.simulate.result import Result
from gpusim.simulate.run import simulate
from gpusim.workload.compiled_code import NO_CODE
from gpusim.workload.launch import Launch

H200, TOY = load_gpu("h200_sxm"), load_gpu("toy")


def saving(name: str, share: float, **changes: Any) -> Counterfactual:
    fields = {
        "name": name, "title": name, "cycles": 20000.0 * (1 - share), "saved_cycles": 20000.0 * share, "share": share,
        "is_simulated": True,
    }
    return Counterfactual(**{**fields, **changes})


def test_a_tail_of_half_a_wave_costs_half_a_wave(make_result: Callable[..., Result]) -> None:
    fixed = TOY.dispatcher.launch_cycles + TOY.dispatcher.drain_cycles
    base = make_result(waves=1.5, cycles=fixed + 2000.0, busy={"tensor": 0.1})
    assert wave_tail(base, TOY).saved_cycles == pytest.approx(500.0)


def test_a_full_last_wave_has_no_tail(make_result: Callable[..., Result]) -> None:
    assert wave_tail(make_result(waves=3.0), TOY).saves_nothing


def test_no_tail_cannot_save_the_work_of_the_busiest_part(make_result: Callable[..., Result]) -> None:
    base = make_result(waves=1.1, cycles=20000.0, busy={"hbm": 0.9})
    assert wave_tail(base, TOY).saved_cycles == pytest.approx(2000.0)


def test_counterfactuals_that_contradict_the_plain_run_are_said_so(make_result: Callable[..., Result]) -> None:
    latency = make_result(bound_by="latency")
    found = [saving("latency", 0.0), saving("hbm", 0.3)]
    assert "'latency' saves nothing and 'hbm' saves 30.0 %" in disagreement(latency, found)
    assert not disagreement(latency, [saving("latency", 0.3), saving("hbm", 0.31)])
    assert not disagreement(make_result(bound_by="hbm"), found)
    assert not disagreement(latency, [saving("latency", 0.3), saving("stage", 0.4)])  # more stages hide latency


def test_a_busy_part_with_another_right_behind_it_is_not_denied(make_result: Callable[..., Result]) -> None:
    busy, found = make_result(bound_by="hbm", cycles=20000.0, busy={"hbm": 0.83}), [saving("hbm", 0.0), saving("l2", 0.06)]
    behind = disagreement(busy, found, 20000.0 * 0.28)
    assert "busy 83.0 % of the time, yet 'hbm' alone saves nothing: another part stands right behind it" in behind
    assert "at once save 72.0 %; alone 'l2' saves most, 6.0 %" in behind
    assert "believe the counterfactual" not in behind
    alone = disagreement(busy, found, 20000.0 * 0.93)  # nothing more is saved at once
    assert "believe the counterfactual" in alone
    waits = make_result(bound_by="latency", cycles=20000.0, busy={"hbm": 0.1})
    assert "believe the counterfactual" in disagreement(waits, [saving("latency", 0.0), saving("l2", 0.06)], 5000.0)


def test_slots_that_a_small_grid_leaves_empty_are_no_disagreement(make_result: Callable[..., Result]) -> None:
    found = [saving("tail", 0.0), saving("epilogue", 0.3)]
    assert not disagreement(make_result(bound_by="tail", waves=0.25), found)
    assert "'epilogue' saves 30.0 %" in disagreement(make_result(bound_by="tail", waves=1.25), found)
    launch = GemmParams(m=64, n=64, k=256, tile=(64, 64, 64), stages=2).launch(TOY)
    told = explain(lambda more: None if more else launch, TOY)
    assert any("ask predict" in remark for remark in told.remarks) == (told.result.bound_by == "tail")


def test_a_unit_that_nothing_makes_free_may_leave_a_little(make_result: Callable[..., Result]) -> None:
    tensor = make_result(bound_by="tensor")
    assert not disagreement(tensor, [saving("l2", 0.1)])
    assert "believe the counterfactual" in disagreement(tensor, [saving("l2", 0.2)])


def shown(explanation: Explanation) -> str:
    stream = io.StringIO()
    render_explanation(explanation, Console(file=stream, width=160, color_system=None), next_command="gpusim predict")
    return stream.getvalue()


def test_what_saves_nothing_says_so_in_words(result: Result) -> None:
    found = (saving("hbm", 0.25), saving("latency", 0.004), saving("stage", 0.0, cycles=None, note="cannot run: x"))
    text = shown(Explanation(result=result, counterfactuals=found, disagreement="", remarks=(), wall_s=0.1))
    rows = {line.split()[0]: line for line in text.splitlines() if line.split()}
    assert rows["hbm"].split()[1:4] == ["15,000", "5,000", "25.0"]
    assert "saves nothing" in rows["latency"]
    assert "cannot run: x" in rows["stage"]
    *_, verdict, following = text.strip().splitlines()
    assert verdict == "Verdict: 'hbm' would save most, 5,000 of 20,000 cycles (25.0 %)."
    assert following == "Next: gpusim predict"


def explained(**changes: Any) -> Explanation:
    """Of a small GEMM on the toy GPU."""
    params = GemmParams(**{"m": 256, "n": 256, "k": 512, "tile": (64, 64, 64), "stages": 2, **changes}).resolved(TOY)

    def build(more: int) -> Launch | None:
        return params.model_copy(update={"stages": (params.stages or 0) + more}).launch(TOY)

    return explain(build, TOY)


@pytest.fixture(scope="module")
def conflicting() -> Explanation:
    """cp.async and mma.sync on the toy GPU, whose shared memory is slow, without a swizzle."""
    return explained(math="mma_sync", copy="cp_async", schedule="multistage", swizzle="none")


def test_what_the_kernel_has_one_more_stage_and_the_tail_are_tried(conflicting: Explanation) -> None:
    has = {*IDEALS} - {"tma", "imad_wide"}  # it copies by cp.async, and multiplies by mma.sync
    assert {item.name for item in conflicting.counterfactuals} == {*has, "stage", "tail"}
    savings = [item.saved_cycles for item in conflicting.counterfactuals]
    assert savings == sorted(savings, reverse=True)
    assert min(savings) >= 0.0


def test_with_all_parts_free_no_more_remains_than_with_any_alone(conflicting: Explanation) -> None:
    together = conflicting.together_cycles
    assert together is not None
    parts = [item.cycles for item in conflicting.counterfactuals if item.name in IDEALS and item.cycles is not None]
    assert together <= min(parts) * (1.0 + NOTHING)
    assert together < conflicting.result.cycles
    assert f"With all parts free at once {together:,.0f} cycles would remain." in shown(conflicting)
    assert conflicting.as_dict()["together_cycles"] == together


def test_conflicts_that_cost_are_counted(conflicting: Explanation) -> None:
    assert conflicting.best is not None
    assert conflicting.best.name == "bank_conflicts"
    assert any(remark.startswith("Bank conflicts cost ") for remark in conflicting.remarks)


def test_the_document_holds_the_prediction_and_the_counterfactuals(conflicting: Explanation) -> None:
    document = conflicting.as_dict()
    assert document["cycles"] == conflicting.result.cycles
    assert len(document["counterfactuals"]) == len(IDEALS)  # less two, and a stage and the tail


@pytest.mark.parametrize(
    ("kernel", "options", "has"),
    [
        ("elementwise", {"op": "copy", "elements": 65536}, set()),
        ("softmax", {"rows": 64, "columns": 4096, "per": "block"}, {"bank_conflicts"}),
        ("gemm", {"m": 64, "n": 64, "k": 64, "tile": (64, 64, 64), "stages": 2}, {"bank_conflicts", "tma", "epilogue"}),
    ],
)
def test_only_what_a_kernel_has_is_made_free(kernel: str, options: Any, has: set[str]) -> None:
    launch = KERNEL_MODELS[kernel].params(**options).launch(TOY)
    found = {item.name for item in explain(lambda more: None if more else launch, TOY).counterfactuals}
    assert found - {"overhead_code", "imad_wide"} == {*EVERY_LAUNCH_HAS, "tail", *has}


def test_what_is_not_there_saves_nothing_to_the_cycle_at_whatever_clock() -> None:
    launch = GemmParams(m=4096, n=4096, k=1024, tile="128x256x64", stages=4, schedule="cooperative").launch(H200)
    found = explain(lambda more: None if more else launch, H200)
    conflicts = next(item for item in found.counterfactuals if item.name == "bank_conflicts")
    assert conflicts.cycles == found.result.cycles != 0.0
    assert "There are no bank conflicts." in found.remarks


def test_a_stage_that_does_not_fit_is_no_error() -> None:
    launch = GemmParams(m=256, n=256, k=512, tile=(128, 64, 64), stages=2).launch(TOY)

    def build(more: int) -> Launch | None:
        if more:
            raise LaunchError("gemm: no room")
        return launch

    (stage,) = [item for item in explain(build, TOY).counterfactuals if item.name == "stage"]
    assert stage.cycles is None
    assert stage.note == "cannot run: gemm: no room"


def test_a_kernel_without_stages_is_not_told_of_them() -> None:
    launch = GemmParams(m=256, n=256, k=512, tile=(128, 64, 64), stages=2).launch(TOY)
    found = explain(lambda more: None if more else launch, TOY).counterfactuals
    assert "stage" not in {item.name for item in found}


def cycles_of(*ideals: str, **options: Any) -> float:
    """Of a GEMM of 16 k-steps."""
    launch = GemmParams(m=128, n=128, k=1024, tile=(64, 64, 64), stages=3, **options).launch(TOY)
    return simulate(launch, TOY, clock="max", ideals=ideals).cycles


@pytest.mark.parametrize(
    ("ideal", "code", "options"),
    [
        ("overhead_code", {"mainloop": {"chain_cycles": 4000.0}}, {"schedule": "warp_specialized"}),
        ("overhead_code", {"tile_scheduler": {"chain_cycles": 16000.0}, "epilogue": {"chain_cycles": 16000.0}},
         {"schedule": "warp_specialized"}),
        ("imad_wide", {"mainloop": {"imad_wide_per_copy": 8}},
         {"schedule": "multistage", "math": "wgmma", "copy": "cp_async"}),
    ],
)
def test_code_of_ones_own_made_free_is_code_that_is_not_there(ideal: str, code: Any, options: Any) -> None:
    own, none = {**options, "compiled_code": NO_CODE.replaced(**code)}, {**options, "compiled_code": NO_CODE}
    assert cycles_of(ideal, **own) == cycles_of(**none) < cycles_of(**own)
