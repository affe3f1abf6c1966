"""The tensor memory accelerator of one SM."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.machine.component import Component, Counters
from gpusim.machine.timing import Pipe


@dataclass(frozen=True, slots=True, kw_only=True)
class TmaSpec:
    """One TMA unit."""

    latency_cycles: float
    """What a copy takes beyond a load of the same level."""
    box_cycles: float
    """What the engine spends on each box."""
    row_cycles: float
    """What it spends on each row of a box (the rows of a wide box hide behind its bytes)."""
    bytes_per_cycle: float
    """How fast the engine turns a box into requests."""
    issue_cycles: float
    """What the issuing thread spends on one copy instruction."""
    store_latency_cycles: float
    """From a store's issue until its source may be written again, beyond its bytes."""


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

    Models: time a box, a row and a byte; extra latency; the issuing thread's cost.
    Ignores: descriptor fetch (first use of a tensor map), writes into shared memory competing with operand reads.
    Source: the GPU's description.
    """

    kind = "tma"

    def __init__(self, spec: TmaSpec, *, counters: TmaCounters) -> None:
        """``counters`` are shared by all SMs."""
        self.spec = spec
        self.counters = counters
        self.engine = Pipe(units_per_cycle=1.0)

    def walk_cycles(self, num_bytes: float, *, num_boxes: int, num_rows: int) -> tuple[float, float]:
        """(cycles of the engine, of these those that rows cost beyond their bytes)."""
        spec = self.spec
        by_bytes = num_bytes / spec.bytes_per_cycle
        by_rows = max(num_rows * spec.row_cycles, by_bytes)
        return num_boxes * spec.box_cycles + by_rows, by_rows - by_bytes
