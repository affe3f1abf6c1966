"""When does a kernel end that has stored something: with its last CTA's exit, or when the store has arrived?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim import GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Fitted, Group, KernelLaunch, Output, Outputs
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import check_words
from gpusim.workload import ops
from gpusim.workload.gmem.global_access import global_access
from gpusim.workload.launch import RoleContext

THREADS, MORE, NUM_TURNS = 256, 7, 3
KERNELS = ("nothing", "store_first", "store_last", "store_all", "store_marked", "store_wide")
CHAINS = (0, 8, 64)
"""Turns of eight multiplications."""
GRIDS = (1, measured_gpu().num_sms, 8 * measured_gpu().num_sms)
CYCLES, ACTIVE = "sm__cycles_elapsed.max", "sm__cycles_active.max"
SMALL = ("store_first", "store_last", "store_all", "store_marked")
"""Kernels that store no more than a word a thread."""
METRICS = (CYCLES, "sm__cycles_elapsed.avg", "sm__cycles_active.avg", ACTIVE, "gpu__time_duration.sum")
ALU_BEFORE, ALU_OF_TURN = 12, 6
"""Integer instructions before, and of a turn. Source: SASS."""


@dataclass(frozen=True)
class Config(ConfigRow):
    """Kernel, length of its chain, size of its grid."""

    kernel: str
    turns: int
    num_ctas: int
    again: int


def configs() -> list[Config]:
    """Every kernel by the length of its chain and the size of its grid, several times."""
    return Config.sweep(again=range(NUM_TURNS), kernel=KERNELS, turns=CHAINS, num_ctas=GRIDS)


def launch(config: Config) -> KernelLaunch:
    """So many CTAs."""
    to = Output("to", np.zeros(4 * config.num_ctas * THREADS, dtype=np.uint32))
    return KernelLaunch(
        kernel=config.kernel, arguments=(to, np.uint32(config.turns), np.uint32(0), np.uint32(MORE)),
        grid=(config.num_ctas, 1, 1), block=(THREADS, 1, 1),
    )  # fmt: skip


def expected(config: Config) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """What is left, words."""
    num = config.num_ctas * THREADS
    found, thread = np.zeros(4 * num, dtype=np.uint32), np.arange(num, dtype=np.uint32)
    if config.kernel == "store_wide":
        found.reshape(-1, 4)[:] = thread[:, None]
        found[::4] += MORE
    elif config.kernel != "nothing":
        stored = np.ones(num, dtype=bool) if config.kernel == "store_all" else thread % 32 == 0
        found[:num] = np.where(stored, thread + MORE, 0)
    return found


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Every word is what it should be."""
    check_words(outputs["to"], expected(config), config.kernel)
    return {}


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same in the vocabulary; a look at the clock of nanoseconds costs nothing there."""
    kernel, turns, num_ctas = config.kernel, config.turns, config.num_ctas
    lanes = np.arange(THREADS).reshape(-1, 32)
    width = 16 if kernel == "store_wide" else 4
    access = global_access(width * lanes, width, (lanes % 32 == 0) | (kernel in ("store_all", "store_wide")))

    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.Alu(ALU_BEFORE, is_chain=True)
        if kernel == "store_first":
            yield ops.GlobalStore("to", (cta.cta_idx, 0), access)
        yield ops.Syncthreads()
        if turns:
            yield ops.Alu(ALU_OF_TURN * turns, is_chain=True)
        if kernel not in ("nothing", "store_first"):
            yield ops.GlobalStore("to", (cta.cta_idx, 0), access)

    launched = Launch(
        kernel="kernel_end", num_ctas=num_ctas, num_tiles=num_ctas, registers_per_thread=16,
        roles=(WarpRole(name="warps", num_warps=THREADS // 32, program=program),),
    )  # fmt: skip
    return {CYCLES: simulate(launched, gpu, clock="max", l2="warm").cycles}


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What an end takes more behind small stores than behind none: elapsed less active, by chain and grid, their median."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in rows:
        if row.get(CYCLES) and row.get(ACTIVE):
            ends = found.setdefault((row["turns"], row["num_ctas"]), {})
            ends.setdefault(row["kernel"], []).append(float(row[CYCLES]) - float(row[ACTIVE]))
    more = [
        float(np.median(ends[kernel]) - np.median(ends["nothing"]))
        for ends in found.values() for kernel in SMALL if "nothing" in ends and kernel in ends
    ]  # fmt: skip
    how = "elapsed less active, what stores at most a word a thread less what stores nothing, of grids and chains, median"
    return Fitted.median("dispatcher.store_end_cycles", more, how)


CASE = Case(
    name="kernel_end",
    question="When does a kernel end that has stored something: with its last CTA's exit, or when the store has arrived?",
    config_type=Config,
    groups={"ends": Group(configs=configs, metrics=METRICS, rank=5)},
    launch=launch, check=check, predict=predict, fit=fit, tiers={CYCLES: 6},
)  # fmt: skip
