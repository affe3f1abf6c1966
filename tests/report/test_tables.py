from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from gpusim.errors import ConfigError
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.report.number_format import number
from gpusim.report.parameters import meaning_of
from gpusim.report.predictions import Options, render_prediction
from gpusim.report.tables import compare_gpus, render_gpu, render_gpu_comparison, render_gpus_list, render_meanings
from gpusim.simulate.result import Result
from gpusim.simulate.summary import one_after_the_other
from gpusim.simulate.timeline import NOT_KNOWN, WarpState

OPTIONS = {"m": 256, "tile": "128x256x64", "out_dtype": "bf16", "bias": False, "persistent": True}
SHOWN = Options(values=OPTIONS, defaults={"out_dtype", "bias"})


def shown(render: Callable[[Console], None], width: int = 120) -> str:
    stream = io.StringIO()
    render(Console(file=stream, width=width, color_system=None))
    return stream.getvalue()


def prediction(result: Result, width: int = 120) -> str:
    return shown(lambda console: render_prediction(result, console, SHOWN), width)


def test_a_prediction_begins_with_the_verdict_and_ends_with_the_next_command(result: Result) -> None:
    verdict, *_, following = prediction(result, width=200).splitlines()
    assert verdict.startswith("Verdict: gemm on toy takes 20 us")
    assert "bound by latency" in verdict
    assert following == "Next: gpusim explain gemm --m 256 --tile 128x256x64 --persistent --gpu toy"


def test_what_memory_holds_up_more_is_told_by_its_rate(make_result: Callable[..., Result]) -> None:
    """1,048,576 bytes in 20 us are 52.4 GB/s."""
    result = make_result(peak_memory_gb_per_s=100.0, bound_by="hbm", reason="HBM is busy")
    assert result.memory_gb_per_s == pytest.approx(52.4288) and result.pct_of_peak_memory == pytest.approx(52.4288)
    assert "at 52 GB/s of memory (52.4 % of its peak)" in prediction(result, width=200)
    less = make_result(peak_memory_gb_per_s=200.0)
    assert "at 50.0 TFLOP/s (50.0 % of peak at this clock)" in prediction(less, width=200)


def test_power_above_the_limit_says_why(make_result: Callable[..., Result]) -> None:
    text = prediction(make_result(power_w=900.0), width=300)
    assert "900 W while it runs: one launch is over before the board comes down to its limit of 700 W" in text
    assert "comes down" not in prediction(make_result(power_w=900.0, clock_mode="sustained"), width=300)


def test_the_clock_and_how_it_was_chosen_stand_beside_the_time(result: Result) -> None:
    text = prediction(result)
    assert "1,000 MHz, predicted for one launch, over before the power limit bites fully" in text
    assert "50.0 % of 100.0 TFLOP/s at this clock, 25.0 % of the data sheet's 200.0" in text


def test_energy_stands_beside_the_time(result: Result) -> None:
    """400 W for 20 us."""
    assert result.energy_mj == pytest.approx(8.0) and result.as_dict()["energy_mj"] == result.energy_mj
    time, energy = (line for line in prediction(result).splitlines() if line.split()[:1] in (["Time"], ["Energy"]))
    assert time.split()[1:] == ["20", "us"]
    assert energy.split()[1:3] == ["8", "mJ"] and "400 W" in energy


def test_energies_of_kernels_one_after_the_other_add_up(make_result: Callable[..., Result]) -> None:
    both = one_after_the_other(make_result(), [make_result(power_w=100.0, time_us=60.0)])
    assert both.energy_mj == pytest.approx(8.0 + 6.0) and both.power_w == pytest.approx(14.0 / 80.0 * 1e3)


def test_states_carry_the_stall_reasons_of_a_profile(make_result: Callable[..., Result]) -> None:
    life = {
        "consumer0": {"tensor": 0.3, "wait_mbarrier": 0.2, "lsu": 0.2, "wait_barrier": 0.1, "wait_registers": 0.1},
        "producer": {"wait_mbarrier": 0.9, "math_pipe": 0.1},
    }
    result = make_result(states=life)
    reasons = {
        "tensor": "wait, barrier, mio_throttle", "wait_mbarrier": "long_scoreboard", "wait_barrier": "barrier",
        "lsu": "long_scoreboard, short_scoreboard, lg_throttle, mio_throttle, membar", "wait_registers": "n/a",
        "math_pipe": "math_pipe_throttle",
    }
    assert result.as_dict()["stall_reasons"] == reasons
    assert result.as_dict()["states"] == life
    for width in (120, 150, 200):
        text = prediction(result, width)
        rows = [line.split("  ") for line in text.splitlines()]
        for state, reason in reasons.items():
            assert any(row[-1].strip() == reason or reason in row for row in rows if state in row), (width, state)
        assert "n/a: a profile counts it elsewhere, not measured" in text


def test_stall_reasons_stand_below_where_they_have_no_room(make_result: Callable[..., Result]) -> None:
    life = {f"role{idx}": {"tensor": 0.5, "wait_mbarrier": 0.5} for idx in range(9)}
    text = prediction(make_result(states=life), 80)
    assert "stall reason in a profile" not in text
    assert "Stall reasons in a profile: tensor: wait, barrier, mio_throttle" in " ".join(text.split())


def test_every_state_has_a_stall_reason_or_says_that_none_is_known() -> None:
    ours = {"start", "wait_registers"}
    assert {state.label for state in WarpState if state.stall_reason == NOT_KNOWN} == ours
    assert WarpState.WAIT_WGMMA.stall_reason == "barrier" and WarpState.SHORT_SCOREBOARD.stall_reason == "short_scoreboard"


def test_every_parameter_is_listed_and_defaults_are_marked(result: Result) -> None:
    lines = [line.split() for line in prediction(result).splitlines()]
    for name, value in OPTIONS.items():
        option = f"--{name.replace('_', '-')}"
        marked = ["default"] if name in ("out_dtype", "bias") else []
        shown = [option if value else f"--no-{option[2:]}"] if isinstance(value, bool) else [option, str(value)]
        assert [*shown, *marked] in lines


def test_sources_are_counted_and_guesses_are_named_in_short(result: Result) -> None:
    text = prediction(result)
    assert "Uses 101 GPU parameters of toy: 60 measured, 30 published, 4 inferred, 7 guessed." in text
    assert "l2.guess_0_cycles" in text
    assert "and 1 more (gpusim gpus toy)" in text


def test_counters_carry_their_full_names_at_any_width(result: Result) -> None:
    for width in (60, 80, 200):
        text = prediction(result, width).replace("\n", "").replace(" ", "")
        assert "4,096l1tex__data_pipe_lsu_wavefronts_mem_shared.sum" in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_prediction_fits_its_console(result: Result, width: int) -> None:
    lines = [line for line in prediction(result, width).splitlines() if not line.startswith("Next:")]
    assert max(len(line) for line in lines) <= width


def test_a_kernel_without_arithmetic_has_no_throughput(make_result: Callable[..., Result]) -> None:
    text = prediction(make_result(tflops=0.0, peak_tflops_at_clock=0.0, peak_tflops_datasheet=0.0))
    assert "TFLOP/s" not in text
    assert "Verdict: gemm on toy takes 20 us at 52 GB/s of memory, bound by" in text.replace("\n", " ")  # 1 MiB


def test_brackets_in_words_are_no_markup(make_result: Callable[..., Result]) -> None:
    assert "stage [bold] of a[3]" in prediction(make_result(reason="stage [bold] of a[3]"))


@pytest.fixture
def toy() -> GpuSpec:
    return load_gpu("toy")


def test_a_gpu_is_shown_with_every_parameter_and_its_source(toy: GpuSpec) -> None:
    for width in (80, 160):
        text = shown(lambda console: render_gpu(toy, console), width)
        for parameter in toy.parameters():
            assert parameter.split(".", 1)[1] in text
        words = " ".join(text.split())
        for source in toy.sources.values():
            assert all(word in words for word in source.split(":", 1)[1].split())


def test_a_part_is_explained_by_value_meaning_and_source(toy: GpuSpec) -> None:
    for width in (40, 80, 200):
        text = shown(lambda console: render_meanings(toy, "hbm", console), width)
        assert max(map(len, text.splitlines())) <= width
        words = " ".join(text.split())
        for name, value in toy.parameters().items():
            is_shown = f"{name} = {number(value)}" in words
            assert is_shown == name.startswith("hbm.")
            assert not is_shown or meaning_of(name).text in words


def test_a_table_is_explained_once() -> None:
    text = shown(lambda console: render_meanings(load_gpu("h200_sxm"), "device.gpcs", console), 200)
    assert text.splitlines()[:2] == ["device.gpcs.16 = 6", "device.gpcs.18 = 2"]
    assert text.count(meaning_of("device.gpcs").text) == 1


def test_what_is_no_parameter_is_not_explained(toy: GpuSpec) -> None:
    with pytest.raises(ConfigError, match=r"toy has no parameter 'hbm.latency_nss'; did you mean 'hbm.latency_ns'\?"):
        shown(lambda console: render_meanings(toy, "hbm.latency_nss", console))


def test_gpus_are_listed_one_a_line(toy: GpuSpec) -> None:
    text = shown(lambda console: render_gpus_list([toy], console))
    assert "Next: gpusim gpus toy" in text
    assert shown(lambda console: render_gpus_list([], console)).startswith("No GPU is described")


def test_a_comparison_with_itself_is_a_sentence(toy: GpuSpec) -> None:
    text = shown(lambda console: render_gpu_comparison(toy, toy, console), 200)
    assert "no difference" in text
    assert "x)" not in text


def test_a_ratio_above_one_means_more_on_the_second(toy: GpuSpec) -> None:
    faster = replace(toy, name="faster", hbm=replace(toy.hbm, peak_gb_per_s=2 * toy.hbm.peak_gb_per_s))
    (row,) = compare_gpus(toy, faster)["different"]
    assert row["parameter"] == "hbm.peak_gb_per_s"
    assert row["ratio"] == 2.0
    (back,) = compare_gpus(faster, toy)["different"]
    assert back["ratio"] == 0.5
    assert "more on faster" in shown(lambda console: render_gpu_comparison(toy, faster, console), 200)


def test_a_comparison_names_parts_that_one_lacks() -> None:
    text = shown(
        lambda console: render_gpu_comparison(load_gpu("a100_sxm_40gb"), load_gpu("h100_sxm"), console), 200
    )
    assert "a100_sxm_40gb has no tma, h100_sxm has." in text


def test_the_largest_difference_comes_first() -> None:
    ratios = [row["ratio"] for row in compare_gpus(load_gpu("a100_sxm_40gb"), load_gpu("h100_sxm"))["different"]]
    spreads = [max(ratio, 1 / ratio) for ratio in ratios if ratio]
    assert spreads == sorted(spreads, reverse=True)
