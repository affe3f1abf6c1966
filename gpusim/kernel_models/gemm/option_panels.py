"""Panels of ``--help`` for a GEMM's options."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gpusim.kernel_models.options import COMPILER_OUTPUT, PROBLEM

PANELS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    PROBLEM: ("m", "n", "k", "batch", "dtype", "out_dtype", "layout"),
    "Memory path": ("copy", "swizzle", "pad", "l2_promotion", "prefetch_tensormap", "stall_on_ldgsts"),
    "Epilogue": ("epilogue", "alpha", "beta", "bias", "activation"),
    "Synchronization": ("mbarrier_arrive", "cta_barrier", "cluster_sync", "fence"),
    COMPILER_OUTPUT: (
        "math_before_copies", "math_before_meeting", "math_before_use", "wide_per_copy", "fma_bank_reads", "step_code",
        "step_instructions", "copy_code", "setup_code", "tile_code", "tile_wide_code", "tile_beside_code", "turn_code",
        "store_code", "store_wide_code", "store_beside_code", "producer_code_begin", "producer_code_end", "store_code_begin",
        "store_code_end", "last_part_code_begin", "last_part_code_end",
    ),
})
"""Options of each panel. All others are in the panel "Tile and schedule"."""


def panel_of(option: str) -> str:
    """The panel of one option.

    >>> panel_of("pad"), panel_of("stages")
    ('Memory path', 'Tile and schedule')
    """
    return next((panel for panel, options in PANELS.items() if option in options), "Tile and schedule")
