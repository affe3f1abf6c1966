"""Gather: the check refuses a wrong answer, a launch is what the model is told, instructions are what SASS has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import Config, Repeated, Windows, load_case
from gpusim.evidence.toolchain.sass import KernelSass
from gpusim.kernel_models import gather as model

CASE = load_case("gather")
GPU = load_gpu("h200_sxm")
case = sys.modules[CASE.launch.__module__]
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]
SMALL = [config for config in CONFIGS if int(config["rows"]) * int(config["row_bytes"]) <= 2**26]
Sass = Callable[[str, str], dict[str, KernelSass]]


def answer(config: Config) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """What a right kernel leaves in the windows, row by row."""
    table, index, out = CASE.launch(config, False).arguments
    assert isinstance(table, Repeated) and isinstance(out, Windows)
    row_bytes = int(config["row_bytes"])
    rows = [
        table.window(int(index.array[row]) * row_bytes, row_bytes)  # type: ignore[union-attr]  # an Input
        for offset, num_bytes in out.windows for row in range(offset // row_bytes, (offset + num_bytes) // row_bytes)
    ]  # fmt: skip
    return np.concatenate(rows)


def test_numbers_of_rows_lie_in_the_table_and_are_drawn_again_alike() -> None:
    drawn = case.rows_of("random", 4096, 1024)
    assert drawn.min() >= 0 and drawn.max() < 1024 and (drawn == case.rows_of("random", 4096, 1024)).all()
    assert len(np.unique(drawn)) == pytest.approx(1024 * (1 - np.exp(-4.0)), rel=0.02)
    assert (case.rows_of("sequential", 8, 8) == np.arange(8)).all()


@pytest.mark.parametrize("config", CONFIGS, ids=lambda item: f"{item['kernel']}-{item['index']}-{item['rows']}")
def test_a_launch_has_the_grid_of_the_model(config: Config) -> None:
    told = model.GatherParams.model_validate(case.options(config)).launch(GPU)
    assert told.num_ctas == int(config["rows"]) // case.ROWS_PER_BLOCK[int(config["row_bytes"])]
    (out,) = [item for item in told.footprints if item.tensor == "out"]
    num_bytes = int(out.panel_bytes(np.arange(told.num_ctas)).sum())
    assert num_bytes == int(config["rows"]) * int(config["row_bytes"])


def test_registers_and_instructions_are_those_that_the_compiler_made(sass: Sass) -> None:
    kernels = sass("gather", "sm_90a")
    for config in {item["kernel"]: item for item in CONFIGS}.values():
        kernel = kernels[config["kernel"]]
        params = model.GatherParams.model_validate(case.options(config))
        assert kernel.num_registers == params.launch(GPU).registers_per_thread
        names = [item.name for item in kernel.instructions]
        assert names.index("LDG") == pytest.approx(model.BEFORE_INDEX, abs=4)
        assert names.count("LDG") == params.rows_at_once * (1 + params.vectors)
        assert names.count("STG") == params.rows_at_once * params.vectors
        if params.vectors == 1:
            assert names[: names.index("STG")].count("LDG") == 2 * params.rows_at_once, "loads before stores"
