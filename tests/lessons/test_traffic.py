"""Orders of tiles, what L2 keeps and merges, and families as they were judged."""

from __future__ import annotations

import pytest

from gpusim import GemmParams, load_gpu
from gpusim.errors import ConfigError, KernelError
from gpusim.evidence.validate.judged_rows import read_judged
from gpusim.lessons.traffic import coalescing, fetches, orders
from gpusim.lessons.trust import families

GPU = load_gpu("h200_sxm")
PARAMS = GemmParams(m=4096, n=4096, k=1024, tile="128x256x64", stages=4, schedule="cooperative")


def test_orders_are_sorted_by_what_memory_gives_and_keep_what_sms_get() -> None:
    table = orders(PARAMS, GPU, groups=(1, 8))
    assert sorted(table.index) == [("along_m", 1), ("along_m", 8), ("along_n", 1), ("along_n", 8)]
    assert table["from memory (MiB)"].is_monotonic_increasing
    assert table["to SMs (MiB)"].nunique() == 1
    whole = 2 * 4096 * 1024 * 2 / 2**20
    assert (table["from memory (MiB)"] >= whole - 1e-6).all()
    with pytest.raises(KernelError, match="one group"):
        orders(PARAMS, GPU, groups=())


def test_a_line_that_l2_keeps_comes_from_memory_once() -> None:
    table = fetches("both_sides", (8,))
    assert table[["measured", "predicted"]].to_numpy().ravel().tolist() == pytest.approx([1.0, 1.0], abs=0.05)
    with pytest.raises(ConfigError, match="has no row with"):
        fetches("nobody", (8,))


def test_neighbours_merge_and_far_ones_do_not() -> None:
    near, far = coalescing("near", (2,)), coalescing("far", (2,))
    assert near["measured"].item() == pytest.approx(0.5, abs=0.02)
    assert far["measured"].item() == pytest.approx(1.0, abs=0.02)
    assert near["error (%)"].item() == pytest.approx(100.0 * (near["predicted"] / near["measured"] - 1.0).item(), abs=1e-6)


def test_families_are_those_of_the_judged_table() -> None:
    table = families()
    whole = next(item for item in read_judged().document()["whole_kernels"] if item["name"] == "sm__cycles_elapsed.max")
    assert table["mean (%)"].mean() == pytest.approx(whole["mean_pct"])
    assert table["rows"].sum() == whole["num_rows"] and table["worst (%)"].max() == pytest.approx(whole["worst_pct"])
    with pytest.raises(ConfigError, match="no family of whole kernels"):
        families(kernel="nothing")
