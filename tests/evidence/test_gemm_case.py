"""GEMMs that frameworks launch: what is read off names and launches, what is checked, what is asked of the model."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from gpusim.errors import ConfigError, KernelError
from gpusim.evidence.bench import frameworks, library_gemms
from gpusim.evidence.bench.child_process import Ended
from gpusim.evidence.bench.runner import Chunk, counted_text, launch_facts, match_profiles
from gpusim.evidence.cases.case import Product, WrongAnswer, kernel_folder, load_case
from gpusim.evidence.cases.gemm_case import check
from gpusim.evidence.nsight.ncu_command import Profile, ncu_command, parse_profiles
from gpusim.evidence.toolchain.cublas_names import is_reduction, parse_name
from gpusim.kernel_models.gemm import GemmParams, resolve
from gpusim.kernel_models.gemm.tile_grid import TilePlan
from gpusim.machine.config import GpuSpec, load_gpu

LIBRARY, TILE = load_case("library_gemm"), load_case("tile_gemm")


@pytest.fixture(scope="module")
def h200() -> GpuSpec:
    return load_gpu("h200_sxm")


def module_of(case: Any) -> ModuleType:
    return sys.modules[case.launch.__module__]


library, tile = module_of(LIBRARY), module_of(TILE)
TILE_CONFIGS = [config for group in TILE.groups for config in TILE.configs(group, 1)]


# ---------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "tile", "stages", "cluster", "cooperates", "is_wgmma"),
    [
        ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NTN", (128, 256, 64), 4, (2, 1), "m", True),
        ("nvjet_sm90_tst_192x192_64x4_1x2_h_bz_coopB_TNN", (192, 192, 64), 4, (1, 2), "n", True),
        ("nvjet_tst_64x32_64x16_2x1_v_bz_splitK_TNT", (64, 32, 64), 16, (2, 1), None, True),
        (
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_"
            "cublas", (128, 128, 64), None, (1, 1), None, True,
        ),
        (
            "sm80_xmma_gemm_bf16bf16_bf16f32_f32_nn_n_tilesize128x64x32_stage4_warpsize2x2x1_tensor16x8x16_kernel",
            (128, 64, 32), 4, (1, 1), None, False,
        ),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_32x6_tn_align8>", (128, 64, 32), 6,
            (1, 1), None, False,
        ),
        ("ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_relu_f2f_stages_64x6_tn", (64, 64, 64), 6, (1, 1), None, False),
    ],
)  # fmt: skip
def test_a_name_says_tile_stages_and_cluster(
    name: str, tile: tuple[int, int, int], stages: int | None, cluster: tuple[int, int], cooperates: str | None,
    is_wgmma: bool,
) -> None:
    kernel = parse_name(name)
    assert kernel is not None
    assert (kernel.tile, kernel.stages, kernel.cluster) == (tile, stages, cluster)
    assert (kernel.cooperates_along, kernel.is_wgmma) == (cooperates, is_wgmma)
    assert kernel.is_split_k == ("splitK" in name)


@pytest.mark.parametrize("name", ["gemv2T_kernel_val", "nvjet_tst_128x256", "void at::native::vectorized_kernel<", ""])
def test_a_name_that_says_nothing_is_none(name: str) -> None:
    assert parse_name(name) is None


def test_a_row_of_a_kernel_with_a_strange_name_is_kept_and_not_predicted() -> None:
    config = LIBRARY.configs("large", 1)[0]
    row = launch_facts(LIBRARY, config, {}, Profile("magic_gemm", {}, (8, 1, 1), (128, 1, 1)))
    assert row == {"launched": "magic_gemm", "grid": "8x1x1", "block": "128x1x1"}
    assert library.options(config, row, load_gpu("h200_sxm")) is None


# ---------------------------------------------------------------------------------------------- what is launched


def test_configs_are_told_once_and_cover_what_they_say() -> None:
    assert len(TILE_CONFIGS) == 50
    for group in TILE.groups:
        pairs = {(config["m"], config["n"], config["k"], config["raster_group"]) for config in TILE.configs(group, 1)}
        assert len(pairs) == len(tile.SHAPES) * len(tile.RASTER_GROUPS)
        builds = {(config["tile"], config["num_stages"], config["num_warps"]) for config in TILE.configs(group, 1)}
        assert len(builds) == sum(len(stages) for _, _, stages in tile.BUILDS)
        assert TILE.configs(group, 1) == TILE.configs(group, 1) != TILE.configs(group, 2)
    assert [len(LIBRARY.configs(group, 1)) for group in LIBRARY.groups] == [12, 8, 16]


def test_tiles_divide_every_product_that_triton_makes() -> None:
    for config in TILE_CONFIGS:
        product = TILE.launch(config, True)
        assert isinstance(product, Product) and product == TILE.launch(config, False)
        assert all(extent % side == 0 for extent, side in zip((product.m, product.n, product.k), product.tile, strict=True))


def test_every_config_is_a_kernel_of_the_model(h200: GpuSpec) -> None:
    for config in TILE_CONFIGS:
        found = tile.options(config, {"registers": "90", "wgmma_waits": "1 0"}, h200)
        launch = GemmParams.model_validate(found).launch(h200)
        assert launch.num_threads == 32 * int(config["num_warps"])
        assert launch.registers_per_thread == 90


def test_loops_by_tma_are_told_with_their_own_code_and_others_with_what_their_copies_have(h200: GpuSpec) -> None:
    step = tile.SASS["step"]
    assert set(step) == {f"{'x'.join(map(str, size))} {warps}" for size, warps, _ in tile.BUILDS}
    for size, warps, stages in tile.BUILDS:
        num = len(step[f"{'x'.join(map(str, size))} {warps}"])
        assert stages == tuple(range(tile.LEAST_STAGES, tile.LEAST_STAGES + num))
    for config in TILE_CONFIGS:
        code = tile.options(config, {}, h200)["compiled_code"]
        is_by_tma = config["kernel"] == "by_descriptors"
        assert (code.mainloop.chain_cycles > 0, code.producer.chain_cycles > 0) == (is_by_tma, is_by_tma)
        assert code.mainloop.imad_wide_per_copy == (not is_by_tma)


def test_triton_walks_tiles_as_the_model_does(h200: GpuSpec) -> None:
    source = ast.parse((kernel_folder("tile_gemm") / "kernel.py").read_text(encoding="utf-8"))
    found = next(item for item in source.body if isinstance(item, ast.FunctionDef) and item.name == "_tile_of")
    found.decorator_list.clear()
    for argument in found.args.args:
        argument.annotation = None
    names: dict[str, Any] = {}
    exec(compile(ast.Module([found], []), "kernel.py", "exec"), names)  # the kernel's own lines, on plain numbers
    for group, (rows, columns) in itertools.product((1, 2, 3, 8, 16), ((4, 8), (7, 3), (16, 16))):
        options = {"m": rows * 64, "n": columns * 64, "k": 64, "tile": "64x64x64", "schedule": "multistage"}
        params = GemmParams.model_validate({**options, "swizzle_size": group, "raster": "along_n"})
        places = np.arange(rows * columns)
        m, n, _, _ = TilePlan(resolve(params, h200)).coordinates(places)
        assert [names["_tile_of"](place, rows, columns, group) for place in places.tolist()] == list(zip(m, n, strict=True))


def options_of(name: str, grid: str, block: str, **config: object) -> dict[str, Any]:
    asked = {"m": "8192", "n": "4096", "k": "1024", "dtype": "bf16", "layout": "tn"} | {
        key: str(value) for key, value in config.items()
    }
    row = {"launched": name, "grid": grid, "block": block}
    found: dict[str, Any] = library.options(asked, row, load_gpu("h200_sxm"))
    return found


def test_a_library_makes_the_transposed_product(h200: GpuSpec) -> None:
    name = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT"
    found = options_of(name, "132x1x1", "384x1x1")
    assert (found["m"], found["n"], found["k"], found["layout"]) == (4096, 8192, 1024, "tn")
    assert options_of(name, "132x1x1", "384x1x1", layout="tt")["layout"] == "nn"
    params = GemmParams.model_validate(found).resolved(h200)
    assert (params.schedule, params.persistent) == ("cooperative", True)
    assert (params.consumer_warpgroups, params.consumer_split) == (2, "m")
    assert (params.cluster, params.stages, params.raster, params.swizzle_size) == ((2, 1), 4, "along_m", 11)
    assert params.raster_boustrophedon  # 66 clusters, twice as long across as along: 11 x 6 of them at once


def test_a_tile_whose_other_side_has_the_rows_of_a_wgmma_is_told_as_we_see_it(h200: GpuSpec) -> None:
    found = options_of("nvjet_tst_168x128_64x5_2x1_v_bz_coopB_TNN", "132x1x1", "384x1x1", layout="tt")
    assert [found[name] for name in ("m", "n", "layout", "tile", "cluster")] == [8192, 4096, "tt", "128x168x64", "1x2"]
    assert (found["consumer_split"], found["raster"]) == ("m", "along_n")
    assert GemmParams.model_validate(found).launch(h200).num_threads == 384


def test_a_kernel_that_the_model_cannot_be_is_not_predicted(h200: GpuSpec) -> None:
    config = LIBRARY.configs("small", 1)[0]
    row = {"launched": "nvjet_tst_128x256_64x4_1x1_v_bz_TNT", "grid": "132x1x1", "block": "384x1x1"}
    with pytest.raises(KernelError):  # its accumulators are more than a warpgroup has registers
        GemmParams.model_validate(library.options(config, row, h200)).launch(h200)
    assert LIBRARY.answers(config, row, h200, list(LIBRARY.tiers)) == {}


def test_launches_say_who_multiplies() -> None:
    plain = "nvjet_tst_128x128_64x6_1x2_h_bz_TNT"
    assert options_of(plain, "132x1x1", "384x1x1")["schedule"] == "pingpong"
    assert options_of(plain, "32x64x1", "384x1x1")["schedule"] == "warp_specialized"  # one of two has no tile
    assert options_of("nvjet_tst_64x128_64x8_1x2_h_bz_TNT", "132x1x1", "256x1x1")["schedule"] == "warp_specialized"
    old = options_of("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "32x64x1", "128x1x1")
    assert (old["schedule"], old["copy"], old["math"], old["stages"]) == ("multistage", "cp_async", "mma_sync", 5)


def test_bands_are_as_wide_as_the_gpu_has_clusters() -> None:
    asked = {"m": "8192", "n": "8192", "k": "64", "dtype": "bf16", "layout": "tn"}
    row = {"launched": "nvjet_tst_128x128_64x6_1x2_h_bz_TNT", "grid": "100x1x1", "block": "384x1x1"}
    widths = [library.options(asked, row, load_gpu(gpu))["swizzle_size"] for gpu in ("h200_sxm", "h100_sxm", "h100_pcie")]
    assert widths == [8, 8, 8]  # the root of 66, and of 57
    row = {**row, "launched": "nvjet_tst_64x256_64x4_1x1_h_bz_TNT"}
    found = [library.options(asked, row, load_gpu(gpu)) for gpu in ("h200_sxm", "h100_pcie")]
    assert [each["swizzle_size"] for each in found] == [6, 5]  # the root of a quarter of 132, and of 114
    assert all("raster_table" not in each for each in found)  # lone CTAs run GPC by GPC anyway


def test_parts_of_k_are_counted_by_the_grid(h200: GpuSpec) -> None:
    name = "nvjet_tst_64x32_64x16_1x1_v_bz_splitK_TNT"
    asked = {"m": "32", "n": "4096", "k": "8192", "dtype": "bf16", "layout": "tn"}
    row = {"launched": f"{name} + void cublasLt::splitKreduce_kernel<", "grid": "64x1x4", "block": "256x1x1"}
    found = library.options(asked, row, h200)
    assert (found["split_k"], found["split_k_mode"], found["splitk_reduction"]) == (4, "second_kernel", "scalar")
    alone = library.options(asked, {**row, "launched": name}, h200)
    assert alone["split_k_mode"] == "in_kernel" and "sum_by" not in alone
    assert library.options(asked, {**row, "grid": "65x1x1"}, h200) is None
    assert is_reduction("void cublasLt::splitKreduce_kernel<") and not is_reduction(name)


# ---------------------------------------------------------------------------------------------- answers


def test_a_product_that_is_only_rounded_passes_and_others_do_not() -> None:
    reference = np.random.default_rng(0).standard_normal((40, 50)).astype(np.float32) * 64.0
    rounded = (reference.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    assert 0.0 < check({"k": "4096"}, {"d": rounded, "reference": reference})["error_share"] < 1.0
    lacking = reference.copy()
    lacking[3, 4] += 8.0  # a step of 64 of K left out
    unwritten = reference.copy()
    unwritten[0, 0] = np.nan
    said_of_wrong = ((lacking, "further off"), (unwritten, "1 of 2000 elements were not written"), (rounded[1:], "shape"))
    for wrong, said in said_of_wrong:
        with pytest.raises(WrongAnswer, match=said):
            check({"k": "4096"}, {"d": wrong, "reference": reference})


def test_every_tile_is_looked_at() -> None:
    found = library_gemms.sampled(4000, np.random.default_rng(1))
    assert found[0] == 0 and found[-1] == 3999 and set(found // 64) == set(range(63))


# ---------------------------------------------------------------------------------------------- the bench


def raw(*kernels: str) -> str:
    rows = [f'"{idx}","{kernel}","(2, 66, 1)","(384, 1, 1)","{idx + 1}"' for idx, kernel in enumerate(kernels)]
    return "\n".join(['"ID","Kernel Name","Grid Size","Block Size","a.sum"', '"","","","",""', *rows])


FILL = "void at::vectorized_elementwise_kernel<4, at::FillFunctor<float>, std::array<char *, 1>>(int, T2, T3)"


ENDED = Ended([], 0, "")


def test_what_follows_a_mark_is_one_row(tmp_path: Path) -> None:
    configs, chunk, log = LIBRARY.configs("large", 1)[:2], Chunk(values={0: {}, 1: {}}), tmp_path / "log"
    log.write_text(raw(FILL, "nvjet_a", FILL, "nvjet_b", "splitKreduce_kernel"), encoding="utf-8")
    match_profiles(counted_text(log, ENDED), ["a.sum"], dict(enumerate(configs)), chunk, is_marked=True)
    assert [chunk.profiles[idx].metrics["a.sum"] for idx in (0, 1)] == [2.0, 9.0]
    assert chunk.profiles[1].kernel == "nvjet_b + splitKreduce_kernel"
    assert (chunk.profiles[0].grid, chunk.profiles[0].block) == ((2, 66, 1), (384, 1, 1))


@pytest.mark.parametrize("kernels", [("gemm", "gemm"), (FILL, "gemm", FILL), (FILL, "gemm")])
def test_marks_without_their_kernels_are_refused(tmp_path: Path, kernels: tuple[str, ...]) -> None:
    log = tmp_path / "log"
    log.write_text(raw(*kernels), encoding="utf-8")
    configs, chunk = LIBRARY.configs("large", 1)[:2], Chunk(values={0: {}, 1: {}})
    with pytest.raises(ConfigError, match="gemm"):
        match_profiles(counted_text(log, ENDED), ["a.sum"], dict(enumerate(configs)), chunk, is_marked=True)


def test_only_what_the_program_marks_is_counted() -> None:
    assert "--profile-from-start" in ncu_command("ncu", ["a.sum"], "log", ["python"], is_marked=True)
    assert "--profile-from-start" not in ncu_command("ncu", ["a.sum"], "log", ["python"])
    assert parse_profiles(raw("k"), ["a.sum"])[0].grid == (2, 66, 1)


def test_without_its_framework_a_case_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"tile_gemm is launched by triton, and torch is missing here: wants pip install"):
        frameworks.built(TILE)


def test_torch_gives_the_sample_that_is_checked() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    work = frameworks.Frameworks(LIBRARY, device="cpu")
    for layout in ("tn", "tt"):
        prepared = work.prepare(Product(m=200, n=300, k=100, layout=layout))  # type: ignore[arg-type]
        with pytest.raises(WrongAnswer, match="not written"):
            check({"k": "100"}, prepared.fetch())
        prepared.enqueue()
        assert check({"k": "100"}, prepared.fetch())["error_share"] < 1.0


# ---------------------------------------------------------------------------------------------- shapes of a seed


def test_more_shapes_are_four_of_each_class_that_no_other_group_has() -> None:
    shapes = library.MORE
    assert shapes == library.drawn(library.MORE_SEED) and len(shapes) == len({*shapes}) == 16
    assert not {*shapes} & {*library.LARGE, *library.SMALL}
    square, skinny, deep, ragged = (shapes[idx : idx + 4] for idx in range(0, 16, 4))
    assert all(m == n == k for m, n, k, *_ in square)
    assert all(m <= 256 and 8 * m <= n for m, n, *_ in skinny)
    assert all(k >= 8 * max(m, n) for m, n, k, *_ in deep)
    assert all(m % 64 or n % 64 for m, n, *_ in ragged)
    assert all(side % 8 == 0 for m, n, k, *_ in ragged for side in (m, n, k))
