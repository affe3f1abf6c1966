"""How long a wave of CTAs takes, from those before it, if they took the same time or their mean stays."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.machine.numeric import sum_in_order

SETTLED_WAVES = 3
"""Waves of a stretch: where two in a row have the same mean, CTAs drift no further apart, and later waves are like them."""

SETTLED_TOLERANCE = 5e-3
"""How far these two means may lie apart. The first waves end together, and their epilogues crowd; later ones blend."""

SWINGING_WAVES = 5e-2
"""Spread of the times of these waves, of their mean."""

SAME_WAVES = 3
"""Waves that must have taken the same time for others to be left out."""

QUICK_WAVES = 2
"""Waves whose mean a quick answer takes for all that follow. The first, which starts together, is not one of them."""


def common(took: Sequence[float], count: int, spread: float) -> float | None:
    """The mean of ``count`` times that lie no more than ``spread`` of it apart; else None."""
    if len(took) < count:
        return None
    mean = sum_in_order(took) / count
    return mean if max(took) - min(took) <= spread * mean else None


def settled(took: Sequence[float], leniency: float) -> float | None:
    """The mean of the last waves' times if it is that of those before them; else None.

    >>> settled([90.0, 80.0, 71.0, 69.0, 70.0, 70.0, 69.0, 71.0], 1.0)
    70.0
    >>> settled([90.0, 80.0, 75.0, 74.0, 73.0, 72.0], 1.0)
    """
    recent = took[-2 * SETTLED_WAVES :]
    mean = common(recent, 2 * SETTLED_WAVES, leniency * SWINGING_WAVES)
    if mean is None:
        return None
    earlier, later = (sum_in_order(part) / SETTLED_WAVES for part in (recent[:SETTLED_WAVES], recent[SETTLED_WAVES:]))
    return later if abs(later - earlier) <= leniency * SETTLED_TOLERANCE * mean else None
