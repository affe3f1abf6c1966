"""Compiled copies of the busiest modules: used where ``gpusim compile`` has made them of the very sources that are here.

In: a directory beside this module and its manifest. Out: a finder of modules, or none. Knows nothing of how they are made.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

State = Literal["compiled", "interpreted", "outdated"]
"""``outdated``: there are compiled modules, of other sources or for another Python, so that nobody uses them."""

SWITCH = "GPUSIM_INTERPRETED"
"""Environment variable: set, compiled modules are not used."""

PACKAGE = Path(__file__).resolve().parent

ROOMS = (
    "units.py", "errors.py", "compiled.py", "compiling.py", "layout", "workload", "kernel_models", "machine", "simulate",
)
"""What compiled modules are made of, take constants from, or are compiled by."""


BINARY_TAG = EXTENSION_SUFFIXES[0]
"""For which Python and machine compiled modules are."""


def home(package: Path = PACKAGE) -> Path:
    """Where this Python's compiled modules lie."""
    return package / "_compiled" / f"{sys.implementation.cache_tag}"


def sources(package: Path = PACKAGE) -> dict[str, Path]:
    """Every source that a compiled module could depend on, by its path in the package."""
    paths: list[Path] = []
    for room in ROOMS:
        path = package / room
        paths += [path] if path.is_file() else sorted(path.rglob("*.py"))
    return {path.relative_to(package).as_posix(): path for path in paths}


def fingerprint(path: Path) -> str:
    """Of a file's contents."""
    import hashlib

    return hashlib.sha256(path.read_bytes()).hexdigest()


def manifest_of(package: Path, modules: dict[str, str]) -> dict[str, Any]:
    """What to note beside compiled ``modules`` (module: file)."""
    return {
        "tag": BINARY_TAG,
        "modules": modules,
        "sources": {name: fingerprint(path) for name, path in sources(package).items()},
    }


def read_manifest(package: Path = PACKAGE) -> dict[str, Any] | None:
    """The manifest of compiled modules; None where there are none."""
    path = home(package) / "manifest.json"
    if not path.exists():
        return None
    import json

    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def is_current(manifest: dict[str, Any], package: Path = PACKAGE) -> bool:
    """Whether compiled modules were made of the sources that are there, for this Python."""
    known = manifest.get("sources", {})
    present = sources(package)
    if manifest.get("tag") != BINARY_TAG or not isinstance(known, dict) or known.keys() != present.keys():
        return False
    return all(known[name] == fingerprint(path) for name, path in present.items())


class CompiledFinder:
    """Finds compiled modules before their sources."""

    def __init__(self, directory: Path, modules: dict[str, str]) -> None:
        """``modules``: the file in ``directory`` of each."""
        self._files = {name: str(directory / file) for name, file in modules.items()}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The compiled module, unless there is none or ``GPUSIM_INTERPRETED`` is set."""
        file = self._files.get(fullname)
        if file is None or os.environ.get(SWITCH) or not os.path.exists(file):
            return None
        spec = ModuleSpec(fullname, ExtensionFileLoader(fullname, file), origin=file)
        spec.has_location = True
        return spec


def install() -> State:
    """Let later imports find compiled modules, where they are current."""
    if os.environ.get(SWITCH):
        return "interpreted"
    manifest = read_manifest()
    if manifest is None:
        return "interpreted"
    if not is_current(manifest):
        return "outdated"
    sys.meta_path.insert(0, CompiledFinder(home(), manifest["modules"]))
    return "compiled"
