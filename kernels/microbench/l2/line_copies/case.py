"""How much crosses between L2's partitions, and comes from memory, where SMs of both read the same lines, or lines that others stored?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gpusim import simulate
from gpusim.evidence.cases.case import Case, Group, KernelLaunch, Output, Outputs, Repeated, Scratch
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.validate.microbenchmark_programs import parts_launch
from gpusim.kernel_models.elementwise import ElementwiseParams
from gpusim.machine.config import GpuSpec

KIB = 1024
PART_BYTES, PART_THREADS, CTAS_PER_SM, WAVES = 512 * KIB, 1024, 2, 12
NUM_SLOTS = CTAS_PER_SM * measured_gpu().num_sms
READ, MISS, CROSSED = (
    f"lts__t_sectors_srcunit_{name}.sum" for name in ("tex_op_read", "tex_lookup_miss", "ltcfabric")
)  # fmt: skip
FROM_MEMORY = "dram__bytes_read.sum"
METRICS = (READ, MISS, CROSSED, FROM_MEMORY)


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of a config. ``kib``: the footprint, or what is read."""

    kernel: str
    kib: int
    threads: int


def parts_configs() -> list[Config]:
    """Footprints from well inside of a partition to twice that."""
    mib = (16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 72)
    return Config.sweep(kernel="parts", kib=[KIB * each for each in mib], threads=PART_THREADS)


def stored_configs() -> list[Config]:
    """One to sixteen MiB in one launch after the other, by one to eight CTAs an SM."""
    return Config.sweep(kernel=("in_place", "apart"), kib=[KIB * each for each in (1, 4, 8, 16)], threads=(128, 256, 512, 1024))


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
            grid=(num_ctas, 1, 1), block=(config.threads, 1, 1),
        )  # fmt: skip
    elements = config.kib * KIB // 8
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            Scratch("in", config.kib * KIB), Output("out", np.arange(elements, dtype="<f8") * (config.kernel == "in_place")),
            np.uint32(elements), np.float64(1.0),
        ),
        grid=(elements // config.threads, 1, 1), block=(config.threads, 1, 1),
    )  # fmt: skip


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Rate in the middle half of the CTAs; every CTA has read its part, and every element is as it was."""
    if config.kernel != "parts":
        wanted = np.arange(len(outputs["out"]), dtype="<f8") * (config.kernel == "in_place")
        wrong_if((outputs["out"] != wanted).any(), "an element is not what it was")
        return {"gb_per_s": 0.0}
    num_parts = config.kib * KIB // PART_BYTES
    wrong_if((outputs["sums"] != part_sums(num_parts)[np.arange(WAVES * NUM_SLOTS) % num_parts]).any(), "a part has another sum")
    ends = np.sort(outputs["ends"].astype(np.int64))
    first, last = len(ends) // 4, len(ends) * 3 // 4
    wrong_if(ends[0] <= 0 or ends[last] == ends[first], "the timer did not run")
    return {"gb_per_s": float((last - first) * PART_BYTES / (ends[last] - ends[first]))}


def predict(config: Config, gpu: GpuSpec) -> Mapping[str, float]:
    """Counts of the same launch, with L2 as the harness leaves it."""
    if config.kernel == "parts":
        asked = {"threads": PART_THREADS, "ctas_per_sm": CTAS_PER_SM, "access_bytes": 8, "in_flight": 8}
        made = parts_launch(gpu, asked, footprint_bytes=config.kib * KIB, part_bytes=PART_BYTES)
        found = simulate(made(WAVES), gpu, clock="max", l2="cold").counters
        return {name: found[name] for name in (MISS, CROSSED, FROM_MEMORY)}
    options = {"op": "scale", "elements": 2 * config.kib * KIB // 8, "vector_bytes": 8, "threads": config.threads}
    found = simulate(
        ElementwiseParams.model_validate(options).launch(gpu), gpu, clock="max",
        l2="stored" if config.kernel == "in_place" else "warm",
    ).counters  # fmt: skip
    return {name: found[name] for name in (MISS, CROSSED)}


CASE = Case(
    name="line_copies",
    question=__doc__,
    config_type=Config,
    groups={
        "parts": Group(configs=parts_configs, metrics=METRICS, rank=3, is_cold=True),
        "stored": Group(configs=stored_configs, metrics=METRICS, rank=3),
    },
    launch=launch,
    check=check,
    predict=predict,
    values={"gb_per_s": "GB/s that the CTAs in the middle of the grid read together; 0 of one launch of elements"},
    num_repeats=5,
    tiers={MISS: 3, CROSSED: 3, FROM_MEMORY: 3},
)  # fmt: skip
