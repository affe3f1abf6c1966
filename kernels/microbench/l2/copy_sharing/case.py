"""What do all SMs together get out of L2 by cp.async where they share tiles as a GEMM's CTAs do?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from gpusim import Buffer, Launch, WarpRole, load_gpu, simulate
from gpusim.evidence.cases.case import (
    Case,
    FittedConstant,
    Group,
    KernelLaunch,
    Output,
    Outputs,
    Repeated,
    WrongAnswer,
    by_value,
)
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.tile_walk import (
    ADDEND,
    MULTIPLIER,
    code_of,
    grid_include,
    random_words,
    read_fraction,
    section_cycles,
    sms_by_gpc,
)
from gpusim.machine.config import GpuSpec
from gpusim.machine.dispatcher import first_sms
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

GPU = "h200_sxm"
"""Whose GPCs the patterns are made for; other GPUs of its name and kind merge elsewhere, which their rows show."""
NUM_SMS = 132
KIB = 1024
ROW_BYTES, PITCH_BYTES = 128, 4096
TENSOR_BYTES = 3 * NUM_SMS * 192 * PITCH_BYTES
MOST_TOUCHED_BYTES = 18 << 20
"""What all walks together touch: well inside of what each side of L2 holds."""
MOST_STEPS = PITCH_BYTES // ROW_BYTES
FLAG_WORDS = 32 + 32 + 64 + 256
NUM_LEAD, NUM_TIMED, NUM_BEHIND = 16, 160, 32
SMEM_BYTES = {1: 120 * KIB, 2: 78 * KIB, 3: 58 * KIB}
"""Of a CTA at least, by how many an SM has: no more of them find room."""
READ = "lts__t_sectors_srcunit_tex_op_read.sum"
METRICS = (READ, "l1tex__m_xbar2l1tex_read_bytes.sum")

SHAPES = ((4, 64, 64), (4, 64, 128), (8, 128, 128))
"""Warps, rows of A, rows of B."""
RASTERS = ("rows_16", "rows_32", "tall_8", "tall_16")
"""CTAs in order: so many columns to a row, or so many rows to a column."""


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    pattern: str
    ctas: int
    warps: int
    a_rows: int
    b_rows: int
    stages: int
    math_cycles: int


def _config(pattern: str, ctas: int, shape: tuple[int, int, int], stages: int, math: int, kernel: str) -> Config:
    return Config(kernel, pattern, ctas, *shape, stages, math)


def sharers() -> list[Config]:
    """Groups of SMs whose CTAs walk the same tiles, first ones with first ones: none, TPCs, SMs of other TPCs, GPCs."""
    return _fitting([
        _config(pattern, ctas, shape, stages, math, kernel)
        for pattern in ("own", "near_2", "near_16", "apart_2", "apart_4") for ctas in (1, 2, 3) for shape in SHAPES
        for math in (0, 512) for kernel in ("close", "apart") for stages in (3, 4)
    ])  # fmt: skip


def gemm() -> list[Config]:
    """A by row, B by column, of CTAs as they are placed, one to three an SM."""
    return _fitting([
        _config(pattern, ctas, shape, stages, math, kernel) for pattern in RASTERS for ctas in (1, 2, 3) for shape in SHAPES
        for math in (0, 512) for kernel in ("close", "apart") for stages in (3, 4)
    ])  # fmt: skip


def _fitting(configs: Sequence[Config]) -> list[Config]:
    return [config for config in configs if config.ctas * (ring_bytes(config) + KIB) <= 227 * KIB]


def stage_bytes(config: Config) -> int:
    """A's rows and B's."""
    return (config.a_rows + config.b_rows) * ROW_BYTES


def ring_bytes(config: Config) -> int:
    """Of all stages."""
    return stage_bytes(config) * config.stages


def is_by_cta(config: Config) -> bool:
    """Whether CTAs walk by their own number, wherever they are."""
    return config.pattern.startswith(("rows", "tall"))


@cache
def walks(config: Config) -> dict[int, tuple[int, int]]:
    """(panel of A, panel of B) by CTA, or by SM."""
    kind, _, size = config.pattern.partition("_")
    num_places = NUM_SMS * config.ctas
    if kind == "own":
        return {place: (place, place) for place in range(num_places)}
    if kind in ("rows", "tall"):
        pairs = {place: divmod(place, int(size)) for place in range(num_places)}
        return pairs if kind == "rows" else {place: (across, line) for place, (line, across) in pairs.items()}
    groups, found = groups_of(config), {}
    for rank in range(config.ctas):
        for number, group in enumerate(groups):
            panel = rank * len(groups) + number
            found.update({rank * NUM_SMS + sm: (panel, panel) for sm in group})
    return found


def groups_of(config: Config) -> list[list[int]]:
    """SMs that walk the same tiles, each once; not of a GEMM.

    >>> near = _config("near_2", 1, SHAPES[0], 3, 0, "close")
    >>> groups_of(near)[:2], groups_of(replace(near, pattern="apart_2"))[:2]
    ([[0, 1], [16, 17]], [[0, 16], [32, 48]])
    """
    kind, _, size = config.pattern.partition("_")
    gpcs = sms_by_gpc(GPU)
    rows = [sorted(sms, key=lambda sm: (sm % 2, sm)) for sms in gpcs] if kind == "apart" else gpcs
    return [list(row[at : at + int(size)]) for row in rows for at in range(0, len(row), int(size))]


def num_steps(config: Config) -> int:
    """Steps before a walk begins again: a power of two, so few that all fit in L2."""
    found, steps = walks(config).values(), MOST_STEPS
    num_a, num_b = (len(set(panels)) for panels in zip(*found, strict=True))
    rows = num_a * config.a_rows + num_b * config.b_rows
    while steps > 2 and rows * ROW_BYTES * steps > MOST_TOUCHED_BYTES:
        steps //= 2
    return steps


def rows_of(config: Config, pair: tuple[int, int]) -> tuple[int, int]:
    """At which rows of the tensor a CTA's panels of A and of B begin."""
    a_rows = config.a_rows
    num_a = max(panel for panel, _ in walks(config).values()) + 1
    return pair[0] * a_rows, num_a * a_rows + pair[1] * config.b_rows


def num_warm(config: Config) -> int:
    """Steps before the CTAs meet: all tiles at least once."""
    return max(16, num_steps(config))


def launch(config: Config) -> KernelLaunch:
    """The same launch under the profiler as without."""
    found, ctas = walks(config), config.ctas
    places = np.array([rows_of(config, found[place]) for place in range(len(found))], dtype="<u4")
    plan = [
        NUM_SMS * ctas, NUM_SMS, config.stages, config.a_rows, config.b_rows, num_steps(config),
        num_warm(config), NUM_LEAD, NUM_TIMED, NUM_BEHIND, config.math_cycles, is_by_cta(config), 1, 0,
    ]  # fmt: skip
    words = random_words(TENSOR_BYTES)
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.array(plan, dtype="<u4")), Output("places", places),
            Output("flags", np.zeros(FLAG_WORDS, dtype="<u4")), Repeated(words, words.nbytes),
            Output("told", np.full((NUM_SMS * ctas, 6), -1, dtype="<i8")),
        ),
        grid=(NUM_SMS * ctas, 1, 1), block=(32 * config.warps, 1, 1), smem_bytes=max(SMEM_BYTES[ctas], ring_bytes(config)),
    )  # fmt: skip


def num_all_steps(config: Config) -> int:
    """Steps that a CTA copies, warm-up and all."""
    return num_warm(config) + NUM_LEAD + NUM_TIMED + NUM_BEHIND + 2 * (config.stages - 1)


def sum_of_ring(config: Config, pair: tuple[int, int]) -> int:
    """Modulo 2^32, of the words of what a CTA's ring holds in the end."""
    stages, steps = config.stages, num_steps(config)
    last = NUM_LEAD + NUM_TIMED + NUM_BEHIND + stages - 1
    words, total = np.arange(ROW_BYTES // 4, dtype=np.uint64), 0
    for first, num_rows in zip(rows_of(config, pair), (config.a_rows, config.b_rows), strict=True):
        rows = np.arange(first, first + num_rows, dtype=np.uint64)[:, None] * np.uint64(PITCH_BYTES // 4)
        for number in range(last - stages, last):
            at = rows + np.uint64(number % steps * (ROW_BYTES // 4)) + words
            total += int((at * np.uint64(MULTIPLIER) + np.uint64(ADDEND) & np.uint64(0xFFFFFFFF)).sum())
    return total % 2**32


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of a step."""
    told, ctas, found = outputs["told"], config.ctas, walks(config)
    wrong_if(outputs["flags"][1], "a wait was given up: not all CTAs found room at once")
    wrong_if(set(Counter(told[:, 0].tolist()).values()) != {ctas}, f"SMs have other than {ctas} CTAs each")
    sums: dict[tuple[int, int], int] = {}
    for place, pair in found.items():
        if pair not in sums:
            sums[pair] = sum_of_ring(config, pair)
        if int(told[place, 1]) != sums[pair]:
            raise WrongAnswer(f"the ring of place {place} has words that sum up to {told[place, 1]}, not {sums[pair]}")
    cycles = told[:, 2] / NUM_TIMED
    wrong_if((cycles <= 0).any(), "the clock stood still")
    order = first_sms(load_gpu(GPU).dispatcher, load_gpu(GPU).floorplan)
    moved = sum(order[place] != int(told[place, 0]) for place in range(NUM_SMS)) if is_by_cta(config) else 0
    of_sm = np.sort(cycles[np.argsort(told[:, 0], kind="stable")].reshape(NUM_SMS, ctas), axis=1)
    values = {
        "cycles_per_step": float(cycles.mean()), "slowest_cycles": float(cycles.max()),
        "fastest_cycles": float(cycles.min()), "first_cycles": float(of_sm[:, 0].mean()),
        "last_cycles": float(of_sm[:, -1].mean()), "first_sd_cycles": float(of_sm[:, 0].std()),
        "last_sd_cycles": float(of_sm[:, -1].std()), "copy_cycles": float(told[:, 4].mean() / NUM_TIMED),
        "asked_bytes": float(len(found) * num_all_steps(config) * stage_bytes(config)), "num_moved_ctas": float(moved),
    }  # fmt: skip
    if config.pattern != "own":
        by_panel: dict[int, list[int]] = {}
        for place, (panel, _) in found.items():
            by_panel.setdefault(panel, []).append(place)
        for name, column in (("drift_ns", 3), ("end_drift_ns", 5)):
            # nanoseconds since 1970 have no room for single ones in a double
            since = [told[mine, column] - told[mine, column].min() for mine in by_panel.values()]
            values[name] = float(np.median([np.std(each) for each in since]))
    return values


# ---------------------------------------------------------------------------------------------- the simulator's answer

TWIN_LEAD, TWIN_TIMED, TWIN_BEHIND = 16, 48, 8
COPY_CYCLES = {"close": 44.5, "apart": 71.7}
"""What a lone warp of its sub-core takes from one of its copies to the next."""
STEP_CYCLES = 214.0
"""What a step takes besides: its waits and meetings as the simulator has them left out."""


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same rings for fewer steps, simulated; nothing for a GPU with another number of SMs."""
    return _twin(config, gpu) if gpu.num_sms == NUM_SMS else {}


def _access(num_rows: int) -> AccessPattern:
    """Of rows by cp.async, swizzled."""
    return AccessPattern(
        num_requests=num_rows // 4, num_sectors=num_rows * 4, num_lines=num_rows, num_wavefronts=num_rows,
        num_bytes=num_rows * ROW_BYTES,
    )  # fmt: skip


def fitted_constants(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[FittedConstant]:
    """What the loop's own instructions take, of lone CTAs whose sub-cores have a warp each."""
    lone = [row for row in rows if row["ctas"] == "1" and row["warps"] == "4" and row["math_cycles"] != "0"]
    if not lone:
        return []
    copies = {
        kernel: float(np.median([
            float(row["copy_cycles"]) / num_copies(Config.of(row)) for row in lone if row["kernel"] == kernel
        ]))
        for kernel in COPY_CYCLES
    }  # fmt: skip
    rest = [float(row["cycles_per_step"]) - _twin(Config.of(row), gpu)["cycles_per_step"] + STEP_CYCLES for row in lone[:8]]
    how = "lone CTAs of four warps: cycles of a stage's copies over a warp's number of them, median"
    return [
        FittedConstant(name="COPY_CYCLES", value=copies["close"], how=how, key=("close",)),
        FittedConstant(name="COPY_CYCLES", value=copies["apart"], how=how, key=("apart",)),
        FittedConstant(name="STEP_CYCLES", value=float(np.median(rest)), how="the same: cycles beyond the twin's, median"),
    ]


def num_copies(config: Config) -> int:
    """Of a warp for a stage."""
    return stage_bytes(config) // (512 * config.warps)


def _twin(config: Config, gpu: GpuSpec) -> dict[str, float]:
    found, ctas, stages, steps = walks(config), config.ctas, config.stages, num_steps(config)
    a_rows, b_rows, math = config.a_rows, config.b_rows, config.math_cycles
    order = first_sms(gpu.dispatcher, gpu.floorplan)
    access_a, access_b = _access(a_rows), _access(b_rows)
    each = COPY_CYCLES[config.kernel] / (4 * config.warps)
    code_a, code_b, rest, let_pass = (code_of(cycles, gpu) for cycles in (each * a_rows, each * b_rows, STEP_CYCLES, math))
    count = TWIN_LEAD + TWIN_TIMED + TWIN_BEHIND

    def copy(pair: tuple[int, int], number: int) -> list[ops.Op]:
        at, stage = number % steps, number % stages
        return [
            code_a, ops.CpAsync("A", (pair[0], at), access_a, "ring", stage, num_rows=a_rows),
            code_b, ops.CpAsync("B", (pair[1], at), access_b, "ring", stage, num_rows=b_rows), ops.CpAsyncCommitGroup(),
        ]  # fmt: skip

    def program(cta: RoleContext) -> Iterator[Any]:
        rank, place = divmod(cta.cta_idx, NUM_SMS)
        pair = found[cta.cta_idx if is_by_cta(config) else rank * NUM_SMS + order[place]]
        for number in range(stages - 1):
            yield from copy(pair, number)
        for number in range(count):
            yield ops.CpAsyncWaitGroup(stages - 2)
            yield ops.Syncthreads()
            if number == TWIN_LEAD:
                yield ops.RangeStart(ops.Section.MAINLOOP)
            if number == TWIN_LEAD + TWIN_TIMED:
                yield ops.RangeEnd()
            if math:
                yield let_pass
            yield ops.Syncthreads()
            yield rest
            yield from copy(pair, number + stages - 1)
        yield ops.CpAsyncWaitGroup(0)

    num_ctas = NUM_SMS * ctas
    launched = Launch(
        kernel="copy_sharing", num_ctas=num_ctas, num_tiles=num_ctas,
        roles=(WarpRole(name="all", num_warps=config.warps, program=program),),
        buffers=(
            Buffer(name="ring", stage_bytes=stage_bytes(config), num_stages=stages),
            Buffer(name="rest", stage_bytes=max(0, SMEM_BYTES[ctas] - ring_bytes(config))),
        ),
    )  # fmt: skip
    result = simulate(launched, gpu, clock="max", l2="warm", recorded_sms=range(NUM_SMS))
    spans = section_cycles(result) / TWIN_TIMED
    asked = num_ctas * (count + stages - 1) * stage_bytes(config)
    scale = num_ctas * num_all_steps(config) * stage_bytes(config) / asked
    return {
        "cycles_per_step": float(spans.mean()), "slowest_cycles": float(spans.max()), "fastest_cycles": float(spans.min()),
        READ: result.counters[READ] * scale,
    }  # fmt: skip


CASE = Case(
    name="copy_sharing",
    question=__doc__,
    config_type=Config,
    groups={
        "sharers": Group(configs=sharers, metrics=METRICS, rank=3, least_capability=(9, 0), num_sms=132),
        "gemm": Group(configs=gemm, metrics=METRICS, rank=3, least_capability=(9, 0), num_sms=132),
    },
    launch=launch, check=check,
    values={
        "cycles_per_step": "SM cycles from a stage that is there to the next, mean of the CTAs",
        "slowest_cycles": "the same of the slowest CTA",
        "fastest_cycles": "the same of the fastest CTA",
        "first_cycles": "the same of the quickest CTA of each SM, mean",
        "last_cycles": "the same of the slowest CTA of each SM, mean",
        "first_sd_cycles": "deviation of the first, from SM to SM",
        "last_sd_cycles": "deviation of the last, likewise",
        "copy_cycles": "SM cycles that a CTA's first warp takes to ask for a stage's copies",
        "asked_bytes": "bytes of all steps of all CTAs, warm-up and all",
        "num_moved_ctas": "CTAs of the first 132 that were on another SM than the simulator's dispatcher has them on",
        "drift_ns": "deviation of when those that share A are through half of their steps, median of the groups",
        "end_drift_ns": "the same when they are through all that are timed",
    },
    num_repeats=3, predict=predict, fitted_constants=fitted_constants, tiers={"cycles_per_step": 4, READ: 5},
    derive=read_fraction, includes=grid_include,
)  # fmt: skip
