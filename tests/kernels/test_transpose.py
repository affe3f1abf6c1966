"""transpose: configs are what the README says, a wrong element is refused, and the model's counts are the program's own."""

from __future__ import annotations

import sys

import pytest

from gpusim.evidence.cases.case import load_case
from gpusim.kernel_models.transpose import REGISTERS, TransposeParams
from gpusim.machine.config import load_gpu

from .conftest import Sass

CASE = load_case("transpose")
case = sys.modules[CASE.launch.__module__]
ALL = CASE.configs("sizes", 1)


def test_matrices_have_the_sizes() -> None:
    assert len(ALL) == 28
    for config in ALL:
        assert int(config["m"]) * int(config["n"]) * 4 in case.SIZES
        launched, params = CASE.launch(config, False), TransposeParams(**case.options(config))
        assert launched.grid[:2] == (params.grid.num_x, params.grid.num_y)


@pytest.mark.parametrize("way", case.WAYS)
def test_registers_are_those_of_the_cubin(way: str, sass: Sass) -> None:
    assert sass("transpose", "sm_90a")[f"transpose_{way}"].num_registers == REGISTERS[way]  # type: ignore[index]


@pytest.mark.parametrize(("way", "wavefronts"), [("naive", 33), ("padded", 2), ("swizzled", 2), ("none", 0)])
def test_the_twin_counts_conflicts(way: str, wavefronts: int) -> None:
    found = CASE.predict({"kernel": f"transpose_{way}", "m": "128", "n": "128"}, load_gpu("h200_sxm"))
    assert found["l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"] == wavefronts * 128 * 128 / 32
