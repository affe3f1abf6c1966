"""Roundings of each type, worked out by hand or by another way."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpusim.functional.number_format import decode, encode, rounded
from gpusim.workload.dtypes import BF16, FP8, FP16, FP32, INT8, INT32, TF32, DType

E5M2 = DType("e5m2", 8, "float")


def nearest(value: float, bits: int, least_exponent: int, most: float, *, is_tie_up: bool = False) -> float:
    """``value`` rounded to ``bits`` of mantissa, ties to even or away from 0, in exact arithmetic; at most ``most``."""
    exact, exponent = abs(Fraction(value)), least_exponent
    while exact >= Fraction(2) ** (exponent + 1):
        exponent += 1
    unit = Fraction(2) ** (exponent - bits)
    number = int(exact / unit + Fraction(1, 2)) if is_tie_up else round(exact / unit)
    return float(np.copysign(min(float(number * unit), most), value))


@pytest.mark.parametrize(
    ("element", "bits", "least", "most"),
    [(BF16, 7, -126, 3e38), (FP16, 10, -14, 65504.0), (FP8, 3, -6, 448.0), (E5M2, 2, -14, 57344.0)],
)
def test_values_round_to_the_nearest_ties_to_even(element: DType, bits: int, least: int, most: float) -> None:
    random = np.random.default_rng(0)
    values = (random.standard_normal(150) * 2.0 ** random.integers(-12, 9, 150)).astype(np.float32)
    ties = np.float32(1) + np.arange(8, dtype=np.float32) * np.float32(2.0 ** -(bits + 1))
    for value, found in zip([*values, *ties], rounded(np.array([*values, *ties]), element), strict=True):
        assert found == nearest(float(value), bits, least, most)


ROUNDINGS = [
    (BF16, 7, -126, float(np.float32(3.3895314e38))), (FP16, 10, -14, 65504.0), (FP8, 3, -6, 448.0), (E5M2, 2, -14, 57344.0),
    (TF32, 10, -126, 3.4e38),
]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    mantissa=st.integers(0, 2047), below=st.integers(-1, 1), last=st.integers(14, 50), exponent=st.integers(-160, 126),
    sign=st.sampled_from([-1.0, 1.0]),
)  # fmt: skip
@example(mantissa=8, below=1, last=40, exponent=0, sign=1.0)  # of bf16: the tie 1 + 2^-8, and 2^-40 more
def test_values_of_float64_are_rounded_once(mantissa: int, below: int, last: int, exponent: int, sign: float) -> None:
    """Ties of each type, or almost ties: a difference that fp32 loses decides."""
    value = sign * (1 + mantissa * 2.0**-11 + below * 2.0**-last) * 2.0**exponent
    for element, bits, least, most in ROUNDINGS:
        if abs(value) <= most:
            wanted = nearest(value, bits, least, most, is_tie_up=element is TF32)
            assert rounded(np.array([value]), element)[0] == wanted, element


def test_tf32_ties_go_away_from_zero_and_its_last_bits_are_ignored() -> None:
    tie = 1 + 2.0**-11
    assert rounded(np.array([tie, -tie]), TF32).tolist() == [1 + 2.0**-10, -1 - 2.0**-10]
    assert decode(np.array([0x3F801FFF], dtype=np.uint32), TF32).tolist() == [1.0]


@pytest.mark.parametrize("element", [FP8, E5M2, BF16, FP16, INT8])
def test_every_code_of_a_number_stays_what_it_is(element: DType) -> None:
    codes = np.arange(1 << element.bits).astype(f"u{element.num_bytes}")
    values = decode(codes, element)
    finite = np.isfinite(values)
    assert np.array_equal(encode(values, element)[finite], codes[finite])


def test_integers_saturate_or_wrap() -> None:
    assert rounded(np.array([200.0, -200.0, 2.5]), INT8).tolist() == [127, -128, 2]
    assert rounded(np.array([2**31 + 5]), INT32).tolist() == [-(2**31) + 5]


def test_values_that_are_no_numbers_stay_so() -> None:
    assert np.isnan(rounded(np.array([np.nan]), FP8)).all()
    assert np.isnan(rounded(np.array([np.nan]), BF16)).all()
    assert rounded(np.array([1e6, -1e6]), FP8).tolist() == [448.0, -448.0]
    assert rounded(np.array([0.1]), FP32).tolist() == [np.float32(0.1)]
