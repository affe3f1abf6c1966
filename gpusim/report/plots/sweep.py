"""Plot of predicted time over a swept kernel option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpusim.analysis.sweep import Entry, Sweep
from gpusim.report.number_format import count, flag
from gpusim.report.plots.figure import new_figure, picture_of, settings
from gpusim.report.plots.measured import LOOKS
from gpusim.report.plots.picture import Picture, check_plot

MOST_TICKS = 16
"""Most values of a numeric option that get a tick each."""

SPREAD = 0.12
"""Distance of neighbouring groups at one value, where values are words."""


def plot_sweep(sweep: Sweep, path: str | Path | None = None, *, over: str = "") -> Picture:
    """Plot every time over the option ``over`` (default: the one with most values); large marks are the best at a value.

    Colours and marks distinguish schedules, or the values of another option where the schedule is fixed.

    Raises:
        GpusimError: the suffix is unknown, or ``path`` cannot be written.
        OSError: the file cannot be written.
    """
    check_plot(path)
    over = over or most_varied(sweep)
    timed = sorted(_timed(sweep), key=lambda entry: entry.time_us)
    alt = f"Time in us of {count(len(timed), 'configuration')} of {sweep.kernel} on {sweep.gpu}"
    alt += f" over {flag(over)}" if over else ""
    if timed:
        best, worst = timed[0], timed[-1]
        where = f" at {flag(over)} {best.choice.options.get(over)}" if over else ""
        alt += f": from {best.time_us:,.1f} us{where} to {worst.time_us:,.1f} us"
    by = grouped_by(sweep, over)
    for name in _values(timed, by) if by else []:
        fastest = min(entry.time_us for entry in timed if _value(entry, by) == name)
        alt += f"; the best of {flag(by)} {name} takes {fastest:,.1f} us"
    with settings():
        return picture_of(_draw(sweep, over), f"{alt}.", path)


def most_varied(sweep: Sweep) -> str:
    """Option with most values; empty where none varies."""
    return max(sweep.choices.varied, key=lambda name: len(_values(sweep.entries, name)), default="")


def grouped_by(sweep: Sweep, over: str) -> str:
    """Option whose values get different colours: the schedule, else the one with most values that fit; empty for none."""
    timed = _timed(sweep)
    sizes = {name: len(_values(timed, name)) for name in sweep.choices.varied if name != over}
    found = {name: size for name, size in sizes.items() if 1 < size <= len(LOOKS)}
    return "schedule" if "schedule" in found else max(found, key=lambda name: found[name], default="")


def _timed(sweep: Sweep) -> list[Entry]:
    return [entry for entry in sweep.entries if entry.result is not None]


def _value(entry: Entry, option: str) -> str:
    return str(entry.choice.options.get(option, ""))


def _values(entries: Any, option: str) -> list[str]:
    """Values of an option, numbers in order."""
    found = list(dict.fromkeys(_value(entry, option) for entry in entries))
    return sorted(found, key=int) if found and all(value.isdigit() for value in found) else sorted(found)


def _draw(sweep: Sweep, over: str) -> Any:
    timed, by = _timed(sweep), grouped_by(sweep, over)
    values, names = _values(timed, over), _values(timed, by) if by else [""]
    is_numeric = bool(values) and all(value.isdigit() for value in values)
    figure = new_figure(max(7.6, 0.5 * len(values)), 4.6)
    axes = figure.subplots()
    for idx, (name, (colour, line, marker)) in enumerate(zip(names, LOOKS, strict=False)):
        own = [entry for entry in timed if not by or _value(entry, by) == name]
        aside = 0.0 if is_numeric else SPREAD * (idx - (len(names) - 1) / 2)
        places = {value: float(value) if is_numeric else place + aside for place, value in enumerate(values)}
        at = [places[_value(entry, over)] for entry in own]
        axes.scatter(at, [entry.time_us for entry in own], s=16, color=colour, marker=marker, alpha=0.5, linewidths=0)
        best = {place: min(entry.time_us for entry, here in zip(own, at, strict=True) if here == place) for place in at}
        spots = sorted(best)
        axes.plot(
            spots, [best[spot] for spot in spots], color=colour, marker=marker, markersize=7, markerfacecolor="white",
            markeredgewidth=1.6, linestyle=line if is_numeric else "", linewidth=1.4,
            label=f"{flag(by)} {name}" if by else "the best of a value",
        )  # fmt: skip
    _axes(axes, values, is_numeric=is_numeric)
    axes.set_xlabel(flag(over) if over else "")
    axes.set_ylabel("time (us)")
    some = "" if len(timed) == len(sweep.entries) else f" of {len(sweep.entries)}, the others excluded"
    axes.set_title(
        f"{sweep.kernel} on {sweep.gpu}: time of {count(len(timed), 'configuration')}{some}", loc="left", fontweight="bold"
    )
    if timed:
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=min(4, len(labels)), frameon=False,
            title="large: the best of a value" if by else None, title_fontsize=8,
        )  # fmt: skip
    return figure


def _axes(axes: Any, values: list[str], *, is_numeric: bool) -> None:
    axes.grid(color="#D0D0D0", linewidth=0.5)
    axes.set_axisbelow(True)
    if is_numeric and len(values) > 2 and int(values[-1]) >= 8 * int(values[0]) > 0:
        axes.set_xscale("log", base=2)
    if is_numeric and len(values) <= MOST_TICKS:
        axes.set_xticks([float(value) for value in values], values)
        axes.minorticks_off()
    elif not is_numeric:
        is_long = sum(map(len, values)) > 70
        axes.set_xticks(range(len(values)), values, rotation=30 if is_long else 0, ha="right" if is_long else "center")
        axes.set_xlim(-0.6, len(values) - 0.4)
    axes.set_ylim(bottom=0.0)
