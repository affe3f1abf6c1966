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
* source counters
* instanced metrics

Source: Nsight Compute CLI documentation, "Options" and "CSV"; the labels of its ``.section`` files.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from gpusim.errors import ConfigError
from gpusim.evidence.nsight.ncu_command import KERNEL_COLUMN, NO_NUMBER, SHAPE_COLUMNS, complaint

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
    }
)
"""Section labels of the metrics that gpusim predicts or needs, with the metrics' names."""

SCALES: Mapping[str, float] = MappingProxyType({"": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15})
DEVICE = "device__attribute_display_name"

SECONDS: Mapping[str, float] = MappingProxyType({"n": 1.0, "u": 1e3, "\u00b5": 1e3, "\u03bc": 1e3, "m": 1e6, "": 1e9})
"""Nanoseconds of a second with an SI prefix."""

TIME = re.compile(r"([num\u00b5\u03bc]?)(?:s|sec|second)s?")
SCALED = re.compile(r"([KkMGTP]?)(byte|bytes|hz|Hz|cycle|inst|sector|request|warp|B)")
COUNTED = ("", "inst", "sector", "request", "warp", "block", "cluster", "thread", "wavefront", "pass", "SM", "instruction")
"""Units of counts."""

DIMENSIONS: tuple[tuple[str, str], ...] = (
    (r".*(\.pct|\.pct_of_\w+)", "%"), (r"(?!\w*_per_)\w*bytes\w*\.(sum|avg|max|min)", "byte"),
    (r"(?!\w*_per_)\w*bytes\w*\.(sum|avg|max|min)\.per_second", "byte/second"), (r"gpu__time_duration\w*\.\w+", "time"),
    (r"\w+__cycles_(elapsed|active)\.(sum|avg|max|min)", "cycle"),
    (r"\w+__cycles_(elapsed|active)\.\w+\.per_second", "hertz"),
    (r"\w+__(\w*sectors|\w*wavefronts|inst_executed)\w*\.sum", "count"),
)
"""Patterns of metric names, with the dimension that their unit must have."""

SPACES = "\u00a0\u202f\u2009'\u2019 "
"""Thousands separators that cannot be a decimal sign."""

Decimal = Literal["point", "comma"]

PASSES = re.compile(r'^==PROF== Profiling "?(.+?)"?(?: - (\d+))?(?: \(.*\))?: .*?(\d+) pass', re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledLaunch:
    """One launch in an Nsight Compute profile."""

    idx: str
    """ID of the launch in the profile."""
    kernel: str
    """Kernel name in the profile, without arguments."""
    metrics: Mapping[str, float]
    """Metrics by name, in base units: bytes, ns, Hz, percent."""
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    capability: str = ""
    """Compute capability, for example 9.0; empty where the profile has none."""
    device: str = ""
    """Name of the GPU; empty where the profile has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFile:
    """Launches of a file, with remarks on how it was read or profiled."""

    path: Path
    launches: tuple[ProfiledLaunch, ...]
    remarks: tuple[str, ...] = ()


def read_profile(path: Path, *, decimal: Decimal | None = None) -> ProfileFile:
    """Launches of a CSV, or of a report (``.ncu-rep``) where ``ncu-report`` is installed. ``decimal``: detected by default.

    Raises:
        ConfigError: the file is no profile, is cut off, is of a page without launches, or holds numbers that cannot be read.
    """
    if path.suffix in {".ncu-rep", ".ncu-repz"}:
        return _report(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is no text in UTF-8, wants what ncu --csv writes, or a report (.ncu-rep)") from None
    try:
        launches, remarks = parse_csv(text, decimal=decimal)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return ProfileFile(path=path, launches=launches, remarks=remarks)


# ---------------------------------------------------------------------------------------------- numbers and units
def unit_scale(unit: str) -> float:
    """Factor from ``unit`` to the base unit: bytes, ns, Hz; 1 for counts.

    >>> unit_scale("Kbyte"), unit_scale("us"), unit_scale("Ghz"), unit_scale("Gbyte/second"), unit_scale("byte/us")
    (1000.0, 1000.0, 1000000000.0, 1000000000.0, 1000000.0)
    >>> unit_scale("%"), unit_scale("register/thread"), unit_scale("Kbyte/block")
    (1.0, 1.0, 1000.0)
    """
    above, _, below = unit.strip().partition("/")
    scale = 1.0
    if found := TIME.fullmatch(above):
        scale = SECONDS[found[1]]
    elif found := SCALED.fullmatch(above.replace("hz", "Hz")):
        scale = SCALES[found[1]]
    if below and (found := TIME.fullmatch(below)):
        scale *= round(1e9 / SECONDS[found[1]])
    return scale


def dimension(unit: str) -> str:
    """Dimension of a unit; empty where Nsight Compute writes no such unit for the metrics known here.

    >>> dimension("us"), dimension("Kbyte"), dimension("Mbyte/s"), dimension("Ghz"), dimension("inst"), dimension("parsec")
    ('time', 'byte', 'byte/second', 'hertz', 'count', '')
    >>> dimension("nsecond"), dimension("cycle/nsecond"), dimension("byte/second")  # as earlier versions write them
    ('time', 'hertz', 'byte/second')
    """
    above, slash, below = unit.strip().partition("/")
    if unit.strip() in COUNTED:
        return "count"
    if above == "%":
        return "%"
    if TIME.fullmatch(above) and not slash:
        return "time"
    found = SCALED.fullmatch(above.replace("hz", "Hz"))
    if found is None or (slash and not TIME.fullmatch(below)):
        return ""
    kind = {"bytes": "byte", "B": "byte", "Hz": "hertz"}.get(found[2], found[2])
    if slash:
        return {"byte": "byte/second", "cycle": "hertz"}.get(kind, "")
    return kind if kind in ("byte", "hertz", "cycle") else "count"


def wanted_dimension(metric: str) -> str:
    """Dimension that the unit of ``metric`` must have; empty where it is unknown.

    >>> wanted_dimension("gpu__time_duration.sum"), wanted_dimension("dram__bytes_read.sum"), wanted_dimension("launch__x")
    ('time', 'byte', '')
    >>> wanted_dimension("a__bytes_per_sector.max"), wanted_dimension("dram__bytes_read.sum.per_second")
    ('', 'byte/second')
    """
    return next((kind for pattern, kind in DIMENSIONS if re.fullmatch(pattern, metric)), "")


def decimal_sign(numbers: Iterable[str]) -> Decimal | None:
    """Decimal sign of a file's numbers; None where every number can be read both ways.

    >>> decimal_sign(["1,234.5", "12"]), decimal_sign(["1.234,5"]), decimal_sign(["0,25", "1.024"]), decimal_sign(["1,024"])
    ('point', 'comma', 'comma', None)

    Raises:
        ConfigError: some numbers need a point and some a comma.
    """
    seen: dict[Decimal, str] = {}
    for number in numbers:
        sign = _sign_of(number)
        if sign is not None:
            seen.setdefault(sign, number)
    if len(seen) > 1:
        raise ConfigError(f"{seen['point']!r} has a decimal point and {seen['comma']!r} a decimal comma: wants one locale")
    return next(iter(seen), None)


def _without_spaces(number: str) -> str:
    return number.strip().translate(dict.fromkeys(map(ord, SPACES)))


def _sign_of(number: str) -> Decimal | None:
    """Decimal sign that one number implies: both separators, one of them twice, or a group that has not three digits."""
    text = _without_spaces(number).lstrip("+-").lower().split("e")[0]
    marks = [letter for letter in text if letter in ".,"]
    if not marks or not re.fullmatch(r"[\d.,]+", text):
        return None
    last: Decimal = "point" if marks[-1] == "." else "comma"
    other: Decimal = "comma" if last == "point" else "point"
    if len(set(marks)) == 2:
        return last
    groups = re.split(r"[.,]", text)
    if len(marks) > 1:
        return other  # a number has one decimal sign
    is_grouped = len(groups[1]) == 3 and 1 <= len(groups[0]) <= 3 and groups[0] != "0"
    return None if is_grouped else last


def parse_decimal(text: str, decimal: Decimal) -> float:
    """Value of a number with thousands separators.

    >>> parse_decimal("1,234.5", "point"), parse_decimal("1.234,5", "comma"), parse_decimal("12 345,6", "comma")
    (1234.5, 1234.5, 12345.6)

    Raises:
        ConfigError: the text is no number.
    """
    plain = _without_spaces(text)
    thousands, sign = (r",", r"\.") if decimal == "point" else (r"\.", ",")
    if not re.fullmatch(rf"[+-]?(\d{{1,3}}({thousands}\d{{3}})+|\d+)({sign}\d+)?([eE][+-]?\d+)?", plain):
        raise ConfigError(f"{text!r} is no number with a decimal {decimal}: give --decimal, or export it again")
    plain = plain.replace(thousands.strip("\\"), "").replace(",", ".")
    return float(plain)


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
    lines = {row["ID"]: row for row in reversed(rows) if row["ID"]}
    launches = {idx: lines[idx] for idx in dict.fromkeys(row["ID"] for row in rows if row["ID"])}
    cells = _details(rows) if METRIC_COLUMNS[0] in header else _raw(header, rows)
    if not launches:
        raise ConfigError(f"holds no launch: {complaint(text) or 'a header alone, the profile is cut off or nothing ran'}")
    remarks = _passes(text)
    if any(cell.unit is None for cell in cells):
        remarks.append("no line of units: numbers are taken for bytes, nanoseconds and hertz")
    sign = decimal or decimal_sign(cell.value for cell in cells)
    if sign is None:
        sign = "point"
        doubtful = next((cell for cell in cells if re.search(r"\d[.,]\d", cell.value)), None)
        if doubtful is not None:
            remarks.append(
                f"{doubtful.name} is {doubtful.value!r}, read with a decimal point, as no number of the file tells: give "
                "--decimal comma if that is wrong"
            )
    metrics: dict[str, dict[str, float]] = {idx: {} for idx in launches}
    for cell in cells:
        number = _number(cell, sign)
        if number is None and wanted_dimension(cell.name) and cell.value.strip():
            where = f"launch {cell.launch}, {cell.name}"
            remarks.append(f"{where} is {cell.value.strip()!r}: could not be collected, not compared")
        if number is not None:
            first = metrics[cell.launch].setdefault(cell.name, number)
            if first != number and not _is_rounded(first, number):
                raise ConfigError(
                    f"launch {cell.launch} has {cell.name} twice, {first:g} and {number:g}: wants one pass over each launch"
                )
    return tuple(_launch(idx, launches[idx], metrics[idx]) for idx in launches), tuple(remarks)


def _is_rounded(one: float, other: float) -> bool:
    """Whether two sections print one number, scaled and rounded to two digits."""
    return abs(one - other) <= 0.006 * max(abs(one), abs(other))


def _table(text: str) -> tuple[list[str], list[dict[str, str]]]:
    """(header, rows by column); lines that the profiled program printed in between are left out."""
    lines = text.splitlines(keepends=True)
    start = next((i for i, line in enumerate(lines) if line.startswith('"') and f'"{KERNEL_COLUMN}"' in line), None)
    if start is None:
        raise ConfigError(
            f"holds no table of Nsight Compute: {complaint(text) or 'wants what ncu --csv --page raw (or details) writes'}"
        )
    body = _quoted(lines[start:])
    try:
        header, *table = csv.reader([line.rstrip("\r\n") for line in body], strict=True)
    except csv.Error as error:
        if '";"' in body[0]:
            raise ConfigError("its columns are parted by semicolons, wants commas, as ncu --csv writes them") from None
        raise ConfigError(f"is cut off or no CSV ({error}), wants what ncu --csv writes") from None
    if "Invocations" in header:
        raise ConfigError("is a summary over launches: leave --print-summary out, each launch is judged by itself")
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
    units: Mapping[str, str | None] = next((row for row in rows if not row["ID"]), dict.fromkeys(header))
    names = [name for name in header if "__" in name]
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
        _Cell(row["ID"], LABELS.get(row[name], row[name]), row[unit], row[value])
        for row in rows
        if row[name] in LABELS or "__" in row[name]
    ]


def _number(cell: _Cell, sign: Decimal) -> float | None:
    text, where = cell.value.strip(), f"launch {cell.launch}, {cell.name}"
    wanted = wanted_dimension(cell.name)
    if wanted and (instanced := re.fullmatch(r"([\d.,\s]+?)\s*\(.*\)", text)):
        text = instanced[1]  # instances follow in parentheses
    if text.lower().removeprefix("(!)").strip(" -+") in (*NO_NUMBER, "inf", "no data", "!"):
        return None
    if not re.search(r"\d", text) or re.search(r"[A-Za-z_:;(]", text.replace("e", "").replace("E", "")):
        if wanted not in ("", "%"):
            raise ConfigError(f"{where}: {cell.value!r} is no number")
        return None  # text, for example the name of a cache policy
    try:
        return _in_base_unit(where, cell.name, parse_decimal(text, sign), cell.unit)
    except ConfigError as error:
        raise ConfigError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None


def _in_base_unit(where: str, metric: str, number: float, unit: str | None) -> float:
    """Number of a metric in the base of its ``unit``; None: it is in the base unit."""
    wanted = wanted_dimension(metric)
    if wanted and unit is not None and dimension(unit) != wanted and (unit or wanted != "cycle"):
        raise ConfigError(f"{where}: its unit is {unit!r}, wants one of {'a count' if wanted == 'count' else wanted}")
    if wanted and number < 0.0:
        raise ConfigError(f"{where} is {number:g}, wants 0 or more")
    return number * unit_scale(unit or "")


def _launch(idx: str, row: Mapping[str, str], metrics: Mapping[str, float]) -> ProfiledLaunch:
    kernel = short_name(row[KERNEL_COLUMN])
    if kernel == "range":
        raise ConfigError(f"launch {idx} is a range of launches (range replay), wants kernels by themselves")
    for column in SHAPE_COLUMNS:
        if row.get(column) and not re.fullmatch(r"\(?\s*\d+([\s,.;x]+\d+){0,2}\s*\)?", row[column]):
            raise ConfigError(f"launch {idx}: its {column} is {row[column]!r}, wants for example (128, 1, 1)")
    grid, block = (tuple(map(int, re.findall(r"\d+", row.get(column, "")))) for column in SHAPE_COLUMNS)
    return ProfiledLaunch(
        idx=idx, kernel=kernel, metrics=MappingProxyType(dict(metrics)), grid=grid, block=block,
        capability=row.get("CC", ""), device=row.get(DEVICE, ""),
    )


def short_name(kernel: str) -> str:
    """Name of a kernel without its arguments.

    >>> short_name("void copy<float, (int)4>(float *, int)"), short_name("scale(float)"), short_name("nvjet_sm90_tst")
    ('void copy<float, (int)4>', 'scale', 'nvjet_sm90_tst')
    """
    depth = 0
    for place, letter in enumerate(kernel):
        if letter == "(" and not depth and place:
            return kernel[:place]
        depth += (letter == "<") - (letter == ">")
    return kernel


def _passes(text: str) -> list[str]:
    most = max((int(found[3]) for found in PASSES.finditer(text)), default=1)
    if most < 2:
        return []
    return [f"launches were replayed, up to {most} passes: metrics of one launch may come of different runs of it"]


# ---------------------------------------------------------------------------------------------- reports
def _report(path: Path) -> ProfileFile:
    """Launches of a report file, read with NVIDIA's ``ncu_report``."""
    try:
        import ncu_report
    except ImportError:
        raise ConfigError(
            f"{path}: reading a report wants NVIDIA's package: pip install 'gpusim[ncu]', or export it with "
            f"ncu --import {path.name} --csv --page raw"
        ) from None
    if not path.is_file():
        raise ConfigError(f"{path} is no file, wants a report of Nsight Compute")
    try:
        context = ncu_report.load_report(str(path))
    except Exception as error:  # noqa: BLE001  # ncu_report raises any exception
        raise ConfigError(f"{path}: is no report of Nsight Compute, or cut off ({error})") from None
    actions = [
        context.range_by_idx(i).action_by_idx(j)
        for i in range(context.num_ranges()) for j in range(context.range_by_idx(i).num_actions())
    ]  # fmt: skip
    if not actions:
        raise ConfigError(f"{path}: holds no launch: nothing was profiled, or it is cut off")
    remarks: list[str] = []
    try:
        launches = tuple(_of_action(str(idx), action, remarks) for idx, action in enumerate(actions))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return ProfileFile(path=path, launches=launches, remarks=tuple(remarks))


def _of_action(idx: str, action: Any, remarks: list[str]) -> ProfiledLaunch:
    """Launch of a report's action. Metrics that could not be collected are added to ``remarks``."""
    metrics: dict[str, float] = {}
    device = ""
    for name in action.metric_names():
        metric = action.metric_by_name(name)
        value = metric.value()
        if isinstance(value, float) and not math.isfinite(value):
            if wanted_dimension(name):
                remarks.append(f"launch {idx}, {name} is '{value}': could not be collected, not compared")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            metrics[name] = _in_base_unit(f"launch {idx}, {name}", name, float(value), metric.unit() or None)
        elif name == DEVICE:
            device = str(value)
    shape = {what: tuple(int(metrics.get(f"launch__{what}_dim_{axis}", 0)) for axis in "xyz") for what in ("grid", "block")}
    parts = [metrics.get(f"device__attribute_compute_capability_{part}") for part in ("major", "minor")]
    capability = ".".join(f"{part:.0f}" for part in parts if part is not None)
    return ProfiledLaunch(
        idx=idx, kernel=short_name(action.name()), metrics=MappingProxyType(metrics), capability=capability,
        device=device,
        grid=shape["grid"] if all(shape["grid"]) else (), block=shape["block"] if all(shape["block"]) else (),
    )
