"""Tables of the accuracy of validation kernels: errors by family, ranking, exact counts, blind predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rich.console import Console

from gpusim.evidence.cases.validation_kernel import CTAS_OF_SM, CYCLES, DRAM, HIT_RATE, REGISTERS
from gpusim.evidence.validate.accuracy_summary import (
    HEADLINES,
    LEAST_TAU,
    RANK_LIMIT,
    Exact,
    Family,
    Ranks,
    exact_counts,
    families,
    own_ranks,
    ranks,
)
from gpusim.evidence.validate.blind_predictions import who_of
from gpusim.evidence.validate.judge import Judgement, Summary, totals
from gpusim.evidence.validate.ranking import CLEARLY_APART
from gpusim.report.tables import plain_table

SHORT: Mapping[str, str] = MappingProxyType(
    {
        DRAM[0]: "memory read", DRAM[1]: "written", "lts__t_sectors_srcunit_tex_op_read.sum": "L2 read",
        "lts__t_sectors_srcunit_tex_op_write.sum": "written", HIT_RATE: "hits", REGISTERS: "registers",
        CTAS_OF_SM: "CTAs an SM",
    }
)  # fmt: skip
"""Metrics whose mean error is shown, with the titles of their columns."""

TITLES: Mapping[str, str] = MappingProxyType(
    {
        CYCLES: "cycles of one launch, at the clock that it was counted at",
        "single_us": "time of one launch, at the clock that is predicted",
        "sustained_us": "time in half a second back to back",
    }
)


def render_accuracy(found: Sequence[Judgement], console: Console, first: Sequence[Judgement] = ()) -> None:
    """Print the accuracy of validation kernels, if there are any. ``first``: judgements of blind predictions."""
    of_all = families(found)
    if not of_all:
        return
    in_all = {item.name: item for item in totals(found)}
    for name in HEADLINES:
        if name in in_all:
            _print_errors(TITLES[name], [(item, item.of[name]) for item in of_all if name in item.of], in_all[name], console)
    _print_means(of_all, in_all, console)
    rankings = [item for name in HEADLINES[:2] for item in ranks(found, name)]
    if rankings:
        _print_ranks(rankings, own_ranks(found), console)
    counts = exact_counts(found)
    if counts:
        _print_exact(counts, console)
    if first:
        _print_first(first, found, console)


def _print_errors(title: str, rows: Sequence[tuple[Family, Summary]], in_all: Summary, console: Console) -> None:
    numbers = ("rows", "mean %", "P90 %", "worst %", "roofline %")
    table = plain_table(f"Whole kernels: {title}", "family", *numbers, "", ends=1)
    for family, item in rows:
        table.add_row(_name(family), *_errors(item), "" if family.is_cut else _verdict(item))
    table.add_row(f"{in_all.num_families} families, mean of their means", *_errors(in_all), "")
    console.print(table)
    limits = dict.fromkeys(item.limit.text for family, item in rows if not family.is_cut)
    console.print(f"wanted: {', or '.join(limits)}\n")


def _print_means(of_all: Sequence[Family], in_all: Mapping[str, Summary], console: Console) -> None:
    names = [name for name in SHORT if name in in_all]
    if not names:
        return
    table = plain_table("Whole kernels: mean error, % (hits: points)", "family", *(SHORT[name] for name in names))
    for family in of_all:
        if not set(names).isdisjoint(family.of):
            table.add_row(_name(family), *(_mean(family.of.get(name)) for name in names))
    table.add_row("mean of families' means", *(_mean(in_all[name]) for name in names))
    rooflines = (in_all[name].roofline_pct for name in names)
    table.add_row("a roofline: all that is touched, once", *("" if off is None else f"{off:.2f}" for off in rooflines))
    console.print(table)
    console.print("registers and CTAs an SM: as the model's rule has them, of products alone\n")


def _print_ranks(rankings: Sequence[Ranks], itself: Ranks | None, console: Console) -> None:
    numbers = ("problems", "rows", "tau", "clear pairs", "clear tau", "regret %", "worst %", "blind %")
    table = plain_table("Orders of configurations of one problem (m, n, k, type)", "of", "by", *numbers, "", left=2, ends=1)
    for item in (*rankings, *([] if itself is None else [itself])):
        table.add_row(
            item.scope, item.by, f"{item.num_problems}", f"{item.num_rows}", f"{item.tau:.3f}", f"{item.num_clear_pairs}",
            f"{item.clear_tau:.3f}", f"{item.regret_pct:.2f}", f"{item.worst_regret_pct:.2f}",
            f"{item.blind_regret_pct:.2f}", "measured itself" if item is itself else "pass" if item.passes else "FAIL",
        )  # fmt: skip
    console.print(table)
    console.print(
        f"tau: Kendall's, over all pairs, and over pairs measured {CLEARLY_APART:.0%} apart or more; regret: what the best "
        f"predicted one takes more than the best (blind: any one, on average); wanted: clear tau {LEAST_TAU:g}, regret "
        f"{RANK_LIMIT.text}\n",
    )


def _print_exact(counts: Sequence[Exact], console: Console) -> None:
    table = plain_table("Counts that must be exact", "family", "what", "rows", "exact", "worst %", left=2)
    for item in counts:
        table.add_row(item.family, item.name, f"{item.num_rows}", f"{item.num_exact}", f"{item.worst_pct:.4g}")
    console.print(table)
    rows, exact = sum(item.num_rows for item in counts), sum(item.num_exact for item in counts)
    console.print(f"{exact:,} of {rows:,} numbers are exact\n")


def _print_first(first: Sequence[Judgement], found: Sequence[Judgement], console: Console) -> None:
    """Print the families' blind predictions, and today's predictions of the same rows."""
    today = {who_of(item): item for item in found}
    both = [item for item in first if who_of(item) in today]
    then, now = families(both), {item.name: item for item in families(today[who_of(item)] for item in both)}
    for name in (*HEADLINES[:2], *(each for each in SHORT if each not in (REGISTERS, CTAS_OF_SM))):
        rows = [(item, item.of[name], now[item.name].of[name]) for item in then if name in item.of]
        if not rows:
            continue
        title = f"Said first, and today: {name}"
        numbers = ("rows", "first: mean %", "P90 %", "worst %", "today: mean %", "P90 %", "worst %")
        table = plain_table(title, "family", *numbers)
        for family, old, new in rows:
            table.add_row(_name(family), *_errors(old)[:4], *_errors(new)[1:4])
        console.print(table)
        console.print("")
    console.print(
        "first: before the model had met a row, from validation/first; of products at the clock that was predicted, where "
        "today's cycles are at the row's\n",
    )


def _name(family: Family) -> str:
    return family.name + (" (held out)" if family.is_held_out else "") + (" (across families)" if family.is_cut else "")


def _errors(item: Summary) -> list[str]:
    roofline = "" if item.roofline_pct is None else f"{item.roofline_pct:.2f}"
    return [f"{item.num_rows:,}", f"{item.mean_pct:.2f}", f"{item.p90_pct:.2f}", f"{item.worst_pct:.2f}", roofline]


def _mean(item: Summary | None) -> str:
    return "" if item is None else f"{item.mean_pct:.2f}"


def _verdict(item: Summary) -> str:
    return "pass" if item.passes else "FAIL"
