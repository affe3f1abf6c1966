"""mma.sync under the clock: what each warp multiplies, reads and copies is what the check says, by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim.evidence.cases.case import Config, load_case
from gpusim.evidence.toolchain.sass import KernelSass
from gpusim.evidence.validate.calibrate import parameter
from gpusim.machine.clock import PowerLimiter
from gpusim.machine.config import GpuSpec, load_gpu

CASE = load_case("power_mma")
case = sys.modules[CASE.launch.__module__]
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]
GPU = load_gpu("h200_sxm")
Sass = Callable[[str, str], dict[str, KernelSass]]


def find(**fields: object) -> Config:
    return next(config for config in CONFIGS if all(config[name] == str(value) for name, value in fields.items()))


def test_each_half_has_every_kind_of_work_and_its_zeros() -> None:
    kinds = [{config["kernel"] for config in CONFIGS[half::2]} for half in (0, 1)]
    assert kinds[0] == kinds[1]
    for half in (0, 1):
        zeros = [config["kernel"] for config in CONFIGS[half::2] if config["data"] == "zeros"]
        assert {"mma_bf16", "feed_bf16", "read_smem"} <= set(zeros)


def held(kernel: str, data: str, row: int, word: int) -> int:
    """A word of an operand where the kernel's swizzle puts it."""
    return int(case.operands(kernel, data)[row * 64 + (word // 4 ^ row % 8) * 4 + word % 4])


def test_ldmatrix_finds_the_words_of_the_fragments() -> None:
    """Addresses as kernel.cu has them: eight lanes give a matrix's rows, a lane gets word lane % 4 of row lane / 4."""
    seen = np.zeros(512, dtype=np.uint32)
    for warp in (0, 6, 15):
        for lane in range(32):
            words = []
            for m in range(4):
                for matrix in range(4):
                    asks = matrix * 8 + lane // 4
                    row, chunk = warp % 4 * 64 + m * 16 + asks % 16, 2 * 7 + asks // 16
                    words.append(held("feed_bf16", "random", row, chunk * 4 + lane % 4))
            for n in (0, 2):
                for matrix in range(4):
                    asks = matrix * 8 + lane // 4
                    row = 256 + warp // 4 * 32 + n * 8 + asks // 16 * 8 + asks % 8
                    words.append(held("feed_bf16", "random", row, (2 * 7 + asks // 8 % 2) * 4 + lane % 4))
            seen[warp * 32 + lane] = np.bitwise_xor.reduce(np.array(words, dtype=np.uint32))
    wanted = case.fragment_words("feed_bf16", "random")
    for warp in (0, 6, 15):
        assert (seen[warp * 32 : warp * 32 + 32] == wanted[warp * 32 : warp * 32 + 32]).all()


def test_sums_are_rows_of_a_times_rows_of_b() -> None:
    """Warp 6, lane 13, register 27: m 1, n 2, row 8 further, second column; all of K eight times, or 16 of it 64 times."""
    row, column = 2 * 64 + 1 * 16 + 3 + 8, 256 + 32 + 2 * 8 + 1 * 2 + 1
    both = case.numbers("feed_bf16", "random").astype(np.float64)
    assert case.product("feed_bf16", "random")[27, 6 * 32 + 13] == pytest.approx(8 * both[row] @ both[column])
    kept = 64 * both[row, :16] @ both[column, :16]
    assert case.product("mma_bf16", "random")[27, 6 * 32 + 13] == pytest.approx(kept)


def outputs_of(config: Config, num_bursts: int) -> dict[str, NDArray[np.generic]]:
    """What a machine at 1.5 GHz would give back."""
    samples = np.zeros((case.NUM_SMS, case.loads.num_samples(config), 2), dtype=np.uint64)
    samples[:, :, 0] = 1000 + np.arange(samples.shape[1]) * 5000
    samples[:, :, 1] = samples[:, :, 0] * np.uint64(3) // np.uint64(2)
    done = np.zeros((case.NUM_SMS, 18), dtype=np.uint64)
    done[:, : int(config["num_warps"])] = num_bursts
    d = np.full((64, 512), np.nan, dtype=np.float32)
    kernel, data = config["kernel"], config["data"]
    if case.arithmetic_of(config) == "mma":
        d = case.product(kernel, data).astype(np.float32)
    elif case.num_loads(kernel):
        d.view("<u4")[0] = case.fragment_words(kernel, data)
    if case.num_copies(kernel):
        stream = case.loads.stream_buffer("l2", "random").view("<u4")
        for cta in range(case.NUM_SMS):
            at = cta * case.SLICE_BYTES + 8192
            done[cta, 16:] = at, int(np.bitwise_xor.reduce(stream[at // 4 : at // 4 + 4]))
    return {"samples": samples, "done": done, "d": d}


def test_rates_are_those_of_the_steps() -> None:
    """Ten bursts of 64 steps of 16 warps on 132 SMs in 1 ms."""
    found = CASE.check(find(kernel="copy2_bf16", duty=100), outputs_of(find(kernel="copy2_bf16", duty=100), 10))
    steps = 10 * 64 * 16 * 132
    assert found["mhz"] == pytest.approx(1500.0)
    assert found["tflops"] == pytest.approx(steps * 16 * 4096 / 1e-3 / 1e12)
    assert found["smem_gb_per_s"] == pytest.approx(steps * 6 * 512 / 1e-3 / 1e9)
    assert found["gb_per_s"] == pytest.approx(steps * 1024 / 1e-3 / 1e9)


def test_the_loops_are_what_a_step_is(sass: Sass) -> None:
    kernels = sass("power_mma", "sm_90a")
    assert set(kernels) >= {config["kernel"] for config in CONFIGS}
    for name, kernel in kernels.items():
        if case.arithmetic_of({"kernel": name, "num_warps": "16"}) == "mma":
            steps = [loop for loop in kernel.loops if len(loop.select("HMMA")) == 16]
            assert steps, name
            assert min(len(loop.select("LDSM")) for loop in steps) == case.num_loads(name), name
            inner = min(steps, key=lambda loop: len(loop.instructions))
            assert len(inner.select("LDGSTS")) == case.num_copies(name), name
            assert not inner.select("LDL") and not inner.select("STL"), name
        elif case.num_loads(name):
            assert any(len(loop.select("LDSM")) == 6 and len(loop.instructions) < 60 for loop in kernel.loops), name


def row_of(config: Config, gpu: GpuSpec) -> dict[str, str]:
    """600 TFLOP/s, 30 TB/s out of shared memory, 9 out of L2 at full duty; power of the board that ``gpu`` is."""
    duty = 0.0 if config["num_warps"] == "0" else int(config["duty"]) / 100
    row = {**config, "mhz": str(gpu.clock.tensor_mhz), case.CLOCK: str(gpu.clock.tensor_mhz)}
    what = case.arithmetic_of(config)
    rates = {
        "tflops": 600.0 * (what == "mma") + 40.0 * (what == "fma"),
        "smem_gb_per_s": 3e4 * (case.num_loads(config["kernel"]) > 0),
        "gb_per_s": 9e3 * (case.num_copies(config["kernel"]) > 0),
    }  # fmt: skip
    row |= {name: str(rate * duty) for name, rate in rates.items() if rate * duty}
    mhz, limiter = gpu.clock.tensor_mhz, PowerLimiter(gpu.clock)
    return {**row, case.POWER: str(limiter.power_w(case.work_of(row, mhz), mhz=mhz, data=config["data"]))}


def test_rows_of_a_board_that_is_known_give_its_energies_back() -> None:
    """What draws more than nine tenths of the limit may have any clock."""
    clock = replace(GPU.clock, mma_sync_extra_fraction=0.1, smem_pj_per_byte=2.0, fp32_pj_per_flop=4.0, tensor_mhz=1790.0)
    rows = [row_of(config, replace(GPU, clock=clock)) for config in CONFIGS[::2]]
    limited = {**rows[1], case.POWER: "699", case.CLOCK: "1500"}
    fitted = {item.parameter: item.value for item in CASE.fit([*rows, limited])}
    assert fitted.keys() == {"clock.tensor_mhz", *(f"clock.{name}" for name in case.BEGIN)}
    for name, value in fitted.items():
        assert value == pytest.approx(getattr(clock, name.partition(".")[2]), rel=0.01), name
    assert CASE.fit([]) == []


def test_the_search_takes_wgmma_and_voltage_as_the_h200_is_described() -> None:
    for name, value in case.OF_CLOCKS.items():
        assert value == pytest.approx(parameter(GPU, f"clock.{name}"), rel=0.01), name
