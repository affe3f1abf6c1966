"""The crossbar between SMs and L2: ports, slices, and the merging of requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

import simpy

from gpusim.machine.component import Component, Counters, MemoryRequest
from gpusim.machine.memory.l2 import L2, Fill
from gpusim.machine.timing import Done, SharedPipe, Ticket
from gpusim.units import SECTOR_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class XbarSpec:
    """What one SM takes in and gives out, and where requests merge."""

    sm_read_bytes_per_cycle: float
    sm_write_bytes_per_cycle: float
    write_bytes_per_cycle: float
    """What all SMs together can store."""
    merge_group_sms: int
    """Neighbouring SMs whose requests for one line can merge; 1 means that nothing merges."""
    merge_limit: int
    """Requests that become one at most."""
    merge_window_cycles: float
    """How long after the first request a second still joins it, where the line is in L2."""


@dataclass(slots=True)
class XbarCounters(Counters):
    """Bytes at the SMs' ports."""

    read_bytes: float = field(default=0.0, metadata={"ncu": "l1tex__m_xbar2l1tex_read_bytes.sum"})
    write_bytes: float = field(default=0.0, metadata={"ncu": "l1tex__m_l1tex2xbar_write_bytes.sum"})
    merged_bytes: float = 0.0


class _Port:
    """One SM's way in: transfers one after the other, the first of them sharing the slices with other SMs."""

    __slots__ = ("active", "waiting")

    def __init__(self) -> None:
        self.active: _Transfer | None = None
        self.waiting: deque[_Transfer] = deque()


class _Part:
    """One request's share of a transfer."""

    __slots__ = ("done", "fill", "lag")

    def __init__(self, fill: Fill | None, lag: float, done: Done) -> None:
        self.fill = fill
        self.lag = lag
        self.done = done

    def finish(self, cycle: float) -> None:
        """The last byte passes the slices at ``cycle`` and is there a latency later, or with its fill."""
        fill = self.fill
        if fill is None:
            self.done(cycle)
            return
        done_at = fill.done_at
        if done_at is None:
            fill.waiting.append((cycle, self.done))
        else:
            self.done(cycle if cycle > done_at else done_at)


class _Transfer:
    """Reads on their way through a port: one request, or neighbours that are waited for together."""

    __slots__ = ("count", "group", "more", "num_bytes", "part", "port", "ticket", "weight", "xbar")

    def __init__(
        self, xbar: Xbar, port: _Port, num_bytes: float, weight: float, part: _Part, group: object, count: float
    ) -> None:
        self.xbar = xbar
        self.port = port
        self.num_bytes = num_bytes
        self.weight = weight
        self.part = part
        self.more: list[_Part] | None = None
        self.group = group
        self.count = count
        self.ticket: Ticket | None = None

    def start(self) -> None:
        """Begin to move."""
        self.port.active = self
        self.ticket = self.xbar.slices.transfer(self.num_bytes, self, weight=self.weight, count=self.count)

    def join(self, num_bytes: float, weight: float, part: _Part) -> None:
        """Take a neighbour along."""
        total = self.num_bytes + num_bytes
        mean = (self.weight * self.num_bytes + weight * num_bytes) / total
        self.num_bytes = total
        if self.ticket is not None:
            self.ticket = self.xbar.slices.extend(self.ticket, num_bytes, weight=mean, count=self.count)
        self.weight = mean
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
        there = cycle + self.xbar.l2.hit_latency_cycles
        part = self.part
        part.finish(there + part.lag)
        if self.more is not None:
            for part in self.more:
                part.finish(there + part.lag)


class Xbar(Component):
    """Ports, slices and merging.

    Models: a limit on what one SM takes in, one on what the L2 slices serve to all (shared fairly), and their own
    for stores; a second request for a tile from a neighbouring SM joins the first while that is in flight, and costs
    the slices nothing; multicast (one read, several receivers).
    Ignores: GPC and TPC links, imbalance of slices, the path between the two partitions (its latency is in L2's).
    Source: the GPU's description.
    """

    kind = "xbar"

    def __init__(self, env: simpy.Environment, spec: XbarSpec, *, l2: L2, num_sms: int) -> None:
        """``num_sms`` ports on one set of slices."""
        self._env = env
        self.spec = spec
        self.counters = XbarCounters()
        self.l2 = l2
        slices = l2.spec.num_slices * l2.spec.slice_bytes_per_cycle * l2.spec.sustained_fraction
        self.slices = SharedPipe(
            env, bytes_per_cycle=slices, cap_bytes_per_cycle=spec.sm_read_bytes_per_cycle
        )
        self.stores = SharedPipe(
            env, bytes_per_cycle=spec.write_bytes_per_cycle, cap_bytes_per_cycle=spec.sm_write_bytes_per_cycle
        )
        self.ports = [_Port() for _ in range(num_sms)]
        self._leaders: dict[tuple[int, str, Hashable], list[float]] = {}

    def read(self, request: MemoryRequest, done: Done, *, group: object = None) -> None:
        """Fetch a tile into one SM; ``done(cycle)`` is called when the arrival of its last byte is known.

        Requests with the same ``group`` that follow one another are waited for together (they complete one phase of
        one mbarrier) and move as one.
        """
        fill = self.l2.look_up(request)
        weight = self._merge(request, fill)
        num_bytes = request.num_bytes
        if weight:
            self.l2.counters.read_sectors += num_bytes / SECTOR_BYTES * request.count
        else:
            self.counters.merged_bytes += num_bytes * request.count
        self._deliver(request.sm_idx, weight, fill, request, done, group)

    def multicast(self, request: MemoryRequest, receivers: list[tuple[int, Done]]) -> None:
        """Fetch a tile once and deliver it to ``receivers`` (SM, done)."""
        fill = self.l2.look_up(request)
        self.l2.counters.read_sectors += request.num_bytes / SECTOR_BYTES * request.count
        weight = 1.0
        for sm_idx, done in receivers:
            self._deliver(sm_idx, weight, fill, request, done, None)
            weight = 0.0

    def write(self, request: MemoryRequest, done: Done) -> None:
        """Store a tile; ``done(cycle)`` is called when its last byte has left the SM."""
        self.counters.write_bytes += request.num_bytes * request.count
        self.l2.store(request)
        self.stores.transfer(request.num_bytes, done, count=request.count)

    def _deliver(
        self, sm_idx: int, weight: float, fill: Fill | None, request: MemoryRequest, done: Done, group: object
    ) -> None:
        num_bytes, count = request.num_bytes, request.count
        self.counters.read_bytes += num_bytes * count
        port = self.ports[sm_idx]
        part = _Part(fill, request.issued_at - self._env._now, done)
        active = port.active
        if active is None:
            _Transfer(self, port, num_bytes, weight, part, group, count).start()
            return
        last = port.waiting[-1] if port.waiting else active
        if group is not None and last.group is group:
            last.join(num_bytes, weight, part)
        else:
            port.waiting.append(_Transfer(self, port, num_bytes, weight, part, group, count))

    def _merge(self, request: MemoryRequest, fill: Fill | None) -> float:
        """Weight of ``request`` at the slices: 0 where it joins a neighbour's that is in flight, else 1."""
        spec = self.spec
        if spec.merge_group_sms < 2:
            return 1.0
        key = (request.sm_idx // spec.merge_group_sms, request.tensor, request.tile)
        leader = self._leaders.get(key)
        if leader is not None:
            since, num_joined = leader
            is_in_flight = request.issued_at - since <= spec.merge_window_cycles or (
                fill is not None and (fill.done_at is None or fill.done_at > request.issued_at)
            )
            if is_in_flight and num_joined < spec.merge_limit - 1:
                leader[1] = num_joined + 1
                return 0.0
        self._leaders[key] = [request.issued_at, 0]
        return 1.0
