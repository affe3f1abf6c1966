"""Pages of the docs site that are made from what is in the tree: the command line, the parts, the words, the lessons."""

from __future__ import annotations

import csv
import importlib
import inspect
import json
import pkgutil
import re
import shutil
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

COPIED = {
    "CHANGELOG.md": "changelog.md",
    "kernels/README.md": "kernels.md",
    "validation/README.md": "validation.md",
}
"""Pages that lie elsewhere in the tree, and their name on the site."""

MADE_FROM = {"gpusim/workload/ops.py": "ops.md", "engine": "parts.md"}
"""Sources of pages, and their name on the site."""

ROOMS = ("layout", "workload", "kernel_models", "machine", "program", "traffic", "simulate", "reference")
"""Rooms whose docstrings say what a part models, in the order of the data; the engine's own parts come first."""

FOLD, FOLD_END = "<details><summary>What you should have seen</summary>\n\n", "\n\n</details>"
"""Around an answer in words, in Jupyter."""

SECTIONS = ("Models:", "Ignores:", "Source:")


def write_pages(folder: Path, root: Path) -> None:
    """Write every generated page anew into ``folder``, from the checkout at ``root``."""
    shutil.rmtree(folder, ignore_errors=True)
    lessons = folder / "lessons"
    lessons.mkdir(parents=True)
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        told = json.dumps(folded(json.loads(path.read_text(encoding="utf-8"))), indent=1)
        (lessons / path.name).write_text(told, encoding="utf-8")
    for source, name in COPIED.items():
        text = (root / source).read_text(encoding="utf-8").replace("](../docs/", "](../")
        (folder / name).write_text(text, encoding="utf-8")
    pages = folder / "deviations"
    pages.mkdir()
    for path in sorted((root / "validation" / "deviations").glob("*.md")):
        shutil.copy(path, pages / path.name)
    (pages / "table.md").write_text(deviations(root), encoding="utf-8")
    (folder / "command_line.md").write_text(command_line(), encoding="utf-8")
    (folder / "parts.md").write_text(parts(root), encoding="utf-8")
    (folder / "ops.md").write_text(ops(), encoding="utf-8")


def deviations(root: Path) -> str:
    """The table of deviations; the number of a row leads to its page."""
    with (root / "validation" / "deviations.csv").open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    pages = {int(path.name[:2]): path.name for path in (root / "validation" / "deviations").glob("[0-9]*.md")}
    lines = ["# Every deviation", "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name, *cells in rows:
        page = pages.get(int(name.split(".")[0]))
        lines.append(f"| {' | '.join([f'[{name}]({page})' if page else name, *map(_cell, cells)])} |")
    return "\n".join(lines) + "\n"


def folded(notebook: dict[str, Any]) -> dict[str, Any]:
    """A lesson as the site shows it: cells tagged ``answer`` in folds, those that follow one another in one."""
    cells: list[dict[str, Any]] = []
    shown = (cell for cell in notebook["cells"] if "remove-cell" not in tags(cell))
    for is_answer, run in groupby(shown, lambda cell: "answer" in tags(cell)):
        found = list(run)
        if is_answer:
            holds = any("compare(" in "".join(cell["source"]) for cell in found)
            summary = "Predict first, then look: the answer" if holds else "Look: the silicon's answer"
            begin = _markdown_cell(f"fold-{len(cells)}", f'<details class="answer"><summary>{summary}</summary>')
            found = [begin, *map(_unfolded, found), _markdown_cell(f"end-{len(cells)}", "</details>")]
        cells += found
    return {**notebook, "cells": cells}


def tags(cell: dict[str, Any]) -> list[str]:
    """Of a notebook's cell."""
    found: list[str] = cell["metadata"].get("tags", [])
    return found


def _markdown_cell(name: str, text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": [text]}


def _unfolded(cell: dict[str, Any]) -> dict[str, Any]:
    """Without the fold that Jupyter shows: it lies in one of the site's."""
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        text = text.removeprefix(FOLD).removesuffix(FOLD_END)
    return {**cell, "source": text.splitlines(keepends=True)}


def linked(name: str, text: str) -> str:
    """A page directly in ``docs/``, with links to files of the tree as links to their pages on the site.

    >>> linked("guide", "[why](../validation/deviations/05_clock.md), [ops](../gpusim/workload/ops.py)")
    '[why](generated/deviations/05_clock.md), [ops](generated/ops.md)'
    """
    if "/" in name:
        return text
    pages = {**COPIED, **MADE_FROM}
    return re.sub(
        r"\]\(\.\./(validation/deviations/)?([\w/.]+)\)",
        lambda match: f"](generated/{'deviations/' + match[2] if match[1] else pages.get(match[2], '../../' + match[2])})",
        text,
    )


def alone(name: str, text: str) -> str:
    r"""A page; a decision's is in no sidebar, since all decisions in that of every page take most of a build.

    >>> alone("guide", "# Guide"), alone("decisions/001_why", "# Why")
    ('# Guide', '---\norphan: true\n---\n# Why')
    """
    return f"---\norphan: true\n---\n{text}" if re.match(r"decisions/\d", name) else text


def command_line() -> str:
    """Every command with its options, as Markdown."""
    import typer
    from typer.cli import get_docs_for_click
    from typer.main import get_command

    from gpusim.cli import app

    root = get_command(app)
    top = typer.Context(root, info_name="gpusim")
    pages = [
        "# Command line\n\nWhat `gpusim COMMAND --help` says, of all commands. "
        "Bad input costs one sentence and exit status 2.\n"
    ]
    for name in root.list_commands(top):  # type: ignore[attr-defined]
        command = root.get_command(top, name)  # type: ignore[attr-defined]
        context = typer.Context(command, info_name=name, parent=top)
        text = get_docs_for_click(obj=command, ctx=context, name=name, call_prefix="gpusim")
        pages.append(re.sub(r"^(#+ )", r"#\1", text, flags=re.MULTILINE))
    return "\n".join(pages)


def parts(root: Path) -> str:
    """What each part models, ignores and rests on: from above the engine's classes, and from docstrings."""
    lines = [
        "# What each part models", "",
        "From the sources: first the engine's parts, which say how long everything takes, then the rooms of the package in "
        "the order of the data. What a part ignores is said here, and how far off predictions are by it in "
        "[deviations](deviations/README.md).",
        "", "## engine",
    ]
    for path in sorted((root / "engine").glob("*.h")):
        text = path.read_text(encoding="utf-8")
        of_file = [(name, comment) for name, comment in told_in(text) if "Models:" in comment]
        if of_file:
            lines += ["", f"### `engine/{path.name}`", "", _plain(re.match(r"(?:^//.*\n)*", text, re.MULTILINE))]
        for name, comment in of_file:
            lines += ["", f"#### `{name}`", "", *_listed(comment)]
    for room in ROOMS:
        rows = sorted(_told(room))
        if rows:
            package = importlib.import_module(f"gpusim.{room}")
            lines += ["", f"## {room}", "", first_paragraph(inspect.getdoc(package) or "")]
        for name, text in rows:
            lines += ["", f"### `{name}`", "", *_sections(text)]
    return "\n".join(lines) + "\n"


def told_in(text: str) -> Iterator[tuple[str, str]]:
    """Classes of a file of the engine, and what stands above each."""
    for comment, name in re.findall(r"((?:^//.*\n)+)(?:template .*\n)?(?:class|struct) (\w+)", text, re.MULTILINE):
        yield name, re.sub(r"^// ?", "", comment, flags=re.MULTILINE)


def _plain(comment: re.Match[str] | None) -> str:
    """The words of a comment."""
    return " ".join(line.removeprefix("//").strip() for line in (comment.group() if comment else "").splitlines())


def _listed(comment: str) -> Iterator[str]:
    """A class's comment as Markdown: what it is, then a list of what it models, ignores and rests on."""
    begin, *sections = re.split(r"^(?=(?:Models|Ignores|Source):)", comment, flags=re.MULTILINE)
    if begin.strip():
        yield from (" ".join(begin.split()), "")
    for section in sections:
        name, words = section.split(":", 1)
        first, *items = re.split(r"^\* ", words, flags=re.MULTILINE)
        yield f"* **{name}**: {' '.join(first.split())}".rstrip()
        yield from (f"  * {' '.join(item.split())}" for item in items)


def ops() -> str:
    """The words of warp programs, a row each."""
    from gpusim.workload import ops as words

    classes = (word for _, word in inspect.getmembers(words, inspect.isclass))
    found = [word for word in classes if issubclass(word, words.Op) and word is not words.Op]
    found.sort(key=lambda word: inspect.getsourcelines(word)[1])
    lines = [
        "# Words of warp programs", "", "What a role's generator yields (`gpusim.workload.ops`).", "",
        "| op | fields | what it says |", "|---|---|---|",
    ]
    for word in found:
        fields = ", ".join(f"`{field}`" for field in word.__dataclass_fields__)
        lines.append(f"| `{word.__name__}` | {fields} | {_cell(first_paragraph(inspect.getdoc(word) or ''))} |")
    return "\n".join(lines) + "\n"


def first_paragraph(doc: str) -> str:
    """The first paragraph of a docstring, on one line, in Markdown."""
    return _markdown(" ".join(doc.split("\n\n", maxsplit=1)[0].split()))


def _told(room: str) -> Iterator[tuple[str, str]]:
    """Name and docstring of every part of a room that says what it models."""
    package = importlib.import_module(f"gpusim.{room}")
    for module_info in pkgutil.walk_packages(package.__path__, f"gpusim.{room}."):
        module = importlib.import_module(module_info.name)
        own: list[tuple[str, Any]] = [(module.__name__, module)]
        own += [
            (f"{module.__name__}.{name}", what) for name, what in vars(module).items()
            if (inspect.isclass(what) or inspect.isfunction(what)) and what.__module__ == module.__name__
        ]
        for name, what in own:
            doc = inspect.getdoc(what) or ""
            if "Models:" in doc:
                yield name, doc


def _sections(doc: str) -> Iterator[str]:
    """A docstring as Markdown: its first paragraph, then what it models, ignores and rests on as a list."""
    yield first_paragraph(doc)
    yield ""
    for section in re.split(r"(?=\b(?:Models|Ignores|Source|Args|Returns|Raises):)", doc.split("\n\n", 1)[-1]):
        if section.startswith(SECTIONS):
            name, words = section.split(":", 1)
            first, *items = re.split(r"^\s*\* ", words, flags=re.MULTILINE)
            yield f"* **{name}**: {_markdown(' '.join(first.split()))}".rstrip()
            yield from (f"  * {_markdown(' '.join(item.split()))}" for item in items)


def _markdown(text: str) -> str:
    return text.replace("``", "`")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
