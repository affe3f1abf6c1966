"""Parameters and constants from measured rows: medians, slopes and lines.

In: numbers of rows. Out: :class:`Fitted`, :class:`FittedConstant`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpusim.evidence.cases.case import Fitted, FittedConstant

fitted = Fitted.median
"""The median of values as a parameter; nothing without values."""


def fitted_constant(name: str, values: Sequence[float], how: str, *key: Any) -> list[FittedConstant]:
    """The median of ``values`` as a constant of a case's code; nothing without values."""
    return [FittedConstant(name=name, key=key, value=float(np.median(values)), how=how)] if len(values) else []


def medians(found: Mapping[str, tuple[Sequence[float], str]]) -> list[Fitted]:
    """The median of the finite values of each parameter, which come with how they follow from rows."""
    return [one for name, (values, how) in found.items() for one in fitted(name, [x for x in values if np.isfinite(x)], how)]


def slopes_of_pairs(points: Sequence[tuple[float, float]]) -> list[float]:
    """Slopes of all pairs of (x, y) of different x.

    >>> slopes_of_pairs([(0.0, 1.0), (2.0, 5.0), (2.0, 7.0)])
    [2.0, 3.0]
    """
    return [(y2 - y1) / (x2 - x1) for x1, y1 in points for x2, y2 in points if x2 > x1]


def median_line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(slope, intercept) of the line through points, both medians, so that a few outliers do not move it.

    The slope is the median of the slopes of all pairs; NaN where all points have one ``x``. Source: Theil and Sen.

    >>> median_line([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0), (3.0, 7.0), (4.0, 100.0)])[0]
    2.0
    """
    xs, ys = np.asarray(points, dtype=float).reshape(-1, 2).T
    first, second = np.triu_indices(len(xs), 1)
    differs = xs[first] != xs[second]
    if not differs.any():
        return float("nan"), float("nan")
    slope = float(np.median((ys[second] - ys[first])[differs] / (xs[second] - xs[first])[differs]))
    return slope, float(np.median(ys - slope * xs))
