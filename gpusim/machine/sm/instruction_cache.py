"""Where an SM's instructions come from, and how long straight-line code waits for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpusim.machine.component import idealized

INSTRUCTION_BYTES = 16
"""Of every instruction since Volta."""

LOOP_WAYS = 4
"""Lines of a loop that lie at one place: where one more wants to, all of them come anew each turn. Source:
kernels/loop_code, h100_sxm, 2026-11-27: what is lost grows from 31 to 32 KiB on to all of the loop at 39 to 40."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionCacheSpec:
    """Two levels in front of L2, and what is fetched ahead."""

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
    """Refetch rate of evicted loop code at a TPC whose :attr:`loop_paces` is 1 (fma_loops)."""
    loop_paces: Mapping[str, float]
    """Refetch rate of a TPC, by its number in the GPC, relative to :attr:`loop_bytes_per_cycle`; missing numbers take
    the mean (loop_code)."""
    launch_fetched_bytes: float
    """Code, from the kernel's first instruction on, that a launch loads after a flush of all caches (counted_code)."""
