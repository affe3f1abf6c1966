"""Tables of a full prediction, as printed by ``gpusim predict --all``."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpusim.evidence.validate.expected_error import Expected, unknown
from gpusim.machine.sm.occupancy import Occupancy
from gpusim.report.number_format import (
    CLOCK_MODES,
    USUAL_SETTINGS,
    count,
    duration,
    energy,
    flag,
    number,
    option_words,
    percent,
    shortened,
    size,
)
from gpusim.report.tables import facts_table, plain_table, print_command
from gpusim.report.utilization import utilization
from gpusim.simulate.result import OCCUPANCY, Result
from gpusim.simulate.timeline import NOT_KNOWN

MAX_GUESSES = 6
"""Most guesses that a prediction lists; ``gpusim gpus NAME`` lists all."""

MAIN_COUNTERS = (
    "sm__cycles_elapsed.max",
    "sm__cycles_active.avg",
    "gpu__time_duration.sum",

    "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_sectors_srcunit_tex_op_read.sum",
    "lts__t_sectors_srcunit_tex_op_write.sum",
    "lts__t_sector_hit_rate.pct",
    "l1tex__m_xbar2l1tex_read_bytes.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "launch__waves_per_multiprocessor",
)
"""Counters at the beginning of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the kernel as the command line spells them."""

    values: Mapping[str, Any]
    defaults: Collection[str]
    """Names of options that were not given."""
    none_texts: Mapping[str, str] = field(default_factory=dict)
    """Texts for options that are None."""


def render_prediction(
    result: Result, console: Console, options: Options, *, steps: Sequence[tuple[str, str]] = (),
    expected: Expected | None = None,
) -> None:
    """Print all of ``result``: the verdict first, the next commands last.

    ``expected``: expected error of the cycles, None where no measured row is like the launch. ``steps``: commands, each with
    a sentence or an empty text.
    """
    unset = {flag(name) for name in options.defaults}
    console.print(f"[bold]Verdict[/]: {escape(verdict_of(result))}")
    console.print()
    _print_headline(result, console, expected)
    _print_shares(result, console)
    _print_counters(result, console, {} if expected is None else expected.counters)
    for sentence in utilization(result.counters, result.bound_by) if result.simulated_mhz else ():  # shares of one kernel
        console.print(f"[bold]Utilization[/]: {escape(sentence)}")
    console.print()
    _print_options(options, unset, result.settings, console)
    _print_sources(result, console)
    for remark in result.remarks:
        console.print(f"[yellow]Remark[/]: {escape(remark)}")
    if result.remarks:
        console.print()
    for why, command in steps or (("", next_explain(result, options.values, unset)),):
        console.print(f"{why} " if why else "Next: ", end="")
        print_command(command, console)


def verdict_of(result: Result) -> str:
    """Prediction in one sentence."""
    is_of_memory = result.pct_of_peak_at_clock < result.pct_of_peak_memory
    of_peak = f" ({result.pct_of_peak_memory:.1f} % of its peak)" if result.peak_memory_gb_per_s else ""
    speed = (
        f" at {result.memory_gb_per_s:,.0f} GB/s of memory{of_peak}"
        if is_of_memory or not result.peak_tflops_at_clock
        else f" at {result.tflops:,.1f} TFLOP/s ({result.pct_of_peak_at_clock:.1f} % of peak at this clock)"
    )
    return (
        f"{result.kernel} on {result.gpu} takes {duration(result.time_us * 1e-6)}{speed}, bound by {result.bound_by}: "
        f"{result.reason}."
    )


def of_peak_memory(peak_gb_per_s: float, gpu_name: str) -> str:
    """Peak bandwidth with a pointer to its source: a data sheet has two or three digits of it."""
    return f"{peak_gb_per_s:,.0f} (source: gpusim gpus {shlex.quote(gpu_name)})"


LIMIT_NAMES: Mapping[str, str] = {"smem": "shared memory", "ctas": "CTA slots", "grid": "the grid"}
"""Limits of occupancy whose names in JSON are short."""


def occupancy_words(held: Mapping[str, Any]) -> str:
    """CTAs and warps of an SM, and every resource that admits no further CTA; ``held`` is of a result's document."""
    limits = [name for name, num in held["limits"].items() if num == held["ctas_per_sm"]] or [held["limited_by"]]
    return (
        f"{count(held['ctas_per_sm'], 'CTA')}/SM, {held['warps_per_sm']} of {held['max_warps_per_sm']} warps, limited by "
        f"{', '.join(LIMIT_NAMES.get(name, name) for name in limits)}"
    )


def full_occupancy_words(held: Occupancy) -> str:
    """Occupancy in words, with the number of CTAs that each resource alone admits."""
    words = occupancy_words({name: getattr(held, name) for name in OCCUPANCY})
    limits = sorted(held.limits.items(), key=lambda item: item[1])
    each = ", ".join(f"{LIMIT_NAMES.get(name, name)} {num}" for name, num in limits)
    return f"{words} ({held.pct:.1f} % of the warps; CTAs/SM that each alone admits: {each})"


def next_explain(result: Result, options: Mapping[str, Any], unset: Collection[str]) -> str:
    """Command ``gpusim explain`` with the options that were given."""
    given = {name: value for name, value in options.items() if flag(name) not in unset}
    return shlex.join(["gpusim", "explain", result.kernel, *option_words(given), "--gpu", result.gpu])


def error_words(expected: Expected | None, kernel: str, gpu: str, params: Mapping[str, Any]) -> str:
    """Expected error of a prediction in words, or why none is known."""
    if expected is None:
        return unknown(kernel, gpu, params)
    return f"within {expected.p90_pct:g} % of the {expected.what}: {expected.text}"


def headline_rows(result: Result, expected: Expected | None) -> list[tuple[str, str]]:
    """First rows of a prediction: (name, text)."""
    seconds = result.time_us * 1e-6
    rows = [
        ("Time", duration(seconds)),
        ("Energy", f"{energy(result.energy_mj * 1e-3)} of the board, at {result.power_w:,.0f} W"),
        ("Cycles", f"{result.cycles:,.0f} SM cycles"),
        ("Expected error", error_words(expected, result.kernel, result.gpu, result.params)),
        *((("Code", str(result.params["compiled_code"])),) if "compiled_code" in result.params else ()),
        ("SM clock", f"{result.sm_clock_mhz:,.0f} MHz, {CLOCK_MODES.get(result.clock_mode, result.clock_mode)}"),
    ]
    if result.peak_tflops_at_clock:
        of_sheet = (
            f", {result.pct_of_peak_datasheet:.1f} % of the data sheet's {result.peak_tflops_datasheet:,.1f}"
            if result.peak_tflops_datasheet
            else ""
        )
        rows += [
            ("Throughput", f"{result.tflops:,.1f} TFLOP/s"),
            (
                "Of peak",
                f"{result.pct_of_peak_at_clock:.1f} % of {result.peak_tflops_at_clock:,.1f} TFLOP/s at this clock"
                f"{of_sheet}",
            ),
        ]
    memory = f"{result.memory_gb_per_s:,.0f} GB/s, read and written"
    if result.peak_memory_gb_per_s:
        peak = of_peak_memory(result.peak_memory_gb_per_s, result.gpu)
        memory += f", {result.pct_of_peak_memory:.1f} % of {peak}"
    rows.append(("Memory", memory))
    rows += [
        ("Bound by", f"{result.bound_by}: {result.reason}"), ("Occupancy", full_occupancy_words(result.occupancy)),
        ("Registers", f"{result.registers_per_thread}/thread (estimated; {result.registers_source or 'no rule stated'})"),
        ("Shared memory", f"{size(result.smem_bytes)} a CTA"),
        (
            "Grid",
            f"{count(result.num_ctas, 'CTA')} for {count(result.num_tiles, 'tile')}, {number(result.ctas_at_once)} at "
            f"once: {result.waves:.2f} waves",
        ),
        ("Power", _power(result)), ("Simulated", _simulated(result)),
    ]
    return rows


def _print_headline(result: Result, console: Console, expected: Expected | None) -> None:
    console.print(f"[bold]{escape(result.kernel)}[/] on [bold]{escape(result.gpu)}[/]")
    console.print(facts_table(headline_rows(result, expected)))
    console.print()


def _power(result: Result) -> str:
    """Board power; with a note if a short launch may exceed the limit."""
    text = f"{result.power_w:,.0f} W"
    if result.clock_mode == "single" and result.power_w > result.power_limit_w * 1.005:
        text += (
            f" while it runs: one launch is over before the board comes down to its limit of {result.power_limit_w:,.0f} W, "
            "which holds for launches back to back (--clock sustained)"
        )
    return text


def _simulated(result: Result) -> str:
    return f"{count(result.num_events, 'event')} in {duration(result.wall_s)}, every CTA and iteration"


def _print_shares(result: Result, console: Console) -> None:
    busy = plain_table("Busy, share of cycles", "part", "share")
    for part, share in sorted(result.busy.items(), key=lambda item: -item[1]):
        if share > 0.0:
            busy.add_row(part, percent(share))
    states = states_table(result, console)
    both = Table.grid(padding=(0, 4))
    both.add_row(busy, states)
    if width_of(both, console) <= console.width:
        console.print(both)
    else:
        console.print(busy)
        console.print()
        console.print(states)
    console.print()


ELSEWHERE = f"{NOT_KNOWN}: a profile counts it elsewhere, not measured"

ROOMY = 10_000
"""Console columns in which any table fits."""


def states_table(result: Result, console: Console) -> Table:
    """Table with a row per state, a column per role, and Nsight Compute's stall reasons; a narrow one has these below."""
    wide = _states_table(result, has_reasons=True)
    return wide if width_of(wide, console) <= console.width else _states_table(result, has_reasons=False)


def width_of(table: Table, console: Console) -> int:
    """Console columns of an unwrapped table; rich otherwise measures no more than the console has."""
    return console.measure(table, options=console.options.update(max_width=ROOMY)).maximum


def _states_table(result: Result, *, has_reasons: bool) -> Table:
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


def _print_counters(result: Result, console: Console, errors: Mapping[str, float]) -> None:
    """Print the counters. ``errors``: P90 of measured rows by counter; percent, or points for metrics in percent."""
    shown = [name for name in MAIN_COUNTERS if name in result.counters]
    shown += [name for name in result.counters if name not in MAIN_COUNTERS]
    columns = ["value", "counter", *(["expected error"] if errors else [])]
    table = plain_table("Counters, as Nsight Compute names them", *columns, left=0)
    table.columns[1].justify = "left"
    for name in shown:
        value = result.counters[name]
        error = f"{errors[name]:g} {'points' if '.pct' in name else '%'}" if name in errors else ""
        table.add_row(number(round(value, 2 if abs(value) < 1e4 else None)), name, *([error] if errors else []))
    console.print(table)
    console.print()


SETTING_FLAGS = {"clock": "--clock", "l2": "--l2", "data": "--data"}


def _print_options(options: Options, unset: Collection[str], settings: Mapping[str, Any], console: Console) -> None:
    table = plain_table("Parameters", "option", "value", "", left=3)
    for name, value in options.values.items():
        is_default = flag(name) in unset
        shown, text = flag(name), options.none_texts.get(name, "-") if value is None else shortened(str(value))
        if isinstance(value, bool):
            shown, text = (shown if value else f"--no-{shown[2:]}"), ""
        table.add_row(shown, escape(text), "default" if is_default else "", style="dim" if is_default else "")
    for name, value in settings.items():
        is_default = value == USUAL_SETTINGS.get(name)
        text = "all" if value is None else str(value)
        if isinstance(value, bool):
            text = "yes" if value else "no"
        table.add_row(
            SETTING_FLAGS.get(name, name), escape(text), "default" if is_default else "", style="dim" if is_default else ""
        )
    console.print(table)
    console.print()


KIND_WORDS = {"guess": "guessed"}
"""Classes of sources as words in a sentence."""


def _print_sources(result: Result, console: Console) -> None:
    total = sum(result.sources.values())
    if not total:
        return
    kinds = ", ".join(f"{num} {KIND_WORDS.get(kind, kind)}" for kind, num in result.sources.items() if num)
    console.print(f"Uses {count(total, 'GPU parameter')} of {escape(result.gpu)}: {kinds}.")
    if result.guesses:
        rest = len(result.guesses) - MAX_GUESSES
        more = f" and {rest} more (gpusim gpus {result.gpu})" if rest > 0 else ""
        console.print(f"Guesses: {escape(', '.join(result.guesses[:MAX_GUESSES]) + more)}.")
    console.print()
