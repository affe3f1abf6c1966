"""What do tensor maps cost that a kernel makes while the SM copies by TMA, and what do the copies lose?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.array import read_only
from gpusim.evidence.cases.case import Case, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Input, KernelLaunch, MappedTensor, Output, by_value
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.workload.dtypes import BF16
from gpusim.workload.tma.boxes import TensorMap

WIDTH, MOST_CTAS, BOXES_OF_CTA, MOST_MAPS, MAP_BYTES, SLOT_BYTES = 64, 132, 8, 64, 128, 8192
NUM_BOXES, NUM_MAPS = 2048, 200
SMEM_BYTES = 8 * SLOT_BYTES + 100 * 1024
"""Dynamic shared memory: a CTA is alone on its SM."""


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config; without boxes there are no copies, without maps none is made."""

    kernel: str
    _: KW_ONLY
    num_ctas: int
    in_flight: int
    num_rows: int
    makes_maps: bool
    pause_cycles: int = 0


def beside() -> list[Row]:
    """Maps alone, copies alone, and both: one SM and all, one to eight boxes in flight, of 1 and 8 KiB."""
    return [
        *(Row("beside_loads", num_ctas=ctas, in_flight=0, num_rows=8, makes_maps=True) for ctas in (1, MOST_CTAS)),
        *(
            Row("beside_loads", num_ctas=ctas, in_flight=num, num_rows=rows, makes_maps=maps, pause_cycles=pause)
            for ctas in (1, MOST_CTAS) for rows in (8, 64) for num in (1, 2, 4, 8)
            for maps, pause in ((False, 0), (True, 0), (True, 4000))
        ),
    ]  # fmt: skip


@cache
def data() -> NDArray[np.uint8]:
    """Random bytes; copied to the GPU once."""
    num_bytes = MOST_CTAS * BOXES_OF_CTA * WIDTH * WIDTH * BF16.num_bytes
    return read_only(np.random.default_rng(14).integers(0, 255, num_bytes, dtype=np.uint8))


def launch(config: Row) -> KernelLaunch:
    """Times come from the kernel; nothing is counted."""
    row_bytes = WIDTH * BF16.num_bytes
    num_boxes = NUM_BOXES if config.in_flight else 0
    plan = (
        num_boxes, max(1, config.in_flight), config.num_rows * row_bytes, config.num_rows,
        NUM_MAPS if config.makes_maps else 0, config.pause_cycles,
    )  # fmt: skip
    host = TensorMap(
        dtype=BF16, global_dim=(WIDTH, len(data()) // row_bytes), global_strides_bytes=(row_bytes,),
        box_dim=(WIDTH, config.num_rows), l2_promotion="none",
    )  # fmt: skip
    return KernelLaunch(
        kernel="beside_loads",
        arguments=(
            by_value(np.array(plan, dtype="<u4")), MappedTensor(data(), host), Input(data()),
            Input(np.zeros(config.num_ctas * MOST_MAPS * MAP_BYTES, dtype=np.uint8)),
            Output("times", np.full((config.num_ctas, 4), 0xFFFFFFFF, dtype="<u4")),
            Output("sums", np.zeros(config.num_ctas, dtype="<u4")),
        ),
        grid=(config.num_ctas, 1, 1), block=(64, 1, 1), smem_bytes=SMEM_BYTES,
    )  # fmt: skip


def expected_sums(config: Row) -> NDArray[np.uint32]:
    """Sums of the words that the last boxes of each CTA leave, uint32[num_ctas]."""
    if not config.in_flight:
        return np.zeros(config.num_ctas, dtype=np.uint32)
    words = data().view("<u4").astype(np.uint64).reshape(-1, config.num_rows * WIDTH * BF16.num_bytes // 4).sum(axis=1)
    last = np.arange(NUM_BOXES - config.in_flight, NUM_BOXES) % BOXES_OF_CTA
    boxes = np.arange(config.num_ctas)[:, None] * BOXES_OF_CTA + last
    return np.asarray(words[boxes].sum(axis=1) % 2**32, dtype=np.uint32)


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Cycles of a map and of a box, medians over CTAs.

    Raises:
        WrongAnswer: a wait was given up, other bytes came, or maps or copies are missing.
    """
    times = outputs["times"].reshape(config.num_ctas, 4).astype(np.float64)
    wrong_if(int(times[:, 0].max()), "an mbarrier never completed, the wait was given up")
    if (outputs["sums"] != expected_sums(config)).any():
        raise WrongAnswer(f"CTA {int(np.argmax(outputs['sums'] != expected_sums(config)))} received other bytes")
    values: dict[str, float] = {}
    if config.makes_maps:
        if times[:, 1].min() < NUM_MAPS or times[:, 2].min() <= 0:
            raise WrongAnswer(f"a CTA made {int(times[:, 1].min())} maps, wants {NUM_MAPS}")
        values["map_cycles"] = float(np.median(times[:, 2] / times[:, 1]))
    if config.in_flight:
        if times[:, 3].min() <= 0 or times[:, 3].max() > 1e8:
            raise WrongAnswer(f"the clock shows {int(times[:, 3].min())} cycles for all copies")
        values["box_cycles"] = float(np.median(times[:, 3])) / NUM_BOXES
    return values


CASE = Case(
    name="tensor_map_beside_loads",
    question=__doc__,
    config_type=Row, launch=launch, check=check, num_repeats=3,
    groups={"beside": Group(configs=beside, rank=3, least_capability=(9, 0))},
    values={
        "map_cycles": "SM cycles to copy, replace, release and acquire a map; median over CTAs",
        "box_cycles": "SM cycles of all copies over their number; median over CTAs",
    },
)  # fmt: skip
