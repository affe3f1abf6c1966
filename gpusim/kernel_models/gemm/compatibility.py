"""Compatibility of a GEMM's options. A refusal names the flag, its value, valid values, and what to use instead."""

from __future__ import annotations

from gpusim.errors import KernelError, LaunchError, LayoutError, nearest_multiple
from gpusim.kernel_models.applicability import Rule, joined, refuse_first, typed
from gpusim.kernel_models.gemm.advice import TileRefused
from gpusim.kernel_models.gemm.applicability import (
    OF_CODE,
    OF_INSTRUCTIONS,
    OF_PERSISTENCE,
    OF_SCHEDULE,
    OF_SHAPE,
    OF_TYPES,
    WANTS_FEATURE,
)
from gpusim.kernel_models.gemm.check_tile import check_partition
from gpusim.kernel_models.gemm.config import GemmConfig
from gpusim.kernel_models.gemm.options import MAX_CLUSTER, GemmOptions
from gpusim.kernel_models.gemm.tile_grid import TilePlan
from gpusim.kernel_models.mainloop.warp_partition import PRODUCER_WARPS
from gpusim.kernel_models.streaming import ceil_div
from gpusim.layout.notation import units_remark
from gpusim.layout.swizzle import SWIZZLE_MODES, span_bytes
from gpusim.workload.gmem.line_fetches import CHUNK_BYTES
from gpusim.workload.launch import Target
from gpusim.workload.operands import OperandTile

MAX_WORK_TILES = 1 << 22
"""Maximum number of work tiles in a grid. A larger grid's traffic plan would take minutes."""

MAX_BYTES = 1 << 38
"""Maximum bytes of A, B and D: more than the memory of each described GPU."""

LEAST_CP_ASYNC_BYTES = 4
"""Bytes of the narrowest cp.async."""

MOST_LDG_STAGES = 2
"""Maximum stages of a kernel that loads by LDG: registers hold one k-step (CUTLASS ``MmaPipelined``)."""

CONSUMERS = {"warp_specialized": (1,), "cooperative": (2, 3), "pingpong": (2,), "multistage": (1, 2, 3)}


def check_gpu(given: GemmOptions, gpu: Target) -> None:
    """Refuse options that this GPU does not support.

    Raises:
        LaunchError: names the flag.
    """
    for field, values, feature, better in WANTS_FEATURE:
        value, default = getattr(given, field), type(given).model_fields[field].default
        is_used = value in values if values else value not in (None, default, "none")
        if is_used and feature not in gpu.features:
            raise LaunchError(f"{typed(field, value)}: {gpu.name} has no {feature}; use {better}")


def check_places(given: GemmOptions, options: GemmOptions, gpu: Target) -> None:
    """Refuse a raster order by GPC (``given``) that leaves CTAs without a cluster in numerical order (``options``).

    Raises:
        KernelError: names the flag.
    """
    places = options.raster_order
    if given.raster_order == "gpc" and given.num_cluster_ctas == 1 and places == _in_order(places.count(",") + 1):
        raise KernelError(
            f"--raster-order gpc: without clusters neighbours run in one GPC of {gpu.name} anyway, so that nothing would "
            "change; use --cluster 2x1, or leave it out"
        )


def _in_order(num: int) -> str:
    return ",".join(map(str, range(num)))


def check_kinds(options: GemmOptions) -> None:
    """Refuse incompatible instructions, types and options, before the shape is checked.

    Raises:
        KernelError: names the flag.
    """
    refuse_first(options, OF_TYPES, GemmOptions.model_fields)
    refuse_first(options, OF_INSTRUCTIONS, GemmOptions.model_fields)
    _check_layout(options)
    _check_alignment(options)
    if options.batch_mode == "array" and options.copy_ == "tma" and options.tensormaps != "device":
        raise KernelError(
            "--batch-mode array: a CTA reads its matrices' addresses, so that TMA wants tensor maps that the CTA makes; use "
            "--tensormaps device, or --copy cp_async"
        )


def _check_alignment(options: GemmOptions) -> None:
    """Refuse copies that are wider than the alignment of rows."""
    least = {"tma": CHUNK_BYTES, "cp_async": LEAST_CP_ASYNC_BYTES}.get(str(options.copy_), 1)
    if options.copy_bytes < least:
        better = "--copy ldg --math mma_sync" if options.copy_bytes < LEAST_CP_ASYNC_BYTES else "--copy cp_async"
        raise KernelError(
            f"--copy {options.copy_}: rows of A and B are aligned to {options.copy_bytes} bytes, not to {least}; use "
            f"{better}, or --alignment {least // options.element.num_bytes} if rows are padded"
        )


def _check_layout(options: GemmOptions) -> None:
    if options.element.bits == 16 or options.math == "fma" or (options.element.bits == 32 and options.math == "mma_sync"):
        return
    for operand, is_k_major, contiguous in (("A", options.are_k_major[0], "M"), ("B", options.are_k_major[1], "N")):
        if not is_k_major:
            what = "wgmma" if options.math == "wgmma" else "ldmatrix"
            raise KernelError(
                f"--layout {options.layout}: {operand} is {contiguous}-contiguous, {what} turns 16-bit "
                f"elements alone and {options.dtype} wants K-contiguous operands; use --layout tn"
                f"{', or --math mma_sync' if options.element.bits == 32 else ''}"
            )


def check_code(config: GemmConfig) -> None:
    """Refuse compiled code of another kind of kernel.

    Raises:
        KernelError: names the option or the field of the record.
    """
    for option, found, value in (
        ("math", config.compiled_code.math, config.math), ("copy", config.compiled_code.copy, config.copy_),
    ):  # fmt: skip
        if found not in ("", value):
            raise KernelError(
                f"--{option} {value}: the compiled code of {config.compiled_code.origin} has {found}; use --{option} "
                f"{found}, or the file of this kernel"
            )
    for part, field, needs, who in OF_CODE:
        value = getattr(getattr(config.compiled_code, part), field)
        if value not in (None, 0, (0, 0)) and not all(condition.holds_for(config) for condition in needs):
            raise KernelError(
                f"--compiled-code: {part} {field} is {value}: there is such code only in {who}; use the file of this "
                "kernel, or change the options"
            )


def check_shape(config: GemmConfig) -> None:
    """Refuse incompatible sizes, tiles and counts. All defaults must be filled in.

    Raises:
        KernelError: names the flag.
    """
    _check_schedule(config)
    refuse_first(config, OF_SCHEDULE, GemmOptions.model_fields)
    _check_depth_of_tile(config)
    check_partition(config)
    _check_pad(config)
    _check_swizzle(config)
    if config.math == "wgmma":
        _check_pipeline(config)
    _check_setmaxnreg(config)
    _check_cluster(config)
    _check_epilogue(config)
    _check_size(config)


def _shape_rules(field: str) -> list[Rule]:
    return [rule for rule in OF_SHAPE if rule.field == field]


def _check_schedule(config: GemmConfig) -> None:
    schedule = config.schedule
    refuse_first(config, OF_PERSISTENCE, GemmOptions.model_fields)
    if config.math == "wgmma" and config.consumer_warpgroups not in CONSUMERS[schedule]:
        counts = " or ".join(str(count) for count in CONSUMERS[schedule])
        close = min(CONSUMERS[schedule], key=lambda count: abs(count - config.consumer_warpgroups))
        raise KernelError(
            f"--consumer-warpgroups {config.consumer_warpgroups}: {schedule} has {counts} of them; use "
            f"--consumer-warpgroups {close}"
        )
    if config.batch_mode == "array" and config.copy_ == "tma" and config.persistent:
        raise KernelError(
            "--persistent: maps that a CTA makes for each tile (--batch-mode array) are not modelled; use --no-persistent"
        )
    if config.copy_ == "ldg" and config.stages > MOST_LDG_STAGES:
        raise KernelError(
            f"--stages {config.stages}: LDG holds one k-step in registers (--copy ldg), besides that of the math; use at "
            f"most --stages {MOST_LDG_STAGES}"
        )
    if config.warps[0] * config.warps[1] > 32:
        num_warps = config.warps[0] * config.warps[1]
        raise KernelError(
            f"--warps {joined(config.warps)}: {num_warps} warps, a CTA has at most 32; use --warps "
            f"{config.warps[0]}x{max(1, 32 // config.warps[0])}"
        )


def _check_depth_of_tile(config: GemmConfig) -> None:
    tile_m, tile_n, tile_k = config.tile
    is_in_rows_of_k = config.elements_of_threads.is_scalar and any(config.are_k_major)
    step = (4 if is_in_rows_of_k else 1) if config.math == "fma" else 32 // config.element.num_bytes
    if tile_k % step:
        raise TileRefused(
            f"--tile {joined(config.tile)}: K is {tile_k}, {config.math} on {config.dtype} takes "
            f"multiples of {step}", kind=KernelError, tile=(tile_m, tile_n, nearest_multiple(tile_k, step)),
        )
    num_steps = ceil_div(config.k, tile_k)
    if num_steps < config.split_k:
        raise KernelError(
            f"--split-k {config.split_k}: K = {config.k} is {num_steps} steps of {tile_k}, every part wants "
            f"one; use --split-k {num_steps}"
        )


def _check_pad(config: GemmConfig) -> None:
    """Refuse padding with which rows do not begin at multiples of the access size of copies and ldmatrix."""
    unit = 16 // config.element.num_bytes
    if config.pad % unit:
        raise KernelError(
            f"--pad {config.pad}: rows of {config.dtype} begin at multiples of {unit}, as copies and ldmatrix want; use "
            f"--pad {nearest_multiple(config.pad, unit)}"
        )


def _check_swizzle(config: GemmConfig) -> None:
    """Refuse operands whose rows in shared memory are no multiple of the swizzle's span."""
    tile = config.tile
    is_mode = config.swizzle in SWIZZLE_MODES
    if not is_mode and (config.math == "wgmma" or config.copy_ == "tma"):
        what = "wgmma" if config.math == "wgmma" else "TMA"
        mixed_up = units_remark(config.swizzle, config.element.bits)
        why = mixed_up or f"these numbers are none of them in elements of {config.element.bits} bits"
        raise KernelError(
            f"--swizzle {config.swizzle}: {what} knows none, 32B, 64B and 128B alone; {why}; use --swizzle "
            f"{config.widest_swizzle}"
        )
    for name, along, is_k_major in (("A", "M", config.are_k_major[0]), ("B", "N", config.are_k_major[1])):
        if config.math == "fma":
            return
        extent = tile[2] if is_k_major else tile["MN".index(along)]
        row_bytes = extent * config.element.num_bytes
        span = max(16, span_bytes(config.swizzle)) if is_mode else 16
        direction = "K" if is_k_major else along
        better = nearest_multiple(row_bytes, span) // config.element.num_bytes
        if row_bytes % span:
            narrower = config.widest_swizzle
            raise TileRefused(
                f"--swizzle {config.swizzle}: {name}'s rows in shared memory are {extent} {config.dtype} "
                f"({row_bytes} bytes) along {direction}, wants multiples of {span} bytes", kind=KernelError,
                tile=_with_extent(tile, direction, better),
                otherwise=f"--swizzle {narrower}" if narrower != config.swizzle else "",
            )
        if not is_mode:
            rows = tile["MN".index(along)]
            try:
                OperandTile(rows=rows, k=tile[2], dtype=config.element, is_k_major=is_k_major, swizzle=config.swizzle)
            except LayoutError as error:
                raise KernelError(f"--swizzle {config.swizzle}: {error}") from None
        if config.swizzle == "none" and config.copy_ == "tma" and config.math == "mma_sync" and extent > 256:
            raise KernelError(
                f"--swizzle none: {name}'s rows are {extent} elements, a TMA box has at most 256; use "
                "--swizzle 128B"
            )


def _check_pipeline(config: GemmConfig) -> None:
    """Refuse pipelines in which the stage of a k-step is not free when the ring comes round to it."""
    has_waited = config.is_specialized or config.prefetch == "after_wait"
    most = max(0, config.stages - (1 if has_waited else 2))
    if config.wgmma_depth > most:
        why = "no slot is ever given back" if config.is_specialized else "no slot would be free to load into"
        raise KernelError(f"--wgmma-depth {config.wgmma_depth}: with a ring of {config.stages} {why}; use at most {most}")


def _check_setmaxnreg(config: GemmConfig) -> None:
    of_producer, of_consumer = config.setmaxnreg_registers
    if not of_consumer:
        return
    refuse_first(config, _shape_rules("setmaxnreg"), GemmOptions.model_fields)
    partition = config.partition
    launched = config.registers or partition.launch_registers
    pool = launched * partition.num_warps
    wanted = of_producer * PRODUCER_WARPS + of_consumer * partition.num_math_warps
    if wanted > pool:
        most = (pool - of_producer * PRODUCER_WARPS) // partition.num_math_warps // 8 * 8
        better = f"--setmaxnreg {of_producer}/{most}"
        if config.registers:
            better = f"--registers {-(-wanted // partition.num_warps // 8) * 8}"
        raise KernelError(
            f"--setmaxnreg {config.setmaxnreg}: a producer and {config.consumer_warpgroups} consumers want "
            f"{wanted * 32} registers, the CTA is launched with {pool * 32}; use {better}"
        )


def _check_cluster(config: GemmConfig) -> None:
    size = config.num_cluster_ctas
    if size == 1:
        return
    named = f"--cluster {joined(config.cluster)}"
    if size > MAX_CLUSTER:
        along_n = max(1, MAX_CLUSTER // config.cluster[0])
        raise KernelError(
            f"{named}: {size} CTAs, a cluster has at most {MAX_CLUSTER}; use --cluster "
            f"{config.cluster[0]}x{along_n}"
        )
    refuse_first(config, _shape_rules("cluster"), GemmOptions.model_fields)


def _check_epilogue(config: GemmConfig) -> None:
    epilogue, columns = config.epilogue, config.partition.warp_tile[1] if config.is_specialized else config.tile[1]
    refuse_first(config, _shape_rules("epilogue"), GemmOptions.model_fields)
    if epilogue == "tma_reduce" and (config.beta != 1.0 or config.activation != "none" or config.clamp):
        raise KernelError(
            "--epilogue tma_reduce: L2 adds to D, wants --beta 1, no --activation and no --clamp; use --epilogue tma_store"
        )
    if config.stores_by_tma and config.stored_bytes < CHUNK_BYTES:
        raise KernelError(
            f"--epilogue {epilogue}: rows of D are aligned to {config.stored_bytes} bytes, not to {CHUNK_BYTES}; use "
            f"--epilogue smem, or --alignment {CHUNK_BYTES // config.out_element.num_bytes} if rows are padded"
        )
    row_bytes = columns * config.out_element.num_bytes
    if epilogue != "direct" and row_bytes % 16:
        raise KernelError(
            f"--epilogue {epilogue}: a staged row of D has {columns} {config.out_element.name} ({row_bytes} "
            f"bytes), wants multiples of 16 bytes; use --epilogue direct"
        )


def _check_size(config: GemmConfig) -> None:
    plan = TilePlan(config)
    elements = (config.m * config.k, config.n * config.k, config.m * config.n)
    widths = (config.element.num_bytes, config.element.num_bytes, config.out_element.num_bytes)
    num_bytes = config.batch * sum(count * width for count, width in zip(elements, widths, strict=True))
    if num_bytes > MAX_BYTES:
        raise KernelError(
            f"--m {config.m} --n {config.n} --k {config.k} --batch {config.batch}: A, B and D take "
            f"{num_bytes / 1e9:.0f} GB, wants at most {MAX_BYTES / 1e9:.0f}; use smaller ones"
        )
    if plan.num_tiles > MAX_WORK_TILES:
        raise KernelError(
            f"--tile {joined(plan.tile)}: the grid has {plan.num_tiles} tiles, wants at most "
            f"{MAX_WORK_TILES}; use a larger --tile"
        )


def _with_extent(tile: tuple[int, int, int], along: str, extent: int) -> tuple[int, int, int]:
    """The tile with ``extent`` along M, N or K."""
    m, n, k = (extent if name == along else size for name, size in zip("MNK", tile, strict=True))
    return m, n, k
