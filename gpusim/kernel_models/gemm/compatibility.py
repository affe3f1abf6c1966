"""Compatibility of a GEMM's options. A refusal names the flag, its value, valid values, and what to use instead."""

from __future__ import annotations

from gpusim.errors import KernelError, LaunchError, LayoutError, nearest_multiple
from gpusim.kernel_models.gemm.advice import TileRefused
from gpusim.kernel_models.gemm.applicability import (
    OF_INSTRUCTIONS,
    OF_SCHEDULE,
    OF_SHAPE,
    WANTS_FEATURE,
    Rule,
    refuse_first,
    typed,
)
from gpusim.kernel_models.gemm.defaults import widest_swizzle
from gpusim.kernel_models.gemm.options import MAX_CLUSTER, PORTABLE_CLUSTER, GemmOptions
from gpusim.kernel_models.gemm.registers import launch_registers
from gpusim.kernel_models.gemm.tile_grid import TilePlan, ceil_div
from gpusim.kernel_models.gemm.warp_partition import (
    PRODUCER_WARPS,
    Shares,
    check_shares,
    consumer_registers,
    producer_registers,
)
from gpusim.layout.notation import units_remark
from gpusim.layout.swizzle import SWIZZLE_MODES, span_bytes
from gpusim.workload.launch import Target
from gpusim.workload.operands import OperandTile

MAX_WORK_TILES = 1 << 22
"""Maximum number of work tiles in a grid. A larger grid's traffic plan would take minutes."""

MAX_BYTES = 1 << 38
"""Maximum bytes of A, B and D: more than the memory of each described GPU."""

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


def check_places(given: GemmOptions, params: GemmOptions, gpu: Target) -> None:
    """Refuse a raster order by GPC (``given``) that leaves CTAs without a cluster in numerical order (``params``).

    Raises:
        KernelError: names the flag.
    """
    places = params.raster_order
    if given.raster_order == "gpc" and given.num_cluster_ctas == 1 and places == _in_order(places.count(",") + 1):
        raise KernelError(
            f"--raster-order gpc: without clusters neighbours run in one GPC of {gpu.name} anyway, so that nothing would "
            "change; use --cluster 2x1, or leave it out"
        )


def _in_order(num: int) -> str:
    return ",".join(map(str, range(num)))


def check_kinds(params: GemmOptions) -> None:
    """Refuse incompatible instructions, types and options, before the shape is checked.

    Raises:
        KernelError: names the flag.
    """
    math, schedule = params.math, params.schedule
    if math == "fma" and params.dtype != "fp32":
        raise KernelError(
            f"--math fma: multiplies fp32, --dtype is {params.dtype}; use --math mma_sync or wgmma"
        )
    if params.dtype == "fp32" and math != "fma":
        raise KernelError(f"--math {math}: does not take --dtype fp32; use --math fma, or --dtype tf32")
    if schedule not in (None, "multistage") and math != "wgmma":
        other = "--dtype tf32" if math == "fma" else "--math wgmma"
        raise KernelError(
            f"--schedule {schedule}: its consumers run wgmma, the math is {math}; use --schedule multistage, "
            f"or {other}"
        )
    if math == "fma" and params.copy_ == "tma":
        raise KernelError("--copy tma: the fma kernel loads by cp.async; use --copy cp_async")
    if params.element.kind == "float" and params.out_element.kind == "int":
        raise KernelError(
            f"--out-dtype {params.out_dtype}: products of {params.dtype} are fp32; use --out-dtype "
            "fp32 or bf16"
        )
    for what, begin, end in (
        ("producer", params.producer_code_begin, params.producer_code_end),
        ("store", params.store_code_begin, params.store_code_end),
        ("last-part", params.last_part_code_begin, params.last_part_code_end),
    ):
        if end < begin or (begin and end == begin):
            raise KernelError(
                f"--{what}-code-begin {begin} --{what}-code-end {end}: code must end behind its begin; use the addresses "
                "that SASS has, or leave both out"
            )
    refuse_first(params, OF_INSTRUCTIONS)
    _check_layout(params)


def _check_layout(params: GemmOptions) -> None:
    if params.element.bits == 16 or params.math == "fma":
        return
    for operand, is_k_major, contiguous in (("A", params.is_a_k_major, "M"), ("B", params.is_b_k_major, "N")):
        if not is_k_major:
            what = "wgmma" if params.math == "wgmma" else "ldmatrix"
            raise KernelError(
                f"--layout {params.layout}: {operand} is {contiguous}-contiguous, {what} turns 16-bit "
                f"elements alone and {params.dtype} wants K-contiguous operands; use --layout tn"
            )


def check_shape(params: GemmOptions) -> None:
    """Refuse incompatible sizes, tiles and counts. All defaults must be filled in.

    Raises:
        KernelError: names the flag.
    """
    _check_schedule(params)
    refuse_first(params, OF_SCHEDULE)
    _check_depth_of_tile(params)
    check_shares(params)
    _check_pad(params)
    _check_swizzle(params)
    if params.math == "wgmma":
        _check_pipeline(params)
    _check_setmaxnreg(params)
    _check_cluster(params)
    _check_epilogue(params)
    _check_size(params)


def _shape_rules(field: str) -> list[Rule]:
    return [rule for rule in OF_SHAPE if rule.field == field]


def _check_schedule(params: GemmOptions) -> None:
    schedule = params.schedule
    assert schedule is not None  # resolved
    if schedule == "pingpong" and not params.persistent:
        raise KernelError(
            "--no-persistent: pingpong's consumers take turns at the tiles of one CTA; use --persistent, or "
            "--schedule cooperative"
        )
    if params.split_k > 1 and params.persistent:
        better = "--schedule cooperative" if schedule == "pingpong" else "--no-persistent"
        raise KernelError(
            f"--split-k {params.split_k}: the parts of a tile are CTAs of their own; use {better}"
        )
    if params.math == "wgmma" and params.consumer_warpgroups not in CONSUMERS[schedule]:
        counts = " or ".join(str(count) for count in CONSUMERS[schedule])
        assert params.consumer_warpgroups is not None  # resolved
        close = min(CONSUMERS[schedule], key=lambda count: abs(count - (params.consumer_warpgroups or 0)))
        raise KernelError(
            f"--consumer-warpgroups {params.consumer_warpgroups}: {schedule} has {counts} of them; use "
            f"--consumer-warpgroups {close}"
        )
    if params.warps is not None and params.warps[0] * params.warps[1] > 32:
        num_warps = params.warps[0] * params.warps[1]
        raise KernelError(
            f"--warps {_joined(params.warps)}: {num_warps} warps, a CTA has at most 32; use --warps "
            f"{params.warps[0]}x{max(1, 32 // params.warps[0])}"
        )


def _check_depth_of_tile(params: GemmOptions) -> None:
    tile_m, tile_n, tile_k = Shares(params).tile
    step = 1 if params.math == "fma" else 32 // params.element.num_bytes
    if tile_k % step:
        raise TileRefused(
            f"--tile {_joined(Shares(params).tile)}: K is {tile_k}, {params.math} on {params.dtype} takes "
            f"multiples of {step}", kind=KernelError, tile=(tile_m, tile_n, nearest_multiple(tile_k, step)),
        )
    num_steps = ceil_div(params.k, tile_k)
    if num_steps < params.split_k:
        raise KernelError(
            f"--split-k {params.split_k}: K = {params.k} is {num_steps} steps of {tile_k}, every part wants "
            f"one; use --split-k {num_steps}"
        )


def _check_pad(params: GemmOptions) -> None:
    """Refuse padding with which rows do not begin at multiples of the access size of copies and ldmatrix."""
    unit = 16 // params.element.num_bytes
    if params.pad % unit:
        raise KernelError(
            f"--pad {params.pad}: rows of {params.dtype} begin at multiples of {unit}, as copies and ldmatrix want; use "
            f"--pad {nearest_multiple(params.pad, unit)}"
        )


def _check_swizzle(params: GemmOptions) -> None:
    """Refuse operands whose rows in shared memory are no multiple of the swizzle's span."""
    assert params.swizzle is not None  # resolved
    tile = Shares(params).tile
    is_mode = params.swizzle in SWIZZLE_MODES
    if not is_mode and (params.math == "wgmma" or params.copy_ == "tma"):
        what = "wgmma" if params.math == "wgmma" else "TMA"
        mixed_up = units_remark(params.swizzle, params.element.bits)
        why = mixed_up or f"these numbers are none of them in elements of {params.element.bits} bits"
        raise KernelError(
            f"--swizzle {params.swizzle}: {what} knows none, 32B, 64B and 128B alone; {why}; use --swizzle "
            f"{widest_swizzle(params)}"
        )
    for name, along, is_k_major in (("A", "M", params.is_a_k_major), ("B", "N", params.is_b_k_major)):
        if params.math == "fma":
            return
        extent = tile[2] if is_k_major else tile["MN".index(along)]
        row_bytes = extent * params.element.num_bytes
        span = max(16, span_bytes(params.swizzle)) if is_mode else 16
        direction = "K" if is_k_major else along
        better = nearest_multiple(row_bytes, span) // params.element.num_bytes
        if row_bytes % span:
            narrower = widest_swizzle(params)
            raise TileRefused(
                f"--swizzle {params.swizzle}: {name}'s rows in shared memory are {extent} {params.dtype} "
                f"({row_bytes} bytes) along {direction}, wants multiples of {span} bytes", kind=KernelError,
                tile=_with_extent(tile, direction, better),
                otherwise=f"--swizzle {narrower}" if narrower != params.swizzle else "",
            )
        if not is_mode:
            rows = tile["MN".index(along)]
            try:
                OperandTile(
                    rows=rows, k=tile[2], dtype=params.element, is_k_major=is_k_major, swizzle=params.swizzle
                )
            except LayoutError as error:
                raise KernelError(f"--swizzle {params.swizzle}: {error}") from None
        if params.swizzle == "none" and params.copy_ == "tma" and params.math == "mma_sync" and extent > 256:
            raise KernelError(
                f"--swizzle none: {name}'s rows are {extent} elements, a TMA box has at most 256; use "
                "--swizzle 128B"
            )


def _check_pipeline(params: GemmOptions) -> None:
    """Refuse pipelines in which the stage of a k-step is not free when the ring comes round to it."""
    assert params.wgmma_depth is not None  # resolved
    assert params.stages is not None
    has_waited = params.is_specialized or params.prefetch == "after_wait"
    most = max(0, params.stages - (1 if has_waited else 2))
    if params.wgmma_depth > most:
        why = "no slot is ever given back" if params.is_specialized else "no slot would be free to load into"
        raise KernelError(
            f"--wgmma-depth {params.wgmma_depth}: with a ring of {params.stages} {why}; use at most {most}"
        )


def _check_setmaxnreg(params: GemmOptions) -> None:
    of_producer, of_consumer = producer_registers(params), consumer_registers(params)
    if of_producer is None or of_consumer is None:
        return
    refuse_first(params, _shape_rules("setmaxnreg"))
    shares = Shares(params)
    assert params.consumer_warpgroups is not None  # resolved
    launched = params.registers or launch_registers(
        shares.need, math=params.math or "", num_warps=shares.num_warps, of_consumer=of_consumer
    )
    pool = launched * shares.num_warps
    wanted = of_producer * PRODUCER_WARPS + of_consumer * shares.num_math_warps
    if wanted > pool:
        most = (pool - of_producer * PRODUCER_WARPS) // shares.num_math_warps // 8 * 8
        better = f"--setmaxnreg {of_producer}/{most}"
        if params.registers is not None:
            better = f"--registers {-(-wanted // shares.num_warps // 8) * 8}"
        raise KernelError(
            f"--setmaxnreg {params.setmaxnreg}: a producer and {params.consumer_warpgroups} consumers want "
            f"{wanted * 32} registers, the CTA is launched with {pool * 32}; use {better}"
        )


def _check_cluster(params: GemmOptions) -> None:
    size = params.num_cluster_ctas
    if size == 1:
        return
    named = f"--cluster {_joined(params.cluster)}"
    if size > MAX_CLUSTER:
        along_n = max(1, MAX_CLUSTER // params.cluster[0])
        raise KernelError(
            f"{named}: {size} CTAs, a cluster has at most {MAX_CLUSTER}; use --cluster "
            f"{params.cluster[0]}x{along_n}"
        )
    refuse_first(params, _shape_rules("cluster"))
    plan = TilePlan(params)
    for which, (name, along) in enumerate((("A", "M"), ("B", "N"))):
        ways = params.cluster[1 - which]
        if not plan.can_slice(which, ways):
            operand = plan.operands[which]
            why = (
                f"{named}: {ways} CTAs share {name}, whose tile of {operand.rows} along {along} by {operand.k} along K does "
                f"not part into {ways} boxes of whole swizzle repeats"
            )
            if size > PORTABLE_CLUSTER:  # another tile would be refused for its cluster size
                raise KernelError(f"{why}; use --cluster 1x1")
            raise TileRefused(
                why, kind=KernelError,
                tile=_with_extent(plan.tile, along, nearest_multiple(operand.rows, 64 * ways)), otherwise="--cluster 1x1",
            )


def _check_epilogue(params: GemmOptions) -> None:
    epilogue, (_, columns) = params.epilogue, Shares(params).share
    if not params.is_specialized:
        columns = Shares(params).tile[1]
    refuse_first(params, _shape_rules("epilogue"))
    if params.split_k > 1 and epilogue != "direct":
        raise KernelError(
            f"--epilogue {epilogue}: with --split-k {params.split_k} the parts leave as fp32 from registers; "
            f"use --epilogue direct"
        )
    row_bytes = columns * params.out_element.num_bytes
    if epilogue != "direct" and row_bytes % 16:
        raise KernelError(
            f"--epilogue {epilogue}: a staged row of D has {columns} {params.out_element.name} ({row_bytes} "
            f"bytes), wants multiples of 16 bytes; use --epilogue direct"
        )


def _check_size(params: GemmOptions) -> None:
    plan = TilePlan(params)
    elements = (params.m * params.k, params.n * params.k, params.m * params.n)
    widths = (params.element.num_bytes, params.element.num_bytes, params.out_element.num_bytes)
    num_bytes = params.batch * sum(count * width for count, width in zip(elements, widths, strict=True))
    if num_bytes > MAX_BYTES:
        raise KernelError(
            f"--m {params.m} --n {params.n} --k {params.k} --batch {params.batch}: A, B and D take "
            f"{num_bytes / 1e9:.0f} GB, wants at most {MAX_BYTES / 1e9:.0f}; use smaller ones"
        )
    if plan.num_tiles > MAX_WORK_TILES:
        raise KernelError(
            f"--tile {_joined(plan.tile)}: the grid has {plan.num_tiles} tiles, wants at most "
            f"{MAX_WORK_TILES}; use a larger --tile"
        )


def _with_extent(tile: tuple[int, int, int], along: str, extent: int) -> tuple[int, int, int]:
    """The tile with ``extent`` along M, N or K."""
    m, n, k = (extent if name == along else size for name, size in zip("MNK", tile, strict=True))
    return m, n, k


def _joined(parts: tuple[int, ...]) -> str:
    return "x".join(str(part) for part in parts)
