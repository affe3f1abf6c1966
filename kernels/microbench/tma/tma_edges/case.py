"""What do the rows and columns of a TMA box cost that lie outside of its tensor?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import (
    Case,
    Config,
    Group,
    KernelLaunch,
    MappedTensor,
    Output,
    Outputs,
    WrongAnswer,
    by_value,
)
from gpusim.layout.swizzle import swizzle_mode
from gpusim.units import WARP_SIZE
from gpusim.workload.dtypes import BF16
from gpusim.workload.tma.boxes import TensorMap

NUM_STEPS, FIRST_STEP, NUM_CTAS = 320, 64, 132
"""Steps of a CTA; from where on they are timed; CTAs where all SMs have one."""
BOX_WIDTH, ROW_BYTES = 64, 128
NUM_X = 16
"""Places along x that a CTA walks: all of it is in L2 soon."""
HEIGHT = 512
LEAST_SMEM_BYTES = 120 * 1024
"""One CTA an SM."""
ROOM_BYTES = 200 * 1024
METRICS = (
    "lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors.sum", "lts__t_sectors.max", "lts__t_requests_srcunit_tex.sum",
    "l1tex__m_xbar2l1tex_read_bytes.sum",
)


# ---------------------------------------------------------------------------------------------- configs


def config_of(**columns: object) -> Config:
    """A config as text; what is not said is the usual."""
    usual: dict[str, object] = {
        "num_ctas": 1, "num_stages": 4, "num_boxes": 1, "box_rows": 128, "rows_inside": 128, "columns_inside": BOX_WIDTH,
        "promotion": "none", "places": NUM_X,
    }  # fmt: skip
    return {"kernel": "edges", **{name: str(value) for name, value in {**usual, **columns}.items()}}


def _legal(found: Sequence[Config]) -> list[Config]:
    return [config for config in found if ring_bytes(config) <= ROOM_BYTES]


def rows(seed: int) -> list[Config]:
    """So many rows of a box inside."""
    del seed  # a sweep, the same for every seed
    return _legal([
        config_of(num_ctas=ctas, num_stages=stages, box_rows=box, rows_inside=inside)
        for ctas in (1, NUM_CTAS) for stages in (1, 4) for box in (64, 128, 192, 256)
        for inside in (0, 1, 8, box // 4, box // 2, 3 * box // 4, box - 8, box)
    ])  # fmt: skip


def crowds(seed: int) -> list[Config]:
    """So many SMs ask, for the same columns or for several."""
    del seed  # a sweep, the same for every seed
    return _legal([
        config_of(num_ctas=ctas, box_rows=box, rows_inside=inside, places=places)
        for ctas in (2, 4, 8, 16, 33, 66, 100, NUM_CTAS) for box in (64, 128, 256) for inside in (0, box // 2, 3 * box // 4)
        for places in (1, NUM_X)
    ])  # fmt: skip


def columns(seed: int) -> list[Config]:
    """So many elements of each row inside."""
    del seed  # a sweep, the same for every seed
    return _legal([
        config_of(num_ctas=ctas, box_rows=box, rows_inside=box, columns_inside=inside)
        for ctas in (1, NUM_CTAS) for box in (64, 128, 256) for inside in (0, 8, 16, 32, 56, 64)
    ])  # fmt: skip


def beside(seed: int) -> list[Config]:
    """A box that is all inside, and one of which so many rows are."""
    del seed  # a sweep, the same for every seed
    return _legal([
        config_of(num_ctas=ctas, num_stages=3, num_boxes=2, box_rows=box, rows_inside=inside, promotion=promotion)
        for ctas in (1, NUM_CTAS) for box in (64, 128) for inside in (0, 8, box // 2, box) for promotion in ("none", "256B")
    ])  # fmt: skip


def counted(seed: int) -> list[Config]:
    """All SMs, with what L2 counts: in all, and at the slice that has most of it."""
    del seed  # a sweep, the same for every seed
    return _legal([
        config_of(num_ctas=NUM_CTAS, box_rows=box, rows_inside=inside, places=places)
        for box in (64, 128, 256) for inside in (0, 8, box // 2, 3 * box // 4, box) for places in (1, NUM_X)
    ])  # fmt: skip


def box_bytes(config: Config) -> int:
    """Bytes of a box: rows of 128, zeros included."""
    return int(config["box_rows"]) * ROW_BYTES


def ring_bytes(config: Config) -> int:
    """Of all stages."""
    return int(config["num_stages"]) * int(config["num_boxes"]) * box_bytes(config)


# ---------------------------------------------------------------------------------------------- launch and check


@cache
def tensor(num_columns: int) -> NDArray[np.uint8]:
    """Random bytes, uint8[rows, bytes of a row]."""
    made = np.random.default_rng(0).integers(0, 256, (HEIGHT, num_columns * BF16.num_bytes), dtype=np.uint8)
    made.setflags(write=False)
    return made


def extent(config: Config) -> int:
    """Columns of the tensor: whole boxes, or less than one, which all steps then take."""
    inside = int(config["columns_inside"])
    return NUM_X * BOX_WIDTH + (inside if inside < BOX_WIDTH else 0)


def first_place(config: Config) -> tuple[int, int]:
    """Where the box of a step begins that has its edge: (x, y)."""
    is_within = int(config["columns_inside"]) == BOX_WIDTH
    return 0 if is_within else NUM_X * BOX_WIDTH, HEIGHT - int(config["rows_inside"])


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """The last box of a stage has the edge."""
    del is_counted
    boxes, num_columns = int(config["num_boxes"]), extent(config)
    x, y = first_place(config)
    is_within = x == 0
    told = (
        NUM_STEPS, FIRST_STEP, int(config["num_stages"]), box_bytes(config), boxes, x, 0 if boxes == 2 else y,
        BOX_WIDTH if is_within else 0, int(config["places"]), y, ring_bytes(config),
    )  # fmt: skip
    described = TensorMap(
        dtype=BF16, global_dim=(num_columns, HEIGHT), global_strides_bytes=(num_columns * BF16.num_bytes,),
        box_dim=(BOX_WIDTH, int(config["box_rows"])), swizzle="128B", l2_promotion=config["promotion"],
    )  # fmt: skip
    num_ctas = int(config["num_ctas"])
    return KernelLaunch(
        kernel="edges",
        arguments=(
            by_value(np.array(told, dtype="<u4")), MappedTensor(tensor(num_columns), described),
            Output("smem", np.zeros(ring_bytes(config), dtype=np.uint8)),
            Output("times", np.full((num_ctas, 2), 0xFFFFFFFF, dtype="<u4")),
        ),
        grid=(num_ctas, 1, 1),
        block=(2 * WARP_SIZE, 1, 1),
        smem_bytes=max(LEAST_SMEM_BYTES, ring_bytes(config)),
    )  # fmt: skip


def expected_smem(config: Config) -> NDArray[np.uint8]:
    """CTA 0's stages as the last steps leave them: zeros where a box lies outside."""
    stages, boxes, height = (int(config[name]) for name in ("num_stages", "num_boxes", "box_rows"))
    x, y = first_place(config)
    source = tensor(extent(config))
    plain = np.zeros((stages, boxes, height, ROW_BYTES), dtype=np.uint8)
    for step in range(NUM_STEPS - stages, NUM_STEPS):
        begin = (x + (step % int(config["places"]) * BOX_WIDTH if x == 0 else 0)) * BF16.num_bytes
        for box in range(boxes):
            top = y if box == boxes - 1 else 0
            found = source[top : top + height, begin : begin + ROW_BYTES]
            plain[step % stages, box, : found.shape[0], : found.shape[1]] = found
    made = np.empty(plain.size, dtype=np.uint8)
    made[np.asarray(swizzle_mode("128B")(np.arange(plain.size)))] = plain.reshape(-1)
    return made


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of a step.

    Raises:
        WrongAnswer: a wait was given up, other bytes came, or a clock did not run.
    """
    taken, failed = outputs["times"].reshape(-1, 2).T.astype(np.int64)
    if failed.any():
        raise WrongAnswer("an mbarrier never completed, the wait was given up")
    if (outputs["smem"] != expected_smem(config)).any():
        raise WrongAnswer("the stages hold other bytes than the tensor and zeros")
    if (taken <= 0).any():
        raise WrongAnswer("a clock stood still")
    each = taken / (NUM_STEPS - FIRST_STEP)
    return {"cycles_per_step": float(each.mean()), "slowest_cycles": float(each.max()), "fastest_cycles": float(each.min())}


HOPPER = (9, 0)

CASE = Case(
    name="tma_edges",
    question=__doc__,
    columns=("num_ctas", "num_stages", "num_boxes", "box_rows", "rows_inside", "columns_inside", "promotion", "places"),
    groups={
        "rows": Group(configs=rows, rank=2, least_capability=HOPPER),
        "crowds": Group(configs=crowds, rank=2, least_capability=HOPPER),
        "columns": Group(configs=columns, rank=2, least_capability=HOPPER),
        "beside": Group(configs=beside, rank=2, least_capability=HOPPER),
        "counted": Group(configs=counted, metrics=METRICS, rank=2, least_capability=HOPPER),
    },
    launch=launch,
    check=check,
    values={
        "cycles_per_step": "SM cycles from stage to stage, mean of all CTAs",
        "slowest_cycles": "the same of the slowest CTA", "fastest_cycles": "the same of the fastest CTA",
    },
    num_repeats=5,
)  # fmt: skip
