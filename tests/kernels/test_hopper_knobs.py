"""hopper_knobs: entry points that hopper_gemm does not have, whose launches and compiled code are the model's."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import asdict, replace

import pytest

from gpusim.evidence.cases.case import Config, load_case
from gpusim.evidence.toolchain.compiled_code import read_compiled_code
from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import load_gpu

from .conftest import Sass

CASE = load_case("hopper_knobs")
case = sys.modules[f"gpusim_kernels_{CASE.name}"]
hopper = case.hopper
GPU = load_gpu("h200_sxm")
CONFIGS = CASE.configs("drawn", 1)


def test_every_entry_point_comes_twice_and_none_is_one_of_hopper_gemms() -> None:
    assert Counter(config["kernel"] for config in CONFIGS) == dict.fromkeys(case.NAMES, 2)
    assert not set(case.NAMES) & set(hopper.ENTRIES)
    assert [entry.name for entry in case.ENTRIES.values()] == list(case.NAMES)
    sizes = Counter(hopper.entry_of(config).num_ranks for config in CONFIGS)
    assert sizes[4] >= 10 and sizes[8] >= 4


def test_large_clusters_have_a_cta_a_tile() -> None:
    large = [config for config in CONFIGS if hopper.entry_of(config).num_ranks > case.RESIDENT_RANKS]
    assert {config["persistent"] for config in large} == {"no"}


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_the_launch_is_the_models(config: Config) -> None:
    params = GemmParams.model_validate(case.options(config)).resolved(GPU)
    told, launched = params.launch(GPU), CASE.launch(config, False)
    assert launched.block[0] == told.num_threads
    assert launched.grid[0] == (min(told.num_tiles, GPU.num_sms) if config["persistent"] == "yes" else told.num_tiles)
    assert told.cluster_size == hopper.entry_of(config).num_ranks
    assert launched.smem_bytes <= GPU.max_smem_per_cta_bytes - 256


def test_the_kernel_is_hopper_gemms() -> None:
    kernel = (case.kernel_folder("hopper_gemm") / "kernel.cu").read_text(encoding="utf-8")
    assert CASE.includes()["hopper_gemm.inc"] == kernel
    assert all(f"({name}, Shape<" in CASE.includes()["shapes.inc"] for name in case.NAMES)


def test_the_code_is_that_of_the_sass(sass: Sass) -> None:
    kernels = sass("hopper_knobs", "sm_90a")
    pairs = {(config["kernel"], config["epilogue"]) for config in CONFIGS}
    assert set(case.codes()) == {f"{name} {epilogue}" for name, epilogue in pairs}
    for name, epilogue in pairs:
        entry, wanted = case.ENTRIES[name], case.codes()[f"{name} {epilogue}"]
        found = read_compiled_code(kernels[name], origin=f"{name} {epilogue}", epilogue=epilogue)
        if entry.setmaxnreg != "none":
            found = replace(found, registers=hopper.LIMITED[entry.num_threads])
        assert (found.math, found.copy) == ("wgmma", "tma")
        assert asdict(replace(found, math="", copy="")) == asdict(wanted)
