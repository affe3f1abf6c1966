"""What the core of the model is: for each parameter of a GPU whether the reference has it, and else what switches it off.

The core is what every kernel meets: CTAs that are dealt out, exit and follow one another; roles with cursors; pipes in
order, with gaps, and shared; issue slots, FMA, integer, special-function and shuffle pipes; mma.sync in turns, wgmma and its
groups; shared memory's data stage and the line before it; the load/store unit and L1; cp.async and its groups; the TMA
engine, its queue, copies that complete a phase together, multicasts, bulk stores and their groups; mbarriers, named and
cluster barriers, fences; the network between SMs; setmaxnreg; L2 as one side, resident as planned or by last use; memory as
one wire with an intake for each SM, and what has to leave L2.

Parameters are of three kinds:

* :data:`MODELLED`: the reference has them, at any value.
* :data:`CORE_OFF`: each with the value that switches its mechanism off.
* :data:`WITHOUT_EFFECT`: they say more of mechanisms that are off, of power, or of what Nsight Compute would count.

Beyond the core whatever a GPU says are ``MadWide``; rows off lines and out of bounds; tables that are read at random;
CTAs that take turns at the FMA pipe; integer code that is slower beside wgmma. The reference refuses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from gpusim.machine.config import CHANGED, COMPONENT_KINDS, DeviceSpec, GpuSpec


@dataclass(frozen=True, slots=True)
class AtLeast:
    """Off from that value on: a rate or a room that nobody needs all of."""

    value: float


@dataclass(frozen=True, slots=True)
class As:
    """Off where it is as another thing of the GPU is."""

    of: Callable[[GpuSpec], Any]


CORE_OFF: Mapping[str, Any] = MappingProxyType({
    # one GPC, on one side of L2
    "device.gpcs": As(lambda gpu: {str(gpu.num_sms): 1}),
    "device.lone_sms": 0,
    "device.gpc_sides": (0,),
    # memory: channels, refresh, turns of reads and writes, spreads, rows that are opened
    "hbm.turnaround_fraction": 0.0,
    "hbm.queued_turnaround_per_mb": 0.0,
    "hbm.refresh_fraction": 0.0,
    "hbm.refresh_ns": 0.0,
    "hbm.write_wait_ns": 0.0,
    "hbm.mixed_wait_ns": 0.0,
    "hbm.write_turn_ns": 0.0,
    "hbm.fill_spread_ns": 0.0,
    "hbm.queue_ns": 0.0,
    "hbm.channel_bytes": 0.0,
    "hbm.piece_read_bytes": 0.0,
    "hbm.piece_write_bytes": 0.0,
    "hbm.part_request_bytes": 0.0,
    # L2: two sides, queues at slices, lines that leave one by one, CTAs that drift apart
    "l2.num_partitions": 1,
    "l2.far_latency_cycles": As(lambda gpu: gpu.l2.near_latency_cycles),
    "l2.side_lead_fraction": 0.0,
    "l2.request_bytes": 0.0,
    "l2.capacity_spread_fraction": 0.0,
    "l2.life_spread_fraction": 0.0,
    "l2.slice_spread_cycles": 0.0,
    "l2.queue_cycles": 0.0,
    # crossbar: links of GPCs, merging, packets of stores, distance
    "xbar.store_way_bytes": 0.0,
    "xbar.request_turn_packets": 0.0,
    "xbar.red_header_fraction": 0.0,
    "xbar.gpc_read_bytes_per_cycle": AtLeast(1e6),
    "xbar.num_gpc_parts": 1,
    "xbar.bulk_read_fraction": 1.0,
    "xbar.multicast_read_fraction": 1.0,
    "xbar.merge_scope": "sm",
    "xbar.sm_distance_cycles": 0.0,
    # L1: the queue of stores, and what cp.async takes beyond a load
    "l1.coming_request_cycles": 0.0,
    "l1.cp_async_cycles": 0.0,
    "l1.cp_async_first_fraction": 1.0,
    "l1.cp_async_bypass_cycles": 0.0,
    "l1.cp_async_row_cycles": 0.0,
    "l1.max_queued_copies": 0,
    "l1.cp_async_latency_cycles": 0.0,
    "l1.cp_async_interval_cycles": 0.0,
    "l1.commit_cycles": 0.0,
    "l1.max_queued_stores": 0.0,
    "l1.max_queued_scheduler_stores": 0.0,
    # shared memory: a warp's own pace, vectors, global accesses in the data stage, replays, operands of wgmma first
    "smem.warp_cycles_per_wavefront": 0.0,
    "smem.vector_word_cycles": 0.0,
    "smem.store_latency_cycles": 0.0,
    "smem.replay_wavefronts": 0.0,
    "smem.global_load_wavefronts": 0.0,
    "smem.global_store_wavefronts": 0.0,
    "smem.copied_row_wavefronts": 0.0,
    "smem.operand_load_registers_per_cycle": AtLeast(1e3),
    "smem.operand_store_wavefronts_per_cycle": AtLeast(1e3),
    "tensor_core.wgmma_between_wavefronts": AtLeast(1e9),
    "tensor_core.wgmma_switch_cycles": 0.0,
    # TMA: packets of stores, rows of zeros, tensor maps
    "tma.store_header_bytes": 0.0,
    "tma.map_miss_cycles": 0.0,
    # the network between SMs
    "dsmem.pair_saving_cycles": 0.0,
    # schedulers: warps of a barrier or fence one by one, arithmetic beside wgmma
    "warp_scheduler.barrier_warp_cycles": 0.0,
    "warp_scheduler.fence_warp_cycles": 0.0,
    "warp_scheduler.fence_view_cycles": 0.0,
    "warp_scheduler.gpu_fence_warp_cycles": 0.0,
    "warp_scheduler.beside_interval_cycles": 1e-9,
    # tensor cores: steps of mma.sync, sums by other instructions, loads beside; what wgmma waits for A, and its queue
    "tensor_core.mma_sync_step_latency_cycles": 0.0,
    "tensor_core.mma_sync_sum_cycles": As(lambda gpu: dict.fromkeys(gpu.tensor_core.mma_sync_sum_cycles, 0.0)),
    "tensor_core.mma_sync_load_cycles": 0.0,
    "tensor_core.wgmma_min_interval_cycles": 0.0,
    "tensor_core.wgmma_smem_a_cycles": 0.0,
    "tensor_core.wgmma_register_a_cycles": 0.0,
    "tensor_core.wgmma_max_queued": AtLeast(1e3),
    # mbarriers: arrivals one by one, a lone lane that looks now and then
    "mbarrier.arrive_interval_cycles": 0.0,
    "mbarrier.lone_retry_cycles": 0.0,
    # caches of instructions
    "instruction_cache.l0_bytes": AtLeast(1e9),
    "instruction_cache.l1_bytes": AtLeast(1e9),
    "instruction_cache.prefetched_bytes": AtLeast(1e9),
    "instruction_cache.loop_kept_bytes": AtLeast(1e9),
    "instruction_cache.launch_fetched_bytes": AtLeast(1e9),
    # launch: rounds over SMs, cold caches, stores that an exit waits for
    "dispatcher.round_cycles": 0.0,
    "dispatcher.cold_start_cycles": 0.0,
    "dispatcher.store_exit_cycles": 0.0,
    # one clock for SMs and L2
    "clock.l2_follow_fraction": 1.0,
})  # fmt: skip
"""Parameters of mechanisms beyond the core, and the value at which each does nothing."""

MODELLED: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "device": (
        "num_sms", "compute_capability", "max_threads_per_sm", "max_warps_per_sm", "max_ctas_per_sm", "smem_per_sm_bytes",
        "smem_per_cta_bytes", "smem_reserved_per_cta_bytes", "smem_allocation_bytes", "max_cluster_size",
    ),
    "hbm": ("sustained_read_gb_per_s", "sustained_write_gb_per_s", "latency_ns", "sm_gb_per_s"),
    "l2": (
        "capacity_bytes", "num_slices", "slice_bytes_per_cycle", "sustained_fraction", "shared_capacity_fraction",
        "dirty_fraction", "evict_first_fraction", "evict_last_fraction", "near_latency_cycles", "write_back_queue_bytes",
    ),
    "xbar": (
        "sm_read_bytes_per_cycle", "sm_write_bytes_per_cycle", "write_bytes_per_cycle", "gpc_write_bytes_per_cycle",
    ),
    "l1": (
        "unified_bytes", "hit_latency_cycles", "tag_lines_per_cycle", "requests_per_cycle", "wavefronts_per_cycle",
        "outstanding_bytes", "queue_cycles",
    ),
    "smem": ("wavefronts_per_cycle", "load_latency_cycles", "atomic_latency_cycles"),
    "register_file": ("num_registers", "max_registers_per_thread", "allocation_unit", "num_partitions"),
    "tma": (
        "latency_cycles", "box_cycles", "row_cycles", "bytes_per_cycle", "max_queued_boxes", "issue_cycles",
        "store_box_cycles", "store_latency_cycles", "group_wait_cycles",
    ),
    "dsmem": (
        "latency_cycles", "bytes_per_cycle", "one_way_cycles", "serve_fraction", "cluster_barrier_cycles",
        "cluster_barrier_cta_cycles",
    ),
    "warp_scheduler": (
        "num_schedulers", "fp32_lanes", "int32_lanes", "mufu_lanes", "shuffle_lanes", "shuffle_cycles", "dependent_cycles",
        "bank_reads_per_cycle", "barrier_base_cycles", "fence_cycles", "bar_arrive_cycles", "gpu_fence_cycles",
    ),
    "tensor_core": (
        "mma_sync_flops_per_cycle", "mma_sync_latency_cycles", "mma_sync_min_interval_cycles", "wgmma_flops_per_cycle",
        "wgmma_smem_wavefronts_per_cycle", "wgmma_overhead_cycles", "wgmma_latency_cycles", "wgmma_max_groups",
        "num_sub_cores",
    ),
    "mbarrier": ("arrive_cycles", "try_wait_cycles", "wake_cycles", "lone_try_wait_cycles"),
    "dispatcher": (
        "launch_cycles", "dispatch_cycles_per_cta", "cta_start_cycles", "cta_exit_cycles", "retire_cycles_per_cta",
        "cluster_retire_cycles_per_cta", "cluster_start_cycles", "drain_cycles", "store_end_cycles", "order",
    ),
    "clock": ("max_mhz",),
})  # fmt: skip
"""What the reference has, by part."""

WITHOUT_EFFECT: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "device": ("peak_tflops",),
    "hbm": ("peak_gb_per_s", "refresh_bytes", "channel_gb_per_s", "side_by_side_fraction"),
    "l2": (
        "link_bytes_per_cycle", "link_turnaround_fraction", "fetch_bytes", "promoted_read_fraction",
        "launch_lookup_sectors", "launch_hit_sectors", "slice_lookup_sectors", "dirty_crossing_fraction",
    ),
    "xbar": (
        "line_request_bytes", "last_request_fraction", "store_packet_bytes", "merge_limit", "torn_merge_fraction",
        "merge_window_cycles", "merge_wait_fraction",
    ),
    "l1": ("max_queued_rows", "store_queue_bytes", "store_release_cycles"),
    "tma": ("zero_row_bytes", "outside_row_bytes", "map_prefetch_cycles"),
    "warp_scheduler": (
        "mad_wide_lanes", "mad_wide_cycles", "mad_wide_beside_cycles", "mad_wide_apart_cycles", "mad_wide_spread_fraction",
    ),
    "mbarrier": ("max_queued_arrivals",),
    "instruction_cache": ("l1_latency_cycles", "loop_bytes_per_cycle", "loop_paces"),
    "clock": (
        "min_mhz", "power_limit_w", "single_power_w", "single_power_delay_us", "idle_power_w", "voltage_slope",
        "tensor_pj_per_flop", "zeros_fraction", "mma_sync_extra_fraction", "tensor_mhz", "tensor_burst_mhz_us",
        "tensor_rest_us", "tensor_least_mhz", "load_line_mhz_per_w", "fp32_pj_per_flop", "smem_pj_per_byte",
        "l2_pj_per_byte", "l2_zeros_fraction", "bulk_pj_per_byte", "fill_pj_per_byte", "bulk_zeros_fraction",
        "hbm_pj_per_byte", "hbm_zeros_fraction", "sm_busy_w",
    ),
})  # fmt: skip
"""What says nothing where all of :data:`CORE_OFF` is off and the clock is given, by part."""


def parameters() -> list[str]:
    """Every parameter that a GPU may have, as ``part.name``."""
    specs = {"device": DeviceSpec, **COMPONENT_KINDS}
    return [f"{part}.{item.name}" for part, spec in specs.items() for item in fields(spec)]


def beyond_core(gpu: GpuSpec) -> list[str]:
    """Parameters of ``gpu`` whose mechanisms are on and beyond the core.

    >>> from gpusim.machine.config import load_gpu
    >>> beyond_core(load_gpu("toy"))[0], beyond_core(core_only(load_gpu("h200_sxm")))
    ('smem', [])
    """
    return [name for name in CORE_OFF if _has(gpu, name) and not _is_off(gpu, name)]


def core_only(gpu: GpuSpec) -> GpuSpec:
    """``gpu`` with all mechanisms beyond the core switched off: those that :func:`beyond_core` lists."""
    changes: dict[str, dict[str, Any]] = {}
    for name in beyond_core(gpu):
        part, parameter = name.split(".")
        changes.setdefault(part, {})[parameter] = _off(gpu, name)
    if not changes:
        return gpu
    parts = {part: replace(gpu.component(part), **values) for part, values in changes.items()}
    return replace(gpu, name=gpu.base_name + CHANGED, **parts)


def _has(gpu: GpuSpec, name: str) -> bool:
    """Whether the GPU has the part."""
    return gpu.component(name.partition(".")[0]) is not None


def _off(gpu: GpuSpec, name: str) -> Any:
    """The value that switches it off."""
    value = CORE_OFF[name]
    if isinstance(value, As):
        return value.of(gpu)
    return value.value if isinstance(value, AtLeast) else value


def _is_off(gpu: GpuSpec, name: str) -> bool:
    part, parameter = name.split(".")
    value, off = getattr(gpu.component(part), parameter), _off(gpu, name)
    return bool(value >= off) if isinstance(CORE_OFF[name], AtLeast) else bool(value == off)
