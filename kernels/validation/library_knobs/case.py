"""What does the library behind torch launch for other types, layouts, epilogues, batches and rows that are not aligned?"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from gpusim.evidence.bench.library_gemms import INTEGER_SCALE
from gpusim.evidence.cases.case import Case, Config, Outputs, Product
from gpusim.evidence.cases.gemm_case import ROUNDING, check_sums, product_case, product_group
from gpusim.evidence.toolchain.cublas_kernels import FACTS, KNOBS, name_facts, options

SEED = 20261203
"""Seed of all configs. It was chosen before any of them was predicted or measured."""

COLUMNS = ("m", "n", "k", "dtype", "layout", *KNOBS)
USUAL = {"batch": 1, "batch_mode": "strided", "alpha": 1.0, "beta": 0.0, "bias": "no", "activation": "none"}

LAYOUTS = ("tn", "tt", "nn", "nt")
EPILOGUES: tuple[Mapping[str, object], ...] = (
    {"alpha": 2.0}, {"beta": 1.0}, {"alpha": 0.5, "beta": 2.0}, {"bias": "yes"}, {"bias": "yes", "activation": "relu"},
    {"bias": "yes", "activation": "gelu"},
)  # fmt: skip
BATCHES = (4, 8, 16, 32, 64)
OF_EPILOGUE, OF_BATCH_MODE, OF_ALIGNMENT, OF_TYPE = 2, 6, 4, 3
SLIM = (("m", 1), ("m", 1), ("m", 4), ("m", 8), ("n", 1), ("n", 1), ("n", 8), ("n", 8))
"""Extents that are fixed in the group ``slim``."""

Draw = Callable[[random.Random], list[Config]]


def config_of(m: int, n: int, k: int, dtype: str, layout: str, **knobs: object) -> Config:
    """A config as text; knobs that are not given have their usual values."""
    values = (m, n, k, dtype, layout, *{**USUAL, **knobs}.values())
    return {"kernel": "matmul", **dict(zip(COLUMNS, map(str, values), strict=True))}


def extent(numbers: random.Random, least: int, most: int, step: int) -> int:
    """A multiple of ``step``."""
    return step * numbers.randint(-(-least // step), most // step)


def types(numbers: random.Random) -> list[Config]:
    """tf32, fp32, int8 and fp8; the library takes 8-bit operands that are contiguous along K."""
    found = []
    for dtype in ("tf32", "fp32", "int8", "fp8"):
        for _ in range(OF_TYPE):
            m, n, k = (extent(numbers, 512, 6144 if dtype != "fp32" else 4096, 128) for _ in "mnk")
            layout = numbers.choice(LAYOUTS) if dtype in ("tf32", "fp32") else "tn"
            found.append(config_of(m, n, k, dtype, layout))
    return found


def epilogues(numbers: random.Random) -> list[Config]:
    """alpha, beta, bias and activations."""
    found = []
    for knobs in EPILOGUES:
        for _ in range(OF_EPILOGUE):
            m, n, k = (extent(numbers, 512, 5000, 8) for _ in "mnk")
            found.append(config_of(m, n, k, numbers.choice(("bf16", "fp16")), numbers.choice(("tn", "tt")), **knobs))
    return found


def batches(numbers: random.Random) -> list[Config]:
    """Batches at a stride, and at addresses in arrays."""
    found = []
    for mode in ("strided", "array"):
        for _ in range(OF_BATCH_MODE):
            m, n, k = extent(numbers, 128, 1536, 64), extent(numbers, 128, 1536, 64), extent(numbers, 64, 1024, 64)
            dtype, layout = numbers.choice(("bf16", "bf16", "fp16", "tf32")), numbers.choice(("tn", "tt"))
            found.append(config_of(m, n, k, dtype, layout, batch=numbers.choice(BATCHES), batch_mode=mode))
    return found


def layouts(numbers: random.Random) -> list[Config]:
    """nn, nt and tt on tensor cores."""
    kinds = [(dtype, layout) for layout in ("nn", "nt", "tt") for dtype in ("bf16", "fp16")]
    return [
        config_of(*(extent(numbers, 1024, 6144, 64) for _ in "mnk"), dtype, layout)
        for dtype, layout in [*kinds, ("tf32", "nn"), ("tf32", "nt")]
    ]


def unaligned(numbers: random.Random) -> list[Config]:
    """Rows that are aligned to four, two and one elements of 16 bits: extents are odd multiples of that."""
    found = []
    for elements in (4, 2, 1):
        for _ in range(OF_ALIGNMENT):
            m, n, k = (elements * (2 * numbers.randint(700 // (2 * elements), 4800 // (2 * elements)) + 1) for _ in "mnk")
            found.append(config_of(m, n, k, numbers.choice(("bf16", "fp16")), numbers.choice(("tn", "tt"))))
    return found


def slim(numbers: random.Random) -> list[Config]:
    """One to eight rows or columns."""
    found = []
    for fixed, size in SLIM:
        sizes = {name: extent(numbers, 2048, 12288, 256) for name in "mnk"} | {fixed: size}
        found.append(config_of(*sizes.values(), numbers.choice(("bf16", "fp16")), numbers.choice(("tn", "tt"))))
    return found


@cache
def drawn() -> Mapping[str, list[Config]]:
    """Configs of each group, all by one seed."""
    return {make.__name__: make(random.Random(f"{SEED} {make.__name__}")) for make in GROUPS}


GROUPS: tuple[Draw, ...] = (types, epilogues, batches, layouts, unaligned, slim)


def group(make: Draw) -> Any:
    """A group whose configs no other seed changes."""
    return product_group(lambda seed: drawn()[make.__name__])


def launch(config: Config, is_counted: bool) -> Product:
    """GEMM of a config, under the profiler as without."""
    del is_counted
    m, n, k, batch = (int(config[name]) for name in ("m", "n", "k", "batch"))
    return Product(
        m=m, n=n, k=k, dtype=config["dtype"], layout=config["layout"], batch=batch,  # type: ignore[arg-type]  # drawn
        batch_mode=config["batch_mode"], alpha=float(config["alpha"]), beta=float(config["beta"]),  # type: ignore[arg-type]
        bias=config["bias"] == "yes", activation=config["activation"],  # type: ignore[arg-type]  # drawn
    )  # fmt: skip


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Largest error of the sample, as a fraction of the allowed error. Sums of fp8 keep some 13 bits."""
    k, size = int(config["k"]), abs(float(config["alpha"]))
    size *= INTEGER_SCALE**2 if config["dtype"] == "int8" else 1.0
    spare = 0.25 * ROUNDING + (k / 32 * 2.0**-13 if config["dtype"] == "fp8" else 0.0)
    return check_sums(outputs, spare=size * math.sqrt(k) * spare)


CASE = product_case(
    Case(
        name="library_knobs",
        question=__doc__,
        framework="torch",
        columns=COLUMNS,
        groups={make.__name__: group(make) for make in GROUPS},
        launch=launch,
        text_columns=name_facts,
        families=lambda name, config: (f"library_knobs {name}",),
        values=FACTS,
        check=check,
    ),
    options=options,
    dtype=lambda config: config["dtype"],
)
