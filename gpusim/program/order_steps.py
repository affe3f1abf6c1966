"""Ops of traced programs that shared memory and barriers see, without tiles, costs and registers.

In: the programs of a launch. Out: for each program its distinct steps, and the order in which they come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusim.program.programs import Programs
from gpusim.program.records import OpKind

SHARED_READS = (OpKind.SHARED_LOAD, OpKind.LDMATRIX)
SHARED_WRITES = (OpKind.SHARED_STORE, OpKind.STMATRIX)
STORES = (OpKind.GLOBAL_STORE, OpKind.GLOBAL_ATOMIC)
ORDERED = (
    *range(OpKind.CP_ASYNC, OpKind.BULK_WAIT_GROUP + 1), *range(OpKind.MBARRIER_INIT, OpKind.FENCE_PROXY_ASYNC + 1),
    *SHARED_READS, *SHARED_WRITES, OpKind.ST_ASYNC,
    *range(OpKind.WGMMA_FENCE, OpKind.WGMMA_WAIT_GROUP + 1), *STORES,
)  # fmt: skip
"""Kinds of ops that the order check looks at. Shared memory without a stage is scratch memory, which it leaves out."""

_IN_STAGE = (*SHARED_READS, *SHARED_WRITES)


def _table(*kinds: int) -> NDArray[np.bool_]:
    """Whether each kind, from 0 to 255, is one of these."""
    found = np.zeros(256, dtype=np.bool_)
    found[list(kinds)] = True
    return found


_IS_ORDERED, _IS_IN_STAGE, _IS_STORE = _table(*ORDERED), _table(*_IN_STAGE), _table(*STORES)
_HAS_NO_EXTRA = _table(*_IN_STAGE, OpKind.CP_ASYNC, OpKind.TMA_LOAD, OpKind.TMA_STORE)
_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F,
                 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3], dtype=np.uint64)  # fmt: skip
"""Odd factors of a linear hash."""


class Step(NamedTuple):
    """An op as the order check sees it. Fields that its kind does not have are 0 or empty."""

    kind: OpKind
    flags: int
    stage: int
    """Index of the stage in the CTA, -1 for none."""
    barrier: int
    """Index of the mbarrier, or of the named barrier; -1 for none."""
    number: int
    """Arrivals, bytes that are announced, parity, or groups that may be in flight."""
    num_bytes: int
    """Bytes that are read or written; 0: as many as the stage has."""
    ranks: tuple[int, ...]
    """Cluster ranks that a multicast or a remote op names; empty: the CTA itself."""
    reads: tuple[int, ...]
    """Stages that wgmma reads."""


@dataclass(frozen=True, slots=True)
class StepList:
    """One program: its distinct steps, and the number and place of each."""

    steps: list[Step]
    codes: NDArray[np.int64]
    """Index into ``steps`` of each op in turn, int64[n]."""
    places: NDArray[np.int64]
    """Number of each op among all ops of the role, from 0, int64[n]."""


def step_lists(programs: Programs) -> Callable[[int], StepList]:
    """Function that maps the index of a program to its steps."""
    costs = programs.costs
    access_bytes = np.array([item.num_bytes for item in costs.accesses.items] or [0], dtype=np.int64)
    copy_bytes = access_bytes[[row.access for row in costs.async_copies.items] or [0]]
    store_bytes = np.array([op.num_bytes for op in costs.tma_stores.items] or [0], dtype=np.int64)
    loads = [
        (row.op.num_bytes, tuple(programs.lists[row.ranks_begin : row.ranks_begin + row.num_ranks].tolist()))
        for row in costs.tma_loads.items
    ]
    load_kinds = {load: number for number, load in enumerate(dict.fromkeys(loads))}
    load_numbers = np.array([load_kinds[load] for load in loads] or [0], dtype=np.int64)
    of_loads, found = list(load_kinds), dict[int, StepList]()

    def keys_of(ops: NDArray[Any]) -> NDArray[np.int64]:
        """Fields of each op that matter, int64[n, 7]: kind, flags, stage, barrier, extra, cost, step."""
        names = ("kind", "flags", "stage", "barrier", "extra", "cost", "step")
        keys = np.empty((len(ops), len(names)), dtype=np.int64)
        for place, name in enumerate(names):
            keys[:, place] = ops[name]
        kind, extra, cost = ops["kind"], keys[:, 4], keys[:, 5]
        tables = (
            (_IS_IN_STAGE[kind], access_bytes), (kind == OpKind.CP_ASYNC, copy_bytes),
            (kind == OpKind.TMA_LOAD, load_numbers), (kind == OpKind.TMA_STORE, store_bytes),
        )  # fmt: skip
        for is_kind, table in tables:
            cost[is_kind] = table[cost[is_kind]]
        remote = kind == OpKind.ST_ASYNC
        extra[remote] = ops["number"][remote]
        keys[_IS_STORE[kind], 1:] = 0
        extra[_HAS_NO_EXTRA[kind]] = cost[is_wgmma := kind == OpKind.WGMMA] = 0
        keys[~is_wgmma, 6] = 0
        keys[is_wgmma, 3] = -1
        return keys

    def step_of(key: list[int]) -> Step:
        kind, flags, stage, barrier, extra, cost, length = key
        of_kind = OpKind(kind)
        num_bytes, ranks, reads = 0, tuple[int, ...](), tuple[int, ...]()
        if of_kind is OpKind.TMA_LOAD:
            num_bytes, ranks = of_loads[cost]
        elif of_kind in (*_IN_STAGE, OpKind.CP_ASYNC, OpKind.TMA_STORE):
            num_bytes = cost
        elif of_kind is OpKind.WGMMA:
            reads = tuple(programs.lists[extra : extra + length].tolist())
        elif of_kind is OpKind.ST_ASYNC:
            num_bytes, ranks = extra, (cost,)
        elif of_kind is OpKind.MBARRIER_ARRIVE and cost >= 0:
            ranks = (cost,)
        return Step(of_kind, flags, stage, barrier, extra, num_bytes, ranks, reads)

    def steps_of(program: int) -> StepList:
        if program not in found:
            row = programs.programs[program]
            ops = programs.ops[row["begin"] : row["begin"] + row["num_ops"]]
            kind = ops["kind"]
            matters = _IS_ORDERED[kind] & ~(_IS_IN_STAGE[kind] & (ops["stage"] < 0))
            keys = keys_of(ops[matters])
            hashes = (keys.astype(np.uint64) * _MIX).sum(axis=1, dtype=np.uint64)
            _, firsts, codes = np.unique(hashes, return_index=True, return_inverse=True)
            places = np.arange(len(ops)) - np.cumsum(kind == OpKind.TURN)
            found[program] = StepList([step_of(keys[first].tolist()) for first in firsts], codes, places[matters])
        return found[program]

    return steps_of
