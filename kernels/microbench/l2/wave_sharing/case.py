"""How much of what CTAs of a GEMM's raster ask for does L2 read, wave after wave, when they come and go by themselves?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, Launch, Mbarrier, WarpRole, load_gpu, simulate
from gpusim.evidence.cases.case import (
    Case,
    Config,
    Group,
    KernelLaunch,
    MappedTensor,
    Output,
    Outputs,
    Repeated,
    Scratch,
    WrongAnswer,
    by_value,
)
from gpusim.evidence.cases.tile_walk import grid_include
from gpusim.machine.config import GpuSpec
from gpusim.machine.dispatcher import first_sms
from gpusim.workload import ops
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext
from gpusim.workload.tma.boxes import TensorMap

GPU = "h200_sxm"
"""Whose GPCs pairs are sorted by."""
NUM_SMS = 132
NUM_THREADS = 64
KIB = 1024
ROW_BYTES = 128
"""Of a box: 64 elements of 16 bits."""
MOST_SMEM_BYTES = {1: 224 * KIB, 2: 112 * KIB}
"""Of a ring, by CTAs an SM."""
LEAST_SMEM_BYTES = {1: 120 * KIB, 2: 80 * KIB}
"""So that no further CTA finds room on an SM."""
PATTERN_WORDS = 1000036
"""Of the words that tensors repeat: no power of two, so that no two tiles are alike."""
MULTIPLIER, ADDEND = 0x9E3779B1, 0x7F4A7C15
MOST_CTAS_TOLD = 4096
MOST_STORED_BYTES = 64 << 20
STORE_BYTES = 8192
"""Of a bulk copy."""
MOST_TWIN_STEPS = 40000
"""CTAs times steps of a twin; larger launches are not answered."""
WINDOWS_NS = (50, 100, 200, 400, 800, 1600)
MOST_MERGED = 4

READ = "lts__t_sectors_srcunit_tex_op_read.sum"
METRICS = (
    READ,
    "lts__t_requests_srcunit_tex_op_read.sum",
    "lts__t_sectors_srcunit_tex_op_read_lookup_miss.sum",
    "lts__t_sectors_srcunit_ltcfabric.sum",
    "l1tex__m_xbar2l1tex_read_bytes.sum",
    "dram__bytes_read.sum",
)
DEFAULTS = {
    "m_tiles": "32", "n_tiles": "32", "raster_group": "1", "a_rows": "128", "b_rows": "128", "stages": "4",
    "ctas_per_sm": "1", "steps": "32", "wrap": "32", "math_cycles": "0", "jitter_cycles": "0", "spread_cycles": "0",
    "store_kib": "0",
}  # fmt: skip
COLUMNS = tuple(DEFAULTS)


def config_of(**columns: object) -> Config:
    """A config as text; columns that are not given have their default."""
    unknown = set(columns) - set(COLUMNS)
    assert not unknown, unknown
    return {"kernel": "walk", **DEFAULTS, **{name: str(value) for name, value in columns.items()}}


SOURCES = (128, 16)
"""Of 128 steps those that are of other tiles: all, so that memory gives them, or an eighth, so that L2 does."""


def wave(seed: int) -> list[Config]:
    """One wave: tall, wide and square, tiles, stages, math; out of memory and out of L2."""
    del seed  # a sweep, the same for every seed
    shapes = ((4, 33), (33, 4), (11, 12))
    return [
        config_of(
            m_tiles=m, n_tiles=n, a_rows=128, b_rows=b, stages=stages, steps=128, wrap=wrap, math_cycles=math,
        )
        for wrap in SOURCES for b in (128, 256) for stages in (2, 4) for math in (0, 2 * b) for m, n in shapes
    ]  # fmt: skip


def jitter(seed: int) -> list[Config]:
    """One wave whose CTAs take a little longer now and then, each at other steps."""
    del seed  # a sweep, the same for every seed
    return [
        config_of(m_tiles=m, n_tiles=n, steps=128, wrap=wrap, math_cycles=512, jitter_cycles=jitter)
        for wrap in SOURCES for jitter in (32, 128, 512, 2048) for m, n in ((4, 33), (11, 12), (33, 4))
    ]  # fmt: skip


def waves(seed: int) -> list[Config]:
    """Several waves of a square product, by raster group, CTAs an SM, math, and what is behind a CTA's last step."""
    del seed  # a sweep, the same for every seed
    squares = [
        config_of(
            raster_group=group, ctas_per_sm=ctas, stages=5 - ctas, math_cycles=math, spread_cycles=spread, store_kib=store
        )
        for ctas in (1, 2) for math in (0, 512) for spread, store in ((0, 0), (2000, 0), (0, 32)) for group in (1, 4, 8)
    ]  # fmt: skip
    wide = [
        config_of(
            raster_group=group, n_tiles=16, b_rows=256, stages=4, steps=64, wrap=64, math_cycles=math, store_kib=store
        )
        for math in (0, 1024) for store in (0, 64) for group in (1, 4, 8)
    ]  # fmt: skip
    large = [
        config_of(m_tiles=64, n_tiles=64, raster_group=group, ctas_per_sm=ctas, stages=5 - ctas, steps=64, wrap=64,
                  math_cycles=512)
        for ctas in (1, 2) for group in (1, 4, 16)
    ]  # fmt: skip
    return squares + wide + large


def same_sm(seed: int) -> list[Config]:
    """A by CTA and B by SM: two CTAs of one SM that walk the same B, and one, whose B nobody shares."""
    del seed  # a sweep, the same for every seed
    return [
        config_of(
            raster_group=0, m_tiles=NUM_SMS * ctas, n_tiles=NUM_SMS, a_rows=64, ctas_per_sm=ctas, stages=3, steps=128,
            wrap=wrap, math_cycles=math,
        )
        for wrap in (32, 4) for math in (0, 512) for ctas in (1, 2)
    ]  # fmt: skip


def num_smem_bytes(config: Config) -> int:
    """Of the ring."""
    return (int(config["a_rows"]) + int(config["b_rows"])) * ROW_BYTES * int(config["stages"])


def num_ctas(config: Config) -> int:
    """Of the grid."""
    m_tiles, n_tiles = int(config["m_tiles"]), int(config["n_tiles"])
    return m_tiles if config["raster_group"] == "0" else m_tiles * n_tiles


def tile_of(config: Config, cta: int, sm: int) -> tuple[int, int]:
    """(row, column) of a CTA's tile, in Triton's grouped order; columns by SM where there are no groups.

    >>> [tile_of(config_of(m_tiles=3, n_tiles=2, raster_group=2), cta, 0) for cta in range(6)]
    [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
    """
    group, m_tiles = int(config["raster_group"]), int(config["m_tiles"])
    if not group:
        return cta, sm
    turn, rest = divmod(cta, group * int(config["n_tiles"]))
    height = min(group, m_tiles - turn * group)
    return turn * group + rest % height, rest // height


@cache
def pattern() -> NDArray[np.uint32]:
    """Words that look random; copied to the GPU once."""
    words = np.arange(PATTERN_WORDS, dtype=np.uint32)
    words *= np.uint32(MULTIPLIER)
    words += np.uint32(ADDEND)
    words.setflags(write=False)
    return words


def pitch_bytes(config: Config) -> int:
    """Of a row of A or B."""
    return int(config["wrap"]) * ROW_BYTES


def num_rows(config: Config, operand: str) -> int:
    """Of A or B."""
    return int(config["m_tiles" if operand == "a" else "n_tiles"]) * int(config[f"{operand}_rows"])


def tensor_map(config: Config, operand: str) -> TensorMap:
    """The map of an operand, as a GEMM has it."""
    pitch = pitch_bytes(config)
    return TensorMap(
        dtype=BF16, global_dim=(pitch // 2, num_rows(config, operand)), global_strides_bytes=(pitch,),
        box_dim=(ROW_BYTES // 2, int(config[f"{operand}_rows"])), swizzle="128B", l2_promotion="128B",
    )  # fmt: skip


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """The same launch under the profiler as without."""
    del is_counted
    names = (
        "m_tiles", "n_tiles", "raster_group", "a_rows", "b_rows", "stages", "steps", "wrap", "math_cycles", "jitter_cycles",
        "spread_cycles",
    )  # fmt: skip
    plan = [*(int(config[name]) for name in names), int(config["store_kib"]) * KIB]
    operands = (
        MappedTensor(Repeated(pattern(), num_rows(config, name) * pitch_bytes(config)), tensor_map(config, name))
        for name in "ab"
    )
    return KernelLaunch(
        kernel="walk",
        arguments=(
            by_value(np.array(plan, dtype="<u4")), *operands, Scratch("stored", MOST_STORED_BYTES),
            Output("told", np.full((MOST_CTAS_TOLD, 8), -1, dtype="<i8")),
        ),
        grid=(num_ctas(config), 1, 1), block=(NUM_THREADS, 1, 1),
        smem_bytes=max(LEAST_SMEM_BYTES[int(config["ctas_per_sm"])], num_smem_bytes(config)),
    )  # fmt: skip


def sum_of_last_stages(config: Config, operand: str, panel: int) -> int:
    """The sum, modulo 2^32, of the words of an operand that a ring holds in the end."""
    rows, pitch, steps = int(config[f"{operand}_rows"]), pitch_bytes(config), int(config["steps"])
    total = 0
    for step in range(steps - int(config["stages"]), steps):
        first = np.arange(panel * rows, (panel + 1) * rows) * (pitch // 4) + step % int(config["wrap"]) * (ROW_BYTES // 4)
        words = (first[:, None] + np.arange(ROW_BYTES // 4)) % PATTERN_WORDS
        total += int(pattern()[words].astype(np.uint64).sum())
    return total % 2**32


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of a step, how far apart those are who share tiles, and what would merge if nothing but that decided.

    Raises:
        WrongAnswer: a wait that was given up, stages of other words, a clock that stood still.
    """
    count = num_ctas(config)
    told = outputs["told"][:count]
    if (told[:, 7] != 1).any():
        raise WrongAnswer("a wait was given up: a stage never came")
    sms = told[:, 0].tolist()
    tiles = [tile_of(config, cta, sm) for cta, sm in enumerate(sms)]
    sums = {
        operand: {panel: sum_of_last_stages(config, operand, panel) for panel in {tile[place] for tile in tiles}}
        for place, operand in enumerate("ab")
    }
    for (m, n), checksum in zip(tiles, told[:, 1].tolist(), strict=True):
        if checksum != (sums["a"][m] + sums["b"][n]) % 2**32:
            raise WrongAnswer(f"the stages of tile {m}, {n} have words that sum up to {checksum}")
    cycles = told[:, 2] / (int(config["steps"]) - 1)
    if (cycles <= 0).any():
        raise WrongAnswer("the clock stood still")
    whole = stage_bytes(config)
    values = {
        "cycles_per_step": float(cycles.mean()),
        "slowest_cycles": float(cycles.max()),
        "fastest_cycles": float(cycles.min()),
        "span_ns": float(told[:, 6].max() - told[:, 3].min()),
        "asked_bytes": float(count * int(config["steps"]) * whole),
        "wave_end_ns": wave_span_ns(config, told[:, 6].astype(np.float64)),
    }  # fmt: skip
    return values | apart_ns(config, sms, told[:, 4].astype(np.float64), told[:, 5].astype(np.float64))


def apart_ns(
    config: Config, sms: list[int], begin_ns: NDArray[np.float64], middle_ns: NDArray[np.float64]
) -> dict[str, float]:
    """How far apart CTAs of a GPC are that share tiles, and what would merge if nothing but that decided; all by CTA."""
    tiles = [tile_of(config, cta, sm) for cta, sm in enumerate(sms)]
    panels = {operand: [tile[place] for tile in tiles] for place, operand in enumerate("ab")}
    values = {"wave_begin_ns": wave_span_ns(config, begin_ns)}
    for name, times in (("begin", begin_ns), ("middle", middle_ns)):
        for operand, of_operand in panels.items():
            gaps = gaps_ns(sms, of_operand, times)
            for pct in (25, 50, 75):
                values[f"{name}_{operand}_p{pct}_ns"] = float(np.percentile(gaps, pct)) if gaps else -1.0
    shares = {operand: int(config[f"{operand}_rows"]) * ROW_BYTES / stage_bytes(config) for operand in panels}
    for window in WINDOWS_NS:
        values[f"within_{window}_ns"] = sum(
            share * merged_fraction(sms, panels[operand], middle_ns, window) for operand, share in shares.items()
        )
    return values


def wave_span_ns(config: Config, times: NDArray[np.float64]) -> float:
    """From the first tenth to the last of the CTAs of a wave, by number; the median of the waves, the last one left out.

    >>> wave_span_ns(config_of(), np.arange(132.0) * 10)
    1048.0
    """
    size = NUM_SMS * int(config["ctas_per_sm"])
    waves = [times[at : at + size] for at in range(0, max(len(times) - size, 0) + 1, size)]
    return float(np.median([np.subtract(*np.percentile(of_wave, (90, 10))) for of_wave in waves]))


def _by_group(sms: list[int], panels: list[int], times: NDArray[np.float64]) -> dict[tuple[int, int], list[float]]:
    """Times of the CTAs of each GPC and panel, in order."""
    gpc_of = load_gpu(GPU).floorplan.gpc_of_sm
    groups: dict[tuple[int, int], list[float]] = defaultdict(list)
    for sm, panel, time in zip(sms, panels, times.tolist(), strict=True):
        groups[gpc_of[sm % NUM_SMS], panel].append(time)
    return {key: sorted(found) for key, found in groups.items()}


def gaps_ns(sms: list[int], panels: list[int], times: NDArray[np.float64]) -> list[float]:
    """From each CTA to the one before it of the same GPC and panel.

    >>> gaps_ns([0, 16, 2], [5, 5, 5], np.array([100.0, 30.0, 0.0]))
    [70.0]
    """
    return [
        later - earlier for found in _by_group(sms, panels, times).values()
        for earlier, later in pairwise(found)
    ]  # fmt: skip


def merged_fraction(sms: list[int], panels: list[int], times: NDArray[np.float64], window_ns: float) -> float:
    """What is read of what is asked for where all within so long of the first of their GPC get it with that, four at most.

    >>> merged_fraction([0, 16, 2], [5, 5, 5], np.array([100.0, 30.0, 0.0]), 80.0)
    0.6666666666666666
    """
    reads = 0
    for found in _by_group(sms, panels, times).values():
        first, num = -np.inf, 0
        for time in found:
            if time - first > window_ns or num == MOST_MERGED:
                first, num = time, 0
                reads += 1
            num += 1
    return reads / len(sms)


def stage_bytes(config: Config) -> int:
    """A's box and B's."""
    return (int(config["a_rows"]) + int(config["b_rows"])) * ROW_BYTES


def derive(row: Config) -> dict[str, float]:
    """Of what was asked for, what L2 was read for."""
    if not row.get(READ) or not row.get("asked_bytes"):
        return {}
    return {"read_fraction": float(row[READ]) * 32 / float(row["asked_bytes"])}


# ---------------------------------------------------------------------------------------------- the simulator's answer

ISSUE_CYCLES, NEXT_CYCLES, CONSUMER_CYCLES = 66.9, 192.9, 147.7
"""What the loops take beside waits and copies. Source: kernels/tile_sharing, whose loops these are."""


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same grid, simulated in full; nothing for a GPU of other SMs and large grids."""
    steps, count = int(config["steps"]), num_ctas(config)
    if gpu.num_sms != NUM_SMS or gpu.mbarrier is None or count * steps > MOST_TWIN_STEPS:
        return {}
    sms = first_sms(gpu.dispatcher, gpu.floorplan)  # of the first CTAs; where columns go by SM, there are no others
    stages, wrap, math_cycles = int(config["stages"]), int(config["wrap"]), int(config["math_cycles"])
    jitter_cycles, spread_cycles = int(config["jitter_cycles"]), int(config["spread_cycles"])
    rows = {"A": int(config["a_rows"]), "B": int(config["b_rows"])}
    whole, store_bytes = stage_bytes(config), int(config["store_kib"]) * KIB
    before, after, consumed = (_code(cycles, gpu) for cycles in (ISSUE_CYCLES, NEXT_CYCLES, CONSUMER_CYCLES))
    per_cycle = gpu.warp_scheduler.int32_lanes / 32 / gpu.warp_scheduler.num_schedulers

    def produce(cta: RoleContext) -> Iterator[Any]:
        panels = dict(zip("AB", tile_of(config, cta.cta_idx, sms[cta.cta_idx % NUM_SMS]), strict=True))
        for step in range(steps):
            stage = step % stages
            yield ops.MbarrierWait("empty", stage, step // stages & 1 ^ 1)
            yield before
            yield ops.MbarrierArriveExpectTx("full", stage, whole)
            for name, panel in panels.items():
                size = rows[name] * ROW_BYTES
                yield ops.TmaLoad(name, (panel, step % wrap), size, size, rows[name], "ring", stage, "full")
            yield after

    def consume(cta: RoleContext) -> Iterator[Any]:
        for step in range(steps):
            yield ops.MbarrierWait("full", step % stages, step // stages & 1)
            if step in {steps // 2, steps - 1}:
                yield ops.RangeEnd()
            if step in {0, steps // 2}:
                yield ops.RangeStart(ops.Section.MAINLOOP)
            yield consumed
            if math_cycles:
                yield ops.Alu((math_cycles + drawn(cta.cta_idx, step, jitter_cycles)) * per_cycle)
            yield ops.MbarrierArrive("empty", step % stages)
        if store_bytes:
            for at in range(0, store_bytes, STORE_BYTES):
                yield ops.TmaStore("D", (cta.cta_idx, at), STORE_BYTES, 1, "ring", at // whole)
            yield ops.BulkCommitGroup()
            yield ops.BulkWaitGroup(0, read=True)
        if spread_cycles:
            yield ops.Alu(drawn(cta.cta_idx, 0xFFFFFFFF, spread_cycles) * per_cycle)

    ring = num_smem_bytes(config)
    launched = Launch(
        kernel="wave_sharing", num_ctas=count, num_tiles=count,
        roles=(
            WarpRole(name="producer", num_warps=1, program=produce), WarpRole(name="consumer", num_warps=1, program=consume),
        ),
        buffers=(
            Buffer(name="ring", stage_bytes=whole, num_stages=stages),
            Buffer(name="rest", stage_bytes=max(0, LEAST_SMEM_BYTES[int(config["ctas_per_sm"])] - ring)),
        ),
        mbarriers=tuple(Mbarrier(name=name, num_arrivals=1, num_stages=stages) for name in ("full", "empty")),
    )  # fmt: skip
    result = simulate(launched, gpu, clock="max", l2="cold", recorded_sms=range(NUM_SMS))
    halves = sorted(
        (role.cta_idx, role.sm_idx, *(span.start_cycle for span in role.sections), role.sections[-1].end_cycle)
        for role in result.timeline.roles if role.sections
    )  # fmt: skip
    begin, middle, end = np.array([times for _, _, *times in halves]).T
    spans = (end - begin) / (steps - 1)
    ns_per_cycle = 1000.0 / gpu.clock.max_mhz
    return {
        "cycles_per_step": float(spans.mean()), "slowest_cycles": float(spans.max()), "fastest_cycles": float(spans.min()),
        READ: result.counters[READ], "dram__bytes_read.sum": result.counters["dram__bytes_read.sum"],
        **apart_ns(config, [sm for _, sm, *_ in halves], begin * ns_per_cycle, middle * ns_per_cycle),
    }  # fmt: skip


def _code(num_cycles: float, gpu: GpuSpec) -> ops.Alu:
    """Code that takes a warp so long, most of it waiting for itself."""
    return ops.Alu(num_cycles / gpu.warp_scheduler.dependent_cycles, is_chain=True)


def drawn(cta: int, step: int, most: int) -> int:
    """What the kernel draws: a number up to ``most``, by CTA and step.

    >>> drawn(3, 5, 0), 0 <= drawn(3, 5, 100) <= 100
    (0, True)
    """
    x = (cta * 0x9E3779B1 + step * 0x85EBCA77 + 0x7F4A7C15) & 0xFFFFFFFF
    x ^= x >> 15
    x = x * 0x2C1B3C6D & 0xFFFFFFFF
    x ^= x >> 13
    return x * (most + 1) >> 32


def _group(configs: Any, rank: int) -> Group:
    return Group(configs=configs, metrics=METRICS, rank=rank, least_capability=(9, 0), is_cold=True)


CASE = Case(
    name="wave_sharing",
    question=__doc__,
    columns=COLUMNS,
    groups={"wave": _group(wave, 2), "jitter": _group(jitter, 3), "waves": _group(waves, 2), "same_sm": _group(same_sm, 3)},
    launch=launch,
    check=check,
    values={
        "cycles_per_step": "SM cycles from a full stage to the next, mean of the CTAs",
        "slowest_cycles": "the same of the slowest CTA",
        "fastest_cycles": "the same of the fastest CTA",
        "span_ns": "from the first CTA's start to the last one's end",
        "asked_bytes": "bytes of all steps of all CTAs",
        "wave_begin_ns": "first stages of CTAs of a wave, by number: from the first tenth to the last, median of the waves",
        "wave_end_ns": "the same of their ends",
        **{
            f"{name}_{operand}_p{pct}_ns": f"from a CTA to the one before of its GPC and panel of {operand}, P{pct}, {when}"
            for name, when in (("begin", "first stage full"), ("middle", "half through")) for operand in "ab"
            for pct in (25, 50, 75)
        },
        **{
            f"within_{window}_ns": "what would be read of what is asked for if all of a GPC merged, four at most, who are "
            f"half through within {window} ns of the first"
            for window in WINDOWS_NS
        },
    },
    predict=predict,
    tiers={READ: 5, "dram__bytes_read.sum": 5},
    derive=derive,
    includes=grid_include,
)  # fmt: skip
