"""Records of one role of one CTA during tracing: packed ops, tokens, and the panels that the role names.

In: packed records. Out: bytes of a program, whose tokens have slots.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush
from struct import Struct
from typing import Any

from gpusim.errors import LaunchError
from gpusim.program.costs import Known
from gpusim.program.records import OPS, OpKind
from gpusim.program.refusals import issued, place_of
from gpusim.program.tables import MOST_INT32, Columns, Tables
from gpusim.workload import ops
from gpusim.workload.launch import WarpRole
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.token import Token

FORMAT = Struct("<BBHiiiiid")
"""Layout of one record: the fields of ``records.OPS`` in order."""
PACK = FORMAT.pack
assert FORMAT.size == OPS.itemsize
SLOT = Struct("<i").pack
STAGE_AT, EXTRA_AT = (OPS.fields[name][1] for name in ("stage", "extra"))  # type: ignore[index]  # it has fields
"""Bytes of a record before the field that holds a token's slot."""
MOST_COLUMNS = 1 << 16
USE = PACK(OpKind.USE, 0, 0, 0, 0, 0, -1, 0, 0.0)


class Panels:
    """Panels that the roles of one CTA name, one column each."""

    __slots__ = ("columns", "counts", "panels", "stored", "turns")

    def __init__(self) -> None:
        self.columns: list[int] = []
        """Columns of ``cta_panels``, in the order of first occurrence."""
        self.panels: list[int] = []
        """Panel of each column."""
        self.turns: defaultdict[int, Columns] = defaultdict(dict)
        """Columns of each turn."""
        self.counts: dict[tuple[int, int], int] = {}
        """Number of panels by tensor and turn."""
        self.stored: dict[tuple[str, int], tuple[tuple[int, int] | None, int]] = {}
        """Tile and part of the last store, by role and tensor."""


class RoleRows:
    """Records of one role of one CTA, and the state that its next op may depend on."""

    __slots__ = (
        "_columns", "_cta_idx", "_in_stage", "_panels", "_places", "_tokens", "cta_rank", "has_arrived", "is_of_cta",
        "known", "num_ctas", "num_sections", "num_warps", "registers", "rows", "spec", "tables", "turn", "who",
    )  # fmt: skip

    def __init__(
        self, tables: Tables, spec: WarpRole, panels: Panels, known: Known[bytes], *, cta_idx: int, num_ctas: int
    ) -> None:
        """Begin without ops.

        ``known``: records of ops that are equal each time the op is yielded, for a role and a cluster rank.
        """
        launch = tables.launch
        self.tables, self.spec, self.known, self._cta_idx, self.num_ctas = tables, spec, known, cta_idx, num_ctas
        self.cta_rank = cta_idx % launch.cluster_size
        self.who = f"{launch.kernel}: role {spec.name!r} of CTA {cta_idx}"
        self.num_warps, self.registers = spec.num_warps, launch.registers_per_thread
        self.rows: list[bytes] = []
        self.is_of_cta = False
        """Whether the role has read its CTA's index or named a panel: its program may then differ between CTAs."""
        self.turn = 0
        self.has_arrived = False
        """Whether the role has arrived at the cluster barrier, and not waited since."""
        self.num_sections = 0
        """Number of open sections."""
        self._panels = panels
        self._columns = panels.turns[0]
        self._tokens: dict[Token, int] = {}
        self._places: list[tuple[int, int]] = []
        """Pairs (index of an op, number of a token). The number is inverted where the op uses the token."""
        self._in_stage: list[bool] = []
        """Flag of each token: the op that gives it has the slot in ``stage``; otherwise in ``extra``."""

    @property
    def num_ops(self) -> int:
        """Number of ops so far."""
        return len(self.rows)

    def add(self, row: bytes) -> None:
        """Append an op."""
        self.rows.append(row)

    def keep(self, op: ops.Op, row: bytes) -> None:
        """Append an op whose record is equal each time."""
        self.known.keep(op, row)
        self.rows.append(row)

    def give(self, row: bytes, *, in_stage: bool) -> Token:
        """Append an op that gives a token."""
        token = Token()
        number = self._tokens[token] = len(self._in_stage)
        self._in_stage.append(in_stage)
        self._places.append((len(self.rows), number))
        self.rows.append(row)
        return token

    def use(self, token: object) -> None:
        """Append an op that waits for a token of this role. Raises LaunchError: ``token`` is no token of this role."""
        number = self._tokens.get(token) if isinstance(token, Token) else None
        if number is None:
            raise LaunchError(f"{self.who} uses {token!r}, wants the token that a load has given")
        self._places.append((len(self.rows), ~number))
        self.rows.append(USE)

    def begin_turn(self, turn: int) -> None:
        """Begin a work tile. A previous one without ops leaves no record."""
        self.end_turn()
        self.turn = turn
        self._columns = self._panels.turns[turn]
        self.rows.append(PACK(OpKind.TURN, 0, 0, 0, 0, -1, -1, turn, 0.0))

    def end_turn(self) -> None:
        """Remove the record of a turn without ops."""
        if self.rows and self.rows[-1][0] == OpKind.TURN:
            self.rows.pop()

    def place(self, tensor: str, tile: Any) -> tuple[int, int, int]:
        """Index of the tensor, column of the panel, and step of a tile."""
        tables, self.is_of_cta = self.tables, True
        number = tables.tensor(tensor)
        panel, step = tile if type(tile) is tuple and len(tile) == 2 else (None, None)
        if not (type(panel) is type(step) is int and 0 <= panel <= MOST_INT32 and -MOST_INT32 <= step <= MOST_INT32):
            panel, step = tables.plain_tile(tile)
        column = self._columns.get((number, panel))
        if column is None:
            column = self._new_column(number, panel)
        return number, column, step

    def _new_column(self, tensor: int, panel: int) -> int:
        panels, all_columns = self._panels, self.tables.columns
        num_before = panels.counts.get((tensor, self.turn), 0)
        key = tensor, self.turn, num_before
        column = all_columns.get(key)
        if column is None:
            column = all_columns[key] = len(all_columns)
            if column >= MOST_COLUMNS:
                raise LaunchError(
                    f"{self.who} names more than {MOST_COLUMNS} panels, the limit of a CTA: name slices of one panel by "
                    "their step"
                )
        panels.counts[tensor, self.turn] = num_before + 1
        panels.columns.append(column)
        panels.panels.append(panel)
        self._columns[tensor, panel] = column
        return column

    def part(self, tensor: int, column: int, step: int) -> float:
        """Number of the part of a tile that a store stores: stores in a row to one tile store different parts of it.

        A role that has stored to another tile of the tensor in between stores the first part again. Roles store different
        parts.
        """
        key, tile = (self.spec.name, tensor), (column, step)
        last, part = self._panels.stored.get(key, (None, 0))
        part = part + 1 if last == tile else 0
        self._panels.stored[key] = tile, part
        return float(self.tables.role_places[self.spec.name] << 32 | part)

    def neighbours(self, op: ops.TmaLoad | ops.CpAsync) -> tuple[tuple[int, int], ...]:
        """Column and step of each tile that L2 promotion fetches in addition."""
        return tuple(self.place(op.tensor, tile)[1:] for tile in op.promoted_tiles)

    def access(self, access: AccessPattern) -> int:
        """Index of an access pattern. Raises LaunchError: a negative number of requests."""
        if access.num_requests < 0:
            raise issued(access.num_requests / self.num_warps)
        return self.tables.costs.accesses.number(access)

    def stage(self, buffer: str, stage: int) -> int:
        """Index of a stage of a buffer."""
        return place_of("buffer", buffer, stage, self.tables.stages)

    def barrier(self, ring: str, stage: int) -> int:
        """Index of an mbarrier."""
        return place_of("mbarrier", ring, stage, self.tables.barriers)

    def check_rank(self, rank: int) -> int:
        """Rank of a CTA of the cluster. Raises LaunchError: the cluster has no such rank."""
        size = self.tables.launch.cluster_size
        if not 0 <= rank < size:
            raise LaunchError(f"{self.who} names cluster rank {rank}, the cluster has ranks 0 to {size - 1}")
        return rank

    def finish(self) -> tuple[bytes, int]:
        """All records as bytes, with token slots filled in, and the number of slots."""
        self.end_turn()
        rows, slots = self.rows, token_slots(self._places)
        for (place, number), slot in zip(self._places, slots, strict=True):
            row = rows[place]
            at = STAGE_AT if number < 0 or self._in_stage[number] else EXTRA_AT
            rows[place] = row[:at] + SLOT(slot) + row[at + 4 :]
        return b"".join(rows), max(slots, default=-1) + 1


def token_slots(places: list[tuple[int, int]]) -> list[int]:
    """Slot of each op that gives a token or, with inverted number, uses one: the lowest free slot.

    A slot is free again after the last use of its token, or after the op that gives it if no op uses it.

    >>> token_slots([(0, 0), (1, 1), (2, ~0), (3, 2), (4, ~1), (5, ~2)])
    [0, 1, 0, 0, 1, 0]
    """
    last = {number if number >= 0 else ~number: idx for idx, (_, number) in enumerate(places)}
    slots: dict[int, int] = {}
    free: list[int] = []
    found: list[int] = []
    num_slots = 0
    for idx, (_, signed) in enumerate(places):
        number = signed if signed >= 0 else ~signed
        if signed >= 0:
            if free:
                slots[number] = heappop(free)
            else:
                slots[number] = num_slots
                num_slots += 1
        slot = slots[number]
        found.append(slot)
        if last[number] == idx:
            heappush(free, slot)
    return found
