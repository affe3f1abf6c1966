"""Ops that touch shared memory: loads, stores, atomics, and those of other CTAs of the cluster."""

from __future__ import annotations

from gpusim.errors import LaunchError
from gpusim.reference.role import Loaded, Role
from gpusim.reference.sm import TURN_WAVEFRONTS, LongLoad, way_wavefronts
from gpusim.workload import ops

ISSUE_CYCLES = 1.0
"""Of one instruction of a warp."""


def shared_load(role: Role, op: ops.SharedLoad | ops.Ldmatrix) -> Loaded:
    """Wavefronts of the data stage; registers are there a latency later. Of several parts the first is waited for."""
    access, stage_of, count = op.access, role.sm.data_stage, role.kernel.count
    wavefronts = float(access.num_wavefronts)
    num_parts = op.num_parts if isinstance(op, ops.SharedLoad) else 1
    if num_parts < 1:
        raise LaunchError(f"{role.who()} reads {num_parts} parts, wants 1 or more")
    first_at = role.t + ISSUE_CYCLES
    role.issue(access.num_requests / role.num_warps)
    kind = "matrix" if isinstance(op, ops.Ldmatrix) else "plain"
    count[f"smem.{kind}_load_wavefronts"] += wavefronts
    count[f"smem.{kind}_loads"] += access.num_requests
    count["smem.wavefronts"] += wavefronts
    count["smem.load_wavefronts"] += wavefronts
    loaded, stage = Loaded(role.env), role.stage(op.buffer, op.stage)
    latency, last = role.kernel.gpu.smem.load_latency_cycles, 1.0 / stage_of.rate
    asked_at = role.t

    def ready_at(end: float) -> float:
        return max(end - last, asked_at) + latency

    if wavefronts > TURN_WAVEFRONTS and not role.sm.has_run_wgmma:
        load = LongLoad(role.env, access, wavefronts, role.num_warps, num_parts)
        load.first.then(lambda end: loaded.tell(ready_at(end)))
        if stage is not None:
            slot = stage
            slot.begin_read(role.t, role.who())
            load.whole.then(lambda end: slot.end_read(ready_at(end) - latency))
        role.sm.load_line.ask(load, role.cta.idx, min(first_at, role.t) if role.num_warps > 1 else role.t)
        return loaded
    end = stage_of.serve(wavefronts, role.t, way_wavefronts=way_wavefronts(access, wavefronts))
    if stage is not None:
        stage.read(role.t, ready_at(end) - latency, role.who())
    behind = wavefronts * (1.0 - 1.0 / num_parts)
    loaded.tell(ready_at(end - behind / stage_of.rate))
    return loaded


def shared_store(role: Role, op: ops.SharedStore | ops.Stmatrix) -> Loaded | None:
    """Wavefronts of the data stage, from the first instruction on; the warps go on when the last of them goes in."""
    access, count = op.access, role.kernel.count
    stage_of, stage = role.sm.data_stage, role.stage(op.buffer, op.stage)
    wavefronts = float(access.num_wavefronts)
    first_at = role.t + ISSUE_CYCLES
    role.issue(access.num_requests / role.num_warps)
    kind = "matrix" if isinstance(op, ops.Stmatrix) else "plain"
    count[f"smem.{kind}_store_wavefronts"] += wavefronts
    count[f"smem.{kind}_stores"] += access.num_requests
    count["smem.wavefronts"] += wavefronts
    count["smem.store_wavefronts"] += wavefronts
    begun_at = role.t
    end = max(begun_at, stage_of.serve(wavefronts, min(first_at, begun_at)))
    each = wavefronts / max(access.num_requests, 1) / stage_of.rate
    others = each * (role.num_warps - 1) / 2.0  # served behind a middle warp's last instruction
    delivered_at = end - others
    if end > role.stored_at:
        role.stored_at, role.delivered_at = end, delivered_at
    role.spend("lsu", end - 1.0 / stage_of.rate)
    if stage is not None:
        stage.begin_write(begun_at, role.who())
        stage.end_write(role.t)
    if not op.has_token:
        return None
    stored = Loaded(role.env)
    stored.tell(delivered_at)
    return stored


def shared_atomic(role: Role, op: ops.SharedAtomic) -> Loaded:
    """Wavefronts as of a store, and a latency of its own."""
    wavefronts = float(op.access.num_wavefronts)
    role.issue(op.access.num_requests / role.num_warps)
    role.kernel.count["smem.wavefronts"] += wavefronts
    role.kernel.count["smem.store_wavefronts"] += wavefronts
    stage = role.sm.data_stage
    end = max(stage.serve(wavefronts, role.t), role.t + 1.0 / stage.rate)
    loaded = Loaded(role.env)
    loaded.tell(end + role.kernel.gpu.smem.atomic_latency_cycles)
    return loaded


# ---------------------------------------------------------------------------------------------- of other CTAs


def dsmem_load(role: Role, op: ops.DsmemLoad) -> Loaded:
    """Over the network of SMs, there and back; the other end of it works, too."""
    far = role.peer(op.cta_rank).sm
    role.issue(1)
    role.kernel.count["dsmem.read_bytes"] += op.num_bytes
    far.network.reserve(op.num_bytes * role.part("dsmem").serve_fraction, role.t)
    loaded = Loaded(role.env)
    loaded.is_long = True
    loaded.tell(role.sm.network.reserve(op.num_bytes, role.t) + role.part("dsmem").latency_cycles)
    return loaded


def send(role: Role, num_bytes: int) -> float:
    """Send bytes to another SM; returns when the last has arrived."""
    role.issue(1)
    role.kernel.count["dsmem.write_bytes"] += num_bytes
    role.arrives_far_at = role.sm.network.reserve(num_bytes, role.t) + role.part("dsmem").one_way_cycles
    return role.arrives_far_at


def dsmem_store(role: Role, op: ops.DsmemStore) -> None:
    """Nobody waits."""
    role.peer(op.cta_rank)
    send(role, op.num_bytes)


def st_async(role: Role, op: ops.StAsync) -> None:
    """It counts on the other CTA's mbarrier."""
    barrier = role.peer(op.cta_rank).mbarrier(op.barrier, op.stage)
    barrier.deliver(op.num_bytes, send(role, op.num_bytes))
