"""Bytes by TMA beside tensor work: operands where descriptors find them, types, boxes, clocks, the simulator's limit."""

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
from gpusim.layout.swizzle import swizzle_mode
from gpusim.machine.clock import PowerLimiter
from gpusim.workload.smem.wgmma_operands import WgmmaDescriptor

CASE = load_case("power_tma")
GPU = load_gpu("h200_sxm")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]
Sass = Callable[[str, str], dict[str, KernelSass]]


def find(**fields: object) -> Config:
    return next(
        config for config in CONFIGS if all(config[name] == str(value) for name, value in fields.items())
    )  # fmt: skip


def test_each_half_has_every_kind_of_work() -> None:
    for group in CASE.groups:
        kinds = [
            {(config["kernel"], config["stream"], config["data"]) for config in CASE.configs(group, 1)[half::2]}
            for half in (0, 1)
        ]
        assert all(kinds[0] & kinds[1] >= {(f"stream_{work}", "none", "random")} for work in case.TYPES)
        assert kinds[0] & kinds[1] >= {("stream_bf16", stream, "random") for stream in ("hbm", "l2")}


def test_the_loops_are_a_burst_of_the_types_wgmmas_and_nothing_of_the_compilers(sass: Sass) -> None:
    shapes = {"fp8": "QGMMA 64x256x32", "int8": "IGMMA 64x256x32", "tf32": "HGMMA 64x256x8"}
    kernels = sass("power_tma", "sm_90a")
    assert set(kernels) == {config["kernel"] for config in CONFIGS}
    for name, kernel in kernels.items():
        loop = kernel.main_loop
        shape = shapes.get(name.partition("_")[2], "HGMMA 64x256x16")
        assert loop is not None and dict(loop.tensor_shapes) == {shape: case.BURST_WGMMAS // 4}, name
        assert kernel.num_dummy_wgmmas == kernel.num_spills == 0, name
        assert set(kernel.wgmma_wait_depths) == {0, 1}, name
        opcode = shape.partition(" ")[0]
        bursts = max((loop for loop in kernel.loops if loop.select(opcode)), key=lambda loop: len(loop.instructions))
        assert [item.opcode.split(".")[1] for item in bursts.select("BAR")] == ["RED"], name


@pytest.mark.parametrize("work", case.TYPES)
def test_descriptors_find_every_step_of_an_operand(work: str) -> None:
    """Core matrix by core matrix, as the tensor core reads what TMA has swizzled."""
    plain = case.operands(work, "random", 1).reshape(-1)
    held = np.empty_like(plain)
    held[np.asarray(swizzle_mode("128B")(np.arange(plain.size)))] = plain
    for rows, base in ((case.M, 0), (case.N, case.BOX_BYTES)):
        wanted = np.ascontiguousarray(
            case.types.encode(case.numbers(work, "random", rows), case.TYPES[work])
        ).view(np.uint8).reshape(rows, case.K_BYTES)  # fmt: skip
        for step in range(16):
            address = base + step // 4 * case.BOXES_PER_PANEL * case.BOX_BYTES + step % 4 * 32
            bits = (address >> 4) | 1 << 16 | 64 << 32 | 1 << 62
            places = WgmmaDescriptor.from_bits(bits).core_matrices("K", rows)
            found = held[places[..., None] + np.arange(16)]  # [block, half, row, bytes]
            found = found.transpose(0, 2, 1, 3).reshape(rows, 32)
            assert np.array_equal(found, wanted[:, 32 * step : 32 * step + 32])


def test_registers_hold_the_words_of_a_that_a_thread_multiplies() -> None:
    """As kernel.cu reads them: the fragment of PTX ISA, m64k16 of 16 bits."""
    words = case.operands("bf16_rs", "random", 1).view("<u4")
    a = case.types.encode(case.numbers("bf16_rs", "random", case.M), "bf16")
    thread = np.arange(128)
    for k in range(16):
        for i in range(4):
            row = thread // 32 * 16 + thread % 32 // 4 + i % 2 * 8
            got = words[k // 4 * case.PANEL_ROWS + row, k % 4 * 8 + thread % 4 + i // 2 * 4]
            column = 16 * k + thread % 4 * 2 + i // 2 * 8
            assert np.array_equal(got, a[row, column].astype("<u4") | a[row, column + 1].astype("<u4") << 16)


def answers(config: Config, mhz: float) -> dict[str, NDArray[np.generic]]:
    """All SMs at ``mhz``, work done and right."""
    num, work = case.loads.num_samples(config), case.work_of(config)
    ns = np.arange(num) * case.loads.period_ns(config)
    samples = np.empty((case.NUM_SMS, num, 2), dtype="<u8")
    samples[:, :, 0] = 10**15 + ns
    samples[:, :, 1] = np.round(ns * mhz / 1e3) + 10**9 * np.arange(case.NUM_SMS)[:, None]
    done = np.zeros((case.NUM_SMS, 6), dtype="<u8")
    done[:, 0] = 7 * (config["tensor_duty"] != "0")
    if config["stream"] in case.STREAM_BYTES:
        words = case.stream_bytes(typed(config)).view("<u4").reshape(-1, case.BOX_BYTES // 4)
        done[:, 1], done[:, 2], done[:, 3] = 16, 3 * case.BOX_ROWS, np.bitwise_xor.reduce(words[3])
    elif config["num_boxes"] != "0":
        done[:, 1] = 16
    d = case.products(work, config["data"])[0].astype("<i4" if work == "int8" else "<f4")
    return {"samples": samples, "done": done, "d": d}


@pytest.mark.parametrize("work", case.TYPES)
def test_right_sums_pass_and_wrong_ones_do_not(work: str) -> None:
    config = find(kernel=f"stream_{work}", tensor_duty=100, stream="none", data="random")
    values = CASE.check(config, answers(config, 1800.0))
    assert values["mhz"] == pytest.approx(1800.0)
    flops = 132 * 7 * 64 * case.atom_of(work).num_flops
    assert values["tflops"] == pytest.approx(flops / 250e-6 * 1e-12)
    outputs = answers(config, 1800.0)
    outputs["d"][5, 6] += 100  # type: ignore[operator]  # numbers
    with pytest.raises(WrongAnswer, match="off by"):
        CASE.check(config, outputs)


def test_right_boxes_pass_and_wrong_ones_do_not() -> None:
    config = find(tensor_duty=50, stream="l2", stream_duty=50)
    values = CASE.check(config, answers(config, 1800.0))
    assert values["gb_per_s"] == pytest.approx(132 * 16 * case.BOX_BYTES / 250e-6 * 1e-9)
    for name, column, match in (
        ("done", 3, "other words"), ("done", 4, "given up"), ("done", 0, "nothing"), ("samples", 5, "stands"),
    ):  # fmt: skip
        outputs = answers(config, 1800.0)
        if name == "samples":
            outputs[name][2, 5] = outputs[name][2, 4]
        else:
            outputs[name][3, column] = (outputs[name][3, column] == 0)
        with pytest.raises(WrongAnswer, match=match):
            CASE.check(config, outputs)
    fed = find(kernel="fed_bf16", num_boxes=0)
    assert "gb_per_s" not in CASE.check(fed, answers(fed, 1800.0))
    with pytest.raises(WrongAnswer, match="nothing of its work"):
        CASE.check(find(kernel="fed_bf16", num_boxes=2), answers(fed, 1800.0))


def test_slices_and_operands_of_all_ctas_lie_where_they_are_read() -> None:
    own, stream = (CASE.launch(find(stream=name), False).arguments for name in ("fed_own", "l2"))
    assert own[1].array.shape == (132 * 4 * case.PANEL_ROWS, 128)  # type: ignore[union-attr]
    assert stream[3].array.nbytes >= 132 * case.SLICE_ROWS * 128  # type: ignore[union-attr]
    assert case.SLICE_ROWS % case.BOX_ROWS == 0


def test_the_simulator_slows_down_for_bytes_beside_tensor_work() -> None:
    def clock(**fields: object) -> float:
        return CASE.predict(find(run_us=case.SUSTAINED_US, **fields), GPU)["last_mhz"]

    alone = clock(kernel="stream_bf16", stream="none", tensor_duty=100, data="random")
    beside = clock(stream="l2", tensor_duty=100, stream_duty=100)
    fed = [clock(stream="fed_own", kernel="fed_bf16", num_boxes=boxes) for boxes in (0, 1)]
    assert beside < alone and fed[1] < fed[0] == pytest.approx(alone, rel=0.02)


def test_what_is_fed_is_counted_and_what_many_ask_for_comes_faster() -> None:
    own, same = (CASE.predict(find(stream=stream, num_boxes=5), GPU) for stream in ("fed_own", "fed_same"))
    assert same["tflops"] > 1.2 * own["tflops"]
    per_flop = 5 * case.BOX_BYTES / (4 * case.atom_of("bf16").num_flops)
    assert own["gb_per_s"] / own["tflops"] / 1e3 == pytest.approx(per_flop, rel=0.1)
    assert CASE.predict(find(stream="fed_own", num_boxes=5), load_gpu("a100_sxm_80gb")) == {}


ENERGIES = {"16bit": case.OF_CLOCKS["tensor_pj_per_flop.16bit"], "fp16": 0.8, "tf32": 1.6, "fp8": 0.5, "int8": 0.3}
KNOWN = replace(GPU, clock=replace(
    GPU.clock, l2_clock_coupling_fraction=1.0, tensor_pj_per_flop={**ENERGIES, "bf16_rs": 0.7}, bulk_pj_per_byte=30.0,
    fill_pj_per_byte=15.0,
))  # fmt: skip


def row_of(config: Config, group: str, gpu: GpuSpec) -> dict[str, str]:
    """A row whose work goes at the peak of its type, 9 and 4 TB/s at full duty and the highest clock."""
    run_us, name = float(config["run_us"]), "last_mhz" if group == "sustained" else "mhz"
    atom, tensor, is_fed = case.atom_of(case.work_of(config)), int(config["tensor_duty"]) / 100, "fed" in config["stream"]
    duty = int(config["num_boxes"]) / 5 if is_fed else int(config["stream_duty"]) / 100
    peak = {"16bit": 1000.0, "tf32": 500.0}.get(atom.rate_class, 2000.0)
    mhz = gpu.clock.max_mhz
    for _ in range(30):  # memory's bytes in a cycle follow the clock
        share = mhz / gpu.clock.max_mhz
        tflops, gb_per_s = peak * tensor * share, duty * (4e3 if config["stream"] == "hbm" else 9e3 * share)
        carried = 0.5 * 132 * case.BURST_WGMMAS * atom.num_flops / run_us / 1e6
        row = {**config, "group": group, name: str(mhz), "tflops": str(tflops + carried), "gb_per_s": str(gb_per_s)}
        mode, data = group, config["data"]
        mhz += 0.5 * (PowerLimiter(gpu.clock).clock_mhz(case.activity_of(row), mode=mode, data=data) - mhz)
    return {name: value for name, value in row.items() if name not in ("tflops", "gb_per_s") or float(value)}


@pytest.mark.parametrize("half", [0, 1])
def test_rows_of_a_machine_that_is_known_give_its_energies_back(half: int) -> None:
    rows = [row_of(config, group, KNOWN) for group in CASE.groups for config in CASE.configs(group, 1)[half::2]]
    fitted = {item.parameter: item.value for item in CASE.fit(rows)}
    assert fitted.keys() == {
        "clock.bulk_pj_per_byte", "clock.fill_pj_per_byte", "clock.tensor_pj_per_flop.fp16",
        "clock.tensor_pj_per_flop.tf32", "clock.tensor_pj_per_flop.fp8", "clock.tensor_pj_per_flop.int8",
        "clock.l2_clock_coupling_fraction",
    }  # fmt: skip
    for name, value in fitted.items():
        assert value == pytest.approx(parameter(KNOWN, name), rel=0.03), name


def test_the_search_takes_bf16_and_the_load_line_as_the_h200_is_described() -> None:
    for name, value in case.OF_CLOCKS.items():
        assert value == pytest.approx(parameter(GPU, f"clock.{name}"), rel=0.01), name


def test_a_stream_without_tensor_work_is_predicted() -> None:
    config = case._row(case.SINGLE_US, stream="l2", stream_duty=100)
    assert CASE.predict(config, GPU)["gb_per_s"] > 1000.0
