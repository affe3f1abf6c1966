"""L2 cache: capacity, latency, bandwidth and counters."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.machine.component import INFINITE, Counters, idealized, ncu
from gpusim.machine.exact_math import exp
from gpusim.units import SECTOR_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class L2Spec:
    """All partitions of a GPU's L2."""

    capacity_bytes: int = field(metadata=idealized(l2=int(INFINITE)))
    """Capacity of all slices (vendor)."""
    num_partitions: int
    """Number of L2 partitions, each near to about half of the SMs where there are two (inferred)."""
    num_slices: int
    """Number of slices in all partitions (inferred)."""
    slice_bytes_per_cycle: float = field(metadata=idealized(l2=INFINITE))
    """Peak read bandwidth of one slice (inferred)."""
    sustained_fraction: float
    """Bandwidth of all slices under full load, relative to their peak (memory_bandwidth)."""
    partition0_lead_fraction: float
    """Extra bandwidth of partition 0 under full load, relative to its share by SMs; partition 1 has less (tile_sharing)."""
    request_bytes: float
    """Minimum slice time of one line request, in bytes that the slices could deliver meanwhile (tile_pitch)."""
    partition_capacity_fraction: float
    """Capacity of one partition, copies of lines from the other included, relative to ``capacity_bytes`` (l2_residency)."""
    eviction_width_fraction: float
    """Width of the logistic step from kept to evicted lines, relative to a partition's capacity; 0: a sharp step
    (l2_residency)."""
    cta_lifetime_cv: float
    """Coefficient of variation of CTA lifetimes when L2 bandwidth is the only limit; smaller as math becomes the limit
    (validation/studies)."""
    dirty_fraction: float
    """Most dirty bytes that stay in L2 before it writes back, relative to ``capacity_bytes`` (cache_hints)."""
    evict_first_fraction: float
    """Capacity for lines hinted evict_first once L2 is full, relative to ``capacity_bytes`` (l2_residency)."""
    evict_last_fraction: float
    """Capacity kept for lines hinted evict_last without a persisting set-aside, relative to ``capacity_bytes``
    (cache_hints)."""
    fabric_bytes_per_cycle: float = field(metadata=idealized(l2=INFINITE))
    """Bandwidth of the L2 fabric between the partitions, in each direction (memory_bandwidth)."""
    fabric_turnaround_fraction: float
    """Extra L2-fabric time of a stored byte while equally many bytes are read in its direction (memory_bursts)."""
    near_latency_cycles: float = field(metadata=idealized(latency=0.0))
    """Mean latency of a hit in the SM's own partition, from issue to use (pointer_chase)."""
    far_latency_cycles: float = field(metadata=idealized(latency=0.0))
    """Mean latency of a hit that only the far partition holds, from issue to use (pointer_chase)."""
    slice_spread_cycles: float = field(metadata=idealized(latency=0.0))
    """Extra latency of a partition's farthest slice, beyond the mean (pointer_chase)."""
    queue_cycles: float = field(metadata=idealized(l2=0.0, latency=0.0))
    """Scale of a bulk copy's queue wait at its slice: u / (1 - u) times this at a share u of the peak (tile_sharing)."""
    fetch_bytes: int
    """Aligned block that L2 fetches from HBM for one missing sector (cache_hints)."""
    promoted_read_fraction: float
    """Extra sectors that L2 reads for promoted lines, relative to the promoted sectors that HBM delivered (cold_tiles)."""
    write_back_queue_bytes: float
    """Dirty bytes in flight to HBM beyond which a store waits for its own write-back (guess)."""
    launch_lookup_sectors: float
    """Sectors looked up during a launch that accesses no memory (promoted_lookups)."""
    launch_hit_sectors: float
    """Sectors counted as hits during a launch that accesses no memory (promoted_lookups)."""
    slice_lookup_sectors: float
    """Extra sectors looked up, all of them hits, per SM and slice that the SM accesses (promoted_lookups)."""
    dirty_fabric_fraction: float
    """Extra sectors that cross the L2 fabric and hit, relative to sectors that a launch on a cold L2 leaves dirty
    (cache_hints)."""
    fabric_lookup_sectors: float
    """Sectors counted as looked up for each sector that crosses the L2 fabric; those beyond the first hit (cache_hints)."""


RUN_SECTORS = 512 // SECTOR_BYTES
"""Sectors of a warp's 512-byte request, which one slice serves. Guess; from a few MiB on every SM accesses every slice."""


def other_lookups(spec: L2Spec, asked_sectors: float, num_sms: int) -> tuple[float, float]:
    """(look-ups, hits) in sectors of a launch besides those of SM requests and crossings of the L2 fabric.

    A launch without accesses has some. Each SM adds a fixed number at each slice that it accesses, with slices drawn at
    random. Their cause is not known.
    Source: kernels/promoted_lookups (``others``), h200_sxm, 2026-11-22: 15,000 to 18,000 from 5 MiB on, for any
    instruction and any amount read. Fills and copies of 1 MiB have 2,600 and 3,400 more than a launch without accesses
    (model: 2,100 and 3,900).
    """
    drawn = asked_sectors / RUN_SECTORS / num_sms / spec.num_slices
    drawn_sectors = spec.slice_lookup_sectors * num_sms * spec.num_slices * (1.0 - exp(-drawn))
    return spec.launch_lookup_sectors + drawn_sectors, spec.launch_hit_sectors + drawn_sectors


@dataclass(slots=True)
class L2Counters(Counters):
    """Sectors at the L2 slices."""

    read_sectors: float = ncu("lts__t_sectors_srcunit_tex_op_read.sum")
    write_sectors: float = ncu("lts__t_sectors_srcunit_tex_op_write.sum")
    atom_sectors: float = ncu("lts__t_sectors_op_atom.sum")
    red_sectors: float = ncu("lts__t_sectors_op_red.sum")
    unplanned_miss_bytes: float = 0.0
    """Bytes that HBM delivers of tensors without a traffic plan."""
    unplanned_write_back_bytes: float = 0.0
    """Bytes that L2 writes back of tensors without a traffic plan."""
    unplanned_crossing_bytes: float = 0.0
    """Bytes of such tensors that SMs read from the other L2 partition."""
    unplanned_crossing_miss_bytes: float = 0.0
    """Bytes among these that L2 did not hold in either partition."""
    miss_sectors: float = ncu("lts__t_sectors_srcunit_tex_lookup_miss.sum")
    promoted_sectors: float = 0.0
    """Missed sectors of lines that were fetched with their neighbours (L2 promotion)."""
