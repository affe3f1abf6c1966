"""What do instructions of a kind take beside a train of wgmma, and what does the train lose to them?"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, GpuSpec, Launch, WarpRole
from gpusim.evidence.cases.array import fragment_places, k_major_descriptors, read_only
from gpusim.evidence.cases.background_wgmma import K_STEPS, K, M, atom_of, encode, image, operand, struct
from gpusim.evidence.cases.case import Case, Fitted, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Input, KernelLaunch, Output, by_value
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.microbenchmark import range_cycles
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

ROUNDS = (16, 144)
"""Steps of the two rounds of warps that do both; a step is what the second has more."""
TRAIN_CYCLES = 40_000
"""About how long a train takes that others run beside."""
PIECE_BYTES, MOST_PIECES, REGION_BYTES = 512, 16, 65536
ALL_SMS = measured_gpu().num_sms

KINDS = (
    "imad", "imad_wide", "move", "ffma", "fadd", "iadd3", "lop3", "mufu", "add64", "lds", "ldgsts", "ldgsts_wide",
    "ldgsts_add",
)  # fmt: skip
"""In kernel.cu's order."""
COPIES = ("ldgsts", "ldgsts_wide", "ldgsts_add")
MOST_MOVES = 64
"""Registers that go round: more would not fit beside 128 accumulators."""
CHAINED = ("imad", "ffma", "iadd3", "add64")
BEHIND = COPIES
"""Of what ptxas leaves behind a wait: it moves arithmetic where it likes."""
TRAINS: dict[tuple[str, int], tuple[int, ...]] = {
    ("none", 0): (16, 32, 64, 128), ("ss", 64): (16, 64), ("ss", 128): (16, 64), ("ss", 256): (16, 32, 64, 128),
    ("rs", 256): (32, 64),
}  # fmt: skip
"""Instructions of a step, by where A lies and N."""
COPY_COUNTS = {16: 4, 32: 8, 64: 16}
"""The same of copies."""
CHAIN_COUNTS, BEHIND_COUNTS = (16, 64), (32, 64)
X, Y = (3, 5, 17, 257), (6, 11, 33, 1025)
"""What integers are added to, or multiplied."""


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config: an entry point whose warps do both, by so many warpgroups and CTAs."""

    source: str
    n: int
    kind: str
    count: int
    is_chain: bool = False
    order: str = "between"
    warpgroups: int = 1
    other_warps: int = 0
    ctas: int = 1
    has_train: bool = True

    @property
    def kernel(self) -> str:
        """The entry point."""
        ending = ("_chain" if self.is_chain else "") + ("_behind" if self.order == "behind" else "")
        return f"own_{self.source}{self.n}_{self.kind}_{self.count}{ending}"


def counts_of(kind: str, counts: tuple[int, ...]) -> tuple[int, ...]:
    """Copies are fewer."""
    if kind == "move":
        return tuple(count for count in counts if count <= MOST_MOVES)
    return tuple(COPY_COUNTS[count] for count in counts if count in COPY_COUNTS) if kind in COPIES else counts


def own_builds() -> list[Row]:
    """Every entry point whose warps do both."""
    found = [Row(*train, "nothing", 0) for train in TRAINS if train[1]]
    found += [
        Row(*train, kind, count) for train, counts in TRAINS.items() for kind in KINDS for count in counts_of(kind, counts)
    ]
    for kind in CHAINED:
        found += [Row(*train, kind, count, True) for train in (("none", 0), ("ss", 256)) for count in CHAIN_COUNTS]
    for kind in BEHIND:
        found += [Row("ss", 256, kind, count, False, "behind") for count in counts_of(kind, BEHIND_COUNTS)]
    return [replace(build, has_train=build.n > 0) for build in found]


def other_builds() -> list[tuple[str, int, str]]:
    """Every entry point that runs other warps during a train: A's place, N, kind. Registers are too few for ``rs``.

    No config has them: a run gave no row and did not end in 530 s. These warps end by the train's flag alone. If their
    IMAD.WIDEs keep the tensor cores from getting on, it never comes. To measure them the kernel wants a bound on turns.
    """
    return [("ss", n, kind) for source, n in TRAINS if source == "ss" for kind in KINDS]


def includes() -> dict[str, str]:
    """``shapes.inc``: a struct for each wgmma, and the kernels."""
    text = "".join(struct(_struct_name(source, n), source, n, more=", kIsThere = true") for source, n in TRAINS if n)
    for build in own_builds():
        told = (
            _struct_name(build.source, build.n), _kind(build.kind), str(max(1, build.count)),
            _bool(build.is_chain), _bool(build.order == "behind"),
        )  # fmt: skip
        text += f"PIPE_KERNEL({build.kernel}, 256, own, {', '.join(told)})\n"
    for source, n, kind in other_builds():
        text += f"PIPE_KERNEL(others_{source}{n}_{kind}, 384, others, {_struct_name(source, n)}, {_kind(kind)})\n"
    return {"shapes.inc": text}


def _bool(told: bool) -> str:
    return "true" if told else "false"


def _kind(kind: str) -> str:
    return "k" + "".join(part.capitalize() for part in kind.split("_"))


def _struct_name(source: str, n: int) -> str:
    return f"{source}_n{n}" if n else "None"


# ---------------------------------------------------------------------------------------------- configs
def own() -> list[Row]:
    """Warps that do both, on one SM."""
    return [replace(build, warpgroups=warpgroups) for warpgroups in (1, 2) for build in own_builds()]


def everywhere() -> list[Row]:
    """Some of those that do both on all SMs."""
    builds = [build for build in own_builds() if build.n == 256 and build.source == "ss" and build.count in (0, 16, 64)]
    builds = [build for build in builds if build.order == "between" and not build.is_chain]
    return [replace(build, warpgroups=2, ctas=ALL_SMS) for build in builds]


# ---------------------------------------------------------------------------------------------- data
@cache
def weighted_sums(n: int) -> NDArray[np.int64]:
    """What each thread of a warpgroup makes of its accumulators of one product, int64[128]: PTX's fragment of D."""
    product = operand(M, 0) @ operand(n, 1).T
    return np.asarray((product[fragment_places(n)] * (np.arange(n // 2)[:, None] % 4 + 1)).sum(axis=0))


@cache
def region() -> NDArray[np.uint32]:
    """What copies bring and loads find, words."""
    return read_only(np.random.default_rng(7).integers(1, 2**32, REGION_BYTES // 4, dtype=np.uint32))


def numbers() -> NDArray[np.uint32]:
    """Of the instructions: two times four integers, 1, 0, 1.0 twice, and 16."""
    floats = np.ones(2, dtype="<f4").view("<u4")
    return np.concatenate([np.array([*X, *Y, 1, 0], dtype="<u4"), floats, np.array([16], dtype="<u4")])


def launch(config: Row) -> KernelLaunch:
    """The same, counted or not."""
    n, ctas, warps = max(8, config.n), config.ctas, 4 * config.warpgroups
    starts = np.array([*k_major_descriptors(M), *k_major_descriptors(n)], dtype="<u8")
    a_bytes, b_bytes = M * K * 2, n * K * 2
    counts = np.array([a_bytes, b_bytes, *ROUNDS, TRAIN_CYCLES, warps], dtype="<u4")
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.concatenate([starts.view("<u4"), counts])), Input(image(M, 0)), Input(image(n, 1)),
            Input(encode(operand(M, 0))), Input(np.concatenate([region(), region()])), Input(numbers()),
            Output("sums", np.full((ctas, 32 * warps), -1, dtype="<i4")),
            Output("words", np.zeros((ctas, 32 * warps), dtype="<u4")),
            Output("cycles", np.zeros((ctas, 2), dtype="<u4")), Output("filled", np.zeros(ctas, dtype="<u4")),
        ),
        grid=(ctas, 1, 1), block=(32 * warps, 1, 1), smem_bytes=a_bytes + b_bytes + REGION_BYTES,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- check
def words_of(config: Row, threads: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The word that each thread makes of its registers after so many steps of its own."""
    kind, count, streams = config.kind, config.count, 1 if config.is_chain else 8
    index = np.arange(8)
    uses = np.zeros((8, 4), dtype=np.int64)  # of the pairs of x and y by each register, in a step
    for j in range(count):
        uses[j % streams, j // streams % 4] += 1
    x, y = np.array(X), np.array(Y)
    each = uses.sum(axis=1) * steps[:, None]  # int64[threads, 8]
    r = threads[:, None] * 8 + index + 1
    d = ((index + 1).astype(np.int64) << 32) + threads[:, None]
    weights = 2 * index + 1
    if kind in ("imad_wide", "add64"):
        d = d + (steps[:, None] * (uses @ (x + (y << 32))) if kind == "add64" else each * (index + 1))
        parts = weights * (d & 0xFFFFFFFF) + 3 * weights * (d >> 32 & 0xFFFFFFFF)
        return np.asarray((parts & 0xFFFFFFFF).sum(axis=1) & 0xFFFFFFFF).astype("<u4")
    if kind in ("ffma", "fadd", "mufu"):
        f = np.where(each > 0, np.inf, index) if kind == "mufu" else index + each.astype(np.float64)
        r = np.ascontiguousarray(f.astype("<f4")).view("<u4").astype(np.int64)
    elif kind == "imad":
        r = r + steps[:, None] * (uses @ x)
    elif kind == "iadd3":
        r = r + steps[:, None] * (uses @ (x + y))
    elif kind == "lop3":
        for pair in range(4):
            r = r ^ np.where(uses[:, pair] * steps[:, None] % 2 == 1, x[pair] ^ y[pair], 0)
    elif kind == "move":
        index = np.arange(count)
        weights = 2 * index + 1
        r = threads[:, None] * 8 + (index + steps[:, None]) % count + 1
    elif kind == "lds":
        piece = (count - 8 + index) % MOST_PIECES
        places = (threads[:, None] // 32 * min(count, MOST_PIECES) + piece) * (PIECE_BYTES // 4) + threads[:, None] % 32
        r = region()[places].astype(np.int64)
    return np.asarray((weights * r & 0xFFFFFFFF).sum(axis=1) & 0xFFFFFFFF).astype("<u4")


def filled_sum(config: Row) -> int:
    """What the copied shared memory adds up to."""
    words = region().astype(np.uint64) * (2 * np.arange(REGION_BYTES // 4, dtype=np.uint64) + 1)
    if config.kind == "lds":
        copied = len(words)
    elif config.kind in COPIES:
        copied = 4 * config.warpgroups * config.count * PIECE_BYTES // 4
    else:
        copied = 0
    return int(words[:copied].sum(dtype=np.uint64)) & 0xFFFFFFFF


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Cycles of a step and of an instruction, if everything that was computed, loaded and copied is right.

    Raises:
        WrongAnswer: accumulators, registers or shared memory hold something else.
    """
    wanted = np.zeros(outputs["sums"].shape[1], dtype=np.int64)
    if config.n:
        wanted[:] = np.tile(weighted_sums(config.n), config.warpgroups) * sum(ROUNDS)
    wrong_if((outputs["sums"] != wanted).any(), "the accumulators are not so many times the product")
    wrong_if((outputs["filled"] != filled_sum(config)).any(), "shared memory holds other bytes than were copied")
    cycles = outputs["cycles"].astype(np.int64)
    if (cycles < 0).any() or cycles.max() > 1 << 26 or cycles[:, 0].min() <= 0:
        raise WrongAnswer(f"the clock says {cycles.max()} cycles")
    words = words_of(config, np.arange(wanted.size), np.full(wanted.size, sum(ROUNDS)))
    if config.kind != "nothing" and (outputs["words"] != words).any():
        raise WrongAnswer(f"the registers of {config.kind} do not hold what so many make of them")
    return {"step_cycles": float((cycles[:, 1] - cycles[:, 0]).mean()) / (ROUNDS[1] - ROUNDS[0])}


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """What of a step the train's math leaves."""
    if not row.get("step_cycles") or row["has_train"] == "0":
        return {}
    return {"beyond_math_cycles": float(row["step_cycles"]) - 2.0 * int(row["n"]) * int(row["warpgroups"])}


# ---------------------------------------------------------------------------------------------- calibration

WARPS_OF_SCHEDULER = (1, 2)
"""With one warpgroup and with two."""


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What IMAD.WIDE takes alone: of one warp of each scheduler, and the lanes that two fill."""
    one, two = (
        [
            (float(row["count"]), float(row["step_cycles"])) for row in rows
            if row["kind"] == "imad_wide" and row["n"] == "0" and row["warpgroups"] == str(num) and row.get("step_cycles")
        ]
        for num in WARPS_OF_SCHEDULER
    )  # fmt: skip
    how = "steps of IMAD.WIDE alone, one warpgroup, and ptxas' moves beside: slope over instructions"
    found = fitted("warp_scheduler.imad_wide_cycles", [_slope(one)] if len(one) > 1 else [], how)
    how = "steps of IMAD.WIDE alone, two warpgroups: warps of the SM over the slope, times 32, and whole"
    return found + fitted("warp_scheduler.imad_wide_lanes", [32.0 * 8.0 / _slope(two)] if len(two) > 1 else [], how)


def _slope(points: Sequence[tuple[float, float]]) -> float:
    return float(np.polyfit(*np.array(points).T, 1)[0])


# ---------------------------------------------------------------------------------------------- the simulator's answer

WARM_STEPS, TWIN_STEPS = 8, 24
ALU_KINDS = ("imad", "move", "iadd3", "lop3", "add64")
"""Of the public vocabulary's Alu: half a warp's instruction a cycle and partition, as integer multiplications are, too."""
WIDE_FIRST, WIDE_COPIES, WIDE_BETWEEN = 2, 9, 42
"""IMAD.WIDEs that ptxas puts before a group's first wgmma; of copies' addresses, and of others, most between two wgmma."""
FMA_KINDS = ("ffma", "fadd")


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """Cycles of a step and of an instruction, for kinds whose words are public."""
    if not gpu.tensor_core.wgmma_flops_per_cycle:
        return {}
    roles = tuple(_role(f"own{idx}", config, idx) for idx in range(config.warpgroups))
    made = Launch(
        kernel="pipe_beside_wgmma", num_ctas=config.ctas, num_tiles=config.ctas, roles=roles,
        buffers=(
            Buffer(name="operands", stage_bytes=(M + max(8, config.n)) * K * 2, num_stages=2),
            Buffer(name="copied", stage_bytes=REGION_BYTES // 4, num_stages=4),
        ),
        registers_per_thread=168, math_class="16bit", num_flops=2 * M * max(8, config.n) * K * TWIN_STEPS * config.ctas,
    )  # fmt: skip
    each = [float(np.mean(cycles)) for cycles in range_cycles(made, gpu).values()]
    return {"step_cycles": float(np.mean(each)) / TWIN_STEPS}


def within(kind: str, count: int, num_wgmma: int) -> list[int]:
    """IMAD.WIDEs before each wgmma of a group, as ptxas places them, and those behind the last."""
    if kind == "imad_wide":
        first = min(WIDE_FIRST, count)
        gaps = min(num_wgmma - 1, -(-(count - first) // WIDE_BETWEEN))
        each = [(count - first + gap) // gaps for gap in range(gaps)]
        return [first, *each, *[0] * (num_wgmma - gaps)]
    most = min(count, WIDE_COPIES) if kind == "ldgsts_wide" else 0
    return [0, most, *[0] * (num_wgmma - 2), count - most if most else 0]


def instructions(
    kind: str, count: int, num_warps: int, is_chain: bool, stage: int, later_wide: int
) -> Generator[Any, Any, None]:
    """One step of a role's warps; ``later_wide`` of the IMAD.WIDEs of their addresses stand among copies."""
    if kind == "imad_wide":
        if later_wide:
            yield ops.ImadWide(later_wide)
    elif kind in ALU_KINDS:
        # of two 64-bit additions of a chain ptxas makes one pair of instructions, whose low words are the chain
        yield ops.Alu(count / 2 if kind == "add64" and is_chain else count, is_chain)
    elif kind in FMA_KINDS:
        yield ops.Fma(count, is_chain)
    elif kind == "mufu":
        yield ops.Mufu(count)
    elif kind == "lds":
        requests = count * num_warps
        access = AccessPattern(num_requests=requests, num_wavefronts=requests, num_bytes=128 * requests)
        yield ops.Use((yield ops.SharedLoad(access)))  # the next loads go into the same eight registers
    elif kind in COPIES:
        requests = count * num_warps
        access = AccessPattern(
            num_requests=requests, num_sectors=16 * requests, num_lines=4 * requests, num_wavefronts=4 * requests,
            num_bytes=PIECE_BYTES * requests,
        )  # fmt: skip
        if kind == "ldgsts_wide" and later_wide:
            yield ops.ImadWide(later_wide, is_interleaved=True)
        elif kind == "ldgsts_add":  # of two words
            yield ops.Alu(2 * count)
        yield ops.CpAsync("T", (0, stage), access, "copied", stage, num_rows=requests)
        yield ops.CpAsyncCommitGroup()
        yield ops.CpAsyncWaitGroup(1)


def _role(name: str, config: Row, warpgroup: int) -> WarpRole:
    n, kind, count, has_math = config.n, config.kind, config.count, config.has_train
    places = within(kind, count, K_STEPS) if has_math else [*[0] * K_STEPS, count]
    lines = (M + n) * K * 2 // 128
    whole = AccessPattern(num_requests=lines, num_wavefronts=lines, num_bytes=128 * lines)

    def program(_cta: RoleContext) -> Iterator[Any]:
        if has_math:
            yield ops.SharedStore(whole, "operands", warpgroup)
            yield ops.FenceProxyAsync()
        for step in range(WARM_STEPS + TWIN_STEPS):
            if step == WARM_STEPS:
                yield ops.RangeStart(ops.Section.MAINLOOP)
            if has_math:
                yield ops.WgmmaFence()
                for num in places[:-1]:
                    if num:
                        yield ops.ImadWide(num, is_interleaved=kind in COPIES)
                        if kind in COPIES:  # what it multiplies has changed
                            yield ops.Alu(num)
                    yield ops.Wgmma(atom_of(config.source, n), 1, reads=(("operands", warpgroup),))
                yield ops.WgmmaCommitGroup()
            if has_math and config.order == "behind":
                yield ops.WgmmaWaitGroup(1)
            yield from instructions(kind, count, 4, config.is_chain, 2 * warpgroup + step % 2, places[-1])
            if has_math and config.order != "behind":
                yield ops.WgmmaWaitGroup(1)
        yield ops.RangeEnd()
        if has_math:
            yield ops.WgmmaWaitGroup(0)

    return WarpRole(name=name, num_warps=4, program=program)


CASE = Case(
    name="pipe_beside_wgmma",
    question="What do instructions of a kind take beside a train of wgmma, and what does the train lose to them?",
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict, fit=fit, derive=derive, includes=includes,
    groups={
        "own": Group(configs=own, rank=3, least_capability=(9, 0)),
        "everywhere": Group(configs=everywhere, rank=3, least_capability=(9, 0)),
    },
    values={
        "step_cycles": "SM cycles of a step, four wgmma of each warpgroup and what its warps do beside, mean of CTAs",
        "instruction_cycles": "SM cycles of a turn of other warps, over its instructions, mean of warps and CTAs",
    },
    tiers={"step_cycles": 4, "instruction_cycles": 4},
)  # fmt: skip
