"""Text of an advice: the table of configurations, what limits the best, and the best in the words of other tools."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from gpusim.report.number_format import count, duration, option_words, percent, setting_words
from gpusim.report.tables import plain_table, print_command

if TYPE_CHECKING:
    from gpusim.analysis.advise import Advice

MOST_BUSY = 2
"""Busiest parts that are named for each configuration."""


def render_advice(advice: Advice, console: Console, *, top: int, given: Mapping[str, Any], gpu_name: str) -> None:
    """Print an advice. ``given``: options that were typed; ``gpu_name``: the GPU as it was typed."""
    result = advice.result
    rated = count(len(advice.rated), "configuration") + " rated" if advice.rated else "all options given"
    console.print(f"[bold]{escape(result.kernel)}[/] on [bold]{escape(result.gpu)}[/]: {rated}.")
    if advice.rated:
        _print_ranks(advice, console, top)
    seconds = result.time_us * 1e-6
    least = f"{duration(advice.bound_us * 1e-6)} ({advice.bound_path})"
    lines = [
        f"Best: {duration(seconds)}, {result.tflops:,.1f} TFLOP/s, bound by {result.bound_by}",
        f"First reason: {result.reason}.",
        f"Least time: {least}. The best is {percent(advice.distance)} above it.",
    ]
    if advice.change:
        change = shlex.join(option_words(advice.change))
        lines.append(f"Next change: {change} saves {percent(advice.saves)}.")
    elif any(name in given for name in advice.params.row.deciding):
        lines.append("Next change: none that is known to be faster.")
    for line in lines:
        console.print(escape(line), soft_wrap=True)
    for tool, texts in advice.words.items():
        for idx, text in enumerate(texts):
            console.print(f"[bold]{'' if idx else tool:<9}[/] {escape(text)}", soft_wrap=True)
    console.print("Next: ", end="")
    decided = {name: value for name, value in advice.params.decided().items() if name not in given}
    words = ["gpusim", "explain", result.kernel, *option_words({**given, **decided}), "--gpu", gpu_name]
    words += setting_words(result.settings)
    print_command(shlex.join(words), console)


def _print_ranks(advice: Advice, console: Console, top: int) -> None:
    """Print the table of ranked configurations."""
    shown = advice.rated[:top]
    options = [item.params.as_options() for item in shown]
    names = [name for name in advice.params.row.deciding if len({str(each[name]) for each in options}) > 1]
    table = plain_table("", "", *names, "cycles", "slower", "busiest", left=len(names) + 1, ends=1, no_wrap=True)
    for rank, (item, each) in enumerate(zip(shown, options, strict=True), start=1):
        busiest = sorted(item.busy.items(), key=lambda pair: -pair[1])[:MOST_BUSY]
        table.add_row(
            str(rank), *(_cell(each[name]) for name in names), f"{item.cycles:,.0f}",
            percent(item.cycles / shown[0].cycles - 1.0), ", ".join(f"{part} {percent(share)}" for part, share in busiest),
        )
    console.print(table)


def _cell(value: Any) -> str:
    return escape(("on" if value else "off") if isinstance(value, bool) else str(value))
