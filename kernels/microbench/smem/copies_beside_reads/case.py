"""Who waits for whom where an SM copies around L1 and reads by ldmatrix, and what does each take of the other's pace?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import GpuSpec
from gpusim.evidence.cases.array import read_only
from gpusim.evidence.cases.case import Case, Fitted, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Input, KernelLaunch, Output, by_value
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted
from gpusim.evidence.cases.smem_streaming import of_last_round, spans, stream_paces
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

ROUNDS, WARM_ROUNDS = 12, 3
MOST_WARPS, MOST_COPIES, MOST_READS = 16, 8, 12
UNROLLED, GROUP = 8, 4
COPY_BYTES = READ_BYTES = 512
COPIED_BYTES = MOST_WARPS * MOST_COPIES * COPY_BYTES
PITCH_BYTES = 1024
"""From row to row, in a tensor that L2 holds."""
TURNS = 400

AHEAD, COPIES, BEHIND, WARPS, ROW_BYTES = (0, 8), (0, 1, 2, 4, 8), (1, 4), (4, 8, 16), (64, 128, 512)
STREAM_ROLES = ((4, 0), (8, 0), (0, 4), (0, 8), (4, 4), (8, 4), (4, 8), (8, 8))
"""Warps that read, warps that copy."""


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
    ahead: int
    copies: int
    behind: int
    readers: int

    @property
    def is_stream(self) -> bool:
        """Whether some warps read and others copy."""
        return self.behind == UNROLLED

    @property
    def kernel(self) -> str:
        """The entry point."""
        return "streams" if self.is_stream else entry(self.ahead, self.copies, self.behind)


def rounds() -> list[Row]:
    """Every kind of round, by warps and by the rows of copies, where there are any."""
    return [
        Row(warps, row_bytes, ahead, copies, behind, warps)
        for ahead, behind, warps, row_bytes, copies in product(AHEAD, BEHIND, WARPS, ROW_BYTES, COPIES)
        if copies or row_bytes == ROW_BYTES[0]
    ]


def streams() -> list[Row]:
    """Warps that read and warps that copy, alone and side by side."""
    return [
        Row(readers + copiers, row_bytes, 0, GROUP, UNROLLED, readers)
        for (readers, copiers), row_bytes in product(STREAM_ROLES, ROW_BYTES) if copiers or row_bytes == ROW_BYTES[0]
    ]


# ---------------------------------------------------------------------------------------------- launch and check
@cache
def tensor() -> NDArray[np.uint8]:
    """What is copied: as many rows as the narrowest want."""
    return read_only(np.random.default_rng(3).integers(1, 256, COPIED_BYTES // ROW_BYTES[0] * PITCH_BYTES, dtype=np.uint8))


@cache
def words() -> NDArray[np.uint32]:
    """What is read, uint32[reads, matrices, lanes]."""
    return read_only(np.random.default_rng(4).integers(1, 1 << 32, (MOST_READS, 4, 32), dtype="<u4"))


def copied(config: Row) -> NDArray[np.uint8]:
    """Shared memory at the end: each copier's copies, side by side, and zeros; uint8[warps, copies, bytes]."""
    warps, readers, row_bytes = config.warps, config.readers, config.row_bytes
    num_copies = MOST_COPIES if config.is_stream else config.copies
    rows = tensor().reshape(-1, PITCH_BYTES)[: COPIED_BYTES // row_bytes, :row_bytes]
    found = np.zeros((MOST_WARPS, MOST_COPIES, COPY_BYTES), dtype=np.uint8)
    of = slice(readers if config.is_stream else 0, warps)
    found[of, :num_copies] = rows.reshape(MOST_WARPS, MOST_COPIES, COPY_BYTES)[of, :num_copies]
    return found


def sums(config: Row) -> NDArray[np.int64]:
    """What each thread adds up, modulo 2 to the 32; int64[warps, 32]."""
    warps, readers = config.warps, config.readers
    of_read = words().astype(np.int64).sum(axis=1)
    if config.is_stream:
        each, times = of_read[:UNROLLED].sum(axis=0), TURNS
    else:
        ahead, behind = config.ahead, config.behind
        each, times = of_read[:ahead].sum(axis=0) + of_read[MOST_READS - behind :].sum(axis=0), ROUNDS
    found = np.zeros((warps, 32), dtype=np.int64)
    found[:readers] = each * times
    return found % (1 << 32)


def launch(config: Row) -> KernelLaunch:
    """One CTA."""
    warps = config.warps
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.array([config.row_bytes, PITCH_BYTES, config.readers, TURNS], dtype="<u4")),
            Input(tensor()), Input(words()),
            Output("clocks", np.zeros((ROUNDS, MOST_WARPS, 3), dtype="<u4")),
            Output("sums", np.zeros((warps, 32), dtype="<u4")), Output("copied", np.full(COPIED_BYTES, 255, dtype=np.uint8)),
        ),
        block=(32 * warps, 1, 1), smem_bytes=COPIED_BYTES + MOST_READS * READ_BYTES + 16 + 4 * 32 * MOST_WARPS,
    )  # fmt: skip


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Cycles, if sums and bytes are right."""
    warps, readers = config.warps, config.readers
    wrong_if((outputs["sums"].reshape(warps, 32).astype(np.int64) != sums(config)).any(), "what was read does not add up")
    if (outputs["copied"].reshape(-1) != copied(config).reshape(-1)).any():
        raise WrongAnswer("shared memory holds other bytes than were to be copied")
    clocks = outputs["clocks"].reshape(ROUNDS, MOST_WARPS, 3)[:, :warps]
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
    return {"issued_cycles": float(np.median(since[:, 1])), "read_cycles": float(np.median(since[:, 2]))}


# ---------------------------------------------------------------------------------------------- the simulator's answer

WORDS = AccessPattern(num_requests=1, num_wavefronts=4, num_bytes=READ_BYTES)
CLOCK_CYCLES, SUM_CYCLES = 12.0, 17.0
"""From the barrier to the first instruction, the clock; sums of the last read, their store. Source: SASS of nvcc 13.0."""
ISSUED_CYCLES, STALL_CYCLES, COMMIT_STALL_CYCLES = 2.0, 4.0, 18.0
"""From the barrier to the clock behind what is issued; of each copy or read; of the commit, and what stands before copies.
Source: the same, stalls."""


def access(config: Row, copies: int) -> tuple[AccessPattern, int]:
    """So many copies of a warp, and their rows."""
    rows = COPY_BYTES // config.row_bytes
    lines = max(rows, COPY_BYTES // 128)
    made = AccessPattern(num_requests=1, num_sectors=16, num_lines=lines, num_wavefronts=4, num_bytes=COPY_BYTES)
    return made.scaled(copies), copies * lines


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """The same rounds, or streams, for as long."""
    return _streams(config, gpu) if config.is_stream else _rounds(config, gpu)


def _rounds(config: Row, gpu: GpuSpec) -> dict[str, float]:
    warps, ahead, copies, behind = config.warps, config.ahead, config.copies, config.behind

    def program(_cta: RoleContext) -> Iterator[Any]:
        pattern, num_rows = access(config, copies * warps)
        for _ in range(WARM_ROUNDS + 1):
            yield ops.Syncthreads()
            yield ops.RangeStart(ops.Section.MAINLOOP)
            yield ops.RangeStart(ops.Section.MAINLOOP)
            if ahead:
                yield ops.Ldmatrix(WORDS.scaled(ahead * warps))
            if copies:
                yield ops.CpAsync("T", (0, 0), pattern, "copied", 0, num_rows=num_rows)
                yield ops.CpAsyncCommitGroup()
            yield ops.RangeEnd()
            token: Any = yield ops.Ldmatrix(WORDS.scaled(behind * warps))
            yield ops.Use(token)
            yield ops.RangeEnd()
            yield ops.CpAsyncWaitGroup(0)

    found = spans("copies_beside_reads", {"all": (warps, program)}, gpu, copied_bytes=COPIED_BYTES, registers=REGISTERS)
    issued, read = of_last_round(found["all"], 2)
    stalls = STALL_CYCLES * (ahead + copies) + (COMMIT_STALL_CYCLES if copies else 0.0)
    return {"issued_cycles": max(issued, stalls) + ISSUED_CYCLES, "read_cycles": read + CLOCK_CYCLES + SUM_CYCLES}


REGISTERS = 96


def _streams(config: Row, gpu: GpuSpec) -> dict[str, float]:
    readers, copiers = config.readers, config.warps - config.readers
    pattern, num_rows = access(config, GROUP)
    read, copied = stream_paces(
        readers, copiers, ops.Ldmatrix(WORDS.scaled(UNROLLED)),
        lambda _which, _turn: ops.CpAsync("T", (0, 0), pattern, "copied", 0, num_rows=num_rows),
        lambda roles: spans("copies_beside_reads", roles, gpu, copied_bytes=COPIED_BYTES, registers=REGISTERS),
    )  # fmt: skip
    found = {"read_wavefronts_per_cycle": 4.0 * UNROLLED * read} if readers else {}
    return found | ({"copies_per_cycle": GROUP * copied} if copiers else {})


ROW_CYCLES, COMMIT_CYCLES = 1.062, 5.222
"""``l1.cp_async_row_cycles`` and ``l1.commit_cycles``, from kernels/own_copies and copy_rate."""
FITTED_WARPS, FITTED_COPIES = "4", 8


SATURATING = "8"
"""Readers that alone take the whole stage: 1.0 wavefronts a cycle, two a sub-core."""


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """Rows that queue while what is behind their copies passes, and what rows take of the data stage."""
    return [*_of_queue(rows), *_of_stage(rows)]


def _of_stage(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What rows take of readers that would have the whole stage."""
    found = []
    for row in rows:
        if row["group"] == "streams" and row["readers"] == SATURATING and row.get("copies_per_cycle"):
            num_rows = float(row["copies_per_cycle"]) * access(Row.of(row), 1)[1]
            found.append((1.0 - float(row["read_wavefronts_per_cycle"])) / num_rows)
    how = "streams beside readers that alone take the whole stage: what these lose, over the rows, median"
    return fitted("smem.cp_async_row_wavefronts", found, how)


def _of_queue(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What rows take less than their pace, one warp a sub-core."""
    taken = {
        (row["ahead"], row["behind"], int(row["copies"])): float(row["read_cycles"]) for row in rows
        if row["group"] == "rounds" and row["warps"] == FITTED_WARPS and row["row_bytes"] == "64" and row.get("read_cycles")
    }  # fmt: skip
    warps = int(FITTED_WARPS)
    num_rows = warps * FITTED_COPIES * COPY_BYTES // 64
    found = [
        num_rows - (cycles - taken[*kind, 0] - warps * COMMIT_CYCLES) / ROW_CYCLES
        for (*kind, copies), cycles in taken.items() if copies == FITTED_COPIES and (*kind, 0) in taken
    ]
    how = "rounds of four warps, rows of 64 bytes: pace of eight copies' rows, and commits, less what they take, median"
    return fitted("l1.max_queued_rows", found, how)


CASE = Case(
    name="copies_beside_reads",
    question="Who waits for whom where an SM's warps copy by cp.async and read by ldmatrix?",
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict, fit=fit, includes=includes,
    groups={"rounds": Group(configs=rounds, rank=2), "streams": Group(configs=streams, rank=2)},
    values={
        "issued_cycles": "SM cycles from the barrier until the last warp has issued its copies and their commit",
        "read_cycles": "the same until the last has what it reads behind them",
        "read_wavefronts_per_cycle": "wavefronts that all readers read in an SM cycle",
        "copies_per_cycle": "copies that all copiers issue in an SM cycle meanwhile",
    },
    tiers=dict.fromkeys(("issued_cycles", "read_cycles", "read_wavefronts_per_cycle", "copies_per_cycle"), 4),
)  # fmt: skip
