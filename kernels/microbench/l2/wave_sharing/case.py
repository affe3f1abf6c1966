"""How much of what CTAs of a GEMM's raster ask for does L2 read, wave after wave, when they come and go by themselves?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import simulate
from gpusim.evidence.cases.case import Case, Group, KernelLaunch, MappedTensor, Output, Outputs, Repeated, Scratch, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.tile_walk import (
    check_tile_sums,
    code_of,
    gaps_between,
    grid_include,
    grouped_tile,
    num_reads,
    operand_map,
    random_words,
    read_fraction,
    ring_launch,
    sum_of_box,
    times_of_sharers,
)
from gpusim.machine.config import GpuSpec
from gpusim.machine.dispatcher import first_sms
from gpusim.workload import ops
from gpusim.workload.launch import Buffer, RoleContext
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
PATTERN_BYTES = 4 * 1000036
"""Of the words that tensors repeat: no power of two, so that no two tiles are alike."""
MOST_CTAS_TOLD = 4096
MOST_STORED_BYTES = 64 << 20
STORE_BYTES = 8192
"""Of a bulk copy."""
MOST_TWIN_STEPS = 40000
"""CTAs times steps of a twin; larger launches are not answered."""
WINDOWS_NS = (50, 100, 200, 400, 800, 1600)

READ = "lts__t_sectors_srcunit_tex_op_read.sum"
METRICS = (
    READ, "lts__t_requests_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_read_lookup_miss.sum",
    "lts__t_sectors_srcunit_ltcfabric.sum", "l1tex__m_xbar2l1tex_read_bytes.sum", "dram__bytes_read.sum",
)  # fmt: skip


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str = "walk"
    m_tiles: int = 32
    n_tiles: int = 32
    raster_group: int = 1
    a_rows: int = 128
    b_rows: int = 128
    stages: int = 4
    ctas_per_sm: int = 1
    steps: int = 32
    wrap: int = 32
    math_cycles: int = 0
    jitter_cycles: int = 0
    spread_cycles: int = 0
    store_kib: int = 0


SOURCES = (128, 16)
"""Of 128 steps those that are of other tiles: all, so that memory gives them, or an eighth, so that L2 does."""


def wave() -> list[Config]:
    """One wave: tall, wide and square, tiles, stages, math; out of memory and out of L2."""
    shapes = ((4, 33), (33, 4), (11, 12))
    return [
        Config(m_tiles=m, n_tiles=n, a_rows=128, b_rows=b, stages=stages, steps=128, wrap=wrap, math_cycles=math)
        for wrap in SOURCES for b in (128, 256) for stages in (2, 4) for math in (0, 2 * b) for m, n in shapes
    ]  # fmt: skip


def jitter() -> list[Config]:
    """One wave whose CTAs take a little longer now and then, each at other steps."""
    return [
        Config(m_tiles=m, n_tiles=n, steps=128, wrap=wrap, math_cycles=512, jitter_cycles=jitter)
        for wrap in SOURCES for jitter in (32, 128, 512, 2048) for m, n in ((4, 33), (11, 12), (33, 4))
    ]  # fmt: skip


def waves() -> list[Config]:
    """Several waves of a square product, by raster group, CTAs an SM, math, and what is behind a CTA's last step."""
    squares = [
        Config(
            raster_group=group, ctas_per_sm=ctas, stages=5 - ctas, math_cycles=math, spread_cycles=spread, store_kib=store
        )
        for ctas in (1, 2) for math in (0, 512) for spread, store in ((0, 0), (2000, 0), (0, 32)) for group in (1, 4, 8)
    ]  # fmt: skip
    wide = Config.sweep(
        math_cycles=(0, 1024), store_kib=(0, 64), raster_group=(1, 4, 8), n_tiles=16, b_rows=256, stages=4, steps=64, wrap=64
    )  # fmt: skip
    large = [
        Config(m_tiles=64, n_tiles=64, raster_group=group, ctas_per_sm=ctas, stages=5 - ctas, steps=64, wrap=64,
                  math_cycles=512)
        for ctas in (1, 2) for group in (1, 4, 16)
    ]  # fmt: skip
    return squares + wide + large


def same_sm() -> list[Config]:
    """A by CTA and B by SM: two CTAs of one SM that walk the same B, and one, whose B nobody shares."""
    return [
        Config(
            raster_group=0, m_tiles=NUM_SMS * ctas, n_tiles=NUM_SMS, a_rows=64, ctas_per_sm=ctas, stages=3, steps=128,
            wrap=wrap, math_cycles=math,
        )
        for wrap in (32, 4) for math in (0, 512) for ctas in (1, 2)
    ]  # fmt: skip


def num_smem_bytes(config: Config) -> int:
    """Of the ring."""
    return (config.a_rows + config.b_rows) * ROW_BYTES * config.stages


def num_ctas(config: Config) -> int:
    """Of the grid."""
    m_tiles, n_tiles = config.m_tiles, config.n_tiles
    return m_tiles if config.raster_group == 0 else m_tiles * n_tiles


def tile_of(config: Config, cta: int, sm: int) -> tuple[int, int]:
    """(row, column) of a CTA's tile, in Triton's grouped order; columns by SM where there are no groups.

    >>> [tile_of(Config(m_tiles=3, n_tiles=2, raster_group=2), cta, 0) for cta in range(6)]
    [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
    """
    if not config.raster_group:
        return cta, sm
    return grouped_tile(cta, m_tiles=config.m_tiles, n_tiles=config.n_tiles, raster_group=config.raster_group)


def pitch_bytes(config: Config) -> int:
    """Of a row of A or B."""
    return config.wrap * ROW_BYTES


def box_rows(config: Config, operand: str) -> int:
    """Of a tile of A or B."""
    return config.a_rows if operand == "a" else config.b_rows


def num_rows(config: Config, operand: str) -> int:
    """Of A or B."""
    return (config.m_tiles if operand == "a" else config.n_tiles) * box_rows(config, operand)


def tensor_map(config: Config, operand: str) -> TensorMap:
    """The map of an operand, as a GEMM has it."""
    return operand_map(pitch_bytes(config), num_rows(config, operand), box_rows(config, operand))


def launch(config: Config) -> KernelLaunch:
    """The same launch under the profiler as without."""
    plan = [
        config.m_tiles, config.n_tiles, config.raster_group, config.a_rows, config.b_rows, config.stages, config.steps,
        config.wrap, config.math_cycles, config.jitter_cycles, config.spread_cycles, config.store_kib * KIB,
    ]  # fmt: skip
    words = random_words(PATTERN_BYTES)
    operands = (
        MappedTensor(Repeated(words, num_rows(config, name) * pitch_bytes(config)), tensor_map(config, name))
        for name in "ab"
    )
    return KernelLaunch(
        kernel="walk",
        arguments=(
            by_value(np.array(plan, dtype="<u4")), *operands, Scratch("stored", MOST_STORED_BYTES),
            Output("told", np.full((MOST_CTAS_TOLD, 8), -1, dtype="<i8")),
        ),
        grid=(num_ctas(config), 1, 1), block=(NUM_THREADS, 1, 1),
        smem_bytes=max(LEAST_SMEM_BYTES[config.ctas_per_sm], num_smem_bytes(config)),
    )  # fmt: skip


def sum_of_last_stages(config: Config, operand: str, panel: int) -> int:
    """The sum, modulo 2^32, of the words of an operand that a ring holds in the end."""
    rows, words = box_rows(config, operand), random_words(PATTERN_BYTES)
    return (
        sum(
            sum_of_box(words, panel * rows, rows, pitch_bytes=pitch_bytes(config), column=step % config.wrap)
            for step in range(config.steps - config.stages, config.steps)
        )
        % 2**32
    )


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of a step, how far apart those are who share tiles, and what would merge if nothing but that decided."""
    count = num_ctas(config)
    told = outputs["told"][:count]
    wrong_if((told[:, 7] != 1).any(), "a wait was given up: a stage never came")
    sms = told[:, 0].tolist()
    tiles = [tile_of(config, cta, sm) for cta, sm in enumerate(sms)]
    check_tile_sums(tiles, told[:, 1].tolist(), partial(sum_of_last_stages, config))
    cycles = told[:, 2] / (config.steps - 1)
    wrong_if((cycles <= 0).any(), "the clock stood still")
    whole = stage_bytes(config)
    values = {
        "cycles_per_step": float(cycles.mean()), "slowest_cycles": float(cycles.max()),
        "fastest_cycles": float(cycles.min()), "span_ns": float(told[:, 6].max() - told[:, 3].min()),
        "asked_bytes": float(count * config.steps * whole),
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
            gaps = gaps_between(times_of_sharers(GPU, sms, of_operand, times))
            for pct in (25, 50, 75):
                values[f"{name}_{operand}_p{pct}_ns"] = float(np.percentile(gaps, pct)) if gaps else -1.0
    shares = {operand: box_rows(config, operand) * ROW_BYTES / stage_bytes(config) for operand in panels}
    groups = {operand: times_of_sharers(GPU, sms, panels[operand], middle_ns) for operand in shares}
    for window in WINDOWS_NS:
        values[f"within_{window}_ns"] = sum(
            share * (num_reads(groups[operand], window) / len(sms)) for operand, share in shares.items()
        )
    return values


def wave_span_ns(config: Config, times: NDArray[np.float64]) -> float:
    """From the first tenth to the last of the CTAs of a wave, by number; the median of the waves, the last one left out.

    >>> wave_span_ns(Config(), np.arange(132.0) * 10)
    1048.0
    """
    size = NUM_SMS * config.ctas_per_sm
    waves = [times[at : at + size] for at in range(0, max(len(times) - size, 0) + 1, size)]
    return float(np.median([np.subtract(*np.percentile(of_wave, (90, 10))) for of_wave in waves]))


def stage_bytes(config: Config) -> int:
    """A's box and B's."""
    return (config.a_rows + config.b_rows) * ROW_BYTES


# ---------------------------------------------------------------------------------------------- the simulator's answer

ISSUE_CYCLES, NEXT_CYCLES, CONSUMER_CYCLES = 66.9, 192.9, 147.7
"""What the loops take beside waits and copies. Source: kernels/tile_sharing, whose loops these are."""


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same grid, simulated in full; nothing for a GPU of other SMs and large grids."""
    steps, count = config.steps, num_ctas(config)
    if gpu.num_sms != NUM_SMS or gpu.mbarrier is None or count * steps > MOST_TWIN_STEPS:
        return {}
    sms = first_sms(gpu.dispatcher, gpu.floorplan)  # of the first CTAs; where columns go by SM, there are no others
    stages, wrap, math_cycles = config.stages, config.wrap, config.math_cycles
    jitter_cycles, spread_cycles = config.jitter_cycles, config.spread_cycles
    rows = {"A": config.a_rows, "B": config.b_rows}
    whole, store_bytes = stage_bytes(config), config.store_kib * KIB
    before, after, consumed = (code_of(cycles, gpu) for cycles in (ISSUE_CYCLES, NEXT_CYCLES, CONSUMER_CYCLES))
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

    ring = Buffer(name="ring", stage_bytes=whole, num_stages=stages)
    launched = ring_launch(
        "wave_sharing", (produce, consume), ring, num_ctas=count,
        least_smem_bytes=LEAST_SMEM_BYTES[config.ctas_per_sm],
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
    return Group(configs=configs, metrics=METRICS, rank=rank, least_capability=(9, 0), num_sms=132, is_cold=True)


CASE = Case(
    name="wave_sharing",
    question=__doc__,
    config_type=Config,
    groups={"wave": _group(wave, 2), "jitter": _group(jitter, 3), "waves": _group(waves, 2), "same_sm": _group(same_sm, 3)},
    launch=launch, check=check,
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
    predict=predict, tiers={READ: 5, "dram__bytes_read.sum": 5}, derive=read_fraction, includes=grid_include,
)  # fmt: skip
