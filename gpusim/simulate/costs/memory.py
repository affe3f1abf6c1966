"""Global loads, stores and atomics, and cp.async."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from gpusim.errors import LaunchError
from gpusim.machine.component import MemoryRequest
from gpusim.machine.memory.l2 import StoreKind
from gpusim.machine.memory.smem import COMMIT_WAVEFRONTS
from gpusim.machine.timing import EPSILON_BYTES
from gpusim.simulate.costs.barriers import record_flip
from gpusim.simulate.cta import Stage
from gpusim.simulate.role import AsyncGroup, Pause, Resume, Role, lacks
from gpusim.simulate.timeline import CopySpan, WarpState
from gpusim.simulate.turns import CopyPass
from gpusim.units import LINE_BYTES, SECTOR_BYTES
from gpusim.workload import ops
from gpusim.workload.token import Token

if TYPE_CHECKING:
    from gpusim.simulate.engine import Engine


Stores = ops.GlobalStore | ops.GlobalAtomic
"""What leaves registers for L2, and waits for nothing."""


def passes_at(role: Role, at_cycle: float) -> float:
    """When what a role asks of global memory at ``at_cycle`` is past what was asked of shared memory before it."""
    return role.sm.smem.passes_at(at_cycle, role.engine.load_lines[role.sm.idx].num_ahead(role))


def global_load(role: Role, op: ops.GlobalLoad) -> Pause:
    """Through the load/store unit and L1; the token is ready when the last sector is there."""
    pause = role.engine.load_lines[role.sm.idx].wait_for_place(role)
    if pause is not None:
        return pause
    access, sm, allocates = role.engine.op_costs.of_access(op.access), role.sm, op.allocates_in_l1
    counters = sm.l1.counters
    counters.load_requests += access.num_requests * role.count
    counters.load_sectors += access.num_sectors * role.count
    role.issue(access.num_requests / role.num_warps)
    at = passes_at(role, role.t)
    first, end = sm.l1.accept(
        access.num_requests, access.num_lines, access.num_wavefronts, at_cycle=at, weight=role.count
    )
    waited = at - role.t
    if allocates:
        if not role.laggard.asked_bytes:
            role.loads_since = role.t
        noted = sm.l1.wait_for_lines(
            op.tensor, op.tile, access.num_requests, since=role.loads_since + waited, at_cycle=at, weight=role.count
        )
        if noted > end:
            end = noted
    sm.warp_scheduler.pass_loads(access.num_requests, at_cycle=role.t, weight=role.count)
    of_stage = access.num_wavefronts * sm.smem.global_load_wavefronts
    if of_stage:
        sm.smem.pass_global(of_stage, at_cycle=role.t, weight=role.count)
    role.spend(WarpState.LSU, max(role.t, end - waited - sm.l1.queue_cycles))  # there is room to wait for the way
    token = Token(is_long=True)
    request = role.request(
        op.tensor, op.tile, access.num_sectors * SECTOR_BYTES, at=None if allocates and not waited else first
    )
    request.num_warps = role.num_warps
    request.num_turns = max(1, round(access.num_requests / role.num_warps))
    request.asked_until = end
    if access.num_sectors * SECTOR_BYTES < access.num_lines * LINE_BYTES:
        request.num_part_requests = access.num_requests
    request.num_together = role.laggard.asks(token, request.num_bytes)
    sm.l1.read(request, TokenReady(token, request), allocates=allocates, not_before=first)
    return token


def global_store(role: Role, op: Stores) -> Pause:
    """Through the load/store unit; the warps go on when the last of it waits in the store queue. So do reductions."""
    access, sm = role.engine.op_costs.of_access(op.access), role.sm
    has_queue = sm.l1.has_store_queue
    previous = role.last_store
    if not has_queue and previous is not None:
        role.must_retry = previous.num_pending > 0
        pause = role.wait_group(previous, WarpState.LSU, "the store queue")
        if pause is not None:
            return pause
    begin, lines = role.t, access.num_lines
    left, has_passed = lines, False
    if role.partly is None:
        if type(op) is ops.GlobalStore:
            counters = sm.l1.counters
            counters.store_requests += access.num_requests * role.count
            counters.store_sectors += access.num_sectors * role.count
        role.issue(access.num_requests / role.num_warps)
    else:
        left = role.partly[1]
    if has_queue and left and sm.smem.is_read(role.t):
        end, still = sm.smem.pass_lines(left, at_cycle=role.t, weight=role.count)
        if still:
            return pass_part(role, op, (left - still) / lines, end, still)
        has_passed = True
    role.partly = None
    of_stage = left * sm.smem.global_store_wavefronts
    if of_stage and not has_passed:
        sm.smem.pass_global(of_stage, at_cycle=begin, weight=role.count)
    if has_queue:
        share = left / lines if lines else 1.0
        sm.l1.accept(access.num_requests * share, left, at_cycle=begin, weight=role.count)
        return queue_store(role, op, begin, share)
    _, end = sm.l1.accept(access.num_requests, access.num_lines, at_cycle=role.t, weight=role.count)
    role.spend(WarpState.LSU, max(role.t, end - sm.l1.queue_cycles))
    send_store(role, op, 0.0, 1.0, None)
    return None


def pass_part(role: Role, op: Stores, share: float, end_cycle: float, left_lines: float) -> Pause:
    """Send the ``share`` of a store that passes beside operand reads on its way; ask again when these end."""
    access, xbar = op.access, role.sm.l1.below
    if share:
        num_bytes = xbar.packet_bytes(access.num_lines, access.num_sectors, access.num_bytes, kind=kind_of(op))
        role.sm.l1.accept(access.num_requests * share, access.num_lines * share, at_cycle=role.t, weight=role.count)
        group = send_store(role, op, num_bytes, share, role.t)
        role.queued_stores.append((num_bytes * share, group))
        role.sm.queued_stores.append((num_bytes * share, group))
    return ask_again(role, end_cycle, role.t, left_lines)


def ask_again(
    role: Role, cycle: float, asked_at: float, left: float, state: WarpState = WarpState.LSU,
    what: str = "the data stage of shared memory",
) -> Pause:
    """Wgmma leaves no room for the rest of an op that has been under way since ``asked_at``: ask again at ``cycle``."""
    role.partly = asked_at, left
    role.must_retry = True
    wake = role.block(state, what)
    Resume(role, wake)(cycle)
    return wake


def queue_store(role: Role, op: Stores, begin_cycle: float, whole_share: float) -> Pause:
    """Send a store's first part, what the schedulers hold of it, and what is past them; wait until the queue has room.

    ``whole_share``: what is left of the store, others have passed already.
    """
    costs = role.engine.op_costs
    cost = costs.of_store(op.access, role.num_warps, kind_of(op)) if whole_share == 1.0 else (
        costs.cost_of_store(op.access, role.num_warps, kind_of(op), whole_share)
    )
    for num_bytes, share in cost.parts:
        group = send_store(role, op, cost.all_bytes, share, begin_cycle)
        queued = num_bytes, group
        role.queued_stores.append(queued)
        role.sm.queued_stores.append(queued)
    role.passed_bytes = cost.passed_bytes
    return until_stored(role, role.sm.queued_stores, cost.lead_bytes)


def until_stored(role: Role, queued: deque[tuple[float, AsyncGroup]], num_left_bytes: float) -> Pause:
    """Until all of the ``queued`` stores, the role's or its SM's, but the last ``num_left_bytes`` have left the SM."""
    while queued and not queued[0][1].num_pending and queued[0][1].ready_at <= role.t:
        queued.popleft()
    behind = 0.0
    for num_bytes, _ in queued:
        behind += num_bytes
    waited: AsyncGroup | None = None
    for num_bytes, group in queued:
        if behind <= num_left_bytes + EPSILON_BYTES:
            break
        behind -= num_bytes
        waited = group
    return None if waited is None else role.wait_group(waited, WarpState.LSU, "the store queue")


def kind_of(op: Stores) -> StoreKind:
    """Which instruction it is to L2."""
    if isinstance(op, ops.GlobalStore):
        return "st"
    return "atom" if op.returns else "red"


def send_store(role: Role, op: Stores, num_packet_bytes: float, share: float, at: float | None) -> AsyncGroup:
    """Send a ``share`` of a store on its way; the group is complete when it has left."""
    access = role.engine.op_costs.of_access(op.access)
    group, role.last_store = AsyncGroup(), AsyncGroup()
    role.stored_out_at = passes_at(role, role.t)  # it stands in line until then
    group.add()
    role.last_store.add()
    if type(op) is ops.GlobalStore:
        role.engine.has_stored = True
    stored = Stored(role.engine, group, role.last_store)
    request = role.request(op.tensor, op.tile, access.num_sectors * SECTOR_BYTES * share, at=at)
    role.sm.l1.below.write(
        request, stored, stored.arrived, num_distinct_bytes=access.num_bytes * share,
        num_packet_bytes=num_packet_bytes * share, kind=kind_of(op),
        packet_bytes=max(num_packet_bytes, access.num_sectors * SECTOR_BYTES) / max(access.num_lines, 1),
    )
    return group


def global_atomic(role: Role, op: ops.GlobalAtomic) -> Pause:
    """A store that L2 resolves; with a result it comes back a latency later. A fence waits for it as for any store."""
    if not op.returns:
        return global_store(role, op)
    access, sm = op.access, role.sm
    role.issue(access.num_requests / role.num_warps)
    _, end = sm.l1.accept(access.num_requests, access.num_lines, at_cycle=role.t, weight=role.count)
    role.spend(WarpState.LSU, max(role.t, end - sm.l1.spec.queue_cycles))
    group = role.last_store = AsyncGroup()
    group.add()
    stored = Stored(role.engine, None, group)
    request = role.request(op.tensor, op.tile, access.num_sectors * SECTOR_BYTES)
    sm.l1.below.write(request, stored, stored.arrived, num_distinct_bytes=access.num_bytes, kind="atom")
    token = Token(is_long=True)
    latency = role.engine.machine.l2.hit_latency_cycles
    group.on_complete.append(lambda cycle: TokenReady(token)(cycle + latency))
    return token


def use(role: Role, op: ops.Use) -> Pause:
    """Wait for the token."""
    token = op.token
    if not isinstance(token, Token):
        raise LaunchError(f"{role.who()} uses {token!r}, wants the token that a load has given")
    state = WarpState.SHORT_SCOREBOARD
    if token.is_long:
        state, role.laggard.asked_bytes = WarpState.LONG_SCOREBOARD, 0.0
    if token.ready_cycle is not None:
        role.spend(state, token.ready_cycle)
        if token.late_cycles:
            late = token.late_cycles - (role.t - token.ready_cycle)
            role.laggard.fall_behind(token, late, role.worked())
        return None
    wake = role.block(state, "a load")
    token.on_ready = UseReady(role, wake, token)
    return wake


def open_group(role: Role, *, is_around_l1: bool) -> AsyncGroup:
    """The group that is not committed yet, with one copy more."""
    group = role.groups.cp_open
    group.add()
    group.is_around_l1 |= is_around_l1
    return group


def cp_async(role: Role, op: ops.CpAsync) -> Pause:
    """Like a load, but into a stage of shared memory and its group; a warp's own follow one another at a pace.

    A stage that is still read when the first bytes may come, a way to L2 after the issue, is a hazard; one whose readers end
    before that is not found, though nothing may order them.
    """
    access, turns, line = op.access, role.engine.fma_turns, role.engine.load_lines[role.sm.idx]
    pause: Pause = None
    if turns:
        pause = turns[role.sm.idx].hold(role, access.num_requests / role.num_warps)
        if pause is not None:
            return pause
    pause = line.wait_for_place(role)
    if pause is not None:
        if turns and role.copy_pass is CopyPass.NONE:
            role.copy_pass = CopyPass.ONCE
        return pause
    counters, fetches = role.sm.l1.counters, op.fetches
    counters.load_requests += access.num_requests * role.count
    counters.load_sectors += (access.num_sectors if fetches is None else fetches.num_sectors) * role.count
    role.issue(access.num_requests / role.num_warps)
    if op.allocates_in_l1:
        copy_through_l1(role, op)
    else:
        copy_around_l1(role, op)
    return None


def copy_through_l1(role: Role, op: ops.CpAsync) -> None:
    """Copies take the load/store unit, and the data stage in turn with what warps load from shared memory.

    What L1 has passes once; of what it has not a part passes, and the rest, with a request's turn, when its data have
    come, in between the warps' wavefronts.
    """
    access, sm, count = op.access, role.sm, role.count
    l1, smem, num, wavefronts = sm.l1, sm.smem, access.num_requests, role.wavefronts(access)
    spec, hits = l1.spec, l1.holds(op.tensor, op.tile)
    smem.count(num * count)
    smem.counters.copy_wavefronts += wavefronts * count
    smem.count_fill(wavefronts * count)
    passing, more = wavefronts, num * spec.cp_async_cycles
    later = 0.0
    if not hits:
        passing *= spec.cp_async_first_fraction
        later = wavefronts - passing
    first, end = l1.accept(num, access.num_lines, passing, at_cycle=role.t, weight=count, more_cycles=more)
    cycles = more + passing / smem.wavefronts_per_cycle
    passed = smem.pass_copies(cycles * smem.wavefronts_per_cycle, at_cycle=role.t, weight=count)
    first, end = max(first, passed - cycles), max(end, passed)
    num_hidden = access.num_sectors * SECTOR_BYTES / LINE_BYTES
    send_copies(
        role, op, first, end, spec.queue_cycles, asked_at=first, hits=hits, num_wavefronts=later, num_hidden=num_hidden
    )


def copy_around_l1(role: Role, op: ops.CpAsync) -> None:
    """Copies take the load/store unit; their rows pass a stage of their own, and the way to the data stage."""
    access, sm, count = op.access, role.sm, role.count
    l1, num, wavefronts = sm.l1, access.num_requests, role.wavefronts(access)
    spec = l1.spec
    more = num * max(0.0, spec.cp_async_bypass_cycles - 1.0 / spec.requests_per_cycle)
    first, end = l1.accept(num, access.num_lines, 0.0, at_cycle=role.t, weight=count, more_cycles=more)
    rows = max(float(op.num_rows), op.num_passes)
    lead = l1.copy_lead_cycles(num, max(end - first, rows * spec.cp_async_row_cycles))
    begin = sm.smem.copy_rows(rows if spec.cp_async_row_cycles else 0.0, at_cycle=first, weight=count)
    end = max(end, l1.accept_rows(rows, at_cycle=begin, weight=count))
    num_hidden = (access.num_sectors * SECTOR_BYTES if op.fetches is None else op.fetches.num_bytes) / LINE_BYTES
    later, hidden = pass_rows(role, rows, wavefronts, num_hidden, first)
    send_copies(
        role, op, first, end, lead, asked_at=passes_at(role, first), hits=False, num_wavefronts=later, num_hidden=hidden
    )


def send_copies(
    role: Role, op: ops.CpAsync, first: float, end: float, lead: float, *, asked_at: float, hits: bool,
    num_wavefronts: float, num_hidden: float,
) -> None:
    """Ask for what copies bring that passed from ``first`` to ``end``; their warps go on ``lead`` before that.

    Once it is there ``num_wavefronts`` are written, of which ``num_hidden`` come while the transfer is under way.
    """
    access, sm, count, fetches = op.access, role.sm, role.count, op.fetches
    l1, num = sm.l1, access.num_requests
    turns = max(1.0, num / role.num_warps)
    pace = max(
        turns * l1.spec.cp_async_interval_cycles,
        role.wavefronts(access) / role.num_warps * sm.smem.spec.warp_cycles_per_wavefront,
    )
    begun = max(role.t, role.copies_until)
    role.copies_until = begun + pace
    if op.num_between:
        scheduler, each = sm.warp_scheduler, op.num_between * num / role.num_warps
        made = scheduler.execute(scheduler.alu_pipe, each, num_warps=role.num_warps, at_cycle=role.t, weight=count)
        role.spend(WarpState.ISSUE, made)
    role.spend(WarpState.LSU, max(role.t, end - lead))
    stage = role.cta.stage(op.buffer, op.stage)
    near_cycles = role.engine.machine.l2.spec.near_latency_cycles
    written_at = max(first, begun) + near_cycles  # at the soonest: reads pass before
    stage.begin_write(written_at, role.who() if stage.read_until > written_at else "")
    group = open_group(role, is_around_l1=not op.allocates_in_l1)
    num_bytes = access.num_sectors * SECTOR_BYTES if fetches is None else fetches.num_bytes
    request = role.request(
        op.tensor, op.tile, num_bytes, at=max(asked_at, begun), num_rows=op.num_rows, come_along=op.come_along,
        fetches=fetches,
    )
    request.new_fraction = op.new_fraction
    last = max(end - (end - first) / max(1, num), role.copies_until - pace / turns, asked_at)
    soonest = l1.spec.hit_latency_cycles if hits else near_cycles
    more = l1.spec.cp_async_latency_cycles if hits else 0.0
    is_again = op.allocates_in_l1 and not hits
    done = Filled(role, stage, group, num_wavefronts, request, op, last, soonest, more, num_hidden, is_again=is_again)
    l1.read(request, done, allocates=op.allocates_in_l1, not_before=last, is_copy=True)


def pass_rows(
    role: Role, num_rows: float, num_wavefronts: float, num_hidden: float, at_cycle: float
) -> tuple[float, float]:
    """Copies around L1 stand before what is asked for later while the queue of their rows is full.

    Returns:
        Wavefronts to be written once they are there, and how many of these hide behind the transfer: none where rows have a
        stage of their own, which writes them one by one, so that their banks do not matter (kernels/conflicting_copies).
    """
    l1 = role.sm.l1
    if not num_rows * l1.spec.cp_async_row_cycles:
        role.sm.smem.count_fill(num_wavefronts * role.count)
        return num_wavefronts, num_hidden
    role.sm.smem.pass_rows(min(num_wavefronts, num_hidden), until=l1.rows_taken_at, at_cycle=at_cycle, weight=role.count)
    return 0.0, 0.0


def cp_commit(role: Role, op: ops.CpAsyncCommitGroup) -> Pause:
    """Close the group; that passes the load/store unit, too, and is held where its copies' addresses are written anew."""
    l1, groups, role.copy_pass = role.sm.l1, role.groups, CopyPass.NONE
    role.sm.smem.count(COMMIT_WAVEFRONTS * role.num_warps * role.count)
    if l1.spec.commit_cycles:
        cycles = l1.spec.commit_cycles * role.num_warps
        l1.accept(0.0, 0.0, at_cycle=role.t, weight=role.count, more_cycles=cycles)
        if groups.cp_open.is_around_l1:
            role.sm.smem.pass_commits(cycles, at_cycle=role.t, weight=role.count)
    is_held = op.is_held and groups.cp_open.is_around_l1
    groups.cp.append(groups.cp_open)
    groups.cp_open = AsyncGroup(groups.cp_open)
    if not is_held or not l1.spec.cp_async_row_cycles:
        return None
    role.agenda.later(max(role.t - role.agenda.cycle, 0.0) + TOGETHER_CYCLES, Held(role))
    return role.block(WarpState.LSU, "its copies to be on their way")


TOGETHER_CYCLES = 4.0
"""Copies that are issued within so much of each other take turns, whoever's they are. Source: the stall behind each in
nvcc's SASS."""


class Held:
    """A role has issued its copies: it goes on once they have left their queue, those that came at the same time, too."""

    __slots__ = ("_role",)

    def __init__(self, role: Role) -> None:
        self._role = role

    def __call__(self) -> None:
        """When is that?"""
        role, l1 = self._role, self._role.sm.l1
        role.fire(max(0.0, l1.rows_taken_at - role.agenda.cycle))


def cp_wait(role: Role, op: ops.CpAsyncWaitGroup) -> Pause:
    """Until the group that must be there is."""
    if op.num_pending < 0:
        raise LaunchError(f"{role.who()} waits until {op.num_pending} groups are in flight, wants 0 or more")
    groups = role.groups.cp
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
    group = role.groups.cp_open
    num_threads = role.spec.num_threads

    def arrive(cycle: float) -> None:
        phase = barrier.num_phases
        barrier.arrive(num_threads, cycle)
        if barrier.num_phases != phase:
            record_flip(role, role.cta, barrier)

    if group.num_pending:
        group.on_complete.append(arrive)
    else:
        arrive(max(role.t, group.ready_at))
    role.groups.cp_open = AsyncGroup(group)
    return None


class UseReady(Resume):
    """Wakes a role that uses a token."""

    __slots__ = ("_token",)

    def __init__(self, role: Role, wake: Role, token: Token) -> None:
        super().__init__(role, wake)
        self._token = token

    def __call__(self, cycle: float) -> None:
        """The data are there, the last warp's some time later."""
        token, role = self._token, self._role
        if token.late_cycles:
            late = token.late_cycles - max(0.0, role.t - cycle)
            role.laggard.fall_behind(token, late, role.worked())
        super().__call__(cycle)


class TokenReady:
    """A load's data are there."""

    __slots__ = ("_request", "_token")

    def __init__(self, token: Token, request: MemoryRequest | None = None) -> None:
        self._token = token
        self._request = request

    def __call__(self, cycle: float) -> None:
        """It has happened, or will at the cycle given."""
        token = self._token
        token.ready_cycle = cycle
        if self._request is not None:
            token.late_cycles = self._request.late_cycles
        on_ready, token.on_ready = token.on_ready, None  # which refers to the role, which refers to its last op
        if on_ready is not None:
            on_ready(cycle)  # type: ignore[operator]  # use stores a Resume


class Filled:
    """A cp.async batch has come from memory: it is written into shared memory, wavefront by wavefront."""

    __slots__ = (
        "_group", "_hidden", "_is_again", "_last", "_more", "_op", "_request", "_role", "_soonest", "_stage", "_wavefronts",
    )

    def __init__(
        self, role: Role, stage: Stage, group: AsyncGroup, wavefronts: float, request: MemoryRequest, op: ops.CpAsync,
        last_cycle: float, soonest_cycles: float, more_cycles: float, num_hidden: float, *, is_again: bool,
    ) -> None:
        """``last_cycle``: when the last of its instructions asks; ``soonest_cycles`` later it may have its data.

        ``more_cycles``: what it takes from there. ``num_hidden`` of the wavefronts come while the transfer is under way.
        ``is_again``: L1 had it not, so that it passes the load/store unit again.
        """
        self._is_again = is_again
        self._last = last_cycle
        self._soonest = soonest_cycles
        self._more = more_cycles
        self._hidden = num_hidden
        self._role = role
        self._stage = stage
        self._group = group
        self._wavefronts = wavefronts
        self._request = request
        self._op = op

    def _latency(self, cycle: float) -> float:
        """What its last instruction's data take from when they are asked for: as long as L2's or, out of memory, memory's.

        What waits in queues comes at their pace, whenever it was asked for.
        """
        engine, request = self._role.engine, self._request
        if self._more or not engine.gpu.l1.cp_async_row_cycles:  # L1 has it or asks for it; or rows pass no stage
            return self._soonest
        l2 = engine.machine.l2
        waited = cycle - request.issued_at - request.num_bytes / engine.gpu.xbar.sm_read_bytes_per_cycle
        of_memory = l2.hit_latency_cycles + l2.hbm.latency_cycles
        return of_memory if waited > of_memory and l2.was_coming(request) else self._soonest

    def __call__(self, cycle: float) -> None:
        """It has happened, or will at the cycle given."""
        role, request = self._role, self._request
        now = role.agenda.cycle  # queued now, though they come at ``cycle``
        there = end = max(cycle, self._last + self._latency(cycle)) + self._more
        smem, left = role.sm.smem, self._wavefronts
        queued_until = smem.fill(left, at_cycle=now, weight=request.num_alike) if left else now
        # wavefronts that arrive while the transfer is under way hide behind it; only the excess shows
        if self._op.allocates_in_l1:  # what is queued now has mostly passed by then
            pace, cycles = smem.wavefronts_per_cycle, left / smem.wavefronts_per_cycle
            if self._is_again:
                l1, num = role.sm.l1, self._op.access.num_requests
                _, passed = l1.accept(num, 0.0, at_cycle=now, weight=request.num_alike, more_cycles=cycles)
                queued_until = max(queued_until, passed)
                cycles += num / l1.spec.requests_per_cycle
            end = max(queued_until, there + max(0.0, cycles - self._hidden / pace))
        elif left:
            end = there + max(0.0, queued_until - now - min(left, self._hidden))
        self._stage.end_write(end)
        self._group.finish(end)
        role.engine.copy_cycles += end - request.issued_at
        role.engine.num_copies += 1
        if role.record is not None:
            offset = role.engine.offset_cycles
            role.engine.timeline.copies.append(
                CopySpan(
                    role.cta.idx, role.sm.idx, self._op.buffer, self._op.stage, request.tensor,
                    request.issued_at + offset, end + offset, request.num_bytes,
                )
            )


class Stored:
    """A store has left the SM, and has arrived: the kernel does not end before both."""

    __slots__ = ("_at", "_engine", "_has_arrived", "_has_left", "_has_one")

    def __init__(self, engine: Engine, has_left: AsyncGroup | None, has_arrived: AsyncGroup | None) -> None:
        engine.store_began()
        self._engine = engine
        self._has_left = has_left
        self._has_arrived = has_arrived
        self._has_one = False
        self._at = 0.0

    def __call__(self, cycle: float) -> None:
        """It has left, or will at the cycle given."""
        if self._has_left is not None:
            self._has_left.finish(cycle)
        self._over(cycle)

    def arrived(self, cycle: float) -> None:
        """It has passed all that stores share, or will at the cycle given."""
        if self._has_arrived is not None:
            self._has_arrived.finish(cycle)
        self._over(cycle)

    def _over(self, cycle: float) -> None:
        if cycle > self._at:
            self._at = cycle
        if self._has_one:
            self._engine.store_ended(self._at)
        self._has_one = True
