"""Tables of one launch that its traced programs refer to by index: costs, names, lists, columns of panels.

In: a launch, and its ops as they are traced. Out: indices, in the order of first occurrence.
"""

from __future__ import annotations

from collections.abc import Hashable
from operator import index
from typing import Any, TypeVar

import numpy as np

from gpusim.program.costs import Costs
from gpusim.workload.launch import Launch

Item = TypeVar("Item")
Columns = dict[tuple[int, int], int]
"""Columns of one turn of a CTA, by (tensor, panel)."""

MOST_INT32 = (1 << 31) - 1


class Tables:
    """Everything that programs of one launch refer to by index."""

    def __init__(self, launch: Launch) -> None:
        """Begin with the names that the launch declares."""
        self.launch, self.costs = launch, Costs()
        self.stages, self.stage_names = _flat((item.name, item.num_stages) for item in launch.buffers)
        self.barriers, self.barrier_names = _flat((item.name, item.num_stages) for item in launch.mbarriers)
        self.stage_bytes = {item.name: item.stage_bytes for item in launch.buffers}
        self.named_barriers = {item.name: idx for idx, item in enumerate(launch.named_barriers)}
        self.role_places = {role.name: place for place, role in enumerate(launch.roles)}
        self.tensors: dict[str, int] = {}
        for footprint in launch.footprints:
            self.tensor(footprint.tensor)
        self.columns: dict[tuple[int, int, int], int] = {}
        """Column by (tensor, turn, index of the panel among the tensor's panels in that turn)."""
        self.codes: dict[str, tuple[int, float]] = {}
        """Index and length in bytes of each block of code, by name."""
        self.cold_code_names: dict[str, int] = {}
        self.lists: list[int] = []
        self.neighbours: list[tuple[int, int]] = []
        self._lists: dict[tuple[int, ...], int] = {}
        self._neighbours: dict[tuple[tuple[int, int], ...], int] = {}
        self._interned: dict[Hashable, int] = {}
        self.checked_ops: set[tuple[type, Hashable]] = set()
        """Arguments of ops that were checked, as :func:`gpusim.workload.op_arguments.key_of` returns them."""

    def tensor(self, name: str) -> int:
        """Index of a tensor."""
        return self.tensors.setdefault(name, len(self.tensors))

    def list_of(self, numbers: tuple[int, ...]) -> int:
        """Begin of these numbers in ``lists``."""
        return _begin(numbers, self.lists, self._lists)

    def neighbours_of(self, pairs: tuple[tuple[int, int], ...]) -> int:
        """Begin of these pairs (column, step) in ``neighbours``, counted in pairs."""
        return _begin(pairs, self.neighbours, self._neighbours)

    def plain_tile(self, tile: Any) -> tuple[int, int]:
        """Panel and step of a tile that is no pair of Python ints.

        Pairs of integral numbers are converted. Any other tile gets a separate panel below 0.
        """
        numbers = tuple(map(_integral, tile)) if isinstance(tile, tuple) and len(tile) == 2 else (None, None)
        panel, step = numbers
        if panel is not None and step is not None and 0 <= panel <= MOST_INT32 and abs(step) <= MOST_INT32:
            return panel, step
        return self._interned.setdefault(tile, -1 - len(self._interned)), 0


def _begin(items: tuple[Item, ...], every: list[Item], known: dict[tuple[Item, ...], int]) -> int:
    """Begin of ``items`` in ``every``. Items that are not ``known`` are appended."""
    begin = known.setdefault(items, len(every))
    if begin == len(every):
        every.extend(items)
    return begin


def _integral(number: Any) -> int | None:
    """An integral number as int, else None.

    >>> _integral(3), _integral(3.0), _integral(2.5), _integral("3")
    (3, 3, None, None)
    """
    try:
        return index(number)
    except TypeError:
        is_integral = isinstance(number, float | np.floating) and float(number).is_integer()
        return int(number) if is_integral else None


def _flat(rings: Any) -> tuple[dict[str, range], tuple[tuple[str, int], ...]]:
    """Indices of each ring's stages in a list of all stages, and (ring, stage) of each index.

    >>> _flat([("a", 2), ("b", 1)])
    ({'a': range(0, 2), 'b': range(2, 3)}, (('a', 0), ('a', 1), ('b', 0)))
    """
    places: dict[str, range] = {}
    names: list[tuple[str, int]] = []
    for name, num_stages in rings:
        places[name] = range(len(names), len(names) + num_stages)
        names.extend((name, stage) for stage in range(num_stages))
    return places, tuple(names)
