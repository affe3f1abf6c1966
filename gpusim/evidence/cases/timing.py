"""Cycles of a kernel that times short and long trains of instructions in one launch.

In: times of all warps. Out: cycles of the trains; their difference is the steady rate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import WrongAnswer

NUM_REPEATS = 9
"""Timed trains of either length."""
SPAN_VALUES = {
    "short_cycles": "SM cycles of a short train, first warp's start to last warp's end; median of the launch",
    "long_cycles": "the same of a long train",
    "long_least_cycles": "the quickest long train of the launch",
    "long_p90_cycles": "nine in ten long trains are no slower",
    "long_most_cycles": "the slowest long train",
}


def train_lengths(short: int, long: int, num_repeats: int = NUM_REPEATS) -> NDArray[np.uint32]:
    """Lengths of a launch's trains: one of each to warm up, then short and long in turn."""
    return np.array([short, long] * (num_repeats + 1), dtype=np.uint32)


def train_cycles(times: NDArray[np.int64], lengths: NDArray[np.uint32]) -> dict[str, float]:
    """Cycles of the trains of two lengths, from the first warp's start to the last one's end.

    Args:
        times: int64[num_trains, num_warps, 2], when each warp started and ended.
        lengths: of the trains; the first of either length is not counted.

    Raises:
        WrongAnswer: a train was not timed, or the long ones took no longer.
    """
    if (times[:, :, 0] <= 0).any() or (times[:, :, 1] <= times[:, :, 0]).any():
        raise WrongAnswer("a warp has not told when it started and ended")
    cycles = times[:, :, 1].max(axis=1) - times[:, :, 0].min(axis=1)
    short, long = (cycles[lengths == length][1:] for length in (lengths.min(), lengths.max()))
    if np.median(long) <= np.median(short):
        raise WrongAnswer(f"long trains take {np.median(long):g} cycles, short ones {np.median(short):g}")
    return {
        "short_cycles": float(np.median(short)), "long_cycles": float(np.median(long)),
        "long_least_cycles": float(long.min()), "long_p90_cycles": float(np.percentile(long, 90)),
        "long_most_cycles": float(long.max()),
    }  # fmt: skip


def spread(name: str, cycles: NDArray[np.int64]) -> dict[str, float]:
    """Median, least, 90th percentile and most of ``cycles``, each a cycle that was measured, by names of values.

    >>> spread("cycles", np.arange(11))
    {'cycles': 5.0, 'min_cycles': 0.0, 'p90_cycles': 9.0, 'max_cycles': 10.0}
    """
    quantiles = {"": 50, "min_": 0, "p90_": 90, "max_": 100}
    return {f"{label}{name}": float(np.percentile(cycles, pct, method="nearest")) for label, pct in quantiles.items()}
