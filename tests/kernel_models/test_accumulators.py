"""Sums of fp16: registers, instructions by CuTe's names, arithmetic of the epilogue, and rounding, worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpusim import run_functional
from gpusim.errors import KernelError
from gpusim.kernel_models.gemm import GemmParams
from gpusim.kernel_models.gemm.resolve import resolve
from gpusim.kernel_models.gemm.tiled_steps import TilePartition
from gpusim.machine.config import load_gpu
from gpusim.workload import ops
from gpusim.workload.atoms import cute_name
from gpusim.workload.launch import Launch

from .conftest import ops_of

GPU = load_gpu("h200_sxm")
BY_WARPS = {"math": "mma_sync", "tile": (64, 64, 32), "warps": (2, 2)}
BY_WARPGROUPS = {"tile": (64, 64, 64), "schedule": "warp_specialized"}


def params(**options: Any) -> GemmParams:
    return GemmParams(**{"m": 64, "n": 64, "k": 64, "dtype": "fp16", "accumulator": "fp16", **options})


@pytest.mark.parametrize(
    ("options", "name"), [(BY_WARPS, "SM80_16x8x16_F16F16F16F16_TN"), (BY_WARPGROUPS, "SM90_64x64x16_F16F16F16_SS")]
)
def test_the_instructions_are_those_of_fp16_sums(options: dict[str, Any], name: str) -> None:
    steps = TilePartition(resolve(params(**options), GPU), GPU).steps
    assert [cute_name(step.atom) for step in steps if step.name == "mma"] == [name]


@pytest.mark.parametrize("options", [BY_WARPS, BY_WARPGROUPS])
def test_two_sums_share_a_register(options: dict[str, Any]) -> None:
    halves, words = (resolve(params(**options, accumulator=kind), GPU).partition for kind in ("fp16", "fp32"))
    assert (halves.sums, 2 * halves.accumulators) == (words.sums, words.accumulators)


def test_a_tile_of_256_rows_a_pair_of_warpgroups_fits_in_half_the_registers() -> None:
    """128 x 256 sums of a warpgroup are 256 a thread."""
    large = {"m": 512, "n": 512, "tile": (256, 256, 64), "schedule": "cooperative"}
    assert resolve(params(**large), GPU).partition.accumulators == 128
    with pytest.raises(KernelError, match="would spill"):
        resolve(params(**large, accumulator="fp32"), GPU)


@pytest.mark.parametrize("options", [BY_WARPS, BY_WARPGROUPS])
def test_each_instruction_rounds_its_sums(options: dict[str, Any]) -> None:
    """2048 + 1 lies halfway between two numbers of fp16, and goes to the even one, three times."""
    a = np.zeros((64, 64))
    a[:, :16], a[:, [16, 32, 48]] = 128.0, 1.0
    data = {"A": a, "B": np.ones((64, 64))}
    for kind, expected in (("fp16", 2048.0), ("fp32", 2051.0)):
        found = run_functional(params(**options, out_dtype="fp32", accumulator=kind).launch(GPU), data)["D"]
        assert (found == expected).all()


def num_alu(launch: Launch) -> float:
    return sum(op.num_instructions for _, op in ops_of(launch, ops.Alu))


def test_sums_of_fp16_are_stored_as_they_are() -> None:
    """A D of fp16 needs no packing (half an instruction); with alpha each half is converted, scaled and packed."""
    plain = params(**BY_WARPS, epilogue="direct")
    changes: tuple[dict[str, Any], ...] = ({"accumulator": None}, {"alpha": 2.0})
    words, scaled = (num_alu(plain.model_copy(update=change).launch(GPU)) for change in changes)
    num_sums = 64 * 64 / 128
    assert (words - num_alu(plain.launch(GPU)), scaled - num_alu(plain.launch(GPU))) == (0.5 * num_sums, 2.5 * num_sums)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtype": "bf16"}, "no instruction sums bf16 so"),
        ({"dtype": "int8", "accumulator": "fp32"}, "no instruction sums int8 so"),
        ({"k": 512, "split_k": 2}, "use --split-k-mode serial"),
    ],
)
def test_what_no_instruction_sums_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(KernelError, match=words):
        resolve(params(**options), GPU)
