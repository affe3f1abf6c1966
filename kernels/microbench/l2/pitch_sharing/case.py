"""How much of tiles that CTAs share does L2 read, and how fast, where rows do not begin on a line, or not on a sector?"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, Launch, Mbarrier, WarpRole, simulate
from gpusim.evidence.cases.case import (
    Case,
    Config,
    Fitted,
    Group,
    KernelLaunch,
    MappedTensor,
    Output,
    Outputs,
    Repeated,
    Scratch,
    WrongAnswer,
    by_value,
    kernel_folder,
    load_case,
)
from gpusim.evidence.cases.tile_walk import grid_include
from gpusim.machine.config import GpuSpec
from gpusim.workload import ops
from gpusim.workload.dtypes import BF16
from gpusim.workload.gmem.line_fetches import Fetches, row_fetches
from gpusim.workload.launch import RoleContext
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
DEFAULTS = {
    "m_tiles": "11", "n_tiles": "12", "raster_group": "1", "a_rows": "128", "b_rows": "128", "stages": "4",
    "ctas_per_sm": "1", "steps": "128", "wrap": "16", "math_cycles": "0", "beyond_bytes": "0",
}  # fmt: skip
COLUMNS = tuple(DEFAULTS)


def config_of(**columns: object) -> Config:
    """A config as text; columns that are not given have their default."""
    unknown = set(columns) - set(COLUMNS)
    assert not unknown, unknown
    return {"kernel": "walk", **DEFAULTS, **{name: str(value) for name, value in columns.items()}}


def wave(seed: int) -> list[Config]:
    """One wave, an SM a CTA: square and tall, out of memory and out of L2, with math and without."""
    del seed  # a sweep, the same for every seed
    return [
        config_of(m_tiles=m, n_tiles=n, wrap=wrap, math_cycles=math, beyond_bytes=beyond)
        for m, n in ((11, 12), (33, 4)) for wrap in (16, 128) for math in (0, 512) for beyond in BEYOND
    ]  # fmt: skip


def several(seed: int) -> list[Config]:
    """Small tiles of four CTAs an SM, and wide ones in three waves."""
    del seed  # a sweep, the same for every seed
    kinds: tuple[dict[str, int], ...] = (
        {"m_tiles": 24, "n_tiles": 33, "a_rows": 64, "b_rows": 64, "stages": 3, "ctas_per_sm": 4, "steps": 48, "wrap": 48},
        {"m_tiles": 33, "n_tiles": 12, "a_rows": 64, "b_rows": 256, "stages": 4, "steps": 32, "wrap": 32},
    )
    return [
        config_of(**kind, math_cycles=math, beyond_bytes=beyond)
        for kind in kinds for math in (0, 512) for beyond in BEYOND
    ]  # fmt: skip


def few(seed: int) -> list[Config]:
    """Six CTAs out of memory: what a step takes that nobody else holds up."""
    del seed  # a sweep, the same for every seed
    return [
        config_of(m_tiles=2, n_tiles=3, wrap=128, stages=stages, beyond_bytes=beyond)
        for stages in (1, 2, 4) for beyond in BEYOND
    ]  # fmt: skip


def pitch_bytes(config: Config) -> int:
    """From row to row of A or B."""
    return PITCHES[int(config["wrap"])] + int(config["beyond_bytes"])


def num_bytes(config: Config, operand: str) -> int:
    """Of A or B."""
    return int(waves.num_rows(config, operand)) * pitch_bytes(config)


def tensor_map(config: Config, operand: str) -> TensorMap:
    """The map of an operand, as a GEMM has it."""
    pitch = pitch_bytes(config)
    return TensorMap(
        dtype=BF16, global_dim=(pitch // 2, waves.num_rows(config, operand)), global_strides_bytes=(pitch,),
        box_dim=(ROW_BYTES // 2, int(config[f"{operand}_rows"])), swizzle="128B", l2_promotion="128B",
    )  # fmt: skip


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """The same launch under the profiler as without."""
    del is_counted
    names = ("m_tiles", "n_tiles", "raster_group", "a_rows", "b_rows", "stages", "steps", "wrap", "math_cycles")
    plan = [*(int(config[name]) for name in names), 0, 0, 0]
    operands = (
        MappedTensor(Repeated(waves.pattern(), num_bytes(config, name)), tensor_map(config, name)) for name in "ab"
    )
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
    return max(LEAST_SMEM_BYTES[int(config["ctas_per_sm"])], int(waves.num_smem_bytes(config)))


def sum_of_last_stages(config: Config, operand: str, panel: int) -> int:
    """The sum, modulo 2^32, of the words of an operand that a ring holds in the end."""
    rows, steps, total = int(config[f"{operand}_rows"]), int(config["steps"]), 0
    starts = np.arange(panel * rows, (panel + 1) * rows) * (pitch_bytes(config) // 4)
    for step in range(steps - int(config["stages"]), steps):
        first = starts + step % int(config["wrap"]) * (ROW_BYTES // 4)
        words = (first[:, None] + np.arange(ROW_BYTES // 4)) % waves.PATTERN_WORDS
        total += int(waves.pattern()[words].astype(np.uint64).sum())
    return total % 2**32


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of a step.

    Raises:
        WrongAnswer: a wait that was given up, stages of other words, a clock that stood still.
    """
    count = waves.num_ctas(config)
    told: NDArray[np.int64] = outputs["told"][:count]
    if (told[:, 7] != 1).any():
        raise WrongAnswer("a wait was given up: a stage never came")
    tiles = [waves.tile_of(config, cta, 0) for cta in range(count)]
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
    return {
        "cycles_per_step": float(cycles.mean()), "slowest_cycles": float(cycles.max()),
        "fastest_cycles": float(cycles.min()),
        "asked_bytes": float(count * int(config["steps"]) * waves.stage_bytes(config)),
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------- the simulator's answer


def fetched(config: Config, operand: str) -> Fetches | None:
    """What a box of an operand fetches; None where all rows begin on lines. Boxes of 128 rows and fewer are all alike."""
    if not pitch_bytes(config) % LINE_BYTES:
        return None
    return row_fetches(np.arange(int(config[f"{operand}_rows"])) * pitch_bytes(config), ROW_BYTES)


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same grid, simulated in full; nothing for a GPU of other SMs."""
    if gpu.num_sms != waves.NUM_SMS or gpu.mbarrier is None:
        return {}
    steps, stages, wrap, count = (int(config[name]) for name in ("steps", "stages", "wrap", "math_cycles"))
    math_cycles, count = count, waves.num_ctas(config)
    of_operand = [(name.upper(), int(config[f"{name}_rows"]), fetched(config, name)) for name in "ab"]
    whole = waves.stage_bytes(config)
    before, after, consumed = (
        waves._code(cycles, gpu) for cycles in (waves.ISSUE_CYCLES, waves.NEXT_CYCLES, waves.CONSUMER_CYCLES)
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
                yield ops.TmaLoad(
                    name, (panel, step % wrap), size, size, rows, "ring", stage, "full", fetches=fetches
                )
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

    launched = Launch(
        kernel="pitch_sharing", num_ctas=count, num_tiles=count,
        roles=(
            WarpRole(name="producer", num_warps=1, program=produce), WarpRole(name="consumer", num_warps=1, program=consume),
        ),
        buffers=(
            Buffer(name="ring", stage_bytes=whole, num_stages=stages),
            Buffer(name="rest", stage_bytes=smem_bytes(config) - whole * stages),
        ),
        mbarriers=tuple(Mbarrier(name=name, num_arrivals=1, num_stages=stages) for name in ("full", "empty")),
    )  # fmt: skip
    result = simulate(launched, gpu, clock="max", l2="cold", recorded_sms=range(gpu.num_sms))
    spans = np.array([
        (span.end_cycle - span.start_cycle) / (steps - 1) for role in result.timeline.roles for span in role.sections
    ])  # fmt: skip
    return {"cycles_per_step": float(spans.mean()), **{name: result.counters[name] for name in (CYCLES, READ)}}


TORN = {"32": 0.75, "64": 0.5, "96": 0.75}
"""Of a box's rows those that lie on two lines, by what a pitch is beyond whole ones; the others begin on a line."""


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """``xbar.misaligned_coalesce_fraction``: merged share of rows that span two lines, over that of aligned rows."""
    shape = [name for name in COLUMNS if name != "beyond_bytes"]
    read = {
        (tuple(row[name] for name in shape), row["beyond_bytes"]): float(row[READ]) * 32 / float(row["asked_bytes"])
        for row in rows if row["group"] != "few" and row["math_cycles"] == "0" and row.get(READ)
    }  # fmt: skip
    found = []
    for (grid, beyond), fraction in read.items():
        whole, torn = read.get((grid, "0")), TORN.get(beyond)
        if whole is not None and torn is not None:
            found.append((1.0 - (fraction - (1.0 - torn) * whole) / torn) / (1.0 - whole))
    if not found:
        return []
    how = "grids that nothing paces: what merges of rows off a line over what does of rows on lines, median"
    return [Fitted(parameter="xbar.misaligned_coalesce_fraction", value=float(np.median(found)), how=how)]


def derive(row: Config) -> dict[str, float]:
    """Of what was asked for, what L2 was read for."""
    found: dict[str, float] = waves.derive(row)
    return found


def includes() -> dict[str, str]:
    """The kernel, and what kernels of several SMs share."""
    return {**grid_include(), "walk.cuh": (kernel_folder("wave_sharing") / "kernel.cu").read_text(encoding="utf-8")}


def _group(configs: Any) -> Group:
    return Group(configs=configs, metrics=METRICS, rank=2, least_capability=(9, 0), is_cold=True)


CASE = Case(
    name="pitch_sharing",
    question=__doc__,
    columns=COLUMNS,
    groups={"wave": _group(wave), "several": _group(several), "few": _group(few)},
    launch=launch,
    check=check,
    values={
        "cycles_per_step": "SM cycles from a full stage to the next, mean of the CTAs, launches behind others alike",
        "slowest_cycles": "the same of the slowest CTA",
        "fastest_cycles": "the same of the fastest CTA",
        "asked_bytes": "bytes of all steps of all CTAs",
    },
    predict=predict,
    tiers={READ: 5},
    fit=fit,
    derive=derive,
    includes=includes,
)  # fmt: skip
