"""High-bandwidth memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.machine.component import INFINITE, Counters, idealized, ncu

MOST_SHARE = 0.95
"""Largest share of the peak for which queue waits are computed; measurements reach no higher."""
QUEUE_LATENCIES = 4.0
"""Latencies over which the share of the peak is averaged, as queues need some latencies to grow.

Guess; settled by loads that begin and end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HbmSpec:
    """All HBM stacks of a GPU."""

    peak_gb_per_s: float
    """Peak bandwidth of all HBM stacks: bus width times data rate (vendor)."""
    sustained_read_gb_per_s: float = field(metadata=idealized(hbm=INFINITE))
    """Highest bandwidth of a kernel that only reads (stream_grids)."""
    sustained_write_gb_per_s: float = field(metadata=idealized(hbm=INFINITE))
    """Highest bandwidth of a kernel that only writes (stream_grids)."""
    turnaround_fraction: float
    """Extra HBM time of a written byte while reads are in flight, relative to its time in writes alone (stream_grids)."""
    queued_turnaround_per_mb: float
    """Increase of ``turnaround_fraction`` per 1e6 bytes queued at HBM (stream_grids)."""
    latency_ns: float = field(metadata=idealized(latency=0.0))
    """Mean latency of a load from idle HBM, from issue to use, near and far L2 partition mixed (pointer_chase)."""
    refresh_fraction: float
    """Fraction of time in which a bank refreshes, so that its reads wait (pointer_chase)."""
    refresh_ns: float = field(metadata=idealized(latency=0.0))
    """Longest wait of a read for a bank's refresh (pointer_chase)."""
    refresh_granularity_bytes: float
    """Contiguous bytes that wait for a refresh together (memory_channels)."""
    read_behind_write_wait_ns: float
    """Scale of a read's mean wait behind writes: w / (1 - w) times this at a write share w of the peak
    (memory_bandwidth)."""
    read_write_turnaround_wait_ns: float
    """Scale of a read's extra wait in mixed traffic: sqrt(r w) / (1 - w) times this, r and w being read and write
    shares (reads_beside_writes)."""
    write_burst_ns: float = field(metadata=idealized(hbm=0.0, latency=0.0))
    """Length of one burst of writes that a read waits for: variance of the wait over its mean (reads_beside_writes)."""
    fill_spread_ns: float
    """Spread between fast and slow fills of many lines on idle HBM, evenly distributed (tile_arrival)."""
    sm_gb_per_s: float = field(metadata=idealized(hbm=INFINITE))
    """Highest HBM read bandwidth of one SM alone (tile_arrival)."""
    queue_wait_at_half_load_ns: float = field(metadata=idealized(hbm=0.0, latency=0.0))
    """Scale of a line's mean queue wait at its channel: u / (1 - u) times this at a share u of the peak
    (memory_bandwidth)."""
    channel_gb_per_s: float = field(metadata=idealized(hbm=INFINITE, latency=INFINITE))
    """Peak bandwidth of one HBM channel (vendor)."""
    channel_bytes: float
    """Contiguous bytes in one channel; addresses map to channels as if at random, and 0 loads all evenly
    (memory_channels)."""
    interleaved_variance_fraction: float
    """Variance of queued bytes among channels for contiguous requests, relative to scattered ones (memory_channels)."""
    row_open_read_bytes: float
    """Extra bytes of HBM time per isolated piece read, for opening a DRAM row (piece_order)."""
    row_open_write_bytes: float
    """Extra bytes of HBM time per isolated piece written, for opening a DRAM row (piece_order)."""
    partial_line_request_bytes: float
    """Extra bytes of HBM time per warp request for parts of lines whose other parts other requests fetch (line_halves)."""


@dataclass(slots=True)
class HbmCounters(Counters):
    """Bytes at the HBM pins."""

    read_bytes: float = ncu("dram__bytes_read.sum")
    write_bytes: float = ncu("dram__bytes_write.sum")
