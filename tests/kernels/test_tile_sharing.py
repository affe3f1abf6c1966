"""Tiles that SMs share: who walks what, what counts as an answer, what the simulator says."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import Input, MappedTensor, load_case

CASE = load_case("tile_sharing")
case = sys.modules[CASE.launch.__module__]
GPU = load_gpu("h200_sxm")
CONFIGS = {group: CASE.configs(group, 1) for group in CASE.groups}
ALL = [config for configs in CONFIGS.values() for config in configs]


@pytest.fixture(autouse=True)
def _small_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test needs the words of the tensor, whose sums are reckoned."""
    words = np.broadcast_to(np.zeros(1, dtype=np.uint32), (case.TENSOR_BYTES // 4,))
    monkeypatch.setattr(case, "tensor", lambda: words)


def test_every_walk_stays_within_the_tensor_and_all_of_them_within_what_l2_holds() -> None:
    for config in ALL:
        pitch, steps = int(config["pitch_bytes"]), case.num_steps(config)
        height, touched = case.TENSOR_BYTES // pitch, set()
        for walk in case.walks(config).values():
            for operand, panel in (("a", walk.panel_a), ("b", walk.panel_b)):
                rows = int(config[f"{operand}_rows"]) * (int(config["a_boxes"]) if operand == "a" else 1)
                if rows:
                    row, column = case.corner(config, operand, panel)
                    assert row + rows * (steps if pitch == 128 else 1) <= height
                    assert 2 * column + 128 * (1 if pitch == 128 else steps) <= pitch
                    touched.add((operand, row, column, rows * steps * 128))
        assert sum(num_bytes for *_, num_bytes in touched) <= 20 << 20
        assert len({(row, column) for _, row, column, _ in touched}) == len(touched)


def test_groups_hold_every_live_sm_once_and_lie_where_the_pattern_says() -> None:
    gpc_of = GPU.floorplan.gpc_of_sm
    for config in ALL:
        if config["sharers"] == "0":
            assert sorted(case.walks(config)) == list(range(132))
            continue
        groups = case.groups_of(config)
        sms = sorted(sm for group in groups for sm in group)
        assert sms == [sm for sm in range(132) if gpc_of[sm] < int(config["gpcs"])]
        for group in groups:
            spans = {gpc_of[sm] for sm in group}
            if config["pattern"] in ("near", "apart", "own"):
                assert len(spans) == 1
            elif len(group) <= 8 and config["pattern"] == "far" and group[-1] < 112:
                assert len(spans) == min(len(group), int(config["gpcs"]))
            if config["pattern"] == "apart" and len(group) == 2 and group[0] % 2 == group[1] % 2:
                assert group[0] // 2 != group[1] // 2


def test_stages_fit_and_the_plan_has_a_word_for_each_field() -> None:
    for config in ALL:
        launch = CASE.launch(config, False)
        assert 114 * 1024 < launch.smem_bytes <= 226 * 1024  # one CTA an SM, with room for the barriers
        plan = np.frombuffer(launch.arguments[0].tobytes(), dtype="<u4")
        assert len(plan) == 14 and plan[0] == len(case.walks(config)) and plan[1] == int(config["stages"])
        assert not any(isinstance(item, Input) for item in launch.arguments)
        maps = [item.tensor_map for item in launch.arguments if isinstance(item, MappedTensor)]
        num_b = maps[1].box.num_bytes if config["b_rows"] != "0" else 0
        assert maps[0].box.num_bytes * int(config["a_boxes"]) + num_b == case.stage_bytes(config)


def answer(config: dict[str, str]) -> dict[str, np.ndarray]:
    told = np.full((case.MOST_PLACES, 4), -1, dtype="<i8")
    for place, walk in case.walks(config).items():
        sm = case._order()[place] if case.is_by_cta(config) else place
        told[place] = sm, case.sum_of_last_stages(config, walk), case.NUM_TIMED * 100, 0
    return {"flags": np.zeros(case.FLAG_WORDS, dtype="<u4"), "told": told}


def test_the_sum_of_the_last_stages_is_that_of_the_words_that_tma_brings() -> None:
    config = case.Config(a_rows=64, stages=2, turn=1)
    walk = case.walks(config)[3]
    row, column = case.corner(config, "a", walk.panel_a)
    total = 0
    for number in (case.num_all_steps(config) - 2, case.num_all_steps(config) - 1):
        step = (number + walk.panel_a) % case.num_steps(config)
        for line in range(row, row + 64):
            first = line * 1024 + column // 2 + step * 32
            total += sum(idx * 0x9E3779B1 + 0x7F4A7C15 & 0xFFFFFFFF for idx in range(first, first + 32))
    assert case.sum_of_last_stages(config, walk) == total % 2**32


def test_neighbours_that_share_get_more_than_sms_with_tiles_of_their_own() -> None:
    own, near = (
        CASE.predict(case.Config(**kind, stages=3), GPU) for kind in ({}, {"pattern": "near", "sharers": 4})
    )
    assert near["bytes_per_cycle"] > 1.3 * own["bytes_per_cycle"]
    assert near[case.READ] < 0.5 * own[case.READ]


def test_another_number_of_sms_gets_no_answer() -> None:
    assert CASE.predict(case.Config(), load_gpu("a100_sxm_40gb")) == {}


def test_by_how_much_a_side_leads_is_found_again() -> None:
    full = next(
        config for config in CASE.configs("own", 1)
        if config["a_rows"] == "256" and config["stages"] == "4" and config["math_cycles"] == "0"
    )  # fmt: skip
    cycles = {f"gpc_{gpc}_cycles": str(1000.0 / (1.1 if gpc in (1, 4, 5, 6) else 0.9)) for gpc in range(8)}
    [found] = CASE.fitted([{**full, "group": "own", **cycles}], GPU)
    assert found.parameter == "l2.partition0_lead_fraction"
    assert found.value == pytest.approx(0.1)
