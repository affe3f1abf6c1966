"""A table of measured rows is read as it was written, grows chunk by chunk, and loses nothing when a run is cut off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.errors import ConfigError
from gpusim.evidence.cases.case import key_of
from gpusim.evidence.cases.rows import Table, number_text, replace_file
from gpusim.evidence.toolchain.cuda_toolkit import FOLDERS

COLUMNS = ("n", "swizzle")


def config(n: int) -> dict[str, str]:
    return {"kernel": "k", "n": str(n), "swizzle": "128B"}


def row(n: int, **numbers: str) -> dict[str, str]:
    return {"seed": "1", "group": "g", **config(n), **numbers}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "h200_sxm" / "k.csv"


def test_what_was_written_is_read(path: Path) -> None:
    table = Table.read(path)
    table.about = {"kernel": "k"}
    table.append({"date": "2026-01-31T12:00:00Z"}, [row(8, cycles="19"), row(16, cycles="20.5")])
    again = Table.read(path)
    assert (again.rows, again.runs, again.about) == (table.rows, table.runs, table.about)
    assert [item["run"] for item in again.rows] == ["0", "0"]


def test_chunks_add_up_and_new_columns_are_empty_in_old_rows(path: Path) -> None:
    Table.read(path).append({}, [row(8, cycles="19")])
    Table.read(path).append({}, [row(16, cycles="20", wavefronts="4")])
    table = Table.read(path)
    assert [(item["run"], item["cycles"], item["wavefronts"]) for item in table.rows] == [("0", "19", ""), ("1", "20", "4")]


def test_a_config_is_done_when_it_has_a_row_or_a_reason_under_its_seed(path: Path) -> None:
    table = Table.read(path)
    aside = {"seed": 1, "group": "g", "config": config(24), "reason": "wrong answer"}
    table.append({}, [row(8, cycles="19")], [aside])
    done = Table.read(path).keys(COLUMNS, seed=1)
    assert done == {("g", key_of(config(8))), ("g", key_of(config(24)))}
    assert Table.read(path).keys(COLUMNS, seed=1, has_aside=False) == {("g", key_of(config(8)))}
    assert Table.read(path).keys(COLUMNS, seed=2) == set()


def test_a_number_takes_the_place_of_a_reason(path: Path) -> None:
    aside = {"seed": 1, "group": "g", "config": config(24), "reason": "crash"}
    Table.read(path).append({}, [], [aside])
    Table.read(path).append({}, [], [{**aside, "reason": "wrong answer"}])
    assert [item["reason"] for item in Table.read(path).put_aside] == ["wrong answer"]
    Table.read(path).append({}, [row(24, cycles="3")])
    assert Table.read(path).put_aside == []


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    target = tmp_path / "k.csv"
    replace_file(target, "old")
    with pytest.raises(UnicodeEncodeError):
        replace_file(target, "new \ud800")
    assert target.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_run_without_rows_harms_nobody(path: Path) -> None:
    """The JSON file is written first; a run that is cut off between the two files leaves this."""
    Table.read(path).append({}, [row(8, cycles="19")])
    before = path.read_text(encoding="utf-8")
    Table.read(path).append({}, [row(16, cycles="20")])
    path.write_text(before, encoding="utf-8")
    table = Table.read(path)
    assert len(table.runs) == 2 and len(table.rows) == 1
    table.append({}, [row(16, cycles="20")])
    assert [item["run"] for item in Table.read(path).rows] == ["0", "2"]


@pytest.mark.parametrize(
    ("good", "bad", "says"),
    [(",19,4", ",19", "cut off"), ("\n0,", "\n7,", "of run 7"), ("run,", "ran,", "begins with")],
)
def test_a_spoilt_table_is_refused(path: Path, good: str, bad: str, says: str) -> None:
    Table.read(path).append({}, [row(8, cycles="19", wavefronts="4")])
    text = path.read_text(encoding="utf-8")
    assert good in text
    path.write_text(text.replace(good, bad), encoding="utf-8")
    with pytest.raises(ConfigError, match=says):
        Table.read(path)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda text: text[:-1], "its last line has no end"),
        (lambda text: text.splitlines(keepends=True)[0], "holds 0 rows of run 0, wants the 1"),
        (lambda text: text.replace(b",19", b",nan"), "line 2 holds no number"),
        (lambda text: text.decode().encode("utf-16"), "is no table in UTF-8"),
    ],
)
def test_a_damaged_table_is_refused_in_a_sentence(path: Path, spoil: Callable[[bytes], bytes], says: str) -> None:
    Table.read(path).append({}, [row(8, cycles="19")])
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(ConfigError, match=says):
        Table.read(path)


def test_rows_of_another_gpu_are_refused(path: Path) -> None:
    """Where both have a description; somebody's own description may stand for any GPU."""
    Table.read(path).append({"gpu": "NVIDIA H200"}, [row(8, cycles="19")])
    table = Table.read(path)
    table.check_gpu("h200_sxm", FOLDERS)
    table.check_gpu("mine", FOLDERS)
    with pytest.raises(ConfigError, match=r"rows of NVIDIA H200 \(h200_sxm\), wants those of h100_sxm"):
        table.check_gpu("h100_sxm", FOLDERS)


def test_a_csv_without_its_json_file_is_refused(path: Path) -> None:
    table = Table.read(path)
    table.append({}, [row(8)])
    table.about_path.unlink()
    with pytest.raises(ConfigError, match="is missing beside it"):
        Table.read(path)


def test_a_file_of_another_format_is_refused(path: Path) -> None:
    table = Table.read(path)
    table.append({}, [row(8)])
    table.about_path.write_text(table.about_path.read_text(encoding="utf-8").replace('"format": 1', '"format": 99'))
    with pytest.raises(ConfigError, match="format 99"):
        Table.read(path)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_read_back_as_it_was(value: float) -> None:
    assert float(number_text(value)) == value
