"""sgemm: configs cover every option, wrong answers are refused, launches are the model's, SASS is what the source says."""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import pytest

from gpusim.evidence.cases.case import Config, WrongAnswer, load_case
from gpusim.evidence.cases.gemm_output import target
from gpusim.evidence.cases.validation_kernel import floats
from gpusim.evidence.toolchain.register_banks import bank_reads
from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import load_gpu

from .conftest import Sass
from .mma_code import fma_code, fma_step_instructions, loops_with

CASE = load_case("sgemm")
case = sys.modules[CASE.launch.__module__]
ALL = CASE.configs("products", 1)


def small(layout: str) -> Config:
    """A product of few elements by a build of this layout."""
    build = next(build for build in case.builds() if build.layout == layout)
    return {"kernel": build.name, "m": "132", "n": "72", "k": "44", "raster_group": "2"}


def test_every_value_of_every_option_stands_in_three_builds() -> None:
    builds = case.builds()
    assert len(builds) == len({build.name for build in builds}) == len(case.USUAL) + case.NUM_DRAWN_BUILDS
    for values, name, least in (
        (case.TILES, "tile", 2), (case.WARPS, "warps", 3), (case.STAGES, "stages", 3), (case.LAYOUTS, "layout", 3),
    ):  # fmt: skip
        found = Counter(getattr(build, name) for build in builds)
        assert set(found) == set(values) and min(found.values()) >= least
    assert {config["kernel"] for config in ALL} == {build.name for build in builds}


@pytest.mark.parametrize("seed", [1, 2])
def test_every_shape_stands_twice_and_every_group_three_times(seed: int) -> None:
    configs = CASE.configs("products", seed)
    shapes = Counter((int(config["m"]), int(config["n"]), int(config["k"])) for config in configs)
    assert set(shapes) == set(case.SHAPES) and min(shapes.values()) >= 2
    assert min(Counter(config["raster_group"] for config in configs).values()) >= 3
    assert (configs == ALL) == (seed == 1)


@pytest.mark.parametrize("layout", case.LAYOUTS)
def test_right_answers_pass_and_one_that_misses_a_product_does_not(layout: str) -> None:
    """BLAS letters: t of A and n of B have k contiguous."""
    config = small(layout)
    m, n, k = (int(config[name]) for name in "mnk")
    a, b = (floats(item.window(0, item.num_bytes), "fp32") for item in case.operands(config))
    left = a.reshape(m, k) if layout[0] == "t" else a.reshape(k, m).T
    right = b.reshape(n, k).T if layout[1] == "n" else b.reshape(k, n)

    def windows(product: np.ndarray) -> np.ndarray:
        raw = np.ascontiguousarray(product).reshape(-1).view(np.uint8)
        return np.concatenate([raw[offset : offset + size] for offset, size in target(config, "fp32").windows])

    assert CASE.check(config, {"d": windows((left @ right).astype("<f4"))})["error_share"] <= 1.0
    with pytest.raises(WrongAnswer, match="are wrong"):
        CASE.check(config, {"d": windows((left[:, 1:] @ right[1:]).astype("<f4"))})
    unwritten = np.full((m, n), np.nan, dtype="<f4")
    with pytest.raises(WrongAnswer, match="row 0, column 0 of D was not written"):
        CASE.check(config, {"d": windows(unwritten)})


@pytest.mark.parametrize("config", ALL, ids=lambda config: f"{config['kernel']}-{config['m']}")
def test_a_launch_is_the_models(config: Config) -> None:
    launched = CASE.launch(config, False)
    of_model = GemmParams(**case.options(config)).launch(load_gpu("h200_sxm"))
    assert (launched.grid[0], launched.block[0]) == (of_model.num_ctas, of_model.num_threads)
    assert launched.smem_bytes == of_model.smem_bytes


def test_registers_are_those_of_the_cubin_and_nothing_spills(sass: Sass) -> None:
    found = sass("sgemm", "sm_90a")
    assert {name: kernel.num_registers for name, kernel in found.items()} == case.REGISTERS
    assert all(kernel.num_spills == 0 for kernel in found.values())


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_turn_of_the_main_loop_has_the_products_and_vectors_of_a_k_step(arch: str, sass: Sass) -> None:
    for build in case.builds():
        kernel = sass("sgemm", arch)[build.name]
        loop = max(kernel.loops, key=lambda loop: len(loop.select("FFMA")))
        (m, n, k), (warps_m, warps_n) = build.tile, build.warps
        rows, columns = m // warps_m // 4, n // warps_n // 8
        assert len(loop.select("FFMA")) == k * rows * columns, build.name
        real = [item for item in loop.select("LDS") if item.predicate != "!PT"]
        assert len(real) == k * (rows + columns) // 4, build.name
        assert all(item.opcode == "LDS.128" for item in real), build.name


def test_the_code_between_is_that_of_the_sass(sass: Sass) -> None:
    kernels = sass("sgemm", "sm_90a")
    for build in case.builds():
        assert tuple(map(round, fma_code(kernels[build.name]))) == tuple(case.CODE[build.name].values()), build.name
        assert fma_step_instructions(kernels[build.name]) == case.INSTRUCTIONS[build.name], build.name


def test_what_ffmas_read_of_their_banks_is_that_of_the_sass(sass: Sass) -> None:
    kernels = sass("sgemm", "sm_90a")
    for build in case.builds():
        reads = bank_reads(loops_with(kernels[build.name], "FFMA")[0].instructions, num_warps=2)
        assert reads == pytest.approx(case.BANK_READS[build.name], abs=0.006), build.name
