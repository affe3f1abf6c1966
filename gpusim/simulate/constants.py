"""Constants of a GPU at one SM clock as the engine takes them: numbers by part, and tables of SMs, links and L2 partitions.

In: a LaunchPlan and a Clock. Only the GPU and a few facts of the launch matter.
Out: numbers and tables by the names of ``program/records.py``. No part of the machine is built.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import ConfigError
from gpusim.machine.clock import PowerLimiter
from gpusim.machine.config import GpuSpec
from gpusim.machine.dispatcher import GOLDEN, DispatcherSpec, slots_of_grid
from gpusim.machine.exact_math import sum_in_order
from gpusim.machine.floorplan import Floorplan
from gpusim.machine.memory.gpc_ports import partition_shares, parts_of_gpcs
from gpusim.machine.memory.hbm import MOST_SHARE, QUEUE_LATENCIES, HbmSpec
from gpusim.machine.memory.xbar import XbarSpec
from gpusim.machine.sm.occupancy import l1_bytes
from gpusim.machine.sm.warp_scheduler import WarpSchedulerSpec, own_paces
from gpusim.program.records import CONSTANTS, TABLES
from gpusim.simulate.plan import LaunchPlan
from gpusim.units import WARP_SIZE, Clock

FloatArray = NDArray[np.float64]
Numbers = Mapping[str, float]
"""Constants of one part, by name."""

MOST_PARTITIONS = 2
"""L2 partitions that the engine supports, at most."""
Table = NDArray[np.void]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Rates of L2 and crossbar in bytes per SM cycle. These parts have a separate clock."""

    slices_bytes_per_cycle: float
    """Bytes per SM cycle of all L2 slices under full load."""
    fabric_bytes_per_cycle: float
    gpc_read_bytes_per_cycle: float
    gpc_write_bytes_per_cycle: float

    @classmethod
    def of(cls, gpu: GpuSpec, clock: Clock) -> Shared:
        """Rates at an SM clock. The ports of an SM run at the SM clock."""
        l2_cycles = PowerLimiter(gpu.clock).l2_cycles(clock.sm_mhz)
        l2, xbar = gpu.l2, gpu.xbar
        return cls(
            slices_bytes_per_cycle=l2.num_slices * (l2.slice_bytes_per_cycle * l2_cycles) * l2.sustained_fraction,
            fabric_bytes_per_cycle=l2.fabric_bytes_per_cycle * l2_cycles,
            gpc_read_bytes_per_cycle=xbar.gpc_read_bytes_per_cycle * l2_cycles,
            gpc_write_bytes_per_cycle=xbar.gpc_write_bytes_per_cycle * l2_cycles,
        )


def slots_of(
    spec: DispatcherSpec, floorplan: Floorplan, cluster_size: int, ctas_per_sm: int, num_ctas: int
) -> NDArray[np.int32]:
    """SMs of all slots in the order in which they are first filled, int32[num_slots]. SMs of a cluster are adjacent.

    >>> from gpusim.machine.config import load_gpu
    >>> gpu = load_gpu("h200_sxm")
    >>> slots_of(gpu.dispatcher, gpu.floorplan, 1, 1, 1000)[6:12].tolist()
    [130, 131, 0, 1, 16, 17]
    """
    places = slots_of_grid(spec, floorplan, cluster_size=cluster_size, ctas_per_sm=ctas_per_sm, num_ctas=num_ctas)
    return np.array(places, dtype=np.int32).reshape(-1)


def machine_numbers(plan: LaunchPlan, clock: Clock) -> dict[str, Numbers]:
    """Constants of every part of the machine, by part and name.

    >>> from gpusim import GemmParams, load_gpu
    >>> from gpusim.simulate.plan import plan_launch
    >>> gpu = load_gpu("h200_sxm")
    >>> plan = plan_launch(GemmParams(m=256, n=256, k=64).launch(gpu), gpu, is_warm=False)
    >>> numbers = machine_numbers(plan, Clock(sm_mhz=1755.0))
    >>> numbers["warp_scheduler"]["num_schedulers"], numbers["l2"]["num_links"]
    (4.0, 2.0)

    Raises:
        ConfigError: more L2 partitions than the engine supports.
    """
    gpu, launch, is_warm = plan.gpu, plan.launch, plan.is_warm
    if gpu.l2.num_partitions > MOST_PARTITIONS:
        raise ConfigError(
            f"{gpu.name}: l2.num_partitions is {gpu.l2.num_partitions}, the engine takes 1 or {MOST_PARTITIONS}"
        )
    hbm = hbm_numbers(gpu.hbm, clock, l2_latency_ns(gpu))
    shared, dispatcher, num = Shared.of(gpu, clock), gpu.dispatcher, gpu.l2.num_partitions
    return {
        "dispatcher": _named(
            "dispatcher", dispatcher, cold_start_cycles=0.0 if is_warm else dispatcher.cold_start_cycles,
            retire_cycles=dispatcher.retire_cycles(launch.cluster_size),
        ),
        "hbm": hbm,
        "l2": _named(
            "l2", gpu.l2, num_links=float(len(links_of(gpu, shared))), far_share=1.0 - 1.0 / num,
            num_lanes=gpu.l2.num_slices / num,
        ),
        "xbar": _xbar_numbers(gpu.xbar, shared, fill_cycles=hbm["latency_cycles"]),
        "l1": _named(
            "l1", gpu.l1,
            capacity_bytes=float(l1_bytes(gpu, smem_bytes=launch.smem_bytes, ctas_per_sm=plan.occupancy.ctas_per_sm)),
            lines_per_cycle=gpu.l1.tag_lines_per_cycle,
        ),
        "warp_scheduler": _scheduler_numbers(gpu.warp_scheduler),
        "tma": _named("tma", gpu.tma, map_memory_cycles=0.0 if is_warm else hbm["latency_cycles"]),
        **{part: _named(part, gpu.component(part)) for part in AS_DESCRIBED},
    }


AS_DESCRIBED = ("smem", "tensor_core", "mbarrier", "dsmem", "instruction_cache")
"""Parts whose constants are all fields of their Specs."""


def in_order(part: str, numbers: Numbers) -> FloatArray:
    """Constants of one part in the order of the buffer, float64[names]."""
    return np.array([numbers[name] for name in CONSTANTS[part]], dtype=np.float64)


def code_latency_cycles(plan: LaunchPlan, clock: Clock) -> float:
    """Latency in SM cycles of instructions that no SM has run yet: of L2 if it is warm, otherwise of memory."""
    gpu = plan.gpu
    return gpu.l2.near_latency_cycles if plan.is_warm else clock.cycles(ns=gpu.hbm.latency_ns)


def cluster_barrier_cycles(plan: LaunchPlan) -> float:
    """SM cycles of a cluster barrier from the last arrival on."""
    gpu, launch = plan.gpu, plan.launch
    if gpu.dsmem is None:
        return 0.0
    latency = gpu.dsmem.cluster_barrier_cycles + launch.cluster_size * gpu.dsmem.cluster_barrier_cta_cycles
    return latency + launch.num_warps * gpu.warp_scheduler.barrier_warp_cycles


def l2_latency_ns(gpu: GpuSpec) -> float:
    """L2's part of the latency of memory in ns, the mean of near and far."""
    return (gpu.l2.near_latency_cycles + gpu.l2.far_latency_cycles) / 2 * 1e3 / gpu.clock.max_mhz


def _named(part: str, spec: object, **more: float) -> Numbers:
    """Constants that are fields of a Spec, and ``more``; zeros for a part that the GPU lacks."""
    if spec is None:
        return dict.fromkeys(CONSTANTS[part], 0.0)
    return more | {name: float(getattr(spec, name)) for name in CONSTANTS[part] if name not in more}


def hbm_numbers(spec: HbmSpec, clock: Clock, l2_latency_ns: float) -> Numbers:
    """Constants of memory, which has a separate clock."""
    latency = clock.cycles(ns=max(0.0, spec.latency_ns - l2_latency_ns))
    peak = clock.bytes_per_cycle(gb_per_s=spec.peak_gb_per_s)
    channel = clock.bytes_per_cycle(gb_per_s=spec.channel_gb_per_s)
    return _named(
        "hbm", spec, latency_cycles=latency, refresh_cycles=clock.cycles(ns=spec.refresh_ns),
        write_cycles=clock.cycles(ns=spec.read_behind_write_wait_ns),
        mixed_cycles=clock.cycles(ns=spec.read_write_turnaround_wait_ns),
        turn_cycles=clock.cycles(ns=spec.write_burst_ns), queue_cycles=clock.cycles(ns=spec.queue_wait_at_half_load_ns),
        spread_cycles=min(clock.cycles(ns=spec.fill_spread_ns), 2.0 * latency), peak_bytes_per_cycle=peak,
        most_share=min(MOST_SHARE, spec.sustained_read_gb_per_s / spec.peak_gb_per_s),
        window_cycles=QUEUE_LATENCIES * clock.cycles(ns=spec.latency_ns) or 1.0,
        write_cost=spec.sustained_read_gb_per_s / spec.sustained_write_gb_per_s,
        wire_bytes_per_cycle=clock.bytes_per_cycle(gb_per_s=spec.sustained_read_gb_per_s),
        sm_bytes_per_cycle=clock.bytes_per_cycle(gb_per_s=spec.sm_gb_per_s),
        channel_cycles=spec.channel_bytes / channel if channel else 0.0,
        per_channel_bytes=spec.channel_bytes * peak / channel if channel else 0.0,
    )


def _xbar_numbers(spec: XbarSpec, shared: Shared, *, fill_cycles: float) -> Numbers:
    return _named(
        "xbar", spec, gpc_write_bytes_per_cycle=shared.gpc_write_bytes_per_cycle,
        alone_bytes_per_cycle=min(spec.sm_read_bytes_per_cycle, shared.slices_bytes_per_cycle),
        bulk_weight=1.0 / spec.bulk_read_fraction, multicast_weight=1.0 / spec.multicast_read_fraction,
        coalesces=float(spec.coalesce_scope != "sm" and spec.coalesce_max_requests > 1), coalesce_fill_cycles=fill_cycles,
    )


def _scheduler_numbers(spec: WarpSchedulerSpec) -> Numbers:
    return _named(
        "warp_scheduler", spec, fma_rate=spec.fp32_lanes / WARP_SIZE, alu_rate=spec.int32_lanes / WARP_SIZE,
        imad_wide_rate=spec.imad_wide_lanes / WARP_SIZE, mufu_rate=spec.mufu_lanes / WARP_SIZE,
        beside_rate=spec.num_schedulers / spec.math_interval_during_wgmma_cycles,
        shuffle_rate=spec.shuffle_lanes / WARP_SIZE,
    )


def links_of(gpu: GpuSpec, shared: Shared) -> list[float]:
    """Rates of the links between the L2 partitions: one into each partition with SMs; none with one partition."""
    weights = weights_of(gpu)
    return [shared.fabric_bytes_per_cycle * weight for weight in weights if weight] if len(weights) > 1 else []


def weights_of(gpu: GpuSpec) -> list[float]:
    """Number of SMs of each partition, relative to the mean partition."""
    partitions, num = gpu.floorplan.partition_of_sm, gpu.l2.num_partitions
    return [partitions.count(partition) / gpu.num_sms * num for partition in range(num)]


def machine_tables(
    plan: LaunchPlan, clock: Clock, recorded_sms: Collection[int] | Literal["first"]
) -> dict[str, NDArray[Any]]:
    """The tables ``partitions``, ``gpc_links``, ``write_links`` and ``sms``, and the array ``slots``."""
    gpu, cluster_size, ctas_per_sm = plan.gpu, plan.launch.cluster_size, plan.occupancy.ctas_per_sm
    shared, floorplan = Shared.of(gpu, clock), gpu.floorplan
    slots = slots_of(gpu.dispatcher, floorplan, cluster_size, ctas_per_sm, plan.num_ctas)
    sms = _sms(gpu)
    shares_schedulers = ctas_per_sm > 1 and plan.num_ctas > gpu.num_sms
    sms["pace"] = own_paces(gpu.num_sms, gpu.warp_scheduler.imad_wide_sm_cv if shares_schedulers else 0.0)
    if cluster_size > 1:  # SMs that no cluster fills at first
        sms["num_free_ctas"] = ctas_per_sm
        sms["num_free_ctas"][slots] = 0
    sms["is_recorded"][slots[:1].tolist() if recorded_sms == "first" else sorted(recorded_sms)] = 1
    return {
        "partitions": _partitions(gpu, shared), "gpc_links": _gpc_links(floorplan, shared),
        "write_links": _write_links(floorplan, gpu.xbar.num_gpc_store_ports, shared), "sms": sms, "slots": slots,
    }


def _partitions(gpu: GpuSpec, shared: Shared) -> Table:
    """One row for each L2 partition. The rate of a missing link is infinite.

    Link k is in row k, so rows of partitions without SMs have links, too.
    """
    links, num = links_of(gpu, shared), gpu.l2.num_partitions
    shares = partition_shares(gpu.floorplan.partition_of_sm, gpu.l2.partition0_lead_fraction)
    found = np.zeros(num, dtype=TABLES["partitions"])
    for partition, weight in enumerate(weights_of(gpu)):
        stores = shared.fabric_bytes_per_cycle * weight / (1.0 - 1.0 / num) if links else inf
        link = links[partition] if partition < len(links) else inf
        found[partition] = shared.slices_bytes_per_cycle * shares.get(partition, 0.0), link, stores
    return found


def _gpc_links(plan: Floorplan, shared: Shared) -> Table:
    """One row for each GPC, in the order of their first SMs."""
    gpcs = plan.gpc_of_sm
    found = np.zeros(len(set(gpcs)), dtype=TABLES["gpc_links"])
    for row, gpc_idx in enumerate(dict.fromkeys(gpcs)):
        full = shared.slices_bytes_per_cycle * gpcs.count(gpc_idx) / len(gpcs)
        found[row] = plan.partition_of_sm[gpcs.index(gpc_idx)], shared.gpc_read_bytes_per_cycle, full
    return found


def _write_links(plan: Floorplan, num_parts: int, shared: Shared) -> Table:
    """One row for each part of a GPC, in the order of their first SMs."""
    gpcs = plan.gpc_of_sm
    rows = {gpc_idx: row for row, gpc_idx in enumerate(dict.fromkeys(gpcs))}
    parts = list(dict.fromkeys(parts_of_gpcs(gpcs, num_parts)))
    found = np.zeros(len(parts), dtype=TABLES["write_links"])
    found["gpc"] = [rows[gpc_idx] for gpc_idx, _ in parts]
    found["width"], found["bytes_per_cycle"] = 1.0, shared.gpc_write_bytes_per_cycle / num_parts
    return found


def _sms(gpu: GpuSpec) -> Table:
    """One row for each SM, without the fields that depend on the launch."""
    plan, xbar, cache = gpu.floorplan, gpu.xbar, gpu.instruction_cache
    found = np.zeros(plan.num_sms, dtype=TABLES["sms"])
    found["partition"] = plan.partition_of_sm
    found["gpc"] = _renumbered(plan.gpc_of_sm)
    found["write_link"] = _renumbered(parts_of_gpcs(plan.gpc_of_sm, xbar.num_gpc_store_ports))
    found["coalesce_region"] = plan.groups(xbar.coalesce_scope)
    found["is_lone"][list(plan.lone)] = 1
    for place, sm_idx in enumerate(plan.in_order()):
        found["distance_cycles"][sm_idx] = xbar.sm_distance_cycles * ((place * GOLDEN + 0.5) % 1.0 - 0.5)
    paces, rate = cache.loop_fetch_rate_by_tpc, cache.loop_bytes_per_cycle
    mean = sum_in_order(paces.values()) / len(paces)
    found["loop_bytes_per_cycle"] = [rate * paces.get(str(tpc), mean) for tpc in plan.tpc_of_sm]
    found["cluster_place"] = _renumbered(plan.cluster_groups())
    return found


def _renumbered(names: Sequence[object]) -> list[int]:
    """Numbers from 0 up in place of names, in the order of first occurrence.

    >>> _renumbered([7, -1, 7, 3])
    [0, 1, 0, 2]
    """
    numbers: dict[object, int] = {}
    return [numbers.setdefault(name, len(numbers)) for name in names]
