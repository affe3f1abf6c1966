"""The L2 cache: which tile is resident, which is being filled, what a request waits for."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.machine.component import INFINITE, Counters, idealized, ncu
from gpusim.machine.exact_math import exp
from gpusim.units import SECTOR_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class L2Spec:
    """Both partitions of a GPU's L2."""

    capacity_bytes: int = field(metadata=idealized(l2=int(INFINITE)))
    num_partitions: int
    num_slices: int
    slice_bytes_per_cycle: float = field(metadata=idealized(l2=INFINITE))
    sustained_fraction: float
    """What the slices deliver under full load, of their peak."""
    side_lead_fraction: float
    """By how much the slices of one side deliver more than the mean of both then, and the other's less."""
    request_bytes: float
    """What a request of a line takes of the slices' time at least, in bytes that they could deliver meanwhile."""
    shared_capacity_fraction: float
    """What one side holds, with copies of lines at home on the other: of ``capacity_bytes``. Both hold what both read."""
    capacity_spread_fraction: float
    """How gradually lines leave around that: three in four stay, or one, where a part 1.1 times this more or less is
    touched between two uses. 0: all or none."""
    life_spread_fraction: float
    """How unalike CTAs live that slices alone pace: standard deviation, over the mean. Less as arithmetic paces them."""
    dirty_fraction: float
    """What may be stored and not yet written back: of ``capacity_bytes``."""
    evict_first_fraction: float
    """What both sides, once full, have left for lines hinted evict_first: of ``capacity_bytes``."""
    evict_last_fraction: float
    """What is kept for lines hinted evict_last where no room is set aside: of ``capacity_bytes``."""
    link_bytes_per_cycle: float = field(metadata=idealized(l2=INFINITE))
    """What passes from one side to the other, each way."""
    link_turnaround_fraction: float
    """What a byte stored takes of it more than alone, where as many that are read pass the same way."""
    near_latency_cycles: float = field(metadata=idealized(latency=0.0))
    """From a load's issue to its use, of a line that the SM's side has: the mean over its slices."""
    far_latency_cycles: float = field(metadata=idealized(latency=0.0))
    """The same of a line that only the other side has."""
    slice_spread_cycles: float = field(metadata=idealized(latency=0.0))
    """What the farthest slice of a side takes beyond the mean."""
    queue_cycles: float = field(metadata=idealized(l2=0.0, latency=0.0))
    """What a line of a bulk copy waits at its slice, on average, where half of the slices' peak rate is taken: at a share u,
    u / (1 - u) of it."""
    fetch_bytes: int
    """What memory gives at least where a sector of so many bytes, side by side, is missing."""
    promoted_read_fraction: float
    """What it is read for more of lines that memory gives with their neighbours, as a request wants: a part of these."""
    write_back_queue_bytes: float
    """Dirty bytes on their way to memory beyond which a store waits for its own."""
    launch_lookup_sectors: float
    """Sectors that are looked up in a launch that asks for nothing."""
    launch_hit_sectors: float
    """What counts as found in it."""
    slice_lookup_sectors: float
    """What is looked up, and found, for each SM at each slice that it has asked, besides what it asks for."""
    dirty_crossing_fraction: float
    """What crosses between the sides, and is found, besides half of what is stored: of what a launch that found L2 empty
    leaves dirty."""


RUN_SECTORS = 512 // SECTOR_BYTES
"""Of a warp's request, which one slice has: a thread's 16 bytes, 32 times. A guess; from a few MiB on all ask all slices."""


def looked_up_beside(spec: L2Spec, asked_sectors: float, num_sms: int) -> tuple[float, float]:
    """Sectors looked up in a launch for others than SMs' requests and crossings, and what counts as found of them.

    A launch that asks for nothing has some; for the rest each SM has as much at each slice that it has asked for anything,
    as if it told them its end: slices are found as if drawn. What it is, is not known.
    Source: kernels/promoted_lookups (``others``), h200_sxm, 2026-11-22: 15,000 to 18,000 from 5 MiB on, however much is read
    by whatever instruction; fills and copies of 1 MiB 2,600 and 3,400 beyond those of nothing (2,100 and 3,900 by this).
    """
    drawn = asked_sectors / RUN_SECTORS / num_sms / spec.num_slices
    told = spec.slice_lookup_sectors * num_sms * spec.num_slices * (1.0 - exp(-drawn))
    return spec.launch_lookup_sectors + told, spec.launch_hit_sectors + told


@dataclass(slots=True)
class L2Counters(Counters):
    """Sectors at the slices."""

    read_sectors: float = ncu("lts__t_sectors_srcunit_tex_op_read.sum")
    write_sectors: float = ncu("lts__t_sectors_srcunit_tex_op_write.sum")
    atom_sectors: float = ncu("lts__t_sectors_op_atom.sum")
    red_sectors: float = ncu("lts__t_sectors_op_red.sum")
    unplanned_miss_bytes: float = 0.0
    """Bytes from memory of tensors that no plan knows."""
    miss_sectors: float = ncu("lts__t_sectors_srcunit_tex_lookup_miss.sum")
    promoted_sectors: float = 0.0
    """Of these what came as lines with their neighbours."""
