"""Two levels of tiles: the worked example of a hgemm, and counts that are those of the simulated ops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpusim.cli import main
from gpusim.errors import KernelError
from gpusim.kernel_models.gemm import GemmParams
from gpusim.kernel_models.gemm.resolve import resolve
from gpusim.kernel_models.gemm.smem_budget import staging_of
from gpusim.kernel_models.gemm.tiled_steps import TiledStep, TilePartition
from gpusim.kernel_models.mainloop.epilogue import Epilogue
from gpusim.kernel_models.mainloop.fragments import Fragments
from gpusim.layout import offsets
from gpusim.machine.config import load_gpu
from gpusim.workload.operands import cp_async_fill, stmatrix_writes, tma_boxes

GPU = load_gpu("h200_sxm")
HGEMM = {
    "dtype": "fp16", "tile": (128, 128, 32), "stages": 3, "warps": (2, 2), "math": "mma_sync", "copy": "cp_async",
    "epilogue": "smem",
}  # fmt: skip


def partition(**options: Any) -> TilePartition:
    return TilePartition(resolve(GemmParams(**{"m": 4096, "n": 4096, "k": 1024, **options}), GPU), GPU)


def steps_of(found: TilePartition) -> dict[str, TiledStep]:
    return {f"{step.name} {step.what}".rstrip(): step for step in found.steps}


def test_a_hgemm_of_four_warps_has_the_tiles_worked_out_by_hand() -> None:
    """128 threads of 8 halves copy 32 x 32; four warps multiply 32 x 16 x 16, and load 32 rows of both operands."""
    found = partition(**HGEMM)
    tiles = {name: (step.tile, step.repeats) for name, step in steps_of(found).items()}
    assert tiles == {
        "g2s A": ((32, 32), (4, 1)), "g2s B": ((32, 32), (4, 1)), "s2r A": ((32, 16), (4, 2)), "s2r B": ((32, 16), (4, 2)),
        "mma": ((32, 16, 16), (4, 8, 2)), "r2s D": ((32, 32), (4, 4)), "s2g D": ((8, 128), (16, 1)),
    }  # fmt: skip
    assert found.fragments() == {"A": "((2,2,2),4,2)", "B": "((2,2),8,2)", "C": "((2,2),4,8)"}


def test_a_hopper_gemm_has_boxes_instructions_and_slices_worked_out_by_hand() -> None:
    """Two warpgroups of 64 rows; a CTA of a cluster of two rows loads half of B; rows of 128 bytes are 64 bf16."""
    found = partition(tile=(128, 256, 64), cluster=(2, 1), schedule="cooperative", epilogue="tma_store")
    steps = steps_of(found)
    assert [(steps[name].atom.name, steps[name].tile) for name in ("g2s A", "g2s B", "mma")] == [
        ("tma_load", (128, 64)), ("tma_load_multicast", (128, 64)), ("wgmma_m64n256k16_bf16_ss", (128, 256, 16)),
    ]  # fmt: skip
    assert (steps["mma"].num_threads, steps["mma"].num_instructions) == (256, 4)
    assert (steps["r2s D"].atom.name, steps["r2s D"].tile) == ("stmatrix_x4", (128, 16))
    assert (steps["s2g D"].atom.name, steps["s2g D"].tile) == ("tma_store", (64, 64))
    assert found.slice_columns * (256 // found.slice_columns) == 256


@pytest.mark.parametrize(
    "options",
    [
        {}, {"layout": "nt"}, {"tile": (64, 128, 64), "warps": (2, 4)}, {"dtype": "int8"},
        {"tile": (64, 72, 32), "warps": (2, 1)},
    ],
)
def test_instructions_of_mma_sync_are_those_of_the_simulated_ops(options: dict[str, Any]) -> None:
    found = partition(**{**HGEMM, "epilogue": "direct", **options})
    config, steps = found.config, steps_of(found)
    num_warps = config.partition.num_warps
    for name, operand in zip("AB", config.mainloop.operands, strict=True):
        num = cp_async_fill(operand, 32 * num_warps).num_requests
        assert num <= steps[f"g2s {name}"].num_instructions * num_warps < num + num_warps
    fragments = Fragments(config.partition)
    reads = sum(access.num_requests for access in fragments.slices)
    assert sum(step.num_instructions for step in found.steps if step.name == "s2r") == reads / num_warps
    assert steps["mma"].num_instructions == sum(getattr(op, "num_issues", 0) for op in fragments.math)


def test_stores_through_shared_memory_are_those_of_the_simulated_ops() -> None:
    found = partition(tile=(128, 256, 64), epilogue="tma_store")
    config, steps = found.config, steps_of(found)
    rows, columns = 64, staging_of(config, GPU).slice_n
    written = stmatrix_writes(rows, columns, config.out_element).num_requests
    assert steps["r2s D"].num_instructions * 4 == written
    assert steps["mma"].num_instructions == config.partition.num_wgmma
    assert steps["g2s B"].num_instructions == len(tma_boxes(config.mainloop.operands[1]))
    by_rows = partition(tile=(128, 256, 64), epilogue="smem")
    leaving = Epilogue.full_rows(64, staging_of(by_rows.config, GPU).slice_n, 2)
    assert steps_of(by_rows)["s2g D"].num_instructions * 4 == leaving.num_requests


def test_each_tile_is_covered_once() -> None:
    for step in partition(**HGEMM).steps:
        if step.layout_tv is not None and step.name != "s2r":  # warps of a row share A, those of a column share B
            assert sorted(offsets(step.layout_tv)) == list(range(step.tile[0] * step.tile[1]))


def test_ldg_has_a_step_to_registers_and_a_step_to_shared_memory() -> None:
    steps = steps_of(partition(**{**HGEMM, "copy": "ldg", "stages": 2, "epilogue": "direct"}))
    assert [steps[name].atom.name for name in ("g2r A", "r2s A", "r2g D")] == [
        "ld_global_b128", "st_shared_b128", "st_global_b32",
    ]  # fmt: skip


def test_ffma_is_refused() -> None:
    with pytest.raises(KernelError, match="--math fma: threads of FFMA"):
        partition(dtype="fp32")


def test_the_command_prints_and_writes_the_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tiles.json"
    words = [
        "--m", "512", "--n", "512", "--k", "256", "--tile", "128x128x32", "--warps", "2x2", "--math", "mma_sync",
        "--epilogue", "direct", "--gpu", "h200_sxm",
    ]  # fmt: skip
    assert main(["tiles", "gemm", *words, "--json", str(path)]) == 0
    out = capsys.readouterr().out
    assert "SM75_U32x4_LDSM_N" in out
    assert "SM80_16x8x16_F32BF16BF16F32_TN" in out
    found = json.loads(path.read_text())
    assert [step["step"] for step in found["steps"]] == ["g2s", "g2s", "s2r", "s2r", "mma", "r2g"]
    assert found["shared_memory"]["A"].startswith("Sw<2,4,3>_smem_ptr[16b] o (128,")
    assert main(["tiles", "gemm", *words, "--dtype", "fp32", "--math", "fma"]) == 2
