"""The instruction cache: what fits runs on, what is too long by half a level misses twice over, misses by their latency."""

from __future__ import annotations

import pytest

from gpusim.errors import LaunchError
from gpusim.machine.sm.instruction_cache import FetchedCode, InstructionCache, InstructionCacheSpec

SPEC = InstructionCacheSpec(
    l0_bytes=1024.0, l1_bytes=4096.0, l1_latency_cycles=16.0, prefetched_bytes=64.0, launch_fetched_bytes=2048.0,
    loop_kept_bytes=1024.0, loop_bytes_per_cycle=2.0, loop_paces={"0": 1.0, "1": 0.5},
)
"""A byte costs 1/16 cycle to issue, 1/4 out of L1; 2 out of an L2 of 128 cycles, 4 out of a memory of 256."""


def waits(cache: InstructionCache, name: str, num_bytes: int, *, num_warps_each: int = 1) -> float:
    return cache.wait_cycles(name, num_bytes, l2_cycles=128.0, first_cycles=256.0, num_warps_each=num_warps_each)


def test_the_first_run_comes_from_below_and_the_second_costs_nothing_if_l0_holds_it() -> None:
    cache = InstructionCache(SPEC)
    assert waits(cache, "loop", 1024) == pytest.approx(1024 * (4 - 1 / 16))
    assert waits(cache, "loop", 1024) == 0.0


@pytest.mark.parametrize(("num_bytes", "missing"), [(1024, 0.0), (1280, 0.4), (1536, 2 / 3), (2048, 1.0), (4096, 1.0)])
def test_code_that_comes_round_misses_twice_what_l0_is_short_of(num_bytes: int, missing: float) -> None:
    cache = InstructionCache(SPEC)
    waits(cache, "loop", num_bytes)
    for _ in range(2):
        assert waits(cache, "loop", num_bytes) == pytest.approx(num_bytes * missing * (1 / 4 - 1 / 16))


def test_what_l1_lacks_comes_from_l2_however_cold_it_was_at_first() -> None:
    cache = InstructionCache(SPEC)
    waits(cache, "loop", 8192)
    assert waits(cache, "loop", 8192) == pytest.approx(8192 * (2 - 1 / 16))


def test_other_code_counts_that_ran_since() -> None:
    cache = InstructionCache(SPEC)
    for name in ("first", "second"):
        waits(cache, name, 768)
    assert waits(cache, "second", 768) == 0.0
    assert waits(cache, "first", 768) == pytest.approx(768 * 2 / 3 * (1 / 4 - 1 / 16))


def test_several_warps_of_a_sub_core_issue_while_they_wait() -> None:
    cache = InstructionCache(SPEC)
    waits(cache, "loop", 2048)
    assert waits(cache, "loop", 2048, num_warps_each=4) == 0.0


def test_code_without_a_length_or_of_another_one_is_refused() -> None:
    cache = InstructionCache(SPEC)
    with pytest.raises(LaunchError, match="has 0 bytes"):
        waits(cache, "loop", 0)
    waits(cache, "loop", 512)
    with pytest.raises(LaunchError, match="has 256 bytes and had 512"):
        waits(cache, "loop", 256)


def late(cache: InstructionCache, begin: int, end: int, *, at_cycle: float = 0.0, own_cycles: float = 0.0) -> float:
    return cache.late_cycles(
        "stretch", begin, end, at_cycle=at_cycle, own_cycles=own_cycles, l2_cycles=128.0, first_cycles=256.0
    )


def test_a_launch_brings_the_first_code_along_and_the_rest_comes_out_of_memory() -> None:
    assert late(InstructionCache(SPEC), 1024, 2048) == 0.0
    assert late(InstructionCache(SPEC), 1024, 3072) == pytest.approx(1024 * 4)
    assert late(InstructionCache(SPEC), 3072, 4096) == pytest.approx(1024 * 4)


def test_code_that_has_come_is_there_and_who_comes_meanwhile_waits_for_the_rest() -> None:
    cache = InstructionCache(SPEC)
    late(cache, 4096, 5120)
    assert late(cache, 4096, 5120, at_cycle=1000.0) == pytest.approx(1024 * 4 - 1000)
    assert late(cache, 4096, 5120, at_cycle=5000.0) == 0.0


def test_what_code_takes_anyway_hides_as_much_of_its_fetch() -> None:
    assert late(InstructionCache(SPEC), 4096, 5120, own_cycles=1500.0) == pytest.approx(1024 * 4 - 1500)
    assert late(InstructionCache(SPEC), 4096, 5120, own_cycles=5000.0) == 0.0
    assert late(InstructionCache(SPEC), 1024, 3072, own_cycles=1000.0) == pytest.approx(1024 * 4 - 500)  # half of it is far


def test_a_later_sm_finds_in_l2_what_another_has_fetched_but_none_sooner() -> None:
    fetched = FetchedCode()
    first, next_one, last = (InstructionCache(SPEC, fetched=fetched) for _ in range(3))
    late(first, 4096, 5120)
    assert late(next_one, 4096, 5120, at_cycle=500.0) == pytest.approx(1024 * 4 - 500)
    assert late(last, 4096, 5120, at_cycle=9000.0) == pytest.approx(1024 * 2)


@pytest.mark.parametrize(("num_bytes", "lost"), [(512, 0.0), (1024, 0.0), (1152, 5 / 9), (1280, 1.0), (8192, 1.0)])
def test_a_loop_waits_for_what_is_not_kept_beyond_what_its_warps_issue(num_bytes: int, lost: float) -> None:
    cache = InstructionCache(SPEC)
    paced = num_bytes / SPEC.loop_bytes_per_cycle
    for own in (0.0, paced / 2, paced, 2 * paced):
        assert cache.loop_cycles(num_bytes / 16, own_cycles=own) == pytest.approx(lost * max(0.0, paced - own))


@pytest.mark.parametrize(("tpc", "pace"), [(0, 1.0), (1, 0.5), (7, 0.75)])
def test_a_loop_s_code_comes_as_its_tpc_has_it_and_at_the_mean_where_none_is_told(tpc: int, pace: float) -> None:
    assert InstructionCache(SPEC, tpc=tpc).loop_cycles(128, own_cycles=0.0) == pytest.approx(2048 / (2.0 * pace))
