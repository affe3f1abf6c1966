"""Warps of an SM that multiply take turns: who does goes on until it stops, then who has waited longest; copies wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpusim import Buffer
from gpusim.errors import LaunchError
from gpusim.workload import ops
from gpusim.workload.atoms import mma_sync
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext

from .kernels import TOY, contiguous, ends_of, role, run

MATH = mma_sync(BF16)
GREEDY_CYCLES = 16.0
"""For how long who multiplies may do something else, and still goes on first: engine/mma_arbiter.cpp."""
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


# ---------------------------------------------------------------------------------------------- FFMA, and copies beside them

RUN = 256.0
"""FFMA of a warp in a run: between two its role reads nothing, so that one is followed by the next."""
COPIES = 4
SMALL: dict[str, Any] = {"buffers": (Buffer(name="a", stage_bytes=4096, num_stages=1),), "registers_per_thread": 32}
"""Several such CTAs have room on an SM: only there they take turns."""


def products(num_runs: int, *, each: int = 1) -> Any:
    """So many runs of FFMA, one behind the other, of as many parts ``each``; 0: they take no turns."""

    def program(cta: RoleContext) -> Iterator[Any]:
        for _ in range(num_runs):
            yield ops.Fma(RUN, num_runs=each)

    return program


def copier(num_warps: int) -> Any:
    """A little later each warp copies four times."""

    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.Alu(20, is_chain=True)
        yield ops.CpAsync("T", (0, 0), contiguous(128 * COPIES * num_warps), "a", 0)
        yield ops.CpAsyncCommitGroup()

    return program


def copied_at(num_math_warps: int, num_runs: int, **of_math: Any) -> tuple[float, float]:
    """(when four warps have issued their copies, when others' math beside them ends)."""
    result = run(
        role(products(num_runs, **of_math), "math", num_math_warps), role(copier(4), "copier", 4), **SMALL
    )
    return ends_of(result, "copier")[0], ends_of(result, "math")[0]


def test_copies_wait_until_the_math_of_two_warps_a_scheduler_stops() -> None:
    copied, done = copied_at(8, 10)
    assert copied >= done
    free, done = copied_at(8, 10, each=0)
    assert free < done / 4


def test_copies_wait_a_run_each_for_one_warp_a_scheduler() -> None:
    copied, done = copied_at(4, 10)
    each = done / 10
    assert COPIES * each - 1 <= copied < (COPIES + 2) * each
    copied, done = copied_at(4, 2)
    assert copied >= done  # it has stopped before


def test_copies_wait_for_parts_of_what_is_asked_for_at_once() -> None:
    """Ten ops of two runs are twenty runs: each copy waits for half of an op."""
    one, done = copied_at(4, 10)
    two, _ = copied_at(4, 10, each=2)
    assert two < one - COPIES / 2 * done / 10 + done / 10
    assert two >= (COPIES / 2 - 1) * done / 10


def test_copies_wait_for_as_many_runs_as_ctas_multiply() -> None:
    """Warps of two that multiply must both wait for what they read before a copy passes."""
    math = [role(products(40), f"math{idx}", 4) for idx in range(2)]
    beside_one = ends_of(run(math[0], role(copier(4), "copier", 4), **SMALL), "copier")[0]
    beside_two = ends_of(run(*math, role(copier(4), "copier", 4), **SMALL), "copier")[0]
    assert beside_one + (COPIES - 1) * RUN < beside_two < beside_one + (COPIES + 2) * RUN


def test_instructions_between_those_of_a_chain_take_turns_from_products() -> None:
    """Alone they are hidden by the chain's own waits; beside another role's math each takes a cycle of its scheduler."""

    def chained(num_more: float) -> Any:
        def program(cta: RoleContext) -> Iterator[Any]:
            yield ops.Alu(100, is_chain=True, num_more=num_more)

        return program

    alone = [ends_of(run(role(chained(more), "code", 4), **SMALL), "code")[0] for more in (0.0, 200.0)]
    assert alone[1] == pytest.approx(alone[0])
    math = role(products(8, each=0), "math", 4)
    beside = [ends_of(run(role(chained(more), "code", 4), math, **SMALL), "math")[0] for more in (0.0, 200.0)]
    assert beside[1] - beside[0] == pytest.approx(200.0, abs=2.0)


def test_ffma_of_several_are_done_one_behind_the_other() -> None:
    alone = ends_of(run(role(products(4), "first", 4), **SMALL), "first")[0]
    result = run(role(products(4), "first", 4), role(products(4), "second", 4), **SMALL)
    first, second = (ends_of(result, name)[0] for name in ("first", "second"))
    assert first == pytest.approx(alone, rel=0.01) and second == pytest.approx(2 * alone, rel=0.02)


def copying_between(run_length: float, num_chained: float) -> Any:
    """A role that multiplies, does something else, and copies."""

    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.Fma(run_length, num_runs=1)
        yield ops.Alu(num_chained, is_chain=True)
        yield ops.CpAsync("T", (0, 0), contiguous(512), "a", 0)
        yield ops.CpAsyncCommitGroup()
        yield ops.CpAsyncWaitGroup(0)

    return program


@pytest.mark.parametrize("num_chained", range(0, 14))
@pytest.mark.parametrize("other", [4.0, 16.0, 256.0])
def test_who_copies_behind_its_own_math_hands_the_turn_on(num_chained: int, other: float) -> None:
    result = run(
        role(copying_between(RUN, num_chained), "first", 4), role(copying_between(other, 0), "second", 4), **SMALL
    )  # fmt: skip
    first, second = (ends_of(result, name)[0] for name in ("first", "second"))
    assert first > RUN and second > RUN


def test_the_copies_of_one_step_wait_for_one_stop() -> None:
    """That of the last that multiplies: behind it they all go."""

    def copies(num: int) -> Any:
        def program(cta: RoleContext) -> Iterator[Any]:
            yield ops.Alu(20, is_chain=True)
            for idx in range(num):
                yield ops.CpAsync("T", (0, idx), contiguous(128 * 4), "a", 0)
            yield ops.CpAsyncCommitGroup()

        return program

    others = [role(products(4), f"math{idx}", 8) for idx in range(3)]
    one, four = (ends_of(run(*others, role(copies(num), "copier", 4), **SMALL), "copier")[0] for num in (1, 4))
    assert one >= 3 * 4 * 2 * RUN - 4  # three that multiply, four runs each, two warps a scheduler
    assert one <= four < one + RUN


def test_short_runs_hold_copies_no_longer_than_a_look_at_them() -> None:
    """Four copies a warp wait for four runs; cursors run ahead of the clock by some 50 cycles, which is a look's grain."""

    def short(cta: RoleContext) -> Iterator[Any]:
        for _ in range(100):
            yield ops.Fma(16.0, num_runs=1)

    result = run(role(short, "math", 4), role(copier(4), "copier", 4), **SMALL)
    each = ends_of(result, "math")[0] / 100
    assert ends_of(result, "copier")[0] < 80 + 4 * each + 100


# ---------------------------------------------------------------------------------------------- by age

STEPS, PAUSE = 12, 60.0
"""Turns of a loop, of four runs each and then something else for so many cycles."""


def in_steps(by_age: bool, *, num_copies: int = 0) -> Any:
    """A loop that copies, if it is told to, multiplies and does something else."""

    def program(cta: RoleContext) -> Iterator[Any]:
        for _ in range(STEPS):
            if num_copies:
                yield ops.CpAsync("T", (0, 0), contiguous(512 * num_copies), "a", 0)
                yield ops.CpAsyncCommitGroup()
            for _ in range(4):
                yield ops.Fma(RUN, num_runs=1, by_age=by_age)
            yield ops.Alu(PAUSE / TOY.warp_scheduler.dependent_cycles, is_chain=True)

    return program


def ends_of_sharers(num: int, by_age: bool, **of_loop: Any) -> list[float]:
    """Of the CTAs of one SM, the oldest first."""
    result = run(role(in_steps(by_age, **of_loop), "loop", 4), num_ctas=num * TOY.num_sms, **SMALL)
    return ends_of(result, "loop")[:: TOY.num_sms]


@pytest.mark.parametrize("num_copies", [0, 2])
@pytest.mark.parametrize("num", [2, 3])
def test_older_ctas_go_first_where_age_counts_and_end_together_where_it_does_not(num: int, num_copies: int) -> None:
    alone = ends_of_sharers(1, True, num_copies=num_copies)[0]
    by_age, in_turn = (ends_of_sharers(num, flag, num_copies=num_copies) for flag in (True, False))
    assert by_age == sorted(by_age)
    assert by_age[0] < alone + STEPS * 3 * RUN  # of younger ones, before its copies and its math
    assert by_age[0] < 0.8 * by_age[-1]
    assert min(in_turn) > 0.85 * max(in_turn)
    assert by_age[-1] == pytest.approx(max(in_turn), rel=0.1)


def test_a_younger_cta_s_run_ends_before_an_older_one_goes_on() -> None:
    """So the older one loses less than a run a step, and nobody's math is cut in two."""
    alone, (older, younger) = ends_of_sharers(1, True)[0], ends_of_sharers(2, True)
    assert alone < older <= alone + STEPS * RUN
    assert younger >= 2 * STEPS * 4 * RUN


def test_who_takes_no_turns_is_not_served_by_age() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.Fma(RUN, by_age=True)

    with pytest.raises(LaunchError, match="wants num_runs of 1 or more"):
        run(role(program, "math", 4), **SMALL)
