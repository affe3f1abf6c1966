"""Parameters of a GPU's clock and power from the clocks and watts of measured runs, all at once.

In: rows, what a power limiter is off by for a row. Out: the values with the least squares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.machine.clock import ClockSpec, PowerLimiter

NUM_STEPS, STEP, LEFT_OUT = 40, 1e-3, 10.0
"""Steps of the search, relative change of a value for its slope, improvement for which a row is left out."""


def limiter(highest_mhz: float, values: Mapping[str, float]) -> PowerLimiter:
    """The machine's part with these parameters of ``clock``, those with a class as ``name.class``; others have no effect."""
    off = dict.fromkeys((
        "power_limit_w", "single_power_w", "single_power_delay_us", "tensor_burst_mhz_us", "tensor_rest_us",
        "load_line_mhz_per_w", "l2_clock_coupling_fraction", "mma_sync_extra_fraction", "smem_pj_per_byte",
        "fp32_pj_per_flop", "bulk_pj_per_byte", "fill_pj_per_byte",
    ), 0.0)  # fmt: skip
    off["min_mhz"] = 0.1 * highest_mhz
    off |= dict.fromkeys(("tensor_mhz", "tensor_min_mhz"), highest_mhz)
    tensor = {name.partition(".")[2]: value for name, value in values.items() if "." in name}
    others: dict[str, Any] = off | {name: value for name, value in values.items() if "." not in name}
    return PowerLimiter(ClockSpec(max_mhz=highest_mhz, tensor_pj_per_flop=tensor, **others))


Errors = Callable[[NDArray[np.float64], Sequence[Mapping[str, str]]], NDArray[np.float64]]
"""(values, rows) to what each row is off by."""


def least_squares(
    begin: Mapping[str, float], limiter_of: Callable[[dict[str, float]], PowerLimiter],
    off_by: Callable[[PowerLimiter, Mapping[str, str]], float], rows: Sequence[Mapping[str, str]],
) -> dict[str, float]:
    """Values with the least squares of ``off_by``, from ``begin`` on; none where the rows do not tell all of them.

    A row without which the others agree ten times better is left out.
    """

    def errors_of(values: NDArray[np.float64], some: Sequence[Mapping[str, str]]) -> NDArray[np.float64]:
        model = limiter_of(dict(zip(begin, map(float, values), strict=True)))
        return np.array([off_by(model, row) for row in some])

    solved = _descend(np.array(list(begin.values())), errors_of, rows)
    if solved is None:
        return {}
    off = np.abs(errors_of(solved, rows))
    others = [row for idx, row in enumerate(rows) if idx != int(off.argmax())]
    without = _descend(solved, errors_of, others)
    if without is not None and LEFT_OUT * np.square(errors_of(without, others)).sum() < np.square(off).sum():
        solved = without
    return dict(zip(begin, map(float, solved), strict=True))


def _descend(
    values: NDArray[np.float64], errors_of: Errors, rows: Sequence[Mapping[str, str]]
) -> NDArray[np.float64] | None:
    """Levenberg and Marquardt's steps, in proportion to the values; None where a value moves no clock."""
    if len(rows) < len(values) + 2:
        return None
    damping, errors = 1e-2, errors_of(values, rows)
    for _ in range(NUM_STEPS):
        slopes = np.stack([
            (errors_of(values * (1.0 + STEP * (np.arange(len(values)) == idx)), rows) - errors) / STEP
            for idx in range(len(values))
        ], axis=1)  # fmt: skip
        if not slopes.any(axis=0).all():
            return None
        square = slopes.T @ slopes
        change = np.linalg.solve(square + damping * np.diag(np.diag(square)), -slopes.T @ errors)
        tried = values * np.clip(1.0 + change, 0.5, 2.0)
        found = errors_of(tried, rows)
        if np.square(found).sum() < np.square(errors).sum():
            is_there = np.abs(tried / values - 1.0).max() < STEP / 10 and damping < 1e-4
            values, errors, damping = tried, found, damping / 10
            if is_there:
                break
        else:
            damping *= 10
    return values
