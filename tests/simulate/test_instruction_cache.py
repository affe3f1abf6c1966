"""The instruction cache: what fits runs on, what is too long by half a level misses twice over, misses by their latency."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpusim.workload import ops
from gpusim.workload.launch import RoleContext

from .kernels import TOY, changed, role, run

L0, KEPT, PACE = 1024, 1024, 2.0
LAUNCHED = 2048
"""Bytes that a launch brings along."""
GPU = changed(instruction_cache={
    "l0_bytes": float(L0), "l1_bytes": 4096.0, "l1_latency_cycles": 16.0, "prefetched_bytes": 64.0,
    "launch_fetched_bytes": float(LAUNCHED), "loop_kept_bytes": float(KEPT), "loop_bytes_per_cycle": PACE,
    "loop_fetch_rate_by_tpc": {"0": 1.0, "1": 0.5},
})  # fmt: skip
ISSUE, OF_L1 = 1 / 16, 16.0 / 64
"""Cycles of a byte: of an instruction of 16 to issue, of a fetch out of L1."""
OF_L2, OF_MEMORY = TOY.l2.near_latency_cycles / 64, TOY.hbm.latency_ns / 64


def taken(*asked: ops.Op, l2: str = "warm", num_warps: int = 1) -> list[float]:
    """Cycles of each op of a role."""

    def program(cta: RoleContext) -> Iterator[Any]:
        for op in asked:
            yield ops.RangeStart(ops.Section.MAINLOOP)
            yield op
            yield ops.RangeEnd()

    (found,) = run(role(program, "role0", num_warps), gpu=GPU, l2=l2).timeline.roles
    return [span.end_cycle - span.start_cycle for span in found.sections]


@pytest.mark.parametrize(("l2", "of_byte"), [("warm", OF_L2), ("cold", OF_MEMORY)])
def test_the_first_run_comes_from_below_and_the_second_costs_nothing_if_l0_holds_it(l2: str, of_byte: float) -> None:
    assert taken(*[ops.FetchCode("loop", L0)] * 3, l2=l2) == [pytest.approx(L0 * (of_byte - ISSUE)), 0.0, 0.0]


@pytest.mark.parametrize(("num_bytes", "missing"), [(1280, 0.4), (1536, 2 / 3), (2048, 1.0), (4096, 1.0)])
def test_code_that_comes_round_misses_twice_what_l0_is_short_of(num_bytes: int, missing: float) -> None:
    again = num_bytes * missing * (OF_L1 - ISSUE)
    assert taken(*[ops.FetchCode("loop", num_bytes)] * 3)[1:] == pytest.approx([again, again])


def test_what_l1_lacks_comes_from_l2_however_cold_it_was_at_first() -> None:
    assert taken(*[ops.FetchCode("loop", 8192)] * 2, l2="cold")[1] == pytest.approx(8192 * (OF_L2 - ISSUE))


def test_other_code_counts_that_ran_since() -> None:
    found = taken(*(ops.FetchCode(name, 768) for name in ("first", "second", "second", "first")))
    assert found[2:] == [0.0, pytest.approx(768 * 2 / 3 * (OF_L1 - ISSUE))]


def test_several_warps_of_a_sub_core_issue_while_they_wait() -> None:
    assert taken(*[ops.FetchCode("loop", 2048)] * 2, num_warps=16)[1] == 0.0


@pytest.mark.parametrize(("num_bytes", "lost"), [(512, 0.0), (1024, 0.0), (1152, 5 / 9), (1280, 1.0), (8192, 1.0)])
def test_a_loop_waits_for_what_is_not_kept_beyond_what_its_warp_issues(num_bytes: int, lost: float) -> None:
    own = num_bytes / 16
    assert taken(ops.LoopBody(own, 0.0, 0.0)) == [pytest.approx(lost * (num_bytes / PACE - own))]


def far(begin: int, end: int, *, overhead_cycles: float = 0.0) -> ops.FetchColdCode:
    return ops.FetchColdCode("stretch", begin, end, overhead_cycles)


@pytest.mark.parametrize(("begin", "end"), [(1024, 2048), (1024, 3072), (3072, 4096)])
def test_a_launch_brings_the_first_code_along_and_the_rest_comes_out_of_memory_once(begin: int, end: int) -> None:
    num_far = max(0, end - max(begin, LAUNCHED))
    assert taken(far(begin, end), far(begin, end), l2="flushed") == [pytest.approx(num_far * OF_MEMORY), 0.0]
    assert taken(far(begin, end), l2="cold") == [0.0]


def test_what_code_takes_anyway_hides_as_much_of_its_fetch() -> None:
    (alone,) = taken(far(4096, 5120), l2="flushed")
    assert taken(far(4096, 5120, overhead_cycles=1500.0), l2="flushed") == [pytest.approx(alone - 1500.0)]
    assert taken(far(4096, 5120, overhead_cycles=9000.0), l2="flushed") == [0.0]
