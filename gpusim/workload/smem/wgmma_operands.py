"""wgmma operands in shared memory: canonical layouts, the matrix descriptor, and the wavefronts of their reads.

In: layouts of tiles in shared memory, in bytes. Out: atoms, :class:`WgmmaDescriptor`, wavefronts.

Models:
* K-major and MN-major layouts, without swizzle and with the 32-, 64- and 128-byte swizzles.
* The 64 bits of the descriptor; core matrices of 8 rows of 16 bytes, each read separately, by the bank rule.

Ignores: sparse operands; types of 4 and 6 bits; patterns that do not start at a multiple of their period. The descriptor's
base offset is kept, but never computed.
Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout"; CUTLASS ``cute/arch/mma_sm90_desc.hpp`` and
``cute/atom/mma_traits_sm90_gmma.hpp``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import KernelError, LayoutError, nearest, nearest_multiple
from gpusim.layout.divide import logical_divide
from gpusim.layout.int_tuple import leaves
from gpusim.layout.layout import Layout, size
from gpusim.layout.recast import upcast
from gpusim.layout.swizzle import SWIZZLE_MODES, ByteLayout, ComposedLayout, Swizzle, mode_of, span_bytes, swizzle_mode
from gpusim.layout.tiling import Tensor, local_tile
from gpusim.units import WARP_SIZE, WAVEFRONT_BYTES
from gpusim.workload.atoms.mma import K_STEP_BYTES, MmaAtom
from gpusim.workload.smem.access import wavefronts
from gpusim.workload.smem.smem_ops import MATRIX_ROW_BYTES, MATRIX_ROWS

Major = Literal["K", "MN"]
"""Mode of an operand that is contiguous in shared memory; MN is M for A and N for B."""

ELEMENT_BITS = (8, 16, 32)
"""Widths in bits of the wgmma operands that are supported here."""

DESCRIPTOR_REACH_BYTES = 1 << 18
"""Upper limit in bytes of addresses and offsets in a descriptor: 14 bits of units of 16 bytes. Source: PTX ISA."""

_LAYOUT_TYPES: Mapping[str, int] = MappingProxyType({"none": 0, "128B": 1, "64B": 2, "32B": 3})
_FIELD = (1 << 14) - 1
_RESERVED = ~(_FIELD | _FIELD << 16 | _FIELD << 32 | 0b111 << 49 | 0b11 << 62) & ((1 << 64) - 1)


def gmma_atom(major: Major, swizzle: str, *, element_bits: int) -> ByteLayout:
    """The smallest canonical tile: 8 rows (or columns), as wide as the swizzle's span. Extend it with ``tile_to_shape``.

    CuTe's ``GMMA::Layout_K_SW128_Atom<half_t>`` is ``gmma_atom("K", "128B", element_bits=16)``; "none" is its ``INTER``.

    >>> from gpusim.layout import tile_to_shape
    >>> print(gmma_atom("K", "128B", element_bits=16))
    Sw<3,4,3>_smem_ptr[16b] o (8,64):(64,1)
    >>> print(tile_to_shape(gmma_atom("MN", "64B", element_bits=16), (128, 64)))
    Sw<2,4,3>_smem_ptr[16b] o ((32,4),(8,8)):((1,256),(32,1024))

    Args:
        major: the contiguous mode.
        swizzle: a name in ``SWIZZLE_MODES``.
        element_bits: 8, 16 or 32; for MN-major only 16, because wgmma transposes no other width.

    Raises:
        LayoutError: an unknown mode or swizzle, or an element width that wgmma does not support for this mode.
    """
    _check_major("gmma atom", major, element_bits)
    span = span_bytes(swizzle) * 8 // element_bits
    layout = Layout((MATRIX_ROWS, span), (span, 1)) if major == "K" else Layout((span, MATRIX_ROWS), (1, span))
    return ByteLayout(swizzle_mode(swizzle), layout, element_bits=element_bits)


@dataclass(frozen=True, slots=True, kw_only=True)
class WgmmaDescriptor:
    """The 64-bit matrix descriptor: address and layout of a wgmma operand in shared memory.

    Offsets are distances between core matrices. Their meaning depends on major mode and swizzle:

    * K-major, none: ``leading_offset_bytes`` to the next 16 bytes of k, ``stride_offset_bytes`` to the next 8 rows.
    * K-major, swizzled: the leading offset is ignored (CuTe writes 16). The stride offset leads to the next 8 rows.
    * MN-major, none: the leading offset leads to the next 8 of k, the stride offset to the next 8 of m or n.
    * MN-major, swizzled: the leading offset leads to the next span of m or n, the stride offset to the next 8 of k.

    >>> descriptor = WgmmaDescriptor(
    ...     start_address_bytes=1024, leading_offset_bytes=16, stride_offset_bytes=1024, swizzle="128B"
    ... )
    >>> hex(descriptor.bits), WgmmaDescriptor.from_bits(descriptor.bits) == descriptor
    ('0x4000004000010040', True)

    Source: PTX ISA, matrix-descriptor format; CUTLASS ``cute/arch/mma_sm90_desc.hpp``.

    Raises:
        LayoutError: an address or offset that is no multiple of 16 or does not fit in 14 bits. Also: a base offset that
            does not fit in 3 bits, or an unknown swizzle.
    """

    start_address_bytes: int
    leading_offset_bytes: int
    stride_offset_bytes: int
    swizzle: str
    base_offset: int = 0

    def __post_init__(self) -> None:
        for name in ("start_address_bytes", "leading_offset_bytes", "stride_offset_bytes"):
            value = getattr(self, name)
            if value % MATRIX_ROW_BYTES:
                raise LayoutError(f"wgmma descriptor: {name} is {value}: use a multiple of {MATRIX_ROW_BYTES}")
            if not 0 <= value < DESCRIPTOR_REACH_BYTES:
                raise LayoutError(
                    f"wgmma descriptor: {name} is {value}, which 14 bits do not hold: use 0 to "
                    f"{DESCRIPTOR_REACH_BYTES - MATRIX_ROW_BYTES}"
                )
        if not 0 <= self.base_offset < 8:
            raise LayoutError(f"wgmma descriptor: base_offset is {self.base_offset}: use 0 to 7")
        swizzle_mode(self.swizzle)

    @property
    def bits(self) -> int:
        """The 64-bit operand of the instruction."""
        return (
            self.start_address_bytes >> 4
            | self.leading_offset_bytes >> 4 << 16
            | self.stride_offset_bytes >> 4 << 32
            | self.base_offset << 49
            | _LAYOUT_TYPES[self.swizzle] << 62
        )

    @classmethod
    def from_bits(cls, bits: int) -> Self:
        """The descriptor that is encoded in these 64 bits.

        Raises:
            LayoutError: more than 64 bits, or a reserved bit is set.
        """
        if not 0 <= bits < 1 << 64 or bits & _RESERVED:
            raise LayoutError(f"wgmma descriptor {bits:#x}: use 64 bits with none set but 0-13, 16-29, 32-45, 49-51, 62-63")
        return cls(
            start_address_bytes=(bits & _FIELD) << 4, leading_offset_bytes=(bits >> 16 & _FIELD) << 4,
            stride_offset_bytes=(bits >> 32 & _FIELD) << 4, base_offset=bits >> 49 & 0b111,
            swizzle=next(name for name, number in _LAYOUT_TYPES.items() if number == bits >> 62),
        )

    def advance(self, num_bytes: int) -> WgmmaDescriptor:
        """The descriptor with its start ``num_bytes`` later: 32 for the next k-step within a K-major swizzle's span.

        Raises:
            LayoutError: no multiple of 16, or an address that does not fit in 14 bits.
        """
        return replace(self, start_address_bytes=self.start_address_bytes + num_bytes)

    def core_matrices(self, major: Major, num_mn: int) -> NDArray[np.int64]:
        """Byte addresses that one wgmma reads: int64[num_mn / 8, 2, 8], the 16-byte rows of each core matrix.

        K-major: [i, j, r] is row 8 i + r, and along k the j-th chunk of 16 bytes.
        MN-major: [i, j, r] is m or n from 8 i on, and k = 8 j + r.

        >>> plain = WgmmaDescriptor(
        ...     start_address_bytes=0, leading_offset_bytes=128, stride_offset_bytes=256, swizzle="none"
        ... )
        >>> plain.core_matrices("K", 8).tolist()
        [[[0, 16, 32, 48, 64, 80, 96, 112], [128, 144, 160, 176, 192, 208, 224, 240]]]

        Raises:
            LayoutError: ``num_mn`` is no positive multiple of 8, or a base offset, which is not modelled.
        """
        if num_mn < 1 or num_mn % MATRIX_ROWS:
            close = nearest_multiple(num_mn, MATRIX_ROWS)
            raise LayoutError(f"core matrices: {num_mn} rows are no multiple of {MATRIX_ROWS}: use {close}")
        if self.base_offset:
            raise LayoutError(f"core matrices: base offset {self.base_offset} is not modelled: start on the repeat")
        block, half, row = np.arange(num_mn // MATRIX_ROWS)[:, None, None], np.arange(2)[:, None], np.arange(MATRIX_ROWS)
        span = span_bytes(self.swizzle)
        leading, stride = self.leading_offset_bytes, self.stride_offset_bytes
        if self.swizzle == "none":
            along_mn, along_k = block * stride, half * leading
        elif major == "K":
            along_mn, along_k = block * stride, half * MATRIX_ROW_BYTES
        else:
            panel, chunk = np.divmod(block, span // MATRIX_ROW_BYTES)
            along_mn, along_k = panel * leading + chunk * MATRIX_ROW_BYTES, half * stride
        return swizzle_mode(self.swizzle)(self.start_address_bytes + along_mn + along_k + row * span)


SmemLayout = Layout | ComposedLayout | ByteLayout
"""Layout of a tile. A layout in elements is accepted only with a swizzle that determines the element width."""


def wgmma_descriptor(tile: SmemLayout, major: Major, base_bytes: int = 0) -> WgmmaDescriptor:
    """The descriptor of ``tile``'s first k-step (32 bytes of k); CuTe's ``make_gmma_desc<major>``.

    >>> from gpusim.layout import tile_to_shape
    >>> tile = tile_to_shape(gmma_atom("K", "128B", element_bits=16), (128, 64, 4))
    >>> descriptor = wgmma_descriptor(tile(None, None, 2), "K", base_bytes=1024)
    >>> descriptor.start_address_bytes, descriptor.stride_offset_bytes, hex(descriptor.bits)
    (33792, 1024, '0x4000004000010840')

    Args:
        tile: (m or n, k), with one k-step or more; slice the stage off first: ``tile(None, None, stage)``.
        major: the contiguous mode.
        base_bytes: address of the layout's offset 0 in shared memory.

    Raises:
        LayoutError: the layout is not canonical, or ``base_bytes`` is no multiple of the swizzle's period. Also: the tile
            starts within a period, or an offset does not fit.
    """
    tile = _in_bytes("wgmma descriptor", tile)
    name = _canonical_swizzle(tile, major)
    if tile.rank != 2:
        raise LayoutError(f"wgmma descriptor: {tile} has {tile.rank} modes: use (m or n, k), with one stage sliced off")
    step = 8 * K_STEP_BYTES // tile.element_bits
    if size(tile, 1) % step:
        close = nearest_multiple(size(tile, 1), step)
        raise LayoutError(f"wgmma descriptor: k={size(tile, 1)} is no multiple of the k-step's {step}: use {close}")
    first = _part(tile, size(tile, 0), 0).layout
    leading, stride = _offsets(first, major, name, tile)
    start = base_bytes + tile.offset * tile.element_bits // 8
    period, span = max(MATRIX_ROW_BYTES, swizzle_mode(name).period), span_bytes(name)
    if base_bytes % period or base_bytes < 0:
        raise LayoutError(
            f"wgmma descriptor: base_bytes is {base_bytes}, but swizzle {name!r} repeats after {period} bytes: use "
            f"{nearest_multiple(base_bytes, period)}"
        )
    if (start - base_bytes) % period >= span:
        raise LayoutError(
            f"wgmma descriptor: {tile} starts {(start - base_bytes) % period} bytes into swizzle {name!r}, which repeats "
            f"after {period}: start on a multiple of 8 rows"
        )
    return WgmmaDescriptor(
        start_address_bytes=start, leading_offset_bytes=MATRIX_ROW_BYTES * leading,
        stride_offset_bytes=MATRIX_ROW_BYTES * stride, swizzle=name,
    )


def wgmma_descriptors(tile: SmemLayout, major: Major, base_bytes: int = 0) -> tuple[WgmmaDescriptor, ...]:
    """The descriptors of all k-steps of ``tile``, in order.

    >>> from gpusim.layout import tile_to_shape
    >>> tile = tile_to_shape(gmma_atom("K", "64B", element_bits=16), (64, 64))
    >>> [descriptor.start_address_bytes for descriptor in wgmma_descriptors(tile, "K")]
    [0, 32, 4096, 4128]

    Raises:
        LayoutError: see ``wgmma_descriptor``, for any k-step.
    """
    tile = _in_bytes("wgmma descriptor", tile)
    step = 8 * K_STEP_BYTES // tile.element_bits
    wgmma_descriptor(tile, major, base_bytes)  # refuses a tile whose k is no multiple of the k-step
    parts = (_part(tile, size(tile, 0), i) for i in range(size(tile, 1) // step))
    return tuple(wgmma_descriptor(part, major, base_bytes) for part in parts)


def gmma_major(tile: SmemLayout) -> Major:
    """The contiguous mode of a tile (m or n, k).

    >>> gmma_major(gmma_atom("MN", "none", element_bits=16))
    'MN'

    Raises:
        LayoutError: neither mode has stride 1, or both.
    """
    tile = _in_bytes("wgmma operand", tile)
    names: tuple[Major, Major] = ("MN", "K")
    majors = [
        name for mode, name in enumerate(names) if any(step == 1 and extent > 1 for extent, step in tile.layout[mode].modes)
    ]
    if len(majors) != 1:
        raise LayoutError(f"wgmma operand: {tile} is contiguous along {' and '.join(majors) or 'no mode'}: use one mode")
    return majors[0]


def wgmma_wavefronts(atom: MmaAtom, layouts: tuple[SmemLayout | None, SmemLayout] | None = None) -> int:
    """Shared-memory wavefronts of one wgmma's operand reads: all of B, and A unless it comes from registers.

    With ``layouts``: each core matrix is 8 rows of 16 bytes at the descriptor's addresses. Its rows are read together, by
    the bank rule. Without: bytes / 128, because canonical layouts have no bank conflicts.

    Source: revollllt/flash-vla @7b15868: the larger of this and the arithmetic fits eight H100 points within half a cycle.

    >>> from gpusim.layout import tile_to_shape
    >>> from gpusim.workload.atoms.mma import wgmma
    >>> from gpusim.workload.dtypes import BF16
    >>> tile = tile_to_shape(gmma_atom("K", "128B", element_bits=16), (128, 64))
    >>> wgmma_wavefronts(wgmma(64, BF16)), wgmma_wavefronts(wgmma(64, BF16), (tile, tile))
    (32, 32)

    Args:
        atom: the instruction.
        layouts: layouts of A's tile (m, k), None if the atom takes A from registers, and of B's tile (n, k). Tiles may hold
            the operands of several instructions.

    Raises:
        KernelError: the atom is no wgmma, or A is given although it comes from registers, or missing although it does not.
        LayoutError: a layout that is not canonical, or that is smaller than an operand of the atom.
    """
    if atom.kind != "wgmma":
        raise KernelError(f"{atom.name}: reads no operand from smem by itself: use a wgmma atom")
    if layouts is None:
        a_bytes = atom.a_bytes if atom.a_source == "smem" else 0
        return (a_bytes + atom.b_bytes) // WAVEFRONT_BYTES
    a, b = layouts
    if (a is None) != (atom.a_source == "registers"):
        raise KernelError(f"{atom.name}: A comes from {atom.a_source}: give its layout exactly if that is smem")
    return (0 if a is None else _operand_wavefronts(atom, a, atom.m)) + _operand_wavefronts(atom, b, atom.n)


def _in_bytes(where: str, tile: SmemLayout) -> ByteLayout:
    """The tile as a ``ByteLayout``; refuses a layout that does not determine the element width."""
    if isinstance(tile, ByteLayout):
        return tile
    if isinstance(tile, ComposedLayout) and isinstance(tile.layout_a, Swizzle) and tile.layout_a.num_bits:
        fitting = [bits for bits in ELEMENT_BITS if mode_of(tile.layout_a.downcast(bits // 8)) is not None]
        if fitting:  # M = 4 bytes is possible for one width only
            return tile.to_bytes(fitting[0])
    of_plain = "ByteLayout(swizzle_mode('none'), layout, element_bits=16)"
    fix = "to_bytes(16)" if isinstance(tile, ComposedLayout) else of_plain
    raise LayoutError(f"{where}: {tile} does not say how wide its elements are: use {fix}, or gmma_atom and tile_to_shape")


def _operand_wavefronts(atom: MmaAtom, tile: SmemLayout, num_mn: int) -> int:
    """Wavefronts of one operand: ``num_mn`` rows of a k-step of ``tile``."""
    tile = _in_bytes(atom.name, tile)
    if tile.element_bits != atom.a_dtype.bits:
        raise LayoutError(f"{atom.name}: {tile} has elements of {tile.element_bits} bits: use {atom.a_dtype.bits}")
    if tile.rank != 2 or size(tile, 0) % num_mn or size(tile, 1) % atom.k:
        raise LayoutError(f"{atom.name}: {tile} holds no whole operands: use multiples of ({num_mn},{atom.k})")
    major = gmma_major(tile)
    rows = wgmma_descriptor(_part(tile, num_mn, 0), major).core_matrices(major, num_mn).reshape(-1, MATRIX_ROWS)
    lanes = np.zeros((len(rows), WARP_SIZE), dtype=np.int64)
    lanes[:, :MATRIX_ROWS] = rows
    return int(wavefronts("ldmatrix_x1", lanes).sum())


def _part(tile: ByteLayout, num_mn: int, k_step_idx: int) -> ByteLayout:
    """The first ``num_mn`` rows of one k-step."""
    step = 8 * K_STEP_BYTES // tile.element_bits
    return cast("ByteLayout", local_tile(Tensor(tile), (num_mn, step), (0, k_step_idx)).layout)


def _check_major(where: str, major: str, element_bits: int) -> None:
    if major not in ("K", "MN"):
        raise LayoutError(f"{where}: major mode {major!r} is unknown; {nearest(major, ('K', 'MN'))}")
    if element_bits not in ELEMENT_BITS:
        raise LayoutError(f"{where}: elements of {element_bits} bits: use one of {', '.join(map(str, ELEMENT_BITS))}")
    if major == "MN" and element_bits != 16:
        raise LayoutError(f"{where}: wgmma takes MN-major operands of 16 bits alone, not of {element_bits}: use 'K'")


def _canonical_swizzle(tile: ByteLayout, major: str) -> str:
    """The name of the tile's swizzle."""
    _check_major("wgmma descriptor", major, tile.element_bits)
    name = mode_of(tile.swizzle)
    if name is None:
        known = ", ".join(map(str, SWIZZLE_MODES.values()))
        raise LayoutError(f"wgmma descriptor: {tile.swizzle} of byte addresses is none of the hardware's: use {known}")
    return name


def _offsets(first: Layout, major: Major, name: str, tile: ByteLayout) -> tuple[int, int]:
    """Leading and stride offset of one k-step, in units of 16 bytes; refuses layouts that are not canonical."""
    where = f"wgmma descriptor: {tile} is no canonical {major}-major layout"
    width = span_bytes(name) // MATRIX_ROW_BYTES
    try:
        units = upcast(first, 8 * MATRIX_ROW_BYTES // tile.element_bits)
    except LayoutError as error:
        raise LayoutError(f"{where}, its rows are not of 16 contiguous bytes: use tiles of gmma_atom") from error
    if major == "K":
        mn, k, expected_k = MATRIX_ROWS, 2, 2
    else:  # an operand may be narrower than the span: 32 columns of a tile that is 64 wide
        whole = size(units, 0)
        mn, k, expected_k = (width if width % whole else whole), MATRIX_ROWS, 2 * MATRIX_ROWS
    if size(units, 1) != expected_k or size(units, 0) % mn:
        raise LayoutError(
            f"{where}, a k-step has {size(units, 0)} x {size(units, 1)} units of 16 bytes: use {expected_k} along k and a "
            f"multiple of {mn} along the other mode, contiguous along {major}"
        )
    divided = logical_divide(units, (Layout(mn), Layout(k)))
    if divided.depth != 2 or len(list(leaves(divided.shape))) != 4:
        raise LayoutError(f"{where}, groups of core matrices lie at several distances: use tiles of gmma_atom")
    ((_, num_mn), (_, _)), ((mn_in, mn_out), (k_in, k_out)) = divided.shape, divided.stride
    mn_out = mn_out if num_mn > 1 else 0
    row, expected_row = (mn_in, width) if major == "K" else (k_in, width)
    if row != expected_row:
        raise LayoutError(f"{where}, rows are {16 * row} bytes apart: swizzle {name!r} has them {16 * expected_row} apart")
    along, leading, stride = (k_in, k_in, mn_out) if major == "K" else (mn_in, mn_out, k_out)
    if name == "none":
        return (leading, stride) if major == "K" else (k_out, mn_out)
    if along != 1:
        raise LayoutError(f"{where}, chunks of 16 bytes are {16 * along} apart: use contiguous ones within the span")
    return leading, stride
