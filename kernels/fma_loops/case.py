"""What does a k-step take whose warps copy, read vectors out of shared memory and multiply on FMA units?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.case import Case, Config, Group, KernelLaunch, Output, Outputs, Repeated, WrongAnswer, by_value

ROUNDS = (96, 32, 96)
"""Steps, the first to bring all in; a step's cycles are the difference between the last two."""
AHEAD = 4
"""Steps beyond a round that its copies may bring."""
COLUMNS = ("thread", "warps", "depth", "stages", "width", "fragments", "parts", "ctas")
NUM_SMS, WORD_BYTES, PAD, LANES = 132, 4, 4, (4, 8)
"""CTAs of each wave where an SM is to have several; of an element; elements more of a row that is turned; of a warp."""


WIDEST = 16
"""Bytes of a load whose rows lie side by side; those of narrower ones lie apart."""


class Shape(NamedTuple):
    """Sums of a thread, warps along M and N, k's of a step."""

    thread: tuple[int, int]
    warps: tuple[int, int]
    depth: int

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
    "turned": ("kTurned", 1, 1), "stores": ("kStores", 1, 1), "loads": ("kLoads", 1, 1),
}  # fmt: skip
"""How a step brings a slot; whether it has the barrier, and reads."""


class Build(NamedTuple):
    """An entry point: what kernel.cu's template takes; and CTAs of an SM."""

    shape: Shape
    stages: int
    width: int
    fragments: str
    parts: str
    ctas: int = 1

    @property
    def name(self) -> str:
        """Of the entry point."""
        thread, warps = ("x".join(map(str, numbers)) for numbers in self.shape[:2])
        ring = f"{self.shape.depth}_s{self.stages}_w{self.width}"
        return f"fma_{thread}_{warps}_{ring}_{self.fragments}_{self.parts}_{self.ctas}"

    @property
    def threads(self) -> int:
        """Of a CTA."""
        return 32 * self.shape.num_warps

    @property
    def is_turned(self) -> bool:
        """Whether the operands are contiguous along k."""
        return self.parts == "turned"

    @property
    def smem_bytes(self) -> int:
        """The ring."""
        return self.stages * (sum(self.shape.tile) + 2 * PAD * self.is_turned) * self.shape.depth * WORD_BYTES


@cache
def builds() -> tuple[Build, ...]:
    """All of them: part by part of all shapes; then other widths, rings and numbers of CTAs of some."""
    ring = {"stores": 2, "loads": 2}
    whole = [
        Build(shape, ring.get(parts, 3), 16, "double", parts)
        for parts in ("loose", "meets", "async", "stores", "loads") for shape in SHAPES
    ]  # fmt: skip
    math = [Build(shape, 3, 16, "double", "math") for shape in SHAPES[1:11:2]]
    single = [
        Build(shape, 3, 16, "single", parts) for parts in ("loose", "async") for shape in SHAPES[1::2]
    ]  # fmt: skip
    narrow = [Build(SHAPES[idx], 3, width, "double", "loose") for width in (8, 4) for idx in (0, 2, 5, 7, 12)]
    turned = [Build(SHAPES[idx], 2, 16, "double", "turned") for idx in (1, 3, 5, 6, 7, 8, 9)]
    one_slot = [
        Build(SHAPES[idx], 1, 16, "double", parts, ctas)
        for parts, ctas in (("async", 1), ("async", 2), ("turned", 2)) for idx in (1, 3, 5, 7, 8)
    ]  # fmt: skip
    crowded = [
        Build(SHAPES[idx], 2, 16, "double", parts, ctas)
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
    return f"FMA_LOOP({build.name}, {', '.join(map(str, numbers))}, {is_double}, {way}, {', '.join(has)})"


def loops(seed: int) -> list[Config]:
    """Every build, on one SM or on all."""
    del seed  # a sweep, the same for every seed
    return [
        {
            "kernel": build.name, "thread": "x".join(map(str, build.shape.thread)),
            "warps": "x".join(map(str, build.shape.warps)), "depth": str(build.shape.depth), "stages": str(build.stages),
            "width": str(build.width), "fragments": build.fragments, "parts": build.parts, "ctas": str(build.ctas),
        }
        for build in builds()
    ]  # fmt: skip


def build_of(config: Mapping[str, str]) -> Build:
    """The entry point of a config."""
    rows, columns = map(int, config["thread"].split("x"))
    ways_m, ways_n = map(int, config["warps"].split("x"))
    shape = Shape((rows, columns), (ways_m, ways_n), int(config["depth"]))
    numbers = (int(config[name]) for name in ("stages", "width"))
    return Build(shape, *numbers, config["fragments"], config["parts"], int(config["ctas"]))


# ---------------------------------------------------------------------------------------------- launch and check


@cache
def operand(extent: int, depth: int, seed: int) -> NDArray[np.int64]:
    """Small whole numbers, so that every sum is exact; none of them 0. int64[depth, extent]."""
    return np.random.default_rng(seed).choice(np.array([-2, -1, 1, 2]), (depth, extent))


@cache
def matrix(extent: int, depth: int, seed: int, is_turned: bool) -> NDArray[np.uint8]:
    """The same in fp32, as often as the longest round has steps and more; contiguous along k if turned. uint8[bytes]."""
    made = np.tile(operand(extent, depth, seed).astype("<f4"), (max(ROUNDS) + AHEAD, 1))
    made = np.ascontiguousarray(made.T if is_turned else made).view(np.uint8).reshape(-1)
    made.setflags(write=False)
    return made


def num_ctas(build: Build) -> int:
    """Of the grid: one alone, or so many on every SM."""
    return 1 if build.ctas == 1 else NUM_SMS * build.ctas


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """The grid."""
    del is_counted
    build = build_of(config)
    depth, (m, n), grid = build.shape.depth, build.shape.tile, num_ctas(build)
    a, b = (matrix(extent, depth, seed, build.is_turned) for seed, extent in ((1, m), (2, n)))
    told = np.array([*ROUNDS, (max(ROUNDS) + AHEAD) * depth], dtype="<u4")
    return KernelLaunch(
        kernel=config["kernel"],
        arguments=(
            by_value(told.view(np.uint8)), Repeated(a, a.nbytes), Repeated(b, b.nbytes),
            Output("cycles", np.zeros(grid * len(ROUNDS), dtype="<u4")),
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


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of a step, the median of all CTAs, if the sums are right.

    Raises:
        WrongAnswer: they are not.
    """
    build = build_of(config)
    seen = outputs["sums"].astype(np.int64).reshape(-1, build.threads)
    if ((seen - weighted_sums(build)) % (1 << 32) != 0).any():
        raise WrongAnswer("the sums are not so many times the product")
    first, short, long = outputs["cycles"].astype(np.int64).reshape(-1, len(ROUNDS)).T
    if (long <= short).any():
        raise WrongAnswer(f"{ROUNDS[2]} steps take no longer than {ROUNDS[1]}")
    each = (long - short) / (ROUNDS[2] - ROUNDS[1])
    return {"step_cycles": float(np.median(each)), "first_round_cycles": float(np.median(first))}


CASE = Case(
    name="fma_loops",
    question=__doc__ or "",
    columns=COLUMNS,
    groups={"loops": Group(configs=loops, rank=3)},
    launch=launch,
    check=check,
    values={
        "step_cycles": f"SM cycles of a step: a round of {ROUNDS[2]} steps less one of {ROUNDS[1]}, median of all CTAs",
        "first_round_cycles": f"SM cycles of the first round, of {ROUNDS[0]} steps, cold code and lines included",
    },
    num_repeats=3,
    includes=includes,
)
