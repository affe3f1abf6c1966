"""Arrivals of a launch that nobody waits for.

In: a launch and its programs. Out: an error with the role, the op, and the mbarrier.

Models:

* mbarriers that complete many phases, though no role of the CTA ever waits for them. A few are no fault of a short loop.

Ignores:

* Copies that overwrite one another, which :mod:`gpusim.program.order` finds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import HazardError
from gpusim.program.programs import NONE, Programs
from gpusim.program.records import OpKind
from gpusim.workload.launch import Launch

MOST_UNSEEN = 8
"""Phases that an mbarrier may complete without anybody who waits, a choice."""


def check_programs(launch: Launch, programs: Programs) -> None:
    """Refuse programs that are wrong at any timing.

    Raises:
        HazardError: an mbarrier gets arrivals that nobody waits for.
    """
    _check_arrivals(launch, programs)


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
