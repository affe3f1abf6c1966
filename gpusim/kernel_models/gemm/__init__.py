"""GEMM in all schedules, written in the public vocabulary alone. In: :class:`GemmParams`. Out: a Launch.

Modules, from input to output: ``params`` (options) -> ``defaults``, ``compatibility`` (``warp_partition``, ``registers``,
``smem_budget``) -> ``tile_grid`` (order and traffic), ``loader``, ``fragments``, ``epilogue`` -> ``multistage``,
``warp_specialized`` (programs) -> ``launch``.
"""

from gpusim.kernel_models.gemm.params import GemmParams

__all__ = ["GemmParams"]
