"""Nsight Compute command line, the parser of its raw CSV page, and explanations of its error messages.

In: the text that ``ncu --csv --page raw`` writes. Out: a :class:`Profile` for each launch, in launch order.

Source: Nsight Compute CLI documentation, "Options" and "CSV". Lines that begin with ``==`` are messages. The first line of
the table holds names, the second units. Numbers may have thousands separators.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from gpusim.errors import ConfigError

KERNEL_COLUMN = "Kernel Name"

SHAPE_COLUMNS = ("Grid Size", "Block Size")

COMPLAINTS = (
    ("ERR_NVGPUCTRPERM", "the performance counters are for administrators only here: run as root, or load the driver with "
     "NVreg_RestrictProfilingToAdminUsers=0"),
    ("LibraryNotLoaded", "the profiler finds no library of its own on this machine: counters cannot be read here"),
    ("Failed to initialize the profiler", "the profiler cannot start on this machine: counters cannot be read here"),
    ("Failed to find metric", "a metric is unknown to this version or GPU"),
    ("is not supported on", "this GPU is not supported by the installed version: use another one"),
    ("Profiling is not supported", "this GPU cannot be profiled by the installed version"),
    ("No kernels were profiled", "no kernel was launched"),
)
"""Parts of Nsight Compute's messages, with their meanings."""

NO_NUMBER = ("", "n/a", "nan")
"""Texts of a metric that could not be collected."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One launch: the kernel's name, its metrics by name, its shape (empty where the table has none)."""

    kernel: str
    metrics: dict[str, float]
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()


def ncu_command(
    ncu: str, metrics: Sequence[str], log: str, program: Sequence[str], *, cache_control: str = "none",
    is_marked: bool = False,
) -> list[str]:
    """Command that runs ``program`` under Nsight Compute with unchanged clocks and one line of CSV per launch.

    ``is_marked``: only launches between the program's own start and stop of the profiler are counted.

    >>> ncu_command("ncu", ["a.sum", "b.sum"], "log", ["python", "-m", "gpusim"])[-5:]
    ['--log-file', 'log', 'python', '-m', 'gpusim']
    """
    return [
        ncu, "--clock-control", "none", "--cache-control", cache_control, "--csv", "--page", "raw", "--print-units", "base",
        *(("--profile-from-start", "off") if is_marked else ()),
        "--metrics", ",".join(metrics), "--force-overwrite", "--log-file", log, *program,
    ]  # fmt: skip


def parse_number(text: str) -> float:
    """Value of a number as Nsight Compute prints it.

    >>> parse_number("1,234"), parse_number("0.50"), parse_number("12,345,678.25")
    (1234.0, 0.5, 12345678.25)

    Raises:
        ConfigError: the text is no number.
    """
    if not re.fullmatch(r"[+-]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?([eE][+-]?\d+)?", text):
        raise ConfigError(f"Nsight Compute: {text!r} is no number, wants for example 1,234.5: check its locale and metrics")
    return float(text.replace(",", ""))


def parse_profiles(text: str, metrics: Iterable[str]) -> list[Profile]:
    """Launches of a raw CSV, in launch order, with those of ``metrics`` that have a number.

    >>> text = '''==PROF== Connected to process 7
    ... "ID","Kernel Name","a.sum","b.sum"
    ... "","","",""
    ... "0","k(int)","1,024","3"
    ... '''
    >>> parse_profiles(text, ["a.sum", "c.sum"])
    [Profile(kernel='k', metrics={'a.sum': 1024.0}, grid=(), block=())]

    Raises:
        ConfigError: there is no table, a row is cut off, launches are out of order, or a metric is text.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    if not lines:
        raise ConfigError(f"Nsight Compute: no table came back: {complaint(text) or 'it said nothing'}")
    header, *table = csv.reader(lines, strict=True)
    if KERNEL_COLUMN not in header or header[0] != "ID":
        raise ConfigError(f"Nsight Compute: a table begins with {header[:3]}, wants the raw page: use --page raw")
    profiles: list[Profile] = []
    for row in table:
        if not row[0]:  # the units
            continue
        if len(row) != len(header) or row[0] != str(len(profiles)):
            raise ConfigError(
                f"Nsight Compute: launch {row[0]} came as {len(profiles)}, with {len(row)} of {len(header)} fields"
            )
        named = dict(zip(header, row, strict=True))
        numbers = {name: parse_number(named[name]) for name in metrics if named.get(name, "n/a") not in NO_NUMBER}
        shape = [tuple(map(int, re.findall(r"\d+", named.get(column, "")))) for column in SHAPE_COLUMNS]
        profiles.append(Profile(named[KERNEL_COLUMN].split("(")[0], numbers, *shape))
    return profiles


def between_marks(profiles: Iterable[Profile], mark: str) -> list[list[Profile]]:
    """Launches after each launch whose kernel has ``mark`` in its name, up to the next such launch.

    >>> launches = [Profile(name, {}) for name in ("fill", "gemm", "fill", "gemm", "reduce")]
    >>> [[item.kernel for item in group] for group in between_marks(launches, "fill")]
    [['gemm'], ['gemm', 'reduce']]
    """
    groups: list[list[Profile]] = []
    for profile in profiles:
        if mark in profile.kernel:
            groups.append([])
        elif groups:
            groups[-1].append(profile)
    return groups


def with_followers(profiles: Iterable[Profile], followers: Collection[str]) -> list[Profile]:
    """Launches, each combined with those of ``followers`` right after it.

    >>> launches = [Profile("gemm", {"a.sum": 3.0}), Profile("add", {"a.sum": 1.0}), Profile("gemm", {"a.sum": 2.0})]
    >>> [profile.metrics["a.sum"] for profile in with_followers(launches, ("add",))]
    [4.0, 2.0]
    """
    groups: list[list[Profile]] = []
    for profile in profiles:
        if groups and profile.kernel in followers:
            groups[-1].append(profile)
        else:
            groups.append([profile])
    return [added_up(group) if len(group) > 1 else group[0] for group in groups]


def added_up(profiles: Sequence[Profile]) -> Profile:
    """Launches of one config as one: sums, cycles and times are added, the rest is from the longest launch.

    >>> first = Profile("gemm", {"a.sum": 3.0, "sm__cycles_elapsed.max": 90.0, "b.pct": 50.0}, (8, 1, 1))
    >>> both = added_up([first, Profile("reduce", {"a.sum": 1.0, "sm__cycles_elapsed.max": 10.0, "b.pct": 0.0})])
    >>> both.kernel, both.metrics, both.grid
    ('gemm + reduce', {'a.sum': 4.0, 'sm__cycles_elapsed.max': 100.0, 'b.pct': 50.0}, (8, 1, 1))
    """
    longest = max(profiles, key=lambda profile: profile.metrics.get("sm__cycles_elapsed.max", 0.0))
    metrics = {
        name: sum(profile.metrics.get(name, 0.0) for profile in profiles)
        if name.endswith(".sum") or name.startswith("sm__cycles_") else value
        for name, value in longest.metrics.items()
    }  # fmt: skip
    return Profile(" + ".join(profile.kernel for profile in profiles), metrics, longest.grid, longest.block)


def parse_metric_names(text: str) -> set[str]:
    """Base names that ``ncu --query-metrics`` lists; empty where it lists none.

    >>> parse_metric_names('''Device NVIDIA H200 (GH100)
    ... Metric Name   Metric Type  Metric Unit  Metric Description
    ... dram__bytes   Counter      byte         # of bytes accessed in DRAM
    ... ''')
    {'dram__bytes'}
    """
    return set(re.findall(r"^\"?([A-Za-z][A-Za-z0-9]*__\w+)", text, re.MULTILINE))


def available(metrics: Iterable[str], known: set[str]) -> tuple[list[str], list[str]]:
    """(``metrics`` that a GPU has, those that it lacks); if nothing is ``known``, all count as available.

    Launch parameters (``launch__*``) are always available and in no list.

    >>> available(["dram__bytes.sum", "nothing__such.sum"], {"dram__bytes"})
    (['dram__bytes.sum'], ['nothing__such.sum'])
    """
    metrics = list(metrics)
    lacking = [metric for metric in metrics
               if known and not metric.startswith("launch__") and metric.split(".", maxsplit=1)[0] not in known]
    return [metric for metric in metrics if metric not in lacking], lacking


def complaint(text: str) -> str | None:
    """Explanation of an error in Nsight Compute's messages, else the message itself; None where there is no error.

    >>> complaint("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission")[:24]
    'the performance counters'
    """
    for mark, meaning in COMPLAINTS:
        if mark in text:
            line = re.search(rf"^==\w+== (.*{re.escape(mark)}.*)$", text, re.MULTILINE)
            return f"{meaning} ({line[1].strip()})" if line and mark == "Failed to find metric" else meaning
    line = re.search(r"^==ERROR== (.+)$", text, re.MULTILINE)
    return line[1].strip() if line else None
