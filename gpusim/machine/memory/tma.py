"""The tensor memory accelerator of one SM."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from gpusim.machine.component import Component, Counters
from gpusim.machine.timing import Pipe


@dataclass(frozen=True, slots=True, kw_only=True)
class TmaSpec:
    """One TMA unit."""

    latency_cycles: float
    """What a copy takes beyond a load of the same level, until its mbarrier's phase is complete; may be negative."""
    box_cycles: float
    """What the engine spends on each box."""
    row_cycles: float
    """What it spends on each row of a box, or on each request where a row needs several (the rows of a wide box hide behind
    its bytes)."""
    bytes_per_cycle: float
    """How fast the engine turns a box into requests."""
    max_queued_boxes: int
    """Boxes that the engine holds, the one that it walks among them, before the next one's issue waits."""
    issue_cycles: float
    """What the issuing thread spends on one copy instruction."""
    store_box_cycles: float
    """What the engine spends on a box that is stored, before the store port takes its bytes."""
    store_header_bytes: float
    """What a stored box takes of the SM's store port beside its bytes."""
    store_latency_cycles: float
    """From a store's issue until its source may be written again, beyond its bytes."""
    group_wait_cycles: float
    """What a wait for bulk groups takes at least."""
    zero_row_bytes: float
    """What a row of zeros takes of the slices' time, in bytes that they could deliver meanwhile: of the first rows outside
    of a box that is in part inside of its tensor."""
    outside_row_bytes: float
    """The same of further ones, and of boxes all of which lie outside."""
    map_miss_cycles: float
    """For how long a copy waits whose tensor map the SM lacks and L2 has; 0: maps are always there."""
    map_prefetch_cycles: float
    """From a prefetch of a tensor map that L2 has until copies find it."""


@dataclass(slots=True)
class TmaCounters(Counters):
    """Instructions and bytes."""

    load_instructions: float = field(default=0.0, metadata={"ncu": "smsp__sass_inst_executed_op_tma_ld.sum"})
    store_instructions: float = field(default=0.0, metadata={"ncu": "smsp__sass_inst_executed_op_tma_st.sum"})
    load_bytes: float = field(
        default=0.0, metadata={"ncu": "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"}
    )


class TensorMaps:
    """The tensor maps of a launch, as L2 has them: from its begin on, or from when memory has sent them to the first asker.

    Models: a map that several SMs ask for is read once of memory.
    Ignores: its sectors (four a map and SM), which side of L2 it lies on (a fetch takes the mean), that it may be evicted.
    Source: kernels/tensor_map, kernels/first_loads.
    """

    def __init__(self, names: Iterable[str], *, memory_cycles: float) -> None:
        """``memory_cycles``: what memory takes beyond L2; 0 where L2 has them already."""
        self.names = tuple(names)
        self._memory_cycles = memory_cycles
        self._in_l2_at: dict[str, float] = {}

    def in_l2_at(self, name: str, cycle: float) -> float:
        """When a request of ``cycle`` finds the map in L2."""
        return max(cycle, self._in_l2_at.setdefault(name, cycle + self._memory_cycles))


NOT_ASKED = inf
"""When a tensor map is there that nobody has asked for."""


class Tma(Component):
    """The engine that walks boxes.

    Models: time a box, a row and a byte; a queue of some boxes, for room in which the issuing thread waits; latency
    against a load's; the issuing thread's cost; a store's source is free and the store complete at once (a wait for
    either ends with the same answer); the fetch of a tensor map at its first use on the SM, for which the copy and what is
    queued behind it wait, or at its prefetch (of the launch's ``tensor_maps``; others are known).
    Rows of zeros are the crossbar's business.
    Ignores: that an SM keeps some hundreds of tensor maps, no more; writes into shared memory competing with operand reads.
    Source: the GPU's description.
    """

    kind = "tma"

    def __init__(self, spec: TmaSpec, *, counters: TmaCounters, maps: TensorMaps | None = None) -> None:
        """``counters`` and ``maps`` are shared by all SMs."""
        self.spec = spec
        self.counters = counters
        self._maps = maps
        self._map_at: dict[str, float] = dict.fromkeys(maps.names, NOT_ASKED) if maps and spec.map_miss_cycles else {}
        """When maps are there, of those that are not known to be."""
        self._waits_until = 0.0
        """For a map, in order: until then no copy begins."""
        self.engine = Pipe(units_per_cycle=1.0)
        self._leave_at: deque[float] = deque([0.0] * spec.max_queued_boxes, maxlen=spec.max_queued_boxes)

    def room_at(self) -> float:
        """Cycle at which the queue has room for one more box."""
        return self._leave_at[0]

    def prefetch(self, tensor: str, at_cycle: float) -> None:
        """Ask for the map of ``tensor``, unless that has been done."""
        if self._map_at.get(tensor) == NOT_ASKED:
            self._fetch(tensor, at_cycle, self.spec.map_prefetch_cycles)

    def map_at(self, tensor: str, at_cycle: float) -> float:
        """The cycle, ``at_cycle`` or later, at which a copy of ``tensor`` finds its map, behind the copies before it.

        Asks for it if nobody has.
        """
        if not self._map_at and at_cycle >= self._waits_until:
            return at_cycle
        found = self._map_at.get(tensor, 0.0)
        if found == NOT_ASKED:
            found = self._fetch(tensor, at_cycle, self.spec.map_miss_cycles)
        if found <= at_cycle:
            self._map_at.pop(tensor, None)
        self._waits_until = max(self._waits_until, found)
        return max(at_cycle, self._waits_until)

    def _fetch(self, tensor: str, at_cycle: float, cycles: float) -> float:
        assert self._maps is not None  # there is a map that is not known
        found = self._map_at[tensor] = self._maps.in_l2_at(tensor, at_cycle) + cycles
        return found

    def take(self, walk_cycles: float, *, num_boxes: int, at_cycle: float, weight: float) -> float:
        """Queue a copy's boxes; returns the cycle at which the engine comes to the first."""
        end = self.engine.reserve(walk_cycles, at_cycle=at_cycle, weight=weight)
        begin = end - walk_cycles
        if num_boxes == 1:
            self._leave_at.append(end)
        else:
            self._leave_at.extend(begin + walk_cycles * (idx + 1) / num_boxes for idx in range(num_boxes))
        return begin

    def walk_cycles(self, num_bytes: float, *, num_boxes: int, num_rows: int, port: float) -> tuple[float, float]:
        """(cycles of the engine, of these those by which it is slower than its bytes at ``port``, bytes a cycle).

        ``num_rows``: requests, where rows need several each.
        """
        spec = self.spec
        cycles = max(num_rows * spec.row_cycles, num_bytes / spec.bytes_per_cycle)
        return num_boxes * spec.box_cycles + cycles, max(0.0, cycles - num_bytes / port)
