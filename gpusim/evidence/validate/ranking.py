"""Ranking quality of predictions: Kendall's tau over configurations, and the regret of the best predicted one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from gpusim.errors import ConfigError

CLEARLY_APART = 0.10
"""Difference relative to the slower configuration, from which the measured order of a pair is meaningful."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Ranking scores of the configurations of one problem."""

    num: int
    num_pairs: int
    tau: float
    """Kendall's tau over all pairs: 1 all in order, -1 all reversed. A predicted tie counts half; 1 without pairs."""
    num_clear_pairs: int
    clear_tau: float
    """Kendall's tau over pairs whose measurements clearly differ."""
    regret: float
    """Excess of the best predicted configuration over the best measured one: 0.05 is 5 %."""


def kendall_tau(predicted: Sequence[float], measured: Sequence[float], *, tie: float = 0.0) -> tuple[float, int]:
    """(tau, number of pairs) over pairs whose measured numbers differ, by at least the fraction ``tie`` of the larger.

    tau is right pairs minus wrong pairs, over all pairs. A pair with equal predictions is neither right nor wrong.

    >>> kendall_tau([1.0, 2.0, 3.0], [10.0, 30.0, 20.0])[1]
    3
    >>> kendall_tau([1.0, 2.0, 3.0], [10.0, 30.0, 29.0], tie=0.1)
    (1.0, 2)

    Raises:
        ConfigError: the sequences have different lengths.
    """
    if len(predicted) != len(measured):
        raise ConfigError(f"ranking: {len(predicted)} predictions and {len(measured)} measurements, wants as many")
    score = num = 0
    for (p, m), (q, n) in combinations(zip(predicted, measured, strict=True), 2):
        if m == n or abs(m - n) < tie * max(abs(m), abs(n)):
            continue
        num += 1
        score += 0 if p == q else 1 if (p < q) == (m < n) else -1
    return (score / num if num else 1.0), num


def regret(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """Excess of the lowest prediction's measurement over the lowest measurement, as a fraction; of equals the worst counts.

    >>> regret([1.0, 2.0], [11.0, 10.0])
    0.1

    Raises:
        ConfigError: the sequences are empty or differ in length, or a measured number is not above 0.
    """
    if not predicted or len(predicted) != len(measured) or min(measured) <= 0.0:
        raise ConfigError("ranking: wants as many predictions as measurements, one or more, above 0")
    least = min(predicted)
    chosen = max(taken for guess, taken in zip(predicted, measured, strict=True) if guess == least)
    return (chosen - min(measured)) / min(measured)


def ranking(predicted: Sequence[float], measured: Sequence[float]) -> Ranking:
    """Both taus and the regret. See :func:`kendall_tau`, :func:`regret`."""
    tau, num_pairs = kendall_tau(predicted, measured)
    clear, num_clear = kendall_tau(predicted, measured, tie=CLEARLY_APART)
    return Ranking(
        num=len(predicted), num_pairs=num_pairs, tau=tau, num_clear_pairs=num_clear, clear_tau=clear,
        regret=regret(predicted, measured),
    )
