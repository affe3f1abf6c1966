"""When do the first tiles of a GEMM's CTAs come, and how far do CTAs that began together drift apart?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, Launch, Mbarrier, WarpRole, load_gpu, simulate
from gpusim.evidence.cases.array import read_only
from gpusim.evidence.cases.case import Case, FittedConstant, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Input, KernelLaunch, MappedTensor, Output, Scratch, by_value
from gpusim.evidence.cases.microbenchmark import chained_code
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted_constant
from gpusim.evidence.cases.tile_walk import ADDEND, MULTIPLIER, grid_include, random_words
from gpusim.machine.config import GpuSpec
from gpusim.machine.dispatcher import first_sms
from gpusim.workload import ops
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext
from gpusim.workload.tma.boxes import TensorMap

GPU = "h200_sxm"
"""Whose GPCs medians are of."""
NUM_CTAS = 132
"""One an SM of the H200; where SMs have other numbers the launch gives itself up."""
NUM_THREADS = 64
KIB = 1024
LEAST_SMEM_BYTES = 120 * KIB
"""So that two CTAs find no room on one SM."""
ROW_BYTES = 128
"""Of a box: 64 elements of 16 bits."""
TENSOR_BYTES = 272 << 20
REHEARSED_ROWS = 256
"""At the tensor's end, of which no CTA has a tile."""
NUM_REHEARSED = 8
"""Steps."""
PAGE_BYTES = 2 << 20
NUM_PAGES = 4096
FLAG_WORDS = 32 + 32 + 64 + 256
WAYS = ("none", "loads", "bulk")
"""To touch a page."""
DRIFTS = (1, 4, 16, 64, 128)
"""Steps after which SMs are compared."""
LONG_STEPS = 64
"""From so many steps on the mean step counts for an SM, and not its first stage."""

READ = "lts__t_sectors_srcunit_tex_op_read.sum"
METRICS = (READ, "lts__t_requests_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_read_lookup_miss.sum")


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True, kw_only=True)
class Row(ConfigRow):
    """One config, with its defaults."""

    kernel: str = "first"
    pattern: str = "wide_12"
    source: str = "l2"
    a_rows: int = 128
    b_rows: int = 128
    stages: int = 4
    steps: int = 8
    wrap: int = 8
    pitch_bytes: int = 4096
    math_cycles: int = 0
    live: int = 132
    rehearsal: int = 1
    prefetch: int = 1
    evict_by: str = "none"
    touch_by: str = "none"
    prepared_by: str = "own"
    repeat: int = 0

    @property
    def stage_bytes(self) -> int:
        """A's box and B's."""
        return (self.a_rows + self.b_rows) * ROW_BYTES


PREPARED: tuple[dict[str, Any], ...] = (
    {}, {"evict_by": "loads"}, {"evict_by": "bulk"}, {"evict_by": "bulk", "touch_by": "bulk"},
    {"evict_by": "loads", "touch_by": "loads"}, {"prefetch": 0}, {"rehearsal": 0},
    {"evict_by": "bulk", "prefetch": 0, "rehearsal": 0},
)  # fmt: skip
"""All warm; other pages in between; own pages again; one thing cold at a time; all cold."""
PLACES: tuple[dict[str, Any], ...] = (
    {"pattern": "own", "pitch_bytes": 8192},
    *({"pattern": "wide_12", "pitch_bytes": pitch} for pitch in (4096, 16384, 65536)),
    {"pattern": "tall_33", "pitch_bytes": 8192},
)


def _wrap(place: dict[str, Any], source: str) -> int:
    """Steps of tiles that lie in L2, all of them: fewer where nobody shares."""
    return 4 if place.get("pattern") == "own" and source == "l2" else 8


def first() -> list[Row]:
    """First stages, by what is warm, where tiles lie, who shares them and in how many pages they are."""
    return [
        Row(source=source, stages=stages, wrap=_wrap(place, source), repeat=repeat, **place, **prepared)
        for source in ("l2", "memory") for place in PLACES for prepared in PREPARED for stages in (1, 4)
        for repeat in (0, 1)
    ]  # fmt: skip


def launched() -> list[Row]:
    """First stages as CTAs of a launch have them that is behind another one, and finds L2 full of other lines."""
    return [
        Row(
            kernel="flush", source="memory", stages=stages, prepared_by="launch", repeat=repeat, rehearsal=0, prefetch=0,
            **place,
        )
        for place in PLACES for stages in (1, 4) for repeat in (0, 1, 2)
    ]  # fmt: skip


def alone() -> list[Row]:
    """First stages of a few SMs, each its own tiles."""
    return [
        Row(source=source, stages=1, live=live, wrap=_wrap(PLACES[0], source), repeat=repeat, **PLACES[0], **prepared)
        for source in ("l2", "memory") for prepared in PREPARED[:3] for live in (1, 8, 33, 66) for repeat in (0, 1)
    ]  # fmt: skip


def steady() -> list[Row]:
    """Steps of each SM: orders, tiles, stages, math; out of L2 and out of memory."""
    near = [
        Row(
            pattern=pattern, b_rows=b, stages=stages, steps=160, wrap=2 if pattern == "own" else 8, math_cycles=math,
            prepared_by="all",
        )
        for pattern in ("own", "wide_12", "tall_33", "wide_33") for b in (128, 256) for stages in (2, 4)
        for math in (0, 3 * b)
    ]  # fmt: skip
    far = [
        Row(
            pattern=pattern, source="memory", b_rows=b, stages=stages, steps=120, wrap=120, pitch_bytes=16384,
            math_cycles=math, prepared_by="all",
        )
        for pattern in ("wide_12", "tall_33", "wide_33") for b in (128, 256) for stages in (2, 4) for math in (0, 3 * b)
    ]  # fmt: skip
    return near + far


def growth() -> list[Row]:
    """Sectors of walks of more and more steps, with math that leaves the slices room."""
    return [
        Row(
            pattern=pattern, source=source, b_rows=256, steps=steps, wrap=8 if source == "l2" else 120,
            pitch_bytes=4096 if source == "l2" else 16384, math_cycles=1024, prepared_by="all",
        )
        for source in ("l2", "memory") for pattern in ("wide_12", "tall_33", "wide_33") for steps in (4, 8, 16, 32, 64, 120)
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- who walks what
def panels(config: Row) -> list[tuple[int, int]]:
    """(panel of A, panel of B) of each CTA.

    >>> panels(Row(pattern="wide_12"))[13], panels(Row(pattern="tall_33"))[34]
    ((1, 1), (1, 1))
    """
    kind, _, size = config.pattern.partition("_")
    if kind == "own":
        return [(cta, cta) for cta in range(NUM_CTAS)]
    pairs = [divmod(cta, int(size)) for cta in range(NUM_CTAS)]
    return pairs if kind == "wide" else [(across, line) for line, across in pairs]


def corners(config: Row) -> list[tuple[int, int]]:
    """(first row of A's panel, of B's) of each CTA; B's lie behind A's."""
    found, a_rows, b_rows = panels(config), config.a_rows, config.b_rows
    num_a = max(a for a, _ in found) + 1
    return [(a * a_rows, num_a * a_rows + b * b_rows) for a, b in found]


def live_sms(num_live: int) -> set[int]:
    """SMs that walk: spread evenly over their numbers.

    >>> sorted(live_sms(2))
    [65, 131]
    """
    return {sm for sm in range(NUM_CTAS) if (sm + 1) * num_live // NUM_CTAS > sm * num_live // NUM_CTAS}


# ---------------------------------------------------------------------------------------------- launch and check
@cache
def tensor() -> NDArray[np.uint32]:
    """Words that look random, none of them odd; copied to the GPU once."""
    return read_only(random_words(TENSOR_BYTES) & np.uint32(0xFFFFFFFE))


def tensor_map(config: Row, operand: str) -> TensorMap:
    """The map of an operand, as a GEMM has it."""
    pitch = config.pitch_bytes
    return TensorMap(
        dtype=BF16, global_dim=(pitch // 2, TENSOR_BYTES // pitch), global_strides_bytes=(pitch,),
        box_dim=(ROW_BYTES // 2, config.a_rows if operand == "a" else config.b_rows), swizzle="128B", l2_promotion="128B",
    )  # fmt: skip


def num_rows(config: Row) -> int:
    """Of all panels; they begin at the tensor's first row."""
    return max(row_b for _, row_b in corners(config)) + config.b_rows


def launch(config: Row) -> KernelLaunch:
    """The same launch under the profiler as without."""
    steps = config.steps
    plan = [
        config.live, config.a_rows, config.b_rows, config.stages, steps, config.wrap,
        config.pitch_bytes, config.math_cycles, config.source == "l2", config.rehearsal,
        config.prefetch, WAYS.index(config.evict_by), NUM_PAGES, WAYS.index(config.touch_by),
        TENSOR_BYTES // config.pitch_bytes - REHEARSED_ROWS,
        num_rows(config) if config.prepared_by == "all" else 0,
    ]  # fmt: skip
    maps = {operand: tensor_map(config, operand) for operand in "ab"}
    shape = {"grid": (NUM_CTAS, 1, 1), "block": (NUM_THREADS, 1, 1)}
    smem_bytes = max(LEAST_SMEM_BYTES, config.stage_bytes * config.stages)
    flags = Output("flags", np.zeros(FLAG_WORDS, dtype="<u4"))
    places = Output("places", np.array(corners(config), dtype="<u4"))
    times = Output("times", np.full((NUM_CTAS, steps), -1, dtype="<i4"))
    told = Output("told", np.full((NUM_CTAS, 4), -1, dtype="<i8"))
    if config.kernel == "flush":
        walk = KernelLaunch(
            kernel="plain",
            arguments=(
                by_value(np.array(plan, dtype="<u4")), places, flags,
                *(MappedTensor(tensor(), maps[operand]) for operand in "ab"), times, told,
            ),
            smem_bytes=smem_bytes, **shape,
        )  # fmt: skip
        before = Output("flags_before", np.zeros(FLAG_WORDS, dtype="<u4"))
        return KernelLaunch(kernel="flush", arguments=(before,), following=(walk,), **shape)
    return KernelLaunch(
        kernel="first",
        arguments=(
            by_value(np.array(plan, dtype="<u4")), places, flags, Scratch("pages", NUM_PAGES * PAGE_BYTES), Input(tensor()),
            *(MappedTensor(tensor(), maps[operand]) for operand in "abab"), times,
            Output("rehearsed", np.full((NUM_CTAS, NUM_REHEARSED), -1, dtype="<i4")), told,
        ),
        smem_bytes=smem_bytes, **shape,
    )  # fmt: skip


def sum_of_last_stage(config: Row, corner: tuple[int, int]) -> int:
    """The sum, modulo 2^32, of the words of the stage that a CTA loads last."""
    pitch, total = config.pitch_bytes, 0
    word = (config.steps - 1) % config.wrap * (ROW_BYTES // 4)
    for first_row, num in zip(corner, (config.a_rows, config.b_rows), strict=True):
        rows = np.arange(first_row, first_row + num, dtype=np.uint64)
        words = rows[:, None] * np.uint64(pitch // 4) + np.uint64(word) + np.arange(ROW_BYTES // 4, dtype=np.uint64)
        total += int((words * np.uint64(MULTIPLIER) + np.uint64(ADDEND) & np.uint64(0xFFFFFFFE)).sum())
    return total % 2**32


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """When stages are full, by SM, and how far SMs drift apart.

    Raises:
        WrongAnswer: a wait that was given up, two CTAs of one SM, a last stage of other words, a clock that stood still.
    """
    wrong_if(outputs["flags"][1], "a wait was given up: an SM has no CTA or two, or a stage never came")
    told, times = outputs["told"], outputs["times"].astype(np.float64)
    sms = told[:, 0].tolist()
    wrong_if(sorted(sms) != list(range(NUM_CTAS)), "two CTAs were on one SM")
    live = live_sms(config.live)
    sums: dict[tuple[int, int], int] = {}
    for cta, corner in enumerate(corners(config)):
        if (sms[cta] in live) != bool(told[cta, 2]):
            raise WrongAnswer(f"SM {sms[cta]} walked, or did not, where others should")
        if sms[cta] not in live:
            continue
        if corner not in sums:
            sums[corner] = sum_of_last_stage(config, corner)
        if told[cta, 1] != sums[corner]:
            raise WrongAnswer(f"the last stage of CTA {cta} has words that sum up to {told[cta, 1]}, not {sums[corner]}")
    walked = [cta for cta in range(NUM_CTAS) if sms[cta] in live]
    if (times[walked] <= 0).any() or (np.diff(times[walked], axis=1) < 0).any():
        raise WrongAnswer("a stage was there in no time, or before the one before")
    asked = len(walked) * config.steps * config.stage_bytes
    values = {**values_of(config, [sms[cta] for cta in walked], times[walked]), "asked_bytes": float(asked)}
    if config.kernel == "flush":
        values["starts_ns"] = float(np.subtract(*np.percentile(told[:, 3], (90, 10))))
    return values


def values_of(config: Row, sms: list[int], times: NDArray[np.float64]) -> dict[str, float]:
    """Of ``times``, float64[SMs, steps]: cycles from the start until a stage is full."""
    steps = times.shape[1]
    values = {}
    for stage in range(4):
        of_stage = times[:, stage]
        values |= {f"stage_{stage}_p{pct}_cycles": float(np.percentile(of_stage, pct)) for pct in (0, 10, 50, 90, 100)}
    for num in DRIFTS:
        if num < steps:
            values[f"drift_{num}_cycles"] = float(np.subtract(*np.percentile(times[:, num] - times[:, 0], (90, 10))))
            values[f"apart_{num}_cycles"] = float(np.subtract(*np.percentile(times[:, num], (90, 10))))
    of_sm = times[:, 0]
    if steps >= LONG_STEPS:
        half = steps // 2
        of_sm = (times[:, -1] - times[:, 0]) / (steps - 1)
        values["cycles_per_step"] = float(of_sm.mean())
        halves = times[:, half] - times[:, 0], times[:, -1] - times[:, half]
        if all(of.std() > 0 for of in halves):
            values["kept_pct"] = 100.0 * float(np.corrcoef(*halves)[0, 1])
    gpc_of = load_gpu(GPU).floorplan.gpc_of_sm
    for gpc in sorted(set(gpc_of)):
        mine = [value for sm, value in zip(sms, of_sm, strict=True) if gpc_of[sm] == gpc]
        if mine:
            values[f"gpc_{gpc}_cycles"] = float(np.median(mine))
    if len(sms) == NUM_CTAS:
        values |= {f"sm_{sm}_cycles": float(value) for sm, value in zip(sms, of_sm, strict=True)}
    for place, operand in enumerate("ab"):
        groups: dict[int, list[int]] = {}
        for at, cta_panels in enumerate(panels(config)[: len(sms)] if len(sms) == NUM_CTAS else []):
            groups.setdefault(cta_panels[place], []).append(at)
        shared = [members for members in groups.values() if len(members) > 1]
        for num in (0, *DRIFTS):
            if shared and num < steps:
                values[f"sharers_{operand}_{num}_cycles"] = float(np.median([np.ptp(times[of, num]) for of in shared]))
    return values


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """Of what was asked for, what L2 was read for: of walks whose tiles nothing else brings."""
    if not row.get(READ) or not row.get("asked_bytes"):
        return {}
    return {"read_fraction": (float(row[READ]) * 32 - prepared_bytes(Row.of(row))) / float(row["asked_bytes"])}


def prepared_bytes(config: Row) -> float:
    """What L2 is read for before the walk: tiles brought into L2, or what pushes them out; but for the rehearsal's."""
    if config.source == "memory":
        return float(192 << 20)
    if config.prepared_by == "all":
        return float(num_rows(config) * ROW_BYTES * config.wrap)
    return float(NUM_CTAS * config.stage_bytes * config.wrap)


# ---------------------------------------------------------------------------------------------- the simulator's answer

ISSUE_CYCLES, NEXT_CYCLES = 66.9, 192.9
"""What the producer's loop takes beside waits and copies. Source: kernels/tile_sharing, whose loop it is."""
CONSUMER_CYCLES = 262.1
"""From the consumer's wait to its arrival, math left out; it stores its times, which tile_sharing's does not."""
START_CYCLES = 50.0
"""From the first to the last SM that sees the time at which all go on: looks at a clock. A guess."""
GOLDEN = 0.6180339887498949


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """The same walk, simulated in full; nothing for a GPU of other SMs."""
    if gpu.num_sms != NUM_CTAS or gpu.mbarrier is None:
        return {}
    live, spec = live_sms(config.live), gpu.dispatcher
    sms = first_sms(spec, gpu.floorplan)
    starts = [
        spec.launch_cycles + (cta + 1) * spec.dispatch_cycles_per_cta + spec.wait_cycles(cta) + spec.cta_start_cycles
        for cta in range(NUM_CTAS)
    ]
    found, steps, stages, wrap = panels(config), config.steps, config.stages, config.wrap
    whole, math_cycles = config.stage_bytes, config.math_cycles
    rows = {"A": config.a_rows, "B": config.b_rows}
    before, after, consumed = (chained_code(cycles, gpu) for cycles in (ISSUE_CYCLES, NEXT_CYCLES, CONSUMER_CYCLES))
    per_cycle = gpu.warp_scheduler.int32_lanes / 32 / gpu.warp_scheduler.num_schedulers

    def wait(cta: RoleContext) -> ops.Alu:
        return chained_code(max(starts) - starts[cta.cta_idx] + START_CYCLES * (cta.cta_idx * GOLDEN % 1.0), gpu)

    def produce(cta: RoleContext) -> Iterator[Any]:
        if sms[cta.cta_idx] not in live:
            return
        named = dict(zip("AB", found[cta.cta_idx], strict=True))
        yield wait(cta)
        for step in range(steps):
            stage = step % stages
            yield ops.MbarrierWait("empty", stage, step // stages & 1 ^ 1)
            yield before
            yield ops.MbarrierArriveExpectTx("full", stage, whole)
            for name, panel in named.items():
                size = rows[name] * ROW_BYTES
                yield ops.TmaLoad(name, (panel, step % wrap), size, size, rows[name], "ring", stage, "full")
            yield after

    def consume(cta: RoleContext) -> Iterator[Any]:
        if sms[cta.cta_idx] not in live:
            return
        yield wait(cta)
        yield ops.RangeStart(ops.Section.MAINLOOP)
        yield ops.RangeEnd()
        for step in range(steps):
            yield ops.MbarrierWait("full", step % stages, step // stages & 1)
            yield ops.RangeStart(ops.Section.MAINLOOP)
            yield ops.RangeEnd()
            yield consumed
            if math_cycles:
                yield ops.Alu(math_cycles * per_cycle)
            yield ops.MbarrierArrive("empty", step % stages)

    ring = whole * stages
    launched = Launch(
        kernel="first_loads", num_ctas=NUM_CTAS, num_tiles=NUM_CTAS,
        roles=(
            WarpRole(name="producer", num_warps=1, program=produce), WarpRole(name="consumer", num_warps=1, program=consume),
        ),
        buffers=(
            Buffer(name="ring", stage_bytes=whole, num_stages=stages),
            Buffer(name="rest", stage_bytes=max(0, LEAST_SMEM_BYTES - ring)),
        ),
        mbarriers=tuple(Mbarrier(name=name, num_arrivals=1, num_stages=stages) for name in ("full", "empty")),
        tensor_maps=() if config.prefetch else ("A", "B"),
    )  # fmt: skip
    l2 = "warm" if config.source == "l2" else "cold"
    result = simulate(launched, gpu, clock="max", l2=l2, recorded_sms=range(NUM_CTAS))
    roles = sorted((role for role in result.timeline.roles if role.sections), key=lambda role: role.cta_idx)
    start = min(role.sections[0].start_cycle for role in roles)
    times = np.array([[span.start_cycle - start for span in role.sections[1:]] for role in roles])
    values = values_of(config, [role.sm_idx for role in roles], times)
    return {**values, READ: result.counters[READ] + prepared_bytes(config) / 32}


def fitted_constants(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[FittedConstant]:
    """What the consumer's loop takes, of full rings that math paces."""
    assert gpu.mbarrier is not None  # it has measured this kernel
    waited = gpu.mbarrier.try_wait_cycles + gpu.mbarrier.arrive_cycles
    paced = [
        float(row["cycles_per_step"]) - float(row["math_cycles"]) - waited for row in rows
        if row["group"] == "growth" and row["source"] == "l2" and int(row["steps"]) >= LONG_STEPS
    ]  # fmt: skip
    how = "full rings with math (growth, out of L2): cycles beyond it and a wait, median"
    return fitted_constant("CONSUMER_CYCLES", paced, how)


CASE = Case(
    name="first_loads",
    question=__doc__,
    config_type=Row, launch=launch, check=check, predict=predict, fitted_constants=fitted_constants, derive=derive,
    includes=grid_include, followers=("plain",),
    groups={
        name: Group(configs=configs, metrics=metrics, rank=3 if name == "alone" else 2, least_capability=(9, 0), num_sms=132)
        for name, configs, metrics in (
            ("first", first, ()), ("steady", steady, METRICS), ("growth", growth, METRICS), ("launched", launched, ()),
            ("alone", alone, ()),
        )
    },
    values={
        **{
            f"stage_{stage}_p{pct}_cycles": f"SM cycles from the common start until stage {stage} is full, P{pct} of the SMs"
            for stage in range(4) for pct in (0, 10, 50, 90, 100)
        },
        **{f"drift_{num}_cycles": f"of what SMs need for {num} steps behind the first: P90 less P10" for num in DRIFTS},
        **{f"apart_{num}_cycles": f"when {num} steps behind the first are there: P90 less P10 of the SMs" for num in DRIFTS},
        **{
            f"sharers_{operand}_{num}_cycles": f"from the first to the last who share a panel of {operand}, median of the "
            f"panels, when {num} steps behind the first are there"
            for operand in "ab" for num in (0, *DRIFTS)
        },
        "cycles_per_step": "SM cycles from a full stage to the next, mean of the SMs; of walks of 64 steps and more",
        "kept_pct": "correlation of what SMs need for the first half of a walk and for the second",
        "starts_ns": "first instructions of the CTAs of a launch: P90 less P10, by the GPU's nanoseconds",
        "asked_bytes": "bytes of all steps of all SMs",
        **{
            f"gpc_{gpc}_cycles": f"SM cycles until stage 0 is full, or a step of a long walk: median of GPC {gpc}"
            for gpc in range(8)
        },
        **{f"sm_{sm}_cycles": f"the same of SM {sm}" for sm in range(NUM_CTAS)},
    },
)  # fmt: skip
