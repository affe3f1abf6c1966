"""What does a stage cost a TMA producer whose consumer does nothing: wait, announce, coordinates, issue?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, GpuSpec, Launch, Mbarrier, WarpRole, simulate
from gpusim.evidence.cases.case import (
    Case,
    Config,
    Fitted,
    FittedConstant,
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


def _config(
    kernel: str, num_boxes: int, *, num_stages: int = 4, box_rows: int = 8, num_issuers: int = 1, num_consumers: int = 1
) -> Config:
    return {
        "kernel": kernel, "num_boxes": str(num_boxes), "num_stages": str(num_stages), "box_rows": str(box_rows),
        "num_issuers": str(num_issuers), "num_consumers": str(num_consumers),
    }  # fmt: skip


def _legal(found: list[Config]) -> list[Config]:
    return [config for config in found if _ring_bytes(config) <= ROOM_BYTES]


def _ring_bytes(config: Config) -> int:
    return int(config["num_stages"]) * int(config["num_boxes"]) * box_bytes(config)


def box_bytes(config: Config) -> int:
    """Bytes of a box: rows of 128."""
    return int(config["box_rows"]) * ROW_BYTES


BOXES = (1, 2, 3, 4, 6, 8)


def one_thread(seed: int) -> list[Config]:
    """One thread issues all boxes of a stage: small ones, and large ones that memory limits."""
    del seed  # a sweep, the same for every seed
    return _legal([
        _config("loop_warps", num, num_stages=stages, box_rows=rows)
        for rows in (8, 64) for stages in (1, 2, 4, 8, 16) for num in BOXES
    ])  # fmt: skip


def two_maps(seed: int) -> list[Config]:
    """Boxes of two operands in turn, each with its own tensor map."""
    del seed  # a sweep, the same for every seed
    return [_config("loop_warps_two_maps", num, num_stages=stages) for stages in (2, 4, 8) for num in (2, 4, 6, 8)]


def fixed(seed: int) -> list[Config]:
    """All boxes from the tensor's corner: the loop without coordinates."""
    del seed  # a sweep, the same for every seed
    return [_config("loop_warps_fixed", num, num_stages=stages) for stages in (8, 16) for num in BOXES]


def timed(seed: int) -> list[Config]:
    """The clock after every step of the loop."""
    del seed  # a sweep, the same for every seed
    return [_config("loop_warps_timed", num, num_stages=stages) for stages in (1, 4, 8, 16) for num in BOXES]


def several(seed: int) -> list[Config]:
    """Several issuers, each with its share of a stage: warps, or lanes of one warp."""
    del seed  # a sweep, the same for every seed
    return [
        _config(kernel, num, num_stages=stages, num_issuers=issuers)
        for kernel in ("loop_warps", "loop_lanes") for stages in (4, 8) for num in (2, 4, 8)
        for issuers in ((1, 2, 4, 8) if kernel == "loop_lanes" else (2, 4, 8)) if num % issuers == 0
    ]  # fmt: skip


def consumers(seed: int) -> list[Config]:
    """More consumer warps that arrive on the empty barrier."""
    del seed  # a sweep, the same for every seed
    return [
        _config("loop_warps", num, num_stages=stages, num_consumers=warps) for stages in (2, 4, 8) for num in (1, 2)
        for warps in (2, 4, 8)
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- launch and check


@cache
def tensor(salt: int) -> NDArray[np.uint8]:
    """Random bytes, uint8[rows, bytes of a row]; copied to the GPU once."""
    made = np.random.default_rng(salt).integers(0, 256, (TENSOR_ROWS, TENSOR_WIDTH * BF16.num_bytes), dtype=np.uint8)
    made.setflags(write=False)
    return made


def tensor_map(config: Config) -> TensorMap:
    """Boxes of some rows of 128 bytes, swizzled."""
    return TensorMap(
        dtype=BF16, global_dim=(TENSOR_WIDTH, TENSOR_ROWS), global_strides_bytes=(TENSOR_WIDTH * BF16.num_bytes,),
        box_dim=(BOX_WIDTH, int(config["box_rows"])), swizzle="128B", l2_promotion="none",
    )  # fmt: skip


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """Nothing is counted here: times come from the kernel."""
    del is_counted
    boxes, num_bytes = int(config["num_boxes"]), box_bytes(config)
    producers = 1 if config["kernel"] == "loop_lanes" else int(config["num_issuers"])
    told = (
        NUM_STEPS, int(config["num_stages"]), boxes, num_bytes, num_bytes, boxes * num_bytes, int(config["num_issuers"]),
        int(config["num_consumers"]), int(config["box_rows"]), TENSOR_WIDTH, _ring_bytes(config),
    )  # fmt: skip
    return KernelLaunch(
        kernel=config["kernel"],
        arguments=(
            by_value(np.array(told, dtype="<u4")), MappedTensor(tensor(0), tensor_map(config)),
            MappedTensor(tensor(1), tensor_map(config)), Output("smem", np.zeros(_ring_bytes(config), dtype=np.uint8)),
            Output("times", np.full(4 + MOST_STEPS * 5, 0xFFFFFFFF, dtype="<u4")),
        ),
        block=(WARP_SIZE * (producers + int(config["num_consumers"])), 1, 1),
        smem_bytes=max(LEAST_SMEM_BYTES, _ring_bytes(config)),
    )  # fmt: skip


def expected_smem(config: Config) -> NDArray[np.uint8]:
    """All stages as the last steps leave them."""
    stages, boxes, rows = (int(config[name]) for name in ("num_stages", "num_boxes", "box_rows"))
    plain = np.empty((stages, boxes, box_bytes(config)), dtype=np.uint8)
    for step in range(NUM_STEPS - stages, NUM_STEPS):
        x = step * ROW_BYTES % (TENSOR_WIDTH * BF16.num_bytes)
        for box in range(boxes):
            source = tensor(box % 2 if config["kernel"] == "loop_warps_two_maps" else 0)
            y, begin = (0, 0) if config["kernel"] == "loop_warps_fixed" else (box * rows, x)
            plain[step % stages, box] = source[y : y + rows, begin : begin + ROW_BYTES].reshape(-1)
    made = np.empty(plain.size, dtype=np.uint8)
    made[np.asarray(swizzle_mode("128B")(np.arange(plain.size)))] = plain.reshape(-1)
    return made


def _since(later: NDArray[np.uint32], earlier: NDArray[np.uint32]) -> NDArray[np.int64]:
    return np.asarray((later - earlier).astype(np.int64))


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of a stage, and where they are timed those of every step.

    Raises:
        WrongAnswer: a wait was given up, other bytes came, or the clock did not run.
    """
    times = outputs["times"]
    if times[0]:
        raise WrongAnswer("an mbarrier never completed, the wait was given up")
    if (outputs["smem"] != expected_smem(config)).any():
        raise WrongAnswer("the stages hold other bytes than the tensor")
    done = times[4 : 4 + MOST_STEPS][:NUM_STEPS]
    stages = _since(done[FIRST:], done[FIRST - 1 : -1])
    values = {
        "cycles_per_stage": float(_since(done[-1:], done[FIRST - 1 : FIRST])[0]) / len(stages),
        "min_stage_cycles": float(stages.min()), "median_stage_cycles": float(np.median(stages)),
        "p90_stage_cycles": float(np.percentile(stages, 90, method="nearest")), "max_stage_cycles": float(stages.max()),
    }  # fmt: skip
    if not 0 < values["cycles_per_stage"] < 1e8:
        raise WrongAnswer(f"the clock says {values['cycles_per_stage']} cycles a stage")
    if config["kernel"] == "loop_warps_timed":
        steps = times[4 + MOST_STEPS :].reshape(MOST_STEPS, 4)[FIRST:NUM_STEPS]
        taken = _since(steps[:, 1:], steps[:, :-1])
        for idx, name in enumerate(("wait_cycles", "announce_cycles", "issue_cycles")):
            values |= {name: float(np.median(taken[:, idx])), f"min_{name}": float(taken[:, idx].min())}
            values[f"p90_{name}"] = float(np.percentile(taken[:, idx], 90, method="nearest"))
        values["rest_cycles"] = float(np.median(_since(steps[1:, 0], steps[:-1, 3])))
    return values


# ---------------------------------------------------------------------------------------------- the simulator's answer


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same ring; nothing for several lanes of one warp, of which the simulator has no word."""
    if config["kernel"] == "loop_lanes":
        return {}
    return {"cycles_per_stage": _simulated(gpu, config["kernel"], Ring(*_numbers(config)))}


def _numbers(config: Config) -> list[int]:
    return [int(config[name]) for name in ("num_boxes", "num_stages", "box_rows", "num_issuers", "num_consumers")]


TWIN_STEPS = 64
SCHEDULES: Mapping[str, Mapping[int, str]] = {
    "loop_warps": {
        1: "34 5 16+",
        2: "43 1 3 6",
        3: "25 20 4 4 7+",
        4: "47 3 3 1 3 7+",
        6: "47 4 8 4 1 1 1 7+",
        8: "47 2 8 6 1 8 4 1 3 7+",
    },
    "loop_warps_two_maps": {
        1: "34 5 16+",
        2: "43 1 3 6",
        3: "25 20 4 4 7+",
        4: "47 3 3 1 3 7+",
        6: "47 4 8 4 1 1 1 7+",
        8: "47 2 8 6 1 8 4 1 3 7+",
    },
    "loop_warps_fixed": {
        1: "23 14 19+",
        2: "23 23 4+ 7+",
        3: "23 23 4+ 4+ 7+",
        4: "23 23 6+ 4+ 4+ 7+",
        6: "23 23 8+ 4+ 4+ 4+ 4+ 7+",
        8: "34 2 8+ 4+ 4+ 4+ 4+ 4+ 4+ 7+",
    },
    "loop_warps_timed": {
        1: "24 32 35+",
        2: "24 41 5 35+",
        3: "24 45 4 4 35+",
        4: "24 46 4 4 4 35+",
        6: "24 53 5 1 1 1 4 35+",
        8: "24 47 8 8 4 1 1 2 4 35+",
    },
}  # fmt: skip
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
    return [
        float(item.rstrip("+")) + OPERAND_CYCLES * item.endswith("+") for item in SCHEDULES[kernel][num_boxes].split()
    ]


@dataclass(frozen=True)
class Ring:
    """Numbers of a config, in the order of its columns."""

    num_boxes: int
    num_stages: int
    box_rows: int
    num_issuers: int
    num_consumers: int


def _simulated(gpu: GpuSpec, kernel: str, ring: Ring, *, seen_cycles: float | None = None) -> float:
    """Cycles a stage, of the second half of the steps, as the first consumer sees them."""
    num_boxes, num_stages, box_rows = ring.num_boxes, ring.num_stages, ring.box_rows
    num_issuers, num_consumers = ring.num_issuers, ring.num_consumers
    num_bytes, share = box_rows * ROW_BYTES, num_boxes // num_issuers
    before, *gaps = schedule_of(kernel, share)
    gaps = [max(0.0, gap - gpu.tma.issue_cycles * (idx > 0)) for idx, gap in enumerate(gaps)]
    gaps[-1] += REST_CYCLES[kernel]
    last = SEEN_CYCLES if seen_cycles is None else seen_cycles
    announce, *codes, seen = (_code(cycles, gpu) for cycles in (before, *gaps, last))

    def issuer(who: int) -> Any:
        def program(cta: RoleContext) -> Iterator[Any]:
            del cta
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

        return program

    def consumer(who: int) -> Any:
        def program(cta: RoleContext) -> Iterator[Any]:
            del cta
            for step in range(TWIN_STEPS):
                yield ops.MbarrierWait("full", step % num_stages, step // num_stages & 1)
                if who == 0 and step == TWIN_STEPS // 2 - 1:
                    yield ops.RangeStart(ops.Section.MAINLOOP)
                if who == 0 and step == TWIN_STEPS - 1:
                    yield ops.RangeEnd()
                yield seen
                yield ops.MbarrierArrive("empty", step % num_stages)

        return program

    roles = [WarpRole(name=f"issuer{who}", num_warps=1, program=issuer(who)) for who in range(num_issuers)]
    roles += [WarpRole(name=f"consumer{who}", num_warps=1, program=consumer(who)) for who in range(num_consumers)]
    launch = Launch(
        kernel="tma_loop", num_ctas=1, num_tiles=1, roles=tuple(roles),
        buffers=(Buffer(name="ring", stage_bytes=num_boxes * num_bytes, num_stages=num_stages),),
        mbarriers=tuple(
            Mbarrier(name=name, num_arrivals=num, num_stages=num_stages)
            for name, num in (("full", num_issuers), ("empty", num_consumers))
        ),
    )  # fmt: skip
    result = simulate(launch, gpu, clock="max", l2="warm", recorded_sms=range(gpu.num_sms))
    (span,) = [span for role in result.timeline.roles for span in role.sections]
    return (span.end_cycle - span.start_cycle) / (TWIN_STEPS // 2)


def _code(num_cycles: float, gpu: GpuSpec) -> ops.Alu:
    """Code that takes a warp so long, most of it waiting for itself."""
    return ops.Alu(num_cycles / gpu.warp_scheduler.dependent_cycles, is_chain=True)


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What a lone lane's wait takes: with nothing to wait for, and for each try more."""
    waits = [float(row["wait_cycles"]) - CLOCK_CYCLES for row in rows if row["group"] == "timed" and row.get("wait_cycles")]
    if not waits:
        return []
    least = min(waits)
    at_once = [wait for wait in waits if wait < 1.5 * least]
    first = float(np.median(at_once))
    how = "an elected lane's wait for a stage that is empty, less the clock, median"
    found = [Fitted(parameter="mbarrier.one_lane_try_wait_cycles", value=first, how=how)]
    retries = [(wait - first) / max(1, round((wait - first) / first)) for wait in waits if wait >= 1.5 * least]
    if retries:
        how = "its longer waits less that, median over the tries they hold"
        found.append(Fitted(parameter="mbarrier.one_lane_retry_cycles", value=float(np.median(retries)), how=how))
    return found


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
    found = []
    for kernel in REST_CYCLES:
        left = []
        for row in rows:
            is_alone = row["num_consumers"] == row["num_issuers"] == "1"
            is_free = is_alone and int(row["num_stages"]) >= 4 and row["box_rows"] == "8"
            if row["kernel"] == kernel and is_free and row.get("cycles_per_stage"):
                before, first, *gaps, last = schedule_of(kernel, int(row["num_boxes"]))
                between = sum(max(gap, gpu.tma.issue_cycles) for gap in gaps)
                left.append(float(row["cycles_per_stage"]) - lone - before - first - between - last)
        if left:
            how = "4 and more stages of boxes of 1 KiB: cycles_per_stage less the schedule and a lone lane's wait, median"
            found.append(FittedConstant(name="REST_CYCLES", key=(kernel,), value=float(np.median(left)), how=how))
    return found + _seen(rows, gpu)


def _seen(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[FittedConstant]:
    """A lone lane looks from time to time, so that rings of one stage jump: what leaves the least squares."""
    rings = [
        row for row in rows if row["num_stages"] == "1" and row["kernel"] in REST_CYCLES and row.get("cycles_per_stage")
    ]
    if not rings:
        return []

    def squares(seen_cycles: float) -> float:
        ratios = [
            _simulated(gpu, row["kernel"], Ring(*_numbers(row)), seen_cycles=seen_cycles) / float(row["cycles_per_stage"])
            for row in rings
        ]
        return float(np.sum((np.array(ratios) - 1.0) ** 2))

    how = "rings of one stage: what leaves the least squares of the twin's relative errors, in steps of four cycles"
    return [FittedConstant(name="SEEN_CYCLES", value=float(min(SEEN_GRID, key=squares)), how=how)]


def derive(row: Config) -> dict[str, float]:
    """Bytes that come in a cycle, and cycles a box."""
    if not row.get("cycles_per_stage"):
        return {}
    cycles, boxes = float(row["cycles_per_stage"]), int(row["num_boxes"])
    return {"bytes_per_cycle": boxes * box_bytes(row) / cycles, "cycles_per_box": cycles / boxes}


HOPPER = (9, 0)
_SPREAD = {"": "median", "min_": "least", "p90_": "90th percentile"}
_STEPS = {
    "wait_cycles": "SM cycles of the producer's wait for an empty stage",
    "announce_cycles": "SM cycles of the producer's arrive.expect_tx",
    "issue_cycles": "SM cycles of the coordinates and of all boxes' instructions",
}

CASE = Case(
    name="tma_loop",
    question="What does a stage cost a TMA producer whose consumer does nothing: wait, announce, coordinates, issue?",
    columns=("num_boxes", "num_stages", "box_rows", "num_issuers", "num_consumers"),
    groups={
        "one_thread": Group(configs=one_thread, rank=2, least_capability=HOPPER),
        "timed": Group(configs=timed, rank=2, least_capability=HOPPER),
        "several": Group(configs=several, rank=3, least_capability=HOPPER),
        "fixed": Group(configs=fixed, rank=3, least_capability=HOPPER),
        "two_maps": Group(configs=two_maps, rank=3, least_capability=HOPPER),
        "consumers": Group(configs=consumers, rank=3, least_capability=HOPPER),
    },
    launch=launch,
    check=check,
    values={
        "cycles_per_stage": "SM cycles a stage, of the second half of the steps, as the first consumer warp sees them full",
        "min_stage_cycles": "SM cycles from one stage to the next, least",
        "median_stage_cycles": "... median",
        "p90_stage_cycles": "... 90th percentile",
        "max_stage_cycles": "... most",
        **{f"{label}{name}": f"{meaning}, {word}" for name, meaning in _STEPS.items() for label, word in _SPREAD.items()},
        "rest_cycles": "SM cycles of the rest of the loop: stage, parity, and the note of the clock itself, median",
    },
    num_repeats=5,
    predict=predict,
    tiers={"cycles_per_stage": 4},
    fit=fit,
    fitted_constants=fitted_constants,
    derive=derive,
)  # fmt: skip
