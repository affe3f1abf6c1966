"""Functions of floats that give the same bits on every machine: exp, log and power.

In: floats. Out: floats. Only ``+ - * /`` and exact powers of two are used, whose results IEEE 754 defines.
``engine/numeric.cpp`` does the same, operation by operation. ``tests/engine`` has a Python version of its further functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import frexp, ldexp

INFINITE = float("inf")
NO_NUMBER = float("nan")

LOG2_E = 1.4426950408889634
LN2_HIGH = 6.93147180369123816490e-01
"""First 32 bits of ln 2; its product with any exponent is exact."""
LN2_LOW = 1.90821492927058770002e-10
"""Rest of ln 2 beyond ``LN2_HIGH``."""
LARGEST_EXPONENT = 709.782712893384
"""Largest x with a finite e^x."""
LARGEST_SCALED = 709.0
"""Largest x for which the scale of e^x is at most 2^1023."""
SMALLEST_SCALED = -708.0
"""Smallest x for which e^x is a normal number."""
SMALLEST_EXPONENT = -745.2
"""Argument below which e^x is zero."""
SCALE_EXPONENT = 200
"""Exponent of the second scale of a subnormal e^x, so that it is rounded once."""
SCALE = 1.0 / (1 << SCALE_EXPONENT)
SQRT_HALF = 0.7071067811865476
COARSE = float(1 << 34)
LARGEST_INTEGER = 4096
"""Largest integer exponent whose power is computed by multiplication."""


def sum_in_order(values: Iterable[float]) -> float:
    """Sum in the given order. The built-in ``sum`` rounds floats differently from Python 3.12 on.

    >>> sum_in_order([0.1] * 3), sum_in_order([])
    (0.30000000000000004, 0.0)
    """
    found = 0.0
    for value in values:
        found += value
    return found


def coarse(x: float) -> float:
    """``x`` rounded to multiples of 2^-34. That hides a last bit in which machines differ, except once in a million.

    >>> coarse(1.0 + 2.0**-50), coarse(0.75)
    (1.0, 0.75)
    """
    return round(x * COARSE) / COARSE


def exp(x: float) -> float:
    """Exponential function, within 1 unit in the last place.

    The argument is reduced by a multiple of ln 2; the remainder has a Taylor series.

    >>> exp(0.0), round(exp(1.0), 12), exp(-INFINITE), exp(1000.0)
    (1.0, 2.718281828459, 0.0, inf)
    """
    if not SMALLEST_SCALED <= x <= LARGEST_SCALED:
        if x > LARGEST_EXPONENT:
            return INFINITE
        if x < SMALLEST_EXPONENT:
            return 0.0
        if x != x:  # noqa: PLR0124  # no number
            return x
    num = int(x * LOG2_E + 0.5) if x >= 0.0 else int(x * LOG2_E - 0.5)
    high = x - num * LN2_HIGH
    low = num * LN2_LOW
    r = high - low
    beyond = r * r * (1.0 / 2.0 + r * (1.0 / 6.0 + r * (1.0 / 24.0 + r * (1.0 / 120.0 + r * (1.0 / 720.0 + r * (
        1.0 / 5040.0 + r * (1.0 / 40320.0 + r * (1.0 / 362880.0 + r * (1.0 / 3628800.0 + r * (
            1.0 / 39916800.0 + r * (1.0 / 479001600.0 + r * (1.0 / 6227020800.0))))))))))))  # fmt: skip
    found = 1.0 + (high + (beyond - low))
    if x > LARGEST_SCALED:
        return ldexp(found, num - 1) * 2.0
    if x < SMALLEST_SCALED:
        return ldexp(found, num + SCALE_EXPONENT) * SCALE
    return ldexp(found, num)


def log(x: float) -> float:
    """Natural logarithm, within 1 unit in the last place.

    ``x`` is 2^num times a number near 1, whose logarithm is a series of the area tangent.

    >>> log(1.0), log(2.0), log(0.0), log(INFINITE)
    (0.0, 0.6931471805599453, -inf, inf)
    """
    if not 0.0 < x < INFINITE:
        if x == 0.0:
            return -INFINITE
        return x if x > 0.0 else NO_NUMBER
    near, num = frexp(x)
    if near < SQRT_HALF:
        near *= 2.0
        num -= 1
    f = near - 1.0
    s = f / (2.0 + f)
    z = s * s
    beyond = z * (2.0 / 3.0 + z * (2.0 / 5.0 + z * (2.0 / 7.0 + z * (2.0 / 9.0 + z * (2.0 / 11.0 + z * (
        2.0 / 13.0 + z * (2.0 / 15.0 + z * (2.0 / 17.0 + z * (2.0 / 19.0 + z * (2.0 / 21.0))))))))))  # fmt: skip
    half = 0.5 * f * f
    return num * LN2_HIGH - ((half - (s * (half + beyond) + num * LN2_LOW)) - f)


def integer_power(x: float, num: int) -> float:
    """``x`` to the power of ``num``, 0 or more, by repeated squaring.

    >>> integer_power(3.0, 4), integer_power(0.0, 0)
    (81.0, 1.0)
    """
    found, square = 1.0, x
    while num:
        if num & 1:
            found *= square
        num >>= 1
        if num:
            square *= square
    return found


def power(x: float, y: float) -> float:
    """``x``, 0 or more, to the power of ``y``: by multiplication for integers up to LARGEST_INTEGER, else e^(y ln x).

    Up to two units in the last place are lost for each unit of y ln x.

    >>> power(0.5, 2.0), power(4.0, 0.5), power(0.0, 0.5), power(2.0, 0.0)
    (0.25, 2.0, 0.0, 1.0)
    """
    if 0.0 <= y <= LARGEST_INTEGER:
        num = int(y)
        if num == y:
            return integer_power(x, num)
    if x == 1.0:
        return 1.0
    return exp(y * log(x))
