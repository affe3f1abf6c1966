"""Which function carries out which op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpusim.errors import LaunchError
from gpusim.reference import arithmetic, global_memory, shared_memory, synchronization
from gpusim.reference.role import Role
from gpusim.workload import ops

CarriesOut = Callable[[Role, Any], Any]
"""``function(role, op)`` moves the role's cursor. It returns a token or nothing; or, where it waits, what waits."""

VOCABULARY: Mapping[type[ops.Op], CarriesOut] = {
    ops.GlobalLoad: global_memory.global_load,
    ops.GlobalStore: global_memory.global_store,
    ops.GlobalAtomic: global_memory.global_atomic,
    ops.Use: global_memory.use,
    ops.CpAsync: global_memory.cp_async,
    ops.CpAsyncCommitGroup: global_memory.cp_async_commit,
    ops.CpAsyncWaitGroup: global_memory.cp_async_wait,
    ops.CpAsyncMbarrierArrive: global_memory.cp_async_mbarrier_arrive,
    ops.TmaLoad: global_memory.tma_load,
    ops.TmaStore: global_memory.tma_store,
    ops.BulkCommitGroup: global_memory.bulk_commit,
    ops.BulkWaitGroup: global_memory.bulk_wait,
    ops.PrefetchTensormap: global_memory.prefetch_tensormap,
    ops.MbarrierInit: synchronization.mbarrier_init,
    ops.MbarrierArrive: synchronization.mbarrier_arrive,
    ops.MbarrierArriveExpectTx: synchronization.mbarrier_arrive_expect_tx,
    ops.MbarrierWait: synchronization.mbarrier_wait,
    ops.BarSync: synchronization.bar_sync,
    ops.BarArrive: synchronization.bar_arrive,
    ops.Syncthreads: synchronization.syncthreads,
    ops.ClusterArrive: synchronization.cluster_arrive,
    ops.ClusterWait: synchronization.cluster_wait,
    ops.FenceProxyAsync: synchronization.fence_proxy_async,
    ops.FenceMbarrierInit: synchronization.fence_mbarrier_init,
    ops.FenceAcqRel: synchronization.fence_acq_rel,
    ops.SharedLoad: shared_memory.shared_load,
    ops.SharedStore: shared_memory.shared_store,
    ops.SharedAtomic: shared_memory.shared_atomic,
    ops.Ldmatrix: shared_memory.shared_load,
    ops.Stmatrix: shared_memory.shared_store,
    ops.DsmemLoad: shared_memory.dsmem_load,
    ops.DsmemStore: shared_memory.dsmem_store,
    ops.StAsync: shared_memory.st_async,
    ops.MmaSync: arithmetic.mma_sync,
    ops.WgmmaFence: synchronization.wgmma_fence,
    ops.Wgmma: arithmetic.wgmma,
    ops.WgmmaCommitGroup: arithmetic.wgmma_commit,
    ops.WgmmaWaitGroup: arithmetic.wgmma_wait,
    ops.Fma: arithmetic.fma,
    ops.Alu: arithmetic.alu,
    ops.Mufu: arithmetic.mufu,
    ops.Shfl: arithmetic.shfl,
    ops.SetMaxNReg: arithmetic.set_max_nreg,
    ops.Code: synchronization.nothing,
    ops.FarCode: synchronization.nothing,
    ops.LoopCode: synchronization.nothing,
    ops.RangeStart: synchronization.range_start,
    ops.RangeEnd: synchronization.range_end,
}
"""All but ``MadWide``, whose turns beside wgmma are beyond the core."""


def carry_out(role: Role, op: object) -> Any:
    """Carry out an op of a role's program."""
    function = VOCABULARY.get(type(op))  # type: ignore[arg-type]  # it may be no op
    if function is None:
        raise LaunchError(
            f"{role.kernel.launch.kernel}: role {role.spec.name!r} yields {op!r}, wants an op of the vocabulary, in the core"
        )
    return function(role, op)
