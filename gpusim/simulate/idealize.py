"""Counterfactuals: a GPU with one part idealized."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpusim.machine.config import GpuSpec

INFINITE = 1e12
"""A rate or capacity that never limits."""

IDEALS: Mapping[str, str] = {
    "bank_conflicts": "no bank conflicts",
    "l2": "L2 and crossbar without limit",
    "hbm": "HBM without limit",
    "tma": "a TMA engine without limit",
    "latency": "no latency",
    "epilogue": "epilogue for nothing",
    "own_code": "integer code in a chain for nothing (addresses, code of its own)",
    "mad_wide": "no IMAD.WIDE beside wgmma",
    "launch": "launch and CTA start for nothing",
}
"""What can be made free, and how a report calls it."""


EVERY_LAUNCH_HAS = ("l2", "hbm", "latency", "launch")
"""What is free of any launch; the others are where the launch has such instructions or parts."""


RATES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "hbm": {"hbm": ("sustained_read_gb_per_s", "sustained_write_gb_per_s", "sm_gb_per_s", "channel_gb_per_s")},
    "l2": {
        "l2": ("slice_bytes_per_cycle", "link_bytes_per_cycle"),
        "l1": ("outstanding_bytes",),
        "xbar": (
            "sm_read_bytes_per_cycle", "sm_write_bytes_per_cycle", "write_bytes_per_cycle", "gpc_read_bytes_per_cycle",
            "gpc_write_bytes_per_cycle",
        ),
    },
    "tma": {"tma": ("bytes_per_cycle",)},
    "latency": {"hbm": ("channel_gb_per_s",)},
}
"""For each counterfactual and part what never limits."""

COSTS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "hbm": {"hbm": ("queue_ns", "write_turn_ns")},
    "l2": {"l2": ("queue_cycles",)},
    "tma": {"tma": ("box_cycles", "row_cycles", "store_box_cycles", "store_header_bytes")},
    "latency": {
        "hbm": ("latency_ns", "refresh_ns", "queue_ns", "write_turn_ns"),
        "dispatcher": ("store_end_cycles", "store_exit_cycles"),
        "l2": ("near_latency_cycles", "far_latency_cycles", "slice_spread_cycles", "queue_cycles"),
        "xbar": ("sm_distance_cycles",),
        "l1": ("hit_latency_cycles", "cp_async_latency_cycles"),
        "instruction_cache": ("l1_latency_cycles",),
        "smem": ("load_latency_cycles", "vector_word_cycles", "atomic_latency_cycles"),
        "tensor_core": (
            "wgmma_latency_cycles", "wgmma_smem_a_cycles", "wgmma_register_a_cycles", "mma_sync_latency_cycles",
            "mma_sync_step_latency_cycles",
        ),
        "warp_scheduler": (
            "barrier_base_cycles", "barrier_warp_cycles", "bar_arrive_cycles", "gpu_fence_cycles", "gpu_fence_warp_cycles",
        ),
        "tma": (
            "latency_cycles", "issue_cycles", "store_latency_cycles", "group_wait_cycles", "map_miss_cycles",
            "map_prefetch_cycles",
        ),
        "mbarrier": (
            "arrive_cycles", "arrive_interval_cycles", "try_wait_cycles", "wake_cycles", "lone_try_wait_cycles",
            "lone_retry_cycles",
        ),
        "dsmem": (
            "latency_cycles", "one_way_cycles", "pair_saving_cycles", "cluster_barrier_cycles", "cluster_barrier_cta_cycles",
        ),
    },
    "launch": {
        "dispatcher": (
            "launch_cycles", "dispatch_cycles_per_cta", "round_cycles", "cta_start_cycles", "cold_start_cycles",
            "cta_exit_cycles", "retire_cycles_per_cta", "cluster_retire_cycles_per_cta", "cluster_start_cycles",
            "drain_cycles", "store_end_cycles", "store_exit_cycles",
        ),
    },
}
"""For each counterfactual and part what takes nothing."""


def idealize(gpu: GpuSpec, ideals: frozenset[str]) -> GpuSpec:
    """``gpu`` with the parts named in ``ideals`` free.

    ``bank_conflicts``, ``epilogue``, ``own_code`` and ``mad_wide`` are the engine's business.
    """
    for table, number in ((RATES, INFINITE), (COSTS, 0.0)):
        for ideal in ideals & table.keys():
            for part, names in table[ideal].items():
                spec = gpu.component(part)
                if spec is not None:
                    gpu = replace(gpu, **{part: replace(spec, **dict.fromkeys(names, number))})
    if "l2" in ideals:
        dirty = gpu.l2.dirty_fraction * gpu.l2.capacity_bytes / INFINITE  # what is stored leaves as before
        gpu = replace(gpu, l2=replace(gpu.l2, capacity_bytes=int(INFINITE), dirty_fraction=dirty))
    return gpu
