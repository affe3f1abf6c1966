"""framework_ops: what torch is asked for, what names and launches say, which kernel model predicts them."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim import load_gpu
from gpusim.errors import ConfigError
from gpusim.evidence.bench import frameworks
from gpusim.evidence.bench.framework_operations import OPERATIONS, sampled_indices
from gpusim.evidence.cases.case import Operation, WrongAnswer, load_case
from gpusim.evidence.toolchain.torch_kernels import RULES, function_of, model_of
from gpusim.kernel_models import KERNEL_MODELS

CASE = load_case("framework_ops")
GPU = load_gpu("h200_sxm")
case = sys.modules[CASE.launch.__module__]
CONFIGS = [case.Config.of(config) for group in CASE.groups for config in CASE.configs(group, 1)]
SMALL = [
    case.Config(kernel="softmax", rows=6, columns=40, dtype="fp32"),
    case.Config(kernel="sum_all", rows=6, columns=40, dtype="bf16"),
]  # fmt: skip
CYCLES = "sm__cycles_elapsed.max"


def answer(config: Any) -> dict[str, NDArray[Any]]:
    """A right sample."""
    config = case.Config.of(config)
    found = np.full((2, config.columns), 1.0 / config.columns) if config.kernel == "softmax" else np.array([3.0])
    return {"out": found.copy(), "reference": found}


# ---------------------------------------------------------------------------------------------- a torch without torch


class Tensor(np.ndarray[Any, Any]):
    """As much of torch's tensors as operations use."""

    device = "cpu"

    def to(self, kind: Any) -> Any:
        return self if kind == self.device else self.copy()

    def double(self) -> Any:
        return self.astype(np.float64).view(Tensor)

    def cpu(self) -> Any:
        return self

    def contiguous(self) -> Any:
        return self.copy()

    def flip(self, axis: int) -> Any:
        return np.flip(self, axis)

    def t(self) -> Any:
        return self.T

    def numpy(self) -> NDArray[Any]:
        return np.asarray(self)

    def mean(self, axis: Any = None, keepdim: bool = False, **_named: Any) -> Any:
        return np.asarray(self).mean(axis=axis, keepdims=keepdim).view(Tensor)

    def fill_(self, value: float) -> None:
        self[...] = value


def tensor(array: Any) -> Any:
    return np.asarray(array).view(Tensor)


def into(out: Any, found: Any) -> Any:
    if out is None:
        return tensor(found)
    out[...] = found
    return out


class Random:
    def __init__(self, device: str) -> None:
        del device

    def manual_seed(self, seed: int) -> Any:
        return np.random.default_rng(seed)


def softmax(x: Any, axis: int, out: Any = None) -> Any:
    powers = np.exp(np.asarray(x, dtype=np.float64))
    return into(out, powers / powers.sum(axis=axis, keepdims=True))


def layer_norm(x: Any, _shape: Any, weight: Any, bias: Any) -> Any:
    of = np.asarray(x, dtype=np.float64)
    scale = 1.0 / np.sqrt(of.var(axis=-1, keepdims=True) + 1e-5)
    return tensor((of - of.mean(axis=-1, keepdims=True)) * scale * weight + bias)


def rms_norm(x: Any, _shape: Any, weight: Any, eps: float) -> Any:
    of = np.asarray(x, dtype=np.float64)
    return tensor(of / np.sqrt((of * of).mean(axis=-1, keepdims=True) + eps) * weight)


def gelu(x: Any) -> Any:
    of = np.asarray(x, dtype=np.float64)
    return tensor(0.5 * of * (1.0 + np.vectorize(math.erf)(of / math.sqrt(2.0))))


def silu(x: Any) -> Any:
    of = np.asarray(x, dtype=np.float64)
    return tensor(of / (1.0 + np.exp(-of)))


def fake_torch() -> Any:
    def randn(*shape: int, generator: Any, **_named: Any) -> Any:
        return tensor(generator.standard_normal(shape, dtype=np.float32))

    return SimpleNamespace(
        float32="<f4", bfloat16="<f4", float16="<f4", Generator=Random, randn=randn,
        zeros=lambda *_, **__: tensor(np.zeros(32)), empty=lambda extent, **_named: tensor(np.zeros(extent)),
        empty_like=lambda x: tensor(np.zeros(x.shape)),
        from_numpy=tensor, softmax=softmax, rsqrt=lambda x: tensor(1.0 / np.sqrt(x)),
        sum=lambda x, axis=None, out=None: into(out, np.asarray(x, dtype=np.float64).sum(axis=axis)),
        relu=lambda x: tensor(np.maximum(x, 0.0)),
        nn=SimpleNamespace(functional=SimpleNamespace(
            layer_norm=layer_norm, rms_norm=rms_norm, gelu=gelu, silu=silu,
            embedding=lambda index, table: tensor(np.asarray(table)[np.asarray(index)]),
        )),
        set_float32_matmul_precision=lambda _kind: None, version=SimpleNamespace(cuda="13.0"), cuda=SimpleNamespace(),
    )  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_gives_the_sample_that_is_checked(monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    work = frameworks.Frameworks(CASE, device="cpu")
    config = case.Config(kernel=operation, rows=70, columns=130, dtype="fp32")
    prepared = work.prepare(CASE.launch(config))  # type: ignore[arg-type]  # an operation
    with pytest.raises(WrongAnswer, match="not written"):
        CASE.check(config, prepared.fetch())
    prepared.enqueue()
    found = prepared.fetch()
    assert CASE.check(config, found)["error_share"] < 1.0
    found["out"].flat[-1] += 1.0
    with pytest.raises(WrongAnswer, match="further off"):
        CASE.check(config, found)


def test_an_unknown_operation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    with pytest.raises(ConfigError, match="'softmix' is no operation of a framework; did you mean 'softmax'"):
        frameworks.Frameworks(CASE, device="cpu").prepare(Operation(name="softmix", shape=(2, 3), dtype="fp32"))


def test_samples_have_the_first_and_the_last() -> None:
    found = sampled_indices(5000, 3)
    assert found[0] == 0 and found[-1] == 4999 and len(found) > 50 and (np.diff(found) > 0).all()


# ---------------------------------------------------------------------------------------------- names and launches
NAMESPACE = "void at::native::"
EPILOGUE = "SoftMaxForwardEpilogue"
SUM = "ReduceOp<float, func_wrapper_t<float>, unsigned int, float, 4, 4>>"
LAUNCHED: list[tuple[str, tuple[int, int], str, str, str, str, dict[str, Any]]] = [
    (
        "softmax", (4000, 1000), "bf16", "softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, false, false>",
        "1000x1x1", "32x4x1", {"model": "softmax", "per": "warp", "vector_bytes": 2, "threads": 128},
    ),
    (
        "softmax", (4000, 4000), "fp32", f"<unnamed>::cunn_SoftMaxForwardReg<float, float, float, {EPILOGUE}, long, 4>",
        "4000x1x1", "1024x1x1", {"model": "softmax", "keep": "registers", "vector_bytes": 4, "combine": "first_warp"},
    ),
    (
        "softmax", (400, 10000), "fp32", f"<unnamed>::cunn_SoftMaxForwardSmem<4, float, float, float, {EPILOGUE}, long>",
        "400x1x1", "1024x1x1", {"model": "softmax", "keep": "smem", "vector_bytes": 16},
    ),
    (
        "softmax", (400, 32000), "bf16", "<unnamed>::cunn_SoftMaxForward<8, c10::BFloat16, float, c10::BFloat16, Epilogue>",
        "400x1x1", "1024x1x1", {"model": "softmax", "keep": "reread", "vector_bytes": 16},
    ),
    (
        "layer_norm", (500, 4096), "bf16", "<unnamed>::vectorized_layer_norm_kernel<c10::BFloat16, float, false>",
        "500x1x1", "32x4x1", {"model": "layer_norm", "algorithm": "welford", "vector_bytes": 8, "threads": 128},
    ),
    (
        "rms_norm", (500, 4096), "fp32", "<unnamed>::vectorized_layer_norm_kernel<float, float, true>",
        "500x1x1", "32x4x1", {"model": "rms_norm", "keep": "reread", "vector_bytes": 16},
    ),
    (
        "sum_rows", (1600, 1024), "fp32", f"reduce_kernel<512, 1, {SUM}",
        "100x1x1", "32x16x1", {"model": "reduction", "per": "warp", "vector_bytes": 16, "unroll": 1, "threads": 512},
    ),
    (
        "sum_rows", (60, 65536), "fp32", f"reduce_kernel<512, 1, {SUM}",
        "60x8x1", "32x16x1", {"model": "reduction", "axis": "row", "ctas_per_sum": 8, "finish": "last_cta"},
    ),
    (
        "sum_all", (1024, 1024), "fp32", f"reduce_kernel<512, 1, {SUM}",
        "1x128x1", "512x1x1", {"model": "reduction", "axis": "all", "ctas_per_sum": 128, "vector_bytes": 16, "unroll": 1},
    ),
    (
        "sum_columns", (8192, 1024), "fp32", f"reduce_kernel<128, 4, {SUM}",
        "8x16x1", "32x4x1",
        {"model": "reduction", "axis": "column", "rows_per_cta": 512, "vector_bytes": 16, "finish": "last_cta"},
    ),
    (
        "sum_columns", (70, 1024), "fp32", f"reduce_kernel<128, 4, {SUM}",
        "8x1x1", "32x4x1", {"model": "reduction", "axis": "column", "rows_per_cta": 70, "finish": "atomic"},
    ),
    (
        "sum_all", (8192, 128), "fp32", f"reduce_kernel<512, 1, {SUM}",
        "1x128x1", "512x1x1", {"model": "reduction", "axis": "all", "vector_bytes": 16, "unroll": 1},
    ),
]  # fmt: skip


@pytest.mark.parametrize("launched", LAUNCHED, ids=lambda launched: f"{launched[0]}-{launched[1]}")
def test_a_name_and_a_launch_give_a_kernel_model_of_the_same_grid(launched: Any) -> None:
    operation, shape, dtype, name, grid, block, wanted = launched
    facts = {"launched": NAMESPACE + name, "grid": grid, "block": block}
    found = model_of(operation, shape, dtype, facts)
    assert found is not None and function_of(facts["launched"]) in RULES
    assert {"model": found.model, **found.options}.items() >= wanted.items()
    told = KERNEL_MODELS[found.model].params.model_validate(dict(found.options)).launch(GPU)
    blocks, threads = (np.prod([int(part) for part in text.split("x")]) for text in (grid, block))
    assert told.num_ctas == blocks and told.num_threads == threads


@pytest.mark.parametrize(("operation", "name", "grid", "block"), [
    ("softmax", "void other_kernel<float>", "400x1x1", "128x1x1"),
    ("softmax", "void softmax_warp_forward<float> + void copy_kernel", "100x1x1", "32x4x1"),
    ("softmax", "void cunn_SoftMaxForwardSmem<4>", "200x1x1", "1024x1x1"),
    ("sum_rows", "void reduce_kernel<512, 1, ReduceOp<float, 4, 4>>", "50x1x1", "64x8x1"),
])  # fmt: skip
def test_a_launch_that_says_too_little_has_no_prediction(operation: str, name: str, grid: str, block: str) -> None:
    facts = {"launched": name, "grid": grid, "block": block}
    assert model_of(operation, (400, 4000), "fp32", facts) is None
    config = case.Config(kernel=operation, rows=400, columns=4000, dtype="fp32")
    assert CASE.predict_row is not None and CASE.predict_row(config, {**facts, CYCLES: "1000"}, GPU, [CYCLES]) == {}
    assert CASE.refused(config, facts, GPU) == "no kernel model is known for its kernel's name and launch"


def test_registers_of_the_row_are_the_models() -> None:
    config = case.Config(kernel="softmax", rows=400, columns=4000, dtype="fp32")
    facts = {"launched": "void cunn_SoftMaxForwardReg<float, 4>", "grid": "400x1x1", "block": "1024x1x1"}
    assert CASE.predict_launched is not None
    few, many = (
        CASE.predict_launched(config, {**facts, "launch__registers_per_thread": number}, GPU) for number in ("32", "64")
    )
    assert few[CYCLES] < many[CYCLES], "with 64 registers one block of 1,024 threads fits an SM, with 32 two"
    assert CASE.text_columns(config, facts) == {"torch_kernel": "cunn_SoftMaxForwardReg"}


OF_CLASSES = [case.OF_A_CLASS * len(classes) for classes in case.COLUMNS.values()]


def test_shapes_are_those_of_their_seed() -> None:
    assert len(CONFIGS) == 2 * sum(OF_CLASSES)
    assert [case.Config.of(config) for config in CASE.configs("rows", 2)] == CONFIGS[:24]
    first, again = CONFIGS[: len(CONFIGS) // 2], CONFIGS[len(CONFIGS) // 2 :]
    assert not set(first) & set(again) and [config.kernel for config in first] == [config.kernel for config in again]
    assert {config.kernel for config in CONFIGS} == set(OPERATIONS) == set(case.COLUMNS)
    assert all(config.columns * config.rows * 2 <= 2**29 for config in CONFIGS)
