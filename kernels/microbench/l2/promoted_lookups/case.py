"""What does L2 count as looked up, found and missed where a request takes less of a line than L2 fetches?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, Launch, Mbarrier, WarpRole, simulate
from gpusim.evidence.cases.case import (
    Argument,
    Case,
    Fitted,
    Group,
    KernelLaunch,
    Limit,
    MappedTensor,
    Output,
    Outputs,
    Repeated,
    Scratch,
    by_value,
)
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.tile_walk import random_words
from gpusim.machine.config import GpuSpec
from gpusim.workload import ops
from gpusim.workload.dtypes import BF16
from gpusim.workload.gmem.line_fetches import unasked_fraction
from gpusim.workload.launch import Footprint, RoleContext
from gpusim.workload.tma.boxes import TensorMap

NUM_CTAS, NUM_THREADS = measured_gpu().num_sms, 256
"""Whose slices are asked."""
ROWS = 128
ACROSS_BYTES = 4096
"""Of each row that a CTA walks."""
PITCH = ACROSS_BYTES + 128
TILE_BYTES, NUM_STAGES = 128 * 128, 4
SMEM_BYTES = min(192 << 10, measured_gpu().smem_per_cta_bytes - (16 << 10))
"""So that an SM has one CTA; the ring takes a third of it."""
NUM_WORDS = 1_000_003
"""After which memory has the same words again: a prime, so that no two tiles are alike."""
HIT_RATE, TEX_MISSES = "lts__t_sector_hit_rate.pct", "lts__t_sectors_srcunit_tex_lookup_miss.sum"
METRICS = (
    HIT_RATE, "lts__t_sectors.sum", "lts__t_sectors_lookup_hit.sum", "lts__t_sectors_lookup_miss.sum",
    "lts__t_sectors_lookup_miss_data_promoted.sum", "lts__t_sectors_srcunit_tex.sum",
    "lts__t_sectors_srcunit_tex_op_read.sum", TEX_MISSES, "lts__t_sectors_srcunit_ltcfabric.sum",
    "lts__t_sectors_srcunit_ltcfabric_lookup_miss.sum", "dram__bytes_read.sum",
)  # fmt: skip
SOURCES = (
    "lts__t_sectors_srcnode_gpc.sum", "lts__t_sectors_srcunit_gcc.sum", "lts__t_sectors_srcunit_l1.sum",
    "lts__t_sectors_op_read.sum", "lts__t_sectors_op_write.sum", "lts__t_sectors_op_atom.sum", "lts__t_sectors_op_red.sum",
)  # fmt: skip
"""Of launches that ask for little, who else does."""


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    fetch: str = "none"
    row_bytes: int = 0
    first_byte: int = 0
    ahead: int = 0
    sharers: int = 0
    mib: int = 0
    cycles: int = 0


def walk(how: str, fetch: str, row_bytes: int, first_byte: int, ahead: int = 1, sharers: int = 1) -> Config:
    """A launch that walks rows; ``fetch``: what L2 is asked to take of memory at least, bytes, or ``none``."""
    kernel = "walk_tma" if how == "tma" else f"walk_{how}_{fetch}"
    return Config(kernel, fetch, row_bytes, first_byte, ahead, sharers)


FETCHES = ("none", "64", "128", "256")
BY_TMA = ("tma",) if measured_gpu().has_clusters else ()


def own() -> list[Config]:
    """Rows that one CTA alone walks: who asks, for how much of a row, from where, and how many steps at once."""
    return [
        walk(how, fetch, row_bytes, first, ahead) for how in (*BY_TMA, "cp", "ld") for fetch in FETCHES
        for ahead in ((1,) if how == "ld" else (1, 4)) for row_bytes in (32, 64, 128) for first in (0, 32)
    ]  # fmt: skip


def shared() -> list[Config]:
    """Rows that twelve CTAs walk, of both sides of L2."""
    return [
        walk(how, fetch, row_bytes, first, 4, 12) for how in (*BY_TMA, "cp") for fetch in ("none", "128", "256")
        for row_bytes in (64, 128) for first in (0, 32)
    ]  # fmt: skip


def others() -> list[Config]:
    """Streams, and launches that ask for nothing."""
    spins = Config.sweep(cycles=(1000, 100_000, 1_000_000), kernel="spin")
    return [*spins, *(Config(kernel, mib=mib) for kernel in ("copy_words", "fill_words") for mib in (1, 16, 128, 512))]


def words() -> NDArray[np.uint32]:
    """Words that look random; copied to the GPU once."""
    return random_words(4 * NUM_WORDS)


def num_panels(config: Config) -> int:
    """Different ones."""
    return -(-NUM_CTAS // config.sharers)


def launch(config: Config) -> KernelLaunch:
    """The same launch under the profiler as without."""
    plan = np.zeros(8, dtype="<u4")
    if config.kernel.startswith("walk"):
        row_bytes = config.row_bytes
        plan[:7] = (ROWS, row_bytes, ACROSS_BYTES // row_bytes, config.ahead, config.first_byte, config.sharers, PITCH)
        repeated = Repeated(words(), num_panels(config) * ROWS * PITCH)
        memory: Argument = repeated
        if config.kernel == "walk_tma":
            promotion = "none" if config.fetch == "none" else f"{config.fetch}B"
            memory = MappedTensor(repeated, TensorMap(
                dtype=BF16, global_dim=(PITCH // 2, num_panels(config) * ROWS), global_strides_bytes=(PITCH,),
                box_dim=(row_bytes // 2, ROWS), swizzle="none", l2_promotion=promotion,
            ))  # fmt: skip
        arguments: tuple[Argument, ...] = (by_value(plan), memory, Output("told", np.full((NUM_CTAS, 2), -1, dtype="<i4")))
    else:
        num_bytes = config.mib << 20
        plan.view("<u8")[3] = config.cycles or num_bytes // 16
        arguments = (by_value(plan), Repeated(words(), max(num_bytes, 1 << 16)), Scratch("to", max(num_bytes, 1 << 16)))
    return KernelLaunch(
        kernel=config.kernel, arguments=arguments, grid=(NUM_CTAS, 1, 1), block=(NUM_THREADS, 1, 1), smem_bytes=SMEM_BYTES,
    )  # fmt: skip


@lru_cache(maxsize=4)
def sums(first_byte: int, panels: int) -> tuple[int, ...]:
    """Of each panel, the sum, modulo 2^32, of its words from ``first_byte`` of each row on."""
    columns = first_byte // 4 + np.arange(ACROSS_BYTES // 4)
    rows = np.arange(ROWS)[:, None] * (PITCH // 4)
    return tuple(
        int(words()[(panel * ROWS * (PITCH // 4) + rows + columns) % NUM_WORDS].sum(dtype=np.uint64)) % 2**32
        for panel in range(panels)
    )


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Every CTA has read its panel."""
    if not config.kernel.startswith("walk"):
        return {}
    told = np.asarray(outputs["told"]).astype(np.int64) % 2**32
    wrong_if(told[:, 1].any(), "a wait was given up: a tile never came")
    expected = sums(config.first_byte, num_panels(config))
    for cta, (found, _) in enumerate(told.tolist()):
        wanted = expected[cta // config.sharers]
        wrong_if(found != wanted, f"the rows of CTA {cta} have words that sum up to {found}, not {wanted}")
    return {}


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """Misses that were asked for, over all that L2 looked up; what else but SMs and the other side asks for."""
    names = [name for name in METRICS[1:10] if not row.get(name)]
    if names:
        return {}
    found: dict[str, Any] = {name: float(row[name]) for name in METRICS[1:10]}
    asked = found["lts__t_sectors_srcunit_tex.sum"] + found["lts__t_sectors_srcunit_ltcfabric.sum"]
    missed = found["lts__t_sectors_lookup_miss.sum"]
    return {
        "hit_pct_of_all_misses": 100.0 * (1.0 - missed / found["lts__t_sectors.sum"]), "hit_pct_without_promoted":
            100.0 * (1.0 - (missed - found["lts__t_sectors_lookup_miss_data_promoted.sum"]) / found["lts__t_sectors.sum"]),
        "others_sectors": found["lts__t_sectors.sum"] - asked,
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------- parameters
def fit(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[Fitted]:
    """What is looked up besides what SMs and the other side ask for: in the shortest launch, and for each SM and slice."""
    counted = [dict(row) | derive(row) for row in rows if derive(row)]
    idle = min((row for row in counted if row["kernel"] == "spin"), key=lambda row: int(row["cycles"]), default=None)
    if idle is None:
        return []
    asked = float(idle["lts__t_sectors_srcunit_tex.sum"]) + float(idle["lts__t_sectors_srcunit_ltcfabric.sum"])
    missed = float(idle[TEX_MISSES]) + float(idle["lts__t_sectors_srcunit_ltcfabric_lookup_miss.sum"])
    launched = float(idle["others_sectors"])
    found = [
        Fitted(
            parameter="l2.launch_lookup_sectors", value=launched,
            how="a launch that does nothing for 1000 cycles: what neither SMs nor the other side look up",
        ),
        Fitted(
            parameter="l2.launch_hit_sectors", value=float(idle["lts__t_sectors_lookup_hit.sum"]) - (asked - missed),
            how="a launch that does nothing for 1000 cycles: hits less what SMs and the other side find",
        ),
    ]  # fmt: skip
    places = NUM_CTAS * gpu.l2.num_slices
    told = [(float(row["others_sectors"]) - launched) / places for row in counted if row["group"] == "own"]
    if told:
        found.append(Fitted(
            parameter="l2.slice_lookup_sectors", value=median(told),
            how="walks of panels of one's own: what neither SMs nor the other side look up, less that of a launch that does "
            "nothing, over SMs and slices: median",
        ))  # fmt: skip
    return found


# ---------------------------------------------------------------------------------------------- the simulator's answer
def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The hit rate, and what SMs miss, of walks by TMA: counts do not depend on who walks.

    No answer where a line's neighbour comes along and several steps walk them.
    """
    is_answered = config.kernel == "walk_tma" and (config.row_bytes == 128 or config.fetch != "256")
    if not is_answered or gpu.mbarrier is None or gpu.num_sms < NUM_CTAS:
        return {}
    row_bytes, first_byte, sharers, stages = config.row_bytes, config.first_byte, config.sharers, config.ahead
    fetch_bytes = max(gpu.l2.fetch_bytes, 0 if config.fetch == "none" else int(config.fetch))
    num_steps, tile_bytes = ACROSS_BYTES // row_bytes, ROWS * row_bytes

    def program(cta: RoleContext) -> Iterator[Any]:
        panel = cta.cta_idx // sharers
        for step in range(num_steps + stages):
            if step >= stages:
                yield ops.MbarrierWait("full", step % stages, step // stages - 1 & 1)
            if step < num_steps:
                yield ops.MbarrierArriveExpectTx("full", step % stages, tile_bytes)
                yield ops.TmaLoad(
                    "T", (panel, step), tile_bytes, tile_bytes, ROWS, "ring", step % stages, "full",
                    promoted_tiles=((panel, step ^ 1),) if fetch_bytes == 2 * row_bytes == 256 else (),
                )  # fmt: skip

    edges = np.arange(0, ACROSS_BYTES + row_bytes, row_bytes)
    launched = Launch(
        kernel="walk", num_ctas=NUM_CTAS, num_tiles=NUM_CTAS, roles=(WarpRole(name="loader", num_warps=1, program=program),),
        buffers=(Buffer(name="ring", stage_bytes=tile_bytes, num_stages=stages),
                 Buffer(name="rest", stage_bytes=SMEM_BYTES - stages * tile_bytes)),
        mbarriers=(Mbarrier(name="full", num_stages=stages, num_arrivals=1),),
        footprints=(Footprint(
            tensor="T", access="read", panel_of=lambda tiles: tiles // sharers,
            panel_bytes=lambda tiles: np.full(len(tiles), ROWS * ACROSS_BYTES), num_steps=num_steps,
            unasked=lambda block_bytes: unasked_fraction(
                np.array([first_byte]), edges, min(128, max(block_bytes, fetch_bytes))
            ),
        ),),
    )  # fmt: skip
    counters = simulate(launched, gpu, clock="max").counters
    return {name: counters[name] for name in (HIT_RATE, TEX_MISSES)}


CASE = Case(
    name="promoted_lookups",
    question=__doc__,
    config_type=Config,
    groups={
        "own": Group(configs=own, metrics=METRICS, rank=4, is_cold=True),
        "shared": Group(configs=shared, metrics=METRICS, rank=4, is_cold=True),
        "others": Group(configs=others, metrics=(*METRICS, *SOURCES), rank=4, is_cold=True),
    },
    launch=launch, check=check, predict=predict, fit=fit, tiers={HIT_RATE: 5, TEX_MISSES: 5},
    limits={HIT_RATE: Limit(mean_pct=3.0, is_points=True)}, derive=derive,
)  # fmt: skip
"""Walks along rows: what is asked for, what counts as an answer."""
