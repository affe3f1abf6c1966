"""Reductions told in the vocabulary: what they touch, what they count, what they refuse."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpusim.errors import KernelError
from gpusim.kernel_models.reduction import ReductionParams
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.simulate.run import simulate
from gpusim.workload import ops

from .conftest import bytes_by_panel, footprint_bytes, ops_of

SHAPES: list[dict[str, Any]] = [
    {"rows": 9, "columns": 4096}, {"rows": 5, "columns": 1024, "dtype": "bf16"}, {"rows": 2, "columns": 65536},
    {"rows": 3, "columns": 5000, "dtype": "fp16"}, {"rows": 3, "columns": 333, "vector_bytes": 4},
    {"rows": 4, "columns": 9472}, {"rows": 128, "columns": 512, "axis": "column"},
    {"rows": 192, "columns": 512, "axis": "column", "dtype": "bf16"},
    {"rows": 96, "columns": 256, "axis": "column", "rows_per_cta": 24, "vector_bytes": 8},
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape.values())))
def test_footprints_are_what_ctas_touch_and_all_of_it_is_read_once(h200: GpuSpec, shape: dict[str, Any]) -> None:
    params = ReductionParams(**shape)
    launch = params.launch(h200)
    read = bytes_by_panel(launch, ops.GlobalLoad)
    assert read == footprint_bytes(launch, "read")
    assert sum(read["in"].values()) == params.rows * params.columns * params.element.num_bytes
    assert bytes_by_panel(launch, ops.GlobalStore, ops.GlobalAtomic) == footprint_bytes(launch, "write")


@pytest.mark.parametrize(("columns", "alone", "turns"), [
    (4096, 0, 1), (1024, 1, 0), (65536, 0, 16), (9472, 2, 2), (5120, 1, 1),
])  # fmt: skip
def test_four_loads_are_under_way_and_what_is_left_over_comes_first(
    h200: GpuSpec, columns: int, alone: int, turns: int
) -> None:
    launch = ReductionParams(rows=133, columns=columns).launch(h200)
    loads = [op.access.num_requests for cta, op in ops_of(launch, ops.GlobalLoad) if not cta]
    assert len(loads) == alone + turns
    assert all(num <= 8 for num in loads[:alone]) and loads[alone:] == [32] * turns


def test_warps_of_a_long_row_go_on_by_themselves_where_an_sm_has_one_cta(h200: GpuSpec) -> None:
    alone, crowded, short = (
        ReductionParams(rows=rows, columns=columns).launch(h200)
        for rows, columns in ((132, 65536), (133, 65536), (4, 4096))
    )
    assert [len(launch.roles) for launch in (alone, crowded, short)] == [8, 1, 1]
    assert alone.num_threads == crowded.num_threads
    assert footprint_bytes(alone, "read")["in"][0] == footprint_bytes(crowded, "read")["in"][0] == 4 * 65536


def test_a_column_is_one_atomic_a_block_of_rows(h200: GpuSpec) -> None:
    launch = ReductionParams(rows=256, columns=512, axis="column").launch(h200)
    atomics = ops_of(launch, ops.GlobalAtomic)
    assert launch.num_ctas == 4 * 4 == len(atomics)
    assert [op.tile for _, op in atomics[:5]] == [(0, 0), (1, 0), (2, 0), (3, 0), (0, 0)]
    assert all(op.access.num_bytes == 512 and op.access.num_requests == 4 for _, op in atomics)


def test_sums_of_two_bytes_side_by_side_conflict_two_ways(h200: GpuSpec) -> None:
    fp32, bf16 = (
        ops_of(ReductionParams(rows=64, columns=256, axis="column", dtype=dtype).launch(h200), ops.SharedStore)[0][1].access
        for dtype in ("fp32", "bf16")
    )
    assert (fp32.num_requests, fp32.num_wavefronts) == (8, 32), "16 bytes a lane side by side: four wavefronts a warp"
    assert (bf16.num_requests, bf16.num_wavefronts) == (16, 128), "32 bytes apart: eight for each of two stores"


@pytest.mark.parametrize("axis", ["row", "column"])
def test_sectors_and_bytes_of_memory_follow_from_the_size(h200: GpuSpec, axis: str) -> None:
    params = ReductionParams(rows=1024, columns=4096, axis=axis)  # type: ignore[arg-type]  # one of its words
    counters = simulate(params.launch(h200), h200, clock="max").counters
    sectors = params.rows * params.columns * 4 / 32
    assert counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == pytest.approx(sectors)
    assert counters["lts__t_sectors_srcunit_tex_op_read.sum"] == pytest.approx(sectors)
    assert counters["dram__bytes_read.sum"] == pytest.approx(32 * sectors)


@pytest.mark.parametrize(("shape", "says"), [
    ({"rows": 8, "columns": 1001}, "1001 columns are no full vectors of 4 elements"),
    ({"rows": 8, "columns": 64, "vector_bytes": 2}, "use --vector-bytes 4 or more"),
    ({"rows": 64, "columns": 100, "axis": "column"}, "100 columns are no multiple of 128 (what a warp reads at once)"),
    ({"rows": 65, "columns": 128, "axis": "column"}, "65 rows are no multiple of 64 (the rows of a CTA)"),
    ({"rows": 60, "columns": 128, "axis": "column", "rows_per_cta": 20}, "20 rows per CTA are no multiple of 8"),
    ({"rows": 64, "columns": 128, "axis": "column", "threads": 64}, "64 threads finish 128 columns, wants one each"),
    ({"rows": 2**32, "columns": 128}, "use fewer --rows"),
])  # fmt: skip
def test_what_does_not_come_out_even_is_refused(h200: GpuSpec, shape: dict[str, Any], says: str) -> None:
    with pytest.raises(KernelError, match=re.escape(says)):
        ReductionParams(**shape).launch(h200)


def test_it_runs_on_the_toy_and_on_every_architecture() -> None:
    for name in ("toy", "a100_sxm_80gb", "h100_sxm"):
        gpu = load_gpu(name)
        for axis in ("row", "column"):
            params = ReductionParams(rows=64, columns=256, axis=axis, threads=128)  # type: ignore[arg-type]  # as above
            assert simulate(params.launch(gpu), gpu, clock="max").cycles > 0
