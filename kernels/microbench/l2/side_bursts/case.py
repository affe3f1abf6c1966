"""Who waits for what crosses between L2's two sides, and in what order do a burst's loads come?"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Group, KernelLaunch, Output, Outputs, Repeated, WrongAnswer, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.tile_walk import ADDEND, MULTIPLIER, grid_include
from gpusim.evidence.cases.validation_kernel import pattern_words
from gpusim.kernel_models.streaming import dense_access, same
from gpusim.workload import ops
from gpusim.workload.launch import Footprint, RoleContext

NUM_SMS = measured_gpu().num_sms
"""Of the H200; where SMs have other numbers the launch gives itself up."""
FLUSH_BYTES = 256 * 2**20
"""Read before, so that nothing else is in L2."""
VECTOR_BYTES, WARP_SIZE, LINE_BYTES = 16, 32, 128
NUM_LINES = 131072
"""Of what there is to read, and of what there is to store into."""
NUM_PROBES = 64
NUM_TURNS = 2
"""Flush and burst are made so often in a launch; the last time counts, as its code is there then."""
LEAST_CORRELATION = 0.3
FLAG_WORDS, TIME_WORDS = 32 + 32 + 64 + 256, 12
SIDES = ("none", "near", "far", "both")
UNEVEN, SHORT = 1, 2
"""Why a launch gave itself up."""
QUANTILES = (0, 10, 50, 90, 100)

SIDE_SHAPES = ((1, 1024, 1), (2, 1024, 1), (2, 1024, 2), (1, 256, 4))
"""CTAs an SM, threads, vectors of a thread."""
ORDER_SHAPES = (
    (1, 256, 1), (1, 256, 4), (1, 256, 8), (1, 512, 8), (1, 1024, 4), (2, 256, 4), (2, 256, 8), (2, 512, 4), (4, 256, 4),
    (8, 256, 1),
)  # fmt: skip
LATE_SHAPES = ((2, 256, 4), (2, 256, 8), (2, 512, 4))
DELAYS = (100, 200, 400, 800)
"""Cycles that the second CTA of an SM waits."""


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    way: str
    read_side: str
    write_side: str
    ctas_per_sm: int
    threads: int
    unrolled: int
    delay: int


def _config(way: str, read_side: str, write_side: str, shape: tuple[int, int, int], delay: int = 0) -> Config:
    ctas, threads, unrolled = shape
    return Config(f"burst_u{unrolled}", way, read_side, write_side, ctas, threads, unrolled, delay)


def sides() -> list[Config]:
    """Reads, stores and copies of lines that are at home on the SM's own side of L2, on the other one, on both."""
    homes = SIDES[1:]
    ways = [
        *(("read", home, "none") for home in homes), *(("write", "none", home) for home in homes),
        *(("copy", *pair) for pair in product(homes, homes)),
    ]  # fmt: skip
    return [_config(*way, shape) for way, shape in product(ways, SIDE_SHAPES)]


def order() -> list[Config]:
    """Reads and copies by shape, where ``sides`` does not have them; reads whose second CTA of an SM comes later."""
    at_once = [
        _config(way, "both", write_side, shape)
        for (way, write_side), shape in product((("read", "none"), ("copy", "both")), ORDER_SHAPES)
        if shape not in SIDE_SHAPES
    ]
    return at_once + [_config("read", "both", "none", shape, delay) for shape, delay in product(LATE_SHAPES, DELAYS)]


# ---------------------------------------------------------------------------------------------- launch and check
def num_ctas(config: Config) -> int:
    """All are there at once."""
    return NUM_SMS * config.ctas_per_sm


def num_warps(config: Config) -> int:
    """Of a CTA."""
    return config.threads // WARP_SIZE


def num_bytes(config: Config) -> int:
    """That all CTAs read, or store."""
    return num_ctas(config) * config.threads * config.unrolled * VECTOR_BYTES


def does(config: Config) -> tuple[bool, bool]:
    """Whether it reads, whether it stores."""
    return config.read_side != "none", config.write_side != "none"


def launch(config: Config) -> KernelLaunch:
    """A CTA for each place."""
    plan = [
        FLUSH_BYTES // VECTOR_BYTES, NUM_SMS, config.ctas_per_sm, SIDES.index(config.read_side),
        SIDES.index(config.write_side), config.delay, NUM_TURNS,
    ]  # fmt: skip
    ctas, warps = num_ctas(config), num_warps(config)
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.array(plan, dtype="<u4")), Output("flags", np.zeros(FLAG_WORDS, dtype="<u4")),
            Repeated(pattern_words(43), FLUSH_BYTES), Output("probed", np.zeros((NUM_SMS, NUM_PROBES), dtype="<u4")),
            Output("lines", np.full((ctas, 2, config.unrolled, warps, 4), 0xFFFFFFFF, dtype="<u4")),
            Output("times", np.zeros((ctas * warps, TIME_WORDS), dtype="<u4")), Output("told", np.zeros(4, dtype="<u4")),
        ),
        grid=(ctas, 1, 1), block=(config.threads, 1, 1),
    )  # fmt: skip


def sums_of_lines(lines: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Of the words of each line there is to read, modulo 2^32.

    >>> words = [(idx * MULTIPLIER + ADDEND) % 2**32 for idx in range(96, 128)]
    >>> int(sums_of_lines(np.array([3], dtype=np.uint32))[0]) == sum(words) % 2**32
    True
    """
    num_words = LINE_BYTES // 4
    firsts = lines.astype(np.uint64) * np.uint64(num_words**2) + np.uint64(num_words * (num_words - 1) // 2)
    return (firsts * np.uint64(MULTIPLIER) + np.uint64(num_words * ADDEND)).astype(np.uint32)


def side_correlations(probed: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Of each SM's latencies with those of SM 0, float64[num_sms]."""
    away = probed.astype(np.float64)
    away -= away.mean(axis=1, keepdims=True)
    norms = np.sqrt((away**2).sum(axis=1))
    return np.asarray((away @ away[0]) / np.maximum(norms * norms[0], 1e-9))


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """That lines were read and stored as they should be; then the cycles."""
    _check_places(config, outputs)
    times, lines = outputs["times"].reshape(-1, TIME_WORDS).astype(np.int64), outputs["lines"]
    for area, is_done, what in zip((0, 1), does(config), ("read", "stored into"), strict=True):
        taken, times_taken = np.unique(lines[:, area], return_counts=True)
        if is_done and (times_taken > 1).any():
            raise WrongAnswer(f"line {taken[np.argmax(times_taken > 1)]} was {what} twice")
        if is_done and int(taken.max()) >= NUM_LINES:
            raise WrongAnswer(f"line {taken.max()} was {what}: there are {NUM_LINES}")
    wanted = sums_of_lines(lines[:, 0]).sum(axis=(1, 3), dtype=np.uint32).reshape(-1)
    wrong = np.flatnonzero(times[:, 6] != (wanted if does(config)[0] else 0))
    if len(wrong):
        raise WrongAnswer(f"warp {wrong[0]} read other words than are there")
    if times[:, 10].any():
        raise WrongAnswer(f"{times[:, 10].sum()} vectors that were stored are not what they should be")
    correlations = side_correlations(outputs["probed"])
    return {
        **_summary(config, times), "num_sms_of_side_0": float((correlations >= 0).sum()),
        "side_correlation": float(np.median(np.abs(correlations))),
        "unclear_homes_fraction": float(outputs["told"][0]) / (2 * NUM_LINES),
    }  # fmt: skip


def _check_places(config: Config, outputs: Outputs) -> None:
    """That CTAs are where they should be, and know it."""
    times, reason = outputs["times"].reshape(-1, TIME_WORDS).astype(np.int64), int(outputs["told"][3])
    wrong_if(reason == UNEVEN, "CTAs were not spread evenly over the SMs: the launch gave itself up")
    wrong_if(reason == SHORT, "too few lines are at home on a side of L2: the launch gave itself up")
    wrong_if(outputs["flags"][1], "a wait was given up: not all CTAs found room at once")
    sms, told_sides = times[:: num_warps(config), 7], times[:: num_warps(config), 8]
    on_sm = np.bincount(sms, minlength=NUM_SMS)
    wrong_if(len(on_sm) != NUM_SMS or (on_sm != config.ctas_per_sm).any(), "CTAs were not spread evenly over the SMs")
    correlations = side_correlations(outputs["probed"])
    clear = float(np.median(np.abs(correlations)))
    if clear < LEAST_CORRELATION:
        raise WrongAnswer(f"the sides of L2 are not clear: latencies of SMs correlate with SM 0's by {clear:.2f} only")
    if ((correlations[sms] < 0) != (told_sides == 1)).any():
        raise WrongAnswer("an SM took itself to be on the other side than its latencies say")


def _summary(config: Config, times: NDArray[np.int64]) -> dict[str, float]:
    """Quantiles over warps; ends of SMs."""
    reads, writes = does(config)
    issued_first, issued_last, first_come, last_come, stored, fenced, _, sms, _, slots, *_ = times.T
    values: dict[str, float] = {}
    for name, cycles, is_done in (
        ("issued_first", issued_first, reads), ("issued_last", issued_last, reads), ("first_come", first_come, reads),
        ("last_come", last_come, reads), ("stored", stored, writes), ("fenced", fenced, writes),
    ):  # fmt: skip
        for quantile in QUANTILES:
            values[f"{name}_p{quantile}_cycles"] = float(np.percentile(cycles, quantile)) if is_done else 0.0
    for name, slot in (("slot_0", 0), ("last_slot", config.ctas_per_sm - 1)):
        values[f"{name}_last_come_p50_cycles"] = float(np.median(last_come[slots == slot])) if reads else 0.0
    ends = np.zeros(NUM_SMS, dtype=np.int64)
    np.maximum.at(ends, sms, fenced)
    values["first_sm_cycles"], values["middle_sm_cycles"] = float(ends.min()), float(np.median(ends))
    values["cycles"] = float(ends.max())
    return values


# ---------------------------------------------------------------------------------------------- the simulator's answer

MOST_LONE_THREADS = 256
"""Of a CTA whose warps are a role each where they load several vectors: others are one role."""


def is_by_warp(config: Config) -> bool:
    """Whether each warp of the twin goes its own way."""
    return config.threads <= MOST_LONE_THREADS and config.unrolled > 1


def twin(config: Config, gpu: GpuSpec, *, is_empty: bool = False) -> Launch:
    """The burst alone, of lines of both sides."""
    reads, writes = does(config)
    unrolled, delay, ctas = config.unrolled, config.delay, num_ctas(config)
    num_roles, num_loads = (num_warps(config), unrolled) if is_by_warp(config) else (1, 1)
    warps = num_warps(config) // num_roles
    access = dense_access(0, WARP_SIZE * warps, VECTOR_BYTES).scaled(unrolled // num_loads)

    def program_of(role: int) -> Callable[[RoleContext], Generator[ops.Op, Any, None]]:
        def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
            if is_empty:
                return
            slot = cta.cta_idx // NUM_SMS
            if slot and delay:  # a chain that takes so long
                yield ops.Shfl(slot * delay / gpu.warp_scheduler.shuffle_cycles, is_chain=True, num_warps=1)
            tiles = [(cta.cta_idx, number * num_roles + role) for number in range(num_loads)]
            tokens = []
            for tile in tiles if reads else ():
                tokens.append((yield ops.GlobalLoad("in", tile, access, allocates_in_l1=False)))
            for token in tokens:
                yield ops.Use(token)
            for tile in tiles if writes else ():
                yield ops.GlobalStore("out", tile, access)

        return program

    return Launch(
        kernel=config.kernel, num_ctas=ctas, num_tiles=ctas,
        roles=tuple(
            WarpRole(name=f"warps_{role}", num_warps=warps, program=program_of(role)) for role in range(num_roles)
        ),
        registers_per_thread=32,
        footprints=tuple(
            Footprint(
                tensor=name, access=access_of,  # type: ignore[arg-type]  # words
                panel_of=same, panel_bytes=lambda tiles: np.full_like(tiles, num_bytes(config) // ctas),
                num_steps=num_roles * num_loads,
            )
            for name, access_of, is_there in (("in", "read", reads), ("out", "write", writes)) if is_there
        ),
    )  # fmt: skip


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Cycles of the burst, beside a launch that does nothing; only of lines of both sides."""
    if gpu.num_sms != NUM_SMS or not {config.read_side, config.write_side} <= {"both", "none"}:
        return {}
    cycles = [simulate(twin(config, gpu, is_empty=is_empty), gpu, clock="max").cycles for is_empty in (False, True)]
    return {"cycles": cycles[0] - cycles[1]}


CASE = Case(
    name="side_bursts",
    question=__doc__,
    config_type=Config,
    groups={
        "sides": Group(configs=sides, rank=3),
        "order": Group(configs=order, rank=3),
    },
    launch=launch, check=check, num_repeats=3,
    values={
        **{
            f"{name}_p{quantile}_cycles": f"{what}: P{quantile} over warps, cycles from the start"
            for name, what in (
                ("issued_first", "the first load is issued"), ("issued_last", "the last load is issued"),
                ("first_come", "the first load has come"), ("last_come", "all loads have come"),
                ("stored", "the last store is issued"), ("fenced", "a fence behind it is over"),
            )
            for quantile in QUANTILES
        },
        "slot_0_last_come_p50_cycles": "all loads have come: P50 over warps of CTAs that came first to their SM",
        "last_slot_last_come_p50_cycles": "the same of those that came last to it",
        "first_sm_cycles": "the first SM's last warp is done, cycles from the start",
        "middle_sm_cycles": "the median SM's", "cycles": "the last SM's",
        "num_sms_of_side_0": "SMs that are on SM 0's side of L2",
        "side_correlation": "how clear sides are: correlation of an SM's latencies with SM 0's, median of its size",
        "unclear_homes_fraction": "of all lines, those whose two latencies differ by less than 60 cycles",
    },
    predict=predict, includes=grid_include,
)  # fmt: skip
