"""What the README shows is run."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from gpusim.cli import main

README = Path(__file__).parent.parent / "README.md"
TEXT = README.read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
TESTS = [block for block in PYTHON if block.startswith("def test_")]
BLOCKS = [block for block in PYTHON if block not in TESTS]
PROFILE = Path(__file__).parent / "evidence" / "data" / "copy_raw.csv"
"""What the README calls profile.csv."""

pytest_plugins = ["pytester"]

COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    for line in block.splitlines()
    if line.startswith("gpusim ")
] + re.findall(r"- run: (gpusim .*)", TEXT)
IDS = ["layouts", "tiling", "python", "memory_bound", "own_kernel"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(PROFILE, "profile.csv")
    assert main(shlex.split(command)[1:]) == 0
    assert len(capsys.readouterr().out) > 500


@pytest.mark.parametrize("block", BLOCKS, ids=IDS)
def test_a_python_block_of_the_readme_runs(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out.count("\n") >= 1


def test_the_own_kernel_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[IDS.index("own_kernel")], "README.md", "exec"), {})
    assert (tmp_path / "mine.png").stat().st_size > 10_000


@pytest.mark.parametrize("block", TESTS)
def test_a_test_of_the_readme_passes(block: str, pytester: pytest.Pytester) -> None:
    shutil.copy(PROFILE, pytester.path / "profile.csv")
    pytester.makepyfile(block)
    pytester.runpytest_subprocess("-p", "gpusim.pytest_plugin", "-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_the_models_of_the_readme_are_models(tmp_path: Path) -> None:
    from gpusim.evidence.check import read_models

    (text,) = re.findall(r"```toml\n(.*?)```", TEXT, flags=re.DOTALL)
    path = tmp_path / "models.toml"
    path.write_text(text, encoding="utf-8")
    assert [model.kernel for model in read_models(path)] == ["transpose", "elementwise"]
