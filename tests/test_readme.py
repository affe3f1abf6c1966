"""What the README shows is run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from gpusim.cli import main

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    for line in block.splitlines()
    if line.startswith("gpusim ")
]
IDS = ["layouts", "tiling", "python", "memory_bound", "own_kernel"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
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
