"""Functions of arrays are as exact as numpy's, and their bits are those that are written here."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from gpusim.machine.exact_array_math import CHUNK, along, exp_of, softplus_of
from gpusim.machine.memory.l2_capacity import CERTAIN, MOST_SPREADS, L2Partitions

WIDE = np.linspace(-690.0, 690.0, 3 * CHUNK + 1)
NEAR = np.linspace(-45.0, 45.0, 3 * CHUNK + 1)


def digest(values: np.ndarray) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()[:16]


def test_powers_of_e_are_within_two_units_in_the_last_place() -> None:
    assert np.max(np.abs(exp_of(WIDE) / np.exp(WIDE) - 1.0)) < 5e-16
    assert np.max(np.abs(exp_of(NEAR) / np.exp(NEAR) - 1.0)) < 5e-16
    assert exp_of([0.0, -0.0, -750.0, -np.inf]).tolist() == [1.0, 1.0, 0.0, 0.0]
    assert exp_of([[0.0], [1.0]]).shape == (2, 1)


def test_what_grows_from_nothing_to_itself_is_as_exact() -> None:
    inner = NEAR[np.abs(NEAR) < 39.0]
    assert np.max(np.abs(softplus_of(inner) / np.logaddexp(0.0, inner) - 1.0)) < 1e-15
    assert softplus_of([-1e300, -41.0, 41.0, 1e300]).tolist() == [0.0, 0.0, 41.0, 1e300]


def test_bits_are_the_same_on_every_machine() -> None:
    assert [digest(each) for each in (exp_of(WIDE), exp_of(NEAR), softplus_of(NEAR))] == BITS


BITS = ["26abe60e0053608a", "2efa503839d1fdfa", "45cfb976840986b6"]
"""Of the points above."""


@pytest.mark.parametrize("seed", range(5))
def test_between_points_values_are_even(seed: int) -> None:
    draw = np.random.default_rng(seed)
    points = np.cumsum(draw.integers(1, 9, 30)).astype(np.float64)
    values, at = draw.uniform(-1.0, 1.0, 30), np.linspace(points[0], points[-1], 501)
    assert np.allclose(along(at, points, values), np.interp(at, points, values), rtol=0.0, atol=1e-15)
    assert along(points, points, values).tolist() == values.tolist()


def test_lines_far_from_what_a_side_holds_are_lost_for_certain() -> None:
    partitions = L2Partitions(num=1, partition_bytes=1000.0, spread=0.05)
    touched = np.linspace(0.0, 2000.0, 4001)
    by_formula = 1.0 / (1.0 + np.exp(-(touched / 1000.0 - 1.0) / 0.05))
    expected = np.where(by_formula < CERTAIN, 0.0, np.where(by_formula > 1.0 - CERTAIN, 1.0, by_formula))
    assert np.allclose(partitions.lost_share(touched), expected, rtol=1e-14)
    assert 1.0 / (1.0 + np.exp(MOST_SPREADS)) < CERTAIN
