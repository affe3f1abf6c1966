"""When do two stores of half a sector each become one sector, and what does L2 count for a reduction?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Launch, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Group, KernelLaunch, Output, Outputs, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import check_words
from gpusim.evidence.cases.rows import number_in
from gpusim.machine.config import GpuSpec
from gpusim.workload import ops
from gpusim.workload.gmem.global_access import global_access
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

ROW_BYTES = 128
"""Of a warp's own, stored as pieces of four lanes."""
NUM_GROUPS = 8
"""Of eight rows each, of a CTA."""
NUM_ROUNDS = 8
ONE_EACH = measured_gpu().num_sms
KERNELS = ("store_1_0", "store_2_0", "store_4_0", "store_8_0", "store_8_40", "store_8_100", "store_8_300")
"""Pieces one after the other, and cycles of a pause before each."""
GRIDS = ((1, 1), (2, 1), (4, 1), (8, 1), (8, ONE_EACH))
"""Warps a CTA, CTAs."""

CYCLES = "sm__cycles_elapsed.max"
WRITE = "lts__t_sectors_srcunit_tex_op_write.sum"
REQUESTS = "lts__t_requests_srcunit_tex_op_write.sum"
READ = "lts__t_sectors_srcunit_tex_op_read.sum"
ALL = "lts__t_sectors_srcunit_tex.sum"
RED = "lts__t_sectors_op_red.sum"
OF_L1 = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
METRICS = (WRITE, REQUESTS, READ, ALL, RED, OF_L1, "lts__t_sectors_srcunit_ltcfabric.sum", CYCLES)


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    num_warps: int
    num_ctas: int
    num_apart: int = 1
    shift_bytes: int = 0
    pitch_bytes: int = 0
    """Bytes from row to row of a CTA; 0: adjacent rows."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "pitch_bytes", self.pitch_bytes or self.num_warps * ROW_BYTES)


def stores() -> list[Config]:
    """How far apart two halves are: unrolled or not, with a pause, with stores between them, with warps beside them."""
    found = [Config(kernel, num_warps=warps, num_ctas=ctas) for warps, ctas in GRIDS for kernel in KERNELS]
    found += Config.sweep(num_warps=(1, 4, 8), kernel=KERNELS, num_ctas=1, pitch_bytes=4096)
    return found + Config.sweep(num_warps=(1, 8), kernel=("store_1_0", "store_2_0"), num_apart=(2, 4, 8), num_ctas=1)


def shifted() -> list[Config]:
    """Rows that begin in the midst of a sector: all of them, or every second."""
    return [
        Config(kernel, num_warps=8, num_ctas=ctas, shift_bytes=shift, pitch_bytes=8 * ROW_BYTES + beyond)
        for (shift, beyond), ctas, kernel in product(
            ((16, 32), (0, 16), (0, 48)), (1, ONE_EACH), ("store_1_0", "store_2_0", "store_8_0")
        )
    ]  # fmt: skip


def reductions() -> list[Config]:
    """Half a sector, or a whole one, of each row."""
    return [
        Config(kernel, num_warps=warps, num_ctas=ctas, num_apart=distance)
        for kernel in ("red_4", "red_8") for (warps, ctas), distance in product(((1, 1), (8, 1), (8, ONE_EACH)), (1, 8))
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- what is launched
def lane_bytes(config: Config) -> int:
    """Of a store."""
    return 8 if config.kernel == "red_8" else 4


def num_pieces(config: Config) -> int:
    """Of a row of a warp, one after the other."""
    return ROW_BYTES // (4 * lane_bytes(config))


def num_bytes(config: Config) -> int:
    """Of the buffer: all rows, and what the last begins behind."""
    rows = config.num_ctas * NUM_GROUPS * 8
    return rows * config.pitch_bytes + 128


def launch(config: Config) -> KernelLaunch:
    """All warps walk their rows, over and over."""
    walk = [config.pitch_bytes, config.shift_bytes, num_pieces(config), NUM_GROUPS, config.num_apart, NUM_ROUNDS]
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(Output("buffer", np.zeros(num_bytes(config) // 4, dtype="<u4")), by_value(np.array(walk, dtype="<u4"))),
        grid=(config.num_ctas, 1, 1), block=(config.num_warps * 32, 1, 1),
    )  # fmt: skip


def wanted(config: Config) -> NDArray[np.uint32]:
    """What the buffer holds behind a launch."""
    held = np.zeros(num_bytes(config) // 4, dtype="<u4")
    rows, pitch, shift = config.num_ctas * NUM_GROUPS * 8, config.pitch_bytes, config.shift_bytes
    along = (shift + np.arange(0, config.num_warps * ROW_BYTES, 4)) // 4
    words = (np.arange(rows)[:, None] * (pitch // 4) + along).reshape(-1)
    if config.kernel.startswith("store"):
        held[words] = (words * 0x9E3779B1 + NUM_ROUNDS - 1).astype(np.uint32)
    else:
        held[words] = np.array(NUM_ROUNDS, dtype="<f4").view("<u4")
    return held


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Every word is what the last round leaves there."""
    check_words(outputs["buffer"], wanted(config), config.kernel)
    return {"asked_bytes": float(asked_bytes(config))}


def asked_bytes(config: Config) -> int:
    """That are stored or added to."""
    return config.num_ctas * NUM_GROUPS * 8 * config.num_warps * ROW_BYTES * NUM_ROUNDS


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """Sectors that L2 writes for each that is stored."""
    return {"written_fraction": number_in(row, WRITE) * 32 / asked_bytes(Config.of(row))} if row.get(WRITE) else {}


# ---------------------------------------------------------------------------------------------- the twin
def group_of(config: Config) -> AccessPattern:
    """What the warps of a CTA store at a time: eight rows of four lanes each."""
    size, pitch = lane_bytes(config), config.pitch_bytes
    lane, warp = np.arange(32), np.arange(config.num_warps)[:, None]
    first = config.shift_bytes + warp * ROW_BYTES + lane // 4 * pitch + lane % 4 * size
    return global_access(first, size)


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """All warps walk the same way."""
    access, num = group_of(config), num_pieces(config) * NUM_GROUPS
    is_store = config.kernel.startswith("store")

    def program(cta: RoleContext) -> Iterator[Any]:
        for _ in cta.loop(num * NUM_ROUNDS):
            yield ops.Alu(10.0)
            tile = (cta.cta_idx, 0)
            yield ops.GlobalStore("buffer", tile, access) if is_store else ops.GlobalAtomic("buffer", tile, access)

    launched = Launch(
        kernel="half_stores", num_ctas=config.num_ctas, num_tiles=config.num_ctas, registers_per_thread=32,
        roles=(WarpRole(name="walk", num_warps=config.num_warps, program=program),),
    )  # fmt: skip
    result = simulate(launched, gpu, clock="max")
    return {name: float(result.counters[name]) for name in (WRITE, READ, RED) if name in result.counters}


CASE = Case(
    name="half_stores",
    question="When do two stores of half a sector each become one sector, and what does L2 count for a reduction?",
    config_type=Config,
    groups={
        "stores": Group(configs=stores, metrics=METRICS, rank=3), "shifted": Group(configs=shifted, metrics=METRICS, rank=3),
        "reductions": Group(configs=reductions, metrics=METRICS, rank=3, least_capability=(9, 0)),
    },
    launch=launch, check=check,
    values={"asked_bytes": "bytes that are stored or added to, all rounds"},
    predict=predict, derive=derive, tiers={WRITE: 5},
)  # fmt: skip
