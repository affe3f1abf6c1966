"""What does the library behind torch.matmul launch for a product, what does that move and take?"""

from __future__ import annotations

import random

from gpusim.evidence.cases.case import Case, Config, Product
from gpusim.evidence.cases.gemm_case import check, product_case, product_group
from gpusim.evidence.toolchain.cublas_kernels import FACTS, name_facts, options

COLUMNS = ("m", "n", "k", "dtype", "layout")

LARGE = (
    *((side, side, side, "bf16", "tn") for side in (2048, 4096, 8192, 16384)),
    (4096, 4096, 4096, "bf16", "tt"), (8192, 8192, 1024, "bf16", "tt"),
    (2048, 16384, 2048, "bf16", "tn"), (16384, 4096, 4096, "bf16", "tn"),
    (4000, 3000, 2000, "bf16", "tn"), (5000, 5000, 5000, "bf16", "tn"),
    (4096, 4096, 4096, "fp16", "tn"), (8192, 8192, 8192, "fp16", "tn"),
)  # fmt: skip
"""M, N, K, type, layout: squares, both layouts, unequal sides, edges."""

SMALL = (
    (512, 512, 512, "bf16", "tn"), (1024, 1024, 1024, "bf16", "tn"),
    (16, 4096, 4096, "bf16", "tn"), (64, 8192, 8192, "bf16", "tn"),
    (128, 8192, 4096, "bf16", "tn"), (256, 4096, 8192, "bf16", "tn"),
    (512, 512, 16384, "bf16", "tn"), (1024, 1024, 16384, "bf16", "tn"),
)  # fmt: skip
"""Few rows, deep K, little to do."""

MORE_SEED = 20261122
"""By whose numbers :data:`MORE` was drawn, before any of it had a prediction or a row."""

MORE_OF_A_CLASS = 4


def drawn(seed: int) -> tuple[tuple[int, int, int, str, str], ...]:
    """Four shapes of each class: square, skinny (few rows), deep K, ragged (sides that no tile divides); bf16.

    None is one of :data:`LARGE` or :data:`SMALL`. Sides of a ragged one are multiples of 8: rows of 16 bytes.
    """
    numbers, known = random.Random(seed), {*LARGE, *SMALL}

    def steps(least: int, most: int, step: int) -> int:
        return step * numbers.randint(least // step, most // step)

    def square() -> tuple[int, int, int]:
        return (steps(768, 6144, 256),) * 3

    def skinny() -> tuple[int, int, int]:
        return steps(8, 256, 8), steps(2048, 16384, 1024), steps(2048, 8192, 1024)

    def deep() -> tuple[int, int, int]:
        return steps(256, 1024, 128), steps(256, 1024, 128), steps(8192, 32768, 2048)

    def ragged() -> tuple[int, int, int]:
        return steps(1000, 6000, 8), steps(1000, 6000, 8), steps(1000, 4000, 8)

    found: list[tuple[int, int, int, str, str]] = []
    for make in (square, skinny, deep, ragged):
        wanted = len(found) + MORE_OF_A_CLASS
        while len(found) < wanted:
            shape = (*make(), "bf16", numbers.choice(("tn", "tt")))
            if shape not in known:
                known.add(shape)
                found.append(shape)
    return tuple(found)


MORE = drawn(MORE_SEED)

def configs(shapes: tuple[tuple[int, int, int, str, str], ...]) -> list[Config]:
    """One a shape; no seed draws any."""
    return [{"kernel": "matmul", **dict(zip(COLUMNS, map(str, shape), strict=True))} for shape in shapes]


def large(seed: int) -> list[Config]:
    """Products of a tenth of a millisecond and more."""
    del seed
    return configs(LARGE)


def small(seed: int) -> list[Config]:
    """Shorter ones."""
    del seed
    return configs(SMALL)


def more(seed: int) -> list[Config]:
    """Sixteen that a seed of their own draws; first predictions are of names and launches alone (``--names-only``)."""
    del seed
    return configs(MORE)


def launch(config: Config, is_counted: bool) -> Product:
    """The same product under the profiler as without."""
    del is_counted
    m, n, k = (int(config[name]) for name in "mnk")
    return Product(m=m, n=n, k=k, dtype=config["dtype"], layout=config["layout"])  # type: ignore[arg-type]  # of the tables


def families(group: str, config: Config) -> tuple[str, ...]:
    """By size, and what was drawn later."""
    del config
    return (f"library_gemm {group}",)


CASE = product_case(
    Case(
        name="library_gemm",
        question=__doc__,
        framework="torch",
        columns=COLUMNS,
        groups={"large": product_group(large), "small": product_group(small), "more": product_group(more)},
        launch=launch,
        text_columns=name_facts,
        families=families,
        values=FACTS,
        check=check,
    ),
    options=options,
    dtype=lambda config: config["dtype"],
)
