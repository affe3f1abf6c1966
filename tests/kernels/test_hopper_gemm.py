"""hopper_gemm: configs are those that the README promises, the launch is the model's, wrong products are refused."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim.evidence.cases.case import Config, Windows, WrongAnswer, load_case
from gpusim.evidence.toolchain.issue_latency import BESIDE_WGMMA, is_wide, issue_cycles, loop_cycles, way
from gpusim.evidence.toolchain.sass import WARPGROUP_TENSOR, Instruction, KernelSass
from gpusim.kernel_models.gemm import GemmParams, resolve, warp_specialized
from gpusim.kernel_models.gemm.smem_budget import staging_of
from gpusim.machine.config import load_gpu
from gpusim.simulate.run import simulate
from gpusim.units import DEPENDENT_CYCLES
from gpusim.workload.compiled_code import CodeLayout

from .conftest import Sass

CASE = load_case("hopper_gemm")
case = sys.modules[CASE.launch.__module__]
loops = sys.modules[load_case("tma_loop").launch.__module__]
ALL = [config for group in CASE.groups for config in CASE.configs(group, 1)]
SMALL = case.config_of("ms1_64x64x64_c1x1_d0_bf16", (200, 136, 72), stages=2, refill="after_math", persistent="no")


@pytest.mark.parametrize("seed", [1, 2, 7])
def test_every_entry_point_and_every_option_comes_at_least_thrice(seed: int) -> None:
    configs = [config for group in CASE.groups for config in CASE.configs(group, seed)]
    seen: Counter[tuple[str, object]] = Counter()
    for config in configs:
        entry = case.entry_of(config)
        seen.update((column, value) for column, value in config.items() if column not in ("kernel", "m", "n", "k"))
        seen.update((name, getattr(entry, name)) for name in ("schedule", "tile", "consumers", "cluster", "depth", "dtype"))
        seen["setmaxnreg", entry.setmaxnreg != "none"] += 1
    assert {config["kernel"] for config in configs} == set(case.ENTRIES)
    rare = {key: count for key, count in seen.items() if count < (2 if key[0] == "tile" else 3)}
    assert not rare
    assert {seen["stages", str(stages)] > 2 for stages in range(1, 7)} == {True}


@pytest.mark.parametrize("config", ALL, ids=str)
def test_the_launch_is_the_models(config: Config) -> None:
    gpu = load_gpu("h200_sxm")
    params = GemmParams.model_validate(dict(case.options(config))).resolved(gpu)
    told, launched = params.launch(gpu), CASE.launch(config, False)
    entry, is_persistent = case.entry_of(config), config["persistent"] == "yes"
    assert launched.block[0] == told.num_threads
    assert launched.grid[0] == (min(told.num_tiles, gpu.num_sms) if is_persistent else told.num_tiles)
    assert launched.smem_bytes <= gpu.max_smem_per_cta_bytes - 256
    if is_persistent:  # one on an SM
        assert 2 * (launched.smem_bytes + 1024) > gpu.device.smem_per_sm_bytes
    if config["epilogue"] != "direct":
        staging = staging_of(resolve(params, gpu), gpu)
        assert staging.slice_n == case.slice_of(entry, int(config["stages"]), is_persistent)
        assert staging.slice_n % 64 == 0


def answer(config: Config) -> NDArray[np.uint8]:
    """What a right kernel leaves, rounded as it rounds."""
    m, n, k = (int(config[name]) for name in "mnk")
    exact = case.reference(m, n, k, "bf16").astype("<f4").view("<u4")
    return np.ascontiguousarray((exact + 0x7FFF + (exact >> 16 & 1)) >> 16).astype("<u2").reshape(-1).view(np.uint8)


def test_a_product_short_of_one_step_of_k_is_refused() -> None:
    short = {**SMALL, "k": "64"}
    with pytest.raises(WrongAnswer, match="elements are off"):
        CASE.check(SMALL, {"d": answer(short)})


def test_what_is_not_written_is_refused() -> None:
    left = answer(SMALL).copy()
    left[1000:1008] = 0xFF
    with pytest.raises(WrongAnswer, match="4 of 27200 elements were not written, the first at row 3, column 92"):
        CASE.check(SMALL, {"d": left})


def test_rows_of_large_products_come_back_whole_and_some_of_each_warps() -> None:
    config = case.config_of(case.BEST[0], (4096, 4096, 4096))
    windows = case.product_of(config).windows
    rows = np.array([offset // 8192 for offset, _ in windows])
    assert {num_bytes for _, num_bytes in windows} == {8192}
    assert set(rows // 16) == set(range(256))


def test_parts_of_k_are_added_up_by_a_second_kernel_where_they_say_so() -> None:
    for config in CASE.configs("parts", 1):
        following = CASE.launch(config, False).following
        assert [launch.kernel for launch in following] == list(CASE.followers) * (config["split_k_mode"] == "second_kernel")
        for launch in following:
            assert isinstance(launch.arguments[1], Windows)
            assert launch.grid[0] * 1024 >= int(config["m"]) * int(config["n"])


def test_numbers_of_e4m3_are_what_their_bits_say() -> None:
    values = np.array([1.0, -1.75, 0.0, 240.0, 2.0**-6], dtype=np.float32)
    assert case.types.encode(values, "fp8").tolist() == [0x38, 0xBE, 0x00, 0x77, 0x08]


# ---------------------------------------------------------------------------------------------- what the compiler made


def test_registers_are_those_of_the_cubin_and_nothing_spills(sass: Sass) -> None:
    kernels = sass("hopper_gemm", "sm_90a")
    for name, entry in case.ENTRIES.items():
        assert kernels[name].num_spills == 0, name
        assert -(-kernels[name].num_registers // 8) == -(-case.registers_of(entry) // 8), name


def test_the_loop_is_one_group_of_the_widest_wgmma_and_the_wait_that_the_name_says(sass: Sass) -> None:
    for name, entry in case.ENTRIES.items():
        kernel = sass("hopper_gemm", "sm_90a")[name]
        m, n, k = entry.tile
        rows = m if entry.schedule == "pingpong" else m // entry.consumers
        opcode, step = ("QGMMA", 32) if entry.dtype == "fp8" else ("HGMMA", 16)
        assert kernel.tensor_shapes == {f"{opcode} 64x{n}x{step}": rows // 64 * k // step}, name
        assert kernel.num_dummy_wgmmas == 0, name
        assert kernel.wgmma_wait_depths == ((entry.depth, 0) if entry.depth else (0, 0)), name
        assert bool(kernel.select("USETMAXREG")) == (entry.setmaxnreg != "none"), name


# ---------------------------------------------------------------------------------------------- the simulator's answer


def test_the_twin_answers() -> None:
    found = CASE.predict(SMALL, load_gpu("h200_sxm"))
    assert found["launch__grid_size"] == 12
    assert found["l1tex__m_xbar2l1tex_read_bytes.sum"] > 0


# ---------------------------------------------------------------------------------------------- its own instructions

LOADER, OTHERS, CONSUMER = "YYNNNY", "YYNNYY", "NY"
"""Branches that are taken on the way through a k-step: of a multistage kernel whose refill follows the wait, by the thread
that copies and by others; of a consumer."""
DIRECT = "NNNY"
"""On the way out of registers: D has rows and columns here, one part, no staging."""
STAGED = {
    "ws1_64x64x64_c1x1_d1_bf16": {"smem": "NNNNNY", "tma_store": "NNNNNNNY"},
    "ws1_64x128x64_c1x1_d1_bf16": {"smem": "NNNNNYYNYNNNNNNNY", "tma_store": "NNNNNNYNYNYNY"},
}  # fmt: skip
"""The same through shared memory, in one slice: by rows of 16 bytes a thread, 64 rows in one pass or two; or by the thread
that asks for one box or two."""


def taking(answers: str) -> Callable[[Instruction], bool]:
    """Answers in order, and then no."""
    left = list(answers)
    return lambda _: bool(left) and left.pop(0) == "Y"


def loops_around(kernel: KernelSass) -> tuple[KernelSass, KernelSass]:
    """The k-loop and the loop over tiles."""
    closed = [loop for loop in kernel.loops if loop.instructions[-1].predicate]
    found = sorted((loop for loop in closed if loop.select(*WARPGROUP_TENSOR)), key=lambda loop: len(loop.instructions))
    return found[0], found[1]


def copying_loops(kernel: KernelSass) -> list[KernelSass]:
    """Those around copies by TMA."""
    return [loop for loop in kernel.loops if loop.select("UTMALDG") and loop.instructions[-1].predicate]


def producers_loop(kernel: KernelSass) -> tuple[KernelSass, int, int]:
    """A producer's loop of k-steps; where its wait begins, and where the wait has ended."""
    found = min(copying_loops(kernel), key=lambda loop: len(loop.instructions))
    tried = next(i for i, item in enumerate(found.instructions) if "TRYWAIT" in item.opcode)
    again = found.instructions[tried - 1]
    assert again.name == "YIELD"
    return found, again.address, next(item.branch_target for item in found.instructions[tried:] if item.branch_target)


def code_in(kernel: KernelSass, schedule: str) -> tuple[int, ...]:
    """As ``CODE`` is written."""
    steps, tiles = loops_around(kernel)
    begin, end = steps.instructions[0].address, steps.instructions[-1].address
    if schedule == "multistage":
        step = loop_cycles(list(way(kernel, begin, begin, taking(OTHERS))))
        copy = loop_cycles(list(way(kernel, begin, begin, taking(LOADER)))) - step
        inside = range(tiles.instructions[1].address, tiles.instructions[-1].address)
        first = min(loop.instructions[0].address for loop in copying_loops(kernel) if loop.instructions[0].address in inside)
    else:
        step, first = loop_cycles(list(way(kernel, begin, begin, taking(CONSUMER)))), begin
        producer, tries, done = producers_loop(kernel)  # of whose code one_lane_try_wait_cycles holds some already
        copy = issue_cycles(list(way(kernel, done, tries, taking("Y")))) - loops.HEAD_CYCLES
    tile = list(way(kernel, tiles.instructions[0].address, first, taking("")))
    turn = [idx for idx, (item, _) in enumerate(tile) if "TRYWAIT" in item.opcode]
    assert len(turn) == (schedule == "pingpong")
    tile, behind_turn = tile[: turn[0]] if turn else tile, tile[turn[0] + 1 :] if turn else []
    places = tile
    if schedule != "multistage":
        fills = producer.instructions[0].address
        whole = min((one for one in kernel.loops if spans(one, producer)), key=lambda one: len(one.instructions))
        places = list(way(kernel, whole.instructions[0].address, fills, taking("")))
    behind = next(item.address for item in kernel.instructions if item.address > end)
    direct = list(way(kernel, behind, tiles.instructions[-1].address, taking(DIRECT)))
    tile_cycles, direct_cycles = (issue_cycles(others_of(items)) for items in (tile, direct))
    cycles = (step, copy, tile_cycles, issue_cycles(behind_turn, BESIDE_WGMMA), direct_cycles)
    beside = (round(issue_cycles(others_of(items), BESIDE_WGMMA)) for items in (tile, direct))
    return *map(round, cycles), num_wide(places), num_wide(direct), *beside


def spans(loop: KernelSass, inner: KernelSass) -> bool:
    """Whether a loop goes around another, and is none of those that multiply."""
    begin, end = inner.instructions[0].address, inner.instructions[-1].address
    return loop.instructions[0].address < begin and end < loop.instructions[-1].address and not loop.select("HGMMA", "QGMMA")


def others_of(items: list[tuple[Instruction, bool]]) -> list[tuple[Instruction, bool]]:
    """Without those."""
    return [item for item in items if not is_wide(item[0])]


def num_wide(items: list[tuple[Instruction, bool]]) -> int:
    """How many they are."""
    return len(items) - len(others_of(items))


def staged_cycles(kernel: KernelSass, answers: str, num_panels: int, epilogue: str) -> float:
    """Of the way out through shared memory; that it is the one that ``answers`` mean is seen by what leaves."""
    steps, tiles = loops_around(kernel)
    behind = next(item.address for item in kernel.instructions if item.address > steps.instructions[-1].address)
    items = list(way(kernel, behind, tiles.instructions[-1].address, taking(answers)))
    seen = Counter(item.name for item, _ in items)
    leaves = {"smem": (4, 4, 0), "tma_store": (0, 0, 1)}[epilogue]
    assert [seen[name] for name in ("STSM", "LDS", "STG", "UTMASTG")] == [each * num_panels for each in (4, *leaves)]
    assert seen["BAR"] == 2  # until the room is free, and until it is full
    assert num_wide(items) == case.STAGED_WIDE[epilogue] * num_panels
    return issue_cycles(others_of(items))


@pytest.mark.parametrize("epilogue", ["smem", "tma_store"])
def test_the_code_of_a_staged_way_out_is_that_of_the_sass(sass: Sass, epilogue: str) -> None:
    kernels = sass("hopper_gemm", "sm_90a")
    one, two = (
        staged_cycles(kernels[name], answers[epilogue], num_panels, epilogue)
        for num_panels, (name, answers) in enumerate(STAGED.items(), 1)
    )
    assert case.STAGED_CODE[epilogue] == (round(2 * one - two), round(two - one))
    for name, cycles in zip(STAGED, (one, two), strict=True):
        config = case.config_of(name, (64, 64, 64), persistent="no", epilogue=epilogue)
        assert case.code_of(config).epilogue.chain_cycles == pytest.approx(cycles, abs=1.0)


@pytest.mark.parametrize("epilogue", ["smem", "tma_store"])
def test_the_model_takes_a_way_out_as_long_as_its_code(epilogue: str) -> None:
    """A lone tile of one k-step ends later by the instructions that wait for one another, four cycles each."""
    gpu = load_gpu("h200_sxm")
    config = case.config_of("ws1_64x64x64_c1x1_d1_bf16", (64, 64, 64), stages=2, persistent="no", epilogue=epilogue)
    options = dict(case.options(config))
    own = options["compiled_code"]
    without = own.replaced(epilogue={"chain_cycles": 0.0})
    told, untold = (
        simulate(GemmParams.model_validate({**options, "compiled_code": code}).launch(gpu), gpu, clock="max").cycles
        for code in (own, without)
    )
    assert told - untold == pytest.approx(own.epilogue.chain_cycles, rel=0.05)


def test_the_code_between_is_that_of_the_sass(sass: Sass) -> None:
    kernels = sass("hopper_gemm", "sm_90a")
    found = {name: code_in(kernels[name], entry.schedule) for name, entry in case.ENTRIES.items()}
    assert found == {name: tuple(code.values()) for name, code in case.CODE.items()}


def apart_in(kernel: KernelSass) -> float:
    """Cycles from a k-step's wgmma to its next one."""
    steps, _ = loops_around(kernel)
    math = [item.address for item in steps.instructions if item.name in ("HGMMA", "QGMMA")]
    return issue_cycles(list(way(kernel, math[0], math[-1], taking("")))) / (len(math) - 1)


def cycles_to_arrival(kernel: KernelSass, loop: KernelSass, begin: int) -> float:
    """From an instruction to the next arrival of a loop."""
    arrives = next(item.address for item in loop.select("SYNCS") if item.address > begin and "ARRIVE" in item.opcode)
    return issue_cycles(list(way(kernel, begin, arrives, taking(""))))


def test_a_steps_code_lies_around_its_wgmma_and_copies_as_in_the_sass(sass: Sass) -> None:
    """The shares that the model parts such code by are those of these loops and of kernels/specialized_steps'."""
    apart: Counter[int] = Counter()
    given, announced = [], []
    for folder in ("hopper_gemm", "specialized_steps"):
        for name, code in sys.modules[load_case(folder).launch.__module__].CODE.items():
            kernel, entry = sass(folder, "sm_90a")[name], case.ENTRIES[name]
            told = warp_specialized.between_wgmma(1e6, 2, entry.tile[1]) * DEPENDENT_CYCLES
            apart[round(apart_in(kernel) - told)] += 1
            if entry.schedule != "multistage":
                steps, (producer, _, done) = loops_around(kernel)[0], producers_loop(kernel)
                (waits,) = (item.address for item in steps.select("WARPGROUP") if "DEPBAR" in item.opcode)
                given.append(cycles_to_arrival(kernel, steps, waits) / code["step"])
                announced.append(cycles_to_arrival(kernel, producer, done) / code["copy"])
    assert apart == {0: 31, 8: 4}
    for shares, share, least, most in (
        (given, warp_specialized.BEFORE_GIVING_BACK, 0.10, 0.28),
        (announced, warp_specialized.PRODUCER_BEFORE_COPIES, 0.36, 0.40),
    ):  # fmt: skip
        assert least < min(shares) and max(shares) < most
        assert np.median(shares) == pytest.approx(share, abs=0.015)


def setup_in(kernel: KernelSass) -> int:
    """As ``SETUP`` is written: from the entry to where all meet, and from there to the loop over tiles."""
    meeting = next(item.address for item in kernel.instructions if item.name in ("BAR", "UCGABAR_WAIT"))
    tiles = loops_around(kernel)[1].instructions[0].address
    ways = (way(kernel, 0, meeting, taking("")), way(kernel, meeting, tiles, taking("")))
    return sum(round(issue_cycles(list(each))) for each in ways)


def test_the_code_before_the_first_tile_is_that_of_the_sass(sass: Sass) -> None:
    kernels = sass("hopper_gemm", "sm_90a")
    assert {name: setup_in(kernels[name]) for name in case.ENTRIES} == dict(case.SETUP)


def places_in(kernel: KernelSass) -> tuple[int, ...]:
    """As ``PLACES`` is written: a producer's code up to its first copies, zeros and D of the last part, stores of a part."""
    items = kernel.instructions
    zeros, apart = (
        (min(walk), max(walk) + 16) for walk in walks_of(kernel, lambda opcode: opcode.startswith("STG.E.64"))
    )  # fmt: skip
    out = walks_of(kernel, lambda opcode: opcode.startswith("STG.E") and not opcode.startswith("STG.E.64"))[-1]
    copies = [item.address for item in kernel.select("UTMALDG")]
    begins = [
        item.address for item in items if item.name in ("EXIT", "USETMAXREG") and item.address < copies[0]
    ]  # fmt: skip
    return (begins[-1], copies[-1] + 16, zeros[0], max(out) + 16, *apart)


def walks_of(kernel: KernelSass, is_one: Callable[[str], bool]) -> list[list[int]]:
    """Addresses of instructions that lie together, and of many."""
    found: list[list[int]] = []
    for item in kernel.instructions:
        if is_one(item.opcode):
            if found and item.address - found[-1][-1] < 0x600:
                found[-1].append(item.address)
            else:
                found.append([item.address])
    return [walk for walk in found if len(walk) > 16]


def test_code_that_is_far_lies_where_the_sass_has_it(sass: Sass) -> None:
    kernels, near = sass("hopper_gemm", "sm_90a"), load_gpu("h200_sxm").instruction_cache.launch_fetched_bytes
    long = [name for name in case.ENTRIES if kernels[name].instructions[-1].address > near]
    assert set(long) == set(case.PLACES)
    assert {name: places_in(kernels[name]) for name in long} == {
        name: tuple(places.values()) for name, places in case.PLACES.items()
    }
    for kernel in kernels.values():  # other ways out are near: D, rows and boxes, reductions
        stores = [item.address for item in kernel.instructions if item.name in ("STSM", "UTMASTG", "RED", "REDG")]
        of_d = walks_of(kernel, lambda opcode: opcode.startswith("STG.E") and not opcode.startswith("STG.E.64"))
        assert max(stores, default=0) < near
        assert not of_d or of_d[0][-1] < near


def test_far_code_is_told_of_what_runs_it() -> None:
    name = "co2_128x256x64_c1x1_d1_regs_bf16"
    whole, added, apart = (
        case.code_of(
            case.config_of(
                name, (512, 512, 1024), persistent="no", epilogue="direct", split_k=parts, split_k_mode=mode
            )
        ).layout
        for parts, mode in ((1, ""), (2, "in_kernel"), (2, "second_kernel"))
    )  # fmt: skip
    places, unknown = case.PLACES[name], (0, 0)
    producer, last, part = (
        (places[f"{of}_begin"], places[f"{of}_end"]) for of in ("producer", "last_part", "store")
    )  # fmt: skip
    assert whole == CodeLayout(producer=producer)
    assert added == CodeLayout(producer=producer, last_part=last, epilogue=unknown)
    assert apart == CodeLayout(producer=producer, last_part=unknown, epilogue=part)
    small = case.config_of("ws1_64x64x64_c1x1_d1_bf16", (512, 512, 1024))
    assert case.code_of(small).layout == CodeLayout()
