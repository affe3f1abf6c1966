"""Whether tiles of a GEMM that read and write as many bytes do the same, but for where."""

from __future__ import annotations

from math import lcm

from gpusim.kernel_models.gemm.loader import block_bytes
from gpusim.kernel_models.gemm.tile_grid import TilePlan, ceil_div
from gpusim.units import LINE_BYTES


def are_tiles_alike(plan: TilePlan) -> bool:
    """Whether programs of tiles differ in nothing but panels where their footprints say as many bytes.

    A copy depends on where its rows begin in lines, and in the blocks that L2 takes of memory. Parts of K may begin at
    other places of a line, too. Tiles that fill up clusters read nothing of one operand: how deep they are is not told.
    """
    are_parts_alike = plan.params.split_k == 1 or not _has_tiles_outside(plan)
    return are_parts_alike and all(_begin_alike(plan, which) for which in (0, 1))


def _has_tiles_outside(plan: TilePlan) -> bool:
    """Whether some tiles lie all outside of D."""
    return plan.rows_of_a(plan.num_m - 1) == 0 or plan.rows_of_b(plan.num_n - 1) == 0


def _begin_alike(plan: TilePlan, which: int) -> bool:
    """Whether the copies of all panels of A (0) or B (1) begin at the same place of a line, and of a block."""
    params, tile_k = plan.params, plan.tile[2]
    width, is_k_major = params.element.num_bytes, (params.is_a_k_major, params.is_b_k_major)[which]
    pitch = width * (params.k if is_k_major else (params.m, params.n)[which])
    step_bytes, panel_bytes = (tile_k * width, plan.tile[which] * pitch) if is_k_major else (
        tile_k * pitch, plan.tile[which] * width
    )
    at_once = block_bytes(params, which)
    block = lcm(LINE_BYTES, at_once or 1)
    if (plan.num_m, plan.num_n)[which] > 1 and panel_bytes % block:
        return False
    steps = lcm(max(1, at_once // step_bytes), max(1, ceil_div(at_once, step_bytes))) if is_k_major else 1
    firsts = [plan.first_k_step(part) for part in range(params.split_k)]
    return all(first * step_bytes % block == 0 and first % steps == 0 for first in firsts)
