"""Elements of a thread of FFMA: rows of A and columns of B, how lanes load them from shared memory, and how they store D."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpusim.units import LINE_BYTES, SECTOR_BYTES, WARP_SIZE
from gpusim.workload.operands import OperandTile
from gpusim.workload.smem.access import AccessPattern, data_wavefronts
from gpusim.workload.smem.smem_ops import BANK_BYTES

LANES = (4, 8)
"""Lanes of a warp along M and along N, row by row."""

VECTOR = 4
"""Elements of a vector of 16 bytes."""


@dataclass(frozen=True, slots=True)
class ThreadTile:
    """Tile of a thread: adjacent rows and columns, or some that alternate between lanes.

    Vectors of four columns alternate, and rows are adjacent. Single elements of both alternate.
    """

    is_adjacent: bool = False
    is_scalar: bool = False
    """Whether lanes access single elements, instead of vectors."""

    @property
    def vector(self) -> int:
        """Elements of an access."""
        return 1 if self.is_scalar else VECTOR

    def elements(self, which: int, num: int) -> NDArray[np.int64]:
        """Rows of A (0) or columns of B (1) of each lane, from the warp's first: int64[32, num].

        >>> [tile.elements(1, 8)[1].tolist() for tile in (ThreadTile(), ThreadTile(is_adjacent=True))]
        [[4, 5, 6, 7, 36, 37, 38, 39], [8, 9, 10, 11, 12, 13, 14, 15]]
        >>> ThreadTile(is_scalar=True).elements(1, 8)[1].tolist()
        [1, 9, 17, 25, 33, 41, 49, 57]
        """
        lane = np.arange(WARP_SIZE)[:, None]
        place = lane % LANES[1] if which else lane // LANES[1]
        if self.is_adjacent or not (which or self.is_scalar):
            return place * num + np.arange(num)
        vector, within = np.divmod(np.arange(num), self.vector)
        return (vector * LANES[which] + place) * self.vector + within

    def reads(self, tile: OperandTile, which: int, num: int) -> AccessPattern:
        """Access pattern of a warp's ``ld.shared`` of ``num`` elements a lane of A (0) or B (1), for one k."""
        elements = self.elements(which, num)[:, :: self.vector].T
        zero = np.array(0)
        at = (elements, zero) if tile.is_k_major else (zero, elements * tile.dtype.num_bytes)
        counted = data_wavefronts(f"ld_shared_b{8 * BANK_BYTES * self.vector}", tile.byte_offsets(*at))
        return AccessPattern(
            num_requests=len(elements), num_wavefronts=int(counted.sum()), num_bytes=WARP_SIZE * num * BANK_BYTES
        )

    def stores(self, rows: int, columns: int, num: int, width: int, vector_bytes: int) -> AccessPattern:
        """Access pattern of stores of ``rows`` x ``columns`` of D, of ``width`` bytes, by lanes with ``num`` columns each.

        >>> ThreadTile(is_adjacent=True).stores(4, 64, 8, 4, 16)  # halves of the sectors of 256 bytes, twice
        AccessPattern(num_requests=2, num_sectors=64, num_lines=16, num_wavefronts=0, num_bytes=1024)
        """
        vector = max(1, min(self.vector, vector_bytes // width))
        first = self.elements(1, num)[: LANES[1], ::vector].T * width
        ends = first + vector * width - 1
        pieces = [sum(len({*(first[i] // unit), *(ends[i] // unit)}) for i in range(len(first)))
                  for unit in (SECTOR_BYTES, LINE_BYTES)]  # fmt: skip
        share = columns / (LANES[1] * num)
        sectors, lines = (round(rows * share * count) for count in pieces)
        requests = -(-rows // LANES[0]) * -(-columns // (LANES[1] * vector))
        return AccessPattern(num_requests=requests, num_sectors=sectors, num_lines=lines, num_bytes=rows * columns * width)
