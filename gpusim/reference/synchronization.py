"""Ops by which roles wait for one another: mbarriers, barriers of threads, fences; and marks, which take no time."""

from __future__ import annotations

from gpusim.errors import LaunchError
from gpusim.reference.cta import ThreadBarrier
from gpusim.reference.facts import Wait
from gpusim.reference.role import Role
from gpusim.workload import ops

# ---------------------------------------------------------------------------------------------- mbarriers


def mbarrier_init(role: Role, op: ops.MbarrierInit) -> None:
    """One instruction."""
    role.cta.mbarrier(op.barrier, 0)
    role.issue(1)


def issue_arrival(role: Role) -> float:
    """Issue an arrival; returns when it counts on this SM."""
    role.spend("issue", role.t + role.part("mbarrier").arrive_cycles)
    return role.t


def mbarrier_arrive(role: Role, op: ops.MbarrierArrive) -> None:
    """Arrive here, or some cycles later at another CTA's mbarrier."""
    if op.cta_rank is None or op.cta_rank == role.cta.rank:
        role.cta.mbarrier(op.barrier, op.stage).arrive(op.count, issue_arrival(role))
        return
    barrier = role.peer(op.cta_rank).mbarrier(op.barrier, op.stage)
    role.arrives_far_at = issue_arrival(role) + role.part("dsmem").one_way_cycles
    barrier.arrive(op.count, role.arrives_far_at)


def mbarrier_arrive_expect_tx(role: Role, op: ops.MbarrierArriveExpectTx) -> None:
    """Announce bytes, and arrive."""
    barrier = role.cta.mbarrier(op.barrier, op.stage)
    barrier.announce(op.num_bytes)
    barrier.arrive(1, issue_arrival(role))


def mbarrier_wait(role: Role, op: ops.MbarrierWait) -> Wait:
    """Until the phase of that parity is over. A warp looks once, and if that was too early it sleeps until it is woken."""
    spec, barrier = role.part("mbarrier"), role.cta.mbarrier(op.barrier, op.stage)
    looked_at = role.t + (spec.lone_try_wait_cycles if op.by_lane else spec.try_wait_cycles)
    wake_cycles = 0.0 if op.by_lane else spec.wake_cycles

    def goes_on_at(completed_at: float) -> float:
        return looked_at if completed_at <= role.t else max(looked_at, completed_at) + wake_cycles

    if barrier.parity != op.parity:
        is_over = not op.by_lane and barrier.completed_at <= role.t
        role.spend("issue" if is_over else "wait_mbarrier", goes_on_at(barrier.completed_at))
        return
    role.blocked_on, role.blocked_since = (barrier, op.parity), role.t
    completed_at = yield barrier.phase
    yield role.kernel.until(goes_on_at(completed_at))
    role.blocked_on = ""
    role.spend("wait_mbarrier", role.env.now)


# ---------------------------------------------------------------------------------------------- barriers of threads


def named_barrier(role: Role, name: str) -> ThreadBarrier:
    """The one that the launch declares by that name."""
    if name not in role.cta.barriers:
        declared = ", ".join(role.cta.barriers) or "none"
        raise LaunchError(f"{role.who()} uses barrier {name!r}, the launch declares {declared}")
    return role.cta.barriers[name]


def sync(role: Role, barrier: ThreadBarrier) -> Wait:
    """Arrive, and go on with the last."""
    release = barrier.arrive(role.num_threads, max(role.t, role.fenced_at))
    yield from role.wait(release, "wait_barrier", f"barrier {barrier.name!r}")


def bar_sync(role: Role, op: ops.BarSync) -> Wait:
    """``bar.sync``."""
    return sync(role, named_barrier(role, op.barrier))


def syncthreads(role: Role, op: ops.Syncthreads) -> Wait:
    """``__syncthreads()``."""
    return sync(role, role.cta.syncthreads)


def bar_arrive(role: Role, op: ops.BarArrive) -> None:
    """Arrive, and go on."""
    role.spend("issue", role.t + role.kernel.gpu.warp_scheduler.bar_arrive_cycles)
    named_barrier(role, op.barrier).arrive(role.num_threads, max(role.t, role.fenced_at))


def cluster_arrive(role: Role, op: ops.ClusterArrive) -> None:
    """One more role of the cluster is here."""
    role.issue(1)
    role.at_cluster = role.cta.cluster.barrier.arrive(role.num_threads, role.t)


def cluster_wait(role: Role, op: ops.ClusterWait) -> Wait:
    """Until all roles of the cluster are."""
    release, role.at_cluster = role.at_cluster, None
    if release is None:
        raise LaunchError(f"{role.who()} waits on the cluster barrier and has not arrived; arrive first")
    yield from role.wait(release, "wait_cluster", "the cluster barrier")


# ---------------------------------------------------------------------------------------------- fences


def wgmma_fence(role: Role, op: ops.WgmmaFence) -> None:
    """A few cycles."""
    role.spend("issue", role.t + role.kernel.gpu.warp_scheduler.fence_cycles)


def fence_proxy_async(role: Role, op: ops.FenceProxyAsync) -> None:
    """Until its stores' registers have been read; who meets this role behind it waits until all of them are in."""
    fence_cycles = role.kernel.gpu.warp_scheduler.fence_cycles
    role.spend("lsu", role.delivered_at)
    role.kernel.count["smem.wavefronts"] += role.num_warps
    role.fenced_at = max(role.t, role.stored_at) + fence_cycles
    role.spend("issue", role.t + fence_cycles)


def fence_mbarrier_init(role: Role, op: ops.FenceMbarrierInit) -> None:
    """Its place in the order."""
    role.issue(1)


def fence_acq_rel(role: Role, op: ops.FenceAcqRel) -> Wait:
    """Until what it has sent elsewhere is there, and a round to L2."""
    since, store = role.arrives_far_at, role.last_store
    if store is not None:
        yield from role.wait(store, "lsu", "its stores")
        assert store.cycle is not None  # it has been waited for
        since = max(since, store.cycle + role.kernel.gpu.l2.near_latency_cycles)
    role.spend("lsu", max(role.t, since) + role.kernel.gpu.warp_scheduler.gpu_fence_cycles)


# ---------------------------------------------------------------------------------------------- marks


def range_start(role: Role, op: ops.RangeStart) -> None:
    """A part of the program begins; in an epilogue sums are read."""
    if op.section is ops.Section.EPILOGUE:
        role.spend("math_pipe", role.mma_done_at)
    role.sections.append(op.section.value)


def range_end(role: Role, op: ops.RangeEnd) -> None:
    """The part that began last ends."""
    if not role.sections:
        raise LaunchError(f"{role.who()} ends a range that it never started; yield RangeStart first")
    role.sections.pop()


def nothing(role: Role, op: ops.Op) -> None:
    """Code that is there: caches of instructions are beyond the core."""
