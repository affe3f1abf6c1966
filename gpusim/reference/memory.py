"""Memory below the SMs in the reference engine: ports of SMs to the crossbar, L2 slices, and HBM.

A read waits for its SM's read port, and shares the slices with reads of other SMs. It also waits for its tile where memory
has not delivered it yet. A store waits for its SM's write port, shares the bandwidth into L2, and is then in L2.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from simpy import Environment

from gpusim.errors import LaunchError
from gpusim.machine.config import GpuSpec
from gpusim.machine.exact_math import sum_in_order
from gpusim.reference.events import Fact, Pipe, SharedPipe, SmPort, Wait
from gpusim.traffic.l2_plan import panel_traffic, shares_of_stores
from gpusim.traffic.panels import FootprintRow, PanelTraffic
from gpusim.units import SECTOR_BYTES, Clock
from gpusim.workload.launch import Launch
from gpusim.workload.ops import Tile

MOST_TURNS = 8
"""Number of turns with other warps' loads in which memory serves the loads of a thread, at most."""

TURN_GAP_CYCLES = 1.0
"""Cycles from one warp's last load to the next warp's first one, up to which they take turns."""

Sums = defaultdict[str, float]
"""Counters, or cycles, by name."""

Part = tuple[str, int]
"""Role, and number of the store among those in a row."""

Key = tuple[str, Tile]
"""Tensor and tile."""


@dataclass(slots=True)
class Request:
    """Request of one SM to memory: a tile, or the part of it that a role's warps load."""

    sm_idx: int
    tensor: str
    tile: Tile
    num_bytes: float
    wave: int
    """Index of the requesting work tile on its slot."""
    issued_at: float
    """Cycle at which the first byte is requested: the present, or later."""
    promoted_tiles: tuple[Tile, ...] = ()
    """Tiles of the same tensor that L2 promotion fetches together with this one."""
    num_loads: int = 0
    """Loads of each thread; 0: one request for all bytes."""
    asked_until: float = -inf
    """Cycle at which the last of the loads is issued."""
    part: Part = ("", 0)
    """Part of the tile that a store stores."""

    @property
    def key(self) -> Key:
        """Tensor and tile."""
        return self.tensor, self.tile


class DirtyLines:
    """Dirty lines of tensors without footprints. The tile that was stored longest ago is written back first."""

    reduced: frozenset[str] = frozenset()
    """Tensors whose lines TMA reductions fetch from memory."""

    def __init__(self, most_bytes: float) -> None:
        """Begin without dirty lines; at most ``most_bytes`` wait."""
        self._most_bytes = most_bytes
        self._waiting_bytes = self._evicted_bytes = 0.0
        self._tiles: OrderedDict[Key, dict[Part, float]] = OrderedDict()
        """Dirty bytes of each part."""

    def stored(self, request: Request, num_bytes: float) -> float:
        """Bytes that leave L2 because ``num_bytes`` are stored."""
        parts = self._tiles.pop(request.key, {})
        added = max(0.0, num_bytes - parts.get(request.part, 0.0))
        parts[request.part] = parts.get(request.part, 0.0) + added
        if num_bytes:
            self._tiles[request.key] = parts
        self._waiting_bytes += added
        leaving = 0.0
        while self._waiting_bytes > self._most_bytes and self._tiles:
            leaving += self.clean(next(iter(self._tiles)))
        return leaving

    def take_evicted(self) -> float:
        """Dirty bytes that were evicted since the last call."""
        evicted, self._evicted_bytes = self._evicted_bytes, 0.0
        return evicted

    def clean(self, key: Key) -> float:
        """Write back a tile; returns its dirty bytes."""
        num_bytes = sum_in_order(self._tiles.pop(key, {}).values())
        self._waiting_bytes = max(0.0, self._waiting_bytes - num_bytes)
        return num_bytes


class Planned(DirtyLines):
    """L2 hits as the traffic plan has them, for tensors with footprints. Other tensors come from memory once."""

    def __init__(self, launch: Launch, gpu: GpuSpec, *, num_at_once: int, is_warm: bool) -> None:
        """Plan the traffic. The plan has no time: only the number of tiles that run at once."""
        tiles, l2 = np.arange(launch.num_tiles, dtype=np.int64), gpu.l2_partitions
        footprints = []
        for item in launch.footprints:
            if item.table_bytes or item.block_bytes:
                raise LaunchError(f"{launch.kernel}: rows at random, single sectors, later walks are beyond the core")
            footprints.append(FootprintRow(
                tensor=item.tensor, is_write=item.access == "write", panel_of_tile=item.panel_of(tiles),
                bytes_of_tile=item.panel_bytes(tiles), cache_hint=item.cache_hint,
            ))  # fmt: skip
        l2 = replace(l2, last_bytes=launch.set_aside_bytes or l2.last_bytes)
        self.plan: Mapping[str, PanelTraffic] = panel_traffic(footprints, tiles // num_at_once, l2=l2, is_warm=is_warm)
        written = [self.plan[row.tensor] for row in footprints if row.is_write]
        stored = sum_in_order(float(item.touched_bytes_by_wave.sum()) for item in written)
        left = max(0.0, stored - sum_in_order(item.written_back_bytes for item in written))
        super().__init__(max(0.0, l2.dirty_bytes - left))
        self.reduced = frozenset() if is_warm else frozenset(self.plan)

    def lacks(self, request: Request, last_wave: int) -> bool:
        """Whether a tile must come from memory that was last fetched in ``last_wave`` (-1: never)."""
        item, wave = self.plan.get(request.tensor), request.wave
        if item is None:
            return last_wave < 0
        waves = item.losses.get(request.tile[0], {})
        return last_wave < wave and (wave in waves or (last_wave < 0 and bool(waves) and min(waves) <= wave))


class LeastRecentlyUsed(DirtyLines):
    """L2 hits of a launch without footprints, with least-recently-used eviction of tiles that are read or stored."""

    def __init__(self, capacity_bytes: float, dirty_bytes: float, *, is_warm: bool) -> None:
        """Begin empty. ``is_warm``: every tile that was never evicted is a hit."""
        super().__init__(dirty_bytes)
        self._capacity, self._is_warm, self._num_bytes = capacity_bytes, is_warm, 0.0
        self._held: OrderedDict[Key, float] = OrderedDict()
        self._left: set[Key] = set()
        self.plan: Mapping[str, PanelTraffic] = {}

    def lacks(self, request: Request, last_wave: int) -> bool:
        """Whether a tile must come from memory. It is in L2 afterwards."""
        key = request.key
        is_held = key in self._held or (self._is_warm and key not in self._left)
        self._touch(key, request.num_bytes)
        return not is_held

    def stored(self, request: Request, num_bytes: float) -> float:
        """Bytes that leave L2 because ``num_bytes`` are stored."""
        dirty = self._tiles.get(request.key, {})
        added = max(0.0, num_bytes - dirty.get(request.part, 0.0))
        stored = max(sum_in_order(dirty.values()) + added, num_bytes)
        self._touch(request.key, max(self._held.get(request.key, 0.0), stored))
        return super().stored(request, num_bytes) + self.take_evicted()

    def _touch(self, key: Key, num_bytes: float) -> None:
        self._num_bytes += num_bytes - self._held.pop(key, 0.0)
        self._held[key] = num_bytes
        while self._num_bytes > self._capacity and len(self._held) > 1:
            gone, gone_bytes = self._held.popitem(last=False)
            self._num_bytes -= gone_bytes
            self._left.add(gone)
            self._evicted_bytes += self.clean(gone)


Residency = Planned | LeastRecentlyUsed
"""Model of L2 hits."""


class Memory:
    """L2 and HBM, and the ports of all SMs to them.

    Models:

    * First touch, residency, and hits on tiles in flight.
    * Reads of an SM one after the other; reads of all SMs together at the rate of the slices. Stores likewise.
    * One pipe for all bytes that memory delivers and takes. An SM draws no more than a cap from it, tile after tile. Loads
      of warps that follow one another take turns.
    * Stores that wait for memory where too many write-backs are pending.

    Ignores:

    * All mechanisms that ``gpusim.reference.core`` switches off.

    Source: the GPU's description.
    """

    def __init__(self, env: Environment, gpu: GpuSpec, clock: Clock, residency: Residency, count: Sums) -> None:
        """Begin idle; ``count`` are the kernel's counters."""
        self.env, self._residency, self._count = env, residency, count
        l2, xbar, hbm, sms = gpu.l2, gpu.xbar, gpu.hbm, range(gpu.num_sms)
        rates = (clock.bytes_per_cycle(gb_per_s=rate) for rate in (hbm.sustained_read_gb_per_s, hbm.sm_gb_per_s))
        self._wire = SharedPipe(env, *rates, rank=-3)
        slices_rate = l2.num_slices * l2.slice_bytes_per_cycle * l2.sustained_fraction
        self._way_in = SharedPipe(env, slices_rate, xbar.sm_write_bytes_per_cycle, rank=-2)
        self.slices = SharedPipe(env, slices_rate, xbar.sm_read_bytes_per_cycle, rank=-1)
        """Slices of L2, shared by reads. Memory traffic and stores have separate pipes."""
        self._intakes, self._doors = [SmPort(env, self._wire) for _ in sms], [SmPort(env, self.slices) for _ in sms]
        """Intake of each SM from memory, and its read port."""
        self._ports, self._link = [Pipe(xbar.sm_write_bytes_per_cycle) for _ in sms], Pipe(xbar.gpc_write_bytes_per_cycle)
        """Write port of each SM, and the link of all SMs behind them."""
        self._latency, l2_ns = l2.near_latency_cycles, l2.near_latency_cycles * 1e3 / gpu.clock.max_mhz
        self._memory_latency = clock.cycles(ns=max(0.0, hbm.latency_ns - l2_ns))
        """Latency from memory to L2 in SM cycles; ``_latency`` is the latency from L2 to an SM."""
        self._write_cost = hbm.sustained_read_gb_per_s / hbm.sustained_write_gb_per_s
        self._leaving = {
            tensor: shares_of_stores(item.written_back_by_wave, item.touched_bytes_by_wave)
            for tensor, item in residency.plan.items()
        }
        """Write-backs of a tensor during each wave, as a share of the bytes that the wave stores to it."""
        self._most_writing_bytes, self._writing_bytes = l2.write_back_queue_bytes, 0.0
        """Pending write-backs of L2 in bytes: the limit, and the present number."""
        self._at_once = Fact(env)
        """Fact that counts at cycle 0."""
        self._at_once.tell(0.0)
        self._last_stores = [self._at_once for _ in sms]
        """Fact of each SM that its last store has passed."""
        self._waves: dict[Key, int] = {}
        self._filled: defaultdict[Key, Fact] = defaultdict(lambda: self._at_once)
        """Fact of each tile that its last byte is in L2. ``_waves`` has the wave of its last fetch."""

    def read(
        self, request: Request, *, group: object = None, places: Pipe | None = None, sms: Sequence[int] = (),
        cap: float = inf,
    ) -> list[Fact]:
        """Fetch a tile into the requesting SM, or once into several. Each returned fact counts when the last byte is there.

        Args:
            request: tile and requesting SM.
            group: copies that complete one phase of one mbarrier, which pass the port together.
            places: space for outstanding bytes, each held for a latency.
            sms: receiving SMs of a multicast; the requesting SM by default.
            cap: bytes per cycle that each receiving SM takes at most.
        """
        num_bytes, sms, there = request.num_bytes, sms or [request.sm_idx], []
        self._count["xbar.read_bytes"] += num_bytes * len(sms)
        self._count["l2.read_sectors"] += num_bytes / SECTOR_BYTES
        self._look_up(request)
        soonest = request.issued_at + num_bytes / self.slices.alone
        if places is not None:
            filled_at, latency = self._filled[request.key].cycle, self._latency
            latency += self._memory_latency if filled_at is None else max(0.0, filled_at - request.issued_at)
            soonest = max(soonest, places.reserve(num_bytes * latency, request.issued_at) - latency)
        stretch = max(1.0, self.slices.alone / cap)
        weight = 1.0 / stretch
        for sm_idx in sms:
            passed = self._doors[sm_idx].carry(num_bytes * stretch, group=group, weight=weight)
            there.append(Fact(self.env))
            self.env.process(self._arrives(request.key, soonest, passed, there[-1]))
            weight = 0.0  # the slices read it once, for the first receiver
        return there

    def _arrives(self, key: Key, soonest: float, passed: Fact, there: Fact) -> Wait:
        """Deliver the last byte a latency after it has passed the port, was requested early enough, and is in L2."""
        passed_at = yield passed
        filled_at = yield self._filled[key]
        there.tell(max(passed_at, soonest, filled_at) + self._latency)

    def _look_up(self, request: Request) -> None:
        """Begin to fill a tile that is missing, and not in flight."""
        key, num_bytes, intake = request.key, request.num_bytes, self._intakes[request.sm_idx]
        is_missing = self._residency.lacks(request, self._waves.get(key, -1))
        evicted = self._residency.take_evicted()
        self._count["l2.unplanned_write_back_bytes"] += evicted
        self._leave(evicted)
        if not is_missing or self._filled[key].cycle is None:
            return
        self._waves[key], self._filled[key] = request.wave, Fact(self.env)
        self._count["hbm.read_bytes"] += num_bytes
        self._count["l2.miss_sectors"] += num_bytes / SECTOR_BYTES
        if request.tensor not in self._residency.plan:
            self._count["l2.unplanned_miss_bytes"] += num_bytes
        is_behind = request.num_loads > 0 and request.issued_at <= intake.asked_until + TURN_GAP_CYCLES
        intake.asked_until = request.asked_until
        num_turns = max(1, min(request.num_loads, MOST_TURNS))
        drawn = intake.carry(num_bytes, num_turns=num_turns, is_behind=is_behind)
        self.env.process(self._fill(drawn, request.issued_at + num_bytes / self._wire.alone, self._filled[key]))
        for neighbour in request.promoted_tiles:
            self._look_up(replace(request, tile=neighbour, promoted_tiles=(), num_loads=0, asked_until=-inf))

    def _fill(self, drawn: Fact, soonest: float, filled: Fact) -> Wait:
        """Move a tile from memory to L2."""
        drawn_at = yield drawn
        filled.tell(max(drawn_at, soonest) + self._memory_latency)

    def store(
        self, request: Request, num_distinct_bytes: float, kind: str, num_more_bytes: float = 0.0
    ) -> tuple[Fact, Fact]:
        """Store a tile. The returned facts count when it has left its SM, and when it is in L2.

        Args:
            request: tile and storing SM.
            num_distinct_bytes: bytes that the store changes.
            kind: ``write``, ``atom`` or ``red``.
            num_more_bytes: additional bytes that pass the SM's port.
        """
        sm_idx, left, arrived, over = request.sm_idx, Fact(self.env), Fact(self.env), Fact(self.env)
        self._count[f"l2.{kind}_sectors"] += request.num_bytes / SECTOR_BYTES
        self._count["xbar.write_bytes"] += request.num_bytes
        written = self._write_back(request, num_distinct_bytes)
        port_at = self._ports[sm_idx].reserve(request.num_bytes + num_more_bytes, request.issued_at)
        before, self._last_stores[sm_idx] = self._last_stores[sm_idx], over
        self.env.process(self._leaves(request, port_at, before, over, written, (left, arrived)))
        return left, arrived

    def _leaves(
        self, request: Request, port_at: float, before: Fact, over: Fact, written: Fact, ends: tuple[Fact, Fact]
    ) -> Wait:
        """Pass a store through the link of all SMs and the input of L2, after its SM's earlier stores.

        Where too many write-backs of L2 are pending, the lines that it evicts go first. ``ends``: facts that it has left,
        and arrived.
        """
        env, (left, arrived) = self.env, ends
        yield before
        crossed_at = self._link.reserve(request.num_bytes, max(env.now, request.issued_at))
        yield self._way_in.move(request.num_bytes)
        if crossed_at > env.now:
            yield env.timeout(crossed_at - env.now)
        over.tell(env.now)
        at = max(env.now, port_at, crossed_at)
        arrived.tell(at)
        written_at = yield written
        left.tell(max(at, written_at))

    def fetch_reduced(self, request: Request, num_bytes: float) -> None:
        """Read lines from memory that a TMA reduction changes. Nobody waits for them."""
        if request.tensor not in self._residency.reduced:
            return
        self._count["hbm.read_bytes"] += num_bytes
        self._count["l2.miss_sectors"] += num_bytes / SECTOR_BYTES
        self._count["l2.unplanned_miss_bytes"] += num_bytes
        self._wire.move(num_bytes)

    def _write_back(self, request: Request, num_distinct_bytes: float) -> Fact:
        """Write to memory the lines that a store evicts from L2. The returned fact counts when the store may go on."""
        shares = self._leaving.get(request.tensor)
        if shares is None:
            num_bytes = self._residency.stored(request, num_distinct_bytes)
            self._count["l2.unplanned_write_back_bytes"] += num_bytes
            return self._leave(num_bytes)
        return self._leave(num_distinct_bytes * shares[min(request.wave, len(shares) - 1)])

    def _leave(self, num_bytes: float) -> Fact:
        """Write so many bytes to memory. The returned fact counts when a store that evicts them may go on."""
        if not num_bytes:
            return self._at_once
        self._count["hbm.write_bytes"] += num_bytes
        self._writing_bytes += num_bytes
        is_full = self._writing_bytes > self._most_writing_bytes
        written = self._wire.move(num_bytes * self._write_cost)
        written.then(lambda _: self._has_written(num_bytes))
        return written if is_full else self._at_once

    def _has_written(self, num_bytes: float) -> None:
        self._writing_bytes -= num_bytes
