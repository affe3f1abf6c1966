"""What the slowest of several takes that draw their waits alike: lines, rows and channels of memory, lanes of a link."""

from __future__ import annotations

from functools import lru_cache
from math import log, sqrt
from statistics import NormalDist

import numpy as np

STANDARD = NormalDist()
SHARE_STEPS = 64
"""Shares between which waits are drawn straight."""
MOST_LINES = 1024
"""Of a request whose slowest line is looked for; more channels than a GPU's memory has."""


@lru_cache(maxsize=MOST_LINES)
def most_of(num: int) -> float:
    """The mean of the largest of ``num`` normal draws, in deviations.

    >>> round(most_of(1), 2), round(most_of(2), 2), round(most_of(100), 2)
    (0.0, 0.56, 2.51)
    """
    at = np.linspace(-6.0, 6.0, 1201)
    is_less = np.array([STANDARD.cdf(x) for x in at.tolist()]) ** num
    return float(at[-1] - (is_less.sum() - 0.5 * (is_less[0] + is_less[-1])) * (at[1] - at[0]))


@lru_cache(maxsize=4096)
def slowest_wait(num_lines: int, share_steps: int) -> float:
    """The mean of the longest of ``num_lines`` waits, each none or, with a chance, exponential of mean 1.

    The chance is ``share_steps`` of SHARE_STEPS.

    >>> [slowest_wait(lines, steps) for lines, steps in ((1, SHARE_STEPS // 2), (2, SHARE_STEPS // 2), (2, SHARE_STEPS))]
    [0.5, 0.875, 1.5]
    """
    free = 1.0 - share_steps / SHARE_STEPS
    return sum((1.0 - free**k) / k for k in range(1, num_lines + 1))


def whole_lines(num_lines: float) -> int:
    """Those whose slowest is looked for.

    >>> whole_lines(0.25), whole_lines(2.6), whole_lines(1e9)
    (1, 3, 1024)
    """
    return min(MOST_LINES, max(1, round(num_lines)))


WAIT_POINTS = 257
"""At which the distribution of a wait is looked at."""


@lru_cache(maxsize=4096)
def slowest_beside_writes(num_parts: float, refresh: tuple[float, float], mean: float, turn: float) -> float:
    """How much later the slowest of ``num_parts`` comes as each waits for turns as well as for a refresh, drawn for itself.

    ``refresh`` is a (chance, longest): that wait is none or, with the chance, even between none and the longest. The other
    is of so many turns of length ``turn`` that it has this ``mean``: a gamma distribution, whose variance is mean x turn.

    >>> [round(slowest_beside_writes(num, (0.0, 0.0), 100.0, 50.0)) for num in (1, 4)]
    [100, 177]
    >>> round(slowest_beside_writes(9, (0.118, 530.0), 197.0, 60.0))
    286
    """
    longest = mean + 6.0 * sqrt(mean * turn) + turn
    of_turns = np.linspace(0.0, longest, WAIT_POINTS)
    step = float(of_turns[1])
    middles = of_turns[1:] - 0.5 * step
    density = np.concatenate([[0.0], np.exp((mean / turn - 1.0) * np.log(middles / turn) - middles / turn)])
    is_done = np.cumsum(density) / density.sum()
    until = np.concatenate([[0.0], np.cumsum(0.5 * (is_done[1:] + is_done[:-1])) * step])
    chance, wait = refresh
    at = np.linspace(0.0, wait + longest, WAIT_POINTS)
    is_over, is_idle = np.interp(at, of_turns, is_done), np.ones(WAIT_POINTS)
    if chance and wait:
        before = np.maximum(at - wait, 0.0)
        area = np.interp(at, of_turns, until) + np.maximum(at - longest, 0.0) - np.interp(before, of_turns, until)
        is_over = (1.0 - chance) * is_over + chance * (area - np.maximum(before - longest, 0.0)) / wait
        is_idle = 1.0 - chance * (1.0 - np.minimum(at / wait, 1.0))
    later = is_idle**num_parts - is_over**num_parts
    return float((later.sum() - 0.5 * (later[0] + later[-1])) * (at[1] - at[0]))


@lru_cache(maxsize=4096)
def slowest_of_both(num_rows: int, share_steps: int, refresh_fraction: float, refresh: float) -> float:
    """The mean of the longest of ``num_rows`` waits for a queue and for a refresh, each drawn for itself.

    In units of a wait in a queue: it is none or, with the chance ``share_steps`` of SHARE_STEPS, exponential of mean 1; that
    for a refresh is none or, with the chance ``refresh_fraction``, even between none and ``refresh``.
    """
    share = share_steps / SHARE_STEPS
    at = np.linspace(0.0, refresh + log(1.0 + num_rows) + 5.0, WAIT_POINTS)
    inside = np.minimum(at, refresh)
    in_refresh = (inside - share * (np.exp(inside - at) - np.exp(-at))) / refresh if refresh else 1.0 - share * np.exp(-at)
    is_over = (1.0 - refresh_fraction) * (1.0 - share * np.exp(-at)) + refresh_fraction * in_refresh
    longer = 1.0 - is_over**num_rows
    return float((longer.sum() - 0.5 * (longer[0] + longer[-1])) * (at[1] - at[0]))
