"""The tensor cores of one SM, for mma.sync and for wgmma."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpusim.machine.component import Component, Counters
from gpusim.machine.timing import Pipe

K_STEP_BYTES = 32
"""Of k, of the deepest mma.sync and of every wgmma."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCoreSpec:
    """Rates by class of instruction, so that a new shape needs no new number."""

    mma_sync_flops_per_cycle: Mapping[str, float]
    """FLOP (or integer OP) a cycle and SM, by class of type."""
    mma_sync_latency_cycles: float
    """Of instructions that are 32 bytes of k deep; they pass the unit in two steps."""
    mma_sync_step_latency_cycles: float
    """Less for each step that a shallower one does without."""
    mma_sync_min_interval_cycles: float
    """Cycles between two instructions of one sub-core, at least."""
    mma_sync_sum_cycles: Mapping[str, float]
    """Cycles of a sub-core for each register of sums, by class: where sums are added by other instructions. Absent: none."""
    mma_sync_load_cycles: float
    """What an ``ldmatrix.x4`` takes of its sub-core's mma.sync, where another warp multiplies meanwhile."""
    wgmma_flops_per_cycle: Mapping[str, float] = field(default_factory=dict)
    """Empty where there is no wgmma."""
    wgmma_smem_wavefronts_per_cycle: float = 1.0
    wgmma_overhead_cycles: float = 0.0
    """Cycles that each instruction adds."""
    wgmma_min_interval_cycles: float = 0.0
    """Cycles of the pipe that one takes at least, however narrow."""
    wgmma_smem_a_cycles: float = 0.0
    """How long arithmetic waits for A from shared memory; others' arithmetic hides it."""
    wgmma_register_a_cycles: float = 0.0
    """The same for A from registers."""
    wgmma_latency_cycles: float = 0.0
    """From the end of a group's last arithmetic until its wait returns."""
    wgmma_max_groups: int = 1
    """Groups that a warpgroup may have in flight; a wgmma of one more waits for the first of them to complete."""
    wgmma_max_queued: float = float("inf")
    """Wgmma, of several warpgroups together, that have been issued and not finished before the next one's issue waits; a
    warpgroup that has the tensor cores to itself does not wait (kernels/wgmma_rate: eight of one group)."""
    wgmma_between_wavefronts: float = 0.0
    """Of other accesses to shared memory beside each wgmma whose operands leave them no cycle."""
    wgmma_switch_cycles: float = 0.0
    """What a wavefront of a load with conflicts takes beside operand reads, beyond the wait for a cycle that they leave."""
    num_sub_cores: int = 4


@dataclass(slots=True)
class TensorCoreCounters(Counters):
    """Instructions (warp instructions, as Nsight Compute counts) and busy cycles of all SMs."""

    hmma_instructions: float = field(
        default=0.0, metadata={"ncu": "sm__inst_executed_pipe_tensor_op_hmma.sum"}
    )
    imma_instructions: float = field(
        default=0.0, metadata={"ncu": "sm__inst_executed_pipe_tensor_op_imma.sum"}
    )
    gmma_instructions: float = field(
        default=0.0, metadata={"ncu": "sm__inst_executed_pipe_tensor_op_gmma.sum"}
    )
    busy_cycles: float = field(
        default=0.0,
        metadata={"ncu": "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active.sum"},
    )


class TensorCore(Component):
    """All four tensor cores of an SM as one pipe.

    Models: wgmma's rate, the larger of arithmetic, operand wavefronts and a least interval; arithmetic that begins once A
    is there and so ends behind the pipe's own end; the groups of a warpgroup that may be in flight, and the wgmma of all
    warpgroups; the latency of a wait; mma.sync's rate, minimum interval and latency by depth, and additions to its sums
    where it is several instructions; ldmatrix that keeps others' mma.sync from being issued. Two warpgroups share the pipe.
    IMAD.WIDE and wgmma exclude one another, whoever issued them: an IMAD.WIDE gets its turn between slices of a wgmma,
    which ends so much later.
    Ignores: that what IMAD.WIDE takes of wgmma delays the operand reads and the waits of those under way, too; the order
    in which warpgroups alternate inside the pipe; what issuing a wgmma takes (some cycles, 26 for 128
    accumulators a thread, always less than its arithmetic); conversions where mma.sync of fp8 is no instruction, which other
    warps' arithmetic hides, and what a warp or two wait for them; sparsity, sub-normal or zero operands.
    Source: the GPU's description; the rule max(flops, wavefronts) from published H100 rates; that warpgroups fill one queue:
    kernels/ring_math, h200_sxm, 2026-11-22 (eight each of two: the last is issued when some six are left, whatever N; CTAs
    of an SM fill one, too). IMAD.WIDE: kernels/pipe_beside_wgmma and turn_taking, h200_sxm, 2026-11-22 (a step takes its
    math and what these take alone, with one warpgroup and with two; beside another's train each takes 25 cycles, 6 of it).
    """

    kind = "tensor_core"

    def __init__(self, spec: TensorCoreSpec, *, counters: TensorCoreCounters) -> None:
        """``counters`` are shared by all SMs."""
        self.spec = spec
        self.counters = counters
        self.pipe = Pipe(units_per_cycle=1.0)
        self.wgmma_until = self.wide_until = 0.0
        """When the last of the SM's wgmma that have been issued ends, and the last IMAD.WIDE."""

    def wgmma_cycles(self, *, rate_class: str, num_flops: float, num_wavefronts: float) -> float:
        """Cycles of the pipe that one wgmma takes."""
        spec = self.spec
        arithmetic = num_flops / spec.wgmma_flops_per_cycle[rate_class]
        operands = num_wavefronts / spec.wgmma_smem_wavefronts_per_cycle
        return max(arithmetic, operands, spec.wgmma_min_interval_cycles) + spec.wgmma_overhead_cycles

    def wgmma_tail_cycles(
        self, *, rate_class: str, num_flops: float, num_wavefronts: float, has_register_a: bool
    ) -> float:
        """How long after the pipe is through with it the arithmetic of one wgmma ends; negative where it ends before."""
        spec = self.spec
        start = spec.wgmma_register_a_cycles if has_register_a else spec.wgmma_smem_a_cycles
        arithmetic = start + num_flops / spec.wgmma_flops_per_cycle[rate_class]
        operands = num_wavefronts / spec.wgmma_smem_wavefronts_per_cycle
        each = self.wgmma_cycles(rate_class=rate_class, num_flops=num_flops, num_wavefronts=num_wavefronts)
        return max(arithmetic, operands) + spec.wgmma_overhead_cycles - each

    def free_share(self, num_wavefronts: float, cycles_each: float) -> float:
        """What a wgmma of so many wavefronts and cycles leaves of shared memory's data stage."""
        rate = self.spec.wgmma_smem_wavefronts_per_cycle
        return max(cycles_each - num_wavefronts / rate, self.spec.wgmma_between_wavefronts / rate) / cycles_each

    def conflict_share(self, free_share: float) -> float:
        """What loads with conflicts get of that."""
        return free_share / (1.0 + free_share * self.spec.wgmma_switch_cycles * self.spec.wgmma_smem_wavefronts_per_cycle)

    def mma_sync_interval_cycles(self, *, rate_class: str, num_flops: float, num_sum_registers: float) -> float:
        """Cycles between two mma.sync of one sub-core; ``num_sum_registers`` of each thread hold the sums."""
        spec = self.spec
        per_sub_core = spec.mma_sync_flops_per_cycle[rate_class] / spec.num_sub_cores
        added = num_sum_registers * spec.mma_sync_sum_cycles.get(rate_class, 0.0)
        return max(num_flops / per_sub_core + added, spec.mma_sync_min_interval_cycles)

    def pass_loads(self, num_loads: float, *, at_cycle: float) -> None:
        """``ldmatrix`` of warps beside others that multiply: mma.sync wait for what each takes of its sub-core."""
        if self.pipe.free_at > at_cycle >= self.wgmma_until:
            self.pipe.free_at += num_loads * self.spec.mma_sync_load_cycles / self.spec.num_sub_cores

    def mma_sync_latency_cycles(self, k_bytes: float) -> float:
        """From issue to sums of a mma.sync that is ``k_bytes`` deep."""
        spec = self.spec
        return spec.mma_sync_latency_cycles - (1.0 - k_bytes / K_STEP_BYTES) * 2.0 * spec.mma_sync_step_latency_cycles

    def run_mma_sync(
        self, num_issues: int, interval_cycles: float, *, latency_cycles: float, num_warps: int, is_integer: bool,
        at_cycle: float, weight: float,
    ) -> tuple[float, float]:
        """Queue ``num_issues`` of each warp; returns (cycle of the last issue, cycle at which the last is done)."""
        total = num_issues * num_warps
        if is_integer:
            self.counters.imma_instructions += total * weight
        else:
            self.counters.hmma_instructions += total * weight
        cycles = total * interval_cycles / self.spec.num_sub_cores
        self.counters.busy_cycles += cycles * weight
        end = self.pipe.reserve(cycles, at_cycle=at_cycle, weight=weight)
        own = at_cycle + num_issues * interval_cycles * -(-num_warps // self.spec.num_sub_cores)
        end = end if end > own else own
        return end - interval_cycles, end - interval_cycles + latency_cycles
