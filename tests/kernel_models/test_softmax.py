"""Softmax told in the vocabulary: what it touches, what it counts, what it refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.errors import KernelError
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.kernel_models.softmax import SoftmaxParams
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.simulate.plan import check
from gpusim.simulate.run import simulate
from gpusim.workload import ops

from .conftest import bytes_by_panel, footprint_bytes, ops_of

SHAPES: list[dict[str, Any]] = [
    {"rows": 64, "columns": 1024}, {"rows": 61, "columns": 1024, "dtype": "bf16"},
    {"rows": 5, "columns": 4096, "per": "block"}, {"rows": 3, "columns": 8192, "per": "block", "dtype": "fp16"},
    {"rows": 16, "columns": 512, "threads": 64},
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape.values())))
def test_footprints_are_what_ctas_touch_and_all_of_it_is_read_and_written_once(h200: GpuSpec, shape: dict[str, Any]) -> None:
    params = SoftmaxParams(**shape)
    launch = params.launch(h200)
    for access, kind in (("read", ops.GlobalLoad), ("write", ops.GlobalStore)):
        live = bytes_by_panel(launch, kind)
        assert live == footprint_bytes(launch, access)
        assert sum(sum(panels.values()) for panels in live.values()) == params.rows * params.row_bytes


def test_each_element_is_a_maximum_an_exponential_and_a_product(h200: GpuSpec) -> None:
    params = SoftmaxParams(rows=8 * 133, columns=1024)
    launch = params.launch(h200)
    assert params.values == 32 and params.vectors == 8 and launch.num_ctas == 133
    launch = replace(launch, num_ctas=1)
    exponentials = [op.num_instructions for _, op in ops_of(launch, ops.Mufu)]
    assert exponentials == [32, 1], "an exponential an element, and a reciprocal"
    assert sum(op.num_instructions for _, op in ops_of(launch, ops.Shfl)) == 2 * 5
    assert not ops_of(launch, ops.Syncthreads, ops.SharedStore)


def test_warps_go_on_by_themselves_where_an_sm_has_one_cta(h200: GpuSpec) -> None:
    few, many = (SoftmaxParams(rows=8 * num, columns=1024).launch(h200) for num in (132, 133))
    assert [role.num_warps for role in few.roles] == [1] * 8 and [role.num_warps for role in many.roles] == [8]
    assert bytes_by_panel(few, ops.GlobalLoad)["in"] == dict.fromkeys(range(132), 8 * 4096)


def test_a_block_meets_twice_and_leaves_a_word_a_warp(h200: GpuSpec) -> None:
    launch = SoftmaxParams(rows=1, columns=4096, per="block").launch(h200)
    assert len(ops_of(launch, ops.Syncthreads)) == 2
    assert sum(op.num_instructions for _, op in ops_of(launch, ops.Shfl)) == 2 * (5 + 3)
    assert [op.access.num_bytes for _, op in ops_of(launch, ops.SharedStore)] == [32, 32]
    assert launch.smem_bytes == 64


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_sectors_and_bytes_of_memory_follow_from_the_size(h200: GpuSpec, dtype: str) -> None:
    params = SoftmaxParams(rows=2048, columns=1024, dtype=dtype)  # type: ignore[arg-type]  # one of its words
    counters = simulate(params.launch(h200), h200, clock="max").counters
    sectors = params.rows * params.row_bytes / 32
    assert counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == pytest.approx(sectors)
    assert counters["lts__t_sectors_srcunit_tex_op_read.sum"] == pytest.approx(sectors)
    assert counters["lts__t_sectors_srcunit_tex_op_write.sum"] == pytest.approx(sectors)
    assert counters["dram__bytes_read.sum"] == pytest.approx(32 * sectors)


@pytest.mark.parametrize(("shape", "says"), [
    ({"rows": 8, "columns": 1001}, "1001 columns are no full vectors of 16 bytes: use --vector-bytes 4"),
    ({"rows": 8, "columns": 40001, "dtype": "bf16"}, "--vector-bytes 2 --per block --threads 320"),
    ({"rows": 8, "columns": 8192}, "8192 columns are 256 values a lane, which keeps at most 128: use --per block"),
    ({"rows": 2**36, "columns": 1024}, "use fewer --rows"),
])  # fmt: skip
def test_what_lanes_cannot_share_or_keep_is_refused(h200: GpuSpec, shape: dict[str, Any], says: str) -> None:
    with pytest.raises(KernelError, match=re.escape(says)):
        SoftmaxParams(**shape).launch(h200)


def test_more_rows_take_longer_and_half_the_bytes_less(h200: GpuSpec) -> None:
    def cycles(**params: Any) -> float:
        return simulate(SoftmaxParams(columns=1024, **params).launch(h200), h200, clock="max").cycles

    assert cycles(rows=4096) < cycles(rows=16384)
    assert cycles(rows=16384, dtype="bf16") < cycles(rows=16384)


def test_it_runs_on_the_toy_and_on_every_architecture() -> None:
    for name in ("toy", "a100_sxm_80gb", "h100_sxm"):
        gpu = load_gpu(name)
        assert simulate(SoftmaxParams(rows=64, columns=256, threads=64).launch(gpu), gpu, clock="max").cycles > 0


@pytest.mark.parametrize("per", ["warp", "block"])
@pytest.mark.parametrize("columns", [33, 1001, 65535, 65536, 99968, 100000, 131072])
def test_what_a_refusal_of_columns_advises_is_taken(columns: int, per: str, h200: GpuSpec) -> None:
    """No advice leads to the next refusal."""
    asked: dict[str, Any] = {"rows": 64, "columns": columns, "per": per}
    with pytest.raises(KernelError) as refused:
        SoftmaxParams(**asked).launch(h200)
    words = str(refused.value).split(": use ")[1].split()
    asked |= {flag[2:].replace("-", "_"): value for flag, value in zip(words[::2], words[1::2], strict=True)}
    SoftmaxParams(**asked).launch(h200)


@pytest.mark.parametrize("kernel", ["softmax", "layer_norm"])
@pytest.mark.parametrize("options", [{}, {"per": "block", "threads": 1024}, {"dtype": "bf16"}, {"threads": 1024}])
@given(columns=st.integers(1, 1 << 20))
def test_advice_on_rows_is_accepted_when_it_is_followed(kernel: str, options: dict[str, Any], columns: int) -> None:
    kind, gpu = KERNEL_MODELS[kernel].params, load_gpu("h200_sxm")
    given = {"rows": 8, "columns": columns, **options}
    try:
        check(kind(**given).launch(gpu), gpu)
    except KernelError as error:  # registers, too, and at once
        words = re.findall(r"--([\w-]+) (\w+)", str(error).partition("use ")[2])
        assert words
        check(kind(**{**given, **{flag.replace("-", "_"): value for flag, value in words}}).launch(gpu), gpu)
