"""Waves of CTAs that share tiles: what is launched, what is refused, what would merge, what the twin answers."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from gpusim.evidence.cases.case import MappedTensor, Repeated, load_case
from gpusim.evidence.cases.tile_walk import num_reads, times_of_sharers
from gpusim.machine.config import load_gpu

CASE = load_case("wave_sharing")
case = sys.modules[CASE.launch.__module__]
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]


def told(config: dict[str, str]) -> np.ndarray[Any, Any]:
    """What a grid says whose CTAs took 100 cycles a step, all at once, one after the other on SMs 0, 1, ..."""
    rows = []
    for cta in range(case.num_ctas(config)):
        sm = cta % case.NUM_SMS
        m, n = case.tile_of(config, cta, sm)
        total = case.sum_of_last_stages(config, "a", m) + case.sum_of_last_stages(config, "b", n)
        rows.append([sm, total % 2**32, 100 * (int(config["steps"]) - 1), 0, 10, 20, 30, 1])
    return np.array(rows, dtype=np.int64)


def test_every_ring_fits_and_every_panel_lies_in_its_tensor() -> None:
    for config in CONFIGS:
        launch = CASE.launch(config, False)
        per_sm = int(config["ctas_per_sm"])
        assert case.num_smem_bytes(config) <= case.MOST_SMEM_BYTES[per_sm]
        assert launch.smem_bytes * per_sm + 4096 < 228 << 10 < (launch.smem_bytes + 1024) * (per_sm + 1)
        assert launch.grid[0] <= case.MOST_CTAS_TOLD
        stored = int(config["store_kib"]) << 10
        assert stored % case.STORE_BYTES == 0 and stored <= case.num_smem_bytes(config)
        assert stored * launch.grid[0] <= case.MOST_STORED_BYTES
        operands = [item for item in launch.arguments if isinstance(item, MappedTensor)]
        for item, place in zip(operands, (0, 1), strict=True):
            last = max(case.tile_of(config, cta, case.NUM_SMS - 1)[place] for cta in range(launch.grid[0]))
            assert isinstance(item.array, Repeated)
            assert (last + 1) * item.tensor_map.box_dim[1] == item.tensor_map.global_dim[1]


def test_the_raster_takes_every_tile_once() -> None:
    for config in CONFIGS:
        count = case.num_ctas(config)
        assert len({case.tile_of(config, cta, cta % case.NUM_SMS) for cta in range(count)}) == count


def test_a_tile_is_taken_by_four_at_most() -> None:
    sms, times = [0, 1, 16, 17, 32], np.zeros(5)  # of one GPC
    assert num_reads(times_of_sharers(case.GPU, sms, [7] * 5, times), 10.0) == 2
    assert num_reads(times_of_sharers(case.GPU, sms, [7] * 5, np.arange(5) * 20.0), 10.0) == 5
    assert num_reads(times_of_sharers(case.GPU, sms, [7, 7, 8, 8, 9], times), 10.0) == 3


def test_what_is_read_lies_between_all_and_a_quarter() -> None:
    gpu = load_gpu("h200_sxm")
    config = case.Config(m_tiles=4, n_tiles=33, steps=8, wrap=8)
    answers = CASE.predict(config, gpu)
    asked = case.num_ctas(config) * 8 * case.stage_bytes(config) / 32
    once = (4 + 33) * 8 * 128 * case.ROW_BYTES
    assert asked / 4 <= answers[case.READ] < asked
    assert answers["dram__bytes_read.sum"] == pytest.approx(once, rel=0.01)
    assert not CASE.predict(case.Config(m_tiles=64, n_tiles=64, steps=64, wrap=64), gpu)
