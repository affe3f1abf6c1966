"""Instruction caches of an SM, and the fetch of straight-line and loop code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpusim.machine.component import idealized

INSTRUCTION_BYTES = 16
"""Size of every instruction since Volta."""

LOOP_WAYS = 4
"""Ways of a set: one line more in a set makes all its lines miss in each iteration of a loop.

Source: kernels/loop_code, h100_sxm, 2026-11-27: misses begin at 31 to 32 KiB and reach the entire loop at 39 to 40 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionCacheSpec:
    """Two levels of instruction cache in front of L2, and prefetching."""

    l0_bytes: float
    """Code that a sub-core's L0 keeps and issues at full rate (cold_code)."""
    l1_bytes: float
    """Code that the level behind L0 keeps (cold_code)."""
    l1_latency_cycles: float = field(metadata=idealized(latency=0.0))
    """Latency of an L0 miss that hits the level behind it (cold_code)."""
    prefetched_bytes: float
    """Straight-line code in flight to an SM at a time (cold_code)."""
    loop_kept_bytes: float
    """Code of a loop that a sub-core keeps between iterations; each byte beyond it evicts five (loop_code)."""
    loop_bytes_per_cycle: float
    """Refetch rate of evicted loop code at a TPC whose :attr:`loop_fetch_rate_by_tpc` is 1 (fma_loops)."""
    loop_fetch_rate_by_tpc: Mapping[str, float]
    """Refetch rate of a TPC, by its number in the GPC, relative to :attr:`loop_bytes_per_cycle`; missing numbers take
    the mean (loop_code)."""
    launch_fetched_bytes: float
    """Code, from the kernel's first instruction on, that a launch loads after a flush of all caches (counted_code)."""
