"""Rings of tiles out of memory: which are asked for, what counts as an answer, what the simulator says."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpusim.evidence.cases.case import MappedTensor, Output, Repeated, WrongAnswer, load_case
from gpusim.evidence.toolchain.cuda_toolkit import Cubin
from gpusim.evidence.toolchain.sass import read_sass
from gpusim.machine.config import load_gpu

CASE = load_case("cold_tiles")
case = sys.modules[CASE.launch.__module__]
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]


def panel_rows(config: dict[str, str]) -> list[int]:
    """First rows of all tiles that a launch asks for."""
    rows, grid = int(config["rows"]), case.grid_of(config["pattern"])
    last = min(case.NUM_AHEAD + case.NUM_TIMED, case.wrap_of(config)) - 1
    below = last // case.steps_along(config)
    return [(below * grid.num_panels + panel) * rows for a, b, _ in grid.panels for panel in (a, b)]


def test_tiles_lie_in_memory_and_in_shared_memory() -> None:
    for config in CONFIGS:
        launch = CASE.launch(config, False)
        rows, pitch, total = int(config["rows"]), int(config["pitch"]), case.num_bytes(config)
        assert total % pitch == 0 and max(panel_rows(config)) + rows == total // pitch
        tile_bytes = 2 * rows * int(config["row_bytes"])
        assert tile_bytes * int(config["stages"]) + 1024 <= launch.smem_bytes
        assert int(config["stages"]) <= case.NUM_AHEAD
        first, along = case.places(config)[:, 2].max(), case.steps_along(config) * int(config["row_bytes"])
        assert first + along <= pitch and total < 3 << 30


def test_what_comes_from_memory_is_asked_for_by_one_step_alone() -> None:
    for config in CONFIGS:
        if config["source"] != "l2":
            assert case.wrap_of(config) > case.NUM_AHEAD + case.NUM_TIMED
        else:
            assert case.wrap_of(config) <= case.NUM_AHEAD and case.num_bytes(config) // int(config["pitch"]) * int(
                config["row_bytes"]
            ) * min(case.WARM_WRAP, case.steps_along(config)) < 18 << 20


def test_every_second_config_has_every_pitch_and_every_number_of_stages() -> None:
    configs = CASE.configs("boxes", 1)
    for half in (configs[::2], configs[1::2]):
        assert {config["pitch"] for config in half} == {str(pitch) for pitch in case.PITCHES}
        assert {config["stages"] for config in half} == {str(stages) for stages in case.STAGES}
        assert {config["pattern"] for config in half} == set(case.PATTERNS)


def test_split_tiles_are_the_same_panels_at_other_bytes() -> None:
    config = case.by_tma("split_64", 32768, 6)
    places = case.places(config)
    assert case.grid_of("split_64").num_panels == 8
    assert (places[0] == (0, 4, 0, 0)).all() and (places[63] == (3, 7, 3 * 8192, 0)).all()


def outputs_of(config: dict[str, str]) -> dict[str, np.ndarray[Any, Any]]:
    """What a launch must leave whose steps come every 300 cycles, 1000 after they were asked for."""
    arrays = {item.name: item.array.copy() for item in CASE.launch(config, False).arguments if isinstance(item, Output)}
    came = 1000 + 300 * np.arange(arrays["times"].shape[1])
    arrays["times"][:] = np.stack([came - 1000, came], axis=1)
    for cta, words in enumerate(case.sums_of_last_tiles(config)):
        arrays["told"][cta] = (131 - cta, words)
    return arrays


def test_only_the_tiles_own_words_count() -> None:
    config = case.by_tma("shared_24", 8320, 6)
    values = CASE.check(config, outputs_of(config))
    assert (values["step_cycles"], values["way_p90_cycles"], values["first_cycles"]) == (300, 1000, 1000)
    assert set(values) <= set(CASE.values)
    for name, place, value, said in (
        ("flags", 1, 1, "given up"), ("told", (3, 1), 7, "words"), ("told", (3, 0), 131, "one SM"),
        ("times", (1, 2, 1), -1, "no time"),
    ):  # fmt: skip
        wrong = outputs_of(config)
        wrong[name][place] = value
        with pytest.raises(WrongAnswer, match=said):
            CASE.check(config, wrong)


@pytest.mark.parametrize("config", [
    case.by_tma("split_64", 8320, 4), case.by_cp_async("shared_64", 2048, 2, 128, 64),
    case.by_tma("own_64", 512, 2, source="l2"),
])  # fmt: skip
def test_the_expected_sum_is_that_of_memorys_words(config: dict[str, str]) -> None:
    argument = CASE.launch(config, False).arguments[3]
    memory = argument.array if isinstance(argument, MappedTensor) else argument
    assert isinstance(memory, Repeated)
    pitch, rows, row_bytes, cta = int(config["pitch"]), int(config["rows"]), int(config["row_bytes"]), 13
    a, b, first, _ = case.places(config)[cta].tolist()
    last, total = (case.NUM_AHEAD + case.NUM_TIMED - 1) % case.wrap_of(config), 0
    below, along = divmod(last, case.steps_along(config))
    num_panels = case.grid_of(config["pattern"]).num_panels
    for panel in (a, b):
        for row in range(rows):
            at = ((below * num_panels + panel) * rows + row) * pitch + first + along * row_bytes
            total += int(memory.window(at, row_bytes).view("<u4").sum(dtype=np.uint64))
    assert case.sums_of_last_tiles(config)[cta] == total % 2**32


def test_the_twin_waits_longer_for_memory_and_gains_by_stages() -> None:
    gpu = load_gpu("h200_sxm")
    near, far = (CASE.predict(case.by_tma("own_6", 4096, 2, source=source), gpu) for source in ("l2", "memory"))
    assert near["step_cycles"] < far["step_cycles"]
    assert CASE.predict(case.by_tma("own_6", 4096, 6), gpu)["step_cycles"] < far["step_cycles"]


def test_copies_are_those_of_a_step(built: Callable[[str, str], Cubin]) -> None:
    kernels = read_sass(built("cold_tiles", "sm_90a").path)
    assert len(kernels["tma"].select("UTMALDG")) in (2, 4)  # in the loop, and before it
    assert len(kernels["cp_async_2_128_64"].select("LDGSTS")) in (8, 16)
