"""mbarriers: phases, arrivals, transaction bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.machine.component import idealized


@dataclass(frozen=True, slots=True, kw_only=True)
class MbarrierSpec:
    """Costs of mbarrier arrivals and waits on one SM."""

    arrive_cycles: float = field(metadata=idealized(latency=0.0))
    """Issue time of an arrival while the unit's queue has a free entry (guess)."""
    arrive_interval_cycles: float = field(metadata=idealized(latency=0.0))
    """Interval between two arrivals on an SM, and time from issue of one until it counts (barriers)."""
    max_queued_arrivals: int
    """Arrivals that queue before the next issue stalls (guess)."""
    try_wait_cycles: float = field(metadata=idealized(latency=0.0))
    """Latency of a ``try_wait`` on a complete phase; on an incomplete phase the warp then sleeps (barriers)."""
    wake_cycles: float = field(metadata=idealized(latency=0.0))
    """Time from a phase's completion until a sleeping warp resumes (barriers)."""
    one_lane_try_wait_cycles: float = field(metadata=idealized(latency=0.0))
    """Latency of a ``try_wait`` by one lane of a diverged warp on a complete phase (tma_loop)."""
    one_lane_retry_cycles: float = field(metadata=idealized(latency=0.0))
    """Extra latency of a one-lane ``try_wait`` per failed try (tma_loop)."""
