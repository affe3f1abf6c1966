"""A softmax of every row, by a warp or by a block: what does a kernel take that reads once, keeps a row and writes once?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.case import Case, Config, Group, KernelLaunch, Outputs, Repeated, Windows, WrongAnswer
from gpusim.evidence.whole import COUNTED, MIB, WIDTHS, RowSweep, floats, pattern, whole_kernel, windows

THREADS = 256
WARPS = THREADS // 32
SHAPES = (
    ("warp", "fp32", 1024), ("warp", "bf16", 1024), ("block", "fp32", 4096), ("block", "bf16", 4096),
    ("block", "fp32", 8192),
)  # fmt: skip
TIMED_SHAPES, TIMED_FROM_BYTES = SHAPES[:1], 64 * MIB
TOLERANCE = {"fp32": 2e-5, "bf16": 2.0**-8 + 1e-4}
"""Relative: of ``ex2.approx`` and of sums in another order; of bf16 its rounding to nearest, twice over."""


SWEEP = RowSweep(
    way="per", shapes=SHAPES, timed=TIMED_SHAPES, timed_from_bytes=TIMED_FROM_BYTES,
    kernel=lambda per, dtype, columns: f"softmax_{per}_{dtype}_{columns}",
)  # fmt: skip


def _shape(config: Config) -> tuple[int, int, int]:
    """(rows, columns, bytes of all)."""
    rows, columns = int(config["rows"]), int(config["columns"])
    return rows, columns, rows * columns * WIDTHS[config["dtype"]]


def _arguments(config: Config) -> tuple[Repeated, Windows]:
    _, columns, num_bytes = _shape(config)
    row_bytes = columns * WIDTHS[config["dtype"]]
    return (
        Repeated(pattern(config["dtype"]), num_bytes),  # type: ignore[arg-type]  # one of its words
        Windows("out", num_bytes, windows(num_bytes, unit_bytes=row_bytes)),
    )


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """A row for each block or each of its warps."""
    del is_counted  # the same launch
    rows, _, _ = _shape(config)
    return KernelLaunch(
        kernel=config["kernel"], arguments=_arguments(config),
        grid=(rows if config["per"] == "block" else rows // WARPS, 1, 1), block=(THREADS, 1, 1),
    )


def reference(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Softmax of the rows of ``x``."""
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Windows of whole rows, each value within the tolerance of its own size."""
    dtype, (_, columns, _) = config["dtype"], _shape(config)
    given, out = _arguments(config)
    for (offset, num_bytes), raw in zip(out.windows, out.split(outputs["out"]), strict=True):
        wanted = reference(floats(given.window(offset, num_bytes), dtype).reshape(-1, columns))
        found = floats(raw, dtype).reshape(-1, columns)
        is_off = ~(np.abs(found - wanted) <= TOLERANCE[dtype] * wanted)  # NaN is off, too
        if is_off.any():
            row, column = (int(place) for place in np.argwhere(is_off)[0])
            raise WrongAnswer(
                f"row {offset // (columns * WIDTHS[dtype]) + row}, column {column} is {found[row, column]:g}, wants "
                f"{wanted[row, column]:g}"
            )
    return {}


def options(config: Config) -> dict[str, object]:
    """As ``gpusim predict softmax`` takes them."""
    return {
        "rows": int(config["rows"]), "columns": int(config["columns"]), "per": config["per"], "dtype": config["dtype"],
        "threads": THREADS,
    }


CASE: Case = whole_kernel(
    name="softmax",
    question="What does a softmax by warps or blocks take, that reads once, keeps a row in registers and writes once?",
    model="softmax",
    columns=("per", "dtype", "rows", "columns"),
    groups={
        "sizes": Group(configs=SWEEP.of_sizes, metrics=COUNTED, rank=4, is_cold=True),
        "timed": Group(configs=SWEEP.of_timed, metrics=COUNTED, rank=4, is_cold=True, times=("single", "sustained")),
    },
    options=options,
    launch=launch,
    check=check,
)
