"""CTA work distributor: order, rate and place of CTA starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gpusim.machine.component import idealized
from gpusim.machine.floorplan import Floorplan

GOLDEN = 0.6180339887498949
"""Golden section: fractional parts of its multiples fill 0 to 1 evenly, however many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherSpec:
    """Launch, dispatch and retirement of CTAs."""

    launch_cycles: float = field(metadata=idealized(launch=0.0))
    """Time from the kernel's start in Nsight Compute to the first CTA's first instruction (launch_order)."""
    dispatch_cycles_per_cta: float = field(metadata=idealized(launch=0.0))
    """Interval between two CTAs dispatched to free slots, over the entire grid (launch_order)."""
    round_cycles: float = field(metadata=idealized(launch=0.0))
    """Period of the work distributor's round over SMs; a CTA waits for half of it on average (launch_order)."""
    cta_start_cycles: float = field(metadata=idealized(launch=0.0))
    """Time from a CTA's dispatch to its first useful instruction: warp start, instruction fetch (launch_order)."""
    cold_start_cycles: float = field(metadata=idealized(launch=0.0))
    """Extra start time of a launch's first CTAs with ``--l2 cold``, after a flush of all caches (cold_launch)."""
    cta_exit_cycles: float = field(metadata=idealized(launch=0.0))
    """Time from a CTA's retirement until the next can take its slot (launch_order)."""
    retire_cycles_per_cta: float = field(metadata=idealized(launch=0.0))
    """Interval between two CTA retirements, over the entire grid; the next CTA and the kernel's end wait (launch_order)."""
    cluster_retire_cycles_per_cta: float = field(metadata=idealized(launch=0.0))
    """Interval between two CTA retirements in a grid of clusters (launch_order)."""
    cluster_start_cycles: float = field(metadata=idealized(launch=0.0))
    """Extra start time of a cluster over a CTA (launch_order)."""
    drain_cycles: float = field(metadata=idealized(launch=0.0))
    """Time from the last CTA's exit to the kernel's end (launch_order)."""
    store_end_cycles: float = field(metadata=idealized(latency=0.0, launch=0.0))
    """Extra time at the end of a kernel that stores, after its last exit or last store (kernel_end)."""
    store_exit_cycles: float = field(metadata=idealized(latency=0.0, launch=0.0))
    """Time from a CTA's last global store from registers until it can exit (cta_turnover)."""
    order: Literal["breadth_first", "tpc_first", "gpc_first"]
    """Order of SMs for consecutive CTAs: by number (``breadth_first``), one SM of each TPC first (``tpc_first``), GPC
    by GPC (``gpc_first``) (launch_order)."""

    def retire_cycles(self, cluster_size: int) -> float:
        """Interval between two CTA retirements in a grid of clusters of that size."""
        return self.retire_cycles_per_cta if cluster_size == 1 else self.cluster_retire_cycles_per_cta

    def wait_cycles(self, turn: int) -> float:
        """Wait of CTA number ``turn`` for the distributor's round; evenly distributed over many CTAs.

        >>> from gpusim.machine.config import load_gpu
        >>> spec = load_gpu("h200_sxm").dispatcher
        >>> spec.wait_cycles(0), 0.0 < spec.wait_cycles(1) < spec.round_cycles
        (0.0, True)
        """
        return self.round_cycles * (turn * GOLDEN % 1.0)


def first_sms(spec: DispatcherSpec, floorplan: Floorplan) -> list[int]:
    """SM of CTA 0, of CTA 1, ... of a grid that fills all SMs with one CTA each.

    >>> from gpusim.machine.config import load_gpu
    >>> gpu = load_gpu("h200_sxm")
    >>> first_sms(gpu.dispatcher, gpu.floorplan)[6:18]
    [130, 131, 0, 1, 16, 17, 32, 33, 48, 49, 2, 3]
    """
    order = list(range(floorplan.num_sms))
    if spec.order == "tpc_first":
        return order[0::2] + order[1::2]
    return floorplan.in_order() if spec.order == "gpc_first" else order


def slots_of_grid(
    spec: DispatcherSpec, floorplan: Floorplan, *, cluster_size: int, ctas_per_sm: int, num_ctas: int | None = None
) -> list[tuple[int, ...]]:
    """Slots of all SMs in the order in which the first CTAs fill them; a slot is the SMs of one cluster.

    With ``gpc_first``, a grid of ``num_ctas`` that leaves SMs free is spread over GPCs and TPCs. ``engine/run.h`` decides
    when slots are filled and refilled.

    Source: kernels/launch_order (``start``, ``tail``, ``ramp``), h200_sxm, 2026-11-20.
    """
    if cluster_size > 1:
        return floorplan.clusters(cluster_size) * ctas_per_sm
    order = first_sms(spec, floorplan)
    turns = [order] * ctas_per_sm
    if spec.order == "gpc_first" and num_ctas is not None and num_ctas < floorplan.num_sms * ctas_per_sm:
        num_rounds, rest = divmod(num_ctas, floorplan.num_sms)
        some = floorplan.some(rest)
        turns[num_rounds] = some + [sm_idx for sm_idx in order if sm_idx not in set(some)]
    return [(sm_idx,) for turn in turns for sm_idx in turn]
