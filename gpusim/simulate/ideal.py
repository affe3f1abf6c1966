"""Counterfactuals: a GPU with one part idealized."""

from __future__ import annotations

from collections.abc import Mapping
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


def idealize(gpu: GpuSpec, ideals: frozenset[str]) -> GpuSpec:
    """``gpu`` with the parts named in ``ideals`` free.

    ``bank_conflicts``, ``epilogue``, ``own_code`` and ``mad_wide`` are the engine's business.
    """
    if "hbm" in ideals:
        gpu = replace(
            gpu,
            hbm=replace(
                gpu.hbm, sustained_read_gb_per_s=INFINITE, sustained_write_gb_per_s=INFINITE, sm_gb_per_s=INFINITE,
                queue_ns=0.0, write_turn_ns=0.0, channel_gb_per_s=INFINITE,
            ),
        )
    if "l2" in ideals:
        gpu = replace(
            gpu,
            l2=replace(
                gpu.l2, slice_bytes_per_cycle=INFINITE, link_bytes_per_cycle=INFINITE, capacity_bytes=int(INFINITE),
                queue_cycles=0.0,
                dirty_fraction=gpu.l2.dirty_fraction * gpu.l2.capacity_bytes / INFINITE,  # what is stored leaves as before
            ),
            l1=replace(gpu.l1, outstanding_bytes=INFINITE),
            xbar=replace(
                gpu.xbar, sm_read_bytes_per_cycle=INFINITE, sm_write_bytes_per_cycle=INFINITE,
                write_bytes_per_cycle=INFINITE, gpc_read_bytes_per_cycle=INFINITE, gpc_write_bytes_per_cycle=INFINITE,
            ),
        )
    if "tma" in ideals and gpu.tma is not None:
        gpu = replace(gpu, tma=replace(
                gpu.tma, box_cycles=0.0, row_cycles=0.0, bytes_per_cycle=INFINITE, store_box_cycles=0.0,
                store_header_bytes=0.0,
            ))
    if "latency" in ideals:
        gpu = replace(
            gpu,
            hbm=replace(gpu.hbm, latency_ns=0.0, refresh_ns=0.0, queue_ns=0.0, write_turn_ns=0.0, channel_gb_per_s=INFINITE),
            dispatcher=replace(gpu.dispatcher, store_end_cycles=0.0, store_exit_cycles=0.0),
            l2=replace(
                gpu.l2, near_latency_cycles=0.0, far_latency_cycles=0.0, slice_spread_cycles=0.0, queue_cycles=0.0
            ),
            xbar=replace(gpu.xbar, sm_distance_cycles=0.0),
            l1=replace(gpu.l1, hit_latency_cycles=0.0, cp_async_latency_cycles=0.0),
            instruction_cache=replace(gpu.instruction_cache, l1_latency_cycles=0.0),
            smem=replace(gpu.smem, load_latency_cycles=0.0, vector_word_cycles=0.0, atomic_latency_cycles=0.0),
            tensor_core=replace(
                gpu.tensor_core, wgmma_latency_cycles=0.0, wgmma_smem_a_cycles=0.0, wgmma_register_a_cycles=0.0,
                mma_sync_latency_cycles=0.0, mma_sync_step_latency_cycles=0.0,
            ),
            warp_scheduler=replace(
                gpu.warp_scheduler, barrier_base_cycles=0.0, barrier_warp_cycles=0.0, bar_arrive_cycles=0.0,
                gpu_fence_cycles=0.0, gpu_fence_warp_cycles=0.0,
            ),
        )
        if gpu.tma is not None:
            gpu = replace(gpu, tma=replace(
                gpu.tma, latency_cycles=0.0, issue_cycles=0.0, store_latency_cycles=0.0, group_wait_cycles=0.0,
                map_miss_cycles=0.0, map_prefetch_cycles=0.0,
            ))
        if gpu.mbarrier is not None:
            free = replace(gpu.mbarrier, arrive_cycles=0.0, arrive_interval_cycles=0.0, try_wait_cycles=0.0, wake_cycles=0.0)
            gpu = replace(gpu, mbarrier=replace(free, lone_try_wait_cycles=0.0, lone_retry_cycles=0.0))
        if gpu.dsmem is not None:
            gpu = replace(gpu, dsmem=replace(
                gpu.dsmem, latency_cycles=0.0, one_way_cycles=0.0, pair_saving_cycles=0.0, cluster_barrier_cycles=0.0,
                cluster_barrier_cta_cycles=0.0,
            ))
    if "launch" in ideals:
        gpu = replace(
            gpu,
            dispatcher=replace(
                gpu.dispatcher, launch_cycles=0.0, dispatch_cycles_per_cta=0.0, round_cycles=0.0,
                cta_start_cycles=0.0, cold_start_cycles=0.0, cta_exit_cycles=0.0, retire_cycles_per_cta=0.0,
                cluster_retire_cycles_per_cta=0.0, cluster_start_cycles=0.0, drain_cycles=0.0,
                store_end_cycles=0.0, store_exit_cycles=0.0,
            ),
        )
    return gpu
