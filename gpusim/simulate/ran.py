"""What a summary reads of a run, whichever engine ran it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from gpusim.machine.clock import PowerLimiter
from gpusim.machine.component import Counters
from gpusim.machine.config import GpuSpec
from gpusim.machine.memory.dsmem import DsmemCounters
from gpusim.machine.memory.hbm import HbmCounters
from gpusim.machine.memory.l1 import L1Counters
from gpusim.machine.memory.l2 import L2Counters
from gpusim.machine.memory.smem import SmemCounters
from gpusim.machine.memory.tma import TmaCounters
from gpusim.machine.memory.xbar import XbarCounters
from gpusim.machine.numeric import sum_in_order
from gpusim.machine.sm.tensor_core import TensorCoreCounters
from gpusim.machine.sm.warp_scheduler import WarpSchedulerCounters
from gpusim.simulate.constants import Geometry, Numbers, Shared, hbm_numbers, l2_latency_ns, slots_of
from gpusim.simulate.plan import LaunchPlan
from gpusim.simulate.timeline import Timeline
from gpusim.units import Clock
from gpusim.workload.launch import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCounters:
    """Counters of each part, over all SMs."""

    hbm: HbmCounters
    l2: L2Counters
    xbar: XbarCounters
    l1: L1Counters
    smem: SmemCounters
    tma: TmaCounters
    dsmem: DsmemCounters
    warp_scheduler: WarpSchedulerCounters
    tensor_core: TensorCoreCounters

    @classmethod
    def of(cls, parts: Mapping[str, Mapping[str, float]]) -> PartCounters:
        """From the numbers of each part, by name; 0 for those that are not there."""
        kinds = {
            "hbm": HbmCounters, "l2": L2Counters, "xbar": XbarCounters, "l1": L1Counters, "smem": SmemCounters,
            "tma": TmaCounters, "dsmem": DsmemCounters, "warp_scheduler": WarpSchedulerCounters,
            "tensor_core": TensorCoreCounters,
        }  # fmt: skip
        made: dict[str, Any] = {name: kind(**parts.get(name, {})) for name, kind in kinds.items()}
        return cls(**made)

    def __iter__(self) -> Iterator[Counters]:
        """Part by part."""
        return (getattr(self, item.name) for item in fields(self))

    @property
    def slices_busy_bytes(self) -> float:
        """Bytes that the slices could have served in the time that they took for reads."""
        xbar = self.xbar
        return xbar.read_bytes * xbar.carried_bytes / xbar.asked_bytes if xbar.asked_bytes else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyCycles:
    """Cycles in which parts were busy, summed over the SMs."""

    fma: float
    issue: float
    smem: float
    lsu: float
    tma: float
    l2_link: float
    """Of the busier link between L2's sides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsRun:
    """Which kinds of instructions ran, that have parameters of their own."""

    has_tma: bool
    has_mma_sync: bool
    has_wgmma: bool
    wgmma_types: frozenset[str]
    """Names of the operands' types of its wgmma."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRates:
    """What the parts that all SMs share can do, at the clock of the run: bytes a cycle."""

    slices_bytes_per_cycle: float
    stores_bytes_per_cycle: float
    links_bytes_per_cycle: float
    """All links between L2's sides together; 0 where there is one side."""
    hbm_latency_cycles: float


@dataclass(frozen=True, kw_only=True)
class Ran(ABC):
    """A run that is over, whichever engine ran it."""

    plan: LaunchPlan
    clock: Clock
    ideals: frozenset[str]
    is_part: bool = False
    """Whether it was ended early: what it says is then what it would have come to if it had gone on so."""

    @property
    def launch(self) -> Launch:
        """What ran."""
        return self.plan.launch

    @property
    def gpu(self) -> GpuSpec:
        """As it was simulated."""
        return self.plan.gpu

    @cached_property
    def slots_to_run(self) -> int:
        """Slots of the dispatcher, all of which were simulated."""
        plan, gpu = self.plan, self.gpu
        slots = slots_of(
            gpu.dispatcher, Geometry.of(gpu), plan.launch.cluster_size, plan.occupancy.ctas_per_sm, plan.num_ctas
        )
        return len(slots)

    @property
    def cold_start_cycles(self) -> float:
        """What the first CTAs wait longer where caches were flushed."""
        return 0.0 if self.plan.is_warm else self.gpu.dispatcher.cold_start_cycles

    # ------------------------------------------------------------------------------------------ shared parts

    @property
    def power_limiter(self) -> PowerLimiter:
        """Of the GPU."""
        return PowerLimiter(self.gpu.clock)

    @property
    def _hbm(self) -> Numbers:
        """Constants of memory."""
        return hbm_numbers(self.gpu.hbm, self.clock, l2_latency_ns(self.gpu))

    @property
    def rates(self) -> SharedRates:
        """What shared parts can do."""
        shared = Shared.of(self.gpu, self.clock)
        return SharedRates(
            slices_bytes_per_cycle=shared.slices_bytes_per_cycle, stores_bytes_per_cycle=shared.write_bytes_per_cycle,
            links_bytes_per_cycle=shared.link_bytes_per_cycle * self.gpu.l2.num_partitions,
            hbm_latency_cycles=self._hbm["latency_cycles"],
        )

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
        hbm = self._hbm
        return (read_bytes + write_bytes * hbm["write_cost"]) / (hbm["wire_bytes_per_cycle"] * cycles)

    def hbm_share_at_most(self, first: int, last: int, cycles: float) -> float:
        """The greatest part of its time that memory is busy in waves ``first`` to ``last``, if each takes ``cycles``."""
        misses = self.plan.miss_bytes_by_wave
        written = sum_in_order(item.written_back_bytes for item in self.plan.traffic.values()) / len(misses)
        return self.hbm_share(cycles, float(misses[first : last + 1].max(initial=0.0)), written)

    # ------------------------------------------------------------------------------------------ what engines say

    @property
    @abstractmethod
    def end_cycle(self) -> float:
        """Cycles of the launch."""

    @property
    @abstractmethod
    def num_events(self) -> int:
        """Events that it took."""

    @property
    @abstractmethod
    def met(self) -> set[str]:
        """What a counterfactual could make free of it."""

    @property
    @abstractmethod
    def role_totals(self) -> Mapping[str, list[float]]:
        """Cycles of each role in each :class:`WarpState`."""

    @property
    @abstractmethod
    def epilogue_cycles(self) -> Mapping[str, float]:
        """Cycles in sections called epilogue, of each role that has one."""

    @property
    @abstractmethod
    def timeline(self) -> Timeline:
        """Of the SMs that were recorded."""

    @property
    @abstractmethod
    def counted(self) -> PartCounters:
        """Counters of each part."""

    @property
    @abstractmethod
    def busy(self) -> BusyCycles | None:
        """How long parts were busy; None where the engine does not say."""

    @property
    @abstractmethod
    def active_cycles(self) -> float:
        """Cycles in which SMs held a CTA, summed over the SMs."""

    @property
    @abstractmethod
    def ops_run(self) -> OpsRun:
        """Which kinds of instructions ran."""

    @abstractmethod
    def taking(self, cycles: float, clock: Clock) -> Ran:
        """The same at a clock near by, where it takes so many cycles."""
