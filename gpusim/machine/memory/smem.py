"""Shared memory: 32 banks, served a wavefront at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.machine.component import Component, Counters
from gpusim.machine.timing import Pipe


@dataclass(frozen=True, slots=True, kw_only=True)
class SmemSpec:
    """Shared memory of one SM."""

    wavefronts_per_cycle: float
    load_latency_cycles: float
    """From issue to use of an access of one wavefront."""
    warp_cycles_per_wavefront: float
    """What a lone warp waits for each wavefront of its own beyond the first."""
    atomic_latency_cycles: float


@dataclass(slots=True)
class SmemCounters(Counters):
    """Wavefronts of the LSU pipe."""

    wavefronts: float = field(default=0.0, metadata={"ncu": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"})
    load_wavefronts: float = field(
        default=0.0, metadata={"ncu": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"}
    )
    store_wavefronts: float = field(
        default=0.0, metadata={"ncu": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"}
    )
    gmma_wavefronts: float = field(
        default=0.0, metadata={"ncu": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum"}
    )


class Smem(Component):
    """The data stage of one SM's shared memory.

    Models: one wavefront a cycle for all warps of the SM, latency, and the slower pace at which one warp's own
    wavefronts return.
    Ignores: arbitration with TMA fills and wgmma operand reads (the tensor core's own rate covers those reads).
    Source: the GPU's description; wavefronts come from ``workload/access.py``.
    """

    kind = "smem"

    def __init__(self, spec: SmemSpec, *, counters: SmemCounters) -> None:
        """``counters`` are shared by all SMs."""
        self.spec = spec
        self.counters = counters
        self.data = Pipe(units_per_cycle=spec.wavefronts_per_cycle)

    def load(self, num_wavefronts: float, *, wavefronts_per_warp: float, at_cycle: float, weight: float) -> float:
        """Read; returns the cycle at which the last register is there."""
        self.counters.wavefronts += num_wavefronts * weight
        self.counters.load_wavefronts += num_wavefronts * weight
        end = self.data.reserve(num_wavefronts, at_cycle=at_cycle, weight=weight)
        spec = self.spec
        own = at_cycle + (wavefronts_per_warp - 1.0) * spec.warp_cycles_per_wavefront
        shared = end - 1.0 / spec.wavefronts_per_cycle
        return (shared if shared > own else own) + spec.load_latency_cycles

    def store(self, num_wavefronts: float, *, at_cycle: float, weight: float) -> float:
        """Write; returns the cycle at which the last wavefront is in."""
        self.counters.wavefronts += num_wavefronts * weight
        self.counters.store_wavefronts += num_wavefronts * weight
        return self.data.reserve(num_wavefronts, at_cycle=at_cycle, weight=weight)

    def count_gmma(self, num_wavefronts: float) -> None:
        """Count operand reads of wgmma (their time is in the tensor core's rate)."""
        self.counters.wavefronts += num_wavefronts
        self.counters.gmma_wavefronts += num_wavefronts
