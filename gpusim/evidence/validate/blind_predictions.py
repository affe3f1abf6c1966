"""Blind predictions: numbers in ``validation/first``, made before a GPU row was known, against later measurements.

In: those tables, which are never rewritten, and measured rows. Out: judgements in the form of today's model.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpusim.errors import ConfigError
from gpusim.evidence.cases.case import Answer, Case, kernels_dir
from gpusim.evidence.cases.rows import Row, Table, config_of
from gpusim.evidence.cases.validation_kernel import SINGLE, SUSTAINED, event_us
from gpusim.evidence.validate.answers import Question, asked_rows
from gpusim.evidence.validate.judge import Judgement, judgements_of

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec

COLUMNS = ("kernel", "group", "config", "name", "tier", "predicted")
"""Columns that such a table must have; one that was made next to the rows has ``measured``, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """Predictions of one row."""

    kernel: str
    group: str
    config: str
    """Config as ``name=value`` of each column, separated by blanks."""
    predicted: Mapping[str, float]
    knew_rows: bool
    """Whether the times were predicted with the protocol's overhead, which the row states."""


LAUNCHES = ".launches.csv"
"""Suffix of files with names and launch parameters alone, from which such predictions were made."""


def first_dir() -> Path:
    """Folder ``validation/first``."""
    return kernels_dir().parent / "validation" / "first"


def read_first(folder: Path | None = None) -> list[First]:
    """Predictions of every row in the tables of ``folder``.

    Raises:
        ConfigError: a table lacks a column, or a field holds no number.
    """
    rows = []
    for path in sorted((folder or first_dir()).glob("*.csv")):
        if path.name.endswith(LAUNCHES):
            continue
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            lacking = set(COLUMNS) - set(reader.fieldnames or ())
            if lacking:
                raise ConfigError(f"{path}: lacks {', '.join(sorted(lacking))}, wants the columns {', '.join(COLUMNS)}")
            by_row: dict[tuple[str, str, str], dict[str, float]] = {}
            for line in reader:
                try:
                    value = float(line["predicted"])
                except ValueError:
                    text = line["predicted"]
                    raise ConfigError(f"{path}: predicted {text!r} of {line['config']}, wants a number") from None
                by_row.setdefault((line["kernel"], line["group"], line["config"]), {})[line["name"]] = value
            knew = "measured" in (reader.fieldnames or ())
        rows += [
            First(kernel=kernel, group=group, config=config, predicted=predicted, knew_rows=knew)
            for (kernel, group, config), predicted in by_row.items()
        ]
    return rows


def judge_first(predictions: Iterable[First], cases: Sequence[Case], folder: Path, gpu: GpuSpec) -> list[Judgement]:
    """Judgements of the blind predictions of rows in ``folder``.

    Cycles are unchanged, at the predicted clock instead of the row's. Times of the kernel alone get the measured time of an
    empty kernel in the same protocol added.
    """
    of_case: dict[str, dict[tuple[str, str], First]] = {}
    for item in predictions:
        of_case.setdefault(item.kernel, {})[item.group, item.config] = item
    judgements = []
    for case in cases:
        path = folder / f"{case.name}.csv"
        if case.name not in of_case or not path.exists():
            continue
        for row in asked_rows(case, Table.read(path).rows):
            first = of_case[case.name].get((row["group"], _text(case, row)))
            if first is not None:
                names = tuple(name for name in first.predicted if name in case.tiers)
                question = Question(case=case.name, path=path, row=row, names=names)
                answers = {name: Answer(value=_value(first, name, row, gpu)) for name in names}
                judgements += judgements_of(case, question, answers, {case.tiers[name] for name in names})
    return judgements


def with_floors(blind: Iterable[Judgement], today: Iterable[Judgement]) -> list[Judgement]:
    """Judgements of blind predictions for the numbers that ``today`` judges, with the same floors."""
    floors = {who_of(item): item.floor for item in today}
    return [replace(item, floor=floors[who_of(item)]) for item in blind if who_of(item) in floors]


def who_of(item: Judgement) -> tuple[str, str, str, tuple[tuple[str, str], ...]]:
    """Key that identifies a judgement among those of the same tables."""
    return item.kernel, item.group, item.name, tuple(item.config.items())


def _text(case: Case, row: Row) -> str:
    return " ".join(f"{name}={value}" for name, value in config_of(row, case.columns).items())


def _value(first: First, name: str, row: Row, gpu: GpuSpec) -> float:
    value = first.predicted[name]
    for (of_time, _), l2 in ((SINGLE, "cold"), (SUSTAINED, "warm")):
        if name == of_time and not first.knew_rows:
            return value + event_us(row, f"empty_{of_time}", gpu, l2=l2)  # type: ignore[arg-type]  # one of the two words
    return value
