"""Options of kernels as they are typed: their help, old names, other people's names, any case; the best line of a sweep."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from gpusim.cli import main
from gpusim.cli.parameters import help_text
from gpusim.errors import KernelError
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.kernel_models.gemm import GemmParams
from gpusim.kernel_models.gemm.applicability import RULES, WANTS_FEATURE
from gpusim.kernel_models.gemm.renamed import RENAMED
from gpusim.kernel_models.spelling import choices_of

SIZE = ["--m", "256", "--n", "256", "--k", "512"]
H200 = ["predict", "gemm", *SIZE, "--gpu", "h200_sxm"]
TILE = ["--tile", "128x128x64"]
"""Given, so that none is chosen for each option anew."""
TRITON = "--schedule multistage --copy tma --prefetch after_wait"
MOST_WORDS = 25


def params_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    """Parameters of a prediction, and stderr."""
    assert main([*arguments, "--json", "-"]) == 0, capsys.readouterr().err
    captured = capsys.readouterr()
    params: dict[str, Any] = json.loads(captured.out)["params"]
    return params, captured.err


# ---------------------------------------------------------------------------------------------- help


@pytest.mark.parametrize("name", KERNEL_MODELS)
def test_a_sentence_of_help_is_short_and_begins_by_itself(name: str) -> None:
    kind = KERNEL_MODELS[name].params
    for option, field in kind.options().items():
        text = help_text(kind, option, choices_of(kind.model_fields[field].annotation))
        assert not text.startswith(("the same", "The same", "what", "where it"))
        for sentence in re.split(r"\. |\.$", kind.model_fields[field].description or ""):
            assert len(sentence.split()) <= MOST_WORDS, (option, sentence)


@pytest.mark.parametrize(("option", "shown"), [
    ("prefetch_tensormap", "[default: --prefetch-tensormap]"), ("bias", "[default: --no-bias]"),
])  # fmt: skip
def test_the_default_of_a_flag_is_the_flag(option: str, shown: str) -> None:
    """The table of options shows --prefetch-tensormap beside --no-prefetch-tensormap."""
    assert help_text(GemmParams, option, ()).endswith(shown)
    assert help_text(GemmParams, option, ("on", "off")).endswith("[default: on]" if "no" not in shown else "[default: off]")


def test_help_has_panels(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["predict", "gemm", "--help"]) == 0
    text = capsys.readouterr().out
    panels = [
        "Problem", "Tile and schedule", "Memory path", "Epilogue", "Synchronization", "Compiled code", "Simulation",
        "Output",
    ]  # fmt: skip
    places = [text.index(f"─ {panel} ─") for panel in panels]
    assert places == sorted(places)
    assert "--compiled-code" in text


@pytest.mark.parametrize("option", ["step_code", "wide_per_copy", "producer_code_begin"])
def test_a_figure_of_compiled_code_is_no_option(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert option in GemmParams.removed
    flag = f"--{option.replace('_', '-')}"
    assert main([*H200, flag, "8"]) == 2
    error = capsys.readouterr().err
    assert f"{flag} is no option of this kernel" in error
    assert "--compiled-code" in error


def test_the_two_swizzles_point_at_each_other() -> None:
    assert "CTA rasterization swizzle (CUTLASS swizzle size)" in help_text(GemmParams, "swizzle_size", ())
    assert "--swizzle" in help_text(GemmParams, "swizzle_size", ())
    assert help_text(GemmParams, "swizzle", ()).startswith("Shared-memory swizzle")


def test_what_an_option_needs_is_what_it_is_refused_for() -> None:
    for rule in RULES:
        option = rule.field.rstrip("_")
        text = help_text(GemmParams, option, ())
        for condition in rule.needs:
            assert condition.text.split()[0] in text, (option, condition)
    for field, _, feature, _ in WANTS_FEATURE:
        assert f"a GPU with {feature}" in help_text(GemmParams, field.rstrip("_"), ())
    assert "Needs" not in help_text(GemmParams, "m", ())
    assert "Needs --math wgmma. " in help_text(GemmParams, "wgmma_depth", ())


# ---------------------------------------------------------------------------------------------- old names


@pytest.mark.parametrize("words", ["--consumers 2 --consumer-warpgroups 1", "--swizzle-size=4 --raster-group 8"])
def test_an_option_by_both_its_names_is_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*["predict", "gemm", "--gpu", "toy", "--m", "256", "--n", "256", "--k", "128"], *words.split()]) == 2
    assert "are one option; give one of them" in capsys.readouterr().err


OLD: list[tuple[str, str, str]] = [
    ("--consumers 2", "--consumer-warpgroups 2", ""),
    ("--split n", "--consumer-split n", ""),
    ("--refill before_math", "--prefetch before_mma", "--schedule multistage"),
    ("--refill=after_math", "--prefetch after_mma", "--schedule multistage"),
    ("--refill after_wait", "--prefetch after_wait", "--schedule multistage"),
    ("--prefetch before_math", "--prefetch before_mma", "--schedule multistage"),
    ("--no-copies-held", "--no-stall-on-ldgsts", "--math mma_sync"),
    ("--copies-held", "--stall-on-ldgsts", "--math mma_sync"),
    ("--fetch-bytes 256", "--l2-promotion 256", ""),
    ("--sum-by elements", "--splitk-reduction scalar",
     "--split-k 2 --split-k-mode second_kernel --schedule cooperative --no-persistent"),
    ("--raster-snake", "--raster-boustrophedon", ""),
    ("--raster-table 0,2,1,3", "--raster-order 0,2,1,3", ""),
    ("--raster-group 4", "--swizzle-size 4", ""),
    ("--meets before_math", "--cta-barrier before_mma", TRITON),
    ("--cluster-meeting relaxed", "--cluster-sync relaxed", "--cluster 2x1"),
    ("--arrivals every_thread", "--mbarrier-arrive thread", ""),
    ("--fragments single", "--register-stages 1", "--math mma_sync"),
    ("--no-prefetch-maps", "--no-prefetch-tensormap", ""),
]  # fmt: skip


def test_every_old_name_is_tried() -> None:
    tried = {old.split()[0].partition("=")[0].removeprefix("--").removeprefix("no-").replace("-", "_") for old, _, _ in OLD}
    assert tried - {"prefetch"} == set(RENAMED)


@pytest.mark.parametrize(("old", "new", "more"), OLD)
def test_an_old_name_is_understood_with_one_remark(
    old: str, new: str, more: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted, silent = params_of([*H200, *TILE, *more.split(), *new.split()], capsys)
    found, remarks = params_of([*H200, *TILE, *more.split(), *old.split()], capsys)
    assert found == wanted
    assert silent.count("is now") == 0
    assert remarks.count(f"{old.replace('=', ' ')} is now {new}; the old name goes with the next release") == 1


def test_python_and_documents_may_have_the_old_names_in_silence(recwarn: pytest.WarningsRecorder) -> None:
    size = {"m": 64, "n": 64, "k": 64}
    for old, renamed in RENAMED.items():
        for before, after in renamed.values.items():
            found = GemmParams.model_validate({**size, old: before})
            assert getattr(found, renamed.name) == after
            assert found == GemmParams.model_validate({**size, renamed.name: after})
    assert not recwarn.list
    with pytest.raises(KernelError, match=r"--swizzle-size is given twice, under its old name, too"):
        GemmParams.model_validate({**size, "raster_group": 2, "swizzle_size": 2})


def test_a_sweep_takes_old_names(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "gemm", *SIZE, "--gpu", "h200_sxm", "--jobs", "1", "--schedule", "multistage"]
    assert main([*words, "--refill", "before_math,after_math", "--json", "-"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["varied"] == ["prefetch"]
    assert "--refill before_math,after_math is now --prefetch before_mma,after_mma" in captured.err


# ---------------------------------------------------------------------------------------------- other spellings


@pytest.mark.parametrize(("typed", "name", "value"), [
    ("--dtype BF16", "dtype", "bf16"), ("--dtype bfloat16", "dtype", "bf16"), ("--dtype Half", "dtype", "fp16"),
    ("--dtype float16", "dtype", "fp16"), ("--dtype float32", "dtype", "fp32"), ("--dtype float8_e4m3", "dtype", "fp8"),
    ("--dtype torch.bfloat16", "dtype", "bf16"), ("--dtype torch.float16", "dtype", "fp16"),
    ("--dtype e4m3", "dtype", "fp8"), ("--dtype e5m2", "dtype", "fp8"), ("--dtype torch.float8_e5m2", "dtype", "fp8"),
    ("--copy LDGSTS", "copy", "cp_async"),
    ("--schedule KernelTmaWarpSpecialized", "schedule", "warp_specialized"),
    ("--schedule KernelTmaWarpSpecializedCooperative", "schedule", "cooperative"),
    ("--schedule KernelTmaWarpSpecializedPingpong", "schedule", "pingpong"),
    ("--schedule KernelMultistage", "schedule", "multistage"),
    ("--layout TN", "layout", "tn"), ("--schedule Cooperative", "schedule", "cooperative"),
    ("--schedule warp-specialized", "schedule", "warp_specialized"), ("--swizzle 128b", "swizzle", "128B"),
    ("--setmaxnreg None", "setmaxnreg", "none"), ("--raster AlongM", "raster", "along_m"),
    ("--swizzle_size 4", "swizzle_size", 4), ("--Stages 3", "stages", 3), ("--tile 128X128X64", "tile", "128x128x64"),
])  # fmt: skip
def test_words_are_understood_in_any_case(
    typed: str, name: str, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    params, remarks = params_of([*H200, *(TILE if name != "tile" else ()), *typed.split()], capsys)
    assert params[name] == value
    assert "is now" not in remarks


@pytest.mark.parametrize(("typed", "hint"), [
    ("--num-stages 3", "--num-stages is unknown; did you mean --stages (Triton's num_stages)?"),
    ("--num_stages=3", "--num_stages is unknown; did you mean --stages"),
    ("--num-warps 8", "did you mean --warps or --consumer-warpgroups (Triton's num_warps; a warpgroup has four warps)?"),
    ("--num-ctas 2", "did you mean --cluster (Triton's num_ctas)?"),
    ("--mainloop pingpong", "did you mean --schedule (CUTLASS's KernelSchedule)?"),
    ("--BLOCK_M 128", "--BLOCK_M is unknown; did you mean --tile 128xNxK (Triton's BLOCK_M/N/K)?"),
    ("--BLOCK_M 128 --BLOCK_N 256 --BLOCK_K 64", "did you mean --tile 128x256x64"),
    ("BLOCK_M=128 BLOCK_N=256 BLOCK_K=64", "did you mean --tile 128x256x64"),
    ("--GROUP_SIZE_M 8", "did you mean --swizzle-size (Triton's GROUP_SIZE_M)?"),
    ("--raster-order along_m", "--raster has along_m and along_n"),
    ("--stagse 3", "--stagse is unknown; did you mean '--stages'?"),
    ("--max-swizzle 4", "--max-swizzle is unknown; did you mean --swizzle-size (CUTLASS's swizzle size)?"),
    ("--schedule KernelCpAsyncWarpSpecialized", "is unknown; use --schedule warp_specialized --copy cp_async"),
])  # fmt: skip
def test_other_peoples_names_are_refused_with_ours(typed: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*H200, *typed.split()]) == 2
    assert hint in capsys.readouterr().err


def test_softmax_has_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "softmax", "--m", "64", "--n", "64", "--gpu", "toy"]) == 2
    assert "predict softmax: --m is unknown; did you mean --rows" in capsys.readouterr().err
    assert main(["predict", "softmax", "--rows", "64", "--n", "64", "--gpu", "toy"]) == 2
    assert "did you mean --columns" in capsys.readouterr().err


@pytest.mark.parametrize(("typed", "says"), [
    ("h100", "'h100' is the beginning of 2 names; wants one of h100_pcie, h100_sxm"),
    ("b200", "'b200' is unknown; known: a100_sxm_40gb, a100_sxm_80gb, h100_pcie, h100_sxm, h200_sxm, toy"),
    ("h200_sxn", "'h200_sxn' is unknown; did you mean 'h200_sxm'?"),
])  # fmt: skip
def test_a_gpu_is_never_another(typed: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*H200[:-1], typed]) == 2
    assert f"--gpu {says}" in capsys.readouterr().err


def test_a_gpu_may_be_named_by_its_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    for typed in ("h200", "H200", "h200-sxm"):
        assert main([*H200[:-1], typed, *TILE, "--json", "-"]) == 0
        captured = capsys.readouterr()
        assert json.loads(captured.out)["gpu"] == "h200_sxm"
        assert "--gpu h200_sxm" in captured.err  # the command that follows


# ---------------------------------------------------------------------------------------------- the best of a sweep


@pytest.mark.parametrize("options", [
    "gemm --m 512 --n 512 --k 256 --tile 64x64x64,128x64x64 --persistent on,off --schedule cooperative,pingpong",
    "gemm --m 512 --n 512 --k 256 --tile auto --bias on --fence on --l2 warm",
    "gemm --m 512 --n 512 --k 256 --schedule multistage --stages 2,3 --prefetch auto --copy tma,cp_async",
    "gemm --m 512 --n 512 --k 256 --tile 64x64x64 --cluster auto --cluster-sync release,relaxed --prefetch-tensormap off",
    "gemm --m 512 --n 512 --k 256 --consumer-split m,n --schedule cooperative --setmaxnreg none,40/232 --beta 0,0.5",
    "gemm --m 512 --n 512 --k 256 --stages 3",
    "elementwise --elements 65536 --op add --vector-bytes 4,8,16",
    "softmax --rows 512 --columns 1024 --per auto --dtype bf16",
])  # fmt: skip
def test_the_best_line_gives_that_configuration(
    options: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = tmp_path / "sweep.json"
    clock = ["--clock", "1700"]  # under a clock that is found a sweep takes the one of the configuration before
    assert main(["sweep", *options.split(), *clock, "--gpu", "h200_sxm", "--jobs", "1", "--json", str(found)]) == 0
    (best,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Best: ")]
    (problem,) = json.loads(found.read_text())["problems"]
    assert main([*shlex.split(best.removeprefix("Best: gpusim ")), "--json", "-"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["time_us"] == problem["time_us"]
    for name, value in problem["best"].items():
        assert said["params"][name] == value
