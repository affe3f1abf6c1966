"""Fetches of copies from global to shared memory, by address: rows that do not begin on a sector or a line.

In: addresses of a tile's 16-byte chunks in global and in shared memory. Out: counts of sectors and line requests.

Models:
* A fetch is the part of one 32-byte sector of global memory that one 32-byte piece of shared memory receives.
* cp.async: a sector whose halves go to two pieces crosses to the SM twice, for a shift of either address.
* cp.async: a request is all that one instruction fetches of one line for one line of shared memory. Full sectors and
  halves are separate requests; halves are also separated by source and destination half.
* cp.async: two requests for the same sectors and the same line are combined.
* TMA: a request is the full sectors of a line of one box row, or half a sector. Nothing crosses twice.
* TMA: a box that requests half sectors shares no request with neighbouring SMs. Rows that straddle lines share fewer.

Ignores:
* The order of requests: a twentieth of swizzled rows cause one more.
* Copies of 4 and 8 bytes, which L1 serves.

Source: measured: kernels/tile_pitch, h200_sxm, 2026-11-22: one SM, all pitches and layouts. Sharing: pitch_sharing. Grids
whose boxes have half sectors read 1.02 to 1.11 of the requested bytes; 1.125 would mean that nothing is combined. (In
tile_pitch, neighbours in step do combine rows without half sectors.)
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LayoutError
from gpusim.units import LINE_BYTES, SECTOR_BYTES

CHUNK_BYTES = 16
"""Bytes that TMA's swizzles and ``cp.async.cg`` keep contiguous."""


@dataclass(frozen=True, slots=True)
class Fetches:
    """Sectors and line requests of a tile, or of a part of it.

    >>> Fetches(num_bytes=64, num_crossing=3) + Fetches(num_bytes=64, num_crossing=2, num_reads=2)
    Fetches(num_bytes=128, num_sectors=0, num_crossing=5, num_reads=2, num_requests=0, num_shared=0, num_shared_requests=0)
    """

    num_bytes: int = 0
    num_sectors: int = 0
    """Distinct sectors of each instruction (for a box: of each row), summed."""
    num_crossing: int = 0
    """Sectors that cross to the SM: once for each 32-byte piece of shared memory that they go to."""
    num_reads: int = 0
    """Sectors that L2 reads: once for each request."""
    num_requests: int = 0
    """Requests for lines, full or in part."""
    num_shared: int = 0
    """Sectors, of ``num_reads``, that arrive with a neighbouring SM's request if it requests the same ones."""
    num_shared_requests: int = 0
    """Requests, of ``num_requests``, that a neighbouring SM can share."""
    num_torn: int = field(default=0, repr=False)
    """Sectors, of ``num_shared``, in rows that touch one line more than the minimum. Such rows are shared less often."""
    num_torn_requests: int = field(default=0, repr=False)

    def __add__(self, other: Fetches) -> Fetches:
        """Sum of the counts of both."""
        return Fetches(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


def fetches(
    sources: NDArray[np.integer[Any]], destinations: NDArray[np.integer[Any]], active: NDArray[np.bool_] | None = None
) -> Fetches:
    """Fetches of 16-byte cp.async.

    Args:
        sources: int[..., 32], byte addresses in global memory, one row an instruction.
        destinations: int[..., 32], byte addresses in shared memory.
        active: bool[..., 32], or None for all lanes.

    >>> row = 16 * np.arange(8)
    >>> fetches(row, row)
    Fetches(num_bytes=128, num_sectors=4, num_crossing=4, num_reads=4, num_requests=1, num_shared=4, num_shared_requests=1)
    >>> fetches(row + 16, row)  # eight halves of five sectors
    Fetches(num_bytes=128, num_sectors=5, num_crossing=8, num_reads=8, num_requests=3, num_shared=0, num_shared_requests=0)
    >>> fetches(row[:4], row[:4] + 16)  # each sector is wanted twice, by two requests that become one
    Fetches(num_bytes=64, num_sectors=2, num_crossing=4, num_reads=2, num_requests=1, num_shared=2, num_shared_requests=1)

    Raises:
        LayoutError: addresses of different shapes, or that are no multiples of 16.
    """
    given, wanted, instruction = _flat(sources, destinations, active)
    crossing, keys, of = _passes(given, wanted, instruction)
    per_line = LINE_BYTES // SECTOR_BYTES
    masks = np.zeros(keys.shape[1], dtype=np.int64)
    np.bitwise_or.at(masks, of.reshape(-1), 1 << crossing[1] % per_line)
    requests, alike = np.unique(np.stack((*keys[:3], masks)), axis=1, return_inverse=True)
    is_torn = np.isin(keys[0] << 40 | keys[1], (keys[0] << 40 | keys[1])[keys[3] > 0])
    is_double = np.bincount(alike.reshape(-1), minlength=requests.shape[1]) > 1
    is_shared = is_double.copy()
    is_shared[alike.reshape(-1)[~is_torn]] = True
    return Fetches(
        num_bytes=CHUNK_BYTES * given.size,
        num_sectors=np.unique(np.stack((instruction, given // SECTOR_BYTES)), axis=1).shape[1],
        num_crossing=crossing.shape[1], num_reads=sum(int(mask).bit_count() for mask in requests[3]),
        num_requests=requests.shape[1], num_shared=sum(int(mask).bit_count() for mask in requests[3][is_shared]),
        num_shared_requests=int(is_shared.sum()),
    )


def num_passes(
    sources: NDArray[np.integer[Any]], destinations: NDArray[np.integer[Any]], active: NDArray[np.bool_] | None = None
) -> int:
    """Number of passes of 16-byte cp.async through the copy stage that bypasses L1.

    A pass is all that one instruction brings of one line for one line of shared memory. Full sectors and half sectors pass
    separately, and so do the kinds of halves. Banks do not matter: no two rows are written at once.

    Args:
        sources: int[..., 32], byte addresses in global memory, one row an instruction.
        destinations: int[..., 32], byte addresses in shared memory.
        active: bool[..., 32], or None for all lanes.

    Source: measured: kernels/conflicting_copies, h200_sxm, 2026-11-23: one cycle a pass, within 1 % in 70 of 78 streams
    of rows, pads and offsets. Worst: 16 % fewer (8 warps, lines half a line off). Simulated at 1.06 cycles: 4 % on average.

    >>> chunk = 16 * np.arange(8)
    >>> [num_passes(chunk, chunk + offset) for offset in range(0, 128, 16)]
    [1, 3, 2, 4, 2, 4, 2, 3]
    >>> [num_passes(chunk[:4], chunk[:4] + offset) for offset in range(0, 128, 16)]
    [1, 2, 1, 2, 1, 3, 2, 3]

    Raises:
        LayoutError: addresses of different shapes, or that are no multiples of 16.
    """
    return int(_passes(*_flat(sources, destinations, active))[1].shape[1])


def _passes(
    given: NDArray[np.int64], wanted: NDArray[np.int64], instruction: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Sectors that cross; passes (instruction, line, line of shared memory, kind); the pass of each sector."""
    sectors = np.stack((instruction, given // SECTOR_BYTES, wanted // SECTOR_BYTES))
    crossing, which, chunks = np.unique(sectors, axis=1, return_inverse=True, return_counts=True)
    which = which.reshape(-1)
    kind = np.zeros(crossing.shape[1], dtype=np.int64)
    is_half = chunks[which] == 1
    kind[which[is_half]] = (1 + 2 * (given // CHUNK_BYTES % 2) + wanted // CHUNK_BYTES % 2)[is_half]
    per_line = LINE_BYTES // SECTOR_BYTES
    keys, of = np.unique(
        np.stack((crossing[0], crossing[1] // per_line, crossing[2] // per_line, kind)), axis=1, return_inverse=True
    )
    return crossing, keys, of


def _flat(
    sources: NDArray[np.integer[Any]], destinations: NDArray[np.integer[Any]], active: NDArray[np.bool_] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Active chunks: source, destination, index of the instruction."""
    given, wanted = np.asarray(sources, dtype=np.int64), np.asarray(destinations, dtype=np.int64)
    if given.shape != wanted.shape or not given.ndim:
        raise LayoutError(f"fetches: {given.shape} sources for {wanted.shape} destinations: use as many of both")
    num_lanes = given.shape[-1]
    taken = np.flatnonzero(np.broadcast_to(True if active is None else active, given.shape).reshape(-1))
    given, wanted = given.reshape(-1)[taken], wanted.reshape(-1)[taken]
    if ((given | wanted) % CHUNK_BYTES).any():
        raise LayoutError(f"fetches: an address that is no multiple of {CHUNK_BYTES}: use chunks of {CHUNK_BYTES} bytes")
    return given, wanted, np.asarray(taken // num_lanes, dtype=np.int64)


def row_fetches(starts: NDArray[np.integer[Any]], row_bytes: int) -> Fetches:
    """Fetches of rows of ``row_bytes`` bytes that TMA boxes load. ``starts``: int[n], byte addresses of the rows.

    >>> row_fetches(np.array([0]), 128)
    Fetches(num_bytes=128, num_sectors=4, num_crossing=4, num_reads=4, num_requests=1, num_shared=4, num_shared_requests=1)
    >>> row_fetches(np.array([4112]), 128)  # half a sector, three sectors, and half a sector of the next line
    Fetches(num_bytes=128, num_sectors=5, num_crossing=5, num_reads=5, num_requests=3, num_shared=0, num_shared_requests=0)

    Raises:
        LayoutError: starts or widths that are no multiples of 16.
    """
    first = np.asarray(starts, dtype=np.int64)
    if row_bytes % CHUNK_BYTES or (first % CHUNK_BYTES).any():
        raise LayoutError(f"fetches: a row that is no multiple of {CHUNK_BYTES} bytes: use chunks of {CHUNK_BYTES} bytes")
    end = first + row_bytes
    of_row = -(-end // SECTOR_BYTES) - first // SECTOR_BYTES
    sectors = int(of_row.sum())
    is_one = first // SECTOR_BYTES == (end - 1) // SECTOR_BYTES  # within one sector
    ends = (first % SECTOR_BYTES != 0).astype(np.int64) + (end % SECTOR_BYTES != 0)
    halves = np.where(is_one, row_bytes % SECTOR_BYTES != 0, ends)
    from_, to = -(-first // SECTOR_BYTES) * SECTOR_BYTES, end // SECTOR_BYTES * SECTOR_BYTES
    lines = np.where(to > from_, -(-to // LINE_BYTES) - from_ // LINE_BYTES, 0)
    is_torn = lines > -(-row_bytes // LINE_BYTES)
    shares = int(not halves.any())
    return Fetches(
        num_bytes=row_bytes * first.size, num_sectors=sectors, num_crossing=sectors, num_reads=sectors,
        num_requests=int(halves.sum() + lines.sum()),
        num_shared=shares * sectors, num_shared_requests=shares * int(lines.sum()),
        num_torn=shares * int(of_row[is_torn].sum()), num_torn_requests=shares * int(lines[is_torn].sum()),
    )


def unasked_fraction(begins: NDArray[np.integer[Any]], edges: NDArray[np.integer[Any]], block_bytes: int) -> float:
    """Fraction of fetched bytes that no request asked for, if L2 fetches full blocks of ``block_bytes`` bytes.

    The first request for any part of a block fetches it.

    Args:
        begins: int[n], byte addresses at which rows begin. Each row is requested piece by piece, in full sectors.
        edges: int[m + 1], offsets in bytes at which the pieces of a row begin, and at which the last one ends.
        block_bytes: bytes that L2 fetches at once.

    >>> unasked_fraction(np.array([0]), np.array([0, 64, 128, 192]), 128)  # every second piece is there already
    0.5
    >>> round(unasked_fraction(np.array([32]), np.array([0, 128, 256]), 128), 4)  # 96 of the first block, 32 of two others
    0.5833
    >>> unasked_fraction(np.array([32]), np.array([0, 128, 256]), 32)
    0.0
    """
    asked = num_sectors = 0
    for begin in sorted(set((np.asarray(begins, dtype=np.int64) % block_bytes).tolist())):
        at = begin + np.asarray(edges, dtype=np.int64)
        block = np.arange(begin // block_bytes, -(-int(at[-1]) // block_bytes), dtype=np.int64) * block_bytes
        piece = np.searchsorted(at, np.maximum(block, begin), side="right") - 1
        first = np.maximum(at[piece], block) // SECTOR_BYTES
        end = -(-np.minimum(at[piece + 1], block + block_bytes) // SECTOR_BYTES)
        asked += int((end - first).sum())
        num_sectors += len(block) * block_bytes // SECTOR_BYTES
    return 1.0 - asked / num_sectors if num_sectors else 0.0
