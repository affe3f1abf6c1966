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
    """Of code that each sub-core keeps and issues at full rate."""
    l1_bytes: float
    """Of code that the level behind it keeps."""
    l1_latency_cycles: float = field(metadata=idealized(latency=0.0))
    prefetched_bytes: float
    """Of straight-line code on the way at a time."""
    loop_kept_bytes: float
    """Of a loop's code that a sub-core keeps from turn to turn: for each byte more five are lost (:data:`LOOP_WAYS`)."""
    loop_bytes_per_cycle: float
    """At which what it has lost comes to it, ahead of the warps, where :attr:`loop_paces` has 1."""
    loop_paces: Mapping[str, float]
    """Of that, by the number of the SM's TPC in its GPC; a description has all of them, a machine made of one with other
    GPCs the mean for those that it lacks."""
    launch_fetched_bytes: float
    """Of a kernel's code, from its first instruction on, what its launch brings into L1 where all caches were flushed."""
