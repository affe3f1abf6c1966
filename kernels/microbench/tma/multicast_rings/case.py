"""How fast do rings of stages go round that clusters fill, out of L2 or memory, a part by multicast, beside paced work?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim import Buffer, Launch, Mbarrier, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Fitted, Group, Outputs
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import KernelLaunch, MappedTensor, Output, by_value
from gpusim.evidence.cases.microbenchmark import chained_code
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted
from gpusim.evidence.cases.tile_walk import dealt_as_clusters, random_words
from gpusim.machine.config import GpuSpec
from gpusim.simulate.run import L2State
from gpusim.workload import ops
from gpusim.workload.atoms.mma import wgmma
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext
from gpusim.workload.tma.boxes import TensorMap

NUM_CTAS = {1: 132, 2: 132, 4: 120}
"""By the size of clusters: as many as an H200 holds at once."""
NUM_SMS = 132
ROW_BYTES = 128
MOST_TOUCHED_BYTES = 16 << 20
MOST_STEPS = 32
NUM_LEAD, NUM_TIMED, NUM_BEHIND = 80, 160, 16
MEMORY_LEAD, MEMORY_BEHIND, LEAST_MEMORY_TIMED = 12, 4, 48
"""Of walks through memory."""
LEAST_MEMORY_BYTES, MOST_MEMORY_BYTES = 256 << 20, 352 << 20
"""Which these walk once: five times what is in L2, and more."""
MOST_SMEM_BYTES = 224 * 1024
LEAST_SMEM_BYTES = 120 * 1024
"""So that two CTAs find no room on one SM."""
BAND_CTAS = 16
"""CTAs that lie across a band of tiles, as of a GEMM: each has its rows of A, all the same B."""

READ = "lts__t_sectors_srcunit_tex_op_read.sum"
METRICS = (READ, "lts__t_requests_srcunit_tex_op_read.sum", "l1tex__m_xbar2l1tex_read_bytes.sum")


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config; ``size`` is that of clusters."""

    size: int
    pattern: str
    a_rows: int
    b_rows: int
    stages: int
    math_cycles: int

    @property
    def kernel(self) -> str:
        """The entry point."""
        return f"walk_{self.size}"

    @property
    def stage_bytes(self) -> int:
        """A's rows and B's."""
        return (self.a_rows + self.b_rows) * ROW_BYTES

    @property
    def is_cold(self) -> bool:
        """Whether rows of B come out of memory."""
        return self.pattern == "memory"


def _configs(
    pattern: str, sizes: tuple[int, ...], shapes: tuple[tuple[int, int], ...], math: tuple[int, ...],
    num_stages: tuple[int, ...] = (2, 4),
) -> list[Row]:
    found = [
        Row(size, pattern, *shape, stages, cycles) for size in sizes for shape in shapes for stages in num_stages
        for cycles in math
    ]  # fmt: skip
    return [config for config in found if config.stages * config.stage_bytes <= MOST_SMEM_BYTES]


def own() -> list[Row]:
    """Every CTA its own rows of A, every cluster its own of B."""
    return _configs("own", (1, 2, 4), ((0, 128), (0, 256), (64, 128), (64, 256), (128, 128)), (0, 512))


def bands() -> list[Row]:
    """Tiles as of a GEMM's wave: 16 CTAs across a band with the same B, and their rows of A along it."""
    return _configs("bands", (1, 2), ((64, 128), (64, 256), (128, 128)), (0, 256, 384, 512, 640))


def memory() -> list[Row]:
    """Every cluster its own rows of B out of memory, beside rows of A that all clusters share."""
    return _configs("memory", (1, 2, 4), ((0, 128), (0, 256), (128, 128), (128, 256)), (0, 512), (2, 3, 4, 6))


def tiles(config: Row) -> list[tuple[int, int]]:
    """Which tile of A and which of B each CTA walks.

    >>> own, bands, memory = (tiles(Row(2, pattern, 0, 128, 2, 0)) for pattern in ("own", "bands", "memory"))
    >>> own[:3], bands[15:18], memory[:3]
    ([(0, 0), (1, 0), (2, 1)], [(15, 0), (0, 1), (1, 1)], [(0, 0), (1, 0), (0, 1)])
    """
    size = config.size
    a_every, b_each = {"memory": (size, size), "own": (NUM_CTAS[size], size)}.get(config.pattern, (BAND_CTAS, BAND_CTAS))
    return [(cta % a_every, cta // b_each) for cta in range(NUM_CTAS[size])]


def num_tiles(config: Row) -> tuple[int, int]:
    """Of A and of B."""
    found = tiles(config)
    return max(a for a, _ in found) + 1, max(b for _, b in found) + 1


def timing(config: Row) -> tuple[int, int, int]:
    """Steps of a CTA before those that are timed, these, and those behind; through memory so few that none comes again."""
    if not config.is_cold:
        return NUM_LEAD, NUM_TIMED, NUM_BEHIND
    step_bytes = num_tiles(config)[1] * config.b_rows * ROW_BYTES
    timed = max(LEAST_MEMORY_TIMED, -(-LEAST_MEMORY_BYTES // step_bytes))
    return MEMORY_LEAD, timed, MEMORY_BEHIND


def num_steps(config: Row) -> int:
    """Steps before a walk begins again: a power of two, so few that all tiles fit in L2; of memory, none does."""
    if config.is_cold:
        return num_all_steps(config)
    (num_a, num_b), steps = num_tiles(config), MOST_STEPS
    while steps > 2 and (num_a * config.a_rows + num_b * config.b_rows) * ROW_BYTES * steps > MOST_TOUCHED_BYTES:
        steps //= 2
    return steps


def first_rows(config: Row, cta: int, step: int) -> tuple[int, int]:
    """Of A and B in the tensor: those of A come first."""
    (num_a, _), a_rows, b_rows, steps = num_tiles(config), config.a_rows, config.b_rows, num_steps(config)
    a_tile, b_tile = tiles(config)[cta]
    return (a_tile * steps + step % steps) * a_rows, num_a * steps * a_rows + (b_tile * steps + step % steps) * b_rows


def num_all_steps(config: Row) -> int:
    """Of a CTA."""
    return sum(timing(config))


def tensor_bytes(config: Row) -> int:
    """Of the tensor that has both: one size for all that lie in L2, another for all that do not."""
    return MOST_MEMORY_BYTES if config.is_cold else 2 * MOST_TOUCHED_BYTES


def tensor_map(num_bytes: int, box_rows: int) -> TensorMap:
    """Of all rows, one behind the other."""
    return TensorMap(
        dtype=BF16, global_dim=(ROW_BYTES // 2, num_bytes // ROW_BYTES), global_strides_bytes=(ROW_BYTES,),
        box_dim=(ROW_BYTES // 2, box_rows), swizzle="128B", l2_promotion="128B",
    )  # fmt: skip


def launch(config: Row) -> KernelLaunch:
    """The same launch under the profiler as without."""
    size, a_rows, b_rows, size_bytes = config.size, config.a_rows, config.b_rows, tensor_bytes(config)
    plan = [
        config.stages, a_rows, b_rows, num_steps(config), *timing(config), config.math_cycles,
        num_tiles(config)[0] * num_steps(config) * a_rows,
    ]  # fmt: skip
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.array(plan, dtype="<u4")), Output("tiles", np.array(tiles(config), dtype="<u4")),
            MappedTensor(random_words(size_bytes), tensor_map(size_bytes, max(a_rows, 64))),
            MappedTensor(random_words(size_bytes), tensor_map(size_bytes, b_rows // size)),
            Output("told", np.full((NUM_CTAS[size], 4), -1, dtype="<i8")),
        ),
        grid=(NUM_CTAS[size], 1, 1), block=(64, 1, 1), smem_bytes=max(LEAST_SMEM_BYTES, config.stages * config.stage_bytes),
    )  # fmt: skip


def sum_of_last_stages(config: Row, cta: int) -> int:
    """The sum, modulo 2^32, of the words of what a CTA's ring holds in the end."""
    last, total, words = num_all_steps(config), 0, ROW_BYTES // 4
    for number in range(last - config.stages, last):
        for first, rows in zip(first_rows(config, cta, number), (config.a_rows, config.b_rows), strict=True):
            total += int(random_words(tensor_bytes(config))[first * words : (first + rows) * words].astype(np.uint64).sum())
    return total % 2**32


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Cycles of a stage.

    Raises:
        WrongAnswer: a wait that was given up, stages of other words, two CTAs on one SM.
    """
    told, size, of_cta = outputs["told"], config.size, tiles(config)
    wrong_if((told[:, 3] != 1).any(), "a wait was given up: a stage never came, or was never freed")
    sums: dict[tuple[int, int], int] = {}
    for cta, checksum in enumerate(told[:, 1].tolist()):
        if of_cta[cta] not in sums:
            sums[of_cta[cta]] = sum_of_last_stages(config, cta)
        wrong_if(checksum != sums[of_cta[cta]], f"the stages of CTA {cta} have words that sum up to {checksum}")
    sms, cycles = told[:, 0].tolist(), told[:, 2] / timing(config)[1]
    wrong_if(len(set(sms)) < len(sms) or (cycles <= 0).any(), "two CTAs were on one SM, or a clock stood still")
    each = (config.a_rows + config.b_rows / size) * ROW_BYTES
    return {
        "cycles_per_stage": float(cycles.mean()), "slowest_cycles": float(cycles.max()),
        "fastest_cycles": float(cycles.min()), "asked_bytes": NUM_CTAS[size] * num_all_steps(config) * each,
    }  # fmt: skip


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """Of what was asked for, a multicast once, what L2 was read for."""
    if not row.get(READ) or not row.get("asked_bytes"):
        return {}
    return {"read_fraction": float(row[READ]) * 32 / float(row["asked_bytes"])}


TWIN_LEAD, TWIN_TIMED = 32, 64
WGMMA_CYCLES_PER_COLUMN = 0.5
"""Of wgmma 64 x n x 16 of bf16, by which the twin paces itself."""
ISSUE_CYCLES = {1: 121.8, 2: 149.7, 4: 149.7}
"""From a wait that has succeeded until the producer has asked for both tiles, by the size of clusters."""
NEXT_CYCLES = 144.7
"""From there to its next wait."""
KEEP_CYCLES, GIVE_CYCLES, REST_CYCLES = 42.5, {1: 108.2, 2: 113.2, 4: 113.2}, 90.1
"""Of a consumer with paced work: from its wait to the clock; from the last clock until it gives a stage back; from there."""
FREE_CYCLES, LEAVE_CYCLES = {1: 160.2, 2: 165.2, 4: 165.2}, 67.5
"""Of one without: from its wait until it gives the stage back; from there. Source of all: SASS of sm_90a,
``gpusim.evidence.toolchain.issue_latency``."""


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """The same rings for fewer steps; nothing for a GPU of other SMs."""
    if gpu.num_sms != NUM_SMS or gpu.mbarrier is None:
        return {}
    size, stages, steps, a_rows, b_rows = config.size, config.stages, num_steps(config), config.a_rows, config.b_rows
    math, count = config.math_cycles, TWIN_LEAD + TWIN_TIMED + 1
    of_cta = tiles(config) if size > 1 else [tiles(config)[cta] for cta in dealt_as_clusters(gpu.name)]
    issue, behind, keep, give, rest, give_at_once, leave = (
        chained_code(cycles, gpu)
        for cycles in (
            ISSUE_CYCLES[size], NEXT_CYCLES, KEEP_CYCLES, GIVE_CYCLES[size], REST_CYCLES, FREE_CYCLES[size], LEAVE_CYCLES,
        )
    )  # fmt: skip
    a_bytes, part_bytes, whole = a_rows * ROW_BYTES, b_rows * ROW_BYTES // size, config.stage_bytes
    columns = round(math / WGMMA_CYCLES_PER_COLUMN) // (8 if math > 512 else 4)
    paced = [
        ops.Wgmma(wgmma(columns, BF16), 8 if math > 512 else 4, (("ring", stage),)) for stage in range(stages)
    ] if math else []  # fmt: skip

    def produce(cta: RoleContext) -> Iterator[Any]:
        rank = cta.cta_idx % size
        a_tile, b_tile = of_cta[cta.cta_idx]
        for step in range(count):
            stage = step % stages
            yield ops.MbarrierWait("empty", stage, step // stages & 1 ^ 1)
            yield issue
            yield ops.MbarrierArriveExpectTx("full", stage, whole)
            if a_bytes:
                yield ops.TmaLoad("A", (a_tile, step % steps), a_bytes, a_bytes, a_rows, "ring", stage, "full")
            yield ops.TmaLoad(
                "B", (b_tile, step % steps * size + rank), part_bytes, part_bytes, b_rows // size, "ring", stage, "full",
                multicast=tuple(range(size)) if size > 1 else (),
            )  # fmt: skip
            yield behind

    def free(stage: int) -> Iterator[Any]:
        for rank in range(size):
            yield ops.MbarrierArrive("empty", stage, cta_rank=rank if size > 1 else None)

    def consume(_cta: RoleContext) -> Iterator[Any]:
        for step in range(count):
            stage = step % stages
            yield ops.MbarrierWait("full", stage, step // stages & 1)
            if step == TWIN_LEAD:
                yield ops.RangeStart(ops.Section.MAINLOOP)
            if step == TWIN_LEAD + TWIN_TIMED:
                yield ops.RangeEnd()
            if not math:
                yield give_at_once
                yield from free(stage)
                yield leave
                continue
            yield keep
            yield paced[stage]
            yield ops.WgmmaCommitGroup()
            yield ops.WgmmaWaitGroup(1)
            if step:
                yield give
                yield from free((step - 1) % stages)
            yield rest
        yield ops.WgmmaWaitGroup(0)

    launched = Launch(
        kernel="multicast_rings", num_ctas=NUM_CTAS[size], num_tiles=NUM_CTAS[size], cluster_size=size,
        roles=(
            WarpRole(name="producer", num_warps=1, program=produce), WarpRole(name="consumer", num_warps=4, program=consume),
        ),
        buffers=(
            Buffer(name="ring", stage_bytes=whole, num_stages=stages),
            Buffer(name="rest", stage_bytes=max(0, LEAST_SMEM_BYTES - whole * stages)),
        ),
        mbarriers=(
            Mbarrier(name="full", num_arrivals=1, num_stages=stages),
            Mbarrier(name="empty", num_arrivals=size, num_stages=stages),
        ),
        features=frozenset({"tma", "mbarrier", "cluster"} if size > 1 else {"tma", "mbarrier"}),
    )  # fmt: skip
    l2: L2State = "cold" if config.is_cold else "warm"
    result = simulate(launched, gpu, clock="max", l2=l2, recorded_sms=range(NUM_SMS))
    spans = [(span.end_cycle - span.start_cycle) / TWIN_TIMED for role in result.timeline.roles for span in role.sections]
    return {"cycles_per_stage": float(np.mean(spans)), READ: result.counters[READ] * num_all_steps(config) / count}


LEAST_READ_BYTES = 16 * 1024
"""Of a stage and SM, a multicast counted once among its receivers: of less, latency has a part in the rate."""


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What slices deliver of multicasts, of what they deliver of other boxes: pairs of CTAs, where nothing else binds."""
    full = [row for row in rows if row["group"] == "own" and row["stages"] == "4" and row["math_cycles"] == "0"]
    alone = [Row.of(row).stage_bytes / float(row["cycles_per_stage"]) for row in full if row["size"] == "1"]
    rate, found = float(np.median(alone or [np.nan])), []
    for row in full if alone else []:
        config = Row.of(row)
        own_bytes, shared_bytes = config.a_rows * ROW_BYTES, config.b_rows * ROW_BYTES / 2
        if config.size == 2 and own_bytes + shared_bytes >= LEAST_READ_BYTES:
            found.append(shared_bytes / (float(row["cycles_per_stage"]) * rate - own_bytes))
    how = "rings of four stages of pairs of CTAs: what multicasts leave of the rate of rings without, median"
    return fitted("xbar.multicast_read_fraction", [min(1.0, float(np.median(found)))] if found else [], how)


CASE = Case(
    name="multicast_rings",
    question=__doc__,
    config_type=Row, launch=launch, check=check, predict=predict, fit=fit, derive=derive,
    groups={
        name: Group(configs=configs, metrics=METRICS, rank=3, least_capability=(9, 0), num_sms=132, is_cold=name == "memory")
        for name, configs in (("own", own), ("bands", bands), ("memory", memory))
    },
    values={
        "cycles_per_stage": "SM cycles from a full stage to the next, mean of the SMs",
        "slowest_cycles": "the same of the slowest SM",
        "fastest_cycles": "the same of the fastest SM",
        "asked_bytes": "bytes of all steps of all CTAs, a multicast once",
    },
    tiers={"cycles_per_stage": 4, READ: 5},
)  # fmt: skip
