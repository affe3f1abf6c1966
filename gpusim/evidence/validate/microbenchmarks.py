"""Published microbenchmark numbers against the simulator's predictions.

In: ``validation/published/micro.csv`` and a GPU. Out: for each row of that GPU a prediction, or the reason why there is
none.

A number is *cited* if a parameter of that GPU has it as a source. It may only repeat the simulator's input, and does not
judge. A number is *doubtful* if its source or another source gives reason to doubt it, and does not judge either. All are
shown and counted.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from gpusim.errors import ConfigError, GpusimError, nearest
from gpusim.evidence.validate.judge import quantile
from gpusim.evidence.validate.microbenchmark_models import CHOICES, KINDS, NAMES, Kind
from gpusim.evidence.validate.microbenchmark_programs import At
from gpusim.evidence.validate.published import published_dir
from gpusim.machine.config import gpu_names

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec

COLUMNS = ("what", "parameters", "gpu", "value", "unit", "source", "reliability", "doubt", "settles", "note", "why_not")
RELIABILITY = ("read", "second_hand", "derived")
"""Values of the column ``reliability``.

Read in the source itself, read where another text quotes it, or computed from figures that were read."""

UNITS: Mapping[str, tuple[str, ...]] = MappingProxyType({"cycles": ("cycles", "ns", "us"), "B/cycle": ("B/cycle", "GB/s")})
"""Units that a row may have, by the unit of its model's answer; other units are not converted."""

GOAL_PCT = 10.0
"""Error in percent above which a row counts as far."""

Standing = Literal["judges", "cited", "doubtful", "unsaid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A published number."""

    what: str
    parameters: Mapping[str, str]
    gpu: str
    value: float
    unit: str
    source: str
    reliability: str
    doubt: str
    settles: str
    """Parameter that takes over such a number; empty if none does."""
    note: str
    why_not: str

    @property
    def kind(self) -> Kind:
        """Kind of number, with the function that predicts it."""
        return KINDS[self.what]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A row with its prediction, in the row's unit; NaN where ``why_not`` has the reason."""

    row: Row
    standing: Standing
    predicted: float = math.nan
    why_not: str = ""

    @property
    def error_pct(self) -> float:
        """Error in percent of the published number; NaN without a prediction."""
        return 100.0 * (self.predicted - self.row.value) / self.row.value

    @property
    def is_far(self) -> bool:
        """Whether the error exceeds the goal."""
        return abs(self.error_pct) > GOAL_PCT


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Errors of several rows in percent; NaN without rows."""

    name: str
    num_rows: int
    mean_pct: float
    p90_pct: float
    worst_pct: float
    num_far: int


# ---------------------------------------------------------------------------------------------- the table
def read_micro(path: Path | None = None) -> list[Row]:
    """Rows of the table.

    Raises:
        ConfigError: a row names an unknown number, or lacks a field; the text names the line.
    """
    path = path or published_dir() / "micro.csv"
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            columns = ", ".join(reader.fieldnames or ())
            raise ConfigError(f"{path.name}: the columns are {columns}, wants {', '.join(COLUMNS)}")
        rows: dict[tuple[object, ...], Row] = {}
        for fields in reader:
            where = f"{path.name} line {reader.line_num}"
            if None in fields or None in fields.values():
                raise ConfigError(f"{where}: has more or fewer fields than the {len(COLUMNS)} columns, wants one for each")
            row = row_of(fields, where)
            key = (row.what, tuple(row.parameters.items()), row.gpu, row.source, row.note)
            if key in rows:
                raise ConfigError(f"{where}: repeats another row of the same source, wants parameters or a note that differ")
            rows[key] = row
    return list(rows.values())


def row_of(fields: Mapping[str, str], where: str) -> Row:
    """Row from the fields of a line, checked.

    Raises:
        ConfigError: the row is refused; the text begins with ``where``.
    """

    def refuse(problem: str) -> ConfigError:
        return ConfigError(f"{where}: {problem}")

    what = fields["what"]
    if what not in KINDS:
        raise refuse(f"{what!r} is no kind of published number; {nearest(what, KINDS)}")
    kind = KINDS[what]
    if fields["gpu"] not in gpu_names():
        raise refuse(f"gpu {fields['gpu']!r} is unknown; {nearest(fields['gpu'], gpu_names())}")
    parameters = _parameters(fields["parameters"], where)
    if tuple(parameters) != kind.parameters:
        wanted = " ".join(kind.parameters) or "none"
        raise refuse(f"{what} has parameters {' '.join(parameters) or 'none'}, wants {wanted}")
    for name, text in parameters.items():
        if name in CHOICES and text not in CHOICES[name]:
            raise refuse(f"{name} {text!r} is unknown; {nearest(text, CHOICES[name])}")
        if name not in CHOICES and name not in NAMES and not text.isdecimal():
            raise refuse(f"{name} {text!r} is no whole number, wants one")
    value = _number(fields["value"])
    if value is None:
        raise refuse(f"value {fields['value']!r} is no number above 0, wants one")
    units = UNITS.get(kind.unit, (kind.unit,))
    if fields["unit"] not in units:
        raise refuse(f"unit {fields['unit']!r} does not fit {what}, wants {' or '.join(units)}")
    if not fields["source"]:
        raise refuse("has no source, wants one")
    if fields["reliability"] not in RELIABILITY:
        raise refuse(f"reliability {fields['reliability']!r} is unknown; {nearest(fields['reliability'], RELIABILITY)}")
    if kind.ask is None and not fields["why_not"]:
        raise refuse(f"the simulator cannot predict {what}, wants the reason in why_not")
    texts = {name: text for name, text in fields.items() if name not in ("parameters", "value")}
    return Row(parameters=MappingProxyType(parameters), value=value, **texts)


def _parameters(text: str, where: str) -> dict[str, str]:
    """Values of ``a=1 b=x`` by name."""
    values: dict[str, str] = {}
    for word in text.split():
        name, sign, value = word.partition("=")
        if not (name and sign and value) or name in values:
            raise ConfigError(f"{where}: parameters {text!r} want words like bytes=16, each name once")
        values[name] = value
    return values


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0.0 else None


# ---------------------------------------------------------------------------------------------- predictions
def in_unit(value: float, unit_of_kind: str, unit: str, mhz: float) -> float:
    """Answer in the unit of a row, at ``mhz`` MHz.

    >>> in_unit(1980.0, "cycles", "us", 1980.0), in_unit(1000.0, "B/cycle", "GB/s", 1980.0)
    (1.0, 1980.0)
    """
    times = {"ns": 1e3 / mhz, "us": 1.0 / mhz, "GB/s": mhz / 1e3}
    return value if unit == unit_of_kind else value * times[unit]


def is_cited(row: Row, gpu: GpuSpec) -> bool:
    """Whether the parameter of ``gpu`` that the row settles cites the row's source."""
    source = gpu.sources.get(row.settles, "")
    return any(key in source for key in source_keys(row.source))


def source_keys(source: str) -> list[str]:
    """Words that identify a source: repositories and numbers of papers, or else its title.

    >>> source_keys("te42kyfo/gpu-benches @1c36d50, gpu-latency"), source_keys("Luo et al., arXiv 2402.13499, Table 4")
    (['te42kyfo/gpu-benches'], ['2402.13499'])
    >>> source_keys("Chips and Cheese, H100 article, 2023")
    ['Chips and Cheese']
    """
    keys = re.findall(r"\d{4}\.\d{5}", source) or re.findall(r"^[\w.-]+/[\w.-]+", source)
    return keys or [source.partition(",")[0]]


def judge_micro(rows: Iterable[Row], gpu: GpuSpec) -> list[Verdict]:
    """Predictions for the rows of ``gpu``, or reasons why there is none. At the highest clock unless the answer has one."""
    answers: dict[tuple[object, ...], float | At | str] = {}
    verdicts = []
    for row in rows:
        if row.gpu != gpu.name:
            continue
        if row.why_not or row.kind.ask is None:
            verdicts.append(Verdict(row=row, standing="unsaid", why_not=row.why_not))
            continue
        key = (row.what, tuple(row.parameters.items()))
        if key not in answers:
            try:
                answers[key] = row.kind.ask(row.parameters, gpu)
            except GpusimError as error:
                answers[key] = str(error)
        answer = answers[key]
        if isinstance(answer, str):
            verdicts.append(Verdict(row=row, standing="unsaid", why_not=answer))
            continue
        standing: Standing = "cited" if is_cited(row, gpu) else "doubtful" if row.doubt else "judges"
        at = answer if isinstance(answer, At) else At(answer, gpu.clock.max_mhz)
        predicted = in_unit(at.value, row.kind.unit, row.unit, at.mhz)
        verdicts.append(Verdict(row=row, standing=standing, predicted=predicted))
    return verdicts


def summary(name: str, verdicts: Sequence[Verdict]) -> Summary:
    """Errors of the predictions among ``verdicts``; ``num_rows`` counts all of them."""
    errors = [abs(item.error_pct) for item in verdicts if item.standing != "unsaid"]
    if not errors:
        return Summary(name=name, num_rows=len(verdicts), mean_pct=math.nan, p90_pct=math.nan, worst_pct=math.nan, num_far=0)
    return Summary(
        name=name, num_rows=len(verdicts), mean_pct=fmean(errors), p90_pct=quantile(errors, 0.9), worst_pct=max(errors),
        num_far=sum(item.is_far for item in verdicts),
    )  # fmt: skip


def summaries(verdicts: Sequence[Verdict]) -> list[Summary]:
    """Summaries by standing, and of all rows at the end; the four standings count every row once."""
    names: tuple[Standing, ...] = ("judges", "cited", "doubtful", "unsaid")
    by_standing = [summary(name, [item for item in verdicts if item.standing == name]) for name in names]
    return [*by_standing, summary("all", verdicts)]


def families(verdicts: Sequence[Verdict]) -> list[Summary]:
    """Summaries of the judging rows by kind of number, in the order of their first row."""
    by_what: dict[str, list[Verdict]] = {}
    for item in verdicts:
        if item.standing == "judges":
            by_what.setdefault(item.row.what, []).append(item)
    return [summary(name, items) for name, items in by_what.items()]
