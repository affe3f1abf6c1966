"""Data accesses of memory-bound kernels: elements of vectors and tiles that threads load and store.

In: positions by pass and lane, or numbers of vectors. Out: accesses of ``workload/data_access.py``. Registers are "x".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.units import WARP_SIZE
from gpusim.workload.data_access import Computation, GlobalElements, IntArray, Registers, SharedElements
from gpusim.workload.dtypes import DType

LOADED = "x"
"""Registers of what a thread has loaded."""


def per_thread(by_pass: IntArray, unit: int = 1) -> IntArray:
    """Elements of each thread, of accesses by (pass, warp, lane) that have ``unit`` elements each; negative: none.

    >>> per_thread(np.array([[[0, 1]], [[2, -1]]]), 2).tolist()
    [[0, 1, 4, 5], [2, 3, -1, -1]]
    """
    of_thread = by_pass.reshape(len(by_pass), -1).T[:, :, None]
    return np.where(of_thread < 0, -1, of_thread * unit + np.arange(unit)).reshape(len(of_thread), -1)


def shares(begin: int, end: int, threads: int, num_vectors: int, vector: int = 1, *, step: int = 0) -> IntArray:
    """Elements from ``begin`` on that each thread has: vectors t, t + ``step``, ...; -1: from ``end`` on.

    ``step``: vectors from one to the next of a thread; 0: as many as there are threads.

    >>> shares(10, 15, 2, 2, 2).tolist()
    [[10, 11, 14, -1], [12, 13, -1, -1]]
    """
    thread, turn = np.arange(threads)[:, None, None], np.arange(num_vectors)[:, None]
    element = begin + (thread + turn * (step or threads)) * vector + np.arange(vector)
    return np.where(element < end, element, -1).reshape(threads, -1)


Index = IntArray | Callable[[Registers], IntArray]


def loaded(tensor: str, index: Index, registers: str = LOADED, compute: Computation | None = None) -> GlobalElements:
    """Data access of a load."""
    return GlobalElements(tensor=tensor, index=index, registers=registers, compute=compute)


def stored(tensor: str, index: Index, registers: str = LOADED, compute: Computation | None = None) -> GlobalElements:
    """Data access of a store."""
    return GlobalElements(tensor=tensor, index=index, registers=registers, compute=compute)


def shared(
    offsets: IntArray, element: DType, registers: str = LOADED, compute: Computation | None = None
) -> SharedElements:
    """Data access of a load from a stage, or of a store to it."""
    return SharedElements(offsets=offsets, dtype=element, registers=registers, compute=compute)


def nothing(tensor: str) -> GlobalElements:
    """Data access of a load whose elements an earlier load of the same vectors has loaded."""
    return loaded(tensor, np.full((WARP_SIZE, 1), -1), "nothing")


def of_warps(values: NDArray[Any], reduce: Callable[..., Any]) -> NDArray[Any]:
    """Reduction of the values of each warp, in all of its threads: (threads, 1)."""
    found = reduce(values.reshape(-1, WARP_SIZE * values.shape[1]), axis=1)
    return np.repeat(found, WARP_SIZE)[:, None]
