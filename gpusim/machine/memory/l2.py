"""The L2 cache: which tile is resident, which is being filled, what a request waits for."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gpusim.machine.component import Component, Counters, MemoryRequest
from gpusim.machine.memory.hbm import GOLDEN, Hbm, Turns
from gpusim.machine.memory.panels import Loss
from gpusim.machine.memory.side_link import SideLink
from gpusim.machine.numeric import exp, hypot, power, sum_in_order
from gpusim.machine.timing import Done
from gpusim.units import LINE_BYTES, SECTOR_BYTES

SIDE_BYTES = 256
"""What may lie on one side alone. Source: kernels/line_sharing, h200_sxm, 2026-11-20: 512 bytes mostly wait for both."""
INFINITE = float("inf")
CERTAIN = 1e-3
"""A chance below is none, one above 1 less this a certainty."""
FEW_ROWS = 10
"""Rows of memory of a request below which the queue of its slowest part hides behind the wait for what is far or refreshed:
of more, some wait for both. A guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class L2Spec:
    """Both partitions of a GPU's L2."""

    capacity_bytes: int
    num_partitions: int
    num_slices: int
    slice_bytes_per_cycle: float
    sustained_fraction: float
    """What the slices deliver under full load, of their peak."""
    side_lead_fraction: float
    """By how much the slices of one side deliver more than the mean of both then, and the other's less."""
    request_bytes: float
    """What a request of a line takes of the slices' time at least, in bytes that they could deliver meanwhile."""
    shared_capacity_fraction: float
    """What one side holds, with copies of lines at home on the other: of ``capacity_bytes``. Both hold what both read."""
    capacity_spread_fraction: float
    """How gradually lines leave around that: three in four stay, or one, where a part 1.1 times this more or less is
    touched between two uses. 0: all or none."""
    life_spread_fraction: float
    """How unalike CTAs live that slices alone pace: standard deviation, over the mean. Less as arithmetic paces them."""
    dirty_fraction: float
    """What may be stored and not yet written back: of ``capacity_bytes``."""
    evict_first_fraction: float
    """What both sides, once full, have left for lines hinted evict_first: of ``capacity_bytes``."""
    evict_last_fraction: float
    """What is kept for lines hinted evict_last where no room is set aside: of ``capacity_bytes``."""
    link_bytes_per_cycle: float
    """What passes from one side to the other, each way."""
    link_turnaround_fraction: float
    """What a byte stored takes of it more than alone, where as many that are read pass the same way."""
    near_latency_cycles: float
    """From a load's issue to its use, of a line that the SM's side has: the mean over its slices."""
    far_latency_cycles: float
    """The same of a line that only the other side has."""
    slice_spread_cycles: float
    """What the farthest slice of a side takes beyond the mean."""
    queue_cycles: float
    """What a line of a bulk copy waits at its slice, on average, where half of the slices' peak rate is taken: at a share u,
    u / (1 - u) of it."""
    fetch_bytes: int
    """What memory gives at least where a sector of so many bytes, side by side, is missing."""
    promoted_read_fraction: float
    """What it is read for more of lines that memory gives with their neighbours, as a request wants: a part of these."""
    write_back_queue_bytes: float
    """Dirty bytes on their way to memory beyond which a store waits for its own."""
    launch_lookup_sectors: float
    """Sectors that are looked up in a launch that asks for nothing."""
    launch_hit_sectors: float
    """What counts as found in it."""
    slice_lookup_sectors: float
    """What is looked up, and found, for each SM at each slice that it has asked, besides what it asks for."""
    dirty_crossing_fraction: float
    """What crosses between the sides, and is found, besides half of what is stored: of what a launch that found L2 empty
    leaves dirty."""


RUN_SECTORS = 512 // SECTOR_BYTES
"""Of a warp's request, which one slice has: a thread's 16 bytes, 32 times. A guess; from a few MiB on all ask all slices."""


def looked_up_beside(spec: L2Spec, asked_sectors: float, num_sms: int) -> tuple[float, float]:
    """Sectors looked up in a launch for others than SMs' requests and crossings, and what counts as found of them.

    A launch that asks for nothing has some; for the rest each SM has as much at each slice that it has asked for anything,
    as if it told them its end: slices are found as if drawn. What it is, is not known.
    Source: kernels/promoted_lookups (``others``), h200_sxm, 2026-11-22: 15,000 to 18,000 from 5 MiB on, however much is read
    by whatever instruction; fills and copies of 1 MiB 2,600 and 3,400 beyond those of nothing (2,100 and 3,900 by this).
    """
    drawn = asked_sectors / RUN_SECTORS / num_sms / spec.num_slices
    told = spec.slice_lookup_sectors * num_sms * spec.num_slices * (1.0 - exp(-drawn))
    return spec.launch_lookup_sectors + told, spec.launch_hit_sectors + told


@dataclass(slots=True)
class L2Counters(Counters):
    """Sectors at the slices."""

    read_sectors: float = field(default=0.0, metadata={"ncu": "lts__t_sectors_srcunit_tex_op_read.sum"})
    write_sectors: float = field(default=0.0, metadata={"ncu": "lts__t_sectors_srcunit_tex_op_write.sum"})
    atom_sectors: float = field(default=0.0, metadata={"ncu": "lts__t_sectors_op_atom.sum"})
    red_sectors: float = field(default=0.0, metadata={"ncu": "lts__t_sectors_op_red.sum"})
    unplanned_miss_bytes: float = 0.0
    """Bytes from memory of tensors that no plan knows."""
    miss_sectors: float = field(default=0.0, metadata={"ncu": "lts__t_sectors_srcunit_tex_lookup_miss.sum"})
    promoted_sectors: float = 0.0
    """Of these what came as lines with their neighbours."""


StoreKind = Literal["st", "atom", "red"]
"""Which instruction stores."""


Waits = tuple[float, float, float]
"""Cycles that a line waits in its queue, from when it could pass; at a channel that is fuller than others, from when the
last byte has; for a refresh, from there."""


class Residency(Protocol):
    """Says which reads find nothing in L2. See ``machine/memory/residency.py``."""

    def loss(self, request: MemoryRequest, last_wave: int, side: int) -> Loss | None:
        """What of its tile a reader from ``side`` does not find; last looked for in ``last_wave`` (-1: never)."""
        ...

    def is_planned(self, tensor: str) -> bool:
        """Whether a plan, not the run, says how much of ``tensor`` comes from memory."""
        ...

    def times_fetched(self, tensor: str, wave: int) -> float:
        """How often what is missing of ``tensor`` comes from memory while ``wave`` runs."""
        ...

    def written_back_fraction(self, tensor: str, wave: int) -> float:
        """What of ``tensor`` leaves L2 while ``wave`` runs, over what the wave stores to it."""
        ...


class TileState:
    """A tile in L2: which wave fetched it, when its last byte is there, who waits, who has it, who asked for it lately."""

    __slots__ = (
        "asked", "began_at", "copied_at", "crossings", "done_at", "loss", "missed", "part_at", "queued", "queued_until",
        "sides", "waiting", "wave",
    )

    def __init__(self) -> None:
        """A tile that nobody has fetched."""
        self.wave = -1
        self.done_at: float | None = 0.0
        """Cycle at which the fill is in L2; None while that is not known."""
        self.part_at = 0.0
        """Cycle at which most warps that wait for a part of it each have theirs."""
        self.began_at = 0.0
        """Cycle at which the first byte of its fill passed HBM's wire."""
        self.waiting: list[tuple[float, float, Done, MemoryRequest | None]] = []
        """(cycle at which the port would let it pass, latency from there, whom to tell, whose warps wait for parts)."""
        self.asked: dict[int, tuple[float, float, float, object, float]] = {}
        """For each merge group who asked for it last: what the slices have moved (``SharedPipe.moved``) as its first line
        passes and as its last one does, how many are served with a line of it, on average, through whose port, and by how
        much of that clock most of its lines had passed before."""
        self.queued = 0.0
        """What the last of its lines waits at its slice."""
        self.queued_until = 0.0
        """Cycle from which on the queues there are others."""
        self.sides = 0
        """A bit for each side that has read it, and so has a copy."""
        self.loss: Loss | None = None
        """What was missing when it was last looked for; None: all there was."""
        self.missed = 0.0
        """For the request that looked: its place among the chances, where some of the lines were missing."""
        self.crossings: list[tuple[int, float, float, float, int]] = []
        """What crosses once the fill has come: to which side, its bytes, for how many SMs as much, how often it counts, for
        how many warps that each wait for a part."""
        self.copied_at = 0.0
        """Cycle at which the last lines that were asked for across the link are on the other side."""


class L2(Component):
    """Tags, fills and the link between the sides; the slices' rate is the crossbar's business.

    Models: first touch, hits on a line that is still being filled (they wait for the fill), residency by what was touched
    on a side in between, lines that leave one by one and not all at once, write-back of what does not stay, near and far
    latency: a side's first read of a tile goes across for the lines that lie on the other (a tile with lines on both waits
    for those), later ones find a copy while the side has room; what goes across, half of all stores among it, takes its
    turn on a link each way (``SideLink``; what memory gives crosses a latency after it began to pass the wire); a tile of
    many lines waits for the farthest slice; stores that wait dirty up to a limit, beyond which the oldest are written
    back; what later CTAs of a wave fetch again, drawn with the first one's fill (apart.py); cache hints and set-asides
    (traffic.py): evict_first takes no room from others, evict_last keeps what is set aside, a window of addresses that
    persist is evict_last; a sector that comes out of memory with its neighbour, tiles
    that come along with one that is missing, as its instruction wants (L2 promotion of tensor maps, L2::128B of cp.async;
    where rows lie at unlike places in such blocks, some begin one at each step, which waits for memory then);
    warps of a role that load together wait for the slowest line of their own, and of what they asked for just before; the
    last of them, by which a request is later than that, counts where they meet.
    Ignores: sets and the hash of addresses over slices, but for the spread (slices are loaded evenly); fills by stores to
    part of a sector (32 bytes, when it leaves); hints beside what earlier launches left, and in launches without
    footprints; that what comes late of a fill crosses late; that warps which find a tile in L2 wait for no lanes but those
    of their own lines.
    Source: the GPU's description.
    """

    kind = "l2"

    def __init__(
        self, spec: L2Spec, *, hbm: Hbm, residency: Residency, side_shares: Sequence[float] = (1.0,),
        fill_scales: Mapping[str, Sequence[float]] | None = None, fetch_scales: Mapping[str, float] | None = None,
        piece_bytes: Mapping[str, int] | None = None, piece_strides: Mapping[str, int] | None = None,
    ) -> None:
        """``residency`` says what misses; ``hbm`` is the level below; ``side_shares``: the SMs of each side, of all.

        ``fill_scales``: for each tensor and wave the part of a fill's bytes that is paid for, where only a sample of the SMs
        is simulated and others would have asked first. ``fetch_scales``: what memory gives for a byte that is asked for,
        where that is more than the byte. ``piece_bytes``: of tensors that are touched in pieces, as in ``Footprint``;
        ``piece_strides``: of those whose pieces lie at equal distances.
        """
        self.spec = spec
        self.counters = L2Counters()
        self.hbm = hbm
        self.residency = residency
        self.hit_latency_cycles = spec.far_latency_cycles
        self._near_latency_cycles = spec.near_latency_cycles
        self._is_uniform = spec.near_latency_cycles == spec.far_latency_cycles
        self._mean_latency_cycles = (spec.near_latency_cycles + spec.far_latency_cycles) / 2
        self._fill_scales = fill_scales or {}
        self._fetch_scales = fetch_scales or {}
        self._piece_bytes = piece_bytes or {}
        self._piece_strides = piece_strides or {}
        self._tiles: dict[tuple[str, Hashable], TileState] = {}
        self._backlog_bytes = 0.0
        self._num_draws = 0
        self._side_weights = [share * len(side_shares) for share in side_shares]
        num_lanes = spec.num_slices / spec.num_partitions
        self._links = [
            SideLink(
                spec.link_bytes_per_cycle * weight, num_lanes=num_lanes,
                turnaround_fraction=spec.link_turnaround_fraction,
            )
            for weight in self._side_weights if weight
        ] if len(side_shares) > 1 else []  # fmt: skip
        """Into each side, for reads and for the other's stores."""
        self._far_share = 1.0 - 1.0 / len(side_shares)

    def reach(self, request: MemoryRequest, tile: TileState, side: int, num_sms: float = 1.0) -> tuple[float, float]:
        """(latency, when all is across) of a request from ``side``, and of those of all SMs that its SM stands for.

        The latency is one line's, the farthest where its tile has lines on both sides; the cycle that at which what lies
        on the other side has come over the link. What was there before the kernel began both sides have.
        """
        if self._is_uniform or tile.wave < 0:
            return self._near_latency_cycles, 0.0
        bit = 1 << side
        done_at = tile.done_at
        if tile.sides & bit:
            if done_at is not None and done_at <= request.issued_at and tile.copied_at <= request.issued_at:
                return self._near_latency_cycles, 0.0
            is_many = request.num_bytes > SIDE_BYTES
            return self.hit_latency_cycles if is_many else self._mean_latency_cycles, tile.copied_at
        tile.sides |= bit
        loss = tile.loss
        share = self._far_share if loss is None else loss.crossing[side]
        place, tile.missed = tile.missed, 0.0
        if share >= self._far_share - CERTAIN and not place:
            crossing, latency = share * request.num_bytes, self._mean_latency_cycles
            if request.num_bytes > SIDE_BYTES:
                latency = self.hit_latency_cycles
        elif share <= CERTAIN:
            return self._near_latency_cycles, 0.0
        else:
            assert loss is not None  # what was never lost is all or nothing
            chance = _chance(share, request.num_bytes)
            begin = loss.memory[side] * (1.0 - chance) / (1.0 - share)  # the lines at home here come first
            if not begin <= (place or self._draw()) < begin + chance:
                return self._near_latency_cycles, 0.0
            crossing, latency = share * request.num_bytes / chance, self.hit_latency_cycles
        if self._fill_scales:
            crossing *= min(1.0, self._fill_scale(request) * self._side_weights[side])
        if tile.done_at is None:  # what comes from memory crosses when it has come
            tile.crossings.append((side, crossing, num_sms, request.num_alike / num_sms, request.num_warps))
            return latency, 0.0
        since = max(request.issued_at, tile.began_at + self.hbm.latency_cycles)  # memory may not have given it yet
        tile.copied_at, _ = self.read_across(side, crossing, num_sms, at_cycle=since, weight=request.num_alike / num_sms)
        return latency, tile.copied_at

    def read_across(
        self, side: int, num_bytes: float, num_sms: float, *, at_cycle: float, weight: float = 1.0, num_warps: int = 1
    ) -> tuple[float, float]:
        """When so much has crossed to ``side``, for each of ``num_sms`` SMs; it counts ``weight`` times.

        Returns:
            The cycles at which all has, and at which a mean one of ``num_warps`` has its part.
        """
        link = self._links[side % len(self._links)]
        crossed_at, deviation = link.read(num_bytes, num_sms, at_cycle=at_cycle, weight=weight)
        last_at = crossed_at + link.late_cycles(num_bytes, deviation)
        return last_at, last_at if num_warps == 1 else crossed_at + link.late_cycles(num_bytes / num_warps, deviation)

    @property
    def link_busy_cycles(self) -> float:
        """Cycles for which the busier link between the sides was busy, with those of what was skipped."""
        return max((link.busy_cycles for link in self._links), default=0.0)

    @property
    def links_bytes_per_cycle(self) -> float:
        """Of all links between the sides together; 0 where there is one side."""
        return sum_in_order(link.bytes_per_cycle for link in self._links)

    def _draw(self) -> float:
        """A number above 0 and below 1, the next of a sequence that fills the space between evenly."""
        self._num_draws += 1
        return self._num_draws * GOLDEN % 1.0

    def spread_cycles(self, num_lines: float) -> float:
        """What the last of ``num_lines`` takes beyond the mean: slices lie evenly between the nearest and the farthest.

        >>> from types import SimpleNamespace
        >>> spec = SimpleNamespace(slice_spread_cycles=30.0)
        >>> [L2.spread_cycles(SimpleNamespace(spec=spec), num) for num in (0.25, 1, 2, 5)]
        [0.0, 0.0, 10.0, 20.0]
        """
        return self.spec.slice_spread_cycles * (num_lines - 1.0) / (num_lines + 1.0) if num_lines > 1.0 else 0.0

    def held_cycles(self, tile: TileState, latency_cycles: float, asked_at: float) -> float:
        """How long a line of ``tile``, asked for at ``asked_at``, is on its way where nobody else asks.

        ``latency_cycles`` is that of the tile's farthest line.
        """
        latency = min(latency_cycles, self._mean_latency_cycles)
        done_at = tile.done_at
        if done_at is None:
            return latency + self.hbm.latency_cycles
        return latency + max(0.0, done_at - asked_at)

    def was_coming(self, request: MemoryRequest) -> bool:
        """Whether the tile of a request that is answered was on its way from memory, or not yet, when it was asked for."""
        tile = self._tiles.get((request.tensor, request.tile))
        return tile is not None and (tile.done_at is None or tile.done_at > request.issued_at)

    def look_up(self, request: MemoryRequest, side: int) -> TileState:
        """The state of the tile that is asked for from ``side``; lines that are missing start a fill."""
        key = (request.tensor, request.tile)
        tile = self._tiles.get(key)
        if tile is None:
            tile = self._tiles[key] = TileState()
        loss = self.residency.loss(request, tile.wave, side)
        if loss is None or tile.done_at is None:
            return tile
        tile.wave = request.wave
        tile.loss = loss
        tile.missed = 0.0
        share = sum_in_order(loss.memory)
        is_whole = share >= 1.0 - CERTAIN
        tile.sides = tile.sides & ~(1 << side) if loss.is_of_reader and not is_whole else 0
        if share <= CERTAIN:
            return tile
        if not is_whole:
            chance = _chance(share, request.num_bytes)
            if chance < 1.0 - CERTAIN:
                tile.missed = self._draw()
                if tile.missed >= chance:
                    return tile
                share /= chance
        missed = self.counters.miss_sectors
        self._fill(request, tile, share)
        for neighbour in request.come_along:
            self.look_up(request.of_neighbour(neighbour), side)
        if (request.come_along or request.new_fraction < 1.0) and request.num_bytes >= LINE_BYTES * request.num_rows:
            self.counters.promoted_sectors += self.counters.miss_sectors - missed
        return tile

    def _fill(self, request: MemoryRequest, tile: TileState, share: float) -> None:
        """Fetch that part of a request's lines from memory.

        Where rows begin their blocks at unlike steps, whole blocks come for some rows: on the mean over steps as many bytes
        as all rows have in one.
        """
        tile.done_at = None
        tile.asked.clear()  # who asked for what has left since is no neighbour
        num_bytes = request.num_bytes * share
        times = self.residency.times_fetched(request.tensor, request.wave)
        self.counters.miss_sectors += num_bytes * times / SECTOR_BYTES * request.num_alike
        if not self.residency.is_planned(request.tensor):
            self.counters.unplanned_miss_bytes += num_bytes * request.num_alike
        paid = num_bytes * self._fetch_scales.get(request.tensor, 1.0)
        hbm = self.hbm
        piece_bytes = self._piece_bytes_of(request.tensor)
        num_rows = max(request.num_rows * share * request.new_fraction, num_bytes / hbm.refresh_bytes, 1.0)
        are_apart = request.num_rows > 1.0 or (piece_bytes > 0 and self._are_anywhere(request.tensor))
        place = hbm.draw()
        is_many = request.num_bytes > SIDE_BYTES
        spread = hbm.spread_cycles() if is_many and num_rows >= FEW_ROWS else 0.0
        together, parts = request.num_together, request.num_warps
        waits = self._waits(num_rows * together, paid, are_apart=are_apart, is_many=is_many, place=place)
        of_part = waits
        if parts > 1:
            of_part = self._waits(
                max(1.0, num_rows / parts) * together, paid, are_apart=are_apart, is_many=is_many, place=None,
                part_bytes=paid / parts * together,
            )
        at = request.issued_at + paid / hbm.wire.alone
        done = _Filled(self, tile, at, waits, of_part, hbm.latency_cycles + spread)
        hbm.fill(
            paid, done, sm_idx=request.sm_idx, count=request.num_alike, begun=done.begun,
            piece_bytes=piece_bytes, num_part_requests=request.num_part_requests * share,
            share=self._fill_scale(request), times=times,
            turns=Turns(request.num_turns, request.issued_at, request.asked_until),
        )

    def _waits(
        self, num_rows: float, num_bytes: float, *, are_apart: bool, is_many: bool, place: float | None,
        part_bytes: float = 0.0,
    ) -> Waits:
        """What the last of ``num_rows`` waits for, which are ``num_bytes`` or the ``part_bytes`` that one warp waits for."""
        hbm = self.hbm
        far = self.hit_latency_cycles - self._mean_latency_cycles if is_many else 0.0
        waited = part_bytes or num_bytes
        refreshed = hbm.refresh_cycles(num_rows, waited / hbm.wire.alone)
        uneven = hbm.uneven_cycles(num_bytes, place, are_apart=are_apart, part_bytes=waited)
        if num_rows < FEW_ROWS:
            lines = max(num_rows, waited / SIDE_BYTES, 1.0)
            queued = max(0.0, hbm.queue_cycles(lines) - max(refreshed, far))
        else:
            queued = hbm.busy_cycles(num_rows)
        in_one = hbm.channel_bytes
        mixed = hbm.mixed_cycles(num_rows if are_apart or not in_one else waited / in_one)
        if mixed > queued:
            queued = mixed
        # the lines that are far, that wait for a refresh and that find long queues are seldom the same, and
        # the fullest channel seldom is where a refresh takes longest
        return queued, hypot(uneven, refreshed) - refreshed, max(0.0, refreshed - far)

    def _fill_scale(self, request: MemoryRequest) -> float:
        """The part of a fill's bytes that is paid for."""
        scales = self._fill_scales.get(request.tensor)
        return 1.0 if scales is None else scales[min(request.wave, len(scales) - 1)]

    def _are_anywhere(self, tensor: str) -> bool:
        """Whether pieces leave out what lies in one channel: nearer ones take all channels in turn, as a run does."""
        stride = self._piece_strides.get(tensor, 0)
        return not stride or stride > self.hbm.channel_bytes

    def _piece_bytes_of(self, tensor: str) -> int:
        """Of memory's pieces, which are no shorter than what it gives at least; 0: side by side."""
        piece_bytes = self._piece_bytes.get(tensor, 0)
        return max(piece_bytes, self.spec.fetch_bytes) if piece_bytes else 0

    def store_bytes_per_cycle(self, side: int) -> float:
        """What the SMs of ``side`` can store, so that the part of it that lies on the other one crosses."""
        if not self._links:
            return INFINITE
        return self.spec.link_bytes_per_cycle * self._side_weights[side] / self._far_share

    def across(
        self, num_bytes: float, side: int, *, at_cycle: float, num_sms: float = 1.0, weight: float = 1.0
    ) -> tuple[float, float]:
        """When what a store of ``num_bytes`` from ``side`` changes on the other one has crossed the link.

        For each of ``num_sms`` SMs; it counts ``weight`` times.

        Returns:
            The cycles at which the next store can follow, and at which the last line has crossed.
        """
        links = self._links
        if not links:
            return 0.0, 0.0
        link, crossing = links[(side + 1) % len(links)], self._far_share * num_bytes
        crossed_at, deviation = link.store(crossing, num_sms, at_cycle=at_cycle, weight=weight)
        return crossed_at, crossed_at + link.late_cycles(crossing, deviation)

    def store(
        self, request: MemoryRequest, done: Done, *, num_distinct_bytes: float, kind: StoreKind, num_sms: float = 1.0
    ) -> Done:
        """Take a store; what will not stay resident goes on to memory. Returns what to call when it has left its SM.

        ``num_sms`` store as much at once: those that the request's stands for.

        While more write-backs wait than L2 may hold of them, a store is complete when its own is.
        """
        num_sectors = request.num_bytes / SECTOR_BYTES * request.num_alike
        if kind == "st":
            self.counters.write_sectors += num_sectors
        elif kind == "atom":
            self.counters.atom_sectors += num_sectors
        else:
            self.counters.red_sectors += num_sectors
        leaving = num_distinct_bytes * self.residency.written_back_fraction(request.tensor, request.wave)
        if not leaving:
            return done
        self._backlog_bytes += leaving * num_sms
        is_full = self._backlog_bytes > self.spec.write_back_queue_bytes
        written = _WrittenBack(self, leaving * num_sms, done if is_full else None)
        self.hbm.write_back(
            leaving, written, count=request.num_alike, num_sms=num_sms, piece_bytes=self._piece_bytes_of(request.tensor)
        )
        return done if written.is_settled else written.left

    def written_back(self, num_bytes: float) -> None:
        """``num_bytes`` of dirty lines have gone to memory."""
        self._backlog_bytes -= num_bytes

    def hit_rate_pct(self) -> float:
        """Percent of sectors from the SMs that found their line (``lts__t_sector_hit_rate.pct``)."""
        sectors = self.counters.read_sectors + self.counters.write_sectors
        return 100.0 * (1.0 - self.counters.miss_sectors / sectors) if sectors else 0.0


def _chance(share: float, num_bytes: float) -> float:
    """That any of the lines of ``num_bytes`` is among a share of all.

    >>> _chance(0.25, 32.0), _chance(0.25, 256.0)
    (0.25, 0.4375)
    """
    return 1.0 - power(1.0 - share, max(1.0, num_bytes / LINE_BYTES))


class _WrittenBack:
    """A write-back on its way; a store that found the queue full is complete when both it and this are."""

    __slots__ = ("_done", "_l2", "_left_at", "_num_bytes", "_written_at", "is_settled")

    def __init__(self, l2: L2, num_bytes: float, done: Done | None) -> None:
        self._l2 = l2
        self._num_bytes = num_bytes
        self._done = done
        self._left_at: float | None = None
        self._written_at: float | None = None
        self.is_settled = done is None

    def __call__(self, cycle: float) -> None:
        """The last byte is in memory."""
        self._l2.written_back(self._num_bytes)
        self._written_at = cycle
        if self._done is not None and self._left_at is not None:
            self._done(max(cycle, self._left_at))

    def left(self, cycle: float) -> None:
        """The last byte has left the SM."""
        self._left_at = cycle
        if self._done is not None and self._written_at is not None:
            self._done(max(cycle, self._written_at))


class _Filled:
    """What happens when a fill's last byte has passed the HBM wire, and what the last of its lines waits for besides.

    Lines that lie on the other side cross when memory has given them, a latency after they began to pass the wire. Warps
    that wait for a part each have theirs when its lines are there, but for the last.
    """

    __slots__ = ("_began", "_earliest", "_l2", "_latency", "_of_part", "_passed_at", "_tile", "_waits")

    def __init__(
        self, l2: L2, tile: TileState, earliest: float, waits: Waits, of_part: Waits, latency_cycles: float
    ) -> None:
        self._began = self._passed_at = 0.0
        self._l2 = l2
        self._tile = tile
        self._earliest = earliest
        self._waits = waits
        self._of_part = of_part
        self._latency = latency_cycles

    def begun(self, cycle: float) -> None:
        """The first byte begins to pass."""
        self._began = cycle
        self._tile.began_at = cycle

    def __call__(self, cycle: float) -> None:
        """The last byte has passed."""
        self._passed_at = cycle
        hbm = self._l2.hbm
        wait = self._began + hbm.latency_cycles - hbm.now()
        if self._tile.crossings and wait > 0.0:
            hbm.later(wait, self._come)
        else:
            self._come()

    def _come_at(self, crossed_at: float, waits: Waits) -> float:
        queued, uneven, refreshed = waits
        come_at = max(self._passed_at + uneven, self._earliest + queued) + refreshed + self._latency
        return max(come_at, crossed_at)

    def _come(self) -> None:
        """Lines begin to cross: when all are there is known now."""
        tile = self._tile
        crossed_at = part_crossed_at = 0.0
        since = self._began + self._l2.hbm.latency_cycles
        for side, num_bytes, num_sms, weight, num_warps in tile.crossings:
            tile.copied_at, part_at = self._l2.read_across(
                side, num_bytes, num_sms, at_cycle=since, weight=weight, num_warps=num_warps
            )
            crossed_at, part_crossed_at = max(crossed_at, tile.copied_at), max(part_crossed_at, part_at)
        tile.crossings.clear()
        tile.done_at = done_at = self._come_at(crossed_at, self._waits)
        tile.part_at = part_at = min(done_at, self._come_at(part_crossed_at, self._of_part))
        waiting, tile.waiting = tile.waiting, []
        for ready_at, latency, done, by_warps in waiting:
            come_at = ready_at if ready_at > done_at else done_at
            if by_warps is not None:
                last_at, come_at = come_at, max(ready_at, part_at)
                by_warps.late_cycles = last_at - come_at
            done(come_at + latency)
