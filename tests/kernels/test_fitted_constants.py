"""Constants of the twins' own code are what the calibrating half of the rows says, and nothing that judges moves them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from gpusim import load_gpu
from gpusim.errors import ConfigError
from gpusim.evidence.cases.case import FittedConstant, case_names, load_case, no_fitted_constants
from gpusim.evidence.cases.rows import Table
from gpusim.evidence.validate.calibrate import ConstantLine, fitted_constants, halves

GPU = load_gpu("h200_sxm")
MEASURED = Path(__file__).resolve().parents[2] / "validation" / "measured" / GPU.name
DECLARING = [name for name in case_names() if load_case(name).fitted_constants is not no_fitted_constants]


@cache
def table_of(name: str) -> Table:
    return Table.read(MEASURED / f"{name}.csv")


@cache
def lines_of(name: str) -> list[ConstantLine]:
    return fitted_constants(load_case(name), table_of(name), GPU)


def test_the_kernels_whose_twins_have_constants_of_their_own_declare_them() -> None:
    assert {"barriers", "copy_rate", "line_sharing", "tensor_map", "tma_loop", "wgmma_rate"} <= set(DECLARING)


@pytest.mark.parametrize("name", DECLARING)
def test_the_code_states_what_the_calibrating_rows_say(name: str) -> None:
    """``python scripts/fitted_constants.py h200_sxm`` prints all of them; the code is what changes, not the fit."""
    lines = lines_of(name)
    assert lines
    assert {line.constant.label: (line.stated, line.constant.value) for line in lines if not line.agrees} == {}


@pytest.mark.parametrize("name", DECLARING)
def test_rows_that_judge_move_no_constant(name: str) -> None:
    case, table = load_case(name), table_of(name)
    _, judging = halves(case, table)
    judged = {id(row) for row in judging}
    config_columns = {"run", "seed", "group", "kernel", *case.columns}
    altered = replace(table, rows=[_altered(row, config_columns) if id(row) in judged else row for row in table.rows])
    assert judging and altered.rows != table.rows
    before, after = (
        {line.constant.label: line.constant.value for line in lines}
        for lines in (lines_of(name), fitted_constants(case, altered, GPU))
    )
    assert before == after


def _altered(row: dict[str, str], kept: set[str]) -> dict[str, str]:
    """A row that says a third more of everything that was measured."""
    return {name: text if name in kept or not _is_number(text) else repr(float(text) * 4 / 3) for name, text in row.items()}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("name", DECLARING)
def test_rows_that_calibrate_move_constants(name: str) -> None:
    """So that the tests above can fail: without its own rows a fit has other numbers, or none."""
    case, table = load_case(name), table_of(name)
    fitting, _ = halves(case, table)
    calibrating = {id(row) for row in fitting}
    config_columns = {"run", "seed", "group", "kernel", *case.columns}
    rows = [_altered(row, config_columns) if id(row) in calibrating else row for row in table.rows]
    lines = fitted_constants(case, replace(table, rows=rows), GPU)
    assert any(not line.agrees for line in lines)


def test_a_constant_that_the_code_does_not_have_is_refused() -> None:
    missing = FittedConstant(name="NO_SUCH_CYCLES", key=("a",), value=1.0, how="")
    with pytest.raises(ConfigError, match=r"NO_SUCH_CYCLES\['a'\]"):
        load_case("tma_loop").stated(missing)
