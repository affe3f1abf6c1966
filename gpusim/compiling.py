"""Make the compiled modules of :mod:`gpusim.compiled`: the busiest sources, by mypyc and the C compiler.

In: sources, as they are. Out: shared libraries beside the package, and a manifest of what they were made of.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gpusim.compiled import PACKAGE, home, manifest_of
from gpusim.errors import ConfigError

COMPILED = (
    "machine/*.py", "machine/memory/*.py", "machine/sm/*.py", "simulate/costs/*.py",
    "simulate/cta.py", "simulate/engine.py", "simulate/flow.py", "simulate/loops.py", "simulate/role.py",
    "simulate/steady.py", "simulate/warp.py",
    "kernel_models/gemm/*.py",
)  # fmt: skip
"""What the profile of a prediction is made of; the machine as a whole, because its classes inherit from one another."""

LEFT_OUT = (
    "__init__.py", "machine/config.py", "machine/floorplan.py", "machine/memory/panels.py", "machine/memory/tables.py",
    "machine/memory/traffic.py", "gemm/params.py", "gemm/checks.py", "gemm/defaults.py", "gemm/room.py", "gemm/registers.py",
)
"""Of these: pydantic's, or numpy's work, or done once. So is all that has a cached property, which mypyc does not cache."""


def files_to_compile(package: Path = PACKAGE) -> list[str]:
    """Paths in the package."""
    found = sorted(path.relative_to(package).as_posix() for each in COMPILED for path in package.glob(each))
    return [
        path for path in found
        if not path.endswith(LEFT_OUT) and "cached_property" not in (package / path).read_text(encoding="utf-8")
    ]  # fmt: skip


HELPERS = '''

from typing import Any as _Any
from builtins import sum as _builtin_sum

_sum: _Any = _builtin_sum


def _as_written(annotations: dict[str, str]) -> _Any:
    def of_python(kind: _Any) -> _Any:
        if annotations:
            kind.__annotations__ = annotations
        return kind

    return of_python


'''
"""What compiled sources need: the sum of Python, which rounds as Python does; classes that stay Python's."""

BUILD = '''
import inspect
import sys

from setuptools import setup
from mypyc.build import mypycify

plain = inspect.Signature.__init__


def forgiving(self, parameters=None, **options):  # mypyc documents a keyword without default behind one with, and fails
    try:
        plain(self, parameters, **options)
    except ValueError:
        plain(self)


inspect.Signature.__init__ = forgiving
modules = mypycify(["--ignore-missing-imports", *sys.argv[1:]], opt_level="2", debug_level="0")
for module in modules:
    module.extra_compile_args += ["-ffp-contract=off"]  # a product and a sum are rounded one by one, as in Python
setup(name="gpusim_compiled", packages=[], ext_modules=modules, script_args=["build_ext", "--build-lib", "out"])
'''


def prepare(source: str) -> str:
    """The source to compile: what mypyc does otherwise than Python is left to Python.

    Frozen dataclasses (pydantic reads their annotations) and classes with cached properties stay Python's classes, with
    compiled methods; other dataclasses lose their slots, which compiled classes have anyway; sums are Python's; what
    ``__next__`` returns is an object.

    >>> print(prepare("x = sum([1.0])").splitlines()[-1])
    x = _sum([1.0])
    """
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    edits: list[tuple[int, int, int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "sum":
            edits.append((node.func.lineno, node.func.col_offset, node.func.col_offset + 3, "_sum"))
        elif isinstance(node, ast.ClassDef):
            edits += _edits_of_class(node)
    edits.append((_first_line_after_imports(tree, len(lines)), 0, 0, HELPERS))
    for line, begin, end, text in sorted(edits, reverse=True):
        if line > len(lines):
            lines.append(text)
            continue
        encoded = lines[line - 1].encode()
        lines[line - 1] = (encoded[:begin] + text.encode() + encoded[end:]).decode()
    return "".join(lines)


def _edits_of_class(node: ast.ClassDef) -> list[tuple[int, int, int, str]]:
    """(line, column from, column to, what to put there)."""
    edits: list[tuple[int, int, int, str]] = []
    words = [ast.unparse(item) for item in node.decorator_list]
    is_dataclass = any(word.split("(")[0] == "dataclass" for word in words)
    methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
    is_cached = any("cached_property" in ast.unparse(item) for each in methods for item in each.decorator_list)
    if is_cached or (is_dataclass and any("frozen=True" in word for word in words)):
        annotations = {ast.unparse(item.target): ast.unparse(item.annotation)
                       for item in node.body if isinstance(item, ast.AnnAssign)}
        edits.append((node.lineno, 0, 0, f"@_as_written({annotations!r})\n"))
    elif is_dataclass:
        for item in node.decorator_list:
            if ast.unparse(item) == "dataclass(slots=True)":
                assert item.end_col_offset is not None  # parsed from text
                edits.append((item.lineno, item.col_offset, item.end_col_offset, "dataclass"))
    for each in methods:
        if each.name == "__next__" and each.returns is not None:
            assert each.returns.end_col_offset is not None
            edits.append((each.returns.lineno, each.returns.col_offset, each.returns.end_col_offset, "_Any"))
    return edits


def _first_line_after_imports(tree: ast.Module, num_lines: int) -> int:
    """Where helpers may stand."""
    for node in tree.body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and not isinstance(node, ast.Import | ast.ImportFrom):
            decorators = getattr(node, "decorator_list", [])
            return min([node.lineno, *(item.lineno for item in decorators)])
    return num_lines + 1


def missing_tools() -> str | None:
    """What cannot be compiled with, for want of something; None where all is there."""
    for name in ("mypyc", "setuptools"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed: pip install 'mypy>=1.13' setuptools"
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        return "no C compiler is found: install gcc"
    return None


def build(package: Path = PACKAGE) -> Path:
    """Compile; returns where the libraries are.

    Raises:
        ConfigError: a tool is missing, or compiling failed.
    """
    missing = missing_tools()
    if missing is not None:
        raise ConfigError(f"compile: {missing}")
    manifest = manifest_of(package, {})  # before: an edit meanwhile makes it outdated
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        shutil.copytree(package, root / "gpusim", ignore=shutil.ignore_patterns("__pycache__", "_compiled", "configs", "kernels"))
        files = [f"gpusim/{path}" for path in files_to_compile(package)]
        for file in files:
            path = root / file
            path.write_text(prepare(path.read_text(encoding="utf-8")), encoding="utf-8")
        (root / "build_modules.py").write_text(BUILD, encoding="utf-8")
        (root / "out").mkdir()
        ran = subprocess.run(
            [sys.executable, "build_modules.py", *files], cwd=root, capture_output=True, text=True, check=False
        )
        built = sorted((root / "out").rglob("*.so"))
        if ran.returncode or not built:
            said = [line for line in (ran.stdout + ran.stderr).splitlines() if "error" in line.lower()]
            raise ConfigError(f"compile: {said[0].strip() if said else 'the compiler failed'}; gpusim works without")
        target = home(package)
        try:
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            for path in built:
                name = ".".join(path.relative_to(root / "out").parts).split(".cpython-")[0].split(".abi3")[0]
                file = f"{name}.so"
                shutil.copyfile(path, target / file)
                manifest["modules"][name] = file
            (target / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"compile: {target}: {error.strerror}, wants a directory that can be written") from None
    return target


def clean(package: Path = PACKAGE) -> None:
    """Forget compiled modules, of every Python."""
    shutil.rmtree(package / "_compiled", ignore_errors=True)
