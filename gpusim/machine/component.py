"""Counters and field metadata that all parts of the machine share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields

INFINITE = 1e12
"""A rate or capacity that never limits."""


@dataclass(slots=True)
class Counters:
    """Counters of a part. A field made with :func:`ncu` has that Nsight Compute name in its metadata."""

    def named(self) -> Iterator[tuple[str, float]]:
        """(Nsight Compute name, value) of every counter that has one."""
        for item in fields(self):
            name = item.metadata.get("ncu")
            if name:
                yield name, getattr(self, item.name)


def ncu(name: str) -> float:
    """Counter that starts at 0 and has ``name`` in Nsight Compute."""
    found: float = field(default=0.0, metadata={"ncu": name})
    return found


def idealized(**numbers: float) -> Mapping[str, Mapping[str, float]]:
    """Metadata of a Spec's field: its value under each counterfactual; other counterfactuals keep the number.

    >>> idealized(latency=0.0)
    {'idealized': {'latency': 0.0}}
    """
    return {"idealized": numbers}
