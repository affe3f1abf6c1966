"""Plan of a launch before it runs: admission check, occupancy, waves, L2 and memory traffic. Nothing is timed.

In: a Launch and a GpuSpec. Out: a LaunchPlan, the same at every SM clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LaunchError, nearest
from gpusim.machine.config import GpuSpec
from gpusim.machine.dispatcher import GOLDEN, slots_of_grid
from gpusim.machine.exact_math import sum_in_order
from gpusim.machine.sm.occupancy import Occupancy, occupancy
from gpusim.traffic.cta_drift import CtaLifetimes, add_drift_misses
from gpusim.traffic.footprints import FootprintTable, read_bytes
from gpusim.traffic.l2_plan import panel_traffic
from gpusim.traffic.panels import FloatArray, PanelTraffic
from gpusim.workload.launch import Launch

MATH_CLASSES = ("16bit", "tf32", "fp8", "int8", "fp32")
"""Classes of data type for which rates, peaks and energies are given."""

MOST_TILES = 1 << 25
"""Work tiles of one launch, at most. Planning takes some hundred bytes for each."""


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """Occupancy and traffic of a launch on a GPU before it runs. A wave is the set of tiles that run at once."""

    launch: Launch
    gpu: GpuSpec
    """GPU as :func:`gpusim.simulate.idealize.idealize` returns it."""
    is_warm: bool
    """Whether earlier launches did the same."""
    occupancy: Occupancy
    num_slots: int
    """CTAs that fit on the device at once."""
    num_ctas: int
    """CTAs of the grid. A persistent grid has at most ``num_slots``."""
    footprints: FootprintTable
    """Panels that each tile touches."""
    traffic: Mapping[str, PanelTraffic]
    """Traffic below L2 by tensor; empty for a launch whose L2 hits are found during its run."""

    @property
    def num_at_once(self) -> int:
        """CTAs that run at once."""
        return min(self.num_slots, self.num_ctas)

    @property
    def num_waves(self) -> int:
        """Waves of work tiles in the traffic plan; 1 without a plan."""
        return len(self.miss_bytes_by_wave)

    @property
    def left_dirty_bytes(self) -> float:
        """Bytes of tensors with footprints that are dirty in L2 when the launch ends."""
        written = [self.traffic[row.tensor] for row in self.footprints.of_tensors if row.is_write and self.traffic]
        stored = sum_in_order(float(item.touched_bytes_by_wave.sum()) for item in written)
        return max(0.0, stored - sum_in_order(item.written_back_bytes for item in written))

    @cached_property
    def miss_bytes_by_wave(self) -> FloatArray:
        """Bytes read from memory in each wave, float64[num_waves]."""
        return sum((item.miss_bytes_by_wave for item in self.traffic.values()), np.zeros(1))


def plan_launch(launch: Launch, gpu: GpuSpec, *, is_warm: bool) -> LaunchPlan:
    """Check a launch and plan its traffic.

    >>> from gpusim import GemmParams, load_gpu
    >>> gpu = load_gpu("h200_sxm")
    >>> plan = plan_launch(GemmParams(m=4096, n=4096, k=4096, tile="128x256x64").launch(gpu), gpu, is_warm=False)
    >>> plan.num_at_once, plan.num_waves
    (132, 4)

    Raises:
        LaunchError: the GPU cannot run it.
    """
    held = check(launch, gpu)
    num_slots = count_slots(launch, gpu, held)
    num_ctas = launch.num_ctas or grid_of_persistent(launch, num_slots)
    footprints = FootprintTable.of(launch, gpu)
    traffic = plan_traffic(launch, gpu, footprints, num_slots=min(num_slots, num_ctas), is_warm=is_warm)
    return LaunchPlan(
        launch=launch, gpu=gpu, is_warm=is_warm, occupancy=held, num_slots=num_slots, num_ctas=num_ctas,
        footprints=footprints, traffic=traffic,
    )


def check(launch: Launch, gpu: GpuSpec) -> Occupancy:
    """Admission check of a launch: features, math class, tiles, cluster size, shared memory, registers.

    Returns:
        CTAs that an SM holds at once, and what limits them.

    Raises:
        LaunchError: this GPU cannot run this launch.
    """
    lacking = ", ".join(sorted(launch.features - gpu.features))
    if lacking:
        raise LaunchError(f"{launch.kernel}: {gpu.name} has no {lacking}, it has {', '.join(sorted(gpu.features))}")
    if launch.math_class and launch.math_class not in MATH_CLASSES:
        raise LaunchError(
            f"{launch.kernel}: math_class {launch.math_class!r} is unknown; {nearest(launch.math_class, MATH_CLASSES)}"
        )
    for what, number in (("tiles", launch.num_tiles), ("CTAs", launch.num_ctas or 0)):
        if number > MOST_TILES:
            raise LaunchError(
                f"{launch.kernel}: {number} {what}, gpusim plans at most {MOST_TILES}: give a CTA more work, or take a "
                "smaller size"
            )
    size = launch.cluster_size
    if size > 1 and gpu.device.max_cluster_size < size:
        most = gpu.device.max_cluster_size
        raise LaunchError(
            f"{launch.kernel}: a cluster of {size} CTAs, {gpu.name} "
            + (f"takes at most {most}; use a smaller --cluster, for example 2x1" if most > 1 else "has no clusters; use 1x1")
        )
    if launch.num_ctas is not None and launch.num_ctas % size:
        raise LaunchError(f"{launch.kernel}: {launch.num_ctas} CTAs do not make full clusters of {size}")
    return occupancy(
        gpu, kernel=launch.kernel, num_threads=launch.num_threads, registers_per_thread=launch.registers_per_thread,
        smem_bytes=launch.smem_bytes,
    )


def peak_flops_per_cycle(launch: Launch, gpu: GpuSpec, *, by_mma_sync: bool = False) -> float:
    """Peak FLOP per SM cycle of the full device for the launch's math class.

    The fastest unit for the class counts, or mma.sync with ``by_mma_sync``. 0 where the GPU has no rate for the class.
    """
    core = gpu.tensor_core
    if launch.math_class == "fp32":
        return 2.0 * gpu.warp_scheduler.fp32_lanes * gpu.num_sms
    rates = (not by_mma_sync and core.wgmma_flops_per_cycle) or core.mma_sync_flops_per_cycle
    return rates.get(launch.math_class, 0.0) * gpu.num_sms


def count_slots(launch: Launch, gpu: GpuSpec, held: Occupancy) -> int:
    """CTAs that run at once on the full device."""
    return gpu.floorplan.num_clusters(launch.cluster_size) * launch.cluster_size * held.ctas_per_sm


def grid_of_persistent(launch: Launch, num_slots: int) -> int:
    """CTAs of a persistent grid: all slots, or fewer if full clusters for all tiles need fewer."""
    size = launch.cluster_size
    return min(num_slots, -(-launch.num_tiles // size) * size)


def plan_traffic(
    launch: Launch, gpu: GpuSpec, footprints: FootprintTable, *, num_slots: int, is_warm: bool
) -> dict[str, PanelTraffic]:
    """Traffic below L2 of each tensor, from the order of CTAs. Nothing is timed.

    Empty for a launch whose L2 hits are found during its run.
    """
    if not launch.has_planned_traffic:
        return {}
    partitions = partition_of_cta(gpu, launch.cluster_size)
    partition_of_tile = at_slots(launch, partitions[np.arange(num_slots) % len(partitions)])
    held = gpu.l2_partitions
    if launch.set_aside_bytes:
        held = replace(held, last_bytes=launch.set_aside_bytes / held.num)
    waves = waves_of_tiles(launch.num_tiles, num_slots)
    in_step = panel_traffic(footprints.of_tensors, waves, l2=held, partition_of_tile=partition_of_tile, is_warm=is_warm)
    lifetimes = CtaLifetimes(
        num_slots=num_slots, cluster_size=launch.cluster_size, deviation=lifetime_cv(launch, gpu, footprints),
        is_persistent=launch.num_ctas is None,
    )
    return add_drift_misses(in_step, footprints.of_tensors, waves, l2=held, lifetimes=lifetimes)


def lifetime_cv(launch: Launch, gpu: GpuSpec, footprints: FootprintTable) -> float:
    """Coefficient of variation of the lifetimes of CTAs that run at once: standard deviation over the mean.

    L2 slices make lifetimes vary, so ``l2.cta_lifetime_cv`` is scaled by 1 less the ratio of two times. One is the
    arithmetic at its peak. The other is the time that L2 takes for all reads, with one multicast read for the CTAs of a
    cluster.

    Zero where nothing is read, or the math class has no peak. Zero also for a pipeline of one stage, in which CTAs wait for
    the latency of each load and not for the slices.
    """
    peak = peak_flops_per_cycle(launch, gpu, by_mma_sync="mma_sync" in launch.features)
    rings = [ring.num_stages for ring in launch.buffers if ring.name != "epilogue" and not ring.is_overlay]
    num_stages = max(rings, default=1)
    if not peak or num_stages < 2:
        return 0.0
    read = sum_in_order(read_bytes(row, launch.cluster_size) for row in footprints.of_tensors if not row.is_write)
    if not read:
        return 0.0
    l2 = gpu.l2
    by_slices = read / (l2.num_slices * l2.slice_bytes_per_cycle * l2.sustained_fraction)
    return l2.cta_lifetime_cv * max(0.0, 1.0 - launch.num_flops / peak / by_slices)


def at_slots(launch: Launch, of_slot: NDArray[np.int64]) -> NDArray[np.int64]:
    """Value of the slot in which each work tile runs, int64[num_tiles].

    The first wave's CTAs lie in the order in which SMs are filled, and so do all tiles of a persistent grid. Later CTAs take
    any slot that frees, so neighbours lie on distant slots: the order follows multiples of the golden section.

    Args:
        launch: tiles, grid and cluster size.
        of_slot: int64[num_slots], value of each slot.
    """
    size, num_slots = launch.cluster_size, len(of_slot)
    num_clusters, num_later = num_slots // size, launch.num_tiles - num_slots
    if launch.num_ctas is None or num_later <= 0 or num_clusters < 2:
        return np.resize(of_slot, launch.num_tiles)
    step = max(1, round(num_clusters * GOLDEN))
    while gcd(step, num_clusters) > 1:
        step += 1
    of_wave = np.arange(num_clusters, dtype=np.int64)[:, None] * step % num_clusters * size + np.arange(size)
    return np.concatenate((of_slot, np.resize(of_slot[of_wave], num_later)))  # later waves all have the same order


def waves_of_tiles(num_tiles: int, num_slots: int) -> NDArray[np.int64]:
    """Wave of each tile, int64[num_tiles]; ``num_slots`` tiles run at once."""
    return np.repeat(np.arange(-(-num_tiles // num_slots), dtype=np.int64), num_slots)[:num_tiles]


def partition_of_cta(gpu: GpuSpec, cluster_size: int = 1) -> NDArray[np.int64]:
    """L2 partition of the SM of each CTA of a wave, int64[CTAs], with one CTA per SM in the order in which SMs are filled.

    With more CTAs per SM the array repeats.
    """
    slots = slots_of_grid(gpu.dispatcher, gpu.floorplan, cluster_size=cluster_size, ctas_per_sm=1)
    partitions = gpu.partition_of_sm
    return np.array([partitions[sm_idx] for slot in slots for sm_idx in slot], dtype=np.int64)
