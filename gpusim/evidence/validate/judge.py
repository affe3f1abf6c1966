"""Prediction errors against measured GPU rows, for every judging row of a tier, kernel by kernel.

In: measured tables, the cases that ask the simulator, the GPU's description. Out: errors by row and summarized, and whether
they pass. Rows that calibrated a parameter are never judged.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING

from gpusim.errors import ConfigError
from gpusim.evidence.bench.timing import UNTOLD
from gpusim.evidence.cases.case import Answer, Case, Limit, asked
from gpusim.evidence.cases.rows import Table, config_of, number_in
from gpusim.evidence.validate.answers import Question, answers_to, asked_rows, questions_of

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One level of the validation ladder, and the error limits of a family of rows."""

    question: str
    limit: Limit


TIERS: Mapping[int, Tier] = MappingProxyType(
    {
        2: Tier(question="latency of one access on an idle machine", limit=Limit(worst_pct=5.0)),
        3: Tier(question="counts", limit=Limit(worst_pct=0.0)),
        4: Tier(question="rates at saturation", limit=Limit(worst_pct=3.0)),
        5: Tier(question="whole kernels: sectors, bytes, hit rates, instructions", limit=Limit(mean_pct=5.0)),
        6: Tier(question="whole kernels: cycles", limit=Limit(mean_pct=6.0, p90_pct=12.0, worst_pct=25.0)),
        7: Tier(question="whole kernels: time and clock", limit=Limit(mean_pct=7.0)),
    }
)
"""Tiers 2 to 7 of the ladder. Tiers 0 and 1 are tests. Source: validation/README.md."""


AGAIN = "single_us"
"""Column with the time of further launches, separate from the counted launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One number of one row: predicted and measured."""

    kernel: str
    group: str
    name: str
    tier: int
    config: Mapping[str, str]
    predicted: float
    measured: float
    limit: Limit | None = None
    """Limits of the number where they differ from the tier's."""
    roofline: float | None = None
    """Prediction from the data sheet's peaks alone."""
    floor: float = 0.0
    """Smallest reference for relative errors."""
    spread_pct: float | None = None
    """Half the range of repeated measurements, in percent of the measured value; None without repeats."""
    is_validation: bool = False
    """Row of a validation kernel."""
    family: str = ""
    """Family that the row is summarized with; empty: its kernel."""
    cuts: tuple[str, ...] = ()
    """Further names, across families, under which the row is summarized too."""
    again_us: float | None = None
    """Time in us of another launch of the kernel; None where none was timed."""
    problem: Hashable = None
    """Problem that the row computes. Judgements of one problem are ranked against each other."""

    @property
    def limits(self) -> Limit:
        """Limits that its family must keep."""
        return self.limit or TIERS[self.tier].limit

    @property
    def error_pct(self) -> float:
        """Prediction error in percent, or in points. See :meth:`error_of`.

        >>> Judgement(kernel="k", group="g", name="n", tier=3, config={}, predicted=9.0, measured=10.0).error_pct
        -10.0
        """
        return self.error_of(self.predicted)

    @property
    def roofline_pct(self) -> float | None:
        """Roofline error in percent, or in points; None without a roofline."""
        return None if self.roofline is None else self.error_of(self.roofline)

    def error_of(self, number: float) -> float:
        """``number`` minus the measured value, in percent of the measured value or of the floor.

        In points: the difference alone. Infinite if the measured value is zero, ``number`` is not, and there is no floor.
        """
        if number == self.measured:
            return 0.0
        if self.limits.is_points:
            return number - self.measured
        reference = max(self.measured, self.floor)
        return 100.0 * (number - self.measured) / reference if reference else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Errors of one family: the rows of a kernel's group for one number."""

    kernel: str
    group: str
    name: str
    tier: int
    num_rows: int
    mean_pct: float
    p90_pct: float
    worst_pct: float
    limit: Limit
    roofline_pct: float | None = None
    """Mean error of the roofline in percent, over the rows that have one."""
    spread_pct: float | None = None
    """Mean spread of the rows in percent. Errors below it carry no information."""
    num_families: int = 0
    """Number of families that the line summarizes; 0: it is one family.

    Of several families, ``mean_pct`` and ``roofline_pct`` are means of their means. P90 and worst are over all rows."""

    @property
    def passes(self) -> bool:
        """Whether the family keeps its limits."""
        of = self.limit
        limits = ((self.mean_pct, of.mean_pct), (self.p90_pct, of.p90_pct), (self.worst_pct, of.worst_pct))
        return all(most is None or found <= most for found, most in limits)


def judge(cases: Iterable[Case], folder: Path, gpu: GpuSpec, tiers: Iterable[int]) -> list[Judgement]:
    """Judgements of all numbers of ``tiers`` in judging rows of ``folder`` that the simulator predicts for ``gpu``.

    Rows of configs that a case does not request are left out; :func:`not_judged` lists them. Everything runs in this
    process; :mod:`gpusim.evidence.validate.answers` has worker processes and a cache.

    Raises:
        ConfigError: a table lacks a column of its case's configs, a field holds no number, or a case's function fails.
    """
    wanted, by_name = set(tiers), {case.name: case for case in cases}
    questions = [question for case in by_name.values() for question in questions_of(case, folder, gpu, wanted)]
    return [
        item
        for question, answers in answers_to(questions, gpu, by_name)
        for item in judgements_of(by_name[question.case], question, answers, wanted)
    ]


def judgements_of(case: Case, question: Question, answers: Mapping[str, Answer], tiers: Collection[int]) -> list[Judgement]:
    """Judgements of the numbers of ``tiers`` that were requested and predicted.

    Raises:
        ConfigError: a field of the row holds no number.
    """
    row = question.row
    config = config_of(row, case.columns)
    family, *cuts = case.families(row["group"], config) or (case.name,)
    judgements = []
    for name in question.names:
        try:
            measured = measured_in(case, row, name)
        except ConfigError as error:
            raise ConfigError(f"{question.path}: {error}") from None
        if name not in answers or case.tiers[name] not in tiers or measured is None or _is_no_rate(row, name):
            continue
        judgements.append(
            Judgement(
                kernel=case.name, group=row["group"], name=name, tier=case.tiers[name], config=config,
                predicted=answers[name].value, measured=measured, limit=case.limits.get(name),
                roofline=answers[name].roofline, floor=answers[name].floor, spread_pct=_spread_pct(row, name),
                is_validation=case.is_validation, family=family, cuts=tuple(cuts), problem=case.problem(config),
                again_us=number_in(row, AGAIN) if case.is_validation and row.get(AGAIN) else None,
            )
        )  # fmt: skip
    return judgements


def measured_in(case: Case, row: Mapping[str, str], name: str) -> float | None:
    """Number in a row, or one derived from several of its columns; None where it is missing."""
    if name in case.derived:
        return case.derived[name](row)
    return number_in(row, name) if row.get(name) else None


def _is_no_rate(row: Mapping[str, str], name: str) -> bool:
    """Whether a rate exceeds 100 %. This happens in short launches whose parts were counted in different passes."""
    return name.endswith("_rate.pct") and bool(row.get(name)) and number_in(row, name) > 100.0


def _spread_pct(row: Mapping[str, str], name: str) -> float | None:
    """Half the range of the repeats, in percent of the number itself."""
    ends = (f"{name}_min", f"{name}_max")
    if not all(row.get(end) for end in ends):
        return None
    least, most = (number_in(row, end) for end in ends)
    return 50.0 * (most - least) / abs(number_in(row, name)) if number_in(row, name) else None


def not_judged(
    cases: Sequence[Case], folder: Path, tiers: Iterable[int], gpu: GpuSpec | None = None, *, knows_all: bool = True
) -> list[str]:
    """A sentence for each table, row or column that is not judged because it is unknown, not requested or missing.

    With ``gpu`` also one for each row that the model refuses. ``knows_all``: ``cases`` are all cases, so that other tables
    belong to no kernel.
    """
    wanted, known = set(tiers), {case.name for case in cases}
    strangers = [path.name for path in sorted(folder.glob("*.csv")) if knows_all and path.stem not in known]
    lines = [f"{name}: no kernel has that name, not judged" for name in strangers]
    for case in cases:
        path = folder / f"{case.name}.csv"
        if not path.exists():
            continue
        table = Table.read(path)
        lacking = [
            name for name, tier in case.tiers.items()
            if tier in wanted and name not in {*table.columns, *UNTOLD, *case.derived}
        ]
        if lacking:
            lines.append(f"{path.name}: has no column {', '.join(lacking)}, not judged")
        if set(case.columns) <= set(table.columns) and set(case.tiers.values()) & wanted:
            num_strays = len(table.rows) - len(asked_rows(case, table.rows))
            if num_strays:
                lines.append(f"{path.name}: holds {num_strays} rows of configs that {case.name} does not have, not judged")
        for row in table.rows if gpu is not None and set(case.tiers.values()) & wanted else ():
            config = config_of(row, case.columns)
            reason = asked(case, "refused", case.refused, config, row, gpu)
            if reason is not None:
                options = ", ".join(f"{key} {value}" for key, value in config.items())
                lines.append(f"{path.name}: {options}: not predicted and not judged: {reason}")
        for name in (name for name, tier in case.tiers.items() if tier in wanted):
            if num := sum(_is_no_rate(row, name) for row in table.rows):
                lines.append(f"{path.name}: holds {num} values of {name} above 100 %, which is no rate, not judged")
    return lines


def unmeasured(cases: Sequence[Case], folder: Path) -> list[str]:
    """A sentence for validation kernels, and one for microbenchmarks, that no table in ``folder`` has rows of."""
    lines = []
    for what, is_validation in (("validation kernels", True), ("microbenchmarks", False)):
        mine = (case.name for case in cases if case.is_validation == is_validation)
        names = [name for name in mine if not (folder / f"{name}.csv").exists()]
        if names:
            command = f"gpusim measure {' '.join(names)}"
            lines.append(f"no rows of {len(names)} {what}, so nothing judges these; on that GPU: {command}")
    return lines


def summaries(judgements: Iterable[Judgement]) -> list[Summary]:
    """Summaries of families, in the order of their first row."""
    families: dict[tuple[str, str, str, int], list[Judgement]] = {}
    for item in judgements:
        families.setdefault((item.kernel, item.group, item.name, item.tier), []).append(item)
    return [_summary(*key, items) for key, items in families.items()]


def _summary(kernel: str, group: str, name: str, tier: int, items: Sequence[Judgement]) -> Summary:
    errors = [abs(item.error_pct) for item in items]
    rooflines = [abs(item.roofline_pct) for item in items if item.roofline_pct is not None]
    spreads = [item.spread_pct for item in items if item.spread_pct is not None]
    return Summary(
        kernel=kernel, group=group, name=name, tier=tier, num_rows=len(errors), mean_pct=fmean(errors),
        p90_pct=quantile(errors, 0.9), worst_pct=max(errors), limit=items[0].limits,
        roofline_pct=fmean(rooflines) if rooflines else None, spread_pct=fmean(spreads) if spreads else None,
    )  # fmt: skip


def _limit_pct(item: Judgement) -> float:
    """Mean limit of an item's family, in percent."""
    return math.inf if item.limits.mean_pct is None else item.limits.mean_pct


def totals(judgements: Iterable[Judgement]) -> list[Summary]:
    """Totals over all validation kernels, one line a name.

    The mean is over the families' means. P90 and worst are over all their rows. A family here is a kernel, or a part of one
    that its case separates, with all its groups. The limit is the strictest of any family.
    """
    by_name: dict[tuple[int, str], list[Judgement]] = {}
    for item in judgements:
        if item.is_validation:
            by_name.setdefault((item.tier, item.name), []).append(item)
    lines = []
    for (tier, name), items in by_name.items():
        families = summaries(replace(item, kernel=item.family or item.kernel, group="") for item in items)
        rooflines = [family.roofline_pct for family in families if family.roofline_pct is not None]
        lines.append(
            replace(
                _summary("whole kernels", "", name, tier, sorted(items, key=_limit_pct)), num_families=len(families),
                mean_pct=fmean(family.mean_pct for family in families),
                roofline_pct=fmean(rooflines) if rooflines else None,
            )
        )  # fmt: skip
    return lines


def quantile(numbers: Iterable[float], share: float) -> float:
    """Smallest of ``numbers`` that at least a fraction ``share`` of them does not exceed.

    >>> quantile([5.0, 1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0, 9.0, 10.0], 0.9)
    9.0
    """
    ordered = sorted(numbers)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
