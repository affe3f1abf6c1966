"""transpose_rowwise: the reference is numpy's transpose, a wrong element is refused, the model launches the same grid."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from gpusim.evidence.cases.case import WrongAnswer, load_case
from gpusim.kernel_models.transpose import TransposeParams

CASE = load_case("transpose_rowwise")
case = sys.modules[CASE.launch.__module__]
ALL = CASE.configs("drawn", 1)
SMALL = [case.Row(kernel, rows=40, columns=72, threads=128) for kernel in case.KERNELS]


def outputs_of(config: Any) -> dict[str, np.ndarray]:
    """Transposed matrix."""
    dtype = "<u4" if config.element_bytes == 4 else "<u2"
    given = case.source(config).window(0, config.rows * config.columns * config.element_bytes).view(dtype)
    return {"out": given.reshape(config.rows, config.columns).T.copy().reshape(-1).view(np.uint8)}


@pytest.mark.parametrize("config", ALL, ids=str)
def test_the_model_launches_the_same_grid(config: Any) -> None:
    launched = CASE.launch(config, False)
    params = TransposeParams(**case.options(config))
    assert launched.block[0] == params.threads
    assert launched.grid[0] == -(-params.m * params.n // (params.threads * params.items_per_thread))


@pytest.mark.parametrize("config", SMALL, ids=str)
def test_the_untransposed_matrix_is_refused(config: Any) -> None:
    right = outputs_of(config)
    CASE.check(config, right)
    with pytest.raises(WrongAnswer, match="byte"):
        CASE.check(config, {"out": case.source(config).window(0, len(right["out"]))})
