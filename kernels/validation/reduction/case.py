"""Sums of all rows or of all columns of an array: what does a kernel take that reads much and writes next to nothing?"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import Case, Config, Group, KernelLaunch, Output, Outputs, Repeated, WrongAnswer
from gpusim.evidence.cases.validation_kernel import COUNTED, MIB, PATTERN_BYTES, WIDTHS, RowSweep, pattern, validation_case

THREADS = 256
ROWS_PER_BLOCK = 64
"""Of the kernel that adds up columns."""
SHAPES = (
    ("row", "fp32", 4096), ("row", "bf16", 4096), ("row", "fp32", 1024), ("row", "fp32", 65536), ("column", "fp32", 4096),
    ("column", "bf16", 4096),
)  # fmt: skip
TIMED_SHAPES, TIMED_FROM_BYTES = SHAPES[:1], 64 * MIB
TOLERANCE = 1e-5
"""Of the sum of sizes: sums in fp32, in another order."""


SWEEP = RowSweep(
    way="axis", shapes=SHAPES, timed=TIMED_SHAPES, timed_from_bytes=TIMED_FROM_BYTES,
    kernel=lambda axis, dtype, _columns: f"reduction_{axis}_{dtype}",
)  # fmt: skip


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """A block a row, or a block for 64 rows of what a warp reads at once; sums of columns are added to zeros."""
    del is_counted  # the same launch
    rows, columns, width = int(config["rows"]), int(config["columns"]), WIDTHS[config["dtype"]]
    is_row = config["axis"] == "row"
    num_blocks = rows if is_row else rows // ROWS_PER_BLOCK * (columns // (32 * 16 // width))
    return KernelLaunch(
        kernel=config["kernel"],
        arguments=(
            Repeated(pattern(config["dtype"]), rows * columns * width),  # type: ignore[arg-type]  # one of its words
            Output("out", np.full(rows, np.nan, dtype="<f4") if is_row else np.zeros(columns, dtype="<f4")),
            np.int32(columns),
        ),
        grid=(num_blocks, 1, 1), block=(THREADS, 1, 1),
    )  # fmt: skip


@cache
def sums(axis: str, dtype: str, rows: int, columns: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(sums, sums of sizes) along ``axis``, float64: of what the pattern has, and then as often as it is repeated."""
    made = pattern(dtype)  # type: ignore[arg-type]  # one of its words
    values = made if dtype == "fp32" else (made.astype("<u4") << 16).view("<f4")
    there = min(rows, PATTERN_BYTES // (columns * WIDTHS[dtype]))
    block, along = values[: there * columns].reshape(there, columns), int(axis == "row")
    both = block.sum(axis=along, dtype=np.float64), np.abs(block).sum(axis=along, dtype=np.float64)
    times = rows // there
    return tuple(np.tile(part, times) if along else times * part for part in both)  # type: ignore[return-value]  # of two


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """All sums."""
    wanted, sizes_of = sums(config["axis"], config["dtype"], int(config["rows"]), int(config["columns"]))
    found = outputs["out"].astype(np.float64)
    is_off = ~(np.abs(found - wanted) <= TOLERANCE * sizes_of)  # NaN is off, too
    if is_off.any():
        place = int(np.argmax(is_off))
        raise WrongAnswer(f"the sum of {config['axis']} {place} is {found[place]:g}, wants {wanted[place]:g}")
    return {}


def options(config: Config) -> dict[str, object]:
    """As ``gpusim predict reduction`` takes them."""
    return {
        "rows": int(config["rows"]), "columns": int(config["columns"]), "axis": config["axis"], "dtype": config["dtype"],
        "threads": THREADS, "rows_per_cta": ROWS_PER_BLOCK,
    }


CASE: Case = validation_case(
    Case(
        name="reduction",
        question="What do the sums of all rows or columns of an array take?",
        columns=("axis", "dtype", "rows", "columns"),
        groups={
            "sizes": Group(configs=SWEEP.of_sizes, metrics=COUNTED, rank=4, is_cold=True),
            "timed": Group(configs=SWEEP.of_timed, metrics=COUNTED, rank=4, is_cold=True, times=("single", "sustained")),
        },
        launch=launch,
        check=check,
    ),
    model="reduction",
    options=options,
)
