"""Reduction: the check refuses a wrong answer, a launch is what the model is told, instructions are what SASS has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import Config, Repeated, WrongAnswer, load_case
from gpusim.evidence.toolchain.sass import KernelSass
from gpusim.kernel_models import reduction as model
from gpusim.kernel_models.reduction_options import REGISTERS

CASE = load_case("reduction")
GPU = load_gpu("h200_sxm")
case = sys.modules[CASE.launch.__module__]
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]
Sass = Callable[[str, str], dict[str, KernelSass]]


@pytest.mark.parametrize("axis", ["row", "column"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_right_sum_passes_and_one_without_a_block_of_rows_or_elements_does_not(axis: str, dtype: str) -> None:
    config = next(item for item in CONFIGS if item["dtype"] == dtype and item["axis"] == axis)
    given = CASE.launch(config, False).arguments[0]
    assert isinstance(given, Repeated)
    raw = given.window(0, given.num_bytes)
    x = raw.view("<f4") if dtype == "fp32" else (raw.view("<u2").astype("<u4") << 16).view("<f4")
    x = x.reshape(int(config["rows"]), int(config["columns"]))
    along = int(axis == "row")
    assert CASE.check(config, {"out": x.sum(axis=along)}) == {}
    part = x[:, 8:] if along else x[1:]
    with pytest.raises(WrongAnswer, match=f"the sum of {axis} 0"):
        CASE.check(config, {"out": part.sum(axis=along)})
    wrong = x.sum(axis=along)
    wrong[-1] = np.nan
    with pytest.raises(WrongAnswer, match="nan"):
        CASE.check(config, {"out": wrong})


def test_a_pattern_that_is_repeated_is_added_as_often() -> None:
    once, _ = case.sums("column", "fp32", 4096, 4096)
    thrice, _ = case.sums("column", "fp32", 3 * 4096, 4096)
    assert thrice == pytest.approx(3 * once)
    rows, _ = case.sums("row", "fp32", 2 * 4096, 4096)
    assert (rows[:4096] == rows[4096:]).all()


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: f"{config['kernel']}-{config['rows']}x{config['columns']}")
def test_a_launch_covers_everything_as_the_model_does(config: Config, covers: Any) -> None:
    told = model.ReductionParams.model_validate(case.options(config)).launch(GPU)
    covers(CASE.launch(config, True), told, "in")


def test_registers_and_instructions_are_those_that_the_compiler_made(sass: Sass) -> None:
    kernels = sass("reduction", "sm_90a")
    for (axis, width), registers in REGISTERS.items():
        kernel = kernels[f"reduction_{axis}_{'fp32' if width == 4 else 'bf16'}"]
        assert kernel.num_registers == registers
        names = [item.name for item in kernel.instructions]
        if axis == "row":
            loads = [loop.opcodes["LDG"] for loop in kernel.loops]
            assert sorted(loads) == [1, model.UNROLLED]
            assert names.count("SHFL") == 8 and names.count("BAR") == 1
        else:
            assert names.index("LDG") == pytest.approx(model.BEFORE_COLUMNS, abs=5)
            assert names.count("LDG") == case.ROWS_PER_BLOCK // 8 and names.count("REDG") == 1
            assert names[: names.index("FADD")].count("LDG") == model.UNROLLED
