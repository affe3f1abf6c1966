"""What the schedules are for: each is faster where it should be, and waits, computes and refills in its order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import pytest

from gpusim.errors import KernelError
from gpusim.kernel_models.gemm import GemmParams
from gpusim.kernel_models.gemm.warp_specialized import PRODUCER_BEFORE_COPIES
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.simulate.result import Result
from gpusim.simulate.run import simulate
from gpusim.workload import ops
from gpusim.workload.compiled_code import NO_CODE, CompiledCode

from .conftest import dry_run, ops_of

Run = Callable[..., Result]

LONG_EPILOGUE = {"m": 4096, "n": 4096, "k": 512, "tile": "128x128x64", "activation": "gelu"}


def test_pingpong_beats_cooperative_where_the_epilogue_is_long(run: Run) -> None:
    """By TMA; stores out of registers, for which both wait, would wait behind the other warpgroup's operand reads."""
    cooperative = run(**LONG_EPILOGUE, schedule="cooperative", persistent=True, epilogue="tma_store")
    pingpong = run(**LONG_EPILOGUE, schedule="pingpong", epilogue="tma_store")
    assert pingpong.cycles < cooperative.cycles  # by a tenth: copies of the next tile wait behind stores in both


def test_persistent_hides_the_epilogue_behind_the_next_tiles_loads(run: Run) -> None:
    alone = run(**LONG_EPILOGUE, schedule="cooperative")
    persistent = run(**LONG_EPILOGUE, schedule="cooperative", persistent=True)
    assert persistent.cycles < alone.cycles


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "warp_specialized"},
        {"schedule": "cooperative"},
        {"schedule": "pingpong"},
        {"schedule": "multistage"},
        {"schedule": "multistage", "math": "mma_sync"},
        {"schedule": "multistage", "math": "mma_sync", "copy": "tma"},
    ],
    ids=lambda options: "-".join(options.values()),
)
def test_more_stages_do_not_hurt(run: Run, options: dict[str, str]) -> None:
    tile = "64x128x64" if options["schedule"] == "pingpong" else "128x128x64"
    cycles = [run(m=1024, n=1024, k=1024, tile=tile, stages=num, **options).cycles for num in (1, 2, 3, 4, 5)]
    for fewer, more in pairwise(cycles):
        assert more <= 1.01 * fewer
    assert cycles[0] > 1.5 * cycles[3]


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "warp_specialized", "tile": "128x128x64", "stages": 1},
        {"schedule": "warp_specialized", "tile": "128x128x64", "stages": 5},
        {"schedule": "cooperative", "tile": "128x256x64", "stages": 3},
        {"schedule": "cooperative", "tile": "128x256x64", "stages": 3, "persistent": True},
    ],
    ids=lambda options: "-".join(str(value) for value in options.values()),
)
def test_arrivals_of_every_thread_cost_a_wake_and_their_turns_a_k_step(run: Run, options: dict[str, Any]) -> None:
    """cuda::barrier: a slot that is full is waited for all the same, as its phase wants those who wait.

    One CTA: of many what is left of it depends on which of their requests comes first.
    """
    tile_m, tile_n = map(int, options["tile"].split("x")[:2])
    one: dict[str, Any] = {"m": tile_m, "n": tile_n, "k": 2048, "compiled_code": NO_CODE, **options}
    elected, every = (run(mbarrier_arrive=arrivals, **one) for arrivals in ("warpgroup", "thread"))
    spec, num_warps = load_gpu("h200_sxm").mbarrier, 8 if options["schedule"] == "cooperative" else 4
    assert spec is not None
    each = spec.try_wait_cycles + spec.wake_cycles + 2 * num_warps * spec.arrive_interval_cycles
    cost = every.cycles - elected.cycles
    assert cost < 2.0 * each * (2048 // 64)
    assert cost > 0.0 if options["stages"] < 5 else cost == 0.0  # five stages hide it


def test_arrivals_of_every_thread_are_skipped_as_they_are_simulated(run: Run) -> None:
    shape: dict[str, Any] = {"m": 1024, "n": 2048, "k": 8192, "tile": "128x256x64", "stages": 3, "mbarrier_arrive": "thread"}
    assert run(**shape).cycles == pytest.approx(run(**shape).cycles, rel=5e-3)


@pytest.mark.parametrize("mode", ["in_kernel", "second_kernel"])
def test_split_k_helps_where_tiles_are_few_and_k_is_long(run: Run, mode: str) -> None:
    whole = run(m=128, n=256, k=16384)
    parts = run(m=128, n=256, k=16384, split_k=16, split_k_mode=mode)
    assert parts.cycles < 0.25 * whole.cycles


def test_split_k_costs_where_tiles_fill_the_device(run: Run) -> None:
    sizes = {"m": 1408, "n": 3072, "k": 256}  # 132 tiles
    assert run(**sizes, split_k=2).cycles > run(**sizes).cycles


def test_a_second_kernel_is_reported(run: Run) -> None:
    result = run(m=128, n=256, k=4096, split_k=4, split_k_mode="second_kernel", activation="gelu")
    assert any("2 kernels" in remark and "gemm_reduction" in remark for remark in result.remarks)
    first = run(m=128, n=256, k=4096, split_k=4)
    assert not any("kernels" in remark for remark in first.remarks)


@pytest.mark.parametrize("name", ["a100_sxm_40gb", "a100_sxm_80gb"])
@pytest.mark.parametrize("dtype", ["bf16", "tf32", "int8", "fp32"])
def test_a100_launches_work(name: str, dtype: str) -> None:
    gpu = load_gpu(name)
    for epilogue in ("direct", "smem"):
        launch = GemmParams(m=512, n=512, k=256, dtype=dtype, epilogue=epilogue).launch(gpu)
        assert launch.features <= {"cp_async", "mma_sync"}
        assert not ops_of(launch, ops.Stmatrix)  # sm_90
        assert simulate(launch, gpu, clock="max").cycles > 0


def test_a_tile_of_one_k_step_works_with_any_number_of_stages(run: Run) -> None:
    for options in ({}, {"math": "mma_sync"}, {"schedule": "multistage"}, {"copy": "cp_async"}):
        for stages in (1, 2, 4):
            assert run(m=64, n=64, k=8, tile="64x64x64", stages=stages, **options).cycles > 0


# -------------------------------------------------------------------------------------- order of ops


def words(launch_ops: list[tuple[int, ops.Op]], *kinds: type[ops.Op]) -> list[str]:
    """Names of the ops of these kinds, with the stage where there is one."""
    found = []
    for _, op in launch_ops:
        if isinstance(op, kinds):
            stage = getattr(op, "stage", None)
            if isinstance(op, ops.Wgmma):
                stage = op.reads[0][1]
            found.append(type(op).__name__ + ("" if stage is None else f" {stage}"))
    return found


def test_a_producer_waits_announces_and_copies(h200: GpuSpec) -> None:
    launch = GemmParams(m=128, n=256, k=192, tile="128x256x64", stages=2).launch(h200)
    of_stage = [["MbarrierWait", "MbarrierArriveExpectTx", "TmaLoad", "TmaLoad"]] * 3
    expected = [f"{word} {k % 2}" for k, step in enumerate(of_stage) for word in step]
    found = words(
        dry_run(launch)["producer"], ops.MbarrierWait, ops.MbarrierArriveExpectTx, ops.TmaLoad
    )
    assert found == expected


@pytest.mark.parametrize(
    ("depth", "expected"),
    [
        (0, "W0 M0 A0 W1 M1 A1 W2 M2 A2"),
        (1, "W0 M0 W1 M1 A0 W2 M2 A1 A2"),
        (2, "W0 M0 W1 M1 W2 M2 A0 A1 A2"),
    ],
)
def test_a_consumer_gives_a_slot_back_when_its_group_has_ended(
    h200: GpuSpec, depth: int, expected: str
) -> None:
    launch = GemmParams(m=128, n=256, k=192, tile="128x256x64", wgmma_depth=depth).launch(h200)
    short = {"MbarrierWait": "W", "Wgmma": "M", "MbarrierArrive": "A"}
    found = words(dry_run(launch)["consumer0"], ops.MbarrierWait, ops.Wgmma, ops.MbarrierArrive)
    assert " ".join(short[word] + stage for word, stage in (item.split() for item in found)) == expected


@pytest.mark.parametrize(
    ("refill", "more", "expected"),
    [
        ("after_mma", {}, "L0 L1 M0 L2 M1 L0 M2 M0"),
        ("before_mma", {}, "L0 L1 L2 M0 L0 M1 M2 M0"),
        ("after_wait", {}, "L0 L1 M0 L2 M1 L0 M2 M0"),
        ("after_mma", {"wgmma_depth": 1}, "L0 M0 L1 M1 L2 M2 L0 M0"),
        ("after_wait", {"wgmma_depth": 1}, "L0 L1 M0 L2 M1 L0 M2 M0"),  # a step further ahead
    ],
)
def test_refill_says_whether_a_load_goes_before_its_math(
    h200: GpuSpec, refill: str, more: dict[str, Any], expected: str
) -> None:
    launch = GemmParams(
        m=64, n=64, k=256, tile="64x64x64", schedule="multistage", stages=3, prefetch=refill, **more
    ).launch(h200)
    found = [
        f"L{op.stage}" if isinstance(op, ops.TmaLoad) else f"M{op.reads[0][1]}"
        for _, op in ops_of(launch, ops.TmaLoad, ops.Wgmma)
        if isinstance(op, ops.Wgmma) or op.tensor == "A"
    ]
    assert " ".join(found) == expected


@pytest.mark.parametrize(
    ("meets", "expected"), [(None, "W M S E S L S L W M S"), ("before_copies", "W M S E S L S L W M S"),
                            ("before_mma", "W S M S E L L W S M S")],
)  # fmt: skip
def test_behind_the_wait_all_meet_before_each_copy_or_before_the_math(
    h200: GpuSpec, meets: str | None, expected: str
) -> None:
    """As Triton 3.6 compiles it nobody meets between the wait for a slot and its math."""
    launch = GemmParams(
        m=64, n=64, k=128, tile="64x64x64", schedule="multistage", stages=2, prefetch="after_wait", wgmma_depth=1,
        copy="tma", cta_barrier=meets,
    ).launch(h200)  # fmt: skip
    names = {
        ops.MbarrierWait: "W", ops.Wgmma: "M", ops.Syncthreads: "S", ops.MbarrierArriveExpectTx: "E", ops.TmaLoad: "L",
    }  # fmt: skip
    found = " ".join(names[type(op)] for _, op in ops_of(launch, *names))
    assert expected in found
    assert launch.params["cta_barrier"] == (meets or "before_copies")


def test_fragments_are_read_a_slice_ahead_of_their_math(h200: GpuSpec) -> None:
    sizes: dict[str, Any] = {"m": 64, "n": 64, "k": 64, "tile": "64x64x32", "math": "mma_sync", "stages": 3, "warps": "2x2"}
    launch = GemmParams(**sizes, compiled_code=NO_CODE).launch(h200)
    found = words(dry_run(launch)["math"], ops.Ldmatrix, ops.MmaSync)
    first, second, math = ["Ldmatrix 0"] * 2, ["Ldmatrix 1"] * 2, ["MmaSync"] * 2  # in parts: math goes on as they come
    assert found == [*first, *first, *math, *second, *math, *second, *math, *math]


def test_copies_meeting_and_first_use_lie_where_they_are_said_to_in_the_math(h200: GpuSpec) -> None:
    """Slices of 8 mma.sync, the last 4 of which wait for the other rows; two k-steps of two slices."""
    sizes: dict[str, Any] = {"m": 64, "n": 64, "k": 96, "tile": "64x64x32", "math": "mma_sync", "warps": "2x2", "stages": 2}

    def told(**places: float) -> str:
        launch = GemmParams(**sizes, compiled_code=NO_CODE.replaced(mainloop=places)).launch(h200)
        kinds = (ops.CpAsync, ops.Syncthreads, ops.Ldmatrix, ops.Use, ops.MmaSync)
        short = {ops.CpAsync: "L", ops.Syncthreads: "S", ops.Ldmatrix: "R", ops.Use: "U"}
        found = [op for cta, op in ops_of(launch, *kinds) if not cta]
        begin = next(idx for idx, op in enumerate(found) if isinstance(op, ops.Syncthreads)) + 3  # of the first k-step
        return " ".join(str(op.num_issues) if isinstance(op, ops.MmaSync) else short[type(op)] for op in found[begin:])

    assert told().startswith("L L R R U 4 U 4 S R R U 4 U 4 L L R R")
    assert told(math_before_copies=0.5).startswith("U 4 L L R R U 4 S R R U 4 U 4 U 4 L L")
    assert told(math_before_use=0.5).startswith("L L R R U 4 U U 4 S R R 4 U 4")
    assert told(math_before_barrier=1.25).startswith("L L R R U 4 U 4 U 2 S R R 2 U 4 L L")
    copies = {"math_before_copies": 0.5}  # no meeting before them
    assert told(**copies, math_before_barrier=0.25) == told(**copies, math_before_barrier=0.5) != told(**copies)
    for places in ({}, {"math_before_copies": 0.6}, {"math_before_use": 0.3}, {"math_before_barrier": 1.9}):
        assert sum(int(word) for word in told(**places).split() if word.isdigit()) == 3 * 2 * 8


def test_single_fragments_are_read_before_their_own_math_behind_the_meeting_and_the_load(h200: GpuSpec) -> None:
    sizes: dict[str, Any] = {"m": 64, "n": 64, "k": 64, "tile": "64x64x32", "math": "mma_sync", "warps": "2x2"}
    kinds = (ops.CpAsyncWaitGroup, ops.Syncthreads, ops.CpAsync, ops.Ldmatrix, ops.MmaSync)
    short = {"CpAsyncWaitGroup": "W", "Syncthreads": "S", "CpAsync": "L", "Ldmatrix": "R", "MmaSync": "M"}

    def told(**options: Any) -> str:
        launch = GemmParams(**sizes, **options).launch(h200)
        return " ".join(short[word.split()[0]] for word in words(dry_run(launch)["math"], *kinds))

    each = "R R M M"  # 16 rows of A and 16 columns of B, then all others
    assert told(stages=2, register_stages=1) == f"L L W S L L {each} {each} W S {each} {each}"
    assert told(stages=2, register_stages=1, prefetch="after_mma") == f"L L W S {each} L L {each} W S {each} {each}"
    assert told(stages=1, register_stages=1) == f"L L W S {each} {each} S L L W S {each} {each} S"
    assert told(stages=1) == "L L W S R R M M S L L W S R R M M S"


@pytest.mark.parametrize(
    ("register_stages", "warps", "num"),
    [(1, "2x2", 1), (1, "2x4", 2), (1, "4x2", 2), (1, "4x4", 4), (1, "3x2", 1),
     (2, "2x4", 2)],
)
def test_warps_of_a_sub_core_are_in_teams_of_their_own_that_do_together_what_one_would(
    h200: GpuSpec, warps: str, num: int, register_stages: Literal[1, 2]
) -> None:
    """A team for each warp of a sub-core; the first copies A, the second B; all meet at the CTA's barrier."""
    tile = (192 if warps == "3x2" else 128, 128, 32)
    params = GemmParams(m=2 * tile[0], n=128, k=96, tile=tile, math="mma_sync", warps=warps, register_stages=register_stages)
    launch = params.launch(h200)
    assert [role.num_warps * num for role in launch.roles] == [launch.num_warps] * num
    told = dry_run(launch)
    rows, columns = tile[0] // int(warps[0]), 128 // int(warps[2])
    every = [op for of_role in told.values() for cta, op in of_role if cta == 0]
    reads = [op.access for op in every if isinstance(op, ops.Ldmatrix)]
    instructions = (rows + columns) // 16 * launch.num_warps
    assert sum(read.num_requests for read in reads) == 3 * 2 * instructions
    assert sum(read.num_bytes for read in reads) == 3 * 2 * instructions * 512
    for idx, of_role in enumerate(told.values()):
        mine = [op for cta, op in of_role if cta == 0]
        math = sum(op.num_issues for op in mine if isinstance(op, ops.MmaSync))
        assert math == 3 * 2 * (rows // 16) * (columns // 8)
        copied = {op.tensor for op in mine if isinstance(op, ops.CpAsync)}
        assert copied == ({"A", "B"} if num == 1 else {"A"} if idx == 0 else {"B"} if idx == 1 else set())
        assert sum(isinstance(op, ops.Syncthreads) for op in mine) == 3


def test_single_fragments_are_slower_and_need_fewer_registers(run: Run, h200: GpuSpec) -> None:
    sizes = {"m": 1024, "n": 1024, "k": 1024, "tile": "128x128x32", "math": "mma_sync", "warps": "2x2"}
    kinds = (2, 1)
    of_threads = [GemmParams(**sizes, register_stages=kind).launch(h200).registers_per_thread for kind in kinds]
    assert of_threads[0] - of_threads[1] == 4 * 4 + 8 * 2  # 64 x 64 a warp: fragments of one slice
    double, single = (run(**sizes, register_stages=kind) for kind in kinds)
    assert single.cycles > double.cycles
    name = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
    assert single.counters[name] == double.counters[name]


@pytest.mark.parametrize(("pad", "wavefronts"), [(0, 4), (8, 1), (16, 2), (24, 1), (64, 4)])
def test_padding_spreads_rows_over_the_banks(h200: GpuSpec, pad: int, wavefronts: int) -> None:
    """Eight rows of a matrix are 64 + 2 pad bytes apart, 16 bytes each; 128 bytes a wavefront."""
    sizes = {"m": 64, "n": 64, "k": 32, "tile": "64x64x32", "math": "mma_sync", "warps": "2x2", "stages": 2}
    launch = GemmParams(**sizes, swizzle="none", pad=pad).launch(h200)
    reads = [op for _, op in ops_of(launch, ops.Ldmatrix)]
    assert {op.access.num_wavefronts * 128 for op in reads} == {wavefronts * op.access.num_bytes for op in reads}
    assert [buffer.stage_bytes for buffer in launch.buffers] == [64 * (64 + 2 * pad)] * 2
    assert launch.smem_bytes == 2 * 2 * 64 * (64 + 2 * pad)


def test_what_mends_conflicts_of_padded_rows_takes_the_padding_back(h200: GpuSpec) -> None:
    sizes: dict[str, Any] = {"m": 64, "n": 64, "k": 32, "tile": "64x64x32", "math": "mma_sync", "warps": "2x2"}
    padded = GemmParams(**sizes, pad=16).resolved(h200)
    mended = padded.model_copy(update={"swizzle": "64B", "pad": 0}).launch(h200)
    (remark,) = padded.launch(h200).remarks
    assert "2 times" in remark and "--swizzle 64B --pad 0" in remark
    assert mended.remarks == ()


@pytest.mark.parametrize("tile_k", [1, 2, 8, 12, 32])
def test_an_fma_kernel_multiplies_each_k_once_and_waits_for_a_slot_before_the_last(h200: GpuSpec, tile_k: int) -> None:
    sizes: dict[str, Any] = {"m": 64, "n": 64, "k": 2 * tile_k, "dtype": "fp32", "layout": "nt", "warps": "2x2", "stages": 2}
    program = dry_run(GemmParams(**sizes, tile=f"64x64x{tile_k}").launch(h200))["math"]
    math = [op.num_instructions for _, op in program if isinstance(op, ops.Fma)]
    of_one_k = 32 * 32 // 32
    assert sum(math) == 2 * tile_k * of_one_k and math[0] == math[-1] == of_one_k
    second_wait = [idx for idx, (_, op) in enumerate(program) if isinstance(op, ops.CpAsyncWaitGroup)][1]
    assert sum(op.num_instructions for _, op in program[:second_wait] if isinstance(op, ops.Fma)) == (tile_k - 1) * of_one_k


@pytest.mark.parametrize("register_stages", [1, 2])
def test_vectors_of_a_second_k_come_behind_the_first_ones_math_where_they_are_read_ahead(
    h200: GpuSpec, register_stages: Literal[1, 2]
) -> None:
    params = GemmParams(
        m=64, n=64, k=64, tile="64x64x16", dtype="fp32", layout="nt", warps="2x2", register_stages=register_stages
    )
    math = [op for _, op in ops_of(params.launch(h200), ops.Fma)]
    reads = [op for _, op in ops_of(params.launch(h200), ops.SharedLoad)]
    of_one_k = 32 * 32 // 32
    num_ks = {op.num_instructions / of_one_k for op in math}
    assert num_ks == {1, 2}
    assert {op.num_parts for op in reads} == ({1} if register_stages == 1 else num_ks)


def test_an_operand_that_is_turned_on_its_way_comes_through_l1(h200: GpuSpec) -> None:
    """cp.async of four bytes has no form that goes around it."""
    launch = GemmParams(m=64, n=64, k=16, tile="64x64x16", dtype="fp32", layout="tt", stages=2, warps="2x2").launch(h200)
    assert {(op.tensor, op.allocates_in_l1) for _, op in ops_of(launch, ops.CpAsync)} == {("A", True), ("B", False)}


def test_pingpongs_consumers_take_turns_at_whole_tiles(h200: GpuSpec) -> None:
    launch = GemmParams(m=64 * 5, n=256, k=192, tile="64x256x64", stages=4, schedule="pingpong").launch(h200)
    found = dry_run(launch, num_ctas=1)
    stored = {
        role: list(dict.fromkeys(op.tile[0] for _, op in found[role] if isinstance(op, ops.GlobalStore)))
        for role in ("consumer0", "consumer1")
    }
    assert stored == {"consumer0": [0, 2, 4], "consumer1": [1, 3]}
    stages = [op.reads[0][1] for _, op in found["consumer1"] if isinstance(op, ops.Wgmma)]
    assert stages == [3, 0, 1, 1, 2, 3]  # k-steps 3 to 5 and 9 to 11 of the CTA


@pytest.mark.parametrize("consumers", [2, 3])
@pytest.mark.parametrize("split", ["m", "n"])
def test_consumers_stage_over_the_ring_only_when_all_have_left_it(
    h200: GpuSpec, consumers: int, split: str
) -> None:
    launch = GemmParams(
        m=384, n=384, k=128, tile="192x192x64" if consumers == 3 else "128x192x64", consumer_warpgroups=consumers,
        consumer_split=split, epilogue="smem",
    ).launch(h200)
    assert next(buffer for buffer in launch.buffers if buffer.name == "epilogue").is_overlay
    for idx in range(consumers):
        of_role = [op for cta, op in dry_run(launch)[f"consumer{idx}"] if cta == 0]
        barrier = next(i for i, op in enumerate(of_role) if isinstance(op, ops.BarSync) and op.barrier == "drained")
        write = next(i for i, op in enumerate(of_role) if isinstance(op, ops.Stmatrix))
        assert barrier < write


def test_cp_async_before_wgmma_passes_the_proxy_fence(h200: GpuSpec) -> None:
    for options in ({"schedule": "multistage"}, {"schedule": "warp_specialized"}):
        launch = GemmParams(m=128, n=128, k=256, copy="cp_async", math="wgmma", **options).launch(h200)
        num_fences = len(ops_of(launch, ops.FenceProxyAsync))
        assert num_fences == 4  # one a k-step
    assert not ops_of(GemmParams(m=128, n=128, k=256).launch(h200), ops.FenceProxyAsync)


def test_a_kernel_may_leave_the_fence_out_that_it_has_and_no_other(h200: GpuSpec) -> None:
    has_one: dict[str, Any] = {
        "m": 128, "n": 128, "k": 256, "schedule": "multistage", "copy": "cp_async", "math": "wgmma",
    }  # fmt: skip
    assert not ops_of(GemmParams(**has_one, fence=False).launch(h200), ops.FenceProxyAsync)
    for other in ({"copy": "tma"}, {"math": "mma_sync"}, {"schedule": "warp_specialized"}):
        with pytest.raises(KernelError, match="--no-fence: only a multistage kernel"):
            GemmParams(**has_one | other, fence=False).launch(h200)


def test_addresses_that_want_wide_multiplications_have_one_for_each_copy_of_a_warp(h200: GpuSpec) -> None:
    params: dict[str, Any] = {
        "m": 128, "n": 256, "k": 256, "tile": "128x256x64", "consumer_warpgroups": 2, "consumer_split": "m", "stages": 3,
        "schedule": "multistage", "copy": "cp_async", "math": "wgmma",
    }  # fmt: skip
    assert not ops_of(GemmParams(**params, compiled_code=NO_CODE).launch(h200), ops.ImadWide)
    code = NO_CODE.replaced(mainloop={"imad_wide_per_copy": 1})
    found = [op.num_instructions for _, op in ops_of(GemmParams(**params, compiled_code=code).launch(h200), ops.ImadWide)]
    assert found == [4.0, 8.0] * 4  # 16 and 32 KiB by eight warps, 512 bytes each; four k-steps


def test_a_cluster_meets_before_its_barriers_are_used_and_before_it_parts(h200: GpuSpec) -> None:
    launch = GemmParams(m=256, n=256, k=128, tile="128x128x64", cluster="2x1").launch(h200)
    for of_role in dry_run(launch).values():
        of_cta = [type(op) for cta, op in of_role if cta == 0]
        first, last = of_cta.index(ops.ClusterWait), len(of_cta) - 1
        assert of_cta[last] is ops.ClusterWait
        barrier_ops = (ops.MbarrierWait, ops.MbarrierArrive, ops.MbarrierArriveExpectTx, ops.TmaLoad)
        used = [idx for idx, kind in enumerate(of_cta) if kind in barrier_ops]
        assert first < min(used) <= max(used) < last


def test_programs_use_the_public_vocabulary_alone(h200: GpuSpec) -> None:
    public = {getattr(ops, name) for name in dir(ops) if isinstance(getattr(ops, name), type)}
    everything: list[dict[str, Any]] = [
        {"schedule": "pingpong", "epilogue": "tma_store"}, {"math": "mma_sync", "epilogue": "smem"},
        {"dtype": "fp32"}, {"cluster": "2x1", "split_k": 2}, {"copy": "cp_async", "beta": 1.0, "bias": True},
    ]
    for options in everything:
        launch = GemmParams(m=300, n=304, k=304, **options).launch(h200)
        for of_role in dry_run(launch, num_ctas=2).values():
            assert {type(op) for _, op in of_role} <= public


@pytest.mark.parametrize("schedule", ["multistage", "warp_specialized"])
def test_a_kernels_own_code_takes_its_chain_where_it_is_longer_than_the_math(schedule: str) -> None:
    gpu, num_steps, more = load_gpu("h200_sxm"), 24, 4000.0
    assert gpu.tma is not None
    gpu = replace(gpu, tma=replace(gpu.tma, tensormap_miss_cycles=0.0))  # code ahead of the first copy would hide that

    def cycles(step: float = 2 * more, **code: float) -> float:
        options = {
            "m": 64, "n": 64, "k": 64 * num_steps, "tile": "64x64x64", "stages": 3, "copy": "tma", "math": "wgmma",
            "schedule": schedule, "consumer_warpgroups": 1, "wgmma_depth": 1, "epilogue": "direct", "persistent": False,
        }  # fmt: skip
        own = {part: {"chain_cycles": cycles} for part, cycles in {"mainloop": step, **code}.items()}
        launch = GemmParams.model_validate(options | {"compiled_code": NO_CODE.replaced(**own)}).launch(gpu)
        return simulate(launch, gpu, clock="max", l2="warm").cycles

    base = cycles()
    assert cycles(3 * more) - base == pytest.approx(num_steps * more)
    assert cycles(tile_scheduler=more) - base == pytest.approx(more)
    # once it is longer than stores take
    assert cycles(epilogue=2 * more) - cycles(epilogue=more) == pytest.approx(more)
    if schedule == "multistage":  # those that multiply copy, too
        assert cycles(producer=more) - base == pytest.approx(num_steps * more, rel=0.1)
    else:  # the producer is ahead but for the first stage
        assert cycles(producer=more) - base == pytest.approx(more * PRODUCER_BEFORE_COPIES, rel=0.1)


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize(
    "options", [{"register_stages": 1}, {"register_stages": 2}, {"math": "fma", "dtype": "fp32", "layout": "nt"}], ids=str
)
def test_code_of_lone_warps_takes_its_chain_in_every_step(options: dict[str, Any], stages: int) -> None:
    """One warp a sub-core, behind whose math nothing is hidden."""
    gpu, num_steps = load_gpu("h200_sxm"), 24
    sizes: dict[str, Any] = {"m": 64, "n": 64, "k": 32 * num_steps, "tile": "64x64x32", "stages": stages, "warps": "2x2"}

    def cycles(step: float) -> float:
        code = NO_CODE.replaced(mainloop={"chain_cycles": step})
        params = GemmParams(**({"math": "mma_sync"} | sizes | options), copy="cp_async", compiled_code=code)
        return simulate(params.launch(gpu), gpu, clock="max", l2="warm").cycles

    assert cycles(8000.0) - cycles(6000.0) == pytest.approx(num_steps * 2000.0)


@pytest.mark.parametrize(("tile", "between"), [("64x128x64", 9.0), ("128x128x64", 12.0)])
def test_a_steps_own_code_stands_before_between_and_behind_its_wgmma(h200: GpuSpec, tile: str, between: float) -> None:
    """Of sixty instructions a fifth beside four or eight wgmma, three each between them; some until a slot is given back."""
    launch = GemmParams(
        m=int(tile.partition("x")[0]), n=128, k=128, tile=tile, stages=3, schedule="warp_specialized", consumer_warpgroups=1,
        wgmma_depth=0, compiled_code=NO_CODE.replaced(mainloop={"chain_cycles": 240.0}),
    ).launch(h200)  # fmt: skip
    kinds = (ops.MbarrierWait, ops.Alu, ops.Wgmma, ops.WgmmaWaitGroup, ops.MbarrierArrive)
    found = [op for _, op in dry_run(launch)["consumer0"] if isinstance(op, kinds)]
    begin = next(idx for idx, op in enumerate(found) if isinstance(op, ops.MbarrierWait))
    end = next(idx for idx, op in enumerate(found) if isinstance(op, ops.MbarrierWait) and idx > begin)
    told: list[float | str] = []
    for op in found[begin:end]:
        told.append(op.num_instructions if isinstance(op, ops.Alu) else type(op).__name__)
        if isinstance(op, ops.Wgmma):
            told.append(op.num_between)
    beside = [12.0 - between] if between < 12.0 else []
    assert told == [
        "MbarrierWait", 15.0, "Wgmma", between, *beside, "WgmmaWaitGroup", pytest.approx(8.4), "MbarrierArrive",
        pytest.approx(24.6),
    ]  # fmt: skip


def test_a_cluster_barrier_without_a_cluster_is_refused(h200: GpuSpec) -> None:
    with pytest.raises(KernelError, match="--cluster-sync relaxed: only CTAs of a cluster meet so"):
        GemmParams(m=256, n=256, k=256, schedule="warp_specialized", cluster_sync="relaxed").launch(h200)


@pytest.mark.parametrize("schedule", ["multistage", "warp_specialized"])
def test_serialized_wgmma_is_waited_for_one_by_one(h200: GpuSpec, schedule: str) -> None:
    """Four wgmma of a k-step, 128 bytes deep: no group is in flight where the next begins."""
    options: dict[str, Any] = {"m": 64, "n": 64, "k": 8192, "tile": "64x64x64", "schedule": schedule, "stages": 4}

    def made(*, serialized: bool) -> Any:
        code = NO_CODE.replaced(mainloop={"wgmma_serialized": serialized})
        return GemmParams(**options, consumer_warpgroups=1, compiled_code=code).launch(h200)

    role = "math" if schedule == "multistage" else "consumer0"
    kinds = (ops.Wgmma, ops.WgmmaCommitGroup, ops.WgmmaWaitGroup)
    found = [op for _, op in dry_run(made(serialized=True))[role] if isinstance(op, kinds)][:12]
    assert [type(op) for op in found] == list(kinds) * 4
    assert {op.num_issues for op in found if isinstance(op, ops.Wgmma)} == {1}
    assert {op.num_pending for op in found if isinstance(op, ops.WgmmaWaitGroup)} == {0}
    apart, together = (
        simulate(made(serialized=serialized), h200, clock="max", l2="warm").cycles for serialized in (True, False)
    )
    assert apart > together + 3 * 128 * 30  # of a k-step three waits more


FAR = {"m": 512, "n": 512, "k": 1024, "schedule": "warp_specialized", "tile": "128x128x64", "split_k": 4}


def cycles_of(
    gpu: GpuSpec, l2: Literal["cold", "warm", "flushed"], code: CompiledCode = NO_CODE, **options: Any
) -> float:
    launch = GemmParams(**{**FAR, **options}, compiled_code=code).launch(gpu)
    return simulate(launch, gpu, clock="max", l2=l2).cycles


@pytest.mark.parametrize(
    ("mode", "of", "least"),
    [("in_kernel", "producer", 1500), ("in_kernel", "last_part", 2000), ("second_kernel", "epilogue", 2000)],
)
def test_code_that_is_far_waits_for_memory_where_all_caches_were_flushed(
    h200: GpuSpec, mode: str, of: str, least: float
) -> None:
    length = 3000 if of == "producer" else 10000
    places, near = (NO_CODE.replaced(layout={of: (begin, begin + length)}) for begin in (80000, 8000))
    without = {l2: cycles_of(h200, l2, split_k_mode=mode) for l2 in ("cold", "flushed")}
    assert cycles_of(h200, "cold", places, split_k_mode=mode) == without["cold"]
    assert cycles_of(h200, "flushed", near, split_k_mode=mode) == without["flushed"]
    far = cycles_of(h200, "flushed", places, split_k_mode=mode) - without["flushed"]
    assert least < far < length  # memory gives a byte a cycle, and stores on their way hide some of that
    slower = {"tile_scheduler" if of == "producer" else "epilogue": {"chain_cycles": 2000.0}}
    hidden = cycles_of(h200, "flushed", places.replaced(**slower), split_k_mode=mode) - cycles_of(
        h200, "flushed", NO_CODE.replaced(**slower), split_k_mode=mode
    )
    assert 0 <= hidden < far  # the code's own instructions run meanwhile


@pytest.mark.parametrize("shape", [(64, 512), (512, 160)], ids=["rows", "columns"])
def test_far_code_of_tiles_over_an_edge_is_that_of_their_pieces(h200: GpuSpec, shape: tuple[int, int]) -> None:
    """A warpgroup whose rows lie outside stores nothing; pieces of columns lie at one place in all tiles."""
    launch = GemmParams(
        m=shape[0], n=shape[1], k=1024, schedule="cooperative", consumer_warpgroups=2, consumer_split="m",
        tile="128x128x64", split_k=4,
        split_k_mode="second_kernel",
        compiled_code=NO_CODE.replaced(epilogue={"chain_cycles": 3200.0}, layout={"epilogue": (80000, 90000)}),
    ).launch(h200)
    told = [
        (op.name, op.begin_bytes, op.end_bytes)
        for of_role in dry_run(launch).values() for _, op in of_role if isinstance(op, ops.FetchColdCode)
    ]  # fmt: skip
    assert told and len({name for name, *_ in told}) == len(set(told)) == 4
    assert simulate(launch, h200, clock="max", l2="flushed").cycles > simulate(launch, h200, clock="max").cycles


def test_clusters_that_release_what_they_wrote_wait_for_it(h200: GpuSpec) -> None:
    options = {"m": 256, "n": 256, "k": 128, "tile": "128x128x64", "cluster": "2x1", "split_k": 1}
    more = {
        epilogue: cycles_of(h200, "warm", **options, epilogue=epilogue, cluster_sync="release")
        - cycles_of(h200, "warm", **options, epilogue=epilogue, cluster_sync="relaxed")
        for epilogue in ("tma_store", "direct")
    }
    fence = h200.warp_scheduler.gpu_fence_cycles
    assert more["tma_store"] == pytest.approx(2 * fence, rel=0.05)  # before the first tile, and behind the last
    assert 2 * fence + h200.l2.near_latency_cycles < more["direct"] < 6 * fence  # there threads' stores must have come


def test_a_little_code_is_no_less_than_what_every_loop_has(h200: GpuSpec) -> None:
    def cycles(step: float) -> float:
        launch = GemmParams(
            m=64, n=64, k=1536, tile="64x64x64", stages=3, schedule="multistage", consumer_warpgroups=1,
            compiled_code=NO_CODE.replaced(mainloop={"chain_cycles": step}),
        ).launch(h200)
        return simulate(launch, h200, clock="max", l2="warm").cycles

    assert cycles(0.0) <= cycles(4.0) <= cycles(400.0)


@pytest.mark.parametrize(("k", "each"), [(1024, 4), (1056, 4), (1044, 2), (500, 2)])
def test_copies_that_turn_an_operand_queue_at_the_banks_where_its_rows_begin(h200: GpuSpec, k: int, each: int) -> None:
    """Rows that all begin in one bank queue four deep, those that lie 20 banks apart two."""
    params = GemmParams.model_validate({
        "m": 128, "n": 128, "k": k, "tile": (128, 128, 8), "warps": (4, 2), "stages": 1, "dtype": "fp32", "layout": "tt",
        "copy": "cp_async", "math": "fma", "schedule": "multistage",
    })  # fmt: skip
    of_a = [op for _, op in ops_of(params.launch(h200), ops.CpAsync) if op.tensor == "A"]
    num_whole = k // 8
    assert len(of_a) == -(-k // 8) and {op.access.num_requests for op in of_a} == {128 * 8 / 32}
    assert {op.access.num_wavefronts / op.access.num_requests for op in of_a[:num_whole]} == {each}
    assert {op.access.num_sectors for op in of_a[:num_whole]} == {128}  # a row's next copy asks for the rest of one anyway


def test_rows_of_few_k_share_lines(h200: GpuSpec) -> None:
    params = GemmParams.model_validate({
        "m": 64, "n": 64, "k": 16, "tile": (64, 64, 8), "warps": (2, 2), "stages": 1, "dtype": "fp32", "layout": "tt",
        "copy": "cp_async", "math": "fma", "schedule": "multistage",
    })  # fmt: skip
    of_a = [op for _, op in ops_of(params.launch(h200), ops.CpAsync) if op.tensor == "A"]
    assert [op.access.num_lines for op in of_a] == [2 * 64 * 8 / 32] * 2  # four rows, 64 bytes apart, a copy


def test_the_code_of_an_fma_loop_is_told_once_a_step_and_is_what_nvcc_writes_out(h200: GpuSpec) -> None:
    """FFMA, loads of 16 bytes, copies with their addresses: 2,233 instructions as SASS of such a loop has them."""
    params = GemmParams.model_validate({
        "m": 128, "n": 128, "k": 64, "tile": (128, 128, 16), "warps": (2, 2), "stages": 2, "dtype": "fp32", "layout": "tt",
        "copy": "cp_async", "math": "fma", "schedule": "multistage", "compiled_code": NO_CODE,
    })  # fmt: skip
    told = [op for _, op in ops_of(params.launch(h200), ops.LoopBody)]
    assert len(told) == 4 and {op.num_fma for op in told} == {2048}
    (num,) = {op.num_fma + op.num_others for op in told}
    assert num == pytest.approx(2233, rel=0.005)
