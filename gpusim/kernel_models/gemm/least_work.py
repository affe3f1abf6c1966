"""Minimum work of a GEMM's CTA for one tile, known without its programs."""

from __future__ import annotations

from gpusim.kernel_models.gemm.epilogue import NUM_CHUNKS, Epilogue
from gpusim.kernel_models.gemm.smem_budget import Staging
from gpusim.kernel_models.gemm.tile_grid import SUM_BYTES, TilePlan, ceil_div
from gpusim.kernel_models.gemm.warp_partition import Shares
from gpusim.units import SECTOR_BYTES, WARP_SIZE
from gpusim.workload.atoms import mma_sync
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.tile_work import TileWork


def tile_work(plan: TilePlan, staging: Staging) -> TileWork:
    """Minimum work of a tile: of the shortest split-K part, and without stores if any tile extends beyond D."""
    params, shares = plan.params, Shares(plan.params)
    assert params.stages is not None  # resolved
    is_wgmma, takes_turns, by_tma = params.math == "wgmma", params.schedule == "pingpong", params.copy_ == "tma"
    atom = shares.atom if is_wgmma else mma_sync(params.element) if params.math == "mma_sync" else None
    products = plan.tile[0] * plan.tile[1] * plan.tile[2]
    num_steps = plan.total_k_steps // params.split_k
    shared_by = 1 if takes_turns else (params.consumer_warpgroups or 1) if params.is_specialized else shares.num_teams
    shared = zip(plan.operands, reversed(params.cluster), strict=True) if by_tma else ()
    copied = [(operand.num_bytes // ways, operand.num_bytes // ways // operand.panel_bytes) for operand, ways in shared]
    return TileWork(
        atom=atom, step_instructions=products // (WARP_SIZE if atom is None else atom.m * atom.n * atom.k),
        num_steps=num_steps, all_steps=plan.num_tiles // params.split_k * plan.total_k_steps,
        num_stages=params.stages, num_math_roles=shared_by, waits_each_step=is_wgmma and not params.wgmma_depth,
        takes_turns=takes_turns, box_bytes=min((num_bytes for num_bytes, _ in copied), default=0),
        copied_bytes=sum(num_bytes for num_bytes, _ in copied), copied_rows=sum(num_rows for _, num_rows in copied),
        has_producer=params.is_specialized and by_tma,
        is_fenced=params.num_cluster_ctas > 1 and params.cluster_sync == "release", stored=_stored(plan, shared_by),
        left_fraction=_left_fraction(plan, staging),
        read_bytes=params.batch * (params.m + params.n) * params.k * params.element.num_bytes,
    )


def _stored(plan: TilePlan, num_roles: int) -> AccessPattern:
    """Stores of each role for a tile that is completely inside of D."""
    params, (rows, columns) = plan.params, plan.tile[:2]
    if params.m % rows or params.n % columns or plan.num_m * rows > params.m or plan.num_n * columns > params.n:
        return AccessPattern()
    rows //= num_roles  # the same number of elements for a partition along either dimension
    if params.epilogue != "direct":
        return Epilogue.whole_rows(rows, columns, params.out_element.num_bytes)
    width = params.out_element.num_bytes if params.split_k == 1 else SUM_BYTES
    wide = 32 if params.math == "fma" else 8
    num_lines = rows * (columns // wide)
    return AccessPattern(num_lines=num_lines, num_sectors=num_lines * ceil_div(wide * width, SECTOR_BYTES))


def _left_fraction(plan: TilePlan, staging: Staging) -> float:
    """Fraction of a role's stores that has left the SM before the role continues: all but its last store."""
    params = plan.params
    columns = Shares(params).share[1] if params.is_specialized else plan.tile[1]
    if params.epilogue == "tma_store":
        return 1.0
    if params.epilogue == "smem":
        return 1.0 - staging.slice_n / columns
    wide = 32 if params.math == "fma" else 8
    return max(0.0, 1.0 - ceil_div(ceil_div(columns, NUM_CHUNKS), wide) * wide / columns)
