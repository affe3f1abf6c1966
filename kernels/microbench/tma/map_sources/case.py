"""Does it matter to a stream of TMA copies where their tensor maps lie, and who has made them?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, GpuSpec, Launch, Mbarrier, WarpRole, simulate
from gpusim.evidence.cases.array import read_only
from gpusim.evidence.cases.case import Case, FittedConstant, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Input, KernelLaunch, MappedTensor, Output, Scratch, by_value
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.microbenchmark import chained_code
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted_constant
from gpusim.workload import ops
from gpusim.workload.atoms import wgmma
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext
from gpusim.workload.tma.boxes import TensorMap

MAP_BYTES, BOX_ROWS, ROW_BYTES, THREADS = 128, 64, 128, 128
NUM_PANELS, NUM_COLUMNS = 256, 8
"""Panels of 64 rows of the tensor, and its columns of 64 elements: 16 MiB, which L2 keeps."""
ROWS_OF_TILES, SWIZZLE_SIZE = 32, 8
"""Tiles of a GEMM, 32 by 32, which CTAs walk as a GEMM's do."""
NUM_SMS = measured_gpu().num_sms
STEPS, LEAD = 64, 16
SMEM_OF_CTAS = {1: 200 * 1024, 2: 100 * 1024, 3: 73 * 1024, 4: 50 * 1024}
"""Dynamic shared memory, by the CTAs that an SM then has."""
WORDS, MOST_MAPS = 8, 1 << 15
"""Words that a CTA notes; maps that there is memory for."""
BOX_BYTES, SECTOR_BYTES = BOX_ROWS * ROW_BYTES, 32
READ = "lts__t_sectors_srcunit_tex_op_read.sum"
METRICS = (READ, "lts__t_sectors_srcunit_gcc.sum", "sm__cycles_elapsed.max")
SOURCES = ("one_set", "own_set", "made")
"""One set of maps for all CTAs, one for each CTA, or one that each CTA makes itself and acquires."""


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config."""

    source: str
    _: KW_ONLY
    num_ctas: int
    ctas_per_sm: int
    num_maps: int = 2
    num_stages: int = 3
    num_steps: int = STEPS
    walks_own: bool = False
    has_math: bool = True
    promotion: str = "128B"

    @property
    def kernel(self) -> str:
        """The entry point that is launched first."""
        return "prepare"


def sources() -> list[Row]:
    """Who has made the maps, with one to four CTAs of an SM that share tiles or do not, with math and without."""
    return [
        Row(source, num_ctas=NUM_SMS * each, ctas_per_sm=each, walks_own=own, has_math=math)
        for own in (False, True) for math in (False, True) for each in (1, 2, 3, 4) for source in SOURCES
    ]  # fmt: skip


def promotion() -> list[Row]:
    """Maps that do not let L2 fetch more than is asked for, as those that a kernel makes from nothing."""
    return [
        Row(source, num_ctas=NUM_SMS * each, ctas_per_sm=each, walks_own=own, promotion="none")
        for own in (False, True) for each in (1, 2, 3, 4) for source in ("one_set", "made")
    ]  # fmt: skip


def stages() -> list[Row]:
    """Rings of two and of four stages."""
    return [
        Row(source, num_ctas=NUM_SMS * each, ctas_per_sm=each, num_stages=num)
        for num in (2, 4) for each in (1, 2, 3) for source in SOURCES
    ]  # fmt: skip


def maps() -> list[Row]:
    """More maps in turn than an SM keeps."""
    return [
        Row(source, num_ctas=NUM_SMS * each, ctas_per_sm=each, num_maps=num, walks_own=True, has_math=False)
        for each in (1, 3) for num in (1, 4, 6, 8, 10, 12, 16, 32) for source in ("one_set", "own_set")
    ]  # fmt: skip


def waves() -> list[Row]:
    """Eight waves of CTAs, so that some begin while others copy."""
    return [
        Row(source, num_ctas=8 * NUM_SMS * each, ctas_per_sm=each, num_steps=steps, walks_own=own)
        for own in (False, True) for steps in (STEPS // 2, STEPS) for each in (1, 2, 3) for source in SOURCES
    ]  # fmt: skip


@cache
def data() -> NDArray[np.uint8]:
    """Small positive numbers of bf16, uint8[panels * 64, columns * 128]; copied to the GPU once."""
    shape = NUM_PANELS * BOX_ROWS, NUM_COLUMNS * ROW_BYTES // 2
    draw = np.random.default_rng(13).integers(0x3C00, 0x3F00, shape, dtype="<u2")
    return read_only(draw.view(np.uint8))


@cache
def box_sums() -> NDArray[np.uint32]:
    """Sum of the words of each box, uint32[panels, columns]."""
    words = data().view("<u4").reshape(NUM_PANELS, BOX_ROWS, NUM_COLUMNS, ROW_BYTES // 4)
    return np.asarray(words.sum(axis=(1, 3), dtype=np.uint32))


def launch(config: Row) -> KernelLaunch:
    """Copies of the host's map, then the walks."""
    per_cta = 0 if config.source == "one_set" else config.num_maps
    makes = config.source == "made"
    plan = (
        config.num_steps, LEAD, config.num_stages, config.num_maps, per_cta, makes, config.has_math, config.walks_own,
        NUM_PANELS, NUM_COLUMNS, ROWS_OF_TILES, SWIZZLE_SIZE,
    )  # fmt: skip
    host = TensorMap(
        dtype=BF16, global_dim=(NUM_COLUMNS * ROW_BYTES // 2, NUM_PANELS * BOX_ROWS), box_dim=(ROW_BYTES // 2, BOX_ROWS),
        global_strides_bytes=(NUM_COLUMNS * ROW_BYTES,), swizzle="128B", l2_promotion=config.promotion,
    )  # fmt: skip
    mapped, num_sets = MappedTensor(data(), host), config.num_ctas if per_cta else 1
    made = Scratch(f"maps {config.promotion}", MOST_MAPS * MAP_BYTES)
    walk = KernelLaunch(
        kernel="walk",
        arguments=(
            by_value(np.array(plan, dtype="<u4")), mapped, Input(data()), made,
            Output("seen", np.full(config.num_ctas * WORDS, 0xFFFFFFFF, dtype="<u4")),
            Output("sums", np.zeros(config.num_ctas * THREADS, dtype="<f4")),
        ),
        grid=(config.num_ctas, 1, 1), block=(THREADS, 1, 1), smem_bytes=SMEM_OF_CTAS[config.ctas_per_sm],
    )  # fmt: skip
    return KernelLaunch(
        kernel="prepare", arguments=(np.uint32(config.num_maps), mapped, made), grid=(num_sets, 1, 1),
        block=(MAP_BYTES // 4, 1, 1), following=(walk,),
    )  # fmt: skip


def panels(config: Row) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Panel of A, panel of B and first column of each CTA, int64[num_ctas] each."""
    cta = np.arange(config.num_ctas)
    if config.walks_own:
        return 2 * cta % NUM_PANELS, 2 * cta % NUM_PANELS + 1, 4 * cta // NUM_PANELS
    tile = cta % ROWS_OF_TILES**2
    band, within = np.divmod(tile, SWIZZLE_SIZE * ROWS_OF_TILES)
    return band * SWIZZLE_SIZE + within % SWIZZLE_SIZE, ROWS_OF_TILES + within // SWIZZLE_SIZE, 0 * cta


def expected_sums(config: Row) -> NDArray[np.uint32]:
    """Sum of the words of the stages that each CTA ends with, uint32[num_ctas]."""
    a, b, shift = panels(config)
    total = np.zeros(config.num_ctas, dtype=np.uint32)
    for step in range(config.num_steps - config.num_stages, config.num_steps):
        column = (step + shift) % NUM_COLUMNS
        total += box_sums()[a, column] + box_sums()[b, column]
    return total


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Cycles of a step and of what comes before, over all CTAs.

    Raises:
        WrongAnswer: a wait was given up, other bytes came, or the clock did not run.
    """
    seen = outputs["seen"].reshape(config.num_ctas, WORDS)
    wrong_if(int(seen[:, 0].max()), "an mbarrier never completed, the wait was given up")
    wanted = expected_sums(config)
    if (seen[:, 1] != wanted).any():
        raise WrongAnswer(f"CTA {int(np.argmax(seen[:, 1] != wanted))} received other bytes")
    steps = seen[:, 4] / (config.num_steps - LEAD)
    if steps.min() < 1.0 or steps.max() > 1e6:
        raise WrongAnswer(f"the clock shows {steps.min():g} to {steps.max():g} cycles a step")
    began, ended = (seen[:, word].astype(np.int64) for word in (6, 7))
    return {
        "step_cycles": float(steps.mean()), "p90_step_cycles": float(np.percentile(steps, 90)),
        "make_cycles": float(np.median(seen[:, 2])), "first_cycles": float(np.median(seen[:, 3] - seen[:, 2])),
        "grid_ns": float(((ended - began[0]) % 2**32).max()),
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------- the simulator's answer
MOST_STEPS = 70_000
"""Steps of all CTAs up to which a row is simulated."""
CODE_CYCLES = {"step": 477.0, "math": 90.427, "map": 57.0}
"""Cycles of instructions. ``step``: those of a step besides barriers, waits and copies. ``math``: those around its wgmma.
``map``: to copy a map and replace its address, ``copy_cycles`` and ``replace_cycles`` of kernels/tensor_map, h200_sxm."""


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """The walk, simulated. There is no op for maps that a CTA alone uses and another kernel has made."""
    if gpu.num_sms != NUM_SMS or config.source == "own_set" or config.num_ctas * config.num_steps > MOST_STEPS:
        return {}
    panels_a, panels_b, shifts = panels(config)
    stages, ahead, count = config.num_stages, config.num_stages - 1, config.num_steps
    part, around_math = chained_code(CODE_CYCLES["step"] / 3, gpu), chained_code(CODE_CYCLES["math"], gpu)
    math = [ops.Wgmma(wgmma(BOX_ROWS, BF16), 4, (("ring", stage),), 0.0) for stage in range(stages)]
    meet = ops.Syncthreads()

    def load(cta: int, operand: int, step: int) -> Iterator[Any]:
        tile = int((panels_a, panels_b)[operand][cta]), (step + int(shifts[cta])) % NUM_COLUMNS
        yield part
        yield ops.TmaLoad("AB"[operand], tile, BOX_BYTES, BOX_BYTES, BOX_ROWS, "ring", step % stages, "full")

    def program(cta: RoleContext) -> Iterator[Any]:
        yield meet
        for name in "AB" if config.source == "made" else "":
            yield chained_code(CODE_CYCLES["map"], gpu)
            yield ops.FenceProxyTensormap((name,))
            yield meet
        for step in range(ahead):
            yield ops.MbarrierArriveExpectTx("full", step, 2 * BOX_BYTES)
            for operand in range(2):
                yield from load(cta.cta_idx, operand, step)
        for step in range(count):
            if step == LEAD:
                yield ops.RangeStart(ops.Section.MAINLOOP)
            yield meet
            yield ops.MbarrierWait("full", step % stages, step // stages & 1)
            if config.has_math:
                yield around_math
                yield ops.WgmmaFence()
                yield math[step % stages]
                yield ops.WgmmaCommitGroup()
                yield ops.WgmmaWaitGroup(1)
            yield part
            yield meet
            loads = step + ahead < count
            if loads:
                yield ops.MbarrierArriveExpectTx("full", (step + ahead) % stages, 2 * BOX_BYTES)
            for operand in range(2):
                yield meet
                if loads:
                    yield from load(cta.cta_idx, operand, step + ahead)
        yield ops.RangeEnd()
        yield ops.WgmmaWaitGroup(0)

    ring_bytes = 2 * BOX_BYTES * stages
    launched = Launch(
        kernel="map_sources", num_ctas=config.num_ctas, num_tiles=config.num_ctas, registers_per_thread=58,
        roles=(WarpRole(name="walker", num_warps=THREADS // 32, program=program),),
        buffers=(
            Buffer(name="ring", stage_bytes=2 * BOX_BYTES, num_stages=stages),
            Buffer(name="rest", stage_bytes=SMEM_OF_CTAS[config.ctas_per_sm] - ring_bytes),
        ),
        mbarriers=(Mbarrier(name="full", num_arrivals=1, num_stages=stages),),
    )  # fmt: skip
    result = simulate(launched, gpu, clock="max", l2="warm", recorded_sms=range(NUM_SMS))
    spans = [role.sections[-1] for role in result.timeline.roles]
    cycles = float(np.mean([span.end_cycle - span.start_cycle for span in spans]))
    return {"step_cycles": cycles / (count - LEAD), READ: result.counters[READ]}


def fitted_constants(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[FittedConstant]:
    """What the instructions of a step take: steps of a lone CTA of an SM through one set of maps, over the model's."""
    found = []
    for key, has_math in (("step", False), ("math", True)):
        values = [
            float(row["step_cycles"]) - predict(config, gpu)["step_cycles"] + CODE_CYCLES[key]
            for row in rows
            if row["group"] == "sources" and (config := Row.of(row)).ctas_per_sm == 1 and config.source == "one_set"
            and config.has_math is has_math
        ]  # fmt: skip
        found += fitted_constant("CODE_CYCLES", values, "one CTA an SM, one set of maps: cycles of a step, median", key)
    return found


CASE = Case(
    name="map_sources",
    question=__doc__,
    config_type=Row, launch=launch, check=check, num_repeats=5, followers=("walk",),
    predict=predict, fitted_constants=fitted_constants, tiers={"step_cycles": 4, READ: 5},
    groups={
        name: Group(configs=configs, metrics=METRICS, rank=3, least_capability=(9, 0))
        for name, configs in (
            ("sources", sources), ("promotion", promotion), ("stages", stages), ("maps", maps), ("waves", waves),
        )
    },
    values={
        "step_cycles": "SM cycles of a CTA for a k-step of two boxes, mean over CTAs",
        "p90_step_cycles": "SM cycles of a CTA for a k-step, 90th percentile over CTAs",
        "make_cycles": "SM cycles of a CTA to make its maps, median over CTAs",
        "first_cycles": "SM cycles from then until the first stage is full, median over CTAs",
        "grid_ns": "ns from the first CTA's begin to the last one's end",
    },
)  # fmt: skip
