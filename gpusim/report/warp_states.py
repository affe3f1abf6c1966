"""The table of warp states: what each role spends its life on, and under which stall reasons a profile counts it."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from gpusim.report.number_format import percent
from gpusim.simulate.result import Result
from gpusim.simulate.timeline import NOT_KNOWN

ELSEWHERE = f"{NOT_KNOWN}: a profile counts it elsewhere, not measured"


ROOMY = 10_000
"""Columns of a terminal that any table has room in."""


def states_table(result: Result, console: Console) -> Table:
    """A row a state, a column a role, and Nsight Compute's stall reasons; these stand below where they have no room."""
    wide = _table(result, has_reasons=True)
    return wide if width_of(wide, console) <= console.width else _table(result, has_reasons=False)


def width_of(table: Table, console: Console) -> int:
    """Columns of the terminal that a table takes where it has room; rich measures no more than there are."""
    return console.measure(table, options=console.options.update(max_width=ROOMY)).maximum


def _table(result: Result, *, has_reasons: bool) -> Table:
    roles, reasons = list(result.states), result.stall_reasons
    rows: list[list[str]] = []
    for state in sorted(reasons, key=lambda name: -max(shares.get(name, 0.0) for shares in result.states.values())):
        shares = [result.states[role].get(state) for role in roles]
        rows.append([state, *("-" if share is None else percent(share) for share in shares)])
        rows[-1] += [reasons[state]] if has_reasons else []
    titles = ["state", *roles, *(["stall reason in a profile"] if has_reasons else [])]
    table = Table(
        title="States, share of a role's life", title_justify="left", title_style="bold", box=None, pad_edge=False,
        padding=(0, 2, 0, 0), caption_justify="left",
    )
    for idx, title in enumerate(titles):
        table.add_column(
            title, header_style="dim", justify="right" if 0 < idx <= len(roles) else "left", overflow="fold",
        )  # fmt: skip
    for row in rows:
        table.add_row(*row)
    known = "; ".join(f"{state}: {reason}" for state, reason in reasons.items() if reason != NOT_KNOWN)
    if has_reasons:
        table.caption = ELSEWHERE if NOT_KNOWN in reasons.values() else None
    elif known:
        table.caption = f"Stall reasons in a profile: {known}"
    return table
