"""Warp stall reasons under Nsight Compute's names, as shares of the cycles in which warps are active.

In: a result and its launch. Out: percent by metric, for information.

Models:

* states of roles that a profile counts under one reason (:data:`gpusim.simulate.timeline.STALL_REASONS`)

Ignores:

* states that show as several reasons, so that each share is a lower bound
* differences between the lives of a CTA's roles: each warp that stays has the same weight

Source: kernels/probes/stall_reasons, h200_sxm, 2026-11-29, for the reason of each state. No row judges the shares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusim.simulate.timeline import STALL_REASONS

if TYPE_CHECKING:
    from gpusim.simulate.result import Result
    from gpusim.workload.launch import Launch

STALLED = "smsp__warp_issue_stalled_"
NAME = STALLED + "{}_per_warp_active.pct"
AT_LEAST = "shown only: at least this, from states that show as this reason alone"


def stall_reasons(result: Result, launch: Launch) -> dict[str, float]:
    """Predicted shares of stall reasons, in percent of the cycles of active warps.

    A ``launch`` has the roles of ``result``.
    """
    warps = {role.name: role.num_warps - role.num_exiting_warps for role in launch.roles}
    total = sum(warps[role] for role in result.states) or 1
    found: dict[str, float] = {}
    for state, reason in STALL_REASONS.items():
        if "," not in reason:
            share = sum(warps[role] * shares.get(state.label, 0.0) for role, shares in result.states.items()) / total
            found[NAME.format(reason)] = found.get(NAME.format(reason), 0.0) + 100.0 * share
    return found
