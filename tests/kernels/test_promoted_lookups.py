"""Walks along rows whose requests take less than L2 fetches: which are asked for, what counts as an answer."""

from __future__ import annotations

import sys

import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import MappedTensor, load_case

CASE = load_case("promoted_lookups")
case = sys.modules[CASE.launch.__module__]
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]


def test_no_two_configs_are_alike_and_all_launch() -> None:
    assert len({tuple(sorted(config.items())) for config in CONFIGS}) == len(CONFIGS)
    for config in CONFIGS:
        launch = CASE.launch(config, False)
        assert case.NUM_STAGES * case.TILE_BYTES <= launch.smem_bytes <= 227 << 10


def test_walks_stay_within_their_rows_and_steps_within_a_stage() -> None:
    for config in CONFIGS:
        if config["kernel"].startswith("walk"):
            assert int(config["first_byte"]) + case.ACROSS_BYTES <= case.PITCH
            assert int(config["row_bytes"]) * case.ROWS <= case.TILE_BYTES
            assert case.ACROSS_BYTES % int(config["row_bytes"]) == 0 and int(config["ahead"]) in (0, 1, case.NUM_STAGES)


def test_a_box_is_what_a_step_takes_of_all_rows() -> None:
    config = case.walk("tma", "256", 64, 32, 4, 12)
    tensor = next(item for item in CASE.launch(config, False).arguments if isinstance(item, MappedTensor))
    assert tensor.tensor_map.box_dim == (32, 128) and tensor.tensor_map.global_dim == (2112, 11 * 128)


def test_sums_are_those_of_the_words_of_every_row() -> None:
    held, pitch = case.words(), case.PITCH // 4
    first = sum(int(held[(row * pitch + 8 + word) % case.NUM_WORDS]) for row in range(128) for word in range(1024))
    assert case.sums(32, 1) == (first % 2**32,)


def test_promoted_sectors_are_told_from_those_that_were_asked_for() -> None:
    names = case.METRICS[1:10]
    # 100 sectors asked for, 60 found; 40 missed and as many more promoted; half of the 80 cross and miss, 5 others hit
    row = dict(zip(names, map(str, (145, 65, 120, 40, 100, 100, 80, 40, 40)), strict=True))
    found = CASE.derive(row)
    assert found["others_sectors"] == 5
    assert found["hit_pct_without_promoted"] == pytest.approx(100 * 65 / 145)
    assert found["hit_pct_of_all_misses"] == pytest.approx(100 * (1 - 120 / 145))


def test_what_others_look_up_comes_back() -> None:
    """1,000 look-ups and 1,500 hits a launch, and two look-ups of each SM at each slice."""
    places = case.NUM_CTAS * load_gpu("h200_sxm").l2.num_slices
    names = case.METRICS[1:10]

    def row(config: dict[str, str], others: int, hits: int) -> dict[str, str]:
        # SMs ask for 100 sectors, 40 cross and 10 of these miss, 60 of the SMs' do
        numbers = (140 + others, hits, 70, 0, 100, 100, 60, 40, 10)
        return {**config, **dict(zip(names, map(str, numbers), strict=True))}

    spins = [row({**case.Config("spin", cycles=cycles), "group": "others"}, 1000 + cycles, 70 + 1500) for cycles in (0, 50)]
    walks = [row({**case.walk("tma", "128", 64, 0), "group": "own"}, 1000 + 2 * places, 9000)]
    found = {item.parameter: item.value for item in CASE.fitted([*spins, *walks], load_gpu("h200_sxm"))}
    assert found == {
        "l2.launch_lookup_sectors": 1000.0, "l2.launch_hit_sectors": 1500.0, "l2.slice_lookup_sectors": 2.0,
    }  # fmt: skip
    assert CASE.fitted([], load_gpu("h200_sxm")) == []
