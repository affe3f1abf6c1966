"""Swizzles are bijections that undo themselves; the modes are those of the hardware."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim import layout as cute
from gpusim.errors import LayoutError
from gpusim.layout import (
    SWIZZLE_MODES,
    ByteLayout,
    ComposedLayout,
    Layout,
    Swizzle,
    Tensor,
    blocked_product,
    composition,
    downcast,
    logical_divide,
    logical_product,
    make_identity_layout,
    max_alignment,
    parse_swizzle,
    recast_layout,
    right_inverse,
    show_swizzle,
    span_bytes,
    swizzle_mode,
    tile_to_shape,
    units_remark,
    upcast,
    zipped_divide,
    zipped_product,
)


@st.composite
def swizzles(draw: st.DrawFn) -> Swizzle:
    num_bits = draw(st.integers(0, 4))
    shift = draw(st.integers(num_bits, 6)) * draw(st.sampled_from((1, -1)))
    return Swizzle(num_bits, draw(st.integers(0, 4)), shift)


@given(swizzle=swizzles())
def test_a_swizzle_permutes_every_period(swizzle: Swizzle) -> None:
    offsets = np.arange(3 * swizzle.period)
    blocks = swizzle(offsets).reshape(3, swizzle.period)
    assert np.array_equal(np.sort(blocks), offsets.reshape(3, swizzle.period))


@given(swizzle=swizzles(), offset=st.integers(0, 2**40))
def test_a_swizzle_is_its_own_inverse(swizzle: Swizzle, offset: int) -> None:
    assert swizzle(swizzle(offset)) == offset


@given(swizzle=swizzles(), offset=st.integers(0, 2**40))
def test_only_target_bits_change_and_only_source_bits_decide(swizzle: Swizzle, offset: int) -> None:
    change = swizzle(offset) ^ offset
    assert change & ~swizzle.target_mask == 0
    assert change == swizzle(offset & swizzle.source_mask) ^ (offset & swizzle.source_mask)


@given(swizzle=swizzles(), offsets=st.lists(st.integers(0, 2**40), min_size=1))
def test_an_array_is_swizzled_element_by_element(swizzle: Swizzle, offsets: list[int]) -> None:
    assert swizzle(np.array(offsets)).tolist() == [swizzle(offset) for offset in offsets]


@given(offset=st.integers(0, 2**20))
def test_a_swizzle_of_bytes_is_the_upcast_swizzle_of_elements(offset: int) -> None:
    in_bytes = Swizzle(3, 4, 3)
    assert in_bytes(2 * offset) == 2 * in_bytes.upcast(2)(offset)


@pytest.mark.parametrize(("mode", "num_rows_that_share_a_shift"), [("32B", 4), ("64B", 2), ("128B", 1)])
def test_tma_puts_chunk_c_of_row_r_at_c_xor_a_function_of_r(mode: str, num_rows_that_share_a_shift: int) -> None:
    """Facts 7.6: c ^ (r mod 8), c ^ (r/2 mod 4), c ^ (r/4 mod 2), with rows as wide as the span."""
    span = span_bytes(mode)
    chunks = span // 16
    for row in range(16 * 128 // span):
        for chunk in range(chunks):
            landed = chunk ^ (row // num_rows_that_share_a_shift % chunks)
            assert swizzle_mode(mode)(row * span + 16 * chunk) == row * span + 16 * landed


def test_a_negative_shift_moves_bits_up() -> None:
    assert Swizzle(2, 0, -2)(0b0011) == 0b1111
    assert Swizzle(2, 0, 2)(0b1100) == 0b1111


def test_a_small_integer_type_does_not_overflow() -> None:
    assert Swizzle(3, 0, -6)(np.array([7], dtype=np.int8)).tolist() == [7 | 7 << 6]


def test_without_bits_nothing_moves_whatever_the_shift() -> None:
    assert [Swizzle(0, 4, shift)(1234) for shift in (-3, 0, 3)] == [1234] * 3


def test_modes_repeat_after_eight_of_their_spans() -> None:
    assert {name: mode.period for name, mode in SWIZZLE_MODES.items()} == {
        "none": 1,
        "32B": 256,
        "64B": 512,
        "128B": 1024,
    }


def test_bit_fields_may_touch_and_must_not_overlap() -> None:
    Swizzle(3, 0, 3)
    Swizzle(3, 0, -3)
    for shift in (2, 0, -2):
        with pytest.raises(LayoutError, match=r"use \|shift\| >= 3"):
            Swizzle(3, 0, shift)


def test_negative_bit_counts_are_refused() -> None:
    for num_bits, base in ((-1, 0), (0, -1)):
        with pytest.raises(LayoutError, match="use 0 or more"):
            Swizzle(num_bits, base, 3)


def test_offsets_that_are_negative_or_no_integers_are_refused() -> None:
    swizzle = swizzle_mode("128B")
    with pytest.raises(LayoutError, match="negative"):
        swizzle(-1)
    with pytest.raises(LayoutError, match="negative"):
        swizzle(np.array([0, -16]))
    with pytest.raises(LayoutError, match="use integers"):
        swizzle(np.array([0.5]))


def test_an_unknown_mode_is_refused_with_the_nearest() -> None:
    with pytest.raises(LayoutError, match="did you mean '128B'"):
        swizzle_mode("128")


def test_a_unit_of_which_a_swizzle_moves_parts_is_refused() -> None:
    with pytest.raises(LayoutError, match="at most 16"):
        Swizzle(3, 4, 3).to_units(32)
    with pytest.raises(LayoutError, match="at most 16"):
        upcast(ComposedLayout(Swizzle(3, 4, 3), 0, Layout(1024)), 32)
    with pytest.raises(LayoutError, match="power of two"):
        Swizzle(3, 4, 3).upcast(3)


@pytest.mark.parametrize(
    ("swizzle", "factor", "answer"),  # CUTLASS 4.2 prints these
    [
        (Swizzle(3, 1, 3), 8, Swizzle(1, 0, 3)), (Swizzle(2, 1, 3), 16, Swizzle(0, 0, 3)),
        (Swizzle(3, 1, -3), 4, Swizzle(2, 0, -3)),
    ],
)
def test_upcasting_beyond_the_base_drops_what_moves_inside_units(swizzle: Swizzle, factor: int, answer: Swizzle) -> None:
    assert swizzle.upcast(factor) == upcast(swizzle, factor) == answer
    assert all(swizzle(offset) // factor == answer(offset // factor) for offset in range(0, 2 * swizzle.period, factor))


@pytest.mark.parametrize("operation", [logical_divide, zipped_divide, logical_product, zipped_product, blocked_product])
def test_a_swizzled_tiler_is_refused_and_a_swizzled_block_is_not(operation: Callable[..., Any]) -> None:
    plain, swizzled = Layout((8, 4), (4, 1)), ComposedLayout(Swizzle(1, 0, 3), 0, Layout((2, 4), (4, 1)))
    with pytest.raises(LayoutError, match="no layout has a swizzle in one mode alone"):
        operation(plain, swizzled)
    kept = operation(swizzled, Layout(2))
    assert isinstance(kept, ComposedLayout)
    assert kept.layout_a == swizzled.layout_a


def test_the_target_of_tile_to_shape_is_a_shape() -> None:
    with pytest.raises(LayoutError, match=r"use its shape, \(2,2\)"):
        tile_to_shape(Layout((2, 2)), Layout((2, 2)))  # type: ignore[arg-type]  # what is tested


@given(swizzle=swizzles(), bits=st.sampled_from((8, 16, 32, 64)))
def test_numbers_in_elements_and_the_bytes_that_they_mean_go_both_ways(swizzle: Swizzle, bits: int) -> None:
    text = f"{swizzle.num_bits},{swizzle.base},{swizzle.shift}"
    in_bytes = parse_swizzle(text, bits)
    assert in_bytes == swizzle.downcast(bits // 8)
    again = parse_swizzle(show_swizzle(in_bytes, bits), bits)
    assert again == in_bytes or again.num_bits == in_bytes.num_bits == 0


@given(swizzle=swizzles(), bits=st.sampled_from((8, 16, 32, 64)))
def test_one_is_warned_exactly_where_the_numbers_are_a_modes_and_the_map_is_not(swizzle: Swizzle, bits: int) -> None:
    text = f"{swizzle.num_bits},{swizzle.base},{swizzle.shift}"
    looks_like = [name for name, mode in SWIZZLE_MODES.items() if mode.num_bits and mode == swizzle]
    remark = units_remark(text, bits)
    assert (remark is not None) == bool(looks_like and bits > 8)
    if remark is not None:
        assert looks_like[0] in remark
        assert parse_swizzle(remark.split(": use ")[1].split(" or ")[0], bits) == swizzle_mode(looks_like[0])


@pytest.mark.parametrize("text", ["3,3", "3;3;3", "Sx<3,3,3>", "129B", "", "3,3,3,3", "-1,3,3"])
def test_what_is_no_swizzle_is_refused(text: str) -> None:
    with pytest.raises(LayoutError):
        parse_swizzle(text, 16)


# ---------------------------------------------------------------------- other units


def test_a_swizzle_of_bytes_stays_and_its_elements_become_wider_or_narrower() -> None:
    tile = ByteLayout(Swizzle(3, 4, 3), Layout((8, 64), (64, 1)), element_bits=16, offset=64)
    wide = upcast(tile, 8)
    assert wide == ByteLayout(Swizzle(3, 4, 3), Layout((8, 8), (8, 1)), element_bits=128, offset=8)
    assert downcast(wide, 8) == tile
    assert downcast(tile, 2) == ByteLayout(Swizzle(3, 4, 3), Layout((8, 128), (128, 1)), element_bits=8, offset=128)
    assert recast_layout(tile, 16, 128) == wide
    assert recast_layout(tile, 16, 8) == downcast(tile, 2)
    assert recast_layout(recast_layout(tile, 16, 32), 32, 16) == tile


@given(rows=st.sampled_from([8, 16]), factor=st.sampled_from([1, 2, 4, 8]), num_bits=st.integers(0, 3))
def test_a_recast_leaves_every_element_at_its_byte(rows: int, factor: int, num_bits: int) -> None:
    tile = ByteLayout(Swizzle(num_bits, 4, 3), Layout((rows, 64), (64, 1)), element_bits=16)
    assert max_alignment(tile) % factor == 0
    wide = upcast(tile, factor)
    assert all(wide(row, column // factor) == tile(row, column) for row in range(rows) for column in range(0, 64, factor))
    assert str(upcast(tile.to_elements(), factor)) == str(wide.to_elements())


def test_alignment_is_known_of_every_carrier() -> None:
    plain = Layout((8, 64), (64, 1))
    tile = ByteLayout(Swizzle(3, 4, 3), plain, element_bits=16)
    carriers = (plain, tile, tile.to_elements(), Tensor(plain, 4), Tensor(tile, 8))
    assert [max_alignment(carrier) for carrier in carriers] == [512, 8, 8, 4, 4]
    assert max_alignment(ByteLayout(Swizzle(0, 4, 3), plain, element_bits=16)) == 512
    assert max_alignment(ByteLayout(Swizzle(3, 4, 3), plain, element_bits=16, offset=4)) == 4


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda tile: upcast(tile, 3), "no elements of full bytes"),
        (lambda tile: downcast(tile, 4), "no elements of full bytes .* at most 2"),
        (lambda tile: upcast(Tensor(tile), 2), "use recast"),
        (lambda tile: downcast(Tensor(tile), 2), "use recast"),
        (lambda tile: upcast((4, 8), 2), "use make_layout"),
        (lambda tile: max_alignment((4, 8)), "use make_layout"),
        (right_inverse, "counts bytes, an inverse elements: use to_elements"),
        (lambda tile: composition(tile, tile), "the right one is more than a layout"),
        (lambda tile: composition(tile.to_elements(), tile.to_elements()), "the right one is more than a layout"),
        (lambda tile: composition(make_identity_layout((4, 8)), Swizzle(1, 0, 2)), "yields coordinates"),
        (lambda tile: Layout("(4,8):(8,1)"), "'.4,8.:.8,1.' is no integer: use parse_layout"),  # type: ignore[arg-type]  # a text
    ],
)  # fmt: skip
def test_what_has_no_answer_is_refused_in_words(make: Callable[[ByteLayout], object], said: str) -> None:
    with pytest.raises(LayoutError, match=said):
        make(ByteLayout(Swizzle(3, 4, 3), Layout((8, 64), (64, 1)), element_bits=16))


def test_the_short_remark_on_units_tells_no_one_what_to_use() -> None:
    short = units_remark("3,4,3", 16, is_short=True)
    assert short is not None
    assert "Sw<3,3,3> in elements of 16 bits" in short
    assert "use" not in short
    assert units_remark("3,3,3", 16, is_short=True) is None


def test_a_star_import_leaves_pythons_names_alone() -> None:
    names = set(cute.__all__)
    assert not names & (set(dir(builtins)) - {"_"})  # a prompt puts its last answer there, as one that runs docstrings does
    assert cute.slice((None, 3), Layout((4, 8), (8, 1))) == Layout((4,), (8,))
    assert cute.filter(Layout((2, 4), (1, 0))) == Layout(2, 1)
