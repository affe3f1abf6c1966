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

from gpusim import Buffer, Launch, Mbarrier, WarpRole, load_gpu
from gpusim.errors import LaunchError
from gpusim.workload import ops

from .pipelines import ACCESS, BYTES, MATH

H200 = load_gpu("h200_sxm")
N, STAGES = 9, 3
FULL, EMPTY = "full", "empty"


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
    bug: str = "", *, n: int = N, buffers: tuple[Buffer, ...] = (), wgmma: ops.Wgmma | None = None, **load_fields: Any
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
            yield replace(wgmma or ops.Wgmma(MATH, 4), reads=(("a", stage), ("b", stage)))
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
        ("expect_tx of A alone", "bytes", "4096 bytes announced, 16384 delivered"),
        ("expect_tx twice", "bytes", "16384 bytes announced, 8192 delivered"),
        ("first copy without expect_tx", "bytes", "0 bytes announced, 8192 delivered"),
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
    assert ring(swizzle="128B", wgmma=ops.Wgmma(MATH, 4, swizzle="128B")).check(H200) == []
    wrong = ring(swizzle="128B", wgmma=ops.Wgmma(MATH, 4, swizzle="64B"))
    assert "role 'producer' states swizzle 128B for buffer 'a', role 'consumer' 64B" in messages(wrong)


def test_stages_that_hold_no_operand_of_wgmma_are_named() -> None:
    small = tuple(Buffer(name=name, stage_bytes=1024, num_stages=STAGES) for name in "ab")
    said = messages(ring(buffers=small, num_bytes=1024))
    assert "reads operands of [2048, 2048] bytes, its stages hold [1024, 1024]" in said
