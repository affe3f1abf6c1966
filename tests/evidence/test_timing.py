"""A stopwatch on a GPU that is made of a list: what it gives is what was put in, or nothing where that cannot be known."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim.errors import ConfigError
from gpusim.evidence.bench.nvml import BoardPower, FieldValue
from gpusim.evidence.bench.timing import NUM_SINGLE, VALUES, DriverError, Stopwatch, clock_mhz

EVENT_US, GAP_MHZ, START_US = 1.0, 2000.0, 2.0


class ListedDevice:
    """Work on one stream, one after the other, each with its length and clock; the host pays for every launch."""

    def __init__(self, host_us: float = 5.0) -> None:
        self.host_us, self.host, self.gpu, self.cycles = host_us, 0.0, 0.0, 0.0
        self.seen: dict[int, tuple[float, float]] = {}
        self.is_cold = False
        self.watts: Iterator[float] = iter(())
        self.asked: list[float] = []

    def enqueue(self, us: float, mhz: float = GAP_MHZ) -> None:
        self.host += self.host_us
        idle = max(0.0, self.host - self.gpu)
        self.gpu += idle + us
        self.cycles += idle * GAP_MHZ + us * mhz

    def kernel(self, us: float, mhz: float, warm_us: float | None = None) -> Callable[[], None]:
        def launch() -> None:
            self.enqueue(us if self.is_cold or warm_us is None else warm_us, mhz)
            self.is_cold = False

        return launch

    def flush(self) -> None:
        self.enqueue(50.0)
        self.is_cold = True

    def hold(self, us: float) -> None:
        self.enqueue(us)

    def nothing(self) -> None:
        self.enqueue(START_US)

    def probe(self, slot: int) -> None:
        self.enqueue(START_US)
        self.seen[slot] = self.cycles, self.gpu * 1e3

    def event(self) -> float:
        self.enqueue(EVENT_US)
        return self.gpu

    def elapsed_us(self, first: float, last: float) -> float:
        return last - first

    def wait(self, event: float) -> None:
        self.host = max(self.host, event)

    def readings(self, num_slots: int) -> NDArray[np.uint64]:
        came = np.zeros((num_slots, 3, 2), dtype=np.uint64)
        for slot, both in self.seen.items():
            came[slot, :2] = np.round(both)  # a third SM is never seen
        self.seen = {}
        return came

    def rest(self, seconds: float) -> None:
        self.host = max(self.host, self.gpu) + seconds * 1e6

    def now_s(self) -> float:
        return self.host * 1e-6

    def power_w(self) -> float | None:
        self.asked.append(self.host)
        return next(self.watts, None)


def test_a_launch_alone_is_timed_cold_and_its_clock_read() -> None:
    device = ListedDevice()
    found = Stopwatch(device).single(device.kernel(1000.0, 1500.0, warm_us=700.0))
    assert found["single_us"] == found["single_us_min"] == found["single_us_max"] == pytest.approx(1000.0 + EVENT_US)
    assert found["single_clock_mhz"] == pytest.approx(1500.0, rel=0.003)


def test_gaps_dilute_the_clock_by_their_share() -> None:
    device = ListedDevice()
    found = Stopwatch(device).single(device.kernel(60.0, 1800.0))
    gap_us = 2 * EVENT_US + START_US
    assert found["single_clock_mhz"] == pytest.approx((60.0 * 1800.0 + gap_us * GAP_MHZ) / (60.0 + gap_us), abs=1.0)


@pytest.mark.parametrize(("us", "is_given"), [(50.0, True), (48.0, False)])
def test_a_short_launch_has_a_time_and_no_clock(us: float, is_given: bool) -> None:
    device = ListedDevice()
    found = Stopwatch(device).single(device.kernel(us, 1500.0))
    assert ("single_clock_mhz" in found) == is_given and found["single_us"] == pytest.approx(us + EVENT_US)


def test_a_host_that_is_late_does_not_lengthen_a_launch() -> None:
    """The stream is held while probe, events and launch are enqueued."""
    device = ListedDevice(host_us=40.0)
    assert Stopwatch(device).single(device.kernel(10.0, 1500.0))["single_us"] == pytest.approx(10.0 + EVENT_US)


@pytest.mark.parametrize(("us", "rest_us"), [(100.0, 2_000.0), (11_000.0, 44_000.0)])
def test_the_gpu_rests_as_often_as_it_works_and_before_all(us: float, rest_us: float) -> None:
    """After work that the limiter has held, a launch is a single one again only after some time."""
    device, ends, starts = ListedDevice(), [-1e9], []
    work = device.kernel(us, 1500.0)

    def launch() -> None:
        work()
        starts.append(device.gpu - us)
        ends.append(device.gpu)

    Stopwatch(device).single(launch)
    gaps = [start - end for start, end in zip(starts[1:], ends[1:-1], strict=True)]
    assert gaps[0] > 0.5e6
    assert all(rest_us < gap < rest_us + 1_000.0 for gap in gaps[1:])


def test_half_a_second_is_warm_and_counts_every_launch() -> None:
    device = ListedDevice()
    found = Stopwatch(device).sustained(device.kernel(100.0, 1500.0, warm_us=80.0))
    assert found["sustained_us"] == pytest.approx(80.0, rel=0.01)
    assert found["sustained_clock_mhz"] == pytest.approx(1500.0, rel=0.01)
    assert 0.5e6 < device.gpu < 0.6e6


def test_power_is_read_now_and_then_while_launches_run_and_left_out_where_nobody_tells() -> None:
    device = ListedDevice()
    assert "sustained_power_w" not in Stopwatch(device).sustained(device.kernel(100.0, 1500.0))
    assert 10 <= len(device.asked) <= 13
    assert all(after - before >= 20e3 for before, after in pairwise(device.asked))
    device.watts = iter([400.0, 500.0, 600.0])
    assert Stopwatch(device).sustained(device.kernel(100.0, 1500.0))["sustained_power_w"] == 500.0


def test_where_there_is_no_driver_nobody_tells_of_power() -> None:
    assert BoardPower("0000:00:00.0").watts() is None


def test_a_reading_of_power_is_laid_out_as_the_driver_has_it() -> None:
    """Two words, two times, two more words, eight bytes of value."""
    assert (FieldValue.timestamp_us.offset, FieldValue.status.offset, FieldValue.value.offset) == (8, 28, 32)
    assert ctypes.sizeof(FieldValue) == 40


def test_where_the_host_sets_the_pace_nothing_is_given() -> None:
    slow, quick = ListedDevice(host_us=10.0), ListedDevice(host_us=5.0)
    assert Stopwatch(slow).sustained(slow.kernel(8.0, 1500.0)) == {}
    assert Stopwatch(quick).sustained(quick.kernel(8.0, 1500.0))["sustained_us"] == pytest.approx(8.0, rel=0.02)


def test_what_nothing_takes_comes_with_every_row_and_is_measured_once() -> None:
    device = ListedDevice()
    stopwatch = Stopwatch(device)
    found = stopwatch.times(device.kernel(200.0, 1500.0), ("single", "sustained"))
    assert found["empty_single_us"] == START_US + EVENT_US
    assert found["empty_sustained_us"] == pytest.approx(START_US, rel=0.01)
    assert set(found) == set(VALUES) - {"sustained_power_w"}
    before = device.gpu
    stopwatch.empty()
    assert device.gpu == before
    assert stopwatch.times(device.nothing, ()) == {}


def test_an_unknown_protocol_is_refused() -> None:
    device = ListedDevice()
    with pytest.raises(ConfigError, match="'warm' is no protocol of times, wants single or sustained"):
        Stopwatch(device).times(device.nothing, ("single", "warm"))


def test_sms_that_were_not_seen_twice_do_not_count() -> None:
    before = np.array([[0, 0], [100, 100], [100, 100]], dtype=np.uint64)
    after = np.array([[9, 900], [0, 0], [1600, 1100]], dtype=np.uint64)
    assert clock_mhz(before, after) == 1500.0
    with pytest.raises(DriverError, match="no SM"):
        clock_mhz(before, np.zeros_like(after))


def test_twenty_launches_are_timed() -> None:
    device = ListedDevice()
    launched: list[int] = []
    work = device.kernel(100.0, 1500.0)

    def launch() -> None:
        launched.append(1)
        work()

    Stopwatch(device).single(launch)
    assert len(launched) == NUM_SINGLE + 1  # and one before them
