"""Copy grains: the check refuses a wrong byte, registers and loads under way are the compiler's, what waits costs writes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gpusim import load_gpu, simulate
from gpusim.evidence.cases.case import load_case
from gpusim.evidence.toolchain.sass import KernelSass

CASE = load_case("copy_grains")
case = sys.modules[CASE.launch.__module__]
CONFIGS = CASE.configs("grains", 1)
GPU = load_gpu("h100_sxm")
MIB = 2**20
Sass = Callable[[str, str], dict[str, KernelSass]]


def test_a_vector_of_a_copy_is_the_input_s_and_one_more() -> None:
    config = next(config for config in CONFIGS if config["kernel"] == "strided_b8_u4")
    given = case.words()
    came = case.expected(config, 0, 64).view(np.uint32)
    assert [int(word) for word in came] == [int(given[idx]) + (idx % 2 == 0) for idx in range(16)]


def test_registers_and_accesses_are_those_that_the_compiler_made(sass: Sass) -> None:
    kernels = sass("copy_grains", "sm_90a")
    assert {config["kernel"] for config in CONFIGS} == set(kernels)
    for name, kernel in kernels.items():
        kind, width, unrolled = case.parts(case.Config(name, 256, 0, 0, 0))
        num = 1 if kind == "by_one" else unrolled
        names = [item.name for item in kernel.instructions]
        assert kernel.num_registers == case.REGISTERS[kind, width][unrolled.bit_length() - 1] and kernel.num_spills == 0
        assert names.count("LDG") == (0 if kind == "write" else num) and names.count("STG") == num
        if kind in ("strided", "dense", "paused"):
            assert names[: names.index("STG")].count("LDG") == num


def time_us(kernel: str, *, queued_turnaround_per_mb: float, read_write_turnaround_wait_ns: float, **config: int) -> float:
    """64 MiB out of memory and to it."""
    hbm = replace(
        GPU.hbm, queued_turnaround_per_mb=queued_turnaround_per_mb,
        read_write_turnaround_wait_ns=read_write_turnaround_wait_ns, read_behind_write_wait_ns=0.0,
    )  # fmt: skip
    whole = replace(case.Config(kernel, threads=256, ctas_per_sm=0, pause_cycles=0, array_bytes=64 * MIB), **config)
    return simulate(case.twin(whole), replace(GPU, hbm=hbm), clock="max").time_us


def test_what_waits_for_memory_makes_its_turns_longer() -> None:
    """With 16 MB under way by far more than with 4; reads alone do not turn."""
    grown = {
        kernel: time_us(kernel, queued_turnaround_per_mb=0.01, read_write_turnaround_wait_ns=0.0)
        / time_us(kernel, queued_turnaround_per_mb=0.0, read_write_turnaround_wait_ns=0.0)
        for kernel in ("strided_b16_u1", "strided_b16_u4", "read_b16_u1")
    }
    assert grown["read_b16_u1"] == pytest.approx(1.0, rel=1e-3)
    assert grown["strided_b16_u4"] - 1.0 > 2.0 * (grown["strided_b16_u1"] - 1.0) > 0.005


def test_reads_wait_for_turns_of_writes_where_few_bytes_are_under_way() -> None:
    grown = {
        (kernel, ctas): time_us(kernel, queued_turnaround_per_mb=0.0, read_write_turnaround_wait_ns=400.0, ctas_per_sm=ctas)
        / time_us(kernel, queued_turnaround_per_mb=0.0, read_write_turnaround_wait_ns=0.0, ctas_per_sm=ctas)
        for kernel, ctas in (("strided_b16_u1", 2), ("strided_b16_u4", 0), ("read_b16_u1", 2))
    }
    assert grown["read_b16_u1", 2] == pytest.approx(1.0, rel=1e-3)
    assert grown["strided_b16_u4", 0] == pytest.approx(1.0, abs=0.01)
    assert grown["strided_b16_u1", 2] > 1.02
