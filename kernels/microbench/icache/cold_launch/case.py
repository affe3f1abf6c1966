"""What does a launch take whose code, parameters and data are in no cache, beyond one that finds them all?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gpusim import GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Fitted, Group, Input, KernelLaunch, Output, Outputs
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import check_words
from gpusim.workload import ops
from gpusim.workload.gmem.global_access import global_access
from gpusim.workload.launch import RoleContext

THREADS, MORE, NUM_TURNS = 256, 7, 3
KERNELS = ("empty", "store_one", "load_one")
GRIDS = (1, 8, measured_gpu().num_sms, 8 * measured_gpu().num_sms)
CYCLES = "sm__cycles_elapsed.max"
METRICS = (
    CYCLES, "sm__cycles_elapsed.avg", "sm__cycles_active.avg", "sm__cycles_active.max", "gpu__time_duration.sum",
    "dram__bytes_read.sum", "lts__t_sectors_op_read.sum", "lts__t_sectors_op_read_lookup_miss.sum",
)  # fmt: skip
ALU_BEFORE = 12
"""Integer instructions before the load or store. Source: SASS."""


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    state: str
    num_ctas: int
    turn: int


def configs(state: str) -> list[Config]:
    """Every kernel by the size of its grid, several times."""
    return Config.sweep(turn=range(NUM_TURNS), state=state, kernel=KERNELS, num_ctas=GRIDS)


def given(config: Config) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """What is there to load."""
    return np.random.default_rng(3).integers(0, 1 << 30, config.num_ctas * THREADS, dtype=np.uint32)


def launch(config: Config) -> KernelLaunch:
    """So many CTAs."""
    words = given(config)
    return KernelLaunch(
        kernel=config.kernel, arguments=(Input(words), Output("to", np.zeros_like(words)), np.uint32(MORE)),
        grid=(config.num_ctas, 1, 1), block=(THREADS, 1, 1),
    )  # fmt: skip


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Each warp's word is what it should be."""
    words = given(config)
    thread = np.arange(len(words), dtype=np.uint32)
    value = {"empty": np.zeros_like(words), "store_one": thread + MORE, "load_one": words + MORE}[config.kernel]
    wanted = np.where(thread % 32 == 0, value, 0)
    check_words(outputs["to"], wanted, config.kernel)
    return {}


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same in the vocabulary: a word of each warp, 128 bytes apart."""
    kernel, num_ctas = config.kernel, config.num_ctas
    lanes = np.arange(THREADS).reshape(-1, 32)
    access = global_access(4 * lanes, 4, lanes % 32 == 0)

    def program(cta: RoleContext) -> Iterator[Any]:
        if kernel == "empty":
            return
        yield ops.Alu(ALU_BEFORE, is_chain=True)
        if kernel == "load_one":
            yield ops.Use((yield ops.GlobalLoad("from", (cta.cta_idx, 0), access)))
        yield ops.GlobalStore("to", (cta.cta_idx, 0), access)

    launched = Launch(
        kernel="cold_launch", num_ctas=num_ctas, num_tiles=num_ctas, registers_per_thread=16,
        roles=(WarpRole(name="warps", num_warps=THREADS // 32, program=program),),
    )  # fmt: skip
    result = simulate(launched, gpu, clock="max", l2="cold" if config.state == "cold" else "warm")
    return {CYCLES: result.cycles}


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What flushed caches cost a launch that uses its parameters: of a grid the median cold less that warm, their mean."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row["kernel"] == "store_one" and row.get(CYCLES):
            found.setdefault((row["num_ctas"], row["state"]), []).append(float(row[CYCLES]))
    more = [
        float(np.median(cycles) - np.median(found[grid, "warm"]))
        for (grid, state), cycles in found.items() if state == "cold" and (grid, "warm") in found
    ]  # fmt: skip
    if not more:
        return []
    how = "a word a warp is stored, cold less warm, median of a grid, mean of grids"
    return [Fitted(parameter="dispatcher.cold_start_cycles", value=float(np.mean(more)), how=how)]


CASE = Case(
    name="cold_launch",
    question="What does a launch take whose code, parameters and data are in no cache, beyond one that finds them all?",
    config_type=Config,
    groups={
        "cold": Group(configs=partial(configs, "cold"), metrics=METRICS, rank=3, is_cold=True),
        "warm": Group(configs=partial(configs, "warm"), metrics=METRICS, rank=3),
    },
    launch=launch, check=check, predict=predict, fit=fit, tiers={CYCLES: 6},
)  # fmt: skip
