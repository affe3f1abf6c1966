"""What do copies by cp.async take where their rows lie off lines, in shared memory or in global memory?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.array import read_only
from gpusim.evidence.cases.case import Case, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Input, KernelLaunch, Output, by_value
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.smem_streaming import of_last_round, spans, stream_paces
from gpusim.machine.config import GpuSpec
from gpusim.simulate.timeline import Span
from gpusim.workload import ops
from gpusim.workload.gmem.line_fetches import Fetches, fetches, num_passes
from gpusim.workload.launch import Program, RoleContext
from gpusim.workload.smem.access import AccessPattern, wavefronts

MOST_COPIERS, MOST_COPIES, REGIONS, UNROLLED, GROUP = 16, 8, 16, 8, 4
COPY_BYTES = READ_BYTES = 512
COPIED_BYTES, READ_ROOM_BYTES = MOST_COPIERS * MOST_COPIES * 2 * COPY_BYTES + 128, 32 * 1024
FLAG_BYTE = COPIED_BYTES + READ_ROOM_BYTES
MOST_SMEM_BYTES = measured_gpu().smem_per_cta_bytes
PITCH_BYTES = 1024
"""From row to row, in a tensor that L2 holds."""
TURNS, ROUNDS, WARM_ROUNDS = 400, 12, 3

ROLES = ((0, 8), (0, 16), (4, 8), (8, 8), (8, 16))
"""Warps that read, warps that copy."""
ROW_BYTES, PAD_BYTES, READ_PITCH = (32, 64, 128, 512), (0, 16, 32, 48, 64), (16, 64, 96)
"""Of copies; behind each of their rows in shared memory; from row to row of a matrix: none, four and two on a bank."""
OFFSETS = tuple(range(0, 128, 16))
"""Of rows that all begin at the same byte of a line of 128."""
BESIDE = ((64, 0), (64, 16), (64, 32), (128, 0), (128, 16), (128, 32))
"""Rows and what lies behind each, of copies beside readers."""


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Row(ConfigRow):
    """One config; ``kernel`` is a stream, or a burst of some copies of each warp."""

    kernel: str
    readers: int
    copiers: int
    row_bytes: int
    pad_bytes: int
    offset_bytes: int
    read_pitch: int
    from_bytes: int = 0

    @property
    def is_burst(self) -> bool:
        """Whether all warps copy, read and wait."""
        return self.kernel != "conflicting_copies"

    @property
    def num_copies(self) -> int:
        """Of a warp, to places of their own."""
        return int(self.kernel.removeprefix("bursts_")) if self.is_burst else MOST_COPIES


def streams() -> list[Row]:
    """Copies alone, by where rows lie; beside warps that read; warps that read alone."""
    padded = [
        (*role, row, pad, 0, READ_PITCH[0])
        for role, row, pad in product(ROLES[:2], ROW_BYTES, PAD_BYTES) if row + pad <= 2 * row
    ]
    behind = [
        (*role, row, -row % 128, offset, READ_PITCH[0])
        for role, row, offset in product(ROLES[:2], ROW_BYTES[1:], OFFSETS) if offset or row == 64
    ]
    beside = [(*role, *rows, 0, pitch) for role, rows, pitch in product(ROLES[2:], BESIDE, READ_PITCH)]
    alone = [(readers, 0, 64, 0, 0, pitch) for readers, pitch in product((4, 8), READ_PITCH)]
    found = [Row("conflicting_copies", *numbers) for numbers in dict.fromkeys((*padded, *behind, *beside, *alone))]
    return [config for config in found if FLAG_BYTE + 16 + 128 * num_warps(config) <= MOST_SMEM_BYTES]


def bursts() -> list[Row]:
    """Warps that copy, read and wait, by where rows lie in shared and in global memory."""
    places = [(pad, offset, 0) for pad, offset in product((0, 16, 32), (0, 16, 32))]
    places += [(0, 0, at) for at in (16, 32, 64, 80, 96)]
    return [
        Row(f"bursts_{copies}", warps, warps, row_bytes, pad, offset, READ_PITCH[0], at)
        for copies, warps, row_bytes, (pad, offset, at) in product((2, 8), (4, 8, 16), (64, 128), places)
    ]


# ---------------------------------------------------------------------------------------------- launch and check
@cache
def tensor() -> NDArray[np.uint8]:
    """What is copied: as many rows as the narrowest want, region by region."""
    num_rows = MOST_COPIERS * MOST_COPIES * COPY_BYTES // ROW_BYTES[0]
    return read_only(np.tile(np.random.default_rng(3).integers(1, 256, num_rows * PITCH_BYTES, dtype=np.uint8), REGIONS))


@cache
def words() -> NDArray[np.uint32]:
    """What is read, uint32[words]."""
    return read_only(np.random.default_rng(4).integers(1, 1 << 32, READ_ROOM_BYTES // 4, dtype="<u4"))


def copied(config: Row) -> NDArray[np.uint8]:
    """Shared memory at the end: each copier's rows, what lies behind them, and zeros; uint8[bytes]."""
    copiers, row_bytes, pad, offset = config.copiers, config.row_bytes, config.pad_bytes, config.offset_bytes
    num_rows = copiers * MOST_COPIES * COPY_BYTES // row_bytes
    rows = tensor().reshape(-1, PITCH_BYTES)[:num_rows, config.from_bytes :][:, :row_bytes]
    rows = np.pad(rows, ((0, 0), (0, pad))).reshape(copiers, MOST_COPIES, COPY_BYTES // row_bytes * (row_bytes + pad)).copy()
    rows[:, config.num_copies :] = 0
    found = np.zeros(COPIED_BYTES, dtype=np.uint8)
    found[offset : offset + num_rows * (row_bytes + pad)] = rows.reshape(-1)
    return found


def num_warps(config: Row) -> int:
    """Of the CTA."""
    return config.copiers + (0 if config.is_burst else config.readers)


def sums(config: Row) -> NDArray[np.int64]:
    """What each thread adds up, modulo 2 to the 32; int64[warps, 32]."""
    readers, lanes = config.readers, np.arange(32)
    row = np.arange(UNROLLED)[:, None, None] * READ_BYTES + (np.arange(4)[:, None] * 8 + lanes // 4) * config.read_pitch
    each = words().astype(np.int64)[row // 4 + lanes % 4].sum(axis=1)
    found = np.zeros((num_warps(config), 32), dtype=np.int64)
    found[:readers] = each[0] * ROUNDS if config.is_burst else each.sum(axis=0) * TURNS
    return found % (1 << 32)


def launch(config: Row) -> KernelLaunch:
    """One CTA."""
    warps, is_burst = num_warps(config), config.is_burst
    numbers = [
        config.row_bytes, PITCH_BYTES, config.row_bytes + config.pad_bytes, config.offset_bytes, tensor().size // REGIONS,
        config.from_bytes, config.read_pitch, 0 if is_burst else config.readers, TURNS,
    ]  # fmt: skip
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.array(numbers, dtype="<u4")), Input(tensor()), Input(words()),
            Output("clocks", np.zeros((ROUNDS, warps, 4) if is_burst else (warps, 3), dtype="<u4")),
            Output("sums", np.zeros((warps, 32), dtype="<u4")),
            Output("copied", np.full(COPIED_BYTES, 255, dtype=np.uint8)),
        ),
        block=(32 * warps, 1, 1), smem_bytes=min(FLAG_BYTE + 16 + 4 * 768, MOST_SMEM_BYTES),
    )  # fmt: skip


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Rates, if sums and bytes are right."""
    readers, copiers = config.readers, config.copiers
    wrong_if((outputs["sums"].reshape(-1, 32).astype(np.int64) != sums(config)).any(), "what was read does not add up")
    if (outputs["copied"].reshape(-1) != copied(config)).any():
        raise WrongAnswer("shared memory holds other bytes than were to be copied")
    if config.is_burst:
        rounds = outputs["clocks"].reshape(ROUNDS, -1, 4)
        since = (rounds - rounds[:, :, :1].min(axis=1, keepdims=True)).astype(np.int64)[WARM_ROUNDS:].max(axis=1)
        wrong_if((since <= 0).any() or (since > 1 << 20).any(), f"the clock says {since.tolist()} cycles")
        issued, read, landed = np.median(since[:, 1:], axis=0)
        return {"issued_cycles": float(issued), "read_cycles": float(read), "landed_cycles": float(landed)}
    clocks = outputs["clocks"].reshape(-1, 3).astype(np.int64)
    cycles, done = (clocks[:, 2] - clocks[:, 0]) % (1 << 32), clocks[:, 1]
    wrong_if((cycles <= 0).any() or (done <= 0).any(), f"the clock says {cycles.tolist()} cycles for {done.tolist()} turns")
    found = {}
    if readers:
        found["reads_per_cycle"] = float((UNROLLED * done / cycles)[:readers].sum())
    if copiers:
        found["copies_per_cycle"] = float((GROUP * done / cycles)[readers:].sum())
    return found


# ---------------------------------------------------------------------------------------------- the simulator's answer
def copies(config: Row, num: int = GROUP) -> ops.CpAsync:
    """So many copies, as their rows lie on average."""
    row_bytes = config.row_bytes
    lane, per_row = np.arange(MOST_COPIES * 32).reshape(-1, 32), row_bytes // 16
    to = config.offset_bytes + lane // per_row * (row_bytes + config.pad_bytes) + lane % per_row * 16
    given = lane // per_row * PITCH_BYTES + lane % per_row * 16 + config.from_bytes
    lines = max(COPY_BYTES // row_bytes, COPY_BYTES // 128)
    made = AccessPattern(
        num_requests=num, num_sectors=16 * num, num_lines=lines * num, num_bytes=COPY_BYTES * num,
        num_wavefronts=int(wavefronts("cp_async_b128", to).sum()) * num // MOST_COPIES,
    )  # fmt: skip
    passes = num_passes(given, to) * num / MOST_COPIES
    each = fetches(given, to)
    off = each.num_crossing != each.num_sectors or config.from_bytes > 0
    return ops.CpAsync(
        "T", (0, 0), made, "copied", 0, num_rows=num * lines, num_passes=passes,
        fetches=sum([each] * max(1, num // MOST_COPIES), Fetches()) if off and num >= MOST_COPIES else None,
    )  # fmt: skip


def reads(config: Row, num: int = UNROLLED) -> AccessPattern:
    """So many ldmatrix."""
    each = int(wavefronts("ldmatrix_x4", np.arange(32) * config.read_pitch))
    return AccessPattern(num_requests=1, num_wavefronts=each, num_bytes=READ_BYTES).scaled(num)


CLOCK_CYCLES, SUM_CYCLES, STALL_CYCLES = 12.0, 17.0, 4.0
"""From the barrier to the first instruction, the clock; sums of what is read, a store; of each copy. Source: the same."""


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """The same streams."""
    if config.is_burst:
        return _burst(config, gpu)
    readers, copiers, of_group = config.readers, config.copiers, copies(config)
    read, copied = stream_paces(
        readers, copiers, ops.Ldmatrix(reads(config)), lambda _which, _turn: of_group, lambda roles: _spans(roles, gpu)
    )
    found = {"reads_per_cycle": UNROLLED * read} if readers else {}
    return found | ({"copies_per_cycle": GROUP * copied} if copiers else {})


def _spans(roles: Mapping[str, tuple[int, Program]], gpu: GpuSpec) -> dict[str, list[Span]]:
    return spans("conflicting_copies", roles, gpu, copied_bytes=COPIED_BYTES, registers=80)


def _burst(config: Row, gpu: GpuSpec) -> dict[str, float]:
    warps, copied = config.copiers, copies(config, config.copiers * config.num_copies)

    def program(_cta: RoleContext) -> Iterator[Any]:
        for _ in range(WARM_ROUNDS + 1):
            yield ops.Syncthreads()
            yield from [ops.RangeStart(ops.Section.MAINLOOP)] * 3
            yield copied
            yield ops.CpAsyncCommitGroup()
            yield ops.RangeEnd()
            token: Any = yield ops.Ldmatrix(reads(config, warps))
            yield ops.Use(token)
            yield ops.RangeEnd()
            yield ops.CpAsyncWaitGroup(0)
            yield ops.RangeEnd()

    issued, read, landed = of_last_round(_spans({"all": (warps, program)}, gpu)["all"], 3)
    of_copies = STALL_CYCLES * config.num_copies
    read += CLOCK_CYCLES + SUM_CYCLES
    return {"issued_cycles": max(issued, of_copies), "read_cycles": read, "landed_cycles": max(read, landed + CLOCK_CYCLES)}


CASE = Case(
    name="conflicting_copies",
    question="What do copies by cp.async take where their rows lie off lines?",
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict,
    groups={"streams": Group(configs=streams, rank=2), "bursts": Group(configs=bursts, rank=2)},
    values={
        "reads_per_cycle": "ldmatrix x4 that all readers read in an SM cycle",
        "copies_per_cycle": "copies of 512 bytes that all copiers issue in an SM cycle meanwhile",
        "issued_cycles": "of a burst: SM cycles from the barrier until the last warp has issued its copies and their commit",
        "read_cycles": "the same until the last has what it reads behind them",
        "landed_cycles": "the same until the last sees its copies in shared memory",
    },
    tiers=dict.fromkeys(("reads_per_cycle", "copies_per_cycle", "issued_cycles", "read_cycles", "landed_cycles"), 4),
)  # fmt: skip
