"""Report of ``gpusim check``: text for the console, JSON, and JUnit XML for continuous integration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from importlib.util import find_spec
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpusim.errors import ConfigError
from gpusim.evidence.gate.models import state_of
from gpusim.evidence.gate.verdicts import Change, Comparison, LaunchCheck, Report
from gpusim.evidence.nsight.metrics import in_points
from gpusim.evidence.nsight.units import wanted_dimension
from gpusim.report.utilization import utilization

VERDICTS = {True: "pass", False: "FAIL", None: "-"}


P90 = (
    "A P90 limit is from measured launches of the kernel. Nine in ten were closer to their predictions, and nothing was "
    "fitted to them."
)
"""Explanation of such a limit, printed once."""


MOST_ROWS, MOST_LAUNCHES, MOST_LINES = 20, 3, 8
"""Rows of a launch's table, launches that all have a table, and lines on further launches: what a screen holds."""


def render_check(report: Report, console: Console) -> None:
    """Print the comparisons and the verdict, a screen in all. Launches out of tolerance come before the others."""
    ordered = sorted(report.launches, key=lambda item: item.passes)
    in_full = ordered[:1] if len(ordered) > MOST_LAUNCHES else list(report.launches)
    for item in in_full:
        _render_launch(item, report, console)
    rest = [item for item in ordered if item not in in_full]
    for item in [item for item in rest if not item.passes][:MOST_LINES]:
        bad = [part.metric for part in item.comparisons if part.passes is False]
        bad += [part.metric for part in item.changes if part.is_worse]
        console.print(
            f"Launch {item.launch.idx}, [bold]{escape(item.launch.kernel)}[/]: [red]FAIL[/] {escape(bad[0])}"
            + (f" and {len(bad) - 1} more metrics" if len(bad) > 1 else "")
        )
    if rest:
        bad_num = sum(not item.passes for item in rest)
        console.print(f"{len(rest)} more launches, {bad_num} of them out of tolerance (--json FILE has all)")
    for sentence in report.remarks:
        console.print(f"[yellow]Remark[/]: {escape(sentence)}")
    if any("P90" in source for item in report.launches for source in _sources(item.comparisons)):
        console.print(f"[dim]{P90}[/]")
    console.print(f"[bold]Verdict[/]: {escape(report.verdict)}")


def _render_launch(item: LaunchCheck, report: Report, console: Console) -> None:
    """Print a launch with its tables, remarks and causes."""
    _heading(item, report, console)
    if item.comparisons:
        shown = _most_telling(item.comparisons, [part for part in item.comparisons if part.passes is False])
        console.print(_predicted(shown))
        for number, source in enumerate(_sources(shown), start=1):
            console.print(f"[dim]{escape(f'[{number}]')} {escape(source)}[/]")
        _render_rest(len(item.comparisons) - len(shown), "within tolerance or without a limit", console)
    if item.changes and report.baseline is not None:
        changed = _most_telling(item.changes, [part for part in item.changes if part.is_worse])
        console.print(_changed(changed, report.baseline.name))
        _render_rest(len(item.changes) - len(changed), "not worse", console)
    for sentence in _utilization(item):
        console.print(f"[bold]Utilization[/]: {escape(sentence)}")
    for title, sentences in (("Remark", item.remarks), ("What changed", item.causes)):
        for sentence in sentences:
            console.print(f"[yellow]{title}[/]: {escape(sentence)}")
    console.print()


def _utilization(item: LaunchCheck) -> list[str]:
    return utilization(item.launch.metrics, "" if item.result is None else item.result.bound_by)


def _most_telling(parts: Sequence[Any], bad: Sequence[Any]) -> list[Any]:
    """Parts of a table in their order: those out of tolerance first of all, then as many others as there is place for."""
    kept = [*bad, *(part for part in parts if part not in bad)][: max(MOST_ROWS, len(bad))]
    return [part for part in parts if part in kept]


def _render_rest(num: int, what: str, console: Console) -> None:
    if num:
        console.print(f"[dim]{num} more metrics {what} (--json FILE has all)[/]")


def _heading(item: LaunchCheck, report: Report, console: Console) -> None:
    if item.model is None:
        console.print(f"Launch {item.launch.idx}, [bold]{escape(item.launch.kernel)}[/]: without a model")
        return
    given = {name: value for name, value in item.model.options.items() if name != "compiled_code"}
    options = " ".join(f"{name}={value}" for name, value in given.items())
    console.print(
        f"Launch {item.launch.idx}, [bold]{escape(item.launch.kernel)}[/]: model [bold]{escape(item.model.kernel)}[/] "
        f"{escape(options)} on [bold]{escape(report.gpu)}[/], L2 {state_of(item.model)}, at {escape(item.clock)}",
    )
    if item.model.kernel == "gemm":
        code = item.model.options.get("compiled_code")
        console.print(f"Code: {escape('estimated' if code is None else getattr(code, 'text', f'given in {code}'))}")


def _source(item: Comparison) -> str:
    """Source of the limit, in the words of the table's notes."""
    return "shown only, no limit" if item.tolerance is None else item.tolerance.source


def _sources(comparisons: Sequence[Comparison]) -> list[str]:
    """Sources of the limits, each once."""
    return list(dict.fromkeys(map(_source, comparisons)))


def _table(title: str | None, *columns: str) -> Table:
    """Table whose rows fit in 100 columns. The columns after the metric's name are numbers and a verdict."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("metric", overflow="fold")
    table.add_column("", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    return table


def _merged(parts: Sequence[Any]) -> list[tuple[str, Any]]:
    """(name, part) of each row. Parts that differ only in how a metric is summed up share a row: ``a.avg .max .sum``."""
    rows: dict[tuple[Any, ...], list[Any]] = {}
    for part in parts:
        values = [getattr(part, field.name) for field in fields(part) if field.name != "metric"]
        rows.setdefault((part.metric.partition(".")[0], *values), []).append(part)
    return [(" .".join([same[0].metric, *(part.metric.partition(".")[2] for part in same[1:])]), same[0])
            for same in rows.values()]


def _predicted(comparisons: Sequence[Comparison]) -> Table:
    table = _table(None, "measured", "predicted", "difference", "limit")
    table.add_column("", style="dim", no_wrap=True)
    sources = _sources(comparisons)
    for name, item in _merged(comparisons):
        limit = "" if item.tolerance is None else item.tolerance.text
        table.add_row(
            name, _unit(item.metric), _number(item.measured), _number(item.predicted), difference_text(item), limit,
            VERDICTS[item.passes],
            escape(f"[{sources.index(_source(item)) + 1}]"), style="red" if item.passes is False else None,
        )  # fmt: skip
    return table


def _changed(changes: Sequence[Change], baseline: str) -> Table:
    table = _table(f"Against {escape(baseline)}", "before", "now", "difference", "limit")
    for name, item in _merged(changes):
        limit = "" if item.tolerance is None else item.tolerance.text
        verdict = VERDICTS[None if item.tolerance is None else not item.is_worse]
        table.add_row(
            name, _unit(item.metric), _number(item.before), _number(item.now), difference_text(item), limit, verdict,
            style="red" if item.is_worse else None,
        )  # fmt: skip
    return table


def difference_text(item: Comparison | Change) -> str:
    """Difference with its sign and unit; ``pt``: percentage points.

    >>> difference_text(Comparison(metric="a.sum", measured=8.0, predicted=10.0, tolerance=None))
    '+25.00 %'
    """
    if math.isinf(item.difference):
        return "from nothing"
    if isinstance(item, Comparison) and item.is_of_floor:
        return f"{item.difference:+.2f} % of floor"
    return f"{item.difference:+.2f} {'pt' if in_points(item.metric) else '%'}"


def _unit(metric: str) -> str:
    """Unit of a metric's numbers in the table; empty for counts, and for cycles, which its name says.

    >>> [_unit(name) for name in ("gpu__time_duration.sum", "dram__bytes_read.sum", "sm__cycles_elapsed.max")]
    ['ns', 'B', '']
    """
    return UNITS.get(wanted_dimension(metric), "")


UNITS = {"time": "ns", "byte": "B", "hertz": "Hz", "byte/second": "B/s", "%": "%"}
"""Units of numbers in the table, by dimension."""


def _number(value: float) -> str:
    """Number as a table shows it.

    >>> _number(1234567.0), _number(51.68), _number(8192.25)
    ('1,234,567', '51.68', '8,192')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 or float(value).is_integer() else f"{value:.4g}"


def check_document(report: Report) -> dict[str, Any]:
    """JSON document of the report."""
    return {
        "profile": str(report.profile), "gpu": report.gpu,
        "baseline": None if report.baseline is None else str(report.baseline), "status": report.status,
        "verdict": report.verdict, "strict": report.is_strict, "not_compared": list(report.not_compared),
        "models_without_a_launch": list(report.unmet),
        "launches_without_a_model": [{"id": launch.idx, "kernel": launch.kernel} for launch in report.unmodelled],
        "launches": [_launch_document(item) for item in report.launches],
        "remarks": list(report.remarks),
    }


def _model_document(item: LaunchCheck) -> dict[str, Any]:
    """What the model of a launch is; each None without a model."""
    model, result = item.model, item.result
    if model is None or result is None:
        return dict.fromkeys(("model", "options", "l2", "clock", "sm_clock_mhz", "bound_by"))
    return {
        "model": model.kernel, "options": dict(model.options), "l2": state_of(model), "clock": item.clock,
        "sm_clock_mhz": result.sm_clock_mhz, "bound_by": result.bound_by,
    }  # fmt: skip


def _launch_document(item: LaunchCheck) -> dict[str, Any]:
    return {
        "id": item.launch.idx, "kernel": item.launch.kernel, "passes": item.passes, **_model_document(item),
        "not_predicted": list(item.unpredicted), "utilization": _utilization(item),
        "metrics": [
            {
                "metric": part.metric, "measured": part.measured, "predicted": part.predicted,
                "difference": part.difference, "unit": "points" if part.is_points else "%",
                "tolerance": None if part.passes is None or part.tolerance is None else part.tolerance.limit,
                "tolerance_absolute": getattr(part.tolerance, "absolute", 0.0),
                "tolerance_from": None if part.tolerance is None else part.tolerance.source, "passes": part.passes,
            }
            for part in item.comparisons
        ],
        "changes": [
            {
                "metric": part.metric, "before": part.before, "now": part.now, "difference": part.difference,
                "tolerance": None if part.tolerance is None else part.tolerance.limit, "is_worse": part.is_worse,
            }
            for part in item.changes
        ],
        "causes": list(item.causes), "remarks": list(item.remarks),
    }


def check_junit() -> None:
    """Check that JUnit XML can be written.

    Raises:
        ConfigError: junitparser is not installed.
    """
    if find_spec("junitparser") is None:
        raise ConfigError("--junit wants the package junitparser: pip install 'gpusim[ci]'")


def junit_bytes(report: Report) -> bytes:
    """JUnit XML of the report: a suite per launch, a case per metric with a tolerance; errors for what is not compared.

    Raises:
        ConfigError: junitparser is not installed.
    """
    check_junit()
    from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

    document = JUnitXml("gpusim check")
    for item in report.launches:
        suite = TestSuite(f"{item.launch.kernel} (launch {item.launch.idx})")
        model = "no_model" if item.model is None else item.model.kernel
        for part in item.comparisons:
            if part.passes is not None:
                case = TestCase(part.metric, classname=f"{model}.predicted")
                if not part.passes:
                    case.result = [Failure(_failed(part, part.measured, "measured", part.predicted, "predicted"))]
                suite.add_testcase(case)
        for change in item.changes:
            if change.tolerance is not None:
                case = TestCase(change.metric, classname=f"{model}.baseline")
                if change.is_worse:
                    case.system_out = "\n".join(item.causes)
                    case.result = [Failure(_failed(change, change.before, "before", change.now, "now"))]
                suite.add_testcase(case)
        document.add_testsuite(suite)
    if report.not_compared:
        suite = TestSuite("all that was asked for")
        for sentence in report.not_compared:
            case = TestCase(sentence, classname="not compared")
            case.result = [Error(report.verdict)]
            suite.add_testcase(case)
        document.add_testsuite(suite)
    if report.unmet:
        suite = TestSuite("models")
        for name in report.unmet:
            case = TestCase(f"a launch of {name}", classname="models")
            case.result = [Skipped("no launch of the profile is of it")]
            suite.add_testcase(case)
        document.add_testsuite(suite)
    document.update_statistics()  # type: ignore[no-untyped-call]  # the library's
    return bytes(document.tostring())  # type: ignore[no-untyped-call]  # the library's


def none_junit_bytes(sentence: str) -> bytes:
    """JUnit XML of a check that compared nothing, with ``sentence`` as its error. It replaces an earlier check's file."""
    from junitparser import Error, JUnitXml, TestCase, TestSuite

    document, suite = JUnitXml("gpusim check"), TestSuite("all that was asked for")
    case = TestCase("something to compare", classname="not compared")
    case.result = [Error(sentence)]
    suite.add_testcase(case)
    document.add_testsuite(suite)
    document.update_statistics()  # type: ignore[no-untyped-call]  # the library's
    return bytes(document.tostring())  # type: ignore[no-untyped-call]  # the library's


def _failed(item: Comparison | Change, one: float, what: str, other: float, then: str) -> str:
    limit = "" if item.tolerance is None else item.tolerance.text
    return f"{item.metric}: {_number(one)} {what}, {_number(other)} {then}: {difference_text(item)}, tolerance {limit}"
