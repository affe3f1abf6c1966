"""Bugs of the usual checklist of a GEMM by TMA, cp.async and wgmma: each is found, whatever its timing.

The checklist asks for swizzles that match, ``warpgroup_wait`` without a race, mbarrier phases that flip, sizes of shared
memory, bytes of ``expect_tx``, the place of ``warpgroup_fence``, and cluster barriers. Each test changes one thing.
Coordinates of TMA, fragments of accumulators, layouts and wrong products are no matter of order: ops name no elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpusim import Buffer, Launch, Mbarrier, NamedBarrier, WarpRole, load_gpu
from gpusim.errors import LaunchError
from gpusim.workload import ops
from gpusim.workload.atoms import wgmma
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext

from .pipelines import ACCESS, BYTES, HALF, MATH, yielding

H200 = load_gpu("h200_sxm")
N, STAGES = 9, 3
FULL, EMPTY = "full", "empty"
MULTIPLY_ALL = ops.Wgmma(MATH, 4)


def kinds(launch: Launch) -> set[str]:
    """Kinds of the findings of a launch."""
    return {finding.kind for finding in launch.check(H200)}


def messages(launch: Launch) -> str:
    """Sentences of the findings of a launch."""
    return "\n".join(map(str, launch.check(H200)))


# ---------------------------------------------------------------------- a right ring, with a switch for each bug


def load(stage: int, k: int, *, num_bytes: int = BYTES, **fields: Any) -> list[ops.Op]:
    """Copies of A and B into a stage."""
    return [ops.TmaLoad(name.upper(), (0, k), num_bytes, num_bytes, 8, name, stage, FULL, **fields) for name in "ab"]


def ring(
    bug: str = "", *, n: int = N, buffers: tuple[Buffer, ...] = (), math: ops.Wgmma = MULTIPLY_ALL, **load_fields: Any
) -> Launch:
    """A producer warp and a consumer warpgroup. ``bug`` names what is wrong."""
    depth = 1

    def producer() -> Iterator[ops.Op]:
        yield ops.MbarrierInit(FULL)
        yield ops.MbarrierInit(EMPTY)
        if bug != "no barrier behind mbarrier.init":
            yield ops.Syncthreads()
        for k in range(n):
            stage, parity = k % STAGES, k // STAGES & 1
            if bug == "phase never flips":
                parity = 0
            if bug == "phase flips each step":
                parity = k & 1
            if bug != "no wait for empty":
                yield ops.MbarrierWait(EMPTY, stage, parity if bug == "producer's first parity" else parity ^ 1)
            expected = {"expect_tx of A alone": BYTES, "expect_tx twice": 4 * BYTES}.get(bug, 2 * BYTES)
            if bug == "first copy without expect_tx" and not k:
                yield ops.MbarrierArrive(FULL, stage)
            elif bug != "no arrival with expect_tx":
                yield ops.MbarrierArriveExpectTx(FULL, stage, expected)
            is_off = bug == "copy into the next stage" and k == 4
            yield from load((stage + is_off) % STAGES, k, **load_fields)

    def consumer() -> Iterator[ops.Op]:
        if bug != "no barrier behind mbarrier.init":
            yield ops.Syncthreads()
        if bug != "no wgmma.fence":
            yield ops.WgmmaFence()
        for k in range(n - (bug == "last stage unread")):
            stage, parity = k % STAGES, k // STAGES & 1
            if bug == "phase never flips":
                parity = 0
            if bug != "no wait for full":
                yield ops.MbarrierWait(FULL, stage, parity)
            yield replace(math, reads=(("a", stage), ("b", stage)))
            if bug != "no wgmma.commit_group":
                yield ops.WgmmaCommitGroup()
            yield ops.WgmmaWaitGroup(2 if bug == "wait<2> for wait<1>" else depth)
            if bug == "released too early":
                yield ops.MbarrierArrive(EMPTY, stage)
            elif k >= depth and bug != "no arrival on empty":
                yield ops.MbarrierArrive(EMPTY, (k - depth) % STAGES, 2 if bug == "arrives twice" else 1)
        if bug == "accumulators before wait<0>":
            yield ops.GlobalStore("D", (0, 0), ACCESS)
        if bug != "no last wait<0>":
            yield ops.WgmmaWaitGroup(0)
        yield ops.GlobalStore("D", (0, 0), ACCESS)

    return Launch(
        kernel="ring", num_ctas=1, num_tiles=1,
        roles=(
            WarpRole(name="producer", num_warps=1, program=lambda cta: producer()),
            WarpRole(name="consumer", num_warps=4, program=lambda cta: consumer()),
        ),
        buffers=buffers or tuple(Buffer(name=name, stage_bytes=BYTES, num_stages=STAGES) for name in "ab"),
        mbarriers=tuple(Mbarrier(name=name, num_arrivals=1, num_stages=STAGES) for name in (FULL, EMPTY)),
    )  # fmt: skip


@pytest.mark.parametrize("n", [1, 2, N, 200])
def test_the_right_ring_is_clean(n: int) -> None:
    assert ring(n=n).check(H200) == []


@pytest.mark.parametrize(
    ("bug", "kind", "said"),
    [
        # mbarrier phase flips
        ("phase never flips", "order", "may pass mbarrier empty[0] early, by an older phase of parity 1"),
        ("phase flips each step", "deadlock", "waits for empty[1]"),
        ("producer's first parity", "deadlock", "waits for empty[0]"),
        ("no wait for empty", "order", "arrives for phase 1 of mbarrier full[0], and phase 0 may not be complete"),
        ("no wait for empty", "race", "may still write it"),
        ("no wait for full", "race", "a wait for this phase of mbarrier full[0]"),
        ("no arrival on empty", "deadlock", "waits for empty[0]"),
        ("arrives twice", "barrier", "arrives 2 times on mbarrier empty[0], which misses 1 of 1 arrivals"),
        ("no barrier behind mbarrier.init", "barrier", "before mbarrier.init may be done"),
        # expect_tx
        ("expect_tx of A alone", "bytes", "brings 4096 bytes to phase 1 of mbarrier full[0], and phase 0, for which"),
        ("expect_tx of A alone", "bytes", "expect_tx announced 4096, may not be complete"),
        ("expect_tx twice", "bytes", "16384 bytes announced, 8192 delivered"),
        ("first copy without expect_tx", "bytes", "brings 4096 bytes to phase 2 of mbarrier full[0]"),
        ("no arrival with expect_tx", "bytes", "0 bytes announced, 8192 delivered"),
        # warpgroup_wait, warpgroup_fence
        ("wait<2> for wait<1>", "race", "may still read it"),
        ("released too early", "race", "may still read it"),
        ("no wgmma.commit_group", "race", "may still read it"),
        ("no last wait<0>", "accumulators", "missing: wgmma.wait_group 0"),
        ("accumulators before wait<0>", "accumulators", "op 46 (st.global) while wgmma in flight writes accumulators"),
        ("no wgmma.fence", "wgmma_fence", "missing: wgmma.fence"),
        # stages
        ("last stage unread", "unread", "nothing reads what op"),
        ("copy into the next stage", "race", "may still"),
    ],
)  # fmt: skip
def test_a_bug_of_the_ring_is_named(bug: str, kind: str, said: str) -> None:
    assert kind in kinds(ring(bug))
    assert said in messages(ring(bug))


def test_a_loop_of_the_whole_kernel_is_found_like_a_short_one() -> None:
    assert "race" in kinds(ring("released too early", n=5000))


def test_stages_that_are_too_few_or_too_small_are_refused() -> None:
    few = tuple(Buffer(name=name, stage_bytes=BYTES, num_stages=STAGES - 1) for name in "ab")
    with pytest.raises(LaunchError, match="has 2 stages, stage 2 was used"):
        ring(buffers=few).check(H200)
    small = tuple(Buffer(name=name, stage_bytes=BYTES // 2, num_stages=STAGES) for name in "ab")
    with pytest.raises(LaunchError, match="whose stages hold 2048"):
        ring(buffers=small).check(H200)


def test_swizzles_of_tma_and_wgmma_that_differ_are_named() -> None:
    assert ring(swizzle="128B", math=ops.Wgmma(MATH, 4, swizzle="128B")).check(H200) == []
    wrong = ring(swizzle="128B", math=ops.Wgmma(MATH, 4, swizzle="64B"))
    assert "role 'producer' states swizzle 128B for buffer 'a', role 'consumer' 64B" in messages(wrong)


def test_stages_that_hold_no_operand_of_wgmma_are_named() -> None:
    small = tuple(Buffer(name=name, stage_bytes=1024, num_stages=STAGES) for name in "ab")
    said = messages(ring(buffers=small, num_bytes=1024))
    assert "reads operands of [2048, 2048] bytes, its stages hold [1024, 1024]" in said


# ---------------------------------------------------------------------- several roles at one stage


def roles(stage_bytes: int, arrivals: dict[str, int], **programs: list[ops.Op]) -> Launch:
    """Roles of one warp that share the buffers ``x`` and ``y``."""
    return Launch(
        kernel="roles", num_ctas=1, num_tiles=1,
        roles=tuple(WarpRole(name=name, num_warps=1, program=yielding([own])) for name, own in programs.items()),
        buffers=tuple(Buffer(name=name, stage_bytes=stage_bytes) for name in "xy"),
        mbarriers=tuple(Mbarrier(name=name, num_arrivals=num) for name, num in arrivals.items()),
    )  # fmt: skip


def wait(barrier: str, parity: int) -> ops.Op:
    """A wait for an mbarrier without a ring."""
    return ops.MbarrierWait(barrier, 0, parity)


@pytest.mark.parametrize("first", ["asks_both", "asks_one"])
def test_each_producer_of_a_stage_waits_for_all_its_readers(first: str) -> None:
    def two(of_second: str) -> Launch:
        writes = {"asks_both": EMPTY, "asks_one": of_second}
        own: dict[str, list[ops.Op]] = {"reader": [], "slow": []}
        for k in range(4):
            read = [wait(FULL, k & 1), ops.SharedLoad(ACCESS, "x"), ops.MbarrierArrive(EMPTY, 0)]
            own["reader"] += read
            own["slow"] += [*read, ops.MbarrierArrive("of_slow", 0)]
            for name in sorted(writes, key=lambda name: name != first):
                own.setdefault(name, [])
                own[name] += [wait(writes[name], k & 1 ^ 1), ops.SharedStore(HALF, "x"), ops.MbarrierArrive(FULL, 0)]
        return roles(BYTES, {FULL: 2, EMPTY: 2, "of_slow": 1}, **own)

    assert two(EMPTY).check(H200) == []
    assert "writes x[0] while role 'reader''s op 1 (ld.shared) may still read it" in messages(two("of_slow"))


@pytest.mark.parametrize(("is_swapped", "kind"), [(False, "bytes"), (True, "order")])
def test_bytes_that_may_complete_the_phase_before_are_named(is_swapped: bool, kind: str) -> None:
    def of(*between: ops.Op) -> Launch:
        expect = ops.MbarrierArriveExpectTx(FULL, 0, BYTES)
        first, second = (ops.TmaLoad("A", (0, k), BYTES, BYTES, 8, name, 0, FULL) for k, name in enumerate("xy"))
        reads = [ops.SharedLoad(ACCESS, name) for name in "xy"]
        copier = [first, *between, second]
        reader = [expect, wait(FULL, 0), reads[0], expect, wait(FULL, 1), reads[1]]
        pair = {"reader": reader, "copier": copier} if is_swapped else {"copier": copier, "reader": reader}
        return roles(BYTES, {FULL: 1}, **pair)

    assert of(wait(FULL, 0)).check(H200) == []
    assert kinds(of()) == {kind}


@pytest.mark.parametrize("copy", ["st.shared", "TMA"])
def test_halves_of_a_stage_may_have_mbarriers_of_their_own(copy: str) -> None:
    def fill(half: int, k: int) -> list[ops.Op]:
        full = f"full{half}"
        if copy == "st.shared":
            return [ops.SharedStore(HALF, "x"), ops.MbarrierArrive(full, 0)]
        size = BYTES // 2
        return [ops.MbarrierArriveExpectTx(full, 0, size), ops.TmaLoad("A", (half, k), size, size, 8, "x", 0, full)]

    def of(num_bytes: int) -> Launch:
        producer, consumer = list[ops.Op](), list[ops.Op]()
        for k in range(9):
            for half in range(2):
                producer += [wait(f"empty{half}", k & 1 ^ 1), *fill(half, k)]
                consumer += [wait(f"full{half}", k & 1), ops.SharedLoad(replace(HALF, num_bytes=num_bytes), "x")]
                consumer += [ops.MbarrierArrive(f"empty{half}", 0)]
        return roles(BYTES, {f"{name}{half}": 1 for name in (FULL, EMPTY) for half in range(2)}, p=producer, c=consumer)

    assert of(BYTES // 2).check(H200) == []
    assert kinds(of(BYTES)) == {"race"}


# ---------------------------------------------------------------------- three stages in one warpgroup


def three_stages(num_columns: int, *, depth: int = 1) -> Launch:
    """One warpgroup that loads two steps ahead, and lets ``depth`` groups of wgmma run on. Right with none."""
    stages, steps, num_bytes = 3, 12, 128 * 64 * 2

    def program(cta: RoleContext) -> Iterator[ops.Op]:
        def fill(k: int) -> Iterator[ops.Op]:
            yield ops.MbarrierArriveExpectTx(FULL, k % stages, 2 * num_bytes)
            for name in "ab":
                yield ops.TmaLoad(name.upper(), (0, k), num_bytes, num_bytes, 128, name, k % stages, FULL)

        for k in range(stages - 1):
            yield from fill(k)
        yield ops.WgmmaFence()
        for k in cta.loop(steps):
            yield ops.MbarrierWait(FULL, k % stages, k // stages & 1)
            if k + stages - 1 < steps:
                yield from fill(k + stages - 1)
            yield ops.Wgmma(wgmma(num_columns, BF16), 8, reads=(("a", k % stages), ("b", k % stages)))
            yield ops.WgmmaCommitGroup()
            yield ops.WgmmaWaitGroup(depth)
        yield ops.WgmmaWaitGroup(0)

    return Launch(
        kernel="three_stages", num_ctas=1, num_tiles=1, registers_per_thread=128, math_class="16bit",
        roles=(WarpRole(name="math", num_warps=4, program=program),),
        buffers=tuple(Buffer(name=name, stage_bytes=num_bytes, num_stages=stages) for name in "ab"),
        mbarriers=(Mbarrier(name=FULL, num_arrivals=1, num_stages=stages),),
    )  # fmt: skip


@pytest.mark.parametrize("num_columns", [64, 128])
def test_a_refill_of_what_the_group_before_reads_is_named(num_columns: int) -> None:
    assert "writes a[0] while its own op 11 (wgmma) may still read it; missing: wgmma.wait_group" in messages(
        three_stages(num_columns)
    )
    assert three_stages(num_columns, depth=0).check(H200) == []


def test_a_wgmma_wait_says_nothing_of_another_warpgroup_of_the_role() -> None:
    def of(num_warps: int, depth: int = 0) -> Launch:
        launch = three_stages(64, depth=depth)
        return replace(launch, roles=(replace(launch.roles[0], num_warps=num_warps),))

    assert of(4).check(H200) == []
    assert "missing: __syncthreads or bar.sync between its warps" in messages(of(8))


# ---------------------------------------------------------------------- cp.async, shared memory, TMA stores


def lone(*some: ops.Op, num_warps: int = 4, ranks: int = 1, named: int = 128, **more: Any) -> Launch:
    """A role that yields these ops, in each CTA of a cluster of ``ranks``."""
    return Launch(
        kernel="lone", num_ctas=ranks, num_tiles=ranks, cluster_size=ranks,
        roles=(WarpRole(name="all", num_warps=num_warps, program=yielding([list(some)] * ranks)),),
        buffers=(Buffer(name="a", stage_bytes=BYTES, num_stages=2), Buffer(name="d", stage_bytes=BYTES)),
        mbarriers=(Mbarrier(name=FULL, num_arrivals=1, num_stages=2),),
        named_barriers=(NamedBarrier(name="all", num_threads=named),), **more,
    )  # fmt: skip


COPY = (ops.CpAsync("A", (0, 0), ACCESS, "a", 0), ops.CpAsyncCommitGroup())
READ, MULTIPLY = ops.Ldmatrix(ACCESS, "a", 0), ops.Wgmma(MATH, 1, (("a", 0),))
MULTIPLIED = (ops.WgmmaFence(), MULTIPLY, ops.WgmmaCommitGroup(), ops.WgmmaWaitGroup(0))
STORE = (ops.TmaStore("D", (0, 0), BYTES, 8, "d", 0), ops.BulkCommitGroup())
WAITED, MEET, FENCE = ops.CpAsyncWaitGroup(0), ops.Syncthreads(), ops.FenceProxyAsync()
WRITE, DONE = ops.Stmatrix(ACCESS, "d", 0), ops.BulkWaitGroup(0)


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ((*COPY, WAITED, MEET, READ), (*COPY, MEET, READ), "missing: cp.async.wait_group"),
        ((*COPY, WAITED, MEET, READ), (*COPY, WAITED, READ), "missing: __syncthreads behind cp.async.wait_group"),
        ((*COPY, WAITED, MEET, READ), (COPY[0], WAITED, MEET, READ), "missing: cp.async.wait_group"),
        ((*COPY, WAITED, FENCE, MEET, *MULTIPLIED), (*COPY, WAITED, MEET, *MULTIPLIED), "missing: fence.proxy.async"),
        ((WRITE, FENCE, MEET, *STORE, DONE), (WRITE, MEET, *STORE, DONE), "missing: fence.proxy.async"),
        ((WRITE, FENCE, MEET, *STORE, DONE), (WRITE, FENCE, *STORE, DONE), "missing: __syncthreads or bar.sync"),
        ((WRITE, FENCE, MEET, *STORE, DONE), (WRITE, FENCE, MEET, *STORE), "missing: cp.async.bulk.wait_group.read 0"),
        ((WRITE, FENCE, MEET, *STORE, DONE, MEET, WRITE, MEET, ops.SharedLoad(ACCESS, "d")),
         (WRITE, FENCE, MEET, *STORE, MEET, WRITE, MEET, ops.SharedLoad(ACCESS, "d")),
         "missing: cp.async.bulk.wait_group.read"),
        ((WRITE, ops.BarSync("all"), ops.SharedLoad(ACCESS, "d")), (WRITE, ops.SharedLoad(ACCESS, "d")),
         "missing: __syncthreads or bar.sync"),
        ((*COPY, WAITED, MEET, READ), (*COPY, WAITED, MEET, replace(READ, stage=1)), "reads a[1], which nothing has writ"),
    ],
)  # fmt: skip
def test_a_missing_op_is_named(right: tuple[ops.Op, ...], wrong: tuple[ops.Op, ...], said: str) -> None:
    assert lone(*right).check(H200) == []
    assert said in messages(lone(*wrong))


def test_many_groups_may_be_in_flight() -> None:
    copies = [op for _ in range(40) for op in (replace(COPY[0], buffer="d"), COPY[1])]
    assert lone(*COPY, *copies, ops.CpAsyncWaitGroup(40), MEET, READ).check(H200) == []
    assert "missing: cp.async.wait_group" in messages(lone(*COPY, *copies, ops.CpAsyncWaitGroup(41), MEET, READ))


def test_one_warp_needs_no_barrier_between_its_own_accesses() -> None:
    assert lone(*COPY, WAITED, READ, num_warps=1).check(H200) == []


def test_threads_that_read_back_what_they_wrote_leave_the_buffer_out() -> None:
    store, load = ops.SharedStore(ACCESS, "d"), ops.SharedLoad(ACCESS, "d")
    assert 'or state buffer="" if each thread reads back only what it wrote' in messages(lone(store, load))
    assert lone(replace(store, buffer=""), replace(load, buffer="")).check(H200) == []


def test_a_barrier_of_too_few_threads_is_named() -> None:
    assert "128 threads arrive at barrier 'all', it was declared for 64" in messages(lone(ops.BarSync("all"), named=64))


# ---------------------------------------------------------------------- parity, arrivals, clusters


def pair(first: list[ops.Op], second: list[ops.Op], *, num_arrivals: int = 1) -> Launch:
    """Two roles of one warp."""
    roles = tuple(
        WarpRole(name=name, num_warps=1, program=yielding([own])) for name, own in (("first", first), ("second", second))
    )
    rings = tuple(Mbarrier(name=name, num_arrivals=num_arrivals) for name in (FULL, EMPTY))
    return Launch(kernel="pair", num_ctas=1, num_tiles=1, roles=roles, mbarriers=rings)


def test_a_waiter_that_a_barrier_can_lap_is_named() -> None:
    arrive, wait = ops.MbarrierArrive(FULL, 0), [ops.MbarrierWait(FULL, 0, parity) for parity in (0, 1)]
    back, heard = ops.MbarrierArrive(EMPTY, 0), ops.MbarrierWait(EMPTY, 0, 0)
    assert pair([arrive, heard, arrive], [wait[0], back, wait[1]]).check(H200) == []
    said = messages(pair([wait[0], wait[1]], [arrive, arrive]))
    assert "role 'first' of CTA 0, op 0 (mbarrier.try_wait) waits for parity 0 of mbarrier full[0], which may flip" in said
    assert "a wait for that before role 'second' of CTA 0, op 1 (mbarrier.arrive)" in said


def test_arrivals_of_two_roles_that_nothing_holds_to_their_phase_are_named() -> None:
    arrive = ops.MbarrierArrive(FULL, 0)
    assert "arrives for phase 1 of mbarrier full[0]" in messages(pair([arrive, arrive], [arrive, arrive], num_arrivals=2))


CLUSTER = (ops.ClusterArrive(), ops.ClusterWait())
SENT = (
    ops.MbarrierArriveExpectTx(FULL, 0, BYTES),
    ops.TmaLoad("A", (0, 0), BYTES // 2, BYTES // 2, 8, "a", 0, FULL, multicast=(0, 1)),
)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ((ops.MbarrierInit(FULL), *SENT, ops.MbarrierWait(FULL, 0, 0), READ, *CLUSTER), "before mbarrier.init may be done"),
        ((ops.MbarrierInit(FULL), *CLUSTER, *SENT, *CLUSTER), "CTA 1 may exit before"),
        (
            (ops.MbarrierInit(FULL), *CLUSTER, *SENT, ops.MbarrierWait(FULL, 0, 0), READ, CLUSTER[0], *CLUSTER),
            "arrives at the cluster barrier again, and earlier arrivals may not be complete",
        ),
    ],
)  # fmt: skip
def test_a_cluster_barrier_that_is_missing_or_unbalanced_is_named(wrong: tuple[ops.Op, ...], said: str) -> None:
    right = (ops.MbarrierInit(FULL), *CLUSTER, *SENT, ops.MbarrierWait(FULL, 0, 0), READ, *CLUSTER)
    assert lone(*right, num_warps=1, ranks=2).check(H200) == []
    assert said in messages(lone(*wrong, num_warps=1, ranks=2))


def test_a_cta_that_skips_the_cluster_barrier_deadlocks_whatever_the_timing() -> None:
    launch = replace(lone(ranks=2), roles=(WarpRole(name="all", num_warps=1, program=yielding([list(CLUSTER), []])),))
    assert "deadlock, whatever the timing: role 'all' of CTA 0, op 1 (barrier.cluster.wait)" in messages(launch)


def test_an_overlay_is_written_after_the_stages_below_it_are_read() -> None:
    def of(*between: ops.Op) -> Launch:
        own = (*COPY, WAITED, MEET, READ, *between, WRITE, MEET, ops.SharedLoad(ACCESS, "d"))
        launch = lone(*own)
        return replace(launch, buffers=(launch.buffers[0], replace(launch.buffers[1], is_overlay=True)))

    assert of(MEET).check(H200) == []
    assert "writes d[0] while its own op 4 (ldmatrix) may still read the memory of a[0]" in messages(of())
