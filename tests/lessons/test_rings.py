"""The ring of lesson 6 and what becomes of launches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest

from gpusim import load_gpu
from gpusim.errors import LaunchError
from gpusim.kernel_models.gemm import GemmParams
from gpusim.lessons.bugs import BUGS, bug_table, kernel
from gpusim.lessons.launch_outcome import outcome, states, summary
from gpusim.lessons.rings import MATH, TILE_BYTES, phases, ring_launch
from gpusim.workload import ops
from gpusim.workload.finding import FindingKind
from gpusim.workload.launch import RoleContext

GPU = load_gpu("h200_sxm")


def producer(cta: RoleContext) -> Iterator[Any]:
    yield ops.MbarrierWait("empty", 0, 1)
    yield ops.MbarrierArriveExpectTx("full", 0, TILE_BYTES)
    yield ops.TmaLoad("A", (cta.cta_idx, 0), TILE_BYTES, TILE_BYTES, 128, "a", 0, "full")


def consumer(cta: RoleContext) -> Iterator[Any]:
    yield ops.MbarrierWait("full", 0, 0)
    yield ops.Wgmma(MATH, 1, reads=(("a", 0),))
    yield ops.WgmmaCommitGroup()
    yield ops.WgmmaWaitGroup(0)


def hasty(cta: RoleContext) -> Iterator[Any]:
    yield ops.Wgmma(MATH, 1, reads=(("a", 0),))


def nothing(cta: RoleContext) -> Iterator[Any]:
    yield ops.Alu(1)


def test_a_step_waits_for_the_phase_of_its_round() -> None:
    table = phases(3, 7)
    assert table["stage"].tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert table["full: consumer waits for parity"].tolist() == [0, 0, 0, 1, 1, 1, 0]
    with pytest.raises(LaunchError, match="0 stages"):
        phases(0, 1)


def test_a_ring_without_stages_or_consumers_is_refused() -> None:
    with pytest.raises(LaunchError, match="0 stages, 1 consumers, 1 arrivals; wants 1 or more of each"):
        ring_launch(producer, consumer, num_stages=0)


def test_each_outcome_has_its_word_and_its_sentence() -> None:
    runs = outcome(ring_launch(producer, consumer, num_stages=1), GPU)
    assert runs.kind == "runs" and runs.result is not None and "cycles" in runs.sentence
    hangs = outcome(ring_launch(nothing, consumer, num_stages=1), GPU)
    assert hangs.kind == "hangs" and "1 of 1 arrivals missing" in hangs.sentence and hangs.result is None
    corrupts = outcome(ring_launch(nothing, hasty, num_stages=1), GPU)
    assert corrupts.kind == "corrupts" and "never written" in corrupts.sentence
    refused = outcome(GemmParams(m=64, n=64, k=64, tile="256x192x64", setmaxnreg="none"), GPU)
    assert refused.kind == "refused" and "registers" in refused.sentence
    assert str(refused) == f"refused: {refused.sentence}" and "<b>Refused.</b>" in refused._repr_html_()


def test_states_of_a_role_are_its_whole_life() -> None:
    result = outcome(ring_launch(producer, consumer, num_stages=1), GPU).result
    assert result is not None
    alone, named = states(result), states({"ring": result})
    assert list(alone.index) == ["producer", "consumer"] and named.loc["ring"].equals(alone)
    assert alone.sum(axis=1).tolist() == pytest.approx([100.0, 100.0], abs=2.0)
    table = summary({"ring": result})
    assert table.loc["ring", "cycles"] == round(result.cycles)
    assert table.loc["ring", "tensor cores busy (%)"] == pytest.approx(100.0 * result.busy["tensor"], abs=0.05)


def test_lesson_6_has_a_bug_of_each_kind_that_the_order_check_names() -> None:
    assert set(BUGS) == set(get_args(FindingKind)) - {"unchecked"}
    assert kernel().check(GPU) == []
    assert list(bug_table(GPU)["kind"]) == list(BUGS)
