"""Waterfall plot of a kernel's cycles: the saving of each counterfactual alone, and what remains."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

from gpusim.analysis.changes import NOTHING
from gpusim.analysis.explain import Counterfactual, Explanation
from gpusim.report.number_format import percent
from gpusim.report.plots.figure import BLUE, ORANGE, headline, name_right, new_figure, picture_of, settings
from gpusim.report.plots.picture import Picture, check_plot

REMAINS = "#C8C8C8"

TOTAL = "#4D4D4D"


def plot_waterfall(explanation: Explanation, path: str | Path | None = None) -> Picture:
    """Plot the cycles of a kernel, and the saving of each counterfactual alone; written to ``path`` if given.

    Savings overlap, so that bars are not stacked: each begins at the full cycles. The last bar is what remains with all
    parts free at once.

    Raises:
        GpusimError: the suffix is unknown, or ``path`` cannot be written.
        OSError: the file cannot be written.
    """
    check_plot(path)
    result, total = explanation.result, explanation.result.cycles
    saving = [item for item in explanation.counterfactuals if not item.saves_nothing]
    savings = [f"{item.title} would save {item.saved_cycles:,.0f} ({percent(item.share)})" for item in saving]
    alt = f"Where the {total:,.0f} cycles of {result.kernel} on {result.gpu} go: {', '.join(savings) or 'no fix saves any'}"
    alt += ", each alone" if len(saving) > 1 else ""
    if explanation.together_cycles is not None:
        alt += f"; with all parts free at once {explanation.together_cycles:,.0f} cycles remain"
    with settings():
        return picture_of(_draw(explanation), f"{alt}.", path)


def _draw(explanation: Explanation) -> Any:
    result, total = explanation.result, explanation.result.cycles
    items = explanation.counterfactuals
    num_rows = len(items) + 1 + (explanation.together_cycles is not None)
    figure = new_figure(8.2, 0.34 * num_rows + 1.6)
    axes = figure.subplots()
    axes.barh(0, total, height=0.66, color=TOTAL)
    name_right(axes, total, 0, f"{total:,.0f} cycles", fontweight="bold")
    for row, item in enumerate(items, 1):
        _row(axes, row, item, total)
    labels = ["as predicted", *(_label(item) for item in items)]
    if explanation.together_cycles is not None:
        remains = explanation.together_cycles
        axes.barh(num_rows - 1, remains, height=0.66, color=BLUE)
        name_right(axes, remains, num_rows - 1, f"{remains:,.0f} remain ({percent(remains / total)})", fontweight="bold")
        labels.append("all parts free at once")
        axes.axhline(num_rows - 1.5, color="#808080", linewidth=0.6)
    axes.axvline(total, color="black", linewidth=0.8, linestyle=":", zorder=0)
    axes.set_yticks(range(num_rows), labels)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(num_rows - 0.4, -0.6)
    axes.set_xlim(0.0, total * 1.35)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel(f"SM cycles of the kernel at {result.sm_clock_mhz:,.0f} MHz; hatched: what the row alone would save")
    axes.spines["left"].set_visible(False)
    headline(figure, f"Where the cycles go: {result.kernel} on {result.gpu}")
    axes.set_title(fill(overlap(explanation), 84), fontsize=8, loc="left")
    return figure


def overlap(explanation: Explanation) -> str:
    """Sentence on how the savings overlap, in numbers."""
    total = explanation.result.cycles
    parts = [item for item in explanation.counterfactuals if item.name != "tail"]
    alone = sum(item.saved_cycles for item in parts)
    if explanation.together_cycles is None:
        return "Each row alone: savings overlap, and do not add up."
    at_once = total - explanation.together_cycles
    return (
        f"Each row alone: savings overlap, and do not add up. Parts made free one by one save {alone:,.0f} cycles in all, "
        f"at once {at_once:,.0f}."
    )


def _label(item: Counterfactual) -> str:
    title = item.title if len(item.title) <= 40 else f"{item.title.partition(' (')[0]}"
    return title if item.is_simulated else f"{title} (computed)"


def _row(axes: Any, row: int, item: Counterfactual, total: float) -> None:
    left = total - item.saved_cycles
    axes.barh(row, left, height=0.66, color=REMAINS)
    if item.saves_nothing:
        slower = item.note if item.note.endswith("slower") else f"saves nothing (below {percent(NOTHING)})"
        name_right(axes, total, row, slower, color="#404040", style="italic")
        return
    axes.barh(
        row, item.saved_cycles, left=left, height=0.66, facecolor=ORANGE, hatch="////", edgecolor="black", linewidth=0.6
    )
    name_right(axes, total, row, f"-{item.saved_cycles:,.0f} ({percent(item.share)})")
