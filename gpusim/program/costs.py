"""What ops cost, as far as it is known without a machine: rows that differ, numbered as they are met.

In: what ops say. Out: rows, and the number of each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from gpusim.program.records import StoreKind
from gpusim.workload.atoms import MmaAtom
from gpusim.workload.gmem.line_fetches import Fetches
from gpusim.workload.ops import Fma, LoopCode, TmaLoad, TmaStore, Wgmma
from gpusim.workload.smem.access import AccessPattern

Item = TypeVar("Item")

MOST_KEPT = 1 << 16
"""Objects that are known by identity, until all of them are forgotten."""


class StoreRow(NamedTuple):
    """A store to global memory by so many warps."""

    access: int
    num_warps: int
    kind: StoreKind


class AsyncCopyRow(NamedTuple):
    """The numbers of a ``cp.async`` op; fields as ``records.TABLES["async_copies"]`` has them."""

    access: int
    num_rows: float
    num_passes: float
    num_between: float
    new_fraction: float
    fetches: int
    neighbours_begin: int
    num_neighbours: int


class TmaLoadRow(NamedTuple):
    """TMA loads that cost alike: one of them, and where its neighbours and the ranks that receive it are listed."""

    op: TmaLoad
    neighbours_begin: int
    num_neighbours: int
    ranks_begin: int
    num_ranks: int
    fetches: int


class WgmmaRow(NamedTuple):
    """Batches of wgmma that cost alike: one of them, and who issues it."""

    op: Wgmma
    num_warpgroups: int
    num_warps: int


class FarCodeRow(NamedTuple):
    """A stretch of a kernel's code; ``name`` is its place in ``far_code_names``."""

    name: int
    begin_bytes: float
    end_bytes: float
    own_cycles: float


class AluRow(NamedTuple):
    """Integer work; fields as ``ops.Alu`` has them."""

    num_instructions: float
    num_beside: float
    num_more: float


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

    __slots__ = ("by_key", "items")

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.by_key: dict[Any, int] = {}

    def number(self, key: Hashable, row: Item) -> int:
        """The number of a row, which is new or there already."""
        found = self.by_key.get(key)
        if found is None:
            found = self.by_key[key] = len(self.items)
            self.items.append(row)
        return found


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


class Costs:
    """The rows of one launch; those of ``records.TABLES`` by its names."""

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
        self.far_codes: Rows[FarCodeRow] = Rows()
        self.loop_codes: Rows[LoopCode] = Rows()
        self.fmas: Rows[Fma] = Rows()
        self.alus: Rows[AluRow] = Rows()
