"""What texts on CuTe claim, and what CuTe itself answers; worked out by hand or with the real headers."""

from __future__ import annotations

import pytest

from gpusim import layout as cute
from gpusim.errors import LayoutError
from gpusim.layout import Layout, Swizzle


def test_a_layout_without_strides_is_column_major() -> None:
    assert cute.make_layout((4, 8)) == Layout((4, 8), (1, 4))
    assert cute.make_layout((4, 8), cute.LayoutRight) == Layout((4, 8), (8, 1))


def test_coordinates_count_from_the_left() -> None:
    assert cute.idx2crd(5, (3, (2, 3))) == (2, (1, 0))
    assert cute.crd2idx((1, (1, 2)), (3, (2, 3))) == 16


def test_a_nested_coordinate_adds_up() -> None:
    assert Layout((4, (2, 4)), (8, (4, 1)))(1, (0, 3)) == 8 + 0 + 3


def test_tiled_divide_unpacks_the_rest_and_zipped_divide_does_not() -> None:
    matrix = Layout((4, 8), (8, 1))
    assert cute.tiled_divide(matrix, (2, 4)) == Layout(((2, 4), 2, 2), ((8, 1), 16, 4))
    assert cute.zipped_divide(matrix, (2, 4)) == Layout(((2, 4), (2, 2)), ((8, 1), (16, 4)))


def test_a_swizzle_of_two_bits_moves_the_low_bits_by_the_high_ones() -> None:
    assert [Swizzle(2, 0, 2)(x) for x in (4, 5, 12, 20)] == [5, 4, 15, 21]


def test_a_complement_fills_the_gaps() -> None:
    assert cute.complement(Layout(4, 4), 16) == Layout(4, 1)
    assert cute.complement(Layout((4,), (4,)), 16) == Layout(4, 1)
    assert cute.complement(Layout(4, 1), 24) == Layout(6, 4)
    assert cute.logical_divide(Layout(24), Layout(4)) == Layout((4, 6), (1, 4))


def test_every_second_of_eight() -> None:
    picked = cute.composition(Layout(8), Layout(4, 2))
    assert picked == Layout(4, 2)
    assert cute.cosize(picked) == 7


def test_coalescing_two_modes_and_one_nested_shape_differ() -> None:
    assert cute.coalesce(Layout((2, 4), (1, 2))) == Layout(8, 1)
    assert cute.coalesce(Layout(((2, 4), (1, 2)))) == Layout(16, 1)


def test_a_layout_tiler_does_not_make_threads_and_rest() -> None:
    matrix = Layout((128, 64), (64, 1))
    assert cute.zipped_divide(matrix, Layout((32, 8), (8, 1))) == Layout((((16, 2), 8), 32), (((512, 1), 64), 2))
    assert cute.zipped_divide(matrix, (32, 8)) == Layout(((32, 8), (4, 8)), ((64, 1), (2048, 8)))


def wavefronts(row_bytes: int, swizzle: Swizzle) -> int:
    """Most of 8 rows' 16-byte chunks of one column that share four banks: wavefronts of one ldmatrix phase."""
    chunks = [swizzle(row * row_bytes // 2) * 2 // 16 % 8 for row in range(8)]
    return max(chunks.count(chunk) for chunk in chunks)


@pytest.mark.parametrize(
    ("row_bytes", "swizzle", "expected"),
    [
        (128, Swizzle(0, 3, 3), 8),
        (128, Swizzle(2, 3, 3), 2),  # not enough for rows of 128 bytes
        (128, Swizzle(3, 3, 3), 1),
        (64, Swizzle(2, 3, 3), 1),
        (32, Swizzle(1, 3, 3), 1),  # rows of 16 columns need one bit
    ],
)
def test_how_many_bits_a_swizzle_needs(row_bytes: int, swizzle: Swizzle, expected: int) -> None:
    assert wavefronts(row_bytes, swizzle) == expected


def test_a_product_by_an_integer_multiplies() -> None:
    """CuTe's Python twin divides here."""
    assert cute.logical_product(Layout(4), 3) == Layout((4, 3), (1, 4))


def test_one_tuples_are_kept() -> None:
    assert str(Layout(((4,), 6))) == "((4),6):((1),4)"
    assert Layout.parse("((4),6):((1),4)") == Layout(((4,), 6), ((1,), 4))


@pytest.mark.parametrize(
    "text", ["(4,8:(1,4)", "(4,8):(1,4", "(4,x):(1,4)", "4,8", "(4,8):(1,4):2", "()", "Sw<3,3> o 8:1"]
)
def test_text_that_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(LayoutError):
        Layout.parse(text)
