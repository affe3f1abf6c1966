"""library_knobs: what torch is asked for, which answers are refused, what names of the library's kernels say."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim.errors import ConfigError
from gpusim.evidence.bench import library_gemms
from gpusim.evidence.cases.case import Config, Product, WrongAnswer, load_case
from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import load_gpu
from gpusim.simulate.run import simulate

CASE = load_case("library_knobs")
GPU = load_gpu("h200_sxm")
case = sys.modules[CASE.launch.__module__]
CONFIGS = {group: CASE.configs(group, 1) for group in CASE.groups}
SMALL = case.config_of(64, 64, 256, "bf16", "tn", alpha=2.0)


def answer(_config: Config) -> dict[str, NDArray[Any]]:
    """A right sample."""
    reference = np.linspace(1.0, 3.0, 12).reshape(3, 4)
    return {"d": reference * (1 + 2.0**-9), "reference": reference}


def test_each_knob_and_each_type_is_drawn() -> None:
    every = [config for configs in CONFIGS.values() for config in configs]
    assert len(every) == 64
    names = ("dtype", "layout", "batch_mode", "activation", "bias")
    seen = Counter((name, config[name]) for config in every for name in names)
    assert {value for name, value in seen if name == "dtype"} == {"bf16", "fp16", "tf32", "fp32", "fp8", "int8"}
    assert {value for name, value in seen if name == "layout"} == {"tn", "tt", "nn", "nt"}
    assert min(seen.values()) >= 2
    assert {config["alpha"] for config in every} == {"1.0", "2.0", "0.5"}
    assert {config["beta"] for config in every} == {"0.0", "1.0", "2.0"}


def test_rows_are_aligned_as_the_group_says() -> None:
    for elements, configs in zip((4, 2, 1), (CONFIGS["unaligned"][start : start + 4] for start in (0, 4, 8)), strict=True):
        assert {GemmParams(**asked(config)).copy_bytes for config in configs} == {2 * elements}
        assert {GemmParams(**asked(config)).store_bytes for config in configs} == {2 * elements}
    others = [config for group, configs in CONFIGS.items() if group not in ("unaligned", "slim") for config in configs]
    assert {GemmParams(**asked(config)).copy_bytes for config in others} == {16}


def asked(config: Config) -> dict[str, Any]:
    """Options of the GEMM model."""
    return {name: value for name, value in config.items() if name != "kernel"}


@pytest.mark.parametrize("group", CONFIGS)
def test_the_launch_is_what_the_config_says(group: str) -> None:
    for config in CONFIGS[group]:
        product = CASE.launch(config, False)
        assert isinstance(product, Product)
        told = [str(getattr(product, name)) for name in ("m", "n", "k", "dtype", "layout", "batch", "batch_mode", "alpha")]
        assert told == [config[name] for name in ("m", "n", "k", "dtype", "layout", "batch", "batch_mode", "alpha")]
        assert product.bias == (config["bias"] == "yes")


def test_a_rounded_answer_passes_and_an_unwritten_one_does_not() -> None:
    assert CASE.check(SMALL, answer(SMALL))["error_share"] < 1.0
    lacking = answer(SMALL) | {"d": np.full((3, 4), np.nan)}
    with pytest.raises(WrongAnswer, match="12 of 12 elements were not written"):
        CASE.check(SMALL, lacking)


@pytest.mark.parametrize(("alpha", "wrong"), [(1.0, 0.2), (2.0, 0.4)])
def test_the_error_that_is_allowed_grows_with_alpha(alpha: float, wrong: float) -> None:
    config = case.config_of(64, 64, 256, "bf16", "tn", alpha=alpha)
    off = answer(config)
    off["d"] = off["reference"] + wrong
    with pytest.raises(WrongAnswer, match="further off than rounding explains"):
        CASE.check(config, off)
    off["d"] = off["reference"] + wrong / 8
    assert CASE.check(config, off)["error_share"] < 1.0


@pytest.mark.parametrize(
    ("group", "idx", "launched", "wanted"),
    [
        ("types", 4, "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_"
         "execute_kernel__5x_cublas", {"math": "fma", "copy": "cp_async", "warps": "2x2", "stages": 3}),
        ("types", 4, "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nn_align1>(Params)",
         {"math": "fma", "copy": "cp_async", "stages": 4, "alignment": 1}),
        ("types", 4, "ampere_sgemm_128x64_nn", {"math": "fma", "tile": "128x64x8", "layout": "tt"}),
        ("unaligned", 6, "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x3_tn_align2>(Params)",
         {"math": "mma_sync", "copy": "cp_async", "alignment": 2}),
        ("unaligned", 8, "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_128x128_32x2_tn_align1>(Params)",
         {"math": "mma_sync", "copy": "ldg", "alignment": 1, "stages": 2}),
        ("layouts", 6, "cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4", {"math": "mma_sync", "layout": "tt"}),
        ("epilogues", 10, "nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_bias_NNT",
         {"bias": "yes", "activation": "gelu", "epilogue": "tma_store"}),
    ],
)  # fmt: skip
def test_names_of_other_kernels_than_nvjet_are_understood(
    group: str, idx: int, launched: str, wanted: dict[str, Any]
) -> None:
    config = CONFIGS[group][idx]
    is_nvjet = launched.startswith("nvjet")
    row = {"launched": launched, "grid": "2x66x1" if is_nvjet else "8x16x1", "block": "384x1x1" if is_nvjet else "128x1x1"}
    found = case.options(config, row, GPU)
    assert found is not None
    assert {name: found[name] for name in wanted} == wanted
    small = {**found, "m": 2 * int(found["m"]) // int(found["m"]) * 64, "k": 128 + int(found["k"]) % 16}
    assert simulate(GemmParams.model_validate(small).launch(GPU), GPU, clock="max").cycles > 0


def test_the_grid_of_cutlass_tells_bands_and_serial_parts_of_k() -> None:
    config = case.config_of(3196, 2652, 2084, "fp16", "tt")
    name = "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_256x128_64x3_nn_align2>"
    found = case.options(config, {"launched": name, "grid": "200x2x2", "block": "256x1x1"}, GPU)
    wanted = {"swizzle_size": 8, "raster_order": "full_bands", "split_k": 2, "split_k_mode": "serial", "epilogue": "smem"}
    assert {option: found[option] for option in wanted} == wanted
    assert GemmParams.model_validate(found).launch(GPU).num_ctas == 200 * 2 * 2


def test_a_batch_of_addresses_is_the_arrays_mode() -> None:
    config = next(config for config in CONFIGS["batches"] if config["batch_mode"] == "array")
    row = {"launched": "ampere_bf16_s16816gemm_bf16_64x64_ldg8_relu_f2f_stages_64x6_tn", "grid": "4x4x8", "block": "128x1x1"}
    found = case.options(config, row, GPU)
    assert (found["batch_mode"], found["copy"]) == ("array", "cp_async")
    assert GemmParams.model_validate(found).launch(GPU).num_tiles == int(config["batch"]) * -(-int(config["m"]) // 64) * -(
        -int(config["n"]) // 64
    )


def test_knobs_that_no_function_of_torch_has_together_are_refused() -> None:
    product = Product(m=64, n=64, k=64, bias=True, alpha=2.0)
    with pytest.raises(ConfigError, match="torch has no function for"):
        library_gemms._launcher(None, product, None, None, None, object())


def test_torch_gives_right_answers_for_every_kind_of_config() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for group in ("types", "epilogues", "layouts"):
        for config in CONFIGS[group]:
            sizes = {side: str(128 + int(config[side]) % 16) for side in "mnk"}
            if config["dtype"] in ("int8", "fp8"):
                sizes = dict.fromkeys("mnk", "128")
            small = {**config, **sizes}
            product = CASE.launch(small, False)
            found = library_gemms.prepared(torch, product, *library_gemms.operands(torch, product, "cpu"))
            with pytest.raises(WrongAnswer):
                CASE.check(small, found.sample())
            found.enqueue()
            assert CASE.check(small, found.sample())["error_share"] < 1.0
