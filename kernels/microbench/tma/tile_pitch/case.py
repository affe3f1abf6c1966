"""What does a tile cost whose rows do not begin on a line, or not on a sector?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, Launch, Mbarrier, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Fitted, FittedConstant, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Argument, Input, KernelLaunch, MappedTensor, Output, by_value
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.microbenchmark import chained_code
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted_constant
from gpusim.evidence.cases.tile_walk import ADDEND, MULTIPLIER, grid_include, random_words, sms_by_gpc
from gpusim.machine.config import GpuSpec
from gpusim.machine.dispatcher import first_sms
from gpusim.workload import ops
from gpusim.workload.dtypes import BF16
from gpusim.workload.gmem.line_fetches import CHUNK_BYTES, Fetches, fetches, row_fetches
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.tma.boxes import TensorMap

GPU = measured_gpu().description
"""Whose GPCs the groups of sharers are made for."""
NUM_CTAS = measured_gpu().num_sms
"""One an SM; where SMs have other numbers the launch gives itself up."""
NUM_THREADS = 128
MOST_PLACES = 256
KIB = 1024
LEAST_SMEM_BYTES = 120 * KIB
"""So that two CTAs find no room on one SM."""
LINE_BYTES = 128
TENSOR_BYTES = 288 << 20
MOST_TOUCHED_BYTES = 18 << 20
"""What all walks that stay in L2 touch: well inside of what each side holds."""
PITCH_BYTES = 4096
FLAG_WORDS = 32 + 32 + 64 + 256
PADS = {"plain": 0, "pad8": 16, "pad16": 32, "swizzled": 0}
"""Bytes behind each row of shared memory, by layout."""

BEYOND = (0, 16, 32, 48, 64, 80, 96)
"""What a pitch is beyond 4 KiB: an odd number of them, so that of each a half calibrates and a half judges."""
READ = "lts__t_sectors_srcunit_tex_op_read.sum"
REQUESTS = "lts__t_requests_srcunit_tex_op_read.sum"
XBAR = "l1tex__m_xbar2l1tex_read_bytes.sum"
METRICS = (
    READ, REQUESTS, "lts__t_sectors_srcunit_tex_op_read_lookup_miss.sum", "lts__t_sectors_srcunit_ltcfabric.sum", XBAR,
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts.sum", "l1tex__t_requests_pipe_lsu_mem_global_op_ldgsts.sum",
    "dram__bytes_read.sum",
)  # fmt: skip


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Row(ConfigRow):
    """One config, with its defaults."""

    kernel: str
    _: KW_ONLY
    source: str = "l2"
    num_live: int = NUM_CTAS
    sharers: int = 1
    rows: int = 128
    row_bytes: int = 128
    smem: str = "swizzled"
    pitch_bytes: int = PITCH_BYTES
    shift_bytes: int = 0
    skew_cycles: int = 0

    @property
    def is_warm(self) -> bool:
        """Whether all tiles have been read before."""
        return self.source == "l2"

    @property
    def tile_bytes(self) -> int:
        """That are asked for."""
        return self.rows * self.row_bytes

    @property
    def smem_pitch_bytes(self) -> int:
        """From one row of shared memory to the next."""
        return self.row_bytes + PADS[self.smem]


def _pitches(kernel: str, **columns: Any) -> list[Row]:
    return [Row(kernel, pitch_bytes=PITCH_BYTES + beyond, **columns) for beyond in BEYOND]


def alone() -> list[Row]:
    """One SM, all in L2: every pitch, and columns that begin in the midst of a line; each layout of shared memory."""
    found = [config for rows in (64, 128) for config in _pitches("tma", num_live=1, rows=rows)]
    found += [
        config for row_bytes, smem in product((64, 128), PADS)
        for config in _pitches("cp_async_4", num_live=1, row_bytes=row_bytes, smem=smem)
    ]  # fmt: skip
    shifts = (16, 32, 64)
    found += [Row("tma", num_live=1, shift_bytes=shift, rows=rows) for rows in (64, 128, 256) for shift in shifts]
    found += [
        Row("cp_async_4", num_live=1, shift_bytes=shift, row_bytes=row_bytes, smem=smem)
        for row_bytes, smem in ((64, "pad8"), (128, "plain"), (128, "pad8")) for shift in shifts
    ]  # fmt: skip
    return found


def own() -> list[Row]:
    """All SMs, each its own tiles, all in L2."""
    found = [config for rows in (64, 128, 256) for config in _pitches("tma", rows=rows)]
    found += [
        config for row_bytes, smem in product((64, 128), ("plain", "pad8", "swizzled"))
        for config in _pitches("cp_async_4", row_bytes=row_bytes, smem=smem)
    ]  # fmt: skip
    return [*found, *(Row("tma", shift_bytes=shift) for shift in (16, 32, 48, 64, 96))]


def cold() -> list[Row]:
    """The same, out of memory: twice what L2 holds, so that a launch finds nothing of the one before."""
    return [
        *(config for rows in (128, 256) for config in _pitches("tma", source="hbm", rows=rows)),
        *(
            config for rows, row_bytes in ((256, 64), (128, 128)) for smem in ("swizzled", "pad8")
            for config in _pitches("cp_async_4", source="hbm", rows=rows, row_bytes=row_bytes, smem=smem)
        ),
    ]  # fmt: skip


def shared() -> list[Row]:
    """Neighbours that walk the same tiles, together and one after the other."""
    return [
        config for sharers, skew in ((2, 0), (4, 0), (4, 200), (16, 0))
        for kernel, row_bytes, smem in (("tma", 128, "swizzled"), ("cp_async_4", 128, "plain"), ("cp_async_4", 64, "pad8"))
        for config in _pitches(kernel, sharers=sharers, skew_cycles=skew, row_bytes=row_bytes, smem=smem)
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- who walks what
NUM_STAGES = 4
"""Stages of the ring, and so tiles in flight."""


def num_smem_bytes(config: Row) -> int:
    """Of all stages."""
    return NUM_STAGES * config.rows * config.smem_pitch_bytes


@dataclass(frozen=True, slots=True)
class Walk:
    """The panel of rows that one SM walks, and where it stands among those that do."""

    panel: int
    rank: int


def walks(config: Row) -> dict[int, Walk]:
    """By SM: sharers are neighbours of one GPC, in order of number.

    >>> {sm: walk.panel for sm, walk in walks(Row("tma", sharers=2)).items() if walk.panel < 2}
    {0: 0, 1: 0, 16: 1, 17: 1}
    """
    live, num = config.num_live, config.sharers
    if live == 1:
        return {0: Walk(0, 0)}
    groups = [sms[at : at + num] for sms in sms_by_gpc(GPU) for at in range(0, len(sms), num)]
    return {sm: Walk(panel, rank) for panel, group in enumerate(groups) for rank, sm in enumerate(group)}


def num_panels(config: Row) -> int:
    """Of different rows."""
    return max(walk.panel for walk in walks(config).values()) + 1


def num_columns(config: Row) -> int:
    """Steps along a row."""
    return (PITCH_BYTES - PITCH_BYTES // 32) // config.row_bytes


def lead_timed_behind(config: Row) -> tuple[int, int, int]:
    """Steps before the clock, timed, and behind."""
    return (16, 128, 16) if config.is_warm else (8, 36, 8)


def num_steps(config: Row) -> int:
    """Steps before a walk begins again: so few that all stay in L2, or as many as there are."""
    if not config.is_warm:
        return sum(lead_timed_behind(config))
    steps = 16
    while steps > 2 and num_panels(config) * config.tile_bytes * steps > MOST_TOUCHED_BYTES:
        steps //= 2
    return steps


def panel_rows(config: Row) -> int:
    """Rows of the tensor that belong to one panel."""
    return -(-num_steps(config) // num_columns(config)) * config.rows


def num_warm(config: Row) -> int:
    """Steps before the CTAs meet: all tiles at least once, where they are to be in L2."""
    return max(16, num_steps(config)) if config.is_warm else 0


def num_all_steps(config: Row) -> int:
    """Steps of an SM, warm-up and all."""
    return num_warm(config) + sum(lead_timed_behind(config))


# ---------------------------------------------------------------------------------------------- launch and check
def tensor() -> NDArray[np.uint32]:
    """What all walk over."""
    return random_words(TENSOR_BYTES)


def tensor_map(config: Row) -> TensorMap:
    """The map as a GEMM has it."""
    pitch = config.pitch_bytes
    return TensorMap(
        dtype=BF16, global_dim=(pitch // 2, TENSOR_BYTES // pitch), global_strides_bytes=(pitch,),
        box_dim=(config.row_bytes // 2, config.rows), swizzle="128B", l2_promotion="128B",
    )  # fmt: skip


def launch(config: Row) -> KernelLaunch:
    """The same launch under the profiler as without."""
    places = np.zeros((MOST_PLACES, 3), dtype="<u4")
    found = walks(config)
    for sm, walk in found.items():
        places[sm] = 1, walk.panel * panel_rows(config), walk.rank * config.skew_cycles
    plan = [
        len(found), NUM_STAGES, config.rows, config.row_bytes, config.pitch_bytes,
        config.smem_pitch_bytes, config.smem == "swizzled", num_columns(config), num_steps(config), num_warm(config),
        *lead_timed_behind(config), config.shift_bytes,
    ]  # fmt: skip
    source: Argument = MappedTensor(tensor(), tensor_map(config)) if config.kernel == "tma" else Input(tensor())
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.array(plan, dtype="<u4")), Output("places", places),
            Output("flags", np.zeros(FLAG_WORDS, dtype="<u4")), source,
            Output("told", np.full((MOST_PLACES, 4), -1, dtype="<i8")),
        ),
        grid=(NUM_CTAS, 1, 1), block=(NUM_THREADS, 1, 1), smem_bytes=max(LEAST_SMEM_BYTES, num_smem_bytes(config)),
    )  # fmt: skip


def sum_of_last_stages(config: Row, walk: Walk) -> int:
    """The sum, modulo 2^32, of the words of what the ring holds in the end."""
    pitch, rows, row_bytes = config.pitch_bytes, config.rows, config.row_bytes
    total, last = 0, num_all_steps(config)
    for number in range(last - NUM_STAGES, last):
        line, column = divmod(number % num_steps(config), num_columns(config))
        first = walk.panel * panel_rows(config) + line * rows
        starts = np.arange(first, first + rows, dtype=np.uint64) * np.uint64(pitch // 4)
        word = np.uint64((config.shift_bytes + column * row_bytes) // 4)
        words = starts[:, None] + word + np.arange(row_bytes // 4, dtype=np.uint64)
        total += int((words * np.uint64(MULTIPLIER) + np.uint64(ADDEND) & np.uint64(0xFFFFFFFF)).sum())
    return total % 2**32


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Cycles of a stage.

    Raises:
        WrongAnswer: a wait that was given up, an SM that never came, stages of other words, a clock that stood still.
    """
    wrong_if(outputs["flags"][1], "a wait was given up: an SM has no CTA, or a stage never came")
    found, told = walks(config), outputs["told"]
    sums: dict[int, int] = {}
    for sm, walk in found.items():
        wanted = sums.setdefault(walk.panel, sum_of_last_stages(config, walk) if walk.panel not in sums else 0)
        if told[sm, 0] != sm:
            raise WrongAnswer(f"place {sm} was on SM {told[sm, 0]}")
        if told[sm, 1] != wanted:
            raise WrongAnswer(f"the stages of SM {sm} have words that sum up to {told[sm, 1]}, not {wanted}")
    cycles = told[list(found), 2] / lead_timed_behind(config)[1]
    wrong_if((cycles <= 0).any(), "the clock stood still")
    return {
        "cycles_per_stage": float(cycles.mean()), "slowest_cycles": float(cycles.max()),
        "fastest_cycles": float(cycles.min()), "bytes_per_cycle": float((config.tile_bytes / cycles).mean()),
        "asked_bytes": float(len(found) * num_all_steps(config) * config.tile_bytes),
    }  # fmt: skip


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """Of what was asked for, what L2 was read for and what came over the crossbar."""
    asked = float(row.get("asked_bytes") or 0)
    found = {}
    if asked and row.get(READ):
        found["read_fraction"] = float(row[READ]) * 32 / asked
    if asked and row.get(XBAR):
        found["xbar_fraction"] = float(row[XBAR]) / asked
    return found


# ---------------------------------------------------------------------------------------------- the simulator's answer

TWIN_LEAD, TWIN_TIMED, TWIN_BEHIND = 12, 24, 4
STEP_CYCLES = {"tma": 282.0, "cp_async_4": 257.0}
"""What the loop's own code takes a step."""
COPY_CYCLES = 14.6
"""What it takes beyond that for each cp.async of a thread."""


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """The same rings for fewer steps, simulated; nothing for a GPU whose SMs have other numbers."""
    if gpu.num_sms != NUM_CTAS or gpu.mbarrier is None:
        return {}
    order = first_sms(gpu.dispatcher, gpu.floorplan)
    found = walks(config)
    of_cta = {cta: found[sm] for cta, sm in enumerate(order) if sm in found}
    stages, whole, rows = NUM_STAGES, config.tile_bytes, config.rows
    steps, count = num_steps(config), TWIN_LEAD + TWIN_TIMED + TWIN_BEHIND
    access, columns = fill(config), num_columns(config)
    of_phase = {phase: fetched(config, phase) for phase in {column_start(config, column) for column in range(columns)}}

    def fetches_of(step: int) -> Fetches:
        return of_phase[column_start(config, step % steps % columns)]

    def tile(cta: RoleContext, step: int) -> tuple[int, int]:
        return of_cta[cta.cta_idx].panel, step % steps if config.is_warm else step

    def produce(cta: RoleContext) -> Iterator[Any]:
        if cta.cta_idx not in of_cta:
            return
        yield ops.Alu(delay(cta))
        for step in range(count):
            stage = step % stages
            yield ops.MbarrierWait("empty", stage, step // stages & 1 ^ 1)
            yield ops.MbarrierArriveExpectTx("full", stage, whole)
            yield chained_code(STEP_CYCLES["tma"], gpu)
            yield ops.TmaLoad("A", tile(cta, step), whole, whole, rows, "ring", stage, "full", fetches=fetches_of(step))

    def consume(cta: RoleContext) -> Iterator[Any]:
        if cta.cta_idx not in of_cta:
            return
        for step in range(count):
            yield ops.MbarrierWait("full", step % stages, step // stages & 1)
            yield from marks(step)
            yield ops.MbarrierArrive("empty", step % stages)

    def copy(cta: RoleContext) -> Iterator[Any]:
        if cta.cta_idx not in of_cta:
            return
        yield ops.Alu(delay(cta))
        for step in range(count + stages):
            if step >= stages:
                yield ops.CpAsyncWaitGroup(stages - 1)
                yield ops.Syncthreads()
                yield from marks(step - stages)
            yield chained_code(STEP_CYCLES["cp_async_4"] + COPY_CYCLES * (whole // CHUNK_BYTES // NUM_THREADS), gpu)
            if step < count:
                at = (tile(cta, step), access, "ring", step % stages)
                yield ops.CpAsync("A", *at, num_rows=rows, fetches=fetches_of(step))
            yield ops.CpAsyncCommitGroup()

    def delay(cta: RoleContext) -> float:
        per_cycle = gpu.warp_scheduler.int32_lanes / 32 / gpu.warp_scheduler.num_schedulers
        return of_cta[cta.cta_idx].rank * config.skew_cycles * per_cycle

    def marks(step: int) -> Iterator[Any]:
        if step == TWIN_LEAD:
            yield ops.RangeStart(ops.Section.MAINLOOP)
        if step == TWIN_LEAD + TWIN_TIMED:
            yield ops.RangeEnd()

    roles = (
        WarpRole(name="producer", num_warps=1, program=produce), WarpRole(name="consumer", num_warps=1, program=consume),
    ) if config.kernel == "tma" else (WarpRole(name="copy", num_warps=NUM_THREADS // 32, program=copy),)  # fmt: skip
    ring = num_smem_bytes(config) // stages
    launched = Launch(
        kernel="tile_pitch", num_ctas=NUM_CTAS, num_tiles=NUM_CTAS, roles=roles,
        buffers=(
            Buffer(name="ring", stage_bytes=ring, num_stages=stages),
            Buffer(name="rest", stage_bytes=max(0, LEAST_SMEM_BYTES - ring * stages)),
        ),
        mbarriers=tuple(Mbarrier(name=name, num_arrivals=1, num_stages=stages) for name in ("full", "empty")),
    )  # fmt: skip
    l2 = "warm" if config.is_warm else "cold"
    result = simulate(launched, gpu, clock="max", l2=l2, recorded_sms=range(NUM_CTAS))
    spans = np.array([
        (span.end_cycle - span.start_cycle) / TWIN_TIMED for role in result.timeline.roles for span in role.sections
    ])  # fmt: skip
    scale = num_all_steps(config) / count
    return {
        "cycles_per_stage": float(spans.mean()), "bytes_per_cycle": float((whole / spans).mean()),
        READ: result.counters[READ] * scale, XBAR: result.counters[XBAR] * scale,
    }  # fmt: skip


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """``l2.request_bytes``: what all SMs get of whole lines, over the requests of those that ask for the most of them."""
    own = [row for row in rows if row["group"] == "own" and row.get(REQUESTS)]
    if not own:
        return []

    def each_cycle(row: Mapping[str, str], name: str, unit: float) -> float:
        moved = float(row[name]) * unit / float(row["asked_bytes"])
        return int(row["num_live"]) * Row.of(row).tile_bytes * moved / float(row["cycles_per_stage"])

    most_bytes = sorted(each_cycle(row, XBAR, 1.0) for row in own)[-5:]
    most_requests = sorted(each_cycle(row, REQUESTS, 1.0) for row in own)[-5:]
    value = float(np.median(most_bytes)) / float(np.median(most_requests))
    return [Fitted(parameter="l2.request_bytes", value=value, how="the most bytes over the most requests, five of each")]


def fitted_constants(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[FittedConstant]:
    """What the loops take: of one SM alone, small tiles whose rows lie on lines."""

    def of(kernel: str, rows_: str, row_bytes: str) -> list[Mapping[str, str]]:
        return [
            row for row in rows
            if row["group"] == "alone" and (row["kernel"], row["rows"], row["row_bytes"]) == (kernel, rows_, row_bytes)
            and (int(row["pitch_bytes"]) - PITCH_BYTES) % 64 == 0 and PADS[row["smem"]] == 0 and row["shift_bytes"] == "0"
        ]  # fmt: skip

    def cycles(found: Sequence[Mapping[str, str]]) -> float:
        return float(np.median([float(row["cycles_per_stage"]) for row in found]))

    boxes, narrow, wide = of("tma", "64", "128"), of("cp_async_4", "128", "64"), of("cp_async_4", "128", "128")
    if not (boxes and narrow and wide):
        return []
    each = Row.of(narrow[0]).tile_bytes // CHUNK_BYTES // NUM_THREADS
    copy = (cycles(wide) - cycles(narrow)) / each
    loop = STEP_CYCLES["cp_async_4"] + cycles(narrow) - predict(Row.of(narrow[0]), gpu)["cycles_per_stage"]
    box = STEP_CYCLES["tma"] + cycles(boxes) - predict(Row.of(boxes[0]), gpu)["cycles_per_stage"]
    how = "rows of 64 bytes: cycles beyond the twin's"
    return [
        *fitted_constant("STEP_CYCLES", [box], "boxes of 64 rows: cycles beyond the twin's", "tma"),
        *fitted_constant("STEP_CYCLES", [loop + (COPY_CYCLES - copy) * each], how, "cp_async_4"),
        *fitted_constant("COPY_CYCLES", [copy], "rows of 128 bytes less rows of 64, over copies"),
    ]


def fill(config: Row) -> AccessPattern:
    """What a CTA's threads copy of a tile."""
    num = config.tile_bytes
    return AccessPattern(
        num_requests=num // (32 * CHUNK_BYTES), num_sectors=num // 32, num_lines=num // 128, num_wavefronts=num // 128,
        num_bytes=num,
    )  # fmt: skip


def column_start(config: Row, column: int) -> int:
    """Bytes behind a line's start, of a panel's first row."""
    return (config.shift_bytes + column * config.row_bytes) % LINE_BYTES


def fetched(config: Row, start: int) -> Fetches:
    """What a tile fetches, whose first row begins so many bytes behind a line's start."""
    rows, row_bytes = config.rows, config.row_bytes
    starts = start + np.arange(rows) * config.pitch_bytes
    if config.kernel == "tma":
        return row_fetches(starts, row_bytes)
    per_row = row_bytes // CHUNK_BYTES
    row, chunk = np.divmod(np.arange(rows * per_row).reshape(-1, 32), per_row)
    placed = chunk ^ row % per_row if config.smem == "swizzled" else chunk
    return fetches(starts[row] + chunk * CHUNK_BYTES, row * config.smem_pitch_bytes + placed * CHUNK_BYTES)


def _group(configs: Callable[[], list[Row]], *, is_cold: bool = False, least_capability: tuple[int, int] = (8, 0)) -> Group:
    def runs() -> list[Row]:
        return [config for config in configs() if measured.has_clusters or config.kernel != "tma"]

    measured = measured_gpu()
    return Group(configs=runs, metrics=METRICS, rank=2, least_capability=least_capability, is_cold=is_cold)


CASE = Case(
    name="tile_pitch",
    question="What does a tile cost whose rows do not begin on a line, or not on a sector?",
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict, fit=fit, fitted_constants=fitted_constants,
    derive=derive, includes=grid_include,
    groups={
        "alone": _group(alone), "own": _group(own), "cold": _group(cold, is_cold=True),
        "shared": _group(shared, least_capability=(9, 0)),  # of an A100 it is not known which SMs share a GPC
    },
    values={
        "cycles_per_stage": "SM cycles from a full stage to the next, mean of the live SMs",
        "slowest_cycles": "the same of the slowest SM",
        "fastest_cycles": "the same of the fastest SM",
        "bytes_per_cycle": "bytes that an SM asks for in a cycle, mean",
        "asked_bytes": "bytes of all steps of all SMs, warm-up and all",
    },
    tiers={"cycles_per_stage": 4, READ: 5, XBAR: 5},
)  # fmt: skip
