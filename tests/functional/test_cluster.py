"""Ops that reach another CTA's shared memory, and atomics in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpusim import Buffer, DataError, Launch, Mbarrier, load_gpu, run_functional
from gpusim.errors import LaunchError
from gpusim.functional.instructions import HANDLERS, WITHOUT_EFFECT
from gpusim.workload import ops
from gpusim.workload.data_access import GlobalElements, SharedElements
from gpusim.workload.dtypes import FP32, INT32
from gpusim.workload.launch import WarpRole
from gpusim.workload.tensor import MemRef

from .hand_written import ANY, by_cluster

GPU = load_gpu("h200_sxm")
THREAD = np.arange(32)[:, None]
CLUSTER = {"common": np.arange(1024.0).reshape(32, 32), "own": -2 * np.arange(1024.0).reshape(32, 32)}
OTHERS = np.tile(CLUSTER["common"][:16], (2, 1)) + np.roll(CLUSTER["own"], 16, axis=0)


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_a_cta_reads_the_shared_memory_of_another_one(seed: int | None) -> None:
    assert np.array_equal(run_functional(by_cluster(), CLUSTER, seed=seed)["out"], OTHERS)
    assert by_cluster().check(GPU) == []


def test_a_wrong_read_of_another_cta_is_named() -> None:
    named = r"^out\[0, 0\] is 0, wants -1024, stored by GlobalStore of out, op 15 of role 'all' of CTA 0, thread 0, value 0"
    with pytest.raises(DataError, match=named):
        run_functional(by_cluster("wrong buffer"), CLUSTER, expected={"out": OTHERS})
    with pytest.raises(DataError, match=r"^out\["):
        run_functional(by_cluster("no cluster barrier"), CLUSTER, expected={"out": OTHERS}, seed=1)


def elements(registers: str) -> SharedElements:
    """A number of each thread."""
    return SharedElements(offsets=4 * THREAD, dtype=FP32, registers=registers)


def exchange(op_of: Callable[[int], ops.Op], *, by_bytes: bool) -> Launch:
    """A cluster of two CTAs: each passes a number of each thread to the other with an op, and stores what it gets."""

    def program(cta: Any) -> Iterator[Any]:
        own = GlobalElements(tensor="in", index=32 * cta.cta_rank + THREAD, registers="x")
        yield ops.Use((yield ops.GlobalLoad("in", (0, 0), ANY, data=own)))
        if by_bytes:
            yield ops.MbarrierArriveExpectTx("full", 0, 128)
        yield ops.ClusterArrive()
        yield ops.ClusterWait()
        yield replace(op_of(1 - cta.cta_rank), data=replace(elements("x"), buffer="b"))
        if by_bytes:
            yield ops.MbarrierWait("full", 0, 0)
        yield ops.ClusterArrive()
        yield ops.ClusterWait()
        yield ops.Use((yield ops.SharedLoad(ANY, "b", data=elements("y"))))
        out = GlobalElements(tensor="out", index=32 * cta.cta_rank + THREAD, registers="y")
        yield ops.GlobalStore("out", (0, 0), ANY, data=out)

    return Launch(
        kernel="exchange", num_ctas=2, num_tiles=2, cluster_size=2, buffers=(Buffer(name="b", stage_bytes=128),),
        roles=(WarpRole(name="all", num_warps=1, program=program),), mbarriers=(Mbarrier(name="full", num_arrivals=1),),
        tensors=tuple(MemRef.row_major(name, (64,), FP32) for name in ("in", "out")),
    )


@pytest.mark.parametrize(
    ("op_of", "by_bytes"),
    [(lambda rank: ops.DsmemStore(rank, 128), False), (lambda rank: ops.StAsync(rank, 128, "full", 0), True)],
)
def test_a_cta_writes_the_shared_memory_of_another_one(op_of: Callable[[int], ops.Op], by_bytes: bool) -> None:
    for seed in (None, 0):
        found = run_functional(exchange(op_of, by_bytes=by_bytes), {"in": np.arange(64)}, seed=seed)["out"]
        assert found.tolist() == [*range(32, 64), *range(32)]


def test_st_async_with_other_bytes_and_a_cta_beyond_the_cluster_are_refused() -> None:
    with pytest.raises(DataError, match=r"yields StAsync as its op \d+, with num_bytes=64; its elements have 128 bytes"):
        run_functional(exchange(lambda rank: ops.StAsync(rank, 64, "full", 0), by_bytes=True), {"in": np.arange(64)})
    with pytest.raises(LaunchError, match="names CTA 3 of its cluster, which has 2 CTAs"):
        run_functional(exchange(lambda rank: ops.DsmemStore(3, 128), by_bytes=False), {"in": np.arange(64)})


def test_atomics_in_shared_memory_add_one_after_the_other() -> None:
    """A histogram: 32 threads count the remainders of 32 numbers by 3."""

    def program(cta: Any) -> Iterator[Any]:
        one = GlobalElements(tensor="ones", index=THREAD, registers="one")
        yield ops.Use((yield ops.GlobalLoad("ones", (0, 0), ANY, data=one)))
        counts = SharedElements(offsets=4 * (THREAD % 3), dtype=INT32, registers="one")
        yield ops.Use((yield ops.SharedAtomic(ANY, "b", data=counts)))
        yield ops.Syncthreads()
        places = np.where(THREAD < 3, 4 * THREAD, -1)
        read = SharedElements(offsets=places, dtype=INT32, registers="y")
        yield ops.Use((yield ops.SharedLoad(ANY, "b", data=read)))
        out = GlobalElements(tensor="out", index=np.where(THREAD < 3, THREAD, -1), registers="y")
        yield ops.GlobalStore("out", (0, 0), ANY, data=out)

    launch = Launch(
        kernel="histogram", num_ctas=1, num_tiles=1, buffers=(Buffer(name="b", stage_bytes=128),),
        roles=(WarpRole(name="all", num_warps=1, program=program),),
        tensors=tuple(MemRef.row_major(name, (size,), INT32) for name, size in (("ones", 32), ("out", 3))),
    )
    assert run_functional(launch, {"ones": np.ones(32)})["out"].tolist() == [11, 11, 10]


def test_every_op_is_carried_out_or_has_no_effect_on_data() -> None:
    kinds = {kind for kind in vars(ops).values() if isinstance(kind, type) and issubclass(kind, ops.Op)}
    assert kinds - {ops.Op} == set(HANDLERS) | WITHOUT_EFFECT
