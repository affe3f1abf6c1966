"""Distributed shared memory: what the SMs of a cluster say to one another."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.machine.component import Component, Counters
from gpusim.machine.timing import Pipe


@dataclass(frozen=True, slots=True, kw_only=True)
class DsmemSpec:
    """The SM-to-SM network, one SM's end."""

    latency_cycles: float
    bytes_per_cycle: float
    cluster_barrier_cycles: float
    """``barrier.cluster`` from the last arrival to the first CTA that goes on."""


@dataclass(slots=True)
class DsmemCounters(Counters):
    """Bytes between SMs."""

    read_bytes: float = field(default=0.0, metadata={"ncu": "l1tex__m_xbar2l1tex_read_bytes_mem_dshared.sum"})
    write_bytes: float = field(default=0.0, metadata={"ncu": "l1tex__m_l1tex2xbar_write_bytes_mem_dshared.sum"})


class Dsmem(Component):
    """One SM's end of the network.

    Models: latency, rate of the SM that asks.
    Ignores: the far end's banks, distance, other clusters.
    Source: the GPU's description.
    """

    kind = "dsmem"

    def __init__(self, spec: DsmemSpec, *, counters: DsmemCounters) -> None:
        """``counters`` are shared by all SMs."""
        self.spec = spec
        self.counters = counters
        self.link = Pipe(units_per_cycle=spec.bytes_per_cycle)

    def read(self, num_bytes: float, *, at_cycle: float, weight: float) -> float:
        """Returns the cycle at which the last byte is there."""
        self.counters.read_bytes += num_bytes * weight
        return self.link.reserve(num_bytes, at_cycle=at_cycle, weight=weight) + self.spec.latency_cycles

    def write(self, num_bytes: float, *, at_cycle: float, weight: float) -> float:
        """Returns the cycle at which the last byte has arrived."""
        self.counters.write_bytes += num_bytes * weight
        return self.link.reserve(num_bytes, at_cycle=at_cycle, weight=weight) + self.spec.latency_cycles
