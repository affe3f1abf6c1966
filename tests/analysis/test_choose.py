"""Choice of a GEMM's configuration: given options stay, the choice is repeatable, and near the best of full simulations."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from gpusim import GemmParams, load_gpu, simulate
from gpusim.analysis.choose import _made, choose
from gpusim.analysis.trial import quick_cycles
from gpusim.cli import main
from gpusim.errors import GpusimError, KernelError
from gpusim.kernel_models.gemm.candidates import DECIDING, STATED, Space
from gpusim.kernel_models.gemm.resolve import in_kernel_order

H200, A100 = load_gpu("h200_sxm"), load_gpu("a100_sxm_40gb")

SHAPES = ((512, 768, 1024), (1000, 3000, 520), (48, 4096, 2048), (256, 384, 8192), (2304, 1792, 640))
"""M, N, K: drawn by hand, of one wave and of several, on the tile's edges and off, with few rows, and with deep K."""


MOST_BUILT = 100
"""Configurations of a problem that are built, drawn by a seed; the choices of other tests build all of theirs."""


def full_us(params: GemmParams, gpu: Any = H200) -> float:
    return simulate(params.launch(gpu), gpu).time_us


@pytest.mark.parametrize("shape", SHAPES)
def test_the_choice_is_near_the_best_of_full_simulations(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    chosen = choose(GemmParams(m=m, n=n, k=k), H200)
    others = [full_us(item.params) for item in chosen.rated[:6]]
    assert full_us(GemmParams.model_validate(dict(given_of(chosen.params)))) <= 1.03 * min(others)


def given_of(params: Any) -> list[tuple[str, Any]]:
    """Options that are set, by their names on the command line."""
    return [(option, getattr(params, name)) for option, name in params.options().items() if name in params.model_fields_set]


def test_the_choice_beats_a_fixed_tile_where_that_leaves_sms_empty() -> None:
    few_rows = {"m": 16, "n": 8192, "k": 2048}
    fixed = GemmParams(**few_rows, tile="128x256x64", schedule="cooperative")
    chosen: Any = choose(GemmParams(**few_rows), H200).params
    assert full_us(chosen) < 0.6 * full_us(fixed)


def test_the_choice_is_the_same_each_time() -> None:
    asked = GemmParams(m=300, n=400, k=500)
    first = choose(asked, H200)
    assert choose(asked, load_gpu("h200_sxm")) is first  # kept
    _made.cache_clear()
    assert choose(asked, H200) == first
    assert [item.cycles for item in first.rated] == sorted(item.cycles for item in first.rated)


def test_a_gpu_with_another_parameter_is_not_answered_for_by_its_name() -> None:
    asked = GemmParams(m=256, n=256, k=512)
    slower = replace(H200, hbm=replace(H200.hbm, sustained_read_gb_per_s=H200.hbm.sustained_read_gb_per_s / 8))
    assert choose(asked, H200).rated[0].cycles < choose(asked, slower).rated[0].cycles


@pytest.mark.parametrize("given", [
    {"tile": "128x128x64"}, {"schedule": "pingpong"}, {"cluster": "2x1"}, {"stages": 3, "epilogue": "direct"},
    {"split_k": 4}, {"persistent": True}, {"schedule": "multistage"}, {"copy": "cp_async"}, {"math": "mma_sync"},
    {"dtype": "fp32"}, {"dtype": "fp8"}, {"layout": "nt"}, {"swap_operands": True}, {"raster": "along_m", "swizzle_size": 4},
    {"batch": 3, "out_dtype": "fp32"},
])  # fmt: skip
def test_given_options_stay(given: dict[str, Any]) -> None:
    asked = GemmParams(m=256, n=192, k=512, **given)
    chosen: Any = choose(asked, H200).params
    for name in asked.model_fields_set:
        assert getattr(chosen, name) == getattr(asked, name)
    assert set(STATED) <= chosen.resolved(H200).model_fields_set
    assert simulate(chosen.launch(H200), H200).cycles > 0.0


def test_nothing_is_chosen_where_all_that_is_stated_is_given() -> None:
    given = {"tile": "128x256x64", "stages": 4, "schedule": "cooperative", "cluster": "1x1", "persistent": False,
             "epilogue": "direct"}
    params = GemmParams(m=1024, n=1024, k=512, **given)
    found = choose(params, H200)
    assert found.params == params and not found.rated and found.second is None and not found.decisions


def test_options_that_suit_no_configuration_get_their_refusal() -> None:
    asked = GemmParams(m=512, n=512, k=512, tile="100x1x1")
    with pytest.raises(KernelError, match="--tile 100x1x1"):
        choose(asked, H200)


def test_a_gpu_without_wgmma_gets_mma_sync() -> None:
    chosen: Any = choose(GemmParams(m=2048, n=2048, k=1024), A100).params.resolved(A100)
    assert (chosen.math, chosen.copy_, chosen.schedule) == ("mma_sync", "cp_async", "multistage")
    assert not chosen.swap_operands and chosen.cluster == (1, 1)


@pytest.mark.parametrize("gpu", [H200, A100])
@pytest.mark.parametrize("shape", [(8, 4096, 4096), (4096, 8, 512), (4096, 4096, 4096), (512, 512, 16384), (1, 1, 1)])
def test_configurations_of_a_library_can_be_built(gpu: Any, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    found = list(Space(GemmParams(m=m, n=n, k=k), gpu))
    assert found and len(set(found)) == len(found)
    for params in random.Random(f"{gpu.name} {shape}").sample(found, min(len(found), MOST_BUILT)):
        params.resolved(gpu)
        assert quick_cycles(params.row.resolve(params, gpu), gpu) > 0.0
    if m == 8 and gpu is H200:
        tiles = {params.tile for params in found if params.swap_operands}
        assert (64, 8, 64) in tiles
    if k == 16384:
        assert max(params.split_k for params in found) > 1


def test_swapped_operands_are_the_product_the_other_way_round() -> None:
    swapped = GemmParams(m=48, n=4096, k=512, layout="tt", tile="64x48x64", swap_operands=True)
    other = GemmParams(m=4096, n=48, k=512, layout="nn", tile="64x48x64")
    assert in_kernel_order(swapped).layout == "nn"
    assert simulate(swapped.launch(H200), H200).cycles == simulate(other.launch(H200), H200).cycles
    with pytest.raises(GpusimError, match="--swap-operands"):
        GemmParams(m=48, n=4096, k=512, bias=True, swap_operands=True).launch(H200)


def test_a_prediction_shows_the_choice_and_the_second_best(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["predict", "gemm", "--gpu", "h200_sxm", "--m", "512", "--n", "1024", "--k", "1024"]
    assert main([*words, "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    second = document["second_best"]
    assert set(second["options"]) == set(DECIDING) and second["slower_pct"] >= 0.0
    assert main(words) == 0
    screen = capsys.readouterr().out
    assert "\nSecond " in screen and "% time, of" in screen and f"--tile {document['params']['tile']}" in screen


def test_a_choice_is_kept_for_the_same_open_options_alone() -> None:
    problem = {"m": 64, "n": 256, "k": 16384}
    free, fixed = GemmParams(**problem), GemmParams(**problem, split_k=1)
    assert free == fixed
    assert choose(free, H200).params.split_k > 1
    assert choose(fixed, H200).params.split_k == 1
    assert choose(free, H200).params.split_k > 1
