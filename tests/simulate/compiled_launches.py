"""Prints what launches of each kernel are predicted to be, every bit of it: a process of ``test_compiled.py``."""

from __future__ import annotations

import json
import sys
from typing import Any

from gpusim import compiled_state, load_gpu, simulate
from gpusim.kernel_models import KERNEL_MODELS

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


def answers() -> dict[str, Any]:
    """By kernel and options: the prediction as its JSON has it, but for the seconds that it took; or the refusal."""
    gpu = load_gpu("h200_sxm")
    found: dict[str, Any] = {}
    for name, options in LAUNCHES:
        for more in ({}, {"l2": "warm"}, {"quality": "quick"}):
            launch = KERNEL_MODELS[name].params.model_validate(options).launch(gpu)
            result = simulate(launch, gpu, **more).as_dict()
            del result["wall_s"]
            found[f"{name} {options} {more}"] = result
    return {"state": compiled_state, "answers": found}


if __name__ == "__main__":
    json.dump(answers(), sys.stdout)
