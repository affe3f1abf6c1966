"""Shared-memory budget of a GEMM kernel: the ring of stages, the staging buffer of D, and the number of stages that fit."""

from __future__ import annotations

from dataclasses import replace

from gpusim.errors import LaunchError
from gpusim.kernel_models.gemm.advice import TileRefused
from gpusim.kernel_models.gemm.config import GemmConfig, has_sums
from gpusim.kernel_models.mainloop.output import Staging
from gpusim.kernel_models.mainloop.shape import MAX_STAGES
from gpusim.workload.launch import Target

ALIGNMENT_BYTES = 1024
"""Bytes that a CTA adds to align its stages to the period of a 128-byte swizzle."""

STAGE_BARRIER_BYTES = 16
"""Bytes of a stage's full and empty mbarriers."""

TURN_BARRIER_BYTES = 32
"""Bytes of pingpong's mbarriers."""


def column_unit(config: GemmConfig) -> int:
    """Columns of which a slice is a multiple: full fragments, and rows of a multiple of 16 bytes."""
    fragment = 32 if config.math == "fma" else 8
    return max(fragment, 16 // config.out_element.num_bytes)


def _staging_shape(config: GemmConfig) -> tuple[int, int]:
    """(rows of a slice of all roles that stage at once, columns of a role's part)."""
    tile_m, tile_n, _ = config.tile
    if not config.is_specialized:
        return tile_m, tile_n
    share_m, share_n = config.partition.warp_tile
    return share_m * config.consumer_warpgroups, share_n


def _has_staging(config: GemmConfig) -> bool:
    return config.epilogue != "direct" and not has_sums(config)


def _least_staging(config: GemmConfig) -> int:
    """Bytes of shared memory that a persistent kernel needs besides its stages: 32 columns, or the smallest slice."""
    if not _has_staging(config) or not config.persistent:
        return 0
    rows, columns = _staging_shape(config)
    unit = column_unit(config)
    few = max(unit, 32)
    return rows * (few if columns % few == 0 else unit) * config.out_element.num_bytes


def spare_bytes(config: GemmConfig, gpu: Target) -> int:
    """Bytes of shared memory that a CTA has for stages and staging."""
    return gpu.max_smem_per_cta_bytes - ALIGNMENT_BYTES - TURN_BARRIER_BYTES - _least_staging(config)


def most_stages(config: GemmConfig, gpu: Target) -> int:
    """Maximum number of stages in a CTA's shared memory."""
    return min(MAX_STAGES, max(0, spare_bytes(config, gpu) // (config.mainloop.stage_bytes + STAGE_BARRIER_BYTES)))


def staging_of(config: GemmConfig, gpu: Target) -> Staging:
    """The widest slices of D that fit: in the drained stages, or in separate memory in a persistent kernel."""
    rows, columns = _staging_shape(config)
    if not _has_staging(config):
        return Staging(slice_n=columns, num_bytes=0, overlays_stages=True)
    column_bytes, unit = rows * config.out_element.num_bytes, column_unit(config)
    ring = config.stages * config.mainloop.stage_bytes
    beside = spare_bytes(config, gpu) + _least_staging(config)
    beside -= config.stages * (config.mainloop.stage_bytes + STAGE_BARRIER_BYTES)
    overlays = not config.persistent and unit * column_bytes <= ring
    room = ring if overlays else beside
    fitting = [n for n in range(unit, columns + 1, unit) if columns % n == 0 and n * column_bytes <= room]
    if not fitting:
        raise LaunchError(
            f"--epilogue {config.epilogue}: {unit} columns of D take {unit * column_bytes} bytes of shared "
            f"memory, {max(0, room)} are left on {gpu.name}; use --epilogue direct or fewer stages"
        )
    return Staging(slice_n=fitting[-1], num_bytes=fitting[-1] * column_bytes, overlays_stages=overlays)


def check_room(config: GemmConfig, gpu: Target) -> None:
    """Refuse stages and staging that do not fit in shared memory.

    Raises:
        LaunchError: names the number of stages that fits.
        TileRefused: not even one stage fits.
    """
    most = most_stages(config, gpu)
    if config.stages <= most:
        staging_of(config, gpu)
        return
    need = gpu.max_smem_per_cta_bytes - spare_bytes(config, gpu)
    need += config.stages * (config.mainloop.stage_bytes + STAGE_BARRIER_BYTES)
    tile = "x".join(str(part) for part in config.tile)
    why = (
        f"--stages {config.stages}: with --tile {tile} they need {need} bytes of shared memory, {gpu.name} "
        f"has {gpu.max_smem_per_cta_bytes} a CTA"
    )
    if most == MAX_STAGES:
        why = f"--stages {config.stages}: kernels of at most {MAX_STAGES} stages are modelled"
    if most:
        raise LaunchError(f"{why}; use at most --stages {most}")
    raise TileRefused(why, kind=LaunchError, tile=_smaller_tile(config, gpu))


def _smaller_tile(config: GemmConfig, gpu: Target) -> tuple[int, int, int] | None:
    """The nearest tile of which one stage fits: less K, or else fewer columns."""
    tile_m, tile_n, tile_k = config.tile
    step = max(1, 32 // config.element.num_bytes)
    for columns in range(tile_n, 0, -config.partition.units[1]):
        for depth in range(tile_k, 0, -step):
            if most_stages(replace(config, tile=(tile_m, columns, depth)), gpu):
                return tile_m, columns, depth
    return None
