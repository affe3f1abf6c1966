"""The CTA work distributor: in what order, how fast, and where CTAs start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gpusim.machine.component import Component

GOLDEN = 0.6180339887498949
"""Multiples of it, less their whole part, fill 0 to 1 evenly however many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherSpec:
    """Launch and dispatch."""

    launch_cycles: float
    """From the start of the kernel, as Nsight Compute counts, to the first CTA's first instruction."""
    dispatch_cycles_per_cta: float
    """Between two CTAs that are handed out to free slots, for the whole grid."""
    round_cycles: float
    """The distributor comes round to an SM every so often: a CTA waits for up to so long, half of it on average."""
    cta_start_cycles: float
    """From dispatch of a CTA to its first useful instruction (warps start, first instructions are fetched)."""
    cta_exit_cycles: float
    """From a CTA's last instruction until its slot is free for the next, where no other exits at the same time."""
    retire_cycles_per_cta: float
    """Between two CTAs whose exit is taken note of, for the whole grid: neither the next CTA nor the end comes before."""
    cluster_start_cycles: float
    """What a cluster's start takes more than a CTA's."""
    drain_cycles: float
    """From the last CTA's exit to the end of the kernel."""
    order: Literal["breadth_first", "tpc_first"]
    """``breadth_first``: consecutive CTAs go to SMs 0, 1, 2, ...; ``tpc_first``: to one SM of each TPC, then the other."""
    max_clusters: Mapping[str, int]
    """Clusters of each size that run at once with one CTA an SM."""

    def wait_cycles(self, turn: int) -> float:
        """How long CTA number ``turn`` waits until the round comes to its SM: over many turns, evenly spread.

        >>> from gpusim.machine.config import load_gpu
        >>> spec = load_gpu("h200_sxm").dispatcher
        >>> spec.wait_cycles(0), 0.0 < spec.wait_cycles(1) < spec.round_cycles
        (0.0, True)
        """
        return self.round_cycles * (turn * GOLDEN % 1.0)


class Dispatcher(Component):
    """Slots of all SMs, filled in order and refilled as they fall free.

    Models: rate at which CTAs are handed out, and the slower one at which their exits are noted; start and exit of a
    CTA; a round over the SMs, which spreads starts evenly; a freed slot taken by the next CTA; clusters as whole groups of
    neighbouring SMs.
    Ignores: preferences among SMs that are free at the same cycle; clusters on any free SMs of a GPC; warps that leave
    before their CTA does; priorities, other kernels.
    Source: the GPU's description.
    """

    kind = "dispatcher"

    def __init__(self, spec: DispatcherSpec, *, num_sms: int, cluster_size: int, ctas_per_sm: int) -> None:
        """Lay out the slots: each is a tuple of the SMs that one cluster occupies."""
        self.spec = spec
        self.next_free_at = 0.0
        self._retired_at = 0.0
        sms = list(range(num_sms))
        if spec.order == "tpc_first" and cluster_size == 1:
            sms = sms[0::2] + sms[1::2]
        groups = [tuple(sms[i : i + cluster_size]) for i in range(0, num_sms - cluster_size + 1, cluster_size)]
        if cluster_size > 1:
            groups = groups[: spec.max_clusters.get(str(cluster_size), len(groups))]
        self.slots: list[tuple[int, ...]] = groups * ctas_per_sm

    def dispatch(self, *, at_cycle: float, num_ctas: int) -> float:
        """Cycle at which a cluster of ``num_ctas`` that is ready at ``at_cycle`` has been dispatched."""
        start = at_cycle if at_cycle > self.next_free_at else self.next_free_at
        self.next_free_at = end = start + num_ctas * self.spec.dispatch_cycles_per_cta
        return end

    def retire(self, *, at_cycle: float, num_ctas: int) -> float:
        """Cycle at which the exit of ``num_ctas`` CTAs that ended at ``at_cycle`` has been noted."""
        start = at_cycle if at_cycle > self._retired_at else self._retired_at
        self._retired_at = end = start + num_ctas * self.spec.retire_cycles_per_cta
        return end
