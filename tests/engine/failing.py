"""Kernels that go wrong while they run, each in its own way: deadlocks, hazards, and what a launch may not ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gpusim import Launch, Mbarrier, NamedBarrier
from gpusim.workload import ops
from gpusim.workload.atoms import wgmma
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext

from .kernels import contiguous, expect, launch, role, shared, tma, wait

MATH = wgmma(64, BF16)
MULTIPLY = ops.Wgmma(MATH, 8, (("a", 0),))
FILL = (expect(0, 4096), tma((0, 0), 0, 4096, 1))
COMMIT, NO_GROUP = ops.WgmmaCommitGroup(), ops.WgmmaWaitGroup(0)


def of_ops(*some: Any, name: str = "worker", num_warps: int = 4) -> Any:
    """A role that yields these ops, one after the other."""

    def program(cta: RoleContext) -> Iterator[Any]:
        for op in some:  # noqa: UP028  # the engine sends tokens, and a tuple takes none
            yield op

    return role(program, name, num_warps)


def failing(*some: Any, **fields: Any) -> Launch:
    named = (NamedBarrier(name="math", num_threads=64), NamedBarrier(name="few", num_threads=160))
    fields.setdefault("named_barriers", named)
    return launch("failing", *(each if hasattr(each, "program") else of_ops(each) for each in some), **fields)


def skips_cluster_barrier(cta: RoleContext) -> Iterator[Any]:
    if cta.cta_rank == 0:
        yield ops.ClusterArrive()
        yield ops.ClusterWait()


def multicast_into_read_slot(cta: RoleContext) -> Iterator[Any]:
    yield expect(0, 4096)
    yield ops.ClusterArrive()
    yield ops.ClusterWait()
    if cta.cta_rank == 0:
        yield tma((0, 0), 0, 4096, 1, multicast=(0, 1))
    yield wait(0)
    if cta.cta_rank == 1:
        yield MULTIPLY
        yield COMMIT
        yield NO_GROUP
    else:
        yield ops.Fma(100)
        yield tma((0, 1), 0, 4096, 1, multicast=(0, 1))


def some_are_stuck(cta: RoleContext) -> Iterator[Any]:
    yield ops.Fma(10 + cta.cta_idx)
    if cta.cta_idx % 2:
        yield wait(1)


DEADLOCKS: dict[str, Callable[[], Launch]] = {
    "no_arrivals": lambda: failing(
        of_ops(ops.Fma(50), wait(1), name="consumer"),
        mbarriers=(Mbarrier(name="full", num_arrivals=3, num_stages=2),),
    ),
    "too_few_arrivals": lambda: failing(
        of_ops(ops.MbarrierArrive("full", 0), wait(0)), mbarriers=(Mbarrier(name="full", num_arrivals=3),)
    ),
    "too_few_bytes": lambda: failing(of_ops(expect(0, 4096), tma((0, 0), 0, 2048, 1), wait(0))),
    "too_many_bytes": lambda: failing(of_ops(expect(0, 2048), tma((0, 0), 0, 4096, 1), wait(0))),
    "wrong_parity": lambda: failing(of_ops(ops.MbarrierArrive("full", 0), wait(0), wait(0, 1))),
    "many_blocked": lambda: failing(role(some_are_stuck), num_ctas=24, buffers=()),
    "lone_lane": lambda: failing(of_ops(wait(2, by_lane=True))),
    "one_role_stuck": lambda: failing(of_ops(ops.Fma(1), name="done"), of_ops(wait(0), name="stuck")),
    "syncthreads": lambda: failing(of_ops(ops.Syncthreads()), of_ops(ops.Fma(1), name="other")),
    "named_barrier": lambda: failing(of_ops(ops.BarSync("few")), of_ops(ops.Fma(1), name="other")),
    "registers": lambda: failing(
        of_ops(ops.SetMaxNReg(232, "inc")), of_ops(ops.Fma(1), name="other"), registers_per_thread=168
    ),
    "cluster_barrier": lambda: failing(role(skips_cluster_barrier), num_ctas=2, cluster_size=2),
}
"""Roles wait for what never comes."""

HAZARDS: dict[str, Callable[[], Launch]] = {
    "wgmma_before_full": lambda: failing(of_ops(*FILL, MULTIPLY)),
    "load_before_full": lambda: failing(of_ops(*FILL, ops.SharedLoad(shared(1), "a", 0))),
    "long_load_before_full": lambda: failing(of_ops(*FILL, ops.SharedLoad(shared(400, 8), "a", 0))),
    "matrix_before_full": lambda: failing(of_ops(*FILL, ops.Ldmatrix(shared(1), "a", 0))),
    "store_before_full": lambda: failing(of_ops(*FILL, ops.TmaStore("D", (0, 0), 64, 1, "a", 0))),
    "wgmma_never_written": lambda: failing(of_ops(MULTIPLY)),
    "load_never_written": lambda: failing(of_ops(ops.SharedLoad(shared(1), "a", 3))),
    "store_never_written": lambda: failing(of_ops(ops.TmaStore("D", (0, 0), 64, 1, "a", 2))),
    "refilled_by_tma": lambda: failing(of_ops(*FILL, wait(0), MULTIPLY, COMMIT, expect(0, 4096), tma((0, 1), 0, 4096, 1))),
    "refilled_by_cp_async": lambda: failing(
        of_ops(*FILL, wait(0), MULTIPLY, ops.CpAsync("A", (0, 1), contiguous(128), "a", 0))
    ),
    "refilled_by_store": lambda: failing(of_ops(*FILL, wait(0), MULTIPLY, ops.SharedStore(shared(1), "a", 0))),
    "refilled_while_stored": lambda: failing(
        of_ops(
            ops.SharedStore(shared(1), "a", 0), ops.TmaStore("D", (0, 0), 4096, 1, "a", 0), ops.BulkCommitGroup(),
            ops.SharedStore(shared(1), "a", 0),
        )
    ),
    "refilled_by_multicast": lambda: failing(role(multicast_into_read_slot), num_ctas=2, cluster_size=2),
    "too_many_arrivals": lambda: failing(of_ops(ops.MbarrierArrive("full", 2, count=2))),
    "too_many_threads": lambda: failing(of_ops(ops.BarSync("math"))),
    "exit_with_bytes": lambda: failing(of_ops(expect(0, 4096))),
}
"""A stage is overwritten while it is read, or read before it is full; barriers are told of more than they wait for."""

REFUSALS: dict[str, Callable[[], Launch]] = {
    "undeclared_buffer": lambda: failing(of_ops(ops.SharedLoad(shared(1), "z", 0))),
    "undeclared_mbarrier": lambda: failing(of_ops(ops.MbarrierArrive("fulll", 0))),
    "stage_beyond": lambda: failing(of_ops(ops.Wgmma(MATH, 1, (("a", 4),)))),
    "undeclared_barrier": lambda: failing(of_ops(ops.BarSync("maths"))),
    "rank_beyond": lambda: failing(of_ops(ops.MbarrierArrive("full", 0, cta_rank=3))),
    "not_arrived": lambda: failing(of_ops(ops.ClusterWait())),
    "no_range": lambda: failing(of_ops(ops.RangeEnd())),
    "wrong_direction": lambda: failing(of_ops(ops.SetMaxNReg(40, "inc")), registers_per_thread=168),
    "odd_registers": lambda: failing(of_ops(ops.SetMaxNReg(41, "dec")), registers_per_thread=168),
    "two_lengths": lambda: failing(of_ops(ops.FetchCode("body", 512), ops.FetchCode("body", 1024))),
    "negative_groups": lambda: failing(of_ops(ops.CpAsyncWaitGroup(-1))),
    "no_op": lambda: failing(of_ops("wgmma")),
    "no_token": lambda: failing(of_ops(ops.Use("soon"))),  # type: ignore[arg-type]
    "age_without_turns": lambda: failing(of_ops(ops.Fma(10, by_age=True))),
}
"""What a program may not ask for, whenever it does."""
