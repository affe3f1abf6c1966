"""What the first use of a tensor map costs on a toy GPU that lacks it, worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpusim import GpuSpec
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext

from .kernels import TOY, changed, cycles, ends_of, expect, hit_cycles, load, run, wait

Ops = Iterator[Any]
MISS, PREFETCHED = 300.0, 100.0
GPU = changed(tma={"tensormap_miss_cycles": MISS, "tensormap_prefetch_cycles": PREFETCHED})
BYTES = 4096
MEMORY = TOY.hbm.latency_ns - TOY.l2.far_latency_cycles
"""At 1 GHz: what memory takes beyond L2."""
SHARED = 2 * 128 / min(TOY.hbm.sustained_read_gb_per_s, TOY.hbm.sm_gb_per_s)
"""What two copies of a line take of the wire that come to it at once, as those do that have waited for one map."""


def one_copy(cta: RoleContext) -> Ops:
    yield expect(0)
    yield load(0)
    yield wait(0)


def least(gpu: GpuSpec = GPU) -> float:
    """One copy through a map that is known."""
    return cycles(one_copy, gpu=gpu)


def test_a_launch_that_names_no_maps_has_them() -> None:
    assert least() == least(TOY) >= hit_cycles(BYTES)


def test_the_first_copy_waits_for_its_map_and_the_second_does_not() -> None:
    def two(cta: RoleContext) -> Ops:
        for parity in (0, 1):
            yield expect(0)
            yield load(0, step=parity)
            yield wait(0, parity)

    assert cycles(one_copy, gpu=GPU, tensor_maps=("A",)) == least() + MISS
    assert cycles(two, gpu=GPU, tensor_maps=("A",)) == cycles(two, gpu=GPU) + MISS


@pytest.mark.parametrize("late", [0, 40, 99, 100, 500])
def test_a_prefetch_hides_what_passes_between_it_and_the_copy(late: int) -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.PrefetchTensormap(("A",))  # an issue slot; the fetch begins behind it
        yield ops.Fma(late)
        yield from one_copy(cta)

    def without(cta: RoleContext) -> Ops:
        yield ops.PrefetchTensormap(())
        yield ops.Fma(late + 1)
        yield from one_copy(cta)

    waits = cycles(program, gpu=GPU, tensor_maps=("A",)) - cycles(without, gpu=GPU)
    assert waits == max(0.0, PREFETCHED - late)


def test_out_of_memory_the_first_asker_waits_for_memory_and_others_for_what_is_left() -> None:
    def at(delay: int) -> float:
        def program(cta: RoleContext) -> Ops:
            if cta.cta_idx:
                yield ops.Fma(delay)
            yield expect(0, 128)
            yield load(0, 128, step=cta.cta_idx)  # a tile of its own, too small to be in the other's way
            yield wait(0)

        known, fetched = (
            ends_of(run(program, gpu=GPU, l2="cold", num_ctas=2, tensor_maps=names)) for names in ((), ("A",))
        )
        assert fetched[0] - known[0] == pytest.approx(MISS + MEMORY, abs=SHARED)
        return fetched[1] - known[1]

    assert at(50) == pytest.approx(MISS + MEMORY - 50, abs=SHARED)
    assert at(5000) == pytest.approx(MISS)


def test_copies_behind_one_that_waits_for_its_map_keep_their_order() -> None:
    """Both stages come as if the first had been asked for when its map was there."""

    def program(cta: RoleContext) -> Ops:
        for stage in (0, 1):
            yield expect(stage)
            yield load(stage)
        for stage in (0, 1):
            yield wait(stage)

    assert cycles(program, gpu=GPU, tensor_maps=("A",)) <= cycles(program, gpu=GPU) + MISS


def test_a_store_waits_for_its_map_too() -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.TmaStore("D", (0, 0), BYTES, 1, "", 0)
        yield ops.BulkCommitGroup()
        yield ops.BulkWaitGroup(0)

    assert cycles(program, gpu=GPU, tensor_maps=("D",)) == cycles(program, gpu=GPU) + MISS


def test_a_map_that_a_cta_has_made_is_near_or_far_in_l2() -> None:
    """CTA 0 has its map on its SM's partition, CTA 1 on the other one: its release and its first use are so much later."""
    release, apart = 1000.0, 100.0
    near = TOY.l2.near_latency_cycles

    def make(cta: RoleContext) -> Ops:
        yield ops.FenceProxyTensormap(("A",))

    def make_and_use(cta: RoleContext) -> Ops:
        yield from make(cta)
        yield expect(0, 128)
        yield load(0, 128, step=cta.cta_idx)
        yield wait(0)

    def gap(program: Any, far: float) -> float:
        maps = {"tensormap_release_cycles": release, "tensormap_miss_cycles": MISS}
        gpu = changed(tma=maps, l2={"far_latency_cycles": far, "near_latency_cycles": near})
        first, second = ends_of(run(program, gpu=gpu, l2="warm", num_ctas=2, tensor_maps=("A",)))
        return second - first

    assert gap(make, near) == gap(make_and_use, near) == 0
    assert gap(make, near + apart) == apart
    assert gap(make_and_use, near + apart) == 2 * apart
