"""fma_loops: its loops are what their names say, right sums pass, wrong ones do not."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gpusim.evidence.cases.case import WrongAnswer, load_case
from gpusim.evidence.toolchain.register_banks import bank_reads
from gpusim.machine.config import load_gpu

from .conftest import Sass
from .mma_code import fma_step_code, loops_with

CASE = load_case("fma_loops")
case = sys.modules[CASE.launch.__module__]
typed = case.Build.of
CONFIGS = CASE.configs("loops", 1)


def outputs_of(config: dict[str, str], step_cycles: int) -> dict[str, np.ndarray]:
    """What a launch leaves whose steps take so long."""
    build = typed(config)
    cycles = np.tile(np.array(case.ROUNDS, dtype="<u4") * step_cycles + 1000, case.num_ctas(build))
    begin = (1 << 32) - 500  # clocks come round
    spans = [[idx % case.NUM_SMS, begin, sum(case.ROUNDS) * step_cycles - 500] for idx in range(case.num_ctas(build))]
    return {
        "cycles": cycles, "spans": np.array(spans, dtype="<u4").reshape(-1),
        "sums": np.tile(case.weighted_sums(build), case.num_ctas(build)).astype("<i4"),
    }  # fmt: skip


def test_ctas_of_an_sm_count_from_the_first_ones_begin_to_the_last_ones_end() -> None:
    total = sum(case.ROUNDS)
    spans = [[sm, begin, end] for sm in range(case.NUM_SMS) for begin, end in ((50, 50 + 7 * total), (0, 9 * total))]
    assert case.shared_step_cycles(np.array(spans, dtype="<u4").reshape(-1), 2) == 9.0
    with pytest.raises(WrongAnswer, match="0 SMs had 4 CTAs"):
        case.shared_step_cycles(np.array(spans, dtype="<u4").reshape(-1), 4)


def test_every_build_fits_and_is_there_once() -> None:
    assert len({config["kernel"] for config in CONFIGS}) == len(CONFIGS)
    for config in CONFIGS:
        launched = CASE.launch(config, False)
        ctas = int(config["ctas"])
        assert launched.smem_bytes <= 48 * 1024 or (ctas == 1 and launched.smem_bytes <= 200 * 1024)
        assert launched.block[0] * ctas in (128, 256, 512)
        assert typed(dict(config)).kernel == config["kernel"]


def test_a_grid_s_slots_fit_its_sms() -> None:
    for build in case.builds():
        assert build.ctas * (build.smem_bytes + 1024) <= 228 * 1024, build.kernel


def test_no_copy_reads_beyond_its_operand() -> None:
    """A round of copies brings a step for each of its own, and as many more as the ring has slots but one; no more."""
    assert max(build.stages for build in case.builds()) <= case.AHEAD


def test_loops_hold_what_their_names_say(sass: Sass) -> None:
    kernels = sass("fma_loops", "sm_90a")
    for build in case.builds():
        kernel = kernels[build.kernel]
        assert (kernel.num_spills > 0) == (build.kernel in case.SPILLS), build.kernel
        (rows, columns), depth = build.shape.thread, build.shape.depth
        way, meets, has_reads = case.PARTS[build.parts]
        is_single = build.fragments == "single"
        loops = loops_with(kernel, "FFMA")
        each, step = loops[0], loops[1 if is_single else 0]
        num_ks = 1 if is_single else depth
        loads = [item for item in each.select("LDS") if item.predicate != "!PT"]
        assert len(each.select("FFMA")) == rows * columns * num_ks, build.kernel
        assert len(loads) == has_reads * (rows + columns) * 4 // build.width * num_ks, build.kernel
        pieces = build.num_copies
        assert len(step.select("LDGSTS")) == pieces * (way in ("kAsync", "kTurned", "kTurnedA", "kTurnedB")), build.kernel
        assert len(step.select("STS")) == pieces * (way in ("kStores", "kLoads")), build.kernel
        assert len(step.select("LDG")) == pieces * (way == "kLoads"), build.kernel
        assert len(step.select("BAR")) == meets * (2 if build.stages == 1 else 1), build.kernel


def test_the_code_between_and_what_ffmas_read_are_those_of_the_sass(sass: Sass) -> None:
    kernels = sass("fma_loops", "sm_90a")
    for build in case.builds():
        kernel, num_inner = kernels[build.kernel], build.shape.depth if build.fragments == "single" else 1
        assert round(fma_step_code(kernel, num_inner)) == case.CODE[build.kernel], build.kernel
        num_warps = 2 if build.shape.num_warps * build.ctas > 4 else 1
        reads = bank_reads(loops_with(kernel, "FFMA")[0].instructions, num_warps=num_warps)
        assert reads == pytest.approx(case.BANK_READS[build.kernel], abs=0.006), build.kernel


def test_the_twin_of_math_alone_takes_its_reads_and_its_code_and_parts_never_speed_a_step_up() -> None:
    gpu = load_gpu("h200_sxm")
    shape = case.SHAPES[3]  # one warp a sub-core

    def step(parts: str) -> float:
        build = case.Build(*shape.text, 3, 16, "double", parts)
        (config,) = [config for config in CONFIGS if config["kernel"] == build.kernel]
        return CASE.predict(config, gpu)["step_cycles"]

    name = case.Build(*shape.text, 3, 16, "double", "math").kernel
    of_math = 8 * 8 * 16 * case.BANK_READS[name] / gpu.warp_scheduler.bank_reads_per_cycle
    assert step("math") == pytest.approx(of_math + case.CODE[name])
    assert step("math") < step("loose") < step("meets")
    assert CASE.predict(next(config for config in CONFIGS if config["parts"] == "stores"), gpu) == {}
