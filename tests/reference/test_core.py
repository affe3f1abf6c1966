"""What the core is: every parameter of a GPU is of it, switched off, or says nothing then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import pytest

from gpusim import GpuSpec, load_gpu
from gpusim.machine.config import COMPONENT_KINDS
from gpusim.machine.floorplan import DeviceSpec
from gpusim.reference import beyond_core, core_only
from gpusim.reference.core import CORE_OFF

from .plays import by_engine, by_reference, differences
from .programs import BEYOND, case, gpu_with

GPUS = ("a100_sxm_80gb", "h100_sxm", "h200_sxm")

MODELLED = {
    "device": """num_sms compute_capability max_threads_per_sm max_ctas_per_sm smem_per_sm_bytes
        smem_reserved_per_cta_bytes smem_allocation_bytes smem_carveout_bytes
        max_cluster_size features""",
    "hbm": "sustained_read_gb_per_s sustained_write_gb_per_s latency_ns sm_gb_per_s",
    "l2": """capacity_bytes num_slices slice_bytes_per_cycle sustained_fraction partition_capacity_fraction dirty_fraction
        evict_first_fraction evict_last_fraction near_latency_cycles write_back_queue_bytes""",
    "xbar": "sm_read_bytes_per_cycle sm_write_bytes_per_cycle gpc_write_bytes_per_cycle",
    "l1": """unified_bytes hit_latency_cycles tag_lines_per_cycle requests_per_cycle wavefronts_per_cycle outstanding_bytes
        queue_cycles""",
    "smem": "wavefronts_per_cycle load_latency_cycles atomic_latency_cycles",
    "register_file": "num_registers max_registers_per_thread allocation_unit",
    "tma": """latency_cycles row_cycles bytes_per_cycle max_queued_boxes issue_cycles store_box_cycles
        store_latency_cycles group_wait_cycles""",
    "dsmem": """latency_cycles bytes_per_cycle one_way_cycles serve_fraction cluster_barrier_cycles
        cluster_barrier_cta_cycles""",
    "warp_scheduler": """num_schedulers fp32_lanes int32_lanes mufu_lanes shuffle_lanes shuffle_cycles dependent_cycles
        bank_reads_per_cycle barrier_base_cycles fence_cycles bar_arrive_cycles gpu_fence_cycles""",
    "tensor_core": """mma_sync_flops_per_cycle mma_sync_latency_cycles mma_sync_min_interval_cycles wgmma_flops_per_cycle
        wgmma_smem_wavefronts_per_cycle wgmma_overhead_cycles wgmma_latency_cycles wgmma_max_groups""",
    "mbarrier": "arrive_cycles try_wait_cycles wake_cycles one_lane_try_wait_cycles",
    "dispatcher": """launch_cycles dispatch_cycles_per_cta cta_start_cycles cta_exit_cycles retire_cycles_per_cta
        cluster_retire_cycles_per_cta cluster_start_cycles drain_cycles store_end_cycles""",
    "clock": "max_mhz",
}
"""What the reference has, by part."""

WITHOUT_EFFECT = {
    "device": "peak_tflops",
    "hbm": "peak_gb_per_s refresh_granularity_bytes channel_gb_per_s interleaved_variance_fraction",
    "l2": """fabric_bytes_per_cycle fabric_turnaround_fraction fetch_bytes promoted_read_fraction launch_lookup_sectors
        launch_hit_sectors slice_lookup_sectors dirty_fabric_fraction fabric_lookup_sectors""",
    "xbar": """line_request_bytes request_wait_per_efold_fraction store_packet_bytes coalesce_max_requests
        misaligned_coalesce_fraction coalesce_window_cycles coalesce_wait_fraction""",
    "l1": "max_queued_rows store_queue_bytes store_release_cycles",
    "tma": "oob_row_bytes oob_box_row_bytes tensormap_prefetch_cycles",
    "warp_scheduler": """imad_wide_lanes imad_wide_cycles imad_wide_during_wgmma_cycles imad_wide_interleaved_cycles
        imad_wide_sm_cv""",
    "mbarrier": "max_queued_arrivals",
    "instruction_cache": "l1_latency_cycles loop_bytes_per_cycle loop_fetch_rate_by_tpc",
    "clock": """min_mhz power_limit_w single_power_w single_power_delay_us idle_power_w voltage_slope tensor_pj_per_flop
        tensor_zeros_fraction mma_sync_extra_fraction tensor_mhz tensor_burst_mhz_us tensor_rest_us tensor_min_mhz
        load_line_mhz_per_w fp32_pj_per_flop smem_pj_per_byte l2_pj_per_byte l2_zeros_fraction bulk_pj_per_byte
        fill_pj_per_byte hbm_pj_per_byte hbm_zeros_fraction sm_busy_w""",
}
"""What says nothing where all of ``CORE_OFF`` is off, and the clock is given."""


def names_of(table: Mapping[str, str]) -> list[str]:
    return [f"{part}.{name}" for part, names in table.items() for name in names.split()]


def changed(gpu: GpuSpec, name: str) -> GpuSpec:
    """``gpu`` with a parameter of half as much again; numbers of things, and what is a part of all, of half as much."""
    part, _, parameter = name.partition(".")
    spec = gpu.component(part)
    before = getattr(spec, parameter)
    value: Any = other(before, parameter)
    return replace(gpu, **{part: replace(spec, **{parameter: value})})


def other(value: Any, parameter: str) -> Any:
    if isinstance(value, Mapping):
        return {name: other(number, parameter) for name, number in value.items()}
    if isinstance(value, int):
        return max(1, value // 2)
    if isinstance(value, tuple):
        return (16_384, 131_072, 233_472)
    return value / 2 if parameter.endswith("_fraction") and value else 1.5 * value + (13.0 if not value else 0.0)


def test_every_parameter_is_of_the_core_or_switched_off_or_without_effect() -> None:
    every = [
        f"{part}.{item.name}" for part, spec in {"device": DeviceSpec, **COMPONENT_KINDS}.items() for item in fields(spec)
    ]
    assert sorted(every) == sorted([*CORE_OFF, *names_of(MODELLED), *names_of(WITHOUT_EFFECT)])


@pytest.mark.parametrize("name", GPUS)
def test_nothing_beyond_the_core_is_left_on(name: str) -> None:
    gpu = load_gpu(name)
    core = core_only(gpu)
    assert beyond_core(gpu)
    assert beyond_core(core) == []
    assert core_only(core) is core
    assert core.name != gpu.name


def test_the_toy_gpu_has_nothing_beyond_the_core() -> None:
    """Both engines run it. A new parameter needs a value in configs/toy.toml that switches its mechanism off."""
    toy = load_gpu("toy")
    assert beyond_core(toy) == []
    assert core_only(toy) is toy


def test_numbers_that_switch_mechanisms_on_are_all_beyond_the_core() -> None:
    listed = {f"{part}.{name}" for part, numbers in BEYOND.items() for name in numbers}
    assert set(beyond_core(gpu_with(frozenset(), is_core=False))) == listed


def test_only_what_is_beyond_the_core_is_changed() -> None:
    gpu = load_gpu("h200_sxm")
    core, listed = core_only(gpu), set(beyond_core(gpu))
    for part in ("device", *COMPONENT_KINDS):
        mine, its = core.component(part), gpu.component(part)
        moved = {f"{part}.{item.name}" for item in fields(its) if getattr(mine, item.name) != getattr(its, item.name)}
        assert moved <= listed


PLAIN = gpu_with(frozenset())
SEEDS = (1, 3, 4)
"""Of programs that run to their end, in which most parts have something to do."""

SIZES = {"device.num_sms", "device.compute_capability", "device.features", "device.max_cluster_size", "clock.max_mhz"}
"""Of which a GPU cannot have half without more changes."""


@pytest.mark.parametrize("name", names_of(WITHOUT_EFFECT))
def test_a_parameter_without_effect_has_none(name: str) -> None:
    found = case(SEEDS[0])
    before = by_engine(found.launch, PLAIN)
    assert before.end == ("", "")
    assert differences(by_engine(found.launch, changed(PLAIN, name)), before) == []


@pytest.mark.parametrize("name", [name for name in names_of(MODELLED) if name not in SIZES])
def test_a_parameter_of_the_core_is_heard_by_both_alike(name: str) -> None:
    gpu = core_only(changed(PLAIN, name))  # L2's far side is as far as the near one
    for seed in SEEDS:
        launch = case(seed).launch
        assert differences(by_reference(launch, gpu), by_engine(launch, gpu)) == []
