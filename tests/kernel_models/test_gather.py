"""Gather told in the vocabulary: what it touches, what it counts, what it refuses."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from gpusim.errors import KernelError
from gpusim.kernel_models.gather import GatherParams
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.simulate.run import simulate
from gpusim.workload import ops

from .conftest import bytes_by_panel, footprint_bytes, ops_of

SHAPES: list[dict[str, Any]] = [
    {"rows": 512, "columns": 32}, {"rows": 96, "columns": 128}, {"rows": 24, "columns": 1024}, {"rows": 8, "columns": 4096},
    {"rows": 100, "columns": 32}, {"rows": 70, "columns": 256, "dtype": "bf16"}, {"rows": 13, "columns": 2048},
]  # fmt: skip


@pytest.mark.parametrize("index", ["random", "sequential"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape.values())))
def test_footprints_are_what_ctas_touch_and_every_row_is_moved_once(
    h200: GpuSpec, shape: dict[str, Any], index: str
) -> None:
    params = GatherParams(table_rows=1024, index=index, **shape)
    launch = params.launch(h200)
    read, written = bytes_by_panel(launch, ops.GlobalLoad), bytes_by_panel(launch, ops.GlobalStore)
    reads, writes = footprint_bytes(launch, "read"), footprint_bytes(launch, "write")
    assert read["table"] == written["out"] == writes["out"] == reads["table"]
    assert sum(written["out"].values()) == params.rows * params.row_bytes
    assert sum(reads["index"].values()) == 4 * params.rows


@pytest.mark.parametrize(("columns", "rows_per_cta", "vectors"), [
    (32, 128, [4]), (128, 32, [4]), (512, 8, [4]), (1024, 8, [6, 2]),
])  # fmt: skip
def test_a_lane_has_four_vectors_or_six_of_a_longer_row_under_way(
    h200: GpuSpec, columns: int, rows_per_cta: int, vectors: list[int]
) -> None:
    params = GatherParams(rows=rows_per_cta, columns=columns, table_rows=rows_per_cta)
    assert params.rows_per_cta == rows_per_cta
    loads = [op.access for _, op in ops_of(params.launch(h200), ops.GlobalLoad) if op.tensor == "table"]
    assert [access.num_requests for access in loads] == [8 * num for num in vectors]
    assert sum(access.num_sectors for access in loads) * 32 == rows_per_cta * params.row_bytes


def test_numbers_of_rows_cost_their_sectors_once_and_the_rest_hits(h200: GpuSpec) -> None:
    launch = GatherParams(rows=128, columns=32, table_rows=128).launch(h200)
    new, again = [op.access for _, op in ops_of(launch, ops.GlobalLoad) if op.tensor == "index"]
    assert new.num_sectors == 128 * 4 // 32 and new.num_requests + again.num_requests == 8 * 4


def test_a_table_that_l2_holds_is_read_from_memory_once_and_a_large_one_nearly_row_by_row(h200: GpuSpec) -> None:
    small = GatherParams(rows=2**15, columns=128, table_rows=2**13)  # of 4 MiB, four times
    counters = simulate(small.launch(h200), h200, clock="max").counters
    assert counters["dram__bytes_read.sum"] == pytest.approx(2**22 * (1 - np.exp(-4.0)) + 4 * 2**15, rel=0.02)
    large = GatherParams(rows=2**15, columns=128, table_rows=2**23)  # 16 MiB out of 4 GiB
    counters = simulate(large.launch(h200), h200, clock="max").counters
    assert counters["dram__bytes_read.sum"] == pytest.approx(2**24 + 4 * 2**15, rel=0.02)


@pytest.mark.parametrize(("shape", "says"), [
    ({"rows": 8, "columns": 100}, "rows of 400 bytes, wants a power of two from 128 bytes on: use --columns 64"),
    ({"rows": 8, "columns": 16}, "rows of 64 bytes, wants a power of two from 128 bytes on: use --columns 32"),
    ({"rows": 8, "columns": 8192}, "more than 32 vectors a lane: use at most 4096 --columns"),
    ({"rows": 2000, "columns": 32, "index": "sequential"}, "2000 rows one behind the other, the table has 1024"),
])  # fmt: skip
def test_rows_that_lanes_do_not_share_evenly_are_refused(h200: GpuSpec, shape: dict[str, Any], says: str) -> None:
    with pytest.raises(KernelError, match=re.escape(says)):
        GatherParams(table_rows=1024, **shape).launch(h200)


def test_it_runs_on_the_toy_and_on_every_architecture() -> None:
    for name in ("toy", "a100_sxm_80gb", "h100_sxm"):
        gpu = load_gpu(name)
        params = GatherParams(rows=64, columns=64, table_rows=64, threads=64)
        assert simulate(params.launch(gpu), gpu, clock="max").cycles > 0
