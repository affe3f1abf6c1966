"""Trains and fills that fit, SASS with nothing else in the train, results that must be right, and what is predicted."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import WrongAnswer, load_case
from gpusim.evidence.toolchain.sass import KernelSass

Sass = Callable[[str, str], dict[str, KernelSass]]
CASE = load_case("fill_beside_wgmma")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
GPU = load_gpu("h200_sxm")
CONFIGS = {group: CASE.configs(group, 1) for group in CASE.groups}
ALL = [config for configs in CONFIGS.values() for config in configs]


def one(fill: str, *, source: str = "ss", n: int = 64, pace: int = 0, has_train: bool = True) -> dict[str, str]:
    return {"kernel": f"beside_{source}_n{n}", "source": source, "n": str(n), "fill": fill,
            "pace_bytes_per_cycle": str(pace), "has_train": str(int(has_train))}  # fmt: skip


def test_every_pair_that_runs_together_also_runs_alone() -> None:
    trains = {config["kernel"] for config in CONFIGS["alone"] if config["has_train"] == "1"}
    fills = {(config["fill"], config["pace_bytes_per_cycle"]) for config in CONFIGS["alone"] if config["has_train"] == "0"}
    for config in CONFIGS["together"]:
        assert config["kernel"] in trains and (config["fill"], config["pace_bytes_per_cycle"]) in fills


def test_launches_fit_trains_take_as_long_and_sums_stay_exact() -> None:
    largest = {n: np.abs(case.product(n)).max() for n in {int(config["n"]) for config in ALL}}
    for config in ALL:
        launch = CASE.launch(config, False)
        assert 48 * 1024 < launch.smem_bytes <= 220 * 1024
        groups = typed(config).num_groups
        if config["has_train"] == "1":
            assert groups * 4 * int(config["n"]) / 2 == pytest.approx(case.TRAIN_CYCLES, rel=0.02)
        assert groups * largest[int(config["n"])] < 1 << 24  # fp32 holds all whole numbers up to there
        if config["fill"].startswith("tma"):
            assert typed(config).interval_cycles * 8 < case.TRAIN_CYCLES / 4  # the first eight boxes are a small part


def test_held_to_a_pace_a_fill_moves_so_many_bytes_a_cycle() -> None:
    for config in ALL:
        if int(config["pace_bytes_per_cycle"]):
            rate = case.TURN_BYTES[config["fill"]] / typed(config).interval_cycles
            assert rate == pytest.approx(int(config["pace_bytes_per_cycle"]), rel=0.02)


# ---------------------------------------------------------------------------------------------- SASS


def test_a_train_is_four_wgmmas_a_wait_and_a_branch(sass: Sass) -> None:
    for name, kernel in sass("fill_beside_wgmma", "sm_90a").items():
        n = int(name.rsplit("n", 1)[1])
        (loop,) = [loop for loop in kernel.loops if loop.tensor_shapes]
        assert loop.tensor_shapes == {f"HGMMA 64x{n}x16": 4} == kernel.tensor_shapes, name
        assert len(loop.instructions) <= 10 and kernel.wgmma_wait_depths == (1, 0), name
        assert kernel.num_dummy_wgmmas == 0 and kernel.num_spills == 0, name
        registers = [item.operands.split(", ")[1].startswith("R") for item in loop.select("HGMMA")]
        assert all(registers) if "rs" in name else not any(registers), name


def test_the_fills_are_wide_and_as_many_as_said(sass: Sass) -> None:
    for name, kernel in sass("fill_beside_wgmma", "sm_90a").items():
        loops = kernel.loops
        stores = [len([item for item in loop.select("STS") if item.opcode == "STS.128"]) for loop in loops]
        loads = [len([item for item in loop.select("LDS") if item.opcode == "LDS.128"]) for loop in loops]
        copies = [len(loop.select("LDGSTS")) for loop in loops]
        assert 8 in stores and 8 in loads and 4 in copies, name
        assert len(kernel.select("UTMALDG")) == 1, name


# ---------------------------------------------------------------------------------------------- check


def outputs_of(config: dict[str, str], *, train_cycles: int, cycles: int, turns: int) -> dict[str, np.ndarray]:
    """What the kernel must leave, worked out by hand."""
    n, fill, groups = int(config["n"]), config["fill"], typed(config).num_groups
    a, b = case.operand(64, 0), case.operand(n, 1)
    d = np.zeros((n // 2, 128))
    for thread in range(128):
        for register in range(n // 2):
            row = thread // 32 * 16 + thread % 32 // 4 + (8 if register % 4 >= 2 else 0)
            column = register // 4 * 8 + thread % 4 * 2 + register % 2
            d[register, thread] = groups * sum(int(x) * int(y) for x, y in zip(a[row], b[column], strict=True))
    smem = case.region().copy()
    if fill == "tma_outside":
        smem[:] = 0
    elif fill == "tma":
        for row in range(512):
            for chunk in range(8):
                smem[row * 128 + 16 * (chunk ^ row % 8) :][:16] = case.region()[row * 128 + 16 * chunk :][:16]
    elif fill == "st_shared":
        words = smem.view("<u4")
        for place in range(words.size):
            thread = 128 + place // 4096 * 32 + place // 4 % 32
            words[place] = (thread * 0x9E3779B1 + 1 + place % 4) % 2**32
    seen = np.zeros(20, dtype="<u4")
    seen[0] = train_cycles
    for warp in range(1 if fill.startswith("tma") else 4):
        total = int(case.region().view("<u4")[warp * 4096 :][:1024].sum(dtype=np.uint64)) if fill == "ld_shared" else 0
        seen[4 + 4 * warp : 7 + 4 * warp] = cycles, turns, total * turns % 2**32
    return {"d": d.astype("<f4"), "smem": smem, "seen": seen}


def test_loads_that_do_not_add_up_and_fills_that_never_turned_are_no_answers() -> None:
    config = one("ld_shared")
    outputs = outputs_of(config, train_cycles=41_000, cycles=40_000, turns=200)
    outputs["seen"][6] ^= 1
    with pytest.raises(WrongAnswer, match="add up"):
        CASE.check(config, outputs)
    with pytest.raises(WrongAnswer, match="the fill says"):
        CASE.check(one("tma"), outputs_of(one("tma"), train_cycles=41_000, cycles=40_000, turns=0))


def test_operands_are_swizzled_rows_of_128_bytes() -> None:
    image, plain = case.image(64, 0), case.encode(case.operand(64, 0))
    for row in range(64):
        for chunk in range(8):
            assert (image[row * 128 + 16 * (chunk ^ row % 8) :][:16] == plain[row, 16 * chunk : 16 * chunk + 16]).all()


# ---------------------------------------------------------------------------------------------- predictions


def predict(config: dict[str, str]) -> dict[str, float]:
    return CASE.predict(config, GPU)


def test_a_train_runs_at_the_rate_of_the_tensor_cores() -> None:
    gpu = GPU
    for n in case.SOME_N:
        for source in case.SOURCES:
            wanted = 2 * 64 * n * 16 / gpu.tensor_core.wgmma_flops_per_cycle["16bit"] + gpu.tensor_core.wgmma_overhead_cycles
            predicted = predict(one("none", source=source, n=n))["wgmma_cycles"]
            assert predicted == pytest.approx(wanted, rel=0.01)


def test_a_fill_by_tma_runs_at_the_pace_of_its_loop_and_one_by_stores_at_no_more_than_shared_memory() -> None:
    gpu = GPU
    assert gpu.tma is not None and gpu.mbarrier is not None
    turn = gpu.mbarrier.one_lane_try_wait_cycles + gpu.mbarrier.arrive_cycles + gpu.tma.issue_cycles
    turn += gpu.smem.load_latency_cycles + case.TURN_CYCLES["tma"]  # the flag is waited for
    predicted = predict(one("tma", has_train=False))["fill_bytes_per_cycle"]
    assert predicted == pytest.approx(8192 / turn, rel=0.05)
    assert predicted < gpu.xbar.sm_read_bytes_per_cycle
    stored = predict(one("st_shared", has_train=False))["fill_bytes_per_cycle"]
    assert 64 < stored <= 128 * gpu.smem.wavefronts_per_cycle * (1 + 1e-9)


def test_operand_reads_are_predicted_as_counted() -> None:
    """A 64 x 16 of bf16 are 16 wavefronts, B n / 4, for each instruction."""
    config = one("none", n=128)
    assert predict(config)[case.GMMA_WAVEFRONTS] == 4 * typed(config).num_groups * (16 + 32)
    assert predict(one("none", source="rs", n=128))[case.GMMA_WAVEFRONTS] == 4 * typed(config).num_groups * 32


def test_loads_beside_wgmma_return_no_more_registers_than_the_gpu_says() -> None:
    most = 128 * GPU.smem.wgmma_lds_registers_per_cycle
    for source, n in (("rs", 64), ("rs", 256), ("ss", 256)):
        assert 0.9 * most < predict(one("ld_shared", source=source, n=n))["fill_bytes_per_cycle"] <= most * (1 + 1e-9)
    assert predict(one("st_shared", source="rs", n=64))["fill_bytes_per_cycle"] > most


def test_of_paced_fills_those_that_nothing_reaches_are_predicted_and_boxes_outside_are_not() -> None:
    assert "fill_bytes_per_cycle" not in predict(one("tma", pace=32))
    fast, free = (predict(one("tma", pace=pace))["fill_bytes_per_cycle"] for pace in (112, 0))
    turn_cycles = 8192 / free + case.PACE_CYCLES["tma"]
    assert fast == pytest.approx(8192 / turn_cycles, rel=0.01)
    assert predict(one("st_shared", has_train=False, pace=80))["fill_bytes_per_cycle"] == pytest.approx(80, rel=0.01)
    assert "fill_bytes_per_cycle" not in predict(one("tma_outside"))
