"""Launches written by hand equal numpy, and a wrong step in them is found and named."""

from __future__ import annotations

import numpy as np
import pytest

from gpusim import DataError, DeadlockError, run_functional

from .hand_written import TMA_SHAPE, by_cp_async, by_tma, operands

BY_TMA, BY_CP_ASYNC = operands(*TMA_SHAPE), operands(64, 64, 160)


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_tma_and_wgmma_equal_numpy(seed: int | None) -> None:
    assert np.array_equal(run_functional(by_tma(), BY_TMA, seed=seed)["D"], BY_TMA["A"] @ BY_TMA["B"])


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_cp_async_and_mma_sync_equal_numpy(seed: int | None) -> None:
    assert np.array_equal(run_functional(by_cp_async(), BY_CP_ASYNC, seed=seed)["D"], BY_CP_ASYNC["A"] @ BY_CP_ASYNC["B"])


def said(launch, data, **options) -> str:
    with pytest.raises(DataError) as found:
        run_functional(launch, data, expected={"D": data["A"] @ data["B"]}, **options)
    return str(found.value)
