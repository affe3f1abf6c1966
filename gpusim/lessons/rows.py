"""Tables of measured GPU rows (``validation/measured``) in lessons, with today's predictions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.errors import ConfigError
from gpusim.evidence.cases.case import Answer, Case, kernels_dir, load_case
from gpusim.evidence.cases.paths import held_out_families
from gpusim.evidence.cases.rows import OWN_COLUMNS, Row, Table, config_of
from gpusim.evidence.validate.calibrate import halves
from gpusim.evidence.validate.judge import measured_in
from gpusim.machine.config import load_gpu
from gpusim.report.number_format import unit_of

if TYPE_CHECKING:
    import pandas as pd

METRIC_UNITS = (
    ("per_second", "per second"), (".pct", "%"), ("_pct", "%"), ("time_duration", "ns"), ("_bytes", "bytes"),
    ("sectors", "sectors"), ("wavefronts", "wavefronts"), ("requests", "requests"),
    ("inst_executed", "instructions"), ("cycles", "cycles"),
)
"""Units of Nsight Compute's metrics by a part of the name; the first match counts."""

TEXT_COLUMNS = frozenset({"active", "addresses"})
"""Columns of hexadecimal masks and lists, which may look like numbers (``1e5``)."""


def unit_in(column: str) -> str:
    """Unit of a column of measured rows, from its name; empty for counts and words.

    >>> unit_in("sm__cycles_elapsed.max"), unit_in("dram__bytes_read.sum"), unit_in("wavefronts_per_cycle")
    ('cycles', 'bytes', 'per cycle')
    """
    if "__" in column:
        return next((unit for part, unit in METRIC_UNITS if part in column), "")
    for repeat in ("_min", "_max"):
        column = column.removesuffix(repeat)
    if column.startswith("cycles_per_"):
        return f"cycles/{column.removeprefix('cycles_per_')}"
    return unit_of(f"row.{column}")


def measured(table: str, *, gpu: str = "h200_sxm", **where: Any) -> pd.DataFrame:
    """Rows of ``validation/measured/<gpu>/<table>.csv``, numbers as numbers.

    ``attrs["units"]`` has the unit of each column, ``attrs["source"]`` the origin of the rows. Columns that are empty in
    these rows are left out.

    >>> rows = measured("transpose", kernel="transpose_padded", m=(1024, 4096))
    >>> rows["m"].tolist(), rows.attrs["units"]["sm__cycles_elapsed.max"], rows.attrs["source"]
    ([1024, 4096], 'cycles', 'validation/measured/h200_sxm/transpose.csv (NVIDIA H200)')

    Args:
        table: a kernel of ``kernels/``.
        gpu: GPU of the rows.
        where: values of columns, or several accepted values: ``m=4096``, ``kernel=("a", "b")``.

    Raises:
        ConfigError: there is no such table, column or row.
    """
    import pandas as pd

    found = _table(table, gpu)
    rows = _select(found, where)
    frame = pd.DataFrame([{name: _field(row, name) for name in found.columns} for row in rows], columns=found.columns)
    frame = frame.drop(columns=["run", "seed"]).dropna(axis="columns", how="all")
    frame.attrs["units"] = {name: unit_in(name) for name in frame.columns}
    frame.attrs["source"] = f"validation/measured/{gpu}/{table}.csv ({found.runs[0]['gpu']})"
    return frame


def judged(table: str, name: str, *, gpu: str = "h200_sxm", has_roofline: bool = False, **where: Any) -> pd.DataFrame:
    """Measured rows with today's predictions of a number, by the rules of ``gpusim validate``.

    Columns: those of the kernel's configs, ``predicted (unit)``, ``measured (unit)``, ``error (%)``, and ``fitted``.
    ``fitted`` means that parameters were fitted to the row, so that its error is weaker evidence.

    >>> rows = judged("transpose", "sm__cycles_elapsed.max", kernel="transpose_padded", m=1024)
    >>> list(rows.columns)
    ['kernel', 'm', 'n', 'predicted (cycles)', 'measured (cycles)', 'error (%)', 'fitted']

    Args:
        table: a kernel of ``kernels/``.
        name: an Nsight Compute metric, or a value that the kernel measures.
        gpu: GPU of the rows, and of the predictions.
        has_roofline: add the columns ``roofline (unit)`` and ``roofline error (%)``, from the data sheet's peaks alone.
        where: as in :func:`measured`.

    Raises:
        ConfigError: there is no such table, column, number or row, or the simulator has no answer to any row. Also for rows
            of a family that is held out.
    """
    import pandas as pd

    case, found = load_case(table), _table(table, gpu)
    if name not in case.names:
        raise ConfigError(f"{table}: has no number called {name!r}: wants one of {', '.join(sorted(case.names))}")
    fitted = {id(row) for row in halves(case, found)[0]}
    predicted, measured_unit, rows_shown = f"predicted ({unit_in(name)})", f"measured ({unit_in(name)})", []
    rows = _select(found, where)
    _check_none_is_held_out(case, rows)
    names = frozenset({name, *case.metrics} if name in case.metrics else {name})  # one profile has all metrics
    numbers = {id(row): number for number, row in enumerate(found.rows)}
    for row in rows:
        config = config_of(row, case.columns)
        answer, value = _answers(table, gpu, numbers[id(row)], names).get(name), measured_in(case, row, name)
        if answer is None or value is None:
            continue
        rows_shown.append({
            **{column: _field(config, column) for column in config}, predicted: answer.value, measured_unit: value,
            "error (%)": 100.0 * (answer.value - value) / value if value else None, "fitted": id(row) in fitted,
        })
        if has_roofline:
            of_peaks = answer.roofline
            rows_shown[-1] |= {
                f"roofline ({unit_in(name)})": of_peaks,
                "roofline error (%)": None if of_peaks is None or not value else 100.0 * (of_peaks - value) / value,
            }
    if not rows_shown:
        raise ConfigError(f"{table}: the simulator has no answer to {name} of these rows: ask for others")
    return pd.DataFrame(rows_shown)


def _check_none_is_held_out(case: Case, rows: Collection[Row]) -> None:
    held_out = held_out_families()
    for row in rows:
        family = (case.families(row["group"], config_of(row, case.columns)) or (case.name,))[0]
        if family in held_out:
            raise ConfigError(f"rows: {family} is held out: nobody looks at its single rows; ask families() for its sums")


@cache
def _table(name: str, gpu: str) -> Table:
    folder = kernels_dir().parent / "validation" / "measured" / gpu
    path = folder / f"{name}.csv"
    if not path.is_file():
        known = sorted(one.stem for one in folder.glob("*.csv")) if folder.is_dir() else []
        raise ConfigError(f"measured: {_shown(path)} is not there; of {gpu} there are {', '.join(known) or 'no rows'}")
    return Table.read(path)


@cache
def _answers(table: str, gpu: str, number: int, names: frozenset[str]) -> Mapping[str, Answer]:
    """Predictions for a row of a table; kept, since lessons ask for several numbers of the same rows."""
    case, row = load_case(table), _table(table, gpu).rows[number]
    return case.answers(config_of(row, case.columns), row, load_gpu(gpu), names)


def _shown(path: Path) -> str:
    return "/".join(path.parts[-4:])


def _select(table: Table, where: Mapping[str, Any]) -> list[Row]:
    """Rows whose columns have the requested values; numbers are compared as numbers."""
    for column in where:
        if column not in table.columns:
            known = ", ".join(name for name in table.columns if name not in OWN_COLUMNS[:2])
            raise ConfigError(f"{_shown(table.path)}: has no column {column!r}, wants one of {known}")
    wanted = {column: _several(values) for column, values in where.items()}
    rows = [row for row in table.rows if all(_field(row, column) in values for column, values in wanted.items())]
    if not rows:
        asked = ", ".join(f"{column}={values!r}" for column, values in where.items())
        raise ConfigError(f"{_shown(table.path)}: has no row with {asked}")
    return rows


def _several(values: Any) -> Collection[Any]:
    return values if isinstance(values, Collection) and not isinstance(values, str) else (values,)


def _field(row: Mapping[str, str], column: str) -> Any:
    """Field of the CSV: an integer, a number, a word, or None where nothing was measured."""
    text = row[column]
    for kind in () if column in TEXT_COLUMNS else (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None
