"""Swizzles: XOR of some offset bits into others, so that the elements of a column are in different banks.

A swizzle has one unit. ``ComposedLayout`` is a swizzle and a layout in elements. ``ByteLayout`` is a swizzle of byte
addresses and a layout, as used by TMA, wgmma and pointers to shared memory. Each can be converted to the other.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, overload

from gpusim.errors import LayoutError, nearest
from gpusim.layout import int_tuple as it
from gpusim.layout.layout import CarriesLayout, Layout, slice_and_offset

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


MAX_SWIZZLE_BITS = 62
"""Maximum bits of a swizzled offset: int64 without its sign, with one bit to spare."""


@dataclass(frozen=True, slots=True)
class Swizzle:
    """CuTe's ``Swizzle<B, M, S>`` = ``Swizzle(num_bits, base, shift)``.

    ``x ^ ((x >> shift) & mask)``, where ``mask`` has ``num_bits`` ones from bit ``base`` on. A negative shift goes in the
    opposite direction, as in CuTe. The unit is that of the offset: bytes or elements. A swizzle is a bijection and its own
    inverse.

    Source: CUTLASS ``cute/swizzle.hpp``.

    >>> Swizzle(3, 4, 3)(0b001_000_0000)  # row 1 of 128 bytes, chunk 0: lands in chunk 1
    144
    >>> [Swizzle(2, 0, 2)(x) for x in (4, 5, 12, 20)]
    [5, 4, 15, 21]

    Raises:
        LayoutError: ``num_bits`` or ``base`` negative, bits beyond those of any offset, or ``|shift| < num_bits``
            (the two bit fields overlap).
    """

    num_bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        if self.num_bits < 0 or self.base < 0:
            raise LayoutError(f"{self}: num_bits and base count bits: use 0 or more")
        if self.num_bits + self.base + abs(self.shift) > MAX_SWIZZLE_BITS:
            raise LayoutError(f"{self}: reaches beyond bit {MAX_SWIZZLE_BITS - 1}, where no offset is: use smaller numbers")
        if abs(self.shift) < self.num_bits:
            raise LayoutError(
                f"{self}: a shift of {self.shift} makes the bit fields overlap: "
                f"use |shift| >= {self.num_bits}, or num_bits <= {abs(self.shift)}"
            )

    def __str__(self) -> str:
        """CuTe's notation."""
        return f"Sw<{self.num_bits},{self.base},{self.shift}>"

    @overload
    def __call__(self, offset: int | np.integer[Any]) -> int: ...
    @overload
    def __call__(self, offset: NDArray[np.integer[Any]]) -> NDArray[np.int64]: ...
    def __call__(self, offset: int | np.integer[Any] | NDArray[np.integer[Any]]) -> int | NDArray[np.int64]:
        """The swizzled offset: an int for an int, int64 of the same shape for an array of integers.

        Raises:
            LayoutError: an offset that is negative or no integer.
        """
        if getattr(offset, "ndim", 0):
            return self._of_array(offset)
        number = operator.index(offset)
        if number < 0:
            raise LayoutError(f"{self}: offset {number} is negative: use 0 or more")
        return number ^ int(self._moved(number))

    def _of_array(self, offset: Any) -> NDArray[np.int64]:
        import numpy as np

        if not np.issubdtype(offset.dtype, np.integer):
            raise LayoutError(f"{self}: offsets are {offset.dtype}: use integers")
        wide = offset.astype(np.int64)
        if wide.size and wide.min() < 0:
            raise LayoutError(f"{self}: offset {wide.min()} is negative: use 0 or more")
        return np.asarray(wide ^ self._moved(wide), dtype=np.int64)

    def _moved(self, offset: Any) -> Any:
        # One of the two shifts is by 0, because NumPy and Python refuse negative shift counts.
        return (offset & self.source_mask) >> max(self.shift, 0) << max(-self.shift, 0)

    @property
    def source_mask(self) -> int:
        """Mask of the bits that are read (CuTe's ``yyy_msk``)."""
        return ((1 << self.num_bits) - 1) << (self.base + max(self.shift, 0))

    @property
    def target_mask(self) -> int:
        """Mask of the bits that are changed (CuTe's ``zzz_msk``)."""
        return ((1 << self.num_bits) - 1) << (self.base + max(-self.shift, 0))

    @property
    def period(self) -> int:
        """Period of the pattern, in the offset's unit.

        >>> Swizzle(3, 4, 3).period
        1024
        """
        return 1 << (self.base + abs(self.shift) + self.num_bits) if self.num_bits else 1

    def upcast(self, factor: int) -> Swizzle:
        """The swizzle in a unit ``factor`` times as large: it moves the units that begin at the offsets.

        Beyond ``2**base`` it drops the bits that move parts of a unit, as CuTe does; ``to_units`` refuses that.

        >>> print(Swizzle(3, 4, 3).upcast(2), Swizzle(3, 1, 3).upcast(8))
        Sw<3,3,3> Sw<1,0,3>

        Raises:
            LayoutError: ``factor`` is no power of two.
        """
        if factor < 1 or factor & (factor - 1):
            raise LayoutError(f"{self}: cannot upcast by {factor}: use a power of two")
        base = self.base - (factor.bit_length() - 1)
        return Swizzle(max(self.num_bits + min(base, 0), 0), max(base, 0), self.shift)

    def to_units(self, factor: int) -> Swizzle:
        """The swizzle in units of ``factor``, which it keeps intact: bytes to elements of ``factor`` bytes.

        >>> print(Swizzle(3, 4, 3).to_units(2))
        Sw<3,3,3>

        Raises:
            LayoutError: ``factor`` is no power of two, or the swizzle moves parts of a unit.
        """
        found, most = self.upcast(factor), 1 << self.base
        if factor > most:
            raise LayoutError(f"{self}: moves parts of a unit {factor} times larger: upcast by at most {most}")
        return found

    def downcast(self, factor: int) -> Swizzle:
        """The swizzle in a unit ``factor`` times as small: elements of ``factor`` bytes to bytes.

        >>> print(Swizzle(3, 3, 3).downcast(2))
        Sw<3,4,3>

        Raises:
            LayoutError: ``factor`` is no power of two.
        """
        if factor < 1 or factor & (factor - 1):
            raise LayoutError(f"{self}: cannot downcast by {factor}: use a power of two")
        return Swizzle(self.num_bits, self.base + factor.bit_length() - 1, self.shift)


def make_swizzle(source_mask: int, target_mask: int) -> Swizzle:
    """The swizzle that XORs the bits of ``source_mask`` (CuTe's Y) into those of ``target_mask`` (Z).

    >>> print(make_swizzle(0b1000, 0b0100), make_swizzle(0b11000000, 0b00000110))
    Sw<1,2,1> Sw<2,1,5>

    Raises:
        LayoutError: masks that are no two runs of the same number of bits.
    """
    if not is_swizzle(source_mask, target_mask):
        raise LayoutError(
            f"make_swizzle: {source_mask:#b} into {target_mask:#b}: use two runs of as many bits that do not overlap"
        )
    if not source_mask:
        return Swizzle(0, 0, 0)
    low_y, low_z = (_trailing_zeros(mask) for mask in (source_mask, target_mask))
    return Swizzle(source_mask.bit_count(), min(low_y, low_z), low_y - low_z)


def is_swizzle(source_mask: int, target_mask: int) -> bool:
    """Whether the masks are two runs of the same number of bits that do not overlap.

    >>> is_swizzle(0b1100, 0b0011), is_swizzle(0b1100, 0b0110), is_swizzle(0b101000, 0b101)
    (True, False, False)
    """
    runs = (mask >> _trailing_zeros(mask) for mask in (source_mask, target_mask))
    same = source_mask.bit_count() == target_mask.bit_count() and not source_mask & target_mask
    return same and all(not run & (run + 1) for run in runs)


def _trailing_zeros(mask: int) -> int:
    return max((mask & -mask).bit_length() - 1, 0)


@dataclass(frozen=True, slots=True, repr=False)
class ComposedLayout(CarriesLayout):
    """``layout_a o offset o layout_b``, in elements: coordinate c has offset ``layout_a(offset + layout_b(c))``.

    CuTe's ``ComposedLayout``. ``layout_a`` is a swizzle, or a layout if no single layout expresses the result. Operations on
    coordinates (divide, slice, coalesce) apply to ``layout_b``. ``to_bytes`` converts it to byte addresses.

    >>> atom = ComposedLayout(Swizzle(3, 3, 3), 0, Layout((8, 64), (64, 1)))
    >>> print(atom, atom(1, 0), atom(1, 8))
    Sw<3,3,3> o 0 o (8,64):(64,1) 72 64
    >>> print(atom(1, None))  # slices keep the swizzle, and the offset of what was fixed
    Sw<3,3,3> o 64 o (64):(1)
    >>> atom
    ComposedLayout(Swizzle(3, 3, 3), 0, Layout((8, 64), (64, 1)))
    """

    layout_a: Swizzle | Layout
    offset: int
    layout_b: Layout

    def __post_init__(self) -> None:
        if isinstance(self.layout_a, Swizzle):
            _check_offsets(self.layout_a, self.offset, self.layout_b)

    def __call__(self, *coord: Any) -> Any:
        """The offset of a coordinate, in elements; a ComposedLayout if a mode is ``_``."""
        where = coord[0] if len(coord) == 1 else coord
        if it.has_none(where):
            kept, start = slice_and_offset(where, self.layout_b)
            return ComposedLayout(self.layout_a, self.offset + start, kept)
        return self.layout_a(self.offset + self.layout_b(where))

    @property
    def inner(self) -> Layout:
        """The layout from coordinates to offsets before the swizzle."""
        return self.layout_b

    def with_inner(self, inner: Layout) -> Self:
        """The swizzle and offset over another layout."""
        return type(self)(self.layout_a, self.offset, inner)

    @property
    def cosize(self) -> int:
        """One more than the largest offset. CuTe returns that of ``layout_b``, which a swizzle may exceed.

        >>> ComposedLayout(Swizzle(3, 0, 3), 0, Layout(5, 8)).cosize
        37
        """
        return 1 + max(int(self(index)) for index in range(self.size))

    def to_bytes(self, element_bits: int) -> ByteLayout:
        """The equivalent layout of byte addresses, for elements of ``element_bits``.

        >>> print(ComposedLayout(Swizzle(3, 3, 3), 0, Layout((8, 64), (64, 1))).to_bytes(16))
        Sw<3,4,3>_smem_ptr[16b] o (8,64):(64,1)

        Raises:
            LayoutError: elements that are no power of two of bytes, or ``layout_a`` is no swizzle.
        """
        if not isinstance(self.layout_a, Swizzle):
            raise LayoutError(f"{self}: {self.layout_a} is no swizzle: only a swizzle has a unit to convert")
        swizzle = self.layout_a.downcast(element_bytes(element_bits))
        return ByteLayout(swizzle, self.layout_b, element_bits=element_bits, offset=self.offset)

    def __str__(self) -> str:
        """CuTe's notation."""
        return f"{self.layout_a} o {self.offset} o {self.layout_b}"

    def __repr__(self) -> str:
        a = self.layout_a
        first = f"Swizzle({a.num_bits}, {a.base}, {a.shift})" if isinstance(a, Swizzle) else repr(a)
        return f"ComposedLayout({first}, {self.offset}, {self.layout_b!r})"


@dataclass(frozen=True, slots=True, repr=False)
class ByteLayout(CarriesLayout):
    """A layout of elements with a swizzle of **byte** addresses: CuTe's ``Sw<..>_smem_ptr[16b] o layout``.

    Coordinate c is at byte ``swizzle((offset + layout(c)) * element_bits / 8)``. The tile's start is aligned to the
    swizzle's period.

    >>> tile = ByteLayout(Swizzle(3, 4, 3), Layout((8, 64), (64, 1)), element_bits=16)
    >>> tile(1, 0), print(tile.to_elements())
    Sw<3,3,3> o 0 o (8,64):(64,1)
    (144, None)

    Raises:
        LayoutError: elements that are no power of two of bytes.
    """

    swizzle: Swizzle
    layout: Layout
    element_bits: int
    offset: int = 0

    def __post_init__(self) -> None:
        element_bytes(self.element_bits)
        _check_offsets(self.swizzle, self.offset, self.layout)

    def __call__(self, *coord: Any) -> Any:
        """The offset of a coordinate in bytes; a ByteLayout if a mode is ``_``."""
        where = coord[0] if len(coord) == 1 else coord
        if it.has_none(where):
            kept, start = slice_and_offset(where, self.layout)
            return ByteLayout(self.swizzle, kept, self.element_bits, self.offset + start)
        return self.swizzle((self.offset + self.layout(where)) * (self.element_bits // 8))

    @property
    def inner(self) -> Layout:
        """The layout from coordinates to elements before the swizzle."""
        return self.layout

    def with_inner(self, inner: Layout) -> Self:
        """The swizzle over another layout."""
        return type(self)(self.swizzle, inner, self.element_bits, self.offset)

    def to_elements(self) -> ComposedLayout:
        """The equivalent layout in elements.

        Raises:
            LayoutError: the swizzle moves parts of an element.
        """
        return ComposedLayout(self.swizzle.to_units(self.element_bits // 8), self.offset, self.layout)

    def __str__(self) -> str:
        """CuTe's notation."""
        start = f" o {self.offset}" if self.offset else ""
        return f"{self.swizzle}_smem_ptr[{self.element_bits}b]{start} o {self.layout}"

    def __repr__(self) -> str:
        s, start = self.swizzle, f", offset={self.offset}" if self.offset else ""
        swizzle = f"Swizzle({s.num_bits}, {s.base}, {s.shift})"
        return f"ByteLayout({swizzle}, {self.layout!r}, element_bits={self.element_bits}{start})"


def _check_offsets(swizzle: Swizzle, offset: int, layout: Layout) -> None:
    """Refuse layouts that a swizzle cannot apply to: coordinates, and offsets beyond its integers."""
    if layout.has_basis:
        raise LayoutError(f"{swizzle} over {layout}: coordinates are no offsets, which a swizzle moves: use integer strides")
    if abs(offset) + layout.cosize >= 1 << MAX_SWIZZLE_BITS:
        raise LayoutError(f"{swizzle} over {layout} from {offset} on: use offsets of at most {MAX_SWIZZLE_BITS} bits")


def element_bytes(element_bits: int) -> int:
    """Bytes of an element of ``element_bits``.

    >>> element_bytes(16)
    2

    Raises:
        LayoutError: elements that are no power of two of bytes.
    """
    num_bytes, rest = divmod(element_bits, 8)
    if rest or num_bytes < 1 or num_bytes & (num_bytes - 1):
        raise LayoutError(f"elements of {element_bits} bits: use 8, 16, 32, ... (recast narrower ones to bytes first)")
    return num_bytes


SWIZZLE_MODES: Mapping[str, Swizzle] = MappingProxyType(
    {"none": Swizzle(0, 4, 3), "32B": Swizzle(1, 4, 3), "64B": Swizzle(2, 4, 3), "128B": Swizzle(3, 4, 3)}
)
"""Swizzle modes of TMA and wgmma, on byte addresses. Source: CUTLASS ``mma_traits_sm90_gmma.hpp``."""


def swizzle_mode(name: str) -> Swizzle:
    """The swizzle of byte addresses of the TMA and wgmma mode ``name``.

    >>> print(swizzle_mode("64B"))
    Sw<2,4,3>

    Raises:
        LayoutError: no such mode.
    """
    if name not in SWIZZLE_MODES:
        raise LayoutError(f"swizzle mode: {name!r} is unknown; {nearest(name, SWIZZLE_MODES)}")
    return SWIZZLE_MODES[name]


def mode_of(swizzle: Swizzle) -> str | None:
    """Name of the TMA and wgmma mode that equals a swizzle of bytes; None if there is none.

    >>> mode_of(Swizzle(3, 4, 3)), mode_of(Swizzle(3, 5, 3)), mode_of(Swizzle(0, 0, 7))
    ('128B', None, 'none')
    """
    if not swizzle.num_bits:
        return "none"
    return next((name for name, mode in SWIZZLE_MODES.items() if mode == swizzle), None)


def span_bytes(name: str) -> int:
    """Bytes of a row that the mode ``name`` permutes: the widest inner box that TMA accepts with it.

    16 for "none": the width of a core matrix in the interleaved layout, within which nothing moves. (TMA itself has no such
    limit without a swizzle.) Source: CUDA driver API, ``cuTensorMapEncodeTiled``.

    >>> [span_bytes(name) for name in SWIZZLE_MODES]
    [16, 32, 64, 128]

    Raises:
        LayoutError: no such mode.
    """
    mode = swizzle_mode(name)
    return 1 << (mode.base + mode.num_bits)
