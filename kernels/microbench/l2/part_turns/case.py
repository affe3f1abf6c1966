"""Who gets how much of L2 where all SMs ask for more than it gives, by what each has asked for and not got?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, Launch, Mbarrier, WarpRole, load_gpu, simulate
from gpusim.evidence.cases.case import Case, Group, KernelLaunch, MappedTensor, Output, Outputs, Repeated, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.tile_walk import grid_include, random_words, sum_of_random_words
from gpusim.machine.config import GpuSpec
from gpusim.machine.memory.gpc_ports import parts_of_gpcs
from gpusim.workload import ops
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.tma.boxes import TensorMap

KIB = 1024
NUM_SMS = 132
GPU = "h200_sxm"
"""By whose floor plan SMs are sorted into parts of GPCs; that of all GPUs of 132 SMs."""
TILE_BYTES, ROW_BYTES = 16 * KIB, 128
NUM_WARPS = 16
SM_BYTES = 192 * KIB
"""What the CTAs of an SM walk over."""
SMEM_BYTES = {1: 200 * KIB, 2: 100 * KIB, 3: 66 * KIB}
"""Of a CTA, by how many an SM has: no more of them find room."""
MOST_SLOTS = 12
WARM, TIMED, BEHIND = 64, 400, 256
WAYS = ("cp_async", "tma")


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    ctas: int
    slots: int


def own() -> list[Config]:
    """Each SM its own tiles: as many slots as there is room for, of one, two or three CTAs."""
    return [
        Config(kernel=way, ctas=ctas, slots=slots)
        for way in WAYS for ctas in SMEM_BYTES for slots in range(1, MOST_SLOTS // ctas + 1)
    ]  # fmt: skip


def num_tiles(config: Config) -> int:
    """Of a CTA."""
    return SM_BYTES // config.ctas // TILE_BYTES


def under_way_bytes(config: Config) -> int:
    """What an SM has asked for and not got."""
    return config.ctas * config.slots * TILE_BYTES


def tensor_map() -> TensorMap:
    """Rows one behind the other."""
    return TensorMap(
        dtype=BF16, global_dim=(ROW_BYTES // 2, NUM_SMS * SM_BYTES // ROW_BYTES), global_strides_bytes=(ROW_BYTES,),
        box_dim=(ROW_BYTES // 2, TILE_BYTES // ROW_BYTES), swizzle="none", l2_promotion="128B",
    )  # fmt: skip


def launch(config: Config) -> KernelLaunch:
    """The same launch under the profiler as without."""
    num_ctas, words = NUM_SMS * config.ctas, random_words(NUM_SMS * SM_BYTES)
    plan = np.array([config.slots, num_tiles(config), WARM, TIMED, BEHIND], dtype="<u4")
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(plan.view(np.uint8)), MappedTensor(words, tensor_map()), Repeated(words, words.nbytes),
            Output("told", np.zeros((num_ctas, 3), dtype="<i8")),
        ),
        grid=(num_ctas, 1, 1), block=(32 * NUM_WARPS, 1, 1), smem_bytes=SMEM_BYTES[config.ctas],
    )  # fmt: skip


def sum_of_ring(config: Config, cta: int) -> int:
    """Modulo 2^32, of the words of what a CTA's ring holds in the end."""
    slots, tiles, last = config.slots, num_tiles(config), WARM + TIMED + BEHIND + config.slots
    held = np.array([cta * tiles + number % tiles for number in range(last - slots, last)])
    return sum_of_random_words(held * (TILE_BYTES // 4), TILE_BYTES // 4)


@cache
def in_short_parts() -> NDArray[np.bool_]:
    """Whether each SM is in a part of its GPC that has fewer TPCs than others, bool[132]."""
    gpu = load_gpu(GPU)
    parts = parts_of_gpcs(gpu.floorplan.gpc_of_sm, gpu.xbar.num_gpc_store_ports)
    num = Counter(parts)
    return np.array([num[part] < max(num.values()) for part in parts])


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Bytes a cycle of SMs in parts of three TPCs and of two."""
    told = outputs["told"]
    ctas = config.ctas
    wrong_if(sorted(told[:, 0].tolist()) != sorted(list(range(NUM_SMS)) * ctas), f"SMs have other than {ctas} CTAs each")
    wrong_if((told[:, 1] <= 0).any(), "the clock stood still")
    for cta in range(len(told)):
        found, wanted = int(told[cta, 2]) % 2**32, sum_of_ring(config, cta)
        wrong_if(found != wanted, f"the ring of CTA {cta} has words that sum up to {found}, not {wanted}")
    rates = np.zeros(NUM_SMS)
    np.add.at(rates, told[:, 0], TIMED * TILE_BYTES / told[:, 1])
    return values_of(rates)


def values_of(rates: NDArray[np.float64]) -> dict[str, float]:
    """Of bytes a cycle of each SM."""
    short = in_short_parts()
    return {
        "bytes_per_cycle": float(rates.sum()),
        "long_part_bytes_per_cycle": float(rates[~short].mean()),
        "short_part_bytes_per_cycle": float(rates[short].mean()),
        "least_bytes_per_cycle": float(rates.min()),
        "most_bytes_per_cycle": float(rates.max()),
    }


# ---------------------------------------------------------------------------------------------- the simulator's answer

TWIN_WARM, TWIN_TIMED, TWIN_BEHIND = 24, 48, 12
LINES = TILE_BYTES // ROW_BYTES
ACCESS = AccessPattern(
    num_requests=TILE_BYTES // 512, num_sectors=TILE_BYTES // 32, num_lines=LINES, num_wavefronts=LINES, num_bytes=TILE_BYTES
)
"""Of a tile by cp.async: 16 bytes a lane."""
TURN_INSTRUCTIONS = 10
"""Between a wait and the next copies, each of which waits for the one before: which slot and tile is next. Source: SASS of
nvcc 13.0, about."""


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same rings for fewer tiles, simulated; nothing for a GPU with another number of SMs."""
    return _twin(config, gpu) if gpu.num_sms == NUM_SMS and gpu.mbarrier is not None else {}


def _twin(config: Config, gpu: GpuSpec) -> dict[str, float]:
    ctas, slots, tiles = config.ctas, config.slots, num_tiles(config)
    by_tma, code = config.kernel == "tma", ops.Alu(TURN_INSTRUCTIONS, is_chain=True)
    num_all = TWIN_WARM + TWIN_TIMED + TWIN_BEHIND

    def load(cta: RoleContext, num: int) -> list[ops.Op]:
        tile, stage = (cta.cta_idx, num % tiles), num % slots
        if not by_tma:
            return [ops.CpAsync("T", tile, ACCESS, "ring", stage, num_rows=LINES), ops.CpAsyncCommitGroup()]
        return [
            ops.MbarrierArriveExpectTx("full", stage, TILE_BYTES),
            ops.TmaLoad("T", tile, TILE_BYTES, TILE_BYTES, LINES, "ring", stage, "full"),
        ]

    def program(cta: RoleContext) -> Iterator[Any]:
        for num in range(slots):
            yield from load(cta, num)
        for num in range(num_all):
            yield ops.MbarrierWait("full", num % slots, num // slots & 1) if by_tma else ops.CpAsyncWaitGroup(slots - 1)
            if num == TWIN_WARM:
                yield ops.RangeStart(ops.Section.MAINLOOP)
            if num == TWIN_WARM + TWIN_TIMED:
                yield ops.RangeEnd()
            yield code
            yield from load(cta, num + slots)
        for num in range(num_all, num_all + slots):
            yield ops.MbarrierWait("full", num % slots, num // slots & 1) if by_tma else ops.CpAsyncWaitGroup(0)

    num_ctas = NUM_SMS * ctas
    launched = Launch(
        kernel="part_turns", num_ctas=num_ctas, num_tiles=num_ctas,
        roles=(WarpRole(name="all", num_warps=1 if by_tma else NUM_WARPS, program=program),),
        buffers=(
            Buffer(name="ring", stage_bytes=TILE_BYTES, num_stages=slots),
            Buffer(name="rest", stage_bytes=SMEM_BYTES[ctas] - slots * TILE_BYTES),
        ),
        mbarriers=(Mbarrier(name="full", num_arrivals=1, num_stages=slots),) if by_tma else (),
    )  # fmt: skip
    result = simulate(launched, gpu, clock="max", l2="warm", recorded_sms=range(NUM_SMS))
    rates = np.zeros(NUM_SMS)
    for role in result.timeline.roles:
        for span in role.sections:
            rates[role.sm_idx] += TWIN_TIMED * TILE_BYTES / (span.end_cycle - span.start_cycle)
    return values_of(rates)


CASE = Case(
    name="part_turns",
    question=__doc__,
    config_type=Config,
    groups={"own": Group(configs=own, least_capability=(9, 0), num_sms=132)},
    launch=launch, check=check,
    values={
        "bytes_per_cycle": "what all SMs get, bytes a cycle",
        "long_part_bytes_per_cycle": "what an SM gets in a part of a GPC of three TPCs, mean",
        "short_part_bytes_per_cycle": "what an SM gets in a part of two TPCs, mean",
        "least_bytes_per_cycle": "what the slowest SM gets",
        "most_bytes_per_cycle": "what the quickest SM gets",
    },
    num_repeats=3, predict=predict, includes=grid_include,
    tiers={"long_part_bytes_per_cycle": 4, "short_part_bytes_per_cycle": 4},
)  # fmt: skip
