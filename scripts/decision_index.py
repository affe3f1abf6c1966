"""Writes ``docs/decisions/index.md``, the table of all decisions, from the files next to it.

Run it after a decision was added or its status changed; ``tests/house`` holds the table to the files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "decisions"

STATUS = re.compile(r"Status: (in force|withdrawn|superseded by (\d{3}))")

TOP = """\
# Decisions

What was decided, why, and what would change our mind: one file a decision, newest last.
`python scripts/decision_index.py` writes this page from the files.

| Number | Decision | Status | Superseded by |
|---|---|---|---|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the table has of one file."""

    name: str
    """Of the file, which begins with the decision's number."""
    title: str
    status: str
    superseded_by: str
    """The number of another decision; empty where there is none."""

    @property
    def number(self) -> str:
        """Three digits.

        >>> Decision(name="007_l2_keeps_its_clock.md", title="", status="in force", superseded_by="").number
        '007'
        """
        return self.name[:3]

    @property
    def row(self) -> str:
        """The decision as a row of the table."""
        return f"| {self.number} | [{self.title}]({self.name}) | {self.status} | {self.superseded_by} |"


def read(path: Path) -> Decision:
    """A decision from its file.

    Raises:
        ValueError: the first two lines are no title and status.
    """
    title, status = path.read_text(encoding="utf-8").split("\n", 2)[:2]
    found = STATUS.fullmatch(status)
    if not title.startswith("# ") or found is None:
        raise ValueError(f"{path.name}: begins with {title!r} and {status!r}, wants a title and a status")
    superseded_by = found.group(2) or ""
    return Decision(
        name=path.name, title=title.removeprefix("# "), status="superseded" if superseded_by else found.group(1),
        superseded_by=superseded_by,
    )


def index(folder: Path = FOLDER) -> str:
    """The page of all decisions in ``folder``."""
    rows = [read(path).row for path in sorted(folder.glob("[0-9]*.md"))]
    return TOP + "\n".join(rows) + "\n"


if __name__ == "__main__":
    (FOLDER / "index.md").write_text(index(), encoding="utf-8")
