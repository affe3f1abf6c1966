"""What a library's GEMM kernel is to the model: its name, its launch, and what is assumed where neither tells.

In: a product's config (``m``, ``n``, ``k``, ``dtype``, ``layout``), the text that a profiler gave of its launch
(``launched``, ``grid``, ``block``). Out: options of ``gpusim predict gemm``. Of a GPU it knows how many SMs it has.

Models: the product as the library makes it, D^T = B^T A^T, whose M is our N.
Ignores: other families than :mod:`gpusim.evidence.toolchain.cublas_names` reads.
Source: kernels/tile_order for bands of tiles, CUTLASS for those of other families than nvjet; what else is assumed is said
where it is (:func:`assumed`).
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


def told(config: Config, facts: Mapping[str, str]) -> dict[str, str]:
    """What the name of the kernel says, in the library's order (its M is our N); nothing of a name that cannot be read.

    ``library_schedule`` and ``library_assumed`` are what the model makes of it.
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
    """What neither the name nor the launch of ``kernel`` says, nor its SASS, and the model needs.

    Source of what nvjet does: SASS of eleven (a producer warp by TMA, D by TMA, a tile a warpgroup without coop).
    """
    if not kernel.is_wgmma:
        return ("cp.async", "D through shared memory", "order of tiles")
    parts = ("order of parts of K",) if kernel.is_split_k else ()
    if kernel.family == "nvjet":
        return ("one group of wgmma in flight", *parts)
    turns = () if kernel.cooperates_along else ("who shares a tile",)
    return ("a producer warp by TMA", "D by TMA", "one group of wgmma in flight", "order of tiles", *parts, *turns)


def as_made(kernel: NamedKernel) -> tuple[NamedKernel, bool]:
    """``kernel`` as the model takes it, and whether its M is ours: the library's own is our N.

    >>> from gpusim.evidence.toolchain.cublas_names import parse_name
    >>> as_made(parse_name("nvjet_tst_168x128_64x5_2x1_v_bz_coopB_TNN"))[1]
    True
    """
    if kernel.is_wgmma and kernel.tile[0] % WGMMA_ROWS and not kernel.tile[1] % WGMMA_ROWS:
        return kernel.turned, True
    return kernel, False


def options(config: Config, row: Mapping[str, str], gpu: GpuSpec) -> dict[str, Any] | None:
    """Options of the GEMM model: :func:`kernel_options`, and bands of tiles by how many clusters ``gpu`` runs at once."""
    found, kernel = kernel_options(config, row), parse_name(row.get("launched", ""))
    if found is None or kernel is None or not kernel.is_wgmma:
        return found
    made = as_made(kernel)[0]
    return {**found, **_bands(made, int(found["m"]), int(found["n"]), gpu.num_sms)}


def kernel_options(config: Config, row: Mapping[str, str]) -> dict[str, Any] | None:
    """What name and launch say on any GPU: all but the bands of tiles; None where the name cannot be read.

    The product is told as the library makes it: D^T = B^T A^T, M and N exchanged; or as we see it where only the other side
    of the tile is a multiple of the 64 rows of a wgmma.

    Where an nvjet's name says no coop, a tile is one warpgroup's: two take turns, and with a CTA a tile one has nothing to
    do. Source: counted wgmma, 64 x 48 x 16 in one each (a half of it each would be two).

    What neither name nor launch says is assumed: nvjet and xmma kernels with wgmma have a producer that loads by TMA, and
    store D by TMA; nvjet asks for no tensor map before its first copy (no UTMACCTL in its SASS); 384 threads are two
    consumers; one group of wgmma is left in flight; nvjet's bands are as those of
    ``kernels/tile_order`` (:func:`band`), others' as CUTLASS's scheduler makes them; split-K adds in the kernel unless a
    second one ran, which adds element by element (SASS of splitKreduce_kernel). Kernels of older families are multistage,
    by cp.async and mma.sync, and store D through shared memory.
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
    """Schedule, cluster, side along which tiles are walked."""
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
        found["cluster_sync"] = "relaxed"  # as CUTLASS has it
    if split_k == 1:
        found["epilogue"] = "tma_store"
    if consumers == 1:
        return {**found, "schedule": "warp_specialized"}
    if kernel.family == "nvjet" and kernel.cooperates_along is None and consumers == 2:
        return {**found, "schedule": "pingpong" if is_persistent else "warp_specialized"}
    split = kernel.cooperates_along or ("m" if kernel.tile[0] % (64 * consumers) == 0 else "n")
    return {**found, "schedule": "cooperative", "consumer_warpgroups": consumers, "consumer_split": split}


def _bands(kernel: NamedKernel, m: int, n: int, num_sms: int) -> dict[str, Any]:
    """Bands of tiles, as nvjet walks them; of other families as CUTLASS's scheduler makes them.

    A cluster of nvjet finds its first tile by its number in a table among the kernel's parameters. Source: SASS (``ULDC.U8``
    at ``SR_CTAID``); the table's places: clusters that came late in kernels/tile_order, which have them GPC by GPC. Lone
    CTAs are handed out so anyway.
    """
    if kernel.family == "nvjet":
        ranks = math.prod(kernel.cluster)
        table = {"raster_order": "gpc"} if ranks > 1 else {}
        return {"swizzle_size": band(kernel, num_sms // ranks), "raster_boustrophedon": True, **table}
    return {"swizzle_size": cutlass_band(kernel, m, n)}


def cutlass_band(kernel: NamedKernel, m: int, n: int) -> int:
    """Clusters across a band, as CUTLASS chooses its swizzle: 8, 4, 2 or 1, by how few tiles either side has.

    Source: NVIDIA/cutlass, ``get_log_swizzle_size`` of its persistent tile scheduler, whose largest is 8 here.
    """
    fewest = min(-(-m // kernel.tile[0]), -(-n // kernel.tile[1]))
    for least, width in ((6, LARGEST_SWIZZLE), (3, 4), (2, 2)):
        if fewest >= least:
            return width
    return 1


def tiles_of(kernel: NamedKernel, m: int, n: int) -> int:
    """Tiles of D, rounded up to whole clusters."""
    sides = zip((m, n), kernel.tile[:2], kernel.cluster, strict=True)
    return math.prod(-(-extent // (tile * ranks)) * ranks for extent, tile, ranks in sides)


def split_of(kernel: NamedKernel, m: int, n: int, num_ctas: int | None) -> int | None:
    """CTAs that share a tile's K; None where a name says split-K and the grid is no multiple of the tiles."""
    if not kernel.is_split_k:
        return 1
    num_tiles = tiles_of(kernel, m, n)
    if num_ctas is None or num_ctas % num_tiles or num_ctas == num_tiles:
        return None
    return num_ctas // num_tiles


def band(kernel: NamedKernel, num_clusters: int) -> int:
    """Clusters across a band: about as many as the wave's square root, more where a tile is longer across than along.

    Of the library's own numbers only those of clusters with one tile across were seen; tiles as a CTA has them.

    >>> from gpusim.evidence.toolchain.cublas_names import parse_name
    >>> band(parse_name("nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_TNT"), 66)
    13

    Source: kernels/tile_order, h200_sxm, 2026-11-22: read off the even shapes, the same in the odd ones.
    """
    across, along = (kernel.tile[0], kernel.tile[1]) if kernel.walks_along == "n" else (kernel.tile[1], kernel.tile[0])
    return max(1, round(math.sqrt(num_clusters * across / along)))
