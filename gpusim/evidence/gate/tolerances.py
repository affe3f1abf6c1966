"""Tolerances of Nsight Compute metrics in the gate, each with its source.

A metric belongs to a class by its name, and the class has a limit. Where a kernel's family was judged on rows that nothing
was fitted to, the P90 of these errors (``validation/held_out.toml``) is the limit. A limit that the user requests overrides
both. Metrics without a class are shown and not judged.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from gpusim.errors import ConfigError, nearest
from gpusim.evidence.cases.case import kernels_dir
from gpusim.evidence.cases.judged_metrics import CYCLES, DURATION, JUDGED_COUNTS
from gpusim.evidence.nsight.metrics import CLASSES, JUDGED_SHARES, RAW_COUNTS, SAME, class_of, in_points, same_as


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Limit of a difference: percent of the measured value, or points if the metric is in percent."""

    limit: float
    absolute: float = 0.0
    """Difference in the metric's own unit up to which it passes, however many percent that is."""
    is_points: bool = False
    source: str = ""

    @property
    def text(self) -> str:
        """Limit as a table shows it; ``pt``: percentage points.

        >>> Tolerance(limit=10.0).text, Tolerance(limit=3.0, is_points=True).text, Tolerance(limit=10.0, absolute=4e3).text
        ('10 %', '3 pt', '10 %, 4,000')
        """
        if math.isinf(self.limit):
            return ""
        return f"{self.limit:g} {'pt' if self.is_points else '%'}" + (f", {self.absolute:,.6g}" if self.absolute else "")


class AskedLimit(float):
    """Limit in percent or points, and the difference in the metric's own unit up to which it passes."""

    absolute: float

    def __new__(cls, limit: float, absolute: float = 0.0) -> AskedLimit:
        """Limit with its second condition; both have to be exceeded for a failure."""
        made = super().__new__(cls, limit)
        made.absolute = absolute
        return made


HELD_OUT_NAMES = frozenset({CYCLES, *JUDGED_COUNTS, *JUDGED_SHARES})
"""Metrics whose P90 is kept."""

SHARES = ("busiest_part", "throughput")
"""Classes of shares of peaks."""
USELESS = 25.0
"""Percent above which a P90 is no tolerance. The model does not know that number, and it is only shown."""
USELESS_SHARE = 10.0
"""Points of a share of a peak, likewise."""


def parse_tolerance(text: str, flag: str = "--tolerance") -> tuple[str, float]:
    """(class or metric, limit) of ``NAME=LIMIT``; percent, or points for hit rates.

    A second number is a difference in the metric's own unit (bytes, ns, cycles). Only what exceeds both fails.

    >>> parse_tolerance("cycles=10%"), parse_tolerance("dram__bytes_read.sum=2.5")
    (('cycles', 10.0), ('dram__bytes_read.sum', 2.5))

    Raises:
        ConfigError: the name is unknown, or there is no limit.
    """
    name, mark, limit = text.partition("=")
    if not mark:
        raise ConfigError(f"{flag} {text!r} wants NAME=LIMIT, for example cycles=10%")
    if "=" in limit:
        raise ConfigError(f"{flag} {text!r} holds several limits, wants {flag} once for each")
    return next(iter(limits_of({name.strip(): limit}, flag).items()))


def limits_of(limits: Mapping[str, str | float], flag: str = "tolerance") -> dict[str, float]:
    """Limits by class or metric, parsed from text.

    Raises:
        ConfigError: a name is unknown, or a limit is no number from 0 on.
    """
    return {_checked_name(name, flag): _limit(name, limit, flag) for name, limit in limits.items()}


def _limit(name: str, limit: str | float, flag: str) -> float:
    number = re.fullmatch(
        r"\s*(\d+(?:\.\d+)?)\s*(%|pt|points)?\s*(?:,\s*(\d+(?:\.\d+)?(?:[eE]\d+)?)\s*)?", str(limit), re.ASCII
    )
    if number is None:
        raise ConfigError(
            f"{flag} {name}={limit} wants a number of percent from 0 on, for example {name}=10%; with a second condition: "
            f"{name}=10%,2000"
        )
    value = AskedLimit(float(number[1]), float(number[3] or 0.0))
    is_points = in_points(name) or any(kind.name == name and kind.is_points for kind in CLASSES)
    if not number[2] and 0.0 < value < 1.0 and not is_points:  # a fraction, or a part of a percent: ambiguous
        raise ConfigError(
            f"{flag} {name}={limit} is a share or less than one percent, wants its unit: {name}={100.0 * value:g}% or "
            f"{name}={value:g}%"
        )
    return value


def _checked_name(name: str, flag: str) -> str:
    known = dict.fromkeys(item.name for item in CLASSES)
    if name in known:
        return name
    if not re.fullmatch(r"[a-z0-9]+__\w+(\.\w+)*", name):
        raise ConfigError(f"{flag} {name!r} is unknown; wants a metric ({CYCLES}) or a class: {nearest(name, known)}")
    if "." not in name and not name.startswith(("launch__", "device__")):
        meant = [metric for metric in (*HELD_OUT_NAMES, *SAME, DURATION) if metric.partition(".")[0] == name]
        best = min(meant, key=lambda each: (each not in HELD_OUT_NAMES, each), default="")
        hint = f"did you mean {best!r}?" if meant else f"such as {name}.sum"
        raise ConfigError(f"{flag} {name!r} lacks how it is summed up (.sum, .avg, .max, .pct); {hint}")
    return name


def tolerance_of(metric: str, model: str, gpu: str, asked: Mapping[str, float]) -> Tolerance | None:
    """Tolerance of ``metric`` for a launch of ``model``; None where the metric is only shown.

    ``asked``: limits of the command line, by metric or class.

    >>> tolerance_of("gpu__time_duration.sum", "transpose", "h200_sxm", {}).source[:30]
    "P90 of transpose's judged rows"
    >>> tolerance_of("gpu__time_duration.sum", "transpose", "h200_sxm", {"time": 4.0}).text
    '4 %'
    """
    kind = class_of(metric)
    is_points = in_points(metric)
    for name in (metric, kind.name if kind else ""):
        if name in asked:
            absolute = getattr(asked[name], "absolute", 0.0)
            return Tolerance(limit=asked[name], absolute=absolute, is_points=is_points, source=f"asked for, {name}")
    if kind is None or kind in RAW_COUNTS:
        return None
    known = _held_out().get(gpu, {})
    p90 = known.get(model, {}).get(kind.held_out or same_as(metric))
    most = USELESS_SHARE if kind.name in SHARES else USELESS
    if p90 is not None and p90 > most:
        error = f"{p90:g} {'points' if is_points else '%'}"
        return Tolerance(limit=math.inf, is_points=is_points, source=f"not judged: the P90 of {model}'s rows is {error}")
    if p90 is not None and (kind.held_out or kind.is_of_family or p90 > kind.limit):
        source = f"validation/studies/judged_shares_{gpu}.csv" if metric in JUDGED_SHARES else known["source"]
        return Tolerance(limit=p90, is_points=is_points, source=f"P90 of {model}'s judged rows: {source}")
    source = kind.source if math.isinf(kind.limit) else f"default of {kind.name}: {kind.source}"
    return Tolerance(limit=kind.limit, is_points=is_points, source=source)


@cache
def _held_out() -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    """P90 by GPU, family and metric; each GPU also has its ``source``."""
    path = kernels_dir().parent / "validation" / "held_out.toml"
    return MappingProxyType(tomllib.loads(path.read_text(encoding="utf-8")))
