"""GEMM, every schedule: parameters (``params``), tiles and traffic (``tiles``), the schedules, the epilogue, registers.

In: :class:`GemmParams`. Out: a Launch. Told in the public vocabulary alone.
"""

from gpusim.kernel_models.gemm.params import GemmParams

__all__ = ["GemmParams"]
