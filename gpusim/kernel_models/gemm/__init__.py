"""GEMM, every schedule, told in the public vocabulary alone. In: :class:`GemmParams`. Out: a Launch.

From left to right: ``params`` (options) -> ``defaults``, ``checks`` (``shares``, ``registers``, ``room``) ->
``tiles`` (order and traffic), ``loader``, ``fragments``, ``epilogue`` -> ``multistage``, ``specialized``
(programs) -> ``kernel``.
"""

from gpusim.kernel_models.gemm.params import GemmParams

__all__ = ["GemmParams"]
