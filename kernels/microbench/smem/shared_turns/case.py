"""What do loads and stores of global and shared memory take of one SM's stage when warps take turns at all of them?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from gpusim import GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Group, KernelLaunch, Output, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

WARPS, LINES, EACH = 32, 128, 4
NUM_ROUNDS = 256
LOADS, WRITES, STORES, MEETS = ("noload", "around", "through"), ("nowrite", "write"), ("nostore", "store"), ("apart", "meet")
WAYS = (8, 16, 32)
FEWER = ("around_write_store", "around_write_nostore", "noload_write_store")
"""What fewer warps do, too."""
TIMES = np.dtype([("begin", "<u4", WARPS), ("end", "<u4", WARPS), ("sum", "<u4", WARPS * 32)])
ALU_OF_ROUND = 24
"""Integer instructions of a round: sums and addresses. Source: SASS."""


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config; the entry point has the mixture and who meets."""

    kernel: str
    ways: int
    warps: int


def configs() -> list[Row]:
    """Every mixture, by ways of the loads from shared memory; some of them by fewer warps."""
    every = ["_".join(words) for words in product(LOADS, WRITES, STORES, MEETS)]
    some = [f"{mixture}_{meets}" for mixture in FEWER for meets in MEETS]
    return Row.sweep(kernel=every, ways=WAYS, warps=WARPS) + Row.sweep(kernel=some, ways=(8, 32), warps=(8, 16, 24))


def parts(config: Row) -> tuple[str, bool, bool, bool, int]:
    """(loads, whether it writes to shared memory, whether it stores, whether eight warps meet, ways).

    >>> parts(Row("around_nowrite_store_meet", ways=8, warps=32))
    ('around', False, True, True, 8)
    """
    loads, writes, stores, meets = config.kernel.split("_")
    return loads, writes == "write", stores == "store", meets == "meet", config.ways


def lines() -> np.ndarray[Any, np.dtype[np.uint32]]:
    """What lies in global memory beforehand."""
    return np.random.default_rng(6).integers(0, 1 << 20, (WARPS, LINES, 32), dtype=np.uint32)


def launch(config: Row) -> KernelLaunch:
    """One CTA."""
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            Output("lines", lines()), Output("stored", np.zeros((WARPS, LINES, 32), dtype=np.uint32)),
            Output("times", np.zeros(1, dtype=TIMES)), np.uint32(config.ways), np.uint32(NUM_ROUNDS), np.uint32(0),
        ),
        block=(config.warps * 32, 1, 1),
    )  # fmt: skip


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Every thread's sum is what it should be, stores have landed; cycles of a round of all warps."""
    loads, _, stores, _, ways = parts(config)
    num_warps = config.warps
    lane = np.arange(32)
    near = lane[None] * ways + np.arange(EACH)[:, None]  # int[each, lane]
    total = np.zeros((WARPS, 32), dtype=np.int64) + NUM_ROUNDS * near.sum(axis=0)
    if loads != "noload":
        total += NUM_ROUNDS * EACH // LINES * lines().astype(np.int64).sum(axis=1)
    times = outputs["times"][0]
    if (times["sum"].reshape(WARPS, 32)[:num_warps] != total[:num_warps] % (1 << 32)).any():
        raise WrongAnswer(f"{config['kernel']}: a thread's sum is wrong")
    wanted = np.zeros((WARPS, LINES, 32), dtype=np.uint32)
    if stores:
        wanted[:num_warps] = np.tile(near, (LINES // EACH, 1))
    if (outputs["stored"] != wanted).any():
        raise WrongAnswer(f"{config['kernel']}: a line does not hold what was stored")
    begun = int(times["begin"][:num_warps].min())
    took = (times["end"][:num_warps].astype(np.int64) - begun) / NUM_ROUNDS
    by_eights = took.reshape(-1, 8).max(axis=1)
    found = {"cycles_per_round": took.max(), "first_cycles_per_round": took.min()}
    return found | {f"eight_{idx}_cycles_per_round": cycles for idx, cycles in enumerate(by_eights.tolist())}


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """Rounds of all warps: the slope between two numbers of them. Eight warps that meet are a role, others one each."""
    loads, writes, stores, meets, ways = parts(config)
    each = 8 if meets else 1
    num = EACH * each
    line = AccessPattern(num_requests=num, num_sectors=4 * num, num_lines=num, num_wavefronts=num, num_bytes=128 * num)
    near = AccessPattern(num_requests=num, num_wavefronts=ways * num, num_bytes=128 * num)
    row = AccessPattern(num_requests=num, num_wavefronts=num, num_bytes=128 * num)

    def cycles(num_rounds: int) -> float:
        def program(_cta: RoleContext) -> Iterator[Any]:
            for _ in range(num_rounds):
                yield ops.Alu(ALU_OF_ROUND)
                token = None
                if loads != "noload":
                    token = yield ops.GlobalLoad("lines", (0, 0), line, allocates_in_l1=False)
                if writes:
                    if token is not None:
                        yield ops.Use(token)
                    yield ops.SharedStore(row)
                yield ops.Use((yield ops.SharedLoad(near)))
                if stores:
                    yield ops.GlobalStore("stored", (0, 0), line)
                if token is not None and not writes:
                    yield ops.Use(token)

        launched = Launch(
            kernel="shared_turns", num_ctas=1, num_tiles=1, extra_smem_bytes=4096 + WARPS * EACH * 128,
            roles=tuple(WarpRole(name=f"warp{idx}", num_warps=each, program=program) for idx in range(config.warps // each)),
        )
        return simulate(launched, gpu, clock="max", l2="warm").cycles

    return {"cycles_per_round": (cycles(48) - cycles(16)) / 32}


CASE = Case(
    name="shared_turns",
    question="What do loads and stores of global and shared memory take of one SM's stage when warps take turns at all?",
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict,
    groups={"rounds": Group(configs=configs, rank=3)},
    values={
        "cycles_per_round": "SM cycles from the first warp's begin to the last one's end, over rounds",
        "first_cycles_per_round": "the same to the first warp's end",
        **{
            f"eight_{idx}_cycles_per_round": f"the same to the end of the last of warps {8 * idx} to {8 * idx + 7}"
            for idx in range(WARPS // 8)
        },
    },
    tiers={"cycles_per_round": 4},
)  # fmt: skip
