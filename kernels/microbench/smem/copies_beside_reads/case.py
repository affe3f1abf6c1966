"""Who waits for whom where an SM copies around L1 and reads by ldmatrix, and what does each take of the other's pace?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.case import (
    Case,
    Config,
    Fitted,
    Group,
    Input,
    KernelLaunch,
    Output,
    Outputs,
    WrongAnswer,
    by_value,
)
from gpusim.simulate.timeline import Span
from gpusim.workload import ops
from gpusim.workload.launch import Program, RoleContext
from gpusim.workload.smem.access import AccessPattern

ROUNDS, WARM_ROUNDS = 12, 3
MOST_WARPS, MOST_COPIES, MOST_READS = 16, 8, 12
UNROLLED, GROUP, GROUPS_IN_FLIGHT = 8, 4, 4
COPY_BYTES = READ_BYTES = 512
COPIED_BYTES = MOST_WARPS * MOST_COPIES * COPY_BYTES
PITCH_BYTES = 1024
"""From row to row, in a tensor that L2 holds."""
TURNS = 400
COLUMNS = ("warps", "row_bytes", "ahead", "copies", "behind", "readers")

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


def rounds(seed: int) -> list[Config]:
    """Every kind of round, by warps and by the rows of copies, where there are any."""
    del seed  # a sweep, the same for every seed
    return [
        {
            "kernel": entry(ahead, copies, behind), "warps": str(warps), "row_bytes": str(row_bytes), "ahead": str(ahead),
            "copies": str(copies), "behind": str(behind), "readers": str(warps),
        }
        for ahead, behind, warps, row_bytes, copies in product(AHEAD, BEHIND, WARPS, ROW_BYTES, COPIES)
        if copies or row_bytes == ROW_BYTES[0]
    ]  # fmt: skip


def streams(seed: int) -> list[Config]:
    """Warps that read and warps that copy, alone and side by side."""
    del seed  # a sweep, the same for every seed
    return [
        {
            "kernel": "streams", "warps": str(readers + copiers), "row_bytes": str(row_bytes), "ahead": "0",
            "copies": str(GROUP), "behind": str(UNROLLED), "readers": str(readers),
        }
        for (readers, copiers), row_bytes in product(STREAM_ROLES, ROW_BYTES) if copiers or row_bytes == ROW_BYTES[0]
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- launch and check


@cache
def tensor() -> NDArray[np.uint8]:
    """What is copied: as many rows as the narrowest want."""
    made = np.random.default_rng(3).integers(1, 256, COPIED_BYTES // ROW_BYTES[0] * PITCH_BYTES, dtype=np.uint8)
    made.setflags(write=False)
    return made


@cache
def words() -> NDArray[np.uint32]:
    """What is read, uint32[reads, matrices, lanes]."""
    made = np.random.default_rng(4).integers(1, 1 << 32, (MOST_READS, 4, 32), dtype="<u4")
    made.setflags(write=False)
    return made


def copied(config: Config) -> NDArray[np.uint8]:
    """Shared memory at the end: each copier's copies, side by side, and zeros; uint8[warps, copies, bytes]."""
    warps, readers, row_bytes = int(config["warps"]), int(config["readers"]), int(config["row_bytes"])
    is_stream = config["kernel"] == "streams"
    num_copies = MOST_COPIES if is_stream else int(config["copies"])
    rows = tensor().reshape(-1, PITCH_BYTES)[: COPIED_BYTES // row_bytes, :row_bytes]
    found = np.zeros((MOST_WARPS, MOST_COPIES, COPY_BYTES), dtype=np.uint8)
    of = slice(readers if is_stream else 0, warps)
    found[of, :num_copies] = rows.reshape(MOST_WARPS, MOST_COPIES, COPY_BYTES)[of, :num_copies]
    return found


def sums(config: Config) -> NDArray[np.int64]:
    """What each thread adds up, modulo 2 to the 32; int64[warps, 32]."""
    warps, readers = int(config["warps"]), int(config["readers"])
    of_read = words().astype(np.int64).sum(axis=1)
    if config["kernel"] == "streams":
        each, times = of_read[:UNROLLED].sum(axis=0), TURNS
    else:
        ahead, behind = int(config["ahead"]), int(config["behind"])
        each, times = of_read[:ahead].sum(axis=0) + of_read[MOST_READS - behind :].sum(axis=0), ROUNDS
    found = np.zeros((warps, 32), dtype=np.int64)
    found[:readers] = each * times
    return found % (1 << 32)


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """One CTA."""
    del is_counted
    warps = int(config["warps"])
    told = np.array([int(config["row_bytes"]), PITCH_BYTES, int(config["readers"]), TURNS], dtype="<u4")
    return KernelLaunch(
        kernel=config["kernel"],
        arguments=(
            by_value(told.view(np.uint8)), Input(tensor()), Input(words()),
            Output("clocks", np.zeros((ROUNDS, MOST_WARPS, 3), dtype="<u4")),
            Output("sums", np.zeros((warps, 32), dtype="<u4")), Output("copied", np.full(COPIED_BYTES, 255, dtype=np.uint8)),
        ),
        block=(32 * warps, 1, 1), smem_bytes=COPIED_BYTES + MOST_READS * READ_BYTES + 16 + 4 * 32 * MOST_WARPS,
    )  # fmt: skip


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles, if sums and bytes are right.

    Raises:
        WrongAnswer: they are not.
    """
    warps, readers = int(config["warps"]), int(config["readers"])
    if (outputs["sums"].reshape(warps, 32).astype(np.int64) != sums(config)).any():
        raise WrongAnswer("what was read does not add up")
    if (outputs["copied"].reshape(-1) != copied(config).reshape(-1)).any():
        raise WrongAnswer("shared memory holds other bytes than were to be copied")
    clocks = outputs["clocks"].reshape(ROUNDS, MOST_WARPS, 3)[:, :warps]
    if config["kernel"] == "streams":
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
LOOP_CYCLES, FLAG_CYCLES = 40.0, 30.0
"""Of a reader's turn beside its ldmatrix: sums of what was read, a branch; of a copier's group: half a look at the flag.
Source: the same."""


def access(config: Mapping[str, str], copies: int) -> tuple[AccessPattern, int]:
    """So many copies of a warp, and their rows."""
    rows = COPY_BYTES // int(config["row_bytes"])
    lines = max(rows, COPY_BYTES // 128)
    made = AccessPattern(num_requests=1, num_sectors=16, num_lines=lines, num_wavefronts=4, num_bytes=COPY_BYTES)
    return made.scaled(copies), copies * lines


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same rounds, or streams, for as long."""
    return _streams(config, gpu) if config["kernel"] == "streams" else _rounds(config, gpu)


Roles = Mapping[str, tuple[int, Program]]
"""Warps and program of each role of a CTA."""
Marks = dict[str, list[Span]]
"""What each role's program has marked, in the order in which marks end."""


def spans(kernel: str, roles: Roles, gpu: GpuSpec, *, copied_bytes: int, registers: int) -> Marks:
    """The marks of a CTA of these roles."""
    made = Launch(
        kernel=kernel, num_ctas=1, num_tiles=1,
        roles=tuple(WarpRole(name=name, num_warps=warps, program=program) for name, (warps, program) in roles.items()),
        buffers=(Buffer(name="copied", stage_bytes=copied_bytes, num_stages=1),), registers_per_thread=registers,
    )  # fmt: skip
    result = simulate(made, gpu, clock="max", l2="warm", recorded_sms="first")
    return {role.role: role.sections for role in result.timeline.roles}


def of_last_round(marks: Sequence[Span], num: int) -> list[float]:
    """Cycles from the begin of the last round until each of its ``num`` marks."""
    return [span.end_cycle - span.start_cycle for span in marks[-num:]]


def _rounds(config: Config, gpu: GpuSpec) -> dict[str, float]:
    warps, ahead, copies, behind = (int(config[name]) for name in ("warps", "ahead", "copies", "behind"))

    def program(cta: RoleContext) -> Iterator[Any]:
        del cta
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
TWIN_TURNS = 60
"""Of readers, and of copiers where nobody reads."""


def stream_paces(
    readers: int, copiers: int, read: ops.Op, copy: Callable[[int, int], ops.Op], marked: Callable[[Roles], Marks]
) -> tuple[float, float]:
    """Turns in a cycle of all readers, and of all copiers up to the turn in which the last reader ends.

    ``read`` is what a reader has in a turn, ``copy`` what a copier does, by its number and the turn's; ``marked`` runs
    roles. A program says beforehand how many turns it has: copiers get more, until they outlast the readers.
    """

    def reader(cta: RoleContext) -> Iterator[Any]:
        del cta
        yield ops.Syncthreads()
        for _ in range(TWIN_TURNS):
            yield ops.RangeStart(ops.Section.MAINLOOP)
            token: Any = yield read
            yield ops.Use(token)
            yield ops.Alu(LOOP_CYCLES / 4, is_chain=True)
            yield ops.RangeEnd()

    def copier(which: int, turns: int) -> Program:
        def program(cta: RoleContext) -> Iterator[Any]:
            del cta
            yield ops.Syncthreads()
            for turn in range(turns):
                yield ops.RangeStart(ops.Section.MAINLOOP)
                yield copy(which, turn)
                yield ops.CpAsyncCommitGroup()
                yield ops.CpAsyncWaitGroup(GROUPS_IN_FLIGHT - 1)
                yield ops.Alu(FLAG_CYCLES / 4, is_chain=True)
                yield ops.RangeEnd()

        return program

    turns, roles = TWIN_TURNS, {f"read{idx}": (1, reader) for idx in range(readers)}
    while True:
        found = marked(roles | {f"copy{idx}": (1, copier(idx, turns)) for idx in range(copiers)})
        reading, copying = [found[f"read{idx}"] for idx in range(readers)], [found[f"copy{idx}"] for idx in range(copiers)]
        over = max((marks[-1].end_cycle for marks in reading), default=float("inf"))
        if not (readers and copiers) or min(marks[-1].end_cycle for marks in copying) >= over:
            break
        turns *= 2
    until = [next((idx for idx, mark in enumerate(marks) if mark.end_cycle >= over), turns - 1) for marks in copying]
    return (
        sum(TWIN_TURNS / (marks[-1].end_cycle - marks[0].start_cycle) for marks in reading),
        sum((last + 1) / (marks[last].end_cycle - marks[0].start_cycle) for marks, last in zip(copying, until, strict=True)),
    )


def _streams(config: Config, gpu: GpuSpec) -> dict[str, float]:
    readers, copiers = int(config["readers"]), int(config["warps"]) - int(config["readers"])
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
            num_rows = float(row["copies_per_cycle"]) * access(row, 1)[1]
            found.append((1.0 - float(row["read_wavefronts_per_cycle"])) / num_rows)
    if not found:
        return []
    how = "streams beside readers that alone take the whole stage: what these lose, over the rows, median"
    return [Fitted(parameter="smem.cp_async_row_wavefronts", value=float(np.median(found)), how=how)]


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
    if not found:
        return []
    how = "rounds of four warps, rows of 64 bytes: pace of eight copies' rows, and commits, less what they take"
    return [Fitted(parameter="l1.max_queued_rows", value=float(np.median(found)), how=f"{how}, median")]


CASE = Case(
    name="copies_beside_reads",
    question="Who waits for whom where an SM's warps copy by cp.async and read by ldmatrix?",
    columns=COLUMNS,
    groups={"rounds": Group(configs=rounds, rank=2), "streams": Group(configs=streams, rank=2)},
    launch=launch,
    check=check,
    values={
        "issued_cycles": "SM cycles from the barrier until the last warp has issued its copies and their commit",
        "read_cycles": "the same until the last has what it reads behind them",
        "read_wavefronts_per_cycle": "wavefronts that all readers read in an SM cycle",
        "copies_per_cycle": "copies that all copiers issue in an SM cycle meanwhile",
    },
    num_repeats=3,
    predict=predict,
    tiers={"issued_cycles": 4, "read_cycles": 4, "read_wavefronts_per_cycle": 4, "copies_per_cycle": 4},
    fit=fit,
    includes=includes,
)
