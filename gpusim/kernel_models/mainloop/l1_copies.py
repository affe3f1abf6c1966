"""Access patterns of copies that pass through L1: cp.async of less than 16 bytes, LDG with STS, and transposing copies.

In: tiles of operands, offset and pitch of their rows in global memory. Out: access patterns.

Models:

* A lane copies 16 bytes of shared memory, piece by piece. Lanes of an instruction therefore have a stride of 16
  bytes. Source: NVIDIA/cutlass, ``PredicatedTileAccessIterator``, whose vectors have ``kAccessesPerVector`` accesses.
* An operand that is transposed is copied element by element, along k in global memory. In shared memory consecutive k have a
  stride of a padded row. Threads that access single elements copy element by element, too.
* Lanes queue at the banks of both memories. Rows that straddle lines count more lines.
* cp.async asks again for a sector that two k-steps share. Rows that straddle lines coalesce less (``pitch_sharing``).

Ignores:

* LDG: sectors that rows straddle, and lines that L1 has not got, which pass as those that it has.
* Sectors that L1 keeps from one k-step to the next.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusim.kernel_models.mainloop.shape import MainloopShape
from gpusim.kernel_models.streaming import ceil_div
from gpusim.units import LINE_BYTES, SECTOR_BYTES, WARP_SIZE
from gpusim.workload.gmem.global_access import global_access
from gpusim.workload.gmem.line_fetches import CHUNK_BYTES, Fetches
from gpusim.workload.smem.access import AccessPattern, wavefronts


class Lanes(NamedTuple):
    """Lanes of all copies of a tile: int64[n, 32] byte addresses, and bool[n, 32]."""

    sources: NDArray[np.int64]
    destinations: NDArray[np.int64]
    active: NDArray[np.bool_]


def row_bytes_of(shape: MainloopShape, which: int) -> int:
    """Bytes of a row of the tile of A (0) or B (1) in global memory."""
    return shape.tile[2 if shape.are_k_major[which] else which] * shape.element.num_bytes


def _num_rows(shape: MainloopShape, which: int) -> int:
    return shape.tile[which if shape.are_k_major[which] else 2]


def _lanes(shape: MainloopShape, which: int, start: int, pitch: int) -> Lanes:
    """Lanes of copies whose rows have a pitch of ``pitch`` bytes; the first row begins ``start`` bytes into a line."""
    operand, num_bytes, is_transposed = shape.operands[which], shape.bytes_of_copy(which), shape.is_transposed(which)
    unit = num_bytes if shape.is_by_element(which) else CHUNK_BYTES
    per_row = row_bytes_of(shape, which) // unit
    num_units = per_row * _num_rows(shape, which)
    lane = np.arange(ceil_div(num_units, WARP_SIZE) * WARP_SIZE).reshape(-1, 1, WARP_SIZE)
    row, column = np.divmod(np.minimum(lane, num_units - 1), per_row)
    byte = column * unit + np.arange(0, unit, num_bytes)[:, None]
    landing = operand.byte_offsets(column, row * num_bytes) if is_transposed else operand.byte_offsets(row, byte)
    active = np.broadcast_to(lane < num_units, byte.shape)
    return Lanes(
        (start + row * pitch + byte).reshape(-1, WARP_SIZE), np.asarray(landing).reshape(-1, WARP_SIZE),
        active.reshape(-1, WARP_SIZE),
    )


def copy_access(shape: MainloopShape, which: int, start: int, pitch: int) -> AccessPattern:
    """Access pattern of the cp.async or LDG that copy a tile; arguments in bytes, as in :func:`_lanes`.

    Wavefronts are those of both memories for cp.async, and those of L1 for LDG.
    """
    num_bytes = shape.bytes_of_copy(which)
    sources, destinations, active = _lanes(shape, which, start, pitch)
    read = global_access(sources, num_bytes, active)
    num_wavefronts = read.num_wavefronts
    if shape.copy == "cp_async":
        num_wavefronts = int(wavefronts(f"cp_async_b{8 * num_bytes}", destinations, active, sources).sum())
    num_sectors = _num_rows(shape, which) * ceil_div(row_bytes_of(shape, which), SECTOR_BYTES)
    return replace(read, num_sectors=num_sectors, num_wavefronts=num_wavefronts)


def row_parts(start: int, pitch: int, num_rows: int, row_bytes: int) -> Fetches:
    """Fetches of rows that do not begin on sectors. L1 asks for full sectors, of each line once.

    >>> row_parts(104, 136, 1, 128)  # a part of a sector at both ends
    Fetches(num_bytes=128, num_sectors=5, num_crossing=5, num_reads=5, num_requests=2, num_shared=5, num_shared_requests=2)
    """
    first = start + pitch * np.arange(num_rows)
    begin, end = first // SECTOR_BYTES, -(-(first + row_bytes) // SECTOR_BYTES)
    sectors = end - begin
    lines = -(-end * SECTOR_BYTES // LINE_BYTES) - begin * SECTOR_BYTES // LINE_BYTES
    is_torn, num, num_lines = lines > ceil_div(row_bytes, LINE_BYTES), int(sectors.sum()), int(lines.sum())
    return Fetches(
        num_bytes=num_rows * row_bytes, num_sectors=num, num_crossing=num, num_reads=num, num_requests=num_lines,
        num_shared=num, num_shared_requests=num_lines, num_torn=int(sectors[is_torn].sum()),
        num_torn_requests=int(lines[is_torn].sum()),
    )


def store_access(shape: MainloopShape, which: int) -> AccessPattern:
    """Access pattern of the STS that follow LDG: 16 bytes a lane, or an element of an operand that is transposed."""
    num_bytes = shape.bytes_of_copy(which)
    _, destinations, active = _lanes(shape, which, 0, LINE_BYTES)
    if not shape.is_by_element(which):  # pieces of a lane are one vector
        num_pieces, num_bytes = CHUNK_BYTES // num_bytes, CHUNK_BYTES
        destinations, active = destinations[::num_pieces], active[::num_pieces]
    return AccessPattern(
        num_requests=len(destinations), num_bytes=num_bytes * int(active.sum()),
        num_wavefronts=int(wavefronts(f"st_shared_b{8 * num_bytes}", destinations, active).sum()),
    )
