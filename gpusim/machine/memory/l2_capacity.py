"""What each partition of L2 holds, and which lines leave it as others are touched."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.machine.exact_array_math import exp_of, softplus_of

CERTAIN = 1e-3
"""A share below counts as none, one above 1 less this as all."""
MOST_SPREADS = 7.0
"""So many from what a side holds all lines are lost, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The sides of L2, each of which keeps the lines at home on it and copies of those that its SMs read.

    Args:
        num: how many; with two, half of the lines are at home on each.
        side_bytes: what one holds.
        spread: how gradually lines are lost around that; 0: all at once.
        dirty_bytes: lines on one side that are stored and not yet written back, at most.
        first_bytes: what is left on a side to lines hinted evict_first, once it is full.
        last_bytes: what is kept on a side for home places of lines hinted evict_last, or that persist.
    """

    num: int
    side_bytes: float
    spread: float
    dirty_bytes: float = math.inf
    first_bytes: float = math.inf
    last_bytes: float = 0.0

    def lost_share(self, between_bytes: Any) -> Any:
        """Part of the lines lost where ``between_bytes`` (one or an array) were touched on their side since.

        The least recently used leave, and ``spread`` says how evenly lines fall on sets.

        >>> Sides(num=1, side_bytes=100.0, spread=0.0).lost_share(np.array([100.0, 101.0])).tolist()
        [0.0, 1.0]
        >>> Sides(num=2, side_bytes=100.0, spread=0.05).lost_share(np.array([50.0, 95.0, 100.0, 200.0])).round(3).tolist()
        [0.0, 0.269, 0.5, 1.0]
        """
        if math.isinf(self.side_bytes):
            return np.zeros_like(np.asarray(between_bytes, dtype=np.float64))
        beyond = np.asarray(np.asarray(between_bytes) / self.side_bytes - 1.0)
        found = np.asarray(beyond > 0.0).astype(np.float64)
        if self.spread:
            near = np.abs(beyond) < MOST_SPREADS * self.spread
            if near.any():
                found[near] = certain(1.0 / (1.0 + exp_of(beyond[near] / -self.spread)))
        return found

    def mean_lost_share(self, least_bytes: Any, most_bytes: Any) -> Any:
        """The mean of :meth:`lost_share` where lines were touched evenly between two points.

        >>> sides = Sides(num=1, side_bytes=100.0, spread=0.0)
        >>> sides.mean_lost_share(np.array([0.0, 60.0]), np.array([80.0, 140.0])).tolist()
        [0.0, 0.5]
        """
        if math.isinf(self.side_bytes):
            return self.lost_share(least_bytes)
        least, most = (np.asarray(each, dtype=np.float64) - self.side_bytes for each in (least_bytes, most_bytes))
        apart = most - least
        width = self.spread * self.side_bytes
        if width:
            begin, end = (width * softplus_of(each / width) for each in (least, most))
        else:
            begin, end = np.maximum(0.0, least), np.maximum(0.0, most)
        has_span = apart > CERTAIN * self.side_bytes
        found = certain((end - begin) / np.where(has_span, apart, 1.0))
        found[~has_span] = self.lost_share(np.broadcast_to(least_bytes, apart.shape)[~has_span])
        return found


def certain(share: Any) -> Any:
    """Shares near none and all are none and all."""
    return np.where(share < CERTAIN, 0.0, np.where(share > 1.0 - CERTAIN, 1.0, share))
