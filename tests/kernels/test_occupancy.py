"""CTAs of an SM: the questions, the kernels' registers, and NVIDIA's own calculator beside the simulator's rule."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim import load_gpu
from gpusim.evidence.cases.case import Config, WrongAnswer, load_case
from gpusim.evidence.toolchain.sass import KernelSass

CASE = load_case("occupancy")
GPU = load_gpu("h200_sxm")
case = sys.modules[CASE.launch.__module__]
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]
Sass = Callable[[str, str], dict[str, KernelSass]]

CALCULATOR = """
#include <cstdio>
#include <cuda_occupancy.h>
int main() {
    cudaOccDeviceProp gpu{};
    gpu.computeMajor = 9; gpu.maxThreadsPerBlock = 1024; gpu.maxThreadsPerMultiprocessor = 2048; gpu.warpSize = 32;
    gpu.regsPerBlock = gpu.regsPerMultiprocessor = 65536; gpu.sharedMemPerBlock = 49152; gpu.numSms = 132;
    gpu.sharedMemPerMultiprocessor = 233472; gpu.sharedMemPerBlockOptin = 232448; gpu.reservedSharedMemPerBlock = 1024;
    unsigned threads, registers, smem;
    while (scanf("%u %u %u", &threads, &registers, &smem) == 3) {
        cudaOccFuncAttributes kernel{};
        kernel.maxThreadsPerBlock = 1024; kernel.numRegs = registers; kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN; kernel.maxDynamicSharedSizeBytes = smem;
        kernel.numBlockBarriers = 1;
        cudaOccDeviceState state{};
        cudaOccResult found{};
        const int error = cudaOccMaxActiveBlocksPerMultiprocessor(&found, &gpu, &kernel, &state, threads, smem);
        printf("%d %d %d %d %d %d\\n", error, found.activeBlocksPerMultiprocessor, found.blockLimitRegs,
               found.blockLimitSharedMem, found.blockLimitWarps, found.blockLimitBlocks);
    }
}
"""
NAMES = (
    "resident_ctas", "launch__occupancy_limit_registers", "launch__occupancy_limit_shared_mem",
    "launch__occupancy_limit_warps", "launch__occupancy_limit_blocks",
)  # fmt: skip


def header_dir() -> Path | None:
    """Where cuda_occupancy.h lies."""
    places = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda", "/usr/local/cuda-13.0"]
    return next((Path(at) / "include" for at in places if at and (Path(at) / "include/cuda_occupancy.h").exists()), None)


@pytest.fixture(scope="module")
def calculated(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, float]]:
    """NVIDIA's answer to every config, in order."""
    header, compiler = header_dir(), shutil.which("g++")
    if header is None or compiler is None:
        pytest.skip("cuda_occupancy.h or g++ is not here: NVIDIA's calculator cannot be asked")
    folder = tmp_path_factory.mktemp("calculator")
    (folder / "ask.cpp").write_text(CALCULATOR, encoding="utf-8")
    subprocess.run([compiler, f"-I{header}", folder / "ask.cpp", "-o", folder / "ask"], check=True)
    asked = "\n".join(f"{config['threads']} {config['registers']} {config['smem_bytes']}" for config in CONFIGS)
    said = subprocess.run([folder / "ask"], input=asked, capture_output=True, text=True, check=True).stdout
    found = []
    for line in said.splitlines():
        error, *numbers = (int(number) for number in line.split())
        assert error == 0
        found.append(dict(zip(NAMES, map(float, numbers), strict=True)))
    return found


def differences(calculated: list[dict[str, float]], *, has_whole_rows: bool) -> list[tuple[Config, str]]:
    """Where the simulator says something else; of CTAs whose warps are a multiple of the sub-cores, or of the others."""
    return [
        (config, name)
        for config, wanted in zip(CONFIGS, calculated, strict=True)
        for name in NAMES
        if (int(config["threads"]) % 128 == 0) == has_whole_rows and CASE.predict(config, GPU)[name] != wanted[name]
    ]


def test_the_rule_is_nvidias_for_whole_rows_of_warps(calculated: list[dict[str, float]]) -> None:
    assert differences(calculated, has_whole_rows=True) == []


def test_the_rule_is_nvidias_for_shared_memory_threads_and_ctas(calculated: list[dict[str, float]]) -> None:
    wrong = {name for _, name in differences(calculated, has_whole_rows=False)}
    assert wrong <= {"resident_ctas", "launch__occupancy_limit_registers"}


def test_the_rule_is_nvidias_for_other_numbers_of_warps(calculated: list[dict[str, float]]) -> None:
    assert differences(calculated, has_whole_rows=False) == []


def answers(config: Config, held: int) -> dict[str, NDArray[np.generic]]:
    most = np.zeros(case.MAX_SMS, dtype="<u4")
    most[: case.NUM_SMS] = held
    return {
        "here": np.zeros(case.MAX_SMS, dtype="<u4"), "most": most, "started_at": np.ones(1, dtype="<u8"),
        "sum": np.array([case.wanted_sum()], dtype="<f4"),
    }  # fmt: skip


def test_as_many_configs_as_the_readme_says_the_same_every_time() -> None:
    assert len(CASE.configs("by_smem", 1)) == 252 and len(CASE.configs("drawn", 1)) == 200
    assert 350 < len(CASE.configs("by_registers", 1)) < 400
    assert CASE.configs("drawn", 1) == CASE.configs("drawn", 1) != CASE.configs("drawn", 2)


def test_every_config_fits_at_least_once() -> None:
    for config in CONFIGS:
        assert CASE.predict(config, GPU)["resident_ctas"] >= 1
        assert CASE.launch(config, False).grid[0] > case.NUM_SMS * CASE.predict(config, GPU)["resident_ctas"]


def test_sizes_of_shared_memory_lie_on_both_sides_of_each_edge() -> None:
    by_size = {
        int(config["smem_bytes"]): CASE.predict(config, GPU)["resident_ctas"]
        for config in CASE.configs("by_smem", 1) if config["threads"] == "128"
    }  # fmt: skip
    for ctas in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12):
        edge = 233_472 // ctas // 128 * 128 - 1024
        assert by_size[edge] == ctas
        if edge + 1 in by_size:
            assert by_size[edge + 1] < ctas


def test_another_gpu_gets_its_own_answer() -> None:
    config = next(config for config in CONFIGS if (config["threads"], config["smem_bytes"]) == ("128", str(100 * 1024)))
    smaller = replace(GPU, device=replace(GPU.device, smem_per_sm_bytes=167_936))
    assert [CASE.predict(config, gpu)["resident_ctas"] for gpu in (GPU, smaller)] == [2.0, 1.0]


def test_all_of_l1_that_can_be_is_shared_memory() -> None:
    assert all(CASE.launch(config, False).carveout_pct == 100 for config in CONFIGS[::50])


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_each_kernel_uses_exactly_the_registers_of_its_name(sass: Sass, arch: str) -> None:
    kernels = sass("occupancy", arch)
    assert {name: kernel.num_registers for name, kernel in kernels.items()} == {
        f"hold_{registers}": registers for registers in case.REGISTERS
    }


def test_a_cta_is_counted_before_its_registers_spill(sass: Sass) -> None:
    for kernel in sass("occupancy", "sm_90a").values():
        names = [item.name for item in kernel.instructions]
        first = next(idx for idx, name in enumerate(names) if name.startswith("ATOM"))
        assert "STL" not in names[:first]


def test_what_was_counted_passes_and_a_lost_cta_or_value_does_not() -> None:
    config = CONFIGS[0]
    assert CASE.check(config, answers(config, 7)) == {
        "resident_ctas": 7.0, "least_resident_ctas": 7.0, "most_resident_ctas": 7.0
    }
    for name, match in (("here", "never left"), ("sum", "add up"), ("most", "held a CTA")):
        outputs = answers(config, 7)
        outputs[name][:] = 0 if name == "most" else 1
        with pytest.raises(WrongAnswer, match=match):
            CASE.check(config, outputs)
