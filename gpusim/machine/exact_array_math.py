"""Functions of arrays of floats that give the same bits on every machine: e^x, ln(1 + e^x), and values between points.

In: float64 arrays. Out: float64 arrays. The results of numpy's ``exp``, ``logaddexp`` and ``@`` depend on the processor, and
``interp`` may round once less. Here only ``+ - * /`` are used, which IEEE 754 rounds, and tables from
:mod:`gpusim.machine.exact_math`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.machine.exact_math import LN2_HIGH, LN2_LOW, LOG2_E, exp, log

FloatArray = NDArray[np.float64]

STEPS = 128
"""Steps of the tables of e^x and ln x between 1 and 2."""
POWERS = np.array([exp(num * (LN2_HIGH + LN2_LOW) / STEPS) for num in range(STEPS)])
LOGS = np.array([log(1.0 + num / STEPS) for num in range(STEPS + 1)])
SMALLEST = -700.0
"""Argument below which e^x is zero."""
LARGEST = 700.0
"""Argument above which e^x stays at its value there."""
FAR = 40.0
"""Argument from which ln(1 + e^x) is x, and zero at its negative; the difference is below rounding."""
CHUNK = 8192
"""Numbers computed at a time, so that they stay in a cache."""


def exp_of(x: Any) -> FloatArray:
    """e^x, within 2 units in the last place.

    >>> exp_of([0.0, 1.0, -1e9]).round(12).tolist()
    [1.0, 2.718281828459, 0.0]
    """
    return _by_chunks(_exp, x)


def softplus_of(x: Any) -> FloatArray:
    """ln(1 + e^x), within 3 units in the last place; 0 for x of -40 and less.

    >>> softplus_of([0.0, 50.0, -50.0]).round(12).tolist()
    [0.69314718056, 50.0, 0.0]
    """
    found = np.maximum(x, 0.0)
    near = np.flatnonzero(np.abs(x) < FAR)
    flat = found.ravel()
    flat[near] += _by_chunks(_log_beyond, -np.abs(np.asarray(x).ravel()[near]))
    return np.asarray(flat.reshape(found.shape))


def along(at: NDArray[Any], points: NDArray[Any], values: FloatArray) -> FloatArray:
    """Linear interpolation of ``values`` at ``at``; ``points``, two or more, are in order.

    >>> along(np.array([0.0, 1.0, 4.0]), np.array([0.0, 2.0, 4.0]), np.array([1.0, 2.0, 6.0])).tolist()
    [1.0, 1.5, 6.0]
    """
    idx = np.minimum(np.searchsorted(points, at, side="right") - 1, len(points) - 2)
    slopes = np.diff(values) / np.diff(points)
    return np.asarray(np.where(at >= points[-1], values[-1], slopes[idx] * (at - points[idx]) + values[idx]))


def _by_chunks(of_chunk: Callable[[FloatArray], FloatArray], x: Any) -> FloatArray:
    given = np.asarray(x, dtype=np.float64)
    flat = given.ravel()
    if len(flat) <= CHUNK:
        return of_chunk(flat).reshape(given.shape)
    found = np.empty_like(flat)
    for begin in range(0, len(flat), CHUNK):
        found[begin : begin + CHUNK] = of_chunk(flat[begin : begin + CHUNK])
    return found.reshape(given.shape)


def _exp(x: FloatArray) -> FloatArray:
    """e^x: the argument is reduced by a multiple of ln 2 / STEPS; the remainder has a Taylor series."""
    inside = np.minimum(np.maximum(x, SMALLEST), LARGEST)
    num = np.rint(inside * (LOG2_E * STEPS))
    r = inside - num * (LN2_HIGH / STEPS)
    r -= num * (LN2_LOW / STEPS)
    beyond = r * (1.0 / 120.0)
    for factor in (1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0):
        beyond += factor
        beyond *= r
    steps = num.astype(np.int64)
    near = POWERS[steps % STEPS]
    beyond *= near
    near += beyond
    near *= (((steps // STEPS) + 1023) << 52).view(np.float64)
    near[x < SMALLEST] = 0.0
    return near


def _log_beyond(x: FloatArray) -> FloatArray:
    """ln(1 + e^x) of ``x`` up to 0: the nearest step's logarithm and an artanh series."""
    y = _exp(x)
    num = np.rint(y * STEPS)
    step = num / STEPS
    s = (y - step) / (2.0 + step + y)
    z = s * s
    series = z * (1.0 / 5.0)
    series += 1.0 / 3.0
    series *= z
    series += 1.0
    series *= s
    series *= 2.0
    series += LOGS[num.astype(np.int64)]
    return series
