"""What the README shows is run."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from gpusim.cli import app, main

ROOT = Path(__file__).parent.parent
TEXT = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/guide.md"))
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
TESTS = [block for block in PYTHON if block.startswith("def test_")]
BLOCKS = [block for block in PYTHON if block not in TESTS]
PROFILE = Path(__file__).parent / "evidence" / "data" / "copy_raw.csv"
"""What the README calls profile.csv."""

pytest_plugins = ["pytester"]

LINES = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, flags=re.DOTALL) for line in block.splitlines()]
TYPED = [
    *(line for line in LINES if line.startswith("gpusim ")), *re.findall(r"- run: (gpusim .*)", TEXT),
    *re.findall(r"&& \.venv/bin/(gpusim .*)", TEXT), *re.findall(r"`(gpusim \w+ [^`]*|gpusim gpus)`", TEXT),
]
LONG = ("gpusim measure", "gpusim calibrate", "gpusim validate", "gpusim sweep gemm --gpu h200_sxm --m 4096", "gpusim sass")
"""They want a GPU, a compiler, or minutes of a core: only that they are understood is tested."""
FOLDERS = ("docs/", "kernels/", "validation/", "tests/", "gpusim/", "configs/", "scripts/")
COMMANDS = [line for line in dict.fromkeys(TYPED) if not line.startswith(LONG)]
PYTHON_SCRIPTS = re.findall(r"`python ([\w/]+\.py)`", TEXT)
IDS = ["python", "memory_bound", "own_kernel", "layouts", "tiling"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(PROFILE, "profile.csv")
    assert main(shlex.split(command)[1:]) == 0
    assert len(capsys.readouterr().out) > 500


@pytest.mark.parametrize("command", [line for line in dict.fromkeys(TYPED) if line.startswith(LONG)])
def test_a_long_command_of_the_readme_is_understood(command: str) -> None:
    at: Any = get_command(app)
    words = shlex.split(command)
    context = at.make_context(words[0], words[1:])
    while hasattr(at, "resolve_command"):
        name, at, rest = at.resolve_command(context, [*context._protected_args, *context.args])
        context = at.make_context(name, rest, parent=context)
    assert at.name == words[2 if words[1] == "sweep" else 1]


@pytest.mark.parametrize("name", [*PYTHON_SCRIPTS, "scripts/check.sh"])
def test_a_script_of_the_readme_is_there(name: str) -> None:
    assert (ROOT / name).is_file()


@pytest.mark.parametrize("path", sorted({path for path in re.findall(r"`([\w/.]+)`", TEXT) if path.startswith(FOLDERS)}))
def test_a_path_of_the_readme_is_there(path: str) -> None:
    assert (ROOT / path).exists()


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
