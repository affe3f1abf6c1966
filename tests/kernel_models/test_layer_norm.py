"""Layer normalization told in the vocabulary: what it touches, what it counts, what it refuses."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpusim.errors import KernelError
from gpusim.kernel_models.layer_norm import LayerNormParams
from gpusim.machine.config import GpuSpec, load_gpu
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
    params = LayerNormParams(**shape)
    launch = params.launch(h200)
    for access, kind, more in (("read", ops.GlobalLoad, 2), ("write", ops.GlobalStore, 0)):
        live = bytes_by_panel(launch, kind)
        assert live == footprint_bytes(launch, access)
        assert sum(sum(panels.values()) for panels in live.values()) == (params.rows + more) * params.row_bytes


def test_gamma_and_beta_are_asked_for_once_a_row_and_the_first_row_brings_them(h200: GpuSpec) -> None:
    launch = LayerNormParams(rows=8 * 133, columns=1024).launch(h200)
    loads = [op for cta, op in ops_of(launch, ops.GlobalLoad) if op.tensor in ("gamma", "beta") and not cta]
    assert sum(op.access.num_bytes for op in loads) == 2 * 8 * 4096
    first = {(op.tensor, op.tile): op.access.num_bytes for op in reversed(loads)}
    assert sum(first.values()) == 2 * 4096, "a row's bytes name every tile first"
    assert launch.num_ctas == 133 and sum(op.num_instructions for _, op in ops_of(launch, ops.Mufu)) == 133


@pytest.mark.parametrize(("dtype", "columns", "per", "trips"), [
    ("fp32", 4096, "block", ((3, 0), (1, 4))), ("fp32", 1024, "warp", ((3, 3), (3, 0), (2, 5))),
    ("bf16", 4096, "block", ((2, 2),)), ("bf16", 1024, "warp", ((4, 4),)), ("fp32", 128, "warp", ((1, 1),)),
])  # fmt: skip
def test_a_lane_asks_for_vectors_of_gamma_and_beta_as_it_has_registers(
    h200: GpuSpec, dtype: str, columns: int, per: str, trips: tuple[tuple[int, int], ...]
) -> None:
    """Of each trip the vectors that are loaded, and those of the row that are then stored, behind the variance."""
    params = LayerNormParams(rows=1, columns=columns, per=per, dtype=dtype)
    launch = params.launch(h200)
    assert tuple(map(sum, zip(*trips, strict=True))) == (params.vectors, params.vectors)
    words = ""
    for _, op in ops_of(launch, (ops.Mufu, ops.GlobalLoad, ops.Use, ops.GlobalStore)):
        if type(op) is ops.Mufu:
            words = ""
        else:
            words += op.tensor[0] if type(op) is ops.GlobalLoad else "u" if type(op) is ops.Use else "s"
    assert words == "".join("gbuu" + "s" * stored for _, stored in trips)


def test_l1_serves_gamma_and_beta_to_all_rows_but_the_first_of_an_sm(h200: GpuSpec) -> None:
    params = LayerNormParams(rows=4096, columns=1024)
    counters = simulate(params.launch(h200), h200, clock="max").counters
    sectors = params.rows * params.row_bytes / 32
    assert counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == pytest.approx(3 * sectors)
    read = counters["lts__t_sectors_srcunit_tex_op_read.sum"]
    assert sectors < read <= sectors + 132 * 2 * params.row_bytes / 32
    assert counters["dram__bytes_read.sum"] == pytest.approx(32 * sectors + 2 * params.row_bytes)


@pytest.mark.parametrize(("shape", "says"), [
    ({"rows": 8, "columns": 1001}, "1001 columns are no full vectors of 16 bytes: use --vector-bytes 4"),
    ({"rows": 8, "columns": 40001, "dtype": "bf16"}, "--vector-bytes 2 --per block --threads 320"),
    ({"rows": 8, "columns": 8192}, "8192 columns are 256 values a lane, which keeps at most 128: use --per block"),
    ({"rows": 2**36, "columns": 1024}, "use fewer --rows"),
])  # fmt: skip
def test_what_lanes_cannot_share_or_keep_is_refused(h200: GpuSpec, shape: dict[str, Any], says: str) -> None:
    with pytest.raises(KernelError, match=re.escape(says)):
        LayerNormParams(**shape).launch(h200)


def test_more_rows_take_longer_and_half_the_bytes_less(h200: GpuSpec) -> None:
    def cycles(**params: Any) -> float:
        return simulate(LayerNormParams(columns=1024, **params).launch(h200), h200, clock="max").cycles

    assert cycles(rows=4096) < cycles(rows=16384)
    assert cycles(rows=16384, dtype="bf16") < cycles(rows=16384)


def test_it_runs_on_the_toy_and_on_every_architecture() -> None:
    for name in ("toy", "a100_sxm_80gb", "h100_sxm"):
        gpu = load_gpu(name)
        assert simulate(LayerNormParams(rows=64, columns=256, threads=64).launch(gpu), gpu, clock="max").cycles > 0
