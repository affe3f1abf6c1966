"""What do the rows and columns of a TMA box cost that lie outside of its tensor?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.array import read_only, swizzled
from gpusim.evidence.cases.case import Case, Group, Outputs
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import KernelLaunch, MappedTensor, Output, by_value
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.units import WARP_SIZE
from gpusim.workload.dtypes import BF16
from gpusim.workload.tma.boxes import TensorMap

NUM_STEPS, FIRST_STEP, NUM_CTAS = 320, 64, measured_gpu().num_sms
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
@dataclass(frozen=True, kw_only=True)
class Row(ConfigRow):
    """One config, with what is usual."""

    kernel: str = "edges"
    num_ctas: int = 1
    num_stages: int = 4
    num_boxes: int = 1
    box_rows: int = 128
    rows_inside: int = 128
    columns_inside: int = BOX_WIDTH
    promotion: str = "none"
    places: int = NUM_X


def _legal(found: Sequence[Row]) -> list[Row]:
    return [config for config in found if ring_bytes(config) <= ROOM_BYTES]


def rows() -> list[Row]:
    """So many rows of a box inside."""
    return _legal([
        Row(num_ctas=ctas, num_stages=stages, box_rows=box, rows_inside=inside)
        for ctas in (1, NUM_CTAS) for stages in (1, 4) for box in (64, 128, 192, 256)
        for inside in (0, 1, 8, box // 4, box // 2, 3 * box // 4, box - 8, box)
    ])  # fmt: skip


def crowds() -> list[Row]:
    """So many SMs ask, for the same columns or for several."""
    return _legal([
        Row(num_ctas=ctas, box_rows=box, rows_inside=inside, places=places)
        for ctas in (2, 4, 8, 16, 33, 66, 100, NUM_CTAS) for box in (64, 128, 256) for inside in (0, box // 2, 3 * box // 4)
        for places in (1, NUM_X)
    ])  # fmt: skip


def columns() -> list[Row]:
    """So many elements of each row inside."""
    return _legal([
        Row(num_ctas=ctas, box_rows=box, rows_inside=box, columns_inside=inside)
        for ctas in (1, NUM_CTAS) for box in (64, 128, 256) for inside in (0, 8, 16, 32, 56, 64)
    ])  # fmt: skip


def beside() -> list[Row]:
    """A box that is all inside, and one of which so many rows are."""
    return _legal([
        Row(num_ctas=ctas, num_stages=3, num_boxes=2, box_rows=box, rows_inside=inside, promotion=promotion)
        for ctas in (1, NUM_CTAS) for box in (64, 128) for inside in (0, 8, box // 2, box) for promotion in ("none", "256B")
    ])  # fmt: skip


def counted() -> list[Row]:
    """All SMs, with what L2 counts: in all, and at the slice that has most of it."""
    return _legal([
        Row(num_ctas=NUM_CTAS, box_rows=box, rows_inside=inside, places=places)
        for box in (64, 128, 256) for inside in (0, 8, box // 2, 3 * box // 4, box) for places in (1, NUM_X)
    ])  # fmt: skip


def box_bytes(config: Row) -> int:
    """Bytes of a box: rows of 128, zeros included."""
    return config.box_rows * ROW_BYTES


def ring_bytes(config: Row) -> int:
    """Of all stages."""
    return config.num_stages * config.num_boxes * box_bytes(config)


# ---------------------------------------------------------------------------------------------- launch and check
@cache
def tensor(num_columns: int) -> NDArray[np.uint8]:
    """Random bytes, uint8[rows, bytes of a row]."""
    return read_only(np.random.default_rng(0).integers(0, 256, (HEIGHT, num_columns * BF16.num_bytes), dtype=np.uint8))


def extent(config: Row) -> int:
    """Columns of the tensor: whole boxes, or less than one, which all steps then take."""
    inside = config.columns_inside
    return NUM_X * BOX_WIDTH + (inside if inside < BOX_WIDTH else 0)


def first_place(config: Row) -> tuple[int, int]:
    """Where the box of a step begins that has its edge: (x, y)."""
    is_within = config.columns_inside == BOX_WIDTH
    return 0 if is_within else NUM_X * BOX_WIDTH, HEIGHT - config.rows_inside


def launch(config: Row) -> KernelLaunch:
    """The last box of a stage has the edge."""
    boxes, num_columns, (x, y) = config.num_boxes, extent(config), first_place(config)
    is_within, num_ctas = x == 0, config.num_ctas
    plan = (
        NUM_STEPS, FIRST_STEP, config.num_stages, box_bytes(config), boxes, x, 0 if boxes == 2 else y,
        BOX_WIDTH if is_within else 0, config.places, y, ring_bytes(config),
    )  # fmt: skip
    described = TensorMap(
        dtype=BF16, global_dim=(num_columns, HEIGHT), global_strides_bytes=(num_columns * BF16.num_bytes,),
        box_dim=(BOX_WIDTH, config.box_rows), swizzle="128B", l2_promotion=config.promotion,
    )  # fmt: skip
    return KernelLaunch(
        kernel="edges",
        arguments=(
            by_value(np.array(plan, dtype="<u4")), MappedTensor(tensor(num_columns), described),
            Output("smem", np.zeros(ring_bytes(config), dtype=np.uint8)),
            Output("times", np.full((num_ctas, 2), 0xFFFFFFFF, dtype="<u4")),
        ),
        grid=(num_ctas, 1, 1), block=(2 * WARP_SIZE, 1, 1), smem_bytes=max(LEAST_SMEM_BYTES, ring_bytes(config)),
    )  # fmt: skip


def expected_smem(config: Row) -> NDArray[np.uint8]:
    """CTA 0's stages as the last steps leave them: zeros where a box lies outside."""
    stages, boxes, height = config.num_stages, config.num_boxes, config.box_rows
    (x, y), source = first_place(config), tensor(extent(config))
    plain = np.zeros((stages, boxes, height, ROW_BYTES), dtype=np.uint8)
    for step in range(NUM_STEPS - stages, NUM_STEPS):
        begin = (x + (step % config.places * BOX_WIDTH if x == 0 else 0)) * BF16.num_bytes
        for box in range(boxes):
            top = y if box == boxes - 1 else 0
            found = source[top : top + height, begin : begin + ROW_BYTES]
            plain[step % stages, box, : found.shape[0], : found.shape[1]] = found
    return swizzled(plain)


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Cycles of a step."""
    return ring_values(outputs, expected_smem(config), NUM_STEPS - FIRST_STEP)


def ring_values(outputs: Outputs, smem: NDArray[np.uint8], num_timed: int) -> dict[str, float]:
    """Cycles of each of ``num_timed`` steps, if CTA 0's stages hold ``smem`` in the end.

    Raises:
        WrongAnswer: a wait was given up, other bytes came, or a clock did not run.
    """
    taken, failed = outputs["times"].reshape(-1, 2).T.astype(np.int64)
    wrong_if(failed.any(), "an mbarrier never completed, the wait was given up")
    wrong_if((outputs["smem"] != smem).any(), "the stages hold other bytes than the tensors and zeros")
    wrong_if((taken <= 0).any(), "a clock stood still")
    each = taken / num_timed
    return {"cycles_per_step": float(each.mean()), "slowest_cycles": float(each.max()), "fastest_cycles": float(each.min())}


CASE = Case(
    name="tma_edges",
    question=__doc__,
    config_type=Row, launch=launch, check=check, num_repeats=5,
    groups={
        name: Group(configs=configs, rank=2, least_capability=(9, 0))
        for name, configs in (("rows", rows), ("crowds", crowds), ("columns", columns), ("beside", beside))
    } | {"counted": Group(configs=counted, metrics=METRICS, rank=2, least_capability=(9, 0))},
    values={
        "cycles_per_step": "SM cycles from stage to stage, mean of all CTAs",
        "slowest_cycles": "the same of the slowest CTA", "fastest_cycles": "the same of the fastest CTA",
    },
)  # fmt: skip
