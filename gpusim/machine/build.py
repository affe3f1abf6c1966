"""A GpuSpec becomes parts, joined along the call chain."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpusim.machine.clock import PowerLimiter
from gpusim.machine.component import Counters
from gpusim.machine.config import GpuSpec
from gpusim.machine.dispatcher import Dispatcher
from gpusim.machine.memory.dsmem import Dsmem, DsmemCounters
from gpusim.machine.memory.hbm import Hbm
from gpusim.machine.memory.l1 import L1, L1Counters
from gpusim.machine.memory.l2 import L2, L2Spec, Residency
from gpusim.machine.memory.smem import Smem, SmemCounters
from gpusim.machine.memory.tma import TensorMaps, Tma, TmaCounters
from gpusim.machine.memory.xbar import Xbar, XbarSpec
from gpusim.machine.sm.instruction_cache import FetchedCode, InstructionCache
from gpusim.machine.sm.mbarrier import MbarrierUnit
from gpusim.machine.sm.tensor_core import TensorCore, TensorCoreCounters
from gpusim.machine.sm.warp_scheduler import WarpScheduler, WarpSchedulerCounters, own_paces
from gpusim.machine.timing import RingingEnvironment
from gpusim.units import Clock


@dataclass(slots=True)
class Sm:
    """One streaming multiprocessor."""

    idx: int
    l1: L1
    smem: Smem
    warp_scheduler: WarpScheduler
    tensor_core: TensorCore
    instruction_cache: InstructionCache
    tma: Tma | None
    dsmem: Dsmem | None
    mbarrier_unit: MbarrierUnit | None
    queued_stores: deque[tuple[float, Any]] = field(default_factory=deque)
    """Stores to memory that may not have left the SM, oldest first: bytes of the port's time, and who knows when."""
    num_ctas: int = 0
    active_since: float = 0.0
    active_cycles: float = 0.0

    def cta_enters(self, cycle: float) -> None:
        """A CTA is dispatched here."""
        if not self.num_ctas:
            self.active_since = cycle
            self.l1.below.is_live(self.idx, is_live=True)
        self.num_ctas += 1

    def cta_leaves(self, cycle: float) -> None:
        """A CTA has exited; when it was the only one, the SM is idle."""
        self.num_ctas -= 1
        if not self.num_ctas:
            self.active_cycles += cycle - self.active_since
            self.l1.below.is_live(self.idx, is_live=False)


def _at_own_clock(gpu: GpuSpec, l2_cycles: float) -> tuple[L2Spec, XbarSpec]:
    """What L2 and crossbar move in an SM cycle that has so many of theirs; an SM's own ports keep its pace."""
    if l2_cycles == 1.0:
        return gpu.l2, gpu.xbar
    l2, xbar = gpu.l2, gpu.xbar
    return (
        replace(
            l2, slice_bytes_per_cycle=l2.slice_bytes_per_cycle * l2_cycles,
            link_bytes_per_cycle=l2.link_bytes_per_cycle * l2_cycles,
        ),
        replace(
            xbar, write_bytes_per_cycle=xbar.write_bytes_per_cycle * l2_cycles,
            gpc_read_bytes_per_cycle=xbar.gpc_read_bytes_per_cycle * l2_cycles,
            gpc_write_bytes_per_cycle=xbar.gpc_write_bytes_per_cycle * l2_cycles,
        ),
    )  # fmt: skip


class Machine:
    """All parts of one GPU at one SM clock."""

    def __init__(
        self,
        env: RingingEnvironment,
        gpu: GpuSpec,
        clock: Clock,
        residency: Residency,
        *,
        cluster_size: int,
        ctas_per_sm: int,
        smem_bytes_per_sm: int,
        num_ctas: int | None = None,
        fill_scales: Mapping[str, Sequence[float]] | None = None,
        fetch_scales: Mapping[str, float] | None = None, piece_bytes: Mapping[str, int] | None = None,
        piece_strides: Mapping[str, int] | None = None,
        alike: Mapping[int, int] | None = None, tensor_maps: Iterable[str] = (), is_warm: bool = False,
    ) -> None:
        """Build all SMs.

        ``smem_bytes_per_sm`` is what the launch takes of the unified L1, ``num_ctas`` its grid; ``fill_scales``,
        ``fetch_scales``, ``piece_bytes`` and ``piece_strides`` as in L2; ``alike``: the SMs that are simulated, and for how
        many each of them stands; all, if not told; ``tensor_maps``: those that SMs fetch at their first use, out of L2
        where it ``is_warm``.
        """
        self.gpu = gpu
        self.clock = clock
        l2_latency_ns = (gpu.l2.near_latency_cycles + gpu.l2.far_latency_cycles) / 2 * 1e3 / gpu.clock.max_mhz
        self.hbm = Hbm(env, gpu.hbm, clock, l2_latency_ns=l2_latency_ns, alike=alike)
        floorplan = gpu.floorplan
        side_of_sm = floorplan.side_of_sm
        shares = [side_of_sm.count(side) / gpu.num_sms for side in range(gpu.l2.num_partitions)]
        self.power_limiter = PowerLimiter(gpu.clock)
        l2_spec, xbar_spec = _at_own_clock(gpu, self.power_limiter.l2_cycles(clock.sm_mhz))
        self.l2 = L2(
            l2_spec, hbm=self.hbm, residency=residency, side_shares=shares, fill_scales=fill_scales,
            fetch_scales=fetch_scales, piece_bytes=piece_bytes, piece_strides=piece_strides,
        )
        self.xbar = Xbar(env, xbar_spec, l2=self.l2, floorplan=floorplan, alike=alike)
        self.dispatcher = Dispatcher(
            gpu.dispatcher, floorplan=floorplan, cluster_size=cluster_size, ctas_per_sm=ctas_per_sm, num_ctas=num_ctas
        )
        l1, smem, tma, dsmem = L1Counters(), SmemCounters(), TmaCounters(), DsmemCounters()
        scheduler, tensor = WarpSchedulerCounters(), TensorCoreCounters()
        self.counters: tuple[Counters, ...] = (
            self.hbm.counters, self.l2.counters, self.xbar.counters, l1, smem, tma, dsmem, scheduler, tensor,
        )
        self.tensor_counters = tensor
        maps = TensorMaps(tensor_maps, memory_cycles=0.0 if is_warm else self.hbm.latency_cycles)
        l1_bytes = max(0, gpu.l1.unified_bytes - smem_bytes_per_sm)
        fetched = FetchedCode()
        shares_schedulers = ctas_per_sm > 1 and (num_ctas is None or num_ctas > gpu.num_sms)
        paces = own_paces(gpu.num_sms, gpu.warp_scheduler.mad_wide_spread_fraction if shares_schedulers else 0.0)
        self.sms = [
            Sm(
                idx=idx,
                l1=L1(gpu.l1, below=self.xbar, sm_idx=idx, capacity_bytes=l1_bytes, counters=l1),
                smem=Smem(gpu.smem, counters=smem),
                warp_scheduler=WarpScheduler(gpu.warp_scheduler, counters=scheduler, pace=paces[idx]),
                tensor_core=TensorCore(gpu.tensor_core, counters=tensor),
                instruction_cache=InstructionCache(gpu.instruction_cache, fetched=fetched, tpc=floorplan.tpc_of_sm[idx]),
                tma=Tma(gpu.tma, counters=tma, maps=maps) if gpu.tma is not None else None,
                dsmem=Dsmem(gpu.dsmem, counters=dsmem) if gpu.dsmem is not None else None,
                mbarrier_unit=MbarrierUnit(gpu.mbarrier) if gpu.mbarrier is not None else None,
            )
            for idx in range(gpu.num_sms)
        ]
