"""What is in L2: by reuse distance before a run, by recency during it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.machine.component import MemoryRequest
from gpusim.machine.memory.residency import (
    LruResidency,
    PanelTraffic,
    PanelUse,
    PlannedResidency,
    panel_traffic,
)

KIB = 1024


def traffic(
    panels: list[int],
    waves: list[int],
    *,
    panel_bytes: int = KIB,
    capacity: float,
    shared: float | None = None,
    is_warm: bool = False,
    is_write: bool = False,
) -> PanelTraffic:
    """One tensor's traffic: tile i walks panel ``panels[i]`` in wave ``waves[i]``."""
    use = PanelUse(
        tensor="a",
        is_write=is_write,
        panel_of_tile=np.array(panels),
        bytes_of_tile=np.full(len(panels), panel_bytes),
    )
    return panel_traffic(
        [use],
        np.array(waves),
        capacity_bytes=capacity,
        shared_capacity_bytes=capacity if shared is None else shared,
        is_warm=is_warm,
    )["a"]


def test_a_first_touch_comes_from_memory() -> None:
    result = traffic([0, 1], [0, 0], capacity=1e9)
    assert result.missed_waves == {0: frozenset({0}), 1: frozenset({0})}
    assert result.read_miss_bytes == 2 * KIB


def test_what_a_wave_shares_comes_from_memory_once() -> None:
    result = traffic([0, 0, 0, 0], [0, 0, 0, 0], capacity=1e9)
    assert result.read_miss_bytes == KIB
    assert result.num_sharers == 4


def test_a_second_wave_hits_when_it_fits() -> None:
    result = traffic([0, 1, 0, 1], [0, 0, 1, 1], capacity=2 * KIB)
    assert result.read_miss_bytes == 2 * KIB
    assert result.miss_bytes_by_wave.tolist() == [2 * KIB, 0]


def test_a_second_wave_misses_when_a_byte_is_lacking() -> None:
    result = traffic([0, 1, 0, 1], [0, 0, 1, 1], capacity=2 * KIB - 1)
    assert result.read_miss_bytes == 4 * KIB
    assert result.missed_waves == {0: frozenset({0, 1}), 1: frozenset({0, 1})}


def test_between_two_touches_lie_the_bytes_of_the_waves_between() -> None:
    """Panel 0 in waves 0 and 2; waves 0 and 1 touch 3 KiB."""
    panels, waves = [0, 1, 2, 0], [0, 1, 1, 2]
    assert traffic(panels, waves, capacity=3 * KIB).missed_waves[0] == {0}
    assert traffic(panels, waves, capacity=3 * KIB - 1).missed_waves[0] == {0, 2}


def test_what_many_share_sees_the_smaller_capacity() -> None:
    panels, waves = [0, 0, 0, 0], [0, 0, 1, 1]
    assert traffic(panels, waves, capacity=1e9, shared=KIB - 1).read_miss_bytes == 2 * KIB
    assert traffic(panels, waves, capacity=KIB - 1, shared=1e9).read_miss_bytes == KIB


def test_a_warm_cache_holds_what_fits_as_a_whole() -> None:
    assert traffic([0, 1], [0, 0], capacity=2 * KIB, is_warm=True).read_miss_bytes == 0
    assert traffic([0, 1], [0, 0], capacity=2 * KIB - 1, is_warm=True).read_miss_bytes == 2 * KIB


def test_stores_leave_for_what_capacity_lacks_and_are_never_fetched() -> None:
    result = traffic([0, 1, 2, 3], [0, 0, 1, 1], capacity=3 * KIB, is_write=True)
    assert (result.read_miss_bytes, result.written_back_fraction) == (0.0, 0.25)
    assert traffic([0, 1, 2, 3], [0, 0, 1, 1], capacity=4 * KIB, is_write=True).written_back_fraction == 0.0


def test_tensors_take_room_from_one_another() -> None:
    uses = [
        PanelUse(
            tensor=name,
            is_write=name == "d",
            panel_of_tile=np.array([0, 0]),
            bytes_of_tile=np.array([KIB, KIB]),
        )
        for name in ("a", "b", "d")
    ]
    for capacity, missed in ((3 * KIB, {0}), (3 * KIB - 1, {0, 1})):
        result = panel_traffic(
            uses, np.array([0, 1]), capacity_bytes=capacity, shared_capacity_bytes=capacity, is_warm=False
        )
        assert result["a"].missed_waves[0] == result["b"].missed_waves[0] == missed


tiles = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=30)


@given(tiles=tiles, capacity=st.integers(1, 12), is_warm=st.booleans())
def test_misses_lie_between_each_panel_once_and_each_touch(
    tiles: list[tuple[int, int]], capacity: int, is_warm: bool
) -> None:
    panels, waves = [panel for panel, _ in tiles], sorted(wave for _, wave in tiles)
    result = traffic(panels, waves, capacity=capacity * KIB, is_warm=is_warm)
    touched = len(set(zip(panels, waves, strict=True)))
    assert (0 if is_warm else len(set(panels))) * KIB <= result.read_miss_bytes <= touched * KIB
    assert result.miss_bytes_by_wave.sum() == result.read_miss_bytes
    assert sum(len(missed) for missed in result.missed_waves.values()) * KIB == result.read_miss_bytes
    assert (result.miss_bytes_by_wave <= result.touched_bytes_by_wave).all()


@given(tiles=tiles, capacity=st.integers(1, 12))
def test_a_larger_cache_never_misses_more(tiles: list[tuple[int, int]], capacity: int) -> None:
    panels, waves = [panel for panel, _ in tiles], sorted(wave for _, wave in tiles)
    small, large = (traffic(panels, waves, capacity=size * KIB) for size in (capacity, capacity + 1))
    assert large.read_miss_bytes <= small.read_miss_bytes


# ---------------------------------------------------------------------- while it runs


def request(
    panel: int, step: int = 0, *, wave: int = 0, num_bytes: float = KIB, tensor: str = "a"
) -> MemoryRequest:
    return MemoryRequest(0, tensor, (panel, step), num_bytes, wave, 0.0, 1.0)


def test_the_plan_misses_once_in_each_wave_that_it_names() -> None:
    planned = PlannedResidency({"a": traffic([0, 0, 0], [0, 1, 2], capacity=KIB - 1)})
    assert planned.misses(request(0, wave=0), -1)
    assert not planned.misses(request(0, wave=0), 0)
    assert planned.misses(request(0, wave=1), 0)


def test_the_plan_hits_where_a_panel_stays() -> None:
    planned = PlannedResidency({"a": traffic([0, 0, 0], [0, 1, 2], capacity=KIB)})
    assert planned.misses(request(0, wave=0), -1)
    assert not planned.misses(request(0, wave=1), 0)


def test_a_tile_whose_waves_were_skipped_still_comes_from_memory_once() -> None:
    planned = PlannedResidency({"a": traffic([0, 0], [0, 1], capacity=1e9)})
    assert planned.misses(request(0, wave=1), -1)
    assert not planned.misses(request(0, wave=1), 1)


def test_a_tensor_outside_of_the_plan_is_read_once() -> None:
    planned = PlannedResidency({})
    assert planned.misses(request(0, tensor="bias"), -1)
    assert not planned.misses(request(0, wave=3, tensor="bias"), 0)


def test_the_least_recently_used_tile_leaves() -> None:
    found = LruResidency(capacity_bytes=2 * KIB, is_warm=False)
    assert [found.misses(request(panel), -1) for panel in (0, 1, 0, 2, 0, 1)] == [
        True,
        True,
        False,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(("capacity", "hits"), [(3 * KIB, True), (3 * KIB - 1, False)])
def test_a_cycle_of_three_tiles_stays_exactly_when_it_fits(capacity: int, hits: bool) -> None:
    found = LruResidency(capacity_bytes=capacity, is_warm=False)
    for panel in (0, 1, 2):
        assert found.misses(request(panel), -1)
    assert [found.misses(request(panel), -1) for panel in (0, 1, 2)] == [not hits] * 3


def test_a_warm_cache_misses_only_what_was_evicted_since() -> None:
    found = LruResidency(capacity_bytes=KIB, is_warm=True)
    assert [found.misses(request(panel), -1) for panel in (0, 1, 0)] == [False, False, True]
