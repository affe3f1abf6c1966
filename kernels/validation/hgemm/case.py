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
from gpusim.evidence.cases.validation_kernel import COUNTED, GEMM_LIMITS, pattern, validation_case, whole_group
from gpusim.units import DEPENDENT_CYCLES

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

REGISTERS: Mapping[str, int] = {
    "hgemm_128x128x32_2x2_s4_64B_double": 232,
    "hgemm_128x128x32_2x2_s4_pad8_single": 190,
    "hgemm_128x128x32_2x4_s3_none_double": 148,
    "hgemm_128x128x32_2x4_s5_64B_single": 114,
    "hgemm_128x128x64_2x2_s3_none_double": 238,
    "hgemm_128x128x64_2x4_s2_pad8_single": 116,
    "hgemm_128x128x64_2x4_s3_128B_double": 158,
    "hgemm_128x128x64_2x4_s3_64B_single": 116,
    "hgemm_128x256x32_2x4_s3_pad16_double": 232,
    "hgemm_128x256x32_2x4_s4_64B_double": 230,
    "hgemm_128x256x32_2x4_s4_pad16_double": 230,
    "hgemm_128x256x32_2x4_s5_pad8_double": 230,
    "hgemm_128x64x64_2x2_s1_128B_double": 148,
    "hgemm_128x64x64_2x2_s4_128B_double": 160,
    "hgemm_128x64x64_2x4_s4_pad16_single": 80,
    "hgemm_256x128x32_2x4_s1_pad8_single": 196,
    "hgemm_256x128x32_2x4_s4_pad8_single": 194,
    "hgemm_256x128x32_2x4_s5_64B_single": 194,
    "hgemm_64x128x32_2x2_s1_64B_double": 140,
    "hgemm_64x128x32_2x4_s2_pad16_double": 96,
    "hgemm_64x128x32_2x4_s4_64B_double": 96,
    "hgemm_64x256x32_2x2_s3_64B_single": 192,
    "hgemm_64x256x32_2x4_s1_none_single": 111,
    "hgemm_64x256x32_2x4_s4_pad8_single": 115,
    "hgemm_64x256x32_2x4_s5_pad16_single": 115,
    "hgemm_64x64x32_2x2_s2_pad16_single": 72,
    "hgemm_64x64x32_2x2_s3_64B_single": 72,
    "hgemm_64x64x32_2x4_s3_pad16_single": 60,
    "hgemm_64x64x64_2x2_s4_128B_single": 75,
    "hgemm_64x64x64_2x4_s1_64B_double": 72,
    "hgemm_64x64x64_2x4_s5_128B_double": 72,
}
"""Of a thread, by entry point. Source: ptxas of nvcc 13.0, sm_90a."""

CODE: Mapping[str, tuple[int, int, int, int]] = {
    "hgemm_128x128x32_2x2_s4_64B_double": (20, 924, 1700, 2110),
    "hgemm_128x128x32_2x2_s4_pad8_single": (226, 848, 1305, 1478),
    "hgemm_128x128x32_2x4_s3_none_double": (47, 664, 557, 1119),
    "hgemm_128x128x32_2x4_s5_64B_single": (203, 744, 361, 777),
    "hgemm_128x128x64_2x2_s3_none_double": (83, 1031, 2087, 2481),
    "hgemm_128x128x64_2x4_s2_pad8_single": (295, 610, 363, 769),
    "hgemm_128x128x64_2x4_s3_128B_double": (51, 778, 750, 1286),
    "hgemm_128x128x64_2x4_s3_64B_single": (316, 721, 358, 779),
    "hgemm_128x256x32_2x4_s3_pad16_double": (14, 776, 1700, 2110),
    "hgemm_128x256x32_2x4_s4_64B_double": (14, 881, 1700, 2110),
    "hgemm_128x256x32_2x4_s4_pad16_double": (14, 874, 1700, 2110),
    "hgemm_128x256x32_2x4_s5_pad8_double": (14, 956, 1700, 2110),
    "hgemm_128x64x64_2x2_s1_128B_double": (140, 500, 288, 619),
    "hgemm_128x64x64_2x2_s4_128B_double": (85, 1017, 750, 1228),
    "hgemm_128x64x64_2x4_s4_pad16_single": (290, 707, 254, 421),
    "hgemm_256x128x32_2x4_s1_pad8_single": (189, 465, 609, 2112),
    "hgemm_256x128x32_2x4_s4_pad8_single": (214, 814, 606, 1376),
    "hgemm_256x128x32_2x4_s5_64B_single": (218, 886, 607, 1370),
    "hgemm_64x128x32_2x2_s1_64B_double": (103, 469, 551, 1044),
    "hgemm_64x128x32_2x4_s2_pad16_double": (48, 546, 287, 594),
    "hgemm_64x128x32_2x4_s4_64B_double": (55, 612, 338, 692),
    "hgemm_64x256x32_2x2_s3_64B_single": (238, 825, 1331, 1695),
    "hgemm_64x256x32_2x4_s1_none_single": (180, 451, 630, 1212),
    "hgemm_64x256x32_2x4_s4_pad8_single": (209, 703, 627, 862),
    "hgemm_64x256x32_2x4_s5_pad16_single": (209, 782, 627, 862),
    "hgemm_64x64x32_2x2_s2_pad16_single": (195, 521, 235, 487),
    "hgemm_64x64x32_2x2_s3_64B_single": (203, 606, 235, 487),
    "hgemm_64x64x32_2x4_s3_pad16_single": (174, 485, 137, 244),
    "hgemm_64x64x64_2x2_s4_128B_single": (312, 764, 233, 466),
    "hgemm_64x64x64_2x4_s1_64B_double": (94, 486, 119, 230),
    "hgemm_64x64x64_2x4_s5_128B_double": (65, 803, 302, 449),
}
"""Cycles that an entry point's own instructions take a warp, in order, with the stalls and waits for results that nvcc 13.0
has scheduled (``gpusim.evidence.toolchain.issue_latency``): a k-step beyond its mma.sync, and with double fragments beyond
what it reads in
their shade; all before the k-steps; a tile's way out of fragments; its way out through shared memory."""


PLACES: Mapping[str, tuple[float, float, float]] = {
    "hgemm_128x128x32_2x2_s4_64B_double": (0.598, 1.25, 1.0),
    "hgemm_128x128x32_2x4_s3_none_double": (0.953, 1.188, 1.0),
    "hgemm_128x128x64_2x2_s3_none_double": (0.785, 2.062, 1.0),
    "hgemm_128x128x64_2x4_s3_128B_double": (0.961, 2.125, 1.0),
    "hgemm_128x256x32_2x4_s3_pad16_double": (0.599, 1.25, 1.0),
    "hgemm_128x256x32_2x4_s4_64B_double": (0.547, 1.25, 1.0),
    "hgemm_128x256x32_2x4_s4_pad16_double": (0.547, 1.25, 1.0),
    "hgemm_128x256x32_2x4_s5_pad8_double": (0.547, 1.25, 1.0),
    "hgemm_128x64x64_2x2_s4_128B_double": (0.932, 2.125, 1.0),
    "hgemm_64x128x32_2x4_s2_pad16_double": (0.958, 1.0, 1.0),
    "hgemm_64x128x32_2x4_s4_64B_double": (1.0, 1.0, 1.0),
    "hgemm_64x64x64_2x4_s5_128B_double": (1.0, 2.25, 1.0),
}
"""Slices of a k-step's mma.sync that stand before its copies (their mean), before the wait for the next slot, and before the
first use of what is read behind the copies, with double fragments: where ptxas has put them. Source: SASS of nvcc 13.0."""
FREE = ("hgemm_64x64x64_2x4_s1_64B_double", "hgemm_64x128x32_2x4_s4_64B_double")
"""Whose warps go on behind a k-step's copies; all others wait for the registers of their addresses. Source: the same."""
OF_PLACES = ("math_before_copies", "math_before_meeting", "math_before_use")


def code_of(config: Config) -> dict[str, float]:
    """An entry point's own instructions, to the model."""
    step, tile, direct, staged = CODE[config["kernel"]]
    cycles = {"step_code": step, "tile_code": tile, "store_code": direct if config["epilogue"] == "direct" else staged}
    return {name: number / DEPENDENT_CYCLES for name, number in cycles.items()}


def options(config: Config) -> Mapping[str, Any]:
    """The same kernel to the model."""
    build = build_of(config)
    return {
        **{name: int(config[name]) for name in "mnk"}, "layout": "tn", "dtype": "bf16", "tile": build.tile,
        "stages": build.stages, "copy": "cp_async", "math": "mma_sync", "schedule": "multistage", "warps": build.warps,
        "swizzle": build.swizzle, "pad": build.pad, "register_stages": {"single": 1, "double": 2}[build.fragments],
        "epilogue": config["epilogue"],
        "prefetch": "before_mma", "raster": "along_n", "swizzle_size": int(config["raster_group"]),
        "registers": REGISTERS.get(build.name), "l2_promotion": 128 if build.has_line_fetches else 64,
        "stall_on_ldgsts": build.name not in FREE, **dict(zip(OF_PLACES, PLACES.get(build.name, ()), strict=False)),
        **code_of(config),
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------- launch and check


def operands(config: Config) -> tuple[Repeated, Repeated]:
    """A and B, both contiguous along K."""
    m, n, k = (int(config[name]) for name in "mnk")
    return (
        Repeated(pattern("bf16", 1), m * k * ELEMENT_BYTES),
        Repeated(pattern("bf16", 2), n * k * ELEMENT_BYTES),
    )


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
