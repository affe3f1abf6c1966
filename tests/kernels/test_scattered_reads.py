"""Scattered reads: the check refuses a wrong answer, the pieces are those of the kernel, loads are under way together."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from gpusim.evidence.cases.case import Repeated, load_case
from gpusim.evidence.toolchain.sass import KernelSass

CASE = load_case("scattered_reads")
case = sys.modules[CASE.launch.__module__]
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]
Sass = Callable[[str, str], dict[str, KernelSass]]


def slow_mix(x: int) -> int:
    """Number by number."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ x >> shift) * factor % 2**32
    return x ^ x >> 16


def test_numbers_are_mixed_as_in_the_kernel() -> None:
    numbers = np.array([0, 1, 77, 2**31 + 5, 2**32 - 1], dtype=np.uint32)
    assert case.mixed(numbers).tolist() == [slow_mix(int(number)) for number in numbers]


@pytest.mark.parametrize("config", [CONFIGS[0], CONFIGS[12], CONFIGS[-1]], ids=lambda config: config["kernel"])
def test_the_sum_is_that_of_the_pieces(config: dict[str, str]) -> None:
    buffer = CASE.launch(config, False).arguments[0]
    assert isinstance(buffer, Repeated)
    piece_bytes, first = int(config["piece_bytes"]), 1000
    in_buffer = int(config["footprint_bytes"]) // piece_bytes
    total = 0
    for number in range(first):
        place = number % in_buffer if config["order"] == "ordered" else slow_mix(number) % in_buffer
        total += int(buffer.window(place * piece_bytes, piece_bytes).view(np.uint32).sum(dtype=np.uint64))
    sums, numbers = case.sums_of_pieces(piece_bytes), np.arange(first, dtype=np.uint32)
    places = numbers if config["order"] == "ordered" else case.mixed(numbers)
    assert int(sums[places & np.uint32(min(in_buffer, len(sums)) - 1)].sum(dtype=np.uint32)) == total % 2**32


def test_four_loads_are_under_way(sass: Sass) -> None:
    for name, kernel in sass("scattered_reads", "sm_90a").items():
        assert kernel.num_spills == 0, name
        assert all(loop.opcodes["LDG"] % case.LOADS_AT_ONCE == 0 for loop in kernel.loops)
        assert sum(bool(loop.opcodes["LDG"]) for loop in kernel.loops) >= 2
