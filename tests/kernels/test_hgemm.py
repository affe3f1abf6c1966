"""hgemm: configs cover every option, wrong answers are refused, launches are the model's, SASS is what the source says."""

from __future__ import annotations

import random
import sys
from collections import Counter

import numpy as np
import pytest

from gpusim.evidence.cases.case import Config, WrongAnswer, load_case
from gpusim.evidence.cases.gemm_output import target
from gpusim.evidence.cases.validation_kernel import floats
from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import load_gpu

from .conftest import Sass
from .mma_code import code_around, is_held, math_places, step_code

CASE = load_case("hgemm")
case = sys.modules[CASE.launch.__module__]
ALL = CASE.configs("products", 1)
SMALL: Config = {
    "kernel": case.USUAL[0].name, "m": "130", "n": "72", "k": "40", "raster_group": "2", "epilogue": "direct",
}  # fmt: skip


def test_every_value_of_every_option_stands_in_three_builds_and_every_build_in_two_configs() -> None:
    builds = case.builds()
    assert len(builds) == len({build.name for build in builds}) == len(case.USUAL) + case.NUM_DRAWN_BUILDS
    for values, name in (
        (case.TILES, "tile"), (case.WARPS, "warps"), (case.STAGES, "stages"), (case.LAYOUTS, "layout"),
        (case.FRAGMENTS, "fragments"),
    ):  # fmt: skip
        found = Counter(getattr(build, name) for build in builds)
        assert set(found) == set(values) and min(found.values()) >= 3
    assert set(Counter(config["kernel"] for config in ALL).values()) == {2}


def test_builds_are_as_they_were_drawn() -> None:
    draw, others = random.Random("hgemm builds"), case.others()
    wanted = (*case.TILES, *case.WARPS, *case.STAGES, *case.LAYOUTS, *case.FRAGMENTS)
    while True:
        drawn = draw.sample(others, case.NUM_DRAWN_BUILDS)
        values = [
            value for build in drawn
            for value in (build.tile, build.warps, build.stages, build.layout, build.fragments)
        ]  # fmt: skip
        if all(values.count(value) >= case.LEAST_OFTEN for value in wanted):
            break
    assert tuple(drawn) == case.DRAWN


@pytest.mark.parametrize("seed", [1, 2])
def test_shapes_groups_and_epilogues_stand_three_times(seed: int) -> None:
    configs = CASE.configs("products", seed)
    shapes = Counter((int(config["m"]), int(config["n"]), int(config["k"])) for config in configs)
    assert set(shapes) == set(case.SHAPES)
    for found in (shapes, *(Counter(config[name] for config in configs) for name in ("raster_group", "epilogue"))):
        assert min(found.values()) >= 3
    assert (configs == ALL) == (seed == 1)


def answer(config: Config) -> np.ndarray:
    """The windows of D as they should be, cut off to bf16."""
    m, n, k = (int(config[name]) for name in "mnk")
    a, b = (floats(item.window(0, item.num_bytes), "bf16") for item in case.operands(config))
    exact = (a.reshape(m, k) @ b.reshape(n, k).T).astype("<f4")
    raw = ((exact.view("<u4") + 0x8000) >> 16).astype("<u2").reshape(-1).view(np.uint8)
    return np.concatenate([raw[offset : offset + size] for offset, size in target(config, "bf16").windows])


def test_right_answers_pass_and_wrong_ones_are_named() -> None:
    right = answer(SMALL)
    assert CASE.check(SMALL, {"d": right})["error_share"] <= 1.0
    wrong = right.copy()
    wrong[1] ^= 0x01  # an exponent's bit of the first element
    with pytest.raises(WrongAnswer, match="row 0, column 0 of D is"):
        CASE.check(SMALL, {"d": wrong})
    wrong = right.copy()
    wrong[-4:-2] = 0xFF  # as it was before the launch: the last element but one
    with pytest.raises(WrongAnswer, match="row 129, column 70 of D was not written"):
        CASE.check(SMALL, {"d": wrong})


def test_one_product_left_out_is_found() -> None:
    m, n, k = (int(SMALL[name]) for name in "mnk")
    a, b = (floats(item.window(0, item.num_bytes), "bf16") for item in case.operands(SMALL))
    left, right = a.reshape(m, k).copy(), b.reshape(n, k)
    left[:, -1] = 0.0
    raw = ((left @ right.T).astype("<f4").view("<u4") >> 16).astype("<u2").reshape(-1).view(np.uint8)
    with pytest.raises(WrongAnswer, match="are wrong"):
        CASE.check(SMALL, {"d": np.concatenate([raw[at : at + size] for at, size in target(SMALL, "bf16").windows])})


@pytest.mark.parametrize("config", [*ALL, SMALL], ids=lambda config: f"{config['kernel']}-{config['m']}")
def test_a_launch_is_the_models(config: Config) -> None:
    launched = CASE.launch(config, False)
    of_model = GemmParams(**case.options(config)).launch(load_gpu("h200_sxm"))
    assert (launched.grid[0], launched.block[0]) == (of_model.num_ctas, of_model.num_threads)
    assert launched.smem_bytes == of_model.smem_bytes


def test_an_a100_has_room_for_every_build() -> None:
    gpu = load_gpu("a100_sxm_80gb")
    for config in ALL:
        GemmParams(**case.options(config)).launch(gpu)


def test_registers_are_those_of_the_cubin_and_nothing_spills(sass: Sass) -> None:
    found = sass("hgemm", "sm_90a")
    assert {name: kernel.num_registers for name, kernel in found.items()} == case.REGISTERS
    assert all(kernel.num_spills == 0 for kernel in found.values())


def test_copies_fetch_whole_lines_where_the_case_says_so(sass: Sass) -> None:
    for build in case.builds():
        copies = sass("hgemm", "sm_90a")[build.name].select("LDGSTS")
        assert {"LTC128B" in copy.opcode for copy in copies} == {build.has_line_fetches}, build.name


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_turn_of_the_main_loop_holds_the_slices_that_the_source_unrolls(arch: str, sass: Sass) -> None:
    for build in case.builds():
        kernel = sass("hgemm", arch)[build.name]
        (m, n, k), (warps_m, warps_n) = build.tile, build.warps
        of_slice = m // warps_m // 16 * (n // warps_n // 8)
        num_slices = k // 16 if build.fragments == "double" else 1
        is_peeled = build.fragments == "double" and build.stages > 1
        assert len(kernel.select("HMMA")) == (1 + is_peeled) * num_slices * of_slice, build.name
        inner = min((loop for loop in kernel.loops if loop.select("HMMA")), key=lambda loop: len(loop.instructions))
        assert len(inner.select("HMMA")) == num_slices * of_slice, build.name
        assert len(inner.select("LDSM")) == num_slices * (m // warps_m + n // warps_n) // 16, build.name
        depths = set(kernel.cp_async_wait_depths)
        assert depths == {max(0, build.stages - 2), 0}, build.name
        assert bool(kernel.select("STSM")) == (arch == "sm_90a"), build.name


def test_the_code_between_is_that_of_the_sass(sass: Sass) -> None:
    kernels = sass("hgemm", "sm_90a")
    for build in case.builds():
        rows, columns, depth = build.tile
        slice_n = columns  # of D, staged at once
        while 2 * rows * slice_n > build.smem_bytes:
            slice_n //= 2
        is_single, vectors = build.fragments == "single", rows * slice_n // 8 // build.threads
        step = step_code(kernels[build.name], depth // 16, is_single=is_single)
        around = code_around(kernels[build.name], columns // slice_n, vectors, is_single=is_single)
        assert tuple(map(round, (step, *around))) == tuple(case.CODE[build.name].values()), build.name


def test_copies_meetings_and_uses_lie_where_the_sass_has_them(sass: Sass) -> None:
    kernels = sass("hgemm", "sm_90a")
    doubles = [build for build in case.builds() if build.fragments == "double" and build.stages > 1]
    places = {build.name: math_places(kernels[build.name], build.tile[2] // 16) for build in doubles}
    assert {name: tuple(round(place or 0.0, 3) for place in found) for name, found in places.items()} == {
        name: tuple(of_build.values()) for name, of_build in case.PLACES.items()
    }
    free = [
        build.name for build in case.builds()
        if not is_held(kernels[build.name], build.tile[2] // 16, is_single=build.fragments == "single")
    ]  # fmt: skip
    assert sorted(free) == sorted(case.FREE)
