"""What does an fp32 GEMM on FMA units move and take, by tile, stages, layout of its operands and shape?"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from gpusim.evidence.cases import gemm_output as sampled_products
from gpusim.evidence.cases.case import Case, Config, KernelLaunch, Outputs, Repeated
from gpusim.evidence.cases.gemm_case import METRICS, problem_of
from gpusim.evidence.cases.paths import sass_figures
from gpusim.evidence.cases.validation_kernel import COUNTED, GEMM_LIMITS, pattern, validation_case, whole_group
from gpusim.workload.compiled_code import NO_CODE, CompiledCode

TILES = ((64, 64, 8), (64, 64, 16), (128, 64, 16), (64, 128, 8), (128, 128, 8), (128, 128, 16), (256, 128, 8))
WARPS = ((2, 2), (4, 2), (2, 4))
STAGES = (1, 2, 3)
LAYOUTS = ("nt", "tt", "tn", "nn")
"""BLAS letters of A and B: t of A and n of B are contiguous along K, and turned on their way to shared memory."""
MOST_SUMS, LEAST_SUMS = 128, 16
PAD, WORD_BYTES = 4, 4
"""Elements behind each row of an operand that is turned; an element."""

SHAPES = (
    (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 2048),
    (64, 16384, 1024), (256, 4096, 4096), (8192, 128, 2048),
    (256, 256, 16384), (1024, 512, 8192), (8192, 8192, 256),
    (1000, 1096, 1044), (3000, 5000, 500), (2044, 2052, 2060), (132, 10004, 780),
)  # fmt: skip
"""M, N, K: square, skinny, deep and shallow, ragged."""
GROUPS = (1, 2, 4, 8, 16)
NUM_DRAWN_BUILDS, NUM_CONFIGS = 18, 40
LEAST_OFTEN = 3
"""Every option's value stands in so many builds at least, but for tiles: two."""


@dataclass(frozen=True, slots=True)
class Build:
    """An entry point: what is fixed when it is compiled."""

    tile: tuple[int, int, int]
    warps: tuple[int, int]
    stages: int
    layout: str

    @property
    def name(self) -> str:
        """The entry point's name."""
        tile, warps = ("x".join(map(str, numbers)) for numbers in (self.tile, self.warps))
        return f"sgemm_{tile}_{warps}_s{self.stages}_{self.layout}"

    @property
    def threads(self) -> int:
        """Of a CTA."""
        return 32 * self.warps[0] * self.warps[1]

    @property
    def ctas(self) -> int:
        """CTAs of an SM that it is compiled for: 512 threads of up to 128 registers, or half as many that have 128 sums."""
        sums = self.tile[0] * self.tile[1] // self.threads
        return (512 if 2 * sums <= MOST_SUMS else 256) // self.threads

    @property
    def is_turned(self) -> tuple[bool, bool]:
        """Whether A and B are contiguous along K."""
        return self.layout[0] == "t", self.layout[1] == "n"

    @property
    def smem_bytes(self) -> int:
        """Of a CTA: the ring."""
        rows = sum(extent + PAD * turned for extent, turned in zip(self.tile, self.is_turned, strict=False))
        return self.stages * rows * self.tile[2] * WORD_BYTES

    @property
    def is_legal(self) -> bool:
        """Whether threads have whole vectors and sums enough, and copy whole rounds."""
        m, n, k = self.tile
        rows, columns = m // self.warps[0] // 4, n // self.warps[1] // 8
        each = [extent * k // (1 if turned else 4) for extent, turned in zip((m, n), self.is_turned, strict=True)]
        return (
            rows % 4 == 0 and columns % 4 == 0 and LEAST_SUMS <= rows * columns <= MOST_SUMS
            and all(num % self.threads == 0 and num // self.threads <= 16 for num in each)
        )  # fmt: skip

    @property
    def entry(self) -> str:
        """Its line of ``shapes.inc``."""
        numbers = ", ".join(map(str, (self.threads, self.ctas, *self.tile, *self.warps, self.stages)))
        return f"SGEMM({self.name}, {numbers}, {', '.join(str(turned).lower() for turned in self.is_turned)})"


USUAL = (
    Build((128, 128, 8), (4, 2), 1, "tt"),
    Build((128, 128, 8), (4, 2), 2, "nt"),
    Build((128, 128, 16), (2, 4), 3, "nt"),
)
"""Rungs of a ladder: thread tiles, two slots, three."""


@cache
def builds() -> tuple[Build, ...]:
    """The usual ones, and others drawn out of all, the same for every seed, for they are compiled."""
    draw = random.Random("sgemm builds")
    every = [Build(*options) for options in itertools.product(TILES, WARPS, STAGES, LAYOUTS)]
    legal = [build for build in every if build.is_legal and build not in USUAL]
    while True:
        drawn = draw.sample(legal, NUM_DRAWN_BUILDS)
        values = [value for build in drawn for value in (build.warps, build.stages, build.layout)]
        tiles = [build.tile for build in drawn]
        if min(tiles.count(tile) for tile in TILES) >= LEAST_OFTEN - 1 and min(
            values.count(value) for value in (*WARPS, *STAGES, *LAYOUTS)
        ) >= LEAST_OFTEN:  # fmt: skip
            return (*USUAL, *drawn)


def includes() -> dict[str, str]:
    """An entry point for each build."""
    return {"shapes.inc": "".join(f"{build.entry}\n" for build in builds())}


def build_of(config: Config) -> Build:
    """The build that a config launches."""
    return next(build for build in builds() if build.name == config["kernel"])


def products(seed: int) -> list[Config]:
    """Every build about twice, each time with another shape and raster group; in orders drawn by the seed.

    Nothing was simulated or measured when they were drawn.
    """
    draw = random.Random(f"{seed} sgemm")

    def shuffled(values: tuple[Any, ...]) -> list[Any]:
        rounds = (draw.sample(values, len(values)) for _ in range(-(-NUM_CONFIGS // len(values))))
        return list(itertools.chain.from_iterable(rounds))[:NUM_CONFIGS]

    found: dict[tuple[str, ...], Config] = {}
    for build, (m, n, k), group in zip(*map(shuffled, (builds(), SHAPES, GROUPS)), strict=True):
        config = {"kernel": build.name, "m": str(m), "n": str(n), "k": str(k), "raster_group": str(group)}
        found[tuple(config.values())] = config
    return list(found.values())


# ---------------------------------------------------------------------------------------------- model

SASS = sass_figures("sgemm")
"""Tables of ``sass.toml``, with their sources."""
REGISTERS, CODE, INSTRUCTIONS, BANK_READS = (SASS[name] for name in ("registers", "code", "instructions", "bank_reads"))


def code_of(name: str) -> CompiledCode:
    """Figures of an entry point in ``sass.toml``."""
    code = CODE[name]
    return NO_CODE.replaced(
        source="sass", origin=name, registers=REGISTERS[name], tile_scheduler={"chain_cycles": code["tile_code"]},
        epilogue={"chain_cycles": code["store_code"]},
        mainloop={
            "chain_cycles": code["step_code"], "instructions": INSTRUCTIONS[name], "fma_bank_reads": BANK_READS[name],
        },
    )  # fmt: skip


def options(config: Config) -> Mapping[str, Any]:
    """The same kernel to the model."""
    build = build_of(config)
    return {
        **{name: int(config[name]) for name in "mnk"}, "layout": build.layout, "dtype": "fp32", "tile": build.tile,
        "stages": build.stages, "copy": "cp_async", "math": "fma", "schedule": "multistage", "warps": build.warps,
        "epilogue": "direct", "prefetch": "before_mma", "raster": "along_n", "swizzle_size": int(config["raster_group"]),
        "compiled_code": code_of(build.name),
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------- launch and check
def operands(config: Config) -> tuple[Repeated, Repeated]:
    """A and B, as they lie."""
    m, n, k = (int(config[name]) for name in "mnk")
    return Repeated(pattern("fp32", 1), m * k * WORD_BYTES), Repeated(pattern("fp32", 2), n * k * WORD_BYTES)


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """One CTA for each tile."""
    del is_counted
    build = build_of(config)
    m, n, k = (int(config[name]) for name in "mnk")
    numbers = (np.int32(m), np.int32(n), np.int32(k), np.int32(config["raster_group"]))
    return KernelLaunch(
        kernel=build.name, arguments=(*operands(config), sampled_products.target(config, "fp32"), *numbers),
        grid=(math.ceil(m / build.tile[0]) * math.ceil(n / build.tile[1]), 1, 1), block=(build.threads, 1, 1),
        smem_bytes=build.smem_bytes,
    )


ROUNDING = 2.0**-22
"""For each product that is added in fp32, one after the other, and of a result."""


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """As :func:`gpusim.evidence.cases.gemm_output.check`."""
    k = int(config["k"])
    return sampled_products.check(
        config, outputs, operands(config), "fp32", is_k_major=build_of(config).is_turned,
        allowed=lambda products: ROUNDING * (np.abs(products) + k),
    )


PIECES = (
    "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum",
)
"""Wavefronts of shared memory by opcode."""

CASE = validation_case(
    Case(
        name="sgemm",
        question=__doc__ or "",
        columns=("m", "n", "k", "raster_group"),
        groups={"products": whole_group(products, metrics=tuple(dict.fromkeys((*COUNTED, *METRICS, *PIECES))))},
        launch=launch,
        check=check,
        values={"error_share": "largest error of the sample, of what rounding allows"},
        limits=GEMM_LIMITS,
        problem=lambda config: problem_of(config, "fp32"),
        includes=includes,
    ),
    model="gemm",
    options=options,
)
