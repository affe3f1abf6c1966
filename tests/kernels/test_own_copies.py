"""Trains that fit, SASS with the copies and waits of the source, answers that must be right, and what is predicted."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import load_case
from gpusim.evidence.toolchain.sass import KernelSass

Sass = Callable[[str, str], dict[str, KernelSass]]
CASE = load_case("own_copies")
case = sys.modules[CASE.launch.__module__]
typed = case.Build.of
GPU = load_gpu("h200_sxm")
CONFIGS = {group: CASE.configs(group, 1) for group in CASE.groups}
ALL = [config for configs in CONFIGS.values() for config in configs]
BUILDS = {typed(dict(config)).kernel: typed(config) for config in ALL}


def one(
    shape: str = "1x64x128", stages: int = 3, *, ctas: int = 1, copies: int | None = None, **more: object
) -> dict[str, str]:
    copies = case.SHAPES[shape].copies if copies is None else copies
    return dict(case.Build(shape, copies, stages, ctas=ctas, images=ctas, **more))


def outputs_of(config: dict[str, str], *, cycles: int = 300) -> dict[str, np.ndarray]:
    """What the kernel would leave whose steps take so long, and 5000 cycles beside them."""
    build, ctas = typed(config), int(config["ctas"])
    spent = np.full((ctas, case.SHAPES[build.shape].warps, len(case.PHASES)), 176 * 50, dtype="<u4")
    return {
        "cycles": np.tile(np.array([5000 + steps * cycles for steps in case.ROUNDS], dtype="<u4"), (ctas, 1)),
        "sums": np.tile((build.has_math * sum(case.ROUNDS) * case.weighted_sums(build.shape)).astype("<i4"), (ctas, 1)),
        "words": np.full(ctas, case.ring_sum(build), dtype="<u4"),
        "phases": spent,
    }


def test_the_sweeps_are_the_same_every_time_and_of_both_counts_of_sms() -> None:
    assert all(CASE.configs(group, 1) == CASE.configs(group, 2) for group in CASE.groups)
    assert {config["ctas"] for config in CONFIGS["steps"]} == {"1", "132"}
    assert {config["ctas"] for config in CONFIGS["several"]} == {"264", "396", "528"}


def test_stages_are_copied_by_whole_instructions_and_rings_fit() -> None:
    for shape in case.SHAPES.values():
        assert shape.copies * shape.warps * case.COPY_BYTES == shape.stage_bytes
    for config in ALL:
        launch, build = CASE.launch(config, False), typed(config)
        assert launch.smem_bytes <= case.MOST_SMEM_BYTES and build.distance >= 1
        per_sm = -(-int(config["ctas"]) // 132)
        assert per_sm * (launch.smem_bytes + 1024) <= 228 * 1024


def test_no_sum_is_larger_than_its_accumulator_holds_and_none_of_the_threads_is_0() -> None:
    for shape in case.SHAPES:
        sums = case.weighted_sums(shape)
        assert 4 * 64 * sum(case.ROUNDS) < 1 << 24 and (sums != 0).mean() > 0.95
        assert np.abs(sums).max() * sum(case.ROUNDS) < 1 << 31


def test_operands_are_swizzled_rows_of_128_bytes_twice_in_a_row_of_global_memory() -> None:
    stage, plain = case.stage("1x64x64"), case.plain("1x64x64")
    for row in range(16):
        for chunk in range(8):
            assert (stage[row, 16 * (chunk ^ row % 8) :][:16] == plain[row, 16 * chunk : 16 * chunk + 16]).all()
    for is_linear, block in enumerate((plain, stage)):
        image = case.image("1x64x64", is_linear)
        assert (image[:, :128] == block).all() and (image[:, 128:] == block).all()


def test_a_step_is_the_slope_between_rounds() -> None:
    config = one(ctas=132)
    assert CASE.check(config, outputs_of(config, cycles=450))["step_cycles"] == 450
    stamped = one(is_stamped=1)
    assert CASE.check(stamped, outputs_of(stamped))["copies_cycles"] == 50


def test_a_burst_is_told_by_when_its_slowest_warp_has_issued_so_much() -> None:
    config = dict(case.Build("1x64x128", 12, 6, order="burst", has_math=0))
    stamps = np.zeros((1, 4, 3 + 72), dtype="<u4")
    stamps[0, :, 0] = (100, 110, 120, 130)
    stamps[0, :, 3:] = 100 + 10 * np.arange(1, 73)
    stamps[0, 2, 3:] += 5
    stamps[0, :, 1:3] = 1100
    build = typed(config)
    outputs = {"sums": np.zeros((1, 128), dtype="<i4"), "stamps": stamps,
               "words": np.array([case.ring_sum(build)], dtype="<u4")}  # fmt: skip
    values = CASE.check(config, outputs)
    assert values["there_cycles"] == 1000  # from the first warp's begin on
    assert values["issued_8_kib_cycles"] == 10 * 4 + 5 and values["issued_144_kib_cycles"] == 10 * 72 + 5
    assert "issued_192_kib_cycles" not in values


def test_a_row_takes_what_the_fastest_burst_without_math_has_between_64_and_128_kib() -> None:
    def row(has_math: int, cycles: float) -> dict[str, str]:
        # 16 copies in 32 cycles from cycle 10 on; at 64 KiB as many cycles are gone as let 40 KiB pass
        half = cycles / 2
        return {"group": "bursts", "has_math": str(has_math), "issued_8_kib_cycles": "42", "issued_16_kib_cycles": "74",
                "issued_64_kib_cycles": str(10 + 40 * half / 32), "issued_96_kib_cycles": str(10 + 72 * half / 32),
                "issued_128_kib_cycles": str(10 + 40 * half / 32 + cycles)}  # fmt: skip

    of_rows, of_queue = CASE.fit([row(0, 1024), row(0, 768), row(1, 512)])
    assert (of_rows.parameter, of_rows.value) == ("l1.cp_async_row_cycles", 1.5)
    assert (of_queue.parameter, of_queue.value) == ("l1.max_queued_copies", pytest.approx(24 * 1024 / 512))
    assert not CASE.fit([])


# ---------------------------------------------------------------------------------------------- SASS


def test_a_step_has_the_wgmmas_copies_and_meetings_that_its_name_says(sass: Sass) -> None:
    for name, kernel in sass("own_copies", "sm_90a").items():
        build = BUILDS[name]
        shape = case.SHAPES[build.shape]
        each = 4 * shape.blocks * (case.BURST_GROUPS if build.order == "burst" else 1)
        wgmmas = {f"HGMMA 64x{shape.n}x16": each} if build.has_math else {}
        assert kernel.num_dummy_wgmmas == 0 and kernel.num_spills == 0, name
        assert kernel.tensor_shapes == wgmmas, name
        if build.order == "burst":
            assert kernel.wgmma_wait_depths == ((0,) if build.has_math else ()), name
            copies = [item.opcode.partition(".")[0] for item in kernel.instructions
                      if item.opcode.startswith("LDGSTS") or "SR_CLOCK" in item.operands]  # fmt: skip
            assert copies.count("LDGSTS") == build.copies * build.stages
            assert "LDGSTS LDGSTS" not in " ".join(copies), name
            continue
        assert kernel.wgmma_wait_depths == ((build.depth, 0) if build.has_math else ()), name
        if build.copies:
            assert kernel.cp_async_wait_depths == (build.commits * (build.distance - 1), 0), name
        if build.has_others:
            continue
        loop = min((loop for loop in kernel.loops if loop.select("BAR")), key=lambda loop: len(loop.instructions))
        assert loop.tensor_shapes == wgmmas and len(loop.select("LDGSTS")) == build.copies, name
        assert len(loop.select("BAR")) == (2 if build.order == "after_wait" else 1), name
        assert len(loop.select("FENCE")) == build.is_fenced and not loop.select("LDC"), name


# ---------------------------------------------------------------------------------------------- predictions


def test_without_copies_a_step_takes_its_math() -> None:
    for shape in ("2x64x256", "1x128x128"):
        of = case.SHAPES[shape]
        math = 2 * 64 * of.blocks * of.warpgroups * of.n * 64 / GPU.tensor_core.wgmma_flops_per_cycle["16bit"]
        assert CASE.predict(one(shape, 2, copies=0), GPU)["step_cycles"] == pytest.approx(math, rel=0.02)


def test_without_math_a_step_takes_what_the_load_store_unit_wants_of_its_copies_at_least() -> None:
    of = case.SHAPES["2x64x256"]
    least = of.copies * of.warps * GPU.l1.cp_async_bypass_cycles
    assert CASE.predict(one("2x64x256", 4, has_math=0), GPU)["step_cycles"] >= least


def test_what_the_simulator_has_no_words_for_is_not_predicted() -> None:
    assert CASE.predict(one(is_stamped=1), GPU) == {} == CASE.predict(one(has_others=1), GPU)
    assert CASE.predict(one(), load_gpu("a100_sxm_40gb")) == {}
