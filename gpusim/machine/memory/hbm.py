"""High-bandwidth memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp

import simpy

from gpusim.machine.component import Component, Counters
from gpusim.machine.timing import Done, SharedPipe
from gpusim.units import Clock

GOLDEN = 0.6180339887498949
"""Multiples of it, less their whole part, fill 0 to 1 evenly however many there are."""
MOST_SHARE = 0.95
"""Of the peak rate that queues are worked out for: no more was ever measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HbmSpec:
    """All stacks of a GPU."""

    peak_gb_per_s: float
    sustained_read_gb_per_s: float
    sustained_write_gb_per_s: float
    turnaround_fraction: float
    """What a byte written takes more than alone, where reads are under way: the bus turns round for it."""
    latency_ns: float
    """From a load's issue to its use, near and far mixed, unloaded: the mean."""
    refresh_fraction: float
    """Part of the time in which a bank is being refreshed, so that a read waits."""
    refresh_ns: float
    """The longest such wait."""
    fill_spread_ns: float
    """From a quick fill of many lines to a slow one, where memory has nothing else to do: they come evenly in between."""
    sm_gb_per_s: float
    """What one SM can draw alone."""
    queue_ns: float
    """What a read waits at its channel where half of the peak rate is taken: at a share u, u / (1 - u) of it."""


@dataclass(slots=True)
class HbmCounters(Counters):
    """Bytes at the pins."""

    read_bytes: float = field(default=0.0, metadata={"ncu": "dram__bytes_read.sum"})
    write_bytes: float = field(default=0.0, metadata={"ncu": "dram__bytes_write.sum"})


class _Intake:
    """What one SM draws: its fills one after the other, the first of them sharing the wire with other SMs'."""

    __slots__ = ("_alike", "_done", "_hbm", "_waiting", "_wire")

    def __init__(self, hbm: Hbm, num_alike: float) -> None:
        self._hbm = hbm
        self._alike = num_alike
        self._wire = hbm.wire
        self._done: Done | None = None
        self._waiting: deque[tuple[float, Done]] = deque()

    def fill(self, num_bytes: float, done: Done) -> None:
        """Queue ``num_bytes``."""
        if self._done is None:
            self._done = done
            self._hbm.num_reading += 1
            self._wire.transfer(num_bytes, self, self._alike)
        else:
            self._waiting.append((num_bytes, done))

    def __call__(self, cycle: float) -> None:
        """The last byte of the first has passed."""
        done = self._done
        assert done is not None  # a transfer was under way
        if self._waiting:
            num_bytes, self._done = self._waiting.popleft()
            self._wire.transfer(num_bytes, self, self._alike)
        else:
            self._done = None
            self._hbm.num_reading -= 1
        done(cycle)


class Hbm(Component):
    """All channels as one wire that fills share.

    Models: latency under load: channels are queues that requests fall on at random, so that a read waits in proportion to
    what is taken over what is left of the peak, as it was during the last latency, where it does not wait longer for its
    share of the wire; sustained bandwidth shared among the SMs that wait for fills, what one of them can draw (its fills
    come in order), idle latency; the slowest of many rows, one of which finds its bank in refresh; fills of many lines of
    which some are quick and some slow, so that SMs which wait for unlike tiles fall out of step; writes take their share
    of the same wire, at their own efficiency, which is lower beside reads.
    Ignores: that fills are spread further the busier memory is, and at all where SMs stand for others (these have the mean);
    that SMs which ask for one tile together draw it together (the first draws all of it), single channels and banks, open
    rows; that reads wait for whole trains of writes (behind stores at full rate three times as long as idle).
    Source: the GPU's description.
    """

    kind = "hbm"

    def __init__(
        self, env: simpy.Environment, spec: HbmSpec, clock: Clock, *, l2_latency_ns: float,
        alike: Mapping[int, int] | None = None,
    ) -> None:
        """Build at ``clock``; HBM keeps its own clock, so its rate and latency in SM cycles move with the SM's.

        ``l2_latency_ns`` is what of the latency from issue to use is L2's; only the rest is HBM's. ``alike``: as in Xbar.
        """
        self.spec = spec
        self.counters = HbmCounters()
        self.latency_cycles = clock.cycles(ns=max(0.0, spec.latency_ns - l2_latency_ns))
        self._refresh_cycles = clock.cycles(ns=spec.refresh_ns)
        self._spread_cycles = 0.0 if alike else min(clock.cycles(ns=spec.fill_spread_ns), 2.0 * self.latency_cycles)
        self._num_draws = 0
        self.num_reading = 0
        """SMs that wait for fills."""
        self._env = env
        self._queue_cycles = clock.cycles(ns=spec.queue_ns)
        self._peak = clock.bytes_per_cycle(gb_per_s=spec.peak_gb_per_s)
        self._most_share = min(MOST_SHARE, spec.sustained_read_gb_per_s / spec.peak_gb_per_s)
        self._window = clock.cycles(ns=spec.latency_ns) or 1.0
        self._asked_bytes, self._asked_at = 0.0, 0.0
        """Of late: what was asked for a window ago counts for a third, and so on; up to which cycle."""
        self._write_cost = spec.sustained_read_gb_per_s / spec.sustained_write_gb_per_s
        self.wire = SharedPipe(
            env,
            bytes_per_cycle=clock.bytes_per_cycle(gb_per_s=spec.sustained_read_gb_per_s),
            cap_bytes_per_cycle=clock.bytes_per_cycle(gb_per_s=spec.sm_gb_per_s),
        )
        self._intakes: dict[int, _Intake] = {}
        self._alike = alike or {}

    def refresh_cycles(self, num_rows: float) -> float:
        """How much longer than the mean the slowest of ``num_rows`` rows takes.

        Of those that find their bank in refresh each waits for a time between none and the longest, evenly: the last of
        m for m / (m + 1) of it.
        """
        num_waiting = max(0.0, num_rows - 1.0) * self.spec.refresh_fraction
        return self._refresh_cycles * num_waiting / (num_waiting + 1.0)

    def spread_cycles(self) -> float:
        """By how much the next fill of many lines is later than the mean, or sooner (below 0): evenly, by a sequence."""
        if not self._spread_cycles:
            return 0.0
        self._num_draws += 1
        return self._spread_cycles * (self._num_draws * GOLDEN % 1.0 - 0.5)

    def queue_cycles(self) -> float:
        """How long a read that begins now waits at its channel, by what was asked for lately."""
        if not self._queue_cycles:
            return 0.0
        share = min(self._most_share, self._lately(0.0) / (self._window * self._peak))
        return self._queue_cycles * share / (1.0 - share)

    def _lately(self, num_bytes: float) -> float:
        """Bytes asked for of late, ``num_bytes`` now among them."""
        now = self._env.now
        if now > self._asked_at:
            self._asked_bytes *= exp((self._asked_at - now) / self._window)
            self._asked_at = now
        self._asked_bytes += num_bytes
        return self._asked_bytes

    def fill(self, num_bytes: float, done: Done, *, sm_idx: int, count: float) -> None:
        """Read ``num_bytes`` for a miss of one SM; ``done`` is called when the last byte has passed the wire."""
        self.counters.read_bytes += num_bytes * count
        self._lately(num_bytes * self._alike.get(sm_idx, 1))
        intake = self._intakes.get(sm_idx)
        if intake is None:
            intake = self._intakes[sm_idx] = _Intake(self, float(self._alike.get(sm_idx, 1)))
        intake.fill(num_bytes, done)

    def busy_share(self, cycles: float, read_bytes: float, write_bytes: float) -> float:
        """Part of ``cycles`` in which the wire moves so many bytes."""
        return (read_bytes + write_bytes * self._write_cost) / (self.wire.total * cycles)

    def write_back(self, num_bytes: float, done: Done, *, count: float, num_sms: float = 1.0) -> None:
        """Write ``num_bytes`` of evicted dirty lines, and as much for each of ``num_sms`` that stored at once."""
        self.counters.write_bytes += num_bytes * count
        cost = self._write_cost
        if self.num_reading:
            cost *= 1.0 + self.spec.turnaround_fraction
        self._lately(num_bytes * cost * num_sms)
        self.wire.transfer(num_bytes * cost, done, num_sms)
