"""What does a k-step of a GEMM take whose warps copy (cp.async), read fragments (ldmatrix) and multiply (mma.sync)?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusim import GpuSpec, simulate
from gpusim.evidence.cases.array import numbers_of, read_only
from gpusim.evidence.cases.case import Case, Fitted, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import KernelLaunch, Output, Repeated, by_value
from gpusim.evidence.cases.microbenchmark import Without
from gpusim.evidence.cases.parameters import fitted
from gpusim.kernel_models.gemm import GemmParams
from gpusim.workload import ops
from gpusim.workload.compiled_code import NO_CODE
from gpusim.workload.ops import Op

ROUNDS = (176, 48, 176)
"""Steps, the first to bring all in; a step's cycles are the difference between the last two."""

Triple = tuple[int, int, int]


class Shape(NamedTuple):
    """A CTA's tile and its warps along M and N."""

    tile: Triple
    warps: tuple[int, int]

    @property
    def text(self) -> tuple[str, str]:
        """As columns."""
        return "x".join(map(str, self.tile)), "x".join(map(str, self.warps))

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


@dataclass(frozen=True)
class Build(ConfigRow):
    """An entry point: what kernel.cu's template takes."""

    tile: str
    warps: str
    stages: int
    fragments: str
    parts: str
    pad: int = 0

    @property
    def kernel(self) -> str:
        """The entry point."""
        pad = f"_pad{self.pad}" if self.pad else ""
        return f"mma_{self.tile}_{self.warps}_s{self.stages}_{self.fragments}_{self.parts}{pad}"

    @cached_property
    def shape(self) -> Shape:
        """Its columns as numbers."""
        (m, n, k), (ways_m, ways_n) = (map(int, text.split("x")) for text in (self.tile, self.warps))
        return Shape((m, n, k), (ways_m, ways_n))

    @property
    def smem_bytes(self) -> int:
        """Of the ring."""
        rows = self.shape.tile[0] + self.shape.tile[1]
        return (self.shape.stage_bytes + rows * self.pad * 2) * self.stages


@cache
def builds() -> tuple[Build, ...]:
    """All of them: whole steps, steps without copies and without meetings, the parts of some, some with padded rows."""
    all_shapes = [
        Build(*shape.text, 3, kind, parts)
        for parts in ("all", "no_copies", "loose") for kind in FRAGMENTS for shape in SHAPES
    ]  # fmt: skip
    other = [Build(*shape.text, stages, kind, "all") for stages in (2, 4) for kind in FRAGMENTS for shape in SOME]
    alone = [Build(*shape.text, 3, kind, parts) for parts in ("no_reads", "math") for kind in FRAGMENTS for shape in SOME]
    padded = [
        Build(*shape.text, 3, kind, parts, PAD)
        for parts in ("all", "no_copies", "loose") for kind in FRAGMENTS for shape in PADDED
    ]  # fmt: skip
    return (*all_shapes, *other, *alone, *padded)


def includes() -> dict[str, str]:
    """``shapes.inc``: an entry point for each build."""
    return {"shapes.inc": "".join(f"{_entry(build)}\n" for build in builds())}


def _entry(build: Build) -> str:
    span = min(128, build.shape.tile[2] * 2)
    numbers = (32 * build.shape.num_warps, *build.shape.tile, *build.shape.warps, build.stages, span, 2 * build.pad)
    flags = (build.fragments == "double", *PARTS[build.parts])
    words = [*map(str, numbers), *(str(bool(flag)).lower() for flag in flags)]
    return f"MMA_LOOP({build.kernel}, {', '.join(words)})"


def loops() -> list[Build]:
    """One CTA of every build whose reads have no conflicts."""
    return [build for build in builds() if not build.pad]


def padded() -> list[Build]:
    """One CTA of every build whose reads have."""
    return [build for build in builds() if build.pad]


# ---------------------------------------------------------------------------------------------- launch and check
@cache
def operand(num_rows: int, depth: int, seed: int) -> NDArray[np.int64]:
    """Small whole numbers, so that every sum is exact; none of them 0. int64[num_rows, depth]."""
    return np.random.default_rng(seed).choice(np.array([-2, -1, 1, 2]), (num_rows, depth))


@cache
def rows(num_rows: int, depth: int, seed: int) -> NDArray[np.uint8]:
    """The same in bf16, along k as often as the longest round has steps. uint8[num_rows, bytes]."""
    words = (operand(num_rows, depth, seed).astype("<f4").view("<u4") >> 16).astype("<u2")
    return read_only(np.tile(np.ascontiguousarray(words), (1, max(ROUNDS))).view(np.uint8))


def launch(build: Build) -> KernelLaunch:
    """One CTA."""
    shape = build.shape
    m, n, k = shape.tile
    a, b = rows(m, k, 1), rows(n, k, 2)
    return KernelLaunch(
        kernel=build.kernel,
        arguments=(
            by_value(np.array([*ROUNDS, max(ROUNDS) * k, m + n], dtype="<u4")), Repeated(a, a.nbytes), Repeated(b, b.nbytes),
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


def check(build: Build, outputs: Outputs) -> dict[str, float]:
    """Cycles of a step, if the sums are right."""
    if ((outputs["sums"].astype(np.int64) - weighted_sums(build)) % (1 << 32) != 0).any():
        raise WrongAnswer("the sums are not so many times the product")
    first, short, long = outputs["cycles"].astype(np.int64).tolist()
    if long <= short:
        raise WrongAnswer(f"{ROUNDS[2]} steps take {long} cycles, {ROUNDS[1]} take {short}")
    return {"step_cycles": (long - short) / (ROUNDS[2] - ROUNDS[1]), "first_round_cycles": float(first)}


# ---------------------------------------------------------------------------------------------- the simulator's answer
TWIN_STEPS = (8, 32)
OF_PLACES = ("math_before_copies", "math_before_barrier", "math_before_use")
SASS = numbers_of(__file__, "sass.csv")
CODE = {kernel: row["code_cycles"] for kernel, row in SASS.items()}
PLACES = {kernel: tuple(row.get(name) for name in OF_PLACES) for kernel, row in SASS.items() if "_double_" in kernel}
FREE = tuple(kernel for kernel, row in SASS.items() if "goes_on" in row)


def predict(build: Build, gpu: GpuSpec) -> dict[str, float]:
    """A step of the GEMM that has the same loop, without what this one lacks; nothing where the model has no registers."""
    if build.shape == CROWDED and build.fragments == "double":
        return {}
    short, long = (_cycles(build, steps, gpu) for steps in TWIN_STEPS)
    return {"step_cycles": (long - short) / (TWIN_STEPS[1] - TWIN_STEPS[0])}


def _cycles(build: Build, num_steps: int, gpu: GpuSpec) -> float:
    """Of one tile of so many k-steps."""
    (m, n, k), warps = build.shape
    places = {name: SASS[build.kernel][name] for name in OF_PLACES if name in SASS[build.kernel]}
    params = GemmParams.model_validate({
        "m": m, "n": n, "k": k * num_steps, "tile": build.shape.tile, "warps": warps, "stages": build.stages,
        "register_stages": {"single": 1, "double": 2}[build.fragments],
        "copy": "cp_async", "math": "mma_sync", "schedule": "multistage",
        "prefetch": "before_mma", "swizzle": "none" if build.pad else f"{min(128, 2 * k)}B", "pad": build.pad,
        "epilogue": "direct", "registers": 128, "stall_on_ldgsts": build.kernel not in FREE,
        "compiled_code": NO_CODE.replaced(mainloop={"chain_cycles": CODE[build.kernel], **places}),
    })  # fmt: skip
    has_copies, meets, has_reads, has_math = PARTS[build.parts]
    lacks: tuple[type[Op], ...] = (() if has_copies else COPIES) + (() if meets else (ops.Syncthreads,))
    lacks += (() if has_math else (ops.MmaSync,)) + (() if has_reads else (ops.Ldmatrix, ops.Use))
    made = params.launch(gpu)
    roles = tuple(
        replace(role, program=Without(role.program, lacks, 0 if has_copies else build.stages)) for role in made.roles
    )
    return simulate(replace(made, roles=roles), gpu, clock="max", l2="warm").cycles


COPIES = (ops.CpAsync, ops.CpAsyncCommitGroup, ops.CpAsyncWaitGroup)
MOST_READ_SHARE = 1.01
"""Of the math: with more wavefronts these are what a step takes."""


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What an ldmatrix takes of its sub-core's mma.sync, where another warp multiplies: what it adds to the math of two."""
    steps = {row["kernel"]: float(row["step_cycles"]) for row in rows if row.get("step_cycles")}
    pairs = [
        build for build in builds()
        if build.kernel in steps and build.fragments == "double" and build.shape.num_warps == 8 and not build.pad
    ]
    of_math = [steps[build.kernel] / _per_sub_core(build, "HMMA") for build in pairs if build.parts == "math"]
    found = []
    for build in pairs:
        if of_math and build.parts == "loose":
            loads, math_cycles = _per_sub_core(build, "LDSM"), of_math[0] * _per_sub_core(build, "HMMA")
            if 16 * loads < MOST_READ_SHARE * math_cycles:
                found.append((steps[build.kernel] - math_cycles) / loads)
    how = "double fragments by two warps a sub-core that need not meet, less their math, over ldmatrix, median"
    return fitted("tensor_core.mma_sync_load_cycles", found, how)


def _per_sub_core(build: Build, name: str) -> float:
    """HMMA or LDSM of a step."""
    (rows, columns), depth = build.shape.share, build.shape.tile[2]
    of_slice = rows // 16 * columns // 8 if name == "HMMA" else (rows + columns) // 16
    return of_slice * depth / 16 * build.shape.num_warps / 4


CASE = Case(
    name="mma_loops",
    question="What does a k-step take whose warps copy by cp.async, read by ldmatrix and multiply by mma.sync?",
    config_type=Build, launch=launch, check=check, num_repeats=3, predict=predict, fit=fit, includes=includes,
    groups={"loops": Group(configs=loops, rank=3), "padded": Group(configs=padded, rank=3)},
    values={
        "step_cycles": "SM cycles of a step: a round of 176 steps less one of 48",
        "first_round_cycles": "SM cycles of the first round, of 176 steps, cold code and lines included",
    },
    tiers={"step_cycles": 4},
)  # fmt: skip
