"""Distributed shared memory: what the SMs of a cluster say to one another."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.machine.component import Counters, idealized, ncu


@dataclass(frozen=True, slots=True, kw_only=True)
class DsmemSpec:
    """The SM-to-SM network, one SM's end."""

    latency_cycles: float = field(metadata=idealized(latency=0.0))
    """A load: there and back."""
    one_way_cycles: float = field(metadata=idealized(latency=0.0))
    """A store or an arrival, until it counts there."""
    pair_saving_cycles: float = field(metadata=idealized(latency=0.0))
    """What each way is shorter between the CTAs of a cluster of two, which share a TPC."""
    bytes_per_cycle: float
    serve_fraction: float
    """Of the time that a byte takes at the SM that asks, what it takes at the SM that is asked."""
    cluster_barrier_cycles: float = field(metadata=idealized(latency=0.0))
    """``barrier.cluster`` from the last arrival to the first CTA that goes on, without what follows."""
    cluster_barrier_cta_cycles: float = field(metadata=idealized(latency=0.0))
    """... and for each CTA of the cluster."""


@dataclass(slots=True)
class DsmemCounters(Counters):
    """Bytes between SMs."""

    read_bytes: float = ncu("l1tex__m_xbar2l1tex_read_bytes_mem_dshared.sum")
    write_bytes: float = ncu("l1tex__m_l1tex2xbar_write_bytes_mem_dshared.sum")
