"""How much of a row does L1 still hold when a CTA reads it again, and do stores between both readings take its place?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Launch, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Fitted, Group, KernelLaunch, Output, Outputs, Repeated, Scratch
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import check_words
from gpusim.evidence.cases.rows import number_in
from gpusim.evidence.cases.validation_kernel import PATTERN_BYTES, pattern_words
from gpusim.kernel_models.streaming import passes
from gpusim.machine.config import GpuSpec
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext

THREADS, VECTOR_BYTES = 512, 16
ROWS = 12
"""Rows of a CTA, one after the other: all but the first find L1 full of rows that nobody reads again."""
NUM_SMS = measured_gpu().num_sms
READ = "lts__t_sectors_srcunit_tex_op_read.sum"
OF_L1 = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
METRICS = (READ, OF_L1, "sm__cycles_elapsed.max")
NEAR_BYTES, MOST_CARVEOUT_PCT = (64 << 10, 192 << 10), 50
"""Bytes used between two readings, of rows that calibrate, around those at which half is lost; carveouts for them."""


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of a config: KiB of a row, CTAs an SM."""

    kernel: str
    row_kib: int
    ctas_per_sm: int
    carveout_pct: int = -1
    """Preferred share of shared memory, in percent of its maximum; -1 leaves it to the driver."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.row_kib * 1024

    @property
    def num_ctas(self) -> int:
        """CTAs of the grid."""
        return NUM_SMS * self.ctas_per_sm


def configs() -> list[Config]:
    """Rows from an eighth of L1 to more than all of it, alone and shared by two CTAs."""
    kernels = ("reread_alone", "reread_stores")
    alone = Config.sweep(kernel=kernels, row_kib=(16, 32, 64, 96, 128, 192, 256), ctas_per_sm=1)
    return alone + Config.sweep(kernel=kernels, row_kib=(16, 32, 64), ctas_per_sm=2)


def carveouts() -> list[Config]:
    """As little shared memory as possible, and as much."""
    kernels = ("reread_alone", "reread_stores")
    least = Config.sweep(kernel=kernels, row_kib=(64, 96, 128, 160, 192, 224), ctas_per_sm=1, carveout_pct=0)
    return least + Config.sweep(kernel="reread_alone", row_kib=(16, 32, 64, 96), ctas_per_sm=1, carveout_pct=100)


def launch(config: Config) -> KernelLaunch:
    """A grid of one wave."""
    num_bytes = config.num_ctas * ROWS * config.row_bytes
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            Repeated(pattern_words(0), num_bytes), Scratch("out", num_bytes),
            Output("sums", np.zeros(config.num_ctas * THREADS, dtype="<u4")),
            np.uint32(config.row_bytes // VECTOR_BYTES), np.uint32(ROWS),
        ),
        grid=(config.num_ctas, 1, 1), block=(THREADS, 1, 1),
        carveout_pct=None if config.carveout_pct < 0 else config.carveout_pct,
    )  # fmt: skip


@cache
def vector_sums() -> NDArray[np.uint32]:
    """Sum of each vector of the input's repeated part, modulo 2^32."""
    return pattern_words(0).reshape(-1, VECTOR_BYTES // 4).sum(axis=1, dtype=np.uint32)


def wanted(config: Config) -> NDArray[np.uint32]:
    """Sums of all threads: each vector once, and three times from the second reading."""
    vectors = config.row_bytes // VECTOR_BYTES
    begins = np.arange(config.num_ctas, dtype=np.int64)[:, None] * ROWS * vectors + np.arange(THREADS)
    found = np.zeros(begins.shape, dtype=np.uint32)
    for row in range(ROWS):
        for first in range(0, vectors, THREADS):
            found += vector_sums()[(begins + row * vectors + first) % (PATTERN_BYTES // VECTOR_BYTES)]
    return (4 * found).reshape(-1)


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """All sums."""
    check_words(outputs["sums"], wanted(config), config.kernel)
    return {}


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """Share of the second reading that L1 serves."""
    config = Config.of(row)
    sectors = config.num_ctas * ROWS * config.row_bytes / 32
    return {"hit_share": 2.0 - number_in(row, READ) / sectors} if row.get(READ) else {}


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Sectors of L1 and of L2 when CTAs walk their rows in the model."""
    loads = passes(0, config.row_bytes // VECTOR_BYTES, THREADS, VECTOR_BYTES)

    def program(cta: RoleContext) -> Iterator[Any]:
        for row in range(ROWS):
            tile = cta.cta_idx * ROWS + row
            for is_again in (False, True):
                for step, access in enumerate(loads):
                    yield ops.Use((yield ops.GlobalLoad("in", (tile, step), access)))
                    yield ops.Alu(8.0)
                yield ops.Syncthreads()
                if not is_again and config.kernel == "reread_stores":
                    for step, access in enumerate(loads):
                        yield ops.GlobalStore("out", (tile, step), access)

    launched = Launch(
        kernel="row_rereads", num_ctas=config.num_ctas, num_tiles=config.num_ctas, registers_per_thread=32,
        roles=(WarpRole(name="rows", num_warps=THREADS // 32, program=program),),
    )  # fmt: skip
    counters = simulate(launched, gpu, clock="max").counters
    return {name: float(counters[name]) for name in (READ, OF_L1)}


def used_bytes(config: Config) -> int:
    """Bytes that an SM loads or stores from the first reading of a vector to the second."""
    return config.row_bytes * config.ctas_per_sm * (1 + (config.kernel == "reread_stores"))


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """A line through the logits of what L1 has lost, over the bytes used since: where it passes one half, and its slope."""
    lost = [
        (used_bytes(config), 1.0 - derive(row)["hit_share"])
        for row in rows if row.get(READ) and (config := Config.of(row)).carveout_pct < MOST_CARVEOUT_PCT
    ]  # fmt: skip
    near = [(used, share) for used, share in lost if NEAR_BYTES[0] <= used <= NEAR_BYTES[1] and 0.0 < share < 1.0]
    if len({used for used, _ in near}) < 2:
        return []
    used, share = np.array(near).T
    slope, begin = np.polyfit(used, np.log(share / (1.0 - share)), 1)
    half = float(-begin / slope)
    how = "line through the logits of what L1 has lost of rows with 64 to 192 KiB used since, stores count as loads: "
    return [
        Fitted(parameter="l1.half_kept_bytes", value=half, how=how + "where it passes one half"),
        Fitted(parameter="l1.eviction_width_fraction", value=1.0 / float(slope) / half, how=how + "bytes of a logit"),
    ]


CASE = Case(
    name="row_rereads",
    question=__doc__,
    config_type=Config,
    groups={
        "rows": Group(configs=configs, metrics=METRICS, rank=3),
        "carveouts": Group(configs=carveouts, metrics=METRICS, rank=3),
    },
    launch=launch, check=check, predict=predict, derive=derive, fit=fit, tiers={READ: 5, OF_L1: 5},
)  # fmt: skip
