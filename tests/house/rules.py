"""What each rule finds in the tree: offenders by name, each with a number that is to become smaller."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path

from .prose import attribute_docstrings, comments_of_classes, docstrings, help_texts, long_sentences, messages
from .tree import (
    BY_NAME,
    CASES,
    DOCUMENTS,
    ENGINE,
    MODULES,
    PYTHON,
    ROOT,
    functions,
    import_statements,
    imported_names,
    name_of,
    nodes,
    parsed,
    text,
)

Offenders = dict[str, int]

MOST_LINES = 399
"""Of a module, with its comments."""
MOST_ATTRIBUTES = 19
MOST_PARAMETERS = 6
MOST_FIGURES = 2
"""In a tuple without names."""

BANNED_IN_MODULES = {
    "apart", "deed", "deeds", "door", "doors", "flow", "house", "laggard", "mend", "mends", "own", "places", "proof", "room",
    "rooms", "said", "told", "turns", "twin", "twins", "uses", "whole",
}  # fmt: skip
"""Words that no file is named after."""

GLOSSARY = tomllib.loads((ROOT / "docs" / "glossary.toml").read_text(encoding="utf-8"))
RENAMED_PARAMETERS = tomllib.loads((ROOT / "gpusim" / "machine" / "renamed_parameters.toml").read_text(encoding="utf-8"))

SPEED = {"gpusim/workload/fast_init.py"}
"""Modules that are written for speed; the first line of each says so."""

_NEEDS_LINE_ABOVE = re.compile(
    r"(The same\b|Of (these|those|them|the same)\b|\.\.\.|Beside (that|those|these|them)\b|As above)"
)
_NO_NOUN = re.compile(
    r"(And|As|At|Below|Beside|Beyond|But|By|From|How|In|It|Its|Of|On|So|Such|Than|That|Them|These|They|Those|To|What|Which|Who|"
    r"Whose)\b"
)
_SPEED = re.compile(r"\b(hot (path|loop)|for speed|faster|quicker|sooner made|made sooner|as fast)\b")
_VERSION = re.compile(r"(sm_)?(7|8|9|10|11|12)\.?\d[af]?")
_IDENTIFIER_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def counted(entries: Iterator[str]) -> Offenders:
    return dict(Counter(entries))


# ---------------------------------------------------------------------- names


def words_of_module(path: Path) -> set[str]:
    """Words of a module's name, and of the folder that it is the first file of."""
    name = path.parent.name if path.stem in ("__init__", "case", "kernel", "probe") else path.stem
    return set(name.strip("_").split("_"))


def module_names() -> Offenders:
    return {
        name_of(path): num
        for path in PYTHON
        if path.name != "__init__.py" and (num := len(words_of_module(path) & BANNED_IN_MODULES))
    }


def module_words() -> set[str]:
    """Words of all module names of gpusim."""
    return set().union(*map(words_of_module, MODULES))


def defined_names(path: Path) -> set[str]:
    """Identifiers that a module defines: modules, classes, functions, parameters, attributes and variables."""
    stored = (node for node in nodes(path, ast.Name) if isinstance(node.ctx, ast.Store))
    attributes = (node for node in nodes(path, ast.Attribute) if isinstance(node.ctx, ast.Store))
    return {
        path.stem,
        *(node.name for node in (*nodes(path, ast.ClassDef), *functions(path))),
        *(node.arg for node in nodes(path, ast.arg)),
        *(node.id for node in stored),
        *(node.attr for node in attributes),
    }


@cache
def _forbidden() -> tuple[tuple[re.Pattern[str], frozenset[str], tuple[tuple[str, tuple[str, ...]], ...]], ...]:
    """For texts a pattern, for identifiers a set; and files in which a word means something else."""
    words = [word for table in ("concepts", "plain_english") for forbidden in GLOSSARY[table].values() for word in forbidden]
    words += RENAMED_PARAMETERS
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, words))})\b", re.IGNORECASE)
    elsewhere = tuple((word, tuple(places)) for word, places in GLOSSARY["elsewhere"].items())
    return ((pattern, frozenset(words), elsewhere),)


def _synonyms(prose: str, names: set[str], file: str) -> int:
    ((pattern, words, elsewhere),) = _forbidden()
    allowed = {word for word, places in elsewhere if file.startswith(tuple(places))}
    in_text = sum(match.lower() not in allowed for match in pattern.findall(prose))
    in_names = 0
    long_words = [word for word in words - RENAMED_PARAMETERS.keys() if "_" in word]
    for name in names:
        parts = {part.lower() for part in _IDENTIFIER_PARTS.findall(name)}
        in_names += bool(parts & words - allowed) or any(word in name for word in long_words)
        in_names += name in RENAMED_PARAMETERS
    return in_text + in_names


def _comments(path: Path) -> str:
    return "\n".join(line.partition("#")[2] for line in text(path).splitlines() if "#" in line)


def synonyms() -> Offenders:
    """Forbidden synonyms in identifiers that a module defines, in its texts, and in documents."""
    found: Offenders = {}
    for path in PYTHON:
        prose = chain(docstrings(path), attribute_docstrings(path), help_texts(path), messages(path), [_comments(path)])
        found[name_of(path)] = _synonyms("\n".join(prose), defined_names(path), name_of(path))
    for path in DOCUMENTS:
        if path.name != "CHANGELOG.md":  # it says which old name is which new one
            found[name_of(path)] = _synonyms(text(path), set(), name_of(path))
    return {name: num for name, num in found.items() if num}


# ---------------------------------------------------------------------- sentences


def sentences_of_docstrings() -> Offenders:
    return counted(
        name_of(path)
        for path in PYTHON
        for prose in chain(docstrings(path), attribute_docstrings(path))
        for _ in long_sentences(prose)
    )


def sentences_of_help() -> Offenders:
    return counted(name_of(path) for path in PYTHON for prose in help_texts(path) for _ in long_sentences(prose))


def sentences_of_messages() -> Offenders:
    return counted(name_of(path) for path in PYTHON for prose in messages(path) for _ in long_sentences(prose))


def sentences_of_engine() -> Offenders:
    return counted(
        f"{name_of(path)}:{name}"
        for path in ENGINE
        for name, comment in comments_of_classes(path).items()
        for _ in long_sentences(comment)
    )


def lists_of_models() -> Offenders:
    """Comments of the engine whose Models or Ignores is no list of bullets."""
    return counted(
        f"{name_of(path)}:{name}"
        for path in ENGINE
        for name, comment in comments_of_classes(path).items()
        for _ in re.findall(r"^(?:Models|Ignores): \S", comment, re.MULTILINE)
    )


def docstrings_that_need_the_line_above() -> Offenders:
    return counted(
        name_of(path)
        for path in PYTHON
        for prose in chain(docstrings(path), attribute_docstrings(path))
        if _NEEDS_LINE_ABOVE.match(prose.lstrip())
    )


def attributes_without_a_noun() -> Offenders:
    """Docstrings of attributes whose first word is neither a noun nor a unit."""
    return counted(
        name_of(path) for path in PYTHON for prose in attribute_docstrings(path) if _NO_NOUN.match(prose.lstrip())
    )


# ---------------------------------------------------------------------- data in code


def _is_number(node: ast.AST) -> bool:
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def figures_in_code() -> Offenders:
    """Tuples of three numbers or more in tables of cases: values of a constant dict."""
    found: Counter[str] = Counter()
    for path in CASES:
        for node in parsed(path).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
                inner = chain.from_iterable(map(ast.walk, node.value.values))
                tuples = [item for item in inner if isinstance(item, ast.Tuple) and len(item.elts) > MOST_FIGURES]
                found[name_of(path)] += sum(all(map(_is_number, item.elts)) for item in tuples)
    return dict(+found)


def _is_version(node: ast.AST) -> bool:
    if isinstance(node, ast.Tuple):
        values = [item.value for item in node.elts if isinstance(item, ast.Constant)]
        return len(values) == len(node.elts) == 2 and values[0] in range(7, 13) and values[1] in range(10)
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_VERSION.fullmatch(node.value))


def version_numbers() -> Offenders:
    """Comparisons with a compute capability, and compute capabilities that are written out to be compared with."""
    found: Counter[str] = Counter()
    for path in MODULES:
        if name_of(path).startswith(("gpusim/evidence/bench/", "gpusim/evidence/toolchain/")):
            continue
        for node in nodes(path, ast.Compare):
            sides = (node.left, *node.comparators)
            found[name_of(path)] += any("capability" in ast.unparse(side) or _is_version(side) for side in sides)
        tables = [value for table in nodes(path, ast.Dict) for value in table.values]
        found[name_of(path)] += sum(isinstance(value, ast.Constant) and _is_version(value) for value in tables)
    return dict(+found)


# ---------------------------------------------------------------------- sizes


def long_modules() -> Offenders:
    """Lines, in tens, so that a line less is not a new entry."""
    lengths = {name_of(path): len(text(path).splitlines()) for path in PYTHON}
    return {name: -(-num // 10) * 10 for name, num in lengths.items() if num > MOST_LINES}


def attributes_of(owner: ast.ClassDef) -> set[str]:
    """Annotated in the class, or set on ``self`` in one of its methods."""
    annotated = [node.target for node in owner.body if isinstance(node, ast.AnnAssign)]
    declared = {target.id for target in annotated if isinstance(target, ast.Name)}
    methods = [node for node in owner.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return declared | {
        node.attr
        for method in methods
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def wide_classes() -> Offenders:
    """Attributes of a class."""
    return {
        f"{name_of(path)}:{owner.name}": num
        for path in PYTHON
        for owner in nodes(path, ast.ClassDef)
        if (num := len(attributes_of(owner))) > MOST_ATTRIBUTES
    }


def num_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """``*args`` and ``**kwargs`` are one each; ``self`` is none."""
    of = function.args
    names = [item.arg for item in (*of.posonlyargs, *of.args, *of.kwonlyargs)]
    return sum(name not in ("self", "cls") for name in names) + (of.vararg is not None) + (of.kwarg is not None)


def wide_functions() -> Offenders:
    """Parameters of a function."""
    found: Offenders = {}
    for path in (*MODULES, *CASES):
        for function in functions(path):
            if (num := num_parameters(function)) > MOST_PARAMETERS:
                name = f"{name_of(path)}:{function.name}"
                found[name] = max(num, found.get(name, 0))
    return found


# ---------------------------------------------------------------------- imports


def at_top(path: Path) -> list[ast.stmt]:
    """Statements of a module outside functions and classes, also those below ``if TYPE_CHECKING``."""
    body = parsed(path).body
    return [*body, *(inner for node in body if isinstance(node, ast.If) for inner in (*node.body, *node.orelse))]


def lazy_imports() -> Offenders:
    """Imports of our own modules inside a function, where a command line does not need them late."""
    found: Counter[str] = Counter()
    for path in MODULES:
        if path.name in ("__init__.py", "__main__.py") or name_of(path).startswith("gpusim/cli/"):
            continue
        ours = [node for node in import_statements(path) if imported_names(path, node)[0].split(".")[0] == "gpusim"]
        found[name_of(path)] = sum(node not in at_top(path) for node in ours)
    return dict(+found)


@cache
def import_graph() -> dict[str, set[str]]:
    """Of each module those that it names in an import: also in a function, also for the type checker."""
    graph: dict[str, set[str]] = {}
    for name, path in BY_NAME.items():
        graph[name] = set()
        for node in import_statements(path):
            names = imported_names(path, node)
            if isinstance(node, ast.ImportFrom):  # a name that is no module comes from the module that it is imported from
                names = [dotted if dotted in BY_NAME else names[0] for dotted in names[1:]]
            graph[name].update(dotted for dotted in names if dotted in BY_NAME and dotted != name)
    return graph


def reachable(graph: dict[str, set[str]], begin: str) -> set[str]:
    seen: set[str] = set()
    left = [begin]
    while left:
        for name in graph[left.pop()] - seen:
            seen.add(name)
            left.append(name)
    return seen


def import_cycles() -> Offenders:
    """Modules that import themselves over others, and of how many modules the cycle is."""
    graph = import_graph()
    reach = {name: reachable(graph, name) for name in graph}
    sizes = {name: sum(name in reach[other] for other in reach[name]) for name in graph if name in reach[name]}
    return {name_of(BY_NAME[name]): num for name, num in sizes.items()}


# ---------------------------------------------------------------------- speed


def speed_elsewhere() -> Offenders:
    """Comments on speed in modules that do not say in their first line that they are written for it."""
    return {
        name_of(path): num
        for path in MODULES
        if name_of(path) not in SPEED and (num := len(_SPEED.findall(_comments(path))))
    }


RULES: dict[str, Callable[[], Offenders]] = {
    "attributes_without_a_noun": attributes_without_a_noun,
    "docstrings_that_need_the_line_above": docstrings_that_need_the_line_above,
    "figures_in_code": figures_in_code,
    "import_cycles": import_cycles,
    "lazy_imports": lazy_imports,
    "lists_of_models": lists_of_models,
    "long_modules": long_modules,
    "module_names": module_names,
    "sentences_of_docstrings": sentences_of_docstrings,
    "sentences_of_engine": sentences_of_engine,
    "sentences_of_help": sentences_of_help,
    "sentences_of_messages": sentences_of_messages,
    "speed_elsewhere": speed_elsewhere,
    "synonyms": synonyms,
    "version_numbers": version_numbers,
    "wide_classes": wide_classes,
    "wide_functions": wide_functions,
}
"""Those with a list of today's offenders."""
