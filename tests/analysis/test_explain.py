from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from gpusim.analysis.changes import NOTHING
from gpusim.analysis.explain import Counterfactual, Explanation, behind, explain_launch, wave_tail
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import load_gpu
from gpusim.report.explain import render_explanation
from gpusim.simulate.idealize import EVERY_LAUNCH_HAS, IDEALS
from gpusim.simulate.result import Result
from gpusim.simulate.run import simulate
from gpusim.workload.compiled_code import NO_CODE

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


def test_what_bounds_a_kernel_and_saves_little_alone_is_said_to_have_others_behind_it(
    make_result: Callable[..., Result]
) -> None:
    busy, found = make_result(bound_by="hbm", cycles=20000.0, busy={"hbm": 0.83}), [saving("hbm", 0.0), saving("l2", 0.06)]
    text = behind(busy, found, 20000.0 * 0.28)
    assert text == (
        "'hbm' alone saves nothing, as other parts stand right behind. 'l2' saves 6.0 %, and all parts at once 72.0 %."
    )
    assert behind(busy, found, 20000.0 * 0.93).endswith("'l2' saves 6.0 %.")  # all at once saves no more
    latency = make_result(bound_by="latency")
    assert not behind(latency, [saving("latency", 0.3), saving("hbm", 0.31)])
    assert not behind(make_result(bound_by="tensor"), [saving("l2", 0.2)])  # nothing makes the tensor cores free


def shown(explanation: Explanation) -> str:
    stream = io.StringIO()
    render_explanation(explanation, Console(file=stream, width=160, color_system=None), next_command="gpusim predict")
    return stream.getvalue()


def test_what_saves_nothing_says_so_in_words(result: Result) -> None:
    found = (saving("hbm", 0.25), saving("latency", 0.004))
    text = shown(Explanation(result=result, counterfactuals=found, remarks=(), wall_s=0.1))
    rows = {line.split()[0]: line for line in text.splitlines() if line.split()}
    assert rows["hbm"].split()[1:4] == ["15,000", "5,000", "25.0"]
    assert "nothing" in rows["latency"].split()
    *_, verdict, following = text.strip().splitlines()
    assert verdict == "Verdict: 'hbm' would save most, 25.0 % of the cycles."
    assert following == "Next: gpusim predict"


def explained(**changes: Any) -> Explanation:
    """Of a small GEMM on the toy GPU."""
    params = GemmParams(**{"m": 256, "n": 256, "k": 512, "tile": (64, 64, 64), "stages": 2, **changes}).resolved(TOY)
    return explain_launch(params.launch(TOY), TOY)


@pytest.fixture(scope="module")
def conflicting() -> Explanation:
    """cp.async and mma.sync on the toy GPU, whose shared memory is slow, without a swizzle."""
    return explained(math="mma_sync", copy="cp_async", schedule="multistage", swizzle="none")


def test_what_the_kernel_has_and_the_tail_are_tried(conflicting: Explanation) -> None:
    has = {*IDEALS} - {"tma", "imad_wide"}  # it copies by cp.async, and multiplies by mma.sync
    assert {item.name for item in conflicting.counterfactuals} == {*has, "tail"}
    savings = [item.saved_cycles for item in conflicting.counterfactuals]
    assert savings == sorted(savings, reverse=True)
    assert min(savings) >= 0.0


def test_with_all_parts_free_no_more_remains_than_with_any_alone(conflicting: Explanation) -> None:
    together = conflicting.together_cycles
    assert together is not None
    parts = [item.cycles for item in conflicting.counterfactuals if item.name in IDEALS]
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
    assert len(document["counterfactuals"]) == len(IDEALS) - 1  # less two, and the tail


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
    found = {item.name for item in explain_launch(launch, TOY).counterfactuals}
    assert found - {"overhead_code", "imad_wide"} == {*EVERY_LAUNCH_HAS, "tail", *has}


def test_what_is_not_there_saves_nothing_to_the_cycle_at_whatever_clock() -> None:
    launch = GemmParams(m=4096, n=4096, k=1024, tile="128x256x64", stages=4, schedule="cooperative").launch(H200)
    found = explain_launch(launch, H200)
    conflicts = next(item for item in found.counterfactuals if item.name == "bank_conflicts")
    assert conflicts.cycles == found.result.cycles != 0.0
    assert "There are no bank conflicts." in found.remarks


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
