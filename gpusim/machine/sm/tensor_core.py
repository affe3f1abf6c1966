"""The tensor cores of one SM, for mma.sync and for wgmma."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpusim.machine.component import Counters, ncu

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
    num_sub_cores: int

    def wgmma_cycles(self, *, rate_class: str, num_flops: float, num_wavefronts: float) -> float:
        """Cycles of the tensor cores that one wgmma takes: its arithmetic, its operands or the least, and the overhead."""
        arithmetic = num_flops / self.wgmma_flops_per_cycle[rate_class]
        operands = num_wavefronts / self.wgmma_smem_wavefronts_per_cycle
        return max(arithmetic, operands, self.wgmma_min_interval_cycles) + self.wgmma_overhead_cycles


@dataclass(slots=True)
class TensorCoreCounters(Counters):
    """Instructions (warp instructions, as Nsight Compute counts) and busy cycles of all SMs."""

    hmma_instructions: float = ncu("sm__inst_executed_pipe_tensor_op_hmma.sum")
    imma_instructions: float = ncu("sm__inst_executed_pipe_tensor_op_imma.sum")
    gmma_instructions: float = ncu("sm__inst_executed_pipe_tensor_op_gmma.sum")
    busy_cycles: float = ncu("sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active.sum")
