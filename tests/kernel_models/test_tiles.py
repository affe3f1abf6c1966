"""Order of tiles, parts of K, and what lies inside of the matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.kernel_models.gemm import GemmParams, resolve
from gpusim.kernel_models.gemm.tile_grid import TilePlan
from gpusim.kernel_models.mainloop.loader import Loader
from gpusim.machine.config import GpuSpec, load_gpu

H200 = load_gpu("h200_sxm")


def plan_of(**options: Any) -> TilePlan:
    usual = {"tile": "64x32x16", "schedule": "warp_specialized", "alignment": 8}
    return TilePlan(resolve(GemmParams(**{**usual, **options}), H200))


problems = st.fixed_dictionaries(
    {
        "m": st.integers(1, 700), "n": st.integers(1, 400), "k": st.integers(200, 600),
        "batch": st.integers(1, 3), "split_k": st.integers(1, 5),
        "cluster": st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2), (4, 1)]),
        "raster": st.sampled_from(["along_m", "along_n"]), "swizzle_size": st.integers(1, 9),
        "raster_boustrophedon": st.booleans(),
        "raster_order": st.sampled_from(["none", "0,2,1,3", "0", "4,3,2,1,0", "gpc"]),
    }
).filter(lambda problem: problem["cluster"] != (1, 1) or problem["raster_order"] != "gpc")


@settings(max_examples=60, deadline=None)
@given(problems)
def test_the_order_of_tiles_is_a_bijection(problem: dict[str, Any]) -> None:
    plan = plan_of(**problem)
    m, n, batch, part = plan.coordinates(np.arange(plan.num_tiles))
    seen = ((batch * problem["split_k"] + part) * plan.num_m + m) * plan.num_n + n
    assert sorted(seen.tolist()) == list(range(plan.num_tiles))
    assert plan.num_m % problem["cluster"][0] == plan.num_n % problem["cluster"][1] == 0


@settings(max_examples=60, deadline=None)
@given(problems)
def test_the_tiles_cover_the_matrices_exactly_once(problem: dict[str, Any]) -> None:
    plan = plan_of(**problem)
    assert sum(plan.rows_inside(0, m) for m in range(plan.num_m)) == problem["m"]
    assert sum(plan.rows_inside(1, n) for n in range(plan.num_n)) == problem["n"]
    loader = Loader(plan.shape, plan, num_threads=1)
    depths = [
        loader.k_extent(part, step)
        for part in range(problem["split_k"]) for step in range(plan.num_k_steps(part))
    ]
    assert sum(depths) == problem["k"]
    lengths = [plan.num_k_steps(part) for part in range(problem["split_k"])]
    assert min(lengths) >= 1
    assert max(lengths) - min(lengths) <= 1


@settings(max_examples=40, deadline=None)
@given(problems)
def test_a_clusters_tiles_are_neighbours(problem: dict[str, Any]) -> None:
    plan = plan_of(**problem)
    ranks_m, ranks_n = problem["cluster"]
    size = ranks_m * ranks_n
    m, n, batch, part = (values.reshape(-1, size) for values in plan.coordinates(np.arange(plan.num_tiles)))
    assert (batch == batch[:, :1]).all()
    assert (part == part[:, :1]).all()
    rank = np.arange(size)
    assert (m - m[:, :1] == rank % ranks_m).all()
    assert (n - n[:, :1] == rank // ranks_m).all()
    assert (m[:, 0] % ranks_m == 0).all()


@pytest.mark.parametrize(
    ("raster", "group", "expected"),
    [
        ("along_n", 1, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]),
        ("along_m", 1, [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (2, 2)]),
        ("along_n", 2, [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 0), (2, 1), (2, 2)]),
        ("along_m", 2, [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (0, 2), (1, 2), (2, 2)]),
        ("along_n", 9, [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (2, 2)]),
    ],
)
def test_a_group_is_a_band_walked_across_first(
    raster: str, group: int, expected: list[tuple[int, int]]
) -> None:
    plan = plan_of(m=3 * 64, n=3 * 32, k=16, raster=raster, swizzle_size=group)
    assert [plan.coordinates_of(tile)[:2] for tile in range(9)] == expected


def test_a_square_group_reads_less_than_a_row(h200: GpuSpec) -> None:
    num_tiles = 64
    panels = {}
    for group in (1, 8):
        plan = plan_of(m=64 * 64, n=32 * 64, k=16, swizzle_size=group)
        m, n, _, _ = plan.coordinates(np.arange(num_tiles))
        panels[group] = len(set(m.tolist())) + len(set(n.tolist()))
    assert panels == {1: 1 + 64, 8: 8 + 8}
