"""Validation and calibration for people: families of rows and their errors, parameters before and after."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from gpusim.evidence.calibrate import Line
from gpusim.evidence.validate import TIERS, Judgement, Summary


def render_summaries(found: Sequence[Summary], console: Console) -> None:
    """A table a tier: rows, mean, P90 and worst error of each family, and whether it passes."""
    for tier in sorted({item.tier for item in found}):
        table = Table(title=f"Tier {tier}: {TIERS[tier].question}", title_justify="left", box=None)
        table.add_column("kernel", no_wrap=True)
        table.add_column("group", no_wrap=True)
        table.add_column("what", overflow="fold")
        for name in ("rows", "mean %", "P90 %", "worst %"):
            table.add_column(name, justify="right")
        table.add_column("")
        of_tier = [item for item in found if item.tier == tier]
        for item in of_tier:
            table.add_row(
                item.kernel, item.group, item.name, f"{item.num_rows:,}", _percent(item.mean_pct), _percent(item.p90_pct),
                _percent(item.worst_pct), "pass" if item.passes else "FAIL",
            )  # fmt: skip
        rows = sum(item.num_rows for item in of_tier)
        means = sum(item.mean_pct for item in of_tier) / len(of_tier)
        table.add_row(
            "all", "", "mean of family means", f"{rows:,}", _percent(means), "", _percent(max(i.worst_pct for i in of_tier)),
            f"{sum(item.passes for item in of_tier)} of {len(of_tier)} pass",
        )  # fmt: skip
        console.print(table, highlight=False)
        console.print(f"wanted: {limits_of(tier)}\n", highlight=False)


def limits_of(tier: int) -> str:
    """What a tier wants, in words.

    >>> limits_of(6), limits_of(3)
    ('mean 6 %, P90 12 %, worst 25 %', 'worst 0 %')
    """
    return TIERS[tier].limit.text


def render_worst(found: Sequence[Judgement], count: int, console: Console) -> None:
    """The ``count`` numbers that are furthest off, with their configs."""
    worst = sorted(found, key=lambda item: -abs(item.error_pct))[:count]
    table = Table(title=f"The {len(worst)} furthest off", title_justify="left", box=None)
    for name in ("kernel", "what", "config"):
        table.add_column(name, overflow="fold")
    for name in ("measured", "predicted", "error %"):
        table.add_column(name, justify="right")
    for item in worst:
        config = ", ".join(f"{key} {value}" for key, value in item.config.items() if len(value) < 40)
        table.add_row(
            f"{item.kernel} {item.group}", item.name, config, f"{item.measured:g}", f"{item.predicted:g}",
            _percent(item.error_pct),
        )  # fmt: skip
    console.print(table, highlight=False)


def render_calibration(lines: Sequence[Line], num_parameters: int, console: Console) -> None:
    """Each parameter before and after with what the judging rows say."""
    table = Table(title="Parameters that the measured rows give", title_justify="left", box=None)
    table.add_column("parameter")
    for name in ("before", "after", "change %", "off the judging rows %"):
        table.add_column(name, justify="right")
    table.add_column("was", overflow="fold")
    for line in lines:
        table.add_row(
            line.parameter, f"{line.before:.4g}", f"{line.after:.4g}", _percent(line.change_pct), _percent(line.judged_pct),
            line.source_before.split(":")[0],
        )  # fmt: skip
    console.print(table, highlight=False)
    console.print(f"{len(lines)} of the GPU's {num_parameters} parameters. Lines to take over:\n", highlight=False)


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"
