"""What do rows of a TMA box that lie outside of its tensor cost beside loads of the CTA's own rows, as a GEMM has them?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, Launch, Mbarrier, WarpRole, simulate
from gpusim.evidence.cases.case import (
    Case,
    Config,
    Fitted,
    Group,
    KernelLaunch,
    MappedTensor,
    Output,
    Outputs,
    Repeated,
    WrongAnswer,
    by_value,
)
from gpusim.layout.swizzle import swizzle_mode
from gpusim.machine.config import GpuSpec
from gpusim.simulate.op_tables import FIRST_ZERO_ROWS
from gpusim.units import WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext
from gpusim.workload.tma.boxes import TensorMap

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


def config_of(**columns: object) -> Config:
    """A config as text; what is not said is the usual."""
    usual: dict[str, object] = {
        "num_ctas": NUM_CTAS, "num_stages": 4, "a_rows": 128, "rows_inside": 128, "b_rows": 128,
        "places": NUM_STEPS, "spread": 0, "off_bytes": 0,
    }  # fmt: skip
    return {"kernel": "beside", **{name: str(value) for name, value in {**usual, **columns}.items()}}


def _legal(found: Sequence[Config]) -> list[Config]:
    return [config for config in found if ring_bytes(config) <= ROOM_BYTES]


def memory(seed: int) -> list[Config]:
    """The CTA's own rows come out of memory."""
    del seed  # a sweep, the same for every seed
    return _legal([
        config_of(num_stages=stages, a_rows=a, rows_inside=inside, b_rows=b)
        for stages in (2, 3, 4) for a, b in ((128, 128), (64, 128), (256, 64), (128, 64))
        for inside in (0, 1, a // 8, a // 4, a // 2, 3 * a // 4, a - 8, a)
    ])  # fmt: skip


def l2(seed: int) -> list[Config]:
    """They are in L2: all walk four places."""
    del seed  # a sweep, the same for every seed
    return _legal([
        config_of(num_stages=stages, a_rows=a, rows_inside=inside, b_rows=b, places=4)
        for stages in (2, 4) for a, b in ((128, 128), (64, 64), (256, 64))
        for inside in (0, 1, a // 4, a // 2, a, 3 * a // 4)
    ])  # fmt: skip


def spread(seed: int) -> list[Config]:
    """CTAs begin at other places, so that zeros are asked for at several columns at once."""
    del seed  # a sweep, the same for every seed
    return _legal([
        config_of(rows_inside=inside, spread=spread, places=places, b_rows=b)
        for spread in (0, 1, 3) for inside in (0, 64, 120, 128) for places in (2, 4, 8, 16) for b in (64, 0)
        if spread or b == 0
    ])  # fmt: skip


def crowds(seed: int) -> list[Config]:
    """Fewer CTAs; the shared box alone, or beside rows of their own."""
    del seed  # a sweep, the same for every seed
    return _legal([
        config_of(num_ctas=ctas, rows_inside=inside, b_rows=b, places=places)
        for ctas in (8, 16, 33, 66, 100) for inside in (0, 64, 128) for b, places in ((128, NUM_STEPS), (0, 4))
    ])  # fmt: skip


def own(seed: int) -> list[Config]:
    """Rows of CTAs' own alone, which are in L2 and which nobody shares."""
    del seed  # a sweep, the same for every seed
    return [
        config_of(num_stages=stages, a_rows=0, rows_inside=0, b_rows=b, places=4)
        for stages in (2, 4) for b in (64, 128, 192, 256)
        if stages * b * ROW_BYTES <= ROOM_BYTES
    ]  # fmt: skip


def off(seed: int) -> list[Config]:
    """Rows begin off lines."""
    del seed  # a sweep, the same for every seed
    return [
        config_of(num_ctas=ctas, num_stages=3, a_rows=a, rows_inside=inside, b_rows=64, places=places, off_bytes=off)
        for ctas in (6, 33, NUM_CTAS) for a in (64, 128) for inside in (0, 1, a // 2, a)
        for off, places in ((0, 4), (16, 4), (16, NUM_STEPS))
    ]  # fmt: skip


def stage_bytes(config: Config) -> tuple[int, int]:
    """Of the shared box and of the CTA's own rows, zeros included."""
    return int(config["a_rows"]) * ROW_BYTES, int(config["b_rows"]) * ROW_BYTES


def ring_bytes(config: Config) -> int:
    """Of all stages."""
    return int(config["num_stages"]) * sum(stage_bytes(config))


# ---------------------------------------------------------------------------------------------- launch and check


@cache
def pattern(num_rows: int, off_bytes: int) -> NDArray[np.uint8]:
    """Random bytes, uint8[rows, bytes of a row]."""
    shape = num_rows, NUM_COLUMNS * BF16.num_bytes + off_bytes
    made = np.random.default_rng(num_rows).integers(0, 256, shape, dtype=np.uint8)
    made.setflags(write=False)
    return made


PATTERN_ROWS = 64
"""After which the rows that CTAs read alone are the same again."""


def described(num_rows: int, box_rows: int, off_bytes: int) -> TensorMap:
    """Rows of ``NUM_COLUMNS``, boxes of 128 bytes of each."""
    return TensorMap(
        dtype=BF16, global_dim=(NUM_COLUMNS, num_rows), global_strides_bytes=(NUM_COLUMNS * BF16.num_bytes + off_bytes,),
        box_dim=(BOX_WIDTH, box_rows), swizzle="128B", l2_promotion="256B",
    )  # fmt: skip


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """The shared box hangs over the end of its tensor."""
    del is_counted
    a_bytes, b_bytes = stage_bytes(config)
    num_ctas, b_rows, off_bytes = (int(config[name]) for name in ("num_ctas", "b_rows", "off_bytes"))
    told = (
        NUM_STEPS, FIRST_STEP, int(config["num_stages"]), a_bytes, b_bytes, A_ROWS - int(config["rows_inside"]), b_rows,
        BOX_WIDTH, int(config["places"]), int(config["spread"]), ring_bytes(config),
    )  # fmt: skip
    own_rows = max(num_ctas * b_rows, PATTERN_ROWS)
    return KernelLaunch(
        kernel="beside",
        arguments=(
            by_value(np.array(told, dtype="<u4")),
            MappedTensor(pattern(A_ROWS, off_bytes), described(A_ROWS, int(config["a_rows"]) or 64, off_bytes)),
            MappedTensor(
                Repeated(pattern(PATTERN_ROWS, off_bytes), own_rows * (NUM_COLUMNS * BF16.num_bytes + off_bytes)),
                described(own_rows, b_rows or 64, off_bytes),
            ),
            Output("smem", np.zeros(ring_bytes(config), dtype=np.uint8)),
            Output("times", np.full((num_ctas, 2), 0xFFFFFFFF, dtype="<u4")),
        ),
        grid=(num_ctas, 1, 1),
        block=(2 * WARP_SIZE, 1, 1),
        smem_bytes=max(LEAST_SMEM_BYTES, ring_bytes(config)),
    )  # fmt: skip


def expected_smem(config: Config) -> NDArray[np.uint8]:
    """CTA 0's stages as the last steps leave them: zeros where a box lies outside."""
    stages, inside, off_bytes = (int(config[name]) for name in ("num_stages", "rows_inside", "off_bytes"))
    a_bytes, b_bytes = stage_bytes(config)
    made = np.empty((stages, a_bytes + b_bytes), dtype=np.uint8)
    for step in range(NUM_STEPS - stages, NUM_STEPS):
        begin = step % int(config["places"]) * ROW_BYTES
        own = pattern(PATTERN_ROWS, off_bytes)[:, begin : begin + ROW_BYTES]
        plain = np.zeros((int(config["a_rows"]), ROW_BYTES), dtype=np.uint8)
        plain[:inside] = pattern(A_ROWS, off_bytes)[A_ROWS - inside :, begin : begin + ROW_BYTES][: len(plain)]
        told = np.concatenate((plain, np.tile(own, (int(config["b_rows"]) // PATTERN_ROWS, 1))))
        made[step % stages] = told.reshape(-1)
    found = np.empty(made.size, dtype=np.uint8)
    found[np.asarray(swizzle_mode("128B")(np.arange(made.size)))] = made.reshape(-1)
    return found


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of a step.

    Raises:
        WrongAnswer: a wait was given up, other bytes came, or a clock did not run.
    """
    taken, failed = outputs["times"].reshape(-1, 2).T.astype(np.int64)
    if failed.any():
        raise WrongAnswer("an mbarrier never completed, the wait was given up")
    if (outputs["smem"] != expected_smem(config)).any():
        raise WrongAnswer("the stages hold other bytes than the tensors and zeros")
    if (taken <= 0).any():
        raise WrongAnswer("a clock stood still")
    each = taken / (NUM_STEPS - FIRST_STEP)
    return {"cycles_per_step": float(each.mean()), "slowest_cycles": float(each.max()), "fastest_cycles": float(each.min())}


# ---------------------------------------------------------------------------------------------- the simulator's answer

ISSUE_CYCLES = {1: 300.6, 2: 338.8}
"""Of a step's code, by its boxes: with it the loop takes what it does where nothing else binds, 357 to 360 and 400 (rows
of 8 CTAs and 64 rows of the CTA's own; they say nothing of zeros)."""


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same rings, simulated; nothing for a GPU without TMA."""
    if gpu.tma is None or gpu.num_sms < int(config["num_ctas"]):
        return {}
    return twin(config, gpu)


def twin(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Cycles of a step, and sectors read for all of them."""
    num_ctas, stages, b_rows = (int(config[name]) for name in ("num_ctas", "num_stages", "b_rows"))
    places, spread = int(config["places"]), int(config["spread"])
    outside = int(config["a_rows"]) - int(config["rows_inside"])
    a_bytes, b_bytes = stage_bytes(config)
    is_cold = places == NUM_STEPS
    issue = ops.Alu(ISSUE_CYCLES[1 if not (a_bytes and b_bytes) else 2] / gpu.warp_scheduler.dependent_cycles, is_chain=True)

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

    def consume(cta: RoleContext) -> Iterator[Any]:
        del cta
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
        mbarriers=(
            Mbarrier(name="full", num_arrivals=1, num_stages=stages),
            Mbarrier(name="empty", num_arrivals=1, num_stages=stages),
        ),
        features=frozenset({"tma", "mbarrier"}),
    )  # fmt: skip
    result = simulate(
        launched, gpu, clock="max", l2="cold" if is_cold else "warm", recorded_sms=range(gpu.num_sms)
    )
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
    return [
        Fitted(parameter=f"tma.{name}_row_bytes", value=float(np.median(found)), how=how) for name, found, how in (
            ("oob", first, "rings in L2, cycles of up to 64 rows outside over those of rows that nobody shares, times 128"),
            ("oob_box", others, "the same of boxes all outside"),
        ) if found
    ]  # fmt: skip


FITTED = ("cycles_per_step", "num_stages", "a_rows", "rows_inside", "b_rows")
LOOP_CYCLES = 440.0
"""What the loop itself takes, 360 to 400, and a little more."""

HOPPER = (9, 0)

CASE = Case(
    name="edges_beside_loads",
    question=__doc__,
    columns=("num_ctas", "num_stages", "a_rows", "rows_inside", "b_rows", "places", "spread", "off_bytes"),
    groups={
        name: Group(configs=configs, metrics=METRICS, rank=2, least_capability=HOPPER, is_cold=name == "memory")
        for name, configs in (
            ("memory", memory), ("l2", l2), ("spread", spread), ("crowds", crowds), ("own", own), ("off", off),
        )
    },
    launch=launch,
    check=check,
    values={
        "cycles_per_step": "SM cycles from stage to stage, mean of all CTAs",
        "slowest_cycles": "the same of the slowest CTA", "fastest_cycles": "the same of the fastest CTA",
    },
    num_repeats=3,
    predict=predict,
    fit=fit,
    tiers={"cycles_per_step": 4},
)  # fmt: skip
