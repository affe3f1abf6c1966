"""strided_copy: configs are what the README says, a wrong element is refused, the model's counts are the program's."""

from __future__ import annotations

import sys

from gpusim.evidence.cases.case import load_case
from gpusim.kernel_models.strided_copy import LEAST_REGISTERS, StridedCopyParams
from gpusim.machine.config import load_gpu

from .conftest import Sass

CASE = load_case("strided_copy")
case = sys.modules[CASE.launch.__module__]
ALL = CASE.configs("sizes", 1)


def test_inputs_span_the_sizes_whatever_the_stride() -> None:
    assert len(ALL) == 21
    for config in ALL:
        assert case.tensors(config)[0].num_bytes in case.SIZES
        launched, params = CASE.launch(config, False), StridedCopyParams(**case.options(config))
        assert launched.grid[0] == params.num_ctas and launched.block[0] == params.threads


def test_registers_are_those_of_the_cubin(sass: Sass) -> None:
    found = sass("strided_copy", "sm_90a")
    assert [found[f"strided_copy_i{items}"].num_registers for items in (1, 4)] == [LEAST_REGISTERS, LEAST_REGISTERS]


def test_the_twin_answers() -> None:
    found = CASE.predict(ALL[7], load_gpu("h200_sxm"))  # stride 8, 1 MiB: a word of each sector
    assert found["dram__bytes_read.sum"] == 1 << 20
    assert found["lts__t_sectors_srcunit_tex_op_read.sum"] == (1 << 20) / 32
    assert found["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"] == (1 << 20) / 8 / 32
