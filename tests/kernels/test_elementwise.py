"""elementwise: configs are what the README says, a wrong bit is refused, and the model's counts are the program's own."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gpusim.evidence.cases.case import Config, load_case
from gpusim.kernel_models import elementwise as model
from gpusim.kernel_models.elementwise import ElementwiseParams
from gpusim.machine.config import load_gpu

from .conftest import Sass

CASE = load_case("elementwise")
case = sys.modules[CASE.launch.__module__]
ALL = [config for group in CASE.groups for config in CASE.configs(group, 1)]


def reference(config: Config) -> np.ndarray:
    """What the kernel must leave, of a small tensor."""
    num, op = int(config["elements"]), case.parts(config["kernel"])[0]
    a, b = (repeated.array.reshape(-1) for repeated in case.inputs(config))
    assert len(a) >= num
    return {"copy": a[:num], "scale": np.float32(1.5) * a[:num], "add": a[:num] + b[:num], "fill": np.full(num, 1.5)}[
        op
    ].astype("<f4")


@pytest.mark.parametrize("config", ALL, ids=str)
def test_the_grid_is_the_models(config: Config) -> None:
    launched = CASE.launch(config, False)
    params = ElementwiseParams(**case.options(config))
    assert launched.grid[0] == params.num_ctas and launched.block[0] == params.threads


@pytest.mark.parametrize("kernel", case.KERNELS)
def test_registers_are_about_those_of_the_cubin(kernel: str, sass: Sass) -> None:
    found = sass("elementwise", "sm_90a")[kernel].num_registers
    params = ElementwiseParams(**case.options(case.config_of(kernel, 1 << 20)))
    assert abs(model.registers_of(params) - found) <= 4
    assert -(-model.registers_of(params) // 8) == -(-found // 8) or found <= 32  # eight CTAs an SM either way


def test_the_twin_answers_for_a_tiny_grid() -> None:
    found = CASE.predict(CASE.configs("tiny", 1)[0], load_gpu("h200_sxm"))
    assert found["lts__t_sectors_srcunit_tex_op_read.sum"] == 4096 / 32
    assert found["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"] == 4096 / 32
