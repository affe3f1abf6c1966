"""One screen of a prediction: how large it is, what stands where, and that it shows the numbers of the JSON document."""

from __future__ import annotations

import io
import json
import math
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gpusim.cli import main
from gpusim.report.summary import MOST_COLUMNS, MOST_LINES, Step, Summary, command_lines, one_line, render_summary
from gpusim.simulate.result import DOCUMENT, Result

KERNELS = (
    "gemm --m 512 --n 512 --k 512",
    "gemm --m 512 --n 512 --k 512 --schedule warp_specialized --persistent --tile 128x128x64",
    "gemm --m 500 --n 510 --k 520 --batch 2 --schedule pingpong --tile 64x128x64",
    "gemm --m 256 --n 256 --k 2048 --split-k 2 --tile 128x128x64",
    "gemm --m 256 --n 256 --k 2048 --tile 64x64x64 --split-k 2 --split-k-mode second_kernel --clock sustained --l2 warm "
    "--data zeros",
    "gemm --m 256 --n 256 --k 256 --schedule multistage --copy cp_async --math mma_sync --swizzle none --tile 128x128x32",
    "gemm --m 256 --n 256 --k 256 --math fma --dtype fp32 --tile 64x64x16",
    "elementwise --elements 1048576 --op add",
    "transpose --m 512 --n 512 --smem naive",
    "softmax --rows 512 --columns 1024",
    "layer_norm --rows 512 --columns 1024",
    "reduction --rows 512 --columns 1024 --axis column",
    "gather --rows 512 --columns 256 --table-rows 4096",
    "sgemm_naive --m 64 --n 64 --k 64",
    "smem_copy --m 512 --n 512",
    "strided_copy --elements 65536 --stride 8",
)
GPUS = ("h200_sxm", "h100_sxm", "a100_sxm_80gb", "toy")
ONLY_HOPPER = ("warp_specialized", "pingpong")
RUNS = [f"{kernel} --gpu {gpu}" for kernel in KERNELS for gpu in GPUS
        if not (gpu.startswith("a100") and any(word in kernel for word in ONLY_HOPPER))]
RUNS.append("gemm --m 256 --n 256 --k 128 --gpu toy --engine reference --core-only")
RUNS.append("gemm --m 256 --n 256 --k 128 --gpu h200_sxm --engine reference --core-only --clock 1755 --max-events 1000000")

UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6, "uJ": 1e-3, "mJ": 1.0, "J": 1e3, "B": 1.0, "kB": 1e3, "MB": 1e6,
         "GB": 1e9, "KiB": 1024.0, "MiB": 1024.0**2, "M": 1e6, "G": 1e9}
"""Of time in microseconds, of energy in millijoules, of bytes, of counts."""

NUMBER = r"(?P<{0}><?[\d,]+(?:\.\d+)?)"


def predicted(words: str, *more: str) -> tuple[list[str], dict[str, Any], str]:
    """(lines, JSON document, what is printed) of ``gpusim predict``, at 100 columns."""
    return _predicted(words, more, 100)


@cache
def _predicted(words: str, more: tuple[str, ...], columns: int) -> tuple[list[str], dict[str, Any], str]:
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", out)
        patch.setenv("COLUMNS", str(columns))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "found.json"
            assert main(["predict", *shlex.split(words), *more, "--json", str(path)]) == 0
            document = json.loads(path.read_text())
    return out.getvalue().splitlines(), document, out.getvalue()


def rows_of(lines: list[str]) -> dict[str, list[str]]:
    """Texts by label; those of remarks together."""
    rows: dict[str, list[str]] = {}
    label = ""
    for line in lines:
        label = line[:11].strip() or label
        rows.setdefault(label, []).append(line[11:])
    return rows


def commands_of(lines: list[str]) -> Iterator[str]:
    """What may be typed next, each in one line."""
    text = re.sub(r" \\\n\s*", " ", "\n".join(rows_of(lines)["Next"]))
    return (line for line in text.splitlines() if line.startswith("gpusim "))


def is_shown(text: str, value: float) -> bool:
    """Whether ``text`` is ``value``, rounded to as many digits."""
    if text.startswith("<"):
        return 0.0 < value < float(text[1:])
    digits = len(text.partition(".")[2])
    return math.isclose(float(text.replace(",", "")), value, rel_tol=1e-9, abs_tol=0.5000001 * 10.0**-digits)


@pytest.mark.parametrize(
    ("words", "columns"), [*((words, columns) for words in RUNS for columns in (60, 80, 100)), (RUNS[0], 200)]
)
def test_a_prediction_is_one_screen_with_the_verdict_first(words: str, columns: int) -> None:
    lines, document, _ = _predicted(words, (), columns)
    assert len(lines) <= (25 if columns >= 80 else 30) and MOST_LINES == 25
    assert max(map(len, lines)) <= min(columns, MOST_COLUMNS) and MOST_COLUMNS == 100
    rows = rows_of(lines)
    assert lines[0].startswith("Verdict    ") and f"bound by {document['bound_by']}" in " ".join(rows["Verdict"])
    for name, error in document["expected_errors"].items():  # seen wherever its counter is
        assert all(f"{error:g} %" in line or f"{error:g} points" in line for line in rows["Counters"] if name in line)
    assert list(rows)[1] == "Kernel" and list(rows)[-1] == "Next"
    assert len(" ".join(rows["Bound by"]).split()) <= 25 and "Spent on" in rows
    assert len(rows.get("Remark", [])) <= len(document["remarks"])


@pytest.mark.parametrize("words", RUNS)
def test_numbers_are_those_of_the_document(words: str) -> None:
    lines, document, _ = predicted(words)
    rows = {label: " ".join(texts) for label, texts in rows_of(lines).items()}

    def held(label: str, pattern: str, values: Mapping[str, float]) -> None:
        """Each ``{name}`` of a pattern is a number, ``{name_unit}`` its unit."""
        for name in values:
            pattern = pattern.replace(f"<{name}>", NUMBER.format(name)).replace(f"<{name}_unit>", f"(?P<{name}_unit>\\w+)")
        match = re.search(pattern, rows[label])
        assert match is not None, (label, rows[label])
        for name, value in values.items():
            unit = match.groupdict().get(f"{name}_unit")
            assert is_shown(match[name], value / UNITS[unit] if unit else value), (label, name, match[name], value)

    counters, occupancy = document["counters"], document["occupancy"]
    held("Verdict", r"^<time> <time_unit>,", {"time": document["time_us"]})
    rate = document["pct_of_peak_at_clock"], document["pct_of_peak_memory"]
    if "TFLOP/s" in rows["Verdict"]:
        assert rate[0] >= rate[1]
        held("Verdict", r"<rate> TFLOP/s \(<pct> %", {"rate": document["tflops"], "pct": rate[0]})
    else:
        held("Verdict", r"<rate> GB/s of DRAM \(<pct> %", {"rate": document["memory_gb_per_s"], "pct": rate[1]})
    held("Time", r"^<time> <time_unit>, <cycles> SM cycles; SM clock <mhz> MHz",
         {"time": document["time_us"], "cycles": document["cycles"], "mhz": document["sm_clock_mhz"]})
    if "Compute" in rows:
        held("Compute", r"<pct> % of <peak> TFLOP/s at this clock, <sheet_pct> % of <sheet> \(data sheet\)",
             {"pct": rate[0], "peak": document["peak_tflops_at_clock"], "sheet_pct": document["pct_of_peak_datasheet"],
              "sheet": document["peak_tflops_datasheet"]})
    held("Memory", r"^<rate> GB/s of DRAM: <pct> % of <peak> \(source: gpusim gpus ",
         {"rate": document["memory_gb_per_s"], "pct": rate[1], "peak": document["peak_memory_gb_per_s"]})
    spaced = re.sub(r"(\d)%", r"\1 %", document["reason"])
    assert rows["Bound by"] == spaced.partition(";")[0] and spaced.endswith(f"; of the time: {rows['Spent on']}")
    for name, share in document["time_shares"].items():
        assert share < 0.005 or f"{100.0 * share:.1f} %" in rows["Spent on"], name
    for part, share in re.findall(r"(\w+) (<?[\d.]+) %", rows.get("Busy", "")):
        assert is_shown(share, 100.0 * document["busy"][part])
    if document["expected_error_pct"] is None:
        assert rows["Error"].startswith(document["expected_error_source"].partition(":")[0])
    else:
        held("Error", r"(cycles|time) within <pct> % expected: nine in ten", {"pct": document["expected_error_pct"]})
    held("Occupancy", r"^<ctas> CTAs?/SM, <warps> of <most> warps", {
        "ctas": occupancy["ctas_per_sm"], "warps": occupancy["warps_per_sm"], "most": occupancy["max_warps_per_sm"]})
    held("Grid", r"^<ctas> CTAs?(?: for [\d,]+ tiles?)?, <waves> waves; <registers> registers/thread", {
        "ctas": document["num_ctas"], "waves": document["waves"], "registers": document["registers_per_thread"]})
    if document["smem_bytes"]:
        held("Grid", "<smem> <smem_unit> smem/CTA", {"smem": document["smem_bytes"]})
    if "Power" in rows:  # left out for remarks
        held("Power", r"^<watts> W, <energy> <energy_unit> \(board\)", {
            "watts": float(f"{document['power_w']:.2g}") if document["power_w"] < 10.0 else document["power_w"],
            "energy": document["energy_mj"]})
    for line in rows_of(lines)["Counters"]:
        value, unit, name, *error = re.fullmatch(  # type: ignore[union-attr]  # it matches
            r" *([\d,.]+) (%|B|kB|MB|GB|(?:[MG] )?[a-z]+)  (\S+)(?: +within ([\d.]+) (?:%|points))?", line).groups()
        assert counters[name] and is_shown(value, counters[name] / UNITS.get(unit.split()[0], 1.0))
        assert error == [None] or float(error[0]) == document["expected_errors"][name]
    sources = document["sources"]
    if "Sources" in rows:
        assert f"Uses {sum(sources.values())} GPU parameters" in rows["Sources"]
        assert all(f"{sources[kind]} {word}" in rows["Sources"]
                   for kind, word in (("inferred", "inferred"), ("guess", "guessed")) if sources.get(kind))
    else:
        is_measured = not sources.get("inferred") and not sources.get("guess")
        assert is_measured or "Busy" not in rows  # both rows are left out first where lines are few


def test_memory_bound_and_compute_bound_kernels_show_the_rate_that_matters() -> None:
    """Counters are those of use: no zeros, five at most."""
    copy = rows_of(predicted("elementwise --elements 1048576 --op add --gpu h200_sxm")[0])
    assert "GB/s of DRAM" in copy["Verdict"][0] and "Compute" not in copy
    gemm = rows_of(predicted("gemm --m 512 --n 512 --k 512 --gpu h200_sxm")[0])
    assert "TFLOP/s" in gemm["Verdict"][0] and "Compute" in gemm
    assert [re.findall(r"\w+__\S+", line) for line in gemm["Counters"]] == [
        ["dram__bytes_read.sum"], ["lts__t_sectors_srcunit_tex_op_read.sum"],
        ["l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"], ["sm__inst_executed_pipe_tensor.sum"],
        ["lts__t_sectors_srcunit_tex_op_write.sum"],
    ]  # all that it writes stays in L2


@pytest.mark.parametrize("words", [
    "gemm --m 512 --n 512 --k 512 --gpu h200_sxm",
    "gemm --m 512 --n 512 --k 512 --gpu a100_sxm_80gb",
    "elementwise --elements 1048576 --op add --gpu h100_sxm",
    "smem_copy --m 512 --n 512 --gpu toy",
])  # fmt: skip
def test_what_was_chosen_can_be_pasted(words: str) -> None:
    lines, document, _ = predicted(words)
    chosen = " ".join(rows_of(lines)["Chosen"]).replace(" \\", "")
    again, same, _ = predicted(f"{words} {chosen}")
    assert "Chosen" not in rows_of(again) or words.startswith("gemm")
    of_run = {"wall_s": 0.0, "second_best": None}
    assert {**same, **of_run} == {**document, **of_run}


@pytest.mark.parametrize("words", [
    "gemm --m 256 --n 256 --k 2048 --split-k 2 --clock sustained --l2 warm --data zeros --gpu toy",
    "gemm --m 512 --n 512 --k 512 --gpu a100_sxm_80gb",
    "transpose --m 512 --n 512 --smem naive --gpu h100_sxm",
])  # fmt: skip
def test_commands_to_type_next_are_whole(words: str) -> None:
    lines, _, _ = predicted(words)
    commands = list(commands_of(lines))
    assert shlex.split(commands[0])[:3] == ["gpusim", "explain", words.split(maxsplit=1)[0]]
    assert set(shlex.split(commands[0])[3:]) == set(words.split()[1:])
    if words.startswith("transpose"):
        assert commands[1] == "gpusim check profile.csv --gpu h100_sxm --kernel transpose --m 512 --n 512 --smem naive"
    if words.startswith("gemm --m 512"):
        assert "Chosen automatically. Rank alternatives with:" in rows_of(lines)["Next"]
        assert commands[1].startswith("gpusim advise gemm --m 512 --n 512 --k 512 --gpu a100_sxm_80gb")


def test_all_has_what_one_screen_leaves_out() -> None:
    words = "gemm --m 500 --n 510 --k 520 --batch 2 --schedule pingpong --tile 64x128x64 --gpu h200_sxm"
    lines, document, text = _predicted(words, ("--all",), 400)
    assert lines[0].startswith("Verdict: gemm on h200_sxm takes ") and document["reason"] in lines[0]
    first = {line.split("  ")[0].strip() for line in lines}
    assert {
        "Time", "Energy", "Cycles", "Expected error", "SM clock", "Throughput", "Of peak", "Memory", "Bound by", "Occupancy",
        "Registers", "Shared memory", "Grid", "Power", "Simulated",
    } <= first
    for name in (*document["counters"], *document["guesses"], *document["remarks"]):
        assert name in text
    for name, value in document["params"].items():
        flag = name.rstrip("_").replace("_", "-")
        assert f"--{flag}" in first or (value is False and f"--no-{flag}" in first)
    for role, shares in document["states"].items():
        assert role in text and all(state in text for state in shares)
    assert all(part in text for part, share in document["busy"].items() if share)
    assert f"Uses {sum(document['sources'].values())} GPU parameters of h200_sxm: " in text
    assert document["registers_source"] in text
    assert lines[-2].startswith("Next: gpusim explain gemm --m 500")
    assert lines[-1].startswith("Not validated here. Compare with a profile of Nsight Compute: gpusim check profile.csv")
    shown = rows_of(predicted(words)[0])
    assert len(shown["Remark"]) == len(document["remarks"]) == 2


@pytest.mark.parametrize("more", [(), ("--all",)])
def test_the_document_is_the_same_whatever_is_printed(more: tuple[str, ...]) -> None:
    _, document, _ = _predicted("gemm --m 256 --n 256 --k 512 --gpu h200_sxm", more, 100)
    assert tuple(document) == (*DOCUMENT, "expected_error_pct", "expected_errors", "expected_error_source", "second_best")
    _, plain, _ = predicted("gemm --m 256 --n 256 --k 512 --gpu h200_sxm")
    assert {**document, "wall_s": 0.0} == {**plain, "wall_s": 0.0}


def summary_of(result: Result, *, num_remarks: int = 0, steps: tuple[Step, ...] = ()) -> Summary:
    """A screen of a prediction by hand, with so many remarks."""
    document = {
        **result.as_dict(), "expected_errors": {}, "expected_error_source": "not known",
        "remarks": [f"remark {idx} of the kernel" for idx in range(num_remarks)],
        "counters": {**result.counters, "launch__block_size": 128},
    }
    return Summary(document=document, expected=None, gpu_name="toy", problem=("gemm", "--m", "256"), steps=steps)


@pytest.mark.parametrize("num_remarks", [0, 1, 2, 5, 12, 40])
def test_no_remark_is_lost_in_silence(num_remarks: int, result: Result) -> None:
    lines = summary_of(result, num_remarks=num_remarks, steps=(Step(words=("gpusim", "explain")),)).lines(100)
    texts = [text for label, text in lines if label == "Remark"]
    shown = [text for text in texts if text.endswith("of the kernel")]
    left = [int(text.split()[0]) for text in texts if text.endswith("more: --all")]
    assert len(lines) <= MOST_LINES and len(shown) + sum(left) == num_remarks and len(shown) >= min(num_remarks, 3)


def test_a_remark_that_is_too_long_says_where_the_rest_is() -> None:
    text = one_line("word " * 40, 60)
    assert len(text) <= 60 and text.endswith("word ... (--all)")
    assert one_line("short", 60) == "short"


def test_a_second_command_gives_way_to_remarks(result: Result) -> None:
    steps = (
        Step(words=("gpusim", "explain")),
        Step(words=("gpusim", "sweep", "gemm", *(f"--option-{idx}" for idx in range(12))), why="Rank alternatives with:"),
    )
    texts = [text for _, text in summary_of(result, steps=steps).lines(100)]
    assert "Rank alternatives with:" in texts and any("--option-11" in text for text in texts)
    room = MOST_LINES - len(summary_of(result, steps=steps[:1]).lines(100))
    texts = [text for _, text in summary_of(result, num_remarks=room - 1, steps=steps).lines(100)]
    assert texts[-1] == "Rank alternatives with: gpusim sweep"


def test_a_command_with_an_endless_option_is_named_alone() -> None:
    words = ("gpusim", "explain", "gemm", "--raster-table", ",".join(map(str, range(132))))
    assert command_lines(words, 89) == []
    assert Step(words=words).lines(89) == ["gpusim explain gemm with the same options (in full: --all)"]


def test_brackets_in_words_are_no_markup_of_a_screen(make_result: Callable[..., Result]) -> None:
    stream = io.StringIO()
    summary = summary_of(make_result(reason="stage [bold] of a[3]; rest"))
    render_summary(summary, Console(file=stream, width=120, color_system=None))
    assert "Bound by   stage [bold] of a[3]\n" in stream.getvalue()


def test_power_above_the_limit_names_the_limit(make_result: Callable[..., Result]) -> None:
    def power(**changes: Any) -> str:
        return dict(summary_of(make_result(**changes)).lines(100))["Power"]

    assert power(power_w=900.0) == "900 W, 18 mJ (board); limit for launches back to back: 700 W"
    assert "limit" not in power(power_w=900.0, clock_mode="sustained") + power(power_w=600.0)
