"""What the simulator answers beside what a GPU gave: every judging row of a tier, kernel by kernel.

In: measured tables, the cases that know how to ask the simulator, the GPU's description. Out: errors, row by row and summed
up, and whether they pass. A row that calibrated is never judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING

from gpusim.errors import ConfigError
from gpusim.evidence.calibrate import halves
from gpusim.evidence.case import Case, asked, load_case
from gpusim.evidence.rows import Table, config_of, number_in
from gpusim.evidence.toolkit import FOLDERS

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A rung of the ladder, and how close a family of rows must come, in percent; None: no limit."""

    question: str
    mean_pct: float | None = None
    p90_pct: float | None = None
    worst_pct: float | None = None


TIERS: Mapping[int, Tier] = MappingProxyType(
    {
        2: Tier(question="latency of one access on an idle machine", worst_pct=5.0),
        3: Tier(question="counts", worst_pct=0.0),
        4: Tier(question="rates at saturation", worst_pct=3.0),
        5: Tier(question="whole kernels: sectors, bytes, hit rates, instructions", mean_pct=5.0),
        6: Tier(question="whole kernels: cycles", mean_pct=5.0, p90_pct=10.0, worst_pct=20.0),
        7: Tier(question="whole kernels: time", mean_pct=7.0),
    }
)
"""Tiers 0 and 1 are tests. Source: validation/README.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One number of one row."""

    kernel: str
    group: str
    name: str
    tier: int
    config: Mapping[str, str]
    predicted: float
    measured: float

    @property
    def error_pct(self) -> float:
        """Predicted over measured, less one; infinite where nothing was measured and something predicted.

        >>> Judgement(kernel="k", group="g", name="n", tier=3, config={}, predicted=9.0, measured=10.0).error_pct
        -10.0
        """
        if self.predicted == self.measured:
            return 0.0
        return 100.0 * (self.predicted - self.measured) / self.measured if self.measured else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A family: the rows of a kernel's group for one number."""

    kernel: str
    group: str
    name: str
    tier: int
    num_rows: int
    mean_pct: float
    p90_pct: float
    worst_pct: float

    @property
    def passes(self) -> bool:
        """Whether the family keeps the limits of its tier."""
        tier = TIERS[self.tier]
        limits = ((self.mean_pct, tier.mean_pct), (self.p90_pct, tier.p90_pct), (self.worst_pct, tier.worst_pct))
        return all(most is None or found <= most for found, most in limits)


def judge(cases: Iterable[Case], folder: Path, gpu: GpuSpec, tiers: Iterable[int]) -> list[Judgement]:
    """Every number of ``tiers`` that judging rows in ``folder`` have and the simulator answers for ``gpu``.

    Raises:
        ConfigError: a table lacks a column of its case's configs, holds no number where one is wanted, or a case's own code
            fails.
    """
    wanted = set(tiers)
    found = []
    for case in cases:
        path = folder / f"{case.name}.csv"
        names = {name: tier for name, tier in case.tiers.items() if tier in wanted}
        if not names or not path.exists():
            continue
        table = Table.read(path)
        table.check_gpu(gpu.name, FOLDERS)
        try:
            for row in halves(case, table)[1]:
                found += _judged(case, row, names, gpu)
        except ConfigError as error:
            raise ConfigError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None
    return found


def judge_case(name: str, folder: Path, gpu: GpuSpec, tiers: Iterable[int]) -> list[Judgement]:
    """:func:`judge` for the case of that name alone: what another process can be asked."""
    return judge([load_case(name)], folder, gpu, tiers)


def _judged(case: Case, row: Mapping[str, str], names: Mapping[str, int], gpu: GpuSpec) -> list[Judgement]:
    config = config_of(row, case.columns)
    answers = asked(case, "predict", case.predict, config, gpu)
    return [
        Judgement(
            kernel=case.name, group=row["group"], name=name, tier=tier, config=config, predicted=answers[name],
            measured=number_in(row, name),
        )
        for name, tier in names.items()
        if name in answers and row.get(name)
    ]  # fmt: skip


def not_judged(cases: Sequence[Case], folder: Path, tiers: Iterable[int]) -> list[str]:
    """A sentence for each table, and each column of one, that ought to be judged and is not there."""
    wanted, known = set(tiers), {case.name for case in cases}
    strangers = [path.name for path in sorted(folder.glob("*.csv")) if path.stem not in known]
    said = [f"{name}: no kernel has that name, not judged" for name in strangers]
    for case in cases:
        path = folder / f"{case.name}.csv"
        if not path.exists():
            continue
        columns = Table.read(path).columns
        lacking = [name for name, tier in case.tiers.items() if tier in wanted and name not in columns]
        if lacking:
            said.append(f"{path.name}: has no column {', '.join(lacking)}, not judged")
    return said


def summaries(judgements: Iterable[Judgement]) -> list[Summary]:
    """Families in the order in which they were met."""
    families: dict[tuple[str, str, str, int], list[float]] = {}
    for item in judgements:
        families.setdefault((item.kernel, item.group, item.name, item.tier), []).append(abs(item.error_pct))
    return [
        Summary(
            kernel=kernel, group=group, name=name, tier=tier, num_rows=len(errors), mean_pct=fmean(errors),
            p90_pct=quantile(errors, 0.9), worst_pct=max(errors),
        )
        for (kernel, group, name, tier), errors in families.items()
    ]  # fmt: skip


def quantile(numbers: Iterable[float], share: float) -> float:
    """The least of ``numbers`` that at least ``share`` of them do not exceed.

    >>> quantile([5.0, 1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0, 9.0, 10.0], 0.9)
    9.0
    """
    ordered = sorted(numbers)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
