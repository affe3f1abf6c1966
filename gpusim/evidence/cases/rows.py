"""Measured rows on disk: a CSV table of numbers, and a JSON file with their origin.

``validation/measured/README.md`` describes the format. In: rows of one kernel on one GPU. Out: the rows, read back. A file
is only replaced in one step, by one that has all its rows and more, so an interrupted run loses nothing.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpusim.errors import ConfigError
from gpusim.evidence.cases.case import Config, key_of

OWN_COLUMNS = ("run", "seed", "group", "kernel")
"""First columns of every table: index of the run in the JSON file, seed of the config, its group, the entry point."""

FORMAT = 1
"""Version of the JSON file's format. Raised when an old reader would misread a new file."""

NUM_ROWS = "num_rows"
"""Key in the JSON file: rows of a run in the CSV. It reveals a table that was cut off at the end of a line."""

NO_NUMBERS = frozenset({"nan", "inf", "-inf"})
"""Texts that no field may hold."""

Row = dict[str, str]
"""One line of the CSV as text; a missing number is empty."""


@dataclass(slots=True)
class Table:
    """One kernel's rows on one GPU, with their description.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     table = Table.read(Path(folder) / "h200_sxm" / "pointer_chase.csv")
    ...     table.append({"date": "2026-01-31"}, [{"seed": "1", "group": "l2", "kernel": "chase", "cycles": "273"}])
    ...     again = Table.read(table.path)
    >>> again.rows, again.runs
    ([{'run': '0', 'seed': '1', 'group': 'l2', 'kernel': 'chase', 'cycles': '273'}], [{'date': '2026-01-31', 'num_rows': 1}])
    """

    path: Path
    """Path of the CSV; the JSON file has the same name with another suffix."""
    columns: list[str] = field(default_factory=lambda: list(OWN_COLUMNS))
    rows: list[Row] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    """Properties shared by a chunk of rows; the column ``run`` is an index into this list."""
    about: dict[str, Any] = field(default_factory=dict)
    """Properties of the full table: the kernel's name, what its rows answer, every column's meaning."""
    put_aside: list[dict[str, Any]] = field(default_factory=list)
    """Configs without a number, each with its reason."""

    @property
    def about_path(self) -> Path:
        """Path of the JSON file next to the CSV."""
        return self.path.with_suffix(".json")

    @classmethod
    def read(cls, path: Path) -> Table:
        """Table at ``path``; an empty one where there is none.

        Raises:
            ConfigError: one of the two files is missing, or gpusim did not write them.
        """
        table = cls(path)
        if not path.exists() and not table.about_path.exists():
            return table
        if not table.about_path.exists():
            raise ConfigError(f"{path}: {table.about_path.name} is missing beside it, wants both files of a measurement")
        try:
            document = json.loads(table.about_path.read_text(encoding="utf-8"))
            table.runs, table.put_aside, table.about = document["runs"], document["put_aside"], document["about"]
            version = document["format"]
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{table.about_path}: is no file of measurements ({error!r}), wants what gpusim wrote"
            ) from None
        if version != FORMAT:
            raise ConfigError(
                f"{table.about_path}: has format {version}, this gpusim reads {FORMAT}: use the gpusim that wrote it"
            )
        if path.exists():
            try:
                text = path.read_bytes().decode("utf-8")
                reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
                table.columns = list(reader.fieldnames or ())
                table.rows = [{name: text for name, text in line.items() if name is not None} for line in reader]
            except (UnicodeDecodeError, csv.Error) as error:
                raise ConfigError(f"{path}: is no table in UTF-8 ({error}), wants what gpusim wrote") from None
            if not text.endswith("\n"):
                raise ConfigError(f"{path}: its last line has no end: it is cut off; wants what gpusim wrote")
            table._check()
        return table

    def check_gpu(self, name: str, folder_of: Mapping[str, str]) -> None:
        """Check that no run is of another GPU with a description in ``configs/`` than the one called ``name``.

        ``folder_of``: names of descriptions by the driver's name of the GPU.

        Raises:
            ConfigError: the table holds rows of another GPU.
        """
        if name not in folder_of.values():
            return  # a user's description may stand for any measured GPU
        for run in self.runs:
            of = folder_of.get(str(run.get("gpu")), name)
            if of != name:
                raise ConfigError(f"{self.path}: holds rows of {run['gpu']} ({of}), wants those of {name}: give --gpu {of}")

    def _check(self) -> None:
        if tuple(self.columns[: len(OWN_COLUMNS)]) != OWN_COLUMNS:
            raise ConfigError(f"{self.path}: begins with {self.columns[:4]}, wants the columns {', '.join(OWN_COLUMNS)}")
        for number, row in enumerate(self.rows, 2):
            if None in row.values() or len(row) != len(self.columns) or not row["run"].isdigit():
                raise ConfigError(f"{self.path}: line {number} is cut off or no row, wants {len(self.columns)} fields")
            if not NO_NUMBERS.isdisjoint(row.values()):
                raise ConfigError(f"{self.path}: line {number} holds no number (nan or inf), wants what was measured")
            if int(row["run"]) >= len(self.runs):
                raise ConfigError(
                    f"{self.path}: line {number} is of run {row['run']}, wants one of those in {self.about_path.name}"
                )
        found = Counter(int(row["run"]) for row in self.rows)
        for number, run in enumerate(self.runs):
            is_unfinished = 0 < number == len(self.runs) - 1 and not found[number]  # the CSV was not written
            if found[number] != run.get(NUM_ROWS, found[number]) and not is_unfinished:
                raise ConfigError(
                    f"{self.path}: holds {found[number]} rows of run {number}, wants the {run[NUM_ROWS]} that "
                    f"{self.about_path.name} tells of: it is cut off, or rows were added"
                )

    def keys(
        self, columns: Iterable[str], seed: int, *, has_aside: bool = True
    ) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
        """(group, key) of every config of ``seed`` that is done: measured, or put aside.

        Args:
            columns: columns of a config besides its kernel.
            seed: seed that the configs were drawn with.
            has_aside: whether configs that were put aside count as done.
        """
        names = ("kernel", *columns)
        done = {
            (row["group"], key_of({name: row.get(name, "") for name in names}))
            for row in self.rows if row["seed"] == str(seed)
        }
        aside = {(item["group"], key_of(item["config"])) for item in self.put_aside if item["seed"] == seed}
        return done | aside if has_aside else done

    def append(
        self,
        run: Mapping[str, Any],
        rows: Sequence[Mapping[str, str]],
        put_aside: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Add a run, its rows and the configs that gave none, and write both files.

        The JSON file is written first. If the CSV does not follow, a harmless run without rows remains. New columns are
        appended, and old rows are empty there.
        """
        if self.runs and not any(row["run"] == str(len(self.runs) - 1) for row in self.rows):
            self.runs[-1][NUM_ROWS] = 0
        number = str(len(self.runs))
        added = [{"run": number, **row} for row in rows]
        self.runs.append({**run, NUM_ROWS: len(added)})
        self._forget(added, put_aside)
        self.put_aside.extend(dict(item) for item in put_aside)
        self.columns += [name for name in dict.fromkeys(name for row in added for name in row) if name not in self.columns]
        self.rows = [{name: row.get(name, "") for name in self.columns} for row in (*self.rows, *added)]
        self.write()

    def _forget(self, rows: Sequence[Mapping[str, str]], put_aside: Sequence[Mapping[str, Any]]) -> None:
        """Remove the old reasons of configs that have a number now, or a new reason."""
        again = [(str(item["seed"]), item["group"], item["config"]) for item in put_aside]
        for item in list(self.put_aside):
            who = (str(item["seed"]), item["group"], item["config"])
            has_row = any(
                row.get("seed") == who[0] and row.get("group") == who[1] and all(row.get(k) == v for k, v in who[2].items())
                for row in rows
            )
            if has_row or who in again:
                self.put_aside.remove(item)

    def write(self) -> None:
        """Write both files, each in one step."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        document = {"format": FORMAT, "about": self.about, "runs": self.runs, "put_aside": self.put_aside}
        replace_file(self.about_path, json.dumps(document, indent=1) + "\n")
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        replace_file(self.path, text.getvalue())


def replace_file(path: Path, text: str) -> None:
    """Replace ``path`` with ``text`` in one step: a reader finds the old file or the new one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def number_text(value: float) -> str:
    """Text of a number in the CSV: integers without a point, others with all digits.

    >>> number_text(3.0), number_text(0.1)
    ('3', '0.1')
    """
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def config_of(row: Mapping[str, str], columns: Iterable[str]) -> Config:
    """Config that a row was measured for.

    >>> config_of({"run": "0", "kernel": "k", "n": "8", "cycles": "19"}, ["n"])
    {'kernel': 'k', 'n': '8'}

    Raises:
        ConfigError: the row lacks a column.
    """
    try:
        return {name: row[name] for name in ("kernel", *columns)}
    except KeyError as error:
        raise ConfigError(f"a row lacks the column {error.args[0]!r}: wants all that its case's configs say") from None


def number_in(row: Mapping[str, str], name: str) -> float:
    """Number in a column of a row.

    >>> number_in({"cycles": "273.5"}, "cycles")
    273.5

    Raises:
        ConfigError: the field holds no number, or there is no such column.
    """
    try:
        return float(row[name])
    except KeyError:
        raise ConfigError(f"a row has no column {name!r}: was it renamed?") from None
    except ValueError:
        raise ConfigError(f"the column {name!r} holds {row[name]!r}, wants a number") from None
