"""What roles did over time, as pictures and traces show it."""

from __future__ import annotations

from collections.abc import Iterable

from gpusim.simulate.timeline import RoleTimeline, Skip, WarpState


def states_of(role: RoleTimeline, skips: Iterable[Skip]) -> list[tuple[WarpState, float, float]]:
    """A role's states without holes: what it was in when cycles were left out goes on through them.

    >>> role = RoleTimeline("consumer1", 0, 0, 4, [(WarpState.ISSUE, 0.0, 10.0), (WarpState.WAIT_MBARRIER, 1010.0, 1300.0)])
    >>> states_of(role, [Skip(200.0, 1000.0, "8 iterations")])[1][1:]  # it has waited since 10
    (10.0, 1300.0)
    >>> states_of(role, [Skip(5.0, 1000.0, "8 iterations")])[0][1:]  # it still issued when the left out were over
    (0.0, 1010.0)
    """
    ats = [skip.at_cycle for skip in skips]
    found: list[tuple[WarpState, float, float]] = []
    for state, start, end in role.states:
        begins = start
        if found and start > found[-1][2]:  # only cycles that were left out part a role's states
            before, since, until = found[-1]
            if any(until <= at < end for at in ats):
                begins = until
            else:
                found[-1] = (before, since, start)
        found.append((state, begins, end))
    return found
