"""What does a CTA take to make its stores visible and to count itself, when all CTAs of a grid do so at once?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Launch, WarpRole
from gpusim.evidence.cases.case import Case, Group, KernelLaunch, Output, Outputs, Scratch, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.microbenchmark import range_cycles
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.tile_walk import grid_include
from gpusim.kernel_models.streaming import dense_access
from gpusim.machine.config import GpuSpec
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

THREADS, ROUNDS, WARM_UP, NUM_SMS = 128, 6, 2, measured_gpu().num_sms
"""Rounds that all CTAs begin together; the first ``WARM_UP`` do not count."""
FLAG_WORDS = 32 + 32 + 64 + 256
WORK = np.dtype([(name, "<u4") for name in ("num_counters", "rounds", "num_stored")])
"""Structure of kernel.cu."""
PARTS = ("stores", "first_fence", "atomic", "second_fence")
"""Intervals between two readings of the clock: the fence with the barrier behind it, the atomic with that of its answer."""


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of a config. ``num_counters``: counters that CTAs share; ``num_stored``: words that each thread stores."""

    kernel: str
    num_ctas: int
    num_counters: int
    num_stored: int


def configs() -> list[Config]:
    """From one CTA to eight an SM, which share a counter, eight or none; and a word or four of each thread."""
    found = Config.sweep(
        kernel="fence_atomic", num_ctas=(1, NUM_SMS, 4 * NUM_SMS, 8 * NUM_SMS), num_counters=(1, 8), num_stored=1
    )
    found += Config.sweep(kernel="fence_atomic", num_ctas=(NUM_SMS, 8 * NUM_SMS), num_counters=8 * NUM_SMS, num_stored=1)
    found += Config.sweep(kernel=("fence", "atomic"), num_ctas=(1, NUM_SMS, 8 * NUM_SMS), num_counters=1, num_stored=1)
    return found + Config.sweep(kernel="fence_atomic", num_ctas=(NUM_SMS, 8 * NUM_SMS), num_counters=8, num_stored=(0, 4))


def launch(config: Config) -> KernelLaunch:
    """All CTAs at once: of 128 threads, up to eight an SM."""
    work = np.array([(config.num_counters, ROUNDS, config.num_stored)], dtype=WORK)
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            Scratch("stored", max(4, 4 * config.num_stored * config.num_ctas * THREADS)),
            Output("counters", np.zeros(32 * config.num_counters, dtype="<u4")),
            Output("flags", np.zeros(FLAG_WORDS, dtype="<u4")),
            Output("told", np.full(config.num_ctas * (4 * ROUNDS + 1), 0xFFFFFFFF, dtype="<u4")), by_value(work),
        ),
        grid=(config.num_ctas, 1, 1), block=(THREADS, 1, 1),
    )  # fmt: skip


def wanted_counters(config: Config) -> NDArray[np.uint32]:
    """Values of all counters after a launch: each CTA counts once a round, on a line of each counter."""
    found = np.zeros(32 * config.num_counters, dtype=np.uint32)
    if config.kernel != "fence":
        sharers = np.bincount(np.arange(config.num_ctas) % config.num_counters, minlength=config.num_counters)
        found[::32] = sharers * ROUNDS
    return found


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Median and most cycles of each part, over the CTAs and rounds that count; every counter has one last CTA a round."""
    wrong_if(outputs["flags"][1], "a wait was given up: CTAs did not meet")
    wrong_if((outputs["counters"] != wanted_counters(config)).any(), "a counter does not have every CTA of every round")
    clocks = outputs["told"][: 4 * ROUNDS * config.num_ctas].reshape(ROUNDS, config.num_ctas, 4)
    wrong_if((clocks == 0xFFFFFFFF).any(), "a CTA did not note its clock")
    num_last = int(outputs["told"][4 * ROUNDS * config.num_ctas :].sum())
    used = np.unique(np.arange(config.num_ctas) % config.num_counters).size
    wanted = 0 if config.kernel == "fence" else used * ROUNDS
    wrong_if(num_last != wanted, f"{num_last} CTAs were the last of their counter, not {wanted}")
    counted = clocks[WARM_UP:].reshape(-1, 4)
    return {
        f"{name}_{word}cycles": float(function(counted[:, idx]))
        for idx, name in enumerate(PARTS) for word, function in (("", np.median), ("most_", np.max))
    }  # fmt: skip


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Median cycles of the first fence and of the atomic, in one round of all CTAs."""
    stores = dense_access(0, THREADS, 4).scaled(config.num_stored)
    word = AccessPattern(num_requests=1, num_wavefronts=1, num_bytes=4)
    answers = AccessPattern(num_requests=4, num_wavefronts=4, num_bytes=16)

    def program(cta: RoleContext) -> Iterator[Any]:
        if config.num_stored:
            yield ops.GlobalStore("stored", (cta.cta_idx, 0), stores)
        yield ops.RangeStart(ops.Section.PROLOGUE)
        if config.kernel != "atomic":
            yield ops.FenceAcqRel()
        yield ops.Syncthreads()
        yield ops.RangeEnd()
        yield ops.RangeStart(ops.Section.MAINLOOP)
        if config.kernel != "fence":
            counter = (cta.cta_idx % config.num_counters, 0)
            yield ops.Use((yield ops.GlobalAtomic("counters", counter, dense_access(0, 1, 4), returns=True)))
            yield ops.SharedStore(word)
            yield ops.Syncthreads()
            yield ops.Use((yield ops.SharedLoad(answers)))
        yield ops.RangeEnd()

    launched = Launch(
        kernel="grid_counter", num_ctas=config.num_ctas, num_tiles=config.num_ctas, extra_smem_bytes=4,
        roles=(WarpRole(name="warps", num_warps=THREADS // 32, program=program),),
    )  # fmt: skip
    cycles = np.array(range_cycles(launched, gpu)["warps"]).reshape(-1, 2)
    return {
        f"{name}_cycles": float(np.median(cycles[:, idx])) for idx, name in enumerate(("first_fence", "atomic"))
    }  # fmt: skip


CASE = Case(
    name="grid_counter",
    question=__doc__,
    config_type=Config,
    groups={"counters": Group(configs=configs, rank=3, least_capability=(7, 0))},
    launch=launch,
    check=check,
    values={
        f"{name}_{word}cycles": f"SM cycles of this part: {meaning} over CTAs and rounds"
        for name in PARTS for word, meaning in (("", "median"), ("most_", "most"))
    },
    num_repeats=3,
    includes=grid_include,
    predict=predict,
    tiers={"first_fence_cycles": 2, "atomic_cycles": 2},
)  # fmt: skip
