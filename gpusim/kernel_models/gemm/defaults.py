"""Defaults of a GEMM's options: they select a kernel that works on the given GPU."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from gpusim.errors import nearest_multiple
from gpusim.kernel_models.gemm.options import AnyGemm, GemmOptions
from gpusim.kernel_models.gemm.smem_budget import most_stages
from gpusim.kernel_models.gemm.warp_partition import Shares, default_setmaxnreg, warp_choices
from gpusim.layout.notation import parse_swizzle, show_swizzle
from gpusim.layout.swizzle import span_bytes
from gpusim.workload.launch import Target

MIN_STAGES_FOR_DEPTH = 2
"""Maximum number of stages without wgmma in flight: one group in flight would hold the stage that the next load waits
for."""

USUAL_STAGES = 4


def with_instructions(params: AnyGemm, gpu: Target) -> AnyGemm:
    """Fill in math, copy, and the schedule if it does not depend on the tile."""
    wants_consumers = params.consumer_warpgroups is not None or params.schedule not in (None, "multistage")
    usual = "wgmma" if "wgmma" in gpu.features or wants_consumers else "mma_sync"
    math = params.math or ("fma" if params.dtype == "fp32" else usual)
    copy = params.copy_ or ("tma" if math == "wgmma" and "tma" in gpu.features else "cp_async")
    schedule = params.schedule
    if schedule is None and not (math == "wgmma" and copy == "tma"):
        schedule = "multistage"
    return params.model_copy(update={"math": math, "copy_": copy, "schedule": schedule})


def with_shape(params: AnyGemm, gpu: Target) -> AnyGemm:
    """Fill in the options that :func:`with_instructions` left None, if they apply. Nothing is checked.

    Options that do not apply (``warps`` of wgmma, ``consumer_split`` of pingpong) stay None.
    """
    params = _with_consumers(params) if params.math == "wgmma" else _with_warps(params)
    assert params.schedule is not None  # just set
    assert params.copy_ is not None
    is_wgmma, is_specialized = params.math == "wgmma", params.is_specialized
    changes: dict[str, Any] = {"out_dtype": params.out_element.name}
    if params.setmaxnreg == "auto":
        changes["setmaxnreg"] = default_setmaxnreg(params.schedule, params.copy_, params.consumer_warpgroups or 0)
    if params.persistent is None:
        changes["persistent"] = params.schedule == "pingpong"
    if params.epilogue is None:
        changes["epilogue"] = "direct"
    if params.swizzle is None:
        changes["swizzle"] = "none" if params.math == "fma" or params.pad else widest_swizzle(params)
    elif is_wgmma or params.copy_ == "tma":  # these support modes only, which three numbers may describe
        changes["swizzle"] = show_swizzle(parse_swizzle(params.swizzle, params.element.bits), params.element.bits)
    if params.prefetch is None and not is_specialized:
        changes["prefetch"] = "after_mma" if is_wgmma else "before_mma"
    if params.cta_barrier is None and not is_specialized and params.copy_ == "tma" and params.prefetch == "after_wait":
        changes["cta_barrier"] = "before_copies"
    if params.register_stages is None and not is_wgmma:
        changes["register_stages"] = 2
    if params.stall_on_ldgsts is None and params.math == "mma_sync" and params.copy_ == "cp_async":
        changes["stall_on_ldgsts"] = True
    params = params.model_copy(update=changes)
    if params.stages is None:
        params = params.model_copy(update={"stages": max(1, min(USUAL_STAGES, most_stages(params, gpu)))})
    assert params.stages is not None  # just set
    if params.wgmma_depth is None and is_wgmma:
        depth = 1 if is_specialized and params.stages > MIN_STAGES_FOR_DEPTH else 0
        params = params.model_copy(update={"wgmma_depth": depth})
    return params


# -------------------------------------------------------------------------------------- wgmma


def _with_consumers(params: AnyGemm) -> AnyGemm:
    """Fill in schedule, tile, consumers and split: the first that divide the tile and fit in registers.

    If none divides the tile, a later check refuses it and proposes the nearest valid tile. The choice is then that of this
    tile.
    """
    choices = list(_consumer_choices(params))
    legal = [choice for choice in choices if Shares(choice).is_divisible]
    fitting = [choice for choice in legal if Shares(choice).fits_registers]
    return (fitting or legal or sorted(choices, key=_least_change))[0].model_copy(update={"setmaxnreg": params.setmaxnreg})


def _least_change(params: GemmOptions) -> int:
    """Rows and columns between the tile and the nearest tile that is a multiple of its instructions."""
    shares = Shares(params)
    extents = zip(shares.tile[:2], shares.units, strict=True)
    return sum(abs(nearest_multiple(extent, unit) - extent) for extent, unit in extents)


def _consumer_choices(params: AnyGemm) -> Iterable[AnyGemm]:
    assert params.copy_ is not None  # set before
    schedules = (params.schedule,) if params.schedule else _usual_schedules(params.consumer_warpgroups)
    for schedule in schedules:
        for consumers in _usual_consumers(schedule, params):
            for split in _usual_splits(schedule, consumers, params):
                changes: dict[str, Any] = {
                    "schedule": schedule, "consumer_warpgroups": consumers, "consumer_split": split,
                    "tile": params.tile or _wgmma_tile(schedule, consumers, split, params.element.num_bytes),
                }
                if params.setmaxnreg == "auto":
                    changes["setmaxnreg"] = default_setmaxnreg(schedule, params.copy_, consumers)
                yield params.model_copy(update=changes)


def _usual_schedules(consumers: int | None) -> tuple[str, ...]:
    return ("warp_specialized",) if consumers == 1 else ("cooperative", "warp_specialized")


def _usual_consumers(schedule: str, params: GemmOptions) -> tuple[int, ...]:
    if params.consumer_warpgroups is not None:
        return (params.consumer_warpgroups,)
    if schedule == "multistage":
        return (2, 1, 3) if params.tile is None or params.tile[0] >= 128 else (1, 2, 3)
    return {"warp_specialized": (1,), "cooperative": (2, 3), "pingpong": (2,)}[schedule]


def _usual_splits(schedule: str, consumers: int, params: GemmOptions) -> tuple[Any, ...]:
    if params.consumer_split is not None or schedule == "pingpong":
        return (params.consumer_split,)
    return ("m",) if consumers == 1 else ("m", "n")


def _wgmma_tile(schedule: str, consumers: int, split: str | None, element_bytes: int) -> tuple[int, int, int]:
    """The usual tile: rows of 128 bytes of k."""
    depth = 128 // element_bytes
    if schedule == "pingpong":
        return 64, 256, depth
    if consumers == 3:
        return (192, 128, depth) if split == "m" else (128, 192, depth)
    return (128, 256, depth) if schedule == "cooperative" else (128, 128, depth)


# -------------------------------------------------------------------------------------- mma.sync and fma


def _with_warps(params: AnyGemm) -> AnyGemm:
    """Fill in tile and warps: the usual warps of a given tile, or the usual tile of given warps."""
    warps, tile = params.warps, params.tile
    if tile is None:
        tile = _warp_tile(params)
    params = params.model_copy(update={"tile": tile})
    if warps is None:
        choices = warp_choices(params) or [(1, 1)]
        of_choice = [params.model_copy(update={"warps": choice}) for choice in choices]
        return next((choice for choice in of_choice if Shares(choice).fits_registers), of_choice[0])
    return params


def _warp_tile(params: GemmOptions) -> tuple[int, int, int]:
    """A tile of about 128 x 128, with at most 64 x 64 a warp, or 8 x 8 a thread of fma."""
    is_fma = params.math == "fma"
    depth = 16 if is_fma else 64 // params.element.num_bytes
    if params.warps is None:
        return 128, 128, depth
    (unit_m, most_m), (unit_n, most_n) = ((16, 32), (32, 64)) if is_fma else ((16, 64), (8, 64))
    warps_m, warps_n = params.warps
    rows = min(most_m, max(unit_m, 128 // warps_m // unit_m * unit_m))
    columns = min(most_n, max(unit_n, 128 // warps_n // unit_n * unit_n))
    return warps_m * rows, warps_n * columns, depth


def widest_swizzle(params: GemmOptions, *, at_most: str = "128B") -> str:
    """The widest swizzle that divides the rows of both operands in shared memory."""
    assert params.tile is not None  # set before
    tile_m, tile_n, tile_k = params.tile
    rows = [
        (tile_k if is_k_major else extent) * params.element.num_bytes
        for is_k_major, extent in ((params.is_a_k_major, tile_m), (params.is_b_k_major, tile_n))
    ]
    for mode in ("128B", "64B", "32B"):
        if span_bytes(mode) <= span_bytes(at_most) and all(row % span_bytes(mode) == 0 for row in rows):
            return mode
    return "none"


def with_places(params: AnyGemm, gpu: Target) -> AnyGemm:
    """Replace a ``raster_order`` of "gpc" by positions: clusters ordered by GPC, and within a GPC by number."""
    if params.raster_order != "gpc":
        return params
    gpcs = gpu.gpcs_of_clusters(prod(params.cluster))
    order = sorted(range(len(gpcs)), key=lambda idx: (gpcs[idx], idx))
    places = sorted(range(len(order)), key=order.__getitem__)
    return params.model_copy(update={"raster_order": ",".join(map(str, places))})
