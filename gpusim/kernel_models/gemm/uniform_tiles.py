"""Check whether tiles of a GEMM that read and write the same number of bytes execute the same program."""

from __future__ import annotations

from math import lcm

from gpusim.kernel_models.gemm.tile_grid import TilePlan
from gpusim.kernel_models.mainloop.loader import block_bytes
from gpusim.kernel_models.mainloop.shape import ceil_div
from gpusim.units import LINE_BYTES


def are_tiles_alike(plan: TilePlan) -> bool:
    """Whether programs of tiles with the same bytes in their footprints differ in nothing but panels.

    A copy depends on the offsets of its rows in lines, and in the blocks that L2 fetches. Parts of K (split-K) may begin at
    other offsets in a line, too. Tiles that only complete a cluster read nothing of one operand, so their footprints do not
    show their extent in K.
    """
    are_parts_alike = plan.config.split_k == 1 or not _has_tiles_outside(plan)
    return are_parts_alike and all(_begin_alike(plan, which) for which in (0, 1))


def _has_tiles_outside(plan: TilePlan) -> bool:
    """Whether some tiles are completely outside of D."""
    return plan.rows_inside(0, plan.num_m - 1) == 0 or plan.rows_inside(1, plan.num_n - 1) == 0


def _begin_alike(plan: TilePlan, which: int) -> bool:
    """Whether the copies of all panels of A (0) or B (1) begin at the same offset in a line.

    They must also begin at the same offset in a block of L2's fetch size.
    """
    config, tile_k = plan.config, plan.tile[2]
    width, is_k_major = config.element.num_bytes, config.are_k_major[which]
    pitch = width * plan.extents[2 if is_k_major else which]
    step_bytes, panel_bytes = (tile_k * width, plan.tile[which] * pitch) if is_k_major else (
        tile_k * pitch, plan.tile[which] * width
    )
    at_once = block_bytes(plan.shape, which)
    block = lcm(LINE_BYTES, at_once or 1)
    if (plan.num_m, plan.num_n)[which] > 1 and panel_bytes % block:
        return False
    steps = lcm(max(1, at_once // step_bytes), max(1, ceil_div(at_once, step_bytes))) if is_k_major else 1
    firsts = [plan.first_k_step(part) for part in range(config.split_k)]
    return all(first * step_bytes % block == 0 and first % steps == 0 for first in firsts)
