"""Plot of an atom: all its operands with the thread and value of each element, arranged as CuTe's ``print_latex`` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpusim.layout.draw import COLORS
from gpusim.layout.latex import TvGrid
from gpusim.report.plots.figure import ink_on, new_figure, picture_of, settings
from gpusim.report.plots.picture import Picture, check_plot
from gpusim.report.plots.threads import HIGH, MAX_LABELS, SMALL, WIDE


def plot_atom(grids: Sequence[TvGrid], path: str | Path | None = None, *, title: str = "") -> Picture:
    """Plot the operands of an atom: ``mma_grids`` or ``copy_grids``, coloured by thread.

    >>> from gpusim.layout.latex import mma_grids
    >>> from gpusim.workload.atoms import mma_atom
    >>> plot_atom(mma_grids(mma_atom("SM80_16x8x8_F32F16F16F32_TN").tv)).alt[:58]
    'Threads and values of C: 16 x 8, A: 16 x 8, B: 8 x 8, by ('

    Raises:
        GpusimError: the suffix is unknown, or ``path`` cannot be written.
        LayoutError: too many cells.
        OSError: the file cannot be written.
    """
    check_plot(path)
    cells = {grid.name: list(grid.cells()) for grid in grids}
    sizes = ", ".join(f"{grid.name}: {grid.num_rows} x {grid.num_columns}" for grid in grids)
    alt = f"Threads and values of {sizes}, by {', '.join(str(grid.layout_tv) for grid in grids)}."
    with settings():
        from matplotlib.collections import PatchCollection
        from matplotlib.patches import Rectangle

        has_labels = sum(map(len, cells.values())) <= MAX_LABELS
        wide, high = (WIDE, HIGH) if has_labels else (SMALL, SMALL)
        top, left = min(grid.first_row for grid in grids) - 2, min(grid.first_column for grid in grids) - 2
        bottom = max(grid.first_row + grid.num_rows for grid in grids)
        right = max(grid.first_column + grid.num_columns for grid in grids)
        width, height = max((right - left) * wide + 0.2, 4.0), (bottom - top) * high + 0.4
        figure = new_figure(width, height, None)
        axes = figure.add_axes((0.1 / width, 0.1 / height, (right - left) * wide / width, (bottom - top) * high / height))
        for grid in grids:
            patches, colours = [], []
            for row, column, thread, value in cells[grid.name]:
                y, x = grid.first_row + row, grid.first_column + column
                patches.append(Rectangle((x, y), 1, 1))
                colours.append(COLORS[thread % len(COLORS)])
                if has_labels:
                    axes.text(x + 0.5, y + 0.52, f"T{thread}\nV{value}", ha="center", va="center", fontsize=7,
                              color=ink_on(colours[-1].upper()), linespacing=1.1)  # fmt: skip
            axes.add_collection(PatchCollection(patches, facecolor=colours, edgecolor="#808080", linewidth=0.4))
            name = f"{grid.name}, of which T0 is named for all" if grid.is_shared else grid.name
            above = 1.1 if grid.has_labels else 0.15
            axes.text(grid.first_column, grid.first_row - above, name, fontsize=9, fontweight="bold")
            for i in range(grid.num_rows if has_labels and grid.has_labels else 0):
                axes.text(grid.first_column - 0.2, grid.first_row + i + 0.5, str(i), fontsize=7, ha="right", va="center")
            for i in range(grid.num_columns if has_labels and grid.has_labels else 0):
                axes.text(grid.first_column + i + 0.5, grid.first_row - 0.15, str(i), fontsize=7, ha="center")
        axes.set(xlim=(left, right), ylim=(bottom, top))
        axes.set_axis_off()
        if title:
            figure.text(0.1 / width, 1.0 - 0.08 / height, title, va="top", fontsize=9, fontweight="bold")
        return picture_of(figure, alt, path, dpi=120)
