"""A softmax of every row, by a warp or by a block: what does a kernel take that reads once, keeps a row and writes once?"""

from __future__ import annotations

import numpy as np

from gpusim.evidence.cases.case import Case, Config, Group, KernelLaunch, Outputs
from gpusim.evidence.cases.row_kernels import Values, check_rows, row_arrays, row_launch, row_options
from gpusim.evidence.cases.validation_kernel import COUNTED, MIB, RowSweep, validation_case

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


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """A row for each block or each of its warps."""
    del is_counted  # the same launch
    return row_launch(config, row_arrays(config))


def reference(x: Values) -> Values:
    """Softmax of the rows of ``x``."""
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Windows of whole rows, each value within the tolerance of its own size."""
    check_rows(config, outputs["out"], reference=reference, allowed=lambda wanted: TOLERANCE[config["dtype"]] * wanted)
    return {}


CASE: Case = validation_case(
    Case(
        name="softmax",
        question="What does a softmax by warps or blocks take, that reads once, keeps a row in registers and writes once?",
        columns=("per", "dtype", "rows", "columns"),
        groups={
            "sizes": Group(configs=SWEEP.of_sizes, metrics=COUNTED, rank=4, is_cold=True),
            "timed": Group(configs=SWEEP.of_timed, metrics=COUNTED, rank=4, is_cold=True, times=("single", "sustained")),
        },
        launch=launch,
        check=check,
    ),
    model="softmax",
    options=row_options,
)
