"""What does a k-step of a GEMM take whose warps copy (cp.async), read fragments (ldmatrix) and multiply (mma.sync)?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusim import GpuSpec, simulate
from gpusim.evidence.cases.case import (
    Case,
    Config,
    Fitted,
    Group,
    KernelLaunch,
    Output,
    Outputs,
    Repeated,
    WrongAnswer,
    by_value,
)
from gpusim.kernel_models.gemm import GemmParams
from gpusim.units import DEPENDENT_CYCLES
from gpusim.workload import ops
from gpusim.workload.launch import Program, RoleContext
from gpusim.workload.ops import Op
from gpusim.workload.smem.access import AccessPattern

ROUNDS = (176, 48, 176)
"""Steps, the first to bring all in; a step's cycles are the difference between the last two."""
COLUMNS = ("tile", "warps", "stages", "fragments", "parts", "pad")

Triple = tuple[int, int, int]


class Shape(NamedTuple):
    """A CTA's tile and its warps along M and N."""

    tile: Triple
    warps: tuple[int, int]

    @property
    def num_warps(self) -> int:
        """Of a CTA."""
        return self.warps[0] * self.warps[1]

    @property
    def share(self) -> tuple[int, int]:
        """Rows of A and B that a warp multiplies."""
        return self.tile[0] // self.warps[0], self.tile[1] // self.warps[1]

    @property
    def stage_bytes(self) -> int:
        """Of A and B, without what lies between rows."""
        return (self.tile[0] + self.tile[1]) * self.tile[2] * 2


SHAPES = (
    Shape((64, 64, 32), (2, 2)), Shape((64, 64, 64), (2, 2)), Shape((64, 128, 32), (2, 2)), Shape((128, 128, 32), (2, 2)),
    Shape((64, 64, 32), (2, 4)), Shape((128, 64, 64), (2, 4)), Shape((128, 128, 32), (2, 4)), Shape((128, 128, 64), (2, 4)),
    Shape((64, 256, 32), (2, 4)), Shape((128, 256, 32), (2, 4)), Shape((128, 128, 64), (4, 4)),
    Shape((128, 256, 32), (4, 4)),
)  # fmt: skip
CROWDED = SHAPES[-1]
"""Whose fragments the model has no registers for if they are held twice."""
FRAGMENTS = ("double", "single")
PARTS: Mapping[str, tuple[int, int, int, int]] = {
    "all": (1, 1, 1, 1), "no_copies": (0, 1, 1, 1), "loose": (0, 0, 1, 1), "no_reads": (1, 1, 0, 1),
    "math": (0, 0, 0, 1),
}  # fmt: skip
"""Whether a step has its copies, the barrier, ldmatrix, mma.sync; without the last ptxas leaves ldmatrix out."""
SOME = (SHAPES[1], SHAPES[3], SHAPES[6], SHAPES[7], SHAPES[11])
"""Shapes whose parts are measured one by one, too."""
PADDED = (SHAPES[1], SHAPES[3], SHAPES[6], SHAPES[7], SHAPES[9])
PAD = 16
"""Elements between rows in shared memory that make ldmatrix meet in every bank twice: it takes as long as math or longer."""


class Build(NamedTuple):
    """An entry point: what kernel.cu's template takes."""

    shape: Shape
    stages: int
    fragments: str
    parts: str
    pad: int = 0

    @property
    def name(self) -> str:
        """Of the entry point."""
        tile, warps = ("x".join(map(str, numbers)) for numbers in self.shape)
        pad = f"_pad{self.pad}" if self.pad else ""
        return f"mma_{tile}_{warps}_s{self.stages}_{self.fragments}_{self.parts}{pad}"

    @property
    def smem_bytes(self) -> int:
        """Of the ring."""
        rows = self.shape.tile[0] + self.shape.tile[1]
        return (self.shape.stage_bytes + rows * self.pad * 2) * self.stages


@cache
def builds() -> tuple[Build, ...]:
    """All of them: whole steps, steps without copies and without meetings, the parts of some, some with padded rows."""
    whole = [Build(shape, 3, kind, "all") for kind in FRAGMENTS for shape in SHAPES]
    fewer = [Build(shape, 3, kind, parts) for parts in ("no_copies", "loose") for kind in FRAGMENTS for shape in SHAPES]
    other = [Build(shape, stages, kind, "all") for stages in (2, 4) for kind in FRAGMENTS for shape in SOME]
    alone = [
        Build(shape, 3, kind, parts)
        for parts in ("no_reads", "math") for kind in FRAGMENTS for shape in SOME
    ]  # fmt: skip
    padded = [
        Build(shape, 3, kind, parts, PAD)
        for parts in ("all", "no_copies", "loose") for kind in FRAGMENTS for shape in PADDED
    ]  # fmt: skip
    return (*whole, *fewer, *other, *alone, *padded)


def includes() -> dict[str, str]:
    """``shapes.inc``: an entry point for each build."""
    return {"shapes.inc": "".join(f"{_entry(build)}\n" for build in builds())}


def _entry(build: Build) -> str:
    span = min(128, build.shape.tile[2] * 2)
    numbers = (32 * build.shape.num_warps, *build.shape.tile, *build.shape.warps, build.stages, span, 2 * build.pad)
    flags = (build.fragments == "double", *PARTS[build.parts])
    return f"MMA_LOOP({build.name}, {', '.join(map(str, numbers))}, {', '.join(str(bool(flag)).lower() for flag in flags)})"


def loops(seed: int) -> list[Config]:
    """One CTA of every build whose reads have no conflicts."""
    del seed  # a sweep, the same for every seed
    return [config_of(build) for build in builds() if not build.pad]


def padded(seed: int) -> list[Config]:
    """One CTA of every build whose reads have."""
    del seed  # a sweep, the same for every seed
    return [config_of(build) for build in builds() if build.pad]


def config_of(build: Build) -> Config:
    """Of a build."""
    return {
        "kernel": build.name, "tile": "x".join(map(str, build.shape.tile)),
        "warps": "x".join(map(str, build.shape.warps)), "stages": str(build.stages), "fragments": build.fragments,
        "parts": build.parts, "pad": str(build.pad),
    }  # fmt: skip


def build_of(config: Mapping[str, str]) -> Build:
    """The entry point of a config."""
    m, n, k = map(int, config["tile"].split("x"))
    ways_m, ways_n = map(int, config["warps"].split("x"))
    shape = Shape((m, n, k), (ways_m, ways_n))
    return Build(shape, int(config["stages"]), config["fragments"], config["parts"], int(config["pad"]))


# ---------------------------------------------------------------------------------------------- launch and check


@cache
def operand(num_rows: int, depth: int, seed: int) -> NDArray[np.int64]:
    """Small whole numbers, so that every sum is exact; none of them 0. int64[num_rows, depth]."""
    return np.random.default_rng(seed).choice(np.array([-2, -1, 1, 2]), (num_rows, depth))


@cache
def rows(num_rows: int, depth: int, seed: int) -> NDArray[np.uint8]:
    """The same in bf16, along k as often as the longest round has steps. uint8[num_rows, bytes]."""
    words = (operand(num_rows, depth, seed).astype("<f4").view("<u4") >> 16).astype("<u2")
    made = np.tile(np.ascontiguousarray(words), (1, max(ROUNDS))).view(np.uint8)
    made.setflags(write=False)
    return made


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """One CTA."""
    del is_counted
    build = build_of(config)
    shape = build.shape
    m, n, k = shape.tile
    a, b = rows(m, k, 1), rows(n, k, 2)
    told = np.array([*ROUNDS, max(ROUNDS) * k, m + n], dtype="<u4")
    return KernelLaunch(
        kernel=config["kernel"],
        arguments=(
            by_value(told.view(np.uint8)), Repeated(a, a.nbytes), Repeated(b, b.nbytes),
            Output("cycles", np.zeros(len(ROUNDS), dtype="<u4")),
            Output("sums", np.zeros(32 * shape.num_warps, dtype="<i4")),
        ),
        grid=(1, 1, 1), block=(32 * shape.num_warps, 1, 1), smem_bytes=build.smem_bytes,
    )  # fmt: skip


def weighted_sums(build: Build) -> NDArray[np.int64]:
    """What each thread makes of its sums, int64[threads]: PTX's fragment of D."""
    _, _, has_reads, has_math = PARTS[build.parts]
    (m, n, k), (ways_m, _) = build.shape
    depth = k if has_reads else 16  # of one slice, multiplied again and again
    products = (operand(m, k, 1)[:, :depth] @ operand(n, k, 2)[:, :depth].T) * (k // depth) * sum(ROUNDS) * has_math
    share_m, share_n = build.shape.share
    thread = np.arange(32 * build.shape.num_warps)
    warp, lane = thread // 32, thread % 32
    found = np.zeros(len(thread), dtype=np.int64)
    for i in range(share_m // 16):
        for j in range(share_n // 8):
            for word in range(4):
                row = warp % ways_m * share_m + i * 16 + word // 2 * 8 + lane // 4
                column = warp // ways_m * share_n + j * 8 + lane % 4 * 2 + word % 2
                found += products[row, column] * (1 + word + 4 * ((i * (share_n // 8) + j) % 5))
    return found


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of a step, if the sums are right.

    Raises:
        WrongAnswer: they are not.
    """
    build = build_of(config)
    if ((outputs["sums"].astype(np.int64) - weighted_sums(build)) % (1 << 32) != 0).any():
        raise WrongAnswer("the sums are not so many times the product")
    first, short, long = outputs["cycles"].astype(np.int64).tolist()
    if long <= short:
        raise WrongAnswer(f"{ROUNDS[2]} steps take {long} cycles, {ROUNDS[1]} take {short}")
    return {"step_cycles": (long - short) / (ROUNDS[2] - ROUNDS[1]), "first_round_cycles": float(first)}


# ---------------------------------------------------------------------------------------------- the simulator's answer


TWIN_STEPS = (8, 32)
CODE: Mapping[str, int] = {
    "mma_64x64x32_2x2_s3_double_all": 99, "mma_64x64x64_2x2_s3_double_all": 134, "mma_64x128x32_2x2_s3_double_all": 107,
    "mma_128x128x32_2x2_s3_double_all": 130, "mma_64x64x32_2x4_s3_double_all": 72,
    "mma_128x64x64_2x4_s3_double_all": 113, "mma_128x128x32_2x4_s3_double_all": 106,
    "mma_128x128x64_2x4_s3_double_all": 124, "mma_64x256x32_2x4_s3_double_all": 104,
    "mma_128x256x32_2x4_s3_double_all": 117, "mma_128x128x64_4x4_s3_double_all": 104,
    "mma_128x256x32_4x4_s3_double_all": 113, "mma_64x64x32_2x2_s3_single_all": 200,
    "mma_64x64x64_2x2_s3_single_all": 311, "mma_64x128x32_2x2_s3_single_all": 214,
    "mma_128x128x32_2x2_s3_single_all": 229, "mma_64x64x32_2x4_s3_single_all": 176,
    "mma_128x64x64_2x4_s3_single_all": 291, "mma_128x128x32_2x4_s3_single_all": 200,
    "mma_128x128x64_2x4_s3_single_all": 315, "mma_64x256x32_2x4_s3_single_all": 215,
    "mma_128x256x32_2x4_s3_single_all": 222, "mma_128x128x64_4x4_s3_single_all": 289,
    "mma_128x256x32_4x4_s3_single_all": 203, "mma_64x64x32_2x2_s3_double_no_copies": 25,
    "mma_64x64x64_2x2_s3_double_no_copies": 25, "mma_64x128x32_2x2_s3_double_no_copies": 25,
    "mma_128x128x32_2x2_s3_double_no_copies": 25, "mma_64x64x32_2x4_s3_double_no_copies": 25,
    "mma_128x64x64_2x4_s3_double_no_copies": 25, "mma_128x128x32_2x4_s3_double_no_copies": 25,
    "mma_128x128x64_2x4_s3_double_no_copies": 25, "mma_64x256x32_2x4_s3_double_no_copies": 25,
    "mma_128x256x32_2x4_s3_double_no_copies": 25, "mma_128x128x64_4x4_s3_double_no_copies": 25,
    "mma_128x256x32_4x4_s3_double_no_copies": 25, "mma_64x64x32_2x2_s3_single_no_copies": 117,
    "mma_64x64x64_2x2_s3_single_no_copies": 212, "mma_64x128x32_2x2_s3_single_no_copies": 115,
    "mma_128x128x32_2x2_s3_single_no_copies": 117, "mma_64x64x32_2x4_s3_single_no_copies": 119,
    "mma_128x64x64_2x4_s3_single_no_copies": 200, "mma_128x128x32_2x4_s3_single_no_copies": 121,
    "mma_128x128x64_2x4_s3_single_no_copies": 212, "mma_64x256x32_2x4_s3_single_no_copies": 117,
    "mma_128x256x32_2x4_s3_single_no_copies": 117, "mma_128x128x64_4x4_s3_single_no_copies": 212,
    "mma_128x256x32_4x4_s3_single_no_copies": 117, "mma_64x64x32_2x2_s3_double_loose": 26,
    "mma_64x64x64_2x2_s3_double_loose": 26, "mma_64x128x32_2x2_s3_double_loose": 26,
    "mma_128x128x32_2x2_s3_double_loose": 26, "mma_64x64x32_2x4_s3_double_loose": 26,
    "mma_128x64x64_2x4_s3_double_loose": 26, "mma_128x128x32_2x4_s3_double_loose": 26,
    "mma_128x128x64_2x4_s3_double_loose": 26, "mma_64x256x32_2x4_s3_double_loose": 26,
    "mma_128x256x32_2x4_s3_double_loose": 26, "mma_128x128x64_4x4_s3_double_loose": 26,
    "mma_128x256x32_4x4_s3_double_loose": 26, "mma_64x64x32_2x2_s3_single_loose": 116,
    "mma_64x64x64_2x2_s3_single_loose": 211, "mma_64x128x32_2x2_s3_single_loose": 114,
    "mma_128x128x32_2x2_s3_single_loose": 116, "mma_64x64x32_2x4_s3_single_loose": 118,
    "mma_128x64x64_2x4_s3_single_loose": 199, "mma_128x128x32_2x4_s3_single_loose": 120,
    "mma_128x128x64_2x4_s3_single_loose": 211, "mma_64x256x32_2x4_s3_single_loose": 116,
    "mma_128x256x32_2x4_s3_single_loose": 116, "mma_128x128x64_4x4_s3_single_loose": 211,
    "mma_128x256x32_4x4_s3_single_loose": 116, "mma_64x64x64_2x2_s2_double_all": 50,
    "mma_128x128x32_2x2_s2_double_all": 33, "mma_128x128x32_2x4_s2_double_all": 34,
    "mma_128x128x64_2x4_s2_double_all": 34, "mma_128x256x32_4x4_s2_double_all": 42,
    "mma_64x64x64_2x2_s2_single_all": 313, "mma_128x128x32_2x2_s2_single_all": 228,
    "mma_128x128x32_2x4_s2_single_all": 202, "mma_128x128x64_2x4_s2_single_all": 315,
    "mma_128x256x32_4x4_s2_single_all": 205, "mma_64x64x64_2x2_s4_double_all": 116,
    "mma_128x128x32_2x2_s4_double_all": 116, "mma_128x128x32_2x4_s4_double_all": 106,
    "mma_128x128x64_2x4_s4_double_all": 124, "mma_128x256x32_4x4_s4_double_all": 111,
    "mma_64x64x64_2x2_s4_single_all": 311, "mma_128x128x32_2x2_s4_single_all": 222,
    "mma_128x128x32_2x4_s4_single_all": 206, "mma_128x128x64_2x4_s4_single_all": 315,
    "mma_128x256x32_4x4_s4_single_all": 203, "mma_64x64x64_2x2_s3_double_no_reads": 130,
    "mma_128x128x32_2x2_s3_double_no_reads": 129, "mma_128x128x32_2x4_s3_double_no_reads": 104,
    "mma_128x128x64_2x4_s3_double_no_reads": 122, "mma_128x256x32_4x4_s3_double_no_reads": 106,
    "mma_64x64x64_2x2_s3_single_no_reads": 240, "mma_128x128x32_2x2_s3_single_no_reads": 202,
    "mma_128x128x32_2x4_s3_single_no_reads": 176, "mma_128x128x64_2x4_s3_single_no_reads": 236,
    "mma_128x256x32_4x4_s3_single_no_reads": 176, "mma_64x64x64_2x2_s3_double_math": 25,
    "mma_128x128x32_2x2_s3_double_math": 25, "mma_128x128x32_2x4_s3_double_math": 25,
    "mma_128x128x64_2x4_s3_double_math": 25, "mma_128x256x32_4x4_s3_double_math": 25,
    "mma_64x64x64_2x2_s3_single_math": 126, "mma_128x128x32_2x2_s3_single_math": 75,
    "mma_128x128x32_2x4_s3_single_math": 75, "mma_128x128x64_2x4_s3_single_math": 126,
    "mma_128x256x32_4x4_s3_single_math": 75,
    "mma_64x64x64_2x2_s3_double_all_pad16": 132, "mma_128x128x32_2x2_s3_double_all_pad16": 130,
    "mma_128x128x32_2x4_s3_double_all_pad16": 102, "mma_128x128x64_2x4_s3_double_all_pad16": 128,
    "mma_128x256x32_2x4_s3_double_all_pad16": 116, "mma_64x64x64_2x2_s3_single_all_pad16": 297,
    "mma_128x128x32_2x2_s3_single_all_pad16": 229, "mma_128x128x32_2x4_s3_single_all_pad16": 199,
    "mma_128x128x64_2x4_s3_single_all_pad16": 311, "mma_128x256x32_2x4_s3_single_all_pad16": 222,
    "mma_64x64x64_2x2_s3_double_no_copies_pad16": 25, "mma_128x128x32_2x2_s3_double_no_copies_pad16": 25,
    "mma_128x128x32_2x4_s3_double_no_copies_pad16": 25, "mma_128x128x64_2x4_s3_double_no_copies_pad16": 25,
    "mma_128x256x32_2x4_s3_double_no_copies_pad16": 25, "mma_64x64x64_2x2_s3_single_no_copies_pad16": 192,
    "mma_128x128x32_2x2_s3_single_no_copies_pad16": 115, "mma_128x128x32_2x4_s3_single_no_copies_pad16": 117,
    "mma_128x128x64_2x4_s3_single_no_copies_pad16": 208, "mma_128x256x32_2x4_s3_single_no_copies_pad16": 115,
    "mma_64x64x64_2x2_s3_double_loose_pad16": 27, "mma_128x128x32_2x2_s3_double_loose_pad16": 26,
    "mma_128x128x32_2x4_s3_double_loose_pad16": 26, "mma_128x128x64_2x4_s3_double_loose_pad16": 27,
    "mma_128x256x32_2x4_s3_double_loose_pad16": 26, "mma_64x64x64_2x2_s3_single_loose_pad16": 191,
    "mma_128x128x32_2x2_s3_single_loose_pad16": 114, "mma_128x128x32_2x4_s3_single_loose_pad16": 116,
    "mma_128x128x64_2x4_s3_single_loose_pad16": 207, "mma_128x256x32_2x4_s3_single_loose_pad16": 114,
}  # fmt: skip
"""Cycles of a k-step of each build that math does not hide, in order, as ``kernels/hgemm`` has them. Source: SASS of nvcc
13.0."""

PLACES: Mapping[str, tuple[float | None, float | None, float | None]] = {
    "mma_128x128x32_2x2_s2_double_all": (0.336, 0.969, 0.688), "mma_128x128x32_2x2_s3_double_all": (0.0, 0.75, 0.25),
    "mma_128x128x32_2x2_s3_double_loose": (None, None, None), "mma_128x128x32_2x2_s3_double_math": (None, None, None),
    "mma_128x128x32_2x2_s3_double_no_copies": (None, 0.75, None),
    "mma_128x128x32_2x2_s3_double_no_reads": (0.0, 2.0, None), "mma_128x128x32_2x2_s4_double_all": (0.0, 0.75, 0.25),
    "mma_128x128x32_2x4_s2_double_all": (0.359, 0.75, 1.0), "mma_128x128x32_2x4_s3_double_all": (0.0, 0.312, 1.0),
    "mma_128x128x32_2x4_s3_double_loose": (None, None, None), "mma_128x128x32_2x4_s3_double_math": (None, None, None),
    "mma_128x128x32_2x4_s3_double_no_copies": (None, 0.25, None),
    "mma_128x128x32_2x4_s3_double_no_reads": (0.0, 2.0, None), "mma_128x128x32_2x4_s4_double_all": (0.0, 0.312, 1.0),
    "mma_128x128x64_2x4_s2_double_all": (0.586, 2.5, 1.0), "mma_128x128x64_2x4_s3_double_all": (0.0, 2.812, 1.0),
    "mma_128x128x64_2x4_s3_double_loose": (None, None, None), "mma_128x128x64_2x4_s3_double_math": (None, None, None),
    "mma_128x128x64_2x4_s3_double_no_copies": (None, 2.875, None),
    "mma_128x128x64_2x4_s3_double_no_reads": (0.0, 4.0, None), "mma_128x128x64_2x4_s4_double_all": (0.0, 2.812, 1.0),
    "mma_128x128x64_4x4_s3_double_all": (0.0, 2.25, 1.0), "mma_128x128x64_4x4_s3_double_loose": (None, None, None),
    "mma_128x128x64_4x4_s3_double_no_copies": (None, 2.5, None), "mma_128x256x32_2x4_s3_double_all": (0.0, 0.75, 0.25),
    "mma_128x256x32_2x4_s3_double_loose": (None, None, None),
    "mma_128x256x32_2x4_s3_double_no_copies": (None, 0.75, None), "mma_128x256x32_4x4_s2_double_all": (0.729, 1.0, 1.0),
    "mma_128x256x32_4x4_s3_double_all": (0.0, 0.75, 1.0), "mma_128x256x32_4x4_s3_double_loose": (None, None, None),
    "mma_128x256x32_4x4_s3_double_math": (None, None, None), "mma_128x256x32_4x4_s3_double_no_copies": (None, 0.5, None),
    "mma_128x256x32_4x4_s3_double_no_reads": (0.0, 2.0, None), "mma_128x256x32_4x4_s4_double_all": (0.0, 0.75, 1.0),
    "mma_128x64x64_2x4_s3_double_all": (0.0, 2.25, 1.0), "mma_128x64x64_2x4_s3_double_loose": (None, None, None),
    "mma_128x64x64_2x4_s3_double_no_copies": (None, 2.25, None), "mma_64x128x32_2x2_s3_double_all": (0.0, 0.5, 1.0),
    "mma_64x128x32_2x2_s3_double_loose": (None, None, None), "mma_64x128x32_2x2_s3_double_no_copies": (None, 0.5, None),
    "mma_64x256x32_2x4_s3_double_all": (0.0, 0.5, 1.0), "mma_64x256x32_2x4_s3_double_loose": (None, None, None),
    "mma_64x256x32_2x4_s3_double_no_copies": (None, 0.5, None), "mma_64x64x32_2x2_s3_double_all": (0.0, 0.625, 1.0),
    "mma_64x64x32_2x2_s3_double_loose": (None, None, None), "mma_64x64x32_2x2_s3_double_no_copies": (None, 0.5, None),
    "mma_64x64x32_2x4_s3_double_all": (1.0, 1.0, 1.0), "mma_64x64x32_2x4_s3_double_loose": (None, None, None),
    "mma_64x64x32_2x4_s3_double_no_copies": (None, 0.5, None), "mma_64x64x64_2x2_s2_double_all": (0.734, 2.25, 1.0),
    "mma_64x64x64_2x2_s3_double_all": (0.0, 2.25, 1.0), "mma_64x64x64_2x2_s3_double_loose": (None, None, None),
    "mma_64x64x64_2x2_s3_double_math": (None, None, None), "mma_64x64x64_2x2_s3_double_no_copies": (None, 2.5, None),
    "mma_64x64x64_2x2_s3_double_no_reads": (0.0, 4.0, None), "mma_64x64x64_2x2_s4_double_all": (0.0, 2.25, 1.0),
    "mma_128x128x32_2x2_s3_double_all_pad16": (0.0, 0.75, 0.25),
    "mma_128x128x32_2x2_s3_double_loose_pad16": (None, None, None),
    "mma_128x128x32_2x2_s3_double_no_copies_pad16": (None, 0.75, None),
    "mma_128x128x32_2x4_s3_double_all_pad16": (0.0, 0.312, 1.0),
    "mma_128x128x32_2x4_s3_double_loose_pad16": (None, None, None),
    "mma_128x128x32_2x4_s3_double_no_copies_pad16": (None, 0.25, None),
    "mma_128x128x64_2x4_s3_double_all_pad16": (0.0, 2.5, 1.0),
    "mma_128x128x64_2x4_s3_double_loose_pad16": (None, None, None),
    "mma_128x128x64_2x4_s3_double_no_copies_pad16": (None, 2.875, None),
    "mma_128x256x32_2x4_s3_double_all_pad16": (0.0, 0.75, 0.25),
    "mma_128x256x32_2x4_s3_double_loose_pad16": (None, None, None),
    "mma_128x256x32_2x4_s3_double_no_copies_pad16": (None, 0.75, None),
    "mma_64x64x64_2x2_s3_double_all_pad16": (0.0, 2.25, 1.0),
    "mma_64x64x64_2x2_s3_double_loose_pad16": (None, None, None),
    "mma_64x64x64_2x2_s3_double_no_copies_pad16": (None, 2.5, None),
}  # fmt: skip
"""Slices of a k-step's mma.sync that stand before its copies (their mean), before the barrier, and before the first use of
what is read behind the copies, with double fragments: where ptxas has put them. Source: SASS of nvcc 13.0."""
FREE = (
    "mma_128x256x32_4x4_s3_single_no_reads", "mma_128x128x32_2x4_s3_single_no_reads",
    "mma_128x128x32_2x2_s3_single_no_reads", "mma_128x256x32_4x4_s3_double_no_reads",
    "mma_128x128x32_2x4_s3_double_no_reads", "mma_128x128x32_2x2_s3_double_no_reads",
    "mma_64x64x64_2x2_s3_double_no_reads", "mma_64x64x64_2x2_s2_double_all",
)  # fmt: skip
"""Whose warps go on behind a step's copies; all others wait for the registers of their addresses. Source: the same."""
OF_PLACES = ("math_before_copies", "math_before_meeting", "math_before_use")


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """A step of the GEMM that has the same loop, without what this one lacks; nothing where the model has no registers."""
    build = build_of(config)
    if build.shape == CROWDED and build.fragments == "double":
        return {}
    short, long = (_cycles(build, steps, gpu) for steps in TWIN_STEPS)
    return {"step_cycles": (long - short) / (TWIN_STEPS[1] - TWIN_STEPS[0])}


def _cycles(build: Build, num_steps: int, gpu: GpuSpec) -> float:
    """Of one tile of so many k-steps."""
    (m, n, k), warps = build.shape
    places = zip(OF_PLACES, PLACES.get(build.name, ()), strict=False)
    params = GemmParams.model_validate({
        "m": m, "n": n, "k": k * num_steps, "tile": build.shape.tile, "warps": warps, "stages": build.stages,
        "register_stages": {"single": 1, "double": 2}[build.fragments],
        "copy": "cp_async", "math": "mma_sync", "schedule": "multistage",
        "prefetch": "before_mma", "swizzle": "none" if build.pad else f"{min(128, 2 * k)}B", "pad": build.pad,
        "epilogue": "direct", "step_code": CODE[build.name] / DEPENDENT_CYCLES, "registers": 128,
        "stall_on_ldgsts": build.name not in FREE, **{name: place for name, place in places if place is not None},
    })  # fmt: skip
    made = params.launch(gpu)
    roles = tuple(replace(role, program=Lacking(role.program, build)) for role in made.roles)
    return simulate(replace(made, roles=roles), gpu, clock="max", l2="warm").cycles


MOST_READ_SHARE = 1.01
"""Of the math: with more wavefronts these are what a step takes."""


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What an ldmatrix takes of its sub-core's mma.sync, where another warp multiplies: what it adds to the math of two."""
    steps = {row["kernel"]: float(row["step_cycles"]) for row in rows if row.get("step_cycles")}
    pairs = [
        build for build in builds()
        if build.name in steps and build.fragments == "double" and build.shape.num_warps == 8 and not build.pad
    ]
    of_math = [steps[build.name] / _per_sub_core(build, "HMMA") for build in pairs if build.parts == "math"]
    found = []
    for build in pairs:
        if of_math and build.parts == "loose":
            loads, math_cycles = _per_sub_core(build, "LDSM"), of_math[0] * _per_sub_core(build, "HMMA")
            if 16 * loads < MOST_READ_SHARE * math_cycles:
                found.append((steps[build.name] - math_cycles) / loads)
    if not found:
        return []
    how = "double fragments by two warps a sub-core that need not meet, less their math, over ldmatrix, median"
    return [Fitted(parameter="tensor_core.mma_sync_load_cycles", value=float(np.median(found)), how=how)]


def _per_sub_core(build: Build, name: str) -> float:
    """HMMA or LDSM of a step."""
    (rows, columns), depth = build.shape.share, build.shape.tile[2]
    of_slice = rows // 16 * columns // 8 if name == "HMMA" else (rows + columns) // 16
    return of_slice * depth / 16 * build.shape.num_warps / 4


COPIES = (ops.CpAsync, ops.CpAsyncCommitGroup, ops.CpAsyncWaitGroup)


@dataclass(frozen=True)
class Lacking:
    """A program without the parts that a build lacks; without copies a ring is filled once, by stores."""

    program: Program
    build: Build

    def __call__(self, cta: RoleContext) -> Iterator[Op]:
        """The program."""
        has_copies, meets, has_reads, has_math = PARTS[self.build.parts]
        lacks: tuple[type[Op], ...] = (() if has_copies else COPIES)
        lacks += (() if meets else (ops.Syncthreads,)) + (() if has_math else (ops.MmaSync,))
        lacks += () if has_reads else (ops.Ldmatrix, ops.Use)
        if not has_copies:
            for buffer, idx in product("ab", range(self.build.stages)):
                yield ops.SharedStore(AccessPattern(num_requests=1, num_wavefronts=1, num_bytes=128), buffer, idx)
            yield ops.Syncthreads()
        told, token = self.program(cta), None
        try:
            while True:
                op = told.send(token)
                token = None if isinstance(op, lacks) else (yield op)
        except StopIteration:
            return


CASE = Case(
    name="mma_loops",
    question="What does a k-step take whose warps copy by cp.async, read by ldmatrix and multiply by mma.sync?",
    columns=COLUMNS,
    groups={"loops": Group(configs=loops, rank=3), "padded": Group(configs=padded, rank=3)},
    launch=launch,
    check=check,
    values={
        "step_cycles": "SM cycles of a step: a round of 176 steps less one of 48",
        "first_round_cycles": "SM cycles of the first round, of 176 steps, cold code and lines included",
    },
    num_repeats=3,
    predict=predict,
    tiers={"step_cycles": 4},
    fit=fit,
    includes=includes,
)
