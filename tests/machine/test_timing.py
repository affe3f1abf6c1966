"""Pipe, GapPipe, SharedPipe against closed forms, SharedPipe against a fluid worked out apart; what is called later."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from functools import partial

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.machine.timing import Agenda, GapPipe, Pipe, RingingEnvironment, SharedPipe, Ticket

# ---------------------------------------------------------------------- Pipe


def test_a_pipe_takes_units_over_rate_from_when_the_work_is_ready() -> None:
    pipe = Pipe(units_per_cycle=4.0)
    assert pipe.reserve(8.0, at_cycle=100.0) == 102.0


def test_work_queues_in_order_of_arrival() -> None:
    pipe = Pipe(units_per_cycle=2.0)
    assert [pipe.reserve(6.0, at_cycle=0.0), pipe.reserve(4.0, at_cycle=1.0)] == [3.0, 5.0]


def test_a_pipe_idles_until_late_work_is_ready() -> None:
    pipe = Pipe(units_per_cycle=1.0)
    pipe.reserve(3.0, at_cycle=0.0)
    assert pipe.reserve(3.0, at_cycle=10.0) == 13.0
    assert pipe.busy_cycles == 6.0


def test_weight_counts_work_several_times_and_takes_its_time_once() -> None:
    pipe = Pipe(units_per_cycle=1.0)
    assert pipe.reserve(3.0, at_cycle=0.0, weight=5.0) == 3.0
    assert pipe.busy_cycles == 15.0


def test_a_gap_that_was_reserved_past_is_filled_by_earlier_work() -> None:
    pipe = GapPipe(units_per_cycle=1.0)
    assert [pipe.reserve(2.0, at_cycle=at) for at in (0.0, 10.0, 1.0, 3.0)] == [2.0, 12.0, 4.0, 6.0]
    assert pipe.reserve(6.0, at_cycle=4.0) == 14.0  # four cycles before the reserved work, two behind it
    assert pipe.reserve(1.0, at_cycle=0.0) == 15.0


def test_what_fits_a_gap_leaves_nothing_for_behind_it() -> None:
    """In thirds of a cycle, where a difference of sums is not exact."""
    pipe = GapPipe(units_per_cycle=3.0)
    pipe.reserve(1.0, at_cycle=1000.1)
    assert pipe.reserve(1.0, at_cycle=10.7) == pytest.approx(10.7 + 1 / 3)
    assert pipe.reserve(1.0, at_cycle=700.3) == pytest.approx(700.3 + 1 / 3)


@given(jobs=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 5)), min_size=1, max_size=40))
def test_a_gap_pipe_never_works_on_two_things_and_never_idles_with_work(jobs: list[tuple[int, int]]) -> None:
    pipe = GapPipe(units_per_cycle=1.0)
    ends = [pipe.reserve(float(units), at_cycle=float(at)) for at, units in jobs]
    assert all(end >= at + units for end, (at, units) in zip(ends, jobs, strict=True))
    busy, now = 0.0, 0.0
    for at, units in sorted(jobs):
        now = max(now, float(at)) + units
        busy += units
    assert max(ends) == now  # as if all had been asked for in order
    assert pipe.busy_cycles == busy


@given(
    jobs=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1),
    rate=st.sampled_from((0.5, 1.0, 4.0)),
)
def test_a_pipe_conserves_work_and_keeps_order(jobs: list[tuple[int, int]], rate: float) -> None:
    pipe = Pipe(units_per_cycle=rate)
    ends = [pipe.reserve(units, at_cycle=ready) for ready, units in jobs]
    assert ends == sorted(ends)
    assert all(end >= ready + units / rate for end, (ready, units) in zip(ends, jobs, strict=True))
    assert pipe.busy_cycles == sum(units for _, units in jobs) / rate <= ends[-1]


# ---------------------------------------------------------------------- later


def test_what_is_asked_for_later_is_called_in_its_turn_without_an_event() -> None:
    """Queued at cycle 5 for 5.25, 22 and 5; of one cycle those first that were queued first."""
    agenda = Agenda([])
    calls: list[int] = []
    agenda.cycle = 5.0
    for place, delay in enumerate((0.25, 17.0, 0.0, 0.0)):
        agenda.later(delay, partial(calls.append, place))
    while agenda.advance():
        pass
    assert calls == [2, 3, 0, 1]
    assert agenda.cycle == 22.0


def test_events_of_simpys_own_and_calls_take_their_turns() -> None:
    """Of one cycle those first that were queued first; a process that waits finds the clock where calls have left it."""
    env = RingingEnvironment()
    calls: list[object] = []

    def waits() -> Generator[simpy.Event, None, None]:
        for _ in range(2):
            yield env.timeout(2.0)
            calls.append(env.now)

    env.process(waits())
    env.agenda.later(2.0, lambda: calls.append("call"))
    env.agenda.later(5.0, lambda: calls.append("last"))
    env.run()
    assert calls == ["call", 2.0, 4.0, "last"]
    assert env.now == 5.0


# ---------------------------------------------------------------------- SharedPipe, by hand


@dataclass
class Shared:
    """A SharedPipe and the cycle at which each transfer ended, in order of completion."""

    total: float
    cap: float
    ends: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.env = RingingEnvironment()
        self.pipe = SharedPipe(self.env, bytes_per_cycle=self.total, cap_bytes_per_cycle=self.cap)
        self.tickets: dict[str, Ticket] = {}

    def at(self, cycle: float, name: str, num_bytes: float, weight: float = 1.0, share: float = 1.0) -> None:
        """Start transfer ``name`` at ``cycle``."""

        def start(_: object) -> None:
            self.tickets[name] = self.pipe.transfer(num_bytes, lambda end: self._end(name, end), weight, share)

        self._do(cycle, start)

    def extend(self, cycle: float, name: str, num_bytes: float, weight: float) -> None:
        """Extend transfer ``name`` at ``cycle``, if it has not ended."""

        def more(_: object) -> None:
            if name not in self.ends:
                self.tickets[name] = self.pipe.extend(self.tickets[name], num_bytes, weight)

        self._do(cycle, more)

    def run(self) -> dict[str, float]:
        """The end of each transfer."""
        self.env.run()
        assert self.pipe.num_in_flight == 0
        return self.ends

    def _do(self, cycle: float, action: simpy.events.EventCallback) -> None:
        timeout = self.env.timeout(cycle)
        assert timeout.callbacks is not None
        timeout.callbacks.append(action)

    def _end(self, name: str, end: float) -> None:
        assert name not in self.ends, "a transfer ends once"
        assert end == self.env.now
        self.ends[name] = end


def test_a_larger_share_counts_while_the_rate_is_short() -> None:
    shared = Shared(total=90.0, cap=80.0)
    shared.at(0.0, "a", 1000.0)
    shared.at(0.0, "b", 1000.0)  # from here on 45 each
    shared.at(2.0, "c", 300.0, share=4.0)  # 15, 15 and 60, for 5 cycles
    ends = shared.run()
    assert ends["c"] == pytest.approx(7.0)
    assert ends["a"] == ends["b"] == pytest.approx(7.0 + (1000.0 - 2 * 45.0 - 5 * 15.0) / 45.0)


def test_a_share_means_nothing_to_a_transfer_alone() -> None:
    shared = Shared(total=90.0, cap=80.0)
    shared.at(0.0, "a", 160.0, share=4.0)
    assert shared.run() == {"a": pytest.approx(2.0)}


def test_one_transfer_runs_at_its_ports_rate_where_that_is_the_smaller() -> None:
    shared = Shared(total=100.0, cap=40.0)
    shared.at(7.0, "a", 400.0)
    assert shared.run() == {"a": 17.0}


def test_one_transfer_runs_at_the_pipes_rate_where_that_is_the_smaller() -> None:
    shared = Shared(total=20.0, cap=40.0)
    shared.at(0.0, "a", 400.0)
    assert shared.run() == {"a": 20.0}


def test_two_transfers_that_the_pipe_can_carry_do_not_slow_each_other() -> None:
    shared = Shared(total=100.0, cap=40.0)
    shared.at(0.0, "a", 400.0)
    shared.at(0.0, "b", 800.0)
    assert shared.run() == {"a": 10.0, "b": 20.0}


@pytest.mark.parametrize("num", [1, 2, 3, 10])
def test_n_equal_transfers_end_together_when_the_pipe_has_moved_their_bytes(num: int) -> None:
    shared = Shared(total=64.0, cap=64.0)
    for idx in range(num):
        shared.at(0.0, str(idx), 640.0)
    assert shared.run() == pytest.approx({str(idx): 10.0 * num for idx in range(num)})


def test_a_late_arrival_takes_half_from_then_on() -> None:
    shared = Shared(total=10.0, cap=10.0)
    shared.at(0.0, "first", 100.0)  # 50 alone, 50 at half the rate until 15
    shared.at(5.0, "late", 100.0)  # 50 at half the rate until 15, 50 alone
    assert shared.run() == {"first": 15.0, "late": 20.0}


def test_a_short_late_arrival_ends_first() -> None:
    shared = Shared(total=10.0, cap=10.0)
    shared.at(0.0, "long", 100.0)
    shared.at(2.0, "short", 10.0)
    assert list(shared.run().items()) == [("short", 4.0), ("long", 11.0)]


def test_who_stays_speeds_up_to_the_cap_when_another_leaves() -> None:
    shared = Shared(total=12.0, cap=8.0)
    shared.at(0.0, "a", 60.0)
    shared.at(0.0, "b", 140.0)  # 60 by cycle 10, 80 more at the cap
    assert shared.run() == {"a": 10.0, "b": 20.0}


def test_a_transfer_of_weight_0_rides_along() -> None:
    shared = Shared(total=64.0, cap=64.0)
    shared.at(0.0, "payer", 640.0)
    shared.at(0.0, "rider", 640.0, weight=0.0)
    assert shared.run() == {"payer": 10.0, "rider": 10.0}


def test_an_extended_transfer_carries_both_loads() -> None:
    shared = Shared(total=10.0, cap=10.0)
    shared.at(0.0, "a", 100.0)
    shared.extend(4.0, "a", 60.0, 1.0)
    assert shared.run() == {"a": 16.0}


def test_a_transfer_that_grows_lighter_gives_way_at_once() -> None:
    shared = Shared(total=64.0, cap=64.0)
    shared.at(0.0, "a", 3200.0)
    shared.at(0.0, "b", 3200.0)
    shared.extend(0.0, "a", 640.0, 0.5)  # 1.5 weights: 64 / 1.5 for each until b ends
    assert shared.run()["b"] == pytest.approx(3200.0 * 1.5 / 64.0)


def test_a_transfer_of_no_bytes_ends_at_once() -> None:
    shared = Shared(total=10.0, cap=10.0)
    shared.at(3.0, "a", 0.0)
    assert shared.run() == {"a": 3.0}


@pytest.mark.parametrize("at", [0.0, 1e3, 123456.789, 1e7 / 3])
def test_a_pipe_without_limit_ends_its_transfers_however_late_it_is(at: float) -> None:
    shared = Shared(total=1e12, cap=1e12)
    for idx in range(20):
        shared.at(at + idx / 7, str(idx), 4096.0 + idx)
    ends = shared.run()
    assert list(ends.values()) == pytest.approx([at + idx / 7 for idx in range(20)], abs=1e-6)


# ---------------------------------------------------------------------- SharedPipe, laws


@dataclass(frozen=True)
class Step:
    """Something that happens to a transfer: its start, or an extension."""

    cycle: float
    name: str
    num_bytes: float
    weight: float
    is_start: bool


def fluid(steps: list[Step], *, total: float, cap: float) -> dict[str, float]:
    """The definition: at any time all in flight move at min(cap, total / sum of weights)."""
    ends: dict[str, float] = {}
    left: dict[str, float] = {}
    weights: dict[str, float] = {}
    now, queue = 0.0, sorted(steps, key=lambda step: step.cycle)
    while queue or left:
        weight = sum(weights.values())
        rate = cap if weight * cap <= total else total / weight
        ends_in = min(left.values()) / rate if left else float("inf")
        if queue and queue[0].cycle - now <= ends_in:
            step = queue.pop(0)
            left = {name: size - rate * (step.cycle - now) for name, size in left.items()}
            now = step.cycle
            if step.is_start or step.name in left:
                left[step.name] = left.get(step.name, 0.0) + step.num_bytes
                weights[step.name] = step.weight
        else:
            left = {name: size - rate * ends_in for name, size in left.items()}
            now += ends_in
        for name in [name for name, size in left.items() if size <= 1e-6]:
            ends[name] = now
            del left[name], weights[name]
    return ends


sizes = st.integers(1, 1000).map(float)
cycles = st.integers(0, 400).map(lambda tenths: tenths / 10 + 0.05)


@st.composite
def transfers(draw: st.DrawFn, *, weights: tuple[float, ...] = (1.0,)) -> list[Step]:
    num = draw(st.integers(1, 8))
    return [
        Step(draw(cycles), str(idx), draw(sizes), draw(st.sampled_from(weights)), True) for idx in range(num)
    ]


@given(steps=transfers(), total=st.sampled_from((8.0, 64.0)), cap=st.sampled_from((8.0, 20.0, 64.0)))
def test_transfers_share_as_a_fluid_does(steps: list[Step], total: float, cap: float) -> None:
    shared = Shared(total=total, cap=cap)
    for step in steps:
        shared.at(step.cycle, step.name, step.num_bytes)
    assert shared.run() == pytest.approx(fluid(steps, total=total, cap=cap), abs=1e-5)


@given(steps=transfers(weights=(0.0, 0.5, 1.0)), data=st.data())
def test_riders_and_extensions_share_as_a_fluid_does(steps: list[Step], data: st.DataObject) -> None:
    shared = Shared(total=30.0, cap=20.0)
    for step in steps:
        shared.at(step.cycle, step.name, step.num_bytes, step.weight)
    for step in list(steps):
        if data.draw(st.booleans()):
            later = step.cycle + data.draw(st.integers(0, 100)) / 10 + 0.017
            more = Step(
                later, step.name, data.draw(sizes), data.draw(st.sampled_from((0.0, 0.5, 1.0))), False
            )
            shared.extend(more.cycle, more.name, more.num_bytes, more.weight)
            steps.append(more)
    assert shared.run() == pytest.approx(fluid(steps, total=30.0, cap=20.0), abs=1e-5)


@settings(max_examples=50)
@given(steps=transfers(), total=st.sampled_from((8.0, 64.0)), cap=st.sampled_from((8.0, 20.0, 64.0)))
def test_no_byte_is_faster_than_pipe_or_port_and_none_is_held_back(
    steps: list[Step], total: float, cap: float
) -> None:
    shared = Shared(total=total, cap=cap)
    for step in steps:
        shared.at(step.cycle, step.name, step.num_bytes)
    ends = shared.run()
    first, last = min(step.cycle for step in steps), max(ends.values())
    all_bytes = sum(step.num_bytes for step in steps)
    assert last - first >= all_bytes / total - 1e-6
    for step in steps:
        took = ends[step.name] - step.cycle
        assert took >= step.num_bytes / min(total, cap) - 1e-6
        assert took <= all_bytes / min(total, cap) + 1e-6  # never longer than if everybody went first
    equals = [step for step in steps if step.cycle == steps[0].cycle]
    in_order = sorted(equals, key=lambda step: step.num_bytes)
    assert [ends[step.name] for step in in_order] == sorted(ends[step.name] for step in equals)
