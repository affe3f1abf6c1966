"""Write `validation/judged/NAME.csv` and the accuracy in README.md from what `gpusim validate --first --json FILE` wrote.

    python scripts/trust.py FILE.json|validation/judged/NAME.csv [PAGE [FOLDER]]

Without PAGE, README.md gets a row for each class of kernels, and validation/README.md a row for each family.
In a page, the comments `<!-- in short ... -->` get the classes, the comments `<!-- trust ... -->` the families.
FOLDER holds the table (validation/judged). A report replaces those groups and tiers of the table that it has rows of.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpusim.evidence.cases.case import Limit
from gpusim.evidence.validate.blind_predictions import who_of
from gpusim.evidence.validate.judge import Judgement, quantile
from gpusim.evidence.validate.judged_rows import Judged, judged_dir, read_judged, table_of

CYCLES, ESTIMATED = "sm__cycles_elapsed.max", "cycles_with_estimated_code"
TIMES = {"single_us": "time of one launch: mean, P90, worst", "sustained_us": "of half a second: the same"}
TIMED = {
    "single_us": ("Time of one launch", "single_clock_mhz"),
    "sustained_us": ("Time of half a second back to back", "sustained_clock_mhz"),
}
COUNTS = {
    "dram__bytes_read.sum": "bytes read of memory", "dram__bytes_write.sum": "written",
    "lts__t_sectors_srcunit_tex_op_read.sum": "sectors read of L2", "lts__t_sectors_srcunit_tex_op_write.sum": "written",
    "launch__registers_per_thread": "registers", "ctas_of_sm": "CTAs an SM",
}  # fmt: skip
BEGIN, END = "<!-- trust: written by scripts/trust.py -->", "<!-- trust: end -->"
SHORT = "<!-- in short: written by scripts/trust.py -->", "<!-- in short: end -->"


def text_of(report: Mapping[str, Any]) -> str:
    """The table of families, and what is said of them in all."""
    families = report["families_of_whole_kernels"]
    first = _first(report["first"])
    in_all = {item["name"]: item for item in report["whole_kernels"]}
    columns = ["family", "rows", "cycles off by: mean, P90, worst", "before it is written: the same",
               "a roofline", "cycles said first"]
    times = [name for name in TIMES if name in in_all]
    columns[5:5] = [TIMES[name] for name in times]
    lines = [
        f"| {' | '.join(columns)} |", "|" + "---|" * len(columns),
        *(
            _row(item, first.get(item["name"]), times)
            for item in families if CYCLES in item["of"] and not item["is_cut"]
        ),
    ]  # fmt: skip
    if CYCLES in in_all:
        of = in_all[CYCLES]
        time = "".join(f" {_errors(in_all[name])} ({_families(in_all[name])}) |" for name in times)
        said = _pct(sum(first.values()) / len(first)) if first else ""
        lines.append(
            f"| **mean of {of['num_families']} families** | {of['num_rows']} | {_errors(of)} | {_unwritten(in_all)} |"
            f" {_pct(of['roofline_pct'])} |"
            f"{time} {said} |"
        )
    lines += ["", *(f"* {sentence}" for sentence in _sentences(report, in_all))]
    return "\n".join(lines)


def _row(item: Mapping[str, Any], first: float | None, times: Sequence[str]) -> str:
    of = item["of"][CYCLES]
    time = "".join(f" {_errors(item['of'][name]) if name in item['of'] else ''} |" for name in times)
    name = f"**{item['name']}** (held out)" if item["is_held_out"] else item["name"]
    return (
        f"| {name} | {of['num_rows']} | {_errors(of)} | {_unwritten(item['of'])} | {_pct(of['roofline_pct'])} |"
        f"{time} {'' if first is None else _pct(first)} |"
    )


def _unwritten(of: Mapping[str, Any]) -> str:
    """Errors with estimated code; empty for kernels that have no compiled code in their model."""
    return _errors(of[ESTIMATED]) if ESTIMATED in of else ""


def _errors(of: Mapping[str, Any]) -> str:
    return f"{_pct(of['mean_pct'])}, {_pct(of['p90_pct'])}, {_pct(of['worst_pct'])}"


def _first(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean error of what was said first, by family."""
    errors: dict[str, list[float]] = {}
    for row in rows:
        if row["name"] == CYCLES:
            errors.setdefault(row["family"], []).append(abs(row["error_pct"]))
    return {name: sum(found) / len(found) for name, found in errors.items()}


def _mean_count(report: Mapping[str, Any], name: str) -> str:
    """Mean of a count's errors over families; families with a row that counted zero are left out and named."""
    families = [item for item in report["families_of_whole_kernels"] if name in item["of"]]
    means = {item["name"]: item["of"][name]["mean_pct"] for item in families}
    finite = [mean for mean in means.values() if mean is not None and math.isfinite(mean)]
    zero = [family for family, mean in means.items() if mean is None or not math.isfinite(mean)]
    return _pct(sum(finite) / len(finite)) + (f" (without {', '.join(zero)}: zero was counted)" if zero else "")


def _sentences(report: Mapping[str, Any], in_all: Mapping[str, Any]) -> list[str]:
    counts = [f"{title} {_mean_count(report, name)}" for name, title in COUNTS.items() if name in in_all]
    found = [f"Mean error over the families: {', '.join(counts)}."] if counts else []
    found += [
        f"{title}: {_of_families(in_all[name])}; its clock: {_of_families(in_all[clock])}."
        for name, (title, clock) in TIMED.items() if name in in_all and clock in in_all
    ]
    for item in report["ranks"]:
        if item["scope"] == "all kernels" or len({each["scope"] for each in report["ranks"]}) == 1:
            what = "cycles" if item["by"] == CYCLES else "time of one launch"
            found.append(
                f"Order of configurations by {what} ({item['num_rows']} rows of {item['num_problems']} problems): tau "
                f"{item['clear_tau']:.2f} over pairs a tenth apart, {item['tau']:.2f} over all; what is predicted best "
                f"takes {_pct(item['regret_pct'])} more than the best, {_pct(item['worst_regret_pct'])} at worst "
                f"(any one, on average: {_pct(item['blind_regret_pct'])})."
            )
    own = report["own_ranks"]
    if own:
        found.append(
            f"The measurement against itself (cycles of one launch, time of another): tau {own['clear_tau']:.2f} and "
            f"{own['tau']:.2f}, {_pct(own['regret_pct'])} and {_pct(own['worst_regret_pct'])}."
        )
    exact = report["exact_counts"]
    if exact:
        rows, right = (sum(item[name] for item in exact) for name in ("num_rows", "num_exact"))
        found.append(
            f"Instructions and wavefronts of shared memory by opcode: {right:,} of {rows:,} numbers are exact "
            "(`validation/deviations/08_wavefronts.md`)."
        )
    cycles = [abs(row["error_pct"]) for row in report["rows"] if row["name"] == CYCLES and row["is_validation"]]
    if cycles:
        found.append(f"Nine in ten of all {len(cycles)} rows are within {_pct(quantile(cycles, 0.9))} of the cycles.")
    return found


def _of_families(of: Mapping[str, Any]) -> str:
    return f"{_pct(of['mean_pct'])} off over {_families(of)} ({of['num_rows']} rows)"


def _families(of: Mapping[str, Any]) -> str:
    return "1 family" if of["num_families"] == 1 else f"{of['num_families']} families"


def _pct(number: float | None) -> str:
    """A number of percent.

    >>> _pct(4.25), _pct(None)
    ('4.2 %', '')
    """
    return "" if number is None else f"{number:.1f} %"


CLASSES = {
    "streaming and row kernels": (
        "elementwise", "smem_copy", "strided_copy", "transpose", "reduction", "softmax", "layer_norm", "gather",
    ),
    "GEMMs by TMA and wgmma": ("hopper_gemm", "hopper_knobs"),
    "GEMMs by mma.sync or FFMA": ("hgemm", "sgemm", "sgemm_naive"),
    "GEMMs of cuBLAS and Triton": ("library_gemm", "library_knobs", "tile_gemm"),
}  # fmt: skip
"""Kernels of each class of README.md; a kernel of no class is among the others."""


def short_of(report: Mapping[str, Any]) -> str:
    """Cycles of each class of kernels, and of all families."""
    families = report["families_of_whole_kernels"]
    cycles = {item["name"]: item["of"][CYCLES] for item in families if CYCLES in item["of"] and not item["is_cut"]}
    errors = _rows_of(report, CYCLES)
    lines = [
        "| Kernels | Launches, families | Mean error | P90 | Worst | Before it is written: mean, P90 |",
        "|---|---|---|---|---|---|",
    ]
    unwritten = _rows_of(report, ESTIMATED)
    class_of = {kernel: title for title, kernels in CLASSES.items() for kernel in kernels}
    for title in (*CLASSES, "other kernels"):
        names = [name for name in cycles if class_of.get(name.split()[0], "other kernels") == title]
        if names:
            found = [error for name in names for error in errors[name]]
            mean = sum(cycles[name]["mean_pct"] for name in names) / len(names)
            told = f"{_pct(mean)} | {_pct(quantile(found, 0.9))} | {_pct(max(found))}"
            lines.append(f"| {title} | {len(found)}, {len(names)} | {told} | {_mean_of(unwritten, names)} |")
    of = next(item for item in report["whole_kernels"] if item["name"] == CYCLES)
    roofline = "" if of["roofline_pct"] is None else f" A roofline is {_pct(of['roofline_pct'])} off."
    sentence = (
        f"Errors are those of `sm__cycles_elapsed.max` on {report['gpu']}. No parameter is fitted to them, with "
        "exceptions that validation/README.md names. "
        f"The mean over all {of['num_families']} families is {_pct(of['mean_pct'])}.{roofline}"
    )
    return "\n".join([*lines, "", sentence])


def _rows_of(report: Mapping[str, Any], name: str) -> dict[str, list[float]]:
    """Errors of a number in percent, by family."""
    errors: dict[str, list[float]] = {}
    for row in report["rows"]:
        if row["name"] == name and row["is_validation"]:
            errors.setdefault(row["family"], []).append(abs(row["error_pct"]))
    return errors


def _mean_of(errors: Mapping[str, Sequence[float]], names: Sequence[str]) -> str:
    """Mean over the families that were judged, and P90 over their rows; empty where none was."""
    judged = [errors[name] for name in names if name in errors]
    if not judged:
        return ""
    mean = sum(sum(found) / len(found) for found in judged) / len(judged)
    return f"{_pct(mean)}, {_pct(quantile([error for found in judged for error in found], 0.9))}"


def filled(readme: str, text: str, begin: str = BEGIN, end: str = END) -> str:
    r"""``readme`` with ``text`` between the comments.

    >>> filled(f"a {BEGIN} old {END} b", "new") == f"a {BEGIN}\n\nnew\n\n{END} b"
    True
    """
    before, has_begin, rest = readme.partition(begin)
    _, has_end, after = rest.partition(end)
    if not has_begin or not has_end:
        raise SystemExit(f"README lacks the comments {begin} and {end}")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def judgements_in(rows: Iterable[Mapping[str, Any]]) -> list[Judgement]:
    """Rows of whole kernels in a report."""
    fields = Judgement.__dataclass_fields__
    found = []
    for row in rows:
        told = {name: row[name] for name in fields}
        told["limit"] = Limit(**told["limit"]) if told["limit"] else None
        told["cuts"] = tuple(told["cuts"])
        told["problem"] = None if told["problem"] is None else tuple(told["problem"])
        if row["is_validation"]:
            found.append(Judgement(**told))
    return found


def beside(report: Sequence[Judgement], table: Sequence[Judgement]) -> list[Judgement]:
    """A report's rows in their places in a table, new ones behind their kernel's.

    Of a group and tier that the report has rows of, the table keeps none that it lacks; others stay.
    """
    groups, new = {_group_of(item) for item in report}, {who_of(item): item for item in report}
    found = [
        new.pop(who_of(item), item) for item in table if who_of(item) in new or _group_of(item) not in groups
    ]  # fmt: skip
    kernels = list(dict.fromkeys(item.kernel for item in (*table, *report)))
    return sorted([*found, *new.values()], key=lambda item: kernels.index(item.kernel))


def _group_of(item: Judgement) -> tuple[str, str, int]:
    return item.kernel, item.group, item.tier


def main(source: str, page: str = "", folder: str = "") -> None:
    """Write the table, if ``source`` is a report, and fill the pages from it."""
    table = Path(source)
    if table.suffix == ".json":
        report = json.loads(table.read_text(encoding="utf-8"))
        place = Path(folder) if folder else judged_dir()
        place.mkdir(parents=True, exist_ok=True)
        table = place / f"{report['gpu']}.csv"
        old = read_judged(report["gpu"], place) if table.exists() else Judged(gpu=report["gpu"], rows=(), first=())
        rows, first = judgements_in(report["rows"]), judgements_in(report["first"])
        said = {who_of(item): item for item in (*old.first, *first)}
        table.write_text(table_of(beside(rows, old.rows), said.values()), encoding="utf-8")
        read_judged.cache_clear()
    document = read_judged(table.stem, table.parent).document()
    for path in [Path(page)] if page else [Path("README.md"), Path("validation", "README.md")]:
        text = path.read_text(encoding="utf-8")
        if SHORT[0] not in text and BEGIN not in text:
            raise SystemExit(f"{path} lacks the comments {BEGIN} or {SHORT[0]}")
        if BEGIN in text:
            text = filled(text, text_of(document))
        if SHORT[0] in text:
            text = filled(text, short_of(document), *SHORT)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
