"""Published ladders: each step that can be said is a kernel, and has its prediction."""

from __future__ import annotations

import io

import pandas as pd
import pytest
from rich.console import Console

from gpusim.evidence.validate.published import KEYS, compare, out_of_order, params_of, prediction_tables, read_ladders
from gpusim.machine.config import load_gpu
from gpusim.report.published import render_ladders

SAID = [row for row in read_ladders().to_dict("records") if row["expressible"] == "yes"]


@pytest.mark.parametrize("row", SAID, ids=lambda row: f"{row['ladder']} {row['step']} {row['m']}")
def test_a_step_that_can_be_said_is_a_kernel_of_its_gpu(row: dict[str, str]) -> None:
    launch = params_of(row).launch(load_gpu(row["gpu"]))
    flops_per_element = {"gemm": 2 * int(row["k"]), "elementwise": 1, "smem_copy": 0}[row["kernel"]]
    assert launch.num_flops == flops_per_element * int(row["m"]) * int(row["n"])


def test_a_step_that_cannot_be_said_says_why() -> None:
    ladders = read_ladders()
    assert (ladders.loc[ladders["expressible"] == "no", "why_not"] != "").all()


@pytest.mark.parametrize("table", prediction_tables(), ids=lambda path: path.stem)
def test_a_table_of_predictions_has_steps_and_the_latest_has_all(table: object) -> None:
    predictions = pd.read_csv(str(table), dtype=dict.fromkeys(KEYS, str))
    steps = {tuple(row[key] for key in KEYS) for row in SAID}
    found = set(predictions[KEYS].itertuples(index=False, name=None))
    assert found <= steps and (found == steps or table != prediction_tables()[-1])
    assert predictions["refused"].isna().all()
    assert (predictions["time_us"] > 0).all()


def test_order_is_judged_on_steps_that_are_apart() -> None:
    table = pd.DataFrame(
        {
            "ladder": "l", "m": "1", "step": ["slow", "near", "fast"],
            "us": [1.2, 1.15, 1.0], "time_us": [1.0, 1.1, 1.05],
        }
    )
    assert out_of_order(table) == [("l 1", "slow", "fast")]


def test_every_published_step_is_in_the_comparison() -> None:
    assert len(compare()) == len(read_ladders())


def test_steps_of_one_gpu_are_printed_with_their_errors_and_their_mean() -> None:
    step = {"ladder": "l", "m": "64", "us": 1.2}
    ladders = pd.DataFrame([
        {**step, "step": "fast", "gpu": "a", "time_us": 1.0, "error": 0.2},
        {**step, "step": "not predicted", "gpu": "a", "time_us": None, "error": None},
        {**step, "step": "of another", "gpu": "b", "time_us": 1.1, "error": 0.1},
    ])  # fmt: skip
    printed = io.StringIO()
    render_ladders("a", ladders, Console(file=printed, width=120))
    lines = printed.getvalue().splitlines()
    assert lines[2].split() == ["l", "fast", "64", "1.20", "1.00", "20.0"]
    assert lines[3] == "mean error 20.0%, worst 20.0%, of 1 kernels"
