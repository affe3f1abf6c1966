"""The CTA work distributor: in what order, how fast, and where CTAs start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gpusim.machine.component import idealized
from gpusim.machine.floorplan import Floorplan

GOLDEN = 0.6180339887498949
"""Multiples of it, less their whole part, fill 0 to 1 evenly however many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherSpec:
    """Launch and dispatch."""

    launch_cycles: float = field(metadata=idealized(launch=0.0))
    """From the start of the kernel, as Nsight Compute counts, to the first CTA's first instruction."""
    dispatch_cycles_per_cta: float = field(metadata=idealized(launch=0.0))
    """Between two CTAs that are handed out to free slots, for the whole grid."""
    round_cycles: float = field(metadata=idealized(launch=0.0))
    """The distributor comes round to an SM every so often: a CTA waits for up to so long, half of it on average."""
    cta_start_cycles: float = field(metadata=idealized(launch=0.0))
    """From dispatch of a CTA to its first useful instruction (warps start, first instructions are fetched)."""
    cold_start_cycles: float = field(metadata=idealized(launch=0.0))
    """What the first CTAs of a launch wait more for their instructions, parameters and constants, where all caches were
    flushed before it (``--l2 cold``)."""
    cta_exit_cycles: float = field(metadata=idealized(launch=0.0))
    """From a CTA's last instruction until its slot is free for the next, where no other exits at the same time."""
    retire_cycles_per_cta: float = field(metadata=idealized(launch=0.0))
    """Between two CTAs whose exit is taken note of, for the whole grid: neither the next CTA nor the end comes before."""
    cluster_retire_cycles_per_cta: float = field(metadata=idealized(launch=0.0))
    """The same where CTAs are in clusters."""
    cluster_start_cycles: float = field(metadata=idealized(launch=0.0))
    """What a cluster's start takes more than a CTA's."""
    drain_cycles: float = field(metadata=idealized(launch=0.0))
    """From the last CTA's exit to the end of the kernel."""
    store_end_cycles: float = field(metadata=idealized(latency=0.0, launch=0.0))
    """What the end of a kernel that has stored takes more, from its last exit or from when its last store is in L2."""
    store_exit_cycles: float = field(metadata=idealized(latency=0.0, launch=0.0))
    """From a CTA's last store of registers to memory until it can be out."""
    order: Literal["breadth_first", "tpc_first", "gpc_first"]
    """Where consecutive CTAs go.

    ``breadth_first``: SMs 0, 1, 2, ...; ``tpc_first``: one SM of each TPC, then the other; ``gpc_first``: lone TPCs, then
    all SMs of a GPC before the next GPC's.
    """

    def retire_cycles(self, cluster_size: int) -> float:
        """Between two CTAs whose exit is taken note of, of a grid of such clusters."""
        return self.retire_cycles_per_cta if cluster_size == 1 else self.cluster_retire_cycles_per_cta

    def wait_cycles(self, turn: int) -> float:
        """How long CTA number ``turn`` waits until the round comes to its SM: over many turns, evenly spread.

        >>> from gpusim.machine.config import load_gpu
        >>> spec = load_gpu("h200_sxm").dispatcher
        >>> spec.wait_cycles(0), 0.0 < spec.wait_cycles(1) < spec.round_cycles
        (0.0, True)
        """
        return self.round_cycles * (turn * GOLDEN % 1.0)


def first_sms(spec: DispatcherSpec, floorplan: Floorplan) -> list[int]:
    """SMs of the first CTAs of a grid that fills them all, one each: the SM of CTA 0, of CTA 1, ...

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
    """Slots of all SMs in the order in which they are filled first: each the SMs that one cluster occupies.

    A grid of ``num_ctas``, if known, that leaves SMs free is spread over GPCs and TPCs (``gpc_first``). How slots are filled
    and refilled in time is ``engine/run.h``'s.

    Source: kernels/launch_order (``start``, ``tail``, ``ramp``), h200_sxm, 2026-11-20.
    """
    if cluster_size > 1:
        return floorplan.clusters(cluster_size) * ctas_per_sm
    order = first_sms(spec, floorplan)
    turns = [order] * ctas_per_sm
    if spec.order == "gpc_first" and num_ctas is not None and num_ctas < floorplan.num_sms * ctas_per_sm:
        whole, rest = divmod(num_ctas, floorplan.num_sms)
        some = floorplan.some(rest)
        turns[whole] = some + [sm_idx for sm_idx in order if sm_idx not in set(some)]
    return [(sm_idx,) for turn in turns for sm_idx in turn]
