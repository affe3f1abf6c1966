"""Studies: their rows judge nothing, and say what deviations.md quotes of them."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping

from gpusim.evidence.case import load_case
from gpusim.evidence.places import kernels_dir

VALIDATION = kernels_dir().parent / "validation"
CASE = load_case("hopper_gemm")
CYCLES = "sm__cycles_elapsed.max"


def _rows(name: str) -> list[dict[str, str]]:
    with (VALIDATION / "studies" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


ROWS = _rows("hopper_gemm_h200_sxm.csv")


def _off(row: Mapping[str, str]) -> float:
    return float(row["cycles_error_pct"])


def _stored_by(epilogue: str, least_mib: int, *, stages: str = "3") -> list[float]:
    return [
        _off(row) for row in ROWS
        if row["kernel"].startswith("ms2_128x128x64") and row["stages"] == stages and row["epilogue"] == epilogue
        and int(row["k"]) <= 1024 and int(row["m"]) * int(row["n"]) * 2 >= least_mib * 2**20
    ]  # fmt: skip


def test_no_row_of_a_study_judges_but_one_that_was_measured_again() -> None:
    names = ("kernel", *CASE.columns)
    judged = {tuple(config[name] for name in names) for group in CASE.groups for config in CASE.configs(group, 1)}
    of_study = [tuple(row[name] for name in names) for row in ROWS]
    assert len(set(of_study)) == len(of_study) == 167
    (again,) = judged & set(of_study)
    assert again[:4] == ("co2_128x256x128_c2x1_d1_regs_fp8", "64", "16384", "2048")
    assert not any(row["kernel"].startswith("co") and not row["kernel"].endswith("fp8") for row in ROWS)  # held out


def test_stores_out_of_registers_are_what_is_off_of_large_products() -> None:
    assert max(abs(error) for error in _stored_by("smem", 0)) < 4.0
    direct = _stored_by("direct", 48)
    assert min(direct) > -26.0
    assert max(direct) < -10.0


def test_rows_outside_take_longer_than_rows_inside() -> None:
    took: dict[tuple[str, str], dict[int, float]] = {}
    for row in ROWS:
        if row["n"] == "16384":
            took.setdefault((row["kernel"], row["stages"]), {})[int(row["m"])] = float(row[CYCLES])
    assert len(took) == 4
    for of_m in took.values():
        assert 1.06 < of_m[64] / of_m[128] < 1.23


def test_each_deviation_that_quotes_a_study_is_there() -> None:
    text = (VALIDATION / "deviations.md").read_text(encoding="utf-8")
    assert len(re.findall(r"sizes of their own|\(the same sizes", text)) >= 3
    assert "validation/studies" in text
