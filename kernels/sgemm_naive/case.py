"""What does an fp32 GEMM with a thread an element of D move and take, by the way that operands come and by shape?"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.case import Config, KernelLaunch, Outputs, Repeated, Windows, WrongAnswer
from gpusim.evidence.frameworks import sampled
from gpusim.evidence.products import METRICS, problem_of
from gpusim.evidence.whole import COUNTED, GEMM_LIMITS, floats, pattern, whole_group, whole_kernel

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


def sample(config: Config) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of D that are looked at, the first and the last among them."""
    numbers = np.random.default_rng(0)
    return sampled(int(config["m"]), numbers), sampled(int(config["n"]), numbers)


def target(config: Config) -> Windows:
    """D, of which the sampled rows come back."""
    row_bytes = int(config["n"]) * WORD_BYTES
    rows, _ = sample(config)
    return Windows("d", int(config["m"]) * row_bytes, tuple((int(row) * row_bytes, row_bytes) for row in rows))


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """One CTA for each tile, along n first."""
    del is_counted
    m, n, k = (int(config[name]) for name in "mnk")
    return KernelLaunch(
        kernel=config["kernel"], arguments=(*operands(config), target(config), np.int32(m), np.int32(n), np.int32(k)),
        grid=(-(-n // TILE), -(-m // TILE), 1), block=(TILE, TILE, 1),
    )


ROUNDING = 2.0**-22
"""For each product that is added in fp32, one after the other, and of a result."""


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """All of the sampled rows is written, and the sampled columns of them are the products in float64 of the very bytes.

    Raises:
        WrongAnswer: an element that was not written, or is further off than rounding explains.
    """
    n, k = int(config["n"]), int(config["k"])
    rows, columns = sample(config)
    found = floats(np.ascontiguousarray(outputs["d"]), "fp32").reshape(len(rows), n)
    if not np.isfinite(found).all():
        at = np.argwhere(~np.isfinite(found))[0]
        raise WrongAnswer(f"{config['kernel']}: row {rows[at[0]]}, column {at[1]} of D was not written")
    a, b = operands(config)
    left = np.stack([floats(a.window(int(row) * k * WORD_BYTES, k * WORD_BYTES), "fp32") for row in rows])
    right = np.stack([floats(b.window(each * n * WORD_BYTES, n * WORD_BYTES), "fp32")[columns] for each in range(k)])
    reference = left @ right
    share = np.abs(found[:, columns] - reference) / (ROUNDING * (np.abs(reference) + k))
    if share.max() > 1.0:
        at = np.unravel_index(int(share.argmax()), share.shape)
        raise WrongAnswer(
            f"{config['kernel']}: row {rows[at[0]]}, column {columns[at[1]]} of D is {found[:, columns][at]:g}, wants "
            f"{reference[at]:g}; {np.count_nonzero(share > 1.0)} of {share.size} are wrong"
        )
    return {"error_share": float(share.max())}


PIECES = (
    "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
)
"""Wavefronts of shared memory by opcode."""

CASE = whole_kernel(
    name="sgemm_naive",
    question=__doc__ or "",
    model="sgemm_naive",
    columns=("m", "n", "k"),
    groups={"products": whole_group(products, metrics=tuple(dict.fromkeys((*COUNTED, *METRICS, *PIECES))))},
    options=options,
    launch=launch,
    check=check,
    values={"error_share": "largest error of the sample, of what rounding allows"},
    limits=GEMM_LIMITS,
    thread_numbers=2,
    problem=lambda config: problem_of(config, "fp32"),
)
