"""What does a bf16 GEMM of cp.async, ldmatrix and mma.sync move and take, by tile, stages, layout and shape?"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.evidence.cases import gemm_output as sampled_products
from gpusim.evidence.cases.case import Case, Config, KernelLaunch, Outputs, Repeated
from gpusim.evidence.cases.gemm_case import METRICS, problem_of
from gpusim.evidence.cases.paths import sass_figures
from gpusim.evidence.cases.validation_kernel import COUNTED, GEMM_LIMITS, pattern, validation_case, whole_group
from gpusim.workload.compiled_code import NO_CODE, CompiledCode

TILES = (
    (64, 64, 32), (64, 64, 64), (64, 128, 32), (128, 64, 64), (128, 128, 32), (128, 128, 64), (64, 256, 32), (128, 256, 32),
    (256, 128, 32),
)  # fmt: skip
WARPS = ((2, 2), (2, 4))
STAGES = (1, 2, 3, 4, 5)
LAYOUTS = ("none", "64B", "128B", "pad8", "pad16")
"""Of operands in shared memory: a swizzle, or elements behind each row."""
FRAGMENTS = ("double", "single")
MOST_SUMS, MOST_SMEM_BYTES = 128, 160 * 1024
"""Of a thread; of a CTA, so that an A100 has room, too."""
ELEMENT_BYTES = 2

SHAPES = (
    (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192),
    (64, 16384, 2048), (256, 8192, 4096), (8192, 128, 4096),
    (512, 512, 32768), (1024, 1024, 16384), (8192, 8192, 1024), (16384, 4096, 512),
    (1000, 1096, 1048), (3000, 5000, 1000), (4095, 4104, 4088), (130, 20008, 776),
)  # fmt: skip
"""M, N, K: square, skinny, deep and shallow, ragged."""
GROUPS = (1, 2, 4, 8, 16)
EPILOGUES = ("direct", "smem")
NUM_DRAWN_BUILDS, NUM_CONFIGS = 28, 62
LEAST_OFTEN = 3
"""Every option's value stands in so many builds at least."""


@dataclass(frozen=True, slots=True)
class Build:
    """An entry point: what is fixed when it is compiled."""

    tile: tuple[int, int, int]
    warps: tuple[int, int]
    stages: int
    layout: str
    fragments: str

    @property
    def name(self) -> str:
        """The entry point's name."""
        tile, warps = ("x".join(map(str, numbers)) for numbers in (self.tile, self.warps))
        return f"hgemm_{tile}_{warps}_s{self.stages}_{self.layout}_{self.fragments}"

    @property
    def has_line_fetches(self) -> bool:
        """Whether its copies are LDGSTS.LTC128B, so that L2 takes whole lines of memory.

        Source: SASS of nvcc 13.0, sm_90a, in which all copies of a build are alike; the source asks for none.
        """
        return self.fragments == "double" and self.stages > 1

    @property
    def threads(self) -> int:
        """Of a CTA."""
        return 32 * self.warps[0] * self.warps[1]

    @property
    def swizzle(self) -> str:
        """As the model calls it."""
        return "none" if self.layout.startswith("pad") else self.layout

    @property
    def pad(self) -> int:
        """Elements behind each row."""
        return int(self.layout.removeprefix("pad")) if self.layout.startswith("pad") else 0

    @property
    def smem_bytes(self) -> int:
        """Of a CTA: the ring."""
        m, n, k = self.tile
        return self.stages * (m + n) * (k + self.pad) * ELEMENT_BYTES

    @property
    def is_legal(self) -> bool:
        """Whether sums fit in registers, the ring in shared memory, and rows hold whole spans of the swizzle."""
        m, n, k = self.tile
        span = int(self.swizzle.removesuffix("B")) if self.swizzle != "none" else 16
        return m * n <= MOST_SUMS * self.threads and self.smem_bytes <= MOST_SMEM_BYTES and k * ELEMENT_BYTES % span == 0

    @property
    def entry(self) -> str:
        """Its line of ``shapes.inc``."""
        span = 0 if self.swizzle == "none" else int(self.swizzle.removesuffix("B"))
        numbers = (self.threads, *self.tile, *self.warps, self.stages, span, self.pad)
        return f"HGEMM({self.name}, {', '.join(map(str, numbers))}, {str(self.fragments == 'double').lower()})"


USUAL = (
    Build((128, 128, 32), (2, 2), 4, "64B", "double"),
    Build((128, 256, 32), (2, 4), 4, "64B", "double"),
    Build((128, 128, 64), (2, 4), 3, "128B", "double"),
)
"""What a library would take."""


DRAWN = (
    Build((64, 64, 64), (2, 2), 4, "128B", "single"),
    Build((128, 128, 64), (2, 2), 3, "none", "double"),
    Build((64, 128, 32), (2, 4), 2, "pad16", "double"),
    Build((64, 64, 32), (2, 2), 3, "64B", "single"),
    Build((128, 256, 32), (2, 4), 5, "pad8", "double"),
    Build((128, 64, 64), (2, 2), 1, "128B", "double"),
    Build((256, 128, 32), (2, 4), 5, "64B", "single"),
    Build((64, 256, 32), (2, 4), 5, "pad16", "single"),
    Build((128, 128, 64), (2, 4), 2, "pad8", "single"),
    Build((128, 128, 32), (2, 4), 5, "64B", "single"),
    Build((256, 128, 32), (2, 4), 4, "pad8", "single"),
    Build((128, 64, 64), (2, 4), 4, "pad16", "single"),
    Build((128, 256, 32), (2, 4), 3, "pad16", "double"),
    Build((64, 64, 64), (2, 4), 5, "128B", "double"),
    Build((64, 128, 32), (2, 4), 4, "64B", "double"),
    Build((256, 128, 32), (2, 4), 1, "pad8", "single"),
    Build((64, 256, 32), (2, 4), 4, "pad8", "single"),
    Build((64, 256, 32), (2, 4), 1, "none", "single"),
    Build((128, 128, 32), (2, 4), 3, "none", "double"),
    Build((128, 256, 32), (2, 4), 4, "pad16", "double"),
    Build((64, 64, 64), (2, 4), 1, "64B", "double"),
    Build((64, 64, 32), (2, 2), 2, "pad16", "single"),
    Build((128, 64, 64), (2, 2), 4, "128B", "double"),
    Build((64, 128, 32), (2, 2), 1, "64B", "double"),
    Build((128, 128, 64), (2, 4), 3, "64B", "single"),
    Build((128, 128, 32), (2, 2), 4, "pad8", "single"),
    Build((64, 64, 32), (2, 4), 3, "pad16", "single"),
    Build((64, 256, 32), (2, 2), 3, "64B", "single"),
)
"""The first ``NUM_DRAWN_BUILDS`` of all others in which each value stands ``LEAST_OFTEN``, kept: it takes 163,340 draws."""


def others() -> list[Build]:
    """Every legal build but the usual ones."""
    every = [Build(*options) for options in itertools.product(TILES, WARPS, STAGES, LAYOUTS, FRAGMENTS)]
    return [build for build in every if build.is_legal and build not in USUAL]


def builds() -> tuple[Build, ...]:
    """The usual ones, and those that were drawn, the same for every seed, for they are compiled."""
    return (*USUAL, *DRAWN)


def includes() -> dict[str, str]:
    """An entry point for each build."""
    return {"shapes.inc": "".join(f"{build.entry}\n" for build in builds())}


def build_of(config: Config) -> Build:
    """The build that a config launches."""
    return next(build for build in builds() if build.name == config["kernel"])


def products(seed: int) -> list[Config]:
    """Every build twice, each time with another shape, raster group and way of D; in orders drawn by the seed.

    Nothing was simulated or measured when they were drawn.
    """
    draw = random.Random(f"{seed} hgemm")

    def shuffled(values: tuple[Any, ...]) -> list[Any]:
        return list(itertools.islice(itertools.chain.from_iterable(
            draw.sample(values, len(values)) for _ in range(-(-NUM_CONFIGS // len(values)))
        ), NUM_CONFIGS))  # fmt: skip

    found: dict[tuple[str, ...], Config] = {}
    for build, (m, n, k), group, epilogue in zip(*map(shuffled, (builds(), SHAPES, GROUPS, EPILOGUES)), strict=True):
        config = {
            "kernel": build.name, "m": str(m), "n": str(n), "k": str(k), "raster_group": str(group), "epilogue": epilogue,
        }  # fmt: skip
        found[tuple(config.values())] = config
    return list(found.values())


# ---------------------------------------------------------------------------------------------- model

SASS = sass_figures("hgemm")
"""Tables of ``sass.toml``, with their sources."""
REGISTERS, CODE, PLACES = (SASS[name] for name in ("registers", "code", "places"))



FREE = ("hgemm_64x64x64_2x4_s1_64B_double", "hgemm_64x128x32_2x4_s4_64B_double")
"""Kernels whose warps go on behind a k-step's copies; others wait for registers of addresses. Source: SASS, nvcc 13.0."""


def code_of(config: Config) -> CompiledCode:
    """Figures of an entry point in ``sass.toml``."""
    name = config["kernel"]
    code, places = CODE[name], PLACES.get(name, {})
    return NO_CODE.replaced(
        source="sass", origin=name, registers=REGISTERS[name], mainloop={"chain_cycles": code["step"], **places},
        tile_scheduler={"chain_cycles": code["tile"]},
        epilogue={"chain_cycles": code["direct" if config["epilogue"] == "direct" else "staged"]},
    )  # fmt: skip



def options(config: Config) -> Mapping[str, Any]:
    """The same kernel to the model."""
    build = build_of(config)
    return {
        **{name: int(config[name]) for name in "mnk"}, "layout": "tn", "dtype": "bf16", "tile": build.tile,
        "stages": build.stages, "copy": "cp_async", "math": "mma_sync", "schedule": "multistage", "warps": build.warps,
        "swizzle": build.swizzle, "pad": build.pad, "register_stages": {"single": 1, "double": 2}[build.fragments],
        "epilogue": config["epilogue"],
        "prefetch": "before_mma", "raster": "along_n", "swizzle_size": int(config["raster_group"]),
        "l2_promotion": 128 if build.has_line_fetches else 64, "stall_on_ldgsts": build.name not in FREE,
        "compiled_code": code_of(config),
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------- launch and check
def operands(config: Config) -> tuple[Repeated, Repeated]:
    """A and B, both contiguous along K."""
    m, n, k = (int(config[name]) for name in "mnk")
    return (Repeated(pattern("bf16", 1), m * k * ELEMENT_BYTES), Repeated(pattern("bf16", 2), n * k * ELEMENT_BYTES))


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """One CTA for each tile."""
    del is_counted
    build = build_of(config)
    m, n, k = (int(config[name]) for name in "mnk")
    num_tiles = math.ceil(m / build.tile[0]) * math.ceil(n / build.tile[1])
    numbers = tuple(map(np.int32, (m, n, k, config["raster_group"], config["epilogue"] == "smem")))
    return KernelLaunch(
        kernel=build.name, arguments=(*operands(config), sampled_products.target(config, "bf16"), *numbers),
        grid=(num_tiles, 1, 1), block=(build.threads, 1, 1), smem_bytes=build.smem_bytes,
    )


ROUNDING = 2.0**-8
"""Of a result to bf16; what fp32 sums add is a small part of it."""


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """As :func:`gpusim.evidence.cases.gemm_output.check`."""
    k = int(config["k"])
    return sampled_products.check(
        config, outputs, operands(config), "bf16", is_k_major=(True, True),
        allowed=lambda products: ROUNDING * (np.abs(products) + 0.25 * math.sqrt(k)),
    )


PIECES = (
    "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldsm.sum",
    "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_stsm.sum",
    "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum",
    "sm__inst_executed_pipe_tensor_op_hmma.sum",
    "smsp__inst_executed_op_ldsm.sum",
)
"""Wavefronts of shared memory by opcode, HMMA and ldmatrix instructions."""

CASE = validation_case(
    Case(
        name="hgemm",
        question=__doc__ or "",
        columns=("m", "n", "k", "raster_group", "epilogue"),
        groups={"products": whole_group(products, metrics=tuple(dict.fromkeys((*COUNTED, *METRICS, *PIECES))))},
        launch=launch,
        check=check,
        values={"error_share": "largest error of the sample, of what rounding allows"},
        limits=GEMM_LIMITS,
        problem=lambda config: problem_of(config, "bf16"),
        includes=includes,
    ),
    model="gemm",
    options=options,
)
