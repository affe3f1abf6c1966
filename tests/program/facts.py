"""What ops say, and what their records say: written down twice, so that the one can be held against the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpusim import Launch
from gpusim.program.programs import Programs
from gpusim.program.records import OpKind, Section, StoreKind
from gpusim.workload import ops
from gpusim.workload.launch import WarpRole
from gpusim.workload.token import Token

from .launches import records

Facts = tuple[Any, ...]


class Context:
    """A CTA as its programs see it; knows nothing of records."""

    def __init__(self, cta_idx: int, num_ctas: int, cta_rank: int) -> None:
        self.cta_idx, self.num_ctas, self.cta_rank = cta_idx, num_ctas, cta_rank
        self.facts: list[Facts] = []

    def loop(self, num_iterations: int) -> Iterator[int]:
        return iter(range(num_iterations))

    def tiles(self, num_tiles: int, *, first: int = 0, step: int = 1) -> Iterator[tuple[int, int]]:
        turn = first
        while self.cta_idx + turn * self.num_ctas < num_tiles:
            if self.facts and self.facts[-1][0] == OpKind.TURN:
                self.facts.pop()
            self.facts.append((OpKind.TURN, turn))
            yield turn, self.cta_idx + turn * self.num_ctas
            turn += step


def gives_token(op: ops.Op) -> bool:
    """Whether the program of ``op`` is handed a token."""
    if isinstance(op, ops.GlobalAtomic):
        return op.returns
    if isinstance(op, ops.SharedStore | ops.Stmatrix):
        return op.has_token
    return isinstance(op, ops.GlobalLoad | ops.SharedLoad | ops.SharedAtomic | ops.Ldmatrix | ops.DsmemLoad)


def said_by(launch: Launch, role: WarpRole, *, cta_idx: int, num_ctas: int) -> list[Facts]:
    """What the program of a role yields, fact by fact."""
    context = Context(cta_idx, num_ctas, cta_idx % launch.cluster_size)
    program, token, tokens = role.program(context), None, {}
    while True:
        try:
            op = program.send(token)
        except StopIteration:
            if context.facts and context.facts[-1][0] == OpKind.TURN:
                context.facts.pop()
            return context.facts
        token = Token() if gives_token(op) else None
        if token is not None:
            tokens[token] = len(context.facts)
        if isinstance(op, ops.Use):
            context.facts.append((OpKind.USE, tokens[op.token]))
        else:
            context.facts.append(facts_of(op, launch, role, context))


def facts_of(op: Any, launch: Launch, role: WarpRole, context: Context) -> Facts:
    """What one op says, names and numbers in the order in which :func:`facts_in` reads them."""
    num_warps, num_groups = role.num_warps, max(1, role.num_threads // 128)
    match op:
        case ops.GlobalLoad():
            return OpKind.GLOBAL_LOAD, op.tensor, op.tile, op.access, op.allocates_in_l1
        case ops.GlobalStore():
            return OpKind.GLOBAL_STORE, op.tensor, op.tile, op.access, num_warps, StoreKind.ST
        case ops.GlobalAtomic():
            kind = StoreKind.ATOM if op.returns else StoreKind.RED
            return OpKind.GLOBAL_ATOMIC, op.tensor, op.tile, op.access, num_warps, kind, op.returns
        case ops.CpAsync():
            numbers = op.num_rows, op.num_passes, op.num_between, op.new_fraction
            named = op.tensor, op.tile, op.buffer, op.stage
            return OpKind.CP_ASYNC, *named, op.access, numbers, op.fetches, op.promoted_tiles, op.allocates_in_l1
        case ops.TmaLoad():
            numbers = (
                op.num_bytes, op.num_fetched_bytes, op.num_rows, op.num_boxes, op.num_zero_rows, op.num_outside_rows,
                op.new_fraction,
            )  # fmt: skip
            named = op.tensor, op.tile, op.buffer, op.stage, op.barrier
            return OpKind.TMA_LOAD, *named, numbers, op.multicast, op.fetches, op.promoted_tiles
        case ops.TmaStore():
            numbers = op.num_bytes, op.num_rows, op.num_boxes, op.reduce
            return OpKind.TMA_STORE, op.tensor, op.tile, (op.buffer, op.stage) if op.buffer else None, numbers
        case ops.PrefetchTensormap():
            return OpKind.PREFETCH_TENSORMAP, op.tensors
        case ops.FenceProxyTensormap():
            return OpKind.FENCE_PROXY_TENSORMAP, op.tensors
        case ops.MbarrierArrive():
            rank = None if op.cta_rank == context.cta_rank else op.cta_rank
            return OpKind.MBARRIER_ARRIVE, op.barrier, op.stage, op.count, rank
        case ops.MbarrierArriveExpectTx():
            return OpKind.MBARRIER_ARRIVE_EXPECT_TX, op.barrier, op.stage, op.num_bytes
        case ops.MbarrierWait():
            return OpKind.MBARRIER_WAIT, op.barrier, op.stage, op.parity, op.by_lane
        case ops.CpAsyncMbarrierArrive():
            return OpKind.CP_ASYNC_MBARRIER_ARRIVE, op.barrier, op.stage
        case ops.BarSync() | ops.BarArrive():
            return OpKind.BAR_SYNC if isinstance(op, ops.BarSync) else OpKind.BAR_ARRIVE, op.barrier
        case ops.CpAsyncCommitGroup():
            return OpKind.CP_ASYNC_COMMIT_GROUP, op.is_held
        case ops.CpAsyncWaitGroup():
            return OpKind.CP_ASYNC_WAIT_GROUP, op.num_pending
        case ops.WgmmaWaitGroup():
            return OpKind.WGMMA_WAIT_GROUP, op.num_pending
        case ops.BulkWaitGroup():
            return OpKind.BULK_WAIT_GROUP, op.num_pending, op.read
        case ops.SharedLoad() | ops.Ldmatrix():
            kind = OpKind.SHARED_LOAD if isinstance(op, ops.SharedLoad) else OpKind.LDMATRIX
            return kind, (op.buffer, op.stage) if op.buffer else None, op.access, getattr(op, "num_parts", 1)
        case ops.SharedStore() | ops.Stmatrix():
            kind = OpKind.SHARED_STORE if isinstance(op, ops.SharedStore) else OpKind.STMATRIX
            return kind, (op.buffer, op.stage) if op.buffer else None, op.access, op.has_token
        case ops.SharedAtomic():
            return OpKind.SHARED_ATOMIC, op.access
        case ops.DsmemLoad() | ops.DsmemStore():
            kind = OpKind.DSMEM_LOAD if isinstance(op, ops.DsmemLoad) else OpKind.DSMEM_STORE
            return kind, op.cta_rank, op.num_bytes
        case ops.StAsync():
            return OpKind.ST_ASYNC, op.cta_rank, op.num_bytes, op.barrier, op.stage
        case ops.MmaSync():
            return OpKind.MMA_SYNC, op.atom, op.num_issues
        case ops.Wgmma():
            numbers = op.num_issues, op.num_between, num_groups, num_warps
            return OpKind.WGMMA, op.atom, numbers, op.reads, op.num_issues * num_groups
        case ops.FetchCode():
            return OpKind.FETCH_CODE, op.name, op.num_bytes
        case ops.FetchColdCode():
            return OpKind.FETCH_COLD_CODE, op.name, op.begin_bytes, op.end_bytes, op.overhead_cycles
        case ops.LoopBody():
            return OpKind.LOOP_BODY, op.num_fma, op.num_others, op.bank_reads
        case ops.Fma():
            return OpKind.FMA, op.num_instructions, op.bank_reads, op.num_runs, op.is_chain, op.by_age
        case ops.Alu():
            return OpKind.ALU, op.num_instructions, op.num_beside, op.num_more, op.is_chain
        case ops.ImadWide():
            return OpKind.IMAD_WIDE, op.num_instructions, op.is_interleaved, op.sets_pace
        case ops.Mufu():
            return OpKind.MUFU, op.num_instructions
        case ops.Shfl():
            return OpKind.SHFL, op.num_instructions, op.is_chain, op.num_warps or num_warps
        case ops.SetMaxNReg():
            return OpKind.SET_MAX_NREG, op.num_registers, op.direction
        case ops.RangeStart():
            return OpKind.RANGE_START, op.section.name
        case _:
            return (OpKind[SHOUTED[type(op)]],)


SHOUTED = {
    ops.BulkCommitGroup: "BULK_COMMIT_GROUP", ops.MbarrierInit: "MBARRIER_INIT", ops.Syncthreads: "SYNCTHREADS",
    ops.ClusterArrive: "CLUSTER_ARRIVE", ops.ClusterWait: "CLUSTER_WAIT", ops.FenceProxyAsync: "FENCE_PROXY_ASYNC",
    ops.FenceMbarrierInit: "FENCE_MBARRIER_INIT", ops.FenceAcqRel: "FENCE_ACQ_REL", ops.WgmmaFence: "WGMMA_FENCE",
    ops.WgmmaCommitGroup: "WGMMA_COMMIT_GROUP", ops.RangeEnd: "RANGE_END",
}  # fmt: skip
"""Ops without numbers."""


def facts_in(programs: Programs, cta_idx: int, role_idx: int) -> list[Facts]:
    """What the records of a role of a CTA say."""
    owner: dict[int, int] = {}
    return [
        _facts(programs, row, cta_idx, owner, place) for place, row in enumerate(records(programs, cta_idx, role_idx))
    ]


def _facts(all_of: Programs, row: dict[str, Any], cta_idx: int, owner: dict[int, int], place: int) -> Facts:
    kind, flags, cost, extra, number = row["kind"], row["flags"], row["cost"], row["extra"], row["number"]
    costs = all_of.costs
    stage = all_of.stages[row["stage"]] if 0 <= row["stage"] < len(all_of.stages) else None
    tensor = all_of.tensors[extra] if 0 <= extra < len(all_of.tensors) else ""
    panels = all_of.cta_panels[cta_idx].tolist()
    tile = (panels[row["panel"]] if panels else 0, row["step"])

    def barrier() -> tuple[str, int]:
        return all_of.barriers[row["barrier"]]

    def along(begin: int, num: int) -> tuple[tuple[int, int], ...]:
        return tuple((panels[column], step) for column, step in all_of.neighbours[begin : begin + num].tolist())

    def fetched(idx: int) -> Any:
        return None if idx < 0 else costs.fetches.items[idx]

    def give(slot: int) -> None:
        owner[slot] = place

    match kind:
        case OpKind.TURN:
            return kind, extra
        case OpKind.USE:
            return kind, owner[row["stage"]]
        case OpKind.GLOBAL_LOAD:
            give(row["stage"])
            return kind, tensor, tile, costs.accesses.items[cost], bool(flags & 1)
        case OpKind.GLOBAL_STORE:
            store = costs.stores.items[cost]
            return kind, tensor, tile, costs.accesses.items[store.access], store.num_warps, store.kind
        case OpKind.GLOBAL_ATOMIC:
            store = costs.stores.items[cost]
            if flags:
                give(row["stage"])
            return kind, tensor, tile, costs.accesses.items[store.access], store.num_warps, store.kind, bool(flags)
        case OpKind.CP_ASYNC:
            copy = costs.async_copies.items[cost]
            numbers = copy.num_rows, copy.num_passes, copy.num_between, copy.new_fraction
            neighbours = along(copy.neighbours_begin, copy.num_neighbours)
            access = costs.accesses.items[copy.access]
            return kind, tensor, tile, *(stage or ()), access, numbers, fetched(copy.fetches), neighbours, bool(flags & 1)
        case OpKind.TMA_LOAD:
            load = costs.tma_loads.items[cost]
            numbers = (
                load.op.num_bytes, load.op.num_fetched_bytes, load.op.num_rows, load.op.num_boxes, load.op.num_zero_rows,
                load.op.num_outside_rows, load.op.new_fraction,
            )  # fmt: skip
            assert load.op.buffer == (stage or ("",))[0]
            ranks = tuple(all_of.lists[load.ranks_begin : load.ranks_begin + load.num_ranks].tolist())
            neighbours = along(load.neighbours_begin, load.num_neighbours)
            named = tensor, tile, *(stage or ()), barrier()[0]
            assert (stage or (0, 0))[1] == barrier()[1]
            return kind, *named, numbers, ranks, fetched(load.fetches), neighbours
        case OpKind.TMA_STORE:
            op = costs.tma_stores.items[cost]
            return kind, tensor, tile, stage, (op.num_bytes, op.num_rows, op.num_boxes, op.reduce)
        case OpKind.PREFETCH_TENSORMAP | OpKind.FENCE_PROXY_TENSORMAP:
            return kind, tuple(all_of.tensors[idx] for idx in all_of.lists[cost : cost + extra])
        case OpKind.MBARRIER_ARRIVE:
            return kind, *barrier(), extra, None if cost < 0 else cost
        case OpKind.MBARRIER_ARRIVE_EXPECT_TX:
            return kind, *barrier(), extra
        case OpKind.MBARRIER_WAIT:
            return kind, *barrier(), extra, bool(flags)
        case OpKind.CP_ASYNC_MBARRIER_ARRIVE:
            return kind, *barrier()
        case OpKind.BAR_SYNC | OpKind.BAR_ARRIVE:
            return kind, all_of.named_barriers[row["barrier"]]
        case OpKind.CP_ASYNC_COMMIT_GROUP:
            return kind, bool(flags)
        case OpKind.CP_ASYNC_WAIT_GROUP | OpKind.WGMMA_WAIT_GROUP:
            return kind, extra
        case OpKind.BULK_WAIT_GROUP:
            return kind, extra, bool(flags)
        case OpKind.SHARED_LOAD | OpKind.LDMATRIX:
            give(extra)
            return kind, stage, costs.accesses.items[cost], row["step"]
        case OpKind.SHARED_STORE | OpKind.STMATRIX:
            if flags:
                give(extra)
            return kind, stage, costs.accesses.items[cost], bool(flags)
        case OpKind.SHARED_ATOMIC:
            give(extra)
            return kind, costs.accesses.items[cost]
        case OpKind.DSMEM_LOAD | OpKind.DSMEM_STORE:
            if kind == OpKind.DSMEM_LOAD:
                give(extra)
            return kind, cost, number
        case OpKind.ST_ASYNC:
            return kind, cost, number, *barrier()
        case OpKind.MMA_SYNC:
            return kind, costs.mma_syncs.items[cost], extra
        case OpKind.WGMMA:
            batch = costs.wgmmas.items[cost]
            reads = tuple(all_of.stages[idx] for idx in all_of.lists[extra : extra + row["step"]])
            numbers = batch.op.num_issues, batch.op.num_between, batch.num_warpgroups, batch.num_warps
            return kind, batch.op.atom, numbers, reads, row["barrier"]
        case OpKind.FETCH_CODE:
            return kind, all_of.code_names[cost], number
        case OpKind.FETCH_COLD_CODE:
            far = costs.cold_codes.items[cost]
            return kind, all_of.cold_code_names[far.name], far.begin_bytes, far.end_bytes, far.overhead_cycles
        case OpKind.LOOP_BODY:
            code = costs.loop_bodies.items[cost]
            return kind, code.num_fma, code.num_others, code.bank_reads
        case OpKind.FMA:
            fma = costs.fmas.items[cost]
            return kind, fma.num_instructions, fma.bank_reads, fma.num_runs, bool(flags & 1), bool(flags & 2)
        case OpKind.ALU:
            alu = costs.alus.items[cost]
            return kind, alu.num_instructions, alu.num_beside, alu.num_more, bool(flags & 1)
        case OpKind.IMAD_WIDE:
            return kind, number, bool(flags & 1), bool(flags & 2)
        case OpKind.MUFU:
            return kind, number
        case OpKind.SHFL:
            return kind, number, bool(flags & 1), extra
        case OpKind.SET_MAX_NREG:
            return kind, extra, "inc" if flags else "dec"
        case OpKind.RANGE_START:
            return kind, Section(extra).name
        case _:
            return (kind,)
