"""Memory: what a read waits at its channel, by what was asked for lately."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpusim.machine.config import load_gpu
from gpusim.machine.memory.hbm import MOST_SHARE, Hbm
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


def wait_behind(bytes_per_cycle: float, *, queue_ns: float = QUEUE, cycles: int = 5000) -> float:
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
    assert wait_behind(1e6) == pytest.approx(most)
    assert MOST_SHARE < 1.0


def test_what_was_asked_for_long_ago_keeps_nobody_waiting() -> None:
    env, hbm = memory()
    hbm.fill(1e6, lambda cycle: None, sm_idx=0, count=1.0)
    waited = hbm.queue_cycles()
    env.run(until=20_000)
    assert hbm.queue_cycles() < 1e-6 * waited


def test_without_queues_nobody_waits() -> None:
    assert wait_behind(3200.0, queue_ns=0.0) == 0.0


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
