"""Checks that a tile's parts suit instructions and registers, and the warps that divide a tile."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpusim.errors import KernelError, nearest_multiple
from gpusim.kernel_models.gemm.advice import TileRefused
from gpusim.kernel_models.gemm.config import GemmConfig
from gpusim.kernel_models.mainloop.warp_partition import UNITS, WarpPartition

ROUND_N = 32
"""Columns of which a proposed tile is a multiple, if the requested tile was."""


def default_setmaxnreg(schedule: str, copy: str, consumers: int) -> str:
    """Default of setmaxnreg. Only several consumers with a TMA producer, which needs few registers, have one."""
    if schedule not in ("cooperative", "pingpong") or copy != "tma":
        return "none"
    return {2: "40/232", 3: "32/160"}.get(consumers, "none")


def check_partition(config: GemmConfig) -> None:
    """Refuse a tile that is no multiple of its instructions, or whose accumulators do not fit.

    Raises:
        TileRefused: proposes a tile that fits.
    """
    partition = config.partition
    dealt = _dealt(config, partition)
    tile = "x".join(str(part) for part in config.tile)
    wanted = nearest_multiple(config.tile[0], partition.units[0]), nearest_multiple(config.tile[1], partition.units[1])
    for name, extent, unit in zip("MN", config.tile, partition.units, strict=False):
        if extent % unit:
            raise TileRefused(
                f"--tile {tile}: {name} is {extent}, {config.math} {dealt} takes multiples of {unit}", kind=KernelError,
                tile=(*wanted, config.tile[2]), otherwise=_other_split(config),
            )
    if partition.fits_registers:
        return
    need = partition.need
    more = f" under --setmaxnreg {config.setmaxnreg}" if partition.setmaxnreg else ""
    others = _other_flags(config)
    raise TileRefused(
        f"--tile {tile}: {config.math} {dealt} needs {need.total} registers a thread ({need.story}), a CTA "
        f"of {partition.num_warps} warps has {partition.ceiling}{more}, so it would spill",
        kind=KernelError, tile=None if others else _fitting_tile(config), otherwise=others,
    )


def _dealt(config: GemmConfig, partition: WarpPartition) -> str:
    if config.math != "wgmma":
        return f"with --warps {partition.warp_grid[0]}x{partition.warp_grid[1]}"
    if config.schedule == "pingpong":
        return "with a whole tile a consumer"
    if config.consumer_warpgroups == 1:
        return "with 1 warpgroup"
    return f"with {config.consumer_warpgroups} warpgroups along {'MN'[config.consumer_split == 'n']}"


def _other_split(config: GemmConfig) -> str:
    """``--consumer-split n`` if the same consumers could divide the other dimension."""
    if config.math != "wgmma" or config.consumer_warpgroups == 1 or config.schedule == "pingpong":
        return ""
    split = "m" if config.consumer_split == "n" else "n"
    return f"--consumer-split {split}" if replace(config, consumer_split=split).partition.is_valid else ""


def _other_flags(config: GemmConfig) -> str:
    """Flags for other warps or consumers that have enough registers; empty if there are none."""
    others = ((flags, replace(config, **changes).partition) for flags, changes in _other_partitions(config))
    return next((flags for flags, partition in others if partition.is_valid), "")


def _fitting_tile(config: GemmConfig) -> tuple[int, int, int] | None:
    """The nearest smaller tile with enough registers."""
    tile_m, tile_n, tile_k = config.tile
    unit_m, unit_n = config.partition.units
    round_n = math.lcm(unit_n, ROUND_N) if tile_n % ROUND_N == 0 else unit_n
    for rows in range(tile_m, 0, -unit_m):
        for columns in (*range(tile_n, 0, -round_n), *range(tile_n, 0, -unit_n)):
            if replace(config, tile=(rows, columns, tile_k)).partition.fits_registers:
                return rows, columns, tile_k
    return None


def _other_partitions(config: GemmConfig) -> Iterator[tuple[str, dict[str, Any]]]:
    if config.math != "wgmma":
        for warps in warp_choices(config):
            yield f"--warps {warps[0]}x{warps[1]}", {"warps": warps}
        return
    for schedule in ("cooperative",) if config.is_specialized else ("multistage",):
        named = "" if schedule == config.schedule else f"--schedule {schedule} "
        for consumers in (2, 3):
            for split in ("m", "n"):
                yield f"{named}--consumer-warpgroups {consumers} --consumer-split {split}", {
                    "schedule": schedule, "consumer_warpgroups": consumers, "consumer_split": split,
                    "setmaxnreg": default_setmaxnreg(schedule, config.copy_, consumers),
                }


def warp_choices(config: GemmConfig) -> list[tuple[int, int]]:
    """Warps along M and N that divide the tile, the most usual first: 64x64 a warp, 8x8 a thread of fma."""
    tile_m, tile_n, _ = config.tile
    rows, columns = UNITS[config.math]
    area = 64 * 64 if config.math == "mma_sync" else 32 * 64
    usual = min(16, max(4, tile_m * tile_n // area))
    stretch = 1.0 if config.math == "mma_sync" else 2.0  # fma: 4 lanes along M, 8 along N
    choices = [
        (warps_m, warps_n)
        for warps_m in range(1, 17)
        for warps_n in range(1, 17)
        if warps_m * warps_n <= 16 and tile_m % (rows * warps_m) == 0 and tile_n % (columns * warps_n) == 0
    ]

    def rank(warps: tuple[int, int]) -> tuple[float, float, int]:
        piece_m, piece_n = tile_m / warps[0] * stretch, tile_n / warps[1]
        return abs(warps[0] * warps[1] - usual), max(piece_m / piece_n, piece_n / piece_m), warps[0]

    return sorted(choices, key=rank)
