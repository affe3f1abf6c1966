"""Waves of tiles from times: by hand."""

from __future__ import annotations

import numpy as np

from gpusim.evidence.cases.tile_waves import last_of_clusters, seen_waves, shape_of_waves, waves_by_time
from gpusim.evidence.toolchain.cublas_kernels import assumed, name_facts
from gpusim.evidence.toolchain.cublas_names import parse_name


def test_a_cluster_is_done_with_its_last_point() -> None:
    arrivals = np.array([[1, 2, 9], [3, 4, 5], [6, 7, 8]])
    assert last_of_clusters(arrivals, (64, 64), (128, 64), (192, 192)).tolist() == [[3, 4, 9], [6, 7, 8]]
    found = last_of_clusters(arrivals, (128, 128), (64, 128), (320, 320))  # every second row of clusters has no point
    assert np.isnan(found[1]).all() and found[0].tolist() == [1, 2, 9]


def test_waves_are_the_earliest_first_and_only_full_ones_have_a_shape() -> None:
    times = np.array([[10.0, 11.0, 20.0], [12.0, 21.0, 22.0], [13.0, 23.0, 30.0]])
    waves = waves_by_time(times, 4)
    assert waves.tolist() == [[0, 0, 1], [0, 1, 1], [0, 1, 2]]
    assert shape_of_waves(waves, 4) == (3.0, (2 + 2) / 2)
    assert shape_of_waves(np.zeros((2, 3), dtype=np.int64), 66) == (2.0, 3.0)  # a lone wave that is not full


def test_what_names_and_rows_do_not_tell_has_no_waves() -> None:
    config = {"m": "256", "n": "256", "k": "64", "dtype": "bf16", "layout": "tn", "row_step": "64", "column_step": "64"}
    unread = {"launched": "gemv2T_kernel_val", "grid": "4x1x1", "arrivals": "0 1/2 3"}
    unseen = {"launched": "nvjet_tst_128x128_64x6_2x1_v_bz_coopA_TNT", "grid": "4x1x1", "block": "384x1x1"}
    assert seen_waves(config, unread) is None and seen_waves(config, unseen) is None


def test_a_row_says_what_is_assumed_of_its_kernel() -> None:
    config = {"m": "1024", "n": "1024", "k": "1024", "dtype": "bf16", "layout": "tn"}
    row = {"launched": "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_TNT", "grid": "2x64x1", "block": "384x1x1"}
    found = name_facts(config, row)
    assert found["library_schedule"] == "warp_specialized, a CTA a tile"
    assert found["library_assumed"] == "one group of wgmma in flight"
    parts = parse_name("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_splitK_TNT")
    assert parts is not None and "order of parts of K" in assumed(parts)
    xmma = parse_name("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute")
    assert xmma is not None and "who shares a tile" in assumed(xmma)
