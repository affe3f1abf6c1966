"""Bursts by side of L2: configs, what the check refuses, what quantiles are of, what the twin moves."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim import load_gpu, simulate
from gpusim.evidence.cases.case import Config, KernelLaunch, Output, WrongAnswer, load_case
from gpusim.evidence.toolchain.sass import KernelSass

CASE = load_case("side_bursts")
case = sys.modules[CASE.launch.__module__]
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]
GPU = load_gpu("h200_sxm")
SIDE_OF_SM = np.arange(case.NUM_SMS) // 2 % 2


def find(**wanted: object) -> Config:
    told = {name: str(value) for name, value in wanted.items()}
    return next(config for config in CONFIGS if {name: config[name] for name in told} == told)


READ = find(way="read", read_side="both", ctas_per_sm=1, threads=256, unrolled=4)
WRITE = find(way="write", write_side="far", ctas_per_sm=1, threads=256, unrolled=4)
COPY = find(way="copy", read_side="near", write_side="far", ctas_per_sm=2, threads=1024, unrolled=2)


def outputs_of(config: Config) -> dict[str, NDArray[np.uint32]]:
    """What a right launch leaves, CTA c on SM c modulo their number; a second CTA's loads come ten cycles later."""
    launch = CASE.launch(config, False)
    assert isinstance(launch, KernelLaunch)
    made = {item.name: np.array(item.array) for item in launch.arguments if isinstance(item, Output)}
    ctas, warps = case.num_ctas(config), case.num_warps(config)
    swing = np.where(np.arange(case.NUM_PROBES) % 3 == 0, 80, -40)
    made["probed"][:] = 300 + np.where(SIDE_OF_SM[:, None] == 1, -swing, swing)
    lines = made["lines"]
    lines[:] = np.arange(lines[:, 0].size, dtype=np.uint32).reshape(lines[:, 0].shape)[:, None]
    cta = np.arange(ctas).repeat(warps)
    times = made["times"]
    times[:, :6] = np.array([10, 20, 30, 40, 50, 60]) + 10 * (cta // case.NUM_SMS)[:, None]
    times[:, 7], times[:, 8], times[:, 9] = cta % case.NUM_SMS, SIDE_OF_SM[cta % case.NUM_SMS], cta // case.NUM_SMS
    if case.does(config)[0]:
        words = lines[:, 0, ..., None] * np.uint32(32) + np.arange(32, dtype=np.uint32)
        words = words * np.uint32(0x9E3779B1) + np.uint32(0x7F4A7C15)
        times[:, 6] = words.sum(axis=(1, 3, 4), dtype=np.uint32).reshape(-1)
    made["told"][0] = 2621
    return made


def test_all_ctas_find_room_and_a_side_has_the_lines_they_take() -> None:
    for config in CONFIGS:
        ctas, threads, unrolled = (int(config[name]) for name in ("ctas_per_sm", "threads", "unrolled"))
        assert ctas * threads <= {1: 2048, 2: 2048, 4: 1024, 8: 512}[unrolled]
        of_sm = case.num_bytes(config) // case.LINE_BYTES // case.NUM_SMS
        assert of_sm * 96 <= case.NUM_LINES // 2  # lines of a side, however uneven the sides
        assert threads * unrolled // 8 <= 512


def test_no_entry_point_spills(sass: Callable[[str, str], dict[str, KernelSass]]) -> None:
    kernels = sass("side_bursts", "sm_90a")
    assert set(kernels) == {config["kernel"] for config in CONFIGS}
    for kernel in kernels.values():
        assert not [item for item in kernel.instructions if item.opcode.startswith(("STL", "LDL"))]


@pytest.mark.parametrize("config", [READ, WRITE, COPY], ids=lambda config: config["way"])
def test_a_right_launch_passes(config: Config) -> None:
    values = CASE.check(config, outputs_of(config))
    assert set(values) == set(CASE.values)
    reads, writes = case.does(config)
    late = 10.0 * (int(config["ctas_per_sm"]) - 1)
    assert values["cycles"] == 60.0 + late and values["first_sm_cycles"] == 60.0 + late
    assert values["last_come_p0_cycles"] == 40.0 * reads and values["stored_p100_cycles"] == (50.0 + late) * writes
    assert values["slot_0_last_come_p50_cycles"] == 40.0 * reads
    assert values["last_slot_last_come_p50_cycles"] == (40.0 + late) * reads
    assert values["num_sms_of_side_0"] == 66.0 and values["side_correlation"] == pytest.approx(1.0)
    assert values["unclear_homes_fraction"] == pytest.approx(0.01, abs=1e-5)


@pytest.mark.parametrize(
    ("config", "name", "place", "value", "says"),
    [
        (READ, "times", (9, 6), 1, "warp 9 read other words"),
        (COPY, "times", (70, 6), 1, "warp 70 read other words"),
        (WRITE, "times", (5, 6), 1, "warp 5 read other words"),
        (WRITE, "times", (8, 10), 3, "3 vectors that were stored"),
        (COPY, "times", (8, 10), 1, "1 vectors that were stored"),
        (READ, "lines", (7, 0, 1, 2, 3), 0, "line 0 was read twice"),
        (COPY, "lines", (7, 1, 1, 2, 3), 5, "line 5 was stored into twice"),
        (WRITE, "lines", (7, 1, 1, 2, 3), 131072, "line 131072 was stored into: there are 131072"),
        (READ, "times", (slice(0, 8), 7), 1, "spread evenly"),
        (READ, "times", (slice(0, 8), 8), 1, "on the other side"),
        (READ, "told", (3,), 1, "spread evenly"),
        (READ, "told", (3,), 2, "too few lines"),
        (READ, "flags", (1,), 1, "given up"),
    ],
)
def test_a_wrong_launch_is_refused(config: Config, name: str, place: tuple[object, ...], value: int, says: str) -> None:
    outputs = outputs_of(config)
    assert (outputs[name][place] != value).any()  # type: ignore[index]  # numbers and slices
    outputs[name][place] = value  # type: ignore[index]  # as above
    with pytest.raises(WrongAnswer, match=says):
        CASE.check(config, outputs)


def test_a_launch_whose_sides_are_not_clear_is_refused() -> None:
    outputs = outputs_of(READ)
    outputs["probed"] = np.random.default_rng(1).integers(200, 400, outputs["probed"].shape).astype(np.uint32)
    with pytest.raises(WrongAnswer, match="sides of L2 are not clear"):
        CASE.check(READ, outputs)


@pytest.mark.parametrize("shape", [(1, 256, 4), (2, 256, 8), (1, 1024, 4), (8, 256, 1)], ids=str)
def test_the_twin_moves_what_the_kernel_does(shape: tuple[int, int, int]) -> None:
    ctas, threads, unrolled = shape
    for way in ("read", "copy"):
        config = find(way=way, read_side="both", ctas_per_sm=ctas, threads=threads, unrolled=unrolled, delay=0)
        told = case.twin(config, GPU)
        assert told.num_threads == threads and len(told.roles) == (threads // 32 if case.is_by_warp(config) else 1)
        counters = simulate(told, GPU, clock="max").counters
        assert counters["dram__bytes_read.sum"] == pytest.approx(case.num_bytes(config), rel=0.01)
        stored = counters["l1tex__m_l1tex2xbar_write_bytes.sum"]
        assert stored >= case.num_bytes(config) if way == "copy" else stored == 0


def test_bursts_of_one_side_have_no_answer_and_late_ctas_end_later() -> None:
    assert CASE.predict(WRITE, GPU) == {} and CASE.predict(COPY, GPU) == {}
    assert CASE.predict(READ, load_gpu("a100_sxm_80gb")) == {}
    at_once = find(way="read", ctas_per_sm=2, threads=512, unrolled=4, delay=0)
    alone, late = (CASE.predict({**at_once, "delay": delay}, GPU)["cycles"] for delay in ("0", "8000"))
    assert alone < 8000.0 < late < 8000.0 + alone
