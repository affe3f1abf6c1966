"""What mends a bank conflict: the smallest swizzle or padding that frees every place of a tile, found by search.

In: one ``TileAccess``, or several to the same tile. Out: other placements of the tile, counted.

Models: swizzles that XOR higher bits of an address into lower ones; padding of the row pitch.
Ignores: how often each of several accesses happens: each counts once at every place of the tile.
Source: counting; the closed formula is that of tutorials (see ``closed_form_swizzle``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from gpusim.errors import LayoutError
from gpusim.layout import ByteLayout, Layout, Swizzle, mode_of, span_bytes, units_remark
from gpusim.layout.int_tuple import map_leaves
from gpusim.units import WAVEFRONT_BYTES
from gpusim.workload.access import BANK_BYTES
from gpusim.workload.banks import Census, Instruction, TileAccess, analyze, census, census_at, in_elements

_FIRST_TILES: Final = 64  # a candidate that is no better on these is not tried on the others
_TRANSPOSED_BITS: Final = 16

@dataclass(frozen=True, slots=True, kw_only=True)
class Mend:
    """Another placement of the same tile, counted at all of its places."""

    tile: ByteLayout
    census: Census
    num_extra_bytes: int
    """Shared memory that it takes beyond the plain layout."""
    padding_elements: int = 0
    """Elements added to each row, if it is a padding."""

    @property
    def swizzle_bytes(self) -> Swizzle:
        """The swizzle in bytes."""
        return self.tile.swizzle

    @property
    def swizzle_elements(self) -> Swizzle | None:
        """The swizzle in elements; None if it moves parts of one."""
        return in_elements(self.tile)


def with_swizzle(access: TileAccess, swizzle: Swizzle) -> TileAccess:
    """The same access to the tile under another swizzle (of bytes).

    Raises:
        LayoutError: the swizzle tears vectors apart.
    """
    return replace(access, tile=replace(access.tile, swizzle=swizzle))


def closed_form_swizzle(access: TileAccess) -> Swizzle | None:
    """What the usual formula says, as a swizzle of **bytes**; None for rows that are no power of two.

    In elements: M = log2(elements of a vector), B = log2(elements in 128 bytes) - M, and
    S = log2(elements of a row, but at least 128 bytes of them) - M. It suits accesses down a column of vectors; it spends
    as many bits as the worst case wants, and rows shorter than 128 bytes need fewer.
    Source: Lei Mao, "CuTe Swizzle", with S for rows shorter than 128 bytes as its readers mended it.

    >>> from gpusim.workload.banks import smem_tile
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
    base = _log2(access.rule.access_bytes)
    most = _log2(WAVEFRONT_BYTES) - base
    return Swizzle(most, base, max(_log2(pitch * access.element_bytes) - base, most))


def find_swizzle(access: TileAccess, *others: TileAccess) -> Mend | None:
    """The smallest swizzle that frees the whole tile of conflicts, or else the one that leaves the fewest wavefronts.

    Searched, in this order: B from 0 on (0 is the plain layout); M from log2(a vector, at least a word) on; every S that
    the tile's size leaves room for, nearest to the row's own first. A swizzle counts only if it frees **every** place of
    the tile and takes no more memory. None if no swizzle is better than none. With ``others``, accesses to the same tile,
    wavefronts are those of all of them, and vectors of each stay whole.

    >>> from gpusim.workload.banks import smem_tile
    >>> from gpusim.workload.dtypes import BF16
    >>> def smallest(columns):
    ...     return str(find_swizzle(TileAccess(
    ...         op="ldmatrix_x4", tile=smem_tile(Layout((64, columns), (columns, 1)), BF16))).swizzle_elements)
    >>> [smallest(columns) for columns in (16, 32, 64, 128)]
    ['Sw<1,3,3>', 'Sw<2,3,3>', 'Sw<3,3,3>', 'Sw<3,3,4>']
    """
    accesses = (access, *others)
    plain = [with_swizzle(one, Swizzle(0, 4, 3)) for one in accesses]
    best = _census_of(plain)
    if best.is_free:
        return Mend(tile=plain[0].tile, census=best, num_extra_bytes=0)
    found: Mend | None = None
    widest = max(accesses, key=lambda one: one.rule.access_bytes)
    for swizzle in _candidates(widest):
        tile = replace(access.tile, swizzle=swizzle)
        if extra_bytes(tile) > 0:
            continue
        trial = [replace(one, tile=tile) for one in accesses]
        if _census_of(trial, _FIRST_TILES).num_wavefronts >= best.num_wavefronts:
            continue
        counted = _census_of(trial)
        if counted.num_wavefronts < best.num_wavefronts:
            best, found = counted, Mend(tile=tile, census=counted, num_extra_bytes=0)
        if counted.is_free:
            break
    return found


def _census_of(accesses: Sequence[TileAccess], most_tiles: int | None = None) -> Census:
    """Wavefronts of all accesses at every place of the tile (the first ``most_tiles``) added up."""
    each = [census_at(one, one.tile_origins()[:most_tiles]) for one in accesses]
    return Census(
        num_instructions=sum(one.num_instructions for one in each),
        num_wavefronts=sum(one.num_wavefronts for one in each),
        num_ideal_wavefronts=sum(one.num_ideal_wavefronts for one in each),
        num_tiles_with_conflicts=sum(one.num_tiles_with_conflicts for one in each),
    )


def _candidates(access: TileAccess) -> Iterator[Swizzle]:
    """Swizzles of bytes that change banks, the smallest first."""
    least, most = _log2(max(access.rule.access_bytes, BANK_BYTES)), _log2(WAVEFRONT_BYTES)
    top = (access.tile.inner.cosize * access.element_bytes - 1).bit_length()
    row = max(((access.row_pitch or 0) * access.element_bytes - 1).bit_length(), most)
    for num_bits in range(1, most - least + 1):
        for base in range(least, most - num_bits + 1):
            nearest_first = sorted((abs(s - (row - base)), s) for s in range(num_bits, top - base - num_bits + 1))
            yield from (Swizzle(num_bits, base, s) for _, s in nearest_first)


def find_padding(access: TileAccess, *others: TileAccess) -> Mend | None:
    """The smallest padding of the row pitch that frees the whole tile of conflicts, vectors staying aligned.

    Counted without any swizzle. None if rows have no single pitch, or no padding up to 128 bytes frees the tile.
    ``others`` are further accesses to the same tile, to be free as well.

    >>> from gpusim.workload.banks import smem_tile
    >>> from gpusim.workload.dtypes import BF16
    >>> mend = find_padding(TileAccess(op="ldmatrix_x4", tile=smem_tile(Layout((64, 64), (64, 1)), BF16)))
    >>> mend.padding_elements, mend.num_extra_bytes, str(mend.tile.inner)
    (8, 1008, '(64,64):(72,1)')
    """
    for trial, padding in _paddings((access, *others)):
        if _census_of(trial, _FIRST_TILES).is_free and (counted := _census_of(trial)).is_free:
            return _padded_mend(access, trial[0].tile, padding, counted)
    return None


def _paddings(accesses: Sequence[TileAccess]) -> Iterator[tuple[list[TileAccess], int]]:
    """The accesses to the tile with longer and longer rows, and by how many elements; nothing without a single pitch."""
    tile, pitch, element_bytes = accesses[0].tile, accesses[0].row_pitch, accesses[0].element_bytes
    if pitch is None:
        return
    step = max(one.vector_elements for one in accesses)
    for padding in range(0, WAVEFRONT_BYTES // element_bytes + 1, step):
        stride = map_leaves(lambda d, p=padding: d // pitch * (pitch + p) if d >= pitch else d, tile.inner.stride)
        padded = Layout(tile.inner.shape, stride)
        with_rows = ByteLayout(Swizzle(0, 4, 3), padded, element_bits=tile.element_bits, offset=tile.offset)
        yield [replace(one, tile=with_rows) for one in accesses], padding


def _padded_mend(access: TileAccess, tile: ByteLayout, padding: int, counted: Census) -> Mend:
    extra = (tile.inner.cosize - access.tile.inner.cosize) * access.element_bytes
    return Mend(tile=tile, census=counted, num_extra_bytes=extra, padding_elements=padding)


def extra_bytes(tile: ByteLayout) -> int:
    """Bytes that a tile's swizzle makes it reach beyond its plain layout.

    >>> extra_bytes(ByteLayout(Swizzle(3, 4, 3), Layout((64, 64), (64, 1)), element_bits=16))
    0
    """
    before = (np.asarray(tile.inner(np.arange(tile.size))) + tile.offset) * (tile.element_bits // 8)
    return max(0, int(tile.swizzle(before).max()) - int(before.max()))


# ---------------------------------------------------------------------------------------------- all of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """An access, what it costs here and everywhere in its tile, and what would mend it."""

    access: TileAccess
    instructions: tuple[Instruction, ...]
    census: Census
    swizzle: Mend | None
    """The smallest swizzle that frees the tile, or the best there is; None if none helps."""
    padding: Mend | None
    formula: Mend | None
    """The closed formula's swizzle, counted; None if it has no answer, or tears vectors apart."""

    @property
    def worst(self) -> int:
        """Index of the instruction with the most wavefronts beyond the ideal ones."""
        excess = [found.num_wavefronts - found.num_ideal_wavefronts for found in self.instructions]
        return excess.index(max(excess))


def study(access: TileAccess) -> Study:
    """Count an access and search for what mends it.

    >>> from gpusim.workload.banks import smem_tile
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


def _counted(access: TileAccess, swizzle: Swizzle) -> Mend | None:
    try:
        trial = with_swizzle(access, swizzle)
    except LayoutError:  # it tears vectors apart
        return None
    return Mend(tile=trial.tile, census=census(trial), num_extra_bytes=extra_bytes(trial.tile))


@dataclass(frozen=True, slots=True, kw_only=True)
class JointStudy:
    """Several accesses to one tile, and the one placement that suits them together."""

    studies: tuple[Study, ...]
    """Each access by itself."""
    census: Census
    """Of all of them as the tile is."""
    swizzle: Mend | None
    """The smallest swizzle that frees all, or the one that leaves the fewest wavefronts in all; None if none helps."""
    padding: Mend | None
    """The smallest padding that frees all; if neither it nor a swizzle does, the one that leaves the fewest wavefronts."""

    @property
    def tile(self) -> ByteLayout:
        """The tile of all accesses."""
        return self.studies[0].access.tile

    @property
    def mend(self) -> Mend | None:
        """The swizzle if it frees all, else the padding if that does, else what leaves the fewest wavefronts.

        None if nothing is to be mended, or nothing helps.
        """
        found = [mend for mend in (self.swizzle, self.padding) if mend is not None]
        best = min(found, key=lambda mend: mend.census.num_wavefronts, default=None)
        return best if best is not None and best.census.num_wavefronts < self.census.num_wavefronts else None


def study_jointly(accesses: Sequence[TileAccess]) -> JointStudy:
    """Count several accesses to one tile and search for the placement that frees them all.

    >>> from gpusim.workload.banks import smem_tile
    >>> from gpusim.workload.dtypes import FP32
    >>> tile = smem_tile(Layout((32, 32), (32, 1)), FP32)
    >>> down, along = (TileAccess(op=op, tile=tile, threads=threads) for op, threads in (
    ...     ("ld_shared_b32", Layout(32, 1)), ("st_shared_b32", Layout(32, 32))))
    >>> found = study_jointly([down, along])
    >>> [one.census.is_free for one in found.studies], str(found.mend.swizzle_elements), found.mend.census.is_free
    ([False, True], 'Sw<5,0,5>', True)

    Raises:
        LayoutError: no access, or accesses to different tiles.
    """
    if not accesses or any(one.tile != accesses[0].tile for one in accesses):
        raise LayoutError("banks: accesses to no tile, or to several, have no placement in common: use one tile")
    swizzle, padding = find_swizzle(*accesses), find_padding(*accesses)
    if padding is None and (swizzle is None or not swizzle.census.is_free):
        found = [_padded_mend(accesses[0], trial[0].tile, p, _census_of(trial)) for trial, p in _paddings(accesses)]
        padding = min(found, key=lambda mend: mend.census.num_wavefronts, default=None)
    return JointStudy(
        studies=tuple(map(study, accesses)), census=_census_of(accesses), swizzle=swizzle, padding=padding
    )


def remarks(access: TileAccess, *, is_in_elements: bool) -> list[str]:
    """What to know about a tile's swizzle; ``is_in_elements`` says how it was given.

    >>> from gpusim.workload.banks import smem_tile
    >>> from gpusim.workload.dtypes import BF16
    >>> tile = smem_tile(Layout((64, 64), (64, 1)), BF16, Swizzle(3, 5, 3))
    >>> remarks(TileAccess(op="ldmatrix_x4", tile=tile), is_in_elements=True)[0].split(": ")[0]
    'Sw<3,4,3> counts elements here and is Sw<3,5,3> in bytes'
    """
    tile = access.tile
    said = [*_transposition(access)]
    asked, mode = in_elements(tile), mode_of(tile.swizzle)
    if asked is not None and is_in_elements:
        mixed_up = units_remark(f"{asked.num_bits},{asked.base},{asked.shift}", tile.element_bits)
        said += [] if mixed_up is None else [mixed_up]
    pitch = access.row_pitch
    if mode not in (None, "none") and mode is not None and pitch is not None:
        row_bytes = pitch * access.element_bytes
        if row_bytes > span_bytes(mode):
            said.append(
                f"the {mode} mode permutes {span_bytes(mode)} bytes and TMA takes no wider box with it: rows of {row_bytes} "
                f"bytes are several boxes, which TMA lays one behind the other{_boxes(access, span_bytes(mode))}"
            )
    return said


def _transposition(access: TileAccess) -> Iterator[str]:
    """What ldmatrix and stmatrix do to elements of this tile. Source: PTX ISA, ``ldmatrix`` and ``stmatrix``."""
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
        mend = f"use {other}"
        if not is_transposing and bits != _TRANSPOSED_BITS:
            mend = f"use a tile that is contiguous along mode 1, as {other} transposes units of {_TRANSPOSED_BITS} bits only"
        yield (
            f"{op} along mode {access.contiguous_mode} hands out the transpose: for a fragment of A, with mode 0 as m and "
            f"mode 1 as k, {mend}; as it is, it suits a tile with mode 0 as k"
        )


def _boxes(access: TileAccess, span: int) -> str:
    """Boxes of ``span`` bytes as a layout, where rows are plain."""
    rows, columns = access.extents
    width = span // access.element_bytes
    if access.contiguous_mode != 1 or access.tile.inner.depth > 1 or columns % width:
        return ""
    return f": use --layout '({rows},({width},{columns // width})):({width},(1,{rows * width}))'"


def _log2(power: int) -> int:
    return power.bit_length() - 1
