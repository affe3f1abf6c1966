"""Parts of K that are added up in the kernel: who counts, who reads the sum, in which order."""

from __future__ import annotations

import pytest

from gpusim.errors import KernelError
from gpusim.kernel_models.gemm import GemmParams, resolve
from gpusim.kernel_models.gemm.tile_grid import TilePlan
from gpusim.machine.config import GpuSpec
from gpusim.workload import ops
from gpusim.workload.launch import Launch

from .conftest import bytes_by_panel, dry_run, footprint_bytes

PROBLEM = {
    "m": 128, "n": 128, "k": 512, "tile": "128x128x64", "stages": 3, "schedule": "warp_specialized", "consumer_warpgroups": 1
}


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


def test_serial_parts_add_to_what_the_part_before_has_stored(h200: GpuSpec) -> None:
    first, second = (names(behind_math(h200, part, split_k_mode="serial", epilogue="direct")) for part in (0, 1))
    counted = ["FenceAcqRel", "BarSync", "GlobalAtomic counters", "Use", "BarSync"]
    assert first == ["GlobalStore D", *counted]
    assert second == ["GlobalLoad D", *["Use", "GlobalStore D"] * 4, *counted]  # blocks of 32 columns
    plan = TilePlan(resolve(GemmParams(m=64, n=64, k=2084, dtype="fp16", split_k=2, split_k_mode="serial",
                                       tile="64x64x64", schedule="multistage", math="mma_sync", copy="cp_async"), h200))
    assert [plan.num_k_steps(part) for part in (0, 1)] == [17, 17]  # 1048 and 1036 elements


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


def sums(gpu: GpuSpec, m: int, n: int, parts: int, **options: object) -> Launch:
    """The second kernel that adds them element by element."""
    told = {**PROBLEM, "m": m, "n": n, "k": 64 * parts, "split_k": parts, "split_k_mode": "second_kernel"}
    (second,) = GemmParams.model_validate({**told, "splitk_reduction": "scalar", **options}).launch(gpu).following
    return second


@pytest.mark.parametrize(("parts", "told"), [
    (2, "LuaLuaS"), (3, "LuaLLuauaS"), (4, "LLLLuauauauaS"), (5, "LLLLuauauauaLuaS"), (8, "LLLLuauauaua" * 2 + "S"),
])  # fmt: skip
def test_a_librarys_sums_have_four_parts_under_way_and_one_of_those_left(h200: GpuSpec, parts: int, told: str) -> None:
    letters = {ops.GlobalLoad: "L", ops.Use: "u", ops.Fma: "a", ops.GlobalStore: "S"}
    found = [op for cta_idx, op in dry_run(sums(h200, 128, 64, parts))["reduce"] if not cta_idx]
    assert "".join(letters.get(type(op), "") for op in found) == told


@pytest.mark.parametrize(("m", "n", "num_ctas", "each"), [
    (16, 4096, 128, 1), (512, 512, 512, 1), (384, 1024, 768, 1), (768, 896, 672, 2), (1024, 896, 598, 3),
    (1024, 1024, 512, 4),
])  # fmt: skip
def test_a_librarys_sums_take_an_element_more_for_each_512_ctas(
    h200: GpuSpec, m: int, n: int, num_ctas: int, each: int
) -> None:
    """As ``validation/studies/library_sums_h200_sxm.csv`` has its grids, but for edges of tiles of 32 x 16 elements."""
    second = sums(h200, m, n, 4)
    assert second.num_ctas == num_ctas and second.roles[0].num_warps == 16
    stored = [op for cta_idx, op in dry_run(second)["reduce"] if isinstance(op, ops.GlobalStore) and not cta_idx]
    assert len(stored) == each
    for access, kind, width in (("read", ops.GlobalLoad, 4 * 4), ("write", ops.GlobalStore, 2)):
        live = bytes_by_panel(second, kind)
        assert live == footprint_bytes(second, access)
        assert sum(sum(panels.values()) for panels in live.values()) == m * n * width


def test_sums_by_elements_want_a_second_kernel(h200: GpuSpec) -> None:
    for options in ({}, {"split_k": 2}):
        with pytest.raises(KernelError, match=r"--splitk-reduction scalar: only the second kernel .* use --split-k 2"):
            GemmParams.model_validate({**PROBLEM, "splitk_reduction": "scalar", **options}).launch(h200)


def test_sums_by_elements_read_c_and_a_bias_behind_the_parts(h200: GpuSpec) -> None:
    second = sums(h200, 128, 64, 2, beta=1.0, bias=True)
    read = [op.tensor for cta_idx, op in dry_run(second)["reduce"] if isinstance(op, ops.GlobalLoad) and not cta_idx]
    assert read == ["workspace", "workspace", "C", "bias"]
