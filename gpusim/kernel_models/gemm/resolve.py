"""From a GEMM's options to its config: defaults that make a kernel work on the given GPU, and checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from math import prod
from typing import Any

from gpusim.errors import KernelError, nearest_multiple
from gpusim.kernel_models.gemm.advice import TileRefused, advised
from gpusim.kernel_models.gemm.check_tile import default_setmaxnreg, warp_choices
from gpusim.kernel_models.gemm.compatibility import (
    LEAST_CP_ASYNC_BYTES,
    MOST_LDG_STAGES,
    check_code,
    check_gpu,
    check_kinds,
    check_places,
    check_shape,
)
from gpusim.kernel_models.gemm.config import GemmConfig
from gpusim.kernel_models.gemm.estimated_code import estimated_code, estimated_l2_promotion
from gpusim.kernel_models.gemm.options import GemmOptions
from gpusim.kernel_models.gemm.smem_budget import check_room, most_stages
from gpusim.layout.notation import parse_swizzle, show_swizzle
from gpusim.workload.compiled_code import NO_CODE
from gpusim.workload.gmem.line_fetches import CHUNK_BYTES
from gpusim.workload.launch import Target

MIN_STAGES_FOR_DEPTH = 2
"""Maximum number of stages without wgmma in flight: one group in flight would hold the stage that the next load waits
for."""

USUAL_STAGES = 4

NEUTRAL = {
    "accumulator": "", "thread_tile": "interleaved", "thread_access": "vector", "bias_along": "n", "clamp": "",
    "alignment": 0, "stored_bytes": CHUNK_BYTES, "stages": 1, "warps": (1, 1), "consumer_warpgroups": 0,
    "consumer_split": "m", "persistent": False, "swizzle": "none",
    "register_stages": 2, "stall_on_ldgsts": False, "epilogue": "direct", "wgmma_depth": 0,
    "prefetch": "", "cta_barrier": "", "l2_promotion": 0, "compiled_code": NO_CODE, "registers": 0,
}  # fmt: skip
"""Values of options that are not given, where nothing else is chosen."""


def resolve(options: GemmOptions, gpu: Target) -> GemmConfig:
    """Fill in all defaults for ``gpu``, and check the result.

    Raises:
        KernelError: incompatible options.
        LaunchError: the GPU lacks instructions or shared memory for the kernel.
    """
    try:
        return _resolved(options, gpu)
    except TileRefused as refused:
        raise advised(refused, lambda tile: _resolved(options.model_copy(update={"tile": tile}), gpu)) from None


def _resolved(given: GemmOptions, gpu: Target) -> GemmConfig:
    """Implement :func:`resolve`; a refusal may still propose a tile."""
    check_gpu(given, gpu)
    stored_bytes = given.store_bytes
    given = in_kernel_order(given)
    placed = _with_places(given, gpu)
    check_places(given, placed, gpu)
    options = _with_instructions(placed, gpu)
    check_kinds(options)
    config = _with_shape(options, gpu, stored_bytes)
    check_shape(config)
    check_room(config, gpu)
    return _with_registers(_with_code(options, config))


def in_kernel_order(options: GemmOptions) -> GemmOptions:
    """The options as the kernel's: with ``swap_operands`` M and N are exchanged, and the layouts of both operands.

    >>> swapped = in_kernel_order(GemmOptions(m=16, n=512, k=64, layout="tt", swap_operands=True))
    >>> swapped.m, swapped.n, swapped.layout
    (512, 16, 'nn')

    Raises:
        KernelError: a bias vector of N elements, which would lie along the rows of D^T.
    """
    if not options.swap_operands:
        return options
    if options.bias:
        raise KernelError("--swap-operands: a bias has an element a column of D, which is a row of D^T; leave it out")
    a_is_k_major, b_is_k_major = options.are_k_major
    layout = f"{'t' if b_is_k_major else 'n'}{'n' if a_is_k_major else 't'}"
    return options.model_copy(update={"m": options.n, "n": options.m, "layout": layout, "swap_operands": False})


def _with_instructions(options: GemmOptions, gpu: Target) -> GemmOptions:
    """Fill in math, copy, and the schedule if it does not depend on the tile."""
    math = options.math or usual_math(options, gpu)
    copy = options.copy_ or usual_copy(options, math, gpu)
    schedule = options.schedule
    if schedule is None and not (math == "wgmma" and copy == "tma"):
        schedule = "multistage"
    update = {"math": math, "copy_": copy, "schedule": schedule}
    if options.batch_mode == "array" and copy == "tma" and "tensormaps" not in options.model_fields_set:
        update["tensormaps"] = "device"
    return options.model_copy(update=update)


def usual_math(options: GemmOptions, gpu: Target) -> str:
    """The usual math: FFMA for fp32, else wgmma where the GPU has it.

    Where rows are not aligned to 16 bytes, libraries run mma.sync (``cutlass_80`` kernels of cuBLAS). wgmma cannot transpose
    tf32 that is not contiguous along K. cuBLAS has wgmma kernels that transpose it before, which no option states.
    """
    if options.dtype == "fp32":
        return "fma"
    wants_consumers = options.consumer_warpgroups is not None or options.schedule not in (None, "multistage")
    is_turned = options.dtype == "tf32" and not all(options.are_k_major)
    suits_wgmma = "wgmma" in gpu.features and options.copy_ != "ldg" and not is_turned
    is_aligned = options.copy_bytes == CHUNK_BYTES or options.copy_ == "tma"
    return "wgmma" if (suits_wgmma and is_aligned) or wants_consumers else "mma_sync"


def usual_copy(options: GemmOptions, math: str, gpu: Target) -> str:
    """The usual copy for ``math``: TMA for wgmma, else cp.async; LDG where rows are not aligned to 4 bytes."""
    if math == "wgmma":
        return "tma" if "tma" in gpu.features and options.copy_bytes == CHUNK_BYTES else "cp_async"
    return "ldg" if options.copy_bytes < LEAST_CP_ASYNC_BYTES else "cp_async"


def _config(options: GemmOptions, **chosen: Any) -> GemmConfig:
    """A config with the values of ``options`` and ``chosen``."""
    given = {item.name: getattr(options, item.name, None) for item in fields(GemmConfig)}
    values = {**NEUTRAL, **{name: value for name, value in given.items() if value is not None}, **chosen}
    values.setdefault("registers_source", "")
    if values["setmaxnreg"] == "auto":
        values["setmaxnreg"] = default_setmaxnreg(values["schedule"], values["copy_"], values["consumer_warpgroups"])
    return GemmConfig(**{**values, "out_dtype": options.out_element.name})


def _with_shape(options: GemmOptions, gpu: Target, stored_bytes: int) -> GemmConfig:
    """Choose tile, schedule, warps and stages. Rows of D are aligned to ``stored_bytes``. Nothing is checked."""
    config = _with_consumers(options) if options.math == "wgmma" else _with_warps(options)
    is_wgmma, is_specialized, by_tma = config.math == "wgmma", config.is_specialized, config.copy_ == "tma"
    chosen: dict[str, Any] = {"stored_bytes": stored_bytes}
    if options.persistent is None:
        chosen["persistent"] = config.schedule == "pingpong"
    if options.swizzle is None:
        chosen["swizzle"] = "none" if config.math == "fma" or config.pad else config.widest_swizzle
    elif is_wgmma or by_tma:  # these support modes only, which three numbers may describe
        chosen["swizzle"] = show_swizzle(parse_swizzle(config.swizzle, config.element.bits), config.element.bits)
    if options.prefetch is None and not is_specialized:
        chosen["prefetch"] = "after_mma" if is_wgmma else "before_mma"
    if options.cta_barrier is None and not is_specialized and by_tma and options.prefetch == "after_wait":
        chosen["cta_barrier"] = "before_copies"
    if options.stall_on_ldgsts is None:
        chosen["stall_on_ldgsts"] = config.math == "mma_sync" and config.copy_ == "cp_async"
    config = replace(config, **chosen)
    if options.stages is None:
        usual = MOST_LDG_STAGES if config.copy_ == "ldg" else USUAL_STAGES
        config = replace(config, stages=max(1, min(usual, most_stages(config, gpu))))
    if options.wgmma_depth is None and is_wgmma and is_specialized and config.stages > MIN_STAGES_FOR_DEPTH:
        config = replace(config, wgmma_depth=1)
    if is_wgmma and config.compiled_code.mainloop.wgmma_depth is not None:
        config = replace(config, wgmma_depth=config.compiled_code.mainloop.wgmma_depth)
    return config


def _with_code(options: GemmOptions, config: GemmConfig) -> GemmConfig:
    """Check the compiled code that is given, or estimate it, and the L2 promotion that ptxas chooses for cp.async."""
    if options.l2_promotion is None and config.copy_ == "cp_async":
        config = replace(config, l2_promotion=estimated_l2_promotion(config))
    if options.compiled_code is None:
        return replace(config, compiled_code=estimated_code(config))
    check_code(config)
    return config


def _with_registers(config: GemmConfig) -> GemmConfig:
    """Registers as given, as compiled, or worked out."""
    if config.registers:
        return replace(config, registers_source=f"{config.registers}, as given")
    compiled = config.compiled_code.registers
    if compiled is not None:
        return replace(config, registers=compiled, registers_source=f"{compiled}, as compiled")
    partition = config.partition
    registers, story = partition.launch_registers, partition.need.story
    if partition.setmaxnreg:
        story = f"{story}; launched with {registers}, setmaxnreg {config.setmaxnreg}"
    return replace(config, registers=registers, registers_source=story)


# -------------------------------------------------------------------------------------- wgmma
def _with_consumers(options: GemmOptions) -> GemmConfig:
    """Fill in schedule, tile, consumers and split: the first that divide the tile and fit in registers.

    If none divides the tile, a later check refuses it and proposes the nearest valid tile. The choice is then that of this
    tile.
    """
    choices = list(_consumer_choices(options))
    legal = [choice for choice in choices if choice.partition.is_divisible]
    fitting = [choice for choice in legal if choice.partition.fits_registers]
    return (fitting or legal or sorted(choices, key=_least_change))[0]


def _least_change(config: GemmConfig) -> int:
    """Rows and columns between the tile and the nearest tile that is a multiple of its instructions."""
    extents = zip(config.tile[:2], config.partition.units, strict=True)
    return sum(abs(nearest_multiple(extent, unit) - extent) for extent, unit in extents)


def _consumer_choices(options: GemmOptions) -> Iterator[GemmConfig]:
    schedules = (options.schedule,) if options.schedule else _usual_schedules(options.consumer_warpgroups)
    for schedule in schedules:
        for consumers in _usual_consumers(schedule, options):
            for split in _usual_splits(schedule, consumers, options):
                tile = options.tile or _wgmma_tile(schedule, consumers, split, options.element.num_bytes)
                yield _config(options, schedule=schedule, consumer_warpgroups=consumers, consumer_split=split, tile=tile)


def _usual_schedules(consumers: int | None) -> tuple[str, ...]:
    return ("warp_specialized",) if consumers == 1 else ("cooperative", "warp_specialized")


def _usual_consumers(schedule: str, options: GemmOptions) -> tuple[int, ...]:
    if options.consumer_warpgroups is not None:
        return (options.consumer_warpgroups,)
    if schedule == "multistage":
        return (2, 1, 3) if options.tile is None or options.tile[0] >= 128 else (1, 2, 3)
    return {"warp_specialized": (1,), "cooperative": (2, 3), "pingpong": (2,)}[schedule]


def _usual_splits(schedule: str, consumers: int, options: GemmOptions) -> tuple[Any, ...]:
    if options.consumer_split is not None:
        return (options.consumer_split,)
    if schedule == "pingpong":
        return ("m",)
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
def _with_warps(options: GemmOptions) -> GemmConfig:
    """Choose tile and warps: the usual warps of a given tile, or the usual tile of given warps."""
    config = _config(options, tile=options.tile or _warp_tile(options))
    if options.warps is not None:
        return config
    configs = [replace(config, warps=warps) for warps in warp_choices(config) or [(1, 1)]]
    return next((config for config in configs if config.partition.fits_registers), configs[0])


def _warp_tile(options: GemmOptions) -> tuple[int, int, int]:
    """A tile of about 128 x 128, with at most 64 x 64 a warp, or 8 x 8 a thread of fma."""
    is_fma = options.math == "fma"
    depth = 16 if is_fma else 64 // options.element.num_bytes
    if options.warps is None:
        return 128, 128, depth
    (unit_m, most_m), (unit_n, most_n) = ((16, 32), (32, 64)) if is_fma else ((16, 64), (8, 64))
    warps_m, warps_n = options.warps
    rows = min(most_m, max(unit_m, 128 // warps_m // unit_m * unit_m))
    columns = min(most_n, max(unit_n, 128 // warps_n // unit_n * unit_n))
    return warps_m * rows, warps_n * columns, depth


def _with_places(options: GemmOptions, gpu: Target) -> GemmOptions:
    """Replace a ``raster_order`` of "gpc" by positions: clusters ordered by GPC, and within a GPC by number."""
    if options.raster_order != "gpc":
        return options
    gpcs = gpu.gpcs_of_clusters(prod(options.cluster))
    order = sorted(range(len(gpcs)), key=lambda idx: (gpcs[idx], idx))
    places = sorted(range(len(order)), key=order.__getitem__)
    return options.model_copy(update={"raster_order": ",".join(map(str, places))})
