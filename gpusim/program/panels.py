"""Sources of the panels of CTAs that run the same programs: footprints, the CTA's index, its tile, or a constant.

In: panels of a few CTAs that were recorded. Out: panels of all CTAs of their sort.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusim.program.cta_sorts import Int64Array, at
from gpusim.program.tables import MOST_INT32, Tables
from gpusim.program.trace import Tracer

FEW_OPS = 256
"""Ops of a CTA below which one more CTA is recorded to compare."""


class Source(NamedTuple):
    """Source of a column's panels: ``values[c + offset]`` for CTA c, or ``offset`` without values."""

    values: NDArray[np.integer] | None
    offset: int

    def at(self, cta_idx: int) -> int:
        """Panel of a CTA."""
        return self.offset if self.values is None else int(self.values[cta_idx + self.offset])

    def of(self, members: Int64Array) -> NDArray[np.integer] | int:
        """Panels of some CTAs."""
        return self.offset if self.values is None else self.values[at(members, self.offset)]


class Sources:
    """Possible sources of a column's panels, in the order in which they are tried."""

    def __init__(self, panels_of: Mapping[str, Int64Array], tables: Tables, num_ctas: int, num_turns: int) -> None:
        """Sources for the columns that ``tables`` has now. ``num_turns``: tiles of a CTA, at most."""
        self._num_ctas, self._columns = num_ctas, list(tables.columns)
        self._of_tensor = {
            tables.tensors[name]: values for name, values in panels_of.items()
            if not len(values) or (values.min() >= 0 and values.max() <= MOST_INT32)
        }  # fmt: skip
        self._tiles = np.arange(num_ctas * num_turns, dtype=np.int32)

    def of_column(self, column: int, panel: int, last_cta: int) -> Iterator[Source]:
        """Possible sources of a column's panels for CTAs up to ``last_cta``; one of the panels is ``panel``."""
        tensor, turn, _ = self._columns[column]
        offset = turn * self._num_ctas
        others = [values for other, values in self._of_tensor.items() if other != tensor]
        for values in (self._of_tensor.get(tensor), self._tiles, *others):
            if values is not None and 0 <= offset < len(values) - last_cta:
                yield Source(values, offset)
        if turn:
            yield Source(self._tiles, 0)
        yield Source(None, panel)


class Sort:
    """CTAs that may run the same programs, of which some are recorded."""

    def __init__(self, members: Int64Array, tracer: Tracer) -> None:
        """Record the first member."""
        before = tracer.num_ops
        self.members, self.first, self._tracer = members, tracer.trace(int(members[0])), tracer
        self._num_ops = tracer.num_ops - before
        self._panels = {int(members[0]): self.first.panels}

    def is_same(self, place: int) -> bool:
        """Record a member; returns whether it runs the first member's programs and names panels in the same columns."""
        cta_idx = int(self.members[place])
        if cta_idx in self._panels:
            return True
        traced = self._tracer.trace(cta_idx)
        self._panels[cta_idx] = traced.panels
        return traced[:2] == self.first[:2]

    def are_same(self) -> bool:
        """Compare the last member with the first, and one in the middle if a CTA has few ops."""
        num = len(self.members)
        return self.is_same(num - 1) and (self._num_ops > FEW_OPS or self.is_same(num // 2))

    def sources(self, every: Sources) -> list[Source] | None:
        """Source of the panels of each column. None where no source fits, or a member differs.

        If possible sources give a member different panels, that member is recorded.
        """
        found: list[Source] = []
        last = int(self.members[-1])
        for place, column in enumerate(self.first.columns):
            source = self._source(place, list(every.of_column(column, self.first.panels[place], last)))
            if source is None:
                return None
            found.append(source)
        is_right = all(self._gives(source, place) for place, source in enumerate(found))
        return found if is_right else None

    def _source(self, place: int, candidates: list[Source]) -> Source | None:
        while True:
            candidates = [source for source in candidates if self._gives(source, place)]
            if not candidates:
                return None
            differs = self._difference(candidates)
            if differs is None:
                return candidates[0]
            if not self.is_same(differs):
                return None

    def _gives(self, source: Source, place: int) -> bool:
        """Whether a source gives all known panels of a column."""
        return all(source.at(cta_idx) == panels[place] for cta_idx, panels in self._panels.items())

    def _difference(self, candidates: list[Source]) -> int | None:
        """Index of the first member to which some candidates give another panel than the first candidate."""
        values = candidates[0].of(self.members)
        for other in candidates[1:]:
            differs = np.atleast_1d(values != other.of(self.members))
            place = int(differs.argmax())
            if differs[place]:
                return place
        return None
