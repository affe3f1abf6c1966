"""Closed forms: what a simulated GEMM counts equals arithmetic done here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gpusim.errors import KernelError
from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import GpuSpec
from gpusim.simulate.result import Result
from gpusim.workload import ops
from gpusim.workload.compiled_code import NO_CODE

from .conftest import ops_of

Run = Callable[..., Result]

TMA_BYTES = "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"
GMMA = "sm__inst_executed_pipe_tensor_op_gmma.sum"
HMMA = "sm__inst_executed_pipe_tensor_op_hmma.sum"
L2_READS = "lts__t_sectors_srcunit_tex_op_read.sum"
L2_SECTORS = "lts__t_sectors_srcunit_tex.sum"
L2_WRITES = "lts__t_sectors_srcunit_tex_op_write.sum"
STORE_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
DRAM_READ = "dram__bytes_read.sum"
WAVEFRONTS_LD = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"


def ceil(value: int, by: int) -> int:
    return -(-value // by)


EVEN = {"m": 512, "n": 768, "k": 512}
EDGES = {"m": 500, "n": 680, "k": 456}


@pytest.mark.parametrize("sizes", [EVEN, EDGES], ids=["even", "edges"])
@pytest.mark.parametrize("schedule", ["warp_specialized", "cooperative", "pingpong", "multistage"])
@pytest.mark.parametrize("cluster", ["1x1", "2x1"])
def test_tma_loads_bring_what_lies_inside_of_the_matrices(
    run: Run, sizes: dict[str, int], schedule: str, cluster: str
) -> None:
    if schedule == "multistage" and cluster != "1x1":
        return
    result = run(**sizes, tile="128x64x64", schedule=schedule, cluster=cluster)
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    tiles_m, tiles_n = ceil(m, 128), ceil(n, 64)
    inside = (tiles_n * m * k + tiles_m * n * k) * 2
    is_aligned = k * 2 % 128 == 0  # else whole sectors cross of which a half is asked for
    assert result.counters[TMA_BYTES] == inside if is_aligned else inside < result.counters[TMA_BYTES] < 2 * inside


@pytest.mark.parametrize("sizes", [EVEN, EDGES], ids=["even", "edges"])
def test_cp_async_brings_what_lies_inside_of_the_matrices(h200: GpuSpec, sizes: dict[str, int]) -> None:
    launch = GemmParams(**sizes, tile="128x64x32", math="mma_sync").launch(h200)
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    copied = sum(op.access.num_bytes for _, op in ops_of(launch, ops.CpAsync))
    assert copied == (ceil(n, 64) * m * k + ceil(m, 128) * n * k) * 2
    sectors = sum(op.access.num_sectors for _, op in ops_of(launch, ops.CpAsync))
    of_row = k // 32 * 2 + ceil(k % 32 * 2, 32)  # each k-step's piece of a row has sectors of its own
    assert sectors == (ceil(n, 64) * m + ceil(m, 128) * n) * of_row


@pytest.mark.parametrize(
    ("options", "wide"),
    [
        ({"tile": "128x64x64", "schedule": "warp_specialized"}, 64),
        ({"tile": "128x256x64", "schedule": "cooperative"}, 256),
        ({"tile": "128x256x64", "schedule": "cooperative", "consumer_split": "n"}, 128),
        ({"tile": "64x128x64", "schedule": "pingpong"}, 128),
        ({"tile": "192x192x64", "consumer_warpgroups": 3}, 192),
        ({"tile": "320x128x64"}, 64),
        ({"tile": "128x64x64", "schedule": "multistage"}, 64),
        ({"tile": "64x8x64"}, 8),
        ({"tile": "128x128x128", "dtype": "fp8", "alignment": 16}, 128),
        ({"tile": "128x128x32", "dtype": "tf32"}, 128),
    ],
    ids=str,
)
def test_wgmma_instructions_are_the_tiles_volume(run: Run, options: dict[str, Any], wide: int) -> None:
    result = run(**EDGES, **options)
    tile_m, tile_n, tile_k = (int(part) for part in options["tile"].split("x"))
    depth = 32 // {"fp8": 1, "tf32": 4}.get(options.get("dtype", "bf16"), 2)
    of_tile = (tile_m // 64) * (tile_n // wide) * ceil(EDGES["k"], tile_k) * (tile_k // depth)
    num_tiles = ceil(EDGES["m"], tile_m) * ceil(EDGES["n"], tile_n)
    assert result.counters[GMMA] == 4 * of_tile * num_tiles  # each is executed by four warps


def test_mma_sync_instructions_are_the_tiles_volume(run: Run) -> None:
    result = run(**EVEN, tile="128x128x32", math="mma_sync")
    assert result.counters[HMMA] == 512 * 768 * 512 // (16 * 8 * 16)


def test_fma_instructions_are_the_products(h200: GpuSpec) -> None:
    launch = GemmParams(m=128, n=256, k=64, dtype="fp32", tile="64x64x8").launch(h200)
    num_warps = launch.num_warps
    fmas = sum(op.num_instructions * num_warps for _, op in ops_of(launch, ops.Fma))
    assert fmas == 128 * 256 * 64 // 32


@pytest.mark.parametrize(("warps", "columns"), [("4x2", 8), ("2x4", 4), ("8x1", 16)])
@pytest.mark.parametrize("told", [None, 1.25])
def test_an_ffma_reads_what_sass_has_or_a_row_s_element_once(
    h200: GpuSpec, warps: str, columns: int, told: float | None
) -> None:
    """Of either bank one, B's element or the sum; and of one of them A's, once for each row of a thread's sums."""
    params: dict[str, Any] = {"m": 128, "n": 128, "k": 64, "tile": "128x128x8", "dtype": "fp32", "warps": warps}
    params["compiled_code"] = NO_CODE.replaced(mainloop={"fma_bank_reads": told})
    launch = GemmParams.model_validate(params).launch(h200)
    found = {op.bank_reads for _, op in ops_of(launch, ops.Fma)}
    assert found == {1.0 + 1.0 / columns if told is None else told}


@pytest.mark.parametrize("sizes", [EVEN, EDGES], ids=["even", "edges"])
@pytest.mark.parametrize(
    "options",
    [
        {"tile": "128x256x64"},
        {"tile": "128x64x64", "schedule": "pingpong"},
        {"tile": "192x192x64", "consumer_warpgroups": 3},
        {"tile": "128x64x64", "schedule": "multistage"},
        {"tile": "128x128x32", "math": "mma_sync"},
        {"tile": "128x128x64", "cluster": "2x2"},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
@pytest.mark.parametrize("epilogue", ["direct", "smem", "tma_store"])
def test_d_is_stored_once(
    h200: GpuSpec, sizes: dict[str, int], options: dict[str, Any], epilogue: str
) -> None:
    if epilogue == "tma_store" and options.get("math") == "mma_sync":
        options = {**options, "copy": "tma"}
    launch = GemmParams(**sizes, **options, epilogue=epilogue).launch(h200)
    num_ctas = launch.num_ctas or 3 * launch.cluster_size
    stores = ops_of(launch, ops.GlobalStore, ops.TmaStore, num_ctas=num_ctas)
    by_tma = epilogue == "tma_store"
    assert sum(op.num_bytes if by_tma else op.access.num_bytes for _, op in stores) == sizes["m"] * sizes["n"] * 2
    assert all(isinstance(op, ops.TmaStore) is by_tma for _, op in stores)


def test_direct_stores_half_a_sector_at_a_time_and_staged_ones_whole_sectors(run: Run) -> None:
    sectors = EVEN["m"] * EVEN["n"] * 2 // 32
    direct = run(**EVEN, epilogue="direct")
    assert direct.counters[STORE_SECTORS] == 2 * sectors  # 8 columns of bf16 are 16 bytes
    assert run(**EVEN, epilogue="direct", out_dtype="fp32").counters[STORE_SECTORS] == 2 * sectors
    assert run(**EVEN, epilogue="smem").counters[STORE_SECTORS] == sectors
    staged = run(**EVEN, epilogue="tma_store")
    assert staged.counters[STORE_SECTORS] == 0
    assert staged.counters[L2_WRITES] == sectors


def test_reductions_by_tma_add_to_d_in_l2_and_no_warp_reads_c(run: Run) -> None:
    d_bytes = EVEN["m"] * EVEN["n"] * 2
    plain, added = run(**EVEN, epilogue="tma_store"), run(**EVEN, epilogue="tma_reduce", beta=1.0)
    assert added.counters[L2_WRITES] == 0
    assert added.counters[L2_SECTORS] - added.counters[L2_READS] == d_bytes // 32
    assert added.counters[L2_READS] == plain.counters[L2_READS]
    assert added.counters[DRAM_READ] == plain.counters[DRAM_READ] + d_bytes  # D is not in a cold L2
    assert plain.cycles < added.cycles


@pytest.mark.parametrize(("persistent", "num_ctas"), [(False, 16 * 16), (True, 132)])
def test_waves_are_tiles_over_slots(run: Run, persistent: bool, num_ctas: int) -> None:
    result = run(m=16 * 128, n=16 * 256, k=256, tile="128x256x64", persistent=persistent)
    assert result.occupancy.ctas_per_sm == 1
    assert result.waves == pytest.approx(256 / 132)
    assert result.num_ctas == result.counters["launch__grid_size"] == num_ctas


def test_memory_reads_no_less_than_the_operands(run: Run) -> None:
    for options in ({}, {"schedule": "pingpong"}, {"math": "mma_sync"}, {"beta": 1.0}, {"split_k": 2}):
        result = run(**EDGES, **options)
        m, n, k = EDGES["m"], EDGES["n"], EDGES["k"]
        assert result.counters[DRAM_READ] >= (m * k + n * k + (m * n if "beta" in options else 0)) * 2


def test_small_operands_are_read_from_memory_once(run: Run) -> None:
    assert run(**EVEN).counters[DRAM_READ] == (512 * 512 + 768 * 512) * 2


@pytest.mark.parametrize("cluster", ["2x1", "1x2", "2x2", "4x1", "1x4"])
def test_multicast_takes_reads_off_l2_and_none_off_the_ports(run: Run, h200: GpuSpec, cluster: str) -> None:
    apart = replace(h200, xbar=replace(h200.xbar, coalesce_scope="sm"))  # else requests merge that are no multicast's
    alone = run(m=1024, n=1024, k=512, tile="128x128x64", gpu=apart).counters
    shared = run(m=1024, n=1024, k=512, tile="128x128x64", cluster=cluster, gpu=apart).counters
    assert shared[TMA_BYTES] == alone[TMA_BYTES] == 2 * 8 * 8 * 128 * 512 * 2
    assert shared[L2_READS] < alone[L2_READS]
    assert shared[DRAM_READ] == alone[DRAM_READ]


@pytest.mark.parametrize(("cluster", "of_a", "of_b"), [("2x1", 1, 2), ("1x2", 2, 1), ("2x2", 2, 2), ("4x1", 1, 4)])
def test_multicast_requests_fall_by_the_ctas_that_share(
    h200: GpuSpec, cluster: str, of_a: int, of_b: int
) -> None:
    launch = GemmParams(m=512, n=512, k=256, tile="128x128x64", cluster=cluster).launch(h200)
    fetched = {"A": 0, "B": 0}
    for _, op in ops_of(launch, ops.TmaLoad):
        fetched[op.tensor] += op.num_fetched_bytes
        assert len(op.multicast) in (0, of_a if op.tensor == "A" else of_b)
    assert fetched == {"A": 4 * 512 * 256 * 2 // of_a, "B": 4 * 512 * 256 * 2 // of_b}


@pytest.mark.parametrize("cluster", ["1x1", "2x1", "2x2", "1x4"])
@pytest.mark.parametrize("layout", ["tn", "nn", "tt"])
def test_the_bytes_announced_are_those_that_arrive(h200: GpuSpec, cluster: str, layout: str) -> None:
    launch = GemmParams(**EDGES, tile="128x128x64", cluster=cluster, layout=layout, alignment=8).launch(h200)
    expected: dict[int, int] = {}
    arrived: dict[int, int] = {}
    for cta, op in ops_of(launch, ops.TmaLoad, ops.MbarrierArriveExpectTx):
        if isinstance(op, ops.TmaLoad):
            base = cta // launch.cluster_size * launch.cluster_size
            for rank in op.multicast or (cta - base,):
                arrived[base + rank] = arrived.get(base + rank, 0) + op.num_bytes
        else:
            expected[cta] = expected.get(cta, 0) + op.num_bytes
    assert arrived == expected


def test_swizzles_cost_what_access_counts(h200: GpuSpec) -> None:
    """cp.async and ldmatrix of a tile whose rows have 128 bytes.

    Plain rows: 8 rows of a matrix lie in one group of banks. Swizzled: in eight; but a row that is written into
    four (two) panels has all of its 32-byte (64-byte) pieces in the same banks.
    """
    reads, writes = {}, {}
    for swizzle in ("none", "32B", "64B", "128B"):
        launch = GemmParams(
            m=128, n=128, k=64, tile="128x128x64", math="mma_sync", swizzle=swizzle, warps="2x2"
        ).launch(h200)
        reads[swizzle] = sum(op.access.num_wavefronts for _, op in ops_of(launch, ops.Ldmatrix))
        writes[swizzle] = sum(op.access.num_wavefronts for _, op in ops_of(launch, ops.CpAsync))
    read = 4 * (64 + 64) * 64 * 2 // 128  # 4 warps, 64 + 64 rows, 64 k's of 2 bytes; 128 bytes a wavefront
    written = (128 + 128) * 64 * 2 // 128
    assert reads == {"none": 8 * read, "32B": read, "64B": read, "128B": read}
    assert writes == {"none": written, "32B": 4 * written, "64B": 2 * written, "128B": written}


def test_no_swizzle_is_slower_and_its_wavefronts_are_counted(run: Run) -> None:
    found = {
        swizzle: run(m=512, n=512, k=512, tile="128x128x64", math="mma_sync", swizzle=swizzle)
        for swizzle in ("none", "128B")
    }
    assert found["none"].cycles > 2 * found["128B"].cycles
    assert found["none"].counters[WAVEFRONTS_LD] == 8 * found["128B"].counters[WAVEFRONTS_LD]


def test_a_narrow_swizzle_makes_narrow_boxes(h200: GpuSpec, run: Run) -> None:
    rows = {}
    for swizzle in ("none", "32B", "64B", "128B"):
        launch = GemmParams(m=128, n=128, k=64, tile="128x128x64", swizzle=swizzle).launch(h200)
        rows[swizzle] = sum(op.num_rows for _, op in ops_of(launch, ops.TmaLoad))
    assert rows == {"none": 256 * 8, "32B": 256 * 4, "64B": 256 * 2, "128B": 256}
    narrow = run(m=1024, n=1024, k=1024, tile="128x128x64", swizzle="32B")
    assert narrow.cycles > run(m=1024, n=1024, k=1024, tile="128x128x64", swizzle="128B").cycles


@pytest.mark.parametrize(
    ("tile_k", "swizzle", "ways"),
    # rows of 64, 128 and 256 bytes; the ways of 16-bit elements by the bank rule of NVIDIA developer forum 260900
    [(32, "none", 4), (32, "2,3,3", 1), (32, "3,3,3", 1), (32, "3,4,3", 2), (64, "3,3,3", 1), (64, "3,4,3", 2),
     (64, "2,3,3", 2), (128, "3,3,3", 2), (128, "3,3,4", 1)],
)
def test_three_numbers_swizzle_a_plain_tile_and_cost_its_conflicts(
    h200: GpuSpec, tile_k: int, swizzle: str, ways: int
) -> None:
    def reads(option: str) -> int:
        launch = GemmParams(
            m=128, n=128, k=128, tile=f"128x128x{tile_k}", math="mma_sync", copy="cp_async", swizzle=option, stages=2,
            warps="2x2",
        ).launch(h200)
        return sum(op.access.num_wavefronts for _, op in ops_of(launch, ops.Ldmatrix))

    assert reads(swizzle) == ways * reads("64B" if tile_k == 32 else "128B")


@pytest.mark.parametrize("text", ["3,3,3", "(3, 3, 3)"])
def test_numbers_that_are_a_mode_are_that_mode_for_wgmma(h200: GpuSpec, text: str) -> None:
    given = text if text[0] != "(" else (3, 3, 3)
    assert GemmParams(m=128, n=128, k=64, tile="128x128x64", swizzle=given).resolved(h200).swizzle == "128B"


def test_mixed_up_units_are_said(h200: GpuSpec) -> None:
    sizes: dict[str, Any] = {"m": 128, "n": 128, "k": 64, "tile": "128x128x64", "swizzle": "3,4,3"}
    with pytest.raises(KernelError, match=r"not the 128B mode.*use 3,3,3 or 128B.*use --swizzle 128B"):
        GemmParams(**sizes).launch(h200)
    launch = GemmParams(**sizes, math="mma_sync", copy="cp_async").launch(h200)
    assert any("not the 128B mode" in remark for remark in launch.remarks)


@pytest.mark.parametrize(
    ("swizzle", "sentence"),
    [("3,2,3", "tears the 16-byte vectors"), ("3,3,9", "repeats after 65536 bytes"), ("3,3,2", "overlap"), ("3,3", "B,M,S")],
)
def test_swizzles_that_no_tile_can_have_are_refused(h200: GpuSpec, swizzle: str, sentence: str) -> None:
    with pytest.raises(KernelError, match=sentence):
        GemmParams(
            m=128, n=128, k=64, tile="128x128x64", math="mma_sync", copy="cp_async", swizzle=swizzle
        ).launch(h200)


def test_bank_conflicts_are_said_with_what_mends_them(h200: GpuSpec) -> None:
    sizes: dict[str, Any] = {"m": 128, "n": 128, "k": 64, "tile": "128x128x64", "math": "mma_sync", "copy": "cp_async"}
    said = [remark for remark in GemmParams(**sizes, swizzle="none").launch(h200).remarks if "bank conflicts" in remark]
    assert len(said) == 1
    assert "take 8 times the wavefronts of their bytes; --swizzle 128B" in said[0]
    assert not any("bank conflicts" in remark for remark in GemmParams(**sizes, swizzle="128B").launch(h200).remarks)
