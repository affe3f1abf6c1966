"""The tensor cores of one SM, for mma.sync and for wgmma."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpusim.machine.component import Component, Counters
from gpusim.machine.timing import Pipe


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCoreSpec:
    """Rates by class of instruction, so that a new shape needs no new number."""

    mma_sync_flops_per_cycle: Mapping[str, float]
    """FLOP (or integer OP) a cycle and SM, by class of type."""
    mma_sync_latency_cycles: float
    mma_sync_min_interval_cycles: float
    """Cycles between two instructions of one sub-core, at least."""
    wgmma_flops_per_cycle: Mapping[str, float] = field(default_factory=dict)
    """Empty where there is no wgmma."""
    wgmma_smem_wavefronts_per_cycle: float = 1.0
    wgmma_overhead_cycles: float = 0.0
    """Cycles that each instruction adds."""
    wgmma_latency_cycles: float = 0.0
    """From the end of a group's last instruction in the pipe until its wait returns."""
    wgmma_issue_depth: int = 1
    """Instructions that a warpgroup may have issued and not begun; then the issuing warp waits."""
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

    Models: wgmma's rate, the larger of arithmetic and operand wavefronts; its small issue depth and the latency of a
    wait; mma.sync's rate, minimum interval and latency. Two warpgroups share the pipe.
    Ignores: the order in which warpgroups alternate inside the pipe, sparsity, sub-normal or zero operands.
    Source: the GPU's description; the rule max(flops, wavefronts) from published H100 rates.
    """

    kind = "tensor_core"

    def __init__(self, spec: TensorCoreSpec, *, counters: TensorCoreCounters) -> None:
        """``counters`` are shared by all SMs."""
        self.spec = spec
        self.counters = counters
        self.pipe = Pipe(units_per_cycle=1.0)

    def wgmma_cycles(self, *, rate_class: str, num_flops: float, num_wavefronts: float) -> float:
        """Cycles of the pipe that one wgmma takes."""
        spec = self.spec
        arithmetic = num_flops / spec.wgmma_flops_per_cycle[rate_class]
        operands = num_wavefronts / spec.wgmma_smem_wavefronts_per_cycle
        return max(arithmetic, operands) + spec.wgmma_overhead_cycles

    def mma_sync_interval_cycles(self, *, rate_class: str, num_flops: float) -> float:
        """Cycles between two mma.sync of one sub-core."""
        spec = self.spec
        per_sub_core = spec.mma_sync_flops_per_cycle[rate_class] / spec.num_sub_cores
        return max(num_flops / per_sub_core, spec.mma_sync_min_interval_cycles)

    def queue_cycles(self, cycles_each: float) -> float:
        """How long before the end of its last wgmma the warp that issues them is free to go on."""
        return self.spec.wgmma_issue_depth * cycles_each

    def run_mma_sync(
        self, num_issues: int, interval_cycles: float, *, num_warps: int, is_integer: bool, at_cycle: float,
        weight: float,
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
        return end - interval_cycles, end - interval_cycles + self.spec.mma_sync_latency_cycles
