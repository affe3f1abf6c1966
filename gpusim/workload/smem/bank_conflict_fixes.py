"""Bank conflict fixes: a search for the smallest swizzle or padding that makes accesses to a tile conflict-free.

In: one ``TileAccess``, or several to the same tile. Out: other layouts of the tile, with their wavefronts.

Models: swizzles that XOR higher address bits into lower ones; padding of the row pitch.
Ignores: how often each of several accesses is executed: each counts once at each of its positions in the tile.
Source: counted; the closed formula is that of tutorials (see ``closed_form_swizzle``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LayoutError
from gpusim.layout import ByteLayout, Layout, Swizzle, mode_of, span_bytes, units_remark
from gpusim.layout.int_tuple import map_leaves
from gpusim.units import WAVEFRONT_BYTES
from gpusim.workload.smem.access import wavefronts
from gpusim.workload.smem.banks import (
    Census,
    Instruction,
    all_addresses,
    analyze,
    census,
    census_at,
    distinct_rows,
    ideal_wavefronts,
    xor_first,
)
from gpusim.workload.smem.smem_ops import BANK_BYTES
from gpusim.workload.smem.tile_access import MAX_TILE_BYTES, TileAccess, in_elements, log2

_PLAIN: Final = Swizzle(0, 4, 3)
_FIRST_ROWS: Final = 64  # rows that are counted first; the others only if the candidate may still be the best
_ALIGNED_ROWS: Final = 16  # 16 rows of a tile are a multiple of 16 bytes with any padding
_TRANSPOSED_BITS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """Another layout of the same tile, with its wavefronts at the positions at which the given layout was counted."""

    tile: ByteLayout
    census: Census
    num_extra_bytes: int
    """Bytes of shared memory beyond the plain layout."""
    padding_elements: int = 0
    """Elements added to each row; 0 for a swizzle."""

    @property
    def swizzle_bytes(self) -> Swizzle:
        """The swizzle of byte addresses."""
        return self.tile.swizzle

    @property
    def swizzle_elements(self) -> Swizzle | None:
        """The swizzle of element offsets; None if it moves parts of an element."""
        return in_elements(self.tile)


def with_swizzle(access: TileAccess, swizzle: Swizzle) -> TileAccess:
    """The access to the tile with another swizzle of byte addresses.

    Raises:
        LayoutError: the swizzle splits vectors.
    """
    return replace(access, tile=replace(access.tile, swizzle=swizzle))


def closed_form_swizzle(access: TileAccess) -> Swizzle | None:
    """Swizzle of **bytes** by the usual formula; None if the row length is no power of two.

    The formula in elements: M = log2(elements of a vector, at least of a 4-byte word). B = log2(elements in 128 bytes) - M.
    S = log2(elements of a row, at least of 128 bytes) - M. It suits accesses down a column of vectors. It uses as many bits
    as the worst case needs: rows shorter than 128 bytes need fewer.
    Source: Lei Mao, "CuTe Swizzle", with S for rows shorter than 128 bytes as corrected by its readers.

    >>> from gpusim.workload.smem.tile_access import smem_tile
    >>> from gpusim.workload.dtypes import BF16
    >>> def formula(columns):
    ...     tile = smem_tile(Layout((64, columns), (columns, 1)), BF16)
    ...     return str(in_elements(replace(tile, swizzle=closed_form_swizzle(TileAccess(op="ldmatrix_x4", tile=tile)))))
    >>> [formula(columns) for columns in (16, 32, 64, 128)]
    ['Sw<3,3,3>', 'Sw<3,3,3>', 'Sw<3,3,3>', 'Sw<3,3,4>']
    """
    pitch = access.row_pitch
    if pitch is None or pitch & (pitch - 1):
        return None
    base = log2(max(access.rule.access_bytes, BANK_BYTES))
    most = log2(WAVEFRONT_BYTES) - base
    return Swizzle(most, base, max(log2(pitch * access.element_bytes) - base, most))


def find_swizzle(access: TileAccess, *others: TileAccess) -> Fix | None:
    """The smallest swizzle without bank conflicts, or else the one with the fewest wavefronts; None if none helps.

    The search tries B from 0 on (0 is the plain layout). M, in bytes, begins at log2(a vector, at least a 4-byte word), with
    M + B <= 7: higher bits do not select a bank. S takes every value above 0 that the tile's size permits, beginning with
    the row's own. (A negative S with such an M only renames banks.)

    Each access is counted at all of its positions in the tile. A swizzle that needs more memory is no candidate. With
    ``others``, further accesses to the same tile, wavefronts are the sum of all, and the vectors of each must stay
    contiguous.

    >>> from gpusim.workload.smem.tile_access import smem_tile
    >>> from gpusim.workload.dtypes import BF16
    >>> def smallest(columns):
    ...     return str(find_swizzle(TileAccess(
    ...         op="ldmatrix_x4", tile=smem_tile(Layout((64, columns), (columns, 1)), BF16))).swizzle_elements)
    >>> [smallest(columns) for columns in (16, 32, 64, 128)]
    ['Sw<1,3,3>', 'Sw<2,3,3>', 'Sw<3,3,3>', 'Sw<3,3,4>']
    """
    accesses = (access, *others)
    counted = [_Rows.under_swizzles(one) for one in accesses]
    fewest, best, found = sum(rows.num_ideal for rows in counted), _total(counted, _PLAIN), _PLAIN
    widest = max(accesses, key=lambda one: one.rule.access_bytes)
    for swizzle in _candidates(widest):
        if best == fewest:
            break
        total = _total(counted, swizzle, best)
        if total < best and not extra_bytes(replace(access.tile, swizzle=swizzle)):
            best, found = total, swizzle
    if found == _PLAIN and best > fewest:
        return None
    tile = replace(access.tile, swizzle=found)
    return Fix(tile=tile, census=_census_under(accesses, tile), num_extra_bytes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """The distinct instructions of an access over its tile, with their number of occurrences."""

    op: str
    values: NDArray[np.int64]
    """Values, int64[n, 32], from which a trial computes addresses."""
    active: NDArray[np.bool_] | None
    times: NDArray[np.int64]
    ideal: NDArray[np.int64]

    @property
    def num_ideal(self) -> int:
        """Minimum wavefronts. A layout that maps different bytes to different addresses does not change it."""
        return int((self.times * self.ideal).sum())

    @classmethod
    def under_swizzles(cls, access: TileAccess) -> _Rows:
        """Rows of byte addresses in the plain layout. A swizzle of them has the wavefronts of the swizzled tile."""
        addresses, active = _plain_addresses(access)
        return cls._of(access, xor_first(addresses, active), active)

    @classmethod
    def under_paddings(cls, access: TileAccess, pitch: int) -> _Rows:
        """Rows of element offsets from the tile's start, modulo the rows that change neither alignment nor banks."""
        addresses, active = _plain_addresses(access)
        offsets = addresses // access.element_bytes - access.tile.offset
        rows = np.where(active, offsets, np.iinfo(np.int64).max).min(axis=-1) // (_ALIGNED_ROWS * pitch)
        return cls._of(access, np.where(active, offsets - (rows * _ALIGNED_ROWS * pitch)[:, None], 0), active)

    @classmethod
    def _of(cls, access: TileAccess, values: NDArray[np.int64], active: NDArray[np.bool_]) -> _Rows:
        rows, mask, which = distinct_rows(values, active)
        of_warp = None if access.rule.is_collective else mask
        spaced = rows * access.rule.access_bytes  # aligned, with the same equalities: the minimum depends on nothing else
        times, ideal = np.bincount(which, minlength=len(rows)), ideal_wavefronts(access.op, spaced, of_warp)
        return cls(op=access.op, values=rows, active=of_warp, times=times, ideal=ideal)

    def total(self, addresses: NDArray[np.int64], most: int | None = None) -> int:
        """Wavefronts with these byte addresses, int64[n, 32]. Counting stops at ``most``."""
        total = self.num_ideal
        for part in (np.s_[:_FIRST_ROWS], np.s_[_FIRST_ROWS : 16 * _FIRST_ROWS], np.s_[16 * _FIRST_ROWS :]):
            if not len(addresses[part]):
                break
            mask = None if self.active is None else self.active[part]
            counted = wavefronts(self.op, addresses[part], mask)
            total += int((self.times[part] * (counted - self.ideal[part])).sum())
            if most is not None and total >= most:
                break
        return total


def _plain_addresses(access: TileAccess) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    return all_addresses(with_swizzle(access, _PLAIN), access.tile_origins())


def _total(counted: Sequence[_Rows], swizzle: Swizzle, most: int | None = None) -> int:
    """Wavefronts of all accesses with a swizzle. Counting stops at ``most``; then the value is a lower bound."""
    left = sum(rows.num_ideal for rows in counted)
    for rows in counted:
        left += rows.total(swizzle(rows.values), None if most is None else most - left + rows.num_ideal) - rows.num_ideal
    return left


def _census_under(accesses: Sequence[TileAccess], tile: ByteLayout) -> Census:
    """Wavefronts of all accesses with another layout, each at the positions that it has in its own layout."""
    return _added(census_at(replace(one, tile=tile), one.tile_origins()) for one in accesses)


def _added(each: Iterable[Census]) -> Census:
    found = tuple(each)
    return Census(
        num_instructions=sum(one.num_instructions for one in found), num_wavefronts=sum(one.num_wavefronts for one in found),
        num_ideal_wavefronts=sum(one.num_ideal_wavefronts for one in found),
        num_tiles_with_conflicts=sum(one.num_tiles_with_conflicts for one in found),
    )


def _candidates(access: TileAccess) -> Iterator[Swizzle]:
    """Swizzles of bytes that change banks, the smallest first."""
    least, most = log2(max(access.rule.access_bytes, BANK_BYTES)), log2(WAVEFRONT_BYTES)
    top = ((access.tile.offset + access.tile.inner.cosize) * access.element_bytes - 1).bit_length()
    row = max(((access.row_pitch or 0) * access.element_bytes - 1).bit_length(), most)
    for num_bits in range(1, most - least + 1):
        for base in range(least, most - num_bits + 1):
            nearest_first = sorted((abs(s - (row - base)), s) for s in range(num_bits, top - base - num_bits + 1))
            yield from (Swizzle(num_bits, base, s) for _, s in nearest_first)


def find_padding(access: TileAccess, *others: TileAccess) -> Fix | None:
    """The smallest padding of the row pitch without bank conflicts; None if there is none, or rows have no single pitch.

    Candidates are all numbers of elements up to 128 bytes a row, if the tile still fits in shared memory and all vectors
    stay aligned. The tile has no swizzle. Each access is counted at all of its positions, and at those that the padding
    aligns. ``others`` are further accesses to the same tile, which must be conflict-free, too.

    >>> from gpusim.workload.smem.tile_access import smem_tile
    >>> from gpusim.workload.dtypes import BF16
    >>> fix = find_padding(TileAccess(op="ldmatrix_x4", tile=smem_tile(Layout((64, 64), (64, 1)), BF16)))
    >>> fix.padding_elements, fix.num_extra_bytes, str(fix.tile.inner)
    (8, 1008, '(64,64):(72,1)')
    """
    accesses = (access, *others)
    for tile, padding, total, fewest in _paddings(accesses):
        if total == fewest and all(census(replace(one, tile=tile)).is_free for one in accesses):
            return _padded_fix(accesses, tile, padding)
    return None


def _paddings(accesses: Sequence[TileAccess]) -> Iterator[tuple[ByteLayout, int, int, int]]:
    """Tiles with increasing row pitch: (tile, padding in elements, wavefronts, minimum); none without a single pitch."""
    tile, pitch, element_bytes = accesses[0].tile, accesses[0].row_pitch, accesses[0].element_bytes
    if pitch is None:
        return
    counted = [_Rows.under_paddings(one, pitch) for one in accesses]
    fewest = sum(rows.num_ideal for rows in counted)
    for padding in range(WAVEFRONT_BYTES // element_bytes + 1):
        stride = map_leaves(lambda d, p=padding: d // pitch * (pitch + p) if d >= pitch else d, tile.inner.stride)
        padded = Layout(tile.inner.shape, stride)
        if padding and (tile.offset + padded.cosize) * element_bytes > MAX_TILE_BYTES:
            return
        addresses = [(rows.values + rows.values // pitch * padding + tile.offset) * element_bytes for rows in counted]
        if all(_is_aligned(one, rows, where, pitch) for one, rows, where in zip(accesses, counted, addresses, strict=True)):
            total = sum(rows.total(where) for rows, where in zip(counted, addresses, strict=True))
            yield ByteLayout(_PLAIN, padded, element_bits=tile.element_bits, offset=tile.offset), padding, total, fewest


def _is_aligned(access: TileAccess, rows: _Rows, addresses: NDArray[np.int64], pitch: int) -> bool:
    """Whether all vectors are aligned and stay within their rows."""
    is_within = rows.values % pitch + access.vector_elements <= pitch
    is_right = is_within & (addresses % access.rule.access_bytes == 0)
    return bool((is_right if rows.active is None else is_right | ~rows.active)[:, : access.rule.num_lanes].all())


def _padded_fix(accesses: Sequence[TileAccess], tile: ByteLayout, padding: int) -> Fix:
    extra = (tile.inner.cosize - accesses[0].tile.inner.cosize) * accesses[0].element_bytes
    return Fix(tile=tile, census=_census_under(accesses, tile), num_extra_bytes=extra, padding_elements=padding)


def extra_bytes(tile: ByteLayout) -> int:
    """Bytes by which a swizzled tile extends beyond its plain layout.

    >>> extra_bytes(ByteLayout(Swizzle(3, 4, 3), Layout((64, 64), (64, 1)), element_bits=16))
    0
    """
    before = (np.asarray(tile.inner(np.arange(tile.size))) + tile.offset) * (tile.element_bits // 8)
    return max(0, int(tile.swizzle(before).max()) - int(before.max()))


# ---------------------------------------------------------------------------------------------- studies
@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """An access, its wavefronts here and at all positions in its tile, and the fixes of its bank conflicts."""

    access: TileAccess
    instructions: tuple[Instruction, ...]
    census: Census
    swizzle: Fix | None
    """Smallest swizzle without bank conflicts, or the best one of the search; None if none improves the layout."""
    padding: Fix | None
    formula: Fix | None
    """Swizzle by the closed formula, with its wavefronts; None if the formula does not apply."""

    @property
    def worst(self) -> int:
        """Index of the instruction with the most wavefronts beyond the minimum."""
        excess = [found.num_wavefronts - found.num_ideal_wavefronts for found in self.instructions]
        return excess.index(max(excess))


def study(access: TileAccess) -> Study:
    """Count the wavefronts of an access and search for a fix of its bank conflicts.

    >>> from gpusim.workload.smem.tile_access import smem_tile
    >>> from gpusim.workload.dtypes import BF16
    >>> found = study(TileAccess(op="ldmatrix_x4", tile=smem_tile(Layout((64, 64), (64, 1)), BF16)))
    >>> found.instructions[0].num_ways, str(found.swizzle.swizzle_elements), found.padding.padding_elements
    (8.0, 'Sw<3,3,3>', 8)
    """
    formula = closed_form_swizzle(access)
    return Study(
        access=access, instructions=tuple(analyze(access)), census=census(access), swizzle=find_swizzle(access),
        padding=find_padding(access), formula=None if formula is None else _counted(access, formula),
    )


def _counted(access: TileAccess, swizzle: Swizzle) -> Fix:
    tile = replace(access.tile, swizzle=swizzle)
    return Fix(tile=tile, census=_census_under([access], tile), num_extra_bytes=extra_bytes(tile))


@dataclass(frozen=True, slots=True, kw_only=True)
class JointStudy:
    """Several accesses to one tile, and the layout that suits all of them."""

    studies: tuple[Study, ...]
    """Studies of the accesses, one each."""
    census: Census
    """Wavefronts of all accesses with the given layout."""
    swizzle: Fix | None
    """Smallest swizzle with which all accesses are conflict-free, or the one with the fewest wavefronts; None if none
    helps."""
    padding: Fix | None
    """Smallest padding with which all accesses are conflict-free; if no fix has this property, the one with the fewest
    wavefronts."""

    @property
    def tile(self) -> ByteLayout:
        """Tile that all accesses refer to."""
        return self.studies[0].access.tile

    @property
    def fix(self) -> Fix | None:
        """The best fix: a conflict-free swizzle, else a conflict-free padding, else the fix with the fewest wavefronts.

        None if there are no bank conflicts, or no fix helps.
        """
        found = [fix for fix in (self.swizzle, self.padding) if fix is not None]
        best = min(found, key=lambda fix: fix.census.num_wavefronts, default=None)
        return best if best is not None and best.census.num_wavefronts < self.census.num_wavefronts else None


def study_jointly(accesses: Sequence[TileAccess]) -> JointStudy:
    """Count the wavefronts of several accesses to one tile, and search for the layout that suits all of them.

    >>> from gpusim.workload.smem.tile_access import smem_tile
    >>> from gpusim.workload.dtypes import FP32
    >>> tile = smem_tile(Layout((32, 32), (32, 1)), FP32)
    >>> down, along = (TileAccess(op=op, tile=tile, threads=threads) for op, threads in (
    ...     ("ld_shared_b32", Layout(32, 1)), ("st_shared_b32", Layout(32, 32))))
    >>> found = study_jointly([down, along])
    >>> [one.census.is_free for one in found.studies], str(found.fix.swizzle_elements), found.fix.census.is_free
    ([False, True], 'Sw<5,0,5>', True)

    Raises:
        LayoutError: no access, or accesses to different tiles.
    """
    if not accesses or any(one.tile != accesses[0].tile for one in accesses):
        raise LayoutError("banks: accesses to no tile, or to several, have no placement in common: use one tile")
    swizzle, padding = find_swizzle(*accesses), find_padding(*accesses)
    if padding is None and (swizzle is None or not swizzle.census.is_free):
        best = min(_paddings(accesses), key=lambda trial: trial[2], default=None)
        padding = None if best is None else _padded_fix(accesses, best[0], best[1])
    return JointStudy(
        studies=tuple(map(study, accesses)), census=_added(map(census, accesses)), swizzle=swizzle, padding=padding
    )


def remarks(access: TileAccess, *, is_in_elements: bool) -> list[str]:
    """Remarks on a tile's swizzle: units, transposition, TMA boxes. ``is_in_elements`` says in which unit it was given.

    >>> from gpusim.workload.smem.tile_access import smem_tile
    >>> from gpusim.workload.dtypes import BF16
    >>> tile = smem_tile(Layout((64, 64), (64, 1)), BF16, Swizzle(3, 5, 3))
    >>> remarks(TileAccess(op="ldmatrix_x4", tile=tile), is_in_elements=True)[0].split(": ")[0]
    'Sw<3,4,3> counts elements here and is Sw<3,5,3> in bytes'
    """
    tile = access.tile
    notes = [*_transposition(access)]
    asked, mode = in_elements(tile), mode_of(tile.swizzle)
    if asked is not None and is_in_elements:
        mixed_up = units_remark(f"{asked.num_bits},{asked.base},{asked.shift}", tile.element_bits)
        notes += [] if mixed_up is None else [mixed_up]
    pitch = access.row_pitch
    if mode not in (None, "none") and mode is not None and pitch is not None:
        row_bytes, extent = pitch * access.element_bytes, access.extents[access.contiguous_mode]
        if pitch > extent:
            notes.append(
                f"TMA writes no padding: it lays rows of {extent * access.element_bytes} bytes one behind the other, these "
                f"are {row_bytes} apart"
            )
        elif row_bytes > span_bytes(mode):
            notes.append(
                f"the {mode} mode permutes {span_bytes(mode)} bytes and TMA takes no wider box with it: rows of {row_bytes} "
                f"bytes are several boxes, which TMA lays one behind the other{_boxes(access, span_bytes(mode))}"
            )
    return notes


def _transposition(access: TileAccess) -> Iterator[str]:
    """Remarks on how ldmatrix and stmatrix transpose elements of this tile. Source: PTX ISA, both instructions."""
    if not access.rule.is_collective:
        return
    op, bits, is_transposing = access.op, access.tile.element_bits, access.op.endswith("_trans")
    other = op.removesuffix("_trans") if is_transposing else f"{op}_trans"
    if is_transposing and bits != _TRANSPOSED_BITS:
        yield (
            f"{op} transposes units of {_TRANSPOSED_BITS} bits: elements of {bits} bits come out in no fragment's order; "
            f"use {other} on a tile that is contiguous along k"
        )
    elif is_transposing != (access.contiguous_mode == 0):
        fix = f"use {other}"
        if not is_transposing and bits != _TRANSPOSED_BITS:
            fix = f"use a tile that is contiguous along mode 1, as {other} transposes units of {_TRANSPOSED_BITS} bits only"
        yield (
            f"{op} along mode {access.contiguous_mode} hands out the transpose: for a fragment of A, with mode 0 as m and "
            f"mode 1 as k, {fix}; as it is, it suits a tile with mode 0 as k"
        )


def _boxes(access: TileAccess, span: int) -> str:
    """Layout of boxes that are ``span`` bytes wide, if the tile's rows are plain; otherwise an empty text."""
    rows, columns = access.extents
    width = span // access.element_bytes
    if access.contiguous_mode != 1 or access.tile.inner.depth > 1 or columns % width:
        return ""
    return f": use --layout '({rows},({width},{columns // width})):({width},(1,{rows * width}))'"
