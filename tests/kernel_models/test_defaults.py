"""Defaults give a launch that works, on every GPU."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.errors import LaunchError
from gpusim.kernel_models.gemm import GemmParams
from gpusim.kernel_models.gemm.sweep_values import usual_values
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.simulate.plan import check
from gpusim.simulate.run import simulate

SIZES = ((1, 1, 1), (100, 200, 300), (4096, 4096, 4096), (64, 8192, 128), (777, 333, 5550))
DTYPES = ("bf16", "fp16", "tf32", "fp8", "int8", "fp32")
LAYOUTS = ("tn", "nn", "nt", "tt")
SCHEDULES = (None, "multistage", "warp_specialized", "cooperative", "pingpong")


def is_possible(gpu: GpuSpec, dtype: str, layout: str, schedule: str | None) -> bool:
    """Whether silicon has it: K-contiguous operands for all but 16 and fp32 bits, wgmma on Hopper, fp8 from 8.9."""
    if dtype in ("tf32", "fp8", "int8") and layout != "tn":
        return False
    if schedule not in (None, "multistage") and ("wgmma" not in gpu.features or dtype == "fp32"):
        return False
    return not (dtype == "fp8" and "fp8" not in gpu.features)


def test_defaults_fit_on_every_gpu_for_all_sizes_types_layouts_and_schedules(every_gpu: GpuSpec) -> None:
    num_launches = 0
    for (m, n, k), dtype, layout, schedule in product(SIZES, DTYPES, LAYOUTS, SCHEDULES):
        if is_possible(every_gpu, dtype, layout, schedule):
            aligned = {} if schedule is None else {"alignment": 16}  # no wgmma reads rows that are less aligned
            params = GemmParams(m=m, n=n, k=k, dtype=dtype, layout=layout, schedule=schedule, **aligned)
            assert check(params.launch(every_gpu), every_gpu).ctas_per_sm >= 1
            num_launches += 1
    assert num_launches >= 5 * (2 * 4 + 2 + 4) * 2 // 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_defaults_run_on_every_gpu(every_gpu: GpuSpec, dtype: str) -> None:
    if is_possible(every_gpu, dtype, "tn", None):
        params = GemmParams(m=300, n=520, k=200, dtype=dtype)
        assert simulate(params.launch(every_gpu), every_gpu, clock="max").cycles > 0


@pytest.mark.parametrize("schedule", SCHEDULES[1:])
@pytest.mark.parametrize("epilogue", ["direct", "smem", "tma_store"])
def test_every_schedule_runs_with_every_epilogue(h200: GpuSpec, schedule: str, epilogue: str) -> None:
    params = GemmParams(m=300, n=520, k=200, schedule=schedule, epilogue=epilogue, beta=1.0, bias=True)
    assert simulate(params.launch(h200), h200, clock="max").cycles > 0


def test_resolving_twice_changes_nothing(every_gpu: GpuSpec) -> None:
    for dtype, schedule in product(("bf16", "fp32"), SCHEDULES):
        if is_possible(every_gpu, dtype, "tn", schedule):
            once = GemmParams(m=512, n=512, k=512, dtype=dtype, schedule=schedule).resolved(every_gpu)
            assert once.resolved(every_gpu) == once


@pytest.mark.parametrize(
    ("given_options", "expected"),
    [
        ({"tile": "320x128x64"}, {"schedule": "cooperative", "consumer_warpgroups": 2, "consumer_split": "n"}),
        ({"tile": "192x192x64"}, {"schedule": "cooperative", "consumer_warpgroups": 2, "consumer_split": "n"}),
        ({"tile": "192x192x64", "consumer_warpgroups": 3}, {"consumer_split": "m", "setmaxnreg": "32/160"}),
        ({"tile": "192x192x64", "consumer_warpgroups": 3, "consumer_split": "n"}, {"consumer_split": "n"}),
        ({"tile": "64x8x64"}, {"schedule": "warp_specialized", "consumer_warpgroups": 1}),
        ({"tile": "128x256x64"}, {"schedule": "cooperative", "consumer_warpgroups": 2, "consumer_split": "m"}),
        ({"tile": "256x128x64"}, {"schedule": "cooperative", "consumer_warpgroups": 2, "consumer_split": "m"}),
        ({"tile": "64x256x64"}, {"schedule": "cooperative", "consumer_warpgroups": 2, "consumer_split": "n"}),
        ({"tile": "192x256x64"}, {"schedule": "cooperative", "consumer_warpgroups": 2, "consumer_split": "n"}),
        ({"consumer_warpgroups": 1}, {"schedule": "warp_specialized"}),
        ({"consumer_warpgroups": 3}, {"tile": (192, 128, 64)}),
        ({"schedule": "multistage", "tile": "192x128x64"}, {"consumer_warpgroups": 2, "consumer_split": "n"}),
        ({"math": "mma_sync", "tile": "128x256x32"}, {"warps": (2, 4)}),
        ({"math": "mma_sync", "tile": "64x8x64"}, {"warps": (4, 1)}),
        ({"math": "mma_sync", "warps": "1x1"}, {"tile": (64, 64, 32)}),
        ({"dtype": "fp32"}, {"math": "fma", "copy_": "cp_async", "warps": (4, 2), "swizzle": "none"}),
        ({"tile": "256x128x256"}, {"stages": 1, "wgmma_depth": 0}),
        ({"layout": "nn", "tile": "128x96x64"}, {"swizzle": "128B"}),
        ({"tile": "128x128x32"}, {"swizzle": "64B"}),
        ({"schedule": "pingpong"}, {"persistent": True, "consumer_split": None}),
    ],
)
def test_defaults_suit_what_was_given(
    h200: GpuSpec, given_options: dict[str, Any], expected: dict[str, Any]
) -> None:
    resolved = GemmParams(m=4096, n=4096, k=4096, **given_options).resolved(h200)
    assert {name: getattr(resolved, name) for name in expected} == expected


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 6), columns=st.integers(1, 32), depth=st.sampled_from([16, 32, 64, 128]),
    schedule=st.sampled_from([None, "multistage"]), layout=st.sampled_from(LAYOUTS),
)
def test_any_tile_whose_accumulators_fit_has_defaults(
    rows: int, columns: int, depth: int, schedule: str | None, layout: str
) -> None:
    gpu = load_gpu("h200_sxm")
    tile = (64 * rows, 8 * columns, depth)
    if tile[0] * tile[1] > 128 * 256 or (tile[0] + tile[1]) * depth * 2 > 220_000:
        return
    if rows % 2 and columns % 2 and rows * columns > 25:
        return  # one warpgroup or three must take it all
    if columns % 2 and columns > 28:
        return  # one warp along N takes it all
    params = GemmParams(m=500, n=700, k=300, tile=tile, schedule=schedule, layout=layout)
    assert check(params.launch(gpu), gpu).ctas_per_sm >= 1


# ---------------------------------------------------------------------- features decide, and no version number


def labelled(folder: Path, features: str) -> GpuSpec:
    """An H200 of compute capability 10.0 with other features."""
    path = folder / "mine.toml"
    path.write_text(
        'name = "mine"\ntitle = "Mine"\nextends = "h200_sxm"\n[device]\ncompute_capability = 10.0\n'
        f'features = [{features}]\n[device.source]\ncompute_capability = "guess: a label; settled by a device"\n',
        encoding="utf-8",
    )
    return load_gpu(path)


SIZE: dict[str, Any] = {"m": 4096, "n": 4096, "k": 4096}
ALL = '"cp_async", "mbarrier", "mma_sync", "fp8", "tma", "cluster", "wgmma", "setmaxnreg", "stmatrix"'
FEWER = ALL.replace(' "wgmma", "setmaxnreg",', "")


def test_a_gpu_with_another_label_and_the_same_features_gets_the_same_kernel(tmp_path: Path, h200: GpuSpec) -> None:
    params = GemmParams(**SIZE)
    assert params.resolved(labelled(tmp_path, ALL)) == params.resolved(h200)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"math": "wgmma"}, "--math wgmma: mine has no wgmma; use --math mma_sync"),
        ({"schedule": "pingpong"}, "--schedule pingpong: mine has no wgmma; use --schedule multistage"),
        ({"consumers": 2}, "--consumer-warpgroups 2: mine has no wgmma; use --warps 2x2"),
        ({"setmaxnreg": "40/232"}, "--setmaxnreg 40/232: mine has no setmaxnreg; use --setmaxnreg none"),
    ],
)
def test_a_gpu_without_wgmma_refuses_it_whatever_its_label(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(LaunchError) as refused:
        GemmParams(**SIZE, **options).launch(labelled(tmp_path, FEWER))
    assert str(refused.value) == said


def test_a_launch_that_names_a_feature_is_refused_before_it_is_planned(tmp_path: Path, h200: GpuSpec) -> None:
    launch = GemmParams(**SIZE, math="wgmma").launch(h200)
    with pytest.raises(LaunchError, match=r"^gemm: mine has no setmaxnreg, wgmma, it has cluster, cp_async, fp8, "):
        check(launch, labelled(tmp_path, FEWER))


def test_math_copies_and_what_is_usual_follow_from_features(tmp_path: Path) -> None:
    fewer = labelled(tmp_path, FEWER)
    chosen = GemmParams(**SIZE).resolved(fewer)
    assert (chosen.math, chosen.copy_, chosen.schedule) == ("mma_sync", "cp_async", "multistage")
    assert usual_values("schedule", SIZE, fewer) == ("multistage",)
    assert usual_values("cluster", SIZE, fewer) == ("1x1", "2x1", "1x2")
    without_tma = labelled(tmp_path, ALL.replace(' "tma",', ""))
    assert GemmParams(**SIZE).resolved(without_tma).copy_ == "cp_async"
    assert GemmParams(**SIZE, copy="tma", schedule="multistage", math="mma_sync").resolved(fewer).copy_ == "tma"
