"""elementwise_shapes: a wrong element is refused, drawn sizes leave a partial CTA, and the model launches the same grid."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from gpusim.evidence.cases.case import load_case
from gpusim.kernel_models.elementwise import ElementwiseParams

CASE = load_case("elementwise_shapes")
case = sys.modules[CASE.launch.__module__]
ALL = [config for group in CASE.groups for config in CASE.configs(group, 1)]
SMALL = [
    case.Row(name, elements=3000 if not entry.columns_needed else 4096, threads=64, columns=256 * entry.columns_needed)
    for name, entry in case.ENTRIES.items()
]


def outputs_of(config: Any) -> dict[str, np.ndarray]:
    """What the kernel leaves of a small tensor."""
    name = config.entry.out_dtype or config.entry.dtype
    values = case.expected(config, 0, config.elements * (4 if name == "fp32" else 2)).astype("<f4")
    words = values.view("<u4")
    raw = words if name == "fp32" else ((words + 0x7FFF + (words >> 16 & 1)) >> 16).astype("<u2")
    return {"out": raw.view(np.uint8)}


@pytest.mark.parametrize("config", ALL, ids=str)
def test_the_model_launches_the_same_grid(config: Any) -> None:
    launched = CASE.launch(config, False)
    params = ElementwiseParams(**case.options(config))
    assert launched.grid[0] == params.num_ctas and launched.block[0] == params.threads


def test_a_wrong_row_of_a_broadcast_is_refused() -> None:
    config = next(config for config in SMALL if config.kernel.endswith("_row"))
    right = outputs_of(config)
    CASE.check(config, right)
    shifted = case.Row(config.kernel, elements=config.elements, threads=64, columns=512)
    with pytest.raises(Exception, match="wants"):
        CASE.check(config, outputs_of(shifted))


def test_every_drawn_size_leaves_a_last_cta_that_is_not_full() -> None:
    partial = [
        config for config in CASE.configs("drawn", 1)
        if config.elements % (config.threads * config.entry.vector * config.entry.items)
    ]
    assert len(partial) >= 60
