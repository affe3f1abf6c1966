"""Plot of a CuTe layout's grid of offsets: PNG by matplotlib, SVG by ``gpusim.layout.draw``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpusim.errors import LayoutError
from gpusim.layout.draw import MAX_CELLS, by_offset, layout_svg, unit_of
from gpusim.layout.int_tuple import leaves, show
from gpusim.report.layouts import AnyLayout, Window, grid_of
from gpusim.report.plots.figure import new_figure, picture_of, settings
from gpusim.report.plots.picture import Picture, check_plot, made

MAX_LABELS = 64 * 64
"""Most cells that get a label with their offset."""

_CELL_INCHES, _LETTER_INCHES = 0.24, 0.065


def plot_layout(
    layout: AnyLayout | Window, path: str | Path | None = None, color: Callable[[int], str] = by_offset,
    unit: str | None = None,
) -> Picture:
    """Plot the grid of offsets; written to ``path`` if given. ``color``: offset to its colour; ``unit``: unit of offsets.

    Raises:
        GpusimError: the suffix is unknown, or ``path`` cannot be written.
        LayoutError: there are more cells than a picture can show.
        OSError: the file cannot be written.
    """
    check_plot(path)
    if layout.size > MAX_CELLS:
        raise LayoutError(f"plot: {layout} has {layout.size} cells: use --slice to draw at most {MAX_CELLS}")
    num_rows, num_columns = grid_of(layout)
    unit = unit or unit_of(layout)
    alt = (
        f"Grid of {num_rows} x {num_columns} offsets of {layout} in {unit}: (0,0) at {show(layout(0))}, the last at "
        f"{show(layout(layout.size - 1))}."
    )

    def render(kind: str) -> bytes:
        if kind == "svg":
            return layout_svg(layout, color, unit).encode()
        return picture_of(_figure(layout, color, unit), alt, dpi=120).png

    return made(Picture(alt, render), path)


def _figure(layout: AnyLayout | Window, color: Callable[[int], str], unit: str) -> Any:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    num_rows, num_columns = grid_of(layout)
    offsets: list[list[Any]] = [
        [layout(row + column * num_rows) for column in range(num_columns)] for row in range(num_rows)
    ]
    title = f"{layout}, offsets in {unit}"
    has_labels = layout.size <= MAX_LABELS
    if not has_labels:
        title += f" (more than {MAX_LABELS} cells: colours only)"
    longest = max(len(show(offset)) for row in offsets for offset in row) if has_labels else 0
    wide = max(_CELL_INCHES, _LETTER_INCHES * longest + 0.1)
    width = max(num_columns * wide + 0.5, 0.078 * len(title) + 0.3)
    height = num_rows * _CELL_INCHES + 0.75
    with settings():
        figure = new_figure(width, height, None)
        axes = figure.add_axes((0.4 / width, 0.1 / height, num_columns * wide / width, num_rows * _CELL_INCHES / height))
        places = [(row, column) for row in range(num_rows) for column in range(num_columns)]
        colors = [color(sum(leaves(offsets[row][column]))) for row, column in places]
        cells = [Rectangle((column, row), 1, 1) for row, column in places]
        axes.add_collection(PatchCollection(cells, facecolor=colors, edgecolor="#000000", linewidth=0.5))
        for row, column in places if has_labels else []:
            axes.text(column + 0.5, row + 0.5, show(offsets[row][column]), ha="center", va="center", fontsize=7)
        axes.set(xlim=(0, num_columns), ylim=(num_rows, 0))
        columns, rows = range(num_columns), range(num_rows)
        axes.set_xticks([column + 0.5 for column in columns], [str(column) for column in columns], fontsize=7)
        axes.set_yticks([row + 0.5 for row in rows], [str(row) for row in rows], fontsize=7)
        axes.tick_params(length=0, labelbottom=False, labeltop=True)
        figure.text(0.1 / width, 1.0 - 0.1 / height, title, va="top", fontsize=9, family="monospace")
    return figure
