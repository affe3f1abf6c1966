"""Who touches what when: worked out by hand on toy (4 SMs, 1 MiB of L2), and compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpusim.errors import LaunchError
from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.report.tile_orders import OrderOfTiles, Raster, compare_orders, judge
from gpusim.workload import ops
from gpusim.workload.launch import Footprint, Launch, WarpRole

KIB = 1024
ONE_CTA_BYTES = 120 * KIB
"""Of shared memory, so that no two CTAs find room on an SM of toy."""


def nothing(cta: Any) -> Iterator[Any]:
    """Never run here."""
    yield ops.Alu(1)


def grid(rows: int, columns: int, *, panel_kib: int = 64, cluster_size: int = 1, along_n: bool = True) -> Launch:
    """Tiles of a product, row by row: each reads its row's panel of A and its column's of B, and stores 1 KiB of D."""

    def row(tiles: np.ndarray) -> np.ndarray:
        return tiles // columns if along_n else tiles % rows

    def column(tiles: np.ndarray) -> np.ndarray:
        return tiles % columns if along_n else tiles // rows

    def each(num_bytes: int) -> Any:
        return lambda tiles: np.full(len(tiles), num_bytes, dtype=np.int64)

    return Launch(
        kernel="by hand", num_ctas=rows * columns, num_tiles=rows * columns, cluster_size=cluster_size,
        roles=(WarpRole(name="all", num_warps=4, program=nothing),), extra_smem_bytes=ONE_CTA_BYTES,
        footprints=(
            Footprint(tensor="A", access="read", panel_of=row, panel_bytes=each(panel_kib * KIB)),
            Footprint(tensor="B", access="read", panel_of=column, panel_bytes=each(panel_kib * KIB)),
            Footprint(tensor="D", access="write", panel_of=lambda tiles: tiles, panel_bytes=each(KIB)),
        ),
    )  # fmt: skip


@pytest.fixture(scope="module")
def toy() -> GpuSpec:
    return load_gpu("toy")


def test_a_wave_is_what_runs_at_once(toy: GpuSpec) -> None:
    raster = Raster(grid(4, 4), toy)
    assert (raster.num_at_once, raster.num_waves, raster.num_rows, raster.num_columns) == (toy.num_sms, 4, 4, 4)
    assert raster.tiles_of_wave(2).tolist() == [8, 9, 10, 11]
    assert sorted(place["sm"] for place in raster.places(1)) == list(range(toy.num_sms))
    assert {(place["row"], place["column"]) for place in raster.places(1)} == {(1, column) for column in range(4)}


def test_bytes_of_a_wave_at_each_level(toy: GpuSpec) -> None:
    """A row of four tiles: one panel of A for all, four of B; the next row finds B in L2 and fetches its A."""
    raster = Raster(grid(4, 4), toy)
    first, second = ({item.tensor: item for item in raster.tensors(wave)} for wave in (0, 1))
    assert (first["A"].asked, first["A"].unique, first["A"].memory, first["A"].reuse) == (256 * KIB, 64 * KIB, 64 * KIB, 4)
    assert (first["B"].asked, first["B"].unique, first["B"].memory, first["B"].reuse) == (256 * KIB, 256 * KIB, 256 * KIB, 1)
    assert (second["A"].memory, second["B"].memory) == (64 * KIB, 0)
    assert first["D"].asked == first["D"].unique == 4 * KIB


def test_a_cluster_asks_for_a_panel_once() -> None:
    """All sixteen tiles run at once on an H200, two neighbours of a row a cluster."""
    wave = {item.tensor: item for item in Raster(grid(4, 4, cluster_size=2), load_gpu("h200_sxm")).tensors(0)}
    assert (wave["A"].asked, wave["A"].requested) == (1024 * KIB, 512 * KIB)
    assert (wave["B"].asked, wave["B"].requested) == (1024 * KIB, 1024 * KIB)


def test_what_is_left_at_each_level_is_no_more_than_above() -> None:
    gpu = load_gpu("h200_sxm")
    raster = Raster(GemmParams(m=4096, n=4096, k=1024, cluster=(2, 1)).launch(gpu), gpu)
    for wave in range(raster.num_waves):
        for item in raster.tensors(wave):
            assert item.asked >= item.requested >= item.merged >= item.unique >= item.memory


def test_levels_add_up_to_the_whole(toy: GpuSpec) -> None:
    raster = Raster(grid(6, 4), toy)
    order = raster.order(1, "along_n")
    waves = [raster.tensors(wave) for wave in range(raster.num_waves)]
    assert order.asked_bytes == sum(item.asked for wave in waves for item in wave if item.access == "read")
    assert order.dram_read_bytes == sum(item.memory for wave in waves for item in wave if item.access == "read")
    assert raster.least_read_bytes() == 10 * 64 * KIB


def test_every_tile_shares_with_its_wave(toy: GpuSpec) -> None:
    """A's panel is read by four, B's by one."""
    assert Raster(grid(4, 4), toy).reuse_of_tile().tolist() == [2.5] * 16


def test_a_wave_that_never_comes_is_refused(toy: GpuSpec) -> None:
    with pytest.raises(LaunchError, match="--wave 4: by hand has up to 4 tiles at once, and its last wave is 3; use 0 to 3"):
        Raster(grid(4, 4), toy).check_wave(4)


def test_a_launch_that_says_nothing_is_refused(toy: GpuSpec) -> None:
    bare = Launch(kernel="bare", num_ctas=1, num_tiles=1, roles=(WarpRole(name="all", num_warps=1, program=nothing),))
    with pytest.raises(LaunchError, match="no footprints"):
        Raster(bare, toy)


# ---------------------------------------------------------------------- orders


def test_the_order_that_fetches_least_is_best(toy: GpuSpec) -> None:
    """12 x 4 tiles of 128 KiB panels: row by row B (512 KiB) stays; column by column A (1.5 MiB) is fetched for each."""

    def build(group: int, direction: str) -> Launch:
        del group
        return grid(12, 4, panel_kib=128, along_n=direction == "along_n")

    found = compare_orders(build, toy, groups=(1,), directions=("along_m", "along_n"))
    assert (found.best.direction, found.makes_no_difference) == ("along_n", False)
    by_name = {order.direction: order for order in found.orders}
    assert by_name["along_n"].dram_read_bytes == found.least_bytes == 16 * 128 * KIB
    assert by_name["along_m"].dram_read_bytes == (4 * 12 + 4) * 128 * KIB
    assert found.reason == "it moves the fewest bytes of memory"


def test_where_all_stays_in_l2_it_makes_no_difference(toy: GpuSpec) -> None:
    found = compare_orders(
        lambda group, direction: grid(4, 4, panel_kib=8, along_n=direction == "along_n"), toy, groups=(1, 2),
        directions=("along_m", "along_n"),
    )
    assert found.makes_no_difference
    assert "still in L2" in found.reason


def order(group: int, *, read: float, unique: float) -> OrderOfTiles:
    return OrderOfTiles(
        group=group, direction="along_m", dram_read_bytes=read, dram_written_bytes=0.0, asked_bytes=1e6, l2_read_bytes=1e6,
        wave_unique_bytes=unique,
    )


def test_ties_go_to_the_order_whose_waves_touch_least() -> None:
    orders = (order(1, read=100.0, unique=9.0), order(2, read=100.4, unique=7.0), order(4, read=110.0, unique=5.0))
    found = judge(orders, 50.0)
    assert (found.best.group, found.makes_no_difference) == (2, False)
    assert "fewest bytes" in found.reason
    assert judge(orders[:2], 50.0).makes_no_difference
    assert "all orders fetch as much" in judge(orders[:2], 50.0).reason
