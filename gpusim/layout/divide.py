"""Divides, which tile a layout, and products, which repeat it, from composition and complement.

A *tiler* is an integer or shape (tiles mode by mode), a tuple of layouts (a layout for each mode), or one Layout.
**One Layout is one-dimensional: it divides the flattened layout**, for any rank. A 2-D tile needs a shape or a tuple:
``zipped_divide(L, (32, 8))``, not ``zipped_divide(L, Layout((32, 8)))``. ``tiler_remark`` warns about it.
"""

from __future__ import annotations

from typing import Any

from gpusim.errors import LayoutError
from gpusim.layout import int_tuple as it
from gpusim.layout.algebra import by_mode, coalesce, complement, composition, repeats_of, show_tiler
from gpusim.layout.checks import refuse_equal_orders
from gpusim.layout.int_tuple import Coord, IntTuple
from gpusim.layout.layout import (
    CarriesLayout,
    GenColMajor,
    Layout,
    Major,
    append,
    both,
    make_layout,
    make_ordered_layout,
    size,
    slice,
    through,
    zip_layout,
)

# Divides


@through
def logical_divide(layout: Layout, tiler: Any) -> Layout:
    """Each mode split into (tile, rest): ``((BLK_A,a),(BLK_B,b),x,y)``; with a Layout as tiler ``(tile,rest)``.

    Modes beyond the tiler stay. A tile that does not divide a mode extends past its end.

    >>> print(logical_divide(Layout((4, 2, 3), (2, 1, 8)), Layout(4, 2)))
    ((2,2),(2,3)):((4,1),(2,8))
    >>> print(logical_divide(Layout((9, (4, 8)), (59, (13, 1))), (Layout(3, 3), Layout((2, 4), (1, 8)))))
    ((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))

    Raises:
        LayoutError: tiles that no layout can express, more modes in the tiler than in the layout, or a swizzled tiler.
    """
    if tiler is None:
        return layout
    if isinstance(tiler, tuple):
        return by_mode(layout, tiler, logical_divide)
    tile = _plain("divide", layout, tiler)
    both_parts = make_layout(tile, complement(tile, coalesce(layout).shape))
    try:
        return _compose(layout, both_parts)
    except LayoutError as error:
        raise LayoutError(f"divide {layout} by {tile}: {error}{_hint(layout, tile)}") from None


def _plain(what: str, layout: Layout, tiler: Any) -> Layout:
    """A layout, or an extent, as a Layout."""
    if isinstance(tiler, CarriesLayout):
        raise LayoutError(f"{what} {layout} by {tiler}: no layout has a swizzle in one mode alone: swizzle {layout} instead")
    return tiler if isinstance(tiler, Layout) else Layout(tiler)


def _compose(layout: Layout, tiler: Any) -> Layout:
    result: Layout = composition(layout, tiler)
    return result


def _hint(layout: Layout, tile: Layout) -> str:
    return f"; mode by mode: for example the tuple {it.show((tile.size, None))}" if layout.rank > 1 else ""


@through
def zipped_divide(layout: Layout, tiler: Any) -> Layout:
    """Tiles in mode 0, their repeats in mode 1: ``((BLK_A,BLK_B),(a,b,x,y))``.

    **A Layout as tiler divides the flattened layout**, as in CuTe: ``Layout((32, 8), (8, 1))`` is a list of 256
    places in one dimension. For a tile of 32 rows and 8 columns use the shape ``(32, 8)``.

    >>> matrix = Layout((128, 64), (64, 1))
    >>> print(zipped_divide(matrix, (32, 8)))
    ((32,8),(4,8)):((64,1),(2048,8))
    >>> print(zipped_divide(matrix, Layout((32, 8), (8, 1))))
    (((16,2),8),32):(((512,1),64),2)
    """
    return tile_unzip(logical_divide(layout, tiler), tiler)


@through
def tiled_divide(layout: Layout, tiler: Any) -> Layout:
    """Tiles in mode 0, and each of their repeats as a separate mode: ``((BLK_A,BLK_B),a,b,x,y)``.

    >>> print(tiled_divide(Layout((4, 8), (8, 1)), (2, 4)))
    ((2,4),2,2):((8,1),16,4)
    """
    return _unpack(zipped_divide(layout, tiler), 1)


@through
def flat_divide(layout: Layout, tiler: Any) -> Layout:
    """All modes of tiles and repeats as separate modes: ``(BLK_A,BLK_B,a,b,x,y)``.

    >>> print(flat_divide(Layout((4, 8), (8, 1)), (2, 4)))
    (2,4,2,2):(8,1,16,4)
    """
    return _unpack(zipped_divide(layout, tiler), 0, 1)


@through
def tile_unzip(layout: Layout, tiler: Any) -> Layout:
    """Gather the pairs of a logical divide or product into two modes: ``((BLK_A,BLK_B),(a,b,x,y))``.

    >>> print(tile_unzip(Layout(((2, 3), (5, 7), 11)), (2, 5)))
    ((2,5),(3,7,11)):((1,6),(2,30,210))
    """
    guide = tiler if isinstance(tiler, tuple) else None
    return both(lambda tree: it.zip2_by(tree, guide), layout)


def _unpack(pair: Layout, *modes: int) -> Layout:
    coord: Coord = tuple(it.repeat(mode.rank, None) if i in modes else None for i, mode in enumerate(pair))
    kept: Layout = slice(coord, pair)
    return kept


def tiler_remark(layout: Layout, tiler: Any) -> str | None:
    """A remark on a Layout of several modes as tiler; None if there is none.

    >>> print(tiler_remark(Layout((128, 64), (64, 1)), Layout((32, 8), (8, 1))))
    the tiler (32,8):(8,1) is a Layout: it divides the flattened layout, as a list of 256 places in one dimension; for
    tiles of 32 x 8 use the shape (32,8), which gives ((32,8),(4,8)):((64,1),(2048,8))
    >>> tiler_remark(Layout((128, 64)), (32, 8))
    """
    if not isinstance(tiler, Layout) or tiler.rank < 2 or layout.rank < 2:
        return None
    shape = it.product_each(tiler.shape)[: layout.rank]
    try:
        instead = f", which gives {zipped_divide(layout, shape)}"
    except LayoutError:
        instead = ""
    return (
        f"the tiler {tiler} is a Layout: it divides the flattened layout, as a list of {tiler.size} places in one "
        f"dimension; for\ntiles of {' x '.join(map(str, shape))} use the shape {it.show(shape)}{instead}"
    )


# Products


@through
def logical_product(block: Layout, tiler: Any) -> Layout:
    """``(block, repeats)``: one copy of ``block`` for each coordinate of ``tiler``, without overlap.

    A tuple applies mode by mode; an integer N repeats N times (CuTe's Python implementation divides instead). A block whose
    strides are no multiples of one another leaves holes.

    >>> print(logical_product(Layout((2, 2), (4, 1)), Layout(6)))
    ((2,2),(2,3)):((4,1),(2,8))
    >>> print(logical_product(Layout((2, 5), (5, 1)), (Layout(3, 5), Layout(4, 6))))
    ((2,3),(5,4)):((5,10),(1,30))

    Raises:
        LayoutError: a block that overlaps itself, more modes in the tiler than in the block, or a swizzled tiler (the
            block may be swizzled).
    """
    if tiler is None:
        return block
    if isinstance(tiler, tuple):
        return by_mode(block, tiler, logical_product)
    repeats = _plain("product of", block, tiler)
    return make_layout(block, _compose(repeats_of(block, block.size * repeats.cosize), repeats))


@through
def zipped_product(block: Layout, tiler: Any) -> Layout:
    """Blocks in mode 0, repeats in mode 1: ``((BLK_A,BLK_B),(a,b,x,y))``.

    >>> print(zipped_product(Layout((2, 5), (5, 1)), (Layout(3, 5), Layout(4, 6))))
    ((2,5),(3,4)):((5,1),(10,30))
    """
    return tile_unzip(logical_product(block, tiler), tiler)


@through
def tiled_product(block: Layout, tiler: Any) -> Layout:
    """Blocks in mode 0, and each of their repeats as a separate mode: ``((BLK_A,BLK_B),a,b,x,y)``.

    >>> print(tiled_product(Layout((2, 5), (5, 1)), (Layout(3, 5), Layout(4, 6))))
    ((2,5),3,4):((5,1),10,30)
    """
    return _unpack(zipped_product(block, tiler), 1)


@through
def flat_product(block: Layout, tiler: Any) -> Layout:
    """All modes of blocks and repeats as separate modes: ``(BLK_A,BLK_B,a,b,x,y)``.

    >>> print(flat_product(Layout((2, 5), (5, 1)), (Layout(3, 5), Layout(4, 6))))
    (2,5,3,4):(5,1,10,30)
    """
    return _unpack(zipped_product(block, tiler), 0, 1)


@through
def blocked_product(block: Layout, tiler: Layout) -> Layout:
    """Copies of ``block`` at the positions of ``tiler``, mode by mode: ``((BLK_A,a),(BLK_B,b))``; each block is contiguous.

    >>> print(blocked_product(Layout((2, 5), (5, 1)), Layout((3, 4))))
    ((2,3),(5,4)):((5,10),(1,30))
    """
    return _zip_pair(*_padded_product(block, tiler))


@through
def raked_product(block: Layout, tiler: Layout) -> Layout:
    """Interleaved copies of ``block``, mode by mode: ``((a,BLK_A),(b,BLK_B))``; neighbours belong to different blocks.

    >>> print(raked_product(Layout((2, 5), (5, 1)), Layout((3, 4))))
    ((3,2),(4,5)):((10,5),(30,1))
    """
    copy, repeats = _padded_product(block, tiler)
    return _zip_pair(repeats, copy)


def _zip_pair(first: Layout, second: Layout) -> Layout:
    pair = make_layout(first, second)
    have_modes = isinstance(first.shape, tuple) and isinstance(second.shape, tuple) and first.rank == second.rank
    return zip_layout(pair) if have_modes else make_layout(pair)


def _padded_product(block: Layout, tiler: Layout) -> Layout:
    if isinstance(tiler, CarriesLayout):
        _plain("product of", block, tiler)
    if not isinstance(tiler, Layout):
        raise LayoutError(f"product of {block} by {show_tiler(tiler)}: use a Layout: its shape counts the blocks")
    rank = max(block.rank, tiler.rank)
    return logical_product(append(block, rank=rank), append(tiler, rank=rank))


@through
def tile_to_shape(block: Layout, trg_shape: IntTuple, ord_shape: IntTuple | Major = GenColMajor) -> Layout:
    """``block`` repeated until it fills ``trg_shape``, with the modes of the repeats in the order of ``ord_shape``.

    >>> print(tile_to_shape(Layout((8, 64), (64, 1)), (128, 128)))
    ((8,16),(64,2)):((64,512),(1,8192))
    >>> print(tile_to_shape(Layout((8, 64), (64, 1)), (128, 128), (1, 0)))
    ((8,16),(64,2)):((64,1024),(1,512))

    Raises:
        LayoutError: a block that does not divide the shape, or has more modes.
    """
    if isinstance(trg_shape, Layout | CarriesLayout):
        raise LayoutError(f"tile_to_shape: {trg_shape} is a layout: use its shape, {it.show(trg_shape.shape)}")
    rank = it.rank(trg_shape)
    if block.rank > rank:
        raise LayoutError(f"tile_to_shape: {block} has more modes than {it.show(trg_shape)}: use at least {block.rank}")
    padded = append(block, rank=rank)
    sizes, wanted = it.product_each(padded.shape), it.product_each(trg_shape)
    if any(b % a for a, b in zip(sizes, wanted, strict=True)):
        raise LayoutError(f"tile_to_shape: {it.show(sizes)} does not divide {it.show(wanted)}: use multiples")
    repeats = it.ceil_div(wanted, sizes)
    if not isinstance(ord_shape, Major):
        refuse_equal_orders(repeats, ord_shape)
    return blocked_product(padded, make_ordered_layout(repeats, ord_shape))


def ceil_div(target: Any, tiler: Any) -> Any:
    """Number of tiles that cover ``target``: integers, shapes, or a Layout as tiler (the rest mode of its divide).

    >>> ceil_div((100, 60), (32, 8)), ceil_div(24, Layout(4, 2))
    ((4, 8), (2, 3))
    """
    if isinstance(tiler, Layout):
        return complement(tiler, target).shape
    if isinstance(tiler, tuple) and any(isinstance(part, Layout) for part in tiler):
        return tuple(ceil_div(t, part) for t, part in zip(it.wrap(target), tiler, strict=True))
    return it.ceil_div(target, tiler)


def evenly_divides(shape: IntTuple, tiler: Any) -> bool:
    """Whether tiles cover ``shape`` without extending past its end.

    >>> evenly_divides((128, 64), (32, 8)), evenly_divides((100, 64), (32, 8))
    (True, False)
    """
    if isinstance(tiler, tuple):
        parts = zip(it.wrap(shape), tiler, strict=False)
        return len(tiler) <= it.rank(shape) and all(evenly_divides(s, part) for s, part in parts)
    return it.product(shape) == size(tiler) * it.product(ceil_div(shape, tiler))


def make_fragment_like(layout: Any) -> Layout:
    """The compact register layout for a slice ``layout``: mode 0 (an atom's values) first, the rest in its order.

    >>> print(make_fragment_like(Layout((4, 2, 8), (64, 1, 2))))
    (4,2,8):(1,4,8)
    """
    if not isinstance(layout, Layout):
        return Layout(it.as_int_tuple(getattr(layout, "shape", layout), "shape"))
    if layout.rank == 1:
        return Layout(layout.shape)
    first = it.map_leaves(lambda s, d: 1 if d == 0 else s, layout.shape, layout.stride)
    head = Layout(it.get(layout.shape, 0), it.compact_col_major(it.get(first, 0)))
    shape, stride = it.wrap(layout.shape)[1:], it.wrap(layout.stride)[1:]
    refuse_equal_orders(shape, stride)
    return tiled_product(head, make_ordered_layout(shape, stride))
