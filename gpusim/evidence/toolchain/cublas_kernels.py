"""Options of the GEMM model for a cuBLAS kernel, from its name, its launch, and assumptions where neither has them.

In: a GEMM's config (``m``, ``n``, ``k``, ``dtype``, ``layout``) and the text that a profiler gave of its launch
(``launched``, ``grid``, ``block``). Out: options of ``gpusim predict gemm``. The only property of a GPU used is its number
of SMs.

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

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec

LARGEST_SWIZZLE = 8
WGMMA_ROWS = 64
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
        return ("cp.async", "D through shared memory", "order of tiles")
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
    * Kernels of older families are multistage, by cp.async and mma.sync, and store D through shared memory.
    """
    launched = row.get("launched", "")
    kernel = parse_name(launched)
    if kernel is None:
        return None
    kernel, is_ours = as_made(kernel)
    m, n = (int(config[side]) for side in ("mn" if is_ours else "nm"))
    layout = config["layout"] if is_ours else {"tn": "tn", "tt": "nn"}[config["layout"]]
    found: dict[str, Any] = {
        "m": m, "n": n, "k": int(config["k"]), "dtype": config["dtype"], "layout": layout,
        "tile": "x".join(map(str, kernel.tile)),
    }  # fmt: skip
    if kernel.stages is not None:
        found["stages"] = kernel.stages
    num_ctas = math.prod(map(int, row["grid"].split("x"))) if row.get("grid") else None
    split_k = split_of(kernel, m, n, num_ctas)
    if split_k is None:
        return None
    if split_k > 1:
        found |= {
            "split_k": split_k, "epilogue": "direct",
            "split_k_mode": "second_kernel" if is_reduction(launched) else "in_kernel",
            **({"splitk_reduction": "scalar"} if is_reduction(launched) else {}),
        }  # fmt: skip
    if not kernel.is_wgmma:
        registers = number_of(row, "launch__registers_per_thread")
        extra = {} if registers is None else {"registers": registers}
        epilogue = {} if split_k > 1 else {"epilogue": "smem"}
        return {**found, **extra, **epilogue, "math": "mma_sync", "copy": "cp_async", "schedule": "multistage"}
    return {**found, **_specialized(kernel, row, m, n, split_k, num_ctas)}


def _specialized(
    kernel: NamedKernel, row: Mapping[str, str], m: int, n: int, split_k: int, num_ctas: int | None
) -> dict[str, Any]:
    """Options of a warp-specialized kernel: schedule, cluster, and the dimension along which tiles are walked."""
    threads = math.prod(map(int, row["block"].split("x"))) if row.get("block") else PRODUCER_THREADS + 2 * CONSUMER_THREADS
    consumers = max(1, (threads - PRODUCER_THREADS) // CONSUMER_THREADS)
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
        found["epilogue"] = "tma_store"
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
