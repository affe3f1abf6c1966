"""Settings of a simulation: the arguments of :func:`gpusim.simulate` as one object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpusim.program.cta_classes import MAX_OPS
from gpusim.simulate.wasm_module import Progress, Watch

ClockMode = Literal["max", "single", "sustained"]
L2State = Literal["cold", "warm", "stored", "flushed"]
Data = Literal["random", "zeros"]
EngineName = Literal["native", "reference"]

IN_L2: frozenset[str] = frozenset({"warm", "stored"})
"""States in which L2 has what fits of the operands when a launch begins."""

MOST_EVENTS = 1_000_000_000
"""Events of one run, unless another limit is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Checked arguments of :func:`gpusim.simulate.run.simulate`, which documents them."""

    clock: ClockMode | float = "single"
    l2: L2State = "cold"
    data: Data = "random"
    ideals: frozenset[str] = frozenset()
    """Names by which the GPU is idealized. The engine carries out those of ``records.Ideal``."""
    recorded_sms: frozenset[int] | Literal["first"] = frozenset()
    engine: EngineName = "native"
    max_ops: int = MAX_OPS
    max_events: int = MOST_EVENTS
    on_progress: Progress | None = None
    simulated_mhz: float | None = None
    watch: Watch | None = None
    checks_order: bool = False
    """Whether findings of the order check end the run with an error, or are remarks."""
    keeps_trace: bool = False
    """Whether the cycle of every event comes back."""

    @property
    def mode(self) -> str:
        """Name of the clock mode, or ``fixed`` where the clock is given."""
        return self.clock if isinstance(self.clock, str) else "fixed"
