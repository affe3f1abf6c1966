"""The one place where nanoseconds and GB/s become SM cycles and bytes per SM cycle."""

from __future__ import annotations

from dataclasses import dataclass

SECTOR_BYTES = 32
"""One L2 sector. Source: Nsight Compute documentation."""

LINE_BYTES = 128
"""One L1 or L2 line, four sectors. Source: Nsight Compute documentation."""

WAVEFRONT_BYTES = 128
"""What 32 shared-memory banks of 4 bytes move in one pass. Source: CUDA programming guide."""

DEPENDENT_CYCLES = 4.0
"""SM cycles of an instruction that waits for the one before, which options like ``step_code`` count, whatever the GPU.

Source: ``warp_scheduler.dependent_cycles`` of the descriptions of Hopper GPUs, which the model multiplies such code by.
"""

WARP_SIZE = 32
WARPGROUP_THREADS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """An SM clock in MHz; turns data-sheet units into the simulation's unit, SM cycles.

    >>> Clock(sm_mhz=2000).cycles(ns=500)
    1000.0
    >>> Clock(sm_mhz=2000).bytes_per_cycle(gb_per_s=4000)
    2000.0
    """

    sm_mhz: float

    def cycles(self, *, ns: float) -> float:
        """SM cycles that ``ns`` nanoseconds take."""
        return ns * self.sm_mhz / 1e3

    def bytes_per_cycle(self, *, gb_per_s: float) -> float:
        """Bytes per SM cycle of ``gb_per_s`` (10^9 bytes a second)."""
        return gb_per_s * 1e3 / self.sm_mhz

    def time_us(self, *, cycles: float) -> float:
        """Microseconds that ``cycles`` SM cycles take."""
        return cycles / self.sm_mhz
