"""CTAs sorted by what their tiles touch: those of one sort may run the same programs.

In: bytes of tiles, ranks. Out: the sort of each CTA.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
IntArray = NDArray[np.int32]
Members = range | Int64Array
"""CTAs of a sort, in order; a range where they are evenly apart."""

MOST_LOOKED_FOR = 8
"""Values that are looked for one by one, before all that are left are sorted."""
MOST_COMPARED = 16
"""Sorts whose members are looked for one by one."""


def in_order(values: NDArray[np.integer]) -> IntArray:
    """Numbers of values in the order in which they first occur, int32[n].

    Most launches have few values, many times each: these are found without sorting.

    >>> in_order(np.array([7, 7, 3, 7, 3, 9])).tolist(), in_order(np.arange(12) // 2).tolist()
    ([0, 0, 1, 0, 1, 2], [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
    """
    found = np.zeros(len(values), dtype=np.int32)
    left = np.flatnonzero(values != values[0]) if len(values) else np.zeros(0, dtype=np.int64)
    num = 1
    while len(left) and num < MOST_LOOKED_FOR:
        is_other = values[left] != values[left[0]]
        found[left[~is_other]] = num
        left = left[is_other]
        num += 1
    if len(left):
        order = np.argsort(values[left], kind="stable")
        in_line = values[left][order]
        is_new = np.ones(len(left), dtype=np.bool_)
        is_new[1:] = in_line[1:] != in_line[:-1]
        firsts = order[is_new]
        numbers = np.empty(len(firsts), dtype=np.int32)
        numbers[np.argsort(firsts)] = np.arange(num, num + len(firsts), dtype=np.int32)
        found[left[order]] = numbers[np.cumsum(is_new) - 1]
    return found


def sorts_of_ctas(bytes_of: Sequence[Int64Array], *, num_ctas: int, num_tiles: int, cluster_size: int) -> IntArray:
    """The sort of each CTA, int32[num_ctas], numbered in the order in which they first occur.

    Two CTAs are of one sort if they have as many tiles, tile for tile as many bytes of each tensor, and the same rank.

    >>> parts = [np.array([8, 8, 8, 4]), np.array([1, 1, 1, 1])]
    >>> sorts_of_ctas(parts, num_ctas=4, num_tiles=4, cluster_size=1).tolist()
    [0, 0, 0, 1]
    >>> sorts_of_ctas(parts, num_ctas=4, num_tiles=4, cluster_size=2).tolist()
    [0, 1, 0, 2]
    >>> sorts_of_ctas(parts, num_ctas=2, num_tiles=4, cluster_size=1).tolist()  # tiles 0 and 2, 1 and 3
    [0, 1]
    """
    num_turns = -(-num_tiles // num_ctas)
    ranks = np.arange(num_ctas, dtype=np.int32) % cluster_size if cluster_size > 1 else None
    if num_turns > 1:
        return _sorts_of_turns(bytes_of, num_ctas, num_tiles, num_turns, ranks)
    found = np.zeros(num_ctas, dtype=np.int32) if ranks is None else ranks
    for of_tile in bytes_of:
        of_cta = of_tile
        if num_tiles < num_ctas:
            of_cta = np.full(num_ctas, -1, dtype=np.int64)
            of_cta[:num_tiles] = of_tile
        numbers = in_order(of_cta)
        if numbers.any():
            found = in_order(found.astype(np.int64) * (int(numbers.max()) + 1) + numbers) if found.any() else numbers
    return found


def _sorts_of_turns(
    bytes_of: Sequence[Int64Array], num_ctas: int, num_tiles: int, num_turns: int, ranks: IntArray | None
) -> IntArray:
    """The same of CTAs with several tiles."""
    keys = np.full((len(bytes_of) + 1, num_turns * num_ctas), -1, dtype=np.int64)
    for row, of_tile in zip(keys, bytes_of, strict=False):
        row[:num_tiles] = of_tile
    keys[-1, :num_tiles] = 0  # tells turns that are from those that are not, where there are no footprints
    if ranks is not None:
        keys[-1, :num_ctas] = ranks
    by_cta = np.ascontiguousarray(keys.reshape(-1, num_ctas).T)
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in by_cta], dtype=np.int32)


def members_of(sorts: IntArray) -> list[Members]:
    """For each sort its CTAs."""
    num = int(sorts.max()) + 1
    if num == 1:
        return [range(len(sorts))]
    if num <= MOST_COMPARED:
        return [_as_range(np.flatnonzero(sorts == sort)) for sort in range(num)]
    order = np.argsort(sorts, kind="stable")
    return [_as_range(ctas) for ctas in np.split(order, np.flatnonzero(np.diff(sorts[order])) + 1)]


def _as_range(ctas: Int64Array) -> Members:
    """The same CTAs as a range, if they are evenly apart.

    >>> _as_range(np.array([3, 5, 7])), _as_range(np.array([3, 5, 8])).tolist()
    (range(3, 8, 2), [3, 5, 8])
    """
    first, last, num = int(ctas[0]), int(ctas[-1]), len(ctas)
    step = (last - first) // (num - 1) if num > 1 else 1
    if first + step * (num - 1) == last and (step == 1 or (np.diff(ctas) == step).all()):
        return range(first, last + 1, step)
    return ctas


def at(members: Members, offset: int = 0) -> slice | Int64Array:
    """Where an array has what it has of each member, ``offset`` places further on."""
    if isinstance(members, range):
        return slice(members.start + offset, members.stop + offset, members.step)
    return members + offset
