"""Programs of kernel models are what their roles yield, CTA by CTA, however few of them were traced."""

from __future__ import annotations

from typing import Any

import pytest

from gpusim import Launch, load_gpu
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.program.records import OpKind

from .facts import facts_in, said_by
from .launches import all_traced, arguments, differences, ops_of, traced

H200 = load_gpu("h200_sxm")
NAMES_A_TILE = {
    OpKind.GLOBAL_LOAD, OpKind.GLOBAL_STORE, OpKind.GLOBAL_ATOMIC, OpKind.CP_ASYNC, OpKind.TMA_LOAD, OpKind.TMA_STORE,
}  # fmt: skip

GEMM = {"m": 520, "n": 712, "k": 264}
RING = {"stages": 3, "tile": "64x64x64"}
TWO = {"tile": "128x128x64", "stages": 2}
UNIFORM: list[tuple[str, dict[str, Any]]] = [
    ("gemm", {**GEMM, **TWO, "schedule": "cooperative"}),
    ("gemm", {**GEMM, **TWO, "schedule": "cooperative", "cluster": "2x1"}),
    ("gemm", {**GEMM, **TWO, "schedule": "cooperative", "cluster": "1x2", "batch": 2, "raster": "along_m"}),
    ("gemm", {**GEMM, **TWO, "schedule": "cooperative", "epilogue": "tma_store", "persistent": True, "m": 4096, "n": 4104}),
    ("gemm", {**GEMM, **TWO, "schedule": "pingpong", "persistent": True, "m": 4096, "n": 2048}),
    ("gemm", {**GEMM, **RING, "schedule": "warp_specialized", "beta": 1.0, "bias": True}),
    ("gemm", {**GEMM, **RING, "schedule": "warp_specialized", "copy": "cp_async"}),
    ("gemm", {**GEMM, **RING, "schedule": "multistage", "copy": "tma"}),
    ("gemm", {**GEMM, **RING, "schedule": "multistage", "copy": "cp_async", "l2_promotion": 64}),
    ("gemm", {**GEMM, **RING, "schedule": "multistage", "copy": "cp_async", "tile": "64x64x32", "l2_promotion": 128}),
    ("gemm", {**GEMM, **RING, "schedule": "multistage", "copy": "cp_async", "math": "mma_sync"}),
    ("gemm", {**GEMM, **RING, "schedule": "multistage", "copy": "tma", "math": "mma_sync", "persistent": True, "m": 2048}),
    ("gemm", {**GEMM, "tile": "64x64x8", "math": "fma", "dtype": "fp32", "out_dtype": "fp32"}),
    ("gemm", {**GEMM, **TWO, "schedule": "cooperative", "split_k": 2, "split_k_mode": "in_kernel", "k": 512}),
    ("gemm", {**GEMM, **TWO, "schedule": "cooperative", "split_k": 3, "split_k_mode": "second_kernel", "k": 512}),
    ("elementwise", {"op": "copy", "elements": (1 << 17) + 5}),
    ("elementwise", {"op": "add", "elements": 1 << 17}),
    ("elementwise", {"op": "scale", "elements": 1000, "dtype": "bf16"}),
    ("transpose", {"m": 1000, "n": 240}),
    ("transpose", {"m": 1024, "n": 512, "dtype": "bf16", "smem": "swizzled"}),
    ("transpose", {"m": 96, "n": 777, "smem": "none"}),
    ("softmax", {"rows": 777, "columns": 256, "dtype": "bf16"}),
    ("softmax", {"rows": 300, "columns": 4096}),
    ("layer_norm", {"rows": 777, "columns": 256, "dtype": "bf16"}),
    ("layer_norm", {"rows": 300, "columns": 4096}),
    ("reduction", {"rows": 512, "columns": 4096}),
    ("reduction", {"rows": 64, "columns": 16384}),
    ("reduction", {"rows": 640, "columns": 1024, "axis": "column"}),
    ("gather", {"rows": 5000, "columns": 256, "table_rows": 8192}),
    ("gather", {"rows": 4096, "columns": 1024, "table_rows": 8192, "index": "sequential"}),
    ("sgemm_naive", {"m": 200, "n": 100, "k": 128}),
    ("sgemm_naive", {"m": 100, "n": 128, "k": 128, "way": "tiled"}),
    ("smem_copy", {"m": 1000, "n": 1024}),
    ("smem_copy", {"m": 1024, "n": 1000, "copy": "tma"}),
    ("smem_copy", {"m": 300, "n": 304, "copy": "cp_async", "dtype": "fp32"}),
    ("strided_copy", {"elements": (1 << 16) + 7, "stride": 3}),
    ("strided_copy", {"elements": 1 << 16, "stride": 32}),
]  # fmt: skip
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("transpose", {"m": 1000, "n": 1000}),  # tiles at both edges have as many elements
    ("transpose", {"m": 100, "n": 1000, "dtype": "bf16"}),  # tiles begin at other places of a line
    ("smem_copy", {"m": 160, "n": 96, "tile": "64x64", "copy": "scalar"}),
    ("strided_copy", {"elements": 1000, "stride": 3, "dtype": "bf16", "threads": 32, "items_per_thread": 1}),
    ("gemm", {"m": 256, "n": 256, "k": 192, "tile": "64x64x32", "stages": 2, "schedule": "multistage", "split_k": 2}),
    ("gemm", {"m": 130, "n": 256, "k": 192, **TWO, "schedule": "cooperative", "cluster": "4x1", "split_k": 2}),
    ("gemm", {"m": 96, "n": 96, "k": 33, "tile": "32x32x8", "math": "fma", "dtype": "fp32", "l2_promotion": 256}),
]  # fmt: skip


def launches_of(name: str, options: dict[str, Any]) -> list[Launch]:
    launch = KERNEL_MODELS[name].params(**options).launch(H200)
    return [launch, *launch.following]


@pytest.mark.parametrize(("name", "options"), UNIFORM, ids=str)
def test_a_uniform_launch_has_the_programs_and_panels_that_all_of_its_ctas_have(name: str, options: dict[str, Any]) -> None:
    for launch in launches_of(name, options):
        assert launch.has_uniform_programs
        some, others = traced(launch, H200), all_traced(launch, H200)
        assert differences(some, others) == []
        num_ctas = len(some.cta_class)
        if num_ctas > 16:  # a few were traced, and no comparison failed
            assert some.num_ops_traced < others.num_ops_traced


@pytest.mark.parametrize(("name", "options"), OTHERS, ids=str)
def test_a_launch_does_not_say_that_it_is_uniform_where_it_is_not_or_may_not_be(
    name: str, options: dict[str, Any]
) -> None:
    launch, *_ = launches_of(name, options)
    assert not launch.has_uniform_programs


@pytest.mark.parametrize(("name", "options"), [*UNIFORM, *OTHERS], ids=str)
def test_records_say_what_the_roles_of_each_cta_yield(name: str, options: dict[str, Any]) -> None:
    for launch in launches_of(name, options):
        programs, num_ctas = traced(launch, H200), arguments(launch, H200)["num_ctas"]
        for cta_idx in {0, 1, num_ctas // 3, num_ctas // 2, num_ctas - 2, num_ctas - 1} & set(range(num_ctas)):
            for role_idx, role in enumerate(launch.roles):
                said = said_by(launch, role, cta_idx=cta_idx, num_ctas=num_ctas)
                assert facts_in(programs, cta_idx, role_idx) == said


@pytest.mark.parametrize(("name", "options"), UNIFORM, ids=str)
def test_ctas_name_the_panels_that_footprints_say(name: str, options: dict[str, Any]) -> None:
    for launch in launches_of(name, options):
        programs, given = traced(launch, H200), arguments(launch, H200)
        num_ctas = given["num_ctas"]
        for cta_idx in {0, num_ctas // 2, num_ctas - 1}:
            tiles = range(cta_idx, launch.num_tiles, num_ctas)
            for role_idx in range(len(launch.roles)):
                for row in ops_of(programs, cta_idx, role_idx):
                    if row["kind"] not in NAMES_A_TILE:
                        continue
                    tensor = programs.tensors[row["extra"]]
                    panel = programs.cta_panels[cta_idx, row["panel"]]
                    if tensor in given["panels_of"]:
                        assert panel in given["panels_of"][tensor][list(tiles)]
