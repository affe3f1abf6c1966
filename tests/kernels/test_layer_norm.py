"""Layer norm: the check refuses a wrong answer, a launch is what the model is told, instructions are what SASS has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim import load_gpu
from gpusim.evidence.cases.case import Config, Repeated, Windows, WrongAnswer, load_case
from gpusim.evidence.cases.row_kernels import row_options
from gpusim.evidence.cases.validation_kernel import floats
from gpusim.evidence.toolchain.sass import KernelSass
from gpusim.kernel_models import layer_norm as model

CASE = load_case("layer_norm")
GPU = load_gpu("h200_sxm")
case = sys.modules[CASE.launch.__module__]
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]
Sass = Callable[[str, str], dict[str, KernelSass]]


def answer(config: Config, bytes_of: Any) -> NDArray[np.uint8]:
    """What a right kernel leaves in the windows."""
    given, _, _, out = CASE.launch(config, False).arguments
    assert isinstance(given, Repeated) and isinstance(out, Windows)
    parts = []
    for offset, num_bytes in out.windows:
        x = floats(given.window(offset, num_bytes), config["dtype"]).reshape(-1, int(config["columns"]))
        mean = x.sum(axis=1, keepdims=True) / x.shape[1]
        variance = (x * x).sum(axis=1, keepdims=True) / x.shape[1] - mean * mean
        vectors = (np.ascontiguousarray(item).view(np.uint8) for item in case.weights(config))
        gamma, beta = (floats(item, config["dtype"]) for item in vectors)
        parts.append(bytes_of((x - mean) / np.sqrt(variance + 1e-5) * gamma + beta, config["dtype"]))
    return np.concatenate(parts)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_right_answer_passes_and_one_wrong_element_does_not(dtype: str, bytes_of: Any) -> None:
    config = next(item for item in CONFIGS if item["dtype"] == dtype)
    right = answer(config, bytes_of)
    assert CASE.check(config, {"out": right}) == {}
    for place in (0, len(right) - 4):
        wrong = right.copy()
        wrong[place : place + 4] = 0xFF
        with pytest.raises(WrongAnswer, match="wants"):
            CASE.check(config, {"out": wrong})
    shifted = np.roll(right, 4)
    with pytest.raises(WrongAnswer, match="row 0, column"):
        CASE.check(config, {"out": shifted})


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: f"{config['kernel']}-{config['rows']}")
def test_a_launch_covers_every_row_as_the_model_does(config: Config, covers: Any) -> None:
    told = model.LayerNormParams.model_validate(row_options(config)).launch(GPU)
    covers(CASE.launch(config, True), told, "in")


def test_registers_and_instructions_are_those_that_the_compiler_made(sass: Sass) -> None:
    kernels = sass("layer_norm", "sm_90a")
    for config in {item["kernel"]: item for item in CONFIGS}.values():
        kernel = kernels[config["kernel"]]
        params = model.LayerNormParams.model_validate(row_options(config))
        assert kernel.num_registers == params.launch(GPU).registers_per_thread
        names = [item.name for item in kernel.instructions]
        assert names.index("LDG") == pytest.approx(model.BEFORE_LOADS[params.per], abs=2)
        assert names.count("LDG") == 3 * params.vectors and names.count("STG") == params.vectors
        assert names.count("SHFL") == (10 if params.per == "warp" else 16)
        assert names.count("MUFU") == 1 and names.count("BAR") == (0 if params.per == "warp" else 2)
        last_shuffle = len(names) - 1 - names[::-1].index("SHFL")
        early = params.vectors + 2  # and a vector of gamma and of beta
        assert names[: names.index("SHFL")].count("LDG") <= early <= names[:last_shuffle].count("LDG") + 1
