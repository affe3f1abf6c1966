"""Shared memory, distributed shared memory."""

from __future__ import annotations

from gpusim.simulate.role import Pause, Role, lacks, peer
from gpusim.simulate.timeline import WarpState
from gpusim.workload import ops


def shared_load(role: Role, op: ops.SharedLoad | ops.Ldmatrix) -> Pause:
    """Wavefronts of the data stage; the token is ready a latency later."""
    access, sm = op.access, role.sm
    role.issue(access.num_requests / role.num_warps)
    stage = role.stage(op.buffer, op.stage)
    wavefronts = role.wavefronts(access)
    ready = sm.smem.load(
        wavefronts, wavefronts_per_warp=wavefronts / role.num_warps, at_cycle=role.t, weight=role.count
    )
    if stage is not None:
        until = ready - sm.smem.spec.load_latency_cycles
        stage.read(role.t, until, "" if stage.is_full(role.t) else role.who())
    token = ops.Token(is_long=False)
    token.ready_cycle = ready
    return token


def shared_store(role: Role, op: ops.SharedStore | ops.Stmatrix) -> Pause:
    """Wavefronts of the data stage."""
    access = op.access
    role.issue(access.num_requests / role.num_warps)
    stage = role.stage(op.buffer, op.stage)
    end = role.sm.smem.store(role.wavefronts(access), at_cycle=role.t, weight=role.count)
    if stage is not None:
        stage.begin_write(role.t, role.who() if stage.read_until > role.t else "")
        stage.end_write(end)
    role.spend(WarpState.LSU, end)
    return None


def shared_atomic(role: Role, op: ops.SharedAtomic) -> Pause:
    """Wavefronts, and a latency of its own."""
    access, sm = op.access, role.sm
    role.issue(access.num_requests / role.num_warps)
    end = sm.smem.store(role.wavefronts(access), at_cycle=role.t, weight=role.count)
    token = ops.Token(is_long=False)
    token.ready_cycle = end + sm.smem.spec.atomic_latency_cycles
    return token


def dsmem_load(role: Role, op: ops.DsmemLoad) -> Pause:
    """Over the network of SMs."""
    dsmem = role.sm.dsmem
    if dsmem is None:
        raise lacks(role, "distributed shared memory", "9.0")
    peer(role, op.cta_rank)
    role.issue(1)
    token = ops.Token(is_long=True)
    token.ready_cycle = dsmem.read(op.num_bytes, at_cycle=role.t, weight=role.count)
    return token


def dsmem_store(role: Role, op: ops.DsmemStore) -> Pause:
    """Over the network of SMs; nobody waits."""
    dsmem = role.sm.dsmem
    if dsmem is None:
        raise lacks(role, "distributed shared memory", "9.0")
    peer(role, op.cta_rank)
    role.issue(1)
    dsmem.write(op.num_bytes, at_cycle=role.t, weight=role.count)
    return None


def st_async(role: Role, op: ops.StAsync) -> Pause:
    """Over the network of SMs; counts on the far CTA's mbarrier."""
    dsmem = role.sm.dsmem
    if dsmem is None:
        raise lacks(role, "distributed shared memory", "9.0")
    barrier = peer(role, op.cta_rank).mbarrier(op.barrier, op.stage)
    role.issue(1)
    arrived = dsmem.write(op.num_bytes, at_cycle=role.t, weight=role.count)
    barrier.complete_tx(op.num_bytes, arrived)
    return None
