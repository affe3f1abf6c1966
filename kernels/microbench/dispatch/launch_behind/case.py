"""What does a launch take that follows another at once, beyond what it takes by itself, and what of it is memory's?"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import import_module

import numpy as np

from gpusim import GpuSpec, simulate
from gpusim.evidence.cases.case import (
    Answer,
    Case,
    Group,
    KernelLaunch,
    Output,
    Outputs,
    WrongAnswer,
    kernel_folder,
    load_case,
)
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.validation_kernel import event_us, row_clock_mhz

streams = import_module(load_case("stream_grids").launch.__module__)
"""Their kernels, answers and twins are those of kernels/stream_grids."""
MIB = 2**20
WAYS = ((1, 0, 4), (0, 1, 4), (1, 1, 4), (2, 1, 2))
"""Arrays read, arrays written, vectors of a thread."""
SIZES = (8 * MIB, 64 * MIB, 256 * MIB)
SPINS, SPIN_THREADS = (10_000, 40_000), 256
GRIDS = (1, measured_gpu().num_sms, 8 * measured_gpu().num_sms)
CYCLES, WRITTEN = "sm__cycles_elapsed.max", "dram__bytes_write.sum"
METRICS = (
    CYCLES, "gpu__time_duration.sum", "dram__bytes_read.sum", WRITTEN, "sm__cycles_elapsed.avg.per_second",
    "sm__cycles_active.max",
)  # fmt: skip
SINGLE, SUSTAINED = "single_us", "sustained_us"


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    reads: int
    writes: int
    unrolled: int
    threads: int
    array_bytes: int
    num_ctas: int
    cycles: int


def behind() -> list[Config]:
    """Streams by what they move, and CTAs that do nothing for a while."""
    found: list[Config] = [
        Config(
            kernel=f"stream_r{reads}_w{writes}_u{unrolled}", reads=reads, writes=writes,
            unrolled=unrolled, threads=256, array_bytes=size, num_ctas=0, cycles=0,
        )
        for reads, writes, unrolled in WAYS for size in SIZES
    ]  # fmt: skip
    return found + Config.sweep(
        cycles=SPINS, num_ctas=GRIDS, kernel="spin", reads=0, writes=0, unrolled=0, threads=SPIN_THREADS, array_bytes=0
    )  # fmt: skip


def includes() -> dict[str, str]:
    """The streams."""
    return {"streams.inc": (kernel_folder("stream_grids") / "kernel.cu").read_text(encoding="utf-8")}


def launch(config: Config) -> KernelLaunch:
    """A stream, or so many CTAs that wait."""
    if config.kernel != "spin":
        found: KernelLaunch = streams.launch(config)
        return found
    num_ctas = config.num_ctas
    return KernelLaunch(
        kernel="spin", arguments=(np.uint32(config.cycles), Output("seen", np.zeros(num_ctas, dtype="<u4"))),
        grid=(num_ctas, 1, 1), block=(SPIN_THREADS, 1, 1),
    )  # fmt: skip


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """What was written, or how long each CTA has waited."""
    if config.kernel != "spin":
        found: dict[str, float] = streams.check(config, outputs)
        return found
    if (outputs["seen"] < config.cycles).any():
        raise WrongAnswer(f"a CTA has waited {outputs['seen'].min()} cycles")
    return {}


def predict_row(config: Config, row: Mapping[str, str], gpu: GpuSpec, names: Collection[str]) -> dict[str, Answer]:
    """A stream behind another of its kind, as counted and as timed, and one alone; of ``spin`` nothing."""
    if config.kernel == "spin":
        return {}
    found: dict[str, Answer] = {}
    twin = streams.twin(config)
    if {CYCLES, WRITTEN} & set(names) and row.get(CYCLES):
        counted = simulate(twin, gpu, clock=row_clock_mhz(row, gpu), l2="warm").counters
        found |= {name: Answer(value=counted[name]) for name in (CYCLES, WRITTEN) if name in names}
    for name, clock, l2 in ((SINGLE, "single", "cold"), (SUSTAINED, "sustained", "warm")):
        if name in names and row.get(name):
            alone_us = simulate(twin, gpu, clock=clock, l2=l2).time_us  # type: ignore[arg-type]  # words of this line
            beside_us = event_us(row, f"empty_{name}", gpu, l2=l2)  # type: ignore[arg-type]  # as above
            found[name] = Answer(value=alone_us + beside_us)
    return found


CASE = Case(
    name="launch_behind",
    question="What does a launch take that follows another at once, beyond what it takes by itself?",
    config_type=Config,
    groups={"behind": Group(configs=behind, metrics=METRICS, rank=4, times=("single", "sustained"))},
    launch=launch, check=check, predict_row=predict_row, tiers={CYCLES: 6, WRITTEN: 5, SINGLE: 7, SUSTAINED: 7},
    includes=includes,
)  # fmt: skip
