"""Data accesses of a main loop's operands: copies to shared memory, fragments, and the math that uses them.

In: tiles in the matrices, stages, parts of a tile. Out: accesses of ``workload/data_access.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gpusim.errors import LayoutError
from gpusim.kernel_models.mainloop.shape import Coordinates, MainloopShape, OperandGrid, cached_method
from gpusim.kernel_models.mainloop.threads import LANES
from gpusim.units import WARP_SIZE
from gpusim.workload.atoms import MmaAtom, copy_atom
from gpusim.workload.atoms.mma import K_STEP_BYTES
from gpusim.workload.data_access import (
    Compute,
    Copy,
    GlobalElements,
    IntArray,
    MatrixOffsets,
    MmaFragments,
    Registers,
    SharedElements,
    WgmmaOperands,
    box_copy,
    by_thread,
    descriptor_offsets,
    matrix_offsets,
)
from gpusim.workload.gmem.line_fetches import CHUNK_BYTES
from gpusim.workload.smem.smem_ops import MATRIX_ROW_BYTES, MATRIX_ROWS
from gpusim.workload.smem.wgmma_operands import Major, wgmma_descriptor
from gpusim.workload.tma.boxes import TensorMap

NAMES = (("A", "a"), ("B", "b"))
SUMS = "sums"
"""Registers of the accumulators."""


@dataclass(frozen=True)
class OperandCopies:
    """Copies of the tiles of A (0) and B (1) to a stage."""

    shape: MainloopShape
    grid: OperandGrid
    num_threads: int

    def _place(self, which: int, at: Coordinates, step: int) -> tuple[int, int, int]:
        """First row and first k of a k-step, and the elements from row to row in memory."""
        k_step, is_k_major = self.grid.first_k_step(at.part) + step, self.shape.are_k_major[which]
        pitch = self.shape.pitch_bytes(self.grid.extents[2 if is_k_major else which]) // self.shape.element.num_bytes
        return at[which] * self.shape.tile[which], k_step * self.shape.tile[2], pitch

    @cached_method
    def _moved(self, which: int) -> tuple[IntArray, IntArray, IntArray]:
        """Row, k and byte offset in the stage of the elements that each thread copies; offset -1: none."""
        shape, operand, width = self.shape, self.shape.operands[which], self.shape.element.num_bytes
        extents = shape.tile[which], shape.tile[2]
        contiguous = extents[1] if shape.are_k_major[which] else extents[0]
        unit = 1 if shape.is_by_element(which) else CHUNK_BYTES // width
        number = by_thread(extents[0] * extents[1] // unit, self.num_threads, unit)
        across, along = np.divmod(np.maximum(number, 0), contiguous)
        row, k = (across, along) if shape.are_k_major[which] else (along, across)
        offsets = operand.byte_offsets(row, k * width) if operand.is_k_major else operand.byte_offsets(k, row * width)
        return row, k, np.where(number < 0, -1, offsets)

    def _index(self, which: int, at: Coordinates, step: int) -> IntArray:
        first_row, first_k, pitch = self._place(which, at, step)
        row, k, offsets = self._moved(which)
        row, k, (rows, num_ks) = row + first_row, k + first_k, (self.grid.extents[which], self.grid.extents[2])
        is_k_major = self.shape.are_k_major[which]
        index = row * pitch + k if is_k_major else k * pitch + row
        plane = at.batch * pitch * (rows if is_k_major else num_ks)
        return np.where((row < rows) & (k < num_ks) & (offsets >= 0), plane + index, -1)

    def copy(self, which: int, at: Coordinates, step: int, _op: Any) -> Copy:
        """The cp.async of a k-step."""
        return Copy(tensor=NAMES[which][0], index=self._index(which, at, step), offsets=self._moved(which)[2])

    def load(self, which: int, at: Coordinates, step: int, _op: Any) -> GlobalElements:
        """The LDG of a k-step."""
        return GlobalElements(tensor=NAMES[which][0], index=self._index(which, at, step), registers=f"loaded {which}")

    def store(self, which: int, _op: Any) -> SharedElements:
        """The STS of what LDG loaded."""
        return SharedElements(offsets=self._moved(which)[2], dtype=self.shape.element, registers=f"loaded {which}")

    def boxes(self, which: int, at: Coordinates, part: int, num_ctas: int, op: Any) -> tuple[Copy, ...]:
        """The TMA boxes of a k-step that the ``part``-th of ``num_ctas`` CTAs loads."""
        shape, tile, depth = self.shape, self.shape.operands[which], self.grid.extents[2]
        rows, width, is_k_major = self.grid.extents[which], tile.dtype.num_bytes, tile.is_k_major
        first_row, first_k, pitch = self._place(which, at, op.tile[1] // num_ctas)
        box = shape.boxes(which, num_ctas)[0]
        (inner, across), origin = (rows, depth), (first_row, first_k)
        if is_k_major:
            (inner, across), origin = (depth, rows), (first_k, first_row)
        described = TensorMap(
            dtype=tile.dtype, global_dim=(inner, across, at.batch + 1), swizzle=box.swizzle,
            global_strides_bytes=(pitch * width, pitch * across * width), box_dim=(box.inner_elements, *box.outer, 1),
        )
        along, down = (0, tile.contiguous_bytes // width), (0, tile.num_strided)
        if num_ctas > 1 and (is_k_major or shape.slices_k(which, num_ctas)):
            down = part * down[1] // num_ctas, (part + 1) * down[1] // num_ctas
        elif num_ctas > 1:
            along = part * along[1] // num_ctas, (part + 1) * along[1] // num_ctas
        return tuple(
            box_copy(
                NAMES[which][0], described, (origin[0] + column, origin[1] + row, at.batch),
                (column // box.inner_elements * tile.num_strided + row) * tile.panel_bytes,
            )
            for column in range(*along, box.inner_elements) for row in range(*down, *box.outer)
        )  # fmt: skip


@dataclass(frozen=True)
class MathData:
    """Fragments, math and sums of one role, whose units (warps, or warpgroups of wgmma) have parts of the tile."""

    shape: MainloopShape
    parts: tuple[tuple[int, int], ...]
    """First row and first column of each unit's part."""
    extents: tuple[int, int]
    """Rows and columns of a part."""
    atom: MmaAtom | None
    """The wgmma; None for other math."""

    # -------------------------------------------------------------------------------------- sums
    @cached_property
    def positions(self) -> tuple[IntArray, IntArray]:
        """Row and column in the tile of each sum: int64[threads, values]."""
        if self.shape.math == "fma":
            rows, columns = self._vectors(0), self._vectors(1)
            pairs = np.broadcast_arrays(rows[:, :, None], columns[:, None, :])
            return pairs[0].reshape(len(rows), -1), pairs[1].reshape(len(rows), -1)
        atom, (rows_of, columns_of) = self._atom, self.extents
        thread, value = np.ogrid[: atom.num_threads, : atom.m * atom.n // atom.num_threads]
        column, row = np.divmod(np.asarray(atom.tv.c((thread, value)), dtype=np.int64), atom.m)
        blocks = [(m, n) for m in range(0, rows_of, atom.m) for n in range(0, columns_of, atom.n)]
        units = [
            [
                np.concatenate([at[which] + block[which] + (row, column)[which] for block in blocks], axis=1)
                for which in (0, 1)
            ]
            for at in self.parts
        ]
        return np.concatenate([unit[0] for unit in units]), np.concatenate([unit[1] for unit in units])

    @cached_property
    def _atom(self) -> MmaAtom:
        return self.atom or self.shape.mma_sync

    @property
    def _num_blocks(self) -> tuple[int, int]:
        return self.extents[0] // self._atom.m, self.extents[1] // self._atom.n

    # -------------------------------------------------------------------------------------- wgmma
    @cached_method
    def _descriptors(self, which: int) -> dict[tuple[int, int], IntArray]:
        """Byte offsets of the operand of each wgmma, by its first row and k."""
        tile, atom = self.shape.operands[which], self._atom
        layout, width = tile.smem_layout, tile.dtype.num_bytes
        major: Major = "K" if tile.is_k_major else "MN"
        first, num = wgmma_descriptor(layout, major), (atom.m, atom.n)[which]
        found = {}
        for begin in {part[which] + block for part in self.parts for block in range(0, self.extents[which], num)}:
            if not tile.is_k_major and begin * width % tile.panel_bytes:
                raise LayoutError(f"wgmma descriptor: row {begin} lies within a panel of {tile.panel_bytes} bytes")
            for k in range(0, tile.k, atom.k):
                start = int(layout.layout((begin, k))) * width
                found[begin, k] = descriptor_offsets(replace(first, start_address_bytes=start), major, num, tile.dtype)
        return found

    @cached_method
    def wgmma(self, stage: int, idx: int | None, _op: Any) -> WgmmaOperands:
        """The wgmma of a k-step, or the ``idx``-th of each warpgroup."""
        atom, (rows, columns), (num_m, num_n) = self._atom, self.extents, self._num_blocks
        of_a, of_b = self._descriptors(0), self._descriptors(1)
        issues = tuple(
            tuple(
                MatrixOffsets(a=of_a[m + row, k], b=of_b[n + column, k], fragment=row // atom.m * num_n + column // atom.n)
                for k in range(0, self.shape.tile[2], atom.k)
                for row in range(0, rows, atom.m) for column in range(0, columns, atom.n)
            )[slice(idx, None if idx is None else idx + 1)]
            for m, n in self.parts
        )  # fmt: skip
        return WgmmaOperands(a=("a", stage), b=("b", stage), sums=SUMS, issues=issues, num_sums=num_m * num_n)

    # -------------------------------------------------------------------------------------- mma.sync
    def reads(self, stage: int, idx: int, spans: Sequence[tuple[int, int]], _op: Any) -> tuple[SharedElements, ...]:
        """Fragment loads of slice ``idx``: spans of rows of A and of columns of B, within each warp's part."""
        return tuple(
            replace(self._fragments(which, idx, *span), buffer=NAMES[which][1], stage=stage)
            for which, span in enumerate(spans) if span[1] > span[0]
        )  # fmt: skip

    @cached_method
    def _fragments(self, which: int, idx: int, begin: int, end: int) -> SharedElements:
        tile, atom, rows = self.shape.operands[which], self._atom, (self._atom.m, self._atom.n)[which]
        firsts, name = np.array([part[which] for part in self.parts]), f"{NAMES[which][1]}{idx % 2}"
        if not tile.is_k_major and tile.dtype.bits == 32:  # words, because ldmatrix cannot transpose them
            tv = atom.tv.a if which == 0 else atom.tv.b
            thread, value = np.ogrid[:WARP_SIZE, : tv.size // WARP_SIZE]
            k, row = np.divmod(np.asarray(tv((thread, value)), dtype=np.int64), rows)
            blocks = [
                tile.byte_offsets(idx * atom.k + k, (firsts[:, None, None] + first + row) * 4)
                for first in range(begin, end, rows)
            ]
            offsets = np.concatenate(blocks, axis=2).reshape(len(firsts) * WARP_SIZE, -1)
            first_word = begin // rows * tv.size // WARP_SIZE
            return SharedElements(offsets=offsets, dtype=tile.dtype, registers=name, first=first_word)
        # matrices in the order of the registers: down a fragment, then along k
        matrices = [
            (first + row, half)
            for first in range(begin, end, rows) for half in (0, 1) for row in range(0, rows, MATRIX_ROWS)
        ]  # fmt: skip
        line, suffix = np.arange(MATRIX_ROWS), "" if tile.is_k_major else "_trans"
        instructions = []
        for at in range(0, len(matrices), 4):
            group, lanes = matrices[at : at + 4], []
            for first_row, half in (group * 2)[:4]:
                if tile.is_k_major:
                    byte = np.array(K_STEP_BYTES * idx + MATRIX_ROW_BYTES * half)
                    lanes.append(tile.byte_offsets(firsts[:, None] + first_row + line, byte))
                else:
                    ks = atom.k * idx + MATRIX_ROWS * half + line
                    lanes.append(tile.byte_offsets(ks, (firsts[:, None] + first_row) * tile.dtype.num_bytes))
            atom_of = copy_atom(f"ldmatrix_x{len(group)}{suffix}")
            instructions.append(matrix_offsets(atom_of, np.concatenate(lanes, axis=1)[None]))
        first_unit = begin // rows * 2 * (rows // MATRIX_ROWS) * 2
        return SharedElements(offsets=np.concatenate(instructions, axis=1), dtype=None, registers=name, first=first_unit)

    def mma(self, slices: Sequence[int], _op: Any) -> tuple[MmaFragments, ...]:
        """The mma.sync of slices of a k-step, all of each."""
        num_m, num_n = self._num_blocks
        issues = tuple((m, n, m * num_n + n) for m in range(num_m) for n in range(num_n))
        return tuple(
            MmaFragments(a=f"a{idx % 2}", b=f"b{idx % 2}", sums=SUMS, issues=issues, num_sums=num_m * num_n)
            for idx in slices
        )  # fmt: skip

    # -------------------------------------------------------------------------------------- fma
    @cached_method
    def _vectors(self, which: int) -> IntArray:
        """Rows of A, or columns of B, of each thread."""
        first = np.array([part[which] for part in self.parts])[:, None, None]
        num = self.extents[which] // LANES[which]
        return np.asarray(first + self.shape.thread_tile.elements(which, num)).reshape(-1, num)

    @cached_method
    def vectors(self, stage: int, idx: int, first_k: int, num_ks: int, _op: Any) -> tuple[SharedElements, ...]:
        """The ``ld.shared`` of rows of A and columns of B for ``num_ks`` k."""
        found = []
        for which, (_, buffer) in enumerate(NAMES):
            tile, rows = self.shape.operands[which], self._vectors(which)
            width, ks = tile.dtype.num_bytes, [np.array(first_k + k) for k in range(num_ks)]
            offsets = [
                tile.byte_offsets(rows, k * width) if tile.is_k_major else tile.byte_offsets(k, rows * width) for k in ks
            ]
            found.append(SharedElements(
                offsets=np.concatenate(offsets, axis=1), dtype=tile.dtype, registers=f"{buffer}{idx % 2}", buffer=buffer,
                stage=stage,
            ))  # fmt: skip
        return tuple(found)

    @cached_method
    def fma(self, idx: int, num_ks: int, _op: Any) -> Compute:
        """The FFMA of ``num_ks`` k."""

        def add(registers: Registers) -> None:
            a, b = (
                registers[f"{buffer}{idx % 2}"][:, : num_ks * num].reshape(-1, num_ks, num)
                for buffer, num in zip("ab", nums, strict=True)
            )
            total = registers.get(SUMS, np.zeros((len(a), nums[0] * nums[1]), dtype=np.float32)).reshape(-1, *nums)
            for k in range(num_ks):
                exact = a[:, k, :, None].astype(np.float64) * b[:, k, None, :]
                total = (total + exact).astype(np.float32)
            registers[SUMS] = total.reshape(len(a), -1)

        nums = self.extents[0] // 4, self.extents[1] // 8
        return Compute(function=add)
