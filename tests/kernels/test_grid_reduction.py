"""grid_reduction: the check refuses a wrong sum, grids are the model's, registers and loads those of the SASS."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim import load_gpu
from gpusim.evidence.cases.case import Repeated, WrongAnswer, load_case
from gpusim.evidence.cases.validation_kernel import floats
from gpusim.kernel_models.reduction import ReductionParams

from .conftest import Sass

CASE = load_case("grid_reduction")
GPU = load_gpu("h200_sxm")
case = sys.modules[CASE.launch.__module__]
CONFIGS = [case.Config.of(config) for group in CASE.groups for config in CASE.configs(group, 1)]
SMALL = [
    case.Config(kernel="sum_rows_bf16_v8_u1", rows=8, columns=256, dtype="bf16", parts=1),
    case.Config(kernel="sum_long_last_fp32_v16_u4", rows=1, columns=16384, dtype="fp32", parts=2),
    case.Config(kernel="sum_columns_twice_fp32_v16_u4", rows=64, columns=256, dtype="fp32", parts=2),
]  # fmt: skip


def answer(config: Any) -> NDArray[Any]:
    """Sums that a right kernel leaves, of the launch's own input."""
    config = case.Config.of(config)
    given = CASE.launch(config, False).arguments[0]
    assert isinstance(given, Repeated)
    x = floats(given.window(0, given.num_bytes), config.dtype).reshape(config.rows, config.columns)
    return x.sum(axis=0 if config.entry.axis == "column" else 1).astype("<f4")


@pytest.mark.parametrize("config", SMALL, ids=lambda config: config.kernel)
def test_a_right_answer_passes_and_one_wrong_sum_does_not(config: Any) -> None:
    right = answer(config)
    assert CASE.check(config, {"out": right}) == {}
    wrong = right.copy()
    wrong[-1] += 2.0
    with pytest.raises(WrongAnswer, match=f"sum {len(right) - 1} is"):
        CASE.check(config, {"out": wrong})


def test_sums_of_a_repeated_pattern_are_those_of_the_array() -> None:
    for axis, rows, columns in (("row", 1 << 15, 1 << 11), ("column", 1 << 15, 1 << 11), ("long", 1, 1 << 26)):
        found, sizes = case.sums(axis, "bf16", rows, columns)
        assert len(found) == len(sizes) == (columns if axis == "column" else rows)
        total, _ = case.sums("long", "bf16", 1, 1 << 25)
        assert found.sum() == pytest.approx(2 * total[0], rel=1e-6)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_the_grid_is_the_models(config: Any) -> None:
    launched = CASE.launch(config, True)
    told = ReductionParams.model_validate(case.options(config)).launch(GPU)
    assert launched.grid[0] * launched.grid[1] == told.num_ctas and launched.block == (told.num_threads, 1, 1)
    assert [each.grid[0] for each in launched.following] == [each.num_ctas for each in told.following]
    (footprint,) = [item for item in told.footprints if item.tensor == "in"]
    given = launched.arguments[0]
    assert isinstance(given, Repeated)
    assert int(footprint.panel_bytes(np.arange(told.num_ctas)).sum()) == given.num_bytes


def test_registers_and_loads_in_flight_are_those_of_the_sass(sass: Sass) -> None:
    kernels = sass("grid_reduction", "sm_90a")
    assert set(kernels) == {*case.KERNELS, *CASE.followers}
    for name, of in case.KERNELS.items():
        kernel = kernels[name]
        assert kernel.num_registers == of.options["registers"] and kernel.num_spills == 0, name
        wide = ".128" if of.options["vector_bytes"] == 16 else ".64"
        (loop,) = [each for each in kernel.loops if any(wide in item.opcode for item in each.select("LDG"))][:1]
        order = [item.name for item in loop.instructions if item.name in ("LDG", "FADD")]
        assert order[: order.index("FADD")].count("LDG") == of.options.get("unroll", 4), name
