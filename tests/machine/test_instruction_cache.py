"""The instruction cache: what fits runs on, what is too long by half a level misses twice over, misses by their latency."""

from __future__ import annotations

import pytest

from gpusim.errors import LaunchError
from gpusim.machine.sm.instruction_cache import InstructionCache, InstructionCacheSpec

SPEC = InstructionCacheSpec(l0_bytes=1024.0, l1_bytes=4096.0, l1_latency_cycles=16.0, prefetched_bytes=64.0, launch_fetched_bytes=2048.0)
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
