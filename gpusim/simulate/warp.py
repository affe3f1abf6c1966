"""The table of what each op costs: the one place beside ``workload/ops.py`` that a new op needs (and its function)."""

from __future__ import annotations

from gpusim.errors import LaunchError
from gpusim.simulate.costs import arithmetic, barriers, marks, memory, shared, tma
from gpusim.simulate.role import Handler, Pause, Role
from gpusim.workload import ops


def _no_op(role: Role, op: object) -> Pause:
    raise LaunchError(
        f"{role.engine.launch.kernel}: role {role.spec.name!r} yields {op!r}, wants an op of the vocabulary"
    )


class Handlers(dict[type[ops.Op], Handler]):
    """What to do for each op; anything else is refused."""

    def __missing__(self, kind: type) -> Handler:
        """Something that is no op."""
        return _no_op


HANDLERS = Handlers({
    ops.GlobalLoad: memory.global_load,
    ops.GlobalStore: memory.global_store,
    ops.GlobalAtomic: memory.global_atomic,
    ops.Use: memory.use,
    ops.CpAsync: memory.cp_async,
    ops.CpAsyncCommitGroup: memory.cp_commit,
    ops.CpAsyncWaitGroup: memory.cp_wait,
    ops.CpAsyncMbarrierArrive: memory.cp_mbarrier,
    ops.TmaLoad: tma.tma_load,
    ops.TmaStore: tma.tma_store,
    ops.BulkCommitGroup: tma.bulk_commit,
    ops.BulkWaitGroup: tma.bulk_wait,
    ops.PrefetchTensormap: tma.prefetch_tensormap,
    ops.MbarrierInit: barriers.mbarrier_init,
    ops.MbarrierArrive: barriers.mbarrier_arrive,
    ops.MbarrierArriveExpectTx: barriers.arrive_expect_tx,
    ops.MbarrierWait: barriers.mbarrier_wait,
    ops.BarSync: barriers.bar_sync,
    ops.BarArrive: barriers.bar_arrive,
    ops.Syncthreads: barriers.syncthreads,
    ops.ClusterArrive: barriers.cluster_arrive,
    ops.ClusterWait: barriers.cluster_wait,
    ops.FenceProxyAsync: barriers.fence_proxy_async,
    ops.FenceMbarrierInit: barriers.fence_mbarrier_init,
    ops.FenceAcqRel: barriers.fence_acq_rel,
    ops.SharedLoad: shared.shared_load,
    ops.SharedStore: shared.shared_store,
    ops.SharedAtomic: shared.shared_atomic,
    ops.Ldmatrix: shared.shared_load,
    ops.Stmatrix: shared.shared_store,
    ops.DsmemLoad: shared.dsmem_load,
    ops.DsmemStore: shared.dsmem_store,
    ops.StAsync: shared.st_async,
    ops.MmaSync: arithmetic.mma_sync,
    ops.WgmmaFence: barriers.fence,
    ops.Wgmma: arithmetic.wgmma,
    ops.WgmmaCommitGroup: arithmetic.wgmma_commit,
    ops.WgmmaWaitGroup: arithmetic.wgmma_wait,
    ops.Code: arithmetic.code,
    ops.FarCode: arithmetic.far_code,
    ops.LoopCode: arithmetic.loop_code,
    ops.Fma: arithmetic.fma,
    ops.Alu: arithmetic.alu,
    ops.MadWide: arithmetic.mad_wide,
    ops.Mufu: arithmetic.mufu,
    ops.Shfl: arithmetic.shfl,
    ops.SetMaxNReg: arithmetic.set_max_nreg,
    ops.RangeStart: marks.range_start,
    ops.RangeEnd: marks.range_end,
})
"""What each op costs: the one place beside ``workload/ops.py`` that a new op needs."""


WHEN_FREE: frozenset[type[ops.Op]] = frozenset(
    {
        ops.MbarrierArrive, ops.MbarrierArriveExpectTx, ops.MbarrierWait, ops.BarSync, ops.BarArrive, ops.Syncthreads,
        ops.ClusterArrive, ops.ClusterWait, ops.SetMaxNReg, ops.RangeStart, ops.RangeEnd, ops.Use, ops.TmaLoad,
        ops.CpAsync, ops.CpAsyncCommitGroup, ops.CpAsyncWaitGroup,
    }
)
"""Ops that are carried out even in a section that a counterfactual makes free: others depend on them."""

GIVES_TOKEN: frozenset[type[ops.Op]] = frozenset(
    {ops.GlobalLoad, ops.SharedLoad, ops.SharedAtomic, ops.Ldmatrix, ops.DsmemLoad, ops.GlobalAtomic}
)
"""Ops whose program receives a token; of stores to shared memory it does where it asks for one."""


def _for_nothing(role: Role, op: ops.Op) -> Pause:
    """An op in a section that a counterfactual makes free."""
    if type(op) in GIVES_TOKEN or (isinstance(op, ops.SharedStore | ops.Stmatrix) and op.has_token):
        token = ops.Token(is_long=False)
        token.ready_cycle = role.t
        return token
    return None


FREE_HANDLERS = Handlers(
    {kind: handler if kind in WHEN_FREE else _for_nothing for kind, handler in HANDLERS.items()}
)
"""The same for a section that is free."""
