"""The crossbar between SMs and L2: ports, slices, and the merging of requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gpusim.machine.component import INFINITE, Counters, idealized, ncu


@dataclass(frozen=True, slots=True, kw_only=True)
class XbarSpec:
    """What one SM takes in and gives out, and where requests merge."""

    sm_read_bytes_per_cycle: float = field(metadata=idealized(l2=INFINITE))
    sm_write_bytes_per_cycle: float = field(metadata=idealized(l2=INFINITE))
    write_bytes_per_cycle: float = field(metadata=idealized(l2=INFINITE))
    """What all SMs together can store."""
    store_way_bytes: float
    """What has left an SM and waits for its turn at L2."""
    line_request_bytes: float
    """What a request of a line takes of the links on which its SM's stores leave, while these do."""
    request_turn_packets: float
    """Packets of an SM's stores that pass between two requests of lines of its copies; 0: copies wait for no stores."""
    last_request_fraction: float
    """What the last of e times as many requests of lines waits longer behind the SM's stores, as a fraction of what one
    waits."""
    store_packet_bytes: float
    """What threads' stores of one line take of their SM's port at least, however little of it they store."""
    red_header_fraction: float
    """What a reduction of a whole line takes of its SM's port beyond its bytes, as a part of these; of less, as much."""
    gpc_read_bytes_per_cycle: float = field(metadata=idealized(l2=INFINITE))
    """What all SMs of a GPC together take in."""
    gpc_write_bytes_per_cycle: float = field(metadata=idealized(l2=INFINITE))
    """What they give out."""
    num_gpc_parts: int
    """Parts of a GPC that store an equal share each of what it has, whether the others want theirs or not; TPCs are dealt
    out to them in order."""
    bulk_read_fraction: float
    """Of what slices and links carry of loads and boxes, what they carry of bulk copies without rows."""
    multicast_read_fraction: float
    """The same of multicasts of boxes, each counted once; of those without rows ``bulk_read_fraction`` alone."""
    merge_scope: Literal["sm", "tpc", "gpc"]
    """Whose requests for one line can merge; ``sm``: nobody's."""
    merge_limit: int
    """Requests for a line that become one at most."""
    torn_merge_fraction: float
    """What merges of box rows that lie on one line more than they must, of what would of others."""
    merge_window_cycles: float
    """For how long after a line has passed the slices who asks for it may still get it with whom it was for."""
    merge_wait_fraction: float
    """What of a request's wait for its turn at the slices its lines wait, so that they can be joined for as long."""
    sm_distance_cycles: float = field(metadata=idealized(latency=0.0))
    """What lines take longer to the SM that is farthest from L2 than to the nearest; the others lie evenly between."""


@dataclass(slots=True)
class XbarCounters(Counters):
    """Bytes at the SMs' ports, and what the slices served of them."""

    passed_bytes: float = 0.0
    """Bytes of reads, without what still waits for its port."""
    served_bytes: float = 0.0
    """Of these, what the slices served: merged requests and further receivers of a multicast ride along."""
    carried_bytes: float = 0.0
    """The same, with what bulk copies take beyond their bytes."""
    read_bytes: float = ncu("l1tex__m_xbar2l1tex_read_bytes.sum")
    write_bytes: float = ncu("l1tex__m_l1tex2xbar_write_bytes.sum")
    asked_bytes: float = 0.0
    """Bytes of all reads, zeros included."""
