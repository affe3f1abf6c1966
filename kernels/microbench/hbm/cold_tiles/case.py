"""How fast does a ring of tiles fill out of memory, by pitch of rows, CTAs that ask, and tiles under way?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, Launch, Mbarrier, WarpRole, simulate
from gpusim.evidence.cases.case import (
    Argument,
    Case,
    FittedConstant,
    Group,
    KernelLaunch,
    MappedTensor,
    Output,
    Outputs,
    Repeated,
    WrongAnswer,
    by_value,
)
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.tile_walk import code_of, grid_include, random_words, start_waits
from gpusim.machine.config import GpuSpec
from gpusim.workload import ops
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.tma.boxes import TensorMap

KIB = 1024
BOX_BYTES = 128
"""Of a row of a box: 64 elements of 16 bits."""
SMEM_BYTES = 200 * KIB
"""So that two CTAs find no room on one SM."""
NUM_WORDS = 1_000_003
"""After which memory has the same words again: a prime, so that no two tiles are alike."""
FLAG_WORDS = 32 + 32 + 64 + 256
NUM_AHEAD, NUM_TIMED = 8, 32
"""Steps before those that count: more than are under way at once."""
WARM_WRAP = 4
"""Steps before a walk in L2 begins again."""
NEVER = 1 << 30

PITCHES = (512, 2048, 4096, 8192, 8192 + 128, 16384, 16384 + 32, 32768, 32768 + 128)
"""Bytes; an odd number of them, so that every second config is every second of them and the rest."""
FEW_PITCHES = (2048, 8192, 32768)
STAGES = (1, 2, 4, 6)
PROMOTED = "memory_by_256"
"""Source of lines out of memory whose boxes are promoted to 256 bytes in L2."""
PATTERNS = ("own_1", "own_6", "shared_6", "own_24", "shared_24", "own_64", "shared_64", "split_64", "own_132", "shared_132")
"""``own_c``: c CTAs with tiles of their own; ``shared_c``: c tiles of D, as square as they go; ``split_64``: 4 x 4 tiles of
D, each four times, at every fourth of a row; ``wide_w``: 128 tiles of D, w side by side, the next w below."""
NUM_WIDE = 128
HEIGHTS = {6: 2, 24: 4, 64: 8, 132: 12}
"""Tiles of D that lie below one another, by their number."""
METRICS = ("dram__bytes_read.sum", "lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_ltcfabric.sum")


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    pattern: str
    source: str
    pitch: int
    rows: int
    row_bytes: int
    stages: int
    threads: int


def by_tma(pattern: str, pitch: int, stages: int, rows: int = 128, source: str = "memory") -> Config:
    """One launch of ``tma``."""
    return Config("tma", pattern, source, pitch, rows, BOX_BYTES, stages, threads=96)


def by_cp_async(pattern: str, pitch: int, stages: int, threads: int, row_bytes: int, source: str = "memory") -> Config:
    """One launch of a ``cp_async``."""
    kernel = f"cp_async_{stages}_{threads}_{row_bytes}"
    return Config(kernel, pattern, source, pitch, 128, row_bytes, stages, threads)


def boxes() -> list[Config]:
    """Tiles of 128 rows: every pattern, number of stages and pitch."""
    return [by_tma(pattern, pitch, stages) for pattern in PATTERNS for stages in STAGES for pitch in PITCHES]


def heights() -> list[Config]:
    """Tiles of 64 and of 256 rows."""
    return [
        by_tma(pattern, pitch, stages, rows) for pattern in ("own_24", "shared_64", "own_132")
        for rows, stages in ((64, 2), (64, 6), (256, 1), (256, 3)) for pitch in PITCHES
    ]  # fmt: skip


def warm() -> list[Config]:
    """Tiles that lie in L2."""
    return [
        by_tma(pattern, pitch, stages, source="l2") for pattern in ("shared_6", "own_64", "shared_132") for stages in (2, 6)
        for pitch in PITCHES
    ]  # fmt: skip


def columns() -> list[Config]:
    """One or two tiles of B that all share, and tiles of A that few or none do."""
    return [
        by_tma(pattern, pitch, stages, rows) for pattern in ("wide_1", "wide_2")
        for rows, stages in ((128, 1), (128, 2), (128, 4), (256, 2)) for pitch in FEW_PITCHES
    ]  # fmt: skip


def promoted() -> list[Config]:
    """Boxes whose lines bring their neighbours into L2."""
    return [
        by_tma(pattern, pitch, stages, source=PROMOTED) for pattern in ("own_6", "own_64", "shared_64", "own_132", "wide_2")
        for stages in (1, 2, 4) for pitch in FEW_PITCHES
    ]  # fmt: skip


def by_warps() -> list[Config]:
    """Tiles that warps copy."""
    return [
        by_cp_async(pattern, pitch, stages, threads, row_bytes)
        for pattern in ("own_6", "own_64", "shared_64", "shared_132") for threads in (128, 256) for row_bytes in (64, 128)
        for stages in (1, 2, 4) for pitch in FEW_PITCHES
    ]  # fmt: skip


def by_warps_warm() -> list[Config]:
    """The same out of L2."""
    return [
        by_cp_async(pattern, 8192, stages, threads, row_bytes, source="l2")
        for pattern in ("shared_64", "own_132") for threads in (128, 256) for row_bytes in (64, 128) for stages in (1, 2, 4)
    ]  # fmt: skip


def counted() -> list[Config]:
    """What L2 and memory are read for; 192 MiB of other lines among it."""
    return [
        by_tma(pattern, pitch, 4, source=source) for source in ("memory", PROMOTED)
        for pattern in ("shared_64", "split_64", "own_132") for pitch in (512, 8192, 32768)
    ]  # fmt: skip


def counted_wide() -> list[Config]:
    """The same where all share one or two tiles of B, as a product of few rows does, or where sixteen do."""
    return [
        by_tma(pattern, 8192, stages, rows, source) for source in ("memory", "l2")
        for pattern in ("wide_1", "wide_2", "wide_8") for rows, stages in ((64, 2), (64, 6), (128, 1), (128, 2), (128, 4))
    ]  # fmt: skip


class Grid(NamedTuple):
    """Whose tiles are whose."""

    panels: tuple[tuple[int, int, int], ...]
    """Of each CTA: its panel of A, of B, and which part of their rows it walks."""
    num_panels: int
    num_parts: int


def grid_of(pattern: str) -> Grid:
    """Of a pattern's CTAs.

    >>> grid_of("own_6").panels[5], grid_of("shared_6").panels, grid_of("split_64").panels[17]
    ((10, 11, 0), ((0, 2, 0), (1, 2, 0), (0, 3, 0), (1, 3, 0), (0, 4, 0), (1, 4, 0)), (1, 4, 1))
    """
    kind, _, number = pattern.partition("_")
    ctas = int(number)
    if kind == "wide":
        high = NUM_WIDE // ctas
        return Grid(tuple((cta // ctas, high + cta % ctas, 0) for cta in range(NUM_WIDE)), high + ctas, 1)
    if kind == "own":
        return Grid(tuple((2 * cta, 2 * cta + 1, 0) for cta in range(ctas)), 2 * ctas, 1)
    parts = 4 if kind == "split" else 1
    tiles = ctas // parts
    high = 4 if parts > 1 else HEIGHTS[tiles]
    found = tuple((cta % tiles % high, high + cta % tiles // high, cta // tiles) for cta in range(ctas))
    return Grid(found, high + tiles // high, parts)


def steps_along(config: Config) -> int:
    """Steps along a row, or along a CTA's part of it, before the walk goes on with other rows."""
    return config.pitch // config.row_bytes // grid_of(config.pattern).num_parts


def wrap_of(config: Config) -> int:
    """Steps before the walk begins again."""
    return WARM_WRAP if config.source == "l2" else NEVER


def num_bytes(config: Config) -> int:
    """Of memory that is walked."""
    steps = min(NUM_AHEAD + NUM_TIMED, wrap_of(config))
    below = -(-steps // steps_along(config))
    return below * grid_of(config.pattern).num_panels * config.rows * config.pitch


# ---------------------------------------------------------------------------------------------- launch and check
def words() -> NDArray[np.uint32]:
    """Words that look random; copied to the GPU once."""
    return random_words(4 * NUM_WORDS)


def launch(config: Config) -> KernelLaunch:
    """The same launch under the profiler as without."""
    grid, pitch, rows, count = grid_of(config.pattern), config.pitch, config.rows, NUM_AHEAD + NUM_TIMED
    ctas = len(grid.panels)
    plan = np.zeros(10, dtype="<u4")
    plan[:8] = (
        ctas, rows, config.stages, count, steps_along(config), grid.num_panels, wrap_of(config), config.source != "l2",
    )  # fmt: skip
    plan[8] = pitch
    repeated = Repeated(words(), num_bytes(config))
    memory: Argument = repeated
    if config.kernel == "tma":
        memory = MappedTensor(repeated, TensorMap(
            dtype=BF16, global_dim=(pitch // 2, num_bytes(config) // pitch), global_strides_bytes=(pitch,),
            box_dim=(BOX_BYTES // 2, rows), swizzle="128B", l2_promotion="256B" if config.source == PROMOTED else "128B",
        ))  # fmt: skip
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(plan), Output("places", places(config)), Output("flags", np.zeros(FLAG_WORDS, dtype="<u4")), memory,
            Output("times", np.full((ctas, count, 2), -1, dtype="<i4")), Output("told", np.full((ctas, 2), -1, dtype="<i8")),
        ),
        grid=(ctas, 1, 1), block=(config.threads, 1, 1), smem_bytes=SMEM_BYTES,
    )  # fmt: skip


def places(config: Config) -> NDArray[np.uint32]:
    """uint32[ctas, 4]: of each CTA its panel of A, of B, the first byte of their rows, nothing."""
    of_part = steps_along(config) * config.row_bytes
    return np.array([(a, b, part * of_part, 0) for a, b, part in grid_of(config.pattern).panels], dtype="<u4")


@lru_cache(maxsize=8)
def sums_of_last_tiles(config: Config) -> tuple[int, ...]:
    """Of each CTA, the sum, modulo 2^32, of the words of the tiles that it loads last."""
    rows, pitch, across = config.rows, config.pitch, config.row_bytes
    last, along = (NUM_AHEAD + NUM_TIMED - 1) % wrap_of(config), steps_along(config)
    below, held, found = last // along * grid_of(config.pattern).num_panels, words(), {}
    total = []
    for a, b, first, _ in places(config).tolist():
        for panel in ((a, first), (b, first)):
            if panel not in found:
                row = (below + panel[0]) * rows + np.arange(rows, dtype=np.int64)
                begin = row * (pitch // 4) + (first + last % along * across) // 4
                found[panel] = int(held[(begin[:, None] + np.arange(across // 4)) % NUM_WORDS].sum(dtype=np.uint64))
        total.append((found[a, first] + found[b, first]) % 2**32)
    return tuple(total)


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of a step, and from its request to its end."""
    wrong_if(outputs["flags"][1], "a wait was given up: an SM has two CTAs, or a tile never came")
    told = outputs["told"]
    wrong_if(len(set(told[:, 0].tolist())) != len(told), "two CTAs were on one SM")
    for cta, expected in enumerate(sums_of_last_tiles(config)):
        if told[cta, 1] != expected:
            raise WrongAnswer(f"the last tiles of CTA {cta} have words that sum up to {told[cta, 1]}, not {expected}")
    times = outputs["times"].astype(np.float64)
    wrong_if((times[:, :, 1] <= times[:, :, 0]).any() or (times < 0).any(), "a tile was there in no time, or not at all")
    return values_of(times)


def values_of(times: NDArray[np.float64]) -> dict[str, float]:
    """Of ``times``, float64[ctas, steps, 2]: when each step was asked for and there."""
    of_steps = (times[:, -1, 1] - times[:, NUM_AHEAD - 1, 1]) / (times.shape[1] - NUM_AHEAD)
    way = times[:, :, 1] - times[:, :, 0]
    return {
        "step_cycles": float(of_steps.mean()), "worst_step_cycles": float(of_steps.max()),
        "first_cycles": float(way[:, 0].mean()),
        **{f"way_p{round(100 * share)}_cycles": float(np.quantile(way[:, NUM_AHEAD:], share)) for share in (0.1, 0.5, 0.9)},
    }  # fmt: skip


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """What all SMs together take in, and what of it is no other CTA's."""
    if not row.get("step_cycles"):
        return {}
    grid = grid_of(row["pattern"])
    tile_bytes = int(row["rows"]) * int(row["row_bytes"])
    different = len({panel for a, b, part in grid.panels for panel in ((a, part), (b, part))})
    cycles = float(row["step_cycles"])
    return {
        "asked_bytes_per_cycle": 2 * tile_bytes * len(grid.panels) / cycles,
        "different_bytes_per_cycle": tile_bytes * different / cycles,
    }


# ---------------------------------------------------------------------------------------------- the simulator's answer

ASK_CYCLES = {"tma": 91.8, "cp_async": 167.0}
"""What a step's code takes from the end of the wait until it asks for tiles: looks at the clock, coordinates."""
REST_CYCLES = 420.9
"""What that of a TMA ring takes from there to the next wait: where the walk goes on, two divisions among it."""


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same ring with as many steps, of which the last ask for nothing; no answer without TMA or for too few SMs."""
    grid = grid_of(config.pattern)
    ctas = len(grid.panels)
    if gpu.mbarrier is None or gpu.num_sms < ctas:
        return {}
    times = _walk(config, gpu, grid)
    return {name: value for name, value in values_of(times).items() if name in ("step_cycles", "first_cycles")}


def _walk(config: Config, gpu: GpuSpec, grid: Grid) -> NDArray[np.float64]:
    """When each step of each CTA is asked for and there, cycles, float64[ctas, steps, 2]."""
    rows, row_bytes, stages = config.rows, config.row_bytes, config.stages
    wrap, count, ctas = wrap_of(config), NUM_AHEAD + NUM_TIMED, len(grid.panels)
    tile_bytes, is_tma = rows * row_bytes, config.kernel == "tma"
    warps, kind = config.threads // 32, "tma" if is_tma else "cp_async"
    requests = tile_bytes // 512
    access = AccessPattern(
        num_requests=requests, num_sectors=16 * requests, num_lines=512 // row_bytes * requests, num_wavefronts=4 * requests,
        num_bytes=512 * requests,
    )  # fmt: skip
    waits, mark = start_waits(ctas, gpu), ops.Section.MAINLOOP

    def ask(cta: RoleContext, step: int) -> Iterator[Any]:
        a, b, part = grid.panels[cta.cta_idx]
        at = part * (NUM_AHEAD + NUM_TIMED) + step % wrap
        yield code_of(ASK_CYCLES[kind], gpu)
        if is_tma:
            yield ops.MbarrierArriveExpectTx("full", step % stages, 2 * tile_bytes)
            for panel in (a, b):
                yield ops.TmaLoad(
                    "T", (panel, at), tile_bytes, tile_bytes, rows, "ring", step % stages, "full",
                    promoted_tiles=((panel, at ^ 1),) if config.source == PROMOTED else (),
                )  # fmt: skip
        else:
            for panel in (a, b):
                yield ops.CpAsync("T", (panel, at), access, "ring", step % stages, num_rows=rows)
            yield ops.CpAsyncCommitGroup()
        if is_tma:
            yield code_of(REST_CYCLES, gpu)

    def program(cta: RoleContext) -> Iterator[Any]:
        yield code_of(waits[cta.cta_idx], gpu)
        for step in range(stages):
            yield ops.RangeStart(mark)
            yield ops.RangeEnd()
            yield from ask(cta, step)
        for step in range(count):
            yield ops.RangeStart(mark)
            if is_tma:
                yield ops.MbarrierWait("full", step % stages, step // stages & 1)
            else:
                yield ops.CpAsyncWaitGroup(min(stages - 1, count - 1 - step))
                yield ops.Syncthreads()
            yield ops.RangeEnd()
            if step + stages < count:
                yield from ask(cta, step + stages)

    launched = Launch(
        kernel="cold_tiles", num_ctas=ctas, num_tiles=ctas,
        roles=(WarpRole(name="loader", num_warps=1 if is_tma else warps, program=program),),
        buffers=(
            Buffer(name="ring", stage_bytes=2 * tile_bytes, num_stages=stages),
            Buffer(name="rest", stage_bytes=SMEM_BYTES - 2 * tile_bytes * stages),
        ),
        mbarriers=(Mbarrier(name="full", num_stages=stages, num_arrivals=1),) if is_tma else (),
    )  # fmt: skip
    result = simulate(
        launched, gpu, clock="max", l2="warm" if config.source == "l2" else "cold", recorded_sms=range(gpu.num_sms),
    )  # fmt: skip
    found = []
    for role in sorted(result.timeline.roles, key=lambda role: role.cta_idx):
        came = [span.end_cycle for span in role.sections[stages:]]
        asked = [span.start_cycle for span in role.sections[:stages]] + came[: count - stages]
        found.append(list(zip(asked, came, strict=True)))
    return np.array(found)


def fitted_constants(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[FittedConstant]:
    """What the loops' code takes: one tile at a time, and tiles in L2 so many at a time that code alone is the limit."""
    found = []
    for name, kind, which, stated in (
        ("ASK_CYCLES", "tma", ("memory", "own_1", "1"), ASK_CYCLES["tma"]),
        ("ASK_CYCLES", "cp_async", ("l2", "shared_64", "1"), ASK_CYCLES["cp_async"]),
        ("REST_CYCLES", "tma", ("l2", "shared_6", "6"), REST_CYCLES),
    ):
        chosen = [
            row for row in rows if row["kernel"].startswith(kind) and (row["source"], row["pattern"], row["stages"]) == which
        ]  # fmt: skip
        if not chosen:
            return []
        more = [float(row["step_cycles"]) - predict(Config.of(row), gpu)["step_cycles"] for row in chosen]
        how = f"{which[1]} out of {which[0]}, {which[2]} under way: what a step takes beyond the twin's, median"
        key = (kind,) if name == "ASK_CYCLES" else ()
        found.append(FittedConstant(name=name, key=key, value=stated + float(np.median(more)), how=how))
    return found


CASE = Case(
    name="cold_tiles",
    question=__doc__,
    config_type=Config,
    groups={
        name: Group(configs=configs, metrics=METRICS if rank == 4 else (), rank=rank, least_capability=(9, 0), num_sms=132)
        for name, configs, rank in (
            ("boxes", boxes, 2), ("heights", heights, 2), ("columns", columns, 2), ("promoted", promoted, 2),
            ("warm", warm, 3), ("by_warps", by_warps, 2), ("by_warps_warm", by_warps_warm, 3), ("counted", counted, 4),
            ("counted_wide", counted_wide, 4),
        )
    },
    launch=launch, check=check,
    values={
        "step_cycles": "SM cycles from step to step, mean of the CTAs",
        "worst_step_cycles": "the same of the slowest CTA",
        "first_cycles": "SM cycles from the request of a CTA's first step until it is there, mean of the CTAs",
        **{f"way_p{pct}_cycles": f"SM cycles from a step's request until it is there, P{pct}" for pct in (10, 50, 90)},
    },
    num_repeats=3, predict=predict, fitted_constants=fitted_constants, tiers={"step_cycles": 4}, derive=derive,
    includes=grid_include,
)  # fmt: skip
