"""Prints what launches of each kernel are predicted to be, every bit of it: a process of ``test_compiled.py``."""

from __future__ import annotations

import json
import sys
from typing import Any

from gpusim import Buffer, Launch, Mbarrier, WarpRole, compiled_state, load_gpu, simulate
from gpusim.errors import GpusimError
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.machine.config import GpuSpec
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext

GEMM = {"m": 1024, "n": 1024, "k": 512}
LARGER = {"m": 2048, "n": 2304, "k": 1024}
LAUNCHES: list[tuple[str, dict[str, Any]]] = [
    ("gemm", {**GEMM, "tile": "128x256x64", "stages": 4, "schedule": "cooperative"}),
    ("gemm", {**LARGER, "tile": "128x128x64", "stages": 4, "schedule": "pingpong", "persistent": True}),
    ("gemm", {**GEMM, "tile": "128x128x64", "stages": 3, "schedule": "cooperative", "cluster": "2x1"}),
    ("gemm", {**GEMM, "tile": "128x128x64", "stages": 3, "schedule": "cooperative", "epilogue": "tma_store"}),
    ("gemm", {**GEMM, "tile": "128x128x32", "stages": 3, "schedule": "multistage", "copy": "cp_async", "math": "mma_sync"}),
    ("gemm", {**GEMM, "tile": "128x128x64", "stages": 3, "schedule": "warp_specialized", "split_k": 2}),
    ("gemm", {"m": 1000, "n": 520, "k": 200, "tile": "64x64x8", "math": "fma", "dtype": "fp32", "out_dtype": "fp32"}),
    ("sgemm_naive", {"m": 256, "n": 256, "k": 128}),
    ("elementwise", {"op": "add", "elements": 1 << 22}),
    ("smem_copy", {"m": 1024, "n": 1024}),
    ("strided_copy", {"elements": 1 << 20, "stride": 4}),
    ("transpose", {"m": 1000, "n": 1024}),
    ("reduction", {"rows": 512, "columns": 4096}),
    ("softmax", {"rows": 512, "columns": 2048}),
    ("layer_norm", {"rows": 512, "columns": 2048}),
    ("gather", {"rows": 4096, "columns": 256, "table_rows": 8192}),
]


MULTISTAGE = {"tile": "64x64x32", "stages": 3, "schedule": "multistage", "copy": "cp_async", "math": "mma_sync"}
ELSEWHERE: list[tuple[str, str, dict[str, Any]]] = [
    ("a100_sxm_80gb", "gemm", {**GEMM, **MULTISTAGE, "tile": "128x128x32"}),
    ("a100_sxm_80gb", "softmax", {"rows": 512, "columns": 2048}),
    ("h100_pcie", "gemm", {**GEMM, "tile": "128x256x64", "stages": 4, "schedule": "cooperative"}),
    ("toy", "gemm", {"m": 256, "n": 256, "k": 512, **MULTISTAGE}),
    ("toy", "gemm", {"m": 256, "n": 256, "k": 512, "tile": "64x64x64", "stages": 2, "schedule": "warp_specialized"}),
    ("toy", "transpose", {"m": 100, "n": 128}),
]
"""On other GPUs: other parts, or none of some."""


def stuck(num_arrivals: int) -> Launch:
    """A kernel whose consumer waits for one arrival more than there are, or for as many."""

    def producer(cta: RoleContext) -> Any:
        for k in cta.loop(4):
            yield ops.MbarrierArriveExpectTx("full", k % 2, 128)
            yield ops.TmaLoad("A", (cta.cta_idx, k), 128, 128, 1, "a", k % 2, "full")
            yield ops.MbarrierWait("empty", k % 2, k // 2 & 1)

    def consumer(cta: RoleContext) -> Any:
        for k in cta.loop(4):
            yield ops.MbarrierWait("full", k % 2, k // 2 & 1)
            yield ops.MbarrierArrive("empty", k % 2)

    return Launch(
        kernel="stuck", num_ctas=2, num_tiles=2, registers_per_thread=32,
        roles=(WarpRole(name="producer", num_warps=1, program=producer),
               WarpRole(name="consumer", num_warps=4, program=consumer)),
        buffers=(Buffer(name="a", stage_bytes=128, num_stages=2),),
        mbarriers=(Mbarrier(name="full", num_arrivals=num_arrivals, num_stages=2),
                   Mbarrier(name="empty", num_arrivals=1, num_stages=2)),
    )  # fmt: skip


def answer(launch: Launch, gpu: GpuSpec, **more: Any) -> Any:
    """The prediction as its JSON has it, but for the seconds that it took; or the refusal."""
    try:
        result = simulate(launch, gpu, **more).as_dict()
    except GpusimError as error:
        return f"{type(error).__name__}: {error}"
    del result["wall_s"]
    return result


def answers() -> dict[str, Any]:
    """By kernel and options."""
    gpu = load_gpu("h200_sxm")
    found: dict[str, Any] = {}
    for name, options in LAUNCHES:
        for more in ({}, {"l2": "warm"}, {"quality": "quick"}):
            launch = KERNEL_MODELS[name].params.model_validate(options).launch(gpu)
            found[f"{name} {options} {more}"] = answer(launch, gpu, **more)
    for gpu_name, name, options in ELSEWHERE:
        other = load_gpu(gpu_name)
        launch = KERNEL_MODELS[name].params.model_validate(options).launch(other)
        found[f"{gpu_name} {name} {options}"] = answer(launch, other)
    for gpu_name in ("h200_sxm", "toy"):
        for num_arrivals in (1, 2):
            found[f"{gpu_name} stuck {num_arrivals}"] = answer(stuck(num_arrivals), load_gpu(gpu_name))
    return {"state": compiled_state, "answers": found}


if __name__ == "__main__":
    json.dump(answers(), sys.stdout)
