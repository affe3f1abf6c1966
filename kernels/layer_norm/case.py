"""Layer normalization of every row, by a warp or by a block: what do two vectors cost that all rows read?"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.case import Case, Config, Group, Input, KernelLaunch, Outputs, Repeated, Windows, WrongAnswer
from gpusim.evidence.whole import COUNTED, MIB, WIDTHS, RowSweep, floats, pattern, whole_kernel, windows

THREADS = 256
WARPS = THREADS // 32
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


def _shape(config: Config) -> tuple[int, int, int]:
    """(rows, columns, bytes of all)."""
    rows, columns = int(config["rows"]), int(config["columns"])
    return rows, columns, rows * columns * WIDTHS[config["dtype"]]


def weights(config: Config) -> tuple[NDArray[Any], NDArray[Any]]:
    """Both vectors."""
    columns = int(config["columns"])
    made = pattern(config["dtype"], seed=1)  # type: ignore[arg-type]  # one of its words
    return made[:columns], made[columns : 2 * columns]


def _arguments(config: Config) -> tuple[Repeated, Input, Input, Windows]:
    _, columns, num_bytes = _shape(config)
    row_bytes = columns * WIDTHS[config["dtype"]]
    gamma, beta = weights(config)
    return (
        Repeated(pattern(config["dtype"]), num_bytes),  # type: ignore[arg-type]  # one of its words
        Input(gamma), Input(beta),
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


def reference(x: NDArray[np.float64], gamma: NDArray[np.float64], beta: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rows of ``x``, normalized."""
    scale = 1.0 / np.sqrt(x.var(axis=1, keepdims=True) + EPSILON)
    return np.asarray((x - x.mean(axis=1, keepdims=True)) * scale * gamma + beta)


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Windows of whole rows."""
    dtype, (_, columns, _) = config["dtype"], _shape(config)
    given, _, _, out = _arguments(config)
    gamma, beta = (floats(np.ascontiguousarray(item).view(np.uint8), dtype) for item in weights(config))
    for (offset, num_bytes), raw in zip(out.windows, out.split(outputs["out"]), strict=True):
        wanted = reference(floats(given.window(offset, num_bytes), dtype).reshape(-1, columns), gamma, beta)
        found = floats(raw, dtype).reshape(-1, columns)
        is_off = ~(np.abs(found - wanted) <= TOLERANCE + ROUNDING[dtype] * np.abs(wanted))  # NaN is off, too
        if is_off.any():
            row, column = (int(place) for place in np.argwhere(is_off)[0])
            raise WrongAnswer(
                f"row {offset // (columns * WIDTHS[dtype]) + row}, column {column} is {found[row, column]:g}, wants "
                f"{wanted[row, column]:g}"
            )
    return {}


def options(config: Config) -> dict[str, object]:
    """As ``gpusim predict layer_norm`` takes them."""
    return {
        "rows": int(config["rows"]), "columns": int(config["columns"]), "per": config["per"], "dtype": config["dtype"],
        "threads": THREADS,
    }


CASE: Case = whole_kernel(
    name="layer_norm",
    question="What does a layer normalization by warps or blocks take, whose rows all read two vectors?",
    model="layer_norm",
    columns=("per", "dtype", "rows", "columns"),
    groups={
        "sizes": Group(configs=SWEEP.of_sizes, metrics=COUNTED, rank=4, is_cold=True),
        "timed": Group(configs=SWEEP.of_timed, metrics=COUNTED, rank=4, is_cold=True, times=("single", "sustained")),
    },
    options=options,
    launch=launch,
    check=check,
)
