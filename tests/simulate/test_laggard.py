"""The last warp of a role: what it is behind is no more where loops are skipped than where they are not."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from gpusim import load_gpu, simulate
from gpusim.simulate.laggard import Laggard
from gpusim.workload import ops
from gpusim.workload.launch import Launch, RoleContext, WarpRole

from .kernels import contiguous

H200 = load_gpu("h200_sxm")
NUM_CTAS, NUM_STEPS, SKIPPED_AT, NUM_SKIPPED = 528, 40, 12, 16


def of(*, meets: bool, skips: bool) -> Launch:
    """Eight warps that load a tile out of memory step by step, compute, and meet each time or at their end."""

    def program(cta: RoleContext) -> Generator[Any, Any, None]:
        access = contiguous(8 * 2048)
        loop = cta.loop(NUM_STEPS)
        for step in loop:
            if skips and step == SKIPPED_AT:
                loop.skip(NUM_SKIPPED)  # type: ignore[attr-defined]  # as the engine does
            yield ops.Use((yield ops.GlobalLoad("A", (cta.cta_idx, step), access)))
            yield ops.Alu(8)
            if meets:
                yield ops.Syncthreads()

    roles = (WarpRole(name="all", num_warps=8, program=program),)
    return Launch(kernel="walk", num_ctas=NUM_CTAS, num_tiles=NUM_CTAS, roles=roles)


def waits(monkeypatch: pytest.MonkeyPatch, *, meets: bool, skips: bool) -> list[float]:
    """What warps waited for the last one each time that they met."""
    found: list[float] = []
    plain = Laggard.meet

    def meet(self: Laggard, worked: float) -> float:
        found.append(plain(self, worked))
        return found[-1]

    monkeypatch.setattr(Laggard, "meet", meet)
    simulate(of(meets=meets, skips=skips), H200, clock=1700.0, skips=False)
    monkeypatch.undo()
    return found


def test_who_meets_each_time_is_no_later_for_iterations_that_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    few, whole = (waits(monkeypatch, meets=True, skips=skips) for skips in (True, False))
    assert len(few) < len(whole) and max(few) > 0.0
    assert max(few) <= max(whole) * 1.05


def test_who_meets_at_the_end_is_no_later_than_all_rounds_are_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds add up as in a random walk, those that are left out, too."""
    most = max(waits(monkeypatch, meets=True, skips=False))
    assert 0.0 < max(waits(monkeypatch, meets=False, skips=True)) <= most * NUM_STEPS**0.5
