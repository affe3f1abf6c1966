"""Waves of GEMM tiles in the model's order, and bands that fit an order: what rows of ``tile_order`` are held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpusim import GpuSpec
from gpusim.evidence.cases.tile_waves import Ints, num_at_once
from gpusim.evidence.toolchain.cublas_kernels import as_made, options
from gpusim.evidence.toolchain.cublas_names import parse_name
from gpusim.kernel_models.gemm import GemmParams, resolve
from gpusim.kernel_models.gemm.tile_grid import TilePlan


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
