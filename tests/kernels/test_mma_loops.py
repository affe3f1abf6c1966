"""mma_loops: its loops are what their names say, right sums pass, wrong ones do not."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gpusim.evidence.cases.case import load_case
from gpusim.machine.config import load_gpu

from .conftest import Sass
from .mma_code import is_held, k_loop, math_places, step_code

CASE = load_case("mma_loops")
case = sys.modules[CASE.launch.__module__]
typed = case.Build.of
CONFIGS = [*CASE.configs("loops", 1), *CASE.configs("padded", 1)]


def outputs_of(config: dict[str, str], step_cycles: int) -> dict[str, np.ndarray]:
    """What a launch leaves whose steps take so long."""
    cycles = np.array(case.ROUNDS, dtype="<u4") * step_cycles + 1000
    return {"cycles": cycles, "sums": case.weighted_sums(typed(config)).astype("<i4")}


def test_every_build_fits_and_is_there_once() -> None:
    assert len({config["kernel"] for config in CONFIGS}) == len(CONFIGS)
    for config in CONFIGS:
        launched = CASE.launch(config, False)
        assert launched.smem_bytes <= 160 * 1024 and launched.block[0] in (128, 256, 512)
        assert typed(dict(config)).kernel == config["kernel"]


def test_loops_hold_what_their_names_say(sass: Sass) -> None:
    kernels = sass("mma_loops", "sm_90a")
    for build in case.builds():
        kernel = kernels[build.kernel]
        assert kernel.num_spills == 0, build.kernel
        has_copies, meets, has_reads, _ = case.PARTS[build.parts]
        (_, _, depth), (share_m, share_n) = build.shape.tile, build.shape.share
        slices = depth // 16 if build.fragments == "double" else 1
        step = k_loop(kernel, is_single=build.fragments == "single")
        assert len(step.select("HMMA")) == share_m // 16 * share_n // 8 * slices, build.kernel
        assert len(step.select("LDSM")) == has_reads * (share_m + share_n) // 16 * slices, build.kernel
        copies = has_copies * build.shape.stage_bytes // (512 * build.shape.num_warps)
        assert len(step.select("LDGSTS")) == copies, build.kernel
        assert len(step.select("BAR")) == meets, build.kernel


def test_the_code_between_is_that_of_the_sass(sass: Sass) -> None:
    kernels = sass("mma_loops", "sm_90a")
    found = {
        build.kernel: round(
            step_code(kernels[build.kernel], build.shape.tile[2] // 16, is_single=build.fragments == "single")
        )
        for build in case.builds()
    }
    assert found == dict(case.CODE)


def test_copies_meetings_and_uses_lie_where_the_sass_has_them(sass: Sass) -> None:
    kernels = sass("mma_loops", "sm_90a")
    depths = {build.kernel: build.shape.tile[2] // 16 for build in case.builds()}
    doubles = [build.kernel for build in case.builds() if build.fragments == "double"]
    found = {
        name: tuple(None if place is None else round(place, 3) for place in math_places(kernels[name], depths[name]))
        for name in doubles
    }
    assert found == dict(case.PLACES)
    copying = [build for build in case.builds() if case.PARTS[build.parts][0]]
    free = [
        build.kernel for build in copying
        if not is_held(kernels[build.kernel], depths[build.kernel], is_single=build.fragments == "single")
    ]  # fmt: skip
    assert sorted(free) == sorted(case.FREE)


def test_the_twin_of_math_alone_takes_the_tensor_cores_and_its_code_and_parts_never_speed_a_step_up() -> None:
    gpu = load_gpu("h200_sxm")
    shape = case.SHAPES[3]  # one warp a sub-core: 64 x 64 each, two slices

    def step(parts: str) -> float:
        build = case.Build(*shape.text, 3, "single", parts)
        (config,) = [config for config in CONFIGS if config["kernel"] == build.kernel]
        return CASE.predict(config, gpu)["step_cycles"]

    interval = 2 * 16 * 8 * 16 * 4 / gpu.tensor_core.mma_sync_flops_per_cycle["16bit"]
    of_math, code = 2 * 32 * interval, case.CODE["mma_128x128x32_2x2_s3_single_math"]
    assert step("math") == pytest.approx(of_math + code - 2 * interval)  # code goes on once a slice's last has been issued
    assert step("math") < step("loose") < step("no_copies") < step("all")


@pytest.mark.parametrize("shape", case.SHAPES, ids=str)
def test_every_copy_of_a_stage_is_wanted(shape: object) -> None:
    """The kernel asks for row ``thread's + i * rows at once`` of A and B together, and for none beyond what it is told."""
    build = case.Build(*shape.text, 3, "double", "all")
    (config,) = [config for config in CONFIGS if config["kernel"] == build.kernel]
    *_, rows = np.frombuffer(CASE.launch(config, False).arguments[0].tobytes(), dtype="<u4")
    assert rows == build.shape.tile[0] + build.shape.tile[1]
