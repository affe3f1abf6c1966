"""First stages of CTAs that begin together: what is launched, what is refused, what the twin answers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpusim.evidence.cases.case import MappedTensor, Output, WrongAnswer, load_case
from gpusim.evidence.toolchain.cuda_toolkit import Cubin
from gpusim.evidence.toolchain.sass import read_sass
from gpusim.machine.config import load_gpu

CASE = load_case("first_loads")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]


@pytest.fixture
def small_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test but that of its words needs the whole tensor."""
    monkeypatch.setattr(case, "tensor", lambda: np.broadcast_to(np.zeros(1, dtype=np.uint32), (case.TENSOR_BYTES // 4,)))


def outputs_of(config: dict[str, str]) -> dict[str, np.ndarray[Any, Any]]:
    """What a launch must leave whose stages come 1000 cycles apart, one cycle later on each SM."""
    launch = CASE.launch(config, False)
    launch = launch.following[0] if launch.following else launch
    arrays = {item.name: item.array.copy() for item in launch.arguments if isinstance(item, Output)}
    arrays["times"][:] = 1000 * (1 + np.arange(int(config["steps"]))) + np.arange(132)[:, None]
    live = case.live_sms(int(config["live"]))
    for cta, corner in enumerate(case.corners(typed(config))):
        arrays["told"][cta] = (cta, case.sum_of_last_stage(typed(config), corner), int(cta in live), 64 * cta)
    return arrays


@pytest.mark.usefixtures("small_tensor")
def test_tiles_lie_in_the_tensor_before_what_is_rehearsed_and_stay_in_l2_where_they_should() -> None:
    for config in CONFIGS:
        launch = CASE.launch(config, False)
        launch = launch.following[0] if launch.following else launch
        rows = case.TENSOR_BYTES // int(config["pitch_bytes"]) - case.REHEARSED_ROWS
        assert case.num_rows(typed(config)) <= rows
        assert int(config["wrap"]) * case.ROW_BYTES < int(config["pitch_bytes"])  # a sector at a row's end has no tile
        if config["source"] == "l2":
            assert case.num_rows(typed(config)) * case.ROW_BYTES * int(config["wrap"]) <= 18 << 20
        else:
            assert int(config["steps"]) <= int(config["wrap"])
        assert typed(config).stage_bytes * int(config["stages"]) <= launch.smem_bytes <= 224 << 10
        boxes = [item.tensor_map.box_dim[1] for item in launch.arguments if isinstance(item, MappedTensor)]
        assert boxes[:2] == [int(config["a_rows"]), int(config["b_rows"])]


@pytest.mark.usefixtures("small_tensor")
def test_only_the_tiles_own_words_count() -> None:
    for config in (case.Row(steps=64), CASE.configs("launched", 1)[0], case.Row(pattern="own", live=33)):
        values = CASE.check(config, outputs_of(config))
        assert values["stage_1_p0_cycles"] - values["stage_0_p0_cycles"] == 1000
        assert set(values) <= set(CASE.values)
        assert values.get("cycles_per_step", 1000) == 1000
        assert values.get("starts_ns", 0.8 * 131 * 64) == pytest.approx(0.8 * 131 * 64)
        for name, place, value, said in (
            ("flags", 1, 1, "given up"), ("told", (3, 1), 7, "words"), ("told", (3, 0), 0, "one SM"),
            ("told", (3, 2), 2, "where others"), ("times", (3, 2), -1, "no time"),
        ):  # fmt: skip
            wrong = outputs_of(config)
            wrong[name][place] = value
            if name == "told" and place[1] == 2:
                wrong[name][place] = 1 - wrong[name][place]
                wrong[name][0, 2] = 1 - wrong[name][0, 2]
            with pytest.raises(WrongAnswer, match=said):
                CASE.check(config, wrong)


def test_the_expected_sum_is_that_of_the_tensors_words() -> None:
    config = case.Row(pattern="tall_33", b_rows=256, steps=13)
    corner, step, words, total = case.corners(typed(config))[-1], 12 % 8, case.tensor().reshape(-1, 1024), 0
    for first, num in zip(corner, (128, 256), strict=True):
        total += int(words[first : first + num, step * 32 : step * 32 + 32].sum(dtype=np.uint64))
    assert case.sum_of_last_stage(typed(config), corner) == total % 2**32
    case.tensor.cache_clear()


def test_the_twin_waits_longer_for_memory_and_where_nobody_shares() -> None:
    gpu = load_gpu("h200_sxm")
    near, far, own = (
        CASE.predict(case.Row(**columns), gpu)["stage_0_p50_cycles"]
        for columns in ({}, {"source": "memory"}, {"pattern": "own"})
    )
    assert near < far and near < own


def test_the_walk_is_one_piece_of_code_rehearsed_or_not(built: Callable[[str, str], Cubin]) -> None:
    sass = read_sass(built("first_loads", "sm_90a").path)
    assert [len(sass[name].select("UTMALDG")) for name in ("first", "plain", "flush")] == [2, 2, 0]
