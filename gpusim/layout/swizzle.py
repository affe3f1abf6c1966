"""Swizzles: XOR some bits of an offset into others, so that a column's elements fall into different banks."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LayoutError, nearest


@dataclass(frozen=True, slots=True)
class Swizzle:
    """CuTe's ``Swizzle<B, M, S>`` = ``Swizzle(num_bits, base, shift)``.

    ``x ^ ((x >> shift) & mask)``, where ``mask`` has ``num_bits`` ones from bit ``base`` on; a negative shift
    goes the other way, as in CuTe. The unit is that of the offset that goes in: bytes or elements. A swizzle
    is a bijection and its own inverse.

    Source: CUTLASS ``cute/swizzle.hpp``.

    >>> Swizzle(3, 4, 3)(0b001_000_0000)  # row 1 of 128 bytes, chunk 0: lands in chunk 1
    144
    >>> [Swizzle(2, 0, 2)(x) for x in (4, 5, 12, 20)]
    [5, 4, 15, 21]

    Raises:
        LayoutError: ``num_bits`` or ``base`` negative, or ``|shift| < num_bits`` (the two bit fields
            overlap).
    """

    num_bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        if self.num_bits < 0 or self.base < 0:
            raise LayoutError(f"{self}: num_bits and base count bits: use 0 or more")
        if abs(self.shift) < self.num_bits:
            raise LayoutError(
                f"{self}: a shift of {self.shift} makes the bit fields overlap: "
                f"use |shift| >= {self.num_bits}, or num_bits <= {abs(self.shift)}"
            )

    def __str__(self) -> str:
        """As CuTe prints it."""
        return f"Sw<{self.num_bits},{self.base},{self.shift}>"

    @overload
    def __call__(self, offset: int | np.integer[Any]) -> int: ...
    @overload
    def __call__(self, offset: NDArray[np.integer[Any]]) -> NDArray[np.int64]: ...
    def __call__(self, offset: int | np.integer[Any] | NDArray[np.integer[Any]]) -> int | NDArray[np.int64]:
        """Where ``offset`` lands: an int for an int, int64 of the same shape for an array of integers.

        Raises:
            LayoutError: an offset that is negative or no integer.
        """
        if isinstance(offset, np.ndarray):
            if not np.issubdtype(offset.dtype, np.integer):
                raise LayoutError(f"{self}: offsets are {offset.dtype}: use integers")
            wide = offset.astype(np.int64)
            if wide.size and wide.min() < 0:
                raise LayoutError(f"{self}: offset {wide.min()} is negative: use 0 or more")
            # One of the two shifts is by 0: numpy and Python both refuse to shift by a negative count.
            moved = (wide & self.source_mask) >> max(self.shift, 0) << max(-self.shift, 0)
            return np.asarray(wide ^ moved, dtype=np.int64)
        number = operator.index(offset)
        if number < 0:
            raise LayoutError(f"{self}: offset {number} is negative: use 0 or more")
        return number ^ ((number & self.source_mask) >> max(self.shift, 0) << max(-self.shift, 0))

    @property
    def source_mask(self) -> int:
        """The bits that are read (CuTe's ``yyy_msk``)."""
        return ((1 << self.num_bits) - 1) << (self.base + max(self.shift, 0))

    @property
    def target_mask(self) -> int:
        """The bits that are changed (CuTe's ``zzz_msk``)."""
        return ((1 << self.num_bits) - 1) << (self.base + max(-self.shift, 0))

    @property
    def period(self) -> int:
        """Offsets after which the pattern repeats, in the offset's unit.

        >>> Swizzle(3, 4, 3).period
        1024
        """
        return 1 << (self.base + abs(self.shift) + self.num_bits) if self.num_bits else 1

    def upcast(self, factor: int) -> Swizzle:
        """The same swizzle in a unit ``factor`` times as large: bytes to elements of ``factor`` bytes.

        >>> print(Swizzle(3, 4, 3).upcast(2))
        Sw<3,3,3>

        Raises:
            LayoutError: ``factor`` is no power of two, or the swizzle moves parts of the larger unit.
        """
        if factor < 1 or factor & (factor - 1):
            raise LayoutError(f"{self}: cannot upcast by {factor}: use a power of two")
        base = self.base - (factor.bit_length() - 1)
        if base < 0:
            most = 1 << self.base
            raise LayoutError(
                f"{self}: moves parts of a unit {factor} times larger: upcast by at most {most}"
            )
        return Swizzle(self.num_bits, base, self.shift)


SWIZZLE_MODES: Mapping[str, Swizzle] = MappingProxyType(
    {
        "none": Swizzle(0, 4, 3),
        "32B": Swizzle(1, 4, 3),
        "64B": Swizzle(2, 4, 3),
        "128B": Swizzle(3, 4, 3),
    }
)
"""The modes of TMA and wgmma, on byte addresses. Source: CUTLASS ``mma_traits_sm90_gmma.hpp``."""


def swizzle_mode(name: str) -> Swizzle:
    """The swizzle of byte addresses that TMA and wgmma call ``name``.

    >>> print(swizzle_mode("64B"))
    Sw<2,4,3>

    Raises:
        LayoutError: no such mode.
    """
    if name not in SWIZZLE_MODES:
        raise LayoutError(f"swizzle mode: {name!r} is unknown: {nearest(name, SWIZZLE_MODES)}")
    return SWIZZLE_MODES[name]


def span_bytes(name: str) -> int:
    """Bytes of one row that the mode ``name`` permutes: the widest inner box that TMA takes with it.

    16 for "none": the width of a core matrix in the interleaved layout, within which nothing moves. (TMA
    itself sets no such limit without a swizzle.) Source: CUDA driver API, ``cuTensorMapEncodeTiled``.

    >>> [span_bytes(name) for name in SWIZZLE_MODES]
    [16, 32, 64, 128]

    Raises:
        LayoutError: no such mode.
    """
    mode = swizzle_mode(name)
    return 1 << (mode.base + mode.num_bits)
