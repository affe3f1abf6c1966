"""FFMAs whose registers lie in one bank take more turns of their scheduler, and others wait behind them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpusim.workload import ops
from gpusim.workload.launch import RoleContext

from .kernels import TOY, ends_of, role, run

PER_TURN = TOY.warp_scheduler.bank_reads_per_cycle
RATE = TOY.warp_scheduler.fp32_lanes / 32 / 4
"""FFMAs of a scheduler in a cycle."""


def ends(**told: ops.Op) -> list[float]:
    """When roles of four warps, one a scheduler, are through with one op each."""

    def program(op: ops.Op) -> Any:
        def programmed(cta: RoleContext) -> Iterator[ops.Op]:
            del cta
            yield op

        return programmed

    result = run(*(role(program(op), name, 4) for name, op in told.items()))
    return [ends_of(result, name)[0] for name in told]


@pytest.mark.parametrize(("turns", "takes"), [(0.5, 1.0), (1.0, 1.0), (1.25, 1.25), (2.0, 2.0)])
def test_a_bank_that_gives_enough_costs_nothing_and_one_that_does_not_its_turns(turns: float, takes: float) -> None:
    (alone,), (told,) = ends(a=ops.Fma(400)), ends(a=ops.Fma(400, bank_reads=turns * PER_TURN))
    assert told - alone == pytest.approx(400 * (takes - 1.0) / RATE)


def test_what_another_warp_of_the_scheduler_issues_goes_behind() -> None:
    both = max(ends(a=ops.Fma(400, bank_reads=2.0 * PER_TURN), b=ops.Fma(100)))
    assert both - max(ends(a=ops.Fma(400))) == pytest.approx((400 + 100) / RATE)
