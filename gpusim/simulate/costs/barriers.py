"""mbarriers, thread and cluster barriers, fences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusim.errors import LaunchError
from gpusim.machine.timing import Wake
from gpusim.simulate.cta import ThreadBarrier
from gpusim.simulate.role import ISSUE, Pause, Resume, Role, lacks, peer
from gpusim.simulate.timeline import WarpState
from gpusim.workload import ops

if TYPE_CHECKING:
    from gpusim.machine.sm.mbarrier import Mbarrier


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
    spec = role.engine.mbarrier_spec
    if spec is None:
        raise lacks(role, "mbarrier", "8.0")
    rank = op.cta_rank
    if rank is None or rank == role.cta.rank:
        barrier = role.cta.mbarrier(op.barrier, op.stage)
        role.step(spec.arrive_cycles)
        barrier.arrive(op.count, role.t)
    else:
        dsmem = role.sm.dsmem
        if dsmem is None:
            raise lacks(role, "distributed shared memory", "9.0")
        barrier = peer(role, rank).mbarrier(op.barrier, op.stage)
        role.step(spec.arrive_cycles)
        barrier.arrive(op.count, role.t + dsmem.spec.latency_cycles)
    return None


def arrive_expect_tx(role: Role, op: ops.MbarrierArriveExpectTx) -> Pause:
    """Announce bytes and arrive."""
    spec = role.engine.mbarrier_spec
    if spec is None:
        raise lacks(role, "mbarrier", "8.0")
    barrier = role.cta.mbarrier(op.barrier, op.stage)
    barrier.tx_bytes += op.num_bytes
    barrier.announced_bytes += op.num_bytes
    role.step(spec.arrive_cycles)
    barrier.arrive(1, role.t)
    return None


def mbarrier_wait(role: Role, op: ops.MbarrierWait) -> Pause:
    """Go on at once, at the cycle that is known, or when the phase completes."""
    spec = role.engine.mbarrier_spec
    if spec is None:
        raise lacks(role, "mbarrier", "8.0")
    barrier = role.cta.mbarrier(op.barrier, op.stage)
    if barrier.parity != op.parity:
        completed_at = barrier.completed_at
        if completed_at <= role.t:
            role.step(spec.try_wait_cycles)
        else:
            role.spend(WarpState.WAIT_MBARRIER, max(completed_at + spec.wake_cycles, role.t + spec.try_wait_cycles))
        return None
    wake = role.block(WarpState.WAIT_MBARRIER, op)
    barrier.waiters.append(WakeAfterPhase(role, wake, spec.wake_cycles, spec.try_wait_cycles))
    return wake


def thread_barrier(role: Role, barrier: ThreadBarrier, state: WarpState, *, waits: bool) -> Pause:
    """Arrive, and where it ``waits`` go on with the last arrival."""
    release = barrier.arrive(role.spec.num_threads, role.t)
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
    role.issue(1)
    return thread_barrier(role, named_barrier(role, op.barrier), WarpState.WAIT_BARRIER, waits=False)


def syncthreads(role: Role, op: ops.Syncthreads) -> Pause:
    """All threads of the CTA."""
    return thread_barrier(role, role.cta.syncthreads, WarpState.WAIT_BARRIER, waits=True)


def cluster_arrive(role: Role, op: ops.ClusterArrive) -> Pause:
    """One more role of the cluster is here."""
    if role.sm.dsmem is None:
        raise lacks(role, "cluster barrier", "9.0")
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


def fence(role: Role, op: ops.Op) -> Pause:
    """A few cycles."""
    role.spend(ISSUE, role.t + role.sm.warp_scheduler.spec.fence_cycles)
    return None


class WakeAfterPhase:
    """Wakes a role some cycles after an mbarrier's phase has completed."""

    __slots__ = ("_role", "_try", "_wake", "_wake_cycles")

    def __init__(self, role: Role, wake: Wake, wake_cycles: float, try_cycles: float) -> None:
        self._role = role
        self._wake = wake
        self._wake_cycles = wake_cycles
        self._try = try_cycles

    def __call__(self, completed_at: float) -> None:
        """It has happened, or will at the cycle given."""
        role = self._role
        now = role.env._now
        until = completed_at + self._wake_cycles
        earliest = role.t + self._try
        if until < earliest:
            until = earliest
        self._wake.fire(until - now if until > now else 0.0)
