"""Shared parts of the cases of row kernels (a row per block or warp): arrays, launches, model options, output checks.

In: a config with ``rows``, ``columns``, ``dtype`` and ``per``. Out: arguments, a launch, options of the model, a check.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import Argument, Config, KernelLaunch, Repeated, Windows, WrongAnswer
from gpusim.evidence.cases.validation_kernel import WIDTHS, floats, pattern, windows

THREADS = 256
"""Threads of a block."""
WARPS = THREADS // 32

Values = NDArray[np.float64]


def row_arrays(config: Config) -> tuple[Repeated, Windows]:
    """Input array, and the output with windows of full rows."""
    row_bytes = int(config["columns"]) * WIDTHS[config["dtype"]]
    num_bytes = int(config["rows"]) * row_bytes
    return (
        Repeated(pattern(config["dtype"]), num_bytes),
        Windows("out", num_bytes, windows(num_bytes, unit_bytes=row_bytes)),
    )


def row_launch(config: Config, arguments: tuple[Argument, ...]) -> KernelLaunch:
    """Launch with a row for each block or each of its warps."""
    rows = int(config["rows"])
    return KernelLaunch(
        kernel=config["kernel"], arguments=arguments,
        grid=(rows if config["per"] == "block" else rows // WARPS, 1, 1), block=(THREADS, 1, 1),
    )  # fmt: skip


def row_options(config: Config) -> dict[str, object]:
    """Options of the kernel model in ``gpusim predict``."""
    return {
        "rows": int(config["rows"]), "columns": int(config["columns"]), "per": config["per"], "dtype": config["dtype"],
        "threads": THREADS,
    }  # fmt: skip


def check_rows(
    config: Config, raw: NDArray[np.uint8], *, reference: Callable[..., Values], allowed: Callable[[Values], Values],
    inputs: tuple[Repeated, ...] = (), out: Windows | None = None,
) -> None:
    """Check windows of full rows against a reference.

    Args:
        config: config of the launch.
        raw: bytes of the windows.
        reference: rows of each input to expected rows, all float64[rows, columns].
        allowed: expected values to their allowed absolute errors.
        inputs: arrays in the shape of the output; none: the one of :func:`row_arrays`.
        out: output with its windows; None: that of :func:`row_arrays`.

    Raises:
        WrongAnswer: a value is further off, or is no number; the text has the first one.
    """
    dtype, columns = config["dtype"], int(config["columns"])
    given, usual = row_arrays(config)
    out = out or usual
    for (offset, num_bytes), of_window in zip(out.windows, out.split(raw), strict=True):
        rows = (floats(item.window(offset, num_bytes), dtype).reshape(-1, columns) for item in inputs or (given,))
        wanted = reference(*rows)
        found = floats(of_window, dtype).reshape(-1, columns)
        is_off = ~(np.abs(found - wanted) <= allowed(wanted))  # NaN counts as wrong
        if is_off.any():
            row, column = (int(place) for place in np.argwhere(is_off)[0])
            raise WrongAnswer(
                f"row {offset // (columns * WIDTHS[dtype]) + row}, column {column} is {found[row, column]:g}, wants "
                f"{wanted[row, column]:g}"
            )
