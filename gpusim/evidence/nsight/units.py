"""Numbers and units as Nsight Compute prints them: SI prefixes, thousands separators, decimal commas.

In: a number's text, its unit, its metric. Out: a number in base units: bytes, nanoseconds, hertz, percent.

Source: Nsight Compute CLI documentation, "Options" and "CSV".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal

from gpusim.errors import ConfigError

SCALES: Mapping[str, float] = MappingProxyType({"": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15})
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
    own, sign = (",", r"\.") if decimal == "point" else (r"\.", ",")
    grouped = rf"\d{{1,3}}(?P<mark>[{own}{SPACES}])\d{{3}}((?P=mark)\d{{3}})*"
    found = re.fullmatch(rf"(?P<whole>[+-]?({grouped}|\d+))(?P<rest>({sign}\d+)?([eE][+-]?\d+)?)", text.strip(), re.ASCII)
    if found is None:
        raise ConfigError(f"{text!r} is no number with a decimal {decimal}: give --decimal, or export it again")
    number = float(re.sub(r"[^\d+-]", "", found["whole"]) + found["rest"].replace(",", "."))
    if not math.isfinite(number):
        raise ConfigError(f"{text[:20]!r} is too large for a number: export it again")
    return number


def in_base_unit(where: str, metric: str, number: float, unit: str | None) -> float:
    """Number of a metric in the base of its ``unit``; None: it is in the base unit.

    Raises:
        ConfigError: the unit is of another dimension, the number is negative, or a count is no integer.
    """
    wanted = wanted_dimension(metric)
    if wanted and unit is not None and dimension(unit) != wanted and (unit or wanted != "cycle"):
        raise ConfigError(f"{where}: its unit is {unit!r}, wants one of {'a count' if wanted == 'count' else wanted}")
    if wanted and number < 0.0:
        raise ConfigError(f"{where} is {number:g}, wants 0 or more")
    scale = unit_scale(unit or "")
    is_counted = wanted in ("byte", "count", "cycle") and metric.endswith((".sum", ".max", ".min"))
    if is_counted and unit is not None and scale == 1.0 and not number.is_integer():
        raise ConfigError(f"{where} is {number!r}, wants an integer: is its decimal sign another one?")
    return number * scale
