"""TMA loads and stores, bulk groups."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.errors import LaunchError
from gpusim.machine.component import MemoryRequest
from gpusim.machine.memory.merging import Zeros
from gpusim.simulate.costs.memory import Stored
from gpusim.simulate.cta import Cta, Stage
from gpusim.simulate.op_costs import TmaCost
from gpusim.simulate.role import ISSUE, AsyncGroup, Pause, Role, lacks, peer
from gpusim.simulate.timeline import CopySpan, WarpState
from gpusim.units import SECTOR_BYTES
from gpusim.workload import ops


def tma_load(role: Role, op: ops.TmaLoad) -> Pause:
    """The engine walks the boxes while the data come; completion counts on an mbarrier."""
    tma = role.sm.tma
    if tma is None:
        raise lacks(role, "cp.async.bulk.tensor (TMA)", "9.0")
    cost = role.engine.op_costs.tma.get(id(op))
    if cost is None:
        cost = role.engine.op_costs.of_tma(op, tma)
    count = role.count
    role.spend(WarpState.LSU, tma.room_at())
    role.step(tma.spec.issue_cycles)
    cost.times += count
    num_bytes, receivers, below = cost.num_fetched_bytes, cost.multicast, role.sm.l1.below
    begins_at = tma.map_at(cost.tensor, role.t)
    at = tma.take(cost.cycles, num_boxes=cost.num_boxes, at_cycle=begins_at, weight=count)  # when the engine comes to it
    behind = below.behind_stores(role.sm.idx, cost.num_lines, at)
    if behind > at:
        begins_at, at = begins_at + behind - at, behind
    if not receivers:
        done = TmaArrived(role, role.cta, cost)
        if num_bytes:
            request = role.request(
                cost.tensor, cost.tile, num_bytes, at=at, num_rows=cost.num_rows, come_along=cost.come_along,
                fetches=cost.fetches,
            )
            request.new_fraction = cost.new_fraction
            if begins_at > role.t:
                read_later(role, begins_at, request, done, cost.zeros)
            else:
                below.read(request, done, group=done.barrier, zeros=cost.zeros)
        elif cost.zeros is not None:
            read_zeros(role, cost, [(role.sm.idx, done)], at, begins_at, done.barrier)
        else:
            done(at)
        return None
    told = []
    for rank in receivers:
        cta = peer(role, rank)
        told.append((cta.sm.idx, TmaArrived(role, cta, cost)))
    if num_bytes:
        request = role.request(
            cost.tensor, cost.tile, num_bytes, at=at, num_rows=cost.num_rows, come_along=cost.come_along,
            fetches=cost.fetches,
        )
        request.new_fraction = cost.new_fraction
        if begins_at > role.t:
            multicast_later(role, begins_at, request, told, tma.spec.bytes_per_cycle, cost.zeros)
        else:
            below.multicast(request, told, bytes_per_cycle=tma.spec.bytes_per_cycle, zeros=cost.zeros)
    elif cost.zeros is not None:
        read_zeros(role, cost, told, at, begins_at, None)
    else:
        for _, done in told:
            done(at)
    return None


def read_later(
    role: Role, at_cycle: float, request: MemoryRequest, done: TmaArrived, zeros: Zeros | None
) -> None:
    """Read when the tensor's map is there, and what stands before it has left the SM."""
    below = role.sm.l1.below
    role.agenda.later(at_cycle - role.agenda.cycle, lambda: below.read(request, done, group=done.barrier, zeros=zeros))


def multicast_later(
    role: Role, at_cycle: float, request: MemoryRequest, receivers: Sequence[tuple[int, TmaArrived]], rate: float,
    zeros: Zeros | None,
) -> None:
    """The same of a copy to several CTAs."""
    below = role.sm.l1.below
    role.agenda.later(
        at_cycle - role.agenda.cycle, lambda: below.multicast(request, receivers, bytes_per_cycle=rate, zeros=zeros)
    )


def read_zeros(
    role: Role, cost: TmaCost, receivers: Sequence[tuple[int, TmaArrived]], at_cycle: float, map_at: float, group: object
) -> None:
    """A copy of which nothing lies in its tensor; ``at_cycle``: when the engine comes to it, ``map_at``: its map."""
    below, zeros = role.sm.l1.below, cost.zeros
    assert zeros is not None  # all of its rows
    request = role.request(cost.tensor, cost.tile, 0.0, at=at_cycle)
    if map_at > role.t:
        role.agenda.later(map_at - role.agenda.cycle, lambda: below.read_zeros(request, receivers, zeros, group=group))
    else:
        below.read_zeros(request, receivers, zeros, group=group)


def tma_store(role: Role, op: ops.TmaStore) -> Pause:
    """The engine reads shared memory and stores; the group knows when the source is free."""
    tma = role.sm.tma
    if tma is None:
        raise lacks(role, "cp.async.bulk.tensor (TMA)", "9.0")
    role.spend(WarpState.LSU, tma.room_at())
    role.spend(ISSUE, role.t + tma.spec.issue_cycles)
    tma.counters.store_instructions += op.num_boxes * role.count
    cycles = op.num_boxes * tma.spec.store_box_cycles
    map_at = tma.map_at(op.tensor, role.t)
    at = tma.take(cycles, num_boxes=op.num_boxes, at_cycle=map_at, weight=role.count)  # when the engine comes to it
    stage = role.stage(op.buffer, op.stage)
    read, whole = role.groups.bulk_open
    read.add()
    whole.add()
    if stage is not None:
        stage.begin_read(role.t, "" if stage.is_full(role.t) else role.who())
    role.engine.has_stored = True
    stored = BulkStored(role, read, whole, stage)
    request = MemoryRequest(role.sm.idx, op.tensor, op.tile, op.num_bytes, role.wave, at, role.count)
    more = op.num_boxes * tma.spec.store_header_bytes + _mask_bytes(op)

    def write() -> None:
        role.sm.l1.below.write(
            request, stored, stored.arrived, num_distinct_bytes=op.num_bytes, kind="red" if op.reduce else "st",
            num_more_bytes=more,
        )  # fmt: skip

    if map_at > role.t:
        role.agenda.later(map_at - role.agenda.cycle, write)
    else:
        write()
    return None


def _mask_bytes(op: ops.TmaStore) -> float:
    """A sector that is stored in part, one of each row, takes the port's time of two whole ones."""
    num_rows = max(op.num_rows, 1)
    rest = op.num_bytes / num_rows % SECTOR_BYTES
    return num_rows * (2 * SECTOR_BYTES - rest) if rest else 0.0


def bulk_commit(role: Role, op: ops.BulkCommitGroup) -> Pause:
    """Close the group."""
    read, whole = role.groups.bulk_open
    role.groups.bulk.append(role.groups.bulk_open)
    role.groups.bulk_open = (AsyncGroup(read), AsyncGroup(whole))
    return None


def bulk_wait(role: Role, op: ops.BulkWaitGroup) -> Pause:
    """Until the group has read its source, or is complete."""
    if op.num_pending < 0:
        raise LaunchError(f"{role.who()} waits until {op.num_pending} groups are in flight, wants 0 or more")
    groups = role.groups.bulk
    if len(groups) <= op.num_pending:
        return None
    assert role.engine.gpu.tma is not None  # there are groups
    role.sm.smem.count(float(role.num_warps) * role.count)
    role.spend(ISSUE, role.t + role.engine.gpu.tma.group_wait_cycles)
    group = groups[len(groups) - 1 - op.num_pending][0 if op.read else 1]
    if not op.read:
        while len(groups) > op.num_pending:
            groups.popleft()
    return role.wait_group(group, WarpState.WAIT_BULK, f"cp.async.bulk.wait_group {op.num_pending}")


def prefetch_tensormap(role: Role, op: ops.PrefetchTensormap) -> Pause:
    """One instruction each; the fetch goes on by itself."""
    tma = role.sm.tma
    if tma is None:
        raise lacks(role, "prefetch.tensormap (TMA)", "9.0")
    for tensor in op.tensors:
        role.issue(1)
        tma.prefetch(tensor, role.t)
    return None


class TmaArrived:
    """A TMA copy is complete in one CTA."""

    __slots__ = ("_copy", "_cta", "_role", "_stage", "_started", "barrier")

    def __init__(self, role: Role, cta: Cta, copy: TmaCost) -> None:
        self._role = role
        self._cta = cta
        self._copy = copy
        self._started = role.t
        try:
            self.barrier = cta.mbarriers[copy.barrier][copy.stage]
            self._stage = stage = cta.buffers[copy.buffer][copy.stage]
        except (KeyError, IndexError):
            self.barrier = cta.mbarrier(copy.barrier, copy.stage)  # one of the two says what is wrong
            self._stage = stage = cta.stage(copy.buffer, copy.stage)
        if stage.read_until > role.t:
            stage.begin_write(role.t, role.who())
        else:
            stage.num_writes_pending += 1
            stage.num_fills += 1

    def __call__(self, cycle: float) -> None:
        """It has happened, or will at the cycle given."""
        copy, cta = self._copy, self._cta
        at = cycle + copy.latency_cycles
        stage = self._stage
        stage.num_writes_pending -= 1
        if at > stage.full_at:
            stage.full_at = at
        barrier = self.barrier
        phase = barrier.num_phases
        barrier.complete_tx(copy.num_bytes, at)
        engine = self._role.engine
        engine.copy_cycles += at - self._started
        engine.num_copies += 1
        if cta.sm.idx in engine.recorded_sms:
            offset = engine.offset_cycles
            engine.timeline.copies.append(
                CopySpan(
                    cta.idx, cta.sm.idx, copy.buffer, copy.stage, copy.tensor, self._started + offset, at + offset,
                    copy.num_bytes, copy.barrier,
                )
            )
            if barrier.num_phases != phase:
                engine.timeline.record_flip(barrier, cta.idx, cta.sm.idx, offset)


class BulkStored(Stored):
    """A TMA store has left the SM: soon its source is free and the store complete."""

    __slots__ = ("_read", "_role", "_stage", "_whole")

    def __init__(self, role: Role, read: AsyncGroup, whole: AsyncGroup, stage: Stage | None) -> None:
        super().__init__(role.engine, None, None)
        self._role = role
        self._read = read
        self._whole = whole
        self._stage = stage

    def __call__(self, cycle: float) -> None:
        """It has happened, or will at the cycle given."""
        engine = self._role.engine
        assert engine.gpu.tma is not None  # the store was issued
        read_at = cycle + engine.gpu.tma.store_latency_cycles
        if self._stage is not None:
            self._stage.end_read(read_at)
        self._read.finish(read_at)
        self._whole.finish(read_at)
        super().__call__(cycle)
