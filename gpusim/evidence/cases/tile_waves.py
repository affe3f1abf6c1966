"""Waves of GEMM tiles: the order in which clusters of tiles were stored.

In: store times at a lattice of D's elements (:mod:`gpusim.evidence.bench.store_probe`), tile and cluster of the kernel. Out:
the wave of every cluster of tiles, and how many rows and columns of tiles a wave has. These decide what its CTAs share.
The first ``grid`` tiles stored are taken as the first wave.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.bench.store_probe import of_text
from gpusim.evidence.toolchain.cublas_kernels import as_made
from gpusim.evidence.toolchain.cublas_names import NamedKernel, parse_name

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


def num_at_once(row: Mapping[str, str]) -> int:
    """Clusters of a launch's grid.

    >>> num_at_once({"launched": "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT", "grid": "2x66x1"})
    66
    """
    kernel = parse_name(row["launched"])
    ranks = 1 if kernel is None else math.prod(kernel.cluster)
    return max(1, math.prod(map(int, row["grid"].split("x"))) // ranks)
