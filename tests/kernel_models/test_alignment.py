"""Rows that are not aligned to 16 bytes, LDG and STS, batches at addresses in arrays, and clusters that cannot share."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from types import SimpleNamespace
from typing import Any

import pytest

from gpusim.analysis.choose import choose
from gpusim.analysis.triton_configs import TritonProblem
from gpusim.errors import KernelError
from gpusim.evidence.validate.expected_error import expected_error, unknown
from gpusim.kernel_models.gemm import GemmParams, resolve
from gpusim.kernel_models.mainloop.l1_copies import copy_access, row_parts, store_access
from gpusim.kernel_models.mainloop.shape import MainloopShape
from gpusim.machine.config import GpuSpec
from gpusim.report.library_words import library_words
from gpusim.simulate.result import Result
from gpusim.simulate.run import simulate
from gpusim.workload import ops
from gpusim.workload.dtypes import BF16
from gpusim.workload.smem.access import AccessPattern

from .conftest import dry_run, ops_of

Run = Callable[..., Result]

SMALL: dict[str, Any] = {"m": 512, "n": 512, "k": 512, "tile": "128x128x32", "math": "mma_sync"}


# ---------------------------------------------------------------------------------------------- what follows from the shape
@pytest.mark.parametrize(
    ("k", "dtype", "math", "copy", "copy_bytes"),
    [
        (4096, "bf16", "wgmma", "tma", 16), (4092, "bf16", "mma_sync", "cp_async", 8),
        (4090, "bf16", "mma_sync", "cp_async", 4), (4095, "bf16", "mma_sync", "ldg", 2),
        (4095, "tf32", "mma_sync", "cp_async", 4), (4095, "int8", "mma_sync", "ldg", 1),
        (4095, "fp32", "fma", "cp_async", 16),
    ],
)  # fmt: skip
def test_the_copy_is_the_widest_that_all_rows_allow(
    h200: GpuSpec, k: int, dtype: str, math: str, copy: str, copy_bytes: int
) -> None:
    config = resolve(GemmParams(m=512, n=512, k=k, dtype=dtype), h200)
    assert (config.math, config.copy_, config.copy_bytes) == (math, copy, copy_bytes)
    assert config.stages <= (2 if copy == "ldg" else 4)


def test_rows_that_are_padded_are_copied_by_tma_at_their_own_pitch(h200: GpuSpec) -> None:
    params = GemmParams(m=512, n=512, k=500, alignment=8)
    config = resolve(params, h200)
    assert (config.copy_, config.mainloop.pitch_bytes(500)) == ("tma", 504 * 2)
    assert params.launch(h200).remarks == ()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"k": 508, "copy": "tma"}, ("--copy tma", "to 8 bytes, not to 16", "--alignment 8 if rows are padded")),
        ({"k": 511, "copy": "cp_async"}, ("--copy cp_async", "to 2 bytes, not to 4", "--copy ldg --math mma_sync")),
        ({"k": 511, "schedule": "cooperative"}, ("--copy cp_async", "to 2", "--copy ldg --math mma_sync")),
        ({"n": 508, "epilogue": "tma_store"}, ("--epilogue tma_store", "rows of D", "to 8", "--epilogue smem")),
        ({"alignment": 4, "copy": "tma"}, ("--copy tma", "to 8 bytes", "--copy cp_async")),
        ({"copy": "ldg", "math": "wgmma"}, ("--copy ldg", "through registers", "--copy cp_async")),
        ({"copy": "ldg", "stages": 3}, ("--stages 3", "one k-step in registers", "--stages 2")),
        ({"batch_mode": "array"}, ("--batch-mode array", "one GEMM", "--batch 2")),
        ({"batch_mode": "array", "batch": 2, "tensormaps": "host"}, ("--batch-mode array", "--tensormaps device")),
        ({"batch_mode": "array", "batch": 2, "schedule": "pingpong"}, ("--persistent", "--no-persistent")),
    ],
)  # fmt: skip
def test_what_no_kernel_can_be_is_refused_in_one_sentence(
    h200: GpuSpec, options: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(KernelError) as caught:
        GemmParams(**{"m": 512, "n": 512, "k": 512, **options}).launch(h200)
    assert all(word in str(caught.value) for word in words)


# ---------------------------------------------------------------------------------------------- traffic and time
def shape_of(copy_bytes: int, copy: str = "cp_async") -> MainloopShape:
    return MainloopShape((128, 128, 32), 2, BF16, "mma_sync", copy, swizzle="64B", copy_bytes=copy_bytes)


@pytest.mark.parametrize("copy_bytes", [4, 8])
def test_a_tile_of_8_kib_takes_an_instruction_for_32_lanes_of_each_width(copy_bytes: int) -> None:
    found = copy_access(shape_of(copy_bytes), 0, 0, 128)
    assert found.num_requests == 128 * 64 // (32 * copy_bytes)
    assert (found.num_bytes, found.num_sectors) == (128 * 64, 128 * 2)
    # lanes are 16 bytes apart, so that eight of them reach all banks
    assert found.num_wavefronts >= 4 * found.num_requests


def test_ldg_loads_pieces_and_sts_stores_vectors() -> None:
    loaded, stored = copy_access(shape_of(2, "ldg"), 0, 0, 128), store_access(shape_of(2, "ldg"), 0)
    assert loaded.num_requests == 128 * 64 // (32 * 2)
    assert stored == AccessPattern(num_requests=16, num_wavefronts=64, num_bytes=128 * 64)  # 512 bytes each, no conflict


def test_narrower_copies_take_longer(run: Run) -> None:
    cycles = [run(**SMALL, alignment=alignment, stages=2, copy="cp_async").cycles for alignment in (8, 4, 2)]
    assert cycles[0] < cycles[1] < cycles[2]
    assert run(**SMALL, alignment=2, stages=2, copy="cp_async").cycles == cycles[2]


def test_lines_that_l1_has_not_pass_one_by_one(run: Run) -> None:
    """Rows that straddle lines touch eight lines a copy, with as many wavefronts as rows on lines, which touch four."""
    on_lines, off = (run(**{**SMALL, "k": k, "tile": "128x128x64"}, alignment=2, stages=2) for k in (2048, 2052))
    assert off.cycles > 1.15 * on_lines.cycles


def test_rows_that_begin_amid_sectors_ask_for_one_more() -> None:
    aligned, amid = row_parts(0, 2048, 64, 128), row_parts(8, 2048, 64, 128)
    assert (aligned.num_reads, amid.num_reads) == (64 * 4, 64 * 5)
    assert (aligned.num_torn, amid.num_torn) == (0, 64 * 5)


def test_ctas_that_only_complete_a_band_copy_nothing(run: Run) -> None:
    options = {**SMALL, "m": 640, "swizzle_size": 4, "copy": "cp_async", "stages": 3}
    bare, overhung = (run(**options, raster_order=order) for order in ("none", "full_bands"))
    for name in ("sm__inst_executed_pipe_tensor.sum", "dram__bytes_read.sum"):
        assert overhung.counters[name] == pytest.approx(bare.counters[name], rel=0.01)


def test_narrower_stores_of_d_take_longer(run: Run) -> None:
    for epilogue in ("direct", "smem"):
        aligned, off = (run(**{**SMALL, "n": n, "k": 64}, epilogue=epilogue).cycles for n in (512, 511))
        assert aligned < off


def test_the_bytes_that_are_read_do_not_depend_on_the_width(run: Run) -> None:
    read = [run(**SMALL, alignment=alignment).counters["dram__bytes_read.sum"] for alignment in (8, 2)]
    assert read[0] == pytest.approx(read[1], rel=0.01) == pytest.approx(2 * 512 * 512 * 2, rel=0.01)


def test_ldg_of_the_next_step_comes_before_the_math_and_its_sts_before_the_barrier(h200: GpuSpec) -> None:
    launch = GemmParams(**{**SMALL, "warps": "2x2"}, copy="ldg").launch(h200)
    (of_role,) = dry_run(launch, num_ctas=1).values()
    of_cta = [type(op) for cta, op in of_role if cta == 0]
    loads = [idx for idx, kind in enumerate(of_cta) if kind is ops.GlobalLoad]
    stores = [idx for idx, kind in enumerate(of_cta) if kind is ops.SharedStore][:32]
    assert len(loads) == len(stores) == 2 * 16  # A and B of 16 k-steps
    for step in range(16):
        for load, store in zip(loads[2 * step : 2 * step + 2], stores[2 * step : 2 * step + 2], strict=True):
            assert load < store and of_cta[store - 1] is ops.Use
        assert of_cta[stores[2 * step + 1] + 1] is ops.Syncthreads
    assert ops.MmaSync in of_cta[loads[2] : stores[2]]


def test_ldg_without_alignment_takes_longer_than_cp_async(run: Run) -> None:
    assert run(**SMALL, copy="ldg").cycles > run(**SMALL, copy="cp_async", stages=4).cycles


# ---------------------------------------------------------------------------------------------- batches, clusters, tf32
@pytest.mark.parametrize("options", [{}, {"copy": "cp_async"}, {"math": "mma_sync", "tile": "128x128x32"}])
def test_addresses_of_a_batch_are_read_before_its_first_copy(h200: GpuSpec, options: dict[str, Any]) -> None:
    params = GemmParams(**{"m": 256, "n": 256, "k": 128, "batch": 3, "batch_mode": "array", "tile": "128x128x64", **options})
    launch = params.launch(h200)
    for of_role in dry_run(launch, num_ctas=launch.num_ctas or 1).values():
        of_cta = [op for cta, op in of_role if cta == 0]
        copies = [idx for idx, op in enumerate(of_cta) if isinstance(op, ops.TmaLoad | ops.CpAsync)]
        reads = [idx for idx, op in enumerate(of_cta) if isinstance(op, ops.GlobalLoad) and op.tensor == "pointers"]
        assert reads and (not copies or min(reads) < copies[0])
        assert isinstance(of_cta[reads[0] + 1], ops.Use)


def test_a_batch_at_addresses_takes_longer_than_one_at_a_stride(run: Run) -> None:
    sizes = {"m": 256, "n": 256, "k": 256, "batch": 8, "persistent": False, "tile": "128x128x64"}
    strided, array = (run(**sizes, batch_mode=mode).cycles for mode in ("strided", "array"))
    assert strided + 300 < array  # a load, and the tensor maps that wait for it
    strided, array = (run(**sizes, batch_mode=mode, copy="cp_async").cycles for mode in ("strided", "array"))
    assert strided < array < strided + 3000


@pytest.mark.parametrize("cluster", ["2x1", "4x1", "4x2", "1x2"])
def test_ctas_load_on_their_own_what_they_cannot_part(h200: GpuSpec, cluster: str) -> None:
    launch = GemmParams(m=512, n=32, k=128, tile="64x8x64", cluster=cluster).launch(h200)
    along_m, along_n = (int(part) for part in cluster.split("x"))
    loads = ops_of(launch, ops.TmaLoad)
    assert {len(op.multicast) for _, op in loads if op.tensor == "B"} == {0}
    assert {len(op.multicast) for _, op in loads if op.tensor == "A"} == {along_n if along_n > 1 else 0}
    assert {op.num_bytes for _, op in loads if op.tensor == "B"} == {8 * 64 * 2}
    said = [remark for remark in launch.remarks if "without multicast" in remark]
    assert bool(said) == (along_m > 1)
    assert simulate(launch, h200, clock="max").cycles > 0


@pytest.mark.parametrize("layout", ["nn", "nt", "tt"])
def test_tf32_that_is_not_contiguous_along_k_runs_on_mma_sync(run: Run, layout: str) -> None:
    sizes = {"m": 256, "n": 256, "k": 512, "dtype": "tf32"}
    turned, plain = run(**sizes, layout=layout), run(**sizes, layout="tn", math="mma_sync", tile="128x128x16")
    assert turned.params["math"] == "mma_sync"
    assert 0.5 < turned.cycles / plain.cycles < 3.0


# ---------------------------------------------------------------------------------------------- choice and expected error
@pytest.mark.parametrize(
    "sizes", [{"m": 1, "n": 512, "k": 1022}, {"m": 1001, "n": 8, "k": 333}, {"m": 300, "n": 301, "k": 64, "dtype": "fp32"}]
)
def test_shapes_that_are_not_aligned_are_chosen_for(h200: GpuSpec, sizes: dict[str, Any]) -> None:
    chosen = choose(GemmParams(**sizes), h200)
    assert len(chosen.rated) > 1
    assert simulate(chosen.params.launch(h200), h200, clock="max").cycles > 0
    assert choose(GemmParams(**sizes), h200).params == chosen.params


def test_no_error_is_expected_of_rows_that_no_judged_row_is_aligned_as() -> None:
    told = {"m": 4096, "n": 4096, "k": 4088, "dtype": "bf16", "layout": "tn", "math": "mma_sync", "copy": "cp_async"}
    assert expected_error("gemm", "h200_sxm", told) is not None
    unaligned = expected_error("gemm", "h200_sxm", {**told, "k": 4090})
    assert unaligned is not None and unaligned.family == "library_knobs unaligned"
    assert expected_error("gemm", "h200_sxm", {**told, "k": 4089}) is None
    assert unknown("gemm", "h200_sxm", {**told, "k": 4089}).endswith("hgemm on h200_sxm aligned_bytes is 2, rows have 16")


def test_words_of_cutlass_name_the_alignment(h200: GpuSpec) -> None:
    for k, is_named in ((510, True), (512, False)):
        words = library_words(choose(GemmParams(m=512, n=512, k=k), h200).params.resolved(h200))["CUTLASS"]
        assert ("AlignmentA = AlignmentB = 2" in words) == is_named


@pytest.mark.parametrize("loads", ["pointers", "descriptors"])
@pytest.mark.parametrize("k", [1001, 1002])
def test_configurations_of_triton_are_ranked_for_any_k(h200: GpuSpec, loads: Any, k: int) -> None:
    sizes = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}
    config = SimpleNamespace(kwargs=sizes, num_stages=3, num_warps=4)
    assert isfinite(TritonProblem(m=1000, n=1001, k=k, dtype="bf16", gpu=h200, loads=loads).cycles(config))
