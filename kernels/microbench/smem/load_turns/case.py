"""Do warps take turns at shared memory, load by load, or is whoever asked first served first?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim import GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Group, KernelLaunch, Output, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

WARPS, LINES = 32, 128
NUM_ROUNDS, NUM_SMS = 256, measured_gpu().num_sms
NEAR = (4, 16, 32)
"""Loads of a round from shared memory."""
WAYS = (1, 2, 4, 8, 16, 32)
PLACES = ((8, 1), (8, 2), (8, 4), (8, 8), (16, 1), (16, 2), (16, 4), (32, 1), (32, 2))
"""Warps of a CTA, CTAs of each SM."""
TIMES = np.dtype([("sm", "<u4"), ("begin", "<u4", WARPS), ("end", "<u4", WARPS), ("sum", "<u4", WARPS * 32)])
ALU_OF_ROUND = 8
"""Integer instructions of a round beside a sum of each load. Source: SASS."""
LEAST_SMS = 100
"""On which as many CTAs ran as are wanted."""


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config; ``ctas`` of each SM, 0 for a lone one. The entry point has the loads of a round, and who meets."""

    kernel: str
    ways: int
    warps: int
    ctas: int


def rounds() -> list[Row]:
    """Loads of a round, warps, ways; eights that meet and warps that do not; one CTA."""
    kernels = [f"loads_{near}_{meets}" for near in NEAR for meets in ("apart", "meet")]
    return Row.sweep(kernel=kernels, ways=WAYS, warps=(8, 16, 24, 32), ctas=0)


def ctas() -> list[Row]:
    """CTAs that share each SM, and meet within: loads of a round, ways; loads at once and four by four."""
    kernels = [f"loads_{near}_{meets}" for near in (4, 32) for meets in ("all", "walk")]
    return [Row(kernel, ways, *place) for kernel in kernels for ways in (1, 2, 8, 32) for place in PLACES]


def parts(config: Row) -> tuple[int, str]:
    """(loads of a round, who meets).

    >>> parts(Row("loads_16_meet", ways=8, warps=32, ctas=0))
    (16, 'meet')
    """
    _, near, meets = config.kernel.split("_")
    return int(near), meets


def lines() -> np.ndarray[Any, np.dtype[np.uint32]]:
    """What lies in global memory beforehand."""
    return np.random.default_rng(7).integers(0, 1 << 20, (WARPS, LINES, 32), dtype=np.uint32)


def launch(config: Row) -> KernelLaunch:
    """One CTA, or as many on each SM."""
    num = max(1, NUM_SMS * config.ctas)
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            Output("lines", lines()), Output("times", np.zeros(num, dtype=TIMES)), np.uint32(config.ways),
            np.uint32(NUM_ROUNDS), np.uint32(0),
        ),
        grid=(num, 1, 1), block=(config.warps * 32, 1, 1),
    )  # fmt: skip


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Every thread's sum is what it should be; cycles of a round of all warps of an SM, the median of the SMs.

    Raises:
        WrongAnswer: one is not, or CTAs do not share SMs as they should.
    """
    (near, _), ways, num_warps, num_ctas = parts(config), config.ways, config.warps, config.ctas
    read = np.arange(32)[None] * ways + np.arange(near)[:, None]  # int[load, lane]
    total = NUM_ROUNDS * read.sum(axis=0) + NUM_ROUNDS // LINES * lines().astype(np.int64).sum(axis=1)
    times = outputs["times"]
    if (times["sum"].reshape(len(times), WARPS, 32)[:, :num_warps] != total[:num_warps] % (1 << 32)).any():
        raise WrongAnswer(f"{config['kernel']}: a thread's sum is wrong")
    spans, firsts = [], []
    for sm in np.unique(times["sm"]):
        of_sm = times[times["sm"] == sm]
        if len(of_sm) != max(1, num_ctas):
            continue
        took = (of_sm["end"][:, :num_warps].max(axis=1) - of_sm["begin"][:, :num_warps].min()).astype(np.uint32)
        spans.append(took.max() / NUM_ROUNDS)
        firsts.append(took.min() / NUM_ROUNDS)
    wrong_if(len(spans) < (LEAST_SMS if num_ctas else 1), f"{len(spans)} SMs have {num_ctas} CTAs, wants {LEAST_SMS}")
    return {"cycles_per_round": float(np.median(spans)), "first_cycles_per_round": float(np.median(firsts))}


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """Rounds of all warps: the slope between two numbers of them. Warps that meet are a role, others one each."""
    (near, meets), ways, num_warps, num_ctas = parts(config), config.ways, config.warps, config.ctas
    each = {"apart": 1, "meet": 8}.get(meets, num_warps)
    line = AccessPattern(num_requests=each, num_sectors=4 * each, num_lines=each, num_wavefronts=each, num_bytes=128 * each)
    together = 4 if meets == "walk" else near
    num = together * each
    loads = AccessPattern(num_requests=num, num_wavefronts=ways * num, num_bytes=128 * num)
    row = AccessPattern(num_requests=each, num_wavefronts=each, num_bytes=128 * each)

    def cycles(num_rounds: int) -> float:
        def program(_cta: RoleContext) -> Iterator[Any]:
            for _ in range(num_rounds):
                yield ops.Alu(ALU_OF_ROUND)
                yield ops.Use((yield ops.GlobalLoad("lines", (0, 0), line, allocates_in_l1=False)))
                yield ops.SharedStore(row)
                if meets in ("all", "walk"):
                    yield ops.Syncthreads()
                for _ in range(near // together):
                    token = yield ops.SharedLoad(loads)
                    yield ops.Alu(together)  # sums of what has come, while the rest does
                    yield ops.Use(token)

        num = max(1, NUM_SMS * num_ctas)
        launched = Launch(
            kernel="load_turns", num_ctas=num, num_tiles=num, extra_smem_bytes=4096 + WARPS * 128, has_uniform_programs=True,
            roles=tuple(WarpRole(name=f"warps{idx}", num_warps=each, program=program) for idx in range(num_warps // each)),
        )
        return simulate(launched, gpu, clock="max", l2="warm").cycles

    return {"cycles_per_round": (cycles(48) - cycles(16)) / 32}


CASE = Case(
    name="load_turns",
    question="Do warps take turns at shared memory, load by load, or is whoever asked first served first?",
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict,
    groups={"rounds": Group(configs=rounds, rank=3), "ctas": Group(configs=ctas, rank=3)},
    values={
        "cycles_per_round": "SM cycles from the first warp's begin to the last one's end, of the CTAs of an SM, over rounds",
        "first_cycles_per_round": "the same to the first CTA's end",
    },
    tiers={"cycles_per_round": 4},
)  # fmt: skip
