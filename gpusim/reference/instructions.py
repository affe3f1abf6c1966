"""Time and resources of each op in the reference engine. ``tma_load(role, op)`` carries out ``TmaLoad``, and so on.

A function moves the role's cursor. It returns a token or nothing; a function that waits is a generator. Ops that the launch
does not declare are refused before they run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from gpusim.errors import LaunchError
from gpusim.reference.core import BEYOND_CORE
from gpusim.reference.cta import Cta, Role
from gpusim.reference.events import Fact, Wait, all_of
from gpusim.units import LINE_BYTES, SECTOR_BYTES, WAVEFRONT_BYTES
from gpusim.workload import ops
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.smem.wgmma_operands import wgmma_wavefronts

ISSUE_CYCLES = 1.0
"""Cycles of one instruction of a warp."""

COMMIT_WAVEFRONTS = 3.0
"""Wavefronts that Nsight Compute counts for a warp's commit of cp.async."""

MOST_WAVEFRONTS = 32.0
"""Wavefronts of a shared-memory load, at most. Longer loads take turns if the SM runs no wgmma: beyond the core."""


class Loaded(Fact):
    """Registers that a load fills; the token of a program. Known as soon as the cycle at which they are full is certain."""

    def __init__(self, role: Role, at: float | None = None, *, is_long: bool = False) -> None:
        """Registers full at cycle ``at``; None: known later. ``is_long``: the data do not come from shared memory."""
        super().__init__(role.env)
        self.is_long = is_long
        if at is not None:
            self.tell(at)


def carry_out(role: Role, op: object) -> Any:
    """Carry out an op of a role's program. Raises LaunchError: an op that is beyond the core, or no op."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(op).__name__).lower()
    beyond = [what for item, what in BEYOND_CORE.get(type(op), {}).items() if getattr(op, item)]
    if beyond or not isinstance(op, ops.Op) or name not in globals():
        raise LaunchError(f"{role.who} yields {type(op).__name__} ({', '.join(beyond) or op}), wants an op of the core")
    return globals()[name](role, op)


# ---------------------------------------------------------------------------------------------- arithmetic
def fma(role: Role, op: ops.Fma) -> None:
    """Issue to the FP32 pipe. Instructions of a chain wait. Registers of one bank take more issue slots."""
    if op.num_runs and role.kernel.ctas_per_sm > 1:
        raise LaunchError(f"{role.who} takes turns at the FMA pipe with CTAs of its SM, which is beyond the core")
    spec, num = role.kernel.gpu.warp_scheduler, op.num_instructions
    role.count("warp_scheduler", fma_instructions=num * role.num_warps)
    chained = role.t + num * spec.dependent_cycles if op.is_chain else 0.0
    turns = max(1.0, op.bank_reads / spec.bank_reads_per_cycle)
    role.spend("math_pipe", max(chained, role.execute(role.sm.fma, num, turns_each=turns)))


def alu(role: Role, op: ops.Alu) -> None:
    """Issue to the integer pipe. In a chain each instruction waits for the previous one."""
    chained = role.t + op.num_instructions * role.kernel.gpu.warp_scheduler.dependent_cycles if op.is_chain else 0.0
    end = max(chained, role.execute(role.sm.alu, op.num_instructions))
    if op.num_more:  # instructions between those of the chain
        role.count("warp_scheduler", instructions=op.num_more * role.num_warps)
        end = max(end, role.sm.issue(op.num_more, role.num_warps, role.t))
    role.spend("issue", end)


def mufu(role: Role, op: ops.Mufu) -> None:
    """Issue to the special-function pipe."""
    role.spend("math_pipe", role.execute(role.sm.mufu, op.num_instructions))


def shfl(role: Role, op: ops.Shfl) -> None:
    """Shuffles; in a chain each waits for the result of the previous one."""
    num, num_warps = op.num_instructions, op.num_warps or role.num_warps
    role.count("smem", wavefronts=num * num_warps)
    chained = role.t + num * role.kernel.gpu.warp_scheduler.shuffle_cycles if op.is_chain else 0.0
    end = role.execute(role.sm.shuffle, num, num_warps=num_warps)
    role.spend("short_scoreboard", max(chained, end))


def mma_sync(role: Role, op: ops.MmaSync) -> Wait:
    """Issue mma.sync: the tensor cores' rate holds up the warps, and the results come a latency later."""
    spec, num, kind = role.kernel.gpu.tensor_core, op.num_issues * role.num_warps, op.atom.rate_class
    num_sub_cores = role.kernel.gpu.warp_scheduler.num_schedulers
    flops_per_cycle = spec.mma_sync_flops_per_cycle[kind] / num_sub_cores
    each = max(op.atom.num_flops / flops_per_cycle, spec.mma_sync_min_interval_cycles)
    cycles = num * each / num_sub_cores
    role.sm.slots.reserve(num, role.t)
    role.count("warp_scheduler", instructions=num)
    role.count("tensor_core", busy_cycles=cycles, **{f"{'imma' if kind == 'int8' else 'hmma'}_instructions": num})

    def multiply(at: float) -> float:
        role.spend("tensor", at)
        own = role.t + op.num_issues * each * -(-role.num_warps // num_sub_cores)
        last_issue = max(own, role.sm.tensor_pipe.reserve(cycles, role.t)) - each
        role.spend("tensor", last_issue)
        role.mma_done_at = last_issue + spec.mma_sync_latency_cycles
        return role.t

    if len(role.kernel.launch.roles) == 1 and role.kernel.ctas_per_sm == 1:
        multiply(role.t)
        return
    if (turn := role.sm.turns.ask(role, role.t, multiply)).cycle is None:
        role.blocked_on, role.blocked_since = lambda: "the tensor cores", role.t
        yield turn
        yield role.env.timeout(0.0)
        role.spend("tensor", role.env.now)


def wgmma(role: Role, op: ops.Wgmma) -> None:
    """Queue a batch of wgmma in the tensor cores. The warps go on, unless too many of their groups are in flight."""
    spec, num, wavefronts = role.kernel.gpu.tensor_core, op.num_issues * role.num_warpgroups, wgmma_wavefronts(op.atom)
    if len(role.wgmma_groups) >= spec.wgmma_max_groups:
        role.spend("tensor", role.wgmma_groups[-spec.wgmma_max_groups] + spec.wgmma_latency_cycles)
    arithmetic = op.atom.num_flops / spec.wgmma_flops_per_cycle[op.atom.rate_class]
    cycles = num * (max(arithmetic, wavefronts / spec.wgmma_smem_wavefronts_per_cycle) + spec.wgmma_overhead_cycles)
    end = role.sm.tensor_pipe.reserve(cycles, role.t)
    for stage in op.reads:
        role.cta.stages[stage].read(role.t, end, role.who)
    role.wgmma_end, role.sm.has_run_wgmma = max(role.wgmma_end, end), True
    num_instructions = op.num_issues * role.num_warps
    role.count("tensor_core", gmma_instructions=num_instructions, busy_cycles=cycles)
    role.count("warp_scheduler", instructions=num_instructions)
    role.count("smem", wavefronts=num * wavefronts, gmma_wavefronts=num * wavefronts)
    if op.num_between:  # other instructions of a warp, while the wgmma are queued
        alu(role, ops.Alu(op.num_between, is_chain=True))


def wgmma_commit_group(role: Role, op: ops.WgmmaCommitGroup) -> None:
    """Close the group."""
    role.wgmma_groups.append(role.wgmma_end)


def wgmma_wait_group(role: Role, op: ops.WgmmaWaitGroup) -> None:
    """Wait for the group that must have ended, and for the latency of its results."""
    while len(role.wgmma_groups) > op.num_pending:
        role.spend("wait_wgmma", role.wgmma_groups.popleft() + role.kernel.gpu.tensor_core.wgmma_latency_cycles)


def set_max_nreg(role: Role, op: ops.SetMaxNReg) -> Wait:
    """Exchange registers with the CTA's pool. An increase may have to wait."""
    role.issue(1)
    cta, needed = role.cta, (op.num_registers - role.registers) * role.num_threads
    role.registers = op.num_registers
    if needed > cta.num_free_registers:
        given = Fact(role.env)
        cta.waits_for_registers.append((needed, given))
        what = f"{needed} registers of the CTA's pool (setmaxnreg.inc {op.num_registers})"
        yield from role.wait(given, "wait_registers", what)
        return
    cta.num_free_registers -= needed
    if needed <= 0:
        cta.hand_out_registers(role.t)


# ---------------------------------------------------------------------------------------------- mbarriers
def issue_arrival(role: Role) -> float:
    """Issue an arrival; returns the cycle at which it counts on this SM."""
    role.spend("issue", role.t + float(role.part("mbarrier").arrive_cycles))
    return role.t


def mbarrier_arrive(role: Role, op: ops.MbarrierArrive) -> None:
    """Arrive at an mbarrier of this CTA, or some cycles later at one of another CTA."""
    rank, at = role.cta.rank if op.cta_rank is None else op.cta_rank, issue_arrival(role)
    if rank != role.cta.rank:
        role.arrives_far_at = at = at + role.part("dsmem").one_way_cycles
    role.cta.cluster[rank].mbarriers[op.barrier, op.stage].arrive(op.count, at, role.who)


def mbarrier_arrive_expect_tx(role: Role, op: ops.MbarrierArriveExpectTx) -> None:
    """Announce bytes, and arrive."""
    barrier = role.cta.mbarriers[op.barrier, op.stage]
    barrier.announce(op.num_bytes)
    barrier.arrive(1, issue_arrival(role), role.who)


def mbarrier_wait(role: Role, op: ops.MbarrierWait) -> Wait:
    """Wait until the phase of a parity has completed. A warp tests once; if that is too early, it sleeps until woken."""
    spec, barrier = role.part("mbarrier"), role.cta.mbarriers[op.barrier, op.stage]
    looked_at: float = role.t + (spec.one_lane_try_wait_cycles if op.by_lane else spec.try_wait_cycles)
    wake_cycles = 0.0 if op.by_lane else spec.wake_cycles

    def goes_on_at(completed_at: float) -> float:
        return looked_at if completed_at <= role.t else max(looked_at, completed_at) + wake_cycles

    if barrier.parity != op.parity:
        is_over = not op.by_lane and barrier.completed_at <= role.t
        role.spend("issue" if is_over else "wait_mbarrier", goes_on_at(barrier.completed_at))
        return
    role.blocked_on, role.blocked_since = partial(barrier.words, op.parity), role.t
    completed_at = yield barrier.phase
    yield role.kernel.until(goes_on_at(completed_at))
    role.spend("wait_mbarrier", role.env.now)


# ---------------------------------------------------------------------------------------------- thread barriers
def arrive(role: Role, barrier: str) -> Fact:
    """Arrive at a barrier of the CTA, when all fenced stores are visible. The returned fact counts when all may go on."""
    return role.cta.barriers[barrier].arrive(role.num_threads, max(role.t, role.fenced_at))


def bar_sync(role: Role, op: ops.BarSync) -> Wait:
    """Arrive, and go on with the last arrival."""
    yield from role.wait(arrive(role, op.barrier), "wait_barrier", f"barrier {op.barrier!r}")


def syncthreads(role: Role, op: ops.Syncthreads) -> Wait:
    """Synchronize all threads of the CTA."""
    return bar_sync(role, ops.BarSync("__syncthreads"))


def bar_arrive(role: Role, op: ops.BarArrive) -> None:
    """Arrive, and go on."""
    role.spend("issue", role.t + role.kernel.gpu.warp_scheduler.bar_arrive_cycles)
    arrive(role, op.barrier)


def cluster_arrive(role: Role, op: ops.ClusterArrive) -> None:
    """Arrive at the cluster barrier."""
    role.issue(1)
    role.at_cluster = role.cta.at_cluster.arrive(role.num_threads, role.t)


def cluster_wait(role: Role, op: ops.ClusterWait) -> Wait:
    """Wait until all roles of the cluster have arrived."""
    yield from role.wait(role.at_cluster, "wait_cluster", "the cluster barrier")


# ---------------------------------------------------------------------------------------------- fences, ranges
def wgmma_fence(role: Role, op: ops.WgmmaFence) -> None:
    """Spend the cycles of the fence."""
    role.spend("issue", role.t + role.kernel.gpu.warp_scheduler.fence_cycles)


def fence_proxy_async(role: Role, op: ops.FenceProxyAsync) -> None:
    """Wait until earlier shared-memory stores' registers have been read. Later barriers wait until these stores are in."""
    fence_cycles = role.kernel.gpu.warp_scheduler.fence_cycles
    role.spend("lsu", role.delivered_at)
    role.count("smem", wavefronts=role.num_warps)
    role.fenced_at = max(role.t, role.stored_at) + fence_cycles
    role.spend("issue", role.t + fence_cycles)


def mbarrier_init(role: Role, op: ops.Op) -> None:
    """Issue one instruction."""
    role.issue(1)


fence_mbarrier_init = mbarrier_init


def fence_acq_rel(role: Role, op: ops.FenceAcqRel) -> Wait:
    """Wait until earlier stores and remote arrivals are there, and for a round trip to L2."""
    since, store = role.arrives_far_at, role.last_store
    if store is not None:
        yield from role.wait(store, "lsu", "its stores")
        since = max(since, (store.cycle or 0.0) + role.kernel.gpu.l2.near_latency_cycles)
    role.spend("lsu", max(role.t, since) + role.kernel.gpu.warp_scheduler.gpu_fence_cycles)


def range_start(role: Role, op: ops.RangeStart) -> None:
    """Begin a section; an epilogue first waits for the results of mma.sync."""
    if op.section is ops.Section.EPILOGUE:
        role.spend("math_pipe", role.mma_done_at)


def fetch_code(role: Role, op: ops.Op) -> None:
    """Ignore the op: instruction caches are beyond the core."""


fetch_cold_code = loop_body = range_end = fetch_code


# ---------------------------------------------------------------------------------------------- shared memory
def shared_load(role: Role, op: ops.SharedLoad | ops.Ldmatrix) -> Loaded:
    """Load from shared memory: data-stage wavefronts, then a latency. The token is that of the first of several parts."""
    access, data_stage, wavefronts = op.access, role.sm.data_stage, float(op.access.num_wavefronts)
    if wavefronts > MOST_WAVEFRONTS and not role.sm.has_run_wgmma:
        raise LaunchError(f"{role.who} loads {wavefronts:.0f} wavefronts at once, which is beyond the core")
    role.issue(access.num_requests / role.num_warps)
    kind = "matrix" if isinstance(op, ops.Ldmatrix) else "plain"
    role.count("smem", **{f"{kind}_load_wavefronts": wavefronts, f"{kind}_loads": access.num_requests})
    role.count("smem", wavefronts=wavefronts, load_wavefronts=wavefronts)
    on_way = min(wavefronts, max(access.num_requests, access.num_bytes / WAVEFRONT_BYTES))  # without its bank conflicts
    end, last = data_stage.serve(wavefronts, role.t, way_wavefronts=on_way), 1.0 / data_stage.rate
    if op.buffer:
        role.cta.stages[op.buffer, op.stage].read(role.t, max(end - last, role.t), role.who)
    behind = wavefronts * (1.0 - 1.0 / op.num_parts) if isinstance(op, ops.SharedLoad) else 0.0
    first_at = max(end - behind / data_stage.rate - last, role.t)
    return Loaded(role, first_at + role.kernel.gpu.smem.load_latency_cycles)


ldmatrix = shared_load


def shared_store(role: Role, op: ops.SharedStore | ops.Stmatrix) -> Loaded | None:
    """Store to shared memory: data-stage wavefronts from the first instruction on. Warps go on when the last one begins."""
    access, data_stage, wavefronts = op.access, role.sm.data_stage, float(op.access.num_wavefronts)
    first_at = role.t + ISSUE_CYCLES
    role.issue(access.num_requests / role.num_warps)
    kind = "matrix" if isinstance(op, ops.Stmatrix) else "plain"
    role.count("smem", **{f"{kind}_store_wavefronts": wavefronts, f"{kind}_stores": access.num_requests})
    role.count("smem", wavefronts=wavefronts, store_wavefronts=wavefronts)
    begun_at = role.t
    end = max(begun_at, data_stage.serve(wavefronts, min(first_at, begun_at)))
    each = wavefronts / max(access.num_requests, 1) / data_stage.rate
    delivered_at = end - each * (role.num_warps - 1) / 2.0  # a middle warp's last instruction is served earlier
    if end > role.stored_at:
        role.stored_at, role.delivered_at = end, delivered_at
    role.spend("lsu", end - 1.0 / data_stage.rate)
    if op.buffer:
        stage = role.cta.stages[op.buffer, op.stage]
        stage.begin_write(begun_at, role.who)
        stage.end_write(role.t)
    return Loaded(role, delivered_at) if op.has_token else None


stmatrix = shared_store


def shared_atomic(role: Role, op: ops.SharedAtomic) -> Loaded:
    """Atomic on shared memory: wavefronts as of a store, and a separate latency."""
    data_stage, wavefronts = role.sm.data_stage, float(op.access.num_wavefronts)
    role.issue(op.access.num_requests / role.num_warps)
    role.count("smem", wavefronts=wavefronts, store_wavefronts=wavefronts)
    end = max(data_stage.serve(wavefronts, role.t), role.t + 1.0 / data_stage.rate)
    return Loaded(role, end + role.kernel.gpu.smem.atomic_latency_cycles)


# ---------------------------------------------------------------------------------------------- distributed shared memory
def dsmem_load(role: Role, op: ops.DsmemLoad) -> Loaded:
    """Load from another CTA's shared memory, through the network between SMs. The remote SM's port works, too."""
    spec = role.part("dsmem")
    role.issue(1)
    role.count("dsmem", read_bytes=op.num_bytes)
    role.cta.cluster[op.cta_rank].sm.network.reserve(op.num_bytes * spec.serve_fraction, role.t)
    return Loaded(role, role.sm.network.reserve(op.num_bytes, role.t) + spec.latency_cycles, is_long=True)


def dsmem_store(role: Role, op: ops.DsmemStore | ops.StAsync) -> None:
    """Store to another CTA's shared memory. The warps do not wait."""
    role.issue(1)
    role.count("dsmem", write_bytes=op.num_bytes)
    role.arrives_far_at = role.sm.network.reserve(op.num_bytes, role.t) + role.part("dsmem").one_way_cycles


def st_async(role: Role, op: ops.StAsync) -> None:
    """Store to another CTA's shared memory, which counts on an mbarrier there."""
    dsmem_store(role, op)
    role.cta.cluster[op.cta_rank].mbarriers[op.barrier, op.stage].deliver(op.num_bytes, role.arrives_far_at)


# ---------------------------------------------------------------------------------------------- global memory
def bytes_of(access: AccessPattern) -> float:
    """Bytes that an access requests from L2: full sectors."""
    return float(access.num_sectors * SECTOR_BYTES)


def pass_unit(role: Role, access: AccessPattern, num_wavefronts: float = 0.0) -> tuple[float, float]:
    """Issue an access and pass the load/store unit. Warps go on while little work is queued there.

    Returns:
        The cycles at which the unit begins and ends.
    """
    role.issue(access.num_requests / role.num_warps)
    first, end = role.sm.l1.accept(access.num_requests, access.num_lines, num_wavefronts, role.t)
    role.spend("lsu", end - role.sm.l1.spec.queue_cycles)
    return first, end


def global_load(role: Role, op: ops.GlobalLoad) -> Loaded:
    """Load through the load/store unit and L1, or past L1. Registers are full when the last sector is there."""
    access, token = op.access, Loaded(role, is_long=True)
    role.count("l1", load_requests=access.num_requests, load_sectors=access.num_sectors)
    first, end = pass_unit(role, access, access.num_wavefronts)
    request = role.request(op, bytes_of(access), at=None if op.allocates_in_l1 else first)
    request.num_loads, request.asked_until = max(1, round(access.num_requests / role.num_warps)), end
    there = role.sm.l1.read(request, allocates=op.allocates_in_l1, hit_at=max(request.issued_at, first))
    there.then(token.tell)
    return token


def use(role: Role, op: ops.Use) -> Wait:
    """Wait until registers are full."""
    token: Any = op.token
    yield from role.wait(token, "long_scoreboard" if token.is_long else "short_scoreboard", "a load")


def global_store(role: Role, op: ops.GlobalStore | ops.GlobalAtomic) -> Wait:
    """Store to global memory. Warps go on when the load/store unit has it; the next store waits until it is in L2."""
    if role.last_store is not None:
        yield from role.wait(role.last_store, "lsu", "the store queue")
    if isinstance(op, ops.GlobalStore):
        role.count("l1", store_requests=op.access.num_requests, store_sectors=op.access.num_sectors)
        role.kernel.has_stored = True
    pass_unit(role, op.access)
    send(role, op, "write" if isinstance(op, ops.GlobalStore) else "red")


def send(role: Role, op: ops.GlobalStore | ops.GlobalAtomic, kind: str) -> Fact:
    """Send a store to L2. The returned fact counts when it is there."""
    request = role.store_request(op, bytes_of(op.access))
    _, role.last_store = role.kernel.watch(role.kernel.memory.store(request, op.access.num_bytes, kind))
    return role.last_store


def global_atomic(role: Role, op: ops.GlobalAtomic) -> Wait | Loaded:
    """Atomic or reduction in L2. One that returns a value waits for no earlier store; its result takes a latency more."""
    if not op.returns:
        return global_store(role, op)
    token, latency = Loaded(role, is_long=True), role.kernel.gpu.l2.near_latency_cycles
    pass_unit(role, op.access)
    send(role, op, "atom").then(lambda cycle: token.tell(cycle + latency))
    return token


# ---------------------------------------------------------------------------------------------- cp.async
def cp_async(role: Role, op: ops.CpAsync) -> None:
    """Copy into a stage of shared memory. It belongs to the group that is committed next.

    Copies through L1 pass the data stage in turn with loads. Copies around L1 are written when their data have come.
    """
    access, l1, data_stage, wavefronts = op.access, role.sm.l1, role.sm.data_stage, float(op.access.num_wavefronts)
    role.count("l1", load_requests=access.num_requests, load_sectors=access.num_sectors)
    role.count("smem", fill_wavefronts=wavefronts)
    role.issue(access.num_requests / role.num_warps)
    issued_at, hits = role.t, op.allocates_in_l1 and (op.tensor, op.tile) in l1.tiles
    asked = max(access.num_requests, access.num_lines) if op.allocates_in_l1 else access.num_requests
    first, end = l1.accept(asked, access.num_lines, wavefronts if op.allocates_in_l1 else 0.0, role.t)
    if op.allocates_in_l1:
        role.count("smem", wavefronts=access.num_requests, copy_wavefronts=wavefronts)
        data_stage.hold(asked / l1.spec.requests_per_cycle - wavefronts / data_stage.rate, role.t)
        passed = data_stage.serve(wavefronts, role.t)
        first, end = max(first, passed - wavefronts / data_stage.rate), max(end, passed)
    else:
        end = max(end, l1.rows.reserve(0.0, data_stage.copies_reach_it(first)))
    if op.num_between:  # instructions that compute addresses
        alu(role, ops.Alu(op.num_between * access.num_requests / role.num_warps))
    role.spend("lsu", end - l1.spec.queue_cycles)
    asks_at, latency = max(first, issued_at), role.kernel.gpu.l2.near_latency_cycles
    last_at = max(end - (end - first) / max(1, access.num_requests), asks_at)
    stage, written = role.cta.stages[op.buffer, op.stage], Fact(role.env)
    stage.begin_write(asks_at + latency, role.who)
    role.copies.append(written)
    request = role.request(op, bytes_of(access), at=asks_at)
    if op.allocates_in_l1:
        there = l1.read(request, allocates=True, hit_at=max(request.issued_at, last_at))
    else:
        there = role.kernel.memory.read(request)[0]
    soonest = last_at + (l1.spec.hit_latency_cycles if hits else latency)

    def write(cycle: float) -> None:
        end = written_at(role, op, max(cycle, soonest), hits=hits)
        stage.end_write(end)
        written.tell(end)

    there.then(write)


def written_at(role: Role, op: ops.CpAsync, there_at: float, *, hits: bool) -> float:
    """Cycle at which the data of a copy, which arrive at ``there_at``, have been written into its stage."""
    access, l1, data_stage, now = op.access, role.sm.l1, role.sm.data_stage, role.env.now
    num_lines, wavefronts = bytes_of(access) / LINE_BYTES, float(access.num_wavefronts)
    if hits:
        return max(now, there_at)
    if op.allocates_in_l1:  # the data pass the load/store unit once more
        _, passed = l1.accept(access.num_requests, 0.0, 0.0, now)
        cycles = access.num_requests / l1.spec.requests_per_cycle
        return max(passed, there_at + max(0.0, cycles - num_lines / data_stage.rate))
    queued = data_stage.fill(wavefronts, now) - now
    return there_at + max(0.0, queued - min(wavefronts, num_lines))  # lines are written while others are in flight


def cp_async_commit_group(role: Role, op: ops.CpAsyncCommitGroup) -> None:
    """Close the group. It is complete when its copies are, and the group before it is."""
    role.count("smem", wavefronts=COMMIT_WAVEFRONTS * role.num_warps)
    role.copies = [all_of(role.env, role.copies)]
    role.copy_groups.append(role.copies[0])


def cp_async_wait_group(role: Role, op: ops.CpAsyncWaitGroup) -> Wait:
    """Wait for the group that must be complete."""
    group = None
    while len(role.copy_groups) > op.num_pending:
        group = role.copy_groups.popleft()
    if group is not None:
        yield from role.wait(group, "wait_cp_async", f"cp.async.wait_group {op.num_pending}")


def cp_async_mbarrier_arrive(role: Role, op: ops.CpAsyncMbarrierArrive) -> None:
    """Let every thread arrive on an mbarrier when its copies so far are complete."""
    barrier, copies = role.cta.mbarriers[op.barrier, op.stage], all_of(role.env, role.copies)
    soonest, who = (0.0, role.kernel.launch.kernel) if copies.cycle is None else (role.t, role.who)
    copies.then(lambda cycle: barrier.arrive(role.num_threads, max(soonest, cycle), who))
    role.copies = [copies]


# ---------------------------------------------------------------------------------------------- TMA
def issue_boxes(role: Role, num_boxes: int, cycles: float) -> float:
    """Issue a copy to the TMA engine, which may wait for space in its queue; returns when its first box begins."""
    role.spend("lsu", role.sm.boxes[0])
    role.spend("issue", role.t + role.part("tma").issue_cycles)
    return role.sm.walk(cycles, num_boxes, role.t)


def tma_load(role: Role, op: ops.TmaLoad) -> None:
    """Load by TMA: the engine walks the boxes while data arrive. Bytes count on the mbarrier of each receiver."""
    spec, memory = role.part("tma"), role.kernel.memory
    walking = max(op.num_rows * spec.row_cycles, op.num_bytes / spec.bytes_per_cycle)
    at = issue_boxes(role, op.num_boxes, walking)
    latency = spec.latency_cycles + max(0.0, walking - op.num_bytes / memory.slices.alone)
    receivers = [role.cta.cluster[rank] for rank in op.multicast] or [role.cta]
    role.count("tma", load_instructions=op.num_boxes, load_bytes=op.num_fetched_bytes * len(receivers))
    for cta in receivers:
        cta.stages[op.buffer, op.stage].begin_write(role.t, role.who)
    request = role.request(op, op.num_fetched_bytes, at=at)
    there: Sequence[Fact]
    if not op.num_fetched_bytes:
        there = [Loaded(role, at) for _ in receivers]
    elif op.multicast:
        there = memory.read(request, sms=[cta.sm.idx for cta in receivers], cap=spec.bytes_per_cycle)
    else:
        there = memory.read(request, group=role.cta.mbarriers[op.barrier, op.stage])
    for fact, cta in zip(there, receivers, strict=True):
        fact.then(partial(tma_arrives, op, cta, latency))


def tma_arrives(op: ops.TmaLoad, cta: Cta, latency_cycles: float, cycle: float) -> None:
    """Complete a TMA load in a CTA: its last byte is there at ``cycle``, and counts a latency later."""
    cta.stages[op.buffer, op.stage].end_write(cycle + latency_cycles)
    cta.mbarriers[op.barrier, op.stage].deliver(op.num_bytes, cycle + latency_cycles)


def tma_store(role: Role, op: ops.TmaStore) -> None:
    """Store by TMA: the engine reads shared memory. Soon after the data have left the SM, the source is free."""
    spec, stored, role.kernel.has_stored = role.part("tma"), Fact(role.env), True
    at = issue_boxes(role, op.num_boxes, op.num_boxes * spec.store_box_cycles)
    role.count("tma", store_instructions=op.num_boxes)
    if op.buffer:
        stage = role.cta.stages[op.buffer, op.stage]
        stage.begin_read(role.t, role.who)
        stored.then(stage.end_read)
    role.bulk.append(stored)
    rest = op.num_bytes / op.num_rows % SECTOR_BYTES
    masks = op.num_rows * (2 * SECTOR_BYTES - rest) if rest else 0.0  # a partly stored sector takes the time of two
    request, kind = role.store_request(op, op.num_bytes), "red" if op.reduce else "write"
    request.issued_at = at
    if op.reduce:
        role.kernel.memory.fetch_reduced(request, op.num_bytes)
    left, _ = role.kernel.watch(role.kernel.memory.store(request, op.num_bytes, kind, masks))
    left.then(lambda cycle: stored.tell(cycle + spec.store_latency_cycles))


def bulk_commit_group(role: Role, op: ops.BulkCommitGroup) -> None:
    """Close the group."""
    role.bulk = [all_of(role.env, role.bulk)]
    role.bulk_groups.append(role.bulk[0])


def bulk_wait_group(role: Role, op: ops.BulkWaitGroup) -> Wait:
    """Wait until the group that must have read its source has. In the model it is complete then, too."""
    if len(role.bulk_groups) > op.num_pending:
        role.count("smem", wavefronts=role.num_warps)
        role.spend("issue", role.t + role.part("tma").group_wait_cycles)
        group = role.bulk_groups[-1 - op.num_pending]
        while not op.read and len(role.bulk_groups) > op.num_pending:
            role.bulk_groups.popleft()
        yield from role.wait(group, "wait_bulk", f"cp.async.bulk.wait_group {op.num_pending}")


def prefetch_tensormap(role: Role, op: ops.PrefetchTensormap) -> None:
    """Issue one instruction for each tensor. Tensor maps always hit in the core."""
    for _ in op.tensors:
        role.issue(1)


def fence_proxy_tensormap(role: Role, op: ops.FenceProxyTensormap) -> None:
    """Wait for the release of each map."""
    for _ in op.tensors:
        role.spend("lsu", role.t + role.part("tma").tensormap_release_cycles)
