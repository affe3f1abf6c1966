"""Who waits for whom where an SM copies four bytes a lane through L1 and loads from shared memory; what does each take?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.array import read_only
from gpusim.evidence.cases.case import Case, Fitted, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Input, KernelLaunch, Output, by_value
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted
from gpusim.evidence.cases.smem_streaming import of_last_round, spans, stream_paces
from gpusim.machine.config import GpuSpec
from gpusim.simulate.timeline import Span
from gpusim.workload import ops
from gpusim.workload.launch import Program, RoleContext
from gpusim.workload.smem.access import AccessPattern, wavefronts

ROUNDS, WARM_ROUNDS = 12, 3
MOST_WARPS, MOST_COPIES, MOST_READS, MARKS = 16, 8, 12, 4
UNROLLED, GROUP = 8, 4
COPY_BYTES, LOAD_BYTES, WORD_BYTES, LANES, LINE_BYTES = 128, 512, 4, 32, 128
COPIED_BYTES, PAD = 20480, 4
"""Of shared memory for copies; elements more of a row of it that is turned."""
PITCH_BYTES = 16512
"""From row to row, in a tensor that L2 holds; so long that L1 has forgotten its beginning at its end."""
TURNS = 400

METRICS = (
    "sm__sass_l1tex_pipe_lsu_wavefronts_mem_shared.sum",
    "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum",
    "l1tex__data_pipe_lsu_wavefronts.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__t_output_wavefronts_pipe_lsu_mem_global_op_ldgsts.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ldgsts.sum",
)

LINE_STEP_BYTES = 132
"""Bytes from one copy of a lane to its next, in another line and another bank."""
LINE_ROW_BYTES, LINE_SOURCES = (4, 8, 16, 32, 64), ("lines", "pieces")
LINE_ROLES = ((0, 4), (0, 8), (0, 16), (4, 4), (8, 8))

AHEAD, COPIES, BEHIND, WARPS, ROW_BYTES = (0, 8), (0, 2, 4, 8), (1, 4), (4, 8, 16), (32, 64, 128)
LANDINGS, SOURCES = ("packed", "turned"), ("l1", "l2")
STREAM_ROLES = ((4, 0), (8, 0), (0, 4), (0, 8), (0, 16), (4, 4), (8, 4), (4, 8), (8, 8))
"""Warps that load, warps that copy."""


# ---------------------------------------------------------------------------------------------- configs
def entry(ahead: int, copies: int, behind: int) -> str:
    """The kernel of a round."""
    return f"round_a{ahead}_c{copies}_b{behind}"


def includes() -> dict[str, str]:
    """``rounds.inc``: an entry point for each kind of round."""
    kinds = product(AHEAD, COPIES, BEHIND)
    return {"rounds.inc": "".join(f"ROUND({entry(*kind)}, {kind[0]}, {kind[1]}, {kind[2]})\n" for kind in kinds)}


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config; of streams ``copies`` and ``behind`` are those of a turn."""

    warps: int
    row_bytes: int
    landing: str
    source: str
    ahead: int
    copies: int
    behind: int
    readers: int

    @property
    def pitch(self) -> int:
        """Bytes from row to row. Rows of ``lines`` and ``pieces`` begin in adjacent banks."""
        if self.source not in LINE_SOURCES:
            return PITCH_BYTES
        return LINE_STEP_BYTES * (LANES + self.row_bytes // WORD_BYTES)

    @property
    def is_stream(self) -> bool:
        """Whether some warps load and others copy."""
        return self.behind == UNROLLED

    @property
    def kernel(self) -> str:
        """The entry point."""
        return "streams" if self.is_stream else entry(self.ahead, self.copies, self.behind)


def ways(has_copies: bool) -> list[tuple[int, str, str]]:
    """Bytes of a row, how copies land and where they read; one way where there is none."""
    return list(product(ROW_BYTES, LANDINGS, SOURCES))[: None if has_copies else 1]


def rounds() -> list[Row]:
    """Every kind of round, by warps and by the way of copies, where there are any."""
    return [
        Row(warps, *way, ahead, copies, behind, warps)
        for ahead, behind, warps, copies in product(AHEAD, BEHIND, WARPS, COPIES) for way in ways(copies > 0)
    ]


def streams() -> list[Row]:
    """Warps that load and warps that copy, alone and side by side."""
    return [
        Row(readers + copiers, *way, 0, GROUP, UNROLLED, readers)
        for readers, copiers in STREAM_ROLES for way in ways(copiers > 0)
    ]


def lines() -> list[Row]:
    """Streams of copies that touch 2 to 32 lines with one wavefront: other lines each time, or the next piece of each."""
    return [
        Row(readers + copiers, row_bytes, "packed", source, 0, GROUP, UNROLLED, readers)
        for readers, copiers in LINE_ROLES for row_bytes in LINE_ROW_BYTES for source in LINE_SOURCES
    ]


def counted() -> list[Row]:
    """One kind of round by the way of copies, and one without."""
    return [
        config for config in rounds()
        if (config.warps, config.ahead, config.behind) == (WARPS[0], 0, 1) and config.copies in (0, MOST_COPIES)
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- launch and check
@cache
def tensor(pitch: int = PITCH_BYTES, row_bytes: int = ROW_BYTES[0]) -> NDArray[np.uint32]:
    """The tensor that is copied, uint32[rows, words]: all rows that the narrowest copies read, and one more."""
    rows = MOST_WARPS * MOST_COPIES * COPY_BYTES // min(row_bytes, ROW_BYTES[0]) + (pitch != PITCH_BYTES)
    return read_only(np.random.default_rng(3).integers(1, 1 << 32, (rows, pitch // WORD_BYTES), dtype="<u4"))


def copied_from(config: Row) -> NDArray[np.uint32]:
    """The tensor of a config."""
    return tensor(config.pitch, config.row_bytes) if config.source in LINE_SOURCES else tensor()


@cache
def words() -> NDArray[np.uint32]:
    """What is loaded, uint32[loads, words]."""
    return read_only(np.random.default_rng(4).integers(1, 1 << 32, (MOST_READS, LOAD_BYTES // WORD_BYTES), dtype="<u4"))


def places(config: Row) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of the tensor, and words of shared memory, of copies' lanes: int64[warps, copies, lanes] each."""
    lanes = config.row_bytes // WORD_BYTES
    num_rows = LANES // lanes
    copy, lane = np.meshgrid(np.arange(MOST_WARPS * MOST_COPIES), np.arange(LANES), indexing="ij")
    row, column = copy * num_rows + lane // lanes, lane % lanes
    along = MOST_WARPS * MOST_COPIES * num_rows + PAD
    to = column * along + row if config.landing == "turned" else row * lanes + column
    shape = (MOST_WARPS, MOST_COPIES, LANES)
    return row.reshape(shape), column.reshape(shape), to.reshape(shape)


def advance(config: Row) -> int:
    """Bytes that copies go on along their rows each time."""
    steps = {"l1": 0, "l2": config.row_bytes, "lines": LINE_STEP_BYTES, "pieces": WORD_BYTES}
    return steps[config.source]


def is_copied(config: Row, seen: NDArray[np.uint32]) -> bool:
    """Whether shared memory holds the last copies of each that copies, and nothing else."""
    warps, readers = config.warps, config.readers
    is_stream = config.is_stream
    of, num_copies = slice(readers if is_stream else 0, warps), MOST_COPIES if is_stream else config.copies
    row, column, to = (each[of, :num_copies] for each in places(config))
    left = seen.copy()
    left[to.reshape(-1)] = 0
    step = advance(config) // WORD_BYTES
    if not is_stream:
        return not left.any() and bool((seen[to] == copied_from(config)[row, column + (ROUNDS - 1) * step]).all())
    # how far a stream has come, its readers say: a copy's lanes all of one place
    source = copied_from(config).reshape(-1)  # behind a row the next one follows
    at = row * (config.pitch // WORD_BYTES) + column
    begins = np.arange(0, config.pitch // WORD_BYTES, step) if step else np.zeros(1, dtype=np.int64)
    is_there = seen[to] == source[at + begins[:, None, None, None]]
    if config.source not in LINE_SOURCES:  # whose copies overtake one another, piece by piece
        is_there = is_there.all(axis=3)
    return not left.any() and bool(is_there.any(axis=0).all())


def sums(config: Row) -> NDArray[np.int64]:
    """What each thread adds up, modulo 2 to the 32; int64[warps, 32]."""
    warps, readers = config.warps, config.readers
    of_read = words().astype(np.int64).reshape(MOST_READS, LANES, 4).sum(axis=2)
    if config.is_stream:
        each, times = of_read[:UNROLLED].sum(axis=0), TURNS
    else:
        ahead, behind = config.ahead, config.behind
        each, times = of_read[:ahead].sum(axis=0) + of_read[MOST_READS - behind :].sum(axis=0), ROUNDS
    found = np.zeros((warps, LANES), dtype=np.int64)
    found[:readers] = each * times
    return found % (1 << 32)


def launch(config: Row) -> KernelLaunch:
    """One CTA."""
    warps, is_turned = config.warps, config.landing == "turned"
    numbers = [config.row_bytes, config.pitch, config.readers, TURNS, is_turned, advance(config)]
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.array(numbers, dtype="<u4")), Input(copied_from(config)), Input(words()),
            Output("clocks", np.zeros((ROUNDS, MOST_WARPS, MARKS), dtype="<u4")),
            Output("sums", np.zeros((warps, LANES), dtype="<u4")),
            Output("copied", np.full(COPIED_BYTES // WORD_BYTES, 255, dtype="<u4")),
        ),
        block=(LANES * warps, 1, 1),
        smem_bytes=COPIED_BYTES + MOST_READS * LOAD_BYTES + 16 + WORD_BYTES * LANES * MOST_WARPS,
    )  # fmt: skip


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Cycles, if sums and bytes are right."""
    warps, readers = config.warps, config.readers
    if (outputs["sums"].reshape(warps, LANES).astype(np.int64) != sums(config)).any():
        raise WrongAnswer("what was loaded does not add up")
    wrong_if(not is_copied(config, outputs["copied"].reshape(-1)), "shared memory holds other bytes than were to be copied")
    clocks = outputs["clocks"].reshape(ROUNDS, MOST_WARPS, MARKS)[:, :warps]
    if config.is_stream:
        begin, done, end = (clocks[0, :, idx].astype(np.int64) for idx in range(3))
        cycles = (end - begin) % (1 << 32)
        if (cycles <= 0).any() or (done <= 0).any():
            raise WrongAnswer(f"the clock says {cycles.tolist()} cycles for {done.tolist()} turns")
        found = {}
        if readers:
            found["read_wavefronts_per_cycle"] = float((4.0 * UNROLLED * done / cycles)[:readers].sum())
        if warps > readers:
            found["copies_per_cycle"] = float((GROUP * done / cycles)[readers:].sum())
        return found
    since = (clocks - clocks[:, :, 0].min(axis=1)[:, None, None]).astype(np.int64)[WARM_ROUNDS:].max(axis=1)
    if (since[:, 2] <= 0).any() or (since > 1 << 20).any():
        raise WrongAnswer(f"the clock says {since[:, 2].tolist()} cycles")
    told = {"issued_cycles": float(np.median(since[:, 1])), "read_cycles": float(np.median(since[:, 2]))}
    return told | ({"copied_cycles": float(np.median(since[:, 3]))} if config.copies else {})


# ---------------------------------------------------------------------------------------------- the simulator's answer

WORDS = AccessPattern(num_requests=1, num_wavefronts=4, num_bytes=LOAD_BYTES)
CLOCK_CYCLES, SUM_CYCLES = 12.0, 17.0
"""From the barrier to the first instruction, the clock; sums of the last load, their store. Source: SASS of nvcc 13.0."""
ISSUED_CYCLES, STALL_CYCLES, COMMIT_STALL_CYCLES = 2.0, 4.0, 18.0
"""From the barrier to the clock behind what is issued; of each copy or load; of the commit, and what stands before copies.
Source: the same, stalls."""


def access(config: Row) -> AccessPattern:
    """A copy of a warp."""
    row, column, to = (each[:1, 0] for each in places(config))
    sources = row * config.pitch + column * WORD_BYTES
    written = wavefronts("cp_async_b32", to * WORD_BYTES, np.ones_like(to, dtype=bool), sources)
    num_lines = COPY_BYTES // config.row_bytes
    return AccessPattern(
        num_requests=1, num_sectors=max(4, num_lines), num_lines=num_lines, num_wavefronts=int(written.sum()),
        num_bytes=COPY_BYTES,
    )  # fmt: skip


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """The same rounds, or streams, for as long."""
    return _streams(config, gpu) if config.is_stream else _rounds(config, gpu)


def _copy(config: Row, num: int, which: int, turn: int) -> ops.CpAsync:
    """So many copies together, of warps ``which``."""
    at = turn if config.source in ("l2", "lines") else turn // (LINE_BYTES // WORD_BYTES) if config.source == "pieces" else 0
    return ops.CpAsync("T", (which, at), access(config).scaled(num), "copied", 0, allocates_in_l1=True)


def _spans(roles: Mapping[str, tuple[int, Program]], gpu: GpuSpec) -> dict[str, list[Span]]:
    return spans("narrow_copies", roles, gpu, copied_bytes=COPIED_BYTES, registers=96)


def _rounds(config: Row, gpu: GpuSpec) -> dict[str, float]:
    warps, ahead, copies, behind = config.warps, config.ahead, config.copies, config.behind

    def program(_cta: RoleContext) -> Iterator[Any]:
        for turn in range(WARM_ROUNDS + 1):
            yield ops.Syncthreads()
            yield from [ops.RangeStart(ops.Section.MAINLOOP)] * 3
            if ahead:
                yield ops.SharedLoad(WORDS.scaled(ahead * warps))
            if copies:
                yield _copy(config, copies * warps, 0, turn)
                yield ops.CpAsyncCommitGroup()
            yield ops.RangeEnd()
            token: Any = yield ops.SharedLoad(WORDS.scaled(behind * warps))
            yield ops.Use(token)
            yield ops.RangeEnd()
            yield ops.CpAsyncWaitGroup(0)
            yield ops.RangeEnd()

    issued, read, copied = of_last_round(_spans({"all": (warps, program)}, gpu)["all"], 3)
    stalls = STALL_CYCLES * (ahead + copies) + (COMMIT_STALL_CYCLES if copies else 0.0)
    told = {"issued_cycles": max(issued, stalls) + ISSUED_CYCLES, "read_cycles": read + CLOCK_CYCLES + SUM_CYCLES}
    return told | ({"copied_cycles": max(copied + CLOCK_CYCLES, told["read_cycles"])} if copies else {})


def _streams(config: Row, gpu: GpuSpec) -> dict[str, float]:
    readers, copiers = config.readers, config.warps - config.readers
    read, copied = stream_paces(
        readers, copiers, ops.SharedLoad(WORDS.scaled(UNROLLED)), lambda which, turn: _copy(config, GROUP, which, turn),
        lambda roles: _spans(roles, gpu),
    )  # fmt: skip
    found = {"read_wavefronts_per_cycle": 4.0 * UNROLLED * read} if readers else {}
    return found | ({"copies_per_cycle": GROUP * copied} if copiers else {})


CYCLES = 0.887
"""``l1.cp_async_cycles``, from kernels/copy_rate."""
FITTED_WARPS, FITTED_COPIES = ("4", "8"), (4, 8)


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What copies out of L2 take before it is known that L1 lacks them, of few warps, whose loads go before their data."""
    found, by = [], {}
    for row in rows:
        is_plain = row["group"] == "rounds" and (row["ahead"], row["behind"]) == ("0", "1")
        if is_plain and row["warps"] in FITTED_WARPS and row["source"] == "l2" and row.get("read_cycles"):
            key = tuple(text for name, text in Row.of(row).items() if name not in ("kernel", "copies"))
            by[key, int(row["copies"])] = float(row["read_cycles"]), row
    few, many = FITTED_COPIES
    for (key, copies), (cycles, row) in by.items():
        if copies == few and (key, many) in by:
            each = (by[key, many][0] - cycles) / (int(row["warps"]) * (many - few))
            found.append((each - CYCLES) / access(Row.of(row)).num_wavefronts)
    how = (
        "rounds of four and eight warps, one load behind: cycles of a copy more, from four to eight, less "
        "l1.cp_async_cycles, over its wavefronts, median"
    )
    return fitted("l1.cp_async_miss_first_pass_fraction", found, how)


CASE = Case(
    name="narrow_copies",
    question="Who waits for whom where an SM's warps copy four bytes a lane through L1 and load from shared memory?",
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict, fit=fit, includes=includes,
    groups={"rounds": Group(configs=rounds, rank=2), "streams": Group(configs=streams, rank=2),
            "lines": Group(configs=lines, rank=2), "counted": Group(configs=counted, metrics=METRICS, rank=3)},
    values={
        "issued_cycles": "SM cycles from the barrier until the last warp has issued its copies and their commit",
        "read_cycles": "the same until the last has what it loads behind them",
        "copied_cycles": "the same until the last has what it copies",
        "read_wavefronts_per_cycle": "wavefronts that all readers load in an SM cycle",
        "copies_per_cycle": "copies that all copiers issue in an SM cycle meanwhile",
    },
    tiers=dict.fromkeys(
        ("issued_cycles", "read_cycles", "copied_cycles", "read_wavefronts_per_cycle", "copies_per_cycle"), 4
    ),
)  # fmt: skip
