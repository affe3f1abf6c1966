"""What do clusters get out of L2 that multicast tiles which other clusters walk, too?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, Launch, Mbarrier, WarpRole, simulate
from gpusim.evidence.cases.case import (
    Case,
    Config,
    Group,
    KernelLaunch,
    MappedTensor,
    Output,
    Outputs,
    WrongAnswer,
    by_value,
)
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.workload import ops
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext
from gpusim.workload.tma.boxes import TensorMap

NUM_CTAS = {1: 132, 2: 132, 4: 120}
"""By the size of clusters: as many as an H200 holds at once."""
NUM_SMS = 132
ROW_BYTES = 128
MULTIPLIER, ADDEND = 0x9E3779B1, 0x7F4A7C15
MOST_TOUCHED_BYTES = 16 << 20
MOST_STEPS = 32
NUM_LEAD, NUM_TIMED, NUM_BEHIND = 80, 160, 16
LEAST_SMEM_BYTES = 120 * 1024
"""So that two CTAs find no room on one SM."""

READ = "lts__t_sectors_srcunit_tex_op_read.sum"
METRICS = (READ, "lts__t_requests_srcunit_tex_op_read.sum", "l1tex__m_xbar2l1tex_read_bytes.sum")
COLUMNS = ("size", "pattern", "rows", "stages")


def walks(seed: int) -> list[Config]:
    """Clusters of 1, 2 and 4; every cluster its own tiles, pairs of clusters so far apart by number, or all the same."""
    del seed  # a sweep, the same for every seed
    return [
        {"kernel": f"walk_{size}", "size": str(size), "pattern": pattern, "rows": str(rows), "stages": str(stages)}
        for size in NUM_CTAS for pattern in ("own", "all", "pairs_1", "pairs_2", "pairs_4", "pairs_8", "pairs_16")
        for rows, stages in ((128, 2), (128, 4), (256, 2), (256, 4))
    ]  # fmt: skip


def num_clusters(config: Config) -> int:
    """Of the grid."""
    size = int(config["size"])
    return NUM_CTAS[size] // size


def panels(config: Config) -> list[int]:
    """Which tiles each cluster walks.

    >>> panels({"size": "4", "pattern": "pairs_2"})[:8]
    [0, 1, 0, 1, 2, 3, 2, 3]
    """
    num = num_clusters(config)
    if config["pattern"] == "own":
        return list(range(num))
    if config["pattern"] == "all":
        return [0] * num
    apart = int(config["pattern"].removeprefix("pairs_"))
    return [idx // (2 * apart) * apart + idx % apart for idx in range(num)]


def num_steps(config: Config) -> int:
    """Steps before a walk begins again: a power of two, so few that all tiles fit in L2."""
    steps = MOST_STEPS
    while steps > 2 and (max(panels(config)) + 1) * int(config["rows"]) * ROW_BYTES * steps > MOST_TOUCHED_BYTES:
        steps //= 2
    return steps


def num_all_steps() -> int:
    """Of a CTA."""
    return NUM_LEAD + NUM_TIMED + NUM_BEHIND


@cache
def tensor() -> NDArray[np.uint32]:
    """Words that look random; copied to the GPU once."""
    words = np.arange(2 * MOST_TOUCHED_BYTES // 4, dtype=np.uint32)
    words *= np.uint32(MULTIPLIER)
    words += np.uint32(ADDEND)
    words.setflags(write=False)
    return words


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """The same launch under the profiler as without."""
    del is_counted
    size, rows, stages = int(config["size"]), int(config["rows"]), int(config["stages"])
    tensor_map = TensorMap(
        dtype=BF16, global_dim=(ROW_BYTES // 2, tensor().nbytes // ROW_BYTES), global_strides_bytes=(ROW_BYTES,),
        box_dim=(ROW_BYTES // 2, rows // size), swizzle="128B", l2_promotion="128B",
    )  # fmt: skip
    plan = [stages, rows, num_steps(config), NUM_LEAD, NUM_TIMED, NUM_BEHIND]
    return KernelLaunch(
        kernel=config["kernel"],
        arguments=(
            by_value(np.array(plan, dtype="<u4")), Output("panels", np.array(panels(config), dtype="<u4")),
            MappedTensor(tensor(), tensor_map), Output("told", np.full((NUM_CTAS[size], 4), -1, dtype="<i8")),
        ),
        grid=(NUM_CTAS[size], 1, 1), block=(64, 1, 1), smem_bytes=max(LEAST_SMEM_BYTES, stages * rows * ROW_BYTES),
    )  # fmt: skip


def sum_of_last_stages(config: Config, panel: int) -> int:
    """The sum, modulo 2^32, of the words of what the rings hold in the end."""
    rows, steps, last, total = int(config["rows"]), num_steps(config), num_all_steps(), 0
    for number in range(last - int(config["stages"]), last):
        first = (panel * steps + number % steps) * rows * (ROW_BYTES // 4)
        total += int(tensor()[first : first + rows * (ROW_BYTES // 4)].astype(np.uint64).sum())
    return total % 2**32


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of a stage, and how many sharing clusters are of one GPC.

    Raises:
        WrongAnswer: a wait that was given up, stages of other words, two CTAs on one SM.
    """
    told, size, of_cluster = outputs["told"], int(config["size"]), panels(config)
    if (told[:, 3] != 1).any():
        raise WrongAnswer("a wait was given up: a stage never came, or was never freed")
    sums = {panel: sum_of_last_stages(config, panel) for panel in set(of_cluster)}
    for cta, checksum in enumerate(told[:, 1].tolist()):
        if checksum != sums[of_cluster[cta // size]]:
            raise WrongAnswer(f"the stages of CTA {cta} have words that sum up to {checksum}")
    sms, cycles = told[:, 0].tolist(), told[:, 2] / NUM_TIMED
    if len(set(sms)) < len(sms) or (cycles <= 0).any():
        raise WrongAnswer("two CTAs were on one SM, or a clock stood still")
    gpc_of = load_gpu("h200_sxm").floorplan.gpc_of_sm
    gpcs = [gpc_of[sm] for sm in sms[::size]]
    pairs = [
        gpcs[one] == gpcs[other] for one, panel in enumerate(of_cluster) for other in range(one)
        if of_cluster[other] == panel
    ]  # fmt: skip
    return {
        "cycles_per_stage": float(cycles.mean()), "slowest_cycles": float(cycles.max()),
        "fastest_cycles": float(cycles.min()), "same_gpc_pct": 100.0 * float(np.mean(pairs)) if pairs else 0.0,
        "asked_bytes": float(num_clusters(config) * num_all_steps() * int(config["rows"]) * ROW_BYTES),
    }  # fmt: skip


def derive(row: Config) -> dict[str, float]:
    """Of what was asked for, a multicast once, what L2 was read for."""
    if not row.get(READ) or not row.get("asked_bytes"):
        return {}
    return {"read_fraction": float(row[READ]) * 32 / float(row["asked_bytes"])}


TWIN_LEAD, TWIN_TIMED = 24, 32


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same rings for fewer steps; nothing for a GPU of other SMs."""
    if gpu.num_sms != NUM_SMS or gpu.mbarrier is None:
        return {}
    size, rows, stages, steps = int(config["size"]), int(config["rows"]), int(config["stages"]), num_steps(config)
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

    launched = Launch(
        kernel="multicast_sharing", num_ctas=NUM_CTAS[size], num_tiles=NUM_CTAS[size], cluster_size=size,
        roles=(
            WarpRole(name="producer", num_warps=1, program=produce), WarpRole(name="consumer", num_warps=1, program=consume),
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
    result = simulate(launched, gpu, clock="max", l2="warm", recorded_sms=range(NUM_SMS))
    spans = [
        (span.end_cycle - span.start_cycle) / TWIN_TIMED for role in result.timeline.roles for span in role.sections
    ]  # fmt: skip
    return {"cycles_per_stage": float(np.mean(spans)), READ: result.counters[READ] * num_all_steps() / count}


CASE = Case(
    name="multicast_sharing",
    question="What do clusters get out of L2 that multicast tiles which other clusters walk, too?",
    columns=COLUMNS,
    groups={"walks": Group(configs=walks, metrics=METRICS, rank=3, least_capability=(9, 0))},
    launch=launch,
    check=check,
    values={
        "cycles_per_stage": "SM cycles from a full stage to the next, mean of the SMs",
        "slowest_cycles": "the same of the slowest SM",
        "fastest_cycles": "the same of the fastest SM",
        "same_gpc_pct": "of the pairs of clusters that share tiles, those of one GPC",
        "asked_bytes": "bytes of all steps of all clusters, a multicast once",
    },
    predict=predict,
    tiers={READ: 5},
    derive=derive,
)
