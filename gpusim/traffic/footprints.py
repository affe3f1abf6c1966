"""Footprints of a launch as arrays: the panel of each tensor that each tile reads or writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LaunchError
from gpusim.machine.config import GpuSpec
from gpusim.traffic.panels import FootprintRow, are_distinct
from gpusim.workload.launch import Launch

MOST_BYTES = 192 << 30
"""Bytes of one tensor beyond which a launch is refused; every described GPU has less memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FootprintTable:
    """Panels of all tiles of a launch, computed once for all later steps."""

    tiles: NDArray[np.int64]
    """Tile indices 0, 1 and so on, int64[num_tiles]."""
    of_tensors: tuple[FootprintRow, ...]
    """Panels of each footprint, in order."""
    fetch_scales: Mapping[str, float] = field(default_factory=dict)
    """Bytes fetched from memory per requested byte, by tensor. Only tensors that are fetched in larger blocks have an entry.
    """

    @classmethod
    def of(cls, launch: Launch, gpu: GpuSpec) -> FootprintTable:
        """Panels of all tiles of ``launch``. Memory of ``gpu`` delivers blocks of ``gpu.l2.fetch_bytes``.

        Raises:
            LaunchError: two footprints of one tensor, or more bytes than any GPU has.
        """
        names = [item.tensor for item in launch.footprints]
        for name in names:
            if names.count(name) > 1:
                raise LaunchError(
                    f"{launch.kernel}: two footprints name the tensor {name!r}; what is read and written in place wants two "
                    "names, for example in and out"
                )
        tiles = np.arange(launch.num_tiles, dtype=np.int64)
        footprints: list[FootprintRow] = []
        scales: dict[str, float] = {}
        for item in launch.footprints:
            panels, num_bytes = item.panel_of(tiles), item.panel_bytes(tiles)
            is_own = panels is tiles or are_distinct(panels)
            smem_bytes = item.table_bytes or (int(num_bytes.sum()) if is_own else 0)
            if smem_bytes > MOST_BYTES:
                raise LaunchError(
                    f"{launch.kernel}: {item.tensor} has {smem_bytes >> 30} GiB, no GPU has memory for more than "
                    f"{MOST_BYTES >> 30}: take a smaller size"
                )
            if item.block_bytes is not None:
                asked = float(num_bytes.sum())
                num_bytes = np.maximum(num_bytes, item.block_bytes(tiles, gpu.l2.fetch_bytes))
                scales[item.tensor] = float(num_bytes.sum()) / max(asked, 1.0)
            footprints.append(
                FootprintRow(
                    tensor=item.tensor, is_write=item.access == "write", panel_of_tile=panels,
                    bytes_of_tile=num_bytes, table_bytes=item.table_bytes, cache_hint=item.cache_hint,
                    is_in_place=item.is_in_place,
                )
            )
        return cls(tiles=tiles, of_tensors=tuple(footprints), fetch_scales=scales)


def first_of(*keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Flags of the entries that are the first with their key.

    >>> first_of(np.array([0, 0, 1]), np.array([5, 5, 5])).tolist()
    [True, False, True]
    """
    order = np.lexsort(keys)
    is_new = np.ones(len(order), dtype=np.bool_)
    is_new[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
    found = np.zeros(len(order), dtype=np.bool_)
    found[order[is_new]] = True
    return found


def read_bytes(row: FootprintRow, cluster_size: int) -> float:
    """Bytes of a tensor that all tiles request. A panel that tiles of one cluster share counts once.

    >>> panels, num_bytes = np.array([0, 0, 1, 2, 3]), np.array([0, 10, 10, 10, 10])
    >>> row = FootprintRow(tensor="a", is_write=False, panel_of_tile=panels, bytes_of_tile=num_bytes)
    >>> longer = FootprintRow(tensor="a", is_write=False, panel_of_tile=panels, bytes_of_tile=num_bytes + 10)
    >>> read_bytes(row, 1), read_bytes(row, 2), read_bytes(longer, 2)
    (40.0, 40.0, 70.0)
    """
    tiles = np.flatnonzero(row.bytes_of_tile)
    if cluster_size > 1:
        tiles = tiles[first_of(row.panel_of_tile[tiles], tiles // cluster_size)]
    return float(row.bytes_of_tile[tiles].sum())
