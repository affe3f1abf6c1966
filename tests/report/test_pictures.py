"""What is drawn are the right numbers, in both formats, readable in grey."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from io import BytesIO
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pandas as pd
import pytest

from gpusim.analysis.explain import Counterfactual, Explanation
from gpusim.analysis.sweep import Sweep, SweepSettings, run_sweep
from gpusim.errors import GpusimError, LaunchError, LayoutError
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.kernel_models.gemm import GemmParams
from gpusim.layout import Layout, Swizzle
from gpusim.machine.config import load_gpu
from gpusim.report.plots import banks as plots_banks
from gpusim.report.plots import measured as plots_measured
from gpusim.report.plots import occupancy as plots_occupancy
from gpusim.report.plots import ring as plots_ring
from gpusim.report.plots import roofline as plots_roofline
from gpusim.report.plots import sweep as plots_sweep
from gpusim.report.plots import threads as plots_threads
from gpusim.report.plots import timeline as plots
from gpusim.report.plots import waterfall as plots_waterfall
from gpusim.report.plots.banks import plot_banks
from gpusim.report.plots.figure import SETTINGS, SMALLEST_PT, luminance, settings
from gpusim.report.plots.layouts import plot_layout
from gpusim.report.plots.measured import plot_measured
from gpusim.report.plots.occupancy import held_with, plot_occupancy
from gpusim.report.plots.picture import LARGE_SVG_BYTES, Picture, check_plot
from gpusim.report.plots.raster import plot_raster
from gpusim.report.plots.ring import Fill, StageState, plot_stage_ring, rings_of, spells
from gpusim.report.plots.roofline import ceilings, l2_gb_per_s, names_of, plot_roofline
from gpusim.report.plots.sweep import plot_sweep
from gpusim.report.plots.threads import plot_thread_values
from gpusim.report.plots.timeline import plot_timeline
from gpusim.report.plots.waterfall import plot_waterfall
from gpusim.report.tile_orders import Raster
from gpusim.simulate.constants import Shared
from gpusim.simulate.plan import check
from gpusim.simulate.result import Result
from gpusim.simulate.run import simulate
from gpusim.simulate.timeline import Timeline
from gpusim.units import Clock
from gpusim.workload.atoms import copy_atom, mma_sync
from gpusim.workload.dtypes import BF16, FP32
from gpusim.workload.launch import Launch
from gpusim.workload.smem.bank_conflict_fixes import study
from gpusim.workload.smem.tile_access import TileAccess, smem_tile

MAGIC = {".png": b"\x89PNG", ".svg": b"<?xml"}
H200, TOY = load_gpu("h200_sxm"), load_gpu("toy")
TILED = {"m": 128, "n": 128, "k": 512, "tile": (64, 64, 64), "stages": 3}


@cache
def launch(**options: Any) -> Launch:
    return GemmParams(**{**TILED, **options}).launch(TOY)


@cache
def simulated(**options: Any) -> Result:
    """A small GEMM on the toy GPU, iteration by iteration."""
    return simulate(launch(**options), TOY, recorded_sms="first")


CP_ASYNC = {"math": "mma_sync", "copy": "cp_async", "schedule": "multistage"}


@cache
def explanation() -> Explanation:
    def item(name: str, share: float, **changes: Any) -> Counterfactual:
        fields: dict[str, Any] = {
            "name": name, "title": f"no {name}", "cycles": 10000.0 * (1 - share), "saved_cycles": 10000.0 * share,
            "share": share, "is_simulated": True,
        }
        return Counterfactual(**{**fields, **changes})

    found = (item("latency", 0.5), item("hbm", 0.25), item("l2", 0.001))
    return Explanation(
        result=replace(simulated(), cycles=10000.0), counterfactuals=found, remarks=(), wall_s=0.1,
        together_cycles=4000.0,
    )


FRAME = pd.DataFrame({"stages": [3, 1, 2], "measured": [40.0, 100.0, 60.0], "predicted": [42.0, 90.0, 60.0]})

DRAWN: dict[str, Callable[..., Picture]] = {
    "timeline": lambda *path: plot_timeline(simulated(), *path),
    "ring": lambda *path: plot_stage_ring(simulated(), *path),
    "roofline": lambda *path: plot_roofline(simulated(), TOY, *path),
    "waterfall": lambda *path: plot_waterfall(explanation(), *path),
    "occupancy": lambda *path: plot_occupancy(launch(), TOY, *path),
    "threads": lambda *path: plot_thread_values(mma_sync(BF16).tv.c, (16, 8), *path),
    "measured": lambda *path: plot_measured(FRAME, *path, x="stages", y="time_us"),
    "raster": lambda *path: plot_raster(Raster(launch(), TOY), 0, *path),
    "layout": lambda *path: plot_layout(Layout((4, 8)), *path),
    "sweep": lambda *path: plot_sweep(swept(), *path),
    "banks": lambda *path: plot_banks(
        study(TileAccess(op="ldmatrix_x4", tile=smem_tile(Layout((64, 64), (64, 1)), BF16))), *path
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_there_in_both_formats_and_says_what_it_shows(name: str, tmp_path: Path) -> None:
    picture = DRAWN[name]()
    assert picture.png.startswith(MAGIC[".png"])
    assert picture.svg.lstrip().startswith(("<?xml", "<svg"))
    assert 'role="img" aria-label=' in picture.svg
    assert any(letter.isdigit() for letter in picture.alt)
    assert picture.alt.endswith(".")
    picture.save(tmp_path / "x.svg")
    assert (tmp_path / "x.svg").read_text() == picture.svg == DRAWN[name](tmp_path / "y.svg").svg
    sizes = [float(size) for size in re.findall(r"font(?:-size)?: (?:bold |italic |oblique )?([\d.]+)px", picture.svg)]
    assert min(sizes, default=SMALLEST_PT) >= SMALLEST_PT


@pytest.mark.parametrize("name", DRAWN)
def test_a_bad_path_is_refused_and_nothing_written(name: str, tmp_path: Path) -> None:
    with pytest.raises(GpusimError, match=r"ends in '\.pdf', wants a name that ends in \.png or \.svg"):
        DRAWN[name](tmp_path / "x.pdf")
    assert not list(tmp_path.iterdir())


def test_a_path_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(GpusimError, match="is no directory; make it first"):
        check_plot(tmp_path / "no" / "x.png")
    check_plot(None)


def test_a_notebook_is_given_one_format() -> None:
    made: list[str] = []

    def render(kind: str) -> bytes:
        made.append(kind)
        return b"<svg></svg>" if kind == "svg" else b"png"

    picture = Picture("A <b> & c.", render)
    assert picture._repr_mimebundle_() == {
        "image/svg+xml": '<svg role="img" aria-label="A &lt;b&gt; &amp; c."></svg>', "text/plain": "A <b> & c.",
    }  # fmt: skip
    assert made == ["svg"]
    large = Picture("large.", lambda kind: b"<svg>" + b" " * LARGE_SVG_BYTES if kind == "svg" else b"png")
    assert large._repr_mimebundle_() == {"image/png": b"png", "text/plain": "large."}


def test_one_thread_draws_at_a_time_and_leaves_matplotlibs_settings_as_they_are() -> None:
    import matplotlib as mpl

    entered = Event()

    def draw() -> None:
        with settings():
            entered.set()

    other = Thread(target=draw)
    with mpl.rc_context({"font.size": 23.0}):
        with settings(), settings():  # a drawing renders
            assert mpl.rcParams["font.size"] == SETTINGS["font.size"]
            other.start()
            assert not entered.wait(0.1)
        other.join()
        assert entered.is_set()
        assert mpl.rcParams["font.size"] == 23.0


@pytest.mark.parametrize("looks", [plots.LOOKS, plots_ring.LOOKS])
def test_what_is_alike_in_grey_is_hatched_otherwise(looks: dict[Any, plots.Look]) -> None:
    for one, other in itertools.combinations(looks.values(), 2):
        assert one.hatch != other.hatch or abs(luminance(one.colour) - luminance(other.colour)) >= 0.1, (one, other)


# ---------------------------------------------------------------------------------------------- the ring


def test_the_states_of_a_stage_follow_from_its_copies_and_reads(result: Result) -> None:
    """By hand: the first copies are issued at 1008 and land at 1708; the consumer wakes 20 later, its math takes 256."""
    (ring,) = rings_of(result.timeline, 0)
    assert (ring.buffers, ring.barrier, ring.num_stages, ring.freed) == (("A", "B"), "full", 3, [])
    assert ring.fills[0][0] == Fill(1008.0, 1708.0, 1728.0, 1984.0, 0)
    assert [fill.parity for fill in ring.fills[0]] == [0, 1, 0, 1]
    told = [(item.state, item.start_cycle, item.end_cycle, item.parity) for item in spells(ring.fills[0], (1000.0, 2100.0))]
    assert told[:4] == [
        (StageState.EMPTY, 1000.0, 1008.0, None), (StageState.FILLING, 1008.0, 1708.0, None),
        (StageState.FULL, 1708.0, 1728.0, None), (StageState.READ, 1728.0, 1984.0, 0),
    ]  # fmt: skip
    assert told[-1][2] == 2100.0


@pytest.mark.parametrize("options", [{}, CP_ASYNC], ids=["tma", "cp.async"])
def test_of_a_simulated_ring_every_k_step_is_one_fill_that_is_read_when_full(options: dict[str, Any]) -> None:
    timeline = simulated(**options).timeline
    (ring,) = [ring for ring in rings_of(timeline, min(item.cta_idx for item in timeline.copies)) if ring.num_stages > 1]
    assert ring.num_stages == 3
    assert sum(len(fills) for fills in ring.fills.values()) == 512 // 64
    for fills in ring.fills.values():
        for fill, after in zip(fills, [*fills[1:], None], strict=True):
            assert fill.full_cycle is not None and fill.read_cycle is not None and fill.end_cycle is not None
            assert fill.start_cycle < fill.full_cycle <= fill.read_cycle < fill.end_cycle
            assert after is None or fill.end_cycle <= after.start_cycle
        told = spells(fills, (0.0, 50000.0))
        assert all(one.end_cycle == other.start_cycle for one, other in itertools.pairwise(told))
        parities = [fill.parity for fill in fills]
        assert parities == ([None] * len(fills) if options else [idx % 2 for idx in range(len(fills))])
    if not options:  # the consumer gives each stage back once a fill, after it has read it
        for stage, fills in ring.fills.items():
            freed = [item.cycle for item in ring.freed if item.stage == stage]
            assert all(cycle >= (fill.end_cycle or 0.0) for cycle, fill in zip(freed, fills, strict=False))
            assert freed


def test_of_several_mbarriers_the_one_that_gives_stages_back_is_marked() -> None:
    """Pingpong's turns are rings of two mbarriers, too, and nobody refills a stage for them."""
    params = GemmParams(m=256, n=256, k=1024, tile=(64, 128, 64), stages=2, schedule="pingpong")
    timeline = simulate(params.launch(H200), H200, recorded_sms="first").timeline
    assert {"full", "empty", "math_turn"} <= {item.barrier for item in timeline.flips}
    (ring,) = [ring for ring in rings_of(timeline, timeline.copies[0].cta_idx) if ring.num_stages > 1]
    assert {item.barrier for item in ring.freed} == {"empty"}


def test_a_ring_says_what_it_lacks(make_result: Callable[..., Result], result: Result) -> None:
    with pytest.raises(GpusimError, match="recorded_sms"):
        plot_stage_ring(make_result(timeline=Timeline()))
    with pytest.raises(GpusimError, match="no asynchronous copies"):
        plot_stage_ring(make_result(timeline=Timeline(roles=result.timeline.roles)))
    with pytest.raises(GpusimError, match="CTA 7 was not recorded; use one of 0"):
        plot_stage_ring(result, cta_idx=7)
    with pytest.raises(GpusimError, match="no copy goes to a buffer 'C'"):
        plot_stage_ring(result, buffer="C")
    with pytest.raises(GpusimError, match="wants a later end"):
        plot_stage_ring(result, window=(5.0, 5.0))
    assert "3 stages of A and B" in plot_stage_ring(result, buffer="A").alt


# ---------------------------------------------------------------------------------------------- the roofline


def points_of(figure: Any) -> list[tuple[float, float, bool]]:
    """(x, y, whether full) of each marker."""
    axes = figure.axes[0]
    return [
        (float(line.get_xdata()[0]), float(line.get_ydata()[0]), line.get_markerfacecolor() != "white")
        for line in axes.lines
        if line.get_marker() not in ("None", "", None)
    ]


def test_a_kernel_lies_where_its_counters_put_it(make_result: Callable[..., Result]) -> None:
    result = make_result(counters={
        "dram__bytes_read.sum": 6e6, "dram__bytes_write.sum": 2e6, "lts__t_sectors_srcunit_tex_op_read.sum": 1e6,
    }, tflops=40.0, time_us=20.0)  # fmt: skip
    placed = plots_roofline._placed([result], TOY, None)
    points = points_of(plots_roofline._draw(placed, TOY, 1000.0))
    assert points == [(pytest.approx(100.0), 40.0, True), (pytest.approx(25.0), 40.0, False)]
    hbm = TOY.hbm.sustained_read_gb_per_s
    assert placed[0].roof_tflops(hbm) == pytest.approx(min(100.0, 100.0 * hbm * 1e-3))


def test_the_names_of_ceilings_are_not_cut_off(make_result: Callable[..., Result]) -> None:
    from matplotlib.image import imread

    picture = plot_roofline([make_result(gpu="h200_sxm", tflops=700.0, sm_clock_mhz=1672.0)], H200)
    pixels = imread(BytesIO(picture.png))
    assert (pixels[:, -3:, :3] == 1.0).all()
    assert "FLOP per byte of memory and no byte of L2" in picture.alt  # nothing was read of it


def test_ceilings_are_rates_times_the_clock() -> None:
    found = ceilings(H200, 1000.0)
    assert found["FMA fp32"] == pytest.approx(2 * 128 * 132 * 1e-3)
    assert found["wgmma bf16, fp16"] == pytest.approx(H200.tensor_core.wgmma_flops_per_cycle["16bit"] * 132 * 1e-3)
    assert set(ceilings(H200, 1000.0, {"16bit"})) == {"wgmma bf16, fp16", "mma.sync bf16, fp16"}
    assert set(ceilings(H200, 1000.0, {"fp32"})) == {"FMA fp32"}


@pytest.mark.parametrize("mhz", [1000.0, 1590.0, 1980.0])
def test_the_roof_of_l2_is_what_the_engine_gives_its_slices(mhz: float) -> None:
    """L2 has a clock of its own: where power slows the SMs, its slices keep nearly all of their bytes a second."""
    per_cycle = Shared.of(H200, Clock(sm_mhz=mhz)).slices_bytes_per_cycle
    assert l2_gb_per_s(H200, mhz) == pytest.approx(per_cycle * mhz * 1e-3)
    at_most = H200.l2.num_slices * H200.l2.slice_bytes_per_cycle * H200.l2.sustained_fraction * H200.clock.max_mhz * 1e-3
    coupling = H200.clock.l2_clock_coupling_fraction
    assert l2_gb_per_s(H200, mhz) == pytest.approx(at_most * (mhz / H200.clock.max_mhz) ** coupling)


@cache
def placed_on_h200(model: str, **options: Any) -> tuple[plots_roofline.Placed, Result]:
    made = KERNEL_MODELS[model].params.model_validate(options).launch(H200)
    result = simulate(made, H200)
    return plots_roofline._placed([result], H200, None)[0], result


@pytest.mark.parametrize(("model", "options"), [
    ("gemm", {"m": 4096, "n": 4096, "k": 4096, "tile": "256x64x64", "stages": 5, "schedule": "pingpong"}),
    ("gemm", {"m": 4096, "n": 4096, "k": 4096, "tile": "128x128x64", "stages": 5, "schedule": "pingpong"}),
    ("gemm", {"m": 2048, "n": 2048, "k": 2048, "tile": "64x64x64", "stages": 5, "schedule": "multistage"}),
    ("layer_norm", {"rows": 4096, "columns": 4096}), ("reduction", {"rows": 2048, "columns": 4096}),
])  # fmt: skip
def test_no_kernel_lies_above_its_roofs(model: str, options: dict[str, Any]) -> None:
    item, result = placed_on_h200(model, **options)
    for intensity, gb_per_s in (
        (item.dram_flops_per_byte, H200.hbm.sustained_read_gb_per_s),
        (item.l2_flops_per_byte, l2_gb_per_s(H200, item.mhz)),
    ):
        assert item.tflops <= min(item.peak_tflops, intensity * gb_per_s * 1e-3)
    of_l2 = result.tflops / (item.l2_flops_per_byte * l2_gb_per_s(H200, item.mhz) * 1e-3)
    stored = result.counters["lts__t_sectors_srcunit_tex_op_write.sum"]
    read = result.counters["lts__t_sectors_srcunit_tex_op_read.sum"]
    assert of_l2 * read / (read + stored) == pytest.approx(result.busy["l2"], rel=0.04)  # as the table says it


def test_a_roofline_has_the_ceilings_of_the_kernels_type_a_ridge_and_a_name_at_the_point() -> None:
    for model, options, ceiling_names in (
        ("gemm", {"m": 1024, "n": 1024, "k": 1024, "dtype": "fp8"}, {"wgmma fp8", "mma.sync fp8"}),
        ("layer_norm", {"rows": 4096, "columns": 4096}, {"FMA fp32"}),
    ):
        item, result = placed_on_h200(model, **options)
        axes = plots_roofline._draw([item], H200, item.mhz).axes[0]
        words = [text.get_text() for text in axes.texts]
        assert {word.partition(":")[0] for word in words if word.startswith(("wgmma", "mma", "FMA"))} == ceiling_names
        assert f"{model}: {result.tflops:,.1f} TFLOP/s" in words
        peak_at = 1e3 * item.peak_tflops / H200.hbm.sustained_read_gb_per_s
        marks = [tuple(mark.get_offsets()[0]) for mark in axes.collections if len(mark.get_offsets()) == 1]
        assert any(mark == (pytest.approx(peak_at), pytest.approx(item.peak_tflops)) for mark in marks)
        assert any(word.startswith("ridge ") for word in words)


def test_what_has_no_place_on_a_roofline_is_refused(make_result: Callable[..., Result]) -> None:
    for results, names, words in (
        ([], None, "0 kernels, wants 1 to 8"), ([make_result()], ["a", "b"], "2 names of 1 kernels"),
        ([make_result(tflops=0.0)], None, "no arithmetic"), ([make_result(gpu="h200_sxm")], None, "simulated on h200_sxm"),
    ):  # fmt: skip
        with pytest.raises(GpusimError, match=words):
            plot_roofline(results, TOY, names=names)


def test_kernels_are_named_by_what_tells_them_apart(make_result: Callable[..., Result]) -> None:
    made = [make_result(params={"m": m, "k": 64}) for m in (128, 256, 256)]
    assert names_of(made) == ["gemm --m 128", "gemm --m 256 (1)", "gemm --m 256 (2)"]
    assert names_of(made[:1]) == ["gemm"]


# ---------------------------------------------------------------------------------------------- the waterfall


def test_each_saving_begins_at_the_whole_and_the_rest_remains() -> None:
    figure = plots_waterfall._draw(explanation())
    bars = [(round(bar.get_x()), round(bar.get_width())) for bar in figure.axes[0].patches]
    assert bars == [(0, 10000), (0, 5000), (5000, 5000), (0, 7500), (7500, 2500), (0, 9990), (0, 4000)]
    words = [text.get_text().strip() for text in figure.axes[0].texts]
    assert words[:2] == ["10,000 cycles", "-5,000 (50.0 %)"]
    assert any("saves nothing" in word for word in words)
    assert words[-1] == "4,000 remain (40.0 %)"
    assert "one by one save 7,510 cycles in all, at once 6,000" in plots_waterfall.overlap(explanation())


# ---------------------------------------------------------------------------------------------- occupancy


def test_bars_are_what_each_resource_admits() -> None:
    made = GemmParams(m=512, n=512, k=512).launch(H200)
    held = check(made, H200)
    axes = plots_occupancy._draw(made, H200, held).axes[0]
    words = [text.get_text().split()[0].strip(",") for text in axes.texts]
    assert words == [str(held.limits[name]) for name in ("registers", "smem", "threads", "warps", "ctas")]
    hatched = [bar.get_hatch() is not None for bar in axes.patches]
    assert hatched == [held.limits[name] == held.ctas_per_sm for name in ("registers", "smem", "threads", "warps", "ctas")]


def test_the_limit_steps_where_one_more_cta_fits() -> None:
    made = GemmParams(m=512, n=512, k=512).launch(H200)
    assert held_with(made, H200, smem_bytes=0)[1] == 228
    per_sm = [held_with(made, H200, registers_per_thread=number)[0] for number in range(16, 256)]
    assert per_sm == sorted(per_sm, reverse=True)
    assert per_sm[-1] == 0  # 255 registers of 384 threads are more than an SM has
    with pytest.raises(LaunchError):
        plot_occupancy(made, replace(H200, device=replace(H200.device, smem_per_sm_bytes=2048)))


# ---------------------------------------------------------------------------------------------- threads and values


def test_each_cell_says_who_holds_it() -> None:
    """PTX: of m16n8's accumulator lane i has row i / 4 (and 8 below), columns 2 (i % 4) and the next."""
    tv = mma_sync(BF16).tv.c
    figure = plots_threads._draw(tv, plots_threads.holders(tv, 128), (16, 8), "", is_row_major=False)
    cells = {tuple(int(place) for place in text.get_position()): text.get_text() for text in figure.axes[0].texts}
    assert len(cells) == 128
    for row, column in itertools.product(range(16), range(8)):
        assert cells[column, row] == f"T{row % 8 * 4 + column // 2}\nV{row // 8 * 2 + column % 2}"


def test_row_major_and_shared_elements_are_told() -> None:
    received = plot_thread_values(copy_atom("ldmatrix_x1").tv(BF16).dst, (8, 8), is_row_major=True)
    assert "the first row is T0 V0, T0 V1, T1 V0" in received.alt
    assert "4 threads hold each" in plot_thread_values(Layout((4, 2), (0, 1)), (2, 1)).svg
    assert "2 of 4 elements are held by none" in plot_thread_values(Layout((2, 1), (1, 1)), (2, 2)).svg
    with pytest.raises(LayoutError, match="use its tile"):
        plot_thread_values(mma_sync(BF16).tv.c, (8, 8))
    with pytest.raises(LayoutError, match="draw at most"):
        plot_thread_values(mma_sync(BF16).tv.c, (256, 256))


# ---------------------------------------------------------------------------------------------- measured


def test_points_are_measured_lines_predicted_and_errors_in_percent() -> None:
    series = plots_measured._series("", FRAME, "stages", None)
    figure = plots_measured._draw([series], None, x="stages", y="time_us", title="", log_x=False, log_y=False)
    above, below = figure.axes
    line, points = above.lines
    assert list(line.get_xdata()) == list(points.get_xdata()) == [1.0, 2.0, 3.0]
    assert (list(line.get_ydata()), list(points.get_ydata())) == ([90.0, 60.0, 42.0], [100.0, 60.0, 40.0])
    assert list(below.lines[0].get_ydata()) == pytest.approx([-10.0, 0.0, 5.0])
    assert (above.get_ylabel(), below.get_xlabel(), below.get_ylabel()) == ("time (us)", "stages", "error (%)")
    assert "predicted within 10.0 %, 5.0 % in the mean" in plot_measured(FRAME, x="stages", y="time_us").alt


def test_words_on_an_axis_have_no_lines_between_them() -> None:
    words = FRAME.assign(stages=["none", "32B", "128B"])
    series = plots_measured._series("", words, "stages", ["none", "32B", "128B"])
    figure = plots_measured._draw(
        [series], ["none", "32B", "128B"], x="stages", y="cycles", title="", log_x=False, log_y=False
    )
    assert figure.axes[0].lines[0].get_linestyle() == "None"
    assert [text.get_text() for text in figure.axes[1].get_xticklabels()] == ["none", "32B", "128B"]


@pytest.mark.parametrize(("frame", "options", "words"), [
    (FRAME.drop(columns=["measured", "predicted"]), {}, "wants stages, and measured, predicted or both"),
    (FRAME.assign(measured=float("nan"), predicted=float("nan")), {}, "nothing to draw"),
    (FRAME.assign(stages=["a", "b", "c"]), {"log_x": True}, "leave log_x out"),
    (FRAME.assign(measured=0.0), {"log_y": True}, "leave log_y out"),
    ({str(idx): FRAME for idx in range(9)}, {}, "at most 6 can be distinguished"),
])  # fmt: skip
def test_what_cannot_be_drawn_is_refused(frame: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(GpusimError, match=words):
        plot_measured(frame, x="stages", y="time_us", **options)


def test_values_that_have_nothing_between_them_are_not_joined() -> None:
    """Strides: 124 bytes take one wavefront, 256 take 32, and nothing grows from one to the other."""
    strides = [20, 28, 32, 36, 124, 256]
    frame = pd.DataFrame({"stride": [256, *strides[:-1]], "predicted": [32.0, 1.0, 1.0, 8.0, 1.0, 1.0]})
    words = plots_measured._words({"": frame}, "stride", is_joined=False)
    assert words == [str(stride) for stride in strides]
    series = plots_measured._series("", frame, "stride", words)
    axes = plots_measured._draw([series], words, x="stride", y="cost", title="", log_x=False, log_y=False).axes[0]
    assert axes.lines[0].get_linestyle() == "None"
    assert list(axes.lines[0].get_ydata()) == [1.0, 1.0, 8.0, 1.0, 1.0, 32.0]
    assert [text.get_text() for text in axes.get_xticklabels()] == words


@pytest.mark.parametrize("log_x", [False, True])
def test_labels_of_ticks_do_not_overlap(log_x: bool) -> None:
    places = [20.0, 28.0, 32.0, 36.0, 52.0, 64.0, 124.0, 252.0, 256.0]
    frame = pd.DataFrame({"stride": places, "predicted": places})
    series = plots_measured._series("", frame, "stride", None)
    figure = plots_measured._draw([series], None, x="stride", y="cost", title="", log_x=log_x, log_y=False)
    figure.draw_without_rendering()
    labels = [text for text in figure.axes[-1].get_xticklabels() if text.get_text()]
    boxes = [text.get_window_extent() for text in labels]
    assert (labels[0].get_text(), labels[-1].get_text()) == ("20", "256")
    assert all(before.x1 < after.x0 for before, after in itertools.pairwise(boxes))


# ---------------------------------------------------------------------------------------------- sweeps


@cache
def swept() -> Sweep:
    values = {"m": 256, "n": 256, "k": 256, "tile": "64x64x64", "stages": "2,3,4", "schedule": "multistage,warp_specialized"}
    return run_sweep("gemm", values, TOY, SweepSettings())


def test_a_sweep_tells_schedules_by_colour_and_mark() -> None:
    sweep = swept()
    assert plots_sweep.most_varied(sweep) == "stages"
    assert plots_sweep.grouped_by(sweep, "stages") == "schedule"
    assert plots_sweep.grouped_by(sweep, "schedule") == "stages"
    figure = plots_sweep._draw(sweep, "stages")
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    assert set(lines) == {"--schedule multistage", "--schedule warp_specialized"}
    assert len({(line.get_color(), line.get_marker()) for line in lines.values()}) == 2
    for label, line in lines.items():
        best: dict[int, float] = {}
        for entry in sweep.entries:
            if entry.result is not None and entry.choice.options["schedule"] == label.split()[1]:
                stages = int(entry.choice.options["stages"])
                best[stages] = min(entry.time_us, best.get(stages, entry.time_us))
        assert dict(zip(line.get_xdata(), line.get_ydata(), strict=True)) == best
    assert "the best of --schedule multistage takes" in plot_sweep(sweep).alt
    assert figure.axes[0].get_title(loc="left").startswith("gemm on toy: time of ")


def test_words_on_a_sweeps_axis_have_no_lines_between_them() -> None:
    figure = plots_sweep._draw(swept(), "schedule")
    assert {line.get_linestyle() for line in figure.axes[0].lines} == {"None"}


# ---------------------------------------------------------------------------------------------- banks


@pytest.mark.parametrize(("swizzle", "panels"), [
    (None, [32, 4]), (Swizzle(3, 4, 3), [32, 4]), (Swizzle(1, 4, 3), [32, 16, 4]), (Swizzle(2, 4, 3), [32, 8, 4]),
])  # fmt: skip
def test_banks_are_drawn_before_and_after_a_swizzle(swizzle: Swizzle | None, panels: list[int]) -> None:
    tile = smem_tile(Layout((64, 64), (64, 1)), BF16, swizzle)
    found = study(TileAccess(op="ldmatrix_x4", tile=tile))
    picture = plot_banks(found)
    counted = [int(number) for number in re.findall(r": (\d+) wavefronts?, 4 at best", picture.svg)]
    assert counted == panels
    assert ("without its swizzle 32" in picture.alt) == (swizzle is not None)


@pytest.mark.parametrize("stride", [33, 32])
def test_the_title_of_banks_lies_within_the_figure(stride: int) -> None:
    tile = smem_tile(Layout((32, 32), (1, stride)), FP32)
    found = study(TileAccess(op="ld_shared_b32", tile=tile))
    here = found.instructions[0]
    panels = [("as it is", here)] * (2 if stride == 32 else 1)
    figure = plots_banks._draw("ld_shared_b32", [panels])
    figure.draw_without_rendering()
    box = figure._suptitle.get_window_extent()
    assert 0.0 <= box.x0 < box.x1 <= figure.bbox.x1
