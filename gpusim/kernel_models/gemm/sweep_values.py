"""Values that a sweep tries for ``auto``, for each option of a GEMM: those of kernels in use.

Other modules check whether they are valid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from gpusim.workload.dtypes import dtype
from gpusim.workload.launch import Target

SIDES = (64, 128, 192, 256)
"""Rows and columns of usual tiles."""
ROW_BYTES = 128
"""Bytes of a tile's row along K: the span of the widest swizzle. Half of that if warps load fragments."""


def usual_values(option: str, given: Mapping[str, Any], gpu: Target) -> Sequence[Any] | None:
    """Usual values of ``option`` on ``gpu`` with the options ``given``; None if there are none."""
    has_wgmma = "wgmma" in gpu.features
    if option == "tile":
        width = dtype(str(given.get("dtype", "bf16"))).num_bytes
        math = given.get("math") or ("fma" if given.get("dtype") == "fp32" else "wgmma" if has_wgmma else "mma_sync")
        if math == "fma":
            return [f"{rows}x{columns}x16" for rows, columns in product((64, 128), (64, 128))]
        depth = (ROW_BYTES if math == "wgmma" else ROW_BYTES // 2) // width
        return [f"{rows}x{columns}x{depth}" for rows, columns in product(SIDES, SIDES)]
    if option == "schedule":
        return ("multistage", "warp_specialized", "cooperative", "pingpong") if has_wgmma else ("multistage",)
    if option == "cluster":
        return ("1x1", "2x1", "1x2") if "cluster" in gpu.features else ("1x1",)
    return {
        "stages": (2, 3, 4, 5, 6), "swizzle_size": (1, 4, 8), "split_k": (1, 2, 4), "consumer_warpgroups": (1, 2, 3),
        "warps": ("2x2", "2x4", "4x2", "1x4", "4x1"), "wgmma_depth": (0, 1), "swizzle": ("none", "32B", "64B", "128B"),
        "pad": (0, 8), "setmaxnreg": ("auto", "none"),
    }.get(option)
