"""Every lesson runs from top to bottom, has its parts, and what it says is what its cells show."""

from __future__ import annotations

import ast
import os
import re
import shlex
import sys
import tomllib
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from gpusim.cli import app

nbformat = pytest.importorskip("nbformat", reason="pip install '.[notebooks]'")
nbclient = pytest.importorskip("nbclient", reason="pip install '.[notebooks]'")
pytest.importorskip("ipykernel", reason="pip install '.[notebooks]'")

ROOT = Path(__file__).parent.parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MODULES = {"gpusim", "numpy", "pandas", *sys.stdlib_module_names}
MOST_LINES = 14
"""Of a cell: a reader sees all of it."""
MOST_SECONDS = 240
"""Of a cell, on a core that much else keeps busy; a whole lesson takes some ten seconds of an idle one."""

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # of the kernel's client


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def cells(path: Path, kind: str, tag: str | None = None) -> list[Any]:
    return [
        cell for cell in read(path).cells
        if cell.cell_type == kind and (tag is None or tag in cell.metadata.get("tags", []))
    ]


SHOWN = '''
def shown_claims(code):
    found, kept = {}, globals().setdefault("names_of_claims", {})
    names = {**kept, **globals(), "claims": found.update}
    exec(code, names)
    kept.update(names)
    assert {type(holds).__name__ for holds in found.values()} <= {"bool", "bool_"}, found
    return {sentence: bool(holds) for sentence, holds in found.items()}
'''
"""Function that runs a cell of claims on a copy of a lesson's names, so that the lesson does not need the cell."""


def claims_of(path: Path) -> Any:
    """Sentences of a lesson, with the expressions that show them; readers do not see them."""
    return tomllib.loads((Path(__file__).parent / "claims" / f"{path.stem}.toml").read_text(encoding="utf-8"))


def with_claims(path: Path) -> Any:
    """A lesson with a cell of claims behind each cell that has some."""
    notebook, claims = read(path), claims_of(path)
    for cell in reversed(claims["cell"]):  # of several behind a cell the first comes first
        (place,) = (idx for idx, other in enumerate(notebook.cells) if other.id == cell["after"])
        code = claims.get("imports", "") + cell["code"]
        asked = nbformat.v4.new_code_cell(f"{SHOWN}shown_claims({code!r})", metadata={"tags": ["claim"]})
        notebook.cells.insert(place + 1, asked)
    return notebook


def text_of(path: Path) -> str:
    return "\n\n".join(cell.source for cell in cells(path, "markdown"))


def each(paths: list[Path]) -> Any:
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)


def test_lessons_have_numbers_of_their_own() -> None:
    numbers = [path.name[:3] for path in NOTEBOOKS]
    assert numbers
    assert all(re.fullmatch(r"\d\d_", number) for number in numbers)
    assert len(set(numbers)) == len(numbers)


# ---------------------------------------------------------------------- runs


@each(NOTEBOOKS)
def test_a_lesson_runs_from_top_to_bottom_and_its_claims_hold(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = with_claims(path)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=MOST_SECONDS, kernel_name="python3", resources=resources).execute()
    num_claims, told = 0, ""
    for cell in notebook.cells:
        if cell.cell_type != "code":
            told += cell.source
            continue
        noise = [output for output in cell.outputs if output.output_type == "stream" and output.name == "stderr"]
        assert noise == [], cell.source
        tables = [str(output.get("data", {}).get("text/html", "")) for output in cell.outputs]
        if any("<th>fitted</th>" in table for table in tables):
            assert "`fitted`" in told, f"a column that no text before it explains: {cell.source}"
        if "claim" in cell.metadata.get("tags", []):
            (output,) = cell.outputs
            said = ast.literal_eval(output.data["text/plain"])
            assert [sentence for sentence, holds in said.items() if holds is not True] == []
            num_claims += len(said)
    assert num_claims >= 3, "a lesson's claims are tested"


# ---------------------------------------------------------------------- as it is stored


@each(NOTEBOOKS)
def test_a_lesson_is_stored_without_outputs(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.metadata.kernelspec.name) == (4, "python3")
    for cell in cells(path, "code"):
        assert (cell.outputs, cell.execution_count) == ([], None), cell.source
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    assert not any(cell.metadata.get("collapsed") or "ExecuteTime" in cell.metadata for cell in notebook.cells)


@each(NOTEBOOKS)
def test_a_lesson_has_its_parts(path: Path) -> None:
    text = text_of(path)
    first = cells(path, "markdown")[0].source
    assert first.startswith(f"# {int(path.name[:2])}. ")
    assert re.search(r"\*\*The question\*\*: .*\?", first)
    assert re.search(r"\*\*Before\*\*: ", first)
    assert "## What to take away" in text
    assert "## Where to read on" in text
    assert re.search(r"^###? .*silicon", text, flags=re.MULTILINE | re.IGNORECASE)
    assert text.count("**Your prediction**") >= 2
    assert text.count("**Exercise") >= 1
    assert text.count("<details>") == text.count("</details>") >= 1
    assert len(cells(path, "code", "solution")) >= 1
    shown = read(path).cells
    words = [cell for cell in shown if cell.cell_type == "markdown" and "answer" in cell.metadata.get("tags", [])]
    assert 12 <= len(shown) - len(words) <= 46  # words that are folded belong to the cell before them
    assert 700 <= len(text.split()) <= 1900


@each(NOTEBOOKS)
def test_a_prediction_runs_as_it_stands_and_is_held_against_the_answer(path: Path) -> None:
    asked = [cell for cell in cells(path, "code") if re.search(r"^prediction\w* = \.\.\.", cell.source, re.MULTILINE)]
    assert len(asked) >= 2
    source = "\n".join(cell.source for cell in cells(path, "code"))
    for name, times in Counter(re.findall(r"^(prediction\w*) = \.\.\.", source, flags=re.MULTILINE)).items():
        assert len(re.findall(rf"compare\(\s*{name}\b", source)) >= times, f"{name} is compared with nothing"


@each(NOTEBOOKS)
def test_a_cell_is_short_and_has_no_logic_of_its_own(path: Path) -> None:
    for cell in cells(path, "code"):
        tree = ast.parse(cell.source)
        wrong = (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef, ast.Lambda, ast.While, ast.Try, ast.With)
        tags = cell.metadata.get("tags", [])
        is_kernel = "kernel" in tags  # roles of a kernel are told as generators
        found = [node for node in ast.walk(tree) if isinstance(node, wrong)]
        assert is_kernel or not found, cell.source
        assert is_kernel or len(cell.source.splitlines()) <= MOST_LINES, cell.source
        assert max(map(len, cell.source.splitlines())) <= 125, cell.source


@each(NOTEBOOKS)
def test_a_lesson_imports_only_what_a_reader_has(path: Path) -> None:
    names = set()
    for cell in cells(path, "code"):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add((node.module or "").split(".")[0])
    assert names - MODULES == set()
    assert "gpusim" in names


@each(NOTEBOOKS)
def test_what_is_folded_is_folded_in_jupyter_and_on_the_site(path: Path) -> None:
    for cell in cells(path, "code", "solution"):
        assert {"hide-cell", "hide-input"} & set(cell.metadata.tags)
        assert cell.metadata.jupyter.source_hidden


@each(NOTEBOOKS)
def test_readers_do_not_see_the_claims(path: Path) -> None:
    assert not [cell.source for cell in read(path).cells if "claim" in cell.metadata.get("tags", []) or "claims(" in cell.source]
    places = list(dict.fromkeys(cell["after"] for cell in claims_of(path)["cell"]))
    assert places == [cell.id for cell in read(path).cells if cell.id in places]


@each(NOTEBOOKS)
def test_no_answer_stands_open_below_its_question(path: Path) -> None:
    """Code that answers is folded on the site, words that answer in Jupyter, too."""
    is_asked = False
    for cell in read(path).cells:
        tags = cell.metadata.get("tags", [])
        if "prediction" in tags:
            assert not is_asked, cell.source
            is_asked = True
        elif cell.cell_type == "code" and is_asked:
            assert "answer" in tags, cell.source
            is_asked = "compare(" not in cell.source
        elif "answer" not in tags:
            assert "compare(prediction" not in cell.source, cell.source
            assert not is_asked or cell.source.startswith("#"), cell.source
        elif cell.cell_type == "markdown":
            assert cell.source.startswith("<details><summary>What you should have seen</summary>\n\n"), cell.source
            assert cell.source.endswith("\n\n</details>")
            assert not re.search(r"^#", cell.source, re.MULTILINE), cell.source
            assert "**Your prediction**" not in cell.source
    assert not is_asked


@each(NOTEBOOKS)
def test_words_behind_an_answer_are_folded_with_it(path: Path) -> None:
    """What follows an answer in words begins something new: a heading, a step, another fold."""
    shown = read(path).cells
    for cell, following in pairwise(shown):
        if "answer" in cell.metadata.get("tags", []) and following.cell_type == "code":
            assert {"answer", "prediction"} & set(following.metadata.get("tags", [])), following.source


@each(NOTEBOOKS)
def test_files_that_a_lesson_names_are_there(path: Path) -> None:
    for name in re.findall(r"`((?:docs|kernels|validation|gpusim|configs|notebooks)/[\w/.*]+)`", text_of(path)):
        assert list(ROOT.glob(name.rstrip("/"))), name


@each(NOTEBOOKS)
def test_commands_that_a_lesson_names_are_understood(path: Path) -> None:
    for line in re.findall(r"`(gpusim \w+ [^`]*-[^`]*)`", text_of(path)):
        words = shlex.split(line)
        at: Any = get_command(app)
        context = at.make_context(words[0], [word for word in words[1:] if word != "--help"], resilient_parsing="--help" in words)
        while hasattr(at, "resolve_command") and (rest := [*context._protected_args, *context.args]):
            name, at, rest = at.resolve_command(context, rest)
            context = at.make_context(name, rest, parent=context, resilient_parsing="--help" in words)
        assert at.name != "gpusim", line


def test_the_table_of_lessons_lists_each() -> None:
    table = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in NOTEBOOKS if f"({path.name})" not in table] == []
