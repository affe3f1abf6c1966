"""mbarriers: a phase completes at the n-th arrival and the last byte, not before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.errors import HazardError
from gpusim.machine.sm.mbarrier import Mbarrier


@pytest.mark.parametrize("num", [1, 2, 3, 128, 256])
def test_a_phase_is_open_after_n_minus_1_arrivals_and_complete_after_n(num: int) -> None:
    barrier = Mbarrier("full", 0, num)
    for _ in range(num - 1):
        barrier.arrive(1, 5.0)
    assert not barrier.has_completed(0)
    barrier.arrive(1, 5.0)
    assert barrier.has_completed(0)


def test_one_arrive_may_count_for_many() -> None:
    barrier = Mbarrier("empty", 0, 256)
    barrier.arrive(128, 1.0)
    assert not barrier.has_completed(0)
    barrier.arrive(128, 2.0)
    assert barrier.has_completed(0)


def test_a_phase_waits_for_its_last_byte() -> None:
    barrier = Mbarrier("full", 0, 1)
    barrier.expect_tx(4096)
    barrier.arrive(1, 0.0)
    barrier.complete_tx(4095, 10.0)
    assert not barrier.has_completed(0)
    barrier.complete_tx(1, 20.0)
    assert barrier.has_completed(0)
    assert barrier.completed_at == 20.0


def test_all_bytes_do_not_complete_a_phase_without_its_arrivals() -> None:
    barrier = Mbarrier("full", 0, 2)
    barrier.expect_tx(64)
    barrier.arrive(1, 0.0)
    barrier.complete_tx(64, 10.0)
    assert not barrier.has_completed(0)
    barrier.arrive(1, 30.0)
    assert barrier.completed_at == 30.0


def test_bytes_may_come_before_they_are_announced() -> None:
    barrier = Mbarrier("full", 0, 1)
    barrier.complete_tx(64, 10.0)
    assert not barrier.has_completed(0)
    barrier.expect_tx(64)
    barrier.arrive(1, 20.0)
    assert barrier.has_completed(0)


def test_the_phase_before_the_first_counts_as_complete() -> None:
    barrier = Mbarrier("empty", 0, 1)
    assert barrier.has_completed(1)
    assert not barrier.has_completed(0)


def test_parity_alternates_and_the_counts_start_anew() -> None:
    barrier = Mbarrier("full", 0, 2)
    for phase in range(5):
        assert barrier.parity == phase % 2
        assert barrier.has_completed(phase % 2 ^ 1)
        barrier.arrive(1, 0.0)
        assert not barrier.has_completed(phase % 2)
        barrier.arrive(1, 0.0)
        assert barrier.num_phases == phase + 1


def test_a_phase_completes_at_the_latest_of_its_stamps_in_whatever_order_they_come() -> None:
    barrier = Mbarrier("full", 0, 3)
    for cycle in (7.0, 30.0, 12.0):
        barrier.arrive(1, cycle)
    assert barrier.completed_at == 30.0


def test_waiters_are_woken_once_with_the_cycle_of_completion() -> None:
    barrier = Mbarrier("full", 0, 2)
    woken: list[float] = []
    barrier.waiters += [woken.append, woken.append]
    barrier.arrive(1, 3.0)
    assert woken == []
    barrier.arrive(1, 8.0)
    assert woken == [8.0, 8.0]
    barrier.arrive(2, 9.0)
    assert woken == [8.0, 8.0]


def test_more_arrivals_than_a_phase_expects_are_refused() -> None:
    barrier = Mbarrier("full", 3, 2)
    barrier.arrive(1, 0.0)
    with pytest.raises(HazardError, match=r"mbarrier full\[3\] got 4 arrivals in a phase that expects 2"):
        barrier.arrive(3, 0.0)


def test_too_many_arrivals_in_a_phase_that_waits_for_bytes_are_refused() -> None:
    barrier = Mbarrier("full", 0, 1)
    barrier.expect_tx(64)
    barrier.arrive(1, 0.0)
    with pytest.raises(HazardError, match="got 2 arrivals"):
        barrier.arrive(1, 0.0)


@given(
    num_arrivals=st.integers(1, 5),
    chunks=st.lists(st.integers(1, 512), max_size=5),
    stamps=st.lists(st.integers(0, 1000), min_size=10, max_size=10),
    data=st.data(),
)
def test_whatever_the_order_a_phase_completes_at_its_last_event_and_not_before(
    num_arrivals: int, chunks: list[int], stamps: list[int], data: st.DataObject
) -> None:
    barrier = Mbarrier("full", 0, num_arrivals)
    barrier.expect_tx(sum(chunks))
    events = data.draw(st.permutations([("arrive", 1)] * num_arrivals + [("bytes", size) for size in chunks]))
    for (kind, size), stamp in zip(events, stamps, strict=False):
        assert barrier.num_phases == 0
        if kind == "arrive":
            barrier.arrive(size, float(stamp))
        else:
            barrier.complete_tx(size, float(stamp))
    assert barrier.num_phases == 1
    assert barrier.completed_at == max(stamps[: len(events)])
    assert barrier.tx_bytes == barrier.announced_bytes == barrier.delivered_bytes == 0
