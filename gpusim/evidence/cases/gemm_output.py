"""Output D of GEMM kernels of this project: the rows that are copied back, and the check against a reference.

In: a config with ``m``, ``n``, ``k``; the operands' bytes. Out: the windows of a launch; the largest error, or WrongAnswer.

Models:

* D row-major, of the operands' type
* full sampled rows that are copied back, with comparison of the sampled columns

Ignores:

* elements of rows that are not sampled
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.bench.library_gemms import sampled
from gpusim.evidence.cases.case import Config, Outputs, Repeated, Windows, WrongAnswer
from gpusim.evidence.cases.validation_kernel import WIDTHS, floats

Element = Literal["fp32", "bf16"]


def sample(config: Config) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sampled rows and columns of D: at least one element of each 64 x 64, and the edges.

    >>> rows, columns = sample({"kernel": "k", "m": "4", "n": "130"})
    >>> rows[0], rows[-1], columns[0], columns[-1]
    (np.int64(0), np.int64(3), np.int64(0), np.int64(129))
    """
    numbers = np.random.default_rng(0)
    return sampled(int(config["m"]), numbers), sampled(int(config["n"]), numbers)


def target(config: Config, dtype: Element) -> Windows:
    """Output D with its sampled rows as windows."""
    row_bytes = int(config["n"]) * WIDTHS[dtype]
    rows, _ = sample(config)
    return Windows("d", int(config["m"]) * row_bytes, tuple((int(row) * row_bytes, row_bytes) for row in rows))


def rows_of(
    matrix: Repeated, rows: NDArray[np.int64], extent: int, k: int, dtype: Element, *, is_k_major: bool
) -> NDArray[np.float64]:
    """Rows of A (columns of B), of ``extent`` in all, read from memory: float64[rows, k]."""
    if is_k_major:
        row_bytes = k * WIDTHS[dtype]
        return np.stack([floats(matrix.window(int(row) * row_bytes, row_bytes), dtype) for row in rows])
    row_bytes = extent * WIDTHS[dtype]
    return np.stack([floats(matrix.window(each * row_bytes, row_bytes), dtype)[rows] for each in range(k)], axis=1)


def check(
    config: Config, outputs: Outputs, operands: tuple[Repeated, Repeated], dtype: Element, *,
    is_k_major: tuple[bool, bool], allowed: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> dict[str, float]:
    """Check that the sampled rows are written, and their sampled columns equal the float64 GEMM of the operands' bytes.

    Args:
        config: with ``m``, ``n`` and ``k``.
        outputs: with ``d``.
        operands: A and B.
        dtype: of A, B and D.
        is_k_major: whether A and B are contiguous along K.
        allowed: reference elements to their allowed absolute rounding errors.

    Raises:
        WrongAnswer: an element was not written, or its error exceeds what rounding explains.
    """
    m, n, k = (int(config[name]) for name in "mnk")
    rows, columns = sample(config)
    found = floats(np.ascontiguousarray(outputs["d"]), dtype).reshape(len(rows), n)
    if not np.isfinite(found).all():
        at = np.argwhere(~np.isfinite(found))[0]
        raise WrongAnswer(f"{config['kernel']}: row {rows[at[0]]}, column {at[1]} of D was not written")
    left = rows_of(operands[0], rows, m, k, dtype, is_k_major=is_k_major[0])
    reference = left @ rows_of(operands[1], columns, n, k, dtype, is_k_major=is_k_major[1]).T
    share = np.abs(found[:, columns] - reference) / allowed(reference)
    if share.max() > 1.0:
        at = np.unravel_index(int(share.argmax()), share.shape)
        raise WrongAnswer(
            f"{config['kernel']}: row {rows[at[0]]}, column {columns[at[1]]} of D is {found[:, columns][at]:g}, wants "
            f"{reference[at]:g}; {np.count_nonzero(share > 1.0)} of {share.size} are wrong"
        )
    return {"error_share": float(share.max())}
