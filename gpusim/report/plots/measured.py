"""Plot of measured points over predicted lines, with the error of each point below."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import GpusimError
from gpusim.report.number_format import count, number, with_unit
from gpusim.report.plots.figure import BLACK, BLUE, GREEN, ORANGE, PURPLE, VERMILION, new_figure, picture_of, settings
from gpusim.report.plots.picture import Picture, check_plot

if TYPE_CHECKING:
    from pandas import DataFrame

MEASURED, PREDICTED = "measured", "predicted"
"""Columns of a series."""

LOOKS: tuple[tuple[str, Any, str], ...] = (
    (BLUE, "-", "o"), (VERMILION, "--", "s"), (GREEN, "-.", "^"), (PURPLE, ":", "D"), (ORANGE, (0, (5, 1, 1, 1, 1, 1)), "v"),
    (BLACK, (0, (1, 2)), "P"),
)  # fmt: skip
"""Colour, line and marker of each series, which differ without colour, too."""

MOST_TICKS = 12
"""Most numbers on the axis that get a tick each; with more, matplotlib chooses the ticks."""

LETTER_SHARE = 0.011
"""Fraction of the horizontal axis that a letter of a tick label takes."""

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Series:
    """One series, in the order of x; NaN where there is no number."""

    label: str
    places: FloatArray
    measured: FloatArray
    predicted: FloatArray

    @property
    def errors_pct(self) -> FloatArray:
        """Predicted over measured, minus one, in percent; NaN where either is missing."""
        return np.asarray(100.0 * (self.predicted / self.measured - 1.0))


def plot_measured(
    series: DataFrame | Mapping[str, DataFrame], path: str | Path | None = None, *, x: str, y: str, title: str = "",
    log_x: bool = False, log_y: bool = False, is_joined: bool = True,
) -> Picture:
    """Plot measured points over predicted lines, and below them the error in percent; written to ``path`` if given.

    Args:
        series: one frame, or several by name: the column ``x`` and one or both of ``measured`` and ``predicted`` (NaN where
            there is no number).
        path: PNG or SVG by suffix.
        x: column of the horizontal axis, numbers or words.
        y: name of the measured quantity, which ends in its unit (``time_us``).
        title: title of the picture.
        log_x: whether the horizontal axis is logarithmic, to base 2.
        log_y: whether the vertical axis is logarithmic.
        is_joined: whether predicted points are joined by lines. False: each value of ``x`` has a separate position and a
            bar, as words have.

    Raises:
        GpusimError: a column is missing, there is nothing to draw, an axis with words or zeros is logarithmic, or ``path``
            is invalid.
        OSError: the file cannot be written.
    """
    check_plot(path)
    frames = dict(series) if isinstance(series, Mapping) else {"": series}
    words = _words(frames, x, is_joined=is_joined)
    if len(frames) > len(LOOKS):
        raise GpusimError(f"plot: {len(frames)} series, at most {len(LOOKS)} can be distinguished; draw fewer")
    found = [_series(name, frame, x, words) for name, frame in frames.items()]
    drawn = np.concatenate([np.concatenate((item.measured, item.predicted)) for item in found] or [np.zeros(0)])
    if not np.isfinite(drawn).any():
        raise GpusimError(f"plot: nothing to draw: no row has a number of {y} that is {MEASURED} or {PREDICTED}")
    if log_x and (words is not None or min(item.places.min() for item in found if len(item.places)) <= 0.0):
        raise GpusimError(f"plot: {x} has words, or numbers that are not above 0: leave log_x out")
    if log_y and np.nanmin(drawn) <= 0.0:
        raise GpusimError(f"plot: {y} has numbers that are not above 0: leave log_y out")
    with settings():
        figure = _draw(found, words, x=x, y=y, title=title, log_x=log_x, log_y=log_y)
        return picture_of(figure, _alt(found, x, y, title), path)


def _words(frames: Mapping[str, DataFrame], x: str, *, is_joined: bool = True) -> list[str] | None:
    """Labels of ``x``: words in order of appearance, numbers by size; None where all are numbers, and joined."""
    import pandas as pd

    for name, frame in frames.items():
        if x not in frame.columns or not {MEASURED, PREDICTED} & set(frame.columns):
            raise GpusimError(
                f"plot: the series {name!r} has the columns {', '.join(map(str, frame.columns))}; wants {x}, and "
                f"{MEASURED}, {PREDICTED} or both"
            )
    if all(pd.api.types.is_numeric_dtype(frame[x]) for frame in frames.values()):
        return None if is_joined else [number(value) for value in sorted({float(v) for f in frames.values() for v in f[x]})]
    return list(dict.fromkeys(str(value) for frame in frames.values() for value in frame[x]))


def _word(value: Any) -> str:
    """Label of a value on the horizontal axis.

    >>> _word("128B"), _word(4096), _word(0.5)
    ('128B', '4,096', '0.5')
    """
    return value if isinstance(value, str) else number(float(value))


def _series(name: str, frame: DataFrame, x: str, words: list[str] | None) -> _Series:
    places = np.array(frame[x] if words is None else [words.index(_word(value)) for value in frame[x]], dtype=np.float64)
    order = np.argsort(places, kind="stable")
    nothing = np.full(len(places), np.nan)

    def column(which: str) -> FloatArray:
        return np.asarray(frame[which], dtype=np.float64)[order] if which in frame.columns else nothing

    return _Series(name, places[order], column(MEASURED), column(PREDICTED))


def _alt(found: list[_Series], x: str, y: str, title: str) -> str:
    sentences = []
    for item in found:
        errors = item.errors_pct[np.isfinite(item.errors_pct)]
        name = f"{item.label}: " if item.label else ""
        values = item.measured if np.isfinite(item.measured).any() else item.predicted
        if not np.isfinite(values).any():
            continue
        kind = MEASURED if values is item.measured else PREDICTED
        ends = f"{kind} {number(round(float(np.nanmin(values)), 3))} to {number(round(float(np.nanmax(values)), 3))}"
        if len(errors):
            ends += f", predicted within {np.abs(errors).max():.1f} %, {np.abs(errors).mean():.1f} % in the mean"
        sentences.append(f"{name}{count(len(item.places), 'point')}, {ends}")
    return f"{title + ': ' if title else ''}{with_unit(y)} over {with_unit(x)}; {'; '.join(sentences)}."


def _draw(found: list[_Series], words: list[str] | None, *, x: str, y: str, title: str, log_x: bool, log_y: bool) -> Any:
    from matplotlib.lines import Line2D

    has_errors = any(np.isfinite(item.errors_pct).any() for item in found)
    figure = new_figure(7.6, 5.2 if has_errors else 4.0)
    heights = [3, 1] if has_errors else [1]
    grid = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
    axes = grid[0, 0]
    for item, (colour, line, marker) in zip(found, LOOKS, strict=False):
        is_there = np.isfinite(item.predicted)
        drawn = {"linestyle": line, "linewidth": 1.6} if words is None else {
            "linestyle": "", "marker": "_", "markersize": 18, "markeredgewidth": 2.2,
        }  # fmt: skip
        axes.plot(item.places[is_there], item.predicted[is_there], color=colour, zorder=2, **drawn)
        axes.plot(
            item.places, item.measured, color=colour, linestyle="", marker=marker, markersize=6, markerfacecolor="white",
            markeredgewidth=1.4, zorder=3,
        )
        if has_errors:
            grid[1, 0].plot(
                item.places, item.errors_pct, color=colour, marker=marker, markersize=4.5, linewidth=0.8,
                linestyle=line if words is None else "",
            )
    handles = [
        Line2D([], [], color=colour, linestyle=line, marker=marker, markerfacecolor="white", label=item.label)
        for item, (colour, line, marker) in zip(found, LOOKS, strict=False)
        if item.label
    ]
    if any(np.isfinite(item.predicted).any() for item in found):
        handles.append(
            Line2D([], [], color="#606060", label="line: predicted")
            if words is None
            else Line2D(
                [], [], color="#606060", linestyle="", marker="_", markersize=14, markeredgewidth=2.2,
                label="bar: predicted",
            )
        )
    if any(np.isfinite(item.measured).any() for item in found):
        handles.append(Line2D(
            [], [], color="#606060", linestyle="", marker="o", markerfacecolor="white", label="points: measured"
        ))  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(handles)), frameon=False)
    _axes(axes, found, words, log_x=log_x)
    axes.set_ylabel(with_unit(y))
    if log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0.0)
        axes.yaxis.set_major_formatter(lambda value, _: number(round(float(value), 6)))
    if has_errors:
        below = grid[1, 0]
        below.axhline(0.0, color="black", linewidth=0.8)
        below.set_ylabel("error (%)")
        below.margins(y=0.2)
        below.grid(axis="y", color="#D0D0D0", linewidth=0.5)
    grid[-1, 0].set_xlabel(with_unit(x))
    if title:
        axes.set_title(title, loc="left", fontweight="bold")
    return figure


def _axes(axes: Any, found: list[_Series], words: list[str] | None, *, log_x: bool) -> None:
    places = sorted({float(place) for item in found for place in item.places})
    axes.grid(color="#D0D0D0", linewidth=0.5)
    if log_x:
        axes.set_xscale("log", base=2)
    if words is not None:
        axes.set_xticks(range(len(words)), words, rotation=30 if max(map(len, words)) > 12 else 0)
    elif len(places) <= MOST_TICKS:
        axes.set_xticks(places, _labels(places, log_x=log_x))
        axes.minorticks_off()


def _labels(places: list[float], *, log_x: bool) -> list[str]:
    """Label of each tick, empty where it would touch the previous one; the last one always has its label.

    >>> _labels([20.0, 28.0, 32.0, 36.0, 124.0, 252.0, 256.0], log_x=False)
    ['20', '28', '', '36', '124', '', '256']
    """
    at = np.log2(places) if log_x else np.asarray(places)
    share = (at - at[0]) / ((at[-1] - at[0]) or 1.0)
    words = [number(place) for place in places]
    found = [""] * len(words)
    last = len(words) - 1
    ends = -1.0
    for idx in range(len(words)):
        half = (LETTER_SHARE * (len(words[idx]) + 1)) / 2
        is_clear = idx == last or share[idx] + half <= 1.0 - LETTER_SHARE * (len(words[last]) + 1) / 2
        if share[idx] - half >= ends and is_clear:
            found[idx], ends = words[idx], share[idx] + half
    return found
