"""What goes wrong is said with who, where, what was found, and what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from gpusim import Buffer, GpusimError, Mbarrier, NamedBarrier, load_gpu, simulate
from gpusim.errors import DeadlockError, HazardError, KernelError, LaunchError
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.workload import ops
from gpusim.workload.atoms import MMA_ATOMS, wgmma
from gpusim.workload.dtypes import BF16, FP8
from gpusim.workload.launch import RoleContext

from .kernels import TOY, changed, contiguous, expect, launch, load, role, run, shared, wait

Ops = Iterator[Any]
A100 = load_gpu("a100_sxm_80gb")
MATH = wgmma(64, BF16)


def refusal(kind: type[GpusimError], *roles: Any, **fields: Any) -> str:
    """The one sentence with which they are refused."""
    with pytest.raises(kind) as caught:
        run(*roles, **fields)
    assert type(caught.value) is kind
    message = str(caught.value)
    assert "\n" not in message
    assert message[0] != ":"
    return message


def of_ops(*some: Any, name: str = "worker", num_warps: int = 1) -> Any:
    """A role that yields these ops."""

    def program(cta: RoleContext) -> Ops:
        for op in some:  # noqa: UP028  # the engine sends tokens, and a tuple takes none
            yield op

    return role(program, name, num_warps)


# ---------------------------------------------------------------------- deadlocks


def test_a_wait_without_arrivals_is_a_deadlock_that_says_who_for_what_and_what_is_missing() -> None:
    message = refusal(
        DeadlockError,
        of_ops(ops.Fma(50), wait(1), name="consumer"),
        mbarriers=(Mbarrier(name="full", num_arrivals=3, num_stages=2),),
    )
    assert "role 'consumer' of CTA 0 waits for mbarrier full[1] parity 0" in message
    assert "3 of 3 arrivals missing" in message
    assert "since cycle 50" in message


def test_a_deadlock_counts_the_arrivals_that_came() -> None:
    message = refusal(
        DeadlockError,
        of_ops(ops.MbarrierArrive("full", 0), wait(0)),
        mbarriers=(Mbarrier(name="full", num_arrivals=3),),
    )
    assert "2 of 3 arrivals missing" in message


@pytest.mark.parametrize(("announced", "delivered"), [(4096, 2048), (2048, 4096)])
def test_bytes_that_do_not_add_up_are_named(announced: int, delivered: int) -> None:
    message = refusal(DeadlockError, of_ops(expect(0, announced), load(0, delivered), wait(0)))
    assert f"{announced} bytes announced, {delivered} delivered" in message
    assert "arrivals missing" not in message


def test_a_deadlock_of_many_names_some_and_counts_the_rest() -> None:
    message = refusal(DeadlockError, of_ops(wait(0)), num_ctas=4 * 3, buffers=())
    assert message.count("waits for") == 1  # the roles of one CTA are named
    assert re.search(r"and \d+ more$", message)


def test_roles_that_have_ended_are_not_blamed() -> None:
    message = refusal(DeadlockError, of_ops(ops.Fma(1), name="done"), of_ops(wait(0), name="stuck"))
    assert "'stuck'" in message
    assert "'done'" not in message


@pytest.mark.parametrize(
    ("waits", "said"),
    [
        (ops.Syncthreads(), "'__syncthreads'"),
        (ops.BarSync("math"), "'math'"),
        (ops.SetMaxNReg(232, "inc"), "8192 registers of the CTA's pool (setmaxnreg.inc 232)"),
    ],
)
def test_every_kind_of_wait_can_be_stuck_and_is_named(waits: ops.Op, said: str) -> None:
    message = refusal(
        DeadlockError,
        of_ops(waits, num_warps=4),
        of_ops(ops.Fma(1), name="other"),
        registers_per_thread=168,
        named_barriers=(NamedBarrier(name="math", num_threads=160),),
    )
    assert said in message


def test_a_cta_that_skips_the_cluster_barrier_blocks_its_cluster() -> None:
    def program(cta: RoleContext) -> Ops:
        if cta.cta_rank == 0:
            yield ops.ClusterArrive()
            yield ops.ClusterWait()

    assert "the cluster barrier" in refusal(DeadlockError, program, num_ctas=2, cluster_size=2)


def test_the_wrong_parity_blocks() -> None:
    assert "parity 1" in refusal(DeadlockError, of_ops(ops.MbarrierArrive("full", 0), wait(0), wait(0, 1)))


# ---------------------------------------------------------------------- hazards


FILL = (expect(0), load(0))
MULTIPLY = ops.Wgmma(MATH, 8, (("a", 0),))


@pytest.mark.parametrize(
    "reads",
    [
        MULTIPLY,
        ops.SharedLoad(shared(1), "a", 0),
        ops.Ldmatrix(shared(1), "a", 0),
        ops.TmaStore("D", (0, 0), 64, 1, "a", 0),
    ],
    ids=["wgmma", "ld.shared", "ldmatrix", "TMA store"],
)
class TestWhoeverReads:
    def test_before_the_data_are_there_is_refused(self, reads: ops.Op) -> None:
        message = refusal(HazardError, of_ops(*FILL, reads, name="math", num_warps=4))
        assert (
            "role 'math' of CTA 0: a[0] is read at cycle 0 before it is full; wait for its barrier" in message
        )

    def test_what_was_never_written_is_refused(self, reads: ops.Op) -> None:
        message = refusal(HazardError, of_ops(reads, name="math", num_warps=4))
        assert "role 'math' of CTA 0: a[0] is read" in message
        assert "was never written" in message

    def test_after_the_wait_may_read(self, reads: ops.Op) -> None:
        run(of_ops(*FILL, wait(0), reads, num_warps=4))


def test_a_stage_that_is_refilled_while_wgmma_reads_it_is_refused() -> None:
    again = (expect(0), load(0, step=1))
    message = refusal(
        HazardError, of_ops(*FILL, wait(0), MULTIPLY, ops.WgmmaCommitGroup(), *again, num_warps=4)
    )
    assert re.search(
        r"a\[0\] is refilled at cycle \d+ while it is read until \d+; wait for its readers", message
    )
    ends = (ops.WgmmaWaitGroup(0), *again, ops.MbarrierWait("full", 0, 1))
    run(of_ops(*FILL, wait(0), MULTIPLY, ops.WgmmaCommitGroup(), *ends, num_warps=4))


@pytest.mark.parametrize(
    "refill",
    [load(0, step=1), ops.CpAsync("A", (0, 1), contiguous(128), "a", 0), ops.SharedStore(shared(1), "a", 0)],
)
def test_every_way_to_refill_is_watched(refill: ops.Op) -> None:
    message = refusal(HazardError, of_ops(*FILL, wait(0), MULTIPLY, refill, num_warps=4))
    assert "role 'worker' of CTA 0: a[0] is refilled" in message


def test_a_stage_that_a_tma_store_still_reads_may_not_be_written() -> None:
    store = (
        ops.SharedStore(shared(1), "a", 0),
        ops.TmaStore("D", (0, 0), 4096, 1, "a", 0),
        ops.BulkCommitGroup(),
    )
    message = refusal(HazardError, of_ops(*store, ops.SharedStore(shared(1), "a", 0)))
    assert "a[0] is refilled" in message
    run(of_ops(*store, ops.BulkWaitGroup(0), ops.SharedStore(shared(1), "a", 0)))


def test_a_stage_that_the_second_of_two_tma_stores_still_reads_may_not_be_written() -> None:
    def store(num_bytes: int) -> ops.TmaStore:
        return ops.TmaStore("D", (0, num_bytes), num_bytes, 1, "a", 0)

    first = (
        ops.SharedStore(shared(1), "a", 0),
        store(64),
        ops.BulkCommitGroup(),
        store(40960),
        ops.BulkCommitGroup(),
    )
    refusal(HazardError, of_ops(*first, ops.BulkWaitGroup(1), ops.SharedStore(shared(1), "a", 0)))
    run(of_ops(*first, ops.BulkWaitGroup(0), ops.SharedStore(shared(1), "a", 0)))


def test_a_multicast_into_a_slot_that_another_rank_still_reads_is_refused() -> None:
    def program(cta: RoleContext) -> Ops:
        yield expect(0)
        yield ops.ClusterArrive()
        yield ops.ClusterWait()
        if cta.cta_rank == 0:
            yield load(0, multicast=(0, 1))
        yield wait(0)
        if cta.cta_rank == 1:
            yield MULTIPLY
            yield ops.WgmmaCommitGroup()
            yield ops.WgmmaWaitGroup(0)
        else:
            yield ops.Fma(100)
            yield load(0, step=1, multicast=(0, 1))

    assert "a[0] is refilled" in refusal(HazardError, role(program, num_warps=4), num_ctas=2, cluster_size=2)


def test_too_many_arrivals_are_refused() -> None:
    message = refusal(HazardError, of_ops(ops.MbarrierArrive("full", 2, count=2)))
    assert "mbarrier full[2] got 2 arrivals in a phase that expects 1" in message


def test_arrivals_that_nobody_waits_for_are_refused() -> None:
    mbarriers = (Mbarrier(name="full", num_arrivals=2),)
    arrive = ops.MbarrierArrive("full", 0)
    message = refusal(HazardError, of_ops(ops.Fma(1), *[arrive] * 50), mbarriers=mbarriers)
    assert message.startswith("test: role 'worker' of CTA 0, op 2, arrives at mbarrier full[0], which gets 50 arrivals, 2 a")
    assert run(of_ops(*[arrive] * 50), of_ops(wait(0), name="waits"), mbarriers=mbarriers).num_events
    assert run(of_ops(*[arrive] * 6), mbarriers=mbarriers).num_events


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"num_flops": float("nan")}, "num_flops is nan, wants a number of 0 or more"),
        ({"registers_per_thread": 0}, "registers_per_thread is 0, wants an integer from 1"),
        ({"num_ctas": 1.5}, "num_ctas is 1.5, wants an integer from"),
        ({"buffers": (Buffer(name="a", stage_bytes="4"),)}, "stage_bytes of buffer 'a' is '4', wants an integer"),  # type: ignore[arg-type]
        ({"mbarriers": (Mbarrier(name="full", num_arrivals=1, num_stages=0),)}, "num_stages of mbarrier 'full' is 0"),
        ({"named_barriers": (NamedBarrier(name="x", num_threads=0),)}, "num_threads of barrier 'x' is 0"),
    ],
)
def test_numbers_of_a_launch_that_no_kernel_has_are_refused(fields: dict[str, Any], said: str) -> None:
    assert said in refusal(LaunchError, of_ops(ops.Fma(1)), **fields)


def test_roles_that_no_kernel_has_are_refused() -> None:
    assert "num_warps of role 'worker' is 0" in refusal(LaunchError, of_ops(ops.Fma(1), num_warps=0))
    assert "has the program 3, wants a function" in refusal(LaunchError, role(3))  # type: ignore[arg-type]
    many = [of_ops(ops.Fma(1), name=f"role{idx}") for idx in range(100_000)]
    assert "100000 roles of one warp or more, a CTA has at most 32 warps" in refusal(LaunchError, *many)


def test_ctas_that_are_all_alike_are_traced_once() -> None:
    asked: list[int] = []

    def program(cta: RoleContext) -> Ops:
        asked.append(cta.cta_rank)
        yield ops.Fma(1)

    assert run(role(program), num_ctas=8, cluster_size=2, gpu=load_gpu("h200_sxm")).cycles > 0
    assert asked == [0, 1]


def test_too_many_threads_at_a_barrier_are_refused() -> None:
    message = refusal(
        HazardError,
        of_ops(ops.BarSync("math"), num_warps=4),
        named_barriers=(NamedBarrier(name="math", num_threads=64),),
    )
    assert re.search("barrier 'math': 128 threads arrived by cycle [0-9]+, it was declared for 64$", message)


# ---------------------------------------------------------------------- what was not declared


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (ops.TmaLoad("A", (0, 0), 64, 64, 1, "aa", 0, "full"), "buffer 'aa' is not declared"),
        (ops.TmaLoad("A", (0, 0), 64, 64, 1, "a", 9, "full"), "'full' has 4 stages, stage 9 was used"),
        (ops.TmaLoad("A", (0, 0), 64, 64, 1, "a", 0, "ful"), "did you mean 'full'?"),
        (ops.TmaLoad("A", (0, 0), 64, 64, 1, "a", 0, "full", (0, 5)), "names cluster rank 5"),
        (ops.TmaStore("D", (0, 0), 64, 1, "b", 0), "buffer 'b' is not declared"),
        (ops.CpAsync("A", (0, 0), contiguous(128), "a", 4), "buffer 'a' has 4 stages, stage 4 was used"),
        (ops.CpAsyncMbarrierArrive("done", 0), "mbarrier 'done' is not declared"),
        (ops.MbarrierInit("fill"), "mbarrier 'fill' is not declared in the launch; did you mean 'full'?"),
        (wait(4), "mbarrier 'full' has 4 stages, stage 4 was used"),
        (wait(0, 0, "empt"), "did you mean 'empty'?"),
        (expect(7), "mbarrier 'full' has 4 stages, stage 7 was used"),
        (ops.MbarrierArrive("fulll", 0), "did you mean 'full'?"),
        (ops.MbarrierArrive("full", 0, cta_rank=3), "names cluster rank 3, the cluster has ranks 0 to 0"),
        (ops.SharedLoad(shared(1), "z", 0), "buffer 'z' is not declared in the launch; known: a"),
        (ops.SharedStore(shared(1), "a", 4), "buffer 'a' has 4 stages, stage 4 was used"),
        (ops.SharedLoad(shared(1), num_parts=0), "reads 0 parts, wants 1 or more"),
        (ops.Wgmma(MATH, 1, num_between=-1.0), "-1.0 instructions between wgmma, wants 0 or more"),
        (ops.Ldmatrix(shared(1), "a", 4), "buffer 'a' has 4 stages, stage 4 was used"),
        (ops.Wgmma(MATH, 1, (("b", 0),)), "buffer 'b' is not declared"),
        (ops.Wgmma(MATH, 1, (("a", 4),)), "buffer 'a' has 4 stages, stage 4 was used"),
        (ops.BarSync("maths"), "uses barrier 'maths', the launch declares math"),
        (ops.BarArrive("maths"), "uses barrier 'maths', the launch declares math"),
        (ops.DsmemLoad(1, 64), "names cluster rank 1, the cluster has ranks 0 to 0"),
        (ops.DsmemStore(1, 64), "names cluster rank 1, the cluster has ranks 0 to 0"),
        (ops.StAsync(0, 64, "fool", 0), "known: empty, full"),
        (ops.ClusterWait(), "has not arrived; arrive first"),
        (ops.RangeEnd(), "ends a range that it never started"),
        ("wgmma", "yields 'wgmma', wants an op of the vocabulary"),
        (None, "yields None, wants an op of the vocabulary"),
    ],
    ids=str,
)  # fmt: skip
def test_what_was_not_declared_is_refused_by_name(op: Any, said: str) -> None:
    message = refusal(
        LaunchError, of_ops(op, num_warps=4), named_barriers=(NamedBarrier(name="math", num_threads=64),)
    )
    assert said in message


# ---------------------------------------------------------------------- what a GPU lacks


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (load(0), "has no cp.async.bulk.tensor (TMA), which needs the feature tma"),
        (ops.TmaStore("D", (0, 0), 64, 1, "a", 0), "TMA"),
        (ops.Wgmma(MATH, 1), "has no wgmma, which needs the feature wgmma"),
        (ops.ClusterArrive(), "has no cluster barrier, which needs the feature cluster"),
        (ops.DsmemLoad(0, 64), "distributed shared memory, which needs the feature cluster"),
        (ops.DsmemStore(0, 64), "distributed shared memory, which needs the feature cluster"),
        (ops.StAsync(0, 64, "full", 0), "distributed shared memory, which needs the feature cluster"),
        (ops.SetMaxNReg(24, "dec"), "has no setmaxnreg, which needs the feature setmaxnreg"),
        (ops.MmaSync(MMA_ATOMS["mma_sync_m16n8k32_fp8_fp32"], 1), "no mma.sync for fp8, it has"),
    ],
    ids=str,
)
def test_an_a100_refuses_what_hopper_brought(op: ops.Op, said: str) -> None:
    message = refusal(LaunchError, of_ops(op, num_warps=4), gpu=A100)
    assert said in message
    assert "a100_sxm_80gb" in message


def test_an_a100_refuses_declared_features_at_the_door() -> None:
    for feature in ("tma", "wgmma", "cluster", "setmaxnreg", "stmatrix", "fp8"):
        message = refusal(LaunchError, of_ops(ops.Fma(1)), gpu=A100, features=frozenset({feature}))
        assert message == f"test: a100_sxm_80gb has no {feature}, it has cp_async, mbarrier, mma_sync"


def test_an_a100_has_no_clusters() -> None:
    message = refusal(LaunchError, of_ops(ops.Fma(1)), gpu=A100, num_ctas=2, cluster_size=2)
    assert "a cluster of 2 CTAs, a100_sxm_80gb has no clusters" in message


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"l2": "hot"}, "l2 'hot' is unknown, wants one of cold, warm, stored, flushed"),
        ({"data": "ones"}, "data 'ones' is unknown, wants one of random, zeros"),
        ({"engine": "fast"}, "engine 'fast' is unknown, wants one of native, reference"),
        ({"recorded_sms": [4]}, "recorded_sms has 4, wants numbers from 0 to 3, or 'first'"),
        ({"recorded_sms": "last"}, "recorded_sms has 'l', wants"),
        ({"gpu": "toy"}, "got a str, wants a GpuSpec, for example from load_gpu('h200_sxm')"),
        ({"launch": {"m": 1}}, "got a dict, wants a Launch, for example from params.launch(gpu)"),
    ],
    ids=str,
)
def test_an_argument_that_is_none_is_refused_and_not_taken_for_another(arguments: dict[str, Any], said: str) -> None:
    told: dict[str, Any] = {"launch": launch(of_ops(ops.Fma(1))), "gpu": TOY, **arguments}
    with pytest.raises(LaunchError, match=re.escape(said)):
        simulate(told.pop("launch"), told.pop("gpu"), **told)


def test_a_kernel_model_that_is_none_names_the_nearest() -> None:
    with pytest.raises(KernelError, match="'softmx' is no kernel; did you mean 'softmax'"):
        KERNEL_MODELS["softmx"]
    assert "softmx" not in KERNEL_MODELS and KERNEL_MODELS.get("softmx") is None


def test_a_gpu_without_mbarriers_refuses_them() -> None:
    from dataclasses import replace

    gpu = replace(TOY, mbarrier=None)
    for op in (ops.MbarrierInit("full"), ops.MbarrierArrive("full", 0), expect(0), wait(0)):
        assert "has no mbarrier, which needs the feature mbarrier" in refusal(LaunchError, of_ops(op), gpu=gpu)


def test_a_rate_that_a_gpu_does_not_state_is_refused_with_those_that_it_does() -> None:
    gpu = changed(tensor_core={"wgmma_flops_per_cycle": {"16bit": 1024.0, "tf32": 512.0}})
    message = refusal(LaunchError, of_ops(ops.Wgmma(wgmma(64, FP8), 1), num_warps=4), gpu=gpu)
    assert "toy states no wgmma rate for fp8, it has 16bit, tf32" in message


# ---------------------------------------------------------------------- what does not fit


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"buffers": (Buffer(name="a", stage_bytes=65536, num_stages=4),)},
            "262208 bytes of shared memory, a CTA has at most 232448",
        ),
        ({"registers_per_thread": 256}, "256 registers a thread, a thread has at most 255"),
        ({"num_ctas": 8, "cluster_size": 8}, "a cluster of 8 CTAs, toy takes at most 4"),
        ({"num_ctas": 3, "cluster_size": 2}, "3 CTAs do not make full clusters of 2"),
        ({"num_ctas": 0}, "the grid has 0 CTAs, wants 1 or more"),
        ({"buffers": (Buffer(name="a", stage_bytes=1),) * 2}, "two buffers are named 'a'"),
        (
            {"named_barriers": tuple(NamedBarrier(name=str(idx), num_threads=32) for idx in range(16))},
            "16 named barriers, a CTA has 15 besides __syncthreads",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_does_not_fit_is_refused_at_the_door(fields: dict[str, Any], said: str) -> None:
    assert said in refusal(LaunchError, of_ops(ops.Fma(1)), **fields)


def test_too_many_threads_are_refused() -> None:
    assert "a CTA of 1056 threads, a CTA has at most 1024" in refusal(
        LaunchError, of_ops(ops.Fma(1), num_warps=33)
    )


def test_a_launch_without_roles_is_refused() -> None:
    with pytest.raises(LaunchError, match="needs at least one role"):
        launch()


def test_an_unknown_ideal_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        LaunchError, match=r"'l3' is nothing that can be idealized, wants one of bank_conflicts, .*l2"
    ):
        simulate(launch(of_ops(ops.Fma(1))), TOY, ideals=frozenset({"l3"}))
