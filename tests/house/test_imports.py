"""Who imports whom, which library lives where, no late imports of our own modules, and no cycles."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import ratchet
from .tree import MODULES, PACKAGE, imports

MAY_IMPORT = {
    "errors": set(),
    "units": set(),
    "layout": {"errors", "units"},
    "workload": {"errors", "units", "layout"},
    "kernel_models": {"errors", "units", "layout", "workload"},
    "functional": {"errors", "units", "layout", "workload"},
    "machine": {"errors", "units"},
    "program": {"errors", "units", "workload"},
    "reference": {"errors", "units", "workload", "machine", "traffic"},
    "traffic": {"errors", "units", "workload", "machine"},
    "simulate": {"errors", "units", "workload", "machine", "program", "reference", "traffic"},
}
"""Which packages a package may import, itself aside; ``report``, ``evidence``, ``lessons`` and ``cli`` come after these."""

LIVES_IN = {
    "simpy": ("reference/",),
    "matplotlib": ("report/plots/",),
    "pycuda": ("evidence/bench/gpu.py",),
    "torch": ("evidence/bench/frameworks.py",),
    "triton": ("evidence/bench/frameworks.py",),
    "starlette": ("explore/app.py",),
    "uvicorn": ("explore/app.py",),
    "jinja2": ("explore/pages.py",),
    "wasmtime": ("simulate/wasm_module.py",),
}
"""Where each of these may be imported."""


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def packages(path: Path) -> set[str]:
    """Packages and top modules of gpusim that a module imports."""
    known = {
        item.stem for item in PACKAGE.iterdir() if item.suffix == ".py" or (item / "__init__.py").is_file()
    }
    return {name.split(".")[1] for name in imports(path) if name.startswith("gpusim.")} & known


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_packages_before_it(package: str) -> None:
    of_package = [
        path for path in MODULES if relative(path) == f"{package}.py" or relative(path).startswith(f"{package}/")
    ]
    assert of_package
    wrong = {relative(path): found for path in of_package if (found := packages(path) - MAY_IMPORT[package] - {package})}
    assert wrong == {}


def test_nobody_imports_the_command_line() -> None:
    wrong = [
        relative(path)
        for path in MODULES
        if "cli" in packages(path) and relative(path) != "__main__.py" and not relative(path).startswith("cli/")
    ]
    assert wrong == []


def test_nobody_imports_the_lessons() -> None:
    wrong = [relative(path) for path in MODULES if "lessons" in packages(path) and not relative(path).startswith("lessons/")]
    assert wrong == []


def test_only_the_command_line_imports_the_explorer() -> None:
    users = [relative(path) for path in MODULES if "explore" in packages(path)]
    wrong = [user for user in users if not user.startswith(("cli/", "explore/"))]
    assert wrong == []


@pytest.mark.parametrize("library", LIVES_IN)
def test_a_library_lives_in_its_own_place(library: str) -> None:
    users = [
        relative(path) for path in MODULES if any(name.split(".")[0] == library for name in imports(path))
    ]
    assert [user for user in users if not user.startswith(LIVES_IN[library])] == []


def test_a_type_checkers_import_counts_as_one() -> None:
    """The net has no hole: a relative import, and one under TYPE_CHECKING, are both found."""
    assert "gpusim.workload.launch" in set(imports(PACKAGE / "__init__.py"))


def test_no_module_of_ours_is_imported_late() -> None:
    ratchet.hold("lazy_imports")


def test_no_import_cycle() -> None:
    """Imports in functions, and those for the type checker, count."""
    ratchet.hold("import_cycles")
