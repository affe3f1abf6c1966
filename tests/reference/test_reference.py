"""The reference says what the engine says: of random programs, of kernel models, and of examples worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpusim import Buffer, GpuSpec, Launch, Mbarrier, NamedBarrier, WarpRole, load_gpu
from gpusim.errors import DeadlockError, HazardError, LaunchError
from gpusim.reference import core_only, simulate
from gpusim.workload import ops
from gpusim.workload.atoms import mma_sync, wgmma
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern
from tests.engine.launches import CASES, FAILING

from .plays import NUM_PROGRAMS, by_engine, by_reference, cycles_of, differences, play
from .programs import case

TOY = load_gpu("toy")
Program = Callable[[RoleContext], Iterator[Any]]

L2_CYCLES, MEMORY_CYCLES, TMA_CYCLES, HIT_CYCLES = 200, 400, 100, 40
PORT, WIRE = 64, 32
"""Bytes a cycle that an SM takes in, and all of the slices; and that memory gives."""
WGMMA = wgmma(256, BF16)
WGMMA_CYCLES = 512  # 2 x 64 x 256 x 16 FLOP at 1024 a cycle


def changed(**parts: dict[str, Any]) -> GpuSpec:
    return replace(TOY, **{name: replace(TOY.component(name), **values) for name, values in parts.items()})


def launch(*programs: Program, num_warps: int = 1, **more: Any) -> Launch:
    """One CTA, a role for each program, a ring ``a`` of 4 stages, and rings ``full`` and ``empty`` of 4 mbarriers."""
    roles = tuple(WarpRole(name=f"role{idx}", num_warps=num_warps, program=item) for idx, item in enumerate(programs))
    given = {
        "num_ctas": 1, "buffers": (Buffer(name="a", stage_bytes=8192, num_stages=4),),
        "mbarriers": tuple(Mbarrier(name=name, num_arrivals=1, num_stages=4) for name in ("full", "empty")), **more,
    }
    return Launch(kernel="test", num_tiles=given["num_ctas"], roles=roles, **given)


def cycles(*programs: Program, gpu: GpuSpec = TOY, is_warm: bool = True, **more: Any) -> float:
    """What they take, as both say; all data are in L2 where it ``is_warm``."""
    return cycles_of(launch(*programs, **more), gpu, is_warm=is_warm)


def lines(num: int) -> AccessPattern:
    """One warp's loads or stores of so many lines."""
    return AccessPattern(num_requests=num, num_sectors=4 * num, num_lines=num, num_wavefronts=num, num_bytes=128 * num)


def load(slot: int, num_bytes: int, step: int | None = None, **more: Any) -> ops.TmaLoad:
    return ops.TmaLoad("A", (0, slot if step is None else step), num_bytes, num_bytes, 1, "a", slot, "full", **more)


# ---------------------------------------------------------------------- random programs


@pytest.mark.parametrize("seed", range(NUM_PROGRAMS))
def test_a_random_program_takes_what_the_engine_says(seed: int) -> None:
    found = case(seed)
    assert differences(play(seed).said, by_engine(found.launch, found.gpu, is_warm=found.is_warm)) == []


KERNELS = """
    gemm_cooperative gemm_cooperative_three gemm_warp_specialized_batch gemm_by_cp_async_producer gemm_fp8 gemm_triton_meets
    elementwise_add_ragged reduction_row layer_norm_warm gather_sequential sgemm_naive h100_gemm a100_transpose toy_gemm
    toy_transpose far_words_2 far_words_4_toy traded_registers hand_overs swaps_toy named_tiles rereads_evicts
    rereads_toy_evicts rewrites_h200 rewrites_h200_warm rewrites_toy hazard_on_h200 deadlock_on_h200
"""
"""Launches of the engine's own tests that lie within the core."""
ENDS = [
    name for name in (item.name for item in FAILING if item.gpu == "toy")
    if not name.startswith("refusal") and name != "hazard_long_load_before_full"  # of long loads, beyond the core
]  # fmt: skip


@pytest.mark.parametrize("name", [*KERNELS.split(), *ENDS])
def test_a_kernel_takes_what_the_engine_says_on_the_core_of_its_gpu(name: str) -> None:
    gpu, is_warm = core_only(CASES[name].spec), CASES[name].l2 == "warm"
    found = by_reference(CASES[name].make(gpu), gpu, is_warm=is_warm)
    assert differences(found, by_engine(CASES[name].make(gpu), gpu, is_warm=is_warm)) == []
    assert bool(found.end[0]) == name.startswith(("hazard", "deadlock"))


# ---------------------------------------------------------------------- copies


def one_tile(num_bytes: int) -> Program:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.MbarrierArriveExpectTx("full", 0, num_bytes)
        yield load(0, num_bytes)
        yield ops.MbarrierWait("full", 0, 0)

    return program


@pytest.mark.parametrize("num_bytes", [128, 1024, 8192])
def test_a_tile_takes_its_bytes_and_latencies(num_bytes: int) -> None:
    assert cycles(one_tile(num_bytes)) == num_bytes / PORT + L2_CYCLES + TMA_CYCLES
    assert cycles(one_tile(num_bytes), is_warm=False) == num_bytes / WIRE + MEMORY_CYCLES + TMA_CYCLES


@pytest.mark.parametrize("num_sms", [1, 2, 3, 4])
def test_sms_share_the_slices(num_sms: int) -> None:
    found = cycles(one_tile(6400), num_ctas=num_sms)
    assert found == pytest.approx(num_sms * 6400 / PORT + L2_CYCLES + TMA_CYCLES)


def test_copies_of_one_phase_arrive_together_and_others_one_after_the_other() -> None:
    def of_one_phase(cta: RoleContext) -> Iterator[Any]:
        yield ops.MbarrierArriveExpectTx("full", 0, 2048 + 1024)
        yield load(0, 2048, 0)
        yield load(0, 1024, 1)
        yield ops.MbarrierWait("full", 0, 0)

    def of_two(cta: RoleContext) -> Iterator[Any]:
        for slot, num_bytes in enumerate((2048, 1024)):
            yield ops.MbarrierArriveExpectTx("full", slot, num_bytes)
            yield load(slot, num_bytes)
        yield ops.MbarrierWait("full", 0, 0)
        yield ops.Fma(1)
        yield ops.MbarrierWait("full", 1, 0)

    behind = L2_CYCLES + TMA_CYCLES
    assert cycles(of_one_phase) == 3072 / PORT + behind
    assert cycles(of_two) == 3072 / PORT + behind  # the second ends behind the first


def test_a_multicast_is_read_once() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.MbarrierArriveExpectTx("full", 0, 4096)
        yield ops.ClusterArrive()
        yield ops.ClusterWait()
        if cta.cta_rank == 0:
            yield load(0, 4096, multicast=(0, 1, 2, 3))
        yield ops.MbarrierWait("full", 0, 0)

    issue = 1
    assert cycles(program, num_ctas=4, cluster_size=4) == issue + 4096 / PORT + L2_CYCLES + TMA_CYCLES


@pytest.mark.parametrize("num_stages", [1, 2, 3, 4])
def test_a_ring_takes_what_its_stages_do_not_hide(num_stages: int) -> None:
    """A step's copy takes its bytes at the port and a latency; its stage is free again when its math is done."""
    num_steps, num_bytes, math = 12, 4096, 100

    def produce(cta: RoleContext) -> Iterator[Any]:
        for step in cta.loop(num_steps):
            slot, turn = step % num_stages, step // num_stages
            if turn:
                yield ops.MbarrierWait("empty", slot, (turn - 1) % 2)
            yield ops.MbarrierArriveExpectTx("full", slot, num_bytes)
            yield load(slot, num_bytes, step)

    def consume(cta: RoleContext) -> Iterator[Any]:
        for step in cta.loop(num_steps):
            slot = step % num_stages
            yield ops.MbarrierWait("full", slot, step // num_stages % 2)
            yield ops.Fma(math)
            yield ops.MbarrierArrive("empty", slot)

    copy = num_bytes / PORT + L2_CYCLES + TMA_CYCLES
    there, done = [], []
    for step in range(num_steps):
        begins = done[step - num_stages] if step >= num_stages else 0.0
        passed = max(begins, there[-1] - L2_CYCLES - TMA_CYCLES if there else 0.0) + num_bytes / PORT
        there.append(passed + L2_CYCLES + TMA_CYCLES)
        done.append(max(there[-1], done[-1] if done else 0.0) + math)
    assert cycles(produce, consume) == done[-1]
    assert done[-1] >= copy + math


# ---------------------------------------------------------------------- who is first


def busy_for(num_cycles: float) -> GpuSpec:
    """A GPU on which two shuffles, one behind the other, take so long, and hardly any turns of the schedulers."""
    return changed(warp_scheduler={"shuffle_cycles": num_cycles / 2})


MUFU_CYCLES = 8
"""16 lanes of an SM, of which one warp reaches a quarter."""


def ahead() -> tuple[Program, Program]:
    """A role that is busy and then loads, and one that loads at once, behind it in the order of roles."""

    def late(cta: RoleContext) -> Iterator[Any]:
        yield ops.Shfl(2, is_chain=True)
        token = yield ops.GlobalLoad("A", (0, 0), lines(1), False)
        yield ops.Use(token)

    def early(cta: RoleContext) -> Iterator[Any]:
        token = yield ops.GlobalLoad("B", (0, 0), lines(1), False)
        yield ops.Use(token)
        yield ops.Mufu(100)  # long enough to tell when the kernel ends

    return late, early


@pytest.mark.parametrize(("num_cycles", "asks_first"), [(48, True), (49, False)])
def test_who_is_48_cycles_ahead_asks_first_and_who_is_more_waits_for_the_clock(num_cycles: int, asks_first: bool) -> None:
    """The load/store unit serves in the order in which it was asked; a cursor of 48 cycles asks at cycle 0."""
    issue, unit = 1, 1
    begins = num_cycles + issue + unit if asks_first else issue
    expected = begins + 128 / PORT + L2_CYCLES + 100 * MUFU_CYCLES
    assert cycles(*ahead(), gpu=busy_for(num_cycles)) == expected


def test_a_gap_that_a_role_ahead_has_left_is_filled_by_who_is_ready_first() -> None:
    """The first role queues 4 wavefronts from cycle 41 on, while the clock is at 0; the second reads 32 before that."""

    def late(cta: RoleContext) -> Iterator[Any]:
        yield ops.Shfl(2, is_chain=True)
        yield ops.SharedStore(AccessPattern(num_requests=1, num_wavefronts=4, num_bytes=128))

    def early(cta: RoleContext) -> Iterator[Any]:
        token = yield ops.SharedLoad(AccessPattern(num_requests=1, num_wavefronts=32, num_bytes=128))
        yield ops.Use(token)
        yield ops.Mufu(20)

    issue, latency, last = 1, 20, 1
    assert cycles(late, early, gpu=busy_for(40)) == issue + 32 - last + latency + 20 * MUFU_CYCLES


# ---------------------------------------------------------------------- arithmetic


def test_roles_share_a_pipe() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.Fma(100)

    assert cycles(program, program, num_warps=4) == 200


@pytest.mark.parametrize("num_issues", [1, 3])
def test_wgmma_goes_one_after_the_other_and_a_wait_is_a_latency_longer(num_issues: int) -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.Wgmma(WGMMA, num_issues)
        yield ops.WgmmaCommitGroup()
        yield ops.WgmmaWaitGroup(0)

    gpu = changed(tensor_core={"wgmma_latency_cycles": 25.0})
    assert cycles(program, num_warps=4, gpu=gpu) == num_issues * WGMMA_CYCLES + 25


def test_mma_sync_of_two_roles_takes_turns() -> None:
    """Who multiplies goes on until it has stopped for 16 cycles; the other one's math follows from where it ended."""
    num_issues, each = 10, 32  # a warp on each sub-core: 2 x 16 x 8 x 16 FLOP at 128 a cycle

    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.Fma(20)  # beyond the first 16 cycles, which are nobody's turn
        yield ops.MmaSync(mma_sync(BF16), num_issues)
        yield ops.RangeStart(ops.Section.EPILOGUE)  # the sums are read
        yield ops.RangeEnd()

    begin, whole, latency = 20, num_issues * each, 32
    assert cycles(program, program, num_warps=4) == begin + 2 * whole - each + latency


# ---------------------------------------------------------------------- what goes wrong


def test_a_deadlock_says_who_waits_for_what() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.Fma(10)
        yield ops.MbarrierWait("full", 2, 0)

    with pytest.raises(DeadlockError) as error:
        simulate(launch(program), TOY)
    said = "role 'role0' of CTA 0 waits for mbarrier full[2] parity 0 (1 of 1 arrivals missing) since cycle 10"
    assert str(error.value) == f"test: deadlock: {said}"


def test_a_stage_that_is_read_before_it_is_full_is_a_hazard() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.MbarrierArriveExpectTx("full", 0, 1024)
        yield load(0, 1024)
        yield ops.SharedLoad(lines(1), "a", 0)

    with pytest.raises(HazardError, match=r"role 'role0' of CTA 0: a\[0\] is read at cycle 1 before it is full"):
        simulate(launch(program), TOY)


def test_threads_too_many_for_a_named_barrier_are_a_hazard() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.BarSync("b")

    found = launch(program, num_warps=2, named_barriers=(NamedBarrier(name="b", num_threads=32),))
    with pytest.raises(HazardError, match="barrier 'b': 64 threads arrived by cycle 0, it was declared for 32"):
        simulate(found, TOY)


def test_a_name_that_is_not_declared_is_refused() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.MbarrierWait("fulll", 0, 0)

    with pytest.raises(LaunchError, match=r"role 'role0' of CTA 0: uses .'fulll', 0., which the launch does not declare"):
        simulate(launch(program), TOY)


def test_a_gpu_with_more_than_the_core_is_refused() -> None:
    with pytest.raises(LaunchError, match="use core_only"):
        simulate(launch(one_tile(128)), load_gpu("h200_sxm"))


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (ops.ImadWide(3), r"yields ImadWide \(IMAD.WIDE\), wants an op of the core"),
        (ops.Alu(3, is_chain=True, num_beside=6.0), r"yields Alu \(code that is slower beside wgmma\), wants an op"),
        (ops.SharedLoad(AccessPattern(num_requests=2, num_wavefronts=33, num_bytes=256)), "loads 33 wavefronts at once"),
        ("an op", r"yields str \(an op\), wants an op of the core"),
    ],
)
def test_an_op_beyond_the_core_is_refused(op: Any, said: str) -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield op

    with pytest.raises(LaunchError, match=said):
        simulate(launch(program), TOY)


def test_ffma_of_a_main_loop_take_no_turns_where_an_sm_has_one_cta() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.Fma(100, num_runs=4)

    alone = TOY.device.smem_per_sm_bytes // 2
    assert cycles(program, num_warps=4, num_ctas=8, extra_smem_bytes=alone) == 200
    with pytest.raises(LaunchError, match="takes turns at the FMA pipe with CTAs of its SM, which is beyond the core"):
        simulate(launch(program, num_warps=4, num_ctas=8), TOY)
