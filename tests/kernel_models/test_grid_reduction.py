"""Sums in two steps: every element is read once, parts are stored and read, counters count each CTA."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpusim.errors import KernelError
from gpusim.kernel_models.reduction import ReductionParams
from gpusim.machine.config import GpuSpec
from gpusim.simulate.run import simulate
from gpusim.workload import ops

from .conftest import bytes_by_panel, footprint_bytes, ops_of

SHAPES: list[dict[str, Any]] = [
    {"rows": 37, "columns": 1000, "per": "warp", "threads": 512},
    {"rows": 37, "columns": 1000, "per": "warp", "threads": 512, "unroll": 1, "vector_bytes": 4},
    {"rows": 5, "columns": 50000, "ctas_per_sum": 3, "finish": "last_cta"},
    {"rows": 5, "columns": 50000, "ctas_per_sum": 3, "threads": 512},
    {"rows": 64, "columns": 4096, "axis": "all", "ctas_per_sum": 7, "finish": "second_launch", "dtype": "bf16"},
    {"rows": 1000, "columns": 512, "axis": "column", "rows_per_cta": 100, "threads": 512, "finish": "last_cta"},
    {"rows": 1000, "columns": 512, "axis": "column", "rows_per_cta": 300, "finish": "second_launch"},
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_element_is_read_once_and_every_sum_written(h200: GpuSpec, shape: dict[str, Any]) -> None:
    params = ReductionParams(**shape)
    launch = params.launch(h200)
    live = bytes_by_panel(launch, ops.GlobalLoad)
    assert live["in"] == {panel: size for panel, size in footprint_bytes(launch, "read")["in"].items() if size}
    assert sum(live["in"].values()) == params.rows * params.columns * params.element.num_bytes
    last = launch.following[-1] if launch.following else launch
    num_sums = {"row": params.rows, "column": params.columns, "all": 1}[params.axis]
    stores = bytes_by_panel(last, ops.GlobalStore, ops.GlobalAtomic)["out"]
    assert sum(stores.values()) == 4 * num_sums


def test_the_last_cta_alone_reads_all_parts(h200: GpuSpec) -> None:
    shape = {"rows": 1024, "columns": 4096, "axis": "all", "threads": 512, "ctas_per_sum": 264, "finish": "last_cta"}
    launch = ReductionParams(**shape).launch(h200)
    parts = [op.access.num_bytes for _, op in ops_of(launch, ops.GlobalLoad) if op.tensor == "parts"]
    assert sorted(parts)[-2:] == [4, 4 * 264] and len(parts) == 264
    counted = [op for _, op in ops_of(launch, ops.GlobalAtomic)]
    assert len(counted) == 264 and all(op.returns and op.tensor == "counter" for op in counted)
    assert len(ops_of(launch, ops.FenceAcqRel)) == 264 * 2 * 4


def test_torchs_last_cta_adds_a_part_of_each_warp_before_it_loads_the_next(h200: GpuSpec) -> None:
    shape = {"rows": 4160, "columns": 512, "axis": "column", "rows_per_cta": 64, "dtype": "bf16", "threads": 128}
    shape |= {"vector_bytes": 8, "finish": "last_cta", "code": "torch"}
    launch = ReductionParams(**shape).launch(h200)  # 65 parts, four groups of columns, four warps
    parts = [op.access.num_requests for _, op in ops_of(launch, ops.GlobalLoad) if op.tensor == "parts"]
    assert parts == 4 * [*16 * [4], 1], "65 parts of a group: 16 turns of all warps, and a part that is left"
    loads = [op.access.num_requests for idx, op in ops_of(launch, ops.GlobalLoad) if op.tensor == "in" and not idx]
    assert loads == 4 * [16], "16 rows of each warp: four turns of four loads in flight"
    whole = ReductionParams(**{**shape, "rows": 76, "rows_per_cta": 76, "finish": "atomic"}).launch(h200)
    loads = [op.access.num_requests for idx, op in ops_of(whole, ops.GlobalLoad) if not idx]
    assert loads == [*4 * [16], 4, 4, 4], "19 rows: three that are left, of which the first two are not in flight at once"


def test_a_second_launch_takes_longer_than_a_counter_and_more_parts_help(h200: GpuSpec) -> None:
    def us(**options: Any) -> float:
        shape = {"rows": 1024, "columns": 4096, "axis": "all", "threads": 512, **options}
        return simulate(ReductionParams(**shape).launch(h200), h200, clock="max").time_us

    assert us(ctas_per_sum=264, finish="last_cta") < us(ctas_per_sum=264, finish="second_launch")
    assert us(ctas_per_sum=264, finish="last_cta") < us(ctas_per_sum=16, finish="last_cta")
    assert us(ctas_per_sum=64, unroll=4, finish="last_cta") < us(ctas_per_sum=64, unroll=1, finish="last_cta")


def test_memory_is_read_once(h200: GpuSpec) -> None:
    for shape in (SHAPES[2], SHAPES[5]):
        params = ReductionParams(**shape)
        counters = simulate(params.launch(h200), h200, clock="max", l2="flushed").counters
        size = params.rows * params.columns * 4
        assert counters["dram__bytes_read.sum"] == pytest.approx(size, rel=0.01)


@pytest.mark.parametrize(("shape", "says"), [
    ({"rows": 8, "columns": 1024, "per": "warp", "ctas_per_sum": 2}, "a warp sums a row alone"),
    ({"rows": 8, "columns": 1024, "per": "warp", "axis": "all"}, "a warp sums a row alone"),
    ({"rows": 512, "columns": 1024, "axis": "column", "ctas_per_sum": 4}, "--ctas-per-sum 4: a CTA sums --rows-per-cta"),
    ({"rows": 512, "columns": 1024, "rows_per_cta": 32}, "--rows-per-cta 32: a CTA sums one row, or a part of it"),
    ({"rows": 8, "columns": 1000, "axis": "column", "finish": "last_cta"}, "1000 columns are no multiple of 128"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(h200: GpuSpec, shape: dict[str, Any], says: str) -> None:
    with pytest.raises(KernelError, match=re.escape(says)):
        ReductionParams(**shape).launch(h200)


def test_the_sum_of_all_elements_has_many_ctas_unless_told(h200: GpuSpec) -> None:
    large = ReductionParams(rows=4096, columns=4096, axis="all").resolved(h200)
    assert (large.ctas_per_sum, large.num_ctas) == (1024, 1024)
    assert ReductionParams(rows=8, columns=64, axis="all").resolved(h200).ctas_per_sum == 1
    assert ReductionParams(rows=4096, columns=4096, axis="all", ctas_per_sum=1).resolved(h200).ctas_per_sum == 1
    assert ReductionParams(rows=16, columns=4096).resolved(h200).ctas_per_sum == 1
