"""Rings of own tiles: what a launch leaves is looked at, what was measured, and that the twin serves all alike."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import Config, WrongAnswer, load_case
from gpusim.evidence.cases.paths import kernels_dir
from gpusim.evidence.cases.rows import Table

CASE = load_case("part_turns")
case = sys.modules[CASE.launch.__module__]
CONFIGS = CASE.configs("own", 1)
GPU = load_gpu("h100_sxm")


def find(kernel: str, ctas: int, slots: int) -> Config:
    wanted = {"kernel": kernel, "ctas": str(ctas), "slots": str(slots)}
    return next(config for config in CONFIGS if {name: config[name] for name in wanted} == wanted)


def outputs_of(config: Config, *, short: int, long: int) -> dict[str, np.ndarray]:
    """What a launch leaves whose CTAs take so many cycles in parts of two TPCs and in the others."""
    sms = np.tile(np.arange(case.NUM_SMS), int(config["ctas"]))
    cycles = np.where(case.in_short_parts()[sms], short, long)
    sums = [case.sum_of_ring(config, cta) for cta in range(len(sms))]
    return {"told": np.stack([sms, cycles, np.array(sums)], axis=-1).astype("<i8")}


def test_rings_fill_an_sm_and_no_more_ctas_find_room() -> None:
    for config in CONFIGS:
        ctas, smem_bytes = int(config["ctas"]), case.SMEM_BYTES[int(config["ctas"])]
        assert int(config["slots"]) * case.TILE_BYTES <= smem_bytes
        assert ctas * (smem_bytes + 1024) <= 228 * 1024 < (ctas + 1) * (smem_bytes + 1024)
        assert case.num_tiles(config) * ctas * case.TILE_BYTES == case.SM_BYTES
    assert {case.under_way_bytes(config) for config in CONFIGS} >= {16384 * num for num in range(1, 13)}


def test_two_tpcs_of_each_gpc_of_eight_are_a_short_part() -> None:
    assert np.flatnonzero(case.in_short_parts()).tolist() == [*range(32, 44), *range(78, 88), 126, 127]


def test_rates_are_of_all_ctas_of_an_sm_and_other_words_are_refused() -> None:
    config = find("tma", 2, 3)
    outputs = outputs_of(config, short=160_000, long=200_000)
    values = CASE.check(config, outputs)
    each = case.TIMED * case.TILE_BYTES
    short, long = 2 * each / 160_000, 2 * each / 200_000
    assert values == pytest.approx({
        "bytes_per_cycle": 24 * short + 108 * long, "long_part_bytes_per_cycle": long, "short_part_bytes_per_cycle": short,
        "least_bytes_per_cycle": long, "most_bytes_per_cycle": short,
    })  # fmt: skip
    outputs["told"][7, 2] += 1
    with pytest.raises(WrongAnswer, match="the ring of CTA 7"):
        CASE.check(config, outputs)
    with pytest.raises(WrongAnswer, match="stood still"):
        CASE.check(config, outputs_of(config, short=0, long=200_000))
    outputs = outputs_of(config, short=160_000, long=200_000)
    outputs["told"][0, 0] = 5
    with pytest.raises(WrongAnswer, match="SMs have other than 2 CTAs each"):
        CASE.check(config, outputs)


@pytest.mark.parametrize(
    ("gpu", "alike_kib", "equal_turns_kib"), [("h100_sxm", {"cp_async": 48, "tma": 48}, {"cp_async": 96, "tma": 112}),
                                              ("h200_sxm", {"cp_async": 64, "tma": 80}, {"cp_async": 112, "tma": 144})],
)  # fmt: skip
def test_short_parts_lead_where_much_is_under_way_and_not_where_little_is(
    gpu: str, alike_kib: dict[str, int], equal_turns_kib: dict[str, int]
) -> None:
    rows = Table.read(kernels_dir().parent / "validation" / "measured" / gpu / "part_turns.csv").rows
    assert len(rows) == len(CONFIGS)
    for row in rows:
        lead = float(row["short_part_bytes_per_cycle"]) / float(row["long_part_bytes_per_cycle"])
        num_kib = case.under_way_bytes(case.Config.of(row)) // 1024
        if num_kib <= alike_kib[row["kernel"]]:
            assert 0.99 < lead < 1.04
        elif num_kib >= equal_turns_kib[row["kernel"]]:
            assert 1.35 < lead < 1.55  # equal turns: 1.5
        else:
            assert 1.0 < lead < 1.55


@pytest.mark.parametrize("kernel", case.WAYS)
def test_the_twin_serves_all_alike(kernel: str) -> None:
    for slots in (3, 8):
        values = CASE.predict(find(kernel, 1, slots), GPU)
        assert values["short_part_bytes_per_cycle"] == pytest.approx(values["long_part_bytes_per_cycle"], rel=0.06)
    assert CASE.predict(find(kernel, 1, 3), load_gpu("a100_sxm_80gb")) == {}
