"""How long does a burst take, of all SMs that ask for tiles of A and of B at the same moment?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, Launch, Mbarrier, WarpRole, simulate
from gpusim.evidence.cases.case import (
    Case,
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
    operand_map,
    random_words,
    read_fraction,
    start_waits,
    sum_of_random_words,
)
from gpusim.machine.config import GpuSpec
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext

NUM_CTAS = 132
"""One an SM of the H200; where SMs have other numbers the launch gives itself up."""
NUM_THREADS = 96
KIB = 1024
SMEM_BYTES = 120 * KIB
"""So that two CTAs find no room on one SM."""
ROW_BYTES = 128
"""Of a box: 64 elements of 16 bits."""
PITCH_BYTES = 4096
NUM_COLUMNS = PITCH_BYTES // ROW_BYTES
NUM_ROWS = NUM_CTAS * 512
MOST_TOUCHED_BYTES = 18 << 20
"""Of tiles that stay in L2: well inside of what each side of it holds."""
MOST_STEPS = 8
NUM_TIMED = 24
FLAG_WORDS = 32 + 32 + 64 + 256

SIZES = ((64, 64), (128, 128), (128, 256), (256, 256))
"""Rows of A's tile and of B's: 16 to 64 KiB together."""
PATTERNS = ("own", "wide_32", "wide_12", "tall_4", "tall_8", "tall_16")
"""``wide_w``: CTAs go along rows of w tiles of D; ``tall_h``: down columns of h. A row shares A's tile, a column B's."""
SOURCES = ("l2", "a_l2", "memory")
"""Where tiles lie; ``a_l2``: A's in L2, B's in memory."""
READ, MEMORY = "lts__t_sectors_srcunit_tex_op_read.sum", "dram__bytes_read.sum"
METRICS = (READ, "lts__t_sectors_srcunit_tex_lookup_miss.sum", "lts__t_sectors_srcunit_ltcfabric.sum", MEMORY)


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    pattern: str
    source: str
    a_rows: int
    b_rows: int
    is_met: bool


def bursts() -> list[Config]:
    """Every pattern from every source in every size, met and not."""
    return [
        Config(kernel="burst", pattern=pattern, source=source, a_rows=a, b_rows=b, is_met=is_met)
        for is_met in (True, False) for pattern in PATTERNS for source in SOURCES for a, b in SIZES
    ]  # fmt: skip


def rows_of(config: Config) -> tuple[int, int]:
    """Of A's tile and of B's."""
    return config.a_rows, config.b_rows


def panels(config: Config) -> list[tuple[int, int]]:
    """(panel of A, panel of B) of each CTA."""
    kind, _, size = config.pattern.partition("_")
    if kind == "own":
        return [(cta, cta) for cta in range(NUM_CTAS)]
    pairs = [divmod(cta, int(size)) for cta in range(NUM_CTAS)]
    return pairs if kind == "wide" else [(across, line) for line, across in pairs]


def num_panels(config: Config) -> tuple[int, int]:
    """Of A and of B."""
    found = panels(config)
    return max(a for a, _ in found) + 1, max(b for _, b in found) + 1


def num_steps(config: Config) -> tuple[int, int]:
    """Steps of A and of B before a walk begins again: few where tiles stay in L2, all columns where they do not."""
    source = config.source
    if source == "memory":
        return NUM_COLUMNS, NUM_COLUMNS
    touched = [num * rows * ROW_BYTES for num, rows in zip(num_panels(config), rows_of(config), strict=True)]
    few = max(2, min(MOST_STEPS, MOST_TOUCHED_BYTES // (sum(touched) if source == "l2" else touched[0])))
    return few, few if source == "l2" else NUM_COLUMNS


def num_ahead(config: Config) -> int:
    """Steps before the clock counts: all of what is to be in L2; one that pays for code and tensor maps."""
    return 1 if config.source == "memory" else num_steps(config)[0]


# ---------------------------------------------------------------------------------------------- launch and check
@cache
def tensor() -> NDArray[np.uint32]:
    """264 MiB of words that look random; copied to the GPU once."""
    return random_words(NUM_ROWS * PITCH_BYTES).reshape(NUM_ROWS, -1)


def corners(config: Config) -> list[tuple[int, int]]:
    """(first row of A's panel, of B's) of each CTA; B's lie behind A's."""
    (a_rows, b_rows), (num_a, _) = rows_of(config), num_panels(config)
    return [(a * a_rows, num_a * a_rows + b * b_rows) for a, b in panels(config)]


def launch(config: Config) -> KernelLaunch:
    """The same launch under the profiler as without."""
    (a_rows, b_rows), (a_steps, b_steps) = rows_of(config), num_steps(config)
    plan = [
        NUM_CTAS, a_rows, b_rows, a_steps, b_steps, num_ahead(config), NUM_TIMED, int(config.is_met), config.source != "l2",
    ]  # fmt: skip
    return KernelLaunch(
        kernel="burst",
        arguments=(
            by_value(np.array(plan, dtype="<u4")), Output("places", np.array(corners(config), dtype="<u4")),
            Output("flags", np.zeros(FLAG_WORDS, dtype="<u4")),
            *(MappedTensor(tensor(), operand_map(PITCH_BYTES, NUM_ROWS, rows)) for rows in (a_rows, b_rows)),
            Output("times", np.full((NUM_CTAS, NUM_TIMED, 2), -1, dtype="<i4")),
            Output("told", np.full((NUM_CTAS, 4), -1, dtype="<i8")),
        ),
        grid=(NUM_CTAS, 1, 1), block=(NUM_THREADS, 1, 1), smem_bytes=SMEM_BYTES,
    )  # fmt: skip


def sum_of_last_tiles(config: Config, corner: tuple[int, int]) -> int:
    """The sum, modulo 2^32, of the words of the tiles that a CTA loads last."""
    last, total = num_ahead(config) + NUM_TIMED - 1, 0
    for first, num_rows, steps in zip(corner, rows_of(config), num_steps(config), strict=True):
        rows = np.arange(first, first + num_rows)
        total += sum_of_random_words(rows * (PITCH_BYTES // 4) + last % steps * (ROW_BYTES // 4), ROW_BYTES // 4)
    return total % 2**32


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Quantiles over all steps of all CTAs."""
    wrong_if(outputs["flags"][1], "a wait was given up: an SM has no CTA or two, or a tile never came")
    told, sums = outputs["told"], {}
    wrong_if(len(set(told[:, 0].tolist())) != NUM_CTAS, "two CTAs were on one SM")
    for cta, corner in enumerate(corners(config)):
        if corner not in sums:
            sums[corner] = sum_of_last_tiles(config, corner)
        if told[cta, 1] != sums[corner]:
            raise WrongAnswer(f"the last tiles of CTA {cta} have words that sum up to {told[cta, 1]}, not {sums[corner]}")
    times = outputs["times"].astype(np.float64)
    wrong_if((times <= 0).any() or (told[:, 2] <= 0).any(), "a tile was there in no time, or not at all")
    values = quantiles(times)
    if not config.is_met:
        values["step_cycles"] = float(told[:, 2].mean()) / NUM_TIMED
    asked = (num_ahead(config) + NUM_TIMED) * sum(rows_of(config)) * ROW_BYTES * NUM_CTAS
    return {**values, "asked_bytes": float(asked)}


def quantiles(times: NDArray[np.float64]) -> dict[str, float]:
    """Of ``times``, float64[num_ctas, num_steps, 2]: of both tiles together, and of each."""
    both = times.max(axis=2)
    found = {f"burst_p{round(100 * share)}_cycles": float(np.quantile(both, share)) for share in (0.1, 0.5, 0.9)}
    found["last_sm_cycles"] = float(np.median(both.max(axis=0)))
    found["a_p50_cycles"], found["b_p50_cycles"] = (float(np.median(times[:, :, idx])) for idx in (0, 1))
    return found


# ---------------------------------------------------------------------------------------------- the simulator's answer

TWIN_TIMED = 8
ISSUE_CYCLES, BETWEEN_CYCLES, NEXT_CYCLES = 224.2, 150.4, 262.6
"""What the kernel's loop takes: from its note of the clock to A's copy (a division among it), from there to B's (another),
and from the last wait to the next note."""


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same bursts, fewer of them, simulated; nothing for a GPU whose SMs have other numbers."""
    if gpu.num_sms != NUM_CTAS or gpu.mbarrier is None:
        return {}
    return _twin(config, gpu)


def _twin(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Where they meet, one burst: twice, so that in the second run all wait for the last that is ready in the first."""
    if not config.is_met:
        times, counted, counted_steps = _walk(config, gpu, num_timed=TWIN_TIMED, waits=[0.0] * NUM_CTAS)
    else:
        times, _, _ = _walk(config, gpu, num_timed=1, waits=[0.0] * NUM_CTAS)
        waits = (times[:, 0, 0].max() - times[:, 0, 0]).tolist()
        times, counted, counted_steps = _walk(config, gpu, num_timed=1, waits=waits)
    values = quantiles(times[:, :, 1:] - times[:, :, :1])
    if not config.is_met:
        values["step_cycles"] = float(np.diff(times[:, :, 0], axis=1).mean())
    return {**values, READ: counted * (num_ahead(config) + NUM_TIMED) / counted_steps}


def _walk(config: Config, gpu: GpuSpec, *, num_timed: int, waits: list[float]) -> tuple[NDArray[np.float64], float, int]:
    """(cycles at which each burst of each CTA begins, has A, has B: float64[num_ctas, num_timed, 3]; sectors read; steps).

    Each CTA waits so long before its first timed burst. Steps ahead of those run where something is to be in L2 beside what
    is not; where all is in L2 the launch finds it there.
    """
    (a_rows, b_rows), (a_steps, b_steps), found = rows_of(config), num_steps(config), panels(config)
    a_bytes, b_bytes, source = a_rows * ROW_BYTES, b_rows * ROW_BYTES, config.source
    ahead = num_ahead(config) if source == "a_l2" else 0
    count, starts = ahead + num_timed, start_waits(NUM_CTAS, gpu)
    issue, between, after = (code_of(cycles, gpu) for cycles in (ISSUE_CYCLES, BETWEEN_CYCLES, NEXT_CYCLES))
    mark = ops.Section.MAINLOOP

    def program(cta: RoleContext) -> Iterator[Any]:
        panel_a, panel_b = found[cta.cta_idx]
        yield code_of(starts[cta.cta_idx], gpu)
        for step in range(count):
            if step == ahead:
                yield code_of(waits[cta.cta_idx], gpu)
            yield ops.RangeStart(mark)
            yield issue
            yield ops.MbarrierArriveExpectTx("a", 0, a_bytes)
            yield ops.MbarrierArriveExpectTx("b", 0, b_bytes)
            yield ops.TmaLoad("A", (panel_a, step % a_steps), a_bytes, a_bytes, a_rows, "a", 0, "a")
            yield between
            yield ops.TmaLoad("B", (panel_b, step % b_steps), b_bytes, b_bytes, b_rows, "b", 0, "b")
            yield ops.MbarrierWait("a", 0, step & 1)
            yield ops.RangeEnd()
            yield ops.RangeStart(mark)
            yield ops.MbarrierWait("b", 0, step & 1)
            yield ops.RangeEnd()
            yield after

    launched = Launch(
        kernel="tile_bursts", num_ctas=NUM_CTAS, num_tiles=NUM_CTAS,
        roles=(WarpRole(name="loader", num_warps=1, program=program),),
        buffers=(
            Buffer(name="a", stage_bytes=a_bytes), Buffer(name="b", stage_bytes=b_bytes),
            Buffer(name="rest", stage_bytes=SMEM_BYTES - a_bytes - b_bytes),
        ),
        mbarriers=tuple(Mbarrier(name=name, num_arrivals=1) for name in ("a", "b")),
    )  # fmt: skip
    l2 = "warm" if source == "l2" else "cold"
    result = simulate(launched, gpu, clock="max", l2=l2, recorded_sms=range(NUM_CTAS))
    times = np.array([
        [
            (of_a.start_cycle, of_a.end_cycle, of_b.end_cycle)
            for of_a, of_b in zip(role.sections[::2], role.sections[1::2], strict=True)
        ][ahead:]
        for role in sorted(result.timeline.roles, key=lambda role: role.cta_idx)
    ])  # fmt: skip
    return times, result.counters[READ], count


def fitted_constants(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[FittedConstant]:
    """What the loop's code takes, of the smallest tiles out of L2, which SMs share and so hardly wait for one another."""
    least = [
        row for row in rows if row["source"] == "l2" and row["a_rows"] == "64" and row["pattern"] in ("tall_4", "tall_8")
    ]  # fmt: skip
    met = [(row, _twin(Config.of(row), gpu)) for row in least if row["is_met"] == "1"]
    apart = [row for row in least if row["is_met"] == "0"]
    if not (met and apart):
        return []
    measured_a, twin_a = (np.array([float(of[0 if side else 1]["a_p50_cycles"]) for of in met]) for side in (1, 0))
    measured_b, twin_b = (np.array([float(of[0 if side else 1]["b_p50_cycles"]) for of in met]) for side in (1, 0))
    issue = ISSUE_CYCLES + float(np.median(measured_a - twin_a))
    between = BETWEEN_CYCLES + float(np.median(measured_b - measured_a - (twin_b - twin_a)))
    after = float(np.median([float(row["step_cycles"]) - float(row["burst_p50_cycles"]) for row in apart]))
    of_what = "tiles of 64 rows out of L2 that CTAs share down columns of 4 and 8"
    return [
        FittedConstant(name="ISSUE_CYCLES", value=issue, how=f"{of_what}, met: until A is there, beyond the twin's, median"),
        FittedConstant(name="BETWEEN_CYCLES", value=between, how=f"{of_what}, met: from A to B, beyond the twin's, median"),
        FittedConstant(name="NEXT_CYCLES", value=after, how=f"{of_what}, not met: steps less bursts, median"),
    ]


CASE = Case(
    name="tile_bursts",
    question=__doc__,
    config_type=Config,
    groups={"bursts": Group(configs=bursts, metrics=METRICS, rank=2, least_capability=(9, 0), num_sms=132)},
    launch=launch, check=check,
    values={
        **{
            f"burst_p{pct}_cycles": f"SM cycles from before a CTA's copies until both tiles are there, P{pct} of all steps"
            for pct in (10, 50, 90)
        },
        "last_sm_cycles": "the same of the last CTA of a step, median of the steps",
        "a_p50_cycles": "SM cycles until A's tile is there, median",
        "b_p50_cycles": "SM cycles until B's tile is there, median",
        "step_cycles": "SM cycles from step to step, mean of the CTAs; only where they do not meet",
        "asked_bytes": "bytes of all steps of all CTAs",
    },
    num_repeats=3, predict=predict, fitted_constants=fitted_constants,
    tiers={"burst_p50_cycles": 2, "step_cycles": 4, READ: 5}, derive=read_fraction, includes=grid_include,
)  # fmt: skip
