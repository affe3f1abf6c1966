"""Table of warp states: shares of each role's life, and Nsight Compute's stall reasons for each state."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from gpusim.report.number_format import percent
from gpusim.report.tables import plain_table
from gpusim.simulate.result import Result
from gpusim.simulate.timeline import NOT_KNOWN

ELSEWHERE = f"{NOT_KNOWN}: a profile counts it elsewhere, not measured"


ROOMY = 10_000
"""Console columns in which any table fits."""


def states_table(result: Result, console: Console) -> Table:
    """Table with a row per state, a column per role, and Nsight Compute's stall reasons; a narrow one has these below."""
    wide = _table(result, has_reasons=True)
    return wide if width_of(wide, console) <= console.width else _table(result, has_reasons=False)


def width_of(table: Table, console: Console) -> int:
    """Console columns of an unwrapped table; rich otherwise measures no more than the console has."""
    return console.measure(table, options=console.options.update(max_width=ROOMY)).maximum


def _table(result: Result, *, has_reasons: bool) -> Table:
    roles, reasons = list(result.states), result.stall_reasons
    rows: list[list[str]] = []
    for state in sorted(reasons, key=lambda name: -max(shares.get(name, 0.0) for shares in result.states.values())):
        shares = [result.states[role].get(state) for role in roles]
        rows.append([state, *("-" if share is None else percent(share) for share in shares)])
        rows[-1] += [reasons[state]] if has_reasons else []
    titles = ["state", *roles, *(["stall reason in a profile"] if has_reasons else [])]
    table = plain_table("States, share of a role's life", *titles, ends=int(has_reasons))
    table.caption_justify = "left"
    for row in rows:
        table.add_row(*row)
    known = "; ".join(f"{state}: {reason}" for state, reason in reasons.items() if reason != NOT_KNOWN)
    if has_reasons:
        table.caption = ELSEWHERE if NOT_KNOWN in reasons.values() else None
    elif known:
        table.caption = f"Stall reasons in a profile: {known}"
    return table
