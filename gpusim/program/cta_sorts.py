"""CTAs sorted by the bytes that their tiles touch. CTAs of one sort may run the same programs.

In: bytes of tiles, ranks. Out: the sort of each CTA.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
IntArray = NDArray[np.int32]


def in_order(values: NDArray[np.integer]) -> IntArray:
    """Distinct values numbered in the order of first occurrence, int32[n].

    >>> in_order(np.array([7, 7, 3, 7, 3, 9])).tolist(), in_order(np.arange(12) // 2).tolist()
    ([0, 0, 1, 0, 1, 2], [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
    """
    if (values == values[:1]).all():  # cheap to check, and usually true
        return np.zeros(len(values), dtype=np.int32)
    _, firsts, inverse = np.unique(values, return_index=True, return_inverse=True)
    numbers = np.empty(len(firsts), dtype=np.int32)
    numbers[np.argsort(firsts)] = np.arange(len(firsts), dtype=np.int32)
    return numbers[inverse]


def sorts_of_ctas(bytes_of: Sequence[Int64Array], *, num_ctas: int, num_tiles: int, cluster_size: int) -> IntArray:
    """Sort of each CTA, int32[num_ctas], numbered in the order of first occurrence.

    Two CTAs of one sort have the same rank and the same number of tiles. Tile for tile they touch as many bytes of each
    tensor.

    >>> parts = [np.array([8, 8, 8, 4]), np.array([1, 1, 1, 1])]
    >>> sorts_of_ctas(parts, num_ctas=4, num_tiles=4, cluster_size=1).tolist()
    [0, 0, 0, 1]
    >>> sorts_of_ctas(parts, num_ctas=4, num_tiles=4, cluster_size=2).tolist()
    [0, 1, 0, 2]
    >>> sorts_of_ctas(parts, num_ctas=2, num_tiles=4, cluster_size=1).tolist()  # tiles 0 and 2, 1 and 3
    [0, 1]
    """
    num_turns = -(-num_tiles // num_ctas)
    found = (np.arange(num_ctas) % cluster_size).astype(np.int32)
    for of_tile in bytes_of or [np.zeros(num_tiles, dtype=np.int64)]:
        of_turns = np.full(num_turns * num_ctas, -1, dtype=np.int64)  # where a CTA has no tile
        of_turns[:num_tiles] = of_tile
        for of_cta in of_turns.reshape(num_turns, num_ctas):
            numbers = in_order(of_cta)
            if found.any() and numbers.any():
                numbers = in_order(found.astype(np.int64) * (int(numbers.max()) + 1) + numbers)
            if numbers.any():
                found = numbers
    return found


def members_of(sorts: IntArray) -> list[Int64Array]:
    """CTAs of each sort, in ascending order."""
    if not sorts.any():
        return [np.arange(len(sorts))]
    order = np.argsort(sorts, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(sorts[order])) + 1)


def at(members: Int64Array, offset: int = 0) -> slice | Int64Array:
    """Index of the members in an array, shifted by ``offset``: a slice where they are consecutive."""
    first, last = int(members[0]) + offset, int(members[-1]) + offset
    return slice(first, last + 1) if last - first + 1 == len(members) else members + offset
