"""GEMM in all schedules, in the public vocabulary alone: :class:`GemmOptions` -> :class:`GemmConfig` -> a Launch.

Modules import from left to right: ``config`` -> ``options``, ``smem_budget``, ``check_tile``, ``tile_grid`` ->
``compatibility`` -> ``resolve`` -> ``candidates`` -> ``changes``.
``splitk_epilogue``, ``warp_specialized``, ``multistage`` -> ``launch``.
"""

from gpusim.kernel_models.gemm.candidates import DECIDING, STATED, configurations, usual
from gpusim.kernel_models.gemm.changes import TUNED, changes
from gpusim.kernel_models.gemm.config import GemmConfig
from gpusim.kernel_models.gemm.family import family_of, knobs_of
from gpusim.kernel_models.gemm.launch import gemm_launch
from gpusim.kernel_models.gemm.options import GemmOptions
from gpusim.kernel_models.gemm.resolve import resolve
from gpusim.kernel_models.gemm.sweep_values import usual_values

GemmParams = GemmOptions
"""Public name of the options."""

__all__ = [
    "DECIDING", "STATED", "TUNED", "GemmConfig", "GemmOptions", "GemmParams", "changes", "configurations", "family_of",
    "gemm_launch", "knobs_of", "resolve", "usual", "usual_values",
]  # fmt: skip
