"""Footprints say what the ops of live CTAs touch: the programs are driven without a machine, and counted."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import GpuSpec
from gpusim.workload import ops
from gpusim.workload.launch import Launch

from .conftest import dry_run

EDGES = {"m": 300, "n": 264, "k": 200}
"""No multiple of any tile, but rows of whole sectors, so that bytes and sectors agree."""

KERNELS: list[dict[str, Any]] = [
    {"tile": "128x128x64", "schedule": "warp_specialized"},
    {"tile": "128x256x64", "schedule": "cooperative", "batch": 2},
    {"tile": "128x128x64", "schedule": "cooperative", "consumer_split": "n", "epilogue": "smem", "beta": 0.5},
    {"tile": "192x128x64", "consumer_warpgroups": 3, "epilogue": "tma_store", "bias": True},
    {"tile": "64x128x64", "schedule": "pingpong", "epilogue": "tma_store"},
    {"tile": "64x128x64", "schedule": "pingpong", "epilogue": "tma_reduce", "beta": 1.0},
    {"tile": "64x128x64", "schedule": "pingpong", "beta": 1.0},
    {"tile": "128x128x64", "schedule": "cooperative", "persistent": True, "swizzle_size": 2},
    {"tile": "128x128x64", "cluster": "2x1"},
    {"tile": "128x128x64", "cluster": "2x2", "persistent": True},
    {"tile": "128x128x64", "cluster": "4x1", "layout": "nn", "alignment": 8},
    {"tile": "128x64x64", "cluster": "2x2", "layout": "tt"},
    {"tile": "128x128x64", "schedule": "multistage"},
    {"tile": "128x128x64", "schedule": "multistage", "stages": 1, "persistent": True},
    {"tile": "128x128x32", "math": "mma_sync", "beta": 1.0, "bias": True},
    {"tile": "128x128x32", "math": "mma_sync", "copy": "tma", "epilogue": "smem"},
    {"tile": "128x64x64", "copy": "cp_async", "schedule": "warp_specialized"},
    {"tile": "64x64x8", "dtype": "fp32"},
    {"tile": "64x64x8", "dtype": "fp32", "layout": "nt", "beta": 1.0},
    {"tile": "64x64x32", "dtype": "tf32"},
    {"tile": "64x64x128", "dtype": "fp8"},
    {"tile": "128x128x64", "split_k": 3, "beta": 1.0, "bias": True},
    {"tile": "128x128x32", "math": "mma_sync", "split_k": 2},
    {"tile": "128x128x64", "split_k": 4, "split_k_mode": "second_kernel"},
    {"tile": "128x128x32", "math": "mma_sync", "copy": "ldg"},
    {"tile": "128x128x32", "alignment": 2},
    {"tile": "64x64x8", "dtype": "fp32", "copy": "ldg", "layout": "tt"},
    {"tile": "128x8x64", "cluster": "2x1"},
    {"tile": "128x128x64", "batch": 2, "batch_mode": "array"},
    {"tile": "128x128x64", "batch": 2, "batch_mode": "array", "epilogue": "tma_store"},
    {"tile": "128x128x64", "batch": 2, "batch_mode": "array", "copy": "cp_async"},
    {"tile": "128x128x32", "batch": 2, "batch_mode": "array", "math": "mma_sync", "persistent": True},
]


def bytes_by_tile(launch: Launch, num_ctas: int) -> dict[str, dict[int, dict[tuple[int, int], float]]]:
    """For each tensor and CTA the bytes of each tile that its ops name."""
    found: dict[str, dict[int, dict[tuple[int, int], float]]] = defaultdict(lambda: defaultdict(dict))
    for of_role in dry_run(launch, num_ctas=num_ctas).values():
        for cta, op in of_role:
            if isinstance(op, ops.TmaLoad):
                num_bytes = op.num_fetched_bytes
            elif isinstance(op, ops.TmaStore):
                num_bytes = op.num_bytes
            elif isinstance(op, ops.CpAsync | ops.GlobalLoad | ops.GlobalStore | ops.GlobalAtomic):
                num_bytes = op.access.num_bytes
            else:
                continue
            if isinstance(op, ops.GlobalLoad) and op.tensor == "workspace":
                continue  # the last part reads back what is summed: a write's footprint
            assert found[op.tensor][cta].setdefault(op.tile, num_bytes) == num_bytes
    return found


@pytest.mark.parametrize("options", KERNELS, ids=lambda options: "-".join(map(str, options.values())))
def test_footprints_are_what_live_ctas_touch(h200: GpuSpec, options: dict[str, Any]) -> None:
    launch = GemmParams(**EDGES, **options).launch(h200)
    num_ctas = launch.num_ctas or launch.cluster_size * 2
    live = bytes_by_tile(launch, num_ctas)
    assert set(live) == {item.tensor for item in launch.footprints}
    tiles = np.arange(launch.num_tiles)
    for item in launch.footprints:
        expected: dict[int, int] = {}
        for panel, num_bytes in zip(item.panel_of(tiles), item.panel_bytes(tiles), strict=True):
            expected[int(panel)] = max(expected.get(int(panel), 0), int(num_bytes))
        found: dict[int, dict[tuple[int, int], float]] = defaultdict(dict)
        for of_cta in live[item.tensor].values():
            for tile, num_bytes in of_cta.items():
                found[tile[0]][tile] = num_bytes  # CTAs that name one tile share it
        totals = {panel: sum(of_panel.values()) for panel, of_panel in found.items()}
        wanted = {panel: num_bytes for panel, num_bytes in expected.items() if num_bytes}
        assert {panel: total for panel, total in totals.items() if total} == wanted, item.tensor


@pytest.mark.parametrize("options", KERNELS, ids=lambda options: "-".join(map(str, options.values())))
def test_all_of_the_matrices_is_touched_and_nothing_else(h200: GpuSpec, options: dict[str, Any]) -> None:
    launch = GemmParams(**EDGES, **options).launch(h200)
    params = launch.params
    tiles = np.arange(launch.num_tiles)
    totals = {}
    for item in launch.footprints:
        panels, first = np.unique(item.panel_of(tiles), return_index=True)
        totals[item.tensor] = int(item.panel_bytes(tiles)[first].sum())
        assert len(panels) <= launch.num_tiles + 1
    width = {"fp32": 4, "tf32": 4, "fp8": 1}.get(params["dtype"], 2)
    out_width = {"fp32": 4}.get(params["out_dtype"], 2)
    m, n, k, batch = (params[name] for name in ("m", "n", "k", "batch"))
    assert totals["A"] == m * k * batch * width
    assert totals["B"] == n * k * batch * width
    if params["split_k_mode"] == "second_kernel":
        assert totals == {**totals, "workspace": 4 * params["split_k"] * m * n}
        assert "D" not in totals
    else:
        assert totals["D"] == m * n * batch * out_width
        reads_c = params["beta"] and params["epilogue"] != "tma_reduce"  # L2 adds to D
        assert totals.get("C", 0) == (m * n * batch * out_width if reads_c else 0)
        assert totals.get("bias", 0) == (4 * n if params["bias"] else 0)


def test_the_second_kernel_reads_every_part_once(h200: GpuSpec) -> None:
    launch = GemmParams(
        **EDGES, tile="128x128x64", split_k=4, split_k_mode="second_kernel", beta=1.0, batch=2
    ).launch(h200)
    (reduction,) = launch.following
    assert reduction.num_ctas is not None
    live = bytes_by_tile(reduction, reduction.num_ctas)
    elements = EDGES["m"] * EDGES["n"] * 2
    read = sum(
        op.access.num_bytes
        for _, op in dry_run(reduction)["reduce"] if isinstance(op, ops.GlobalLoad) and op.tensor == "workspace"
    )
    assert read == elements * 4 * 4
    assert sum(sum(of_cta.values()) for of_cta in live["D"].values()) == elements * 2
    assert sum(sum(of_cta.values()) for of_cta in live["C"].values()) == elements * 2


def test_c_is_read_only_where_beta_is_not_zero(h200: GpuSpec) -> None:
    for beta, is_read in ((0.0, False), (0.5, True)):
        launch = GemmParams(**EDGES, beta=beta, epilogue="smem").launch(h200)
        assert ("C" in bytes_by_tile(launch, launch.num_ctas or 1)) is is_read
