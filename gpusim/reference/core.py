"""Core of the GPU model: the mechanisms of the reference engine, and the values that switch all other mechanisms off.

The core has:

* CTAs: dispatch, exit, and their successors on an SM.
* Roles with cursors, and pipes: in order, with gaps, and shared.
* Issue slots; FMA, integer, special-function and shuffle pipes.
* mma.sync of several roles in turn; wgmma and its groups.
* The data stage of shared memory; the load/store unit and L1.
* cp.async and its groups.
* The TMA engine and its queue, copies that complete a phase together, multicasts, bulk stores and their groups.
* mbarriers, named barriers, cluster barriers, fences.
* The network between SMs; setmaxnreg.
* L2 as one partition, with hits as planned or by last use.
* Memory as one pipe with an intake for each SM, and write-backs of L2.

:data:`CORE_OFF` has the parameters of all other mechanisms, each with the value at which it does nothing. Parameters that
are not there have one of three roles. They belong to the core at any value, they refine a mechanism that is off, or they
concern power or Nsight Compute's counters. ``tests/reference/test_core.py`` lists them, so that none is forgotten.

The toy GPU has none of the mechanisms on. :func:`beyond_core` lists those of other GPUs.

Some ops are beyond the core on any GPU, and the reference refuses them:

* ``ImadWide``.
* Loads from shared memory of more than 32 wavefronts on an SM that has not run wgmma, which take turns.
* Rows that are not aligned to lines, and rows out of bounds.
* Tables with random reads, and panels with repeated walks.
* CTAs that take turns at the FMA pipe.
* Code that is slower during wgmma.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from gpusim.machine.config import CHANGED, OFF, GpuSpec
from gpusim.workload import ops

NONE = {
    "device": "singleton_tpc_sms",
    "hbm": """turnaround_fraction queued_turnaround_per_mb refresh_fraction refresh_ns read_behind_write_wait_ns
        read_write_turnaround_wait_ns write_burst_ns fill_spread_ns queue_wait_at_half_load_ns channel_bytes
        row_open_read_bytes row_open_write_bytes partial_line_request_bytes""",
    "l2": "partition0_lead_fraction request_bytes eviction_width_fraction cta_lifetime_cv slice_spread_cycles queue_cycles",
    "xbar": "store_in_flight_bytes request_interval_packets red_header_fraction sm_distance_cycles",
    "l1": """hit_on_miss_cycles eviction_width_fraction cp_async_cycles cp_async_bypass_cycles cp_async_row_cycles
        max_queued_copies cp_async_latency_cycles cp_async_interval_cycles commit_cycles max_queued_stores
        max_queued_scheduler_stores""",
    "smem": """warp_cycles_per_wavefront vector_word_cycles store_latency_cycles overtakable_wavefronts
        global_load_wavefronts global_store_wavefronts cp_async_row_wavefronts""",
    "tma": "store_header_bytes tensormap_miss_cycles", "dsmem": "same_tpc_saving_cycles",
    "warp_scheduler": "barrier_warp_cycles fence_warp_cycles proxy_fence_visible_cycles gpu_fence_warp_cycles",
    "tensor_core": """mma_sync_step_latency_cycles mma_sync_load_cycles wgmma_min_interval_cycles wgmma_smem_a_cycles
        wgmma_register_a_cycles""",
    "mbarrier": "arrive_interval_cycles one_lane_retry_cycles",
    "dispatcher": "round_cycles cold_start_cycles store_exit_cycles",
}
"""Parameters of each part that switch a mechanism off where they are 0."""

PLENTY = {
    "xbar.gpc_read_bytes_per_cycle": 1e6, "smem.wgmma_lds_registers_per_cycle": 1e3,
    "smem.wgmma_sts_wavefronts_per_cycle": 1e3, "tensor_core.wgmma_min_free_wavefronts": 1e9,
    "tensor_core.wgmma_max_queued": 1e3,
    **{f"instruction_cache.{name}_bytes": 1e9 for name in ("l0", "l1", "prefetched", "loop_kept", "launch_fetched")},
}
"""Rates and capacities that never limit at these values or above."""

CORE_OFF: Mapping[str, Any] = MappingProxyType({
    **{f"{part}.{name}": 0.0 for part, names in NONE.items() for name in names.split()}, **PLENTY, **OFF,
    "device.gpcs": lambda gpu: {str(gpu.num_sms): 1}, "device.gpc_l2_partition": (0,), "dispatcher.order": "breadth_first",
    "l2.num_partitions": 1, "l2.far_latency_cycles": lambda gpu: gpu.l2.near_latency_cycles,
    "xbar.num_gpc_store_ports": 1, "xbar.bulk_read_fraction": 1.0, "xbar.multicast_read_fraction": 1.0,
    "xbar.coalesce_scope": "sm", "l1.cp_async_miss_first_pass_fraction": 1.0,
    "warp_scheduler.math_interval_during_wgmma_cycles": 1e-9, "clock.l2_clock_coupling_fraction": 1.0,
    "tensor_core.mma_sync_accumulate_cycles": lambda gpu: dict.fromkeys(gpu.tensor_core.mma_sync_accumulate_cycles, 0.0),
})  # fmt: skip
"""Parameters of mechanisms beyond the core, and the value at which each does nothing; some depend on the GPU."""


def beyond_core(gpu: GpuSpec) -> list[str]:
    """Parameters of ``gpu`` whose mechanisms are on and beyond the core.

    >>> from gpusim.machine.config import load_gpu
    >>> beyond_core(load_gpu("toy")), beyond_core(load_gpu("h200_sxm"))[:1], beyond_core(core_only(load_gpu("h200_sxm")))
    ([], ['device.singleton_tpc_sms'], [])
    """
    found = []
    for name, off in CORE_OFF.items():
        part, _, parameter = name.partition(".")
        value = getattr(gpu.component(part), parameter, None)  # none where the GPU lacks the part
        is_off = value == (off(gpu) if callable(off) else off) or (name in PLENTY and value is not None and value >= off)
        found += [] if value is None or is_off else [name]
    return found


def core_only(gpu: GpuSpec) -> GpuSpec:
    """``gpu`` with all mechanisms beyond the core switched off: those that :func:`beyond_core` lists."""
    for name in beyond_core(gpu):
        part, _, parameter = name.partition(".")
        off = CORE_OFF[name]
        changed = replace(gpu.component(part), **{parameter: off(gpu) if callable(off) else off})
        gpu = replace(gpu, **{"name": gpu.base_name + CHANGED, part: changed})
    return gpu


BEYOND_CORE: Mapping[type, Mapping[str, str]] = MappingProxyType({
    ops.Alu: {"num_beside": "code that is slower beside wgmma"}, ops.ImadWide: {"num_instructions": "IMAD.WIDE"},
    ops.CpAsync: {"fetches": "rows off lines"}, ops.TmaLoad: {"fetches": "rows off lines", "num_zero_rows": "rows outside"},
})  # fmt: skip
"""Fields of ops that must be empty or 0 in the core, and the mechanisms that they ask for."""
