"""Global loads, stores and atomics, and cp.async."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusim.errors import LaunchError
from gpusim.machine.component import MemoryRequest
from gpusim.simulate.cta import Stage
from gpusim.simulate.role import AsyncGroup, Pause, Resume, Role, lacks
from gpusim.simulate.timeline import CopySpan, WarpState
from gpusim.units import LINE_BYTES, SECTOR_BYTES
from gpusim.workload import ops

if TYPE_CHECKING:
    from gpusim.simulate.engine import Engine


def global_load(role: Role, op: ops.GlobalLoad) -> Pause:
    """Through the load/store unit and L1; the token is ready when the last sector is there."""
    access, sm = op.access, role.sm
    counters = sm.l1.counters
    counters.load_requests += access.num_requests * role.count
    counters.load_sectors += access.num_sectors * role.count
    role.issue(access.num_requests / role.num_warps)
    first, end = sm.l1.accept(access.num_requests, access.num_lines, at_cycle=role.t, weight=role.count)
    role.spend(WarpState.LSU, max(role.t, end - sm.l1.spec.queue_cycles))
    token = ops.Token(is_long=True)
    request = role.request(op.tensor, op.tile, access.num_sectors * SECTOR_BYTES, at=None if op.allocates_in_l1 else first)
    sm.l1.read(request, TokenReady(token), allocates=op.allocates_in_l1)
    return token


def global_store(role: Role, op: ops.GlobalStore) -> Pause:
    """Through the load/store unit; a second store waits until the first has left the SM."""
    previous = role.last_store
    if previous is not None and previous.num_pending:  # the store queue is full until the last one has left
        role.must_retry = True
        return role.wait_group(previous, WarpState.LSU, "the store queue")
    if previous is not None and previous.ready_at > role.t:  # known already, and still to come
        role.spend(WarpState.LSU, previous.ready_at)
    access, sm = op.access, role.sm
    counters = sm.l1.counters
    counters.store_requests += access.num_requests * role.count
    counters.store_sectors += access.num_sectors * role.count
    role.issue(access.num_requests / role.num_warps)
    _, end = sm.l1.accept(access.num_requests, access.num_lines, at_cycle=role.t, weight=role.count)
    role.spend(WarpState.LSU, max(role.t, end - sm.l1.spec.queue_cycles))
    group = AsyncGroup()
    group.add()
    role.last_store = group
    role.engine.store_began()
    request = role.request(op.tensor, op.tile, access.num_sectors * SECTOR_BYTES)
    sm.l1.below.write(request, Stored(role.engine, group), num_distinct_bytes=access.num_bytes)
    return None


def global_atomic(role: Role, op: ops.GlobalAtomic) -> Pause:
    """A store that L2 resolves; with a result it comes back a latency later."""
    access, sm = op.access, role.sm
    role.issue(access.num_requests / role.num_warps)
    _, end = sm.l1.accept(access.num_requests, access.num_lines, at_cycle=role.t, weight=role.count)
    role.spend(WarpState.LSU, max(role.t, end - sm.l1.spec.queue_cycles))
    group = AsyncGroup()
    group.add()
    role.engine.store_began()
    request = role.request(op.tensor, op.tile, access.num_sectors * SECTOR_BYTES)
    sm.l1.below.write(
        request, Stored(role.engine, group), num_distinct_bytes=access.num_bytes, kind="atom" if op.returns else "red"
    )
    if not op.returns:
        return None
    token = ops.Token(is_long=True)
    latency = role.engine.machine.l2.hit_latency_cycles
    group.on_complete.append(lambda cycle: TokenReady(token)(cycle + latency))
    return token


def use(role: Role, op: ops.Use) -> Pause:
    """Wait for the token."""
    token = op.token
    if not isinstance(token, ops.Token):
        raise LaunchError(f"{role.who()} uses {token!r}, wants the token that a load has given")
    state = WarpState.LONG_SCOREBOARD if token.is_long else WarpState.SHORT_SCOREBOARD
    if token.ready_cycle is not None:
        role.spend(state, token.ready_cycle)
        return None
    wake = role.block(state, "a load")
    token.on_ready = Resume(role, wake)
    return wake


def cp_async(role: Role, op: ops.CpAsync) -> Pause:
    """Like a load, but into a stage of shared memory and its group."""
    access, sm, count = op.access, role.sm, role.count
    role.issue(access.num_requests / role.num_warps)
    lines = access.num_lines
    first, end = sm.l1.accept(access.num_requests, lines, at_cycle=role.t, weight=count)
    role.spend(WarpState.LSU, max(role.t, end - sm.l1.spec.queue_cycles))
    stage = role.cta.stage(op.buffer, op.stage)
    stage.begin_write(role.t, role.who() if stage.read_until > role.t else "")
    group = role.cp_open
    group.add()
    request = role.request(op.tensor, op.tile, access.num_sectors * SECTOR_BYTES, at=None if op.allocates_in_l1 else first)
    done = Filled(role, stage, group, role.wavefronts(access), request, op.buffer, op.stage)
    sm.l1.read(request, done, allocates=op.allocates_in_l1)
    return None


def cp_commit(role: Role, op: ops.CpAsyncCommitGroup) -> Pause:
    """Close the group."""
    role.cp_groups.append(role.cp_open)
    role.cp_open = AsyncGroup(role.cp_open)
    return None


def cp_wait(role: Role, op: ops.CpAsyncWaitGroup) -> Pause:
    """Until the group that must be there is."""
    if op.num_pending < 0:
        raise LaunchError(f"{role.who()} waits until {op.num_pending} groups are in flight, wants 0 or more")
    groups = role.cp_groups
    latest: AsyncGroup | None = None
    while len(groups) > op.num_pending:
        latest = groups.popleft()
    if latest is None:
        return None
    return role.wait_group(latest, WarpState.WAIT_CP_ASYNC, f"cp.async.wait_group {op.num_pending}")


def cp_mbarrier(role: Role, op: ops.CpAsyncMbarrierArrive) -> Pause:
    """Arrive on an mbarrier when the copies so far are there."""
    if role.engine.mbarrier_spec is None:
        raise lacks(role, "mbarrier", "8.0")
    barrier = role.cta.mbarrier(op.barrier, op.stage)
    group = role.cp_open
    num_threads = role.spec.num_threads
    if group.num_pending:
        group.on_complete.append(lambda cycle: barrier.arrive(num_threads, cycle))
    else:
        barrier.arrive(num_threads, max(role.t, group.ready_at))
    role.cp_open = AsyncGroup(group)
    return None


class TokenReady:
    """A load's data are there."""

    __slots__ = ("_token",)

    def __init__(self, token: ops.Token) -> None:
        self._token = token

    def __call__(self, cycle: float) -> None:
        """It has happened, or will at the cycle given."""
        token = self._token
        token.ready_cycle = cycle
        if token.on_ready is not None:
            token.on_ready(cycle)  # type: ignore[operator]  # _use stores a _Resume


class Filled:
    """A cp.async batch has come from memory: it is written into shared memory, wavefront by wavefront."""

    __slots__ = ("_buffer", "_group", "_request", "_role", "_stage", "_stage_idx", "_wavefronts")

    def __init__(
        self, role: Role, stage: Stage, group: AsyncGroup, wavefronts: float, request: MemoryRequest, buffer: str,
        stage_idx: int,
    ) -> None:
        self._role = role
        self._stage = stage
        self._group = group
        self._wavefronts = wavefronts
        self._request = request
        self._buffer = buffer
        self._stage_idx = stage_idx

    def __call__(self, cycle: float) -> None:
        """It has happened, or will at the cycle given."""
        role, request = self._role, self._request
        now = role.env._now  # queued now, though they come at ``cycle``
        queued = role.sm.smem.fill(self._wavefronts, at_cycle=now, weight=request.num_alike) - now
        # wavefronts that arrive while the transfer is under way hide behind it; only the excess shows
        hidden = request.num_bytes / LINE_BYTES
        end = cycle + max(0.0, queued - min(self._wavefronts, hidden))
        self._stage.end_write(end)
        self._group.finish(end)
        role.engine.copy_cycles += end - request.issued_at
        role.engine.num_copies += 1
        if role.record is not None:
            offset = role.engine.offset_cycles
            role.engine.timeline.copies.append(
                CopySpan(
                    role.cta.idx, role.sm.idx, self._buffer, self._stage_idx, request.tensor,
                    request.issued_at + offset, end + offset, request.num_bytes,
                )
            )


class Stored:
    """A store has left the SM."""

    __slots__ = ("_engine", "_group")

    def __init__(self, engine: Engine, group: AsyncGroup) -> None:
        self._engine = engine
        self._group = group

    def __call__(self, cycle: float) -> None:
        """It has happened, or will at the cycle given."""
        self._group.finish(cycle)
        self._engine.store_ended(cycle)
