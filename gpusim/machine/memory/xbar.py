"""Crossbar between SMs and L2: ports of SMs and GPCs, stores, and coalescing of requests across SMs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gpusim.machine.component import INFINITE, Counters, idealized, ncu


@dataclass(frozen=True, slots=True, kw_only=True)
class XbarSpec:
    """Bandwidth of SMs and GPCs to L2, stores in flight, and the L2 request coalescer."""

    sm_read_bytes_per_cycle: float = field(metadata=idealized(l2=INFINITE))
    """Highest read bandwidth of one SM from L2 (copy_rate)."""
    sm_write_bytes_per_cycle: float = field(metadata=idealized(l2=INFINITE))
    """Highest write bandwidth of one SM to L2 (memory_bandwidth)."""
    store_in_flight_bytes: float
    """Bytes of stores that have left an SM and are in flight to L2, at most (epilogue_pieces)."""
    line_request_bytes: float
    """Store-link time of one line request while its SM stores, as bytes that the link could carry (loads_beside_stores)."""
    request_interval_packets: float
    """Store packets that leave an SM between two line requests of its copies; 0: copies wait for no stores
    (loads_beside_stores)."""
    request_wait_per_efold_fraction: float
    """Extra wait behind stores per e-fold increase in outstanding line requests, relative to the wait of one
    (loads_beside_stores)."""
    store_packet_bytes: float
    """Minimum store-port time of each line that a warp stores to, as bytes that the port could send (epilogue_pieces)."""
    red_header_fraction: float
    """Header of a reduction on the SM's store port, per line, relative to 128 bytes (copy_rate)."""
    gpc_read_bytes_per_cycle: float = field(metadata=idealized(l2=INFINITE))
    """Highest read bandwidth of all SMs of a GPC from L2 (memory_bandwidth)."""
    gpc_write_bytes_per_cycle: float = field(metadata=idealized(l2=INFINITE))
    """Highest write bandwidth of all SMs of a GPC to L2 (memory_bandwidth)."""
    num_gpc_store_ports: int
    """Parts of a GPC, each with a fixed equal share of its store bandwidth; TPCs are assigned round-robin (store_drift)."""
    bulk_read_fraction: float
    """Slice and link bandwidth of bulk copies without a tensor map, relative to loads and boxes (memory_bandwidth)."""
    multicast_read_fraction: float
    """Slice and link bandwidth of multicast boxes, each counted once, relative to boxes without multicast
    (multicast_rings)."""
    coalesce_scope: Literal["sm", "tpc", "gpc"]
    """SMs whose requests for one line coalesce: those of a ``gpc``, those of a ``tpc``, or none, ``sm`` (line_sharing)."""
    coalesce_max_requests: int
    """Most requests for a line that coalesce into one (line_sharing)."""
    misaligned_coalesce_fraction: float
    """Coalescing rate of misaligned box rows, which touch one line more than they need, relative to aligned rows
    (pitch_sharing)."""
    coalesce_window_cycles: float
    """Time after a line has passed its slice in which another request can still coalesce with it (line_sharing)."""
    coalesce_wait_fraction: float
    """Fraction of a request's wait for the slices during which its lines stay open to coalescing (busy_sharing)."""
    sm_distance_cycles: float = field(metadata=idealized(latency=0.0))
    """Extra latency of the SM farthest from L2 over the nearest; other SMs lie evenly between (tile_arrival)."""


@dataclass(slots=True)
class XbarCounters(Counters):
    """Bytes at the SMs' ports, and at the slices."""

    passed_bytes: float = 0.0
    """Bytes of reads that have reached their port."""
    served_bytes: float = 0.0
    """Bytes of reads that the slices served; coalesced requests and further multicast receivers add none."""
    carried_bytes: float = 0.0
    """Bytes of slice time for reads; bulk copies take more than their bytes."""
    read_bytes: float = ncu("l1tex__m_xbar2l1tex_read_bytes.sum")
    write_bytes: float = ncu("l1tex__m_l1tex2xbar_write_bytes.sum")
    asked_bytes: float = 0.0
    """Bytes of all reads, zero rows included."""
