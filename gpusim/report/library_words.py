"""A GEMM's configuration in the words of CUTLASS, Triton and CuTe DSL.

In: resolved options. Out: lines of text by tool; a sentence where a tool has no such kernel.

Source: NVIDIA/cutlass (``CollectiveBuilder``, ``PersistentTileSchedulerSm90``; ``examples/python/CuTeDSL/hopper``),
triton-lang/triton (``triton.Config``, matrix multiplication tutorial).
"""

from __future__ import annotations

from gpusim.kernel_models.gemm import GemmOptions
from gpusim.kernel_models.mainloop.output import BY_TMA
from gpusim.workload.gmem.line_fetches import CHUNK_BYTES

KERNEL_SCHEDULES = {
    "warp_specialized": "KernelTmaWarpSpecialized", "cooperative": "KernelTmaWarpSpecializedCooperative",
    "pingpong": "KernelTmaWarpSpecializedPingpong",
}
EPILOGUE_SCHEDULES = {
    "warp_specialized": "TmaWarpSpecialized", "pingpong": "TmaWarpSpecialized",
    "cooperative": "TmaWarpSpecializedCooperative",
}
ELEMENTS = {
    "bf16": "BFloat16", "fp16": "Float16", "tf32": "TFloat32", "fp8": "Float8E4M3FN", "int8": "Int8", "fp32": "Float32",
}
WARPGROUP_WARPS = 4
CUTE_ROWS, CUTE_COLUMNS, CUTE_CTAS = (64, 128), (64, 128, 256), 4
"""Tiles of CuTe DSL's Hopper examples, and their most CTAs a cluster."""
CUTE_TYPES = ("bf16", "fp16", "fp8")
"""Operands of CuTe DSL's Hopper examples."""

LIBRARIES = ("cutlass", "triton", "cute_dsl")
"""Names of :func:`library_gap`."""


def library_words(params: GemmOptions) -> dict[str, list[str]]:
    """Lines by tool: ``CUTLASS``, ``Triton``, ``CuTe DSL``.

    >>> from gpusim import GemmParams, load_gpu
    >>> params = GemmParams(m=4096, n=4096, k=4096, tile="128x256x64", schedule="cooperative", epilogue="tma_store",
    ...                     cluster="2x1", persistent=True, swizzle_size=8).resolved(load_gpu("h200_sxm"))
    >>> library_words(params)["CUTLASS"][0]
    'TileShape = Shape<_128,_256,_64>; ClusterShape = Shape<_2,_1,_1>; StageCount<4>'
    """
    return {"CUTLASS": cutlass_words(params), "Triton": triton_words(params), "CuTe DSL": cute_words(params)}


def library_gap(library: str, params: GemmOptions) -> str:
    """Reason why a library has no such kernel; empty where it has one.

    >>> from gpusim import GemmParams, load_gpu
    >>> params = GemmParams(m=64, n=4096, k=512, tile="64x24x64", schedule="warp_specialized").resolved(load_gpu("h200_sxm"))
    >>> library_gap("triton", params)
    'extents of a tile are powers of two from 16 on, not 64x24x64'
    """
    return {"cutlass": _cutlass_gap, "triton": _triton_gap, "cute_dsl": _cute_gap}[library](params)


def _cutlass_gap(params: GemmOptions) -> str:
    if params.math == "wgmma" and (params.schedule == "multistage" or params.copy_ != "tma"):
        return "no collective has wgmma without a producer warp by TMA; nearest: KernelCpAsyncWarpSpecialized"
    if params.schedule == "cooperative" and params.consumer_split == "n":
        return "no builder has consumers that share the tile along N: AtomLayoutMNK = Layout<Shape<_1,_2,_1>>"
    return ""


def _triton_gap(params: GemmOptions) -> str:
    assert params.tile is not None
    tile = "x".join(map(str, params.tile))
    if any(extent & (extent - 1) for extent in params.tile) or min(params.tile) < 16:
        return f"extents of a tile are powers of two from 16 on, not {tile}"
    return "no multicast in a cluster; --library triton ranks configurations without" if params.num_cluster_ctas > 1 else ""


def _cute_gap(params: GemmOptions) -> str:
    assert params.tile is not None
    if params.split_k > 1:
        return "the examples have no split-K"
    if params.math != "wgmma" or params.copy_ != "tma":
        known = "fp32" if params.math == "fma" else "fp16"
        return "" if params.dtype in (known, "bf16") else f"no Ampere example has operands of {params.dtype}"
    if params.schedule == "pingpong":
        return "no example has consumers that take turns; nearest: the same tile in dense_gemm_persistent.py"
    if params.dtype not in CUTE_TYPES:
        return f"no Hopper example has operands of {params.dtype}"
    if params.tile[0] not in CUTE_ROWS or params.tile[1] not in CUTE_COLUMNS:
        extents = "x".join(map(str, params.tile[:2]))
        return f"tiles of the Hopper examples have 64 or 128 rows and 64, 128 or 256 columns, not {extents}"
    if params.num_cluster_ctas > CUTE_CTAS:
        return f"clusters of the Hopper examples have at most {CUTE_CTAS} CTAs"
    return ""


def cutlass_words(params: GemmOptions) -> list[str]:
    """Template arguments: of CUTLASS 3's collectives for wgmma, else of CUTLASS 2's device GEMM."""
    assert params.tile is not None
    m, n, k = params.tile
    lines = []
    if params.math == "wgmma":
        cluster = f"ClusterShape = Shape<_{params.cluster[0]},_{params.cluster[1]},_1>"
        lines.append(f"TileShape = Shape<_{m},_{n},_{k}>; {cluster}; StageCount<{params.stages}>")
        gap = _cutlass_gap(params)
        if gap:
            lines.append(gap)
        if params.schedule in KERNEL_SCHEDULES and params.copy_ == "tma":
            schedule = str(params.schedule)
            epilogue = EPILOGUE_SCHEDULES[schedule] if params.epilogue in BY_TMA else "NoSmemWarpSpecialized"
            lines.append(f"KernelSchedule = {KERNEL_SCHEDULES[schedule]}; EpilogueSchedule = {epilogue}")
        scheduler = "StreamKScheduler" if params.split_k > 1 else "PersistentScheduler"
        splits = f", .splits = {params.split_k}" if params.split_k > 1 else ""
        order = {"along_m": "AlongM", "along_n": "AlongN"}[params.raster]
        lines.append(f"{scheduler} {{.max_swizzle_size = {params.swizzle_size}, .raster_order = {order}{splits}}}")
    elif params.math == "fma":
        lines.append(f"ThreadblockShape = GemmShape<{m},{n},{k}>; OpClassSimt; Stages = {params.stages}")
    else:
        warps = params.warps or (1, 1)
        warp = f"WarpShape = GemmShape<{m // warps[0]},{n // warps[1]},{k}>"
        lines.append(f"ThreadblockShape = GemmShape<{m},{n},{k}>; {warp}; Stages = {params.stages}")
    if params.math != "wgmma":
        split = f"; split_k_slices = {params.split_k}" if params.split_k > 1 else ""
        if params.copy_bytes < CHUNK_BYTES:
            lines.append(f"AlignmentA = AlignmentB = {params.copy_bytes // params.element.num_bytes}")
        lines.append(f"GemmIdentityThreadblockSwizzle<{params.swizzle_size}>{split}")
    return [*lines, *_swapped(params)]


def triton_words(params: GemmOptions) -> list[str]:
    """A ``triton.Config`` of the tutorial's matrix multiplication."""
    assert params.tile is not None
    gap = _triton_gap(params)
    if gap and not gap.startswith("no multicast"):
        return [f"none: {gap}"]
    warps = (params.consumer_warpgroups or 1) * WARPGROUP_WARPS
    if params.math != "wgmma" and params.warps:
        warps = params.warps[0] * params.warps[1]
    if params.schedule == "pingpong":
        warps = WARPGROUP_WARPS
    names = zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), params.tile, strict=True)
    sizes = {**dict(names), "GROUP_M": params.swizzle_size, **({"SPLIT_K": params.split_k} if params.split_k > 1 else {})}
    text = ", ".join(f'"{name}": {value}' for name, value in sizes.items())
    lines = [f"triton.Config({{{text}}}, num_stages={params.stages}, num_warps={warps})"]
    if gap:
        lines.append(gap)
    if params.math == "fma":
        lines.append('tl.dot(..., input_precision="ieee") computes fp32 on FMA units')
    if params.schedule in KERNEL_SCHEDULES:
        lines.append("operands by tensor descriptors; tl.range(..., warp_specialize=True) where the GPU has it")
    if params.raster == "along_m":
        lines.append("GROUP_M counts tiles along N: exchange pid_m and pid_n")
    return [*lines, *_swapped(params)]


def cute_words(params: GemmOptions) -> list[str]:
    """Arguments of the class in CUTLASS's CuTe DSL examples that has such a kernel."""
    assert params.tile is not None
    m, n, k = params.tile
    gap = _cute_gap(params)
    if gap:
        return [f"none: {gap}"]
    if params.math != "wgmma" or params.copy_ != "tma":
        kind = "sgemm.py: SGemm" if params.math == "fma" else "tensorop_gemm.py: TensorOpGemm"
        warps = None if params.math == "fma" else params.warps
        atoms = "" if warps is None else f", atom_layout_mnk=({warps[0]}, {warps[1]}, 1)"
        return [f"ampere/{kind}(cta_tiler=({m}, {n}, {k}), num_stages={params.stages}{atoms})", *_swapped(params)]
    sums, cluster = ELEMENTS[params.accumulator or "fp32"], ", ".join(map(str, params.cluster))
    shapes = f"acc_dtype=cutlass.{sums}, tile_shape_mn=({m}, {n}), cluster_shape_mn=({cluster})"
    if params.persistent:
        order = f"swizzle_size={params.swizzle_size}, raster_along_m={params.raster == 'along_m'}"
        lines = [f"hopper/dense_gemm_persistent.py: HopperWgmmaGemmPersistentKernel({shapes}, {order})"]
    else:
        lines = [f"hopper/dense_gemm.py: HopperWgmmaGemmKernel({shapes})"]
    return [*lines, f"operands are cutlass.{ELEMENTS[params.dtype]}", *_swapped(params)]


def _swapped(params: GemmOptions) -> list[str]:
    """Note on exchanged operands; empty without."""
    if not params.swap_operands:
        return []
    return [f"operands are exchanged: problem shape ({params.n}, {params.m}, {params.k}), A is B^T, B is A^T, D is D^T"]
