"""Source files of the repository; each is read and parsed once a process."""

from __future__ import annotations

import ast
import gc
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "gpusim"
MODULES = sorted(PACKAGE.rglob("*.py"))
CASES = sorted((ROOT / "kernels").rglob("*.py"))
SCRIPTS = sorted((ROOT / "scripts").glob("*.py"))
PYTHON = (*MODULES, *CASES, *SCRIPTS)
DOCUMENTS = sorted([
    *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "decisions").glob("*.md"),
    *(ROOT / "validation").glob("*.md"),
    *(ROOT / "validation" / "deviations").rglob("*.md"), *(ROOT / "kernels").rglob("README.md"),
])  # fmt: skip
ENGINE = sorted([*(ROOT / "engine").glob("*.h"), *(ROOT / "engine").glob("*.cpp")])

Node = TypeVar("Node", bound=ast.AST)


def name_of(path: Path) -> str:
    """The path from the repository's root."""
    return path.relative_to(ROOT).as_posix()


@cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def parsed(path: Path) -> ast.Module:
    gc.disable()  # a tree is many objects, none of them garbage
    try:
        return ast.parse(text(path))
    finally:
        gc.enable()


@cache
def _by_kind(path: Path) -> Mapping[type[ast.AST], list[ast.AST]]:
    kinds: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
    for node in ast.walk(parsed(path)):
        kinds[type(node)].append(node)
    return kinds


def nodes(path: Path, *kinds: type[Node]) -> list[Node]:
    """Nodes of a module that are of one of these kinds."""
    return [cast("Node", node) for kind in kinds for node in _by_kind(path).get(kind, ())]


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [*nodes(path, ast.FunctionDef), *nodes(path, ast.AsyncFunctionDef)]


def module_name(path: Path) -> str:
    """Dotted name of a module of gpusim."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


BY_NAME = {module_name(path): path for path in MODULES}


def imported_names(path: Path, node: ast.Import | ast.ImportFrom) -> list[str]:
    """Dotted names that an import statement may refer to: the module, and the module with each name of it."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    package = ["gpusim", *path.relative_to(PACKAGE).parts[:-1]] if path.is_relative_to(PACKAGE) else []
    base = package[: len(package) - node.level + 1] if node.level else []
    module = ".".join([*base, node.module] if node.module else base)
    return [module, *(f"{module}.{alias.name}" for alias in node.names)]


def import_statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """All of a module: at its top, in functions, and those for the type checker alone."""
    return [*nodes(path, ast.Import), *nodes(path, ast.ImportFrom)]


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Dotted names of all that a module imports, in functions and for the type checker, too."""
    return tuple(name for node in import_statements(path) for name in imported_names(path, node))
