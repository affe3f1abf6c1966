"""What does the library behind torch.matmul launch for a product, what does that move and take?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gpusim.evidence.case import Config, Product
from gpusim.evidence.library_names import NamedKernel, is_reduction, parse_name
from gpusim.evidence.products import number_of, product_case, product_group

COLUMNS = ("m", "n", "k", "dtype", "layout")

LARGE = (
    *((side, side, side, "bf16", "tn") for side in (2048, 4096, 8192, 16384)),
    (4096, 4096, 4096, "bf16", "tt"), (8192, 8192, 1024, "bf16", "tt"),
    (2048, 16384, 2048, "bf16", "tn"), (16384, 4096, 4096, "bf16", "tn"),
    (4000, 3000, 2000, "bf16", "tn"), (5000, 5000, 5000, "bf16", "tn"),
    (4096, 4096, 4096, "fp16", "tn"), (8192, 8192, 8192, "fp16", "tn"),
)  # fmt: skip
"""M, N, K, type, layout: squares, both layouts, unequal sides, edges."""

SMALL = (
    (512, 512, 512, "bf16", "tn"), (1024, 1024, 1024, "bf16", "tn"),
    (16, 4096, 4096, "bf16", "tn"), (64, 8192, 8192, "bf16", "tn"),
    (128, 8192, 4096, "bf16", "tn"), (256, 4096, 8192, "bf16", "tn"),
    (512, 512, 16384, "bf16", "tn"), (1024, 1024, 16384, "bf16", "tn"),
)  # fmt: skip
"""Few rows, deep K, little to do."""

LARGEST_SWIZZLE = 8
WGMMA_ROWS = 64
CONSUMER_THREADS, PRODUCER_THREADS = 128, 128


def configs(shapes: tuple[tuple[int, int, int, str, str], ...]) -> list[Config]:
    """One a shape; no seed draws any."""
    return [{"kernel": "matmul", **dict(zip(COLUMNS, map(str, shape), strict=True))} for shape in shapes]


def large(seed: int) -> list[Config]:
    """Products of a tenth of a millisecond and more."""
    del seed
    return configs(LARGE)


def small(seed: int) -> list[Config]:
    """Shorter ones."""
    del seed
    return configs(SMALL)


def launch(config: Config, is_counted: bool) -> Product:
    """The same product under the profiler as without."""
    del is_counted
    m, n, k = (int(config[name]) for name in "mnk")
    return Product(m=m, n=n, k=k, dtype=config["dtype"], layout=config["layout"])  # type: ignore[arg-type]  # of the tables


def told(config: Config, facts: Mapping[str, str]) -> dict[str, str]:
    """What the name of the kernel says, in the library's order (its M is our N); nothing of a name that cannot be read."""
    del config
    kernel = parse_name(facts.get("launched", ""))
    if kernel is None:
        return {}
    return {
        "library_family": kernel.family, "library_tile": "x".join(map(str, kernel.tile)),
        "library_stages": str(kernel.stages or ""), "library_cluster": "x".join(map(str, kernel.cluster)),
        "library_cooperates": kernel.cooperates_along or "", "library_walks": kernel.walks_along or "",
        "library_split_k": "yes" if kernel.is_split_k else "",
    }  # fmt: skip


def options(config: Config, row: Mapping[str, str]) -> dict[str, Any] | None:
    """Options of the GEMM model, of what the row tells of the kernel; None where its name cannot be read.

    The product is told as the library makes it: D^T = B^T A^T, M and N exchanged; or as we see it where only the other side
    of the tile is a multiple of the 64 rows of a wgmma.

    What neither name nor launch says is assumed: nvjet and xmma kernels with wgmma have a producer that loads by TMA, and
    store D by TMA; 384 threads are two consumers, which take turns at whole tiles where the name says no coop; one group of
    wgmma is left in flight; bands are as wide as CUTLASS's scheduler makes them (:func:`band`); split-K adds in the kernel
    unless a second one ran. Kernels of older families are multistage, by cp.async and mma.sync, and store D through shared
    memory.
    """
    launched = row.get("launched", "")
    kernel = parse_name(launched)
    if kernel is None:
        return None
    m, n, layout = int(config["n"]), int(config["m"]), {"tn": "tn", "tt": "nn"}[config["layout"]]
    if kernel.is_wgmma and kernel.tile[0] % WGMMA_ROWS and not kernel.tile[1] % WGMMA_ROWS:
        kernel, m, n, layout = kernel.turned, n, m, config["layout"]
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
    """Schedule, cluster, order of tiles."""
    threads = math.prod(map(int, row["block"].split("x"))) if row.get("block") else PRODUCER_THREADS + 2 * CONSUMER_THREADS
    consumers = max(1, (threads - PRODUCER_THREADS) // CONSUMER_THREADS)
    num_tiles = tiles_of(kernel, m, n)
    is_persistent = split_k == 1 and num_ctas is not None and num_ctas < num_tiles
    found: dict[str, Any] = {
        "math": "wgmma", "copy": "tma", "cluster": "x".join(map(str, kernel.cluster)), "persistent": is_persistent,
        "raster": f"along_{kernel.walks_along or 'm'}", "raster_group": band(kernel, m, n),
    }  # fmt: skip
    if split_k == 1:
        found["epilogue"] = "tma_store"
    if consumers == 1:
        return {**found, "schedule": "warp_specialized"}
    if kernel.cooperates_along is None and consumers == 2 and is_persistent:
        return {**found, "schedule": "pingpong"}
    split = kernel.cooperates_along or ("m" if kernel.tile[0] % (64 * consumers) == 0 else "n")
    return {**found, "schedule": "cooperative", "consumers": consumers, "split": split}


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


def band(kernel: NamedKernel, m: int, n: int) -> int:
    """Clusters across a band, as CUTLASS chooses its swizzle: 8, 4, 2 or 1, by how few tiles either side has.

    Source: NVIDIA/cutlass, ``get_log_swizzle_size`` of its persistent tile scheduler, whose largest is 8 here.
    """
    fewest = min(-(-m // kernel.tile[0]), -(-n // kernel.tile[1]))
    for least, width in ((6, LARGEST_SWIZZLE), (3, 4), (2, 2)):
        if fewest >= least:
            return width
    return 1


def families(group: str, config: Config) -> tuple[str, ...]:
    """By size."""
    del config
    return (f"library_gemm {group}",)


CASE = product_case(
    name="library_gemm",
    question=__doc__,
    framework="torch",
    columns=COLUMNS,
    groups={"large": product_group(large), "small": product_group(small)},
    launch=launch,
    options=options,
    told=told,
    families=families,
    dtype=lambda config: config["dtype"],
    values={
        "library_family": "of the first kernel's name; empty where it cannot be read, and then nothing is predicted",
        "library_tile": "M, N, K of its tile, in the library's order: its M is our N",
        "library_stages": "slots of its ring",
        "library_cluster": "CTAs of a cluster along its M and N",
        "library_cooperates": "the side of the tile that two warpgroups share",
        "library_walks": "the side along which tiles are walked",
        "library_split_k": "whether parts of K are CTAs of their own",
    },
)
