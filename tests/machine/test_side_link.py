"""What goes from one side of L2 to the other: order, what stores take beside reads, lanes that are unlike."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from gpusim.machine.memory.draws import most_of
from gpusim.machine.memory.side_link import SideLink, lane_deviation
from gpusim.units import LINE_BYTES

RATE = 64.0
NUM_BYTES = 4096.0
EACH = NUM_BYTES / RATE
TURNED = 2.0
"""What a store beside a read takes of the link."""


def _link(num_lanes: float = 1.0) -> SideLink:
    return SideLink(RATE, num_lanes=num_lanes, turnaround_fraction=TURNED - 1.0)


@pytest.mark.parametrize(
    ("num_read", "pause", "num_paid"),
    [(0, 0.0, 0), (4, 0.0, 4), (9, 0.0, 4), (1, 0.0, 1), (4, 1.0, 0)],
)  # fmt: skip
def test_a_store_takes_more_of_the_link_beside_as_many_bytes_read(num_read: int, pause: float, num_paid: int) -> None:
    """Of four stores behind ``num_read`` reads, and a pause in which the link could pass so many and is idle."""
    link = _link()
    read = [link.read(NUM_BYTES, 1.0, at_cycle=0.0)[0] for _ in range(num_read)]
    assert read == pytest.approx([EACH * (idx + 1) for idx in range(num_read)])
    since = (num_read + pause) * EACH
    stored = [link.store(NUM_BYTES, 1.0, at_cycle=since)[0] for _ in range(4)]
    assert stored[-1] == pytest.approx(since + EACH * (4 + num_paid * (TURNED - 1.0)))
    assert link.busy_cycles == pytest.approx(EACH * (num_read + 4 + num_paid * (TURNED - 1.0)))


@pytest.mark.parametrize("num_sms", [1.0, 2.0, 4.0])
def test_sms_that_stand_for_others_pay_for_as_many_reads(num_sms: float) -> None:
    """Four reads and eight stores, which ``num_sms`` SMs each ask for a part of: four are paid for, and no fifth."""
    link = _link()
    for _ in range(int(4 / num_sms)):
        link.read(NUM_BYTES, num_sms, at_cycle=0.0)
    assert link.free_at == pytest.approx(4 * EACH)
    for _ in range(int(8 / num_sms)):
        link.store(NUM_BYTES, num_sms, at_cycle=0.0)
    assert link.free_at == pytest.approx(EACH * (4 + 4 * TURNED + 4))


def test_lanes_are_as_unlike_as_what_has_passed_since_the_link_was_idle_and_no_more_than_what_waits() -> None:
    link = _link(num_lanes=16)
    assert link.read(NUM_BYTES, 1.0, at_cycle=0.0)[1] == 0.0  # nothing waits
    deviations = [link.read(NUM_BYTES, 1.0, at_cycle=0.0)[1] for _ in range(99)]
    assert deviations[0] == pytest.approx(EACH)  # one waits for one
    assert deviations[-1] == pytest.approx(lane_deviation(100 * NUM_BYTES, 16, RATE))
    assert link.read(NUM_BYTES, 1.0, at_cycle=100 * EACH + 1.0)[1] == 0.0  # it was idle
    assert link.read(NUM_BYTES, 1.0, at_cycle=100 * EACH + 1.0)[1] == pytest.approx(EACH)


@pytest.mark.parametrize("num_sms", [2.0, 6.0, 66.0])
def test_sms_that_stand_for_others_have_lanes_as_unlike_as_these(num_sms: float) -> None:
    """66 SMs that read at once, one by one and many as one: on average the last lines of all are as late."""
    one_by_one, together = _link(num_lanes=48), _link(num_lanes=48)
    each = [one_by_one.read(NUM_BYTES, 1.0, at_cycle=0.0) for _ in range(66)]
    some = [together.read(NUM_BYTES, num_sms, at_cycle=0.0) for _ in range(int(66 / num_sms))]
    assert np.mean([end for end, _ in some]) == pytest.approx(np.mean([end for end, _ in each]))
    assert np.mean([unlike for _, unlike in some]) == pytest.approx(np.mean([unlike for _, unlike in each]), rel=0.1)


def test_what_stores_take_more_are_no_lines() -> None:
    beside, alone = _link(num_lanes=16), _link(num_lanes=16)
    beside.read(NUM_BYTES, 1.0, at_cycle=0.0)
    alone.store(NUM_BYTES, 1.0, at_cycle=0.0)
    for _ in range(30):
        found = beside.store(NUM_BYTES, 1.0, at_cycle=0.0)[1], alone.store(NUM_BYTES, 1.0, at_cycle=0.0)[1]
    assert found[0] == pytest.approx(found[1])


def test_the_deviation_is_that_of_lines_that_fall_on_lanes_at_random() -> None:
    num_lanes, num_lines = 48, 17_000
    drawn = np.random.default_rng(1).multinomial(num_lines, [1 / num_lanes] * num_lanes, size=2000)
    cycles = LINE_BYTES * num_lanes / RATE  # of a lane for a line
    assert lane_deviation(num_lines * LINE_BYTES, num_lanes, RATE) == pytest.approx(drawn.std() * cycles, rel=0.03)
    fullest = (drawn.max(axis=1) - num_lines / num_lanes).mean() * cycles
    assert most_of(num_lanes) * lane_deviation(num_lines * LINE_BYTES, num_lanes, RATE) == pytest.approx(fullest, rel=0.04)


@pytest.mark.parametrize(
    ("num_lines", "deviations"), [(0.5, 0.0), (1, 0.0), (2, most_of(2)), (8, most_of(8)), (900, most_of(48))]
)
def test_the_last_of_many_lines_waits_for_the_fullest_of_their_lanes(num_lines: float, deviations: float) -> None:
    assert _link(num_lanes=48).late_cycles(num_lines * LINE_BYTES, 100.0) == pytest.approx(100.0 * deviations)
    assert _link(num_lanes=48).late_cycles(num_lines * LINE_BYTES, 0.0) == 0.0


def test_twice_the_lanes_are_more_unlike_and_twice_the_bytes_too() -> None:
    assert lane_deviation(2 * NUM_BYTES, 8, RATE) == pytest.approx(sqrt(2) * lane_deviation(NUM_BYTES, 8, RATE))
    assert lane_deviation(NUM_BYTES, 16, RATE) == pytest.approx(sqrt(2) * lane_deviation(NUM_BYTES, 8, RATE))
