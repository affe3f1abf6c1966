"""Make the compiled modules of :mod:`gpusim.compiled`: the busiest sources, by mypyc and the C compiler.

In: sources, as they are. Out: shared libraries beside the package, and a manifest of what they were made of.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gpusim.compiled import BINARY_TAG, PACKAGE, home, manifest_of
from gpusim.errors import ConfigError

COMPILED = (
    "machine/*.py", "machine/memory/*.py", "machine/sm/*.py", "simulate/costs/*.py",
    "simulate/cta.py", "simulate/engine.py", "simulate/flow.py", "simulate/laggard.py", "simulate/load_line.py",
    "simulate/loops.py", "simulate/op_costs.py", "simulate/role.py", "simulate/steady.py", "simulate/warp.py",
    "workload/token.py", "kernel_models/gemm/*.py",
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

from typing import Any as _Any, Final as _Final
from builtins import sum as _builtin_sum

_sum: _Any = _builtin_sum


def _as_written(annotations: dict[str, str]) -> _Any:
    def of_python(kind: _Any) -> _Any:
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


Edit = tuple[int, int, int, str]
"""Line, column from, column to (in bytes), what to put there."""

CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")


def prepare(source: str) -> str:
    """The source to compile: what mypyc does otherwise than Python is left to Python.

    Frozen dataclasses (pydantic reads their annotations) stay Python's classes, with compiled methods; other dataclasses
    lose their slots, which compiled classes have anyway; sums are Python's; what ``__next__`` returns is an object.
    Numbers that stay are marked as such, and members of WarpState are looked up once: either costs a search each time else.
    The greatest of several is that of two and two: mypyc makes a call of a Python function of more.

    >>> prepare("SIZE = 2").splitlines()[-1], prepare("x = sum([1.0])").splitlines()[-1]
    ('SIZE: _Final = 2', 'x = _sum([1.0])')
    >>> prepare("x = max(a, min(b, 2), c, d)").splitlines()[-1]
    'x = max(max(max(a, min(b, 2)), c), d)'
    """
    tree = ast.parse(source)
    edits = _edits_of_constants(tree)
    states: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "sum":
            edits.append(_instead_of(node.func, "_sum"))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("max", "min"):
            edits += _edits_of_extreme(node, node.func.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "WarpState":
            states.add(node.attr)
            edits.append(_instead_of(node, f"_STATE_{node.attr}"))
        elif isinstance(node, ast.ClassDef):
            edits += _edits_of_class(node)
    named = "".join(f"_STATE_{state}: _Final = WarpState.{state}\n" for state in sorted(states))
    edits.append((_line_after_imports(tree, source), 0, 0, HELPERS + named + "\n\n"))
    return _edited(source, edits)


def with_constants(source: str) -> str:
    """The same of a module that stays interpreted: its numbers are known when others are compiled.

    >>> print(with_constants("SIZE = 2"), end="")
    from typing import Final as _Final
    SIZE: _Final = 2
    """
    tree = ast.parse(source)
    first = (_line_after_imports(tree, source), 0, 0, "from typing import Final as _Final\n")
    return _edited(source, [*_edits_of_constants(tree), first])


def _edited(source: str, edits: list[Edit]) -> str:
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    lines.append(b"")
    for line, begin, end, text in sorted(edits, reverse=True):
        lines[line - 1] = lines[line - 1][:begin] + text.encode() + lines[line - 1][end:]
    return b"".join(lines).decode()


def _instead_of(node: ast.expr, text: str) -> Edit:
    assert node.end_col_offset is not None  # parsed from text
    assert node.end_lineno == node.lineno
    return (node.lineno, node.col_offset, node.end_col_offset, text)


def _edits_of_constants(tree: ast.Module) -> list[Edit]:
    edits: list[Edit] = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target: ast.expr = node.targets[0]
            is_plain = re.fullmatch(r"-?[\w.]+(e-\d+)?|float\('inf'\)", ast.unparse(node.value)) is not None
            if isinstance(target, ast.Name) and CONSTANT.fullmatch(target.id) and is_plain:
                edits.append(_instead_of(target, f"{target.id}: _Final"))
    return edits


def _edits_of_extreme(node: ast.Call, name: str) -> list[Edit]:
    if node.keywords or any(isinstance(item, ast.Starred) for item in node.args):
        return []
    closed = node.args[1:-1]
    edits: list[Edit] = [(node.lineno, node.col_offset, node.col_offset, f"{name}(") for _ in closed]
    for item in closed:
        assert item.end_lineno is not None  # parsed from text
        assert item.end_col_offset is not None
        edits.append((item.end_lineno, item.end_col_offset, item.end_col_offset, ")"))
    return edits


def _edits_of_class(node: ast.ClassDef) -> list[Edit]:
    edits: list[Edit] = []
    dataclasses = [item for item in node.decorator_list if ast.unparse(item).startswith("dataclass")]
    if any("frozen=True" in ast.unparse(item) for item in dataclasses):
        fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
        annotations = {ast.unparse(item.target): ast.unparse(item.annotation) for item in fields}
        edits.append((node.lineno, 0, 0, f"@_as_written({annotations!r})\n"))
    else:
        edits += [_instead_of(item, "dataclass") for item in dataclasses if ast.unparse(item) == "dataclass(slots=True)"]
    edits += [
        _instead_of(item.returns, "_Any")
        for item in node.body
        if isinstance(item, ast.FunctionDef) and item.name == "__next__" and item.returns is not None
    ]
    return edits


def _line_after_imports(tree: ast.Module, source: str) -> int:
    """Where helpers may stand."""
    for node in tree.body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and not isinstance(node, ast.Import | ast.ImportFrom):
            decorators: list[ast.expr] = getattr(node, "decorator_list", [])
            return min([node.lineno, *(item.lineno for item in decorators)])
    return len(source.splitlines()) + 1


def missing_tools() -> str | None:
    """What cannot be compiled with, for want of something; None where all is there."""
    for name in ("mypyc", "setuptools"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed: pip install 'mypy>=2' setuptools"
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        return "no C compiler is found: install gcc"
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return "Python's headers are not found: install python3-dev"
    return None


@contextmanager
def _directory_beside(target: Path) -> Iterator[str]:
    """An empty directory on the same disk; removed if it is still there."""
    place = tempfile.mkdtemp(prefix=f"{target.name}-", dir=target.parent)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


LOOKS_S = 1.0
"""Seconds between two looks at how far it is."""


def _run(root: Path, files: list[str], tell: Callable[[str, float], None]) -> tuple[int, str]:
    """(status, output) of the build in ``root``; ``tell`` hears what it is at, and the seconds so far."""
    began = time.monotonic()
    with (root / "said.txt").open("w+", encoding="utf-8") as said:
        with subprocess.Popen(
            [sys.executable, "build_modules.py", *files], cwd=root, stdout=said, stderr=subprocess.STDOUT, text=True
        ) as child:
            while True:
                by_c = next((root / "build").rglob("*.c"), None) is not None
                at = "the C compiler, the longer part" if by_c else f"mypyc, {len(files)} modules"
                tell(at, time.monotonic() - began)
                try:
                    status = child.wait(timeout=LOOKS_S)
                    break
                except subprocess.TimeoutExpired:
                    continue
                except BaseException:
                    child.kill()
                    raise
        said.seek(0)
        return status, said.read()


def build(package: Path = PACKAGE, tell: Callable[[str, float], None] = lambda at, seconds: None) -> Path:
    """Compile; returns where the libraries are. ``tell`` hears what it is at, and the seconds so far, every second.

    Raises:
        ConfigError: a tool is missing, or compiling failed.
    """
    missing = missing_tools()
    if missing is not None:
        raise ConfigError(f"compile: {missing}")
    manifest = manifest_of(package, {})  # before: an edit meanwhile makes it outdated
    target = home(package)
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh = Path(stack.enter_context(_directory_beside(target)))
        except OSError as error:
            raise ConfigError(f"compile: {target}: {error.strerror}, wants a directory that can be written") from None
        others = shutil.ignore_patterns("__pycache__", "_compiled", "configs", "kernels", "validation")
        shutil.copytree(package, root / "gpusim", ignore=others)
        files = [f"gpusim/{path}" for path in files_to_compile(package)]
        for file in files:
            path = root / file
            path.write_text(prepare(path.read_text(encoding="utf-8")), encoding="utf-8")
        units = root / "gpusim" / "units.py"
        units.write_text(with_constants(units.read_text(encoding="utf-8")), encoding="utf-8")
        (root / "build_modules.py").write_text(BUILD, encoding="utf-8")
        (root / "out").mkdir()
        status, output = _run(root, files, tell)
        built = sorted((root / "out").rglob(f"*{BINARY_TAG}"))
        if status or not built:
            said = [line for line in output.splitlines() if "error" in line.lower()]
            raise ConfigError(f"compile: {said[0].strip() if said else 'the compiler failed'}; gpusim works without")
        for path in built:
            file = ".".join(path.relative_to(root / "out").parts)
            shutil.copyfile(path, fresh / file)
            manifest["modules"][file.removesuffix(BINARY_TAG)] = file
        (fresh / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)  # at once: whoever looks meanwhile finds all or none
    return target


def clean_up(package: Path = PACKAGE) -> bool:
    """Forget compiled modules, of every Python; returns whether there were any."""
    had_any = (package / "_compiled").exists()
    shutil.rmtree(package / "_compiled", ignore_errors=True)
    return had_any
