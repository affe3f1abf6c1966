"""What do instructions of a kind take beside a train of wgmma, and what does the train lose to them?"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.background_wgmma import K_STEPS, K, M, atom_of, encode, image, operand, struct
from gpusim.evidence.cases.case import (
    Case,
    Config,
    Fitted,
    Group,
    Input,
    KernelLaunch,
    Output,
    Outputs,
    WrongAnswer,
    by_value,
)
from gpusim.layout import tile_to_shape
from gpusim.layout.swizzle import ByteLayout
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.smem.wgmma_operands import gmma_atom, wgmma_descriptors

ROUNDS = (16, 144)
"""Steps of the two rounds of warps that do both; a step is what the second has more."""
TRAIN_CYCLES = 40_000
"""About how long a train takes that others run beside."""
PIECE_BYTES, MOST_PIECES, REGION_BYTES = 512, 16, 65536
ALL_SMS = 132

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
TURN, COPY_TURN = 64, 16
OTHER_WARPS = (1, 4, 8)
X, Y = (3, 5, 17, 257), (6, 11, 33, 1025)
"""What integers are added to, or multiplied."""


class Own(NamedTuple):
    """An entry point whose warps do both."""

    source: str
    n: int
    kind: str
    num: int
    is_chain: bool = False
    order: str = "between"

    @property
    def name(self) -> str:
        """The entry point."""
        ending = ("_chain" if self.is_chain else "") + ("_behind" if self.order == "behind" else "")
        return f"own_{self.source}{self.n}_{self.kind}_{self.num}{ending}"


def counts_of(kind: str, counts: tuple[int, ...]) -> tuple[int, ...]:
    """Copies are fewer."""
    if kind == "move":
        return tuple(count for count in counts if count <= MOST_MOVES)
    return tuple(COPY_COUNTS[count] for count in counts if count in COPY_COUNTS) if kind in COPIES else counts


def own_builds() -> list[Own]:
    """Every entry point whose warps do both."""
    found = [Own(*train, "nothing", 0) for train in TRAINS if train[1]]
    found += [
        Own(*train, kind, count) for train, counts in TRAINS.items() for kind in KINDS for count in counts_of(kind, counts)
    ]  # fmt: skip
    for kind in CHAINED:
        found += [Own(*train, kind, count, True) for train in (("none", 0), ("ss", 256)) for count in CHAIN_COUNTS]
    for kind in BEHIND:
        found += [Own("ss", 256, kind, count, False, "behind") for count in counts_of(kind, BEHIND_COUNTS)]
    return found


def other_builds() -> list[tuple[str, int, str]]:
    """Every entry point beside whose train other warps run: A's place (never registers: too few), N, kind."""
    return [("ss", n, kind) for source, n in TRAINS if source == "ss" for kind in KINDS]


def includes() -> dict[str, str]:
    """``shapes.inc``: a struct for each wgmma, and the kernels."""
    text = "".join(
        struct(_struct_name(source, n), source, n, more=", kIsThere = true") for source, n in TRAINS if n
    )
    for build in own_builds():
        told = (
            _struct_name(build.source, build.n), _kind(build.kind), str(max(1, build.num)),
            _bool(build.is_chain), _bool(build.order == "behind"),
        )  # fmt: skip
        text += f"PIPE_KERNEL({build.name}, 256, own, {', '.join(told)})\n"
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


def _own_config(build: Own, warpgroups: int, ctas: int = 1) -> Config:
    return {
        "kernel": build.name, "source": build.source, "n": str(build.n), "kind": build.kind, "count": str(build.num),
        "is_chain": str(int(build.is_chain)), "order": build.order, "warpgroups": str(warpgroups), "other_warps": "0",
        "ctas": str(ctas), "has_train": str(int(build.n > 0)),
    }  # fmt: skip


def _other_config(source: str, n: int, kind: str, warpgroups: int, others: int, *, has_train: bool = True) -> Config:
    return {
        "kernel": f"others_{source}{n}_{kind}", "source": source, "n": str(n), "kind": kind, "count": str(turn_of(kind)),
        "is_chain": "0", "order": "others", "warpgroups": str(warpgroups), "other_warps": str(others), "ctas": "1",
        "has_train": str(int(has_train)),
    }  # fmt: skip


def turn_of(kind: str) -> int:
    """Instructions of a turn of other warps."""
    return COPY_TURN if kind in COPIES else TURN


def own(seed: int) -> list[Config]:
    """Warps that do both, on one SM."""
    del seed  # a sweep, the same for every seed
    return [_own_config(build, warpgroups) for warpgroups in (1, 2) for build in own_builds()]


def others(seed: int) -> list[Config]:
    """Other warps, on one SM, beside a train and without. In no group: a run gave no row and did not end in 530 s.

    These warps end by the train's flag alone; if their IMAD.WIDEs keep the tensor cores from getting on, it never comes.
    To measure them the kernel wants a bound on turns.
    """
    del seed  # a sweep, the same for every seed
    found = [_other_config("ss", 64, kind, 1, num_warps, has_train=False) for kind in KINDS for num_warps in OTHER_WARPS]
    return found + [
        _other_config(*build, warpgroups, num_warps)
        for warpgroups in (1, 2) for build in other_builds() for num_warps in OTHER_WARPS if warpgroups + num_warps // 4 <= 3
    ]  # fmt: skip


def everywhere(seed: int) -> list[Config]:
    """Some of those that do both on all SMs."""
    del seed  # a sweep, the same for every seed
    builds = [build for build in own_builds() if build.n == 256 and build.source == "ss" and build.num in (0, 16, 64)]
    return [_own_config(build, 2, ALL_SMS) for build in builds if build.order == "between" and not build.is_chain]


# ---------------------------------------------------------------------------------------------- data


@cache
def weighted_sums(n: int) -> NDArray[np.int64]:
    """What each thread of a warpgroup makes of its accumulators of one product, int64[128]: PTX's fragment of D."""
    product = operand(M, 0) @ operand(n, 1).T
    thread, register = np.arange(128)[:, None], np.arange(n // 2)
    rows = thread // 32 * 16 + thread % 32 // 4 + register // 2 % 2 * 8
    columns = register // 4 * 8 + thread % 4 * 2 + register % 2
    return np.asarray((product[rows, columns] * (register % 4 + 1)).sum(axis=1))


@cache
def region() -> NDArray[np.uint32]:
    """What copies bring and loads find, words."""
    made = np.random.default_rng(7).integers(1, 2**32, REGION_BYTES // 4, dtype=np.uint32)
    made.setflags(write=False)
    return made


def numbers() -> NDArray[np.uint32]:
    """Of the instructions: two times four integers, 1, 0, 1.0 twice, and 16."""
    floats = np.ones(2, dtype="<f4").view("<u4")
    return np.concatenate([np.array([*X, *Y, 1, 0], dtype="<u4"), floats, np.array([16], dtype="<u4")])


def _told_steps(config: Config) -> tuple[int, int]:
    """Steps of the rounds, or of the train that others run beside."""
    if config["order"] != "others":
        return ROUNDS
    cycles = 2.0 * int(config["n"]) * int(config["warpgroups"])
    return (round(TRAIN_CYCLES / cycles) if config["has_train"] == "1" else 0), 0


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """The same, counted or not."""
    del is_counted
    n, ctas = max(8, int(config["n"])), int(config["ctas"])
    math_warps = 4 * int(config["warpgroups"])
    warps = math_warps + int(config["other_warps"])
    starts = [_starts(rows) for rows in (M, n)]
    a_bytes, b_bytes = M * K * 2, n * K * 2
    counts = np.array([a_bytes, b_bytes, *_told_steps(config), TRAIN_CYCLES, math_warps], dtype="<u4")
    told = np.concatenate([np.array(starts, dtype="<u8").reshape(-1).view(np.uint8), counts.view(np.uint8)])
    num_clocks = 2 * (warps if config["order"] == "others" else 1)
    return KernelLaunch(
        kernel=config["kernel"],
        arguments=(
            by_value(told), Input(image(M, 0)), Input(image(n, 1)), Input(encode(operand(M, 0))),
            Input(np.concatenate([region(), region()])), Input(numbers()),
            Output("sums", np.full((ctas, 32 * warps), -1, dtype="<i4")),
            Output("words", np.zeros((ctas, 32 * warps), dtype="<u4")),
            Output("cycles", np.zeros((ctas, num_clocks), dtype="<u4")), Output("filled", np.zeros(ctas, dtype="<u4")),
        ),
        grid=(ctas, 1, 1),
        block=(32 * warps, 1, 1),
        smem_bytes=a_bytes + b_bytes + REGION_BYTES,
    )  # fmt: skip


@cache
def _tile(rows: int) -> ByteLayout:
    made = tile_to_shape(gmma_atom("K", "128B", element_bits=16), (rows, K))
    if not isinstance(made, ByteLayout):
        raise TypeError(f"tile_to_shape gave {made}")
    return made


@cache
def _starts(rows: int) -> tuple[int, ...]:
    """Descriptors of an operand's steps over k."""
    return tuple(made.bits for made in wgmma_descriptors(_tile(rows), "K"))


# ---------------------------------------------------------------------------------------------- check


def words_of(config: Config, threads: NDArray[np.int64], first_warp: int, steps: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The word that each thread makes of its registers after so many steps of its own."""
    kind, count, streams = config["kind"], int(config["count"]), 1 if config["is_chain"] == "1" else 8
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
        d = d + (
            steps[:, None] * (uses @ (x + (y << 32))) if kind == "add64" else each * (index + 1)
        )  # the high word once more
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
        warp = threads // 32 - first_warp
        places = (warp[:, None] * min(count, MOST_PIECES) + piece) * (PIECE_BYTES // 4) + threads[:, None] % 32
        r = region()[places].astype(np.int64)
    return np.asarray((weights * r & 0xFFFFFFFF).sum(axis=1) & 0xFFFFFFFF).astype("<u4")


def filled_sum(config: Config) -> int:
    """What the copied shared memory adds up to."""
    words = region().astype(np.uint64) * (2 * np.arange(REGION_BYTES // 4, dtype=np.uint64) + 1)
    if config["kind"] == "lds":
        copied = len(words)
    elif config["kind"] in COPIES:
        warps = int(config["other_warps"]) or 4 * int(config["warpgroups"])
        copied = warps * int(config["count"]) * PIECE_BYTES // 4
    else:
        copied = 0
    return int(words[:copied].sum(dtype=np.uint64)) & 0xFFFFFFFF


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of a step and of an instruction, if everything that was computed, loaded and copied is right.

    Raises:
        WrongAnswer: accumulators, registers or shared memory hold something else.
    """
    n, ctas, warpgroups = int(config["n"]), int(config["ctas"]), int(config["warpgroups"])
    steps = sum(_told_steps(config))
    wanted = np.zeros(outputs["sums"].shape[1], dtype=np.int64)
    if n:
        wanted[: 128 * warpgroups] = np.tile(weighted_sums(n), warpgroups) * steps
    if (outputs["sums"] != wanted).any():
        raise WrongAnswer("the accumulators are not so many times the product")
    if (outputs["filled"] != filled_sum(config)).any():
        raise WrongAnswer("shared memory holds other bytes than were copied")
    cycles = outputs["cycles"].astype(np.int64)
    if (cycles < 0).any() or cycles.max() > 1 << 26 or cycles[:, 0].min() <= 0:
        raise WrongAnswer(f"the clock says {cycles.max()} cycles")
    first = 128 * warpgroups if config["order"] == "others" else 0
    threads = np.arange(first, wanted.size)
    for cta in range(ctas):
        turns = np.full(len(threads), steps)
        if config["order"] == "others":
            turns = cycles[cta].reshape(-1, 2)[threads // 32, 1]
            if turns.min() < 1:
                raise WrongAnswer("other warps had no turn")
        if (
            config["kind"] != "nothing"
            and (outputs["words"][cta, first:] != words_of(config, threads, first // 32, turns)).any()
        ):
            raise WrongAnswer(f"the registers of {config['kind']} do not hold what so many make of them")
    if config["order"] != "others":
        return {"step_cycles": float((cycles[:, 1] - cycles[:, 0]).mean()) / (ROUNDS[1] - ROUNDS[0])}
    each = cycles.reshape(ctas, -1, 2)
    beside = each[:, first // 32 :]
    values = {"instruction_cycles": float((beside[:, :, 0] / beside[:, :, 1]).mean()) / int(config["count"])}
    if steps:
        values["step_cycles"] = float(each[:, : first // 32, 0].mean()) / steps
    return values


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
    found = []
    if len(one) > 1:
        how = "steps of IMAD.WIDE alone, one warpgroup, and ptxas' moves beside: slope over instructions"
        found.append(Fitted(parameter="warp_scheduler.imad_wide_cycles", value=_slope(one), how=how))
    if len(two) > 1:
        how = "steps of IMAD.WIDE alone, two warpgroups: warps of the SM over the slope, times 32, and whole"
        found.append(Fitted(parameter="warp_scheduler.imad_wide_lanes", value=32.0 * 8.0 / _slope(two), how=how))
    return found


def _slope(points: Sequence[tuple[float, float]]) -> float:
    return float(np.polyfit(*np.array(points).T, 1)[0])


# ---------------------------------------------------------------------------------------------- the simulator's answer

WARM_STEPS, TWIN_STEPS, OTHER_TURNS = 8, 24, 12
ALU_KINDS = ("imad", "move", "iadd3", "lop3", "add64")
"""Of the public vocabulary's Alu: half a warp's instruction a cycle and partition, as integer multiplications are, too."""
WIDE_FIRST, WIDE_COPIES, WIDE_BETWEEN = 2, 9, 42
"""IMAD.WIDEs that ptxas puts before a group's first wgmma; of copies' addresses, and of others, most between two wgmma."""
FMA_KINDS = ("ffma", "fadd")


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Cycles of a step and of an instruction, for kinds whose words are public."""
    if not gpu.tensor_core.wgmma_flops_per_cycle:
        return {}
    if config["order"] == "others":
        return _others_predicted(config, gpu)
    roles = tuple(_role(f"own{idx}", config, gpu, warpgroup=idx) for idx in range(int(config["warpgroups"])))
    return {"step_cycles": float(np.mean(list(_simulated(config, gpu, roles).values()))) / TWIN_STEPS}


def _others_predicted(config: Config, gpu: GpuSpec) -> dict[str, float]:
    num_warps, has_train = int(config["other_warps"]), config["has_train"] == "1"
    roles = [_role(f"other{idx}", config, gpu, num_warps=1) for idx in range(num_warps)]
    spans = _simulated(config, gpu, (*([_role("train", config, gpu)] if has_train else []), *roles))
    each = [cycles for name, cycles in spans.items() if name.startswith("other")]
    values = {"instruction_cycles": float(np.mean(each)) / (OTHER_TURNS * int(config["count"]))}
    return values | ({"step_cycles": spans["train"] / TWIN_STEPS} if has_train else {})


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


def _role(name: str, config: Config, gpu: GpuSpec, num_warps: int = 0, warpgroup: int = 0) -> WarpRole:
    del gpu
    is_other, order = num_warps > 0, config["order"]
    warps = num_warps or (4 if order != "others" else 4 * int(config["warpgroups"]))
    n, kind, count = int(config["n"]), config["kind"], int(config["count"])
    has_math, has_work = not is_other and config["has_train"] == "1", is_other or order != "others"
    num_steps = OTHER_TURNS if is_other else TWIN_STEPS
    places = within(kind, count, K_STEPS) if has_math and has_work else [*[0] * K_STEPS, count]
    lines = (M + n) * K * 2 // 128
    whole = AccessPattern(num_requests=lines, num_wavefronts=lines, num_bytes=128 * lines)

    def program(cta: RoleContext) -> Iterator[Any]:
        del cta
        if has_math:
            yield ops.SharedStore(whole, "operands", warpgroup)
            yield ops.FenceProxyAsync()
        for step in range(WARM_STEPS + num_steps):
            if step == WARM_STEPS:
                yield ops.RangeStart(ops.Section.MAINLOOP)
            if has_math:
                yield ops.WgmmaFence()
                for num in places[:-1]:
                    if num:
                        yield ops.ImadWide(num, is_interleaved=kind in COPIES)
                        if kind in COPIES:  # what it multiplies has changed
                            yield ops.Alu(num)
                    yield ops.Wgmma(atom_of(config["source"], n), 1, reads=(("operands", warpgroup),))
                yield ops.WgmmaCommitGroup()
            if has_work and order != "behind":
                yield from instructions(kind, count, warps, config["is_chain"] == "1", 2 * warpgroup + step % 2, places[-1])
            if has_math:
                yield ops.WgmmaWaitGroup(1)
            if has_work and order == "behind":
                yield from instructions(kind, count, warps, config["is_chain"] == "1", 2 * warpgroup + step % 2, places[-1])
        yield ops.RangeEnd()
        if has_math:
            yield ops.WgmmaWaitGroup(0)

    return WarpRole(name=name, num_warps=warps, program=program)


def _simulated(config: Config, gpu: GpuSpec, roles: tuple[WarpRole, ...]) -> dict[str, float]:
    n, ctas = max(8, int(config["n"])), int(config["ctas"])
    made = Launch(
        kernel="pipe_beside_wgmma", num_ctas=ctas, num_tiles=ctas, roles=roles,
        buffers=(
            Buffer(name="operands", stage_bytes=(M + n) * K * 2, num_stages=2),
            Buffer(name="copied", stage_bytes=REGION_BYTES // 4, num_stages=4),
        ),
        registers_per_thread=168, math_class="16bit", num_flops=2 * M * n * K * TWIN_STEPS * ctas,
    )  # fmt: skip
    result = simulate(made, gpu, clock="max", l2="warm", recorded_sms=range(gpu.num_sms))
    found: dict[str, list[float]] = {}
    for role in result.timeline.roles:
        for span in role.sections:
            found.setdefault(role.role, []).append(span.end_cycle - span.start_cycle)
    return {name: float(np.mean(cycles)) for name, cycles in found.items()}


HOPPER = (9, 0)

CASE = Case(
    name="pipe_beside_wgmma",
    question="What do instructions of a kind take beside a train of wgmma, and what does the train lose to them?",
    columns=(
        "source", "n", "kind", "count", "is_chain", "order", "warpgroups", "other_warps", "ctas", "has_train",
    ),
    groups={
        "own": Group(configs=own, rank=3, least_capability=HOPPER),
        "everywhere": Group(configs=everywhere, rank=3, least_capability=HOPPER),
    },
    launch=launch,
    check=check,
    values={
        "step_cycles": "SM cycles of a step, four wgmma of each warpgroup and what its warps do beside, mean of CTAs",
        "instruction_cycles": "SM cycles of a turn of other warps, over its instructions, mean of warps and CTAs",
    },
    num_repeats=3,
    predict=predict,
    fit=fit,
    tiers={"step_cycles": 4, "instruction_cycles": 4},
    derive=derive,
    includes=includes,
)  # fmt: skip
