"""What does a k-step of a GEMM take whose warps copy (cp.async) what they multiply (wgmma)?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, GpuSpec, Launch, WarpRole
from gpusim.evidence.cases.array import fragment_places, k_major_descriptors, read_only, swizzled
from gpusim.evidence.cases.case import Case, Fitted, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import KernelLaunch, Output, Repeated, by_value
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.microbenchmark import range_cycles
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted
from gpusim.workload import ops
from gpusim.workload.atoms.mma import wgmma
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

K, K_STEPS = 64, 4
PITCH_BYTES = 256
"""From row to row in global memory: two blocks of k with the same numbers."""
ROUNDS = (16, 48, 176)
"""Steps; a step's cycles are the difference between the last two."""
COPY_BYTES = 512
"""Of one cp.async of a warp."""
MOST_SMEM_BYTES = 227 * 1024
ALL_SMS = measured_gpu().num_sms
SHARED_IMAGES = 16
PHASES = ("wait_copies", "meet", "math", "wait_math", "meet_again", "copies")
"""As kernel.cu numbers what lies between two looks at the clock."""
ORDERS = ("after_wait", "after_math", "before_math")


class Shape(NamedTuple):
    """A CTA's tile: so many warpgroups, each with so many blocks of 64 rows of A; rows of B."""

    warpgroups: int
    blocks: int
    n: int

    @property
    def rows(self) -> int:
        """Of A and B in a stage."""
        return 64 * self.warpgroups * self.blocks + self.n

    @property
    def stage_bytes(self) -> int:
        """Of A and B."""
        return self.rows * K * 2

    @property
    def warps(self) -> int:
        """That multiply."""
        return 4 * self.warpgroups

    @property
    def copies(self) -> int:
        """That fill a stage, of each warp."""
        return self.stage_bytes // (COPY_BYTES * self.warps)


SHAPES = {
    "2x64x256": Shape(2, 1, 256), "2x128x128": Shape(2, 2, 128), "2x64x128": Shape(2, 1, 128), "1x128x128": Shape(1, 2, 128),
    "1x64x128": Shape(1, 1, 128), "1x64x64": Shape(1, 1, 64), "1x64x256": Shape(1, 1, 256),
}  # fmt: skip
"""Warpgroups x rows of each x n; as Triton makes of tiles 128x256, 256x128, 128x128 (8 and 4 warps), 64x128, 64x64."""


@dataclass(frozen=True)
class Build(ConfigRow):
    """An entry point: what kernel.cu's template takes; and what it gets at run time."""

    shape: str
    copies: int
    stages: int
    order: str = "after_wait"
    depth: int = 1
    has_math: int = 1
    has_others: int = 0
    is_fixed: int = 0
    is_linear: int = 0
    is_zeroed: int = 0
    is_fenced: int = 0
    commits: int = 2
    is_stamped: int = 0
    ctas: int = 1
    images: int = 1
    walk: str = "images"

    @property
    def kernel(self) -> str:
        """The entry point."""
        kind = "math" if self.has_math else "nomath"
        for name in ("others", "fixed", "linear", "zeroed", "fenced", "stamped"):
            kind += f"_{name}" * getattr(self, f"{'has' if name == 'others' else 'is'}_{name}")
        return f"own_{self.shape}_c{self.copies}_s{self.stages}_{self.order}{self.depth}_{self.commits}_{kind}"

    @property
    def distance(self) -> int:
        """Stages that are copied ahead."""
        return self.stages - 1 - (0 if self.order == "after_wait" else self.depth)


def _fits(shape: str, stages: int) -> bool:
    return SHAPES[shape].stage_bytes * stages <= MOST_SMEM_BYTES


def _full(shape: str, stages: int, **more: Any) -> Build:
    return Build(shape, SHAPES[shape].copies, stages, **more)


BIG = ("2x64x256", "1x128x128", "1x64x128")
"""Shapes of the sweeps that vary something else."""


@cache
def builds() -> dict[str, list[Build]]:
    """Of every group."""
    steps = [_full(shape, stages) for shape in SHAPES for stages in (2, 3, 4) if _fits(shape, stages)]
    steps += [_full(shape, 6) for shape in ("1x64x128", "1x64x64")]
    steps += [replace(made, is_fixed=1) for made in steps]
    alone = [Build(shape, 0, 2) for shape in SHAPES]
    alone += [_full(shape, stages, has_math=0) for shape in SHAPES for stages in (2, 3, 4) if _fits(shape, stages)]
    fewer = [
        Build(shape, copies, 3)
        for shape, some in (
            ("2x64x256", (3, 6, 9)), ("1x128x128", (4, 8, 12)), ("1x64x128", (3, 6, 9)), ("1x64x256", (5, 10)),
        )
        for copies in some
    ]  # fmt: skip
    ways: tuple[dict[str, Any], ...] = (
        {"order": "after_math"}, {"order": "before_math"}, {"depth": 0}, {"is_linear": 1}, {"is_zeroed": 1},
        {"is_zeroed": 1, "is_fixed": 1}, {"is_fenced": 1}, {"commits": 1},
    )  # fmt: skip
    order = [_full(shape, 3, **way) for shape in BIG for way in ways]
    order += [_full(shape, 4, **way) for shape in BIG for way in ways[:2]]
    order += [_full(shape, stages, is_zeroed=1) for shape, stages in (("2x128x128", 3), ("2x64x256", 4), ("1x128x128", 4))]
    order += [_full(shape, 3, is_zeroed=1, has_math=0) for shape in BIG]
    order += [_full("2x64x256", 3, is_zeroed=1, is_stamped=1)]
    order += [_full(shape, 3, has_others=1) for shape in ("1x64x128", "1x64x256")]
    phases = [_full(shape, 3, is_stamped=1) for shape in SHAPES if shape != "1x64x256"] + [
        _full(shape, 3, has_math=0, is_stamped=1) for shape in BIG
    ]
    return {"steps": steps, "alone": alone, "fewer": fewer, "order": order, "phases": phases}


def sweep(group: str) -> Callable[[], list[Build]]:
    """One SM, all with operands of their own, all with shared ones: each build after the other."""
    launches = ((1, 1), (ALL_SMS, ALL_SMS), (ALL_SMS, SHARED_IMAGES))
    return lambda: [replace(build, ctas=ctas, images=images) for ctas, images in launches for build in builds()[group]]


WALKS = {"images": (2 * K * 2, 2), "warm": (64 * K * 2, 32), "cold": (256 * K * 2, 256)}
"""Bytes from row to row in global memory, and the steps after which a CTA begins with its rows again."""
WALK_TILES = (11, 12)
"""Of A and B, where all SMs walk through them as a GEMM does: 18 MB in half of the rows, 148 MB in the whole."""
WALKED = (("2x64x256", (3, 4)), ("2x128x128", (3, 4)), ("2x64x128", (4,)), ("1x128x128", (4,)))


def walks() -> list[Build]:
    """Tiles of A and B that several CTAs share, rows far apart: found in L2, or in memory."""
    made = [_full(shape, stages) for shape, every in WALKED for stages in every]
    made += [_full(shape, 3, is_stamped=1) for shape in ("2x64x256", "2x128x128")]
    launches = (("warm", 1), ("warm", ALL_SMS), ("cold", ALL_SMS))
    return [replace(build, ctas=ctas, images=0, walk=walk) for walk, ctas in launches for build in made]


def several() -> list[Build]:
    """Several CTAs an SM."""
    found = []
    for build in builds()["steps"][: len(builds()["steps"]) // 2]:
        each_bytes = SHAPES[build.shape].stage_bytes * build.stages + 1024
        most = min(4, (MOST_SMEM_BYTES + 1024) // each_bytes) if SHAPES[build.shape].warps == 4 else 1
        found += [replace(build, ctas=ALL_SMS * each, images=ALL_SMS) for each in range(2, most + 1)]
    return found


BURST_STAGES = {"2x64x256": 4, "2x64x128": 6, "1x64x128": 6}
"""Rings that a burst fills, of a shape."""
BURST_GROUPS = 3
"""Of wgmma that run beside a burst, where any do."""
BURST_KIB = (8, 16, 24, 32, 48, 64, 96, 128, 144, 192)
"""Where a burst is looked at."""


def bursts() -> list[Build]:
    """A whole ring at once, by warps whose math runs or that have none."""
    return [
        _full(shape, stages, order="burst", has_math=has_math, ctas=ctas, images=ctas)
        for ctas in (1, ALL_SMS) for has_math in (0, 1) for shape, stages in BURST_STAGES.items()
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- operands
def includes() -> dict[str, str]:
    """``shapes.inc``: a struct with the instruction of every n, and the kernels."""
    every = {build.kernel: build for made in builds().values() for build in made}
    structs = [_struct(n) for n in sorted({shape.n for shape in SHAPES.values()})]
    made = [_burst_kernel(build) for build in bursts() if build.ctas == 1]
    return {"shapes.inc": "".join([*structs, *map(_kernel, every.values()), *made])}


def _struct(n: int) -> str:
    num = n // 2
    sums, outputs = ", ".join(f"%{i}" for i in range(num)), ", ".join(f'"+f"(d[{i}])' for i in range(num))
    return f"""struct Wide{n} {{
    static constexpr int kN = {n}, kNumAccumulators = {num};
    static __device__ __forceinline__ void issue(float (&d)[{num}], uint64_t a, uint64_t b) {{
        asm volatile("{wgmma(n, BF16, "smem").ptx} {{{sums}}}, %{num}, %{num + 1}, 1, 1, 1, 0, 0;"
                     : {outputs} : "l"(a), "l"(b));
    }}
}};
"""


def _kernel(build: Build) -> str:
    shape = SHAPES[build.shape]
    flags = (build.has_math, build.has_others, build.is_fixed, build.is_linear, build.is_zeroed, build.is_fenced)
    order_name = {"after_wait": "kAfterWait", "after_math": "kAfterMath", "before_math": "kBeforeMath"}[build.order]
    numbers = [
        f"Wide{shape.n}", shape.warpgroups, shape.blocks, build.copies, build.stages, order_name, build.depth,
        *("true" if flag else "false" for flag in flags), build.commits, "true" if build.is_stamped else "false",
    ]  # fmt: skip
    threads = 32 * shape.warps * (2 if build.has_others else 1)
    return f"OWN_COPIES_KERNEL({build.kernel}, {threads}, {', '.join(map(str, numbers))})\n"


def _burst_kernel(build: Build) -> str:
    shape, groups = SHAPES[build.shape], BURST_GROUPS * build.has_math
    numbers = (f"Wide{shape.n}", shape.warpgroups, shape.blocks, build.copies, build.stages, groups)
    return f"BURST_KERNEL({build.kernel}, {32 * shape.warps}, {', '.join(map(str, numbers))})\n"


@cache
def operand(shape: str) -> NDArray[np.int64]:
    """A, then B: small whole numbers, so that every sum is exact; none of them 0. int64[rows, 64]."""
    return np.random.default_rng(len(shape)).choice(np.array([-2, -1, 1, 2]), (SHAPES[shape].rows, K))


@cache
def plain(shape: str) -> NDArray[np.uint8]:
    """A stage's rows in bf16, uint8[rows, 128]."""
    words = (operand(shape).astype("<f4").view("<u4") >> 16).astype("<u2")
    return np.ascontiguousarray(words).view(np.uint8).reshape(-1, 128)


@cache
def stage(shape: str) -> NDArray[np.uint8]:
    """A stage as it lies in shared memory: rows of 128 bytes, swizzled. uint8[rows, 128]."""
    return swizzled(plain(shape)).reshape(-1, 128)


@cache
def image(shape: str, is_linear: int = 0) -> NDArray[np.uint8]:
    """A stage as it lies in global memory, in two blocks of k: plain, or swizzled already. uint8[rows, 256]."""
    block = stage(shape) if is_linear else plain(shape)
    return read_only(np.concatenate([block, block], axis=1))


@cache
def _panels(shape: str, pitch: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """A tile of A and one of B whose rows hold the same 64 of k again and again, uint8[rows, pitch]."""
    num_a = SHAPES[shape].rows - SHAPES[shape].n
    every = np.tile(plain(shape), (1, pitch // (K * 2)))
    return read_only(every[:num_a].copy()), read_only(every[num_a:].copy())


@cache
def weighted_sums(shape: str) -> NDArray[np.int64]:
    """What each thread makes of its accumulators of one product, int64[threads]: PTX's fragment of D."""
    of = SHAPES[shape]
    rows_of_a = of.rows - of.n
    product = operand(shape)[:rows_of_a] @ operand(shape)[rows_of_a:].T
    within, columns = (np.tile(places, of.warpgroups) for places in fragment_places(of.n))
    thread, register = np.arange(32 * of.warps), np.arange(of.n // 2)[:, None]
    found = np.zeros(32 * of.warps, dtype=np.int64)
    for block in range(of.blocks):
        rows = (thread // 128 * of.blocks + block) * 64 + within
        found += (product[rows, columns] * (register % 4 + 1 + block)).sum(axis=0)
    return found


def ring_sum(build: Build) -> int:
    """What the ring adds up to at the end, modulo 2^32: full, but for the stages that got zeros for copies nobody wanted."""
    words = np.tile(stage(build.shape).view("<u4").reshape(-1), build.stages).astype(np.uint64)
    for step in range(build.distance if build.is_zeroed else 0):
        words.reshape(build.stages, -1)[(ROUNDS[-1] + step) % build.stages] = 0
    return int((words * np.arange(1, len(words) + 1, dtype=np.uint64)).sum(dtype=np.uint64) & np.uint64(0xFFFFFFFF))


# ---------------------------------------------------------------------------------------------- launch and check
def launch(build: Build) -> KernelLaunch:
    """The same, counted or not."""
    shape, ctas, images = SHAPES[build.shape], build.ctas, build.images
    pitch, wrap = WALKS[build.walk]
    num_a = shape.rows - shape.n
    if build.walk == "images":  # B behind A in each
        a, b = image(build.shape, build.is_linear), image(build.shape, build.is_linear)
        tiles, every, sizes = (images, images), 1, (a.nbytes, b.nbytes, num_a * pitch)
    else:
        a, b = _panels(build.shape, pitch)
        tiles, every, sizes = WALK_TILES, WALK_TILES[0], (a.nbytes, b.nbytes, 0)
    numbers = np.array([*ROUNDS, pitch, wrap, *tiles, every], dtype="<u4")
    told = np.concatenate([numbers.view(np.uint8), np.array([*sizes, *k_major_descriptors(64)], dtype="<u8").view(np.uint8)])
    sums, words = np.zeros((ctas, 32 * shape.warps), dtype="<i4"), np.zeros(ctas, dtype="<u4")
    read = (by_value(told), Repeated(a, tiles[0] * a.nbytes), Repeated(b, tiles[1] * b.nbytes))
    stamps = np.zeros((ctas, shape.warps, 3 + build.copies * build.stages), dtype="<u4")
    of_burst = (*read[:2], Output("sums", sums), Output("stamps", stamps), Output("words", words))
    of_train = (
        *read, Output("cycles", np.zeros((ctas, len(ROUNDS)), dtype="<u4")), Output("sums", sums),
        Output("phases", np.zeros((ctas, shape.warps, len(PHASES)), dtype="<u4")), Output("words", words),
    )  # fmt: skip
    return KernelLaunch(
        kernel=build.kernel,
        arguments=of_burst if build.order == "burst" else of_train,
        grid=(ctas, 1, 1), block=(32 * shape.warps * (1 + build.has_others), 1, 1),
        smem_bytes=shape.stage_bytes * build.stages,
    )  # fmt: skip


def check(build: Build, outputs: Outputs) -> dict[str, float]:
    """Cycles of a step, if sums and rings are right.

    Raises:
        WrongAnswer: accumulators or stages hold something else.
    """
    products = BURST_GROUPS * len(ROUNDS) if build.order == "burst" else sum(ROUNDS)
    if (outputs["sums"] != build.has_math * products * weighted_sums(build.shape)).any():
        raise WrongAnswer("the accumulators are not so many times the product")
    wrong_if((outputs["words"] != ring_sum(build)).any(), "the ring holds other bytes than the image")
    if build.order == "burst":
        return _burst_values(build, outputs["stamps"])
    cycles = outputs["cycles"].astype(np.int64)
    each = (cycles[:, -1] - cycles[:, -2]) / (ROUNDS[-1] - ROUNDS[-2])
    values = {
        "step_cycles": float(each.mean()),
        "worst_step_cycles": float(each.max()),
        "first_round_cycles": float(cycles[:, 0].mean()),
    }
    if build.is_stamped:
        spent = outputs["phases"].astype(np.int64).mean(axis=(0, 1)) / ROUNDS[-1]
        values |= {f"{name}_cycles": float(cycles) for name, cycles in zip(PHASES, spent, strict=True)}
    return values


def _burst_values(build: Build, stamps: NDArray[Any]) -> dict[str, float]:
    """When so much is issued by all warps and when all is there, from the first warp's begin on."""
    since = stamps.astype(np.int64)
    since = (since - since[:, :, :1].min(axis=1, keepdims=True)).max(axis=1)  # of all warps
    warp_bytes = COPY_BYTES * SHAPES[build.shape].warps
    found = {
        f"issued_{kib}_kib_cycles": float(since[:, 2 + kib * 1024 // warp_bytes].mean())
        for kib in BURST_KIB if kib * 1024 <= build.copies * build.stages * warp_bytes
    }  # fmt: skip
    return found | {"there_cycles": float(since[:, 1].mean()), "math_over_cycles": float(since[:, 2].mean())}


# ---------------------------------------------------------------------------------------------- the simulator's answer

WARM_STEPS, TWIN_STEPS = 8, 24
ADDRESS = 4.0
"""Of a copy whose pointer moves on: additions of two words, moves of both into a pair of registers."""
SET_UP = 5
"""Instructions of a chain from the meeting to the first wgmma, beside its fence: 30 to 32 cycles of SASS's control words."""


def predict(build: Build, gpu: GpuSpec) -> dict[str, float]:
    """A step of the same loop; nothing where looks at the clock or other warps are in it."""
    if not gpu.tensor_core.wgmma_flops_per_cycle or build.is_stamped or build.has_others or build.order == "burst":
        return {}
    return {"step_cycles": _step_cycles(gpu, build)} if build.walk == "images" else {}


def _step_cycles(gpu: GpuSpec, build: Build) -> float:
    shape, stages, distance, ctas = SHAPES[build.shape], build.stages, build.distance, build.ctas
    requests = build.copies * shape.warps
    access = AccessPattern(
        num_requests=requests, num_sectors=16 * requests, num_lines=4 * requests, num_wavefronts=4 * requests,
        num_bytes=COPY_BYTES * requests,
    )  # fmt: skip
    atom, num_issues = wgmma(shape.n, BF16, "smem"), K_STEPS * shape.blocks
    lines = shape.stage_bytes // 128
    whole = AccessPattern(num_requests=lines // 4, num_wavefronts=lines, num_bytes=shape.stage_bytes)

    between = 0.0 if build.is_fixed else ADDRESS

    def refill(cta: RoleContext, step: int) -> Iterator[Any]:
        if build.copies:
            tile = (cta.cta_idx % build.images, step)
            yield ops.CpAsync("T", tile, access, "ring", step % stages, num_rows=4 * requests, num_between=between)
            for _ in range(build.commits):
                yield ops.CpAsyncCommitGroup()

    def program(cta: RoleContext) -> Iterator[Any]:
        if not build.copies:
            for idx in range(stages):
                yield ops.SharedStore(whole, "ring", idx)
            yield ops.Syncthreads()
        for step in range(distance):
            yield from refill(cta, step)
        for step in range(WARM_STEPS + TWIN_STEPS):
            if step == WARM_STEPS:
                yield ops.RangeStart(ops.Section.MAINLOOP)
            if build.copies:
                yield ops.CpAsyncWaitGroup(build.commits * (distance - 1))
            if build.is_fenced:
                yield ops.FenceProxyAsync()
            yield ops.Syncthreads()
            if build.order == "before_math":
                yield from refill(cta, step + distance)
            if build.has_math:
                yield ops.Alu(SET_UP, is_chain=True)
                yield ops.WgmmaFence()
                yield ops.Wgmma(atom, num_issues, (("ring", step % stages),))
                yield ops.WgmmaCommitGroup()
            if build.order == "after_math":
                yield from refill(cta, step + distance)
            if build.has_math:
                yield ops.WgmmaWaitGroup(build.depth)
            if build.order == "after_wait":
                yield ops.Syncthreads()
                yield from refill(cta, step + distance)
        yield ops.RangeEnd()
        yield ops.WgmmaWaitGroup(0)
        yield ops.CpAsyncWaitGroup(0)

    per_sm = -(-ctas // gpu.num_sms)
    made = Launch(
        kernel="own_copies", num_ctas=ctas, num_tiles=ctas,
        roles=(WarpRole(name="own", num_warps=shape.warps, program=program),),
        buffers=(Buffer(name="ring", stage_bytes=shape.stage_bytes, num_stages=stages),),
        registers_per_thread=128 if per_sm > 3 else 168, math_class="16bit",
        num_flops=2 * 64 * shape.n * 16 * num_issues * shape.warpgroups * ctas,
    )  # fmt: skip
    return float(np.mean(range_cycles(made, gpu)["own"])) / TWIN_STEPS


BETWEEN_KIB = (64, 128)
"""Of a burst: behind what queues take at once, and before the end."""


QUEUED_KIB = (8, 16, 64, 96)
"""Of a burst: while its copies only queue up, and while they keep the pace of rows."""


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What a row of a tile takes that is copied around L1, and how many copies queue before it."""
    first, last = (f"issued_{kib}_kib_cycles" for kib in BETWEEN_KIB)
    num_rows = (BETWEEN_KIB[1] - BETWEEN_KIB[0]) * 1024 // (K * 2)
    bursts = [row for row in rows if row["group"] == "bursts" and row["has_math"] == "0"]
    each = [(float(row[last]) - float(row[first])) / num_rows for row in bursts if row.get(last)]
    queued = [_queued_copies(row) for row in bursts if row.get(last)]
    of_rows = "bursts without math: cycles from 64 to 128 KiB issued, over rows: the least"
    of_queue = (
        "bursts without math: copies issued at 64 KiB less those that rows' pace has let through since the begin, median"
    )
    return [
        *fitted("l1.cp_async_row_cycles", [min(each)] if each else [], of_rows),
        *fitted("l1.max_queued_copies", queued, of_queue),
    ]


def _queued_copies(row: Mapping[str, str]) -> float:
    """How many of a burst's copies have been issued and not passed on, once they keep the pace of rows."""
    start, second, early, late = (float(row[f"issued_{kib}_kib_cycles"]) for kib in QUEUED_KIB)
    _, _, early_kib, late_kib = QUEUED_KIB
    begin = start - (second - start)
    passed = (early - begin) * (late_kib - early_kib) / (late - early)
    return (early_kib - passed) * 1024 / COPY_BYTES


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """What an SM takes in, and what of a step its math leaves."""
    if not row.get("step_cycles"):
        return {}  # a burst
    build, shape = Build.of(row), SHAPES[row["shape"]]
    per_sm = -(-build.ctas // ALL_SMS)
    math_cycles = build.has_math * 2.0 * 64 * shape.n * K * shape.blocks * shape.warpgroups / 4096.0
    cycles = float(row["step_cycles"]) / per_sm
    return {"bytes_per_cycle": build.copies * shape.warps * COPY_BYTES / cycles, "beyond_math_cycles": cycles - math_cycles}


CASE = Case(
    name="own_copies",
    question="What does a k-step take whose warps copy by cp.async what they multiply by wgmma?",
    config_type=Build, launch=launch, check=check, num_repeats=3, predict=predict, fit=fit, derive=derive, includes=includes,
    groups={
        **{name: Group(configs=sweep(name), rank=3, least_capability=(9, 0)) for name in builds()},
        "several": Group(configs=several, rank=3, least_capability=(9, 0)),
        "walks": Group(configs=walks, rank=3, least_capability=(9, 0)),
        "bursts": Group(configs=bursts, rank=3, least_capability=(9, 0)),
    },
    values={
        "step_cycles": "SM cycles of a step, mean of CTAs: a round of 176 steps less one of 48",
        "worst_step_cycles": "the same of the slowest CTA",
        "first_round_cycles": "SM cycles of the first round of 16 steps, cold code and lines included, mean of CTAs",
        **{f"issued_{kib}_kib_cycles": f"SM cycles until all warps have issued {kib} KiB of a burst" for kib in BURST_KIB},
        "there_cycles": "SM cycles from a burst's begin until all of it is there",
        "math_over_cycles": "the same until its math is over, too",
        **{f"{name}_cycles": f"of a step, SM cycles of its part {name!r}, mean of warps and CTAs" for name in PHASES},
    },
    tiers={"step_cycles": 4},
)  # fmt: skip
