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

* ``MadWide``.
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
    "device": "lone_sms",
    "hbm": """turnaround_fraction queued_turnaround_per_mb refresh_fraction refresh_ns write_wait_ns mixed_wait_ns
        write_turn_ns fill_spread_ns queue_ns channel_bytes piece_read_bytes piece_write_bytes part_request_bytes""",
    "l2": "side_lead_fraction request_bytes capacity_spread_fraction life_spread_fraction slice_spread_cycles queue_cycles",
    "xbar": "store_way_bytes request_turn_packets red_header_fraction sm_distance_cycles",
    "l1": """coming_request_cycles cp_async_cycles cp_async_bypass_cycles cp_async_row_cycles max_queued_copies
        cp_async_latency_cycles cp_async_interval_cycles commit_cycles max_queued_stores max_queued_scheduler_stores""",
    "smem": """warp_cycles_per_wavefront vector_word_cycles store_latency_cycles replay_wavefronts global_load_wavefronts
        global_store_wavefronts copied_row_wavefronts""",
    "tma": "store_header_bytes map_miss_cycles",
    "dsmem": "pair_saving_cycles",
    "warp_scheduler": "barrier_warp_cycles fence_warp_cycles fence_view_cycles gpu_fence_warp_cycles",
    "tensor_core": """mma_sync_step_latency_cycles mma_sync_load_cycles wgmma_min_interval_cycles wgmma_smem_a_cycles
        wgmma_register_a_cycles wgmma_switch_cycles""",
    "mbarrier": "arrive_interval_cycles lone_retry_cycles",
    "dispatcher": "round_cycles cold_start_cycles store_exit_cycles",
}
"""Parameters of each part that switch a mechanism off where they are 0."""

PLENTY = {
    "xbar.gpc_read_bytes_per_cycle": 1e6, "smem.operand_load_registers_per_cycle": 1e3,
    "smem.operand_store_wavefronts_per_cycle": 1e3, "tensor_core.wgmma_between_wavefronts": 1e9,
    "tensor_core.wgmma_max_queued": 1e3, "instruction_cache.l0_bytes": 1e9, "instruction_cache.l1_bytes": 1e9,
    "instruction_cache.prefetched_bytes": 1e9, "instruction_cache.loop_kept_bytes": 1e9,
    "instruction_cache.launch_fetched_bytes": 1e9,
}
"""Rates and capacities that never limit at these values or above."""

CORE_OFF: Mapping[str, Any] = MappingProxyType({
    **{f"{part}.{name}": 0.0 for part, names in NONE.items() for name in names.split()}, **PLENTY, **OFF,
    "device.gpcs": lambda gpu: {str(gpu.num_sms): 1}, "device.gpc_sides": (0,), "dispatcher.order": "breadth_first",
    "l2.num_partitions": 1, "l2.far_latency_cycles": lambda gpu: gpu.l2.near_latency_cycles,
    "xbar.num_gpc_parts": 1, "xbar.bulk_read_fraction": 1.0, "xbar.multicast_read_fraction": 1.0, "xbar.merge_scope": "sm",
    "l1.cp_async_first_fraction": 1.0, "warp_scheduler.beside_interval_cycles": 1e-9, "clock.l2_follow_fraction": 1.0,
    "tensor_core.mma_sync_sum_cycles": lambda gpu: dict.fromkeys(gpu.tensor_core.mma_sync_sum_cycles, 0.0),
})  # fmt: skip
"""Parameters of mechanisms beyond the core, and the value at which each does nothing; some depend on the GPU."""


def beyond_core(gpu: GpuSpec) -> list[str]:
    """Parameters of ``gpu`` whose mechanisms are on and beyond the core.

    >>> from gpusim.machine.config import load_gpu
    >>> beyond_core(load_gpu("toy")), beyond_core(load_gpu("h200_sxm"))[:1], beyond_core(core_only(load_gpu("h200_sxm")))
    ([], ['device.lone_sms'], [])
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
    ops.Alu: {"num_beside": "code that is slower beside wgmma"}, ops.MadWide: {"num_instructions": "IMAD.WIDE"},
    ops.CpAsync: {"fetches": "rows off lines"}, ops.TmaLoad: {"fetches": "rows off lines", "num_zero_rows": "rows outside"},
})  # fmt: skip
"""Fields of ops that must be empty or 0 in the core, and the mechanisms that they ask for."""
