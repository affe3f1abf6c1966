"""Judged rows as lesson 10 shows them: sums of all families, single rows of those that may be looked at."""

from __future__ import annotations

from typing import Any

import pytest

from gpusim.errors import ConfigError
from gpusim.evidence.cases.paths import held_out_families
from gpusim.evidence.validate.judged_rows import read_judged
from gpusim.lessons.launch_outcome import refusal
from gpusim.lessons.rows import judged
from gpusim.lessons.trust import expected_error_text, families, metrics, order_of_configurations, rows_of


def test_rows_of_a_held_out_family_are_not_shown() -> None:
    for family in held_out_families():
        assert family in families().index
        assert f"{family} is held out" in refusal(rows_of, family)
    assert "wants one of device_descriptors, elementwise" in refusal(rows_of, "nothing")


def test_rows_of_a_family_are_those_that_its_sum_is_of() -> None:
    rows, table = rows_of("transpose"), families()
    assert len(rows) == table.loc["transpose", "rows"]
    assert rows["error (%)"].abs().mean() == pytest.approx(table.loc["transpose", "mean (%)"])
    assert abs(rows["error (%)"][0]) == pytest.approx(table.loc["transpose", "worst (%)"])


def test_metrics_and_orders_are_those_of_the_table() -> None:
    table = metrics()
    assert table.loc["sm__cycles_elapsed.max", "mean"] == pytest.approx(families()["mean (%)"].mean())
    assert table.loc["lts__t_sector_hit_rate.pct", "unit"] == "points"
    order = order_of_configurations()
    assert order["problems"] == read_judged().document()["own_ranks"]["num_problems"]
    assert 0.0 <= order["regret (%)"] <= order["worst regret (%)"] and 50.0 < order["right order (%)"] <= 100.0


def test_a_prediction_says_by_what_it_was_judged() -> None:
    assert "the family softmax on h200_sxm" in expected_error_text("softmax", "h200_sxm")
    cooperative = expected_error_text("gemm", "h200_sxm", math="wgmma", copy="tma", schedule="cooperative")
    assert "the held-out family hopper_gemm cooperative" in cooperative


@pytest.mark.parametrize("where", [{"table": "sgemm"}, {"table": "hopper_gemm", "m": 4096}])
def test_no_lesson_shows_an_error_of_a_single_row_that_is_held_out(where: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="is held out"):
        judged(name="sm__cycles_elapsed.max", **where)


def test_a_question_that_is_answered_is_no_refusal() -> None:
    with pytest.raises(ConfigError, match="metrics: was answered"):
        refusal(metrics)
