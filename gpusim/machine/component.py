"""What all parts of the machine have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields

INFINITE = 1e12
"""A rate or capacity that never limits."""


@dataclass(slots=True)
class Counters:
    """What a part counts. A field with an ``ncu`` entry in its metadata (:func:`ncu`) carries that Nsight Compute name."""

    def named(self) -> Iterator[tuple[str, float]]:
        """(Nsight Compute name, value) of every counter that has one."""
        for item in fields(self):
            name = item.metadata.get("ncu")
            if name:
                yield name, getattr(self, item.name)


def ncu(name: str) -> float:
    """A counter from 0 on that Nsight Compute has under ``name``."""
    found: float = field(default=0.0, metadata={"ncu": name})
    return found


def idealized(**numbers: float) -> Mapping[str, Mapping[str, float]]:
    """Metadata of a Spec's field: the number that each counterfactual gives it; the others leave it as it is.

    >>> idealized(latency=0.0)
    {'idealized': {'latency': 0.0}}
    """
    return {"idealized": numbers}
