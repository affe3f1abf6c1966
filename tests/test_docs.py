"""What README and docs show is run.

Every fenced block and every `gpusim ...` in backticks falls under one rule: commands and Python run; blocks marked `gpu`
are understood, and refused where there is no GPU; set-up and test commands are those that CI runs; `text` is no code,
but where it begins with `$ gpusim`: that command is refused with the lines below it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from gpusim.cli import app, main
from gpusim.evidence.validate.answers import questions_of

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
    *(ROOT / name for name in ("kernels/README.md", "validation/README.md", "CHANGELOG.md")),
    *sorted((ROOT / "validation" / "deviations").glob("*.md")),
    *sorted((ROOT / "notebooks").glob("*.md")),
]
PROFILE = Path(__file__).parent / "evidence" / "data" / "copy_raw.csv"
"""What the pages call profile.csv."""

MOST_LINES = 120
"""Of README.md."""

SET_UP = (
    "python3 -m venv ", ".venv/bin/pip install ", "pip install ", "bash scripts/check.sh", "sphinx-build ",
    ".venv/bin/sphinx-build ", "jupyter lab", ".venv/bin/jupyter lab", "dask scheduler", "dask worker ",
)
"""Set-up and tests, which CI runs, and what goes on until somebody ends it."""
WANTS_GPU = ("gpusim measure",)
WANTS_COMPILER = ("gpusim sass",)
WANTS_CLUSTER = " --dask "
"""Workers at an address that is an example: nobody is asked there."""
TAKES_MINUTES = ("gpusim validate --gpu h200_sxm --tier 5,6 --first",)
"""All rows of a GPU; other lines judge one kernel's."""
STAYS = ("gpusim explore",)
"""A server: tests/explore has it."""
MOST_QUESTIONS = int(os.environ.get("GPUSIM_DOCS_QUESTIONS", "3"))
"""To a table that a page judges; some take a minute of a core, and kernels of their rows have tests of their own."""
CHANGE = re.compile(r"diff|(python|cpp|toml) \S+/\S+")
"""A file of a checkout, or changes of some: tests/test_extend.py applies them."""
FOLDERS = ("docs/", "engine/", "kernels/", "validation/", "tests/", "gpusim/", "configs/", "scripts/", "notebooks/")

pytest_plugins = ["pytester"]


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, what it says it is, its lines."""

    page: str
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        """For a test's id."""
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """Lines of a shell, those that end in a backslash with the next one."""
        return re.sub(r"\\\n\s*", "", self.text).splitlines()


def blocks_of(path: Path) -> list[Block]:
    """Every fenced block of a page."""
    text = path.read_text(encoding="utf-8")
    found = re.finditer(r"^```([^\n]*)\n(.*?)^```[ ]*$", text, flags=re.DOTALL | re.MULTILINE)
    return [
        Block(str(path.relative_to(ROOT)), text[: match.start()].count("\n") + 1, match.group(1).strip(), match.group(2))
        for match in found
    ]


BLOCKS = [block for path in PAGES for block in blocks_of(path)]
TEXT = "\n".join(path.read_text(encoding="utf-8") for path in PAGES)


def of(*languages: str) -> list[Block]:
    """The blocks in these languages."""
    return [block for block in BLOCKS if block.language in languages]


def words_of(line: str) -> list[str]:
    """What a shell makes of a line, without its comment."""
    return shlex.split(line, comments=True)


def typed() -> dict[str, str]:
    """Every command line of gpusim that a page shows outside of blocks marked gpu, and where."""
    found: dict[str, str] = {}
    for block in of("sh"):
        for line in block.commands:
            for command in re.split(r"\s&&\s", line.removeprefix("$ ")):
                plain = command.strip().removeprefix(".venv/bin/")
                if plain.startswith("gpusim "):
                    found.setdefault(shlex.join(words_of(plain)), block.name)
    for block in of("yaml"):
        for command in re.findall(r"- run: (gpusim .*)", block.text):
            found.setdefault(command, block.name)
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))):
        for command in re.findall(r"`(gpusim \w+ -?[^`]*|gpusim gpus)`", path.read_text(encoding="utf-8")):
            found.setdefault(command, path.name)
    return found


TYPED = typed()
KEPT = WANTS_GPU + WANTS_COMPILER + TAKES_MINUTES + STAYS
COMMANDS = [line for line in TYPED if not line.startswith(KEPT) and WANTS_CLUSTER not in line]
PYTHON = [block for block in of("python") if not block.text.startswith("def test_")]
TESTS = [block for block in of("python") if block.text.startswith("def test_")]
REFUSED = [block for block in of("text") if block.text.startswith("$ ")]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs_once: None) -> Path:
    """A folder with what the pages speak of: a profile, a GPU of one's own."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(PROFILE, "profile.csv")
    text = (ROOT / "configs" / "h200_sxm.toml").read_text(encoding="utf-8")
    (tmp_path / "mine.toml").write_text(text.replace('name = "h200_sxm"', 'name = "mine"'), encoding="utf-8")
    return tmp_path


def test_the_readme_shows_what_its_first_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    first, shown = blocks_of(ROOT / "README.md")[:2]
    _, _, command = first.text.strip().rpartition(" && ")
    assert main(words_of(command)[1:]) == 0
    *lines, dots = shown.text.splitlines()
    printed = iter(capsys.readouterr().out.splitlines())
    assert dots == "..." and all(line in printed for line in lines)  # in this order


def test_the_readme_is_one_page() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_a_block_falls_under_a_rule(block: Block) -> None:
    is_change = block.page == "docs/extend.md" and CHANGE.fullmatch(block.language)
    assert is_change or block.language in {"sh", "sh gpu", "python", "toml", "yaml", "text", "{toctree}"}
    if block.language == "sh":
        for line in block.commands:
            for command in re.split(r"\s&&\s", line):
                plain = command.strip().removeprefix(".venv/bin/")
                assert not plain or plain.startswith(("gpusim ", "#", *SET_UP)), command
                assert not plain.startswith(WANTS_GPU), f"{command}: mark the block gpu"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda line: f"{TYPED[line]}: {line[:70]}")
def test_a_command_runs(
    command: str, desk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "gpusim.evidence.validate.answers.questions_of", lambda *given: questions_of(*given)[:MOST_QUESTIONS]
    )
    status = main(shlex.split(command)[1:])
    out = capsys.readouterr().out
    assert status == 0 or (status == 1 and command.startswith("gpusim validate"))  # what is off is no failure of the command
    assert len(out) > 200


@pytest.mark.parametrize("block", REFUSED, ids=lambda block: block.name)
def test_a_command_is_refused_as_a_block_shows(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    command, *shown = block.text.splitlines()
    assert main(words_of(command.removeprefix("$ gpusim "))) == 2
    assert capsys.readouterr().err.splitlines() == shown


@pytest.mark.parametrize("command", [line for line in TYPED if line not in COMMANDS])
def test_a_command_that_wants_more_is_understood(command: str) -> None:
    assert understood(command) in words_of(command)[1:3]  # of some a kernel is a command, too


def understood(command: str) -> str | None:
    """The name of the command that a line reaches; its options are parsed."""
    at: Any = get_command(app)
    words = words_of(command)
    context = at.make_context(words[0], words[1:])
    while hasattr(at, "resolve_command"):
        name, at, rest = at.resolve_command(context, [*context._protected_args, *context.args])
        context = at.make_context(name, rest, parent=context)
    found: str | None = at.name
    return found


GPU_LINES = [
    (block.name, line.strip())
    for block in of("sh gpu") for line in block.text.splitlines() if line.strip().startswith("gpusim ")
]


@pytest.mark.parametrize(("where", "line"), GPU_LINES)
def test_a_command_for_a_gpu_is_understood_and_refused_without_one(
    where: str, line: str, desk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(desk))  # neither ncu nor nvcc
    words = words_of(line)
    assert understood(line) == words[1]
    assert main(words[1:]) == 2
    refused = [said for said in capsys.readouterr().err.splitlines() if said.startswith("gpusim: ")]
    assert len(refused) == 1, where


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.name)
def test_a_python_block_runs(block: Block, desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block.text, block.name, "exec"), {})
    assert capsys.readouterr().out.count("\n") >= 1
    for name in re.findall(r'plot_\w+\([^)]*"([\w.]+)"\)', block.text):
        assert (desk / name).stat().st_size > 10_000


@pytest.mark.parametrize("block", TESTS, ids=lambda block: block.name)
def test_a_test_passes(block: Block, pytester: pytest.Pytester) -> None:
    shutil.copy(PROFILE, pytester.path / "profile.csv")
    pytester.makepyfile(block.text)
    pytester.runpytest_subprocess("-p", "gpusim.pytest_plugin", "-p", "no:cacheprovider").assert_outcomes(passed=1)


@pytest.mark.parametrize("block", of("toml"), ids=lambda block: block.name)
def test_models_are_models(block: Block, tmp_path: Path) -> None:
    from gpusim.evidence.gate.models import read_models

    path = tmp_path / "models.toml"
    path.write_text(block.text, encoding="utf-8")
    kernels = [model.kernel for model in read_models(path)]
    assert kernels == ["transpose", "elementwise"][: block.text.count("[[model]]")] != []


@pytest.mark.parametrize("name", sorted({*re.findall(r"`python ([\w/]+\.py)[ `]", TEXT), "scripts/check.sh"}))
def test_a_script_is_there(name: str) -> None:
    assert (ROOT / name).is_file()


@pytest.mark.parametrize("path", sorted({path for path in re.findall(r"`([\w/.]+)`", TEXT) if path.startswith(FOLDERS)}))
def test_a_path_is_there(path: str) -> None:
    assert (ROOT / path).exists()
