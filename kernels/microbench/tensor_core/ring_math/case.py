"""What does a k-step take whose own warps load a step ahead, multiply, and wait for one another?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, Launch, Mbarrier, WarpRole, simulate
from gpusim.evidence.cases.array import fragment_places, read_only
from gpusim.evidence.cases.case import Case, Fitted, Group, Outputs
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import KernelLaunch, MappedTensor, Output, by_value
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.microbenchmark import chained_code
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted
from gpusim.kernel_models.gemm.warp_specialized import BEFORE_COPIES, BEFORE_MATH, BESIDE_MATH, between_wgmma
from gpusim.machine.config import GpuSpec
from gpusim.workload import ops
from gpusim.workload.atoms.mma import wgmma
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext
from gpusim.workload.tma.boxes import TensorMap

KIB = 1024
ROW_BYTES = 128
"""Of a box: 64 elements of bf16."""
NUM_COLUMNS = 4
"""Boxes along k before a walk begins again: few, so that all SMs' operands stay in L2."""
MOST_CTAS = measured_gpu().num_sms
NUM_LEAD, NUM_TIMED = 32, 128
LEAST_SMEM_BYTES = 120 * KIB
"""So that two CTAs find no room on one SM."""
MOST_SMEM_BYTES = 220 * KIB
WORDS_SEEN = 8

SOME_N = (64, 128, 256)
CROWDED_REGISTERS, ALL_REGISTERS = {64: 64, 128: 96}, 65536
"""Of a thread, at most, where several CTAs are to fit on an SM; of an SM."""
WARPGROUPS = (1, 2)
DEPTHS = (0, 1)
STAGES = (2, 3, 4)
BOXES = (1, 2)


# ---------------------------------------------------------------------------------------------- kernels and configs
def includes() -> dict[str, str]:
    """``shapes.inc``: a struct with the instruction for every n, and its kernels."""
    return {"shapes.inc": "".join(_struct(n) for n in SOME_N)}


def _struct(n: int) -> str:
    num = n // 2
    sums = ", ".join(f"%{i}" for i in range(num))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(num))
    ptx = f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16"
    kernels = "".join(
        f"RING_KERNEL(n{n}, {num_warpgroups}, {depth}, {boxes})\n"
        for num_warpgroups in WARPGROUPS for depth in DEPTHS for boxes in BOXES
    )  # fmt: skip
    return f"""struct n{n} {{
    static constexpr int kNumAccumulators = {num};
    static __device__ __forceinline__ void issue(float (&d)[{num}], uint64_t a, uint64_t b) {{
        asm volatile("{ptx} {{{sums}}}, %{num}, %{num + 1}, 1, 1, 1, 0, 0;" : {outputs} : "l"(a), "l"(b));
    }}
}};
{kernels}"""


@dataclass(frozen=True, kw_only=True)
class Row(ConfigRow):
    """One config."""

    n: int
    num_warpgroups: int
    depth: int
    num_stages: int
    num_boxes: int
    num_ctas: int
    has_copies: int
    is_noted: int

    @property
    def kernel(self) -> str:
        """The entry point."""
        return f"ring_n{self.n}_{self.num_warpgroups}_{self.depth}_{self.num_boxes}"

    @property
    def rows(self) -> tuple[int, int]:
        """Of a CTA's tile of A, and of B."""
        return 64 * self.num_warpgroups, self.n

    @property
    def operand_bytes(self) -> tuple[int, int]:
        """A's and B's bytes of a k-step."""
        return self.num_boxes * self.rows[0] * ROW_BYTES, self.num_boxes * self.rows[1] * ROW_BYTES

    @property
    def stage_bytes(self) -> int:
        """Both operands of a k-step."""
        return sum(self.operand_bytes)


def rings() -> list[Row]:
    """Every shape with and without copies, noted and not."""
    found = [
        Row(
            n=n, num_warpgroups=num_warpgroups, depth=depth, num_stages=stages, num_boxes=boxes, num_ctas=ctas,
            has_copies=copies, is_noted=noted,
        )
        for noted in (0, 1) for num_warpgroups in WARPGROUPS for n in SOME_N for boxes in BOXES for depth in DEPTHS
        for copies, ctas, stages in ((0, 1, 2), *((1, ctas, stages) for ctas in (1, MOST_CTAS) for stages in STAGES))
    ]  # fmt: skip
    return [config for config in found if config.stage_bytes * config.num_stages <= MOST_SMEM_BYTES]


def crowded() -> list[Row]:
    """Two and four CTAs an SM, which read the same tiles: do they fill one queue?"""
    found = [
        Row(
            n=n, num_warpgroups=num_warpgroups, depth=depth, num_stages=stages, num_boxes=boxes, num_ctas=each * MOST_CTAS,
            has_copies=copies, is_noted=noted,
        )
        for noted in (0, 1) for each in (2, 4) for num_warpgroups in WARPGROUPS for n in (64, 128) for boxes in BOXES
        for depth in DEPTHS for copies, stages in ((0, 2), (1, 2), (1, 3))
        if each * num_warpgroups * 128 * CROWDED_REGISTERS[n] <= ALL_REGISTERS
    ]  # fmt: skip
    return [config for config in found if config.stage_bytes * config.num_stages <= room_bytes(config)]


def room_bytes(config: Row) -> int:
    """Of a CTA, so that as many fit as there are for each SM, and no more."""
    each = max(1, config.num_ctas // MOST_CTAS)
    return MOST_SMEM_BYTES if each == 1 else (224 // each - 2) * KIB


# ---------------------------------------------------------------------------------------------- launch and check
@cache
def numbers(num_rows: int, salt: int) -> NDArray[np.int64]:
    """An operand [num_rows, k]: whole numbers from -2 to 2, that fp32 sums up exactly."""
    rows, columns = np.arange(num_rows)[:, None], np.arange(NUM_COLUMNS * 64)[None, :]
    mixed = (rows * 7919 + columns * 104729 + salt) * 2654435761 % 2**32 >> 16
    return read_only((mixed % 5 - 2).astype(np.int64))


@cache
def as_bf16(num_rows: int, salt: int) -> NDArray[np.uint16]:
    """The same as the GPU gets it."""
    return read_only((numbers(num_rows, salt).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16))


def tensor_map(num_rows: int, box_rows: int) -> TensorMap:
    """Rows one behind the other, K contiguous."""
    return TensorMap(
        dtype=BF16, global_dim=(NUM_COLUMNS * 64, num_rows), global_strides_bytes=(NUM_COLUMNS * ROW_BYTES,),
        box_dim=(64, box_rows), swizzle="128B", l2_promotion="128B",
    )  # fmt: skip


def launch(config: Row) -> KernelLaunch:
    """The last CTA is checked."""
    (a_rows, b_rows), ctas, stages = config.rows, config.num_ctas, config.num_stages
    num_warpgroups = config.num_warpgroups
    plan = [
        stages, config.num_boxes, b_rows, NUM_COLUMNS, NUM_LEAD, NUM_TIMED, config.has_copies,
        config.is_noted, ctas <= MOST_CTAS, ctas - 1,
    ]  # fmt: skip
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.array(plan, dtype="<u4")),
            MappedTensor(as_bf16(a_rows, 1), tensor_map(a_rows, a_rows)),
            MappedTensor(as_bf16(MOST_CTAS * b_rows, 2), tensor_map(MOST_CTAS * b_rows, b_rows)),
            Output("d", np.full((b_rows // 2, 128 * num_warpgroups), -1, dtype="<f4")),
            Output("seen", np.full((ctas, num_warpgroups, WORDS_SEEN), -1, dtype="<i4")),
        ),
        grid=(ctas, 1, 1), block=(128 * num_warpgroups, 1, 1),
        smem_bytes=room_bytes(config) if ctas > MOST_CTAS else max(LEAST_SMEM_BYTES, stages * config.stage_bytes),
    )  # fmt: skip


def product(config: Row) -> NDArray[np.int64]:
    """What the checked CTA's accumulators hold: int64[accumulators, threads]."""
    (a_rows, b_rows), ctas, boxes = config.rows, config.num_ctas, config.num_boxes
    panel = ctas - 1 if ctas <= MOST_CTAS else 0
    a, b = numbers(a_rows, 1), numbers(MOST_CTAS * b_rows, 2)[panel * b_rows : (panel + 1) * b_rows]
    steps = NUM_LEAD + NUM_TIMED
    times = np.zeros(NUM_COLUMNS, dtype=np.int64)
    for step in range(steps):
        loaded = step if config.has_copies else step % config.num_stages
        times[[(loaded * boxes + box) % NUM_COLUMNS for box in range(boxes)]] += 1
    whole = (a * np.repeat(times, 64)) @ b.T
    row, column = fragment_places(b_rows)
    return np.concatenate([whole[64 * idx + row, column] for idx in range(config.num_warpgroups)], axis=1)


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Cycles of a step and of its parts, mean of the CTAs.

    Raises:
        WrongAnswer: a wait that was given up, another product, a clock that stood still.
    """
    seen = outputs["seen"].astype(np.float64)
    wrong_if(seen[:, :, 6].any(), "a wait was given up: a stage never came")
    wrong_if((outputs["d"] != product(config)).any(), "the sums are not the product's")
    wrong_if((seen[:, :, 0] <= 0).any(), "the clock stood still")
    values = {"step_cycles": float(seen[:, :, 0].mean()) / NUM_TIMED}
    if config.is_noted:
        for idx, name in enumerate(("wait", "issue", "drain", "meet"), start=1):
            for warpgroup in range(config.num_warpgroups):
                values[f"{name}_{warpgroup}_cycles"] = float(seen[:, warpgroup, idx].mean()) / NUM_TIMED
        values["refill_cycles"] = float(seen[:, 0, 5].mean()) / NUM_TIMED
    return values


# ---------------------------------------------------------------------------------------------- the simulator's answer

TWIN_STEPS = 24
CODE: Mapping[tuple[int, int, int], tuple[int, int]] = {
    (64, 1, 1): (312, 566), (64, 1, 2): (363, 702), (64, 2, 1): (312, 566), (64, 2, 2): (363, 702),
    (128, 1, 1): (286, 534), (128, 1, 2): (389, 728), (128, 2, 1): (286, 534), (128, 2, 2): (389, 728),
    (256, 1, 1): (374, 627), (256, 1, 2): (486, 858), (256, 2, 1): (374, 636), (256, 2, 2): (486, 876),
}  # fmt: skip
"""Cycles that a step's own instructions take beside the ops, without copies and with them, by n, warpgroups, boxes. Source:
SASS of sm_90a, ``gpusim.evidence.toolchain.issue_latency``."""


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """The same ring, fewer steps; clocks between are not told of."""
    if gpu.num_sms != MOST_CTAS or gpu.mbarrier is None or config.is_noted:
        return {}
    return {"step_cycles": _twin(config, gpu)}


def _twin(config: Row, gpu: GpuSpec) -> float:
    """Cycles of a step; a role for each warpgroup, the first of which copies."""
    (a_bytes, b_bytes), (a_rows, b_rows), boxes = config.operand_bytes, config.rows, config.num_boxes
    stages, depth, copies = config.num_stages, config.depth, config.has_copies
    ahead = stages - 1 if copies else stages
    plain, copying = CODE[config.n, config.num_warpgroups, boxes]
    dependent_cycles = gpu.warp_scheduler.dependent_cycles
    between = between_wgmma(plain / dependent_cycles, 4 * boxes, b_rows)
    math = [ops.Wgmma(wgmma(b_rows, BF16), 4 * boxes, (("a", stage), ("b", stage)), between) for stage in range(stages)]
    before_math, beside_math, behind_math = (
        chained_code(cycles, gpu)
        for cycles in (
            plain * BEFORE_MATH, plain * BESIDE_MATH - between * dependent_cycles, plain * (1 - BEFORE_MATH - BESIDE_MATH),
        )
    )  # fmt: skip
    before_copies, behind_copies = (
        chained_code((copying - plain) * share, gpu) for share in (BEFORE_COPIES, 1 - BEFORE_COPIES)
    )  # fmt: skip
    half, ctas = TWIN_STEPS // 2, config.num_ctas

    def load(cta: int, step: int) -> Iterator[Any]:
        stage = step % stages
        yield before_copies
        yield ops.MbarrierArriveExpectTx("full", stage, a_bytes + b_bytes)
        for box in range(boxes):
            column = (step * boxes + box) % NUM_COLUMNS
            yield ops.TmaLoad("A", (0, column), a_bytes // boxes, a_bytes // boxes, a_rows, "a", stage, "full")
            tile = (cta if ctas <= MOST_CTAS else 0, column)
            yield ops.TmaLoad("B", tile, b_bytes // boxes, b_bytes // boxes, b_rows, "b", stage, "full")
        yield behind_copies

    def multiply(is_loader: bool, cta: RoleContext) -> Iterator[Any]:
        for step in range(ahead if is_loader else 0):
            yield from load(cta.cta_idx, step)
        yield ops.RangeStart(ops.Section.MAINLOOP)
        for step in range(TWIN_STEPS):
            if step == half:
                yield ops.RangeEnd()
                yield ops.RangeStart(ops.Section.MAINLOOP)
            if copies or step < stages:
                yield ops.MbarrierWait("full", step % stages, step // stages & 1)
            yield before_math
            yield ops.WgmmaFence()
            yield math[step % stages]
            yield ops.WgmmaCommitGroup()
            yield beside_math
            yield ops.WgmmaWaitGroup(depth)
            yield ops.Syncthreads()
            if is_loader and copies and step + ahead < TWIN_STEPS:
                yield from load(cta.cta_idx, step + ahead)
            yield behind_math
        yield ops.RangeEnd()
        yield ops.WgmmaWaitGroup(0)

    launched = Launch(
        kernel="ring_math", num_ctas=ctas, num_tiles=ctas,
        roles=tuple(
            WarpRole(name=f"warpgroup {idx}", num_warps=4, program=partial(multiply, idx == 0))
            for idx in range(config.num_warpgroups)
        ),
        buffers=(
            Buffer(name="a", stage_bytes=a_bytes, num_stages=stages),
            Buffer(name="b", stage_bytes=b_bytes, num_stages=stages),
            Buffer(name="rest", stage_bytes=launch(config).smem_bytes - stages * (a_bytes + b_bytes)),
        ),
        mbarriers=(Mbarrier(name="full", num_arrivals=1, num_stages=stages),),
    )  # fmt: skip
    result = simulate(launched, gpu, clock="max", l2="warm", recorded_sms=range(gpu.num_sms))
    spans = [role.sections[-1] for role in result.timeline.roles if role.sections]
    return float(np.mean([span.end_cycle - span.start_cycle for span in spans])) / half


DRAIN_CYCLES = 45.75
"""From a group's end in the pipe until its wait returns: ``wgmma_latency_cycles`` and ``wgmma_smem_a_cycles``."""
CYCLES_PER_COLUMN = 0.5
"""Of a wgmma of bf16: 64 x n x 16."""


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """Wgmma that are left when the last has been issued of two warpgroups that issue eight each."""
    left = [
        (float(row[f"drain_{warpgroup}_cycles"]) - DRAIN_CYCLES) / (CYCLES_PER_COLUMN * int(row["n"])) for row in rows
        for warpgroup in (0, 1)
        if row["is_noted"] == "1" and row["num_warpgroups"] == "2" and row["num_boxes"] == "2" and row["depth"] == "0"
        and int(row["num_ctas"]) <= MOST_CTAS
    ]  # fmt: skip
    how = (
        "two warpgroups that issue eight each and wait for them: how long the wait, less its latency and A's start, over "
        "cycles each: median"
    )
    return fitted("tensor_core.wgmma_max_queued", left, how)


CASE = Case(
    name="ring_math",
    question=__doc__,
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict, fit=fit, includes=includes,
    groups={
        "rings": Group(configs=rings, rank=2, least_capability=(9, 0)),
        "crowded": Group(configs=crowded, rank=2, least_capability=(9, 0)),
    },
    values={
        "step_cycles": "SM cycles from step to step, mean of the CTAs",
        **{
            f"{name}_{warpgroup}_cycles": f"of these, of warpgroup {warpgroup}, clocks and all: {meaning}"
            for name, meaning in (
                ("wait", "the wait for the stage"), ("issue", "from there until the last wgmma is issued"),
                ("drain", "the wait for groups"), ("meet", "the meeting"),
            )
            for warpgroup in (0, 1)
        },
        "refill_cycles": "of these, of the thread that copies: from the meeting until all copies are issued",
    },
    tiers={"step_cycles": 4},
)  # fmt: skip
