"""gather_block: slices cover every row, a wrong row is refused, and the model launches the same grid."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from gpusim.evidence.cases.case import WrongAnswer, load_case
from gpusim.kernel_models.gather import GatherParams

CASE = load_case("gather_block")
case = sys.modules[CASE.launch.__module__]
ALL = CASE.configs("drawn", 1)
SMALL = [case.Row("gather_block", rows=60, row_bytes=row_bytes, table_rows=500) for row_bytes in (32, 1536, 8192)]


def outputs_of(config: Any) -> dict[str, np.ndarray]:
    """Gathered rows."""
    return {"out": case.expected(config, 0, config.rows * config.row_bytes)}


@pytest.mark.parametrize("config", ALL, ids=str)
def test_the_model_launches_the_same_grid(config: Any) -> None:
    launched = CASE.launch(config, False)
    params = GatherParams(**case.options(config))
    assert launched.grid[0] * launched.grid[1] == params.num_ctas and launched.block[0] == params.cta_threads


@pytest.mark.parametrize("config", SMALL, ids=str)
def test_another_row_is_refused(config: Any) -> None:
    right = outputs_of(config)
    CASE.check(config, right)
    rolled = {"out": np.roll(right["out"], config.row_bytes)}
    with pytest.raises(WrongAnswer, match="byte"):
        CASE.check(config, rolled)
