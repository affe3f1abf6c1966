"""Thread tiles of FFMA: bank conflicts, sectors and refusals, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from gpusim.errors import KernelError
from gpusim.evidence.validate.expected_error import expected_error, unknown
from gpusim.kernel_models.gemm import GemmParams
from gpusim.kernel_models.mainloop.threads import ThreadTile
from gpusim.machine.config import load_gpu
from gpusim.workload.dtypes import FP32
from gpusim.workload.operands import OperandTile

GPU = load_gpu("h200_sxm")
ADJACENT, SCALAR = ThreadTile(is_adjacent=True), ThreadTile(is_scalar=True)
BY_K = OperandTile(rows=128, k=16, dtype=FP32, is_k_major=False, swizzle="none")
BY_ROW = OperandTile(rows=128, k=16, dtype=FP32, is_k_major=True, swizzle="none")


def test_vectors_in_turn_have_no_conflicts_and_adjacent_ones_two_each() -> None:
    """Eight lanes read 128 bytes at once; at a stride of 32 bytes they meet in the banks of 256 bytes."""
    in_turn, adjacent = (tile.reads(BY_K, 1, 8) for tile in (ThreadTile(), ADJACENT))
    assert (in_turn.num_requests, in_turn.num_bytes) == (2, 32 * 8 * 4)
    assert (in_turn.num_wavefronts, adjacent.num_wavefronts) == (8, 16)


def test_rows_of_k_collide_by_their_pitch() -> None:
    """Rows of 16 words: four that are adjacent share two banks, four that are eight rows apart share one."""
    in_turn = SCALAR.reads(BY_ROW, 0, 8)
    adjacent = ThreadTile(is_adjacent=True, is_scalar=True).reads(BY_ROW, 0, 8)
    assert (in_turn.num_requests, in_turn.num_wavefronts, adjacent.num_wavefronts) == (8, 8 * 2, 8 * 4)


@pytest.mark.parametrize(("tile", "num_requests", "sectors_of_row"), [(ADJACENT, 4, 32), (SCALAR, 16, 16)])
def test_adjacent_columns_are_stored_in_halves_of_sectors(tile: ThreadTile, num_requests: int, sectors_of_row: int) -> None:
    """Of 128 columns of fp32, 16 sectors: an instruction stores four rows, of vectors or of words."""
    access = tile.stores(4, 128, 8, 4, 16)
    assert (access.num_requests, access.num_sectors) == (num_requests, 4 * sectors_of_row)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtype": "bf16", "thread_tile": "adjacent"}, "threads have tiles in kernels of FFMA"),
        ({"dtype": "fp32", "thread_access": "scalar", "epilogue": "smem"}, "direct, or --thread-access vector"),
        ({"dtype": "fp32", "thread_access": "scalar", "tile": (128, 128, 6)}, "takes multiples of 4"),
    ],
)
def test_what_no_thread_tile_can_do_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(KernelError, match=words):
        GemmParams(m=512, n=512, k=512, **options).launch(GPU)


def test_no_measured_row_judges_a_thread_tile() -> None:
    params = GemmParams(m=4096, n=4096, k=512, dtype="fp32", stages=2, thread_tile="adjacent").resolved(GPU)
    assert expected_error("gemm", "h200_sxm", params.as_options()) is None
    assert "thread_tile is adjacent, no row sets it" in unknown("gemm", "h200_sxm", params.as_options())
