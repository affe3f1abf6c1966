"""Cost tables of a launch's ops before a GPU is known: distinct rows, indexed in the order of first occurrence.

In: fields of ops. Out: rows, and the index of each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from gpusim.program.records import StoreKind
from gpusim.workload.atoms import MmaAtom
from gpusim.workload.gmem.line_fetches import Fetches
from gpusim.workload.ops import Fma, LoopBody, TmaLoad, TmaStore, Wgmma
from gpusim.workload.smem.access import AccessPattern

Item = TypeVar("Item")

MOST_KEPT = 1 << 16
"""Objects that are known by identity, at most. Then all of them are forgotten."""


class StoreRow(NamedTuple):
    """A store to global memory by ``num_warps`` warps."""

    access: int
    num_warps: int
    kind: StoreKind


class AsyncCopyRow(NamedTuple):
    """Fields of a ``cp.async`` op, as in ``records.TABLES["async_copies"]``."""

    access: int
    num_rows: float
    num_passes: float
    num_between: float
    new_fraction: float
    fetches: int
    neighbours_begin: int
    num_neighbours: int


class TmaLoadRow(NamedTuple):
    """TMA loads of equal cost: one of them, and the begin of its lists of neighbours and receiving ranks."""

    op: TmaLoad
    neighbours_begin: int
    num_neighbours: int
    ranks_begin: int
    num_ranks: int
    fetches: int


class WgmmaRow(NamedTuple):
    """Batches of wgmma of equal cost: one of them, and the number of warps that issue it."""

    op: Wgmma
    num_warpgroups: int
    num_warps: int


class ColdCodeRow(NamedTuple):
    """A range of a kernel's code; ``name`` is its index in ``cold_code_names``."""

    name: int
    begin_bytes: float
    end_bytes: float
    overhead_cycles: float


class AluRow(NamedTuple):
    """Integer instructions; fields as in ``ops.Alu``."""

    num_instructions: float
    num_beside: float
    num_more: float


class Known(Generic[Item]):
    """Items that belong to objects, by the identity of the objects."""

    __slots__ = ("_kept", "by_id")

    def __init__(self) -> None:
        self.by_id: dict[int, Item] = {}
        self._kept: list[object] = []

    def keep(self, owner: object, item: Item) -> None:
        """Remember an item. The object is kept alive, so that its identity stays unique."""
        if len(self._kept) >= MOST_KEPT:
            self.by_id.clear()
            self._kept.clear()
        self.by_id[id(owner)] = item
        self._kept.append(owner)


class Rows(Generic[Item]):
    """Distinct rows of a table, indexed in the order of first occurrence."""

    __slots__ = ("by_key", "items")

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.by_key: dict[Any, int] = {}

    def number(self, key: Hashable, row: Item) -> int:
        """Index of a new or known row."""
        found = self.by_key.get(key)
        if found is None:
            found = self.by_key[key] = len(self.items)
            self.items.append(row)
        return found


class Numbers(Generic[Item]):
    """Distinct items, indexed in the order of first occurrence.

    An item is found by its identity, the first time by its key.
    """

    __slots__ = ("_rows", "_says", "items", "known")

    def __init__(self, says: Callable[[Item], Hashable]) -> None:
        """``says`` returns the key of an item. Items with equal keys count as one."""
        self._says = says
        self._rows: Rows[Item] = Rows()
        self.items = self._rows.items
        self.known: Known[int] = Known()

    def number(self, item: Item) -> int:
        """Index of the item."""
        found = self.known.by_id.get(id(item))
        if found is None:
            found = self._rows.number(self._says(item), item)
            self.known.keep(item, found)
        return found


class Costs:
    """Rows of one launch, by the table names of ``records.TABLES``."""

    def __init__(self) -> None:
        self.accesses: Numbers[AccessPattern] = Numbers(
            attrgetter("num_requests", "num_sectors", "num_lines", "num_wavefronts", "num_bytes")
        )
        self.fetches: Numbers[Fetches] = Numbers(attrgetter(*Fetches.__dataclass_fields__))
        self.mma_syncs: Numbers[MmaAtom] = Numbers(lambda atom: atom)
        self.atoms: Numbers[MmaAtom] = Numbers(lambda atom: atom)
        """Atoms of wgmma."""
        self.stores: Rows[StoreRow] = Rows()
        self.async_copies: Rows[AsyncCopyRow] = Rows()
        self.tma_loads: Rows[TmaLoadRow] = Rows()
        self.tma_stores: Rows[TmaStore] = Rows()
        self.wgmmas: Rows[WgmmaRow] = Rows()
        self.cold_codes: Rows[ColdCodeRow] = Rows()
        self.loop_bodies: Rows[LoopBody] = Rows()
        self.fmas: Rows[Fma] = Rows()
        self.alus: Rows[AluRow] = Rows()
        self.swizzles: dict[tuple[str, str], str] = {}
        """Role that states a swizzle first, by (buffer, swizzle). It costs nothing; the order check compares them."""
