"""Warp stall reasons under Nsight Compute's names, as shares of the cycles in which warps are active.

In: a result and its launch. Out: percent by metric, for information.

Models:

* states of roles that a profile counts under one reason (:data:`gpusim.simulate.timeline.STALL_REASONS`)

Ignores:

* states that show as several reasons
* differences between the lives of a CTA's roles: each warp that stays has the same weight

Source: kernels/probes/stall_reasons, h200_sxm, 2026-11-29, for the reason of each state. Measured GEMMs judge the shares
(validation/studies/judged_shares_h200_sxm.csv).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from gpusim.simulate.timeline import STALL_REASONS

if TYPE_CHECKING:
    from gpusim.simulate.result import Result
    from gpusim.workload.launch import Launch

STALLED = "smsp__warp_issue_stalled_"
NAME = STALLED + "{}_per_warp_active.pct"
P90_POINTS: Mapping[str, float] = MappingProxyType({
    NAME.format("math_pipe_throttle"): 8.4, NAME.format("no_instruction"): 3.7, NAME.format("short_scoreboard"): 12.2,
})  # fmt: skip
"""Error of nine in ten measured GEMMs, of the reasons that ``check`` shows.

``barrier`` (29.9) and ``long_scoreboard`` (24.4) are not shown. ``no_instruction`` is predicted as nearly nothing.
"""


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
