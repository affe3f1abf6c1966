"""Advice on a GEMM: what is ranked, how far the best is from its bound, which change helps, and other tools' words."""

from __future__ import annotations

import json
import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import gpusim
from gpusim import GemmParams, load_gpu
from gpusim.analysis.trial import Trial
from gpusim.analysis.triton_configs import TritonProblem
from gpusim.cli import main
from gpusim.errors import KernelError
from gpusim.report.library_words import LIBRARIES, library_gap, library_words

H200 = load_gpu("h200_sxm")
SIZE = {"m": 1024, "n": 1024, "k": 512}
EXAMPLE = Path(__file__).parents[2] / "examples" / "triton_prune.py"


def test_the_best_is_above_its_bound_and_ranked_first() -> None:
    found = gpusim.advise("gemm", H200, **SIZE)
    assert found.distance > 0.0 and found.bound_path in ("launch", "hbm", "math", "tma", "ctas")
    assert found.rated[0].params.resolved(H200) == found.params
    assert [item.cycles for item in found.rated] == sorted(item.cycles for item in found.rated)
    assert not found.change and found.saves == 0.0
    assert all(0.0 < max(item.busy.values()) <= 1.0 for item in found.rated)


def test_a_poor_tile_gets_a_change_that_saves_what_it_says() -> None:
    poor = {**SIZE, "tile": "64x64x64", "stages": 2, "cluster": "1x1"}
    found = gpusim.advise("gemm", H200, **poor)
    assert found.change["tile"] != "64x64x64" and found.saves > 0.05
    freed: Any = gpusim.choose(GemmParams(**SIZE), H200).params
    after = gpusim.simulate(freed.launch(H200), H200).time_us
    assert after == pytest.approx((1.0 - found.saves) * found.result.time_us, rel=1e-9)


def test_what_the_launch_before_stored_is_in_l2_so_that_memory_bounds_nothing() -> None:
    cold, warm, stored = (
        gpusim.advise("gemm", H200, simulate_options={"l2": l2}, m=64, n=2048, k=8192) for l2 in ("cold", "warm", "stored")
    )
    assert cold.bound_path == "hbm" and stored.bound_path == warm.bound_path != "hbm"
    assert stored.rated == warm.rated


def test_a_small_problem_in_parts_is_rated_by_what_simulate_says_of_both_kernels() -> None:
    parts = GemmParams(
        m=256, n=256, k=2048, tile="128x128x64", stages=3, split_k=4, split_k_mode="second_kernel"
    ).resolved(H200)  # fmt: skip
    trial = Trial.of(parts.row.resolve(parts, H200), H200, is_warm=False)
    assert trial.is_exact and trial.launch.following
    assert trial.cycles(1500.0)[0] == gpusim.simulate(parts.launch(H200), H200, clock=1500.0).cycles


def test_the_document_is_for_tuners(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["advise", "gemm", "--gpu", "h200_sxm", "--m", "512", "--n", "512", "--k", "512", "--l2", "stored"]
    assert main([*words, "--top", "3", "--json", "-"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["bound_us"] < document["time_us"]
    assert document["distance_pct"] == pytest.approx(100.0 * (document["time_us"] / document["bound_us"] - 1.0))
    assert document["first_reason"] and document["next_change"] == {} and len(document["ranked"]) == 3
    for tool in ("CUTLASS", "Triton", "CuTe DSL", "First reason", "Least time: "):
        assert tool in err
    (following,) = [line for line in err.splitlines() if line.startswith("Next: gpusim explain gemm")]
    again = following.removeprefix("Next: gpusim explain").split()
    assert main(["predict", *again, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["time_us"] == document["time_us"]


@pytest.mark.parametrize(("arguments", "says"), [
    (["advise", "softmax", "--rows", "8", "--columns", "8", "--gpu", "toy"], "softmax"),
    (["advise", "gemm", "--m", "8", "--n", "8", "--k", "8", "--gpu", "toy", "--top", "0"], "--top 0 is too few"),
    (["advise", "gemm", "--m", "8", "--n", "8", "--k", "8", "--gpu", "toy", "--tile", "7x7x7"], "--tile 7x7x7"),
])
def test_bad_input_costs_one_sentence(arguments: list[str], says: str, refuses: Any) -> None:
    refuses(arguments, [says])


def test_python_refuses_a_kernel_without_a_choice() -> None:
    with pytest.raises(KernelError, match="softmax has no choice of configurations; known: gemm"):
        gpusim.advise("softmax", H200, rows=8, columns=8)


def test_words_of_other_tools() -> None:
    cooperative = GemmParams(
        **SIZE, tile="128x256x64", schedule="cooperative", stages=4, cluster="2x1", persistent=True, epilogue="tma_store",
        raster="along_m", swizzle_size=8,
    ).resolved(H200)
    found = {tool: "\n".join(lines) for tool, lines in library_words(cooperative).items()}
    for text in ("Shape<_128,_256,_64>", "Shape<_2,_1,_1>", "StageCount<4>", "KernelTmaWarpSpecializedCooperative",
                 "EpilogueSchedule = TmaWarpSpecializedCooperative", ".max_swizzle_size = 8", "AlongM"):
        assert text in found["CUTLASS"]
    assert '"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64' in found["Triton"] and "num_warps=8" in found["Triton"]
    assert "tile_shape_mn=(128, 256), cluster_shape_mn=(2, 1), swizzle_size=8, raster_along_m=True" in found["CuTe DSL"]
    odd = GemmParams(m=48, n=4096, k=512, tile="64x24x64", swap_operands=True, schedule="warp_specialized").resolved(H200)
    assert library_words(odd)["Triton"][0].startswith("none: extents of a tile are powers of two")
    assert "problem shape (4096, 48, 512)" in library_words(odd)["CUTLASS"][-1]
    old = GemmParams(**SIZE, math="mma_sync", tile="128x128x32", warps="2x2", stages=4).resolved(H200)
    assert library_words(old)["CUTLASS"][0] == (
        "ThreadblockShape = GemmShape<128,128,32>; WarpShape = GemmShape<64,64,32>; Stages = 4"
    )


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_is_advised_a_kernel_that_it_has(library: str) -> None:
    found = gpusim.advise("gemm", H200, m=16, n=8192, k=8192, library=library)
    tool = {"cutlass": "CUTLASS", "triton": "Triton", "cute_dsl": "CuTe DSL"}[library]
    assert not library_gap(library, found.params)
    assert all(not library_gap(library, item.params.resolved(H200)) for item in found.rated)
    assert "none" not in found.words[tool][0]


def test_a_library_without_the_kernel_is_named(refuses: Any) -> None:
    size = ["--m", "512", "--n", "512", "--k", "512", "--gpu", "h200_sxm"]
    refuses(["advise", "gemm", *size, "--library", "cublas"], ["cublas", "cutlass, triton, cute_dsl"])
    with pytest.raises(KernelError, match="triton has none of the configurations: extents of a tile"):
        gpusim.advise("gemm", H200, **SIZE, tile="64x24x64", library="triton")
    with pytest.raises(KernelError, match="no Hopper example has operands of int8"):
        gpusim.advise("gemm", H200, **SIZE, dtype="int8", library="cute_dsl")


def test_tiles_of_another_size_are_rated_before_a_second_orientation() -> None:
    params = GemmParams(m=1000, n=1000, k=1000, dtype="fp16")
    rated = gpusim.choose(params, load_gpu("a100_sxm_80gb")).rated
    assert {(64, 128), (128, 128)} <= {item.config.tile[:2] for item in rated}
    assert rated[0].config.tile == (128, 128, 64)


# ---------------------------------------------------------------------------------------------- Triton's autotuner
@dataclass(frozen=True)
class Config:
    kwargs: dict[str, int]
    num_warps: int = 4
    num_stages: int = 3


@dataclass(frozen=True)
class Tensor:
    dtype: str = "torch.float16"


def block(m: int, n: int, k: int = 64, **others: int) -> dict[str, int]:
    return {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, **others}


ARGUMENTS = {"a_ptr": Tensor(), "M": 2048, "N": 2048, "K": 1024}


@pytest.mark.parametrize("gpu", ["h200_sxm", "a100_sxm_40gb"])
def test_the_hook_keeps_the_best_in_the_order_of_the_model(gpu: str) -> None:
    configs = [Config(block(64, 64), 4), Config(block(128, 128), 4), Config(block(128, 256), 8, 4), Config(block(16, 64), 2)]
    kept = gpusim.triton_prune(gpu, keep=2)["early_config_prune"](configs, ARGUMENTS)
    problem = TritonProblem(m=2048, n=2048, k=1024, dtype="fp16", gpu=load_gpu(gpu))
    assert kept == sorted(configs, key=problem.cycles)[:2]
    assert configs[3] not in kept


def test_a_configuration_that_does_not_fit_is_dropped_first() -> None:
    too_large = Config(block(256, 256, 128), 8, 6)
    hook = gpusim.triton_prune(H200, keep=1)["early_config_prune"]
    assert hook([too_large, Config(block(64, 64))], ARGUMENTS) == [Config(block(64, 64))]
    with pytest.warns(UserWarning, match="can run none of the 1 configurations"):
        assert hook([too_large], ARGUMENTS) == [too_large]  # Triton wants at least one


def test_meta_parameters_are_read_in_any_case() -> None:
    problem = TritonProblem(m=512, n=512, k=4096, dtype="fp16", gpu=H200)
    whole = problem.cycles(Config(block(64, 64)))
    split = problem.cycles(Config(block(64, 64, SPLIT_K=4)))
    assert split < whole
    assert problem.cycles(Config({"bm": 64, "bn": 64, "bk": 64, "splitk": 4})) == split


def test_names_and_types_of_a_kernel_are_free() -> None:
    hook = gpusim.triton_prune(H200, keep=1, sizes=("m", "n", "k"), dtype="bf16", loads="descriptors")["early_config_prune"]
    sizes = {"m": 512, "n": 512, "k": 512}
    others = {"BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8}
    configs = [Config({"BLOCK_SIZE_M": rows, **others}) for rows in (64, 128)]
    assert len(hook(configs, {}, **sizes)) == 1
    with pytest.raises(KernelError, match="no argument m"):
        hook(configs, ARGUMENTS)
    with pytest.raises(KernelError, match="no argument has a known type"):
        gpusim.triton_prune(H200)["early_config_prune"]([Config(block(64, 64))], {"M": 1, "N": 1, "K": 1})
    with pytest.raises(KernelError, match="has no BLOCK_M"):
        gpusim.triton_prune(H200)["early_config_prune"]([Config({})], ARGUMENTS)
    for wrong in ({"keep": 0}, {"loads": "magic"}):
        with pytest.raises(KernelError, match="triton_prune: "):
            gpusim.triton_prune(H200, **wrong)  # type: ignore[arg-type]  # wrong on purpose


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    out = capsys.readouterr().out
    assert out.startswith("5 of 36 configurations are left to time:") and out.count("num_warps=") == 5
