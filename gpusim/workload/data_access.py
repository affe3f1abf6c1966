"""Data accesses of ops: which elements an op moves or multiplies. Timing runs ignore them; functional runs carry them out.

In: layouts, tensor maps, descriptors. Out: records with an index or a byte offset for each element.

An op's field ``data`` is an access, a tuple of accesses, or a function that returns one of these for the op. Arrays are
int64 of (threads of the role, values of a thread), unless stated otherwise. Registers have names and belong to a role.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LayoutError
from gpusim.layout.swizzle import swizzle_mode
from gpusim.units import WARP_SIZE
from gpusim.workload.atoms import CopyAtom
from gpusim.workload.dtypes import DType
from gpusim.workload.smem.smem_ops import MATRIX_ROW_BYTES, MATRIX_ROWS
from gpusim.workload.smem.wgmma_operands import Major, WgmmaDescriptor
from gpusim.workload.tma.boxes import TensorMap, row_pitch_bytes

IntArray = NDArray[np.int64]
Registers = dict[str, NDArray[Any]]
"""Registers of a role by name: (threads, values)."""
Computation = Callable[[Registers], None]
"""Arithmetic on the registers of a role, which it changes in place."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Copy:
    """A copy between a tensor and a stage, by cp.async or TMA, without registers.

    * ``index``: position of each element in the tensor's memory, in elements; -1: outside, which is read as 0.
    * ``offsets``: byte offset of each element in the stage, same shape; -1: the element is not copied.
    """

    tensor: str
    index: IntArray
    offsets: IntArray


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GlobalElements:
    """Elements of a tensor that threads load to ``registers`` or store from there.

    * ``index``: position of each element in the tensor's memory, in elements; -1: loaded as 0, and not stored. Or a
      function of the registers that returns it.
    * ``compute``: arithmetic after a load has arrived, or before a store.
    """

    tensor: str
    index: IntArray | Callable[[Registers], IntArray]
    registers: str
    compute: Computation | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SharedElements:
    """Elements of a stage that threads load to ``registers`` or store from there.

    * ``offsets``: byte offset of each element in the stage; -1: none.
    * ``dtype``: type of the elements; None: units of 16 bits without a type, as ldmatrix loads them.
    * ``first``: value of ``registers`` that the first element of a thread is.
    * ``buffer``, ``stage``: another stage than the op's, if ``buffer`` is not empty.
    * ``compute``: arithmetic before a store, or after a load has arrived.
    """

    offsets: IntArray
    dtype: DType | None
    registers: str
    first: int = 0
    buffer: str = ""
    stage: int = 0
    compute: Computation | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MmaFragments:
    """Registers that mma.sync multiplies: ``issues`` are triples (fragment of A, fragment of B, fragment of the sums).

    A thread's fragments of an operand are consecutive values of its registers, in the order of the atom's layout.
    ``contracted``: mode of A's tensor, and of B's tensor, that is summed over.
    """

    a: str
    b: str
    sums: str
    issues: tuple[tuple[int, int, int], ...]
    num_sums: int
    """Fragments of sums of a thread."""
    contracted: tuple[int, int] = (-1, -2)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MatrixOffsets:
    """Operands of one wgmma in shared memory: byte offsets in a stage, int64[m or n, k], and the fragment of the sums."""

    a: IntArray
    b: IntArray
    fragment: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class WgmmaOperands:
    """Operands of a batch of wgmma, by warpgroup and issue. ``a`` and ``b`` are pairs (buffer, stage).

    The sums begin at 0 if the registers do not exist. ``contracted`` and ``num_sums``: as in :class:`MmaFragments`.
    """

    a: tuple[str, int]
    b: tuple[str, int]
    sums: str
    issues: tuple[tuple[MatrixOffsets, ...], ...]
    num_sums: int
    contracted: tuple[int, int] = (-1, -2)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Counter:
    """A counter in global memory that one thread increments; it then waits until the count is at least ``awaited``.

    The begin of a section (``RangeStart``) waits without an increment.
    """

    tensor: str
    index: int
    awaited: int = 0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Compute:
    """Arithmetic on registers."""

    function: Computation


DataAccess = Copy | GlobalElements | SharedElements | MmaFragments | WgmmaOperands | Counter | Compute
Accesses = DataAccess | tuple[DataAccess, ...]
Data = Accesses | Callable[[Any], Accesses]
"""Accesses of an op, or a function that returns them for the op."""


def box_copy(tensor: str, described: TensorMap, at: tuple[int, ...], offset_bytes: int = 0) -> Copy:
    """The copy of one box: elements from coordinate ``at`` on, contiguous mode first, to ``offset_bytes`` in the stage.

    Rows follow one another in shared memory. The swizzle applies to offsets in the stage. Elements outside of the tensor
    are 0.

    >>> from gpusim.workload.dtypes import FP32
    >>> described = TensorMap(dtype=FP32, global_dim=(8, 4), global_strides_bytes=(32,), box_dim=(4, 2))
    >>> box_copy("A", described, (4, 3)).index.tolist(), box_copy("A", described, (4, 3)).offsets.tolist()
    ([28, 29, 30, 31, -1, -1, -1, -1], [0, 4, 8, 12, 16, 20, 24, 28])

    Raises:
        LayoutError: element strides, an interleaved map, or fill other than zeros.
    """
    if described.interleave != "none" or described.oob_fill != "zero" or set(described.element_strides or ()) - {1}:
        raise LayoutError(f"box of {tensor}: use a map without interleave and element strides, filled with zeros")
    index = _box_index(described) + sum(first * stride for first, stride in zip(at, _strides(described), strict=True))
    modes = list(zip(at, described.box_dim, described.global_dim, strict=True))
    if any(first < 0 or first + extent > size for first, extent, size in modes):
        inside = np.ones(1, dtype=np.bool_)
        for first, extent, size in modes:
            along = first + np.arange(extent)[:, None]
            inside = (inside & (along >= 0) & (along < size)).reshape(-1)
        index = np.where(inside, index, -1)
    return Copy(tensor=tensor, index=index, offsets=_box_offsets(described, offset_bytes))


def _strides(described: TensorMap) -> tuple[int, ...]:
    """Strides of a tensor map's modes, in elements."""
    return 1, *(stride // described.dtype.num_bytes for stride in described.global_strides_bytes)


@lru_cache(maxsize=64)
def _box_index(described: TensorMap) -> IntArray:
    """Position of each element of a box at coordinate 0, in elements."""
    index = np.zeros(1, dtype=np.int64)
    for extent, stride in zip(described.box_dim, _strides(described), strict=True):
        index = (index + np.arange(extent)[:, None] * stride).reshape(-1)
    return index


@lru_cache(maxsize=256)
def _box_offsets(described: TensorMap, offset_bytes: int) -> IntArray:
    box, width = described.box, described.dtype.num_bytes
    rows = row_pitch_bytes(box) * np.arange(prod(described.box_dim[1:]))[:, None]
    plain = offset_bytes + rows + width * np.arange(described.box_dim[0])
    return np.asarray(swizzle_mode(described.swizzle)(plain)).reshape(-1)


def matrix_offsets(atom: CopyAtom, rows: IntArray) -> IntArray:
    """Byte offsets of the 16-bit units that ldmatrix or stmatrix moves: int64[threads, units of a thread].

    ``rows``: offset of the row that each lane names, int64[instructions, warps, 32], as ``tiled.warp_addresses`` gives it.
    The lanes' units are those of the atom's layout.

    >>> from gpusim.workload.atoms import copy_atom
    >>> matrix_offsets(copy_atom("ldmatrix_x1"), np.arange(0, 512, 16).reshape(1, 1, 32))[:5].tolist()
    [[0, 2], [4, 6], [8, 10], [12, 14], [16, 18]]
    """
    row, byte = _units(atom)
    chosen = rows[:, :, row] + byte  # instructions, warps, lanes, units
    return np.asarray(chosen.transpose(1, 2, 0, 3).reshape(chosen.shape[1] * WARP_SIZE, -1))


@lru_cache(maxsize=32)
def _units(atom: CopyAtom) -> tuple[IntArray, IntArray]:
    """Row of the matrices, and byte in it, of each lane's 16-bit units."""
    unit = DType("b16", 16, "int")
    tv = atom.tv(unit)
    registers = tv.dst if atom.target == "registers" else tv.src
    lane, value = np.ogrid[:WARP_SIZE, : registers.size // WARP_SIZE]
    row, column = np.divmod(np.asarray(registers((lane, value)), dtype=np.int64), MATRIX_ROW_BYTES // 2)
    return row, 2 * column


def descriptor_offsets(descriptor: WgmmaDescriptor, major: Major, num_mn: int, dtype: DType) -> IntArray:
    """Byte offsets of the elements of a wgmma operand that a matrix descriptor points to: int64[num_mn, k].

    The descriptor's address counts from the begin of the stage.

    >>> from gpusim.workload.dtypes import BF16
    >>> plain = WgmmaDescriptor(
    ...     start_address_bytes=0, leading_offset_bytes=128, stride_offset_bytes=256, swizzle="none"
    ... )
    >>> descriptor_offsets(plain, "K", 8, BF16)[1, 6:10].tolist()
    [28, 30, 144, 146]
    """
    cores, width = descriptor.core_matrices(major, num_mn), dtype.num_bytes
    units = cores[..., None] + width * np.arange(MATRIX_ROW_BYTES // width)  # blocks, halves, rows, elements
    if major == "K":
        return np.asarray(units.transpose(0, 2, 1, 3).reshape(num_mn, -1))
    return np.asarray(units.transpose(0, 3, 1, 2).reshape(num_mn, 2 * MATRIX_ROWS))


def by_thread(num_units: int, num_threads: int, unit: int = 1) -> IntArray:
    """Numbers of the elements that each thread moves: units of ``unit`` elements, thread after thread; -1: none.

    >>> by_thread(3, 2, unit=2).tolist()
    [[0, 1, 4, 5], [2, 3, -1, -1]]
    """
    number = np.arange(-(-num_units // num_threads) * num_threads).reshape(-1, num_threads).T
    elements = unit * number[:, :, None] + np.arange(unit)
    return np.where(number[:, :, None] < num_units, elements, -1).reshape(num_threads, -1)
