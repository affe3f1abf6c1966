"""Memory: what a read waits at its channel, by what was asked for lately."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpusim.machine.config import load_gpu
from gpusim.machine.memory.draws import SHARE_STEPS, slowest_beside_writes, slowest_wait
from gpusim.machine.memory.hbm import AS_A_WHOLE, MOST_MIXED, MOST_SHARE, MOST_TURNS, Hbm, Turns
from gpusim.machine.numeric import normal_cdf
from gpusim.machine.timing import RingingEnvironment
from gpusim.units import Clock

CLOCK = Clock(sm_mhz=1000.0)  # a cycle is a nanosecond, a GB/s a byte a cycle
QUEUE = 20.0


def memory(queue_ns: float = QUEUE, **changes: float) -> tuple[RingingEnvironment, Hbm]:
    """A memory of 4000 bytes a cycle at most, 3600 sustained, 500 cycles away."""
    spec = replace(
        load_gpu("toy").hbm, peak_gb_per_s=4000.0, sustained_read_gb_per_s=3600.0, sustained_write_gb_per_s=3600.0,
        sm_gb_per_s=3600.0, latency_ns=500.0, queue_ns=queue_ns, **changes,
    )
    env = RingingEnvironment()
    return env, Hbm(env, spec, CLOCK, l2_latency_ns=100.0)


def wait_behind(bytes_per_cycle: float, *, queue_ns: float = QUEUE, cycles: int = 20_000) -> float:
    """What a read waits after so long at a steady rate."""
    env, hbm = memory(queue_ns)
    for _ in range(cycles // 10):
        hbm.fill(10 * bytes_per_cycle, lambda cycle: None, sm_idx=0, count=1.0)
        env.run(until=env.now + 10)
    return hbm.queue_cycles()


def test_nobody_waits_at_a_memory_that_nobody_asks() -> None:
    assert memory()[1].queue_cycles() == 0.0


@pytest.mark.parametrize(("rate", "share"), [(1000.0, 0.25), (2000.0, 0.5), (3200.0, 0.8)])
def test_a_read_waits_by_what_is_taken_over_what_is_left(rate: float, share: float) -> None:
    assert wait_behind(rate) == pytest.approx(QUEUE * share / (1.0 - share), rel=0.06)


def test_no_more_than_the_sustained_rate_is_taken() -> None:
    most = QUEUE * 0.9 / (1.0 - 0.9)
    assert wait_behind(1e6) == pytest.approx(most, rel=0.01)
    assert MOST_SHARE < 1.0


def test_what_passed_long_ago_keeps_nobody_waiting_nor_does_what_has_not_passed() -> None:
    env, hbm = memory()
    hbm.fill(1e6, lambda cycle: None, sm_idx=0, count=1.0)
    assert hbm.queue_cycles() == 0.0
    env.run(until=300)
    waited = hbm.queue_cycles()
    assert waited > 0.0
    env.run(until=60_000)
    assert hbm.queue_cycles() < 1e-6 * waited


def test_without_queues_nobody_waits() -> None:
    assert wait_behind(3200.0, queue_ns=0.0) == 0.0


def drawn_wait(num_rows: int, over_cycles: float, fraction: float, longest: float) -> float:
    """How much later the last of so many rows comes than the last that waits for nothing, on average over many draws."""
    draw = np.random.default_rng(7)
    shape = (4000, num_rows)
    waits = np.where(draw.random(shape) < fraction, draw.random(shape) * longest, 0.0)
    asked_at = over_cycles * (np.arange(num_rows) + 1) / num_rows
    return float((asked_at + waits).max(axis=1).mean() - over_cycles)


@pytest.mark.parametrize(("num_rows", "over_cycles"), [(65, 0.0), (257, 0.0), (65, 100.0), (257, 300.0), (513, 900.0)])
def test_the_slowest_of_many_rows_is_the_one_that_is_drawn(num_rows: int, over_cycles: float) -> None:
    _, hbm = memory(refresh_fraction=0.1, refresh_ns=500.0)
    found = hbm.refresh_cycles(num_rows, over_cycles)
    assert found == pytest.approx(drawn_wait(num_rows - 1, over_cycles, 0.1, 500.0), rel=0.03, abs=2.0)


def test_one_row_waits_no_longer_than_the_mean_and_many_for_the_longest() -> None:
    _, hbm = memory(refresh_fraction=0.1, refresh_ns=500.0)
    assert hbm.refresh_cycles(1.0) == hbm.refresh_cycles(1.0, 100.0) == 0.0
    assert hbm.refresh_cycles(1e6) == pytest.approx(500.0, rel=1e-3)
    assert hbm.refresh_cycles(100.0, 1000.0) < hbm.refresh_cycles(100.0, 10.0) < hbm.refresh_cycles(100.0)
    assert memory(refresh_fraction=0.1, refresh_ns=0.0)[1].refresh_cycles(100.0, 10.0) == 0.0


def test_the_slowest_of_many_parts_waits_longer() -> None:
    assert slowest_wait(3, SHARE_STEPS) == pytest.approx(1.0 + 1 / 2 + 1 / 3)
    env, hbm = memory()
    for _ in range(2000):
        hbm.fill(20_000.0, lambda cycle: None, sm_idx=0, count=1.0)
        env.run(until=env.now + 10)
    one, two = hbm.queue_cycles(1.0), hbm.queue_cycles(2.0)
    assert one == pytest.approx(QUEUE, rel=0.01) and two == pytest.approx(QUEUE * 2 * 0.875, rel=0.01)


def at_half_rate(**changes: float) -> Hbm:
    """A memory of which half was taken for a long time."""
    env, hbm = memory(**changes)
    for _ in range(2000):
        hbm.fill(20_000.0, lambda cycle: None, sm_idx=0, count=1.0)
        env.run(until=env.now + 10)
    return hbm


def test_of_many_rows_the_slowest_is_the_one_that_is_drawn_from_refresh_and_queue_together() -> None:
    hbm = at_half_rate(refresh_fraction=0.1, refresh_ns=500.0)
    draw, shape = np.random.default_rng(7), (4000, 256)
    refresh = np.where(draw.random(shape) < 0.1, draw.random(shape) * 500.0, 0.0)
    queue = np.where(draw.random(shape) < 0.5, draw.exponential(2.0 * QUEUE, shape), 0.0)
    more = float(((refresh + queue).max(axis=1) - refresh.max(axis=1)).mean())
    assert hbm.busy_cycles(256) == pytest.approx(more, rel=0.05)


def test_without_refresh_the_slowest_row_is_that_of_the_queues() -> None:
    hbm = at_half_rate(refresh_fraction=0.0, refresh_ns=500.0)
    for num_rows in (1, 16, 256):
        assert hbm.busy_cycles(num_rows) == pytest.approx(2.0 * QUEUE * slowest_wait(num_rows, SHARE_STEPS // 2), rel=0.02)


def test_rows_find_no_queue_where_nobody_asks_and_where_there_are_none() -> None:
    assert memory(refresh_fraction=0.1, refresh_ns=500.0)[1].busy_cycles(256) == 0.0
    assert at_half_rate(queue_ns=0.0, refresh_fraction=0.1, refresh_ns=500.0).busy_cycles(256) == 0.0


@pytest.mark.parametrize(("piece_bytes", "cycles"), [(0.0, 1000.0), (360.0, 1100.0), (72.0, 1500.0)])
def test_a_piece_that_is_read_or_written_alone_takes_some_bytes_more(piece_bytes: float, cycles: float) -> None:
    env, hbm = memory(piece_read_bytes=36.0, piece_write_bytes=36.0)
    ends: list[float] = []
    hbm.fill(3.6e6, ends.append, sm_idx=0, count=1.0, piece_bytes=piece_bytes)
    env.run(until=5000)
    hbm.write_back(3.6e6, ends.append, count=1.0, piece_bytes=piece_bytes)
    env.run(until=10_000)
    assert ends == [pytest.approx(cycles), pytest.approx(5000.0 + cycles)]
    assert hbm.counters.read_bytes == hbm.counters.write_bytes == 3.6e6


def test_fills_are_spread_evenly_about_the_mean_and_alike_in_every_run() -> None:
    _, hbm = memory(fill_spread_ns=100.0)
    drawn = [hbm.spread_cycles() for _ in range(1000)]
    assert -50.0 <= min(drawn) < -49.0 and 49.0 < max(drawn) <= 50.0
    assert sum(drawn) / len(drawn) == pytest.approx(0.0, abs=0.5)
    again = memory(fill_spread_ns=100.0)[1]
    assert [again.spread_cycles() for _ in range(1000)] == drawn


def test_a_fill_is_never_there_before_it_was_asked_for() -> None:
    _, hbm = memory(fill_spread_ns=1e6)
    assert min(hbm.spread_cycles() for _ in range(1000)) >= -hbm.latency_cycles


def test_fills_take_the_mean_where_an_sm_stands_for_others() -> None:
    spec = replace(load_gpu("toy").hbm, fill_spread_ns=100.0)
    hbm = Hbm(RingingEnvironment(), spec, CLOCK, l2_latency_ns=100.0, alike={0: 2})
    assert [hbm.spread_cycles() for _ in range(3)] == [0.0, 0.0, 0.0]


PLACES = (np.arange(2000) + 0.5) / 2000
"""Those of many requests, evenly."""
ONE_DEVIATION = normal_cdf(1.0)


def channels(**changes: float) -> tuple[RingingEnvironment, Hbm]:
    """100 channels of 40 bytes a cycle, of which a part of 400 bytes takes 10."""
    return memory(channel_gb_per_s=40.0, channel_bytes=400.0, side_by_side_fraction=0.25, **changes)


def test_one_part_comes_later_by_the_root_of_what_each_channel_has() -> None:
    _, hbm = channels()
    assert hbm.uneven_cycles(400.0, ONE_DEVIATION, are_apart=True) == pytest.approx(10.0 * 0.1)
    assert hbm.uneven_cycles(400.0, ONE_DEVIATION, are_apart=False) == pytest.approx(10.0 * 0.1 / 2.0)
    hbm.fill(100 * 40_000.0 - 400.0, lambda cycle: None, sm_idx=0, count=1.0)  # 100 parts for each channel
    assert hbm.uneven_cycles(400.0, ONE_DEVIATION, are_apart=True) == pytest.approx(10.0 * 10.0)
    assert hbm.uneven_cycles(400.0, 0.5, are_apart=True) == hbm.uneven_cycles(400.0, 0.0, are_apart=True) == 0.0


def test_what_has_passed_the_wire_makes_nobody_late_be_it_read_or_written() -> None:
    env, hbm = channels()
    alone = hbm.uneven_cycles(400.0, ONE_DEVIATION, are_apart=True)
    hbm.fill(1e6, lambda cycle: None, sm_idx=0, count=1.0, piece_bytes=100.0)
    hbm.fill(1e6, lambda cycle: None, sm_idx=0, count=1.0, share=0.25)
    hbm.write_back(1e6, lambda cycle: None, count=1.0, num_sms=3.0)
    assert hbm.uneven_cycles(400.0, ONE_DEVIATION, are_apart=True) > 10.0 * alone
    env.run(until=10_000)
    assert hbm.uneven_cycles(400.0, ONE_DEVIATION, are_apart=True) == pytest.approx(alone, rel=1e-6)


def test_a_request_waits_for_the_fullest_of_its_channels_as_drawn() -> None:
    _, hbm = channels()
    draw, num_parts, waiting = np.random.default_rng(3), 40, 400 * 100
    late = []
    for _ in range(400):
        parts = np.bincount(draw.integers(0, 100, waiting), minlength=100)
        late.append(parts[draw.choice(100, num_parts, replace=False)].max() - waiting / 100)
    hbm.fill((waiting - num_parts) * 400.0, lambda cycle: None, sm_idx=0, count=1.0)
    found = [hbm.uneven_cycles(num_parts * 400.0, place, are_apart=True) for place in PLACES.tolist()]
    assert sum(found) / len(found) == pytest.approx(10.0 * float(np.mean(late)), rel=0.05)


def test_channels_without_parts_are_even() -> None:
    _, hbm = memory(channel_bytes=0.0)
    assert hbm.uneven_cycles(1e6, ONE_DEVIATION, are_apart=True) == 0.0


def wait_beside(reads: float, writes: float, *, num_parts: float = 1.0, **changes: float) -> float:
    """What the last of so many parts waits after so many bytes a cycle of reads and of writes, for long."""
    waits = {"write_wait_ns": 100.0, "mixed_wait_ns": 400.0, "write_turn_ns": 50.0, **changes}
    env, hbm = memory(queue_ns=0.0, **waits)
    for _ in range(2000):
        hbm.fill(10 * reads, lambda cycle: None, sm_idx=0, count=1.0)
        hbm.write_back(10 * writes, lambda cycle: None, count=1.0)
        env.run(until=env.now + 10)
    return hbm.mixed_cycles(num_parts)


@pytest.mark.parametrize(("read", "written"), [(0.1, 0.1), (0.4, 0.1), (0.1, 0.4)])
def test_a_read_waits_for_writes_and_for_turns_between_both(read: float, written: float) -> None:
    wanted = (100.0 * written + 400.0 * (read * written) ** 0.5) / (1.0 - written)
    assert wait_beside(4000.0 * read, 4000.0 * written) == pytest.approx(wanted, rel=0.06)


def test_a_read_waits_for_no_writes_where_there_are_none_or_they_take_no_turns() -> None:
    assert wait_beside(2000.0, 0.0) == 0.0
    assert wait_beside(1000.0, 1000.0, write_turn_ns=0.0) == 0.0


def test_more_writes_than_were_measured_make_nobody_wait_longer_for_what_they_leave() -> None:
    most = 4000.0 * MOST_MIXED
    assert wait_beside(0.0, 1.2 * most) == pytest.approx(1.2 * wait_beside(0.0, most), rel=0.06)


@pytest.mark.parametrize(("num_parts", "mean", "turn"), [(1, 90.0, 60.0), (3, 200.0, 60.0), (8, 300.0, 100.0)])
def test_the_slowest_part_is_the_one_that_is_drawn_from_turns_and_refresh_together(
    num_parts: int, mean: float, turn: float
) -> None:
    draw = np.random.default_rng(5)
    refreshed = (draw.random((40_000, num_parts)) < 0.12) * draw.random((40_000, num_parts)) * 530.0
    both = refreshed + draw.gamma(mean / turn, turn, (40_000, num_parts))
    wanted = float(both.max(axis=1).mean() - refreshed.max(axis=1).mean())
    assert slowest_beside_writes(num_parts, (0.12, 530.0), mean, turn) == pytest.approx(wanted, rel=0.04)


WIRE = 3600.0
"""Bytes a cycle of ``memory``."""


def passed_at(*fills: tuple[float, Turns]) -> list[float]:
    """When each of one SM's fills, asked for at once, has passed."""
    env, hbm = memory()
    came: dict[int, float] = {}
    for idx, (num_bytes, turns) in enumerate(fills):
        hbm.fill(num_bytes, lambda cycle, idx=idx: came.__setitem__(idx, cycle), sm_idx=0, count=1.0, turns=turns)
    env.run(until=10_000)
    return [came[idx] for idx in range(len(fills))]


@pytest.mark.parametrize("num", [1, 2, 4])
def test_loads_of_warps_that_follow_one_another_take_turns(num: int) -> None:
    """Two warps, ``num`` loads each: the first has its last one a load before the second."""
    first, second = passed_at((4 * WIRE, Turns(num, 0.0, 10.0)), (4 * WIRE, Turns(num, 10.0, 20.0)))
    assert (first, second) == (pytest.approx(8.0 - 4.0 / num), pytest.approx(8.0))


def test_more_loads_than_turns_pass_in_as_many_turns() -> None:
    first, second = passed_at((4 * WIRE, Turns(64, 0.0, 10.0)), (4 * WIRE, Turns(64, 10.0, 20.0)))
    assert (first, second) == (pytest.approx(8.0 - 4.0 / MOST_TURNS), pytest.approx(8.0))


@pytest.mark.parametrize("behind", [AS_A_WHOLE, Turns(4, 12.0, 20.0)])
def test_what_is_asked_for_as_a_whole_or_later_passes_behind_it(behind: Turns) -> None:
    first, second = passed_at((4 * WIRE, Turns(4, 0.0, 10.0)), (4 * WIRE, behind))
    assert (first, second) == (pytest.approx(4.0), pytest.approx(8.0))


def test_three_warps_take_turns_and_those_behind_a_pause_do_so_among_themselves() -> None:
    loads = [Turns(2, 0.0, 10.0), Turns(2, 10.0, 20.0), Turns(2, 20.0, 30.0), Turns(2, 40.0, 50.0), Turns(2, 50.0, 60.0)]
    came = passed_at(*((2 * WIRE, turns) for turns in loads))
    assert came == pytest.approx([4.0, 5.0, 6.0, 9.0, 10.0])


def test_a_fill_begins_once_and_what_was_read_is_counted_once() -> None:
    env, hbm = memory()
    begun: list[float] = []
    for at in (0.0, 10.0):
        hbm.fill(4 * WIRE, lambda cycle: None, sm_idx=0, count=1.0, begun=begun.append, turns=Turns(4, at, at + 10.0))
    assert hbm.num_reading == 1
    env.run(until=5.5)
    assert hbm.pending_bytes == pytest.approx(3 * WIRE)  # five of eight turns are over
    env.run(until=10_000)
    assert begun == pytest.approx([0.0, 1.0]) and hbm.num_reading == 0
    assert hbm.counters.read_bytes == 8 * WIRE and hbm.pending_bytes == pytest.approx(0.0)
