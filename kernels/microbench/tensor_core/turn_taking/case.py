"""How do two warpgroups share an SM: math beside other work, turns at tiles, the waits of a step?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, GpuSpec, Launch, WarpRole
from gpusim.evidence.cases.array import fragment_places, k_major_descriptors
from gpusim.evidence.cases.background_wgmma import K_STEPS, K, M, atom_of, image, operand, struct
from gpusim.evidence.cases.case import Case, Fitted, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Input, KernelLaunch, Output, by_value
from gpusim.evidence.cases.microbenchmark import range_cycles
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted
from gpusim.workload import ops
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import Mbarrier, RoleContext
from gpusim.workload.operands import epilogue_store, stmatrix_writes
from gpusim.workload.smem.access import AccessPattern

KINDS = (
    "nothing", "imad", "wide", "wide_eighth", "high", "high_eighth", "divide", "pack", "store", "store_wide", "matrix",
    "lds",
)  # fmt: skip
"""In kernel.cu's order."""
WAYS = ("none", "near", "direct", "staged")
SOME_N, WAITS = (64, 128, 256), (0, 1, 2, 4)
TRAIN_CYCLES, TURNS, TURN = 60_000, (20, 60), 32
"""About how long a train takes; turns of the others beside it, items of a turn."""
TILES, TILE_STEPS = 6, (8, 24)
"""Tiles of each warpgroup, steps of a tile."""
ROUNDS = (16, 144)
"""Steps of the two rounds of `waits`; a step is what the second has more."""
PITCH, NUM_STAGES, SCRATCH_BYTES, PATCH_BYTES = 256, 4, 32768, 8192
THREE, SIXTEEN = 3, 16

# ---------------------------------------------------------------------------------------------- entry points
def _name(word: str) -> str:
    return "k" + "".join(part.capitalize() for part in word.split("_"))


def wait_builds() -> list[tuple[int, int, bool, bool]]:
    """(N or 0, waits, whether lanes may differ, whether stages are given back)."""
    return [
        (n, num, may_differ, gives) for n in (0, 64, 128) for num in WAITS for may_differ in (False, True)
        for gives in (False, True) if n or num
    ]  # fmt: skip


def wait_name(n: int, num: int, may_differ: bool, gives: bool) -> str:
    """The entry point."""
    return f"waits_n{n}_{num}_{'apart' if may_differ else 'alike'}{'_gives' if gives else ''}"


def includes() -> dict[str, str]:
    """``shapes.inc``: a struct for each wgmma, and the kernels."""
    text = "".join(struct(f"N{n}", "ss", n, more=f", kIsThere = true;\n    static constexpr int kN = {n}") for n in SOME_N)
    for n in SOME_N:
        text += "".join(f"TURN_KERNEL(beside_n{n}_{kind}, 256, beside, N{n}, {_name(kind)})\n" for kind in KINDS)
        text += "".join(f"TURN_KERNEL(turns_n{n}_{way}, 256, turns, N{n}, {_name(way)})\n" for way in WAYS)
    for n, num, may_differ, gives in wait_builds():
        texts = (f"N{n}" if n else "None", num, str(may_differ).lower(), str(gives).lower())
        text += f"TURN_KERNEL({wait_name(n, num, may_differ, gives)}, 128, waits, {', '.join(map(str, texts))})\n"
    return {"shapes.inc": text}


# ---------------------------------------------------------------------------------------------- configs

@dataclass(frozen=True)
class Row(ConfigRow):
    """One config."""

    kernel: str
    n: int
    work: str
    steps: int = 0
    turns: int = 0
    waits: int = 0
    is_apart: int = 0
    gives: int = 0

    @property
    def kind(self) -> str:
        """First word of the entry point, which is that of its group."""
        return self.kernel.split("_")[0]

    @property
    def num_products(self) -> int:
        """How often a warpgroup multiplies its tile."""
        return sum(ROUNDS) if self.kind == "waits" else self.steps * (self.turns if self.kind == "turns" else 1)


def beside() -> list[Row]:
    """A train of one warpgroup beside so many turns of the other; last, the others beside one step."""
    found = [
        Row(f"beside_n{n}_{kind}", n, kind, steps=TRAIN_CYCLES // (2 * n), turns=turns)
        for n in SOME_N for kind in KINDS for turns in TURNS
    ]  # fmt: skip
    alone = [Row(f"beside_n64_{kind}", 64, kind, steps=1, turns=turns) for kind in KINDS[1:] for turns in TURNS]
    return found + alone


def turns() -> list[Row]:
    """Two that take turns at tiles."""
    return [
        Row(f"turns_n{n}_{way}", n, way, steps=steps, turns=TILES)
        for n in SOME_N for way in WAYS for steps in TILE_STEPS
    ]  # fmt: skip


def waits() -> list[Row]:
    """Steps of one warpgroup by what it waits for."""
    return [
        Row(wait_name(*build), build[0], "waits", waits=build[1], is_apart=int(build[2]), gives=int(build[3]))
        for build in wait_builds()
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- launch
def launch(config: Row) -> KernelLaunch:
    """The same, counted or not."""
    n, kind = max(8, config.n), config.kind
    starts = np.array([*k_major_descriptors(M), *k_major_descriptors(n)], dtype="<u8")
    a_bytes, b_bytes = M * K * 2, n * K * 2
    steps = ROUNDS if kind == "waits" else (config.steps, 0)
    counts = np.array([a_bytes, b_bytes, *steps, config.turns, PITCH, NUM_STAGES, 0], dtype="<u4")
    threads = 128 if kind == "waits" else 256
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.concatenate([starts.view("<u4"), counts])), Input(image(M, 0)), Input(image(n, 1)),
            Input(np.array([1, THREE, SIXTEEN, *[0] * 128], dtype="<u4")),
            Output("out", np.zeros((2 * M, PITCH), dtype="<u2")), Output("sums", np.full(threads, -1, dtype="<i4")),
            Output("words", np.zeros(128, dtype="<u4")), Output("cycles", np.zeros(16, dtype="<u4")),
        ),
        grid=(1, 1, 1), block=(threads, 1, 1), smem_bytes=a_bytes + b_bytes + SCRATCH_BYTES,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- check
@cache
def product(n: int) -> NDArray[np.int64]:
    """Of the operands, int64[64, n]."""
    return np.asarray(operand(M, 0) @ operand(n, 1).T)


def wanted_sums(config: Row) -> NDArray[np.int64]:
    """What each thread makes of its accumulators."""
    n, threads = config.n, 128 if config.kind == "waits" else 256
    made = np.zeros(threads, dtype=np.int64)
    if n:
        weights = np.arange(n // 2)[:, None] % 4 + 1
        each = (product(n)[fragment_places(n)] * weights).sum(axis=0) * config.num_products
        made[:128] = each
        made[128:] = each if config.kind == "turns" else -1  # others have none, and leave what was there
    return made


def wanted_words(config: Row) -> NDArray[np.uint32]:
    """What each thread of the other warpgroup makes of its registers."""
    thread, i, kind = np.arange(128, dtype=np.int64)[:, None], np.arange(8, dtype=np.int64), config.work
    num = config.turns
    r, d = 8 * thread + i + 1, np.broadcast_to(thread, (128, 8))
    if kind == "imad":
        r = r + THREE * TURN // 8 * num
    elif kind == "wide":
        d = d + TURN // 8 * num * (i + 1)
    elif kind == "wide_eighth":
        d = d + np.where(i < TURN // 8, num * (i + 1), 0)
        r = r + np.where(i > 0, THREE * TURN // 8 * num, 0)
    elif kind == "high":
        r = np.full((128, 8), SIXTEEN)
    elif kind == "high_eighth":
        r = np.where(i > 0, r + THREE * TURN // 8 * num, SIXTEEN)
    elif kind == "divide":
        r = r.copy()
        for _ in range(TURN // 8 * num):
            r[:, 0] = (r[:, 0] + 1000003) // r[:, 1]
    elif kind == "pack":
        # the low half; the high one is what the word before rounds to: nothing
        r = np.broadcast_to(((i + 1).astype("<f4").view("<u4") >> 16).astype(np.int64), (128, 8))
    elif kind == "lds":
        r = 3 * (thread // 32 * 2048 + (8 + i) * 128 + thread % 32) + 1
    return np.asarray(((2 * i + 1) * (r + d)).sum(axis=1) & 0xFFFFFFFF).astype("<u4")


def wanted_out(config: Row) -> NDArray[np.uint16]:
    """What lies in memory behind the last store, uint16[128, 256]."""
    kind, work, n = config.kind, config.work, config.n
    made = np.zeros((2 * M, PITCH), dtype="<u2")
    if kind == "turns" and work in ("near", "direct"):
        words = (product(n) * config.num_products).astype("<f4").view("<u4").astype(np.int64)
        rounded = (words + 0x7FFF + (words >> 16 & 1)) >> 16
        made[:M, :n] = made[M:, :n] = rounded.astype("<u2")
    if kind == "beside" and work in ("store", "store_wide"):
        thread, j = np.arange(128)[:, None], np.arange(TURN)
        values = 8 * thread + j % 8 + 1
        rows, columns = thread // 32 * 16 + thread % 32 // 4 + j % 2 * 8, j // 2 * 8 + thread % 4 * 2
        made[rows, columns], made[rows, columns + 1] = values & 0xFFFF, values >> 16
    return made


PARTS = ("wait", "math", "drain", "end_wait", "store")


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Cycles of steps, turns and parts, if everything that was computed, loaded and stored is right.

    Raises:
        WrongAnswer: accumulators, registers or memory hold something else, or the clock stood still.
    """
    kind = config.kind
    wrong_if((outputs["sums"] != wanted_sums(config)).any(), "the accumulators are not so many times the product")
    if kind == "beside" and (outputs["words"] != wanted_words(config)).any():
        raise WrongAnswer(f"the registers of {config['work']} do not hold what so many make of them")
    wrong_if((outputs["out"] != wanted_out(config)).any(), "memory holds something else than was stored")
    cycles = outputs["cycles"].astype(np.int64)
    if kind == "waits":
        found = {"step_cycles": float(cycles[1] - cycles[0]) / (ROUNDS[1] - ROUNDS[0])}
    elif kind == "beside":
        begin, end = cycles[0::2], cycles[1::2]
        spans = (end - begin) % (1 << 32)
        found = {
            "step_cycles": float(spans[:4].mean()) / config.steps,
            "turn_cycles": float(spans[4:].mean()) / config.turns,
        }
    else:
        each = cycles[:12].reshape(2, 6) / (TILES - 1)
        found = {f"{name}_cycles": float(value) for name, value in zip(PARTS, each.mean(axis=0), strict=False)}
        found["tile_cycles"] = float(each[:, 5].mean()) / 2.0
    least = [value for name, value in found.items() if name in ("step_cycles", "turn_cycles", "tile_cycles")]
    wrong_if(min(least) <= 0 or max(least) > 1 << 26, f"the clock says {least} cycles")
    return found


# ---------------------------------------------------------------------------------------------- calibration
def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What an instruction of the other warpgroup takes beside the train."""
    found: list[Fitted] = []
    for kinds, num, parameter, how in (
        (
            ("wide",), TURN, "imad_wide_during_wgmma_cycles",
            "IMAD.WIDEs of one warpgroup beside the other's train, turns over items: median",
        ),
        (
            ("imad", "pack"), TURN + LOOP_INSTRUCTIONS, "math_interval_during_wgmma_cycles",
            "IMAD and F2FP of one warpgroup beside the other's train, turns over 34 instructions each: median, and whole",
        ),
    ):  # fmt: skip
        cycles = [
            float(row["turn_cycles"]) / num for row in rows
            if row["group"] == "beside" and row["work"] in kinds and int(row["steps"]) > 1 and row.get("turn_cycles")
        ]  # fmt: skip
        if cycles:
            value = float(np.median(cycles))
            value = value if len(kinds) == 1 else round(value)
            found.append(Fitted(parameter=f"warp_scheduler.{parameter}", value=value, how=how))
    alone = {row["n"]: float(row["step_cycles"]) for row in rows if row["group"] == "beside" and row["work"] == "nothing"}
    lost = [
        (float(row["step_cycles"]) - alone[row["n"]]) * int(row["steps"]) / (int(row["turns"]) * LONE[row["work"]])
        for row in rows if row["group"] == "beside" and row["work"] in LONE and int(row["steps"]) > 1
    ]  # fmt: skip
    how = "what a train loses to IMAD.WIDEs and IMAD.HIs of the other warpgroup that stand amid other instructions: median"
    return found + fitted("warp_scheduler.imad_wide_interleaved_cycles", lost, how)


LONE = {"wide_eighth": 4, "high_eighth": 4, "divide": 8}
"""Products of 64 bits of a turn that stand amid other instructions."""


# ---------------------------------------------------------------------------------------------- the simulator's answer

WARM_TILES, TWIN_STEPS = 1, 24
LOOP_INSTRUCTIONS = 2
"""Of a turn, beside its items and the branch. Source: SASS."""
DIVISION, DIVISION_BESIDE, DIVISION_WIDE = 88.0, 108.0, 2
"""Cycles of a division of integers without its IMAD.HIs, alone and beside wgmma, and how many these are. Source: SASS
of a turn over four, ``gpusim.evidence.toolchain.issue_latency``."""


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """The same warpgroups in the simulator's words."""
    if not gpu.tensor_core.wgmma_flops_per_cycle or gpu.mbarrier is None:
        return {}
    return {"beside": _beside, "turns": _turns, "waits": _waits}[config.kind](config, gpu)


def _items(kind: str) -> Iterator[Any]:
    """A turn of the other warpgroup."""
    fragments = epilogue_store(M, TURN * 4, 2, "wgmma")
    if kind in ("imad", "pack"):
        yield ops.Alu(TURN + LOOP_INSTRUCTIONS)
    elif kind in ("wide", "high"):
        yield ops.ImadWide(TURN)
    elif kind == "divide":
        for _ in range(TURN // 8):
            yield ops.ImadWide(DIVISION_WIDE, is_interleaved=True)
            yield ops.Alu(DIVISION / 4.0, is_chain=True, num_beside=DIVISION_BESIDE / 4.0)
    elif kind in ("wide_eighth", "high_eighth"):
        for _ in range(TURN // 8):
            yield ops.ImadWide(1, is_interleaved=True)
            yield ops.Alu(7)
        yield ops.Alu(LOOP_INSTRUCTIONS)
    elif kind in ("store", "store_wide"):
        if kind == "store":
            yield ops.GlobalStore("D", (0, 0), fragments)
        else:
            for _ in range(TURN):
                yield ops.ImadWide(1, is_interleaved=True)
                yield ops.GlobalStore("D", (0, 0), _part(fragments, TURN))
    elif kind == "matrix":
        yield ops.Stmatrix(stmatrix_writes(M, TURN * 16, BF16, "128B"))
    elif kind == "lds":
        access = AccessPattern(num_requests=4 * TURN, num_wavefronts=4 * TURN, num_bytes=512 * TURN)
        yield ops.Use((yield ops.SharedLoad(access)))


def _part(access: AccessPattern, num: int) -> AccessPattern:
    """One of so many equal parts."""
    return AccessPattern(**{item.name: getattr(access, item.name) // num for item in fields(access)})


def _beside(config: Row, gpu: GpuSpec) -> dict[str, float]:
    n, steps, num_turns, kind = (config.n, config.steps, config.turns, config.work)

    def train(_cta: RoleContext) -> Iterator[Any]:
        yield from _ready(n, 0)
        yield ops.Syncthreads()
        yield ops.RangeStart(ops.Section.MAINLOOP)
        for _ in range(steps):
            yield from _math(n, 0)
            yield ops.WgmmaWaitGroup(1)
        yield ops.WgmmaWaitGroup(0)
        yield ops.RangeEnd()

    def other(_cta: RoleContext) -> Iterator[Any]:
        yield ops.Syncthreads()
        yield ops.RangeStart(ops.Section.EPILOGUE)
        for _ in range(num_turns):
            yield from _items(kind)
        yield ops.RangeEnd()

    spans = _simulated(n, gpu, {"train": train, "other": other})
    found = {"step_cycles": spans["train"] / steps}
    return found | ({"turn_cycles": spans["other"] / num_turns} if kind != "nothing" else {})


def _turns(config: Row, gpu: GpuSpec) -> dict[str, float]:
    n, steps, num_turns, way = (config.n, config.steps, config.turns, config.work)
    fragments, pairs = epilogue_store(M, n, 2, "wgmma"), n // 4

    def store() -> Iterator[Any]:
        if way == "none":
            return
        if way == "staged":
            yield ops.Alu(pairs)
            yield ops.Stmatrix(stmatrix_writes(M, n, BF16, "128B"))
            return
        for _ in range(pairs):
            if way == "direct":
                yield ops.ImadWide(1, is_interleaved=True)
            yield ops.Alu(1)
            yield ops.GlobalStore("D", (0, 0), _part(fragments, pairs))

    def multiply(idx: int, _cta: RoleContext) -> Iterator[Any]:
        yield from _ready(n, idx)
        yield ops.Syncthreads()
        for turn in range(num_turns):
            parity = (turn & 1) ^ (idx == 0)
            if turn == WARM_TILES:
                yield ops.RangeStart(ops.Section.MAINLOOP)
            yield ops.MbarrierWait("math_turn", idx, parity)
            for _ in range(steps):
                yield from _math(n, idx)
                yield ops.WgmmaWaitGroup(1)
            yield ops.MbarrierArrive("math_turn", 1 - idx)
            yield ops.WgmmaWaitGroup(0)
            yield ops.MbarrierWait("end_turn", idx, parity)
            yield from store()
            yield ops.MbarrierArrive("end_turn", 1 - idx)
        yield ops.RangeEnd()

    spans = _simulated(n, gpu, {"first": partial(multiply, 0), "second": partial(multiply, 1)})
    return {"tile_cycles": float(np.mean(list(spans.values()))) / (num_turns - WARM_TILES) / 2.0}


def _waits(config: Row, gpu: GpuSpec) -> dict[str, float]:
    n = config.n
    cycles = CODE[n, config.waits][2 * config.is_apart + config.gives]
    code = cycles / gpu.warp_scheduler.dependent_cycles

    def program(_cta: RoleContext) -> Iterator[Any]:
        yield from _ready(max(8, n), 0)
        yield ops.MbarrierArrive("math_turn", 0)
        yield ops.RangeStart(ops.Section.MAINLOOP)
        for _ in range(TWIN_STEPS):
            for _ in range(config.waits):
                yield ops.MbarrierWait("math_turn", 0, 0)
            yield ops.Alu(code / 2, is_chain=True)
            if n:
                yield from _math(n, 0)
                yield ops.WgmmaWaitGroup(1)
            if config.gives:
                yield ops.MbarrierArrive("end_turn", 0)
            yield ops.Alu(code / 2, is_chain=True)
        yield ops.RangeEnd()
        yield ops.WgmmaWaitGroup(0)

    return {"step_cycles": _simulated(max(8, n), gpu, {"only": program}, num_ends=TWIN_STEPS)["only"] / TWIN_STEPS}


def _ready(n: int, idx: int) -> Iterator[Any]:
    lines = (M + n) * K * 2 // 128
    yield ops.SharedStore(AccessPattern(num_requests=lines, num_wavefronts=lines, num_bytes=128 * lines), "operands", idx)
    yield ops.FenceProxyAsync()


def _math(n: int, idx: int) -> Iterator[Any]:
    yield ops.WgmmaFence()
    yield ops.Wgmma(atom_of("ss", n), K_STEPS, reads=(("operands", idx),))
    yield ops.WgmmaCommitGroup()


def _simulated(n: int, gpu: GpuSpec, programs: Mapping[str, Any], *, num_ends: int = 1) -> dict[str, float]:
    """Cycles of each role's ranges; ``num_ends`` arrivals end a phase of ``end_turn``."""
    made = Launch(
        kernel="turn_taking", num_ctas=1, num_tiles=1,
        roles=tuple(WarpRole(name=name, num_warps=4, program=program) for name, program in programs.items()),
        buffers=(Buffer(name="operands", stage_bytes=(M + n) * K * 2, num_stages=2),),
        mbarriers=tuple(
            Mbarrier(name=name, num_arrivals=num, num_stages=2) for name, num in (("math_turn", 1), ("end_turn", num_ends))
        ),
        registers_per_thread=168, math_class="16bit", num_flops=2 * M * n * K,
    )  # fmt: skip
    return {name: sum(cycles) for name, cycles in range_cycles(made, gpu).items()}


CODE: Mapping[tuple[int, int], tuple[int, int, int, int]] = {
    (0, 1): (87, 166, 128, 217), (0, 2): (112, 187, 197, 285), (0, 4): (152, 233, 334, 422),
    (64, 0): (84, 187, 149, 263), (64, 1): (146, 271, 257, 391), (64, 2): (169, 292, 325, 458),
    (64, 4): (211, 337, 462, 596),
    (128, 0): (81, 187, 162, 265), (128, 1): (146, 269, 291, 417), (128, 2): (169, 290, 359, 483),
    (128, 4): (211, 337, 496, 617),
}  # fmt: skip
"""Cycles that a step's own instructions take, by N and waits: lanes alike, and with stages given back; lanes apart, too.
Source: SASS of sm_90a, ``gpusim.evidence.toolchain.issue_latency``."""

CASE = Case(
    name="turn_taking",
    question=__doc__,
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict, fit=fit, includes=includes,
    groups={
        name: Group(configs=configs, rank=3, least_capability=(9, 0))
        for name, configs in (("beside", beside), ("turns", turns), ("waits", waits))
    },
    values={
        "step_cycles": "SM cycles of a step, four wgmma: of the train, mean of its warps; of `waits`, of 128 behind 16",
        "turn_cycles": "SM cycles of a turn of the other warpgroup, 32 items, mean of its warps",
        "tile_cycles": "SM cycles from tile to tile, of both warpgroups, behind the first of each",
        "wait_cycles": "of these, of one warpgroup: the wait for its turn",
        "math_cycles": "from there until its last steps have been issued, with one group in flight",
        "drain_cycles": "from there until its wgmma have ended",
        "end_wait_cycles": "from there until its turn to store",
        "store_cycles": "from there until it has issued its stores",
    },
    tiers={"step_cycles": 4, "turn_cycles": 4, "tile_cycles": 4},
)  # fmt: skip
