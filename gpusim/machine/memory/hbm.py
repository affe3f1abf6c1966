"""High-bandwidth memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.machine.component import INFINITE, Counters, idealized, ncu

MOST_SHARE = 0.95
"""Of the peak rate that queues are worked out for: no more was ever measured."""
QUEUE_LATENCIES = 4.0
"""Over which what is taken is a share: queues grow over some latencies, and waves of requests that come together are no load
that lasts. A guess; settled by loads that begin and end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HbmSpec:
    """All stacks of a GPU."""

    peak_gb_per_s: float
    sustained_read_gb_per_s: float = field(metadata=idealized(hbm=INFINITE))
    sustained_write_gb_per_s: float = field(metadata=idealized(hbm=INFINITE))
    turnaround_fraction: float
    """What a byte written takes more than alone, where reads are under way: the bus turns round for it."""
    queued_turnaround_per_mb: float
    """By how much that grows with each 1e6 bytes that wait for memory."""
    latency_ns: float = field(metadata=idealized(latency=0.0))
    """From a load's issue to its use, near and far mixed, unloaded: the mean."""
    refresh_fraction: float
    """Part of the time in which a bank is being refreshed, so that a read waits."""
    refresh_ns: float = field(metadata=idealized(latency=0.0))
    """The longest such wait."""
    refresh_bytes: float
    """Of bytes side by side, what waits for a refresh together."""
    write_wait_ns: float
    """What a read waits for writes, on average, times the part of the peak rate that these take."""
    mixed_wait_ns: float
    """What it waits besides where others read, too, so that channels turn round: times the root of the parts of both."""
    write_turn_ns: float = field(metadata=idealized(hbm=0.0, latency=0.0))
    """One of the turns that such a wait is made of: so much of its mean is its variance."""
    fill_spread_ns: float
    """From a quick fill of many lines to a slow one, where memory has nothing else to do: they come evenly in between."""
    sm_gb_per_s: float = field(metadata=idealized(hbm=INFINITE))
    """What one SM can draw alone."""
    queue_ns: float = field(metadata=idealized(hbm=0.0, latency=0.0))
    """What a line that is read waits at its channel, on average, where half of the peak rate is taken: at a share u,
    u / (1 - u) of it."""
    channel_gb_per_s: float = field(metadata=idealized(hbm=INFINITE, latency=INFINITE))
    """What one channel moves at most."""
    channel_bytes: float
    """Of requests that lie apart, what lies in one channel; which is as if drawn. 0: channels are always even."""
    side_by_side_fraction: float
    """Of the variance of what waits in channels, what is left where requests lie side by side."""
    piece_read_bytes: float
    """What a piece of memory that is read alone takes of the wire beyond its bytes: a row is opened for it."""
    piece_write_bytes: float
    """The same of one that is written alone."""
    part_request_bytes: float
    """What an instruction that asks for parts of lines, others for the rest, takes of the wire beyond its bytes."""


@dataclass(slots=True)
class HbmCounters(Counters):
    """Bytes at the pins."""

    read_bytes: float = ncu("dram__bytes_read.sum")
    write_bytes: float = ncu("dram__bytes_write.sum")
