"""Report of ``gpusim check``: text for the console, JSON, and JUnit XML for continuous integration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpusim.errors import ConfigError
from gpusim.evidence.gate.models import state_of
from gpusim.evidence.gate.verdicts import Change, Comparison, LaunchCheck, Report, in_points
from gpusim.report.tables import plain_table

VERDICTS = {True: "pass", False: "FAIL", None: "-"}


JUDGED_ROWS = (
    "P90 of a kernel's judged rows: nine in ten measured launches of it, to none of which anything was fitted, were closer "
    "to their predictions."
)
"""Explanation of that tolerance, printed once."""


def render_check(report: Report, console: Console) -> None:
    """Print the comparisons, launch by launch, and the verdict, also if all is well."""
    for item in report.launches:
        _heading(item, report, console)
        if item.comparisons:
            console.print(_predicted(item.comparisons))
        if item.changes and report.baseline is not None:
            console.print(_changed(item.changes, report.baseline.name))
        for title, sentences in (("Remark", item.remarks), ("What changed", item.causes)):
            for sentence in sentences:
                console.print(f"[yellow]{title}[/]: {escape(sentence)}")
        console.print()
    for sentence in report.remarks:
        console.print(f"[yellow]Remark[/]: {escape(sentence)}")
    if any(part.tolerance is not None and "judged rows" in part.tolerance.source for item in report.launches
           for part in item.comparisons):
        console.print(f"[dim]{JUDGED_ROWS}[/]")
    console.print(f"[bold]Verdict[/]: {escape(report.verdict)}")


def _heading(item: LaunchCheck, report: Report, console: Console) -> None:
    options = " ".join(f"{name}={value}" for name, value in item.model.options.items())
    console.print(
        f"Launch {item.launch.idx}, [bold]{escape(item.launch.kernel)}[/]: model [bold]{escape(item.model.kernel)}[/] "
        f"{escape(options)} on [bold]{escape(report.gpu)}[/], L2 {state_of(item.model)}, at {escape(item.clock)}",
    )


def _predicted(found: Sequence[Comparison]) -> Table:
    titles = ("metric", "measured", "predicted", "difference", "tolerance", "verdict", "tolerance from")
    table = plain_table("", *titles, ends=2)
    for item in found:
        limit, source = ("", "shown alone") if item.tolerance is None else (item.tolerance.text, item.tolerance.source)
        table.add_row(
            item.metric, _number(item.measured), _number(item.predicted), difference_text(item), limit,
            VERDICTS[item.passes], escape(source), style="red" if item.passes is False else None,
        )  # fmt: skip
    return table


def _changed(found: Sequence[Change], name: str) -> Table:
    titles = ("metric", "before", "now", "difference", "may be worse by", "verdict")
    table = plain_table(f"Against {escape(name)}", *titles, ends=1)
    for item in found:
        limit = "" if item.tolerance is None else item.tolerance.text
        verdict = VERDICTS[None if item.tolerance is None else not item.is_worse]
        table.add_row(
            item.metric, _number(item.before), _number(item.now), difference_text(item), limit, verdict,
            style="red" if item.is_worse else None,
        )  # fmt: skip
    return table


def difference_text(item: Comparison | Change) -> str:
    """Difference with its sign and unit.

    >>> difference_text(Comparison(metric="a.sum", measured=8.0, predicted=10.0, tolerance=None))
    '+25.00 %'
    """
    if math.isinf(item.difference):
        return "from nothing"
    if isinstance(item, Comparison) and item.is_of_floor:
        return f"{item.difference:+.2f} % of floor"
    return f"{item.difference:+.2f} {'points' if in_points(item.metric) else '%'}"


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
        "models_without_a_launch": list(report.unmet), "launches": [_launch_document(item) for item in report.launches],
        "remarks": list(report.remarks),
    }


def _launch_document(item: LaunchCheck) -> dict[str, Any]:
    return {
        "id": item.launch.idx, "kernel": item.launch.kernel, "model": item.model.kernel, "options": dict(item.model.options),
        "l2": state_of(item.model), "clock": item.clock, "sm_clock_mhz": item.result.sm_clock_mhz, "passes": item.passes,
        "bound_by": item.result.bound_by,
        "metrics": [
            {
                "metric": part.metric, "measured": part.measured, "predicted": part.predicted,
                "difference": part.difference, "unit": "points" if part.is_points else "%",
                "tolerance": None if part.passes is None or part.tolerance is None else part.tolerance.limit,
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
        for part in item.comparisons:
            if part.passes is not None:
                case = TestCase(part.metric, classname=f"{item.model.kernel}.predicted")
                if not part.passes:
                    case.result = [Failure(_failed(part, part.measured, "measured", part.predicted, "predicted"))]
                suite.add_testcase(case)
        for change in item.changes:
            if change.tolerance is not None:
                case = TestCase(change.metric, classname=f"{item.model.kernel}.baseline")
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
