"""Plot of thread-value layouts: the thread and value that hold each element of a tile, as in CuTe's papers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gpusim.errors import LayoutError
from gpusim.layout import Layout, product_each
from gpusim.layout.draw import COLORS, MAX_CELLS, holders
from gpusim.layout.int_tuple import IntTuple, show
from gpusim.report.number_format import count
from gpusim.report.plots.figure import ink_on, new_figure, picture_of, settings
from gpusim.report.plots.picture import Picture, check_plot
from gpusim.units import WARP_SIZE

MAX_LABELS = 64 * 64
"""Most cells that get a label with thread and value."""

WIDE, HIGH, SMALL = 0.42, 0.34, 0.08
"""Inches of a cell with a label, and of one without."""


def plot_thread_values(
    layout_tv: Layout, shape: IntTuple, path: str | Path | None = None, *, title: str = "", is_row_major: bool = False
) -> Picture:
    """Plot the grid of a tile of ``shape`` with the thread (T) and value (V) of each element, coloured by thread.

    ``layout_tv`` maps (thread, value) to ``row + num_rows * column``, as the ``tv`` of MMA atoms and tiled copies do. With
    ``is_row_major`` it maps to ``column + num_columns * row``, as the layout of ldmatrix and stmatrix does. If several
    threads hold an element, the first is named, and the title has their number.

    >>> from gpusim.workload.atoms import mma_sync
    >>> from gpusim.workload.dtypes import BF16
    >>> plot_thread_values(mma_sync(BF16).tv.c, (16, 8)).alt[:69]
    'Which of 32 threads holds which element of a tile of 16 x 8, 4 values'

    Raises:
        GpusimError: the suffix is unknown, or ``path`` cannot be written.
        LayoutError: the layout is not one of threads and values, or leaves the tile, or there are too many cells.
        OSError: the file cannot be written.
    """
    check_plot(path)
    num_rows, num_columns = (*product_each(shape), 1)[:2] if isinstance(shape, tuple) else (1, shape)
    num_cells = num_rows * num_columns
    if num_cells > MAX_CELLS:
        raise LayoutError(f"plot: a tile of {show(shape)} has {num_cells} cells: draw at most {MAX_CELLS}, a part of it")
    if not isinstance(layout_tv, Layout) or layout_tv.rank != 2:
        raise LayoutError(f"plot: {layout_tv} is no layout of (thread, value): wants two modes, and no swizzle")
    held = holders(layout_tv, num_cells)
    num_threads, num_values = product_each(layout_tv.shape)
    num_holders = num_threads * num_values / max(len(held), 1)
    alt = (
        f"Which of {count(num_threads, 'thread')} holds which element of a tile of {num_rows} x {num_columns}, "
        f"{count(num_values, 'value')} each, by {layout_tv}: the first row is "
        f"{', '.join(_name(held, column * (1 if is_row_major else num_rows)) for column in range(min(num_columns, 8)))}"
        f"{' ...' if num_columns > 8 else ''}."
    )
    words = title or "thread (T) and value (V) of each element"
    if num_holders > 1:
        words += f"; {num_holders:g} threads hold each: the first is named"
    if len(held) < num_cells:
        words += f"; {num_cells - len(held)} of {num_cells} elements are held by none"
    with settings():
        figure = _draw(layout_tv, held, (num_rows, num_columns), words, is_row_major=is_row_major)
        return picture_of(figure, alt, path, dpi=120)


def _name(held: dict[int, tuple[int, int]], place: int) -> str:
    return "T{} V{}".format(*held[place]) if place in held else "none"


def _draw(
    layout_tv: Layout, held: dict[int, tuple[int, int]], grid: tuple[int, int], title: str, *, is_row_major: bool
) -> Any:
    from matplotlib.collections import LineCollection, PatchCollection
    from matplotlib.patches import Rectangle

    num_rows, num_columns = grid
    has_labels = num_rows * num_columns <= MAX_LABELS
    wide, high = (WIDE, HIGH) if has_labels else (SMALL, SMALL)
    threads = np.full(grid, -1, dtype=np.int64)
    values = np.full(grid, -1, dtype=np.int64)
    for place, (thread, value) in held.items():
        row, column = divmod(place, num_columns) if is_row_major else divmod(place, num_rows)[::-1]
        threads[row, column], values[row, column] = thread, value
    lines = [title, f"{layout_tv}, coloured by thread mod {len(COLORS)}"]
    if not has_labels:
        lines.append(f"more than {MAX_LABELS} cells: colours only")
    width = max(num_columns * wide + 0.7, 0.078 * max(map(len, lines)) + 0.3)
    height = num_rows * high + 0.5 + 0.2 * len(lines)
    figure = new_figure(width, height, None)
    axes = figure.add_axes((0.5 / width, 0.15 / height, num_columns * wide / width, num_rows * high / height))
    cells, colours = [], []
    for row in range(num_rows):
        for column in range(num_columns):
            thread = int(threads[row, column])
            cells.append(Rectangle((column, row), 1, 1))
            colours.append(COLORS[thread % len(COLORS)] if thread >= 0 else "#FFFFFF")
            if has_labels and thread >= 0:
                axes.text(
                    column + 0.5, row + 0.52, f"T{thread}\nV{values[row, column]}", ha="center", va="center", fontsize=7,
                    color=ink_on(colours[-1].upper()), linespacing=1.1,
                )  # fmt: skip
    axes.add_collection(PatchCollection(cells, facecolor=colours, edgecolor="#808080", linewidth=0.4))
    axes.add_collection(LineCollection(_borders(threads), colors="black", linewidths=0.9 if has_labels else 0.3))
    axes.add_collection(LineCollection(_borders(threads // WARP_SIZE), colors="black", linewidths=2.4))
    axes.set(xlim=(0, num_columns), ylim=(num_rows, 0))
    step = 1 if has_labels else 8
    axes.set_xticks([idx + 0.5 for idx in range(0, num_columns, step)], [str(idx) for idx in range(0, num_columns, step)])
    axes.set_yticks([idx + 0.5 for idx in range(0, num_rows, step)], [str(idx) for idx in range(0, num_rows, step)])
    axes.tick_params(length=0, labelbottom=False, labeltop=True, labelsize=7, pad=2)
    for side in axes.spines.values():
        side.set_visible(False)
    for idx, line in enumerate(lines):
        figure.text(
            0.1 / width, 1.0 - (0.08 + 0.2 * idx) / height, line, va="top", fontsize=9 if idx == 0 else 8,
            fontweight="bold" if idx == 0 else "normal",
        )  # fmt: skip
    return figure


def _borders(of: Any) -> list[list[tuple[int, int]]]:
    """Edges around a grid, int64[rows, columns], and between its cells that differ."""
    num_rows, num_columns = of.shape
    framed = np.full((num_rows + 2, num_columns + 2), -9, dtype=np.int64)
    framed[1:-1, 1:-1] = of
    across = np.argwhere(framed[1:, 1:-1] != framed[:-1, 1:-1]).tolist()
    down = np.argwhere(framed[1:-1, 1:] != framed[1:-1, :-1]).tolist()
    found = [[(column, row), (column + 1, row)] for row, column in across]
    return found + [[(column, row), (column, row + 1)] for row, column in down]
