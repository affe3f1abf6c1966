"""Tables of published microbenchmarks: every number with its prediction, or the reason why there is none, and the errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd
from rich.console import Console

from gpusim.evidence.validate.microbenchmarks import GOAL_PCT, Summary, Verdict, families, summaries
from gpusim.report.tables import plain_table

STANDINGS = {
    "judges": "judge",
    "cited": "cited: a parameter of this GPU cites the source",
    "doubtful": "doubtful: the note of the table says why",
    "unsaid": "not said by the simulator",
    "all": "all",
}


def render_published(gpu_name: str, found: Sequence[Verdict], console: Console, *, worst: int = 0) -> None:
    """Print rows, kinds of numbers and summaries; with ``worst`` only that many rows, the furthest off first."""
    predicted = [item for item in found if item.standing != "unsaid"]
    if worst:
        predicted = sorted(predicted, key=lambda item: -abs(item.error_pct))[:worst]
    title = f"{gpu_name}: the {len(predicted)} furthest off" if worst else f"{gpu_name}: published microbenchmarks"
    table = plain_table(title, "what", "parameters", "published", "predicted", "error %", "", "source", left=2, ends=2)
    for item in predicted:
        row = item.row
        marks = [word for word, is_so in (("FAR", item.is_far), (item.standing, item.standing != "judges")) if is_so]
        table.add_row(
            row.what, _parameters(item), f"{row.value:g} {row.unit}", f"{item.predicted:.5g}", _percent(item.error_pct),
            " ".join(marks), row.source,
        )  # fmt: skip
    console.print(table)
    unsaid = [item for item in found if item.standing == "unsaid"]
    if unsaid and not worst:
        title = f"{gpu_name}: not said by the simulator"
        table = plain_table(title, "what", "parameters", "published", "why not", "source", left=2, ends=2)
        for item in unsaid:
            row = item.row
            table.add_row(row.what, _parameters(item), f"{row.value:g} {row.unit}", item.why_not, row.source)
        console.print(table)
    _render_summaries(f"{gpu_name}: by kind, of the rows that judge", families(found), console)
    _render_summaries(f"{gpu_name}: in all, goal {GOAL_PCT:g} %", summaries(found), console)


def render_ladders(gpu_name: str, ladders: pd.DataFrame, console: Console) -> None:
    """Print the steps of published kernels on a GPU with the latest stored predictions; ``ladders`` is of ``compare``."""
    mine = ladders[(ladders["gpu"] == gpu_name) & ladders["error"].notna()]
    if mine.empty:
        return
    title = f"{gpu_name}: published kernels, time in us"
    table = plain_table(title, "ladder", "step", "m", "published", "predicted", "speed %", left=2)
    for row in mine.to_dict("records"):
        numbers = f"{row['us']:,.2f}", f"{row['time_us']:,.2f}", _percent(100.0 * row["error"])
        table.add_row(row["ladder"], row["step"], row["m"], *numbers)
    console.print(table)
    errors = mine["error"].abs()
    console.print(f"mean error {errors.mean():.1%}, worst {errors.max():.1%}, of {len(errors)} kernels\n")


def published_document(gpu_name: str, found: Sequence[Verdict]) -> dict[str, Any]:
    """JSON document of the rows and summaries; missing numbers are None."""
    rows = [
        {
            "what": item.row.what, "parameters": dict(item.row.parameters), "published": item.row.value,
            "unit": item.row.unit, "predicted": _number(item.predicted), "error_pct": _number(item.error_pct),
            "standing": item.standing, "why_not": item.why_not, "doubt": item.row.doubt, "source": item.row.source,
        }
        for item in found
    ]  # fmt: skip
    of = {"summary": summaries(found), "kinds": families(found)}
    numbers = {
        key: [{name: _number(value) for name, value in asdict(item).items()} for item in items] for key, items in of.items()
    }
    return {"gpu": gpu_name, "rows": rows, **numbers}


def _render_summaries(title: str, found: Sequence[Summary], console: Console) -> None:
    table = plain_table(title, "", "rows", "mean %", "P90 %", "worst %", "far")
    for item in found:
        errors = (_percent(number) for number in (item.mean_pct, item.p90_pct, item.worst_pct))
        table.add_row(STANDINGS.get(item.name, item.name), f"{item.num_rows:,}", *errors, f"{item.num_far:,}")
    console.print(table)
    console.print()


def _parameters(item: Verdict) -> str:
    return " ".join(f"{name}={value}" for name, value in item.row.parameters.items())


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1f}"
