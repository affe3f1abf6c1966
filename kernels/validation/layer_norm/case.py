"""Layer normalization of every row, by a warp or by a block: what do two vectors cost that all rows read?"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import Case, Config, Group, Input, KernelLaunch, Outputs
from gpusim.evidence.cases.row_kernels import Values, check_rows, row_arrays, row_launch, row_options
from gpusim.evidence.cases.validation_kernel import COUNTED, MIB, RowSweep, floats, pattern, validation_case

SHAPES = (("warp", "fp32", 1024), ("warp", "bf16", 1024), ("block", "fp32", 4096), ("block", "bf16", 4096))
TIMED_SHAPES, TIMED_FROM_BYTES = SHAPES[1:2], 64 * MIB
ROUNDING = {"fp32": 0.0, "bf16": 2.0**-8}
"""Relative, of the result."""
TOLERANCE = 1e-4
"""Absolute: of sums in another order, ``rsqrtf`` and cancellation, for results of some units."""
EPSILON = 1e-5


SWEEP = RowSweep(
    way="per", shapes=SHAPES, timed=TIMED_SHAPES, timed_from_bytes=TIMED_FROM_BYTES,
    kernel=lambda per, dtype, columns: f"layer_norm_{per}_{dtype}_{columns}",
)  # fmt: skip


def weights(config: Config) -> tuple[NDArray[Any], NDArray[Any]]:
    """Both vectors."""
    columns = int(config["columns"])
    made = pattern(config["dtype"], seed=1)  # type: ignore[arg-type]  # one of its words
    return made[:columns], made[columns : 2 * columns]


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """A row for each block or each of its warps."""
    del is_counted  # the same launch
    given, out = row_arrays(config)
    gamma, beta = weights(config)
    return row_launch(config, (given, Input(gamma), Input(beta), out))


def reference(x: Values, gamma: Values, beta: Values) -> Values:
    """The rows of ``x``, normalized."""
    scale = 1.0 / np.sqrt(x.var(axis=1, keepdims=True) + EPSILON)
    return np.asarray((x - x.mean(axis=1, keepdims=True)) * scale * gamma + beta)


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Windows of whole rows."""
    dtype = config["dtype"]
    gamma, beta = (floats(np.ascontiguousarray(item).view(np.uint8), dtype) for item in weights(config))
    check_rows(
        config, outputs["out"], reference=lambda x: reference(x, gamma, beta),
        allowed=lambda wanted: TOLERANCE + ROUNDING[dtype] * np.abs(wanted),
    )  # fmt: skip
    return {}


CASE: Case = validation_case(
    Case(
        name="layer_norm",
        question="What does a layer normalization by warps or blocks take, whose rows all read two vectors?",
        columns=("per", "dtype", "rows", "columns"),
        groups={
            "sizes": Group(configs=SWEEP.of_sizes, metrics=COUNTED, rank=4, is_cold=True),
            "timed": Group(configs=SWEEP.of_timed, metrics=COUNTED, rank=4, is_cold=True, times=("single", "sustained")),
        },
        launch=launch,
        check=check,
    ),
    model="layer_norm",
    options=row_options,
)
