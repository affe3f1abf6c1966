"""Programs of a launch that no timing makes right: copies that overwrite one another, arrivals that nobody waits for.

In: a launch and its programs. Out: an error with the role, the op, and the stage or mbarrier.

Models:

* TMA loads of one role into one stage, without a wait between them: equal ones, or more bytes than the stage holds.
* mbarriers that complete many phases, though no role of the CTA ever waits for them. A few are no fault of a short loop.

Ignores:

* Copies of different roles, and by cp.async. The engine finds what its timing shows of these.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import HazardError
from gpusim.program.programs import NONE, Programs
from gpusim.program.records import OpKind
from gpusim.workload.launch import Launch

WAITS = (
    OpKind.USE, OpKind.CP_ASYNC_WAIT_GROUP, OpKind.BULK_WAIT_GROUP, OpKind.MBARRIER_WAIT, OpKind.BAR_SYNC,
    OpKind.SYNCTHREADS, OpKind.CLUSTER_WAIT, OpKind.WGMMA_WAIT_GROUP, OpKind.TURN,
)  # fmt: skip
"""Ops behind which earlier copies may be over."""

MOST_UNSEEN = 8
"""Phases that an mbarrier may complete without anybody who waits, a choice."""


def check_programs(launch: Launch, programs: Programs) -> None:
    """Refuse programs that are wrong at any timing.

    Raises:
        HazardError: two copies are under way into one stage, or an mbarrier gets arrivals that nobody waits for.
    """
    _check_loads(launch, programs)
    _check_arrivals(launch, programs)


def _check_loads(launch: Launch, programs: Programs) -> None:
    ops = programs.ops
    places = np.flatnonzero(ops["kind"] == OpKind.TMA_LOAD)
    if not len(places):
        return
    of_program = np.repeat(np.arange(len(programs.programs)), programs.programs["num_ops"])
    between = (np.cumsum(np.isin(ops["kind"], WAITS)) + of_program)[places]  # grows with each wait and each program
    held = {item.name: item.stage_bytes for item in launch.buffers}
    sizes = np.array([row.op.num_bytes for row in programs.costs.tma_loads.items], dtype=np.int64)[ops["cost"][places]]
    stages = ops["stage"][places]
    order = np.lexsort((places, stages, between))
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = (stages[order][1:] != stages[order][:-1]) | (between[order][1:] != between[order][:-1])
    if is_first.all():
        return
    rows = ops[places].tobytes()
    size, seen, total = ops.itemsize, set[bytes](), 0
    for at, begins in zip(order.tolist(), is_first.tolist(), strict=True):
        if begins:
            seen, total = set(), 0
        row, total = rows[at * size : (at + 1) * size], total + int(sizes[at])
        buffer, stage = programs.stages[stages[at]]
        if row in seen or total > held[buffer]:
            what = "the same tile" if row in seen else f"{total:,} bytes into {held[buffer]:,}"
            raise HazardError(
                f"{_who(launch, programs, int(places[at]))} loads into {buffer}[{stage}] while its load before is under "
                f"way, {what}; wait for the first one"
            )
        seen.add(row)


def _check_arrivals(launch: Launch, programs: Programs) -> None:
    ops, begins = programs.ops, programs.programs["begin"]
    wanted = np.array([ring.num_arrivals for ring in launch.mbarriers for _ in range(ring.num_stages)], dtype=np.int64)
    is_own = (ops["kind"] == OpKind.MBARRIER_ARRIVE) & (ops["cost"] == NONE)
    counts = np.where(is_own, ops["extra"], 0) + (ops["kind"] == OpKind.MBARRIER_ARRIVE_EXPECT_TX)
    is_wait = ops["kind"] == OpKind.MBARRIER_WAIT
    if not counts.any():
        return
    num_programs = len(begins)
    of_program = np.repeat(np.arange(num_programs), programs.programs["num_ops"])
    cells = of_program * len(wanted) + ops["barrier"]

    def by_program(chosen: NDArray[np.bool_]) -> NDArray[Any]:
        found = np.bincount(cells[chosen], weights=counts[chosen] + is_wait[chosen], minlength=num_programs * len(wanted))
        return found.reshape(num_programs, len(wanted))

    arrivals, waits = by_program(counts > 0), by_program(is_wait)
    most = np.zeros(len(wanted))  # the engine refuses more than all of a phase at once
    np.maximum.at(most, ops["barrier"][counts > 0], counts[counts > 0])
    for roles in programs.class_programs:
        of_cta = arrivals[roles].sum(axis=0)
        wrong = np.flatnonzero((of_cta > MOST_UNSEEN * wanted) & (most <= wanted) & (waits[roles].sum(axis=0) == 0))
        if len(wrong):
            ring, stage = programs.barriers[wrong[0]]
            program = roles[int(np.argmax(arrivals[roles, wrong[0]]))]
            place = int(np.argmax((cells == program * len(wanted) + wrong[0]) & (counts > 0)))
            raise HazardError(
                f"{_who(launch, programs, place)} arrives at mbarrier {ring}[{stage}], which gets {of_cta[wrong[0]]:,.0f} "
                f"arrivals, {wanted[wrong[0]]:,} a phase, and no role waits for it"
            )


def _who(launch: Launch, programs: Programs, place: int) -> str:
    """Role, first CTA and number of an op, by its index among all ops."""
    program = int(np.searchsorted(programs.programs["begin"], place, side="right")) - 1
    begin = int(programs.programs["begin"][program])
    num = place - begin + 1 - int((programs.ops["kind"][begin:place] == OpKind.TURN).sum())
    of_class, role = (int(found[0]) for found in np.nonzero(programs.class_programs == program))
    cta = int(np.argmax(programs.cta_class == of_class))
    return f"{launch.kernel}: role {launch.roles[role].name!r} of CTA {cta}, op {num},"
