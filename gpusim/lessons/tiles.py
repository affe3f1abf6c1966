"""Layouts and tiles in lessons: global-memory sectors of a warp's access, and bytes that the tiles of a GEMM load."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from gpusim.errors import LayoutError
from gpusim.kernel_models.gemm import GemmParams
from gpusim.layout import Layout, parse_layout
from gpusim.lessons.rows import measured
from gpusim.machine.config import GpuSpec
from gpusim.simulate.run import simulate
from gpusim.units import WARP_SIZE
from gpusim.workload.dtypes import dtype_in_memory
from gpusim.workload.gmem.global_access import global_access

if TYPE_CHECKING:
    import pandas as pd

READ_BYTES = "l1tex__m_xbar2l1tex_read_bytes.sum"
"""Metric of the bytes that SMs receive from L2."""


def warp_sectors(layout: str, dtype: str, threads: str, *, vector: int = 1) -> int:
    """Number of 32-byte sectors that a warp's load of a matrix in global memory touches.

    >>> warp_sectors("(64,1024):(1024,1)", "fp32", "32:1@1"), warp_sectors("(64,1024):(1024,1)", "fp32", "32:1@0")
    (4, 32)

    Args:
        layout: the matrix in CuTe's notation, offsets in elements.
        dtype: element type.
        threads: layout from lane to the coordinate of its first element, for example ``32:1@0`` for one lane per row.
        vector: contiguous elements that each lane loads.

    Raises:
        LayoutError: a layout is invalid, has not 32 lanes, or describes an access that no instruction makes.
    """
    element, matrix, lanes = dtype_in_memory(dtype), parse_layout(layout), parse_layout(threads)
    if not isinstance(matrix, Layout) or not isinstance(lanes, Layout) or not lanes.has_basis or lanes.size != WARP_SIZE:
        raise LayoutError(f"warp {threads!r} on {layout!r}: wants plain layouts, and {WARP_SIZE} lanes to coordinates")
    places = [lanes(lane) for lane in range(WARP_SIZE)]
    full = [(*(place if isinstance(place, tuple) else (place,)), 0)[:2] for place in places]
    addresses = element.num_bytes * np.array([matrix(place) for place in full], dtype=np.int64)
    return global_access(addresses, vector * element.num_bytes).num_sectors


def loaded_bytes(params: GemmParams, tile: tuple[int, int]) -> int:
    """Bytes of A and B that all tiles (rows, columns) of a GEMM load: each row of tiles loads B, each column A.

    >>> loaded_bytes(GemmParams(m=4096, n=4096, k=4096), (64, 128)) == 2 * 4096**3 * (1 / 64 + 1 / 128)
    True
    """
    num_rows, num_columns = -(-params.m // tile[0]), -(-params.n // tile[1])
    num_elements = num_rows * num_columns * params.k * (tile[0] + tile[1])
    return num_elements * dtype_in_memory(params.dtype).num_bytes


def tile_ladder(params: GemmParams, tiles: Iterable[str], gpu: GpuSpec) -> pd.DataFrame:
    """Table of a GEMM with tiles of several sizes: MiB that SMs load, by the formula and simulated, and cycles.

    >>> from gpusim import load_gpu
    >>> ladder = tile_ladder(GemmParams(m=1024, n=1024, k=512), ["64x64x64", "128x128x64"], load_gpu("h200_sxm"))
    >>> ladder["by formula (MiB)"].tolist()
    [32.0, 16.0]

    Raises:
        GpusimError: a launch is refused.
    """
    import pandas as pd

    rows = []
    for tile in tiles:
        asked = {**params.model_dump(exclude_unset=True, by_alias=True), "tile": tile}
        chosen = GemmParams.model_validate(asked).resolved(gpu)
        result = simulate(chosen.launch(gpu), gpu)
        assert chosen.tile is not None  # resolved() has chosen one
        by_formula = loaded_bytes(chosen, chosen.tile[:2])
        rows.append((tile, by_formula / 2**20, result.counters[READ_BYTES] / 2**20, result.cycles))
    columns = ["tile", "by formula (MiB)", "simulated (MiB)", "cycles"]
    return pd.DataFrame(rows, columns=columns).set_index("tile")


def intake_by_smem(gpu: str = "h200_sxm") -> pd.DataFrame:
    """Bytes that measured GEMMs received over the bytes of their tiles, by smem layout of the rows (``kernels/hgemm``).

    One line for each of ``none``, ``pad8``, ``pad16`` (elements), ``64B``, ``128B``: number of rows, smallest and largest
    ratio. GEMMs whose extents are no multiples of the tile are left out.

    >>> intake_by_smem().loc["64B", ["least", "most"]].tolist()
    [1.0, 1.0]

    Raises:
        ConfigError: there are no such rows.
    """
    rows = measured("hgemm", gpu=gpu)
    parts = rows["kernel"].str.extract(r"hgemm_(\d+)x(\d+)x(\d+)_.*_(none|pad\d+|\d+B)_")
    extents = parts[[0, 1, 2]].astype(int)
    is_divisible = (rows["m"] % extents[0] == 0) & (rows["n"] % extents[1] == 0) & (rows["k"] % extents[2] == 0)
    of_tiles = [
        loaded_bytes(GemmParams.model_validate({"m": m, "n": n, "k": k}), (bm, bn))
        for m, n, k, bm, bn in zip(rows["m"], rows["n"], rows["k"], extents[0], extents[1], strict=True)
    ]
    share = (rows[READ_BYTES] / of_tiles)[is_divisible].round(3)
    table = share.groupby(parts[3][is_divisible]).agg(["size", "min", "max"])
    return table.set_axis(["rows", "least", "most"], axis=1).rename_axis("rows in shared memory")
