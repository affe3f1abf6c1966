"""What gives the panels of CTAs that run the same programs: footprints, the CTA's index, its tile, or nothing that differs.

In: panels of a few CTAs that were recorded. Out: those of all CTAs of their sort.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusim.program.sorts import Int64Array, Members, at
from gpusim.program.tables import MOST_INT32
from gpusim.program.trace import TracedCta

FEW_OPS = 256
"""Ops of a CTA, below which one more is recorded to compare."""


class Source(NamedTuple):
    """Gives the panel of a column: of CTA c ``values[c + offset]``, or ``offset`` where there are no values."""

    values: NDArray[np.integer] | None
    offset: int

    def at(self, cta_idx: int) -> int:
        """The panel of a CTA."""
        return self.offset if self.values is None else int(self.values[cta_idx + self.offset])

    def of(self, members: Members) -> NDArray[np.integer] | int:
        """The panels of some CTAs."""
        return self.offset if self.values is None else self.values[at(members, self.offset)]


class Sources:
    """All that may give a column's panels, in the order in which they are tried."""

    def __init__(
        self, panels_of: Mapping[str, Int64Array], tensors: Mapping[str, int], num_ctas: int, num_turns: int
    ) -> None:
        """``tensors``: their numbers; ``num_turns``: tiles of a CTA at most."""
        self._num_ctas = num_ctas
        self._of_tensor = {
            tensors[name]: values for name, values in panels_of.items()
            if not len(values) or (values.min() >= 0 and values.max() <= MOST_INT32)
        }  # fmt: skip
        self._tiles = np.arange(num_ctas * num_turns, dtype=np.int32)

    def of_column(self, tensor: int, turn: int, panel: int, last_cta: int) -> Iterator[Source]:
        """What may give panels of a tensor in a turn to CTAs up to ``last_cta``; one of them is ``panel``."""
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

    def __init__(self, members: Members, first: TracedCta, trace: Callable[[int], TracedCta]) -> None:
        """``first``: the first member, recorded; ``trace`` records others."""
        self.members = members
        self.first = first
        self.num = len(members)
        self._trace = trace
        self._panels = {int(members[0]): first.panels}

    def is_alike(self, place: int) -> bool:
        """Record a member: whether it runs the first one's programs and names panels in the same columns."""
        cta_idx = int(self.members[place])
        if cta_idx in self._panels:
            return True
        traced = self._trace(cta_idx)
        self._panels[cta_idx] = traced.panels
        return traced[:2] == self.first[:2]

    def are_alike(self, num_ops: int) -> bool:
        """Compare the last member with the first, and one in the middle if ``num_ops`` of a CTA are few."""
        return self.is_alike(self.num - 1) and (num_ops > FEW_OPS or self.is_alike(self.num // 2))

    def sources(self, candidates: Callable[[int, int, int], Iterator[Source]]) -> list[Source] | None:
        """What gives the panels of each column; None where nothing does, or a member differs.

        ``candidates(column, panel, last CTA)`` may. A member to which they would give different panels is recorded.
        """
        found: list[Source] = []
        last = int(self.members[-1])
        for place, column in enumerate(self.first.columns):
            source = self._source(place, list(candidates(column, self.first.panels[place], last)))
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
            if not self.is_alike(differs):
                return None

    def _gives(self, source: Source, place: int) -> bool:
        """Whether a source gives all panels that are known at a place."""
        return all(source.at(cta_idx) == panels[place] for cta_idx, panels in self._panels.items())

    def _difference(self, candidates: list[Source]) -> int | None:
        """The place of the first member to which some candidates give another panel than the first one does."""
        values = candidates[0].of(self.members)
        for other in candidates[1:]:
            differs = np.atleast_1d(values != other.of(self.members))
            place = int(differs.argmax())
            if differs[place]:
                return place
        return None
