"""Shared memory in lessons: bank conflicts of accesses in CuTe notation, strides, and counted accesses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from gpusim.errors import LayoutError
from gpusim.layout import Layout, parse_layout, parse_swizzle
from gpusim.lessons.answers import error_table
from gpusim.lessons.rows import judged, measured
from gpusim.workload.dtypes import dtype_in_memory
from gpusim.workload.smem.access import wavefronts
from gpusim.workload.smem.bank_conflict_fixes import Study, study
from gpusim.workload.smem.banks import analyze
from gpusim.workload.smem.tile_access import Place, TileAccess, smem_tile

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

COUNTED = "sm__sass_l1tex_pipe_lsu_wavefronts_mem_shared.sum"
"""Metric of the wavefronts of an instruction."""

SOURCE_PITCH_BYTES = 16
"""Bytes from lane to lane of the global source of cp.async in ``kernels/shared_access``."""


def bank_access(
    layout: str, dtype: str, op: str, *, swizzle: str | None = None, threads: str | None = None, at: Place = (0, 0)
) -> TileAccess:
    """Access of a warp to a tile, in the notation of ``gpusim banks``.

    >>> bank_access("(32,33):(33,1)", "fp32", "ld_shared_b32", threads="32:1@0").addresses()[0][0, :3].tolist()
    [0, 132, 264]

    Args:
        layout: the tile, in CuTe's notation, offsets in elements.
        dtype: element type.
        op: the instruction.
        swizzle: ``B,M,S`` in elements, or a mode of TMA (``32B``, ``64B``, ``128B``).
        threads: layout from lane to coordinate or index; None for the usual lanes.
        at: coordinate at which the access starts.

    Raises:
        LayoutError: no instruction or tile can have these arguments.
    """
    element = dtype_in_memory(dtype)
    in_bytes = None if swizzle is None else parse_swizzle(swizzle, element.bits)
    lanes = None if threads is None else parse_layout(threads)
    if lanes is not None and not isinstance(lanes, Layout):
        raise LayoutError(f"threads {threads!r} has a swizzle, wants a plain layout; give the tile's with swizzle")
    return TileAccess(op=op, tile=smem_tile(parse_layout(layout), element, in_bytes), threads=lanes, at=at)


def bank_study(layout: str, dtype: str, op: str, **choices: Any) -> Study:
    """Bank conflicts of a warp's access to a tile, and bank conflict fixes; arguments as in :func:`bank_access`.

    >>> bank_study("(32,32):(32,1)", "fp32", "ld_shared_b32", threads="32:1@0").instructions[0].num_wavefronts
    32
    """
    return study(bank_access(layout, dtype, op, **choices))


def bank_wavefronts(layout: str, dtype: str, op: str, **choices: Any) -> int:
    """Wavefronts of a warp's access to a tile, over all its instructions; arguments as in :func:`bank_access`.

    >>> [bank_wavefronts(f"(64,{width}):({width},1)", "bf16", "ldmatrix_x4") for width in (32, 40, 48)]
    [16, 4, 8]
    """
    return sum(found.num_wavefronts for found in analyze(bank_access(layout, dtype, op, **choices)))


def strided(op: str, strides_bytes: Iterable[int]) -> pd.DataFrame:
    """Wavefronts of one instruction whose lane i is at byte i x stride: columns ``stride (bytes)``, ``wavefronts``.

    >>> strided("ld_shared_b32", [4, 8, 128, 132])["wavefronts"].tolist()
    [1, 2, 32, 1]
    """
    import pandas as pd

    strides = [int(stride) for stride in strides_bytes]
    counts = [int(wavefronts(op, stride * np.arange(32))) for stride in strides]
    return pd.DataFrame({"stride (bytes)": strides, "wavefronts": counts})


def counted(op: str | None = None, *, family: str | None = None, gpu: str = "h200_sxm") -> pd.DataFrame:
    """Accesses whose wavefronts Nsight Compute counted, one launch each, with the bank rule's count for these addresses.

    Columns: ``op``, ``family`` (how addresses were drawn), ``active lanes``, ``stride (bytes)``, ``predicted (wavefronts)``,
    ``measured (wavefronts)``. The stride is empty where lanes have no common one. Atomics are left out, since their loops
    depend on values.

    >>> rows = counted("ldmatrix_x4")
    >>> bool((rows["predicted (wavefronts)"] == rows["measured (wavefronts)"]).all())
    True
    """
    import pandas as pd

    where = {name: value for name, value in (("kernel", op), ("family", family)) if value is not None}
    rows = measured("shared_access", gpu=gpu, **where)
    rows = rows[~rows["kernel"].str.startswith(("atom_", "red_"))]
    accesses = []
    for kernel, drawn, active, addresses, found in zip(
        rows["kernel"], rows["family"], rows["active"], rows["addresses"], rows[COUNTED], strict=True
    ):
        lanes = np.array([int(word) for word in addresses.split()], dtype=np.int64)
        mask = (int(str(active), 16) >> np.arange(32) & 1).astype(np.bool_)
        sources = SOURCE_PITCH_BYTES * np.arange(32) if kernel.startswith("cp_async") else None
        accesses.append({
            "op": kernel, "family": drawn, "active lanes": int(mask.sum()), "stride (bytes)": _stride(lanes, mask),
            "predicted (wavefronts)": int(wavefronts(kernel, lanes, None if mask.all() else mask, sources)),
            "measured (wavefronts)": int(found),
        })
    return pd.DataFrame(accesses)


def _stride(lanes: NDArray[np.int64], mask: NDArray[np.bool_]) -> int | None:
    """Bytes from lane to lane, if equal for all 32 lanes."""
    steps = np.unique(np.diff(lanes))
    return int(steps[0]) if mask.all() and len(steps) == 1 else None


def access_cycles(op: str, *, num_warps: int = 16, gpu: str = "h200_sxm") -> pd.DataFrame:
    """Cycles that one warp's access takes on a busy SM, over its ways, predicted and measured (``kernels/shared_rate``).

    >>> access_cycles("ld_b32")["predicted (cycles)"].round(1).to_dict()
    {1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0, 16: 16.0, 32: 32.0}

    Args:
        op: an instruction of ``kernels/shared_rate``, for example ``ld_b32``, ``st_b32``, ``ldmatrix_x4``.
        num_warps: warps that repeat the access, on all four sub-partitions.
        gpu: GPU of the rows.

    Raises:
        ConfigError: there are no such rows.
    """
    where: dict[str, Any] = {"kernel": f"stream_{op}", "num_partitions": 4, "warps_per_partition": num_warps // 4}
    rates = judged("shared_rate", "wavefronts_per_cycle", gpu=gpu, **where).set_index("ways")
    spans = measured("shared_rate", gpu=gpu, **where).set_index("ways")["cycles_per_access"] / num_warps
    counts = spans * rates["measured (per cycle)"]  # wavefronts of an access, by rule
    table = error_table(dict(counts / rates["predicted (per cycle)"]), dict(spans), "cycles", index="ways")
    return table.assign(fitted=rates["fitted"])
