"""What does a plain GEMM of Triton move and take, by tile, raster group and shape?"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpusim.evidence.cases.case import Case, Config, Product
from gpusim.evidence.cases.gemm_case import check, number_of, product_case, product_group
from gpusim.evidence.cases.paths import sass_figures
from gpusim.workload.compiled_code import NO_CODE, CompiledCode

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec

SHAPES = ((4096, 4096, 4096), (8192, 8192, 8192), (8192, 8192, 1024), (2048, 16384, 2048), (16384, 4096, 4096))
"""M, N, K."""
RASTER_GROUPS = (1, 2, 4, 8, 16)

BUILDS = (
    ((64, 64, 64), 4, (2, 3, 4)),
    ((128, 64, 64), 4, (2, 3, 4)),
    ((64, 128, 64), 4, (2, 3, 4)),
    ((64, 128, 128), 4, (2, 3)),
    ((128, 128, 64), 4, (2, 3, 4)),
    ((128, 128, 64), 8, (2, 3, 4)),
    ((128, 128, 128), 8, (2, 3)),
    ((128, 256, 64), 8, (2, 3, 4)),
    ((256, 128, 64), 8, (2, 3, 4)),
)
"""Tiles, warps, and the stages of which a CTA has room."""

COLUMNS = ("m", "n", "k", "tile", "num_stages", "num_warps", "raster_group")
WGMMA_DEPTH = 1
"""Triton waits until one group runs; ``wgmma_waits`` of a row says what ptxas made of it."""
LEAST_STAGES = 2
SASS = sass_figures("tile_gemm")
"""Tables of ``sass.toml``, with their sources."""


def configs(kernel: str, seed: int) -> list[Config]:
    """Every shape with every raster group, each with one build: all builds in a drawn order, then again.

    The order was drawn before anything was measured; other seeds draw others.
    """
    draw = random.Random(f"{seed} {kernel}")
    builds = [(tile, warps, stages) for tile, warps, every in BUILDS for stages in every]
    draw.shuffle(builds)
    pairs = list(itertools.product(SHAPES, RASTER_GROUPS))
    draw.shuffle(pairs)
    return [
        {
            "kernel": kernel, "m": str(m), "n": str(n), "k": str(k), "tile": "x".join(map(str, tile)),
            "num_stages": str(stages), "num_warps": str(warps), "raster_group": str(group),
        }
        for ((m, n, k), group), (tile, warps, stages) in zip(pairs, itertools.cycle(builds), strict=False)
    ]  # fmt: skip


def by_pointers(seed: int) -> list[Config]:
    """Operands by cp.async."""
    return configs("by_pointers", seed)


def by_descriptors(seed: int) -> list[Config]:
    """Operands and D by TMA."""
    return configs("by_descriptors", seed)


def tile_of(config: Config) -> tuple[int, int, int]:
    """M, N, K of a CTA's tile."""
    m, n, k = map(int, config["tile"].split("x"))
    return m, n, k


def launch(config: Config, is_counted: bool) -> Product:
    """The same product under the profiler as without."""
    del is_counted
    m, n, k = (int(config[name]) for name in "mnk")
    return Product(
        m=m, n=n, k=k, kernel=config["kernel"], tile=tile_of(config), num_stages=int(config["num_stages"]),
        num_warps=int(config["num_warps"]), raster_group=int(config["raster_group"]),
    )  # fmt: skip


def code_of(config: Config, row: Mapping[str, str]) -> CompiledCode:
    """Figures of a build in ``sass.toml``; registers and wait depth of its measured row, where it has them.

    Where cp.async loads, most of the loop's own instructions make addresses, which the model's copies have with them.
    """
    waits = row.get("wgmma_waits", "").split()
    mainloop: dict[str, Any] = {"wgmma_depth": int(waits[0])} if waits else {}
    registers = number_of(row, "launch__registers_per_thread") or number_of(row, "registers")
    code = NO_CODE.replaced(source="sass", origin=f"{config['kernel']} of Triton", registers=registers)
    if config["kernel"] == "by_pointers":
        return code.replaced(mainloop={**mainloop, "imad_wide_per_copy": SASS["all"]["imad_wide_per_copy"]})
    cycles = SASS["step"][f"{config['tile']} {config['num_warps']}"][int(config["num_stages"]) - LEAST_STAGES]
    return code.replaced(
        mainloop={**mainloop, "chain_cycles": cycles}, producer={"chain_cycles": SASS["all"]["copy_cycles"]}
    )



def options(config: Config, row: Mapping[str, str], gpu: GpuSpec) -> dict[str, Any]:
    """Options of the GEMM model. What the compiler made of it is read off the compiled kernel.

    Triton's loop, as its TTGIR and SASS have it: wait for the slot (and meet, by cp.async), issue the math, wait until one
    group runs, meet, load into the slot that this has freed; so stages less one are loaded ahead. A warpgroup has its part
    of the rows. D goes through shared memory: to 16-byte stores of rows, or to TMA.
    """
    del gpu
    by_tma = config["kernel"] == "by_descriptors"
    return {
        **{name: int(config[name]) for name in "mnk"}, "layout": "tn", "tile": config["tile"],
        "stages": int(config["num_stages"]), "schedule": "multistage", "math": "wgmma",
        "copy": "tma" if by_tma else "cp_async",
        "consumer_warpgroups": int(config["num_warps"]) // 4, "consumer_split": "m",
        "epilogue": "tma_store" if by_tma else "smem",
        "wgmma_depth": WGMMA_DEPTH, "prefetch": "after_wait", "fence": by_tma,
        "raster": "along_n", "swizzle_size": int(config["raster_group"]),
        **({"prefetch_tensormap": False} if by_tma else {}), "compiled_code": code_of(config, row),
    }  # fmt: skip


def told(config: Config, facts: Mapping[str, str]) -> dict[str, str]:
    """Nothing beside what Triton tells."""
    del config, facts
    return {}


def families(group: str, config: Config) -> tuple[str, ...]:
    """By how operands come."""
    del group
    return (f"tile_gemm {config['kernel']}",)


CASE = product_case(
    Case(
        name="tile_gemm",
        question=__doc__,
        framework="triton",
        columns=COLUMNS,
        groups={"descriptors": product_group(by_descriptors), "pointers": product_group(by_pointers)},
        launch=launch,
        text_columns=told,
        families=families,
        values={
            "smem_bytes": "shared memory of a CTA, as Triton tells",
            "registers": "of a thread, of the compiled kernel",
            "spills": "loads and stores of local memory, in its SASS",
            "wgmma": "shapes of wgmma, and how often each stands in its SASS",
            "wgmma_waits": "groups that each wait leaves in flight, in order, in its SASS",
            "cp_async_waits": "the same of cp.async; Triton commits A and B apart",
            "opcodes": "copies and stores that stand in its SASS",
        },
        check=check,
    ),
    options=options,
)
