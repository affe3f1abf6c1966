"""Kernels that tutorials work out, step by step, equal numpy, pass the order check, and a fault of each is named.

Those that are a kernel model with certain options run that model. Others are written by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim import KERNEL_MODELS, DataError, GemmParams, Launch, load_gpu, run_functional
from gpusim.functional.mutate import mutated, other_swizzle
from gpusim.functional.number_format import rounded
from gpusim.workload import ops

from .hand_written import TMA_SHAPE, by_cluster, by_cp_async, by_one_warpgroup, by_tma, operands
from .mutations import one_fewer, rolled, transposed

GPU = load_gpu("h200_sxm")
Data = dict[str, NDArray[Any]]
Worked = tuple[Launch, Data, NDArray[Any]]
"""A launch, its inputs, and its output by numpy."""
RANDOM = np.random.default_rng(11)


def copy(way: str, threads: int, swizzle: str = "none") -> Callable[[], Worked]:
    """smem_copy: tiles of 128 x 64 of bf16, one a CTA, to shared memory and back."""

    def make() -> Worked:
        options = {"m": 136, "n": 64, "copy": way, "threads": threads, "swizzle": swizzle}
        params = KERNEL_MODELS["smem_copy"].params.model_validate(options).checked()
        x = RANDOM.integers(-64, 65, (136, 64)).astype(np.float64)
        return KERNEL_MODELS["smem_copy"].launch(params, GPU), {"in": x}, x

    return make


def gemm(**options: Any) -> Callable[[], Worked]:
    """The GEMM model, with integers."""

    def make() -> Worked:
        params = GemmParams(**{"m": 72, "n": 72, "k": 72, **options})
        lead = (params.batch,) if params.batch > 1 else ()
        shapes = (params.m, params.k), (params.k, params.n)
        a, b = (RANDOM.integers(-2, 3, (*lead, *shape)).astype(np.float64) for shape in shapes)
        data, out = {"A": a, "B": b}, params.alpha * (a @ b)
        if params.beta:
            data["C"] = RANDOM.integers(-8, 9, out.shape).astype(np.float64)
            out = out + params.beta * data["C"]
        if params.bias:
            data["bias"] = RANDOM.integers(-8, 9, params.n).astype(np.float64)
            out = out + data["bias"]
        if params.activation == "relu":
            out = np.maximum(out, 0)
        return params.launch(GPU), data, rounded(out, params.out_element)

    return make


def by_hand(make: Callable[[], Launch], shape: tuple[int, int, int]) -> Callable[[], Worked]:
    """A GEMM of ``hand_written``."""
    data = operands(*shape)
    return lambda: (make(), dict(data), data["A"] @ data["B"])


def naive() -> Worked:
    """sgemm_naive: three nested loops, an element of D a thread."""
    params = KERNEL_MODELS["sgemm_naive"].params.model_validate({"m": 40, "n": 40, "k": 64, "way": "naive"}).checked()
    data = operands(40, 40, 64)
    return KERNEL_MODELS["sgemm_naive"].launch(params, GPU), dict(data), data["A"] @ data["B"]


def cluster() -> Worked:
    """Each half of the output: the first half of one input plus the other half of a second one."""
    common, own = (RANDOM.integers(-64, 65, (32, 32)).astype(np.float64) for _ in range(2))
    return by_cluster(), {"common": common, "own": own}, np.tile(common[:16], (2, 1)) + np.roll(own, 16, axis=0)


FUSED = {"alpha": 2.0, "beta": -1.0, "bias": True, "activation": "relu"}
WORKED: dict[str, Callable[[], Worked]] = {
    "copy of elements, one row of 64 threads": copy("scalar", 64),
    "copy of 16-byte vectors, 4 x 8 threads": copy("vectorized", 32),
    "copy by cp.async, 4 x 8 threads": copy("cp_async", 32),
    "copy by cp.async to swizzled rows": copy("cp_async", 32, "128B"),
    "copy by TMA with an mbarrier": copy("tma", 32, "128B"),
    "GEMM of three loops": naive,
    "fp32 GEMM through registers, double-buffered, with thread tiles and a fused epilogue": gemm(
        dtype="fp32", math="fma", copy="ldg", stages=2, layout="tt", k=40, **FUSED
    ),
    "fp16 multistage GEMM: cp.async, 3 stages, 2 register stages, ldmatrix, D through shared memory": gemm(
        dtype="fp16", math="mma_sync", copy="cp_async", tile="128x128x32", stages=3, register_stages=2, warps="2x2",
        swizzle="64B", epilogue="smem",
    ),
    "GEMM of CuTe's tiled copies and tiled MMA": by_hand(by_cp_async, (64, 64, 160)),
    "Hopper GEMM of one warpgroup: TMA two steps ahead, a wgmma in flight": by_hand(by_one_warpgroup, TMA_SHAPE),
    "Hopper GEMM of one warpgroup: 128 x 128 x 64, 3 stages": gemm(
        copy="tma", math="wgmma", schedule="multistage", tile="128x128x64", stages=3, wgmma_depth=1, k=200, out_dtype="fp32",
    ),
    "two stages that alternate: TMA fills one, wgmma reads the other": gemm(
        copy="tma", math="wgmma", schedule="multistage", tile="128x128x64", stages=2, wgmma_depth=0, k=200,
    ),
    "fp8 GEMM of 128 x 128 x 128, 4 stages": gemm(
        dtype="fp8", copy="tma", math="wgmma", schedule="multistage", tile="128x128x128", stages=4, k=272, out_dtype="fp32",
    ),
    "cluster: a tile multicast to both CTAs, another read from the other CTA's shared memory": cluster,
    "producer and consumer warps": by_hand(by_tma, TMA_SHAPE),
    "producer and two cooperative consumers, A multicast": gemm(
        schedule="cooperative", tile="128x128x64", cluster="1x2", n=136, k=136, **FUSED
    ),
    "producer and two consumers that alternate, persistent": gemm(
        schedule="pingpong", tile="64x128x64", n=136, k=136, **FUSED
    ),
    "split-K with a second kernel": gemm(split_k=2, split_k_mode="second_kernel", k=136),
    "split-K, each part behind the one before": gemm(split_k=2, split_k_mode="serial", math="mma_sync", k=136),
    "batch at a stride": gemm(batch=2),
    "batch at addresses in arrays": gemm(batch=2, batch_mode="array"),
}  # fmt: skip
made = cache(lambda name: WORKED[name]())


@pytest.mark.parametrize("name", WORKED)
def test_a_worked_kernel_equals_numpy_and_passes_the_order_check(name: str) -> None:
    launch, data, expected = made(name)
    run_functional(launch, data, expected={str(output(launch)): expected})
    assert launch.check(GPU) == []


def output(launch: Launch) -> str:
    """Name of the output."""
    return "out" if launch.kernel in ("smem_copy", "by_cluster") else "D"


STORED = r"stored by GlobalStore of out, op \d+ of role 'copy' of CTA \d+, thread \d+, value \d+"
ELEMENT = r"operand [AB], row \d+, k \d+.* \(bank \d+\)"
FAULTS = [
    ("copy of elements, one row of 64 threads", ops.SharedLoad, rolled("offsets", 0), STORED),
    ("copy of 16-byte vectors, 4 x 8 threads", ops.GlobalLoad, one_fewer, STORED),
    ("copy by cp.async, 4 x 8 threads", ops.CpAsync, other_swizzle, STORED),
    ("copy by cp.async to swizzled rows", ops.CpAsync, other_swizzle, STORED),
    ("copy by TMA with an mbarrier", ops.TmaLoad, other_swizzle, r"stored by TmaStore of out"),
    ("cluster: a tile multicast to both CTAs, another read from the other CTA's shared memory", ops.DsmemLoad, other_swizzle,
     STORED.replace("copy", "all")),
    ("GEMM of three loops", ops.GlobalLoad, one_fewer, r"stored by GlobalStore of D"),
    ("fp32 GEMM through registers, double-buffered, with thread tiles and a fused epilogue", ops.GlobalLoad, one_fewer,
     r"stored by GlobalStore of D, op \d+ of role 'math' of CTA \d+, thread \d+, value \d+"),
    *(
        ("fp16 multistage GEMM: cp.async, 3 stages, 2 register stages, ldmatrix, D through shared memory", kind, change,
         rf"{ELEMENT}.*written by CpAsync of [AB], op \d+ of role 'math' of CTA \d+")
        for kind, change in ((ops.CpAsync, other_swizzle), (ops.Ldmatrix, transposed))
    ),
    ("GEMM of CuTe's tiled copies and tiled MMA", ops.CpAsync, other_swizzle, rf"{ELEMENT}.*written by CpAsync"),
    *(
        (name, kind, change, rf"{ELEMENT}.*written by TmaLoad of [AB], op \d+ of role '(math|producer)' of CTA \d+")
        for name in WORKED if "Hopper" in name or "alternate" in name or "fp8" in name or "producer and" in name
        for kind, change in ((ops.TmaLoad, other_swizzle), (ops.Wgmma, transposed))
    ),
    *(
        (name, ops.TmaLoad, one_fewer, rf"{ELEMENT}; nobody wrote it")
        for name in WORKED if "of one warpgroup" in name or "two cooperative" in name
    ),
    ("split-K with a second kernel", ops.GlobalStore, one_fewer, r"stored by GlobalStore of D|nobody stored"),
    ("split-K, each part behind the one before", ops.Ldmatrix, transposed, rf"{ELEMENT}.*written by (CpAsync|TmaLoad)"),
    *(
        (name, ops.TmaLoad, other_swizzle, rf"{ELEMENT}.*written by TmaLoad")
        for name in ("batch at a stride", "batch at addresses in arrays")
    ),
]  # fmt: skip


def test_each_worked_kernel_has_a_planted_fault() -> None:
    assert {name for name, *_ in FAULTS} == set(WORKED)


@pytest.mark.parametrize(("name", "kind", "change", "named"), FAULTS)
def test_a_planted_fault_is_named_with_the_first_wrong_element(name: str, kind: type, change: Any, named: str) -> None:
    launch, data, expected = made(name)
    place = rf"^{output(launch)}\[\d+, \d+(, \d+)?\] is \S+, wants \S+ ?"
    with pytest.raises(DataError, match=place + rf".*({named})"):
        run_functional(mutated(launch, kind, change), data, expected={output(launch): expected})


@pytest.mark.parametrize(
    ("name", "kind"), [("copy by cp.async, 4 x 8 threads", ops.CpAsync), ("copy by TMA with an mbarrier", ops.TmaStore)]
)
def test_a_copy_of_other_bytes_than_it_states_is_refused(name: str, kind: type) -> None:
    launch, data, _ = made(name)
    with pytest.raises(DataError, match=rf"{kind.__name__} as its op \d+, with num_bytes=\d+; its elements have \d+ bytes"):
        run_functional(mutated(launch, kind, one_fewer), data)


def test_a_stage_that_is_filled_before_its_wgmma_has_been_waited_for_is_a_race() -> None:
    found = [str(each) for each in by_one_warpgroup("early copy").check(GPU)]
    assert len(found) == 2
    assert "(TmaLoad) writes a[0] while its own op 11 (wgmma) may still read it; missing: wgmma.wait_group" in found[0]
