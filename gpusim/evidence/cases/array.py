"""Arrays of kernel launches: read-only inputs, operands in shared memory, fragments of wgmma, tables of numbers.

In: arrays, shapes, CSV files. Out: arrays and numbers for a case's launches, checks and models.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gpusim.layout import tile_to_shape
from gpusim.layout.swizzle import ByteLayout, swizzle_mode
from gpusim.workload.smem.wgmma_operands import gmma_atom, wgmma_descriptors

Array = TypeVar("Array", bound=NDArray[Any])


def read_only(array: Array) -> Array:
    """``array``, made read-only: it is copied to the GPU once.

    >>> read_only(np.zeros(2)).flags.writeable
    False
    """
    array.setflags(write=False)
    return array


def swizzled(plain: NDArray[np.uint8], mode: str = "128B") -> NDArray[np.uint8]:
    """Bytes in shared memory, one dimension: each byte of ``plain`` at its swizzled place.

    >>> swizzled(np.arange(256, dtype=np.uint8))[128:146:16].tolist()
    [144, 128]
    """
    made = np.empty(plain.size, dtype=np.uint8)
    made[np.asarray(swizzle_mode(mode)(np.arange(plain.size)))] = plain.reshape(-1)
    return made


def fragment_places(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(rows, columns) of D in a wgmma's accumulators, int64[n / 2 registers, 128 threads]. Source: PTX's fragment of D.

    >>> rows, columns = fragment_places(8)
    >>> rows[2, 5], columns[3, 5]
    (np.int64(9), np.int64(3))
    """
    register, thread = np.arange(n // 2)[:, None], np.arange(128)
    rows = thread // 32 * 16 + thread % 32 // 4 + register // 2 % 2 * 8
    return rows, register // 4 * 8 + thread % 4 * 2 + register % 2


@cache
def k_major_tile(rows: int) -> ByteLayout:
    """Canonical K-major layout of a 16-bit operand with swizzle 128B: (rows, 64)."""
    made = tile_to_shape(gmma_atom("K", "128B", element_bits=16), (rows, 64))
    assert isinstance(made, ByteLayout)  # the atom is one
    return made


@cache
def k_major_descriptors(rows: int) -> tuple[int, ...]:
    """Descriptors of the four steps over k of such an operand at address 0."""
    return tuple(made.bits for made in wgmma_descriptors(k_major_tile(rows), "K"))


def records_of(case_file: str, name: str) -> list[dict[str, str]]:
    """Rows of the CSV file ``name`` next to a case's ``case.py``.

    Lines that begin with ``#`` are notes: what the numbers are, and their source.
    """
    with Path(case_file).with_name(name).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def numbers_of(case_file: str, name: str) -> dict[str, dict[str, float]]:
    """Numbers of such a file, by kernel, then by column; empty cells are left out."""
    return {
        row.pop("kernel"): {column: float(text) for column, text in row.items() if text}
        for row in records_of(case_file, name)
    }


def schedules_of(case_file: str, name: str) -> dict[str, dict[int, str]]:
    """Schedules of such a file, by kernel, then by the number of its copies."""
    found: dict[str, dict[int, str]] = {}
    for row in records_of(case_file, name):
        found.setdefault(row["kernel"], {})[int(row["num"])] = row["schedule"]
    return found
