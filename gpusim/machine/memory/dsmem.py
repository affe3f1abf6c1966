"""Distributed shared memory: traffic between the SMs of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.machine.component import Counters, idealized, ncu


@dataclass(frozen=True, slots=True, kw_only=True)
class DsmemSpec:
    """SM-to-SM network at one SM, and cluster barriers."""

    latency_cycles: float = field(metadata=idealized(latency=0.0))
    """Round-trip latency of a load from another SM's shared memory (barriers)."""
    one_way_cycles: float = field(metadata=idealized(latency=0.0))
    """Latency of a remote store or mbarrier arrival until it takes effect (barriers)."""
    same_tpc_saving_cycles: float = field(metadata=idealized(latency=0.0))
    """Latency that each direction saves in a cluster of two CTAs, which share a TPC (barriers)."""
    bytes_per_cycle: float
    """Bandwidth of one SM's link to the SM-to-SM network (barriers)."""
    serve_fraction: float
    """Link time of a byte at the SM that serves it, relative to its time at the SM that reads it (barriers)."""
    cluster_barrier_cycles: float = field(metadata=idealized(latency=0.0))
    """Latency of ``barrier.cluster`` from the last arrival to the first release, without the terms per CTA and warp
    (barriers)."""
    cluster_barrier_cta_cycles: float = field(metadata=idealized(latency=0.0))
    """Extra latency of ``barrier.cluster`` per CTA of the cluster (barriers)."""


@dataclass(slots=True)
class DsmemCounters(Counters):
    """Bytes between SMs."""

    read_bytes: float = ncu("l1tex__m_xbar2l1tex_read_bytes_mem_dshared.sum")
    write_bytes: float = ncu("l1tex__m_l1tex2xbar_write_bytes_mem_dshared.sum")
