"""Does the end of a kernel wait for stores that are on their way when its CTAs have left?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gpusim import GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Group, KernelLaunch, Output, Outputs
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import check_words
from gpusim.workload import ops
from gpusim.workload.gmem.global_access import global_access
from gpusim.workload.launch import RoleContext

THREADS, MORE, NUM_TURNS = 256, 7, 3
VECTORS = (0, 1, 2, 4, 8, 16)
"""Of 16 bytes, that a thread stores."""
GRIDS = (1, measured_gpu().num_sms // 4, *(measured_gpu().num_sms << turn for turn in range(4)))
CYCLES = "sm__cycles_elapsed.max"
METRICS = (
    CYCLES, "sm__cycles_elapsed.avg", "sm__cycles_active.avg", "sm__cycles_active.max", "gpu__time_duration.sum",
    "dram__bytes_write.sum", "lts__t_sectors_srcunit_tex_op_write.sum",
)  # fmt: skip
ALU_BEFORE, ALU_OF_STORE = 12, 1
"""Integer instructions before, and of a vector. Source: SASS."""


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    state: str
    num_ctas: int
    again: int


def configs(state: str) -> list[Config]:
    """Every number of vectors by every grid, several times."""
    kernels = [f"store_{num}" for num in VECTORS]
    return Config.sweep(again=range(NUM_TURNS), state=state, kernel=kernels, num_ctas=GRIDS)


def num_vectors(config: Config) -> int:
    """Of a thread."""
    return int(config.kernel.removeprefix("store_"))


def launch(config: Config) -> KernelLaunch:
    """So many CTAs."""
    num_ctas, num = config.num_ctas, num_vectors(config)
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(Output("to", np.zeros(max(4, 4 * num * num_ctas * THREADS), dtype=np.uint32)), np.uint32(MORE)),
        grid=(num_ctas, 1, 1), block=(THREADS, 1, 1),
    )  # fmt: skip


def expected(config: Config) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """What is left, words."""
    num_ctas, num = config.num_ctas, num_vectors(config)
    if not num:
        return np.zeros(4, dtype=np.uint32)
    word = np.arange(num_ctas * THREADS, dtype=np.uint32).reshape(num_ctas, 1, THREADS) + np.uint32(MORE)
    idx = np.arange(num, dtype=np.uint32).reshape(1, num, 1)
    words, places = np.broadcast_arrays(word, idx)
    return np.stack([words, places, words, places], axis=-1).reshape(-1)


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Every word is what it should be."""
    check_words(outputs["to"], expected(config), config.kernel)
    return {}


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same in the vocabulary."""
    num, num_ctas = num_vectors(config), config.num_ctas
    access = global_access(16 * np.arange(THREADS).reshape(-1, 32), 16)

    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.Alu(ALU_BEFORE, is_chain=True)
        for idx in range(num):
            yield ops.Alu(ALU_OF_STORE)
            yield ops.GlobalStore("to", (cta.cta_idx, idx), access)

    launched = Launch(
        kernel="store_end", num_ctas=num_ctas, num_tiles=num_ctas, registers_per_thread=16,
        roles=(WarpRole(name="warps", num_warps=THREADS // 32, program=program),),
    )  # fmt: skip
    return {CYCLES: simulate(launched, gpu, clock="max", l2="warm" if config.state == "warm" else "cold").cycles}


CASE = Case(
    name="store_end",
    question="Does the end of a kernel wait for stores that are on their way when its CTAs have left?",
    config_type=Config,
    groups={
        "cold": Group(configs=partial(configs, "cold"), metrics=METRICS, rank=5, is_cold=True),
        "warm": Group(configs=partial(configs, "warm"), metrics=METRICS, rank=5),
    },
    launch=launch, check=check, predict=predict, tiers={CYCLES: 6},
)  # fmt: skip
