"""Atoms as tables of threads and values, and as JSON: A, B and C of an MMA, source and destination of a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from gpusim.layout.latex import TvGrid, copy_grids, mma_grids
from gpusim.report.tables import facts_table
from gpusim.workload.atoms import CopyAtom, MmaAtom
from gpusim.workload.dtypes import FP16, DType

_MOST_COLUMNS = 16


def atom_grids(atom: MmaAtom | CopyAtom, dtype: DType | None = None) -> tuple[TvGrid, ...]:
    """Operands of an atom; ``dtype`` is the element type of a copy, fp16 by default.

    Raises:
        KernelError: a copy of boxes, which has no threads, or elements that do not fit the copy.
    """
    if isinstance(atom, MmaAtom):
        return mma_grids(atom.tv)
    layouts = atom.tv(dtype or FP16)
    row_bits = 128 if atom.num_matrices else atom.bits_per_thread or 0
    return copy_grids(layouts, row_bits // (dtype or FP16).bits)


def grid_lines(grid: TvGrid, most_rows: int) -> list[str]:
    """Lines of one operand's table: the thread and the value that hold each element.

    >>> from gpusim.workload.atoms import atom_of
    >>> for line in grid_lines(atom_grids(atom_of("ldmatrix_x1"))[1], 2):
    ...     print(line)
    destination: thread and value of 8 x 8 elements, by (32,2):(2,1)
          0     1     2     3     4     5     6     7
    0  T0V0  T0V1  T1V0  T1V1  T2V0  T2V1  T3V0  T3V1
    1  T4V0  T4V1  T5V0  T5V1  T6V0  T6V1  T7V0  T7V1
    6 more rows
    """
    what = f"{grid.num_rows} x {grid.num_columns} elements"
    if grid.is_shared:
        return [f"{grid.name}: each thread accesses all {what} in shared memory, by {grid.layout_tv}"]
    rows, columns = min(grid.num_rows, most_rows), min(grid.num_columns, _MOST_COLUMNS)
    held = {(row, column): f"T{thread}V{value}" for row, column, thread, value in grid.cells()}
    texts = [[str(column) for column in range(columns)]]
    texts += [[held.get((row, column), "-") for column in range(columns)] for row in range(rows)]
    width, margin = max(len(text) for row in texts for text in row), len(str(rows - 1))
    heads = ["", *map(str, range(rows))]
    lines = [f"{grid.name}: thread and value of {what}, by {grid.layout_tv}"]
    for head, row in zip(heads, texts, strict=True):
        lines.append(f"{head:>{margin}}  {'  '.join(f'{text:>{width}}' for text in row)}")
    beyond = {"rows": grid.num_rows - rows, "columns": grid.num_columns - columns}
    left_out = ", ".join(f"{number} more {word}" for word, number in beyond.items() if number)
    return [*lines, left_out] if left_out else lines


def render_atom(atom: MmaAtom | CopyAtom, grids: Sequence[TvGrid], console: Console, most_rows: int) -> None:
    """Print an atom and the tables of its operands."""
    console.print(facts_table((("atom", atom.name), ("instruction", atom.ptx), ("threads", str(atom.num_threads)))))
    for grid in grids:
        console.print()
        for line in grid_lines(grid, most_rows):
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def atom_document(atom: MmaAtom | CopyAtom, grids: Sequence[TvGrid]) -> dict[str, Any]:
    """JSON document of an atom: each element as [row, column, thread, value]."""
    return {
        "atom": atom.name, "instruction": atom.ptx, "num_threads": atom.num_threads,
        "operands": [
            {"name": grid.name, "layout": str(grid.layout_tv), "num_rows": grid.num_rows, "num_columns": grid.num_columns,
             "is_shared": grid.is_shared, "cells": [list(cell) for cell in grid.cells()]}
            for grid in grids
        ],
    }  # fmt: skip
