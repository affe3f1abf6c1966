"""GEMM in all schedules, in the public vocabulary alone. In: :class:`GemmParams`. Out: a Launch.

Modules import from left to right: ``options`` -> ``warp_partition``, ``smem_budget``, ``tile_grid`` -> ``defaults``,
``compatibility``; ``loader``, ``fragments``, ``epilogue`` -> ``warp_specialized``, ``multistage`` -> ``launch``; both end in
``params``.
"""

from gpusim.kernel_models.gemm.params import GemmParams

__all__ = ["GemmParams"]
