"""Data accesses of an epilogue: sums, C and bias become D, directly, through shared memory, or by TMA.

In: positions of sums in the tile, options of the output. Out: accesses of ``workload/data_access.py``.

Models: arithmetic in fp32; one rounding to the type of D, or two if C is added to what passed through shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.kernel_models.mainloop.operand_data import SUMS, MathData
from gpusim.kernel_models.mainloop.shape import Coordinates
from gpusim.workload.data_access import (
    Computation,
    Compute,
    Copy,
    Counter,
    GlobalElements,
    IntArray,
    Registers,
    SharedElements,
    box_copy,
    by_thread,
)
from gpusim.workload.operands import OperandTile, tma_boxes
from gpusim.workload.tma.boxes import TensorMap

Array = NDArray[Any]
HALF_GELU = float(np.sqrt(2 / np.pi))

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(HALF_GELU * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
"""Activation functions; gelu is the approximation by tanh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """What becomes of sums: alpha, beta, bias, activation, and limits of what results."""

    alpha: float = 1.0
    beta: float = 0.0
    bias: bool = False
    activation: str = "none"
    limits: tuple[float, float] | None = None

    def of(self, sums: Array, c: Array | None, bias: Array | None) -> Array:
        """D before its conversion, in fp32; sums of int32 stay integers if nothing is done to them."""
        if (self.alpha, self.activation, self.limits) == (1.0, "none", None) and c is None and bias is None:
            return sums
        total = np.float32(self.alpha) * sums.astype(np.float32)
        if c is not None:
            total = total + np.float32(self.beta) * c.astype(np.float32)
        if bias is not None:
            total = total + bias.astype(np.float32)
        finished = ACTIVATIONS[self.activation](total)
        low, high = self.limits or (-np.inf, np.inf)
        return np.minimum(np.maximum(finished, np.float32(low)), np.float32(high))


@dataclass(frozen=True)
class EpilogueData:
    """Accesses of one math role. Rows and columns of its part count from ``first``; slices are column blocks of it."""

    math: MathData
    finish: Finish
    tile: tuple[int, int]
    first: tuple[int, int]
    share: tuple[int, int]
    extents: tuple[int, int]
    """Rows and columns of D."""
    pitch: int
    """Elements from row to row of D and C."""
    num_parts: int = 1
    """Parts of K whose sums have separate planes of the workspace."""
    num_batches: int = 1
    num_slots: int = 1
    """Roles that count the parts of a tile."""
    num_serial: int = 1
    """Parts of K that add to D one behind the other."""
    is_bias_of_rows: bool = False

    # -------------------------------------------------------------------------------------- positions
    def _index(self, at: Coordinates, rows: IntArray, columns: IntArray, pitch: int, plane: int) -> IntArray:
        """Position in memory of elements of the tile; -1 outside of the matrix."""
        row, column = at.m * self.tile[0] + rows, at.n * self.tile[1] + columns
        inside = (row < self.extents[0]) & (column < self.extents[1]) & (rows >= 0)
        return np.where(inside, (plane * self.extents[0] + row) * pitch + column, -1)

    def _within(self, begin: int, num: int) -> NDArray[np.bool_]:
        column = self.math.positions[1] - self.first[1]
        return (column >= begin) & (column < begin + num)

    def _of_columns(self, at: Coordinates, begin: int, num: int, pitch: int, plane: int) -> IntArray:
        return np.where(self._within(begin, num), self._index(at, *self.math.positions, pitch, plane), -1)

    # -------------------------------------------------------------------------------------- registers
    @cached_property
    def begin(self) -> Compute:
        """The epilogue takes the sums; those of the next tile begin at 0."""

        def take(registers: Registers) -> None:
            zeros = np.zeros(self.math.positions[0].shape, dtype=np.float32)
            registers["taken"] = registers.pop(SUMS, zeros)
            for name in [name for name in registers if name.startswith("C")]:
                del registers[name]

        return Compute(function=take)

    def _of_part(self, part: int) -> Finish:
        """What becomes of the sums of a part: parts of a serial split add D, and the last one does the rest."""
        finish = self.finish if not part else replace(self.finish, beta=1.0)
        return finish if part == self.num_serial - 1 else replace(finish, bias=False, activation="none")

    def _finish(self, c: str, source: str = "taken", *, part: int = 0, without_c: bool = False) -> Computation:
        def compute(registers: Registers) -> None:
            finish = self._of_part(part) if self.num_serial > 1 else self.finish
            bias = registers.get("bias") if finish.bias else None
            if without_c:
                finish = Finish(alpha=finish.alpha, bias=finish.bias)
            registers["out"] = finish.of(registers[source], None if without_c else registers.get(c), bias)

        return compute

    # -------------------------------------------------------------------------------------- direct
    def bias(self, at: Coordinates, _op: Any) -> GlobalElements:
        """The bias of each sum's column, or of its row."""
        which = 0 if self.is_bias_of_rows else 1
        place = at[which] * self.tile[which] + self.math.positions[which]
        return GlobalElements(tensor="bias", index=np.where(place < self.extents[which], place, -1), registers="bias")

    def load_c(self, at: Coordinates, begin: int, num: int, _op: Any) -> GlobalElements:
        """C of ``num`` columns, or D of the part before."""
        tensor = "D" if at.part and self.num_serial > 1 else "C"
        index = self._of_columns(at, begin, num, self.pitch, at.batch)
        return GlobalElements(tensor=tensor, index=index, registers=f"C{begin}")

    def store(self, at: Coordinates, begin: int, num: int, _op: Any) -> GlobalElements:
        """D of ``num`` columns."""
        index = self._of_columns(at, begin, num, self.pitch, at.batch)
        return GlobalElements(tensor="D", index=index, registers="out", compute=self._finish(f"C{begin}", part=at.part))

    # -------------------------------------------------------------------------------------- through shared memory
    def stage(self, tile: OperandTile, begin: int, is_last: bool, _op: Any) -> SharedElements:
        """The store of a slice's fragments to the staging buffer. ``is_last``: whether all arithmetic precedes it."""
        rows, columns = self.math.positions
        within = self._within(begin, tile.k)
        column = np.where(within, columns - self.first[1] - begin, 0)
        offsets = tile.byte_offsets(rows - self.first[0], column * tile.dtype.num_bytes)
        return SharedElements(
            offsets=np.where(within, offsets, -1), dtype=tile.dtype, registers="out",
            compute=self._finish(f"C{begin}", without_c=not is_last),
        )

    def _row_by_row(self, tile: OperandTile, vector_bytes: int) -> tuple[IntArray, IntArray]:
        """Row and column in the slice of the elements that each thread moves; row -1: none."""
        unit = max(1, vector_bytes // tile.dtype.num_bytes)
        number = by_thread(tile.rows * tile.k // unit, len(self.math.positions[0]), unit)
        row, column = np.divmod(number, tile.k)
        return np.where(number < 0, -1, row), column

    def read_rows(self, tile: OperandTile, vector_bytes: int, _op: Any) -> SharedElements:
        """The load of a slice's rows from the staging buffer."""
        row, column = self._row_by_row(tile, vector_bytes)
        offsets = tile.byte_offsets(np.maximum(row, 0), column * tile.dtype.num_bytes)
        return SharedElements(offsets=np.where(row < 0, -1, offsets), dtype=tile.dtype, registers="staged")

    def _rows_index(self, at: Coordinates, tile: OperandTile, vector_bytes: int, begin: int) -> IntArray:
        row, column = self._row_by_row(tile, vector_bytes)
        row = np.where(row < 0, -1 - self.tile[0], row + self.first[0])
        return self._index(at, row, column + self.first[1] + begin, self.pitch, at.batch)

    def load_c_rows(self, at: Coordinates, tile: OperandTile, vector_bytes: int, begin: int, _op: Any) -> GlobalElements:
        """C of a slice, row by row."""
        return GlobalElements(tensor="C", index=self._rows_index(at, tile, vector_bytes, begin), registers=f"C{begin}")

    def store_rows(self, at: Coordinates, tile: OperandTile, vector_bytes: int, begin: int, _op: Any) -> GlobalElements:
        """D of a slice, row by row, with C if there is one."""

        def compute(registers: Registers) -> None:
            rest = replace(self.finish, alpha=1.0, bias=False) if self.finish.beta else Finish()
            registers["rows"] = rest.of(registers["staged"], registers.get(f"C{begin}"), None)

        index = self._rows_index(at, tile, vector_bytes, begin)
        return GlobalElements(tensor="D", index=index, registers="rows", compute=compute)

    def boxes(self, at: Coordinates, tile: OperandTile, begin: int, _op: Any) -> tuple[Copy, ...]:
        """The TMA boxes of a slice."""
        box, width = tma_boxes(tile)[0], tile.dtype.num_bytes
        rows, columns = self.extents
        described = TensorMap(
            dtype=tile.dtype, global_dim=(columns, rows, at.batch + 1), box_dim=(box.inner_elements, *box.outer, 1),
            global_strides_bytes=(self.pitch * width, self.pitch * rows * width), swizzle=box.swizzle,
        )
        row, column = at.m * self.tile[0] + self.first[0], at.n * self.tile[1] + self.first[1] + begin
        return tuple(
            box_copy(
                "D", described, (column + right, row + down, at.batch),
                (right // box.inner_elements * tile.rows + down) * tile.panel_bytes,
            )
            for right in range(0, tile.k, box.inner_elements) for down in range(0, tile.rows, *box.outer)
        )  # fmt: skip

    # -------------------------------------------------------------------------------------- split-K
    def _plane(self, at: Coordinates) -> int:
        return (at.part if self.num_parts > 1 else 0) * self.num_batches + at.batch

    def store_sums(self, at: Coordinates, begin: int, num: int, zeros: bool, _op: Any) -> GlobalElements:
        """Sums of ``num`` columns, or zeros, to the workspace."""

        def clear(registers: Registers) -> None:
            registers["zeros"] = np.zeros_like(registers["taken"])

        index = self._of_columns(at, begin, num, self.extents[1], self._plane(at))
        if zeros:
            return GlobalElements(tensor="workspace", index=index, registers="zeros", compute=clear)
        return GlobalElements(tensor="workspace", index=index, registers="taken")

    def load_sums(self, at: Coordinates, begin: int, num: int, _op: Any) -> GlobalElements:
        """Complete sums of ``num`` columns."""

        def keep(registers: Registers) -> None:
            loaded = registers.pop("loaded sums")
            registers["taken"] = np.where(self._within(begin, num), loaded, registers["taken"])

        index = self._of_columns(at, begin, num, self.extents[1], self._plane(at))
        return GlobalElements(tensor="workspace", index=index, registers="loaded sums", compute=keep)

    def count(self, panel: int, slot: int, awaited: int, _op: Any) -> Counter:
        """The counter of a tile and a role."""
        return Counter(tensor="counters", index=panel * self.num_slots + slot, awaited=awaited)


@dataclass(frozen=True)
class PartSums:
    """Accesses of a split-K reduction: it sums ``num_parts`` planes of ``num_elements`` elements, rows of ``columns``."""

    finish: Finish
    num_parts: int
    num_elements: int
    columns: int
    pitch: int
    """Elements from row to row of D and C."""

    def part(self, elements: IntArray, part: int, _op: Any) -> GlobalElements:
        """Sums of a part. ``elements``: elements of D, int64[threads, values]; -1: none."""
        index = np.where(elements < 0, -1, part * self.num_elements + elements)
        return GlobalElements(tensor="workspace", index=index, registers=f"part {part}")

    def _of_d(self, elements: IntArray) -> IntArray:
        row, column = np.divmod(elements, self.columns)
        return np.where(elements < 0, -1, row * self.pitch + column)

    def c(self, elements: IntArray, _op: Any) -> GlobalElements:
        """C of elements."""
        return GlobalElements(tensor="C", index=self._of_d(elements), registers="C")

    def bias(self, elements: IntArray, _op: Any) -> GlobalElements:
        """The bias of the columns of elements."""
        return GlobalElements(tensor="bias", index=np.where(elements < 0, -1, elements % self.columns), registers="bias")

    def d(self, elements: IntArray, _op: Any) -> GlobalElements:
        """D of elements."""

        def compute(registers: Registers) -> None:
            total = registers["part 0"]
            for part in range(1, self.num_parts):
                total = total + registers[f"part {part}"]
            registers["out"] = self.finish.of(total, registers.get("C"), registers.get("bias"))

        return GlobalElements(tensor="D", index=self._of_d(elements), registers="out", compute=compute)
