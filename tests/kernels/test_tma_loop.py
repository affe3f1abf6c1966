"""Rings that fit, loops with nothing but their four steps, stages that must be right, and what is predicted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import Output, WrongAnswer, load_case
from gpusim.evidence.toolchain.issue_latency import issue_cycles, way
from gpusim.evidence.toolchain.sass import KernelSass

Sass = Callable[[str, str], dict[str, KernelSass]]
CASE = load_case("tma_loop")
case = sys.modules[CASE.launch.__module__]
GPU = load_gpu("h200_sxm")
CONFIGS = {group: CASE.configs(group, 1) for group in CASE.groups}
ALL = [config for configs in CONFIGS.values() for config in configs]


def one(kernel: str = "loop_warps", **columns: int) -> dict[str, str]:
    told = {"num_boxes": 1, "num_stages": 4, "box_rows": 8, "num_issuers": 1, "num_consumers": 1, **columns}
    return {"kernel": kernel, **{name: str(number) for name, number in told.items()}}


def test_rings_fit_and_issuers_share_a_stage_evenly() -> None:
    for config in ALL:
        launch = CASE.launch(config, False)
        assert 48 * 1024 < launch.smem_bytes <= 200 * 1024
        share, left = divmod(int(config["num_boxes"]), int(config["num_issuers"]))
        assert not left and share in (1, 2, 3, 4, 6, 8)  # what the kernel is unrolled for
        assert int(config["num_stages"]) <= 16 and case.NUM_STEPS % int(config["num_stages"]) == 0
        assert int(config["num_boxes"]) * int(config["box_rows"]) <= case.TENSOR_ROWS
        assert launch.block[0] <= 512
        assert config["kernel"] != "loop_warps_timed" or config["num_issuers"] == "1"  # they all note where issuer 0 does


# ---------------------------------------------------------------------------------------------- SASS


def producers(kernel: KernelSass) -> dict[int, KernelSass]:
    """The loop of a stage, by boxes."""
    return {
        len(loop.select("UTMALDG")): loop for loop in kernel.loops
        if loop.select("UTMALDG") and any("TRYWAIT" in item.opcode for item in loop.instructions)
    }  # fmt: skip


def test_a_stage_is_a_wait_an_announcement_and_its_boxes(sass: Sass) -> None:
    for name, kernel in sass("tma_loop", "sm_90a").items():
        found = producers(kernel)
        assert sorted(found) == [1, 2, 3, 4, 6, 8], name
        assert kernel.num_spills == 0
        for num, loop in found.items():
            waits = [item for item in loop.select("SYNCS") if "TRYWAIT" in item.opcode]
            announcements = [item for item in loop.select("SYNCS") if "ARRIVE" in item.opcode]
            assert (len(waits), len(announcements)) == (1, 1), name
            assert len(loop.select("CS2R")) == (4 if name == "loop_warps_timed" else 0), (name, num)
            assert not loop.select("BAR", "LDG", "LDS"), (name, num)
            items = [item.opcode for item in loop.instructions]
            worked = items[items.index(announcements[0].opcode) :]  # before it a wait that is given up is dealt with
            assert "S2R" not in worked and "S2UR" not in worked, (name, num)
            assert len(loop.instructions) < 45 + 12 * num, (name, num)


def schedule_in(loop: KernelSass) -> str:
    """As ``SCHEDULES`` is written: from the end of the wait on, by announcement and copies."""
    tried = next(idx for idx, item in enumerate(loop.instructions) if "TRYWAIT" in item.opcode)
    done = next(item.branch_target for item in loop.instructions[tried:] if item.branch_target)
    parts, cycles, waits, reading = [], 0, "", None
    for item in loop.instructions:
        if item.address < done:
            continue
        if reading is not None and reading in item.waits_for:
            waits, reading = "+", None
        if item.name == "UTMALDG" or "ARRIVE" in item.opcode:
            parts.append(f"{cycles}{waits}")
            cycles, waits = 0, ""
            reading = item.read_barrier if item.name == "UTMALDG" else reading
        cycles += item.stall_cycles
    return " ".join([*parts, f"{cycles}{waits}"])


def test_a_steps_schedule_is_that_of_the_sass(sass: Sass) -> None:
    kernels = sass("tma_loop", "sm_90a")
    for name, by_boxes in case.SCHEDULES.items():
        assert {num: schedule_in(loop) for num, loop in producers(kernels[name]).items()} == by_boxes, name


def head_in(kernel: KernelSass, loop: KernelSass) -> float:
    """As ``HEAD_CYCLES`` is written: from the clock to the wait's first try."""
    names = [item.name for item in loop.instructions]
    begin, end = names.index("CS2R") + 1, names.index("YIELD")
    assert "TRYWAIT" in loop.instructions[end + 1].opcode
    items = list(way(kernel, loop.instructions[begin].address, loop.instructions[end].address, lambda _: False))
    return issue_cycles(items)


def test_what_a_wait_holds_of_the_loops_own_code_is_that_of_the_sass(sass: Sass) -> None:
    kernel = sass("tma_loop", "sm_90a")["loop_warps_timed"]
    found = [head_in(kernel, loop) for _, loop in sorted(producers(kernel).items())]
    assert found == [9.0, 9.0, 10.0, 10.0, 10.0, 10.0]
    assert np.median(found) == case.HEAD_CYCLES


def test_lanes_issue_in_a_loop_of_the_compilers(sass: Sass) -> None:
    kernels = sass("tma_loop", "sm_90a")
    assert any("ANY" in item.opcode for item in kernels["loop_lanes"].select("BRA"))
    assert not any("ANY" in item.opcode for item in kernels["loop_warps"].select("BRA"))


# ---------------------------------------------------------------------------------------------- check


def outputs_of(config: dict[str, str], each: int) -> dict[str, np.ndarray]:
    """What the kernel must leave, chunk by chunk."""
    (smem, times) = [item.array.copy() for item in CASE.launch(config, False).arguments if isinstance(item, Output)]
    stages, boxes, rows = (int(config[name]) for name in ("num_stages", "num_boxes", "box_rows"))
    for step in range(case.NUM_STEPS - stages, case.NUM_STEPS):
        x = step * 64 % 1024
        for box in range(boxes):
            tensor = case.tensor(box % 2 if config["kernel"] == "loop_warps_two_maps" else 0)
            for row in range(rows):
                for chunk in range(8):
                    at = ((step % stages * boxes + box) * rows + row) * 128 + 16 * (chunk ^ row % 8)
                    corner = (0, 0) if config["kernel"] == "loop_warps_fixed" else (box * rows, 2 * x)
                    smem[at : at + 16] = tensor[corner[0] + row, corner[1] + 16 * chunk :][:16]
    times[0] = 0
    steps = np.arange(case.NUM_STEPS, dtype=np.uint64)
    times[4 : 4 + case.NUM_STEPS] = (2**32 - 5000 + steps * each) % 2**32
    stamps = times[4 + case.MOST_STEPS :].reshape(case.MOST_STEPS, 4)
    stamps[: case.NUM_STEPS] = (steps[:, None] * each + np.array([0, 25, 40, max(0, each - 9)], dtype=np.uint64)) % 2**32
    return {"smem": smem, "times": times}


def test_a_clock_that_stands_still_and_a_wait_that_was_given_up_are_no_answers() -> None:
    config = one()
    with pytest.raises(WrongAnswer, match="the clock says"):
        CASE.check(config, outputs_of(config, 0))
    outputs = outputs_of(config, 90)
    outputs["times"][0] = 1
    with pytest.raises(WrongAnswer, match="given up"):
        CASE.check(config, outputs)


# ---------------------------------------------------------------------------------------------- predictions


def predict(config: dict[str, str]) -> dict[str, float]:
    return CASE.predict(config, GPU)


def own_cycles(num_boxes: int) -> float:
    """What a step takes beside its wait and its announcement: copies are never issued closer than the unit takes them."""
    assert GPU.tma is not None
    before, first, *gaps, last = case.schedule_of("loop_warps", num_boxes)
    between = sum(max(gap, GPU.tma.issue_cycles) for gap in gaps)
    return float(before + first + between + last + case.REST_CYCLES["loop_warps"])


def test_a_ring_of_one_stage_costs_the_tries_that_a_round_trip_holds() -> None:
    """The producer sees the stage empty only with a try's end: so many tries, and its own steps."""
    gpu = GPU
    assert gpu.tma is not None and gpu.mbarrier is not None
    steps = gpu.mbarrier.arrive_cycles + own_cycles(1)
    for num_tries in (2, 3):
        wanted = steps + gpu.mbarrier.one_lane_try_wait_cycles + (num_tries - 1) * gpu.mbarrier.one_lane_retry_cycles
        rows = {2: 1, 3: 64}[num_tries]
        tries = (predict(one(num_stages=1, box_rows=rows))["cycles_per_stage"] - wanted) / gpu.mbarrier.one_lane_retry_cycles
        assert tries == pytest.approx(round(tries), abs=1e-6)
    short, long = (predict(one(num_stages=1, num_boxes=8, box_rows=rows))["cycles_per_stage"] for rows in (8, 64))
    assert short < long


def test_where_latency_bounds_more_stages_take_less() -> None:
    cycles = [predict(one(num_stages=stages, num_boxes=4, box_rows=64))["cycles_per_stage"] for stages in (1, 2, 4)]
    assert cycles[0] > 1.5 * cycles[1] > 1.5 * cycles[2]


def test_with_stages_enough_a_stage_costs_the_producers_steps() -> None:
    """But for where the reader, which is faster, falls asleep and catches up at the ends of what is timed."""
    gpu = GPU
    assert gpu.tma is not None and gpu.mbarrier is not None
    wanted = gpu.mbarrier.one_lane_try_wait_cycles + gpu.mbarrier.arrive_cycles + own_cycles(1)
    assert predict(one(num_stages=16))["cycles_per_stage"] == pytest.approx(wanted, rel=0.02)


def test_more_boxes_take_longer_and_large_ones_what_the_port_needs() -> None:
    """More boxes but for two, whose code the compiler has made shorter than one's."""
    cycles = [predict(one(num_stages=8, num_boxes=num))["cycles_per_stage"] for num in case.BOXES]
    assert all(earlier < later for earlier, later in pairwise(cycles[1:])) and cycles[0] < cycles[2]
    assert (cycles[0] > cycles[1]) == (own_cycles(1) > own_cycles(2))
    assert GPU.tma is not None
    rate = min(GPU.xbar.sm_read_bytes_per_cycle, GPU.tma.bytes_per_cycle)
    large = predict(one(num_stages=4, num_boxes=4, box_rows=64))["cycles_per_stage"]
    assert large == pytest.approx(4 * 8192 / rate, rel=0.02)


def test_a_machine_that_is_known_gives_its_lone_waits_back() -> None:
    gpu = GPU
    assert gpu.mbarrier is not None
    first, retry = gpu.mbarrier.one_lane_try_wait_cycles, gpu.mbarrier.one_lane_retry_cycles
    waits = [case.CLOCK_CYCLES + first + num * retry for num in (0, 0, 1, 2)]
    rows = [{"group": "timed", "wait_cycles": str(wait)} for wait in waits]
    fitted = {item.parameter: item.value for item in CASE.fit(rows)}
    assert fitted == {"mbarrier.one_lane_try_wait_cycles": first, "mbarrier.one_lane_retry_cycles": retry}


def test_lanes_of_one_warp_are_not_predicted() -> None:
    assert predict(one("loop_lanes", num_boxes=2, num_issuers=2)) == {}
