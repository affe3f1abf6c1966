"""Whose requests for a line become one: what of a tile an SM reads itself, and what its lines wait at their slices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpusim.machine.component import Counters
from gpusim.machine.memory.hbm import GOLDEN, MOST_SHARE, QUEUE_LATENCIES
from gpusim.machine.memory.l2 import INFINITE, L2Spec, TileState
from gpusim.machine.numeric import exp, log, power
from gpusim.machine.timing import RingingEnvironment, SharedPipe
from gpusim.units import LINE_BYTES, SECTOR_BYTES

DRAWS_APART = 7
"""By how many draws SMs are apart: each has a sequence of its own that fills the space between evenly, so that the mean of a
few steps is nearly that of all."""


@dataclass(slots=True)
class Served(Counters):
    """What is counted here of the crossbar's reads."""

    passed_bytes: float = 0.0
    """Bytes of those that were simulated, each counted once, and of those that they stand for, without what still waits for
    its port."""
    served_bytes: float = 0.0
    """Of these, what the slices served: merged requests and further receivers of a multicast ride along."""
    carried_bytes: float = 0.0
    """The same, with what bulk copies take beyond their bytes."""


class Zeros:
    """Rows of boxes outside of their tensors: bytes that cross the SM's port, and what they take of the slices' time."""

    __slots__ = ("num_bytes", "num_carried_bytes")

    def __init__(self, num_bytes: float, num_carried_bytes: float) -> None:
        """Zeros come from L2, as lines do."""
        self.num_bytes = num_bytes
        self.num_carried_bytes = num_carried_bytes


class Ask:
    """What a request moves."""

    __slots__ = (
        "asked_at", "merges", "num_bytes", "reads", "request_bytes", "request_sharing", "sharing", "tile", "weight", "zeros",
    )

    def __init__(
        self, tile: TileState | None, num_bytes: float, weight: float, asked_at: float, reads: float, sharing: float = 1.0,
        request_bytes: float = 0.0, request_sharing: float = 1.0, merges: bool = True, zeros: Zeros | None = None,
    ) -> None:
        self.tile = tile
        """Where it may merge, and wait in slices' queues."""
        self.merges = merges
        """Whether it may come with a neighbour's."""
        self.num_bytes = num_bytes
        self.weight = weight
        """What each takes of the slices."""
        self.asked_at = asked_at
        """What the slices had moved (``SharedPipe.moved``) when it was asked for."""
        self.reads = reads
        """How many of each they read."""
        self.sharing = sharing
        """Of these what may come with a neighbour's."""
        self.request_bytes = request_bytes
        """What its requests of lines take of the slices at least."""
        self.request_sharing = request_sharing
        """Of that what may come with a neighbour's."""
        self.zeros = zeros


class Reader:
    """An SM that asks."""

    __slots__ = ("num_alike", "num_draws", "region", "slices")

    def __init__(self, slices: SharedPipe, region: int, num_alike: float, num_draws: int) -> None:
        self.slices = slices
        """Those of its side."""
        self.region = region
        """With whom its requests merge."""
        self.num_alike = num_alike
        """SMs that this one stands for: each has as much from slices and link as it."""
        self.num_draws = num_draws


class Merging:
    """Lines that several SMs of a GPC want, and the queues at slices.

    Models, ignores, source: as the crossbar, whose part it is (``Xbar``).
    """

    def __init__(
        self, env: RingingEnvironment, spec: L2Spec, counters: Served, slices: Iterable[SharedPipe], *, limit: int,
        window_cycles: float, wait_fraction: float, port_bytes_per_cycle: float, fill_cycles: float, is_mean: bool,
    ) -> None:
        """``slices`` of each side; ``limit``, ``window_cycles`` and ``wait_fraction`` are the crossbar's ``merge_...``.

        ``fill_cycles`` are from memory's wire to L2 at least. ``is_mean``: whether SMs stand for others: each waits as the
        median does then.
        """
        self._agenda = env.agenda
        self.counters = counters
        self._limit = limit
        self._window_cycles = window_cycles
        self._wait_alone = 1.0 - wait_fraction
        spread = min(window_cycles, spec.slice_spread_cycles)
        self._early_cycles, self._late_cycles = window_cycles - spread, window_cycles + spread
        """By how much who asks for a line may be late to join it, at the nearest slice and at the farthest."""
        self._far_cycles = spec.far_latency_cycles - spec.near_latency_cycles
        """What lines of the other side take longer."""
        self._fill_cycles = fill_cycles
        self._ahead_bytes = port_bytes_per_cycle * spec.near_latency_cycles
        self._queue_cycles = spec.queue_cycles if spec.near_latency_cycles else 0.0
        """None without a latency: what slices gave lately is over so many of these."""
        self._lately_cycles = QUEUE_LATENCIES * spec.near_latency_cycles
        self._lately = {id(pipe): [0.0, 0.0, 0.0] for pipe in slices}
        self._sustained_fraction = spec.sustained_fraction
        self._is_mean = is_mean

    def price(self, ask: Ask, port: Reader, behind_bytes: float, pace: float) -> tuple[float, float, float]:
        """(bytes by which the slices' clock goes on meanwhile, bytes that slices and links carry, cycles gained).

        Lines that a neighbour waits for come with its own; the others are read, and zeros behind them, of which nobody is
        ahead. ``behind_bytes`` move before it, ``pace`` times as fast as that clock goes.
        """
        if ask.zeros is None:
            return self._lines(ask, port, behind_bytes, pace)
        moved, carried, ahead = self._lines(ask, port, behind_bytes, pace) if ask.num_bytes else (0.0, 0.0, INFINITE)
        num_bytes, more, counters = ask.zeros.num_bytes, ask.zeros.num_carried_bytes, self.counters
        counters.passed_bytes += num_bytes
        counters.carried_bytes += more
        if more:  # rows of zeros are one line, which is read once for as many requests as can be one
            counters.served_bytes += num_bytes / self._limit
        return moved + num_bytes, carried + more, ahead

    def _lines(self, ask: Ask, port: Reader, behind_bytes: float, pace: float) -> tuple[float, float, float]:
        """The same without zeros."""
        tile, num_bytes, asked_at, of_requests = ask.tile, ask.num_bytes, ask.asked_at, ask.request_bytes
        counters = self.counters
        if tile is None or not ask.merges:
            carried = max(num_bytes * ask.weight, of_requests)
            counters.carried_bytes += carried
            return num_bytes, carried, 0.0
        slices = port.slices
        moved, rate = slices.moved()
        begin = moved + behind_bytes / pace
        if asked_at > begin:
            begin = asked_at
        elif asked_at < begin - self._ahead_bytes:
            asked_at = begin - self._ahead_bytes
        gone_bytes = (begin - asked_at) * self._wait_alone  # since most of its lines passed
        asked = tile.asked.get(port.region)
        asking = num_bytes * rate / slices.alone
        read, length, served, passing, ahead = num_bytes, num_bytes, 1.0, num_bytes, 0.0
        if asked is not None:
            first, last, num, of_port, gone = asked
            done_at = tile.done_at
            merged, joined, late = 1.0, 1.0, 0.0
            if done_at is None:
                pass  # no line of it is there
            elif done_at > self._agenda.cycle:
                merged = joined = self._pending(tile, done_at, self._agenda.cycle + (asked_at - moved) / rate)
            else:
                late, waits = (asked_at - first) / rate, max(0.0, (last - first - asking) / rate)
                joined = self._merged(late, waits)
                merged = self._merged(late + gone / rate, waits)
                late = max(0.0, late - waits)  # the last line
            room = min(1.0, self._limit - num)
            joined *= room * ask.sharing
            merged *= room
            if of_port is not port:
                of_requests *= 1.0 - merged * ask.request_sharing
            merged *= ask.sharing
            if joined > 0.0:
                read = num_bytes * (1.0 - merged)
                served += merged * num
                if of_port is not port:  # what an SM asks for twice is read once and sent to it twice
                    passing = read
                    ahead = min(self._window_cycles, max(0.0, self._late_cycles - late))
                    early = self._window_cycles * rate
                    lag = max(0.0, 2.0 * late - self._late_cycles) * rate
                    length = max(num_bytes * (1.0 - joined), pace * max(last - begin + lag, asking - early, SECTOR_BYTES))
        tile.asked[port.region] = begin, begin + length / pace, served, port, gone_bytes
        counters.passed_bytes += num_bytes
        counters.served_bytes += read * ask.reads
        carried = max(passing * ask.weight, of_requests)
        counters.carried_bytes += carried
        return length, carried, ahead

    def _pending(self, tile: TileState, done_at: float, at_cycle: float) -> float:
        """What of a fill's lines one that asks then can still join: they come evenly, those of the other side later."""
        last_at = done_at + self._far_cycles
        first_at = tile.began_at + self._fill_cycles
        since = at_cycle - self._window_cycles - first_at
        if since <= 0.0 or since >= last_at - first_at:
            return 1.0 if since <= 0.0 else 0.0
        return 1.0 - since / (last_at - first_at)

    def _merged(self, late_cycles: float, waits_cycles: float) -> float:
        """What of a request's lines joins another's that was so much earlier, where its last line gained ``waits_cycles``.

        How long a line can be joined depends on how far its slice is: evenly spread.
        """
        first, last = self._early_cycles, self._late_cycles
        if late_cycles <= first:
            return 1.0
        if late_cycles - waits_cycles >= last:
            return 0.0
        if waits_cycles <= 0.0:
            return (last - late_cycles) / (last - first)
        return (self._joined(late_cycles) - self._joined(late_cycles - waits_cycles)) / waits_cycles

    def _joined(self, late_cycles: float) -> float:
        """The integral, up to ``late_cycles``, of the chance that a line so late joins."""
        first, last = self._early_cycles, self._late_cycles
        if late_cycles <= first or first == last:
            return min(late_cycles, first)
        beyond = min(late_cycles, last) - first
        return first + beyond - beyond * beyond / (2.0 * (last - first))

    def _busy(self, slices: SharedPipe) -> float:
        """What slices gave lately, over what they could have given."""
        now, served = self._agenda.cycle, slices.served()
        lately = self._lately[id(slices)]
        before, since, share = lately
        if now > since:
            gave = (served - before) / ((now - since) * slices.total) * self._sustained_fraction
            share = gave + (share - gave) * exp((since - now) / self._lately_cycles)
            lately[:] = served, now, share
        return share

    def queued(self, port: Reader, tile: TileState, num_bytes: float) -> float:
        """What the last of a request's lines waits at its slice: each finds a queue of its own, as in memory.

        Who reads the same lines soon after finds the same queues.
        """
        if not self._queue_cycles:
            return 0.0
        now = self._agenda.cycle
        if now < tile.queued_until:
            return tile.queued
        tile.queued_until = now + self._lately_cycles
        slices = port.slices
        own = num_bytes * port.num_alike * self._sustained_fraction / (self._lately_cycles * slices.total)
        share = min(MOST_SHARE, self._busy(slices) - own)
        missed = 0.0
        if share > 0.0:
            port.num_draws += 1
            place = 0.5 if self._is_mean else port.num_draws * GOLDEN % 1.0
            missed = 1.0 - power(place, LINE_BYTES / max(num_bytes, LINE_BYTES))
        tile.queued = max(0.0, -self._queue_cycles / (1.0 - share) * log(missed / share)) if missed > 0.0 else 0.0
        return tile.queued
