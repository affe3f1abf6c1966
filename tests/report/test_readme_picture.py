"""The README's picture says what the simulator and the measured table say, and is the one that its script draws."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gpusim.evidence.cases.case import load_case
from gpusim.evidence.cases.rows import config_of
from gpusim.machine.config import load_gpu
from gpusim.report.plots.window import of_sm

ROOT = Path(__file__).resolve().parents[2]


@cache
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("readme_picture", ROOT / "scripts" / "readme_picture.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["readme_picture"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def drawn() -> tuple[Any, Any, Any]:
    row = script().measured_row()
    result = script().predicted(row)
    return row, result, script().compared(row, result)


def test_its_numbers_are_those_of_the_row_and_of_what_judges_it() -> None:
    row, _, numbers = drawn()
    case = load_case("hopper_gemm")
    names = {name for of in script().METRICS.values() for name in of}
    answers = case.answers(config_of(row, case.columns), row, load_gpu("h200_sxm"), names)
    for item in numbers:
        of = script().METRICS[item.name]
        assert item.measured == sum(float(row[name]) for name in of)
        assert item.predicted == pytest.approx(sum(answers[name].value for name in of), rel=1e-6)
        assert item.ratio == item.predicted / item.measured


def test_both_consumers_use_the_tensor_core_in_its_window() -> None:
    _, result, _ = drawn()
    timeline = of_sm(result.timeline, None)
    start, end = script().window_of(timeline)
    seen = {item.role for item in timeline.mmas if start < item.end_cycle and item.start_cycle < end}
    assert seen == {"consumer0", "consumer1"}
    lanes = [lane.label for lane in script().lanes_shown(timeline, (start, end))]
    assert lanes == [*(f"stage {stage}" for stage in range(4)), "tensor core", "producer", "consumer0", "consumer1"]


def test_the_picture_in_the_tree_is_the_one_that_the_script_draws() -> None:
    """Run ``python scripts/readme_picture.py`` where the model has changed."""
    from PIL import Image

    _, result, numbers = drawn()
    path = ROOT / "docs" / "pictures" / "overview.png"
    with Image.open(path) as image:
        alt, width = image.info["Description"], image.width
    assert alt == script().alt_of(result, numbers, script().window_of(of_sm(result.timeline, None)))
    assert width == 1600
    assert path.stat().st_size <= 200_000
