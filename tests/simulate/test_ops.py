"""What each op costs on the toy GPU, worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpusim import Launch, Mbarrier, NamedBarrier, WarpRole, load_gpu, simulate
from gpusim.simulate.timeline import WarpState
from gpusim.workload import ops
from gpusim.workload.atoms import MMA_ATOMS, mma_sync, wgmma
from gpusim.workload.dtypes import BF16, INT8
from gpusim.workload.launch import Program, RoleContext
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.smem.wgmma_operands import wgmma_wavefronts

from .kernels import (
    TOY,
    changed,
    contiguous,
    cycles,
    ends_of,
    expect,
    hit_cycles,
    load,
    miss_cycles,
    role,
    run,
    shared,
    spans_of,
    store_cycles,
    wait,
)

Ops = Iterator[Any]
WGMMA = wgmma(256, BF16)
WGMMA_CYCLES = 512  # 2 x 64 x 256 x 16 FLOP at 1024 a cycle; its 80 wavefronts hide behind that


def busy(cta: RoleContext, num_cycles: int) -> Ops:
    """One warp that computes for ``num_cycles``: its sub-core starts one FMA a cycle."""
    yield ops.Fma(num_cycles)


# ---------------------------------------------------------------------- arithmetic


@pytest.mark.parametrize(
    ("op", "num_warps", "expected"),
    [
        (ops.Fma(100), 1, 100),
        (ops.Fma(100), 4, 100),  # 128 lanes: a warp instruction a cycle on each sub-core
        (ops.Fma(100), 8, 200),
        (ops.Alu(100), 1, 200),  # 64 lanes
        (ops.Alu(100), 4, 200),
        (ops.Alu(100), 8, 400),
        (ops.ImadWide(100), 1, 400),  # 32 lanes, four cycles from one of a warp to its next
        (ops.ImadWide(100), 4, 400),
        (ops.ImadWide(100), 8, 800),
        (ops.Mufu(100), 4, 800),  # 16 lanes
        (ops.Mufu(100), 1, 800),
        (ops.Shfl(100), 4, 400),  # 32 lanes
        (ops.Shfl(100), 1, 400),
    ],
)
def test_arithmetic_takes_its_instructions_over_the_lanes(
    op: ops.Op, num_warps: int, expected: float
) -> None:
    def program(cta: RoleContext) -> Ops:
        yield op

    assert cycles(role(program, num_warps=num_warps)) == expected


def test_two_roles_share_the_fma_pipe() -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.Fma(100)

    assert cycles(role(program, "a", 4), role(program, "b", 4)) == 200


# ---------------------------------------------------------------------- tensor cores


@pytest.mark.parametrize("num_issues", [1, 2, 5])
def test_wgmma_takes_its_issues_one_after_the_other(num_issues: int) -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.Wgmma(WGMMA, num_issues)
        yield ops.WgmmaCommitGroup()
        yield ops.WgmmaWaitGroup(0)

    gpu = changed(tensor_core={"wgmma_latency_cycles": 25.0})
    assert cycles(role(program, num_warps=4), gpu=gpu) == num_issues * WGMMA_CYCLES + 25


def test_a_narrow_wgmma_waits_for_its_operands() -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.Wgmma(wgmma(8, BF16), 10)
        yield ops.WgmmaCommitGroup()
        yield ops.WgmmaWaitGroup(0)

    result = run(role(program, num_warps=4))
    assert (
        wgmma_wavefronts(wgmma(8, BF16)) == 18
    )  # 2 KiB of A, 256 bytes of B; the arithmetic takes 16 cycles
    assert result.cycles == 10 * 18
    assert result.counters["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum"] == 180


@pytest.mark.parametrize("l2", ["warm", "cold"])
def test_code_is_waited_for_where_it_lies_and_then_where_it_fits(l2: str) -> None:
    """1.5 KiB, of which L0 lacks two thirds the second time: a byte takes 8 / 64 cycles out of L1, 1 / 16 to issue."""

    def program(cta: RoleContext) -> Ops:
        for _ in range(2):
            yield ops.FetchCode("body", 1536)
            yield ops.Fma(96)

    cache = {"l0_bytes": 1024.0, "l1_bytes": 4096.0, "l1_latency_cycles": 8.0, "prefetched_bytes": 64.0}
    result = run(program, gpu=changed(instruction_cache=cache), l2=l2)
    first = (TOY.l2.near_latency_cycles if l2 == "warm" else TOY.hbm.latency_ns) / 64 - 1 / 16
    waits = [end - begin for begin, end in spans_of(result, WarpState.NO_INSTRUCTION)]
    assert waits == pytest.approx([1536 * first, 1024 * (8 / 64 - 1 / 16)])


@pytest.mark.parametrize(("num_groups", "blocked"), [(1, 0), (4, 0), (5, 1), (9, 5)])
def test_a_warp_that_has_four_groups_in_flight_waits_with_the_next(num_groups: int, blocked: int) -> None:
    def program(cta: RoleContext) -> Ops:
        for _ in range(num_groups):
            yield ops.Wgmma(WGMMA, 2)
            yield ops.WgmmaCommitGroup()
        yield ops.Fma(7)
        yield ops.WgmmaWaitGroup(0)

    result = run(role(program, "role0", 4))
    start = blocked * 2 * WGMMA_CYCLES
    spans = spans_of(result, WarpState.TENSOR)
    assert sum(end - begin for begin, end in spans) == start
    assert spans_of(result, WarpState.MATH_PIPE) == [(start, start + 7)]
    assert result.cycles == num_groups * 2 * WGMMA_CYCLES


@pytest.mark.parametrize(("n", "left"), [(8, 1 / 18), (32, 1 - 24 / 64)])
def test_stores_have_what_operand_reads_leave(n: int, left: float) -> None:
    def math(cta: RoleContext) -> Ops:
        yield ops.Wgmma(wgmma(n, BF16), 2000)
        yield ops.WgmmaCommitGroup()
        yield ops.WgmmaWaitGroup(0)

    def store(cta: RoleContext) -> Ops:
        yield ops.Fma(1)
        yield ops.SharedStore(shared(10))

    gpu = changed(tensor_core={"wgmma_min_free_wavefronts": 1.0})
    result = run(role(math, "math", 4), role(store, "store"), gpu=gpu)
    assert ends_of(result, "store") == [pytest.approx(2 + 10 / left - 1)]
    assert ends_of(run(role(store, "store")), "store") == [2 + 10 - 1]


def test_a_group_holds_as_many_wgmma_as_one_likes() -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.Wgmma(WGMMA, 40)
        yield ops.WgmmaCommitGroup()
        yield ops.Fma(7)
        yield ops.WgmmaWaitGroup(0)

    assert spans_of(run(role(program, "role0", 4)), WarpState.MATH_PIPE) == [(0, 7)]


@pytest.mark.parametrize(("num_issues", "num_warps", "blocked"), [(3, 4, 0), (5, 4, 0), (1, 8, 0), (4, 8, 5)])
def test_a_warp_whose_wgmma_find_the_queue_full_waits_until_it_has_room(
    num_issues: int, num_warps: int, blocked: int
) -> None:
    """Three wgmma of two warpgroups may wait and run; one alone has all the room that groups leave it."""

    def program(cta: RoleContext) -> Ops:
        yield ops.Wgmma(WGMMA, num_issues)
        yield ops.WgmmaCommitGroup()
        yield ops.Fma(num_warps)
        yield ops.WgmmaWaitGroup(0)

    result = run(role(program, "role0", num_warps), gpu=changed(tensor_core={"wgmma_max_queued": 3.0}))
    ((start, _),) = spans_of(result, WarpState.MATH_PIPE)
    assert start == blocked * WGMMA_CYCLES
    assert result.cycles == num_issues * num_warps // 4 * WGMMA_CYCLES


@pytest.mark.parametrize(
    ("num_issues", "num_between", "start"),
    [(1, 100, 400), (4, 0, 5 * 512), (4, 100, 5 * 512), (4, 640, 5 * 512), (4, 641, 641 * 4)],
)
def test_code_between_wgmma_passes_while_these_wait_for_room(num_issues: int, num_between: int, start: int) -> None:
    """Two warpgroups, a queue of three: four wgmma each wait until five have ended, a chain takes four cycles apiece."""

    def program(cta: RoleContext) -> Ops:
        yield ops.Wgmma(WGMMA, num_issues, num_between=num_between)
        yield ops.WgmmaCommitGroup()
        yield ops.Fma(8)
        yield ops.WgmmaWaitGroup(0)

    result = run(role(program, "role0", 8), gpu=changed(tensor_core={"wgmma_max_queued": 3.0}))
    assert spans_of(result, WarpState.MATH_PIPE)[0][0] == start
    waited = sum(end - begin for begin, end in spans_of(result, WarpState.TENSOR))
    assert waited == start - 4 * num_between


def test_a_chain_of_instructions_waits_from_one_to_the_next() -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.Alu(10, is_chain=True)

    assert cycles(role(program, num_warps=4)) == 10 * 4
    assert cycles(role(program, num_warps=16)) == 10 * 16 / 2  # lanes


@pytest.mark.parametrize(
    ("op", "num_warps", "expected"),
    [
        (ops.Fma(10, is_chain=True), 4, 10 * 4),  # four cycles from one to the next
        (ops.Fma(10, is_chain=True), 32, 10 * 32 / 4),  # as many warps as hide that twice over
        (ops.Shfl(5, is_chain=True), 8, 5 * 24),
        (ops.Shfl(5, is_chain=True), 32, 5 * 32),  # one a cycle
    ],
)
def test_chains_of_sums_and_shuffles_wait_each_for_the_one_before(op: ops.Op, num_warps: int, expected: float) -> None:
    def program(cta: RoleContext) -> Ops:
        yield op

    assert cycles(role(program, num_warps=num_warps)) == expected


def test_a_wide_multiplication_waits_for_its_own_wgmma_and_holds_up_the_next() -> None:
    def own(cta: RoleContext) -> Ops:
        yield ops.Wgmma(WGMMA, 1)
        yield ops.WgmmaCommitGroup()
        yield ops.ImadWide(25)
        yield ops.Wgmma(WGMMA, 1)
        yield ops.WgmmaCommitGroup()
        yield ops.WgmmaWaitGroup(0)

    assert cycles(role(own, num_warps=4)) == WGMMA_CYCLES + 25 * 4 + WGMMA_CYCLES


def test_wide_multiplications_and_wgmma_of_other_warps_wait_for_one_another() -> None:
    """512 of math, four cycles for each of 25, 512 of math; each of the 25, from cycle 125 on, takes eight beside it."""

    def math(cta: RoleContext) -> Ops:
        yield ops.Wgmma(WGMMA, 1)
        yield ops.WgmmaCommitGroup()
        yield ops.Alu(100)
        yield ops.Wgmma(WGMMA, 1)
        yield ops.WgmmaCommitGroup()
        yield ops.WgmmaWaitGroup(0)

    def other(cta: RoleContext) -> Ops:
        yield ops.Fma(25)  # behind the other role's in the issue slots: the first wgmma has been issued, the second not
        yield ops.ImadWide(25)

    result = run(role(math, "math", 4), role(other, "other", 4))
    assert ends_of(result, "other") == [125 + 25 * 8]
    assert result.cycles == 2 * WGMMA_CYCLES + 25 * 4


def test_wide_multiplications_that_outlast_the_wgmma_go_on_at_their_own_pace() -> None:
    """Each of 128 leaves four of eight cycles to 512 of math, which ends at 1024; 72 more take four each."""

    def program(cta: RoleContext) -> Ops:
        yield ops.Wgmma(WGMMA, 1)
        yield ops.WgmmaCommitGroup()
        yield ops.ImadWide(200)

    assert cycles(role(program, num_warps=4)) == 2 * WGMMA_CYCLES + 72 * 4


@pytest.mark.parametrize(("interval", "expected"), [(1.0, 10), (4.0, 40), (16.0, 160), (128.0, 512 + 6)])
def test_beside_wgmma_arithmetic_has_a_turn_in_so_many_cycles(interval: float, expected: float) -> None:
    """Ten instructions of a warp of each scheduler; those for which 512 cycles of math have no turn take one each."""

    def program(cta: RoleContext) -> Ops:
        yield ops.Wgmma(WGMMA, 1)
        yield ops.WgmmaCommitGroup()
        yield ops.Fma(10)

    gpu = changed(warp_scheduler={"math_interval_during_wgmma_cycles": interval})
    assert ends_of(run(role(program, "own", 4), gpu=gpu), "own") == [pytest.approx(expected)]


def test_two_warpgroups_share_the_tensor_core() -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.Wgmma(WGMMA, 3)
        yield ops.WgmmaCommitGroup()
        yield ops.WgmmaWaitGroup(0)

    assert cycles(role(program, "a", 4), role(program, "b", 4)) == 6 * WGMMA_CYCLES
    assert cycles(role(program, "both", 8)) == 6 * WGMMA_CYCLES


@pytest.mark.parametrize("num_pending", [0, 1, 2, 3])
def test_wait_group_n_leaves_n_groups_running(num_pending: int) -> None:
    def program(cta: RoleContext) -> Ops:
        for _ in range(3):
            yield ops.Wgmma(WGMMA, 1)
            yield ops.WgmmaCommitGroup()
        yield ops.WgmmaWaitGroup(num_pending)
        yield ops.Fma(1)

    ((start, _),) = spans_of(run(role(program, "role0", 4)), WarpState.MATH_PIPE)
    assert start == (3 - num_pending) * WGMMA_CYCLES


@pytest.mark.parametrize("num_ops", [1, 4, 5, 7])
def test_the_queue_takes_as_many_single_wgmma_as_of_one_batch(num_ops: int) -> None:
    def program(cta: RoleContext) -> Ops:
        for _ in range(num_ops):
            yield ops.Wgmma(WGMMA, 1)
            yield ops.WgmmaCommitGroup()
        yield ops.Fma(1)

    ((start, _),) = spans_of(run(role(program, "role0", 4)), WarpState.MATH_PIPE)
    assert start == max(0, num_ops - 4) * WGMMA_CYCLES


@pytest.mark.parametrize("num_issues", [2, 3])
@pytest.mark.parametrize(("num_warps", "turns"), [(1, 1), (4, 1), (8, 2)])
def test_mma_sync_holds_its_warps_until_the_last_is_issued(
    num_issues: int, num_warps: int, turns: int
) -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.MmaSync(mma_sync(BF16), num_issues)

    interval = 2 * 16 * 8 * 16 / (512 / 4)  # FLOP over a sub-core's rate
    result = run(role(program, num_warps=num_warps))
    assert result.cycles == (num_issues * turns - 1) * interval
    assert result.counters["sm__inst_executed_pipe_tensor_op_hmma.sum"] == num_issues * num_warps


def test_a_shallow_mma_sync_takes_the_least_interval() -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.MmaSync(MMA_ATOMS["mma_sync_m16n8k16_int8_int32"], 11)

    gpu = changed(tensor_core={"mma_sync_min_interval_cycles": 20.0})
    assert 2 * 16 * 8 * 16 / (1024 / 4) < 20
    result = run(program, gpu=gpu)
    assert result.cycles == 10 * 20
    assert result.counters["sm__inst_executed_pipe_tensor_op_imma.sum"] == 11
    assert mma_sync(INT8).rate_class == "int8"


# ---------------------------------------------------------------------- shared memory


READS = [ops.SharedLoad, ops.Ldmatrix]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("num_wavefronts", [1, 2, 8, 32])
def test_a_shared_read_takes_a_cycle_for_each_wavefront(read: Any, num_wavefronts: int) -> None:
    def program(cta: RoleContext) -> Ops:
        token = yield read(shared(num_wavefronts))
        yield ops.Use(token)

    issue, latency = 1, 20
    assert cycles(program) == issue + (num_wavefronts - 1) + latency


@pytest.mark.parametrize("read", READS)
def test_a_lone_warp_sees_its_own_wavefronts_at_their_own_pace(read: Any) -> None:
    def program(cta: RoleContext) -> Ops:
        token = yield read(shared(8 * 4, 4))
        yield ops.Use(token)

    gpu = changed(smem={"warp_cycles_per_wavefront": 2.0})
    assert cycles(program, gpu=gpu) == 4 + (32 - 1) * 2 + 20
    assert cycles(role(program, num_warps=4), gpu=gpu) == 1 + max(31, (8 - 1) * 2) + 20


@pytest.mark.parametrize("read", READS)
def test_warps_share_the_banks(read: Any) -> None:
    def program(cta: RoleContext) -> Ops:
        token = yield read(shared(16))
        yield ops.Use(token)

    assert ends_of(run(program, program), "role1") == [1 + 31 + 20]


def test_reads_overlap_until_they_are_used() -> None:
    def program(cta: RoleContext) -> Ops:
        first = yield ops.SharedLoad(shared(4))
        second = yield ops.SharedLoad(shared(4))
        yield ops.Use(second)
        yield ops.Use(first)

    assert cycles(program) == 1 + 8 - 1 + 20


@pytest.mark.parametrize("num_parts", [1, 2, 4])
def test_a_read_of_several_parts_is_waited_for_until_the_first_is_there(num_parts: int) -> None:
    """What is read behind it waits for all of it."""

    def program(*, reads_on: bool) -> Program:
        def reads(cta: RoleContext) -> Ops:
            token = yield ops.SharedLoad(shared(8), num_parts=num_parts)
            if reads_on:
                token = yield ops.SharedLoad(shared(4))
            yield ops.Use(token)

        return reads

    assert cycles(program(reads_on=False)) == 1 + 8 / num_parts - 1 + 20
    assert cycles(program(reads_on=True)) == 1 + 8 + 4 - 1 + 20


@pytest.mark.parametrize("write", [ops.SharedStore, ops.Stmatrix])
def test_a_shared_write_holds_its_warp_until_its_last_wavefront_goes_in(write: Any) -> None:
    def program(cta: RoleContext) -> Ops:
        yield write(shared(8))

    result = run(program)
    assert result.cycles == 1 + 7
    assert result.counters["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"] == 8


QUEUE = {
    "max_queued_stores": 2.0, "store_queue_bytes": 1024.0, "max_queued_scheduler_stores": 1.0,
    "store_release_cycles": 3.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("num_warps", "bytes_each", "places"), [(1, 128, 2 + 1), (1, 512, 2 + 1), (1, 1024, 1 + 1), (6, 128, 2 + 4)]
)
def test_stores_wait_in_a_queue_while_their_warps_go_on(num_warps: int, bytes_each: int, places: int) -> None:
    """12 instructions of 4 wavefronts: the last gets its place when all but so many are in, and 3 cycles later goes on."""
    access = AccessPattern(num_requests=12, num_wavefronts=48, num_bytes=12 * bytes_each)

    def program(cta: RoleContext) -> Ops:
        yield ops.SharedStore(access)

    (end,) = ends_of(run(role(program, num_warps=num_warps), gpu=changed(l1=QUEUE)), "worker")
    assert end == 1 + 48 - 1 - (4 * places - 3)


def test_a_queue_with_room_for_all_holds_nobody() -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.SharedStore(shared(8, 4))

    large = {**QUEUE, "max_queued_stores": 100.0, "store_queue_bytes": 1e6}
    assert ends_of(run(program, gpu=changed(l1=large))) == [4]  # its issue
    assert ends_of(run(program, gpu=changed(l1={**large, "store_release_cycles": 1e6}))) == [1 + 8 - 1]


def test_a_proxy_fence_waits_for_the_stores_and_a_barrier_for_the_last_warps_fence() -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.SharedStore(shared(48, 12))
        yield ops.FenceProxyAsync()
        yield ops.Syncthreads()

    gpu = changed(l1=QUEUE, warp_scheduler={"fence_warp_cycles": 5.0})
    result = run(role(program, num_warps=4), gpu=gpu)
    middle, last, barrier = 1 + 48 - 3 * 4 / 2, 1 + 48, TOY.warp_scheduler.barrier_base_cycles  # of four warps' last stores
    assert spans_of(result, WarpState.WAIT_BARRIER, "worker") == [(middle + 8, last + 8 + 3 * 5 + barrier)]
    assert spans_of(result, WarpState.LSU, "worker")[-1][1] == middle


def test_a_barrier_behind_a_fence_waits_for_conflicts_that_the_fence_does_not_wait_for() -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.SharedStore(shared(48, 12))  # three in four wavefronts are conflicts
        yield ops.FenceProxyAsync()
        yield ops.Syncthreads()

    gpu = changed(
        l1=QUEUE, smem={"overtakable_wavefronts": 10.0, "store_latency_cycles": 7.0},
        warp_scheduler={"proxy_fence_visible_cycles": 9.0},
    )  # fmt: skip
    (wait,) = spans_of(run(role(program, num_warps=1), gpu=gpu), WarpState.WAIT_BARRIER, "worker")
    assert wait == (1 + 48 - 10 + 7 + 8, 1 + 48 + 7 + 8 + 9 + TOY.warp_scheduler.barrier_base_cycles)


def test_registers_of_a_store_may_be_written_when_it_has_been_served() -> None:
    def program(cta: RoleContext) -> Ops:
        token = yield ops.SharedStore(shared(48, 12), has_token=True)
        assert token is not None
        yield ops.Use(token)

    gpu = changed(l1={**QUEUE, "max_queued_stores": 100.0, "store_queue_bytes": 1e6}, smem={"store_latency_cycles": 7.0})
    assert cycles(role(program, num_warps=1), gpu=gpu) == 1 + 48 + 7


def test_writes_of_many_warps_keep_the_data_stage_busy() -> None:
    def program(cta: RoleContext) -> Ops:
        for _ in range(8):
            yield ops.SharedStore(shared(4, 4))

    assert cycles(role(program, num_warps=4)) == 1 + 8 * 4 - 1


def test_a_lone_warp_writes_and_swaps_at_its_own_pace() -> None:
    def write(cta: RoleContext) -> Ops:
        yield ops.SharedStore(shared(8))

    def swap(cta: RoleContext) -> Ops:
        token = yield ops.SharedAtomic(shared(8))
        yield ops.Use(token)

    gpu = changed(smem={"warp_cycles_per_wavefront": 2.0})
    assert cycles(write, gpu=gpu) == 1 + 2 * 8 - 1
    assert cycles(swap, gpu=gpu) == 1 + 2 * 7 + 1 + 40


@pytest.mark.parametrize(("read", "words"), [(ops.SharedLoad, 4), (ops.Ldmatrix, 1)])
def test_the_words_of_a_vector_return_one_after_the_other(read: Any, words: int) -> None:
    def program(cta: RoleContext) -> Ops:
        token = yield read(AccessPattern(num_requests=1, num_wavefronts=4, num_bytes=512))
        yield ops.Use(token)

    gpu = changed(smem={"vector_word_cycles": 1.5})
    assert cycles(program, gpu=gpu) == 1 + 3 + 20 + 1.5 * (words - 1)


def test_warps_that_chase_in_shared_memory_do_not_see_one_another() -> None:
    def program(cta: RoleContext) -> Ops:
        for _ in range(16):
            token = yield ops.SharedLoad(shared(1))
            yield ops.Use(token)

    ends = ends_of(run(program, program, program), "role2")
    assert ends == pytest.approx([cycles(program)], rel=0.02)


def test_a_shared_atomic_takes_its_own_latency() -> None:
    def program(cta: RoleContext) -> Ops:
        token = yield ops.SharedAtomic(shared(8))
        yield ops.Use(token)

    assert cycles(program) == 1 + 8 + 40


def test_without_bank_conflicts_an_access_takes_its_bytes() -> None:
    from gpusim import simulate

    from .kernels import launch

    def program(cta: RoleContext) -> Ops:
        token = yield ops.SharedLoad(shared(32, 4))
        yield ops.Use(token)

    of_it = launch(program)
    assert simulate(of_it, TOY).cycles == 4 + 31 + 20
    assert simulate(of_it, TOY, ideals=frozenset({"bank_conflicts"})).cycles == 4 + 3 + 20


# ---------------------------------------------------------------------- global memory


def global_load(num_bytes: int, tile: tuple[int, int] = (0, 0), **fields: Any) -> ops.GlobalLoad:
    return ops.GlobalLoad("A", tile, contiguous(num_bytes), **fields)


def test_a_global_load_is_issued_looked_up_fetched_and_used() -> None:
    """One warp, 512 bytes: 4 requests issue by cycle 4, 4 lines pass the tags by 8; the queue hides those."""

    def program(cta: RoleContext) -> Ops:
        token = yield global_load(512)
        yield ops.Fma(1)
        yield ops.Use(token)

    for l2, memory in (("warm", hit_cycles(512)), ("cold", miss_cycles(512))):
        result = run(program, l2=l2)
        assert result.cycles == pytest.approx(4 + memory)
        assert spans_of(result, WarpState.MATH_PIPE) == [(4, 5)]
        assert spans_of(result, WarpState.LONG_SCOREBOARD) == [(5, pytest.approx(4 + memory))]
        assert result.counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 16
        assert result.counters["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 4


def test_a_load_that_outruns_the_tags_stalls_behind_their_queue() -> None:
    """100 lines of one request (a stride of 128 bytes or more): the queue takes 32 of them."""
    access = AccessPattern(num_requests=1, num_sectors=100, num_lines=100, num_bytes=400)

    def program(cta: RoleContext) -> Ops:
        yield ops.GlobalLoad("A", (0, 0), access)

    assert spans_of(run(program), WarpState.LSU) == [(1, 1 + 100 - 32)]


def test_a_tile_that_l1_holds_takes_its_hit_latency() -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.Use((yield global_load(512)))
        yield ops.Use((yield global_load(512)))

    assert cycles(program) == pytest.approx(4 + hit_cycles(512) + 4 + 40)


def test_a_hit_on_a_line_that_l1_still_fills_waits_for_the_fill() -> None:
    def program(cta: RoleContext) -> Ops:
        yield global_load(512)
        yield ops.Use((yield global_load(512)))

    assert cycles(program) == pytest.approx(4 + hit_cycles(512))


def test_what_does_not_allocate_in_l1_goes_to_l2_again() -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.Use((yield global_load(512, allocates_in_l1=False)))
        yield ops.Use((yield global_load(512, allocates_in_l1=False)))

    assert cycles(program) == pytest.approx(2 * (4 + hit_cycles(512)))


@pytest.mark.parametrize(("kib", "hits"), [(64, True), (65, False)])
def test_l1_holds_what_shared_memory_leaves(kib: int, hits: bool) -> None:
    """192 KiB of shared memory leave 64 of the 256; two tiles of 32 KiB fit, a byte more does not."""

    def program(cta: RoleContext) -> Ops:
        for num_bytes, tile in ((32 * 1024, (0, 0)), ((kib - 32) * 1024, (0, 1)), (32 * 1024, (0, 0))):
            yield ops.Use((yield global_load(num_bytes, tile)))

    result = run(program, buffers=(), mbarriers=(), extra_smem_bytes=192 * 1024)
    read = result.counters["l1tex__m_xbar2l1tex_read_bytes.sum"]
    assert read == (kib + (0 if hits else 32)) * 1024


def test_a_store_lets_its_warp_go_and_the_next_waits_until_it_has_left() -> None:
    def program(cta: RoleContext) -> Ops:
        for idx in range(3):
            yield ops.GlobalStore("D", (0, idx), contiguous(4096))

    result = run(role(program, "role0", 32))
    issue = 8  # 32 requests of 32 warps, 4 a cycle
    each = issue + store_cycles(4096)
    assert spans_of(result, WarpState.LSU) == [
        (issue, pytest.approx(each)),
        (each + issue, pytest.approx(2 * each)),
    ]
    assert ends_of(result) == [pytest.approx(2 * each + issue)]
    assert result.cycles == pytest.approx(3 * each + 200)
    assert result.counters["l1tex__m_l1tex2xbar_write_bytes.sum"] == 3 * 4096


def test_a_store_holds_its_warps_until_the_last_of_it_waits_in_the_queue() -> None:
    """32 requests of 128 bytes, 2 cycles each, by one warp: 3 places are 6 cycles, given back 3 later."""

    def program(cta: RoleContext) -> Ops:
        for idx in range(2):
            yield ops.GlobalStore("D", (0, idx), contiguous(4096))

    result = run(program, gpu=changed(l1=QUEUE))
    each, lead = store_cycles(4096), 3 * 2 - 3
    assert [end for _, end in spans_of(result, WarpState.LSU)] == pytest.approx([each - lead, 2 * each - lead])
    assert result.cycles == pytest.approx(2 * each + 200)


def test_a_load_of_shared_memory_waits_for_the_stores_before_it_but_for_those_past_the_schedulers() -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.GlobalStore("D", (0, 0), contiguous(4096))
        token = yield ops.SharedLoad(shared(1))
        yield ops.Use(token)

    queue = {**QUEUE, "max_queued_scheduler_stores": 9.0}
    (end,) = ends_of(run(program, gpu=changed(l1=queue)))
    assert end == pytest.approx(store_cycles(4096) - 2 * 2 + 1 + 20)  # two of them are past the schedulers
    assert end > ends_of(run(program))[0]  # without a queue they are not in each other's way


@pytest.mark.parametrize(
    ("num_sectors", "num_bytes", "port_bytes"),
    [(128, 4096, 4096), (32, 1024, 32 * 48), (32, 512, 32 * 64), (32, 128, 32 * 64)],
    ids=["whole lines", "a sector a line", "half a sector a line", "a word a line"],
)
def test_small_parts_of_lines_take_a_packet_and_parts_of_sectors_a_mask(
    num_sectors: int, num_bytes: int, port_bytes: int
) -> None:
    access = AccessPattern(num_requests=32, num_sectors=num_sectors, num_lines=32, num_bytes=num_bytes)

    def program(cta: RoleContext) -> Ops:
        yield ops.GlobalStore("D", (0, 0), access)

    gpu = changed(l1={**QUEUE, "store_release_cycles": 1e6}, xbar={"store_packet_bytes": 48.0})
    assert ends_of(run(program, gpu=gpu)) == [pytest.approx(max(32.0, store_cycles(port_bytes)))]


@pytest.mark.parametrize(
    ("num_sectors", "header", "port_bytes"),
    [(128, 0.25, 4096 + 32 * 32), (32, 0.25, 32 * (32 + 32)), (32, 0.0, 32 * 48), (128, 0.0, 4096)],
    ids=["whole lines", "a sector a line", "a sector without a header", "whole lines without"],
)
def test_reductions_have_a_header_a_line_and_wait_in_the_queue_of_stores(
    num_sectors: int, header: float, port_bytes: int
) -> None:
    access = AccessPattern(num_requests=32, num_sectors=num_sectors, num_lines=32, num_bytes=32 * num_sectors)

    def program(cta: RoleContext) -> Ops:
        yield ops.GlobalAtomic("D", (0, 0), access)
        yield ops.GlobalAtomic("D", (0, 1), access)

    queue = {**QUEUE, "store_release_cycles": 1e6}
    gpu = changed(l1=queue, xbar={"store_packet_bytes": 48.0, "red_header_fraction": header})
    result = run(program, gpu=gpu)
    each = max(32.0, store_cycles(port_bytes))
    assert ends_of(result) == [pytest.approx(2 * each)]
    assert result.counters["l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"] == 0
    assert result.counters["l1tex__m_l1tex2xbar_write_bytes.sum"] == 2 * 32 * num_sectors


def test_what_waits_on_the_way_to_l2_has_left_its_sm() -> None:
    """Four SMs of 64 bytes a cycle share 64: each has left when all but 1,000 bytes have passed, and its port is done."""

    def program(cta: RoleContext) -> Ops:
        yield ops.GlobalStore("D", (0, cta.cta_idx), contiguous(4096))

    for held, left_at in ((0.0, 256.0), (1000.0, 4 * (4096 - 1000) / 64), (4000.0, 64.0)):
        gpu = changed(l1={**QUEUE, "store_release_cycles": 1e6}, xbar={"store_in_flight_bytes": held})
        result = run(program, gpu=gpu, num_ctas=4)
        assert ends_of(result) == [pytest.approx(left_at, abs=1)] * 4
        assert result.cycles == pytest.approx(4 * store_cycles(4096) + 200, abs=1)  # nothing arrives sooner


def test_one_store_costs_issue_bytes_and_the_way_to_l2() -> None:
    """4 warps, 512 bytes: one request each."""

    def program(cta: RoleContext) -> Ops:
        yield ops.GlobalStore("D", (0, 0), contiguous(512))

    assert cycles(role(program, num_warps=4)) == pytest.approx(1 + store_cycles(512) + 200)


def test_stores_of_all_sms_share_what_l2_takes() -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.GlobalStore("D", (0, cta.cta_idx), contiguous(512))

    assert cycles(role(program, num_warps=4), num_ctas=4) == pytest.approx(
        1 + 4 * store_cycles(512) + 200, abs=1
    )


@pytest.mark.parametrize("returns", [True, False])
def test_an_atomic_that_returns_waits_for_l2(returns: bool) -> None:
    def program(cta: RoleContext) -> Ops:
        token = yield ops.GlobalAtomic("D", (0, 0), contiguous(512), returns=returns)
        if returns:
            yield ops.Use(token)

    result = run(role(program, "role0", 4))
    assert ends_of(result) == [pytest.approx(1 + (store_cycles(512) + 200 if returns else 0))]
    assert result.cycles == pytest.approx(1 + store_cycles(512) + 200)


# ---------------------------------------------------------------------- cp.async


def cp_async(num_bytes: int, stage: int = 0, step: int | None = None, **fields: Any) -> ops.CpAsync:
    return ops.CpAsync("A", (0, stage if step is None else step), contiguous(num_bytes), "a", stage, **fields)


def test_a_group_is_waited_for_until_its_data_are_in_shared_memory() -> None:
    """4 warps, 2048 bytes: 4 requests of each warp; the writes hide behind the transfer."""

    def program(cta: RoleContext) -> Ops:
        yield cp_async(2048)
        yield ops.CpAsyncCommitGroup()
        yield ops.CpAsyncWaitGroup(0)

    assert cycles(role(program, num_warps=4)) == pytest.approx(4 + hit_cycles(2048))
    assert cycles(role(program, num_warps=4), l2="cold") == pytest.approx(4 + miss_cycles(2048))


@pytest.mark.parametrize(("num_rows", "in_l1", "row_cycles"), [(16, False, 10), (4, False, 40), (16, True, 0)])
def test_rows_that_go_around_l1_pass_one_after_the_other(num_rows: int, in_l1: bool, row_cycles: float) -> None:
    """160 cycles for all rows, but for the last of 16 instructions, which then takes a latency; or rows cost nothing."""

    def program(cta: RoleContext) -> Ops:
        yield cp_async(2048, num_rows=num_rows, allocates_in_l1=in_l1)
        yield ops.CpAsyncCommitGroup()
        yield ops.CpAsyncWaitGroup(0)

    gpu = changed(l1={"cp_async_row_cycles": row_cycles or 10.0})
    expected = 160 - 10 + 200 if row_cycles else hit_cycles(2048)
    assert cycles(role(program, num_warps=4), gpu=gpu) == pytest.approx(4 + expected)


@pytest.mark.parametrize(("places", "held"), [(4, 160 - 4 * 10), (15, 160 - 15 * 10), (16, 0)])
def test_copies_around_l1_queue_while_their_warps_go_on(places: int, held: float) -> None:
    """16 copies of a row, ten cycles each; the last ``places`` wait by themselves."""

    def program(cta: RoleContext) -> Ops:
        yield cp_async(2048, num_rows=16)

    gpu = changed(l1={"cp_async_row_cycles": 10.0, "max_queued_copies": places})
    assert ends_of(run(role(program, "role0", 4), gpu=gpu)) == [pytest.approx(4 + held)]


@pytest.mark.parametrize(("queued", "held"), [(0, 160), (4, 120), (14, 20), (15, 10)])
def test_warps_whose_addresses_are_written_anew_wait_until_their_copies_rows_are_in_the_queue(
    queued: float, held: float
) -> None:
    """16 rows of ten cycles each, of which so many wait for their stage."""

    def program(cta: RoleContext) -> Ops:
        yield cp_async(2048, num_rows=16)
        yield ops.CpAsyncCommitGroup(is_held=True)

    l1 = {"cp_async_row_cycles": 10.0, "max_queued_copies": 100, "max_queued_rows": queued}
    assert ends_of(run(role(program, "role0", 4), gpu=changed(l1=l1))) == [pytest.approx(4 + held)]


@pytest.mark.parametrize(("queued", "behind"), [(0, 160), (6, 100), (16, 0)])
def test_loads_behind_copies_wait_for_their_rows_but_for_those_that_queue(queued: float, behind: float) -> None:

    def program(cta: RoleContext) -> Ops:
        yield cp_async(2048, num_rows=16)
        token = yield ops.SharedLoad(shared(4))
        yield ops.Use(token)

    def end_of(num_rows: float) -> float:
        l1 = {"cp_async_row_cycles": 10.0, "max_queued_copies": 100, "max_queued_rows": num_rows}
        return ends_of(run(role(program, "role0", 4), gpu=changed(l1=l1)))[0]

    assert end_of(queued) - end_of(16) == pytest.approx(max(0.0, behind - 0.25))  # the load's own issue, of four schedulers


def test_addresses_are_made_between_copies_while_rows_pass() -> None:
    """4 warps with 4 copies each: 4 times 10 instructions at half a one a cycle, or 16 rows of 10 cycles."""

    def program(cta: RoleContext) -> Ops:
        yield cp_async(2048, num_rows=16, num_between=10.0)

    for places, row_cycles, expected in ((16, 10.0, 80.0), (1, 10.0, 150.0), (16, 1.0, 80.0)):
        gpu = changed(l1={"cp_async_row_cycles": row_cycles, "max_queued_copies": places})
        assert ends_of(run(role(program, "role0", 4), gpu=gpu)) == [pytest.approx(4 + expected)]


def test_wavefronts_beyond_the_bytes_cost_their_time() -> None:
    """16 lines arrive; conflicts make 64 wavefronts of them."""
    conflicted = AccessPattern(
        num_requests=16, num_sectors=64, num_lines=16, num_wavefronts=64, num_bytes=2048
    )

    def program(cta: RoleContext) -> Ops:
        yield ops.CpAsync("A", (0, 0), conflicted, "a", 0)
        yield ops.CpAsyncCommitGroup()
        yield ops.CpAsyncWaitGroup(0)

    assert cycles(role(program, num_warps=4)) == pytest.approx(4 + hit_cycles(2048) + 64 - 16)


@pytest.mark.parametrize("num_pending", [0, 1, 2])
def test_wait_group_n_leaves_n_groups_in_flight(num_pending: int) -> None:
    """The port moves one group after the other, 64 cycles each; issue and tags are left out."""
    access = AccessPattern(num_sectors=128, num_bytes=4096)

    def program(cta: RoleContext) -> Ops:
        for stage in range(3):
            yield ops.CpAsync("A", (0, stage), access, "a", stage)
            yield ops.CpAsyncCommitGroup()
        yield ops.CpAsyncWaitGroup(num_pending)

    assert cycles(program) == pytest.approx((3 - num_pending) * 64 + 200)


def test_a_fill_that_is_on_its_way_does_not_hold_up_the_reads_before_it() -> None:
    def fills(cta: RoleContext) -> Ops:
        yield cp_async(4096)
        yield ops.CpAsyncCommitGroup()
        yield ops.CpAsyncWaitGroup(0)

    def reads(cta: RoleContext) -> Ops:
        for _ in range(15):
            yield ops.Use((yield ops.SharedLoad(shared(1))))

    result = run(role(fills, "fills", 4), role(reads, "reads"), l2="cold")
    assert ends_of(result, "reads")[0] < 400 < ends_of(result, "fills")[0]


def test_no_group_is_complete_before_the_one_ahead() -> None:
    """The first comes from memory, the second from L2."""

    def program(cta: RoleContext) -> Ops:
        yield cp_async(2048, 0, step=7)
        yield ops.CpAsyncCommitGroup()
        yield ops.CpAsyncWaitGroup(0)
        yield cp_async(2048, 1, step=8)
        yield ops.CpAsyncCommitGroup()
        yield cp_async(2048, 2, step=7)
        yield ops.CpAsyncCommitGroup()
        yield ops.CpAsyncWaitGroup(0)

    assert cycles(role(program, num_warps=4), l2="cold") == pytest.approx(2 * (4 + miss_cycles(2048)))


def test_an_empty_group_keeps_the_count() -> None:
    def program(cta: RoleContext) -> Ops:
        yield cp_async(2048)
        yield ops.CpAsyncCommitGroup()
        yield ops.CpAsyncCommitGroup()
        yield ops.CpAsyncWaitGroup(1)

    assert cycles(role(program, num_warps=4)) == pytest.approx(4 + hit_cycles(2048))


def test_cp_async_arrives_on_an_mbarrier_for_all_its_threads() -> None:
    def producer(cta: RoleContext) -> Ops:
        yield cp_async(2048)
        yield ops.CpAsyncMbarrierArrive("full", 0)

    def consumer(cta: RoleContext) -> Ops:
        yield wait(0)

    result = run(
        role(producer, "producer", 4),
        role(consumer, "consumer"),
        mbarriers=(Mbarrier(name="full", num_arrivals=128),),
    )
    assert ends_of(result, "producer") == [4]
    assert ends_of(result, "consumer") == [pytest.approx(4 + hit_cycles(2048))]


def test_cp_async_that_arrived_on_an_mbarrier_still_belongs_to_the_group_that_is_committed_next() -> None:
    def program(cta: RoleContext) -> Ops:
        yield cp_async(2048)
        yield ops.CpAsyncMbarrierArrive("full", 0)
        yield ops.CpAsyncCommitGroup()
        yield ops.CpAsyncWaitGroup(0)

    result = run(role(program, num_warps=4), mbarriers=(Mbarrier(name="full", num_arrivals=128),))
    assert result.cycles == pytest.approx(4 + hit_cycles(2048))


# ---------------------------------------------------------------------- barriers of threads


def test_syncthreads_lets_all_go_when_the_last_has_come() -> None:
    def early(cta: RoleContext) -> Ops:
        yield ops.Syncthreads()

    def late(cta: RoleContext) -> Ops:
        yield from busy(cta, 100)
        yield ops.Syncthreads()

    result = run(early, late)
    assert ends_of(result, "role0") == ends_of(result, "role1") == [100 + 10]
    assert spans_of(result, WarpState.WAIT_BARRIER) == [(0, 110)]


def test_a_barrier_costs_more_for_more_warps() -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.Syncthreads()

    gpu = changed(warp_scheduler={"barrier_base_cycles": 20.0, "barrier_warp_cycles": 2.0})
    assert cycles(role(program, num_warps=8), gpu=gpu) == 20 + 8 * 2


def test_bar_sync_waits_for_its_own_threads_only() -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.BarSync("math")

    def other(cta: RoleContext) -> Ops:
        yield from busy(cta, 500)

    result = run(program, program, other, named_barriers=(NamedBarrier(name="math", num_threads=64),))
    assert ends_of(result, "role0") == ends_of(result, "role1") == [10]


def test_bar_arrive_goes_on_and_its_partner_waits() -> None:
    def arrives(cta: RoleContext) -> Ops:
        yield ops.Fma(100)
        yield ops.BarArrive("ready")
        yield ops.Fma(1)

    def waits(cta: RoleContext) -> Ops:
        yield ops.BarSync("ready")

    result = run(arrives, waits, named_barriers=(NamedBarrier(name="ready", num_threads=64),))
    assert ends_of(result, "role0") == [102]  # an issue slot for the arrival
    assert ends_of(result, "role1") == [101 + 10]


def test_a_barrier_may_be_used_again() -> None:
    def program(cta: RoleContext) -> Ops:
        for _ in range(5):
            yield ops.Syncthreads()

    assert cycles(program, program) == 5 * 10


# ---------------------------------------------------------------------- mbarriers


def test_an_arrival_and_a_wait_cost_what_the_description_says() -> None:
    gpu = changed(mbarrier={"arrive_cycles": 5.0, "try_wait_cycles": 7.0, "wake_cycles": 11.0})

    def arrives(cta: RoleContext) -> Ops:
        yield ops.Fma(100)
        yield ops.MbarrierArrive("full", 0)

    def waits(cta: RoleContext) -> Ops:
        yield wait(0)

    def comes_late(cta: RoleContext) -> Ops:
        yield ops.Fma(300)
        yield wait(0)

    result = run(arrives, waits, comes_late, gpu=gpu)
    assert ends_of(result, "role0") == [105]
    assert ends_of(result, "role1") == [105 + 11]
    assert ends_of(result, "role2") == [300 + 7]


def test_a_wait_that_finds_its_phase_open_sleeps_first_and_is_woken_then() -> None:
    gpu = changed(
        mbarrier={"arrive_interval_cycles": 3.0, "max_queued_arrivals": 1, "try_wait_cycles": 50.0, "wake_cycles": 11.0}
    )

    def itself(cta: RoleContext) -> Ops:
        yield ops.MbarrierArrive("full", 0)
        yield wait(0)

    assert cycles(itself, gpu=gpu) == 50 + 11


@pytest.mark.parametrize(("count", "num_intervals"), [(1, 1), (32, 1), (64, 2), (128, 4)])
def test_lanes_of_a_warp_arrive_together_and_warps_one_after_the_other(count: int, num_intervals: int) -> None:
    """Of a role of four warps whose threads arrive, and wait for that."""
    gpu = changed(mbarrier={"arrive_interval_cycles": 10.0, "max_queued_arrivals": 8, "wake_cycles": 11.0})

    def itself(cta: RoleContext) -> Ops:
        yield ops.MbarrierArrive("full", 0, count)
        yield wait(0)

    full = (Mbarrier(name="full", num_arrivals=count),)
    assert cycles(role(itself, num_warps=4), gpu=gpu, mbarriers=full) == 10 * num_intervals + 11


def test_arrivals_queue_before_the_unit() -> None:
    """Four go on after a cycle each; then each waits until the one four before it has been served, 10 cycles apart."""
    gpu = changed(mbarrier={"arrive_cycles": 1.0, "arrive_interval_cycles": 10.0, "max_queued_arrivals": 4})

    def arrives(num: int) -> Any:
        def program(cta: RoleContext) -> Ops:
            for _ in range(num):
                yield ops.MbarrierArrive("full", 0)

        return program

    for num, wanted in ((1, 1), (4, 4), (5, 14), (8, 44)):
        assert cycles(arrives(num), gpu=gpu, mbarriers=(Mbarrier(name="full", num_arrivals=9),)) == wanted


def test_a_fresh_barrier_lets_the_wait_of_parity_1_pass() -> None:
    def program(cta: RoleContext) -> Ops:
        yield wait(0, 1)
        yield ops.Fma(1)

    assert cycles(program) == 1


@pytest.mark.parametrize("num_warps", [1, 4])
def test_setup_costs_issue_slots(num_warps: int) -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.MbarrierInit("full")
        yield ops.PrefetchTensormap(("A", "B"))

    assert cycles(role(program, num_warps=num_warps)) == 1 + 2


# ---------------------------------------------------------------------- clusters


def in_cluster(program: Any, size: int = 2, **fields: Any) -> Any:
    return run(program, num_ctas=size, cluster_size=size, **fields)


def test_a_remote_arrival_takes_the_networks_latency() -> None:
    def program(cta: RoleContext) -> Ops:
        if cta.cta_rank == 0:
            yield ops.MbarrierArrive("full", 0, cta_rank=1)
        else:
            yield wait(0)

    assert ends_of(in_cluster(program)) == [0, 100]


def test_an_arrival_on_ones_own_rank_is_local() -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.MbarrierArrive("full", 0, cta_rank=cta.cta_rank)
        yield wait(0)
        yield ops.Fma(1)

    assert ends_of(in_cluster(program)) == [1, 1]


def test_st_async_delivers_its_bytes_on_the_other_ranks_barrier() -> None:
    def program(cta: RoleContext) -> Ops:
        if cta.cta_rank == 0:
            yield ops.StAsync(1, 3200, "full", 0)
        else:
            yield expect(0, 3200)
            yield wait(0)

    result = in_cluster(program)
    assert ends_of(result) == [1, 1 + 3200 / 32 + 100]
    assert result.counters["l1tex__m_l1tex2xbar_write_bytes_mem_dshared.sum"] == 3200


def test_a_remote_load_takes_the_network_and_its_latency() -> None:
    def program(cta: RoleContext) -> Ops:
        if cta.cta_rank == 0:
            yield ops.Use((yield ops.DsmemLoad(1, 3200)))

    result = in_cluster(program)
    assert ends_of(result) == [1 + 3200 / 32 + 100, 0]
    assert result.counters["l1tex__m_xbar2l1tex_read_bytes_mem_dshared.sum"] == 3200


def test_a_remote_store_lets_its_warp_go() -> None:
    def program(cta: RoleContext) -> Ops:
        if cta.cta_rank == 0:
            yield ops.DsmemStore(1, 3200)
            yield ops.Use((yield ops.DsmemLoad(1, 3200)))  # queues behind the store on the SM's link

    assert ends_of(in_cluster(program)) == [2 * 3200 / 32 + 1 + 100, 0]


def test_the_cluster_barrier_waits_for_all_ctas() -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.Fma(100 * (cta.cta_rank + 1))
        yield ops.ClusterArrive()
        yield ops.ClusterWait()

    gpu = changed(dsmem={"cluster_barrier_cycles": 50.0})
    for size in (2, 4):
        assert ends_of(in_cluster(program, size, gpu=gpu)) == [100 * size + 1 + 50] * size


def test_work_between_cluster_arrive_and_wait_is_hidden() -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.ClusterArrive()
        yield ops.Fma(300)
        yield ops.ClusterWait()

    gpu = changed(dsmem={"cluster_barrier_cycles": 50.0})
    assert ends_of(in_cluster(program, gpu=gpu)) == [301, 301]


def test_the_cluster_barrier_costs_more_for_more_ctas_and_warps() -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.ClusterArrive()
        yield ops.ClusterWait()

    gpu = changed(
        dsmem={"cluster_barrier_cycles": 50.0, "cluster_barrier_cta_cycles": 3.0},
        warp_scheduler={"barrier_warp_cycles": 2.0},
    )
    assert ends_of(in_cluster(role(program, "role0", 4), 2, gpu=gpu)) == [1 + 50 + 2 * 3 + 4 * 2] * 2
    assert ends_of(in_cluster(role(program, "role0", 8), 4, gpu=gpu)) == [2 + 50 + 4 * 3 + 8 * 2] * 4


def test_a_fence_of_scope_gpu_waits_for_what_is_on_its_way() -> None:
    gpu = changed(warp_scheduler={"gpu_fence_cycles": 60.0, "gpu_fence_warp_cycles": 5.0})

    def program(cta: RoleContext) -> Ops:
        if cta.cta_rank == 0:
            yield ops.DsmemStore(1, 320)
        yield ops.FenceAcqRel()

    assert ends_of(in_cluster(program, gpu=gpu)) == [1 + 320 / 32 + 100 + 60, 60]
    assert ends_of(in_cluster(role(program, "role0", 6), gpu=gpu))[1] == 60 + 2 * 5


def test_a_cluster_of_two_is_nearer() -> None:
    gpu = changed(dsmem={"same_tpc_saving_cycles": 20.0})

    def program(cta: RoleContext) -> Ops:
        if cta.cta_rank == 0:
            yield ops.Use((yield ops.DsmemLoad(1, 32)))

    assert ends_of(in_cluster(program, 2, gpu=gpu))[0] == 1 + 1 + 100 - 2 * 20
    assert ends_of(in_cluster(program, 4, gpu=gpu))[0] == 1 + 1 + 100


def test_the_cluster_barrier_may_be_used_again() -> None:
    def program(cta: RoleContext) -> Ops:
        for turn in range(3):
            yield ops.Fma(100 if turn % 2 == cta.cta_rank else 10)
            yield ops.ClusterArrive()
            yield ops.ClusterWait()

    assert ends_of(in_cluster(program)) == [3 * 101] * 2


# ---------------------------------------------------------------------- registers, fences, marks


def test_setmaxnreg_inc_waits_until_another_warpgroup_has_given_registers_back() -> None:
    """Launched with 168: the producer's 40 leave 128 x 128 registers, the consumer takes 64 x 128."""

    def producer(cta: RoleContext) -> Ops:
        yield ops.Mufu(10)
        yield ops.SetMaxNReg(40, "dec")

    def consumer(cta: RoleContext) -> Ops:
        yield ops.SetMaxNReg(232, "inc")

    result = run(role(consumer, "consumer", 4), role(producer, "producer", 4), registers_per_thread=168)
    assert ends_of(result, "producer") == ends_of(result, "consumer") == [81]
    assert spans_of(result, WarpState.WAIT_REGISTERS, "consumer") == [(1, 81)]


def test_two_consumers_are_served_in_the_order_in_which_they_asked() -> None:
    def producer(cta: RoleContext) -> Ops:
        for left in (104, 40):
            yield ops.Mufu(10)
            yield ops.SetMaxNReg(left, "dec")

    def consumer(cta: RoleContext) -> Ops:
        yield ops.SetMaxNReg(232, "inc")

    result = run(
        role(consumer, "first", 4),
        role(consumer, "second", 4),
        role(producer, "producer", 4),
        registers_per_thread=168,
    )
    assert ends_of(result, "first") == [81]
    assert ends_of(result, "second") == [162]


def test_setmaxnreg_that_asks_for_what_a_warp_has_costs_an_issue_slot() -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.SetMaxNReg(168, "inc")

    assert cycles(role(program, num_warps=4), registers_per_thread=168) == 1


def test_ranges_name_parts_of_the_timeline_and_cost_nothing() -> None:
    def program(cta: RoleContext) -> Ops:
        yield ops.RangeStart(ops.Section.PROLOGUE)
        yield ops.Fma(10)
        yield ops.RangeEnd()
        yield ops.RangeStart(ops.Section.MAINLOOP)
        yield ops.Fma(100)
        yield ops.RangeEnd()

    result = run(program)
    assert result.cycles == 110
    sections = [(span.name, span.start_cycle, span.end_cycle) for span in result.timeline.roles[0].sections]
    assert sections == [("prologue", 0, 10), ("mainloop", 10, 110)]


def test_a_copy_its_phase_and_the_math_lie_in_the_timeline_where_they_were() -> None:
    def program(cta: RoleContext) -> Ops:
        yield expect(0)
        yield load(0)
        yield wait(0)
        yield ops.Wgmma(WGMMA, 1, (("a", 0),))
        yield ops.WgmmaCommitGroup()
        yield ops.WgmmaWaitGroup(0)

    timeline = run(role(program, num_warps=4)).timeline
    there = hit_cycles(4096) + 100
    (copy,), (flip,), (mma,) = timeline.copies, timeline.flips, timeline.mmas
    assert (copy.buffer, copy.stage, copy.start_cycle, copy.end_cycle) == ("a", 0, 0, pytest.approx(there))
    assert (flip.barrier, flip.cycle) == ("full", pytest.approx(there))
    assert (mma.start_cycle, mma.end_cycle) == (pytest.approx(there), pytest.approx(there + WGMMA_CYCLES))


def test_a_kernel_that_takes_no_time_does_no_flops_a_second() -> None:
    def program(cta: Any) -> Iterator[Any]:
        del cta
        yield from ()

    role = WarpRole(name="nobody", num_warps=1, program=program)
    result = simulate(Launch(kernel="nothing", num_ctas=1, num_tiles=1, roles=(role,)), load_gpu("toy"))
    assert (result.cycles == 0.0) == (result.time_us == 0.0)
    assert result.tflops == 0.0


# ---------------------------------------------------------------------- accesses of no bytes


@pytest.mark.parametrize("gpu", ["toy", "h200_sxm", "a100_sxm_40gb"])
@pytest.mark.parametrize("way", ["load", "load past L1", "cp.async", "cp.async past L1"])
def test_accesses_whose_lanes_are_all_inactive_end_alone_and_among_others(gpu: str, way: str) -> None:
    nothing = AccessPattern(num_requests=4, num_wavefronts=4)

    def idle(cta: RoleContext) -> Ops:
        for step in range(3):
            if way.startswith("load"):
                yield ops.Use((yield ops.GlobalLoad("in", (cta.cta_idx, step), nothing, allocates_in_l1=way == "load")))
            else:
                yield ops.CpAsync("in", (cta.cta_idx, step), nothing, "a", step, allocates_in_l1=way == "cp.async")
                yield ops.CpAsyncCommitGroup()
                yield ops.CpAsyncWaitGroup(0)

    def busy_with_loads(cta: RoleContext) -> Ops:
        for step in range(8):
            yield ops.Use((yield ops.GlobalLoad("in", (cta.cta_idx, 16 + step), contiguous(4096))))

    alone = run(role(idle, num_warps=4), gpu=load_gpu(gpu), num_ctas=2)
    others = run(role(busy_with_loads, num_warps=4), gpu=load_gpu(gpu), num_ctas=2)
    both = run(role(idle, num_warps=4), role(busy_with_loads, "busy", 4), gpu=load_gpu(gpu), num_ctas=2)
    assert 0.0 < alone.cycles < 3 * both.cycles
    assert 0.99 * others.cycles < both.cycles < alone.cycles + 2 * others.cycles
