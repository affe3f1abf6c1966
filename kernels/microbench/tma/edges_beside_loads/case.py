"""What do rows of a TMA box that lie outside of its tensor cost beside loads of the CTA's own rows, as a GEMM has them?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, Launch, Mbarrier, WarpRole, simulate
from gpusim.evidence.cases.array import read_only, swizzled
from gpusim.evidence.cases.case import Case, Config, Fitted, Group, Outputs, load_case
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import KernelLaunch, MappedTensor, Output, Repeated, by_value
from gpusim.evidence.cases.microbenchmark import chained_code
from gpusim.evidence.cases.parameters import fitted
from gpusim.machine.config import GpuSpec
from gpusim.simulate.op_tables import FIRST_ZERO_ROWS
from gpusim.simulate.run import L2State
from gpusim.units import WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext
from gpusim.workload.tma.boxes import TensorMap

edges = import_module(load_case("tma_edges").launch.__module__)
"""Values of rings are those of kernels/tma_edges."""

NUM_STEPS, FIRST_STEP, NUM_CTAS = 128, 32, 128
"""Steps of a CTA; from where on they are timed; CTAs, one an SM."""
BOX_WIDTH, ROW_BYTES = 64, 128
NUM_COLUMNS = NUM_STEPS * BOX_WIDTH
A_ROWS = 512
"""Of the tensor that all read."""
LEAST_SMEM_BYTES = 120 * 1024
"""One CTA an SM."""
ROOM_BYTES = 200 * 1024
METRICS = (
    "lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors.sum", "lts__t_sectors.max", "lts__t_sectors.min",
    "lts__t_requests_srcunit_tex.sum", "l1tex__m_xbar2l1tex_read_bytes.sum", "dram__bytes_read.sum",
    "sm__cycles_elapsed.max",
)


@dataclass(frozen=True, kw_only=True)
class Row(ConfigRow):
    """One config, with what is usual."""

    kernel: str = "beside"
    num_ctas: int = NUM_CTAS
    num_stages: int = 4
    a_rows: int = 128
    rows_inside: int = 128
    b_rows: int = 128
    places: int = NUM_STEPS
    spread: int = 0
    off_bytes: int = 0


def _legal(found: Sequence[Row]) -> list[Row]:
    return [config for config in found if ring_bytes(config) <= ROOM_BYTES]


def memory() -> list[Row]:
    """The CTA's own rows come out of memory."""
    return _legal([
        Row(num_stages=stages, a_rows=a, rows_inside=inside, b_rows=b)
        for stages in (2, 3, 4) for a, b in ((128, 128), (64, 128), (256, 64), (128, 64))
        for inside in (0, 1, a // 8, a // 4, a // 2, 3 * a // 4, a - 8, a)
    ])  # fmt: skip


def l2() -> list[Row]:
    """They are in L2: all walk four places."""
    return _legal([
        Row(num_stages=stages, a_rows=a, rows_inside=inside, b_rows=b, places=4)
        for stages in (2, 4) for a, b in ((128, 128), (64, 64), (256, 64))
        for inside in (0, 1, a // 4, a // 2, a, 3 * a // 4)
    ])  # fmt: skip


def spread() -> list[Row]:
    """CTAs begin at other places, so that zeros are asked for at several columns at once."""
    return _legal([
        Row(rows_inside=inside, spread=spread, places=places, b_rows=b)
        for spread in (0, 1, 3) for inside in (0, 64, 120, 128) for places in (2, 4, 8, 16) for b in (64, 0)
        if spread or b == 0
    ])  # fmt: skip


def crowds() -> list[Row]:
    """Fewer CTAs; the shared box alone, or beside rows of their own."""
    return _legal([
        Row(num_ctas=ctas, rows_inside=inside, b_rows=b, places=places)
        for ctas in (8, 16, 33, 66, 100) for inside in (0, 64, 128) for b, places in ((128, NUM_STEPS), (0, 4))
    ])  # fmt: skip


def own() -> list[Row]:
    """Rows of CTAs' own alone, which are in L2 and which nobody shares."""
    return [
        Row(num_stages=stages, a_rows=0, rows_inside=0, b_rows=b, places=4)
        for stages in (2, 4) for b in (64, 128, 192, 256)
        if stages * b * ROW_BYTES <= ROOM_BYTES
    ]  # fmt: skip


def off() -> list[Row]:
    """Rows begin off lines."""
    return [
        Row(num_ctas=ctas, num_stages=3, a_rows=a, rows_inside=inside, b_rows=64, places=places, off_bytes=off)
        for ctas in (6, 33, NUM_CTAS) for a in (64, 128) for inside in (0, 1, a // 2, a)
        for off, places in ((0, 4), (16, 4), (16, NUM_STEPS))
    ]  # fmt: skip


def stage_bytes(config: Row) -> tuple[int, int]:
    """Of the shared box and of the CTA's own rows, zeros included."""
    return config.a_rows * ROW_BYTES, config.b_rows * ROW_BYTES


def ring_bytes(config: Row) -> int:
    """Of all stages."""
    return config.num_stages * sum(stage_bytes(config))


# ---------------------------------------------------------------------------------------------- launch and check
@cache
def pattern(num_rows: int, off_bytes: int) -> NDArray[np.uint8]:
    """Random bytes, uint8[rows, bytes of a row]."""
    shape = num_rows, NUM_COLUMNS * BF16.num_bytes + off_bytes
    return read_only(np.random.default_rng(num_rows).integers(0, 256, shape, dtype=np.uint8))


PATTERN_ROWS = 64
"""After which the rows that CTAs read alone are the same again."""


def described(num_rows: int, box_rows: int, off_bytes: int) -> TensorMap:
    """Rows of ``NUM_COLUMNS``, boxes of 128 bytes of each."""
    return TensorMap(
        dtype=BF16, global_dim=(NUM_COLUMNS, num_rows), global_strides_bytes=(NUM_COLUMNS * BF16.num_bytes + off_bytes,),
        box_dim=(BOX_WIDTH, box_rows), swizzle="128B", l2_promotion="256B",
    )  # fmt: skip


def launch(config: Row) -> KernelLaunch:
    """The shared box hangs over the end of its tensor."""
    (a_bytes, b_bytes), num_ctas = stage_bytes(config), config.num_ctas
    b_rows, off_bytes = config.b_rows, config.off_bytes
    plan = (
        NUM_STEPS, FIRST_STEP, config.num_stages, a_bytes, b_bytes, A_ROWS - config.rows_inside, b_rows,
        BOX_WIDTH, config.places, config.spread, ring_bytes(config),
    )  # fmt: skip
    own_rows = max(num_ctas * b_rows, PATTERN_ROWS)
    return KernelLaunch(
        kernel="beside",
        arguments=(
            by_value(np.array(plan, dtype="<u4")),
            MappedTensor(pattern(A_ROWS, off_bytes), described(A_ROWS, config.a_rows or 64, off_bytes)),
            MappedTensor(
                Repeated(pattern(PATTERN_ROWS, off_bytes), own_rows * (NUM_COLUMNS * BF16.num_bytes + off_bytes)),
                described(own_rows, b_rows or 64, off_bytes),
            ),
            Output("smem", np.zeros(ring_bytes(config), dtype=np.uint8)),
            Output("times", np.full((num_ctas, 2), 0xFFFFFFFF, dtype="<u4")),
        ),
        grid=(num_ctas, 1, 1), block=(2 * WARP_SIZE, 1, 1), smem_bytes=max(LEAST_SMEM_BYTES, ring_bytes(config)),
    )  # fmt: skip


def expected_smem(config: Row) -> NDArray[np.uint8]:
    """CTA 0's stages as the last steps leave them: zeros where a box lies outside."""
    stages, inside, off_bytes = config.num_stages, config.rows_inside, config.off_bytes
    a_bytes, b_bytes = stage_bytes(config)
    made = np.empty((stages, a_bytes + b_bytes), dtype=np.uint8)
    for step in range(NUM_STEPS - stages, NUM_STEPS):
        begin = step % config.places * ROW_BYTES
        own = pattern(PATTERN_ROWS, off_bytes)[:, begin : begin + ROW_BYTES]
        plain = np.zeros((config.a_rows, ROW_BYTES), dtype=np.uint8)
        plain[:inside] = pattern(A_ROWS, off_bytes)[A_ROWS - inside :, begin : begin + ROW_BYTES][: len(plain)]
        made[step % stages] = np.concatenate((plain, np.tile(own, (config.b_rows // PATTERN_ROWS, 1)))).reshape(-1)
    return swizzled(made)


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Cycles of a step."""
    return dict(edges.ring_values(outputs, expected_smem(config), NUM_STEPS - FIRST_STEP))


# ---------------------------------------------------------------------------------------------- the simulator's answer

ISSUE_CYCLES = {1: 300.6, 2: 338.8}
"""Of a step's code, by its boxes: with it the loop takes what it does where nothing else binds, 357 to 360 and 400 (rows
of 8 CTAs and 64 rows of the CTA's own; they say nothing of zeros)."""


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """The same rings, simulated; nothing for a GPU without TMA."""
    if gpu.tma is None or gpu.num_sms < config.num_ctas:
        return {}
    num_ctas, stages, b_rows = config.num_ctas, config.num_stages, config.b_rows
    places, spread = config.places, config.spread
    outside = config.a_rows - config.rows_inside
    a_bytes, b_bytes = stage_bytes(config)
    issue = chained_code(ISSUE_CYCLES[2 if a_bytes and b_bytes else 1], gpu)

    def produce(cta: RoleContext) -> Iterator[Any]:
        place = cta.cta_idx * spread % places
        for step in range(NUM_STEPS):
            stage, at = step % stages, (place + step) % places
            yield ops.MbarrierWait("empty", stage, step // stages & 1 ^ 1)
            yield issue
            yield ops.MbarrierArriveExpectTx("full", stage, a_bytes + b_bytes)
            if a_bytes:
                yield ops.TmaLoad(
                    "A", (0, at), a_bytes, a_bytes - outside * ROW_BYTES, a_bytes // ROW_BYTES, "a", stage, "full",
                    promoted_tiles=((0, at ^ 1),), num_zero_rows=outside,
                )  # fmt: skip
            if b_bytes:
                yield ops.TmaLoad(
                    "B", (cta.cta_idx, at), b_bytes, b_bytes, b_rows, "b", stage, "full",
                    promoted_tiles=((cta.cta_idx, at ^ 1),),
                )

    def consume(_cta: RoleContext) -> Iterator[Any]:
        for step in range(NUM_STEPS):
            stage = step % stages
            yield ops.MbarrierWait("full", stage, step // stages & 1)
            yield ops.RangeStart(ops.Section.MAINLOOP)
            yield ops.RangeEnd()
            yield ops.MbarrierArrive("empty", stage)

    launched = Launch(
        kernel="edges_beside_loads", num_ctas=num_ctas, num_tiles=num_ctas,
        roles=(
            WarpRole(name="producer", num_warps=1, program=produce), WarpRole(name="consumer", num_warps=1, program=consume),
        ),
        buffers=(
            Buffer(name="a", stage_bytes=a_bytes or 128, num_stages=stages),
            Buffer(name="b", stage_bytes=b_bytes or 128, num_stages=stages),
            Buffer(name="rest", stage_bytes=max(0, LEAST_SMEM_BYTES - ring_bytes(config))),
        ),
        mbarriers=tuple(Mbarrier(name=name, num_arrivals=1, num_stages=stages) for name in ("full", "empty")),
        features=frozenset({"tma", "mbarrier"}),
    )  # fmt: skip
    l2: L2State = "cold" if places == NUM_STEPS else "warm"
    result = simulate(launched, gpu, clock="max", l2=l2, recorded_sms=range(gpu.num_sms))
    at = [[span.start_cycle for span in role.sections] for role in result.timeline.roles if role.sections]
    taken = np.array([each[-1] - each[FIRST_STEP - 1] for each in at]) / (NUM_STEPS - FIRST_STEP)
    return {"cycles_per_step": float(taken.mean()), METRICS[0]: result.counters[METRICS[0]]}


def fit(rows: Sequence[Config]) -> list[Fitted]:
    """What rows of zeros take beside rows that nobody shares, which L2's slices set the pace of."""
    told = [{name: float(row[name]) for name in FITTED if row.get(name)} | {"group": row["group"]} for row in rows]
    told = [row for row in told if len(row) > len(FITTED) and row["cycles_per_step"] > LOOP_CYCLES]
    alone = [row["cycles_per_step"] / row["b_rows"] for row in told if row["group"] == "own"]
    if not alone:
        return []
    own = float(np.median(alone))
    in_l2 = [row for row in told if row["group"] == "l2"]
    shared = float(np.median([
        (row["cycles_per_step"] - own * row["b_rows"]) / row["a_rows"]
        for row in in_l2 if row["rows_inside"] == row["a_rows"]
    ] or [0.0]))  # fmt: skip
    first, others = [], []
    for row in in_l2:
        outside = row["a_rows"] - row["rows_inside"]
        if outside:
            each = (row["cycles_per_step"] - own * row["b_rows"] - shared * row["rows_inside"]) / outside
            of = others if not row["rows_inside"] else first if outside <= FIRST_ZERO_ROWS else []
            of.append(each / own * ROW_BYTES)
    how = "rings in L2, cycles of up to 64 rows outside over those of rows that nobody shares, times 128"
    return [
        *fitted("tma.oob_row_bytes", first, how), *fitted("tma.oob_box_row_bytes", others, "the same of boxes all outside")
    ]


FITTED = ("cycles_per_step", "num_stages", "a_rows", "rows_inside", "b_rows")
LOOP_CYCLES = 440.0
"""What the loop itself takes, 360 to 400, and a little more."""

CASE = Case(
    name="edges_beside_loads",
    question=__doc__,
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict, fit=fit,
    groups={
        name: Group(configs=configs, metrics=METRICS, rank=2, least_capability=(9, 0), num_sms=132, is_cold=name == "memory")
        for name, configs in (
            ("memory", memory), ("l2", l2), ("spread", spread), ("crowds", crowds), ("own", own), ("off", off),
        )
    },
    values={
        "cycles_per_step": "SM cycles from stage to stage, mean of all CTAs",
        "slowest_cycles": "the same of the slowest CTA", "fastest_cycles": "the same of the fastest CTA",
    },
    tiers={"cycles_per_step": 4},
)  # fmt: skip
