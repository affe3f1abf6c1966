"""L2 traffic in lesson 8: bytes of tile orders, residency in an H200's L2, and request coalescing between SMs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from gpusim.errors import KernelError
from gpusim.kernel_models.gemm import GemmParams
from gpusim.lessons.rows import judged, measured
from gpusim.report.tile_orders import compare_orders
from gpusim.units import SECTOR_BYTES
from gpusim.workload.launch import Launch

if TYPE_CHECKING:
    import pandas as pd

    from gpusim.machine.config import GpuSpec

MIB = 2**20
SECTORS_READ = "lts__t_sectors_srcunit_tex_op_read.sum"
NUM_ROUNDS = 8
"""Times that a CTA of ``kernels/l2_residency`` reads its part of the footprint."""


def orders(
    params: GemmParams, gpu: GpuSpec, groups: Iterable[int], directions: Iterable[str] = ("along_m", "along_n")
) -> pd.DataFrame:
    """Table of a GEMM's tile orders: a row per (direction, group), MiB that are read, the fewest DRAM bytes first.

    Columns: lines that a full wave reads, each once (mean over full waves); bytes from DRAM; bytes that all SMs receive.

    Raises:
        KernelError: there is no group, or no direction.
        LaunchError: this GPU cannot run one of them.
    """
    import pandas as pd

    def build(group: int, direction: str) -> Launch:
        options = {**params.model_dump(by_alias=True), "raster": direction, "swizzle_size": group}
        return GemmParams(**options).launch(gpu)

    groups, directions = list(groups), list(directions)
    if not groups or not directions:
        raise KernelError("orders: wants one group and one direction, or more")
    found = compare_orders(build, gpu, groups=groups, directions=directions)
    rows = {
        (order.direction, order.group): {
            "different lines of a wave (MiB)": order.wave_unique_bytes / MIB,
            "from memory (MiB)": order.dram_read_bytes / MIB, "to SMs (MiB)": order.asked_bytes / MIB,
        }
        for order in found.orders
    }  # fmt: skip
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis(["direction", "group"])
    return table.sort_values("from memory (MiB)")


def fetches(readers: str, footprints_mib: Sequence[int]) -> pd.DataFrame:
    """DRAM reads of each line that is read NUM_ROUNDS times: 1 where L2 keeps it, 8 where it keeps nothing.

    Columns ``footprint_mib``, ``predicted``, ``measured``, ``error (%)``.

    Args:
        readers: ``split`` (an SM of one L2 partition reads a line) or ``both_sides`` (one of each partition does).
        footprints_mib: MiB that are read, as in ``kernels/l2_residency``.

    Raises:
        ConfigError: there is no such row.
    """
    rows = judged(
        "l2_residency", "dram__bytes_read.sum", group="footprint", readers=readers, footprint_mib=tuple(footprints_mib)
    )
    table = rows[["footprint_mib", "error (%)"]].copy()
    for name in ("predicted", "measured"):
        table.insert(1, name, rows[f"{name} (bytes)"] / (MIB * rows["footprint_mib"]))
    return table


def coalescing(pattern: str, sharers: Sequence[int]) -> pd.DataFrame:
    """Bytes read from L2 while several SMs read the same tiles at once, as a fraction of the bytes that the SMs receive.

    Columns ``sharers``, ``predicted``, ``measured`` (fractions), ``error (%)``. 0.5 means that two SMs receive a line that
    was read once.

    Args:
        pattern: ``near`` (neighbouring SMs) or ``far`` (SMs at the largest distance).
        sharers: numbers of SMs, as in ``kernels/tile_sharing``.

    Raises:
        ConfigError: there is no such row.
    """
    where: dict[str, Any] = {"group": "shared", "pattern": pattern, "sharers": tuple(sharers), "stages": 4, "a_rows": 128}
    rows = judged("tile_sharing", SECTORS_READ, **where)
    asked = measured("tile_sharing", **where)["asked_bytes"].to_numpy()
    table = rows[["sharers", "error (%)"]].copy()
    for name in ("predicted", "measured"):
        table.insert(1, name, SECTOR_BYTES * rows[f"{name} (sectors)"].to_numpy() / asked)
    return table.sort_values("sharers")
