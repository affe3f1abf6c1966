"""tma_edges: boxes begin where they say, stages hold zeros behind the edge, the table says that zeros are not free."""

from __future__ import annotations

import csv
import sys

import numpy as np
import pytest

from gpusim.evidence.cases.case import load_case
from gpusim.evidence.cases.paths import kernels_dir
from gpusim.layout.swizzle import swizzle_mode

CASE = load_case("tma_edges")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
CONFIGS = {group: CASE.configs(group, 1) for group in CASE.groups}


def test_configs_are_the_same_every_time_and_fit_into_an_sm() -> None:
    assert {group: len(configs) for group, configs in CONFIGS.items()} == {
        "rows": 128, "crowds": 144, "columns": 36, "beside": 32, "counted": 30,
    }  # fmt: skip
    for group, configs in CONFIGS.items():
        assert CASE.configs(group, 7) == configs
        assert all(case.ring_bytes(typed(config)) <= case.ROOM_BYTES for config in configs)


@pytest.mark.parametrize("group", list(CONFIGS))
def test_stages_hold_the_bytes_inside_and_zeros_behind_them(group: str) -> None:
    for config in CONFIGS[group][::7]:
        stages, boxes, height = (int(config[name]) for name in ("num_stages", "num_boxes", "box_rows"))
        made = case.expected_smem(typed(config))
        plain = made[np.asarray(swizzle_mode("128B")(np.arange(made.size)))].reshape(stages, boxes, height, case.ROW_BYTES)
        inside, columns = int(config["rows_inside"]), 2 * int(config["columns_inside"])
        edge = plain[:, -1]
        assert not edge[:, inside:].any() and not edge[:, :, columns:].any()
        if inside and columns:
            assert (edge[:, :inside, :columns] != 0).mean() > 0.9


def test_zeros_cost_one_sm_nothing_and_all_sms_more_than_rows_inside() -> None:
    path = kernels_dir().parent / "validation" / "measured" / "h200_sxm" / "tma_edges.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["group"] == "rows" and row["num_stages"] == "4"]
    took = {
        tuple(int(row[name]) for name in ("num_ctas", "box_rows", "rows_inside")): float(row["cycles_per_step"])
        for row in rows
    }
    for (ctas, height, inside), cycles in took.items():
        if ctas == 1:
            assert cycles == pytest.approx(took[1, height, height], rel=0.01)
        elif height >= 128 and inside <= height // 2:
            assert cycles > 2.0 * took[ctas, height, height]
