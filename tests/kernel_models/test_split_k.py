"""Parts of K that are added up in the kernel: who counts, who reads the sum, in which order."""

from __future__ import annotations

import pytest

from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import GpuSpec
from gpusim.workload import ops

from .conftest import dry_run

PROBLEM = {"m": 128, "n": 128, "k": 512, "tile": "128x128x64", "stages": 3, "schedule": "warp_specialized", "consumers": 1}


def behind_math(gpu: GpuSpec, part: int, **options: object) -> list[ops.Op]:
    """What the CTA of a part does with its sums, but for arithmetic."""
    launch = GemmParams.model_validate({**PROBLEM, "split_k": 2, **options}).launch(gpu)
    told = dry_run(launch)["consumer0"]
    found = [op for cta_idx, op in told if cta_idx == part]
    last = max(idx for idx, op in enumerate(found) if isinstance(op, ops.Wgmma))
    kinds = (ops.GlobalAtomic, ops.GlobalStore, ops.GlobalLoad, ops.FenceAcqRel, ops.BarSync, ops.Use)
    return [op for op in found[last:] if isinstance(op, kinds)]


def names(found: list[ops.Op]) -> list[str]:
    """Kinds and tensors, those that come again told once."""
    told = [f"{type(op).__name__} {getattr(op, 'tensor', '')}".strip() for op in found]
    return [name for idx, name in enumerate(told) if not idx or name != told[idx - 1]]


COUNTED = ["GlobalAtomic workspace", "FenceAcqRel", "BarSync", "GlobalAtomic counters", "Use"]


def test_only_the_last_part_sets_the_count_back_and_reads_the_sum(h200: GpuSpec) -> None:
    assert names(behind_math(h200, 0)) == [*COUNTED, "BarSync"]
    assert names(behind_math(h200, 1)) == [
        *COUNTED, "GlobalStore counters", "BarSync", "FenceAcqRel", "GlobalLoad workspace", "GlobalStore workspace", "Use",
        "GlobalStore D",
    ]  # fmt: skip


def test_all_of_the_sum_is_under_way_before_any_is_used(h200: GpuSpec) -> None:
    found = behind_math(h200, 1)
    loads = [idx for idx, op in enumerate(found) if isinstance(op, ops.GlobalLoad)]
    uses = [idx for idx, op in enumerate(found) if isinstance(op, ops.Use) and idx > loads[0]]
    assert len(loads) == len(uses) == 4
    assert max(loads) < min(uses)


@pytest.mark.parametrize(("n", "num_pieces"), [(64, 2), (128, 4), (256, 8)])
def test_parts_leave_in_pieces_of_32_columns_and_whole_tiles_in_two(h200: GpuSpec, n: int, num_pieces: int) -> None:
    def num_stores(split_k: int) -> int:
        options = {**PROBLEM, "n": n, "tile": f"64x{n}x64", "m": 64, "split_k": split_k, "epilogue": "direct"}
        told = dry_run(GemmParams.model_validate(options).launch(h200))["consumer0"]
        return sum(isinstance(op, ops.GlobalStore) and op.tensor == "D" for _, op in told)

    assert num_stores(2) == num_pieces
    assert num_stores(1) == 2
