"""What a summary reads of a run, whichever engine ran it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gpusim.machine.clock import PowerLimiter
from gpusim.machine.component import Counters
from gpusim.machine.config import GpuSpec
from gpusim.machine.memory.dsmem import DsmemCounters
from gpusim.machine.memory.hbm import HbmCounters
from gpusim.machine.memory.l1 import L1Counters
from gpusim.machine.memory.l2 import L2Counters
from gpusim.machine.memory.panels import PanelTraffic
from gpusim.machine.memory.smem import SmemCounters
from gpusim.machine.memory.tma import TmaCounters
from gpusim.machine.memory.xbar import XbarCounters
from gpusim.machine.sm.occupancy import Occupancy
from gpusim.machine.sm.tensor_core import TensorCoreCounters
from gpusim.machine.sm.warp_scheduler import WarpSchedulerCounters
from gpusim.simulate.timeline import Timeline
from gpusim.simulate.uses import Uses
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


class Ran(Protocol):
    """A run that is over."""

    @property
    def is_part(self) -> bool:
        """Whether it was ended early, and says what it would have come to."""

    @property
    def launch(self) -> Launch:
        """What ran."""

    @property
    def gpu(self) -> GpuSpec:
        """As it was simulated: idealized."""

    @property
    def occupancy(self) -> Occupancy:
        """CTAs an SM."""

    @property
    def uses(self) -> Uses:
        """What each tile touches."""

    @property
    def traffic(self) -> Mapping[str, PanelTraffic]:
        """What memory gives and takes, as planned; empty for a launch without footprints."""

    @property
    def num_slots(self) -> int:
        """CTAs that the device holds at once."""

    @property
    def num_ctas(self) -> int:
        """Of the grid."""

    @property
    def slots_to_run(self) -> int:
        """Slots that were simulated."""

    @property
    def is_warm(self) -> bool:
        """Whether L2 had what earlier launches leave."""

    @property
    def ideals(self) -> frozenset[str]:
        """What a counterfactual has made free."""

    @property
    def met(self) -> set[str]:
        """What a counterfactual could make free of it."""

    @property
    def end_cycle(self) -> float:
        """Cycles of the launch."""

    @property
    def num_events(self) -> int:
        """Events that it took."""

    @property
    def cold_start_cycles(self) -> float:
        """What the first CTAs wait longer where caches were flushed."""

    @property
    def role_totals(self) -> Mapping[str, list[float]]:
        """Cycles of each role in each :class:`WarpState`."""

    @property
    def epilogue_cycles(self) -> Mapping[str, float]:
        """Cycles in sections called epilogue, of each role that has one."""

    @property
    def timeline(self) -> Timeline:
        """Of the SMs that were recorded."""

    @property
    def miss_bytes_by_wave(self) -> NDArray[np.float64]:
        """Bytes from memory, as planned: float64[num_waves]."""

    @property
    def counted(self) -> PartCounters:
        """Counters of each part."""

    @property
    def busy(self) -> BusyCycles | None:
        """How long parts were busy; None where the engine does not say."""

    @property
    def active_cycles(self) -> float:
        """Cycles in which SMs held a CTA, summed over the SMs."""

    @property
    def ops_run(self) -> OpsRun:
        """Which kinds of instructions ran."""

    @property
    def rates(self) -> SharedRates:
        """What shared parts can do."""

    @property
    def power_limiter(self) -> PowerLimiter:
        """Of the GPU."""

    def taking(self, cycles: float, clock: Clock) -> Ran:
        """The same at a clock near by, where it takes so many cycles."""

    def dram_bytes(self) -> tuple[float, float]:
        """(read, written) by the whole launch."""

    def hbm_share(self, cycles: float, read_bytes: float, write_bytes: float) -> float:
        """Part of ``cycles`` in which memory moves so many bytes."""

    def hbm_share_at_most(self, first: int, last: int, cycles: float) -> float:
        """The greatest part of its time that memory is busy in any of some waves, if each takes ``cycles``."""
