"""Sizes of modules, classes and functions; data and version numbers in code; the list of offenders itself."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from . import ratchet
from .prose import docstrings
from .rules import RULES, SPEED
from .tree import ROOT


@pytest.mark.parametrize("rule", ["long_modules", "wide_classes", "wide_functions"])
def test_nothing_grows_beyond_its_budget(rule: str) -> None:
    ratchet.hold(rule)


def test_figures_of_a_compiler_are_data_in_a_file() -> None:
    ratchet.hold("figures_in_code")


def test_features_decide_not_version_numbers() -> None:
    ratchet.hold("version_numbers")


def test_a_module_written_for_speed_says_so() -> None:
    for name in SPEED:
        first = docstrings(ROOT / name)[0].splitlines()[0]
        assert re.search(r"\b(speed|fast|faster|sooner)\b", first), name
    ratchet.hold("speed_elsewhere")


# ---------------------------------------------------------------------- the list


def test_the_list_names_rules_that_there_are() -> None:
    assert ratchet.read().keys() <= RULES.keys()


LISTED = {"same": 3, "better": 5, "gone": 1, "worse": 2}
FOUND = {"same": 3, "better": 4, "worse": 7, "new": 1}


def test_the_list_only_shrinks() -> None:
    assert ratchet.worse(FOUND, LISTED) == {"worse": 7, "new": 1}
    assert ratchet.better(FOUND, LISTED) == {"better": 4, "gone": 0}
    assert ratchet.lowered(FOUND, LISTED) == {"same": 3, "better": 4, "worse": 2}


def test_the_list_fails_in_both_directions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ratchet, "LIST", tmp_path / "ratchet.toml")
    monkeypatch.setitem(RULES, "long_modules", lambda: {"a.py": 410})
    for listed, word in (({}, "new or worse"), ({"a.py": 400}, "new or worse"), ({"a.py": 420}, "better")):
        ratchet.write({"long_modules": listed})
        with pytest.raises(AssertionError, match=word):
            ratchet.hold("long_modules")
    ratchet.write({"long_modules": {"a.py": 410}})
    ratchet.hold("long_modules")


def test_the_list_is_read_as_it_was_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ratchet, "LIST", tmp_path / "ratchet.toml")
    ratchet.write({"b": {"z.py": 1, "a.py:name": 2}, "a": {}})
    assert ratchet.read() == {"a": {}, "b": {"a.py:name": 2, "z.py": 1}}
    lines = ratchet.LIST.read_text().splitlines()
    assert [line for line in lines if line.startswith('"')] == ['"a.py:name" = 2', '"z.py" = 1']


def git(*words: str) -> str:
    """Output of git, empty where it fails."""
    done = subprocess.run(["git", *words], cwd=ratchet.LIST.parent, capture_output=True, text=True, check=False)
    return "" if done.returncode else done.stdout.strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="no git")
def test_nobody_raises_an_entry_of_the_list_by_hand() -> None:
    base = git("merge-base", "main", "HEAD")
    if base == git("rev-parse", "HEAD"):  # on main itself: the commit before
        base = ""
    before = git("show", f"{base or 'HEAD^1'}:./{ratchet.LIST.name}")
    if not before:
        pytest.skip("no checkout")
    text = ratchet.LIST.read_text(encoding="utf-8")
    assert not ratchet.raised(ratchet.read(), tomllib.loads(before), text), "give the reason behind # on the entry's line"


def test_an_entry_is_raised_where_it_is_higher_or_new_and_gives_no_reason() -> None:
    text = '"same" = 3\n"worse" = 7  # why\n"new" = 1\n'
    assert ratchet.raised({"rule": FOUND}, {"rule": LISTED}, text) == ["rule: new"]
    assert ratchet.raised({"rule": FOUND}, {"rule": LISTED}, "") == ["rule: worse", "rule: new"]
    assert not ratchet.raised({"rule": LISTED}, {"rule": LISTED}, "")
