"""Ops that compute: FP32, integer, special functions, shuffles, tensor cores."""

from __future__ import annotations

from gpusim.errors import LaunchError
from gpusim.reference.facts import Fact, Wait
from gpusim.reference.role import Role
from gpusim.workload import ops
from gpusim.workload.gmma import wgmma_wavefronts


def fma(role: Role, op: ops.Fma) -> None:
    """The FP32 pipe; in a chain each waits for the one before it. Registers of one bank take more turns of a scheduler."""
    if op.num_runs and role.kernel.ctas_per_sm > 1:
        raise LaunchError(f"{role.who()} takes turns at the FMA pipe with other CTAs, which is beyond the core")
    spec = role.kernel.gpu.warp_scheduler
    role.kernel.count["warp_scheduler.fma_instructions"] += op.num_instructions * role.num_warps
    chained = role.t + op.num_instructions * spec.dependent_cycles if op.is_chain else 0.0
    turns = max(1.0, op.bank_reads / spec.bank_reads_per_cycle)
    role.spend("math_pipe", max(chained, role.execute(role.sm.schedulers.fma, op.num_instructions, turns_each=turns)))


def alu(role: Role, op: ops.Alu) -> None:
    """The integer pipe, or a chain."""
    if op.is_chain and op.num_beside > op.num_instructions:
        raise LaunchError(f"{role.who()} has integer code that is slower beside wgmma, which is beyond the core")
    if op.is_chain:
        chain(role, op.num_instructions, op.num_more)
    else:
        role.spend("issue", role.execute(role.sm.schedulers.alu, op.num_instructions))


def chain(role: Role, num_instructions: float, num_more: float = 0.0) -> None:
    """Integer instructions, each waiting for the one before it; ``num_more`` take turns of the schedulers in between."""
    chained = role.t + num_instructions * role.kernel.gpu.warp_scheduler.dependent_cycles
    end = role.execute(role.sm.schedulers.alu, num_instructions)
    if num_more:
        role.kernel.count["warp_scheduler.instructions"] += num_more * role.num_warps
        end = max(end, role.sm.schedulers.issue(num_more, role.num_warps, role.t))
    role.spend("issue", max(chained, end))


def mufu(role: Role, op: ops.Mufu) -> None:
    """The pipe of special functions."""
    role.spend("math_pipe", role.execute(role.sm.schedulers.mufu, op.num_instructions))


def shfl(role: Role, op: ops.Shfl) -> None:
    """Shuffles; in a chain each waits until the one before has given its word."""
    num_warps = op.num_warps or role.num_warps
    role.kernel.count["smem.wavefronts"] += op.num_instructions * num_warps
    chained = role.t + op.num_instructions * role.kernel.gpu.warp_scheduler.shuffle_cycles if op.is_chain else 0.0
    end = role.execute(role.sm.schedulers.shuffle, op.num_instructions, num_warps=num_warps)
    role.spend("short_scoreboard", max(chained, end))


def mma_sync(role: Role, op: ops.MmaSync) -> Wait:
    """Tensor cores by warp: the warps are held up at their rate, the sums come a latency later."""
    kernel, num = role.kernel, op.num_issues * role.num_warps
    spec, core = kernel.gpu.tensor_core, role.sm.tensor_pipe
    rate = spec.mma_sync_flops_per_cycle.get(op.atom.rate_class)
    if rate is None:
        raise LaunchError(f"{kernel.launch.kernel}: {kernel.gpu.name} has no mma.sync for {op.atom.rate_class}")
    each = max(op.atom.num_flops / (rate / spec.num_sub_cores), spec.mma_sync_min_interval_cycles)
    kernel.count["warp_scheduler.instructions"] += num
    role.sm.schedulers.slots.reserve(num, role.t)

    def multiply(at: float) -> float:
        role.spend("tensor", at)
        cycles = num * each / spec.num_sub_cores
        kernel.count[f"tensor_core.{'imma' if op.atom.rate_class == 'int8' else 'hmma'}_instructions"] += num
        kernel.count["tensor_core.busy_cycles"] += cycles
        own = role.t + op.num_issues * each * -(-role.num_warps // spec.num_sub_cores)
        last_issue = max(own, core.reserve(cycles, role.t)) - each
        role.spend("tensor", last_issue)
        role.mma_done_at = last_issue + spec.mma_sync_latency_cycles
        return role.t

    if len(kernel.launch.roles) == 1 and kernel.ctas_per_sm == 1:
        multiply(role.t)
        return
    turn = role.sm.turns.ask(role, role.t, multiply)
    if turn.cycle is None:
        role.blocked_on, role.blocked_since = "the tensor cores", role.t
        yield turn
        yield role.env.timeout(0.0)
        role.blocked_on = ""
        role.spend("tensor", role.env.now)


def wgmma(role: Role, op: ops.Wgmma) -> None:
    """Queue a batch in the tensor cores. The warps go on, unless too many of their groups are under way."""
    kernel, atom, num = role.kernel, op.atom, op.num_issues * role.num_warpgroups
    spec, core = kernel.gpu.tensor_core, role.sm.tensor_pipe
    if role.num_warps % 4 or op.num_issues < 1 or atom.rate_class not in spec.wgmma_flops_per_cycle:
        raise LaunchError(f"{role.who()}: {op.num_issues} wgmma of {atom.rate_class} by {role.num_warps} warps")
    if len(role.wgmma_groups) >= spec.wgmma_max_groups:
        role.spend("tensor", role.wgmma_groups[-spec.wgmma_max_groups] + spec.wgmma_latency_cycles)
    wavefronts = wgmma_wavefronts(atom)
    arithmetic = atom.num_flops / spec.wgmma_flops_per_cycle[atom.rate_class]
    operands = wavefronts / spec.wgmma_smem_wavefronts_per_cycle
    cycles = num * (max(arithmetic, operands) + spec.wgmma_overhead_cycles)
    end = core.reserve(cycles, role.t)
    for buffer, stage in op.reads:
        role.cta.stage(buffer, stage).read(role.t, end, role.who())
    role.wgmma_end = max(role.wgmma_end, end)
    role.sm.has_run_wgmma = True
    kernel.count["tensor_core.gmma_instructions"] += op.num_issues * role.num_warps
    kernel.count["tensor_core.busy_cycles"] += cycles
    kernel.count["warp_scheduler.instructions"] += op.num_issues * role.num_warps
    kernel.count["smem.wavefronts"] += num * wavefronts
    kernel.count["smem.gmma_wavefronts"] += num * wavefronts
    if op.num_between:
        chain(role, op.num_between)


def wgmma_commit(role: Role, op: ops.WgmmaCommitGroup) -> None:
    """Close the group."""
    role.wgmma_groups.append(role.wgmma_end)


def wgmma_wait(role: Role, op: ops.WgmmaWaitGroup) -> None:
    """Until the group that must have ended has, and a latency later."""
    last = role.latest_of(role.wgmma_groups, op.num_pending)
    if last is not None:
        role.spend("wait_wgmma", last + role.kernel.gpu.tensor_core.wgmma_latency_cycles)


def set_max_nreg(role: Role, op: ops.SetMaxNReg) -> Wait:
    """Trade registers with the CTA's pool; more of them may have to be waited for."""
    role.issue(1)
    cta, needed = role.cta, (op.num_registers - role.registers) * role.num_threads
    if (needed > 0) == (op.direction == "dec") and needed:
        raise LaunchError(
            f"{role.who()}: setmaxnreg.{op.direction} {op.num_registers} from {role.registers} registers, wants the other "
            f"direction"
        )
    role.registers = op.num_registers
    if needed <= cta.num_free_registers:
        cta.num_free_registers -= needed
        if needed <= 0:
            cta.hand_out_registers(role.t)
        return
    given = Fact(role.env)
    cta.waits_for_registers.append((needed, given))
    yield from role.wait(
        given, "wait_registers", f"{needed} registers of the CTA's pool (setmaxnreg.inc {op.num_registers})"
    )
