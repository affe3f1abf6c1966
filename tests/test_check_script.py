"""``scripts/check.sh`` says what it leaves out, runs the tests once, and fails where anything does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "check.sh"


def programs(folder: Path, bodies: dict[str, str]) -> None:
    """Programs of these names, each a line of shell."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in bodies.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)


@pytest.mark.parametrize("has_browser", [True, False])
def test_who_has_no_browser_and_may_install_none_is_told(has_browser: bool, tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    programs(tmp_path / ".venv" / "bin", {"python": "", "ruff": "exit 7"})  # it ends where it would begin to check
    browser = {"chromium": "", "chromedriver": ""} if has_browser else {}
    programs(tmp_path / "bin", {"id": "echo 1000", "python3": "", **browser})
    (tmp_path / "bin" / "dirname").symlink_to(shutil.which("dirname") or "")
    command, path = [shutil.which("bash") or "", "scripts/check.sh"], {"PATH": str(tmp_path / "bin")}
    found = subprocess.run(command, env=path, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 7, found.stderr
    assert ("the explorer's tests in a browser are skipped" in found.stdout) != has_browser


PYTHON = """
echo "$*" >> calls
case "$*" in *pytest*) part=pytest;; *build_engine*) part=module;; *) part=pip;; esac
! grep -qsx "$part" fails"""
"""Notes how it was called, and fails as the part that ``fails`` names."""


def checked(tmp_path: Path, *arguments: str, fails: str = "") -> tuple[int, list[str]]:
    """Of a copy of the script with programs that do nothing: how it ended, and how often Python was called with what."""
    tree = tmp_path / "tree"
    (tree / "scripts").mkdir(parents=True)
    (tree / "engine").mkdir()
    shutil.copy(SCRIPT, tree / "scripts")
    (tree / "fails").write_text(f"{fails}\n")
    others = {name: f"! grep -qsx {name} fails" for name in ("ruff", "mypy", "clang-format")}
    programs(tree / ".venv" / "bin", {"python": PYTHON, **others})
    programs(tmp_path / "bin", {"python3": "", "chromium": "", "chromedriver": ""})
    command = [shutil.which("bash") or "", "scripts/check.sh", *arguments]
    path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
    ended = subprocess.run(command, env={"PATH": path}, cwd=tree, capture_output=True, text=True, check=False)
    return ended.returncode, (tree / "calls").read_text().splitlines()


def test_tests_run_once_with_arguments_that_are_pytests(tmp_path: Path) -> None:
    status, calls = checked(tmp_path, "tests/layout", "-x")
    (tests,) = (call for call in calls if call.startswith("-m pytest"))
    assert status == 0 and tests.endswith(" tests/layout -x")
    assert "scripts/build_engine.py --check" in calls


@pytest.mark.parametrize("part", ["pip", "ruff", "clang-format", "mypy", "module", "pytest"])
def test_it_fails_where_a_part_does(tmp_path: Path, part: str) -> None:
    status, calls = checked(tmp_path, fails=part)
    assert status != 0
    assert any(call.startswith("-m pytest") for call in calls) == (part not in ("pip", "ruff", "clang-format"))
