"""Which rows of a GEMM's k-steps begin a block of what L2 takes of memory at once, and which have come along before."""

from __future__ import annotations

from typing import Any

import pytest

from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import load_gpu
from gpusim.workload import ops

from .conftest import ops_of


def copies_of(**options: Any) -> list[ops.TmaLoad | ops.CpAsync]:
    """Of A, by the first CTA of a GEMM whose tensor maps promote to 256 bytes."""
    params = {"m": 128, "n": 128, "k": 1024, "tile": "128x128x64", "l2_promotion": 256, **options}
    launch = GemmParams.model_validate(params).launch(load_gpu("h200_sxm"))
    return [op for cta, op in ops_of(launch, ops.TmaLoad, ops.CpAsync) if cta == 0 and op.tensor == "A"]


def test_a_gemms_rows_begin_their_blocks_together_where_they_lie_on_blocks() -> None:
    on = copies_of()
    assert [op.new_fraction for op in on] == [1.0] * 16
    assert [len(op.promoted_tiles) for op in on] == [1] * 16
    off = copies_of(k=1032)  # 16 bytes behind a block from row to row: an eighth of the rows would, a half does
    assert off[0].new_fraction == 1.0 and len(off[0].promoted_tiles) == 1
    assert [op.new_fraction for op in off[1:]] == pytest.approx([0.5] * 16)
    assert all(op.promoted_tiles == () for op in off[1:])
    two = copies_of(k=1088)  # every second row half a block behind the others: each begins at every second step
    assert [op.new_fraction for op in two[1:]] == pytest.approx([0.5] * 16)
    alone = copies_of(k=1032, l2_promotion=128)  # a step's rows are blocks of their own
    assert [op.new_fraction for op in alone] == [1.0] * 17


def test_few_rows_and_blocks_of_four_steps_begin_together_as_before() -> None:
    one = copies_of(m=1, k=1032)  # one row begins a block at every second step
    assert [op.new_fraction for op in one] == [1.0] * 17 and all(op.promoted_tiles for op in one[:16])
    four = copies_of(tile="128x128x32", k=1088)  # half of the rows begin one at steps 0, 4, 8, ... and half at 2, 6, 10, ...
    assert [op.new_fraction for op in four] == [1.0] * 34
    spread = copies_of(tile="128x128x32", k=1032)
    assert [op.new_fraction for op in spread[1:]] == pytest.approx([0.25] * 32)


def test_short_rows_of_an_operand_that_is_turned_come_two_by_two() -> None:
    """Rows of 32 bytes: L2 takes 64 of memory at once."""
    fma = {"dtype": "fp32", "layout": "tt", "copy": "cp_async", "math": "fma",
           "schedule": "multistage", "l2_promotion": None}
    short = copies_of(**fma, tile=(128, 128, 8), warps=(4, 2), stages=1)
    assert [op.promoted_tiles for op in short] == [((0, step ^ 1),) for step in range(128)]
    ragged = copies_of(**fma, tile=(128, 128, 8), warps=(4, 2), stages=1, k=1044)  # 16 bytes further from row to row
    assert [op.new_fraction for op in ragged[1:]] == pytest.approx([0.5] * 130)
    long = copies_of(**fma, tile=(128, 128, 16), warps=(4, 2), stages=1)
    assert all(op.promoted_tiles == () and op.new_fraction == 1.0 for op in long)
