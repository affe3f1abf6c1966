"""The changelog has the release that ``pyproject.toml`` names, one line a change; licences are in what is released."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LINES = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
MOST_COLUMNS = 110
KINDS = {"Added", "Changed", "Removed", "Fixed"}


def test_the_first_release_is_the_version_of_the_package() -> None:
    unreleased, *releases = (line.removeprefix("## ") for line in LINES if line.startswith("## "))
    assert unreleased == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\)", release) for release in releases)
    assert releases[0].split()[0] == PROJECT["project"]["version"]


def test_changes_are_of_four_kinds_and_have_a_line_each() -> None:
    assert {line.removeprefix("### ") for line in LINES if line.startswith("### ")} <= KINDS
    assert [line for line in LINES if len(line) > MOST_COLUMNS or line.startswith(" ")] == []


def test_licences_are_in_wheel_and_source_distribution() -> None:
    licences = PROJECT["project"]["license-files"]
    assert licences == ["LICENSE", "NOTICE"]
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert all((ROOT / name).is_file() and f"/{name}" in included for name in licences)
