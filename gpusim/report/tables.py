"""Predictions and GPUs as tables for people."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gpusim.evidence.validate.expected_error import Expected, unknown
from gpusim.machine.config import COMPONENT_KINDS, OPTIONAL, GpuSpec
from gpusim.report.number_format import (
    CLOCK_MODES,
    count,
    duration,
    energy,
    flag,
    number,
    percent,
    shortened,
    size,
    unit_of,
)
from gpusim.simulate.result import Result

MAX_GUESSES = 6
"""Guesses that a prediction lists; ``gpusim gpus NAME`` lists all."""

WIDE = 110
"""From this width on a parameter's source stands beside it, else below."""

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
"""Counters that stand first in the table."""


# ---------------------------------------------------------------------------------------------- a prediction


def render_prediction(
    result: Result,
    console: Console,
    options: Mapping[str, Any],
    defaults: Collection[str],
    *,
    steps: Sequence[tuple[str, str]] = (),
    expected: Expected | None = None,
    gpu_name: str = "",
    none_texts: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Print all of ``result``: the verdict first, what to type next last.

    ``options`` are all parameters as the command line spells them; ``defaults`` names those that nobody gave; ``expected``
    is how far the cycles may be off, None where no measured row is like it; ``none_texts`` say what None is of an option;
    ``steps`` are commands, each with a sentence or none; ``gpu_name`` is the GPU as it is typed.
    """
    unset = {flag(name) for name in defaults}
    console.print(f"[bold]Verdict[/]: {escape(verdict_of(result))}", highlight=False)
    console.print()
    _print_headline(result, console, expected, gpu_name or result.gpu)
    _print_shares(result, console)
    _print_counters(result, console, {} if expected is None else expected.counters)
    _print_options(options, unset, result.settings, console, none_texts)
    _print_sources(result, console)
    for remark in result.remarks:
        console.print(f"[yellow]Remark[/]: {escape(remark)}")
    if result.remarks:
        console.print()
    for why, command in steps or (("", next_explain(result, options, unset)),):
        console.print(f"{why} " if why else "Next: ", end="")
        print_command(command, console)


def verdict_of(result: Result) -> str:
    """The prediction in one sentence."""
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
    """Peak bandwidth, and where its source stands: a data sheet has two or three digits of it."""
    return f"{peak_gb_per_s:,.0f} (source: gpusim gpus {shlex.quote(gpu_name)})"


def print_command(command: str, console: Console) -> None:
    """A command to type, not wrapped, so that it can be copied."""
    console.print(command, markup=False, highlight=False, soft_wrap=True)


def next_explain(result: Result, options: Mapping[str, Any], unset: Collection[str]) -> str:
    """``gpusim explain`` with the options that somebody gave."""
    words = ["gpusim", "explain", result.kernel]
    for name, value in options.items():
        if flag(name) in unset or value is None:
            continue
        if isinstance(value, bool):
            words.append(flag(name) if value else f"--no-{flag(name)[2:]}")
        else:
            words += [flag(name), str(value)]
    return shlex.join([*words, "--gpu", result.gpu])


def _facts(rows: Iterable[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in rows:
        table.add_row(name, escape(text))
    return table


def _table(title: str, *columns: str, left: int = 1) -> Table:
    """A plain table; columns from ``left`` on hold numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for idx, column in enumerate(columns):
        table.add_column(column, header_style="dim", justify="left" if idx < left else "right", overflow="fold")
    return table


def headline_rows(result: Result, expected: Expected | None, gpu_name: str = "") -> list[tuple[str, str]]:
    """What a prediction says first: (what, in words); ``gpu_name`` is the GPU as it is typed."""
    held = result.occupancy
    seconds = result.time_us * 1e-6
    rows = [
        ("Time", duration(seconds)),
        ("Energy", f"{energy(result.energy_mj * 1e-3)} of the board, at {result.power_w:,.0f} W"),
        ("Cycles", f"{result.cycles:,.0f} SM cycles"),
        (
            "Expected error",
            unknown(result.kernel, result.gpu, result.params)
            if expected is None else f"within {expected.p90_pct:g} % of the {expected.what}: {expected.text}",
        ),
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
        peak = of_peak_memory(result.peak_memory_gb_per_s, gpu_name or result.gpu)
        memory += f", {result.pct_of_peak_memory:.1f} % of {peak}"
    rows.append(("Memory", memory))
    others = ", ".join(
        f"{name} {limit}" for name, limit in sorted(held.limits.items(), key=lambda item: item[1])
    )
    rows += [
        ("Bound by", f"{result.bound_by}: {result.reason}"),
        (
            "Occupancy",
            f"{count(held.ctas_per_sm, 'CTA')} an SM, {held.warps_per_sm} of {held.max_warps_per_sm} warps "
            f"({held.pct:.1f} %), limited by {held.limited_by} (CTAs that each admits: {others})",
        ),
        (
            "Registers",
            f"{result.registers_per_thread} a thread (estimated; {result.registers_source or 'no rule stated'})",
        ),
        ("Shared memory", f"{size(result.smem_bytes)} a CTA"),
        (
            "Grid",
            f"{count(result.num_ctas, 'CTA')} for {count(result.num_tiles, 'tile')}, {number(result.ctas_at_once)} at "
            f"once: {result.waves:.2f} waves",
        ),
        ("Power", _power(result)),
        ("Simulated", _simulated(result)),
    ]
    return rows


def _print_headline(result: Result, console: Console, expected: Expected | None, gpu_name: str) -> None:
    console.print(f"[bold]{escape(result.kernel)}[/] on [bold]{escape(result.gpu)}[/]")
    console.print(_facts(headline_rows(result, expected, gpu_name)))
    console.print()


def _power(result: Result) -> str:
    """Board power, and how a short launch may draw more than the limit."""
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
    busy = _table("Busy, share of cycles", "part", "share")
    for part, share in sorted(result.busy.items(), key=lambda item: -item[1]):
        if share > 0.0:
            busy.add_row(part, percent(share))
    roles = list(result.states)
    states = _table("States, share of a role's life", "state", *roles)
    names = {state for shares in result.states.values() for state in shares}
    for state in sorted(names, key=lambda name: -max(shares.get(name, 0.0) for shares in result.states.values())):
        shares = [result.states[role].get(state) for role in roles]
        states.add_row(state, *("-" if share is None else percent(share) for share in shares))
    both = Table.grid(padding=(0, 4))
    both.add_row(busy, states)
    if console.measure(both).minimum <= console.width and console.width >= 70:
        console.print(both)
    else:
        console.print(busy)
        console.print()
        console.print(states)
    console.print()


def _print_counters(result: Result, console: Console, errors: Mapping[str, float]) -> None:
    """``errors``: what nine in ten measured rows kept, by counter; percent, or points of what is percent itself."""
    shown = [name for name in MAIN_COUNTERS if name in result.counters]
    shown += [name for name in result.counters if name not in MAIN_COUNTERS]
    columns = ["value", "counter", *(["expected error"] if errors else [])]
    table = _table("Counters, as Nsight Compute names them", *columns, left=0)
    table.columns[1].justify = "left"
    for name in shown:
        value = result.counters[name]
        error = f"{errors[name]:g} {'points' if name.endswith('.pct') else '%'}" if name in errors else ""
        table.add_row(number(round(value, 2 if abs(value) < 1e4 else None)), name, *([error] if errors else []))
    console.print(table)
    console.print()


USUAL_SETTINGS = {"clock": "single", "l2": "cold", "data": "random"}
SETTING_FLAGS = {"clock": "--clock", "l2": "--l2", "data": "--data"}


def _print_options(
    options: Mapping[str, Any], unset: Collection[str], settings: Mapping[str, Any], console: Console,
    none_texts: Mapping[str, str],
) -> None:
    table = _table("Parameters", "option", "value", "", left=3)
    for name, value in options.items():
        is_default = flag(name) in unset
        shown, text = flag(name), none_texts.get(name, "-") if value is None else shortened(str(value))
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
    console.print(f"Uses {count(total, 'GPU parameter')} of {escape(result.gpu)}: {kinds}.", highlight=False)
    if result.guesses:
        rest = len(result.guesses) - MAX_GUESSES
        more = f" and {rest} more (gpusim gpus {result.gpu})" if rest > 0 else ""
        console.print(f"Guesses: {escape(', '.join(result.guesses[:MAX_GUESSES]) + more)}.", highlight=False)
    console.print()


# ---------------------------------------------------------------------------------------------- GPUs


SOURCE_KINDS = ("published", "measured", "inferred", "guess", "toy")


def gpu_row(gpu: GpuSpec) -> dict[str, Any]:
    """One GPU's headline numbers, for the list and its JSON document."""
    kinds = [gpu.source_class(parameter) for parameter in gpu.parameters()]
    return {
        "name": gpu.name,
        "title": gpu.title,
        "compute_capability": gpu.compute_capability,
        "num_sms": gpu.num_sms,
        "max_mhz": gpu.clock.max_mhz,
        "l2_bytes": gpu.l2.capacity_bytes,
        "hbm_read_gb_per_s": gpu.hbm.sustained_read_gb_per_s,
        "sources": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
    }


def gpu_document(gpu: GpuSpec) -> dict[str, Any]:
    """Every parameter of one GPU with its unit and source, for the JSON document."""
    parameters = {
        name: {"value": value, "unit": unit_of(name), "class": gpu.source_class(name), "source": gpu.source_of(name)}
        for name, value in gpu.parameters().items()
    }
    return {**gpu_row(gpu), "parameters": parameters}


def render_gpus_list(gpus: Iterable[GpuSpec], console: Console) -> None:
    """Print one line a GPU."""
    table = _table(
        "GPUs", "name", "title", "cc", "SMs", "max MHz", "L2", "HBM GB/s, sustained", left=2
    )
    told = _table("Parameters, by where they come from", "name", *SOURCE_KINDS, "all", left=1)
    for either in (table, told):
        either.columns[0].no_wrap = True
    rows = [gpu_row(gpu) for gpu in gpus]
    if not rows:
        console.print("No GPU is described: configs/ holds no TOML file.")
        return
    for row in rows:
        sources = row["sources"]
        table.add_row(
            row["name"], escape(row["title"]), str(row["compute_capability"]), number(row["num_sms"]),
            number(row["max_mhz"]), size(row["l2_bytes"]), number(row["hbm_read_gb_per_s"]),
        )
        told.add_row(row["name"], *(str(sources.get(kind, 0)) for kind in SOURCE_KINDS), str(sum(sources.values())))
    console.print(table)
    console.print()
    console.print(told)
    console.print()
    names = [row["name"] for row in rows]
    console.print("Next: ", end="")
    print_command(f"gpusim gpus {names[0]}" + (f" {names[1]}   (how they differ)" if len(names) > 1 else ""), console)


def render_gpu(gpu: GpuSpec, console: Console) -> None:
    """Print every parameter with its unit, value and source."""
    has_room = console.width >= WIDE
    component = ""
    console.print(f"[bold]{escape(gpu.title)}[/] ({gpu.name})", highlight=False)
    table = _parameters_table(has_room)
    for parameter, value in gpu.parameters().items():
        part, name = parameter.split(".", 1)
        if part != component:
            table.add_row(f"[bold]{part}[/]")
            component = part
        kind = gpu.source_class(parameter)
        source = gpu.source_of(parameter).split(":", 1)[1].strip()
        shown = f"[yellow]{kind}[/]" if kind == "guess" else kind
        cells = [f"  {name}", number(value), unit_of(parameter), shown]
        table.add_row(*cells, *([escape(source)] if has_room else []))
        if not has_room:
            console.print(table)
            console.print(Padding(Text(source, style="dim"), (0, 0, 0, 4)))
            table = _parameters_table(has_room)
    if has_room:
        console.print(table)
    console.print()
    for name in _lacking(gpu):
        console.print(f"{gpu.name} has no {name}.")
    sources = gpu_row(gpu)["sources"]
    kinds = ", ".join(f"{num} {kind}" for kind, num in sources.items())
    console.print(f"[bold]Verdict[/]: {count(sum(sources.values()), 'parameter')}: {kinds}.", highlight=False)


def _parameters_table(has_room: bool) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, width=36)
    table.add_column(justify="right", no_wrap=True, width=12)
    table.add_column(no_wrap=True, width=12)
    table.add_column(no_wrap=True, width=9)
    if has_room:
        table.add_column(overflow="fold")
    return table


def compare_gpus(a: GpuSpec, b: GpuSpec) -> dict[str, Any]:
    """What differs (largest ratio first), what only one has, what is equal; ``ratio`` is b over a."""
    of_a, of_b = a.parameters(), b.parameters()
    different = [
        {
            "parameter": parameter, "unit": unit_of(parameter), "a": of_a[parameter], "b": of_b[parameter],
            "ratio": _ratio(of_a[parameter], of_b[parameter]),
        }
        for parameter in of_a
        if parameter in of_b and of_a[parameter] != of_b[parameter]
    ]
    different.sort(key=lambda row: -_spread(row["ratio"]))
    return {
        "a": a.name,
        "b": b.name,
        "different": different,
        "only_a": {name: of_a[name] for name in of_a if name not in of_b},
        "only_b": {name: of_b[name] for name in of_b if name not in of_a},
        "equal": [name for name in of_a if name in of_b and of_a[name] == of_b[name]],
    }


def render_gpu_comparison(a: GpuSpec, b: GpuSpec, console: Console) -> None:
    """Print how ``b`` differs from ``a``: a ratio above 1 means that ``b`` has the larger number."""
    found = compare_gpus(a, b)
    different = found["different"]
    if different:
        table = _table("", "parameter", a.name, b.name, "unit", f"{b.name} / {a.name}", left=1)
        table.columns[3].justify = "left"
        for row in different:
            ratio = "-" if row["ratio"] is None else f"{row['ratio']:.3g}x"
            table.add_row(row["parameter"], number(row["a"]), number(row["b"]), row["unit"], ratio)
        console.print(table)
        console.print()
    for gpu, other, key in ((a, b, "only_a"), (b, a, "only_b")):
        parts = [name for name in _lacking(other) if name not in _lacking(gpu)]
        for part in parts:
            console.print(f"{other.name} has no {part}, {gpu.name} has.")
        rest = [name for name in found[key] if name.split(".")[0] not in parts]
        if rest:
            console.print(f"Only {gpu.name} states {', '.join(rest)}.", highlight=False)
    total = len(different) + len(found["equal"])
    if different:
        if found["equal"]:
            console.print(f"[dim]Equal: {', '.join(found['equal'])}.[/]", highlight=False)
        first = different[0]
        most = f", most of all {first['parameter']} ({first['ratio']:.3g}x)" if first["ratio"] is not None else ""
        console.print(
            f"[bold]Verdict[/]: {len(different)} of {count(total, 'parameter')} that both have differ between {a.name} "
            f"and {b.name}{most}; a ratio above 1 means more on {b.name}.",
            highlight=False,
        )
    else:
        console.print(
            f"[bold]Verdict[/]: no difference: {a.name} and {b.name} have the same value in all "
            f"{count(total, 'parameter')} that both have.",
            highlight=False,
        )


def _lacking(gpu: GpuSpec) -> list[str]:
    return [name for name in COMPONENT_KINDS if name in OPTIONAL and gpu.component(name) is None]


def _ratio(a: Any, b: Any) -> float | None:
    if isinstance(a, int | float) and isinstance(b, int | float) and a and not isinstance(a, bool):
        return b / a
    return None


def _spread(ratio: float | None) -> float:
    """How far from 1, for sorting; what has no ratio comes last."""
    if ratio is None:
        return -1.0
    return abs(math.log(ratio)) if ratio > 0.0 else math.inf
