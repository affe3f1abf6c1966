"""Warp accesses to global memory: sectors, lines, and wavefronts of L1's tag and data stages.

In: addresses of warps. Out: ``AccessPattern`` records and counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LayoutError, nearest
from gpusim.units import LINE_BYTES, SECTOR_BYTES, WARP_SIZE
from gpusim.workload.smem.access import AccessPattern, wavefronts
from gpusim.workload.smem.lanes import CHUNK_WARPS, busiest, checked_lanes, narrowed, num_distinct

_TAG_BANKS = 4


def global_access(
    addresses: NDArray[np.integer[Any]], access_bytes: int, active: NDArray[np.bool_] | None = None
) -> AccessPattern:
    """Coalesce the lanes of each warp into sectors and lines, and sum over warps.

    Args:
        addresses: int[..., 32], bytes.
        access_bytes: 1, 2, 4, 8 or 16 for each lane.
        active: bool[..., 32], or None for all; a warp without active lanes makes no request.

    ``num_wavefronts`` counts wavefronts of the data stage by the bank rule of shared memory, for loads that hit in L1. L1
    and shared memory share the data array, but L1 does not combine phases: a double at stride 0 takes 2 wavefronts
    (te42kyfo/gpu-benches @1c36d50). For stores the rule is not validated.

    Ignores:
    * The tag stage, which ``tag_wavefronts`` counts.
    * Repeated requests: a sector requested in several phases counts once.

    >>> global_access(8 * np.arange(32), 4)  # every second float
    AccessPattern(num_requests=1, num_sectors=8, num_lines=2, num_wavefronts=2, num_bytes=128)

    Raises:
        LayoutError: wrong shape or access size, an address misaligned or negative.
    """
    if access_bytes not in (1, 2, 4, 8, 16):
        raise LayoutError(f"global access: {access_bytes} bytes a lane: use 1, 2, 4, 8 or 16")
    addresses, given = checked_lanes("global access", addresses, active, access_bytes, WARP_SIZE)
    rows = addresses.reshape(-1, WARP_SIZE)
    mask = np.ones(rows.shape, dtype=np.bool_) if given is None else given.reshape(-1, WARP_SIZE)
    plain = f"st_shared_b{8 * access_bytes}"
    num_sectors = num_lines = num_wavefronts = 0
    for start in range(0, len(rows), CHUNK_WARPS):
        asked = mask[start : start + CHUNK_WARPS]
        if asked.any():
            near = _from_first_line(rows[start : start + CHUNK_WARPS], asked)
            num_sectors += num_distinct(near, asked, SECTOR_BYTES)
            num_lines += num_distinct(near, asked, LINE_BYTES)
            num_wavefronts += int(wavefronts(plain, near, asked).sum())
    return AccessPattern(
        num_requests=int(mask.any(axis=-1).sum()), num_sectors=num_sectors, num_lines=num_lines,
        num_wavefronts=num_wavefronts, num_bytes=access_bytes * int(mask.sum()),
    )


def _from_first_line(rows: NDArray[np.integer[Any]], mask: NDArray[np.bool_]) -> NDArray[np.integer[Any]]:
    """Addresses relative to the first line, 0 for inactive lanes. 32 bits usually hold them; banks do not change."""
    first = int(np.where(mask, rows, np.iinfo(rows.dtype).max).min()) // LINE_BYTES * LINE_BYTES
    return narrowed(np.where(mask, rows - first, 0))


TAG_HASHES: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {"ampere": (1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2), "hopper": (1, 2, 1, 2, 3, 1, 2, 3, 2, 1, 2, 1, 3, 1)}
)
"""Hashes of the tag banks by architecture. Entry i is XORed into the bank if bit i of the line number (bit 7 + i of the
address) is set."""

_KNOWN_BITS = 14


def tag_hash_of(compute_capability: float) -> str:
    """Name in ``TAG_HASHES`` of the hash of a GPU.

    >>> tag_hash_of(9.0)
    'hopper'

    Raises:
        LayoutError: the tag banks of this compute capability have not been measured.
    """
    names = {8.0: "ampere", 9.0: "hopper"}
    if compute_capability not in names:
        raise LayoutError(f"tag wavefronts: compute capability {compute_capability} is not known: use 8.0 or 9.0")
    return names[compute_capability]


def tag_wavefronts(
    addresses: NDArray[np.integer[Any]], active: NDArray[np.bool_] | None = None, *, tag_hash: str = "hopper"
) -> NDArray[np.int64]:
    """L1 tag-stage wavefronts of each warp access to global memory, int64[...] over the leading axes.

    Args:
        addresses: int[..., 32], bytes; no lane crosses a line. Absolute, or relative to a start that is a multiple of the
            power of two that holds all of them.
        active: bool[..., 32], or None for all; no active lane, no wavefront.
        tag_hash: a name in ``TAG_HASHES``; ``tag_hash_of`` a GPU.

    Models:
    * Four tag banks, each of which looks up one line at a time.
    * A line's bank is the XOR of the hash over the bits of its number (address / 128).
    * Lanes on one line share its look-up.
    * Access width, order of lanes, load or store, hit or miss make no difference.

    Ignores:
    * Lines at a distance of 2 MiB or more: their address bits are assumed to follow in pairs, as on Ampere.
    * Atomics, cp.async and TMA.

    Source: hopper: measured: H200, validation/measured/h200_sxm/global_access.csv, all 1,830 accesses exact (bits 0 to 10).
    Published: validation/published/tag_wavefronts.csv, 46 of 46 rows of Hopper (bits 0 to 13), 144 of 144 rows of Ampere.

    >>> lanes = np.arange(32)
    >>> [int(tag_wavefronts(4 * stride * lanes)) for stride in (1, 8, 16, 32, 40, 64)]
    [1, 2, 4, 8, 10, 8]
    >>> [int(tag_wavefronts(4 * stride * lanes, tag_hash="ampere")) for stride in (1, 8, 16, 32, 40, 64)]
    [1, 2, 4, 8, 9, 8]

    Raises:
        LayoutError: wrong shape, a negative address, or no such hash.
    """
    if tag_hash not in TAG_HASHES:
        raise LayoutError(f"tag wavefronts: hash {tag_hash!r} is unknown; {nearest(tag_hash, TAG_HASHES)}")
    addresses, mask = checked_lanes("tag wavefronts", addresses, active, 1, WARP_SIZE)
    rows = addresses.reshape(-1, WARP_SIZE)
    masks = None if mask is None else mask.reshape(-1, WARP_SIZE)
    found = np.empty(len(rows), dtype=np.int64)
    for start in range(0, len(rows), CHUNK_WARPS):
        step = np.s_[start : start + CHUNK_WARPS]
        lines = rows[step].astype(np.int64) // LINE_BYTES
        banks = _tag_banks(lines, tag_hash)
        # A line number has 58 bits above the two bits of its bank; addresses have 49.
        keyed = narrowed(lines - lines.min(), _TAG_BANKS) * _TAG_BANKS + banks
        keyed = keyed if masks is None else np.where(masks[step], keyed, -1)
        found[step] = busiest(keyed, _TAG_BANKS, is_broadcasting=True)
    return found.reshape(addresses.shape[:-1])


def _tag_banks(lines: NDArray[np.int64], tag_hash: str) -> NDArray[np.int32]:
    """The tag bank, 0 to 3, of each line number."""
    above = lines >> _KNOWN_BITS
    for shift in (32, 16, 8, 4, 2):
        above = above ^ above >> shift
    known = _bank_table(tag_hash)[lines & ((1 << _KNOWN_BITS) - 1)]
    return np.asarray(known ^ (above & (_TAG_BANKS - 1)).astype(np.int32))


@cache
def _bank_table(tag_hash: str) -> NDArray[np.int32]:
    """Tag banks of lines whose bits are all known."""
    banks = np.zeros(1, dtype=np.int32)
    for bit in TAG_HASHES[tag_hash]:
        banks = np.concatenate([banks, banks ^ np.int32(bit)])
    return banks
