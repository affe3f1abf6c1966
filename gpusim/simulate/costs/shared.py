"""Shared memory, distributed shared memory."""

from __future__ import annotations

from gpusim.simulate.costs.barriers import record_flip
from gpusim.simulate.costs.memory import ask_again, until_stored
from gpusim.simulate.load_line import LongLoad, parts_of, takes_turns, way_wavefronts, words_per_lane
from gpusim.simulate.role import Pause, Role, is_pair, lacks, peer
from gpusim.simulate.timeline import WarpState
from gpusim.units import WAVEFRONT_BYTES
from gpusim.workload import ops
from gpusim.workload.access import AccessPattern
from gpusim.workload.token import Token

ISSUE_CYCLES = 1.0
"""Of one instruction of a warp."""


def shared_load(role: Role, op: ops.SharedLoad | ops.Ldmatrix) -> Pause:
    """Wavefronts of the data stage; the token is ready a latency later."""
    access, smem, begun = op.access, role.sm.smem, role.partly
    wavefronts = role.wavefronts(access)
    is_matrix = type(op) is ops.Ldmatrix
    if begun is None:
        if role.queued_stores:  # instructions of a warp go to memory and shared memory in their order
            pause = until_stored(role, role.queued_stores, role.passed_bytes)
            if pause is not None:
                role.must_retry = True
                return pause
        first = role.t + ISSUE_CYCLES
        role.issue(access.num_requests / role.num_warps)
        if is_matrix:
            role.sm.tensor_core.pass_loads(access.num_requests, at_cycle=role.t)
        smem.count_load(wavefronts * role.count, access.num_requests * role.count, is_matrix=is_matrix)
        if takes_turns(role, wavefronts):
            load = LongLoad(role, op, wavefronts, is_matrix=is_matrix)
            return load.begin(min(first, role.t) if role.num_warps > 1 else role.t)
        begun = role.t, wavefronts
    asked_at, left = begun
    registers = access.num_bytes / WAVEFRONT_BYTES / wavefronts if wavefronts else 0.0
    at, on_way = role.t, 0.0
    if role.partly is None:
        on_way = way_wavefronts(access, wavefronts)
    end, left = smem.load(
        left, registers_per_wavefront=registers, at_cycle=at, weight=role.count, way_wavefronts=on_way
    )
    stage = role.stage(op.buffer, op.stage)
    if left:
        if stage is not None:
            stage.read(at, end, "" if stage.is_full(at) else role.who())
        return ask_again(role, end, asked_at, left)
    words = words_per_lane(access, is_matrix=is_matrix)
    per_warp = wavefronts / role.num_warps
    ready = whole = smem.ready(end, wavefronts_per_warp=per_warp, words_per_lane=words, at_cycle=asked_at)
    num_parts = parts_of(role, op)
    if num_parts != 1:
        behind = wavefronts * (1.0 - 1.0 / num_parts)
        ready = smem.ready(
            end - behind / smem.wavefronts_per_cycle, wavefronts_per_warp=per_warp / num_parts, words_per_lane=words,
            at_cycle=asked_at,
        )
    role.partly = None
    if stage is not None:
        until = whole - smem.load_latency_cycles
        stage.read(at, until, "" if stage.is_full(at) else role.who())
        if role.record is not None:
            role.record_read(op.buffer, op.stage, at, until)
    token = Token(is_long=False)
    token.ready_cycle = ready
    return token


def shared_store(role: Role, op: ops.SharedStore | ops.Stmatrix) -> Pause:
    """Wavefronts of the data stage, from the first instruction on; the warps go on when the last waits in its queue."""
    access, smem, partly = op.access, role.sm.smem, role.partly
    stage = role.stage(op.buffer, op.stage)
    wavefronts = role.wavefronts(access)
    at = role.t
    if partly is None:
        first = at + ISSUE_CYCLES
        at = min(first, role.issue(access.num_requests / role.num_warps))
        smem.count_store(
            wavefronts * role.count, access.num_requests * role.count, is_matrix=type(op) is ops.Stmatrix
        )
        partly = role.t, wavefronts
    begun, left = partly
    end, left = smem.store(left, at_cycle=at, weight=role.count, is_again=role.partly is not None)
    if left:
        return ask_again(role, end, begun, left)
    role.partly = None
    end = max(end, begun + wavefronts / role.num_warps * smem.warp_cycles_per_wavefront)
    last = 1.0 / smem.wavefronts_per_cycle
    ahead = smem.replay_cycles(wavefronts, access.num_bytes, backlog_cycles=end - begun)
    each = wavefronts / max(access.num_requests, 1) / smem.wavefronts_per_cycle
    others = each * (role.num_warps - 1) / 2.0  # half of the warps have their last instruction served behind a middle one's
    delivered = end - ahead - others + smem.store_latency_cycles
    if end > role.stored_at:
        role.stored_at = end
        role.delivered_at = delivered
    role.spend(WarpState.LSU, end - last - ahead - posted_cycles(role, access, wavefronts))
    if stage is not None:
        stage.begin_write(begun, role.who() if stage.read_until > begun else "")
        stage.end_write(role.t)  # whoever reads behind this warp goes behind it in the data stage, too
    if not op.has_token:
        return None
    token = Token(is_long=False)
    token.ready_cycle = delivered
    return token


def posted_cycles(role: Role, access: AccessPattern, wavefronts: float) -> float:
    """How long before its last wavefront goes in the warps of a store go on."""
    known, num_warps = role.engine.op_costs.of_access(access).posted_cycles, role.num_warps
    found = known.get(num_warps)
    if found is None:
        spec = role.sm.smem.spec
        pace = max(1.0 / spec.wavefronts_per_cycle, spec.warp_cycles_per_wavefront / num_warps)
        found = known[num_warps] = role.sm.l1.spec.posted_cycles(
            wavefronts * pace, num_requests=access.num_requests, num_bytes=access.num_bytes,
            num_schedulers=min(num_warps, role.sm.warp_scheduler.spec.num_schedulers),
        )
    return found


def shared_atomic(role: Role, op: ops.SharedAtomic) -> Pause:
    """Wavefronts, and a latency of its own."""
    access = op.access
    role.issue(access.num_requests / role.num_warps)
    wavefronts = role.wavefronts(access)
    token = Token(is_long=False)
    token.ready_cycle = role.sm.smem.swap(
        wavefronts, wavefronts_per_warp=wavefronts / role.num_warps, at_cycle=role.t, weight=role.count
    )
    return token


def dsmem_load(role: Role, op: ops.DsmemLoad) -> Pause:
    """Over the network of SMs."""
    dsmem, far = role.sm.dsmem, peer(role, op.cta_rank).sm.dsmem
    if dsmem is None or far is None:
        raise lacks(role, "distributed shared memory", "9.0")
    role.issue(1)
    token = Token(is_long=True)
    token.ready_cycle = dsmem.read(
        op.num_bytes, at_cycle=role.t, weight=role.count, far=far, is_pair=is_pair(role)
    )
    return token


def dsmem_store(role: Role, op: ops.DsmemStore) -> Pause:
    """Over the network of SMs; nobody waits."""
    dsmem = role.sm.dsmem
    if dsmem is None:
        raise lacks(role, "distributed shared memory", "9.0")
    peer(role, op.cta_rank)
    role.issue(1)
    role.arrives_far_at = dsmem.write(op.num_bytes, at_cycle=role.t, weight=role.count, is_pair=is_pair(role))
    return None


def st_async(role: Role, op: ops.StAsync) -> Pause:
    """Over the network of SMs; counts on the far CTA's mbarrier."""
    dsmem = role.sm.dsmem
    if dsmem is None:
        raise lacks(role, "distributed shared memory", "9.0")
    cta = peer(role, op.cta_rank)
    barrier = cta.mbarrier(op.barrier, op.stage)
    phase = barrier.num_phases
    role.issue(1)
    arrived = dsmem.write(op.num_bytes, at_cycle=role.t, weight=role.count, is_pair=is_pair(role))
    role.arrives_far_at = arrived
    barrier.complete_tx(op.num_bytes, arrived)
    if barrier.num_phases != phase:
        record_flip(role, cta, barrier)
    return None
