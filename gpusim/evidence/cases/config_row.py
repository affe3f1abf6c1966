"""A config as a frozen dataclass: one field per column, in the table's order."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from gpusim.evidence.cases.case import Config


@dataclass(frozen=True)
class ConfigRow:
    """Base of the configs of one case. ``kernel``, the entry point, is a field or a property."""

    NO_COLUMNS: ClassVar[tuple[str, ...]] = ()
    """Fields that only the kernel's name depends on."""

    def text(self) -> Config:
        """Config as text, the kernel first; True is 1 and False is 0."""
        values: dict[str, Any] = {"kernel": getattr(self, "kernel")}  # noqa: B009  # subclasses have it
        values |= {item.name: getattr(self, item.name) for item in fields(self) if item.name not in self.NO_COLUMNS}
        return {name: str(int(value) if isinstance(value, bool) else value) for name, value in values.items()}
