"""CTAs of a wave that come apart: when they begin, and what they fetch again for it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import load_gpu
from gpusim.machine.memory.l2_capacity import L2Partitions
from gpusim.simulate.plan import lifetime_cv, plan_traffic, waves_of_tiles
from gpusim.traffic.cta_drift import MOST_CLUSTERS, CtaLifetimes, add_drift_misses
from gpusim.traffic.footprints import FootprintTable
from gpusim.traffic.l2_plan import panel_traffic
from gpusim.traffic.panels import FootprintRow, PanelTraffic
from gpusim.workload.launch import Launch

GPU = load_gpu("h200_sxm")
MIB = 1 << 20
NUM_SLOTS = 24
NUM_CHUNKS = 64
"""Of a panel, where lines are looked at one by one."""


def lifetimes(deviation: float, *, is_persistent: bool = False, cluster_size: int = 1) -> CtaLifetimes:
    return CtaLifetimes(num_slots=NUM_SLOTS, cluster_size=cluster_size, deviation=deviation, is_persistent=is_persistent)


def product(rows: int, columns: int, *, cache_hint: str = "evict_normal") -> list[FootprintRow]:
    """A and B of a product of so many tiles, a row of tiles after the other: panels of a MiB."""
    tiles = np.arange(rows * columns)
    return [
        FootprintRow(
            tensor=name, is_write=False, panel_of_tile=panels, bytes_of_tile=np.full(len(tiles), MIB), cache_hint=cache_hint
        )
        for name, panels in (("a", tiles // columns), ("b", tiles % columns))
    ]  # fmt: skip


def planned(
    footprints: list[FootprintRow], of: CtaLifetimes, *, side_mib: float, num_slots: int = NUM_SLOTS
) -> tuple[dict[str, PanelTraffic], dict[str, PanelTraffic]]:
    """In step, and apart."""
    waves = waves_of_tiles(len(footprints[0].panel_of_tile), num_slots)
    l2 = L2Partitions(num=1, partition_bytes=side_mib * MIB, spread=0.0)
    in_step = panel_traffic(footprints, waves, l2=l2, is_warm=False)
    return in_step, add_drift_misses(in_step, footprints, waves, l2=l2, lifetimes=of)


def read_mib(traffic: dict[str, PanelTraffic]) -> float:
    return sum(item.read_miss_bytes for item in traffic.values()) / MIB


def lru_mib(footprints: list[FootprintRow], begins: np.ndarray, *, side_mib: float) -> float:
    """MiB from memory where each tile takes a life for its panels, chunk by chunk, and the least recently used leave L2."""
    held: OrderedDict[tuple[str, int, int], None] = OrderedDict()
    room, missed = round(side_mib * NUM_CHUNKS), 0
    at = begins[:, None] + np.arange(NUM_CHUNKS) / NUM_CHUNKS
    for idx in np.argsort(at, axis=None, kind="stable").tolist():
        tile, chunk = divmod(idx, NUM_CHUNKS)
        for row in footprints:
            key = (row.tensor, int(row.panel_of_tile[tile]), chunk)
            if key in held:
                held.move_to_end(key)
                continue
            missed += 1
            held[key] = None
            if len(held) > room:
                held.popitem(last=False)
    return missed / NUM_CHUNKS


def test_alike_ctas_begin_wave_by_wave() -> None:
    found = lifetimes(0.0).begins(3 * NUM_SLOTS)
    assert found.tolist() == [float(wave) for wave in range(3) for _ in range(NUM_SLOTS)]


@given(st.sampled_from([0.01, 0.05, 0.2]), st.booleans(), st.sampled_from([1, 2, 4]))
def test_clusters_begin_together_and_later_ones_further_apart(deviation: float, is_persistent: bool, size: int) -> None:
    found = lifetimes(deviation, is_persistent=is_persistent, cluster_size=size).begins(9 * NUM_SLOTS).reshape(9, -1, size)
    assert (found == found[:, :, :1]).all()
    spread = found[:, :, 0].std(axis=1)
    assert spread[0] == 0.0 < spread[1] < spread[8]
    assert found.mean(axis=(1, 2)) == pytest.approx(np.arange(9), abs=9 * 2.5 * deviation)


def test_a_free_slot_takes_the_next_tile_and_a_persistent_cta_its_own() -> None:
    by_turn, own = (lifetimes(0.1, is_persistent=own).begins(4 * NUM_SLOTS) for own in (False, True))
    assert (np.diff(by_turn) >= 0.0).all()
    assert (np.diff(own[NUM_SLOTS : 2 * NUM_SLOTS]) < 0.0).any()
    assert np.sort(own[NUM_SLOTS : 2 * NUM_SLOTS]) == pytest.approx(by_turn[NUM_SLOTS : 2 * NUM_SLOTS])


def test_a_launch_has_the_same_lives_each_time() -> None:
    assert (lifetimes(0.05).begins(500) == lifetimes(0.05).begins(500)).all()


@settings(max_examples=20, deadline=None)
@given(
    st.integers(2, 40), st.integers(1, 12), st.sampled_from([2.0, 5.0, 11.0, 23.0, 1e6]), st.sampled_from([0.0, 0.03, 0.3])
)
def test_apart_all_is_read_once_at_least_and_at_most_by_each_who_asks(
    rows: int, columns: int, side_mib: float, deviation: float
) -> None:
    footprints = product(rows, columns)
    in_step, apart = planned(footprints, lifetimes(deviation), side_mib=side_mib)
    for row in footprints:
        before, after = in_step[row.tensor], apart[row.tensor]
        asked = np.bincount(waves_of_tiles(rows * columns, NUM_SLOTS)) * float(MIB)
        assert (after.miss_bytes_by_wave >= before.miss_bytes_by_wave).all()
        assert (after.miss_bytes_by_wave <= np.maximum(asked, before.miss_bytes_by_wave) * (1.0 + 1e-9)).all()
        assert after.read_miss_bytes == pytest.approx(after.miss_bytes_by_wave.sum())
        if deviation == 0.0 or side_mib > 1e3 or rows * columns <= NUM_SLOTS:
            assert after is before


@pytest.mark.parametrize(
    ("rows", "columns", "side_mib", "deviation", "is_persistent"),
    [
        (64, 16, 4.0, 0.05, False), (64, 16, 4.0, 0.1, False), (64, 16, 6.0, 0.1, False), (64, 16, 4.0, 0.05, True),
        (64, 16, 6.0, 0.05, True), (160, 8, 3.0, 0.05, False), (160, 8, 5.0, 0.1, False), (96, 12, 4.0, 0.05, True),
    ],
)  # fmt: skip
def test_what_is_fetched_again_is_what_lines_one_by_one_say(
    rows: int, columns: int, side_mib: float, deviation: float, is_persistent: bool
) -> None:
    """Where tiles in step would read a sixth less at least."""
    footprints, of = product(rows, columns), lifetimes(deviation, is_persistent=is_persistent)
    in_step, apart = planned(footprints, of, side_mib=side_mib)
    want = lru_mib(footprints, of.begins(rows * columns), side_mib=side_mib)
    assert read_mib(in_step) < 0.85 * want
    assert read_mib(apart) == pytest.approx(want, rel=0.03)


def test_tiles_that_touch_nothing_bring_nothing() -> None:
    """Every second tile of B has no bytes, whichever panel it names."""
    a, b = product(64, 16)
    has_bytes = np.arange(64 * 16) % 2 * MIB
    shared = replace(b, bytes_of_tile=has_bytes)
    own = replace(shared, panel_of_tile=np.where(has_bytes > 0, b.panel_of_tile, 1000 + np.arange(64 * 16)))
    read = [read_mib(planned([a, other], lifetimes(0.05), side_mib=4.0)[1]) for other in (shared, own)]
    assert read[0] == pytest.approx(read[1])


def test_ctas_far_apart_read_more_than_in_step() -> None:
    in_step, apart = planned(product(64, 16), lifetimes(0.05), side_mib=4.0)
    assert read_mib(apart) > 1.3 * read_mib(in_step)
    assert apart["b"].lookup_miss_bytes / in_step["b"].lookup_miss_bytes == pytest.approx(
        apart["b"].read_miss_bytes / in_step["b"].read_miss_bytes
    )


def test_hinted_tensors_stay_in_step() -> None:
    in_step, apart = planned(product(64, 16, cache_hint="evict_first"), lifetimes(0.05), side_mib=4.0)
    assert apart == in_step


def test_launches_of_very_many_ctas_stay_in_step() -> None:
    in_step, apart = planned(product(MOST_CLUSTERS // 16 + 1, 16), lifetimes(0.05), side_mib=4.0)
    assert apart["b"] is in_step["b"]


def test_the_first_waves_fetch_lines_once_and_later_ones_again() -> None:
    _, apart = planned(product(64, 16), lifetimes(0.05), side_mib=4.0)
    times = apart["b"].times_fetched_by_wave
    assert times is not None and times[0] == 1.0 and times[-2] > 1.3


def gemm(tile: str, **options: Any) -> Launch:
    sizes = {"m": 8192, "n": 8192, "k": 8192, "tile": tile, "swizzle_size": 1, "raster": "along_n"}
    return GemmParams.model_validate(sizes | options).launch(GPU)


def test_lives_differ_as_far_as_slices_pace_them() -> None:
    """By hand: 64 x 128 of 64: 256 cycles of arithmetic for 24 KiB, for which an SM's part of the slices takes 668."""
    deviation = {
        tile: lifetime_cv(launch, GPU, FootprintTable.of(launch, GPU))
        for tile in ("64x64x64", "64x128x64", "128x256x64") for launch in [gemm(tile, schedule="multistage")]
    }  # fmt: skip
    l2 = GPU.l2
    by_slices = 24 * 1024 * GPU.num_sms / (l2.num_slices * l2.slice_bytes_per_cycle * l2.sustained_fraction)
    assert deviation["64x128x64"] == pytest.approx(l2.cta_lifetime_cv * (1.0 - 256 / by_slices))
    assert deviation["64x64x64"] > deviation["64x128x64"] > deviation["128x256x64"] > 0.0
    fp32 = gemm("64x64x8", dtype="fp32", math="fma", schedule="multistage", copy="cp_async")
    assert lifetime_cv(fp32, GPU, FootprintTable.of(fp32, GPU)) == 0.0


def test_the_plan_of_a_launch_has_its_ctas_apart() -> None:
    """64 x 128 tiles of 8192 cubed, a row of tiles at a time: most of B is read by each row."""
    launch = gemm("64x128x64", schedule="multistage", stages=3)
    alike = replace(GPU, l2=replace(GPU.l2, cta_lifetime_cv=0.0))
    apart, in_step = (
        sum(
            item.read_miss_bytes
            for item in plan_traffic(launch, gpu, FootprintTable.of(launch, gpu), num_slots=396, is_warm=False).values()
        )
        for gpu in (GPU, alike)
    )
    assert apart > 2.5 * in_step


@pytest.mark.parametrize("schedule", ["multistage", "warp_specialized", "pingpong"])
def test_rings_of_one_stage_stay_in_step(schedule: str) -> None:
    """Whatever the epilogue has two slots of."""
    one, two = (gemm("64x64x64", schedule=schedule, stages=stages, epilogue="tma_store") for stages in (1, 2))
    assert lifetime_cv(one, GPU, FootprintTable.of(one, GPU)) == 0.0 < lifetime_cv(two, GPU, FootprintTable.of(two, GPU))
