"""Family of measured rows that a GEMM belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

TRITON = ("multistage", "after_wait", "before_copies")
"""Schedule, place of the copies and CTA barrier of a k-step in a loop of Triton's with tensor descriptors."""

LARGE_CLUSTER = 4
"""CTAs of a cluster from which on rows of ``hopper_knobs`` judge."""

KNOBS: Mapping[str, Mapping[str, Any]] = {
    "library_knobs epilogues": {"alpha": 1.0, "beta": 0.0, "bias": False, "activation": "none", "epilogue": "tma_store"},
    "library_knobs batches": {"batch": 1, "batch_mode": "strided"},
    "library_knobs unaligned": {"aligned_bytes": 16, "alignment": None, "copy": "cp_async"},
    "library_knobs types": {"dtype": "bf16", "out_dtype": "bf16"},
    "library_knobs layouts": {"layout": "tn"},
}
"""Families in which options differ from those of other families, by the values that rows of the others have."""

TELLING: Mapping[str, tuple[str, ...]] = {
    "library_knobs epilogues": ("alpha", "beta", "bias", "activation"), "library_knobs batches": ("batch",),
    "library_knobs unaligned": ("aligned_bytes",), "library_knobs types": ("dtype",), "library_knobs layouts": ("layout",),
}
"""Options of :data:`KNOBS` that say which family it is."""


def knobs_of(params: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Families of :data:`KNOBS` whose options a kernel sets, with the usual values of these.

    >>> list(knobs_of({"alpha": 2.0, "dtype": "fp16", "layout": "tn", "batch": 4}))
    ['library_knobs epilogues', 'library_knobs batches']
    """
    unlike = {name for usual in KNOBS.values() for name, value in usual.items() if params.get(name, value) != value}
    unlike -= {"dtype"} if params.get("dtype") in ("fp16", "fp8", "fp32") else set()
    return {family: KNOBS[family] for family, names in TELLING.items() if unlike.intersection(names)}


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
