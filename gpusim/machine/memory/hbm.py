"""High-bandwidth memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import sqrt
from typing import NamedTuple

from gpusim.machine.component import Component, Counters
from gpusim.machine.memory.draws import (
    MOST_LINES,
    SHARE_STEPS,
    most_of,
    slowest_beside_writes,
    slowest_of_both,
    slowest_wait,
    whole_lines,
)
from gpusim.machine.numeric import SQRT_PI, erf, exp, normal_inverse_cdf, power
from gpusim.machine.timing import EPSILON_BYTES, Done, RingingEnvironment, SharedPipe
from gpusim.units import Clock

GOLDEN = 0.6180339887498949
"""Multiples of it, less their whole part, fill 0 to 1 evenly however many there are."""
PLASTIC = 0.5698402909980532
"""Another such number, for what is drawn beside."""
MOST_SHARE = 0.95
"""Of the peak rate that queues are worked out for: no more was ever measured."""
QUEUE_LATENCIES = 4.0
"""Over which what is taken is a share: queues grow over some latencies, and waves of requests that come together are no load
that lasts. A guess; settled by loads that begin and end."""
MOST_MIXED = 0.7
"""Of the peak rate that writes take, up to which what reads wait for them was measured.
Source: kernels/reads_beside_writes, h200_sxm, 2026-11-26."""
TURN_STEPS = 8
"""Of a turn of writes, in which waits for several are worked out."""
MOST_TURNS = 8
"""Of a fill: more loads of a thread change little (the last of eight comes at 15/16 of what all take)."""
TURN_GAP_CYCLES = 1.0
"""From one warp's last load to the next one's first, up to which they take turns. A guess: they follow one another, but for
rounding; those of a CTA that came 100 cycles later do not (kernels/side_bursts)."""
INFINITE = float("inf")
MOST_SMS = 1 << 10
"""Of a GPU: those beyond a sample are numbered behind them."""

MOST_QUEUED_MB = 16.6
"""That wait for memory, up to which writes take more of it: the most of the rows that calibrate.
Source: kernels/stream_grids, h200_sxm, 2026-11-22; 19 and 22 cost no more in kernels/copy_grains, h100_sxm, 2026-11-26."""

Begun = Callable[[float], None]
"""Called with the cycle at which a transfer begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HbmSpec:
    """All stacks of a GPU."""

    peak_gb_per_s: float
    sustained_read_gb_per_s: float
    sustained_write_gb_per_s: float
    turnaround_fraction: float
    """What a byte written takes more than alone, where reads are under way: the bus turns round for it."""
    queued_turnaround_per_mb: float
    """By how much that grows with each 1e6 bytes that wait for memory."""
    latency_ns: float
    """From a load's issue to its use, near and far mixed, unloaded: the mean."""
    refresh_fraction: float
    """Part of the time in which a bank is being refreshed, so that a read waits."""
    refresh_ns: float
    """The longest such wait."""
    refresh_bytes: float
    """Of bytes side by side, what waits for a refresh together."""
    write_wait_ns: float
    """What a read waits for writes, on average, times the part of the peak rate that these take."""
    mixed_wait_ns: float
    """What it waits besides where others read, too, so that channels turn round: times the root of the parts of both."""
    write_turn_ns: float
    """One of the turns that such a wait is made of: so much of its mean is its variance."""
    fill_spread_ns: float
    """From a quick fill of many lines to a slow one, where memory has nothing else to do: they come evenly in between."""
    sm_gb_per_s: float
    """What one SM can draw alone."""
    queue_ns: float
    """What a line that is read waits at its channel, on average, where half of the peak rate is taken: at a share u,
    u / (1 - u) of it."""
    channel_gb_per_s: float
    """What one channel moves at most."""
    channel_bytes: float
    """Of requests that lie apart, what lies in one channel; which is as if drawn. 0: channels are always even."""
    side_by_side_fraction: float
    """Of the variance of what waits in channels, what is left where requests lie side by side."""
    piece_read_bytes: float
    """What a piece of memory that is read alone takes of the wire beyond its bytes: a row is opened for it."""
    piece_write_bytes: float
    """The same of one that is written alone."""
    part_request_bytes: float
    """What an instruction that asks for parts of lines, others for the rest, takes of the wire beyond its bytes."""


@dataclass(slots=True)
class HbmCounters(Counters):
    """Bytes at the pins."""

    read_bytes: float = field(default=0.0, metadata={"ncu": "dram__bytes_read.sum"})
    write_bytes: float = field(default=0.0, metadata={"ncu": "dram__bytes_write.sum"})


class WireWork:
    """What the wire was given so far, of all SMs that are stood for: bytes, and what they take of it, in bytes of reads."""

    __slots__ = ("num_bytes", "taken_bytes")

    def __init__(self) -> None:
        self.num_bytes = self.taken_bytes = 0.0


class _Fill:
    """What an SM has asked for and memory has not given."""

    __slots__ = ("begun", "done", "is_behind", "left_bytes", "turn_bytes", "weight")

    def __init__(
        self, num_bytes: float, turn_bytes: float, weight: float, done: Done, begun: Begun | None, *, is_behind: bool
    ) -> None:
        self.left_bytes = num_bytes
        self.turn_bytes = turn_bytes
        """What passes of it before the next one's turn."""
        self.weight = weight
        self.done = done
        self.begun = begun
        self.is_behind = is_behind
        """Whether its loads were issued right behind those of the one before it, which they take turns with."""


class Turns(NamedTuple):
    """How a fill is asked for: by so many loads of a thread, which are issued from one cycle to another; 0: as a whole."""

    num: int = 0
    asked_at: float = 0.0
    asked_until: float = 0.0


AS_A_WHOLE = Turns()


class _Intake:
    """What one SM draws: its fills one after the other, the first of them sharing the wire with other SMs'.

    Loads of warps that follow one another at the load/store unit take turns: the first load of each, the second of each.
    """

    __slots__ = ("_alike", "_asked_until", "_current", "_hbm", "_waiting", "_wire")

    def __init__(self, hbm: Hbm, num_alike: float) -> None:
        self._hbm = hbm
        self._alike = num_alike
        self._wire = hbm.wire
        self._current: _Fill | None = None
        self._asked_until = -INFINITE
        """When the last load was issued that takes turns."""
        self._waiting: deque[_Fill] = deque()

    def fill(self, num_bytes: float, weight: float, done: Done, begun: Begun | None, turns: Turns) -> None:
        """Queue ``num_bytes``, which the wire pays for ``weight`` times."""
        num = min(turns.num, MOST_TURNS)
        is_behind = num > 0 and turns.asked_at <= self._asked_until + TURN_GAP_CYCLES
        self._asked_until = turns.asked_until if num else -INFINITE
        fill = _Fill(num_bytes, num_bytes / max(1, num), weight, done, begun, is_behind=is_behind)
        if self._current is None:
            self._hbm.num_reading += 1
            self._begin(fill)
        else:
            self._waiting.append(fill)

    def _begin(self, fill: _Fill) -> None:
        """A turn of ``fill`` begins."""
        self._current = fill
        begun = fill.begun
        if begun is not None:
            fill.begun = None
            begun(self._hbm.now())
        self._wire.transfer(min(fill.turn_bytes, fill.left_bytes), self, self._alike * fill.weight)

    def __call__(self, cycle: float) -> None:
        """The last byte of a turn has passed."""
        fill, waiting = self._current, self._waiting
        assert fill is not None  # a transfer was under way
        passed = min(fill.turn_bytes, fill.left_bytes)
        fill.left_bytes -= passed
        self._hbm.has_read(passed * self._alike * fill.weight)
        if fill.left_bytes > EPSILON_BYTES:
            self._begin(self._next_behind(fill))
            return
        if waiting:
            self._begin(waiting.popleft())
        else:
            self._current = None
            self._hbm.num_reading -= 1
        fill.done(cycle)

    def _next_behind(self, fill: _Fill) -> _Fill:
        """Whose turn it is behind one of ``fill``, which is queued again as the last of those that take turns with it."""
        waiting = self._waiting
        num = 0
        for other in waiting:
            if not other.is_behind:
                break
            num += 1
        if not num:
            return fill
        fill.is_behind = True
        waiting.insert(num, fill)
        return waiting.popleft()


class Hbm(Component):
    """All channels as one wire that fills share.

    Models: latency under load: channels are queues that lines fall on at random, so that one waits in proportion to what
    is taken over what is left of the peak, as it was during the last latencies, and the slowest of a request's parts for
    longer, where it does not wait longer for its share of the wire (of many rows, one that waits for a refresh as well);
    sustained bandwidth shared among the SMs that wait for fills, what one of them can draw (its fills come in order, loads
    of warps that are issued right behind one another in turns), idle latency; turns of channels that write, for which
    reads wait, the longer the more others read and write; the slowest of many rows, one of which finds its bank in
    refresh, where those that were asked for early are hidden behind the last;
    channels that have unlike parts of what waits for the wire, so that a request comes as late as the fullest of its own
    (drawn, by a sequence; parts of requests have the mean; bytes side by side and pieces at equal distances within what
    lies in one channel take channels evenly); fills of which some are quick and some slow, so that SMs which wait for
    unlike tiles fall out of step; writes take their share of the same wire, at their own efficiency, which is lower beside
    reads, the more the more waits; rows that are opened for a short piece; requests of parts of lines whose other parts
    somebody else asks for.
    Ignores: whether somebody asks for the rest of these lines, and when; parts of lines that cp.async and TMA ask for;
    that fills are spread further the busier memory is, and at all where SMs stand for others (these have the
    mean); that SMs which ask for one tile together draw it together (the first draws all of it), which addresses share a
    channel, and banks, how far pieces lie apart (strides that are powers of two cost up to a fifth more); that reads wait
    for many turns of writes (behind stores at full rate three times as long as idle).
    Source: the GPU's description; turns of loads: kernels/side_bursts, h200_sxm, 2026-11-28 (``order``).
    """

    kind = "hbm"

    def __init__(
        self, env: RingingEnvironment, spec: HbmSpec, clock: Clock, *, l2_latency_ns: float,
        alike: Mapping[int, int] | None = None,
    ) -> None:
        """Build at ``clock``; HBM keeps its own clock, so its rate and latency in SM cycles move with the SM's.

        ``l2_latency_ns`` is what of the latency from issue to use is L2's; only the rest is HBM's. ``alike``: as in Xbar.
        """
        self.spec = spec
        self.counters = HbmCounters()
        self.latency_cycles = clock.cycles(ns=max(0.0, spec.latency_ns - l2_latency_ns))
        self.refresh_bytes, self.channel_bytes = spec.refresh_bytes, spec.channel_bytes
        self._side_by_side_fraction = spec.side_by_side_fraction
        self._refresh_cycles = clock.cycles(ns=spec.refresh_ns)
        self._write_cycles = clock.cycles(ns=spec.write_wait_ns)
        self._mixed_cycles = clock.cycles(ns=spec.mixed_wait_ns)
        self._turn_cycles = clock.cycles(ns=spec.write_turn_ns)
        self._spread_cycles = 0.0 if alike else min(clock.cycles(ns=spec.fill_spread_ns), 2.0 * self.latency_cycles)
        self._num_draws = self._num_waits = 0
        self.num_reading = 0
        """SMs that wait for fills."""
        self._agenda = env.agenda
        self._queue_cycles = clock.cycles(ns=spec.queue_ns)
        self._peak = clock.bytes_per_cycle(gb_per_s=spec.peak_gb_per_s)
        self._most_share = min(MOST_SHARE, spec.sustained_read_gb_per_s / spec.peak_gb_per_s)
        self._window = QUEUE_LATENCIES * clock.cycles(ns=spec.latency_ns) or 1.0
        self._moved_bytes, self._moved_at = 0.0, 0.0
        """Of late: what passed the wire a window ago counts for a third, and so on; up to which cycle."""
        self._read_bytes = self._written_bytes = 0.0
        """What was read and written of late, by bytes."""
        self._write_cost = spec.sustained_read_gb_per_s / spec.sustained_write_gb_per_s
        self.wire = SharedPipe(
            env,
            bytes_per_cycle=clock.bytes_per_cycle(gb_per_s=spec.sustained_read_gb_per_s),
            cap_bytes_per_cycle=clock.bytes_per_cycle(gb_per_s=spec.sm_gb_per_s),
        )
        self._pending_bytes = 0.0
        """What the wire was given and has not moved, of all SMs that are stood for."""
        self.read_work, self.write_work = WireWork(), WireWork()
        rate = clock.bytes_per_cycle(gb_per_s=spec.channel_gb_per_s)
        self._channel_cycles = spec.channel_bytes / rate if rate else 0.0
        self._per_channel = spec.channel_bytes * self._peak / rate if rate else 0.0
        """Bytes of which each channel has one part."""
        self._intakes: dict[int, _Intake] = {}
        self._alike = alike or {}
        self._num_shared = 0
        self._line_waits: dict[float, dict[int, tuple[float, float]]] = {}
        """The longest of so many lines' waits, at the shares below and above."""
        self._most_of: dict[float, float] = {}
        self._waits: dict[tuple[int, int, float], tuple[float, float, float]] = {}
        """The slowest of so many rows, by share and longest refresh: idle, and at the shares below and above."""
        self._refreshes: dict[tuple[float, float], float] = {}
        """Waits for a refresh, by rows and the cycles over which they are asked for."""

    def refresh_cycles(self, num_rows: float, over_cycles: float = 0.0) -> float:
        """How much later than a mean row's the slowest of ``num_rows`` rows comes that are asked for over ``over_cycles``.

        A row that finds its bank in refresh waits for a time between none and the longest, evenly. Those asked for early
        hide their wait behind the later ones: the last to come counts.
        """
        key = num_rows, over_cycles
        found = self._refreshes.get(key)
        if found is None:
            found = self._refreshes[key] = self._refresh_of(num_rows, over_cycles)
        return found

    def _refresh_of(self, num_rows: float, over_cycles: float) -> float:
        longest, num_waiting = self._refresh_cycles, max(0.0, num_rows - 1.0) * self.spec.refresh_fraction
        if not longest or not num_waiting:
            return 0.0
        early = 0.0  # by which the slowest comes earlier than the last row with the longest wait
        if over_cycles > 0.0:
            scale = sqrt(num_waiting / (2.0 * longest * over_cycles))
            early = SQRT_PI / 2.0 / scale * erf(scale * min(over_cycles, longest))
        if over_cycles < longest:
            hidden = over_cycles / (2.0 * longest)
            early += longest / num_waiting * (exp(-num_waiting * hidden) - exp(-num_waiting * (1.0 - hidden)))
        return longest - early

    def spread_cycles(self) -> float:
        """By how much the next fill of many lines is later than the mean, or sooner (below 0): evenly, by a sequence."""
        if not self._spread_cycles:
            return 0.0
        self._num_draws += 1
        return self._spread_cycles * (self._num_draws * GOLDEN % 1.0 - 0.5)

    def queue_cycles(self, num_lines: float = 1.0) -> float:
        """How long the last of ``num_lines`` that are asked for now waits at its channel, by what was asked for lately.

        Each line finds a queue of its own, in which it waits with the chance that is the share taken, and then for an
        exponential time, as in an M/M/1 queue.
        """
        if not self._queue_cycles:
            return 0.0
        share = min(self._most_share, self._lately(0.0) / (self._window * self._peak))
        if not share:
            return 0.0
        step = share * SHARE_STEPS
        low = min(int(step), SHARE_STEPS - 1)
        waits = self._line_waits.get(num_lines)
        if waits is None:
            waits = self._line_waits[num_lines] = {}
        wait = waits.get(low)
        if wait is None:
            lines = whole_lines(num_lines)
            wait = waits[low] = slowest_wait(lines, low), slowest_wait(lines, low + 1)
        below, above = wait
        return self._queue_cycles / (1.0 - share) * (below + (step - low) * (above - below))

    def busy_cycles(self, num_rows: float) -> float:
        """How much later the slowest of ``num_rows`` rows comes than where memory has nothing else to do.

        Each waits in a queue and for a refresh, drawn for itself: the last to come is one of those that find a long refresh,
        and of these the one whose queue is longest.
        """
        if not self._queue_cycles:
            return 0.0
        share = min(self._most_share, self._lately(0.0) / (self._window * self._peak))
        if not share:
            return 0.0
        mean, rows = self._queue_cycles / (1.0 - share), min(MOST_LINES, max(1, round(num_rows)))
        step = share * SHARE_STEPS
        low = min(int(step), SHARE_STEPS - 1)
        fraction, longest = self.spec.refresh_fraction, round(10.0 * (self._refresh_cycles / mean)) / 10.0
        waits = self._waits.get((rows, low, longest))
        if waits is None:
            idle, below, above = (slowest_of_both(rows, steps, fraction, longest) for steps in (0, low, low + 1))
            waits = self._waits[rows, low, longest] = idle, below, above
        idle, below, above = waits
        return mean * (below + (step - low) * (above - below) - idle)

    def mixed_cycles(self, num_parts: float) -> float:
        """How much later the slowest of ``num_parts`` comes than where memory has nothing else to do, beside writes.

        Each lies in a channel of its own, and waits for its turns and in its queue, and for a refresh. None where nothing
        was written of late.
        """
        if not self._written_bytes or not self._turn_cycles:
            return 0.0
        most = self._window * self._peak
        share = min(self._most_share, self._lately(0.0) / most)
        written, read = self._written_bytes / most, self._read_bytes / most
        mean = self._write_cycles * written + self._mixed_cycles * sqrt(written * read)
        mean /= 1.0 - min(MOST_MIXED, written)
        mean += self._queue_cycles * share / (1.0 - share)
        turns = round(TURN_STEPS * mean / self._turn_cycles)
        if not turns:
            return 0.0
        parts = min(MOST_LINES, max(1.0, round(4.0 * num_parts) / 4.0))
        refresh = self.spec.refresh_fraction, self._refresh_cycles
        return slowest_beside_writes(parts, refresh, turns * self._turn_cycles / TURN_STEPS, self._turn_cycles)

    def draw(self) -> float:
        """Which part of all requests like the next one waits less at its channels, by a sequence."""
        self._num_waits += 1
        return self._num_waits * PLASTIC % 1.0

    def uneven_cycles(self, num_bytes: float, place: float | None, *, are_apart: bool, part_bytes: float = 0.0) -> float:
        """How much later than with even channels the last of ``num_bytes`` comes, or of ``part_bytes`` of them.

        What waits lies in channels as if each part of it had drawn one: the parts of each have their mean as variance. A
        request waits for the fullest of those that it has parts in, where a part ``place`` of all requests like it waits
        less. Bytes side by side take channels more evenly than those that lie apart.
        """
        if not self._channel_cycles or place == 0.0:
            return 0.0
        parts = (self._pending_bytes + num_bytes) / self._per_channel
        if not are_apart:
            parts *= self._side_by_side_fraction
        num = max(1.0, (part_bytes or num_bytes) / self.channel_bytes)
        if place is None:
            most = self._most_of.get(num)
            if most is None:
                most = self._most_of[num] = most_of(min(MOST_LINES, round(num)))
            return self._channel_cycles * sqrt(parts) * most
        return self._channel_cycles * sqrt(parts) * max(0.0, normal_inverse_cdf(power(place, 1.0 / num)))

    def _lately(self, num_bytes: float) -> float:
        """Bytes that have passed the wire of late, ``num_bytes`` now among them."""
        now = self._agenda.cycle
        if now > self._moved_at:
            kept = exp((self._moved_at - now) / self._window)
            self._moved_bytes *= kept
            self._read_bytes *= kept
            self._written_bytes *= kept
            self._moved_at = now
        self._moved_bytes += num_bytes
        return self._moved_bytes

    def has_moved(self, num_bytes: float) -> None:
        """So much has passed the wire."""
        self._pending_bytes -= num_bytes
        self._lately(num_bytes)

    def has_read(self, num_bytes: float) -> None:
        """So much of it was read."""
        self.has_moved(num_bytes)
        self._read_bytes += num_bytes

    def now(self) -> float:
        """The present."""
        return self._agenda.cycle

    def later(self, cycles: float, action: Callable[[], None]) -> None:
        """Do something so much later."""
        self._agenda.later(cycles, action)

    @property
    def pending_bytes(self) -> float:
        """What the wire was given and has not moved: of fills, and of write-backs by what they take."""
        return self._pending_bytes

    def fill(
        self, num_bytes: float, done: Done, *, sm_idx: int, count: float, begun: Begun | None = None,
        piece_bytes: float = 0.0, num_part_requests: float = 0.0, share: float = 1.0, times: float = 1.0,
        turns: Turns = AS_A_WHOLE,
    ) -> None:
        """Read ``num_bytes`` for a miss of one SM; ``done`` is called when the last byte has passed the wire.

        ``begun(cycle)`` is called when the first begins to. The bytes lie in pieces of ``piece_bytes``, or side by side,
        where so many instructions may each ask for parts of lines.
        ``share``: what of them is paid for; where it is less than 1, SMs beyond a sample want them, too, and draw in turn.
        ``turns``: loads of warps, which go in turns with others of their SM.
        ``times``: how often they are read, by others who find them no more: as if so many SMs drew at once.
        """
        self.counters.read_bytes += num_bytes * count * share * times
        key = sm_idx
        if share < 1.0:
            self._num_shared += 1
            key += self._num_shared % max(1, round(1.0 / share)) * MOST_SMS if share else 0
        intake = self._intakes.get(key)
        if intake is None:
            intake = self._intakes[key] = _Intake(self, float(self._alike.get(sm_idx, 1)))
        weight = share * times
        paid = weight * self._alike.get(sm_idx, 1)
        work = self.read_work
        work.num_bytes += num_bytes * paid
        if piece_bytes:
            num_bytes *= 1.0 + self.spec.piece_read_bytes / piece_bytes
        elif num_part_requests:
            num_bytes += self.spec.part_request_bytes * num_part_requests
        work.taken_bytes += num_bytes * paid
        self._pending_bytes += num_bytes * paid
        intake.fill(num_bytes, weight, done, begun, turns)

    def busy_share(self, cycles: float, read_bytes: float, write_bytes: float) -> float:
        """Part of ``cycles`` in which the wire moves so many bytes."""
        return (read_bytes + write_bytes * self._write_cost) / (self.wire.total * cycles)

    def write_back(
        self, num_bytes: float, done: Done, *, count: float, num_sms: float = 1.0, piece_bytes: float = 0.0
    ) -> None:
        """Write ``num_bytes`` of evicted dirty lines, and as much for each of ``num_sms`` that stored at once.

        They lie in pieces of ``piece_bytes``, or side by side.
        """
        self.counters.write_bytes += num_bytes * count
        cost = self._write_cost
        if self.num_reading:
            queued = min(self._pending_bytes / 1e6, MOST_QUEUED_MB)
            cost *= 1.0 + self.spec.turnaround_fraction + self.spec.queued_turnaround_per_mb * queued
        if piece_bytes:
            cost += self._write_cost * self.spec.piece_write_bytes / piece_bytes
        moved = num_bytes * cost * num_sms
        work = self.write_work
        work.num_bytes += num_bytes * num_sms
        work.taken_bytes += moved
        self._pending_bytes += moved

        def written(cycle: float) -> None:
            self.has_moved(moved)
            self._written_bytes += num_bytes * num_sms
            done(cycle)

        self.wire.transfer(num_bytes * cost, written, num_sms)
