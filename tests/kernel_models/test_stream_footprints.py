"""Footprints of streams are what their ops touch, edges and tails cut; and copies copy."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from gpusim.kernel_models import KERNEL_MODELS
from gpusim.machine.config import GpuSpec
from gpusim.units import SECTOR_BYTES
from gpusim.workload import ops
from gpusim.workload.launch import Launch

from .conftest import dry_run, ops_of

KERNELS: list[tuple[str, dict[str, Any]]] = [
    *(("elementwise", {"op": op, "elements": 20000, "items_per_thread": 4}) for op in ("copy", "scale", "add", "fill")),
    ("elementwise", {"elements": 4099, "vector_bytes": 4}),
    ("elementwise", {"elements": 4099, "vector_bytes": 2, "dtype": "bf16", "threads": 64}),
    *(("strided_copy", {"elements": 3000, "stride": stride, "items_per_thread": 2}) for stride in (1, 2, 7, 8, 32, 100)),
    *(("smem_copy", {"m": 256, "n": 128, "copy": kind}) for kind in ("scalar", "vectorized", "cp_async", "tma")),
    *(("smem_copy", {"m": 300, "n": 88, "copy": kind}) for kind in ("scalar", "vectorized", "cp_async", "tma")),
    *(("smem_copy", {"m": 300, "n": 88, "copy": kind, "raster": "along_m"}) for kind in ("vectorized", "tma")),
    *(("transpose", {"m": 96, "n": 64, "smem": smem}) for smem in ("none", "naive", "padded", "swizzled")),
    *(("transpose", {"m": 72, "n": 40, "smem": smem}) for smem in ("none", "padded")),
]


def launch_of(name: str, options: dict[str, Any], gpu: GpuSpec) -> Launch:
    return KERNEL_MODELS[name].params.model_validate(options).launch(gpu)


def touched(launch: Launch, *, by_sector: bool) -> dict[str, dict[int, int]]:
    """Bytes (or whole sectors') that each CTA's ops touch of each tensor."""
    found: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for of_role in dry_run(launch).values():
        for cta, op in of_role:
            if isinstance(op, ops.TmaLoad):
                found[op.tensor][cta] += op.num_fetched_bytes
            elif isinstance(op, ops.TmaStore):
                found[op.tensor][cta] += op.num_bytes
            elif isinstance(op, ops.GlobalLoad | ops.GlobalStore | ops.CpAsync):
                found[op.tensor][cta] += SECTOR_BYTES * op.access.num_sectors if by_sector else op.access.num_bytes
    return found


@pytest.mark.parametrize(("name", "options"), KERNELS, ids=str)
def test_each_cta_touches_its_footprint(name: str, options: dict[str, Any], h200: GpuSpec) -> None:
    launch = launch_of(name, options, h200)
    tiles = np.arange(launch.num_tiles)
    plain, sectors = touched(launch, by_sector=False), touched(launch, by_sector=True)
    for item in launch.footprints:
        found = sectors if name == "strided_copy" and item.tensor == "in" else plain
        wanted = item.panel_bytes(tiles)
        twice = np.array([found[item.tensor][tile] for tile in tiles]) - wanted
        if options.get("stride") == 7 and item.tensor == "in":  # two warps of 16 meet within a sector, and both ask for it
            assert (twice >= 0).all() and (twice <= 15 * SECTOR_BYTES).all()
        else:
            assert not twice.any()
        assert item.panel_of(tiles).tolist() == tiles.tolist()
    assert set(plain) == {item.tensor for item in launch.footprints}


@pytest.mark.parametrize(("name", "options"), KERNELS, ids=str)
def test_all_of_the_output_is_stored(name: str, options: dict[str, Any], h200: GpuSpec) -> None:
    launch = launch_of(name, options, h200)
    width = 2 if name == "smem_copy" or options.get("dtype") == "bf16" else 4
    num_elements = options.get("elements") or options["m"] * options["n"]
    assert sum(touched(launch, by_sector=False)["out"].values()) == width * num_elements


@pytest.mark.parametrize(("smem", "wavefronts"), [("naive", 32 + 1024), ("padded", 64), ("swizzled", 64)])
def test_a_transposed_tile_takes_its_wavefronts(smem: str, wavefronts: int, h200: GpuSpec) -> None:
    launch = launch_of("transpose", {"m": 32, "n": 32, "smem": smem}, h200)
    found = ops_of(launch, ops.SharedStore, ops.SharedLoad)
    assert sum(op.access.num_wavefronts for _, op in found) == wavefronts


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
def test_rows_of_whole_vectors_do_not_conflict(swizzle: str, h200: GpuSpec) -> None:
    launch = launch_of("smem_copy", {"m": 128, "n": 64, "swizzle": swizzle, "tile": "128x64"}, h200)
    for _, op in ops_of(launch, ops.SharedStore, ops.SharedLoad):
        assert op.access.num_wavefronts >= op.access.num_bytes // 128
        if swizzle in ("none", "128B"):  # narrower ones lie in panels, whose rows are no neighbours
            assert op.access.num_wavefronts == op.access.num_bytes // 128


def test_stores_without_shared_memory_lie_in_sectors_of_their_own(h200: GpuSpec) -> None:
    (_, store), = ops_of(launch_of("transpose", {"m": 64, "n": 64, "smem": "none"}, h200), ops.GlobalStore)[:1]  # fmt: skip
    assert (store.access.num_requests, store.access.num_sectors, store.access.num_bytes) == (32, 1024, 4096)


def test_all_loads_of_a_full_share_come_before_its_stores(h200: GpuSpec) -> None:
    launch = launch_of("elementwise", {"op": "add", "elements": 1 << 14, "items_per_thread": 4}, h200)
    kinds = [type(op).__name__ for cta, op in ops_of(launch, ops.GlobalLoad, ops.GlobalStore) if cta == 0]
    assert kinds == ["GlobalLoad", "GlobalLoad", "GlobalStore"]
