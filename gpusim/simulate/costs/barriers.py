"""mbarriers, thread and cluster barriers, fences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpusim.errors import LaunchError
from gpusim.simulate.cta import ThreadBarrier
from gpusim.simulate.role import ISSUE, Pause, Resume, Role, is_pair, lacks, peer
from gpusim.simulate.timeline import WarpState
from gpusim.units import WARP_SIZE
from gpusim.workload import ops

if TYPE_CHECKING:
    from gpusim.machine.sm.mbarrier import Mbarrier, MbarrierSpec
    from gpusim.simulate.cta import Cta


def mbarrier(role: Role, name: str, stage: int) -> Mbarrier:
    """The barrier that an op names."""
    if role.engine.mbarrier_spec is None:
        raise lacks(role, "mbarrier", "8.0")
    return role.cta.mbarrier(name, stage)


def mbarrier_init(role: Role, op: ops.MbarrierInit) -> Pause:
    """One instruction."""
    mbarrier(role, op.barrier, 0)
    role.issue(1)
    return None


def mbarrier_arrive(role: Role, op: ops.MbarrierArrive) -> Pause:
    """Arrive here, or a network latency later on another CTA."""
    role.meet()
    rank = op.cta_rank
    if rank is None or rank == role.cta.rank:
        barrier, cta = role.cta.mbarrier(op.barrier, op.stage), role.cta
        phase = barrier.num_phases
        barrier.arrive(op.count, issue_arrival(role, max(1, min(op.count // WARP_SIZE, role.num_warps))))
    else:
        dsmem = role.sm.dsmem
        if dsmem is None:
            raise lacks(role, "distributed shared memory", "9.0")
        cta = peer(role, rank)
        barrier = cta.mbarrier(op.barrier, op.stage)
        phase = barrier.num_phases
        issue_arrival(role)
        role.arrives_far_at = role.t + dsmem.one_way(is_pair=is_pair(role))
        barrier.arrive(op.count, role.arrives_far_at)
    if barrier.num_phases != phase:
        record_flip(role, cta, barrier)
    return None


def record_flip(role: Role, cta: Cta, barrier: Mbarrier) -> None:
    """Note for the timeline that ``barrier`` of ``cta`` has completed a phase."""
    engine = role.engine
    if cta.sm.idx in engine.recorded_sms:
        engine.timeline.record_flip(barrier, cta.idx, cta.sm.idx, engine.offset_cycles)


def issue_arrival(role: Role, num_warps: int = 1) -> float:
    """Issue an arrival of each of ``num_warps``; returns when the last counts if its mbarrier is on this SM."""
    unit = role.sm.mbarrier_unit
    if unit is None:
        raise lacks(role, "mbarrier", "8.0")
    goes_on, counts_at = unit.arrive(role.t)
    for _ in range(num_warps - 1):  # lanes arrive together, warps one after the other
        goes_on, counts_at = unit.arrive(role.t)
    role.step(goes_on - role.t)
    return counts_at


def arrive_expect_tx(role: Role, op: ops.MbarrierArriveExpectTx) -> Pause:
    """Announce bytes and arrive."""
    barrier = role.cta.mbarrier(op.barrier, op.stage)
    barrier.tx_bytes += op.num_bytes
    barrier.announced_bytes += op.num_bytes
    phase = barrier.num_phases
    barrier.arrive(1, issue_arrival(role))
    if barrier.num_phases != phase:
        record_flip(role, role.cta, barrier)
    return None


def mbarrier_wait(role: Role, op: ops.MbarrierWait) -> Pause:
    """Go on at once, at the cycle that is known, or when the phase completes."""
    spec = role.engine.mbarrier_spec
    if spec is None:
        raise lacks(role, "mbarrier", "8.0")
    barrier = role.cta.mbarrier(op.barrier, op.stage)
    if barrier.parity != op.parity:
        completed_at = barrier.completed_at
        if op.by_lane:
            role.spend(WarpState.WAIT_MBARRIER, looked_at(spec, role.t, completed_at))
        elif completed_at <= role.t:
            role.step(spec.try_wait_cycles)
        else:
            role.spend(WarpState.WAIT_MBARRIER, max(completed_at, role.t + spec.try_wait_cycles) + spec.wake_cycles)
        return None
    wake = role.block(WarpState.WAIT_MBARRIER, op)
    if op.by_lane:
        barrier.waiters.append(WakeAtLook(role, wake, spec))
    else:
        barrier.waiters.append(WakeAfterPhase(role, wake, spec.wake_cycles, spec.try_wait_cycles))
    return wake


def looked_at(spec: MbarrierSpec, since: float, completed_at: float) -> float:
    """When a lone lane that has waited ``since`` goes on: with the end of its first try that finds the phase complete."""
    first = since + spec.lone_try_wait_cycles
    if completed_at <= first or not spec.lone_retry_cycles:
        return max(first, completed_at)
    return first + math.ceil((completed_at - first) / spec.lone_retry_cycles) * spec.lone_retry_cycles


def thread_barrier(role: Role, barrier: ThreadBarrier, state: WarpState, *, waits: bool) -> Pause:
    """Arrive, and where it ``waits`` go on with the last arrival."""
    role.meet()
    release = barrier.arrive(role.num_threads, max(role.t, role.all_fenced_at), waits=waits)
    if not waits:
        return None
    if release is not None:
        role.spend(state, release)
        return None
    wake = role.block(state, f"barrier {barrier.name!r}")
    barrier.wait(Resume(role, wake))
    return wake


def named_barrier(role: Role, name: str) -> ThreadBarrier:
    """The barrier that the launch declares by that name."""
    try:
        return role.cta.barriers[name]
    except KeyError:
        declared = ", ".join(role.cta.barriers) or "none"
        raise LaunchError(f"{role.who()} uses barrier {name!r}, the launch declares {declared}") from None


def bar_sync(role: Role, op: ops.BarSync) -> Pause:
    """Arrive and wait."""
    return thread_barrier(role, named_barrier(role, op.barrier), WarpState.WAIT_BARRIER, waits=True)


def bar_arrive(role: Role, op: ops.BarArrive) -> Pause:
    """Arrive alone."""
    role.step(role.sm.warp_scheduler.spec.bar_arrive_cycles)
    return thread_barrier(role, named_barrier(role, op.barrier), WarpState.WAIT_BARRIER, waits=False)


def syncthreads(role: Role, op: ops.Syncthreads) -> Pause:
    """All threads of the CTA."""
    return thread_barrier(role, role.cta.syncthreads, WarpState.WAIT_BARRIER, waits=True)


def cluster_arrive(role: Role, op: ops.ClusterArrive) -> Pause:
    """One more role of the cluster is here."""
    if role.sm.dsmem is None:
        raise lacks(role, "cluster barrier", "9.0")
    role.meet()
    role.issue(1)
    cluster = role.cta.cluster
    release = cluster.barrier.arrive(role.spec.num_threads, role.t)
    cluster.last_release[id(role)] = -1.0 if release is None else release
    if release is not None:
        for key in cluster.last_release:
            cluster.last_release[key] = release
    return None


def cluster_wait(role: Role, op: ops.ClusterWait) -> Pause:
    """Until all roles of the cluster have arrived."""
    cluster = role.cta.cluster
    release = cluster.last_release.get(id(role))
    if release is None:
        raise LaunchError(f"{role.who()} waits on the cluster barrier and has not arrived; arrive first")
    if release >= 0.0:
        del cluster.last_release[id(role)]
        role.spend(WarpState.WAIT_CLUSTER, release)
        return None
    wake = role.block(WarpState.WAIT_CLUSTER, "the cluster barrier")

    def resume(cycle: float) -> None:
        del cluster.last_release[id(role)]
        Resume(role, wake)(cycle)

    cluster.barrier.wait(resume)
    return wake


def fence(role: Role, op: ops.WgmmaFence) -> Pause:
    """A few cycles."""
    role.spend(ISSUE, role.t + role.sm.warp_scheduler.spec.fence_cycles)
    return None


def fence_proxy_async(role: Role, op: ops.FenceProxyAsync) -> Pause:
    """Until this role's stores are delivered, and a few cycles; a barrier behind it waits until copies see them all."""
    spec = role.sm.warp_scheduler.spec
    role.spend(WarpState.LSU, role.delivered_at)
    role.sm.smem.count(float(role.num_warps) * role.count)
    in_at = max(role.t, role.stored_at + role.sm.smem.spec.store_latency_cycles)
    role.spend(ISSUE, role.t + spec.fence_cycles)
    seen_at = in_at + spec.fence_cycles + spec.fence_view_cycles
    role.all_fenced_at = seen_at + (role.num_warps - 1) * spec.fence_warp_cycles
    return None


class WakeAtLook:
    """Wakes a lone lane when it looks for the first time after an mbarrier's phase has completed."""

    __slots__ = ("_role", "_spec", "_wake")

    def __init__(self, role: Role, wake: Role, spec: MbarrierSpec) -> None:
        self._role = role
        self._wake = wake
        self._spec = spec

    def __call__(self, completed_at: float) -> None:
        """It has happened, or will at the cycle given."""
        now = self._role.agenda.cycle
        until = looked_at(self._spec, self._role.t, completed_at)
        self._wake.fire(until - now if until > now else 0.0)


def fence_mbarrier_init(role: Role, op: ops.FenceMbarrierInit) -> Pause:
    """Nothing but its place in the order: ptxas makes no instruction of it but a NOP."""
    role.issue(1)
    return None


def fence_acq_rel(role: Role, op: ops.FenceAcqRel) -> Pause:
    """Until what this role has stored elsewhere is there, and then a round to L2."""
    previous = role.last_store
    if previous is not None and previous.num_pending:
        role.must_retry = True
        return role.wait_group(previous, WarpState.LSU, "its stores")
    since = max(role.t, role.arrives_far_at)
    if previous is not None:
        since = max(since, previous.ready_at + role.engine.machine.l2.hit_latency_cycles)
    role.spend(WarpState.LSU, since + role.sm.warp_scheduler.gpu_fence_cycles(role.num_warps))
    return None


class WakeAfterPhase:
    """Wakes a role some cycles after an mbarrier's phase has completed."""

    __slots__ = ("_role", "_try", "_wake", "_wake_cycles")

    def __init__(self, role: Role, wake: Role, wake_cycles: float, try_cycles: float) -> None:
        self._role = role
        self._wake = wake
        self._wake_cycles = wake_cycles
        self._try = try_cycles

    def __call__(self, completed_at: float) -> None:
        """It has happened, or will at the cycle given."""
        role = self._role
        now = role.agenda.cycle
        until = asleep_at = role.t + self._try
        if completed_at > role.t:  # the role may be ahead of the clock, and the phase already over when it asked
            until = (completed_at if completed_at > asleep_at else asleep_at) + self._wake_cycles
        self._wake.fire(until - now if until > now else 0.0)
