"""LaTeX pictures of layouts, thread-value layouts and atoms, as CuTe's ``print_latex`` writes them (TikZ).

In: layouts and atoms. Out: text of a LaTeX document. ``TvGrid`` says where each operand of an atom is drawn, also in plots.
Source: CUTLASS ``cute/util/print_latex.hpp``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpusim.errors import LayoutError
from gpusim.layout import int_tuple as it
from gpusim.layout.draw import MAX_CELLS, holders
from gpusim.layout.layout import CarriesLayout, Layout
from gpusim.layout.tiled import CopyAtomTV, MmaAtomTV, TiledMma

_GREYS = ("00", "40", "20", "60", "10", "50", "30", "70")
_COLORS = (
    (175, 175, 255), (175, 255, 175), (255, 255, 175), (255, 175, 175),
    (210, 210, 255), (210, 255, 210), (255, 255, 210), (255, 210, 210),
)  # fmt: skip
"""Red, green and blue by thread mod 8."""
_HEAD = (
    "\\documentclass[convert]{standalone}\n\\usepackage{tikz}\n\n\\begin{document}\n"
    "\\begin{tikzpicture}[x={(0cm,-1cm)},y={(1cm,0cm)},every node/.style={minimum size=1cm, outer sep=0pt}]\n\n"
)
_FOOT = "\\end{tikzpicture}\n\\end{document}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class TvGrid:
    """One operand as a grid of threads and values, and where it is drawn.

    ``layout_tv`` maps (thread, value) to ``row + num_rows * column``. With ``is_row_major`` rows and columns change roles.
    """

    name: str
    layout_tv: Layout
    num_rows: int
    num_columns: int
    first_row: int = 0
    first_column: int = 0
    is_row_major: bool = False
    has_labels: bool = True

    def cells(self) -> Iterator[tuple[int, int, int, int]]:
        """(row, column, thread, value) of each element; of several threads that hold it, the first.

        Raises:
            LayoutError: too many cells, or no layout of threads and values into the grid.
        """
        num_cells = self.num_rows * self.num_columns
        if num_cells > MAX_CELLS:
            raise LayoutError(f"draw: {self.name} has {num_cells} cells: draw at most {MAX_CELLS}, a smaller atom")
        for place, (thread, value) in holders(self.layout_tv, num_cells).items():
            row, column = divmod(place, self.num_columns) if self.is_row_major else divmod(place, self.num_rows)[::-1]
            yield row, column, thread, value

    @property
    def is_shared(self) -> bool:
        """Whether each thread accesses all of the operand, which is in shared memory."""
        threads = self.layout_tv[0]
        return threads.size > 1 and all(step == 0 for extent, step in threads.modes if extent > 1)


def mma_grids(mma: MmaAtomTV | TiledMma) -> tuple[TvGrid, TvGrid, TvGrid]:
    """C, A and B of an MMA atom or a tiled MMA: A left of C, B above C with its columns along C's.

    >>> from gpusim.workload.atoms import mma_atom
    >>> [(grid.name, grid.num_rows, grid.num_columns) for grid in mma_grids(mma_atom("SM80_16x8x8_F32F16F16F32_TN").tv)]
    [('C', 16, 8), ('A', 16, 8), ('B', 8, 8)]
    """
    if isinstance(mma, TiledMma):
        (m, n, k), (a, b, c) = mma.tile_shape, (mma.layout_a_tv(), mma.layout_b_tv(), mma.layout_c_tv())
    else:
        (m, n, k), (a, b, c) = mma.shape_mnk, (mma.a, mma.b, mma.c)
    return (
        TvGrid(name="C", layout_tv=c, num_rows=m, num_columns=n, has_labels=False),
        TvGrid(name="A", layout_tv=a, num_rows=m, num_columns=k, first_column=-k - 1),
        TvGrid(name="B", layout_tv=b, num_rows=k, num_columns=n, first_row=-k - 1, is_row_major=True),
    )


def copy_grids(copy: CopyAtomTV, num_columns: int) -> tuple[TvGrid, TvGrid]:
    """Source and destination of a copy atom whose elements are ``column + num_columns * row``."""
    num_rows = -(-max(copy.src.cosize, copy.dst.cosize) // num_columns)
    return (
        TvGrid(name="source", layout_tv=copy.src, num_rows=num_rows, num_columns=num_columns, is_row_major=True),
        TvGrid(name="destination", layout_tv=copy.dst, num_rows=num_rows, num_columns=num_columns, is_row_major=True,
               first_column=num_columns + 3),
    )  # fmt: skip


def grids_latex(grids: Sequence[TvGrid]) -> str:
    """LaTeX of the operands of an atom, as CuTe's ``print_latex(mma)`` and ``print_latex(copy)``.

    >>> from gpusim.workload.atoms import mma_atom
    >>> text = grids_latex(mma_grids(mma_atom("SM80_16x8x8_F32F16F16F32_TN").tv))
    >>> text.splitlines()[0], text.count("shortstack")
    ('% Layout C: ((4,8),(2,2)):((32,1),(16,8))', 320)
    """
    comments = "".join(f"% Layout {grid.name}: {grid.layout_tv}\n" for grid in grids)
    return comments + _HEAD + "".join(map(_grid_latex, grids)) + _FOOT


def tv_latex(layout_tv: Layout, tile: it.IntTuple) -> str:
    """LaTeX of a thread-value layout over a tile, as CuTe's ``print_latex_tv``.

    >>> tv_latex(Layout((2, 2), (2, 1)), (2, 2)).count("shortstack{T1")
    2
    """
    rows, columns = (*it.product_each(tile), 1)[:2]
    return grids_latex([TvGrid(name="TV", layout_tv=layout_tv, num_rows=rows, num_columns=columns)])


def layout_latex(layout: Layout | CarriesLayout) -> str:
    r"""LaTeX of a layout's offsets, as CuTe's ``print_latex(layout)``.

    >>> r"\node[fill=black!60] at (0,3) {3};" in layout_latex(Layout((2, 4), (4, 1)))
    True

    Raises:
        LayoutError: too many cells.
    """
    if layout.size > MAX_CELLS:
        raise LayoutError(f"draw: {layout.size} cells of {layout}: slice it down to at most {MAX_CELLS}")
    rows = it.product_each(layout.shape)[0] if layout.rank > 1 or not isinstance(layout.shape, tuple) else layout.size
    columns = layout.size // rows
    body = "".join(
        f"\\node[fill=black!{_GREYS[_number(offset) % 8]}] at ({row},{column}) {{{it.show(offset)}}};\n"
        for row in range(rows) for column in range(columns) for offset in [layout(row + rows * column)]
    )
    return f"% Layout: {layout}\n{_HEAD}{body}{_frame(0, 0, rows, columns)}{_labels(0, 0, rows, columns)}{_FOOT}"


def _number(offset: Any) -> int:
    return offset if isinstance(offset, int) else sum(it.leaves(offset))


def _grid_latex(grid: TvGrid) -> str:
    top, left = grid.first_row, grid.first_column
    nodes = "".join(
        f"\\node[fill={_rgb(thread)}] at ({top + row},{left + column}) {{\\shortstack{{T{thread} \\\\ V{value}}}}};\n"
        for row, column, thread, value in grid.cells()
    )
    extents = (top, left, grid.num_rows, grid.num_columns)
    return nodes + _frame(*extents) + (_labels(*extents) if grid.has_labels else "")


def _rgb(thread: int) -> str:
    red, green, blue = _COLORS[thread % 8]
    return f"{{rgb,255:red,{red};green,{green};blue,{blue}}}"


def _frame(top: int, left: int, rows: int, columns: int) -> str:
    return f"\\draw[color=black,thick,shift={{(-0.5,-0.5)}}] ({top},{left}) grid ({top + rows},{left + columns});\n\n"


def _labels(top: int, left: int, rows: int, columns: int) -> str:
    down = [(top + i, left - 1, i) for i in range(rows)]
    right = [(top - 1, left + i, i) for i in range(columns)]
    return "".join(f"\\node at ({row},{column}) {{\\Large{{\\texttt{{{i}}}}}}};\n" for row, column, i in [*down, *right])
