"""Predicted time over a swept option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpusim.analysis.sweep import Entry, Sweep
from gpusim.report.number_format import count, flag
from gpusim.report.plots.figure import picture_of, settings
from gpusim.report.plots.picture import Picture, check_plot


def plot_sweep(sweep: Sweep, path: str | Path | None = None, *, over: str = "") -> Picture:
    """Every time over the option ``over`` (default: the one with most values), the best of each value as a line.

    Raises:
        GpusimError: another suffix, or nowhere to write.
        OSError: the file cannot be written.
    """
    check_plot(path)
    over = over or most_varied(sweep)
    timed = sorted((entry for entry in sweep.entries if entry.result is not None), key=lambda entry: entry.time_us)
    alt = f"Time in us of {count(len(timed), 'configuration')} of {sweep.kernel} on {sweep.gpu}"
    alt += f" over {flag(over)}" if over else ""
    if timed:
        best, worst = timed[0], timed[-1]
        where = f" at {flag(over)} {best.choice.options.get(over)}" if over else ""
        alt += f": from {best.time_us:,.1f} us{where} to {worst.time_us:,.1f} us"
    with settings():
        return picture_of(_draw(sweep, over), f"{alt}.", path, dpi=120)


def most_varied(sweep: Sweep) -> str:
    """The option with most values; empty where none varies."""
    options = [entry.choice.options for entry in sweep.entries]
    return max(sweep.choices.varied, key=lambda name: len({str(of[name]) for of in options}), default="")


def _draw(sweep: Sweep, over: str) -> Any:
    from matplotlib.figure import Figure

    timed = [entry for entry in sweep.entries if entry.result is not None]
    found = list(dict.fromkeys(str(entry.choice.options.get(over, "")) for entry in timed))
    is_numeric = bool(found) and all(value.isdigit() for value in found)
    values = sorted(found, key=int) if is_numeric else sorted(found)
    places = {value: float(value) if is_numeric else float(idx) for idx, value in enumerate(values)}
    figure = Figure(figsize=(max(7.0, 0.5 * len(values)), 5.0), layout="constrained")
    axes = figure.subplots()

    def place(entry: Entry) -> float:
        return places[str(entry.choice.options.get(over, ""))]

    axes.scatter([place(entry) for entry in timed], [entry.time_us for entry in timed], s=14, color="#0072B2", alpha=0.5,
                 label="a configuration")
    best = {where: min(entry.time_us for entry in timed if place(entry) == where) for where in map(place, timed)}
    spots = sorted(best)
    axes.plot(spots, [best[spot] for spot in spots], color="#D55E00", marker="o", label="the best of a value")
    if is_numeric and len(values) > 2 and int(values[-1]) >= 8 * int(values[0]):
        axes.set_xscale("log", base=2)
    if not is_numeric or len(values) <= 16:
        axes.set_xticks([places[value] for value in values], values, rotation=0 if is_numeric else 45)
    axes.set_xlabel(flag(over) if over else "")
    axes.set_ylabel("time (us)")
    axes.set_ylim(bottom=0.0)
    axes.set_title(f"{sweep.kernel} on {sweep.gpu}", fontsize=10)
    if timed:
        axes.legend(fontsize=8)
    return figure
