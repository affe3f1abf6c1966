"""The L1 cache and its load/store unit, as one SM sees them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from gpusim.machine.component import Component, Counters, MemoryRequest
from gpusim.machine.memory.xbar import Xbar
from gpusim.machine.timing import Done, Pipe


@dataclass(frozen=True, slots=True, kw_only=True)
class L1Spec:
    """L1 and the load/store unit of one SM."""

    unified_bytes: int
    """L1 and shared memory together."""
    hit_latency_cycles: float
    tag_lines_per_cycle: float
    """128-byte lines that the tag stage looks up a cycle."""
    requests_per_cycle: float
    """Warp instructions that the load/store unit takes a cycle."""
    outstanding_bytes: float
    """What loads and cp.async of one SM may have asked for and not got."""
    queue_cycles: float
    """How far the load/store unit may lag behind the warps that load before they stall."""
    max_queued_stores: float
    """Store instructions that wait for shared memory or the way out while their warps go on, of all warps."""
    store_queue_bytes: float
    """... and the bytes of these, which may be fewer instructions."""
    max_queued_scheduler_stores: float
    """... and instructions more for each scheduler that has one of the warps."""
    store_release_cycles: float
    """From when an instruction leaves that queue until its place is taken again."""

    @property
    def has_store_queue(self) -> bool:
        """Whether stores wait in a queue by the instruction; else a role's next one waits until its last has left."""
        return self.max_queued_stores + self.max_queued_scheduler_stores > 0.0

    def shared_places(self, num_requests: float, num_bytes: float) -> float:
        """Places for all warps, in instructions of ``num_bytes / num_requests``."""
        shared = self.max_queued_stores
        if num_bytes * shared > self.store_queue_bytes * num_requests:
            shared = self.store_queue_bytes * num_requests / num_bytes
        return shared

    def posted_cycles(self, cycles: float, *, num_requests: float, num_bytes: float, num_schedulers: int) -> float:
        """How long before the end of stores their warps go on, where serving them takes ``cycles``."""
        if not num_requests:
            return 0.0
        places = self.shared_places(num_requests, num_bytes) + self.max_queued_scheduler_stores * num_schedulers
        lead = places * cycles / num_requests - self.store_release_cycles
        return lead if lead > 0.0 else 0.0


@dataclass(slots=True)
class L1Counters(Counters):
    """Requests and sectors of global accesses."""

    load_requests: float = field(default=0.0, metadata={"ncu": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"})
    load_sectors: float = field(default=0.0, metadata={"ncu": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"})
    store_requests: float = field(default=0.0, metadata={"ncu": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"})
    store_sectors: float = field(default=0.0, metadata={"ncu": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"})


class L1(Component):
    """Tags, hits and the way down.

    Models: the tag stage's rate in lines, hit latency, a hit on a line that is still being filled (it waits for the
    fill), tiles that stay (least recently used leave), no allocation on stores, the bytes that may be under way to it
    at once (TMA's do not pass here): their number over the latency is the most that threads load; stores, to shared
    memory too, that wait in a queue of some instructions while their warps go on: some places for all and some for
    each scheduler.
    Ignores: what waits in that queue from other instructions than the last ones, other roles' part of it; sets, partial
    lines, the data stage that loads share with shared memory, evictions by other CTAs' code.
    Source: the GPU's description.
    """

    kind = "l1"

    def __init__(self, spec: L1Spec, *, below: Xbar, sm_idx: int, capacity_bytes: float, counters: L1Counters) -> None:
        """``capacity_bytes`` is what shared memory leaves; ``counters`` are shared by all SMs."""
        self.spec = spec
        self.counters = counters
        self.below = below
        self.sm_idx = sm_idx
        self.places = Pipe(units_per_cycle=spec.outstanding_bytes)
        self.tags = Pipe(units_per_cycle=spec.tag_lines_per_cycle)
        self._capacity = capacity_bytes
        self._tiles: OrderedDict[tuple[str, Hashable], _Tile] = OrderedDict()
        self._bytes = 0.0

    def accept(self, num_requests: float, num_lines: float, *, at_cycle: float, weight: float) -> tuple[float, float]:
        """Pass an access through the tag stage; returns the cycles at which its look-up begins and ends."""
        rate = self.spec.tag_lines_per_cycle
        lines = max(num_lines, num_requests * rate / self.spec.requests_per_cycle)
        end = self.tags.reserve(lines, at_cycle=at_cycle, weight=weight)
        return end - lines / rate, end

    def read(self, request: MemoryRequest, done: Done, *, allocates: bool) -> None:
        """Fetch through L1; ``done(cycle)`` says when the registers (or shared memory) have the data."""
        if not allocates:
            self.below.read(request, done, places=self.places)
            return
        key = (request.tensor, request.tile)
        tile = self._tiles.get(key)
        if tile is not None:
            self._tiles.move_to_end(key)
            tile.hit(request.issued_at + self.spec.hit_latency_cycles, done)
            return
        tile = self._tiles[key] = _Tile(request.num_bytes, done)
        self._bytes += request.num_bytes
        while self._bytes > self._capacity and self._tiles:
            self._bytes -= self._tiles.popitem(last=False)[1].num_bytes
        self.below.read(request, tile, places=self.places)


class _Tile:
    """A tile in L1: when its last byte is there, and who waits for that."""

    __slots__ = ("_done_at", "_waiting", "num_bytes")

    def __init__(self, num_bytes: float, done: Done) -> None:
        self.num_bytes = num_bytes
        self._done_at: float | None = None
        self._waiting: list[tuple[float, Done]] = [(0.0, done)]

    def __call__(self, cycle: float) -> None:
        """The fill is complete at ``cycle``."""
        self._done_at = cycle
        waiting, self._waiting = self._waiting, []
        for ready_at, done in waiting:
            done(max(ready_at, cycle))

    def hit(self, ready_at: float, done: Done) -> None:
        """A hit that has its data at ``ready_at``, or when the fill is complete."""
        if self._done_at is None:
            self._waiting.append((ready_at, done))
        else:
            done(max(ready_at, self._done_at))
