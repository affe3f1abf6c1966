"""Clusters that share tiles: what is launched, what is refused, what the twin answers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpusim.evidence.cases.case import Config, MappedTensor, load_case
from gpusim.evidence.toolchain.cuda_toolkit import Cubin
from gpusim.evidence.toolchain.sass import read_sass
from gpusim.machine.config import load_gpu

CASE = load_case("multicast_sharing")
case = sys.modules[CASE.launch.__module__]
CONFIGS = CASE.configs("walks", 1)


def config_of(size: int, pattern: str) -> Config:
    made: Config = case.Config(f"walk_{size}", size=size, pattern=pattern, rows=128, stages=4)
    return made


def told(config: Config) -> np.ndarray[Any, Any]:
    """What a grid says whose CTAs have taken 100 cycles a stage."""
    size, panels = int(config["size"]), case.panels(config)
    rows = [
        [cta, case.sum_of_last_stages(config, panels[cta // size]), 100 * case.NUM_TIMED, 1]
        for cta in range(case.NUM_CTAS[size])
    ]  # fmt: skip
    return np.array(rows, dtype=np.int64)


def test_every_walk_lies_in_the_tensor_and_in_l2() -> None:
    for config in CONFIGS:
        rows = (max(case.panels(config)) + 1) * case.num_steps(config) * int(config["rows"])
        launch = CASE.launch(config, False)
        tensor = next(item for item in launch.arguments if isinstance(item, MappedTensor))
        assert rows <= tensor.tensor_map.global_dim[1] and rows * case.ROW_BYTES <= 30 << 20
        assert launch.grid[0] % int(config["size"]) == 0


def test_pairs_are_pairs() -> None:
    for size in (1, 2, 4):
        for apart in (1, 2, 4, 8, 16):
            panels = case.panels(config_of(size, f"pairs_{apart}"))
            for idx in range(len(panels) - apart):
                if idx // apart % 2 == 0:
                    assert panels[idx] == panels[idx + apart] and panels.count(panels[idx]) == 2


def test_what_nobody_shares_is_read_once_a_cluster() -> None:
    config, gpu = config_of(2, "own"), load_gpu("h200_sxm")
    asked = case.num_clusters(config) * case.num_all_steps() * 128 * case.ROW_BYTES / 32
    assert CASE.predict(config, gpu)[case.READ] == pytest.approx(asked)
    assert CASE.predict(config_of(2, "all"), gpu)[case.READ] <= asked


def test_a_multicast_names_all_ctas_of_its_cluster(built: Callable[[str, str], Cubin]) -> None:
    kernels = read_sass(built("multicast_sharing", "sm_90a").path)
    for size in (2, 4):
        assert any("MULTICAST" in item.opcode for item in kernels[f"walk_{size}"].select("UTMALDG"))
    assert not any("MULTICAST" in item.opcode for item in kernels["walk_1"].select("UTMALDG"))
