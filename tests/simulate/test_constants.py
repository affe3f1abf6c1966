"""Constants and tables of the machine: all are there, rates keep their own clocks, SMs and links add up to the GPU."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import isnan

import pytest

from gpusim import load_gpu
from gpusim.errors import ConfigError
from gpusim.machine.config import GpuSpec, gpu_names
from gpusim.program.records import CONSTANTS, TABLES
from gpusim.simulate.constants import Placement, in_order, machine_numbers, machine_tables
from gpusim.simulate.ideal import IDEALS, idealize
from gpusim.units import Clock

FAST, SLOW = Clock(sm_mhz=1600.0), Clock(sm_mhz=800.0)
SINGLE = Placement(num_ctas=100_000, cluster_size=1, ctas_per_sm=2, smem_bytes=70_000, num_warps=12, is_warm=False)
CLUSTERS = replace(SINGLE, cluster_size=4, num_ctas=1024)
GPUS = {name: load_gpu(name) for name in gpu_names()}


def places_of(gpu: GpuSpec) -> tuple[Placement, ...]:
    return (SINGLE, CLUSTERS) if gpu.device.max_cluster_size >= 4 else (SINGLE,)


@pytest.mark.parametrize("name", GPUS)
def test_every_constant_has_a_number_whatever_is_ideal(name: str) -> None:
    for gpu in (GPUS[name], *(idealize(GPUS[name], frozenset({ideal})) for ideal in IDEALS)):
        numbers = machine_numbers(gpu, FAST, SINGLE)
        assert set(numbers) == set(CONSTANTS) - {"launch", "ideals"}
        for part, found in numbers.items():
            assert set(found) == set(CONSTANTS[part])
            assert in_order(part, found).tolist() == [found[each] for each in CONSTANTS[part]]
            assert not any(isnan(value) for value in found.values())


@pytest.mark.parametrize("name", GPUS)
def test_memory_keeps_its_own_clock(name: str) -> None:
    """Twice the SM clock: half of the bytes a cycle, twice the cycles of a wait; shares stay."""
    fast, slow = (machine_numbers(GPUS[name], clock, SINGLE)["hbm"] for clock in (FAST, SLOW))
    assert fast["peak_bytes_per_cycle"] == pytest.approx(GPUS[name].hbm.peak_gb_per_s / 1.6)
    for what in CONSTANTS["hbm"]:
        is_rate = what.endswith("_per_cycle")
        is_wait = what.endswith("_cycles")
        assert fast[what] == pytest.approx(slow[what] * (0.5 if is_rate else 2.0 if is_wait else 1.0)), what


def test_a_warm_launch_starts_at_once_and_finds_its_tensor_maps() -> None:
    gpu = GPUS["h200_sxm"]
    cold, warm = (machine_numbers(gpu, FAST, replace(SINGLE, is_warm=is_warm)) for is_warm in (False, True))
    assert cold["dispatcher"]["cold_start_cycles"] == gpu.dispatcher.cold_start_cycles > 0.0
    assert warm["dispatcher"]["cold_start_cycles"] == warm["tma"]["map_memory_cycles"] == 0.0
    assert cold["tma"]["map_memory_cycles"] == cold["hbm"]["latency_cycles"]


def test_l1_has_what_shared_memory_leaves_and_no_less_than_nothing() -> None:
    gpu = GPUS["h200_sxm"]
    for smem_bytes, ctas, left in ((0, 4, gpu.l1.unified_bytes), (70_000, 2, gpu.l1.unified_bytes - 140_000), (10**6, 1, 0)):
        at = replace(SINGLE, smem_bytes=smem_bytes, ctas_per_sm=ctas)
        assert machine_numbers(gpu, FAST, at)["l1"]["capacity_bytes"] == left


@pytest.mark.parametrize("name", GPUS)
def test_slots_fill_every_sm_alike_and_clusters_lie_in_one_gpc(name: str) -> None:
    gpu = GPUS[name]
    for at in places_of(gpu):
        tables = machine_tables(gpu, FAST, at)
        slots, sms = tables["slots"].tolist(), tables["sms"]
        assert sms.dtype == TABLES["sms"] and len(sms) == gpu.num_sms
        num = Counter(slots)
        assert set(num.values()) == {at.ctas_per_sm}
        if at.cluster_size == 1:
            assert set(num) == set(range(gpu.num_sms))
        for begin in range(0, len(slots), at.cluster_size):
            assert len(set(sms["gpc"][slots[begin : begin + at.cluster_size]].tolist())) == 1
        free = [at.ctas_per_sm * (at.cluster_size > 1 and sm_idx not in num) for sm_idx in range(gpu.num_sms)]
        assert sms["num_free_ctas"].tolist() == free


@pytest.mark.parametrize("name", GPUS)
def test_rates_of_partitions_and_gpcs_add_up_to_the_slices(name: str) -> None:
    gpu = GPUS[name]
    tables, num = machine_tables(gpu, FAST, SINGLE), machine_numbers(gpu, FAST, SINGLE)
    slices = tables["partitions"]["slices_bytes_per_cycle"].sum()
    assert tables["gpc_links"]["whole_share_bytes_per_cycle"].sum() == pytest.approx(slices)
    assert num["xbar"]["alone_bytes_per_cycle"] == pytest.approx(min(gpu.xbar.sm_read_bytes_per_cycle, slices))
    assert set(tables["sms"]["gpc"].tolist()) == set(range(len(tables["gpc_links"])))
    assert set(tables["sms"]["write_link"].tolist()) == set(range(len(tables["write_links"])))
    assert set(tables["sms"]["partition"].tolist()) <= set(range(gpu.l2.num_partitions))


@pytest.mark.parametrize("side", [0, 1])
def test_a_partition_without_sms_has_no_link(side: int) -> None:
    gpu = GPUS["toy"]
    gpu = replace(gpu, device=replace(gpu.device, gpc_sides=(side,)), l2=replace(gpu.l2, num_partitions=2))
    assert machine_numbers(gpu, SLOW, SINGLE)["l2"]["num_links"] == 1.0
    assert machine_tables(gpu, SLOW, SINGLE)["partitions"]["slices_bytes_per_cycle"][1 - side] == 0.0


def test_recorded_sms_are_marked() -> None:
    for recorded, expected in ((frozenset({3, 131}), {3, 131}), (frozenset[int](), set()), ("first", {124})):
        at = replace(SINGLE, recorded_sms=recorded)  # type: ignore[arg-type]  # a set of SMs, or a word
        sms = machine_tables(GPUS["h200_sxm"], FAST, at)["sms"]
        assert set(sms["is_recorded"].nonzero()[0].tolist()) == expected


def test_more_than_two_partitions_are_refused() -> None:
    gpu = replace(GPUS["toy"], l2=replace(GPUS["toy"].l2, num_partitions=3))
    with pytest.raises(ConfigError, match=r"l2.num_partitions is 3, the engine takes 1 or 2"):
        machine_numbers(gpu, FAST, SINGLE)


def test_what_a_cache_hands_out_cannot_be_changed() -> None:
    at = replace(SINGLE, ctas_per_sm=1)
    tables = machine_tables(GPUS["h200_sxm"], FAST, at)
    with pytest.raises(ValueError, match="read-only"):
        tables["slots"][0] = 1
    tables["sms"]["pace"] = 2.0  # its own
    assert machine_tables(GPUS["h200_sxm"], FAST, at)["sms"]["pace"].tolist() == [1.0] * 132
