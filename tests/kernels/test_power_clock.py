"""Work at several intensities: operands where descriptors find them, rests, clocks over time, the simulator's limit."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim import GpuSpec, load_gpu
from gpusim.evidence.cases.case import Config, WrongAnswer, load_case
from gpusim.evidence.toolchain.sass import KernelSass
from gpusim.evidence.validate.calibrate import parameter
from gpusim.machine.clock import Activity, PowerLimiter
from gpusim.workload.smem.wgmma_operands import WgmmaDescriptor

CASE = load_case("power_clock")
GPU = load_gpu("h200_sxm")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]
Sass = Callable[[str, str], dict[str, KernelSass]]


def find(**fields: object) -> Config:
    return next(
        config for config in CONFIGS if all(config[name] == str(value) for name, value in fields.items())
    )  # fmt: skip


def test_the_loop_is_a_burst_of_wgmmas_and_nothing_of_the_compilers(sass: Sass) -> None:
    kernel = sass("power_clock", "sm_90a")["work"]
    loop = kernel.main_loop
    assert loop is not None and dict(loop.tensor_shapes) == {"HGMMA 64x256x16": case.BURST_WGMMAS // 4}
    assert kernel.num_dummy_wgmmas == kernel.num_spills == 0
    assert set(kernel.wgmma_wait_depths) == {0, 1}
    assert len(kernel.select("NANOSLEEP")) == 3  # rests of both kinds of work, and the watch


def test_the_four_warps_go_on_together(sass: Sass) -> None:
    """A warpgroup's warps must not disagree whether there is time for another burst."""
    kernel = sass("power_clock", "sm_90a")["work"]
    bursts = max((loop for loop in kernel.loops if loop.select("HGMMA")), key=lambda loop: len(loop.instructions))
    assert [item.opcode.split(".")[1] for item in bursts.select("BAR")] == ["RED"]


def test_streams_load_sixteen_bytes_eight_at_a_time(sass: Sass) -> None:
    kernel = sass("power_clock", "sm_90a")["work"]
    loads = [item for item in kernel.select("LDG") if "128" in item.opcode and "STRONG.GPU" in item.opcode]
    assert len(loads) == 8


@pytest.mark.parametrize(("rows", "base"), [(case.M, 0), (case.N, case.M * case.K)])
def test_descriptors_find_every_step_of_an_operand(rows: int, base: int) -> None:
    """Core matrix by core matrix, as the tensor core reads them."""
    image = case.operands("random")[base : base + rows * case.K]
    for step in range(case.K // 16):
        address = step // 4 * rows * 128 + step % 4 * 32
        bits = (address >> 4) | 1 << 16 | 64 << 32 | 1 << 62
        places = WgmmaDescriptor.from_bits(bits).core_matrices("K", rows)
        words = image.view(np.uint8)[places[..., None] + np.arange(16)].view("<u2")  # [block, half, row, k]
        values = (words.astype("<u4") << 16).view("<f4").transpose(0, 2, 1, 3).reshape(rows, 16)
        assert np.array_equal(values, case.numbers("random", rows)[:, 16 * step : 16 * step + 16])


def test_random_numbers_are_normal_and_zeros_are_zeros() -> None:
    numbers = case.numbers("random", case.N)
    assert abs(numbers.mean()) < 0.02 and 0.97 < numbers.std() < 1.03
    assert not case.operands("zeros").any() and not case.stream_buffer("l2", "zeros").any()


def answers(config: Config, mhz: NDArray[np.float64]) -> dict[str, NDArray[np.generic]]:
    """All SMs at ``mhz`` (float64[steps between samples]), work done and right."""
    num = case.num_samples(typed(config))
    ns = np.arange(num) * case.period_ns(typed(config))
    cycles = np.concatenate([[0.0], np.cumsum(np.resize(mhz, num - 1) * case.period_ns(typed(config)) / 1e3)])
    samples = np.empty((case.NUM_SMS, num, 2), dtype="<u8")
    samples[:, :, 0] = 10**15 + ns
    samples[:, :, 1] = np.round(cycles) + 10**9 * np.arange(case.NUM_SMS)[:, None]
    done = np.zeros((case.NUM_SMS, 4), dtype="<u8")
    done[:, 0] = 7 * (config["tensor_duty"] != "0")
    if config["stream"] != "none":
        words = case.stream_buffer(config["stream"], config["data"]).view("<u4")
        at = np.arange(8)[:, None] * (case.STREAM_THREADS * 4) + np.arange(4)
        done[:, 1], done[:, 3] = 9, np.bitwise_xor.reduce(words[at].reshape(-1))
    return {"samples": samples, "done": done, "d": case.product(config["data"]).astype("<f4")}


def test_right_work_passes_and_a_wrong_sum_or_word_does_not() -> None:
    config = find(run_us=250, tensor_duty=50, stream="l2", stream_duty=50)
    outputs = answers(config, np.array([1800.0]))
    values = CASE.check(config, outputs)
    assert values["mhz"] == values["least_mhz"] == pytest.approx(1800.0)
    assert values["tflops"] == pytest.approx(132 * 7 * 64 * 2 * 64 * 256 * 16 / 250e-6 * 1e-12)
    assert values["gb_per_s"] == pytest.approx(132 * 9 * case.ROUND_BYTES / 250e-6 * 1e-9)
    for name, match in (("d", "off by"), ("done", "other words"), ("samples", "stands still")):
        outputs = answers(config, np.array([1800.0]))
        if name == "done":
            outputs["done"][3, 3] ^= 1  # type: ignore[operator]  # numbers
        elif name == "d":
            outputs["d"][5, 6] += 1  # type: ignore[operator]  # numbers
        else:
            outputs["samples"][2, 5] = outputs["samples"][2, 4]
        with pytest.raises(WrongAnswer, match=match):
            CASE.check(config, outputs)


def test_work_that_was_not_done_is_no_answer() -> None:
    config = find(run_us=250, tensor_duty=100, stream="none", data="random")
    outputs = answers(config, np.array([1800.0]))
    outputs["done"][9, 0] = 0
    with pytest.raises(WrongAnswer, match="nothing of its work"):
        CASE.check(config, outputs)


def test_a_clock_that_falls_is_seen_falling() -> None:
    config = find(run_us=case.SUSTAINED_US, tensor_duty=100, stream="none", data="random")
    steps = np.where(np.arange(case.num_samples(typed(config)) - 1) < 200, 1980.0, 1500.0)  # for 20 ms, then
    values = CASE.check(config, answers(config, steps))
    assert values["mhz_at_10000_us"] == pytest.approx(1980.0, rel=1e-3)
    assert values["mhz_at_50000_us"] == values["last_mhz"] == pytest.approx(1500.0, rel=1e-3)
    assert values["most_step_mhz"] == pytest.approx(1980.0, rel=1e-3) and values["num_clocks"] == 1.0


def test_sms_with_clocks_of_their_own_are_told_apart() -> None:
    ns = np.tile(np.arange(51) * 5000, (132, 1))
    ghz = np.where(np.arange(132) < 18, 1.7, 1.8)[:, None]
    found = case.clocks(ns, (ns * ghz).astype(np.int64))
    assert (found["num_clocks"], found["least_mhz"], found["most_mhz"]) == (2.0, pytest.approx(1700), pytest.approx(1800))


def test_the_simulator_slows_down_for_tensor_work_and_less_on_zeros() -> None:
    clocks = [
        CASE.predict(find(run_us=case.SUSTAINED_US, tensor_duty=duty, stream="none", data="random"), GPU)["last_mhz"]
        for duty in case.DUTIES
    ]
    assert clocks == sorted(clocks, reverse=True) and clocks[-1] < clocks[0]
    zeros = CASE.predict(find(run_us=case.SUSTAINED_US, tensor_duty=100, stream="none", data="zeros"), GPU)["last_mhz"]
    assert zeros > clocks[-1]
    one = CASE.predict(find(run_us=250, tensor_duty=100, stream="none", data="random"), GPU)["mhz"]
    assert one > clocks[-1]


def test_rests_cost_the_simulator_their_share_of_the_rate() -> None:
    half, whole = (
        CASE.predict(find(run_us=250, tensor_duty=duty, stream="none", data="zeros"), GPU)["tflops"] for duty in (50, 100)
    )
    assert half == pytest.approx(whole / 2, rel=0.1)


def test_nothing_is_predicted_of_an_idle_gpu() -> None:
    assert CASE.predict(find(run_us=250, tensor_duty=0, stream="none"), GPU) == {}


def test_work_of_full_duty_runs_at_the_rates_of_the_description() -> None:
    """The last word on how short the twin is: nothing of launch and drain is in its rates."""
    assert GPU.tensor_core is not None
    alone = CASE.predict(find(run_us=250, tensor_duty=100, stream="none", data="zeros"), GPU)
    peak = 132 * GPU.tensor_core.wgmma_flops_per_cycle["16bit"] * alone["mhz"] * 1e-6
    assert 0.97 * peak < alone["tflops"] < peak
    streamed = CASE.predict(find(run_us=250, tensor_duty=0, stream="hbm", stream_duty=100, data="zeros"), GPU)
    assert streamed["gb_per_s"] == pytest.approx(4216.0, rel=0.03)  # an H200's, with few bytes under way


def test_a_gpu_with_fewer_sms_works_on_those() -> None:
    """Half of the work, at one clock: fewer tensor cores would lower it less."""
    whole = replace(GPU, clock=replace(GPU.clock, load_line_mhz_per_w=0.0))
    device = replace(GPU.device, num_sms=66, gpcs={"16": 3, "18": 1}, gpc_l2_partition=(0, 0, 1, 1), singleton_tpc_sms=0)
    half = replace(whole, device=device)
    config = find(run_us=250, tensor_duty=50, stream="none", data="zeros")
    found = [CASE.predict(config, gpu)["tflops"] for gpu in (half, whole)]
    assert 2 * found[0] == pytest.approx(found[1], rel=0.01)
    assert CASE.predict(config, load_gpu("a100_sxm_80gb")) == {}


OTHER = replace(GPU, clock=replace(
    GPU.clock, voltage_slope=0.5, tensor_pj_per_flop={**GPU.clock.tensor_pj_per_flop, "16bit": 0.8},
    tensor_burst_mhz_us=500.0, load_line_mhz_per_w=0.3, single_power_w=850.0,
))  # fmt: skip
FITTED = {
    "clock.voltage_slope", "clock.tensor_pj_per_flop.16bit", "clock.tensor_burst_mhz_us", "clock.load_line_mhz_per_w",
    "clock.single_power_w",
}  # fmt: skip


def row_of(config: Config, group: str, gpu: GpuSpec) -> dict[str, str]:
    """A row whose work goes at 1000 TFLOP/s, 10 and 4 TB/s at full duty and the highest clock; memory at any clock."""
    run_us, name = float(config["run_us"]), "last_mhz" if group == "sustained" else "mhz"
    tensor, stream = int(config["tensor_duty"]) / 100, int(config["stream_duty"]) / 100
    mhz = gpu.clock.max_mhz
    for _ in range(30):  # memory's bytes in a cycle follow the clock
        share = mhz / gpu.clock.max_mhz
        tflops, gb_per_s = 1e3 * tensor * share, stream * (4e3 if config["stream"] == "hbm" else 1e4 * share)
        activity = Activity(
            cycles=mhz * run_us, num_flops=tflops * 1e6 * run_us, rate_class="16bit", l2_bytes=gb_per_s * 1e3 * run_us,
            hbm_bytes=gb_per_s * 1e3 * run_us * (config["stream"] == "hbm"), busy_fraction=1.0,
        )  # fmt: skip
        of_burst = 132.0 * case.BURST_WGMMAS * case.FLOPS_PER_WGMMA
        activity = case.in_bursts(activity, duty=int(config["tensor_duty"]), flops_per_burst=of_burst)
        mhz += 0.5 * (PowerLimiter(gpu.clock).clock_mhz(activity, mode=group, data=config["data"]) - mhz)
    carried = 0.5 * 132 * case.BURST_WGMMAS * case.FLOPS_PER_WGMMA / run_us / 1e6
    row = {**config, "group": group, name: str(mhz)}
    row |= {"tflops": str(tflops + carried)} if tensor else {}
    return row | ({"gb_per_s": str(gb_per_s)} if stream else {})


def rows_of(gpu: GpuSpec, half: int) -> list[dict[str, str]]:
    """Every second config, as a machine answers that is as described."""
    return [row_of(config, group, gpu) for group in CASE.groups for config in CASE.configs(group, 1)[half::2]]


@pytest.mark.parametrize(("gpu", "half"), [(GPU, 0), (OTHER, 1)], ids=["h200-even", "other-odd"])
def test_rows_of_a_machine_that_is_known_give_its_energies_back(gpu: GpuSpec, half: int) -> None:
    """Exact rows to the digits; rows that are off by what clocks and rates scatter, to some percent; one bad row, too."""
    exact = rows_of(gpu, half)
    rng = np.random.default_rng(1)
    scattered = [dict(row) for row in exact]
    for row in scattered:
        for name, share in (("tflops", 0.003), ("gb_per_s", 0.003), ("last_mhz", 0.001), ("mhz", 0.001)):
            if name in row and not ("mhz" in name and float(row[name]) == gpu.clock.max_mhz):
                row[name] = str(float(row[name]) * (1.0 + share * rng.standard_normal()))
    spoilt = [dict(row) for row in exact]
    (bad, *_) = [row for row in spoilt if (row["group"], row["stream"], row["tensor_duty"]) == ("sustained", "hbm", "100")]
    bad["tflops"] = str(1.5 * float(bad["tflops"]))
    for rows, within in ((exact, 0.02), (scattered, 0.08), (spoilt, 0.02)):
        fitted = {item.parameter: item.value for item in CASE.fit(rows)}
        assert fitted.keys() == FITTED
        for name, value in fitted.items():
            assert value == pytest.approx(parameter(gpu, name), rel=within), name


def test_the_search_takes_watts_as_the_h200_is_described() -> None:
    assert (GPU.clock.power_limit_w, GPU.clock.single_power_delay_us) == (case.LIMIT_W, case.DELAY_US)
    for name, value in (case.OF_WATTS | case.OF_TENSOR).items():
        assert value == pytest.approx(parameter(GPU, f"clock.{name}"), rel=0.01), name


def test_rows_that_tell_nothing_fit_nothing() -> None:
    assert CASE.fit([]) == []
    assert CASE.fit([{**config, "group": group} for group in CASE.groups for config in CASE.configs(group, 1)]) == []
    unthrottled = [{**config, "group": "sustained", "last_mhz": "1980", "tflops": "9"} for config in CONFIGS]
    assert CASE.fit(unthrottled) == []
