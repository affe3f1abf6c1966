"""The work distributor: which slots there are, in what order, and when a round comes to each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpusim.machine.config import load_gpu
from gpusim.machine.dispatcher import DispatcherSpec, slots_of_grid
from gpusim.machine.floorplan import Floorplan

TOY = load_gpu("toy").dispatcher
H200 = load_gpu("h200_sxm")


FOUR = Floorplan({"4": 1})
THREE_GPCS = Floorplan({"4": 2, "6": 1}, singleton_tpc_sms=2)
"""SMs 0 1, 2 3 6 7 and 4 5 8 9 10 11, and of the first GPC the lone 12 13."""


def slots(
    spec: DispatcherSpec = TOY, *, floorplan: Floorplan = FOUR, cluster_size: int = 1, ctas_per_sm: int = 1,
    num_ctas: int | None = None,
) -> list[tuple[int, ...]]:
    return slots_of_grid(spec, floorplan, cluster_size=cluster_size, ctas_per_sm=ctas_per_sm, num_ctas=num_ctas)


def by_gpc(**options: int) -> list[int]:
    """SMs in the order of ``gpc_first`` on three GPCs."""
    return [sm for (sm,) in slots(replace(TOY, order="gpc_first"), floorplan=THREE_GPCS, **options)]


def test_breadth_first_goes_once_around_before_any_sm_gets_a_second_cta() -> None:
    assert slots(ctas_per_sm=2) == [(0,), (1,), (2,), (3,), (0,), (1,), (2,), (3,)]


def test_tpc_first_goes_to_one_sm_of_each_tpc_and_then_to_the_other() -> None:
    assert slots(replace(TOY, order="tpc_first")) == [(0,), (2,), (1,), (3,)]


def test_gpc_first_fills_lone_pairs_and_then_gpc_by_gpc() -> None:
    assert by_gpc() == [12, 13, 0, 1, 2, 3, 6, 7, 4, 5, 8, 9, 10, 11]
    assert by_gpc(ctas_per_sm=2, num_ctas=28) == by_gpc() * 2


def test_a_grid_that_leaves_sms_free_is_spread_over_gpcs_and_tpcs() -> None:
    """Lone pairs, then first SMs of TPCs in turns over GPCs: 0, 2, 4, 6, 8, 10; then second ones; CTAs by GPC."""
    assert by_gpc(num_ctas=5)[:5] == [12, 13, 0, 2, 4]
    assert by_gpc(num_ctas=9)[:9] == [12, 13, 0, 1, 2, 6, 4, 8, 10]
    assert by_gpc(num_ctas=1)[:1] == [12]


def test_what_is_beyond_a_whole_layer_is_spread_like_a_small_grid() -> None:
    every = by_gpc(num_ctas=14 + 5, ctas_per_sm=3)
    assert every[:14] == by_gpc() and every[14:19] == by_gpc(num_ctas=5)[:5]
    assert sorted(every) == sorted([*range(14)] * 3)


@pytest.mark.parametrize("order", ["breadth_first", "tpc_first", "gpc_first"])
def test_every_sm_has_as_many_slots_as_ctas_fit(order: str) -> None:
    seven = Floorplan({"7": 1})
    every = slots(replace(TOY, order=order), floorplan=seven, ctas_per_sm=3)  # type: ignore[arg-type]  # one of the three
    assert sorted(sm for slot in every for sm in slot) == sorted([*range(7)] * 3)


def test_a_cluster_takes_neighbouring_sms() -> None:
    assert slots(cluster_size=2) == [(0, 1), (2, 3)]
    assert slots(cluster_size=4) == [(0, 1, 2, 3)]


def test_sms_that_make_no_whole_cluster_stay_empty() -> None:
    assert slots(floorplan=Floorplan({"7": 1}), cluster_size=2) == [(0, 1), (2, 3), (4, 5)]


def test_clusters_stay_in_a_gpc_and_begin_in_each_in_turn() -> None:
    assert slots(floorplan=THREE_GPCS, cluster_size=2) == [(12, 13), (0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11)]
    assert slots(floorplan=THREE_GPCS, cluster_size=4) == [(2, 3, 6, 7), (4, 5, 8, 9)]


def test_the_h200s_grid_goes_where_one_wave_was_seen() -> None:
    """Calibrating rows of kernels/launch_order: GPC by GPC, and 66 CTAs one to a TPC."""
    every = [sm for (sm,) in slots(H200.dispatcher, floorplan=H200.floorplan)]
    assert sorted(every[:8]) == [*range(124, 132)]
    assert every[8:26] == [0, 1, 16, 17, 32, 33, 48, 49, 2, 3, 18, 19, 34, 35, 50, 51, 64, 65]
    assert every[-18:] == [14, 15, 30, 31, 46, 47, 62, 63, 76, 77, 90, 91, 104, 105, 118, 119, 122, 123]
    half = {sm for (sm,) in slots(H200.dispatcher, floorplan=H200.floorplan, num_ctas=66)[:66]}
    assert {14, 30, 46, 62, 76, 90, 104} == half & set(every[-18:])
    eight = slots(H200.dispatcher, floorplan=H200.floorplan, cluster_size=8)
    assert eight[0] == (0, 1, 16, 17, 32, 33, 48, 49) and eight[8] == (64, 65, 78, 79, 92, 93, 106, 107)


@pytest.mark.parametrize(("size", "clusters"), [(2, 66), (4, 30), (8, 15)])
def test_hopper_places_as_many_clusters_as_were_seen(size: int, clusters: int) -> None:
    """Facts 1.4, on 132 SMs."""
    assert len(slots(H200.dispatcher, floorplan=H200.floorplan, cluster_size=size)) == clusters


def test_a_round_spreads_starts_evenly_over_its_length() -> None:
    spec = replace(TOY, round_cycles=100.0)
    waits = sorted(spec.wait_cycles(turn) for turn in range(1000))
    assert waits[0] >= 0.0 and waits[-1] < 100.0
    assert all(abs(wait - 0.1 * idx) < 1.0 for idx, wait in enumerate(waits))
    assert replace(TOY, round_cycles=0.0).wait_cycles(7) == 0.0
