"""Arithmetic of mma.sync and wgmma: fragments become matrices by the layouts of atoms, and are multiplied.

Models: an instruction multiplies and sums exactly. The result is rounded to the type of the sums once.

Ignores:

* The alignment of summands in tensor cores, which truncates them.
* The fewer bits in which Hopper sums fp8.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gpusim.functional.number_format import decode, encode, rounded, storage
from gpusim.workload.atoms import MmaAtom
from gpusim.workload.data_access import IntArray
from gpusim.workload.dtypes import DType

Array = NDArray[Any]
Operand = Literal["a", "b", "c"]


@lru_cache(maxsize=128)
def _places(atom: MmaAtom, operand: Operand) -> tuple[IntArray, tuple[int, int]]:
    """Place in the column-major matrix of each (thread, value), and the matrix's rows and columns."""
    shape = {"a": (atom.m, atom.k), "b": (atom.n, atom.k), "c": (atom.m, atom.n)}[operand]
    tv = getattr(atom.tv, operand)
    thread, value = np.ogrid[: atom.num_threads, : tv.size // atom.num_threads]
    return np.asarray(tv((thread, value)), dtype=np.int64), shape


def to_matrices(registers: Array, atom: MmaAtom, operand: Operand) -> Array:
    """Fragments of all threads as matrices: (warps or warpgroups, fragments, rows, columns)."""
    places, (rows, columns) = _places(atom, operand)
    threads, values = places.shape
    parts = registers.reshape(-1, threads, registers.shape[1] // values, values).transpose(0, 2, 1, 3)
    flat = np.empty((*parts.shape[:2], rows * columns), dtype=registers.dtype)
    flat[..., places] = parts
    return flat.reshape(*parts.shape[:2], columns, rows).swapaxes(-1, -2)


def to_registers(matrices: Array, atom: MmaAtom, operand: Operand) -> Array:
    """Inverse of :func:`to_matrices`: (threads, values)."""
    places, _ = _places(atom, operand)
    flat = matrices.swapaxes(-1, -2).reshape(*matrices.shape[:2], -1)[..., places]  # units, fragments, threads, values
    return np.ascontiguousarray(flat.transpose(0, 2, 1, 3)).reshape(len(matrices) * len(places), -1)


def thread_and_value(atom: MmaAtom, operand: Operand, row: int, column: int) -> tuple[int, int]:
    """The thread of the atom, and its value, that hold an element of a fragment."""
    places, (rows, _) = _places(atom, operand)
    thread, value = np.argwhere(places == row + rows * column)[0].tolist()
    return thread, value


def operand_values(registers: Array, dtype: DType) -> Array:
    """Values of an operand's registers: bits that ldmatrix has loaded, or values, which are rounded to ``dtype``."""
    if registers.dtype.kind == "u":
        return decode(np.ascontiguousarray(registers).view(storage(dtype)), dtype)
    return rounded(registers, dtype)


def multiply(a: Array, b: Array, sums: Array, dtype: DType) -> Array:
    """``sums`` + A B, in which B is (..., n, k); rounded to ``dtype``: float32 values, or int64 ones of int32.

    >>> multiply(np.ones((1, 4)), np.full((2, 4), 0.5), np.zeros((1, 2)), DType("fp32", 32, "float")).tolist()
    [[2.0, 2.0]]
    """
    exact = np.int64 if dtype.kind == "int" else np.float64
    total = sums.astype(exact) + a.astype(exact) @ b.astype(exact).swapaxes(-1, -2)
    return decode(encode(total, dtype), dtype)
