"""Tensor cores of one SM: mma.sync and wgmma."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpusim.machine.component import Counters, idealized, ncu

K_STEP_BYTES = 32
"""Bytes of k of the deepest mma.sync and of every wgmma."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCoreSpec:
    """Rates and latencies by type class, so that a new shape needs no new number."""

    mma_sync_flops_per_cycle: Mapping[str, float]
    """FLOP (or integer OP) of an SM's mma.sync per cycle, by type class (math_rate)."""
    mma_sync_latency_cycles: float = field(metadata=idealized(latency=0.0))
    """Latency of an mma.sync with 32 bytes of k until a dependent one (math_rate)."""
    mma_sync_step_latency_cycles: float = field(metadata=idealized(latency=0.0))
    """Latency that an mma.sync with 16 bytes of k saves over one with 32 (math_rate)."""
    mma_sync_min_interval_cycles: float
    """Minimum interval between two mma.sync of a sub-core (math_rate)."""
    mma_sync_accumulate_cycles: Mapping[str, float]
    """Extra sub-core time per accumulator register, by type class, where other instructions add the sums; absent: none
    (math_rate)."""
    mma_sync_load_cycles: float
    """Tensor-core time that an ``ldmatrix.x4`` takes from mma.sync of other warps of its sub-core (mma_loops)."""
    wgmma_flops_per_cycle: Mapping[str, float] = field(default_factory=dict)
    """FLOP (or integer OP) of an SM's wgmma per cycle, by type class; empty without wgmma (wgmma_rate)."""
    wgmma_smem_wavefronts_per_cycle: float = 1.0
    """Wavefronts of operands that wgmma reads from shared memory (wgmma_rate)."""
    wgmma_overhead_cycles: float = 0.0
    """Extra tensor-core time of each wgmma (wgmma_rate)."""
    wgmma_min_interval_cycles: float = 0.0
    """Minimum tensor-core time of a wgmma, however small its n (wgmma_rate)."""
    wgmma_smem_a_cycles: float = field(default=0.0, metadata=idealized(latency=0.0))
    """Wait of a wgmma's math for A from shared memory; other wgmma hide it (wgmma_rate)."""
    wgmma_register_a_cycles: float = field(default=0.0, metadata=idealized(latency=0.0))
    """Wait of a wgmma's math for A from registers; other wgmma hide it (wgmma_rate)."""
    wgmma_latency_cycles: float = field(default=0.0, metadata=idealized(latency=0.0))
    """Time from the end of a group's math until ``wgmma.wait_group`` returns (wgmma_rate)."""
    wgmma_max_groups: int = 1
    """Groups of a warpgroup in flight; a wgmma of one more waits for the oldest (wgmma_rate)."""
    wgmma_max_queued: float = float("inf")
    """Unfinished wgmma of several warpgroups before the next issue stalls; a lone warpgroup does not stall (ring_math)."""
    wgmma_min_free_wavefronts: float = 0.0
    """Wavefronts of other accesses that pass per wgmma whose operands leave no free cycle (wgmma_rate)."""

    def wgmma_cycles(self, *, rate_class: str, num_flops: float, num_wavefronts: float) -> float:
        """Tensor-core cycles of one wgmma: the longest of math, operands and minimum, and the overhead."""
        arithmetic = num_flops / self.wgmma_flops_per_cycle[rate_class]
        operands = num_wavefronts / self.wgmma_smem_wavefronts_per_cycle
        return max(arithmetic, operands, self.wgmma_min_interval_cycles) + self.wgmma_overhead_cycles


@dataclass(slots=True)
class TensorCoreCounters(Counters):
    """Warp instructions, as Nsight Compute counts them, and busy cycles of all SMs."""

    hmma_instructions: float = ncu("sm__inst_executed_pipe_tensor_op_hmma.sum")
    imma_instructions: float = ncu("sm__inst_executed_pipe_tensor_op_imma.sum")
    gmma_instructions: float = ncu("sm__inst_executed_pipe_tensor_op_gmma.sum")
    busy_cycles: float = ncu("sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active.sum")
