"""map_sources: stages hold the last boxes of each CTA, wrong bytes are refused, and made maps let CTAs come apart."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import WrongAnswer, load_case

CASE = load_case("map_sources")
case = sys.modules[CASE.launch.__module__]
ALL = [config for group in CASE.groups for config in CASE.configs(group, 1)]
SMALL = [config for config in ALL if config.num_ctas == case.NUM_SMS and config.source == "made"]
GPU = load_gpu("h200_sxm")


def outputs_of(config: Any) -> dict[str, np.ndarray]:
    """1,500 cycles for maps, 2,000 more for the first stage, 600 a step."""
    seen = np.zeros((config.num_ctas, case.WORDS), dtype="<u4")
    seen[:, 1], seen[:, 2], seen[:, 3] = case.expected_sums(config), 1500, 3500
    seen[:, 4], seen[:, 6], seen[:, 7] = 600 * (config.num_steps - case.LEAD), 2**32 - 100, 900
    return {"seen": seen.reshape(-1), "sums": np.zeros(config.num_ctas * case.THREADS, dtype="<f4")}


def test_rings_and_maps_have_room() -> None:
    for config in ALL:
        assert config.num_stages * 2 * case.BOX_BYTES <= case.SMEM_OF_CTAS[config.ctas_per_sm]
        assert (1 if config.source == "one_set" else config.num_ctas) * config.num_maps <= case.MOST_MAPS


def test_ctas_of_a_gemm_share_panels_of_a_by_row_and_of_b_by_column() -> None:
    a, b, _ = case.panels(next(config for config in ALL if not config.walks_own))
    assert len(set(zip(a.tolist(), b.tolist(), strict=True))) == len(a) > len(set(a.tolist())) + len(set(b.tolist()))
    assert set(a.tolist()).isdisjoint(b.tolist())


def test_values_are_differences_of_the_clocks() -> None:
    values = CASE.check(SMALL[0], outputs_of(SMALL[0]))
    assert (values["step_cycles"], values["make_cycles"], values["first_cycles"]) == (600, 1500, 2000)
    assert values["grid_ns"] == 1000  # the timer has begun anew meanwhile


def test_other_bytes_are_refused() -> None:
    outputs = outputs_of(SMALL[0])
    outputs["seen"][1 + 5 * case.WORDS] += 1
    with pytest.raises(WrongAnswer, match="CTA 5 received other bytes"):
        CASE.check(SMALL[0], outputs)


def test_ctas_that_make_their_maps_read_more_of_l2_and_take_as_long_a_step() -> None:
    one, made = (
        case.predict(case.Row(source, num_ctas=case.NUM_SMS, ctas_per_sm=1, num_steps=32, has_math=False), GPU)
        for source in ("one_set", "made")
    )
    assert made[case.READ] > 1.3 * one[case.READ]
    assert made["step_cycles"] == pytest.approx(one["step_cycles"], rel=0.03)
