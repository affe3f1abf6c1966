"""sgemm_naive: configs are what the README says, wrong answers are refused, and the model's counts are the program's own."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gpusim.evidence.cases.case import Config, WrongAnswer, load_case
from gpusim.evidence.cases.gemm_output import target
from gpusim.evidence.cases.validation_kernel import floats
from gpusim.kernel_models.sgemm_naive import AT_ONCE, BEFORE_LOOP, IN_LOOP, REGISTERS, TILE, VECTOR, SgemmNaiveParams
from gpusim.machine.config import load_gpu

from .conftest import Sass

CASE = load_case("sgemm_naive")
case = sys.modules[CASE.launch.__module__]
ALL = CASE.configs("products", 1)
NO_INTEGERS = ("LDC", "BRA", "EXIT", "CS2R", "HFMA2")
"""What else stands before the first load: constants, a floating-point zero, branches."""


def test_every_way_has_every_shape_once() -> None:
    found = {(config["kernel"], *(int(config[name]) for name in "mnk")) for config in ALL}
    assert len(ALL) == len(found) == 30
    assert found == {(way, *shape) for way in case.WAYS for shape in case.SHAPES}


def test_right_answers_pass_and_one_that_misses_a_product_does_not() -> None:
    config = {"kernel": "tiled", "m": "70", "n": "33", "k": "64"}
    a, b = (floats(item.window(0, item.num_bytes), "fp32") for item in case.operands(config))
    left, right = a.reshape(70, 64), b.reshape(64, 33)

    def windows(product: np.ndarray) -> np.ndarray:
        raw = np.ascontiguousarray(product.astype("<f4")).reshape(-1).view(np.uint8)
        return np.concatenate([raw[offset : offset + size] for offset, size in target(config, "fp32").windows])

    assert CASE.check(config, {"d": windows(left @ right)})["error_share"] <= 1.0
    with pytest.raises(WrongAnswer, match="are wrong"):
        CASE.check(config, {"d": windows(left[:, 1:] @ right[1:])})
    with pytest.raises(WrongAnswer, match="row 0, column 0 of D was not written"):
        CASE.check(config, {"d": windows(np.full((70, 33), np.nan))})


@pytest.mark.parametrize("config", ALL, ids=lambda config: f"{config['kernel']}-{config['m']}")
def test_the_grid_is_the_models(config: Config) -> None:
    launched = CASE.launch(config, False)
    of_model = SgemmNaiveParams(**case.options(config)).launch(load_gpu("h200_sxm"))
    assert launched.grid[0] * launched.grid[1] == of_model.num_ctas
    assert launched.block[0] * launched.block[1] == of_model.num_threads


def test_a_turn_of_the_loop_is_the_models(sass: Sass) -> None:
    memory = ("LDG", "STG", "LDS", "STS", "BAR", "BRA")
    for way, kernel in sass("sgemm_naive", "sm_90a").items():
        assert kernel.num_spills == 0
        loop = max(kernel.loops, key=lambda loop: len(loop.select("FFMA")))
        loads, products = loop.select("LDG"), loop.select("FFMA")
        if way == "tiled":
            reads = loop.select("LDS")
            assert (len(loads), len(products), len(loop.select("STS", "BAR"))) == (2, TILE, 4)
            assert sum(read.opcode == "LDS.128" for read in reads) == TILE // VECTOR
            assert len(reads) == TILE // VECTOR + TILE
        else:
            assert (len(loads), len(products)) == (2 * AT_ONCE, AT_ONCE)
            order = [item.name for item in loop.instructions if item.name in ("LDG", "FFMA")]
            assert order == ["LDG"] * (2 * AT_ONCE) + ["FFMA"] * AT_ONCE  # all are under way before the first is used
        others = [item for item in loop.instructions if item.name not in (*memory, "FFMA")]
        if way == "coalesced":  # whose products of addresses are told as such
            products_of_addresses = [item for item in others if item.opcode.startswith("IMAD.WIDE")]
            assert len(products_of_addresses) == AT_ONCE
            others = [item for item in others if item not in products_of_addresses]
        assert abs(len(others) - IN_LOOP[way]) <= 2
        names = [item.name for item in kernel.instructions]
        before = [name for name in names[: names.index("LDG")] if name not in NO_INTEGERS]
        assert abs(len(before) - BEFORE_LOOP[way]) <= 2
        assert -(-kernel.num_registers // 8) == REGISTERS // 8
