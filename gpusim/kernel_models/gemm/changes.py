"""Changes of one GEMM kernel: other values of one option each, with what that option needs in addition.

In: options of a GEMM as given and as resolved, and a GPU. Out: options to change. Knows no time:
:mod:`gpusim.analysis.changes` simulates them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from types import MappingProxyType
from typing import Any

from gpusim.kernel_models.gemm.applicability import PRODUCERS, applies
from gpusim.kernel_models.gemm.candidates import DECIDING, SWAP_ROWS, SWIZZLE_SIZES, Space
from gpusim.kernel_models.gemm.options import GemmOptions
from gpusim.kernel_models.gemm.resolve import in_kernel_order, resolve
from gpusim.kernel_models.mainloop.output import BY_TMA
from gpusim.kernel_models.streaming import ceil_div
from gpusim.workload.launch import Target

TUNED: Mapping[str, tuple[Any, ...]] = MappingProxyType({
    "epilogue": ("direct", "smem", "tma_store"), "persistent": (False, True), "cluster": ("1x1", "2x1", "1x2"),
    "raster": ("along_m", "along_n"), "swizzle_size": SWIZZLE_SIZES, "split_k": (1, 2, 4),
    "split_k_mode": ("in_kernel", "second_kernel"), "swizzle": ("none", "32B", "64B", "128B"), "pad": (0, 8),
    "warps": ("2x2", "2x4", "4x2", "1x4", "4x1"), "consumer_warpgroups": (1, 2, 3), "wgmma_depth": (0, 1),
    "setmaxnreg": ("auto", "none"), "stages": (2, 3, 4, 5, 6),
    "schedule": ("multistage", *PRODUCERS), "tile": (), "math": (), "copy": (), "swap_operands": (False, True),
})
"""Options that decide the time and not what is computed, with values of kernels in use."""

ALONE = (
    "epilogue", "persistent", "cluster", "raster", "swizzle_size", "pad", "warps", "wgmma_depth", "split_k_mode",
)
"""Options of which each value is tried with all others as they are."""

OF_ORDER = ("raster", "swizzle_size")
"""Options that do nothing where D has one row or one column of tiles."""

COUPLED = ("schedule", "tile", "math", "copy", "cluster", "persistent", "epilogue", "stages")
"""Options that another tile or schedule may need."""

OF_TILE = ("tile", "stages", "warps", "consumer_warpgroups", "consumer_split", "register_stages", "prefetch", "cta_barrier")
"""Fields that follow from a tile unless they are given."""


def changes(asked: GemmOptions, resolved: GemmOptions, gpu: Target) -> Iterator[dict[str, Any]]:
    """Options to change, the one that is tried first; ``asked`` has the decisions that ``resolved`` completes."""
    config, now, fields = resolve(asked, gpu), resolved.as_options(), asked.options()
    is_one_band = min(ceil_div(config.m, config.tile[0]), ceil_div(config.n, config.tile[1])) == 1
    for option in ALONE:
        if not applies(fields[option], config) or (is_one_band and option in OF_ORDER):
            continue
        if option == "split_k_mode" and config.split_k == 1:
            continue
        for value in TUNED[option]:
            if str(value) != str(now[option]):
                yield {option: value}
    if applies("swizzle", config) and config.swizzle != config.widest_swizzle:
        yield {"swizzle": config.widest_swizzle}
    for stages in (config.stages - 1, config.stages + 1):
        if stages > 0:
            yield {"stages": stages}
    yield from _splits(asked, config.tile, config.split_k, gpu)
    yield from _rebuilt(asked, resolved, gpu)


def _splits(asked: GemmOptions, tile: tuple[int, int, int], split_k: int, gpu: Target) -> Iterator[dict[str, Any]]:
    """Other numbers of parts of K: as many as give each SM a CTA, and few where tiles leave SMs empty."""
    inner, space = in_kernel_order(asked), Space(_opened(asked), gpu)
    tiles = prod(map(ceil_div, (inner.m, inner.n), tile[:2])) * asked.batch
    few = TUNED["split_k"] if tiles < gpu.num_sms else ()
    for parts in sorted({1, *space.splits(tiles, tile[2], "cooperative"), *few} - {split_k}):
        if parts <= ceil_div(asked.k, tile[2]):
            for mode in TUNED["split_k_mode"] if parts > 1 else ():
                yield {"split_k": parts, "split_k_mode": mode}
            if parts == 1:
                yield {"split_k": parts}


def _opened(asked: GemmOptions, **chosen: Any) -> GemmOptions:
    """Options of a space in which a library's choices, instructions and what follows from a tile are open."""
    fields = (*DECIDING, "math", "copy_", *OF_TILE)
    return asked.model_copy(update={**dict.fromkeys(fields), "persistent": None, **chosen})


def _rebuilt(asked: GemmOptions, resolved: GemmOptions, gpu: Target) -> Iterator[dict[str, Any]]:
    """Other tiles, schedules and the swapped product, each with the stages that a library has with it."""
    now, inner = resolved.as_options(), in_kernel_order(resolved)
    alone = dict.fromkeys(OF_TILE)
    instructions = {"math": resolved.math, "copy_": resolved.copy_}

    def differing(space: Space, first: str, **chosen: Any) -> Iterator[dict[str, Any]]:
        built = space.built(asked.model_copy(update={**alone, **instructions, **chosen}))
        if built is not None:
            made = built[0].chosen(built[1]).as_options()
            names = dict.fromkeys((first, *COUPLED))
            found = {name: made[name] for name in names if str(made[name]) != str(now[name])}
            if first in found:
                yield found

    tiles = Space(_opened(asked, schedule=resolved.schedule, **instructions), gpu)
    near = [tile for tile in tiles.tiles(inner.m, inner.n) if _is_near(tile, resolved.tile)]
    for tile in near:
        yield from differing(tiles, "tile", tile=tile)
    known = TUNED["schedule"] if "wgmma" in gpu.features and asked.dtype != "fp32" else ("multistage",)
    for schedule in known:
        if schedule == resolved.schedule:
            continue
        space = Space(_opened(asked, schedule=schedule), gpu)
        kinds = {"schedule": schedule, "math": space.math, "copy_": space.copy}
        kinds |= {"persistent": True} if schedule == "pingpong" else {}
        kinds |= {} if space.is_specialized or asked.epilogue not in BY_TMA else {"epilogue": "smem"}
        as_it_is = list(differing(space, "schedule", tile=resolved.tile, **kinds))
        yield from as_it_is
        for tile in () if as_it_is else near:
            yield from differing(space, "schedule", tile=tile, **kinds)
    is_small = min(resolved.m, resolved.n) <= SWAP_ROWS and not asked.bias
    if is_small and tiles.is_specialized:
        space, swapped = Space(_opened(asked), gpu), {"swap_operands": not resolved.swap_operands}
        yield dict(swapped)
        for tile in space.tiles(inner.n, inner.m):
            yield from differing(space, "swap_operands", tile=tile, schedule=space.schedules(tile, 1)[0], **swapped)


def _is_near(tile: tuple[int, int, int], now: tuple[int, int, int] | None) -> bool:
    """Whether a tile has the rows, the columns or the area of the tile as it is.

    >>> [_is_near((rows, columns, 64), (128, 256, 64)) for rows, columns in ((64, 256), (256, 128), (192, 96))]
    [True, True, False]
    """
    return now is not None and (tile[0] == now[0] or tile[1] == now[1] or prod(tile[:2]) == prod(now[:2]))
