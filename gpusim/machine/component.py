"""What all parts of the machine have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import ClassVar


@dataclass(slots=True)
class Counters:
    """What a part counts. A field with an ``ncu`` entry in its metadata carries that Nsight Compute name."""

    def named(self) -> Iterator[tuple[str, float]]:
        """(Nsight Compute name, value) of every counter that has one."""
        for item in fields(self):
            name = item.metadata.get("ncu")
            if name:
                yield name, getattr(self, item.name)


class Component:
    """A part of the machine: a frozen Spec, Counters, behaviour; and Models, Ignores, Source in its docstring."""

    kind: ClassVar[str]
