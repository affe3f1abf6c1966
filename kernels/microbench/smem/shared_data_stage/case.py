"""What do global loads and stores take of the stage that shared memory's loads pass?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim import GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Fitted, Group, KernelLaunch, Output, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

WARPS, LINES = 32, 64
NUM_ROUNDS = 256
KERNELS = (("load_hit", 0), *((kind, many) for kind in ("load_hit", "load_around", "store") for many in (1, 2, 4)))
WAYS = (1, 2, 4, 8, 16, 32)
TIMES = np.dtype([("begin", "<u4", WARPS), ("end", "<u4", WARPS), ("sum", "<u4", WARPS * 32)])
NUM_ROLES = 8
"""Of the twin: warps wait for their own loads, beside one another."""
ALU_OF_ROUND = 8
"""Integer instructions of a round, beside its sums. Source: SASS."""


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config; the entry point has the kind and number of global accesses of a round."""

    kernel: str
    ways: int


def configs() -> list[Row]:
    """Every kind and number of global accesses by ways of the two shared ones."""
    return Row.sweep(kernel=[f"{kind}_{many}" for kind, many in KERNELS], ways=WAYS)


def parts(config: Mapping[str, str]) -> tuple[str, int, int]:
    """(kind, global accesses of a round, ways).

    >>> parts({"kernel": "load_around_2", "ways": "8"})
    ('load_around', 2, 8)
    """
    kind, _, many = config["kernel"].rpartition("_")
    return kind, int(many), int(config["ways"])


def lines() -> np.ndarray[Any, np.dtype[np.uint32]]:
    """What lies in global memory beforehand."""
    return np.random.default_rng(5).integers(0, 1 << 20, (WARPS, LINES, 32), dtype=np.uint32)


def launch(config: Row) -> KernelLaunch:
    """One CTA."""
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            Output("lines", lines()), Output("times", np.zeros(1, dtype=TIMES)), np.uint32(config.ways),
            np.uint32(NUM_ROUNDS), np.uint32(0),
        ),
        block=(WARPS * 32, 1, 1),
    )  # fmt: skip


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Every thread's sum is what it should be, stores have landed; cycles of a round of all warps."""
    kind, many, ways = parts(config)
    held, lane = lines().astype(np.int64), np.arange(32)
    total = np.zeros((WARPS, 32), dtype=np.int64) + 2 * NUM_ROUNDS * lane * ways
    if kind == "load_hit":
        total += (NUM_ROUNDS + 1) * held[:, :many].sum(axis=1)
    elif kind == "load_around":
        at = np.arange(NUM_ROUNDS * many) % LINES
        total += held[:, at].sum(axis=1)
    times = outputs["times"][0]
    wrong_if((times["sum"].reshape(WARPS, 32) != total % (1 << 32)).any(), f"{config.kernel}: a thread's sum is wrong")
    if kind == "store":
        stored = min(LINES, NUM_ROUNDS * many)
        if (outputs["lines"].reshape(WARPS, LINES, 32)[:, :stored] != lane).any():
            raise WrongAnswer(f"{config.kernel}: a line does not hold what was stored")
    took = int((times["end"].astype(np.int64) - int(times["begin"].min())).max())
    return {"cycles_per_round": took / NUM_ROUNDS}


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """Rounds of all warps: the slope between two numbers of them."""
    kind, many, ways = parts(config)
    each = WARPS // NUM_ROLES
    line = AccessPattern(
        num_requests=many * each, num_sectors=4 * many * each, num_lines=many * each, num_wavefronts=many * each,
        num_bytes=128 * many * each,
    )  # fmt: skip
    near = AccessPattern(num_requests=2 * each, num_wavefronts=2 * ways * each, num_bytes=256 * each)

    def cycles(num_rounds: int) -> float:
        def program(_cta: RoleContext) -> Iterator[Any]:
            for _ in range(num_rounds):
                tokens = []
                yield ops.Alu(ALU_OF_ROUND + many)
                if many and kind == "store":
                    yield ops.GlobalStore("lines", (0, 0), line)
                elif many:
                    tokens.append((yield ops.GlobalLoad("lines", (0, 0), line, allocates_in_l1=kind == "load_hit")))
                tokens.append((yield ops.SharedLoad(near)))
                for token in tokens:
                    yield ops.Use(token)

        launched = Launch(
            kernel="shared_data_stage", num_ctas=1, num_tiles=1, extra_smem_bytes=4096,
            roles=tuple(WarpRole(name=f"warps{idx}", num_warps=each, program=program) for idx in range(NUM_ROLES)),
        )
        return simulate(launched, gpu, clock="max", l2="warm").cycles

    return {"cycles_per_round": (cycles(96) - cycles(32)) / 64}


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """Cycles of a round beyond one for each wavefront of shared memory's loads."""
    if not row.get("cycles_per_round"):
        return {}
    return {"excess_cycles": float(row["cycles_per_round"]) - 2 * WARPS * int(row["ways"])}


LEAST_WAYS = 8
"""From here on shared memory's loads fill their stage."""


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What a global load and a store take of the stage: cycles beyond the wavefronts of shared memory's loads."""
    found: list[Fitted] = []
    for name, kinds in (("load", ("load_hit", "load_around")), ("store", ("store",))):
        each = []
        for row in rows:
            kind, many, ways = parts(row)
            if kind in kinds and many and ways >= LEAST_WAYS and row.get("cycles_per_round"):
                each.append((float(row["cycles_per_round"]) - 2 * WARPS * ways) / (many * WARPS))
        how = f"global {name}s beside loads from shared memory of 8 ways and more: cycles for each, median"
        found += fitted(f"smem.global_{name}_wavefronts", each, how)
    return found


CASE = Case(
    name="shared_data_stage",
    question="What do global loads and stores take of the stage that shared memory's loads pass?",
    config_type=Row, launch=launch, check=check, num_repeats=5, predict=predict, fit=fit, derive=derive,
    groups={"rounds": Group(configs=configs, rank=3)},
    values={"cycles_per_round": "SM cycles from the first warp's begin to the last one's end, over rounds"},
    tiers={"cycles_per_round": 4},
)  # fmt: skip
