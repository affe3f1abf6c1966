"""Nsight Compute profiles from any source: every page, metric, unit and number format that ``ncu`` writes.

In: the text of ``ncu --csv`` (raw or details page), or a report file. Out: a :class:`ProfiledLaunch` for each launch, its
metrics in base units: bytes, nanoseconds, hertz, percent.

Models:

* scaled SI units (1 Kbyte is 1000 bytes)
* thousands separators and decimal commas
* a launch per line, or a metric per line
* metric labels of the details page

Ignores:

* rules
* source counters by instruction
* instanced metrics

Source: Nsight Compute CLI documentation, "Options" and "CSV"; the labels of its ``.section`` files.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from gpusim.errors import ConfigError
from gpusim.evidence.nsight.launches import DEVICE, ProfiledLaunch, ProfileFile, short_name
from gpusim.evidence.nsight.metrics import is_needed
from gpusim.evidence.nsight.ncu_command import KERNEL_COLUMN, NO_NUMBER, SHAPE_COLUMNS, complaint
from gpusim.evidence.nsight.report_file import read_report
from gpusim.evidence.nsight.units import Decimal, decimal_sign, in_base_unit, parse_decimal, wanted_dimension

METRIC_COLUMNS = ("Metric Name", "Metric Unit", "Metric Value")
"""Columns of the details page."""

LABELS: Mapping[str, str] = MappingProxyType(
    {
        "Elapsed Cycles": "gpc__cycles_elapsed.max",
        "Duration": "gpu__time_duration.sum",
        "SM Frequency": "gpc__cycles_elapsed.avg.per_second",
        "DRAM Frequency": "dram__cycles_elapsed.avg.per_second",
        "SM Active Cycles": "sm__cycles_active.avg",
        "L2 Hit Rate": "lts__t_sector_hit_rate.pct",
        "Executed Instructions": "smsp__inst_executed.sum",
        "Registers Per Thread": "launch__registers_per_thread",
        "Grid Size": "launch__grid_size",
        "Block Size": "launch__block_size",
        "Cluster Size": "launch__cluster_size",
        "Waves Per SM": "launch__waves_per_multiprocessor",
        "Block Limit Registers": "launch__occupancy_limit_registers",
        "Block Limit Shared Mem": "launch__occupancy_limit_shared_mem",
        "Block Limit Warps": "launch__occupancy_limit_warps",
        "Block Limit SM": "launch__occupancy_limit_blocks",
        "Threads": "launch__thread_count",
        "# SMs": "launch__sm_count",
        "Dynamic Shared Memory Per Block": "launch__shared_mem_per_block_dynamic",
        "Compute (SM) Throughput": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        "L1/TEX Cache Throughput": "l1tex__throughput.avg.pct_of_peak_sustained_active",
        "L2 Cache Throughput": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
        "DRAM Throughput": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "Theoretical Occupancy": "sm__maximum_warps_per_active_cycle_pct",
        "Theoretical Active Warps per SM": "sm__maximum_warps_avg_per_active_cycle",
        "Achieved Occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
        "Achieved Active Warps Per SM": "sm__warps_active.avg.per_cycle_active",
        "L1/TEX Hit Rate": "l1tex__t_sector_hit_rate.pct",
        "Mem Busy": "gpu__compute_memory_access_throughput.avg.pct_of_peak_sustained_elapsed",
        "Max Bandwidth": "gpu__compute_memory_request_throughput.avg.pct_of_peak_sustained_elapsed",
        "Mem Pipes Busy": "sm__memory_throughput.avg.pct_of_peak_sustained_elapsed",
        **dict.fromkeys(("SM [%]", "SOL SM"), "sm__throughput.avg.pct_of_peak_sustained_elapsed"),
        **dict.fromkeys(("Memory [%]", "SOL Memory"), "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"),
        "SOL L1/TEX Cache": "l1tex__throughput.avg.pct_of_peak_sustained_active",
        "SOL L2 Cache": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
        **dict.fromkeys(("SOL DRAM", "SOL FB"), "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"),
    }
)
"""Section labels of ``SpeedOfLight``, ``MemoryWorkloadAnalysis``, ``Occupancy`` and ``LaunchStats``, with metrics' names.

Those with ``SOL``, ``SM [%]`` and ``Memory [%]`` are of older versions."""
MEMORY_THROUGHPUT = ("Memory Throughput", {True: "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
                                           False: "dram__bytes.sum.per_second"})
"""Label that two sections have, and its metric: in percent (True) and in bytes per second."""

SOURCE_COUNTERS = "memory_"
"""Beginning of the source counters' names, which the raw page has added up."""
MOST_NAMED = 3
"""Metrics that a remark names."""

PASSES = re.compile(r'^==PROF== Profiling "?(.+?)"?(?: - (\d+))?(?: \(.*\))?: .*?(\d+) pass', re.MULTILINE)


def read_profile(path: Path, *, decimal: Decimal | None = None) -> ProfileFile:
    """Launches of a CSV, or of a report (``.ncu-rep``) where ``ncu-report`` is installed. ``decimal``: detected by default.

    Raises:
        ConfigError: the file is no profile, is cut off, is of a page without launches, or holds numbers that cannot be read.
    """
    if path.suffix in {".ncu-rep", ".ncu-repz"}:
        return read_report(path)
    if path.suffix in {".nsys-rep", ".qdrep", ".sqlite"}:
        raise ConfigError(f"{path}: is a report of Nsight Systems, which has no counters: profile with Nsight Compute (ncu)")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is no text in UTF-8, wants what ncu --csv writes, or a report (.ncu-rep)") from None
    try:
        launches, remarks = parse_csv(text, decimal=decimal)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    lost = _lost(text, launches)
    return ProfileFile(path=path, launches=launches, remarks=(*remarks, *_on_lost(lost, launches)), lost=lost)


def _lost(text: str, launches: Sequence[ProfiledLaunch]) -> tuple[str, ...]:
    """Kernels of launches that the profiler says it profiled, and that the table lacks; one name per launch."""
    profiled = [(found[2], found[1]) for found in PASSES.finditer(text) if found[2]]
    num_lost = len(profiled) - len(launches)
    if num_lost < 1:
        return ()
    there = {launch.idx for launch in launches}
    names = [name for idx, name in profiled if idx not in there]
    return tuple(names if len(names) == num_lost else ["an unknown kernel"] * num_lost)


def _on_lost(lost: Sequence[str], launches: Sequence[ProfiledLaunch]) -> list[str]:
    """Remarks on launches that the profile lacks: by the profiler's messages, or by a gap among the IDs."""
    if lost:
        names = ", ".join(dict.fromkeys(lost))
        return [f"the profiler says that it profiled {len(launches) + len(lost)} launches, the table has {len(launches)}: "
                f"{names} {'is' if len(lost) == 1 else 'are'} lost"]
    ids = {int(launch.idx) for launch in launches}
    gaps = max(ids) - min(ids) + 1 - len(ids)
    return [f"IDs of launches go from {min(ids)} to {max(ids)}, and {gaps} of them {'is' if gaps == 1 else 'are'} missing: "
            "was the file filtered or damaged?"] if gaps else []


# ---------------------------------------------------------------------------------------------- CSV
@dataclass(slots=True)
class _Cell:
    """A metric of a launch as text."""

    launch: str
    name: str
    unit: str | None
    """Unit as text; None where the page has no line of units."""
    value: str


def parse_csv(text: str, *, decimal: Decimal | None = None) -> tuple[tuple[ProfiledLaunch, ...], tuple[str, ...]]:
    """(launches in order, remarks) of a CSV.

    >>> found, _ = parse_csv('''"ID","Kernel Name","CC","gpu__time_duration.sum"
    ... "","","","us"
    ... "0","copy(float *)","9.0","2.50"
    ... ''')
    >>> found[0].kernel, found[0].capability, dict(found[0].metrics)
    ('copy', '9.0', {'gpu__time_duration.sum': 2500.0})

    Raises:
        ConfigError: see :func:`read_profile`.
    """
    header, rows = _table(text)
    if any(row[KERNEL_COLUMN] == KERNEL_COLUMN for row in rows):
        raise ConfigError("holds two tables, one behind the other: wants one profile in a file")
    is_details = METRIC_COLUMNS[0] in header
    _check_ids(rows if is_details else rows[_has_units(rows) :])
    lines = {row["ID"]: row for row in reversed(rows) if row["ID"]}
    launches = {idx: lines[idx] for idx in dict.fromkeys(row["ID"] for row in rows if row["ID"])}
    cells = _details(rows) if is_details else _raw(header, rows)
    if not launches:
        raise ConfigError(f"holds no launch: {complaint(text) or 'a header alone, the profile is cut off or nothing ran'}")
    remarks = _passes(text) + (_unknown_labels(rows) if is_details else [])
    if any(cell.unit is None for cell in cells):
        remarks.append("no line of units: numbers are taken for bytes, nanoseconds and hertz")
    sign, doubt = (decimal, "") if decimal else _sign(cells)
    remarks += [doubt] if doubt else []
    metrics: dict[str, dict[str, float]] = {idx: {} for idx in launches}
    unread: list[str] = []
    uncollected: list[str] = []
    for cell in cells:
        try:
            number = _number(cell, sign)
        except ConfigError:
            if is_needed(cell.name):
                raise
            unread.append(cell.name)
            continue
        if number is None and wanted_dimension(cell.name) and cell.value.strip():
            uncollected.append(f"launch {cell.launch}, {cell.name} is {cell.value.strip()!r}")
        if number is not None:
            first = metrics[cell.launch].setdefault(cell.name, number)
            if first != number and not _is_rounded(first, number):
                raise ConfigError(
                    f"launch {cell.launch} has {cell.name} twice, {first:g} and {number:g}: wants one pass over each launch"
                )
    remarks += [f"{text}: could not be collected, not compared" for text in uncollected[:MOST_NAMED]]
    if len(uncollected) > MOST_NAMED:
        remarks.append(f"{len(uncollected) - MOST_NAMED} more numbers could not be collected and are not compared")
    if unread:
        names = list(dict.fromkeys(unread))
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        remarks.append(f"left out, as their units or numbers cannot be read: {', '.join(names[:MOST_NAMED])}{more}")
    return tuple(_launch(idx, launches[idx], metrics[idx]) for idx in launches), tuple(remarks)


def _has_units(rows: Sequence[Mapping[str, str]]) -> bool:
    """Whether the first line of a raw page is that of the units."""
    return bool(rows) and not rows[0]["ID"] and not rows[0][KERNEL_COLUMN]


def _check_ids(rows: Sequence[Mapping[str, str]]) -> None:
    """Check that each line has the ID of a launch."""
    for row in rows:
        if not re.fullmatch(r"[0-9]{1,9}", row["ID"]):
            found = f"has the ID {row['ID']!r}" if row["ID"] else "has no ID"
            raise ConfigError(f"a line of {row[KERNEL_COLUMN][:40]!r} {found}, wants its launch's number: is it damaged?")


def _sign(cells: Sequence[_Cell]) -> tuple[Decimal, str]:
    """(decimal sign, remark if no number of the file tells it).

    Three digits behind one sign are thousands, unless a number has four digits without a sign between them.

    Raises:
        ConfigError: some numbers have a point before three digits, and some a comma.
    """
    numbers = [cell for cell in cells if re.fullmatch(r"[+-]?[\d.,]+", cell.value.strip())]
    sign = decimal_sign(cell.value for cell in cells)
    if sign is not None:
        return sign, ""
    marked = {"," if "," in cell.value else ".": cell for cell in numbers if re.search(r"[.,]", cell.value)}
    if not marked:
        return "point", ""
    if len(marked) > 1:
        texts = " and ".join(repr(cell.value) for cell in marked.values())
        raise ConfigError(f"{texts} cannot both have thousands, and no number tells the decimal sign: give --decimal")
    ((mark, first),) = marked.items()
    is_thousands = not any(re.search(r"\d{4}", cell.value) for cell in numbers)
    is_point = (mark == ",") == is_thousands
    kind = "a sign of thousands" if is_thousands else "a decimal sign, since larger numbers of the profile have no sign"
    return "point" if is_point else "comma", (
        f"{first.name} is {first.value!r}: {mark!r} is taken for {kind}; give --decimal "
        f"{'comma' if is_point else 'point'} if that is wrong"
    )


def _is_rounded(one: float, other: float) -> bool:
    """Whether two sections print one number, scaled and rounded to two digits."""
    return abs(one - other) <= 0.006 * max(abs(one), abs(other))


def _table(text: str) -> tuple[list[str], list[dict[str, str]]]:
    """(header, rows by column); lines that the profiled program printed in between are left out."""
    lines = text.splitlines(keepends=True)
    start = next((i for i, line in enumerate(lines) if line.startswith('"') and f'"{KERNEL_COLUMN}"' in line), None)
    if start is None:
        raise ConfigError(_what_else(text))
    body = _quoted(lines[start:])
    try:
        header, *table = csv.reader([line.rstrip("\r\n") for line in body], strict=True)
    except csv.Error as error:
        if '";"' in body[0]:
            raise ConfigError("its columns are parted by semicolons, wants commas, as ncu --csv writes them") from None
        raise ConfigError(f"is cut off or no CSV ({error}), wants what ncu --csv writes") from None
    if "Invocations" in header:
        raise ConfigError("is a summary over launches: leave --print-summary out, each launch is judged by itself")
    if {"Address", "Source"} <= set(header) or ("ID" not in header and SOURCE_HEADER.search(text)):
        raise ConfigError(SOURCE_PAGE)
    if METRIC_COLUMNS[0] in header and (lacking := [name for name in METRIC_COLUMNS if name not in header]):
        raise ConfigError(f"a details page without the column {lacking[0]}: export it again with ncu --csv --page details")
    for name in ("ID", KERNEL_COLUMN, *METRIC_COLUMNS, *SHAPE_COLUMNS):
        if header.count(name) > 1:
            raise ConfigError(f"has a column {name} twice, wants each once")
    if "ID" not in header:
        raise ConfigError(f"a table begins with {', '.join(header[:3])}, wants the raw or the details page, with IDs")
    rows = []
    ends_with_value = header.index("Metric Value") + 1 if "Metric Value" in header else len(header)
    for row in table:
        if len(row) == ends_with_value + 1 and not row[-1]:  # ncu leaves the columns of rules out in lines of metrics
            row.extend([""] * (len(header) - len(row)))
        if len(row) != len(header):
            raise ConfigError(f"a line has {len(row)} of {len(header)} fields: it is cut off, wants the complete profile")
        rows.append(dict(zip(header, row, strict=True)))
    if not body[-1].endswith(("\n", "\r")):
        raise ConfigError("its last line has no end: it is cut off, wants the complete profile")
    return header, rows


SOURCE_HEADER = re.compile(r'^"?(#|Line No|Address)"?,.*\bSource\b', re.MULTILINE)
SOURCE_PAGE = "is a source page, of instructions and not of launches: export it with ncu --csv --page raw"


def _what_else(text: str) -> str:
    """Sentence on a file without a table of launches: what it is."""
    if re.search(r"Time \(%\),.*Instances|Total Time \(ns\)|Start \(ns\),\s*Duration \(ns\)|CorrId", text):
        return "is a table of Nsight Systems, which has times and no counters: profile with Nsight Compute (ncu --csv)"
    if SOURCE_HEADER.search(text):
        return SOURCE_PAGE
    if re.search(r"^\s*Section: |^\s+Metric Name\s+Metric Unit", text, re.MULTILINE):
        return "is what ncu prints without --csv: export it with ncu --csv --page raw"
    return f"holds no table of Nsight Compute: {complaint(text) or 'wants what ncu --csv --page raw (or details) writes'}"


def _quoted(lines: Sequence[str]) -> list[str]:
    """Lines of the table, all of whose fields are quoted. Messages and the profiled program's output are left out."""
    kept: list[str] = []
    is_open = False  # within a field that continues in the next line
    for line in lines:
        if is_open or line.startswith('"'):
            kept.append(line)
            is_open ^= line.count('"') % 2 == 1
    return kept


def _raw(header: Sequence[str], rows: Sequence[Mapping[str, str]]) -> list[_Cell]:
    """Cells of the raw page: one launch per line; the line without an ID has the units."""
    units: Mapping[str, str | None] = rows[0] if _has_units(rows) else dict.fromkeys(header)
    names = [name for name in header if "__" in name or name.startswith(SOURCE_COUNTERS)]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise ConfigError(f"has a column {twice} twice, wants each metric once")
    cells = []
    seen: set[str] = set()
    for row in rows:
        if not row["ID"]:
            continue
        if row["ID"] in seen:
            raise ConfigError(
                f"launch {row['ID']} comes twice: replayed, or two profiles in one file; wants each launch once"
            )
        seen.add(row["ID"])
        cells += [_Cell(row["ID"], name, units[name], row[name]) for name in names]
    return cells


def _details(rows: Sequence[Mapping[str, str]]) -> list[_Cell]:
    """Cells of the details page: one metric per line, under its name or its section's label. Rules have no metric."""
    name, unit, value = METRIC_COLUMNS
    return [
        _Cell(row["ID"], _metric(row[name], row[unit]), row[unit], row[value]) for row in rows if _is_known(row[name])
    ]


def _is_known(label: str) -> bool:
    return label in (*LABELS, MEMORY_THROUGHPUT[0]) or "__" in label


def _unknown_labels(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Remark on labels of sections that stand for no known metric; none without any."""
    labels = [label for label in dict.fromkeys(row[METRIC_COLUMNS[0]] for row in rows) if label and not _is_known(label)]
    more = f" and {len(labels) - MOST_NAMED} more" if len(labels) > MOST_NAMED else ""
    return [f"labels that no prediction has, not compared: {', '.join(labels[:MOST_NAMED])}{more}"] if labels else []


def _metric(label: str, unit: str) -> str:
    """Metric of a label; a metric that a section shows under its name is its own label."""
    return MEMORY_THROUGHPUT[1][unit == "%"] if label == MEMORY_THROUGHPUT[0] else LABELS.get(label, label)


def _number(cell: _Cell, sign: Decimal) -> float | None:
    text, where = cell.value.strip(), f"launch {cell.launch}, {cell.name}"
    wanted = wanted_dimension(cell.name)
    if wanted and (instanced := re.fullmatch(r"([\d.,\s]+?)\s*\(.*\)", text)):
        text = instanced[1]  # instances follow in parentheses
    if text.lower().removeprefix("(!)").strip(" -+") in (*NO_NUMBER, "no data", "!"):
        return None
    if not re.search(r"\d", text) or re.search(r"[A-Za-z_:;(]", text.replace("e", "").replace("E", "")):
        if wanted not in ("", "%") or text.lower().endswith(("inf", "infinity")):
            raise ConfigError(f"{where}: {cell.value!r} is no number")
        return None  # text, for example the name of a cache policy
    try:
        return in_base_unit(where, cell.name, parse_decimal(text, sign), cell.unit)
    except ConfigError as error:
        raise ConfigError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None


def _launch(idx: str, row: Mapping[str, str], metrics: Mapping[str, float]) -> ProfiledLaunch:
    kernel = short_name(row[KERNEL_COLUMN])
    if kernel == "range":
        raise ConfigError(f"launch {idx} is a range of launches (range replay), wants kernels by themselves")
    for column in SHAPE_COLUMNS:
        if row.get(column) and not re.fullmatch(r"\(?\s*[0-9]{1,10}([\s,.;x]+[0-9]{1,10}){0,2}\s*\)?", row[column]):
            raise ConfigError(f"launch {idx}: its {column} is {row[column]!r}, wants for example (128, 1, 1)")
    grid, block = (tuple(map(int, re.findall(r"\d+", row.get(column, "")))) for column in SHAPE_COLUMNS)
    return ProfiledLaunch(
        idx=idx, kernel=kernel, metrics=MappingProxyType(dict(metrics)), grid=grid, block=block,
        capability=row.get("CC", ""), device=row.get(DEVICE, ""),
    )


def _passes(text: str) -> list[str]:
    most = max((int(found[3]) for found in PASSES.finditer(text)), default=1)
    if most < 2:
        return []
    return [f"launches were replayed, up to {most} passes: metrics of one launch may come of different runs of it"]
