"""Texts of a module for readers, and their sentences."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

from .tree import functions, nodes, parsed, text

MOST_WORDS = 25
"""In a sentence."""

HELP = {"help", "short_help", "epilog", "description"}
"""Keywords whose value a user reads."""

_ERROR = re.compile(r"(Error|Exit|Parameter|Refused)$")
_SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Attributes|Example|Examples|Note|In|Out|Models|Ignores|Source):")
_ITEM = re.compile(r"^\s*([*-] |\d+\. |[*`\w.]+( \([^)]*\))?: )")
_END = re.compile(r"(?<![.\s][A-Za-z])(?<!e\.g)(?<!i\.e)(?<!vs)(?<!cf)[.!?][\"')`*]*(?=\s|$)")
_COMMENT = re.compile(r"((?:^//.*\n)+)(?:template .*\n)?(?:class|struct) (\w+)", re.MULTILINE)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


@cache
def docstrings(path: Path) -> tuple[str, ...]:
    """Those of the module, its classes and its functions."""
    owners = [parsed(path), *nodes(path, ast.ClassDef), *functions(path)]
    return tuple(found for owner in owners if (found := ast.get_docstring(owner)))


@cache
def attribute_docstrings(path: Path) -> tuple[str, ...]:
    """Texts below a constant or an attribute."""
    bodies = [parsed(path).body, *(owner.body for owner in nodes(path, ast.ClassDef))]
    return tuple(
        constant_text(node.value)
        for body in bodies
        for before, node in pairwise(body)
        if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(node, ast.Expr) and _is_text(node.value)
    )


def constant_text(node: ast.AST) -> str:
    """What of a text is written in the source: of an f-string, all but its values."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(constant_text, node.values))
    if isinstance(node, ast.BinOp):
        return constant_text(node.left) + constant_text(node.right)
    return ""


@cache
def help_texts(path: Path) -> tuple[str, ...]:
    calls = nodes(path, ast.Call)
    return tuple(constant_text(word.value) for call in calls for word in call.keywords if word.arg in HELP)


@cache
def messages(path: Path) -> tuple[str, ...]:
    """Texts of errors, where they are made."""
    calls = [call for call in nodes(path, ast.Call) if _ERROR.search(ast.unparse(call.func))]
    return tuple(found for call in calls for argument in call.args if (found := constant_text(argument)))


@cache
def comments_of_classes(path: Path) -> dict[str, str]:
    """What stands above each class of a file of the engine."""
    return {name: re.sub(r"^// ?", "", comment, flags=re.MULTILINE) for comment, name in _COMMENT.findall(text(path))}


def _blocks(prose: str) -> Iterator[str]:
    """Paragraphs and items of lists, without examples and literal blocks."""
    lines: list[str] = []
    is_example = False
    literal: int | None = None
    for line in [*prose.splitlines(), ""]:
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        if literal is not None and stripped and indent > literal:
            continue
        if stripped:
            literal = None
        is_example = bool(stripped) and (is_example or stripped.startswith(">>>"))
        starts_anew = not stripped or is_example or _ITEM.match(line) or _SECTION.match(stripped)
        if starts_anew and lines:
            yield " ".join(lines)
            lines = []
        if stripped and not is_example:
            lines.append(stripped)
            if stripped.endswith("::"):
                literal = indent


def sentences(prose: str) -> Iterator[str]:
    """Sentences end with a full stop, a question or an exclamation mark, a paragraph or an item of a list."""
    for block in _blocks(prose):
        begin = 0
        for end in _END.finditer(block):
            yield block[begin : end.end()].strip()
            begin = end.end()
        if rest := block[begin:].strip():
            yield rest


def num_words(sentence: str) -> int:
    """Words; a span of code is one."""
    plain = re.sub(r"`+[^`]*`+", "code", sentence)
    return sum(any(map(str.isalnum, word)) for word in plain.split())


def long_sentences(prose: str) -> list[str]:
    return [sentence for sentence in sentences(prose) if num_words(sentence) > MOST_WORDS]
