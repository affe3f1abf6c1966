"""The error function and the normal distribution in Python: what ``engine/numeric.cpp`` is held to, to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from gpusim.machine.exact_math import INFINITE, NO_NUMBER, SQRT_HALF, exp, log

INVERSE_SQRT_PI = 5.6418958354775628695e-1

ERF_NEAR_TOP = (
    1.85777706184603153e-1, 3.16112374387056560e00, 1.13864154151050156e02, 3.77485237685302021e02, 3.20937758913846947e03,
)  # fmt: skip
ERF_NEAR_BOTTOM = (
    1.0, 2.36012909523441209e01, 2.44024637934444173e02, 1.28261652607737228e03, 2.84423683343917062e03,
)  # fmt: skip
ERF_MIDDLE_TOP = (
    2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e00, 6.61191906371416295e01, 2.98635138197400131e02,
    8.81952221241769090e02, 1.71204761263407058e03, 2.05107837782607147e03, 1.23033935479799725e03,
)  # fmt: skip
ERF_MIDDLE_BOTTOM = (
    1.0, 1.57449261107098347e01, 1.17693950891312499e02, 5.37181101862009858e02, 1.62138957456669019e03,
    3.29079923573345963e03, 4.36261909014324716e03, 3.43936767414372164e03, 1.23033935480374942e03,
)  # fmt: skip
ERF_FAR_TOP = (
    1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1, 1.60837851487422766e-2,
    6.58749161529837803e-4,
)  # fmt: skip
ERF_FAR_BOTTOM = (
    1.0, 2.56852019228982242e00, 1.87295284992346725e00, 5.27905102951428412e-1, 6.05183413124413191e-2,
    2.33520497626869185e-3,
)  # fmt: skip
"""Ratios of polynomials, highest power first.
Source: W. J. Cody, Rational Chebyshev approximations for the error function, Math. Comp. 23 (1969) 631-637."""
ERF_NEAR = 0.46875
"""Up to it the first of them is taken."""
ERF_FAR = 4.0
"""From it on the last of them is taken."""
ERFC_END = 27.3
"""From it on erfc is zero."""

NORMAL_MIDDLE_TOP = (
    2.5090809287301226727e03, 3.3430575583588128105e04, 6.7265770927008700853e04, 4.5921953931549871457e04,
    1.3731693765509461125e04, 1.9715909503065514427e03, 1.3314166789178437745e02, 3.3871328727963666080e00,
)  # fmt: skip
NORMAL_MIDDLE_BOTTOM = (
    5.2264952788528545610e03, 2.8729085735721942674e04, 3.9307895800092710610e04, 2.1213794301586595867e04,
    5.3941960214247511077e03, 6.8718700749205790830e02, 4.2313330701600911252e01, 1.0,
)  # fmt: skip
NORMAL_OUTER_TOP = (
    7.74545014278341407640e-04, 2.27238449892691845833e-02, 2.41780725177450611770e-01, 1.27045825245236838258e00,
    3.64784832476320460504e00, 5.76949722146069140550e00, 4.63033784615654529590e00, 1.42343711074968357734e00,
)  # fmt: skip
NORMAL_OUTER_BOTTOM = (
    1.05075007164441684324e-09, 5.47593808499534494600e-04, 1.51986665636164571966e-02, 1.48103976427480074590e-01,
    6.89767334985100004550e-01, 1.67638483018380384940e00, 2.05319162663775882187e00, 1.0,
)  # fmt: skip
NORMAL_TAIL_TOP = (
    2.01033439929228813265e-07, 2.71155556874348757815e-05, 1.24266094738807843860e-03, 2.65321895265761230930e-02,
    2.96560571828504891230e-01, 1.78482653991729133580e00, 5.46378491116411436990e00, 6.65790464350110377720e00,
)  # fmt: skip
NORMAL_TAIL_BOTTOM = (
    2.04426310338993978564e-15, 1.42151175831644588870e-07, 1.84631831751005468180e-05, 7.86869131145613259100e-04,
    1.48753612908506148525e-02, 1.36929880922735805310e-01, 5.99832206555887937690e-01, 1.0,
)  # fmt: skip
"""Ratios of polynomials, highest power first.
Source: M. J. Wichura, Algorithm AS 241, Applied Statistics 37 (1988) 477-484."""


def hypot(x: float, y: float) -> float:
    """The length of a vector, whose squares are no larger than the largest float.

    >>> hypot(3.0, 4.0)
    5.0
    """
    return sqrt(x * x + y * y)


def _polynomial(coefficients: Sequence[float], x: float) -> float:
    """By Horner's rule, the highest power first."""
    found = 0.0
    for coefficient in coefficients:
        found = found * x + coefficient
    return found


def erf(x: float) -> float:
    """The error function.

    >>> erf(0.0), erf(0.25), erf(-6.0)
    (0.0, 0.2763263901682369, -1.0)
    """
    if x < 0.0:
        return -erf(-x)
    if x > ERF_NEAR:
        return 1.0 - erfc(x)
    square = x * x
    return x * (_polynomial(ERF_NEAR_TOP, square) / _polynomial(ERF_NEAR_BOTTOM, square))


def erfc(x: float) -> float:
    """1 less the error function, with all its bits where that is small.

    >>> erfc(0.0), erfc(30.0), erfc(-6.0)
    (1.0, 0.0, 2.0)
    """
    if x < -ERF_NEAR:
        return 2.0 - erfc(-x)
    if x <= ERF_NEAR:
        return 1.0 - erf(x)
    if not x < ERFC_END:
        return 0.0 if x >= ERFC_END else x
    if x <= ERF_FAR:
        found = _polynomial(ERF_MIDDLE_TOP, x) / _polynomial(ERF_MIDDLE_BOTTOM, x)
    else:
        inverse = 1.0 / (x * x)
        found = inverse * (_polynomial(ERF_FAR_TOP, inverse) / _polynomial(ERF_FAR_BOTTOM, inverse))
        found = (INVERSE_SQRT_PI - found) / x
    rounded = int(x * 16.0) / 16.0  # its square is exact
    left = (x - rounded) * (x + rounded)
    return exp(-rounded * rounded) * exp(-left) * found


def normal_cdf(x: float) -> float:
    """The chance that a standard normal variable is at most ``x``.

    >>> normal_cdf(0.0), round(normal_cdf(1.0), 6)
    (0.5, 0.841345)
    """
    return 0.5 * erfc(-x * SQRT_HALF)


def normal_inverse_cdf(chance: float) -> float:
    """Which value a standard normal variable is at most with a chance: infinite for 0 and 1.

    >>> normal_inverse_cdf(0.5), round(normal_inverse_cdf(0.975), 6), normal_inverse_cdf(0.0)
    (0.0, 1.959964, -inf)
    """
    if not 0.0 < chance < 1.0:
        return -INFINITE if chance == 0.0 else INFINITE if chance == 1.0 else NO_NUMBER
    apart = chance - 0.5
    if -0.425 <= apart <= 0.425:
        r = 0.180625 - apart * apart
        return apart * (_polynomial(NORMAL_MIDDLE_TOP, r) / _polynomial(NORMAL_MIDDLE_BOTTOM, r))
    r = sqrt(-log(chance if apart < 0.0 else 1.0 - chance))
    if r <= 5.0:
        r -= 1.6
        found = _polynomial(NORMAL_OUTER_TOP, r) / _polynomial(NORMAL_OUTER_BOTTOM, r)
    else:
        r -= 5.0
        found = _polynomial(NORMAL_TAIL_TOP, r) / _polynomial(NORMAL_TAIL_BOTTOM, r)
    return -found if apart < 0.0 else found
