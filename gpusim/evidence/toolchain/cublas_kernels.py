"""Options of the GEMM model for a cuBLAS kernel, from its name, its launch, and assumptions where neither has them.

In: a GEMM's config (``m``, ``n``, ``k``, ``dtype``, ``layout``, and any of :data:`KNOBS`). Also the text that a profiler
gave of its launch (``launched``, ``grid``, ``block``). Out: options of ``gpusim predict gemm``. The only property of a GPU
used is its number of SMs.

Models:

* the GEMM as the library computes it, D^T = B^T A^T, whose M is the caller's N

Ignores:

* families that :mod:`gpusim.evidence.toolchain.cublas_names` does not read

Source: kernels/tile_order for bands of tiles, and CUTLASS for those of families other than nvjet. Other assumptions are
listed by :func:`assumed`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpusim.evidence.cases.case import Config
from gpusim.evidence.cases.gemm_case import number_of
from gpusim.evidence.toolchain.cublas_names import NamedKernel, is_reduction, parse_name
from gpusim.kernel_models.gemm.compatibility import LEAST_CP_ASYNC_BYTES
from gpusim.units import WARP_SIZE
from gpusim.workload.dtypes import dtype

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec

KNOBS = ("batch", "batch_mode", "alpha", "beta", "bias", "activation")
"""Options that a config may have besides shape, type and layout."""

FACTS: Mapping[str, str] = {
    "library_family": "of the first kernel's name; empty where it cannot be read, and then nothing is predicted",
    "library_tile": "M, N, K of its tile, in the library's order: its M is our N",
    "library_stages": "slots of its ring",
    "library_cluster": "CTAs of a cluster along its M and N",
    "library_cooperates": "the dimension of the tile that two warpgroups share",
    "library_walks": "the dimension along which tiles are walked",
    "library_split_k": "whether parts of K are CTAs of their own",
    "library_schedule": "who multiplies, as name, grid and block have it",
    "library_assumed": "what neither name nor launch says, and the prediction takes for granted",
}
"""Columns of a row that :func:`name_facts` gives, with their meaning."""

LARGEST_SWIZZLE = 8
WGMMA_ROWS = 64
WIDEST_BYTES, STAGES_OF_LDG, MIN_BAND = 16, 2, 2
"""Bytes of the widest copy of a lane; stages of kernels that load by LDG (CUTLASS ``MmaPipelined``); tiles across a band."""
CONSUMER_THREADS, PRODUCER_THREADS = 128, 128


def name_facts(config: Config, facts: Mapping[str, str]) -> dict[str, str]:
    """Properties in the kernel's name, in the library's order (its M is the caller's N); empty if the name cannot be read.

    ``library_schedule`` and ``library_assumed`` are what the model derives from it.
    """
    kernel = parse_name(facts.get("launched", ""))
    if kernel is None:
        return {}
    found = kernel_options(config, facts)
    ways = {True: ", walks over tiles", False: ", a CTA a tile", None: ""}
    return {
        "library_schedule": "" if found is None else f"{found['schedule']}{ways[found.get('persistent')]}",
        "library_assumed": "; ".join(assumed(kernel)),
        "library_family": kernel.family, "library_tile": "x".join(map(str, kernel.tile)),
        "library_stages": str(kernel.stages or ""), "library_cluster": "x".join(map(str, kernel.cluster)),
        "library_cooperates": kernel.cooperates_along or "", "library_walks": kernel.walks_along or "",
        "library_split_k": "yes" if kernel.is_split_k else "",
    }  # fmt: skip


def assumed(kernel: NamedKernel) -> tuple[str, ...]:
    """Properties that the model needs and that neither the name, the launch nor the SASS of ``kernel`` has.

    Source of nvjet's properties: SASS of eleven kernels (a producer warp by TMA, D by TMA, a tile per warpgroup without
    coop).
    """
    if not kernel.is_wgmma:
        unsaid = ("cp.async or LDG", "D through shared memory", "order of tiles")
        return (*unsaid, "K of a step", "stages") if kernel.family == "sgemm" else unsaid
    parts = ("order of parts of K",) if kernel.is_split_k else ()
    if kernel.family == "nvjet":
        return ("one group of wgmma in flight", *parts)
    turns = () if kernel.cooperates_along else ("who shares a tile",)
    return ("a producer warp by TMA", "D by TMA", "one group of wgmma in flight", "order of tiles", *parts, *turns)


def as_made(kernel: NamedKernel) -> tuple[NamedKernel, bool]:
    """(``kernel`` in the model's order, whether its M is the caller's M); the library's own M is the caller's N.

    >>> from gpusim.evidence.toolchain.cublas_names import parse_name
    >>> as_made(parse_name("nvjet_tst_168x128_64x5_2x1_v_bz_coopB_TNN"))[1]
    True
    """
    if kernel.is_wgmma and kernel.tile[0] % WGMMA_ROWS and not kernel.tile[1] % WGMMA_ROWS:
        return kernel.turned, True
    return kernel, False


def options(config: Config, row: Mapping[str, str], gpu: GpuSpec) -> dict[str, Any] | None:
    """Options of the GEMM model: :func:`kernel_options`, and bands of tiles by how many clusters run at once on ``gpu``."""
    found, kernel = kernel_options(config, row), parse_name(row.get("launched", ""))
    if found is None or kernel is None or not kernel.is_wgmma:
        return found
    made = as_made(kernel)[0]
    return {**found, **_bands(made, int(found["m"]), int(found["n"]), gpu.num_sms)}


def kernel_options(config: Config, row: Mapping[str, str]) -> dict[str, Any] | None:
    """Options from name and launch that hold on any GPU: all but the bands of tiles; None where the name cannot be read.

    The GEMM is described as the library computes it: D^T = B^T A^T, M and N exchanged. It is described as the caller sees it
    if only the tile's other extent is a multiple of the 64 rows of a wgmma.

    If an nvjet's name has no coop, a tile belongs to one warpgroup. Two warpgroups alternate; with one CTA per tile one of
    them is idle. Source: counted wgmma, 64 x 48 x 16 in one warpgroup each (half a tile each would be two).

    Assumptions beyond name and launch:

    * nvjet and xmma kernels with wgmma have a producer that loads by TMA, and store D by TMA.
    * nvjet fetches no tensor map before its first copy (no UTMACCTL in its SASS).
    * 384 threads are two consumers.
    * One group of wgmma is left in flight.
    * Bands of nvjet are those of ``kernels/tile_order`` (:func:`band`), bands of others those of CUTLASS's scheduler.
    * Split-K adds in the kernel unless a second kernel ran, which adds element by element (SASS of splitKreduce_kernel).
    * Kernels of older families are multistage, by mma.sync or FFMA, and store D through shared memory.
    * Their parts of K are the grid's third extent, and add to D one behind the other where no second kernel ran.
    * They load by cp.async, with two stages by LDG.
    * Rows of D are aligned as those of A and B are. A bias vector costs the same along M and along N.
    """
    launched = row.get("launched", "")
    kernel = parse_name(launched)
    if kernel is None:
        return None
    kernel, is_ours = as_made(kernel)
    m, n = (int(config[side]) for side in ("mn" if is_ours else "nm"))
    found: dict[str, Any] = {
        "m": m, "n": n, "k": int(config["k"]), "dtype": config["dtype"],
        "layout": config["layout"] if is_ours else turned_layout(config["layout"]),
        "tile": "x".join(map(str, kernel.tile)), **{name: config[name] for name in KNOBS if config.get(name)},
    }  # fmt: skip
    alignment = alignment_of(kernel, config)
    if alignment is not None:
        found["alignment"] = alignment
    if kernel.stages is not None:
        found["stages"] = kernel.stages
    grid = tuple(map(int, row["grid"].split("x"))) if row.get("grid") else None
    num_ctas, batch = None if grid is None else math.prod(grid), int(config.get("batch") or 1)
    split_k = split_of(kernel, m, n, None if num_ctas is None else num_ctas // batch)
    if not kernel.is_wgmma and grid is not None and batch == 1:
        split_k = grid[2]  # names of older families do not have it
    if split_k is None:
        return None
    if split_k > 1:
        found |= {
            "split_k": split_k, "epilogue": "direct",
            "split_k_mode": "second_kernel" if is_reduction(launched) else "in_kernel" if kernel.is_wgmma else "serial",
            **({"splitk_reduction": "scalar"} if is_reduction(launched) else {}),
        }  # fmt: skip
    if not kernel.is_wgmma:
        is_narrow = alignment is not None and alignment * dtype(config["dtype"]).num_bytes < LEAST_CP_ASYNC_BYTES
        by_ldg = is_narrow or kernel.stages == STAGES_OF_LDG
        found |= _by_warps(kernel, row, has_sums=split_k > 1 and is_reduction(launched), by_ldg=by_ldg)
        return found | (_cutlass_grid(grid[0], -(-n // kernel.tile[1])) if grid and kernel.family == "cutlass" else {})
    return {**found, **_specialized(kernel, row, m, n, split_k, None if num_ctas is None else num_ctas / batch)}


def idle_warps(found: Mapping[str, Any], row: Mapping[str, str]) -> int:
    """Warps of a launch without a role: a second consumer warpgroup whose turn never comes, as its CTA has one tile.

    >>> idle_warps({"schedule": "warp_specialized"}, {"block": "384x1x1"}), idle_warps({"schedule": "pingpong"}, {})
    (4, 0)
    """
    is_alone = found.get("schedule") == "warp_specialized"
    return (_consumers(row) - 1) * CONSUMER_THREADS // WARP_SIZE if is_alone else 0


def _consumers(row: Mapping[str, str]) -> int:
    """Consumer warpgroups of a warp-specialized kernel by its threads; two where these are not known."""
    threads = math.prod(map(int, row["block"].split("x"))) if row.get("block") else PRODUCER_THREADS + 2 * CONSUMER_THREADS
    return max(1, (threads - PRODUCER_THREADS) // CONSUMER_THREADS)


def turned_layout(layout: str) -> str:
    """BLAS letters of D^T = B^T A^T for those of D = A B.

    >>> [turned_layout(layout) for layout in ("tn", "tt", "nn", "nt")]
    ['tn', 'nn', 'tt', 'nt']
    """
    return f"{'t' if layout[1] == 'n' else 'n'}{'n' if layout[0] == 't' else 't'}"


def alignment_of(kernel: NamedKernel, config: Config) -> int | None:
    """Elements to which rows are aligned: those in the name, or of the shortest rows; None where they have 16 bytes.

    >>> from gpusim.evidence.toolchain.cublas_names import parse_name
    >>> kernel = parse_name("ampere_bf16_s16816gemm_bf16_64x64_ldg8_relu_f2f_stages_64x6_tn")
    >>> alignment_of(kernel, {"m": "64", "n": "64", "k": "4090", "dtype": "bf16", "layout": "tn"})
    2
    """
    width = dtype(config["dtype"]).num_bytes
    (m, n, k), layout = (int(config[name]) for name in "mnk"), config["layout"]
    extents = k if layout[0] == "t" else m, k if layout[1] == "n" else n, n
    narrowest = min(extent & -extent for extent in extents)
    elements = min(WIDEST_BYTES // width, narrowest, kernel.alignment or narrowest)
    return None if elements * width >= WIDEST_BYTES or kernel.is_wgmma else elements


def _cutlass_grid(num_ctas: int, num_along: int) -> dict[str, Any]:
    """Options for bands of tiles: the grid's first extent is their width times ``num_along`` tiles.

    Source: NVIDIA/cutlass, ``GemmIdentityThreadblockSwizzle``.

    >>> _cutlass_grid(184, 46)
    {'swizzle_size': 4, 'raster_order': 'full_bands'}
    """
    width, rest = divmod(num_ctas, num_along)
    return {} if rest or width < MIN_BAND else {"swizzle_size": width, "raster_order": "full_bands"}


def _by_warps(kernel: NamedKernel, row: Mapping[str, str], *, has_sums: bool, by_ldg: bool) -> dict[str, Any]:
    """Options of a kernel of mma.sync or FFMA."""
    registers = number_of(row, "launch__registers_per_thread")
    found: dict[str, Any] = {
        "math": "fma" if kernel.is_fma else "mma_sync", "copy": "ldg" if by_ldg else "cp_async", "schedule": "multistage",
        **({} if registers is None else {"registers": registers}), **({} if has_sums else {"epilogue": "smem"}),
    }  # fmt: skip
    if kernel.warps is not None:
        found["warps"] = "x".join(map(str, kernel.warps))
    return found


def _specialized(
    kernel: NamedKernel, row: Mapping[str, str], m: int, n: int, split_k: int, num_ctas: float | None
) -> dict[str, Any]:
    """Options of a warp-specialized kernel: schedule, cluster, and the dimension along which tiles are walked."""
    consumers = _consumers(row)
    num_tiles = tiles_of(kernel, m, n)
    is_persistent = split_k == 1 and num_ctas is not None and num_ctas < num_tiles
    found: dict[str, Any] = {
        "math": "wgmma", "copy": "tma", "prefetch_tensormap": kernel.family != "nvjet",
        "cluster": "x".join(map(str, kernel.cluster)), "persistent": is_persistent,
        "raster": f"along_{kernel.walks_along or 'm'}",
    }  # fmt: skip
    if math.prod(kernel.cluster) > 1:
        found["cluster_sync"] = "relaxed"  # as in CUTLASS
    if split_k == 1:
        found["epilogue"] = "tma_reduce" if "_badd" in row.get("launched", "") else "tma_store"
    if consumers == 1:
        return {**found, "schedule": "warp_specialized"}
    if kernel.family == "nvjet" and kernel.cooperates_along is None and consumers == 2:
        return {**found, "schedule": "pingpong" if is_persistent else "warp_specialized"}
    split = kernel.cooperates_along or ("m" if kernel.tile[0] % (64 * consumers) == 0 else "n")
    return {**found, "schedule": "cooperative", "consumer_warpgroups": consumers, "consumer_split": split}


def _bands(kernel: NamedKernel, m: int, n: int, num_sms: int) -> dict[str, Any]:
    """Options for bands of tiles: those of nvjet, or for other families those of CUTLASS's scheduler.

    A cluster of nvjet looks up its first tile by its number, in a table among the kernel's parameters. Source: SASS
    (``ULDC.U8`` at ``SR_CTAID``). The table's order comes from late clusters in kernels/tile_order, whose tiles go GPC by
    GPC. CTAs without a cluster are distributed in that order anyway.
    """
    if kernel.family == "nvjet":
        ranks = math.prod(kernel.cluster)
        table = {"raster_order": "gpc"} if ranks > 1 else {}
        return {"swizzle_size": band(kernel, num_sms // ranks), "raster_boustrophedon": True, **table}
    return {"swizzle_size": cutlass_band(kernel, m, n)}


def cutlass_band(kernel: NamedKernel, m: int, n: int) -> int:
    """Clusters across a band, CUTLASS's swizzle: 8, 4, 2 or 1, by the smaller number of tiles along M or N.

    Source: NVIDIA/cutlass, ``get_log_swizzle_size`` of its persistent tile scheduler, whose largest is 8 here.
    """
    fewest = min(-(-m // kernel.tile[0]), -(-n // kernel.tile[1]))
    for least, width in ((6, LARGEST_SWIZZLE), (3, 4), (2, 2)):
        if fewest >= least:
            return width
    return 1


def tiles_of(kernel: NamedKernel, m: int, n: int) -> int:
    """Tiles of D, rounded up to full clusters."""
    sides = zip((m, n), kernel.tile[:2], kernel.cluster, strict=True)
    return math.prod(-(-extent // (tile * ranks)) * ranks for extent, tile, ranks in sides)


def split_of(kernel: NamedKernel, m: int, n: int, num_ctas: int | None) -> int | None:
    """CTAs that share a tile's K; None where the name has split-K and the grid is no multiple of the tiles."""
    if not kernel.is_split_k:
        return 1
    num_tiles = tiles_of(kernel, m, n)
    if num_ctas is None or num_ctas % num_tiles or num_ctas == num_tiles:
        return None
    return num_ctas // num_tiles


def band(kernel: NamedKernel, num_clusters: int) -> int:
    """Clusters across a band: about the square root of the wave, more where a tile is longer across than along.

    The library's numbers were seen only for clusters with one tile across. Tiles are those of a CTA.

    >>> from gpusim.evidence.toolchain.cublas_names import parse_name
    >>> band(parse_name("nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_TNT"), 66)
    13

    Source: kernels/tile_order, h200_sxm, 2026-11-22: read off the even shapes, confirmed by the odd ones.
    """
    across, along = (kernel.tile[0], kernel.tile[1]) if kernel.walks_along == "n" else (kernel.tile[1], kernel.tile[0])
    return max(1, round(math.sqrt(num_clusters * across / along)))
