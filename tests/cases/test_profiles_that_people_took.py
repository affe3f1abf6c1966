"""Profiles that people took, each against its right answer: read and judged, or named for what it is."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from gpusim.cli import main

pytestmark = pytest.mark.usefixtures("runs_once")

HERE = Path(__file__).parent
GEMM = ["--gpu", "h100_sxm", "--kernel", "gemm", "--m", "4096", "--n", "4096", "--k", "4096"]
SCALE = ["--gpu", "h100_pcie", "--kernel", "elementwise", "--op", "scale", "--elements", "67108864", "--vector-bytes", "16"]
CYCLES, DURATION = "sm__cycles_elapsed.max", "gpu__time_duration.sum"


def checked(name: str, options: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """(status, JSON document) of a check of the case."""
    status = main(["check", str(HERE / f"check_{name}.csv"), *options, "--json", "-"])
    return status, json.loads(capsys.readouterr().out)


def rows_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    (launch,) = document["launches"]
    return {row["metric"]: row for row in launch["metrics"]}


@pytest.mark.parametrize("name", ["derived_unit", "derived_unit_scaled"])
def test_a_metric_that_no_prediction_needs_refuses_no_profile(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, document = checked(name, [*SCALE, "--items-per-thread", "4"], capsys)
    assert status == 1, "the case's grid is of one vector a thread"
    rows = rows_of(document)
    with (HERE / f"check_{name}.csv").open(encoding="utf-8", newline="") as file:
        *_, line = csv.DictReader(file)
    scale = 1e3 if name == "derived_unit_scaled" else 1.0
    assert rows[DURATION]["measured"] == pytest.approx(float(line[DURATION]) * scale)
    assert rows[CYCLES]["measured"] == float(line[CYCLES].replace(",", ""))
    assert any("left out" in said and "derived__lts__lts2xbar_bytes" in said for said in document["remarks"])


def test_the_whole_profile_is_within_tolerance_with_the_kernels_own_grid(capsys: pytest.CaptureFixture[str]) -> None:
    _, document = checked("derived_unit", [*SCALE, "--items-per-thread", "1"], capsys)
    failed = {name for name, row in rows_of(document).items() if row["passes"] is False}
    stores = {f"l1tex__t_{what}_pipe_lsu_mem_global_op_st.sum" for what in ("requests", "sectors")}
    assert failed == {*stores, "launch__registers_per_thread"}, "it stores words, and the model vectors"


def test_average_cycles_alone_fail_a_check(capsys: pytest.CaptureFixture[str]) -> None:
    status, document = checked("cycles_average", GEMM, capsys)
    row = rows_of(document)["sm__cycles_elapsed.avg"]
    assert status == 1 and row["passes"] is False
    math_cycles = 2 * 4096**3 / (132 * 4096)  # 4096 FLOP a cycle and SM
    assert row["measured"] == 640_000.25 and math_cycles < row["predicted"] < 0.6 * row["measured"]


def test_time_alone_is_judged_where_a_clock_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    _, document = checked("time_alone", GEMM, capsys)
    assert DURATION not in rows_of(document)
    assert "give --clock MHZ" in " ".join(document["launches"][0]["remarks"])
    for mhz, passes in ((1755, True), (1000, False)):
        _, document = checked("time_alone", [*GEMM, "--clock", str(mhz)], capsys)
        row = rows_of(document)[DURATION]
        assert row["passes"] is passes and document["launches"][0]["sm_clock_mhz"] == mhz
    assert main(["check", str(HERE / "check_time_alone.csv"), *GEMM, "--clock", "9000"]) == 2


def test_a_gpu_that_nobody_knows_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    status, document = checked("unknown_gpu_name", GEMM, capsys)
    assert status == 1
    said = [said for said in document["remarks"] if "NVIDIA GH200 480GB" in said]
    assert said == ["the profile ran on NVIDIA GH200 480GB, which gpusim does not know: it is held against h100_sxm"]


def test_three_digits_behind_one_sign_are_thousands(capsys: pytest.CaptureFixture[str]) -> None:
    _, document = checked("eu_three_digits", GEMM, capsys)
    rows = rows_of(document)
    assert (rows[DURATION]["measured"], rows[CYCLES]["measured"]) == (182_400, 312_816)
    assert rows[CYCLES]["passes"] is True


def test_a_table_of_nsight_systems_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(HERE / "check_nsys_kernel_sum.csv"), *GEMM]) == 2
    assert "is a table of Nsight Systems" in capsys.readouterr().err


@pytest.mark.parametrize("num_launches", [1, 60])
def test_a_full_report_is_one_screen(
    num_launches: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some 600 metrics a launch, 60 launches that are out of tolerance, and 60 that no model stands for."""
    monkeypatch.setenv("COLUMNS", "120")
    with (HERE / "check_derived_unit.csv").open(encoding="utf-8", newline="") as file:
        header, units, values = csv.reader(file)
    more = [f"smsp__unheard_of_{num}.avg" for num in range(600)]
    path = tmp_path / "full.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        write = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        write.writerows([header + more, units + ["inst"] * 600])
        for num in range(2 * num_launches):
            row = [str(num), *values[1:], *(["1.5"] * 600)]
            row[header.index("Kernel Name")] = f"other_{num}" if num % 2 else "unary_vec4"
            write.writerow(row)
    options = [*SCALE, "--items-per-thread", "4", "--match", "unary"]
    assert main(["check", str(path), *options]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= (45 if num_launches == 1 else 55)
    text = " ".join(" ".join(lines).split())
    assert text.count("without a model, not judged") == 1
    assert text.count("not predicted, and so not compared") == 1 and "more (--json FILE lists all)" in text
    if num_launches > 1:
        assert "59 more launches, 59 of them out of tolerance" in text
