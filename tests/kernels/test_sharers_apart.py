"""CTAs that share tiles, step by step: who walks what, what counts as an answer, what the simulator says."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import MappedTensor, Repeated, WrongAnswer, load_case
from gpusim.evidence.cases.tile_walk import ADDEND, MULTIPLIER

CASE = load_case("sharers_apart")
case = sys.modules[CASE.launch.__module__]
GPU = load_gpu("h200_sxm")
CONFIGS = {group: CASE.configs(group, 1) for group in CASE.groups}
NS_PER_TICK, CYCLES_PER_NS = 32, 1.98


@pytest.fixture(autouse=True)
def _small_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test needs the words of the tensor, whose sums are reckoned."""
    words = np.broadcast_to(np.zeros(1, dtype=np.uint32), (case.TENSOR_BYTES // 4,))
    monkeypatch.setattr(case, "tensor", lambda: words)


def outputs_of(config: dict[str, str], step_cycles: float = 500.0, late_cycles: float = 0.0) -> dict[str, Any]:
    """What a grid says whose CTAs take so long a step, every second one so late, each by a clock of its own."""
    told, steps = np.full((256, 130), -1, dtype=np.int64), np.zeros((256, 2, 256), dtype=np.uint32)
    for number, (place, walk) in enumerate(case.walks(config).items()):
        zero = 10**9 * number
        told[place, :2] = place if not case.is_by_cta(config) else number, case.sum_of_last_stages(config, walk)
        for when, first_ns in enumerate((10_000, 400_000)):
            ns = 10**15 + first_ns + NS_PER_TICK * np.arange(32)
            told[place, 2 + 32 * when : 34 + 32 * when] = ns
            told[place, 66 + 32 * when : 98 + 32 * when] = zero + (ns - 10**15) * CYCLES_PER_NS
        full = zero + 40_000 + late_cycles * (number % 2) + step_cycles * np.arange(256)
        steps[place, 1], steps[place, 0] = (np.rint(full - ago).astype(np.int64) % 2**32 for ago in (0, 900))
    return {"flags": np.zeros(384, dtype=np.uint32), "told": told, "steps": steps}


@pytest.mark.parametrize("group", list(CONFIGS))
def test_every_walk_lies_in_its_tensor_and_what_stays_in_l2_is_no_more_than_fits(group: str) -> None:
    for config in CONFIGS[group][::7]:
        launch, rows = CASE.launch(config, False), case.num_rows(config)
        maps = [item for item in launch.arguments if isinstance(item, MappedTensor)]
        heights = rows if case.is_cold(config) else (sum(rows), sum(rows))
        for item, height in zip(maps, heights, strict=True):
            pitch = int(config["pitch_bytes"])
            assert item.tensor_map.global_dim == (pitch // 2, max(1, height))
            room = item.array.num_bytes if isinstance(item.array, Repeated) else case.TENSOR_BYTES
            assert height * pitch <= room
        assert launch.smem_bytes <= 224 << 10
        assert case.is_cold(config) or sum(rows) * case.ROW_BYTES * case.num_steps(config) <= case.MOST_TOUCHED_BYTES
        assert not case.is_cold(config) or case.num_all_steps(config) <= case.num_steps(config)


def test_a_stage_is_never_kept_for_a_next_one_that_has_no_room() -> None:
    assert all(config["stages"] != "1" or config["math_cycles"] == "0" for group in CONFIGS.values() for config in group)


def test_sums_of_boxes_are_those_of_their_words() -> None:
    pitch, rows = 2064, slice(100, 228)
    words = (np.arange(300 * pitch // 4, dtype=np.uint64) * MULTIPLIER + ADDEND) % 2**32
    box = words.astype("<u4").view(np.uint8).reshape(300, pitch)[rows, 640:768].copy().view("<u4")
    assert case.sum_of_box(pitch, 100, 128, 5) == int(box.astype(np.uint64).sum()) % 2**32


def test_clocks_are_laid_on_one_scale_and_pairs_are_as_far_apart_as_they_are() -> None:
    config = CONFIGS["late"][0]
    values = CASE.check(config, outputs_of(config, late_cycles=60.0))
    assert values["cycles_per_step"] == pytest.approx(500, abs=0.01)
    assert values["copy_cycles"] == pytest.approx(900, abs=1)
    assert values["apart_last_cycles"] == pytest.approx(60 / 2**0.5, abs=1)
    assert values["clock_error_cycles"] < 2


def test_only_the_tiles_own_words_count() -> None:
    config = CONFIGS["bands"][0]
    for change, said in (("words", "words"), ("flag", "given up"), ("sm", "one SM"), ("clock", "stood still")):
        wrong = outputs_of(config, step_cycles=0.0 if change == "clock" else 500.0)
        wrong["flags"][1] = change == "flag"
        wrong["told"][5, 1] += change == "words"
        wrong["told"][5, 0] = 4 if change == "sm" else 5
        with pytest.raises(WrongAnswer, match=said):
            CASE.check(config, wrong)


def test_parts_of_gpcs_are_those_that_stores_take_turns_by() -> None:
    parts = case.sms_by_part()
    assert sorted(sm for sms in parts.values() for sm in sms) == list(range(132))
    assert {34, 35, 78, 79} <= set(parts["small"])  # of the second GPC: its third TPC, and its sixth
    assert {GPU.floorplan.gpc_of_sm[sm] for sm in parts["even"]} == {6, 7}
