"""Units of a GPU: sector, line and warp sizes, and the conversion of ns and GB/s to SM cycles and bytes per SM cycle."""

from __future__ import annotations

from dataclasses import dataclass

SECTOR_BYTES = 32
"""Bytes of an L2 sector. Source: Nsight Compute documentation."""

LINE_BYTES = 128
"""Bytes of an L1 or L2 line, four sectors. Source: Nsight Compute documentation."""

WAVEFRONT_BYTES = 128
"""Bytes that 32 shared-memory banks of 4 bytes move in one pass. Source: CUDA programming guide."""

DEPENDENT_CYCLES = 4.0
"""SM cycles of an instruction that waits for the previous one, on every GPU. Chains of compiled code consist of these.

Source: ``warp_scheduler.dependent_cycles`` of the descriptions of Hopper GPUs, by which the model multiplies this code."""

WARP_SIZE = 32
WARPGROUP_THREADS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """An SM clock in MHz; converts data-sheet units into SM cycles, the simulation's unit.

    >>> Clock(sm_mhz=2000).cycles(ns=500)
    1000.0
    >>> Clock(sm_mhz=2000).bytes_per_cycle(gb_per_s=4000)
    2000.0
    """

    sm_mhz: float

    def cycles(self, *, ns: float) -> float:
        """SM cycles of ``ns`` nanoseconds."""
        return ns * self.sm_mhz / 1e3

    def bytes_per_cycle(self, *, gb_per_s: float) -> float:
        """Bytes per SM cycle at ``gb_per_s`` (10^9 bytes per second)."""
        return gb_per_s * 1e3 / self.sm_mhz

    def time_us(self, *, cycles: float) -> float:
        """Microseconds of ``cycles`` SM cycles."""
        return cycles / self.sm_mhz
