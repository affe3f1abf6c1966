"""Family of measured rows that a GEMM belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

TRITON = ("multistage", "after_wait", "before_copies")
"""Schedule, place of the copies and CTA barrier of a k-step in a loop of Triton's with tensor descriptors."""

LARGE_CLUSTER = 4
"""CTAs of a cluster from which on rows of ``hopper_knobs`` judge."""


def family_of(params: Mapping[str, Any]) -> str:
    """Validation kernel with the same instructions and schedule; empty without resolved options.

    >>> family_of({"math": "wgmma", "copy": "tma", "schedule": "pingpong", "dtype": "bf16", "split_k": 1})
    'hopper_gemm pingpong'
    >>> family_of({"math": "fma"}), family_of({})
    ('sgemm', '')
    >>> triton = {"schedule": "multistage", "prefetch": "after_wait", "cta_barrier": "before_copies"}
    >>> family_of({"math": "wgmma", "copy": "tma", **triton})
    'tile_gemm by_descriptors'
    >>> family_of({"math": "wgmma", "copy": "tma", "schedule": "cooperative", "cluster": "4x2"})
    'hopper_knobs clusters'
    """
    if "math" not in params:
        return ""
    if params["math"] in ("fma", "mma_sync"):
        return {"fma": "sgemm", "mma_sync": "hgemm"}[params["math"]]
    if params.get("tensormaps") == "device":
        return "device_descriptors"
    if params.get("copy") == "cp_async":
        return "tile_gemm by_pointers"
    if str(params.get("dtype")) == "fp8":
        return "hopper_gemm fp8"
    if (params["schedule"], params.get("prefetch"), params.get("cta_barrier")) == TRITON:
        return "tile_gemm by_descriptors"
    if prod(map(int, str(params.get("cluster", "1x1")).split("x"))) >= LARGE_CLUSTER and params.get("split_k", 1) == 1:
        return "hopper_knobs clusters"
    return f"hopper_gemm {'split_k' if params.get('split_k', 1) > 1 else params['schedule']}"
