"""Rings without a producer: what is launched, what counts as an answer, what the simulator says."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpusim.evidence.cases.case import MappedTensor, Output, load_case
from gpusim.evidence.toolchain.cuda_toolkit import Cubin
from gpusim.evidence.toolchain.issue_latency import loop_cycles, way
from gpusim.evidence.toolchain.sass import Instruction, KernelSass, read_sass
from gpusim.machine.config import load_gpu

CASE = load_case("ring_math")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
CONFIGS = CASE.configs("rings", 1)


def one(**columns: int) -> dict[str, str]:
    (found,) = [config for config in CONFIGS if all(config[name] == str(value) for name, value in columns.items())]
    return found


def ring(
    n: int = 128, num_warpgroups: int = 2, depth: int = 1, num_stages: int = 2, num_boxes: int = 1, num_ctas: int = 1,
    has_copies: int = 1, is_noted: int = 0,
) -> dict[str, str]:  # fmt: skip
    return one(
        n=n, num_warpgroups=num_warpgroups, depth=depth, num_stages=num_stages, num_boxes=num_boxes, num_ctas=num_ctas,
        has_copies=has_copies, is_noted=is_noted,
    )  # fmt: skip


def outputs_of(config: dict[str, str]) -> dict[str, np.ndarray[Any, Any]]:
    """What a launch must leave whose steps take 600 cycles, each part of one a hundred."""
    arrays = {item.name: item.array.copy() for item in CASE.launch(config, False).arguments if isinstance(item, Output)}
    arrays["d"][:] = case.product(typed(config))
    arrays["seen"][:] = [600 * case.NUM_TIMED, *(5 * [100 * case.NUM_TIMED]), 0, 3]
    return arrays


def test_rings_fit_and_a_box_is_a_tile() -> None:
    for config in CONFIGS[::7]:
        launch = CASE.launch(config, False)
        assert 114 * 1024 < launch.smem_bytes <= 227 * 1024
        boxes = [item.tensor_map.box_dim[1] for item in launch.arguments if isinstance(item, MappedTensor)]
        assert boxes == list(typed(config).rows)


def test_crowded_ctas_have_room_for_each_other_and_for_no_more() -> None:
    for config in CASE.configs("crowded", 1):
        launch, each = CASE.launch(config, False), int(config["num_ctas"]) // 132
        assert launch.smem_bytes >= int(config["num_stages"]) * typed(config).stage_bytes
        assert each * (launch.smem_bytes + 1088) <= 228 * 1024 < (each + 1) * (launch.smem_bytes + 1088)


def test_threads_have_no_more_registers_than_their_neighbours_leave(built: Callable[[str, str], Cubin]) -> None:
    for name, kernel in read_sass(built("ring_math", "sm_90a").path).items():
        most = case.CROWDED_REGISTERS.get(int(name.split("_")[1][1:]))
        assert most is None or kernel.num_registers <= most


def test_each_accumulator_is_an_element_of_the_product() -> None:
    config = ring(n=64, num_warpgroups=2)
    a, b = case.numbers(128, 1), case.numbers(132 * 64, 2)[:64]
    whole = (a @ b.T) * (case.NUM_LEAD + case.NUM_TIMED) // case.NUM_COLUMNS  # every column as often as any other
    found = case.product(typed(config))
    assert sorted(found.ravel().tolist()) == sorted(whole.ravel().tolist())
    assert found[0, 0] == whole[0, 0] and found[1, 0] == whole[0, 1] and found[2, 0] == whole[8, 0]
    assert found[4, 129] == whole[64, 10] and np.abs(whole).max() < 1 << 24


def test_math_alone_takes_its_flops_and_waits_add_to_it() -> None:
    gpu = load_gpu("h200_sxm")
    behind, at_once = (CASE.predict(ring(has_copies=0, depth=depth), gpu)["step_cycles"] for depth in (1, 0))
    flops = 2 * 128 * 128 * 64
    assert behind == pytest.approx(flops / gpu.tensor_core.wgmma_flops_per_cycle["16bit"])
    assert at_once > behind
    assert CASE.predict(ring(), gpu)["step_cycles"] > CASE.predict(ring(num_stages=4), gpu)["step_cycles"]


def test_the_loop_is_the_sources(built: Callable[[str, str], Cubin]) -> None:
    kernels = read_sass(built("ring_math", "sm_90a").path)
    assert len(kernels) == len({config["kernel"] for config in CASE.configs("rings", 1)})
    for name, kernel in kernels.items():
        boxes = int(name[-1])
        assert len(kernel.select("HGMMA")) == 4 * boxes
        assert len(kernel.select("WARPGROUP")) == 3  # the fence, the wait in the loop, and that behind it


def turn(kernel: KernelSass, *, copies: bool, boxes: int) -> float:
    """Cycles of the loop's own instructions."""
    loop = min((loop for loop in kernel.loops if loop.select("HGMMA")), key=lambda loop: len(loop.instructions))
    begin, end = loop.instructions[0].address, loop.instructions[-1].address
    left = [boxes]

    def takes(item: Instruction) -> bool:
        target = item.branch_target
        assert target is not None
        if item.address != end and target < item.address:  # from box to box
            left[0] -= 1
            return left[0] > 0
        return item.address == end or not copies

    return loop_cycles(list(way(kernel, begin, begin, takes)))


def test_a_steps_code_is_that_of_the_sass(built: Callable[[str, str], Cubin]) -> None:
    kernels = read_sass(built("ring_math", "sm_90a").path)
    found = {
        (n, num, boxes): tuple(
            round(turn(kernels[f"ring_n{n}_{num}_1_{boxes}"], copies=copies, boxes=boxes)) for copies in (False, True)
        )
        for n in case.SOME_N for num in case.WARPGROUPS for boxes in case.BOXES
    }  # fmt: skip
    assert found == dict(case.CODE)
