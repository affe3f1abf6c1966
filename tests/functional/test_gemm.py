"""The GEMM model equals numpy in all schedules, and its wrong variants do not."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim import DataError, DeadlockError, GemmParams, HazardError, load_gpu, run_functional
from gpusim.functional.mutate import mutated
from gpusim.functional.number_format import rounded
from gpusim.workload import ops
from gpusim.workload.compiled_code import NO_CODE
from gpusim.workload.dtypes import dtype

from .mutations import reversed_columns, rolled, swapped_issues

GPU = load_gpu("h200_sxm")
SMALL = {"m": 72, "n": 72, "k": 136, "tile": "64x64x64", "out_dtype": "fp32"}


def integers(shape: tuple[int, ...], most: int = 3) -> NDArray[np.float64]:
    return np.random.default_rng(len(shape) + sum(shape)).integers(-most, most + 1, shape).astype(np.float64)


def problem(params: dict[str, Any]) -> tuple[GemmParams, dict[str, Any], NDArray[np.float64]]:
    """Options, data, and what numpy says."""
    options = {**SMALL, **params}
    lead = (options["batch"],) if options.get("batch", 1) > 1 else ()
    (m, n, k), beta = (options[name] for name in "mnk"), options.get("beta", 0.0)
    data = {"A": integers((*lead, m, k)), "B": integers((*lead, k, n))}
    expected = options.get("alpha", 1.0) * (data["A"] @ data["B"])
    if beta:
        added = data["D" if options.get("epilogue") == "tma_reduce" else "C"] = integers((*lead, m, n), 8)
        expected = expected + beta * added
    if options.get("bias"):
        is_of_rows = options.get("bias_along") == "m"
        data["bias"] = integers((m if is_of_rows else n,), 8)
        expected = expected + (data["bias"][:, None] if is_of_rows else data["bias"])
    if options.get("activation") == "relu":
        expected = np.maximum(expected, 0)
    if limits := options.get("clamp"):
        expected = np.clip(expected, *map(float, limits.split(",")))
    return GemmParams(**options), data, expected


FULL = {"alpha": 2.0, "beta": -1.0, "bias": True, "activation": "relu"}
HGEMM = {"math": "mma_sync", "tile": "64x64x32", "warps": "2x2", "m": 72, "n": 72, "k": 72}
FMA = {"dtype": "fp32", "tile": "64x64x8", "m": 72, "k": 24}
CASES: dict[str, dict[str, Any]] = {
    **{
        f"{schedule} {epilogue}": {
            "schedule": schedule, "epilogue": epilogue, "persistent": True, "tile": "128x64x64", "n": 200, **FULL,
        }
        for schedule in ("multistage", "warp_specialized", "cooperative", "pingpong")
        for epilogue in ("direct", "smem", "tma_store")
    },
    **{f"tma wgmma {layout}": {"layout": layout, "tile": "128x64x64"} for layout in ("nt", "nn", "tt")},
    **{f"cp_async mma_sync {layout}": {**HGEMM, "layout": layout} for layout in ("tn", "nt", "nn", "tt")},
    **{f"fma {copy} {layout}": {**FMA, "copy": copy, "layout": layout}
       for copy in ("cp_async", "ldg") for layout in ("tn", "nt")},
    **{f"fma {tile} {access} {layout}": {**FMA, "copy": copy, "layout": layout, "thread_tile": tile,
                                         "thread_access": access, **FULL}
       for tile, access, copy, layout in (
           ("adjacent", "vector", "cp_async", "tn"), ("interleaved", "scalar", "cp_async", "nt"),
           ("adjacent", "scalar", "ldg", "tt"), ("interleaved", "scalar", "ldg", "tn"))},
    **{f"wgmma of {name}": {"dtype": name, "k": 128, "out_dtype": None} for name in ("fp16", "bf16", "tf32", "fp8", "int8")},
    **{f"mma_sync of {name}": {"dtype": name, **HGEMM, "k": 128, "tile": "64x64x64", "out_dtype": None}
       for name in ("fp16", "tf32", "fp8", "int8")},
    "tf32 words": {"dtype": "tf32", "layout": "nt", "math": "mma_sync"},
    "cluster": {"cluster": "2x2", "m": 136, "n": 136}, "cluster MN-major": {"cluster": "2x1", "layout": "nn", "m": 136},
    "batch": {"batch": 2, "k": 64}, "unaligned": {**HGEMM, "m": 65, "n": 67, "k": 71},
    "padded": {"n": 67, "k": 71, "alignment": 8},
    "one stage": {**HGEMM, "stages": 1}, "one register stage": {**HGEMM, "register_stages": 1},
    **{f"bias of rows, limits, {epilogue}": {**HGEMM, **FULL, "bias_along": "m", "clamp": "-9,70", "epilogue": epilogue}
       for epilogue in ("direct", "smem")},
    "two warp groups": {**HGEMM, "warps": "4x2", **FULL}, "padded rows": {**HGEMM, "swizzle": "none", "pad": 8},
    "no swizzle": {"swizzle": "none"}, "cp_async wgmma": {"copy": "cp_async"},
    "cp_async producer": {"copy": "cp_async", "schedule": "cooperative", "tile": "128x64x64"},
    "split along n": {"consumer_split": "n", "tile": "64x256x64", "schedule": "cooperative"},
    "sums in L2": {"epilogue": "tma_reduce", "beta": 1.0},
    "split-K limits": {"split_k": 2, "split_k_mode": "second_kernel", "k": 200, "bias": True, "clamp": "-40,40"},
    **{f"split-K {mode}": {"split_k": 3, "split_k_mode": mode, "k": 200, **FULL} for mode in ("in_kernel", "second_kernel")},
    "split-K serial": {**HGEMM, "split_k": 3, "split_k_mode": "serial", "k": 200, **FULL},
    "serialized wgmma": {"tile": "128x128x64", "compiled_code": NO_CODE.replaced(mainloop={"wgmma_serialized": True})},
    "warp groups along n": {**HGEMM, "warps": "1x8", "tile": "64x128x32", "m": 128, "epilogue": "direct", **FULL},
    "array": {"batch": 2, "k": 64, "batch_mode": "array"},
    "array mma_sync": {**HGEMM, "batch": 2, "batch_mode": "array"},
    "split-K scalar": {"split_k": 2, "split_k_mode": "second_kernel", "splitk_reduction": "scalar", "k": 200},
}  # fmt: skip


def test_a_sigmoid_is_that_of_numpy_and_lies_between_its_limits() -> None:
    options = {**HGEMM, "alpha": 0.01, "activation": "sigmoid", "clamp": "0.25,0.75", "out_dtype": "fp32"}
    params, data, sums = problem({name: value for name, value in options.items() if name != "clamp"})
    found = run_functional(params.model_copy(update={"clamp": options["clamp"]}).launch(GPU), data)["D"]
    assert np.allclose(found, np.clip(1 / (1 + np.exp(-sums)), 0.25, 0.75), atol=1e-6)
    assert {found.min(), found.max()} == {np.float32(0.25), np.float32(0.75)}


@pytest.mark.parametrize("name", CASES)
def test_integers_are_exact(name: str) -> None:
    params, data, expected = problem(CASES[name])
    assert np.array_equal(run_functional(params.launch(GPU), data)["D"], rounded(expected, params.out_element))


@pytest.mark.parametrize(
    "name", ["pingpong tma_store", "cp_async mma_sync tn", "fma ldg nt", "cluster", "split-K in_kernel", "split-K serial"]
)
def test_no_random_order_changes_the_result(name: str) -> None:
    params, data, expected = problem(CASES[name])
    assert np.array_equal(run_functional(params.launch(GPU), data, seed=0)["D"], expected)


UNIT_ROUNDOFF = {"fp32": 2.0**-24, "tf32": 2.0**-11, "fp16": 2.0**-11, "bf16": 2.0**-8, "fp8": 2.0**-4}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in ("tf32", "fp16", "bf16", "fp8", "fp32")), ("bf16", HGEMM),
        ("fp8", {**HGEMM, "tile": "64x64x64"}),
    ],
)
def test_other_values_lie_within_the_bound_of_type_and_k(name: str, options: dict[str, Any]) -> None:
    """Bound of an element: of each operand's rounding, and of one fp32 rounding for each k at most, of sums of sizes."""
    k, random = 160, np.random.default_rng(3)
    a, b = random.standard_normal((72, k)), random.standard_normal((k, 72))
    params = GemmParams(**{**options, "m": 72, "n": 72, "k": k, "dtype": name, "out_dtype": "fp32"})
    found = run_functional(params.launch(GPU), {"A": a, "B": b})["D"]
    of_type, of_sums = UNIT_ROUNDOFF[name], k * UNIT_ROUNDOFF["fp32"]
    sizes = np.abs(a) @ np.abs(b)
    smallest = 2.0**-10 * (np.abs(a).sum(1)[:, None] + np.abs(b).sum(0)) if name == "fp8" else 0.0  # of subnormal numbers
    error, bound = np.abs(found - a @ b), ((1 + of_type) ** 2 * (1 + of_sums) - 1) * sizes + smallest
    assert (error <= bound).all()
    exact = rounded(a, dtype(name)).astype(np.float64) @ rounded(b, dtype(name)).astype(np.float64)
    assert (np.abs(found - exact) <= of_sums * sizes * (1 + of_type) ** 2).all()
    assert name == "fp32" or (error > of_sums * sizes).any(), "operands were not rounded"


WRONG = [
    ("warp_specialized direct", ops.TmaLoad, rolled("offsets")), ("warp_specialized direct", ops.Wgmma, reversed_columns),
    ("warp_specialized direct", ops.GlobalStore, rolled("index")),
    ("warp_specialized direct", ops.GlobalLoad, rolled("index")),
    ("cooperative smem", ops.SharedStore, rolled("offsets")), ("cooperative smem", ops.SharedLoad, rolled("offsets")),
    ("cooperative tma_store", ops.TmaStore, rolled("index")), ("cooperative tma_store", ops.BulkWaitGroup, None),
    ("pingpong tma_store", ops.MbarrierWait, None), ("multistage direct", ops.WgmmaWaitGroup, None),
    ("cp_async mma_sync tn", ops.CpAsync, rolled("index")), ("cp_async mma_sync tn", ops.Ldmatrix, rolled("offsets")),
    ("cp_async mma_sync nt", ops.Ldmatrix, rolled("offsets", 0)), ("cp_async mma_sync tn", ops.MmaSync, swapped_issues),
    ("cp_async mma_sync tn", ops.CpAsyncWaitGroup, None), ("fma ldg nt", ops.SharedStore, rolled("offsets")),
    ("fma cp_async nt", ops.SharedLoad, rolled("offsets")), ("fma ldg nt", ops.GlobalLoad, rolled("index")),
    ("split-K in_kernel", ops.GlobalAtomic, None), ("split-K second_kernel", ops.GlobalStore, rolled("index")),
    ("split-K second_kernel", ops.GlobalLoad, rolled("index")),
    ("split-K serial", ops.GlobalLoad, rolled("index")), ("sums in L2", ops.TmaStore, rolled("offsets")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "change"), WRONG)
def test_a_wrong_kernel_is_found(name: str, kind: type, change: Any) -> None:
    params, data, expected = problem(CASES[name])
    with suppress(DataError, DeadlockError, HazardError):
        found = run_functional(mutated(params.launch(GPU), kind, change), data)["D"]
        assert not np.array_equal(found, expected)


def test_warp_groups_that_divide_n_are_refused_at_edges() -> None:
    params, data, _ = problem({**HGEMM, "warps": "1x8", "tile": "64x128x32"})
    with pytest.raises(DataError, match="which has no data access"):
        run_functional(params.launch(GPU), data)
