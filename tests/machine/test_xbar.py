"""Whom the slices of L2 serve, and in whose turn: what SMs get where they all read without end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gpusim.errors import ConfigError
from gpusim.machine.build import Machine
from gpusim.machine.component import MemoryRequest
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.machine.memory.links import by_turns, parts_of_gpcs, side_shares
from gpusim.machine.memory.residency import LruResidency
from gpusim.machine.timing import RingingEnvironment
from gpusim.units import Clock

from .conftest import warm_machine

GPU = load_gpu("h200_sxm")
SLICES = GPU.l2.num_slices * GPU.l2.slice_bytes_per_cycle * GPU.l2.sustained_fraction
LEAD = GPU.l2.side_lead_fraction
SIDE_OF_GPC = (0, 0, 1, 1, 1, 0, 1, 0)
REQUEST_BYTES = 4096.0
UNTIL = 20_000.0


def request_of(sm: int, tile: tuple[int, int], now: float, num_bytes: float = REQUEST_BYTES) -> MemoryRequest:
    return MemoryRequest(
        tensor="A", tile=tile, num_bytes=num_bytes, sm_idx=sm, wave=0, num_alike=1.0, issued_at=now, num_rows=1.0
    )


def rates(gpu: GpuSpec, sms: Sequence[int]) -> dict[int, float]:
    """Bytes a cycle that each of ``sms`` gets, all of which read one tile of their own after the other, out of L2."""
    env = RingingEnvironment()
    machine = warm_machine(env, gpu)
    got = dict.fromkeys(sms, 0.0)

    def ask(sm: int) -> None:
        request = request_of(sm, (sm, 0), env.now)

        def done(cycle: float) -> None:
            if cycle < UNTIL:
                got[sm] += REQUEST_BYTES
                env.timeout(cycle - env.now).callbacks.append(lambda _: ask(sm))  # type: ignore[union-attr]  # a new event

        machine.xbar.read(request, done)

    for sm in sms:
        machine.xbar.is_live(sm, is_live=True)
    for sm in sms:
        for _ in range(8):
            ask(sm)
    env.run(until=UNTIL)
    return {sm: num_bytes / UNTIL for sm, num_bytes in got.items()}


@pytest.mark.parametrize("side", [0, 1])
def test_sms_of_one_side_get_half_of_what_all_slices_serve_but_for_its_lead(side: int) -> None:
    sms = [sm for sm, of_sm in enumerate(GPU.side_of_sm) if of_sm == side]
    assert sum(rates(GPU, sms).values()) == pytest.approx(SLICES / 2 * (1 + LEAD * (1 - 2 * side)), rel=0.03)


def test_sms_of_a_larger_gpc_get_less() -> None:
    got = rates(GPU, range(GPU.num_sms))
    gpcs = GPU.floorplan.gpc_of_sm
    of_gpc = [sum(rate for sm, rate in got.items() if gpcs[sm] == gpc) for gpc in range(8)]
    assert sum(of_gpc) == pytest.approx(SLICES, rel=0.03)
    for gpc in (2, 3, 4, 6):  # three of 16 and one of 18 on a side: a quarter each
        assert of_gpc[gpc] == pytest.approx(SLICES / 8 * (1 - LEAD), rel=0.03)


def test_stores_cross_in_turns_of_parts_of_gpcs() -> None:
    env = RingingEnvironment()
    machine = warm_machine(env, GPU)
    xbar, plan = machine.xbar, GPU.floorplan
    stored = dict.fromkeys(range(GPU.num_sms), 0.0)

    def store(sm: int) -> None:
        def arrived(cycle: float) -> None:
            if cycle < UNTIL:
                stored[sm] += REQUEST_BYTES
                env.timeout(max(0.0, cycle - env.now)).callbacks.append(lambda _: store(sm))  # type: ignore[union-attr]

        xbar.write(request_of(sm, (sm, 0), env.now), lambda cycle: None, arrived, num_distinct_bytes=REQUEST_BYTES)

    for sm in stored:
        xbar.is_live(sm, is_live=True)
    for sm in stored:
        store(sm)
        store(sm)
    env.run(until=UNTIL)
    turn = 2 * GPU.l2.link_bytes_per_cycle
    far = [sm for sm in stored if SIDE_OF_GPC[plan.gpc_of_sm[sm]] == 1]
    parts = parts_of_gpcs(plan.gpc_of_sm, GPU.xbar.num_gpc_parts)
    for part in {parts[sm] for sm in far}:  # four GPCs of three parts, of four SMs or six
        of_part = sum(stored[sm] for sm in far if parts[sm] == part) / UNTIL
        assert of_part == pytest.approx(turn / 12, rel=0.06)


@pytest.mark.parametrize("side", [0, 1])
def test_what_is_read_into_a_side_crosses_beside_the_others_stores_and_not_its_own(side: int) -> None:
    machine = warm_machine(RingingEnvironment(), GPU)
    l2, each = machine.l2, REQUEST_BYTES / 2 / GPU.l2.link_bytes_per_cycle
    assert l2.read_across(side, REQUEST_BYTES / 2, 1.0, at_cycle=0.0)[0] == pytest.approx(each)
    assert l2.across(REQUEST_BYTES, side, at_cycle=0.0)[0] == pytest.approx(each)  # the other way nothing was read
    turned = each * (1.0 + GPU.l2.link_turnaround_fraction)
    assert l2.across(REQUEST_BYTES, 1 - side, at_cycle=0.0)[0] == pytest.approx(each + turned)


def test_what_one_cannot_take_others_share() -> None:
    assert by_turns(100.0, [2, 1, 1], [40.0, 90.0, 90.0]) == [40.0, 30.0, 30.0]


@pytest.mark.parametrize(("is_evicted", "served"), [(False, 1.0), (True, 2.0)])
def test_a_neighbour_is_joined_in_the_same_fill_alone(is_evicted: bool, served: float) -> None:
    """One of the same GPC that asks while the first one's lines are on their way joins; not when they have left since."""
    env = RingingEnvironment()
    machine = Machine(
        env, GPU, Clock(sm_mhz=GPU.clock.max_mhz),
        LruResidency(side_bytes=2 * REQUEST_BYTES, num_sides=GPU.l2_sides.num, is_warm=False),
        cluster_size=1, ctas_per_sm=1, smem_bytes_per_sm=0,
    )  # fmt: skip
    first, second = GPU.floorplan.members[0][:2]
    xbar = machine.xbar

    def ask(sm: int, tile: tuple[int, int]) -> None:
        xbar.read(request_of(sm, tile, env.now), lambda _: None)

    ask(first, (0, 0))
    before = xbar.counters.served_bytes
    if is_evicted:
        env.run(until=UNTIL)
        others = [(1, idx) for idx in range(4)]
        for tile in others:
            ask(first, tile)
        env.run(until=2 * UNTIL)
        before += len(others) * REQUEST_BYTES
    ask(second, (0, 0))
    env.run(until=4 * UNTIL)
    assert before == pytest.approx(REQUEST_BYTES * (1 + 4 * is_evicted))
    assert xbar.counters.served_bytes - before == pytest.approx((served - 1.0) * REQUEST_BYTES)


def test_what_an_sm_asks_for_twice_is_read_once_and_sent_twice() -> None:
    """Two of one GPC that ask at once are sent a line together; to one SM that asks twice it is sent twice."""
    for is_same, sent in ((False, 1.0), (True, 2.0)):
        env = RingingEnvironment()
        machine = Machine(
            env, GPU, Clock(sm_mhz=GPU.clock.max_mhz),
            LruResidency(side_bytes=2 * REQUEST_BYTES, num_sides=GPU.l2_sides.num, is_warm=False),
            cluster_size=1, ctas_per_sm=1, smem_bytes_per_sm=0,
        )  # fmt: skip
        first, second = GPU.floorplan.members[0][:2]
        for sm in (first, first if is_same else second):
            machine.xbar.read(request_of(sm, (0, 0), env.now), lambda _: None)
        env.run(until=UNTIL)
        assert machine.xbar.counters.served_bytes == pytest.approx(REQUEST_BYTES)
        assert machine.xbar.counters.carried_bytes == pytest.approx(sent * REQUEST_BYTES)


def box_arrival(gpu: GpuSpec, sms: Sequence[int], *, is_multicast: bool = False) -> list[float]:
    """When a box of 16 KiB out of L2 is in each of ``sms``, that all ask at cycle 0, each for its own.

    ``is_multicast``: every second one asks, for itself and the next.
    """
    env = RingingEnvironment()
    machine = warm_machine(env, gpu)
    came = {}
    for sm in sms:
        machine.xbar.is_live(sm, is_live=True)
    for sm in sms[:: 2 if is_multicast else 1]:
        request = MemoryRequest(
            tensor="A", tile=(sm, 0), num_bytes=16384.0, sm_idx=sm, wave=0, num_alike=1.0, issued_at=0.0, num_rows=128.0
        )  # fmt: skip
        if is_multicast:
            receivers = [(to, lambda cycle, to=to: came.__setitem__(to, cycle)) for to in (sm, sm + 1)]
            machine.xbar.multicast(request, receivers, bytes_per_cycle=gpu.xbar.sm_read_bytes_per_cycle)
            continue
        machine.xbar.read(request, lambda cycle, sm=sm: came.__setitem__(sm, cycle), group=sm)
    env.run(until=UNTIL)
    return [came[sm] for sm in sms]


def test_sms_lie_so_far_apart_as_the_description_says() -> None:
    alone = [box_arrival(GPU, [sm])[0] for sm in range(0, GPU.num_sms, 3)]
    assert 0.9 * GPU.xbar.sm_distance_cycles < max(alone) - min(alone) <= GPU.xbar.sm_distance_cycles
    alike = replace(GPU, xbar=replace(GPU.xbar, sm_distance_cycles=0.0))
    assert box_arrival(alike, [5]) == pytest.approx(box_arrival(alike, [77]))


@pytest.mark.parametrize("is_multicast", [False, True])
def test_a_line_waits_at_its_slice_where_others_have_asked_before(is_multicast: bool) -> None:
    """Nobody waits on an idle machine; one of many SMs waits as the queue's length says, in proportion."""

    def arrivals(queue_cycles: float, sms: Sequence[int]) -> list[float]:
        gpu = replace(GPU, l2=replace(GPU.l2, queue_cycles=queue_cycles))
        return box_arrival(gpu, sms, is_multicast=is_multicast)

    assert arrivals(10.0, [8, 9]) == pytest.approx(arrivals(0.0, [8, 9]))
    free, single, double = (sum(arrivals(queue, range(GPU.num_sms))) for queue in (0.0, 5.0, 10.0))
    assert single > free and double - free == pytest.approx(2 * (single - free))


def test_bulk_copies_of_a_larger_gpc_get_less_and_lone_pairs_no_turn_of_their_own() -> None:
    xbar = warm_machine(RingingEnvironment(), GPU).xbar
    for sm in range(GPU.num_sms):
        xbar.is_live(sm, is_live=True)
    shares = {port.link.num_live: port.link.bulk_share for port in xbar.ports}
    assert shares[16] / shares[18] == pytest.approx(18 / 16)
    assert {port.link.num_live for port in xbar.ports} == {16, 18}


def test_what_waits_for_its_port_is_told_with_what_merged_of_it() -> None:
    """Four tiles at once, one port: each is asked for at once, and told as it begins to pass, all of it read then."""
    env = RingingEnvironment()
    machine = warm_machine(env, GPU)
    xbar, seen = machine.xbar, []
    for step in range(4):
        xbar.read(request_of(0, (0, step), 0.0), lambda cycle: seen.append(xbar.asked))
    assert xbar.counters.asked_bytes == 4 * REQUEST_BYTES
    assert xbar.asked[:2] == (REQUEST_BYTES, REQUEST_BYTES)
    env.run(until=UNTIL)
    assert all(passed == served for passed, served, _ in seen)
    assert xbar.asked[0] == xbar.counters.asked_bytes


@pytest.mark.parametrize(("sides", "lead"), [([0] * 12 + [1], 0.1), ([0, 1], 1.0), ([0, 1, 2], 0.01)])
def test_a_lead_that_leaves_the_other_side_nothing_is_refused(sides: list[int], lead: float) -> None:
    with pytest.raises(ConfigError, match="side_lead_fraction"):
        side_shares(sides, lead)


@pytest.mark.parametrize("sides", [[0] * 12 + [1], [0, 1], [1, 1, 0]])
def test_sides_have_all_of_the_slices_whoever_leads(sides: list[int]) -> None:
    shares = side_shares(sides, 0.08)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert min(shares.values()) > 0.0
