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
    wavefronts_per_cycle: float
    """Wavefronts, of 128 bytes at most, that the data stage reads for loads a cycle."""
    coming_request_cycles: float
    """What a load takes of the load/store unit more where its line has been asked for, by others, and is not there yet."""
    outstanding_bytes: float
    """What loads and cp.async of one SM may have asked for and not got."""
    queue_cycles: float
    """How far the load/store unit may lag behind the warps that feed it before they stall."""
    cp_async_cycles: float
    """What a cp.async through L1 takes of the load/store unit beyond a load of its width."""
    cp_async_first_fraction: float
    """Of the wavefronts of one through L1 that misses, those that it takes before it is known to; the others when its data
    have come."""
    cp_async_bypass_cycles: float
    """What one that goes around L1 takes of it in all."""
    cp_async_row_cycles: float
    """From one row to the next of a tile that goes around L1: rows lie apart, and pass a stage of their own."""
    max_queued_rows: float
    """Of these rows that wait for that stage while what was asked for behind their copies passes the load/store unit."""
    max_queued_copies: float
    """cp.async around L1 that wait for that unit and that stage while their warps go on; 0: ``queue_cycles``."""
    cp_async_latency_cycles: float
    """What one that hits in L1 takes until it is seen to be in shared memory, beyond a load that hits."""
    cp_async_interval_cycles: float
    """Between two cp.async of one warp, of four bytes a lane."""
    commit_cycles: float
    """What a ``cp.async.commit_group`` takes of the load/store unit."""
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
    """Requests and sectors of global accesses; copies by cp.async count as loads, around L1 too (kernels/smem_copy)."""

    load_requests: float = field(default=0.0, metadata={"ncu": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"})
    load_sectors: float = field(default=0.0, metadata={"ncu": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"})
    store_requests: float = field(default=0.0, metadata={"ncu": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"})
    store_sectors: float = field(default=0.0, metadata={"ncu": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"})


class L1(Component):
    """Tags, hits and the way down.

    Models: one unit that takes a warp's instructions in order, each for as long as the slower of its tag stage (lines)
    and its data stage (wavefronts) works on it; cp.async passes it for longer than a load, one that misses with a part of
    its wavefronts (the others, and a request's turn, take the data stage when its data have come), and commits pass it,
    too; behind it a queue of the rows of tiles that cp.async copies around L1, which pass one after the
    other, and before both a queue of such copies; hit latency, a hit on a line that is still being filled (it waits for the
    fill, and takes more than a request's turn, for which tags do not wait), tiles that stay (least recently used leave),
    no allocation on stores, the bytes that may be under way to it at once (TMA's and those
    of cp.async around L1 do not pass here): their number over the latency is the most that threads load; stores, to shared
    memory too, that wait in a queue of some instructions while their warps go on: some places for all and some for each
    scheduler.
    Ignores: sets, partial lines, that a copy of a tile that is still on its way passes as one that misses, that the
    data stage is shared memory's, too, but for copies through L1, how long a batch of many hits takes beyond its first;
    what waits in that queue from other instructions than the last ones, other roles' part of it; evictions by other
    CTAs' code.
    Source: the GPU's description; lines on their way: kernels/load_loops, h200_sxm, 2026-11-23.
    """

    kind = "l1"

    def __init__(self, spec: L1Spec, *, below: Xbar, sm_idx: int, capacity_bytes: float, counters: L1Counters) -> None:
        """``capacity_bytes`` is what shared memory leaves; ``counters`` are shared by all SMs."""
        self.spec = spec
        self.has_store_queue, self.queue_cycles = spec.has_store_queue, spec.queue_cycles
        self._requests_per_cycle, self._lines_per_cycle = spec.requests_per_cycle, spec.tag_lines_per_cycle
        self._wavefronts_per_cycle = spec.wavefronts_per_cycle
        self._soonest_cycles = below.l2.spec.near_latency_cycles
        """After which a line that was asked for can be here."""
        self.counters = counters
        self.below = below
        self.sm_idx = sm_idx
        self.places = Pipe(units_per_cycle=spec.outstanding_bytes)
        self.unit = Pipe(units_per_cycle=1.0)
        self.noted = Pipe(units_per_cycle=1.0)
        """Loads that wait, or not, for their lines."""
        self.row_stage = Pipe(units_per_cycle=1.0)
        self.rows_taken_at = 0.0
        """When the last copies around L1 are all in that stage or its queue, and what is behind them passes."""
        self._capacity = capacity_bytes
        self._tiles: OrderedDict[tuple[str, Hashable], _Tile] = OrderedDict()
        self._bytes = 0.0

    def accept(
        self, num_requests: float, num_lines: float, num_wavefronts: float = 0.0, *, at_cycle: float, weight: float,
        more_cycles: float = 0.0,
    ) -> tuple[float, float]:
        """Pass an access through the unit; returns the cycles at which that begins and ends.

        Tags and data are looked up side by side; ``more_cycles`` come on top.
        """
        cycles = more_cycles + max(
            num_requests / self._requests_per_cycle, num_lines / self._lines_per_cycle,
            num_wavefronts / self._wavefronts_per_cycle,
        )
        end = self.unit.reserve(cycles, at_cycle=at_cycle, weight=weight)
        return end - cycles, end

    def wait_for_lines(
        self, tensor: str, tile: Hashable, num_requests: float, *, since: float, at_cycle: float, weight: float
    ) -> float:
        """Note loads of a tile that are asked for at ``at_cycle``; returns the cycle at which the last is noted.

        Each takes a request's turn, and longer while the tile is on its way; tags are looked up meanwhile. Warps' loads of
        what is used together stand among one another, from ``since`` on, though here one tile's come behind the other's.
        """
        more, found = self.spec.coming_request_cycles, self._tiles.get((tensor, tile))
        if not more:
            return at_cycle
        each = 1.0 / self._requests_per_cycle
        cycles = num_requests * each
        if found is not None:
            until = found.done_at
            if until is None:
                until = found.asked_at + self._soonest_cycles
            num = (until - max(at_cycle, self.noted.free_at)) / (more + each)
            if num > 0.0:
                cycles += more * min(num_requests, num)
        return self.noted.reserve(cycles, at_cycle=since, weight=weight)

    def accept_rows(self, num_rows: float, *, at_cycle: float, weight: float) -> float:
        """Pass rows of a tile on their way around L1, each as often as it must; returns the cycle at which the last has."""
        each = self.spec.cp_async_row_cycles
        passed = self.row_stage.reserve(num_rows * each, at_cycle=at_cycle, weight=weight)
        self.rows_taken_at = passed - self.spec.max_queued_rows * each
        return passed

    def copy_lead_cycles(self, num_copies: float, cycles: float) -> float:
        """How long before the end of copies around L1, which take ``cycles``, their warps go on."""
        places = self.spec.max_queued_copies
        return places * cycles / num_copies if places and num_copies else self.spec.queue_cycles

    def holds(self, tensor: str, tile: Hashable) -> bool:
        """Whether a tile is here, or on its way."""
        return (tensor, tile) in self._tiles

    def read(
        self, request: MemoryRequest, done: Done, *, allocates: bool, not_before: float = 0.0, is_copy: bool = False
    ) -> None:
        """Fetch through L1; ``done(cycle)`` says when the registers have the data (cp.async has a way to go yet).

        ``not_before``: when the unit comes to its instructions. ``is_copy``: a cp.async.
        """
        if not allocates:
            self.below.read(request, done, places=None if is_copy else self.places)
            return
        key = (request.tensor, request.tile)
        tile = self._tiles.get(key)
        if tile is not None:
            self._tiles.move_to_end(key)
            tile.hit(max(request.issued_at, not_before) + self.spec.hit_latency_cycles, done)
            return
        tile = self._tiles[key] = _Tile(request.num_bytes, done, request.issued_at)
        self._bytes += request.num_bytes
        while self._bytes > self._capacity and self._tiles:
            self._bytes -= self._tiles.popitem(last=False)[1].num_bytes
        self.below.read(request, tile, places=self.places)


class _Tile:
    """A tile in L1: when its last byte is there, and who waits for that."""

    __slots__ = ("_waiting", "asked_at", "done_at", "num_bytes")

    def __init__(self, num_bytes: float, done: Done, asked_at: float) -> None:
        self.num_bytes = num_bytes
        self.asked_at = asked_at
        self.done_at: float | None = None
        self._waiting: list[tuple[float, Done]] = [(0.0, done)]

    def __call__(self, cycle: float) -> None:
        """The fill is complete at ``cycle``."""
        self.done_at = cycle
        waiting, self._waiting = self._waiting, []
        for ready_at, done in waiting:
            done(max(ready_at, cycle))

    def hit(self, ready_at: float, done: Done) -> None:
        """A hit that has its data at ``ready_at``, or when the fill is complete."""
        if self.done_at is None:
            self._waiting.append((ready_at, done))
        else:
            done(max(ready_at, self.done_at))
