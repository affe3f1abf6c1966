"""What programs refer to by number: costs that differ, names, lists, columns of panels. One of each for a launch.

In: a launch, and what its ops say. Out: numbers, in the order in which things were met.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from operator import attrgetter, index
from typing import Any, Generic, TypeVar

import numpy as np

from gpusim.program.programs import AluRow, AsyncCopyRow, FarCodeRow, StoreRow, TmaLoadRow, WgmmaRow
from gpusim.workload import ops
from gpusim.workload.access import AccessPattern
from gpusim.workload.atoms import MmaAtom
from gpusim.workload.fetches import Fetches
from gpusim.workload.launch import Launch

Item = TypeVar("Item")
Columns = dict[tuple[int, int], int]
"""Of one turn of a CTA: (tensor, panel) to column."""

MOST_KEPT = 1 << 16
"""Objects that are known by identity, until all of them are forgotten."""
MOST_INT32 = (1 << 31) - 1


class Known(Generic[Item]):
    """What is known of objects by their identity."""

    __slots__ = ("_kept", "by_id")

    def __init__(self) -> None:
        self.by_id: dict[int, Item] = {}
        self._kept: list[object] = []

    def keep(self, of: object, item: Item) -> None:
        """Remember an item; the object is held, so that its identity stays its own."""
        if len(self._kept) >= MOST_KEPT:
            self.by_id.clear()
            self._kept.clear()
        self.by_id[id(of)] = item
        self._kept.append(of)


class Rows(Generic[Item]):
    """Rows of a table that differ, numbered as they are met."""

    __slots__ = ("_by_key", "items")

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._by_key: dict[Hashable, int] = {}

    def find(self, key: Hashable) -> int | None:
        """The number of the row of this key, else None."""
        return self._by_key.get(key)

    def add(self, key: Hashable, row: Item) -> int:
        """A row whose key is new."""
        found = self._by_key[key] = len(self.items)
        self.items.append(row)
        return found

    def number(self, key: Hashable, row: Item) -> int:
        """The number of a row, which is new or there already."""
        found = self._by_key.get(key)
        return self.add(key, row) if found is None else found


class Numbers(Generic[Item]):
    """Distinct items, numbered as they are met: known by their identity or, the first time, by what they say."""

    __slots__ = ("_rows", "_says", "items", "known")

    def __init__(self, says: Callable[[Item], Hashable]) -> None:
        """``says`` gives the key of an item: items of one key are one."""
        self._says = says
        self._rows: Rows[Item] = Rows()
        self.items = self._rows.items
        self.known: Known[int] = Known()

    def number(self, item: Item) -> int:
        """The item's number."""
        found = self.known.by_id.get(id(item))
        if found is None:
            found = self._rows.number(self._says(item), item)
            self.known.keep(item, found)
        return found


class Declared:
    """What a launch declares, by name."""

    def __init__(self, launch: Launch) -> None:
        self.kernel, self.cluster_size, self.registers = launch.kernel, launch.cluster_size, launch.registers_per_thread
        self.stages, self.stage_names = _flat((item.name, item.num_stages) for item in launch.buffers)
        self.barriers, self.barrier_names = _flat((item.name, item.num_stages) for item in launch.mbarriers)
        self.stage_bytes = {item.name: item.stage_bytes for item in launch.buffers}
        self.named_barriers = {item.name: idx for idx, item in enumerate(launch.named_barriers)}


class Costs:
    """What ops cost, as far as it is known without a machine: rows that differ."""

    def __init__(self) -> None:
        self.accesses: Numbers[AccessPattern] = Numbers(
            attrgetter("num_requests", "num_sectors", "num_lines", "num_wavefronts", "num_bytes")
        )
        self.fetches: Numbers[Fetches] = Numbers(attrgetter(*Fetches.__dataclass_fields__))
        self.mma_syncs: Numbers[MmaAtom] = Numbers(_itself)
        self.atoms: Numbers[MmaAtom] = Numbers(_itself)
        """Atoms of wgmma."""
        self.stores: Rows[StoreRow] = Rows()
        self.async_copies: Rows[AsyncCopyRow] = Rows()
        self.tma_loads: Rows[TmaLoadRow] = Rows()
        self.tma_stores: Rows[ops.TmaStore] = Rows()
        self.wgmmas: Rows[WgmmaRow] = Rows()
        self.far_codes: Rows[FarCodeRow] = Rows()
        self.loop_codes: Rows[ops.LoopCode] = Rows()
        self.fmas: Rows[ops.Fma] = Rows()
        self.alus: Rows[AluRow] = Rows()


class Tables:
    """All that programs of one launch refer to by number."""

    def __init__(self, launch: Launch) -> None:
        """Nothing is known but what the launch declares."""
        self.declared, self.costs = Declared(launch), Costs()
        self.tensors: dict[str, int] = {}
        for footprint in launch.footprints:
            self.tensor(footprint.tensor)
        self.columns: dict[tuple[int, int, int], int] = {}
        """(tensor, turn, how many-th panel of that tensor in that turn) to column."""
        self.codes: dict[str, tuple[int, float]] = {}
        """(number, length) of each stretch of code."""
        self.far_code_names: dict[str, int] = {}
        self.lists: list[int] = []
        self.neighbours: list[tuple[int, int]] = []
        self._lists: dict[tuple[int, ...], int] = {}
        self._neighbours: dict[tuple[tuple[int, int], ...], int] = {}
        self._interned: dict[Hashable, int] = {}

    def tensor(self, name: str) -> int:
        """A tensor's number."""
        return self.tensors.setdefault(name, len(self.tensors))

    def list_of(self, numbers: tuple[int, ...]) -> int:
        """Where in ``lists`` these numbers begin."""
        return _begin(numbers, self.lists, self._lists)

    def neighbours_of(self, pairs: tuple[tuple[int, int], ...]) -> int:
        """Where in ``neighbours`` these pairs (column, step) begin, counted in pairs."""
        return _begin(pairs, self.neighbours, self._neighbours)

    def plain_tile(self, tile: Any) -> tuple[int, int]:
        """(panel, step) of a tile that is no pair of plain numbers: as such, or a panel below 0 of its own."""
        numbers = tuple(map(_whole, tile)) if isinstance(tile, tuple) and len(tile) == 2 else (None, None)
        panel, step = numbers
        if panel is not None and step is not None and 0 <= panel <= MOST_INT32 and abs(step) <= MOST_INT32:
            return panel, step
        return self._interned.setdefault(tile, -1 - len(self._interned)), 0


def _begin(items: tuple[Item, ...], every: list[Item], known: dict[tuple[Item, ...], int]) -> int:
    """Where in ``every`` some items begin: they are added where they are not ``known``."""
    begin = known.setdefault(items, len(every))
    if begin == len(every):
        every.extend(items)
    return begin


def _itself(item: Hashable) -> Hashable:
    return item


def _whole(number: Any) -> int | None:
    """A number that is whole, as Python's own, else None.

    >>> _whole(3), _whole(3.0), _whole(2.5), _whole("3")
    (3, 3, None, None)
    """
    try:
        return index(number)
    except TypeError:
        is_whole = isinstance(number, float | np.floating) and float(number).is_integer()
        return int(number) if is_whole else None


def _flat(rings: Any) -> tuple[dict[str, range], tuple[tuple[str, int], ...]]:
    """For each ring of stages their places in a list of all, and (ring, stage) of each place.

    >>> _flat([("a", 2), ("b", 1)])
    ({'a': range(0, 2), 'b': range(2, 3)}, (('a', 0), ('a', 1), ('b', 0)))
    """
    places: dict[str, range] = {}
    names: list[tuple[str, int]] = []
    for name, num_stages in rings:
        places[name] = range(len(names), len(names) + num_stages)
        names.extend((name, stage) for stage in range(num_stages))
    return places, tuple(names)
