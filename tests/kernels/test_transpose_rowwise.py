"""transpose_rowwise: the reference is numpy's transpose, a wrong element is refused, the model launches the same grid."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from gpusim import load_gpu, simulate
from gpusim.evidence.cases.case import WrongAnswer, load_case
from gpusim.kernel_models.transpose import TransposeParams

CASE, GPU = load_case("transpose_rowwise"), load_gpu("h200_sxm")
case = sys.modules[CASE.launch.__module__]
ALL = CASE.configs("drawn", 1)
SMALL = [case.Row(kernel, rows=40, columns=72, threads=128) for kernel in case.KERNELS]


def outputs_of(config: Any) -> dict[str, np.ndarray]:
    """Transposed matrix."""
    dtype = "<u4" if config.element_bytes == 4 else "<u2"
    given = case.source(config).window(0, config.rows * config.columns * config.element_bytes).view(dtype)
    return {"out": given.reshape(config.rows, config.columns).T.copy().reshape(-1).view(np.uint8)}


@pytest.mark.parametrize("config", ALL, ids=str)
def test_the_model_launches_the_same_grid(config: Any) -> None:
    launched = CASE.launch(config, False)
    params = TransposeParams(**case.options(config))
    assert launched.block[0] == params.threads
    assert launched.grid[0] == -(-params.m * params.n // (params.threads * params.items_per_thread))


@pytest.mark.parametrize("config", SMALL, ids=str)
def test_the_untransposed_matrix_is_refused(config: Any) -> None:
    right = outputs_of(config)
    CASE.check(config, right)
    with pytest.raises(WrongAnswer, match="byte"):
        CASE.check(config, {"out": case.source(config).window(0, len(right["out"]))})


@pytest.mark.parametrize(("m", "n", "dtype", "threads", "items"), [
    (500, 4096, "bf16", 512, 4),  # a CTA has four columns of one sector
    (32, 4096, "fp32", 512, 16),  # a CTA has all columns of 32 sectors
    (1000, 512, "fp32", 128, 2),  # a CTA has a quarter of a column, or the ends of two
    (2048, 300, "bf16", 128, 4),  # rows end in the midst of a sector
])  # fmt: skip
def test_memory_gives_the_matrix_once_and_l2_a_sector_for_each_element(
    m: int, n: int, dtype: str, threads: int, items: int
) -> None:
    params = TransposeParams.model_validate({
        "m": m, "n": n, "dtype": dtype, "smem": "none", "coalesced": "stores", "threads": threads, "items_per_thread": items,
    })  # fmt: skip
    counters = simulate(params.launch(GPU), GPU).counters
    num_bytes = m * n * (4 if dtype == "fp32" else 2)
    assert counters["dram__bytes_read.sum"] == pytest.approx(num_bytes, rel=0.01)
    assert counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == m * n
    assert counters["lts__t_sectors_srcunit_tex_op_read.sum"] == pytest.approx(m * n, rel=1e-6)
    assert counters["lts__t_sectors_srcunit_tex_op_write.sum"] == pytest.approx(num_bytes / 32, rel=0.01)
