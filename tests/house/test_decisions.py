"""Each decision keeps its form, and the index lists them all."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("decision_index", ROOT / "scripts" / "decision_index.py")
assert SPEC is not None and SPEC.loader is not None
decision_index = importlib.util.module_from_spec(SPEC)
sys.modules["decision_index"] = decision_index
SPEC.loader.exec_module(decision_index)

FOLDER = ROOT / "docs" / "decisions"
FILES = sorted(path for path in FOLDER.iterdir() if path.name != "index.md")
NUMBERS = {path.name[:3]: path for path in FILES}
HEADINGS = ["## What", "## Why", "## What would change our mind"]

MOST_NAME = 40
MOST_LINES = {"in force": 12, "withdrawn": 12, "superseded": 7}
"""Below the title; of a superseded decision one for the status, three headings, and three of text."""
MOST_COLUMNS = 160
MOST_WORDS = 25
"""Of a sentence; a span of code is one word."""


def sentences(text: str) -> list[str]:
    """Sentences of Markdown without lists, each span of code as one word.

    >>> sentences("Rates stay at 3.5 TB/s. `read. done` ends!")
    ['Rates stay at 3.5 TB/s.', 'code ends!']
    """
    plain = re.sub(r"`[^`]*`", "code", " ".join(text.split()))
    return re.split(r"(?<=[.!?])\s+", plain)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_decision_has_its_headings_in_few_lines(path: Path) -> None:
    assert re.fullmatch(r"\d{3}_[a-z0-9]+(_[a-z0-9]+)*\.md", path.name)
    assert len(path.name) <= MOST_NAME
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("#")] == [lines[0], *HEADINGS]
    assert lines[2] == HEADINGS[0]
    assert len(lines) - 1 <= MOST_LINES[decision_index.read(path).status]
    assert max(map(len, lines)) <= MOST_COLUMNS
    for heading in HEADINGS:
        following = lines[lines.index(heading) + 1 :]
        assert following and not following[0].startswith("#"), f"nothing below {heading!r}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_decision_is_superseded_by_a_later_one_that_is_there(path: Path) -> None:
    decision = decision_index.read(path)
    if decision.superseded_by:
        assert decision.number < decision.superseded_by
        assert decision_index.read(NUMBERS[decision.superseded_by]).status == "in force"
    for number in re.findall(r"\bdecision (\d+)", path.read_text(encoding="utf-8"), re.IGNORECASE):
        assert number in NUMBERS


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_sentence_of_a_decision_is_short(path: Path) -> None:
    title, _, *lines = path.read_text(encoding="utf-8").splitlines()
    parts = re.split(r"^## .*$", "\n".join(lines), flags=re.MULTILINE)
    found = [text for part in (title.removeprefix("# "), *parts) for text in sentences(part)]
    assert [text for text in found if len(text.split()) > MOST_WORDS] == []


def test_numbers_of_decisions_have_no_holes() -> None:
    assert list(NUMBERS) == [f"{number:03}" for number in range(1, len(FILES) + 1)]


def test_the_index_lists_every_decision() -> None:
    found = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert found == decision_index.index(), "run python scripts/decision_index.py"
    assert re.findall(r"\]\((.*?)\)", found) == [path.name for path in FILES]
