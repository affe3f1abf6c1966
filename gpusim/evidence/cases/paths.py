"""Where evidence lies, and what every row of it has: light, for each prediction asks how far it may be off."""

from __future__ import annotations

import tomllib
from pathlib import Path

CYCLES, DURATION = "sm__cycles_elapsed.max", "gpu__time_duration.sum"


def kernels_dir() -> Path:
    """Where the kernels lie: beside the package in a checkout, inside it when installed."""
    package = Path(__file__).resolve().parents[2]
    inside = package / "kernels"
    return inside if inside.is_dir() else package.parent / "kernels"


def kernel_folder(name: str, root: Path | None = None) -> Path:
    """The folder of a kernel, on whichever shelf of ``kernels/`` it lies; ``root / name`` where there is none.

    >>> kernel_folder("pointer_chase").relative_to(kernels_dir()).as_posix()
    'microbench/l2/pointer_chase'
    """
    root = root or kernels_dir()
    return next((path for path in sorted(root.rglob(name)) if path.is_dir()), root / name)


def kernel_path(name: str) -> str:
    """The folder of a kernel as messages and sources show it.

    >>> kernel_path("gather"), kernel_path("unknown")
    ('kernels/validation/gather', 'kernels/unknown')
    """
    return f"kernels/{kernel_folder(name).relative_to(kernels_dir()).as_posix()}"


def held_out_families() -> frozenset[str]:
    """Families that ``validation/first/held_out.toml`` names."""
    path = kernels_dir().parent / "validation" / "first" / "held_out.toml"
    return frozenset(tomllib.loads(path.read_text(encoding="utf-8"))["families"]) if path.exists() else frozenset()
