"""Stream grids: the check refuses a wrong byte, rates of a known memory come back, loads are under way together."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import Config, Repeated, Windows, WrongAnswer, load_case
from gpusim.evidence.toolchain.sass import KernelSass
from gpusim.evidence.validate.calibrate import parameter

CASE = load_case("stream_grids")
GPU = load_gpu("h200_sxm")
case = sys.modules[CASE.launch.__module__]
CONFIGS = CASE.configs("grids", 1)
Sass = Callable[[str, str], dict[str, KernelSass]]


def test_both_halves_have_both_sizes_of_what_they_have() -> None:
    assert len(CONFIGS) == 48
    for half in (0, 1):
        of_half = CONFIGS[half::2]
        ways = [tuple(value for name, value in config.items() if name != "array_bytes") for config in of_half]
        assert all(ways.count(way) == 2 for way in ways)


def slow_word(config: Config, at_byte: int) -> int:
    """Word by word, what an output holds."""
    reads, writes, size = int(config["reads"]), int(config["writes"]), int(config["array_bytes"])
    given = CASE.launch(config, False).arguments[0]
    assert isinstance(given, Repeated)

    def word(place: int) -> int:
        return int(given.window(place, 4).view(np.uint32)[0])

    if not writes:
        threads, unrolled, warp = int(config["threads"]), int(config["unrolled"]), at_byte // 4
        cta, warp = divmod(warp, threads // 32)
        first = cta * threads * unrolled * 16 + warp * 512
        return sum(word(first + i * threads * 16 + 4 * j) for i in range(unrolled) for j in range(128)) % 2**32
    array, start = divmod(at_byte, size)
    vector, lane = divmod(start // 4, 4)
    value = sum(word(number * size + start) for number in range(reads)) if reads else (vector, ~vector, 7, 9)[lane]
    return (value + (array if not lane else 0)) % 2**32


@pytest.mark.parametrize("config", CONFIGS[::5], ids=lambda config: f"{config['kernel']}-{config['threads']}")
def test_what_a_right_kernel_leaves_passes_and_a_wrong_byte_does_not(config: Config) -> None:
    out = case._out(config)
    assert isinstance(out, Windows)
    right = np.concatenate([case.expected(config, *window) for window in out.windows])
    assert CASE.check(config, {"out": right}) == {}
    wrong = right.copy()
    wrong[-1] ^= 1
    with pytest.raises(WrongAnswer, match="byte"):
        CASE.check(config, {"out": wrong})
    for offset, num_bytes in (out.windows[0], out.windows[-1]):
        found = case.expected(config, offset, num_bytes).view(np.uint32)
        for place in (0, 5, len(found) - 1):
            assert int(found[place]) == slow_word(config, offset + 4 * place)


@pytest.mark.parametrize("half", [0, 1])
def test_a_memory_that_is_known_gives_its_rates_back(half: int) -> None:
    read, write, more, queued = 4000.0, 3000.0, 0.25, 0.004
    rows = []
    for config in CONFIGS[half::2]:
        reads, writes, size = int(config["reads"]), int(config["writes"]), int(config["array_bytes"])
        turns, taken = 0.0, reads * size / read + writes * size / write
        if reads and writes:
            way = (str(reads), str(writes), config["unrolled"], config["threads"])
            for _ in range(50):  # what waits depends on how long it takes
                turns = more + queued * case.waiting_mb(way, reads * size, taken + turns * writes * size / write)
        slow = 1.1 if config["unrolled"] == "1" and not (reads and writes) else 1.0
        ns = slow * taken + turns * writes * size / write + 5000.0
        counts = {"dram__bytes_read.sum": reads * size, "dram__bytes_write.sum": writes * size, "gpu__time_duration.sum": ns}
        rows.append({**config, **{name: str(value) for name, value in counts.items()}})
    fitted = {item.parameter: item.value for item in CASE.fit(rows)}
    assert fitted == {
        "hbm.sustained_read_gb_per_s": pytest.approx(read), "hbm.sustained_write_gb_per_s": pytest.approx(write),
        "hbm.turnaround_fraction": pytest.approx(more), "hbm.queued_turnaround_per_mb": pytest.approx(queued),
    }
    assert all(parameter(GPU, name) for name in fitted) and CASE.fit([]) == []


def test_registers_and_loads_under_way_are_those_that_the_compiler_made(sass: Sass) -> None:
    kernels = sass("stream_grids", "sm_90a")
    for (reads, writes, unrolled), registers in case.REGISTERS.items():
        kernel = kernels[f"stream_r{reads}_w{writes}_u{unrolled}"]
        names = [item.name for item in kernel.instructions]
        assert kernel.num_registers == registers and kernel.num_spills == 0
        assert names.count("LDG") == reads * unrolled and names.count("STG") == (writes * unrolled or 1)
        if reads:
            assert names[: names.index("STG")].count("LDG") == reads * unrolled
