"""What does a stage cost a TMA producer whose consumer does nothing: wait, announce, coordinates, issue?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, GpuSpec, Launch, Mbarrier, WarpRole
from gpusim.evidence.cases.array import read_only, schedules_of, swizzled
from gpusim.evidence.cases.case import Case, Fitted, FittedConstant, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import KernelLaunch, MappedTensor, Output, by_value
from gpusim.evidence.cases.microbenchmark import chained_code, range_cycles
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted, fitted_constant
from gpusim.units import WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext
from gpusim.workload.tma.boxes import TensorMap

NUM_STEPS, MOST_STEPS = 256, 512
FIRST = NUM_STEPS // 2
"""Steps from here on count: data and instructions are near by then."""
BOX_WIDTH, ROW_BYTES = 64, 128
TENSOR_WIDTH = 16 * BOX_WIDTH
"""Elements of a row: after 16 steps a producer starts anew, so that all comes from L2."""
TENSOR_ROWS = 512
ROOM_BYTES = 200 * 1024
LEAST_SMEM_BYTES = 49 * 1024
"""More than 48 KiB, so that the bench opts in, whatever the kernel itself takes."""


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Row(ConfigRow):
    """One config."""

    kernel: str
    num_boxes: int
    num_stages: int = 4
    box_rows: int = 8
    num_issuers: int = 1
    num_consumers: int = 1

    @property
    def box_bytes(self) -> int:
        """Bytes of a box: rows of 128."""
        return self.box_rows * ROW_BYTES

    @property
    def ring_bytes(self) -> int:
        """Of all stages."""
        return self.num_stages * self.num_boxes * self.box_bytes


BOXES = (1, 2, 3, 4, 6, 8)


def one_thread() -> list[Row]:
    """One thread issues all boxes of a stage: small ones, and large ones that memory limits."""
    found = Row.sweep(kernel="loop_warps", box_rows=(8, 64), num_stages=(1, 2, 4, 8, 16), num_boxes=BOXES)
    return [config for config in found if config.ring_bytes <= ROOM_BYTES]


def two_maps() -> list[Row]:
    """Boxes of two operands in turn, each with its own tensor map."""
    return Row.sweep(kernel="loop_warps_two_maps", num_stages=(2, 4, 8), num_boxes=(2, 4, 6, 8))


def fixed() -> list[Row]:
    """All boxes from the tensor's corner: the loop without coordinates."""
    return Row.sweep(kernel="loop_warps_fixed", num_stages=(8, 16), num_boxes=BOXES)


def timed() -> list[Row]:
    """The clock after every step of the loop."""
    return Row.sweep(kernel="loop_warps_timed", num_stages=(1, 4, 8, 16), num_boxes=BOXES)


def several() -> list[Row]:
    """Several issuers, each with its share of a stage: warps, or lanes of one warp."""
    return [
        Row(kernel, num, num_stages=stages, num_issuers=issuers)
        for kernel in ("loop_warps", "loop_lanes") for stages in (4, 8) for num in (2, 4, 8)
        for issuers in ((1, 2, 4, 8) if kernel == "loop_lanes" else (2, 4, 8)) if num % issuers == 0
    ]  # fmt: skip


def consumers() -> list[Row]:
    """More consumer warps that arrive on the empty barrier."""
    return Row.sweep(kernel="loop_warps", num_stages=(2, 4, 8), num_boxes=(1, 2), num_consumers=(2, 4, 8))


# ---------------------------------------------------------------------------------------------- launch and check
@cache
def tensor(salt: int) -> NDArray[np.uint8]:
    """Random bytes, uint8[rows, bytes of a row]; copied to the GPU once."""
    shape = (TENSOR_ROWS, TENSOR_WIDTH * BF16.num_bytes)
    return read_only(np.random.default_rng(salt).integers(0, 256, shape, dtype=np.uint8))


def tensor_map(config: Row) -> TensorMap:
    """Boxes of some rows of 128 bytes, swizzled."""
    return TensorMap(
        dtype=BF16, global_dim=(TENSOR_WIDTH, TENSOR_ROWS), global_strides_bytes=(TENSOR_WIDTH * BF16.num_bytes,),
        box_dim=(BOX_WIDTH, config.box_rows), swizzle="128B", l2_promotion="none",
    )  # fmt: skip


def launch(config: Row) -> KernelLaunch:
    """Nothing is counted here: times come from the kernel."""
    boxes, num_bytes = config.num_boxes, config.box_bytes
    producers = 1 if config.kernel == "loop_lanes" else config.num_issuers
    plan = (
        NUM_STEPS, config.num_stages, boxes, num_bytes, num_bytes, boxes * num_bytes, config.num_issuers,
        config.num_consumers, config.box_rows, TENSOR_WIDTH, config.ring_bytes,
    )  # fmt: skip
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.array(plan, dtype="<u4")), MappedTensor(tensor(0), tensor_map(config)),
            MappedTensor(tensor(1), tensor_map(config)), Output("smem", np.zeros(config.ring_bytes, dtype=np.uint8)),
            Output("times", np.full(4 + MOST_STEPS * 5, 0xFFFFFFFF, dtype="<u4")),
        ),
        block=(WARP_SIZE * (producers + config.num_consumers), 1, 1), smem_bytes=max(LEAST_SMEM_BYTES, config.ring_bytes),
    )  # fmt: skip


def expected_smem(config: Row) -> NDArray[np.uint8]:
    """All stages as the last steps leave them."""
    stages, boxes, rows = config.num_stages, config.num_boxes, config.box_rows
    plain = np.empty((stages, boxes, config.box_bytes), dtype=np.uint8)
    for step in range(NUM_STEPS - stages, NUM_STEPS):
        x = step * ROW_BYTES % (TENSOR_WIDTH * BF16.num_bytes)
        for box in range(boxes):
            source = tensor(box % 2 if config.kernel == "loop_warps_two_maps" else 0)
            y, begin = (0, 0) if config.kernel == "loop_warps_fixed" else (box * rows, x)
            plain[step % stages, box] = source[y : y + rows, begin : begin + ROW_BYTES].reshape(-1)
    return swizzled(plain)


def _since(later: NDArray[np.uint32], earlier: NDArray[np.uint32]) -> NDArray[np.int64]:
    return np.asarray((later - earlier).astype(np.int64))


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Cycles of a stage, and where they are timed those of every step.

    Raises:
        WrongAnswer: a wait was given up, other bytes came, or the clock did not run.
    """
    times = outputs["times"]
    wrong_if(times[0], "an mbarrier never completed, the wait was given up")
    wrong_if((outputs["smem"] != expected_smem(config)).any(), "the stages hold other bytes than the tensor")
    done = times[4 : 4 + MOST_STEPS][:NUM_STEPS]
    stages = _since(done[FIRST:], done[FIRST - 1 : -1])
    values = {
        "cycles_per_stage": float(_since(done[-1:], done[FIRST - 1 : FIRST])[0]) / len(stages),
        "min_stage_cycles": float(stages.min()), "median_stage_cycles": float(np.median(stages)),
        "p90_stage_cycles": float(np.percentile(stages, 90, method="nearest")), "max_stage_cycles": float(stages.max()),
    }  # fmt: skip
    if not 0 < values["cycles_per_stage"] < 1e8:
        raise WrongAnswer(f"the clock says {values['cycles_per_stage']} cycles a stage")
    if config.kernel == "loop_warps_timed":
        steps = times[4 + MOST_STEPS :].reshape(MOST_STEPS, 4)[FIRST:NUM_STEPS]
        taken = _since(steps[:, 1:], steps[:, :-1])
        for idx, name in enumerate(("wait_cycles", "announce_cycles", "issue_cycles")):
            values |= {name: float(np.median(taken[:, idx])), f"min_{name}": float(taken[:, idx].min())}
            values[f"p90_{name}"] = float(np.percentile(taken[:, idx], 90, method="nearest"))
        values["rest_cycles"] = float(np.median(_since(steps[1:, 0], steps[:-1, 3])))
    return values


# ---------------------------------------------------------------------------------------------- the simulator's answer
def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """The same ring; nothing for several lanes of one warp, of which the simulator has no word."""
    if config.kernel == "loop_lanes":
        return {}
    return {"cycles_per_stage": _simulated(gpu, config)}


TWIN_STEPS = 64
SCHEDULES = schedules_of(__file__, "sass.csv")
"""What the compiler has scheduled for a producer's step, by kernel and boxes of an issuer: cycles from its wait to its
announcement, from there to the first copy, from copy to copy, and from the last one to the next wait; ``+``: with a wait
until a copy has read its operands, whose registers are written anew. From SASS; a test reads it again."""
OPERAND_CYCLES = 9.0
"""Such a wait: kernels/copy_rate."""
REST_CYCLES = {"loop_warps": 11.7, "loop_warps_two_maps": 19.4, "loop_warps_fixed": 10.9, "loop_warps_timed": 21.6}
"""What a step takes beyond its schedule: loads of constants, stores, registers that are waited for."""
SEEN_CYCLES = 72.0
"""From a consumer warp's wait to its arrival: one lane notes the clock, one arrives. SASS has 21 of them."""
SEEN_GRID = range(20, 121, 4)
"""What is tried for it, in cycles."""


def schedule_of(kernel: str, num_boxes: int) -> list[float]:
    """``SCHEDULES`` in cycles."""
    return [float(item.rstrip("+")) + OPERAND_CYCLES * item.endswith("+") for item in SCHEDULES[kernel][num_boxes].split()]


def _simulated(gpu: GpuSpec, ring: Row, *, seen_cycles: float = SEEN_CYCLES) -> float:
    """Cycles a stage, of the second half of the steps, as the first consumer sees them."""
    num_boxes, num_stages, box_rows = ring.num_boxes, ring.num_stages, ring.box_rows
    num_issuers, num_consumers = ring.num_issuers, ring.num_consumers
    num_bytes, share = box_rows * ROW_BYTES, num_boxes // num_issuers
    before, *gaps = schedule_of(ring.kernel, share)
    gaps = [max(0.0, gap - gpu.tma.issue_cycles * (idx > 0)) for idx, gap in enumerate(gaps)]
    gaps[-1] += REST_CYCLES[ring.kernel]
    announce, *codes, seen = (chained_code(cycles, gpu) for cycles in (before, *gaps, seen_cycles))

    def issuer(who: int, _cta: RoleContext) -> Iterator[Any]:
        for step in range(TWIN_STEPS):
            stage = step % num_stages
            yield ops.MbarrierWait("empty", stage, step // num_stages & 1 ^ 1, by_lane=True)
            yield announce
            yield ops.MbarrierArriveExpectTx("full", stage, share * num_bytes)
            for code, box in zip(codes, range(who * share, (who + 1) * share), strict=False):
                yield code
                tile = (box, step % (TENSOR_WIDTH // BOX_WIDTH))
                yield ops.TmaLoad("T", tile, num_bytes, num_bytes, box_rows, "ring", stage, "full")
            yield codes[-1]

    def consumer(who: int, _cta: RoleContext) -> Iterator[Any]:
        for step in range(TWIN_STEPS):
            yield ops.MbarrierWait("full", step % num_stages, step // num_stages & 1)
            if who == 0 and step == TWIN_STEPS // 2 - 1:
                yield ops.RangeStart(ops.Section.MAINLOOP)
            if who == 0 and step == TWIN_STEPS - 1:
                yield ops.RangeEnd()
            yield seen
            yield ops.MbarrierArrive("empty", step % num_stages)

    roles = [WarpRole(name=f"issuer{who}", num_warps=1, program=partial(issuer, who)) for who in range(num_issuers)]
    roles += [WarpRole(name=f"consumer{who}", num_warps=1, program=partial(consumer, who)) for who in range(num_consumers)]
    launch = Launch(
        kernel="tma_loop", num_ctas=1, num_tiles=1, roles=tuple(roles),
        buffers=(Buffer(name="ring", stage_bytes=num_boxes * num_bytes, num_stages=num_stages),),
        mbarriers=tuple(
            Mbarrier(name=name, num_arrivals=num, num_stages=num_stages)
            for name, num in (("full", num_issuers), ("empty", num_consumers))
        ),
    )  # fmt: skip
    return range_cycles(launch, gpu)["consumer0"][0] / (TWIN_STEPS // 2)


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What a lone lane's wait takes: with nothing to wait for, and for each try more."""
    waits = [float(row["wait_cycles"]) - CLOCK_CYCLES for row in rows if row["group"] == "timed" and row.get("wait_cycles")]
    if not waits:
        return []
    least = min(waits)
    first = float(np.median([wait for wait in waits if wait < 1.5 * least]))
    how = "an elected lane's wait for a stage that is empty, less the clock, median"
    found = [Fitted(parameter="mbarrier.one_lane_try_wait_cycles", value=first, how=how)]
    retries = [(wait - first) / max(1, round((wait - first) / first)) for wait in waits if wait >= 1.5 * least]
    how = "its longer waits less that, median over the tries they hold"
    return found + fitted("mbarrier.one_lane_retry_cycles", retries, how)


CLOCK_CYCLES = 2.0
"""Of one reading of the clock: kernels/copy_rate."""
HEAD_CYCLES = 10.0
"""From the clock to a wait's first try, by boxes 9 or 10: the loop's own code that
``mbarrier.one_lane_try_wait_cycles`` holds. From SASS; a test reads it again."""


def fitted_constants(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[FittedConstant]:
    """What the producer's step takes beyond its schedule, of rings whose producer never waits for a stage."""
    waits = {fitted.parameter: fitted.value for fitted in fit(rows)}
    lone = waits.get("mbarrier.one_lane_try_wait_cycles", float("nan"))
    assert gpu.tma is not None  # it has measured this kernel
    found: list[FittedConstant] = []
    for kernel in REST_CYCLES:
        left = []
        for row in rows:
            is_alone = row["num_consumers"] == row["num_issuers"] == "1"
            is_free = is_alone and int(row["num_stages"]) >= 4 and row["box_rows"] == "8"
            if row["kernel"] == kernel and is_free and row.get("cycles_per_stage"):
                before, first, *gaps, last = schedule_of(kernel, int(row["num_boxes"]))
                between = sum(max(gap, gpu.tma.issue_cycles) for gap in gaps)
                left.append(float(row["cycles_per_stage"]) - lone - before - first - between - last)
        how = "4 and more stages of boxes of 1 KiB: cycles_per_stage less the schedule and a lone lane's wait, median"
        found += fitted_constant("REST_CYCLES", left, how, kernel)
    return found + _seen(rows, gpu)


def _seen(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[FittedConstant]:
    """A lone lane looks from time to time, so that rings of one stage jump: what leaves the least squares."""
    rings = [
        row for row in rows if row["num_stages"] == "1" and row["kernel"] in REST_CYCLES and row.get("cycles_per_stage")
    ]
    if not rings:
        return []

    def squares(seen_cycles: float) -> float:
        ratios = [_simulated(gpu, Row.of(row), seen_cycles=seen_cycles) / float(row["cycles_per_stage"]) for row in rings]
        return float(np.sum((np.array(ratios) - 1.0) ** 2))

    how = "rings of one stage: what leaves the least squares of the twin's relative errors, in steps of four cycles"
    return [FittedConstant(name="SEEN_CYCLES", value=float(min(SEEN_GRID, key=squares)), how=how)]


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """Bytes that come in a cycle, and cycles a box."""
    if not row.get("cycles_per_stage"):
        return {}
    cycles, boxes = float(row["cycles_per_stage"]), int(row["num_boxes"])
    return {"bytes_per_cycle": boxes * Row.of(row).box_bytes / cycles, "cycles_per_box": cycles / boxes}


_SPREAD = {"": "median", "min_": "least", "p90_": "90th percentile"}
_STEPS = {
    "wait_cycles": "SM cycles of the producer's wait for an empty stage",
    "announce_cycles": "SM cycles of the producer's arrive.expect_tx",
    "issue_cycles": "SM cycles of the coordinates and of all boxes' instructions",
}

CASE = Case(
    name="tma_loop",
    question="What does a stage cost a TMA producer whose consumer does nothing: wait, announce, coordinates, issue?",
    config_type=Row, launch=launch, check=check, num_repeats=5, predict=predict, fit=fit, fitted_constants=fitted_constants,
    derive=derive,
    groups={
        name: Group(configs=configs, rank=rank, least_capability=(9, 0)) for name, configs, rank in (
            ("one_thread", one_thread, 2), ("timed", timed, 2), ("several", several, 3), ("fixed", fixed, 3),
            ("two_maps", two_maps, 3), ("consumers", consumers, 3),
        )
    },
    values={
        "cycles_per_stage": "SM cycles a stage, of the second half of the steps, as the first consumer warp sees them full",
        "min_stage_cycles": "SM cycles from one stage to the next, least",
        "median_stage_cycles": "... median",
        "p90_stage_cycles": "... 90th percentile",
        "max_stage_cycles": "... most",
        **{f"{label}{name}": f"{meaning}, {word}" for name, meaning in _STEPS.items() for label, word in _SPREAD.items()},
        "rest_cycles": "SM cycles of the rest of the loop: stage, parity, and the note of the clock itself, median",
    },
    tiers={"cycles_per_stage": 4},
)  # fmt: skip
