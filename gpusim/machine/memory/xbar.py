"""The crossbar between SMs and L2: ports, slices, and the merging of requests."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gpusim.machine.component import Component, MemoryRequest
from gpusim.machine.floorplan import Floorplan
from gpusim.machine.memory.hbm import GOLDEN
from gpusim.machine.memory.l2 import INFINITE, L2, StoreKind, TileState
from gpusim.machine.memory.links import Link, are_gpcs_one, by_turns, like_gpcs, like_parts, parts_of_gpcs, side_shares
from gpusim.machine.memory.merging import DRAWS_APART, Ask, Merging, Reader, Served, Zeros
from gpusim.machine.store_port import StorePort
from gpusim.machine.timing import Done, Pipe, RingingEnvironment, SharedPipe, Ticket
from gpusim.units import LINE_BYTES, SECTOR_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class XbarSpec:
    """What one SM takes in and gives out, and where requests merge."""

    sm_read_bytes_per_cycle: float
    sm_write_bytes_per_cycle: float
    write_bytes_per_cycle: float
    """What all SMs together can store."""
    store_way_bytes: float
    """What has left an SM and waits for its turn at L2."""
    line_request_bytes: float
    """What a request of a line takes of the links on which its SM's stores leave, while these do."""
    request_turn_packets: float
    """Packets of an SM's stores that pass between two requests of lines of its copies; 0: copies wait for no stores."""
    last_request_fraction: float
    """What the last of e times as many requests of lines waits longer behind the SM's stores, as a fraction of what one
    waits."""
    store_packet_bytes: float
    """What threads' stores of one line take of their SM's port at least, however little of it they store."""
    red_header_fraction: float
    """What a reduction of a whole line takes of its SM's port beyond its bytes, as a part of these; of less, as much."""
    gpc_read_bytes_per_cycle: float
    """What all SMs of a GPC together take in."""
    gpc_write_bytes_per_cycle: float
    """What they give out."""
    num_gpc_parts: int
    """Parts of a GPC that store an equal share each of what it has, whether the others want theirs or not; TPCs are dealt
    out to them in order."""
    bulk_read_fraction: float
    """Of what slices and links carry of loads and boxes, what they carry of bulk copies without rows."""
    multicast_read_fraction: float
    """The same of multicasts of boxes, each counted once; of those without rows ``bulk_read_fraction`` alone."""
    merge_scope: Literal["sm", "tpc", "gpc"]
    """Whose requests for one line can merge; ``sm``: nobody's."""
    merge_limit: int
    """Requests for a line that become one at most."""
    torn_merge_fraction: float
    """What merges of box rows that lie on one line more than they must, of what would of others."""
    merge_window_cycles: float
    """For how long after a line has passed the slices who asks for it may still get it with whom it was for."""
    merge_wait_fraction: float
    """What of a request's wait for its turn at the slices its lines wait, so that they can be joined for as long."""
    sm_distance_cycles: float
    """What lines take longer to the SM that is farthest from L2 than to the nearest; the others lie evenly between."""


@dataclass(slots=True)
class XbarCounters(Served):
    """Bytes at the SMs' ports."""

    read_bytes: float = field(default=0.0, metadata={"ncu": "l1tex__m_xbar2l1tex_read_bytes.sum"})
    write_bytes: float = field(default=0.0, metadata={"ncu": "l1tex__m_l1tex2xbar_write_bytes.sum"})
    asked_bytes: float = 0.0
    """Bytes of the reads that were simulated, each counted once, and of those that they stand for."""


class _Port(Reader):
    """One SM's way in: transfers one after the other, the first of them sharing the slices with other SMs."""

    __slots__ = ("active", "link", "waiting")

    def __init__(self, link: Link, region: int, num_alike: float, num_draws: int) -> None:
        super().__init__(link.slices, region, num_alike, num_draws)
        self.link = link
        self.active: _Transfer | None = None
        self.waiting: deque[_Transfer] = deque()


MOST_ROW_BYTES = 2048
"""Of a box: 256 elements of 8 bytes. Source: CUDA driver API, ``cuTensorMapEncodeTiled``."""

NARROW = 1.2
"""A link is looked at where its SMs would get so much more than with all SMs live: fewer are live, and unevenly. A margin
chosen for speed and not measured: with all SMs live, what the links cost is in ``l2.sustained_fraction``."""


Part = tuple[TileState, float, float, Done, MemoryRequest | None]
"""A request's share of a transfer: its tile, the cycle before which its last byte cannot pass, its latency, whom to tell,
and the request where its warps wait for a part each."""


class _Transfer:
    """Reads on their way through a port: one request, or neighbours that are waited for together.

    What it has to move is known when it begins: what merges with a neighbour's request comes with that.
    """

    __slots__ = (
        "ahead_cycles", "ask", "asks", "group", "link_at", "more", "num_bytes", "num_moved_bytes", "part", "port",
        "queues", "ticket", "weight", "xbar",
    )

    def __init__(self, xbar: Xbar, port: _Port, ask: Ask, part: Part, group: object) -> None:
        self.xbar = xbar
        self.port = port
        self.ask = ask
        self.asks: list[Ask] | None = None
        """Those of neighbours, until it begins."""
        self.num_bytes = ask.num_bytes
        self.num_moved_bytes = 0.0
        """By which the slices' clock goes on meanwhile: less than the bytes where it has a part for nothing."""
        self.weight = 0.0
        self.part = part
        self.more: list[Part] | None = None
        self.group = group
        self.ahead_cycles = 0.0
        """By how much its last line may come sooner than it would if nobody else had asked."""
        self.queues: list[tuple[TileState, float, float]] = []
        """Tiles out of L2: bytes, and what the slices' clock has moved by when their last line passes."""
        self.link_at = 0.0
        """When the link of the GPC has carried it."""
        self.ticket: Ticket | None = None

    def start(self) -> None:
        """Begin to move."""
        port, xbar = self.port, self.xbar
        port.active = self
        link = port.link
        share = link.slices.share_now(link.share if self.group is None else link.bulk_share)
        moved, carried, self.ahead_cycles = xbar.merging.price(self.ask, port, 0.0, share)
        self._wait_at_slices(self.ask, moved)
        if self.asks is not None:
            for ask in self.asks:
                more, carried_more, ahead = xbar.merging.price(ask, port, moved, share)
                self.ahead_cycles = min(self.ahead_cycles, ahead)
                moved += more
                carried += carried_more
                self._wait_at_slices(ask, moved)
            self.asks = None
        if port.link.is_narrow:
            self.link_at = port.link.pipe.reserve_alike(carried, port.num_alike, at_cycle=xbar.now())
        self.num_moved_bytes = moved
        self.weight = weight = carried / moved * port.num_alike
        self.ticket = link.slices.transfer(moved, self, weight, share)

    def join(self, ask: Ask, part: Part) -> None:
        """Take a neighbour along."""
        self.num_bytes += ask.num_bytes
        if self.ticket is None:
            if self.asks is None:
                self.asks = [ask]
            else:
                self.asks.append(ask)
        else:
            xbar, port = self.xbar, self.port
            slices = port.link.slices
            moved, carried, ahead = xbar.merging.price(ask, port, slices.left(self.ticket), self.ticket.share)
            self.ahead_cycles = min(self.ahead_cycles, ahead)
            total = self.num_moved_bytes + moved
            self._wait_at_slices(ask, total)
            self.weight = mean = (self.weight * self.num_moved_bytes + carried * port.num_alike) / total
            self.num_moved_bytes = total
            if port.link.is_narrow:
                self.link_at = port.link.pipe.reserve_alike(carried, port.num_alike, at_cycle=xbar.now())
            self.ticket = slices.extend(self.ticket, moved, mean)
        if self.more is None:
            self.more = [part]
        else:
            self.more.append(part)

    def _wait_at_slices(self, ask: Ask, moved_bytes: float) -> None:
        tile = ask.tile
        if tile is not None and tile.done_at is not None and tile.done_at <= self.xbar.now():
            self.queues.append((tile, ask.num_bytes, moved_bytes))

    def __call__(self, cycle: float) -> None:
        """The last byte has passed the slices and the port."""
        self.ticket = None
        port = self.port
        if port.waiting:
            port.waiting.popleft().start()
        else:
            port.active = None
        if cycle < self.link_at:
            cycle = self.link_at
        slices, queued = port.link.slices, 0.0
        for tile, num_bytes, moved in self.queues:
            behind = slices.cycles_of(self.num_moved_bytes - moved, 1.0)
            queued = max(queued, self.xbar.merging.queued(port, tile, num_bytes) - behind)
        spread = self.xbar.l2.spread_cycles(self.num_bytes / LINE_BYTES) + queued
        ahead = self.ahead_cycles if self.ahead_cycles < INFINITE else 0.0
        _hand_over(self.part, cycle, spread, ahead)
        if self.more is not None:
            for part in self.more:
                _hand_over(part, cycle, spread, ahead)


def _hand_over(part: Part, passed_at: float, spread_cycles: float, ahead_cycles: float) -> None:
    """A request's last byte is in the SM a latency after it could pass the port and its tile's fill was in L2.

    What others had asked for was on its way up to ``ahead_cycles`` before this one asked.
    """
    tile, earliest, latency_cycles, done, by_warps = part
    earliest -= ahead_cycles
    latency_cycles += spread_cycles
    ready_at = passed_at if passed_at > earliest else earliest
    done_at = tile.done_at
    if done_at is None:
        tile.waiting.append((ready_at, latency_cycles, done, by_warps))
    elif done_at <= ready_at:
        done(ready_at + latency_cycles)
    elif by_warps is None:
        done(done_at + latency_cycles)
    else:  # on its way: each warp waits for its own part of it
        come_at = ready_at if ready_at > tile.part_at else tile.part_at
        by_warps.late_cycles = done_at - come_at
        done(come_at + latency_cycles)


class Xbar(Component):
    """Ports, slices and merging.

    Models: a limit on what one SM takes in, one on what the L2 slices of a side serve to its SMs (in turns of GPCs, so that
    an SM of a larger one gets less; of threads' loads lone pairs have a turn of their own; one side serves more than the
    other), and their own for stores, which cross between the sides in turns of parts of GPCs (of all of a GPC where SMs
    stand for others), and whose port takes an SM's one after the other and behind which some wait for L2, reductions with a
    header a line, those of threads on each way (a sector of a line takes twice its bytes), lines that threads store in
    small parts with what a packet takes at least on each way, lines whose sectors are stored in part with a mask; a link
    for each GPC, one each way, which takes requests in order (the way in only while so few GPCs are live that it can
    matter: what it costs when all are is in what the slices serve); a limit on what loads of an SM's threads have asked for
    and not got (a miss holds its place for longer than a hit); bulk copies that are no boxes of a tensor, but lines in a
    row, take more of links and slices than their bytes, and so do multicasts of boxes; ways from L2 of unlike length, so
    that SMs fall out of step; a queue at each slice, in which each line of a bulk copy out of L2 waits at random, the
    longer the busier all were lately, of which the slowest counts (the same for who reads the same lines soon after, and
    for all receivers of a multicast; hidden while what was asked for behind it passes); lines that another SM of the same
    GPC waits for come with that SM's and cost slices and link nothing, up to a number of requests a line, unless halves of
    sectors are asked for: an SM asks for a request's lines one after the other, as fast as its port takes them in, and
    ahead of those that come by what passes the port in a latency; a line can be joined until some cycles after it has
    passed the slices, for longer the farther its slice is; of what a request waits for its turn, up to a latency, most of
    its lines wait a part alone, so that who asks later reads them again, though the last ones, which both wait for, still
    come to both; so who is a little late joins the far lines alone, reads near ones, which come sooner, and is behind with
    the last of them by less than it was late; of a fill that comes in, lines that are not there yet are joined; who is
    behind catches up with whom it joins, as it gets what is on its way already; an SM that asks for a line twice has it
    read once, but sent twice; multicast (one read, several receivers); rows of boxes outside of their tensors, which are
    read at slices and cross the port as lines do, and hold up all slices, since all SMs' come from few of them; requests of
    an SM's bulk copies in the way that its stores leave by: behind as many as it holds, in turns with their packets, and
    the last of many lines waits longer than the first; they take of the links that they share there.
    Ignores: that slices are queues in which all SMs stand, a few of them longer than the others, so that copies of few
    bytes wait as long as those of many (kernels/busy_sharing); turns of parts of a GPC (CPCs) for loads, which show where
    an SM has 80 KiB and more under way (kernels/part_turns); the queue at slices of threads' loads (it is in what they were
    measured to get) and of what comes from memory; that a part of which few SMs store could have more than its turn; fair
    shares of a link among requests of one moment (an earlier one is carried whole); ways in of parts of a GPC; that SMs of
    a TPC merge more surely than others of a GPC; what merged readers take of their GPC's own network (104 B a cycle and SM
    still pass); that threads' loads stand behind their SM's stores (3,000 to 3,600 cycles beside as many as it can make;
    kernels/loads_beside_stores), what requests of SMs that do not store take of links and wait there, and those of rows of
    zeros; that stores are acknowledged late; that links take more of packets with masks or headers than the port does (all
    SMs that store or add halves and sectors of lines: 3.8 to 4.4 cycles a packet, here 3.65; kernels/half_stores);
    imbalance of slices within a side; which side leads (it differs from GPU to GPU: here the first); sides with unlike
    numbers of SMs, which have slices in proportion; that few SMs read less for zeros, and what multicasts of zeros take
    (read once here, as lines are).
    Source: the GPU's description; turns and sides: kernels/memory_bandwidth (all SMs read out of L2: the slowest 32 B a
    cycle, the median 37, the fastest 49, as 590 a GPC of 18 or 16 and more for the one with lone pairs), l2_residency (66
    SMs of one side get no more than beside the other 66), h200_sxm, 2026-11-20, and first_loads (bulk copies: GPCs of one
    side 600 to 630 B a cycle, of 16 or 18, with lone pairs or without), 2026-11-22; sides: tile_sharing (full rings of own
    tiles: four GPCs 39 B a cycle and SM, the others 34; the fullest slice gives 1.13 times the mean with all GPCs live, and
    one side's even 1.02 with its own alone), first_loads (another H200: 38.5 and 35.3); multicasts: multicast_rings;
    tile_sharing, 2026-11-22: boxes and threads get alike, sharers that begin apart meet where the slices are busy; where
    merging ends, line by line (2 % of lines are read twice 40 cycles after the first, half 71, 98 % 100), what the second
    waits less (its whole delay up to 40 cycles, 35 of 60, nothing of 100), and of fills (7 of 16 lines are there after 350
    cycles, as many more after 550): kernels/line_sharing, pairs; parts of GPCs: kernels/store_drift, bursts: TPCs 2 and 5
    of GPCs of eight have stored 64 KiB an SM after 3,300 cycles, the other six and all of GPCs of nine after 4,000 to
    4,500; headers of threads' reductions: kernels/half_stores, reductions (eight warps of one SM: 2.0 cycles a packet of 16
    or 32 bytes, 64 bytes of the port); copies beside stores: kernels/loads_beside_stores, h100_sxm, 2026-11-26.
    """

    kind = "xbar"
    has_late_copies: bool = False
    """Whether a copy has waited behind stores of its SM."""

    def __init__(
        self, env: RingingEnvironment, spec: XbarSpec, *, l2: L2, floorplan: Floorplan,
        alike: Mapping[int, int] | None = None,
    ) -> None:
        """A port for each SM of ``floorplan`` and two links for each GPC, on one set of slices.

        ``alike``: SMs for which each stands that others stand for; itself alone, where it is not told.
        """
        self._agenda = env.agenda
        self.spec = spec
        self.counters = XbarCounters()
        self.l2 = l2
        slices = l2.spec.num_slices * l2.spec.slice_bytes_per_cycle * l2.spec.sustained_fraction
        self.slices_bytes_per_cycle = slices
        """What the slices of all sides serve."""
        self.alone_bytes_per_cycle = min(spec.sm_read_bytes_per_cycle, slices)
        """What an SM gets of them that has them to itself."""
        self.stores = SharedPipe(
            env, bytes_per_cycle=spec.write_bytes_per_cycle, cap_bytes_per_cycle=spec.sm_write_bytes_per_cycle
        )
        gpcs, sides = floorplan.gpc_of_sm, floorplan.side_of_sm
        shares = side_shares(sides, l2.spec.side_lead_fraction)
        self._side_slices = {
            side: SharedPipe(env, bytes_per_cycle=slices * share, cap_bytes_per_cycle=spec.sm_read_bytes_per_cycle)
            for side, share in shares.items()
        }
        self._parts = parts_of_gpcs(gpcs, spec.num_gpc_parts)
        """The GPC and the part of it that each SM stores through."""
        self._widths = dict.fromkeys(self._parts, 1.0)
        """Parts that are one link each."""
        num_gpcs: Mapping[int, int] = dict.fromkeys(gpcs, 1)
        if alike:  # parts of as many SMs, and GPCs, which one may stand for, are one
            if are_gpcs_one(floorplan, alike):
                whole, gpcs = gpcs, like_gpcs(floorplan)
                of_like = {(first, mine) for first, mine in zip(gpcs, whole, strict=True)}
                num_gpcs = Counter(first for first, _ in of_like)
            self._parts, self._widths = like_parts(self._parts, gpcs)
        self._links = {
            gpc_idx: Link(
                spec.gpc_read_bytes_per_cycle, slices * gpcs.count(gpc_idx) / len(gpcs),
                self._side_slices[sides[gpcs.index(gpc_idx)]], num,
            )
            for gpc_idx, num in num_gpcs.items()
        }
        self._lone = frozenset(floorplan.lone)
        each = spec.gpc_write_bytes_per_cycle / spec.num_gpc_parts
        self._write_links = {part: Pipe(units_per_cycle=each * width) for part, width in self._widths.items()}
        self._num_storing = dict.fromkeys(self._links, 0)
        """Live SMs of each GPC."""
        self.store_ports = [Pipe(units_per_cycle=spec.sm_write_bytes_per_cycle) for _ in gpcs]
        num_alike = [float((alike or {}).get(sm_idx, 1)) for sm_idx in range(floorplan.num_sms)]
        self._stores_of = [StorePort(env, self.stores, spec.store_way_bytes, num) for num in num_alike]
        self._side_write_bytes_per_cycle = {side: l2.store_bytes_per_cycle(side) for side in self._side_slices}
        regions = floorplan.groups(spec.merge_scope)
        self.ports = [
            _Port(self._links[gpc_idx], region, num, DRAWS_APART * sm_idx)
            for sm_idx, (gpc_idx, region, num) in enumerate(zip(gpcs, regions, num_alike, strict=True))
        ]
        self._sides = sides
        apart = 0.0 if alike else spec.sm_distance_cycles
        places = {sm_idx: place for place, sm_idx in enumerate(floorplan.in_order())}
        self._distances = [apart * ((places[idx] * GOLDEN + 0.5) % 1.0 - 0.5) for idx in range(floorplan.num_sms)]
        """What each SM's lines take longer than the mean's, which is that of the first CTA."""
        self._merges = spec.merge_scope != "sm" and spec.merge_limit > 1
        self._zero_tile = TileState()
        """Where the rows of zeros come from that tensor maps' boxes have outside."""
        self._left_out = [0.0, 0.0, 0.0]
        """Bytes asked for, served and carried for what was left out, to be added at the end."""
        self._bulk_weight = 1.0 / spec.bulk_read_fraction
        self._multicast_weight = 1.0 / spec.multicast_read_fraction
        self.merging = Merging(
            env, l2.spec, self.counters, self._side_slices.values(), limit=spec.merge_limit,
            window_cycles=spec.merge_window_cycles, wait_fraction=spec.merge_wait_fraction,
            port_bytes_per_cycle=spec.sm_read_bytes_per_cycle,
            fill_cycles=l2.hbm.latency_cycles, is_mean=bool(alike),
        )  # fmt: skip

    def is_live(self, sm_idx: int, *, is_live: bool) -> None:
        """An SM has its first CTA, or has lost its last: whose link is in the way now?"""
        mine, num = self.ports[sm_idx].link, int(self.ports[sm_idx].num_alike)
        mine.num_live += num if is_live else -num
        if sm_idx in self._lone:
            mine.num_lone_live += num if is_live else -num
        self._num_storing[self._parts[sm_idx][0]] += num if is_live else -num
        spec = self.spec
        links = [link for link in self._links.values() if link.slices is mine.slices and link.num_live]
        if not links:
            return
        num_live = sum(link.num_live for link in links)
        total = mine.slices.total
        each = min(spec.sm_read_bytes_per_cycle, total / num_live)
        turns = [link.num_turns for link in links]
        most = [min(link.bytes_per_cycle, link.num_live * spec.sm_read_bytes_per_cycle) for link in links]
        for link, gets in zip(links, by_turns(total, turns, most), strict=True):
            share = link.num_live * each
            link.is_narrow = share > max(link.bytes_per_cycle, NARROW * link.whole_share_bytes_per_cycle)
            link.share = gets / share if gets else 1.0
        for link, gets in zip(links, by_turns(total, [link.num_gpcs for link in links], most), strict=True):
            link.bulk_share = gets / (link.num_live * each)
        self._share_stores(self._sides[sm_idx])

    def _share_stores(self, side: int) -> None:
        """What crosses from ``side`` is stored in turns of its GPCs; a GPC's is its parts', who leave each other nothing."""
        slices = self._side_slices[side]
        live = [idx for idx, link in self._links.items() if link.slices is slices and self._num_storing[idx]]
        turns = [self._links[idx].num_gpcs for idx in live]
        most = [self.spec.gpc_write_bytes_per_cycle * num for num in turns]
        shares = dict(zip(live, by_turns(self._side_write_bytes_per_cycle[side], turns, most), strict=True))
        for part, width in self._widths.items():
            if part[0] in shares:
                each = shares[part[0]] / self._links[part[0]].num_gpcs
                self._write_links[part].rate = each / self.spec.num_gpc_parts * width

    def now(self) -> float:
        """The present."""
        return self._agenda.cycle

    def behind_stores(self, sm_idx: int, num_lines: float, at_cycle: float) -> float:
        """Let an SM ask for the lines of a copy that comes at ``at_cycle``, behind what the SM stores.

        Returns:
            The cycle at which the copy may be taken to ask, as if nobody stored. The links that stores leave by carry the
            requests from now on.
        """
        stores, spec = self._stores_of[sm_idx], self.spec
        if not stores.is_busy or not spec.request_turn_packets:
            return at_cycle
        if spec.line_request_bytes:
            link = self._write_links[self._parts[sm_idx]]
            num_bytes = num_lines * spec.line_request_bytes
            link.reserve_alike(num_bytes, self.ports[sm_idx].num_alike, at_cycle=self._agenda.cycle)
        asks_at = stores.behind(
            num_lines, at_cycle=at_cycle, request_turn_packets=spec.request_turn_packets,
            last_request_fraction=spec.last_request_fraction, port_bytes_per_cycle=spec.sm_read_bytes_per_cycle,
        )
        self.has_late_copies |= asks_at > at_cycle
        return asks_at

    def read(
        self, request: MemoryRequest, done: Done, *, group: object = None, places: Pipe | None = None,
        zeros: Zeros | None = None,
    ) -> None:
        """Fetch a tile into one SM; ``done(cycle)`` is called when the arrival of its last byte is known.

        Bulk copies have a ``group``; those with the same that follow one another are waited for together (they complete
        one phase of one mbarrier) and move as one. ``places`` are those for bytes that were asked for and are not there,
        each held for a latency: a unit is a byte for a cycle. ``zeros`` are rows of its boxes that lie outside.
        """
        side = self._sides[request.sm_idx]
        tile = self.l2.look_up(request, side)
        num_bytes = request.num_bytes * request.crossings
        earliest = request.issued_at + num_bytes / self.alone_bytes_per_cycle
        port = self.ports[request.sm_idx]
        latency, across_at = self.l2.reach(request, tile, side, port.num_alike)
        latency += self._distances[request.sm_idx]
        if across_at > earliest:
            earliest = across_at
        if places is not None:
            held = self.l2.held_cycles(tile, latency, request.issued_at)
            last = places.reserve(request.num_bytes * held, at_cycle=request.issued_at) - held
            if last > earliest:
                earliest = last
        weight = self._bulk_weight if group is not None and request.num_bytes > MOST_ROW_BYTES * request.num_rows else 1.0
        of_requests = request.num_line_requests * self.l2.spec.request_bytes
        counters = self.counters
        counters.asked_bytes += num_bytes
        if self._merges:
            moved, rate = port.link.slices.moved()
            asked = moved + (request.issued_at - self._agenda.cycle) * rate
            ask = Ask(
                tile, num_bytes, weight, asked, request.reads, request.sharing, of_requests, request.request_sharing,
                zeros=zeros,
            )
        else:
            counters.passed_bytes += num_bytes
            counters.served_bytes += num_bytes * request.reads
            ask = Ask(None, num_bytes, weight, 0.0, request.reads, request_bytes=of_requests, zeros=zeros)
        if zeros is not None:
            self._count_zeros(zeros, request, 1)
        by_warps = request if request.num_warps > 1 else None
        self._deliver(request.sm_idx, ask, request, (tile, earliest, latency, done, by_warps), group)

    def multicast(
        self, request: MemoryRequest, receivers: Sequence[tuple[int, Done]], *, bytes_per_cycle: float,
        zeros: Zeros | None = None,
    ) -> None:
        """Fetch a tile once and deliver it to ``receivers`` (SM, done), each of which takes in so much at most.

        So with ``zeros``, rows of its boxes that lie outside.
        """
        side = self._sides[request.sm_idx]
        tile = self.l2.look_up(request, side)
        crossing = request.num_bytes * request.crossings
        earliest = request.issued_at + crossing / self.alone_bytes_per_cycle
        latency, across_at = self.l2.reach(request, tile, side)
        if across_at > earliest:
            earliest = across_at
        weight = self._bulk_weight if request.num_bytes > MOST_ROW_BYTES * request.num_rows else self._multicast_weight
        weight = max(weight, request.num_line_requests * self.l2.spec.request_bytes / crossing)
        stretch = max(1.0, self.alone_bytes_per_cycle / bytes_per_cycle)
        self.counters.asked_bytes += crossing * len(receivers)
        self.counters.passed_bytes += crossing * len(receivers)
        self.counters.served_bytes += crossing * request.reads
        if zeros is not None:
            self._count_zeros(zeros, request, len(receivers))
        for sm_idx, done in receivers:
            num_bytes = crossing * stretch
            ask = Ask(tile, num_bytes, weight / stretch, 0.0, request.reads, merges=False, zeros=zeros)
            self._deliver(sm_idx, ask, request, (tile, earliest, latency, done, None), done)
            weight = 0.0
            zeros = None if zeros is None else Zeros(zeros.num_bytes, 0.0)

    def read_zeros(
        self, request: MemoryRequest, receivers: Sequence[tuple[int, Done]], zeros: Zeros, *, group: object = None
    ) -> None:
        """Boxes that lie outside of their tensor as a whole, for each of ``receivers`` (SM, done)."""
        earliest = request.issued_at + zeros.num_bytes / self.alone_bytes_per_cycle
        self._count_zeros(zeros, request, len(receivers))
        for sm_idx, done in receivers:
            ask = Ask(None, 0.0, 1.0, 0.0, request.reads, zeros=zeros)
            part = (self._zero_tile, earliest, self.l2.spec.near_latency_cycles + self._distances[sm_idx], done, None)
            self._deliver(sm_idx, ask, request, part, done if group is None else group)
            zeros = Zeros(zeros.num_bytes, 0.0)

    def _count_zeros(self, zeros: Zeros, request: MemoryRequest, num_receivers: int) -> None:
        """What has been asked for."""
        counters = self.counters
        counters.asked_bytes += zeros.num_bytes * num_receivers
        counters.read_bytes += zeros.num_bytes * num_receivers * request.num_alike

    def write(
        self, request: MemoryRequest, done: Done, arrived: Done, *, num_distinct_bytes: float, kind: StoreKind = "st",
        num_more_bytes: float = 0.0, num_packet_bytes: float = 0.0, packet_bytes: float = LINE_BYTES,
    ) -> None:
        """Store a tile; ``done(cycle)`` is called when its last byte has left the SM, and L2 has room for it.

        ``arrived(cycle)`` is called when that byte has passed what L2 takes of all SMs.

        ``num_distinct_bytes`` are what the stores change: partial sectors cross the port one by one and meet in L2.
        ``num_more_bytes`` pass the port beside the request's: headers and masks. ``num_packet_bytes`` are what the
        packets of threads' stores take in all, of the port and of L2, where that is more than the request; ``packet_bytes``
        is what one of them takes.
        """
        num_alike = self.ports[request.sm_idx].num_alike
        done = self.l2.store(request, done, num_distinct_bytes=num_distinct_bytes, kind=kind, num_sms=num_alike)
        num_bytes = request.num_bytes + num_more_bytes
        if kind == "red":
            num_bytes += request.num_bytes * self.spec.red_header_fraction
        if num_packet_bytes > num_bytes:
            num_bytes = num_packet_bytes
        left_at = self.store_ports[request.sm_idx].reserve(num_bytes, at_cycle=request.issued_at)
        link, side = self._write_links[self._parts[request.sm_idx]], self._sides[request.sm_idx]

        crossing = max(request.num_bytes, num_packet_bytes)  # a packet is as long on a link as on the port

        def cross(cycle: float) -> tuple[float, float]:
            since = max(cycle, request.issued_at)
            across_at, last_at = self.l2.across(
                crossing, side, at_cycle=since, num_sms=num_alike, weight=request.num_alike / num_alike
            )
            passed_at = link.reserve_alike(crossing, num_alike, at_cycle=since)
            return max(across_at, passed_at), max(last_at, passed_at)

        self._stores_of[request.sm_idx].send(
            max(request.num_bytes, num_packet_bytes), now=self._agenda.cycle, through_at=left_at, cross=cross, left=done,
            arrived=arrived, packet_bytes=packet_bytes,
        )
        self.counters.write_bytes += request.num_bytes * request.num_alike

    def packet_bytes(self, num_lines: float, num_sectors: float, num_bytes: float, *, kind: StoreKind = "st") -> float:
        """Bytes of the port's time that threads' stores take, or their reductions, which have a header for each line."""
        lines = num_lines * self.spec.store_packet_bytes
        if kind == "red":
            headers = num_lines * LINE_BYTES * self.spec.red_header_fraction
            return max(lines, num_sectors * SECTOR_BYTES + headers)
        masks = 2.0 * (num_sectors * SECTOR_BYTES - num_bytes) / SECTOR_BYTES  # of sectors half full, one for a line's
        sectors = num_sectors + min(max(masks, 0.0), num_lines, num_sectors)
        return max(lines, sectors * SECTOR_BYTES)

    @property
    def asked(self) -> tuple[float, float, float]:
        """Bytes of reads so far: asked for and let pass, served, carried. For :meth:`stand_for_rest`."""
        counters = self.counters
        return counters.passed_bytes, counters.served_bytes, counters.carried_bytes

    @property
    def told(self) -> tuple[float, float, float]:
        """The same, with what was left out so far."""
        left_out = self._left_out
        asked, served, carried = self.asked
        return asked + left_out[0], served + left_out[1], carried + left_out[2]

    def stand_for_rest(self, since: tuple[float, float, float], until: tuple[float, float, float]) -> None:
        """What has been left out merged as what was asked for in between: all bytes read, less those accounted for."""
        window_bytes = until[0] - since[0]
        rest = self.counters.read_bytes - self.counters.asked_bytes - self._left_out[0]
        if window_bytes:
            for idx in range(3):
                self._left_out[idx] += (until[idx] - since[idx]) / window_bytes * rest

    def settle(self) -> None:
        """Sectors that the slices read for the SMs: what crossed the ports, by the share that did not merge."""
        counters, (asked, served, carried) = self.counters, self._left_out
        counters.asked_bytes += asked
        counters.served_bytes += served
        counters.carried_bytes += carried
        if counters.asked_bytes:
            served = counters.served_bytes / counters.asked_bytes
            self.l2.counters.read_sectors = counters.read_bytes * served / SECTOR_BYTES

    @property
    def busy_bytes(self) -> float:
        """What the slices could have served in the time that they took for reads."""
        counters = self.counters
        return counters.read_bytes * counters.carried_bytes / counters.asked_bytes if counters.asked_bytes else 0.0

    def _deliver(self, sm_idx: int, ask: Ask, request: MemoryRequest, part: Part, group: object) -> None:
        self.counters.read_bytes += request.num_bytes * request.crossings * request.num_alike
        port = self.ports[sm_idx]
        active = port.active
        if active is None:
            _Transfer(self, port, ask, part, group).start()
            return
        last = port.waiting[-1] if port.waiting else active
        if group is not None and last.group is group:
            last.join(ask, part)
        else:
            port.waiting.append(_Transfer(self, port, ask, part, group))
