"""What all parts of the machine have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields


@dataclass(slots=True)
class Counters:
    """What a part counts. A field with an ``ncu`` entry in its metadata carries that Nsight Compute name."""

    def named(self) -> Iterator[tuple[str, float]]:
        """(Nsight Compute name, value) of every counter that has one."""
        for item in fields(self):
            name = item.metadata.get("ncu")
            if name:
                yield name, getattr(self, item.name)
