"""Tensor cores, FMA, ALU and MUFU work, shuffles, setmaxnreg."""

from __future__ import annotations

from functools import partial

from gpusim.errors import LaunchError
from gpusim.simulate.costs.memory import ask_again
from gpusim.simulate.role import ISSUE, TENSOR, Pause, Resume, Role, lacks
from gpusim.simulate.timeline import MmaSpan, WarpState
from gpusim.workload import ops

EPSILON_INSTRUCTIONS = EPSILON_CYCLES = 1e-6
"""What rounding may leave of some, and of a wait."""

TURN_INSTRUCTIONS = 8.0
"""IMAD.WIDEs of a warp after which wgmma is looked for anew, where none runs. Source: choice, shorter than most wgmma."""


def mma_sync(role: Role, op: ops.MmaSync) -> Pause:
    """Tensor cores by warp: the warps are held up at the rate of the pipe, the result comes a latency later."""
    engine, scheduler = role.engine, role.sm.warp_scheduler
    num = op.num_issues * role.num_warps
    scheduler.counters.instructions += num * role.count
    scheduler.issue_slots.reserve(num, at_cycle=role.t, weight=role.count)
    if len(engine.launch.roles) == 1 and engine.occupancy.ctas_per_sm == 1:
        multiply(role, op)
        return None
    return engine.tensor_turns[role.sm.idx].ask(role, partial(multiply, role, op))


def multiply(role: Role, op: ops.MmaSync) -> float:
    """Queue mma.sync of a role in the tensor cores; returns when the last has been issued."""
    core = role.sm.tensor_core
    interval, latency = role.engine.op_costs.of_mma_sync(op.atom)
    start = role.t
    issued, done = core.run_mma_sync(
        op.num_issues, interval, latency_cycles=latency, num_warps=role.num_warps, is_integer=op.atom.rate_class == "int8",
        at_cycle=role.t, weight=role.count,
    )
    record_mma(role, start, done, op.num_issues)
    role.spend(TENSOR, max(issued, role.t))
    role.mma_done = done
    return role.t


def wgmma(role: Role, op: ops.Wgmma) -> Pause:
    """Queue a batch in the tensor core; the warps go on, unless too many of their groups, or of all wgmma, are in flight.

    What they run between the first of a batch and its last, they run while these wait for room in the queue.
    """
    cost = role.engine.op_costs.wgmma.get(id(op))
    if cost is None:
        cost = role.engine.op_costs.of_wgmma(op, role.num_warpgroups, role.num_warps)
    core, groups = role.sm.tensor_core, role.groups.wgmma
    most = core.spec.wgmma_max_groups
    if len(groups) >= most:
        role.spend(TENSOR, groups[-most] + role.engine.wgmma_latency_cycles)
    pipe = core.pipe
    at = role.t
    begin = pipe.free_at if pipe.free_at > core.wide_until else core.wide_until
    if begin < at:
        begin = at
    mine = max(at, role.wgmma_through)
    pipe.free_at = role.wgmma_through = free_at = begin + cost.cycles
    role.sm.smem.read_operands(cost.free_share, cost.conflict_share, free_at)
    end = free_at + cost.tail_cycles
    cost.times += role.count
    stages = role.cta.buffers
    for buffer, stage_idx in cost.reads:
        try:
            stage = stages[buffer][stage_idx]
        except (KeyError, IndexError):
            stage = role.cta.stage(buffer, stage_idx)  # says what is wrong
        if stage.num_writes_pending or stage.full_at > at + 1e-6 or not stage.num_fills:
            stage.read(at, end, role.who())
        elif end > stage.read_until:
            stage.read_until = end
    if role.record is not None:
        record_mma(role, begin, free_at, op.num_issues * role.num_warpgroups)
        for buffer, stage_idx in cost.reads:
            role.record_read(buffer, stage_idx, begin, end)
    if end > role.wgmma_open:
        role.wgmma_open = end
        if end > core.wgmma_until:
            core.wgmma_until = end
    issued_at = free_at - cost.queued_cycles
    if op.num_between:
        chain(role, op.num_between)
    if issued_at > role.t and (role.num_warpgroups > 1 or begin > mine):  # alone in the queue a warpgroup has more room
        role.spend(TENSOR, issued_at)
    return None


def record_mma(role: Role, start: float, end: float, num_issues: int) -> None:
    """Note a batch for the timeline."""
    if role.record is not None:
        offset = role.engine.offset_cycles
        role.engine.timeline.mmas.append(
            MmaSpan(role.cta.idx, role.sm.idx, role.spec.name, start + offset, end + offset, num_issues)
        )


def wgmma_commit(role: Role, op: ops.WgmmaCommitGroup) -> Pause:
    """Close the group."""
    role.groups.wgmma.append(role.wgmma_open)
    return None


def wgmma_wait(role: Role, op: ops.WgmmaWaitGroup) -> Pause:
    """Until the group that must have ended has, and its latency is over."""
    if op.num_pending < 0:
        raise LaunchError(f"{role.who()} waits until {op.num_pending} groups are in flight, wants 0 or more")
    groups = role.groups.wgmma
    end = -1.0
    while len(groups) > op.num_pending:
        end = groups.popleft()
    if end >= 0.0:
        role.spend(WarpState.WAIT_WGMMA, end + role.engine.wgmma_latency_cycles)
    return None


def code(role: Role, op: ops.Code) -> Pause:
    """Wait for instructions that the SM's caches do not hold."""
    schedulers = role.sm.warp_scheduler.spec.num_schedulers
    waited = role.sm.instruction_cache.wait_cycles(
        op.name, op.num_bytes, l2_cycles=role.engine.machine.l2.spec.near_latency_cycles,
        first_cycles=role.engine.code_latency_cycles, num_warps_each=-(-role.num_warps // schedulers),
    )
    role.spend(WarpState.NO_INSTRUCTION, role.t + waited)
    return None


def loop_code(role: Role, op: ops.LoopCode) -> Pause:
    """Wait for what a sub-core does not keep of a loop's code, where one warp issues it; two and more do so meanwhile."""
    scheduler = role.sm.warp_scheduler
    if role.num_warps * role.sm.num_ctas > scheduler.spec.num_schedulers:
        return None
    own = op.num_fma * max(1.0, op.bank_reads / scheduler.bank_reads_per_cycle) + op.num_others
    waited = role.sm.instruction_cache.loop_cycles(op.num_fma + op.num_others, own_cycles=own)
    if waited > 0.0 and not role.engine.is_ideal("own_code"):
        role.spend(WarpState.NO_INSTRUCTION, role.t + waited)
    return None


def far_code(role: Role, op: ops.FarCode) -> Pause:
    """Where caches of code were flushed, wait for instructions that the launch has not brought along."""
    engine = role.engine
    if not engine.is_flushed:
        return None
    late = role.sm.instruction_cache.late_cycles(
        op.name, op.begin_bytes, op.end_bytes, at_cycle=role.t, own_cycles=op.own_cycles,
        l2_cycles=engine.machine.l2.spec.near_latency_cycles, first_cycles=engine.code_latency_cycles,
    )
    if late > 0.0:
        role.spend(WarpState.NO_INSTRUCTION, role.t + late)
    return None


def fma(role: Role, op: ops.Fma) -> Pause:
    """FP32 pipe; in a chain each instruction waits for the one before it; in turns CTAs of an SM do."""
    engine = role.engine
    if op.by_age and not op.num_runs:
        raise LaunchError(f"{role.who()} multiplies by age and takes no turns, wants num_runs of 1 or more")
    if not op.num_runs or engine.occupancy.ctas_per_sm == 1:
        multiply_add(role, op)
        return None
    return engine.fma_turns[role.sm.idx].ask(role, partial(multiply_add, role, op), op.num_runs, by_age=op.by_age)


def multiply_add(role: Role, op: ops.Fma) -> float:
    """Queue FFMA of a role in the FP32 pipe; returns when the last has been issued."""
    scheduler, num, is_chain = role.sm.warp_scheduler, op.num_instructions, op.is_chain
    chained = role.t + num * scheduler.dependent_cycles if is_chain else 0.0
    scheduler.counters.fma_instructions += num * role.num_warps * role.count
    turns = op.bank_reads / scheduler.bank_reads_per_cycle
    end = scheduler.execute(
        scheduler.fma_pipe, num, num_warps=role.num_warps, at_cycle=role.t, weight=role.count,
        wgmma_until=0.0 if is_chain else role.sm.tensor_core.wgmma_until, turns_each=turns if turns > 1.0 else 1.0,
    )
    role.spend(WarpState.MATH_PIPE, end if end > chained else chained)
    return role.t


def alu(role: Role, op: ops.Alu) -> Pause:
    """Integer pipe; in a chain each instruction waits for the one before it."""
    scheduler, num = role.sm.warp_scheduler, op.num_instructions
    if op.is_chain:
        if op.num_beside > num > 0.0 and not role.engine.is_ideal("own_code"):
            return slowed(role, op)
        chain(role, num, op.num_more)
        return None
    role.spend(
        ISSUE, scheduler.execute(
            scheduler.alu_pipe, num, num_warps=role.num_warps, at_cycle=role.t, weight=role.count,
            wgmma_until=role.sm.tensor_core.wgmma_until,
        )
    )  # fmt: skip
    return None


def chain(role: Role, num_instructions: float, num_more: float = 0.0) -> None:
    """A kernel's own instructions, each waiting for the one before it; ``num_more`` take turns of the schedulers between."""
    if role.engine.is_ideal("own_code"):
        return
    scheduler = role.sm.warp_scheduler
    chained = role.t + num_instructions * scheduler.dependent_cycles
    end = scheduler.execute(
        scheduler.alu_pipe, num_instructions, num_warps=role.num_warps, at_cycle=role.t, weight=role.count
    )
    if num_more:
        end = max(end, scheduler.issue(num_more, num_warps=role.num_warps, at_cycle=role.t, weight=role.count))
    role.spend(ISSUE, end if end > chained else chained)


def slowed(role: Role, op: ops.Alu) -> Pause:
    """A chain that takes longer beside wgmma: what is left of it goes on at its pace when the wgmma that run have ended."""
    scheduler = role.sm.warp_scheduler
    share = 1.0
    if role.partly is None:
        scheduler.execute(
            scheduler.alu_pipe, op.num_instructions, num_warps=role.num_warps, at_cycle=role.t, weight=role.count
        )
    else:
        share = role.partly[1]
    role.partly = None
    left_cycles = role.sm.tensor_core.wgmma_until - role.t
    if left_cycles <= EPSILON_CYCLES:
        role.spend(ISSUE, role.t + share * op.num_instructions * scheduler.dependent_cycles)
        return None
    beside_cycles = op.num_beside * scheduler.dependent_cycles
    now = min(share, left_cycles / beside_cycles)
    end = role.t + now * beside_cycles
    if (share - now) * op.num_instructions > EPSILON_INSTRUCTIONS:
        return ask_again(role, end, role.t, share - now, ISSUE, "its own instructions")
    role.spend(ISSUE, end)
    return None


def mad_wide(role: Role, op: ops.MadWide) -> Pause:
    """Products and sums of 64 bits: while wgmma runs each waits for its turn, and takes it from it; alone at their pace."""
    if role.engine.is_ideal("mad_wide"):
        return None
    scheduler, core = role.sm.warp_scheduler, role.sm.tensor_core
    pace = scheduler.pace if op.sets_pace else 1.0
    if pace != 1.0:
        role.engine.has_own_paces = True
    num = op.num_instructions if role.partly is None else role.partly[1]
    role.partly = None
    left_cycles = core.wgmma_until - role.t
    if left_cycles > EPSILON_CYCLES:
        taken, turn = scheduler.wide_turn_cycles(role.num_warps, is_apart=op.is_apart, pace=pace)
        now = min(num, left_cycles / (turn - taken))
        core.pipe.free_at += now * taken
        core.wgmma_until += now * taken
        scheduler.issue(now, num_warps=role.num_warps, at_cycle=role.t, weight=role.count)
        end = role.t + now * turn
    else:
        now = min(num, TURN_INSTRUCTIONS) if core.wgmma_until else num
        own = role.t + now * pace * scheduler.spec.mad_wide_cycles
        end = scheduler.execute(
            scheduler.mad_wide_pipe, now * pace, num_warps=role.num_warps, at_cycle=role.t, weight=role.count
        )
        end = max(end, own)
        if end > core.wide_until:
            core.wide_until = end
    if num - now > EPSILON_INSTRUCTIONS:
        return ask_again(role, end, role.t, num - now, WarpState.MATH_PIPE, "the products' turn")
    role.spend(WarpState.MATH_PIPE, end)
    return None


def mufu(role: Role, op: ops.Mufu) -> Pause:
    """Special-function pipe."""
    scheduler = role.sm.warp_scheduler
    end = scheduler.execute(
        scheduler.mufu_pipe, op.num_instructions, num_warps=role.num_warps, at_cycle=role.t, weight=role.count
    )
    role.spend(WarpState.MATH_PIPE, end)
    return None


def shfl(role: Role, op: ops.Shfl) -> Pause:
    """Shuffles; in a chain each waits until the one before has given its word."""
    scheduler, num = role.sm.warp_scheduler, op.num_instructions
    num_warps = op.num_warps or role.num_warps
    role.sm.smem.count(num * num_warps * role.count)
    chained = role.t + num * scheduler.shuffle_cycles if op.is_chain else 0.0
    end = scheduler.execute(
        scheduler.shuffle_pipe, num, num_warps=num_warps, at_cycle=role.t, weight=role.count
    )
    role.spend(WarpState.SHORT_SCOREBOARD, end if end > chained else chained)
    return None


def set_max_nreg(role: Role, op: ops.SetMaxNReg) -> Pause:
    """Trade registers with the CTA's pool; more of them may have to be waited for."""
    if role.engine.gpu.compute_capability < 9.0:
        raise lacks(role, "setmaxnreg", "9.0a")
    role.issue(1)
    cta, threads = role.cta, role.spec.num_threads
    if not 24 <= op.num_registers <= 256 or op.num_registers % 8:
        raise LaunchError(f"{role.who()}: setmaxnreg {op.num_registers}, wants a multiple of 8 from 24 to 256")
    needed = (op.num_registers - role.registers) * threads
    if (needed > 0 and op.direction == "dec") or (needed < 0 and op.direction == "inc"):
        raise LaunchError(
            f"{role.who()}: setmaxnreg.{op.direction} {op.num_registers} from {role.registers} registers, wants the other "
            f"direction"
        )
    if needed <= 0:
        role.registers = op.num_registers
        cta.free_registers -= needed
        hand_out_registers(role)
        return None
    if cta.free_registers >= needed:
        cta.free_registers -= needed
        role.registers = op.num_registers
        return None
    wake = role.block(
        WarpState.WAIT_REGISTERS, f"{needed} registers of the CTA's pool (setmaxnreg.inc {op.num_registers})"
    )
    role.registers = op.num_registers
    cta.register_waiters.append((needed, Resume(role, wake)))
    return wake


def hand_out_registers(role: Role) -> None:
    """Give what has become free to those who wait, in order."""
    cta = role.cta
    while cta.register_waiters and cta.free_registers >= cta.register_waiters[0][0]:
        needed, resume = cta.register_waiters.pop(0)
        cta.free_registers -= needed
        resume(role.t)
