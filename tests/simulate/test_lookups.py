"""What L2 looks up besides what a launch asks for, and what is missed but in no hit rate."""

from __future__ import annotations

from dataclasses import replace
from math import exp
from typing import Any

import pytest

from gpusim.kernel_models.elementwise import ElementwiseParams
from gpusim.kernel_models.strided_copy import StridedCopyParams
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.simulate.run import simulate

TOY = load_gpu("toy")
HIT_RATE = "lts__t_sector_hit_rate.pct"
READ, WRITTEN = "lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_write.sum"
MISSED, CROSSED = "lts__t_sectors_srcunit_tex_lookup_miss.sum", "lts__t_sectors_srcunit_ltcfabric.sum"


def toy(**of_l2: Any) -> GpuSpec:
    return replace(TOY, l2=replace(TOY.l2, **of_l2))


def copied(gpu: GpuSpec, elements: int = 1 << 14, l2: Any = "cold") -> dict[str, float]:
    """Counters of a copy of fp32."""
    return dict(simulate(ElementwiseParams(op="copy", elements=elements).launch(gpu), gpu, clock="max", l2=l2).counters)


def test_a_launch_has_look_ups_and_hits_of_its_own() -> None:
    """A copy reads as many sectors as it stores, and misses what it reads: half are found, and 60 of 40 others."""
    counters = copied(toy(launch_lookup_sectors=40.0, launch_hit_sectors=60.0))
    sectors = 2.0 * counters[READ]
    assert counters[READ] == counters[WRITTEN] == counters[MISSED]
    assert counters[HIT_RATE] == pytest.approx(100.0 * (counters[READ] + 60.0) / (sectors + 40.0))


def test_each_slice_is_told_by_each_sm_once() -> None:
    """By few requests as many slices as are drawn, by many all of them."""
    num_slices = 64
    gpu = toy(slice_lookup_sectors=1.0, num_slices=num_slices)
    of_all = []
    for elements in (1 << 10, 1 << 14, 1 << 20):
        counters = copied(gpu, elements)
        asked = counters[READ] + counters[WRITTEN]
        num_sms = min(TOY.num_sms, counters["launch__grid_size"])
        told = num_sms * num_slices * (1.0 - exp(-asked / 16.0 / num_sms / num_slices))
        assert counters[HIT_RATE] == pytest.approx(100.0 * (asked / 2.0 + told) / (asked + told))
        of_all.append(told / (TOY.num_sms * num_slices))
    assert of_all[0] < 0.25 < of_all[1] < 0.75 and of_all[2] == pytest.approx(1.0)


def test_what_is_left_dirty_crosses_once_more_in_an_l2_that_was_flushed() -> None:
    gpu = toy(dirty_fabric_fraction=0.25)
    cold, plain = copied(gpu), copied(TOY)
    left = cold[WRITTEN] - cold["dram__bytes_write.sum"] / 32.0
    assert left > 0.0
    assert cold[CROSSED] - plain[CROSSED] == pytest.approx(0.25 * left)
    assert copied(gpu, l2="warm") == copied(TOY, l2="warm")


def test_a_gpu_may_count_each_sector_that_crosses_twice_and_the_second_hits() -> None:
    """Half of what a copy reads and stores crosses. All reads miss, and those that cross miss there again."""
    once, twice = (copied(toy(num_partitions=2, fabric_lookup_sectors=count)) for count in (1.0, 2.0))
    assert twice[CROSSED] == 2.0 * once[CROSSED] == 2.0 * once[READ]
    assert once[HIT_RATE] == pytest.approx(50.0)
    assert twice[HIT_RATE] == pytest.approx(100.0 * 2.5 / 4.0)


def test_a_rate_is_never_above_100_pct() -> None:
    gpu = toy(launch_lookup_sectors=0.0, launch_hit_sectors=1e9)
    assert copied(gpu)[HIT_RATE] == 100.0


def test_sectors_that_come_beside_lone_ones_are_missed_and_in_no_rate() -> None:
    """A word of each line: memory gives two sectors for each that is asked for, of which that alone counts."""
    gpu = toy(fetch_bytes=64)
    counters = simulate(StridedCopyParams(elements=2048, stride=32).launch(gpu), gpu, clock="max").counters
    assert counters[READ] == 2048 and counters[MISSED] == 2 * 2048
    assert counters[HIT_RATE] == pytest.approx(100.0 * counters[WRITTEN] / (counters[READ] + counters[WRITTEN]))
