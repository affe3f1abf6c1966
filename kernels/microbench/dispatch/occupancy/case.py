"""How many CTAs does an SM hold at once? Threads, registers, shared memory; counted, and as the driver works it out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LaunchError
from gpusim.evidence.cases.case import Case, Group, Input, KernelLaunch, Output, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.machine.config import GpuSpec
from gpusim.machine.sm.occupancy import Occupancy, occupancy

REGISTERS = (24, 32, 33, 40, 41, 48, 56, 57, 64, 65, 72, 80, 88, 96, 97, 104, 112, 120, 128, 129, 144, 160, 168, 169, 184,
             192, 208, 224, 240, 255)  # fmt: skip
"""Entry points of kernel.cu; each uses exactly so many, as its cubin says."""
THREADS = (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 384, 416, 512, 640, 768, 1024)
KIB = 1024
SMEM_PER_SM_BYTES, MOST_SMEM_BYTES = measured_gpu().smem_per_sm_bytes, measured_gpu().smem_per_cta_bytes
"""Of compute capability 9.0."""
NUM_REGISTERS = 65536
MAX_SMS = 160
"""Room for counts; more than any GPU that is described."""
CTAS_PER_SM = 34
"""More than any SM takes."""
NUM_SMS, LEAST_SMS = measured_gpu().num_sms, 100
NUM_WORDS = 300
"""Floats that a thread loads; as in kernel.cu."""

METRICS = (
    "sm__cycles_elapsed.max", "launch__registers_per_thread", "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem", "launch__occupancy_limit_warps", "launch__occupancy_limit_blocks",
    "launch__occupancy_limit_barriers",
)  # fmt: skip
"""The profiler asks the driver's calculator. The first is there so that something is asked for where it has no others."""


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    threads: int
    registers: int
    smem_bytes: int

    @property
    def kernel(self) -> str:
        """Entry point."""
        return f"hold_{self.registers}"


def answer(config: Config, gpu: GpuSpec) -> Occupancy | None:
    """What the simulator's rule says; None where no CTA fits."""
    try:
        return occupancy(
            gpu, kernel="hold", num_threads=config.threads, registers_per_thread=config.registers,
            smem_bytes=config.smem_bytes,
        )  # fmt: skip
    except LaunchError:
        return None


def _fits(config: Config) -> bool:
    """Whether one CTA fits: a launch that does not is no measurement. The hardware checks whole rows of four warps."""
    threads, registers = config.threads, config.registers
    whole_threads = -(-threads // 128) * 128
    fits_smem = config.smem_bytes <= MOST_SMEM_BYTES
    return whole_threads * (-(-registers // 8) * 8) <= NUM_REGISTERS and fits_smem


def by_registers() -> list[Config]:
    """Threads by registers, without shared memory."""
    found = Config.sweep(registers=REGISTERS, threads=THREADS, smem_bytes=0)
    return [config for config in found if _fits(config)]


def by_smem() -> list[Config]:
    """Shared memory: whole KiB, and around the sizes at which another CTA just fits."""
    sizes = {kib * KIB for kib in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 100, 113, 128, 164, 200, 227)}
    for ctas in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32):
        edge = SMEM_PER_SM_BYTES // ctas // 128 * 128 - KIB  # what each of so many may ask for
        sizes |= {edge - 128, edge - 1, edge, edge + 1, edge + 128}
    return [
        Config(threads, 32, size) for threads in (32, 128, 256) for size in sorted(sizes) if 0 <= size <= MOST_SMEM_BYTES
    ]  # fmt: skip


def drawn(seed: int) -> list[Config]:
    """Threads, registers and shared memory at random."""
    rng = np.random.default_rng(seed)
    found: dict[tuple[int, int, int], Config] = {}
    while len(found) < 200:
        threads, registers = int(rng.choice(THREADS)), int(rng.choice(REGISTERS))
        smem_bytes = int(rng.integers(0, MOST_SMEM_BYTES // int(rng.integers(1, 17)) + 1))
        config = Config(threads, registers, smem_bytes)
        if _fits(config):
            found[threads, registers, smem_bytes] = config
    return list(found.values())


@cache
def words() -> NDArray[np.float32]:
    """What threads load; copied to the GPU once."""
    made = np.random.default_rng(0).standard_normal(NUM_WORDS).astype(np.float32)
    made.setflags(write=False)
    return made


def wanted_sum() -> np.float32:
    """What a thread makes of the words, each step rounded once."""
    total = 0.0
    for word in words()[::-1]:
        total = float(np.float32(total * 0.5 + float(word)))  # exact in 64 bits before it is rounded
    return np.float32(total)


def launch(config: Config) -> KernelLaunch:
    """More CTAs than the GPU holds; each stays until all that fit have come."""
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            Output("here", np.zeros(MAX_SMS, dtype="<u4")), Output("most", np.zeros(MAX_SMS, dtype="<u4")),
            Output("started_at", np.zeros(1, dtype="<u8")), Input(words()), Output("sum", np.full(1, np.nan, dtype="<f4")),
        ),
        grid=(NUM_SMS * CTAS_PER_SM, 1, 1), block=(config.threads, 1, 1), smem_bytes=config.smem_bytes, carveout_pct=100,
    )  # fmt: skip


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """CTAs that an SM held at once."""
    del config
    if outputs["here"].any():
        raise WrongAnswer(f"{int(outputs['here'].sum())} CTAs never left")
    total = outputs["sum"][0]
    if not np.isclose(total, wanted_sum(), rtol=1e-5, atol=1e-6):
        raise WrongAnswer(f"the values add up to {total}, not {wanted_sum()}")
    most = outputs["most"].astype(np.int64)
    most = most[most > 0]
    if len(most) < LEAST_SMS:
        raise WrongAnswer(f"only {len(most)} SMs held a CTA")
    return {
        "resident_ctas": float(np.median(most)), "least_resident_ctas": float(most.min()),
        "most_resident_ctas": float(most.max()),
    }  # fmt: skip


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Residents, and what each resource alone would admit."""
    held = answer(config, gpu)
    if held is None:
        return {}
    return {
        "resident_ctas": float(held.ctas_per_sm), "least_resident_ctas": float(held.ctas_per_sm),
        "most_resident_ctas": float(held.ctas_per_sm), "launch__registers_per_thread": float(config.registers),
        "launch__occupancy_limit_registers": float(held.limits["registers"]),
        "launch__occupancy_limit_shared_mem": float(held.limits["smem"]),
        "launch__occupancy_limit_warps": float(min(held.limits["warps"], held.limits["threads"])),
        "launch__occupancy_limit_blocks": float(held.limits["ctas"]),
    }  # fmt: skip


CASE = Case(
    name="occupancy",
    question="How many CTAs does an SM hold at once, by threads, registers and shared memory?",
    config_type=Config,
    groups={
        "by_registers": Group(configs=by_registers, metrics=METRICS, rank=6),
        "by_smem": Group(configs=by_smem, metrics=METRICS, rank=6),
        "drawn": Group(configs=drawn, metrics=METRICS, rank=7),
    },
    launch=launch, check=check,
    values={
        "resident_ctas": "CTAs that an SM held at once, the median of the SMs",
        "least_resident_ctas": "the least of the SMs",
        "most_resident_ctas": "the most of the SMs",
    },
    predict=predict,
    tiers={
        "resident_ctas": 3, "least_resident_ctas": 3, "most_resident_ctas": 3, "launch__occupancy_limit_registers": 3,
        "launch__occupancy_limit_shared_mem": 3, "launch__occupancy_limit_warps": 3, "launch__occupancy_limit_blocks": 3,
    },
)  # fmt: skip
