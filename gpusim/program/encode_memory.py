"""Encoders of memory ops as records: loads, stores, atomics, cp.async and TMA copies, shared-memory accesses.

In: a role's rows and its next op. Out: one more row, and the token that the program receives, if any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from gpusim.errors import LaunchError
from gpusim.program.costs import AsyncCopyRow, StoreRow, TmaLoadRow
from gpusim.program.programs import NONE
from gpusim.program.records import OpKind, StoreKind
from gpusim.program.refusals import check_tma_load
from gpusim.program.role_rows import PACK, RoleRows
from gpusim.workload import ops
from gpusim.workload.token import Token

Encoder = Callable[[RoleRows, Any], Token | None]
"""Function that records an op: ``encoder(role, op)``."""

OF_TMA_LOAD = attrgetter(
    "buffer", "num_bytes", "num_fetched_bytes", "num_rows", "num_boxes", "num_zero_rows", "num_outside_rows", "new_fraction"
)
OF_TMA_STORE = attrgetter("num_bytes", "num_rows", "num_boxes", "reduce")

def global_load(role: RoleRows, op: ops.GlobalLoad) -> Token:
    """Encode a load from global memory into registers."""
    access = role.access(op.access)
    tensor, column, step = role.place(op.tensor, op.tile)
    row = PACK(OpKind.GLOBAL_LOAD, bool(op.allocates_in_l1), column, access, step, 0, NONE, tensor, 0.0)
    return role.give(row, in_stage=True)


def _store(role: RoleRows, op: ops.GlobalStore | ops.GlobalAtomic, kind: StoreKind) -> int:
    row = StoreRow(role.access(op.access), role.num_warps, kind)
    return role.tables.costs.stores.number(row, row)


def global_store(role: RoleRows, op: ops.GlobalStore) -> None:
    """Encode a store from registers to global memory."""
    cost = _store(role, op, StoreKind.ST)
    tensor, column, step = role.place(op.tensor, op.tile)
    role.add(PACK(OpKind.GLOBAL_STORE, 0, column, cost, step, NONE, NONE, tensor, role.part(tensor, column, step)))


def global_atomic(role: RoleRows, op: ops.GlobalAtomic) -> Token | None:
    """Encode an atomic or reduction that L2 carries out, with or without a result."""
    cost = _store(role, op, StoreKind.ATOM if op.returns else StoreKind.RED)
    tensor, column, step = role.place(op.tensor, op.tile)
    if not op.returns:
        role.add(PACK(OpKind.GLOBAL_ATOMIC, 0, column, cost, step, NONE, NONE, tensor, role.part(tensor, column, step)))
        return None
    row = PACK(OpKind.GLOBAL_ATOMIC, 1, column, cost, step, 0, NONE, tensor, role.part(tensor, column, step))
    return role.give(row, in_stage=True)


def use(role: RoleRows, op: ops.Use) -> None:
    """Encode a wait for a token."""
    role.use(op.token)


def _fetches(role: RoleRows, op: ops.TmaLoad | ops.CpAsync) -> int:
    """Index of a copy's line fetches; -1 where the op has none."""
    return NONE if op.fetches is None else role.tables.costs.fetches.number(op.fetches)


def cp_async(role: RoleRows, op: ops.CpAsync) -> None:
    """Encode a cp.async copy into a stage. It belongs to the group that is committed next."""
    tables, access = role.tables, role.access(op.access)
    stage, fetches = role.stage(op.buffer, op.stage), _fetches(role, op)
    tensor, column, step = role.place(op.tensor, op.tile)
    neighbours = role.neighbours(op) if op.promoted_tiles else ()
    key = access, op.num_rows, op.num_passes, op.num_between, op.new_fraction, fetches, neighbours
    cost = tables.costs.async_copies.by_key.get(key)
    if cost is None:
        begin = tables.neighbours_of(neighbours)
        cost = tables.costs.async_copies.number(key, AsyncCopyRow(*key[:-1], begin, len(neighbours)))
    role.add(PACK(OpKind.CP_ASYNC, bool(op.allocates_in_l1), column, cost, step, stage, NONE, tensor, 0.0))


def tma_load(role: RoleRows, op: ops.TmaLoad) -> None:
    """Encode a TMA load into this CTA's stage, or into those of ranks of the cluster."""
    tables, ranks, fetches = role.tables, op.multicast and tuple(op.multicast), _fetches(role, op)
    neighbours = role.neighbours(op) if op.promoted_tiles else ()
    key = OF_TMA_LOAD(op), ranks, fetches, neighbours
    cost = tables.costs.tma_loads.by_key.get(key)
    if cost is None:
        check_tma_load(tables.launch.kernel, op, tables.stage_bytes.get(op.buffer, op.num_bytes))
        for rank in ranks:
            role.check_rank(rank)
    barrier, stage = role.barrier(op.barrier, op.stage), role.stage(op.buffer, op.stage)
    if op.swizzle:
        tables.costs.swizzles.setdefault((op.buffer, op.swizzle), role.spec.name)
    if cost is None:
        of_ranks, of_neighbours = tables.list_of(ranks), tables.neighbours_of(neighbours)
        row = TmaLoadRow(op, of_neighbours, len(neighbours), of_ranks, len(ranks), fetches)
        cost = tables.costs.tma_loads.number(key, row)
    tensor, column, step = role.place(op.tensor, op.tile)
    role.add(PACK(OpKind.TMA_LOAD, 0, column, cost, step, stage, barrier, tensor, 0.0))


def tma_store(role: RoleRows, op: ops.TmaStore) -> None:
    """Encode a TMA store."""
    stage = role.stage(op.buffer, op.stage) if op.buffer else NONE
    cost = role.tables.costs.tma_stores.number(OF_TMA_STORE(op), op)
    tensor, column, step = role.place(op.tensor, op.tile)
    role.add(PACK(OpKind.TMA_STORE, 0, column, cost, step, stage, NONE, tensor, role.part(tensor, column, step)))


def tensor_maps(role: RoleRows, op: ops.PrefetchTensormap | ops.FenceProxyTensormap) -> None:
    """Encode prefetches and fences of tensor maps."""
    kind = OpKind.PREFETCH_TENSORMAP if isinstance(op, ops.PrefetchTensormap) else OpKind.FENCE_PROXY_TENSORMAP
    tensors = tuple(role.tables.tensor(name) for name in op.tensors)
    role.keep(op, PACK(kind, 0, 0, role.tables.list_of(tensors), 0, NONE, NONE, len(tensors), 0.0))


def shared_load(role: RoleRows, op: ops.SharedLoad | ops.Ldmatrix) -> Token:
    """Encode a load or ldmatrix from shared memory. Raises LaunchError: an undeclared stage, or no part."""
    access, stage = role.access(op.access), role.stage(op.buffer, op.stage) if op.buffer else NONE
    kind, num_parts = (OpKind.SHARED_LOAD, op.num_parts) if isinstance(op, ops.SharedLoad) else (OpKind.LDMATRIX, 1)
    if num_parts < 1:
        raise LaunchError(f"{role.who} reads {num_parts} parts, wants 1 or more")
    return role.give(PACK(kind, 0, 0, access, num_parts, stage, NONE, 0, 0.0), in_stage=False)


def shared_store(kind: OpKind) -> Encoder:
    """Encoder of a store to shared memory."""

    def encode(role: RoleRows, op: ops.SharedStore | ops.Stmatrix) -> Token | None:
        stage, access = role.stage(op.buffer, op.stage) if op.buffer else NONE, role.access(op.access)
        row = PACK(kind, bool(op.has_token), 0, access, 0, stage, NONE, 0, 0.0)
        if op.has_token:
            return role.give(row, in_stage=False)
        role.keep(op, row)
        return None

    return encode


def shared_atomic(role: RoleRows, op: ops.SharedAtomic) -> Token:
    """Encode an atomic on shared memory."""
    row = PACK(OpKind.SHARED_ATOMIC, 0, 0, role.access(op.access), 0, NONE, NONE, 0, 0.0)
    return role.give(row, in_stage=False)


def dsmem_load(role: RoleRows, op: ops.DsmemLoad) -> Token:
    """Encode a load from another CTA's shared memory."""
    rank = role.check_rank(op.cta_rank)
    row = PACK(OpKind.DSMEM_LOAD, 0, 0, rank, 0, NONE, NONE, 0, float(op.num_bytes))
    return role.give(row, in_stage=False)


def dsmem_store(role: RoleRows, op: ops.DsmemStore) -> None:
    """Encode a store to another CTA's shared memory."""
    rank = role.check_rank(op.cta_rank)
    role.keep(op, PACK(OpKind.DSMEM_STORE, 0, 0, rank, 0, NONE, NONE, 0, float(op.num_bytes)))


def st_async(role: RoleRows, op: ops.StAsync) -> None:
    """Encode a store to another CTA's shared memory that counts on an mbarrier there."""
    rank = role.check_rank(op.cta_rank)
    barrier = role.barrier(op.barrier, op.stage)
    role.keep(op, PACK(OpKind.ST_ASYNC, 0, 0, rank, 0, NONE, barrier, 0, float(op.num_bytes)))


MEMORY_ENCODERS: Mapping[type[ops.Op], Encoder] = {
    ops.GlobalLoad: global_load,
    ops.GlobalStore: global_store,
    ops.GlobalAtomic: global_atomic,
    ops.Use: use,
    ops.CpAsync: cp_async,
    ops.TmaLoad: tma_load,
    ops.TmaStore: tma_store,
    ops.PrefetchTensormap: tensor_maps,
    ops.FenceProxyTensormap: tensor_maps,
    ops.SharedLoad: shared_load,
    ops.SharedStore: shared_store(OpKind.SHARED_STORE),
    ops.SharedAtomic: shared_atomic,
    ops.Ldmatrix: shared_load,
    ops.Stmatrix: shared_store(OpKind.STMATRIX),
    ops.DsmemLoad: dsmem_load,
    ops.DsmemStore: dsmem_store,
    ops.StAsync: st_async,
}
"""Encoder of each memory op."""
