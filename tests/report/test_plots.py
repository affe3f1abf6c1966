from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpusim.errors import GpusimError
from gpusim.report.plots.timeline import LOOKS, ctas_shown, lanes_of, opening_window, plot_timeline
from gpusim.simulate.result import Result
from gpusim.simulate.timeline import RoleTimeline, Timeline, WarpState

MAGIC = {".png": b"\x89PNG", ".svg": b"<?xml"}


@pytest.mark.parametrize("suffix", MAGIC)
def test_a_picture_is_written_by_suffix(result: Result, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    plot_timeline(result, path)
    assert path.read_bytes().startswith(MAGIC[suffix])
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def test_another_suffix_is_refused_in_one_sentence(result: Result, tmp_path: Path) -> None:
    with pytest.raises(GpusimError, match=r"plot '.*x\.pdf' ends in '\.pdf', wants .* \.png or \.svg"):
        plot_timeline(result, tmp_path / "x.pdf")


def test_a_result_without_a_timeline_is_refused(make_result: Callable[..., Result], tmp_path: Path) -> None:
    with pytest.raises(GpusimError, match="recorded_sms"):
        plot_timeline(make_result(timeline=Timeline()), tmp_path / "x.png")


def test_an_empty_window_is_refused(result: Result, tmp_path: Path) -> None:
    with pytest.raises(GpusimError, match="wants a later end"):
        plot_timeline(result, tmp_path / "x.png", window=(100.0, 100.0))


def test_every_state_has_a_look_of_its_own() -> None:
    assert set(LOOKS) == set(WarpState)
    assert len({(look.colour, look.hatch) for look in LOOKS.values()}) == len(WarpState)


def test_the_opening_cuts_the_launch_gap(result: Result) -> None:
    start, end = opening_window(result.timeline)
    assert 850.0 < start <= 1000.0
    assert end <= result.cycles


def test_there_is_a_lane_for_each_stage_for_the_tensor_core_and_for_each_role(result: Result) -> None:
    labels = [lane.label for lane in lanes_of(result.timeline, (0.0, 1e9))]
    assert labels == ["A[0]", "A[1]", "A[2]", "B[0]", "B[1]", "B[2]", "tensor core", "producer", "consumer0"]


def stream_of(num_ctas: int) -> Timeline:
    """CTAs one after the other, two at once, that copy nothing asynchronously."""
    lives = [(WarpState.LSU, 100.0 * (idx // 2), 100.0 * (idx // 2 + 1)) for idx in range(num_ctas)]
    return Timeline(
        roles=[RoleTimeline(sm_idx=0, cta_idx=idx, role="all", num_warps=8, states=[life]) for idx, life in enumerate(lives)]
    )


def test_of_a_stream_the_first_ctas_and_some_of_half_way_are_shown() -> None:
    assert ctas_shown(stream_of(2), (0.0, 1e9)) == ([0, 1], 2)
    assert ctas_shown(stream_of(10), (0.0, 1e9)) == ([0, 1, 5, 6], 10)
    assert ctas_shown(stream_of(10), (0.0, 150.0)) == ([0, 1, 2, 3], 4)


def test_a_picture_says_that_it_has_not_all_ctas(make_result: Callable[..., Result], tmp_path: Path) -> None:
    for num_ctas, is_said in ((10, True), (2, False)):
        path = tmp_path / f"{num_ctas}.svg"
        plot_timeline(make_result(timeline=stream_of(num_ctas)), path)
        assert ("of the" in path.read_text()) == is_said
