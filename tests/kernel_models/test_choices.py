"""What a sweep tries: every combination, each legal one once, each refusal told."""

from __future__ import annotations

from typing import Any

import pytest

from gpusim import KERNEL_MODELS, GemmParams, load_gpu
from gpusim.errors import GpusimError, KernelError
from gpusim.kernel_models.sweep_values import choices, values_of

TOY, H200, A100 = (load_gpu(name) for name in ("toy", "h200_sxm", "a100_sxm_40gb"))
SMALL: dict[str, Any] = {"m": "512", "n": "512", "k": "256"}


@pytest.mark.parametrize(("text", "values"), [
    ("3", ("3",)), ("2..4", ("2", "3", "4")), ("2,4..6,4", ("2", "4", "5", "6")), ("1..16", tuple(map(str, range(1, 17)))),
    ("1..17", ("1", "2", "4", "8", "16")), ("256..1024+256", ("256", "512", "768", "1024")), ("5..5", ("5",)),
])
def test_lists_and_ranges_are_read(text: str, values: tuple[str, ...]) -> None:
    assert values_of(GemmParams, "stages", text, fixed={}, gpu=H200) == values


@pytest.mark.parametrize(("option", "text", "says"), [
    ("stages", "6..2", "grows"), ("stages", "0..2", "grows"), ("stages", "2..4+0", "grows"),
    ("stages", "2..x", "is no range"),
    ("stages", "1,,2", "an empty value"), ("stages", "", "an empty value"), ("stages", "1..99999999+1", "wants at most"),
    ("persistent", "yes", "known: off, on"), ("alpha", "auto", "nothing is usual"), ("m", "auto", "nothing is usual"),
])
def test_what_cannot_be_read_costs_a_sentence(option: str, text: str, says: str) -> None:
    with pytest.raises(KernelError, match=says) as refusal:
        values_of(GemmParams, option, text, fixed={}, gpu=H200)
    assert str(refusal.value).startswith(f"--{option}")


TILES = "64x64x64,64x128x64,128x128x64,256x256x64"


def test_every_combination_is_legal_refused_or_another() -> None:
    found = choices(GemmParams, {**SMALL, "tile": TILES, "stages": "1..6", "schedule": "auto", "cluster": "1x1,2x1"}, H200)
    assert found.num_tried == 4 * 6 * 4 * 2
    assert found.num_tried == len(found.legal) + found.num_same + sum(item.num for item in found.refusals)
    assert found.varied == ("tile", "stages", "schedule", "cluster")
    assert len({choice.params for choice in found.legal}) == len(found.legal)
    assert len(found.refusals) < 20


def test_legal_is_what_launches_alone() -> None:
    found = choices(GemmParams, {**SMALL, "tile": "64x64x64,256x256x64", "schedule": "auto", "stages": "2,9"}, H200)
    legal = {(choice.options["tile"], choice.options["schedule"], choice.options["stages"]) for choice in found.legal}
    for tile in ("64x64x64", "256x256x64"):
        for schedule in ("multistage", "warp_specialized", "cooperative", "pingpong"):
            for stages in (2, 9):
                try:
                    GemmParams(m=512, n=512, k=256, tile=tile, schedule=schedule, stages=stages).launch(H200)
                    can = True
                except GpusimError:
                    can = False
                assert ((tile, schedule, stages) in legal) == can


def test_the_same_kernel_asked_for_twice_is_one() -> None:
    found = choices(GemmParams, {**SMALL, "epilogue": ["direct", None], "schedule": "multistage"}, H200)
    assert (len(found.legal), found.num_same) == (1, 1)


def test_auto_is_every_word_and_both_of_a_flag() -> None:
    assert values_of(GemmParams, "epilogue", "auto", fixed={}, gpu=H200) == ("direct", "smem", "tma_store")
    assert values_of(GemmParams, "persistent", "auto", fixed={}, gpu=H200) == (False, True)
    assert values_of(KERNEL_MODELS["softmax"].params, "per", "auto", fixed={}, gpu=H200) == ("warp", "block")


USUAL = ["tile", "stages", "schedule", "cluster", "swizzle_size", "split_k", "epilogue", "swizzle"]


@pytest.mark.parametrize("option", USUAL)
@pytest.mark.parametrize("gpu", [TOY, H200, A100], ids=lambda gpu: gpu.name)
def test_auto_finds_something_that_runs(option: str, gpu: Any) -> None:
    assert choices(GemmParams, {**SMALL, option: "auto"}, gpu).legal


@pytest.mark.parametrize("dtype", ["bf16", "tf32", "fp8", "int8", "fp32"])
def test_usual_tiles_suit_their_type(dtype: str) -> None:
    found = choices(GemmParams, {**SMALL, "dtype": dtype, "tile": "auto"}, H200)
    assert len(found.legal) >= 4


@pytest.mark.parametrize(("options", "says"), [
    ({"tiel": "1"}, "--tiel is unknown; did you mean 'tile'"), ({"stages": "x"}, "--stages"),
    ({"stages": []}, "--stages has no values"), ({"tile": "7x7x7,9x9x9"}, "none of 2 configurations can run"),
    ({"swizzle_size": "1..4000+1", "stages": "1..16"}, "64000 configurations"),
])
def test_a_sweep_of_nothing_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(KernelError, match=says):
        choices(GemmParams, {**SMALL, **options}, H200)


def test_a_swizzle_in_numbers_has_commas_of_its_own() -> None:
    assert values_of(GemmParams, "swizzle", "3,3,3;none", fixed={}, gpu=H200) == ("3,3,3", "none")


@pytest.mark.parametrize(
    ("kernel", "options", "says"),
    [
        ("softmax", {"rows": "4096", "columns": "1024,x"}, r"--columns is 'x', wants a whole number"),
        ("softmax", {"rows": "4096", "columns": "1024", "per": "warp,wrap"}, r"--per 'wrap' is unknown; did you mean 'wa"),
        ("gemm", {"m": "64", "n": "64", "k": "64", "schedule": "pingpong,pong"}, r"--schedule 'pong' is unknown"),
    ],
)
def test_a_value_that_nothing_could_make_legal_refuses_the_sweep(kernel: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(KernelError, match=says):
        choices(KERNEL_MODELS[kernel].params, options, load_gpu("h200_sxm"))
