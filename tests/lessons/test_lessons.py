"""What notebooks call: answers held against predictions, measured rows, and refusals."""

from __future__ import annotations

import pytest

from gpusim.errors import ConfigError, LayoutError
from gpusim.lessons import beside, claims, compare, judged, measured
from gpusim.lessons.smem import access_cycles, bank_access, bank_study, counted


def test_a_prediction_that_is_not_made_is_no_error() -> None:
    for nothing in (..., None):
        found = compare(nothing, 4, "wavefronts")
        assert not found.is_right
        assert found.error_pct is None
        assert "No prediction yet" in str(found)
        assert "4 wavefronts" in str(found)


def test_a_number_is_right_within_a_tenth_and_not_beyond() -> None:
    assert compare(110, 100).is_right
    assert compare(90, 100).is_right
    assert not compare(110.1, 100).is_right
    assert not compare(89.9, 100).is_right
    assert compare(89.9, 100).error_pct == pytest.approx(-10.1)
    assert compare(0, 0).is_right
    assert not compare(1, 0).is_right


def test_a_word_is_right_in_any_case_and_other_words_are_not() -> None:
    assert compare(" HBM ", "hbm").is_right
    assert not compare("L2", "hbm").is_right


def test_a_prediction_of_the_wrong_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="a number of wavefronts"):
        compare("many", 4, "wavefronts")
    with pytest.raises(ConfigError, match="one of the words"):
        compare(4, "hbm")


def test_what_jupyter_shows_is_escaped() -> None:
    assert "&lt;b&gt;" in compare("<b>", "hbm")._repr_html_()


def test_tables_want_the_same_labels() -> None:
    with pytest.raises(ConfigError, match="wants the same"):
        beside({"a": 1.0}, {"b": 1.0}, "cycles")
    assert list(beside([1.0, 2.0], [2.0, 2.0], "us")["error (%)"]) == [-50.0, 0.0]


def test_claims_are_sentences_with_true_or_false() -> None:
    assert claims({"so": False}) == {"so": False}
    for wrong in ({}, {"so": 1}):
        with pytest.raises(ConfigError):
            claims(wrong)


def test_measured_rows_are_those_asked_for() -> None:
    rows = measured("transpose", kernel=("transpose_naive", "transpose_padded"), m=1024)
    assert len(rows) == 2
    assert rows["sm__cycles_elapsed.max"].min() > 1000
    assert rows.attrs["units"]["gpu__time_duration.sum"] == "ns"
    for wrong in ({"m": 3}, {"width": 1}):
        with pytest.raises(ConfigError, match="has no"):
            measured("transpose", **wrong)
    with pytest.raises(ConfigError, match="is not there"):
        measured("no_such_kernel")
    with pytest.raises(ConfigError, match="no rows"):
        measured("transpose", gpu="no_such_gpu")


def test_rows_that_parameters_were_fitted_to_say_so() -> None:
    chosen = {"kernel": "stream_ld_b32", "num_partitions": 4, "warps_per_partition": 4}
    rates = judged("shared_rate", "wavefronts_per_cycle", **chosen)
    assert set(rates["calibrates"]) == {True, False}
    assert not judged("transpose", "sm__cycles_elapsed.max", m=512)["calibrates"].any()


def test_what_the_simulator_does_not_answer_is_refused() -> None:
    with pytest.raises(ConfigError, match="no number called"):
        judged("transpose", "cycles", m=512)
    with pytest.raises(ConfigError, match="no answer"):
        judged("tma_writes", "cycles", num_boxes=1)


def test_masks_are_no_numbers() -> None:
    assert set(measured("shared_access", kernel="ld_shared_b8")["active"].map(type)) == {str}
    assert counted("ld_shared_b8")["active lanes"].between(1, 32).all()


def test_a_swizzle_is_given_once_and_not_to_lanes() -> None:
    study = bank_study("(64,64):(64,1)", "bf16", "ldmatrix_x4", swizzle="128B")
    assert study.census.is_free
    with pytest.raises(LayoutError):
        bank_access("(64,64):(64,1)", "bf16", "ldmatrix_x4", threads="Sw<1,0,1> o 0 o 32:1")


def test_a_wavefront_takes_a_cycle_of_a_busy_sm() -> None:
    assert access_cycles("ld_b32")["error (%)"].abs().max() < 1.0
