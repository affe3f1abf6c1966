"""tile_pitch: walks stay inside, sums are those of the words that come, the twin answers."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import Config, MappedTensor, load_case

CASE = load_case("tile_pitch")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
GPU = load_gpu("h200_sxm")
CONFIGS = {group: CASE.configs(group, 1) for group in CASE.groups}
ALL = [config for configs in CONFIGS.values() for config in configs]


@pytest.fixture(autouse=True)
def _small_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test needs the words of the tensor, whose sums are reckoned."""
    words = np.broadcast_to(np.zeros(1, dtype=np.uint32), (case.TENSOR_BYTES // 4,))
    monkeypatch.setattr(case, "tensor", lambda: words)


def test_configs_are_the_same_every_time_and_each_pitch_is_in_both_halves() -> None:
    assert {group: len(configs) for group, configs in CONFIGS.items()} == {"alone": 88, "own": 68, "shared": 84, "cold": 42}
    for group, configs in CONFIGS.items():
        assert CASE.configs(group, 7) == configs
        for kernel in ("tma", "cp_async_4"):
            halves = [{config["pitch_bytes"] for config in configs[at::2] if config["kernel"] == kernel} for at in (0, 1)]
            assert halves[0] == halves[1]


def test_every_walk_stays_within_the_tensor_and_those_of_l2_within_what_it_holds() -> None:
    for config in ALL:
        pitch = int(config["pitch_bytes"])
        assert case.num_panels(typed(config)) * case.panel_rows(typed(config)) * pitch <= case.TENSOR_BYTES
        assert int(config["shift_bytes"]) + case.num_columns(typed(config)) * int(config["row_bytes"]) <= pitch
        touched = case.num_panels(typed(config)) * case.num_steps(typed(config)) * typed(config).tile_bytes
        assert typed(config).is_warm or touched > 100 << 20
        if typed(config).is_warm:
            assert touched <= 20 << 20
        assert case.num_smem_bytes(typed(config)) <= 224 * 1024


def test_the_plan_has_a_word_for_each_field_and_the_box_is_the_tile() -> None:
    for config in ALL:
        launch = CASE.launch(config, False)
        plan = np.frombuffer(launch.arguments[0].tobytes(), dtype="<u4")
        assert len(plan) == 14 and plan[0] == len(case.walks(typed(config)))
        maps = [item.tensor_map for item in launch.arguments if isinstance(item, MappedTensor)]
        assert bool(maps) == (config["kernel"] == "tma")
        assert all(item.box.num_bytes == typed(config).tile_bytes for item in maps)


def answer(config: Config) -> dict[str, np.ndarray]:
    told = np.full((case.MOST_PLACES, 4), -1, dtype="<i8")
    for sm, walk in case.walks(typed(config)).items():
        told[sm] = sm, case.sum_of_last_stages(typed(config), walk), case.lead_timed_behind(typed(config))[1] * 100, 0
    return {"flags": np.zeros(case.FLAG_WORDS, dtype="<u4"), "told": told}


def test_the_sum_of_the_last_stages_is_that_of_the_words_that_are_copied() -> None:
    config = case.Row("tma", rows=64, pitch_bytes=4112, shift_bytes=16)
    walk, total = case.walks(typed(config))[2], 0
    steps, last = case.num_steps(typed(config)), case.num_all_steps(typed(config))
    for number in range(last - 4, last):
        for row in range(walk.panel * 64, walk.panel * 64 + 64):
            first = (row * 4112 + 16 + number % steps * 128) // 4
            total += sum(idx * 0x9E3779B1 + 0x7F4A7C15 & 0xFFFFFFFF for idx in range(first, first + 32))
    assert case.sum_of_last_stages(typed(config), walk) == total % 2**32


@pytest.mark.parametrize("kernel", ["tma", "cp_async_4"])
def test_the_twin_of_an_aligned_tile_reads_what_it_asks_for(kernel: str) -> None:
    config = case.Row(kernel, num_live=1)
    found = CASE.predict(config, GPU)
    assert found["lts__t_sectors_srcunit_tex_op_read.sum"] == case.num_all_steps(typed(config)) * config.tile_bytes / 32
