"""Capacity of each L2 partition, and the fraction of lines evicted as others are accessed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.machine.exact_array_math import exp_of, softplus_of

CERTAIN = 1e-3
"""Tolerance: a share below it counts as 0, one above 1 minus it as 1."""
MOST_SPREADS = 7.0
"""Distance from the capacity, in spreads, beyond which all lines are lost or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class L2Partitions:
    """L2 partitions; each keeps the lines whose home it is, and copies of lines that its SMs read.

    Args:
        num: number of partitions; with two, each is the home of half of the lines.
        partition_bytes: capacity of one partition.
        spread: width of the step from kept to lost lines, relative to the capacity; 0: a sharp step.
        dirty_bytes: most dirty bytes of one partition before it writes back.
        first_bytes: capacity of a full partition for lines hinted evict_first.
        last_bytes: capacity of a partition for home lines hinted evict_last, or persisting lines.
    """

    num: int
    partition_bytes: float
    spread: float
    dirty_bytes: float = math.inf
    first_bytes: float = math.inf
    last_bytes: float = 0.0

    def lost_share(self, between_bytes: Any) -> Any:
        """Fraction of lines lost after ``between_bytes`` (a number or an array) were accessed in their partition.

        Replacement is LRU; ``spread`` is for the uneven use of sets.

        >>> L2Partitions(num=1, partition_bytes=100.0, spread=0.0).lost_share(np.array([100.0, 101.0])).tolist()
        [0.0, 1.0]
        >>> l2 = L2Partitions(num=2, partition_bytes=100.0, spread=0.05)
        >>> l2.lost_share(np.array([50.0, 95.0, 100.0, 200.0])).round(3).tolist()
        [0.0, 0.269, 0.5, 1.0]
        """
        if math.isinf(self.partition_bytes):
            return np.zeros_like(np.asarray(between_bytes, dtype=np.float64))
        beyond = np.asarray(np.asarray(between_bytes) / self.partition_bytes - 1.0)
        found = np.asarray(beyond > 0.0).astype(np.float64)
        if self.spread:
            near = np.abs(beyond) < MOST_SPREADS * self.spread
            if near.any():
                found[near] = certain(1.0 / (1.0 + exp_of(beyond[near] / -self.spread)))
        return found

    def mean_lost_share(self, least_bytes: Any, most_bytes: Any) -> Any:
        """Mean of :meth:`lost_share` over accesses evenly distributed between two distances.

        >>> partitions = L2Partitions(num=1, partition_bytes=100.0, spread=0.0)
        >>> partitions.mean_lost_share(np.array([0.0, 60.0]), np.array([80.0, 140.0])).tolist()
        [0.0, 0.5]
        """
        if math.isinf(self.partition_bytes):
            return self.lost_share(least_bytes)
        least, most = (np.asarray(each, dtype=np.float64) - self.partition_bytes for each in (least_bytes, most_bytes))
        apart = most - least
        width = self.spread * self.partition_bytes
        if width:
            begin, end = (width * softplus_of(each / width) for each in (least, most))
        else:
            begin, end = np.maximum(0.0, least), np.maximum(0.0, most)
        has_span = apart > CERTAIN * self.partition_bytes
        found = certain((end - begin) / np.where(has_span, apart, 1.0))
        found[~has_span] = self.lost_share(np.broadcast_to(least_bytes, apart.shape)[~has_span])
        return found


def certain(share: Any) -> Any:
    """Shares, with those near 0 and 1 rounded to 0 and 1."""
    return np.where(share < CERTAIN, 0.0, np.where(share > 1.0 - CERTAIN, 1.0, share))
