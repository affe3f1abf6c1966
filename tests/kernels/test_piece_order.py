"""Orders of pieces: every vector is moved once, the check refuses a wrong byte, the twin is what the compiler made."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from gpusim.evidence.cases.case import load_case
from gpusim.evidence.toolchain.sass import KernelSass

CASE = load_case("piece_order")
case = sys.modules[CASE.launch.__module__]
CONFIGS = CASE.configs("orders", 1)
Sass = Callable[[str, str], dict[str, KernelSass]]


def test_every_vector_is_moved_once_down_the_rows_first() -> None:
    order = (1, 3, 2)  # pieces of two vectors, rows of eight, four rows
    places = case.place(np.arange(32), order)
    assert places[:10].tolist() == [0, 1, 8, 9, 16, 17, 24, 25, 2, 3]
    assert sorted(places.tolist()) == list(range(32))
    assert case.moved(places, order).tolist() == list(range(32))
    assert case.place(np.arange(5), (0, 0, 0)).tolist() == [0, 1, 2, 3, 4]


def test_registers_and_loads_are_those_that_the_compiler_made(sass: Sass) -> None:
    kernels = sass("piece_order", "sm_90a")
    for (way, unrolled), registers in case.REGISTERS.items():
        kernel = kernels[f"{way}_u{unrolled}"]
        names = [item.name for item in kernel.instructions]
        assert kernel.num_registers == registers and kernel.num_spills == 0
        first = min(names.index(name) for name in ("LDG", "STG") if name in names)
        assert names.count("LDG") == (unrolled if way != "write" else 0) and first == case.BEFORE_LOADS[way, unrolled]
