"""Predictions for a measured row, and the errors that they may have.

In: numbers of a case. Out: :class:`Answer`, :class:`Limit`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Largest errors allowed for a family of rows; None: no limit.

    Unit: percent, or percentage points where the numbers themselves are percent.
    """

    mean_pct: float | None = None
    p90_pct: float | None = None
    worst_pct: float | None = None
    is_points: bool = False
    """Errors are differences in percentage points instead of fractions of the measured value. Used for rates in percent."""

    @property
    def text(self) -> str:
        """Limits in words.

        >>> Limit(mean_pct=6.0, worst_pct=25.0).text, Limit(mean_pct=3.0, is_points=True).text, Limit().text
        ('mean 6 %, worst 25 %', 'mean 3 points', 'no limit')
        """
        unit = "points" if self.is_points else "%"
        limits = (("mean", self.mean_pct), ("P90", self.p90_pct), ("worst", self.worst_pct))
        return ", ".join(f"{name} {most:g} {unit}" for name, most in limits if most is not None) or "no limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Simulator's prediction for one number of a row.

    Args:
        value: prediction, in the unit of the measured number.
        roofline: prediction from the data sheet's peaks alone, where there is one.
        floor: smallest reference for a relative error, for numbers whose measured value may be close to zero.
    """

    value: float
    roofline: float | None = None
    floor: float = 0.0
