"""Rings that their own warps copy, of tiles that SMs share: who walks what, what is checked, what was found, the twin."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import Config, WrongAnswer, load_case
from gpusim.evidence.cases.paths import kernels_dir
from gpusim.evidence.cases.rows import Table

CASE = load_case("copy_sharing")
case = sys.modules[CASE.launch.__module__]
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]
GPU = load_gpu("h200_sxm")
READ = case.READ


def find(**wanted: object) -> Config:
    told = {name: str(value) for name, value in wanted.items()}
    return next(config for config in CONFIGS if {name: config[name] for name in told} == told)


def outputs_of(config: Config, *, cycles: int = 1000) -> dict[str, np.ndarray]:
    """What a launch leaves whose CTAs all take so many cycles a step."""
    ctas, found = int(config["ctas"]), case.walks(config)
    told = np.zeros((case.NUM_SMS * ctas, 6), dtype="<i8")
    told[:, 0] = np.arange(len(told)) % case.NUM_SMS
    told[:, 1] = [case.sum_of_ring(config, found[place]) for place in range(len(told))]
    told[:, 2], told[:, 4] = cycles * case.NUM_TIMED, 100 * case.NUM_TIMED
    return {"told": told, "flags": np.zeros(case.FLAG_WORDS, dtype="<u4")}


def test_as_many_ctas_find_room_as_a_config_says_and_no_more() -> None:
    for config in CONFIGS:
        ctas, smem_bytes = int(config["ctas"]), CASE.launch(config, False).smem_bytes
        assert ctas * (smem_bytes + 1024) <= 228 * 1024 < (ctas + 1) * (smem_bytes + 1024)


def test_all_that_is_walked_lies_in_the_tensor_and_most_of_it_in_l2() -> None:
    for config in CONFIGS:
        ends = [
            (first_a + int(config["a_rows"]), first_b + int(config["b_rows"]))
            for first_a, first_b in (case.rows_of(config, pair) for pair in case.walks(config).values())
        ]  # fmt: skip
        assert max(map(max, ends)) * case.PITCH_BYTES <= case.TENSOR_BYTES
        assert case.num_steps(config) == 2 or max(map(max, ends)) * 128 * case.num_steps(config) <= case.MOST_TOUCHED_BYTES


def test_sharers_share_and_others_do_not() -> None:
    pairs = case.walks(find(pattern="near_2", ctas=2))
    assert len(pairs) == 264 and pairs[0] == pairs[1] and pairs[132] == pairs[133] != pairs[0]
    assert len({pair[0] for pair in pairs.values()}) == 132
    assert len(set(case.walks(find(pattern="own", ctas=3)).values())) == 396
    rows, tall = case.walks(find(pattern="rows_16", ctas=1)), case.walks(find(pattern="tall_8", ctas=1))
    assert (rows[17], tall[17]) == ((1, 1), (1, 2))


def test_values_are_of_all_ctas_and_wrong_launches_are_refused() -> None:
    config = find(pattern="near_2", ctas=2, warps=4, a_rows=64, b_rows=64)
    outputs = outputs_of(config)
    outputs["told"][0, 2] += 132 * case.NUM_TIMED  # the first CTA of SM 0
    outputs["told"][:, 3] = 1_800_000_000_000_000_000
    outputs["told"][1:264:2, 3] += 64  # the second of each TPC
    values = CASE.check(config, outputs)
    assert values["cycles_per_step"] == pytest.approx(1000.5) and values["slowest_cycles"] == 1132.0
    assert (values["first_cycles"], values["last_cycles"], values["copy_cycles"]) == (1000.0, 1001.0, 100.0)
    assert (values["drift_ns"], values["end_drift_ns"]) == (32.0, 0.0)
    assert CASE.derive({READ: "100", "asked_bytes": "6400"}) == {"read_fraction": 0.5}
    outputs["told"][7, 1] += 1
    with pytest.raises(WrongAnswer, match="the ring of place 7"):
        CASE.check(config, outputs)
    with pytest.raises(WrongAnswer, match="stood still"):
        CASE.check(config, outputs_of(config, cycles=0))
    outputs = outputs_of(config)
    outputs["told"][0, 0] = 5
    with pytest.raises(WrongAnswer, match="SMs have other than 2 CTAs each"):
        CASE.check(config, outputs)
    outputs["flags"][1] = 1
    with pytest.raises(WrongAnswer, match="given up"):
        CASE.check(config, outputs)


def test_lone_warps_keep_step_and_crowded_ones_do_not() -> None:
    rows = Table.read(kernels_dir().parent / "validation" / "measured" / "h200_sxm" / "copy_sharing.csv").rows
    assert len(rows) == len(CONFIGS)
    most, some = GPU.xbar.coalesce_max_requests, case.Config.of(CONFIGS[0])
    share = {
        pattern: sum(-(-len(group) // most) for group in case.groups_of(replace(some, pattern=pattern))) / case.NUM_SMS
        for pattern in ("near_2", "near_16", "apart_2", "apart_4")
    }  # fmt: skip
    crowded = []
    for row in rows:
        if row["pattern"] not in share:
            continue
        read = float(row[READ]) * 32 / float(row["asked_bytes"])
        if row["ctas"] == "1" and row["warps"] == "4":
            assert read < share[row["pattern"]] + 0.03 and float(row["end_drift_ns"]) <= 32.0
        elif row["pattern"] == "near_2" and row["ctas"] != "1":
            crowded.append(read)
    assert min(crowded) > 0.53 and float(np.median(crowded)) > 0.7


def test_the_twin_stays_together_where_warps_share_sub_cores() -> None:
    for pattern, ctas, least, most in (("near_16", 1, 0.25, 0.3), ("tall_8", 2, 0.25, 0.42)):  # tall_8: 0.53 counted
        config = find(pattern=pattern, ctas=ctas, warps=4, a_rows=64, b_rows=64, math_cycles=512, kernel="close")
        values = CASE.predict(config, GPU)
        asked = case.NUM_SMS * ctas * case.num_all_steps(config) * case.stage_bytes(config)
        assert least < values[READ] * 32 / asked < most
    assert CASE.predict(CONFIGS[0], load_gpu("a100_sxm_80gb")) == {}
