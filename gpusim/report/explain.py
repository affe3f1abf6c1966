"""Text of an explanation: what bounds the kernel, changes with their commands, and what idealizations would save."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from gpusim.analysis.changes import NOTHING, Change, short_refusal
from gpusim.report.number_format import count, duration, flag, option_words, percent
from gpusim.report.predictions import verdict_of
from gpusim.report.tables import plain_table, print_command

if TYPE_CHECKING:
    from gpusim.analysis.explain import Explanation

MOST_LISTED, MOST_REFUSED = 6, 4
"""Changes that are listed with their commands; changes that cannot run and are named."""


def render_explanation(explanation: Explanation, console: Console, *, next_command: str = "") -> None:
    """Print changes and idealizations, of both the largest saving first. ``next_command``: if no change saves anything."""
    result = explanation.result
    console.print()
    console.print(
        f"[bold]{escape(result.kernel)}[/] on [bold]{escape(result.gpu)}[/]: {result.cycles:,.0f} cycles, "
        f"{duration(result.time_us * 1e-6)} at {result.sm_clock_mhz:,.0f} MHz",
    )
    if "compiled_code" in result.params:
        console.print(f"Code: {escape(str(result.params['compiled_code']))}")
    console.print(f"Bound by {escape(result.bound_by)}: {escape(result.reason)}.")
    console.print()
    _print_changes(explanation, console)
    _print_idealizations(explanation, console)
    for remark in explanation.remarks:
        console.print(escape(remark))
    num_simulated = sum(item.is_simulated for item in explanation.counterfactuals)
    tried = [item for item in explanation.changes if not item.refusal]
    num_complete = sum(item.is_simulated for item in tried)
    console.print(
        f"{count(num_simulated, 'counterfactual')} simulated; {count(len(tried), 'change')} tried, {num_complete} of them "
        f"completely; {duration(explanation.wall_s)}."
    )
    console.print()
    console.print(f"[bold]Verdict[/]: {escape(verdict_of_explanation(explanation))}")
    best = explanation.best_change
    command = next_command if best is None else best.command
    if command:
        console.print("Next: ", end="")
        print_command(command, console)


def _print_changes(explanation: Explanation, console: Console) -> None:
    tried = [item for item in explanation.changes if not item.refusal]
    if not explanation.changes:
        return
    saving = [item for item in tried if not item.saves_nothing]
    listed = [item for item in saving if item.is_simulated][:MOST_LISTED]
    for item in listed:
        console.print(
            f"[bold]-{percent(item.share)}[/] time with [bold]{escape(change_words(item))}[/]: "
            f"{duration((item.time_us or 0.0) * 1e-6)}{escape(f' ({item.note})' if item.note else '')}",
        )
        console.print("  ", end="")
        print_command(item.command, console)
    if rest := [item for item in saving if item not in listed]:
        more = "; ".join(
            f"{change_words(item)} ({'' if item.is_simulated else 'about '}{percent(item.share)})" for item in rest
        )
        console.print(f"Further: {escape(more)}.")
    others = [item for item in tried if item.saves_nothing]
    if others:
        options = ", ".join(dict.fromkeys(flag(next(iter(item.options))) for item in others))
        save = "saves" if len(others) == 1 else "save"
        console.print(
            f"{len(others)} of {count(len(tried), 'change')} that were tried {save} nothing: values of {escape(options)}."
        )
    refused = [item for item in explanation.changes if item.refusal]
    for item in refused[:MOST_REFUSED]:
        console.print(f"[dim]Cannot run: {escape(change_words(item))}: {escape(short_refusal(item.refusal))}.[/]")
    if len(refused) > MOST_REFUSED:
        console.print(f"[dim]{len(refused) - MOST_REFUSED} more cannot run (--json has the reasons).[/]")
    console.print()


def _print_idealizations(explanation: Explanation, console: Console) -> None:
    table = plain_table("", "if there were", "cycles", "saves", "share", "", ends=1)
    for item in explanation.counterfactuals:
        note = item.note if item.is_simulated else f"computed: {item.note}"
        if item.saves_nothing:
            table.add_row(item.title, f"{item.cycles:,.0f}", "nothing", "", escape(note), style="dim")
        else:
            table.add_row(item.title, f"{item.cycles:,.0f}", f"{item.saved_cycles:,.0f}", percent(item.share), escape(note))
    console.print(table)
    console.print()
    console.print(f"Each alone; savings do not add up, and below {percent(NOTHING)} count as nothing.")
    if explanation.together_cycles is not None:
        console.print(f"With all parts free at once {explanation.together_cycles:,.0f} cycles would remain.")


def change_words(change: Change) -> str:
    """Options of a change, as typed."""
    return shlex.join(option_words(change.options))


def verdict_of_explanation(explanation: Explanation) -> str:
    """Verdict of the explanation in one sentence, or two."""
    change, best, result = explanation.best_change, explanation.best, explanation.result
    ideal = "" if best is None else f"{best.title!r} would save most, {percent(best.share)} of the cycles"
    if change is not None:
        found = f"{change_words(change)} saves most, {percent(change.share)} of {duration(result.time_us * 1e-6)}."
        return f"{found} Of idealizations {ideal}." if ideal else found
    tried = "no change that was tried saves anything. " if explanation.changes else ""
    if best is None:
        return f"{tried}{'No' if tried else 'no'} part of the GPU made free would save anything: {verdict_of(result)}"
    return f"{tried}{'Of idealizations ' if tried else ''}{ideal}."
