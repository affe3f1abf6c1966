"""Shared-memory budget of a GEMM kernel: the ring of stages, the staging buffer of D, and the number of stages that fit."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.errors import LaunchError
from gpusim.kernel_models.gemm.advice import TileRefused
from gpusim.kernel_models.gemm.options import MAX_STAGES, GemmOptions
from gpusim.kernel_models.gemm.warp_partition import Shares
from gpusim.workload.launch import Target

ALIGNMENT_BYTES = 1024
"""Bytes that a CTA adds to align its stages to the period of a 128-byte swizzle."""

FMA_PAD = 4
"""Elements of padding after each row of an fma operand that is transposed on its way to shared memory. It distributes a
column over the banks."""

STAGE_BARRIER_BYTES = 16
"""Bytes of a stage's full and empty mbarriers."""

TURN_BARRIER_BYTES = 32
"""Bytes of pingpong's mbarriers."""


def is_transposed(params: GemmOptions, which: int) -> bool:
    """Whether A (0) or B (1) is transposed on its way to shared memory: fma needs M and N contiguous for each k."""
    return params.math == "fma" and (params.is_a_k_major, params.is_b_k_major)[which]


def stage_bytes(params: GemmOptions) -> int:
    """Shared memory of one stage in bytes."""
    tile = Shares(params).tile
    rows = sum(tile[which] + (FMA_PAD if is_transposed(params, which) else 0) for which in (0, 1))
    padding = sum(
        params.pad * (tile[which] if is_k_major else tile[2])
        for which, is_k_major in enumerate((params.is_a_k_major, params.is_b_k_major))
    )
    return (rows * tile[2] + padding) * params.element.num_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """Staging buffer of an epilogue: columns of a slice, bytes, and whether it reuses the memory of the drained stages."""

    slice_n: int
    num_bytes: int
    overlays_stages: bool


def column_unit(params: GemmOptions) -> int:
    """Columns of which a slice is a multiple: full fragments, and rows of a multiple of 16 bytes."""
    fragment = 32 if params.math == "fma" else 8
    return max(fragment, 16 // params.out_element.num_bytes)


def _staging_shape(params: GemmOptions) -> tuple[int, int]:
    """(rows of a slice of all roles that stage at once, columns of a role's part)."""
    tile_m, tile_n, _ = Shares(params).tile
    if not params.is_specialized:
        return tile_m, tile_n
    assert params.consumer_warpgroups is not None  # resolved
    share_m, share_n = Shares(params).share
    return share_m * params.consumer_warpgroups, share_n


def _has_staging(params: GemmOptions) -> bool:
    return params.epilogue != "direct" and params.split_k == 1


def _least_staging(params: GemmOptions) -> int:
    """Bytes of shared memory that a persistent kernel needs besides its stages: 32 columns, or the smallest slice."""
    if not _has_staging(params) or not params.persistent:
        return 0
    rows, columns = _staging_shape(params)
    unit = column_unit(params)
    few = max(unit, 32)
    return rows * (few if columns % few == 0 else unit) * params.out_element.num_bytes


def spare_bytes(params: GemmOptions, gpu: Target) -> int:
    """Bytes of shared memory that a CTA has for stages and staging."""
    return gpu.max_smem_per_cta_bytes - ALIGNMENT_BYTES - TURN_BARRIER_BYTES - _least_staging(params)


def most_stages(params: GemmOptions, gpu: Target) -> int:
    """Maximum number of stages in a CTA's shared memory."""
    return min(MAX_STAGES, max(0, spare_bytes(params, gpu) // (stage_bytes(params) + STAGE_BARRIER_BYTES)))


def staging_of(params: GemmOptions, gpu: Target) -> Staging:
    """The widest slices of D that fit: in the drained stages, or in separate memory in a persistent kernel."""
    assert params.stages is not None  # resolved
    rows, columns = _staging_shape(params)
    if not _has_staging(params):
        return Staging(slice_n=columns, num_bytes=0, overlays_stages=True)
    column_bytes, unit = rows * params.out_element.num_bytes, column_unit(params)
    ring = params.stages * stage_bytes(params)
    beside = spare_bytes(params, gpu) + _least_staging(params)
    beside -= params.stages * (stage_bytes(params) + STAGE_BARRIER_BYTES)
    overlays = not params.persistent and unit * column_bytes <= ring
    room = ring if overlays else beside
    fitting = [n for n in range(unit, columns + 1, unit) if columns % n == 0 and n * column_bytes <= room]
    if not fitting:
        raise LaunchError(
            f"--epilogue {params.epilogue}: {unit} columns of D take {unit * column_bytes} bytes of shared "
            f"memory, {max(0, room)} are left on {gpu.name}; use --epilogue direct or fewer stages"
        )
    return Staging(slice_n=fitting[-1], num_bytes=fitting[-1] * column_bytes, overlays_stages=overlays)


def check_room(params: GemmOptions, gpu: Target) -> None:
    """Refuse stages and staging that do not fit in shared memory.

    Raises:
        LaunchError: names the number of stages that fits.
        TileRefused: not even one stage fits.
    """
    assert params.stages is not None  # resolved
    most = most_stages(params, gpu)
    if params.stages <= most:
        staging_of(params, gpu)
        return
    need = gpu.max_smem_per_cta_bytes - spare_bytes(params, gpu)
    need += params.stages * (stage_bytes(params) + STAGE_BARRIER_BYTES)
    tile = "x".join(str(part) for part in Shares(params).tile)
    why = (
        f"--stages {params.stages}: with --tile {tile} they need {need} bytes of shared memory, {gpu.name} "
        f"has {gpu.max_smem_per_cta_bytes} a CTA"
    )
    if most:
        raise LaunchError(f"{why}; use at most --stages {most}")
    raise TileRefused(why, kind=LaunchError, tile=_smaller_tile(params, gpu))


def _smaller_tile(params: GemmOptions, gpu: Target) -> tuple[int, int, int] | None:
    """The nearest tile of which one stage fits: less K, or else fewer columns."""
    tile_m, tile_n, tile_k = Shares(params).tile
    step = max(1, 32 // params.element.num_bytes)
    for columns in range(tile_n, 0, -Shares(params).units[1]):
        for depth in range(tile_k, 0, -step):
            if most_stages(params.model_copy(update={"tile": (tile_m, columns, depth)}), gpu):
                return tile_m, columns, depth
    return None
