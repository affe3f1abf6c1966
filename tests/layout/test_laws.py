"""The algebra's laws, on layouts drawn at random: what an operation promises, it keeps or refuses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpusim import layout as cute
from gpusim.errors import LayoutError
from gpusim.layout import ByteLayout, ComposedLayout, Layout, Swizzle, offsets
from gpusim.layout import int_tuple as it
from gpusim.layout.algebra import repeats_of

SIZES = st.sampled_from([1, 2, 2, 3, 4, 4, 5, 6, 8])
MAX_SIZE = 128


def law(
    *strategies: st.SearchStrategy[Any], num_examples: int = 80
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A test on drawn values, without a limit of time for each: the first call imports.

    ``num_examples``: as many as ``GPUSIM_EXAMPLES=80`` tries; fewer in proportion, each run others.
    """
    num = num_examples * settings().max_examples // 80
    return lambda test: settings(deadline=None, max_examples=num)(given(*strategies)(test))


@st.composite
def shapes(draw: st.DrawFn, *, most: int = MAX_SIZE) -> Any:
    shape = draw(st.recursive(SIZES, lambda part: st.lists(part, min_size=1, max_size=3).map(tuple), max_leaves=4))
    assume(it.product(shape) <= most)
    return shape


@st.composite
def layouts(draw: st.DrawFn, *, most: int = MAX_SIZE) -> Layout:
    """Any strides: overlapping, with zeros, with gaps."""
    shape = draw(shapes(most=most))
    return Layout(shape, it.map_leaves(lambda _size: draw(st.integers(0, 40)), shape))


@st.composite
def separate_layouts(draw: st.DrawFn, *, most: int = MAX_SIZE, gaps: bool = True) -> Layout:
    """No overlap, each stride a multiple of what lies before it: as kernels have them."""
    shape = draw(shapes(most=most))
    sizes = list(it.leaves(shape))
    strides, current = [0] * len(sizes), 1
    for mode in draw(st.permutations(range(len(sizes)))):
        current *= draw(st.sampled_from([1, 1, 1, 2, 3])) if gaps else 1
        strides[mode] = current
        current *= sizes[mode]
    return Layout(shape, it.unflatten(tuple(strides), shape))


@st.composite
def inner_layouts(draw: st.DrawFn, outer: Layout) -> Layout:
    """Layouts into the domain of ``outer``, mostly along its modes."""
    steps = list(accumulate((s for s, _d in outer.modes), lambda a, b: a * b, initial=1))
    step = st.one_of(st.sampled_from(steps), st.integers(0, outer.size))
    modes = draw(st.lists(st.tuples(SIZES, step), min_size=1, max_size=3))
    return Layout(tuple(s for s, _d in modes), tuple(d for _s, d in modes))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Layout, Layout]:
    outer = draw(st.one_of(layouts(), separate_layouts()))
    return outer, draw(inner_layouts(outer))


@st.composite
def swizzles(draw: st.DrawFn) -> Swizzle:
    num_bits = draw(st.integers(0, 3))
    return Swizzle(num_bits, draw(st.integers(0, 4)), draw(st.integers(num_bits, 4)) * draw(st.sampled_from([1, -1])))


def unbounded(layout: Layout) -> Layout:
    """The same function in one nesting level, its last mode the one that runs on."""
    return cute.flatten(cute.make_layout(layout))


# Int tuples and coordinates


@law(shapes(), st.data())
def test_coordinates_and_indices_are_inverse(shape: Any, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, 3 * it.product(shape)))
    assert cute.crd2idx(cute.idx2crd(index, shape), shape) == index


@law(layouts(), st.data())
def test_past_the_end_a_layout_runs_on_in_its_last_mode(layout: Layout, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, 3 * layout.size))
    *front, (_size, step) = layout.modes
    below = math.prod(size for size, _step in front)
    assert layout(index) == layout(index % below) + index // below * step


@law(layouts(), st.data())
def test_a_coordinate_and_its_number_lie_at_the_same_offset(layout: Layout, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, layout.size - 1))
    assert layout(index) == layout(cute.idx2crd(index, layout.shape))


@law(layouts())
def test_a_negative_index_counts_backwards(layout: Layout) -> None:
    assert [layout(-i) for i in range(layout.size)] == [-offset for offset in offsets(layout)]


@law(layouts(), st.lists(st.integers(0, 300), min_size=1, max_size=5))
def test_an_array_of_indices_gives_the_array_of_offsets(layout: Layout, indices: list[int]) -> None:
    numpy = pytest.importorskip("numpy")
    assert (layout(numpy.array(indices)) + 0 * numpy.array(indices)).tolist() == [layout(i) for i in indices]


@law(st.one_of(layouts(), separate_layouts()))
def test_notation_is_read_back(layout: Layout) -> None:
    assert Layout.parse(str(layout)) == layout
    assert eval(repr(layout), {"Layout": Layout}) == layout


@law(swizzles(), st.integers(0, 99), layouts())
def test_the_notation_of_a_swizzled_layout_is_read_back(swizzle: Swizzle, offset: int, layout: Layout) -> None:
    composed = ComposedLayout(swizzle, offset, layout)
    names = {"ComposedLayout": ComposedLayout, "Swizzle": Swizzle, "Layout": Layout}
    assert Layout.parse(str(composed)) == composed
    assert eval(repr(composed), names) == composed


@law(shapes())
def test_compact_layouts_leave_no_gap(shape: Any) -> None:
    for layout in (Layout(shape), Layout(shape, cute.LayoutRight)):
        assert sorted(offsets(layout)) == list(range(layout.size))


@law(separate_layouts())
def test_a_layout_like_another_is_compact_and_keeps_its_order(layout: Layout) -> None:
    like = cute.make_layout_like(layout)
    assert sorted(offsets(like)) == list(range(layout.size))
    order = sorted(range(layout.size), key=layout)
    assert sorted(range(layout.size), key=like) == order


@law(separate_layouts())
def test_hierarchical_coordinates_lead_back_or_are_refused(layout: Layout) -> None:
    for index in range(0, layout.size, 7):
        try:
            assert layout(layout.get_hier_coord(layout(index))) == layout(index)
        except LayoutError:
            assert layout.cosize != layout.size


# Coalesce


@law(layouts())
def test_coalesce_keeps_every_offset_and_cannot_be_repeated(layout: Layout) -> None:
    short = cute.coalesce(layout)
    assert offsets(short) == offsets(layout)
    assert short.depth <= 1
    assert cute.coalesce(short) == short


@law(layouts())
def test_coalesce_by_profile_keeps_the_modes(layout: Layout) -> None:
    short = cute.coalesce(layout, (1,) * layout.rank)
    assert it.product_each(short.shape) == it.product_each(layout.shape)
    assert offsets(short) == offsets(layout)


@law(layouts())
def test_filter_reaches_the_same_offsets(layout: Layout) -> None:
    assert set(offsets(cute.filter(layout))) == set(offsets(layout))


@law(layouts())
def test_the_nullspace_goes_to_zero(layout: Layout) -> None:
    null = cute.nullspace(layout)
    assert [layout(i) for i in offsets(null)] == [0] * null.size


# Composition


@law(pairs(), num_examples=400)
def test_composition_is_function_composition_or_is_refused(pair: tuple[Layout, Layout]) -> None:
    outer, inner = pair
    try:
        result = cute.composition(outer, inner)
    except LayoutError:
        assert not can_express(outer, inner)
        return
    assert cute.compatible(inner.shape, result.shape)
    assert offsets(result) == [unbounded(outer)(offset) for offset in offsets(inner)]


def can_express(outer: Layout, inner: Layout) -> bool:
    """By brute force: whether any layout of ``inner``'s profile yields outer(inner(c)) for all c."""
    whole = unbounded(outer)
    parts = [[whole(i * step) for i in range(size)] for size, step in inner.modes]
    if not all(any(offsets(candidate) == part for candidate in candidates(part)) for part in parts):
        return False
    coords = (it.idx2crd(i, tuple(s for s, _d in inner.modes)) for i in range(inner.size))
    sums = (sum(part[c] for part, c in zip(parts, it.wrap(coord), strict=True)) for coord in coords)
    return list(sums) == [whole(offset) for offset in offsets(inner)]


def candidates(part: list[int]) -> Iterator[Layout]:
    """Every layout of that size whose strides are where the offsets say they must be."""
    for sizes in factorizations(len(part)):
        places = accumulate(sizes[:-1], lambda a, b: a * b, initial=1)
        yield Layout(sizes, tuple(part[place] if place < len(part) else 0 for place in places))


def factorizations(number: int) -> Iterator[tuple[int, ...]]:
    yield (number,)
    for first in range(2, number):
        if number % first == 0:
            yield from ((first, *rest) for rest in factorizations(number // first))


@law(pairs(), st.data(), num_examples=200)
def test_composition_is_associative(pair: tuple[Layout, Layout], data: st.DataObject) -> None:
    a, b = pair
    c = data.draw(inner_layouts(b))
    if max(offsets(c)) >= b.size or max(offsets(b)) >= a.size:
        return  # past the end of b, b after c and (a after b) after c go on differently
    try:
        left, right = cute.composition(cute.composition(a, b), c), cute.composition(a, cute.composition(b, c))
    except LayoutError:
        return
    assert offsets(left) == offsets(right)


@law(st.one_of(layouts(), separate_layouts()))
def test_composition_with_the_identity_changes_nothing(layout: Layout) -> None:
    assert offsets(cute.composition(layout, Layout(layout.shape))) == offsets(layout)
    assert offsets(cute.composition(Layout(layout.cosize), layout)) == offsets(layout)
    assert offsets(cute.composition(layout, cute.make_identity_layout(layout.shape))) == offsets(layout)


def test_coordinates_are_composed_as_offsets_are() -> None:
    identity = cute.make_identity_layout((4, 4))
    assert cute.composition(identity, Layout((2, 2), (2, 8))) == Layout((2, 2), (2 * cute.E(0), 2 * cute.E(1)))
    with pytest.raises(LayoutError, match=r"\(1,1\) lies at \(0,1\)"):
        cute.composition(identity, Layout((2, 2), (2, 2)))


def test_a_composition_that_cute_answers_wrongly_is_refused() -> None:
    # CuTe 4.2: (2,2):(4,100), that is 0, 4, 100, 104; right is 0, 4, 102, 200
    with pytest.raises(LayoutError, match="yields 0, 4, 102, 200"):
        cute.composition(Layout((6, 4), (1, 100)), Layout(4, 4))
    # modes that run into each other: CuTe adds 2 and 2 up to 4 where offset 4 lies at 100
    with pytest.raises(LayoutError, match=r"\(1,1\) lies at 100"):
        cute.composition(Layout((4, 2), (1, 100)), Layout((2, 2), (2, 2)))


def test_a_composition_that_cute_refuses_but_a_layout_expresses_is_answered() -> None:
    assert cute.composition(Layout((4, 8), (1, 100)), Layout(2, 6)) == Layout(2, 102)


def test_a_tiler_drops_the_modes_that_it_does_not_name_and_a_divide_keeps_them() -> None:
    matrix = Layout((8, 6, 5))
    assert cute.composition(matrix, (4, 3)).rank == 2
    assert cute.logical_divide(matrix, (4, 3)).rank == 3


# Complement and inverses


@law(st.one_of(layouts(), separate_layouts()), st.integers(1, 300))
def test_complement_is_disjoint_and_complete_or_is_refused(layout: Layout, bound: int) -> None:
    once = cute.filter(layout)
    try:
        rest = cute.complement(layout, bound)
    except LayoutError:
        assert not cute.is_injective(once) or not is_tiled_by_copies(set(offsets(once)), max(bound, once.cosize))
        return
    reached = [a + b for a in offsets(once) for b in offsets(rest)]
    assert len(set(reached)) == len(reached) == len(set(offsets(once))) * rest.size
    assert set(range(bound)) <= set(reached)
    assert offsets(rest) == sorted(offsets(rest))


def is_tiled_by_copies(block: set[int], bound: int) -> bool:
    """Whether copies of the block, each at the first free offset, cover all below the bound without overlap."""
    taken: set[int] = set()
    for start in range(bound):
        if start not in taken:
            copy = {start + offset for offset in block}
            if taken & copy:
                return False
            taken |= copy
    return True


@law(st.one_of(layouts(), separate_layouts()))
def test_right_inverse_is_one(layout: Layout) -> None:
    inverse = cute.right_inverse(layout)
    assert [layout(offset) for offset in offsets(inverse)] == list(range(inverse.size))


@law(st.one_of(layouts(), separate_layouts()))
def test_left_inverse_leads_back_or_is_refused(layout: Layout) -> None:
    try:
        inverse = cute.left_inverse(layout)
    except LayoutError:
        return
    again = [inverse(offset) for offset in offsets(layout)]
    assert [unbounded(cute.coalesce(layout))(i) for i in again] == offsets(layout)
    if cute.is_injective(layout):
        assert again == list(range(layout.size))


@law(separate_layouts())
def test_a_layout_as_kernels_have_it_has_a_left_inverse(layout: Layout) -> None:
    inverse = cute.left_inverse(layout)
    assert [inverse(offset) for offset in offsets(layout)] == list(range(layout.size))


@law(st.one_of(layouts(), separate_layouts()))
def test_injective_means_no_offset_twice(layout: Layout) -> None:
    assert cute.is_injective(layout) == (len(set(offsets(layout))) == layout.size)


# Divides and products


@law(separate_layouts(), st.data())
def test_tiles_of_a_divide_hold_every_element_once(layout: Layout, data: st.DataObject) -> None:
    tile = data.draw(st.integers(1, layout.size))
    assume(layout.size % tile == 0)
    try:
        divided = cute.zipped_divide(layout, tile)
    except LayoutError:
        return
    assert sorted(offsets(divided)) == sorted(offsets(layout))
    assert divided[0].size == tile


@law(separate_layouts(), st.data())
def test_a_divide_mode_by_mode_undone_by_coalescing_is_the_layout(layout: Layout, data: st.DataObject) -> None:
    sizes = it.product_each(layout.shape)
    tiler = tuple(data.draw(st.sampled_from([d for d in range(1, s + 1) if s % d == 0])) for s in sizes)
    try:
        divided = cute.logical_divide(layout, tiler)
    except LayoutError:
        return
    assert offsets(divided) == offsets(layout)  # (tile, rest) of a mode counts as the mode does
    assert offsets(cute.coalesce(divided, (1,) * layout.rank)) == offsets(layout)


@law(separate_layouts(most=24), separate_layouts(most=12))
def test_a_product_repeats_the_block_without_overlap(block: Layout, tiler: Layout) -> None:
    try:
        product = cute.logical_product(block, tiler)
    except LayoutError:
        assert not can_express(repeats_of(block, block.size * tiler.cosize), tiler)
        return
    assert offsets(product[0]) == offsets(block)
    assert len(set(offsets(product))) == block.size * tiler.size


@law(separate_layouts(most=16, gaps=False), shapes(most=8))
def test_dividing_a_product_by_its_block_gives_the_product_back(block: Layout, repeats: Any) -> None:
    product = cute.coalesce(cute.logical_product(block, Layout(repeats)))
    divided = cute.logical_divide(product, Layout(block.size))
    assert offsets(divided[0]) == offsets(block)
    assert offsets(divided) == offsets(product)


@law(separate_layouts(most=24), separate_layouts(most=12))
def test_blocked_and_raked_products_hold_the_same_offsets(block: Layout, tiler: Layout) -> None:
    try:
        blocked = cute.blocked_product(block, tiler)
    except LayoutError:
        return
    raked = cute.raked_product(block, tiler)
    assert sorted(offsets(blocked)) == sorted(offsets(raked))
    assert it.product_each(blocked.shape) == it.product_each(raked.shape)


@law(st.tuples(SIZES, SIZES), st.tuples(st.integers(1, 4), st.integers(1, 4)))
def test_tile_to_shape_fills_the_shape(block: tuple[int, int], times: tuple[int, int]) -> None:
    target = (block[0] * times[0], block[1] * times[1])
    for order in ((0, 1), (1, 0)):
        tiled = cute.tile_to_shape(Layout(block, cute.LayoutRight), target, order)
        assert cute.compatible(target, tiled.shape)
        assert sorted(offsets(tiled)) == list(range(math.prod(target)))


def test_a_layout_as_tiler_divides_the_flattened_layout_and_the_remark_says_so() -> None:
    matrix, tile = Layout((128, 64), (64, 1)), Layout((32, 8), (8, 1))
    assert cute.zipped_divide(matrix, tile) == Layout((((16, 2), 8), 32), (((512, 1), 64), 2))
    assert cute.zipped_divide(matrix, (32, 8)) == Layout(((32, 8), (4, 8)), ((64, 1), (2048, 8)))
    remark = cute.tiler_remark(matrix, tile)
    assert remark is not None
    assert "use the shape (32,8)" in remark
    assert cute.tiler_remark(matrix, (32, 8)) is None


def test_a_tile_that_crosses_modes_unevenly_is_refused_and_told_to_go_mode_by_mode() -> None:
    padded = Layout((6, 4), (1, 100))
    with pytest.raises(LayoutError, match=r"mode by mode"):
        cute.zipped_divide(padded, Layout(4))
    assert cute.zipped_divide(padded, (4,))(3, 1) == 1 * 4 + 3  # reaches past the end of the column, as in CuTe


# Tensors and partitions


@law(st.sampled_from([(2, 2), (4, 2), (2, 8), (8, 4)]), st.booleans())
def test_tiles_and_threads_cover_a_tensor_once(tile: tuple[int, int], row_major: bool) -> None:
    tensor = cute.Tensor(Layout((16, 32), cute.LayoutRight if row_major else None), 7)
    grid = (16 // tile[0], 32 // tile[1])
    tiles = [cute.local_tile(tensor, tile, (i, j)) for i in range(grid[0]) for j in range(grid[1])]
    shares = [cute.local_partition(tensor, Layout(tile), thread) for thread in range(math.prod(tile))]
    for parts in (tiles, shares):
        reached = [part.offset + offset for part in parts for offset in offsets(part.layout)]
        assert sorted(reached) == list(range(7, 7 + 16 * 32))


def test_a_tile_outside_of_the_tensor_is_refused() -> None:
    tensor = cute.Tensor(Layout((16, 32)))
    cute.local_tile(tensor, (4, 8), (3, 3))
    with pytest.raises(LayoutError, match="lies outside"):
        cute.local_tile(tensor, (4, 8), (4, 0))
    with pytest.raises(LayoutError, match="use an offset below 8"):
        cute.local_partition(tensor, Layout((2, 4)), 8)


def test_an_identity_tensor_tells_the_coordinates_of_a_share() -> None:
    identity = cute.make_identity_tensor((16, 32))
    share = cute.local_partition(cute.local_tile(identity, (8, 8), (1, 2)), Layout((4, 8), (8, 1)), 9)
    assert [share(i) for i in range(2)] == [(9, 17), (13, 17)]


# Swizzles


@law(swizzles(), separate_layouts())
def test_a_swizzled_layout_has_as_many_offsets(swizzle: Swizzle, layout: Layout) -> None:
    composed = cute.composition(swizzle, layout)
    assert len(set(offsets(composed))) == layout.size
    assert composed.cosize == max(offsets(composed)) + 1


@law(swizzles(), st.integers(0, 64), separate_layouts(), st.data())
def test_slices_of_a_swizzled_layout_stay_where_they_were(
    swizzle: Swizzle, offset: int, layout: Layout, data: st.DataObject
) -> None:
    if layout.rank < 2:  # most of those that are drawn
        layout = cute.append(layout, Layout(3, 5), 2)
    composed = ComposedLayout(swizzle, offset, layout)
    first = data.draw(st.integers(0, it.product_each(layout.shape)[0] - 1))
    rest = cute.slice((first, *(None,) * (layout.rank - 1)), composed)
    sizes = it.product_each(layout.shape)[1:]
    places = [it.idx2crd(i, sizes) for i in range(math.prod(sizes))]
    assert offsets(rest) == [composed((first, *it.wrap(place))) for place in places]


@law(swizzles(), separate_layouts(), st.sampled_from([8, 16, 32, 64]))
def test_elements_and_bytes_are_the_same_places(swizzle: Swizzle, layout: Layout, bits: int) -> None:
    elements = ComposedLayout(swizzle, 0, layout)
    in_bytes = elements.to_bytes(bits)
    assert offsets(in_bytes) == [offset * bits // 8 for offset in offsets(elements)]
    assert in_bytes.to_elements() == elements
    assert cute.parse_byte_layout(str(in_bytes)) == in_bytes


def test_units_are_not_mixed_up() -> None:
    """CUTLASS #1559: the same tile prints as <3,4,3> in bytes and <3,3,3> in elements."""
    tile = Layout((8, 64), (64, 1))
    assert str(ComposedLayout(Swizzle(3, 3, 3), 0, tile).to_bytes(16)) == "Sw<3,4,3>_smem_ptr[16b] o (8,64):(64,1)"
    assert ByteLayout(Swizzle(3, 4, 3), tile, element_bits=16)(1, 0) == 2 * ComposedLayout(Swizzle(3, 3, 3), 0, tile)(
        1, 0
    )
    with pytest.raises(LayoutError, match="moves parts"):
        ByteLayout(Swizzle(3, 0, 3), tile, element_bits=16).to_elements()


@law(swizzles())
def test_masks_make_the_swizzle_again(swizzle: Swizzle) -> None:
    assume(swizzle.num_bits)
    assert cute.make_swizzle(swizzle.source_mask, swizzle.target_mask) == swizzle


@law(st.sampled_from([Swizzle(2, 0, 3), Swizzle(3, 3, 3), Swizzle(1, 2, 2)]))
def test_a_swizzled_layout_is_inverted_with_its_swizzle(swizzle: Swizzle) -> None:
    composed = ComposedLayout(swizzle, 0, Layout((8, 64), (64, 1)))
    inverse = cute.right_inverse(composed)
    assert [composed(inverse(i)) for i in range(512)] == list(range(512))


# Other units


@law(separate_layouts(), st.sampled_from([2, 4]))
def test_downcast_undoes_upcast(layout: Layout, factor: int) -> None:
    assume(layout.size > 1)
    try:
        wide = cute.upcast(layout, factor)
    except LayoutError:
        return
    assert {offset // factor for offset in offsets(layout)} == set(offsets(wide))
    if 1 in it.leaves(wide.stride) and wide.size * factor == layout.size:
        assert set(offsets(cute.downcast(wide, factor))) == set(offsets(layout))


@law(separate_layouts(), separate_layouts())
def test_the_common_vector_is_contiguous_in_both(a: Layout, b: Layout) -> None:
    try:
        common = cute.max_common_layout(a, b)
    except LayoutError:
        return
    run = list(range(common.size))
    assert [unbounded(a)(i) for i in offsets(common)] == [unbounded(b)(i) for i in offsets(common)] == run


@law(shapes(), st.integers(1, 12))
def test_distribution_divides_the_shape(shape: Any, count: int) -> None:
    spread = cute.domain_distribute(shape, count)
    assert count % spread.size == 0
    assert len(set(offsets(spread))) == spread.size
    assert max(offsets(spread)) < it.product(shape)


@pytest.mark.parametrize(
    ("offset", "coord", "index"),  # CUTLASS 4.2 prints these
    [(3, (1, 0), 1), (9, (0, 0), 0), (15, (3, 0), 3), (17, (0, 1), 4), (21, (2, 1), 6), (38, (3, 2), 11)],
)
def test_an_offset_that_is_not_reached_has_cutes_coordinate(offset: int, coord: tuple[int, int], index: int) -> None:
    layout = Layout((4, 3), (2, 16))
    assert layout.get_hier_coord(offset) == layout.get_flat_coord(offset) == coord
    assert layout.get_1d_coord(offset) == index


def test_a_coordinate_that_cute_misses_and_offsets_outside_are_refused() -> None:
    overlapping = Layout((4, 4), (2, 3))  # 3 + 2 = 5 is at (1,1), which no division finds
    for layout, offset in ((overlapping, 7), (Layout(4, 2), 7), (Layout(4, 2), -1)):
        with pytest.raises(LayoutError, match="no coordinate for offset"):
            layout.get_hier_coord(offset)


def test_modes_of_equal_order_start_together_as_in_cute() -> None:
    assert str(cute.make_ordered_layout((4, 3, 2), (0, 0, 1))) == "(4,3,2):(1,1,12)"
    assert str(cute.make_ordered_layout((2, 3, 4), (1, 1, 0))) == "(2,3,4):(4,4,1)"
    assert str(cute.make_ordered_layout(((2, 3), 4), (1, 1))) == "((2,3),4):((1,2),1)"
    with pytest.raises(LayoutError, match="two modes share a place"):
        cute.tile_to_shape(Layout((2, 2)), (8, 8), (0, 0))


def nested(number: int, depth: int) -> Any:
    return number if depth == 0 else (nested(number, depth - 1),)


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize(("outer", "inner"), [((4, 1), (4, 4)), ((8, 1), (4, 2)), ((4, 2), (4, 2)), ((8, 3), (2, 1))])
def test_inverses_of_a_layout_of_a_layout_lead_back(outer: tuple[int, int], inner: tuple[int, int], depth: int) -> None:
    a, b = (Layout(nested(extent, depth), nested(step, depth)) for extent, step in (outer, inner))
    composed = ComposedLayout(a, 0, b)
    left, right = cute.left_inverse(composed), cute.right_inverse(composed)
    assert [left(composed(index)) for index in range(composed.size)] == list(range(composed.size))
    assert [composed(right(offset)) for offset in range(right.size)] == list(range(right.size))
