"""Who waits for whom where an SM copies four bytes a lane through L1 and loads from shared memory; what does each take?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    load_case,
)
from gpusim.machine.config import GpuSpec
from gpusim.simulate.timeline import Span
from gpusim.workload import ops
from gpusim.workload.launch import Program, RoleContext
from gpusim.workload.smem.access import AccessPattern, wavefronts

beside = import_module(load_case("copies_beside_reads").launch.__module__)
"""Streams of readers and copiers, as they are simulated there."""

ROUNDS, WARM_ROUNDS = 12, 3
MOST_WARPS, MOST_COPIES, MOST_READS, MARKS = 16, 8, 12, 4
UNROLLED, GROUP = 8, 4
COPY_BYTES, LOAD_BYTES, WORD_BYTES, LANES = 128, 512, 4, 32
COPIED_BYTES, PAD = 20480, 4
"""Of shared memory for copies; elements more of a row of it that is turned."""
PITCH_BYTES = 16512
"""From row to row, in a tensor that L2 holds; so long that L1 has forgotten its beginning at its end."""
TURNS = 400
COLUMNS = ("warps", "row_bytes", "landing", "source", "ahead", "copies", "behind", "readers")

METRICS = (
    "sm__sass_l1tex_pipe_lsu_wavefronts_mem_shared.sum",
    "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum",
    "l1tex__data_pipe_lsu_wavefronts.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__t_output_wavefronts_pipe_lsu_mem_global_op_ldgsts.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ldgsts.sum",
)

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


def ways(has_copies: bool) -> list[dict[str, str]]:
    """How copies read and land; one way where there is none."""
    found = [
        {"row_bytes": str(row_bytes), "landing": landing, "source": source}
        for row_bytes, landing, source in product(ROW_BYTES, LANDINGS, SOURCES)
    ]
    return found if has_copies else found[:1]


def rounds(seed: int) -> list[Config]:
    """Every kind of round, by warps and by the way of copies, where there are any."""
    del seed  # a sweep, the same for every seed
    return [
        {
            "kernel": entry(ahead, copies, behind), "warps": str(warps), **way, "ahead": str(ahead),
            "copies": str(copies), "behind": str(behind), "readers": str(warps),
        }
        for ahead, behind, warps, copies in product(AHEAD, BEHIND, WARPS, COPIES) for way in ways(copies > 0)
    ]  # fmt: skip


def streams(seed: int) -> list[Config]:
    """Warps that load and warps that copy, alone and side by side."""
    del seed  # a sweep, the same for every seed
    return [
        {
            "kernel": "streams", "warps": str(readers + copiers), **way, "ahead": "0",
            "copies": str(GROUP), "behind": str(UNROLLED), "readers": str(readers),
        }
        for readers, copiers in STREAM_ROLES for way in ways(copiers > 0)
    ]  # fmt: skip


def counted(seed: int) -> list[Config]:
    """One kind of round by the way of copies, and one without."""
    return [
        config for config in rounds(seed)
        if config["warps"] == str(WARPS[0]) and config["ahead"] == "0" and config["behind"] == "1"
        and int(config["copies"]) in (0, MOST_COPIES)
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- launch and check


@cache
def tensor() -> NDArray[np.uint32]:
    """What is copied: as many rows as the narrowest want; uint32[rows, words]."""
    rows = MOST_WARPS * MOST_COPIES * COPY_BYTES // ROW_BYTES[0]
    made = np.random.default_rng(3).integers(1, 1 << 32, (rows, PITCH_BYTES // WORD_BYTES), dtype="<u4")
    made.setflags(write=False)
    return made


@cache
def words() -> NDArray[np.uint32]:
    """What is loaded, uint32[loads, words]."""
    made = np.random.default_rng(4).integers(1, 1 << 32, (MOST_READS, LOAD_BYTES // WORD_BYTES), dtype="<u4")
    made.setflags(write=False)
    return made


def places(config: Mapping[str, str]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of the tensor, and words of shared memory, of copies' lanes: int64[warps, copies, lanes] each."""
    lanes = int(config["row_bytes"]) // WORD_BYTES
    num_rows = LANES // lanes
    copy, lane = np.meshgrid(np.arange(MOST_WARPS * MOST_COPIES), np.arange(LANES), indexing="ij")
    row, column = copy * num_rows + lane // lanes, lane % lanes
    along = MOST_WARPS * MOST_COPIES * num_rows + PAD
    to = column * along + row if config["landing"] == "turned" else row * lanes + column
    shape = (MOST_WARPS, MOST_COPIES, LANES)
    return row.reshape(shape), column.reshape(shape), to.reshape(shape)


def advance(config: Mapping[str, str]) -> int:
    """Bytes that copies go on along their rows each time."""
    return int(config["row_bytes"]) if config["source"] == "l2" else 0


def is_copied(config: Mapping[str, str], seen: NDArray[np.uint32]) -> bool:
    """Whether shared memory holds the last copies of each that copies, and nothing else."""
    warps, readers = int(config["warps"]), int(config["readers"])
    is_stream = config["kernel"] == "streams"
    of, num_copies = slice(readers if is_stream else 0, warps), MOST_COPIES if is_stream else int(config["copies"])
    row, column, to = (each[of, :num_copies] for each in places(config))
    left = seen.copy()
    left[to.reshape(-1)] = 0
    step = advance(config) // WORD_BYTES
    if not is_stream:
        return not left.any() and bool((seen[to] == tensor()[row, column + (ROUNDS - 1) * step]).all())
    # how far a stream has come, its readers say: a copy's lanes all of one place
    begins = np.arange(0, PITCH_BYTES // WORD_BYTES, step) if step else np.zeros(1, dtype=np.int64)
    is_there = seen[to] == tensor()[row, column + begins[:, None, None, None]]
    return not left.any() and bool(is_there.all(axis=3).any(axis=0).all())


def sums(config: Config) -> NDArray[np.int64]:
    """What each thread adds up, modulo 2 to the 32; int64[warps, 32]."""
    warps, readers = int(config["warps"]), int(config["readers"])
    of_read = words().astype(np.int64).reshape(MOST_READS, LANES, 4).sum(axis=2)
    if config["kernel"] == "streams":
        each, times = of_read[:UNROLLED].sum(axis=0), TURNS
    else:
        ahead, behind = int(config["ahead"]), int(config["behind"])
        each, times = of_read[:ahead].sum(axis=0) + of_read[MOST_READS - behind :].sum(axis=0), ROUNDS
    found = np.zeros((warps, LANES), dtype=np.int64)
    found[:readers] = each * times
    return found % (1 << 32)


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """One CTA."""
    del is_counted
    warps, is_turned = int(config["warps"]), config["landing"] == "turned"
    told = np.array(
        [int(config["row_bytes"]), PITCH_BYTES, int(config["readers"]), TURNS, is_turned, advance(config)], dtype="<u4"
    )
    return KernelLaunch(
        kernel=config["kernel"],
        arguments=(
            by_value(told.view(np.uint8)), Input(tensor()), Input(words()),
            Output("clocks", np.zeros((ROUNDS, MOST_WARPS, MARKS), dtype="<u4")),
            Output("sums", np.zeros((warps, LANES), dtype="<u4")),
            Output("copied", np.full(COPIED_BYTES // WORD_BYTES, 255, dtype="<u4")),
        ),
        block=(LANES * warps, 1, 1),
        smem_bytes=COPIED_BYTES + MOST_READS * LOAD_BYTES + 16 + WORD_BYTES * LANES * MOST_WARPS,
    )  # fmt: skip


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles, if sums and bytes are right.

    Raises:
        WrongAnswer: they are not.
    """
    warps, readers = int(config["warps"]), int(config["readers"])
    if (outputs["sums"].reshape(warps, LANES).astype(np.int64) != sums(config)).any():
        raise WrongAnswer("what was loaded does not add up")
    if not is_copied(config, outputs["copied"].reshape(-1)):
        raise WrongAnswer("shared memory holds other bytes than were to be copied")
    clocks = outputs["clocks"].reshape(ROUNDS, MOST_WARPS, MARKS)[:, :warps]
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
    told = {"issued_cycles": float(np.median(since[:, 1])), "read_cycles": float(np.median(since[:, 2]))}
    return told | ({"copied_cycles": float(np.median(since[:, 3]))} if int(config["copies"]) else {})


# ---------------------------------------------------------------------------------------------- the simulator's answer

WORDS = AccessPattern(num_requests=1, num_wavefronts=4, num_bytes=LOAD_BYTES)
CLOCK_CYCLES, SUM_CYCLES = 12.0, 17.0
"""From the barrier to the first instruction, the clock; sums of the last load, their store. Source: SASS of nvcc 13.0."""
ISSUED_CYCLES, STALL_CYCLES, COMMIT_STALL_CYCLES = 2.0, 4.0, 18.0
"""From the barrier to the clock behind what is issued; of each copy or load; of the commit, and what stands before copies.
Source: the same, stalls."""


def access(config: Mapping[str, str]) -> AccessPattern:
    """A copy of a warp."""
    row, column, to = (each[:1, 0] for each in places(config))
    sources = row * PITCH_BYTES + column * WORD_BYTES
    written = wavefronts("cp_async_b32", to * WORD_BYTES, np.ones_like(to, dtype=bool), sources)
    num_lines = COPY_BYTES // int(config["row_bytes"])
    return AccessPattern(
        num_requests=1, num_sectors=4, num_lines=num_lines, num_wavefronts=int(written.sum()), num_bytes=COPY_BYTES
    )


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same rounds, or streams, for as long."""
    return _streams(config, gpu) if config["kernel"] == "streams" else _rounds(config, gpu)


def _copy(config: Config, num: int, which: int, turn: int) -> ops.CpAsync:
    """So many copies together, of warps ``which``."""
    at = turn if config["source"] == "l2" else 0
    return ops.CpAsync("T", (which, at), access(config).scaled(num), "copied", 0, allocates_in_l1=True)


def _spans(roles: Mapping[str, tuple[int, Program]], gpu: GpuSpec) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = beside.spans("narrow_copies", roles, gpu, copied_bytes=COPIED_BYTES, registers=96)
    return found


def _rounds(config: Config, gpu: GpuSpec) -> dict[str, float]:
    warps, ahead, copies, behind = (int(config[name]) for name in ("warps", "ahead", "copies", "behind"))

    def program(cta: RoleContext) -> Iterator[Any]:
        del cta
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

    issued, read, copied = beside.of_last_round(_spans({"all": (warps, program)}, gpu)["all"], 3)
    stalls = STALL_CYCLES * (ahead + copies) + (COMMIT_STALL_CYCLES if copies else 0.0)
    told = {"issued_cycles": max(issued, stalls) + ISSUED_CYCLES, "read_cycles": read + CLOCK_CYCLES + SUM_CYCLES}
    return told | ({"copied_cycles": max(copied + CLOCK_CYCLES, told["read_cycles"])} if copies else {})


def _streams(config: Config, gpu: GpuSpec) -> dict[str, float]:
    readers, copiers = int(config["readers"]), int(config["warps"]) - int(config["readers"])
    read, copied = beside.stream_paces(
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
            key = tuple(row[name] for name in COLUMNS if name != "copies")
            by[key, int(row["copies"])] = float(row["read_cycles"]), row
    few, many = FITTED_COPIES
    for (key, copies), (cycles, row) in by.items():
        if copies == few and (key, many) in by:
            each = (by[key, many][0] - cycles) / (int(row["warps"]) * (many - few))
            found.append((each - CYCLES) / access(row).num_wavefronts)
    if not found:
        return []
    how = (
        "rounds of four and eight warps, one load behind: cycles of a copy more, from four to eight, less "
        "l1.cp_async_cycles, over its wavefronts"
    )
    return [Fitted(parameter="l1.cp_async_miss_first_pass_fraction", value=float(np.median(found)), how=f"{how}, median")]


CASE = Case(
    name="narrow_copies",
    question="Who waits for whom where an SM's warps copy four bytes a lane through L1 and load from shared memory?",
    columns=COLUMNS,
    groups={"rounds": Group(configs=rounds, rank=2), "streams": Group(configs=streams, rank=2),
            "counted": Group(configs=counted, metrics=METRICS, rank=3)},
    launch=launch,
    check=check,
    values={
        "issued_cycles": "SM cycles from the barrier until the last warp has issued its copies and their commit",
        "read_cycles": "the same until the last has what it loads behind them",
        "copied_cycles": "the same until the last has what it copies",
        "read_wavefronts_per_cycle": "wavefronts that all readers load in an SM cycle",
        "copies_per_cycle": "copies that all copiers issue in an SM cycle meanwhile",
    },
    num_repeats=3,
    predict=predict,
    tiers={
        "issued_cycles": 4, "read_cycles": 4, "copied_cycles": 4, "read_wavefronts_per_cycle": 4, "copies_per_cycle": 4,
    },
    fit=fit,
    includes=includes,
)  # fmt: skip
