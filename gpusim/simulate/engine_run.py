"""What a summary reads of a run, whichever engine ran it."""

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
"""Sections of what the native engine gives back, by name."""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A run that is over, whichever engine ran it."""

    plan: LaunchPlan
    clock: Clock
    taking: Callable[[float, Clock], Ran]
    """The same at a clock near by, where it takes so many cycles."""
    end_cycle: float
    """Cycles of the launch."""
    num_events: int
    role_totals: Mapping[str, list[float]]
    """Cycles of each role in each :class:`WarpState`."""
    counted: PartCounters
    active_cycles: float
    """Cycles in which SMs held a CTA, summed over the SMs."""
    instructions: frozenset[str]
    """Of ``tma``, ``mma_sync`` and ``wgmma`` those that ran: they have parameters of their own."""
    wgmma_types: frozenset[str] = frozenset()
    """Names of the operands' types of its wgmma."""
    met: frozenset[str] = frozenset()
    """What a counterfactual could make free of it, as far as the engine says it."""
    epilogue_cycles: Mapping[str, float] = field(default_factory=dict)
    """Cycles in sections called epilogue, of each role that has one."""
    busy: Mapping[str, float] = field(default_factory=dict)
    """Cycles in which parts of SMs were busy, summed over the SMs, as far as the engine says it."""
    link_busy_cycles: float | None = None
    """The same of the busier link between L2's sides."""
    timeline: Timeline = field(default_factory=Timeline)
    """Of the SMs that were recorded."""
    is_part: bool = False
    """Whether it was ended early: what it says is then what it would have come to if it had gone on so."""
    results: Results = field(default_factory=dict)

    @property
    def launch(self) -> Launch:
        """What ran."""
        return self.plan.launch

    @property
    def gpu(self) -> GpuSpec:
        """As it was simulated."""
        return self.plan.gpu

    @cached_property
    def shared(self) -> Shared:
        """What L2 and crossbar can do, at the clock of the run."""
        return Shared.of(self.gpu, self.clock)

    @cached_property
    def hbm(self) -> Numbers:
        """Constants of memory."""
        return hbm_numbers(self.gpu.hbm, self.clock, l2_latency_ns(self.gpu))

    def dram_bytes(self) -> tuple[float, float]:
        """(read, written) as planned from footprints; as counted for tensors that have none."""
        counted = self.counted
        if not self.plan.traffic:
            return counted.hbm.read_bytes, counted.hbm.write_bytes
        read = sum_in_order(item.read_miss_bytes for item in self.plan.traffic.values())
        written = sum_in_order(item.written_back_bytes for item in self.plan.traffic.values())
        return read + counted.l2.unplanned_miss_bytes, written

    def hbm_share(self, cycles: float, read_bytes: float, write_bytes: float) -> float:
        """Part of ``cycles`` in which memory moves so many bytes."""
        return (read_bytes + write_bytes * self.hbm["write_cost"]) / (self.hbm["wire_bytes_per_cycle"] * cycles)

    def hbm_share_at_most(self, cycles: float) -> float:
        """The greatest part of its time that memory is busy in any wave, if each takes ``cycles``."""
        misses = self.plan.miss_bytes_by_wave
        written = sum_in_order(item.written_back_bytes for item in self.plan.traffic.values()) / len(misses)
        return self.hbm_share(cycles, float(misses.max(initial=0.0)), written)
