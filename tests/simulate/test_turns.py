"""Warps of an SM that multiply by mma.sync take turns: who does goes on until it stops, then who has waited longest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpusim.simulate.turns import GREEDY_CYCLES
from gpusim.workload import ops
from gpusim.workload.atoms import mma_sync
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext

from .kernels import TOY, ends_of, role, run

MATH = mma_sync(BF16)
EACH = MATH.num_flops / (TOY.tensor_core.mma_sync_flops_per_cycle["16bit"] / 4)
"""Cycles of a sub-core for one."""


def ends(**programs: Any) -> list[float]:
    """When roles of four warps, one a sub-core, are through."""
    result = run(*(role(program, name, 4) for name, program in programs.items()))
    return [ends_of(result, name)[0] for name in programs]


def chunks(*parts: float) -> Any:
    """Ten mma.sync for each part, and between two so many cycles of other instructions."""

    def program(cta: RoleContext) -> Iterator[Any]:
        for idx, pause in enumerate(parts):
            if idx:
                yield ops.Alu(pause / TOY.warp_scheduler.dependent_cycles, is_chain=True)
            yield ops.MmaSync(MATH, 10)

    return program


@pytest.mark.parametrize(("pause", "goes_on"), [(0.0, True), (GREEDY_CYCLES, True), (GREEDY_CYCLES + 4.0, False)])
def test_who_multiplies_goes_on_unless_it_stops_for_longer(pause: float, goes_on: bool) -> None:
    """Of two with ten each behind one another, and one with ten, the one comes last, or in the pause."""
    first, second = ends(first=chunks(0.0, pause), second=chunks(0.0))
    assert (first < second) == goes_on
    ten = 10 * EACH
    if goes_on:
        assert first == pytest.approx(2 * ten + pause - EACH, abs=EACH)
        assert second == pytest.approx(first + ten, abs=EACH)
    else:
        assert second == pytest.approx(2 * ten - EACH, abs=EACH)
        assert first == pytest.approx(3 * ten - EACH, abs=EACH)


def test_who_has_waited_longest_comes_first() -> None:
    found = ends(**{name: chunks(0.0) for name in "abcd"})
    assert found == sorted(found) and len(set(found)) == 4


def test_all_work_is_done_at_the_rate_of_the_tensor_cores() -> None:
    found = ends(**{name: chunks(0.0, 0.0, 0.0) for name in "abc"})
    assert max(found) == pytest.approx(90 * EACH, abs=EACH)
