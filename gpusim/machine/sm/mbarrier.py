"""mbarriers: phases, arrivals, transaction bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpusim.errors import HazardError
from gpusim.machine.component import Component


@dataclass(frozen=True, slots=True, kw_only=True)
class MbarrierSpec:
    """What synchronizing on an mbarrier costs."""

    arrive_cycles: float
    """What an arrive takes of the issuing warp."""
    try_wait_cycles: float
    """A try_wait that finds its phase complete."""
    wake_cycles: float
    """From a phase's completion until a waiting warp goes on."""


class Mbarrier(Component):
    """One mbarrier object in shared memory.

    Models: arrival count, transaction count, phase and parity; a phase completes when both counts are zero, at the
    latest of its arrivals' cycles; waiters go on ``wake_cycles`` later.
    Ignores: the issue slots that a failing try_wait loop takes.
    Source: PTX ISA, mbarrier; the GPU's description.
    """

    kind = "mbarrier"
    __slots__ = (
        "announced_bytes", "completed_at", "delivered_bytes", "name", "num_arrivals", "num_phases", "parity",
        "pending", "stage", "stamp", "tx_bytes", "waiters",
    )

    def __init__(self, name: str, stage: int, num_arrivals: int) -> None:
        """Stage ``stage`` of ring ``name``; a phase needs ``num_arrivals`` arrivals."""
        self.name = name
        self.stage = stage
        self.num_arrivals = num_arrivals
        self.pending = num_arrivals
        self.tx_bytes = 0
        self.announced_bytes = 0
        self.delivered_bytes = 0
        self.parity = 0
        self.num_phases = 0
        self.stamp = 0.0
        self.completed_at = 0.0
        self.waiters: list[Callable[[float], None]] = []

    def arrive(self, count: int, at_cycle: float) -> None:
        """``count`` arrivals that become visible at ``at_cycle``."""
        self.pending -= count
        if self.pending < 0:
            raise HazardError(
                f"mbarrier {self.name}[{self.stage}] got {self.num_arrivals - self.pending} arrivals in a phase that "
                f"expects {self.num_arrivals}"
            )
        if at_cycle > self.stamp:
            self.stamp = at_cycle
        if not self.pending and not self.tx_bytes:
            self._complete()

    def expect_tx(self, num_bytes: int) -> None:
        """Announce ``num_bytes`` for the current phase."""
        self.tx_bytes += num_bytes
        self.announced_bytes += num_bytes

    def complete_tx(self, num_bytes: int, at_cycle: float) -> None:
        """``num_bytes`` are there at ``at_cycle``."""
        self.tx_bytes -= num_bytes
        self.delivered_bytes += num_bytes
        if at_cycle > self.stamp:
            self.stamp = at_cycle
        if not self.pending and not self.tx_bytes:
            self._complete()

    def has_completed(self, parity: int) -> bool:
        """Whether the phase of parity ``parity`` lies behind (``try_wait.parity`` would return true)."""
        return self.parity != parity

    def _complete(self) -> None:
        self.parity ^= 1
        self.num_phases += 1
        self.completed_at = self.stamp
        self.pending = self.num_arrivals
        self.announced_bytes = self.delivered_bytes = 0
        if self.waiters:
            waiters, self.waiters = self.waiters, []
            for wake in waiters:
                wake(self.completed_at)
