"""``scripts/check.sh`` says what it leaves out, runs every test once, and fails where anything does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "scripts" / "check.sh"


def programs(folder: Path, bodies: dict[str, str]) -> None:
    """Programs of these names, each a line of shell."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in bodies.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)


@pytest.mark.parametrize("has_browser", [True, False])
def test_who_has_no_browser_and_may_install_none_is_told(has_browser: bool, tmp_path: Path) -> None:
    (tmp_path / "dirname").symlink_to(shutil.which("dirname") or "")
    browser = {"chromium": "", "chromedriver": ""} if has_browser else {}
    programs(tmp_path, {"id": "echo 1000", "python3": "exit 7", **browser})
    bash = shutil.which("bash") or ""
    found = subprocess.run([bash, str(SCRIPT)], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert found.returncode == 7, found.stderr  # it ends where it would make its virtual environment
    assert ("the explorer's tests in a browser are skipped" in found.stdout) != has_browser


PYTHON = """
echo "${GPUSIM_INTERPRETED-unset} $*" >> calls
case "$*" in *pytest*--ignore=*) part=first;; *pytest*) part=second;; *) part=pip;; esac
! grep -qsx "$part" fails"""
"""Notes how it was called, and fails as the part that ``fails`` names."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the script, and programs for it that do nothing."""
    tree = tmp_path / "tree"
    for path in (SCRIPT, *(ROOT / "tests").rglob("test_*.py")):
        copy = tree / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes() if path == SCRIPT else b"")
    others = {name: f"! grep -qsx {name} fails" for name in ("ruff", "mypy", "gpusim")}
    programs(tree / ".venv" / "bin", {"python": PYTHON, **others})
    programs(tmp_path / "bin", {"python3": "", "chromium": "", "chromedriver": ""})
    return tree


def checked(tree: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], list[list[str]]]:
    """How it ended; of each run of pytest the words, behind what switches compiled modules off."""
    command = [shutil.which("bash") or "", "scripts/check.sh", *arguments]
    path = f"{tree.parent / 'bin'}:/usr/bin:/bin"
    ended = subprocess.run(command, env={"PATH": path}, cwd=tree, capture_output=True, text=True, check=False)
    calls = [line.split(" ") for line in (tree / "calls").read_text().splitlines()]
    return ended, [call for call in calls if call[1:3] == ["-m", "pytest"]]


def test_what_one_run_leaves_out_is_what_the_other_takes(tree: Path) -> None:
    ended, (first, second) = checked(tree)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert (first[0], second[0]) == ("unset", "")
    taken = [word for word in second if word.startswith("tests/")]
    assert [word.removeprefix("--ignore=") for word in first if word.startswith("--ignore=")] == taken
    assert not [word for word in first if word.startswith("tests/")]
    assert all((ROOT / path).exists() for path in taken)
    assert not {"tests", "tests/machine", "tests/simulate", "tests/kernel_models"} & set(taken)  # these hold the sources


def test_arguments_are_those_of_a_single_run_by_the_sources(tree: Path) -> None:
    ended, (only,) = checked(tree, "tests/layout", "-x")
    assert ended.returncode == 0
    assert only[0] == "unset" and only[-2:] == ["tests/layout", "-x"]


@pytest.mark.parametrize("part", ["pip", "ruff", "mypy", "first", "second"])
def test_it_fails_where_a_part_does(tree: Path, part: str) -> None:
    (tree / "fails").write_text(f"{part}\n")
    ended, runs = checked(tree)
    assert ended.returncode != 0
    assert len(runs) == (0 if part in ("pip", "ruff") else 2)


def test_where_nothing_can_be_compiled_it_says_so_and_runs_all(tree: Path) -> None:
    (tree / "fails").write_text("gpusim\n")
    ended, runs = checked(tree)
    assert (ended.returncode, len(runs)) == (0, 2)
    assert ended.stdout.startswith("No modules of these sources are there")
