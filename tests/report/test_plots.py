from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpusim.errors import GpusimError
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.machine.config import load_gpu
from gpusim.report import plots
from gpusim.report.plots.timeline import LOADS, LOOKS, OWN_MMA, STORES, ctas_shown, in_flight, lanes_of, plot_timeline
from gpusim.report.plots.window import ROUNDS_SHOWN, Window, of_sm, opening_window, steady_window
from gpusim.simulate.result import Result
from gpusim.simulate.run import simulate
from gpusim.simulate.timeline import CopySpan, MemorySpan, RoleTimeline, Timeline, WarpState

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
    assert ctas_shown(stream_of(10), (0.0, 190.0)) == ([0, 1, 2, 3], 4)
    assert ctas_shown(stream_of(10), (0.0, 150.0)) == ([0, 1], 4)  # the others live half as long in the window


def test_a_picture_says_that_it_has_not_all_ctas(make_result: Callable[..., Result], tmp_path: Path) -> None:
    for num_ctas, is_said in ((10, True), (2, False)):
        path = tmp_path / f"{num_ctas}.svg"
        plot_timeline(make_result(timeline=stream_of(num_ctas)), path)
        assert ("of the" in path.read_text()) == is_said


# ---------------------------------------------------------------------------------------------- the window


H200 = load_gpu("h200_sxm")


@cache
def timeline_of(model: str, **options: Any) -> Timeline:
    """Of one SM of the H200."""
    launch = KERNEL_MODELS[model].params.model_validate(options).launch(H200)
    return of_sm(simulate(launch, H200, recorded_sms="first").timeline, None)


def inside(spans: Sequence[Any], window: Window) -> list[Any]:
    return [item for item in spans if item.start_cycle < window[1] and item.end_cycle > window[0]]


def life_of(timeline: Timeline) -> Window:
    return min(item.start_cycle for item in timeline.copies), max(role.states[-1][2] for role in timeline.roles)


@pytest.mark.parametrize("tile", ["128x128x64", "64x256x64"])
def test_a_window_of_pingpong_shows_both_consumers_at_work(tile: str) -> None:
    timeline = timeline_of("gemm", m=2048, n=2048, k=2048, tile=tile, stages=4, schedule="pingpong")
    window = steady_window(timeline)
    first, last = life_of(timeline)
    assert first < window[0] < window[1] < last
    assert window[1] - window[0] < (last - first) / 3
    assert {item.role for item in inside(timeline.mmas, window)} == {"consumer0", "consumer1"}
    lanes = {lane.label: lane for lane in lanes_of(timeline, window)}
    for role in ("consumer0", "consumer1"):
        assert inside(lanes[role].own_math, window)
        assert {bar.look for bar in inside(lanes[role].bars, window)} - {LOOKS[WarpState.WAIT_MBARRIER]}


def test_a_window_of_a_ring_is_a_few_of_its_rounds_in_the_middle() -> None:
    timeline = timeline_of("gemm", m=1024, n=1024, k=8192, tile="128x128x64", stages=4, schedule="cooperative")
    window = steady_window(timeline)
    first, last = life_of(timeline)
    assert first + 0.3 * (last - first) < sum(window) / 2 < first + 0.7 * (last - first)
    fills = inside([item for item in timeline.copies if (item.buffer, item.stage) == ("a", 0)], window)
    assert ROUNDS_SHOWN - 1 <= len(fills) <= ROUNDS_SHOWN + 1


def test_of_rings_of_unequal_use_the_quicker_one_sets_the_window() -> None:
    """As in attention: Q is filled once a tile, K many times; the ring of Q would fill the window with hundreds of bars."""
    copies, states = [], []
    for tile in range(20):
        copies.append(CopySpan(0, 0, "q", 0, "Q", 32000.0 * tile, 32000.0 * tile + 500.0, 1.0))
        copies += [
            CopySpan(0, 0, "k", step % 2, "K", 32000.0 * tile + 1000.0 * step, 32000.0 * tile + 1000.0 * step + 500.0, 1.0)
            for step in range(32)
        ]
        states.append((WarpState.WAIT_MBARRIER, 32000.0 * tile, 32000.0 * (tile + 1)))
    role = RoleTimeline(role="all", cta_idx=0, sm_idx=0, num_warps=4, states=states)
    timeline = Timeline(roles=[role], copies=copies)
    start, end = steady_window(timeline)
    assert end - start == ROUNDS_SHOWN * 2000.0
    assert opening_window(timeline)[1] == 9500.0
    assert len(inside(copies, (start, end))) <= 2 * ROUNDS_SHOWN + 3


@pytest.mark.parametrize(("model", "options"), [
    ("softmax", {"rows": 4096, "columns": 32000, "per": "block", "threads": 800, "dtype": "bf16"}),
    ("elementwise", {"op": "copy", "elements": 1 << 24}), ("layer_norm", {"rows": 4096, "columns": 4096}),
    ("transpose", {"m": 2048, "n": 2048}),
])  # fmt: skip
def test_kernels_without_a_ring_show_their_bytes_and_some_lives(model: str, options: dict[str, Any]) -> None:
    timeline = timeline_of(model, **options)
    window = steady_window(timeline)
    lanes = lanes_of(timeline, window)
    for look in (LOADS, STORES):
        bars = [bar for lane in lanes for bar in inside(lane.bars, window) if bar.look is look]
        assert sum(min(bar.end_cycle, window[1]) - max(bar.start_cycle, window[0]) for bar in bars) > 0.0
        assert max(num_bytes for _, num_bytes in in_flight(timeline, look, window)) > 0.0
    busy = sum(
        min(bar.end_cycle, window[1]) - max(bar.start_cycle, window[0])
        for lane in lanes for bar in inside(lane.bars, window) if bar.look in LOOKS.values()
    )  # fmt: skip
    assert busy > 0.5 * (window[1] - window[0])  # of several lanes: no slivers on white
    ctas, _ = ctas_shown(timeline, window)
    lives = [role.states for role in timeline.roles if role.cta_idx in ctas]
    assert any(window[0] <= states[0][1] and states[-1][2] <= window[1] for states in lives)


def test_loads_and_stores_in_flight_are_all_bytes_of_the_kernel() -> None:
    """Of 132 SMs the recorded one moves its part of 2^24 floats, and what it loads is there before it waits no more."""
    timeline = timeline_of("elementwise", op="copy", elements=1 << 24)
    for is_store in (False, True):
        moved = sum(item.num_bytes for item in timeline.memory if item.is_store is is_store)
        assert moved == pytest.approx(4 * (1 << 24) / 132, rel=0.05)
    waits = {
        role.cta_idx: max(end for state, _, end in role.states if state is WarpState.LONG_SCOREBOARD)
        for role in timeline.roles
    }
    assert all(0.0 < item.start_cycle < item.end_cycle for item in timeline.memory)
    assert all(item.end_cycle <= waits[item.cta_idx] for item in timeline.memory if not item.is_store)


def test_bytes_in_flight_rise_and_fall_with_their_spans() -> None:
    spans = [MemorySpan(0, 0, "all", False, start, start + 100.0, 512.0) for start in (0.0, 50.0, 200.0)]
    timeline = Timeline(memory=[*spans, MemorySpan(0, 0, "all", True, 0.0, 300.0, 64.0)])
    assert in_flight(timeline, LOADS, (25.0, 250.0)) == [
        (25.0, 512.0), (50.0, 1024.0), (100.0, 512.0), (150.0, 0.0), (200.0, 512.0), (250.0, 512.0),
    ]  # fmt: skip
    assert in_flight(timeline, STORES, (25.0, 250.0)) == [(25.0, 64.0), (250.0, 64.0)]


def test_a_consumer_has_its_math_below_its_states(result: Result) -> None:
    lanes = {lane.label: lane for lane in lanes_of(result.timeline, (0.0, 1e9))}
    spans = [(item.start_cycle, item.end_cycle) for item in result.timeline.mmas]
    assert [(bar.start_cycle, bar.end_cycle) for bar in lanes["consumer0"].own_math] == spans
    assert not lanes["producer"].own_math
    assert OWN_MMA.label in plot_timeline(result).svg


def test_a_short_run_is_shown_from_start_to_end(result: Result) -> None:
    start, end = steady_window(stream_of(2))
    assert (start, end) == (0.0, 100.0)
    assert steady_window(result.timeline)[1] <= result.cycles


def test_a_shuffle_is_not_called_a_load() -> None:
    assert "shuffle" in LOOKS[WarpState.SHORT_SCOREBOARD].label


def test_a_window_that_begins_behind_the_end_is_refused(result: Result) -> None:
    with pytest.raises(GpusimError, match=r"begins at cycle 900,000, and nothing happens after \d"):
        plot_timeline(result, window=(900000.0, 900001.0))


def test_every_plot_can_be_imported_from_the_folder() -> None:
    folder = Path(plots.__file__).parent
    public = re.compile(r"^def (plot_\w+)", re.MULTILINE)
    defined = {name: path.stem for path in folder.glob("*.py") for name in public.findall(path.read_text())}
    assert defined == plots.MODULES
    assert all(callable(getattr(plots, name)) for name in defined)
    with pytest.raises(ImportError, match="plot_nothing"):
        from gpusim.report.plots import plot_nothing  # noqa: F401
