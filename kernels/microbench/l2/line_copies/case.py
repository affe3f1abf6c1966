"""What crosses between L2's partitions, and comes from memory, where SMs of both read or store the same lines?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gpusim import Launch, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Group, KernelLaunch, Output, Outputs, Repeated, Scratch, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.tile_walk import grid_include
from gpusim.evidence.validate.microbenchmark_programs import parts_launch
from gpusim.kernel_models.streaming import dense_access
from gpusim.machine.config import GpuSpec
from gpusim.units import WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext

KIB = 1024
THREADS, NUM_SMS = 1024, measured_gpu().num_sms
PART_BYTES, CTAS_PER_SM, WAVES = 512 * KIB, 2, 12
NUM_SLOTS = CTAS_PER_SM * NUM_SMS
STEP_BYTES, ROUNDS = 16 * THREADS, 24
FLAG_WORDS = 32 + 32 + 64 + 256
READ, MISS, CROSSED = (
    f"lts__t_sectors_srcunit_{name}.sum" for name in ("tex_op_read", "tex_lookup_miss", "ltcfabric")
)  # fmt: skip
FROM_MEMORY = "dram__bytes_read.sum"
METRICS = (READ, MISS, CROSSED, FROM_MEMORY)


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of a config. ``kib``: the footprint, or what a CTA reads in a round."""

    kernel: str
    kib: int
    is_moving: bool
    is_stored: bool


def parts_configs() -> list[Config]:
    """Footprints from well inside of a partition to twice that."""
    mib = (16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 72)
    return Config.sweep(kernel="parts", kib=[KIB * each for each in mib], is_moving=False, is_stored=False)


def turns_configs() -> list[Config]:
    """Two to thirteen MiB, by the same CTA or another one in each round, stored or read alone."""
    return Config.sweep(kernel="turns", kib=(16, 48, 96), is_moving=(False, True), is_stored=(False, True))


@cache
def words() -> NDArray[np.uint32]:
    """What parts repeat, uint32[32 Ki], which is no divisor of a part."""
    found = np.random.default_rng(7).integers(0, 1 << 32, 32 * KIB - 96, dtype=np.uint32)
    found.setflags(write=False)
    return found


@cache
def part_sums(num_parts: int) -> NDArray[np.uint32]:
    """Sums of the words of each part, uint32[num_parts]."""
    before = np.concatenate([np.zeros(1, np.uint64), np.cumsum(words().astype(np.uint64))])
    rounds, rest = np.divmod(np.arange(num_parts + 1, dtype=np.uint64) * np.uint64(PART_BYTES // 4), np.uint64(len(words())))
    return np.asarray(np.diff(rounds * before[-1] + before[rest.astype(np.int64)]) % (1 << 32)).astype(np.uint32)


def launch(config: Config) -> KernelLaunch:
    """A long grid of parts, or a thread for each element."""
    if config.kernel == "parts":
        num_ctas = WAVES * NUM_SLOTS
        return KernelLaunch(
            kernel=config.kernel,
            arguments=(
                Repeated(words(), config.kib * KIB), Output("sums", np.zeros(num_ctas, dtype="<u4")),
                Output("ends", np.zeros(num_ctas, dtype="<u8")), np.uint32(config.kib * KIB // PART_BYTES),
            ),
            grid=(num_ctas, 1, 1), block=(THREADS, 1, 1),
        )  # fmt: skip
    num_words = NUM_SMS * config.kib * KIB // 4
    plan = np.array([config.kib * KIB // STEP_BYTES, ROUNDS, config.is_moving, config.is_stored], dtype="<u4")
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            Output("data", np.arange(num_words, dtype="<u4")), Scratch("out", num_words * 4),
            Output("flags", np.zeros(FLAG_WORDS, dtype="<u4")), Output("cycles", np.zeros(NUM_SMS, dtype="<u4")),
            by_value(plan),
        ),
        grid=(NUM_SMS, 1, 1), block=(THREADS, 1, 1),
    )  # fmt: skip


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Rate in the middle half of a long grid, or a round's cycles; every CTA has read its part, and added to its words."""
    if config.kernel == "turns":
        wanted = np.arange(len(outputs["data"]), dtype="<u4") + np.uint32(ROUNDS * config.is_stored)
        wrong_if(outputs["flags"][1], "a wait was given up: CTAs did not meet")
        wrong_if((outputs["data"] != wanted).any(), "a word is not what all rounds make of it")
        return {"gb_per_s": 0.0, "round_cycles": float(np.median(outputs["cycles"]))}
    num_parts = config.kib * KIB // PART_BYTES
    sums = part_sums(num_parts)[np.arange(WAVES * NUM_SLOTS) % num_parts]
    wrong_if((outputs["sums"] != sums).any(), "a part has another sum")
    ends = np.sort(outputs["ends"].astype(np.int64))
    first, last = len(ends) // 4, len(ends) * 3 // 4
    wrong_if(ends[0] <= 0 or ends[last] == ends[first], "the timer did not run")
    return {"gb_per_s": float((last - first) * PART_BYTES / (ends[last] - ends[first])), "round_cycles": 0.0}


def predict(config: Config, gpu: GpuSpec) -> Mapping[str, float]:
    """Counts of the same launch, with L2 as the harness leaves it."""
    if config.kernel == "parts":
        asked = {"threads": THREADS, "ctas_per_sm": CTAS_PER_SM, "access_bytes": 8, "in_flight": 8}
        grid = parts_launch(gpu, asked, waves=WAVES, footprint_bytes=config.kib * KIB, part_bytes=PART_BYTES)
        found = simulate(grid, gpu, clock="max", l2="cold").counters
        return {name: found[name] for name in (MISS, CROSSED, FROM_MEMORY)}
    return {CROSSED: simulate(turns_launch(config), gpu, clock="max", l2="cold").counters[CROSSED]}


def turns_launch(config: Config) -> Launch:
    """All rounds. SMs do not meet, as all have as much to read."""
    access = dense_access(0, THREADS, 16)

    def program(cta: RoleContext) -> Iterator[ops.Op]:
        for turn in range(ROUNDS):
            share = (cta.cta_idx + config.is_moving * turn * (29 * turn + 7)) % NUM_SMS
            for step in range(config.kib * KIB // STEP_BYTES):
                yield ops.Use((yield ops.GlobalLoad("data", (share, step), access, allocates_in_l1=False)))
                yield ops.GlobalStore("data" if config.is_stored else "out", (share, step), access)

    return Launch(
        kernel="turns", num_ctas=NUM_SMS, num_tiles=NUM_SMS,
        roles=(WarpRole(name="warps", num_warps=THREADS // WARP_SIZE, program=program),),
    )  # fmt: skip


CASE = Case(
    name="line_copies",
    question=__doc__,
    config_type=Config,
    groups={
        "parts": Group(configs=parts_configs, metrics=METRICS, rank=3, is_cold=True),
        "turns": Group(configs=turns_configs, metrics=METRICS, rank=3),
    },
    launch=launch,
    check=check,
    predict=predict,
    values={
        "gb_per_s": "GB/s that the CTAs in the middle of a long grid read together; 0 of turns",
        "round_cycles": "SM cycles of the last round; median over CTAs; 0 of parts",
    },
    includes=grid_include,
    num_repeats=5,
    tiers={MISS: 4, CROSSED: 4, FROM_MEMORY: 4},
)  # fmt: skip
