"""What do an SM's reads out of L2 wait for while its warps store: by the stores, by what is read at once, by who stores?"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, GpuSpec, Launch, Mbarrier, WarpRole, simulate
from gpusim.evidence.cases.case import (
    Case,
    Fitted,
    Group,
    Input,
    KernelLaunch,
    Output,
    Outputs,
    Windows,
    WrongAnswer,
    by_value,
)
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.tile_walk import grid_include
from gpusim.evidence.cases.validation_kernel import windows
from gpusim.machine.dispatcher import first_sms
from gpusim.units import LINE_BYTES, SECTOR_BYTES, WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.gmem.global_access import global_access
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

KIB = 1024
NUM_CTAS, STORE_WARPS = measured_gpu().num_sms, 8
"""One CTA an SM; where SMs have other numbers the launch gives itself up."""
NUM_THREADS = (STORE_WARPS + 1) * WARP_SIZE
SMEM_BYTES = 200 * KIB
"""So that two CTAs find no room on one SM."""
OWN_BYTES = 64 * KIB
"""That a CTA copies from."""
WARM_CYCLES, MEASURED_CYCLES = 40_000, 160_000
PITCH_BYTES, TILE_BYTES, TILE_ROWS, NUM_ROWS = 8192, 256, 128, 2048
"""Of the matrix that fragments are stored into."""
NUM_TILES = NUM_ROWS // TILE_ROWS * (PITCH_BYTES // TILE_BYTES)
WARP_BYTES, LINES_BYTES = 16 * KIB, 512
"""Of the lines that a warp stores, and of a store of them."""
NOBODY = 0xFFFFFFFF
"""What lies where no thread has stored."""
MULTIPLIER, ADDEND = 0x9E3779B1, 0x7F4A7C15
LINK_BYTES = 37 * LINE_BYTES
"""From a load of the chase to the next; all lines have their turn."""
FLAG_WORDS = 32 + 32 + 64 + 256
TOLD_WORDS = 4 + 2 + 2 * STORE_WARPS

KINDS = ("4", "8", "lines", "16")
"""Bytes that a lane stores, of eight rows of four lanes each; or lines side by side, 16 bytes a lane."""
BOXES = (128, 512, 2048, 4096, 8192, 16384, 32768)
RINGS = (6, 2, 4, 3)
RING_BYTES = 16384
PACES = (192, 256, 320, 384, 512, 768)
CHASE = {"num_stages": 0, "copy_bytes": 4}


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    pace: int = 0
    every: int = 1
    num_stages: int = 1
    copy_bytes: int = RING_BYTES

    @property
    def kind(self) -> str:
        """What is stored."""
        return self.kernel.removeprefix("beside_")

    @property
    def is_chase(self) -> bool:
        """Whether loads of a thread take the place of copies."""
        return self.num_stages == 0 and self.copy_bytes > 0

    @property
    def lane_bytes(self) -> int:
        """Of a store."""
        return 16 if self.kind == "lines" else int(self.kind)

    @property
    def packets(self) -> int:
        """Lines that a store of a warp lies in."""
        return LINES_BYTES // LINE_BYTES if self.kind == "lines" else 8

    @property
    def matrix_bytes(self) -> int:
        """That are stored into."""
        return NUM_CTAS * STORE_WARPS * WARP_BYTES if self.kind == "lines" else NUM_ROWS * PITCH_BYTES

    def stores(self, sm: int) -> bool:
        """Whether an SM does."""
        return self.kind != "none" and sm % self.every == 0


def config_of(kind: str, **columns: int) -> Config:
    """Config of a kind of stores."""
    return Config(f"beside_{kind}", **columns)


def alone() -> list[Config]:
    """Nobody stores."""
    return [
        *(config_of("none", copy_bytes=size) for size in BOXES), *(config_of("none", num_stages=num) for num in RINGS),
        config_of("none", **CHASE),
    ]  # fmt: skip


def boxes() -> list[Config]:
    """One copy under way, by its bytes."""
    return [config_of(kind, copy_bytes=size) for kind in KINDS for size in BOXES]


def rings() -> list[Config]:
    """Several under way."""
    return [config_of(kind, num_stages=num) for kind in KINDS for num in RINGS]


def paced() -> list[Config]:
    """Fewer stores than an SM could make."""
    return [config_of(kind, pace=pace, **read) for kind in KINDS for pace in PACES for read in ({}, CHASE)]


def some() -> list[Config]:
    """Only some SMs store."""
    reads = (*({"copy_bytes": size} for size in (128, 2048, RING_BYTES)), CHASE)
    return [config_of(kind, every=every, **read) for kind in KINDS for every in (2, 8) for read in reads]


def chases() -> list[Config]:
    """One load after the other."""
    return [config_of(kind, **CHASE) for kind in KINDS]


# ---------------------------------------------------------------------------------------------- launch and check
@cache
def own_words() -> NDArray[np.uint32]:
    """What each CTA reads, uint32[CTAs, words], no word odd; the first of each line says where the chase goes on."""
    words = np.arange(NUM_CTAS * OWN_BYTES // 4, dtype=np.uint32).reshape(NUM_CTAS, -1)
    words = (words * np.uint32(MULTIPLIER) + np.uint32(ADDEND)) & np.uint32(0xFFFFFFFE)
    words[:, :: LINE_BYTES // 4] = (np.arange(0, OWN_BYTES, LINE_BYTES) + LINK_BYTES) % OWN_BYTES
    words.setflags(write=False)
    return words


def matrix_of(config: Config) -> Windows:
    """What is stored into."""
    return Windows("matrix", config.matrix_bytes, windows(config.matrix_bytes))


def launch(config: Config) -> KernelLaunch:
    """A CTA an SM."""
    told = (
        config.pace, config.every, config.num_stages, config.copy_bytes, WARM_CYCLES, MEASURED_CYCLES,
        0 if config.kind == "none" else config.matrix_bytes // 16,
    )  # fmt: skip
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.array(told, dtype="<u4")), Output("flags", np.zeros(FLAG_WORDS, dtype="<u4")), Input(own_words()),
            matrix_of(config), Output("told", np.full((NUM_CTAS, TOLD_WORDS), NOBODY, dtype="<u4")),
        ),
        grid=(NUM_CTAS, 1, 1), block=(NUM_THREADS, 1, 1), smem_bytes=SMEM_BYTES,
    )  # fmt: skip


def checksums(config: Config, num_issued: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of each CTA's ring as its last copies leave it, or where its chase has come to. int64[CTAs]."""
    if config.is_chase:
        return num_issued * LINK_BYTES % OWN_BYTES
    found = np.zeros(len(num_issued), dtype=np.int64)
    size = config.copy_bytes // 4
    for stage in range(config.num_stages):
        last = num_issued - 1 - (num_issued - 1 - stage) % config.num_stages
        places = last * config.copy_bytes % OWN_BYTES // 4
        weights = np.arange(stage * size, (stage + 1) * size, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
        for cta, place in enumerate(places.tolist()):
            found[cta] += int((own_words()[cta, place : place + size] * weights).sum(dtype=np.uint32))
    return found % (1 << 32)


def storing_threads(config: Config, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The thread that stores the word at each offset of the matrix."""
    if config.kind == "lines":
        return offsets // WARP_BYTES % STORE_WARPS * WARP_SIZE + offsets % LINES_BYTES // config.lane_bytes
    rows, columns = offsets // PITCH_BYTES, offsets % PITCH_BYTES
    return rows % TILE_ROWS // 16 * WARP_SIZE + rows % 8 * 4 + columns % (4 * config.lane_bytes) // config.lane_bytes


def check_stores(config: Config, came: NDArray[np.uint8], is_storing: NDArray[np.bool_]) -> None:
    """Words are their thread's, or nobody's where not all SMs store.

    Raises:
        WrongAnswer: a word is another's, is missing, or was stored where nobody should.
    """
    out = matrix_of(config)
    num_stored = num_wanted = 0
    for (offset, num_bytes), part in zip(out.windows, out.split(came), strict=True):
        offsets = offset + np.arange(0, num_bytes, 4, dtype=np.int64)
        words = part.view("<u4").astype(np.int64)
        is_stored = words != NOBODY
        num_stored += int(is_stored.sum())
        if config.kind == "none":
            continue
        if (words != storing_threads(config, offsets))[is_stored].any():
            raise WrongAnswer("a word was stored by another thread than that which should")
        if config.kind == "lines":
            should = is_storing[offsets // (STORE_WARPS * WARP_BYTES)]
        else:
            should = is_stored if config.every > 1 else np.ones_like(is_stored)
        wrong_if((is_stored != should).any(), "a word was never stored, or by an SM that should not store")
        num_wanted += int(should.sum()) if config.kind == "lines" else 1
    wrong_if(bool(num_stored) != bool(num_wanted), "nothing was stored, or something by nobody")


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of a read, and of what is stored of a line."""
    wrong_if(outputs["flags"][1], "a wait was given up: an SM has no CTA or two, or a copy never came")
    told = outputs["told"].reshape(NUM_CTAS, TOLD_WORDS).astype(np.int64)
    sms, is_storing, issued, sums = told[:, :4].T
    wrong_if(sorted(sms.tolist()) != list(range(NUM_CTAS)), "two CTAs were on one SM")
    if is_storing.tolist() != [int(config.stores(sm)) for sm in sms.tolist()]:
        raise WrongAnswer("an SM stored, or did not, where others should")
    if (sums != checksums(config, issued)).any():
        raise WrongAnswer("a ring holds other bytes than the copies' sources, or the chase has come elsewhere")
    check_stores(config, outputs["matrix"], is_storing == 1)
    num_read, read_cycles = told[:, 4:6].T
    num_stored, store_cycles = (told[:, first::2] for first in (6, 7))
    of_storing = (np.stack((num_stored, store_cycles)) > 0)[:, is_storing == 1]
    if (config.copy_bytes and (np.minimum(num_read, read_cycles) <= 0).any()) or not of_storing.all():
        raise WrongAnswer("a clock stood still, or an SM did nothing while it was measured")
    reads = max(config.num_stages, 1) * read_cycles / np.maximum(num_read, 1)
    stores = (num_stored / np.maximum(store_cycles, 1)).sum(axis=1)
    return values_of(config, is_storing == 1, reads, stores)


def values_of(
    config: Config, is_storing: NDArray[np.bool_], read_cycles: NDArray[np.float64], store_rates: NDArray[np.float64]
) -> dict[str, float]:
    """Medians of SMs. ``read_cycles``: of a read; ``store_rates``: stores of warps in a cycle; NaN where nobody knows."""
    mine = is_storing if is_storing.any() else np.ones_like(is_storing)
    found = {"cycles_per_packet": 1.0 / (store_rates[is_storing] * config.packets)}
    if config.copy_bytes:
        found |= {"read_cycles": read_cycles[mine], "other_read_cycles": read_cycles[~mine]}
    return {name: float(np.nanmedian(of)) for name, of in found.items() if np.isfinite(of).any()}


# ---------------------------------------------------------------------------------------------- the simulator's answer

TWIN_WARM_CYCLES, TWIN_CYCLES = 6_000, 20_000
"""From where on the twin is looked at; how long its stores go on, about."""
ALU_OF_STORE = 2.0
"""Integer instructions beside a store. Source: kernels/fragment_stores, whose loop it is."""
ISSUE_CHAIN, NEXT_CHAIN = 24, 17
"""Instructions of a ring's loop, each of which waits for the one before: from a copy that is there to the next one's issue,
and behind that. As many as of kernels/memory_bandwidth; how they part is a guess, from SASS."""
LOAD_CHAIN = 2
"""Of the chase: the address."""
LEAST_PACKET_CYCLES = {"4": 3.6, "8": 2.8, "16": 4.0, "lines": 3.0}
"""About as fast as SMs store: says how many stores last so long, and nothing of what they take."""
LEAST_READ_CYCLES, MOST_READ_BYTES_PER_CYCLE = 300.0, 50.0
"""The same of reads."""
NUM_TICKS = 16
"""Stores that are behind their pace catch up so many of them."""


class Twin:
    """The kernel in the simulator's words: so many stores, and reads for as long."""

    def __init__(self, config: Config, gpu: GpuSpec) -> None:
        self.config, self.gpu = config, gpu
        sms = first_sms(gpu.dispatcher, gpu.floorplan)
        self.is_storing = np.array([config.stores(sms[cta]) for cta in range(NUM_CTAS)])
        self.num_pairs = 1 if config.kind == "lines" else 2
        """Stores of a warp from one look at the clock to the next."""
        if config.kind != "none":
            packets = STORE_WARPS * self.num_pairs * config.packets
            each = max(LEAST_PACKET_CYCLES[config.kind] * packets, float(self.num_pairs * config.pace))
            self.num_rounds = ceil(TWIN_CYCLES / each)
        at_once = max(config.num_stages, 1)
        least = max(LEAST_READ_CYCLES, at_once * config.copy_bytes / MOST_READ_BYTES_PER_CYCLE)
        self.num_reads = at_once * ceil(TWIN_CYCLES / least) if config.copy_bytes else 0

    def addresses(self) -> NDArray[np.int64]:
        """Bytes that lanes store at, of a round of all warps: int64[warps, stores, 32]."""
        lane, warp = np.arange(WARP_SIZE), np.arange(STORE_WARPS)[:, None, None]
        if self.config.kind == "lines":
            return np.asarray(warp * WARP_BYTES + lane * self.config.lane_bytes)
        rows = warp * 16 + 8 * np.arange(2)[:, None] + lane // 4
        return np.asarray(rows * PITCH_BYTES + lane % 4 * self.config.lane_bytes)

    def _code(self, num_cycles: float) -> ops.Alu:
        """Code that takes a warp so long, most of it waiting for itself."""
        return ops.Alu(num_cycles / self.gpu.warp_scheduler.dependent_cycles, is_chain=True)

    def _place(self, cta_idx: int, turn: int) -> ops.Tile:
        """Where a round of stores goes."""
        if self.config.kind == "lines":
            return cta_idx, turn % (WARP_BYTES // LINES_BYTES)
        parts = TILE_BYTES // (4 * self.config.lane_bytes)
        return (cta_idx + turn // parts * NUM_CTAS) % NUM_TILES, turn % parts

    def store(self, cta: RoleContext) -> Iterator[Any]:
        """All eight warps, round after round."""
        if not self.is_storing[cta.cta_idx]:
            return
        access = global_access(self.addresses(), self.config.lane_bytes)
        alu = ops.Alu(ALU_OF_STORE * self.num_pairs)
        for turn in range(self.num_rounds):
            yield alu
            yield ops.GlobalStore("matrix", self._place(cta.cta_idx, turn), access)
            yield ops.RangeStart(ops.Section.EPILOGUE)
            yield ops.RangeEnd()
            if self.config.pace:
                tick = turn % NUM_TICKS
                yield ops.MbarrierWait("tick", tick, turn // NUM_TICKS & 1)
                yield ops.MbarrierArrive("tock", tick)

    def keep_time(self, cta: RoleContext) -> Iterator[Any]:
        """What the warps' looks at the clock do: tells when it is time for the next round, also to who is late."""
        if not (self.is_storing[cta.cta_idx] and self.config.pace):
            return
        spec = self.gpu.mbarrier
        assert spec is not None  # of a GPU with TMA
        rest = self._code(self.num_pairs * self.config.pace - spec.try_wait_cycles - spec.arrive_cycles)
        for turn in range(self.num_rounds):
            tick = turn % NUM_TICKS
            yield ops.MbarrierWait("tock", tick, turn // NUM_TICKS & 1 ^ 1)
            yield rest
            yield ops.MbarrierArrive("tick", tick)

    def read(self, cta: RoleContext) -> Generator[Any, Any, None]:
        """The ring, or the chase; a mark where each copy, or load, is there."""
        size, stages = self.config.copy_bytes, self.config.num_stages
        if self.config.is_chase:
            sector = AccessPattern(num_requests=1, num_sectors=1, num_lines=1, num_bytes=size)
            for idx in range(self.num_reads):
                line = idx * LINK_BYTES % OWN_BYTES // LINE_BYTES
                token = yield ops.GlobalLoad("own", (cta.cta_idx, line), sector, allocates_in_l1=False)
                yield ops.Use(token)
                yield ops.RangeStart(ops.Section.MAINLOOP)
                yield ops.RangeEnd()
                yield ops.Alu(LOAD_CHAIN, is_chain=True)
            return
        issue, following = (ops.Alu(num, is_chain=True) for num in (ISSUE_CHAIN, NEXT_CHAIN))
        for idx in range(-stages, self.num_reads):
            stage = idx % max(stages, 1)
            if idx >= 0:
                yield ops.MbarrierWait("full", stage, idx // stages & 1, by_lane=True)
                yield ops.RangeStart(ops.Section.MAINLOOP)
                yield ops.RangeEnd()
            if idx + stages < self.num_reads:
                yield issue
                yield ops.MbarrierArriveExpectTx("full", stage, size)
                tile = cta.cta_idx, (idx + stages) % (OWN_BYTES // size)
                yield ops.TmaLoad("own", tile, size, size, 1, "ring", stage, "full")
                yield following

    def launch(self) -> Launch:
        """Readers, and those who store where any do."""
        stages, size = max(self.config.num_stages, 1), max(self.config.copy_bytes, SECTOR_BYTES)
        rings = {"full": (1, stages), "tick": (1, NUM_TICKS), "tock": (1, NUM_TICKS)}
        return Launch(
            kernel="loads_beside_stores", num_ctas=NUM_CTAS, num_tiles=NUM_CTAS,
            roles=(
                WarpRole(name="store", num_warps=STORE_WARPS, program=self.store),
                WarpRole(name="read", num_warps=1, program=self.read),
                *((WarpRole(name="time", num_warps=1, program=self.keep_time),) if self.config.pace else ()),
            ),
            buffers=(
                Buffer(name="ring", stage_bytes=size, num_stages=stages),
                Buffer(name="rest", stage_bytes=SMEM_BYTES - stages * size),
            ),
            mbarriers=tuple(
                Mbarrier(name=name, num_arrivals=num, num_stages=count) for name, (num, count) in rings.items()
                if self.config.pace or name == "full"
            ),
            features=frozenset({"tma", "mbarrier"}),
        )  # fmt: skip

    def predict(self) -> dict[str, float]:
        """Of what is there while all stores go on."""
        result = simulate(self.launch(), self.gpu, clock="max", l2="warm", recorded_sms=range(NUM_CTAS))
        marks = {
            (role.role, role.cta_idx): np.array([span.start_cycle for span in role.sections])
            for role in result.timeline.roles
        }  # fmt: skip
        stored, read = ([marks.get((name, cta), np.empty(0)) for cta in range(NUM_CTAS)] for name in ("store", "read"))
        first = TWIN_WARM_CYCLES + min(each[0] for each in (*stored, *read) if len(each))
        last = min((each[-1] for each in stored if len(each)), default=np.inf)
        stores = np.array([self.num_pairs * STORE_WARPS / _interval(each, first, last) for each in stored])
        reads = np.array([max(self.config.num_stages, 1) * _interval(each, first, last) for each in read])
        return values_of(self.config, self.is_storing, reads, stores)


def _interval(cycles: NDArray[np.float64], first: float, last: float) -> float:
    """Mean cycles from mark to mark between two moments; around them where fewer than two lie between; NaN of no two at all.

    >>> marks = np.array([1.0, 3.0, 5.0, 7.0, 20.0])
    >>> _interval(marks, 2.0, 8.0), _interval(marks, 6.0, 8.0)
    (2.0, 7.5)
    """
    begin, end = int(np.searchsorted(cycles, first)), int(np.searchsorted(cycles, last, side="right")) - 1
    if end <= begin:
        begin, end = max(0, int(np.searchsorted(cycles, first, side="right")) - 1), int(np.searchsorted(cycles, last))
        end = min(end, len(cycles) - 1)
    return float(cycles[end] - cycles[begin]) / (end - begin) if end > begin else float("nan")


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same reads and stores, simulated for a while; nothing for a GPU without TMA or of other SMs."""
    if gpu.tma is None or gpu.mbarrier is None or gpu.num_sms != NUM_CTAS:
        return {}
    return Twin(config, gpu).predict()


PACKET_BYTES = {"4": 2 * SECTOR_BYTES, "16": 2 * SECTOR_BYTES, "lines": LINE_BYTES}
"""What packets take of links: halves of sectors as much as two whole ones. Of sectors alone it is not known."""
FEW_BYTES = 2048
"""Copies up to here have so few lines that turns are little beside what the first of them waits."""
PORT_CYCLES = LINE_BYTES / 123.2
"""What lines come apart by without stores, at most. Source: ``xbar.sm_read_bytes_per_cycle`` of an H200."""


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What a copy's requests of lines wait for and take, beside as many stores as there can be."""
    alone = {int(row["copy_bytes"]): _reads(row) for row in _of(rows, "alone", "none") if row["num_stages"] == "1"}
    growths, takes, turns = [], [], []
    for kind in KINDS:
        boxes_of = {int(row["copy_bytes"]): row for row in _of(rows, "boxes", kind)}
        waits = {size: _reads(row) - alone[size] - _turns(row) for size, row in boxes_of.items() if size in alone}
        first = waits.pop(LINE_BYTES, None)
        if first is not None:
            growths += [(waits[size] / first - 1.0) / log(size / LINE_BYTES) for size in waits if size <= FEW_BYTES]
        for row in _of(rows, "rings", kind):
            if int(row["num_stages"]) != max(RINGS):
                continue
            packet = float(row["cycles_per_packet"])
            turns.append(_reads(row) / (max(RINGS) * RING_BYTES / LINE_BYTES) / packet)
            if LINE_BYTES in boxes_of and kind in PACKET_BYTES:
                few = float(boxes_of[LINE_BYTES]["cycles_per_packet"])
                takes.append((packet - few) * turns[-1] * PACKET_BYTES[kind] / few)
    found = {
        "line_request_bytes": (takes, "what packets take longer beside six copies than beside one of a line"),
        "request_interval_packets": (turns, "cycles a line of six copies over cycles a packet"),
        "request_wait_per_efold_fraction": (
            growths,
            "copies to 2 KiB: wait less turns, beyond a lone line's, over it and the logarithm",
        ),
    }
    return [
        Fitted(parameter=f"xbar.{name}", value=float(np.median(values)), how=f"{how}, median")
        for name, (values, how) in found.items() if values
    ]  # fmt: skip


def _of(rows: Sequence[Mapping[str, str]], group: str, kind: str) -> list[Mapping[str, str]]:
    return [row for row in rows if row["group"] == group and row["kernel"] == f"beside_{kind}"]


def _reads(row: Mapping[str, str]) -> float:
    return float(row["read_cycles"])


def _turns(row: Mapping[str, str]) -> float:
    """What lines of a copy behind the first take longer by turns with packets."""
    return (int(row["copy_bytes"]) / LINE_BYTES - 1.0) * (float(row["cycles_per_packet"]) - PORT_CYCLES)


HOPPER = (9, 0)
SWEEPS = {"alone": alone, "boxes": boxes, "rings": rings, "paced": paced, "some": some, "chases": chases}

CASE = Case(
    name="loads_beside_stores",
    question=__doc__,
    config_type=Config,
    groups={name: Group(configs=configs, rank=2, least_capability=HOPPER) for name, configs in SWEEPS.items()},
    launch=launch, check=check,
    values={
        "read_cycles": "SM cycles from the issue of a copy, or of a load of the chase, to its end and the next one's issue: "
        "median of the SMs that store, of all where none does",
        "other_read_cycles": "the same of the SMs that do not store, where others do",
        "cycles_per_packet": "SM cycles for what one store stores of one line, median of the SMs that store",
    },
    num_repeats=3, predict=predict, fit=fit, includes=grid_include,
    tiers={"read_cycles": 4, "other_read_cycles": 4, "cycles_per_packet": 4},
)  # fmt: skip
