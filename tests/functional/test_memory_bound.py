"""Models of copies, sums, rows and gathers equal numpy, and their wrong variants do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim import KERNEL_MODELS, DataError, Launch, load_gpu, run_functional
from gpusim.functional.mutate import mutated
from gpusim.workload import ops

from .mutations import dropped, rolled

GPU = load_gpu("h200_sxm")
Data = dict[str, NDArray[Any]]
RANDOM = np.random.default_rng(5)
X, ROW, TABLE, INDEX = (
    RANDOM.integers(-4, 5, shape).astype(np.float32) for shape in ((70, 104), (3, 4096), (40, 128), (50,))
)
INDEX = np.abs(RANDOM.integers(0, 40, 50))


def launch(kernel: str, options: dict[str, Any]) -> Launch:
    model = KERNEL_MODELS[kernel]
    return model.launch(model.params.model_validate(options).checked(), GPU)


def softmax(rows: NDArray[Any]) -> NDArray[Any]:
    powers = np.exp(rows.astype(np.float64) - rows.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def normed(rows: NDArray[Any]) -> NDArray[Any]:
    centered = rows.astype(np.float64) - rows.mean(axis=1, keepdims=True, dtype=np.float64)
    return centered / np.sqrt((centered**2).mean(axis=1, keepdims=True) + 1e-5)


FLAT, WEIGHTS = X.reshape(-1), {"gamma": ROW[1], "beta": ROW[2]}
SIZE, ROWS = {"m": 70, "n": 104}, {"rows": 3, "columns": 4096}
OF_ROWS, OF_X, FEW = {"rows": 40, "columns": 128}, {"rows": 9, "columns": 104}, X[:9]

def rooted(rows: NDArray[Any]) -> NDArray[Any]:
    """RMS norm, with weights of 1."""
    squares = (rows.astype(np.float64) ** 2).mean(axis=1, keepdims=True)
    return np.asarray(rows / np.sqrt(squares + 1e-5))


def gelu(x: NDArray[Any]) -> NDArray[Any]:
    """The formula with tanh."""
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


Case = tuple[str, dict[str, Any], Data, NDArray[Any], float, tuple[type, ...]]
CASES: dict[str, Case] = {
    **{
        f"transpose {smem}": ("transpose", {**SIZE, "smem": smem}, {"in": X}, X.T, 0.0, (ops.GlobalLoad, kind))
        for smem, kind in (
            ("naive", ops.SharedStore), ("padded", ops.SharedLoad), ("swizzled", ops.SharedLoad), ("none", ops.GlobalStore),
        )
    },
    "transpose of rows": ("transpose", {**SIZE, "smem": "none", "coalesced": "stores", "dtype": "fp16"}, {"in": X}, X.T, 0.0,
                          (ops.GlobalLoad, ops.GlobalStore)),
    **{
        f"smem_copy {way} {swizzle}": (
            "smem_copy", {**SIZE, "copy": way, "swizzle": swizzle, "tile": "64x64"}, {"in": X}, X, 0.0, kinds,
        )
        for way, kinds in (("scalar", (ops.GlobalLoad, ops.SharedLoad)), ("vectorized", (ops.SharedStore, ops.GlobalStore)),
                           ("cp_async", (ops.CpAsync,)), ("tma", (ops.TmaLoad, ops.TmaStore)))
        for swizzle in ("none", "128B")
    },
    "smem_copy along m": (
        "smem_copy", {**SIZE, "copy": "cp_async", "tile": "32x64", "raster": "along_m"}, {"in": X}, X, 0.0, (ops.CpAsync,),
    ),
    "strided_copy": ("strided_copy", {"elements": 2427, "stride": 3, "items_per_thread": 4}, {"in": FLAT[:7279]},
                     FLAT[:7279:3], 0.0, (ops.GlobalLoad, ops.GlobalStore)),
    "copy": ("elementwise", {"elements": 7280, "dtype": "bf16"}, {"in": FLAT}, FLAT, 0.0, (ops.GlobalLoad, ops.GlobalStore)),
    "add in turn": ("elementwise", {"op": "add", "elements": 7280, "loads": "serial", "items_per_thread": 4},
                    {"a": FLAT, "b": FLAT[::-1]}, FLAT + FLAT[::-1], 0.0, (ops.GlobalLoad, ops.GlobalStore)),
    "add of a row": ("elementwise", {"op": "add", "elements": 7280, "broadcast": "row", "columns": 104},
                     {"a": FLAT, "b": X[0]}, (X + X[0]).reshape(-1), 0.0, (ops.GlobalLoad,)),
    "scale one by one": ("elementwise", {"op": "scale", "elements": 7280, "tail": "elements", "threads": 512}, {"in": FLAT},
                         2 * FLAT, 0.0, (ops.GlobalStore,)),
    "silu": ("elementwise", {"op": "silu", "elements": 7280}, {"in": FLAT}, FLAT / (1 + np.exp(-FLAT)), 1e-5,
             (ops.GlobalLoad,)),
    **{
        f"gather by {per}": (
            "gather", {"rows": 50, "columns": 128, "table_rows": 40, "per": per}, {"table": TABLE, "index": INDEX},
            TABLE[INDEX], 0.0, (ops.GlobalLoad, ops.GlobalStore),
        )
        for per in ("warp", "block")
    },
    "sums of rows": ("reduction", ROWS, {"in": ROW}, ROW.sum(1), 0.0, (ops.GlobalLoad, ops.SharedLoad)),
    "sums of columns": ("reduction", {"rows": 64, "columns": 128, "axis": "column"}, {"in": np.tile(TABLE, (2, 1))[:64]},
                        np.tile(TABLE, (2, 1))[:64].sum(0), 0.0, (ops.GlobalLoad, ops.SharedStore, ops.GlobalAtomic)),
    **{
        f"sums of rows {name}": (
            "reduction", {**OF_X, "threads": 64, **options}, {"in": FEW}, FEW.sum(1), 0.0, (ops.GlobalLoad, *kinds),
        )
        for name, options, kinds in (
            ("by warp", {"per": "warp"}, (ops.GlobalStore,)), ("by atomics", {"ctas_per_sum": 3}, (ops.GlobalAtomic,)),
            ("by the last CTA", {"ctas_per_sum": 2, "finish": "last_cta", "threads": 256}, (ops.SharedLoad,)),
            ("in a second launch", {"ctas_per_sum": 2, "finish": "second_launch"}, (ops.GlobalStore,)),
        )
    },
    **{
        f"sums of columns {name}": (
            "reduction", {**OF_ROWS, "axis": "column", "rows_per_cta": 16, **options}, {"in": TABLE}, TABLE.sum(0), 0.0,
            kinds,
        )
        for name, options, kinds in (
            ("by torch", {"code": "torch", "finish": "last_cta", "dtype": "fp16", "vector_bytes": 4}, (ops.GlobalLoad,)),
            ("by the last CTA", {"finish": "last_cta"}, (ops.SharedStore, ops.GlobalStore)),
            ("in a second launch", {"finish": "second_launch", "dtype": "bf16", "vector_bytes": 8}, (ops.SharedLoad,)),
            ("by one CTA", {"rows_per_cta": 48, "unroll": 2}, (ops.GlobalStore,)),
        )
    },
    "sum of all": ("reduction", {**OF_X, "axis": "all", "ctas_per_sum": 3, "finish": "last_cta"}, {"in": FEW},
                   FEW.sum(keepdims=True)[0], 0.0, (ops.GlobalLoad, ops.GlobalStore)),
    "softmax by warp": ("softmax", OF_ROWS, {"in": TABLE}, softmax(TABLE), 1e-6, (ops.GlobalLoad, ops.GlobalStore)),
    "softmax by block": ("softmax", {**ROWS, "per": "block"}, {"in": ROW}, softmax(ROW), 1e-6, (ops.SharedStore,)),
    "layer norm by warp": ("layer_norm", OF_ROWS, {"in": TABLE, "gamma": TABLE[0], "beta": TABLE[1]},
                           normed(TABLE) * TABLE[0] + TABLE[1], 1e-5, (ops.GlobalLoad, ops.GlobalStore)),
    "layer norm by block": ("layer_norm", {**ROWS, "per": "block"}, {"in": ROW, **WEIGHTS},
                            normed(ROW) * ROW[1] + ROW[2], 2e-5, (ops.SharedStore, ops.GlobalLoad)),
    **{
        f"softmax {per} {name}": (
            "softmax", {**OF_X, "per": per, "threads": 64, **options}, {"in": FEW}, softmax(FEW), 1e-6, kinds,
        )
        for per, name, options, kinds in (
            ("warp", "reread", {"keep": "reread"}, (ops.GlobalLoad, ops.GlobalStore)),
            ("warp", "online", {"keep": "smem", "algorithm": "online", "unroll": 2}, (ops.SharedStore, ops.SharedLoad)),
            ("block", "persistent", {"ctas": 4, "arithmetic": "ieee"}, (ops.SharedStore, ops.SharedLoad)),
            ("block", "by the first warp", {"combine": "first_warp", "keep": "smem", "vector_bytes": 8}, (ops.SharedLoad,)),
        )
    },
    "softmax of groups of warps": ("softmax", {**ROWS, "per": "block", "threads": 512, "keep": "reread"}, {"in": ROW},
                                   softmax(ROW), 1e-6, (ops.GlobalLoad, ops.SharedStore)),
    "Welford": ("layer_norm", {**ROWS, "per": "block", "algorithm": "welford", "combine": "first_warp"},
                {"in": ROW, **WEIGHTS}, normed(ROW) * ROW[1] + ROW[2], 2e-5, (ops.SharedStore, ops.GlobalLoad)),
    "layer norm, masked": ("layer_norm", {**OF_X, "weight_loads": "element"},
                           {"in": FEW, "gamma": X[0], "beta": X[1]}, normed(FEW) * X[0] + X[1], 2e-5, (ops.GlobalLoad,)),
    "RMS norm": ("rms_norm", OF_ROWS, {"in": TABLE, "gamma": TABLE[0]}, rooted(TABLE) * TABLE[0], 1e-5, (ops.GlobalStore,)),
    "bias and gelu": ("bias_activation", OF_ROWS, {"in": TABLE, "bias": TABLE[0]}, gelu(TABLE + TABLE[0]), 1e-5,
                      (ops.GlobalLoad, ops.GlobalStore)),
    "relu without bias": ("bias_activation", {**OF_ROWS, "bias": False, "activation": "relu", "dtype": "fp16"},
                          {"in": TABLE}, np.maximum(TABLE, 0), 0.0, (ops.GlobalStore,)),
    **{
        f"sgemm {way}": ("sgemm_naive", {"m": 40, "n": 40, "k": 64, "way": way}, {"A": X[:40, :64], "B": X[:40, :64].T},
                         X[:40, :64] @ X[:40, :64].T, 0.0, (ops.GlobalLoad, kind))
        for way, kind in (("naive", ops.GlobalStore), ("coalesced", ops.GlobalStore), ("tiled", ops.SharedLoad))
    },
}  # fmt: skip


def test_every_kernel_model_runs() -> None:
    assert {case[0] for case in CASES.values()} == set(KERNEL_MODELS) - {"gemm"}  # test_gemm.py has that


@pytest.mark.parametrize("name", CASES)
def test_a_model_equals_numpy_in_any_order(name: str) -> None:
    kernel, options, data, expected, tolerance, _ = CASES[name]
    for seed in (None, 0):
        found = run_functional(launch(kernel, options), data, seed=seed)["D" if kernel == "sgemm_naive" else "out"]
        assert np.abs(found - expected).max() <= tolerance


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, case in CASES.items() for kind in case[-1]])
def test_a_wrong_model_is_found(name: str, kind: type) -> None:
    kernel, options, data, expected, tolerance, _ = CASES[name]
    output = "D" if kernel == "sgemm_naive" else "out"
    moves = kernel in ("transpose", "smem_copy", "strided_copy", "elementwise", "gather")
    change = rolled("index" if "Global" in kind.__name__ else "offsets", 0) if moves else dropped
    wrong = mutated(launch(kernel, options), kind, change)
    with pytest.raises(DataError, match=rf"^{output}\[|num_bytes=\d+; its elements have \d+ bytes"):
        run_functional(wrong, data, expected={output: expected}, tolerance=tolerance)


@pytest.mark.parametrize("keep", ["registers", "smem", "reread"])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_residual_is_added_before_the_norm_and_the_sum_is_stored(keep: str, in_place: bool) -> None:
    options = {**OF_ROWS, "residual": True, "keep": keep, "in_place": in_place}
    found = run_functional(launch("rms_norm", options), {"in": TABLE, "residual": TABLE[::-1], "gamma": TABLE[0]})
    total = TABLE + TABLE[::-1]
    assert set(found) == ({"in", "residual"} if in_place else {"out", "sum"})
    assert np.array_equal(found["residual" if in_place else "sum"], total)
    assert np.abs(found["in" if in_place else "out"] - rooted(total) * TABLE[0]).max() <= 1e-5
