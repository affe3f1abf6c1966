"""Waves of GEMM tiles: the order in which clusters of tiles were stored, or in which the model runs them.

In: store times at a lattice of D's elements (:mod:`gpusim.evidence.bench.store_probe`), tile and cluster of the kernel. Out:
the wave of every cluster of tiles, and how many rows and columns of tiles a wave has. These decide what its CTAs share.

Models:

* a persistent grid takes its tiles in turn, at equal speed on all CTAs: the first ``grid`` tiles stored are the first wave

Ignores:

* the order within a wave
* drift of a CTA by more than a tile
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.bench.store_probe import of_text
from gpusim.evidence.toolchain.cublas_kernels import as_made, options
from gpusim.evidence.toolchain.cublas_names import NamedKernel, parse_name
from gpusim.kernel_models.gemm import GemmParams, resolve
from gpusim.kernel_models.gemm.tile_grid import TilePlan

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec

Ints = NDArray[np.int64]


def last_of_clusters(
    arrivals: Ints, steps: tuple[int, int], sides: tuple[int, int], extents: tuple[int, int]
) -> NDArray[np.float64]:
    """Time when the last point of every cluster was seen, float64[rows, columns] of clusters; NaN without a lattice point.

    Args:
        arrivals: int64[rows, columns] of the lattice.
        steps: elements of D from point to point, along rows and columns.
        sides: elements of a cluster of tiles, along rows and columns.
        extents: rows and columns of D.

    >>> last_of_clusters(np.array([[1, 5, 2], [4, 3, 9]]), (64, 64), (128, 128), (128, 192)).tolist()
    [[5.0, 9.0]]
    """
    shape = tuple(-(-extent // side) for extent, side in zip(extents, sides, strict=True))
    found = np.full(shape, -1.0)
    rows = np.arange(arrivals.shape[0]) * steps[0] // sides[0]
    columns = np.arange(arrivals.shape[1]) * steps[1] // sides[1]
    np.maximum.at(found, (rows[:, None], columns[None, :]), arrivals.astype(float))
    return np.where(found < 0, np.nan, found)


def waves_by_time(times: NDArray[np.float64], num_at_once: int) -> Ints:
    """int64[rows, columns]: wave of every cluster, ``num_at_once`` clusters per wave, the earliest first.

    >>> waves_by_time(np.array([[1.0, 9.0], [5.0, 3.0]]), 2).tolist()
    [[0, 1], [1, 0]]
    """
    order = np.argsort(times, axis=None, kind="stable")
    waves = np.empty(times.size, dtype=np.int64)
    waves[order] = np.arange(times.size) // num_at_once
    return waves.reshape(times.shape)


def shape_of_waves(waves: Ints, num_at_once: int) -> tuple[float, float]:
    """(rows, columns) of tiles in a full wave, mean over the full waves; of the first wave if none is full.

    >>> shape_of_waves(np.array([[0, 0, 1], [2, 1, 1]]), 2)
    (1.0, 2.0)
    """
    full = [wave for wave in range(int(waves.max()) + 1) if np.count_nonzero(waves == wave) == num_at_once] or [0]
    of = [np.nonzero(waves == wave) for wave in full]
    rows, columns = (float(np.mean([len(np.unique(side[axis])) for side in of])) for axis in (0, 1))
    return rows, columns


@dataclass(frozen=True, slots=True)
class Bands:
    """Order in which clusters of tiles are walked, in bands."""

    off: float
    """Median distance of a cluster from its predicted position, after subtraction of the median shift of all."""
    axis: int
    """Dimension of D that bands divide: 0 rows, 1 columns. Tiles are walked along the other one."""
    width: int
    """Clusters across a band."""
    is_snake: bool
    """Whether every second band is walked backwards."""


def places(shape: tuple[int, int], bands: Bands) -> Ints:
    """int64[rows, columns]: position of every cluster in the order.

    >>> places((2, 3), Bands(0.0, 1, 2, is_snake=True)).tolist()
    [[0, 1, 5], [2, 3, 4]]
    """
    num_across, num_along = shape[bands.axis], shape[1 - bands.axis]
    across, along = np.meshgrid(np.arange(num_across), np.arange(num_along), indexing="ij")
    band, within = np.divmod(across, bands.width)
    width = np.minimum(bands.width, num_across - band * bands.width)
    if bands.is_snake:
        along = np.where(band % 2 == 1, num_along - 1 - along, along)
    found = band * bands.width * num_along + along * width + within
    return np.asarray(found if bands.axis == 0 else found.T, dtype=np.int64)


def seen_bands(times: NDArray[np.float64], axis: int) -> Bands:
    """Bands along ``axis`` whose order is nearest to that of ``times``: smallest median distance of a cluster.

    A few clusters were late because their SMs were held. The median ignores them, and the shift of all others.
    """
    rank = np.empty(times.size, dtype=np.int64)
    rank[np.argsort(times, axis=None, kind="stable")] = np.arange(times.size)
    found = []
    for width in range(1, times.shape[axis] + 1):
        for is_snake in (True, False):
            bands = Bands(0.0, axis, width, is_snake)
            late = places(times.shape, bands).ravel() - rank
            found.append(Bands(float(np.median(np.abs(late - np.median(late)))), axis, width, is_snake))
    return min(found, key=lambda bands: bands.off)


def seen_times(config: Mapping[str, str], row: Mapping[str, str]) -> tuple[NamedKernel, NDArray[np.float64]] | None:
    """(kernel of a row, store times of its clusters [rows of D, columns of D]); None where the row has too little."""
    kernel = parse_name(row.get("launched", ""))
    if kernel is None or not row.get("arrivals"):
        return None
    made, is_ours = as_made(kernel)
    rows, columns = (tile * ranks for tile, ranks in zip(made.tile[:2], made.cluster, strict=True))
    sides = (rows, columns) if is_ours else (columns, rows)
    steps = int(config["row_step"]), int(config["column_step"])
    return kernel, last_of_clusters(of_text(row["arrivals"]), steps, sides, (int(config["m"]), int(config["n"])))


def seen_waves(config: Mapping[str, str], row: Mapping[str, str]) -> Ints | None:
    """int64[rows, columns] of clusters: waves of a watched GEMM as they were stored; None where the row has too little."""
    found = seen_times(config, row)
    return None if found is None or not row.get("grid") else waves_by_time(found[1], num_at_once(row))


def numbers(config: Mapping[str, str], row: Mapping[str, str], gpu: GpuSpec) -> Ints | None:
    """int64[rows of D, columns of D]: number of every cluster of tiles, in the order of the model.

    Numbers below :func:`num_at_once` are the first wave; they equal the numbers of the clusters of the grid that compute
    them. None where the row has too little information.
    """
    found, kernel = options(config, row, gpu), parse_name(row.get("launched", ""))
    if found is None or kernel is None or not row.get("grid"):
        return None
    plan = TilePlan(resolve(GemmParams.model_validate(found), gpu))
    ranks_m, ranks_n = plan.config.cluster
    num = plan.num_m * plan.num_n // (ranks_m * ranks_n)
    m, n, _, _ = plan.coordinates(np.arange(num, dtype=np.int64) * ranks_m * ranks_n)
    of = np.empty((plan.num_m // ranks_m, plan.num_n // ranks_n), dtype=np.int64)
    of[m // ranks_m, n // ranks_n] = np.arange(num)
    return of if as_made(kernel)[1] else of.T


def modelled_waves(config: Mapping[str, str], row: Mapping[str, str], gpu: GpuSpec) -> Ints | None:
    """Waves in the model's order, in the form of :func:`seen_waves`."""
    of = numbers(config, row, gpu)
    return None if of is None else of // num_at_once(row)


def num_at_once(row: Mapping[str, str]) -> int:
    """Clusters of a launch's grid.

    >>> num_at_once({"launched": "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT", "grid": "2x66x1"})
    66
    """
    kernel = parse_name(row["launched"])
    ranks = 1 if kernel is None else math.prod(kernel.cluster)
    return max(1, math.prod(map(int, row["grid"].split("x"))) // ranks)
