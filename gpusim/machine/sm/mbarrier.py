"""mbarriers: phases, arrivals, transaction bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.machine.component import idealized


@dataclass(frozen=True, slots=True, kw_only=True)
class MbarrierSpec:
    """What synchronizing on an mbarrier costs."""

    arrive_cycles: float = field(metadata=idealized(latency=0.0))
    """What an arrival takes of the issuing warp while the queue has room."""
    arrive_interval_cycles: float = field(metadata=idealized(latency=0.0))
    """Between two arrivals that count, on one SM, and from the issue of one until it counts."""
    max_queued_arrivals: int
    """Arrivals that are issued before one waits for those ahead of it."""
    try_wait_cycles: float = field(metadata=idealized(latency=0.0))
    """A try_wait that finds its phase complete; one that does not puts the warp to sleep after as long."""
    wake_cycles: float = field(metadata=idealized(latency=0.0))
    """From a phase's completion until a warp that sleeps goes on."""
    lone_try_wait_cycles: float = field(metadata=idealized(latency=0.0))
    """A try_wait of one lane, while the others of its warp stand elsewhere, that finds its phase complete."""
    lone_retry_cycles: float = field(metadata=idealized(latency=0.0))
    """What each try that fails adds to that."""
