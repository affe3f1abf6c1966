"""The work distributor: which slots there are, in what order, and how fast they are filled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpusim.machine.config import load_gpu
from gpusim.machine.dispatcher import Dispatcher, DispatcherSpec

TOY = load_gpu("toy").dispatcher
H200 = load_gpu("h200_sxm")


def slots(
    spec: DispatcherSpec = TOY, *, num_sms: int = 4, cluster_size: int = 1, ctas_per_sm: int = 1
) -> list[tuple[int, ...]]:
    return Dispatcher(spec, num_sms=num_sms, cluster_size=cluster_size, ctas_per_sm=ctas_per_sm).slots


def test_breadth_first_goes_once_around_before_any_sm_gets_a_second_cta() -> None:
    assert slots(ctas_per_sm=2) == [(0,), (1,), (2,), (3,), (0,), (1,), (2,), (3,)]


def test_tpc_first_goes_to_one_sm_of_each_tpc_and_then_to_the_other() -> None:
    assert slots(replace(TOY, order="tpc_first")) == [(0,), (2,), (1,), (3,)]


@pytest.mark.parametrize("order", ["breadth_first", "tpc_first"])
def test_every_sm_has_as_many_slots_as_ctas_fit(order: str) -> None:
    every = slots(replace(TOY, order=order), num_sms=7, ctas_per_sm=3)  # type: ignore[arg-type]  # one of the two
    assert sorted(sm for slot in every for sm in slot) == sorted([*range(7)] * 3)


def test_a_cluster_takes_neighbouring_sms() -> None:
    assert slots(cluster_size=2) == [(0, 1), (2, 3)]
    assert slots(cluster_size=4) == [(0, 1, 2, 3)]


def test_sms_that_make_no_whole_cluster_stay_empty() -> None:
    assert slots(replace(TOY, max_clusters={}), num_sms=7, cluster_size=2) == [(0, 1), (2, 3), (4, 5)]


@pytest.mark.parametrize(("size", "clusters"), [(2, 66), (4, 30), (8, 15)])
def test_hopper_places_as_many_clusters_as_were_seen(size: int, clusters: int) -> None:
    """Facts 1.4, on 132 SMs."""
    assert len(slots(H200.dispatcher, num_sms=H200.num_sms, cluster_size=size)) == clusters


def test_ctas_leave_at_the_grids_rate() -> None:
    dispatcher = Dispatcher(
        replace(TOY, dispatch_cycles_per_cta=2.5), num_sms=4, cluster_size=1, ctas_per_sm=1
    )
    assert [dispatcher.dispatch(at_cycle=0.0, num_ctas=1) for _ in range(3)] == [2.5, 5.0, 7.5]


def test_the_ctas_of_a_cluster_take_a_turn_each() -> None:
    dispatcher = Dispatcher(
        replace(TOY, dispatch_cycles_per_cta=2.5), num_sms=4, cluster_size=4, ctas_per_sm=1
    )
    assert dispatcher.dispatch(at_cycle=100.0, num_ctas=4) == 110.0


def test_an_idle_dispatcher_starts_when_a_slot_falls_free() -> None:
    dispatcher = Dispatcher(
        replace(TOY, dispatch_cycles_per_cta=2.0), num_sms=4, cluster_size=1, ctas_per_sm=1
    )
    dispatcher.dispatch(at_cycle=0.0, num_ctas=1)
    assert dispatcher.dispatch(at_cycle=50.0, num_ctas=1) == 52.0


def test_exits_are_noted_one_after_the_other_at_the_grids_rate() -> None:
    dispatcher = Dispatcher(replace(TOY, retire_cycles_per_cta=2.0), num_sms=4, cluster_size=1, ctas_per_sm=1)
    assert [dispatcher.retire(at_cycle=10.0, num_ctas=1) for _ in range(3)] == [12.0, 14.0, 16.0]
    assert dispatcher.retire(at_cycle=50.0, num_ctas=2) == 54.0


def test_a_round_spreads_starts_evenly_over_its_length() -> None:
    spec = replace(TOY, round_cycles=100.0)
    waits = sorted(spec.wait_cycles(turn) for turn in range(1000))
    assert waits[0] >= 0.0 and waits[-1] < 100.0
    assert all(abs(wait - 0.1 * idx) < 1.0 for idx, wait in enumerate(waits))
    assert replace(TOY, round_cycles=0.0).wait_cycles(7) == 0.0
