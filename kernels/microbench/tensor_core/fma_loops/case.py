"""What does a k-step take whose warps copy, read vectors out of shared memory and multiply on FMA units?"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusim import GpuSpec, simulate
from gpusim.evidence.cases.array import numbers_of, read_only
from gpusim.evidence.cases.case import Case, Fitted, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import KernelLaunch, Output, Repeated, by_value
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.microbenchmark import Without
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted
from gpusim.kernel_models.gemm import GemmParams
from gpusim.kernel_models.gemm.multistage import CODE_OF_COPY
from gpusim.workload import ops
from gpusim.workload.compiled_code import NO_CODE
from gpusim.workload.ops import Op

ROUNDS = (96, 32, 96)
"""Steps, the first to bring all in; a step's cycles are the difference between the last two."""
AHEAD = 4
"""Steps beyond a round that its copies may bring."""
SPAN = ("sm", "begin", "end")
"""What each CTA says of all its rounds together."""
LEAST_SMS = 100
"""On which as many CTAs ran as are wanted."""
NUM_SMS, WORD_BYTES, PAD, LANES = measured_gpu().num_sms, 4, 4, (4, 8)
"""CTAs of each wave where an SM is to have several; of an element; elements more of a row that is turned; of a warp."""


WIDEST = 16
"""Bytes of a load whose rows lie side by side; those of narrower ones lie apart."""


class Shape(NamedTuple):
    """Sums of a thread, warps along M and N, k's of a step."""

    thread: tuple[int, int]
    warps: tuple[int, int]
    depth: int

    @property
    def text(self) -> tuple[str, str, int]:
        """As columns."""
        return "x".join(map(str, self.thread)), "x".join(map(str, self.warps)), self.depth

    @property
    def num_warps(self) -> int:
        """Of a CTA."""
        return self.warps[0] * self.warps[1]

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of the CTA's sums."""
        return self.thread[0] * LANES[0] * self.warps[0], self.thread[1] * LANES[1] * self.warps[1]


SHAPES = (
    Shape((4, 4), (2, 2), 16), Shape((8, 4), (2, 2), 16), Shape((8, 8), (2, 2), 8), Shape((8, 8), (2, 2), 16),
    Shape((16, 8), (2, 2), 8), Shape((4, 4), (4, 2), 16), Shape((8, 4), (4, 2), 16), Shape((8, 8), (4, 2), 8),
    Shape((16, 4), (2, 4), 16), Shape((16, 8), (2, 4), 8), Shape((4, 4), (4, 4), 32), Shape((8, 4), (4, 4), 16),
    Shape((8, 8), (4, 4), 16),
)  # fmt: skip
"""One, two and four warps a sub-core."""
PARTS: Mapping[str, tuple[str, int, int]] = {
    "math": ("kNone", 0, 0), "loose": ("kNone", 0, 1), "meets": ("kNone", 1, 1), "async": ("kAsync", 1, 1),
    "turned": ("kTurned", 1, 1), "turned_a": ("kTurnedA", 1, 1), "turned_b": ("kTurnedB", 1, 1),
    "stores": ("kStores", 1, 1), "loads": ("kLoads", 1, 1),
}  # fmt: skip
"""How a step brings a slot; whether it has the barrier, and reads."""


@dataclass(frozen=True)
class Build(ConfigRow):
    """An entry point: what kernel.cu's template takes; and CTAs of an SM."""

    thread: str
    warps: str
    depth: int
    stages: int
    width: int
    fragments: str
    parts: str
    ctas: int = 1

    @property
    def kernel(self) -> str:
        """The entry point."""
        ring = f"{self.depth}_s{self.stages}_w{self.width}"
        return f"fma_{self.thread}_{self.warps}_{ring}_{self.fragments}_{self.parts}_{self.ctas}"

    @cached_property
    def shape(self) -> Shape:
        """Its columns as numbers."""
        (rows, columns), (ways_m, ways_n) = (map(int, text.split("x")) for text in (self.thread, self.warps))
        return Shape((rows, columns), (ways_m, ways_n), self.depth)

    @property
    def threads(self) -> int:
        """Of a CTA."""
        return 32 * self.shape.num_warps

    @property
    def is_turned(self) -> tuple[bool, bool]:
        """Whether A and B are contiguous along k."""
        return self.parts in ("turned", "turned_a"), self.parts in ("turned", "turned_b")

    @property
    def num_reads(self) -> int:
        """Vectors that a thread reads in a step."""
        return sum(self.shape.thread) * WORD_BYTES // self.width * self.shape.depth

    @property
    def num_copies(self) -> int:
        """Of a thread and step: 16 bytes, or an element of what is turned."""
        brought = zip(self.shape.tile, self.is_turned, strict=True)
        return sum(extent * self.shape.depth // (1 if turned else 4) for extent, turned in brought) // self.threads

    @property
    def is_whole(self) -> bool:
        """Whether threads copy whole rounds of both operands."""
        brought = zip(self.shape.tile, self.is_turned, strict=True)
        return all(extent * self.shape.depth % (self.threads * (1 if turned else 4)) == 0 for extent, turned in brought)

    @property
    def smem_bytes(self) -> int:
        """The ring."""
        return self.stages * (sum(self.shape.tile) + PAD * sum(self.is_turned)) * self.shape.depth * WORD_BYTES


@cache
def pair_builds() -> tuple[Build, ...]:
    """Two CTAs of 4 and 8 warps on each SM, whose copies and math meet: of one slot and two."""
    return tuple(
        Build(*SHAPES[idx].text, stages, 16, "double", parts, 2)
        for parts, stages in (("loose", 2), ("async", 1), ("turned", 1), ("async", 2), ("turned", 2))
        for idx in (1, 3, 5, 6, 7, 8)
    )  # fmt: skip


TILES = ((64, 64, 8), (64, 64, 16), (128, 64, 16), (64, 128, 8), (128, 128, 8), (128, 128, 16), (256, 128, 8))
NUM_DRAWN = 60


@cache
def drawn_builds() -> tuple[Build, ...]:
    """Of a GEMM's tiles, warps, slots and layouts (those of ``kernels/sgemm``): as many CTAs as registers hold."""
    every = []
    for (m, n, depth), (ways_m, ways_n), stages, parts in product(
        TILES, ((2, 2), (4, 2), (2, 4)), (1, 2, 3), ("async", "turned_a", "turned_b", "turned")
    ):
        thread, threads = (m // ways_m // LANES[0], n // ways_n // LANES[1]), 32 * ways_m * ways_n
        sums = thread[0] * thread[1]
        ctas = (512 if sums <= 64 else 256) // threads
        build = Build(*Shape(thread, (ways_m, ways_n), depth).text, stages, 16, "double", parts, ctas)
        if thread[0] % 4 == thread[1] % 4 == 0 and 16 <= sums <= 128 and build.is_whole:
            every.append(build)
    return tuple(random.Random("fma_loops drawn").sample(every, NUM_DRAWN))


@cache
def long_builds() -> tuple[Build, ...]:
    """Steps of 5 to 75 KiB of code, of one warp a sub-core and two, alone and with another CTA."""
    every = (
        Build(*Shape(thread, warps, depth).text, 2, 16, "double", parts, ctas)
        for parts in ("math", "loose") for thread in ((8, 4), (8, 8), (16, 8)) for warps in ((2, 2), (4, 2))
        for depth in (8, 16, 24, 32) for ctas in (1, 2)
        if ctas == 1 or (depth <= 16 and (thread != (16, 8) or warps == (2, 2)))
    )  # fmt: skip
    return tuple(build for build in every if build.is_whole)


SPILLS = (
    "fma_8x8_2x2_8_s3_w16_double_turned_4", "fma_8x8_4x2_16_s2_w16_double_turned_b_2",
    "fma_8x8_4x2_16_s3_w16_double_turned_2", "fma_16x4_2x2_16_s3_w16_double_turned_4",
    "fma_16x4_2x4_8_s2_w16_double_turned_a_2",
    "fma_16x4_2x4_8_s2_w16_double_turned_b_2", "fma_16x4_2x4_8_s3_w16_double_turned_2",
    "fma_16x4_2x4_8_s3_w16_double_turned_a_2", "fma_16x4_2x4_16_s2_w16_double_turned_2",
    "fma_16x4_2x4_16_s3_w16_double_turned_2",
)  # fmt: skip
"""Builds whose registers do not hold all; they are asked for all the same. Source: ptxas of nvcc 13.0."""


@cache
def builds() -> tuple[Build, ...]:
    """All that has been asked for, each once."""
    return tuple(dict.fromkeys((*loop_builds(), *pair_builds(), *drawn_builds(), *long_builds())))


@cache
def loop_builds() -> tuple[Build, ...]:
    """Part by part of all shapes; then other widths, rings and numbers of CTAs of some."""
    ring = {"stores": 2, "loads": 2}
    whole = [
        Build(*shape.text, ring.get(parts, 3), 16, "double", parts)
        for parts in ("loose", "meets", "async", "stores", "loads") for shape in SHAPES
    ]  # fmt: skip
    math = [Build(*shape.text, 3, 16, "double", "math") for shape in SHAPES[1:11:2]]
    single = [Build(*shape.text, 3, 16, "single", parts) for parts in ("loose", "async") for shape in SHAPES[1::2]]
    narrow = [Build(*SHAPES[idx].text, 3, width, "double", "loose") for width in (8, 4) for idx in (0, 2, 5, 7, 12)]
    turned = [Build(*SHAPES[idx].text, 2, 16, "double", "turned") for idx in (1, 3, 5, 6, 7, 8, 9)]
    one_slot = [
        Build(*SHAPES[idx].text, 1, 16, "double", parts, ctas)
        for parts, ctas in (("async", 1), ("async", 2), ("turned", 2)) for idx in (1, 3, 5, 7, 8)
    ]  # fmt: skip
    crowded = [
        Build(*SHAPES[idx].text, 2, 16, "double", parts, ctas)
        for parts in ("loose", "meets", "async") for idx, ctas in ((1, 2), (3, 2), (1, 4), (6, 2), (7, 2), (8, 2), (12, 1))
    ]  # fmt: skip
    return (*whole, *math, *single, *narrow, *turned, *one_slot, *crowded)


def includes() -> dict[str, str]:
    """``shapes.inc``: an entry point for each build."""
    return {"shapes.inc": "".join(f"{_entry(build)}\n" for build in builds())}


def _entry(build: Build) -> str:
    way, *flags = PARTS[build.parts]
    (thread, warps, depth), ring = build.shape, (build.stages, build.width)
    numbers = (build.threads, build.ctas, *thread, *warps, depth, *ring)
    is_double, *has = (str(bool(flag)).lower() for flag in (build.fragments == "double", *flags))
    return f"FMA_LOOP({build.kernel}, {', '.join(map(str, numbers))}, {is_double}, {way}, {', '.join(has)})"


# ---------------------------------------------------------------------------------------------- launch and check
@cache
def operand(extent: int, depth: int, seed: int) -> NDArray[np.int64]:
    """Small whole numbers, so that every sum is exact; none of them 0. int64[depth, extent]."""
    return np.random.default_rng(seed).choice(np.array([-2, -1, 1, 2]), (depth, extent))


@cache
def matrix(extent: int, depth: int, seed: int, is_turned: bool) -> NDArray[np.uint8]:
    """The same in fp32, as often as the longest round has steps and more; contiguous along k if turned. uint8[bytes]."""
    made = np.tile(operand(extent, depth, seed).astype("<f4"), (max(ROUNDS) + AHEAD, 1))
    return read_only(np.ascontiguousarray(made.T if is_turned else made).view(np.uint8).reshape(-1))


def num_ctas(build: Build) -> int:
    """Of the grid: one alone, or so many on every SM."""
    return 1 if build.ctas == 1 else NUM_SMS * build.ctas


def launch(build: Build) -> KernelLaunch:
    """The grid."""
    depth, (m, n), grid = build.shape.depth, build.shape.tile, num_ctas(build)
    a, b = (
        matrix(extent, depth, seed, turned) for seed, extent, turned in zip((1, 2), (m, n), build.is_turned, strict=True)
    )
    return KernelLaunch(
        kernel=build.kernel,
        arguments=(
            by_value(np.array([*ROUNDS, (max(ROUNDS) + AHEAD) * depth], dtype="<u4")),
            Repeated(a, a.nbytes), Repeated(b, b.nbytes),
            Output("cycles", np.zeros(grid * len(ROUNDS), dtype="<u4")),
            Output("spans", np.zeros(grid * len(SPAN), dtype="<u4")),
            Output("sums", np.zeros(grid * build.threads, dtype="<i4")),
        ),
        grid=(grid, 1, 1), block=(build.threads, 1, 1), smem_bytes=build.smem_bytes,
    )  # fmt: skip


def weighted_sums(build: Build) -> NDArray[np.int64]:
    """What each thread makes of its sums, int64[threads]."""
    (rows, columns), (ways_m, _), depth = build.shape
    (m, n), in_vector = build.shape.tile, build.width // WORD_BYTES
    a, b = operand(m, depth, 1), operand(n, depth, 2)
    has_reads = PARTS[build.parts][2]
    products = a.T @ b if has_reads else depth * a[:1].T @ b[:1]  # of the first k, multiplied again and again
    thread = np.arange(build.threads)
    warp, lane = thread // 32, thread % 32
    found = np.zeros(len(thread), dtype=np.int64)
    for i in range(rows):
        vector, word = divmod(i, in_vector)
        own, apart = (rows, i) if build.width == WIDEST else (in_vector, vector * LANES[0] * in_vector + word)
        row = warp % ways_m * rows * LANES[0] + lane // LANES[1] * own + apart
        for j in range(columns):
            vector, word = divmod(j, in_vector)
            column = warp // ways_m * columns * LANES[1] + (vector * LANES[1] + lane % LANES[1]) * in_vector + word
            found += products[row, column] * (1 + (i * columns + j) % 7)
    return found * sum(ROUNDS)


def check(build: Build, outputs: Outputs) -> dict[str, float]:
    """Cycles of a step if the sums are right: a lone CTA's two rounds; of several all rounds, the median of all SMs.

    Raises:
        WrongAnswer: they are not, or CTAs did not share SMs as they should.
    """
    seen = outputs["sums"].astype(np.int64).reshape(-1, build.threads)
    wrong_if(((seen - weighted_sums(build)) % (1 << 32) != 0).any(), "the sums are not so many times the product")
    first, short, long = outputs["cycles"].astype(np.int64).reshape(-1, len(ROUNDS)).T
    if build.ctas > 1:
        shared = shared_step_cycles(outputs["spans"], build.ctas)
        return {"step_cycles": shared, "first_round_cycles": float(np.median(first))}
    if (long <= short).any():
        raise WrongAnswer(f"{ROUNDS[2]} steps take no longer than {ROUNDS[1]}")
    return {"step_cycles": float(long[0] - short[0]) / (ROUNDS[2] - ROUNDS[1]), "first_round_cycles": float(first[0])}


def shared_step_cycles(spans: NDArray[np.uint32], ctas: int) -> float:
    """Cycles of a step of ``ctas`` CTAs together, from the first one's begin to the last one's end; median of all SMs.

    Raises:
        WrongAnswer: too few SMs have so many.
    """
    sm, begin, end = spans.astype(np.int64).reshape(-1, len(SPAN)).T
    found = []
    for idx in np.unique(sm):
        here = sm == idx
        if here.sum() == ctas:
            since = begin[here][0]  # clocks have 32 bits
            first = ((begin[here] - since + (1 << 31)) % (1 << 32) - (1 << 31)).min()
            found.append(float(((end[here] - since) % (1 << 32)).max() - first) / sum(ROUNDS))
    wrong_if(len(found) < LEAST_SMS, f"{len(found)} SMs had {ctas} CTAs, wants {LEAST_SMS} or more")
    return float(np.median(found))


# ---------------------------------------------------------------------------------------------- the simulator's answer
TWIN_STEPS = (8, 32)
TILES_M = 12
"""Rows of tiles of a grid on all SMs: operands are small, so that L2 holds them, and each tile is that of several CTAs."""
SASS = numbers_of(__file__, "sass.csv")
CODE, BANK_READS = ({kernel: row[name] for kernel, row in SASS.items()} for name in ("code_cycles", "bank_reads"))


def predict(build: Build, gpu: GpuSpec) -> dict[str, float]:
    """A step of the GEMM that has the same loop, without what this one lacks; nothing of what the model has no word for."""
    if build.width != WIDEST or build.fragments == "single" or build.parts in ("stores", "loads"):
        return {}
    short, long = (_cycles(build, steps, gpu) for steps in TWIN_STEPS)
    return {"step_cycles": (long - short) / (TWIN_STEPS[1] - TWIN_STEPS[0])}


def _cycles(build: Build, num_steps: int, gpu: GpuSpec) -> float:
    """Of one wave of tiles of so many k-steps."""
    (m, n), depth = build.shape.tile, build.shape.depth
    registers = min(255, 65536 // (build.threads * build.ctas) // 8 * 8)
    tiles_m = 1 if build.ctas == 1 else TILES_M
    params = GemmParams.model_validate({
        "m": m * tiles_m, "n": n * (num_ctas(build) // tiles_m), "k": depth * num_steps, "tile": (m, n, depth),
        "warps": build.shape.warps, "stages": build.stages, "dtype": "fp32",
        "layout": "nt"[build.is_turned[0]] + "tn"[build.is_turned[1]], "copy": "cp_async",
        "math": "fma", "schedule": "multistage", "prefetch": "before_mma", "epilogue": "direct",
        "registers": registers, "compiled_code": NO_CODE.replaced(
            mainloop={"chain_cycles": CODE[build.kernel], "fma_bank_reads": BANK_READS[build.kernel]}
        ),
    })  # fmt: skip
    way, meets, has_reads = PARTS[build.parts]
    lacks: tuple[type[Op], ...] = (() if way != "kNone" else COPIES) + (() if meets else (ops.Syncthreads,))
    lacks += () if has_reads else (ops.SharedLoad, ops.Use)
    others = CODE_OF_COPY * build.num_copies * (way == "kNone") + build.num_reads * (not has_reads)
    made = params.launch(gpu)
    roles = tuple(
        replace(role, program=Without(role.program, lacks, build.stages * (way == "kNone"), others)) for role in made.roles
    )
    return simulate(replace(made, roles=roles), gpu, clock="max", l2="warm").cycles


COPIES = (ops.CpAsync, ops.CpAsyncCommitGroup, ops.CpAsyncWaitGroup)
INSTRUCTION_BYTES, CODE_OF_STEP = 16, 13
LOST_BYTES = 48 << 10
"""Of a loop's code: from where on all of it comes anew each turn."""


def code_bytes(build: Build) -> int:
    """Of a step without copies: FFMA, loads, and what goes with them."""
    (rows, columns), (_, _, has_reads) = build.shape.thread, PARTS[build.parts]
    num = rows * columns * build.shape.depth + has_reads * build.num_reads + CODE_OF_STEP
    return INSTRUCTION_BYTES * num


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """At which pace code comes that a sub-core does not keep: of lone CTAs' loops that read, one warp a sub-core."""
    paces = [
        code_bytes(build) / float(row["step_cycles"]) for row in rows if row["group"] == "long" and row.get("step_cycles")
        for build in [Build.of(row)]
        if build.ctas == 1 and build.shape.num_warps == 4 and build.parts == "loose" and code_bytes(build) >= LOST_BYTES
    ]  # fmt: skip
    how = "long steps of 48 KiB and more with loads, one warp a sub-core: bytes over cycles, median"
    return fitted("instruction_cache.loop_bytes_per_cycle", paces, how)


CASE = Case(
    name="fma_loops",
    question=__doc__ or "",
    config_type=Build, launch=launch, check=check, num_repeats=3, predict=predict, fit=fit, includes=includes,
    groups={
        "loops": Group(configs=loop_builds, rank=3), "pairs": Group(configs=pair_builds, rank=3),
        "drawn": Group(configs=drawn_builds, rank=3), "long": Group(configs=long_builds, rank=3),
    },
    values={
        "step_cycles": f"SM cycles of a step: a round of {ROUNDS[2]} steps less one of {ROUNDS[1]}; of several CTAs all "
        "rounds, from the first one's begin to the last one's end, median of all SMs",
        "first_round_cycles": f"SM cycles of the first round, of {ROUNDS[0]} steps, cold code and lines included",
    },
    tiers={"step_cycles": 4},
)  # fmt: skip
