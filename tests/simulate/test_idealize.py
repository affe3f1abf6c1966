"""A Spec's field says what each counterfactual makes of it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest

from gpusim.machine import config
from gpusim.machine.component import idealized
from gpusim.machine.config import COMPONENT_KINDS, load_gpu
from gpusim.machine.sm.mbarrier import MbarrierSpec
from gpusim.simulate import idealize as module
from gpusim.simulate.idealize import IDEALS, idealize

H200 = load_gpu("h200_sxm")
MARKED = {
    (part, item.name): item.metadata["idealized"]
    for part, kind in COMPONENT_KINDS.items() for item in fields(kind) if "idealized" in item.metadata
}  # fmt: skip


def changes(ideal: str) -> dict[tuple[str, str], Any]:
    """Every number that an ideal changes, with what it becomes."""
    free = idealize(H200, frozenset({ideal}))
    return {
        (part, item.name): getattr(free.component(part), item.name)
        for part, kind in COMPONENT_KINDS.items() for item in fields(kind)
        if getattr(free.component(part), item.name) != getattr(H200.component(part), item.name)
    }  # fmt: skip


def test_a_field_names_counterfactuals_that_there_are() -> None:
    assert {ideal for numbers in MARKED.values() for ideal in numbers} == {"l2", "hbm", "tma", "latency", "launch"}
    assert {ideal for numbers in MARKED.values() for ideal in numbers} <= set(IDEALS)


@pytest.mark.parametrize("ideal", IDEALS)
def test_an_ideal_changes_what_says_so_and_no_more(ideal: str) -> None:
    said = {key: numbers[ideal] for key, numbers in MARKED.items() if ideal in numbers}
    dirty = {("l2", "dirty_fraction")} if ideal == "l2" else set()
    found = changes(ideal)
    assert set(found) - dirty <= set(said)
    for (part, name), number in said.items():
        assert getattr(idealize(H200, frozenset({ideal})).component(part), name) == number


def test_what_is_stored_leaves_an_l2_without_limit_as_before() -> None:
    free = idealize(H200, frozenset({"l2"})).l2
    assert free.dirty_fraction * free.capacity_bytes == pytest.approx(H200.l2.dirty_fraction * H200.l2.capacity_bytes)


def test_a_new_number_needs_no_other_line_than_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Newer(MbarrierSpec):
        far_cycles: float = field(metadata=idealized(latency=0.0))

    kinds = {**config.COMPONENT_KINDS, "mbarrier": Newer}
    monkeypatch.setattr(module, "COMPONENT_KINDS", kinds)
    assert H200.mbarrier is not None
    numbers = {item.name: getattr(H200.mbarrier, item.name) for item in fields(MbarrierSpec)}
    gpu = replace(H200, mbarrier=Newer(**numbers, far_cycles=7.0))
    free = idealize(gpu, frozenset({"latency"})).mbarrier
    assert isinstance(free, Newer) and free.far_cycles == 0.0
    kept = idealize(gpu, frozenset({"hbm"})).mbarrier
    assert isinstance(kept, Newer) and kept.far_cycles == 7.0
