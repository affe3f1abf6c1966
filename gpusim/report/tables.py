"""Tables of GPU parameters on the console, and helpers for other tables."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gpusim.machine.config import COMPONENT_KINDS, OPTIONAL, GpuSpec
from gpusim.report.number_format import count, number, size, unit_of
from gpusim.report.parameters import meaning_of, parameters_of

WIDE = 110
"""Console width from which a parameter's source is in its row, instead of below."""

SOURCE_KINDS = ("published", "measured", "inferred", "guess", "toy")


def print_command(command: str, console: Console) -> None:
    """Print a command without wrapping, so that it can be copied."""
    console.print(command, markup=False, soft_wrap=True)


def plain_table(title: str, *columns: str, left: int = 1, ends: int = 0, no_wrap: bool = False) -> Table:
    """Plain table; all columns but the first ``left`` and the last ``ends`` hold numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for idx, column in enumerate(columns):
        justify: JustifyMethod = "right" if left <= idx < len(columns) - ends else "left"
        table.add_column(column, header_style="dim", justify=justify, overflow="fold", no_wrap=no_wrap)
    return table


def facts_table(rows: Iterable[tuple[str, ...]]) -> Table:
    """Table of (name, text) rows without titles; texts are no markup."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    for name, *texts in rows:
        table.add_row(name, *map(escape, texts))
    return table


def gpu_row(gpu: GpuSpec) -> dict[str, Any]:
    """Headline numbers of one GPU, for the list and its JSON document."""
    kinds = [gpu.source_class(parameter) for parameter in gpu.parameters()]
    return {
        "name": gpu.name, "title": gpu.title, "compute_capability": gpu.compute_capability, "num_sms": gpu.num_sms,
        "max_mhz": gpu.clock.max_mhz, "l2_bytes": gpu.l2.capacity_bytes,
        "hbm_read_gb_per_s": gpu.hbm.sustained_read_gb_per_s,
        "sources": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
    }


def gpu_document(gpu: GpuSpec) -> dict[str, Any]:
    """JSON document of every parameter of one GPU, with unit and source."""
    parameters = {
        name: {
            "value": value, "unit": unit_of(name), "class": gpu.source_class(name), "source": gpu.source_of(name),
            "meaning": meaning_of(name).text,
        }
        for name, value in gpu.parameters().items()
    }
    return {**gpu_row(gpu), "features": list(gpu.device.features), "parameters": parameters}


def render_gpus_list(gpus: Iterable[GpuSpec], console: Console) -> None:
    """Print one line per GPU."""
    table = plain_table("GPUs", "name", "title", "cc", "SMs", "max MHz", "L2", "HBM GB/s, sustained", left=2)
    sources_table = plain_table("Parameters, by where they come from", "name", *SOURCE_KINDS, "all", left=1)
    for either in (table, sources_table):
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
        sources_table.add_row(row["name"], *(str(sources.get(kind, 0)) for kind in SOURCE_KINDS), str(sum(sources.values())))
    console.print(table)
    console.print()
    console.print(sources_table)
    console.print()
    names = [row["name"] for row in rows]
    console.print("Next: ", end="")
    print_command(f"gpusim gpus {names[0]}" + (f" {names[1]}   (how they differ)" if len(names) > 1 else ""), console)


def render_gpu(gpu: GpuSpec, console: Console) -> None:
    """Print every parameter with its unit, value and source."""
    is_wide = console.width >= WIDE
    component = ""
    console.print(f"[bold]{escape(gpu.title)}[/] ({gpu.name})")
    table = _parameters_table(is_wide)
    for parameter, value in gpu.parameters().items():
        part, name = parameter.split(".", 1)
        if part != component:
            table.add_row(f"[bold]{part}[/]")
            component = part
        kind = gpu.source_class(parameter)
        source = gpu.source_of(parameter).split(":", 1)[1].strip()
        shown = f"[yellow]{kind}[/]" if kind == "guess" else kind
        cells = [f"  {name}", number(value), unit_of(parameter), shown]
        table.add_row(*cells, *([escape(source)] if is_wide else []))
        if not is_wide:
            console.print(table)
            console.print(Padding(Text(source, style="dim"), (0, 0, 0, 4)))
            table = _parameters_table(is_wide)
    if is_wide:
        console.print(table)
    console.print()
    console.print(f"Features: {', '.join(gpu.device.features)}.")
    for name in _lacking(gpu):
        console.print(f"{gpu.name} has no {name}.")
    sources = gpu_row(gpu)["sources"]
    kinds = ", ".join(f"{num} {kind}" for kind, num in sources.items())
    console.print(f"[bold]Verdict[/]: {count(sum(sources.values()), 'parameter')}: {kinds}.")
    console.print("Meaning of a part's parameters: add --explain hbm.")


def render_meanings(gpu: GpuSpec, wanted: str, console: Console) -> None:
    """Print value, meaning and source of a part's parameters, or of one parameter.

    Raises:
        ConfigError: the GPU has no such part or parameter.
    """
    parameters = gpu.parameters()
    for field, names in groupby(parameters_of(gpu, wanted), key=lambda name: ".".join(name.split(".")[:2])):
        for name in names:
            console.print(f"[bold]{name}[/] = {number(parameters[name])} {unit_of(name)}".rstrip())
        console.print(Padding(Text(meaning_of(field).text), (0, 0, 0, 4)))
        console.print(Padding(Text(gpu.source_of(field), style="dim"), (0, 0, 0, 4)))


def _parameters_table(is_wide: bool) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, width=36)
    table.add_column(justify="right", no_wrap=True, width=12)
    table.add_column(no_wrap=True, width=12)
    table.add_column(no_wrap=True, width=9)
    if is_wide:
        table.add_column(overflow="fold")
    return table


def compare_gpus(a: GpuSpec, b: GpuSpec) -> dict[str, Any]:
    """Differing parameters (largest ratio first), those that only one GPU has, equal ones; ``ratio`` is b over a."""
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
        "a": a.name, "b": b.name, "different": different, "only_a": {name: of_a[name] for name in of_a if name not in of_b},
        "only_b": {name: of_b[name] for name in of_b if name not in of_a},
        "equal": [name for name in of_a if name in of_b and of_a[name] == of_b[name]],
    }


def render_gpu_comparison(a: GpuSpec, b: GpuSpec, console: Console) -> None:
    """Print how ``b`` differs from ``a``: a ratio above 1 means that ``b`` has the larger number."""
    found = compare_gpus(a, b)
    different = found["different"]
    if different:
        table = plain_table("", "parameter", a.name, b.name, "unit", f"{b.name} / {a.name}", left=1)
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
        features = [name for name in gpu.device.features if name not in other.device.features]
        if features:
            console.print(f"{gpu.name} has the features {', '.join(features)}, {other.name} lacks them.")
        rest = [name for name in found[key] if name.split(".")[0] not in parts]
        if rest:
            console.print(f"Only {gpu.name} states {', '.join(rest)}.")
    total = len(different) + len(found["equal"])
    if different:
        if found["equal"]:
            console.print(f"[dim]Equal: {', '.join(found['equal'])}.[/]")
        first = different[0]
        most = f", most of all {first['parameter']} ({first['ratio']:.3g}x)" if first["ratio"] is not None else ""
        console.print(
            f"[bold]Verdict[/]: {len(different)} of {count(total, 'parameter')} that both have differ between {a.name} "
            f"and {b.name}{most}; a ratio above 1 means more on {b.name}.",
        )
    else:
        console.print(
            f"[bold]Verdict[/]: no difference: {a.name} and {b.name} have the same value in all "
            f"{count(total, 'parameter')} that both have.",
        )


def _lacking(gpu: GpuSpec) -> list[str]:
    return [name for name in COMPONENT_KINDS if name in OPTIONAL and gpu.component(name) is None]


def _ratio(a: Any, b: Any) -> float | None:
    if isinstance(a, int | float) and isinstance(b, int | float) and a and not isinstance(a, bool):
        return b / a
    return None


def _spread(ratio: float | None) -> float:
    """Distance of a ratio from 1, for sorting; parameters without a ratio come last."""
    if ratio is None:
        return -1.0
    return abs(math.log(ratio)) if ratio > 0.0 else math.inf
