"""Paths of kernels and validation data, and metrics of every row. Imports little, since each prediction uses it."""

from __future__ import annotations

import os
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

CYCLES, DURATION = "sm__cycles_elapsed.max", "gpu__time_duration.sum"
ESTIMATED_CYCLES = "cycles_with_estimated_code"
"""Name of cycles that are predicted before a kernel is written, with estimated code and registers."""


def kernels_dir() -> Path:
    """Folder of the kernels: next to the package in a checkout, inside it when installed."""
    package = Path(__file__).resolve().parents[2]
    inside = package / "kernels"
    return inside if inside.is_dir() else package.parent / "kernels"


def kernel_folder(name: str, root: Path | None = None) -> Path:
    """Folder of a kernel, below any group of ``kernels/``; ``root / name`` where there is none.

    >>> kernel_folder("pointer_chase").relative_to(kernels_dir()).as_posix()
    'microbench/l2/pointer_chase'
    """
    root = root or kernels_dir()
    return next((path for path in kernel_folders(root) if path.name == name), root / name)


@cache
def kernel_folders(root: Path) -> tuple[Path, ...]:
    """Folders with a kernel: those below ``root`` that hold files and no subfolder, except for Python's cache."""
    found: list[Path] = []
    for path in sorted(Path(entry) for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("__")):
        found += kernel_folders(path) or ((path,) if any(item.is_file() for item in path.iterdir()) else ())
    return tuple(found)


def kernel_path(name: str) -> str:
    """Path of a kernel's folder in messages and sources.

    >>> kernel_path("gather"), kernel_path("unknown")
    ('kernels/validation/gather', 'kernels/unknown')
    """
    return f"kernels/{kernel_folder(name).relative_to(kernels_dir()).as_posix()}"


@cache
def sass_figures(name: str) -> dict[str, dict[str, Any]]:
    """Tables of a kernel's ``sass.toml``: what the compiler made of its entry points, read from SASS, by entry point."""
    return tomllib.loads((kernel_folder(name) / "sass.toml").read_text(encoding="utf-8"))


@cache
def held_out_families() -> frozenset[str]:
    """Families that ``validation/first/held_out.toml`` names."""
    path = kernels_dir().parent / "validation" / "first" / "held_out.toml"
    return frozenset(tomllib.loads(path.read_text(encoding="utf-8"))["families"]) if path.exists() else frozenset()
