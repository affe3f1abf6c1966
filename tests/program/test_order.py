"""The order check: no false alarm on what is right, nothing missed that some timing shows, each launch looked at once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from gpusim import Launch, WarpRole, load_gpu, simulate
from gpusim.errors import DeadlockError, HazardError
from gpusim.program import order, order_loops
from gpusim.program.cta_classes import trace_launch
from gpusim.simulate.order_check import check_launch, is_tested, without_order_check
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from tests.engine import launches

from .pipelines import CHANGES, FOR_ANOTHER_CTA, changed, drawn
from .random_timing import shown
from .test_order_bugs import ring, three_stages

H200 = load_gpu("h200_sxm")
NUM_PIPELINES, PARTS = 1000, 4
NUM_CHANGED, NUM_TIMINGS = 14, 14
BETWEEN_WARPS = {"no __syncthreads behind cp.async.wait_group", "no barrier behind stmatrix"}
"""Changes that races between warps of one role follow from, which run in lockstep under random timing."""
PROXIES = {"no wgmma.fence", "no fence.proxy.async"}
"""Changes that no order of accesses shows."""
ALWAYS_WRONG = {
    *BETWEEN_WARPS, *PROXIES, "no wait for full", "wrong parity of full", "wrong parity of empty", "no cp.async arrival",
    "no expect_tx", "too few bytes expected", "too many bytes expected", "no load", "no cp.async.wait_group",
    "one cp.async group too many in flight", "no bulk commit_group",
}  # fmt: skip
"""Changes that make each pipeline wrong. Others change nothing where, for example, no later copy fills the stage."""

FIRST_KIND: dict[str, set[str]] = {name: {"race"} for name in CHANGES} | {
    "no wait for full": {"race", "order", "bytes"}, "no wait for empty": {"race", "order"},
    "wrong parity of full": {"race", "deadlock"}, "wrong parity of empty": {"race", "order", "deadlock"},
    "no arrival on empty": {"deadlock"}, "an arrival too many": {"order", "race", "deadlock"},
    "no cp.async arrival": {"deadlock"}, "no expect_tx": {"bytes", "deadlock"},
    "too few bytes expected": {"bytes", "order"}, "too many bytes expected": {"bytes"}, "no load": {"bytes"},
    "no __syncthreads": {"barrier", "deadlock", "race"}, "no wgmma.fence": {"wgmma_fence"},
    "no wgmma.wait_group": {"race", "accumulators"}, "one wgmma group too many in flight": {"race", "accumulators"},
    "no wgmma.commit_group": {"race", "accumulators"}, "no fence.proxy.async": {"fence"}, FOR_ANOTHER_CTA: {"race"},
}  # fmt: skip
"""Kinds of the first finding of each change."""


def found(launch: Launch) -> list[str]:
    """Sentences of the findings."""
    programs = trace_launch(launch, num_ctas=launch.num_ctas or 1, panels_of={}, bytes_of={})
    return [f"{finding.kind}: {finding}" for finding in order.order_findings(launch, programs)]


# ---------------------------------------------------------------------- what is right


@pytest.mark.parametrize("part", range(PARTS))
def test_pipelines_that_are_right_are_clean(part: int) -> None:
    wrong = {seed: said for seed in range(part, NUM_PIPELINES, PARTS) if (said := found(drawn(seed).launch()))}
    assert wrong == {}


def test_what_the_generator_calls_right_is_right_under_random_timing() -> None:
    assert {seed: said for seed in range(40) if (said := shown(drawn(seed), 2))} == {}


def test_pipelines_that_are_right_run_in_the_engine_as_well() -> None:
    for seed in range(12):
        launch = drawn(seed).launch()
        features = {"tma", "mbarrier", "wgmma", "cp_async", "mma_sync", "stmatrix", "cluster"}
        assert simulate(replace(launch, features=frozenset(features)), H200, clock="max").cycles > 0  # type: ignore[arg-type]  # names of features


@pytest.mark.parametrize("group", ["PRODUCTS", "STREAMS", "ELSEWHERE"])
def test_kernel_models_are_clean_but_for_a_fence_that_an_option_leaves_out(group: str) -> None:
    wrong = {}
    for case in getattr(launches, group):
        launch = case.launch()
        kinds = {finding.kind for finding in check_launch(launch, case.spec)}
        has_fence = launch.params.get("fence", True) or launch.params.get("copy") != "cp_async"
        if kinds != (set() if has_fence else {"fence"}):
            wrong[case.name] = kinds
    assert wrong == {}


# ---------------------------------------------------------------------- what is wrong


@cache
def changes(name: str) -> list[tuple[str, str]]:
    """For some pipelines with that change: kind of the first finding, empty for none, and what random timing shows."""
    made: list[tuple[str, str]] = []
    for seed in range(10_000):
        pipeline = changed(drawn(seed), name, random.Random(seed))
        if pipeline is not None:
            kind = next((sentence.partition(":")[0] for sentence in found(pipeline.launch())), "")
            made.append((kind, "" if kind and len(made) > 4 else shown(pipeline, NUM_TIMINGS)))
        if len(made) == NUM_CHANGED:
            break
    return made


@pytest.mark.parametrize("name", FIRST_KIND)
def test_a_change_that_some_timing_shows_is_found(name: str) -> None:
    assert len(changes(name)) == NUM_CHANGED
    assert [said for kind, said in changes(name) if said and not kind] == []
    assert all(kind for kind, _ in changes(name)) or name not in ALWAYS_WRONG
    assert any(kind for kind, _ in changes(name))


def test_random_timing_shows_what_it_is_asked_about() -> None:
    seen = {name for name in CHANGES if any(said for _, said in changes(name))}
    assert set(CHANGES) - seen <= BETWEEN_WARPS | PROXIES | {"no bar.sync"}


@pytest.mark.parametrize("name", FIRST_KIND)
def test_the_first_finding_is_of_the_kind_of_the_change(name: str) -> None:
    assert {kind for kind, _ in changes(name)} - {""} <= FIRST_KIND[name]


# ---------------------------------------------------------------------- one replay, in any order, of a few turns


def mixed() -> list[Launch]:
    """Launches that are right, and that are wrong."""
    wrong = [changed(drawn(seed), list(CHANGES)[seed % len(CHANGES)], random.Random(seed)) for seed in range(60)]
    return [each.launch() for each in (*map(drawn, range(20)), *wrong) if each is not None]


def test_the_order_of_roles_in_the_replay_decides_nothing() -> None:
    for launch in mixed():
        other = replace(launch, roles=launch.roles[::-1])
        assert bool(found(launch)) == bool(found(other)), found(launch) or found(other)


def test_turns_that_are_left_out_hide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bugs = "", "released too early", "no wait for empty", "last stage unread", "phase never flips"
    long = [ring(bug, n=100) for bug in bugs]
    by_turns = [found(launch) for launch in long]
    monkeypatch.setattr(order_loops, "LEAST_TURNS", 10**9)
    monkeypatch.setattr(order, "_kept", {})
    assert [kinds_of(each) for each in by_turns] == [kinds_of(found(launch)) for launch in long]


def kinds_of(sentences: list[str]) -> list[str]:
    """Beginnings of sentences, without the numbers of ops."""
    return sorted(sentence.partition(", op")[0] for sentence in sentences)


@pytest.mark.parametrize("n", [300, 3000])
def test_a_long_loop_costs_as_much_as_a_short_one(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    carried = []
    carry_out = order.Replay._carry_out
    monkeypatch.setattr(order.Replay, "_carry_out", lambda self, *args: (carried.append(1), carry_out(self, *args)))
    monkeypatch.setattr(order, "_kept", {})
    assert found(ring(n=n)) == []
    assert 100 < len(carried) < 700


def test_equal_programs_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "_kept", {})
    first = found(ring("released too early"))
    monkeypatch.delattr(order, "Replay")
    assert found(ring("released too early")) == first


# ---------------------------------------------------------------------- simulate


def test_a_race_that_this_timing_does_not_show_is_refused() -> None:
    """Of a ring of three stages, one group of wgmma too many is in flight. With 64 columns it ends before the refill."""
    with pytest.raises(HazardError, match="is refilled at cycle"):
        simulate(without_order_check(three_stages(128)), H200)
    assert simulate(without_order_check(three_stages(64)), H200).cycles > 0
    with pytest.raises(HazardError, match=r"TmaLoad\) writes a\[0\] while its own op 11 \(wgmma\) may still read it"):
        simulate(three_stages(64), H200)
    assert simulate(three_stages(64, depth=0), H200).remarks == ()


def test_what_the_engine_finds_by_timing_keeps_its_cycle() -> None:
    with pytest.raises(DeadlockError, match="since cycle"):
        simulate(ring("no arrival on empty"), H200)


def test_what_is_no_race_is_a_remark() -> None:
    result = simulate(ring("no wgmma.fence"), H200)
    assert any("missing: wgmma.fence" in remark for remark in result.remarks)
    assert simulate(ring(), H200).remarks == ()


def test_a_check_that_ends_early_says_so() -> None:
    launch = ring("released too early")
    programs = trace_launch(launch, num_ctas=1, panels_of={}, bytes_of={})
    order._kept.clear()
    (only,) = order.order_findings(launch, programs, most_ops=10)
    assert only.kind == "unchecked" and not only.is_error
    assert "the order of 10 ops is checked, and not of all; gpusim lint checks all" in only.message
    assert [finding.kind for finding in order.order_findings(launch, programs, most_ops=1000)] == ["race", "race"]


def test_a_check_that_ends_early_counts_the_ops_of_all_classes() -> None:
    def program(cta: RoleContext) -> Iterator[ops.Op]:
        for _ in range(20 + cta.cta_idx):
            yield ops.Syncthreads()

    roles = (WarpRole(name="all", num_warps=1, program=program),)
    launch = Launch(kernel="distinct", num_ctas=9, num_tiles=9, roles=roles)
    programs = trace_launch(launch, num_ctas=9, panels_of={}, bytes_of={})
    assert "the order of 20 ops is checked" in order.order_findings(launch, programs, most_ops=20)[0].message


def test_programs_of_kernel_models_are_known_as_such() -> None:
    assert is_tested(launches.PRODUCTS[0].launch())
    assert not is_tested(ring())
