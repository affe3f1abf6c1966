"""Minimum work of a GEMM's CTA for one tile, known without its programs."""

from __future__ import annotations

from gpusim.kernel_models.gemm.tile_grid import TilePlan
from gpusim.kernel_models.mainloop.epilogue import NUM_CHUNKS, Epilogue
from gpusim.kernel_models.mainloop.output import SUM_BYTES, Staging
from gpusim.kernel_models.streaming import ceil_div
from gpusim.units import SECTOR_BYTES, WARP_SIZE
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.tile_work import TileWork


def tile_work(plan: TilePlan, staging: Staging) -> TileWork:
    """Minimum work of a tile: of the shortest split-K part, and without stores if any tile extends beyond D."""
    config, partition = plan.config, plan.config.partition
    is_wgmma, takes_turns, by_tma = config.math == "wgmma", config.schedule == "pingpong", config.copy_ == "tma"
    atom = partition.atom if is_wgmma else config.mainloop.mma_sync if config.math == "mma_sync" else None
    products = plan.tile[0] * plan.tile[1] * plan.tile[2]
    num_steps = plan.total_k_steps // config.split_k
    shared_by = 1 if takes_turns else config.consumer_warpgroups if config.is_specialized else partition.num_warp_groups
    shared = [(plan.shape.operands[which], plan.shape.num_sharing(which)) for which in (0, 1)] if by_tma else []
    bytes_and_panels = ((operand.num_bytes // num_ctas, operand.panel_bytes) for operand, num_ctas in shared)
    copied = [(num_bytes, num_bytes // panel_bytes) for num_bytes, panel_bytes in bytes_and_panels]
    return TileWork(
        atom=atom, step_instructions=products // (WARP_SIZE if atom is None else atom.m * atom.n * atom.k),
        num_steps=num_steps, all_steps=plan.num_tiles // config.split_k * plan.total_k_steps,
        num_stages=config.stages, num_math_roles=shared_by, waits_each_step=is_wgmma and not config.wgmma_depth,
        takes_turns=takes_turns, box_bytes=min((num_bytes for num_bytes, _ in copied), default=0),
        copied_bytes=sum(num_bytes for num_bytes, _ in copied), copied_rows=sum(num_rows for _, num_rows in copied),
        has_producer=config.is_specialized and by_tma,
        is_fenced=config.num_cluster_ctas > 1 and config.cluster_sync == "release", stored=_stored(plan, shared_by),
        left_fraction=_left_fraction(plan, staging),
        read_bytes=config.batch * (config.m + config.n) * config.k * config.element.num_bytes,
    )


def _stored(plan: TilePlan, num_roles: int) -> AccessPattern:
    """Stores of each role for a tile that is completely inside of D."""
    config, (rows, columns) = plan.config, plan.tile[:2]
    if config.m % rows or config.n % columns or plan.num_m * rows > config.m or plan.num_n * columns > config.n:
        return AccessPattern()
    rows //= num_roles  # the same number of elements for a partition along either dimension
    if config.epilogue != "direct":
        return Epilogue.full_rows(rows, columns, config.out_element.num_bytes)
    width = config.out_element.num_bytes if config.split_k == 1 else SUM_BYTES
    wide = 32 if config.math == "fma" else 8
    num_lines = rows * (columns // wide)
    return AccessPattern(num_lines=num_lines, num_sectors=num_lines * ceil_div(wide * width, SECTOR_BYTES))


def _left_fraction(plan: TilePlan, staging: Staging) -> float:
    """Fraction of a role's stores that has left the SM before the role continues: all but its last store."""
    config = plan.config
    columns = config.partition.warp_tile[1] if config.is_specialized else plan.tile[1]
    if config.stores_by_tma:
        return 1.0
    if config.epilogue == "smem":
        return 1.0 - staging.slice_n / columns
    wide = 32 if config.math == "fma" else 8
    return max(0.0, 1.0 - ceil_div(ceil_div(columns, NUM_CHUNKS), wide) * wide / columns)
