"""GEMM pipelines in lessons: cycles by number of stages, the knee, and Little's law with measured bytes in flight."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpusim.errors import ConfigError
from gpusim.kernel_models.gemm import GemmParams
from gpusim.lessons.rows import judged
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.simulate.run import simulate

if TYPE_CHECKING:
    import pandas as pd

KNEE_PCT = 2.0
"""Percent above the least time that the number of stages at the knee may take."""


def stage_ladder(params: GemmParams, stages: Iterable[int], gpu: GpuSpec) -> pd.DataFrame:
    """Table of a GEMM with different numbers of stages, one line each.

    Columns:

    * ``smem (KiB)``
    * ``cycles``
    * ``cycles/k-step``: start and end of the kernel are spread over its k-steps
    * ``round trip/stages (cycles)``: cycles of a k-step with one stage, over the stages. A ring that only keeps several
      copies in flight cannot be faster.
    * ``tensor cores busy (%)``
    * ``bound by``: what fills the time (:mod:`gpusim.simulate.bottleneck`). A wait while MMAs run is no loss.

    >>> from gpusim import load_gpu
    >>> small = GemmParams(m=1024, n=1024, k=1024, tile="128x128x64", schedule="warp_specialized")
    >>> ladder = stage_ladder(small, (1, 4), load_gpu("h200_sxm"))
    >>> bool(ladder.loc[4, "cycles"] < ladder.loc[1, "cycles"])
    True

    Args:
        params: the GEMM; its ``stages`` are ignored.
        stages: numbers of stages, including 1.
        gpu: GPU of the launch.

    Raises:
        ConfigError: 1 is not among the stages.
        GpusimError: ``simulate`` refuses a launch.
    """
    import pandas as pd

    wanted = sorted(set(stages))
    if wanted[:1] != [1]:
        raise ConfigError(f"stage ladder: stages are {wanted}, wants 1 among them, with which the others are compared")
    rows = []
    for number in wanted:
        launch = params.model_copy(update={"stages": number}).launch(gpu)
        result = simulate(launch, gpu)
        busy_pct = 100.0 * result.busy.get("tensor", 0.0)
        rows.append((number, launch.smem_bytes / 1024, result.cycles, busy_pct, result.bound_by))
    columns = ["stages", "smem (KiB)", "cycles", "tensor cores busy (%)", "bound by"]
    table = pd.DataFrame(rows, columns=columns).set_index("stages")
    tile = params.resolved(gpu).tile
    assert tile is not None  # resolved() has chosen one
    num_steps = -(-params.k // tile[2])
    table.insert(2, "cycles/k-step", table["cycles"] / num_steps)
    round_trip_cycles = rows[0][2] / num_steps
    table.insert(3, "round trip/stages (cycles)", [round_trip_cycles / number for number in table.index])
    return table


def knee(cycles: pd.Series, *, within_pct: float = KNEE_PCT) -> int:
    """Fewest stages whose cycles are within ``within_pct`` of the least cycles.

    >>> import pandas as pd
    >>> knee(pd.Series({1: 200.0, 2: 120.0, 3: 101.0, 4: 100.0}))
    3
    """
    return int(cycles.index[cycles <= cycles.min() * (1.0 + within_pct / 100.0)].min())


def bytes_in_flight(footprint_bytes: int, *, gpu: str = "h200_sxm") -> pd.DataFrame:
    """Bandwidth of TMA on all SMs over the bytes that each keeps in flight (``kernels/memory_bandwidth``).

    Columns: ``box (KiB)``, ``boxes``, ``in flight (KiB)`` per SM, ``Little's law (GB/s)``, ``predicted (GB/s)``, ``measured
    (GB/s)``, ``error (%)``, ``fitted``. Little's law is bytes in flight over the latency of a single box of the smallest
    size, limited to the highest measured rate.

    Args:
        footprint_bytes: bytes that are read repeatedly: 17301504 fits in L2, 2147483648 does not.
        gpu: GPU of the rows.

    Raises:
        ConfigError: nothing was measured with that footprint.
    """
    num_sms = load_gpu(gpu).num_sms
    rows = judged(
        "memory_bandwidth", "gb_per_s", gpu=gpu, group="in_flight", kernel="tma_load", footprint_bytes=footprint_bytes,
        count=num_sms, ctas_per_sm=1,
    )
    table = rows[["predicted (GB/s)", "measured (GB/s)", "error (%)", "fitted"]].copy()
    table.insert(0, "in flight (KiB)", rows["box_bytes"] * rows["stages"] / 1024)
    table.insert(0, "boxes", rows["stages"])
    table.insert(0, "box (KiB)", rows["box_bytes"] / 1024)
    first = table.sort_values(["in flight (KiB)", "boxes"]).iloc[0]
    per_kib = first["measured (GB/s)"] / first["in flight (KiB)"]
    table.insert(3, "Little's law (GB/s)", (table["in flight (KiB)"] * per_kib).clip(upper=table["measured (GB/s)"].max()))
    return table.sort_values(["in flight (KiB)", "box (KiB)"]).reset_index(drop=True)


def latency_ns(table: pd.DataFrame, *, gpu: str = "h200_sxm") -> float:
    """Latency in :func:`bytes_in_flight`: time of one box of the smallest size, in ns."""
    first = table[table["boxes"] == 1].sort_values("in flight (KiB)").iloc[0]
    return float(first["in flight (KiB)"] * 1024 * load_gpu(gpu).num_sms / first["measured (GB/s)"])


def ring_steps(
    n: int, *, depth: int = 1, num_warpgroups: int = 1, num_boxes: int = 1, gpu: str = "h200_sxm"
) -> pd.DataFrame:
    """Cycles of a k-step by number of stages: a single CTA whose warps copy by TMA and multiply (``kernels/ring_math``).

    >>> list(ring_steps(128).index)
    [2, 3, 4]

    Args:
        n: of the wgmma, 64, 128 or 256; m is 64 for each warpgroup.
        depth: groups of wgmma left in flight, 0 or 1.
        num_warpgroups: 1 or 2.
        num_boxes: 1 for k-steps of 64, 2 for 128.
        gpu: GPU of the rows.

    Raises:
        ConfigError: there are no such rows.
    """
    rows = judged(
        "ring_math", "step_cycles", gpu=gpu, group="rings", n=n, depth=depth, num_warpgroups=num_warpgroups,
        num_boxes=num_boxes, num_ctas=1, has_copies=1, is_noted=0,
    )
    columns = ["predicted (cycles)", "measured (cycles)", "error (%)", "fitted"]
    return rows.set_index("num_stages")[columns].rename_axis("stages")
