"""Bursts of tiles: which are asked for, what counts as an answer, what the simulator says."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpusim.evidence.cases.case import Config, MappedTensor, Output, WrongAnswer, load_case
from gpusim.evidence.toolchain.cuda_toolkit import Cubin
from gpusim.evidence.toolchain.sass import read_sass
from gpusim.machine.config import load_gpu

CASE = load_case("tile_bursts")
case = sys.modules[CASE.launch.__module__]
CONFIGS = CASE.configs("bursts", 1)


def one(pattern: str = "own", source: str = "l2", a: int = 64, b: int = 64, met: int = 1) -> Config:
    made: Config = case.Config("burst", pattern, source, a, b, is_met=bool(met))
    return made


@pytest.fixture
def small_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test but that of its words needs all 264 MiB of the tensor."""
    row = np.zeros((1, case.PITCH_BYTES // 4), dtype=np.uint32)
    monkeypatch.setattr(case, "tensor", lambda: np.broadcast_to(row, (case.NUM_ROWS, row.shape[1])))


@pytest.mark.usefixtures("small_tensor")
def test_tiles_lie_in_the_tensor_and_in_shared_memory() -> None:
    for config in CONFIGS:
        launch = CASE.launch(config, False)
        rows = case.rows_of(config)
        for corner in case.corners(config):
            assert all(first + num <= case.NUM_ROWS for first, num in zip(corner, rows, strict=True))
        assert sum(rows) * case.ROW_BYTES + 1024 <= launch.smem_bytes
        boxes = [item.tensor_map.box_dim for item in launch.arguments if isinstance(item, MappedTensor)]
        assert boxes == [(64, num) for num in rows]


def test_what_comes_from_memory_is_asked_for_in_one_step_and_what_lies_in_l2_before() -> None:
    for config in CONFIGS:
        source, ahead = config["source"], case.num_ahead(config)
        for operand, steps in enumerate(case.num_steps(config)):
            timed = [step % steps for step in range(ahead, ahead + case.NUM_TIMED)]
            before = {step % steps for step in range(ahead)}
            if source == "l2" or (source == "a_l2" and operand == 0):
                assert set(timed) <= before
                tiles = case.num_panels(config)[operand] * steps
                assert tiles * case.rows_of(config)[operand] * case.ROW_BYTES <= case.MOST_TOUCHED_BYTES
            else:
                assert not before & set(timed) and len(set(timed)) == len(timed)


def test_panels_are_those_of_tiles_of_d() -> None:
    assert case.panels(one("own"))[5] == (5, 5)
    assert case.panels(one("wide_32"))[33] == (1, 1)
    assert case.panels(one("tall_8"))[9] == (1, 1) and case.num_panels(one("tall_8")) == (8, 17)


def outputs_of(config: dict[str, str]) -> dict[str, np.ndarray[Any, Any]]:
    """What a launch must leave whose tiles of A take 900 cycles and those of B 1000."""
    arrays = {item.name: item.array.copy() for item in CASE.launch(config, False).arguments if isinstance(item, Output)}
    arrays["times"][:, :] = (900, 1000)
    sums = {corner: case.sum_of_last_tiles(config, corner) for corner in set(case.corners(config))}
    for cta, corner in enumerate(case.corners(config)):
        arrays["told"][cta] = (131 - cta, sums[corner], 1200 * case.NUM_TIMED, 0)
    return arrays


@pytest.mark.usefixtures("small_tensor")
def test_only_the_tiles_own_words_count() -> None:
    config = one("tall_16", "memory", met=0)
    values = CASE.check(config, outputs_of(config))
    assert (values["a_p50_cycles"], values["burst_p50_cycles"], values["step_cycles"]) == (900, 1000, 1200)
    assert set(values) <= set(CASE.values)
    for name, place, value, said in (
        ("flags", 1, 1, "given up"), ("told", (3, 1), 7, "words"), ("told", (3, 0), 0, "one SM"),
        ("times", (1, 2, 1), -1, "no time"),
    ):  # fmt: skip
        wrong = outputs_of(config)
        wrong[name][place] = value
        with pytest.raises(WrongAnswer, match=said):
            CASE.check(config, wrong)


def test_the_expected_sum_is_that_of_the_tensors_words() -> None:
    config = one("wide_12", "a_l2", 128, 256)
    corner, last = case.corners(config)[-1], case.num_ahead(config) + case.NUM_TIMED - 1
    words, total = case.tensor(), 0
    for first, num, steps in zip(corner, case.rows_of(config), case.num_steps(config), strict=True):
        total += int(words[first : first + num, last % steps * 32 : last % steps * 32 + 32].sum(dtype=np.uint64))
    assert case.sum_of_last_tiles(config, corner) == total % 2**32
    case.tensor.cache_clear()


def test_the_twin_reads_all_where_nobody_shares_and_waits_longer_for_memory() -> None:
    gpu = load_gpu("h200_sxm")
    near, far = (CASE.predict(one(source=source), gpu) for source in ("l2", "memory"))
    assert near[case.READ] == pytest.approx((case.num_ahead(one()) + case.NUM_TIMED) * 128 * case.ROW_BYTES * 132 / 32)
    assert far["burst_p10_cycles"] > near["burst_p90_cycles"]
    assert CASE.predict(one("tall_8"), gpu)[case.READ] < near[case.READ]


def test_one_copy_stands_for_each_tile(built: Callable[[str, str], Cubin]) -> None:
    assert len(read_sass(built("tile_bursts", "sm_90a").path)["burst"].select("UTMALDG")) == 2
