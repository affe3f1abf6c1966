"""Ops that touch global memory: loads, stores and atomics of threads, cp.async, TMA."""

from __future__ import annotations

from gpusim.errors import LaunchError
from gpusim.reference.cta import Mbarrier, Stage
from gpusim.reference.facts import Fact, Group, Wait
from gpusim.reference.role import Loaded, Role
from gpusim.units import LINE_BYTES, SECTOR_BYTES
from gpusim.workload import ops
from gpusim.workload.access import AccessPattern

COMMIT_WAVEFRONTS = 3.0
"""What Nsight Compute counts for a warp's commit of cp.async."""


def bytes_of(access: AccessPattern) -> float:
    """What an access asks L2 for: whole sectors."""
    return float(access.num_sectors * SECTOR_BYTES)


# ---------------------------------------------------------------------------------------------- of threads


def pass_unit(role: Role, access: AccessPattern, num_wavefronts: float = 0.0) -> tuple[float, float]:
    """Issue an access and pass the load/store unit, which lets warps go on while little of it waits.

    Returns:
        The cycles at which the unit begins and ends.
    """
    l1 = role.sm.l1
    role.issue(access.num_requests / role.num_warps)
    first, end = l1.accept(access.num_requests, access.num_lines, num_wavefronts, role.t)
    role.spend("lsu", end - l1.spec.queue_cycles)
    return first, end


def global_load(role: Role, op: ops.GlobalLoad) -> Loaded:
    """Through the load/store unit and L1, or past L1; registers are full when the last sector is there."""
    access, count = op.access, role.kernel.count
    count["l1.load_requests"] += access.num_requests
    count["l1.load_sectors"] += access.num_sectors
    first, end = pass_unit(role, access, access.num_wavefronts)
    request = role.request(op.tensor, op.tile, bytes_of(access), at=None if op.allocates_in_l1 else first)
    request.num_loads = max(1, round(access.num_requests / role.num_warps))
    request.asked_until = end
    if op.allocates_in_l1:
        there = role.sm.l1.read(request, hit_at=max(request.issued_at, first))
    else:
        there = role.sm.l1.read_past(request)
    loaded = Loaded(role.env)
    loaded.is_long = True
    there.then(loaded.tell)
    return loaded


def use(role: Role, op: ops.Use) -> Wait:
    """Until registers are full."""
    loaded: object = op.token
    if not isinstance(loaded, Loaded):
        raise LaunchError(f"{role.who()} uses {loaded!r}, wants the token that a load has given")
    yield from role.wait(loaded, "long_scoreboard" if loaded.is_long else "short_scoreboard", "a load")


def global_store(role: Role, op: ops.GlobalStore | ops.GlobalAtomic) -> Wait:
    """A role's next store waits until its last one is in L2; else its warps go on when the load/store unit has it."""
    access = op.access
    is_store = isinstance(op, ops.GlobalStore)
    if role.last_store is not None:
        yield from role.wait(role.last_store, "lsu", "the store queue")
    if is_store:
        role.kernel.count["l1.store_requests"] += access.num_requests
        role.kernel.count["l1.store_sectors"] += access.num_sectors
        role.kernel.has_stored = True
    pass_unit(role, access)
    send(role, op, "write" if is_store else "red")


def send(role: Role, op: ops.GlobalStore | ops.GlobalAtomic, kind: str) -> Fact:
    """Send a store on its way; known is, in time, when it is in L2."""
    request = role.request(op.tensor, op.tile, bytes_of(op.access))
    _, role.last_store = role.kernel.store(request, num_distinct_bytes=op.access.num_bytes, kind=kind)
    return role.last_store


def global_atomic(role: Role, op: ops.GlobalAtomic) -> Wait | Loaded:
    """A store that L2 resolves. One that returns something waits for no store before it; its word comes a latency later."""
    if not op.returns:
        return global_store(role, op)
    pass_unit(role, op.access)
    loaded = Loaded(role.env)
    loaded.is_long = True
    latency = role.kernel.gpu.l2.near_latency_cycles
    send(role, op, "atom").then(lambda cycle: loaded.tell(cycle + latency))
    return loaded


# ---------------------------------------------------------------------------------------------- cp.async


def cp_async(role: Role, op: ops.CpAsync) -> None:
    """A load into a stage of shared memory; it belongs to the group that is committed next.

    Through L1 copies take the data stage as loads do, in turn with them. Around L1 they are written when they have come.
    """
    access, count, sm = op.access, role.kernel.count, role.sm
    if op.fetches is not None:
        raise LaunchError(f"{role.who()} copies rows that do not begin on a line, which is beyond the core")
    wavefronts, num_bytes = float(access.num_wavefronts), bytes_of(access)
    count["l1.load_requests"] += access.num_requests
    count["l1.load_sectors"] += access.num_sectors
    count["smem.fill_wavefronts"] += wavefronts
    role.issue(access.num_requests / role.num_warps)
    hits = op.allocates_in_l1 and sm.l1.holds(op.tensor, op.tile)
    if op.allocates_in_l1:
        count["smem.wavefronts"] += access.num_requests
        count["smem.copy_wavefronts"] += wavefronts
        first, end = sm.l1.accept(access.num_requests, access.num_lines, wavefronts, role.t)
        passed = sm.data_stage.serve(wavefronts, role.t)
        first, end = max(first, passed - wavefronts / sm.data_stage.rate), max(end, passed)
    else:
        first, end = sm.l1.accept(access.num_requests, access.num_lines, 0.0, role.t)
        end = max(end, sm.l1.rows.reserve(0.0, sm.data_stage.copies_reach_it(first)))
    issued_at = role.t
    if op.num_between:
        made = role.execute(sm.schedulers.alu, op.num_between * access.num_requests / role.num_warps)
        role.spend("issue", made)
    role.spend("lsu", end - sm.l1.spec.queue_cycles)
    near_cycles = role.kernel.gpu.l2.near_latency_cycles
    stage = role.cta.stage(op.buffer, op.stage)
    stage.begin_write(max(first, issued_at) + near_cycles, role.who())
    request = role.request(op.tensor, op.tile, num_bytes, at=max(first, issued_at))
    request.come_along = op.come_along
    last_asks_at = max(end - (end - first) / max(1, access.num_requests), first, issued_at)
    if op.allocates_in_l1:
        there = sm.l1.read(request, hit_at=max(request.issued_at, last_asks_at))
    else:
        there = role.kernel.memory.read(request)
    soonest = last_asks_at + (sm.l1.spec.hit_latency_cycles if hits else near_cycles)
    written = Fact(role.env)
    role.copies.add(written)

    def write(cycle: float) -> None:
        """The last bytes have come, or will at ``cycle``: what is written into the stage then, and when is that over?"""
        now, there_at = role.env.now, max(cycle, soonest)
        if not op.allocates_in_l1:
            queued_until = sm.data_stage.fill(wavefronts, now) if wavefronts else now
            hidden = min(wavefronts, num_bytes / LINE_BYTES)  # comes while the transfer is under way
            end = there_at + max(0.0, queued_until - now - hidden) if wavefronts else there_at
        elif hits:
            end = max(now, there_at)
        else:
            _, passed = sm.l1.accept(access.num_requests, 0.0, 0.0, now)  # once more, with what it had not
            cycles = access.num_requests / sm.l1.spec.requests_per_cycle
            end = max(passed, there_at + max(0.0, cycles - num_bytes / LINE_BYTES / sm.data_stage.rate))
        stage.end_write(end)
        written.tell(end)

    there.then(write)


def cp_async_commit(role: Role, op: ops.CpAsyncCommitGroup) -> None:
    """Close the group."""
    role.kernel.count["smem.wavefronts"] += COMMIT_WAVEFRONTS * role.num_warps
    role.copy_groups.append(role.copies)
    role.copies = Group(role.env, role.copies)


def cp_async_wait(role: Role, op: ops.CpAsyncWaitGroup) -> Wait:
    """Until the group that must be there is."""
    latest = role.latest_of(role.copy_groups, op.num_pending)
    if latest is not None:
        yield from role.wait(latest.complete(), "wait_cp_async", f"cp.async.wait_group {op.num_pending}")


def cp_async_mbarrier_arrive(role: Role, op: ops.CpAsyncMbarrierArrive) -> None:
    """Arrive on an mbarrier when the copies so far are there: every thread."""
    barrier, at, copies = role.cta.mbarrier(op.barrier, op.stage), role.t, role.copies.complete()
    is_there = copies.cycle is not None
    copies.then(lambda cycle: barrier.arrive(role.num_threads, max(at, cycle) if is_there else cycle))
    role.copies = Group(role.env, role.copies)


# ---------------------------------------------------------------------------------------------- TMA


def issue_boxes(role: Role, num_boxes: int, cycles: float) -> float:
    """Issue a copy to the TMA engine, which may have to wait for room; returns when the engine comes to its first box."""
    spec = role.part("tma")
    role.spend("lsu", role.sm.room_at())
    role.spend("issue", role.t + spec.issue_cycles)
    return role.sm.walk(cycles, num_boxes, role.t)


def tma_load(role: Role, op: ops.TmaLoad) -> None:
    """The engine walks the boxes while the data come; bytes count on the mbarrier of each receiver."""
    spec, kernel = role.part("tma"), role.kernel
    if op.fetches is not None or op.num_zero_rows:
        raise LaunchError(f"{role.who()} copies rows off lines or out of bounds, which is beyond the core")
    walking = max(op.num_rows * spec.row_cycles, op.num_bytes / spec.bytes_per_cycle)
    at = issue_boxes(role, op.num_boxes, op.num_boxes * spec.box_cycles + walking)
    latency = spec.latency_cycles + max(0.0, walking - op.num_bytes / kernel.memory.slices.alone)
    receivers = [role.peer(rank) for rank in op.multicast] or [role.cta]
    kernel.count["tma.load_instructions"] += op.num_boxes
    kernel.count["tma.load_bytes"] += op.num_fetched_bytes * len(receivers)
    copies = [
        TmaCopy(role, cta.mbarrier(op.barrier, op.stage), cta.stage(op.buffer, op.stage), op.num_bytes, latency)
        for cta in receivers
    ]
    if not op.num_fetched_bytes:
        for copy in copies:
            copy.arrive(at)
        return
    request = role.request(op.tensor, op.tile, op.num_fetched_bytes, at=at)
    request.come_along = op.come_along
    if op.multicast:
        sms = [cta.sm.idx for cta in receivers]
        there = kernel.memory.multicast(request, sms, most_bytes_per_cycle=spec.bytes_per_cycle)
    else:
        there = [kernel.memory.read(request, group=copies[0].barrier)]
    for fact, copy in zip(there, copies, strict=True):
        fact.then(copy.arrive)


class TmaCopy:
    """A copy on its way into one CTA."""

    def __init__(self, role: Role, barrier: Mbarrier, stage: Stage, num_bytes: int, latency_cycles: float) -> None:
        """It was issued at the role's cursor."""
        self.barrier, self._stage, self._num_bytes, self._latency = barrier, stage, num_bytes, latency_cycles
        stage.begin_write(role.t, role.who())

    def arrive(self, cycle: float) -> None:
        """The last byte is there at ``cycle``; it counts a latency later."""
        self._stage.end_write(cycle + self._latency)
        self.barrier.deliver(self._num_bytes, cycle + self._latency)


def tma_store(role: Role, op: ops.TmaStore) -> None:
    """The engine reads shared memory and stores; its group knows when the source is free, and when all has left the SM."""
    spec = role.part("tma")
    at = issue_boxes(role, op.num_boxes, op.num_boxes * spec.store_box_cycles)
    role.kernel.count["tma.store_instructions"] += op.num_boxes
    role.kernel.has_stored = True
    stage, stored = role.stage(op.buffer, op.stage), Fact(role.env)
    if stage is not None:
        slot = stage
        slot.begin_read(role.t, role.who())
        stored.then(slot.end_read)
    for group in role.bulk:
        group.add(stored)
    rest = op.num_bytes / op.num_rows % SECTOR_BYTES
    masks = op.num_rows * (2 * SECTOR_BYTES - rest) if rest else 0.0  # a sector stored in part takes the time of two
    request = role.request(op.tensor, op.tile, op.num_bytes)
    request.issued_at = at
    left, _ = role.kernel.store(
        request, num_distinct_bytes=op.num_bytes, kind="red" if op.reduce else "write", num_more_bytes=masks
    )
    left.then(lambda cycle: stored.tell(cycle + spec.store_latency_cycles))


def bulk_commit(role: Role, op: ops.BulkCommitGroup) -> None:
    """Close the group."""
    read, whole = role.bulk
    role.bulk_groups.append(role.bulk)
    role.bulk = Group(role.env, read), Group(role.env, whole)


def bulk_wait(role: Role, op: ops.BulkWaitGroup) -> Wait:
    """Until the group that must have read its source has, or is complete."""
    groups = role.bulk_groups
    if op.num_pending < 0:
        raise LaunchError(f"{role.who()} waits until {op.num_pending} groups are in flight, wants 0 or more")
    if len(groups) <= op.num_pending:
        return
    role.kernel.count["smem.wavefronts"] += role.num_warps
    role.spend("issue", role.t + role.part("tma").group_wait_cycles)
    read, whole = groups[-1 - op.num_pending]
    if not op.read:
        role.latest_of(groups, op.num_pending)
    yield from role.wait((read if op.read else whole).complete(), "wait_bulk", f"cp.async.bulk.wait_group {op.num_pending}")


def prefetch_tensormap(role: Role, op: ops.PrefetchTensormap) -> None:
    """One instruction each; tensor maps are always there."""
    for _ in op.tensors:
        role.issue(1)
