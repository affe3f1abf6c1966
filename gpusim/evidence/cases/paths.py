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


def held_out_families() -> frozenset[str]:
    """Families that ``validation/first/held_out.toml`` names."""
    path = kernels_dir().parent / "validation" / "first" / "held_out.toml"
    return frozenset(tomllib.loads(path.read_text(encoding="utf-8"))["families"]) if path.exists() else frozenset()
