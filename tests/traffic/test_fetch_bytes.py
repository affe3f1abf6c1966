"""Where single sectors are missing, memory gives whole blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpusim.kernel_models.strided_copy import StridedCopyParams
from gpusim.machine.config import load_gpu
from gpusim.simulate.run import simulate

TOY = load_gpu("toy")


def read_bytes(fetch_bytes: int, **options: Any) -> tuple[float, float]:
    """(bytes from memory, sectors asked of L2) of a strided copy."""
    gpu = replace(TOY, l2=replace(TOY.l2, fetch_bytes=fetch_bytes))
    counters = simulate(StridedCopyParams(**options).launch(gpu), gpu, clock="max").counters
    return counters["dram__bytes_read.sum"], counters["lts__t_sectors_srcunit_tex_op_read.sum"]


@pytest.mark.parametrize(
    ("stride", "fetch_bytes", "by_hand"),
    [
        (1, 64, 4 * 2048),  # side by side: nothing more
        (8, 64, 32 * 2048),  # a word of each sector: both of a block are asked for
        (16, 64, 64 * 2048),  # of each second one: its neighbour comes along
        (32, 64, 64 * 2048),
        (32, 32, 32 * 2048),
        (32, 128, 128 * 2048),
    ],
)
def test_a_block_comes_for_each_that_is_touched(stride: int, fetch_bytes: int, by_hand: int) -> None:
    found, sectors = read_bytes(fetch_bytes, elements=2048, stride=stride)
    assert found == by_hand
    assert sectors == max(4 * stride, 4) * 2048 / 32 if stride <= 8 else sectors == 2048


def test_larger_blocks_take_longer_where_memory_is_what_bounds() -> None:
    options = {"elements": 1 << 15, "stride": 32}
    cycles = []
    for fetch_bytes in (32, 64):
        gpu = replace(TOY, l2=replace(TOY.l2, fetch_bytes=fetch_bytes))
        cycles.append(simulate(StridedCopyParams(**options).launch(gpu), gpu, clock="max").cycles)
    least = (64 - 32) * (1 << 15) / (TOY.hbm.sustained_read_gb_per_s / TOY.clock.max_mhz * 1e3)
    assert cycles[1] - cycles[0] > 0.7 * least
