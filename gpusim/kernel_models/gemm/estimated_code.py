"""Estimate of what a compiler makes of a GEMM that is not yet written, from probe kernels.

In: a GEMM's config. Out: :class:`gpusim.workload.compiled_code.CompiledCode`.

Models:

* medians of probes of the same schedule, math and copy, in two styles of source code
* main loops of wgmma: a k-step's chain, and the chain from each of its wgmma to the next
* main loops of mma.sync and FFMA: a plane over the copies of a thread and its elements of D, or its math
* code before a tile: a line over the copies of a thread
* epilogues: a line over the elements of D that a thread stores, and that of a split-K part
* the L2 promotion of cp.async, which ptxas chooses

Ignores:

* clusters, activation functions and C, whose instructions other parts of the model have, or none
* GPUs before Hopper: the probes are compiled for sm_90a

Source: ``kernels/probes/gemm_code``, whose script writes ``estimated_code.toml``. No validation kernel is read.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from gpusim.kernel_models.gemm.config import GemmConfig, has_sums
from gpusim.kernel_models.gemm.warp_specialized import COLUMNS_APART, LEAST_APART
from gpusim.units import DEPENDENT_CYCLES
from gpusim.workload.compiled_code import NO_CODE, CompiledCode

PATH = Path(__file__).with_suffix(".toml")
"""Figures of the probes, by kind of kernel."""


def between_cycles(num_wgmma: int, n: int) -> float:
    """Cycles of a k-step's chain from its first wgmma, of ``n`` columns, to its last.

    >>> between_cycles(4, 128), between_cycles(4, 256)
    (36.0, 84.0)
    """
    return (num_wgmma - 1) * max(LEAST_APART, n / COLUMNS_APART - 1) * DEPENDENT_CYCLES


def estimated_code(config: GemmConfig) -> CompiledCode:
    """Compiled code that probes of the kernel's kind have."""
    kind = _figures()[kind_of(config)]
    partition, is_wgmma = config.partition, config.math == "wgmma"
    by_tma = config.copy_ == "tma"
    copies, elements = 0.0 if by_tma else _copies_per_thread(config), float(partition.sums)
    mainloop: dict[str, Any] = {}
    if is_wgmma:
        mainloop["chain_cycles"] = _line(kind["step"], copies) + between_cycles(partition.num_wgmma, partition.atom.n)
        if not by_tma and not config.is_specialized:
            mainloop["imad_wide_per_copy"] = kind["imad_wide_per_copy"]
    else:
        variables = copies, elements * (config.tile[2] if config.math == "fma" else 1)
        mainloop["chain_cycles"] = _plane(kind["step"], *variables)
        if config.math == "fma":
            mainloop["instructions"] = _plane(kind["instructions"], *variables)
        elif config.register_stages == 2 and config.stages > 1:
            num_slices = config.tile[2] // config.mainloop.mma_sync.k
            mainloop |= {
                "math_before_copies": min(_plane(kind["math_before_copies"], elements), num_slices),
                "math_before_use": kind["math_before_use"],
                "math_before_barrier": _plane(kind["math_before_barrier"], elements) * num_slices,
            }
    tile, store = kind["tiles"].get("many" if config.persistent else "one"), _epilogue(config, kind["epilogue"])
    tile = tile or kind["tiles"]["one"]
    return NO_CODE.replaced(
        source="estimated", mainloop=mainloop, prologue={"chain_cycles": tile["prologue"]},
        producer={"chain_cycles": kind.get("copy", _figures()["multistage tma"]["copy"]) if by_tma else 0.0},
        tile_scheduler={
            "chain_cycles": _line(tile["chain"], copies), "chain_during_wgmma_cycles": tile["during_wgmma"],
            "chain_after_turn_cycles": tile["turn"] if config.schedule == "pingpong" else 0.0, "imad_wide": tile["wide"],
        },
        epilogue={
            "chain_cycles": _line(store["chain"], elements),
            "chain_during_wgmma_cycles": _line(store["during_wgmma"], elements),
            "imad_wide": _line(store["wide"], elements),
        },
    )  # fmt: skip


def estimated_l2_promotion(config: GemmConfig) -> int:
    """Least bytes that L2 fetches on a miss of a cp.async, as ptxas chooses for the kernel's kind; 0: those asked for."""
    return int(_figures()[kind_of(config)].get("l2_promotion", 0))


def _epilogue(config: GemmConfig, paths: dict[str, Any]) -> dict[str, Any]:
    """Figures of D's path, or of the nearest one that was probed."""
    path = "part" if has_sums(config) else "tma_store" if config.stores_by_tma else config.epilogue
    nearest = "smem" if path == "tma_store" and "smem" in paths else "direct"
    figures: dict[str, Any] = paths.get(path, paths[nearest])
    return figures


def kind_of(config: GemmConfig) -> str:
    """Kind of probes that a kernel is like. Two kinds were not probed and have the nearest one's figures.

    These are a producer that copies by cp.async, and mma.sync with TMA.
    """
    if config.math == "mma_sync":
        return f"mma_sync {config.register_stages}{' stage 1' if config.stages == 1 else ''}"
    if config.math == "fma":
        return f"fma {min(2, config.stages)}"
    if config.schedule == "multistage":
        return f"multistage {config.copy_}"
    return "pingpong tma" if config.schedule == "pingpong" else "specialized tma"


@cache
def _figures() -> dict[str, dict[str, Any]]:
    return tomllib.loads(PATH.read_text(encoding="utf-8"))


def _line(figures: list[float], over: float) -> float:
    """A line (offset, slope), which no probe was below."""
    offset, slope, least = figures
    return max(least, offset + slope * over)


def _plane(figures: list[float], *over: float) -> float:
    """A line or plane (offset, slopes), between the least and the most of any probe."""
    offset, *slopes, least, most = figures
    return min(most, max(least, offset + sum(slope * value for slope, value in zip(slopes, over, strict=True))))


def _copies_per_thread(config: GemmConfig) -> float:
    """cp.async or LDG of a thread in a k-step."""
    threads = 32 * config.partition.num_warps
    total, shape = 0.0, config.mainloop
    for which, rows in enumerate(config.tile[:2]):
        num_bytes = rows * config.tile[2] * config.element.num_bytes
        total += num_bytes / shape.bytes_of_copy(which)
    return total / threads
