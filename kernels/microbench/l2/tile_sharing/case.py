"""What do all SMs together get out of L2 by TMA where they share tiles as a GEMM's CTAs do?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import load_gpu, simulate
from gpusim.evidence.cases.case import (
    Case,
    Fitted,
    FittedConstant,
    Group,
    KernelLaunch,
    MappedTensor,
    Output,
    Outputs,
    WrongAnswer,
    by_value,
)
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.tile_walk import (
    code_of,
    grid_include,
    random_words,
    read_fraction,
    ring_launch,
    section_cycles,
    sms_by_gpc,
    start_waits,
    sum_of_random_words,
)
from gpusim.machine.config import GpuSpec
from gpusim.machine.dispatcher import first_sms
from gpusim.workload import ops
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import Buffer, RoleContext
from gpusim.workload.tma.boxes import TensorMap

GPU = "h200_sxm"
"""Whose GPCs the patterns are made for; others merge elsewhere, which their rows show."""
NUM_CTAS = 132
"""One an SM of the H200; where SMs have other numbers the launch gives itself up."""
NUM_THREADS = 64
MOST_PLACES = 256
KIB = 1024
LEAST_SMEM_BYTES = 120 * KIB
"""So that two CTAs find no room on one SM."""
MOST_SMEM_BYTES = 224 * KIB
ROW_BYTES = 128
"""Of a box: 64 elements of 16 bits."""
TENSOR_BYTES = NUM_CTAS * 256 * 4096
MOST_TOUCHED_BYTES = 18 << 20
"""What all walks together touch: well inside of what each side of L2 holds."""
MOST_STEPS = 32
FLAG_WORDS = 32 + 32 + 64 + 256
NUM_LEAD, NUM_TIMED, NUM_BEHIND = 16, 160, 32

STAGES = (1, 2, 3, 4, 6)
READ = "lts__t_sectors_srcunit_tex_op_read.sum"
METRICS = (
    READ, "lts__t_requests_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_read.max",
    "lts__t_sectors_srcunit_tex_op_read.min", "lts__t_sectors_srcunit_tex_op_read_lookup_miss.sum",
    "lts__t_sectors_srcunit_ltcfabric.sum", "l1tex__m_xbar2l1tex_read_bytes.sum",
)  # fmt: skip


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str = "ring"
    pattern: str = "own"
    sharers: int = 1
    gpcs: int = 8
    a_rows: int = 128
    a_boxes: int = 1
    b_rows: int = 0
    stages: int = 4
    pitch_bytes: int = 4096
    math_cycles: int = 0
    skew_cycles: int = 0
    turn: int = 0


def own() -> list[Config]:
    """Every SM its own tiles: rows, boxes, stages, how far apart rows lie (128: not at all), where a walk begins."""
    kinds: list[dict[str, Any]] = [
        *({"a_rows": rows, "pitch_bytes": pitch} for pitch in (4096, 128, 16384) for rows in (64, 128, 256)),
        *({"a_rows": rows, "turn": 1} for rows in (64, 128, 256)),
        {"a_rows": 64, "a_boxes": 2}, {"a_rows": 64, "a_boxes": 4}, {"a_rows": 128, "b_rows": 128},
        {"a_rows": 128, "math_cycles": 256}, {"a_rows": 128, "b_rows": 128, "math_cycles": 512},
    ]  # fmt: skip
    return _fitting([Config(stages=stages, **kind) for kind in kinds for stages in STAGES])


def shared() -> list[Config]:
    """Groups of SMs that walk the same tiles: neighbours of a GPC, those of other TPCs of it, of other GPCs."""
    kinds = [
        *((pattern, num) for num in (2, 4, 8, 16) for pattern in ("near", "far")), ("apart", 2), ("apart", 4), ("near", 3),
        ("all", NUM_CTAS),
    ]  # fmt: skip
    return _fitting([
        Config(pattern=pattern, sharers=num, a_rows=rows, stages=stages)
        for pattern, num in kinds for rows in (64, 128, 256) for stages in STAGES
    ])  # fmt: skip


def some() -> list[Config]:
    """The SMs of a few GPCs alone: what a GPC takes in of tiles that are merged, and of those that are not."""
    return [
        Config(pattern=pattern, sharers=num, gpcs=gpcs, a_rows=rows, stages=6 if rows == 128 else 3) for rows in (128, 256)
        for gpcs in (1, 2, 4, 6)
        for pattern, num in (("own", 1), ("near", 2), ("near", 4), ("near", 8), ("near", 16), ("far", 4), ("all", NUM_CTAS))
    ]  # fmt: skip


def skewed() -> list[Config]:
    """Sharers that begin one after the other, with rings that are full all the time or that wait for math."""
    return [
        Config(pattern="near", sharers=num, stages=stages, skew_cycles=skew, math_cycles=math)
        for num in (2, 4) for stages, math in ((1, 0), (4, 0), (4, 512)) for skew in (50, 100, 200, 400, 800)
    ]  # fmt: skip


RASTERS = ("rows_32", "rows_16", "tall_8", "tall_16")
"""CTAs in order: so many columns to a row, or so many rows to a column."""


def gemm() -> list[Config]:
    """A by row, B by column, of CTAs as they are placed, or by the number of their SM; with math and without."""
    shapes = ((128, 128, 256), (128, 256, 512), (64, 256, 256))
    return _fitting([
        Config(pattern=f"{raster}_{by}", sharers=0, a_rows=a, b_rows=b, stages=stages, math_cycles=math)
        for raster in RASTERS for by in ("cta", "sm") for a, b, wanted in shapes for math in (0, wanted) for stages in STAGES
        if by == "cta" or (a, b) == (128, 128)
    ])  # fmt: skip


def _fitting(configs: Sequence[Config]) -> list[Config]:
    return [config for config in configs if num_smem_bytes(config) <= MOST_SMEM_BYTES]


# ---------------------------------------------------------------------------------------------- who walks what
def stage_bytes(config: Config) -> int:
    """A's boxes and B's."""
    return (config.a_rows * config.a_boxes + config.b_rows) * ROW_BYTES


def num_smem_bytes(config: Config) -> int:
    """Of all stages."""
    return stage_bytes(config) * config.stages


@cache
def _order() -> list[int]:
    """SMs of the CTAs of a grid that fills the machine."""
    gpu = load_gpu(GPU)
    return first_sms(gpu.dispatcher, gpu.floorplan)


def _in_turn(gpcs: Sequence[Sequence[int]]) -> list[int]:
    return [sms[idx] for idx in range(max(map(len, gpcs))) for sms in gpcs if idx < len(sms)]


def groups_of(config: Config) -> list[list[int]]:
    """SMs that walk the same tiles of A, each once; not of a GEMM.

    >>> groups_of(Config(pattern="near", sharers=2))[:2], groups_of(Config(pattern="apart", sharers=2))[:2]
    ([[0, 1], [16, 17]], [[0, 16], [32, 48]])
    >>> groups_of(Config(pattern="far", sharers=4))[:2]
    [[0, 2, 4, 6], [8, 10, 12, 14]]
    """
    num, gpcs = config.sharers, sms_by_gpc(GPU)[: config.gpcs]
    split = [sorted(sms, key=lambda sm: (sm % 2, sm)) for sms in gpcs]  # one of each TPC, then the other
    rows = {"far": [_in_turn(split)], "all": [_in_turn(split)], "apart": split}.get(config.pattern, gpcs)
    return [row[at : at + num] for row in rows for at in range(0, len(row), num)]


@dataclass(frozen=True, slots=True)
class Walk:
    """Panels of rows that one SM walks: numbers among A's and B's."""

    panel_a: int
    panel_b: int
    rank: int
    """Among those that share."""


@cache
def walks(config: Config) -> dict[int, Walk]:
    """By SM; where places are those of CTAs, by CTA."""
    if config.sharers:
        return {
            sm: Walk(panel, panel, rank) for panel, group in enumerate(groups_of(config)) for rank, sm in enumerate(group)
        }  # fmt: skip
    kind, size, _ = config.pattern.split("_")
    found = {}
    for place in range(NUM_CTAS):
        line, across = divmod(place, int(size))
        found[place] = Walk(line, across, 0) if kind == "rows" else Walk(across, line, 0)
    return found


def is_by_cta(config: Config) -> bool:
    """Whether CTAs walk by their own number, wherever they are."""
    return config.pattern.endswith("_cta")


@cache
def num_panels(config: Config) -> tuple[int, int]:
    """Of A and of B."""
    found = walks(config).values()
    return max(walk.panel_a for walk in found) + 1, max(walk.panel_b for walk in found) + 1


def num_steps(config: Config) -> int:
    """Steps before a walk begins again: a power of two, so few that all fit in L2."""
    num_a, num_b = num_panels(config)
    pitch, steps = config.pitch_bytes, MOST_STEPS
    a_rows, b_rows = config.a_rows * config.a_boxes, config.b_rows
    while steps > 2 and (num_a * a_rows + num_b * b_rows) * ROW_BYTES * steps > MOST_TOUCHED_BYTES:
        steps //= 2
    return steps if pitch == ROW_BYTES else min(steps, pitch // ROW_BYTES)


def corner(config: Config, operand: str, panel: int) -> tuple[int, int]:
    """(row, column in elements) at which a panel begins; where they find no room below one another, beside."""
    rows = {"a": config.a_rows * config.a_boxes, "b": config.b_rows}
    pitch, steps = config.pitch_bytes, num_steps(config)
    if pitch == ROW_BYTES:
        rows = {name: num * steps for name, num in rows.items()}
    height = TENSOR_BYTES // pitch
    num_a, num_b = num_panels(config)
    if num_a * rows["a"] + num_b * rows["b"] <= height:
        return (num_a * rows["a"] if operand == "b" else 0) + panel * rows[operand], 0
    column, row = divmod(panel, height // rows[operand])  # of A alone, or B beside it
    if operand == "b":
        column += -(-num_a // (height // rows["a"]))
    return row * rows[operand], column * steps * (ROW_BYTES // 2)


# ---------------------------------------------------------------------------------------------- launch and check
def tensor() -> NDArray[np.uint32]:
    """What all walk over."""
    return random_words(TENSOR_BYTES)


def tensor_map(config: Config, operand: str) -> TensorMap:
    """The map of an operand, as a GEMM has it."""
    pitch, rows = config.pitch_bytes, int(getattr(config, f"{operand}_rows"))
    return TensorMap(
        dtype=BF16, global_dim=(pitch // 2, TENSOR_BYTES // pitch), global_strides_bytes=(pitch,),
        box_dim=(ROW_BYTES // 2, rows), swizzle="128B", l2_promotion="128B",
    )  # fmt: skip


def num_warm(config: Config) -> int:
    """Steps before the CTAs meet: all tiles at least once."""
    return max(16, num_steps(config))


def launch(config: Config) -> KernelLaunch:
    """The same launch under the profiler as without."""
    places = np.zeros((MOST_PLACES, 6), dtype="<u4")
    found = walks(config)
    for place, walk in found.items():
        row_a, column = corner(config, "a", walk.panel_a)
        row_b, _ = corner(config, "b", walk.panel_b) if config.b_rows != 0 else (0, 0)
        places[place] = 1, row_a, row_b, column, walk.rank * config.skew_cycles, first_step(config, walk)
    is_linear = config.pitch_bytes == ROW_BYTES
    a_rows, b_rows = config.a_rows, config.b_rows
    plan = [
        len(found), config.stages, config.a_boxes, a_rows, b_rows, num_steps(config),
        a_rows * config.a_boxes if is_linear else 0, 0 if is_linear else ROW_BYTES // 2,
        num_warm(config), NUM_LEAD, NUM_TIMED, NUM_BEHIND, config.math_cycles, is_by_cta(config),
    ]  # fmt: skip
    return KernelLaunch(
        kernel="ring",
        arguments=(
            by_value(np.array(plan, dtype="<u4")), Output("places", places),
            Output("flags", np.zeros(FLAG_WORDS, dtype="<u4")), MappedTensor(tensor(), tensor_map(config, "a")),
            MappedTensor(tensor(), tensor_map(config, "b" if b_rows else "a")),
            Output("told", np.full((MOST_PLACES, 4), -1, dtype="<i8")),
        ),
        grid=(NUM_CTAS, 1, 1), block=(NUM_THREADS, 1, 1), smem_bytes=max(LEAST_SMEM_BYTES, num_smem_bytes(config)),
    )  # fmt: skip


def num_all_steps(config: Config) -> int:
    """Steps of an SM, warm-up and all."""
    return num_warm(config) + NUM_LEAD + NUM_TIMED + NUM_BEHIND


def first_step(config: Config, walk: Walk) -> int:
    """Where in its panel a walk begins."""
    return walk.panel_a * config.turn % num_steps(config)


def sum_of_last_stages(config: Config, walk: Walk) -> int:
    """The sum, modulo 2^32, of the words of what the ring holds in the end."""
    pitch, steps, last = config.pitch_bytes, num_steps(config), num_all_steps(config)
    total = 0
    for operand, panel in (("a", walk.panel_a), ("b", walk.panel_b)):
        num_rows = int(getattr(config, f"{operand}_rows")) * (config.a_boxes if operand == "a" else 1)
        if not num_rows:
            continue
        row, column = corner(config, operand, panel)
        for number in range(last - config.stages, last):
            step = (number + first_step(config, walk)) % steps
            first = row + (step * num_rows if pitch == ROW_BYTES else 0)
            word = column // 2 + (0 if pitch == ROW_BYTES else step * (ROW_BYTES // 4))
            rows = np.arange(first, first + num_rows)
            total += sum_of_random_words(rows * (pitch // 4) + word, ROW_BYTES // 4)
    return total % 2**32


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of a stage, of all SMs and GPC by GPC."""
    wrong_if(outputs["flags"][1], "a wait was given up: an SM has no CTA, or a stage never came")
    found, told = walks(config), outputs["told"]
    sums = {}
    for place, walk in found.items():
        sm, checksum = int(told[place, 0]), int(told[place, 1])
        wrong_if(not 0 <= sm < NUM_CTAS or (not is_by_cta(config) and sm != place), f"place {place} was on SM {sm}")
        key = (walk.panel_a, walk.panel_b)
        if key not in sums:
            sums[key] = sum_of_last_stages(config, walk)
        if checksum != sums[key]:
            raise WrongAnswer(f"the stages of SM {sm} have words that sum up to {checksum}, not {sums[key]}")
    places = list(found)
    sms, cycles = told[places, 0], told[places, 2] / NUM_TIMED
    wrong_if((cycles <= 0).any(), "the clock stood still")
    values = {
        "cycles_per_stage": float(cycles.mean()), "slowest_cycles": float(cycles.max()),
        "fastest_cycles": float(cycles.min()), "bytes_per_cycle": float((stage_bytes(config) / cycles).mean()),
        "asked_bytes": float(len(found) * num_all_steps(config) * stage_bytes(config)),
        "num_moved_ctas": float(sum(_order()[place] != sm for place, sm in zip(places, sms.tolist(), strict=True)))
        if is_by_cta(config) else 0.0,
    }  # fmt: skip
    for gpc, members in enumerate(sms_by_gpc(GPU)):
        mine = np.isin(sms, members)
        if mine.any():
            values[f"gpc_{gpc}_cycles"] = float(cycles[mine].mean())
    if config.sharers > 1:
        middle = {int(sm): int(told[place, 3]) for place, sm in zip(places, sms, strict=True)}
        spans = [max(middle[sm] for sm in group) - min(middle[sm] for sm in group) for group in groups_of(config)]
        values["drift_ns"] = float(np.median(spans))
    return values


# ---------------------------------------------------------------------------------------------- the simulator's answer

TWIN_LEAD, TWIN_TIMED, TWIN_BEHIND = 12, 24, 4


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same rings for fewer steps, simulated; nothing for a GPU whose SMs have other numbers."""
    if gpu.num_sms != NUM_CTAS or gpu.mbarrier is None:
        return {}
    return _twin(config, gpu)


def _twin(config: Config, gpu: GpuSpec) -> dict[str, float]:
    order = first_sms(gpu.dispatcher, gpu.floorplan)
    found = walks(config)
    of_cta = {cta: walk for cta, sm in enumerate(order) if (walk := found.get(cta if is_by_cta(config) else sm)) is not None}
    stages, steps, math_cycles = config.stages, num_steps(config), config.math_cycles
    a_boxes, a_rows, b_rows = config.a_boxes, config.a_rows * config.a_boxes, config.b_rows
    whole = stage_bytes(config)
    waits = start_waits(NUM_CTAS, gpu)
    before, after, consumed = (code_of(cycles, gpu) for cycles in (ISSUE_CYCLES, NEXT_CYCLES, CONSUMER_CYCLES))
    count = TWIN_LEAD + TWIN_TIMED + TWIN_BEHIND
    per_cycle = gpu.warp_scheduler.int32_lanes / 32 / gpu.warp_scheduler.num_schedulers

    def produce(cta: RoleContext) -> Iterator[Any]:
        walk = of_cta.get(cta.cta_idx)
        if walk is None:
            return
        yield ops.Alu((waits[cta.cta_idx] + walk.rank * config.skew_cycles) * per_cycle)
        for step in range(count):
            stage = step % stages
            yield ops.MbarrierWait("empty", stage, step // stages & 1 ^ 1)
            yield before
            yield ops.MbarrierArriveExpectTx("full", stage, whole)
            size, at = a_rows * ROW_BYTES, (step + first_step(config, walk)) % steps
            yield ops.TmaLoad("A", (walk.panel_a, at), size, size, a_rows, "ring", stage, "full", num_boxes=a_boxes)
            if b_rows:
                size = b_rows * ROW_BYTES
                yield ops.TmaLoad("B", (walk.panel_b, at), size, size, b_rows, "ring", stage, "full")
            yield after

    def consume(cta: RoleContext) -> Iterator[Any]:
        if cta.cta_idx not in of_cta:
            return
        for step in range(count):
            yield ops.MbarrierWait("full", step % stages, step // stages & 1)
            if step == TWIN_LEAD:
                yield ops.RangeStart(ops.Section.MAINLOOP)
            if step == TWIN_LEAD + TWIN_TIMED:
                yield ops.RangeEnd()
            yield consumed
            if math_cycles:
                yield ops.Alu(math_cycles * per_cycle)
            yield ops.MbarrierArrive("empty", step % stages)

    ring = Buffer(name="ring", stage_bytes=whole, num_stages=stages)
    launched = ring_launch("tile_sharing", (produce, consume), ring, num_ctas=NUM_CTAS, least_smem_bytes=LEAST_SMEM_BYTES)
    result = simulate(launched, gpu, clock="max", l2="warm", recorded_sms=range(NUM_CTAS))
    spans = section_cycles(result) / TWIN_TIMED
    asked = len(of_cta) * count * whole
    scale = len(found) * num_all_steps(config) * whole / asked
    return {
        "cycles_per_stage": float(spans.mean()), "slowest_cycles": float(spans.max()), "fastest_cycles": float(spans.min()),
        "bytes_per_cycle": float((whole / spans).mean()), READ: result.counters[READ] * scale,
    }  # fmt: skip


ISSUE_CYCLES, NEXT_CYCLES, CONSUMER_CYCLES = 67.0, 193.0, 147.7
"""From the producer's wait to its announcement, from its copies to the next wait, and from the consumer's wait to its
arrival, math left out."""


def fitted_constants(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[FittedConstant]:
    """What the loops take: of rings whose producer is behind, whose consumer is, and of rings of one stage."""
    assert gpu.mbarrier is not None  # it has measured this kernel
    assert gpu.tma is not None
    waited = gpu.mbarrier.try_wait_cycles + gpu.mbarrier.arrive_cycles
    least = [row for row in rows if row["group"] == "own" and row["a_rows"] == "64" and row["a_boxes"] == "1"]
    full = [float(row["cycles_per_stage"]) for row in least if int(row["stages"]) >= 3]
    math = [
        float(row["cycles_per_stage"]) - float(row["math_cycles"]) - waited for row in rows
        if row["group"] == "skewed" and row["math_cycles"] != "0"
    ]  # fmt: skip
    lone = [
        float(row["cycles_per_stage"]) - _twin(Config.of(row), gpu)["cycles_per_stage"]
        for row in least if row["stages"] == "1"
    ]  # fmt: skip
    if not (full and math and lone):
        return []
    consumer = float(np.median(math))
    issue = float(np.median(lone)) + ISSUE_CYCLES + CONSUMER_CYCLES - consumer
    rest = float(np.median(full)) - waited - gpu.tma.issue_cycles - issue
    found = {
        "CONSUMER_CYCLES": (consumer, "full rings with math: cycles beyond it and a wait, median"),
        "ISSUE_CYCLES": (issue, "rings of one stage of 64 rows, own tiles: cycles beyond the twin's, median"),
        "NEXT_CYCLES": (rest, "rings of 3 and more stages of 64 rows, own tiles: cycles left, median"),
    }
    return [FittedConstant(name=name, value=value, how=how) for name, (value, how) in found.items()]


FULL_BYTES = 64 * 1024
"""Under way for each SM, so that slices have no rest."""
QUEUES = (8.0, 12.0)
"""Between which, or beyond, the one is looked for that the rows have."""


def fit(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[Fitted]:
    """How long lines wait at slices: what rings of one stage take longer with larger tiles, where all SMs have their own."""
    lone = [
        row for row in rows
        if row["group"] == "own" and row["stages"] == "1" and row["pitch_bytes"] == "4096" and row["turn"] == "0"
        and row["math_cycles"] == "0"
    ]  # fmt: skip
    least = [row for row in lone if stage_bytes(Config.of(row)) == 64 * ROW_BYTES]
    larger = [row for row in lone if stage_bytes(Config.of(row)) > 64 * ROW_BYTES]
    if not (least and larger):
        return _lead(rows)
    found = []
    gpus = [replace(gpu, l2=replace(gpu.l2, queue_cycles=queue)) for queue in QUEUES]
    smallest = [_twin(Config.of(least[0]), each)["cycles_per_stage"] for each in gpus]
    for row in larger:
        measured = float(row["cycles_per_stage"]) - float(least[0]["cycles_per_stage"])
        low, high = (
            _twin(Config.of(row), each)["cycles_per_stage"] - less for each, less in zip(gpus, smallest, strict=True)
        )
        found.append(QUEUES[0] + (measured - low) * (QUEUES[1] - QUEUES[0]) / (high - low))
    how = "rings of one stage, own tiles: what those of 16 and 32 KiB take longer than those of 8, as the twin, median"
    return [Fitted(parameter="l2.queue_cycles", value=float(np.median(found)), how=how), *_lead(rows)]


def _lead(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """By how much one side's slices lead: full rings of own tiles, the four GPCs that are served best before the others."""
    found = []
    for row in rows:
        is_full = int(row["stages"]) >= 3 and int(row["stages"]) * stage_bytes(Config.of(row)) >= FULL_BYTES
        if row["group"] != "own" or row["math_cycles"] != "0" or not is_full:
            continue
        rates = sorted(1.0 / float(row[f"gpc_{gpc}_cycles"]) for gpc in range(8))
        found.append((sum(rates[4:]) - sum(rates[:4])) / sum(rates))
    if not found:
        return []
    how = "full rings of three stages and more, own tiles: four GPCs' rate less the other four's, over all, median"
    return [Fitted(parameter="l2.partition0_lead_fraction", value=float(np.median(found)), how=how)]


def _group(configs: Any, rank: int) -> Group:
    return Group(configs=configs, metrics=METRICS, rank=rank, least_capability=(9, 0), num_sms=132)


CASE = Case(
    name="tile_sharing",
    question="What do all SMs together get out of L2 by TMA where they share tiles as a GEMM's CTAs do?",
    config_type=Config,
    groups={
        "own": _group(own, 2), "shared": _group(shared, 2), "some": _group(some, 3), "skewed": _group(skewed, 3),
        "gemm": _group(gemm, 2),
    },
    launch=launch, check=check,
    values={
        "cycles_per_stage": "SM cycles from a full stage to the next, mean of the live SMs",
        "slowest_cycles": "the same of the slowest SM",
        "fastest_cycles": "the same of the fastest SM",
        "bytes_per_cycle": "bytes that an SM takes in a cycle, mean",
        "asked_bytes": "bytes of all steps of all SMs, warm-up and all",
        "num_moved_ctas": "CTAs that were on another SM than the simulator's dispatcher has them on",
        "drift_ns": "from the first to the last sharer of a tile that is through half of its steps, median of the groups",
        **{f"gpc_{gpc}_cycles": f"SM cycles of a stage, mean of the live SMs of GPC {gpc}" for gpc in range(8)},
    },
    num_repeats=3, predict=predict, fitted_constants=fitted_constants, fit=fit, tiers={"cycles_per_stage": 4, READ: 5},
    derive=read_fraction, includes=grid_include,
)  # fmt: skip
