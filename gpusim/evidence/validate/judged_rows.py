"""Judged rows of validation kernels: ``validation/judged/GPU.csv``, one row for each kernel, config and number.

``scripts/trust.py`` writes the table from the report of ``gpusim validate --gpu GPU --first --json REPORT.json``, and fills
the README from it. In: that table. Out: judgements as in ``validate``, or a pandas frame.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.errors import ConfigError
from gpusim.evidence.cases.case import Limit
from gpusim.evidence.cases.paths import held_out_families, kernels_dir
from gpusim.evidence.validate.accuracy_summary import document
from gpusim.evidence.validate.blind_predictions import who_of
from gpusim.evidence.validate.judge import Judgement

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "kernel", "group", "config", "family", "held_out", "name", "tier", "measured", "predicted", "said_first", "roofline",
    "floor", "limit", "cuts", "problem", "again_us",
)  # fmt: skip
"""Columns of the table, named as the fields of :class:`gpusim.evidence.validate.judge.Judgement`.

``said_first`` is the blind prediction: made before the model had seen the row, empty where there was none."""

LISTS = ";"
"""Separator of the cuts of a row, and of the parts of a problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Judged table of a GPU: today's and blind predictions of the same rows."""

    gpu: str
    rows: tuple[Judgement, ...]
    first: tuple[Judgement, ...]

    def document(self) -> dict[str, Any]:
        """JSON document of families, totals, ranking and exact counts, as in ``gpusim validate --json``, and the rows."""

        def row_facts(items: Iterable[Judgement]) -> list[dict[str, Any]]:
            return [
                {"name": item.name, "family": item.family, "is_validation": item.is_validation, "error_pct": item.error_pct}
                for item in items
            ]

        return {"gpu": self.gpu, **document(self.rows), "rows": row_facts(self.rows), "first": row_facts(self.first)}

    def frame(self) -> pd.DataFrame:
        """Frame with a row for each kernel, config and number; errors in percent (rates: points), NaN where there is none.

        Single rows of families that are held out (``held_out``) must not be looked at: summarize them.
        """
        import pandas as pd

        first = {who_of(item): item for item in self.first}
        held_out = held_out_families()
        return pd.DataFrame([
            {
                "family": item.family or item.kernel, "held_out": (item.family or item.kernel) in held_out,
                "kernel": item.kernel, "config": _pairs(item.config), "metric": item.name, "measured": item.measured,
                "predicted": item.predicted, "error_pct": item.error_pct, "roofline": item.roofline,
                "roofline_error_pct": item.roofline_pct,
                "first_error_pct": blind.error_pct if (blind := first.get(who_of(item))) else None,
            }
            for item in self.rows
        ]).astype(dict.fromkeys(("roofline", "roofline_error_pct", "first_error_pct"), float))  # fmt: skip


def judged_dir() -> Path:
    """Folder ``validation/judged``."""
    return kernels_dir().parent / "validation" / "judged"


def table_of(rows: Iterable[Judgement], first: Iterable[Judgement] = ()) -> str:
    """Text of the table; numbers with ten digits.

    Raises:
        ConfigError: a row's config, cuts or problem contain a separator.
    """
    blind = {who_of(item): item.predicted for item in first}
    held_out = held_out_families()
    written = StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(COLUMNS)
    for item in rows:
        problem = () if item.problem is None else tuple(item.problem)  # type: ignore[arg-type]  # cases give tuples
        if any(LISTS in str(part) for part in (*item.cuts, *problem)) or any(
            " " in part or "=" in part for pair in item.config.items() for part in pair
        ):
            raise ConfigError(f"{item.kernel}: {_pairs(item.config)}: holds what separates parts of a row")
        family = item.family or item.kernel
        writer.writerow((
            item.kernel, item.group, _pairs(item.config), family, "yes" if family in held_out else "", item.name, item.tier,
            _text(item.measured), _text(item.predicted), _text(blind.get(who_of(item))), _text(item.roofline),
            _text(item.floor), _limit_text(item.limit), LISTS.join(item.cuts), LISTS.join(map(str, problem)),
            _text(item.again_us),
        ))  # fmt: skip
    return written.getvalue()


@cache
def read_judged(gpu: str = "h200_sxm", folder: Path | None = None) -> Judged:
    """Judged table of ``gpu``.

    Raises:
        ConfigError: there is none, it lacks a column, or a field holds no number.
    """
    path = (folder or judged_dir()) / f"{gpu}.csv"
    if not path.exists():
        known = ", ".join(sorted(item.stem for item in path.parent.glob("*.csv"))) or "none"
        raise ConfigError(f"{path}: no rows of {gpu} were judged, wants one of: {known}")
    rows: list[Judgement] = []
    first: list[Judgement] = []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        lacking = set(COLUMNS) - set(reader.fieldnames or ())
        if lacking:
            raise ConfigError(f"{path}: lacks {', '.join(sorted(lacking))}, wants the columns {', '.join(COLUMNS)}")
        for number, line in enumerate(reader, start=2):
            try:
                rows.append(_row(line, line["predicted"]))
                if line["said_first"]:
                    first.append(_row(line, line["said_first"]))
            except ValueError as error:
                raise ConfigError(f"{path}: line {number}: {error}") from None
    return Judged(gpu=gpu, rows=tuple(rows), first=tuple(first))


def _row(line: Mapping[str, str], predicted: str) -> Judgement:
    return Judgement(
        kernel=line["kernel"], group=line["group"], name=line["name"], tier=int(line["tier"]),
        config=dict(pair.split("=", 1) for pair in line["config"].split()), predicted=float(predicted),
        measured=float(line["measured"]), limit=_limit(line["limit"]), roofline=_number(line["roofline"]),
        floor=float(line["floor"]), is_validation=True, family=line["family"], cuts=_parts(line["cuts"]),
        problem=_parts(line["problem"]) or None, again_us=_number(line["again_us"]),
    )  # fmt: skip


def _pairs(config: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in config.items())


def _parts(text: str) -> tuple[str, ...]:
    return tuple(text.split(LISTS)) if text else ()


def _number(text: str) -> float | None:
    return float(text) if text else None


def _text(value: float | None) -> str:
    """Text of a number with ten digits; empty for None.

    >>> _text(147862784.0), _text(0.25), _text(None)
    ('147862784', '0.25', '')
    """
    return "" if value is None else f"{value:.10g}"


def _limit_text(limit: Limit | None) -> str:
    """Text of mean, P90 and worst, in percent or points; empty: the tier's limits.

    >>> _limit_text(Limit(mean_pct=5.0, worst_pct=20.0)), _limit(_limit_text(Limit(mean_pct=3.0, is_points=True)))
    ('5,,20 %', Limit(mean_pct=3.0, p90_pct=None, worst_pct=None, is_points=True))
    """
    if limit is None:
        return ""
    numbers: Sequence[float | None] = (limit.mean_pct, limit.p90_pct, limit.worst_pct)
    return f"{','.join(_text(number) for number in numbers)} {'points' if limit.is_points else '%'}"


def _limit(text: str) -> Limit | None:
    if not text:
        return None
    numbers, unit = text.split()
    mean, p90, worst = (_number(part) for part in numbers.split(","))
    return Limit(mean_pct=mean, p90_pct=p90, worst_pct=worst, is_points=unit == "points")
