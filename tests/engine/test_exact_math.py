"""Functions of floats: as accurate as the C library's, and the same bits in Python and in the engine."""

from __future__ import annotations

import importlib.util
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim.machine import exact_math as numeric

from . import normal
from . import order_statistics as draws

ENGINE = Path(__file__).resolve().parents[2] / "engine"
NUM_POINTS = 10_000
EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-320, 5e-324, 2.3e-308, 1.7e308, math.inf, -math.inf, math.nan)


def units_apart(found: float, wanted: float) -> float:
    """In units in the last place of what is wanted."""
    return 0.0 if found == wanted else abs(found - wanted) / math.ulp(wanted)


def points(low: float, high: float, *, num: int = NUM_POINTS) -> list[float]:
    drawn = random.Random(7)
    return [drawn.uniform(low, high) for _ in range(num)]


def powers_of_ten(low: float, high: float) -> list[float]:
    return [10.0**exponent for exponent in points(low, high)]


STANDARD = NormalDist()


@pytest.mark.parametrize(
    ("found", "wanted", "at", "units"),
    [
        (numeric.exp, math.exp, points(-1.0, 1.0), 1.0),
        (numeric.exp, math.exp, points(-745.0, 709.7), 1.0),
        (numeric.log, math.log, points(1e-3, 2.0), 1.0),
        (numeric.log, math.log, powers_of_ten(-320.0, 308.0), 1.0),
        (normal.erf, math.erf, points(-6.0, 6.0), 4.0),
        (normal.erfc, math.erfc, points(-6.0, 26.0), 8.0),
        (normal.normal_cdf, STANDARD.cdf, points(-1.0, 6.0), 8.0),
        (normal.normal_inverse_cdf, STANDARD.inv_cdf, points(1e-3, 1.0 - 1e-3), 6.0),
        (normal.normal_inverse_cdf, STANDARD.inv_cdf, powers_of_ten(-300.0, -1e-3), 6.0),
    ],
)
def test_functions_of_one_number_are_right_within_few_units(
    found: Callable[[float], float], wanted: Callable[[float], float], at: Sequence[float], units: float
) -> None:
    assert max(units_apart(found(x), wanted(x)) for x in at) <= units


def test_a_power_is_right_within_two_units_for_each_unit_of_its_logarithm() -> None:
    for x, y in zip(points(1e-6, 2.0), points(-20.0, 40.0), strict=True):
        assert units_apart(numeric.power(x, y), x**y) <= 2.0 * (1.0 + abs(y * math.log(x)))
    for x, num in zip(points(0.5, 1.0), range(4096), strict=False):
        assert numeric.power(x, float(num)) == numeric.whole_power(x, num)
        assert units_apart(numeric.whole_power(x, num), x**num) <= 1.0 + num


def test_a_length_is_right_within_one_unit() -> None:
    for x, y in zip(points(-1e4, 1e4), points(0.0, 1e5), strict=True):
        assert units_apart(normal.hypot(x, y), math.hypot(x, y)) <= 1.0


def test_edges_are_what_they_are_elsewhere() -> None:
    assert [numeric.exp(x) for x in (-math.inf, -746.0, 0.0, 710.0, math.inf)] == [0.0, 0.0, 1.0, math.inf, math.inf]
    assert [numeric.log(x) for x in (0.0, 1.0, math.inf)] == [-math.inf, 0.0, math.inf]
    assert math.isnan(numeric.log(-1.0)) and math.isnan(numeric.log(math.nan)) and math.isnan(numeric.exp(math.nan))
    assert numeric.exp(-744.0) == pytest.approx(math.exp(-744.0), abs=5e-324)
    assert (numeric.exp(709.78), numeric.exp(709.2)) == (
        pytest.approx(math.exp(709.78), rel=1e-15), pytest.approx(math.exp(709.2), rel=1e-15)
    )  # fmt: skip
    assert [numeric.power(*each) for each in ((0.0, 0.3), (0.3, 0.0), (1.0, 1e300), (0.0, 0.0), (0.0, 2.0))] == [
        0.0, 1.0, 1.0, 1.0, 0.0,
    ]  # fmt: skip
    assert [normal.erf(x) for x in (0.0, 6.0, -6.0, 1e9)] == [0.0, 1.0, -1.0, 1.0]
    assert [normal.normal_inverse_cdf(x) for x in (0.0, 0.5, 1.0)] == [-math.inf, 0.0, math.inf]
    assert math.isnan(normal.normal_inverse_cdf(1.5))


# ------------------------------------------------------------------------------------------ what is slowest


def on_average(drawn: NDArray[np.float64]) -> float:
    return float(drawn.max(axis=1).mean())


@pytest.mark.parametrize("num", [2, 16, 200])
def test_the_most_of_normal_draws_is_what_is_drawn(num: int) -> None:
    drawn = np.random.default_rng(3).standard_normal((20_000, num))
    assert draws.expected_max(num) == pytest.approx(on_average(drawn), abs=0.02)


@pytest.mark.parametrize(
    ("rows", "steps", "fraction", "refresh"), [(16, 32, 0.1, 8.0), (256, 10, 0.1, 0.0), (3, 60, 0.5, 2.0)]
)
def test_the_slowest_of_queue_and_refresh_is_what_is_drawn(rows: int, steps: int, fraction: float, refresh: float) -> None:
    draw, shape = np.random.default_rng(5), (20_000, rows)
    waits = np.where(draw.random(shape) < steps / 64, draw.exponential(1.0, shape), 0.0)
    waits += np.where(draw.random(shape) < fraction, draw.random(shape) * refresh, 0.0)
    assert draws.slowest_of_both(rows, steps, fraction, refresh) == pytest.approx(on_average(waits), rel=0.02)


def test_many_turns_of_writes_have_a_distribution_yet() -> None:
    assert draws.slowest_beside_writes(1.0, (0.0, 0.0), 40_000.0, 50.0) == pytest.approx(40_000.0, rel=1e-2)


# ------------------------------------------------------------------------------------------ the engine's

WRAPPER = """
#include <stddef.h>
#include "numeric.h"
#include "order_statistics.h"

namespace gpusim {
alignas(16) static unsigned char heap[1 << 26];
static size_t used = 0;
void* memory_allocate(size_t num_bytes) { void* found = heap + used; used += (num_bytes + 15) & ~size_t(15); return found; }
void memory_release(void*, size_t) {}
}
static double numbers[5 * 10240];
extern "C" {
__attribute__((export_name("place"))) double* place() { return numbers; }
__attribute__((export_name("answer"))) void answer(int which, int num) {
  using namespace gpusim;
  for (int idx = 0; idx < num; idx++) {
    double* at = numbers + 5 * idx;
    double a = at[0], b = at[1], c = at[2], d = at[3], e = at[4];
    switch (which) {
      case 0: at[0] = exp(a); break;
      case 1: at[0] = log(a); break;
      case 2: at[0] = power(a, b); break;
      case 3: at[0] = erf(a); break;
      case 4: at[0] = hypot(a, b); break;
      case 5: at[0] = normal_inverse_cdf(a); break;
      case 6: at[0] = normal_cdf(a); break;
      case 7: at[0] = erfc(a); break;
      case 8: at[0] = whole_power(a, int(b)); break;
      case 9: at[0] = expected_max(int(a)); break;
      case 10: at[0] = slowest_wait(int(a), int(b)); break;
      case 11: at[0] = slowest_of_both(int(a), int(b), c, d); break;
      case 12: at[0] = slowest_beside_writes(a, b, c, d, e); break;
    }
  }
}
}
"""

FLAGS = (
    "-target", "wasm32-freestanding", "-std=c++17", "-O2", "-ffp-contract=off", "-fno-exceptions", "-fno-rtti",
    "-fno-c++-static-destructors", "-nostdlib++", "-nostdinc++", "-Wall", "-Wextra", "-Werror", "-Wl,--no-entry",
)  # fmt: skip

Engine = Callable[[int, Sequence[tuple[float, ...]]], list[float]]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """Answers of the engine's functions, by number."""
    for name in ("ziglang", "wasmtime"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed: pip install {name}")
    import wasmtime

    root = tmp_path_factory.mktemp("numeric")
    (root / "wrapper.cpp").write_text(WRAPPER)
    sources = [str(root / "wrapper.cpp"), *(str(ENGINE / f"{name}.cpp") for name in ("numeric", "order_statistics"))]
    cache = os.environ.get("ZIG_GLOBAL_CACHE_DIR", str(Path(tempfile.gettempdir()) / "gpusim_zig"))
    ran = subprocess.run(
        [sys.executable, "-m", "ziglang", "c++", *FLAGS, "-I", str(ENGINE), *sources, "-o", str(root / "numeric.wasm")],
        env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    store: Any = wasmtime.Store()
    module = wasmtime.Module.from_file(store.engine, str(root / "numeric.wasm"))
    assert not list(module.imports)
    instance = wasmtime.Instance(store, module, [])
    exports: Any = instance.exports(store)
    place = exports["place"](store)

    def ask(which: int, arguments: Sequence[tuple[float, ...]]) -> list[float]:
        rows = np.zeros((len(arguments), 5))
        for row, each in zip(rows, arguments, strict=True):
            row[: len(each)] = each
        exports["memory"].write(store, rows.astype("<f8").tobytes(), place)
        exports["answer"](store, which, len(rows))
        found = exports["memory"].read(store, place, place + rows.nbytes)
        answers: list[float] = np.frombuffer(found, dtype="<f8")[::5].tolist()
        return answers

    return ask


def bits(values: Sequence[float]) -> list[int | str]:
    """What tells floats apart, -0.0 from 0.0 too; numbers that are none are alike."""
    return ["nan" if math.isnan(x) else struct.unpack("<q", struct.pack("<d", x))[0] for x in values]


ONE = points(-1.0, 1.0, num=2500)
WIDE = points(-750.0, 750.0, num=2500)
SMALL = [10.0**x for x in points(-323.0, 308.0, num=2500)]
CHANCES = [*points(0.0, 1.0, num=5000), *(10.0**x for x in points(-300.0, 0.0, num=2500))]


@pytest.mark.parametrize(
    ("which", "found", "arguments"),
    [
        (0, numeric.exp, [*ONE, *WIDE, *(-x for x in SMALL), *points(-30.0, 0.0, num=2500), *EDGES]),
        (1, numeric.log, [*points(0.0, 2.0, num=5000), *SMALL, *points(0.0, 1e6, num=2500), *EDGES]),
        (3, normal.erf, [*ONE, *points(-7.0, 7.0, num=7500), *EDGES]),
        (5, normal.normal_inverse_cdf, [*CHANCES, *(1.0 - x for x in CHANCES[:2500]), *EDGES]),
        (6, normal.normal_cdf, [*ONE, *points(-9.0, 9.0, num=7500), *EDGES]),
        (7, normal.erfc, [*ONE, *points(-7.0, 30.0, num=7500), *EDGES]),
    ],
)
def test_the_engine_gives_the_same_bits(
    engine: Engine, which: int, found: Callable[[float], float], arguments: Sequence[float]
) -> None:
    assert len(arguments) >= NUM_POINTS
    assert bits(engine(which, [(x,) for x in arguments])) == bits([found(x) for x in arguments])


def test_the_engine_gives_the_same_bits_for_powers_and_lengths(engine: Engine) -> None:
    pairs = list(zip([*points(0.0, 1.0, num=5000), *points(0.0, 40.0, num=5000)], points(-2.0, 60.0), strict=True))
    pairs += [(x, float(num)) for x, (_, num) in zip(ONE, enumerate(range(4200)), strict=False)]
    pairs = [(abs(x), y) for x, y in pairs][:10_200] + [(abs(x), y) for x in EDGES for y in (0.0, 1.0, 2.5)]
    for which, found in ((2, numeric.power), (4, normal.hypot)):
        assert bits(engine(which, pairs)) == bits([found(x, y) for x, y in pairs])
    whole = [(x, float(num % 5000)) for num, x in enumerate(points(-1.1, 1.1))]
    assert bits(engine(8, whole)) == bits([numeric.whole_power(x, int(num)) for x, num in whole])


def test_the_engine_gives_the_same_bits_for_what_is_slowest(engine: Engine) -> None:
    drawn = random.Random(11)
    nums = [(float(num),) for num in range(draws.MOST_LINES + 1)]
    assert bits(engine(9, nums)) == bits([draws.expected_max(int(num)) for (num,) in nums])
    waits = [(float(drawn.randint(1, draws.MOST_LINES)), float(drawn.randint(0, draws.SHARE_STEPS))) for _ in range(3000)]
    assert bits(engine(10, waits)) == bits([draws.slowest_wait(int(num), int(steps)) for num, steps in waits])
    both = [
        (
            float(drawn.randint(1, draws.MOST_LINES)), float(drawn.randint(0, draws.SHARE_STEPS)),
            drawn.choice((0.0, 0.118)),
            round(drawn.choice((0.0, drawn.uniform(0.0, 3.0), drawn.uniform(0.0, 900.0))), 1),
        )
        for _ in range(5000)
    ]  # fmt: skip
    wanted = [draws.slowest_of_both(int(rows), int(steps), fraction, refresh) for rows, steps, fraction, refresh in both]
    assert bits(engine(11, both)) == bits(wanted)
    assert all(math.isfinite(each) for each in wanted)
    beside = [
        (
            drawn.randint(4, 4 * draws.MOST_LINES) / 4, drawn.choice((0.0, 0.118)), drawn.choice((0.0, 530.0)),
            drawn.randint(1, 400) * 60.0 / 8, 60.0,
        )
        for _ in range(3000)
    ]  # fmt: skip
    wanted = [draws.slowest_beside_writes(num, (chance, wait), mean, turn) for num, chance, wait, mean, turn in beside]
    assert bits(engine(12, beside)) == bits(wanted)
    assert all(math.isfinite(each) for each in wanted)
    assert bits(engine(12, beside)) == bits(wanted)  # kept answers are the same
