"""Text and JSON of a sweep over kernel configurations: how many ran, the best, and why it wins."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from math import ceil
from typing import Any, get_args

from rich.console import Console
from rich.markup import escape

from gpusim.analysis.sweep import Entry, Status, Sweep, row_of
from gpusim.evidence.validate.expected_error import Expected, expected_error, unknown
from gpusim.report.number_format import count, duration, option_words, percent, setting_words, size
from gpusim.report.tables import plain_table, print_command
from gpusim.simulate.bottleneck import COMPUTES, WAITS_FOR
from gpusim.simulate.result import Result

MOST_REASONS = 6
"""Most reasons of refusals that are printed."""

NOTABLE = 0.02
"""Smallest difference that is mentioned: of a fraction, absolute; of a quantity, relative to the larger."""


def _print_code(sweep: Sweep, console: Console) -> None:
    """Print where the compiled code of the configurations comes from, for kernels that have any."""
    texts = dict.fromkeys(
        str(entry.result.params["compiled_code"]) for entry in sweep.entries
        if entry.result is not None and "compiled_code" in entry.result.params
    )
    if texts:
        console.print(f"Code: {escape(', '.join(texts))}")


def sweep_document(sweep: Sweep, *, gpu_name: str = "") -> dict[str, Any]:
    """JSON document; ``gpu_name`` is the GPU as it was typed."""
    return {
        "kernel": sweep.kernel, "gpu": sweep.gpu, "varied": list(sweep.choices.varied),
        "num_tried": sweep.choices.num_tried, "num_legal": len(sweep.entries), "num_same": sweep.choices.num_same,
        **{f"num_{status}": num for status, num in _became(sweep).items()},
        "refusals": [{"reason": item.reason, "num": item.num} for item in sweep.choices.refusals],
        "is_interrupted": sweep.is_interrupted, "wall_s": sweep.wall_s, "num_jobs": sweep.num_jobs,
        "configurations": [row_of(entry) for entry in sweep.entries],
        "problems": [
            {
                "problem": dict(problem), "best": dict(entries[0].choice.options), "time_us": entries[0].time_us,
                "expected_error_pct": _error_pct(sweep, entries), "num_within_error": len(within_error(sweep, entries)),
                "why": why(sweep, entries, gpu_name),
            }
            for problem, entries in sweep.by_problem().items() if entries[0].result is not None
        ],
    }


def render_sweep(sweep: Sweep, console: Console, *, top: int, gpu_name: str) -> None:
    """Print how many configurations ran, then the best of each problem, and why."""
    _print_tried(sweep, console)
    problems = sweep.by_problem()
    if len(problems) > 1:
        _print_problems(sweep, console)
        _print_code(sweep, console)
        return
    entries = next(iter(problems.values()))
    _print_ranks(sweep, entries, console, top)
    if entries[0].result is None:
        console.print("Nothing was simulated.")
        return
    if clock := clock_remark(entries):
        console.print(clock, soft_wrap=True)
    for sentence in why(sweep, entries, gpu_name):
        console.print(escape(sentence), soft_wrap=True)
    _print_code(sweep, console)
    console.print("Next: ", end="")
    print_command(f"gpusim {command(sweep, entries[0], 'explain', gpu_name)}", console)


def clock_remark(entries: Sequence[Entry]) -> str:
    """Remark on the SM clock at which all configurations were simulated; empty where there is no difference to predict."""
    results = [entry.result for entry in entries if entry.result is not None]
    simulated = {result.simulated_mhz for result in results if result.simulated_mhz not in (0.0, result.sm_clock_mhz)}
    if len(entries) < 2 or len(simulated) != 1:
        return ""
    return (
        f"All were simulated at {simulated.pop():,.0f} MHz and rescaled to the clock in the table. gpusim predict simulates "
        "at that clock, and may differ by a few percent."
    )


def within_error(sweep: Sweep, entries: list[Entry]) -> list[Entry]:
    """First of ``entries``, and those that are slower by at most its expected error. If none is known: the first alone."""
    first = entries[0]
    most = first.time_us * (1.0 + (_error_pct(sweep, entries) or 0.0) / 100.0)
    return [entry for entry in entries if entry.result is not None and entry.time_us <= most]


def why(sweep: Sweep, entries: list[Entry], gpu_name: str = "") -> list[str]:
    """Lines on the best: its command line, its time, its order, and comparisons with the second and the slowest."""
    timed = [entry for entry in entries if entry.result is not None]
    best = timed[0]
    result = best.result
    assert result is not None  # timed entries have results
    lines = [
        f"Best: gpusim {command(sweep, best, 'predict', gpu_name)}",
        f"It takes {_duration(best)}, bound by {result.bound_by}: {result.reason}.",
    ]
    expected = _expected(sweep, timed)
    if expected is None:
        lines.append(f"Expected error: {_unknown(sweep, timed)}: how sure the order is, is not known.")
    else:
        others = len(within_error(sweep, timed)) - 1
        order = (
            f"{count(others, 'other is', 'others are')} within it: the order among them is no finding" if others
            else "no other is within it"
        )
        most_us = best.time_us * (1.0 + expected.p90_pct / 100.0)
        unknown_others = sum(entry.status == "excluded" and entry.bound_us <= most_us for entry in entries)
        order += f"; {count(unknown_others, 'excluded one')} may be" if unknown_others else ""
        lines.append(
            f"{_error_words(expected)}; {order}. Errors of neighbours are partly the same, so that ranks may be better "
            "than this."
        )
    if len(timed) > 1:
        lines.append(f"Against the second, {_spelled(timed[1])} ({_slower(best, timed[1])}): {differences(best, timed[1])}.")
    slowest = max(timed, key=lambda entry: entry.time_us)
    if len(timed) > 2 and slowest is not timed[1]:
        lines.append(f"Against the slowest, {_spelled(slowest)} ({_slower(best, slowest)}): {differences(best, slowest)}.")
    return lines


def differences(best: Entry, other: Entry) -> str:
    """Reasons for the longer time of ``other`` compared to ``best``, the largest first."""
    a, b = best.result, other.result
    assert a is not None
    assert b is not None
    reasons: list[tuple[float, str]] = []
    change = b.cycles / a.cycles - 1.0
    if abs(change) >= NOTABLE / 2:
        reasons.append((2.0, f"{percent(abs(change))} {'more' if change > 0 else 'fewer'} cycles"))
    change = b.sm_clock_mhz / a.sm_clock_mhz - 1.0
    if abs(change) >= NOTABLE / 2:
        reasons.append((1.9, f"its clock is {percent(abs(change))} {'higher' if change > 0 else 'lower'} "
                          f"({b.sm_clock_mhz:,.0f} against {a.sm_clock_mhz:,.0f} MHz)"))
    empty = [1.0 - result.waves / ceil(result.waves - 1e-9) if result.waves > 1e-9 else 0.0 for result in (a, b)]
    _compare(reasons, empty, "of its waves' slots stay empty at the end", f"{b.waves:.2f} waves against {a.waves:.2f}")
    for name, word in (("latency", "of its math role's life goes into waits for loads"),
                       ("barrier", "into waits at barriers"), ("store_latency", "into waits for stores"),
                       ("lsu_latency", "into waits for the load/store unit or its queue")):
        _compare(reasons, [_waits(result, name) for result in (a, b)], word)
    for part in ("l2", "l2_link", "sm_intake", "hbm", "smem", "tma", "lsu", "store"):
        if b.busy.get(part, 0.0) > a.busy.get(part, 0.0):  # a smaller value follows from being slower
            _compare(reasons, [result.busy.get(part, 0.0) for result in (a, b)], f"of the time {part} is busy")
    from_l2 = "l1tex__m_xbar2l1tex_read_bytes.sum"
    for name, word in (("dram__bytes_read.sum", "read from memory"), (from_l2, "brought from L2")):
        x, y = a.counters.get(name, 0.0), b.counters.get(name, 0.0)
        if abs(y - x) > 5 * NOTABLE * max(x, y):
            reasons.append((abs(y - x) / max(x, y) / 10.0, f"{size(round(y))} {word} against {size(round(x))}"))
    reasons.sort(key=lambda item: -item[0])
    if b.bound_by != a.bound_by:
        reasons.append((0.0, f"it is bound by {b.bound_by}"))
    return ", ".join(text for _, text in reasons[:5]) or "nothing that is counted differs"


def _compare(reasons: list[tuple[float, str]], shares: list[float], words: str, more: str = "") -> None:
    ours, theirs = shares
    if abs(theirs - ours) >= NOTABLE:
        rest = f" ({more})" if more else ""
        reasons.append((abs(theirs - ours), f"{percent(theirs)} {words}, against {percent(ours)}{rest}"))


def _waits(result: Result, name: str) -> float:
    """Fraction of its life that the role that computes most spends in the waits of ``name``."""
    if not result.states:
        return 0.0
    states = max(result.states.values(), key=lambda shares: [shares.get(state.label, 0.0) for state in COMPUTES])
    return sum(states.get(state.label, 0.0) for state in WAITS_FOR[name])


def _slower(best: Entry, other: Entry) -> str:
    return f"{_duration(other)}, {percent(other.time_us / best.time_us - 1.0)} slower"


def _duration(entry: Entry) -> str:
    return duration(entry.time_us * 1e-6)


def _spelled(entry: Entry) -> str:
    return shlex.join(option_words(entry.choice.options)) or "the only configuration"


def _value(value: Any) -> str:
    return {True: "on", False: "off", None: "-"}[value] if value is None or isinstance(value, bool) else str(value)


def _expected(sweep: Sweep, entries: Sequence[Entry]) -> Expected | None:
    """Expected error of the first of ``entries``, as `gpusim predict` prints it for that configuration."""
    result = entries[0].result if entries else None
    return expected_error(sweep.kernel, sweep.gpu, None if result is None else result.params)


def _unknown(sweep: Sweep, entries: Sequence[Entry]) -> str:
    """Reason why no error is expected of the first of ``entries``."""
    result = entries[0].result if entries else None
    return unknown(sweep.kernel, sweep.gpu, None if result is None else result.params)


def _error_words(expected: Expected) -> str:
    return f"Expected error: {expected.p90_pct:g} % of the {expected.what} ({expected.text})"


def _error_pct(sweep: Sweep, entries: Sequence[Entry]) -> float | None:
    expected = _expected(sweep, entries)
    return None if expected is None else expected.p90_pct


def command(sweep: Sweep, entry: Entry, verb: str, gpu_name: str = "") -> str:
    """Command line of a configuration after ``gpusim``: its problem, the given options, the varied and the chosen ones."""
    params = entry.choice.params
    resolved, fields = params.as_options(), params.options()
    given = {name: resolved[fields[name].rstrip("_")] for name in sweep.given if name not in sweep.choices.varied}
    options = {**given, **dict(entry.problem), **entry.choice.options}
    decided = {name: value for name, value in params.decided().items() if name not in options}
    words = [verb, sweep.kernel, *option_words({**options, **decided})]
    return shlex.join([*words, "--gpu", gpu_name or sweep.gpu, *setting_words(sweep.simulate_options)])


def _became(sweep: Sweep) -> dict[str, int]:
    """Number of configurations by outcome."""
    became = Counter(entry.status for entry in sweep.entries)
    return {status.replace(" ", "_"): became[status] for status in get_args(Status)}


def _print_tried(sweep: Sweep, console: Console) -> None:
    found = sweep.choices
    became = _became(sweep)
    begun = sum(entry.is_begun for entry in sweep.entries)
    as_they_ran = f" ({begun} as they ran)" if begun else ""
    outcomes = [f"{became['simulated']} simulated, {became['excluded']} excluded{as_they_ran}"]
    outcomes += [f"{became[status]} {status.replace('_', ' ')}" for status in ("failed", "not_reached") if became[status]]
    console.print()
    console.print(
        f"[bold]{escape(sweep.kernel)}[/] on [bold]{escape(sweep.gpu)}[/]: {count(found.num_tried, 'configuration')} tried, "
        f"{len(sweep.entries)} legal: {', '.join(outcomes)}; {duration(sweep.wall_s)} on {count(sweep.num_jobs, 'core')}.",
    )
    if sweep.is_interrupted:
        console.print("[yellow]Interrupted[/]: what follows is what was done until then.")
    if found.num_same:
        console.print(f"{found.num_same} are another one once defaults are filled in.")
    for item in found.refusals[:MOST_REASONS]:
        console.print(f"[dim]{item.num} refused, such as: {escape(item.reason)}[/]", soft_wrap=True)
    rest = sum(item.num for item in found.refusals[MOST_REASONS:])
    if rest:
        console.print(f"[dim]{rest} more refused, for other reasons (--json has all)[/]")
    for status in ("excluded", "failed"):
        notes = [entry for entry in sweep.entries if entry.status == status and entry.note]
        if notes:
            first = f"{_spelled(notes[0])}: {notes[0].note}"
            console.print(f"[dim]{len(notes)} {status}, for example {escape(first)}[/]", soft_wrap=True)
    console.print()


def _print_ranks(sweep: Sweep, entries: list[Entry], console: Console, top: int) -> None:
    varied = sweep.choices.varied
    numbers = ("time", "slower", "cycles", "MHz", "TFLOP/s", "waves", "from memory")
    titles, rows = ["", *varied, *numbers, "bound by"], []
    timed = [entry for entry in entries if entry.result is not None]
    for rank, entry in enumerate(timed[:top], start=1):
        result = entry.result
        assert result is not None  # timed entries have results
        rows.append([
            str(rank), *(escape(_value(value)) for value in entry.choice.options.values()), _duration(entry),
            percent(entry.time_us / timed[0].time_us - 1.0), f"{result.cycles:,.0f}", f"{result.sm_clock_mhz:,.0f}",
            f"{result.tflops:,.1f}", f"{result.waves:.2f}", size(round(result.counters.get("dram__bytes_read.sum", 0.0))),
            result.bound_by,
        ])
    left_out = [name for name in SPARED if _narrower(titles, rows, name, console.width)]
    table = plain_table("", *titles, left=len(varied) + 1, ends=1, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    if left_out:
        names = ", ".join(left_out)
        console.print(f"[dim]Too wide for {console.width} columns: {names} (--json has all)[/]", soft_wrap=True)
    console.print()


SPARED = ("waves", "MHz", "from memory", "cycles", "TFLOP/s")
"""Columns that a narrow screen does without, in this order."""


def _narrower(titles: list[str], rows: list[list[str]], name: str, width: int) -> bool:
    """Whether cells would be cut at ``width``; then column ``name`` is taken out of ``titles`` and ``rows``."""
    if sum(max(map(len, column)) + 2 for column in zip(titles, *rows, strict=True)) <= width:
        return False
    place = titles.index(name)
    for cells in (titles, *rows):
        del cells[place]
    return True


def _print_problems(sweep: Sweep, console: Console) -> None:
    """Print the best configuration of each problem."""
    problems = sweep.by_problem()
    differing = [name for name, _ in next(iter(problems))]
    differing = [name for name in differing if len({dict(problem)[name] for problem in problems}) > 1]
    chosen = [name for name in sweep.choices.varied if name not in differing]
    titles = (*differing, *chosen, "time", "cycles", "TFLOP/s", "GB/s", "bound by", "of", "next")
    table = plain_table("", *titles, left=len(differing) + len(chosen), no_wrap=True)
    for problem, entries in problems.items():
        timed = [entry for entry in entries if entry.result is not None]
        cells = [str(dict(problem)[name]) for name in differing]
        if not timed:
            table.add_row(*cells, *("-" for _ in chosen), "-", "-", "-", "-", entries[0].status, "0", "")
            continue
        best, result = timed[0], timed[0].result
        assert result is not None  # timed entries have results
        moved = result.counters.get("dram__bytes_read.sum", 0.0) + result.counters.get("dram__bytes_write.sum", 0.0)
        behind = percent(timed[1].time_us / best.time_us - 1.0) if len(timed) > 1 else ""
        table.add_row(
            *cells, *(escape(_value(best.choice.options[name])) for name in chosen), _duration(best),
            f"{result.cycles:,.0f}", f"{result.tflops:,.1f}", f"{moved / result.time_us * 1e-3:,.0f}", result.bound_by,
            str(len(timed)), behind,
        )
    console.print(table)
    console.print()
    expected = _expected(sweep, sweep.entries)
    how_sure = f"Expected error: {_unknown(sweep, sweep.entries)}" if expected is None else _error_words(expected)
    console.print(f"{how_sure}.")
    if chosen:
        console.print('"next": how much slower the second is, out of so many ("of") simulated.')
