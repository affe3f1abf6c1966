"""Register limits of a launch."""

from __future__ import annotations

MAX_REGISTERS = 255
REGISTERS_PER_SUB_CORE = 16384
"""32-bit registers of a sub-core; ``MAX_REGISTERS``: of a thread. Source: CUDA C++ Programming Guide, technical
specifications by compute capability, 8.0 to 10.0."""


def launch_limit(num_warps: int, *, ctas_per_sm: int = 1) -> int:
    """Maximum registers of a thread if ``ctas_per_sm`` CTAs of ``num_warps`` warps are to fit on an SM.

    Each sub-core holds every fourth warp in its 16384 registers.

    >>> [launch_limit(num_warps) for num_warps in (4, 8, 9, 12, 16)]
    [255, 255, 168, 168, 128]
    """
    warps_per_sub_core = -(-num_warps * ctas_per_sm // 4)
    return min(MAX_REGISTERS, REGISTERS_PER_SUB_CORE // (32 * warps_per_sub_core) // 8 * 8)
