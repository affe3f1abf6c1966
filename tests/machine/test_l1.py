"""L1: loads whose line is on its way keep others behind them waiting."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpusim.machine.component import MemoryRequest
from gpusim.machine.config import load_gpu
from gpusim.machine.memory.l1 import L1
from gpusim.machine.timing import RingingEnvironment

from .conftest import warm_machine

COST = 0.5
GPU = load_gpu("h200_sxm")


def l1_of(cost: float, *, runs: bool = False) -> tuple[L1, float]:
    """An SM's, which has asked at cycle 0 for a line that L2 has, and when that is there; ``runs``: until it is known."""
    gpu = replace(GPU, l1=replace(GPU.l1, coming_request_cycles=cost))
    env = RingingEnvironment()
    machine = warm_machine(env, gpu)
    l1 = machine.sms[0].l1
    machine.xbar.is_live(0, is_live=True)
    there: list[float] = []
    request = MemoryRequest(
        tensor="A", tile=(0, 0), num_bytes=128.0, sm_idx=0, wave=0, num_alike=1.0, issued_at=0.0, num_rows=1.0
    )
    l1.read(request, there.append, allocates=True)
    if runs:
        env.run(until=2 * GPU.l2.far_latency_cycles)
    return l1, there[0] if there else GPU.l2.near_latency_cycles


def noted(l1: L1, num: float, *, since: float, at_cycle: float | None = None) -> float:
    return l1.wait_for_lines(
        "A", (0, 0), num, since=since, at_cycle=since if at_cycle is None else at_cycle, weight=1.0
    )


@pytest.mark.parametrize("runs", [False, True])
def test_who_asks_while_a_line_is_on_its_way_takes_longer(*, runs: bool) -> None:
    """Of 1000 in a row those whose turn comes before the line is there; 10 are all of them."""
    l1, there_at = l1_of(COST, runs=runs)
    assert noted(l1, 10, since=0.0) == pytest.approx(10 * (1.0 + COST))
    l1, _ = l1_of(COST, runs=runs)
    assert noted(l1, 1000, since=0.0) == pytest.approx(1000 + COST * there_at / (1.0 + COST))


def test_who_asks_when_it_is_there_does_not() -> None:
    l1, there_at = l1_of(COST, runs=True)
    assert noted(l1, 1000, since=there_at) == pytest.approx(there_at + 1000)


def test_others_lines_cost_a_request_s_turn() -> None:
    l1, _ = l1_of(COST)
    assert l1.wait_for_lines("A", (0, 1), 7, since=3.0, at_cycle=3.0, weight=1.0) == pytest.approx(10.0)


def test_what_is_used_together_is_noted_together() -> None:
    """Loads that stand behind others of the same turn may have been noted among them."""
    l1, _ = l1_of(COST)
    assert noted(l1, 10, since=0.0, at_cycle=200.0) == pytest.approx(10 * (1.0 + COST))
    assert noted(l1, 10, since=0.0, at_cycle=GPU.l2.near_latency_cycles) == pytest.approx(10 * (1.0 + COST) + 10)


def test_without_a_cost_nothing_is_noted() -> None:
    l1, _ = l1_of(0.0)
    assert noted(l1, 1000, since=5.0, at_cycle=8.0) == 8.0
    assert l1.noted.busy_cycles == 0.0
