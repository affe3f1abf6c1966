"""Copies' requests behind an SM's stores, against closed forms: what is in the way, turns with packets, the last of many."""

from __future__ import annotations

from math import log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.machine.store_port import StorePort
from gpusim.machine.timing import RingingEnvironment, SharedPipe

RATE, HELD, PACKET = 16.0, 1024.0, 64.0
"""Bytes a cycle, bytes in the way, bytes of a packet."""
LINE_CYCLES = 128 / 64.0
"""Of a port that takes in 64 bytes a cycle."""


def port_of(*stores: float, held: float = HELD, crosses: float = 0.0) -> tuple[RingingEnvironment, StorePort]:
    """A port with ``stores`` of so many bytes, each of which takes ``crosses`` cycles a byte on the links that SMs share."""
    env = RingingEnvironment()
    port = StorePort(env, SharedPipe(env, bytes_per_cycle=100 * RATE, cap_bytes_per_cycle=RATE), held)
    for num_bytes in stores:

        def cross(cycle: float, num_bytes: float = num_bytes) -> tuple[float, float]:
            return cycle + crosses * num_bytes, cycle + crosses * num_bytes

        port.send(
            num_bytes, now=0.0, through_at=0.0, cross=cross, left=lambda _: None, arrived=lambda _: None, packet_bytes=PACKET
        )
    return env, port


def behind(port: StorePort, num: float, at: float = 0.0, *, turns: float = 1.0, more: float = 0.0) -> float:
    return port.behind(
        num, at_cycle=at, request_turn_packets=turns, last_request_fraction=more, port_bytes_per_cycle=64.0
    )


def test_one_request_waits_for_what_is_in_the_way_and_its_turn() -> None:
    _, port = port_of(8192.0)
    assert port.is_busy
    assert behind(port, 1.0) == pytest.approx(HELD / RATE + PACKET / RATE - LINE_CYCLES)


def test_less_than_the_way_holds_is_all_that_it_waits_for() -> None:
    _, port = port_of(256.0)
    assert behind(port, 1.0) == pytest.approx(256 / RATE + PACKET / RATE - LINE_CYCLES)


def test_requests_go_in_turns_with_packets_and_the_next_copy_behind_them() -> None:
    """A copy's last line is as much later as turns are longer than lines; the next one's turns begin behind all of them."""
    _, port = port_of(1e6)
    turn = PACKET / RATE
    assert behind(port, 100.0) == pytest.approx(HELD / RATE + 100 * (turn - LINE_CYCLES))
    assert behind(port, 50.0) == pytest.approx(100 * turn + HELD / RATE + 50 * (turn - LINE_CYCLES))


def test_who_comes_later_waits_for_what_is_in_the_way_then() -> None:
    """1,600 bytes are gone by cycle 100."""
    waits = []
    for at in (0.0, 50.0, 90.0, 100.0, 500.0):
        _, port = port_of(1600.0)
        waits.append(behind(port, 1.0, at, turns=0.25) - at)
    assert waits == pytest.approx([HELD / RATE, 50.0, 10.0, 0.0, 0.0])


def test_no_more_turns_are_waited_for_than_packets_are_left() -> None:
    _, port = port_of(4 * PACKET)
    assert behind(port, 100.0) == pytest.approx(4 * PACKET / RATE + 4 * (PACKET / RATE - LINE_CYCLES))


def test_where_packets_pass_sooner_than_lines_come_turns_cost_nothing() -> None:
    _, port = port_of(8192.0)
    assert behind(port, 100.0, turns=0.25) == pytest.approx(HELD / RATE)


def test_the_last_of_many_waits_longer_by_the_logarithm() -> None:
    _, port = port_of(8192.0)
    assert behind(port, 128.0, turns=0.25, more=0.2) == pytest.approx(HELD / RATE * (1.0 + 0.2 * log(128)))


def test_links_that_sms_share_say_how_fast_stores_leave() -> None:
    """The first store's links take twice the port's time; of the way's bytes before it nothing is known yet."""
    _, port = port_of(8 * HELD, 8 * HELD, crosses=2.0 / RATE)
    each = (HELD + 2.0 * 8 * HELD) / (9 * HELD) / RATE
    assert behind(port, 1.0, turns=0.25) == pytest.approx(HELD * each)


def test_nobody_waits_once_all_have_left() -> None:
    env, port = port_of(4096.0)
    env.run(until=4096 / RATE + 1.0)
    assert not port.is_busy
    assert behind(port, 1.0, 300.0) == 300.0


def test_what_has_passed_is_not_waited_for() -> None:
    env, port = port_of(2048.0)
    env.run(until=1536 / RATE)
    assert behind(port, 1.0, 1536 / RATE, turns=0.25) == pytest.approx(2048 / RATE)


def test_a_way_that_holds_nothing_costs_nothing() -> None:
    _, port = port_of(8192.0, held=0.0)
    assert behind(port, 8.0, turns=0.0, more=0.5) == 0.0


@settings(max_examples=60, deadline=None)
@given(
    stores=st.lists(st.floats(1.0, 1e5), min_size=1, max_size=4), num=st.floats(0.0, 400.0), at=st.floats(0.0, 1e3),
    crosses=st.floats(0.0, 1.0), turns=st.floats(0.0, 3.0), more=st.floats(0.0, 1.0),
)  # fmt: skip
def test_nobody_asks_sooner_than_alone_and_more_lines_never_sooner(
    stores: list[float], num: float, at: float, crosses: float, turns: float, more: float
) -> None:
    found = []
    for lines in (num, 2.0 * num):
        _, port = port_of(*stores, crosses=crosses)
        found.append(behind(port, lines, at, turns=turns, more=more))
    assert at <= found[0] <= found[1] + 1e-9


@pytest.mark.parametrize(("held", "left_at"), [(0.0, [3.0, 6.0, 9.0]), (10 * RATE, [3.0, 0.0, 0.0])])
def test_a_store_whose_last_line_crosses_late_has_left_and_arrives_late(held: float, left_at: list[float]) -> None:
    env = RingingEnvironment()
    left: list[float] = []
    arrived: list[float] = []
    port = StorePort(env, SharedPipe(env, bytes_per_cycle=RATE, cap_bytes_per_cycle=RATE), held)
    for _ in left_at:
        port.send(
            RATE, now=0.0, through_at=0.0, cross=lambda cycle: (cycle + 3.0, cycle + 50.0), left=left.append,
            arrived=arrived.append, packet_bytes=PACKET,
        )
    env.run(until=1000)
    assert arrived == pytest.approx([50.0, 53.0, 56.0])
    assert left == pytest.approx(left_at)
