"""What memory-bound models share: accesses by the address, tiles, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from gpusim.errors import GpusimError, KernelError
from gpusim.kernel_models.elementwise import ElementwiseParams
from gpusim.kernel_models.gather import GatherParams
from gpusim.kernel_models.smem_copy import SmemCopyParams
from gpusim.kernel_models.streaming import TileGrid, all_passes, lanes_access, passes, tile_lanes
from gpusim.kernel_models.strided_copy import StridedCopyParams
from gpusim.kernel_models.transpose import TransposeParams
from gpusim.machine.config import GpuSpec
from gpusim.simulate.run import simulate
from gpusim.workload.gmem.global_access import global_access


@pytest.mark.parametrize("width", [2, 4, 8, 16])
@pytest.mark.parametrize("first", [0, 16, 112])
def test_neighbours_touch_the_sectors_that_their_bytes_cover(width: int, first: int) -> None:
    found = lanes_access(first, 96, width, width)
    by_warp = [
        len({byte // 32 for byte in range(first + warp * 32 * width, first + (warp + 1) * 32 * width)}) for warp in range(3)
    ]
    assert (found.num_requests, found.num_sectors, found.num_bytes) == (3, sum(by_warp), 96 * width)


@pytest.mark.parametrize(("stride_bytes", "sectors"), [(4, 4), (8, 8), (32, 32), (128, 32)])
def test_strides_spread_a_warp_over_sectors(stride_bytes: int, sectors: int) -> None:
    assert lanes_access(0, 32, 4, stride_bytes).num_sectors == sectors


def test_passes_are_what_threads_take_in_turn() -> None:
    found = passes(0, 1000, 256, 8)
    addresses = 8 * np.arange(1024).reshape(4, 8, 32)
    for turn, access in enumerate(found):
        assert access == global_access(addresses[turn], 8, addresses[turn] < 8000)
    assert sum(access.num_bytes for access in found) == 8000 == all_passes(0, 1000, 256, 8).num_bytes


def test_accesses_repeat_with_lines() -> None:
    assert passes(5 * 128 + 64, 300, 128, 4, 12) == passes(64, 300, 128, 4, 12)


def test_lanes_of_a_tile_go_row_by_row() -> None:
    rows, columns = tile_lanes(128, 8, 256)
    assert rows.shape == (4, 8, 32)
    assert (rows * 8 + columns).ravel().tolist() == list(range(1024))


def test_tiles_cover_a_matrix_once() -> None:
    grid = TileGrid(num_rows=300, num_columns=70, tile_rows=128, tile_columns=64)
    assert (grid.num_x, grid.num_y, grid.num_tiles) == (2, 3, 6)
    extents = [grid.extent(tile) for tile in range(6)]
    assert extents == [(128, 64), (128, 6), (128, 64), (128, 6), (44, 64), (44, 6)]
    footprint = grid.footprint("in", "read", element_bytes=4)
    found = footprint.panel_bytes(np.arange(6))
    assert found.tolist() == [4 * rows * columns for rows, columns in extents]
    assert found.sum() == 300 * 70 * 4


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (lambda: ElementwiseParams(elements=64, vector_bytes=2), "hold no element of 4"),
        (lambda: ElementwiseParams(elements=1 << 40, vector_bytes=4), "the grid would have 4294967296 CTAs along x"),
        (lambda: StridedCopyParams(elements=1 << 40, stride=2), "CTAs along x, CUDA takes 2147483647"),
        (lambda: ElementwiseParams(elements=64, op="fill", in_place=True), "has no input to overwrite"),
        (lambda: ElementwiseParams(elements=64, op="scale", broadcast="row", columns=64), "has no second input"),
        (lambda: ElementwiseParams(elements=64, in_place=True, out_dtype="bf16"), "cannot be in place"),
        (lambda: GatherParams(rows=64, columns=1 << 20, table_rows=64, per="block"), "takes 1024 CTAs"),
        (lambda: TransposeParams(m=8, n=512, smem="none", coalesced="stores"), "columns of 8 rows"),
        (lambda: TransposeParams(m=1 << 22, n=32), "131072 CTAs along y, CUDA takes 65535"),
        (lambda: SmemCopyParams(m=64, n=60), "60 elements of 2 bytes is no whole number of 16-byte vectors"),
        (lambda: SmemCopyParams(m=64, n=64, tile="16x8"), "256 threads do not divide"),
        (lambda: SmemCopyParams(m=64, n=64, tile="128x48", swizzle="128B"), "96 contiguous bytes"),
        (lambda: SmemCopyParams(m=64, n=64, tile="100x64", copy="tma", swizzle="128B"), "panels of 100 rows"),
    ],
)
def test_what_cannot_be_is_refused(params: object, message: str, h200: GpuSpec) -> None:
    with pytest.raises(GpusimError, match=message):
        params().resolved(h200).launch(h200)  # type: ignore[operator]


def test_a_vector_of_three_bytes_is_none() -> None:
    with pytest.raises(KernelError, match="--vector-bytes '3' is unknown"):
        ElementwiseParams(elements=64, vector_bytes=3)  # type: ignore[arg-type]


def test_a_copy_by_tma_has_one_warp(h200: GpuSpec) -> None:
    assert SmemCopyParams(m=128, n=64, copy="tma").resolved(h200).threads == 32


def test_tma_is_refused_where_there_is_none(a100: GpuSpec) -> None:
    with pytest.raises(GpusimError, match=r"smem_copy: a100_sxm_40gb has no tma, it has cp_async, mbarrier, mma_sync"):
        simulate(SmemCopyParams(m=128, n=64, copy="tma").launch(a100), a100)


def test_the_axis_of_a_grid_that_has_few_ctas_is_that_of_the_columns_where_tiles_of_a_column_come_first() -> None:
    tall, wide = {"m": 128 * 65536, "n": 64}, {"m": 128, "n": 64 * 65536}
    for refused, taken, raster, use in ((tall, wide, "along_n", "a taller"), (wide, tall, "along_m", "a wider")):
        with pytest.raises(KernelError, match=rf"65536 CTAs along y, CUDA takes 65535: use {use} --tile"):
            SmemCopyParams(**refused, raster=raster).checked()
        SmemCopyParams(**taken, raster=raster).checked()


def test_a_round_that_is_not_full_is_a_step_as_well(h200: GpuSpec) -> None:
    """96 rows of 8 vectors are six for each of 128 threads: four at once, and two."""
    launch = SmemCopyParams(m=96, n=64, tile=(96, 64), threads=128).launch(h200)
    assert {row.num_steps for row in launch.footprints} == {2}


def test_a_tensor_that_is_overwritten_takes_no_more_room_in_l2(h200: GpuSpec) -> None:
    """In place, one tensor stays in L2; a separate output takes room of its own."""
    written = {}
    for in_place in (False, True):
        params = ElementwiseParams(op="scale", elements=10_000_000, in_place=in_place)
        written[in_place] = simulate(params.launch(h200), h200).counters["dram__bytes_write.sum"]
    assert written[True] < 0.8 * written[False]
