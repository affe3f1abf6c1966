"""The table of deviations: its rows are legal, each number has a page, and pages can be read."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from gpusim.evidence.cases.paths import kernel_folder, kernels_dir
from gpusim.machine.config import COMPONENT_KINDS

VALIDATION = kernels_dir().parent / "validation"
FOLDER = VALIDATION / "deviations"
PAGES = sorted(FOLDER.glob("[0-9]*.md"))
COLUMNS = ["id", "part", "kernels", "size_pct", "direction", "cause", "status", "since"]
STATUSES = {"open", "explained", "accepted", "mended", "withdrawn"}
DIRECTIONS = {"fast", "slow", "few", "many", "low", "high", "both", ""}
PARTS = {*COMPONENT_KINDS, "counters", "kernel_models", "simulate"}
NO_FOLDERS = {"drawn", "published"}
"""GEMMs that laws draw, and kernels of other authors: neither has a folder in ``kernels``."""
LAST_NUMBER = 22
MOST_LINES, MOST_COLUMNS, MOST_WORDS = 40, 160, 25
MOST_README_LINES = 60

with (VALIDATION / "deviations.csv").open(encoding="utf-8", newline="") as file:
    TABLE = csv.DictReader(file)
    ROWS = list(TABLE)


def _number(row: dict[str, str]) -> int:
    return int(row["id"].split(".")[0])


def _sentences(text: str) -> Iterator[str]:
    """Sentences of paragraphs and items of lists; tables and blocks of code have none, and inline code is one word."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    depth = 0
    for token in tokens:
        depth += {"table_open": 1, "table_close": -1}.get(token.type, 0)
        if token.type == "inline" and not depth:
            yield from re.split(r"(?<=[.!?])\s", "".join(map(_plain, token.children or ())))


def _plain(token: Token) -> str:
    return {"text": token.content, "code_inline": "code", "softbreak": " "}.get(token.type, "")


def _words(sentence: str) -> int:
    """Numbers are words; signs that stand by themselves are none."""
    return len(re.findall(r"\S*\w\S*", sentence))


def test_columns_and_words_of_the_table_are_legal() -> None:
    assert TABLE.fieldnames == COLUMNS
    for row in ROWS:
        assert re.fullmatch(r"[1-9]\d?(\.[1-9]\d?)?", row["id"]), row
        assert row["status"] in STATUSES, row
        assert row["direction"] in DIRECTIONS, row
        assert date(2026, 11, 20) <= date.fromisoformat(row["since"]), row
        assert row["cause"] and len(row["cause"]) <= MOST_COLUMNS, row
        if row["status"] == "withdrawn":
            assert not any(row[name] for name in ("part", "kernels", "size_pct", "direction")), row
            continue
        assert row["part"] in PARTS, row
        assert not row["size_pct"] or float(row["size_pct"]) >= 0.0, row
        for name in row["kernels"].split():
            assert name in NO_FOLDERS or kernel_folder(name).is_dir(), row


def test_ids_are_unique_and_in_order_and_no_number_is_missing() -> None:
    ids = [tuple(map(int, row["id"].split("."))) for row in ROWS]
    assert ids == sorted(set(ids))
    assert {_number(row) for row in ROWS} == set(range(1, LAST_NUMBER + 1))


@pytest.mark.parametrize("number", sorted({_number(row) for row in ROWS if row["status"] != "withdrawn"}))
def test_a_number_has_one_page(number: int) -> None:
    assert len(list(FOLDER.glob(f"{number:02}_*.md"))) == 1


def test_a_page_is_of_a_number_that_the_table_has() -> None:
    numbers = {f"{_number(row):02}" for row in ROWS if row["status"] != "withdrawn"}
    assert {path.name[:2] for path in PAGES} <= numbers
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"({path.name})" in readme for path in PAGES)


@pytest.mark.parametrize("path", [FOLDER / "README.md", *PAGES], ids=lambda path: path.name)
def test_a_page_can_be_read(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) <= (MOST_README_LINES if path.name == "README.md" else MOST_LINES)
    assert [line for line in lines if len(line) > MOST_COLUMNS] == []
    assert [sentence for sentence in _sentences(text) if _words(sentence) > MOST_WORDS] == []


def test_sentences_end_at_full_stops_and_at_items_and_tables_have_none() -> None:
    table = "| a | b |\n|---|---|\n| one. two | three |\n"
    text = f"# A title\n\n{table}\nOne is 4.2 %. Two\ngoes on.\n\n* **1** Three `a b c`\n  four.\n"
    found = list(_sentences(text))
    assert found == ["A title", "One is 4.2 %.", "Two goes on.", "1 Three code four."]
    assert list(map(_words, found)) == [2, 3, 3, 4]
