"""What counts as a steady pace."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpusim.simulate.steady import NOISY_ROUNDS, OWN_PACES, SPREAD_TOLERANCE, Pace

STEPS = 4


def paced(*periods_of_each: Sequence[float]) -> Pace:
    """What CTAs report whose steps took these cycles, round by round."""
    pace = Pace()
    pace.num_live = len(periods_of_each)
    cycles = [0.0] * len(periods_of_each)
    for key in range(len(periods_of_each)):
        pace.report(key, 0.0, STEPS)
    for took in zip(*periods_of_each, strict=True):
        for key, period in enumerate(took):
            cycles[key] += STEPS * period
            pace.report(key, cycles[key], STEPS)
    return pace


def test_a_pace_that_swings_about_a_mean_that_stays_has_that_mean() -> None:
    swings = [1000.0, 1003.0, 1001.0, 1002.0, 1000.0, 1003.0]
    assert len(swings) == NOISY_ROUNDS
    pace = paced(swings, swings)
    assert pace.period(2, num_steps=0) is None
    assert pace.swinging_period(SPREAD_TOLERANCE) == pytest.approx(sum(swings) / NOISY_ROUNDS)


@pytest.mark.parametrize("periods", [
    [1000.0 + idx for idx in range(NOISY_ROUNDS)],
    [1000.0, 1006.0] * (NOISY_ROUNDS // 2),
    [1000.0] * (NOISY_ROUNDS - 1),
], ids=["it grows", "it swings too far", "too few rounds"])  # fmt: skip
def test_what_does_not_stay_is_no_steady_pace(periods: list[float]) -> None:
    assert paced(periods, periods).swinging_period(OWN_PACES) is None


@pytest.mark.parametrize(("apart", "found"), [(0.009, 1004.5), (0.03, None)])
def test_ctas_must_keep_the_same_pace_but_not_in_every_round(apart: float, found: float | None) -> None:
    pace = paced([1000.0] * NOISY_ROUNDS, [1000.0 * (1.0 + apart)] * NOISY_ROUNDS)
    assert pace.swinging_period(SPREAD_TOLERANCE) == (None if found is None else pytest.approx(found))
    assert pace.swinging_period(OWN_PACES) == pytest.approx(1000.0 * (1.0 + apart / 2))


def test_ctas_that_take_turns_at_being_late_keep_the_same_pace() -> None:
    early, late = [1000.0, 1040.0] * (NOISY_ROUNDS // 2), [1040.0, 1000.0] * (NOISY_ROUNDS // 2)
    assert paced(early, late).swinging_period(SPREAD_TOLERANCE) == pytest.approx(1020.0)


def test_a_round_says_how_many_have_not_reported_in_it() -> None:
    """Nine in ten close one: who is left out goes at a pace that the round knows nothing of."""
    pace = paced(*[[1000.0]] * 20)
    assert (len(pace.means), pace.num_untold) == (1, 0)
    for key in range(1, 20):  # the first is slower
        pace.report(key, 2000.0 * STEPS, STEPS)
    pace.report(1, 3000.0 * STEPS, STEPS)
    assert (len(pace.means), pace.num_untold) == (2, 1)
    assert pace.spreads[-1] == 0.0
