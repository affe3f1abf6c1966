"""Streams of warps that read shared memory and warps that copy into it, simulated.

In: what a reader and a copier have in a turn. Out: turns in a cycle of both, and marks of programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpusim.machine.config import GpuSpec
from gpusim.simulate.run import simulate
from gpusim.simulate.timeline import Span
from gpusim.workload import ops
from gpusim.workload.launch import Buffer, Launch, Program, RoleContext, WarpRole

GROUPS_IN_FLIGHT = 4
"""Groups of a copier that are in flight."""
LOOP_CYCLES, FLAG_CYCLES = 40.0, 30.0
"""Cycles of a reader's turn besides its ldmatrix: sums, a branch; of a copier's group: half a look at the flag.
Source: SASS of nvcc 13.0."""
NUM_TURNS = 60
"""Turns of readers, and of copiers where nobody reads."""

Roles = Mapping[str, tuple[int, Program]]
"""Warps and program of each role of a CTA."""
Marks = dict[str, list[Span]]
"""Ranges that each role's program has marked, in the order in which they end."""


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


def stream_paces(
    readers: int, copiers: int, read: ops.Op, copy: Callable[[int, int], ops.Op], marked: Callable[[Roles], Marks]
) -> tuple[float, float]:
    """Turns in a cycle of all readers, and of all copiers up to the turn in which the last reader ends.

    ``read`` is what a reader has in a turn, ``copy`` what a copier does, by its number and the turn's; ``marked`` runs
    roles. A program says beforehand how many turns it has: copiers get more, until they outlast the readers.
    """

    def reader(_cta: RoleContext) -> Iterator[Any]:
        yield ops.Syncthreads()
        for _ in range(NUM_TURNS):
            yield ops.RangeStart(ops.Section.MAINLOOP)
            token: Any = yield read
            yield ops.Use(token)
            yield ops.Alu(LOOP_CYCLES / 4, is_chain=True)
            yield ops.RangeEnd()

    def copier(which: int, turns: int) -> Program:
        def program(_cta: RoleContext) -> Iterator[Any]:
            yield ops.Syncthreads()
            for turn in range(turns):
                yield ops.RangeStart(ops.Section.MAINLOOP)
                yield copy(which, turn)
                yield ops.CpAsyncCommitGroup()
                yield ops.CpAsyncWaitGroup(GROUPS_IN_FLIGHT - 1)
                yield ops.Alu(FLAG_CYCLES / 4, is_chain=True)
                yield ops.RangeEnd()

        return program

    turns, roles = NUM_TURNS, {f"read{idx}": (1, reader) for idx in range(readers)}
    while True:
        found = marked(roles | {f"copy{idx}": (1, copier(idx, turns)) for idx in range(copiers)})
        reading, copying = [found[f"read{idx}"] for idx in range(readers)], [found[f"copy{idx}"] for idx in range(copiers)]
        over = max((marks[-1].end_cycle for marks in reading), default=float("inf"))
        if not (readers and copiers) or min(marks[-1].end_cycle for marks in copying) >= over:
            break
        turns *= 2
    until = [next((idx for idx, mark in enumerate(marks) if mark.end_cycle >= over), turns - 1) for marks in copying]
    return (
        sum(NUM_TURNS / (marks[-1].end_cycle - marks[0].start_cycle) for marks in reading),
        sum((last + 1) / (marks[last].end_cycle - marks[0].start_cycle) for marks, last in zip(copying, until, strict=True)),
    )
