"""The crossbar between SMs and L2: ports, slices, and the merging of requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import simpy

from gpusim.machine.component import Component, Counters, MemoryRequest
from gpusim.machine.floorplan import Floorplan
from gpusim.machine.memory.l2 import L2, StoreKind, TileState
from gpusim.machine.timing import Done, Pipe, SharedPipe, Ticket
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
    store_packet_bytes: float
    """What threads' stores of one line take of their SM's port at least, however little of it they store."""
    red_header_fraction: float
    """What a reduction takes of its SM's port beyond its bytes, as a part of these."""
    gpc_read_bytes_per_cycle: float
    """What all SMs of a GPC together take in."""
    gpc_write_bytes_per_cycle: float
    """What they give out."""
    bulk_read_fraction: float
    """Of what slices and links carry of loads, what they carry of bulk copies."""
    merge_scope: Literal["sm", "tpc", "gpc"]
    """Whose requests for one line can merge; ``sm``: nobody's."""
    merge_limit: int
    """Requests that become one at most."""
    merge_window_cycles: float
    """How long after the first request a second still joins it, where the line is in L2."""


@dataclass(slots=True)
class XbarCounters(Counters):
    """Bytes at the SMs' ports."""

    read_bytes: float = field(default=0.0, metadata={"ncu": "l1tex__m_xbar2l1tex_read_bytes.sum"})
    write_bytes: float = field(default=0.0, metadata={"ncu": "l1tex__m_l1tex2xbar_write_bytes.sum"})
    asked_bytes: float = 0.0
    """Bytes of the reads that were simulated, each counted once."""
    served_bytes: float = 0.0
    """Of these, what the slices served: merged requests and further receivers of a multicast ride along."""
    carried_bytes: float = 0.0
    """The same, with what bulk copies take beyond their bytes."""


class _Link:
    """A GPC's way in, which slices serve it, and how many of its SMs are live."""

    __slots__ = (
        "is_narrow", "num_live", "num_lone_live", "pipe", "share", "slices", "whole_share_bytes_per_cycle",
    )

    def __init__(self, bytes_per_cycle: float, whole_share_bytes_per_cycle: float, slices: SharedPipe) -> None:
        self.pipe = Pipe(units_per_cycle=bytes_per_cycle)
        self.slices = slices
        """Those of its side."""
        self.share = 1.0
        """What one of its SMs gets of them while they are short, where the mean of their SMs gets 1."""
        self.num_lone_live = 0
        """Of its live SMs those in lone pairs, which the slices serve in a turn of their own."""
        self.whole_share_bytes_per_cycle = whole_share_bytes_per_cycle
        """What the slices serve its SMs of while all SMs are live: that they were measured with."""
        self.num_live = 0
        self.is_narrow = False
        """Whether it carries less than slices and ports would give its live SMs."""


    @property
    def num_turns(self) -> int:
        """Turns that its SMs have among those of other GPCs: one, and one for its lone pairs."""
        return (self.num_live > self.num_lone_live) + (self.num_lone_live > 0)


def by_turns(total: float, turns: Sequence[int], most: Sequence[float]) -> list[float]:
    """What each gets of ``total`` who has so many ``turns`` and takes ``most`` at most; what one leaves others share.

    >>> by_turns(90.0, [1, 1, 2], [50.0, 50.0, 30.0])
    [30.0, 30.0, 30.0]
    >>> by_turns(100.0, [1, 1], [10.0, 20.0])
    [10.0, 20.0]
    """
    gets = [0.0] * len(turns)
    wanting = list(range(len(turns)))
    while wanting:
        turn = total / sum(turns[idx] for idx in wanting)
        full = [idx for idx in wanting if most[idx] <= turn * turns[idx]]
        for idx in full or wanting:
            gets[idx] = most[idx] if full else turn * turns[idx]
        total -= sum(gets[idx] for idx in full)
        wanting = [idx for idx in wanting if idx not in full] if full else []
    return gets


class _Port:
    """One SM's way in: transfers one after the other, the first of them sharing the slices with other SMs."""

    __slots__ = ("active", "link", "waiting")

    def __init__(self, link: _Link) -> None:
        self.link = link
        self.active: _Transfer | None = None
        self.waiting: deque[_Transfer] = deque()


NARROW = 1.2
"""A link is looked at where its SMs would get so much more than with all SMs live: fewer are live, and unevenly. A margin
chosen for speed and not measured: with all SMs live, what the links cost is in ``l2.sustained_fraction``."""


Part = tuple[TileState, float, float, Done]
"""A request's share of a transfer: its tile, the cycle before which its last byte cannot pass, its latency, whom to tell."""


class _Transfer:
    """Reads on their way through a port: one request, or neighbours that are waited for together."""

    __slots__ = ("count", "group", "link_at", "more", "num_bytes", "part", "port", "ticket", "weight", "xbar")

    def __init__(
        self, xbar: Xbar, port: _Port, num_bytes: float, weight: float, part: Part, group: object, count: float
    ) -> None:
        self.xbar = xbar
        self.port = port
        self.num_bytes = num_bytes
        self.weight = weight
        self.part = part
        self.more: list[Part] | None = None
        self.group = group
        self.count = count
        self.link_at = 0.0
        """When the link of the GPC has carried it."""
        self.ticket: Ticket | None = None

    def start(self) -> None:
        """Begin to move."""
        port = self.port
        port.active = self
        if port.link.is_narrow:
            self.link_at = port.link.pipe.reserve(self.num_bytes * self.weight, at_cycle=self.xbar.now())
        link = port.link
        share = link.share if self.group is None else 1.0
        self.ticket = link.slices.transfer(self.num_bytes, self, self.weight, share)

    def join(self, num_bytes: float, weight: float, part: Part) -> None:
        """Take a neighbour along."""
        total = self.num_bytes + num_bytes
        mean = (self.weight * self.num_bytes + weight * num_bytes) / total
        self.num_bytes = total
        self.weight = mean
        if self.ticket is not None:
            if self.port.link.is_narrow:
                self.link_at = self.port.link.pipe.reserve(num_bytes * weight, at_cycle=self.xbar.now())
            self.ticket = self.port.link.slices.extend(self.ticket, num_bytes, mean)
        if self.more is None:
            self.more = [part]
        else:
            self.more.append(part)

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
        spread = self.xbar.l2.spread_cycles(self.num_bytes / LINE_BYTES)
        _hand_over(self.part, cycle, spread)
        if self.more is not None:
            for part in self.more:
                _hand_over(part, cycle, spread)


def _hand_over(part: Part, passed_at: float, spread_cycles: float) -> None:
    """A request's last byte is in the SM a latency after it could pass the port and its tile's fill was in L2."""
    tile, earliest, latency_cycles, done = part
    latency_cycles += spread_cycles
    ready_at = passed_at if passed_at > earliest else earliest
    done_at = tile.done_at
    if done_at is None:
        tile.waiting.append((ready_at, latency_cycles, done))
    else:
        done((ready_at if ready_at > done_at else done_at) + latency_cycles)


class _StorePort:
    """One SM's stores on their way to L2: one after the other, so that SMs share what L2 takes, not transfers.

    Positions are bytes since the beginning. A store has left the SM when all of it but what the way holds has passed.
    """

    __slots__ = (
        "_arriving", "_begins", "_crossed_at", "_current_end", "_ends", "_env", "_held_bytes", "_is_busy", "_leaving",
        "_passed", "_pipe", "_sent",
    )

    def __init__(self, env: simpy.Environment, pipe: SharedPipe, held_bytes: float) -> None:
        self._env = env
        self._pipe = pipe
        self._crossed_at = self._current_end = 0.0
        self._held_bytes = held_bytes
        self._is_busy = False
        self._sent = 0.0
        self._passed = 0.0
        self._ends: deque[float] = deque()
        self._begins: deque[tuple[float, float, list[float], Callable[[float], float]]] = deque()
        self._leaving: deque[tuple[float, list[float], Done]] = deque()
        self._arriving: deque[tuple[float, list[float], Done]] = deque()

    def send(
        self, num_bytes: float, *, now: float, through_at: float, cross: Callable[[float], float], left: Done, arrived: Done
    ) -> None:
        """Move ``num_bytes``, whose turn at the SM's own port is over at ``through_at``, behind those before them.

        ``cross(cycle)`` is asked when their turn comes: when will they have passed the links that SMs share?
        """
        begin = self._sent
        self._sent = end = begin + num_bytes
        leaves_at = end - self._held_bytes
        if begin < leaves_at < end:
            self._ends.append(leaves_at)
        self._ends.append(end)
        through = [through_at]
        self._begins.append((begin, end, through, cross))
        self._leaving.append((leaves_at, through, left))
        self._arriving.append((end, through, arrived))
        if not self._is_busy:
            self._start(now)
        self._tell(self._leaving, now)

    def _start(self, cycle: float) -> None:
        self._is_busy = bool(self._ends)
        begins = self._begins
        while begins and begins[0][0] <= self._passed:
            _, self._current_end, through, cross = begins.popleft()
            self._crossed_at = cross(cycle)
            if self._crossed_at > through[0]:
                through[0] = self._crossed_at
        if self._ends:
            self._pipe.transfer(self._ends[0] - self._passed, self)

    def __call__(self, cycle: float) -> None:
        """Bytes have passed up to the next end; the next store's turn comes when this one has crossed."""
        wait_cycles = self._crossed_at - self._env.now
        if self._ends[0] == self._current_end and wait_cycles > 0.0:
            event = self._env.timeout(wait_cycles)
            assert event.callbacks is not None  # a new event has not been processed
            event.callbacks.append(lambda _: self._advance(self._env.now))
        else:
            self._advance(cycle)

    def _advance(self, cycle: float) -> None:
        self._passed = self._ends.popleft()
        self._start(cycle)
        self._tell(self._leaving, cycle)
        self._tell(self._arriving, cycle)

    def _tell(self, waiting: deque[tuple[float, list[float], Done]], cycle: float) -> None:
        while waiting and waiting[0][0] <= self._passed:
            _, (through_at,), done = waiting.popleft()
            done(cycle if cycle > through_at else through_at)


class Xbar(Component):
    """Ports, slices and merging.

    Models: a limit on what one SM takes in, one on what the L2 slices of a side serve to its SMs (loads in turns of GPCs, so
    that an SM of a larger one gets less; lone pairs have a turn of their own), and their own for stores, whose port takes
    an SM's one after the other and behind which some wait for L2, reductions with a header a line, lines that threads store
    in small parts with what a packet takes at least, sectors stored in part (taken to be half) with a mask; a link for each
    GPC, one each way, which takes requests in order (the way in only while so few GPCs are live that it can matter: what it
    costs when all are is in what the slices serve); a limit on what loads of an SM's threads have asked for and not got (a
    miss holds its place for longer than a hit); bulk copies, whose lines are asked for in order, so that the first in line
    holds up the rest where threads' loads pass one another, take more of links and slices than their bytes; a second
    request for a tile from another SM of the same GPC joins the first while that is in flight, and costs slices and link
    nothing; multicast (one read, several receivers).
    Ignores: turns of bulk copies and of stores, which SMs share evenly; fair shares of a link among requests of one moment
    (an earlier one is carried whole); links of parts of a GPC; what merged readers take of their GPC's own network; reads'
    requests on the way that stores take; that stores are acknowledged late; imbalance of slices; sides with unlike numbers
    of SMs, which have slices in proportion; that lines which were lost are asked for anew by each GPC, where another SM's
    request of an earlier time is still joined while the fill is under way.
    Source: the GPU's description; turns and sides: kernels/memory_bandwidth (all SMs read out of L2: the slowest 32 B a
    cycle, the median 37, the fastest 49, as 590 a GPC of 18 or 16 and more for the one with lone pairs) and l2_residency (66
    SMs of one side get no more than beside the other 66), h200_sxm, 2026-11-20; that a queue's head holds up what is behind
    it: Karol, Hluchyj and Morgan, IEEE Transactions on Communications 35(12), 1987.
    """

    kind = "xbar"

    def __init__(self, env: simpy.Environment, spec: XbarSpec, *, l2: L2, floorplan: Floorplan) -> None:
        """A port for each SM of ``floorplan`` and two links for each GPC, on one set of slices."""
        self._env = env
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
        self._side_slices = {
            side: SharedPipe(
                env, bytes_per_cycle=slices * sides.count(side) / len(sides),
                cap_bytes_per_cycle=spec.sm_read_bytes_per_cycle,
            )
            for side in sorted(set(sides))
        }
        self._links = [
            _Link(
                spec.gpc_read_bytes_per_cycle, slices * gpcs.count(gpc_idx) / len(gpcs),
                self._side_slices[sides[gpcs.index(gpc_idx)]],
            )
            for gpc_idx in range(len(floorplan.members))
        ]
        self._lone = frozenset(floorplan.lone)
        write_links = [Pipe(units_per_cycle=spec.gpc_write_bytes_per_cycle) for _ in floorplan.members]
        self.store_ports = [Pipe(units_per_cycle=spec.sm_write_bytes_per_cycle) for _ in gpcs]
        self._stores_of = [_StorePort(env, self.stores, spec.store_way_bytes) for _ in gpcs]
        self._store_links = [write_links[gpc_idx] for gpc_idx in gpcs]
        self.ports = [_Port(self._links[gpc_idx]) for gpc_idx in gpcs]
        self._sides = sides
        self._regions = floorplan.groups(spec.merge_scope)
        self._merges = spec.merge_scope != "sm" and spec.merge_limit > 1
        self._bulk_weight = 1.0 / spec.bulk_read_fraction

    def is_live(self, sm_idx: int, *, is_live: bool) -> None:
        """An SM has its first CTA, or has lost its last: whose link is in the way now?"""
        mine = self.ports[sm_idx].link
        mine.num_live += 1 if is_live else -1
        if sm_idx in self._lone:
            mine.num_lone_live += 1 if is_live else -1
        spec = self.spec
        links = [link for link in self._links if link.slices is mine.slices and link.num_live]
        if not links:
            return
        num_live = sum(link.num_live for link in links)
        total = mine.slices.total
        each = min(spec.sm_read_bytes_per_cycle, total / num_live)
        turns = [link.num_turns for link in links]
        most = [min(spec.gpc_read_bytes_per_cycle, link.num_live * spec.sm_read_bytes_per_cycle) for link in links]
        for link, gets in zip(links, by_turns(total, turns, most), strict=True):
            share = link.num_live * each
            link.is_narrow = share > max(spec.gpc_read_bytes_per_cycle, NARROW * link.whole_share_bytes_per_cycle)
            link.share = gets / share if gets else 1.0

    def now(self) -> float:
        """The present."""
        return self._env._now

    def read(
        self, request: MemoryRequest, done: Done, *, group: object = None, places: Pipe | None = None
    ) -> None:
        """Fetch a tile into one SM; ``done(cycle)`` is called when the arrival of its last byte is known.

        Bulk copies have a ``group``; those with the same that follow one another are waited for together (they complete
        one phase of one mbarrier) and move as one. ``places`` are those for bytes that were asked for and are not there,
        each held for a latency: a unit is a byte for a cycle.
        """
        side = self._sides[request.sm_idx]
        tile = self.l2.look_up(request, side)
        earliest = request.issued_at + request.num_bytes / self.alone_bytes_per_cycle
        latency, across_at = self.l2.reach(request, tile, side)
        if across_at > earliest:
            earliest = across_at
        if places is not None:
            held = self.l2.held_cycles(tile, latency, request.issued_at)
            last = places.reserve(request.num_bytes * held, at_cycle=request.issued_at) - held
            if last > earliest:
                earliest = last
        self._deliver(
            request.sm_idx, self._merge(request, tile, self._regions[request.sm_idx]), request,
            (tile, earliest, latency, done), group,
        )

    def multicast(
        self, request: MemoryRequest, receivers: Sequence[tuple[int, Done]], *, bytes_per_cycle: float
    ) -> None:
        """Fetch a tile once and deliver it to ``receivers`` (SM, done), each of which takes in so much at most."""
        side = self._sides[request.sm_idx]
        tile = self.l2.look_up(request, side)
        earliest = request.issued_at + request.num_bytes / self.alone_bytes_per_cycle
        latency, across_at = self.l2.reach(request, tile, side)
        if across_at > earliest:
            earliest = across_at
        weight, stretch = 1.0, max(1.0, self.alone_bytes_per_cycle / bytes_per_cycle)
        for sm_idx, done in receivers:
            self._deliver(sm_idx, weight, request, (tile, earliest, latency, done), done, stretch)
            weight = 0.0

    def write(
        self, request: MemoryRequest, done: Done, arrived: Done, *, num_distinct_bytes: float, kind: StoreKind = "st",
        num_more_bytes: float = 0.0, num_packet_bytes: float = 0.0,
    ) -> None:
        """Store a tile; ``done(cycle)`` is called when its last byte has left the SM, and L2 has room for it.

        ``arrived(cycle)`` is called when that byte has passed what L2 takes of all SMs.

        ``num_distinct_bytes`` are what the stores change: partial sectors cross the port one by one and meet in L2.
        ``num_more_bytes`` pass the port beside the request's: headers and masks. ``num_packet_bytes`` are what the
        packets of threads' stores take in all, of the port and of L2, where that is more than the request.
        """
        done = self.l2.store(request, done, num_distinct_bytes=num_distinct_bytes, kind=kind)
        num_bytes = request.num_bytes + num_more_bytes
        if kind == "red":
            num_bytes += request.num_bytes * self.spec.red_header_fraction
        if num_packet_bytes > num_bytes:
            num_bytes = num_packet_bytes
        left_at = self.store_ports[request.sm_idx].reserve(num_bytes, at_cycle=request.issued_at)
        link, side = self._store_links[request.sm_idx], self._sides[request.sm_idx]

        def cross(cycle: float) -> float:
            since = max(cycle, request.issued_at)
            across_at = self.l2.across(request.num_bytes, side, at_cycle=since)
            return max(across_at, link.reserve(request.num_bytes, at_cycle=since))

        self._stores_of[request.sm_idx].send(
            max(request.num_bytes, num_packet_bytes), now=self._env._now, through_at=left_at, cross=cross, left=done,
            arrived=arrived,
        )
        self.counters.write_bytes += request.num_bytes * request.num_alike

    def packet_bytes(self, num_lines: float, num_sectors: float, num_bytes: float) -> float:
        """Bytes of the port's time that threads' stores take."""
        masks = 2.0 * (num_sectors * SECTOR_BYTES - num_bytes) / SECTOR_BYTES  # of sectors half full
        sectors = num_sectors + min(max(masks, 0.0), num_sectors)
        lines = num_lines * self.spec.store_packet_bytes
        return max(lines, sectors * SECTOR_BYTES)

    def settle(self) -> None:
        """Sectors that the slices read for the SMs: what crossed the ports, by the share that did not merge."""
        counters = self.counters
        if counters.asked_bytes:
            served = counters.served_bytes / counters.asked_bytes
            self.l2.counters.read_sectors = counters.read_bytes * served / SECTOR_BYTES

    @property
    def busy_bytes(self) -> float:
        """What the slices could have served in the time that they took for reads."""
        counters = self.counters
        return counters.read_bytes * counters.carried_bytes / counters.asked_bytes if counters.asked_bytes else 0.0

    def _deliver(
        self, sm_idx: int, weight: float, request: MemoryRequest, part: Part, group: object, stretch: float = 1.0
    ) -> None:
        """``stretch``: by how much longer than its bytes the transfer has the port."""
        num_bytes, count = request.num_bytes, request.num_alike
        counters = self.counters
        counters.read_bytes += num_bytes * count
        counters.asked_bytes += num_bytes
        counters.served_bytes += num_bytes * weight
        if group is not None:
            weight *= self._bulk_weight
        counters.carried_bytes += num_bytes * weight
        num_bytes *= stretch
        weight /= stretch
        port = self.ports[sm_idx]
        active = port.active
        if active is None:
            _Transfer(self, port, num_bytes, weight, part, group, count).start()
            return
        last = port.waiting[-1] if port.waiting else active
        if group is not None and last.group is group:
            last.join(num_bytes, weight, part)
        else:
            port.waiting.append(_Transfer(self, port, num_bytes, weight, part, group, count))

    def _merge(self, request: MemoryRequest, tile: TileState, region: int) -> float:
        """Weight of ``request`` at the slices: 0 where it joins a neighbour's that is in flight, else 1."""
        if not self._merges:
            return 1.0
        issued_at = request.issued_at
        leader = tile.leaders.get(region)
        if leader is not None and leader[1] < self.spec.merge_limit - 1 and leader[2] != request.sm_idx:
            done_at = tile.done_at
            if issued_at - leader[0] <= self.spec.merge_window_cycles or done_at is None or done_at > issued_at:
                leader[1] += 1
                return 0.0
        tile.leaders[region] = [issued_at, 0, request.sm_idx]
        return 1.0
