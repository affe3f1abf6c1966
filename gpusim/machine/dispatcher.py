"""The CTA work distributor: in what order, how fast, and where CTAs start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpusim.machine.component import Component
from gpusim.machine.floorplan import Floorplan

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
    cold_start_cycles: float
    """What the first CTAs of a launch wait more for their instructions, parameters and constants, where all caches were
    flushed before it (``--l2 cold``)."""
    cta_exit_cycles: float
    """From a CTA's last instruction until its slot is free for the next, where no other exits at the same time."""
    retire_cycles_per_cta: float
    """Between two CTAs whose exit is taken note of, for the whole grid: neither the next CTA nor the end comes before."""
    cluster_retire_cycles_per_cta: float
    """The same where CTAs are in clusters."""
    cluster_start_cycles: float
    """What a cluster's start takes more than a CTA's."""
    drain_cycles: float
    """From the last CTA's exit to the end of the kernel."""
    store_end_cycles: float
    """What the end of a kernel that has stored takes more, from its last exit or from when its last store is in L2."""
    store_exit_cycles: float
    """From a CTA's last store of registers to memory until it can be out."""
    order: Literal["breadth_first", "tpc_first", "gpc_first"]
    """Where consecutive CTAs go.

    ``breadth_first``: SMs 0, 1, 2, ...; ``tpc_first``: one SM of each TPC, then the other; ``gpc_first``: lone TPCs, then
    all SMs of a GPC before the next GPC's.
    """

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


class Dispatcher(Component):
    """Slots of all SMs, filled in order and refilled as they fall free.

    Models: rate at which CTAs are handed out, and the slower one at which their exits are noted; start and exit of a
    CTA; a round over the SMs, which spreads starts evenly; a freed slot taken by the next CTA; clusters within a GPC, at
    first as one of each GPC in turn, later on whatever SMs of it fall free; a grid that leaves SMs free, spread over GPCs
    and TPCs (``gpc_first``); a later first instruction of the first wave where caches were flushed; a kernel that has stored
    asks for that once it has left, and so does, for some cycles, a CTA behind its last store.
    Ignores: preferences among SMs that are free at the same cycle; at which GPC a grid begins, which changes from launch to
    launch; second CTAs of lone TPCs, which come before other GPCs have had their first; warps that leave before their CTA
    does; priorities, other kernels; how much code and how many constants a cold start fetches (see ``ops.Code``).
    Source: the GPU's description; order: kernels/launch_order (``start``, ``tail``, ``ramp``), h200_sxm, 2026-11-20.
    """

    kind = "dispatcher"

    def __init__(
        self, spec: DispatcherSpec, *, floorplan: Floorplan, cluster_size: int, ctas_per_sm: int,
        num_ctas: int | None = None,
    ) -> None:
        """Lay out the slots: each is a tuple of the SMs that one cluster occupies; ``num_ctas``: of the grid, if known."""
        self.spec = spec
        self.next_free_at = 0.0
        self._retired_at = 0.0
        self._cluster_size = cluster_size
        self._retire_cycles = spec.retire_cycles_per_cta if cluster_size == 1 else spec.cluster_retire_cycles_per_cta
        self._places = floorplan.cluster_groups()
        self._free: dict[int, list[int]] = {}
        """SMs with room for a CTA that no cluster has, of each GPC and lone pair."""
        self.slots: list[tuple[int, ...]]
        """In the order in which they are filled first."""
        if cluster_size > 1:
            of_one = floorplan.clusters(cluster_size)
            self.slots = of_one * ctas_per_sm
            held = {sm_idx for slot in of_one for sm_idx in slot}
            for sm_idx in set(range(floorplan.num_sms)) - held:
                self._free.setdefault(self._places[sm_idx], []).extend([sm_idx] * ctas_per_sm)
            return
        order = first_sms(spec, floorplan)
        turns = [order] * ctas_per_sm
        if spec.order == "gpc_first" and num_ctas is not None and num_ctas < floorplan.num_sms * ctas_per_sm:
            whole, rest = divmod(num_ctas, floorplan.num_sms)
            some = floorplan.some(rest)
            turns[whole] = some + [sm_idx for sm_idx in order if sm_idx not in set(some)]
        self.slots = [(sm_idx,) for turn in turns for sm_idx in turn]

    def freed(self, sm_idx: int) -> tuple[int, ...] | None:
        """SMs for the next cluster, where a CTA of ``sm_idx`` has left: one slot of each of as many SMs of its GPC.

        None while there are not so many.
        """
        size = self._cluster_size
        if size == 1:
            return (sm_idx,)
        free = self._free.setdefault(self._places[sm_idx], [])
        free.append(sm_idx)
        different = sorted(set(free))
        if len(different) < size:
            return None
        found = tuple(different[:size])
        for taken in found:
            free.remove(taken)
        return found

    def dispatch(self, *, at_cycle: float, num_ctas: int) -> float:
        """Cycle at which a cluster of ``num_ctas`` that is ready at ``at_cycle`` has been dispatched."""
        start = at_cycle if at_cycle > self.next_free_at else self.next_free_at
        self.next_free_at = end = start + num_ctas * self.spec.dispatch_cycles_per_cta
        return end

    def retire(self, *, at_cycle: float, num_ctas: int) -> float:
        """Cycle at which the exit of ``num_ctas`` CTAs that ended at ``at_cycle`` has been noted."""
        start = at_cycle if at_cycle > self._retired_at else self._retired_at
        self._retired_at = end = start + num_ctas * self._retire_cycles
        return end

    def dispatch_alike(self, *, at_cycle: float, num_ctas: int) -> float:
        """Cycle at which single CTAs that are ready at ``at_cycle`` have been dispatched, on average."""
        return self.dispatch(at_cycle=at_cycle, num_ctas=num_ctas) - (num_ctas - 1) / 2 * self.spec.dispatch_cycles_per_cta

    def retire_alike(self, *, at_cycle: float, num_ctas: int) -> tuple[float, float]:
        """Cycles at which the exit of CTAs that ended at ``at_cycle`` has been noted: on average, and of all."""
        end = self.retire(at_cycle=at_cycle, num_ctas=num_ctas)
        return end - (num_ctas - 1) / 2 * self._retire_cycles, end
