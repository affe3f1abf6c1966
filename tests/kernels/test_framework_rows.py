"""framework_rows: the check refuses a wrong answer, the grid is the model's, registers and loads are those of the SASS."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim import load_gpu
from gpusim.evidence.cases.case import WrongAnswer, load_case
from gpusim.evidence.cases.validation_kernel import floats
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.kernel_models.row_passes import UNROLLED

from .conftest import Sass, _bytes_of

CASE = load_case("framework_rows")
GPU = load_gpu("h200_sxm")
case = sys.modules[CASE.launch.__module__]
CONFIGS = [case.Config.of(config) for group in CASE.groups for config in CASE.configs(group, 1)]


def small(kernel: str, columns: int, *, in_place: bool = False) -> Any:
    dtype = case.KERNELS[kernel].options["dtype"]
    return case.Config(kernel=kernel, rows=3, columns=columns, dtype=dtype, ctas=0, in_place=in_place)


SMALL = [
    small("softmax_reread_fp32_v16", 40), small("layer_norm_smem_bf16_v16", 40), small("rms_norm_block_bf16_v16_n2", 40),
    small("bias_gelu_bf16_v16", 40), small("rms_norm_warp_bf16_v16_n4", 40, in_place=True),
]  # fmt: skip


def answer(config: Any) -> dict[str, NDArray[Any]]:
    """What a right kernel leaves in the windows, or in an array that it overwrites."""
    config = case.Config.of(config)
    given, residual, out = case.arrays(config)
    parts: dict[str, list[NDArray[np.uint8]]] = {"out": [], "sum": []}
    for window in out.windows:
        x = floats(given.window(*window), config.dtype).reshape(-1, config.columns)
        if config.entry.options.get("residual"):
            x = x + floats(residual.window(*window), config.dtype).reshape(x.shape)
            parts["sum"].append(_bytes_of(x, config.dtype))
        parts["out"].append(_bytes_of(case.reference(config, x), config.dtype))
    element = "<u1" if not config.in_place else "<f4" if config.dtype == "fp32" else "<u2"
    return {name: np.concatenate(of).view(element) for name, of in parts.items() if of}


@pytest.mark.parametrize("config", SMALL, ids=lambda config: config.kernel)
def test_a_right_answer_passes_and_one_wrong_element_does_not(config: Any) -> None:
    right = answer(config)
    assert CASE.check(config, right) == {}
    for name, array in right.items():
        wrong = {**right, name: array.copy()}
        wrong[name].reshape(-1).view(np.uint8)[-4:] = 0xFF
        with pytest.raises(WrongAnswer, match=r"row 2, column 3[89] is nan"):
            CASE.check(config, wrong)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_the_grid_and_the_shared_memory_are_the_models(config: Any) -> None:
    launched = CASE.launch(config, True)
    told = KERNEL_MODELS[config.entry.model].params.model_validate(case.options(config)).launch(GPU)
    assert launched.grid == (told.num_ctas, 1, 1) and launched.block == (told.num_threads, 1, 1)
    assert told.smem_bytes >= launched.smem_bytes > 0 if config.entry.options["keep"] == "smem" else not launched.smem_bytes


def test_every_kernel_has_configs_and_a_row_never_exceeds_what_lanes_hold() -> None:
    assert {config.kernel for config in CONFIGS} == set(case.KERNELS) == set(case.REGISTERS)
    for config in CONFIGS:
        name, held = config.kernel, config.kernel.rpartition("_n")[2]
        if held.isdigit():
            vectors = int(held) * (32 if config.entry.options["per"] == "warp" else config.entry.options["threads"])
            elements = vectors * config.entry.options["vector_bytes"] // (4 if config.dtype == "fp32" else 2)
            assert elements // 2 < config.columns <= elements, name


def test_registers_and_loads_in_flight_are_those_of_the_sass(sass: Sass) -> None:
    kernels = sass("framework_rows", "sm_90a")
    for name, kernel in kernels.items():
        assert kernel.num_registers == case.REGISTERS[name] and kernel.num_spills == 0, name
        options = case.KERNELS[name].options
        width = {2: ".U16", 4: "", 8: ".64", 16: ".128"}[options["vector_bytes"]]
        loads = [item.opcode for item in kernel.instructions if item.name == "LDG"]
        assert {load.replace(".E", "").replace(".CONSTANT", "") for load in loads} == {f"LDG{width}"}, name
    for name in ("softmax_reread_bf16_v16", "layer_norm_reread_bf16_v16", "softmax_smem_bf16_v16"):
        loops = kernels[name].loops
        most = max(len(loop.select("LDG")) for loop in loops if not loop.select("STG") and not loop.select("SHFL"))
        assert most == UNROLLED, name
    stores = [loop for loop in kernels["softmax_reread_bf16_v16"].loops if loop.select("STG") and not loop.select("SHFL")]
    order = [item.name for item in max(stores, key=lambda loop: len(loop.instructions)).instructions
             if item.name in ("LDG", "STG")]  # fmt: skip
    assert order == ["LDG", "STG"] * UNROLLED, "no load moves above a store"
