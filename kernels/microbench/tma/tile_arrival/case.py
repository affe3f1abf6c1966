"""How long until a whole tile of a GEMM's operand is in shared memory, and when do its lines come?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, Launch, Mbarrier, WarpRole, simulate
from gpusim.evidence.cases.array import read_only
from gpusim.evidence.cases.case import Case, Fitted, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Argument, Input, KernelLaunch, MappedTensor, Output, by_value
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted
from gpusim.evidence.cases.tile_walk import ADDEND, MULTIPLIER, grid_include, random_words
from gpusim.machine.config import GpuSpec
from gpusim.machine.dispatcher import first_sms
from gpusim.workload import ops
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.tma.boxes import MAX_BOX_ELEMENTS, TensorMap

MEASURED = measured_gpu()
NUM_CTAS = MEASURED.num_sms
"""One an SM; where SMs have other numbers the launch gives itself up."""
NUM_THREADS = 288
NUM_WATCHERS = 256
KIB = 1024
LEAST_SMEM_BYTES = 120 * KIB
"""So that two CTAs find no room on one SM."""
ROW_BYTES = 128
PITCH_BYTES = 4096
STEPS_PER_PANEL = PITCH_BYTES // ROW_BYTES
PANEL_ROWS = 512
"""Rows of the tensor that belong to one SM."""
HOT_BYTES = 128 * KIB
"""What an SM walks of its rows where they are to stay in L2: 17 MB of all SMs."""
NUM_BINS, BIN_CYCLES = 512, 32
"""Of the histogram of lines."""
FLAG_WORDS = 32 + 32 + 64 + 256

SIZES = (8, 16, 24, 32, 48, 64)
LIVE = (4, 16, *(part * NUM_CTAS // 4 for part in (1, 2, 3, 4)))
WAYS = ("tma", "cp_async") if MEASURED.has_clusters else ("cp_async",)
SOURCES = ("l2", "hbm", "shared_l2", "pending")


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Row(ConfigRow):
    """One config."""

    kernel: str
    source: str
    tile_bytes: int
    num_live: int
    in_flight: int
    is_watched: bool

    @property
    def is_tma(self) -> bool:
        """By TMA, or by cp.async."""
        return self.kernel == "tma"

    @property
    def is_together(self) -> bool:
        """All live SMs ask for the same tile at the same time."""
        return _is_together(self.source)

    @property
    def is_warm(self) -> bool:
        """Whether tiles are in L2."""
        return self.source in ("l2", "shared_l2")

    @property
    def is_free(self) -> bool:
        """An SM's next tile follows at once: nobody is met, and no stage is made ready to be watched."""
        return not self.is_watched and not self.is_together

    @property
    def num_rows(self) -> int:
        """Rows of a tile, each of 64 elements of 16 bits."""
        return self.tile_bytes // ROW_BYTES

    @property
    def num_boxes(self) -> int:
        """Boxes of a tile: none has more than 256 rows."""
        return -(-self.num_rows // MAX_BOX_ELEMENTS)


def _config(way: str, source: str, kib: int, num_live: int, in_flight: int = 1, *, is_watched: bool = False) -> Row:
    kernel = "tma" if way == "tma" else f"cp_async_{in_flight}"
    return Row(kernel, source, kib * KIB, num_live, in_flight, is_watched)


def _fitting(configs: list[Row]) -> list[Row]:
    """Configs whose stages fit in shared memory, with what else a CTA keeps there."""
    return [item for item in configs if item.in_flight * item.tile_bytes <= MEASURED.smem_per_cta_bytes - 8 * KIB]


def _is_together(source: str) -> bool:
    return source in ("shared_l2", "pending")


def idle() -> list[Row]:
    """One SM, or two where one waits for what the other has asked for; each size with and without watchers."""
    return [
        _config(way, source, kib, 2 if _is_together(source) else 1, is_watched=is_watched)
        for way in WAYS for source in SOURCES for is_watched in (False, True) for kib in SIZES
    ]  # fmt: skip


def loaded() -> list[Row]:
    """More and more SMs, each with one tile or three in flight."""
    return _fitting([
        _config(way, source, kib, num_live, in_flight)
        for way, source, in_flight in product(WAYS, SOURCES, (1, 3))
        if in_flight == 1 or not _is_together(source)
        for kib in (8, 16, 32, 64) for num_live in LIVE
    ])  # fmt: skip


def watched() -> list[Row]:
    """When the first and the last line come under load."""
    return [
        _config(way, source, kib, num_live, is_watched=True)
        for way in WAYS for source in SOURCES for kib in (8, 16, 32, 64) for num_live in (LIVE[2], LIVE[3], LIVE[5])
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- launch and check
@cache
def tensor() -> NDArray[np.uint32]:
    """All SMs' rows, 264 MiB: words that look random, none of them odd; copied to the GPU once."""
    words = random_words(NUM_CTAS * PANEL_ROWS * PITCH_BYTES) & np.uint32(0xFFFFFFFE)
    return read_only(words.reshape(-1, PITCH_BYTES // 4))


def tensor_map(config: Row) -> TensorMap:
    """The map as a GEMM has it."""
    return TensorMap(
        dtype=BF16, global_dim=(PITCH_BYTES // 2, NUM_CTAS * PANEL_ROWS), global_strides_bytes=(PITCH_BYTES,),
        box_dim=(ROW_BYTES // 2, config.num_rows // config.num_boxes), swizzle="128B", l2_promotion="128B",
    )  # fmt: skip


def num_steps(config: Row) -> int:
    """Tiles of an SM before it begins again: as few as stay in L2, or all that it has, each once."""
    if config.is_warm:
        return min(STEPS_PER_PANEL, max(2, HOT_BYTES // config.tile_bytes))
    return STEPS_PER_PANEL * min(2, PANEL_ROWS // config.num_rows)


def num_ahead(config: Row) -> int:
    """Tiles before the clock counts: all of them once, or the one that pays for code and tensor map."""
    return num_steps(config) if config.is_warm else 1


def num_tiles(config: Row) -> int:
    """Tiles of each SM that are timed."""
    return 64 if config.is_warm else num_steps(config) - 1


def launch(config: Row) -> KernelLaunch:
    """All SMs; those that are not live leave once all are there."""
    num_live, in_flight = config.num_live, config.in_flight
    plan = [
        num_live, num_tiles(config), num_ahead(config), config.tile_bytes, config.num_boxes, num_steps(config),
        0 if config.is_together else PANEL_ROWS, in_flight, config.is_watched, config.is_together, not config.is_warm,
    ]  # fmt: skip
    source: Argument = MappedTensor(tensor(), tensor_map(config)) if config.is_tma else Input(tensor())
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.array(plan, dtype="<u4")), Output("flags", np.zeros(FLAG_WORDS, dtype="<u4")), source,
            Output("times", np.full((num_live, num_tiles(config), 3), -1, dtype="<i4")),
            Output("lines", np.zeros(NUM_BINS, dtype="<u4")), Output("told", np.full((num_live, 4), -1, dtype="<i8")),
        ),
        grid=(NUM_CTAS, 1, 1), block=(NUM_THREADS, 1, 1), smem_bytes=max(LEAST_SMEM_BYTES, in_flight * config.tile_bytes),
    )  # fmt: skip


def live_sms(num_live: int) -> list[int]:
    """SMs that load, in order of rank: spread evenly over their numbers.

    >>> live_sms(2), live_sms(4)
    ([65, 131], [32, 65, 98, 131])
    """
    return [sm for sm in range(NUM_CTAS) if (sm + 1) * num_live // NUM_CTAS > sm * num_live // NUM_CTAS]


def sum_of_last_tile(config: Row, rank: int) -> int:
    """The sum, modulo 2^32, of the words of the last tile that an SM loads."""
    step = (num_ahead(config) + num_tiles(config) - 1) % num_steps(config)
    first_row = (0 if config.is_together else rank * PANEL_ROWS) + step // STEPS_PER_PANEL * config.num_rows
    rows = first_row + np.arange(config.num_rows, dtype=np.uint64)
    words = rows[:, None] * (PITCH_BYTES // 4) + step % STEPS_PER_PANEL * (ROW_BYTES // 4) + np.arange(32, dtype=np.uint64)
    return int((((words * MULTIPLIER + ADDEND) & 0xFFFFFFFE)).sum()) % 2**32


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Quantiles over all tiles of all SMs.

    Raises:
        WrongAnswer: a wait that was given up, an SM that never came, a last tile of other words.
    """
    wrong_if(outputs["flags"][1], "a wait was given up: an SM has no CTA, or a tile never came")
    for rank, (sm, (found, checksum, _, _)) in enumerate(
        zip(live_sms(config.num_live), outputs["told"].tolist(), strict=True)
    ):
        wrong_if(found != sm, f"rank {rank} was on SM {found}, not on SM {sm}")
        wanted = sum_of_last_tile(config, rank)
        wrong_if(checksum != wanted, f"the last tile of SM {sm} has words that sum up to {checksum}, not {wanted}")
    first, last, complete = (outputs["times"][:, :, idx].astype(np.float64) for idx in range(3))
    wrong_if((complete <= 0).any(), "a tile was there in no time, or not at all")
    values = quantiles("complete", complete) | of_sms(complete)
    if config.is_free:
        values["tile_cycles"] = float(np.median(outputs["told"][:, 2])) / num_tiles(config)
    if config.is_watched:
        wrong_if((first <= 0).any() or (last < first).any(), "a line was there before its tile was asked for")
        if outputs["lines"].sum() != config.num_rows * complete.size:
            raise WrongAnswer(f"{outputs['lines'].sum()} lines were seen, not {config.num_rows * complete.size}")
        values |= quantiles("first_line", first) | quantiles("last_line", last) | quantiles("spread", last - first)
        values |= quantiles("line", np.repeat(BIN_CYCLES * (np.arange(NUM_BINS) + 0.5), outputs["lines"]))
    return values


def quantiles(name: str, cycles: NDArray[np.float64]) -> dict[str, float]:
    """P1 to P99."""
    shares = (0.01, 0.1, 0.5, 0.9, 0.99)
    found = np.quantile(cycles, shares)
    return {f"{name}_p{round(100 * share)}_cycles": float(value) for share, value in zip(shares, found, strict=True)}


def of_sms(complete: NDArray[np.float64]) -> dict[str, float]:
    """The median of the SM that waits least, and of the one that waits most."""
    medians = np.median(complete, axis=1)
    return {"best_sm_cycles": float(medians.min()), "worst_sm_cycles": float(medians.max())}


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """What one SM takes in."""
    if not row.get("tile_cycles"):
        return {}
    return {"bytes_per_cycle": int(row["tile_bytes"]) / float(row["tile_cycles"])}


# ---------------------------------------------------------------------------------------------- the simulator's answer

TWIN_TILES = 16
"""Of each SM; the first as many as are in flight are not looked at."""


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """The same walk of fewer tiles, simulated; nothing of single lines, or for a GPU whose SMs have other numbers."""
    if gpu.num_sms != NUM_CTAS or gpu.mbarrier is None:
        return {}
    values = _twin(config, gpu)
    return {name: value for name, value in values.items() if name != "tile_cycles" or config.is_free}


def _twin(config: Row, gpu: GpuSpec) -> dict[str, float]:
    is_tma, num_live = config.is_tma, config.num_live
    tile_bytes, in_flight = config.tile_bytes, config.in_flight
    ranks = {cta_on(sm, gpu): rank for rank, sm in enumerate(live_sms(num_live))}
    rows, boxes = config.num_rows, config.num_boxes
    access = AccessPattern(
        num_requests=tile_bytes // 512, num_sectors=tile_bytes // 32, num_lines=rows,
        num_wavefronts=rows, num_bytes=tile_bytes,
    )  # fmt: skip
    mark = ops.Section.MAINLOOP

    before, after, between = _code(config, gpu)
    drift = before.num_instructions + after.num_instructions + between.num_instructions

    def issue(rank: int, tile: int) -> Iterator[Any]:
        stage, name = tile % in_flight, (0 if config.is_together else rank, tile)
        if tile >= TWIN_TILES:
            if not is_tma:
                yield ops.CpAsyncCommitGroup()
            return
        yield ops.RangeStart(mark)
        yield ops.RangeEnd()
        yield before
        if is_tma:
            yield ops.MbarrierArriveExpectTx("full", stage, tile_bytes)
            yield ops.TmaLoad("A", name, tile_bytes, tile_bytes, rows, "a", stage, "full", num_boxes=boxes)
        else:
            yield ops.CpAsync("A", name, access, "a", stage, num_rows=rows)
            yield ops.CpAsyncCommitGroup()

    def program(cta: RoleContext) -> Iterator[Any]:
        rank = ranks.get(cta.cta_idx)
        if rank is None:
            return
        if not config.is_together:  # SMs that nothing holds together drift apart
            yield ops.Alu(drift * rank / num_live)
        for tile in range(in_flight):
            yield from issue(rank, tile)
        for tile in range(TWIN_TILES):
            yield after
            if is_tma:
                yield ops.MbarrierWait("full", tile % in_flight, tile // in_flight & 1)
            else:
                yield ops.CpAsyncWaitGroup(in_flight - 1)
            yield ops.RangeStart(mark)
            yield ops.RangeEnd()
            yield between
            if not is_tma:
                yield ops.Syncthreads()
            yield from issue(rank, tile + in_flight)

    launched = Launch(
        kernel="tile_arrival", num_ctas=gpu.num_sms, num_tiles=gpu.num_sms,
        roles=(WarpRole(name="loader", num_warps=1 if is_tma else NUM_WATCHERS // 32, program=program),),
        buffers=(
            Buffer(name="a", stage_bytes=tile_bytes, num_stages=in_flight),
            Buffer(name="rest", stage_bytes=max(0, LEAST_SMEM_BYTES - in_flight * tile_bytes)),
        ),
        mbarriers=(Mbarrier(name="full", num_arrivals=1, num_stages=in_flight),),
    )  # fmt: skip
    result = simulate(launched, gpu, clock="max", l2="warm" if config.is_warm else "cold", recorded_sms=live_sms(num_live))
    marks = np.array([[span.end_cycle for span in role.sections] for role in result.timeline.roles if role.cta_idx in ranks])
    in_turn = 2 * TWIN_TILES - in_flight  # wait and issue by turns up to here, from the first wait on
    issued = np.concatenate([marks[:, :in_flight], marks[:, in_flight + 1 : in_turn : 2]], axis=1)
    ends = np.concatenate([marks[:, in_flight:in_turn:2], marks[:, in_turn:]], axis=1)
    complete = (ends - issued)[:, in_flight:] + (0.0 if is_tma or not config.is_watched else WATCH_CYCLES)
    values = quantiles("complete", complete) | of_sms(complete)
    quarter = TWIN_TILES // 4  # at the end some SMs have the machine to themselves
    values["tile_cycles"] = float(np.median(ends[:, 3 * quarter] - ends[:, quarter])) / (2 * quarter)
    return values


CODE_CYCLES = {"tma": (212.0, 508.0, 879.0), "cp_async": (178.0, 100.0, 864.0)}
"""What the kernel's loop takes: from its note of the clock to the copies, from there to the wait, and from the wait to the
next note. From idle rows out of L2, of those that calibrate."""
COPY_CYCLES = 28.0
"""One turn of the loop that issues a tile's cp.async, one a thread."""
MET_CYCLES = 165.0
"""By how much later than the note cp.async begin where the SMs have met before: thread 0 takes it, others wait for that."""
WATCH_CYCLES = 1450.0
"""What warps that copy and then watch their lines take beside the copies: looks and 64-bit atomics on two words."""


def _code(config: Row, gpu: GpuSpec) -> tuple[ops.Alu, ops.Alu, ops.Alu]:
    """The loop's code, in its three parts, for the warps of the twin."""
    is_tma, num_warps = config.is_tma, NUM_WATCHERS // 32
    per_cycle = alu_per_cycle(gpu, 1 if is_tma else num_warps)
    before, after, between = CODE_CYCLES["tma" if is_tma else "cp_async"]
    if not is_tma:
        if config.is_together and not config.is_watched:
            before += MET_CYCLES
        turns = config.tile_bytes // 512 / num_warps
        taken = max(turns * num_warps * gpu.l1.cp_async_bypass_cycles, config.num_rows * gpu.l1.cp_async_row_cycles)
        waited = max(0.0, taken - gpu.l1.queue_cycles)  # for the load/store unit
        after += max(0.0, turns * COPY_CYCLES - waited)
    return ops.Alu(before * per_cycle), ops.Alu(after * per_cycle), ops.Alu(between * per_cycle)


def alu_per_cycle(gpu: GpuSpec, num_warps: int) -> float:
    """Instructions of each of so many warps in a cycle: what code that takes so long is made of."""
    schedulers = gpu.warp_scheduler.num_schedulers
    return gpu.warp_scheduler.int32_lanes / 32 / schedulers / max(1.0, num_warps / schedulers)


def cta_on(sm: int, gpu: GpuSpec) -> int:
    """The CTA that the simulator's dispatcher starts on an SM, one an SM."""
    return first_sms(gpu.dispatcher, gpu.floorplan).index(sm)


MHZ = 1980.0
"""The clock of an H200 that does little; the rows tell none."""


FEW_LIVE = 33
"""SMs whose single tiles leave memory nine tenths idle."""


LEAST_SEEN_BYTES = 32 * KIB
"""Of a tile: smaller ones are there before the wait for them begins."""


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What one SM draws from memory: how much longer its larger tiles take, which are on their way as a whole.

    How far quick and slow tiles lie apart where memory has little else to do; and SMs, out of L2.
    """
    rates = []
    for kernel in ("tma", "cp_async_1"):
        cycles = {
            int(row["tile_bytes"]): float(row["complete_p50_cycles"]) for row in rows
            if row["group"] == "idle" and row["kernel"] == kernel and row["source"] == "hbm" and row["is_watched"] == "0"
        }  # fmt: skip
        if len(cycles) > 1:
            least, most = min(cycles), max(cycles)
            rates.append((most - least) / (cycles[most] - cycles[least]))
    found: list[Fitted] = []
    if rates:
        how = "one SM's tiles from memory, TMA and cp.async: bytes over cycles between the smallest and the largest, mean"
        found.append(Fitted(parameter="hbm.sm_gb_per_s", value=float(np.mean(rates)) * MHZ / 1e3, how=how))
    spreads = [
        float(row["complete_p90_cycles"]) - float(row["complete_p10_cycles"]) for row in rows
        if row["kernel"] == "tma" and row["source"] == "hbm" and row["is_watched"] == "0" and row["in_flight"] == "1"
        and int(row["num_live"]) <= FEW_LIVE
    ]  # fmt: skip
    how = f"tiles from memory by TMA, one in flight, up to {FEW_LIVE} SMs: P90 less P10, over 0.8, median"
    spread = [float(np.median(spreads)) / 0.8 * 1e3 / MHZ] if spreads else []
    found += fitted("hbm.fill_spread_ns", spread, how)
    apart = [
        (float(row["worst_sm_cycles"]) - float(row["best_sm_cycles"])) * (num + 1) / (num - 1) for row in rows
        if row["kernel"] == "tma" and row["source"] == "l2" and row["is_watched"] == "0" and row["in_flight"] == "1"
        and 4 <= (num := int(row["num_live"])) <= FEW_LIVE and int(row["tile_bytes"]) >= LEAST_SEEN_BYTES
    ]  # fmt: skip
    how = (
        f"tiles out of L2 by TMA, one in flight, 4 to {FEW_LIVE} SMs: median of the SM that waits most less that of the one "
        "that waits least, as of all SMs if they lie evenly, median"
    )
    return found + fitted("xbar.sm_distance_cycles", apart, how)


def _of_tiles(name: str, meaning: str) -> dict[str, str]:
    return {f"{name}_p{pct}_cycles": f"SM cycles {meaning}, P{pct} of all tiles of all SMs" for pct in (1, 10, 50, 90, 99)}


CASE = Case(
    name="tile_arrival",
    question="How long until a whole tile of a GEMM's operand is in shared memory, and when do its lines come?",
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict, fit=fit, derive=derive,
    includes=grid_include,
    groups={
        name: Group(configs=configs, rank=rank)
        for name, configs, rank in (("idle", idle, 3), ("loaded", loaded, 3), ("watched", watched, 4))
    },
    values={
        **_of_tiles("complete", "from before a tile's first instruction until its wait is over"),
        "best_sm_cycles": "the same, the median of the SM that waits least",
        "worst_sm_cycles": "the same, the median of the SM that waits most",
        "tile_cycles": "SM cycles from tile to tile, the median of the SMs; only where nothing lies between two tiles",
        **_of_tiles("first_line", "from there until a word of the first line is seen in shared memory"),
        **_of_tiles("last_line", "from there until a word of every line has been seen"),
        **_of_tiles("spread", "from the first line to the last"),
        **{
            f"line_p{pct}_cycles": f"the same of every single line, to {BIN_CYCLES} cycles, P{pct} of all lines of all tiles"
            for pct in (1, 10, 50, 90, 99)
        },
    },
    tiers={"complete_p50_cycles": 2, "tile_cycles": 4},
)  # fmt: skip
