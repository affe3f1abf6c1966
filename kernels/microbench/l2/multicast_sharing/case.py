"""What do clusters get out of L2 that multicast tiles which other clusters walk, too?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import simulate
from gpusim.evidence.cases.case import Case, Group, KernelLaunch, MappedTensor, Output, Outputs, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.tile_walk import operand_map, random_words, read_fraction, ring_launch, section_cycles
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.workload import ops
from gpusim.workload.launch import Buffer, RoleContext

NUM_CTAS = {1: 132, 2: 132, 4: 120}
"""By the size of clusters: as many as an H200 holds at once."""
NUM_SMS = 132
ROW_BYTES = 128
MOST_TOUCHED_BYTES = 16 << 20
MOST_STEPS = 32
NUM_LEAD, NUM_TIMED, NUM_BEHIND = 80, 160, 16
LEAST_SMEM_BYTES = 120 * 1024
"""So that two CTAs find no room on one SM."""

READ = "lts__t_sectors_srcunit_tex_op_read.sum"
METRICS = (READ, "lts__t_requests_srcunit_tex_op_read.sum", "l1tex__m_xbar2l1tex_read_bytes.sum")


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    size: int
    pattern: str
    rows: int
    stages: int


def walks() -> list[Config]:
    """Clusters of 1, 2 and 4; every cluster its own tiles, pairs of clusters so far apart by number, or all the same."""
    return [
        Config(kernel=f"walk_{size}", size=size, pattern=pattern, rows=rows, stages=stages)
        for size in NUM_CTAS for pattern in ("own", "all", "pairs_1", "pairs_2", "pairs_4", "pairs_8", "pairs_16")
        for rows, stages in ((128, 2), (128, 4), (256, 2), (256, 4))
    ]  # fmt: skip


def num_clusters(config: Config) -> int:
    """Of the grid."""
    size = config.size
    return NUM_CTAS[size] // size


def panels(config: Config) -> list[int]:
    """Which tiles each cluster walks.

    >>> panels(Config("walk_4", 4, "pairs_2", 128, 4))[:8]
    [0, 1, 0, 1, 2, 3, 2, 3]
    """
    num = num_clusters(config)
    if config.pattern == "own":
        return list(range(num))
    if config.pattern == "all":
        return [0] * num
    apart = int(config.pattern.removeprefix("pairs_"))
    return [idx // (2 * apart) * apart + idx % apart for idx in range(num)]


def num_steps(config: Config) -> int:
    """Steps before a walk begins again: a power of two, so few that all tiles fit in L2."""
    steps = MOST_STEPS
    while steps > 2 and (max(panels(config)) + 1) * config.rows * ROW_BYTES * steps > MOST_TOUCHED_BYTES:
        steps //= 2
    return steps


def num_all_steps() -> int:
    """Of a CTA."""
    return NUM_LEAD + NUM_TIMED + NUM_BEHIND


def tensor() -> NDArray[np.uint32]:
    """What all walk over."""
    return random_words(2 * MOST_TOUCHED_BYTES)


def launch(config: Config) -> KernelLaunch:
    """The same launch under the profiler as without."""
    size, rows, stages = config.size, config.rows, config.stages
    tensor_map = operand_map(ROW_BYTES, tensor().nbytes // ROW_BYTES, rows // size)
    plan = [stages, rows, num_steps(config), NUM_LEAD, NUM_TIMED, NUM_BEHIND]
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.array(plan, dtype="<u4")), Output("panels", np.array(panels(config), dtype="<u4")),
            MappedTensor(tensor(), tensor_map), Output("told", np.full((NUM_CTAS[size], 4), -1, dtype="<i8")),
        ),
        grid=(NUM_CTAS[size], 1, 1), block=(64, 1, 1), smem_bytes=max(LEAST_SMEM_BYTES, stages * rows * ROW_BYTES),
    )  # fmt: skip


def sum_of_last_stages(config: Config, panel: int) -> int:
    """The sum, modulo 2^32, of the words of what the rings hold in the end."""
    rows, steps, last, total = config.rows, num_steps(config), num_all_steps(), 0
    for number in range(last - config.stages, last):
        first = (panel * steps + number % steps) * rows * (ROW_BYTES // 4)
        total += int(tensor()[first : first + rows * (ROW_BYTES // 4)].astype(np.uint64).sum())
    return total % 2**32


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of a stage, and how many sharing clusters are of one GPC."""
    told, size, of_cluster = outputs["told"], config.size, panels(config)
    wrong_if((told[:, 3] != 1).any(), "a wait was given up: a stage never came, or was never freed")
    sums = {panel: sum_of_last_stages(config, panel) for panel in set(of_cluster)}
    for cta, checksum in enumerate(told[:, 1].tolist()):
        wrong_if(checksum != sums[of_cluster[cta // size]], f"the stages of CTA {cta} have words that sum up to {checksum}")
    sms, cycles = told[:, 0].tolist(), told[:, 2] / NUM_TIMED
    wrong_if(len(set(sms)) < len(sms) or (cycles <= 0).any(), "two CTAs were on one SM, or a clock stood still")
    gpc_of = load_gpu("h200_sxm").floorplan.gpc_of_sm
    gpcs = [gpc_of[sm] for sm in sms[::size]]
    pairs = [
        gpcs[one] == gpcs[other] for one, panel in enumerate(of_cluster) for other in range(one)
        if of_cluster[other] == panel
    ]  # fmt: skip
    return {
        "cycles_per_stage": float(cycles.mean()), "slowest_cycles": float(cycles.max()),
        "fastest_cycles": float(cycles.min()), "same_gpc_pct": 100.0 * float(np.mean(pairs)) if pairs else 0.0,
        "asked_bytes": float(num_clusters(config) * num_all_steps() * config.rows * ROW_BYTES),
    }  # fmt: skip


TWIN_LEAD, TWIN_TIMED = 24, 32


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same rings for fewer steps; nothing for a GPU of other SMs."""
    if gpu.num_sms != NUM_SMS or gpu.mbarrier is None:
        return {}
    size, rows, stages, steps = config.size, config.rows, config.stages, num_steps(config)
    of_cluster, whole, part = panels(config), rows * ROW_BYTES, rows // size
    count = TWIN_LEAD + TWIN_TIMED

    def produce(cta: RoleContext) -> Iterator[Any]:
        rank = cta.cta_idx % size
        for step in range(count):
            stage = step % stages
            yield ops.MbarrierWait("empty", stage, step // stages & 1 ^ 1)
            yield ops.MbarrierArriveExpectTx("full", stage, whole)
            tile = (of_cluster[cta.cta_idx // size], step % steps * size + rank)
            num_bytes = part * ROW_BYTES
            yield ops.TmaLoad(
                "A", tile, num_bytes, num_bytes, part, "ring", stage, "full",
                multicast=tuple(range(size)) if size > 1 else (),
            )  # fmt: skip

    def consume(cta: RoleContext) -> Iterator[Any]:
        for step in range(count):
            yield ops.MbarrierWait("full", step % stages, step // stages & 1)
            if step == TWIN_LEAD:
                yield ops.RangeStart(ops.Section.MAINLOOP)
            for rank in range(size):
                yield ops.MbarrierArrive("empty", step % stages, cta_rank=rank if size > 1 else None)
        yield ops.RangeEnd()

    ring = Buffer(name="ring", stage_bytes=whole, num_stages=stages)
    launched = ring_launch(
        "multicast_sharing", (produce, consume), ring, num_ctas=NUM_CTAS[size],
        least_smem_bytes=LEAST_SMEM_BYTES, cluster_size=size,
    )  # fmt: skip
    result = simulate(launched, gpu, clock="max", l2="warm", recorded_sms=range(NUM_SMS))
    spans = section_cycles(result) / TWIN_TIMED
    return {"cycles_per_stage": float(np.mean(spans)), READ: result.counters[READ] * num_all_steps() / count}


CASE = Case(
    name="multicast_sharing",
    question="What do clusters get out of L2 that multicast tiles which other clusters walk, too?",
    config_type=Config,
    groups={"walks": Group(configs=walks, metrics=METRICS, rank=3, least_capability=(9, 0), num_sms=132)},
    launch=launch, check=check,
    values={
        "cycles_per_stage": "SM cycles from a full stage to the next, mean of the SMs",
        "slowest_cycles": "the same of the slowest SM",
        "fastest_cycles": "the same of the fastest SM",
        "same_gpc_pct": "of the pairs of clusters that share tiles, those of one GPC",
        "asked_bytes": "bytes of all steps of all clusters, a multicast once",
    },
    predict=predict, tiers={READ: 5}, derive=read_fraction,
)  # fmt: skip
