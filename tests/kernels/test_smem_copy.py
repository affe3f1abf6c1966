"""smem_copy: configs are what the README says, a wrong byte is refused, and the model's counts are the program's own."""

from __future__ import annotations

import sys

import pytest

from gpusim.evidence.cases.case import Config, load_case
from gpusim.kernel_models.smem_copy import REGISTERS, SmemCopyParams
from gpusim.machine.config import load_gpu

from .conftest import Sass

CASE = load_case("smem_copy")
case = sys.modules[CASE.launch.__module__]
ALL = [config for group in CASE.groups for config in CASE.configs(group, 1)]


@pytest.mark.parametrize("config", ALL, ids=str)
def test_the_grid_is_the_models(config: Config) -> None:
    launched = CASE.launch(config, False)
    params = SmemCopyParams(**case.options(config)).resolved(load_gpu("h200_sxm"))
    along_n = params.grid.num_x, params.grid.num_y
    assert launched.grid[:2] == (along_n if params.raster == "along_n" else along_n[::-1])
    assert launched.block[0] == params.threads


@pytest.mark.parametrize("kernel", [*case.BY_THREADS, "tma"])
def test_registers_are_those_of_the_cubin(kernel: str, sass: Sass) -> None:
    way = case.options(case.config_of(kernel, 1 << 20))["copy"]
    found = sass("smem_copy", "sm_90a")[kernel].num_registers
    assert -(-REGISTERS[way] // 8) == max(2, -(-found // 8))


def test_loads_of_a_round_are_issued_before_the_first_store(sass: Sass) -> None:
    kernels = sass("smem_copy", "sm_90a")
    for kernel, load, num in (("scalar_none", "LDG", 8), ("vectorized_none", "LDG", 4), ("cp_async_none", "LDGSTS", 4)):
        opcodes = [instruction.name for instruction in kernels[kernel].instructions]
        assert longest_run(opcodes, load, ("STS", "LDS", "STG", "BAR")) >= num


def longest_run(opcodes: list[str], wanted: str, ending: tuple[str, ...]) -> int:
    """The most ``wanted`` between two of ``ending``."""
    most = run = 0
    for opcode in opcodes:
        run = 0 if opcode in ending else run + (opcode == wanted)
        most = max(most, run)
    return most


def test_the_twin_answers() -> None:
    found = CASE.predict(case.config_of("tma", 1 << 20), load_gpu("h200_sxm"))
    assert found["dram__bytes_read.sum"] == 1 << 20
    assert found["lts__t_sectors_srcunit_tex_op_write.sum"] == (1 << 20) / 32
