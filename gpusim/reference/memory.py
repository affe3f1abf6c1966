"""Below the SMs: doors to the crossbar, L2's slices, and memory.

A read takes its turn at its SM's door, shares the slices with other SMs' reads, and waits for its tile where memory has not
given it yet. A store takes its turn at another door, shares the way into L2, and is there.
"""

from __future__ import annotations

from collections import deque
from math import inf

import simpy

from gpusim.machine.config import GpuSpec
from gpusim.reference.facts import Fact, Sums, Wait
from gpusim.reference.pipes import EPSILON_BYTES, Door, Line, Pipe, SharedPipe
from gpusim.reference.residency import Request, Residency
from gpusim.units import SECTOR_BYTES, Clock
from gpusim.workload.ops import Tile

MOST_TURNS = 8
"""Of the loads of a thread that memory serves in turns with other warps'."""

TURN_GAP_CYCLES = 1.0
"""From one warp's last load to the next one's first, up to which they take turns."""


class TileState:
    """A tile as L2 knows it."""

    def __init__(self, env: simpy.Environment) -> None:
        """Nobody has fetched it."""
        self.wave = -1
        """In which it was fetched last."""
        self.filled = Fact(env)
        """When its last byte is in L2."""
        self.filled.tell(0.0)


class Memory:
    """L2 and HBM, and the ways of all SMs to them.

    Models: first touch, residency, hits on tiles that are on their way; reads of an SM one after the other, of all SMs
    together at the rate of the slices; the same of stores; one wire for all that memory gives and takes, of which one SM
    draws no more than a cap; stores that wait for memory where too much has to leave L2.
    Ignores: all that ``gpusim.reference.core`` switches off.
    Source: the GPU's description.
    """

    def __init__(
        self, env: simpy.Environment, gpu: GpuSpec, clock: Clock, residency: Residency, count: Sums
    ) -> None:
        """``count`` are the kernel's counters."""
        self.env, self.residency, self.count = env, residency, count
        l2, xbar, hbm = gpu.l2, gpu.xbar, gpu.hbm
        slices = l2.num_slices * l2.slice_bytes_per_cycle * l2.sustained_fraction
        self.wire = SharedPipe(
            env, clock.bytes_per_cycle(gb_per_s=hbm.sustained_read_gb_per_s),
            clock.bytes_per_cycle(gb_per_s=hbm.sm_gb_per_s), rank=-3,
        )
        self.stores = SharedPipe(env, xbar.write_bytes_per_cycle, xbar.sm_write_bytes_per_cycle, rank=-2)
        self.slices = SharedPipe(env, slices, xbar.sm_read_bytes_per_cycle, rank=-1)
        self.in_doors = [Door(env, self.slices) for _ in range(gpu.num_sms)]
        self.out_lines = [Line(env) for _ in range(gpu.num_sms)]
        self.link = Pipe(xbar.gpc_write_bytes_per_cycle)
        self.out_ports = [Pipe(xbar.sm_write_bytes_per_cycle) for _ in range(gpu.num_sms)]
        self.intakes = [Intake(env, self.wire) for _ in range(gpu.num_sms)]
        self.latency_cycles = l2.near_latency_cycles
        """From L2 to an SM."""
        l2_ns = l2.near_latency_cycles * 1e3 / gpu.clock.max_mhz
        self._memory_cycles = clock.cycles(ns=max(0.0, hbm.latency_ns - l2_ns))
        """From memory to L2."""
        self._write_cost = hbm.sustained_read_gb_per_s / hbm.sustained_write_gb_per_s
        self._most_waiting = l2.write_back_queue_bytes
        self._num_waiting_bytes = 0.0
        self._tiles: dict[tuple[str, Tile], TileState] = {}

    # ------------------------------------------------------------------------------------------ reads

    def read(self, request: Request, *, group: object = None, places: Pipe | None = None) -> Fact:
        """Fetch a tile into an SM; known as soon as it is sure when its last byte is there.

        ``places`` are those for bytes that were asked for and are not there, each held for a latency.
        """
        return self.multicast(request, [request.sm_idx], group=group, places=places)[0]

    def multicast(
        self, request: Request, sms: list[int], *, group: object = None, places: Pipe | None = None,
        most_bytes_per_cycle: float = inf,
    ) -> list[Fact]:
        """Fetch a tile once, for several SMs that take in so much each at most."""
        self.count["xbar.read_bytes"] += request.num_bytes * len(sms)
        self.count["l2.read_sectors"] += request.num_bytes / SECTOR_BYTES
        tile = self._look_up(request)
        soonest = request.issued_at + request.num_bytes / self.slices.alone
        if places is not None:
            filled_at, latency = tile.filled.cycle, self.latency_cycles
            latency += self._memory_cycles if filled_at is None else max(0.0, filled_at - request.issued_at)
            soonest = max(soonest, places.reserve(request.num_bytes * latency, request.issued_at) - latency)
        stretch = max(1.0, self.slices.alone / most_bytes_per_cycle)
        weight = 1.0 / stretch
        there = []
        for sm_idx in sms:
            passed = self.in_doors[sm_idx].carry(request.num_bytes * stretch, group=group, weight=weight)
            there.append(Fact(self.env))
            self.env.process(self._arrives(tile, soonest, passed, there[-1]))
            weight = 0.0  # the slices read it for the first receiver; for the others it rides along
        return there

    def _arrives(self, tile: TileState, soonest: float, passed: Fact, there: Fact) -> Wait:
        """The last byte has passed the door, was not asked for too late for that, and is in L2: then it is on its way."""
        passed_at = yield passed
        filled_at = yield tile.filled
        there.tell(max(passed_at, soonest, filled_at) + self.latency_cycles)

    def _look_up(self, request: Request) -> TileState:
        """The state of a tile that is asked for; where it is missing, and not on its way, its fill begins."""
        tile = self._tiles.setdefault((request.tensor, request.tile), TileState(self.env))
        is_lacking = self.residency.lacks(request, tile.wave)
        if is_lacking and tile.filled.cycle is not None:
            tile.wave, tile.filled = request.wave, Fact(self.env)
            self.count["hbm.read_bytes"] += request.num_bytes
            self.count["l2.miss_sectors"] += request.num_bytes / SECTOR_BYTES
            if not self.residency.is_planned(request.tensor):
                self.count["l2.unplanned_miss_bytes"] += request.num_bytes
            self.env.process(self._fill(request, tile, self.intakes[request.sm_idx].draw(request)))
            for neighbour in request.come_along:
                self._look_up(
                    Request(request.sm_idx, request.tensor, neighbour, request.num_bytes, request.wave, request.issued_at)
                )
        return tile

    def _fill(self, request: Request, tile: TileState, drawn: Fact) -> Wait:
        """From memory's wire to L2."""
        drawn_at = yield drawn
        soonest = request.issued_at + request.num_bytes / self.wire.alone
        tile.filled.tell(max(drawn_at, soonest) + self._memory_cycles)

    # ------------------------------------------------------------------------------------------ stores

    def store(
        self, request: Request, *, num_distinct_bytes: float, kind: str = "write", num_more_bytes: float = 0.0
    ) -> tuple[Fact, Fact]:
        """Store a tile; known are then when it has left its SM, and when it is in L2.

        ``num_distinct_bytes`` are what it changes; ``kind`` is ``write``, ``atom`` or ``red``; ``num_more_bytes`` pass the
        SM's port beside it.
        """
        left, arrived = Fact(self.env), Fact(self.env)
        self.count[f"l2.{kind}_sectors"] += request.num_bytes / SECTOR_BYTES
        self.count["xbar.write_bytes"] += request.num_bytes
        written = self._write_back(request, num_distinct_bytes)
        port_at = self.out_ports[request.sm_idx].reserve(request.num_bytes + num_more_bytes, request.issued_at)
        self.env.process(self._leaves(request, port_at, written, left, arrived))
        return left, arrived

    def _leaves(self, request: Request, port_at: float, written: Fact | None, left: Fact, arrived: Fact) -> Wait:
        """Behind its SM's earlier stores it passes the link of all SMs and the way into L2.

        Where L2 is full of what has to leave it, what it drives out goes first.
        """
        env, line = self.env, self.out_lines[request.sm_idx]
        yield line.turn()
        crossed_at = self.link.reserve(request.num_bytes, max(env.now, request.issued_at))
        yield self.stores.move(request.num_bytes)
        if crossed_at > env.now:
            yield env.timeout(crossed_at - env.now)
        line.leave()
        at = max(env.now, port_at, crossed_at)
        arrived.tell(at)
        if written is not None:
            written_at = yield written
            at = max(at, written_at)
        left.tell(at)

    def _write_back(self, request: Request, num_distinct_bytes: float) -> Fact | None:
        """Write to memory what a store drives out of L2; returns what the store waits for, if it does."""
        num_bytes = num_distinct_bytes * self.residency.leaving_fraction(request.tensor, request.wave)
        if not num_bytes:
            return None
        self._num_waiting_bytes += num_bytes
        is_full = self._num_waiting_bytes > self._most_waiting
        self.count["hbm.write_bytes"] += num_bytes
        written = self.wire.move(num_bytes * self._write_cost)
        written.then(lambda _: self._has_written(num_bytes))
        return written if is_full else None

    def _has_written(self, num_bytes: float) -> None:
        self._num_waiting_bytes -= num_bytes


class Draw:
    """What an SM has asked memory for."""

    def __init__(self, env: simpy.Environment, num_bytes: float, num_turns: int, *, is_behind: bool) -> None:
        """In so many turns; ``is_behind``: it was asked for right behind the one before, and takes turns with it."""
        self.left_bytes = num_bytes
        self.turn_bytes = num_bytes / max(1, num_turns)
        self.is_behind = is_behind
        self.over = Fact(env)


class Intake:
    """What one SM draws from memory: one tile after the other, beside other SMs' on the wire.

    Loads of warps that follow one another take turns: the first load of each, then the second of each.
    """

    def __init__(self, env: simpy.Environment, wire: SharedPipe) -> None:
        """Nothing is asked for."""
        self._env, self._wire = env, wire
        self._queue: deque[Draw] = deque()
        self._asked_until = -inf

    def draw(self, request: Request) -> Fact:
        """Queue a tile; known when its last byte has passed the wire."""
        num_turns = min(request.num_loads, MOST_TURNS)
        is_behind = num_turns > 0 and request.issued_at <= self._asked_until + TURN_GAP_CYCLES
        self._asked_until = request.asked_until if num_turns else -inf
        draw = Draw(self._env, request.num_bytes, num_turns, is_behind=is_behind)
        self._queue.append(draw)
        if len(self._queue) == 1:
            self._begin()
        return draw.over

    def _begin(self) -> None:
        """A turn of the first in the queue."""
        draw = self._queue[0]
        self._wire.move(min(draw.turn_bytes, draw.left_bytes)).then(self._end)

    def _end(self, cycle: float) -> None:
        """It is over: the next turn is of another one of those that take turns, of the same one, or of who stands behind."""
        draw = self._queue.popleft()
        draw.left_bytes -= draw.turn_bytes
        is_over = draw.left_bytes <= EPSILON_BYTES
        if not is_over:
            num_behind = next((place for place, other in enumerate(self._queue) if not other.is_behind), len(self._queue))
            draw.is_behind = draw.is_behind or num_behind > 0
            self._queue.insert(num_behind, draw)
        if self._queue:
            self._begin()
        if is_over:
            draw.over.tell(cycle)
