"""What the slowest of several takes that draw their waits alike, in Python: what ``engine/order_statistics.cpp`` is held to.

Sums are taken one after the other, and arrays only element by element, so that both give the same bits.
"""

from __future__ import annotations

from functools import lru_cache
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from gpusim.machine.exact_math import exp, log, sum_in_order

from .normal import normal_cdf

SHARE_STEPS = 64
"""Shares between which waits are drawn straight."""
MOST_LINES = 1024
"""Of a request whose slowest line is looked for; more channels than a GPU's memory has."""
DEVIATIONS = 6.0
"""Beyond which a normal draw is not looked for."""
DEVIATION_STEPS = 1200
"""Between both ends."""
WAIT_STEPS = 256
"""Between the points at which the distribution of a wait is looked at."""
QUARTERS = 4
"""Of a part of a request that waits beside writes: so finely parts are counted."""
FloatArray = NDArray[np.float64]


def _area(values: FloatArray, step: float) -> float:
    """The integral of what has these values at points ``step`` apart, straight between them."""
    points: list[float] = values.tolist()
    return (sum_in_order(points) - 0.5 * (points[0] + points[-1])) * step


def _whole_powers(values: FloatArray, num: int) -> FloatArray:
    """Each to the power of ``num``, as ``whole_power``."""
    found, square = np.ones_like(values), values
    while num:
        if num & 1:
            found = found * square
        num >>= 1
        if num:
            square = square * square
    return found


@lru_cache(maxsize=1)
def _normal_shares() -> FloatArray:
    """The chance that a normal draw is less, at each step."""
    step = 2.0 * DEVIATIONS / DEVIATION_STEPS
    return np.array([normal_cdf(idx * step - DEVIATIONS) for idx in range(DEVIATION_STEPS + 1)])


@lru_cache(maxsize=MOST_LINES)
def expected_max(num: int) -> float:
    """The mean of the largest of ``num`` normal draws, in deviations.

    >>> round(expected_max(1), 2), round(expected_max(2), 2), round(expected_max(100), 2)
    (0.0, 0.56, 2.51)
    """
    if num <= 1:
        return 0.0
    return DEVIATIONS - _area(_whole_powers(_normal_shares(), num), 2.0 * DEVIATIONS / DEVIATION_STEPS)


@lru_cache(maxsize=4096)
def slowest_wait(num_lines: int, share_steps: int) -> float:
    """The mean of the longest of ``num_lines`` waits, each none or, with a chance, exponential of mean 1.

    The chance is ``share_steps`` of SHARE_STEPS.

    >>> [slowest_wait(lines, steps) for lines, steps in ((1, SHARE_STEPS // 2), (2, SHARE_STEPS // 2), (2, SHARE_STEPS))]
    [0.5, 0.875, 1.5]
    """
    free = 1.0 - share_steps / SHARE_STEPS
    wait, all_free = 0.0, 1.0
    for num in range(1, num_lines + 1):
        all_free *= free
        wait += (1.0 - all_free) / num
    return wait


def _between(values: FloatArray, places: FloatArray) -> FloatArray:
    """What lies at places between points, straight; behind the last point what the last is."""
    idx = np.minimum(places.astype(np.int64), WAIT_STEPS - 1)
    found = values[idx] + (values[idx + 1] - values[idx]) * (places - idx)
    return np.asarray(np.where(places < WAIT_STEPS, found, values[WAIT_STEPS]))


@lru_cache(maxsize=1)
def _logs_of_middles() -> tuple[float, ...]:
    """Logarithms of the middles of steps, in steps."""
    return tuple(log(idx + 0.5) for idx in range(WAIT_STEPS))


@lru_cache(maxsize=64)
def _turns_over(mean: float, turn: float, step: float) -> tuple[FloatArray, FloatArray]:
    """Of a wait of turns, at points ``step`` apart: the chance that it is over, and the integral of that up to there."""
    num_turns, per_step = mean / turn, step / turn
    log_of_step, over, areas, area = log(step / mean), [0.0], [0.0], 0.0
    for idx, of_middle in enumerate(_logs_of_middles()):
        density = exp((num_turns - 1.0) * (of_middle + log_of_step) - ((idx + 0.5) * per_step - num_turns))
        over.append(over[-1] + density)
    is_over = np.array(over) / over[-1]
    for each in (0.5 * (is_over[1:] + is_over[:-1])).tolist():
        area += each
        areas.append(area * step)
    return is_over, np.array(areas)


@lru_cache(maxsize=4096)
def slowest_beside_writes(num_parts: float, refresh: tuple[float, float], mean: float, turn: float) -> float:
    """How much later the slowest of ``num_parts`` comes as each waits for turns as well as for a refresh, drawn for itself.

    Parts are counted in quarters. ``refresh`` is a (chance, longest): that wait is none or, with the chance, even between
    none and the longest. The other is of so many turns of length ``turn`` that it has this ``mean``: a gamma distribution,
    whose variance is mean x turn.

    >>> [round(slowest_beside_writes(num, (0.0, 0.0), 100.0, 50.0)) for num in (1, 4)]
    [100, 177]
    >>> round(slowest_beside_writes(9, (0.118, 530.0), 197.0, 60.0))
    286
    """
    longest = mean + 6.0 * sqrt(mean * turn) + turn
    step = longest / WAIT_STEPS
    of_turns, until = _turns_over(mean, turn, step)
    chance, wait = refresh
    apart = (wait + longest) / WAIT_STEPS
    at = np.arange(WAIT_STEPS + 1, dtype=np.float64) * apart
    is_over, is_idle = _between(of_turns, at / step), np.ones(WAIT_STEPS + 1)
    if chance > 0.0 and wait > 0.0:
        before = np.maximum(at - wait, 0.0)
        area = _between(until, at / step) + np.maximum(at - longest, 0.0) - _between(until, before / step)
        is_over = (1.0 - chance) * is_over + chance * (area - np.maximum(before - longest, 0.0)) / wait
        is_idle = 1.0 - chance * (1.0 - np.minimum(at / wait, 1.0))
    quarters = int(QUARTERS * num_parts + 0.5)
    all_idle = _whole_powers(np.sqrt(np.sqrt(is_idle)), quarters)
    return _area(all_idle - _whole_powers(np.sqrt(np.sqrt(np.maximum(is_over, 0.0))), quarters), apart)


def _decay(step: float) -> FloatArray:
    """e^(-idx step) at each point: each stretch is made of those before it, twice as long as the last."""
    found = np.ones(WAIT_STEPS + 1)
    known = 1
    while known <= WAIT_STEPS:
        end = min(2 * known, WAIT_STEPS + 1)
        found[known:end] = found[: end - known] * exp(-step * known)
        known = end
    return found


@lru_cache(maxsize=4096)
def slowest_of_both(num_rows: int, share_steps: int, refresh_fraction: float, refresh: float) -> float:
    """The mean of the longest of ``num_rows`` waits for a queue and for a refresh, each drawn for itself.

    In units of a wait in a queue: it is none or, with the chance ``share_steps`` of SHARE_STEPS, exponential of mean 1; that
    for a refresh is none or, with the chance ``refresh_fraction``, even between none and ``refresh``.
    """
    share = share_steps / SHARE_STEPS
    step = (refresh + log(1.0 + num_rows) + 5.0) / WAIT_STEPS
    decay = _decay(step)
    is_over = 1.0 - share * decay
    if refresh > 0.0:
        first = int(refresh / step) + 1  # the point behind the longest refresh
        inside = np.arange(WAIT_STEPS + 1) * step
        inside[first:] = refresh
        still = np.ones(WAIT_STEPS + 1)
        still[first:] = decay[: WAIT_STEPS + 1 - first] * exp(refresh - first * step)
        in_refresh = (inside - share * (still - decay)) / refresh
        is_over = (1.0 - refresh_fraction) * is_over + refresh_fraction * in_refresh
    return _area(1.0 - _whole_powers(is_over, num_rows), step)
