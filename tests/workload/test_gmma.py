"""wgmma's operands: layouts, descriptors and wavefronts, against CuTe's own answers and as laws."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.errors import KernelError, LayoutError
from gpusim.layout import (
    SWIZZLE_MODES,
    ByteLayout,
    ComposedLayout,
    Layout,
    Swizzle,
    Tensor,
    local_tile,
    parse_byte_layout,
    parse_int_tuple,
    span_bytes,
    swizzle_mode,
    tile_to_shape,
)
from gpusim.workload.atoms import mma_sync, wgmma
from gpusim.workload.dtypes import BF16, FP8, TF32, DType
from gpusim.workload.operands import OperandTile
from gpusim.workload.smem.wgmma_operands import (
    Major,
    WgmmaDescriptor,
    gmma_atom,
    gmma_major,
    wgmma_descriptor,
    wgmma_descriptors,
    wgmma_wavefronts,
)

ORACLE = json.loads((Path(__file__).parent / "descriptor_oracle" / "descriptor_answers.json").read_text(encoding="utf-8"))
ATOMS = [row[1:] for row in ORACLE if row[0] == "atom"]
TILES = [row[1:] for row in ORACLE if row[0] == "tile"]
DESCRIPTORS = [row[1:] for row in ORACLE if row[0] == "descriptor"]

FORMS: list[tuple[Major, str, int]] = [("K", mode, bits) for mode in SWIZZLE_MODES for bits in (8, 16, 32)]
FORMS += [("MN", mode, 16) for mode in SWIZZLE_MODES]
"""Every canonical layout."""

SWIZZLED = [mode for mode in SWIZZLE_MODES if mode != "none"]


def offsets(layout: ByteLayout) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Byte offsets of all coordinates, as the layout's own call gives them."""
    return cast("np.ndarray[Any, np.dtype[np.int64]]", layout(np.arange(layout.size)))


@st.composite
def tiles(draw: st.DrawFn, form: tuple[Major, str, int] | None = None) -> tuple[ByteLayout, Major]:
    """A canonical tile (m or n, k) and its major mode, the repeats in either order."""
    major, mode, bits = form or draw(st.sampled_from(FORMS))
    atom = gmma_atom(major, mode, element_bits=bits)
    step, span = 256 // bits, span_bytes(mode) * 8 // bits
    mn_unit, k_unit = (8, max(step, span)) if major == "K" else (max(span, 8), step)
    shape = (mn_unit * draw(st.integers(1, 6)), k_unit * draw(st.integers(1, 4)))
    return cast("ByteLayout", tile_to_shape(atom, shape, draw(st.sampled_from([(0, 1), (1, 0)])))), major


# ---------------------------------------------------------------------- CuTe's answers


def test_the_table_holds_every_canonical_layout_and_dozens_of_tiles_and_descriptors() -> None:
    assert {(major, mode, bits) for major, mode, bits, _answer in ATOMS} >= set(FORMS)
    assert len(TILES) >= 100
    assert len([row for row in DESCRIPTORS if not row[-1].startswith("refused")]) >= 100
    assert len([row for row in DESCRIPTORS if row[-1].startswith("refused")]) >= 10


@pytest.mark.parametrize(("major", "mode", "bits", "answer"), ATOMS)
def test_an_atom_is_cutes_or_one_that_wgmma_does_not_take(major: Major, mode: str, bits: int, answer: str) -> None:
    if major == "MN" and bits != 16:
        with pytest.raises(LayoutError, match="of 16 bits alone"):
            gmma_atom(major, mode, element_bits=bits)
    else:
        assert gmma_atom(major, mode, element_bits=bits) == parse_byte_layout(answer)


@pytest.mark.parametrize(("major", "mode", "bits", "shape", "order", "answer"), TILES)
def test_a_tile_is_cutes(major: Major, mode: str, bits: int, shape: str, order: str, answer: str) -> None:
    atom = gmma_atom(major, mode, element_bits=bits)
    given_order = (parse_int_tuple(order),) if order else ()
    assert str(tile_to_shape(atom, parse_int_tuple(shape), *given_order)) == answer


@pytest.mark.parametrize(("major", "layout", "mn", "place", "base", "answer"), DESCRIPTORS)
def test_a_descriptor_is_cutes_or_both_refuse(
    major: Major, layout: str, mn: int, place: str, base: int, answer: str
) -> None:
    tile, where = parse_byte_layout(layout), parse_int_tuple(place)
    if len(where) == 3:
        tile = tile(None, None, where[2])

    def descriptor() -> WgmmaDescriptor:
        part = local_tile(Tensor(tile), (mn, 256 // tile.element_bits), where[:2])
        return wgmma_descriptor(cast("ByteLayout", part.layout), major, base)

    if answer.startswith("refused"):
        with pytest.raises(LayoutError):
            descriptor()
    else:
        assert hex(descriptor().bits) == hex(int(answer, 16))
        assert hex(WgmmaDescriptor.from_bits(int(answer, 16)).bits) == hex(int(answer, 16))


# ---------------------------------------------------------------------- laws


@pytest.mark.parametrize(("major", "mode", "bits"), FORMS)
def test_an_atom_is_a_bijection_onto_its_bytes(major: Major, mode: str, bits: int) -> None:
    atom = gmma_atom(major, mode, element_bits=bits)
    assert sorted(offsets(atom)) == list(range(0, atom.size * bits // 8, bits // 8))
    assert atom.size * bits // 8 == 8 * span_bytes(mode)


@settings(deadline=None)
@given(tiles())
def test_a_tile_is_a_bijection_onto_its_bytes(tile_and_major: tuple[ByteLayout, Major]) -> None:
    tile, _major = tile_and_major
    num_bytes = tile.element_bits // 8
    assert sorted(offsets(tile)) == list(range(0, tile.size * num_bytes, num_bytes))


@pytest.mark.parametrize("mode", SWIZZLED)
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_eight_rows_of_one_chunk_fall_into_eight_bank_groups(mode: str, bits: int) -> None:
    atom = gmma_atom("K", mode, element_bits=bits)
    for chunk in range(span_bytes(mode) // 16):
        groups = {atom(row, chunk * 128 // bits) // 16 % 8 for row in range(8)}
        assert groups == set(range(8))


@given(
    start=st.integers(0, (1 << 14) - 1),
    leading=st.integers(0, (1 << 14) - 1),
    stride=st.integers(0, (1 << 14) - 1),
    base_offset=st.integers(0, 7),
    swizzle=st.sampled_from(list(SWIZZLE_MODES)),
)
def test_bits_to_fields_and_back(start: int, leading: int, stride: int, base_offset: int, swizzle: str) -> None:
    descriptor = WgmmaDescriptor(
        start_address_bytes=16 * start,
        leading_offset_bytes=16 * leading,
        stride_offset_bytes=16 * stride,
        base_offset=base_offset,
        swizzle=swizzle,
    )
    assert WgmmaDescriptor.from_bits(descriptor.bits) == descriptor
    assert 0 <= descriptor.bits < 1 << 64


@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None, max_examples=20)
@given(base_kib=st.integers(0, 60), data=st.data())
def test_a_descriptor_reads_the_bytes_that_the_layout_says(
    form: tuple[Major, str, int], base_kib: int, data: st.DataObject
) -> None:
    """Every row of 16 bytes of every core matrix of a k-step."""
    tile, major = data.draw(tiles(form))
    per_chunk, step = 128 // tile.element_bits, 256 // tile.element_bits
    num_mn, num_k = (tile.layout[mode].size for mode in (0, 1))
    descriptors = wgmma_descriptors(tile, major, 1024 * base_kib)
    assert len(descriptors) == num_k // step
    k_step = data.draw(st.integers(0, len(descriptors) - 1))
    read = descriptors[k_step].core_matrices(major, num_mn)
    block, half, row = np.indices(read.shape)
    if major == "K":
        coord = (8 * block + row, step * k_step + per_chunk * half)
    else:
        coord = (8 * block, step * k_step + 8 * half + row)
    assert np.array_equal(read, 1024 * base_kib + tile(*coord))


@settings(deadline=None)
@given(tiles(), st.data())
def test_an_advanced_descriptor_is_that_of_the_sliced_layout(
    tile_and_major: tuple[ByteLayout, Major], data: st.DataObject
) -> None:
    """By as many bytes as the plain layout goes on; within the span of a K-major swizzle that is 32 bytes a k-step."""
    tile, major = tile_and_major
    step = 256 // tile.element_bits
    descriptors = wgmma_descriptors(tile, major)
    k_step = data.draw(st.integers(0, len(descriptors) - 1))
    plain_bytes = tile.layout(0, step * k_step) * tile.element_bits // 8
    assert descriptors[0].advance(plain_bytes) == descriptors[k_step]
    if major == "K" and tile.swizzle == swizzle_mode("128B") and k_step < 4:
        assert plain_bytes == 32 * k_step


@settings(deadline=None)
@given(tiles())
def test_the_contiguous_mode_is_found(tile_and_major: tuple[ByteLayout, Major]) -> None:
    tile, major = tile_and_major
    assert gmma_major(tile) == major


@pytest.mark.parametrize(("major", "mode", "bits"), FORMS)
def test_an_operand_tile_lies_as_the_canonical_layout_says(major: Major, mode: str, bits: int) -> None:
    """Panels side by side along the contiguous mode: the atom repeated along the other mode first."""
    dtype = {8: FP8, 16: BF16, 32: TF32}[bits]
    tile = OperandTile(
        rows=128, k=128, dtype=dtype, is_k_major=major == "K", swizzle=mode, is_interleaved=mode == "none"
    )
    order = (0, 1) if major == "K" else (1, 0)
    canonical = cast("ByteLayout", tile_to_shape(gmma_atom(major, mode, element_bits=bits), (128, 128), order))
    assert np.array_equal(offsets(tile.smem_layout), offsets(canonical))
    assert wgmma_descriptors(tile.smem_layout, major) == wgmma_descriptors(canonical, major)


# ---------------------------------------------------------------------- refusals


def k_tile(mode: str = "128B") -> ByteLayout:
    return cast("ByteLayout", tile_to_shape(gmma_atom("K", mode, element_bits=16), (64, 64)))


@pytest.mark.parametrize(("mode", "period"), [("none", 16), ("32B", 256), ("64B", 512), ("128B", 1024)])
def test_a_tile_starts_on_the_repeat_of_its_swizzle(mode: str, period: int) -> None:
    assert wgmma_descriptor(k_tile(mode), "K", period).start_address_bytes == period
    with pytest.raises(LayoutError, match=f"repeats after {period} bytes"):
        wgmma_descriptor(k_tile(mode), "K", period // 2)


def test_a_tile_does_not_start_in_the_midst_of_a_repeat() -> None:
    tile = cast("ByteLayout", tile_to_shape(gmma_atom("K", "128B", element_bits=16), (64, 64)))
    shifted = ByteLayout(tile.swizzle, tile.layout, 16, offset=4 * 64)
    with pytest.raises(LayoutError, match="start on a multiple of 8 rows"):
        wgmma_descriptor(shifted, "K")
    assert wgmma_descriptor(ByteLayout(tile.swizzle, tile.layout, 16, offset=8 * 64), "K").start_address_bytes == 1024


def test_fourteen_bits_hold_offsets_below_256_kib() -> None:
    def spread(offset: int) -> ByteLayout:
        return ByteLayout(Swizzle(3, 4, 3), Layout(((8, 2), 16), ((64, offset // 2), 1)), 16)

    assert wgmma_descriptor(spread((1 << 18) - 1024), "K").stride_offset_bytes == (1 << 18) - 1024
    with pytest.raises(LayoutError, match="stride_offset_bytes is 262144, which 14 bits do not hold"):
        wgmma_descriptor(spread(1 << 18), "K")
    last = wgmma_descriptor(k_tile("none"), "K", (1 << 18) - 16)
    with pytest.raises(LayoutError, match="start_address_bytes is 262144"):
        last.advance(16)


@pytest.mark.parametrize(
    ("bits", "reason"), [(1 << 64, "use 64 bits"), (-1, "use 64 bits"), (1 << 14, "none set but"), (1 << 52, "none set but")]
)
def test_bits_without_a_meaning_are_refused(bits: int, reason: str) -> None:
    with pytest.raises(LayoutError, match=reason):
        WgmmaDescriptor.from_bits(bits)


def test_what_is_refused_says_why() -> None:
    row_major = ByteLayout(Swizzle(0, 4, 3), Layout((64, 64), (64, 1)), 16)
    with pytest.raises(LayoutError, match="rows are 128 bytes apart: swizzle 'none' has them 16 apart"):
        wgmma_descriptor(row_major, "K")
    with pytest.raises(LayoutError, match="contiguous along MN"):
        wgmma_descriptor(k_tile(), "MN")
    with pytest.raises(LayoutError, match="k=8 is no multiple of the k-step's 16: use 16"):
        wgmma_descriptor(gmma_atom("K", "none", element_bits=16), "K")
    with pytest.raises(LayoutError, match="is none of the hardware's"):
        wgmma_descriptor(ByteLayout(Swizzle(3, 3, 3), Layout((8, 64), (64, 1)), 16), "K")
    with pytest.raises(LayoutError, match="chunks of 16 bytes are 32 apart"):
        wgmma_descriptor(ByteLayout(Swizzle(3, 4, 3), Layout(((8, 8), (8, 2)), ((64, 512), (1, 16))), 16), "K")
    with pytest.raises(LayoutError, match="3 modes"):
        wgmma_descriptor(cast("ByteLayout", tile_to_shape(k_tile(), (64, 64, 2))), "K")
    with pytest.raises(LayoutError, match="use a multiple of 16"):
        WgmmaDescriptor(start_address_bytes=8, leading_offset_bytes=0, stride_offset_bytes=0, swizzle="none")
    with pytest.raises(LayoutError, match="base_offset is 8: use 0 to 7"):
        WgmmaDescriptor(start_address_bytes=0, leading_offset_bytes=0, stride_offset_bytes=0, swizzle="none", base_offset=8)
    with pytest.raises(LayoutError, match="64 bits: use one of 8, 16, 32"):
        gmma_atom("K", "128B", element_bits=64)
    with pytest.raises(LayoutError, match="major mode 'M' is unknown"):
        gmma_atom("M", "128B", element_bits=16)  # type: ignore[arg-type]  # the refusal is what is tested
    with pytest.raises(LayoutError, match="contiguous along no mode"):
        gmma_major(ByteLayout(Swizzle(0, 4, 3), Layout((8, 8), (16, 2)), 16))


# ---------------------------------------------------------------------- wavefronts


@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_canonical_operands_are_read_without_conflicts(form: tuple[Major, str, int], data: st.DataObject) -> None:
    dtype: DType = {8: FP8, 16: BF16, 32: TF32}[form[2]]
    b = data.draw(tiles(form))[0]
    num_n = next(n for n in (96, 64, 48, 32, 24, 16, 8) if b.layout[0].size % n == 0 and fits_span(form, n))
    deep = max(span_bytes(form[1]) * 8 // form[2], 32) if form[0] == "K" else 32
    a = cast("ByteLayout", tile_to_shape(gmma_atom(*form[:2], element_bits=form[2]), (128, deep)))
    assert wgmma_wavefronts(wgmma(num_n, dtype), (a, b)) == wgmma_wavefronts(wgmma(num_n, dtype))
    assert wgmma_wavefronts(wgmma(num_n, dtype, "registers"), (None, b)) == num_n * 32 // 128


def fits_span(form: tuple[Major, str, int], num_n: int) -> bool:
    """Whether an operand is whole spans, or a part of one."""
    num_bytes, span = num_n * form[2] // 8, span_bytes(form[1])
    return form[0] == "K" or num_bytes % span == 0 or span % num_bytes == 0


def test_an_operand_that_no_descriptor_describes_is_refused() -> None:
    row_major = ByteLayout(Swizzle(0, 4, 3), Layout((64, 64), (64, 1)), 16)
    with pytest.raises(LayoutError, match="no canonical K-major layout"):
        wgmma_wavefronts(wgmma(64, BF16), (row_major, k_tile()))
    with pytest.raises(LayoutError, match="elements of 16 bits: use 8"):
        wgmma_wavefronts(wgmma(64, FP8), (k_tile(), k_tile()))
    with pytest.raises(LayoutError, match=r"use multiples of \(96,16\)"):
        wgmma_wavefronts(wgmma(96, BF16), (k_tile(), k_tile()))


def test_a_layout_of_a_is_given_exactly_if_a_lies_in_smem() -> None:
    with pytest.raises(KernelError, match="A comes from registers"):
        wgmma_wavefronts(wgmma(64, BF16, "registers"), (k_tile(), k_tile()))
    with pytest.raises(KernelError, match="A comes from smem"):
        wgmma_wavefronts(wgmma(64, BF16), (None, k_tile()))
    with pytest.raises(KernelError, match="use a wgmma atom"):
        wgmma_wavefronts(mma_sync(BF16), (k_tile(), k_tile()))


@pytest.mark.parametrize(("bits", "base"), [(8, 4), (16, 3), (32, 2)])
def test_a_swizzle_in_elements_is_taken_where_it_tells_their_width(bits: int, base: int) -> None:
    tile = tile_to_shape(gmma_atom("K", "128B", element_bits=bits), (64, 1024 // bits))
    in_elements = tile.to_elements()
    assert in_elements.layout_a == Swizzle(3, base, 3)
    assert wgmma_descriptor(in_elements, "K") == wgmma_descriptor(tile, "K")
    assert wgmma_descriptors(in_elements, "K") == wgmma_descriptors(tile, "K")
    assert gmma_major(in_elements) == "K"


@pytest.mark.parametrize(
    "tile",
    [Layout((64, 64), (64, 1)), ComposedLayout(Swizzle(0, 3, 3), 0, Layout((64, 64), (64, 1))),
     ComposedLayout(Swizzle(3, 0, 3), 0, Layout((64, 64), (64, 1)))],
    ids=str,
)  # fmt: skip
def test_a_layout_that_does_not_tell_its_elements_width_is_refused(tile: Layout | ComposedLayout) -> None:
    asks = (lambda: wgmma_descriptor(tile, "K"), lambda: wgmma_descriptors(tile, "K"), lambda: gmma_major(tile),
            lambda: wgmma_wavefronts(wgmma(64, BF16), (tile, tile)))  # fmt: skip
    for ask in asks:
        with pytest.raises(LayoutError, match="does not say how wide its elements are: use"):
            ask()
