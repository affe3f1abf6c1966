"""What copies from global into shared memory fetch where rows do not begin on a sector or a line.

In: where the bytes of a tile's rows lie in both. Out: counts.

Models: a fetch is what one 32-byte sector of global memory holds for one 32-byte piece of shared memory: a sector whose
halves go into two pieces crosses to the SM twice, whichever of the two is shifted against the other; lines, parts of which
are asked for apart.
Ignores: copies of 4 and 8 bytes through L1, which fetches a sector once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LayoutError
from gpusim.units import LINE_BYTES, SECTOR_BYTES

CHUNK_BYTES = 16
"""What TMA's swizzles and cp.async around L1 keep together."""


@dataclass(frozen=True, slots=True)
class Fetches:
    """Of a tile, or of a part of it.

    >>> Fetches(num_bytes=64, num_pieces=3) + Fetches(num_bytes=64, num_pieces=2, num_sectors=2)
    Fetches(num_bytes=128, num_pieces=5, num_sectors=2, num_lines=0)
    """

    num_bytes: int = 0
    num_pieces: int = 0
    """Sectors as they cross to the SM: once for each piece of shared memory that they go into."""
    num_sectors: int = 0
    """Different ones, request by request."""
    num_lines: int = 0
    """Different ones, request by request: whole or in part."""

    def __add__(self, other: Fetches) -> Fetches:
        """Both."""
        return Fetches(
            self.num_bytes + other.num_bytes, self.num_pieces + other.num_pieces, self.num_sectors + other.num_sectors,
            self.num_lines + other.num_lines,
        )  # fmt: skip

    @property
    def crossings(self) -> float:
        """Bytes that cross to the SM for each that is asked for."""
        return self.num_pieces * SECTOR_BYTES / self.num_bytes if self.num_bytes else 1.0


def fetches(
    sources: NDArray[np.integer[Any]], destinations: NDArray[np.integer[Any]], active: NDArray[np.bool_] | None = None
) -> Fetches:
    """Of chunks of 16 bytes: int[..., n] byte addresses in global and in shared memory, n chunks a request.

    >>> row = 16 * np.arange(8)
    >>> fetches(row, row)
    Fetches(num_bytes=128, num_pieces=4, num_sectors=4, num_lines=1)
    >>> fetches(row + 16, row)  # eight halves of five sectors
    Fetches(num_bytes=128, num_pieces=8, num_sectors=5, num_lines=2)
    >>> fetches(row + 16, row + 16)
    Fetches(num_bytes=128, num_pieces=5, num_sectors=5, num_lines=2)

    Raises:
        LayoutError: addresses of other shapes, or that are no multiples of 16.
    """
    sources, destinations = np.asarray(sources, dtype=np.int64), np.asarray(destinations, dtype=np.int64)
    if sources.shape != destinations.shape or not sources.ndim:
        raise LayoutError(f"fetches: {sources.shape} sources for {destinations.shape} destinations: use as many of both")
    mask = np.ones(sources.shape, dtype=np.bool_) if active is None else np.broadcast_to(active, sources.shape)
    if (np.where(mask, sources | destinations, 0) % CHUNK_BYTES).any():
        raise LayoutError(f"fetches: an address that is no multiple of {CHUNK_BYTES}: use chunks of {CHUNK_BYTES} bytes")
    pieces = np.asarray(destinations // SECTOR_BYTES, dtype=np.int64)
    span = int(np.where(mask, pieces, 0).max(initial=0)) + 1
    return Fetches(
        num_bytes=CHUNK_BYTES * int(mask.sum()),
        num_pieces=_num_distinct(sources // SECTOR_BYTES * span + pieces, mask),
        num_sectors=_num_distinct(sources // SECTOR_BYTES, mask),
        num_lines=_num_distinct(sources // LINE_BYTES, mask),
    )


def row_fetches(starts: NDArray[np.integer[Any]], row_bytes: int) -> Fetches:
    """Of rows that a TMA box brings: int[n] byte addresses of their starts; each row is asked for alone.

    Where a swizzle puts chunks makes no difference: neighbours stay in one piece.

    >>> row_fetches(np.array([0, 4112]), 128)
    Fetches(num_bytes=256, num_pieces=12, num_sectors=9, num_lines=3)
    """
    within = np.arange(0, row_bytes, CHUNK_BYTES)
    sources = np.asarray(starts, dtype=np.int64)[:, None] + within
    return fetches(sources, np.broadcast_to(within, sources.shape))


def _num_distinct(units: NDArray[np.integer[Any]], mask: NDArray[np.bool_]) -> int:
    """Along the last axis, summed over the others."""
    ordered = np.sort(np.where(mask, units, -1), axis=-1)
    is_first = ordered >= 0
    is_first[..., 1:] &= ordered[..., 1:] != ordered[..., :-1]
    return int(is_first.sum())
