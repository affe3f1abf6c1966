"""How much of tiles that CTAs share does L2 read, and how fast, where rows do not begin on a line, or not on a sector?"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import simulate
from gpusim.evidence.cases.case import (
    Case,
    Fitted,
    Group,
    KernelLaunch,
    MappedTensor,
    Output,
    Outputs,
    Repeated,
    Scratch,
    by_value,
    kernel_folder,
    load_case,
)
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.tile_walk import (
    check_tile_sums,
    code_of,
    grid_include,
    operand_map,
    random_words,
    read_fraction,
    ring_launch,
    section_cycles,
    sum_of_box,
)
from gpusim.machine.config import GpuSpec
from gpusim.workload import ops
from gpusim.workload.gmem.line_fetches import Fetches, row_fetches
from gpusim.workload.launch import Buffer, RoleContext
from gpusim.workload.tma.boxes import TensorMap

waves = sys.modules[load_case("wave_sharing").launch.__module__]
"""The kernel, its raster and its words are those of kernels/wave_sharing."""

KIB = 1024
ROW_BYTES = waves.ROW_BYTES
LINE_BYTES = 128
BEYOND = (0, 16, 32, 48, 64, 80, 96)
"""What a pitch is beyond whole lines: an odd number of them, so that of each a half calibrates and a half judges."""
PITCHES = {128: 16384, 48: 8192, 32: 4096, 16: 4096}
"""Bytes from row to row less that, by steps of other tiles."""
LEAST_SMEM_BYTES = {1: 120 * KIB, 4: 47 * KIB}
"""By CTAs an SM: so that no further one finds room."""
CYCLES = "sm__cycles_elapsed.max"
READ = waves.READ
METRICS = (*waves.METRICS, CYCLES)


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str = "walk"
    m_tiles: int = 11
    n_tiles: int = 12
    raster_group: int = 1
    a_rows: int = 128
    b_rows: int = 128
    stages: int = 4
    ctas_per_sm: int = 1
    steps: int = 128
    wrap: int = 16
    math_cycles: int = 0
    beyond_bytes: int = 0


def wave() -> list[Config]:
    """One wave, an SM a CTA: square and tall, out of memory and out of L2, with math and without."""
    return [
        Config(m_tiles=m, n_tiles=n, wrap=wrap, math_cycles=math, beyond_bytes=beyond)
        for m, n in ((11, 12), (33, 4)) for wrap in (16, 128) for math in (0, 512) for beyond in BEYOND
    ]  # fmt: skip


def several() -> list[Config]:
    """Small tiles of four CTAs an SM, and wide ones in three waves."""
    kinds: tuple[dict[str, Any], ...] = (
        {"m_tiles": 24, "n_tiles": 33, "a_rows": 64, "b_rows": 64, "stages": 3, "ctas_per_sm": 4, "steps": 48, "wrap": 48},
        {"m_tiles": 33, "n_tiles": 12, "a_rows": 64, "b_rows": 256, "stages": 4, "steps": 32, "wrap": 32},
    )
    return [
        Config(**kind, math_cycles=math, beyond_bytes=beyond) for kind in kinds for math in (0, 512) for beyond in BEYOND
    ]  # fmt: skip


def few() -> list[Config]:
    """Six CTAs out of memory: what a step takes that nobody else holds up."""
    return Config.sweep(stages=(1, 2, 4), beyond_bytes=BEYOND, m_tiles=2, n_tiles=3, wrap=128)


def pitch_bytes(config: Config) -> int:
    """From row to row of A or B."""
    return PITCHES[config.wrap] + config.beyond_bytes


def num_bytes(config: Config, operand: str) -> int:
    """Of A or B."""
    return int(waves.num_rows(config, operand)) * pitch_bytes(config)


def tensor_map(config: Config, operand: str) -> TensorMap:
    """The map of an operand, as a GEMM has it."""
    return operand_map(pitch_bytes(config), waves.num_rows(config, operand), waves.box_rows(config, operand))


def launch(config: Config) -> KernelLaunch:
    """The same launch under the profiler as without."""
    plan = [
        config.m_tiles, config.n_tiles, config.raster_group, config.a_rows, config.b_rows, config.stages, config.steps,
        config.wrap, config.math_cycles, 0, 0, 0,
    ]  # fmt: skip
    words = random_words(waves.PATTERN_BYTES)
    operands = (MappedTensor(Repeated(words, num_bytes(config, name)), tensor_map(config, name)) for name in "ab")
    return KernelLaunch(
        kernel="walk",
        arguments=(
            by_value(np.array(plan, dtype="<u4")), *operands, Scratch("stored", 16),
            Output("told", np.full((waves.MOST_CTAS_TOLD, 8), -1, dtype="<i8")),
        ),
        grid=(waves.num_ctas(config), 1, 1), block=(waves.NUM_THREADS, 1, 1), smem_bytes=smem_bytes(config),
    )  # fmt: skip


def smem_bytes(config: Config) -> int:
    """Of a CTA."""
    return max(LEAST_SMEM_BYTES[config.ctas_per_sm], int(waves.num_smem_bytes(config)))


def sum_of_last_stages(config: Config, operand: str, panel: int) -> int:
    """The sum, modulo 2^32, of the words of an operand that a ring holds in the end."""
    rows, words = waves.box_rows(config, operand), random_words(waves.PATTERN_BYTES)
    return (
        sum(
            sum_of_box(words, panel * rows, rows, pitch_bytes=pitch_bytes(config), column=step % config.wrap)
            for step in range(config.steps - config.stages, config.steps)
        )
        % 2**32
    )


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of a step."""
    count = waves.num_ctas(config)
    told: NDArray[np.int64] = outputs["told"][:count]
    wrong_if((told[:, 7] != 1).any(), "a wait was given up: a stage never came")
    tiles = [waves.tile_of(config, cta, 0) for cta in range(count)]
    check_tile_sums(tiles, told[:, 1].tolist(), partial(sum_of_last_stages, config))
    cycles = told[:, 2] / (config.steps - 1)
    wrong_if((cycles <= 0).any(), "the clock stood still")
    return {
        "cycles_per_step": float(cycles.mean()), "slowest_cycles": float(cycles.max()),
        "fastest_cycles": float(cycles.min()), "asked_bytes": float(count * config.steps * waves.stage_bytes(config)),
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------- the simulator's answer
def fetched(config: Config, operand: str) -> Fetches | None:
    """What a box of an operand fetches; None where all rows begin on lines. Boxes of 128 rows and fewer are all alike."""
    if not pitch_bytes(config) % LINE_BYTES:
        return None
    return row_fetches(np.arange(waves.box_rows(config, operand)) * pitch_bytes(config), ROW_BYTES)


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same grid, simulated in full; nothing for a GPU of other SMs."""
    if gpu.num_sms != waves.NUM_SMS or gpu.mbarrier is None:
        return {}
    steps, stages, wrap, math_cycles = config.steps, config.stages, config.wrap, config.math_cycles
    count = waves.num_ctas(config)
    of_operand = [(name.upper(), waves.box_rows(config, name), fetched(config, name)) for name in "ab"]
    whole = waves.stage_bytes(config)
    before, after, consumed = (
        code_of(cycles, gpu) for cycles in (waves.ISSUE_CYCLES, waves.NEXT_CYCLES, waves.CONSUMER_CYCLES)
    )
    math = ops.Alu(math_cycles * gpu.warp_scheduler.int32_lanes / 32 / gpu.warp_scheduler.num_schedulers)

    def produce(cta: RoleContext) -> Iterator[Any]:
        tile = waves.tile_of(config, cta.cta_idx, 0)
        for step in range(steps):
            stage = step % stages
            yield ops.MbarrierWait("empty", stage, step // stages & 1 ^ 1)
            yield before
            yield ops.MbarrierArriveExpectTx("full", stage, whole)
            for panel, (name, rows, fetches) in zip(tile, of_operand, strict=True):
                size = rows * ROW_BYTES
                yield ops.TmaLoad(name, (panel, step % wrap), size, size, rows, "ring", stage, "full", fetches=fetches)
            yield after

    def consume(cta: RoleContext) -> Iterator[Any]:
        for step in range(steps):
            yield ops.MbarrierWait("full", step % stages, step // stages & 1)
            if step == 0:
                yield ops.RangeStart(ops.Section.MAINLOOP)
            if step == steps - 1:
                yield ops.RangeEnd()
            yield consumed
            if math_cycles:
                yield math
            yield ops.MbarrierArrive("empty", step % stages)

    ring = Buffer(name="ring", stage_bytes=whole, num_stages=stages)
    launched = ring_launch(
        "pitch_sharing", (produce, consume), ring, num_ctas=count,
        least_smem_bytes=LEAST_SMEM_BYTES[config.ctas_per_sm],
    )  # fmt: skip
    result = simulate(launched, gpu, clock="max", l2="cold", recorded_sms=range(gpu.num_sms))
    spans = section_cycles(result) / (steps - 1)
    return {"cycles_per_step": float(spans.mean()), **{name: result.counters[name] for name in (CYCLES, READ)}}


TORN = {"32": 0.75, "64": 0.5, "96": 0.75}
"""Of a box's rows those that lie on two lines, by what a pitch is beyond whole ones; the others begin on a line."""


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """``xbar.misaligned_coalesce_fraction``: merged share of rows that span two lines, over that of aligned rows."""
    shape = [name for name in Config.names()[1:] if name != "beyond_bytes"]
    read = {
        (tuple(row[name] for name in shape), row["beyond_bytes"]): float(row[READ]) * 32 / float(row["asked_bytes"])
        for row in rows if row["group"] != "few" and row["math_cycles"] == "0" and row.get(READ)
    }  # fmt: skip
    found = []
    for (grid, beyond), fraction in read.items():
        whole, torn = read.get((grid, "0")), TORN.get(beyond)
        if whole is not None and torn is not None:
            found.append((1.0 - (fraction - (1.0 - torn) * whole) / torn) / (1.0 - whole))
    how = "grids that nothing paces: what merges of rows off a line over what does of rows on lines, median"
    return Fitted.median("xbar.misaligned_coalesce_fraction", found, how)


def includes() -> dict[str, str]:
    """The kernel, and what kernels of several SMs share."""
    return {**grid_include(), "walk.cuh": (kernel_folder("wave_sharing") / "kernel.cu").read_text(encoding="utf-8")}


def _group(configs: Any) -> Group:
    return Group(configs=configs, metrics=METRICS, rank=2, least_capability=(9, 0), num_sms=132, is_cold=True)


CASE = Case(
    name="pitch_sharing",
    question=__doc__,
    config_type=Config,
    groups={"wave": _group(wave), "several": _group(several), "few": _group(few)},
    launch=launch, check=check,
    values={
        "cycles_per_step": "SM cycles from a full stage to the next, mean of the CTAs, launches behind others alike",
        "slowest_cycles": "the same of the slowest CTA",
        "fastest_cycles": "the same of the fastest CTA",
        "asked_bytes": "bytes of all steps of all CTAs",
    },
    predict=predict, tiers={READ: 5}, fit=fit, derive=read_fraction, includes=includes,
)  # fmt: skip
