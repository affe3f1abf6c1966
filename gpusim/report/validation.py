"""Tables of validation and calibration: families of rows with their errors, parameters before and after."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from rich.console import Console

from gpusim.evidence.cases.paths import held_out_families
from gpusim.evidence.validate.calibrate import Line
from gpusim.evidence.validate.judge import TIERS, Judgement, Summary
from gpusim.report.tables import plain_table


def render_summaries(found: Sequence[Summary], console: Console, totals: Sequence[Summary] = ()) -> None:
    """Print a table per tier: rows, mean, P90 and worst error of each family, and whether it passes; then ``totals``.

    Further columns, where known, are the mean error of a roofline and the mean spread of repeated measurements.
    """
    for tier in sorted({item.tier for item in found}):
        of_tier = [item for item in found if item.tier == tier]
        of_all = [item for item in totals if item.tier == tier and item.num_families > 1]
        extra = [
            (title, number)
            for title, number in (("roofline %", _roofline_pct), ("spread %", _spread_pct))
            if any(number(item) is not None for item in of_tier)
        ]
        titles = ("kernel", "group", "what", "rows", "mean %", "P90 %", "worst %", *(title for title, _ in extra), "")
        table = plain_table(f"Tier {tier}: {TIERS[tier].question}", *titles, left=3, ends=1)
        for item in (*of_tier, *of_all):
            others = [_percent(value) if (value := number(item)) is not None else "" for _, number in extra]
            table.add_row(
                item.kernel, item.group or f"{item.num_families} families", item.name, f"{item.num_rows:,}",
                _percent(item.mean_pct), _percent(item.p90_pct), _percent(item.worst_pct), *others, _verdict(item),
            )  # fmt: skip
        rows = sum(item.num_rows for item in of_tier)
        in_percent = [item for item in of_tier if not item.limit.is_points]
        means = [_percent(sum(item.mean_pct for item in in_percent) / len(in_percent))] if in_percent else [""]
        worst = _percent(max((item.worst_pct for item in in_percent), default=math.nan))
        table.add_row(
            "all", "", "mean of family means", f"{rows:,}", *means, "", worst, *("" for _ in extra),
            f"{sum(item.passes for item in of_tier)} of {len(of_tier)} pass",
        )  # fmt: skip
        console.print(table)
        console.print(f"wanted: {limits_of(tier)}{_exceptions(of_tier)}\n")


def _roofline_pct(item: Summary) -> float | None:
    return item.roofline_pct


def _spread_pct(item: Summary) -> float | None:
    return item.spread_pct


def _verdict(item: Summary) -> str:
    return ("pass" if item.passes else "FAIL") + (", points" if item.limit.is_points else "")


def _exceptions(found: Sequence[Summary]) -> str:
    """Limits that differ from the tier's, each with the names that have it."""
    names: dict[str, list[str]] = {}
    for item in found:
        if item.limit != TIERS[item.tier].limit:
            names.setdefault(item.limit.text, []).append(item.name)
    return "".join(f"; {', '.join(dict.fromkeys(which))}: {text}" for text, which in names.items())


def limits_of(tier: int) -> str:
    """Limits of a tier, in words.

    >>> limits_of(6), limits_of(3)
    ('mean 6 %, P90 12 %, worst 25 %', 'worst 0 %')
    """
    return TIERS[tier].limit.text


def render_worst(found: Sequence[Judgement], count: int, console: Console) -> None:
    """Print the ``count`` numbers with the largest errors, with their configs; none of a family that is held out."""
    held_out = held_out_families()
    shown = [item for item in found if (item.family or item.kernel) not in held_out]
    worst = sorted(shown, key=lambda item: -abs(item.error_pct))[:count]
    title = f"The {len(worst)} furthest off"
    table = plain_table(title, "kernel", "what", "config", "measured", "predicted", "error %", left=3)
    for item in worst:
        config = ", ".join(f"{key} {value}" for key, value in item.config.items() if len(value) < 40)
        table.add_row(
            f"{item.kernel} {item.group}", item.name, config, f"{item.measured:g}", f"{item.predicted:g}",
            _percent(item.error_pct),
        )  # fmt: skip
    console.print(table)
    if len(shown) < len(found):
        console.print("Single rows of families that are held out are not shown.")


def render_calibration(lines: Sequence[Line], num_parameters: int, console: Console) -> None:
    """Print each parameter before and after, with the value of the judging rows."""
    titles = ("parameter", "before", "after", "change %", "off the judging rows %", "was")
    table = plain_table("Parameters that the measured rows give", *titles, ends=1)
    for line in lines:
        table.add_row(
            line.parameter, f"{line.before:.4g}", f"{line.after:.4g}", _percent(line.change_pct), _percent(line.judged_pct),
            line.source_before.split(":")[0],
        )  # fmt: skip
    console.print(table)
    console.print(f"{len(lines)} of the GPU's {num_parameters} parameters.\n")


def render_unsettled(found: Mapping[str, Sequence[str]], tables: Collection[str], console: Console) -> None:
    """Print the parameters that no row settles, by microbenchmark, and the command that measures those without rows."""
    for name, parameters in found.items():
        why = "its rows give none of" if name in tables else "no rows, so not settled:"
        console.print(f"{name}: {why} {', '.join(parameters)}", markup=False, highlight=False, soft_wrap=True)
    if lacking := [name for name in found if name not in tables]:
        console.print(f"On that GPU: gpusim measure {' '.join(lacking)}", markup=False, highlight=False, soft_wrap=True)


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"
