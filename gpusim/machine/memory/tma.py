"""The tensor memory accelerator of one SM."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

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


@dataclass(slots=True)
class TmaCounters(Counters):
    """Instructions and bytes."""

    load_instructions: float = field(default=0.0, metadata={"ncu": "smsp__sass_inst_executed_op_tma_ld.sum"})
    store_instructions: float = field(default=0.0, metadata={"ncu": "smsp__sass_inst_executed_op_tma_st.sum"})
    load_bytes: float = field(
        default=0.0, metadata={"ncu": "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"}
    )


class Tma(Component):
    """The engine that walks boxes.

    Models: time a box, a row and a byte; a queue of some boxes, for room in which the issuing thread waits; latency
    against a load's; the issuing thread's cost; a store's source is free and the store complete at once (a wait for
    either ends with the same answer).
    Ignores: descriptor fetch (first use of a tensor map), writes into shared memory competing with operand reads.
    Source: the GPU's description.
    """

    kind = "tma"

    def __init__(self, spec: TmaSpec, *, counters: TmaCounters) -> None:
        """``counters`` are shared by all SMs."""
        self.spec = spec
        self.counters = counters
        self.engine = Pipe(units_per_cycle=1.0)
        self._leave_at: deque[float] = deque([0.0] * spec.max_queued_boxes, maxlen=spec.max_queued_boxes)

    def room_at(self) -> float:
        """Cycle at which the queue has room for one more box."""
        return self._leave_at[0]

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
