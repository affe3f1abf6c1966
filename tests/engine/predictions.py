"""Predictions of each kernel model, the same on every machine to the last bit: what is packed, and all that is said."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpusim import load_gpu, simulate
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.program.records import INPUT_SECTIONS
from gpusim.simulate.buffers import write_buffer
from gpusim.simulate.pack import sections_of, trace_plan
from gpusim.simulate.plan import plan_launch
from gpusim.simulate.settings import IN_L2, Settings
from gpusim.units import Clock

from .launches import COOPERATIVE, HGEMM, MHZ, PINGPONG, SMALL, TRITON

FROZEN = Path(__file__).parents[2] / "validation" / "frozen" / "predictions.json"
"""Digests of them, written by ``scripts/freeze_engine.py``."""

NOT_SAID = {"wall_s", "stall_reasons"}
"""What differs from run to run, and words that no prediction changes: Nsight Compute's names of the states."""

PREDICTIONS: Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]] = {
    "gemm_cooperative": ("gemm", {**SMALL, **COOPERATIVE}, {}),
    "gemm_pingpong_max": ("gemm", {"m": 1024, "n": 1024, "k": 256, **PINGPONG}, {"clock": "max", "l2": "warm"}),
    "gemm_cluster_sustained": (
        "gemm", {"m": 1024, "n": 1024, "k": 512, **COOPERATIVE, "cluster": "2x1"}, {"clock": "sustained"},
    ),
    "gemm_many_waves": (
        "gemm", {"m": 8192, "n": 8192, "k": 128, **COOPERATIVE, "swizzle_size": 4}, {"clock": 1755.0, "l2": "warm"},
    ),
    "gemm_hgemm": ("gemm", {**SMALL, **HGEMM}, {"clock": 1500.0, "data": "zeros"}),
    "gemm_triton": ("gemm", {**SMALL, **TRITON, "copy": "tma", "epilogue": "smem"}, {}),
    "gemm_split_k": (
        "gemm", {"m": 256, "n": 256, "k": 2048, "tile": "128x128x64", "stages": 3, "split_k": 4,
                 "schedule": "warp_specialized"}, {"clock": 1755.0, "l2": "flushed"},
    ),
    "gemm_h100": ("gemm", {**SMALL, **COOPERATIVE, "gpu": "h100_sxm"}, {}),
    "sgemm_naive": ("sgemm_naive", {"m": 96, "n": 160, "k": 64, "way": "naive"}, {}),
    "sgemm_tiled": ("sgemm_naive", {"m": 160, "n": 160, "k": 64, "way": "tiled"}, {"clock": 1755.0}),
    "elementwise": ("elementwise", {"op": "add", "elements": 1 << 20}, {}),
    "elementwise_large": ("elementwise", {"op": "scale", "elements": 1 << 24, "items_per_thread": 8}, {"clock": 1980.0}),
    "elementwise_a100": ("elementwise", {"op": "copy", "elements": 1 << 20, "gpu": "a100_sxm_80gb"}, {"l2": "warm"}),
    "smem_copy": ("smem_copy", {"m": 1000, "n": 1000, "copy": "tma", "swizzle": "128B"}, {}),
    "smem_copy_scalar": ("smem_copy", {"m": 500, "n": 260, "copy": "scalar", "tile": (64, 32), "dtype": "fp32"}, {}),
    "strided_copy": ("strided_copy", {"elements": 1 << 18, "stride": 9, "items_per_thread": 4}, {}),
    "transpose": ("transpose", {"m": 640, "n": 512, "smem": "naive"}, {"clock": 1755.0}),
    "transpose_warm": ("transpose", {"m": 500, "n": 512, "dtype": "fp16"}, {"l2": "warm"}),
    "reduction_row": ("reduction", {"rows": 512, "columns": 4096}, {}),
    "reduction_column": ("reduction", {"rows": 2048, "columns": 512, "axis": "column"}, {"clock": 1755.0}),
    "softmax_block": ("softmax", {"rows": 300, "columns": 2048, "per": "block"}, {}),
    "softmax_warp": ("softmax", {"rows": 1000, "columns": 512, "per": "warp", "dtype": "bf16"}, {"clock": 1755.0}),
    "layer_norm": ("layer_norm", {"rows": 512, "columns": 2048}, {}),
    "rms_norm": ("rms_norm", {"rows": 512, "columns": 2048}, {}),
    "bias_activation": ("bias_activation", {"rows": 512, "columns": 2048}, {}),
    "gather_random": ("gather", {"rows": 8192, "columns": 256, "table_rows": 65536}, {}),
    "gather_warm": ("gather", {"rows": 4096, "columns": 256, "table_rows": 131072}, {"clock": 1755.0, "l2": "warm"}),
    "gather_sequential": ("gather", {"rows": 2000, "columns": 64, "table_rows": 4000, "index": "sequential"}, {}),
    "toy_gemm": (
        "gemm", {"m": 256, "n": 256, "k": 256, "tile": "64x128x64", "stages": 2, "schedule": "warp_specialized",
                 "gpu": "toy"}, {},
    ),
}  # fmt: skip
"""Kernel model, its options with ``gpu``, and arguments of ``simulate``: clocks that are given, and such as are found."""


def short(content: bytes) -> str:
    """A digest."""
    return hashlib.sha256(content).hexdigest()[:16]


def prediction(name: str) -> dict[str, Any]:
    """All that is said of it."""
    kernel, options, settings = PREDICTIONS[name]
    of_kernel = {key: value for key, value in options.items() if key != "gpu"}
    gpu = load_gpu(options.get("gpu", "h200_sxm"))
    found = simulate(KERNEL_MODELS[kernel].params.model_validate(of_kernel).launch(gpu), gpu, **settings)
    return {key: value for key, value in found.as_dict().items() if key not in NOT_SAID}


def packed_sections(name: str) -> dict[str, Any]:
    """What the engine is given of it, by section."""
    kernel, options, settings = PREDICTIONS[name]
    of_kernel = {key: value for key, value in options.items() if key != "gpu"}
    gpu_name = options.get("gpu", "h200_sxm")
    gpu = load_gpu(gpu_name)
    launch = KERNEL_MODELS[kernel].params.model_validate(of_kernel).launch(gpu)
    plan = plan_launch(launch, gpu, is_warm=settings.get("l2") in IN_L2)
    return sections_of(plan, trace_plan(plan), Clock(sm_mhz=MHZ[gpu_name]), Settings())


def fingerprint(name: str) -> dict[str, str]:
    """Digests of both."""
    return {
        "packed": short(write_buffer(packed_sections(name), INPUT_SECTIONS)),
        "said": short(json.dumps(prediction(name), sort_keys=True).encode()),
    }


def frozen_fingerprints() -> dict[str, dict[str, str]]:
    """By name."""
    found: dict[str, dict[str, str]] = json.loads(FROZEN.read_text(encoding="utf-8"))
    return found
