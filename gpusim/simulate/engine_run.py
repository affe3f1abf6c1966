"""Outcome of one run of an engine, native or reference: cycles, counters, warp states, timeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from gpusim.machine.config import GpuSpec
from gpusim.machine.counters import PartCounters
from gpusim.machine.exact_math import sum_in_order
from gpusim.simulate.constants import Numbers, Shared, hbm_numbers, l2_latency_ns
from gpusim.simulate.plan import LaunchPlan
from gpusim.simulate.timeline import Timeline
from gpusim.units import Clock
from gpusim.workload.launch import Launch

Results = Mapping[str, NDArray[Any]]
"""Sections that the native engine returns, by name."""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A finished run of either engine."""

    plan: LaunchPlan
    clock: Clock
    taking: Callable[[float, Clock], Ran]
    """Function of cycles and clock that returns this run rescaled to a clock close to its own."""
    end_cycle: float
    """Cycles of the launch."""
    num_events: int
    role_totals: Mapping[str, list[float]]
    """Cycles of each role in each :class:`WarpState`."""
    counted: PartCounters
    active_cycles: float
    """Cycles in which SMs held a CTA, summed over the SMs."""
    instructions: frozenset[str]
    """Names among ``tma``, ``mma_sync`` and ``wgmma`` of the instructions that ran: they have separate parameters."""
    wgmma_types: frozenset[str] = frozenset()
    """Names of the operand types of wgmma."""
    met: frozenset[str] = frozenset()
    """Names of the counterfactuals that apply to the launch, as far as the engine reports them."""
    epilogue_cycles: Mapping[str, float] = field(default_factory=dict)
    """Cycles in sections called epilogue, of each role that has one."""
    fill_cycles: float = 0.0
    """Cycles from the dispatch of each CTA to its first MMA, summed over the CTAs, as far as the engine reports them."""
    busy: Mapping[str, float] = field(default_factory=dict)
    """Cycles in which parts of SMs were busy, summed over the SMs, as far as the engine reports them."""
    link_busy_cycles: float | None = None
    """Busy cycles of the busier link between the L2 partitions. None where the engine does not report them."""
    timeline: Timeline = field(default_factory=Timeline)
    """Timeline of the recorded SMs."""
    is_part: bool = False
    """Whether the run was ended early. Its numbers are then extrapolated to the end of the launch."""
    results: Results = field(default_factory=dict)

    @property
    def launch(self) -> Launch:
        """Launch that ran."""
        return self.plan.launch

    @property
    def gpu(self) -> GpuSpec:
        """GPU as it was simulated."""
        return self.plan.gpu

    @cached_property
    def shared(self) -> Shared:
        """Rates of L2 and crossbar at the clock of the run."""
        return Shared.of(self.gpu, self.clock)

    @cached_property
    def hbm(self) -> Numbers:
        """Constants of memory at the clock of the run."""
        return hbm_numbers(self.gpu.hbm, self.clock, l2_latency_ns(self.gpu))

    def dram_bytes(self) -> tuple[float, float]:
        """Bytes read and written: as planned from footprints, and as counted for tensors without footprints."""
        counted = self.counted
        if not self.plan.traffic:
            return counted.hbm.read_bytes, counted.hbm.write_bytes
        read = sum_in_order(item.read_miss_bytes for item in self.plan.traffic.values())
        written = sum_in_order(item.written_back_bytes for item in self.plan.traffic.values())
        return read + counted.l2.unplanned_miss_bytes, written + counted.l2.unplanned_write_back_bytes

    def hbm_share(self, cycles: float, read_bytes: float, write_bytes: float) -> float:
        """Share of ``cycles`` in which memory is busy with these bytes."""
        return (read_bytes + write_bytes * self.hbm["write_cost"]) / (self.hbm["wire_bytes_per_cycle"] * cycles)

    def hbm_share_at_most(self, cycles: float) -> float:
        """Largest busy share of memory in any wave, if each wave takes ``cycles``."""
        misses = self.plan.miss_bytes_by_wave
        written = sum_in_order(item.written_back_bytes for item in self.plan.traffic.values()) / len(misses)
        return self.hbm_share(cycles, float(misses.max(initial=0.0)), written)
