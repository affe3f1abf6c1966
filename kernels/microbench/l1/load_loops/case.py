"""In what order do an SM's warps run loops of loads, and what do these take beside the arithmetic between them?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Fitted, Group, KernelLaunch, Output, Outputs, Repeated, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

"""Whose load/store unit is looked for."""
NUM_SMS = measured_gpu().num_sms
"""Of an H200, whose every SM gets its CTAs."""
LANES, LINE_BYTES, WORD_BYTES = 32, 128, 4
TIMES = np.dtype([("begin", "<u4"), ("end", "<u4"), ("sm", "<u4"), ("left", "<u4")])
WORDS_PERIOD = 6151
"""Words after which the data come again; a prime."""
ALONE_SMEM_BYTES = 120 * 1024
"""So that two CTAs find no room on one SM."""
NUM_CHECKED = 6
"""CTAs whose sums are held against the data."""

LOADS_OF_TURN, BETWEEN_TURNS, WALK_TURNS = 16, 256, 64
LOADS, OPS = ("global", "shared", "none"), ("wide", "mad", "add", "add64", "fma")
NUMBERS = (4, 8, 16, 32)
WARPS = (4, 8, 16, 32)
WALKS = ((8, 8), (16, 0), (8, 0), (0, 8), (4, 4), (8, 1))
"""Loads of words and of lines of a turn."""
PLACES = ((8, 1), (16, 1), (32, 1), (32, 2))
"""Warps of a CTA, CTAs of an SM."""


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    warps: int
    ctas: int = 1
    rows: str = "own"
    a_walks: int = 0
    b_walks: int = 0


def between() -> list[Config]:
    """Every load with every number of every instruction, by warps."""
    names = [
        "global_wide_0", "shared_wide_0", "global_chain_8", "global_chain_16",
        *(f"{load}_{op}_{num}" for load in LOADS for op in OPS for num in NUMBERS),
    ]  # fmt: skip
    return Config.sweep(kernel=names, warps=WARPS)


def walks() -> list[Config]:
    """Turns of eight words and eight lines in every way; of others all that can walk does, or nothing."""
    ways: list[tuple[str, str, int, int]] = [
        ("walk_8_8", rows, a, b) for rows in ("own", "one") for a in (0, 1) for b in (0, 1)
    ]
    ways += [
        (f"walk_{a}_{b}", "own", int(a > 0) * on, int(b > 0) * on) for a, b in WALKS if (a, b) != (8, 8) for on in (0, 1)
    ]
    ways += [("wide_8_8", rows, 1, 1) for rows in ("own", "one")]
    return [Config(name, warps, ctas, rows, a, b) for name, rows, a, b in ways for warps, ctas in PLACES]


def loads_of(config: Config) -> tuple[int, int]:
    """(loads of a word, loads of a line) of a turn that walks.

    >>> loads_of(Config("walk_8_1", 4)), loads_of(Config("wide_8_8", 4))
    ((8, 1), (8, 8))
    """
    _, a, b = config.kernel.split("_")
    return int(a), int(b)


def is_walk(config: Config) -> bool:
    """Whether it is of the second group."""
    return config.kernel.startswith(("walk", "wide"))


def words(first: NDArray[np.int64]) -> NDArray[np.float64]:
    """What stands at word ``first`` of either operand: 0 to 7."""
    return DATA[first % WORDS_PERIOD].astype(np.float64)


DATA = np.random.default_rng(7).integers(0, 8, WORDS_PERIOD).astype("<f4")
DATA.flags.writeable = False


def steps(config: Config) -> dict[str, int]:
    """Where rows and lines lie, in bytes (the pitch of ``wide_8_8``: words); each CTA has its own."""
    a, b = loads_of(config)
    num_ctas = NUM_SMS * config.ctas
    a_step, b_step = WORD_BYTES * a * config.a_walks, LINE_BYTES * b * config.b_walks
    a_warp = WALK_TURNS * WORD_BYTES * a + LINE_BYTES
    found = {
        "num_turns": WALK_TURNS, "row_warps": 1 if config.rows == "own" else config.warps, "pitch": LINE_BYTES,
        "a_step": a_step, "a_warp": a_warp, "a_cta": 32 * a_warp, "b_step": b_step,
        "b_cta": max(LINE_BYTES * b, WALK_TURNS * b_step),
    }  # fmt: skip
    if config.kernel == "wide_8_8":
        found.update(pitch=num_ctas * LANES, b_cta=LINE_BYTES, b_step=8 * num_ctas * LINE_BYTES)
    return found


def launch(config: Config) -> KernelLaunch:
    """One CTA, or as many as the SMs hold."""
    warps = config.warps
    block = (warps * LANES, 1, 1)
    if not is_walk(config):
        return KernelLaunch(
            kernel=config.kernel, block=block,
            arguments=(
                Repeated(DATA, LOADS_OF_TURN * LINE_BYTES), Output("zeros", np.zeros(LANES, dtype="<u4")),
                Output("times", np.zeros(warps, dtype=TIMES)), Output("sums", np.zeros(warps * LANES, dtype="<f4")),
                np.int32(BETWEEN_TURNS),
            ),
        )  # fmt: skip
    _, b = loads_of(config)
    num_ctas, at = NUM_SMS * config.ctas, steps(config)
    lines_bytes = (WALK_TURNS + 1) * max(b, 1) * LINE_BYTES * num_ctas
    return KernelLaunch(
        kernel=config.kernel, grid=(num_ctas, 1, 1), block=block, smem_bytes=ALONE_SMEM_BYTES if config.ctas == 1 else 0,
        arguments=(
            Repeated(DATA, num_ctas * at["a_cta"]), Repeated(DATA, lines_bytes),
            Output("times", np.zeros(num_ctas * warps, dtype=TIMES)),
            Output("sums", np.zeros(num_ctas * warps * LANES, dtype="<f4")),
            *(np.int32(at[name]) for name in ("num_turns", "row_warps", "pitch")),
            *(np.int64(at[name]) for name in ("a_step", "a_warp", "a_cta", "b_step", "b_cta")),
        ),
    )  # fmt: skip


def expected(config: Config, cta: int) -> NDArray[np.float64]:
    """The sums of a CTA's threads, float64[warps, 32]; all of them are whole numbers that fp32 holds."""
    warps = config.warps
    lane = np.arange(LANES)
    if not is_walk(config):
        if config.kernel.startswith("none"):
            return np.zeros((warps, LANES))
        held = words(np.arange(LOADS_OF_TURN)[:, None] * LANES + lane)
        left = held[:1] if "chain" in config.kernel else held[::2]  # whose addresses come from the first line's, plus 0
        return np.broadcast_to(BETWEEN_TURNS * (left * held[1::2]).sum(axis=0), (warps, LANES))
    a, b = loads_of(config)
    at = steps(config)
    pitch = at["pitch"] * (WORD_BYTES if config.kernel == "wide_8_8" else 1)
    turn, place = np.arange(WALK_TURNS)[:, None], np.arange(max(a, b))
    left = np.ones((warps, 1, WALK_TURNS, max(a, b)))
    right = np.ones((1, LANES, WALK_TURNS, max(a, b)))
    if a:
        row = cta * at["a_cta"] + np.arange(warps)[:, None, None] // at["row_warps"] * at["a_warp"]
        left = words((row + turn * at["a_step"]) // WORD_BYTES + place % a)[:, None]
    if b:
        line = cta * at["b_cta"] + turn * at["b_step"] + place % b * pitch
        right = words(line // WORD_BYTES + lane[:, None, None])[None]
    found: NDArray[np.float64] = np.einsum("witp,wltp->wl", np.broadcast_to(left, (warps, 1, *left.shape[2:])),
                                           np.broadcast_to(right, (warps, *right.shape[1:])))  # fmt: skip
    return found


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Sums are those of the data, all that was 0 still is; cycles of a turn, of all warps of an SM and of the first CTA."""
    warps = config.warps
    times = outputs["times"].reshape(-1, warps)
    sums = outputs["sums"].reshape(-1, warps, LANES)
    for cta in sorted({int(cta) for cta in np.linspace(0, len(sums) - 1, NUM_CHECKED)}):
        if (sums[cta] != expected(config, cta)).any():
            raise WrongAnswer(f"{config.kernel}: a sum of CTA {cta} is wrong")
    if times["left"].any():
        raise WrongAnswer(f"{config.kernel}: zeros have become something else")
    num_turns = WALK_TURNS if is_walk(config) else BETWEEN_TURNS
    took, first = [], []
    for sm in np.unique(times["sm"][:, 0]):
        here = np.flatnonzero(times["sm"][:, 0] == sm)
        if len(here) != config.ctas:
            raise WrongAnswer(f"{config.kernel}: SM {sm} had {len(here)} CTAs, wants {config.ctas}")
        since = times["begin"][here[0], 0]
        begin, end = ((times[name][here] - since).astype("<i4") for name in ("begin", "end"))
        took.append((end.max() - begin.min()) / num_turns)
        first.append((end[0].max() - begin[0].min()) / num_turns)
    return {"cycles_per_turn": float(np.median(took)), "first_cycles_per_turn": float(np.median(first))}


# ---------------------------------------------------------------------------------------------- the same in the simulator

WARPS_OF_ROLE = 8
"""Of the twin: a role's warps wait for their own loads, and roles go on beside one another."""
TWIN_TURNS = (8, 24)
ALU_OF_TURN, ALU_OF_LINE = 4, 2
"""Integer instructions of a turn, and for each line's address. Source: SASS."""
TWIN_OPS = {
    "wide": (ops.ImadWide, 1), "chain": (ops.ImadWide, 1), "add": (ops.Alu, 1), "add64": (ops.Alu, 2), "fma": (ops.Fma, 1),
}  # fmt: skip
"""What stands for an instruction between loads, and how often; nothing for IMAD, which the vocabulary does not have."""


def _accesses(num: int, num_sectors: int, warps: int, sharers: int) -> tuple[AccessPattern, ...]:
    """``num`` loads each of ``warps``, of which one of ``sharers`` is the first to ask: (what asks, what finds it there)."""
    if not num:
        return ()
    askers = warps // sharers
    new = num_sectors * num if num_sectors > 1 else -(-num * WORD_BYTES // 32)
    requests = min(num, new) * askers
    return (
        AccessPattern(
            num_requests=requests, num_sectors=new * askers, num_lines=requests, num_wavefronts=requests,
            num_bytes=32 * new * askers,
        ),
        AccessPattern(
            num_requests=num * warps - requests, num_sectors=num_sectors * num * warps - new * askers,
            num_lines=num * warps - requests, num_wavefronts=num * warps - requests, num_bytes=0,
        ),
    )  # fmt: skip


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Cycles of a turn of all warps: the slope between two numbers of turns."""
    warps = config.warps
    each = min(WARPS_OF_ROLE, warps)
    ctas = config.ctas
    kernel = config.kernel

    def turn_between() -> Iterator[Any]:
        load, name, num = kernel.split("_")
        tokens: list[Any] = []
        line = AccessPattern(
            num_requests=LOADS_OF_TURN * each, num_sectors=4 * LOADS_OF_TURN * each, num_lines=LOADS_OF_TURN * each,
            num_wavefronts=LOADS_OF_TURN * each, num_bytes=LINE_BYTES * LOADS_OF_TURN,
        )  # fmt: skip
        if load == "global":
            tokens.append((yield ops.GlobalLoad("lines", (0, 0), line)))
        elif load == "shared":
            tokens.append((yield ops.SharedLoad(line)))
        yield ops.Alu(ALU_OF_TURN)
        if int(num):
            kind, times = TWIN_OPS[name]
            yield kind(int(num) * times)
        for token in tokens:
            yield ops.Use(token)
        if load != "none":
            yield ops.Fma(LOADS_OF_TURN // 2, is_chain=True)

    def turn_walk(cta: RoleContext, role: int, turn: int) -> Iterator[Any]:
        a, b = loads_of(config)
        is_own = config.rows == "own"
        rows = role if is_own else 0
        tokens: list[Any] = []
        for access in _accesses(a, 1, each, 1 if is_own else each):
            tokens.append((yield ops.GlobalLoad("a", (cta.cta_idx * 32 + rows, turn * config.a_walks), access)))
        for access in _accesses(b, 4, each, each):
            tokens.append((yield ops.GlobalLoad("b", (cta.cta_idx, turn * config.b_walks), access)))
        wide = b if kernel.startswith("wide") else 0
        yield ops.Alu(ALU_OF_TURN + ALU_OF_LINE * (b - wide))
        if wide:
            yield ops.ImadWide(wide)
        for token in tokens:
            yield ops.Use(token)
        yield ops.Fma(max(a, b), is_chain=True)

    def cycles(num_turns: int) -> float:
        def program_of(role: int) -> Any:
            def program(cta: RoleContext) -> Iterator[Any]:
                for turn in range(num_turns):
                    yield from turn_walk(cta, role, turn) if is_walk(config) else turn_between()

            return program

        num_ctas = ctas * NUM_SMS if is_walk(config) else 1
        launched = Launch(
            kernel="load_loops", num_ctas=num_ctas, num_tiles=num_ctas, registers_per_thread=32,
            extra_smem_bytes=ALONE_SMEM_BYTES if ctas == 1 else 0,
            roles=tuple(
                WarpRole(name=f"warps{role}", num_warps=each, program=program_of(role)) for role in range(warps // each)
            ),
        )  # fmt: skip
        return simulate(launched, gpu, clock="max", l2="warm").cycles

    if not is_walk(config) and kernel.split("_")[1] not in TWIN_OPS:
        return {}
    few, many = TWIN_TURNS
    return {"cycles_per_turn": (cycles(many) - cycles(few)) / (many - few)}


TRIED = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Cycles that a request takes more, between which the ones are looked for that give the measured turn."""
LEAST_WARPS = 32
"""Whose requests keep the load/store unit busy."""


def fit(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[Fitted]:
    """What a load takes more whose line is coming."""
    told = [
        row for row in rows
        if row["kernel"] == "walk_8_8" and int(row["warps"]) >= LEAST_WARPS and "1" in row["a_walks"] + row["b_walks"]
        and row.get("cycles_per_turn")
    ]  # fmt: skip
    tuned = [replace(gpu, l1=replace(gpu.l1, hit_on_miss_cycles=tried)) for tried in TRIED]
    found = []
    for row in told:
        turns = [predict(Config.of(row), each)["cycles_per_turn"] for each in tuned]
        found.append(float(np.interp(float(row["cycles_per_turn"]), turns, TRIED)))
    how = "loops of 32 warps, eight words and eight lines, that walk: as the twin takes as long, median"
    return Fitted.median("l1.hit_on_miss_cycles", found, how)


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """Cycles of a turn over its requests of all warps of an SM."""
    if not row.get("cycles_per_turn") or row["kernel"].startswith("none"):
        return {}
    loads = sum(loads_of(Config.of(row))) if is_walk(Config.of(row)) else LOADS_OF_TURN
    return {"cycles_per_request": float(row["cycles_per_turn"]) / (loads * int(row["warps"]) * int(row["ctas"]))}


CASE = Case(
    name="load_loops",
    question=__doc__ or "",
    config_type=Config,
    groups={
        "between": Group(configs=between, rank=3),
        "walks": Group(
            configs=walks, rank=3,
            metrics=(
                "l1tex__m_xbar2l1tex_read_sectors_mem_lg_op_ld.sum", "lts__t_sectors_srcunit_tex_op_read.sum",
                "smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio",
                "smsp__issue_active.avg.per_cycle_active",
            ),
        ),
    },
    launch=launch, check=check,
    values={
        "cycles_per_turn": "SM cycles from the first warp's begin to the last one's end, over turns; the median of the SMs",
        "first_cycles_per_turn": "the same of the CTA that came first to each SM",
    },
    num_repeats=5, predict=predict, derive=derive, fit=fit, tiers={"cycles_per_turn": 4},
)  # fmt: skip
