"""What does an fp32 GEMM with a thread an element of D move and take, by the way that operands come and by shape?"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpusim.evidence.cases import gemm_output as sampled_products
from gpusim.evidence.cases.case import Case, Config, KernelLaunch, Outputs, Repeated
from gpusim.evidence.cases.gemm_case import METRICS, problem_of
from gpusim.evidence.cases.validation_kernel import COUNTED, GEMM_LIMITS, pattern, validation_case, whole_group

WAYS = ("naive", "coalesced", "tiled")
SHAPES = (
    (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (64, 4096, 1024), (4096, 64, 1024), (256, 256, 8192),
    (2048, 2048, 128), (1000, 1096, 1056), (517, 1999, 736), (130, 5000, 544),
)  # fmt: skip
"""M, N, K: square, skinny, deep and shallow, ragged."""
TILE, WORD_BYTES = 32, 4


def products(seed: int) -> list[Config]:
    """Every way with every shape, in an order drawn by the seed."""
    pairs = list(itertools.product(WAYS, SHAPES))
    random.Random(f"{seed} sgemm_naive").shuffle(pairs)
    return [{"kernel": way, "m": str(m), "n": str(n), "k": str(k)} for way, (m, n, k) in pairs]


def options(config: Config) -> Mapping[str, Any]:
    """The same kernel to the model."""
    return {**{name: int(config[name]) for name in "mnk"}, "way": config["kernel"]}


def operands(config: Config) -> tuple[Repeated, Repeated]:
    """A and B, both row-major."""
    m, n, k = (int(config[name]) for name in "mnk")
    return Repeated(pattern("fp32", 1), m * k * WORD_BYTES), Repeated(pattern("fp32", 2), k * n * WORD_BYTES)


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """One CTA for each tile, along n first."""
    del is_counted
    m, n, k = (int(config[name]) for name in "mnk")
    numbers = np.int32(m), np.int32(n), np.int32(k)
    return KernelLaunch(
        kernel=config["kernel"], arguments=(*operands(config), sampled_products.target(config, "fp32"), *numbers),
        grid=(-(-n // TILE), -(-m // TILE), 1), block=(TILE, TILE, 1),
    )


ROUNDING = 2.0**-22
"""For each product that is added in fp32, one after the other, and of a result."""


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """As :func:`gpusim.evidence.cases.gemm_output.check`."""
    k = int(config["k"])
    return sampled_products.check(
        config, outputs, operands(config), "fp32", is_k_major=(True, False),
        allowed=lambda products: ROUNDING * (np.abs(products) + k),
    )


PIECES = (
    "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
)
"""Wavefronts of shared memory by opcode."""

CASE = validation_case(
    Case(
        name="sgemm_naive",
        question=__doc__ or "",
        columns=("m", "n", "k"),
        groups={"products": whole_group(products, metrics=tuple(dict.fromkeys((*COUNTED, *METRICS, *PIECES))))},
        launch=launch,
        check=check,
        values={"error_share": "largest error of the sample, of what rounding allows"},
        limits=GEMM_LIMITS,
        problem=lambda config: problem_of(config, "fp32"),
    ),
    model="sgemm_naive",
    options=options,
    thread_numbers=2,
)
