"""What does a plain GEMM of Triton move and take, by tile, raster group and shape?"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpusim.evidence.cases.case import Case, Config, Product
from gpusim.evidence.cases.gemm_case import check, number_of, product_case, product_group
from gpusim.units import DEPENDENT_CYCLES

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
WIDE_PER_COPY = 1
"""IMAD.WIDE.U32 for each LDGSTS in the loop's SASS, alike in all 25 builds (Triton 3.6)."""

CODE: Mapping[tuple[str, int], tuple[int, ...]] = {
    ("128x128x128", 8): (223, 223),
    ("128x128x64", 4): (211, 212, 211),
    ("128x128x64", 8): (175, 175, 175),
    ("128x256x64", 8): (184, 185, 183),
    ("128x64x64", 4): (187, 187, 189),
    ("256x128x64", 8): (210, 206, 206),
    ("64x128x128", 4): (227, 229),
    ("64x128x64", 4): (175, 179, 175),
    ("64x64x64", 4): (140, 146, 148),
}
"""Cycles that the k-loop's own instructions take a warp, in order, where TMA loads: by tile and warps, by stages from two
on; meetings and copies left out, which the program tells of (``gpusim.evidence.toolchain.issue_latency``). Where cp.async
loads, most of such
code makes addresses, which the model's copies have with them. Source: SASS of Triton 3.6.0 for sm_90
(``scripts/tile_gemm_code.py``), whose registers are the rows'."""
LEAST_STAGES = 2
COPY_CODE = 42
"""The same of the warp that asks for the boxes, until UTMALDG has read its operands: 40 to 42."""


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


def code_of(config: Config) -> dict[str, float]:
    """The k-loop's own instructions where TMA loads, to the model."""
    step = CODE[config["tile"], int(config["num_warps"])][int(config["num_stages"]) - LEAST_STAGES]
    return {"step_code": step / DEPENDENT_CYCLES, "copy_code": COPY_CODE / DEPENDENT_CYCLES}


def options(config: Config, row: Mapping[str, str], gpu: GpuSpec) -> dict[str, Any]:
    """Options of the GEMM model. Registers and the wait depth are read off the compiled kernel where the row has them.

    Triton's loop, as its TTGIR and SASS have it: wait for the slot (and meet, by cp.async), issue the math, wait until one
    group runs, meet, load into the slot that this has freed; so stages less one are loaded ahead. A warpgroup has its part
    of the rows. D goes through shared memory: to 16-byte stores of rows, or to TMA.
    """
    del gpu
    by_tma = config["kernel"] == "by_descriptors"
    waits = row.get("wgmma_waits", "").split()
    found: dict[str, Any] = {
        **{name: int(config[name]) for name in "mnk"}, "layout": "tn", "tile": config["tile"],
        "stages": int(config["num_stages"]), "schedule": "multistage", "math": "wgmma",
        "copy": "tma" if by_tma else "cp_async",
        "consumer_warpgroups": int(config["num_warps"]) // 4, "consumer_split": "m",
        "epilogue": "tma_store" if by_tma else "smem",
        "wgmma_depth": int(waits[0]) if waits else WGMMA_DEPTH, "prefetch": "after_wait", "fence": by_tma,
        "raster": "along_n", "swizzle_size": int(config["raster_group"]),
        **({"prefetch_tensormap": False, **code_of(config)} if by_tma else {"wide_per_copy": WIDE_PER_COPY}),
    }  # fmt: skip
    registers = number_of(row, "launch__registers_per_thread") or number_of(row, "registers")
    return found if registers is None else {**found, "registers": registers}


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
