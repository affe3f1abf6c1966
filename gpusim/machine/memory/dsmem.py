"""Distributed shared memory: what the SMs of a cluster say to one another."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.machine.component import Component, Counters
from gpusim.machine.timing import Pipe


@dataclass(frozen=True, slots=True, kw_only=True)
class DsmemSpec:
    """The SM-to-SM network, one SM's end."""

    latency_cycles: float
    """A load: there and back."""
    one_way_cycles: float
    """A store or an arrival, until it counts there."""
    pair_saving_cycles: float
    """What each way is shorter between the CTAs of a cluster of two, which share a TPC."""
    bytes_per_cycle: float
    serve_fraction: float
    """Of the time that a byte takes at the SM that asks, what it takes at the SM that is asked."""
    cluster_barrier_cycles: float
    """``barrier.cluster`` from the last arrival to the first CTA that goes on, without what follows."""
    cluster_barrier_cta_cycles: float
    """... and for each CTA of the cluster."""


@dataclass(slots=True)
class DsmemCounters(Counters):
    """Bytes between SMs."""

    read_bytes: float = field(default=0.0, metadata={"ncu": "l1tex__m_xbar2l1tex_read_bytes_mem_dshared.sum"})
    write_bytes: float = field(default=0.0, metadata={"ncu": "l1tex__m_l1tex2xbar_write_bytes_mem_dshared.sum"})


class Dsmem(Component):
    """One SM's end of the network.

    Models: latency there and back and one way, shorter in a cluster of two; rate of the SM that asks, which has less of it
    while it is asked itself.
    Ignores: the far end's banks, distance in larger clusters, what clusters side by side take of one another.
    Source: the GPU's description.
    """

    kind = "dsmem"

    def __init__(self, spec: DsmemSpec, *, counters: DsmemCounters) -> None:
        """``counters`` are shared by all SMs."""
        self.spec = spec
        self.counters = counters
        self.link = Pipe(units_per_cycle=spec.bytes_per_cycle)

    def read(self, num_bytes: float, *, at_cycle: float, weight: float, far: Dsmem, is_pair: bool) -> float:
        """Returns the cycle at which the last byte from SM ``far`` is there."""
        self.counters.read_bytes += num_bytes * weight
        spec = self.spec
        far.link.reserve(num_bytes * spec.serve_fraction, at_cycle=at_cycle, weight=weight)
        latency = spec.latency_cycles - (2.0 * spec.pair_saving_cycles if is_pair else 0.0)
        return self.link.reserve(num_bytes, at_cycle=at_cycle, weight=weight) + latency

    def write(self, num_bytes: float, *, at_cycle: float, weight: float, is_pair: bool) -> float:
        """Returns the cycle at which the last byte has arrived."""
        self.counters.write_bytes += num_bytes * weight
        return self.link.reserve(num_bytes, at_cycle=at_cycle, weight=weight) + self.one_way(is_pair=is_pair)

    def one_way(self, *, is_pair: bool) -> float:
        """Cycles from an issue to its effect on another SM."""
        return self.spec.one_way_cycles - (self.spec.pair_saving_cycles if is_pair else 0.0)
