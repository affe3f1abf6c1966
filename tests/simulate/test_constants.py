"""Constants and tables of the machine: all are there, rates keep their own clocks, SMs and links add up to the GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from math import isnan

import numpy as np
import pytest

from gpusim import Launch, WarpRole, load_gpu
from gpusim.errors import ConfigError
from gpusim.machine.config import GpuSpec, gpu_names
from gpusim.machine.sm.occupancy import Occupancy
from gpusim.program.records import CONSTANTS, TABLES
from gpusim.simulate.constants import in_order, machine_numbers, machine_tables
from gpusim.simulate.idealize import IDEALS, idealize
from gpusim.simulate.plan import LaunchPlan
from gpusim.traffic.footprints import FootprintTable
from gpusim.units import Clock

FAST, SLOW = Clock(sm_mhz=1600.0), Clock(sm_mhz=800.0)
GPUS = {name: load_gpu(name) for name in gpu_names()}


def plan_on(
    gpu: GpuSpec, *, num_ctas: int = 100_000, cluster: int = 1, ctas_per_sm: int = 2, smem_bytes: int = 70_000,
    is_warm: bool = False,
) -> LaunchPlan:
    """As of CTAs that may be more, or larger, than the GPU holds."""
    launch = Launch(
        kernel="test", roles=(WarpRole(name="worker", num_warps=12, program=lambda cta: iter(())),), num_tiles=num_ctas,
        num_ctas=num_ctas, cluster_size=cluster, extra_smem_bytes=smem_bytes,
    )  # fmt: skip
    held = Occupancy(
        ctas_per_sm=ctas_per_sm, warps_per_sm=12 * ctas_per_sm, max_warps_per_sm=64, limited_by="smem", limits={}
    )
    return LaunchPlan(
        launch=launch, gpu=gpu, is_warm=is_warm, occupancy=held, num_slots=gpu.num_sms * ctas_per_sm, num_ctas=num_ctas,
        footprints=FootprintTable(tiles=np.arange(num_ctas), of_tensors=()), traffic={},
    )


def plans_on(gpu: GpuSpec) -> Iterator[LaunchPlan]:
    yield plan_on(gpu)
    if gpu.device.max_cluster_size >= 4:
        yield plan_on(gpu, num_ctas=1024, cluster=4)


@pytest.mark.parametrize("name", GPUS)
def test_every_constant_has_a_number_whatever_is_ideal(name: str) -> None:
    for gpu in (GPUS[name], *(idealize(GPUS[name], frozenset({ideal})) for ideal in IDEALS)):
        numbers = machine_numbers(plan_on(gpu), FAST)
        assert set(numbers) == set(CONSTANTS) - {"launch", "ideals"}
        for part, found in numbers.items():
            assert set(found) == set(CONSTANTS[part])
            assert in_order(part, found).tolist() == [found[each] for each in CONSTANTS[part]]
            assert not any(isnan(value) for value in found.values())


@pytest.mark.parametrize("name", GPUS)
def test_memory_keeps_its_own_clock(name: str) -> None:
    """Twice the SM clock: half of the bytes a cycle, twice the cycles of a wait; shares stay."""
    fast, slow = (machine_numbers(plan_on(GPUS[name]), clock)["hbm"] for clock in (FAST, SLOW))
    assert fast["peak_bytes_per_cycle"] == pytest.approx(GPUS[name].hbm.peak_gb_per_s / 1.6)
    for what in CONSTANTS["hbm"]:
        is_rate = what.endswith("_per_cycle")
        is_wait = what.endswith("_cycles")
        assert fast[what] == pytest.approx(slow[what] * (0.5 if is_rate else 2.0 if is_wait else 1.0)), what


def test_a_warm_launch_starts_at_once_and_finds_its_tensor_maps() -> None:
    gpu = GPUS["h200_sxm"]
    cold, warm = (machine_numbers(plan_on(gpu, is_warm=is_warm), FAST) for is_warm in (False, True))
    assert cold["dispatcher"]["cold_start_cycles"] == gpu.dispatcher.cold_start_cycles > 0.0
    assert warm["dispatcher"]["cold_start_cycles"] == warm["tma"]["map_memory_cycles"] == 0.0
    assert cold["tma"]["map_memory_cycles"] == cold["hbm"]["latency_cycles"]


def test_l1_has_what_shared_memory_leaves_and_no_less_than_nothing() -> None:
    gpu, toy = GPUS["h200_sxm"], GPUS["toy"]  # the toy's shared memory can have any size
    for of, smem_bytes, ctas, left in (
        (gpu, 0, 4, 248), (gpu, 0, 8, 248), (gpu, 0, 9, 240), (gpu, 70 * 1024, 2, 92), (gpu, 10**6, 1, 0),
        (toy, 70 * 1024, 2, 116),
    ):
        plan = plan_on(of, smem_bytes=smem_bytes, ctas_per_sm=ctas)
        assert machine_numbers(plan, FAST)["l1"]["capacity_bytes"] == left * 1024


@pytest.mark.parametrize("name", GPUS)
def test_slots_fill_every_sm_alike_and_clusters_lie_in_one_gpc(name: str) -> None:
    gpu = GPUS[name]
    for plan in plans_on(gpu):
        cluster_size, ctas_per_sm = plan.launch.cluster_size, plan.occupancy.ctas_per_sm
        tables = machine_tables(plan, FAST, ())
        slots, sms = tables["slots"].tolist(), tables["sms"]
        assert sms.dtype == TABLES["sms"] and len(sms) == gpu.num_sms
        num = Counter(slots)
        assert set(num.values()) == {ctas_per_sm}
        if cluster_size == 1:
            assert set(num) == set(range(gpu.num_sms))
        for begin in range(0, len(slots), cluster_size):
            assert len(set(sms["gpc"][slots[begin : begin + cluster_size]].tolist())) == 1
        free = [ctas_per_sm * (cluster_size > 1 and sm_idx not in num) for sm_idx in range(gpu.num_sms)]
        assert sms["num_free_ctas"].tolist() == free


@pytest.mark.parametrize("name", GPUS)
def test_rates_of_partitions_and_gpcs_add_up_to_the_slices(name: str) -> None:
    gpu = GPUS[name]
    tables, num = machine_tables(plan_on(gpu), FAST, ()), machine_numbers(plan_on(gpu), FAST)
    slices = tables["partitions"]["slices_bytes_per_cycle"].sum()
    assert tables["gpc_links"]["whole_share_bytes_per_cycle"].sum() == pytest.approx(slices)
    assert num["xbar"]["alone_bytes_per_cycle"] == pytest.approx(min(gpu.xbar.sm_read_bytes_per_cycle, slices))
    assert set(tables["sms"]["gpc"].tolist()) == set(range(len(tables["gpc_links"])))
    assert set(tables["sms"]["write_link"].tolist()) == set(range(len(tables["write_links"])))
    assert set(tables["sms"]["partition"].tolist()) <= set(range(gpu.l2.num_partitions))


@pytest.mark.parametrize("side", [0, 1])
def test_a_partition_without_sms_has_no_link(side: int) -> None:
    gpu = GPUS["toy"]
    gpu = replace(gpu, device=replace(gpu.device, gpc_l2_partition=(side,)), l2=replace(gpu.l2, num_partitions=2))
    assert machine_numbers(plan_on(gpu), SLOW)["l2"]["num_links"] == 1.0
    assert machine_tables(plan_on(gpu), SLOW, ())["partitions"]["slices_bytes_per_cycle"][1 - side] == 0.0


def test_recorded_sms_are_marked() -> None:
    for recorded, expected in ((frozenset({3, 131}), {3, 131}), (frozenset[int](), set()), ("first", {124})):
        sms = machine_tables(plan_on(GPUS["h200_sxm"]), FAST, recorded)["sms"]  # type: ignore[arg-type]  # SMs, or a word
        assert set(sms["is_recorded"].nonzero()[0].tolist()) == expected


def test_more_than_two_partitions_are_refused() -> None:
    gpu = replace(GPUS["toy"], l2=replace(GPUS["toy"].l2, num_partitions=3))
    with pytest.raises(ConfigError, match=r"l2.num_partitions is 3, the engine takes 1 or 2"):
        machine_numbers(plan_on(gpu), FAST)
